//! Moves a response under way on: orders its next step, and takes the results of the last one.
//!
//! - The stream ([`super::stream`]) knows which bytes come next, and what to ask of the page cache and the disk before.
//! - The send controller ([`crate::send::control`]) decides how many of them the socket is offered ([`Worker::offer`]).
//!
//! To *fill* a socket means here: to offer it bytes until it is full, so until it refuses some or has taken what the controller
//! allowed. Then the response is stalled ([`super::stall`]) until its socket may be offered more ([`Output::may_offer`]):
//!
//! | what says so | function |
//! |---|---|
//! | the kernel reports the socket writable (EPOLLOUT) | [`Worker::writable`] |
//! | another socket became writable, and this one would soon: one round fills both | [`Worker::top_up`] |
//! | a sample shows that the socket is empty | `find_stalled` in [`super::evidence`] |

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ConnPhase;
use super::LocalFile;
use super::Worker;
use super::messages::{Out, SendOrder};
use super::stream::{Cancellations, SendSpan, StreamStep};
use super::turns::QueueEnd;
use crate::conn::{ConnId, Held, Span, StreamId, TcpSample, WantSeq};
use crate::rate::BelievedRate;
use crate::send::control::{Offer, SocketFull, Taken};
use crate::send::{SendQueue, Supply};
use crate::units::Instant;
use crate::why::Chosen;
use crate::why::{TopUp, Wait, What, Why};

/// The sending side of a connection's socket.
pub(super) struct Output {
    /// It may be offered bytes: it never was full, or something says that it has room again (see above).
    pub may_offer: bool,
    /// What the socket holds unsent, and how fast its client takes it.
    pub send_queue: SendQueue,
    /// Its socket has a cap, since send memory is divided.
    pub is_capped: bool,
    /// Why it is being filled now, or was filled last.
    pub top_up: TopUp,
    /// A TCP_INFO sample was ordered that decides whether the first window of this response is paced ([`Worker::pace`]).
    pub pace_asked: bool,
    /// When the pacing of the connection ends, if it is paced.
    pub paced_until: Option<Instant>,
}

impl Output {
    pub fn new(now: Instant) -> Output {
        Output {
            may_offer: true,
            send_queue: SendQueue::new(now),
            is_capped: false,
            top_up: TopUp::First,
            pace_asked: false,
            paced_until: None,
        }
    }

    /// The socket of a connection that another machine gave away. How full it is, is not known yet.
    pub fn adopted(rate: BelievedRate, now: Instant) -> Output {
        Output {
            send_queue: SendQueue::adopted(rate, now),
            ..Output::new(now)
        }
    }

    /// The bytes left in the socket, and the client's rate: when the connection runs dry follows from that.
    pub fn supply(&self, now: Instant) -> Supply {
        self.send_queue.supply(!self.may_offer, now)
    }
}

/// Queues orders that cancel what other stages still do for a stream. They precede all other orders for it.
pub(super) fn cancel(outs: &mut VecDeque<Out>, cancellations: Cancellations, stream: StreamId) {
    if cancellations.slots {
        outs.push_back(Out::Release(stream));
    }
    if cancellations.want {
        outs.push_back(Out::Forget(stream));
    }
}

impl Worker {
    /// The kernel reports the socket writable (EPOLLOUT). That ends a stall for the socket or the client. In one for the disk it says
    /// that the socket is nearly empty ([`Out::Underfed`]).
    pub(super) fn writable(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.output.may_offer = true;
        if let Some(stream) = &mut conn.stream {
            if stream.waits_for() == Wait::Disk {
                self.outs.push_back(Out::Sample(id)); // its want may need an earlier deadline
                return;
            }
            if stream.waits_for().is_net() {
                conn.output.top_up = TopUp::Writable;
                conn.output.send_queue.became_writable();
                self.counts.topped_up(TopUp::Writable);
                stream.end_stall(&mut self.counts, now);
            }
            self.send.writable(now);
        }
    }

    /// The next step of a response under way. `None`: it is stalled.
    pub(super) fn send_step(&mut self, index: u32, now: Instant) -> Option<Out> {
        let conn = self.table.at_mut(index)?;
        let id = conn.stream_id();
        let may_offer = conn.output.may_offer;
        let supply = conn.output.supply(now);
        let stream = conn.stream.as_mut()?;
        if !may_offer && stream.waits_for() == Wait::Window {
            return None; // read nothing for a client that has paused
        }
        let step = stream.step(&self.residency_cache, &supply, now);
        let whole = stream.is_whole();
        cancel(&mut self.outs, stream.take_cancellations(), id);
        let ends_stall = matches!(
            step,
            StreamStep::Send(_) | StreamStep::Done | StreamStep::Broken(_)
        );
        if ends_stall && stream.needs_stall_sample() {
            // It was stalled for the disk. First a sample tells how long its socket was empty meanwhile, so whether its client
            // waited, too. The stream has not moved: it finds the same step again after the sample.
            self.outs.push_back(Out::Sample(id.conn));
            self.wake(index, QueueEnd::Front);
            return self.outs.pop_front();
        }
        let out = match step {
            StreamStep::Send(_) | StreamStep::Wait if !may_offer => {
                self.stall_for_socket(id, &supply, now);
                return None;
            }
            StreamStep::Send(piece) => self.offer(id, piece, &supply, now)?,
            StreamStep::Probe { object, span } => Out::Probe {
                stream: id,
                object,
                span,
            },
            StreamStep::Want(want) => {
                // Its next step comes before the answer: it sends what is in memory already, or is stalled for the disk. After
                // a probe or a slice, the answer wakes it.
                self.wake(index, QueueEnd::Back);
                Out::Want(want)
            }
            StreamStep::Slice => Out::Slice(id),
            StreamStep::Wait => {
                self.stall_for_disk(id, &supply, now);
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
        // The cancellations from above go first.
        self.outs.push_back(out);
        self.outs.pop_front()
    }

    /// Offers a socket bytes of the stream, as many as the send controller lets it take now.
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
        let queue = &mut conn.output.send_queue;
        let refill = self.send.refill(queue, offer, supply, open, now);
        let room_bytes = refill.map_or(u64::MAX, |refill| refill.bytes);
        Some(Out::Send(SendOrder {
            stream: id,
            part: piece.part,
            span: Span {
                offset_bytes: piece.from_bytes,
                len_bytes: piece.len_bytes.min(room_bytes),
            },
            held: piece.held,
            more: piece.more || room_bytes < piece.len_bytes,
            refill,
        }))
    }

    /// The socket is full: the stream is stalled for it, even if its next bytes are not in memory yet, since its client has bytes
    /// to take. An earlier stall for the socket or the client continues.
    fn stall_for_socket(&mut self, id: StreamId, supply: &Supply, now: Instant) {
        let wait_when_full = self.send.wait();
        if let Some(stream) = self.table.stream_mut(id) {
            if !stream.waits_for().is_net() {
                stream.stall_for(wait_when_full, supply.socket_bytes, &mut self.counts, now);
            }
        }
    }

    /// Its socket has room, but its next bytes are not in memory yet: it is stalled for the disk.
    fn stall_for_disk(&mut self, id: StreamId, supply: &Supply, now: Instant) {
        let Some(conn) = self.table.with_mut(id) else {
            return;
        };
        let own_pace = conn.output.send_queue.is_own_pace();
        let Some(stream) = conn.stream.as_mut() else {
            return;
        };
        let (wait, left_bytes) = (Wait::Disk, stream.left_bytes());
        let socket_bytes = supply.socket_bytes;
        let is_held_back = core::mem::take(&mut stream.held_back);
        if stream.stall_for(wait, socket_bytes, &mut self.counts, now) {
            // The deadline of its want follows from a prediction. If its client reads at its own pace, that pace may change at any
            // time, and its receive buffer may take much at once. So the kernel is to tell if the prediction fails.
            if let Some(epollout_bytes) = supply.watched_bytes(now).filter(|_| own_pace) {
                self.outs.push_back(Out::Underfed {
                    conn: id.conn,
                    epollout_bytes,
                });
            } else if is_held_back {
                self.outs.push_back(Out::Push(id.conn));
            }
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
        let full = self.send.taken(&mut output.send_queue, taken, now);
        output.may_offer &= full.is_none();
        // Its body follows its head at once. After a piece of body the others have their turn first.
        let queue_end = match stream.sent_bytes <= stream.plan.head_len_bytes {
            true => QueueEnd::Front,
            false => QueueEnd::Back,
        };
        match full {
            // Given since its last sample, the level up to which it is filled, and (in `taken`) what the kernel holds unsent.
            Some(SocketFull {
                wait,
                given_bytes,
                fill_bytes,
            }) => {
                stream.stall_for(wait, fill_bytes, &mut self.counts, now);
                let what = What::ToppedUp {
                    top_up: output.top_up,
                    wait,
                    given_bytes,
                    unsent_bytes: taken.unsent_bytes,
                    fill_bytes,
                    rate_bytes_per_s: output.send_queue.rate_bytes_per_s(),
                };
                self.decisions.record(now, Some(id.conn), what);
            }
            None => stream.end_stall(&mut self.counts, now),
        }
        self.watch_path(id.conn, full.is_some(), now);
        self.wake(id.conn.index, queue_end);
    }

    /// Whether the stream awaits an answer to the want of this number. If not, the answer is late, and its slots are
    /// free.
    pub fn awaits(&self, stream: StreamId, seq: WantSeq) -> bool {
        let stream = self.table.stream(stream);
        stream.is_some_and(|stream| stream.outstanding.awaits(seq))
    }

    /// The answer to a probe: whether all of its bytes are in the page cache. If not, they become a want.
    pub(super) fn probed(&mut self, id: StreamId, is_resident: bool, now: Instant) {
        if let Some(conn) = self.table.with_mut(id) {
            let supply = conn.output.supply(now);
            if let Some(stream) = conn.stream.as_mut() {
                let want = stream.probed(is_resident, &mut self.residency_cache, &supply, now);
                cancel(&mut self.outs, stream.take_cancellations(), id);
                self.outs.extend(want.map(Out::Want));
                self.wake(id.conn.index, QueueEnd::Front);
            }
        }
    }

    /// The result of an offer: the first of its bytes is not in the page cache.
    pub(super) fn missing(&mut self, id: StreamId) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.missing(&mut self.residency_cache);
            self.counts.missed();
            cancel(&mut self.outs, stream.take_cancellations(), id);
            self.wake(id.conn.index, QueueEnd::Back);
        }
    }

    /// An offer took long: its bytes were probably not in the page cache. What is believed of their windows is void.
    pub(super) fn waited(&mut self, id: StreamId) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.doubt_offered(&mut self.residency_cache);
        }
    }

    /// A slice of a listing was made.
    pub(super) fn sliced(&mut self, id: StreamId, len_bytes: u64, last: bool) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.sliced(len_bytes, last);
            self.wake(id.conn.index, QueueEnd::Back);
        }
    }

    /// The disk machine answered a want: bytes are in memory.
    pub(super) fn fetched(
        &mut self,
        (id, seq): (StreamId, WantSeq),
        span: Span,
        held: Held,
        chosen: Chosen,
        now: Instant,
    ) {
        if !self.awaits(id, seq) {
            return;
        }
        let what = What::Read(chosen);
        self.decisions.record(now, Some(id.conn), what);
        if let Some(stream) = self.table.stream_mut(id) {
            // A stall does not end here, but when the stream sends (`sent`): its socket may be full.
            stream.fetched(seq, span, held, &mut self.residency_cache, now);
            cancel(&mut self.outs, stream.take_cancellations(), id);
            self.wake(id.conn.index, QueueEnd::Back);
        }
    }

    /// The disk machine can't read what a want is for: the response ends when all bytes before that are sent.
    pub(super) fn fetch_failed(&mut self, id: StreamId, seq: WantSeq, why: Why) {
        if !self.awaits(id, seq) {
            return;
        }
        if let Some(stream) = self.table.stream_mut(id) {
            stream.fetch_failed(seq, why);
            self.wake(id.conn.index, QueueEnd::Back);
        }
    }

    /// The disk machine can't read what a want is for, and another file has the same bytes.
    pub(super) fn fetch_elsewhere(&mut self, id: StreamId, seq: WantSeq, file: LocalFile) {
        if !self.awaits(id, seq) {
            return;
        }
        if let Some(stream) = self.table.stream_mut(id) {
            stream.fetch_elsewhere(seq, file);
            self.wake(id.conn.index, QueueEnd::Back);
        }
    }

    /// A round of top-ups: fills, in one go, every socket that would become writable before the next round.
    pub(super) fn top_up(&mut self, now: Instant) {
        let sending = |phase| phase == ConnPhase::Sending;
        let conns = self.table.iter().filter(|conn| sending(conn.phase));
        let queues = conns.map(|conn| &conn.output.send_queue);
        let Some(round) = self.send.round(queues, now) else {
            return;
        };
        // T, for how long sockets are filled, has changed by a tenth or more.
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
            if !output.may_offer && output.send_queue.joins(round.until) {
                (output.may_offer, output.top_up) = (true, TopUp::Near);
                self.counts.topped_up(TopUp::Near);
                near.push(conn.id.index);
            }
        }
        for index in near {
            self.wake(index, QueueEnd::Back);
        }
        self.counts.round();
    }

    /// A sample arrived. If one was ordered for pacing, it tells whether the response's first window would leave as a burst; if
    /// so, the connection is paced for one round trip.
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
