//! Connections move with requests.

use std::thread;
use std::time::Duration;

use ackpace_tests::segment::{NODES, Node, vip, vip6};
use ackpace_tests::{Asker, Load, eventually};

use crate::scene::{A, Scene};

#[test]
fn a_connection_goes_to_other_nodes_and_back() {
    let Some(scene) = Scene::new() else { return };
    let (mut asker, mut asked) = (None, Vec::new());
    // A node that is too busy to answer is left alone for two seconds.
    for round in 0..20 {
        let more = scene.segment.client.within(|| {
            let asker = asker.get_or_insert_with(|| Asker::open(vip(A)).expect("it listens"));
            let ask = |nth: usize| {
                let (name, bytes) = &scene.files.0[nth % 20];
                let target = format!("/{name}?{round}-{nth}");
                let got = asker.get(&target, bytes);
                got.unwrap_or_else(|fault| panic!("{target}: {fault:?}"));
                target
            };
            (0..60).map(ask).collect::<Vec<_>>()
        });
        asked.extend(more);
        if scene.served().iter().all(|count| *count > 5) {
            break;
        }
        thread::sleep(Duration::from_millis(500));
    }
    let all = || -> Vec<String> { scene.nodes.iter().flat_map(Node::served).collect() };
    eventually("a line for each response", || all().len() >= asked.len());
    let mut lines = all();
    lines.sort();
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
        ranges: 3,
        range_bytes_max: 2 << 20,
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
