//! Few clients behind links, and a disk that has little to do: nothing but its own reads wakes the server.

use super::paced::{link, range};
use super::slow_disk::{self, PLAIN, behind, beside_nginx, films, place, viewers};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::Class;
use ackpace_lab_wan::Topology;

const CLIENTS: [u32; 3] = [1, 3, 10];
const LINK_MBIT_PER_S: f64 = 2.0;
const MEMORY_MIB: u64 = 128;

/// Whether a link stands idle although the disk could fill it.
pub fn experiment() -> Experiment {
    let told = |metric| Judge::against(metric, PLAIN, Limit::None);
    let over = |metric, title| Figure::over("clients", metric, title);
    Experiment {
        asks: "1, 3 and 10 clients download a film each from a hard disk that nobody has touched, over links of 1 to 3 Mbit/s. \
            The disk could fill 150 such links. Is one ever idle?",
        sweep: vec![Axis::named("clients", "clients", &["1", "3", "10"])],
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 5.0,
            window_s: 20.0,
            window_quick_s: 10.0,
        },
        judged: vec![
            Judge::alone("link_idle_share", Fold::Max, Limit::ValueAtMost(0.01)),
            told("link_idle_share"),
            told("goodput_bytes_per_s"),
        ],
        figures: vec![
            over("link_idle_share", "Idle time of the clients' links"),
            over("goodput_bytes_per_s", "Goodput"),
        ],
        ..beside_nginx(
            "few",
            "Few clients behind links, and a disk with little to do",
            scenario,
        )
    }
}

fn scenario(at: &Point) -> Scenario {
    let clients = CLIENTS[at.count("clients")];
    let source = range(0, clients);
    let topology = Topology {
        grain_us: 200,
        path: vec![link("film", &source, LINK_MBIT_PER_S)],
        ..Topology::default()
    };
    let film = Class {
        source: Some(source),
        rate: None, // its link is the limit
        ..viewers("film", clients, 0)
    };
    slow_disk::scenario(behind(
        topology,
        place(&[films("film", clients, 100)], MEMORY_MIB),
        vec![film],
    ))
}
