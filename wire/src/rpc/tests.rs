use proptest::prelude::*;

use super::*;
use crate::limits::{
    RPC_FRAGMENTS_MAX, RPC_HEAD_BYTES_MAX, RPC_PAYLOAD_BYTES_MAX, RPC_RECORD_BYTES_MAX,
};

/// A record that begins with `W` has payload behind a byte and its length.
fn find(head: &[u8]) -> Split {
    match head {
        [] | [b'W'] => Split::More,
        [b'W', rest @ ..] => match rest.first_chunk() {
            Some(len) => Split::At {
                offset_bytes: 5,
                len_bytes: u32::from_be_bytes(*len),
            },
            None => Split::More,
        },
        _ => Split::Without,
    }
}

#[derive(Clone, Debug)]
struct Sent {
    head: Vec<u8>,
    payload: Vec<u8>,
}

impl Sent {
    fn record(&self) -> Vec<u8> {
        let mut record = [&self.head[..], &self.payload].concat();
        if self.head.starts_with(b"W") {
            record.extend(vec![0xaa; pad_bytes(self.payload.len())]);
        }
        record
    }
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = |max: usize| prop::collection::vec(any::<u8>(), 0..max);
    let with = bytes(40).prop_map(|payload| Sent {
        head: [&b"W"[..], &(payload.len() as u32).to_be_bytes()].concat(),
        payload,
    });
    let without = bytes(700).prop_map(|rest| Sent {
        head: [&b"-"[..], &rest].concat(),
        payload: Vec::new(),
    });
    prop_oneof![with, without]
}

/// A record in fragments that end at these places.
fn fragments(record: &[u8], cuts: &[prop::sample::Index]) -> Vec<u8> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(record.len() + 1)).collect();
    ends.sort_unstable();
    let (mut stream, mut from) = (Vec::new(), 0);
    for end in ends {
        stream.extend(((end - from) as u32).to_be_bytes());
        stream.extend(&record[from..end]);
        from = end;
    }
    stream.extend((1 << 31 | (record.len() - from) as u32).to_be_bytes());
    stream.extend(&record[from..]);
    stream
}

/// What a shell gets of a stream that arrives in these pieces.
fn received<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Sent> {
    let mut incoming = Incoming::new(find);
    let (mut all, mut payload) = (Vec::new(), Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            let (taken, mut next) = incoming.feed(piece).expect("a good stream");
            piece = &piece[taken..];
            if let Next::Payload { len_bytes } = next {
                let (here, rest) = piece.split_at(piece.len().min(len_bytes as usize));
                payload.extend(here);
                next = incoming.took_payload(here.len() as u32);
                piece = rest;
            }
            if next == Next::Record {
                assert!(!incoming.record().cut && incoming.is_between());
                let head = incoming.record().head.to_vec();
                let payload = std::mem::take(&mut payload);
                all.push(Sent { head, payload });
            }
        }
    }
    assert!(incoming.is_between());
    all
}

proptest! {
    #[test]
    fn records_come_as_they_were_sent(
        sent in prop::collection::vec((sent(), prop::collection::vec(any::<prop::sample::Index>(), 0..6)), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let streams = sent.iter().map(|(sent, cuts)| fragments(&sent.record(), cuts));
        let stream = streams.collect::<Vec<_>>().concat();
        let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        ends.extend([0, stream.len()]);
        ends.sort_unstable();
        let ways = [
            received(ends.windows(2).map(|ends| &stream[ends[0]..ends[1]])),
            received(stream.chunks(1)),
        ];
        for received in ways {
            prop_assert_eq!(received.len(), sent.len());
            for (received, (sent, _)) in received.iter().zip(&sent) {
                prop_assert_eq!(&received.head, &sent.head);
                prop_assert_eq!(&received.payload, &sent.payload);
            }
        }
    }
}

fn mark(is_last: bool, len_bytes: u32) -> [u8; 4] {
    (u32::from(is_last) << 31 | len_bytes).to_be_bytes()
}

#[test]
fn long_records_and_many_fragments_end_the_connection() {
    let mut incoming = Incoming::new(find);
    let long = mark(false, RPC_RECORD_BYTES_MAX + 1);
    assert_eq!(incoming.feed(&long), Err(BadStream::Long));

    let mut incoming = Incoming::new(find);
    assert_eq!(incoming.feed(b"GET / HTTP/1.1\r\n"), Err(BadStream::Long));

    let mut incoming = Incoming::new(find);
    let most = [mark(false, 0); RPC_FRAGMENTS_MAX as usize].concat();
    assert_eq!(incoming.feed(&most), Ok((most.len(), Next::More)));
    assert_eq!(incoming.feed(&mark(true, 0)), Err(BadStream::Fragments));
}

#[test]
fn what_is_too_long_for_a_head_is_dropped() {
    let mut incoming = Incoming::new(find);
    let mut stream = mark(true, RPC_RECORD_BYTES_MAX).to_vec();
    stream.extend(vec![b'-'; RPC_RECORD_BYTES_MAX as usize]);
    for piece in stream.chunks(100_000) {
        let (taken, _) = incoming.feed(piece).expect("within the bounds");
        assert_eq!(taken, piece.len());
    }
    let Record { head, cut } = incoming.record();
    assert_eq!((head.len(), cut), (RPC_HEAD_BYTES_MAX, false));
    assert!(incoming.is_between());
}

#[test]
fn payload_that_its_record_cannot_have_is_no_payload() {
    for len_bytes in [4, RPC_PAYLOAD_BYTES_MAX + 1, u32::MAX] {
        let mut incoming = Incoming::new(find);
        let mut stream = mark(true, 8).to_vec();
        stream.extend([&b"W"[..], &len_bytes.to_be_bytes(), b"abc"].concat());
        assert_eq!(incoming.feed(&stream), Ok((stream.len(), Next::Record)));
        assert!(incoming.record().cut);
    }
    // In fragments it comes out at the end of the last one.
    let mut incoming = Incoming::new(find);
    let stream = [&mark(false, 5)[..], b"W\0\0\0\x04", &mark(true, 2)].concat();
    let (taken, next) = incoming.feed(&stream).expect("a good stream");
    assert_eq!(
        (taken, next),
        (stream.len(), Next::Payload { len_bytes: 2 })
    );
    assert_eq!(incoming.took_payload(2), Next::Record);
    assert!(incoming.record().cut);
}

/// A call of procedure 1 of a program 7, with these credentials.
fn call(flavor: u32, body: &[u8]) -> Vec<u8> {
    use xdr::Put;
    let mut head = Vec::new();
    for number in [5, 0, 2, 7, 3, 1, flavor] {
        head.put_u32(number);
    }
    head.put_opaque(body);
    head.extend([0; 8]);
    head.extend(b"args");
    head
}

fn sys_body(machine: &[u8], gids: u32) -> Vec<u8> {
    use xdr::Put;
    let mut body = vec![0; 4];
    body.put_opaque(machine);
    for number in [10, 20, gids].into_iter().chain(0..gids) {
        body.put_u32(number);
    }
    body
}

#[test]
fn credentials_are_read_up_to_their_bounds() {
    let head = call(0, b"");
    let nobody = parse(&head).map(|call| (call.credential, call.args));
    assert_eq!(nobody, Ok((Credential::Nobody, &b"args"[..])));

    let gids: Vec<u32> = (0..16).collect();
    let name = [b'n'; 255];
    let longest = Credential::Sys(Sys::new(&name, 10, 20, &gids));
    let head = call(AUTH_SYS, &sys_body(&name, 16));
    assert_eq!(parse(&head).map(|call| call.credential), Ok(longest));

    let bad = |why| NoCall::Refused {
        xid: 5,
        why: Refusal::Auth(why),
    };
    let too_long = sys_body(b"", 17);
    let short = &sys_body(b"n", 2)[..12];
    for (flavor, body) in [
        (AUTH_SYS, &too_long[..]),
        (AUTH_SYS, &sys_body(&[b'n'; 256], 0)),
        (AUTH_SYS, short),
        (6, b"RPCSEC_GSS"),
        (7, b""), // AUTH_TLS
        (AUTH_SYS, &[0; 401]),
    ] {
        assert_eq!(parse(&call(flavor, body)), Err(bad(Auth::BadCred)));
    }
    let head = call(0, b"");
    let without_verifier = &head[..head.len() - 8];
    assert_eq!(parse(without_verifier), Err(bad(Auth::BadVerf)));
}

#[test]
fn what_is_no_call_gets_no_reply() {
    let head = call(0, b"");
    for len in 0..24 {
        assert_eq!(parse(&head[..len]), Err(NoCall::Alien));
    }
    let mut reply = head.clone();
    reply[7] = 1;
    assert_eq!(parse(&reply), Err(NoCall::Alien));
    let mut old = head;
    old[11] = 1;
    let why = Refusal::RpcMismatch;
    assert_eq!(parse(&old), Err(NoCall::Refused { xid: 5, why }));
}

#[test]
fn refusals_have_the_form_of_rfc_5531() {
    let accepted = |state: &[u32]| [&[1, 0, 0, 0][..], state].concat();
    for (why, expected) in [
        (Refusal::ProgramUnavailable, accepted(&[1])),
        (
            Refusal::ProgramMismatch { low: 3, high: 4 },
            accepted(&[2, 3, 4]),
        ),
        (Refusal::ProcedureUnavailable, accepted(&[3])),
        (Refusal::GarbageArgs, accepted(&[4])),
        (Refusal::SystemError, accepted(&[5])),
        (Refusal::RpcMismatch, vec![1, 1, 0, 2, 2]),
        (Refusal::Auth(Auth::TooWeak), vec![1, 1, 1, 5]),
    ] {
        let mut to = b"before".to_vec();
        refuse(9, why, &mut to);
        let len = (expected.len() * 4 + 4) as u32;
        let numbers: Vec<u32> = [1 << 31 | len, 9].into_iter().chain(expected).collect();
        let bytes: Vec<u8> = numbers.iter().flat_map(|one| one.to_be_bytes()).collect();
        assert_eq!(to[6..], bytes, "{why:?}");
    }
}
