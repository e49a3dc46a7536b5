//! Nodes that are emptied, stop, or lose their brokers.

use std::thread;
use std::time::{Duration, Instant};

use ackpace_tests::segment::{NODES, Node, Segment, vip, vip6};
use ackpace_tests::{Files, Load, eventually};

use crate::scene::{A, Scene};

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
        ends(&mut nodes[1]);
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
        ends(&mut nodes[A]);
    });
    scene.is_well(&[vip(1)]);
}

/// SIGTERM, and its end.
fn ends(node: &mut Node) {
    let from = Instant::now();
    node.server.signal(libc::SIGTERM);
    assert_eq!(node.server.wait().code(), Some(0), "{}", node.server.err());
    println!("ended after {:?}", from.elapsed());
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

/// What these nodes serve for others is taken over. Without a broker, they keep what comes to them.
#[test]
fn the_brokers_of_guests_die_for_good() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let gaps = scene.crowd(&[vip(A), vip6(A)], CROWD, |_, nodes| {
        a_moment();
        nodes[1].broker = None;
        a_moment();
        let hangs = nodes[2].broker.as_ref().expect("it runs");
        hangs.signal(libc::SIGSTOP);
    });
    assert!(gaps[gaps.len() - 1] < Duration::from_secs(10), "{gaps:?}");
    scene.is_well(&[vip(A), vip(1), vip(2)]);
    scene.nodes[2]
        .broker
        .as_ref()
        .expect("it runs")
        .signal(libc::SIGCONT);
}

/// It has been asked to freeze a connection, which has gone on since: a broker that is late leaves it alone.
#[test]
fn a_broker_hangs_when_it_is_to_freeze_a_connection() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    scene.crowd(&[vip(A)], CROWD, |_, nodes| {
        for _ in 0..3 {
            a_moment();
            let broker = nodes[A].broker.as_ref().expect("it runs");
            broker.signal(libc::SIGSTOP);
            nodes[1].drain("a", true);
            a_moment(); // longer than the server waits for an answer
            broker.signal(libc::SIGCONT);
            nodes[1].drain("a", false);
        }
    });
    scene.is_well(&[vip(A)]);
}

/// Those of guests are not renewed in time, and their homes can't take over before their own brokers are there.
#[test]
fn all_brokers_die_at_once_and_come_back_late() {
    let Some(mut scene) = Scene::new() else {
        return;
    };
    let gaps = scene.crowd(&[vip(A), vip6(A)], CROWD, |segment, nodes| {
        a_moment();
        nodes.iter_mut().for_each(|node| node.broker = None);
        thread::sleep(Duration::from_millis(1_500)); // longer than a lease
        for (nth, node) in nodes.iter_mut().enumerate() {
            node.broker = Some(segment.broker(nth));
        }
    });
    assert!(gaps[gaps.len() - 1] < Duration::from_secs(10), "{gaps:?}");
    scene.is_well(&[vip(A), vip(1), vip(2)]);
}

/// It says so once, and the others serve on.
#[test]
fn nodes_lack_an_address_of_the_service() {
    let Some(scene) = Scene::new() else { return };
    (1..NODES.len()).for_each(|nth| scene.segment.has_vips(nth, A, false));
    scene.is_well(&[vip(A)]);
    for node in &scene.nodes[1..] {
        let what = "connections to 10.77.9.11 can't come here";
        node.server.err_line(&["WARN", "cluster: ", "ip addr add"]);
        assert_eq!(node.server.err().matches(what).count(), 1);
    }
    (1..NODES.len()).for_each(|nth| scene.segment.has_vips(nth, A, true));
    scene.is_well(&[vip(A)]);
    let served = scene.served();
    assert!(served.iter().all(|count| *count > 0), "{served:?}");
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
        ranges: 3,
        range_bytes_max: 2 << 20,
        requests: 100,
        from: None,
    };
    let tally = thread::scope(|scope| {
        let clients = scope.spawn(|| segment.client.within(|| load.run(&to, files)));
        for nth in 0..NODES.len() {
            a_moment();
            ends(&mut nodes[nth]);
            let broker = nodes[nth].broker.take();
            nodes[nth] = segment.server(nth, broker, &[]);
            nodes.iter().for_each(Node::sees_all_up);
        }
        clients.join().expect("no panic")
    });
    println!("{tally:?}");
    // A request may come in the moment in which the node that ends closes its connection between two responses.
    assert!(
        tally.wrong.is_empty() && tally.broken.len() <= 3,
        "{tally:?}"
    );
    scene.is_well(&to);
}
