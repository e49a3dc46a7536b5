//! The moves of live connections under delay, loss and failures, through the lab's WAN. Each takes minutes and prints a table, so
//! they run on request only: `cargo test --test cluster_stress -- --ignored --nocapture NAME`. ACKPACE_STRESS_S is the length of a
//! cell in seconds.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::thread;
use std::time::Duration;

use ackpace_lab_wan::topology::PathSpec;
use ackpace_lab_wan::{LinkSpec, Topology, Wan};
use ackpace_tests::segment::{Node, Segment, Space, vip};
use ackpace_tests::{Asker, Fault, Files, Load, Tally, reset_on_drop, skip};

const RTTS_MS: [u32; 3] = [0, 20, 80];
/// Each way.
const LOSSES: [f64; 3] = [0.0, 0.005, 0.02];
const RATE_MBIT_PER_S: f64 = 400.0;
const QUEUE_MS: f64 = 100.0;

/// A cluster behind a WAN with a path for each round trip and loss.
struct Scene {
    segment: Segment,
    /// Too many and too long to be fetched and kept, so responses move.
    files: Files,
    nodes: Vec<Node>,
    /// Files that were asked for.
    asked: usize,
    _wan: Wan,
}

/// The client's address on a path.
fn client(rtt: usize, loss: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, (1 + 3 * rtt + loss) as u8)
}

fn topology() -> Topology {
    let mut topology = Topology {
        congestion_control: "cubic",
        ..Topology::default()
    };
    for (rtt, ms) in RTTS_MS.into_iter().enumerate() {
        for (loss, share) in LOSSES.into_iter().enumerate() {
            let link = LinkSpec {
                loss: share,
                ..LinkSpec::limited(RATE_MBIT_PER_S, QUEUE_MS, f64::from(ms) / 2.0)
            };
            let mut path = PathSpec::new(&format!("{rtt}-{loss}"), &client(rtt, loss).to_string());
            (path.down, path.up) = (link.clone(), link);
            topology.path.push(path);
        }
    }
    topology
}

impl Scene {
    fn new(files: Files) -> Option<Scene> {
        let wan = match Wan::up(&topology()) {
            Ok(wan) => wan,
            Err(why) => {
                skip(&format!("no WAN: {why}"));
                return None;
            }
        };
        let [router, client] = [wan.server(), wan.client()].map(|end| Space::at(&end.path()));
        let segment = Segment::behind(router, client)?;
        segment.files(&files);
        let nodes = segment.start(&["--log-level=debug"]);
        Some(Scene {
            segment,
            files,
            nodes,
            asked: 0,
            _wan: wan,
        })
    }

    /// How often the responses of a load came from another node than the ones before them.
    fn moves(&self, load: u64) -> usize {
        thread::sleep(Duration::from_millis(300)); // lines are written at the last acknowledgement
        let mut by: BTreeMap<Vec<u64>, usize> = BTreeMap::new();
        for (nth, node) in self.nodes.iter().enumerate() {
            for target in node.served() {
                let name = target.split('?').nth(1).unwrap_or_default();
                let numbers = name
                    .split('.')
                    .map(str::parse)
                    .collect::<Result<Vec<u64>, _>>();
                match numbers {
                    Ok(numbers) if numbers[0] == load => by.insert(numbers, nth),
                    _ => None,
                };
            }
        }
        let mut before: (Vec<u64>, usize) = (Vec::new(), 0);
        let mut moves = 0;
        for (numbers, nth) in by {
            let conn = numbers[..3].to_vec();
            let was = if conn == before.0 { before.1 } else { 0 };
            moves += usize::from(was != nth);
            before = (conn, nth);
        }
        moves
    }
}

fn lasts() -> Duration {
    let given = std::env::var("ACKPACE_STRESS_S").ok();
    Duration::from_secs_f64(given.and_then(|text| text.parse().ok()).unwrap_or(5.0))
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

#[test]
#[ignore = "it takes minutes"]
fn random_requests_in_36_cells() {
    let Some(scene) = Scene::new(Files::new(20, 1_200_000, 100_000)) else {
        return;
    };
    let (mut all, mut moves, mut cells) = (Tally::default(), 0, 0);
    println!(
        "| RTT, ms | loss | SACK | timestamps | responses | moves | wrong | broken | longest gap, ms |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for cell in 0..36u64 {
        let [rtt, loss] = [cell / 12, cell / 4 % 3].map(|at| at as usize);
        let (sack, stamps) = (cell % 2 == 0, cell / 2 % 2 == 0);
        for (key, is_on) in [("tcp_sack", sack), ("tcp_timestamps", stamps)] {
            let value = if is_on { "1" } else { "0" };
            scene.segment.client.sysctl(&format!("ipv4/{key}"), value);
        }
        let load = Load {
            seed: 1000 + cell,
            connections: 6,
            depth: 4,
            lasts: lasts(),
            // The more is lost, the shorter they are.
            ranges: [8, 9, 10][loss],
            range_bytes_max: [2 << 20, 1 << 20, 400_000][loss],
            requests: 30,
            from: Some(client(rtt, loss)),
        };
        let tally = (scene.segment.client).within(|| load.run(&[vip(0)], &scene.files));
        let moved = scene.moves(load.seed);
        println!(
            "| {} | {} % | {} | {} | {} | {moved} | {} | {} | {} |",
            RTTS_MS[rtt],
            LOSSES[loss] * 100.0,
            on(sack),
            on(stamps),
            tally.responses,
            tally.wrong.len(),
            tally.broken.len() + tally.refused as usize,
            tally.gap.as_millis()
        );
        tally
            .wrong
            .iter()
            .chain(&tally.broken)
            .for_each(|what| println!("  {what}"));
        (moves, cells) = (moves + moved, cells + 1);
        all += tally;
    }
    let broken = all.broken.len() + all.refused as usize;
    println!(
        "{cells} cells: {} responses, {} bytes, {moves} moves, {} wrong, {broken} broken, longest gap {:?}",
        all.responses,
        all.bytes,
        all.wrong.len(),
        all.gap
    );
    assert!(all.wrong.is_empty() && broken == 0);
}

/// How a node goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Killed,
    Stopped,
    CutOff,
}

/// When it goes: so long after the request, or at this share of the response.
#[derive(Clone, Copy, Debug)]
enum Moment {
    After(Duration),
    At(f64),
}

const MOMENTS: [Moment; 5] = [
    Moment::After(Duration::ZERO),
    Moment::After(Duration::from_micros(100)),
    Moment::After(Duration::from_millis(1)),
    Moment::At(0.3),
    Moment::At(0.9),
];

#[test]
#[ignore = "it takes minutes"]
fn a_guest_goes_at_five_moments() {
    let Some(mut scene) = Scene::new(Files::new(20, 3_000_000, 1_000)) else {
        return;
    };
    scene.nodes.truncate(GUEST + 1);
    println!("| RTT, ms | loss | end | right, of 5 | next one right | gaps, ms |");
    println!("|---|---|---|---|---|---|");
    let mut failed = 0;
    for (rtt, loss) in [0, 1, 2].into_iter().flat_map(|rtt| [(rtt, 0), (rtt, 2)]) {
        for end in [End::Killed, End::Stopped, End::CutOff] {
            let told = MOMENTS.map(|moment| scene.goes(client(rtt, loss), end, moment));
            let right = told.iter().filter(|it| it.0.is_ok()).count();
            let next = told.iter().filter(|it| matches!(it.0, Ok(true))).count();
            let gaps = told.iter().map(|it| it.1.as_millis().to_string());
            println!(
                "| {} | {} % | {end:?} | {right} | {next} | {} |",
                RTTS_MS[rtt],
                LOSSES[loss] * 100.0,
                gaps.collect::<Vec<_>>().join(", ")
            );
            for (moment, it) in MOMENTS.iter().zip(&told) {
                if let Err(fault) = &it.0 {
                    println!("  {moment:?}: {fault:?}");
                    failed += 1;
                }
            }
        }
    }
    println!("{}", scene.nodes[0].server.err());
    assert_eq!(failed, 0);
}

/// The node that goes.
const GUEST: usize = 1;

impl Scene {
    /// A guest goes in a download. Returns whether what the client asked next came, and the download's longest gap.
    fn goes(
        &mut self,
        from: Ipv4Addr,
        end: End,
        moment: Moment,
    ) -> (Result<bool, Fault>, Duration) {
        let Scene {
            segment,
            files,
            nodes,
            asked,
            ..
        } = self;
        let (segment, node): (&Segment, _) = (segment, &mut nodes[GUEST]);
        let told = segment.client.within(|| {
            let mut go = || match end {
                End::Killed => node.server.kill(),
                End::Stopped => node.server.signal(libc::SIGSTOP),
                End::CutOff => segment.link(GUEST, false),
            };
            for _ in 0..40 {
                // Others than the last ones: what is asked for again is fetched, and does not move.
                *asked += 1;
                let file = &files.0[*asked % files.0.len()];
                let next_file = &files.0[(*asked + 10) % files.0.len()];
                let mut asker = Asker::open_from(from, vip(0))?;
                // The path is known.
                asker.send("GET /f0 HTTP/1.1\r\nHost: t\r\nRange: bytes=0-99\r\n\r\n")?;
                asker.answer(&files.0[0].1[..100])?;
                match download(&mut asker, segment, file, moment, &mut go) {
                    Err(Fault::GaveUp) => reset_on_drop(&asker.stream),
                    told => {
                        let gap = asker.gap;
                        let next = asker
                            .get(&format!("/{}?next", next_file.0), &next_file.1)
                            .is_ok();
                        return Ok((told.map(|()| next), gap));
                    }
                }
            }
            Err(Fault::Broken("no connection moved".into()))
        });
        self.revive(end);
        told.unwrap_or_else(|fault| (Err(fault), Duration::ZERO))
    }

    fn revive(&mut self, end: End) {
        let node = &mut self.nodes[GUEST];
        match end {
            End::Killed => {
                node.server.kill();
                let broker = node.broker.take();
                *node = self.segment.server(GUEST, broker, &["--log-level=debug"]);
            }
            End::Stopped => node.server.signal(libc::SIGCONT),
            End::CutOff => self.segment.link(GUEST, true),
        }
        for node in &self.nodes {
            ["a", "b"].iter().for_each(|name| node.sees(name, "up"));
        }
    }
}

/// A download at some moment of which something happens; the client gives up if its home serves it.
fn download(
    asker: &mut Asker,
    segment: &Segment,
    (name, bytes): &(String, Vec<u8>),
    moment: Moment,
    go: &mut impl FnMut(),
) -> Result<(), Fault> {
    asker.gap = Duration::ZERO;
    asker.ask(&format!("/{name}?it"))?;
    let mut waits = match moment {
        Moment::After(after) => {
            thread::sleep(after); // until then the request is on its way
            go();
            None
        }
        Moment::At(share) => Some((bytes.len() as f64 * share) as usize),
    };
    asker.paced(bytes, None, |have| {
        if waits.is_some_and(|at| have >= at) {
            waits = None;
            if !segment.holders().contains(&GUEST) {
                return false;
            }
            go();
        }
        true
    })
}
