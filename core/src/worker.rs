//! The worker machine: every connection of one worker, from accept to close.
//!
//! The way of a request: `Receive` → `Received` → `Resolve` → `Resolved` with its plan → for each
//! window of the file `Probe` or `Want`, then `Send` → `Sent` until the plan is done → the next
//! request. The stages below it: [`stream`] (what comes next in one response), [`patience`] (who is
//! waited for, and how long), [`arrivals`] (what reached the client). Cold windows go to
//! [`crate::disk`] by way of `Want` and come back as `Filled`.

mod arrivals;
mod patience;
mod stream;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use self::arrivals::Arrivals;
use self::patience::{Patience, Verdict};
use self::stream::{Stall, Step, Stream};
use crate::cache::Beliefs;
use crate::conn::{ConnId, ObjectId, Part, Plan, Span, StreamId, TcpEvent, TcpSample, Want};
use crate::limits::{
    ACCEPT_RETRY_US, ACCEPTS_PER_TURN_MAX, BODY_SKIP_BYTES_MAX, CONNECTIONS_MAX, LINGER_BYTES_MAX,
    PIPELINED_MAX, SCAN_PERIOD_US, SCAN_SLICE,
};
use crate::machine::Machine;
use crate::units::Instant;
use crate::why::Why;

/// What the operator may choose. Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This worker's number, for its streams' names.
    pub worker: u16,
    /// Connections at once, at most [`CONNECTIONS_MAX`].
    pub connections_max: u32,
    /// Connections at once from one address; 0: no bound.
    pub connections_per_address: u32,
    /// From the first byte of a request head to its last.
    pub header_timeout_us: u64,
    /// From the end of a response to the first byte of the next request.
    pub idle_timeout_us: u64,
    /// Without an acknowledged byte while bytes are pending.
    pub send_timeout_us: u64,
    /// The same while the peer's window is closed and it answers probes.
    pub pause_timeout_us: u64,
    /// Least mean rate over a minute while bytes are pending; 0: no bound.
    pub rate_min_bytes_per_s: u64,
    /// From the order to stop until everything is cut off.
    pub drain_timeout_us: u64,
    /// Whether to find out what reached the client (for the access log).
    pub arrivals: bool,
}

/// A client's address as far as the bound per address counts: an IPv4 address, or the /64 of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

/// What came of an order to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing is there.
    Nothing,
    /// A part of a request head.
    HeadPart,
    /// A whole request head, good or bad.
    Request {
        /// A body follows it.
        body: bool,
        /// More input is at hand or may be.
        more: bool,
    },
    /// Bytes of a request body, or behind the last request, were thrown away.
    Skipped {
        /// How many.
        bytes: u64,
        /// The body ended.
        done: bool,
    },
    /// What follows is no body as announced: nothing behind it can be understood.
    Broken,
    /// The peer will send nothing more.
    End,
}

/// What to look for in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A request head.
    Head,
    /// The body of the request that was just answered.
    Body,
    /// Anything, to throw it away.
    Rest,
}

/// What the worker is told.
#[derive(Debug)]
pub enum In {
    /// A connection waits to be accepted.
    Incoming,
    /// It was accepted and has this name; `None` for clients without an address.
    Accepted {
        /// Its name: a place that the shell knows to be free.
        conn: ConnId,
        /// Where it comes from.
        address: Option<Address>,
    },
    /// Accepting failed for want of descriptors or memory.
    AcceptFailed,
    /// The transport has news.
    Tcp {
        /// Of whom.
        conn: ConnId,
        /// What.
        event: TcpEvent,
    },
    /// The result of a `Receive`.
    Received {
        /// From whom.
        conn: ConnId,
        /// What.
        received: Received,
    },
    /// The request has an answer.
    Resolved {
        /// Which response this is.
        stream: StreamId,
        /// All of it.
        plan: Plan,
    },
    /// The result of a `Probe`.
    Probed {
        /// For whom.
        stream: StreamId,
        /// How many bytes from the start of the span are in memory.
        resident_bytes: u64,
    },
    /// The result of a `Send`.
    Sent {
        /// Of which response.
        stream: StreamId,
        /// What the kernel took.
        taken_bytes: u64,
        /// It takes no more for now.
        blocked: bool,
    },
    /// The result of a `Slice`.
    Sliced {
        /// For whom.
        stream: StreamId,
        /// Length of the slice; 0 is allowed.
        len_bytes: u64,
        /// No slice follows.
        last: bool,
    },
    /// A `Want` is fulfilled.
    Filled {
        /// Whose.
        stream: StreamId,
        /// What is in memory now.
        span: Span,
    },
    /// The response can't go on.
    Failed {
        /// Which.
        stream: StreamId,
        /// Why.
        why: Why,
    },
    /// Stop: no new connections, end those under way within the drain timeout.
    Drain,
}

/// What reached the client of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Body bytes that the kernel took.
    pub sent_bytes: u64,
    /// Body bytes that the client's TCP acknowledged.
    pub acked_bytes: u64,
    /// All of the response was acknowledged.
    pub whole: bool,
    /// Why it ended.
    pub why: Why,
    /// Time it stood still for lack of bytes from the disk.
    pub waited_disk_us: u64,
    /// Time it stood still because the socket took no more.
    pub waited_net_us: u64,
    /// From the request to the last byte taken by the kernel.
    pub took_us: u64,
}

/// What the worker orders. The shell executes it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Accept up to so many connections.
    Accept(u32),
    /// Watch the listeners, or leave new connections in their backlog.
    Listen(bool),
    /// Look at the input; answered by `Received` at once.
    Receive {
        /// Of whom.
        conn: ConnId,
        /// For what.
        expect: Expect,
    },
    /// Find what the request just received asks for, and plan its answer; answered by `Resolved`.
    Resolve {
        /// The response to plan.
        stream: StreamId,
        /// The client has too many connections: say so instead.
        refuse: bool,
    },
    /// Tell how much of the span is in memory, from its start; answered by `Probed` at once.
    Probe {
        /// For whom.
        stream: StreamId,
        /// Of which file.
        object: ObjectId,
        /// Which bytes.
        span: Span,
    },
    /// Hand this wish to the disk machine; answered by `Filled` or `Failed`.
    Want(Want),
    /// The stream is gone: its wishes and its listing are forgotten by every stage in this turn.
    Forget(StreamId),
    /// The kernel has all bytes of the response, or it is cut off: close what was open for it.
    Ended(StreamId),
    /// Make the next slice of the listing; answered by `Sliced` or `Failed`.
    Slice(StreamId),
    /// Send bytes of a part (of its present slice, if it is a listing); answered by `Sent` at once.
    Send {
        /// Of which response.
        stream: StreamId,
        /// Which of its parts.
        part: u16,
        /// From where in the part.
        from_bytes: u64,
        /// How many at most.
        len_bytes: u64,
        /// More of the response follows (MSG_MORE).
        more: bool,
    },
    /// Measure the connection; answered by a `Tcp` event with a sample at once.
    Sample(ConnId),
    /// A response has ended for its client: log it.
    Arrived {
        /// Which.
        stream: StreamId,
        /// How.
        outcome: Outcome,
    },
    /// Send FIN; the input stays open.
    Shutdown(ConnId),
    /// Close the connection and free its place.
    Close {
        /// Which.
        conn: ConnId,
        /// With RST, so that the kernel drops what it still holds.
        abort: bool,
        /// Why.
        why: Why,
    },
}

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
    stream: Option<Stream>,
    patience: Patience,
    arrivals: Arrivals,
}

/// Decides for all connections of one worker. See the module.
pub struct Worker {
    settings: Settings,
    conns: Vec<Option<Conn>>,
    open: u32,
    by_address: BTreeMap<Address, u32>,
    beliefs: Beliefs,
    /// Connections with something to do now, each at most once.
    ready: VecDeque<u32>,
    outs: VecDeque<Out>,
    listening: bool,
    incoming: bool,
    accept_again_at: Option<Instant>,
    draining: Option<Instant>,
    scan_at: Option<Instant>,
    scan_from: u32,
    /// The last step was one of a scan.
    scanning: bool,
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
            open: 0,
            by_address: BTreeMap::new(),
            beliefs: Beliefs::default(),
            ready: VecDeque::new(),
            outs: VecDeque::new(),
            listening: true,
            incoming: false,
            accept_again_at: None,
            draining: None,
            scan_at: None,
            scan_from: 0,
            scanning: false,
        }
    }

    /// Connections that are open now.
    pub fn connections(&self) -> u32 {
        self.open
    }

    /// Whether the worker was told to stop and has no connection left.
    pub fn finished(&self) -> bool {
        self.draining.is_some() && self.open == 0 && self.outs.is_empty()
    }

    /// A part of a response under way: what a `Send` is about. `None` for a stream that is gone.
    pub fn part(&self, stream: StreamId, part: u16) -> Option<&Part> {
        let conn = self
            .conn(stream.conn)
            .filter(|conn| conn.nth == stream.nth)?;
        conn.stream.as_ref()?.plan.parts.get(usize::from(part))
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
        if goes_on {
            self.ready.push_front(index)
        } else {
            self.ready.push_back(index)
        }
    }
}

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
        .as_mut()
}

/// Accepting.
impl Worker {
    fn accepted(&mut self, id: ConnId, address: Option<Address>, now: Instant) {
        let index = id.index as usize;
        if index >= self.conns.len() {
            self.conns.resize_with(index + 1, || None);
        }
        debug_assert!(
            self.conns[index].is_none(),
            "the shell hands out free places only"
        );
        let refused = address.is_some_and(|address| {
            let count = self.by_address.entry(address).or_insert(0);
            *count += 1;
            self.settings.connections_per_address != 0
                && *count > self.settings.connections_per_address
        });
        self.conns[index] = Some(Conn {
            id,
            address,
            refused,
            phase: Phase::Open,
            nth: 0,
            readable: true, // the request often comes with the connection
            writable: true,
            ended: false,
            last: false,
            requested_at: now,
            body: false,
            gone: false,
            queued: false,
            in_a_row: 0,
            stream: None,
            patience: Patience::new(&self.settings, now),
            arrivals: Arrivals::default(),
        });
        self.open += 1;
        self.scan_at.get_or_insert(now.plus_us(SCAN_PERIOD_US));
        self.wake(id.index, false);
    }

    fn room(&self) -> u32 {
        self.settings.connections_max.saturating_sub(self.open)
    }

    fn willing(&self) -> bool {
        self.room() > 0 && self.draining.is_none() && self.accept_again_at.is_none()
    }

    /// Accept, or stop listening while there is no room.
    fn accept_step(&mut self, now: Instant) -> Option<Out> {
        if self.accept_again_at.is_some_and(|at| at <= now) {
            self.accept_again_at = None;
        }
        let (room, willing) = (self.room(), self.willing());
        if willing != self.listening {
            self.listening = willing;
            return Some(Out::Listen(willing));
        }
        if willing && self.incoming {
            self.incoming = false;
            return Some(Out::Accept(room.min(ACCEPTS_PER_TURN_MAX)));
        }
        None
    }
}

/// One connection's next step.
impl Worker {
    fn conn_step(&mut self, now: Instant) -> Option<Out> {
        while let Some(index) = self.ready.pop_front() {
            let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
                continue;
            };
            conn.queued = false;
            let expect = match conn.phase {
                Phase::Resolving => continue,
                Phase::Sending => match self.send_step(index, now) {
                    Some(out) => return Some(out),
                    None => continue,
                },
                Phase::Open => Expect::Head,
                Phase::Skipping { .. } => Expect::Body,
                Phase::Lingering { .. } => Expect::Rest,
            };
            if conn.readable && !conn.ended {
                return Some(Out::Receive {
                    conn: conn.id,
                    expect,
                });
            }
        }
        None
    }

    fn send_step(&mut self, index: u32, now: Instant) -> Option<Out> {
        let worker = self.settings.worker;
        let conn = self.conns[index as usize].as_mut()?;
        let (id, stream) = (
            StreamId {
                worker,
                conn: conn.id,
                nth: conn.nth,
            },
            conn.stream.as_mut()?,
        );
        let writable = conn.writable;
        let out = match stream.step(&self.beliefs, now) {
            Step::Send { .. } | Step::Wait if !writable => {
                stream.stall(Some(Stall::Net), now);
                return None;
            }
            Step::Send {
                part,
                from_bytes,
                len_bytes,
                more,
            } => Out::Send {
                stream: id,
                part,
                from_bytes,
                len_bytes,
                more,
            },
            Step::Probe { object, span } => Out::Probe {
                stream: id,
                object,
                span,
            },
            Step::Want {
                object,
                span,
                dry_at,
            } => {
                self.wake(index, false);
                Out::Want(Want {
                    stream: id,
                    object,
                    span,
                    dry_at,
                })
            }
            Step::Slice => Out::Slice(id),
            Step::Wait => {
                stream.stall(Some(Stall::Disk), now);
                return None;
            }
            Step::Done => {
                self.response_done(index, Why::Done, now);
                return self.outs.pop_front();
            }
        };
        Some(out)
    }

    /// All bytes of the response are with the kernel, or it can't go on (`why` is not `Done`).
    fn response_done(&mut self, index: u32, why: Why, now: Instant) {
        let Some(stream) = self.end_stream(index, why, now) else {
            return;
        };
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        conn.last |= !stream.plan.keep_alive;
        conn.in_a_row = (conn.in_a_row + 1) % PIPELINED_MAX;
        let goes_on = conn.in_a_row != 0;
        let id = conn.id;
        match why {
            Why::Done if conn.body => {
                (conn.phase, conn.body, conn.readable) =
                    (Phase::Skipping { skipped_bytes: 0 }, false, true);
            }
            Why::Done => self.next_request(index, now),
            // Without a length, an orderly end would make the torso look whole.
            Why::ListingFailed => self.close(id, true, why, now),
            // The client notices: the end comes before the promised length.
            _ => self.linger(index, now),
        }
        self.wake(index, goes_on);
    }

    /// Take the stream off its connection: every stage forgets it, and its arrival is awaited.
    fn end_stream(&mut self, index: u32, why: Why, now: Instant) -> Option<Stream> {
        let conn = self.conns.get_mut(index as usize)?.as_mut()?;
        let mut stream = conn.stream.take()?;
        stream.stall(None, now);
        let id = StreamId {
            worker: self.settings.worker,
            conn: conn.id,
            nth: conn.nth,
        };
        conn.nth = conn.nth.wrapping_add(1);
        conn.patience.response_ended(now);
        self.outs.push_back(Out::Ended(id));
        if why != Why::Done || stream.wants() {
            self.outs.push_back(Out::Forget(id));
        }
        if self.settings.arrivals {
            self.outs.extend(conn.arrivals.ended(id, &stream, why, now));
        }
        Some(stream)
    }

    fn next_request(&mut self, index: u32, now: Instant) {
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        conn.phase = Phase::Open;
        if conn.last || conn.ended || self.draining.is_some() {
            self.linger(index, now);
        }
    }

    /// Say that nothing more comes, and let the client read what it got: closing with unread input
    /// would send a RST that destroys the answer in its receive buffer (RFC 9112 9.6).
    fn linger(&mut self, index: u32, now: Instant) {
        let Some(Some(conn)) = self.conns.get_mut(index as usize) else {
            return;
        };
        if matches!(conn.phase, Phase::Lingering { .. }) {
            return;
        }
        conn.patience.linger(now);
        conn.phase = Phase::Lingering { skipped_bytes: 0 };
        let id = conn.id;
        if conn.ended && conn.arrivals.is_empty() {
            return self.close(id, false, Why::Done, now);
        }
        self.outs.push_back(Out::Shutdown(id));
        self.wake(index, false);
    }

    fn close(&mut self, id: ConnId, abort: bool, why: Why, now: Instant) {
        if self.conn(id).is_none() {
            return;
        }
        self.end_stream(id.index, why, now);
        let Some(mut conn) = self.conns[id.index as usize].take() else {
            return;
        };
        while let Some(arrived) = conn.arrivals.give_up() {
            self.outs.push_back(arrived);
        }
        if conn.phase == Phase::Resolving {
            self.outs.push_back(Out::Forget(StreamId {
                worker: self.settings.worker,
                conn: id,
                nth: conn.nth,
            }));
        }
        if let Some(address) = conn.address {
            let count = self.by_address.remove(&address).unwrap_or(0);
            if count > 1 {
                self.by_address.insert(address, count - 1);
            }
        }
        self.open -= 1;
        self.accept_again_at = None; // a descriptor came free
        self.outs.push_back(Out::Close {
            conn: id,
            abort,
            why,
        });
    }
}

/// News of one connection.
impl Worker {
    fn tcp(&mut self, id: ConnId, event: TcpEvent, now: Instant) {
        let Some(conn) = self.conn_mut(id) else {
            return;
        };
        match event {
            TcpEvent::Readable | TcpEvent::Fin => conn.readable = true,
            TcpEvent::Writable => {
                conn.writable = true;
                if let Some(stream) = &mut conn.stream {
                    stream.stall(None, now);
                }
            }
            TcpEvent::Reset => return self.reset(id, now),
            TcpEvent::Sample(sample) => return self.sampled(id, sample, now),
        }
        self.wake(id.index, false);
    }

    fn sampled(&mut self, id: ConnId, sample: TcpSample, now: Instant) {
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        conn.arrivals.measured(sample.unacked_bytes);
        while let Some(arrived) = conn.arrivals.settled() {
            self.outs.push_back(arrived);
        }
        let lingering = matches!(conn.phase, Phase::Lingering { .. });
        if conn.gone {
            let why = if lingering { Why::Done } else { Why::PeerReset };
            self.close(id, false, why, now);
        } else if lingering && conn.ended && sample.unacked_bytes == 0 {
            self.close(id, false, Why::Done, now);
        } else if let Verdict::End(why) = conn.patience.sampled(conn.phase, sample, now) {
            self.give_up(id, why, now);
        }
    }

    /// The peer is gone: every stage forgets it in this turn; what it got is asked once more.
    fn reset(&mut self, id: ConnId, now: Instant) {
        self.end_stream(id.index, Why::PeerReset, now);
        let Some(conn) = self.conn_mut(id) else {
            return;
        };
        conn.gone = true;
        if conn.arrivals.is_empty() {
            self.close(id, false, Why::PeerReset, now);
        } else {
            self.outs.push_back(Out::Sample(id));
        }
    }

    fn received(&mut self, id: ConnId, received: Received, now: Instant) {
        let arrivals = self.settings.arrivals;
        let worker = self.settings.worker;
        let Some(conn) = self.conn_mut(id) else {
            return;
        };
        match (received, conn.phase) {
            (Received::Nothing, _) => conn.readable = false,
            (Received::HeadPart, _) => {
                conn.readable = false;
                conn.patience.head_begun(now);
            }
            (Received::Request { body, more }, _) => {
                (conn.phase, conn.body, conn.readable) = (Phase::Resolving, body, more);
                conn.requested_at = now;
                conn.patience.head_ended();
                let (stream, refuse) = (
                    StreamId {
                        worker,
                        conn: id,
                        nth: conn.nth,
                    },
                    conn.refused,
                );
                if arrivals && !conn.arrivals.is_empty() {
                    self.outs.push_back(Out::Sample(id));
                }
                self.outs.push_back(Out::Resolve { stream, refuse });
            }
            (Received::Skipped { bytes, done }, Phase::Skipping { skipped_bytes }) => {
                let skipped_bytes = skipped_bytes + bytes;
                conn.phase = Phase::Skipping { skipped_bytes };
                conn.patience.skipped(now);
                if done {
                    self.next_request(id.index, now);
                } else if skipped_bytes > BODY_SKIP_BYTES_MAX {
                    self.linger(id.index, now);
                }
                self.wake(id.index, false);
            }
            (Received::Skipped { bytes, .. }, Phase::Lingering { skipped_bytes }) => {
                let skipped_bytes = skipped_bytes + bytes;
                conn.phase = Phase::Lingering { skipped_bytes };
                conn.patience.skipped(now);
                if skipped_bytes > LINGER_BYTES_MAX {
                    self.close(id, false, Why::BodyTimeout, now);
                }
                self.wake(id.index, false);
            }
            (Received::Skipped { .. }, Phase::Open | Phase::Resolving | Phase::Sending) => {}
            (Received::Broken, _) => self.linger(id.index, now),
            (Received::End, phase) => self.peer_ended(id, phase, now),
        }
    }

    fn peer_ended(&mut self, id: ConnId, phase: Phase, now: Instant) {
        let Some(conn) = self.conn_mut(id) else {
            return;
        };
        conn.ended = true;
        let unsettled = !conn.arrivals.is_empty();
        match phase {
            Phase::Open | Phase::Skipping { .. } if unsettled => self.linger(id.index, now),
            Phase::Open | Phase::Skipping { .. } => self.close(id, false, Why::PeerClosed, now),
            Phase::Lingering { .. } if unsettled => self.outs.push_back(Out::Sample(id)),
            Phase::Lingering { .. } => self.close(id, false, Why::Done, now),
            // Half-closed: it still gets its response.
            Phase::Resolving | Phase::Sending => {}
        }
    }

    fn resolved(&mut self, id: StreamId, plan: Plan, now: Instant) {
        let Some(conn) = self
            .conn_mut(id.conn)
            .filter(|c| c.nth == id.nth && c.phase == Phase::Resolving)
        else {
            return;
        };
        conn.arrivals.begin(plan.head_len_bytes);
        conn.stream = Some(Stream::new(plan, conn.requested_at, now));
        conn.phase = Phase::Sending;
        conn.patience.response_begun(now);
        self.wake(id.conn.index, true);
    }

    fn sent(&mut self, id: StreamId, taken_bytes: u64, blocked: bool, now: Instant) {
        let Some(conn) = self.conn_mut(id.conn).filter(|conn| conn.nth == id.nth) else {
            return;
        };
        let Some(stream) = &mut conn.stream else {
            return;
        };
        stream.sent(taken_bytes);
        conn.arrivals.sent(taken_bytes);
        conn.patience.sent(taken_bytes, now);
        conn.writable &= !blocked;
        // A head goes on with its body, a body after the others had their piece.
        let goes_on = stream.sent_bytes <= stream.plan.head_len_bytes;
        stream.stall(blocked.then_some(Stall::Net), now);
        self.wake(id.conn.index, goes_on);
    }

    /// End a connection that we have lost patience with; with RST if the kernel still holds bytes
    /// for it. An answer that is out already may still arrive.
    fn give_up(&mut self, id: ConnId, why: Why, now: Instant) {
        let Some(conn) = self.conn(id) else { return };
        match conn.phase {
            Phase::Skipping { .. } => self.linger(id.index, now),
            Phase::Open if !conn.arrivals.is_empty() => self.linger(id.index, now),
            phase => self.close(id, phase != Phase::Open && why != Why::Done, why, now),
        }
    }
}

/// Time.
impl Worker {
    /// Look at a slice of the connections: whose patience, or ours with whom, has run out?
    fn scan(&mut self, now: Instant) {
        let end = (self.scan_from + SCAN_SLICE).min(self.conns.len() as u32);
        let drained = self
            .draining
            .is_some_and(|since| now.since_us(since) >= self.settings.drain_timeout_us);
        for index in self.scan_from..end {
            let Some(conn) = &mut self.conns[index as usize] else {
                continue;
            };
            let (id, unsettled) = (conn.id, !conn.arrivals.is_empty());
            if drained {
                self.close(id, true, Why::Draining, now);
                continue;
            }
            match conn.patience.verdict(conn.phase, &self.settings, now) {
                Verdict::Patient if unsettled => self.outs.push_back(Out::Sample(id)),
                Verdict::Patient => {}
                Verdict::Measure => self.outs.push_back(Out::Sample(id)),
                Verdict::End(why) => self.give_up(id, why, now),
            }
        }
        self.scan_from = end;
        if end == self.conns.len() as u32 {
            self.scan_from = 0;
            self.scan_at = (self.open > 0).then(|| now.plus_us(SCAN_PERIOD_US));
        }
    }

    fn drain(&mut self, now: Instant) {
        if self.draining.is_some() {
            return;
        }
        self.draining = Some(now);
        for index in 0..self.conns.len() as u32 {
            if let Some(conn) = &self.conns[index as usize] {
                if conn.phase == Phase::Open && conn.patience.idle() {
                    self.linger(index, now);
                }
            }
        }
        self.scan_at = (self.open > 0).then_some(now);
    }
}

impl Machine for Worker {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Incoming => self.incoming = true,
            In::Accepted { conn, address } => self.accepted(conn, address, now),
            In::AcceptFailed => self.accept_again_at = Some(now.plus_us(ACCEPT_RETRY_US)),
            In::Tcp { conn, event } => self.tcp(conn, event, now),
            In::Received { conn, received } => {
                self.received(conn, received, now);
                self.wake(conn.index, true);
            }
            In::Resolved { stream, plan } => self.resolved(stream, plan, now),
            In::Probed {
                stream,
                resident_bytes,
            } => {
                let probed = stream_in(&mut self.conns, stream);
                let want = probed.and_then(|s| s.probed(resident_bytes, &mut self.beliefs, now));
                if let Some(Step::Want {
                    object,
                    span,
                    dry_at,
                }) = want
                {
                    self.outs.push_back(Out::Want(Want {
                        stream,
                        object,
                        span,
                        dry_at,
                    }));
                }
                self.wake(stream.conn.index, true);
            }
            In::Sent {
                stream,
                taken_bytes,
                blocked,
            } => self.sent(stream, taken_bytes, blocked, now),
            In::Sliced {
                stream,
                len_bytes,
                last,
            } => {
                if let Some(s) = self.stream_mut(stream) {
                    s.stall(None, now);
                    s.sliced(len_bytes, last);
                    self.wake(stream.conn.index, false);
                }
            }
            In::Filled { stream, span } => {
                if let Some(s) = stream_in(&mut self.conns, stream) {
                    s.stall(None, now);
                    s.filled(span, &mut self.beliefs, now);
                    self.wake(stream.conn.index, false);
                }
            }
            In::Failed { stream, why } => {
                if self.stream_mut(stream).is_some() {
                    self.response_done(stream.conn.index, why, now);
                }
            }
            In::Drain => self.drain(now),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        loop {
            if let Some(out) = self.outs.pop_front() {
                return Some(out);
            }
            // A scan and those who have something to do take turns, a slice against a step.
            let due = self.scan_at.is_some_and(|at| at <= now);
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
        if accepts || !self.ready.is_empty() || !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        [self.scan_at, self.accept_again_at]
            .into_iter()
            .flatten()
            .min()
    }
}
