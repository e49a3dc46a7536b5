//! TPF's figures of conventional servers: the CPU time they take, what they leave pending, and their disk queues.

use super::disk::{frame as disk_frame, place};
use super::network::{BIG, coarse, downloads, link, linked, range};
use super::presets;
use crate::corpus::{PROBE, Set};
use crate::experiment::{Experiment, Pace, Scenario};
use crate::peers::Contender;
use crate::place::{Disk, Place};
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Objects};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

/// A neighbour on the server's core: how much of the core does sending leave to it?
pub fn fig13() -> Experiment {
    const LINK_MBIT_PER_S: f64 = 20.0;
    let rates = [100.0, 200.0, 300.0, 400.0, 1000.0, 2000.0];
    Experiment {
        name: "fig13",
        title: "A matrix multiplication on the server's core",
        asks: "Downloads at 100 to 400 Mbit/s in all, as in the paper, and, since cores have become faster, at 1 and 2 \
            Gbit/s, each client behind a link of 20 Mbit/s. Beside the server, on its core and with its niceness, a \
            process multiplies matrices. How much of the multiplications that the core could make does each server \
            leave it? (The core by itself makes more or fewer from second to second: judged is the share.) The paper's \
            sending in softirqs took 21 to 40 % of them until a daemon did it; here the \
            kernel sends in softirqs for every server. (The share \"disturbed\" is the multiplication's here.)",
        source: "TPF, Figure 13",
        contenders: presets(&["ackpace", "nginx", "lighttpd"]),
        subject: "",
        sweep: vec![
            Axis::new("mbit_per_s", "downloads Mbit/s", &rates)
                .quick(&[100.0, 400.0, 2000.0])
                .logarithmic(),
        ],
        // The core is slow for seconds at a time: many short rounds give a better estimate than few long ones.
        pace: Pace::of([20, 2], 4.0, [3.0, 3.0]),
        scenario: |at| {
            let clients = (at.get("mbit_per_s") / LINK_MBIT_PER_S) as u32;
            let source = range(0, clients);
            let topology = coarse(vec![link("film", &source, LINK_MBIT_PER_S)]);
            let place = Place::wan(&[BIG, PROBE], topology);
            Scenario::swarm(place, vec![linked("film", clients, &source)])
                .with(|swarm| swarm.multiplies = true)
        },
        // 1.0 to the precision of the target: at the slowest rates no server takes anything from the neighbour.
        judged: "
            multiplications_left_share / nginx >= .995
            multiplications_left_share / lighttpd
            multiplications_per_s / nginx, lighttpd
            goodput_bytes_per_s / nginx, lighttpd
            cpu_s_per_gb / nginx, lighttpd
            switches_per_s / nginx, lighttpd",
        figures: Vec::new(),
    }
}

/// The pending buffer (PB): what a conventional server has written and TCP has not yet sent.
pub fn pending() -> Experiment {
    let conventional = Contender::preset("nginx").with("conventional", &[]);
    // Linux doubles the requested size: 128 KB with bookkeeping.
    let fixed = Contender::preset("nginx").with("fixed buffer", &["listen sndbuf=64k"]);
    let rtts = [10.0, 50.0, 100.0, 200.0, 400.0];
    let rates = [200.0, 1000.0, 5000.0, 10_000.0];
    Experiment {
        name: "pending",
        title: "The pending buffer over rate and round trip",
        asks: "One client downloads through a link of .2, 1, 5 or 10 Mbit/s and a round trip of 10 to 400 ms. How much has \
            the server written that TCP has not yet sent (SIOCOUTQNSD)? The paper's kernel let the send buffer grow \
            with the window, to twice of it and to 128 KB at most, so that half a buffer was pending and more where rate and \
            round trip are greater: \"conventional\" here. Where a server sets SO_SNDBUF to 128 KB, what is pending is what \
            the flight leaves of it, and falls. ackpace is woken by the bytes unsent and holds a time of its client's rate.",
        source: "TPF, Figure 6",
        contenders: vec![conventional, fixed, Contender::preset("ackpace")],
        subject: "ackpace",
        sweep: vec![
            Axis::new("rtt_ms", "round trip ms", &rtts).quick(&[10.0, 100.0, 400.0]),
            Axis::new("rate_kbit", "link kbit/s", &rates).quick(&[200.0, 10_000.0]),
        ],
        pace: Pace::of([3, 2], 6.0, [3.0, 2.0]),
        scenario: pending_scenario,
        judged: "
            unsent_per_connection_bytes / conventional, fixed buffer
            send_queue_mean_bytes / conventional, fixed buffer
            goodput_bytes_per_s / conventional",
        figures: Vec::new(),
    }
}

fn pending_scenario(at: &Point) -> Scenario {
    let (rate_kbit, rtt_ms) = (at.get("rate_kbit"), at.get("rtt_ms"));
    // What the link carries in a round trip, so that the window is about twice that, and eight packets at least. A
    // queue of fixed duration would determine the window regardless of the round trip.
    let queue_bytes = ((rate_kbit / 8.0 * rtt_ms) as u64).max(12_000);
    let path = PathSpec {
        down: LinkSpec {
            rate_mbit_per_s: Some(rate_kbit / 1000.0),
            queue_bytes: Some(queue_bytes),
            ..LinkSpec::delay(rtt_ms / 2.0)
        },
        up: LinkSpec::delay(rtt_ms / 2.0),
        ..PathSpec::new("client", "10.1.0.1")
    };
    let class = Class {
        source: Some("10.1.0.1".into()),
        // The window: the maximum without window scaling, as was common then. It bounds the flight to half of the
        // send buffer, as in the paper; today's kernel would otherwise send all of the buffer.
        receive_buffer_bytes: Some(64 << 10),
        ..downloads("client", 1)
    };
    let topology = Topology {
        // Maximum of tcp_wmem in the paper's kernel (Linux 2.4): 90 segments.
        send_buffer_max_bytes: Some(128 << 10),
        path: vec![path],
        ..Topology::default()
    };
    Scenario::swarm(Place::wan(&[BIG], topology), vec![class])
}

/// Films of clients on the same machine that download at full speed.
fn at_full_speed(name: &str, clients: u32, objects: Objects) -> Class {
    let object = Objects {
        len_bytes: Some(FILM_LEN_BYTES),
        ..objects
    };
    Class::new(name, clients, object)
}

const FILM_LEN_BYTES: u64 = 256 << 20;
const CONNECTIONS: [f64; 5] = [10.0, 50.0, 100.0, 150.0, 200.0];
/// A film for each of the clients.
const FILM: Set = Set::files("film", 201, FILM_LEN_BYTES);

/// The disk queue of a conventional server, and how long its read data stays in memory.
pub fn disk_queue() -> Experiment {
    let ours = Contender::preset("ackpace").with("ackpace", &["--memory-max", "50%"]);
    Experiment {
        asks: "10 to 200 clients each download a film of their own at full speed from a hard disk of 2003. A server with a process for each connection \
            lets the kernel read ahead for all of them at once: requests pile up before the disk, and what was read stays \
            in memory until it is pushed out (256 MB here). Both is work that is lost when its client leaves.",
        source: "TPF, Figure 9",
        contenders: [presets(&["apache-prefork", "nginx-aio"]), vec![ours]].concat(),
        subject: "ackpace",
        sweep: vec![
            Axis::new("connections", "connections", &CONNECTIONS).quick(&[10.0, 100.0, 200.0]),
        ],
        pace: Pace::of([3, 1], 6.0, [6.0, 5.0]),
        judged: "
            disk_queue_mean / apache-prefork, nginx-aio
            page_residence_s / apache-prefork, nginx-aio
            goodput_bytes_per_s / apache-prefork, nginx-aio
            disk_again_bytes / apache-prefork, nginx-aio
            disk_read_mean_bytes / apache-prefork, nginx-aio",
        ..disk_frame(
            "disk-queue",
            "Disk queue and page residence of conventional servers",
            |at| {
                let clients = at.count("connections") as u32;
                let objects = Objects::dealt("film", 201, 1);
                let class = at_full_speed("film", clients, objects);
                Scenario::swarm(place(&[FILM], 256), vec![class])
            },
        )
    }
}

/// Locality and connections: from a server bound by its disk to one bound by its CPU.
pub fn locality() -> Experiment {
    let localities = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0];
    Experiment {
        asks: "10 to 200 clients download films at full speed from a server with a hard disk of 2003 (seeks, 62 to 38 MB/s) \
            and 1 GB of memory. At a locality of 20 %, a fifth of them get the same film. Without locality the disk is \
            the limit, and how a server reads decides; with it the CPU is, and how often it switches counts.",
        source: "TPF, Figure 11",
        contenders: presets(&["ackpace", "nginx", "nginx-aio", "apache-prefork"]),
        sweep: vec![
            Axis::new("connections", "connections", &CONNECTIONS).quick(&[10.0, 100.0, 200.0]),
            Axis::new("locality", "locality %", &localities).quick(&[0.0, 100.0]),
        ],
        pace: Pace::of([3, 1], 3.0, [5.0, 4.0]),
        judged: "
            goodput_bytes_per_s / nginx, nginx-aio, apache-prefork
            switches_per_s / nginx, nginx-aio, apache-prefork
            server_core_share / nginx, nginx-aio, apache-prefork
            cpu_s_per_gb / nginx, nginx-aio, apache-prefork
            disk_busy_share / nginx, nginx-aio, apache-prefork",
        ..disk_frame(
            "locality",
            "Downloads by locality and connections, from a hard disk",
            |at| {
                let clients = at.count("connections") as u32;
                let shared = (f64::from(clients) * at.get("locality") / 100.0).round() as u32;
                let film = Objects::dealt("film", 201, 1);
                let mut classes = vec![
                    at_full_speed("shared", shared, Objects::one("shared")),
                    at_full_speed("film", clients - shared, film),
                ];
                classes.retain(|class| class.clients > 0);
                let mut place = place(&[Set::files("shared", 1, FILM_LEN_BYTES), FILM], 1024);
                if let Disk::Emulated { cached, .. } = &mut place.disk {
                    *cached = &["shared"]; // as after its first reader
                }
                Scenario::swarm(place, classes)
            },
        )
    }
}

/// Distribution of the CPU time when everything is in memory: the paper's table as figures.
pub fn profile() -> Experiment {
    const CLIENTS: &str = "10.1.0.1-10.1.0.200";
    Experiment {
        name: "profile",
        title: "Where the CPU's time goes: 200 clients, all in memory",
        asks: "200 clients get a cached file through links of 5 Mbit/s each, a gigabit together. What does the server's core \
            do, by the kernel's functions: copying, scheduling and wake-ups, memory, TCP, IP? The paper found a third \
            of the time in copying, memory and scheduling, and the server itself in .3 %. In a virtual machine without \
            counters, perf samples by a timer, and sees nothing where interrupts are off.",
        source: "TPF, Figure 12",
        contenders: presets(&["ackpace", "nginx", "apache-prefork"]),
        subject: "",
        sweep: Vec::new(),
        pace: Pace::of([3, 1], 4.0, [5.0, 3.0]),
        scenario: |_| {
            let topology = coarse(vec![link("client", CLIENTS, 5.0)]);
            let class = Class {
                receive_at_least_bytes: None,
                ..linked("client", 200, CLIENTS)
            };
            Scenario::swarm(Place::wan(&[BIG], topology), vec![class])
                .with(|swarm| swarm.profile = true)
        },
        judged: "
            cpu_s_per_gb / nginx, apache-prefork
            profile_copy_share / nginx, apache-prefork
            profile_scheduling_share / nginx, apache-prefork
            profile_memory_share / nginx, apache-prefork
            profile_tcp_share / nginx, apache-prefork
            profile_ip_share / nginx, apache-prefork
            profile_program_share / nginx, apache-prefork",
        figures: Vec::new(),
    }
}
