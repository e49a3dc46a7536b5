//! One connection on a fast link, over the memory for sending: the axes of SSBT's Figure 11.

use super::paced::BIG;
use super::send_memory::{all_shares, class, limited, scenario};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::sweep::Axis;
use ackpace_lab_wan::Topology;
use ackpace_lab_wan::topology::PathSpec;

const GOODPUT: &str = "goodput_bytes_per_s";
const CLIENT: &str = "10.1.0.1";
/// The paper's link (MAPOS), and a round trip of two machines in one place.
const MBIT_PER_S: f64 = 622.0;
const RTT_MS: f64 = 1.0;
/// "The same", to the precision of short windows.
const EQUAL_AT_LEAST: f64 = 0.95;

/// Throughput of one connection.
pub fn experiment() -> Experiment {
    let nginx = Contender::preset("nginx");
    let sized = "listen sndbuf={buffer_kb}k";
    let copying = Contender {
        options: vec!["sendfile off".into(), "output_buffers 1 256k".into()],
        ..nginx.clone()
    };
    let mut contenders = all_shares("{buffer_kb}KiB");
    contenders.push(nginx.with("sendfile", &[sized]));
    contenders.push(copying.with("read+write", &[sized]));
    let alone = Limit::MedianRatioAtLeast(EQUAL_AT_LEAST);
    let over = |metric, title| Figure::over("buffer_kb", metric, title);
    Experiment {
        name: "ssbt-fig11",
        title: "One connection on a link of 622 Mbit/s, over its memory for sending",
        asks: "A single connection has a link of 622 Mbit/s and a round trip of 1 ms to itself. The memory for sending is a pool, \
            which any division should give to it whole, or SO_SNDBUF of nginx, which the kernel doubles. The paper compares servers \
            that copy twice and once (SMR); beside that: sendfile, which copies nothing, and read and write, which copy twice.",
        source: "SSBT, Figure 11",
        contenders,
        subjects: &["by-need"],
        sweep: vec![
            Axis::new(
                "buffer_kb",
                "memory for sending KB",
                &[16.0, 32.0, 64.0, 128.0, 256.0],
            )
            .quick(&[16.0, 64.0, 256.0])
            .logarithmic(),
        ],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 3.0,
            window_s: 2.0,
            window_quick_s: 1.0,
        },
        scenario: |_| one_connection(),
        judged: vec![
            Judge::against(GOODPUT, &["equal", "window"], alone),
            Judge::against(GOODPUT, &["kernel", "sendfile", "read+write"], Limit::None),
            Judge::against(
                "cpu_s_per_gb",
                &["kernel", "sendfile", "read+write"],
                Limit::None,
            ),
        ],
        figures: vec![
            over(GOODPUT, "Throughput (Figure 11)"),
            over("cpu_s_per_gb", "CPU time of the server"),
            over("voluntary_per_gb", "Wake-ups of the server").logarithmic(),
        ],
    }
}

fn one_connection() -> Scenario {
    let path = PathSpec {
        down: limited(MBIT_PER_S, 5.0, RTT_MS),
        up: super::send_memory::delay(RTT_MS),
        ..PathSpec::new("fast", CLIENT)
    };
    let topology = Topology {
        path: vec![path],
        ..Topology::default()
    };
    scenario(&[BIG], topology, vec![class("fast", 1, CLIENT)])
}
