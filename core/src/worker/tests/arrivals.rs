//! What the log is told of a response: exactly what the client acknowledged.

use super::*;
use crate::limits::ARRIVALS_MAX;

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
    let outs = bench.resolved(stream, plan([body(Oracle::Always, 0, 1_000)], keep_alive));
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
    bench.resolved(stream, plan([body(Oracle::Always, 0, WINDOW)], true));
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
    bench.resolved(stream, plan([body(Oracle::Always, 0, WINDOW)], true));
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
    bench.resolved(stream, plan([body(Oracle::Remember, 0, 1_000)], true));
    bench.wait_us(20);
    bench.sent(stream, HEAD_BYTES, false);
    bench.wait_us(5_000); // and read
    let span = Span {
        offset_bytes: 0,
        len_bytes: 1_000,
    };
    bench.filled(stream, span);
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
