//! Every time limit, at, below and above its bound. The timer scan comes once a second.

use super::*;
use crate::limits::PROBES_UNANSWERED_MAX;

fn limits(header_s: u64, idle_s: u64) -> Settings {
    Settings {
        header_timeout_us: header_s * US_PER_S,
        idle_timeout_us: idle_s * US_PER_S,
        ..settings()
    }
}

/// A client that is sent 10 windows and has taken the head and 1,000 bytes.
fn sending(settings: Settings) -> (Bench, ConnId, StreamId) {
    let mut bench = Bench::new(settings);
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 10 * WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    bench.sent(stream, 1_000, true);
    (bench, conn, stream)
}

#[test]
fn a_silent_new_client_gets_the_header_timeout() {
    let mut bench = Bench::new(settings());
    bench.client(0);
    assert_eq!(bench.closed_within_s(9), None);
    let end = bench.closed_within_s(1);
    assert_eq!(end, closed(10, false, Why::HeaderTimeout));
}

#[test]
fn a_worker_that_never_rests_times_a_silent_client_all_the_same() {
    let mut worker = Worker::new(settings());
    let [silent, busy] = [0, 1].map(conn_id);
    let at = |ms: u64| Instant { us: ms * 1_000 };
    for conn in [silent, busy] {
        let address = None;
        worker.on(In::Accepted { conn, address }, at(0));
    }
    // Each turn has one order, and more is to be done when it is cut.
    let closed_at = (1..15_000).find(|ms| {
        let event = TcpEvent::Readable;
        worker.on(In::Tcp { conn: busy, event }, at(*ms));
        let out = worker
            .poll(at(*ms))
            .unwrap_or_else(|| panic!("it rests at {ms}"));
        if matches!(out, Out::Receive { conn, .. } if conn == silent) {
            let (conn, received) = (silent, Received::Nothing);
            worker.on(In::Received { conn, received }, at(*ms));
        }
        matches!(out, Out::Close { conn, .. } if conn == silent)
    });
    assert!(closed_at.is_some_and(|ms| ms <= 11_000), "{closed_at:?}");
}

#[test]
fn a_head_that_comes_drop_by_drop_gets_no_more() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    for _ in 0..9 {
        bench.tcp(conn, TcpEvent::Readable);
        bench.received(conn, Received::HeadPart);
        assert_eq!(bench.closed_within_s(1), None);
    }
    let end = bench.closed_within_s(1);
    assert_eq!(end, closed(10, false, Why::HeaderTimeout));
}

#[test]
fn a_limit_between_two_scans_is_found_by_the_later_one() {
    let mut bench = Bench::new(Settings {
        header_timeout_us: 2_500_000,
        ..settings()
    });
    bench.client(0);
    let end = bench.closed_within_s(9);
    assert_eq!(end, closed(3, false, Why::HeaderTimeout));
}

#[test]
fn an_idle_client_gets_the_idle_timeout_and_its_next_head_its_own() {
    let mut bench = Bench::new(limits(10, 20));
    bench.served(0, true);
    assert_eq!(bench.closed_within_s(19), None);
    assert_eq!(bench.closed_within_s(1), closed(20, false, Why::Idle));

    let mut bench = Bench::new(limits(10, 20));
    let (conn, _) = bench.served(0, true);
    assert_eq!(bench.closed_within_s(19), None);
    bench.tcp(conn, TcpEvent::Readable);
    bench.received(conn, Received::HeadPart);
    assert_eq!(bench.closed_within_s(9), None);
    let end = bench.closed_within_s(1);
    assert_eq!(end, closed(29, false, Why::HeaderTimeout));
}

#[test]
fn a_slow_request_body_costs_no_answer() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    bench.tcp(conn, TcpEvent::Readable);
    let (body, more) = (true, false);
    let outs = bench.received(conn, Received::Request { body, more });
    let outs = bench.resolved(resolve_of(&outs), plan([], true));
    bench.deliver(outs);
    bench.received(conn, Received::Nothing);
    for second in 1..=10 {
        let outs = bench.wait_s(1);
        assert_eq!(outs.contains(&Out::Shutdown(conn)), second == 10);
        assert_eq!(bench.closed_in(&outs), None, "no reset may destroy it");
    }
    let end = bench.closed_within_s(60).expect("it lingers, not for ever");
    assert_eq!((end.abort, end.why), (false, Why::Done));
}

#[test]
fn a_client_that_acknowledges_nothing_gets_the_send_timeout() {
    let (mut bench, ..) = sending(settings());
    bench.sample = unacked(1_100);
    assert_eq!(bench.closed_within_s(59), None);
    let end = bench.closed_within_s(1);
    assert_eq!(end, closed(60, true, Why::SendTimeout));
}

#[test]
fn no_send_timeout_is_more_than_a_scan_late() {
    for timeout_s in [1, 3, 7, 12, 61] {
        let (mut bench, ..) = sending(Settings {
            send_timeout_us: timeout_s * US_PER_S,
            rate_min_bytes_per_s: 0,
            ..settings()
        });
        bench.sample = unacked(1_100);
        let end = bench.closed_within_s(timeout_s + 2).expect("late");
        assert_eq!(end.at_s, timeout_s);
    }
}

#[test]
fn each_acknowledged_byte_starts_the_send_timeout_anew() {
    let (mut bench, ..) = sending(Settings {
        rate_min_bytes_per_s: 0,
        ..settings()
    });
    bench.sample = unacked(1_100);
    assert_eq!(bench.closed_within_s(55), None);
    bench.sample = unacked(1_099);
    assert_eq!(bench.closed_within_s(60), None);
    let end = bench.closed_within_s(10).expect("nothing since");
    assert_eq!(end.why, Why::SendTimeout);
}

#[test]
fn a_paused_player_gets_the_pause_timeout() {
    let (mut bench, ..) = sending(settings());
    bench.sample = TcpSample {
        unacked_bytes: 1_100,
        window_closed: true,
        probes_unanswered: PROBES_UNANSWERED_MAX,
        ..TcpSample::default()
    };
    assert_eq!(bench.closed_within_s(599), None);
    let end = bench.closed_within_s(1);
    assert_eq!(end, closed(600, true, Why::PauseTimeout));
}

#[test]
fn a_paused_player_that_answers_no_probes_is_dead() {
    let (mut bench, ..) = sending(settings());
    bench.sample = TcpSample {
        unacked_bytes: 1_100,
        window_closed: true,
        probes_unanswered: PROBES_UNANSWERED_MAX + 1,
        ..TcpSample::default()
    };
    let end = bench.closed_within_s(60);
    assert_eq!(end, closed(60, true, Why::SendTimeout));
}

#[test]
fn a_player_that_resumes_after_a_long_pause_has_its_send_timeout_before_it() {
    let (mut bench, ..) = sending(Settings {
        rate_min_bytes_per_s: 0,
        ..settings()
    });
    bench.sample = TcpSample {
        unacked_bytes: 1_100,
        window_closed: true,
        probes_unanswered: 0,
        ..TcpSample::default()
    };
    assert_eq!(bench.closed_within_s(300), None);
    bench.sample = unacked(1_100); // its window is open, what we sent is on its way
    assert_eq!(bench.closed_within_s(59), None);
    assert!(bench.closed_within_s(2).is_some());
}

/// How a client ends that acknowledges `rate_bytes_per_s`, at 100 B/s wanted.
fn at_rate(rate_bytes_per_s: u64) -> Option<Closed> {
    let (mut bench, conn, stream) = sending(settings());
    bench.sample = unacked(1_100); // what comes in goes out
    for _ in 0..130 {
        bench.tcp(conn, TcpEvent::Writable);
        bench.sent(stream, rate_bytes_per_s, true);
        let end = bench.closed_within_s(1);
        if end.is_some() {
            return end;
        }
    }
    None
}

#[test]
fn a_client_below_the_least_rate_is_ended_after_a_minute() {
    assert_eq!(at_rate(101), None);
    assert_eq!(at_rate(100), None);
    assert_eq!(at_rate(98), closed(60, true, Why::TooSlow));
}

/// How a client ends that takes so much every `s` seconds, and whose window is closed whenever it is looked at.
fn drop_by_drop(drop_bytes: u64, s: u64) -> Option<Closed> {
    let (mut bench, conn, stream) = sending(settings());
    bench.sample = TcpSample {
        window_closed: true,
        ..unacked(1_100)
    };
    for _ in 0..900 / s {
        bench.tcp(conn, TcpEvent::Writable);
        let outs = bench.sent(stream, drop_bytes, true);
        let end = bench.closed_in(&outs).or_else(|| bench.closed_within_s(s));
        if end.is_some() {
            return end;
        }
    }
    None
}

#[test]
fn a_client_that_reads_drop_by_drop_is_ended_and_one_that_pauses_is_not() {
    for s in [1, 10, 40, 90, 150] {
        assert_eq!(drop_by_drop(102 * s, s), None, "{s} s");
        let end = drop_by_drop(90 * s, s);
        assert_eq!(end.map(|end| end.why), Some(Why::TooSlow), "{s} s");
    }
    let (mut bench, conn, stream) = sending(settings());
    bench.sample = TcpSample {
        window_closed: true,
        ..unacked(1_100)
    };
    bench.tcp(conn, TcpEvent::Writable);
    bench.sent(stream, 500, true);
    assert_eq!(bench.closed_within_s(500), None, "the rest of what it took");
    bench.sample = unacked(1_100); // it reads on, faster
    for _ in 0..130 {
        bench.tcp(conn, TcpEvent::Writable);
        bench.sent(stream, 200, true);
        assert_eq!(bench.closed_within_s(1), None);
    }
}

#[test]
fn while_the_disk_owes_bytes_no_limit_runs() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, 10 * WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    assert_eq!(bench.closed_within_s(900), None);
    // The disk delivers; the minute of the least rate starts with it.
    let span = Span {
        offset_bytes: 0,
        len_bytes: WINDOW,
    };
    let outs = bench.fetched(stream, span);
    assert!(send_of(&outs).is_some() || !wants_of(&outs).is_empty());
    bench.sent(stream, 4_000, true);
    bench.sample = unacked(4_000);
    assert_eq!(bench.closed_within_s(50), None);
}

#[test]
fn a_connection_with_a_time_limit_always_has_a_deadline() {
    let mut bench = Bench::new(settings());
    assert_eq!(bench.worker.deadline(), None, "nobody is waited for");
    let conn = bench.client(0);
    for _ in 0..5 {
        bench.wait_us(1_700_000);
        let at = bench.worker.deadline().expect("a client is waited for");
        assert_eq!(at.us, 10 * US_PER_S, "its head is due, and nothing before");
    }
    bench.tcp(conn, TcpEvent::Reset);
    bench.wait_s(2);
    assert_eq!(bench.worker.deadline(), None);
}

#[test]
fn idle_clients_wake_nobody_before_their_time() {
    let mut bench = Bench::new(settings());
    for index in 0..100 {
        bench.served(index, true);
    }
    bench.wait_s(11);
    let at = bench
        .worker
        .deadline()
        .expect("they are idle, not for ever");
    assert_eq!(at.us, 75 * US_PER_S);
    let late = at.plus_us(TICK_SLACK_US);
    assert_eq!(bench.worker.sleeps_until(), Some(late), "it is a tick");
}

#[test]
fn a_scan_reaches_every_slice_of_a_large_table() {
    let mut bench = Bench::new(Settings {
        connections_max: CONNECTIONS_MAX,
        ..settings()
    });
    for index in 0..3 * SCAN_SLICE + 1 {
        let (conn, address) = (conn_id(index), None);
        bench.worker.on(In::Accepted { conn, address }, bench.now);
    }
    while bench.worker.poll(bench.now).is_some() {}
    let outs = bench.wait_s(10);
    let ended = outs.iter().filter(|o| matches!(o, Out::Close { .. }));
    assert_eq!(ended.count() as u32, 3 * SCAN_SLICE + 1);
    assert_eq!(bench.worker.connections(), 0);
}

/// A worker that is called again after its limits ran out, since it or its machine was paused: one client is between two
/// requests, one has begun a head, one is new, and one sends a body.
fn late() -> (Bench, [ConnId; 4]) {
    let mut bench = Bench::new(settings());
    let (idle, _) = bench.served(0, true);
    let [begun, new] = [1, 2].map(|index| bench.client(index));
    bench.received(begun, Received::HeadPart);
    let skips = bench.client(3);
    let (body, more) = (true, false);
    let outs = bench.received(skips, Received::Request { body, more });
    let outs = bench.resolved(resolve_of(&outs), plan([], true));
    bench.deliver(outs);
    bench.received(skips, Received::Nothing);
    bench.now = bench.now.plus_us(100 * US_PER_S);
    (bench, [idle, begun, new, skips])
}

#[test]
fn a_late_worker_looks_for_input_before_it_ends_anybody() {
    let (mut bench, conns) = late();
    let outs = bench.outs();
    let looked_at = |conn| {
        outs.iter()
            .any(|out| matches!(out, Out::Receive { conn: of, .. } if *of == conn))
    };
    assert!(conns.into_iter().all(looked_at), "{outs:?}");
    assert_eq!(bench.closed_in(&outs), None);
    let [idle, begun, new, skips] = conns;
    let (body, more) = (false, false);
    for conn in [idle, begun, new] {
        resolve_of(&bench.received(conn, Received::Request { body, more }));
    }
    let outs = bench.received(
        skips,
        Received::Skipped {
            bytes: 9,
            done: true,
        },
    );
    assert!(
        outs.contains(&Out::Receive {
            conn: skips,
            expect: Expect::Head
        }),
        "{outs:?}"
    );
}

#[test]
fn a_late_worker_that_finds_no_more_of_a_request_ends_it() {
    let (mut bench, [idle, begun, new, skips]) = late();
    bench.outs();
    let mut why = |conn, received| {
        let outs = bench.received(conn, received);
        outs.iter().find_map(|out| match out {
            Out::Close { why, .. } => Some(*why),
            Out::Shutdown(_) => Some(Why::Done), // it lingers
            _ => None,
        })
    };
    assert_eq!(why(idle, Received::Nothing), Some(Why::Idle));
    assert_eq!(why(begun, Received::HeadPart), Some(Why::HeaderTimeout));
    assert_eq!(why(new, Received::HeadPart), Some(Why::HeaderTimeout));
    let (bytes, done) = (1, false);
    assert_eq!(
        why(skips, Received::Skipped { bytes, done }),
        None,
        "there may be more"
    );
    assert_eq!(why(skips, Received::Nothing), Some(Why::Done));
}
