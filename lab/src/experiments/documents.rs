//! Documents from a server with little memory for sending.

use super::network::{BIG, coarse, link, linked, range};
use super::ssbt::{all_shares, fixed, frame, path};
use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Figure, Over, Pace, Scenario};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Objects};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// Documents: a class and its length in KB.
const SIZES: &[(&str, f64)] = &[
    ("1k", 1.0),
    ("4k", 4.0),
    ("16k", 16.0),
    ("64k", 64.0),
    ("256k", 256.0),
    ("1m", 1024.0),
];

/// Throughput of documents by their size.
pub fn fig18() -> Experiment {
    Experiment {
        asks: "36 clients behind links of 50 Mbit/s fetch documents, each of them of one size from 1 KB to 1 MB, with short pauses. 36 behind 1 Mbit/s \
            download without end. The pool is 1 MiB. With HTTP/1.1 a client keeps its connection; with HTTP/1.0 each document has one, and what \
            is known of its path comes from the one before. The paper's Figure 18 has these axes for SMR, and says of E-ATBT that documents below \
            some size should be left out (section 3.3), where no estimate can be had: at which size does the gain begin?",
        source: "SSBT, Figure 18 and section 3.3",
        contenders: all_shares("1MiB"),
        sweep: vec![Axis::named("http", "protocol", &["HTTP/1.1", "HTTP/1.0"])],
        pace: Pace::of([5, 2], 8.0, [8.0, 5.0]),
        // A small document fits into what any connection may send at first: nothing is to be gained, and little lost.
        judged: "
            client_goodput_mean_bytes_per_s@1k / equal >= .9
            client_goodput_mean_bytes_per_s@4k / equal >= .9
            client_goodput_mean_bytes_per_s@16k / equal
            client_goodput_mean_bytes_per_s@64k / equal
            client_goodput_mean_bytes_per_s@256k / equal
            client_goodput_mean_bytes_per_s@1m / equal >= 1.5
            goodput_bytes_per_s@slow / equal
            goodput_bytes_per_s / equal, window, kernel",
        figures: vec![Figure {
            metric: "client_goodput_mean_bytes_per_s",
            over: Over::Classes(SIZES, "document KB", "equal"),
        }],
        ..frame(
            "ssbt-fig18",
            "What documents of each size gain from a division by need",
            documents,
        )
    }
}

fn documents(at: &Point) -> Scenario {
    /// Clients of each size, and slow ones beside them.
    const EACH: u32 = 6;
    const SLOW: u32 = 36;
    let (mut paths, mut classes, mut files) = (Vec::new(), Vec::new(), vec![BIG]);
    let link_of = |name: &str, source: &str, rate| PathSpec {
        per_client: true,
        rate_spread: 0.2,
        delay_spread: 0.2,
        ..path(name, source, LinkSpec::limited(rate, 100.0, 10.0))
    };
    for (nth, &(name, kb)) in SIZES.iter().enumerate() {
        let source = range(nth, EACH);
        paths.push(link_of(name, &source, 50.0));
        classes.push(Class {
            object: Objects::one(name),
            think_s: 0.05,
            think_max_s: Some(1.0),
            keep_alive: at.count("http") == 0,
            receive_at_least_bytes: None, // documents are short
            ..linked(name, EACH, &source)
        });
        files.push(Set::files(name, 1, (kb * 1024.0) as u64));
    }
    let source = range(SIZES.len(), SLOW);
    paths.push(link_of("slow", &source, 1.0));
    classes.push(linked("slow", SLOW, &source));
    let topology = Topology {
        path: paths,
        ..Topology::default()
    };
    Scenario::swarm(Place::wan(&files, topology), classes)
}

const DOCUMENTS: u32 = 2_000;

/// The traffic of a web server with little memory for sending.
pub fn web() -> Experiment {
    let mut contenders = all_shares("2MiB"); // for 600 connections, two segments each and a fifth more
    contenders.extend([Contender::preset("nginx"), fixed("nginx 16 KB", "8k")]);
    Experiment {
        asks: "10, 60 or 600 clients fetch documents of 1 KB to 3 MB, one after the other on a connection that they keep, with pauses between them. Sizes and \
            pauses are heavy-tailed; the mean document has 9 KB. One client in five has a link of 50 Mbit/s, the others have 1 Mbit/s; round trips are 7 to \
            33 ms. The server has 2 MiB for what all sockets hold. The paper announces this for E-ATBT and doesn't show it.",
        source: "SSBT, section 5.4",
        contenders,
        sweep: vec![
            Axis::new("clients", "clients", &[10.0, 60.0, 600.0])
                .quick(&[60.0, 600.0])
                .logarithmic(),
        ],
        pace: Pace::of([5, 2], 5.0, [5.0, 4.0]),
        judged: "
            goodput_bytes_per_s / equal, window, kernel, nginx, nginx 16 KB
            client_goodput_mean_bytes_per_s@fast / equal, window, kernel, nginx, nginx 16 KB
            client_goodput_mean_bytes_per_s@slow / equal, window, kernel, nginx, nginx 16 KB
            completion_p50_us@fast / equal, window, kernel, nginx, nginx 16 KB
            completion_p99_us@fast / equal, window, kernel, nginx, nginx 16 KB
            completion_p50_us@slow / equal, window, kernel, nginx, nginx 16 KB
            completion_p99_us@slow / equal, window, kernel, nginx, nginx 16 KB
            send_queue_mean_bytes / equal, window, kernel, nginx, nginx 16 KB
            requests_per_s / equal, window, kernel, nginx, nginx 16 KB
            cpu_us_per_request / equal, window, kernel, nginx, nginx 16 KB",
        ..frame(
            "ssbt-web",
            "Web clients of a server with 2 MiB for sending",
            web_scenario,
        )
    }
}

fn web_scenario(at: &Point) -> Scenario {
    let clients = at.count("clients") as u32;
    // Of the sizes that people ask for, 1 KB is the least and most common, and a document of ten times the size is
    // asked for a tenth as often. Their mean is 9 KB.
    let files = Set::Tailed {
        name: "web",
        count: DOCUMENTS as usize,
        min_bytes: 1_000,
        max_bytes: 10_000_000,
    };
    let (mut paths, mut classes) = (Vec::new(), Vec::new());
    let groups = [
        ("fast", clients / 5, 50.0),
        ("slow", clients - clients / 5, 1.0),
    ];
    for (nth, (name, clients, rate)) in groups.into_iter().enumerate() {
        let source = range(nth, clients);
        paths.push(link(name, &source, rate));
        classes.push(Class {
            object: Objects::any("web", DOCUMENTS),
            // A tenth of what people take, so that few clients are as busy as many.
            think_s: 0.1,
            think_max_s: Some(10.0),
            receive_at_least_bytes: None, // documents are short
            ..linked(name, clients, &source)
        });
    }
    let topology = coarse(paths);
    Scenario::swarm(Place::wan(&[files, PROBE], topology), classes)
}
