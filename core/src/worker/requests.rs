//! Requests: what the worker looks for in a client's input, and how a response begins. The shell parses the input
//! (`server/src/front/http.rs`).

use super::ConnPhase;
use super::Worker;
use super::messages::{Expect, Out, Received};
use super::stream::Stream;
use super::turns::QueueEnd;
use crate::conn::{ConnId, Part, Plan, StreamId};
use crate::limits::{
    BODY_SKIP_BYTES_MAX, LINGER_BYTES_MAX, PACED_RESPONSE_BYTES_MAX, PACED_WINDOW_BYTES_MIN,
};
use crate::units::Instant;
use crate::why::{TopUp, Why};

/// The end of a client's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not reached, as far as is known.
    Open,
    /// The peer's FIN has arrived. Its event may have come together with data and does not come again, so a receive
    /// that finds no more data is not the last one.
    Fin,
    /// It was read: no more requests follow.
    Read,
}

/// The input of a connection, and its request under way.
pub(super) struct Request {
    /// Input may be there. Only a receive that finds nothing clears it.
    readable: bool,
    /// The end of the input: whether it was reached.
    end: End,
    /// When the request under way was read.
    at: Instant,
    /// A body follows the request under way.
    pub body: bool,
    /// The connection ends after the response under way.
    pub last: bool,
    /// Responses since others had their turn.
    pub in_a_row: u32,
}

impl Request {
    /// A new connection. Its request has often arrived with it.
    pub fn new(now: Instant) -> Request {
        Request {
            readable: true,
            end: End::Open,
            at: now,
            body: false,
            last: false,
            in_a_row: 0,
        }
    }

    /// The input of a connection that another machine gave away. Some of it may wait in the shell.
    pub fn adopted(body: bool, now: Instant) -> Request {
        Request {
            body,
            ..Request::new(now)
        }
    }

    /// Whether the peer may send more, as far as is known.
    pub fn is_open(&self) -> bool {
        self.end == End::Open
    }

    /// The kernel says that input is there.
    pub fn readable(&mut self) {
        self.readable = true;
    }

    /// The kernel reports the end of the input, perhaps behind more of it.
    pub fn fin(&mut self) {
        self.readable = true;
        if self.end == End::Open {
            self.end = End::Fin;
        }
    }

    /// Whether input may be there.
    pub fn is_readable(&self) -> bool {
        self.readable
    }

    /// Whether a receive may find something.
    pub fn is_worth_a_look(&self) -> bool {
        self.readable && !self.is_ended()
    }

    /// Whether the input's end was read.
    pub fn is_ended(&self) -> bool {
        self.end == End::Read
    }

    /// All input known to be there was consumed; `more`: there may be more.
    fn looked(&mut self, more: bool) {
        self.readable = more || self.end != End::Open;
    }
}

impl Worker {
    /// The result of a `Receive`.
    pub(super) fn received(&mut self, id: ConnId, received: Received, now: Instant) {
        self.take_received(id, received, now);
        self.wake(id.index, QueueEnd::Front);
    }

    /// What a receive has brought decides what the connection does next.
    fn take_received(&mut self, id: ConnId, received: Received, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        match (received, conn.phase) {
            (Received::Nothing, _) => {
                conn.request.readable = false;
                self.looked(id, now);
            }
            (Received::HeadPart, ConnPhase::Open) => {
                conn.request.looked(false);
                conn.timeouts.head_begun(now);
                self.looked(id, now);
            }
            (Received::Request { body, more }, ConnPhase::Open) => {
                conn.phase = ConnPhase::Resolving;
                conn.request.looked(more);
                (conn.request.body, conn.request.at) = (body, now);
                conn.timeouts.head_ended();
                let (stream, refuse) = (conn.stream_id(), conn.admitted.refused);
                if self.settings.arrivals && !conn.arrivals.is_empty() {
                    self.outs.push_back(Out::Sample(id));
                }
                self.outs.push_back(Out::Resolve { stream, refuse });
            }
            (
                Received::Skipped { bytes, done },
                ConnPhase::Skipping { .. } | ConnPhase::Lingering { .. },
            ) => {
                self.skipped(id, bytes, done, now);
            }
            // This was not asked for in the current phase.
            (Received::HeadPart | Received::Request { .. }, _) => {}
            (
                Received::Skipped { .. },
                ConnPhase::Open | ConnPhase::Resolving | ConnPhase::Sending,
            ) => {}
            (Received::Broken, _) => self.linger(id.index, now),
            (Received::End, phase) => self.peer_ended(id, phase, now),
        }
    }

    /// Input was discarded: a request's body, or what follows the last request.
    fn skipped(&mut self, id: ConnId, bytes: u64, done: bool, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.timeouts.skipped(now);
        match &mut conn.phase {
            ConnPhase::Skipping { skipped_bytes } => {
                *skipped_bytes += bytes;
                if done {
                    self.next_request(id.index, now);
                } else if *skipped_bytes > BODY_SKIP_BYTES_MAX {
                    self.linger(id.index, now);
                }
            }
            ConnPhase::Lingering { skipped_bytes } => {
                *skipped_bytes += bytes;
                if *skipped_bytes > LINGER_BYTES_MAX {
                    self.close(id, false, Why::Done, now);
                }
            }
            ConnPhase::Open | ConnPhase::Resolving | ConnPhase::Sending => {}
        }
        self.wake(id.index, QueueEnd::Back);
    }

    /// The input has ended: no request follows.
    fn peer_ended(&mut self, id: ConnId, phase: ConnPhase, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.request.end = End::Read;
        conn.timeouts.emptied(Instant { us: u64::MAX }); // for good
        let (unsettled, settled) = (!conn.arrivals.is_empty(), conn.arrivals.is_settled());
        match phase {
            ConnPhase::Open | ConnPhase::Skipping { .. } if unsettled => self.linger(id.index, now),
            ConnPhase::Open | ConnPhase::Skipping { .. } if settled => {
                self.close(id, false, Why::PeerClosed, now);
            }
            // Mostly its client has everything by now.
            ConnPhase::Open | ConnPhase::Skipping { .. } => self.outs.push_back(Out::Sample(id)),
            ConnPhase::Lingering { .. } if unsettled => self.outs.push_back(Out::Sample(id)),
            ConnPhase::Lingering { .. } => self.close(id, false, Why::Done, now),
            // Half-closed: it still gets its response.
            ConnPhase::Resolving | ConnPhase::Sending => {}
        }
    }

    /// A request has its answer: the response begins.
    pub(super) fn resolved(&mut self, id: StreamId, plan: Plan, now: Instant) {
        let resolving = self.table.with(id);
        let Some(at) = resolving
            .filter(|conn| conn.phase == ConnPhase::Resolving)
            .map(|conn| conn.request.at)
        else {
            return;
        };
        let head_len_bytes = plan.head_len_bytes;
        let pace = self.settings.pacing && id.nth > 0 && is_worth_a_pace(&plan);
        let sound = plan.is_sound();
        let stream = Stream::new(id, plan, at, self.settings.delay, now);
        let stream = self.table.boxed(stream);
        let Some(conn) = self.table.with_mut(id) else {
            return;
        };
        conn.evidence.shown.begin(conn.arrivals.given_bytes(), now);
        conn.arrivals.begin(head_len_bytes);
        conn.output.pace_asked = pace;
        if pace {
            self.outs.push_back(Out::Sample(id.conn));
        }
        conn.stream = Some(stream);
        conn.phase = ConnPhase::Sending;
        conn.timeouts.response_begun(now);
        conn.output.send_queue.begin(now);
        conn.output.top_up = TopUp::First;
        self.join(id.conn);
        if !sound {
            return self.response_done(id.conn.index, Why::Misframed, now);
        }
        self.wake(id.conn.index, QueueEnd::Front);
    }

    /// The request is in the input again.
    pub(super) fn unresolved(&mut self, id: StreamId, now: Instant) {
        let conn = self.table.with_mut(id);
        if let Some(conn) = conn.filter(|conn| conn.phase == ConnPhase::Resolving) {
            conn.phase = ConnPhase::Open;
            conn.request.body = false;
            conn.request.readable();
            conn.timeouts.head_begun(now);
            self.wake(id.conn.index, QueueEnd::Back);
        }
    }

    /// The connection may take another request, unless it has to end.
    pub(super) fn next_request(&mut self, index: u32, now: Instant) {
        let drains = self.drain.is_under_way();
        let Some(conn) = self.table.at_mut(index) else {
            return;
        };
        conn.phase = ConnPhase::Open;
        if conn.request.last || conn.request.is_ended() {
            self.linger(index, now);
        } else if drains {
            conn.request.readable(); // the next request may have arrived
        }
    }

    /// The next receive on a connection that is not sending.
    pub(super) fn receive_step(&self, index: u32) -> Option<Out> {
        let conn = self.table.at(index)?;
        let expect = match conn.phase {
            ConnPhase::Open => Expect::Head,
            ConnPhase::Skipping { .. } => Expect::Body,
            ConnPhase::Lingering { .. } => Expect::Rest,
            ConnPhase::Resolving | ConnPhase::Sending => return None,
        };
        let conn = Some(conn).filter(|conn| conn.request.is_worth_a_look())?.id;
        Some(Out::Receive { conn, expect })
    }
}

/// Whether a response is worth pacing: it may be longer than a window that every queue takes, and short enough that its
/// first window matters.
fn is_worth_a_pace(plan: &Plan) -> bool {
    plan.parts.iter().any(|part| match part {
        Part::Bytes(_) => false,
        Part::Body { span, .. } => {
            (PACED_WINDOW_BYTES_MIN..=PACED_RESPONSE_BYTES_MAX).contains(&span.len_bytes)
        }
        Part::Slices => true,
    })
}
