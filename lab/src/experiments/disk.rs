//! Films on the outer half of a hard disk, and servers with little memory: TPF's disk side.

use super::network::{BUFFERS, link, range};
use super::presets;
use crate::corpus::Set;
use crate::experiment::{Experiment, Pace, Scenario, curves};
use crate::peers::Contender;
use crate::place::{Disk, Network, Place, Receive};
use crate::scrape;
use crate::sweep::{Axis, Point};
use crate::workloads::{Event, TimedEvent};
use ackpace_lab_swarm::workload::{Class, Kind, Objects, Part, Start};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

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
const PLAIN: [&str; 3] = ["nginx", "nginx-aio", "nginx-directio"];

/// [`PLAIN`] beside ackpace at one point.
fn frame(name: &'static str, title: &'static str, scenario: fn(&Point) -> Scenario) -> Experiment {
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
fn nginx() -> Vec<Contender> {
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
fn ours(name: &str, options: &[&str]) -> Contender {
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
fn comparing(name: &str, words: &str) -> Contender {
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
fn films(name: &'static str, clients: u32, parts: u32) -> Set {
    let len_bytes = (SPAN_BYTES / u64::from(parts)) >> 20 << 20;
    Set::files(name, clients as usize + 1, len_bytes)
}

/// Clients that each read their own film of this name, at a rate; they begin within four seconds, since a simultaneous
/// start in lockstep would flatter every server.
fn viewers(name: &str, clients: u32, bits_per_s: u64) -> Class {
    Class {
        rate_bits_per_s: Some(bits_per_s),
        start: Start::over(4.0),
        ..Class::new(name, clients, Objects::own(name, clients))
    }
}

/// `count` films that fill the disk's span, dealt to clients by [`dealt_to`].
fn dealt_films(name: &'static str, count: u32) -> Set {
    Set::files(name, count as usize, dealt_len_bytes(count))
}

fn dealt_len_bytes(count: u32) -> u64 {
    (SPAN_BYTES / u64::from(count)) >> 20 << 20
}

/// Clients that read [`dealt_films`] at a rate of their own; `film` is (name, count, number of the first
/// client's film). A client whose film already has a reader begins further on.
fn dealt_to(film: (&str, u32, u32), class: Class, part: Part) -> Class {
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
fn place(files: &[Set], memory_mib: u64) -> Place {
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
fn remote(place: Place, mut classes: Vec<Class>) -> Scenario {
    let mut path = Vec::new();
    for (net, class) in (1..).zip(&mut classes) {
        let last = class.clients;
        let range = format!("10.{net}.0.1-10.{net}.{}.{}", last / 256, last % 256);
        path.push(PathSpec::new(&class.name, &range));
        class.source = Some(range);
    }
    behind(path, place, classes)
}

/// Clients behind these paths.
fn behind(path: Vec<PathSpec>, place: Place, classes: Vec<Class>) -> Scenario {
    let topology = Topology {
        grain_us: 200,
        path,
        ..Topology::default()
    };
    on(topology, place, classes)
}

fn on(topology: Topology, mut place: Place, classes: Vec<Class>) -> Scenario {
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

/// Video players beside downloads: does playback continue while the disk is busy?
pub fn players() -> Experiment {
    let segments = ["4 x real time", "full speed"];
    Experiment {
        asks: "100 players take a film each at 1 Mbit/s, in segments of 4 s: each is fetched when the one before it begins to be played, at four times real time or as fast \
            as it comes, and then nothing happens until the next one is due. Beside them 200 clients download films at 300 KB/s each, more than the disk has. How often does a \
            film stand still, and how long does the first byte of a segment take, of which nobody could know that it would be asked for now?",
        sweep: vec![Axis::named("segments", "segments", &segments).quick(&[0.0])],
        // Two segments for the start, and two more once all have started.
        pace: Pace::of([3, 1], 16.0, [40.0, 12.0]),
        judged: "
            stalls@player sum <= 0
            ttfb_p99_us@player <= 300
            stalls@player / nginx, nginx-aio, nginx-directio
            ttfb_p50_us@player / nginx, nginx-aio, nginx-directio
            ttfb_p99_us@player / nginx, nginx-aio, nginx-directio
            completion_p99_us@player / nginx, nginx-aio, nginx-directio
            goodput_bytes_per_s@download / nginx, nginx-aio, nginx-directio",
        ..frame(
            "players",
            "100 players beside 200 downloads that keep the disk busy",
            players_scenario,
        )
    }
}

fn players_scenario(at: &Point) -> Scenario {
    let (players, downloads) = (100, 200);
    let film = films("player", players, players + downloads + 2);
    let mut player = viewers("player", players, 1_000_000);
    player.object.len_bytes = film.list().first().map(|(_, len_bytes)| *len_bytes);
    player.kind = Kind::Player {
        film_s: 4.0,
        times: (at.count("segments") == 0).then_some(4.0),
    };
    let download = Class {
        kind: Kind::SelfPaced,
        ..viewers("download", downloads, 2_400_000)
    };
    let files = [film, films("download", downloads, players + downloads + 2)];
    remote(place(&files, 256), vec![player, download])
}

/// Two readers of one film at different places: which bytes are read once for both?
pub fn pairs() -> Experiment {
    let apart = [
        "40 films",
        "5 MB apart",
        "20 MB apart",
        "100 MB apart",
        "500 MB apart",
        "5 to 500 MB apart",
    ];
    Experiment {
        asks: "20 films with two readers each, 40 clients of 1.25 MB/s, which is nearly all that a hard disk of 2003 has for so many places; the server has 128 MB. Beside it the \
            same clients with 40 films. The readers of a film are 5 to 500 MB apart. What the first one gets, the second one wants later: 4 s later at 5 MB, and to keep \
            it for all pairs would take 100 MB. So at 5 MB half of the bytes need not be read again, if memory were for nothing else; at 20 MB a quarter of the pairs could be \
            served so; from 100 MB on next to none. How much is read for each byte that a client gets, and does anybody get less than with a film of his own?",
        sweep: vec![Axis::named("apart", "readers", &apart).quick(&[0.0, 1.0, 3.0, 5.0])],
        pace: Pace::of([3, 1], 12.0, [30.0, 10.0]),
        judged: "
            goodput_bytes_per_s / itself at apart=0 >= .97 at apart=1|2|3|4|5
            disk_over_goodput / nginx, nginx-aio, nginx-directio
            goodput_bytes_per_s / nginx, nginx-aio, nginx-directio
            demand_met_min / nginx, nginx-aio, nginx-directio",
        ..frame("pairs", "20 pairs of readers of one film", |at| {
            let mb = [0, 5, 20, 100, 500, 5][at.count("apart")];
            let (films, part) = match mb {
                0 => (40, Part::Whole),
                mb => {
                    let part = Part::Places {
                        apart_bytes: mb * 1_000_000,
                        apart_max_bytes: (at.count("apart") == 5).then_some(500_000_000),
                    };
                    (20, part)
                }
            };
            let class = viewers("film", 40, 10_000_000);
            let class = dealt_to(("film", films, 0), class, part);
            remote(place(&[dealt_films("film", films)], 128), vec![class])
        })
    }
}

/// A viewer seeks within a film while the disk is busy with all others.
pub fn seek() -> Experiment {
    Experiment {
        asks: "300 clients of 300 KB/s want more than a hard disk can give. Twice a second, somebody asks for a megabyte somewhere in \
            a film that nobody has touched, and once a second for a small file that nobody has asked for. How long until the first byte?",
        judged: "
            ttfb_p50_us@seeker <= 120
            ttfb_p99_us@seeker <= 300
            ttfb_p50_us@seeker / nginx, nginx-aio, nginx-directio
            ttfb_p99_us@seeker / nginx, nginx-aio, nginx-directio
            ttfb_p50_us@opener / nginx, nginx-aio, nginx-directio
            completion_p50_us@seeker / nginx, nginx-aio, nginx-directio
            goodput_bytes_per_s@film / nginx, nginx-aio, nginx-directio",
        ..frame(
            "seek",
            "Seeks beside 300 streams that keep the disk busy",
            |_| seek_scenario(),
        )
    }
}

fn seek_scenario() -> Scenario {
    const STREAMS: u32 = 300;
    const SOUGHT: Set = Set::files("sought", 32, 256 << 20);
    /// So many that hardly any is requested twice: the kernel must read their inodes, too.
    const UNKNOWN: Set = Set::files("unknown", 4096, 64 << 10);
    let sought = Objects {
        len_bytes: Some(256 << 20),
        ..Objects::any("sought", 32)
    };
    let seeker = Class {
        part: Part::Range { len_bytes: 1 << 20 },
        arrivals_per_s: Some(2.0),
        ..Class::new("seeker", 32, sought) // connections: more than are ever needed at once
    };
    let opener = Class {
        arrivals_per_s: Some(1.0),
        ..Class::new("opener", 16, Objects::any("unknown", 4096))
    };
    let streams = viewers("film", STREAMS, 2_400_000);
    let files = [films("film", STREAMS, STREAMS + 1), SOUGHT, UNKNOWN];
    remote(place(&files, 256), vec![streams, seeker, opener])
}

/// Many clients and one cold film: is it read only once?
pub fn crowd() -> Experiment {
    Experiment {
        asks: "100 clients of 10 MB/s begin the same film of 1 GB within two seconds; it is on a hard disk, and the server has 256 MB. \
            They stay within 20 MB of each other, so the disk need read nothing twice. How much does it read for each \
            byte of the film that was needed, and does everybody get the film at its rate?",
        pace: Pace::of([3, 1], 3.0, [95.0, 10.0]), // warm-up and window end before the film does
        judged: "
            disk_amplification max <= 1.05
            disk_amplification / nginx, nginx-aio, nginx-directio
            demand_met_mean / nginx, nginx-aio, nginx-directio
            demand_met_min / nginx, nginx-aio, nginx-directio
            disk_bytes_per_s / nginx, nginx-aio, nginx-directio",
        ..frame("crowd", "A hundred clients for one cold film", |_| {
            let crowd = Class {
                receive_buffer_bytes: Some(1 << 20), // on loopback this buffer holds the server's pages
                rate_bits_per_s: Some(80_000_000),
                start: Start::over(2.0),
                ..Class::new("crowd", 100, Objects::one("premiere"))
            };
            let premiere = Set::files("premiere", 1, 1_000_000_000);
            Scenario::swarm(place(&[premiere], 256), vec![crowd])
        })
    }
}

/// Few clients behind links: nothing but the server's own reads wakes it. Is a link idle although the disk could fill it?
pub fn few() -> Experiment {
    Experiment {
        asks: "1, 3 and 10 clients download a film each from a hard disk that nobody has touched, over links of 1 to 3 Mbit/s. \
            The disk could fill 150 such links. Is one ever idle?",
        sweep: vec![Axis::named("clients", "clients", &["1", "3", "10"])],
        pace: Pace::of([3, 1], 5.0, [20.0, 10.0]),
        judged: "
            link_idle_share max <= .01
            link_idle_share / nginx, nginx-aio, nginx-directio
            goodput_bytes_per_s / nginx, nginx-aio, nginx-directio",
        ..frame(
            "few",
            "Few clients behind links, and a disk with little to do",
            |at| {
                let clients = [1, 3, 10][at.count("clients")];
                let source = range(0, clients);
                let path = link("film", &source, 2.0);
                let film = Class {
                    source: Some(source),
                    rate_bits_per_s: None, // its link is the limit
                    ..viewers("film", clients, 0)
                };
                let place = place(&[films("film", clients, 100)], 128);
                behind(vec![path], place, vec![film])
            },
        )
    }
}

/// One-time downloads: do they displace files that are requested again and again?
pub fn sweep_once() -> Experiment {
    Experiment {
        asks: "24 files of 2 MB were asked for again and again. Then 16 clients download 10 GB of other files, each byte once, from \
            flash, by a server with 256 MB. Of the hot files, which nobody asked for meanwhile, how many pages are still in memory? \
            (A reader outside the server's cgroup looks at them all the time: a machine that takes back idle memory by itself leaves \
            them, a cgroup that is full does not.)",
        pace: Pace::of([3, 1], 4.5, [42.0, 10.0]),
        judged: "
            resident_share >= .98
            resident_before_share
            resident_share / nginx, nginx-aio, nginx-directio
            goodput_bytes_per_s@once / nginx, nginx-aio, nginx-directio
            cpu_s_per_gb / nginx, nginx-aio, nginx-directio",
        ..frame(
            "sweep",
            "What 10 GB of downloads that come once leave of a hot set",
            |_| {
                let hot = Class {
                    requests_each: Some(60), // each file some twenty times; done before the sweep begins
                    ..Class::new("hot", 8, Objects::any("hot", 24))
                };
                let once = Class {
                    receive_buffer_bytes: Some(1 << 20), // on loopback this buffer holds the server's pages
                    start: Start {
                        after_s: 5.5, // the hot files have been requested, and the window has begun
                        over_s: 0.5,
                    },
                    ..viewers("once", 16, 128_000_000) // 10 GB in 40 s
                };
                let files = [
                    Set::files("hot", 24, 2 << 20),
                    Set::files("once", 17, 1 << 30),
                ];
                let mut place = place(&files, 256);
                if let Disk::Emulated { profile, .. } = &mut place.disk {
                    *profile = "flash";
                }
                Scenario::swarm(place, vec![hot, once]).with(|swarm| swarm.lasting = Some("hot"))
            },
        )
    }
}

/// Clients that leave: how much work does the disk still do for them?
pub fn reset() -> Experiment {
    let contenders = [
        presets(&PLAIN),
        vec![comparing("cancel off", "cancel=off"), ours("ackpace", &[])],
    ];
    Experiment {
        asks: "300 clients of 300 KB/s keep a hard disk busy, each with a film of its own. Three seconds into the window 45 of them \
            reset their connections, all within a moment. What does the disk still read for them more than 5 ms later, and do the others \
            get all of the disk in the next five seconds? The disk's own list of requests tells.",
        source: "TPF, Figure 16a (EDRC)",
        contenders: contenders.concat(),
        subject: "ackpace",
        // Before this, many of the read bytes still fill the clients' own buffers. The window begins with
        // the swarm's next second.
        pace: Pace::of([5, 1], 39.5, [12.0, 9.0]),
        judged: "
            dead_reads sum <= 0
            living_disk_share >= .99
            dead_reads / nginx, nginx-aio, nginx-directio, cancel off
            dead_read_bytes / nginx, nginx-aio, nginx-directio, cancel off
            living_disk_share / nginx, nginx-aio, nginx-directio, cancel off
            goodput_bytes_per_s@film / nginx, nginx-aio, nginx-directio, cancel off",
        figures: curves(&["goodput_bytes_per_s", "goodput_bytes_per_s@film"]),
        ..frame(
            "reset",
            "45 of 300 clients reset their connections at once",
            |_| {
                let (stay, leave) = (255, 45);
                let classes = vec![
                    viewers("film", stay, 2_400_000),
                    viewers("leaver", leave, 2_400_000),
                ];
                let all = stay + leave + 2;
                let files = [films("film", stay, all), films("leaver", leave, all)];
                let event = TimedEvent {
                    after_s: 3.0,
                    event: Event::Leave {
                        class: "leaver".into(),
                    },
                };
                remote(place(&files, 256), classes)
                    .with(|swarm| (swarm.events, swarm.curves) = (vec![event], true))
            },
        )
    }
}

/// A burst of new clients: which clients does it slow down?
pub fn burst() -> Experiment {
    // Linux doubles the requested size: this gives 128 KB of SO_SNDBUF, bookkeeping included, as in the paper's
    // kernel.
    let conventional = |preset, name| {
        let nginx = Contender::preset(preset).with(name, &["listen sndbuf=64k"]);
        nginx.reading_ahead(name, 512)
    };
    Experiment {
        asks: "100 clients at a round trip of 10 ms and 100 at 200 ms take films at 1 Mbit/s, the rate of their links. Five seconds into \
            the window 100 more come, for 1 or 3 seconds. The paper's conventional server had written far ahead for the far clients and little for the \
            near ones, who therefore bore the burst; its remedy was to read first for whom little is written. ackpace writes the same time ahead for \
            both, so what the paper had to even out is even.",
        source: "TPF, Figure 15",
        contenders: vec![
            conventional("nginx", "conventional"),
            conventional("nginx-aio", "conventional aio"),
            comparing("TDAP on full buffers", "send=eager"),
            ours("ackpace", &[]),
        ],
        subject: "ackpace",
        sweep: vec![Axis::new("burst_s", "burst s", &[1.0, 3.0])],
        // The window begins with the first second of the swarm after this: at 15 s.
        pace: Pace::of([3, 1], 14.5, [60.0, 15.0]),
        judged: "
            client_goodput_mean_bytes_per_s@near / conventional, conventional aio
            client_goodput_mean_bytes_per_s@far / conventional, conventional aio
            client_goodput_min_bytes_per_s@near / conventional, conventional aio
            stalls@near / conventional, conventional aio
            stalls@far / conventional, conventional aio
            ttfb_p99_us@burst / conventional, conventional aio",
        figures: curves(&[
            "client_goodput_mean_bytes_per_s@near",
            "client_goodput_mean_bytes_per_s@far",
            "client_goodput_mean_bytes_per_s@burst",
        ]),
        ..frame(
            "burst",
            "100 more clients for a moment: who bears it",
            burst_scenario,
        )
    }
}

fn burst_scenario(at: &Point) -> Scenario {
    const EACH: u32 = 100;
    const CLASSES: [(&str, f64); 3] = [("near", 10.0), ("far", 200.0), ("burst", 10.0)];
    let (mut paths, mut classes, mut files) = (Vec::new(), Vec::new(), Vec::new());
    for (nth, (name, rtt_ms)) in (1..).zip(CLASSES) {
        let source = format!("10.{nth}.0.1-10.{nth}.0.{EACH}");
        // The queue is longer than the far clients' round trip, so that losses leave each link full and only the disk
        // can slow a client down. The paper's emulator does not bound its queues.
        paths.push(PathSpec {
            per_client: true,
            down: LinkSpec::limited(1.0, 250.0, rtt_ms / 2.0),
            up: LinkSpec::delay(rtt_ms / 2.0),
            ..PathSpec::new(name, &source)
        });
        let mut class = Class {
            source: Some(source),
            start: Start::over(5.0),
            ..Class::new(name, EACH, Objects::own(name, EACH))
        };
        if name == "burst" {
            class.start = Start::after(15.0 + 5.0);
            class.leaves_after_s = Some(at.get("burst_s"));
        }
        classes.push(class);
        files.push(films(name, EACH, 3 * (EACH + 1)));
    }
    // Enough memory for a conventional server to meet the demand before the burst.
    behind(paths, place(&files, 512), classes).with(|swarm| swarm.curves = true)
}

/// A fifth of the clients meet congestion: can their reads be deferred?
pub fn congested() -> Experiment {
    // ackpace reports how often it defers reads.
    let told_by = |name: &str, words: &str| {
        let metrics = ["--metrics", scrape::PORT, "--compare", words];
        ours(
            name,
            if words.is_empty() {
                &metrics[..2]
            } else {
                &metrics
            },
        )
    };
    Experiment {
        asks: "300 clients at a round trip of 100 ms, behind links of 1.5 Mbit/s, want a little more than the disk has. Five seconds into the \
            window every packet to 60 of them is marked \"congestion experienced\" for the length of one round trip (ECN, reno): \
            their windows are halved once. Their reads may wait, and others go first: by the rate that is left to them, by the paper's \
            fixed delay, or not at all. What do all get, those who met no congestion, and those who did? How many reads are put off, \
            by our own count (losses in the queues of the links are signals, too)?",
        source: "TPF, Figure 16b (EDRC)",
        contenders: vec![
            Contender::preset("nginx-aio"),
            told_by("fixed reads", "prefetch=fixed,prefetch_size=512KiB"),
            told_by("delay off", "delay=off"),
            told_by("delay paper", "delay=paper"),
            told_by("ackpace", ""),
        ],
        subject: "ackpace",
        // The window begins with the swarm's next second.
        pace: Pace::of([5, 1], 14.5, [25.0, 12.0]),
        judged: "
            goodput_bytes_per_s / delay off, delay paper, fixed reads, nginx-aio
            goodput_bytes_per_s@steady / delay off, delay paper, fixed reads, nginx-aio
            goodput_bytes_per_s@marked / delay off, delay paper, fixed reads, nginx-aio
            congestion_signals
            delayed_reads
            delayed_read_bytes
            disk_again_bytes / delay off, delay paper, fixed reads, nginx-aio
            link_marked_packets / delay off, delay paper, fixed reads, nginx-aio",
        figures: curves(&[
            "goodput_bytes_per_s",
            "goodput_bytes_per_s@steady",
            "goodput_bytes_per_s@marked",
        ]),
        ..frame(
            "congested",
            "Congestion windows halved for 20 % of the clients",
            |_| congested_scenario(),
        )
    }
}

fn congested_scenario() -> Scenario {
    const STEADY: u32 = 240;
    const MARKED: u32 = 60;
    const RTT_MS: f64 = 100.0;
    let classes = [("steady", STEADY, 1), ("marked", MARKED, 2)];
    let path = |(name, clients, net): (&str, u32, u32)| PathSpec {
        per_client: true,
        // 56 MB/s in all: a little more than the disk delivers.
        down: LinkSpec::limited(1.5, 200.0, RTT_MS / 2.0),
        up: LinkSpec::delay(RTT_MS / 2.0),
        ..PathSpec::new(name, &format!("10.{net}.0.1-10.{net}.0.{clients}"))
    };
    let paths = classes.map(path).to_vec();
    let class = |(class, path): ((&str, u32, u32), &PathSpec)| Class {
        source: Some(path.clients.clone()),
        start: Start::over(5.0),
        ..Class::new(class.0, class.1, Objects::own(class.0, class.1))
    };
    let clients = classes.into_iter().zip(&paths).map(class).collect();
    let marks = |after_s: f64, mark: f64| {
        let event = move |nth| TimedEvent {
            after_s,
            event: Event::Mark {
                path: format!("marked/10.2.0.{nth}"),
                mark,
            },
        };
        (1..=MARKED).map(event).collect::<Vec<_>>()
    };
    let all = STEADY + MARKED + 2;
    let files = [films("steady", STEADY, all), films("marked", MARKED, all)];
    let topology = Topology {
        ecn: true,
        grain_us: 200,
        run_us: 10_000,
        path: paths,
        ..Topology::default()
    };
    let events = [marks(5.0, 1.0), marks(5.0 + RTT_MS / 1e3, 0.0)].concat();
    on(topology, place(&files, 256), clients)
        .with(|swarm| (swarm.events, swarm.curves) = (events, true))
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
        ..frame(
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
        ..frame(
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
