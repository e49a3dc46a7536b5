//! Reads requests, and charges connections for the memory of requests and responses. A connection is charged for its place when it is accepted, and for a request at
//! worst before one is read. As soon as its response is planned, it is charged for what that holds, and after the response
//! for nothing more.
//!
//! Without memory for a request its bytes stay in the socket, and it is tried again soon: reading ahead gives some back
//! ([`crate::ledger`]). Meanwhile the connection's timeouts run, so nobody waits for ever.

use std::collections::VecDeque;
use std::sync::Arc;

use ackpace_core::conn::{ConnId, Part, Plan};
use ackpace_core::limits::Holdings;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::worker::{Expect, In, Received};

use super::Worker;
use super::conns::Conn;
use super::events::EventSource;
use crate::ledger::Ledger;
use crate::limits::{NO_MEMORY_AGAIN_US, NO_MEMORY_TRIES_MAX, REQUESTS_SPARE_BYTES};

/// A worker's account for requests, between its connections and the one that all threads share.
pub(super) struct Requests {
    ledger: Arc<Ledger>,
    holdings: Holdings,
    /// Memory that is charged to the worker, and no connection has. The first [`REQUESTS_SPARE_BYTES`] were charged at the start.
    spare_bytes: u64,
    /// Connections whose next request waits for memory, each at most once while it lasts.
    waiting: VecDeque<ConnId>,
    /// When they are tried again.
    again_at: Instant,
}

impl Requests {
    /// An account that has its spare memory and no connection.
    pub fn of(ledger: Arc<Ledger>, holdings: Holdings) -> Requests {
        Requests {
            ledger,
            holdings,
            spare_bytes: REQUESTS_SPARE_BYTES,
            waiting: VecDeque::new(),
            again_at: Instant { us: 0 },
        }
    }

    /// Charges a connection for a request at worst, or for as much more as it lacks; returns whether there was memory for it.
    fn begin(&mut self, charged_bytes: &mut u64) -> bool {
        let lacks_bytes = self.holdings.request_bytes().saturating_sub(*charged_bytes);
        if !self.claim(lacks_bytes) {
            return false;
        }
        *charged_bytes += lacks_bytes;
        true
    }

    /// Takes from the spare memory, and makes half of that anew from the ledger if it does not suffice.
    fn claim(&mut self, bytes: u64) -> bool {
        if let Some(lacks_bytes) = bytes
            .checked_sub(self.spare_bytes)
            .filter(|lacks| *lacks > 0)
        {
            let more_bytes = lacks_bytes + REQUESTS_SPARE_BYTES / 2;
            let claimed = [more_bytes, lacks_bytes].into_iter();
            let Some(claimed_bytes) = claimed.into_iter().find(|bytes| self.ledger.claim(*bytes))
            else {
                return false;
            };
            self.spare_bytes += claimed_bytes;
        }
        self.spare_bytes -= bytes;
        true
    }

    /// A connection holds this much from now on, no more than it is charged: the rest is given back.
    fn settle(&mut self, charged_bytes: &mut u64, holds_bytes: u64) {
        debug_assert!(
            holds_bytes <= *charged_bytes,
            "{holds_bytes} of {charged_bytes}"
        );
        self.left(charged_bytes.saturating_sub(holds_bytes));
        *charged_bytes = holds_bytes.min(*charged_bytes);
    }

    /// A connection that was charged this much is gone, or holds so much less.
    pub fn left(&mut self, bytes: u64) {
        self.spare_bytes += bytes;
        if let Some(more_bytes) = self.spare_bytes.checked_sub(REQUESTS_SPARE_BYTES) {
            self.ledger.give(more_bytes);
            self.spare_bytes = REQUESTS_SPARE_BYTES;
        }
    }

    /// When requests that wait for memory are tried again; `None`: none waits.
    pub fn again_at(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.again_at)
    }
}

impl Conn {
    /// What it holds of what a request may cost: all of it while a head is there, for that response is not planned yet.
    fn holds_bytes(&self, holdings: &Holdings) -> u64 {
        match self.front.has_buffer() {
            true => holdings.request_bytes(),
            false => self.response_bytes,
        }
    }
}

impl Worker {
    /// Looks for what the machine expects of a client.
    pub(super) fn receive(&mut self, id: ConnId, expect: Expect, now: Instant) {
        if expect != Expect::Rest && !self.has_memory_for_request(id, now) {
            let received = Received::Nothing; // and so it will be, until it is tried again
            return self.decider.on(In::Received { conn: id, received }, now);
        }
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let received = match expect {
            Expect::Head => conn.front.receive(&conn.transport, &mut self.heads),
            Expect::Body => conn.front.skip_body(&conn.transport, &mut self.heads),
            Expect::Rest => conn.front.discard(&conn.transport, &mut self.heads),
        };
        self.settle_request(id);
        match received {
            Ok(received) => self.decider.on(In::Received { conn: id, received }, now),
            Err(_) => self.tcp_event(id, &EventSource::SocketError, now),
        }
    }

    /// Before a request, or its body, is read: whether there is memory for it. If not, it waits.
    fn has_memory_for_request(&mut self, id: ConnId, now: Instant) -> bool {
        let Some(conn) = self.conns.get(id) else {
            return false;
        };
        if self.requests.begin(&mut conn.charged_bytes) {
            return true;
        }
        if !std::mem::replace(&mut conn.awaits_memory, true) {
            if self.requests.waiting.is_empty() {
                self.requests.again_at = now.plus_us(NO_MEMORY_AGAIN_US);
            }
            self.requests.waiting.push_back(id);
        }
        false
    }

    /// Tries requests again that waited for memory, if it is time.
    pub(super) fn try_requests_again(&mut self, now: Instant) {
        if self.requests.again_at().is_none_or(|at| at > now) {
            return;
        }
        self.requests.again_at = now.plus_us(NO_MEMORY_AGAIN_US);
        let tries = self.requests.waiting.len().min(NO_MEMORY_TRIES_MAX);
        for _ in 0..tries {
            let Some(id) = self.requests.waiting.pop_front() else {
                return;
            };
            if let Some(conn) = self.conns.get(id) {
                conn.awaits_memory = false;
                self.tcp_event(id, &EventSource::MemoryTurn, now);
            }
        }
    }

    /// The response under way is planned: it holds its texts, and its file or its listing.
    pub(super) fn charge_response(&mut self, id: ConnId, plan: &Plan) {
        let holdings = self.requests.holdings;
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let text_bytes = |part: &Part| match part {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Body { .. } | Part::Slices => 0,
        };
        let made = |part: &Part| matches!(part, Part::Slices);
        conn.response_bytes = match plan.parts.iter().any(made) {
            true => holdings.request_bytes() - holdings.head_bytes,
            false => {
                let texts_bytes = plan.parts.iter().map(text_bytes).sum();
                holdings.response_bytes(texts_bytes, conn.source.is_some())
            }
        };
        self.settle_request(id);
    }

    /// A head was given back, or a response has ended.
    pub(super) fn settle_request(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get(id) {
            let holds_bytes = conn.holds_bytes(&self.requests.holdings);
            self.requests.settle(&mut conn.charged_bytes, holds_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOLDINGS: Holdings = Holdings {
        state_bytes: 6_000,
        head_bytes: 16_384,
        plan_bytes: 12_288,
        file_bytes: 5_000,
        slice_bytes: 19_000,
        record_bytes: 1_024,
    };

    fn requests(free_bytes: u64) -> Requests {
        let ledger = Arc::new(Ledger::new(free_bytes + 100, 100, 0));
        Requests::of(ledger, HOLDINGS)
    }

    /// All that is free in the ledger.
    fn free_bytes(requests: &Requests) -> u64 {
        let bits = (0..32).rev().map(|bit| 1 << bit);
        let taken_bytes = bits.filter(|bytes| requests.ledger.claim(*bytes)).sum();
        requests.ledger.give(taken_bytes);
        taken_bytes
    }

    #[test]
    fn a_response_holds_its_texts_and_its_file_and_never_more_than_its_request() {
        let [none, text, file] = [(0, false), (300, false), (300, true)]
            .map(|(text, file)| HOLDINGS.response_bytes(text, file));
        assert_eq!((none, text, file), (0, 300, 5_300));
        let most_bytes = HOLDINGS.response_bytes(u64::MAX, true);
        assert_eq!(most_bytes, 17_288);
        assert!(most_bytes + HOLDINGS.head_bytes <= HOLDINGS.request_bytes());
    }

    #[test]
    fn few_requests_touch_the_memory_that_all_share() {
        let mut requests = requests(10 << 20);
        let mut charged_bytes = [0; 3];
        for _ in 0..5 {
            assert!(charged_bytes.iter_mut().all(|bytes| requests.begin(bytes)));
            assert_eq!(free_bytes(&requests), 10 << 20);
            charged_bytes
                .iter_mut()
                .for_each(|bytes| requests.settle(bytes, 0));
        }
    }

    proptest! {
        /// What connections are charged is never more than there is, and all of it comes back.
        #[test]
        fn nothing_is_promised_twice_and_nothing_is_lost(
            free in 0u64..2_000_000,
            steps in prop::collection::vec((0usize..60, 0u64..45_000), 1..400),
        ) {
            let mut requests = requests(free);
            let mut charged_bytes = [0u64; 60];
            for (at, holds_bytes) in steps {
                let of = &mut charged_bytes[at];
                match holds_bytes < *of {
                    true => requests.settle(of, holds_bytes),
                    false => {
                        let (before_bytes, begun) = (*of, requests.begin(of));
                        prop_assert_eq!(*of, if begun { HOLDINGS.request_bytes() } else { before_bytes });
                    }
                }
                let all_bytes: u64 = charged_bytes.iter().sum();
                let there_bytes = free + REQUESTS_SPARE_BYTES;
                prop_assert_eq!(all_bytes + requests.spare_bytes + free_bytes(&requests), there_bytes);
                if all_bytes + HOLDINGS.request_bytes() <= there_bytes {
                    prop_assert!(requests.begin(&mut 0), "there is memory for one more");
                    requests.left(HOLDINGS.request_bytes());
                }
            }
            charged_bytes.iter().for_each(|bytes| requests.left(*bytes));
            prop_assert_eq!((requests.spare_bytes, free_bytes(&requests)), (REQUESTS_SPARE_BYTES, free));
        }
    }
}
