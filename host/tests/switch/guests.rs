//! What a node may send of a flow, by whose decision.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use ackpace_host_base::clock::monotonic_ns;
use ackpace_wire::cluster::broker::FAREWELL_PRIORITY;

use crate::packets::{ACK, Comes, FIN, RST, SYN, Sends, mac, of_client, tuple};
use crate::streams;
use crate::world::{A, B, CLIENT, World, peer};

const MS: u64 = 1_000_000;
const AT_ONCE: Duration = Duration::from_millis(150);

#[test]
fn a_guest_sends_only_by_its_lease() {
    let Some(world) = World::new("a_guest_sends_only_by_its_lease") else {
        return;
    };
    let node = world.node(A);
    for is_ipv6 in [false, true] {
        let listener = streams::listen(&world, A, is_ipv6);
        let (tuple, mut client, mut server) = streams::connect(&world, &listener, is_ipv6, 4_000);
        let claimed = move |ms: u64| Some(monotonic_ns() + ms * MS);
        node.with(move |it| it.claim(&tuple, 1, claimed(300)).expect("claimed"));
        server.write_all(b"while it is valid").expect("sent");
        assert_eq!(streams::within(&mut client, AT_ONCE), Some(17));
        std::thread::sleep(Duration::from_millis(300));
        server.write_all(b"after it").expect("sent");
        assert_eq!(streams::within(&mut client, AT_ONCE), None);
        let late = node.with(move |it| it.lease(&tuple, 0, monotonic_ns() + 1_000 * MS));
        assert!(late.is_err(), "another's decision");
        assert_eq!(streams::within(&mut client, AT_ONCE), None);
        node.with(move |it| {
            it.lease(&tuple, 1, monotonic_ns() + 3_000 * MS)
                .expect("renewed")
        });
        assert_eq!(
            streams::within(&mut client, Duration::from_secs(2)),
            Some(8),
            "sent again"
        );
        // Frozen, it does not send, and is the same guest after that.
        node.with(move |it| it.hold(&tuple, 2).expect("held"));
        server.write_all(b"x").expect("sent");
        assert_eq!(streams::within(&mut client, AT_ONCE), None);
        node.with(move |it| it.thaw(&tuple));
        assert_eq!(
            streams::within(&mut client, Duration::from_secs(2)),
            Some(1)
        );
        assert_eq!(node.with(move |it| it.epoch(&tuple)), Some(2));
        // Home has no limits.
        node.with(move |it| it.claim(&tuple, 3, None).expect("claimed"));
        assert_eq!(node.with(move |it| it.epoch(&tuple)), None);
        drop(server);
        assert_eq!(
            streams::within(&mut client, Duration::from_secs(2)),
            Some(0),
            "FIN"
        );
    }
    let counts = node.with(|it| it.counts()).expect("there are some");
    assert!(counts.lease_over >= 2 && counts.silenced >= 2, "{counts:?}");
}

#[test]
fn fin_and_rst_of_a_guest_never_leave() {
    let Some(world) = World::new("fin_and_rst_of_a_guest_never_leave") else {
        return;
    };
    let node = world.node(A);
    let comes = [false, true].map(|is_ipv6| Comes::to(&world, CLIENT, is_ipv6));
    for (port, is_ipv6, is_reset) in [
        (4_000, false, false),
        (4_001, true, true),
        (4_002, false, true),
    ] {
        let listener = streams::listen(&world, A, is_ipv6);
        let (tuple, mut client, server) = streams::connect(&world, &listener, is_ipv6, port);
        let lease = monotonic_ns() + 60_000 * MS;
        node.with(move |it| it.claim(&tuple, 1, Some(lease)).expect("claimed"));
        if is_reset {
            let reset = rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO));
            reset.expect("it is a socket");
        }
        drop(server);
        // The stack would answer this by RST.
        client.write_all(b"is there anybody?").expect("sent");
        assert_eq!(
            streams::within(&mut client, Duration::from_millis(400)),
            None,
            "{port}"
        );
        let came = comes[usize::from(is_ipv6)].of(&tuple, 1_000, AT_ONCE);
        assert!(
            came.iter().all(|came| came.said().flags & (FIN | RST) == 0),
            "{port}"
        );
        assert!(
            came.iter().any(|came| came.said().flags & ACK != 0),
            "it does see packets"
        );
        // Not even when it is forgotten soon.
        node.with(move |it| it.forget(&tuple));
        assert_eq!(streams::within(&mut client, AT_ONCE), None);
    }
    assert!(node.with(|it| it.counts()).expect("some").muted >= 3);
}

/// As when it has gone home: frozen here, and not thawed.
#[test]
fn a_guest_that_is_forgotten_while_it_is_frozen_leaves_nothing() {
    let Some(world) = World::new("a_guest_that_is_forgotten_while_it_is_frozen_leaves_nothing")
    else {
        return;
    };
    let node = world.node(A);
    let (tuple, lease) = (tuple(false, 4_000), monotonic_ns() + 60_000 * MS);
    node.with(move |it| {
        it.claim(&tuple, 1, Some(lease)).expect("claimed");
        it.hold(&tuple, 1).expect("held");
        it.forget(&tuple);
    });
    let comes = Comes::to(&world, CLIENT, false);
    let sends = Sends::from(&world, CLIENT);
    sends.send(mac(&world, A), &of_client(&tuple, 1, 1, ACK, b"late"));
    assert_eq!(comes.of(&tuple, 1, AT_ONCE), [], "no RST");
    std::thread::sleep(Duration::from_millis(3_200)); // longer than a hold, and than what is forgotten is kept
    node.with(|it| it.hear());
    assert_eq!(node.with(|it| it.entries()).expect("all"), 0);
}

/// Its home does not know yet that the client has reset the connection, and sends the next SYN on.
#[test]
fn a_guest_takes_no_new_connection_of_the_same_port() {
    let Some(world) = World::new("a_guest_takes_no_new_connection_of_the_same_port") else {
        return;
    };
    let node = world.node(A);
    let _listener = streams::listen(&world, A, false);
    let (tuple, lease) = (tuple(false, 4_000), monotonic_ns() + 60_000 * MS);
    node.with(move |it| it.claim(&tuple, 1, Some(lease)).expect("claimed"));
    let (sends, comes) = (
        Sends::from(&world, CLIENT),
        Comes::to(&world, CLIENT, false),
    );
    sends.send(mac(&world, A), &of_client(&tuple, 5, 0, SYN, b""));
    assert_eq!(comes.of(&tuple, 1, AT_ONCE), []);
    assert_eq!(node.with(|it| it.counts()).expect("some").muted, 1);
}

#[test]
fn a_guest_that_ends_in_order_says_so() {
    let Some(world) = World::new("a_guest_that_ends_in_order_says_so") else {
        return;
    };
    let node = world.node(A);
    for (port, is_ipv6) in [(4_000, false), (4_001, true)] {
        let listener = streams::listen(&world, A, is_ipv6);
        let (tuple, mut client, mut server) = streams::connect(&world, &listener, is_ipv6, port);
        let lease = monotonic_ns() + 60_000 * MS;
        node.with(move |it| it.claim(&tuple, 1, Some(lease)).expect("claimed"));
        // The last bytes go with FIN.
        rustix::net::sockopt::set_tcp_cork(&server, true).expect("a socket");
        server.write_all(b"bye").expect("sent");
        let (value, fd) = (FAREWELL_PRIORITY, server.as_raw_fd());
        let (level, option) = (libc::SOL_SOCKET, libc::SO_PRIORITY);
        // SAFETY: the kernel reads one int, which lives here.
        let done = unsafe { libc::setsockopt(fd, level, option, (&raw const value).cast(), 4) };
        assert_eq!(done, 0);
        server
            .shutdown(std::net::Shutdown::Write)
            .expect("it is open");
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("its end");
        assert_eq!(came, b"bye");
    }
    assert_eq!(node.with(|it| it.counts()).expect("some").muted, 0);
}

#[test]
fn an_older_decision_is_refused() {
    let Some(world) = World::new("an_older_decision_is_refused") else {
        return;
    };
    let node = world.node(A);
    let flow = tuple(false, 4_000);
    node.with(move |it| {
        it.redirect(&flow, peer(A, B, false), 5)
            .expect("redirected")
    });
    let refused = node.with(move |it| {
        [
            it.hold(&flow, 4).is_err(),
            it.redirect(&flow, 0, 4).is_err(),
            it.claim(&flow, 4, None).is_err(),
            it.claim(&flow, 4, Some(1)).is_err(),
            it.fence(&flow, 4).is_err(),
            it.lease(&flow, 4, 1).is_err(),
        ]
    });
    assert_eq!(refused, [true; 6]);
    assert_eq!(node.with(|it| it.counts()).expect("some").epochs_refused, 6);
    assert_eq!(node.with(move |it| it.epoch(&flow)), Some(5));
    node.with(move |it| it.fence(&flow, 5).expect("the same one may go on"));
    // What is none of its business.
    let mut other = flow;
    other.server.set_port(81);
    assert!(
        node.with(move |it| it.hold(&other, 9)).is_err(),
        "another port"
    );
    other = flow;
    other
        .server
        .set_ip("10.77.0.2".parse().expect("an address"));
    assert!(node.with(move |it| it.hold(&other, 9)).is_err(), "no VIP");
    other.client = tuple(true, 4_000).client;
    assert!(
        node.with(move |it| it.hold(&other, 9)).is_err(),
        "two kinds"
    );
    assert!(
        node.with(move |it| it.redirect(&flow, 4, 9)).is_err(),
        "no such peer"
    );
    assert!(
        node.with(move |it| it.lease(&flow, 9, 9)).is_err(),
        "not a guest"
    );
}

#[test]
fn a_hold_ends_by_itself_and_a_guest_stays_one() {
    let Some(world) = World::new("a_hold_ends_by_itself_and_a_guest_stays_one") else {
        return;
    };
    let node = world.node(A);
    let listener = streams::listen(&world, A, false);
    let (flow, mut client, mut server) = streams::connect(&world, &listener, false, 4_000);
    let (other, mut guest_client, guest) = streams::connect(&world, &listener, false, 4_001);
    let lease = monotonic_ns() + 60_000 * MS;
    node.with(move |it| it.claim(&other, 1, Some(lease)).expect("claimed"));
    node.with(move |it| {
        it.hold(&flow, 1).expect("held");
        it.hold(&other, 2).expect("held");
    });
    client.write_all(b"hello").expect("sent");
    std::thread::sleep(Duration::from_millis(1_100));
    // Nobody has thawed it: the program lets packets pass by itself, and what was kept goes in when this process looks.
    node.with(|it| it.hear());
    assert!(streams::comes(&mut server, b"hello"));
    server.write_all(b"hi").expect("sent");
    assert!(streams::comes(&mut client, b"hi"));
    assert_eq!(node.with(move |it| it.epoch(&flow)), None);
    assert_eq!(node.with(move |it| it.epoch(&other)), Some(2));
    drop(guest);
    assert_eq!(
        streams::within(&mut guest_client, AT_ONCE),
        None,
        "no FIN of a guest"
    );
    assert_eq!(node.with(|it| it.entries()).expect("some"), 1);
    // Forgotten ones go two seconds later.
    node.with(move |it| it.forget(&other));
    assert_eq!(node.with(move |it| it.epoch(&other)), Some(2));
    std::thread::sleep(Duration::from_millis(2_100));
    assert_eq!(node.with(move |it| it.epoch(&other)), None);
    node.with(|it| it.hear());
    assert_eq!(node.with(|it| it.entries()).expect("some"), 0);
}
