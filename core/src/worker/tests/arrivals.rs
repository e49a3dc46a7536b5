//! What is logged of a response: exactly what the client acknowledged.

use super::*;
use crate::limits::{ARRIVAL_BYTES, ARRIVALS_MAX};

fn bench() -> Bench {
    Bench::new(Settings {
        arrivals: true,
        ..settings()
    })
}

/// Stream number, bytes sent, acknowledged, whole, why.
fn arrived(outs: &[Out]) -> Vec<(u16, u64, u64, bool, Why)> {
    let arrived = outs.iter().filter_map(|out| match out {
        Out::Arrived { stream, outcome: o } => {
            Some((stream.nth, o.sent_bytes, o.acked_bytes, o.whole, o.why))
        }
        _ => None,
    });
    arrived.collect()
}

/// A response of 1,000 body bytes, all given to the kernel.
fn respond(bench: &mut Bench, conn: ConnId, keep_alive: bool) -> Vec<Out> {
    let stream = bench.request(conn);
    let outs = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 1_000)], keep_alive),
    );
    bench.deliver(outs)
}

#[test]
fn a_response_has_arrived_when_its_last_byte_is_acknowledged() {
    let mut bench = bench();
    let conn = bench.client(0);
    bench.sample = unacked(1_100);
    assert_eq!(arrived(&respond(&mut bench, conn, true)), []);
    for pending_bytes in [1_000, 1] {
        bench.sample = unacked(pending_bytes);
        assert_eq!(arrived(&bench.wait_s(1)), []);
    }
    bench.sample = unacked(0);
    let whole = (0, 1_000, 1_000, true, Why::Done);
    assert_eq!(arrived(&bench.wait_s(1)), [whole]);
    assert_eq!(arrived(&bench.wait_s(5)), [], "once");
}

#[test]
fn pipelined_responses_arrive_one_by_one() {
    let mut bench = bench();
    let conn = bench.client(0);
    for (nth, pending_bytes) in [(0, 1_100), (1, 2_200), (2, 3_300)] {
        bench.sample = unacked(pending_bytes - 1_100);
        if nth > 0 {
            bench.sample = unacked(1_100 * nth);
        }
        assert_eq!(arrived(&respond(&mut bench, conn, true)), []);
    }
    bench.sample = unacked(1_500);
    let whole = |nth| (nth, 1_000, 1_000, true, Why::Done);
    assert_eq!(arrived(&bench.wait_s(1)), [whole(0)]);
    bench.sample = unacked(0);
    assert_eq!(arrived(&bench.wait_s(1)), [whole(1), whole(2)]);
}

#[test]
fn the_next_request_is_an_occasion_to_look() {
    let mut bench = bench();
    let conn = bench.client(0);
    bench.sample = unacked(1_100);
    respond(&mut bench, conn, true);
    bench.sample = unacked(0);
    bench.tcp(conn, TcpEvent::Readable);
    let (body, more) = (false, false);
    let outs = bench.received(conn, Received::Request { body, more });
    assert_eq!(arrived(&outs).len(), 1);
}

#[test]
fn a_reset_mid_way_tells_what_arrived_before_it() {
    let mut bench = bench();
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    bench.sent(stream, 5_000, true);
    bench.sample = unacked(2_000);
    let outs = bench.tcp(conn, TcpEvent::Reset);
    assert_eq!(arrived(&outs), [(0, 5_000, 3_000, false, Why::PeerReset)]);
    assert_eq!(bench.closed_in(&outs), closed(0, false, Why::PeerReset));
}

#[test]
fn a_reset_after_the_last_byte_was_sent_is_still_told_by_what_was_acknowledged() {
    for (pending_bytes, acked_bytes, whole) in
        [(0, 1_000, true), (1, 999, false), (1_050, 0, false)]
    {
        let mut bench = bench();
        let conn = bench.client(0);
        bench.sample = unacked(1_100);
        respond(&mut bench, conn, false);
        bench.sample = unacked(pending_bytes);
        let outs = bench.tcp(conn, TcpEvent::Reset);
        let told = (0, 1_000, acked_bytes, whole, Why::Done);
        assert_eq!(arrived(&outs), [told]);
        assert!(bench.closed_in(&outs).is_some());
    }
}

#[test]
fn a_response_that_failed_is_not_whole_though_all_of_it_arrived() {
    let mut bench = bench();
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, WINDOW)], true),
    );
    bench.sent(stream, HEAD_BYTES, false);
    bench.sent(stream, 500, false);
    let why = Why::FileChanged;
    bench.tell(In::Failed { stream, why });
    assert_eq!(arrived(&bench.wait_s(1)), [(0, 500, 500, false, why)]);
}

#[test]
fn what_waits_to_be_told_is_bounded() {
    let mut bench = bench();
    let conn = bench.client(0);
    for nth in 0..=ARRIVALS_MAX as u64 {
        bench.sample = unacked(1_100 * nth);
        let told = arrived(&respond(&mut bench, conn, true));
        let above = nth == ARRIVALS_MAX as u64;
        assert_eq!(told.len(), usize::from(above), "{nth}");
    }
}

/// As [`respond`], with a request of which the log keeps this much.
fn respond_logged(bench: &mut Bench, conn: ConnId, bytes: u64) -> Vec<Out> {
    let stream = bench.request(conn);
    let mut outs = bench.tell(In::Recorded { stream, bytes });
    let answered = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 1_000)], true),
    );
    outs.extend(bench.deliver(answered));
    outs
}

fn bench_with(arrivals_bytes_max: u64) -> Bench {
    Bench::new(Settings {
        arrivals: true,
        arrivals_bytes_max,
        ..settings()
    })
}

#[test]
fn what_is_kept_for_the_log_is_bounded_over_all_connections_and_the_oldest_goes_first() {
    let each_bytes = 1_000 + ARRIVAL_BYTES;
    let mut bench = bench_with(3 * each_bytes);
    bench.sample = unacked(1_100);
    for index in 0..3 {
        let conn = bench.client(index);
        assert_eq!(arrived(&respond_logged(&mut bench, conn, 1_000)), []);
    }
    for index in 3..40 {
        let conn = bench.client(index);
        let outs = respond_logged(&mut bench, conn, 1_000);
        let told: Vec<u32> = (outs.iter())
            .filter_map(|out| match out {
                Out::Arrived { stream, .. } => Some(stream.conn.index),
                _ => None,
            })
            .collect();
        assert_eq!(told, [index - 3], "who has waited longest makes room");
    }
    bench.sample = unacked(0);
    let whole = (0, 1_000, 1_000, true, Why::Done);
    assert_eq!(arrived(&bench.wait_s(1)), [whole; 3]);
    assert_eq!(
        bench.worker.record_room_bytes(),
        3 * each_bytes - ARRIVAL_BYTES,
        "nothing is left of them"
    );
}

#[test]
fn requests_under_way_leave_less_room_and_give_it_back_with_their_connection() {
    let mut bench = bench_with(10_000);
    let all_bytes = bench.worker.record_room_bytes();
    for index in 0..4 {
        let conn = bench.client(index);
        let stream = bench.request(conn);
        bench.tell(In::Recorded {
            stream,
            bytes: 2_500,
        });
        bench.resolved(
            stream,
            plan([body(ResidencySource::Always, 0, 1_000)], true),
        );
    }
    assert_eq!(bench.worker.record_room_bytes(), 0);
    for index in 0..4 {
        bench.sample = unacked(0);
        bench.tcp(conn_id(index), TcpEvent::Reset);
    }
    assert_eq!(bench.worker.record_room_bytes(), all_bytes);
}

#[test]
fn a_response_that_was_acknowledged_at_once_is_settled_within_a_tick_and_ends_where_it_ended() {
    let mut bench = bench();
    bench.wait_us(300_000);
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.wait_us(40_000);
    let outs = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 1_000)], true),
    );
    assert_eq!(arrived(&bench.deliver(outs)), []);
    assert_eq!(bench.ended, [stream], "the log is told when");
    bench.sample = unacked(0);
    let outs = bench.wait_s(1);
    let outcome = outs.iter().find_map(|out| match out {
        Out::Arrived { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcome.map(|o| (o.whole, o.took_us)), Some((true, 40_000)));
}

#[test]
fn idle_connections_whose_responses_are_settled_are_not_looked_at() {
    let mut bench = bench();
    bench.sample = unacked(0);
    for index in 0..100 {
        let conn = bench.client(index);
        respond(&mut bench, conn, true);
    }
    bench.wait_s(1);
    let samples = |outs: Vec<Out>| {
        outs.iter()
            .filter(|out| matches!(out, Out::Sample(_)))
            .count()
    };
    assert_eq!(samples(bench.wait_s(20)), 0);
}

#[test]
fn a_client_whose_fin_came_first_is_closed_when_all_has_arrived() {
    let mut bench = bench();
    let conn = bench.client(0);
    bench.sample = unacked(700);
    respond(&mut bench, conn, true);
    bench.tcp(conn, TcpEvent::Fin);
    let outs = bench.received(conn, Received::End);
    assert_eq!(outs, [Out::Shutdown(conn)]);
    assert_eq!(bench.closed_within_s(5), None);
    bench.sample = unacked(0);
    let outs = bench.wait_s(1);
    assert_eq!(arrived(&outs).len(), 1);
    assert!(bench.closed_in(&outs).is_some());
}

#[test]
fn an_idle_connection_whose_client_still_takes_bytes_is_told_whole() {
    let mut bench = bench();
    let conn = bench.client(0);
    bench.sample = unacked(1_000);
    respond(&mut bench, conn, true);
    assert_eq!(bench.closed_within_s(80), None, "it lingers instead");
    bench.sample = unacked(0);
    let outs = bench.wait_s(1);
    assert_eq!(arrived(&outs), [(0, 1_000, 1_000, true, Why::Done)]);
}

#[test]
fn waits_and_the_whole_time_are_told() {
    let mut bench = bench();
    let conn = bench.client(0);
    let stream = bench.request(conn);
    bench.wait_us(1_000); // the file is found
    bench.resolved(
        stream,
        plan([body(ResidencySource::Remember, 0, 1_000)], true),
    );
    bench.wait_us(20);
    bench.sent(stream, HEAD_BYTES, false);
    bench.wait_us(5_000); // and read
    let span = Span {
        offset_bytes: 0,
        len_bytes: 1_000,
    };
    bench.fetched(stream, span);
    bench.sent(stream, 400, true);
    bench.wait_us(7_000);
    bench.tcp(conn, TcpEvent::Writable);
    bench.sent(stream, 600, false);
    let outs = bench.wait_s(1);
    let Some(Out::Arrived { outcome: o, .. }) =
        outs.iter().find(|o| matches!(o, Out::Arrived { .. }))
    else {
        panic!("{outs:?}");
    };
    assert_eq!(
        (o.waited_disk_us, o.waited_net_us, o.took_us),
        (6_000, 7_000, 13_020)
    );
}

#[test]
fn without_a_log_nothing_is_told_or_measured() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let outs = respond(&mut bench, conn, true);
    assert_eq!(outs, []);
    let outs = bench.wait_s(3);
    assert_eq!(outs, []);
}
