//! High and low rates on one disk again; here the clients limit themselves, and some share a film.

use super::self_paced::{buffer_bytes, buffers};
use super::slow_disk::{self, NGINX, dealt_films, dealt_to, place, remote, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::sweep::Point;
use ackpace_lab_swarm::workload::Class;

const HIGH: u32 = 180;
const LOW: u32 = 300;
const HIGH_BITS_PER_S: u64 = 1_000_000;
const LOW_BITS_PER_S: u64 = 200_000;
/// Number of films, fewer than clients: the last 150 low-rate clients share a film with a high-rate one.
const FILMS: u32 = 330;
/// Distance between the two readers of a film: data that one has read is no longer in memory when the other arrives.
const APART_BYTES: u64 = 100_000_000;
const MEMORY_MIB: u64 = 128;
/// nginx at its best must not be better. Clients that get all they ask for get the same from both, up to noise.
const NOT_LESS: Limit = Limit::MedianRatioAtLeast(0.995);

/// The share of its demand that each class gets.
pub fn experiment() -> Experiment {
    let least = |metric, limit| Judge::alone(metric, Fold::Median, Limit::ValueAtLeast(limit));
    let told = |metric| Judge::best_of(metric, NGINX, NOT_LESS);
    let over = |metric, title| Figure::over("buffer", metric, title);
    let mut figures = vec![
        over("demand_met_mean@high", "Demand met, clients of 125 KB/s"),
        over("demand_met_min@high", "The worst-off client of 125 KB/s"),
        over("demand_met_mean@low", "Demand met, clients of 25 KB/s"),
        over("cpu_s_per_gb", "CPU time of the server"),
    ];
    figures.extend(slow_disk::disk_figures(over));
    // Default options, except for the memory limit: it has its memory alone.
    let ours = Contender::preset("ackpace").with("ackpace", &["--memory-max", "90%"]);
    Experiment {
        name: "self-paced-cold",
        title: "125 and 25 KB/s from one hard disk, clients that pace themselves",
        asks: "180 clients read films at 125 KB/s and 300 at 25 KB/s, each steadily by itself, from a hard disk of 2003, by a server with 128 MB. They fill their \
            receive buffers as fast as they are given anything, and then open their windows as they read: who takes the begin for their pace reads far \
            ahead for nobody's need. There are 330 films: 150 have two readers, a fast one and 100 MB further on a slow one, who share nothing but the name. How much of its demand does \
            each class get, and its worst-off client?",
        source: "TPF, Figure 14",
        contenders: [slow_disk::nginx(), vec![ours]].concat(),
        subjects: &[],
        sweep: vec![buffers()],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 12.0,
            window_s: 20.0,
            window_quick_s: 8.0,
        },
        scenario,
        judged: vec![
            least("demand_met_mean@high", 0.984),
            least("demand_met_min@high", 0.92),
            least("demand_met_mean@low", 0.992),
            Judge::alone("memory_peak_bytes", Fold::Max, Limit::ValueAtMost(120.0)),
            told("demand_met_mean@high"),
            told("demand_met_mean@low"),
            Judge::against("cpu_s_per_gb", &["nginx-directio"], Limit::None),
            Judge::alone("disk_again_pages_per_s", Fold::Max, Limit::None),
        ],
        figures,
    }
}

fn scenario(at: &Point) -> Scenario {
    let of = |name, clients, bits_per_s, first, apart| {
        let class = viewers(name, clients, bits_per_s);
        Class {
            receive_buffer_bytes: buffer_bytes(at),
            ..dealt_to(("film", FILMS, first), class, apart)
        }
    };
    let apart = Some((APART_BYTES, None));
    let classes = vec![
        of("high", HIGH, HIGH_BITS_PER_S, 0, None),
        of("low", LOW, LOW_BITS_PER_S, HIGH, apart),
    ];
    let files = [dealt_films("film", FILMS)];
    slow_disk::scenario(remote(place(&files, MEMORY_MIB), classes))
}
