//! A response is stalled for its disk, and its client takes what the socket holds sooner than was predicted.

use super::*;
use crate::conn::Want;
use crate::rate::{BelievedRate, RateSource};
use crate::send::SendQueue;
use crate::why::Wait;

const KB: u64 = 1000;
const PIECE_BYTES: u64 = 64 * KB;

/// A download from the disk at 100 KB/s. Its socket has taken all that was read, and holds that unsent.
fn stalled(source: RateSource) -> (Bench, StreamId, Vec<Out>) {
    let mut bench = Bench::new(Settings {
        send: SendPolicy::Margin {
            budget_bytes: 48 << 20,
        },
        ..settings()
    });
    let conn = bench.client(0);
    let stream = bench.request(conn);
    let file = body(ResidencySource::Remember, 0, 1 << 30);
    bench.resolved(stream, plan([file], true));
    let rate = BelievedRate {
        bytes_per_s: 100 * KB,
        source,
    };
    let output = &mut bench.worker.table.get_mut(conn).expect("it is open").output;
    output.send_queue = SendQueue::adopted(rate, bench.now);
    bench.sent(stream, HEAD_BYTES, false);
    bench.tell(In::Fetched {
        stream,
        seq: PENDING,
        span: Span {
            offset_bytes: 0,
            len_bytes: PIECE_BYTES,
        },
        held: Held::Slots,
        chosen: CHOSEN,
    });
    let outs = bench.tell(In::Sent {
        stream,
        taken_bytes: PIECE_BYTES,
        full: false,
        unsent_bytes: Some(PIECE_BYTES),
    });
    (bench, stream, outs)
}

fn want(outs: &[Out]) -> Option<Want> {
    outs.iter().find_map(|out| match out {
        Out::Want(want) => Some(*want),
        _ => None,
    })
}

#[test]
fn a_want_is_dated_anew_when_its_client_has_taken_all_at_once() {
    let (mut bench, stream, outs) = stalled(RateSource::Itself);
    let conn = stream.conn;
    let epollout_bytes = PIECE_BYTES as u32 / 4;
    let watched = Out::Underfed {
        conn,
        epollout_bytes,
    };
    assert!(outs.contains(&watched), "{outs:?}");
    let waits = |bench: &Bench| {
        let stream = bench.worker.table.stream(stream).expect("it sends");
        stream.waits_for()
    };
    assert_eq!(waits(&bench), Wait::Disk);
    bench.wait_us(20 * KB);
    bench.sample.unsent_bytes = Some(0);
    let outs = bench.tcp(conn, TcpEvent::Writable);
    assert_eq!(outs.first(), Some(&Out::Sample(conn)));
    let want = want(&outs).expect("its deadline has moved");
    assert_eq!(want.underrun_at, bench.now, "{want:?}");
    assert_eq!(waits(&bench), Wait::Disk, "it has nothing to send");
}

#[test]
fn a_client_as_slow_as_believed_changes_nothing() {
    let (mut bench, stream, _) = stalled(RateSource::Itself);
    bench.wait_us(480 * KB);
    bench.sample.unsent_bytes = Some(PIECE_BYTES / 4);
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    assert_eq!(want(&outs), None, "{outs:?}");
}

#[test]
fn where_the_path_sets_the_rate_the_prediction_suffices() {
    let (_, _, outs) = stalled(RateSource::Path);
    let watched = |out: &Out| matches!(out, Out::Underfed { .. });
    assert!(!outs.iter().any(watched), "{outs:?}");
}

#[test]
fn what_is_held_back_leaves_when_the_next_bytes_are_not_there() {
    let (mut bench, stream, outs) = stalled(RateSource::Path);
    let pushes = |outs: &[Out]| {
        let push = Out::Push(stream.conn);
        outs.iter().filter(|out| **out == push).count()
    };
    assert_eq!(pushes(&outs), 1, "{outs:?}");
    bench.wait_us(480 * KB);
    let outs = bench.tcp(stream.conn, TcpEvent::Writable);
    assert_eq!(pushes(&outs), 0, "nothing is held back any more: {outs:?}");
}
