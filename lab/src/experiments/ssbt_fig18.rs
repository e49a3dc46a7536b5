//! What documents of each size gain from a division by need: the axes of SSBT's Figure 18.

use super::paced::{self, BIG};
use super::send_memory::{all_shares, class, grouped, scenario};
use crate::corpus::{Set, path};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Judge, Limit};
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Objects};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

const GOODPUT: &str = "client_goodput_mean_bytes_per_s";
/// Name of a class and of its document, and the document's length in KB.
const SIZES: [(&str, f64); 6] = [
    ("1k", 1.0),
    ("4k", 4.0),
    ("16k", 16.0),
    ("64k", 64.0),
    ("256k", 256.0),
    ("1m", 1024.0),
];
/// Clients of each size, and slow ones beside them.
const EACH: u32 = 6;
const SLOW: u32 = 36;
const FAST_MBIT_PER_S: f64 = 50.0;
const SLOW_MBIT_PER_S: f64 = 1.0;
const HTTP: [&str; 2] = ["HTTP/1.1", "HTTP/1.0"];
/// A small document fits into what any connection may send at first, so nothing is to be gained, and little lost.
const SMALL_AT_LEAST: f64 = 0.9;
const LARGE_AT_LEAST: f64 = 1.5;

/// Throughput of documents by their size.
pub fn experiment() -> Experiment {
    let least = Limit::MedianRatioAtLeast;
    let gain = |metric, limit| Judge::against(metric, &["equal"], limit);
    let over =
        |metric, title| Figure::over_classes(&SIZES, "document KB", metric, title).panels("http");
    Experiment {
        name: "ssbt-fig18",
        title: "What documents of each size gain from a division by need",
        asks: "36 clients behind links of 50 Mbit/s fetch documents, each of them of one size from 1 KB to 1 MB, with short pauses. 36 behind 1 Mbit/s \
            download without end. The pool is 1 MiB. With HTTP/1.1 a client keeps its connection; with HTTP/1.0 each document has one, and what \
            is known of its path comes from the one before. The paper's Figure 18 has these axes for SMR, and says of E-ATBT that documents below \
            some size should be left out (section 3.3), where no estimate can be had: at which size does the gain begin?",
        source: "SSBT, Figure 18 and section 3.3",
        contenders: all_shares("1MiB"),
        subjects: &["by-need"],
        sweep: vec![Axis::named("http", "protocol", &HTTP)],
        pace: Pace {
            rounds: 5,
            rounds_quick: 2,
            warm_up_s: 8.0,
            window_s: 8.0,
            window_quick_s: 5.0,
        },
        scenario: documents,
        judged: vec![
            gain("client_goodput_mean_bytes_per_s@1k", least(SMALL_AT_LEAST)),
            gain("client_goodput_mean_bytes_per_s@4k", least(SMALL_AT_LEAST)),
            gain("client_goodput_mean_bytes_per_s@16k", Limit::None),
            gain("client_goodput_mean_bytes_per_s@64k", Limit::None),
            gain("client_goodput_mean_bytes_per_s@256k", Limit::None),
            gain("client_goodput_mean_bytes_per_s@1m", least(LARGE_AT_LEAST)),
            gain("goodput_bytes_per_s@slow", Limit::None),
            Judge::against(
                "goodput_bytes_per_s",
                &["equal", "window", "kernel"],
                Limit::None,
            ),
        ],
        figures: vec![
            over(GOODPUT, "Gain over equal shares (Figure 18)").ratio_to("equal"),
            over(
                GOODPUT,
                "Throughput of a client while it waits for a document",
            )
            .logarithmic(),
            over("completion_p50_us", "Time to a whole document, median").logarithmic(),
        ],
    }
}

fn document(name: &'static str, kb: f64) -> Set {
    Set::Files {
        name,
        count: 1,
        len_bytes: (kb * 1024.0) as u64,
    }
}

fn documents(at: &Point) -> Scenario {
    let keep_alive = at.count("http") == 0;
    let documents = SIZES.map(|(name, _)| (name, EACH, FAST_MBIT_PER_S));
    let groups = [&documents[..], &[("slow", SLOW, SLOW_MBIT_PER_S)]].concat();
    let class_of = |name: &str, clients, source: &str| match name {
        "slow" => class(name, clients, source),
        _ => Class {
            object: Objects::one(&path(name, 0)),
            think_s: 0.05,
            think_max_s: Some(1.0),
            keep_alive,
            receive_at_least_bytes: None, // documents are short
            ..class(name, clients, source)
        },
    };
    let (paths, classes) = grouped(&groups, link, class_of);
    let topology = Topology {
        path: paths,
        ..Topology::default()
    };
    let sets = SIZES.map(|(name, kb)| document(name, kb));
    let files: Vec<Set> = sets.into_iter().chain([BIG]).collect();
    scenario(&files, topology, classes)
}

/// A link for each client, with a round trip of 20 ms.
fn link(name: &str, clients: &str, mbit_per_s: f64) -> PathSpec {
    PathSpec {
        rate_spread: 0.2,
        delay_spread: 0.2,
        down: LinkSpec {
            rate_mbit_per_s: Some(mbit_per_s),
            delay_ms: Some(10.0),
            queue_ms: Some(100.0),
            ..LinkSpec::default()
        },
        up: LinkSpec {
            delay_ms: Some(10.0),
            ..LinkSpec::default()
        },
        ..paced::link(name, clients, mbit_per_s)
    }
}
