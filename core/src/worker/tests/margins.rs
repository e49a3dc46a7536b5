//! Sending by margins: which sockets are topped up when one becomes writable.

use super::*;
use crate::why::{TopUp, Wait, What};

const MS: u64 = 1000;
/// 1 MB/s with the head, which went before.
const TAKEN_BYTES: u64 = 50_000;

fn by_margin() -> Settings {
    Settings {
        send: SendPolicy::Margin {
            budget_bytes: 48 << 20,
        },
        ..settings()
    }
}

impl Bench {
    /// The socket took bytes, is full, and holds this many unsent.
    fn full(&mut self, stream: StreamId, taken_bytes: u64, unsent_bytes: u64) -> Vec<Out> {
        self.tell(In::Sent {
            stream,
            taken_bytes,
            full: true,
            unsent_bytes: Some(unsent_bytes),
        })
    }

    /// A client that downloads at 1 MB/s, whose rate is known, and whose socket is full.
    fn downloading(&mut self, index: u32) -> StreamId {
        let conn = self.client(index);
        let stream = self.request(conn);
        self.resolved(
            stream,
            plan([body(ResidencySource::Always, 0, 1 << 40)], true),
        );
        self.sent(stream, HEAD_BYTES, false);
        self.full(stream, 128 << 10, 128 << 10);
        stream
    }
}

/// The connections whose `Send` is among the orders, and how much each socket should take.
fn sends(outs: &[Out]) -> Vec<(u32, u64)> {
    let sends = outs.iter().filter_map(|out| match out {
        Out::Send(order) => {
            let refill = order.refill.expect("margins are on");
            Some((order.stream.conn.index, refill.bytes))
        }
        _ => None,
    });
    sends.collect()
}

/// What is in a full socket at 1 MB/s: T is 200 ms at first, and the socket becomes writable 30 ms before it is empty.
const FULL_BYTES: u64 = 230_000;

/// Clients 0 and 1 are half empty, then full at a known rate of 1 MB/s.
fn two_at_a_known_rate() -> (Bench, [StreamId; 2]) {
    let mut bench = Bench::new(by_margin());
    let streams = [0, 1].map(|index| bench.downloading(index));
    bench.wait_us(50 * MS);
    for stream in streams {
        let index = stream.conn.index;
        let outs = bench.tcp(stream.conn, TcpEvent::Writable);
        assert_eq!(sends(&outs), [(index, u64::MAX)], "who knows");
        let outs = bench.full(stream, TAKEN_BYTES, 128 << 10);
        let more_bytes = FULL_BYTES - (128 << 10);
        assert_eq!(sends(&outs), [(index, more_bytes)]);
        let outs = bench.full(stream, more_bytes, FULL_BYTES);
        assert_eq!(sends(&outs), []);
    }
    (bench, streams)
}

#[test]
fn a_call_for_one_tops_up_whoever_would_be_called_for_before_the_next_round() {
    let (mut bench, [first, second]) = two_at_a_known_rate();
    bench.wait_us(190 * MS);
    let outs = bench.tcp(first.conn, TcpEvent::Writable);
    let both = [(0, 200_000), (1, 190_000)];
    assert_eq!(sends(&outs), both, "the second was not writable");
    assert_eq!(sends(&bench.full(first, 190_000, FULL_BYTES)), []);
    assert_eq!(sends(&bench.full(second, 190_000, FULL_BYTES)), []);
}

#[test]
fn a_socket_that_lasts_until_the_next_round_is_left_alone() {
    let (mut bench, [first, second]) = two_at_a_known_rate();
    bench.wait_us(190 * MS);
    bench.tcp(first.conn, TcpEvent::Writable);
    bench.full(first, 190_000, FULL_BYTES);
    bench.full(second, 490_000, 530_000); // more than was ordered, as when a response was queued behind another
    bench.wait_us(190 * MS);
    let outs = bench.tcp(first.conn, TcpEvent::Writable);
    let sent: Vec<u32> = sends(&outs).iter().map(|(index, _)| *index).collect();
    assert_eq!(
        sent,
        [0],
        "340 KB are left to the second, and it takes 200 until then"
    );
}

#[test]
fn shortly_after_a_round_a_call_tops_up_its_own_connection_only() {
    for (later_ms, who) in [(39, vec![0]), (40, vec![0, 1])] {
        let (mut bench, [first, second]) = two_at_a_known_rate();
        bench.wait_us(190 * MS);
        bench.tcp(first.conn, TcpEvent::Writable);
        bench.full(first, 190_000, FULL_BYTES);
        bench.full(second, 190_000, FULL_BYTES);
        bench.wait_us(later_ms * MS);
        let outs = bench.tcp(first.conn, TcpEvent::Writable);
        let sent: Vec<u32> = sends(&outs).iter().map(|(index, _)| *index).collect();
        assert_eq!(sent, who, "T is 200 ms");
    }
}

#[test]
fn a_socket_that_does_not_say_what_it_holds_is_filled_when_it_calls() {
    let mut bench = Bench::new(by_margin());
    let stream = bench.downloading(0);
    bench.wait_us(50 * MS);
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    assert_eq!(sends(&outs).len(), 1);
    assert_eq!(sends(&bench.sent(stream, TAKEN_BYTES, true)), []);
    let outs = bench.wait_us(300 * MS);
    assert_eq!(sends(&outs), [], "only the kernel calls");
}

/// What is ordered about the pace: `None` for "as TCP likes".
fn paces(outs: &[Out]) -> Vec<Option<u64>> {
    let paces = outs.iter().filter_map(|out| match out {
        Out::Pace {
            rate_bytes_per_s, ..
        } => Some(*rate_bytes_per_s),
        _ => None,
    });
    paces.collect()
}

#[test]
fn the_first_window_of_a_later_response_is_paced_for_a_round_trip() {
    let mut bench = Bench::new(Settings {
        pacing: true,
        ..by_margin()
    });
    bench.sample = TcpSample {
        rtt_us: 20 * MS,
        path: Path {
            cwnd_bytes: 400_000,
            rtt_min_us: 20 * MS,
            ..Path::default()
        },
        ..TcpSample::default()
    };
    let (conn, _) = bench.served(0, true);
    let stream = bench.request(conn);
    let outs = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 1 << 20)], true),
    );
    assert_eq!(paces(&outs), [Some(25_000_000)]);
    let told: Vec<What> = bench.worker.decisions().map(|told| told.what).collect();
    let (window_bytes, rate_bytes_per_s, for_us) = (400_000, 25_000_000, 20 * MS);
    let what = What::Paced {
        window_bytes,
        rate_bytes_per_s,
        for_us,
    };
    assert!(told.contains(&what), "{told:?}");
    assert_eq!(bench.worker.counts().paced, 1);
    let place = |wanted: fn(&Out) -> bool| outs.iter().position(wanted);
    let (pace, send) = (
        place(|out| matches!(out, Out::Pace { .. })),
        place(|out| matches!(out, Out::Send(_))),
    );
    assert!(pace < send, "before anything is sent");
    assert_eq!(paces(&bench.wait_us(20 * MS - 1)), []);
    assert_eq!(paces(&bench.wait_us(1)), [None]);
    assert_eq!(paces(&bench.wait_us(50 * MS)), []);
}

#[test]
fn a_first_a_short_and_a_very_long_response_are_not_paced() {
    let mut bench = Bench::new(Settings {
        pacing: true,
        ..by_margin()
    });
    bench.sample = TcpSample {
        rtt_us: 20 * MS,
        path: Path {
            cwnd_bytes: 400_000,
            rtt_min_us: 20 * MS,
            ..Path::default()
        },
        ..TcpSample::default()
    };
    let conn = bench.client(0);
    for len_bytes in [1 << 20, 1_000] {
        let stream = bench.request(conn);
        let outs = bench.resolved(
            stream,
            plan([body(ResidencySource::Always, 0, len_bytes)], true),
        );
        assert_eq!(paces(&outs), [], "{len_bytes} bytes");
        assert_eq!(bench.worker.counts().paced, 0);
        bench.deliver(outs);
    }
    let stream = bench.request(conn);
    let outs = bench.resolved(
        stream,
        plan([body(ResidencySource::Always, 0, 1 << 30)], true),
    );
    assert_eq!(paces(&outs), []);
}

#[test]
fn what_was_decided_can_be_told_with_its_reasons_and_numbers() {
    let (mut bench, [first, second]) = two_at_a_known_rate();
    bench.wait_us(200 * MS);
    bench.tcp(first.conn, TcpEvent::Writable);
    bench.full(first, 200_000, FULL_BYTES);
    bench.full(second, 400, 30_400); // it takes less than its margin: SO_SNDBUF is the tighter limit
    let told = |conn: ConnId| {
        let decisions = bench.worker.decisions();
        let last = decisions
            .filter(|decision| decision.conn == Some(conn))
            .last();
        last.map(|decision| decision.what)
    };
    let rate = |conn| {
        bench
            .worker
            .snapshot_of(conn, bench.now)
            .map(|snapshot| snapshot.believed_bytes_per_s)
    };
    assert_eq!(
        told(first.conn),
        Some(What::ToppedUp {
            top_up: TopUp::Writable,
            wait: Wait::Margin,
            given_bytes: 200_000,
            unsent_bytes: Some(FULL_BYTES),
            fill_bytes: FULL_BYTES,
            rate_bytes_per_s: rate(first.conn).expect("it is there"),
        })
    );
    let second_told = told(second.conn).expect("it was topped up, too");
    assert!(
        matches!(
            second_told,
            What::ToppedUp {
                top_up: TopUp::Near,
                wait: Wait::Socket,
                given_bytes: 400,
                ..
            }
        ),
        "{second_told:?}"
    );
    let counts = bench.worker.counts();
    assert_eq!(counts.top_ups, [0, 3, 1, 0], "{counts:?}");
    assert_eq!(
        counts.waits[Wait::Margin as usize],
        4,
        "two at first, then these"
    );
    assert_eq!(counts.waited_us[Wait::Margin as usize], 2 * (50 + 200) * MS);
}

#[test]
fn a_client_whose_window_is_closed_is_said_to_be_what_is_waited_for() {
    let mut bench = Bench::new(by_margin());
    let stream = bench.downloading(0);
    bench.sample = TcpSample {
        unacked_bytes: 10_000,
        window_closed: true,
        ..TcpSample::default()
    };
    let wait = |bench: &Bench| {
        let snapshot = bench.worker.snapshot_of(stream.conn, bench.now);
        snapshot
            .and_then(|snapshot| snapshot.response)
            .map(|response| (response.wait, response.wait_us / MS))
    };
    bench.wait_us(2_000 * MS);
    assert_eq!(
        wait(&bench),
        Some((Wait::Margin, 2_000)),
        "nobody has asked TCP yet"
    );
    let census = bench.worker.census(bench.now);
    assert_eq!((census.phases[3], census.waiting), (1, [0, 1, 0, 0, 0]));
    assert_eq!(census.waiting_bytes[1], (1 << 40) - (128 << 10));
    for _ in 0..8 {
        bench.wait_us(1_000 * MS);
    }
    let (reason, ms) = wait(&bench).expect("it is under way");
    assert!(reason == Wait::Window && ms < 10_000, "{reason:?} {ms}");
    let snapshot = bench
        .worker
        .snapshot_of(stream.conn, bench.now)
        .and_then(|snapshot| snapshot.response);
    assert_eq!(
        snapshot.map(|response| response.waited_net_us),
        Some(10_000 * MS),
        "of one piece"
    );
    let waits = bench
        .worker
        .decisions()
        .filter(|decision| matches!(decision.what, What::Waits { .. }));
    assert_eq!(waits.count(), 1, "it is said once");
    assert_eq!(bench.worker.snapshots(0, bench.now).count(), 1);
}

#[test]
fn a_small_answer_that_goes_out_at_once_leaves_no_decision() {
    let mut bench = Bench::new(by_margin());
    let conn = bench.client(0);
    for _ in 0..100 {
        let stream = bench.request(conn);
        bench.resolved(stream, plan([bytes(1000)], true));
        bench.sent(stream, HEAD_BYTES + 1000, false);
    }
    assert_eq!(bench.worker.decisions().count(), 0);
}

#[test]
fn a_request_goes_before_a_round_of_top_ups() {
    let (mut bench, [first, _]) = two_at_a_known_rate();
    let visitor = bench.client(2);
    bench.wait_us(200 * MS);
    for (conn, event) in [
        (first.conn, TcpEvent::Writable),
        (visitor, TcpEvent::Readable),
    ] {
        bench.worker.on(In::Tcp { conn, event }, bench.now);
    }
    let outs = bench.outs();
    let expect = Expect::Head;
    assert_eq!(
        outs[0],
        Out::Receive {
            conn: visitor,
            expect
        }
    );
    assert_eq!(sends(&outs).len(), 2, "and nobody is forgotten");
}
