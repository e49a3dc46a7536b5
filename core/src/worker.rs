//! The worker machine: every connection of one worker, from accept to close.
//!
//! The way of a request: `Receive` → `Received` → `Resolve` → `Resolved` with its plan → for each
//! window of the file `Probe` or `Want`, then `Send` → `Sent` until the plan is done → the next
//! request. The stages below it: [`stream`] (what comes next in one response), [`patience`] (who is
//! waited for, and how long), [`arrivals`] (what reached the client). Cold windows go to
//! [`crate::disk`] by way of `Want` and come back as `Filled`. What the machine does is spread over
//! [`accept`], [`step`] (orders), [`news`] and [`path`] (evidence), and [`scan`] (time); what it tells of itself stands in
//! [`counts`] and [`look`].

mod accept;
mod arrivals;
mod counts;
mod look;
mod messages;
mod news;
mod pace;
mod path;
mod patience;
mod scan;
mod stand;
mod step;
mod stream;
#[cfg(test)]
mod tests;
mod wish;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use self::arrivals::{Arrivals, Unsettled};
pub use self::counts::{Census, Counts, PHASES};
pub use self::look::{Look, Response};
pub use self::messages::{Address, Expect, In, Out, Outcome, Received, Send, Settings};
use self::pace::Pace;
use self::patience::Patience;
use self::step::{undo, wanted};
use self::stream::Stream;
use crate::cache::ResidencyCache;
use crate::congestion::Watch;
use crate::conn::{ConnId, Held, Plan, StreamId};
use crate::limits::{ACCEPT_RETRY_US, CONNECTIONS_MAX, FETCHED_MAX};
use crate::machine::Machine;
use crate::send::Margin;
use crate::send::rounds::TopUps;
use crate::units::Instant;
use crate::wheel::Wheel;
use crate::why::{Decisions, TopUp, What};

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

struct Conn {
    id: ConnId,
    address: Option<Address>,
    refused: bool,
    phase: Phase,
    nth: u16,
    /// Input may be there. Only a look that finds nothing clears it.
    readable: bool,
    writable: bool,
    /// The peer's FIN is there. Its event may have come together with data, and does not come again: a look that
    /// finds no more data is not the last one.
    fin: bool,
    /// The peer's FIN was read: no further requests.
    ended: bool,
    /// Our response asks for the end of the connection.
    last: bool,
    /// When the request under way was read.
    requested_at: Instant,
    /// A body follows the request under way.
    body: bool,
    /// The peer is gone; only what arrived is still to be found out.
    gone: bool,
    queued: bool,
    in_a_row: u32,
    /// Apart, since it is half of all that is kept of a connection, and most are idle.
    stream: Option<Box<Stream>>,
    patience: Patience,
    margin: Margin,
    /// What TCP last said of its path, and when it was asked.
    watch: Watch,
    watched_at: Instant,
    /// The window with which this response begins may have to be paced: TCP is asked.
    pace_asked: bool,
    /// Until when it is paced, if it is: its place in [`Worker::paced`].
    paced_until: Option<Instant>,
    /// Why its socket is being filled, or was last.
    top_up: TopUp,
    arrivals: Arrivals,
    pace: Pace,
}

impl Conn {
    /// When its socket is to be looked at although it does not call: it waits for the disk, whose turn depends on what
    /// is left in it, or nobody knows how fast its client is.
    fn look_at(&self) -> Option<Instant> {
        let stream = self.stream.as_ref();
        let fetched = stream.is_some_and(|stream| stream.reads_from_disk());
        let stands = fetched && self.writable;
        self.margin
            .look_at()
            .filter(|_| stands || self.margin.is_of_interest() && stream.is_some())
    }
}

/// Decides for all connections of one worker. See the module.
pub struct Worker {
    settings: Settings,
    conns: Vec<Option<Conn>>,
    /// Memory of streams that ended, for those that begin: no response allocates its own.
    #[allow(clippy::vec_box, reason = "the boxes are what is kept")]
    spare: Vec<Box<Stream>>,
    open: u32,
    by_address: BTreeMap<Address, u32>,
    residency_cache: ResidencyCache,
    /// Connections with something to do now, each at most once.
    ready: VecDeque<u32>,
    /// Those of them that are in the middle of a body: long work, done a step at a time between the others.
    bulk: VecDeque<u32>,
    /// Steps of the former since the last of the latter.
    short_steps: u32,
    outs: VecDeque<Out>,
    listening: bool,
    incoming: bool,
    accept_again_at: Option<Instant>,
    draining: Option<Instant>,
    wheel: Wheel,
    /// Responses whose last byte is not acknowledged yet.
    unsettled: Unsettled,
    /// `None`: sockets are filled as soon as they take some.
    top_ups: Option<TopUps>,
    /// Who is paced, and until when: for one round trip.
    paced: BTreeSet<(Instant, ConnId)>,
    /// The last step was one of a scan.
    scanning: bool,
    counts: Counts,
    decisions: Decisions,
}

impl Worker {
    /// A worker without connections.
    pub fn new(settings: Settings) -> Worker {
        Worker {
            settings: Settings {
                connections_max: settings.connections_max.min(CONNECTIONS_MAX),
                ..settings
            },
            conns: Vec::new(),
            spare: Vec::new(),
            open: 0,
            by_address: BTreeMap::new(),
            residency_cache: ResidencyCache::default(),
            ready: VecDeque::new(),
            bulk: VecDeque::new(),
            short_steps: 0,
            outs: VecDeque::new(),
            listening: true,
            incoming: false,
            accept_again_at: None,
            draining: None,
            wheel: Wheel::default(),
            unsettled: Unsettled::new(settings.arrivals_bytes_max),
            top_ups: match settings.send {
                Send::Margin { budget_bytes } => Some(TopUps::new(budget_bytes)),
                Send::Eager => None,
            },
            paced: BTreeSet::new(),
            scanning: false,
            counts: Counts::default(),
            decisions: Decisions::default(),
        }
    }

    /// Connections that it may have at once.
    pub fn connections_max(&self) -> u32 {
        self.settings.connections_max
    }

    /// Connections that are open now.
    pub fn connections(&self) -> u32 {
        self.open
    }

    /// How many connections have a known rate, and the sum of these, bytes per second.
    pub fn rates(&self, now: Instant) -> (u64, u64) {
        self.top_ups.map_or((0, 0), |top_ups| top_ups.measured(now))
    }

    /// Whether the worker was told to stop and has no connection left.
    pub fn finished(&self) -> bool {
        self.draining.is_some() && self.open == 0 && self.outs.is_empty()
    }

    /// The plan of a response under way: what a `Send` is about. `None` for a stream that is gone.
    pub fn plan(&self, stream: StreamId) -> Option<&Plan> {
        let conn = self
            .conn(stream.conn)
            .filter(|conn| conn.nth == stream.nth)?;
        Some(&conn.stream.as_ref()?.plan)
    }

    /// Whether an answer to the wish of this number is awaited by its stream. If not, it is a late one, and what it brings
    /// is free.
    pub fn awaits(&self, stream: StreamId, seq: u32) -> bool {
        let conn = self.conn(stream.conn).filter(|c| c.nth == stream.nth);
        let stream = conn.and_then(|conn| conn.stream.as_deref());
        stream.is_some_and(|stream| stream.awaits(seq))
    }

    fn conn(&self, id: ConnId) -> Option<&Conn> {
        self.conns
            .get(id.index as usize)?
            .as_ref()
            .filter(|conn| conn.id == id)
    }

    fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        conn_in(&mut self.conns, id)
    }

    fn stream_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        stream_in(&mut self.conns, id)
    }

    /// Put a connection in line; one that goes on with what it does comes first.
    fn wake(&mut self, index: u32, goes_on: bool) {
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        if conn.queued {
            return;
        }
        conn.queued = true;
        let within_body = |stream: &Stream| stream.sent_bytes > stream.plan.head_len_bytes;
        let bulk = conn.phase == Phase::Sending && conn.stream.as_deref().is_some_and(within_body);
        let queue = if bulk {
            &mut self.bulk
        } else {
            &mut self.ready
        };
        if goes_on {
            queue.push_front(index)
        } else {
            queue.push_back(index)
        }
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

fn conn_in(conns: &mut [Option<Conn>], id: ConnId) -> Option<&mut Conn> {
    conns
        .get_mut(id.index as usize)?
        .as_mut()
        .filter(|conn| conn.id == id)
}

fn stream_in(conns: &mut [Option<Conn>], id: StreamId) -> Option<&mut Stream> {
    conn_in(conns, id.conn)
        .filter(|conn| conn.nth == id.nth)?
        .stream
        .as_deref_mut()
}

impl Machine for Worker {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        let index = event.conn().map(|conn| conn.index);
        match event {
            In::Incoming => self.incoming = true,
            In::Accepted { conn, address } => self.accepted(conn, address, now),
            In::AcceptFailed => self.accept_again_at = Some(now.plus_us(ACCEPT_RETRY_US)),
            In::Tcp { conn, event } => self.tcp(conn, event, now),
            In::Received { conn, received } => {
                self.received(conn, received, now);
                self.wake(conn.index, true);
            }
            In::Recorded { stream, bytes } => self.recorded(stream, bytes),
            In::Resolved { stream, plan } => self.resolved(stream, plan, now),
            In::Probed {
                stream,
                resident_bytes,
            } => {
                let conn = conn_in(&mut self.conns, stream.conn).filter(|c| c.nth == stream.nth);
                let want = conn.and_then(|conn| {
                    let supply = conn.margin.supply(!conn.writable, now);
                    let asked = conn.stream.as_mut()?;
                    let want =
                        asked.probed(resident_bytes, &mut self.residency_cache, &supply, now);
                    undo(&mut self.outs, asked.undo(), stream);
                    want
                });
                self.outs.extend(want.and_then(|want| wanted(stream, want)));
                self.wake(stream.conn.index, true);
            }
            In::Sent {
                stream,
                taken_bytes,
                full,
                unsent_bytes,
            } => {
                self.sent(stream, taken_bytes, full, unsent_bytes, now);
            }
            In::Missing { stream } => {
                if let Some(missed) = stream_in(&mut self.conns, stream) {
                    missed.missing(&mut self.residency_cache);
                    self.counts.missed();
                    undo(&mut self.outs, missed.undo(), stream);
                    self.wake(stream.conn.index, false);
                }
            }
            In::Sliced {
                stream,
                len_bytes,
                last,
            } => {
                if let Some(s) = stream_in(&mut self.conns, stream) {
                    s.sliced(len_bytes, last);
                    self.wake(stream.conn.index, false);
                }
            }
            In::Filled {
                stream,
                seq,
                span,
                held,
                chosen,
            } => {
                if self.awaits(stream, seq) {
                    let what = What::Read(chosen);
                    self.decisions.record(now, Some(stream.conn), what);
                    self.filled(stream, seq, span, held, now);
                }
            }
            In::Unfilled { stream, seq, why } => {
                if self.awaits(stream, seq) {
                    self.unfilled(stream, seq, why);
                }
            }
            In::Failed { stream, why } => {
                if self.stream_mut(stream).is_some() {
                    self.response_done(stream.conn.index, why, now);
                }
            }
            In::Drain => self.drain(now),
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
            if self.top_ups.as_mut().is_some_and(TopUps::take_due) {
                self.top_up(now);
            }
            if self.paced.first().is_some_and(|(until, _)| *until <= now) {
                self.unpace();
                continue;
            }
            // A scan and those who have something to do take turns, a slice against a step.
            let due = self.wheel.is_behind(now);
            self.scanning = due && !self.scanning;
            if self.scanning {
                self.scan(now);
                continue;
            }
            match self.accept_step(now).or_else(|| self.conn_step(now)) {
                None if due => {}
                step => return step,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let accepts = self.willing() != self.listening || self.willing() && self.incoming;
        let ready = !self.ready.is_empty() || !self.bulk.is_empty();
        if accepts || ready || !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let paced = self.paced.first().map(|(until, _)| *until);
        [self.wheel.next_at(), self.accept_again_at, paced]
            .into_iter()
            .flatten()
            .min()
    }
}
