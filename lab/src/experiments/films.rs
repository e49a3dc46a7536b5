//! Films on the same disk: players, pairs, seeks, crowds, and clients that come, leave or meet congestion.

use super::disk::{
    PLAIN, behind, comparing, dealt_films, dealt_to, films, frame, on, ours, place, remote, viewers,
};
use super::network::{link, range};
use super::presets;
use crate::corpus::Set;
use crate::experiment::{Experiment, Pace, Scenario, curves};
use crate::peers::Contender;
use crate::place::Disk;
use crate::scrape;
use crate::sweep::{Axis, Point};
use crate::workloads::{Event, TimedEvent};
use ackpace_lab_swarm::workload::{Class, Kind, Objects, Part, Start};
use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology};

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
