//! Any bytes as what a client of NFS sends: [`ackpace_wire::rpc`] and [`ackpace_wire::nfs3`].

use ackpace_wire::limits::{
    NFS_HANDLE_BYTES_MAX, RPC_HEAD_BYTES_MAX, RPC_PAYLOAD_BYTES_MAX, RPC_RECORD_BYTES_MAX,
};
use ackpace_wire::nfs3::{Args, Asked, handle, parse, payload};
use ackpace_wire::rpc::{BadStream, Incoming, Next, NoCall, Record, Split, refuse};

/// What a stream says, and whether it ends in an error.
type Heard = (Vec<(Vec<u8>, usize, bool)>, Option<BadStream>);

/// Laws: a stream says the same in whatever pieces it comes; a WRITE is understood before its payload as after it; no bytes
/// are a handle of ours; a verdict on where payload is stands whatever follows.
pub fn nfs3(data: &[u8]) {
    let whole = hear(&mut [data].into_iter());
    assert_eq!(hear(&mut data.chunks(1)), whole);
    assert_eq!(hear(&mut data.chunks(7)), whole);
    head(data);
}

fn hear(pieces: &mut dyn Iterator<Item = &[u8]>) -> Heard {
    let mut incoming = Incoming::new(payload);
    let (mut records, mut payload_bytes) = (Vec::new(), 0);
    for mut piece in pieces {
        while !piece.is_empty() {
            let (taken, mut next) = match incoming.feed(piece) {
                Ok(fed) => fed,
                Err(bad) => return (records, Some(bad)),
            };
            assert!(taken > 0 || matches!(next, Next::Payload { .. }));
            piece = &piece[taken..];
            if let Next::Payload { len_bytes } = next {
                let early = parse(&incoming.record()).map(|request| request.asked);
                assert!(matches!(early, Ok(Asked::Nfs(Args::Write(_))) | Err(_)));
                let here = piece.len().min(len_bytes as usize);
                assert!(here > 0 || piece.is_empty());
                next = incoming.took_payload(here as u32);
                payload_bytes += here;
                piece = &piece[here..];
            }
            if next == Next::Record {
                record(&incoming.record(), payload_bytes);
                let Record { head, cut } = incoming.record();
                records.push((head.to_vec(), payload_bytes, cut));
                payload_bytes = 0;
            }
        }
    }
    (records, None)
}

fn record(record: &Record<'_>, payload_bytes: usize) {
    assert!(record.head.len() <= RPC_HEAD_BYTES_MAX);
    assert!(payload_bytes <= RPC_PAYLOAD_BYTES_MAX as usize);
    assert!(record.head.len() + payload_bytes <= RPC_RECORD_BYTES_MAX as usize);
    match parse(record) {
        Ok(request) => {
            assert!(!record.cut);
            if let Asked::Nfs(Args::Write(write)) = request.asked {
                assert_eq!(write.payload_bytes as usize, payload_bytes);
                assert!(write.file.0.len() <= NFS_HANDLE_BYTES_MAX);
                assert_eq!(handle::open(&handle::Key([1; 16]), write.file.0), None);
            } else {
                assert_eq!(payload_bytes, 0);
            }
        }
        Err(NoCall::Alien) => {}
        Err(NoCall::Refused { xid, why }) => {
            let mut to = Vec::new();
            refuse(xid, why, &mut to);
            assert_eq!(to[4..8], record.head[..4]);
            assert!(to.len() <= 36);
        }
    }
}

fn head(data: &[u8]) {
    let late = payload(data);
    for len in [data.len() / 3, data.len() / 2, data.len().saturating_sub(1)] {
        match payload(&data[..len]) {
            Split::More => {}
            early => assert_eq!(early, late),
        }
    }
    if let Split::At { offset_bytes, .. } = late {
        assert!(offset_bytes <= data.len());
        assert_eq!(payload(&data[..offset_bytes]), late);
        assert_eq!(payload(&data[..offset_bytes - 1]), Split::More);
    }
    let (all, cut) = (
        Record {
            head: data,
            cut: false,
        },
        Record {
            head: data,
            cut: true,
        },
    );
    assert!(parse(&cut).is_err());
    if let Ok(request) = parse(&all) {
        let longer = [data, b"more"].concat();
        let longer = Record {
            head: &longer,
            cut: false,
        };
        assert_eq!(parse(&longer), Ok(request));
    }
}
