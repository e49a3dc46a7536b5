//! News of one connection: the one door behind [`super::Worker`]'s `on`.

use alloc::boxed::Box;

use super::messages::{Out, Received};
use super::pace::is_dry;
use super::patience::Verdict;
use super::step::undo;
use super::stream::Stream;
use super::{Phase, Worker, conn_in, stream_in};
use crate::conn::{ConnId, Held, Part, Plan, Span, StreamId, TcpEvent, TcpSample};
use crate::limits::{
    BODY_SKIP_BYTES_MAX, LINGER_BYTES_MAX, PACED_RESPONSE_BYTES_MAX, PACED_WINDOW_BYTES_MIN,
    PAUSED_US,
};
use crate::send::first_flight_rate_bytes_per_s;
use crate::send::rounds::TopUps;
use crate::units::Instant;
use crate::why::{TopUp, Wait, What, Why};

impl Worker {
    pub(super) fn tcp(&mut self, id: ConnId, event: TcpEvent, now: Instant) {
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        match event {
            TcpEvent::Readable => conn.readable = true,
            TcpEvent::Fin => (conn.fin, conn.readable) = (true, true),
            TcpEvent::Writable => {
                conn.writable = true;
                if let Some(stream) = &mut conn.stream {
                    if stream.waits(now).0.is_net() {
                        conn.top_up = TopUp::Called;
                        conn.margin.called();
                        self.counts.topped_up(TopUp::Called);
                        stream.go_on(&mut self.counts, now);
                    }
                    if let Some(top_ups) = &mut self.top_ups {
                        top_ups.called(now);
                    }
                }
            }
            TcpEvent::Reset => return self.reset(id, now),
            TcpEvent::Sample(sample) => return self.sampled(id, sample, now),
        }
        self.wake(id.index, false);
    }

    /// Spread the first window of a response over a round trip, if it would be a burst. The kernel keeps the
    /// pace until it is told otherwise, which would hold back a window that grows: so it is, a round trip later.
    fn pace(&mut self, conn: ConnId, sample: &TcpSample, now: Instant) {
        let Some(rate_bytes_per_s) = first_flight_rate_bytes_per_s(sample) else {
            return;
        };
        let Some(paced) = conn_in(&mut self.conns, conn) else {
            return;
        };
        self.outs.push_back(Out::Pace {
            conn,
            rate_bytes_per_s: Some(rate_bytes_per_s),
        });
        let what = What::Paced {
            window_bytes: sample.path.cwnd_bytes,
            rate_bytes_per_s,
            for_us: sample.rtt_us,
        };
        self.decisions.record(now, Some(conn), what);
        self.counts.paced();
        let until = now.plus_us(sample.rtt_us);
        if let Some(before) = paced.paced_until.replace(until) {
            self.paced.remove(&(before, conn));
        }
        self.paced.insert((until, conn));
    }

    /// The round trip of the first who is paced is over.
    pub(super) fn unpace(&mut self) {
        let Some((_, id)) = self.paced.pop_first() else {
            return;
        };
        if let Some(conn) = self.conn_mut(id) {
            conn.paced_until = None;
            self.outs.push_back(Out::Pace {
                conn: id,
                rate_bytes_per_s: None,
            });
        }
    }

    pub(super) fn sampled(&mut self, id: ConnId, sample: TcpSample, now: Instant) {
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        if core::mem::take(&mut conn.pace_asked) {
            self.pace(id, &sample, now);
        }
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        conn.arrivals.measured(sample.unacked_bytes);
        let idle_us = (conn.pace).heard(&sample, conn.arrivals.acked_bytes(), now);
        let stream = conn.stream.as_deref_mut();
        if stream.is_some_and(|stream| stream.heard(is_dry(&sample), idle_us, now)) {
            return; // this was asked for those who look, and decides nothing
        }
        let reads = conn.stream.as_deref().is_some_and(Stream::wishes);
        if let Some(signal) = conn.watch.seen(sample.path).filter(|_| reads) {
            self.congested(id, signal, &sample.path, now);
        }
        let Some(conn) = conn_in(&mut self.conns, id) else {
            return;
        };
        let fetched = conn.stream.as_deref().is_some_and(Stream::reads_from_disk);
        if let Some(flow) = sample.flow {
            conn.margin.counted(flow, now);
        }
        if let Some(unsent_bytes) = sample.unsent_bytes.filter(|_| fetched) {
            conn.margin.seen(unsent_bytes, now);
        }
        while let Some(arrived) = conn.arrivals.settled(&mut self.unsettled) {
            self.outs.push_back(arrived);
        }
        // A socket that holds nothing takes more: what it took last was less for another reason (a file that ended early).
        let stalled = conn.phase == Phase::Sending && !conn.writable && sample.unacked_bytes == 0;
        conn.writable |= stalled;
        let lingering = matches!(conn.phase, Phase::Lingering { .. });
        let leaves = self.draining.is_some() && conn.phase == Phase::Open && conn.patience.idle();
        if let Some(stream) = conn.stream.as_mut().filter(|_| sample.window_closed) {
            let (wait, left_bytes) = (Wait::Window, stream.left_bytes());
            let socket_bytes = sample.unacked_bytes;
            let stands = stream.waits(now).0.is_net();
            if stands && stream.stand_still(wait, socket_bytes, &mut self.counts, now) {
                let what = What::Waits {
                    wait,
                    left_bytes,
                    socket_bytes,
                };
                self.decisions.record(now, Some(id), what);
            }
            // Whoever pauses keeps nothing that others could use: it is read again when he goes on. A client that reads
            // slowly closes its window, too, but not for long.
            let (waits, us) = stream.waits(now);
            if waits == wait && us >= PAUSED_US && stream.let_go() {
                let (worker, nth) = (self.settings.worker, conn.nth);
                let stream = StreamId {
                    worker,
                    conn: id,
                    nth,
                };
                self.outs
                    .extend([Out::Forget(stream), Out::Release(stream)]);
            }
        }
        if conn.gone {
            let why = if lingering { Why::Done } else { Why::PeerReset };
            self.close(id, false, why, now);
        } else if leaves && (conn.readable || sample.unacked_bytes > 0) {
            self.linger(id.index, now);
        } else if leaves {
            // It has everything and says nothing: no RST of ours can destroy an answer, so its FIN need not be awaited.
            self.close(id, false, Why::Done, now);
        } else if lingering && conn.ended && sample.unacked_bytes == 0 {
            self.close(id, false, Why::Done, now);
        } else if let Verdict::End(why) = conn.patience.sampled(conn.phase, sample, now) {
            self.give_up(id, why, now);
        } else if stalled || fetched {
            self.wake(id.index, false); // its wish may have to be dated anew
        }
    }

    /// The peer is gone: every stage forgets it in this turn; what it got is asked once more.
    pub(super) fn reset(&mut self, id: ConnId, now: Instant) {
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

    pub(super) fn received(&mut self, id: ConnId, received: Received, now: Instant) {
        let arrivals = self.settings.arrivals;
        let worker = self.settings.worker;
        let Some(conn) = self.conn_mut(id) else {
            return;
        };
        match (received, conn.phase) {
            (Received::Nothing, _) => conn.readable = false,
            (Received::HeadPart, Phase::Open) => {
                conn.readable = conn.fin;
                conn.patience.head_begun(now);
            }
            (Received::Request { body, more }, Phase::Open) => {
                (conn.phase, conn.body, conn.readable) = (Phase::Resolving, body, more || conn.fin);
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
            // Nobody looked for that now.
            (Received::HeadPart | Received::Request { .. }, _) => {}
            (Received::Skipped { .. }, Phase::Open | Phase::Resolving | Phase::Sending) => {}
            (Received::Broken, _) => self.linger(id.index, now),
            (Received::End, phase) => self.peer_ended(id, phase, now),
        }
    }

    pub(super) fn peer_ended(&mut self, id: ConnId, phase: Phase, now: Instant) {
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

    pub(super) fn resolved(&mut self, id: StreamId, plan: Plan, now: Instant) {
        let (pacing, delay) = (self.settings.pacing, self.settings.delay);
        let Some(conn) = conn_in(&mut self.conns, id.conn)
            .filter(|c| c.nth == id.nth && c.phase == Phase::Resolving)
        else {
            return;
        };
        conn.pace.begin(conn.arrivals.given_bytes(), now);
        conn.arrivals.begin(plan.head_len_bytes);
        conn.pace_asked = pacing && id.nth > 0 && is_worth_a_pace(&plan);
        if conn.pace_asked {
            self.outs.push_back(Out::Sample(id.conn));
        }
        let sound = plan.is_sound();
        let stream = Stream::new(plan, conn.requested_at, delay, now);
        conn.stream = Some(match self.spare.pop() {
            Some(mut place) => {
                *place = stream;
                place
            }
            None => Box::new(stream),
        });
        conn.phase = Phase::Sending;
        conn.patience.response_begun(now);
        conn.margin.begin(now);
        conn.top_up = TopUp::First;
        if !sound {
            return self.response_done(id.conn.index, Why::Misframed, now);
        }
        self.wake(id.conn.index, true);
    }

    pub(super) fn sent(
        &mut self,
        id: StreamId,
        taken_bytes: u64,
        full: bool,
        unsent_bytes: Option<u64>,
        now: Instant,
    ) {
        let target = self.top_ups.as_ref().map(TopUps::target);
        let conn = conn_in(&mut self.conns, id.conn).filter(|conn| conn.nth == id.nth);
        let Some(conn) = conn else {
            return;
        };
        let Some(stream) = &mut conn.stream else {
            return;
        };
        let taken_bytes = stream.sent(taken_bytes);
        conn.arrivals.sent(taken_bytes);
        conn.patience.sent(taken_bytes, now);
        if let Some(unsent_bytes) = unsent_bytes.filter(|_| !full) {
            conn.margin.taken(taken_bytes, unsent_bytes, now);
        } else {
            conn.margin.given(taken_bytes, now);
        }
        let given_bytes = conn.margin.given_bytes();
        let grown = unsent_bytes.filter(|_| full).is_some_and(|unsent_bytes| {
            // Without margins the rate is measured all the same: who fetches bytes goes by it.
            let grown = conn
                .margin
                .full(unsent_bytes, target.unwrap_or_default(), now);
            grown && target.is_some()
        });
        let full = full && !grown;
        conn.writable &= !full;
        // A head goes on with its body, a body after the others had their piece.
        let goes_on = stream.sent_bytes <= stream.plan.head_len_bytes;
        if full {
            let fill_bytes = conn.margin.fill_bytes(target.unwrap_or_default());
            // What the kernel sent since may be gone from it.
            let is_margin = |unsent_bytes: u64| unsent_bytes >= fill_bytes / 2;
            let wait = match target.and(unsent_bytes).is_some_and(is_margin) {
                true => Wait::Margin,
                false => Wait::Socket,
            };
            stream.stand_still(wait, fill_bytes, &mut self.counts, now);
            let what = What::ToppedUp {
                top_up: conn.top_up,
                wait,
                given_bytes,
                unsent_bytes,
                fill_bytes,
                rate_bytes_per_s: conn.margin.rate_bytes_per_s(),
            };
            self.decisions.record(now, Some(id.conn), what);
        } else {
            stream.go_on(&mut self.counts, now);
        }
        self.watch_path(id.conn, full, now);
        self.wake(id.conn.index, goes_on);
    }

    /// The disk has bytes for a stream.
    pub(super) fn filled(&mut self, id: StreamId, seq: u32, span: Span, held: Held, now: Instant) {
        if let Some(stream) = stream_in(&mut self.conns, id) {
            // It goes on when it sends, and who stands still for his socket does so still.
            stream.filled(seq, span, held, &mut self.residency_cache, now);
            undo(&mut self.outs, stream.undo(), id);
            self.wake(id.conn.index, false);
        }
    }

    /// The disk has no bytes for a stream: it ends when what it has is sent.
    pub(super) fn unfilled(&mut self, id: StreamId, seq: u32, why: Why) {
        if let Some(stream) = stream_in(&mut self.conns, id) {
            stream.unfilled(seq, why);
            self.wake(id.conn.index, false);
        }
    }

    /// End a connection that we have lost patience with; with RST if the kernel still holds bytes
    /// for it. An answer that is out already may still arrive.
    pub(super) fn give_up(&mut self, id: ConnId, why: Why, now: Instant) {
        let Some(conn) = self.conn(id) else { return };
        match conn.phase {
            Phase::Skipping { .. } => self.linger(id.index, now),
            Phase::Open if !conn.arrivals.is_empty() => self.linger(id.index, now),
            phase => self.close(id, phase != Phase::Open && why != Why::Done, why, now),
        }
    }
}

/// Whether a response may be longer than a window that every queue takes, and its first window matters.
fn is_worth_a_pace(plan: &Plan) -> bool {
    plan.parts.iter().any(|part| match part {
        Part::Bytes(_) => false,
        Part::Body { span, .. } => {
            (PACED_WINDOW_BYTES_MIN..=PACED_RESPONSE_BYTES_MAX).contains(&span.len_bytes)
        }
        Part::Slices => true,
    })
}
