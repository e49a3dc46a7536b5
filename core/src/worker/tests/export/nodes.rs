//! Two machines that pass a connection to and fro. Each has names of its own for the files that both serve.

use std::collections::BTreeMap;

use super::super::*;
use crate::addresses::Address;

/// Numbers that look random, the same for the same seed (splitmix64).
pub(super) struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound.max(1)
    }
}

/// A file as both nodes know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    path: &'static str,
    len_bytes: u64,
}

/// A part of a response before a node plans it.
#[derive(Clone, Debug)]
pub(super) enum Piece {
    Text(u64),
    Range(&'static str, u64, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub parts: Vec<Piece>,
    pub keep_alive: bool,
}

const FILES: [(&str, u64); 2] = [("/film", 3 * WINDOW), ("/page", 5_000)];

/// What a file or a text holds at an offset.
fn byte(name: &str, offset_bytes: u64) -> u8 {
    let seed = name.bytes().map(u64::from).sum::<u64>();
    Dice(seed << 40 | offset_bytes).below(256) as u8
}

pub(super) fn file_bytes(path: &str, span: Span) -> impl Iterator<Item = u8> + '_ {
    (span.offset_bytes..span.end_bytes()).map(move |at| byte(path, at))
}

pub(super) fn text(len_bytes: u64) -> Arc<[u8]> {
    (0..len_bytes)
        .map(|at| byte("text", at + len_bytes))
        .collect()
}

/// The client, its socket, and its unparsed input: what moves from node to node beside the export.
pub(super) struct Client {
    pub input: VecDeque<Asked>,
    pub got: Vec<u8>,
    /// The socket takes no byte beyond this one.
    pub cut_bytes: u64,
    pub full: bool,
    pub shut: bool,
    /// Body bytes of each response as the log has them, by its number.
    pub logged: Vec<(u16, Outcome)>,
}

/// A machine, and a shell that sends bytes. Its disk is slow: it reads when nothing else can happen.
pub(super) struct Node {
    pub worker: Worker,
    pub now: Instant,
    dice: Dice,
    pub wants: BTreeMap<StreamId, crate::conn::Want>,
    /// Slots that are held for a stream.
    slots: BTreeMap<StreamId, Vec<Span>>,
}

impl Node {
    pub fn new(worker: u16, dice: &mut Dice) -> Node {
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

    /// Each node has names and sources of residency of its own.
    fn open(&self, named: &Named) -> LocalFile {
        let nth = FILES.iter().position(|(path, _)| *path == named.path);
        let node = self.worker.settings.worker;
        let version = Version {
            len_bytes: named.len_bytes,
            ctime_ns: node.into(),
            ..Version::default()
        };
        let sources = [ResidencySource::Ask, ResidencySource::Remember];
        LocalFile {
            object: ObjectId {
                device: node,
                index: u32::from(node) * 100 + nth.expect("a file") as u32,
                generation: 7,
            },
            version,
            residency: sources[usize::from(node % 2)],
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

    pub fn on(&mut self, event: In) {
        self.now = self.now.plus_us(100);
        self.worker.on(event, self.now);
    }

    /// Serves the client until its socket is cut or has all; then the disk may come by once more.
    pub fn serve(&mut self, client: &mut Client, conn: ConnId, all_bytes: u64) {
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
    pub fn read(&mut self) -> bool {
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
        self.on(In::Fetched {
            stream,
            seq: want.seq,
            span,
            held,
            chosen: CHOSEN,
        });
        true
    }

    pub fn obey(&mut self, client: &mut Client, out: Out) {
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
            Out::Probe { stream, .. } => {
                let is_resident = self.dice.below(3) == 2;
                self.on(In::Probed {
                    stream,
                    is_resident,
                });
            }
            Out::Want(want) => drop(self.wants.insert(want.stream, want)),
            Out::Forget(stream) => drop(self.wants.remove(&stream)),
            Out::Release(stream) => drop(self.slots.remove(&stream)),
            Out::Ended(stream) => drop(self.slots.remove(&stream)),
            Out::Send(order) => self.send(client, &order),
            Out::Sample(conn) => {
                // What a socket just took is not acknowledged in the same moment.
                let event = TcpEvent::Sample(unacked(client.full.into()));
                self.on(In::Tcp { conn, event });
            }
            Out::Arrived { stream, outcome } => client.logged.push((stream.nth, outcome)),
            Out::Shutdown(_) => client.shut = true,
            Out::Underfed { .. } | Out::Push(_) | Out::Pace { .. } => {}
            other => panic!("{other:?}"),
        }
    }

    fn send(&mut self, client: &mut Client, order: &SendOrder) {
        let &SendOrder {
            stream,
            part,
            span:
                Span {
                    offset_bytes: from_bytes,
                    len_bytes,
                },
            held,
            refill,
            ..
        } = order;
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
    pub fn export(&mut self, client: &mut Client, conn: ConnId) -> Exported<Named> {
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
                Out::Send(_) => panic!("a byte of the next machine"),
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

    pub fn adopt(&mut self, conn: ConnId, exported: Exported<Named>) {
        let local = exported.with_files(|named| Ok::<_, ()>(self.open(&named)));
        self.on(In::Adopt {
            conn,
            address: Some(Address(9)),
            exported: Box::new(local.expect("every file is here")),
        });
    }
}
