//! Clients that leave: how much work does the disk still do for them?

use super::slow_disk::{self, beside_nginx, films, place, remote, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::workloads::{Event, Swarm, TimedEvent};

const STAY: u32 = 255;
const LEAVE: u32 = 45;
const CLIENT_BITS_PER_S: u64 = 2_400_000;
const MEMORY_MIB: u64 = 256;
const AFTER_S: f64 = 3.0;
const PEERS: &[&str] = &["nginx", "nginx-aio", "nginx-directio", "cancel off"];

/// 45 of 300 clients reset their connections at once.
pub fn experiment() -> Experiment {
    let mut frame = beside_nginx(
        "reset",
        "45 of 300 clients reset their connections at once",
        |_| scenario(),
    );
    let off = slow_disk::comparing("cancel off", &["cancel=off"]);
    frame.contenders.insert(frame.contenders.len() - 1, off);
    let told = |metric| Judge::against(metric, PEERS, Limit::None);
    Experiment {
        asks: "300 clients of 300 KB/s keep a hard disk busy, each with a film of its own. Three seconds into the window 45 of them \
            reset their connections, all within a moment. What does the disk still read for them more than 5 ms later, and do the others \
            get all of the disk in the next five seconds? The disk's own list of requests tells.",
        source: "TPF, Figure 16a (EDRC)",
        subjects: &["ackpace"],
        pace: Pace {
            rounds: 5,
            rounds_quick: 1,
            // Before this, many of the read bytes still fill the clients' own buffers. The window begins with
            // the swarm's next second.
            warm_up_s: 39.5,
            window_s: 12.0,
            window_quick_s: 9.0,
        },
        judged: vec![
            Judge::alone("dead_reads", Fold::Sum, Limit::Zero),
            Judge::alone("living_disk_share", Fold::Median, Limit::ValueAtLeast(0.99)),
            told("dead_reads"),
            told("dead_read_bytes"),
            told("living_disk_share"),
            told("goodput_bytes_per_s@film"),
        ],
        figures: vec![
            Figure::curve("goodput_bytes_per_s", "All clients, over time (Figure 16a)"),
            Figure::curve("goodput_bytes_per_s@film", "Those who stay, over time"),
            Figure::plain("dead_read_bytes", "Read for the dead"),
            Figure::plain("dead_reads", "Reads for the dead"),
            Figure::plain("living_disk_share", "Share of the disk for the living"),
        ],
        ..frame
    }
}

fn scenario() -> Scenario {
    let all = STAY + LEAVE + 2;
    let classes = vec![
        viewers("film", STAY, CLIENT_BITS_PER_S),
        viewers("leaver", LEAVE, CLIENT_BITS_PER_S),
    ];
    let files = [films("film", STAY, all), films("leaver", LEAVE, all)];
    let (place, swarm) = remote(place(&files, MEMORY_MIB), classes);
    let leave = Event::Leave {
        class: "leaver".into(),
    };
    let swarm = Swarm {
        events: vec![TimedEvent {
            after_s: AFTER_S,
            event: leave,
        }],
        curves: true,
        ..swarm
    };
    slow_disk::scenario((place, swarm))
}
