//! The worker machine: every connection of one worker, from accept to close.
//!
//! One request passes through these messages: `Receive` → `Received` → `Resolve` → `Resolved` with its plan → for each
//! window of the file `Probe` or `Want`, then `Send` → `Sent` until the plan is done → the next request. Cold windows
//! go to [`crate::disk`] as a `Want` and come back as `Fetched`.
//!
//! Each duty has a file of its own: `accept`, `requests`, `sending` (the steps of a response), `sender` (its part of
//! the send memory), `evidence` (what TCP says), `ending`, `export` (to another machine) and `time`. Each file also defines the state that its duty keeps,
//! per worker and per connection. They build on `table` (connections by slot), `turns` (whose turn it is),
//! `budget` (when a turn of the shell is over), `stream` (what comes next in one
//! response), `timeouts` (time limits) and `arrivals` (what reached the client). `counts` and `snapshot` report on
//! the machine.

mod accept;
mod arrivals;
mod budget;
mod counts;
mod ending;
mod evidence;
mod export;
mod exported;
mod messages;
mod pace;
mod requests;
mod sender;
mod sending;
mod snapshot;
mod stall;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod timeouts;
mod turns;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::accept::{Admitted, Door};
use self::arrivals::{Arrivals, Unsettled};
pub use self::budget::{Budget, Cut};
pub use self::counts::{Census, Counts, PHASES};
use self::ending::Drain;
use self::evidence::TcpEvidence;
pub use self::exported::{Exported, ExportedPart, ExportedResponse, Kept, LocalFile, Stage};
pub use self::messages::{Expect, In, Out, Outcome, Received, SendOrder, Settings};
use self::requests::Request;
pub use self::sender::Sender;
use self::sending::Output;
pub use self::snapshot::{Response, Snapshot};
use self::stream::Stream;
use self::table::Table;
use self::time::Checks;
use self::timeouts::Timeouts;
use self::turns::{QueueEnd, Turns};
use crate::addresses;
use crate::cache::ResidencyCache;
use crate::conn::{ConnId, Held, Plan, StreamId, TcpEvent};
use crate::limits::{CONNECTIONS_MAX, DECISIONS_MAX, FETCHED_MAX, TICK_SLACK_US};
use crate::machine::Machine;
pub use crate::send::control::SendPolicy;
use crate::send::control::{Controller, Taken};
use crate::units::Instant;
use crate::why::Decisions;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnPhase {
    /// Waiting for a request, or for the rest of its head.
    Open,
    /// The request is being resolved.
    Resolving,
    /// Its response is being sent.
    Sending,
    /// The response is sent; the rest of the request's body is still being skipped.
    Skipping { skipped_bytes: u64 },
    /// Our FIN is out; input is discarded until the peer's FIN.
    Lingering { skipped_bytes: u64 },
}

/// A connection: its state, and what each duty keeps of it.
struct Conn {
    id: ConnId,
    /// The worker that owns it.
    worker: u16,
    /// Number of the response under way or the next one, wrapping.
    nth: u16,
    /// What it was counted as when it was accepted, to be given back when it leaves.
    admitted: Admitted,
    phase: ConnPhase,
    /// Its input, and the request under way.
    request: Request,
    /// Its response under way. Boxed, since it is half of a connection's memory and most connections are idle.
    stream: Option<Box<Stream>>,
    /// The sending side of its socket.
    output: Output,
    /// What TCP last said about it.
    evidence: TcpEvidence,
    /// What of its responses has reached the client.
    arrivals: Arrivals,
    /// Its time limits.
    timeouts: Timeouts,
    /// It is queued for a step ([`Turns`]).
    queued: bool,
    /// It stands in [`Worker::touched`].
    touched: bool,
}

impl Conn {
    /// A connection that has just come.
    fn new(id: ConnId, settings: &Settings, admitted: Admitted, now: Instant) -> Conn {
        Conn {
            id,
            worker: settings.worker,
            nth: 0,
            admitted,
            phase: ConnPhase::Open,
            request: Request::new(now),
            stream: None,
            output: Output::new(now),
            evidence: TcpEvidence::new(now),
            arrivals: Arrivals::default(),
            timeouts: Timeouts::new(settings, now),
            queued: false,
            touched: false,
        }
    }

    /// For how long the client has owed us nothing and we nothing to it, microseconds; 0: it is not idle.
    fn idle_us(&self, now: Instant) -> u64 {
        match self.phase {
            ConnPhase::Open if self.timeouts.idle() && !self.queued => self.timeouts.for_us(now),
            _ => 0,
        }
    }

    /// The response under way, or the next one.
    fn stream_id(&self) -> StreamId {
        StreamId {
            worker: self.worker,
            conn: self.id,
            nth: self.nth,
        }
    }

    /// When to sample TCP_INFO although EPOLLOUT has not fired: the next want's deadline depends on what the socket
    /// still holds, or the client's rate is not known yet.
    fn sample_at(&self) -> Option<Instant> {
        let stream = self.stream.as_ref();
        let fetched = stream.is_some_and(|stream| stream.outstanding.has_wanted());
        let stands = fetched && self.output.may_offer;
        let queue = &self.output.send_queue;
        queue
            .sample_at(self.evidence.watched_at)
            .filter(|_| stands || queue.is_of_interest() && stream.is_some())
    }

    /// Whether it is in the middle of a body. That is long work, so it proceeds one step at a time, between the steps
    /// of others.
    fn is_within_body(&self) -> bool {
        let within_body = |stream: &Stream| stream.sent_bytes > stream.plan.head_len_bytes;
        self.phase == ConnPhase::Sending && self.stream.as_deref().is_some_and(within_body)
    }
}

/// Decides for all connections of one worker.
pub struct Worker {
    settings: Settings,
    /// All connections.
    table: Table,
    /// Whether and how many connections are accepted.
    door: Door,
    /// The connections with something to do, in the order of their turns.
    turns: Turns,
    /// What all sockets are offered, and when.
    send: Controller,
    /// What a connection may hold that begins to send; `None`: send memory is not divided.
    start_cap_bytes: Option<u64>,
    /// What is believed to be in the page cache.
    residency_cache: ResidencyCache,
    /// Responses whose last byte is not acknowledged yet.
    unsettled: Unsettled,
    /// The next time limit of each connection.
    checks: Checks,
    /// Connections whose next time limit may have changed since it was scheduled.
    touched: Vec<u32>,
    /// When the last of them was.
    touched_at: Instant,
    /// The last step was a slice of the timer scan.
    scanning: bool,
    /// Whether the worker was told to stop, and when.
    drain: Drain,
    /// Orders that go before any further step.
    outs: VecDeque<Out>,
    /// What happened so far, for the metrics.
    counts: Counts,
    /// The last decisions, for operators.
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
            start_cap_bytes: None,
            residency_cache: ResidencyCache::default(),
            unsettled: Unsettled::new(settings.arrivals_bytes_max),
            checks: Checks::default(),
            touched: Vec::new(),
            touched_at: Instant::default(),
            scanning: false,
            drain: Drain::new(settings.drain_timeout_us),
            outs: VecDeque::new(),
            counts: Counts::default(),
            decisions: Decisions::new(DECISIONS_MAX),
        }
    }

    /// The most connections that it may have at once.
    pub fn connections_max(&self) -> u32 {
        self.door.connections_max()
    }

    /// Connections that are open now.
    pub fn connections(&self) -> u32 {
        self.table.open()
    }

    /// The sum of the rates of its connections, as far as they are known.
    pub fn rates_bytes_per_s(&self, now: Instant) -> u64 {
        self.send.rates_bytes_per_s(now)
    }

    /// The plan of a response under way, which a `Send` refers to. `None` for a stream that is gone.
    pub fn plan(&self, stream: StreamId) -> Option<&Plan> {
        Some(&self.table.stream(stream)?.plan)
    }

    /// Queues a connection for its next step ([`Turns`]).
    fn wake(&mut self, index: u32, end: QueueEnd) {
        if let Some(conn) = self.table.at_mut(index) {
            self.turns.push(conn, end);
        }
    }

    /// All transport events enter here, whatever their source (epoll, TCP_INFO).
    fn tcp(&mut self, id: ConnId, event: &TcpEvent, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        match event {
            TcpEvent::Readable => conn.request.readable(),
            TcpEvent::Fin => conn.request.fin(),
            TcpEvent::Writable => self.writable(id, now),
            TcpEvent::Reset => return self.reset(id, now),
            TcpEvent::Sample(sample) => return self.sampled(id, sample, now),
        }
        self.wake(id.index, QueueEnd::Back);
    }

    /// The next step of the connection whose turn it is.
    fn conn_step(&mut self, now: Instant) -> Option<Out> {
        while let Some(index) = self.turns.pop() {
            let Some(conn) = self.table.at_mut(index) else {
                continue;
            };
            conn.queued = false;
            let out = match conn.phase {
                // Cancellations go out even if the response is stalled.
                ConnPhase::Sending => self.send_step(index, now).or_else(|| self.outs.pop_front()),
                _ => self.receive_step(index),
            };
            if out.is_some() {
                return out;
            }
        }
        None
    }
}

/// Memory of one connection in the worker's tables: its state and its response under way, its part of the counts by
/// address, its place in the set of paced connections, the orders that follow from an
/// event, and where its fetched pieces end. Maps, queues and lists count twice or more, since they may be half empty. The
/// 128 bytes are for the next checks, the run queues and the other small tables.
pub const CONNECTION_BYTES: u64 = (size_of::<Option<Conn>>()
    + size_of::<Stream>()
    + addresses::EACH_BYTES
    + 2 * size_of::<(Instant, ConnId)>()
    + 4 * size_of::<Out>()
    + 2 * FETCHED_MAX * size_of::<(u64, Held)>()
    + 128) as u64;

impl Worker {
    /// How long its shell may sleep if nothing happens. If the [`Machine::deadline`] is a mere tick, that is a little longer: an event
    /// mostly comes first.
    pub fn sleeps_until(&self) -> Option<Instant> {
        self.due_at(TICK_SLACK_US)
    }

    fn due_at(&self, tick_slack_us: u64) -> Option<Instant> {
        let accepts = self.door.is_due(self.table.open());
        let is_due = !self.turns.is_empty() || !self.outs.is_empty() || !self.touched.is_empty();
        if accepts || is_due {
            return Some(Instant { us: 0 });
        }
        let tick = self.checks.next_at();
        let times = [
            tick.map(|at| at.plus_us(tick_slack_us)),
            self.door.again_at(),
            self.door.looks_at(self.table.open()),
            self.send.unpaces_at(),
        ];
        times.into_iter().flatten().min()
    }
}

impl Machine for Worker {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        let index = event.conn().map(|conn| conn.index);
        match event {
            In::Incoming => self.door.incoming(),
            In::Accepted { conn, address } => self.accepted(conn, address, now),
            In::AcceptFailed => self.door.failed(now),
            In::PlacesElsewhere(places) => self.door.places_elsewhere(places),
            In::Tcp { conn, event } => self.tcp(conn, &event, now),
            In::Received { conn, received } => self.received(conn, received, now),
            In::Recorded { stream, bytes } => self.recorded(stream, bytes),
            In::Resolved { stream, plan } => self.resolved(stream, plan, now),
            In::Probed {
                stream,
                is_resident,
            } => self.probed(stream, is_resident, now),
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
            In::Waited { stream } => self.waited(stream),
            In::Sliced {
                stream,
                len_bytes,
                last,
            } => self.sliced(stream, len_bytes, last),
            In::Fetched {
                stream,
                seq,
                span,
                held,
                chosen,
            } => self.fetched((stream, seq), span, held, chosen, now),
            In::FetchFailed { stream, seq, why } => self.fetch_failed(stream, seq, why),
            In::FetchElsewhere { stream, seq, file } => self.fetch_elsewhere(stream, seq, file),
            In::Failed { stream, why } => self.failed(stream, why, now),
            In::Unresolved { stream } => self.unresolved(stream, now),
            In::Export {
                conn,
                unacked_bytes,
            } => self.export(conn, unacked_bytes, now),
            In::Adopt {
                conn,
                address,
                exported,
            } => self.adopt(conn, address, &exported, now),
            In::Cap { conn, cap_bytes } => self.cap(conn, cap_bytes),
            In::SocketLevel { conn, held_bytes } => self.socket_level(conn, held_bytes),
            In::StartCap { cap_bytes } => self.start_cap_bytes = Some(cap_bytes),
            In::Drain => self.begin_drain(now),
        }
        index.into_iter().for_each(|index| self.touch(index, now));
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        // Of a turn that was cut. A worker that never rests would leave them out for ever.
        if self.touched_at < now {
            self.watch_touched(now);
        }
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
            // The timer scan alternates with ordinary work, a slice against a step.
            let due = self.checks.is_behind(now);
            self.scanning = due && !self.scanning;
            if self.scanning {
                self.scan(now);
                continue;
            }
            if self.make_room(now) {
                continue;
            }
            let open = self.table.open();
            match self.door.step(open, now).or_else(|| self.conn_step(now)) {
                None if due => {}
                None => {
                    self.watch_touched(now);
                    return None;
                }
                step => return step,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.due_at(0)
    }
}
