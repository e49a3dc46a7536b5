//! Shared parts of the experiments on TPF's disk side: films on the outer half of a hard disk, one for each
//! client; servers with little memory; and their read strategies.

use crate::corpus::Set;
use crate::experiment::{Experiment, Figure, Pace, Scenario};
use crate::peers::Contender;
use crate::place::{Disk, Network, Place, Receive};
use crate::sweep::Point;
use crate::workloads::{Swarm, Workload};
use ackpace_lab_swarm::workload::{
    Choice, Class, Kind, Objects, Part, PartChoice, Rate, Start, Workload as Clients,
};
use ackpace_lab_wan::Topology;
use ackpace_lab_wan::topology::PathSpec;

/// A hard disk of the papers' time.
pub const PROFILE: &str = "10k-scsi-2003";
/// Films fill the outer half of it, which delivers 56 MB/s on average.
const SPAN_BYTES: u64 = 38 << 30;
/// ackpace's share of its cgroup; the rest is for memory that the kernel charges to the group (sockets, tables,
/// code).
const SHARE: [&str; 9] = [
    "--memory-max",
    "90%",
    "--connections-max",
    "600",
    "--object-cache",
    "0",
    "--listing=false",
    // Clients of a slow disk may disappear silently; other servers also stop at once.
    "--drain-timeout",
    "1s",
];
/// The kernel's usual read-ahead, and the default of a rotational loop device: the better result counts.
const READ_AHEAD_KB: u64 = 128;
const READ_AHEAD_LONG_KB: u64 = 2560;
/// The distributions' default I/O scheduler for rotating disks.
const ELEVATOR: &str = "mq-deadline";
/// Clients start spread over this time: a simultaneous start in lockstep would flatter every server.
const BEGIN_OVER_S: f64 = 4.0;

/// nginx with its three read strategies.
pub const PLAIN: &[&str] = &["nginx", "nginx-aio", "nginx-directio"];

/// [`PLAIN`] beside ackpace at one point, three rounds of a minute. The caller adds question, judgements and
/// figures.
pub fn beside_nginx(
    name: &'static str,
    title: &'static str,
    scenario: fn(&Point) -> Scenario,
) -> Experiment {
    let nginx = PLAIN.iter().map(|name| Contender::preset(name));
    Experiment {
        name,
        title,
        asks: "",
        source: "",
        contenders: nginx.chain([ours("ackpace", &[])]).collect(),
        subjects: &[],
        sweep: Vec::new(),
        pace: Pace {
            rounds: 3,
            rounds_quick: 1,
            warm_up_s: 10.0,
            window_s: 60.0,
            window_quick_s: 10.0,
        },
        scenario,
        judged: Vec::new(),
        figures: Vec::new(),
    }
}

/// nginx with its possible settings for a slow disk. The reads of `nginx-directio` bypass the read-ahead.
pub const NGINX: &[&str] = &[
    "nginx",
    "nginx 2560 KB",
    "nginx-aio",
    "nginx-aio 2560 KB",
    "nginx-directio",
];

/// The contenders named [`NGINX`].
pub fn nginx() -> Vec<Contender> {
    let mut all = Vec::new();
    for name in ["nginx", "nginx-aio"] {
        let preset = Contender::preset(name);
        let long = format!("{name} 2560 KB");
        all.push(preset.clone());
        all.push(preset.reading_ahead(&long, READ_AHEAD_LONG_KB));
    }
    all.push(Contender::preset("nginx-directio"));
    all
}

/// A preset for a cgroup of 256 MB. ackpace has half of it, as in the first runs; its default is 75 %.
pub fn in_little_memory(name: &str) -> Contender {
    match Contender::preset(name) {
        ackpace if name == "ackpace" => ackpace.with(name, &["--memory-max", "50%"]),
        peer => peer,
    }
}

/// ackpace with a memory share that fits a small cgroup, and these options.
pub fn ours(name: &str, options: &[&str]) -> Contender {
    ours_with_pool("67%", name, options)
}

/// The same with `part` of its memory for reading ahead.
pub fn ours_with_pool(part: &str, name: &str, options: &[&str]) -> Contender {
    let pool = ["--prefetch-memory", part];
    let all = [&SHARE[..], &pool, options].concat();
    Contender::preset("ackpace").with(name, &all)
}

/// Turns off what a conventional server does not have.
const BLIND: &str = "read=page-cache,prefetch=fixed,cancel=off";
const EAGER: &str = "send=eager";
const ARRIVAL: &str = "order=arrival";
/// Reading by rate without the steps of [`ladder`] that follow it.
const TDAP: &str = "read=page-cache,cancel=off";

/// [`ours`] with designs of others in place of its own.
pub fn comparing(name: &str, words: &[&str]) -> Contender {
    ours(name, &["--compare", &words.join(",")])
}

/// Names of the steps of [`ladder`] below the default, which is "ackpace".
pub const STEPS: &[&str] = &["as Linux", "+ IDSR", "+ TDAP", "+ C-LOOK", "+ direct"];

/// ackpace as a conventional server, then with one change after the other: ACK-clocked sending, reading by
/// rate, reading in the order of places, and reads past the page cache for files with one reader. Dropping
/// reads for departed clients comes last and completes the default.
pub fn ladder() -> Vec<Contender> {
    let steps: [&[&str]; 5] = [
        &[EAGER, BLIND, ARRIVAL],
        &[BLIND, ARRIVAL],
        &[TDAP, ARRIVAL],
        &[TDAP],
        &["cancel=off"],
    ];
    let steps = STEPS.iter().zip(steps);
    let steps = steps.map(|(name, words)| comparing(name, words));
    steps.chain([ours("ackpace", &[])]).collect()
}

/// Contenders that differ in who orders the reads, all through the page cache: nobody, the kernel's I/O
/// scheduler, or the server. ackpace takes part as a conventional server and with reading by rate. nginx takes
/// part with its threads, whose reads all wait in the kernel.
pub fn orders() -> Vec<Contender> {
    let mut all = Vec::new();
    for (name, words) in [("as Linux", &[EAGER, BLIND][..]), ("TDAP", &[TDAP])] {
        let named = |who: &str| format!("{name} {who}");
        let arrival = comparing(&named("as they come"), &[words, &[ARRIVAL]].concat());
        all.push(arrival.clone());
        all.push(arrival.behind_elevator(&named("by the kernel"), ELEVATOR));
        all.push(comparing(&named("by C-LOOK"), words));
    }
    let threads = Contender::preset("nginx-aio");
    all.push(threads.clone());
    all.push(threads.behind_elevator("nginx-aio by the kernel", ELEVATOR));
    all
}

/// A film for each of `clients` clients. The films take as much of the disk's span as if there were `parts` of
/// them.
pub fn films(name: &'static str, clients: u32, parts: u32) -> Set {
    Set::Files {
        name,
        count: clients as usize + 1, // client k gets number k + 1
        len_bytes: (SPAN_BYTES / u64::from(parts)) >> 20 << 20,
    }
}

/// Clients that each read their own film of this name, at a rate.
pub fn viewers(name: &str, clients: u32, bits_per_s: u64) -> Class {
    let objects = Objects {
        digits: 5,
        p: Some(0.0),
        ..Objects::set(Choice::Locality, &format!("/{name}-{{n}}.bin"), clients + 1)
    };
    Class {
        rate: Some(Rate::fixed(bits_per_s)),
        start: Some(Start {
            over_s: BEGIN_OVER_S,
            ..Start::default()
        }),
        ..Class::new(name, clients, objects)
    }
}

/// Films dealt to clients: client k of a class gets film number `first` + k.
pub fn dealt_films(name: &'static str, count: u32) -> Set {
    Set::Files {
        name,
        count: count as usize,
        len_bytes: dealt_len_bytes(count),
    }
}

fn dealt_len_bytes(count: u32) -> u64 {
    (SPAN_BYTES / u64::from(count)) >> 20 << 20
}

/// Clients that read [`dealt_films`] at a rate of their own; `film` is (name, count, number of the first
/// client's film). A client whose film already has a reader begins further on. The distance is the same in
/// every film or, if a maximum is given, grows by equal factors from the first film to the last.
pub fn dealt_to(film: (&str, u32, u32), class: Class, apart: Option<(u64, Option<u64>)>) -> Class {
    let (name, count, first) = film;
    Class {
        kind: Kind::SelfPaced,
        object: Objects {
            digits: 5,
            first,
            len_bytes: Some(dealt_len_bytes(count)),
            ..Objects::set(Choice::Dealt, &format!("/{name}-{{n}}.bin"), count)
        },
        part: apart.map(|(apart_bytes, apart_max_bytes)| Part {
            choice: PartChoice::Places,
            apart_bytes: Some(apart_bytes),
            apart_max_bytes,
            align_bytes: Some(4096), // as direct reads require
            ..Part::default()
        }),
        ..class
    }
}

/// The disk with these files, and a memory limit for the server.
pub fn place(files: &[Set], memory_mib: u64) -> Place {
    Place {
        files: files.to_vec(),
        disk: Disk::Emulated {
            profile: PROFILE,
            read_ahead_kb: READ_AHEAD_KB,
            cached: &[],
        },
        network: Network::Loopback,
        memory_limit_bytes: Some(memory_mib << 20),
        sockets_limit_bytes: None,
    }
}

/// The scenario of these clients at this place.
pub fn scenario((place, swarm): (Place, Swarm)) -> Scenario {
    Scenario {
        place,
        workload: Workload::Swarm(swarm),
    }
}

/// Clients on the same machine.
pub fn local(place: Place, classes: Vec<Class>) -> (Place, Swarm) {
    let clients = Clients {
        seed: 1,
        classes,
        ..Clients::default()
    };
    (place, Swarm::new(clients))
}

/// Clients in a network of their own, on paths without limits. On the loopback, unread data of a client would
/// still be the pages that the server sent, held in memory and charged to the server. A limit of 128 MB would
/// soon be full, and the kernel would kill the server.
pub fn remote(place: Place, mut classes: Vec<Class>) -> (Place, Swarm) {
    let mut path = Vec::new();
    for (net, class) in (1..).zip(&mut classes) {
        let last = class.clients.unwrap_or(1);
        let range = format!("10.{net}.0.1-10.{net}.{}.{}", last / 256, last % 256);
        path.push(PathSpec::new(&class.name, &range));
        class.source = Some(range);
    }
    let topology = Topology {
        grain_us: 200,
        path,
        ..Topology::default()
    };
    behind(topology, place, classes)
}

/// Clients behind these links.
pub fn behind(topology: Topology, mut place: Place, classes: Vec<Class>) -> (Place, Swarm) {
    place.network = Network::Wan {
        topology,
        receive: Receive::ServerCore,
    };
    local(place, classes)
}

/// Figures from the disk's own counters: `of` builds a figure from a metric and a title.
pub fn disk_figures(of: impl Fn(&'static str, &'static str) -> Figure) -> Vec<Figure> {
    [
        ("disk_reads_per_s", "Requests at the disk"),
        ("disk_read_mean_bytes", "Length of a read"),
        ("disk_again_pages_per_s", "Thrashed pages"),
        ("memory_peak_bytes", "Memory"),
    ]
    .map(|(metric, title)| of(metric, title))
    .to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nginx_takes_part_under_the_names_that_are_judged() {
        let names: Vec<String> = nginx().into_iter().map(|who| who.name).collect();
        assert_eq!(names, NGINX);
        let long = nginx()
            .into_iter()
            .filter(|who| who.read_ahead_kb.is_some());
        assert_eq!(long.count(), 2);
    }

    #[test]
    fn each_step_of_the_ladder_changes_one_thing() {
        let ladder = ladder();
        let names: Vec<&str> = ladder.iter().map(|who| who.name.as_str()).collect();
        assert_eq!(names, [STEPS, &["ackpace"]].concat());
        let settings = |who: &Contender| {
            let common = ours("", &[]).options;
            assert_eq!(who.options[..common.len()], common);
            let words = who.options[common.len()..].iter().skip(1);
            words
                .flat_map(|words| words.split(','))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for pair in ladder.windows(2) {
            let (before, after) = (settings(&pair[0]), settings(&pair[1]));
            assert!(after.iter().all(|setting| before.contains(setting)));
            assert_eq!(before.len(), after.len() + 1, "{}", pair[1].name);
        }
        assert!(settings(&ladder[STEPS.len()]).is_empty());
    }

    #[test]
    fn orders_differ_in_who_orders_and_in_nothing_else() {
        let all = orders();
        let without_order = |who: &Contender| {
            let order = format!(",{ARRIVAL}");
            let options = who.options.iter().map(|option| option.replace(&order, ""));
            options.collect::<Vec<_>>()
        };
        for three in all[..6].chunks(3) {
            assert_eq!(without_order(&three[0]), without_order(&three[2]));
            assert_eq!(three[0].options, three[1].options);
            let elevators = three.iter().map(|who| who.elevator);
            assert!(elevators.eq([None, Some(ELEVATOR), None]));
        }
    }
}
