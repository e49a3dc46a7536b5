//! Connections given away at any byte and adopted by another machine: the client gets the bytes of an uncut run.

mod adopted;
mod nodes;

use proptest::prelude::*;

use self::nodes::{Asked, Client, Dice, Node, Piece, file_bytes, text};
use super::*;
use crate::addresses::Address;

/// What the client must get.
fn expected(asked: &[Asked]) -> Vec<u8> {
    let parts = asked.iter().flat_map(|asked| {
        let head = [Piece::Text(HEAD_BYTES)];
        head.into_iter().chain(asked.parts.iter().cloned())
    });
    let bytes = parts.map(|part| match part {
        Piece::Text(len_bytes) => text(len_bytes).to_vec(),
        Piece::Range(path, offset_bytes, len_bytes) => {
            let span = Span {
                offset_bytes,
                len_bytes,
            };
            file_bytes(path, span).collect()
        }
    });
    bytes.collect::<Vec<_>>().concat()
}

/// Serves the requests, and gives the connection to the other of two nodes at each of these bytes.
fn run(asked: &[Asked], cuts: &[u64], seed: u64) -> Client {
    let all_bytes = expected(asked).len() as u64;
    let mut dice = Dice(seed);
    let mut nodes = [Node::new(3, &mut dice), Node::new(4, &mut dice)];
    let mut client = Client {
        input: asked.iter().cloned().collect(),
        got: Vec::new(),
        cut_bytes: 0,
        full: false,
        shut: false,
        logged: Vec::new(),
    };
    let mut conn = conn_id(0);
    nodes[0].on(In::Accepted {
        conn,
        address: Some(Address(9)),
    });
    for (nth, cut_bytes) in cuts.iter().enumerate() {
        client.cut_bytes = (*cut_bytes).min(all_bytes - 1);
        nodes[nth % 2].serve(&mut client, conn, all_bytes);
        let exported = nodes[nth % 2].export(&mut client, conn);
        conn = ConnId {
            index: dice.below(3) as u32,
            generation: nth as u32 + 1,
        };
        nodes[(nth + 1) % 2].adopt(conn, exported);
    }
    let last = &mut nodes[cuts.len() % 2];
    client.cut_bytes = u64::MAX;
    last.serve(&mut client, conn, all_bytes);
    while last.read() {} // an answer that comes late
    client.full = false;
    // What TCP says last settles the last response.
    let event = TcpEvent::Sample(unacked(0));
    last.on(In::Tcp { conn, event });
    while let Some(out) = last.worker.poll(last.now) {
        last.obey(&mut client, out);
    }
    assert!(last.wants.is_empty(), "a want is left behind");
    client
}

/// The client of an export anywhere gets what it would have got, and the log says so.
fn check(asked: &[Asked], cuts: &[u64], seed: u64) {
    let client = run(asked, cuts, seed);
    assert!(
        client.got == expected(asked),
        "other bytes, cut at {cuts:?}, seed {seed}"
    );
    let bodies = asked.iter().enumerate().map(|(nth, asked)| {
        let lens = asked.parts.iter().map(|part| match part {
            Piece::Text(len_bytes) | Piece::Range(_, _, len_bytes) => *len_bytes,
        });
        (nth as u16, lens.sum::<u64>(), true)
    });
    let logged = client
        .logged
        .iter()
        .map(|(nth, outcome)| (*nth, outcome.sent_bytes, outcome.whole));
    assert_eq!(
        logged.collect::<Vec<_>>(),
        bodies.collect::<Vec<_>>(),
        "cut at {cuts:?}, seed {seed}"
    );
    let ends = asked.last().is_some_and(|asked| !asked.keep_alive);
    assert_eq!(client.shut, ends, "cut at {cuts:?}, seed {seed}");
}

fn asked(parts: impl IntoIterator<Item = Piece>) -> Asked {
    Asked {
        parts: parts.into_iter().collect(),
        keep_alive: true,
    }
}

/// A range of a file; two ranges as a multipart; and a text, which ends the connection.
fn small() -> Vec<Asked> {
    let multipart = [
        Piece::Text(30),
        Piece::Range("/film", WINDOW - 20, 50),
        Piece::Text(0),
        Piece::Text(40),
        Piece::Range("/film", 7, 60),
        Piece::Text(30),
    ];
    let mut text = asked([Piece::Text(35)]);
    text.keep_alive = false;
    vec![
        asked([Piece::Range("/page", 10, 90)]),
        asked(multipart),
        asked([]),
        text,
    ]
}

#[test]
fn an_exchange_cut_at_any_of_its_bytes_goes_on_elsewhere() {
    let all = small();
    let all_bytes = expected(&all).len() as u64;
    assert_eq!(all_bytes, 735);
    check(&all, &[], 1);
    for cut in 0..all_bytes {
        check(&all, &[cut], cut);
        check(&all, &[cut, cut, cut + 1], cut);
    }
}

fn piece() -> impl Strategy<Value = Piece> {
    let len_bytes = prop_oneof![0..300u64, 0..WINDOW + WINDOW / 2];
    prop_oneof![
        (0..200u64).prop_map(Piece::Text),
        (0..4_000u64, 0..1_000u64).prop_map(|(at, len)| Piece::Range("/page", at, len)),
        (0..WINDOW, len_bytes).prop_map(|(at, len)| Piece::Range("/film", at, len)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn whatever_is_asked_for_and_wherever_it_is_cut(
        requests in prop::collection::vec(prop::collection::vec(piece(), 0..4), 1..4),
        mut cuts in prop::collection::vec(0..5 * WINDOW, 1..5),
        seed in any::<u64>(),
    ) {
        let requests = requests.into_iter().map(asked).collect::<Vec<_>>();
        let all_bytes = expected(&requests).len() as u64;
        cuts.iter_mut().for_each(|cut| *cut %= all_bytes);
        cuts.sort_unstable();
        check(&requests, &[], seed);
        check(&requests, &cuts, seed);
    }
}
