//! The pending buffer: the data that a conventional server has written and TCP has not yet sent.

use super::paced::BIG;
use crate::corpus::path;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Class, Objects, Workload as Clients};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// SO_RCVBUF of the client and thus its window: the maximum without window scaling, as was common then. It
/// bounds the flight to half of the send buffer, as in the paper; today's kernel would otherwise send all of
/// the buffer.
const WINDOW_BYTES: u32 = 64 << 10;
/// Minimum queue of the link: eight packets.
const QUEUE_BYTES_MIN: u64 = 12_000;

/// PB over rate and round trip.
pub fn experiment() -> Experiment {
    let conventional = Contender::preset("nginx").with("conventional", &[]);
    // Linux doubles the requested size: 128 KB with bookkeeping.
    let fixed = Contender::preset("nginx").with("fixed buffer", &["listen sndbuf=64k"]);
    Experiment {
        name: "pending",
        title: "The pending buffer over rate and round trip",
        asks: "One client downloads through a link of .2, 1, 5 or 10 Mbit/s and a round trip of 10 to 400 ms. How much has \
            the server written that TCP has not yet sent (SIOCOUTQNSD)? The paper's kernel let the send buffer grow \
            with the window, to twice of it and to 128 KB at most, so that half a buffer was pending and more where rate and \
            round trip are greater: \"conventional\" here. Where a server sets SO_SNDBUF to 128 KB, what is pending is what \
            the flight leaves of it, and falls. ackpace is woken by the bytes unsent and holds a time of its client's rate.",
        source: "TPF, Figure 6",
        contenders: vec![conventional, fixed, Contender::preset("ackpace")],
        subjects: &["ackpace"],
        sweep: vec![
            Axis::new(
                "rate_kbit",
                "link kbit/s",
                &[200.0, 1000.0, 5000.0, 10_000.0],
            )
            .quick(&[200.0, 10_000.0]),
            Axis::new(
                "rtt_ms",
                "round trip ms",
                &[10.0, 50.0, 100.0, 200.0, 400.0],
            )
            .quick(&[10.0, 100.0, 400.0]),
        ],
        pace: Pace {
            rounds: 3,
            rounds_quick: 2,
            warm_up_s: 6.0,
            window_s: 3.0,
            window_quick_s: 2.0,
        },
        scenario,
        judged: vec![
            Judge::against(
                "unsent_per_connection_bytes",
                &["conventional", "fixed buffer"],
                Limit::None,
            ),
            Judge::against("goodput_bytes_per_s", &["conventional"], Limit::None),
        ],
        figures: vec![
            Figure::over(
                "rtt_ms",
                "unsent_per_connection_bytes",
                "Bytes pending (the paper's axes)",
            )
            .lines("rate_kbit"),
            Figure::over(
                "rtt_ms",
                "send_queue_mean_bytes",
                "Send queue, flight included",
            )
            .lines("rate_kbit"),
        ],
    }
}

/// Bytes that the link carries in a round trip, so that the window is about twice that. A queue of fixed
/// duration would determine the window regardless of the round trip.
fn queue_bytes(at: &Point) -> u64 {
    let carried_bytes = at.get("rate_kbit") / 8.0 * at.get("rtt_ms");
    (carried_bytes as u64).max(QUEUE_BYTES_MIN)
}

fn scenario(at: &Point) -> Scenario {
    let half_ms = Some(at.get("rtt_ms") / 2.0);
    let path_spec = PathSpec {
        down: LinkSpec {
            rate_mbit_per_s: Some(at.get("rate_kbit") / 1000.0),
            delay_ms: half_ms,
            queue_bytes: Some(queue_bytes(at)),
            ..LinkSpec::default()
        },
        up: LinkSpec {
            delay_ms: half_ms,
            ..LinkSpec::default()
        },
        ..PathSpec::new("client", "10.1.0.1")
    };
    let class = Class {
        source: Some("10.1.0.1".into()),
        receive_buffer_bytes: Some(WINDOW_BYTES),
        ..Class::new("client", 1, Objects::one(&path("big", 0)))
    };
    let topology = Topology {
        // Maximum of tcp_wmem in the paper's kernel (Linux 2.4): 90 segments.
        send_buffer_max_bytes: Some(128 << 10),
        path: vec![path_spec],
        ..Topology::default()
    };
    let clients = Clients {
        seed: 1,
        classes: vec![class],
        ..Clients::default()
    };
    Scenario {
        place: Place::wan(&[BIG], topology),
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
