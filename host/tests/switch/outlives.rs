//! What stays when the process goes.

use std::process::{Command, Stdio};
use std::time::Duration;

use ackpace_host::handoff::switch::{Settings, Switch};
use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::clock::monotonic_ns;

use crate::packets::{ACK, Comes, Sends, mac, of_client, tuple};
use crate::streams;
use crate::world::{A, B, CLIENT, World, enter, peer};

const SPACE: &str = "ACKPACE_SWITCH_SPACE";

/// Not a test: the process that is killed.
#[test]
fn a_process_that_waits_to_be_killed() {
    let Ok(space) = std::env::var(SPACE) else {
        return;
    };
    enter(&space);
    let settings: Settings = World::settings_of(A);
    let mut switch = Switch::start(&settings).expect("started");
    let [away, frozen] = [4_000, 4_001].map(|port| tuple(false, port));
    switch
        .redirect(&away, peer(A, B, false), 7)
        .expect("redirected");
    let lease = monotonic_ns() + 60_000_000_000;
    switch
        .claim(&tuple(false, 4_002), 8, Some(lease))
        .expect("claimed");
    switch.hold(&frozen, 9).expect("held");
    let guest = tuple(false, 4_003);
    switch.claim(&guest, 8, Some(lease)).expect("claimed");
    switch.hold(&guest, 9).expect("held");
    println!("started");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_process_leaves_all_as_it_is_and_the_next_one_finds_it() {
    let Some(world) = World::new("a_killed_process_leaves_all_as_it_is_and_the_next_one_finds_it")
    else {
        return;
    };
    let own = std::env::current_exe().expect("this one");
    let mut child = Command::new(own)
        .args([
            "--exact",
            "outlives::a_process_that_waits_to_be_killed",
            "--nocapture",
        ])
        .env(SPACE, world.space(A))
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let told = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut lines = std::io::BufRead::lines(told);
    let started = lines.any(|line| line.is_ok_and(|line| line.ends_with("started")));
    assert!(started);
    let refused = world.within(A, || Switch::clear().expect_err("it is used").to_string());
    assert!(
        refused.contains(&format!("process {} uses these programs", child.id())),
        "{refused}"
    );
    let (sends, comes) = (Sends::from(&world, CLIENT), Comes::to(&world, B, false));
    let mac_a = mac(&world, A);
    let [away, frozen, guest] = [4_000, 4_001, 4_002].map(|port| tuple(false, port));
    sends.send(mac_a, &of_client(&frozen, 5, 5, ACK, b""));
    child.kill().expect("our own");
    child.wait().expect("our own");
    for number in 0..3 {
        sends.send(mac_a, &of_client(&away, number, 1, ACK, b""));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(
        comes.of(&away, 3, Duration::from_secs(1)).len(),
        3,
        "nobody is needed for that"
    );

    // Nor for the end of a hold: of both, nobody is here, so the own stack says RST; a guest's may not leave.
    std::thread::sleep(Duration::from_secs(1));
    for (flow, resets) in [(frozen, 1), (tuple(false, 4_003), 0)] {
        let answers = Comes::to(&world, CLIENT, false);
        sends.send(mac_a, &of_client(&flow, 6, 6, ACK, b""));
        assert_eq!(
            answers.of(&flow, 1, Duration::from_millis(300)).len(),
            resets
        );
    }

    let node = world.node(A);
    let epochs = node.with(move |it| [away, guest].map(|flow| it.epoch(&flow)));
    assert_eq!(epochs, [Some(7), Some(8)]);
    assert_eq!(node.with(|it| it.counts()).expect("some").forwarded, 3);
    assert!(node.with(move |it| it.redirect(&away, 0, 6)).is_err());
    sends.send(mac_a, &of_client(&away, 9, 1, ACK, b""));
    assert_eq!(
        comes.of(&away, 1, Duration::from_secs(1)).len(),
        1,
        "and goes on"
    );
    // What the killed one had kept is there yet.
    node.with(move |it| {
        it.redirect(&frozen, peer(A, B, false), 9)
            .expect("redirected")
    });
    let kept = comes.of(&frozen, 1, Duration::from_secs(1));
    assert_eq!(kept.first().map(|came| came.said().seq), Some(5));

    // A second one is refused; a cleared node does nothing any more.
    let settings = world.settings(A);
    let second = world.within(A, move || {
        Switch::start(&settings).err().map(|why| why.to_string())
    });
    assert!(second.is_some_and(|why| why.contains("already")));
    drop(node);
    world.within(A, || Switch::clear().expect("cleared"));
    std::thread::sleep(Duration::from_millis(200)); // the kernel takes them off a little later
    sends.send(mac_a, &of_client(&away, 10, 1, ACK, b""));
    assert_eq!(comes.of(&away, 1, Duration::from_millis(200)), []);
    let node = world.node(A);
    assert_eq!(node.with(|it| it.entries()).expect("none"), 0);
}

#[test]
fn it_needs_no_right_to_bpf_once_it_has_started() {
    let Some(world) = World::new("it_needs_no_right_to_bpf_once_it_has_started") else {
        return;
    };
    let node = world.node(A);
    node.with(|_| {
        capabilities::keep_only(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW)
            .expect("given up")
    });
    let listener = streams::listen(&world, A, false);
    let (flow, client, mut server) = streams::connect(&world, &listener, false, 4_000);
    node.with(move |it| it.hold(&flow, 1).expect("held"));
    streams::write(&client, streams::pattern(100_000));
    std::thread::sleep(Duration::from_millis(20));
    node.with(move |it| it.thaw(&flow));
    assert!(streams::comes(&mut server, &streams::pattern(100_000)));
    let other = tuple(false, 4_001);
    node.with(move |it| {
        it.redirect(&other, 0, 1).expect("redirected");
        it.forget(&other);
        it.hear();
        assert_eq!(it.entries().expect("one"), 1);
        // An answer of the stack to that would be RST; it is only looked whether it takes it.
        it.inject(&of_client(&other, 1, 1, ACK, b""))
            .expect("injected");
        it.inject(&of_client(&tuple(true, 4_001), 1, 1, ACK, b""))
            .expect("injected");
        let mut strange = of_client(&other, 1, 1, ACK, b"");
        strange[19] = 8;
        assert!(it.inject(&strange).is_err(), "no VIP");
        assert!(it.inject(&[]).is_err());
    });
}

#[test]
fn settings_that_can_not_be_are_refused() {
    let Some(world) = World::new("settings_that_can_not_be_are_refused") else {
        return;
    };
    type Change = fn(&mut Settings);
    let cases: [(&str, Change); 6] = [
        ("0 VIPs", |it| it.vips.clear()),
        ("0 ports", |it| it.ports.clear()),
        ("not on an Ethernet segment", |it| {
            it.peers.push("192.0.2.1".parse().expect("an address"))
        }),
        ("this node itself", |it| {
            it.peers.push("10.77.0.2".parse().expect("an address"))
        }),
        ("not an Ethernet device that is up", |it| {
            it.devices.push("lo".to_owned())
        }),
        ("65 peers", |it| it.peers.resize(65, it.peers[0])),
    ];
    for (expected, change) in cases {
        let mut settings = world.settings(A);
        change(&mut settings);
        let why = world.within(A, move || {
            Switch::start(&settings).err().map(|why| why.to_string())
        });
        assert!(
            why.as_ref().is_some_and(|why| why.contains(expected)),
            "{expected}: {why:?}"
        );
    }
}
