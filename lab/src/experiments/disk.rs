//! Films on the outer half of a hard disk, and servers with little memory: TPF's disk side.

use super::network::BUFFERS;
use super::presets;
use crate::corpus::Set;
use crate::experiment::{Experiment, Pace, Scenario};
use crate::peers::Contender;
use crate::place::{Disk, Network, Place, Receive};
use crate::sweep::{Axis, Point};
use ackpace_lab_swarm::workload::{Class, Kind, Objects, Part, Start};
use ackpace_lab_wan::Topology;
use ackpace_lab_wan::topology::PathSpec;

/// A hard disk of the papers' time.
const PROFILE: &str = "10k-scsi-2003";
/// Films fill the outer half of it, which delivers 56 MB/s on average.
const SPAN_BYTES: u64 = 38 << 30;
/// The kernel's usual read-ahead, and the default of a rotational loop device: the better result counts.
const READ_AHEAD_KB: u64 = 128;
const READ_AHEAD_LONG_KB: u64 = 2560;
/// The distributions' default I/O scheduler for rotating disks.
const ELEVATOR: &str = "mq-deadline";

/// nginx with its three read strategies.
pub const PLAIN: [&str; 3] = ["nginx", "nginx-aio", "nginx-directio"];

/// [`PLAIN`] beside ackpace at one point.
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
        contenders: [presets(&PLAIN), vec![ours("ackpace", &[])]].concat(),
        subject: "",
        sweep: Vec::new(),
        pace: Pace::of([3, 1], 10.0, [60.0, 10.0]),
        scenario,
        judged: "",
        figures: Vec::new(),
    }
}

/// nginx with its possible settings for a slow disk. The reads of `nginx-directio` bypass the read-ahead.
pub fn nginx() -> Vec<Contender> {
    let mut all = Vec::new();
    for name in ["nginx", "nginx-aio"] {
        let preset = Contender::preset(name);
        let long = format!("{name} {READ_AHEAD_LONG_KB} KB");
        all.push(preset.clone());
        all.push(preset.reading_ahead(&long, READ_AHEAD_LONG_KB));
    }
    all.push(Contender::preset("nginx-directio"));
    all
}

/// ackpace with a memory share that fits a small cgroup, and these options.
pub fn ours(name: &str, options: &[&str]) -> Contender {
    ours_with_pool("67%", name, options)
}

/// The same with `part` of its memory for reading ahead.
fn ours_with_pool(part: &str, name: &str, options: &[&str]) -> Contender {
    let share = [
        "--memory-max",
        "90%", // the rest is for memory that the kernel charges to the group (sockets, tables, code)
        "--connections-max",
        "600",
        "--object-cache",
        "0",
        "--listing=false",
        // Clients of a slow disk may disappear silently; other servers also stop at once.
        "--drain-timeout",
        "1s",
        "--prefetch-memory",
        part,
    ];
    Contender::preset("ackpace").with(name, &[&share[..], options].concat())
}

/// [`ours`] with designs of others in place of its own.
pub fn comparing(name: &str, words: &str) -> Contender {
    ours(name, &["--compare", words])
}

/// ackpace as a conventional server, then with one change after the other: ACK-clocked sending, reading by
/// rate, reading in the order of places, and reads past the page cache for files with one reader. Dropping
/// reads for departed clients comes last and completes the default.
const LADDER: [(&str, &str); 5] = [
    (
        "as Linux",
        "send=eager,read=page-cache,prefetch=fixed,cancel=off,order=arrival",
    ),
    (
        "+ IDSR",
        "read=page-cache,prefetch=fixed,cancel=off,order=arrival",
    ),
    ("+ TDAP", "read=page-cache,cancel=off,order=arrival"),
    ("+ C-LOOK", "read=page-cache,cancel=off"),
    ("+ direct", "cancel=off"),
];

fn ladder() -> Vec<Contender> {
    let steps = LADDER.iter().map(|(name, words)| comparing(name, words));
    steps.chain([ours("ackpace", &[])]).collect()
}

/// Contenders that differ in who orders the reads, all through the page cache: nobody, the kernel's I/O
/// scheduler, or the server. ackpace takes part as a conventional server and with reading by rate. nginx takes
/// part with its threads, whose reads all wait in the kernel.
fn orders() -> Vec<Contender> {
    let mut all = Vec::new();
    for (name, words) in [
        (
            "as Linux",
            "send=eager,read=page-cache,prefetch=fixed,cancel=off",
        ),
        ("TDAP", "read=page-cache,cancel=off"),
    ] {
        let named = |who: &str| format!("{name} {who}");
        let arrival = comparing(&named("as they come"), &format!("{words},order=arrival"));
        all.push(arrival.clone());
        all.push(arrival.behind_elevator(&named("by the kernel"), ELEVATOR));
        all.push(comparing(&named("by C-LOOK"), words));
    }
    let threads = Contender::preset("nginx-aio");
    all.push(threads.clone());
    all.push(threads.behind_elevator("nginx-aio by the kernel", ELEVATOR));
    all
}

/// A film for each of `clients` clients: client k gets number k + 1. The films take as much of the disk's span as if
/// there were `parts` of them.
pub fn films(name: &'static str, clients: u32, parts: u32) -> Set {
    let len_bytes = (SPAN_BYTES / u64::from(parts)) >> 20 << 20;
    Set::files(name, clients as usize + 1, len_bytes)
}

/// Clients that each read their own film of this name, at a rate; they begin within four seconds, since a simultaneous
/// start in lockstep would flatter every server.
pub fn viewers(name: &str, clients: u32, bits_per_s: u64) -> Class {
    Class {
        rate_bits_per_s: Some(bits_per_s),
        start: Start::over(4.0),
        ..Class::new(name, clients, Objects::own(name, clients))
    }
}

/// `count` films that fill the disk's span, dealt to clients by [`dealt_to`].
pub fn dealt_films(name: &'static str, count: u32) -> Set {
    Set::files(name, count as usize, dealt_len_bytes(count))
}

fn dealt_len_bytes(count: u32) -> u64 {
    (SPAN_BYTES / u64::from(count)) >> 20 << 20
}

/// Clients that read [`dealt_films`] at a rate of their own; `film` is (name, count, number of the first
/// client's film). A client whose film already has a reader begins further on.
pub fn dealt_to(film: (&str, u32, u32), class: Class, part: Part) -> Class {
    let (name, count, first) = film;
    let object = Objects {
        len_bytes: Some(dealt_len_bytes(count)),
        ..Objects::dealt(name, count, first)
    };
    Class {
        kind: Kind::SelfPaced,
        object,
        part,
        ..class
    }
}

/// The disk with these files, and a memory limit for the server.
pub fn place(files: &[Set], memory_mib: u64) -> Place {
    Place {
        disk: Disk::Emulated {
            profile: PROFILE,
            read_ahead_kb: READ_AHEAD_KB,
            cached: &[],
        },
        memory_limit_bytes: Some(memory_mib << 20),
        ..Place::memory(files)
    }
}

/// Clients in a network of their own, on paths without limits. On the loopback, unread data of a client would
/// still be the pages that the server sent, held in memory and charged to the server. A limit of 128 MB would
/// soon be full, and the kernel would kill the server.
pub fn remote(place: Place, mut classes: Vec<Class>) -> Scenario {
    behind(own_paths(&mut classes), place, classes)
}

/// Gives each class a path without limits.
pub fn own_paths(classes: &mut [Class]) -> Vec<PathSpec> {
    let mut path = Vec::new();
    for (net, class) in (1..).zip(classes) {
        let last = class.clients;
        let range = format!("10.{net}.0.1-10.{net}.{}.{}", last / 256, last % 256);
        path.push(PathSpec::new(&class.name, &range));
        class.source = Some(range);
    }
    path
}

/// Clients behind these paths.
pub fn behind(path: Vec<PathSpec>, place: Place, classes: Vec<Class>) -> Scenario {
    let topology = Topology {
        grain_us: 200,
        path,
        ..Topology::default()
    };
    on(topology, place, classes)
}

pub fn on(topology: Topology, mut place: Place, classes: Vec<Class>) -> Scenario {
    place.network = Network::Wan {
        topology,
        receive: Receive::ServerCore,
    };
    Scenario::swarm(place, classes)
}

const HIGH: u32 = 180;
const LOW_MOST: u32 = 300;

/// The paper's mix over the number of slow clients.
pub fn fig14() -> Experiment {
    Experiment {
        asks: "180 clients take films at 1 Mbit/s and 100 to 300 take theirs at 200 kbit/s, each its own, from a hard disk of 2003, \
            by a server with 128 MB. The disk could serve them all if it were read in pieces that fit. How much of its demand does \
            each class get, and its worst-off client? nginx as it may be set up, and ackpace as a conventional server would be \
            (as Linux), with sending by ACKs (+ IDSR), with reading by rate (+ TDAP), in the order of places (+ C-LOOK), past the page cache \
            (+ direct), and with reads dropped for who left, as it is: each step changes one thing.",
        source: "TPF, Figure 14",
        contenders: [nginx(), ladder()].concat(),
        subject: "ackpace",
        sweep: vec![
            Axis::new("low", "clients of 200 kbit/s", &[100.0, 200.0, 300.0]).quick(&[300.0]),
        ],
        pace: Pace::of([3, 1], 12.0, [20.0, 8.0]),
        // nginx at its best must not be better. Clients that get all they ask for get the same from both, up to noise.
        judged: "
            demand_met_mean@high >= .984 at low=300
            demand_met_min@high >= .92 at low=300
            demand_met_mean@low >= .992 at low=300
            memory_peak_bytes max <= 120 at low=300
            demand_met_mean@high / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= .995
            demand_met_mean@low / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= .995
            client_goodput_mean_bytes_per_s@high / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            client_goodput_mean_bytes_per_s@low / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            goodput_bytes_per_s / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            demand_met_min@high / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            disk_reads_per_s / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            disk_read_mean_bytes / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            disk_again_pages_per_s / as Linux, + IDSR, + TDAP, + C-LOOK, + direct",
        ..frame(
            "fig14",
            "1 Mbit/s and 200 kbit/s from one hard disk",
            |at| fig14_scenario(at.count("low") as u32, 1.0),
        )
    }
}

/// The same with more demand than the disk can meet, as in the paper: 30 MB/s become 72.
pub fn fig14_over() -> Experiment {
    Experiment {
        name: "fig14-over",
        title: "The same mix with more demand than the disk can meet",
        asks: "180 clients of 2.4 Mbit/s and 300 of 480 kbit/s: one and a half times what the disk can deliver. The paper's server worked \
            in this range: no client gets its full rate. How much does each class get, and how much does the disk deliver in all?",
        sweep: Vec::new(),
        scenario: |_| fig14_scenario(LOW_MOST, 2.4),
        judged: "
            goodput_bytes_per_s / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= .995
            goodput_bytes_per_s / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            demand_met_mean@high / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            demand_met_mean@low / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            demand_met_min@high / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            disk_reads_per_s / as Linux, + IDSR, + TDAP, + C-LOOK, + direct
            disk_again_pages_per_s / as Linux, + IDSR, + TDAP, + C-LOOK, + direct",
        ..fig14()
    }
}

/// Both demands again, with reads ordered by different parties.
pub fn fig14_order() -> Experiment {
    let demands = ["1.0 of Figure 14", "2.4 of Figure 14"];
    Experiment {
        name: "fig14-order",
        title: "The same mix, and who orders the reads",
        asks: "The mix of Figure 14, with a demand that the disk can meet, and with one and a half times what it can deliver. Reads go to the \
            disk as they arrive, through the kernel's elevator (mq-deadline), or in the order that the server chooses (C-LOOK); all go \
            through the page cache. The server reads ahead as a conventional one does, or by rate. What does each order gain by itself? \
            The drive reorders its own queue in all cases.",
        contenders: orders(),
        subject: "TDAP by C-LOOK",
        sweep: vec![Axis::named("demand", "demand", &demands)],
        scenario: |at| fig14_scenario(LOW_MOST, [1.0, 2.4][at.count("demand")]),
        judged: "
            goodput_bytes_per_s / as Linux as they come, as Linux by the kernel, as Linux by C-LOOK
            goodput_bytes_per_s / TDAP as they come, TDAP by the kernel, nginx-aio, nginx-aio by the kernel
            demand_met_mean@high / as Linux as they come, as Linux by the kernel, as Linux by C-LOOK
            demand_met_mean@high / TDAP as they come, TDAP by the kernel, nginx-aio, nginx-aio by the kernel
            demand_met_mean@low / as Linux as they come, as Linux by the kernel, as Linux by C-LOOK
            demand_met_mean@low / TDAP as they come, TDAP by the kernel, nginx-aio, nginx-aio by the kernel
            disk_seek_share / as Linux as they come, as Linux by the kernel, as Linux by C-LOOK
            disk_seek_share / TDAP as they come, TDAP by the kernel, nginx-aio, nginx-aio by the kernel",
        ..fig14()
    }
}

/// The scenario at so many times the paper's rates.
fn fig14_scenario(low: u32, times: f64) -> Scenario {
    let all = HIGH + LOW_MOST + 2;
    let classes = vec![
        viewers("high", HIGH, (1_000_000.0 * times) as u64),
        viewers("low", low, (200_000.0 * times) as u64),
    ];
    let files = [films("high", HIGH, all), films("low", LOW_MOST, all)];
    remote(place(&files, 128), classes)
}

/// The mix of Figure 14 again; here the clients limit themselves, and some share a film.
pub fn self_paced_cold() -> Experiment {
    // Default options, except for the memory limit: it has its memory alone.
    let ours = Contender::preset("ackpace").with("ackpace", &["--memory-max", "90%"]);
    let buffers = BUFFERS.map(|(name, _)| name);
    Experiment {
        asks: "180 clients read films at 125 KB/s and 300 at 25 KB/s, each steadily by itself, from a hard disk of 2003, by a server with 128 MB. They fill their \
            receive buffers as fast as they are given anything, and then open their windows as they read: who takes the begin for their pace reads far \
            ahead for nobody's need. There are 330 films: 150 have two readers, a fast one and 100 MB further on a slow one, who share nothing but the name. How much of its demand does \
            each class get, and its worst-off client?",
        source: "TPF, Figure 14",
        contenders: [nginx(), vec![ours]].concat(),
        sweep: vec![Axis::named("buffer", "receive buffer", &buffers).quick(&[0.0])],
        pace: Pace::of([3, 1], 12.0, [20.0, 8.0]),
        judged: "
            demand_met_mean@high >= .984
            demand_met_min@high >= .92
            demand_met_mean@low >= .992
            memory_peak_bytes max <= 120
            demand_met_mean@high / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= .995
            demand_met_mean@low / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= .995
            cpu_s_per_gb / nginx-directio
            disk_again_pages_per_s max",
        ..frame(
            "self-paced-cold",
            "125 and 25 KB/s from one hard disk, clients that pace themselves",
            self_paced_cold_scenario,
        )
    }
}

fn self_paced_cold_scenario(at: &Point) -> Scenario {
    /// Fewer than clients: the last 150 low-rate clients share a film with a high-rate one.
    const FILMS: u32 = 330;
    let (_, receive_buffer_bytes) = BUFFERS[at.count("buffer")];
    let of = |name, clients, bits_per_s, first, part| Class {
        receive_buffer_bytes,
        ..dealt_to(
            ("film", FILMS, first),
            viewers(name, clients, bits_per_s),
            part,
        )
    };
    // Data that one reader has had is no longer in memory when the other arrives.
    let apart = Part::Places {
        apart_bytes: 100_000_000,
        apart_max_bytes: None,
    };
    let classes = vec![
        of("high", HIGH, 1_000_000, 0, Part::Whole),
        of("low", LOW_MOST, 200_000, HIGH, apart),
    ];
    remote(place(&[dealt_films("film", FILMS)], 128), classes)
}

/// More demand than a disk can meet, as a function of the server's memory.
pub fn overload() -> Experiment {
    let memory = [64.0, 128.0, 256.0, 512.0, 1024.0];
    Experiment {
        asks: "200 clients would take 60 MB/s, more than the disk has with so many places to read from. The longer a read, the less \
            time is lost by seeking, and the more memory holds what was read until its client took it. A reader that can't be \
            better reads X bytes each time, where X * B(X) = 2 * c * M (M bytes of buffers that drain at the clients' rate c) and B(X) = X / (t + X / R). \
            How near does each server come, and nginx at its best, in a cgroup of so much memory?",
        source: "TPF, section 3.2 (TDAP)",
        // Nothing but these downloads is served: reading ahead may use all memory that sockets leave.
        contenders: [nginx(), vec![ours_with_pool("75%", "ackpace", &[])]].concat(),
        sweep: vec![
            Axis::new("memory_mib", "memory MiB", &memory)
                .quick(&[64.0, 256.0])
                .logarithmic(),
        ],
        // The formula describes a steady state. After half a minute, filling a pool of hundreds of MB and
        // the clients' own buffers still takes a fiftieth of the disk's throughput.
        pace: Pace::of([5, 1], 60.0, [20.0, 8.0]),
        judged: "
            goodput_of_ideal_share >= .97 at memory_mib=64|256
            goodput_bytes_per_s / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= 1.2 at memory_mib=64
            goodput_bytes_per_s / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= 1.1 at memory_mib=256
            goodput_bytes_per_s / best of nginx, nginx 2560 KB, nginx-aio, nginx-aio 2560 KB, nginx-directio >= 1 at memory_mib=128|512|1024
            cpu_s_per_gb / nginx-directio <= 1.25
            client_goodput_min_bytes_per_s / nginx-directio
            disk_bytes_per_s / nginx-directio
            disk_reads_per_s / nginx-directio
            disk_again_pages_per_s max
            memory_peak_bytes max",
        ..frame(
            "overload",
            "200 clients of 300 KB/s: what a disk gives over the memory for it",
            |at| overload_scenario(at, Kind::Plain),
        )
    }
}

/// The same with clients that limit themselves, and a server with default settings.
pub fn self_paced_overload() -> Experiment {
    Experiment {
        name: "self-paced-overload",
        title: "200 clients that would read 300 KB/s, and what a disk gives over the memory for it",
        asks: "As in overload, 200 clients would take 60 MB/s, more than the disk has, and a reader that can't be better is known. Here they read steadily by \
            themselves, with receive buffers that their kernels tune: whatever comes is taken in at once, and nothing but the bytes acknowledged over time tells \
            what they can take. ackpace has its default options. How near does each server come, and nginx at its best, in a cgroup of so much memory?",
        contenders: [nginx(), presets(&["ackpace"])].concat(),
        sweep: vec![Axis::new("memory_mib", "memory MiB", &[64.0, 256.0])],
        scenario: |at| overload_scenario(at, Kind::SelfPaced),
        ..overload()
    }
}

fn overload_scenario(at: &Point, kind: Kind) -> Scenario {
    const CLIENTS: u32 = 200;
    let memory_mib = at.count("memory_mib") as u64;
    let ideal = ideal_bytes_per_s((memory_mib << 20) as f64);
    let class = Class {
        kind,
        ..viewers("film", CLIENTS, OVERLOAD_BYTES_PER_S * 8)
    };
    let demand = OVERLOAD_BYTES_PER_S * u64::from(CLIENTS);
    let files = [films("film", CLIENTS, CLIENTS + 1)];
    remote(place(&files, memory_mib), vec![class])
        .with(|swarm| swarm.ideal_bytes_per_s = Some(ideal.min(demand as f64)))
}

const OVERLOAD_BYTES_PER_S: u64 = 300_000;

/// B(X) at the X for which the buffers just suffice, in bytes/s.
fn ideal_bytes_per_s(memory_bytes: f64) -> f64 {
    /// Time in seconds to position for a read, with films read in the order of their places: arm, platter and command.
    const POSITIONING_S: f64 = 3.96e-3;
    /// Mean rate of the medium in the outer half.
    const MEDIUM_BYTES_PER_S: f64 = 56e6;
    let product = 2.0 * OVERLOAD_BYTES_PER_S as f64 * memory_bytes;
    // X^2 = product * (t + X / R)
    let half = product / MEDIUM_BYTES_PER_S / 2.0;
    let read_bytes = half + (half * half + product * POSITIONING_S).sqrt();
    read_bytes / (POSITIONING_S + read_bytes / MEDIUM_BYTES_PER_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_is_that_of_the_targets() {
        let mb = |mib: u64| ideal_bytes_per_s((mib << 20) as f64) / 1e6;
        assert!((mb(64) - 44.9).abs() < 0.05, "{}", mb(64));
        assert!((mb(256) - 52.2).abs() < 0.05, "{}", mb(256));
    }

    #[test]
    fn each_step_of_the_ladder_changes_one_thing() {
        for pair in LADDER.windows(2) {
            let words = |step: &(&str, &'static str)| step.1.split(',').collect::<Vec<_>>();
            let (before, after) = (words(&pair[0]), words(&pair[1]));
            assert!(after.iter().all(|word| before.contains(word)));
            assert!(after.len() < before.len(), "{}", pair[1].0);
        }
    }
}
