//! Sending: what a connection's socket is offered next, and what follows from what it took. The send controller
//! ([`crate::send::control`]) decides how much; the stream knows which bytes.

use alloc::vec::Vec;

use super::Phase;
use super::messages::Out;
use super::stream::{SendSpan, Step};
use super::{Worker, reading};
use crate::conn::{ConnId, StreamId, TcpSample};
use crate::rate::BelievedRate;
use crate::send::control::{Filled, Offer, Taken};
use crate::send::{SendQueue, Supply};
use crate::units::Instant;
use crate::why::{TopUp, Wait, What, Why};

/// The sending side of a connection's socket.
pub(super) struct Output {
    /// It takes bytes, as far as is known.
    pub writable: bool,
    pub margin: SendQueue,
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

impl Worker {
    /// The socket takes output again (EPOLLOUT).
    pub(super) fn writable(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.output.writable = true;
        if let Some(stream) = &mut conn.stream {
            if stream.waits(now).0.is_net() {
                conn.output.top_up = TopUp::Called;
                conn.output.margin.called();
                self.counts.topped_up(TopUp::Called);
                stream.go_on(&mut self.counts, now);
            }
            self.send.called(now);
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
        reading::undo(&mut self.outs, stream.undo(), id);
        let goes_on = matches!(step, Step::Send(_) | Step::Done | Step::Broken(_));
        if goes_on && stream.asks_for_whom() {
            self.outs.push_back(Out::Sample(id.conn));
            self.wake(index, true);
            return self.outs.pop_front();
        }
        let out = match step {
            Step::Send(_) | Step::Wait if !writable => {
                self.stands_for_socket(id, &supply, now);
                return None;
            }
            Step::Send(piece) => self.offer(id, piece, &supply, now)?,
            Step::Probe { object, span } => Out::Probe {
                stream: id,
                object,
                span,
            },
            Step::Want(want) => {
                self.wake(index, false);
                Out::Want(want)
            }
            Step::Slice => Out::Slice(id),
            Step::Wait => {
                self.stands_for_disk(id, &supply, now);
                return None;
            }
            step @ (Step::Done | Step::Broken(_)) => {
                let why = match step {
                    Step::Broken(why) => why,
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
            self.watch(id.conn.index, now);
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
        conn.patience.sent(taken.taken_bytes, now);
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

    /// Top up, in one go, every connection whose socket would become writable before the next round.
    pub(super) fn top_up(&mut self, now: Instant) {
        let sending = |phase| phase == Phase::Sending;
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
            if !output.writable && output.margin.joins(round.until) {
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
