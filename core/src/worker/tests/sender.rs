//! Caps, where send memory is divided.

use super::*;
use crate::addresses::Address;
use crate::send::CAP_BYTES_MIN;
use crate::why::TopUp;

const START_BYTES: u64 = 14_480;
const ADDRESS: Option<Address> = Some(Address(7));

fn divided() -> Bench {
    let mut bench = Bench::new(Settings {
        send: SendPolicy::Margin {
            budget_bytes: 48 << 20,
        },
        ..settings()
    });
    bench.tell(In::StartCap {
        cap_bytes: START_BYTES,
    });
    bench
}

/// The caps that are ordered.
fn caps(outs: &[Out]) -> Vec<u64> {
    let caps = outs.iter().filter_map(|out| match out {
        Out::Cap { cap_bytes, .. } => Some(*cap_bytes),
        _ => None,
    });
    caps.collect()
}

fn lowats(outs: &[Out]) -> Vec<u32> {
    let sends = outs.iter().filter_map(|out| match out {
        Out::Send(order) => Some(order.refill.expect("margins are on").lowat_bytes),
        _ => None,
    });
    sends.collect()
}

impl Bench {
    fn accepted(&mut self, index: u32, address: Option<Address>) -> ConnId {
        let conn = conn_id(index);
        self.tell(In::Accepted { conn, address });
        self.received(conn, Received::Nothing);
        conn
    }

    fn downloads(&mut self, conn: ConnId) -> (StreamId, Vec<Out>) {
        let stream = self.request(conn);
        let long = plan([body(ResidencySource::Always, 0, 1 << 40)], true);
        let outs = self.resolved(stream, long);
        (stream, outs)
    }

    fn capped(&mut self, conn: ConnId, cap_bytes: Option<u64>) -> Vec<Out> {
        self.tell(In::Cap { conn, cap_bytes })
    }
}

#[test]
fn a_response_has_a_cap_before_its_first_byte_and_is_filled_by_it() {
    let mut bench = divided();
    let conn = bench.accepted(0, ADDRESS);
    assert_eq!(bench.worker.senders(0).count(), 0, "it sends nothing yet");
    let (stream, outs) = bench.downloads(conn);
    assert_eq!(caps(&outs), [START_BYTES]);
    let place = |wanted: fn(&Out) -> bool| outs.iter().position(wanted);
    let (cap, send) = (
        place(|out| matches!(out, Out::Cap { .. })),
        place(|out| matches!(out, Out::Send(_))),
    );
    assert!(cap < send, "{outs:?}");
    assert_eq!(
        lowats(&outs),
        [START_BYTES as u32],
        "also the first low-water mark"
    );
    assert_eq!(
        bench.worker.sender(conn).map(|sender| sender.is_sending),
        Some(true)
    );
    bench.sent(stream, HEAD_BYTES, false);
    bench.capped(conn, Some(5_000));
    bench.tell(In::Sent {
        stream,
        taken_bytes: 5_000,
        full: true,
        unsent_bytes: Some(5_000),
    });
    bench.wait_us(20_000);
    let outs = bench.tcp(conn, TcpEvent::Writable);
    assert_eq!(lowats(&outs), [5_000]);
}

#[test]
fn a_cap_below_the_least_counts_as_that() {
    // The kernel takes a TCP_NOTSENT_LOWAT of 0 as no bound, and would call a full socket at once for ever.
    for cap_bytes in [0, 1, CAP_BYTES_MIN - 1] {
        let mut bench = divided();
        bench.tell(In::StartCap { cap_bytes });
        let conn = bench.accepted(0, ADDRESS);
        let (stream, outs) = bench.downloads(conn);
        assert_eq!(lowats(&outs), [CAP_BYTES_MIN as u32], "to start with");
        bench.capped(conn, Some(cap_bytes));
        bench.sent(stream, HEAD_BYTES, true);
        let outs = bench.tcp(conn, TcpEvent::Writable);
        assert_eq!(lowats(&outs), [CAP_BYTES_MIN as u32]);
        let calls = outs.iter().find_map(|out| match out {
            Out::Send(order) => order.refill.map(|refill| refill.epollout_bytes),
            _ => None,
        });
        assert!(calls > Some(0), "{cap_bytes}: {outs:?}");
    }
}

/// Why it was filled last, as an operator is told.
fn shown(bench: &Bench, conn: ConnId) -> Option<TopUp> {
    let snapshot = bench.worker.snapshot_of(conn, bench.now)?;
    Some(snapshot.response?.top_up)
}

#[test]
fn a_socket_that_counts_as_full_and_is_empty_is_filled_for_that_reason() {
    let mut bench = divided();
    let conn = bench.accepted(0, ADDRESS);
    let (stream, _) = bench.downloads(conn);
    bench.sent(stream, HEAD_BYTES, true);
    bench.tcp(conn, TcpEvent::Sample(unacked(1)));
    assert_eq!(shown(&bench, conn), Some(TopUp::First));
    bench.tcp(conn, TcpEvent::Sample(unacked(0)));
    assert_eq!(shown(&bench, conn), Some(TopUp::Empty));
    assert_eq!(bench.worker.counts().top_ups[TopUp::Empty as usize], 1);
}

#[test]
fn a_unix_socket_has_no_cap_and_where_nothing_is_divided_nobody_has() {
    let mut bench = divided();
    let conn = bench.accepted(0, None);
    assert_eq!(caps(&bench.downloads(conn).1), []);
    let mut bench = Bench::new(settings());
    let conn = bench.accepted(0, ADDRESS);
    assert_eq!(caps(&bench.downloads(conn).1), []);
    bench.capped(conn, Some(5_000)); // a late one
    assert_eq!(bench.worker.sender(conn), None);
}

#[test]
fn a_cap_ends_unless_another_response_has_begun() {
    let mut bench = divided();
    let conn = bench.accepted(0, ADDRESS);
    let stream = bench.request(conn);
    let outs = bench.resolved(stream, plan([], true));
    assert_eq!(caps(&outs), [START_BYTES]);
    bench.deliver(outs);
    let sender = bench.worker.sender(conn);
    assert_eq!(sender.map(|sender| sender.is_sending), Some(false));
    bench.capped(conn, None);
    assert_eq!(bench.worker.sender(conn), None);
    let (_, outs) = bench.downloads(conn);
    assert_eq!(caps(&outs), [START_BYTES], "it joins again");
    bench.capped(conn, None);
    assert!(
        bench.worker.sender(conn).is_some(),
        "who divides had not heard of that"
    );
}
