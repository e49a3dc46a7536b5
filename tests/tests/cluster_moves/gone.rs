//! Nodes that go without a word in the middle of a download.

use ackpace_tests::segment::{Node, vip, vip6};

use crate::scene::{A, Scene};

#[test]
fn a_guest_is_killed() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.in_the_middle(vip(A), |_, nodes, nth| nodes[nth].server.kill());
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
    scene.in_the_middle(vip(A), |_, nodes, _| nodes[A].server.kill());
    scene.is_well(&[vip(1), vip(2)]);
}
