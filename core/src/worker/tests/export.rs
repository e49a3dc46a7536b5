//! Connections given away at any byte and adopted by another machine: the client gets the bytes of an uncut run.

use crate::addresses::Address;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::shell::Dice;
use super::*;
use crate::rate::{BelievedRate, RateSource};

/// A file as both nodes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Named {
    path: &'static str,
    len_bytes: u64,
}

/// A part of a response before a node plans it.
#[derive(Clone, Debug)]
enum Piece {
    Text(u64),
    Range(&'static str, u64, u64),
}

#[derive(Clone, Debug)]
struct Asked {
    parts: Vec<Piece>,
    keep_alive: bool,
}

const FILES: [(&str, u64); 2] = [("/film", 3 * WINDOW), ("/page", 5_000)];

/// What a file or a text holds at an offset.
fn byte(name: &str, offset_bytes: u64) -> u8 {
    let seed = name.bytes().map(u64::from).sum::<u64>();
    Dice(seed << 40 | offset_bytes).below(256) as u8
}

fn file_bytes(path: &str, span: Span) -> impl Iterator<Item = u8> + '_ {
    (span.offset_bytes..span.end_bytes()).map(move |at| byte(path, at))
}

fn text(len_bytes: u64) -> Arc<[u8]> {
    (0..len_bytes)
        .map(|at| byte("text", at + len_bytes))
        .collect()
}

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

/// The client, its socket, and its unparsed input: what moves from node to node beside the export.
struct Client {
    input: VecDeque<Asked>,
    got: Vec<u8>,
    /// The socket takes no byte beyond this one.
    cut_bytes: u64,
    full: bool,
    shut: bool,
    /// Body bytes of each response as the log has them, by its number.
    logged: Vec<(u16, Outcome)>,
}

/// A machine, and a shell that sends bytes. Its disk is slow: it reads when nothing else can happen.
struct Node {
    worker: Worker,
    now: Instant,
    dice: Dice,
    wants: BTreeMap<StreamId, crate::conn::Want>,
    /// Slots that are held for a stream.
    slots: BTreeMap<StreamId, Vec<Span>>,
}

impl Node {
    fn new(worker: u16, dice: &mut Dice) -> Node {
        let send = match dice.below(2) {
            0 => SendPolicy::Eager,
            _ => SendPolicy::Margin {
                budget_bytes: 64 * MIB,
            },
        };
        let settings = Settings {
            worker,
            arrivals: true,
            send,
            ..settings()
        };
        Node {
            worker: Worker::new(settings),
            now: Instant {
                us: dice.below(US_PER_S * 100),
            },
            dice: Dice(dice.below(u64::MAX)),
            wants: BTreeMap::new(),
            slots: BTreeMap::new(),
        }
    }

    /// Each node has names and ways of its own.
    fn open(&self, named: &Named) -> LocalFile {
        let nth = FILES.iter().position(|(path, _)| *path == named.path);
        let node = self.worker.settings.worker;
        let version = Version {
            len_bytes: named.len_bytes,
            ctime_ns: node.into(),
            ..Version::default()
        };
        let ways = [ResidencySource::Ask, ResidencySource::Remember];
        LocalFile {
            object: ObjectId {
                device: node,
                index: u32::from(node) * 100 + nth.expect("a file") as u32,
                generation: 7,
            },
            version,
            residency: ways[usize::from(node % 2)],
        }
    }

    fn path_of(&self, object: ObjectId) -> &'static str {
        let node = self.worker.settings.worker;
        assert_eq!(object.device, node, "another node's file");
        FILES[(object.index - u32::from(node) * 100) as usize].0
    }

    fn plan(&self, asked: &Asked) -> Plan {
        let parts = asked.parts.iter().map(|part| match *part {
            Piece::Text(len_bytes) => Part::Bytes(text(len_bytes)),
            Piece::Range(path, offset_bytes, len_bytes) => {
                let (_, file_bytes) = FILES[usize::from(path != FILES[0].0)];
                let file = self.open(&Named {
                    path,
                    len_bytes: file_bytes,
                });
                Part::Body {
                    object: file.object,
                    version: file.version,
                    promise: Promise::OneVersion,
                    residency: file.residency,
                    span: Span {
                        offset_bytes,
                        len_bytes,
                    },
                }
            }
        });
        let mut plan = plan(parts, asked.keep_alive);
        plan.parts[0] = Part::Bytes(text(HEAD_BYTES));
        plan
    }

    fn on(&mut self, event: In) {
        self.now = self.now.plus_us(100);
        self.worker.on(event, self.now);
    }

    /// Serves the client until its socket is cut or has all; then the disk may come by once more.
    fn serve(&mut self, client: &mut Client, conn: ConnId, all_bytes: u64) {
        for _ in 0..5_000 {
            while let Some(out) = self.worker.poll(self.now) {
                self.obey(client, out);
            }
            let given_bytes = client.got.len() as u64;
            if given_bytes == client.cut_bytes.min(all_bytes) {
                if self.dice.below(2) == 0 {
                    self.read();
                }
                return;
            }
            if !self.read() {
                client.full = false;
                let event = TcpEvent::Writable;
                self.on(In::Tcp { conn, event });
            }
        }
        panic!("stuck after {} bytes", client.got.len());
    }

    /// The disk answers a want. `false`: there is none.
    fn read(&mut self) -> bool {
        let Some((stream, want)) = self.wants.pop_first() else {
            return false;
        };
        let span = Span {
            len_bytes: 1 + self.dice.below(want.span.len_bytes),
            ..want.span
        };
        assert!(self.worker.awaits(stream, want.seq), "a want of nobody");
        let held = match self.dice.below(2) {
            0 => Held::PageCache,
            _ => {
                self.slots.entry(stream).or_default().push(span);
                Held::Slots
            }
        };
        self.on(In::Filled {
            stream,
            seq: want.seq,
            span,
            held,
            chosen: CHOSEN,
        });
        true
    }

    fn obey(&mut self, client: &mut Client, out: Out) {
        match out {
            Out::Receive { conn, .. } => {
                let more = client.input.len() > 1;
                let received = match client.input.is_empty() {
                    true => Received::Nothing,
                    false => Received::Request { body: false, more },
                };
                self.on(In::Received { conn, received });
            }
            Out::Resolve { stream, .. } => {
                let asked = client.input.pop_front().expect("it was received");
                let plan = self.plan(&asked);
                self.on(In::Resolved { stream, plan });
            }
            Out::Probe { stream, span, .. } => {
                let some = [0, span.len_bytes / 2, span.len_bytes];
                let resident_bytes = some[self.dice.below(3) as usize];
                self.on(In::Probed {
                    stream,
                    resident_bytes,
                });
            }
            Out::Want(want) => drop(self.wants.insert(want.stream, want)),
            Out::Forget(stream) => drop(self.wants.remove(&stream)),
            Out::Release(stream) => drop(self.slots.remove(&stream)),
            Out::Ended(stream) => drop(self.slots.remove(&stream)),
            Out::Send { .. } => self.send(client, &out),
            Out::Sample(conn) => {
                // What a socket just took is not acknowledged in the same moment.
                let event = TcpEvent::Sample(unacked(client.full.into()));
                self.on(In::Tcp { conn, event });
            }
            Out::Arrived { stream, outcome } => client.logged.push((stream.nth, outcome)),
            Out::Shutdown(_) => client.shut = true,
            Out::Pace { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, client: &mut Client, out: &Out) {
        let &Out::Send {
            stream,
            part,
            from_bytes,
            len_bytes,
            held,
            refill,
            ..
        } = out
        else {
            panic!("{out:?}")
        };
        let room_bytes = refill.map_or(u64::MAX, |refill| refill.bytes);
        let left_bytes = client.cut_bytes - client.got.len() as u64;
        let kernel_bytes = left_bytes.min(1 + self.dice.below(2 * WINDOW));
        let taken_bytes = len_bytes.min(kernel_bytes).min(room_bytes);
        let span = Span {
            offset_bytes: from_bytes,
            len_bytes: taken_bytes,
        };
        let plan = self.worker.plan(stream).expect("a plan");
        match &plan.parts[usize::from(part)] {
            Part::Body {
                object, span: of, ..
            } => {
                let span = Span {
                    offset_bytes: of.offset_bytes + from_bytes,
                    ..span
                };
                assert!(of.covers(span));
                let slots = self.slots.get(&stream);
                let mut slots = slots.into_iter().flatten();
                let lies = slots.any(|slots| slots.contains(span.offset_bytes));
                assert!(held == Held::PageCache || lies, "no slots for {span:?}");
                client.got.extend(file_bytes(self.path_of(*object), span));
                // A slot is free with its last byte.
                if let Some(slots) = self.slots.get_mut(&stream) {
                    slots.retain(|slots| slots.end_bytes() > span.end_bytes());
                }
            }
            Part::Bytes(_) => {
                let texts = plan.texts(part).flatten().copied();
                let texts = texts.skip(from_bytes as usize);
                client.got.extend(texts.take(taken_bytes as usize));
            }
            Part::Slices => panic!("no listing was asked for"),
        }
        let full = taken_bytes == left_bytes || taken_bytes >= room_bytes;
        client.full = full;
        self.on(In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes: Some(taken_bytes / 2),
        });
    }

    /// Gives the connection away. Nothing is left of it here.
    fn export(&mut self, client: &mut Client, conn: ConnId) -> Exported<Named> {
        let given_bytes = client.got.len() as u64;
        let unacked_bytes = Some(0);
        self.on(In::Export {
            conn,
            unacked_bytes,
        });
        let exported = loop {
            match self.worker.poll(self.now).expect("an answer") {
                Out::Export { exported, .. } => break exported,
                Out::Keep { why, .. } => panic!("kept: {why:?}"),
                Out::Send { .. } => panic!("a byte of the next machine"),
                out => self.obey(client, out),
            }
        };
        assert_eq!(exported.given_bytes, given_bytes);
        assert_eq!(self.worker.poll(self.now), None, "orders about the gone");
        assert!(self.wants.is_empty(), "a want is left behind");
        let mut slots = self.slots.values().flatten();
        assert_eq!(slots.next(), None, "slots are left behind");
        assert_eq!(self.worker.census(self.now), Census::default());
        assert_eq!(self.worker.connections(), 0);
        assert!(self.worker.door.is_empty());
        assert_eq!(
            self.worker.record_room_bytes(),
            Worker::new(self.worker.settings).record_room_bytes()
        );
        let named = exported.with_files(|file| {
            let path = self.path_of(file.object);
            let len_bytes = file.version.len_bytes;
            Ok::<_, ()>(Named { path, len_bytes })
        });
        named.expect("every file has a name")
    }

    fn adopt(&mut self, conn: ConnId, exported: Exported<Named>) {
        let local = exported.with_files(|named| Ok::<_, ()>(self.open(&named)));
        self.on(In::Adopt {
            conn,
            address: Some(Address(9)),
            exported: Box::new(local.expect("every file is here")),
        });
    }
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

/// The answer to an order to export.
fn answer(bench: &mut Bench, conn: ConnId) -> Out {
    let outs = bench.tell(In::Export {
        conn,
        unacked_bytes: None,
    });
    let answer = |out: &Out| matches!(out, Out::Export { .. } | Out::Keep { .. });
    let mut answers = outs.into_iter().filter(answer);
    let (first, more) = (answers.next(), answers.next());
    assert_eq!(more, None, "one answer");
    first.expect("an answer")
}

fn exported(bench: &mut Bench, conn: ConnId) -> Box<Exported<LocalFile>> {
    match answer(bench, conn) {
        Out::Export { exported, .. } => exported,
        other => panic!("{other:?}"),
    }
}

fn adopted(bench: &mut Bench, conn: ConnId, exported: Box<Exported<LocalFile>>) -> Vec<Out> {
    bench.tell(In::Adopt {
        conn,
        address: None,
        exported,
    })
}

#[test]
fn what_no_other_machine_could_finish_stays_and_goes_on() {
    let keeps = |why| move |out: &Out| matches!(out, Out::Keep { why: is, .. } if *is == why);
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let stream = bench.request(conn);
    assert!(keeps(Kept::Resolving)(&answer(&mut bench, conn)));
    let listing = Plan {
        body_len_bytes: None,
        ..plan([Part::Slices], false)
    };
    bench.resolved(stream, listing);
    assert!(keeps(Kept::Listing)(&answer(&mut bench, conn)));
    let outs = bench.sent(stream, HEAD_BYTES, false);
    assert!(outs.contains(&Out::Slice(stream)), "it goes on: {outs:?}");

    let conn = bench.client(1);
    bench.tcp(conn, TcpEvent::Readable);
    let (body, more) = (true, false);
    let outs = bench.received(conn, Received::Request { body, more });
    let outs = bench.resolved(resolve_of(&outs), plan([], true));
    bench.deliver(outs);
    assert!(keeps(Kept::RequestBody)(&answer(&mut bench, conn)));

    let conn = bench.client(2);
    let stream = bench.request(conn);
    bench.resolved(stream, plan([], true));
    bench.tcp(conn, TcpEvent::Fin);
    assert!(keeps(Kept::HalfClosed)(&answer(&mut bench, conn)));

    let (conn, _) = bench.served(3, false);
    assert!(keeps(Kept::Ending)(&answer(&mut bench, conn)));
    bench.tell(In::Export {
        conn: conn_id(99),
        unacked_bytes: None,
    });
    assert_eq!(bench.worker.connections(), 4);
}

#[test]
fn a_send_that_was_not_executed_yet_is_the_next_machines() {
    let (mut bench, stream) = framing::overtaken();
    let sent = In::Sent {
        stream,
        taken_bytes: WINDOW,
        full: false,
        unsent_bytes: None,
    };
    bench.worker.on(sent, bench.now);
    // A cancellation goes first; the send waits behind it.
    let polled = std::iter::from_fn(|| bench.worker.poll(bench.now));
    let forgets = polled.take(5).any(|out| out == Out::Forget(stream));
    assert!(forgets, "no cancellation");
    assert!(matches!(
        bench.worker.outs.front(),
        Some(Out::Send { part: 2, .. })
    ));
    let outs = bench.tell(In::Export {
        conn: stream.conn,
        unacked_bytes: None,
    });
    assert_eq!(send_of(&outs), None, "{outs:?}");
    let Some(Out::Export { exported, .. }) = outs.last() else {
        panic!("{outs:?}")
    };
    let Stage::Response(response) = &exported.stage else {
        panic!("{exported:?}")
    };
    assert_eq!(response.sent_bytes, HEAD_BYTES + 4 * WINDOW);
    let exported = exported.clone();
    let mut other = Bench::new(settings());
    let outs = adopted(&mut other, conn_id(5), exported);
    assert_eq!(send_of(&outs), Some((2, 0, 50)), "{outs:?}");
}

#[test]
fn an_export_whose_numbers_do_not_agree_is_cut_off() {
    type Spoil = fn(&mut Exported<LocalFile>, &mut ExportedResponse<LocalFile>);
    let spoils: [(Spoil, bool); 6] = [
        (|_, _| {}, true),
        (|_, response| response.sent_bytes = 151, false),
        (|_, response| response.body_len_bytes += 1, false),
        (|whole, _| whole.given_bytes = 59, false),
        (|whole, _| whole.acked_bytes = 61, false),
        (|_, response| response.waited_net_us = u64::MAX, false),
    ];
    for (nth, (spoil, goes_on)) in spoils.into_iter().enumerate() {
        let mut bench = Bench::new(settings());
        let conn = bench.client(0);
        let stream = bench.request(conn);
        bench.resolved(stream, plan([bytes(50)], true));
        bench.sent(stream, 60, false);
        let mut whole = exported(&mut bench, conn);
        let Stage::Response(mut response) = whole.stage.clone() else {
            panic!("{whole:?}")
        };
        spoil(&mut whole, &mut response);
        whole.stage = Stage::Response(response);
        let conn = conn_id(1);
        let outs = adopted(&mut bench, conn, whole);
        let close = Out::Close {
            conn,
            abort: true,
            why: Why::Misframed,
        };
        assert_eq!(outs.contains(&close), !goes_on, "spoil {nth}: {outs:?}");
        assert_eq!(send_of(&outs).is_some(), goes_on, "spoil {nth}: {outs:?}");
        assert_eq!(bench.worker.connections(), u32::from(goes_on));
    }
}

#[test]
fn what_is_believed_of_a_client_goes_along_and_stays_below_the_fastest_path() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    let mut idle = exported(&mut bench, conn);
    assert_eq!(idle.rate, BelievedRate::default());
    idle.rate = BelievedRate {
        send_bytes_per_s: 300_000,
        prefetch_bytes_per_s: u64::MAX,
        source: RateSource::Itself,
    };
    adopted(&mut bench, conn_id(1), idle.clone());
    let again = exported(&mut bench, conn_id(1));
    let most = crate::limits::RATE_BYTES_PER_S_MAX;
    assert_eq!(again.rate.prefetch_bytes_per_s, most);
    assert_eq!(again.rate.send_bytes_per_s, 300_000);
    assert_eq!(again.rate.source, RateSource::Itself);
}

#[test]
fn a_client_gains_no_time_by_being_given_away() {
    let mut bench = Bench::new(settings());
    let conn = bench.client(0);
    bench.wait_s(4);
    let silent = exported(&mut bench, conn);
    assert_eq!(
        silent.stage,
        Stage::New {
            for_us: 4 * US_PER_S
        }
    );
    adopted(&mut bench, conn_id(1), silent);
    bench.received(conn_id(1), Received::HeadPart);
    bench.wait_s(3);
    let head = exported(&mut bench, conn_id(1));
    assert_eq!(
        head.stage,
        Stage::Head {
            for_us: 7 * US_PER_S
        }
    );
    adopted(&mut bench, conn_id(2), head);
    let end = bench.closed_within_s(5).expect("it ends");
    assert_eq!(end.why, Why::HeaderTimeout);
    assert!((10..12).contains(&end.at_s), "{end:?}");
}

#[test]
fn between_two_requests_it_goes_on_with_the_next_number() {
    let mut bench = Bench::new(settings());
    let (conn, _) = bench.served(0, true);
    bench.wait_s(5);
    let idle = exported(&mut bench, conn);
    assert_eq!(
        idle.stage,
        Stage::Idle {
            for_us: 5 * US_PER_S
        }
    );
    adopted(&mut bench, conn_id(1), idle.clone());
    assert_eq!(bench.request(conn_id(1)).nth, 1);
    // A worker that stops has no more requests to answer.
    bench.tell(In::Drain);
    let outs = adopted(&mut bench, conn_id(2), idle);
    assert!(outs.contains(&Out::Shutdown(conn_id(2))), "{outs:?}");
}
