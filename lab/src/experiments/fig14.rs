//! High and low rates on one disk: how each class fares when the server reads by rate.

use super::slow_disk::{self, NGINX, STEPS, films, place, remote, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::sweep::{Axis, Point};

const HIGH: u32 = 180;
const LOW_MOST: u32 = 300;
const HIGH_BITS_PER_S: u64 = 1_000_000;
const LOW_BITS_PER_S: u64 = 200_000;
const MEMORY_MIB: u64 = 128;
/// In tenths. With 300 low-rate clients, 30 MB/s become 72: one and a half times what the disk can deliver to
/// so many.
const OVER: u64 = 24;
/// nginx at its best must not be better. Clients that get all they ask for get the same from both, up to noise.
const NOT_LESS: Limit = Limit::MedianRatioAtLeast(0.995);

/// The paper's mix over the number of slow clients.
pub fn experiment() -> Experiment {
    let contenders = [slow_disk::nginx(), slow_disk::ladder()].concat();
    let with_300: fn(&Point) -> bool = |at| at.count("low") == LOW_MOST as usize;
    let least =
        |metric, limit| Judge::alone(metric, Fold::Median, Limit::ValueAtLeast(limit)).at(with_300);
    let told = |metric| Judge::best_of(metric, NGINX, NOT_LESS);
    let step = |metric| Judge::against(metric, STEPS, Limit::None);
    let over = |metric, title| Figure::over("low", metric, title);
    let mut figures = vec![
        over(
            "client_goodput_mean_bytes_per_s@high",
            "Clients of 1 Mbit/s (Figure 14a)",
        ),
        over(
            "client_goodput_mean_bytes_per_s@low",
            "Clients of 200 kbit/s (Figure 14b)",
        ),
        over("goodput_bytes_per_s", "All (Figure 14c)"),
        over("demand_met_min@high", "The worst-off client of 1 Mbit/s"),
    ];
    figures.extend(slow_disk::disk_figures(over));
    Experiment {
        name: "fig14",
        title: "1 Mbit/s and 200 kbit/s from one hard disk",
        asks: "180 clients take films at 1 Mbit/s and 100 to 300 take theirs at 200 kbit/s, each its own, from a hard disk of 2003, \
            by a server with 128 MB. The disk could serve them all if it were read in pieces that fit. How much of its demand does \
            each class get, and its worst-off client? nginx as it may be set up, and ackpace as a conventional server would be \
            (as Linux), with sending by ACKs (+ IDSR), with reading by rate (+ TDAP), in the order of places (+ C-LOOK), past the page cache \
            (+ direct), and with reads dropped for who left, as it is: each step changes one thing.",
        source: "TPF, Figure 14",
        contenders,
        subjects: &["ackpace"],
        sweep: vec![
            Axis::new("low", "clients of 200 kbit/s", &[100.0, 200.0, 300.0]).quick(&[300.0]),
        ],
        pace: PACE,
        scenario: |at| scenario(at.count("low") as u32, 10),
        judged: vec![
            least("demand_met_mean@high", 0.984),
            least("demand_met_min@high", 0.92),
            least("demand_met_mean@low", 0.992),
            Judge::alone("memory_peak_bytes", Fold::Max, Limit::ValueAtMost(120.0)).at(with_300),
            told("demand_met_mean@high"),
            told("demand_met_mean@low"),
            step("demand_met_mean@high"),
            step("demand_met_min@high"),
            step("demand_met_mean@low"),
            step("disk_reads_per_s"),
            step("disk_again_pages_per_s"),
        ],
        figures,
    }
}

/// The same with more demand than the disk can meet, as in the paper.
pub fn over() -> Experiment {
    let told = |metric| Judge::best_of(metric, NGINX, NOT_LESS);
    let step = |metric| Judge::against(metric, STEPS, Limit::None);
    let mut figures = vec![
        Figure::plain("demand_met_mean@high", "Demand met, fast clients"),
        Figure::plain("demand_met_mean@low", "Demand met, slow clients"),
        Figure::plain(
            "demand_met_min@high",
            "Demand met, the worst-off fast client",
        ),
        Figure::plain("goodput_bytes_per_s", "All"),
    ];
    figures.extend(slow_disk::disk_figures(Figure::plain));
    Experiment {
        name: "fig14-over",
        title: "The same mix with more demand than the disk can meet",
        asks: "180 clients of 2.4 Mbit/s and 300 of 480 kbit/s: one and a half times what the disk can deliver. The paper's server worked \
            in this range: no client gets its full rate. How much does each class get, and how much does the disk deliver in all?",
        sweep: Vec::new(),
        scenario: |_| scenario(LOW_MOST, OVER),
        judged: vec![
            told("goodput_bytes_per_s"),
            step("goodput_bytes_per_s"),
            step("demand_met_mean@high"),
            step("demand_met_mean@low"),
            step("disk_reads_per_s"),
            step("disk_again_pages_per_s"),
        ],
        figures,
        ..experiment()
    }
}

/// Both demands again, with reads ordered by different parties.
pub fn order() -> Experiment {
    const OTHERS: &[&str] = &[
        "as Linux as they come",
        "as Linux by the kernel",
        "as Linux by C-LOOK",
        "TDAP as they come",
        "TDAP by the kernel",
        "nginx-aio",
        "nginx-aio by the kernel",
    ];
    let over = |metric, title| Figure::over("demand", metric, title);
    let told = |metric| Judge::against(metric, OTHERS, Limit::None);
    let mut figures = vec![
        over("goodput_bytes_per_s", "All"),
        over("demand_met_mean@high", "Demand met, fast clients"),
        over("demand_met_mean@low", "Demand met, slow clients"),
        over("disk_seek_share", "Time that the disk seeks"),
    ];
    figures.extend(slow_disk::disk_figures(over));
    Experiment {
        name: "fig14-order",
        title: "The same mix, and who orders the reads",
        asks: "The mix of Figure 14, with a demand that the disk can meet, and with one and a half times what it can deliver. Reads go to the \
            disk as they arrive, through the kernel's elevator (mq-deadline), or in the order that the server chooses (C-LOOK); all go \
            through the page cache. The server reads ahead as a conventional one does, or by rate. What does each order gain by itself? \
            The drive reorders its own queue in all cases.",
        contenders: slow_disk::orders(),
        subjects: &["TDAP by C-LOOK"],
        sweep: vec![Axis::named(
            "demand",
            "demand",
            &["1.0 of Figure 14", "2.4 of Figure 14"],
        )],
        scenario: |at| scenario(LOW_MOST, [10, OVER][at.count("demand")]),
        judged: vec![
            told("goodput_bytes_per_s"),
            told("demand_met_mean@high"),
            told("demand_met_mean@low"),
            told("disk_seek_share"),
        ],
        figures,
        ..experiment()
    }
}

const PACE: Pace = Pace {
    rounds: 3,
    rounds_quick: 1,
    warm_up_s: 12.0,
    window_s: 20.0,
    window_quick_s: 8.0,
};

/// The scenario at `tenths` tenths of the paper's rates.
fn scenario(low: u32, tenths: u64) -> Scenario {
    let all = HIGH + LOW_MOST + 2;
    let classes = vec![
        viewers("high", HIGH, HIGH_BITS_PER_S * tenths / 10),
        viewers("low", low, LOW_BITS_PER_S * tenths / 10),
    ];
    let files = [films("high", HIGH, all), films("low", LOW_MOST, all)];
    slow_disk::scenario(remote(place(&files, MEMORY_MIB), classes))
}
