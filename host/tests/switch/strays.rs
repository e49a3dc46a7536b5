//! Packets that are no plain segments of TCP, and bounds.

use std::net::SocketAddr;
use std::time::Duration;

use crate::packets::{ACK, Comes, Said, Sends, Stack, mac, of_client, tcp, too_big, tuple};
use crate::world::{A, B, CLIENT, World, address, peer, vip};

const AT_ONCE: Duration = Duration::from_millis(200);

#[test]
fn icmp_errors_follow_the_flow_that_they_are_about() {
    let Some(world) = World::new("icmp_errors_follow_the_flow_that_they_are_about") else {
        return;
    };
    let node = world.node(A);
    let sends = Sends::from(&world, CLIENT);
    let mac_a = mac(&world, A);
    for (errors, is_ipv6) in [(2, false), (4, true)] {
        let (away, home) = (tuple(is_ipv6, 4_000), tuple(is_ipv6, 4_001));
        let router = address(CLIENT, is_ipv6);
        let comes = Comes::to(&world, B, is_ipv6);
        let is_error = |packet: &[u8]| match packet[0] >> 4 {
            4 => packet[9] == 1 && packet[20] == 3,
            _ => packet[6] == 58 && packet[40] == 2,
        };
        node.with(move |it| {
            it.redirect(&away, peer(A, B, is_ipv6), 1)
                .expect("redirected")
        });
        sends.send(mac_a, &too_big(&away, router));
        assert!(comes.any(Duration::from_secs(2), is_error));
        sends.send(mac_a, &too_big(&home, router));
        assert!(
            !comes.any(AT_ONCE, is_error),
            "about a flow that is at home"
        );
        // It waits as a segment does.
        node.with(move |it| it.hold(&away, 2).expect("held"));
        sends.send(mac_a, &too_big(&away, router));
        assert!(!comes.any(AT_ONCE, is_error));
        let held = node.with(move |it| it.redirect(&away, peer(A, B, is_ipv6), 2));
        assert_eq!(held.expect("redirected"), 1);
        assert!(comes.any(Duration::from_secs(2), is_error));
        assert_eq!(
            node.with(|it| it.counts()).expect("some").errors_followed,
            errors
        );
        assert_eq!(
            node.with(move |it| it.track(&away)),
            None,
            "it says nothing of the client"
        );
    }
}

fn with_options(mut packet: Vec<u8>) -> Vec<u8> {
    packet.splice(20..20, [1; 4]); // four of "no operation"
    packet[0] = 0x46;
    let total = packet.len() as u16;
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    fresh_sum(&mut packet, 24);
    packet
}

fn fragments(packet: &[u8]) -> [Vec<u8>; 2] {
    let one = |from: usize, to: usize, more: u8| {
        let mut fragment = packet[..20].to_vec();
        fragment.extend(&packet[20 + from..20 + to]);
        let total = fragment.len() as u16;
        fragment[2..4].copy_from_slice(&total.to_be_bytes());
        fragment[4..6].copy_from_slice(&[7, 7]);
        fragment[6..8].copy_from_slice(&[more, (from / 8) as u8]);
        fresh_sum(&mut fragment, 20);
        fragment
    };
    [one(0, 64, 0x20), one(64, packet.len() - 20, 0)]
}

fn fresh_sum(packet: &mut [u8], head: usize) {
    packet[10..12].copy_from_slice(&[0, 0]);
    let words = packet[..head]
        .chunks(2)
        .map(|it| u32::from(it[0]) << 8 | u32::from(it[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[test]
fn fragments_and_options_are_dropped_for_a_vip_alone() {
    let Some(world) = World::new("fragments_and_options_are_dropped_for_a_vip_alone") else {
        return;
    };
    let node = world.node(A);
    let (sends, mac_a) = (Sends::from(&world, CLIENT), mac(&world, A));
    let stack = Stack::of(&world, A, false);
    let said = Said {
        seq: 1,
        ack: 1,
        flags: ACK,
    };
    for (port, to, comes) in [(4_000, address(A, false), 3), (4_001, vip(false), 1)] {
        let from = SocketAddr::new(address(CLIENT, false), port);
        let whole = tcp(from, SocketAddr::new(to, 80), said, &[5; 200]);
        sends.send(mac_a, &whole);
        sends.send(mac_a, &with_options(whole.clone()));
        fragments(&whole)
            .iter()
            .for_each(|one| sends.send(mac_a, one));
        assert_eq!(stack.came(port).len(), comes, "{to}");
    }
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert_eq!((counts.options, counts.fragments), (1, 2));

    // The same by IPv6: a fragment header, and destination options.
    for to in [address(A, true), vip(true)] {
        let from = SocketAddr::new(address(CLIENT, true), 4_000);
        let whole = tcp(from, SocketAddr::new(to, 80), said, &[5; 200]);
        for (header, extra) in [
            (44, [6, 0, 0, 1, 0, 0, 0, 9]),
            (60, [6, 0, 1, 4, 0, 0, 0, 0]),
        ] {
            let mut packet = whole.clone();
            packet.splice(40..40, extra);
            packet[6] = header;
            packet[5] += 8;
            sends.send(mac_a, &packet);
        }
    }
    std::thread::sleep(AT_ONCE);
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert_eq!((counts.options, counts.fragments), (2, 3));
}

#[test]
fn what_is_beyond_the_bounds_is_dropped_and_counted() {
    let Some(world) = World::new("what_is_beyond_the_bounds_is_dropped_and_counted") else {
        return;
    };
    let node = world.node(A);
    let (sends, mac_a) = (Sends::from(&world, CLIENT), mac(&world, A));
    let comes = Comes::to(&world, B, false);
    let flow = tuple(false, 4_000);
    node.with(move |it| it.hold(&flow, 1).expect("held"));
    for number in 0..2_100 {
        sends.send(mac_a, &of_client(&flow, number, 1, ACK, b""));
    }
    // One that was damaged on its way stays so.
    let mut damaged = of_client(&flow, 999, 1, ACK, b"damaged");
    *damaged.last_mut().expect("some") ^= 1;
    let other = tuple(false, 4_001);
    node.with(move |it| it.hold(&other, 1).expect("held"));
    damaged[20..22].copy_from_slice(&4_001u16.to_be_bytes());
    sends.send(mac_a, &damaged);
    node.with(move |it| {
        it.redirect(&flow, peer(A, B, false), 1)
            .expect("redirected")
    });
    node.with(move |it| {
        it.redirect(&other, peer(A, B, false), 1)
            .expect("redirected")
    });
    assert_eq!(comes.of(&flow, 2_100, AT_ONCE).len(), 2_048);
    assert_eq!(comes.of(&other, 1, AT_ONCE), []);
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert_eq!((counts.held, counts.no_room), (2_101, 52));
    assert_eq!((counts.released, counts.damaged), (2_048, 1));
}

#[test]
fn a_full_map_refuses_and_forgets_nothing() {
    let Some(world) = World::new("a_full_map_refuses_and_forgets_nothing") else {
        return;
    };
    let node = world.node(A);
    let flow = |number: usize| {
        let mut flow = tuple(true, (number % 60_000) as u16 + 1);
        let host = format!("fd77:1::{:x}", number / 60_000 + 1);
        flow.client.set_ip(host.parse().expect("an address"));
        flow
    };
    let full = ackpace_host::handoff::switch::FLOWS_MAX;
    node.with(move |it| {
        for number in 1..full {
            it.redirect(&flow(number), 2, 1).expect("there is room");
        }
        // Its owner counts on it: there is no way back when the other node has started.
        it.hold(&flow(0), 1).expect("there is room for one");
        it.redirect(&flow(0), 2, 1)
            .expect("one that is frozen has its place");
        let refused = it.hold(&flow(full), 1).expect_err("there is none");
        assert!(refused.to_string().contains("no room"), "{refused}");
        assert_eq!(it.entries().expect("all"), full);
        let from = std::time::Instant::now();
        assert_eq!(it.forget_idle(u64::MAX).expect("all"), full);
        println!("all are looked at in {:?}", from.elapsed());
        assert!(
            (0..full)
                .step_by(997)
                .all(|number| it.epoch(&flow(number)) == Some(1))
        );
        it.hold(&flow(7), 2).expect("one that is there may change");
        it.claim(&flow(9), 2, None).expect("claimed");
        it.hold(&flow(full), 1).expect("there is room again");
    });
}
