//! A response under way: its next step, and what came of the last one. The stream ([`super::stream`]) knows which bytes
//! come next, and what it has to ask of the page cache and the disk before; the send controller
//! ([`crate::send::control`]) decides how many of them the socket is offered.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ConnPhase;
use super::Worker;
use super::messages::Out;
use super::stream::{SendSpan, StreamStep, Undo};
use crate::conn::{ConnId, Held, Span, StreamId, TcpSample, WantSeq};
use crate::disk::Chosen;
use crate::rate::BelievedRate;
use crate::send::control::{Filled, Offer, Taken};
use crate::send::refills::Refilled;
use crate::send::{SendQueue, Supply};
use crate::sndbuf::depletion::Lasts;
use crate::units::Instant;
use crate::why::{TopUp, Wait, What, Why};

/// The sending side of a connection's socket.
pub(super) struct Output {
    /// It takes bytes, as far as is known.
    pub writable: bool,
    pub margin: SendQueue,
    /// It has a share of the send memory.
    pub has_share: bool,
    /// Its share has no room, and its socket does not call: it is filled again at this time.
    pub refilled: Option<Refilled>,
    /// Why it is being filled now, or was filled last.
    pub top_up: TopUp,
    /// The first window of this response may have to be paced; a TCP_INFO sample is asked for.
    pub pace_asked: bool,
    /// Until when it is paced, if it is.
    pub paced_until: Option<Instant>,
}

impl Output {
    pub fn new(now: Instant) -> Output {
        Output {
            writable: true,
            margin: SendQueue::new(now),
            has_share: false,
            refilled: None,
            top_up: TopUp::First,
            pace_asked: false,
            paced_until: None,
        }
    }

    /// The socket of a connection that another machine gave away. What it holds is not known yet.
    pub fn adopted(rate: BelievedRate, now: Instant) -> Output {
        Output {
            margin: SendQueue::adopted(rate, now),
            ..Output::new(now)
        }
    }

    /// What the connection still holds, and how fast it takes it.
    pub fn supply(&self, now: Instant) -> Supply {
        self.margin.supply(!self.writable, now)
    }
}

/// Cancels what a stream no longer needs, before anything else is done for it.
pub(super) fn undo(outs: &mut VecDeque<Out>, undo: Undo, stream: StreamId) {
    if undo.slots {
        outs.push_back(Out::Release(stream));
    }
    if undo.want {
        outs.push_back(Out::Forget(stream));
    }
}

/// The answer of the disk machine to a want.
pub(super) struct ReadAnswer {
    pub seq: WantSeq,
    pub span: Span,
    pub held: Held,
    pub chosen: Chosen,
}

impl Worker {
    /// The socket takes output again (EPOLLOUT).
    pub(super) fn writable(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.output.writable = true;
        self.send.unlasts(conn.output.refilled.take());
        if let Some(stream) = &mut conn.stream {
            if stream.waits(now).0.is_net() {
                conn.output.top_up = TopUp::Writable;
                if conn.output.margin.writable() {
                    self.outs.push_back(Out::Sample(id));
                }
                self.counts.topped_up(TopUp::Writable);
                stream.go_on(&mut self.counts, now);
            }
            self.send.writable(now);
        }
    }

    /// The next step of a response under way. `None`: it is stalled.
    pub(super) fn send_step(&mut self, index: u32, now: Instant) -> Option<Out> {
        let conn = self.table.at_mut(index)?;
        let id = conn.stream_id();
        let writable = conn.output.writable;
        let supply = conn.output.supply(now);
        let stream = conn.stream.as_mut()?;
        if !writable && stream.waits(now).0 == Wait::Window {
            return None; // read nothing for a client that has paused
        }
        let step = stream.step(&self.residency_cache, &supply, now);
        let whole = stream.is_whole();
        undo(&mut self.outs, stream.take_undo(), id);
        let goes_on = matches!(
            step,
            StreamStep::Send(_) | StreamStep::Done | StreamStep::Broken(_)
        );
        if goes_on && stream.asks_for_whom() {
            self.outs.push_back(Out::Sample(id.conn));
            self.wake(index, true);
            return self.outs.pop_front();
        }
        let out = match step {
            StreamStep::Send(_) | StreamStep::Wait if !writable => {
                self.stands_for_socket(id, &supply, now);
                return None;
            }
            StreamStep::Send(piece) => self.offer(id, piece, &supply, now)?,
            StreamStep::Probe { object, span } => Out::Probe {
                stream: id,
                object,
                span,
            },
            StreamStep::Want(want) => {
                self.wake(index, false);
                Out::Want(want)
            }
            StreamStep::Slice => Out::Slice(id),
            StreamStep::Wait => {
                self.stands_for_disk(id, &supply, now);
                return None;
            }
            step @ (StreamStep::Done | StreamStep::Broken(_)) => {
                let why = match step {
                    StreamStep::Broken(why) => why,
                    _ if !whole => Why::Misframed,
                    _ => Why::Done,
                };
                self.response_done(index, why, now);
                return self.outs.pop_front();
            }
        };
        // Cancellations go first.
        self.outs.push_back(out);
        self.outs.pop_front()
    }

    /// Offer a socket what it should take now.
    fn offer(
        &mut self,
        id: StreamId,
        piece: SendSpan,
        supply: &Supply,
        now: Instant,
    ) -> Option<Out> {
        let open = self.table.open();
        let conn = self.table.with_mut(id)?;
        let offer = Offer {
            held: piece.held,
            rest_bytes: conn.stream.as_ref()?.left_bytes(),
        };
        let margin = &mut conn.output.margin;
        let refill = self.send.refill(margin, offer, supply, open, now);
        let room_bytes = refill.map_or(u64::MAX, |refill| refill.bytes);
        Some(Out::Send {
            stream: id,
            part: piece.part,
            from_bytes: piece.from_bytes,
            len_bytes: piece.len_bytes.min(room_bytes),
            held: piece.held,
            more: piece.more || room_bytes < piece.len_bytes,
            unconfirmed: piece.unconfirmed,
            refill,
        })
    }

    /// Its socket is full. Either it was stalled for that already, or it was about to be when the disk came first.
    fn stands_for_socket(&mut self, id: StreamId, supply: &Supply, now: Instant) {
        let wait = self.send.wait();
        if let Some(stream) = self.table.stream_mut(id) {
            if !stream.waits(now).0.is_net() {
                stream.stand_still(wait, supply.socket_bytes, &mut self.counts, now);
            }
        }
    }

    /// Its next bytes are not in memory yet.
    fn stands_for_disk(&mut self, id: StreamId, supply: &Supply, now: Instant) {
        let Some(stream) = self.table.stream_mut(id) else {
            return;
        };
        let (wait, left_bytes) = (Wait::Disk, stream.left_bytes());
        let socket_bytes = supply.socket_bytes;
        if stream.stand_still(wait, socket_bytes, &mut self.counts, now) {
            let what = What::Waits {
                wait,
                left_bytes,
                socket_bytes,
            };
            self.decisions.record(now, Some(id.conn), what);
            self.touch(id.conn.index, now);
        }
    }

    /// The result of an offer: what the socket took of it.
    pub(super) fn sent(&mut self, id: StreamId, taken: Taken, now: Instant) {
        let Some(conn) = self.table.with_mut(id) else {
            return;
        };
        let Some(stream) = &mut conn.stream else {
            return;
        };
        let taken = Taken {
            taken_bytes: stream.sent(taken.taken_bytes),
            ..taken
        };
        conn.arrivals.sent(taken.taken_bytes);
        conn.timeouts.sent(taken.taken_bytes, now);
        let output = &mut conn.output;
        let filled = self.send.taken(&mut output.margin, taken, now);
        output.writable &= filled.is_none();
        // After its head a response goes on with its body at once; after a piece of body it waits until the others had
        // theirs.
        let goes_on = stream.sent_bytes <= stream.plan.head_len_bytes;
        match filled {
            Some(Filled {
                wait,
                given_bytes,
                fill_bytes,
            }) => {
                stream.stand_still(wait, fill_bytes, &mut self.counts, now);
                let what = What::ToppedUp {
                    top_up: output.top_up,
                    wait,
                    given_bytes,
                    unsent_bytes: taken.unsent_bytes,
                    fill_bytes,
                    rate_bytes_per_s: output.margin.rate_bytes_per_s(),
                };
                self.decisions.record(now, Some(id.conn), what);
            }
            None => stream.go_on(&mut self.counts, now),
        }
        self.watch_path(id.conn, filled.is_some(), now);
        self.wake(id.conn.index, goes_on);
    }

    /// Whether the stream awaits an answer to the want of this number. If not, the answer is late, and its slots are
    /// free.
    pub fn awaits(&self, stream: StreamId, seq: WantSeq) -> bool {
        let stream = self.table.stream(stream);
        stream.is_some_and(|stream| stream.outstanding.awaits(seq))
    }

    /// The answer to a probe.
    pub(super) fn probed(&mut self, id: StreamId, resident_bytes: u64, now: Instant) {
        if let Some(conn) = self.table.with_mut(id) {
            let supply = conn.output.supply(now);
            if let Some(stream) = conn.stream.as_mut() {
                let want = stream.probed(resident_bytes, &mut self.residency_cache, &supply, now);
                undo(&mut self.outs, stream.take_undo(), id);
                self.outs.extend(want.map(Out::Want));
            }
        }
        self.wake(id.conn.index, true);
    }

    /// Bytes that were to be sent from the page cache are missing.
    pub(super) fn missing(&mut self, id: StreamId) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.missing(&mut self.residency_cache);
            self.counts.missed();
            undo(&mut self.outs, stream.take_undo(), id);
            self.wake(id.conn.index, false);
        }
    }

    /// A slice of a listing was made.
    pub(super) fn sliced(&mut self, id: StreamId, len_bytes: u64, last: bool) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.sliced(len_bytes, last);
            self.wake(id.conn.index, false);
        }
    }

    /// The disk has bytes for a stream.
    pub(super) fn filled(&mut self, id: StreamId, fill: &ReadAnswer, now: Instant) {
        if !self.awaits(id, fill.seq) {
            return;
        }
        let what = What::Read(fill.chosen);
        self.decisions.record(now, Some(id.conn), what);
        if let Some(stream) = self.table.stream_mut(id) {
            // The stall ends when it sends. While its socket is full, it stays stalled for the socket.
            stream.filled(
                fill.seq,
                fill.span,
                fill.held,
                &mut self.residency_cache,
                now,
            );
            undo(&mut self.outs, stream.take_undo(), id);
            self.wake(id.conn.index, false);
        }
    }

    /// The disk can't read a stream's next bytes: the response ends when what it has is sent.
    pub(super) fn unfilled(&mut self, id: StreamId, seq: WantSeq, why: Why) {
        if !self.awaits(id, seq) {
            return;
        }
        if let Some(stream) = self.table.stream_mut(id) {
            stream.unfilled(seq, why);
            self.wake(id.conn.index, false);
        }
    }

    /// Top up, in one go, every connection whose socket would become writable before the next round.
    pub(super) fn top_up(&mut self, now: Instant) {
        let sending = |phase| phase == ConnPhase::Sending;
        let margins = self.table.iter().filter(|conn| sending(conn.phase));
        let margins = margins.map(|conn| &conn.output.margin);
        let Some(round) = self.send.round(margins, now) else {
            return;
        };
        if round.changes_target() {
            let what = What::Target {
                from_us: round.from_us,
                to_us: round.to_us,
                rates_bytes_per_s: round.rates_bytes_per_s,
            };
            self.decisions.record(now, None, what);
        }
        let mut near = Vec::new();
        for conn in self.table.iter_mut().filter(|conn| sending(conn.phase)) {
            let output = &mut conn.output;
            // What its share holds up is filled when that has room, by its own timer: before, a send would be in vain.
            let is_timed = output.refilled.is_some();
            if !output.writable && !is_timed && output.margin.joins(round.until) {
                (output.writable, output.top_up) = (true, TopUp::Near);
                self.counts.topped_up(TopUp::Near);
                near.push(conn.id.index);
            }
        }
        for index in near {
            self.wake(index, false);
        }
        self.counts.round();
    }

    /// Its share has no room, and lasts for this time.
    pub(super) fn share_lasts(&mut self, id: ConnId, lasts: Lasts, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let refilled = Refilled {
            at: now.plus_us(lasts.us),
            conn: id,
            lasts_us: lasts.whole_us,
        };
        let before = conn.output.refilled.replace(refilled);
        self.send.lasts(refilled, before);
    }

    /// Fill, in one go, every socket whose share is used up about now.
    pub(super) fn refill(&mut self, now: Instant) {
        for id in self.send.take_refills(now) {
            let Some(conn) = self.table.get_mut(id) else {
                continue;
            };
            let output = &mut conn.output;
            output.refilled = None;
            if conn.phase == ConnPhase::Sending && !output.writable {
                (output.writable, output.top_up) = (true, TopUp::Near);
                self.counts.topped_up(TopUp::Near);
                self.wake(id.index, false);
            }
        }
    }

    /// The sample that tells whether the response's first window would leave as a burst; if so, the window is paced.
    pub(super) fn pace(&mut self, id: ConnId, sample: &TcpSample, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let output = &mut conn.output;
        if !core::mem::take(&mut output.pace_asked) {
            return;
        }
        let Some(flight) = self.send.pace(id, output.paced_until, sample, now) else {
            return;
        };
        output.paced_until = Some(flight.until);
        let rate_bytes_per_s = flight.rate_bytes_per_s;
        self.outs.push_back(Out::Pace {
            conn: id,
            rate_bytes_per_s: Some(rate_bytes_per_s),
        });
        let what = What::Paced {
            window_bytes: sample.path.cwnd_bytes,
            rate_bytes_per_s,
            for_us: sample.rtt_us,
        };
        self.decisions.record(now, Some(id), what);
        self.counts.paced();
    }

    /// Stops pacing a connection after its round trip.
    pub(super) fn unpace(&mut self, id: ConnId) {
        if let Some(conn) = self.table.get_mut(id) {
            conn.output.paced_until = None;
            self.outs.push_back(Out::Pace {
                conn: id,
                rate_bytes_per_s: None,
            });
        }
    }
}
