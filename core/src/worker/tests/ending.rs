//! How a connection ends: lingering, resets, failures, drain.

use super::*;
use crate::limits::{LINGER_QUIET_US, LINGER_US};

const QUIET_S: u64 = LINGER_QUIET_US / US_PER_S;

/// A last response is out, and so is our FIN.
fn lingering(settings: Settings, sample: TcpSample) -> (Bench, ConnId) {
    let mut bench = Bench::new(settings);
    bench.sample = sample;
    let (conn, outs) = bench.served(0, false);
    assert_eq!(outs, [Out::Shutdown(conn)]);
    (bench, conn)
}

#[test]
fn after_a_last_response_comes_our_fin_and_then_the_clients() {
    let (mut bench, conn) = lingering(settings(), unacked(1));
    let expect = Expect::Rest;
    assert_eq!(
        bench.tcp(conn, TcpEvent::Fin),
        [Out::Receive { conn, expect }]
    );
    let outs = bench.received(conn, Received::End);
    assert_eq!(bench.closed_in(&outs), closed(0, false, Why::Done));
}

#[test]
fn a_client_whose_fin_came_first_is_closed_at_once() {
    let mut bench = Bench::new(settings());
    let (conn, _) = bench.served(0, true);
    bench.tcp(conn, TcpEvent::Fin);
    let outs = bench.received(conn, Received::End);
    let (abort, why) = (false, Why::PeerClosed);
    assert_eq!(outs, [Out::Sample(conn), Out::Close { conn, abort, why }]);
}

#[test]
fn a_reset_while_lingering_closes_at_once() {
    let (mut bench, conn) = lingering(settings(), unacked(1));
    let outs = bench.tcp(conn, TcpEvent::Reset);
    assert_eq!(bench.closed_in(&outs), closed(0, false, Why::PeerReset));
}

#[test]
fn a_client_that_never_closes_is_waited_for_a_moment_after_all_arrived() {
    let (mut bench, _) = lingering(settings(), unacked(0));
    let end = bench.closed_within_s(60).expect("not for ever");
    assert_eq!((end.abort, end.why), (false, Why::Done));
    assert!((QUIET_S..=QUIET_S + 2).contains(&end.at_s), "{end:?}");
}

#[test]
fn a_slow_client_is_not_cut_off_while_the_socket_still_holds_bytes_for_it() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let outs = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 4 * WINDOW)], false),
    );
    bench.deliver(outs);
    for second in 0..3_000 {
        bench.sample = unacked(4 * WINDOW - 1_000 * second); // 1,000 bytes a second
        assert_eq!(bench.closed_within_s(1), None, "second {second}");
    }
    bench.sample = unacked(0);
    let end = bench.closed_within_s(10).expect("all arrived");
    assert_eq!((end.abort, end.why), (false, Why::Done));
}

#[test]
fn a_lingering_client_that_acknowledges_nothing_gets_the_send_timeout() {
    let (mut bench, _) = lingering(settings(), unacked(100));
    let end = bench.closed_within_s(61);
    assert_eq!(end, closed(60, true, Why::SendTimeout));
}

#[test]
fn talking_on_without_reading_the_answer_wins_no_time() {
    let (mut bench, conn) = lingering(settings(), unacked(100));
    bench.sample.window_closed = true;
    for _ in 0..700 {
        let (bytes, done) = (1, false);
        bench.tcp(conn, TcpEvent::Readable);
        bench.received(conn, Received::Skipped { bytes, done });
        bench.received(conn, Received::Nothing);
        if let Some(end) = bench.closed_within_s(1) {
            return assert_eq!(end, closed(600, true, Why::PauseTimeout).unwrap());
        }
    }
    panic!("still open");
}

#[test]
fn a_long_idle_connection_is_not_taken_for_a_slow_one_when_it_is_asked_to_end() {
    let mut bench = Bench::new(settings());
    let (conn, _) = bench.served(0, true);
    bench.wait_s(70);
    bench.sample = unacked(1); // our FIN on its way
    bench.tell(In::Drain);
    let outs = bench.received(conn, Received::Nothing);
    assert!(outs.contains(&Out::Shutdown(conn)), "{outs:?}");
    assert_eq!(bench.closed_in(&outs), None);
}

#[test]
fn input_behind_the_last_answer_is_thrown_away_up_to_a_bound() {
    for (bytes, ends) in [
        (LINGER_BYTES_MAX - 1, false),
        (LINGER_BYTES_MAX, false),
        (LINGER_BYTES_MAX + 1, true),
    ] {
        let (mut bench, conn) = lingering(settings(), unacked(0));
        let done = false;
        bench.tcp(conn, TcpEvent::Readable);
        let outs = bench.received(conn, Received::Skipped { bytes, done });
        assert_eq!(bench.closed_in(&outs).is_some(), ends, "{bytes}");
    }
}

#[test]
fn input_behind_the_last_answer_is_thrown_away_for_a_bounded_time() {
    let (mut bench, conn) = lingering(settings(), unacked(0));
    for _ in 0..2 * LINGER_US / US_PER_S {
        let (bytes, done) = (1, false);
        bench.tcp(conn, TcpEvent::Readable);
        bench.received(conn, Received::Skipped { bytes, done });
        bench.received(conn, Received::Nothing);
        if let Some(end) = bench.closed_within_s(1) {
            let bound_s = LINGER_US / US_PER_S;
            assert!((bound_s..=bound_s + 2).contains(&end.at_s), "{end:?}");
            return;
        }
    }
    panic!("still open");
}

#[test]
fn a_reset_is_forgotten_by_every_stage_in_the_same_turn() {
    let (abort, why) = (false, Why::PeerReset);
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    assert_eq!(
        bench.tcp(conn, TcpEvent::Reset),
        [Out::Close { conn, abort, why }],
        "between two requests no stage holds anything"
    );
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let forgotten = [Out::Forget(stream), Out::Close { conn, abort, why }];
    assert_eq!(bench.tcp(conn, TcpEvent::Reset), forgotten, "resolving");
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, WINDOW)], true),
    );
    assert_eq!(bench.tcp(conn, TcpEvent::Reset), forgotten, "sending");
}

#[test]
fn a_changed_file_ends_the_connection_before_the_promised_length() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, WINDOW)], true),
    );
    bench.sent(stream, 100, false);
    let why = Why::FileChanged;
    assert_eq!(
        bench.tell(In::Failed { stream, why }),
        [Out::Forget(stream), Out::Shutdown(conn)]
    );
}

#[test]
fn a_read_that_fails_before_the_first_byte_ends_the_connection_too() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    assert_eq!(
        bench.tell(In::FetchFailed {
            stream,
            seq: PENDING,
            why: Why::ReadFailed
        }),
        [Out::Sample(conn), Out::Forget(stream), Out::Shutdown(conn)],
        "and it is found out for whom it stood"
    );
    assert_eq!(bench.sent(stream, 100, false), [], "it is over");
}

#[test]
fn a_read_ahead_that_fails_ends_the_response_behind_what_was_fetched() {
    const READ: u64 = 128 << 10;
    for held in [Held::PageCache, Held::Slots] {
        let mut bench = Bench::new(settings());
        let conn = bench.client(0);
        let stream = bench.request(conn);
        bench.resolved(
            stream,
            plan([body(ResidencySource::Remember, 0, WINDOW)], true),
        );
        bench.sent(stream, HEAD_BYTES, false);
        let span = Span {
            offset_bytes: 0,
            len_bytes: READ,
        };
        let outs = bench.tell(In::Fetched {
            stream,
            seq: PENDING,
            span,
            held,
            chosen: CHOSEN,
        });
        assert_eq!(send_of(&outs), Some((1, 0, READ)));
        let outs = bench.sent(stream, 1_000, true);
        assert_eq!(outs.len(), usize::from(held == Held::Slots), "{outs:?}");
        assert_eq!(
            bench.tell(In::FetchFailed {
                stream,
                seq: PENDING,
                why: Why::ReadFailed
            }),
            [],
            "the client is slow"
        );
        let outs = bench.tcp(conn, TcpEvent::Writable);
        assert_eq!(send_of(&outs), Some((1, 1_000, READ - 1_000)));
        assert_eq!(wants_of(&outs), [], "it is known how that ends");
        assert_eq!(
            bench.sent(stream, READ - 1_000, false),
            [Out::Sample(conn), Out::Forget(stream), Out::Shutdown(conn)]
        );
    }
}

#[test]
fn a_read_that_fails_goes_on_at_another_device_if_that_has_the_same_bytes() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, 3 * WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    let span = Span {
        offset_bytes: 0,
        len_bytes: WINDOW,
    };
    let held = Held::Slots;
    let outs = bench.tell(In::Fetched {
        stream,
        seq: PENDING,
        span,
        held,
        chosen: CHOSEN,
    });
    assert_eq!(send_of(&outs), Some((1, 0, WINDOW)));
    let file = LocalFile {
        object: ObjectId { index: 7, ..OBJECT },
        version: Version {
            len_bytes: 3 * WINDOW,
            mtime_ns: 5,
            ..Version::default()
        },
        residency: ResidencySource::Remember,
    };
    bench.sent(stream, WINDOW, false);
    let outs = bench.tell(In::FetchElsewhere {
        stream,
        seq: PENDING,
        file,
    });
    let asked = outs.iter().find_map(|out| match out {
        Out::Want(want) => Some((want.object, want.span.offset_bytes)),
        _ => None,
    });
    assert_eq!(asked, Some((file.object, WINDOW)), "{outs:?}");
    let parts = &bench.worker.plan(stream).expect("it goes on").parts;
    assert!(
        matches!(parts[1], Part::Body { object, version, .. } if (object, version) == (file.object, file.version))
    );
}

#[test]
fn a_paused_client_whose_read_ahead_failed_is_read_for_again() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, 3 * WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    let span = Span {
        offset_bytes: 0,
        len_bytes: WINDOW,
    };
    bench.fetched(stream, span);
    bench.sent(stream, 1_000, true);
    bench.tell(In::FetchFailed {
        stream,
        seq: PENDING,
        why: Why::ReadFailed,
    });
    bench.sample = TcpSample {
        unacked_bytes: 1_000,
        window_closed: true,
        ..TcpSample::default()
    };
    let outs = bench.wait_s(60);
    assert!(outs.contains(&Out::Release(stream)), "{outs:?}");
    bench.sample.window_closed = false;
    bench.wait_s(1);
    bench.tcp(conn, TcpEvent::Writable);
    let outs = bench.probed(stream, false);
    let heard = |out: &Out| matches!(out, Out::Want(want) if want.answers == 2 && want.span.offset_bytes == 1_000);
    assert!(outs.iter().any(heard), "two answers were heard: {outs:?}");
}

#[test]
fn a_drain_ends_the_idle_at_once_and_lets_the_active_finish() {
    let mut bench = Bench::new(settings());
    let (idle, _) = bench.served(0, true);
    let active = bench.client(1);
    let stream = bench.request(active);
    bench.tell(In::Drain);
    let (abort, why) = (false, Why::Done);
    let conn = idle;
    let gone = [Out::Sample(idle), Out::Close { conn, abort, why }];
    assert_eq!(bench.received(idle, Received::Nothing), gone);
    let outs = bench.resolved(stream, plan([body(ResidencySource::Always, 0, 5)], false));
    assert_eq!(bench.deliver(outs), [Out::Shutdown(active)]);
    assert!(!bench.worker.finished());
    bench.tcp(active, TcpEvent::Fin);
    bench.received(active, Received::End);
    assert!(bench.worker.finished());
}

#[test]
fn a_drain_answers_the_requests_that_have_arrived() {
    let mut bench = Bench::new(settings());
    let (idle, _) = bench.served(0, true);
    let active = bench.client(1);
    let stream = bench.request(active);
    let expect = Expect::Head;
    let outs = bench.tell(In::Drain);
    assert_eq!(
        outs,
        [Out::Receive { conn: idle, expect }],
        "epoll has said nothing yet"
    );
    // The answer to this one was promised before the drain, and not as the last.
    let outs = bench.resolved(stream, plan([], true));
    let outs = bench.deliver(outs);
    assert_eq!(
        outs,
        [Out::Receive {
            conn: active,
            expect
        }]
    );
    for conn in [idle, active] {
        let (body, more) = (false, true);
        let outs = bench.received(conn, Received::Request { body, more });
        let outs = bench.resolved(resolve_of(&outs), plan([], false));
        assert_eq!(bench.deliver(outs)[0], Out::Shutdown(conn));
    }
}

#[test]
fn a_drain_waits_a_moment_for_the_first_byte_and_as_long_as_ever_for_the_rest_of_a_head() {
    let mut bench = Bench::new(settings());
    let (silent, begun) = (bench.client(0), bench.client(1));
    bench.received(begun, Received::HeadPart);
    bench.tell(In::Drain);
    let end = bench.closed_within_s(2).expect("nothing came");
    assert!(!end.abort && end.why == Why::Draining, "{end:?}");
    assert!(bench.worker.table.get(silent).is_none() && bench.worker.table.get(begun).is_some());
    assert_eq!(bench.closed_within_s(2), None, "its head has begun");
}

#[test]
fn an_idle_client_that_a_drain_finds_with_its_answer_on_the_way_is_not_cut_off() {
    let mut bench = Bench::new(settings());
    let (conn, _) = bench.served(0, true);
    bench.sample = unacked(HEAD_BYTES);
    bench.tell(In::Drain);
    let outs = bench.received(conn, Received::Nothing);
    assert!(outs.contains(&Out::Shutdown(conn)), "{outs:?}");
    assert_eq!(bench.closed_within_s(3), None);
    bench.sample = unacked(0);
    let end = bench.closed_within_s(QUIET_S + 2).expect("it has all");
    assert!(!end.abort && end.why == Why::Done, "{end:?}");
}

#[test]
fn who_is_not_finished_when_the_drain_timeout_is_over_is_cut_off() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, WINDOW)], true),
    );
    bench.sent(stream, 10, true);
    bench.sample = unacked(10);
    bench.tell(In::Drain);
    assert_eq!(bench.closed_within_s(29), None);
    let end = bench.closed_within_s(1);
    assert_eq!(end, closed(30, true, Why::Draining));
    assert!(bench.worker.finished());
}

/// A client that has taken nothing of its answer, and reads on some day, or never.
fn unread() -> TcpSample {
    TcpSample {
        window_closed: true,
        ..unacked(5_000)
    }
}

#[test]
fn a_socket_that_still_holds_an_answer_is_not_left_to_the_kernel() {
    let mut bench = Bench::new(settings());
    bench.sample = unread();
    let (conn, _) = bench.served(0, true);
    bench.tcp(conn, TcpEvent::Fin);
    let outs = bench.received(conn, Received::End);
    assert_eq!(outs, [Out::Sample(conn), Out::Shutdown(conn)]);
    let end = bench.closed_within_s(3_600).expect("not for ever");
    assert_eq!((end.abort, end.why), (true, Why::PauseTimeout));
}

#[test]
fn an_idle_client_that_has_not_read_its_answer_is_waited_for_within_limits() {
    let mut bench = Bench::new(settings());
    bench.sample = unread();
    bench.served(0, true);
    let end = bench.closed_within_s(3_600).expect("not for ever");
    assert_eq!((end.abort, end.why), (true, Why::PauseTimeout));
}

#[test]
fn an_idle_client_that_has_everything_is_closed_in_time() {
    let mut bench = Bench::new(settings());
    bench.sample = unacked(0);
    bench.served(0, true);
    let end = bench.closed_within_s(3_600).expect("not for ever");
    assert_eq!((end.abort, end.why), (false, Why::Idle));
}
