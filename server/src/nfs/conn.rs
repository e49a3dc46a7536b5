//! A connection of NFS: executes what its machine ([`ackpace_core::nfs`]) orders.

use std::net::SocketAddr;

use ackpace_core::conn::{ConnId, ObjectId, Span, StreamId, TcpEvent, Want};
use ackpace_core::limits::{NFS_CALLS_MAX, NFS_RUNS_MAX};
use ackpace_core::machine::Machine;
use ackpace_core::nfs::{Answer, CallId, In, Nfs, Out, READERS, Read, Received, Settings};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_wire::nfs3;
use ackpace_wire::rpc::{NoCall, Refusal, refuse};

use super::asking::Pending;
use super::hands::Hands;
use super::input::{Input, Taker, has_status};
use super::sending::{Left, Payload, Reply};
use super::served::Outcome;
use crate::disk::Completion;
use crate::limits::{
    NFS_ORDERS_PER_TURN_MAX, NFS_SENT_PER_TURN_MAX_BYTES, NFS_STALL_BYTES, NFS_STALL_US,
};
use crate::nfs_tally::Ended;
use crate::resolver::JobInterest;
use crate::source::Source;
use crate::store::door::Wait;
use crate::transport::Transport;
use crate::worker::pins::Pins;

/// No device was asked.
const NONE: u16 = u16::MAX;

/// A connection.
pub struct Conn {
    pub id: ConnId,
    pub transport: Transport,
    pub from: SocketAddr,
    pub machine: Nfs,
    /// When it last had something to do.
    pub used_at: Instant,
    /// When so much payload of WRITEs had come.
    came: (Instant, u64),
    /// It waits for its turn.
    pub is_listed: bool,
    /// The server stops: what has come is answered.
    drains: bool,
    /// What the socket is given is sent in full packets, until the turn ends.
    corked: bool,
    input: Input,
    /// Calls by their number.
    calls: Vec<Call>,
    /// What was read lately, the latest first: the machine may read ahead of it.
    lately: Vec<Source>,
    /// The device that each reader asked last.
    asked: Vec<u16>,
    pub pins: Pins,
}

#[derive(Default)]
pub(super) struct Call {
    pub(super) xid: u32,
    /// Its results begin with a status.
    has_status: bool,
    /// What a WRITE brought.
    written_bytes: u64,
    /// It is carried out by a thread that may wait; without this, it is not.
    _job: Option<JobInterest>,
    /// An origin is asked for it.
    pub(super) pending: Option<Box<Pending>>,
    pub(super) reply: Option<Reply>,
}

/// How a turn of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Nothing is left to do.
    Rests,
    /// There is more to do, for which the others are not to wait.
    GoesOn,
    /// It is over.
    Closed,
}

/// Memory of a connection besides its replies and its machine.
pub const CONN_BYTES: u64 = (size_of::<Conn>()
    + NFS_CALLS_MAX * size_of::<Call>()
    + NFS_RUNS_MAX * size_of::<Source>()
    + READERS * size_of::<u16>()) as u64;

impl Conn {
    pub fn new(transport: Transport, from: SocketAddr, hands: &Hands, now: Instant) -> Conn {
        Conn {
            id: ConnId::default(),
            transport,
            from,
            machine: Nfs::new(settings(ConnId::default(), hands), now),
            used_at: now,
            came: (now, 0),
            is_listed: false,
            drains: false,
            corked: false,
            input: Input::default(),
            calls: Vec::new(),
            lately: Vec::new(),
            asked: Vec::new(),
            pins: Pins::default(),
        }
    }

    /// It gets this place in the table, and the readers of that.
    pub fn take_place(&mut self, id: ConnId, hands: &Hands, now: Instant) {
        self.id = id;
        self.machine = Nfs::new(settings(id, hands), now);
    }

    /// One turn: executes orders until there are none, or enough.
    pub fn turn(&mut self, hands: &mut Hands, now: Instant) -> Turned {
        let turned = self.orders(hands, now);
        if std::mem::take(&mut self.corked) {
            self.transport.cork(false);
        }
        turned
    }

    fn orders(&mut self, hands: &mut Hands, now: Instant) -> Turned {
        let mut sent_bytes = 0;
        for _ in 0..NFS_ORDERS_PER_TURN_MAX {
            let Some(out) = self.machine.poll(now) else {
                return Turned::Rests;
            };
            self.used_at = now;
            match out {
                Out::Receive => self.receive(hands, now),
                Out::Resolve(call) => self.resolve(call, hands, now),
                Out::Probe { call, span, .. } => self.probe(call, span, hands, now),
                Out::Want(want) => self.want(want, hands, now),
                Out::Forget(stream) => self.forget(stream, hands),
                Out::Refuse { call, why } => self.refuse(call, why, hands, now),
                Out::Send {
                    call,
                    from_bytes,
                    more,
                } => sent_bytes += self.send(call, from_bytes, more, hands, now),
                Out::Sample => {
                    let sample = TcpEvent::Sample(self.transport.sample());
                    self.machine.on(In::Tcp(sample), now);
                }
                Out::Left(call) => self.left(call),
                Out::Close { abort, why } => {
                    self.close(abort, why);
                    return Turned::Closed;
                }
            }
            if sent_bytes >= NFS_SENT_PER_TURN_MAX_BYTES {
                break;
            }
        }
        Turned::GoesOn
    }

    /// A disk has answered a want.
    pub fn hear(&mut self, completion: Completion, now: Instant) {
        let event = match completion {
            // The bytes are in the page cache or the slab: nothing else was asked for.
            Completion::Fetched(stream, seq, span, ..) => In::Fetched { stream, seq, span },
            Completion::Failed(stream, seq, error) => In::FetchFailed {
                stream,
                seq,
                why: match error.errno {
                    // It ended before, or there is no memory for it now: clients ask again.
                    0 | libc::ENOMEM => Why::FileChanged,
                    _ => Why::ReadFailed,
                },
            },
        };
        self.machine.on(event, now);
    }

    /// Gives up files that nothing is read ahead of any more. Returns whether it is to be looked at again.
    pub fn tidy(&mut self, is_idle: bool) -> bool {
        if is_idle && self.machine.calls() == 0 {
            self.lately = Vec::new();
        }
        let pinned = self.pins.release(&self.transport);
        let waits = self.machine.deadline().is_some() || self.input.is_amid_payload();
        pinned || !self.lately.is_empty() || waits
    }

    /// Whether memory is held for payload that does not come, or comes too slowly. Asked about once a second.
    pub fn stalls(&mut self, now: Instant) -> bool {
        let came_bytes = self.input.progress_bytes();
        let (since, then_bytes) = self.came;
        if !self.input.is_amid_payload() || came_bytes - then_bytes >= NFS_STALL_BYTES {
            self.came = (now, came_bytes);
            return false;
        }
        now.since_us(since) >= NFS_STALL_US
    }

    fn receive(&mut self, hands: &mut Hands, now: Instant) {
        let (served, from) = (&hands.served, self.from.ip());
        let taker = Taker {
            takes: &|write| served.takes(write, from),
            room: &hands.room,
        };
        let received = (self.input).receive(&self.transport, &mut hands.copied, &taker);
        if self.input.is_full() && !hands.thirsty.contains(&self.id) {
            hands.thirsty.push(self.id);
        }
        let event = match received {
            Ok(Received::Broken) => {
                tracing::debug!(remote = %self.from, "it speaks no RPC");
                In::Received(Received::Broken)
            }
            Ok(received) => In::Received(received),
            Err(_) => In::Tcp(TcpEvent::Reset),
        };
        self.machine.on(event, now);
        if self.drains && event == In::Received(Received::Nothing) {
            self.machine.on(In::Drain, now);
        }
    }

    /// The server stops: what has come is answered, and then the connection ends.
    pub fn drain(&mut self, now: Instant) {
        self.drains = true;
        self.machine.on(In::Tcp(TcpEvent::Readable), now);
    }

    pub(super) fn call(&mut self, id: CallId) -> &mut Call {
        let index = usize::from(id.0);
        if self.calls.len() <= index {
            self.calls.resize_with(index + 1, Call::default); // an id is below NFS_CALLS_MAX
        }
        &mut self.calls[index]
    }

    /// Carries out the call that was received last: at once where the kernel's caches answer, otherwise on a thread that may wait.
    fn resolve(&mut self, id: CallId, hands: &mut Hands, now: Instant) {
        let payload = self.input.take_payload();
        let written_bytes = payload.as_ref().map_or(0, |it| it.bytes().len() as u64);
        let (mut job, mut pending) = (None, None);
        let record = self.input.record();
        let (xid, outcome, has_status) = match nfs3::parse(&record) {
            Ok(request) => {
                let (served, from) = (&hands.served, self.from.ip());
                let mut outcome = match &served.origin {
                    None => served.carry_out(&request, &[], from, Wait::No),
                    Some(_) => match self.asker(id, hands, now).begin(&request, record.head) {
                        Ok(waits) => {
                            pending = Some(Box::new(waits));
                            Outcome::Cold
                        }
                        Err(outcome) => outcome,
                    },
                };
                self.tell_refused_mount(&request, &outcome, hands, now);
                if matches!(outcome, Outcome::Cold) && pending.is_none() {
                    job = self.submit(id, record.head.into(), payload, hands);
                    if job.is_none() {
                        outcome = served.put_off(&request); // too many wait
                    }
                }
                (request.xid, outcome, has_status(&request))
            }
            Err(NoCall::Refused { xid, why }) => (xid, refused(xid, why), false),
            Err(NoCall::Alien) => (0, refused(0, Refusal::SystemError), false), // was not taken
        };
        let waits = job.is_some() || pending.is_some();
        *self.call(id) = Call {
            xid,
            has_status,
            written_bytes,
            _job: job,
            pending,
            reply: None,
        };
        if !waits {
            self.resolved(id, outcome, hands, now);
        }
    }

    /// By which the answer for a call finds it.
    pub(super) fn stream_of(&self, id: CallId, hands: &Hands) -> StreamId {
        StreamId {
            worker: hands.number,
            conn: self.id,
            nth: id.0.into(),
        }
    }

    /// A call was carried out. One that is still cold could not be.
    pub fn resolved(&mut self, id: CallId, outcome: Outcome, hands: &Hands, now: Instant) {
        let (xid, has_status) = (self.call(id).xid, self.call(id).has_status);
        let (reply, answer, ended) = match outcome {
            Outcome::Reply(head) => {
                let ended = Ended::of(&head, has_status);
                if ended == Ended::Failed {
                    self.tell_eio(&head, hands, now);
                }
                let (reply, answer) = whole(head);
                (reply, answer, ended)
            }
            Outcome::Read {
                source,
                file_len_bytes,
                span,
                head,
                pad_bytes,
            } => {
                self.reads(&source);
                let (reply, answer) = with_payload(head, source, (span, pad_bytes), file_len_bytes);
                (reply, answer, Ended::Ok)
            }
            Outcome::Cold | Outcome::Asks(_) => {
                let mut head = Vec::new();
                refuse(xid, Refusal::SystemError, &mut head);
                let (reply, answer) = whole(head);
                (reply, answer, Ended::Refused)
            }
        };
        hands.tally.calls[ended as usize].add(1);
        if ended == Ended::Ok {
            let written_bytes = self.call(id).written_bytes;
            hands.tally.written_bytes.add(written_bytes);
        }
        self.call(id).reply = Some(reply);
        self.machine.on(In::Resolved { call: id, answer }, now);
    }

    /// Its file is read from: it stays open while the machine may read ahead of it.
    pub(super) fn reads(&mut self, source: &Source) {
        let name = source.id();
        let before = self.lately.iter().position(|of| of.id() == name);
        match before {
            Some(at) => self.lately[..=at].rotate_right(1),
            None => {
                self.lately.truncate(NFS_RUNS_MAX - 1);
                self.lately.insert(0, source.clone());
            }
        }
    }

    pub(super) fn payload(&self, id: CallId) -> Option<&Payload> {
        let call = self.calls.get(usize::from(id.0))?;
        call.reply.as_ref()?.payload.as_ref()
    }

    fn probe(&mut self, call: CallId, span: Span, hands: &Hands, now: Instant) {
        let payload = self.payload(call);
        let is_resident = payload.is_some_and(|payload| payload.source.is_resident(span));
        if let Some(Source::Blocks(blocks)) = payload.map(|payload| &payload.source) {
            blocks.unit.tally.looked(is_resident);
        }
        hands.tally.missed.add((!is_resident).into());
        self.machine.on(In::Probed { call, is_resident }, now);
    }

    fn want(&mut self, want: Want, hands: &mut Hands, now: Instant) {
        let asked = self.source(want.object).and_then(|source| {
            let wanted = hands.want(want, source.clone());
            wanted.ok()
        });
        let (stream, seq) = (want.stream, want.seq);
        match asked {
            Some(()) => {
                if let Some(index) = self.reader(stream) {
                    if self.asked.len() <= index {
                        self.asked.resize(index + 1, NONE); // a reader is below READERS
                    }
                    self.asked[index] = want.object.device;
                }
            }
            None => {
                let why = Why::ReadFailed;
                self.machine.on(In::FetchFailed { stream, seq, why }, now);
            }
        }
    }

    fn source(&self, name: ObjectId) -> Option<&Source> {
        let replies = self.calls.iter().filter_map(|call| call.reply.as_ref());
        let payloads = replies.filter_map(|reply| reply.payload.as_ref());
        let all = self.lately.iter().chain(payloads.map(|of| &of.source));
        all.into_iter().find(|source| source.id() == name)
    }

    /// Which of its readers this is.
    fn reader(&self, stream: StreamId) -> Option<usize> {
        let first = first_reader(self.id.index);
        let index = stream.conn.index.checked_sub(first)? as usize;
        (index < READERS).then_some(index)
    }

    fn forget(&mut self, stream: StreamId, hands: &mut Hands) {
        let reader = self.reader(stream);
        let asked = reader.and_then(|index| self.asked.get_mut(index));
        if let Some(device) = asked.filter(|device| **device != NONE) {
            hands.forget(std::mem::replace(device, NONE), stream);
        }
    }

    /// Sends a reply from this byte on. Returns how much the socket took.
    fn send(
        &mut self,
        id: CallId,
        from_bytes: u64,
        more: bool,
        hands: &mut Hands,
        now: Instant,
    ) -> u64 {
        let call = self.calls.get_mut(usize::from(id.0));
        let Some(reply) = call.and_then(|call| call.reply.as_mut()) else {
            debug_assert!(false, "a reply that was not made");
            self.machine.on(In::Tcp(TcpEvent::Reset), now);
            return 0;
        };
        if more && !self.corked {
            self.transport.cork(true); // sendfile(2) has no MSG_MORE
            self.corked = true;
        }
        let to = (&self.transport, &mut self.pins);
        let left = reply.send(from_bytes, to, hands, now);
        let (event, taken_bytes) = match left {
            Left::Taken { taken_bytes, full } => (In::Sent { taken_bytes, full }, taken_bytes),
            Left::Missing => (In::Missing, 0),
            Left::Broken(why) => (In::Unreadable(why), 0),
            Left::Reset => (In::Tcp(TcpEvent::Reset), 0),
        };
        self.machine.on(event, now);
        taken_bytes
    }

    fn left(&mut self, id: CallId) {
        *self.call(id) = Call::default();
    }

    fn close(&mut self, abort: bool, why: Why) {
        if abort {
            self.transport.abort();
        }
        tracing::debug!(remote = %self.from, "NFS closed: {why}");
    }
}

fn settings(id: ConnId, hands: &Hands) -> Settings {
    Settings {
        worker: hands.number,
        readers: ConnId {
            index: first_reader(id.index),
            generation: id.generation,
        },
        send_timeout_us: hands.send_timeout_us,
    }
}

/// The first reader of the connection in this place.
fn first_reader(place: u32) -> u32 {
    place * READERS as u32
}

/// The place of the connection whose reader this is.
pub fn place_of(reader: u32) -> u32 {
    reader / READERS as u32
}

/// A reply with payload: a READ's.
pub(super) fn with_payload(
    head: Vec<u8>,
    source: Source,
    (span, pad_bytes): (Span, u32),
    file_len_bytes: u64,
) -> (Reply, Answer) {
    let answer = Answer::Read(Read {
        object: source.id(),
        file_len_bytes,
        span,
        head_bytes: head.len() as u32,
        pad_bytes,
    });
    let payload = Some(Payload::new(source, span, pad_bytes, file_len_bytes));
    (Reply { head, payload }, answer)
}

/// A reply without payload.
pub(super) fn whole(head: Vec<u8>) -> (Reply, Answer) {
    let len_bytes = head.len() as u32; // far below 2^32
    let payload = None;
    (Reply { head, payload }, Answer::Reply { len_bytes })
}

fn refused(xid: u32, why: Refusal) -> Outcome {
    let mut head = Vec::new();
    refuse(xid, why, &mut head);
    Outcome::Reply(head)
}
