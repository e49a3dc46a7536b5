//! Windows of files: resident ones are sent, cold ones are wanted first.

use super::*;
use crate::cache::RESIDENCY_TRUST_US;
use crate::limits::{PAUSED_US, UNKNOWN_MARGIN_US, UNTAKEN_US};

fn window(n: u64) -> Span {
    Span {
        offset_bytes: n * WINDOW,
        len_bytes: WINDOW,
    }
}

/// A response whose head is sent; what the worker does about its body.
fn begun(
    residency: ResidencySource,
    offset_bytes: u64,
    len_bytes: u64,
) -> (Bench, StreamId, Vec<Out>) {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(residency, offset_bytes, len_bytes)], true),
    );
    let outs = bench.sent(stream, HEAD_BYTES, false);
    (bench, stream, outs)
}

const READ: u64 = 128 << 10;

#[test]
fn a_resident_window_is_sent_after_one_question() {
    let (mut bench, stream, outs) = begun(ResidencySource::Ask, 0, 3 * WINDOW);
    let (object, span) = (OBJECT, window(0));
    assert_eq!(
        outs,
        [Out::Probe {
            stream,
            object,
            span,
        }]
    );
    let outs = bench.probed(stream, true);
    assert_eq!(send_of(&outs), Some((1, 0, WINDOW)));
    let outs = bench.sent(stream, 1_000, false);
    assert_eq!(send_of(&outs), Some((1, 1_000, WINDOW - 1_000)));
}

#[test]
fn a_file_that_lives_in_memory_is_sent_without_a_question() {
    let (_, _, outs) = begun(ResidencySource::Always, 5, 3 * WINDOW);
    assert_eq!(send_of(&outs), Some((1, 0, SEND_BYTES_MAX)));
}

#[test]
fn neighbouring_windows_that_are_believed_to_be_in_memory_go_together() {
    let (mut bench, stream, outs) = begun(ResidencySource::Ask, 0, 4 * WINDOW);
    assert_eq!(send_of(&outs), None);
    bench
        .worker
        .residency_cache
        .seen(OBJECT, window(1), bench.now);
    let outs = bench.probed(stream, true);
    assert_eq!(send_of(&outs), Some((1, 0, 2 * WINDOW)));
    let outs = bench.sent(stream, 2 * WINDOW, false);
    assert_eq!(send_of(&outs), None, "the third has to be asked for");
    let outs = bench.probed(stream, true);
    assert_eq!(
        send_of(&outs),
        Some((1, 2 * WINDOW, WINDOW)),
        "the fourth is unknown"
    );
}

#[test]
fn a_cold_window_is_wanted_and_the_next_is_read_while_it_is_sent() {
    let (mut bench, stream, outs) = begun(ResidencySource::Remember, 0, 3 * WINDOW);
    let now = bench.now;
    assert_eq!(wants_of(&outs), [(0, now)], "the stream stands still");
    assert_eq!(send_of(&outs), None);
    bench.wait_us(8_000);
    let outs = bench.fetched(stream, window(0));
    assert!(matches!(wants_of(&outs)[..], [(1, underrun_at)] if underrun_at > bench.now));
    assert_eq!(send_of(&outs), Some((1, 0, WINDOW)));
    bench.sent(stream, 1_000, true);
    let outs = bench.fetched(stream, window(1));
    assert!(
        matches!(wants_of(&outs)[..], [(2, underrun_at)] if underrun_at > bench.now),
        "when it is due, the disk machine knows"
    );
    bench.tcp(stream.conn, TcpEvent::Writable);
    let outs = bench.sent(stream, WINDOW - 1_000, false);
    assert_eq!(send_of(&outs), Some((1, WINDOW, WINDOW)));
    bench.fetched(stream, window(2));
    let outs = bench.sent(stream, WINDOW, false);
    assert_eq!(wants_of(&outs), [], "the file ends");
    assert_eq!(send_of(&outs), Some((1, 2 * WINDOW, WINDOW)));
    let outs = bench.sent(stream, WINDOW, false);
    assert_eq!(outs, [Out::Forget(stream)], "the disk counts it no more");
}

#[test]
fn a_stream_that_runs_dry_says_so_once() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, 3 * WINDOW);
    bench.wait_us(8_000);
    bench.fetched(stream, window(0));
    let outs = bench.sent(stream, WINDOW, false);
    assert_eq!(wants_of(&outs), [(1, bench.now)], "now it is urgent");
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    assert_eq!(wants_of(&outs), []);
    let outs = bench.fetched(stream, window(1));
    assert_eq!(send_of(&outs), Some((1, WINDOW, WINDOW)));
}

#[test]
fn a_window_dropped_between_arrival_and_sending_is_wanted_again() {
    let (mut bench, stream, _) = begun(ResidencySource::Ask, 0, WINDOW);
    bench.probed(stream, false);
    bench.fetched(stream, window(0));
    bench.sent(stream, 1_000, true);
    bench.wait_us(RESIDENCY_TRUST_US);
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    let rest = Span {
        offset_bytes: 1_000,
        len_bytes: WINDOW - 1_000,
    };
    assert!(matches!(outs[..], [Out::Probe { span, .. }] if span == rest));
    let outs = bench.probed(stream, false);
    assert_eq!(wants_of(&outs), [(0, bench.now)]);
    let outs = bench.fetched(stream, rest);
    assert_eq!(send_of(&outs), Some((1, 1_000, WINDOW - 1_000)));
}

#[test]
fn a_slow_stream_never_waits_for_what_it_reads_ahead() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, 3 * WINDOW);
    bench.fetched(stream, window(0)); // window 1 is wanted now
    bench.sent(stream, 1_000, true);
    bench.wait_us(RESIDENCY_TRUST_US);
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    assert!(matches!(outs[..], [Out::Probe { span, .. }] if span.offset_bytes == 1_000));
    let outs = bench.probed(stream, true);
    assert_eq!(send_of(&outs), Some((1, 1_000, WINDOW - 1_000)));
}

#[test]
fn what_is_needed_now_replaces_what_was_wanted_ahead() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, 3 * WINDOW);
    bench.fetched(stream, window(0)); // window 1 is wanted now
    bench.sent(stream, 1_000, true);
    bench.wait_us(RESIDENCY_TRUST_US);
    bench.tcp(stream.conn, TcpEvent::Writable);
    let outs = bench.probed(stream, false);
    assert_eq!(wants_of(&outs), [(0, bench.now)]);
    let late = In::Fetched {
        stream,
        seq: WantSeq(2),
        span: window(1),
        held: Held::PageCache,
        chosen: CHOSEN,
    };
    assert!(!bench.worker.awaits(stream, WantSeq(2)) && bench.worker.awaits(stream, WantSeq(3)));
    assert_eq!(bench.tell(late), [], "too late");
    assert!(bench.worker.awaits(stream, WantSeq(3)), "it still waits");
    let rest = Span {
        offset_bytes: 1_000,
        len_bytes: WINDOW - 1_000,
    };
    let outs = bench.fetched(stream, rest);
    assert!(matches!(wants_of(&outs)[..], [(1, _)]), "{outs:?}");
    assert!(send_of(&outs).is_some());
}

#[test]
fn the_last_bytes_of_a_window_do_not_vouch_for_its_first() {
    let (mut bench, stream, _) = begun(ResidencySource::Ask, WINDOW - 10, 10);
    let outs = bench.probed(stream, true);
    bench.deliver(outs);
    let stream = bench.request(stream.conn);
    bench.resolved(stream, plan([body(ResidencySource::Ask, 0, WINDOW)], true));
    let outs = bench.sent(stream, HEAD_BYTES, false);
    assert!(matches!(outs[..], [Out::Probe { .. }]), "{outs:?}");
}

#[test]
fn a_stream_that_ends_while_the_disk_may_hold_its_want_is_forgotten() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, 2 * WINDOW);
    bench.fetched(stream, window(0)); // window 1 is wanted now
    bench.sent(stream, WINDOW, false); // and now again, urgently
    let outs = bench.fetched(stream, window(1)); // the answer to the first
    let outs = bench.deliver(outs);
    let forget = outs.iter().filter(|out| !matches!(out, Out::Sample(_)));
    let forget: Vec<&Out> = forget.collect();
    assert_eq!(
        forget,
        [&Out::Forget(stream)],
        "the second may be under way"
    );
}

#[test]
fn another_client_finds_what_the_first_had_read() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, WINDOW);
    bench.fetched(stream, window(0));
    let conn = bench.client(1);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 500, 9)], true),
    );
    let outs = bench.sent(stream, HEAD_BYTES, false);
    assert_eq!(send_of(&outs), Some((1, 0, 9)));
}

#[test]
fn who_takes_nothing_has_no_more_read_until_it_takes_some() {
    let (mut bench, stream, outs) = begun(ResidencySource::Remember, 0, 3 * WINDOW);
    assert_eq!(wants_of(&outs), [(0, bench.now)]);
    let held = Held::Slots;
    let read = |n: u64| Span {
        offset_bytes: n * READ,
        len_bytes: READ,
    };
    let fill = |bench: &mut Bench, n| {
        let span = read(n);
        bench.tell(In::Fetched {
            stream,
            seq: PENDING,
            span,
            held,
            chosen: CHOSEN,
        })
    };
    let outs = fill(&mut bench, 0);
    assert_eq!(wants_of(&outs), [], "what it has is offered first");
    let outs = bench.sent(stream, READ, false);
    assert_eq!(wants_of(&outs), [(0, bench.now)], "it took all at once");
    fill(&mut bench, 1);
    let outs = bench.sent(stream, 0, true);
    let far = bench.now.plus_us(UNTAKEN_US);
    assert_eq!(wants_of(&outs), [(0, far)]);
    bench.wait_us(50_000);
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    let soon = bench.now.plus_us(UNKNOWN_MARGIN_US);
    assert_eq!(wants_of(&outs), [(0, soon)], "{outs:?}");
}

#[test]
fn who_pauses_gives_its_slots_back_and_goes_on_where_it_was() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, 3 * WINDOW);
    let held = Held::Slots;
    let fill = |bench: &mut Bench, offset_bytes| {
        let span = Span {
            offset_bytes,
            len_bytes: READ,
        };
        bench.tell(In::Fetched {
            stream,
            seq: PENDING,
            span,
            held,
            chosen: CHOSEN,
        })
    };
    fill(&mut bench, 0);
    bench.sent(stream, 50_000, true);
    bench.sample = TcpSample {
        unacked_bytes: 50_000,
        window_closed: true,
        ..TcpSample::default()
    };
    let gives_back = |outs: &[Out]| {
        let orders = [Out::Forget(stream), Out::Release(stream)];
        orders.map(|order| outs.iter().filter(|out| **out == order).count())
    };
    let outs = bench.wait_us(PAUSED_US);
    assert_eq!(gives_back(&outs), [0, 0], "it may be just slow");
    let outs = bench.wait_s(60);
    assert_eq!(gives_back(&outs), [1, 1], "once");
    assert_eq!(wants_of(&outs), [], "and it wants for nothing");
    assert_eq!(fill(&mut bench, READ), [], "too late");
    bench.sample.window_closed = false;
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    let at = |out: &Out| match *out {
        Out::Want(want) => Some(want.span.offset_bytes),
        _ => None,
    };
    assert_eq!(outs.iter().filter_map(at).collect::<Vec<_>>(), [50_000]);
    let outs = fill(&mut bench, 50_000);
    assert_eq!(send_of(&outs), Some((1, 50_000, READ)));
}

#[test]
fn a_stream_that_waits_for_the_disk_is_looked_at_and_its_want_dated_anew() {
    let (mut bench, stream, _) = begun(ResidencySource::Remember, 0, 100 * WINDOW);
    let take = |bench: &mut Bench, offset_bytes, unsent_bytes| {
        let (span, held) = (
            Span {
                offset_bytes,
                len_bytes: READ,
            },
            Held::Slots,
        );
        bench.tell(In::Fetched {
            stream,
            seq: PENDING,
            span,
            held,
            chosen: CHOSEN,
        });
        bench.tell(In::Sent {
            stream,
            taken_bytes: READ,
            full: false,
            unsent_bytes: Some(unsent_bytes),
        })
    };
    // Each second it takes all but a few of READ bytes, and the socket never becomes writable.
    for n in 0..4 {
        bench.sample.unsent_bytes = Some(READ);
        take(&mut bench, n * READ, READ);
        bench.sample.unsent_bytes = Some(READ / 100);
        bench.wait_s(1);
    }
    // Then it stalls, which causes no event either.
    bench.sample.unsent_bytes = Some(READ);
    take(&mut bench, 4 * READ, READ);
    let outs = bench.wait_s(4);
    let underrun_at = outs.iter().filter_map(|out| match out {
        Out::Want(want) => Some(want.underrun_at),
        _ => None,
    });
    let underrun_at: Vec<Instant> = underrun_at.collect();
    assert!(
        underrun_at.len() >= 2 && underrun_at.is_sorted(),
        "{underrun_at:?}"
    );
    assert!(underrun_at.last() > Some(&bench.now), "{underrun_at:?}");
}
