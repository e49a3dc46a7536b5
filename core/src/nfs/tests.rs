mod calls;
mod reading;
mod world;

use super::runs::reader;
use super::*;
use crate::conn::{ConnId, ObjectId, Span, StreamId, Want};

const NOW: Instant = Instant { us: 1_000_000 };
const SETTINGS: Settings = Settings {
    worker: 3,
    readers: ConnId {
        index: 1000,
        generation: 7,
    },
    send_timeout_us: 60_000_000,
};
const FILE: ObjectId = ObjectId {
    device: 0,
    index: 4,
    generation: 1,
};
const KIB: u64 = 1 << 10;

fn read_of(object: ObjectId, offset_bytes: u64, len_bytes: u64) -> Answer {
    Answer::Read(Read {
        object,
        file_len_bytes: 1 << 30,
        span: Span {
            offset_bytes,
            len_bytes,
        },
        head_bytes: 128,
        pad_bytes: 0,
    })
}

/// The orders up to one that has to be answered first. Input is empty.
fn orders(nfs: &mut Nfs, now: Instant) -> Vec<Out> {
    let mut outs = Vec::new();
    while let Some(out) = nfs.poll(now) {
        match out {
            Out::Receive => nfs.on(In::Received(Received::Nothing), now),
            out => outs.push(out),
        }
        if let Out::Send { .. } = out {
            break;
        }
        assert!(outs.len() < 1000, "it does not rest: {out:?}");
    }
    outs
}

/// A call comes: its number.
fn call(nfs: &mut Nfs, now: Instant) -> CallId {
    nfs.on(In::Tcp(TcpEvent::Readable), now);
    assert_eq!(nfs.poll(now), Some(Out::Receive));
    let reply_bytes_max = 512;
    nfs.on(In::Received(Received::Call { reply_bytes_max }), now);
    match nfs.poll(now) {
        Some(Out::Resolve(id)) => id,
        out => panic!("{out:?} in place of Resolve"),
    }
}
