//! What reached the client. A response is settled when its last byte is acknowledged, or when its connection ends
//! before that. That the kernel has taken the bytes says nothing yet.
//!
//! Until then the log keeps its record of the request. All records of a worker have one owner and one budget. When the
//! budget is spent, the response that has waited longest is settled with what is known.

use alloc::vec::Vec;

use super::messages::Out;
use super::stream::Stream;
use super::{Outcome, Worker};
use crate::conn::{ConnId, StreamId};
use crate::limits::{ARRIVAL_BYTES, ARRIVALS_MAX};
use crate::units::Instant;
use crate::why::Why;

const NOBODY: u32 = u32::MAX;

/// The responses of one connection that wait for their last ACK. Offsets count all bytes ever given to the connection's
/// socket.
pub(super) struct Arrivals {
    /// All bytes that were ever given to the socket.
    sent_bytes: u64,
    /// How many of them its client has acknowledged, as far as is known.
    acked_bytes: u64,
    /// Where the body of the response under way begins.
    body_from_bytes: u64,
    /// What the log keeps of the request under way.
    record_bytes: u64,
    /// The oldest and the newest of those that wait, and their number.
    oldest: u32,
    newest: u32,
    count: u32,
}

impl Default for Arrivals {
    fn default() -> Arrivals {
        Arrivals {
            sent_bytes: 0,
            acked_bytes: 0,
            body_from_bytes: 0,
            record_bytes: 0,
            oldest: NOBODY,
            newest: NOBODY,
            count: 0,
        }
    }
}

/// A response that has ended and waits for its last ACK.
#[derive(Clone, Copy)]
struct Arrival {
    /// Which response.
    stream: StreamId,
    /// Where its body begins, and where it ends: offsets as in [`Arrivals`].
    body_from_bytes: u64,
    end_bytes: u64,
    /// What the log keeps of it.
    record_bytes: u64,
    /// Its outcome, but for what was acknowledged.
    outcome: Outcome,
    /// The next one of its connection.
    next: u32,
    /// Its neighbours in the order of ending, of any connection.
    older: u32,
    newer: u32,
}

const _: () = assert!(size_of::<Option<Arrival>>() as u64 * 2 <= ARRIVAL_BYTES);

/// All responses of a worker that wait for their last ACK, in the order in which they ended.
pub(super) struct Unsettled {
    /// The responses. Links between them are indices here, [`NOBODY`] for none.
    places: Vec<Option<Arrival>>,
    /// Places without one.
    free: Vec<u32>,
    /// The ends of the list by order of ending.
    oldest: u32,
    newest: u32,
    /// Memory kept for them.
    waiting_bytes: u64,
    /// What the log keeps of requests under way.
    under_way_bytes: u64,
    /// What both may be together.
    bytes_max: u64,
}

impl Unsettled {
    /// An empty table. Above `bytes_max`, the oldest response is settled with what is known.
    pub fn new(bytes_max: u64) -> Unsettled {
        Unsettled {
            places: Vec::new(),
            free: Vec::new(),
            oldest: NOBODY,
            newest: NOBODY,
            waiting_bytes: 0,
            under_way_bytes: 0,
            bytes_max,
        }
    }

    /// What the log may keep of one more request: the budget less the records of requests under way, which can't be
    /// settled.
    fn room_bytes(&self) -> u64 {
        let taken_bytes = self.under_way_bytes + ARRIVAL_BYTES;
        self.bytes_max.saturating_sub(taken_bytes)
    }

    /// The connection whose response has waited longest, if the budget is exceeded.
    fn overdue(&self) -> Option<ConnId> {
        let over = self.waiting_bytes + self.under_way_bytes > self.bytes_max;
        let oldest = self.places.get(self.oldest as usize)?.as_ref()?;
        over.then_some(oldest.stream.conn)
    }

    /// Adds a response that has ended, as the newest. Returns its place.
    fn push(&mut self, arrival: Arrival) -> u32 {
        self.waiting_bytes += arrival.record_bytes + ARRIVAL_BYTES;
        let arrival = Arrival {
            older: self.newest,
            newer: NOBODY,
            ..arrival
        };
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(arrival);
                place
            }
            None => {
                self.places.push(Some(arrival));
                self.places.len() as u32 - 1
            }
        };
        match self.at(self.newest) {
            Some(before) => before.newer = place,
            None => self.oldest = place,
        }
        self.newest = place;
        place
    }

    /// Takes a response out of the list: it is settled.
    fn remove(&mut self, place: u32) -> Option<Arrival> {
        let arrival = self.places.get_mut(place as usize)?.take()?;
        self.waiting_bytes -= arrival.record_bytes + ARRIVAL_BYTES;
        match self.at(arrival.older) {
            Some(before) => before.newer = arrival.newer,
            None => self.oldest = arrival.newer,
        }
        match self.at(arrival.newer) {
            Some(behind) => behind.older = arrival.older,
            None => self.newest = arrival.older,
        }
        self.free.push(place);
        if self.free.len() == self.places.len() && self.places.len() > ARRIVALS_MAX {
            // Return the memory that a flood needed.
            (self.places, self.free) = (Vec::new(), Vec::new());
        }
        Some(arrival)
    }

    fn at(&mut self, place: u32) -> Option<&mut Arrival> {
        self.places.get_mut(place as usize)?.as_mut()
    }
}

impl Arrivals {
    /// Of a connection that another machine gave away.
    pub fn adopted(sent_bytes: u64, acked_bytes: u64) -> Arrivals {
        Arrivals {
            sent_bytes,
            acked_bytes,
            ..Arrivals::default()
        }
    }

    /// A response under way goes on after so many of its bytes. Those before count as well: whoever ends it logs all of
    /// it.
    pub fn adopt_response(&mut self, response_bytes: u64, head_len_bytes: u64) {
        self.body_from_bytes = (self.sent_bytes - response_bytes).saturating_add(head_len_bytes);
    }

    /// Size of the log's record of the request under way.
    fn recorded(&mut self, all: &mut Unsettled, record_bytes: u64) {
        all.under_way_bytes -= self.record_bytes;
        all.under_way_bytes += record_bytes;
        self.record_bytes = record_bytes;
    }

    /// A response with a head of this length starts.
    pub fn begin(&mut self, head_len_bytes: u64) {
        self.body_from_bytes = self.sent_bytes + head_len_bytes;
    }

    /// The kernel took bytes.
    pub fn sent(&mut self, taken_bytes: u64) {
        self.sent_bytes += taken_bytes;
    }

    /// The response that began last has ended. If too many wait, the oldest is settled with what is known.
    pub fn ended(
        &mut self,
        all: &mut Unsettled,
        id: StreamId,
        stream: &Stream,
        why: Why,
        now: Instant,
    ) -> Option<Out> {
        let outcome = Outcome {
            sent_bytes: self.sent_bytes.saturating_sub(self.body_from_bytes),
            acked_bytes: 0,
            whole: false,
            why,
            waited_disk_us: stream.waited_disk_us,
            waited_net_us: stream.waited_net_us,
            took_us: now.since_us(stream.started_at),
        };
        let record_bytes = self.record_bytes;
        self.recorded(all, 0);
        let place = all.push(Arrival {
            stream: id,
            body_from_bytes: self.body_from_bytes,
            end_bytes: self.sent_bytes,
            record_bytes,
            outcome,
            next: NOBODY,
            older: NOBODY,
            newer: NOBODY,
        });
        match all.at(self.newest) {
            Some(before) => before.next = place,
            None => self.oldest = place,
        }
        (self.newest, self.count) = (place, self.count + 1);
        if self.count as usize > ARRIVALS_MAX {
            self.give_up(all)
        } else {
            None
        }
    }

    /// The socket holds `unacked_bytes`. The count of acknowledged bytes never falls.
    pub fn measured(&mut self, unacked_bytes: u64) {
        self.acked_bytes = self.acked_with(unacked_bytes);
    }

    /// All bytes ever given to the connection's socket.
    pub fn given_bytes(&self) -> u64 {
        self.sent_bytes
    }

    /// All bytes of the connection that are known to have arrived.
    pub fn acked_bytes(&self) -> u64 {
        self.acked_bytes
    }

    /// What has arrived if the socket holds `unacked_bytes`.
    pub fn acked_with(&self, unacked_bytes: u64) -> u64 {
        (self.acked_bytes).max(self.sent_bytes.saturating_sub(unacked_bytes))
    }

    /// Settles the oldest response, if its last byte is acknowledged.
    pub fn settled(&mut self, all: &mut Unsettled) -> Option<Out> {
        if all.at(self.oldest)?.end_bytes <= self.acked_bytes {
            self.give_up(all)
        } else {
            None
        }
    }

    /// Settles the oldest response with what is known: nothing more will be.
    pub fn give_up(&mut self, all: &mut Unsettled) -> Option<Out> {
        let Arrival {
            stream,
            body_from_bytes,
            end_bytes,
            mut outcome,
            next,
            ..
        } = all.remove(self.oldest)?;
        (self.oldest, self.count) = (next, self.count - 1);
        if next == NOBODY {
            self.newest = NOBODY;
        }
        let acked_bytes = self.acked_bytes.min(end_bytes);
        outcome.acked_bytes = acked_bytes.saturating_sub(body_from_bytes);
        outcome.whole = outcome.why == Why::Done && acked_bytes == end_bytes;
        Some(Out::Arrived { stream, outcome })
    }

    /// The connection ends. Settles one waiting response per call, with what is known.
    pub fn close(&mut self, all: &mut Unsettled) -> Option<Out> {
        self.recorded(all, 0);
        self.give_up(all)
    }

    /// Whether no response waits.
    pub fn is_empty(&self) -> bool {
        self.oldest == NOBODY
    }

    /// Whether no response waits and, as far as was measured, the socket holds nothing. A connection that is closed
    /// before leaves its bytes to the kernel, beyond every limit.
    pub fn is_settled(&self) -> bool {
        self.is_empty() && self.acked_bytes >= self.sent_bytes
    }
}

impl Worker {
    /// What the log may keep of the next request without cutting it to its shortest.
    pub fn record_room_bytes(&self) -> u64 {
        self.unsettled.room_bytes()
    }

    /// Size of the log's record of a request that is being resolved. The responses that have waited longest make room
    /// for it.
    pub(super) fn recorded(&mut self, id: StreamId, record_bytes: u64) {
        let Some(conn) = self.table.with_mut(id) else {
            return;
        };
        conn.arrivals.recorded(&mut self.unsettled, record_bytes);
        while let Some(overdue) = self.unsettled.overdue() {
            let settled = self
                .table
                .get_mut(overdue)
                .and_then(|conn| conn.arrivals.give_up(&mut self.unsettled));
            let Some(settled) = settled else {
                return;
            };
            self.outs.push_back(settled);
        }
    }
}
