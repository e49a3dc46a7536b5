//! Files in memory, and clients whom the network or their own pace limits: the server only has to wake up, so the
//! number of wake-ups decides.

use super::presets;
use crate::believed::ADMIN_SOCKET;
use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Pace, Scenario};
use crate::peers::Contender;
use crate::place::{Network, Place, Receive};
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Kind, Objects, Start};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// The file that all clients download, again and again.
pub const BIG: Set = Set::files("big", 1, 384 << 20);
/// Here the kernel builds frames of about a millisecond; splitting them further would take all of the CPU.
pub const RUN_US: u32 = 20_000;
/// A hundredth of the round trip; halves the emulator's CPU time.
pub const GRAIN_US: u32 = 200;
/// Bytes at which a client that is limited by its link wakes.
pub const READ_BYTES: u32 = 32 << 10;

/// Addresses of group `nth`: up to 65,535 clients each.
pub fn range(nth: usize, clients: u32) -> String {
    let net = 1 + nth * 4;
    let last = clients; // from 10.NET.0.1 on
    format!("10.{net}.0.1-10.{net}.{}.{}", last / 256, last % 256)
}

/// Clients that download the big file.
pub fn downloads(name: &str, clients: u32) -> Class {
    Class::new(name, clients, Objects::one("big"))
}

/// Clients that download the big file from these addresses, through links that limit them.
pub fn linked(name: &str, clients: u32, source: &str) -> Class {
    Class {
        source: Some(source.into()),
        // At 2 Mbit/s this means eight wake-ups a second, and saves two thirds of the clients' own work.
        receive_at_least_bytes: Some(READ_BYTES),
        start: Start::over(1.0),
        ..downloads(name, clients)
    }
}

/// A link for each client: 20 ms of round trip on average.
pub fn link(name: &str, source: &str, rate_mbit_per_s: f64) -> PathSpec {
    PathSpec {
        per_client: true,
        down: LinkSpec::limited(rate_mbit_per_s, 100.0, 15.0),
        up: LinkSpec::delay(5.0),
        rate_spread: 0.4,
        delay_spread: 0.66,
        ..PathSpec::new(name, source)
    }
}

/// Many paths, at little cost of the emulator.
pub fn coarse(path: Vec<PathSpec>) -> Topology {
    Topology {
        run_us: RUN_US,
        grain_us: GRAIN_US,
        path,
        ..Topology::default()
    }
}

const MIXES: [&str; 6] = [
    "100 x 20 Mbit/s",
    "10 x 100 + 500 x 2 Mbit/s",
    "1,000 x 2 Mbit/s",
    "300, Pareto 1-50 Mbit/s, .1 % loss",
    "100 x 15 Mbit/s, ACKs on the other core",
    "200 unpaced",
];
const THOUSAND: usize = 2;
const PARETO: usize = 3;
const ACKS_ELSEWHERE: usize = 4;
const UNPACED: usize = 5;
/// The visitor's address, on a direct link: it then waits for the server only, not for the emulator.
const VISITOR: &str = "10.200.0.1";

/// With reno, which every machine has.
pub fn paced() -> Experiment {
    Experiment {
        name: "paced",
        title: "Clients that the network limits",
        asks: "A cached file goes to clients behind links of their own (drop-tail, a queue of 100 ms, 10 to 30 ms of round \
            trip, rates spread by 40 %). Goodput is what the links give; what differs is how often the server wakes up \
            for it, what CPU it takes, how much lies in its send queues, and how long a new visitor waits. The last mix \
            has no links: 200 clients over loopback, where fairness is asked.",
        source: "TPF, section 3.1 (IDSR)",
        contenders: presets(&["ackpace", "nginx", "lighttpd"]),
        subject: "",
        sweep: vec![Axis::named("mix", "mix", &MIXES).quick(&[0.0, 1.0, 2.0])],
        pace: Pace::of([5, 2], 4.0, [5.0, 3.0]),
        scenario: |at| paced_scenario(at, "reno"),
        // 1.0 to the precision of the target: the links are full in both cases, and the rest is noise. Above .9 of
        // the clients' core, goodput says more about that core than about the server.
        judged: "
            goodput_bytes_per_s / nginx >= .995 at mix=0|1|2|3
            goodput_bytes_per_s / nginx at mix=4|5
            goodput_bytes_per_s / lighttpd
            voluntary_per_gb <= 70 at mix=0|1
            voluntary_per_gb <= 160 at mix=2
            voluntary_per_gb <= 100 at mix=3
            voluntary_per_gb / nginx, lighttpd
            cpu_s_per_gb / nginx <= .9 at mix=0|1|3
            cpu_s_per_gb / nginx <= .6 at mix=2
            cpu_s_per_gb / nginx <= .86 at mix=4
            cpu_s_per_gb / nginx at mix=5
            cpu_s_per_gb / lighttpd
            send_queue_mean_bytes / nginx <= .8 at mix=0|1|2|3
            send_queue_mean_bytes / nginx at mix=4|5
            send_queue_mean_bytes / lighttpd
            ttfb_p99_us@visitor / nginx, lighttpd at mix=0|1|2|3|4
            link_idle_share / nginx at mix=0|1|2|3|4
            jain >= .98 at mix=5
            jain / nginx, lighttpd at mix=5
            load_core_full_share max <= .9 at mix=0|1|2|3|4",
        figures: Vec::new(),
    }
}

/// The same with cubic, where network namespaces may use it.
pub fn paced_cubic() -> Experiment {
    Experiment {
        name: "paced-cubic",
        title: "Clients that the network limits, with cubic",
        scenario: |at| paced_scenario(at, "cubic"),
        ..paced()
    }
}

fn paced_scenario(at: &Point, congestion_control: &'static str) -> Scenario {
    let mix = at.count("mix");
    let groups: &[(&str, u32, f64)] = match mix {
        0 => &[("film", 100, 20.0)],
        1 => &[("fast", 10, 100.0), ("slow", 500, 2.0)],
        THOUSAND => &[("film", 1000, 2.0)],
        PARETO => &[("film", 300, 0.0)],
        UNPACED => {
            let place = Place::memory(&[BIG, PROBE]);
            return Scenario::swarm(place, vec![downloads("film", 200)]);
        }
        _ => &[("film", 100, 15.0)],
    };
    let mut topology = Topology {
        congestion_control,
        beside: Some(VISITOR),
        ..coarse(Vec::new())
    };
    // With frames of two packets, the emulator handles 80,000 frames a second one way and 40,000 the other for a
    // thousand clients, and that alone fills the clients' core. So do 60,000 frames and their ACKs. Windows hold
    // 20 packets or more and queues 100 ms here, so frames of four change nothing else.
    if [THOUSAND, ACKS_ELSEWHERE].contains(&mix) {
        topology.frame_packets_min = Some(4);
    }
    let mut classes = Vec::new();
    for (nth, &(name, clients, rate)) in groups.iter().enumerate() {
        let source = range(nth, clients);
        match mix {
            PARETO => {
                let paths = (0..clients).map(|nth| lossy(nth, clients));
                topology.path.extend(paths);
            }
            _ => topology.path.push(link(name, &source, rate)),
        }
        classes.push(linked(name, clients, &source));
    }
    // A visitor opens a new connection for each request of a small file. Each visit wakes the server two or three
    // times, so frequent visits would hide the cost of downloads.
    classes.push(Class {
        source: Some(VISITOR.into()),
        think_s: 1.0,
        keep_alive: false,
        apart: true,
        ..Class::new("visitor", 1, Objects::one("probe"))
    });
    let mut place = Place::wan(&[BIG, PROBE], topology);
    if let (ACKS_ELSEWHERE, Network::Wan { receive, .. }) = (mix, &mut place.network) {
        *receive = Receive::ClientsCore;
    }
    Scenario::swarm(place, classes)
}

/// The link of client `nth` of `of`. The rates are the quantiles of a bounded Pareto distribution instead of
/// random draws, so nothing depends on a seed. The loss is .1 %.
fn lossy(nth: u32, of: u32) -> PathSpec {
    const MBIT_PER_S: (f64, f64) = (1.0, 50.0);
    const SHAPE: f64 = 1.2;
    let (low, high) = MBIT_PER_S;
    let part = (f64::from(nth) + 0.5) / f64::from(of);
    let tail = 1.0 - part * (1.0 - (low / high).powf(SHAPE));
    let address = format!("10.1.{}.{}", (nth + 1) / 256, (nth + 1) % 256);
    let rate = low * tail.powf(-1.0 / SHAPE);
    PathSpec {
        down: LinkSpec {
            loss: 0.001,
            delay_ms: 5.0 + f64::from(nth * 7 % 21), // 5 to 25, unrelated to the rate
            ..LinkSpec::limited(rate, 100.0, 0.0)
        },
        up: LinkSpec::delay(5.0),
        ..PathSpec::new(&format!("film/{nth}"), &address)
    }
}

/// Receive buffers of clients that pace themselves. Tuned: from 64 KB to 6 MB, grown by the kernel as the client reads.
pub const BUFFERS: [(&str, Option<u32>); 3] = [
    ("tuned buffer", None),
    ("buffer of 256 KB", Some(256 << 10)),
    ("buffer of 32 KB", Some(32 << 10)),
];

/// Downloads from memory by clients whose receive windows admit more than they read.
pub fn self_paced_cached() -> Experiment {
    const MIXES: [&str; 3] = ["100 x 1 MB/s", "300 x 250 KB/s", "1,000 x 100 KB/s"];
    const SIDES: [&str; 4] = [
        BUFFERS[0].0,
        BUFFERS[1].0,
        BUFFERS[2].0,
        "tuned buffer, WAN",
    ];
    Experiment {
        name: "self-paced-cached",
        title: "Clients that pace themselves, and a cached file",
        asks: "100 to 1,000 clients read a cached file steadily, each at a rate of its own, as players, proxies and curl --limit-rate do: nothing \
            between them and the server is slow. Their receive buffers hold 32 KB, 256 KB, or what the kernel finds right. All get their rates; what does that \
            cost a server in CPU time and wake-ups, and how much lies in its send queues? Over loopback and over a WAN with round trips of 7 to 33 ms.",
        source: "TPF, section 3.1 (IDSR)",
        contenders: presets(&["ackpace", "nginx"]),
        subject: "",
        sweep: vec![
            Axis::named("mix", "mix", &MIXES),
            Axis::named("side", "clients' side", &SIDES).quick(&[0.0]),
        ],
        // A server that fills its sockets sends a client megabytes at first, and then nothing until the
        // client has read a third of them: 10 s and more. A shorter window would miss this behaviour.
        pace: Pace::of([3, 1], 15.0, [25.0, 10.0]),
        scenario: self_paced_scenario,
        judged: "
            goodput_bytes_per_s / nginx >= .995
            demand_met_min
            cpu_s_per_gb / nginx <= 1
            voluntary_per_gb <= 40
            voluntary_per_gb / nginx
            send_queue_mean_bytes / nginx <= .6
            load_core_full_share max <= .9",
        figures: Vec::new(),
    }
}

fn self_paced_scenario(at: &Point) -> Scenario {
    let (clients, rate_bytes_per_s) =
        [(100, 1_000_000), (300, 250_000), (1000, 100_000)][at.count("mix")];
    let side = at.count("side");
    let class = Class {
        kind: Kind::SelfPaced,
        rate_bits_per_s: Some(rate_bytes_per_s * 8),
        start: Start::over(1.0),
        ..downloads("film", clients)
    };
    match BUFFERS.get(side) {
        Some((_, receive_buffer_bytes)) => {
            let receive_buffer_bytes = *receive_buffer_bytes;
            let class = Class {
                receive_buffer_bytes,
                ..class
            };
            Scenario::swarm(Place::memory(&[BIG]), vec![class])
        }
        None => on_wan(class),
    }
}

/// A class on a network with a noticeable round trip and no rate limit.
fn on_wan(mut class: Class) -> Scenario {
    let source = range(0, class.clients);
    let path = PathSpec {
        per_client: true,
        down: LinkSpec::delay(15.0),
        up: LinkSpec::delay(5.0),
        delay_spread: 0.66,
        ..PathSpec::new("film", &source)
    };
    class.source = Some(source);
    Scenario::swarm(Place::wan(&[BIG], coarse(vec![path])), vec![class])
}

/// Does the server know how fast its clients are, whatever limits them?
pub fn believed() -> Experiment {
    const KINDS: [&str; 7] = [
        "a link",
        "itself, 32 KB",
        "itself, 256 KB",
        "itself, tuned",
        "bursts, 256 KB",
        "bursts, tuned",
        "bursts, tuned, WAN",
    ];
    Experiment {
        name: "believed",
        title: "How fast the server believes its clients to be",
        asks: "40 clients begin at once, and take 300 KB/s each of a cached file: since their links carry no more, or since they read no more, steadily or once a second, with \
            receive buffers that hold a tenth of a second or many. What does the server believe of each, 3 and 10 s later, beside what it takes?",
        source: "TPF, section 3.2 (B_n)",
        contenders: vec![Contender::preset("ackpace").with("ackpace", &["--admin", ADMIN_SOCKET])],
        subject: "",
        sweep: vec![Axis::named("kind", "limited by", &KINDS)],
        pace: Pace::of([3, 1], 3.0, [7.0, 7.0]), // the names of the figures contain both times
        scenario: believed_scenario,
        judged: "
            believed_3s_error_share <= .15
            believed_3s_factor_p95 <= 1.6
            believed_10s_error_share <= .15
            believed_10s_factor_p95 <= 1.6",
        figures: Vec::new(),
    }
}

fn believed_scenario(at: &Point) -> Scenario {
    const CLIENTS: u32 = 40;
    const RATE_BYTES_PER_S: u64 = 300_000;
    let of = |class: Class| match class.kind {
        Kind::Plain => {
            let source = range(0, CLIENTS);
            let mut path = link("client", &source, RATE_BYTES_PER_S as f64 * 8e-6);
            path.rate_spread = 0.0;
            let place = Place::wan(&[BIG], coarse(vec![path]));
            let source = Some(source);
            Scenario::swarm(place, vec![Class { source, ..class }])
        }
        _ => Scenario::swarm(Place::memory(&[BIG]), vec![class]),
    };
    let paced = |receive_buffer_bytes| Class {
        kind: Kind::SelfPaced,
        rate_bits_per_s: Some(RATE_BYTES_PER_S * 8),
        receive_buffer_bytes,
        ..downloads("client", CLIENTS)
    };
    // Over loopback a segment has 64 KB, a fifth of a burst, and windows open by as much.
    let bursty = |receive_buffer_bytes| Class {
        kind: Kind::Bursty {
            len_bytes: RATE_BYTES_PER_S,
            every_s: 1.0,
        },
        receive_buffer_bytes,
        ..downloads("client", CLIENTS)
    };
    let scenario = match at.count("kind") {
        0 => of(downloads("client", CLIENTS)),
        1 => of(paced(Some(32 << 10))),
        2 => of(paced(Some(256 << 10))),
        3 => of(paced(None)),
        4 => of(bursty(Some(256 << 10))),
        5 => of(bursty(None)),
        _ => on_wan(bursty(None)),
    };
    scenario.with(|swarm| swarm.believed = true)
}

/// Send memory for a program that knows nothing of it.
pub fn tune_nginx() -> Experiment {
    const MEMORY: [&str; 2] = ["16 MB for sockets", "ample"];
    let nginx = Contender::preset("nginx");
    Experiment {
        name: "tune-nginx",
        title: "nginx, with and without `ackpace-host tune`",
        asks: "The server is not changed. It sends to one client behind 200 Mbit/s and to 200 behind 1 Mbit/s with a second of \
            queue, round trips of 20 ms. The kernel has 16 MB for its sockets (the limit of its cgroup), or as much as it likes. `ackpace-host \
            tune --budget 10MiB` divides 10 MiB of what all of them hold in flight and unsent. Does the fast one get more where memory is \
            short, and how much smaller are the queues where it is not?",
        source: "SSBT, section 4",
        contenders: vec![
            nginx.clone().tuned("nginx tuned", &["--budget", "10MiB"]),
            nginx,
        ],
        subject: "nginx tuned",
        sweep: vec![Axis::named("memory", "memory", &MEMORY)],
        pace: Pace::of([5, 2], 14.0, [10.0, 8.0]), // estimates are of some ten seconds
        scenario: tune_scenario,
        judged: "
            goodput_bytes_per_s@fast / nginx >= 1.5 at memory=0
            goodput_bytes_per_s@fast / nginx at memory=1
            goodput_bytes_per_s / nginx >= .98 at memory=1
            send_queue_mean_bytes / nginx <= .5 at memory=1
            send_queue_mean_bytes / nginx at memory=0
            cpu_s_per_gb / nginx
            voluntary_per_gb / nginx
            jain / nginx",
        figures: Vec::new(),
    }
}

fn tune_scenario(at: &Point) -> Scenario {
    /// In the cgroup of the server; what the slow ones' sockets hold without `tune` is more.
    const SHORT_BYTES: u64 = 16 << 20;
    const SLOW: u32 = 200;
    let (fast, slow) = (range(0, 1), range(1, SLOW));
    let slow_link = PathSpec {
        // A queue as home routers have: the kernel fills it.
        down: LinkSpec::limited(1.0, 1000.0, 15.0),
        ..link("slow", &slow, 1.0)
    };
    let topology = coarse(vec![link("fast", &fast, 200.0), slow_link]);
    let classes = vec![linked("fast", 1, &fast), linked("slow", SLOW, &slow)];
    let mut place = Place::wan(&[BIG, PROBE], topology);
    if at.count("memory") == 0 {
        place.memory_limit_bytes = Some(SHORT_BYTES);
        place.sockets_limit_bytes = Some(SHORT_BYTES);
    }
    Scenario::swarm(place, classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_an_address_of_its_own_path() {
        assert_eq!(range(0, 100), "10.1.0.1-10.1.0.100");
        assert_eq!(range(1, 1000), "10.5.0.1-10.5.3.232");
        assert_eq!(lossy(299, 300).clients, "10.1.1.44");
    }

    #[test]
    fn rates_lie_between_their_bounds_and_most_are_slow() {
        let rate = |nth| lossy(nth, 300).down.rate_mbit_per_s.unwrap();
        assert!((1.0..1.01).contains(&rate(0)) && (40.0..50.0).contains(&rate(299)));
        assert!((1.7..1.8).contains(&rate(150)), "{}", rate(150));
    }
}
