//! A cluster, and what its clients do.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use ackpace_tests::segment::{Node, Segment};
use ackpace_tests::{
    Asker, Fault, Files, Load, Tally, limit_receive_buffer, lossy, pattern, reset_on_drop,
};

pub const A: usize = 0;
/// What a paced client gets.
pub const RATE_BYTES_PER_S: f64 = 4e6;
/// The longest gap that a client may see when a node goes: the lease and some round trips, and a busy machine.
const GAP_MAX: Duration = Duration::from_secs(3);

/// A cluster that serves files; most responses are long enough to move.
pub struct Scene {
    pub segment: Segment,
    pub files: Files,
    pub big: Vec<u8>,
    pub nodes: Vec<Node>,
    /// Paced clients lose two of a hundred segments.
    pub loses: bool,
}

impl Scene {
    pub fn new() -> Option<Scene> {
        let mut scene = Scene::without_nodes()?;
        scene.nodes = scene.segment.start(&[]);
        Some(scene)
    }

    pub fn without_nodes() -> Option<Scene> {
        let segment = Segment::new()?;
        let mut files = Files::new(20, 300_000, 150_000);
        files.0.push(("big".into(), pattern(8_000_000, 99)));
        segment.files(&files);
        let (_, big) = files.0.pop().expect("the last");
        Some(Scene {
            segment,
            files,
            big,
            nodes: Vec::new(),
            loses: false,
        })
    }

    pub fn load(&self, to: &[SocketAddr], load: Load) -> Tally {
        println!("{load:?}");
        let tally = self.segment.client.within(|| load.run(to, &self.files));
        assert!(tally.wrong.is_empty(), "{tally:?}");
        println!("{} responses, longest gap {:?}", tally.responses, tally.gap);
        tally
    }

    /// How many responses each node served.
    pub fn served(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.served().len()).collect()
    }

    /// Paced downloads at a until one is served by another node; in the middle of that, `act` is told which one. The rest
    /// comes, and what the client asks next.
    pub fn in_the_middle(
        &mut self,
        to: SocketAddr,
        mut act: impl FnMut(&Segment, &mut [Node], usize) + Send,
    ) {
        let loses = self.loses;
        let Scene {
            segment,
            files,
            big,
            nodes,
            ..
        } = self;
        let segment: &Segment = segment;
        segment.client.within(|| {
            for nth in 0..20 {
                let mut asker = Asker::open(to).expect("it listens");
                limit_receive_buffer(&asker.stream, 100_000);
                assert!(!loses || lossy(&asker.stream), "root may");
                asker.ask(&format!("/big?{nth}")).expect("it listens");
                let mut acted = false;
                let told = asker.paced(big, Some(RATE_BYTES_PER_S), |have| {
                    if acted || have < 1_000_000 {
                        return true;
                    }
                    let holders = segment.holders();
                    acted = holders.iter().any(|nth| *nth != A);
                    if acted {
                        act(segment, nodes, holders[0]);
                    }
                    acted
                });
                if let Err(Fault::GaveUp) = told {
                    reset_on_drop(&asker.stream);
                    continue;
                }
                println!("{told:?}, longest gap {:?}", asker.gap);
                told.expect("the rest");
                assert!(asker.gap < GAP_MAX, "{:?}", asker.gap);
                let (name, bytes) = &files.0[10];
                asker
                    .get(&format!("/{name}?next"), bytes)
                    .expect("the next one");
                return;
            }
            panic!("no connection moved");
        });
    }

    /// So many paced clients that ask for the large file again and again. Meanwhile `act` is done. Returns the longest gaps, in
    /// order.
    pub fn crowd(
        &mut self,
        to: &[SocketAddr],
        (count, lasts): (usize, Duration),
        act: impl FnOnce(&Segment, &mut [Node]),
    ) -> Vec<Duration> {
        let Scene {
            segment,
            big,
            nodes,
            ..
        } = self;
        let (segment, big): (&Segment, &[u8]) = (segment, big);
        let until = Instant::now() + lasts;
        let clients = || {
            thread::scope(|scope| {
                let one =
                    |nth| scope.spawn(move || paced_client(nth, to[nth % to.len()], big, until));
                let all: Vec<_> = (0..count).map(one).collect();
                all.into_iter()
                    .map(|it| it.join().expect("no panic"))
                    .collect::<Vec<_>>()
            })
        };
        let mut told = thread::scope(|scope| {
            let clients = scope.spawn(|| segment.client.within(clients));
            act(segment, nodes);
            clients.join().expect("no panic")
        });
        told.sort();
        let at = |share: f64| told[((told.len() - 1) as f64 * share) as usize].0;
        println!(
            "{count} clients, longest gaps: p50 {:?}, p99 {:?}, all {:?}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
        let broken: Vec<_> = told
            .iter()
            .filter_map(|(_, fault)| fault.as_ref())
            .collect();
        assert!(broken.is_empty(), "{broken:?}");
        told.into_iter().map(|(gap, _)| gap).collect()
    }

    /// The cluster works, at each of its addresses.
    pub fn is_well(&self, to: &[SocketAddr]) {
        let tally = self.load(to, SHORT);
        assert!(tally.broken.is_empty(), "{tally:?}");
        assert!(tally.responses > 5);
    }
}

/// Returns its longest gap, and what went wrong.
fn paced_client(
    nth: usize,
    to: SocketAddr,
    big: &[u8],
    until: Instant,
) -> (Duration, Option<String>) {
    let rate_bytes_per_s = 125_000.0 * (1 + nth % 20) as f64;
    let mut gap = Duration::ZERO;
    let mut work = || {
        let mut asker = Asker::open(to)?;
        limit_receive_buffer(&asker.stream, 100_000);
        for turn in 0.. {
            asker.ask(&format!("/big?{nth}.{turn}"))?;
            let told = asker.paced(big, Some(rate_bytes_per_s), |_| Instant::now() < until);
            gap = asker.gap;
            told?;
        }
        Ok(())
    };
    match work() {
        Ok(()) | Err(Fault::GaveUp) => (gap, None),
        Err(fault) => (gap, Some(format!("{nth}: {fault:?}"))),
    }
}

pub const SHORT: Load = Load {
    seed: 11,
    connections: 3,
    depth: 2,
    lasts: Duration::from_secs(1),
    ranges: 3,
    range_bytes_max: 2 << 20,
    requests: 20,
    from: None,
};
