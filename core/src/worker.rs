//! The worker machine: every connection of one worker, from accept to close.
//!
//! The way of a request: `Receive` → `Received` → `Resolve` → `Resolved` with its plan → for each
//! window of the file `Probe` or `Want`, then `Send` → `Sent` until the plan is done → the next
//! request. Cold windows go to [`crate::disk`] by way of `Want` and come back as `Filled`.
//!
//! Each duty is a file: [`accept`], [`requests`], [`sending`], [`reading`], [`evidence`] (what TCP says), [`ending`] and [`time`]. Each keeps
//! what is its own, of the worker and in each connection. Below them: [`table`] (who is where), [`turns`] (whose turn it
//! is), [`stream`] (what comes next in one response), [`patience`] (time limits), [`arrivals`] (what reached the client). What the machine
//! tells of itself stands in [`counts`] and [`look`].

mod accept;
mod arrivals;
mod counts;
mod ending;
mod evidence;
mod look;
mod messages;
mod pace;
mod patience;
mod reading;
mod redate;
mod requests;
mod sending;
mod stand;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod turns;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use self::accept::{Admitted, Door};
use self::arrivals::{Arrivals, Unsettled};
pub use self::counts::{Census, Counts, PHASES};
use self::ending::Drain;
use self::evidence::Evidence;
pub use self::look::{Look, Response};
pub use self::messages::{Address, Expect, In, Out, Outcome, Received, Settings};
use self::patience::Patience;
use self::reading::Fill;
use self::requests::Request;
use self::sending::Output;
use self::stream::Stream;
use self::table::Table;
use self::turns::Turns;
use crate::cache::ResidencyCache;
use crate::conn::{ConnId, Held, Plan, StreamId, TcpEvent};
use crate::limits::{CONNECTIONS_MAX, FETCHED_MAX};
use crate::machine::Machine;
pub use crate::send::control::Policy;
use crate::send::control::{Controller, Taken};
use crate::units::Instant;
use crate::wheel::Wheel;
use crate::why::Decisions;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waiting for a request, or for the rest of its head.
    Open,
    /// The request is being resolved.
    Resolving,
    /// Its response is being sent.
    Sending,
    /// The response is sent, the request's body is not yet skipped.
    Skipping { skipped_bytes: u64 },
    /// Our FIN is out; input is thrown away until the peer's FIN.
    Lingering { skipped_bytes: u64 },
}

/// A connection: what each duty keeps of it, and where it stands.
struct Conn {
    id: ConnId,
    /// The worker that owns it.
    worker: u16,
    /// Number of the response under way or the next one, wrapping.
    nth: u16,
    admitted: Admitted,
    phase: Phase,
    /// Its input, and the request under way.
    request: Request,
    /// Its response under way. Apart, since it is half of all that is kept of a connection, and most are idle.
    stream: Option<Box<Stream>>,
    /// Its socket, as far as sending goes.
    output: Output,
    /// What TCP said of it.
    evidence: Evidence,
    arrivals: Arrivals,
    patience: Patience,
    /// It stands in line for a step ([`Turns`]).
    queued: bool,
}

impl Conn {
    /// The response under way, or the next one.
    fn stream_id(&self) -> StreamId {
        StreamId {
            worker: self.worker,
            conn: self.id,
            nth: self.nth,
        }
    }

    /// When its socket is to be looked at although it does not call: it waits for the disk, whose turn depends on what
    /// is left in it, or its client's rate is not known.
    fn look_at(&self) -> Option<Instant> {
        let stream = self.stream.as_ref();
        let fetched = stream.is_some_and(|stream| stream.reads_from_disk());
        let stands = fetched && self.output.writable;
        let margin = &self.output.margin;
        margin
            .look_at()
            .filter(|_| stands || margin.is_of_interest() && stream.is_some())
    }

    /// Whether it is in the middle of a body: long work, done a step at a time between the others.
    fn is_within_body(&self) -> bool {
        let within_body = |stream: &Stream| stream.sent_bytes > stream.plan.head_len_bytes;
        self.phase == Phase::Sending && self.stream.as_deref().is_some_and(within_body)
    }
}

/// Decides for all connections of one worker. See the module.
pub struct Worker {
    settings: Settings,
    table: Table,
    door: Door,
    turns: Turns,
    send: Controller,
    residency_cache: ResidencyCache,
    /// Responses whose last byte is not acknowledged yet.
    unsettled: Unsettled,
    wheel: Wheel,
    /// The last step was one of a scan.
    scanning: bool,
    drain: Drain,
    outs: VecDeque<Out>,
    counts: Counts,
    decisions: Decisions,
}

impl Worker {
    /// A worker without connections.
    pub fn new(settings: Settings) -> Worker {
        let settings = Settings {
            connections_max: settings.connections_max.min(CONNECTIONS_MAX),
            ..settings
        };
        Worker {
            settings,
            table: Table::default(),
            door: Door::new(&settings),
            turns: Turns::default(),
            send: Controller::new(settings.send),
            residency_cache: ResidencyCache::default(),
            unsettled: Unsettled::new(settings.arrivals_bytes_max),
            wheel: Wheel::default(),
            scanning: false,
            drain: Drain::new(settings.drain_timeout_us),
            outs: VecDeque::new(),
            counts: Counts::default(),
            decisions: Decisions::default(),
        }
    }

    /// Connections that it may have at once.
    pub fn connections_max(&self) -> u32 {
        self.door.connections_max()
    }

    /// Connections that are open now.
    pub fn connections(&self) -> u32 {
        self.table.open()
    }

    /// How many connections have a known rate, and the sum of these, bytes per second.
    pub fn rates(&self, now: Instant) -> (u64, u64) {
        self.send.measured(now)
    }

    /// The plan of a response under way: what a `Send` is about. `None` for a stream that is gone.
    pub fn plan(&self, stream: StreamId) -> Option<&Plan> {
        Some(&self.table.stream(stream)?.plan)
    }

    /// Put a connection in line for a step; one that goes on with what it does comes first.
    fn wake(&mut self, index: u32, goes_on: bool) {
        if let Some(conn) = self.table.at_mut(index) {
            self.turns.push(conn, goes_on);
        }
    }

    /// The one door for what the transport says, whoever says it.
    fn tcp(&mut self, id: ConnId, event: TcpEvent, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        match event {
            TcpEvent::Readable => conn.request.readable(),
            TcpEvent::Fin => conn.request.fin(),
            TcpEvent::Writable => self.writable(id, now),
            TcpEvent::Reset => return self.reset(id, now),
            TcpEvent::Sample(sample) => return self.sampled(id, &sample, now),
        }
        self.wake(id.index, false);
    }

    /// The next step of whoever's turn it is.
    fn conn_step(&mut self, now: Instant) -> Option<Out> {
        while let Some(index) = self.turns.pop() {
            let Some(conn) = self.table.at_mut(index) else {
                continue;
            };
            conn.queued = false;
            let out = match conn.phase {
                // What is to be undone goes out although the response stands still.
                Phase::Sending => self.send_step(index, now).or_else(|| self.outs.pop_front()),
                _ => self.receive_step(index),
            };
            if out.is_some() {
                return out;
            }
        }
        None
    }
}

/// What a worker keeps of a connection in its tables: its state, its response under way, its places in the wheel and in
/// the queues, its address, what follows of news of it, and where its fetched pieces end.
pub const CONNECTION_BYTES: u64 = (size_of::<Option<Conn>>()
    + size_of::<Stream>()
    + 2 * size_of::<Address>()
    + 2 * size_of::<(Instant, ConnId)>()
    + 4 * size_of::<Out>()
    + 2 * FETCHED_MAX * size_of::<(u64, Held)>()
    + 128) as u64;

impl Machine for Worker {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        let index = event.conn().map(|conn| conn.index);
        match event {
            In::Incoming => self.door.incoming(),
            In::Accepted { conn, address } => self.accepted(conn, address, now),
            In::AcceptFailed => self.door.failed(now),
            In::Tcp { conn, event } => self.tcp(conn, event, now),
            In::Received { conn, received } => self.received(conn, received, now),
            In::Recorded { stream, bytes } => self.recorded(stream, bytes),
            In::Resolved { stream, plan } => self.resolved(stream, plan, now),
            In::Probed {
                stream,
                resident_bytes,
            } => self.probed(stream, resident_bytes, now),
            In::Sent {
                stream,
                taken_bytes,
                full,
                unsent_bytes,
            } => {
                let taken = Taken {
                    taken_bytes,
                    full,
                    unsent_bytes,
                };
                self.sent(stream, taken, now);
            }
            In::Missing { stream } => self.missing(stream),
            In::Sliced {
                stream,
                len_bytes,
                last,
            } => self.sliced(stream, len_bytes, last),
            In::Filled {
                stream,
                seq,
                span,
                held,
                chosen,
            } => {
                let fill = Fill {
                    seq,
                    span,
                    held,
                    chosen,
                };
                self.filled(stream, &fill, now);
            }
            In::Unfilled { stream, seq, why } => self.unfilled(stream, seq, why),
            In::Failed { stream, why } => self.failed(stream, why, now),
            In::Drain => self.begin_drain(now),
        }
        if let Some(index) = index {
            self.watch(index, now);
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        loop {
            if let Some(out) = self.outs.pop_front() {
                return Some(out);
            }
            if self.send.take_due() {
                self.top_up(now);
            }
            if let Some(conn) = self.send.take_unpaced(now) {
                self.unpace(conn);
                continue;
            }
            // A scan and those who have something to do take turns, a slice against a step.
            let due = self.wheel.is_behind(now);
            self.scanning = due && !self.scanning;
            if self.scanning {
                self.scan(now);
                continue;
            }
            let open = self.table.open();
            match self.door.step(open, now).or_else(|| self.conn_step(now)) {
                None if due => {}
                step => return step,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let accepts = self.door.is_due(self.table.open());
        if accepts || !self.turns.is_empty() || !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let times = [
            self.wheel.next_at(),
            self.door.again_at(),
            self.send.unpaces_at(),
        ];
        times.into_iter().flatten().min()
    }
}
