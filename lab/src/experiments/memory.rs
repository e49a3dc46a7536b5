//! Files in memory, or behind a throttled device, and clients on the same machine.

use super::network::BIG;
use super::presets;
use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Pace, Scenario};
use crate::place::{Disk, Place};
use crate::sweep::{Axis, Point};
use crate::workloads::{Downloads, Workload};
use ackpace_lab_swarm::workload::{Class, Objects};

/// Downloads at full speed.
fn at_full_speed(place: Place, of: Set, connections: usize, visitor: Option<Set>) -> Scenario {
    Scenario {
        place,
        workload: Workload::Downloads(Downloads {
            of,
            connections,
            visitor,
        }),
    }
}

/// The cost of a server when nothing stands between memory and socket.
pub fn cached() -> Experiment {
    Experiment {
        name: "cached",
        title: "A cached file at full speed",
        asks: "A 384 MB file that is in memory is downloaded over loopback, again and again, by 1, 20 and 200 \
            keep-alive connections. The kernel does nearly all of the work (sendfile), so parity is the aim: a server \
            that is slower here does something between memory and socket that it need not do.",
        source: "",
        contenders: presets(&["ackpace", "nginx", "lighttpd"]),
        subject: "",
        sweep: vec![Axis::new("connections", "connections", &[1.0, 20.0, 200.0]).logarithmic()],
        pace: Pace::of([11, 3], 0.5, [2.5, 1.0]),
        scenario: |at| at_full_speed(Place::memory(&[BIG]), BIG, at.count("connections"), None),
        judged: "
            goodput_bytes_per_s / nginx >= .98 all .95
            cpu_s_per_gb / nginx <= 1.03 all 1.06
            goodput_bytes_per_s / lighttpd
            cpu_s_per_gb / lighttpd
            voluntary_per_gb / nginx, lighttpd
            jain / nginx, lighttpd",
        figures: Vec::new(),
    }
}

/// One file for each download, longer than it can download in the longest window: no byte is read twice.
const COLD: Set = Set::files("cold", 20, 32 << 20);

/// A server that reads from the disk in its event loop makes a visitor wait for other clients' reads.
pub fn cold_stall() -> Experiment {
    Experiment {
        name: "cold-stall",
        title: "A visitor beside downloads from a slow disk",
        asks: "Twenty downloads wait for a device that gives 52 MB/s (throttled by cgroup, without seeks). Beside them \
            a visitor asks for a 4 KB file that is in memory, again 2 ms after each answer. A server that reads the \
            disk in the loop that answers everybody lets the visitor wait for strangers' reads.",
        source: "",
        contenders: presets(&["ackpace", "nginx", "nginx-aio"]),
        subject: "",
        sweep: Vec::new(),
        pace: Pace::of([5, 3], 0.5, [6.0, 2.0]),
        scenario: |_| {
            let disk = Disk::Throttled {
                read_bytes_per_s: 52_000_000,
                read_ahead_kb: 128, // the kernel's default for a disk
                cached: &["probe"],
            };
            let place = Place {
                disk,
                ..Place::memory(&[PROBE, COLD])
            };
            at_full_speed(place, COLD, 20, Some(PROBE))
        },
        judged: "
            probe_p50_us <= .2
            probe_p99_us <= 1
            probe_p50_us / nginx, nginx-aio
            probe_p99_us / nginx, nginx-aio
            probe_max_us / nginx, nginx-aio
            goodput_bytes_per_s / nginx, nginx-aio
            memory_peak_bytes / nginx, nginx-aio",
        figures: Vec::new(),
    }
}

const SMALL: Set = Set::files("small", 100, 4 << 10);
const MEDIUM: Set = Set::files("medium", 100, 32 << 10);
/// About a quarter of the capacity of the slowest peer on one core: no server is at its limit, and neither are
/// the clients, which check every byte.
const OFFERED_PER_S: f64 = 30_000.0;

/// The cost of a request with a negligible body.
pub fn small() -> Experiment {
    const ASKED: [&str; 3] = [
        "4 KB, as fast as answered",
        "4 KB, 30,000/s offered",
        "32 KB, as fast as answered",
    ];
    Experiment {
        name: "small",
        title: "Small files on keep-alive connections",
        asks: "One hundred files of 4 KB, or of 32 KB, that are in memory, asked for on 16 and 256 keep-alive connections. \
            Where each connection asks again as soon as it was answered: how many requests a second does one core give? \
            Where 30,000 requests a second are offered, at random times and whatever the answers do: what does one \
            cost? nginx takes part as it is shipped, and with open_file_cache, which leaves a file open between requests.",
        source: "",
        contenders: presets(&["ackpace", "nginx", "nginx-cache", "lighttpd", "h2o"]),
        subject: "",
        sweep: vec![
            Axis::named("asked", "asked", &ASKED).quick(&[0.0, 1.0]),
            Axis::new("connections", "connections", &[16.0, 256.0]).logarithmic(),
        ],
        pace: Pace::of([7, 3], 0.5, [2.5, 1.0]),
        scenario: small_scenario,
        judged: "
            requests_per_s / nginx >= 1.3 at asked=0
            requests_per_s / nginx-cache, lighttpd, h2o at asked=0
            cpu_us_per_request / nginx <= .77 at asked=1
            cpu_us_per_request / nginx-cache at asked=1
            cpu_us_per_request / best of lighttpd, h2o <= 1 at asked=1
            requests_per_s / nginx, nginx-cache, lighttpd, h2o at asked=2
            cpu_us_per_request / nginx, nginx-cache, lighttpd, h2o at asked=0|2
            load_core_share max",
        figures: Vec::new(),
    }
}

fn small_scenario(at: &Point) -> Scenario {
    let connections = at.count("connections");
    let of = match at.count("asked") {
        // Requests arrive at random times, as from independent users.
        1 => {
            let class = Class {
                arrivals_per_s: Some(OFFERED_PER_S),
                ..Class::new("all", connections as u32, Objects::any("small", 100))
            };
            return Scenario::swarm(Place::memory(&[SMALL]), vec![class]);
        }
        0 => SMALL,
        _ => MEDIUM,
    };
    at_full_speed(Place::memory(&[of]), of, connections, None)
}
