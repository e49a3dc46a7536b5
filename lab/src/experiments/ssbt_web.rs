//! The traffic of a web server with little memory for sending, which SSBT's section 5.4 announces for E-ATBT.

use super::send_memory::{all_shares, class, scenario_of_links};
use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::peers::Contender;
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Choice, Class, Objects};

const WEB: &str = "web";
/// Of the sizes that people ask for, 1 KB is the least and most common, and a document of ten times the size is asked for
/// a tenth as often. Their mean is 9 KB.
const DOCUMENTS: Set = Set::Tailed {
    name: WEB,
    count: DOCUMENT_COUNT as usize,
    min_bytes: 1_000,
    max_bytes: 10_000_000,
};
const DOCUMENT_COUNT: u32 = 2_000;
/// Think times in seconds: a tenth of what people take, so that few clients are as busy as many.
const THINK_S: (f64, f64) = (0.1, 10.0);
/// One client in five has a fast link.
const FAST_ONE_OF: u32 = 5;
const FAST_MBIT_PER_S: f64 = 50.0;
const SLOW_MBIT_PER_S: f64 = 1.0;
/// For 600 connections it is two segments each, and a fifth more.
const POOL: &str = "2MiB";

/// What web clients get.
pub fn experiment() -> Experiment {
    const PEERS: &[&str] = &["equal", "window", "kernel", "nginx", "nginx 16 KB"];
    let fixed = Contender::preset("nginx").with("nginx 16 KB", &["listen sndbuf=8k"]); // the kernel doubles it
    let mut contenders = all_shares(POOL);
    contenders.extend([Contender::preset("nginx"), fixed]);
    let told = |metric| Judge::against(metric, PEERS, Limit::None);
    let over = |metric, title| Figure::over("clients", metric, title);
    Experiment {
        name: "ssbt-web",
        title: "Web clients of a server with 2 MiB for sending",
        asks: "10, 60 or 600 clients fetch documents of 1 KB to 3 MB, one after the other on a connection that they keep, with pauses between them. Sizes and \
            pauses are heavy-tailed; the mean document has 9 KB. One client in five has a link of 50 Mbit/s, the others have 1 Mbit/s; round trips are 7 to \
            33 ms. The server has 2 MiB for what all sockets hold. The paper announces this for E-ATBT and doesn't show it.",
        source: "SSBT, section 5.4",
        contenders,
        subjects: &["by-need"],
        sweep: vec![
            Axis::new("clients", "clients", &[10.0, 60.0, 600.0])
                .quick(&[60.0, 600.0])
                .logarithmic(),
        ],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 5.0,
            window_s: 5.0,
            window_quick_s: 4.0,
        },
        scenario: web,
        judged: vec![
            told("goodput_bytes_per_s"),
            told("client_goodput_mean_bytes_per_s@fast"),
            told("client_goodput_mean_bytes_per_s@slow"),
            told("completion_p50_us@fast"),
            told("completion_p99_us@fast"),
            told("completion_p50_us@slow"),
            told("completion_p99_us@slow"),
            told("send_queue_mean_bytes"),
            told("requests_per_s"),
            told("cpu_us_per_request"),
        ],
        figures: vec![
            over("goodput_bytes_per_s", "All together").logarithmic(),
            over(
                "client_goodput_mean_bytes_per_s@fast",
                "A fast client while it waits",
            ),
            over(
                "client_goodput_mean_bytes_per_s@slow",
                "A slow client while it waits",
            ),
            over(
                "completion_p99_us@fast",
                "Time to a whole document, fast clients, 99th percentile",
            ),
            over("completion_p50_us@fast", "The same, median"),
            over("send_queue_mean_bytes", "Send queues").logarithmic(),
            over("cpu_us_per_request", "CPU time of the server"),
        ],
    }
}

fn web(at: &Point) -> Scenario {
    let clients = at.count("clients") as u32;
    let fast = clients / FAST_ONE_OF;
    let groups = [
        ("fast", fast, FAST_MBIT_PER_S),
        ("slow", clients - fast, SLOW_MBIT_PER_S),
    ];
    scenario_of_links(&[DOCUMENTS], &groups, |name, clients, source| Class {
        object: Objects {
            digits: 5,
            ..Objects::set(
                Choice::Uniform,
                &format!("/{WEB}-{{n}}.bin"),
                DOCUMENT_COUNT,
            )
        },
        think_s: THINK_S.0,
        think_max_s: Some(THINK_S.1),
        receive_at_least_bytes: None, // documents are short
        ..class(name, clients, source)
    })
}
