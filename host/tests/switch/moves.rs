//! Packets go to the owner: sent on, kept and released.

use std::time::Duration;

use ackpace_host::handoff::switch::Tracked;

use crate::packets::{self, ACK, Comes, SYN, Said, Sends, Stack, mac, of_client, tcp_with, tuple};
use crate::streams;
use crate::world::{A, B, C, CLIENT, Node, World, peer, run};

const SOON: Duration = Duration::from_secs(2);
const AT_ONCE: Duration = Duration::from_millis(200);

/// Less than a hold lasts.
fn wait_until(mut is_so: impl FnMut() -> bool) {
    for _ in 0..80 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn packets_go_to_the_peer_by_its_mac_with_a_lower_ttl() {
    let Some(world) = World::new("packets_go_to_the_peer_by_its_mac_with_a_lower_ttl") else {
        return;
    };
    let node = world.node(A);
    let (mac_a, mac_b) = (mac(&world, A), mac(&world, B));
    // The last: a packet of IPv4 by a peer's address of IPv6.
    for (port, is_ipv6, by_ipv6) in [
        (4_000, false, false),
        (4_001, true, true),
        (4_002, false, true),
    ] {
        let tuple = tuple(is_ipv6, port);
        let sends = Sends::from(&world, CLIENT);
        let comes = Comes::to(&world, B, is_ipv6);
        let peer = peer(A, B, by_ipv6);
        let held = node.with(move |it| it.redirect(&tuple, peer, 1).expect("redirected"));
        assert_eq!(held, 0);
        // The kernel asks for the MAC again if it has forgotten it.
        run(&format!("-n {} neigh flush dev eth0", world.space(A)));
        for number in 0..3u32 {
            sends.send(mac_a, &of_client(&tuple, number, 7, ACK, b"hello"));
        }
        let came = comes.of(&tuple, 3, SOON);
        assert_eq!(came.len(), 3, "{port}: {:?}", node.with(|it| it.counts()));
        for (number, came) in came.iter().enumerate() {
            assert_eq!(
                (came.to, came.ttl, came.said().seq),
                (mac_b, 63, number as u32)
            );
            assert!(packets::is_whole(&came.packet));
        }
        let tracked = node.with(move |it| it.track(&tuple));
        assert_eq!(
            tracked,
            Some(Tracked {
                ack: 7,
                seq_end: 7,
                held_end: 7
            })
        );
    }
    let refused = node.with(move |it| it.redirect(&tuple(true, 4_003), peer(A, B, false), 1));
    let why = refused.expect_err("IPv6 by IPv4").to_string();
    assert!(why.contains("takes no packets of IPv6"), "{why}");
}

#[test]
fn held_packets_go_to_the_peer_first_and_in_order() {
    let Some(world) = World::new("held_packets_go_to_the_peer_first_and_in_order") else {
        return;
    };
    let node = world.node(A);
    let mac_a = mac(&world, A);
    for is_ipv6 in [false, true] {
        let tuple = tuple(is_ipv6, 4_000);
        let (sends, comes) = (Sends::from(&world, CLIENT), Comes::to(&world, C, is_ipv6));
        node.with(move |it| it.hold(&tuple, 1).expect("held"));
        let send = |numbers: std::ops::Range<u32>| {
            for number in numbers {
                sends.send(mac_a, &of_client(&tuple, number, 7, ACK, &[9; 1_000]));
            }
        };
        send(0..60);
        node.with(|it| it.hear());
        send(60..100);
        assert_eq!(comes.of(&tuple, 1, AT_ONCE), [], "it is frozen");
        let held = node.with(move |it| {
            it.redirect(&tuple, peer(A, C, is_ipv6), 2)
                .expect("redirected")
        });
        assert_eq!(held, 100);
        send(100..110);
        let came = comes.of(&tuple, 110, SOON);
        let order: Vec<u32> = came.iter().map(|came| came.said().seq).collect();
        assert_eq!(order, (0..110).collect::<Vec<u32>>());
        assert!(
            came.iter()
                .all(|came| came.ttl == 63 && packets::is_whole(&came.packet))
        );
    }
}

#[test]
fn held_packets_go_into_the_own_stack_after_a_thaw() {
    let Some(world) = World::new("held_packets_go_into_the_own_stack_after_a_thaw") else {
        return;
    };
    let node = world.node(A);
    let mac_a = mac(&world, A);
    for is_ipv6 in [false, true] {
        let listener = streams::listen(&world, A, is_ipv6);
        let (tuple, client, mut server) = streams::connect(&world, &listener, is_ipv6, 4_000);
        let sent = streams::pattern(400_000);
        for round in 0..5 {
            node.with(move |it| it.hold(&tuple, round).expect("held"));
            streams::write(&client, sent.clone());
            wait_until(|| {
                node.with(|it| it.counts())
                    .is_ok_and(|it| it.held > it.released)
            });
            node.with(move |it| it.thaw(&tuple));
            assert!(streams::comes(&mut server, &sent), "{round}");
            assert_eq!(node.with(move |it| it.epoch(&tuple)), None, "home again");
        }
        // In their order, also where nobody listens.
        let (flow, stack) = (
            packets::tuple(is_ipv6, 4_001),
            Stack::of(&world, A, is_ipv6),
        );
        let sends = Sends::from(&world, CLIENT);
        node.with(move |it| it.hold(&flow, 1).expect("held"));
        for number in 0..100 {
            sends.send(mac_a, &of_client(&flow, number, 1, ACK, &[7; 1_000]));
        }
        node.with(move |it| it.thaw(&flow));
        let order: Vec<u32> = stack.came(4_001).iter().map(|said| said.seq).collect();
        assert_eq!(order, (0..100).collect::<Vec<u32>>());
    }
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert_eq!(
        (counts.released, counts.damaged, counts.not_sent),
        (counts.held, 0, 0)
    );
    assert!(counts.held >= 10, "{counts:?}");
}

/// Segments that GRO or the sender's TSO has merged are cut again on their way out.
#[test]
fn an_upload_arrives_whole_by_a_node_that_sends_it_on() {
    let Some(world) = World::new("an_upload_arrives_whole_by_a_node_that_sends_it_on") else {
        return;
    };
    let node = world.node(A);
    world.cut_at(A);
    let sent = streams::pattern(20_000_000);
    for (port, is_ipv6, is_by_gro) in [
        (4_000, false, false),
        (4_001, true, false),
        (4_002, false, true),
        (4_003, true, true),
    ] {
        if is_by_gro {
            world.merge_at(A);
        }
        let before = node.with(|it| it.counts()).expect("there are some");
        let tuple = tuple(is_ipv6, port);
        node.with(move |it| {
            it.redirect(&tuple, peer(A, B, is_ipv6), 1)
                .expect("redirected")
        });
        let listener = streams::listen(&world, B, is_ipv6);
        let (_, client, mut server) = streams::connect(&world, &listener, is_ipv6, port);
        streams::write(&client, sent.clone());
        assert!(streams::comes(&mut server, &sent));
        // Held in between, and released as large as they came.
        for round in 2..8 {
            node.with(move |it| it.hold(&tuple, round).expect("held"));
            streams::write(&client, sent[..200_000].to_vec());
            wait_until(|| {
                node.with(|it| it.counts())
                    .is_ok_and(|it| it.held > it.released)
            });
            let held = node.with(move |it| it.redirect(&tuple, peer(A, B, is_ipv6), round));
            assert!(held.expect("redirected") > 0, "{round}");
            assert!(streams::comes(&mut server, &sent[..200_000]));
        }
        streams::write(&server, sent.clone());
        let mut client = client;
        assert!(streams::comes(&mut client, &sent), "and directly back");
        let counts = node.with(|it| it.counts()).expect("there are some");
        assert_eq!((counts.damaged, counts.not_sent, counts.no_room), (0, 0, 0));
        // One by one, 22 MB would be 15,500 segments; the ACKs of the way back come on top.
        let forwarded = counts.forwarded - before.forwarded;
        assert!(forwarded < 10_000, "they came merged, {port}: {counts:?}");
    }
}

#[test]
fn an_upload_that_is_frozen_again_and_again_loses_nothing() {
    let Some(world) = World::new("an_upload_that_is_frozen_again_and_again_loses_nothing") else {
        return;
    };
    let node = world.node(A);
    for is_ipv6 in [false, true] {
        let tuple = tuple(is_ipv6, 4_000);
        node.with(move |it| {
            it.redirect(&tuple, peer(A, B, is_ipv6), 0)
                .expect("redirected")
        });
        let listener = streams::listen(&world, B, is_ipv6);
        // What may come while it is frozen, however long that takes here, has room.
        rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 500_000).expect("a size");
        let (_, client, mut server) = streams::connect(&world, &listener, is_ipv6, 4_000);
        let sent = streams::pattern(50_000_000);
        streams::write(&client, sent.clone());
        let reads = std::thread::spawn(move || streams::comes(&mut server, &sent));
        let mut rounds = 0;
        while !reads.is_finished() && rounds < 1_000 {
            rounds += 1;
            node.with(move |it| it.hold(&tuple, rounds).expect("held"));
            std::thread::sleep(Duration::from_micros(700));
            node.with(move |it| {
                it.redirect(&tuple, peer(A, B, is_ipv6), rounds)
                    .expect("redirected")
            });
            std::thread::sleep(Duration::from_micros(700));
        }
        assert!(reads.join().expect("no panic"));
        println!(
            "{rounds} rounds, {} segments sent again",
            streams::sent_again(&client)
        );
    }
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert_eq!(counts.released, counts.held);
    assert_eq!(
        (
            counts.no_room,
            counts.ring_full,
            counts.damaged,
            counts.not_sent
        ),
        (0, 0, 0, 0)
    );
}

#[test]
fn a_syn_on_a_moved_tuple_goes_to_its_owner() {
    let Some(world) = World::new("a_syn_on_a_moved_tuple_goes_to_its_owner") else {
        return;
    };
    let node = world.node(A);
    let tuple = tuple(false, 4_000);
    let (sends, comes) = (Sends::from(&world, CLIENT), Comes::to(&world, B, false));
    node.with(move |it| {
        it.redirect(&tuple, peer(A, B, false), 1)
            .expect("redirected")
    });
    sends.send(mac(&world, A), &of_client(&tuple, 5, 0, SYN, b""));
    let came = comes.of(&tuple, 1, SOON);
    assert_eq!(came.first().map(|came| came.said().flags), Some(SYN));
    assert_eq!(
        node.with(move |it| it.epoch(&tuple)),
        Some(1),
        "the entry stays"
    );
    assert_eq!(
        node.with(move |it| it.track(&tuple)),
        None,
        "it acknowledges nothing"
    );
}

/// The client has ended a connection that had moved, and uses its port again.
#[test]
fn a_syn_ends_what_is_forgotten() {
    let Some(world) = World::new("a_syn_ends_what_is_forgotten") else {
        return;
    };
    let node = world.node(A);
    let (sends, stack) = (Sends::from(&world, CLIENT), Stack::of(&world, A, false));
    let to = mac(&world, A);
    for (port, is_fenced) in [(4_000, false), (4_001, true)] {
        let tuple = tuple(false, port);
        node.with(move |it| {
            it.redirect(&tuple, peer(A, B, false), 1)
                .expect("redirected");
            if is_fenced {
                it.fence(&tuple, 2).expect("fenced");
            }
            it.forget(&tuple);
        });
        sends.send(to, &of_client(&tuple, 5, 7, ACK, b"late"));
        sends.send(to, &of_client(&tuple, 5, 7, SYN | ACK, b""));
        assert_eq!(stack.came(port), [], "that was on its way");
        sends.send(to, &of_client(&tuple, 50, 0, SYN, b""));
        sends.send(to, &of_client(&tuple, 51, 70, ACK, b"first"));
        let came: Vec<u8> = stack.came(port).iter().map(|said| said.flags).collect();
        assert_eq!(came, [SYN, ACK]);
        assert_eq!(node.with(move |it| it.epoch(&tuple)), None);
    }
}

#[test]
fn nodes_may_have_a_segment_of_their_own() {
    let Some(world) = World::new("nodes_may_have_a_segment_of_their_own") else {
        return;
    };
    let (a, b) = (world.space(A), world.space(B));
    run(&format!(
        "link add own netns {a} type veth peer name own netns {b}"
    ));
    for (space, host) in [(&a, 2), (&b, 3)] {
        run(&format!("-n {space} addr add 10.78.0.{host}/24 dev own"));
        run(&format!("-n {space} link set own up"));
    }
    let mut settings = world.settings(A);
    settings.peers = vec!["10.78.0.3".parse().expect("an address")];
    let node = Node::start(a.clone(), settings);
    let flow = tuple(false, 4_000);
    node.with(move |it| it.redirect(&flow, 0, 1).expect("redirected"));
    let listener = streams::listen(&world, B, false);
    let (_, client, mut server) = streams::connect(&world, &listener, false, 4_000);
    let sent = streams::pattern(2_000_000);
    streams::write(&client, sent.clone());
    assert!(streams::comes(&mut server, &sent));
    node.with(move |it| it.hold(&flow, 2).expect("held"));
    streams::write(&client, sent[..100_000].to_vec());
    wait_until(|| node.with(|it| it.counts()).is_ok_and(|it| it.held > 0));
    node.with(move |it| it.redirect(&flow, 0, 2).expect("redirected"));
    assert!(streams::comes(&mut server, &sent[..100_000]));
    // The programs stand there, too: a device on which clients' packets may come as well.
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert_eq!((counts.looped, counts.silenced, counts.no_room), (0, 0, 0));
}

#[test]
fn packets_follow_a_flow_that_has_moved_twice() {
    let Some(world) = World::new("packets_follow_a_flow_that_has_moved_twice") else {
        return;
    };
    let (a, b) = (world.node(A), world.node(B));
    let tuple = tuple(true, 4_000);
    let (sends, comes) = (Sends::from(&world, CLIENT), Comes::to(&world, C, true));
    a.with(move |it| {
        it.redirect(&tuple, peer(A, B, true), 1)
            .expect("redirected")
    });
    b.with(move |it| {
        it.redirect(&tuple, peer(B, C, true), 2)
            .expect("redirected")
    });
    sends.send(mac(&world, A), &of_client(&tuple, 5, 5, ACK, b"hello"));
    let came = comes.of(&tuple, 1, SOON);
    assert_eq!(
        came.first().map(|came| (came.to, came.ttl)),
        Some((mac(&world, C), 62))
    );
}

#[test]
fn a_frame_for_another_node_is_left_alone() {
    let Some(world) = World::new("a_frame_for_another_node_is_left_alone") else {
        return;
    };
    let node = world.node(A);
    let tuple = tuple(false, 4_000);
    let (sends, comes) = (Sends::from(&world, CLIENT), Comes::to(&world, B, false));
    node.with(move |it| {
        it.redirect(&tuple, peer(A, B, false), 1)
            .expect("redirected")
    });
    // Nobody has this MAC, so the bridge sends it to all.
    sends.send([2, 0, 0, 0, 0, 9], &of_client(&tuple, 5, 5, ACK, b"hello"));
    let came = comes.of(&tuple, 2, AT_ONCE);
    assert_eq!(
        came.iter().map(|came| came.ttl).collect::<Vec<_>>(),
        [64],
        "as it was sent"
    );
    assert_eq!(node.with(|it| it.counts()).expect("some").forwarded, 0);
    assert_eq!(node.with(move |it| it.track(&tuple)), None);
}

#[test]
fn two_nodes_that_point_at_each_other_end_by_the_ttl() {
    let Some(world) = World::new("two_nodes_that_point_at_each_other_end_by_the_ttl") else {
        return;
    };
    let (a, b) = (world.node(A), world.node(B));
    let sends = Sends::from(&world, CLIENT);
    for (packets, is_ipv6) in [(1, false), (2, true)] {
        let tuple = tuple(is_ipv6, 4_000);
        a.with(move |it| {
            it.redirect(&tuple, peer(A, B, is_ipv6), 1)
                .expect("redirected")
        });
        b.with(move |it| {
            it.redirect(&tuple, peer(B, A, is_ipv6), 1)
                .expect("redirected")
        });
        sends.send(mac(&world, A), &of_client(&tuple, 1, 1, ACK, b""));
        std::thread::sleep(Duration::from_millis(300));
        let counts = [&a, &b].map(|node| node.with(|it| it.counts()).expect("there are some"));
        assert_eq!(counts[0].looped + counts[1].looped, packets);
        assert_eq!(counts[0].forwarded + counts[1].forwarded, packets * 63);
    }
}

#[test]
fn what_the_client_said_last_is_tracked_also_where_numbers_wrap() {
    let Some(world) = World::new("what_the_client_said_last_is_tracked_also_where_numbers_wrap")
    else {
        return;
    };
    let node = world.node(A);
    let sends = Sends::from(&world, CLIENT);
    let mac_a = mac(&world, A);
    for is_ipv6 in [false, true] {
        let tuple = tuple(is_ipv6, 4_000);
        assert_eq!(node.with(move |it| it.track(&tuple)), None);
        node.with(move |it| it.fence(&tuple, 1).expect("fenced"));
        assert_eq!(
            node.with(move |it| it.track(&tuple)),
            None,
            "nothing came yet"
        );
        let said = |seq: u32, ack: u32, payload: &[u8]| {
            sends.send(mac_a, &of_client(&tuple, seq, ack, ACK, payload));
            std::thread::sleep(Duration::from_millis(20));
            let tracked = node.with(move |it| it.track(&tuple)).expect("one came");
            (tracked.ack, tracked.seq_end)
        };
        assert_eq!(
            said(u32::MAX - 9, u32::MAX - 1, &[0; 4]),
            (u32::MAX - 1, u32::MAX - 5)
        );
        assert_eq!(said(u32::MAX - 5, 3, &[0; 100]), (3, 94), "both wrap");
        assert_eq!(said(u32::MAX - 9, u32::MAX, &[0; 4]), (3, 94), "an old one");
        assert_eq!(said(90, 7, &[]), (7, 94));
        // What lies above a hole is held as well: timestamps, then SACK of two blocks, the second one older.
        let sack = |ack: u32, edges: [u32; 2]| {
            let mut options = vec![1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 5, 18];
            for edge in edges {
                options.extend((edge - 10).to_be_bytes());
                options.extend(edge.to_be_bytes());
            }
            let (seq, flags) = (94, ACK);
            let said = Said { seq, ack, flags };
            let packet = tcp_with(tuple.client, tuple.server, said, &options, &[]);
            sends.send(mac_a, &packet);
            std::thread::sleep(Duration::from_millis(20));
            let tracked = node.with(move |it| it.track(&tuple)).expect("one came");
            (tracked.ack, tracked.held_end)
        };
        assert_eq!(sack(7, [500, 300]), (7, 500));
        assert_eq!(sack(8, [400, 300]), (8, 500), "an old one");
        // It stays so in each change of the entry, and goes on after the flow is taken over.
        node.with(move |it| it.claim(&tuple, 2, None).expect("claimed"));
        assert_eq!(said(94, 9, &[0; 6]), (9, 100));
        node.with(move |it| {
            it.redirect(&tuple, peer(A, B, is_ipv6), 3)
                .expect("redirected")
        });
        assert_eq!(
            node.with(move |it| it.track(&tuple)),
            Some(Tracked {
                ack: 9,
                seq_end: 100,
                held_end: 500,
            })
        );
    }
    assert_eq!(node.with(|it| it.counts()).expect("some").fenced, 12);
}
