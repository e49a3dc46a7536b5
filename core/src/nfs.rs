//! The machine of one connection of NFS: calls in, replies in any order.
//!
//! A call passes through these messages: `Receive` → `Received` → `Resolve` → `Resolved`, and its reply is ready. A READ goes on:
//! `Probe` → `Probed`, and if its bytes are not in memory, `Want` → `Fetched`. What is ready leaves by `Send` → `Sent`, first
//! come, first served; then `Left`. A reply is a record of its stream, so nothing goes between its bytes: a READ is ready when
//! all of its payload is in memory, and a slow one holds up no other reply.
//!
//! READs of a file are one stream to the disk machine, whatever their order (`nfs/runs.rs`); those that belong to no dense run want
//! their own bytes, all at once. So a connection has several readers ([`READERS`]). `nfs/messages.rs` is the contract.

mod lookups;
mod messages;
mod reading;
mod runs;
#[cfg(test)]
mod tests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

pub use self::lookups::Lookups;
pub use self::messages::{Answer, CallId, In, Out, Read, Received, Settings};
use self::runs::{Comes, RunId, Runs};
use crate::congestion::{Path, Watch};
use crate::conn::{TcpEvent, WantSeq};
use crate::limits::{NFS_CALLS_MAX, NFS_PARTS_MAX, NFS_REPLIES_BYTES_MAX, NFS_RUNS_MAX, WATCH_US};
use crate::machine::Machine;
use crate::units::Instant;
use crate::why::Why;

/// Readers of one connection: one for each call, and a few for each run.
pub const READERS: usize = NFS_CALLS_MAX + NFS_RUNS_MAX * NFS_PARTS_MAX;
const _: () = assert!(NFS_CALLS_MAX <= 1 << 8, "a CallId is a u8");

/// Memory of one connection in the machine. Queues may be half empty.
pub const CONNECTION_BYTES: u64 = (size_of::<Nfs>()
    + runs::BYTES_MAX
    + NFS_CALLS_MAX * (size_of::<Place>() + 2 * size_of::<CallId>() + 4 * size_of::<Out>()))
    as u64;

/// The place of a call, and its reader.
#[derive(Default)]
struct Place {
    /// `None`: it is free.
    call: Option<Call>,
    /// How often its reader was used by READs that wanted.
    nth: u16,
    /// The number of its reader's last want, and how many were answered.
    seq: WantSeq,
    answers: u32,
}

impl Place {
    /// Whether a READ of this run has not got its bytes.
    fn is_of(&self, run: RunId) -> bool {
        let of = self.call.and_then(|call| match call.phase {
            Phase::Probing(_, of) | Phase::Waiting(_, _, of) => of,
            Phase::Resolving | Phase::Ready(..) => None,
        });
        of == Some(run)
    }
}

/// A call under way.
#[derive(Clone, Copy)]
struct Call {
    phase: Phase,
    /// Memory that its reply takes, or may take.
    reply_bytes: u64,
    /// What the kernel has of its reply.
    sent_bytes: u64,
}

#[derive(Clone, Copy)]
enum Phase {
    /// The shell carries it out.
    Resolving,
    /// Its bytes are looked for in memory.
    Probing(Read, Option<RunId>),
    /// Its bytes come.
    Waiting(Read, Comes, Option<RunId>),
    /// Its reply can leave: so many bytes, payload included.
    Ready(u64, Option<Read>),
}

/// A connection of NFS.
pub struct Nfs {
    settings: Settings,
    /// Calls by their number; it grows up to [`NFS_CALLS_MAX`].
    places: Vec<Place>,
    /// Calls under way.
    open: usize,
    /// The sum of what their replies take.
    replies_bytes: u64,
    runs: Runs,
    /// Replies that can leave.
    ready: VecDeque<CallId>,
    /// The first one has begun to leave and lacks bytes: nothing leaves before it.
    stuck: Option<CallId>,
    /// Input may be there.
    readable: bool,
    /// The socket takes output.
    writable: bool,
    /// No call comes any more, for this reason.
    ending: Option<Why>,
    closed: bool,
    /// What its path was like last, and when.
    watch: Watch,
    watched_at: Instant,
    /// When the kernel took something last, or a reply became ready while none was.
    moved_at: Instant,
    outs: VecDeque<Out>,
}

impl Nfs {
    /// A connection that has just come.
    pub fn new(settings: Settings, now: Instant) -> Nfs {
        Nfs {
            settings,
            places: Vec::new(),
            open: 0,
            replies_bytes: 0,
            runs: Runs::new(settings),
            ready: VecDeque::new(),
            stuck: None,
            readable: true,
            writable: true,
            ending: None,
            closed: false,
            watch: Watch::default(),
            watched_at: now,
            moved_at: now,
            outs: VecDeque::new(),
        }
    }

    /// Calls under way.
    pub fn calls(&self) -> usize {
        self.open
    }

    fn tcp(&mut self, event: &TcpEvent, now: Instant) {
        match event {
            TcpEvent::Readable | TcpEvent::Fin => self.readable = true,
            TcpEvent::Writable => self.writable = true,
            TcpEvent::Reset => self.close(true, Why::PeerReset),
            TcpEvent::Sample(sample) => self.sampled(&sample.path, now),
        }
    }

    fn received(&mut self, received: Received) {
        match received {
            Received::Nothing => self.readable = false,
            Received::Call { reply_bytes_max } => self.begin(reply_bytes_max.into()),
            Received::End => self.ending = self.ending.or(Some(Why::PeerClosed)),
            Received::Broken => self.close(true, Why::Misframed),
        }
    }

    /// A call takes a free place. The bounds were looked at before it was received.
    fn begin(&mut self, reply_bytes: u64) {
        let free = self.places.iter().position(|place| place.call.is_none());
        let index = free.unwrap_or(self.places.len());
        if index >= NFS_CALLS_MAX {
            debug_assert!(false, "a call that was not asked for");
            return self.close(true, Why::Misframed);
        }
        if index == self.places.len() {
            self.places.push(Place::default());
        }
        self.places[index].call = Some(Call {
            phase: Phase::Resolving,
            reply_bytes,
            sent_bytes: 0,
        });
        self.open += 1;
        self.replies_bytes += reply_bytes;
        self.outs.push_back(Out::Resolve(CallId(index as u8))); // below 256
    }

    fn call(&mut self, id: CallId) -> Option<&mut Call> {
        self.places.get_mut(usize::from(id.0))?.call.as_mut()
    }

    fn resolved(&mut self, id: CallId, answer: Answer, now: Instant) {
        let Some(call) = self.call(id) else {
            return;
        };
        if !matches!(call.phase, Phase::Resolving) {
            return;
        }
        let before_bytes = call.reply_bytes;
        let reply_bytes = match answer {
            Answer::Reply { len_bytes } => len_bytes.into(),
            Answer::Read(read) => read.reply_bytes() - read.span.len_bytes,
        };
        call.reply_bytes = reply_bytes;
        self.replies_bytes = self.replies_bytes - before_bytes + reply_bytes;
        match answer {
            Answer::Reply { .. } => self.ready(id, reply_bytes, None, now),
            Answer::Read(read) => self.look_for(id, read, now),
        }
    }

    fn set(&mut self, id: CallId, phase: Phase) {
        if let Some(call) = self.call(id) {
            call.phase = phase;
        }
    }

    /// A reply can leave.
    fn ready(&mut self, id: CallId, len_bytes: u64, read: Option<Read>, now: Instant) {
        if self.ready.is_empty() {
            self.moved_at = now;
        }
        self.set(id, Phase::Ready(len_bytes, read));
        if self.stuck.take_if(|stuck| *stuck == id).is_some() {
            self.ready.push_front(id);
        } else {
            self.ready.push_back(id);
        }
    }

    fn sent(&mut self, taken_bytes: u64, full: bool, now: Instant) {
        self.writable = !full;
        let Some(&id) = self.ready.front() else {
            return;
        };
        let Some(call) = self.call(id) else {
            return;
        };
        let Phase::Ready(len_bytes, _) = call.phase else {
            return;
        };
        call.sent_bytes = (call.sent_bytes + taken_bytes).min(len_bytes);
        let (left, reply_bytes) = (call.sent_bytes == len_bytes, call.reply_bytes);
        if taken_bytes > 0 {
            self.moved_at = now;
            self.watch(now);
        }
        if left {
            self.ready.pop_front();
            self.places[usize::from(id.0)].call = None;
            self.open -= 1;
            self.replies_bytes -= reply_bytes;
            self.outs.push_back(Out::Left(id));
        }
    }

    /// Has the path sampled from time to time, while something is read ahead that congestion would put off.
    fn watch(&mut self, now: Instant) {
        if now.since_us(self.watched_at) >= WATCH_US && self.runs.read_ahead() {
            self.watched_at = now;
            self.outs.push_back(Out::Sample);
        }
    }

    /// If the path is congested, what is read ahead is needed later (EDRC, TPF 3.3).
    fn sampled(&mut self, path: &Path, now: Instant) {
        if self.watch.seen(*path).is_some() {
            let outs = &mut self.outs;
            self.runs.congest(path.most_bytes_per_s(), now, |want| {
                outs.push_back(Out::Want(want))
            });
        }
    }

    /// Ends all at once: each stage forgets the connection's wants in this turn.
    fn close(&mut self, abort: bool, why: Why) {
        if core::mem::replace(&mut self.closed, true) {
            return;
        }
        self.outs.retain(|out| matches!(out, Out::Forget(_)));
        for index in 0..self.places.len() {
            if self.places[index].seq != WantSeq::default() {
                self.forget(CallId(index as u8)); // below 256
            }
        }
        self.outs.extend(self.runs.all_known().map(Out::Forget));
        self.outs.push_back(Out::Close { abort, why });
    }

    /// When the client has taken nothing for too long.
    fn times_out_at(&self) -> Option<Instant> {
        let waits = !self.ready.is_empty() && !self.writable && !self.closed;
        waits.then(|| self.moved_at.plus_us(self.settings.send_timeout_us))
    }

    /// The next reply to leave.
    fn next_to_send(&self) -> Option<CallId> {
        let can_send = self.writable && self.stuck.is_none() && !self.closed;
        self.ready.front().copied().filter(|_| can_send)
    }

    /// Whether it takes one more call.
    fn can_receive(&self) -> bool {
        let has_room = self.open < NFS_CALLS_MAX && self.replies_bytes < NFS_REPLIES_BYTES_MAX;
        self.readable && has_room && self.ending.is_none() && !self.closed
    }

    /// Why it ends, if all calls that came are answered and no more come.
    fn ended(&self) -> Option<Why> {
        self.ending.filter(|_| self.open == 0 && !self.closed)
    }

    /// The next step, if it is no answer to what happened. What has come is received first, so that its replies leave together: fewer
    /// packets, and fewer wake-ups of the client.
    fn step(&mut self) -> Option<Out> {
        if self.can_receive() {
            return Some(Out::Receive);
        }
        if let Some(call) = self.next_to_send() {
            let from_bytes = self.call(call)?.sent_bytes;
            let more = self.ready.len() > 1;
            return Some(Out::Send {
                call,
                from_bytes,
                more,
            });
        }
        let why = self.ended()?;
        self.close(false, why);
        self.outs.pop_front()
    }
}

impl Machine for Nfs {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        if self.closed {
            return;
        }
        match event {
            In::Tcp(event) => self.tcp(&event, now),
            In::Received(received) => self.received(received),
            In::Resolved { call, answer } => self.resolved(call, answer, now),
            In::Probed { call, is_resident } => self.probed(call, is_resident, now),
            In::Fetched { stream, seq, span } => self.fetched(stream, seq, span, now),
            In::FetchFailed { stream, seq, why } => self.fetch_failed(stream, seq, why, now),
            In::Sent { taken_bytes, full } => self.sent(taken_bytes, full, now),
            In::Missing => self.missing(now),
            In::Unreadable(why) => self.unreadable(why),
            In::Drain => self.ending = self.ending.or(Some(Why::Draining)),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        if self.times_out_at().is_some_and(|at| at <= now) {
            self.close(true, Why::SendTimeout);
        }
        match self.outs.pop_front() {
            Some(out) => Some(out),
            None => self.step(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let is_due = !self.outs.is_empty()
            || self.next_to_send().is_some()
            || self.ended().is_some()
            || self.can_receive();
        match is_due {
            true => Some(Instant { us: 0 }),
            false => self.times_out_at(),
        }
    }
}
