//! Which connections are accepted.

use alloc::sync::Arc;

use super::*;
use crate::addresses::{Address, AddressCounts};
use crate::limits::DRAIN_SILENT_US;

fn accepted(bench: &mut Bench, index: u32, address: u64) -> Vec<Out> {
    let address = Some(Address(address));
    bench.tell(In::Accepted {
        conn: conn_id(index),
        address,
    })
}

#[test]
fn accepting_pauses_when_full_and_resumes_when_one_leaves() {
    let mut bench = Bench::new(Settings {
        connections_max: 3,
        ..settings()
    });
    for (index, room) in [(0, 3), (1, 2), (2, 1)] {
        assert_eq!(bench.tell(In::Incoming), [Out::Accept(room)]);
        let outs = accepted(&mut bench, index, 1);
        let full = outs.contains(&Out::Listen(false));
        assert_eq!(full, index == 2, "connection {index}: {outs:?}");
    }
    assert_eq!(bench.tell(In::Incoming), [], "full: the backlog holds it");
    let outs = bench.tcp(conn_id(1), TcpEvent::Reset);
    assert!(
        outs.ends_with(&[Out::Listen(true), Out::Accept(1)]),
        "{outs:?}"
    );
}

/// A worker with room for three connections, one of which is served each tenth of a second.
fn full() -> (Bench, [ConnId; 3]) {
    let mut bench = Bench::new(Settings {
        connections_max: 3,
        ..settings()
    });
    let conns = [0, 1, 2].map(|index| {
        let (conn, _) = bench.served(index, true);
        bench.wait_us(US_PER_S / 10);
        conn
    });
    (bench, conns)
}

/// Which connection is closed within so many seconds, and why.
fn closed_within(bench: &mut Bench, s: u64) -> Option<(ConnId, Why)> {
    let outs = bench.wait_s(s);
    outs.iter().find_map(|out| match out {
        &Out::Close { conn, why, .. } => Some((conn, why)),
        _ => None,
    })
}

#[test]
fn without_room_the_one_that_has_been_idle_for_longest_makes_room() {
    let (mut bench, [first, second, _]) = full();
    assert_eq!(closed_within(&mut bench, 1), Some((first, Why::Idle)));
    assert!(bench.worker.door.willing(bench.worker.connections()));
    assert_eq!(closed_within(&mut bench, 5), None, "there is room for one");
    accepted(&mut bench, 0, 1);
    assert_eq!(closed_within(&mut bench, 1), Some((second, Why::Idle)));
}

#[test]
fn a_full_worker_accepts_for_others_and_closes_nobody_while_one_has_a_place() {
    let (mut bench, _) = full();
    let outs = bench.tell(In::PlacesElsewhere(true));
    assert_eq!(outs, [Out::Listen(true)]);
    let outs = bench.tell(In::Incoming);
    assert_eq!(outs, [Out::Accept(ACCEPTS_PER_TURN_MAX)]);
    assert_eq!(
        closed_within(&mut bench, 5),
        None,
        "there is room elsewhere"
    );
    let outs = bench.tell(In::PlacesElsewhere(false));
    assert_eq!(outs.last(), Some(&Out::Listen(false)));
    let closed = closed_within(&mut bench, 1);
    assert!(closed.is_some(), "an idle one makes room");
}

#[test]
fn one_that_was_busy_a_moment_ago_or_has_not_received_its_answer_makes_no_room() {
    let (mut bench, [first, second, third]) = full();
    bench.sample = TcpSample {
        window_closed: true,
        ..unacked(5_000)
    };
    for conn in [first, second, third] {
        let stream = bench.request(conn);
        let outs = bench.resolved(stream, plan([], true));
        bench.deliver(outs);
    }
    assert_eq!(
        closed_within(&mut bench, 20),
        None,
        "their sockets are full"
    );
    bench.sample = unacked(0);
    assert_eq!(closed_within(&mut bench, 1), Some((first, Why::Idle)));
    let (mut bench, [first, ..]) = full();
    for _ in 0..40 {
        bench.wait_us(US_PER_S / 4);
        for index in 0..3 {
            let conn = ConnId { index, ..first };
            let stream = bench.request(conn);
            let outs = bench.resolved(stream, plan([], true));
            let outs = bench.deliver(outs);
            assert!(bench.closed_in(&outs).is_none(), "all are in use");
        }
    }
}

#[test]
fn a_turn_accepts_a_bounded_number() {
    let mut bench = Bench::new(settings());
    assert_eq!(
        bench.tell(In::Incoming),
        [Out::Accept(ACCEPTS_PER_TURN_MAX)]
    );
}

#[test]
fn no_more_than_the_hard_bound_however_many_are_allowed() {
    let mut bench = Bench::new(Settings {
        connections_max: u32::MAX,
        ..settings()
    });
    for index in 0..CONNECTIONS_MAX - 1 {
        let conn = conn_id(index);
        let address = None;
        bench.worker.on(In::Accepted { conn, address }, bench.now);
    }
    assert!(bench.worker.door.willing(bench.worker.connections()));
    let (conn, address) = (conn_id(CONNECTIONS_MAX - 1), None);
    bench.worker.on(In::Accepted { conn, address }, bench.now);
    assert_eq!(bench.worker.poll(bench.now), Some(Out::Listen(false)));
}

#[test]
fn a_lack_of_descriptors_pauses_accepting_for_a_moment() {
    let mut bench = Bench::new(settings());
    assert_eq!(bench.tell(In::AcceptFailed), [Out::Listen(false)]);
    assert_eq!(bench.tell(In::Incoming), []);
    let again_at = Instant {
        us: ACCEPT_RETRY_US,
    };
    assert_eq!(bench.worker.deadline(), Some(again_at));
    assert_eq!(bench.wait_us(ACCEPT_RETRY_US - 1), []);
    assert_eq!(
        bench.wait_us(1),
        [Out::Listen(true), Out::Accept(ACCEPTS_PER_TURN_MAX)]
    );
    assert_eq!(bench.worker.deadline(), None);
}

#[test]
fn a_closed_connection_ends_that_pause_at_once() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    bench.tell(In::AcceptFailed);
    let outs = bench.tcp(conn, TcpEvent::Reset);
    assert_eq!(outs.last(), Some(&Out::Listen(true)));
}

#[test]
fn a_worker_that_may_accept_again_does_not_sleep_on_it() {
    let mut bench = Bench::new(Settings {
        connections_max: 1,
        ..settings()
    });
    let conn = bench.client(0);
    let event = TcpEvent::Reset;
    bench.worker.on(In::Tcp { conn, event }, bench.now);
    assert!(matches!(
        bench.worker.poll(bench.now),
        Some(Out::Close { .. })
    ));
    // The shell ends its turn here.
    assert_eq!(bench.worker.deadline(), Some(Instant { us: 0 }));
}

#[test]
fn an_address_above_its_bound_is_refused_until_one_of_its_own_leaves() {
    let mut bench = Bench::new(Settings {
        connections_per_address: 2,
        ..settings()
    });
    let counts = Arc::new(AddressCounts::new(64, 7));
    bench.worker.count_addresses_in(Arc::clone(&counts));
    let refused = |bench: &mut Bench, index, address| {
        accepted(bench, index, address);
        let (body, more) = (false, false);
        let outs = bench.received(conn_id(index), Received::Request { body, more });
        outs.iter()
            .any(|out| matches!(out, Out::Resolve { refuse: true, .. }))
    };
    assert!(!refused(&mut bench, 0, 7), "below");
    assert!(!refused(&mut bench, 1, 7), "at the bound");
    assert!(refused(&mut bench, 2, 7), "above");
    assert!(!refused(&mut bench, 3, 8), "another address");
    for index in [1, 2] {
        bench.tcp(conn_id(index), TcpEvent::Reset);
    }
    assert!(!refused(&mut bench, 4, 7), "two left, one came");
    for index in [0, 3, 4] {
        bench.tcp(conn_id(index), TcpEvent::Reset);
    }
    assert_eq!(counts.counted(), 0, "nothing is kept");
}

#[test]
fn an_address_has_one_bound_for_all_workers() {
    let counts = Arc::new(AddressCounts::new(64, 7));
    let mut workers: Vec<Bench> = (0..2)
        .map(|_| {
            let mut bench = Bench::new(Settings {
                connections_per_address: 2,
                ..settings()
            });
            bench.worker.count_addresses_in(Arc::clone(&counts));
            bench
        })
        .collect();
    let mut refused = |nth: usize, index, address| {
        let bench = &mut workers[nth];
        accepted(bench, index, address);
        let (body, more) = (false, false);
        let outs = bench.received(conn_id(index), Received::Request { body, more });
        outs.iter()
            .any(|out| matches!(out, Out::Resolve { refuse: true, .. }))
    };
    assert!(!refused(0, 0, 7) && !refused(1, 0, 7), "one at each worker");
    assert!(
        refused(0, 1, 7) && refused(1, 1, 7),
        "the third and the fourth"
    );
    assert!(!refused(1, 2, 8), "another address");
}

#[test]
fn a_draining_worker_accepts_whoever_waits_in_the_backlog_as_soon_as_there_is_room() {
    let mut bench = Bench::new(Settings {
        connections_max: 1,
        ..settings()
    });
    let conn = bench.client(0);
    bench.tell(In::Drain);
    assert_eq!(bench.tell(In::Incoming), [], "it is full");
    bench.worker.on(
        In::Tcp {
            conn,
            event: TcpEvent::Reset,
        },
        bench.now,
    );
    assert!(matches!(
        bench.worker.poll(bench.now),
        Some(Out::Close { .. })
    ));
    assert!(!bench.worker.finished(), "a client waits");
    assert_eq!(bench.outs(), [Out::Listen(true), Out::Accept(1)]);
    assert!(bench.worker.finished(), "none is known of any more");
}

#[test]
fn a_draining_worker_that_stays_full_leaves_the_port_to_the_next_server_after_a_second() {
    let mut bench = Bench::new(Settings {
        connections_max: 1,
        ..settings()
    });
    let conn = bench.client(0);
    bench.received(conn, Received::HeadPart);
    bench.tell(In::Drain);
    bench.tell(In::Incoming);
    assert!(bench.wait_us(DRAIN_SILENT_US - 1).is_empty() && bench.worker.accepts());
    bench.wait_us(1);
    assert!(!bench.worker.accepts());
    assert!(bench.tcp(conn, TcpEvent::Reset).len() == 1 && bench.worker.finished());
}
