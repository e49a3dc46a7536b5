//! Nodes that go without a word in the middle of a download.

use std::time::{Duration, Instant};

use ackpace_tests::Asker;
use ackpace_tests::segment::{Node, vip, vip6};

use crate::scene::{A, Scene};

#[test]
fn a_guest_is_killed() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.in_the_middle(vip(A), |_, nodes, nth| nodes[nth].server.kill());
    let log = &scene.nodes[A].server;
    log.err_line(&["INFO", "took 1 connection over from "]);
    scene.is_well(&[vip(A)]);
}

/// The client has bytes above holes, and its next acknowledgement lies beyond all that home knows of.
#[test]
fn a_guest_is_killed_behind_a_bad_link() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.loses = true;
    for _ in 0..4 {
        let mut killed = A;
        scene.in_the_middle(vip(A), |_, nodes, nth| {
            nodes[nth].server.kill();
            killed = nth;
        });
        let broker = scene.nodes[killed].broker.take();
        scene.nodes[killed] = scene.segment.server(killed, broker, &[]);
        scene.nodes.iter().for_each(Node::sees_all_up);
    }
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
    let mut guest = A;
    scene.in_the_middle(vip(A), |_, nodes, nth| {
        nodes[A].server.kill();
        guest = nth;
    });
    let log = &scene.nodes[guest].server;
    log.err_line(&["INFO", "took 1 connection over from a"]);
    scene.is_well(&[vip(1), vip(2)]);
}

/// A node that hangs, and is not down yet, is asked to take a connection and says nothing for 400 ms. Then the bytes come from the own
/// disk: to relay them would take two seconds more.
#[test]
fn a_node_that_hangs_when_it_is_asked_costs_less_than_two_seconds() {
    let Some(scene) = Scene::new() else { return };
    let hang = |signal| {
        let others = scene.nodes.iter().skip(1);
        others.for_each(|node| node.server.signal(signal));
    };
    for (name, bytes) in &scene.files.0 {
        hang(libc::SIGSTOP);
        let from = Instant::now();
        scene.segment.client.within(|| {
            let mut asker = Asker::open(vip(A)).expect("it listens");
            let got = asker.get(&format!("/{name}?hangs"), bytes);
            got.unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        });
        let took = from.elapsed();
        hang(libc::SIGCONT);
        println!("{name} took {took:?}");
        assert!(took < Duration::from_millis(1_800), "{took:?}");
        if took > Duration::from_millis(400) {
            return scene.is_well(&[vip(A)]);
        }
        scene.nodes[A].sees_all_up();
    }
    panic!("no other node was asked");
}
