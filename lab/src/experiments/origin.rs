//! Gateways before an HTTP origin: what a hit costs, what is fetched and for whom, and how long a miss takes.

use super::disk::{behind, frame, on, own_paths, viewers};
use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Pace, Scenario, curves};
use crate::peers::Contender;
use crate::place::{Disk, Place};
use crate::sweep::{Axis, Point};
use crate::workloads::{Downloads, Event, TimedEvent, Workload};
use ackpace_lab_swarm::workload::{Class, Objects, Part, Start};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};
use std::net::Ipv4Addr;

/// Where the origin is if it is far away: a path of its own, whose round trip is 10 ms.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const FAR_ONE_WAY_MS: f64 = 5.0;
/// Address of clients with a wire of their own.
pub(super) const CLIENT: &str = "10.8.0.1";

/// Ours with so much memory for payload.
fn gateway(name: &str, cache: &str, options: &[&str]) -> Contender {
    let cache = ["--cache-memory", cache];
    Contender::preset("gateway").with(name, &[&cache[..], options].concat())
}

/// nginx with a cache of this size in a folder of a tmpfs ("memory") or of a disk ("disk").
fn nginx(size: &str, folder: &str) -> Contender {
    let path = format!(
        "proxy_cache_path @SCRATCH@/cache-{folder} levels=1:2 keys_zone=origin:16m max_size={size} inactive=1h use_temp_path=off"
    );
    Contender::preset("nginx-slice").with("nginx-slice", &[&path])
}

fn varnish(size: &str) -> Contender {
    let storage = format!("malloc,{size}");
    Contender::preset("varnish").with("varnish", &["-s", &storage])
}

/// A place whose origin is on the same machine.
fn near(place: Place) -> Place {
    Place {
        origin: Some(Ipv4Addr::LOCALHOST),
        ..place
    }
}

/// The same with a disk under the origin that has content for any size.
fn near_flash(files: &[Set]) -> Place {
    Place {
        disk: Disk::Emulated {
            profile: "flash",
            read_ahead_kb: 128,
            cached: &[],
        },
        ..near(Place::memory(files))
    }
}

/// Clients on paths without limits, and an origin 10 ms away.
fn far(place: Place, mut classes: Vec<Class>) -> Scenario {
    let mut path = own_paths(&mut classes);
    path.push(origin_path());
    let place = Place {
        origin: Some(FAR),
        ..place
    };
    behind(path, place, classes)
}

fn origin_path() -> PathSpec {
    PathSpec {
        down: LinkSpec::delay(FAR_ONE_WAY_MS),
        up: LinkSpec::delay(FAR_ONE_WAY_MS),
        ..PathSpec::new("origin", &FAR.to_string())
    }
}

const HITS: [Set; 3] = [
    Set::files("hit-10k", 200, 10_000),
    Set::files("hit-1m", 100, 1_000_000),
    Set::files("hit-100m", 4, 100_000_000),
];

/// What a hit costs over a file of our own.
pub fn hits() -> Experiment {
    let objects = ["10 KB", "1 MB", "100 MB"];
    Experiment {
        name: "origin",
        title: "Hits of a gateway",
        asks: "Objects of 10 KB, 1 MB and 100 MB of an origin are downloaded through a gateway over loopback, again and again, by 1, 20 and 200 keep-alive \
            connections. After the warm-up the gateway has them all. What does a byte cost over one of our own cached file, and over a hit of nginx with \
            its slice module, whose cache is a tmpfs? Ours takes part a second time as it would be if it copied payload.",
        source: "",
        contenders: vec![
            Contender::preset("ackpace").with("own files", &[]),
            gateway("gateway", "1G", &[]),
            gateway("copying", "1G", &["--compare", "payload=copy"]),
            nginx("2g", "memory"),
            varnish("1G"),
        ],
        subject: "gateway",
        sweep: vec![
            Axis::named("object", "object", &objects),
            Axis::new("connections", "connections", &[1.0, 20.0, 200.0]).logarithmic(),
        ],
        // The first 200 downloads of 100 MB take four seconds; from then on all is cached.
        pace: Pace::of([5, 3], 6.0, [2.5, 1.0]),
        scenario: |at| {
            let of = HITS[at.count("object")];
            Scenario {
                place: near(Place::memory(&[of])),
                workload: Workload::Downloads(Downloads {
                    of,
                    connections: at.count("connections"),
                    visitor: None,
                }),
            }
        },
        judged: "
            goodput_bytes_per_s / own files >= .95 at object=1|2
            cpu_s_per_gb / own files <= 1.1 at object=1|2
            goodput_bytes_per_s / nginx-slice >= 1 at object=1|2
            cpu_s_per_gb / nginx-slice <= 1.05 at object=1|2
            goodput_bytes_per_s / copying, varnish at object=1|2
            cpu_s_per_gb / copying, varnish at object=1|2
            requests_per_s / own files, copying, nginx-slice, varnish at object=0
            cpu_us_per_request / own files, copying, nginx-slice, varnish at object=0
            origin_bytes_per_s sum <= 0
            memory_over_fetched max <= 1.15 at object=2",
        figures: Vec::new(),
    }
}

/// Rates of the unequal crowd, ten clients each: from 1 to 50 Mbit/s by equal factors.
const RATES: [(&str, u64); 10] = [
    ("r1", 1_000_000),
    ("r1.5", 1_540_000),
    ("r2.4", 2_390_000),
    ("r3.7", 3_680_000),
    ("r5.7", 5_690_000),
    ("r8.8", 8_790_000),
    ("r14", 13_570_000),
    ("r21", 20_960_000),
    ("r32", 32_370_000),
    ("r50", 50_000_000),
];
const CROWDED: Set = Set::files("crowded", 1, 1_000_000_000);

/// Many who want one object that nobody has wanted before.
pub fn crowd() -> Experiment {
    let rates = ["80 Mbit/s each", "1 to 50 Mbit/s"];
    Experiment {
        asks: "100 clients begin within a second to download one cold object of 1 GB, through a gateway with 256 MB for payload. At equal rates they stay \
            together, and each byte need be fetched once. At rates from 1 to 50 Mbit/s they part, and what the fastest had is gone when the slowest come.",
        contenders: vec![
            gateway("gateway", "256M", &[]),
            nginx("256m", "memory"),
            varnish("256M"),
        ],
        subject: "gateway",
        sweep: vec![Axis::named("rates", "rates", &rates)],
        pace: Pace::of([1, 1], 0.5, [160.0, 20.0]),
        judged: "
            origin_amplification max <= 1.02 at rates=0
            origin_amplification max at rates=1
            origin_amplification / nginx-slice, varnish
            demand_met_mean >= .97 at rates=0
            demand_met_mean@r50 at rates=1
            demand_met_mean@r1 at rates=1
            jain_window / nginx-slice, varnish at rates=0
            cpu_s_per_gb / nginx-slice, varnish
            memory_peak_bytes max",
        figures: curves(&["goodput_bytes_per_s"]),
        ..frame(
            "origin-crowd",
            "100 clients of one cold object through a gateway",
            crowd_scenario,
        )
    }
}

fn crowd_scenario(at: &Point) -> Scenario {
    let class = |name: &str, clients, bits_per_s| Class {
        rate_bits_per_s: Some(bits_per_s),
        start: Start::over(1.0),
        requests_each: Some(1),
        ..Class::new(name, clients, Objects::one("crowded"))
    };
    let classes = match at.count("rates") {
        0 => vec![class("all", 100, 80_000_000)],
        _ => RATES.map(|(name, rate)| class(name, 10, rate)).to_vec(),
    };
    Scenario::swarm(near(Place::memory(&[CROWDED])), classes)
        .with(|swarm| (swarm.until_done, swarm.curves) = (true, true))
}

const SPARSE: Set = Set::files("sparse", 1, 10 << 30);
const NEW: Set = Set::files("new", 20_000, 16 << 10);
const KNOWN: Set = Set::files("known", 1, 1 << 30);

/// What a miss takes, and what it brings.
pub fn miss() -> Experiment {
    let asked = [
        "64 KiB ranges of 10 GB, near",
        "new objects, 10 ms away",
        "64 KiB ranges, 10 ms away",
    ];
    Experiment {
        asks: "Twenty clients ask, again and again, for 64 KiB at a random place of an object of 10 GB, as fast as they are answered: how much is fetched for a \
            byte that was asked for? Then for objects of 16 KB that nobody has asked for before, or for 64 KiB of an object that is known, 100 times a second, \
            of an origin with a round trip of 10 ms: how much later than the origin's own is the first byte?",
        contenders: vec![
            gateway("gateway", "256M", &[]),
            nginx("256m", "memory"),
            varnish("256M"),
        ],
        subject: "gateway",
        sweep: vec![Axis::named("asked", "asked", &asked)],
        pace: Pace::of([3, 1], 2.0, [15.0, 5.0]),
        judged: "
            origin_over_goodput max <= 2 at asked=0
            ttfb_over_origin_p50_us <= 1 at asked=1|2
            ttfb_over_origin_p99_us <= 3 at asked=1|2
            origin_over_goodput / nginx-slice, varnish
            ttfb_p50_us / nginx-slice, varnish
            ttfb_p99_us / nginx-slice, varnish
            cpu_us_per_request / nginx-slice, varnish",
        ..frame("origin-miss", "Misses of a gateway", |at| {
            match at.count("asked") {
                0 => {
                    let classes = vec![ranges(20, "sparse", 10 << 30, 64 << 10)];
                    Scenario::swarm(near_flash(&[SPARSE]), classes)
                }
                1 => far_misses(NEW, Class::new("all", 20, Objects::any("new", 20_000))),
                _ => far_misses(KNOWN, ranges(20, "known", 1 << 30, 64 << 10)),
            }
        })
    }
}

fn ranges(clients: u32, set: &str, object_bytes: u64, len_bytes: u64) -> Class {
    let object = Objects {
        len_bytes: Some(object_bytes),
        ..Objects::one(set)
    };
    Class {
        part: Part::Range { len_bytes },
        ..Class::new("all", clients, object)
    }
}

const WARM: Set = Set::files("warm", 1, 64 << 20);

/// Figures 3 and 4 of the network-centric cache, for HTTP.
pub fn by_length() -> Experiment {
    let asked = ["all hit", "all miss"];
    Experiment {
        asks: "Four clients ask for ranges of 4 to 48 KB at random places, as fast as they are answered: of an object of 64 MB that lies in memory, or of one of \
            10 GB that does not fit. What do goodput and the CPU time of a byte gain if payload is not copied? The paper's clients ask by NFS.",
        source: "network-centric cache, Figures 3 and 4",
        contenders: vec![
            gateway("gateway", "256M", &[]),
            gateway("copying", "256M", &["--compare", "payload=copy"]),
            nginx("512m", "memory"),
        ],
        subject: "gateway",
        sweep: vec![
            Axis::named("asked", "asked", &asked),
            Axis::new(
                "length",
                "length of a range, KB",
                &[4.0, 8.0, 16.0, 32.0, 48.0],
            ),
        ],
        pace: Pace::of([3, 1], 4.0, [4.0, 2.0]),
        judged: "
            goodput_bytes_per_s / copying, nginx-slice
            cpu_s_per_gb / copying, nginx-slice
            cpu_us_per_request / copying, nginx-slice",
        ..frame(
            "origin-ranges",
            "Ranges of 4 to 48 KB through a gateway",
            |at| {
                let len_bytes = (at.count("length") as u64) << 10;
                match at.count("asked") {
                    0 => {
                        let class = ranges(4, "warm", 64 << 20, len_bytes);
                        Scenario::swarm(near(Place::memory(&[WARM])), vec![class])
                    }
                    _ => {
                        let class = ranges(4, "sparse", 10 << 30, len_bytes);
                        Scenario::swarm(near_flash(&[SPARSE]), vec![class])
                    }
                }
            },
        )
    }
}

/// Misses of clients with a wire of their own: only the way to the origin is emulated.
fn far_misses(set: Set, class: Class) -> Scenario {
    let class = Class {
        arrivals_per_s: Some(100.0),
        apart: true,
        source: Some(CLIENT.into()),
        ..class
    };
    let topology = Topology {
        path: vec![origin_path()],
        beside: Some(CLIENT),
        ..Topology::default()
    };
    let place = Place {
        origin: Some(FAR),
        ..Place::memory(&[PROBE, set])
    };
    on(topology, place, vec![class]).with(|swarm| swarm.asks_origin_for = Some(PROBE))
}

/// A film for each client, longer than what it reads in a round.
fn films(name: &'static str, clients: u32) -> Set {
    Set::files(name, clients as usize + 1, 32 << 20)
}

/// Clients that leave: for whom is fetched on?
pub fn reset() -> Experiment {
    Experiment {
        asks: "300 clients of 300 KB/s read a film each through a gateway, of an origin with a round trip of 10 ms. Three seconds into the window 45 of them reset \
            their connections. What is ordered for them later than 5 ms after that? The origin's log tells; it counts what comes to it 11 ms after the resets: \
            an order takes 5, and the log has whole ms.",
        contenders: vec![
            gateway("gateway", "128M", &[]),
            gateway("cancel off", "128M", &["--compare", "cancel=off"]),
            nginx("256m", "disk"),
        ],
        subject: "gateway",
        pace: Pace::of([3, 1], 10.0, [9.0, 9.0]),
        judged: "
            dead_reads sum <= 0
            dead_reads / cancel off, nginx-slice
            dead_read_bytes / cancel off, nginx-slice
            goodput_bytes_per_s@film / cancel off, nginx-slice",
        figures: curves(&["goodput_bytes_per_s@film"]),
        ..frame(
            "origin-reset",
            "45 of 300 clients of a gateway reset their connections",
            |_| {
                let class = |name, clients| viewers(name, clients, 2_400_000);
                let place = near_flash(&[films("film", 255), films("leaver", 45)]);
                let event = TimedEvent {
                    after_s: 3.0,
                    event: Event::Leave {
                        class: "leaver".into(),
                    },
                };
                far(place, vec![class("film", 255), class("leaver", 45)])
                    .with(|swarm| (swarm.events, swarm.curves) = (vec![event], true))
            },
        )
    }
}

/// The mix of Figure 14 with an origin in place of the disk.
pub fn mix() -> Experiment {
    // As in the original. The slab is as small as may be: no two clients want the same bytes.
    let small = [
        "--memory-max",
        "90%",
        "--connections-max",
        "600",
        "--object-cache",
        "0",
        "--drain-timeout",
        "1s",
        "--prefetch-memory",
        "50%",
    ];
    Experiment {
        asks: "180 clients take films at 1 Mbit/s and 300 at 200 kbit/s, each its own, through a gateway with 128 MB, of an origin with a round trip of 10 ms. How much \
            of its demand does each class get, and its worst-off client?",
        source: "TPF, Figure 14",
        contenders: vec![
            gateway("gateway", "16MiB", &small),
            gateway(
                "as Linux",
                "16MiB",
                &[&small[..], &["--compare", "prefetch=fixed"]].concat(),
            ),
            nginx("1g", "disk"),
        ],
        subject: "gateway",
        pace: Pace::of([3, 1], 12.0, [20.0, 8.0]),
        judged: "
            demand_met_mean@high >= .97
            demand_met_min@high >= .9
            demand_met_mean@low
            demand_met_mean@high / as Linux, nginx-slice
            demand_met_min@high / as Linux, nginx-slice
            demand_met_mean@low / as Linux, nginx-slice
            demand_met_min@low / as Linux, nginx-slice
            origin_over_goodput / as Linux, nginx-slice
            cpu_s_per_gb / as Linux, nginx-slice
            memory_peak_bytes max <= 120",
        figures: Vec::new(),
        ..frame(
            "origin-mix",
            "1 Mbit/s and 200 kbit/s through a gateway",
            |_| {
                let place = Place {
                    memory_limit_bytes: Some(128 << 20),
                    ..near_flash(&[films("high", 180), films("low", 300)])
                };
                let classes = vec![
                    viewers("high", 180, 1_000_000),
                    viewers("low", 300, 200_000),
                ];
                far(place, classes)
            },
        )
    }
}
