//! A cluster whose connections move between nodes (DTCP): what the home spends, what clients wait, and what is lost.

use crate::corpus::Set;
use crate::experiment::{Experiment, Pace, Scenario};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::Workload;
use crate::workloads::cluster::{Cluster, Drain, Moved, Path, Relay, Trace, Window};

/// Files that the second node has, and how many a second are asked for: some seconds of each.
const RELAYED: [(Set, f64); 5] = [
    (Set::files("relay-300", 2_000, 300), 400.0),
    (Set::files("relay-5k", 2_000, 5_000), 400.0),
    (Set::files("relay-100k", 1_000, 100_000), 200.0),
    (Set::files("relay-1m", 300, 1_000_000), 60.0),
    (Set::files("relay-10m", 60, 10_000_000), 12.0),
];

/// Hands over whatever another node has, however short.
const ALWAYS: [&str; 2] = ["--compare", "break_even=0"];

fn scenario(files: &[Set], cluster: Cluster) -> Scenario {
    Scenario {
        place: Place::memory(files),
        workload: Workload::Cluster(cluster),
    }
}

/// What the node pays that a client asks for what another one has.
pub fn relay() -> Experiment {
    let objects = ["300 B", "5 KB", "100 KB", "1 MB", "10 MB"];
    Experiment {
        name: "cluster-relay",
        title: "Objects that another node has in memory",
        asks: "Clients ask one node for objects that another one has: each once, on a connection of its own, at times that do not depend on the answers. The \
            first node hands the connection over, or relays the bytes, as HAProxy with splice or nginx do before a single server of ours. What does that \
            cost its core? Counted is all time in which that core does not idle: server, broker and the softirqs of what its device receives, \
            the opening and closing of the connection among them. The other node and the clients have the second core.",
        source: "DTCP, back-end forwarding",
        contenders: vec![
            Contender::preset("cluster").with("handed over", &ALWAYS),
            Contender::preset("cluster").with("relayed", &["--hand-off", "relay"]),
            Contender::preset("haproxy"),
            Contender::preset("nginx-proxy"),
        ],
        subject: "handed over",
        sweep: vec![Axis::named("object", "object", &objects)],
        pace: Pace::of([5, 2], 0.0, [5.0, 5.0]),
        scenario: |at| {
            let (of, per_s) = RELAYED[at.count("object")];
            scenario(&[of], Cluster::Relay(Relay { of, per_s }))
        },
        judged: "
            home_process_us_per_response / relayed <= .5 at object=3
            home_process_us_per_response / relayed <= .15 at object=4
            home_process_us_per_response / haproxy <= .8 at object=3
            home_process_us_per_response / haproxy <= .3 at object=4
            home_process_us_per_response / relayed, haproxy at object=0|1|2
            home_process_us_per_response / nginx-proxy
            home_cpu_us_per_response / relayed, haproxy, nginx-proxy
            ttfb_p50_us / relayed, haproxy, nginx-proxy
            ttfb_p99_us / relayed, haproxy, nginx-proxy
            moved_share >= .95",
        figures: Vec::new(),
    }
}

/// Round trips and losses of what follows.
const CELLS: [(&str, f64, f64); 4] = [
    ("20 ms", 20.0, 0.0),
    ("80 ms", 80.0, 0.0),
    ("20 ms, .5 % lost", 20.0, 0.005),
    ("80 ms, .5 % lost", 80.0, 0.005),
];
const DRAINED: Set = Set::files("drained", 20, 32_000_000);

/// A node is emptied while it serves.
pub fn drain() -> Experiment {
    Experiment {
        name: "cluster-drain",
        title: "A node is emptied while it serves 200 downloads",
        asks: "200 clients read from one node at 1 to 20 Mbit/s, behind a path of 20 or 80 ms, without loss or with .5 % each way. The node is emptied: its \
            connections go to the other one in the middle of their responses. Is a download broken, how long does each client wait for a byte, and when has the node \
            none left? The second value of `emptied` is the same without it: what the path and the machine do to clients.",
        source: "",
        contenders: vec![Contender::preset("cluster")],
        subject: "cluster",
        sweep: vec![
            Axis::named("path", "path", &CELLS.map(|cell| cell.0)),
            Axis::named("emptied", "emptied", &["emptied", "left alone"]),
        ],
        pace: Pace::of([3, 1], 0.0, [4.0, 4.0]),
        scenario: drain_scenario,
        judged: "
            errors sum <= 0
            connections_before
            gap_p50_us
            gap_p99_us <= 70 at path=0 emptied=0
            gap_p99_us <= 130 at path=1 emptied=0
            gap_p99_us <= 160 at path=2 emptied=0
            gap_p99_us <= 340 at path=3 emptied=0
            gap_p99_us at emptied=1
            gap_max_us max
            empty_after_us max <= 2000 at emptied=0",
        figures: Vec::new(),
    }
}

fn drain_scenario(at: &Point) -> Scenario {
    let (_, rtt_ms, loss) = CELLS[at.count("path")];
    let drain = Drain {
        path: Path {
            rtt_ms,
            loss,
            mbit_per_s: None,
        },
        clients: 200,
        of: DRAINED,
        is_drained: at.count("emptied") == 0,
    };
    scenario(&[DRAINED], Cluster::Drain(drain))
}

const MOVED: Set = Set::files("moved", 1, 1_000_000_000);

/// A download that goes to and fro.
pub fn moved() -> Experiment {
    Experiment {
        name: "cluster-moved",
        title: "A download that moves every 50 to 500 ms",
        asks: "One client reads as fast as it can while its connection moves between two nodes, which are emptied in turn after 50 to 500 ms. What remains of \
            its throughput? The paths have 200 Mbit/s; on the segment itself nothing limits it but the machine, and the longest wait after a move is \
            what a freeze takes.",
        source: "",
        contenders: vec![Contender::preset("cluster")],
        subject: "cluster",
        sweep: vec![
            Axis::named("path", "path", &["0 ms", "20 ms", "80 ms", "segment"]),
            Axis::named("moves", "moves", &["stays", "moves"]),
        ],
        pace: Pace::of([5, 1], 0.0, [6.0, 4.0]),
        scenario: |at| {
            let path = |rtt_ms| Path {
                rtt_ms,
                loss: 0.0,
                mbit_per_s: Some(200.0),
            };
            let paths = [Some(path(0.0)), Some(path(20.0)), Some(path(80.0)), None];
            let moved = Moved {
                path: paths[at.count("path")],
                of: MOVED,
                moves: at.count("moves") == 1,
            };
            scenario(&[MOVED], Cluster::Moved(moved))
        },
        judged: "
            goodput_bytes_per_s / itself at moves=0 >= .9 at moves=1 path=0|1|2
            goodput_bytes_per_s / itself at moves=0 at moves=1 path=3
            moves at moves=1
            gap_p50_us at moves=1
            gap_p99_us at moves=1
            gap_max_us max at moves=1",
        figures: Vec::new(),
    }
}

const BEFORE: Set = Set::files("before", 1, 5_000_000);
const AFTER: Set = Set::files("after", 15, 1_000_000);
const SMALL: [Set; 2] = [
    Set::files("lossy-300", 2_000, 300),
    Set::files("lossy-5k", 2_000, 5_000),
];

/// What a new owner knows of the path.
pub fn window() -> Experiment {
    let cases = [
        "1 MB, 80 ms",
        "1 MB, 80 ms, 200 Mbit/s",
        "300 B, 20 ms, 2 % lost",
        "5 KB, 20 ms, 2 % lost",
    ];
    Experiment {
        name: "cluster-window",
        title: "Responses after a move, behind a path",
        asks: "A node sends 5 MB and hands the connection over; the next response, of 1 MB, comes from the other node. Does it take longer than if the first had sent \
            it? And do small responses after a move take longer than relayed ones where 2 % of the packets are lost each way? There each has a connection of its own.",
        source: "",
        contenders: vec![
            Contender::preset("cluster").with("handed over", &ALWAYS),
            Contender::preset("cluster").with("relayed", &["--hand-off", "relay"]),
            Contender::preset("cluster").with("stays", &["--hand-off", "off"]),
        ],
        subject: "handed over",
        sweep: vec![Axis::named("case", "case", &cases)],
        pace: Pace::of([5, 1], 0.0, [5.0, 5.0]),
        scenario: window_scenario,
        judged: "
            completion_p50_us / stays <= 1.05 at case=0|1
            completion_p50_us / relayed at case=0|1
            completion_p99_us / relayed <= 1.1 at case=2|3
            completion_p99_us / stays at case=2|3
            completion_p50_us / relayed, stays at case=2|3
            moved_share",
        figures: Vec::new(),
    }
}

fn window_scenario(at: &Point) -> Scenario {
    let case = at.count("case");
    let (rtt_ms, loss) = [(80.0, 0.0), (20.0, 0.02)][case / 2];
    let window = Window {
        path: Path {
            rtt_ms,
            loss,
            mbit_per_s: (case == 1).then_some(200.0),
        },
        before: (case < 2).then_some(BEFORE),
        of: [AFTER, AFTER, SMALL[0], SMALL[1]][case],
        clients: if case < 2 { 1 } else { 40 },
    };
    scenario(&[BEFORE, window.of], Cluster::Window(window))
}

/// Single servers of ours, which HAProxy chooses among by the name of the object.
const BY_URI: [&str; 6] = [
    "balance uri",
    "hash-type consistent",
    "server a 10.77.0.11:8080",
    "server b 10.77.0.12:8080",
    "server c 10.77.0.13:8080",
    "server d 10.77.0.14:8080",
];

/// More is asked for than a node's memory holds.
pub fn trace() -> Experiment {
    let by_uri = Contender {
        options: Vec::new(),
        ..Contender::preset("haproxy")
    };
    // A node that moves connections refuses to start with less left for them; all have the same.
    let small = Contender::preset("cluster").with("cluster", &["--cache-memory", "32MiB"]);
    let hashed = ["--compare", "place=bounded-hash", "--hand-off", "relay"];
    Experiment {
        name: "cluster-trace",
        title: "Four nodes with memory for a third of the files each",
        asks: "48 clients ask four nodes, each with a disk of 2003 and memory for a third of the files, for what was asked for on a day at NASA in 1995 (files twelve \
            times as long as then; connections of one client within 15 s, as fast as they are answered), or by Zipf's law for files of 1 to 50 MB. Connections come to \
            all nodes alike. How much more is served if requests go where the object is in memory, than if they go anywhere, or by consistent hashing with bounded \
            loads, relayed? HAProxy hashes the name, before four single servers. All share two cores.",
        source: "DTCP, Figure 8",
        contenders: vec![
            small.clone(),
            small.clone().with("random", &["--compare", "place=random"]),
            small.with("hashed", &hashed),
            by_uri.with("haproxy", &BY_URI),
        ],
        subject: "cluster",
        sweep: vec![Axis::named("asked", "asked", &["NASA's day", "1 to 50 MB"])],
        pace: Pace::of([3, 1], 25.0, [20.0, 10.0]),
        scenario: |at| {
            let trace = [Trace::Day, Trace::Long][at.count("asked")];
            scenario(&[], Cluster::Trace(trace))
        },
        judged: "
            requests_per_s / random >= 1.5 at asked=0
            requests_per_s / hashed >= 1.0 at asked=0
            requests_per_s / haproxy at asked=0
            goodput_bytes_per_s / random at asked=1
            goodput_bytes_per_s / hashed >= 1.2 at asked=1
            goodput_bytes_per_s / haproxy >= 1.2 at asked=1
            disk_bytes_per_s / random, hashed, haproxy",
        figures: Vec::new(),
    }
}
