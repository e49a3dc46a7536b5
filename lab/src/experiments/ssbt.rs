//! Memory for sending, divided by need: SSBT's experiments over the kernel's own TCP.

use super::network::{BIG, linked, range};
use crate::believed::ADMIN_SOCKET;
use crate::corpus::PROBE;
use crate::experiment::{Experiment, Figure, Over, Pace, Scenario};
use crate::peers::Contender;
use crate::place::Place;
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Start};
use ackpace_lab_wan::topology::{PathSpec, RedSpec};
use ackpace_lab_wan::{LinkSpec, Topology};

const PACE: Pace = Pace {
    rounds: 5,
    rounds_quick: 2,
    warm_up_s: 12.0, // estimates are of some ten seconds
    window_s: 10.0,
    window_quick_s: 6.0,
};

/// ackpace with a pool that it divides in each of three ways.
fn shares(pool: &str, options: &[&str]) -> Vec<Contender> {
    let divided = |share: &str| {
        let share_word = format!("share={share}");
        let divides = ["--send-memory", pool, "--compare", &share_word];
        Contender::preset("ackpace").with(share, &[&divides[..], options].concat())
    };
    ["by-need", "window", "equal"].map(divided).to_vec()
}

/// The same, and without a pool.
pub fn all_shares(pool: &str) -> Vec<Contender> {
    let kernel = Contender::preset("ackpace").with("kernel", &["--send-memory", "kernel"]);
    [shares(pool, &[]), vec![kernel]].concat()
}

/// nginx with a fixed SO_SNDBUF, which the kernel doubles.
pub fn fixed(name: &str, listen: &str) -> Contender {
    Contender::preset("nginx").with(name, &[&format!("listen sndbuf={listen}")])
}

/// A path whose link is limited, with half of the round trip each way.
pub fn path(name: &str, clients: &str, down: LinkSpec) -> PathSpec {
    PathSpec {
        up: LinkSpec::delay(down.delay_ms),
        down,
        ..PathSpec::new(name, clients)
    }
}

/// Clients that download a big file, on these paths.
fn big(topology: Topology, classes: Vec<Class>) -> Scenario {
    Scenario::swarm(Place::wan(&[BIG, PROBE], topology), classes)
}

pub fn frame(
    name: &'static str,
    title: &'static str,
    scenario: fn(&Point) -> Scenario,
) -> Experiment {
    Experiment {
        name,
        title,
        asks: "",
        source: "",
        contenders: Vec::new(),
        subject: "by-need",
        sweep: Vec::new(),
        pace: PACE,
        scenario,
        judged: "",
        figures: Vec::new(),
    }
}

/// SSBT's Figure 17 over the kernel's own TCP.
pub fn fig17() -> Experiment {
    let mut contenders = all_shares("{pool_kb}KiB");
    contenders.push(fixed("nginx 16 KB", "8k"));
    contenders.push(fixed("nginx 64 KB", "32k"));
    let slow = [0.0, 5.0, 10.0, 15.0, 20.0, 30.0];
    Experiment {
        asks: "One connection has a link of 60 Mbit/s to itself; 0 to 30 others share one of 10 Mbit/s. All have a pool of 160 \
            or 256 KB for what they hold in flight and unsent. Divided equally, the slow ones hold memory that their \
            link can't use. By window it follows the windows up and down. By need the fast one keeps its rate. Beside \
            that: the kernel's own tuning, which knows no pool, and fixed buffers.",
        source: "SSBT, Figure 17",
        contenders,
        sweep: vec![
            Axis::new("slow", "slow connections", &slow).quick(&[0.0, 15.0, 30.0]),
            Axis::new("pool_kb", "pool KB", &[160.0, 256.0]).quick(&[160.0]), // the paper's is 256
        ],
        judged: "
            goodput_bytes_per_s@fast / equal >= 6 at pool_kb=160 slow=15
            goodput_bytes_per_s@fast / equal >= 5 at pool_kb=160 slow=30
            goodput_bytes_per_s@fast / equal at pool_kb=256
            goodput_bytes_per_s@fast / window, kernel, nginx 16 KB, nginx 64 KB
            goodput_bytes_per_s / equal, window, kernel
            send_queue_mean_bytes / equal, kernel
            voluntary_per_gb / kernel
            cpu_s_per_gb / kernel",
        ..frame(
            "ssbt-fig17",
            "A fast connection among slow ones, with little memory for sending",
            fig17_scenario,
        )
    }
}

fn fig17_scenario(at: &Point) -> Scenario {
    let slow = at.count("slow") as u32;
    let link = LinkSpec::limited(60.0, 20.0, 6.0);
    let mut paths = vec![path("fast", "10.1.0.1", link)];
    let mut classes = vec![linked("fast", 1, "10.1.0.1")];
    if slow > 0 {
        let clients = format!("10.2.0.1-10.2.0.{slow}");
        classes.push(linked("slow", slow, &clients));
        paths.push(PathSpec {
            down_through: Some("ethernet"),
            ..path("slow", &clients, LinkSpec::delay(6.0))
        });
    }
    let topology = Topology {
        congestion_control: "cubic",
        link: vec![("ethernet", LinkSpec::limited(10.0, 100.0, 0.0))],
        path: paths,
        ..Topology::default()
    };
    big(topology, classes)
}

/// Groups whose paths of 100 Mbit/s differ in loss. Each client has a path of its own.
fn losses(groups: &[(&str, u32, f64)], rtt_ms: f64) -> Scenario {
    let (mut paths, mut classes) = (Vec::new(), Vec::new());
    for (nth, &(name, clients, loss)) in groups.iter().enumerate() {
        let source = range(nth, clients);
        let down = LinkSpec {
            loss,
            ..LinkSpec::limited(100.0, 20.0, rtt_ms / 2.0)
        };
        paths.push(PathSpec {
            per_client: true,
            ..path(name, &source, down)
        });
        classes.push(linked(name, clients, &source));
    }
    let topology = Topology {
        path: paths,
        ..Topology::default()
    };
    big(topology, classes)
}

/// SSBT's Figure 5: paths that differ in loss alone.
pub fn fig5() -> Experiment {
    Experiment {
        asks: "Eight connections, each with a link of 100 Mbit/s and 12 ms of its own; one path loses .01 % of the \
            packets, seven lose 2 %. The pool is 145 KB. What does the clean path get of it, and carry?",
        source: "SSBT, Figure 5",
        contenders: all_shares("145KiB"),
        judged: "
            goodput_bytes_per_s@fast / equal >= 1.3
            goodput_bytes_per_s@fast / window >= 1.03
            goodput_bytes_per_s@fast / kernel
            goodput_bytes_per_s@lossy / equal, window, kernel
            goodput_bytes_per_s / equal, window, kernel
            send_queue_mean_bytes / kernel",
        ..frame(
            "ssbt-fig5",
            "One clean path among lossy ones, with little memory for sending",
            |_| losses(&[("fast", 1, 0.0001), ("lossy", 7, 0.02)], 12.0),
        )
    }
}

/// SSBT's Figure 13: the pool against the throughput of three lossy paths.
pub fn fig13() -> Experiment {
    let pools = [20.0, 30.0, 40.0, 60.0, 80.0, 120.0];
    Experiment {
        asks: "Three connections at a round trip of 4 ms lose .5, 1 and 2 % of their packets. They can use some 55 KB \
            together. How small may the pool become before they get slower, and which one does first?",
        source: "SSBT, Figure 13",
        contenders: all_shares("{pool_kb}KiB"),
        sweep: vec![Axis::new("pool_kb", "pool KB", &pools).quick(&[30.0, 60.0])],
        judged: "
            goodput_bytes_per_s / equal, window, kernel
            goodput_bytes_per_s@half / equal, window, kernel
            goodput_bytes_per_s@one / equal, window, kernel
            goodput_bytes_per_s@two / equal, window, kernel",
        ..frame(
            "ssbt-fig13",
            "Three paths of unequal loss over the memory for sending",
            |_| {
                losses(
                    &[("half", 1, 0.005), ("one", 1, 0.01), ("two", 1, 0.02)],
                    4.0,
                )
            },
        )
    }
}

/// Throughput of one connection on a fast link.
pub fn fig11() -> Experiment {
    let sized = "listen sndbuf={buffer_kb}k";
    let copying = Contender {
        options: vec!["sendfile off".into(), "output_buffers 1 256k".into()],
        ..Contender::preset("nginx")
    };
    let mut contenders = all_shares("{buffer_kb}KiB");
    contenders.push(Contender::preset("nginx").with("sendfile", &[sized]));
    contenders.push(copying.with("read+write", &[sized]));
    let sizes = [16.0, 32.0, 64.0, 128.0, 256.0];
    Experiment {
        asks: "A single connection has a link of 622 Mbit/s and a round trip of 1 ms to itself. The memory for sending is a pool, \
            which any division should give to it whole, or SO_SNDBUF of nginx, which the kernel doubles. The paper compares servers \
            that copy twice and once (SMR); beside that: sendfile, which copies nothing, and read and write, which copy twice.",
        source: "SSBT, Figure 11",
        contenders,
        sweep: vec![
            Axis::new("buffer_kb", "memory for sending KB", &sizes)
                .quick(&[16.0, 64.0, 256.0])
                .logarithmic(),
        ],
        pace: Pace::of([5, 2], 3.0, [2.0, 1.0]),
        judged: "
            goodput_bytes_per_s / equal, window >= .95
            goodput_bytes_per_s / kernel, sendfile, read+write
            cpu_s_per_gb / kernel, sendfile, read+write
            voluntary_per_gb / kernel",
        ..frame(
            "ssbt-fig11",
            "One connection on a link of 622 Mbit/s, over its memory for sending",
            |_| {
                let topology = Topology {
                    path: vec![path("fast", "10.1.0.1", LinkSpec::limited(622.0, 5.0, 0.5))],
                    ..Topology::default()
                };
                big(topology, vec![linked("fast", 1, "10.1.0.1")])
            },
        )
    }
}

/// A router: from 5 ms of queue on, it drops at random; from 25 ms on, more and more.
fn router(rate_mbit_per_s: f64) -> LinkSpec {
    let queue_bytes = (rate_mbit_per_s * 1e6 / 8.0 * 0.1) as u64;
    LinkSpec {
        rate_mbit_per_s: Some(rate_mbit_per_s),
        queue_bytes: Some(queue_bytes),
        red: Some(RedSpec {
            min_bytes: queue_bytes / 20,
            max_bytes: queue_bytes / 4,
        }),
        ..LinkSpec::default()
    }
}

/// B_i over time.
pub fn fig15() -> Experiment {
    let by_class = |metric| Figure {
        metric,
        over: Over::SecondsByClass(&["1", "2", "3", "4"]),
    };
    Experiment {
        asks: "Connections 1, 2 and 4 go through one router, connection 3 through another; each has 50 Mbit/s with random early \
            detection, and the round trip is 30 ms. 1 and 2 begin at 0 s, 3 at 5 s, 4 at 10 s. All share a pool of 512 KB. How steady is \
            the share (B_i) of each? The variation is that from 30 s on. The paper doesn't print the rates of its routers.",
        source: "SSBT, Figure 15",
        contenders: shares("512KiB", &["--admin", ADMIN_SOCKET]),
        // The window begins with the first second of the swarm after the warm-up.
        pace: Pace::of([5, 2], 0.5, [50.0, 45.0]),
        judged: "
            share_variation <= .08
            share_variation / window <= .333
            share_variation@3 / window, equal
            share_variation@4 / window, equal
            share_mean_bytes@1 / window, equal
            share_mean_bytes@3 / window, equal
            goodput_bytes_per_s / window, equal
            goodput_bytes_per_s@3 / window, equal",
        figures: ["share_mean_bytes", "goodput_bytes_per_s"]
            .map(by_class)
            .to_vec(),
        ..frame(
            "ssbt-fig15",
            "Shares of the send memory over time, behind two RED routers",
            |_| fig15_scenario(),
        )
    }
}

fn fig15_scenario() -> Scenario {
    /// Twenty seconds after the last connection began: its estimate is of some ten seconds, and takes as long to grow.
    const STEADY_S: f64 = 30.0;
    // With these rates, four connections can use about the whole pool.
    let routers = ["router-1", "router-2"].map(|name| (name, router(50.0)));
    let mut topology = Topology {
        link: routers.to_vec(),
        ..Topology::default()
    };
    let mut classes = Vec::new();
    // The window begins at 1 s; the first two begin before, so that there is somebody to look at.
    let connections = [(0, 0.0), (0, 0.0), (1, 6.0), (0, 11.0)];
    for (nth, (router, begins_s)) in (1..).zip(connections) {
        let (name, client) = (nth.to_string(), format!("10.{nth}.0.1"));
        topology.path.push(PathSpec {
            down_through: Some(["router-1", "router-2"][router]),
            ..path(&name, &client, LinkSpec::delay(15.0))
        });
        classes.push(Class {
            start: Start::after(begins_s),
            ..linked(&name, 1, &client)
        });
    }
    big(topology, classes)
        .with(|swarm| (swarm.curves, swarm.shares_steady_s) = (true, Some(STEADY_S)))
}

/// What connections with different access links get through RED routers.
pub fn red() -> Experiment {
    let mut contenders = all_shares("256KiB");
    contenders.splice(..3, shares("256KiB", &["--admin", ADMIN_SOCKET]));
    Experiment {
        asks: "At each of two routers, of 60 and 15 Mbit/s with random early detection, three pairs of connections have access links of 3, 12 \
            and 100 Mbit/s; the round trip is 20 ms. This is the model of the paper's estimator. All share a pool of 256 KB. What does each \
            kind get, by need, by window, in equal parts, or without a pool?",
        source: "SSBT, section 3.1",
        contenders,
        pace: Pace::of([5, 2], 12.0, [12.0, 8.0]), // estimates are of some ten seconds
        judged: "
            goodput_bytes_per_s / equal, window, kernel
            goodput_bytes_per_s@fast-1 / equal, window, kernel
            goodput_bytes_per_s@fast-2 / equal, window, kernel
            goodput_bytes_per_s@middle-1 / equal, window, kernel
            goodput_bytes_per_s@slow-1 / equal, window, kernel
            goodput_bytes_per_s@slow-2 / equal, window, kernel
            link_drop_share / equal, window, kernel
            share_mean_bytes@fast-1 / equal, window
            share_mean_bytes@middle-1 / equal, window
            share_mean_bytes@slow-1 / equal, window",
        ..frame(
            "ssbt-red",
            "Access links of 3 to 100 Mbit/s behind two RED routers",
            |_| red_scenario(),
        )
    }
}

fn red_scenario() -> Scenario {
    const ROUTERS: [(&str, f64); 2] = [("router-1", 60.0), ("router-2", 15.0)];
    let mut topology = Topology {
        link: ROUTERS.map(|(name, rate)| (name, router(rate))).to_vec(),
        ..Topology::default()
    };
    let mut classes = Vec::new();
    for (at, (router, _)) in ROUTERS.into_iter().enumerate() {
        let access = [("slow", 3.0), ("middle", 12.0), ("fast", 100.0)];
        for (nth, (kind, mbit_per_s)) in access.into_iter().enumerate() {
            let (name, clients) = (format!("{kind}-{}", at + 1), range(at * 3 + nth, 2));
            topology.path.push(PathSpec {
                per_client: true,
                down_through: Some(router),
                ..path(&name, &clients, LinkSpec::limited(mbit_per_s, 50.0, 10.0))
            });
            classes.push(linked(&name, 2, &clients));
        }
    }
    big(topology, classes).with(|swarm| swarm.shares_steady_s = Some(0.0))
}
