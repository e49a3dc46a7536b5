//! A neighbour on the server's core: how much of the core does sending leave to it?

use super::paced;
use crate::corpus::PROBE;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Start, Workload as Clients};
use ackpace_lab_wan::Topology;

/// Rate of a client's link; the number of clients follows from the point's rate.
const LINK_MBIT_PER_S: f64 = 20.0;
/// "1.0" to the precision of the target: at the slowest rates neither server takes anything from the neighbour,
/// and the rest is noise.
const EQUAL_AT_LEAST: f64 = 0.995;

/// A matrix multiplication beside downloads at fixed rates.
pub fn experiment() -> Experiment {
    let peers: &[&str] = &["nginx", "lighttpd"];
    let judge = |metric| Judge::against(metric, peers, Limit::None);
    let over = |metric, title| Figure::over("mbit_per_s", metric, title);
    Experiment {
        name: "fig13",
        title: "A matrix multiplication on the server's core",
        asks: "Downloads at 100 to 400 Mbit/s in all, as in the paper, and, since cores have become faster, at 1 and 2 \
            Gbit/s, each client behind a link of 20 Mbit/s. Beside the server, on its core and with its niceness, a \
            process multiplies matrices. How much of the multiplications that the core could make does each server \
            leave it? (The core by itself makes more or fewer from second to second: judged is the share.) The paper's \
            sending in softirqs took 21 to 40 % of them until a daemon did it; here the \
            kernel sends in softirqs for every server. (The share \"disturbed\" is the multiplication's here.)",
        source: "TPF, Figure 13",
        contenders: ["ackpace", "nginx", "lighttpd"]
            .map(Contender::preset)
            .to_vec(),
        subjects: &[],
        sweep: vec![
            Axis::new(
                "mbit_per_s",
                "downloads Mbit/s",
                &[100.0, 200.0, 300.0, 400.0, 1000.0, 2000.0],
            )
            .quick(&[100.0, 400.0, 2000.0])
            .logarithmic(),
        ],
        pace: Pace {
            // The core is slow for seconds at a time: many short rounds give a better estimate than few long
            // ones.
            rounds: 20,
            rounds_quick: 2,
            warm_up_s: 4.0,
            window_s: 3.0,
            window_quick_s: 3.0,
        },
        scenario,
        judged: vec![
            Judge::against(
                "multiplications_left_share",
                &["nginx"],
                Limit::MedianRatioAtLeast(EQUAL_AT_LEAST),
            ),
            Judge::against("multiplications_left_share", &["lighttpd"], Limit::None),
            judge("multiplications_per_s"),
            judge("goodput_bytes_per_s"),
            judge("cpu_s_per_gb"),
        ],
        figures: vec![
            over(
                "multiplications_left_share",
                "Multiplications left of what the core could make",
            ),
            over(
                "multiplications_per_s",
                "Multiplications beside the server (the paper's axes)",
            ),
            over("goodput_bytes_per_s", "Goodput"),
            over("cpu_s_per_gb", "CPU time of the server"),
            over("switches_per_s", "Context switches of the server"),
        ],
    }
}

fn scenario(at: &Point) -> Scenario {
    let clients = (at.get("mbit_per_s") / LINK_MBIT_PER_S) as u32;
    let source = paced::range(0, clients);
    let topology = Topology {
        run_us: paced::RUN_US,
        grain_us: paced::GRAIN_US,
        path: vec![paced::link("film", &source, LINK_MBIT_PER_S)],
        ..Topology::default()
    };
    let mut class = paced::downloads("film", clients);
    class.source = Some(source);
    class.receive_at_least_bytes = Some(paced::READ_BYTES);
    class.start = Some(Start {
        over_s: 1.0,
        ..Start::default()
    });
    let clients = Clients {
        seed: 1,
        classes: vec![class],
        ..Clients::default()
    };
    Scenario {
        place: Place::wan(&[paced::BIG, PROBE], topology),
        workload: Workload::Swarm(Swarm {
            multiplies: true,
            ..Swarm::new(clients)
        }),
    }
}
