//! Connections that move between the nodes of a cluster while clients use them: whatever happens to the nodes, a client sees one
//! server and right bytes.

use std::net::SocketAddr;
use std::time::Duration;

use ackpace_tests::segment::{NODES, Node, Segment, vip, vip6};
use ackpace_tests::{
    Asker, Fault, Files, Load, Tally, eventually, limit_receive_buffer, pattern, reset_on_drop,
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
        let mut files = Files::new(20, 150_000);
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

    /// The cluster works, at each of its addresses.
    fn is_well(&self, to: &[SocketAddr]) {
        let tally = self.load(to, SHORT);
        assert!(tally.broken.is_empty(), "{tally:?}");
        assert!(tally.responses > 5);
    }
}

const SHORT: Load = Load {
    seed: 11,
    connections: 3,
    depth: 2,
    lasts: Duration::from_secs(1),
    requests: 20,
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
