//! How a response ends, a connection, and the worker.

use alloc::collections::VecDeque;

use super::Worker;
use super::messages::Out;
use super::turns::QueueEnd;
use super::{Conn, ConnPhase};
use crate::conn::{ConnId, StreamId};
use crate::limits::{DRAIN_SILENT_US, PIPELINED_MAX};
use crate::units::Instant;
use crate::why::{What, Why};

/// The draining of the worker, once it is told to stop.
pub(super) struct Drain {
    /// When it began; `None`: the worker was not told to stop.
    since: Option<Instant>,
    /// How long after that all remaining connections are cut off.
    timeout_us: u64,
}

impl Drain {
    pub fn new(timeout_us: u64) -> Drain {
        Drain {
            since: None,
            timeout_us,
        }
    }

    /// Whether the worker was told to stop.
    pub fn is_under_way(&self) -> bool {
        self.since.is_some()
    }

    /// When all remaining connections are cut off.
    pub fn cuts_at(&self) -> Option<Instant> {
        Some(self.since?.plus_us(self.timeout_us))
    }

    /// Until when the drain waits for the first byte of a client that came at this time and has never sent one. Bytes
    /// already on their way arrive by then.
    pub fn silent_until(&self, came_at: Instant) -> Option<Instant> {
        Some(self.since?.max(came_at).plus_us(DRAIN_SILENT_US))
    }
}

/// Takes back the orders to send that the shell does not have yet: these bytes count for nobody here any more.
pub(super) fn unsend(outs: &mut VecDeque<Out>, id: StreamId) {
    outs.retain(|out| !matches!(out, Out::Send(order) if order.stream == id));
}

impl Worker {
    /// Whether the worker was told to stop, has no connection left, and knows of none in a backlog.
    pub fn finished(&self) -> bool {
        let open = self.table.open();
        let drained = open == 0 && self.outs.is_empty() && !self.door.is_due(open);
        self.drain.is_under_way() && drained
    }

    /// The worker is told to stop. It accepts those who wait in a backlog, for as long as it waits for silent clients.
    /// Longer would keep the port from the next server.
    pub(super) fn begin_drain(&mut self, now: Instant) {
        if self.drain.is_under_way() {
            return;
        }
        self.drain.since = Some(now);
        let ends = [self.drain.silent_until(now), self.drain.cuts_at()];
        if let Some(at) = ends.into_iter().flatten().min() {
            self.door.close_at(at);
        }
        for index in 0..self.table.places() {
            let conn = self.table.at(index);
            if conn.is_some_and(|conn| conn.phase == ConnPhase::Open && conn.timeouts.idle()) {
                self.look(index); // a request that has arrived is answered
            }
            self.touch(index, now);
        }
    }

    /// The shell can't go on with a response.
    pub(super) fn failed(&mut self, id: StreamId, why: Why, now: Instant) {
        if self.table.stream(id).is_some() {
            self.response_done(id.conn.index, why, now);
        }
    }

    /// The kernel has taken all bytes of the response, or the response can't go on (`why` is not `Done`).
    pub(super) fn response_done(&mut self, index: u32, why: Why, now: Instant) {
        if !self.end_stream(index, why, now) {
            return;
        }
        let Some(conn) = self.table.at_mut(index) else {
            return;
        };
        let (id, request) = (conn.id, &mut conn.request);
        request.in_a_row = (request.in_a_row + 1) % PIPELINED_MAX;
        // After several requests in a row the others have their turn first.
        let queue_end = match request.in_a_row {
            0 => QueueEnd::Back,
            _ => QueueEnd::Front,
        };
        match why {
            Why::Done if core::mem::take(&mut request.body) => {
                request.readable();
                conn.phase = ConnPhase::Skipping { skipped_bytes: 0 };
            }
            Why::Done => self.next_request(index, now),
            // Without a length, an orderly end would make the fragment look complete.
            Why::ListingFailed => self.close(id, true, why, now),
            // The client notices, since the end comes before the promised length.
            _ => self.linger(index, now),
        }
        self.touch(index, now);
        self.wake(index, queue_end);
    }

    /// Detach the stream from its connection: every stage forgets it, and its arrival is awaited. `false`: there was
    /// none.
    fn end_stream(&mut self, index: u32, why: Why, now: Instant) -> bool {
        let Some(conn) = self.table.at_mut(index) else {
            return false;
        };
        let Some(mut stream) = conn.stream.take() else {
            return false;
        };
        conn.request.last |= !stream.plan.keep_alive;
        stream.end_stall(&mut self.counts, now);
        let id = conn.stream_id();
        if why != Why::Done {
            unsend(&mut self.outs, id);
        }
        conn.nth = conn.nth.wrapping_add(1);
        conn.timeouts.response_ended(now);
        if why != Why::Done || stream.waited_net_us > 0 {
            let (sent_bytes, took_us) = (stream.sent_bytes, now.since_us(stream.started_at));
            let what = What::Ended {
                why,
                sent_bytes,
                took_us,
            };
            self.decisions.record(now, Some(id.conn), what);
        }
        self.outs.push_back(Out::Ended(id));
        if why != Why::Done || stream.outstanding.has_wanted() {
            self.outs.push_back(Out::Forget(id));
        }
        if self.settings.arrivals {
            let all = &mut self.unsettled;
            self.outs
                .extend(conn.arrivals.ended(all, id, &stream, why, now));
        }
        self.table.spare(stream);
        true
    }

    /// The peer is gone: every stage forgets it in this turn. One last sample tells what it received.
    pub(super) fn reset(&mut self, id: ConnId, now: Instant) {
        if self.table.get(id).is_some() {
            self.end_stream(id.index, Why::PeerReset, now);
        }
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.evidence.gone = true;
        if conn.arrivals.is_empty() {
            self.close(id, false, Why::PeerReset, now);
        } else {
            self.outs.push_back(Out::Sample(id));
        }
    }

    /// End a connection whose time limit has run out; with RST if the kernel still holds bytes for it. An answer that
    /// is already out may still arrive.
    pub(super) fn give_up(&mut self, id: ConnId, why: Why, now: Instant) {
        let Some(conn) = self.table.get(id) else {
            return;
        };
        match conn.phase {
            ConnPhase::Skipping { .. } => self.linger(id.index, now),
            ConnPhase::Open if !conn.arrivals.is_settled() => self.linger(id.index, now),
            phase => self.close(id, phase != ConnPhase::Open && why != Why::Done, why, now),
        }
    }

    /// Send FIN and let the client read what it got. Closing with unread input would send a RST that destroys the
    /// answer in its receive buffer (RFC 9112 9.6).
    pub(super) fn linger(&mut self, index: u32, now: Instant) {
        let Some(conn) = self.table.at_mut(index) else {
            return;
        };
        if matches!(conn.phase, ConnPhase::Lingering { .. }) {
            return;
        }
        conn.timeouts.linger(now);
        conn.phase = ConnPhase::Lingering { skipped_bytes: 0 };
        let id = conn.id;
        if conn.request.is_ended() && conn.arrivals.is_settled() {
            return self.close(id, false, Why::Done, now);
        }
        self.outs.push_back(Out::Shutdown(id));
        self.touch(index, now);
        self.wake(index, QueueEnd::Back);
    }

    /// The connection leaves its slot, and every stage forgets it.
    pub(super) fn close(&mut self, id: ConnId, abort: bool, why: Why, now: Instant) {
        if self.table.get(id).is_none() {
            return;
        }
        self.end_stream(id.index, why, now);
        let Some(mut conn) = self.table.remove(id) else {
            return;
        };
        self.leave(&mut conn);
        if conn.phase == ConnPhase::Resolving {
            self.outs.push_back(Out::Forget(conn.stream_id()));
        }
        self.counts.closed(why);
        if !matches!(why, Why::Done | Why::PeerClosed | Why::Idle) {
            self.decisions.record(now, Some(id), What::Closed { why });
        }
        self.outs.push_back(Out::Close {
            conn: id,
            abort,
            why,
        });
    }

    /// Nothing is kept of a connection that has left its slot. Its ended responses are settled with what is known.
    pub(super) fn leave(&mut self, conn: &mut Conn) {
        while let Some(arrived) = conn.arrivals.close(&mut self.unsettled) {
            self.outs.push_back(arrived);
        }
        self.door.leave(conn.admitted);
        self.checks.remove(conn.id.index);
        self.send.unpaced(conn.id, conn.output.paced_until);
    }
}
