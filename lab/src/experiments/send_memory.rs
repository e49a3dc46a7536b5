//! Memory for sending, divided by need: SSBT's experiments over the kernel's own TCP.

use super::paced::{self, BIG, GRAIN_US, READ_BYTES, RUN_US};
use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::judge::{Fold, Judge, Limit};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{Class, Start, Workload as Clients};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

const FAST: &str = "goodput_bytes_per_s@fast";
const ALL: &str = "goodput_bytes_per_s";
const OURS: [&str; 1] = ["by-need"];
/// One fast connection, and those that share a slow link (SSBT 4.3).
const FAST_MBIT_PER_S: f64 = 60.0;
const SLOW_MBIT_PER_S: f64 = 10.0;
/// The paths of Figure 5: the loss of the first, and of the others.
const LOSSY: [f64; 2] = [0.0001, 0.02];

/// "Not below" to the precision of a Jain's index of some rounds.
const EQUAL_AT_LEAST: f64 = 0.99;

const PACE: Pace = Pace {
    rounds: 5,
    rounds_quick: 2,
    warm_up_s: 12.0, // estimates are of some ten seconds
    window_s: 10.0,
    window_quick_s: 6.0,
};

/// ackpace with a pool that it divides in one way.
pub(super) fn divided(share: &str, pool: &str) -> Contender {
    let share_word = format!("share={share}");
    let options = ["--send-memory", pool, "--compare", &share_word];
    Contender::preset("ackpace").with(share, &options)
}

/// ackpace that leaves send memory to the kernel.
pub(super) fn kernel() -> Contender {
    Contender::preset("ackpace").with("kernel", &["--send-memory", "kernel"])
}

/// ackpace with a pool that it divides in each of the three ways, and without one.
pub(super) fn all_shares(pool: &str) -> Vec<Contender> {
    let shares = ["by-need", "window", "equal"];
    let ours = shares.map(|share| divided(share, pool));
    ours.into_iter().chain([kernel()]).collect()
}

/// SSBT's Figure 17 over the kernel's own TCP.
pub fn fig17() -> Experiment {
    let fixed = |name: &str, option: &str| Contender::preset("nginx").with(name, &[option]);
    let mut contenders = all_shares("{pool_kb}KiB");
    contenders.push(fixed("nginx 16 KB", "listen sndbuf=8k")); // the kernel doubles it
    contenders.push(fixed("nginx 64 KB", "listen sndbuf=32k"));
    let at_15: fn(&Point) -> bool = |at| at.count("pool_kb") == 160 && at.count("slow") == 15;
    let at_30: fn(&Point) -> bool = |at| at.count("pool_kb") == 160 && at.count("slow") == 30;
    let paper: fn(&Point) -> bool = |at| at.count("pool_kb") == 256; // the paper's pool
    let least = Limit::MedianRatioAtLeast;
    let over = |metric, title| Figure::over("slow", metric, title).panels("pool_kb");
    Experiment {
        name: "ssbt-fig17",
        title: "A fast connection among slow ones, with little memory for sending",
        asks: "One connection has a link of 60 Mbit/s to itself; 0 to 30 others share one of 10 Mbit/s. All have a pool of 160 \
            or 256 KB for what they hold in flight and unsent. Divided equally, the slow ones hold memory that their \
            link can't use. By window it follows the windows up and down. By need the fast one keeps its rate. Beside \
            that: the kernel's own tuning, which knows no pool, and fixed buffers.",
        source: "SSBT, Figure 17",
        contenders,
        subjects: &OURS,
        sweep: vec![
            Axis::new("pool_kb", "pool KB", &[160.0, 256.0]).quick(&[160.0]),
            Axis::new(
                "slow",
                "slow connections",
                &[0.0, 5.0, 10.0, 15.0, 20.0, 30.0],
            )
            .quick(&[0.0, 15.0, 30.0]),
        ],
        pace: PACE,
        scenario: |at| scenario_of_fig17(at.count("slow") as u32),
        judged: vec![
            Judge::against(FAST, &["equal"], least(6.0)).at(at_15),
            Judge::against(FAST, &["equal"], least(5.0)).at(at_30),
            Judge::against(FAST, &["equal"], Limit::None).at(paper),
            Judge::against(FAST, &["window", "kernel"], Limit::None),
            Judge::against(FAST, &["nginx 16 KB", "nginx 64 KB"], Limit::None),
            Judge::against(ALL, &["equal", "window", "kernel"], Limit::None),
            Judge::against("send_queue_mean_bytes", &["equal", "kernel"], Limit::None),
            Judge::against("voluntary_per_gb", &["kernel"], Limit::None),
            Judge::against("cpu_s_per_gb", &["kernel"], Limit::None),
        ],
        figures: vec![
            over(FAST, "The fast connection (Figure 17)"),
            over(ALL, "All together"),
            over("send_queue_mean_bytes", "Send queues").logarithmic(),
            over("voluntary_per_gb", "Wake-ups of the server").logarithmic(),
        ],
    }
}

/// SSBT's Figure 5: paths that differ in loss alone.
pub fn fig5() -> Experiment {
    let least = Limit::MedianRatioAtLeast;
    Experiment {
        name: "ssbt-fig5",
        title: "One clean path among lossy ones, with little memory for sending",
        asks: "Eight connections, each with a link of 100 Mbit/s and 12 ms of its own; one path loses .01 % of the \
            packets, seven lose 2 %. The pool is 145 KB. What does the clean path get of it, and carry?",
        source: "SSBT, Figure 5",
        contenders: all_shares("145KiB"),
        subjects: &OURS,
        sweep: Vec::new(),
        pace: PACE,
        scenario: |_| scenario_of_fig5(),
        judged: vec![
            Judge::against(FAST, &["equal"], least(1.3)),
            Judge::against(FAST, &["window"], least(1.03)),
            Judge::against(FAST, &["kernel"], Limit::None),
            Judge::against(ALL, &["equal", "window", "kernel"], Limit::None),
            Judge::against("send_queue_mean_bytes", &["kernel"], Limit::None),
        ],
        figures: vec![
            Figure::plain(FAST, "The clean path"),
            Figure::plain(ALL, "All together"),
            Figure::plain("send_queue_mean_bytes", "Send queues"),
        ],
    }
}

/// SSBT's Figure 13: the pool against the throughput of three lossy paths.
pub fn fig13() -> Experiment {
    let over = |metric, title| Figure::over("pool_kb", metric, title);
    let told = |metric| Judge::against(metric, &["equal", "window", "kernel"], Limit::None);
    Experiment {
        name: "ssbt-fig13",
        title: "Three paths of unequal loss over the memory for sending",
        asks: "Three connections at a round trip of 4 ms lose .5, 1 and 2 % of their packets. They can use some 55 KB \
            together. How small may the pool become before they get slower, and which one does first?",
        source: "SSBT, Figure 13",
        contenders: all_shares("{pool_kb}KiB"),
        subjects: &OURS,
        sweep: vec![
            Axis::new("pool_kb", "pool KB", &[20.0, 30.0, 40.0, 60.0, 80.0, 120.0])
                .quick(&[30.0, 60.0]),
        ],
        pace: PACE,
        scenario: |_| scenario_of_fig13(),
        judged: vec![
            told(ALL),
            told("goodput_bytes_per_s@half"),
            told("goodput_bytes_per_s@one"),
            told("goodput_bytes_per_s@two"),
        ],
        figures: vec![
            over(ALL, "Together (Figure 13)"),
            over("goodput_bytes_per_s@half", "Loss .5 %"),
            over("goodput_bytes_per_s@one", "Loss 1 %"),
            over("goodput_bytes_per_s@two", "Loss 2 %"),
        ],
    }
}

/// The pool against what it buys.
pub fn pools() -> Experiment {
    let over = |metric, title| Figure::over("pool_mib", metric, title);
    Experiment {
        name: "send-memory",
        title: "How much memory for sending is enough?",
        asks: "10 clients behind links of 100 Mbit/s and 300 behind links of 2 Mbit/s, round trips of 10 to 30 ms, with pools \
            of 1 to 16 MiB for what all sockets hold in flight and unsent; beside the kernel's own tuning. How much of \
            the throughput comes from how much of the memory, and at what price in wake-ups and CPU time?",
        source: "SSBT, section 4",
        contenders: all_shares("{pool_mib}MiB"),
        subjects: &OURS,
        sweep: vec![
            Axis::new("pool_mib", "pool MiB", &[1.0, 2.0, 4.0, 8.0, 16.0])
                .quick(&[2.0, 8.0])
                .logarithmic(),
        ],
        pace: PACE,
        scenario: |_| scenario_of_pools(),
        judged: vec![
            Judge::against(ALL, &["kernel", "equal", "window"], Limit::None),
            Judge::against(FAST, &["kernel", "equal", "window"], Limit::None),
            Judge::against("send_queue_mean_bytes", &["kernel"], Limit::None),
            Judge::against("voluntary_per_gb", &["kernel"], Limit::None),
            Judge::against("cpu_s_per_gb", &["kernel"], Limit::None),
        ],
        figures: vec![
            over(ALL, "Goodput"),
            over(FAST, "The fast ones"),
            over("send_queue_mean_bytes", "Send queues").logarithmic(),
            over("voluntary_per_gb", "Wake-ups of the server").logarithmic(),
            over("cpu_s_per_gb", "CPU time of the server"),
        ],
    }
}

/// Two questions about paths on which an estimate could be wrong.
pub fn traps() -> Experiment {
    const TRAPS: [&str; 2] = ["20 short paths, 3 % loss", "8 behind one link"];
    let short: fn(&Point) -> bool = |at| at.count("trap") == 0;
    let shared: fn(&Point) -> bool = |at| at.count("trap") == 1;
    let not_below = Limit::MedianRatioAtLeast(EQUAL_AT_LEAST);
    Experiment {
        name: "send-memory-traps",
        title: "Short lossy paths, and one link for all",
        asks: "Laws of TCP underestimate today's kernels on short paths with much loss: 20 clients at 12 ms and 3 %. \
            Connections of one class behind one drop-tail link should get the same: 8 clients on 40 Mbit/s. The pool is \
            1 MiB, which is ample for both.",
        source: "SSBT, section 4",
        contenders: all_shares("1MiB"),
        subjects: &OURS,
        sweep: vec![Axis::named("trap", "paths", &TRAPS)],
        // Reno windows behind one drop-tail link differ for seconds, whoever divides the memory: fairness takes longer.
        pace: Pace {
            window_s: 40.0,
            window_quick_s: 20.0,
            ..PACE
        },
        scenario: |at| match at.count("trap") {
            0 => scenario_of_short(),
            _ => scenario_of_shared(),
        },
        judged: vec![
            Judge::against(ALL, &["kernel"], Limit::MedianRatioAtLeast(0.97)).at(short),
            Judge::alone("jain_window", Fold::Median, Limit::ValueAtLeast(0.95)).at(shared),
            Judge::against("jain_window", &["equal", "window"], not_below).at(shared),
            Judge::against("jain_window", &["kernel"], Limit::None).at(shared),
            Judge::against("jain", &["equal", "window", "kernel"], Limit::None).at(shared),
            Judge::against(ALL, &["kernel", "equal", "window"], Limit::None),
        ],
        figures: vec![
            Figure::over("trap", ALL, "Goodput"),
            Figure::over("trap", "jain_window", "Fairness"),
        ],
    }
}

/// Half of a round trip.
pub(super) fn delay(rtt_ms: f64) -> LinkSpec {
    LinkSpec {
        delay_ms: Some(rtt_ms / 2.0),
        ..LinkSpec::default()
    }
}

/// A link with a rate, a drop-tail queue and half of a round trip.
pub(super) fn limited(mbit_per_s: f64, queue_ms: f64, rtt_ms: f64) -> LinkSpec {
    LinkSpec {
        rate_mbit_per_s: Some(mbit_per_s),
        queue_ms: Some(queue_ms),
        ..delay(rtt_ms)
    }
}

fn scenario_of_fig17(slow: u32) -> Scenario {
    let fast = PathSpec {
        down: limited(FAST_MBIT_PER_S, 20.0, 12.0),
        up: delay(12.0),
        ..PathSpec::new("fast", "10.1.0.1")
    };
    let mut path = vec![fast];
    let mut classes = vec![class("fast", 1, "10.1.0.1")];
    if slow > 0 {
        let clients = format!("10.2.0.1-10.2.0.{slow}");
        classes.push(class("slow", slow, &clients));
        path.push(PathSpec {
            down: delay(12.0),
            up: delay(12.0),
            down_through: vec!["ethernet".into()],
            ..PathSpec::new("slow", &clients)
        });
    }
    let ethernet = LinkSpec {
        rate_mbit_per_s: Some(SLOW_MBIT_PER_S),
        queue_ms: Some(100.0),
        ..LinkSpec::default()
    };
    let topology = Topology {
        congestion_control: "cubic".into(),
        link: [("ethernet".to_owned(), ethernet)].into(),
        path,
        ..Topology::default()
    };
    scenario(&[BIG], topology, classes)
}

fn scenario_of_fig5() -> Scenario {
    scenario_of_losses(&[("fast", 1, LOSSY[0]), ("lossy", 7, LOSSY[1])], 12.0)
}

fn scenario_of_fig13() -> Scenario {
    scenario_of_losses(
        &[("half", 1, 0.005), ("one", 1, 0.01), ("two", 1, 0.02)],
        4.0,
    )
}

/// A group of clients: its name, its members, and what its paths differ in.
pub(super) type ClientGroup<'a> = (&'a str, u32, f64);

/// Groups whose paths differ in loss. Each client has a path of its own.
fn scenario_of_losses(groups: &[ClientGroup], rtt_ms: f64) -> Scenario {
    let path = |name: &str, source: &str, loss| lossy(name, source, loss, rtt_ms);
    let (path, classes) = grouped(groups, path, class);
    let topology = Topology {
        path,
        ..Topology::default()
    };
    scenario(&[BIG], topology, classes)
}

fn scenario_of_pools() -> Scenario {
    scenario_of_links(&[BIG], &[("fast", 10, 100.0), ("slow", 300, 2.0)], class)
}

/// Groups whose links differ in rate, in Mbit/s. Each client has a link of its own and fetches some of `files`.
pub(super) fn scenario_of_links(
    files: &[Set],
    groups: &[ClientGroup],
    class: impl Fn(&str, u32, &str) -> Class,
) -> Scenario {
    let (path, classes) = grouped(groups, paced::link, class);
    let topology = Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        path,
        ..Topology::default()
    };
    scenario(files, topology, classes)
}

/// The paths and the classes of groups. `path` takes a name, addresses and what the group differs in; `class` a name,
/// the number of clients, and their addresses.
pub(super) fn grouped(
    groups: &[ClientGroup],
    path: impl Fn(&str, &str, f64) -> PathSpec,
    class: impl Fn(&str, u32, &str) -> Class,
) -> (Vec<PathSpec>, Vec<Class>) {
    let one = |(nth, &(name, clients, differs)): (usize, &ClientGroup)| {
        let source = paced::range(nth, clients);
        (path(name, &source, differs), class(name, clients, &source))
    };
    groups.iter().enumerate().map(one).unzip()
}

/// A link of 100 Mbit/s for each client, with this loss.
fn lossy(name: &str, clients: &str, loss: f64, rtt_ms: f64) -> PathSpec {
    let down = LinkSpec {
        loss: Some(loss),
        ..limited(100.0, 20.0, rtt_ms)
    };
    PathSpec {
        per_client: true,
        down,
        up: delay(rtt_ms),
        ..PathSpec::new(name, clients)
    }
}

fn scenario_of_short() -> Scenario {
    scenario_of_losses(&[("short", 20, 0.03)], 12.0)
}

fn scenario_of_shared() -> Scenario {
    let clients = "10.1.0.1-10.1.0.8";
    let path = PathSpec {
        down: limited(40.0, 50.0, 20.0),
        up: delay(20.0),
        ..PathSpec::new("shared", clients)
    };
    let topology = Topology {
        path: vec![path],
        ..Topology::default()
    };
    scenario(&[BIG], topology, vec![class("shared", 8, clients)])
}

/// Clients that download a big file from these addresses.
pub(super) fn class(name: &str, clients: u32, source: &str) -> Class {
    Class {
        source: Some(source.into()),
        receive_at_least_bytes: Some(READ_BYTES),
        start: Some(Start {
            over_s: 1.0,
            ..Start::default()
        }),
        ..paced::downloads(name, clients)
    }
}

/// Clients of a WAN, and files in memory.
pub(super) fn scenario(files: &[Set], topology: Topology, classes: Vec<Class>) -> Scenario {
    let clients = Clients {
        seed: 1,
        classes,
        ..Clients::default()
    };
    Scenario {
        place: Place::wan(&[files, &[PROBE]].concat(), topology),
        workload: Workload::Swarm(Swarm::new(clients)),
    }
}
