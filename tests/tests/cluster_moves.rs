//! Connections that move between the nodes of a cluster while clients use them: whatever happens to the nodes, a client sees one
//! server and right bytes.

use std::net::{Shutdown, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_tests::segment::{NODES, Node, Segment, vip, vip6};
use ackpace_tests::{
    Asker, Fault, Files, Load, Rng, Tally, eventually, limit_receive_buffer, pattern, reset_on_drop,
};

const A: usize = 0;
/// What a paced client gets.
const RATE_BYTES_PER_S: f64 = 4e6;
/// The longest gap that a client may see when a node goes: the lease and some round trips, and a busy machine.
const GAP_MAX: Duration = Duration::from_secs(3);

/// A cluster that serves files; most responses are long enough to move.
struct Scene {
    segment: Segment,
    files: Files,
    big: Vec<u8>,
    nodes: Vec<Node>,
}

impl Scene {
    fn new() -> Option<Scene> {
        let mut scene = Scene::without_nodes()?;
        scene.nodes = scene.segment.start(&[]);
        Some(scene)
    }

    fn without_nodes() -> Option<Scene> {
        let segment = Segment::new()?;
        let mut files = Files::new("f", 20, 150_000);
        files.0.push(("big".into(), pattern(8_000_000, 99)));
        segment.files(&files);
        let (_, big) = files.0.pop().expect("the last");
        Some(Scene {
            segment,
            files,
            big,
            nodes: Vec::new(),
        })
    }

    fn load(&self, to: &[SocketAddr], load: Load) -> Tally {
        println!("{load:?}");
        let tally = self.segment.client.within(|| load.run(to, &self.files));
        assert!(tally.wrong.is_empty(), "{tally:?}");
        println!("{} responses, longest gap {:?}", tally.responses, tally.gap);
        tally
    }

    /// How many responses each node served.
    fn served(&self) -> Vec<usize> {
        self.nodes.iter().map(|node| node.served().len()).collect()
    }

    /// Paced downloads at a until one is served by another node; in the middle of that, `act` is told which one. The rest
    /// comes, and what the client asks next.
    fn in_the_middle(
        &mut self,
        to: SocketAddr,
        mut act: impl FnMut(&Segment, &mut [Node], usize) + Send,
    ) {
        let Scene {
            segment,
            files,
            big,
            nodes,
        } = self;
        let segment: &Segment = segment;
        segment.client.within(|| {
            for nth in 0..20 {
                let mut asker = Asker::open(to).expect("it listens");
                limit_receive_buffer(&asker.stream, 100_000);
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
    fn crowd(
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
    fn is_well(&self, to: &[SocketAddr]) {
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

const SHORT: Load = Load {
    seed: 11,
    connections: 3,
    depth: 2,
    lasts: Duration::from_secs(1),
    requests: 20,
    from: None,
};

#[test]
fn a_connection_goes_to_other_nodes_and_back() {
    let Some(scene) = Scene::new() else { return };
    let asked = scene.segment.client.within(|| {
        let mut asker = Asker::open(vip(A)).expect("it listens");
        let mut asked = Vec::new();
        for nth in 0..60 {
            let (name, bytes) = &scene.files.0[nth % 20];
            let target = format!("/{name}?{nth}");
            asker
                .get(&target, bytes)
                .unwrap_or_else(|fault| panic!("{target}: {fault:?}"));
            asked.push(target);
        }
        asked
    });
    let all = || -> Vec<String> { scene.nodes.iter().flat_map(Node::served).collect() };
    eventually("a line for each response", || all().len() >= asked.len());
    let mut lines = all();
    lines.sort();
    let mut asked = asked;
    asked.sort();
    assert_eq!(lines, asked, "one line for each");
    let served = scene.served();
    assert!(served.iter().all(|count| *count > 5), "{served:?}");
}

#[test]
fn every_byte_is_right_with_pipelines_and_split_requests() {
    let Some(scene) = Scene::new() else { return };
    let load = Load {
        seed: std::process::id().into(),
        connections: 6,
        depth: 4,
        lasts: Duration::from_secs(5),
        requests: 40,
        from: None,
    };
    let tally = scene.load(&[vip(0), vip6(0), vip(1)], load);
    assert!(tally.broken.is_empty(), "{tally:?}");
    let served = scene.served();
    println!("{served:?}");
    assert!(served[2] > 10, "no client came to it: {served:?}");
}

#[test]
fn without_a_broker_requests_are_relayed() {
    let Some(mut scene) = Scene::without_nodes() else {
        return;
    };
    let segment = &scene.segment;
    scene.nodes = (0..NODES.len())
        .map(|nth| segment.server(nth, None, &[]))
        .collect();
    for node in &scene.nodes {
        node.server.err_line(&["no connection moves between nodes"]);
        node.sees_all_up();
    }
    scene.is_well(&[vip(A)]);
    let served = scene.served();
    assert!(served[A] > 5 && served[1] + served[2] == 0, "{served:?}");
}

#[test]
fn a_guest_is_killed() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.in_the_middle(vip(A), |_, nodes, nth| nodes[nth].server.kill());
    scene.is_well(&[vip(A)]);
}

#[test]
fn a_guest_hangs_and_goes_on() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut stopped = A;
    scene.in_the_middle(vip6(A), |_, nodes, nth| {
        nodes[nth].server.signal(libc::SIGSTOP);
        stopped = nth;
    });
    scene.nodes[stopped].server.signal(libc::SIGCONT);
    scene.nodes[A].sees_all_up();
    scene.is_well(&[vip(A), vip(stopped)]);
}

#[test]
fn a_guest_is_cut_off() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let mut cut = A;
    scene.in_the_middle(vip(A), |segment, _, nth| {
        segment.link(nth, false);
        cut = nth;
    });
    scene.segment.link(cut, true);
    scene.nodes[A].sees_all_up();
    scene.is_well(&[vip(A), vip(cut)]);
}

#[test]
fn a_home_is_killed() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.in_the_middle(vip(A), |_, nodes, _| nodes[A].server.kill());
    scene.is_well(&[vip(1), vip(2)]);
}

/// How long a crowd is at it.
const CROWD: (usize, Duration) = (40, Duration::from_secs(5));

/// Between two things that are done to nodes.
fn a_moment() {
    thread::sleep(Duration::from_millis(700)); // downloads run meanwhile
}

#[test]
fn nodes_are_drained_with_downloads_and_take_requests_again() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let gaps = scene.crowd(&[vip(A), vip6(A)], CROWD, |segment, nodes| {
        a_moment();
        for name in ["b", "a"] {
            nodes[A].drain(name, true);
            let nth = NODES.iter().position(|node| *node == name).expect("a node");
            let from = Instant::now();
            eventually("the node is empty", || !segment.holders().contains(&nth));
            println!("{name} is empty after {:?}", from.elapsed());
            assert!(from.elapsed() < Duration::from_secs(3), "{name}");
            nodes[A].drain(name, false);
        }
    });
    assert!(gaps[gaps.len() - 1] < Duration::from_secs(1), "{gaps:?}");
    let before = scene.served();
    scene.is_well(&[vip(A)]);
    let after = scene.served();
    assert!(
        after[A] > before[A] && after[1] > before[1],
        "{before:?}, {after:?}"
    );
}

#[test]
fn a_guest_ends_with_downloads() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.crowd(&[vip(A), vip6(A)], CROWD, |_, nodes| {
        a_moment();
        ends_in_time(&mut nodes[1]);
    });
    scene.is_well(&[vip(A)]);
}

#[test]
fn a_home_ends_with_downloads() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.crowd(&[vip(A), vip6(A)], CROWD, |_, nodes| {
        a_moment();
        ends_in_time(&mut nodes[A]);
    });
    scene.is_well(&[vip(1)]);
}

/// SIGTERM, and what it takes.
fn ends_in_time(node: &mut Node) {
    let from = Instant::now();
    node.server.signal(libc::SIGTERM);
    assert_eq!(node.server.wait().code(), Some(0), "{}", node.server.err());
    println!("ended after {:?}", from.elapsed());
    assert!(
        from.elapsed() < Duration::from_secs(3),
        "{:?}",
        from.elapsed()
    );
}

#[test]
fn clients_that_are_rude_harm_nobody() {
    let Some(scene) = Scene::new() else { return };
    let Scene { segment, files, .. } = &scene;
    let rude = |kind: usize| {
        let until = Instant::now() + Duration::from_secs(4);
        let mut rng = Rng::new(7 + kind as u64);
        let mut count = 0;
        while Instant::now() < until {
            let to = [vip(A), vip6(A)][count % 2];
            let told = rude_client(kind, to, files, &mut rng);
            told.unwrap_or_else(|fault| panic!("{kind}, nth {count}: {fault:?}"));
            count += 1;
        }
        println!("{count} clients of kind {kind}");
    };
    segment.client.within(|| {
        thread::scope(|scope| {
            (0..3).for_each(|kind| drop(scope.spawn(move || rude(kind))));
        });
    });
    scene.is_well(&[vip(A), vip6(A)]);
    eventually("no connection is left", || segment.holders().is_empty());
}

/// One that resets, half-closes behind its requests, or reads nothing for 3 s.
fn rude_client(kind: usize, to: SocketAddr, files: &Files, rng: &mut Rng) -> Result<(), Fault> {
    let mut asker = Asker::open(to)?;
    let some = 10 + rng.below(10);
    let (name, bytes) = &files.0[some];
    for nth in 0..1 + rng.below(3) {
        asker.get(&format!("/{name}?{kind}.{nth}"), bytes)?;
    }
    match kind {
        0 => {
            asker.ask(&format!("/{name}?reset"))?;
            thread::sleep(Duration::from_micros(rng.below(3000) as u64)); // until it is on its way
            reset_on_drop(&asker.stream);
        }
        1 => {
            asker.ask(&format!("/{name}?half"))?;
            asker.ask(&format!("/{name}?half"))?;
            thread::sleep(Duration::from_micros(rng.below(3000) as u64)); // until it is on its way
            asker.stream.shutdown(Shutdown::Write)?;
            asker.answer(bytes)?;
            asker.answer(bytes)?;
        }
        _ => {
            asker.ask(&format!("/{name}?closed"))?;
            let mut waits = true;
            asker.paced(bytes, None, |_| {
                if std::mem::take(&mut waits) {
                    thread::sleep(Duration::from_secs(3)); // its window closes
                }
                true
            })?;
        }
    }
    Ok(())
}

#[test]
fn brokers_are_killed_and_started_again_while_connections_are_away() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.crowd(&[vip(A), vip6(A)], CROWD, |segment, nodes| {
        for nth in [1, A] {
            a_moment();
            nodes[nth].broker = None;
            thread::sleep(Duration::from_millis(200)); // as a service manager takes
            nodes[nth].broker = Some(segment.broker(nth));
        }
    });
    scene.is_well(&[vip(A), vip(1)]);
}

#[test]
fn all_nodes_are_restarted_one_after_the_other() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let to = [vip(0), vip(1), vip6(2)];
    let Scene {
        segment,
        files,
        nodes,
        ..
    } = &mut scene;
    let (segment, files): (&Segment, &Files) = (segment, files);
    let load = Load {
        seed: 5,
        connections: 6,
        depth: 2,
        lasts: Duration::from_secs(9),
        requests: 100,
        from: None,
    };
    let tally = thread::scope(|scope| {
        let clients = scope.spawn(|| segment.client.within(|| load.run(&to, files)));
        for nth in 0..NODES.len() {
            a_moment();
            ends_in_time(&mut nodes[nth]);
            let broker = nodes[nth].broker.take();
            nodes[nth] = segment.server(nth, broker, &[]);
            nodes.iter().for_each(Node::sees_all_up);
        }
        clients.join().expect("no panic")
    });
    println!("{tally:?}");
    assert!(tally.wrong.is_empty() && tally.broken.is_empty());
    scene.is_well(&to);
}
