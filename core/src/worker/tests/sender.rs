//! Shares of the send memory.

use super::*;
use crate::addresses::Address;
use crate::limits::SHARE_BYTES_MIN;
use crate::sndbuf::bound::Grant;
use crate::sndbuf::depletion::RefillDelay;
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
    bench.tell(In::StartShare {
        share_bytes: START_BYTES,
    });
    bench
}

/// What is ordered about shares: bytes, and whether the connection joins.
fn shares(outs: &[Out]) -> Vec<(Option<u64>, bool)> {
    let shares = outs.iter().filter_map(|out| match out {
        Out::Share { grant, joins, .. } => Some((grant.map(|grant| grant.share_bytes), *joins)),
        _ => None,
    });
    shares.collect()
}

fn lowats(outs: &[Out]) -> Vec<u32> {
    let sends = outs.iter().filter_map(|out| match out {
        Out::Send { refill, .. } => Some(refill.expect("margins are on").lowat_bytes),
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

    fn granted(&mut self, conn: ConnId, share_bytes: u64) -> Vec<Out> {
        let grant = Grant {
            share_bytes,
            ..Grant::default()
        };
        self.tell(In::Share { conn, grant })
    }

    fn taken_back(&mut self, conn: ConnId, held_bytes: u64) -> Vec<Out> {
        self.tell(In::NoShare { conn, held_bytes })
    }
}

#[test]
fn a_response_has_a_start_share_before_its_first_byte_and_is_filled_by_its_share() {
    let mut bench = divided();
    let conn = bench.accepted(0, ADDRESS);
    assert_eq!(bench.worker.senders(0).count(), 0, "it sends nothing yet");
    let (stream, outs) = bench.downloads(conn);
    assert_eq!(shares(&outs), [(Some(START_BYTES), true)]);
    let place = |wanted: fn(&Out) -> bool| outs.iter().position(wanted);
    let (share, send) = (
        place(|out| matches!(out, Out::Share { .. })),
        place(|out| matches!(out, Out::Send { .. })),
    );
    assert!(share < send, "{outs:?}");
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
    let outs = bench.granted(conn, 5_000);
    assert_eq!(shares(&outs), [(Some(5_000), false)]);
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
fn a_share_below_the_least_counts_as_that_also_for_how_far_a_socket_is_filled() {
    // The kernel takes a TCP_NOTSENT_LOWAT of 0 as no bound, and would call a full socket at once for ever.
    for share_bytes in [0, 1, SHARE_BYTES_MIN - 1] {
        let mut bench = divided();
        bench.tell(In::StartShare { share_bytes });
        let conn = bench.accepted(0, ADDRESS);
        let (stream, outs) = bench.downloads(conn);
        assert_eq!(lowats(&outs), [SHARE_BYTES_MIN as u32], "to start with");
        bench.granted(conn, share_bytes);
        bench.sent(stream, HEAD_BYTES, true);
        let outs = bench.tcp(conn, TcpEvent::Writable);
        assert_eq!(lowats(&outs), [SHARE_BYTES_MIN as u32]);
        let calls = outs.iter().find_map(|out| match out {
            Out::Send { refill, .. } => refill.map(|refill| refill.epollout_bytes),
            _ => None,
        });
        assert!(calls > Some(0), "{share_bytes}: {outs:?}");
    }
}

/// A round is for those whose sockets call. What a timer fills has no room before: each send would be in vain.
#[test]
fn a_socket_that_a_timer_fills_takes_no_part_in_a_round() {
    let mut bench = divided();
    let [calling, timed] = [0, 1].map(|index| bench.accepted(index, ADDRESS));
    let streams = [calling, timed].map(|conn| {
        let (stream, _) = bench.downloads(conn);
        bench.granted(conn, 30_000);
        bench.sent(stream, HEAD_BYTES, false);
        stream
    });
    let fill = |bench: &mut Bench, nth: usize| {
        bench.tell(In::Sent {
            stream: streams[nth],
            taken_bytes: 20_000,
            full: true,
            unsent_bytes: Some(24_000), // some was left
        })
    };
    (0..2).for_each(|nth| drop(fill(&mut bench, nth)));
    for _ in 0..10 {
        bench.wait_us(200_000);
        for (nth, conn) in [calling, timed].into_iter().enumerate() {
            bench.tcp(conn, TcpEvent::Writable);
            fill(&mut bench, nth);
        }
    }
    let delay = RefillDelay {
        us: 250_000,
        whole_us: 250_000,
    };
    bench.tell(In::RefillAfter { conn: timed, delay });
    bench.wait_us(199_000);
    let sends = |outs: &[Out]| -> Vec<ConnId> {
        let send = |out: &Out| match out {
            Out::Send { stream, .. } => Some(stream.conn),
            _ => None,
        };
        outs.iter().filter_map(send).collect()
    };
    let outs = bench.tcp(calling, TcpEvent::Writable);
    assert_eq!(sends(&outs), [calling]);
    assert_eq!(sends(&bench.wait_us(51_000)), [timed]);
    assert_eq!(shown(&bench, timed), Some(TopUp::Timer));
    assert_eq!(bench.worker.counts().top_ups[TopUp::Timer as usize], 1);
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
fn a_unix_socket_has_no_share_and_where_nothing_is_divided_nobody_has() {
    let mut bench = divided();
    let conn = bench.accepted(0, None);
    assert_eq!(shares(&bench.downloads(conn).1), []);
    let mut bench = Bench::new(settings());
    let conn = bench.accepted(0, ADDRESS);
    assert_eq!(shares(&bench.downloads(conn).1), []);
    assert_eq!(shares(&bench.granted(conn, 5_000)), [], "a late one");
}

#[test]
fn a_share_is_given_back_unless_another_response_has_begun() {
    let mut bench = divided();
    let conn = bench.accepted(0, ADDRESS);
    let stream = bench.request(conn);
    let outs = bench.resolved(stream, plan([], true));
    assert_eq!(shares(&outs), [(Some(START_BYTES), true)]);
    bench.deliver(outs);
    assert_eq!(
        bench.worker.sender(conn).map(|sender| sender.is_sending),
        Some(false)
    );
    assert_eq!(shares(&bench.taken_back(conn, 0)), [(None, false)]);
    assert_eq!(bench.worker.sender(conn), None);
    let (_, outs) = bench.downloads(conn);
    assert_eq!(shares(&outs), [(Some(START_BYTES), true)], "it joins again");
    let outs = bench.taken_back(conn, 0);
    assert_eq!(
        shares(&outs),
        [(None, false), (Some(START_BYTES), true)],
        "who divides had not heard of that"
    );
}

#[test]
fn a_share_stays_while_the_socket_holds_something() {
    let mut bench = divided();
    let conn = bench.accepted(0, ADDRESS);
    let (stream, _) = bench.downloads(conn);
    bench.sent(stream, HEAD_BYTES, false);
    assert_eq!(shares(&bench.taken_back(conn, 1)), [], "it was idle before");
    assert!(bench.worker.sender(conn).is_some());
}
