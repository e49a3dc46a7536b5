//! The send controller: one owner for all that a worker decides about sockets. It says how much a socket is offered and
//! when it becomes writable, whether it is full, which sockets are topped up together, and whose first flight is paced.
//! [`super::SendQueue`] estimates one socket, [`super::rounds`] sets the target for all of them; whatever drives them goes
//! through here.

use alloc::collections::BTreeSet;

use super::rounds::{Target, TopUps, TotalDemand};
use super::{Refill, SendQueue, Supply};
use crate::conn::{ConnId, Held, TcpSample};
use crate::limits::{PACED_RTT_US_MIN, PACED_WINDOW_BYTES_MIN};
use crate::units::{Instant, US_PER_S};
use crate::why::Wait;

/// Which socket is given bytes, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPolicy {
    /// By each socket's send margin (see [`crate::send`]).
    Margin {
        /// The most that all sockets of the worker may hold unsent together.
        budget_bytes: u64,
    },
    /// Every socket that is writable, at once, as much as it takes: what servers usually do.
    Eager,
}

/// Decides for all sockets of a worker.
#[derive(Debug)]
pub struct Controller {
    /// `None`: sockets are filled as soon as they are writable.
    top_ups: Option<TopUps>,
    /// Connections that are paced, and until when: one round trip each.
    paced: BTreeSet<(Instant, ConnId)>,
}

/// Bytes that are about to be offered to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What holds them.
    pub held: Held,
    /// What is left of the response, these included.
    pub rest_bytes: u64,
}

/// The result of an offer, as the shell reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// What the kernel took.
    pub taken_bytes: u64,
    /// The socket took no more, or has taken all that it was to take.
    pub full: bool,
    /// What it holds unsent now (SIOCOUTQNSD); `None` where this can't be known.
    pub unsent_bytes: Option<u64>,
}

/// A socket that is full: it has enough until it becomes writable again, or until a round fills it together with another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketFull {
    /// What its connection waits for: for its margin to be taken, or for the kernel to take more.
    pub wait: Wait,
    /// What it was given since the last sample, or since it was last full, if that is later.
    pub given_bytes: u64,
    /// The level up to which it is filled.
    pub fill_bytes: u64,
}

/// A round of top-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Sockets that would become writable before then are topped up now ([`SendQueue::joins`]).
    pub until: Instant,
    /// T before the round, microseconds.
    pub from_us: u64,
    /// T from now on.
    pub to_us: u64,
    /// What all sending connections take together, bytes per second.
    pub rates_bytes_per_s: u64,
}

impl Round {
    /// Whether T has changed by a tenth or more.
    pub fn changes_target(&self) -> bool {
        self.from_us.abs_diff(self.to_us) * 10 >= self.from_us
    }
}

/// A first flight that is spread over a round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstFlight {
    /// No faster than this, bytes per second.
    pub rate_bytes_per_s: u64,
    /// When the pacing ends: after one round trip.
    pub until: Instant,
}

impl Controller {
    /// A controller without connections.
    pub fn new(policy: SendPolicy) -> Controller {
        Controller {
            top_ups: match policy {
                SendPolicy::Margin { budget_bytes } => Some(TopUps::new(budget_bytes)),
                SendPolicy::Eager => None,
            },
            paced: BTreeSet::new(),
        }
    }

    /// How far sockets are filled; `None` without margins.
    pub fn target(&self) -> Option<Target> {
        self.top_ups.map(|top_ups| top_ups.target())
    }

    /// What a socket may hold while its rate is a guess. `open`: number of the worker's connections.
    pub fn guess_bytes(&self, open: u32) -> u64 {
        (self.top_ups).map_or(u64::MAX, |top_ups| top_ups.guess_bytes(open))
    }

    /// The sum of the known rates of all connections, bytes per second.
    pub fn rates_bytes_per_s(&self, now: Instant) -> u64 {
        self.top_ups
            .map_or(0, |top_ups| top_ups.rates_bytes_per_s(now))
    }

    /// What a connection waits for when its socket takes no more.
    pub fn wait(&self) -> Wait {
        self.top_ups.map_or(Wait::Socket, |_| Wait::Margin)
    }

    /// How much of an offer a socket should take now, and when it becomes writable; `None`: the kernel decides both.
    /// `open`: number of the worker's connections.
    pub fn refill(
        &self,
        queue: &mut SendQueue,
        offer: Offer,
        supply: &Supply,
        open: u32,
        now: Instant,
    ) -> Option<Refill> {
        let top_ups = self.top_ups?;
        // A client that takes nothing is recognised by how little its socket holds.
        let own = offer.held.is_own_memory() && supply.rate_bytes_per_s > 0;
        let own_bytes = own.then(|| top_ups.own_bytes(open));
        Some(queue.refill(own_bytes, offer.rest_bytes, top_ups.target(), now))
    }

    /// The result of an offer: the rate is measured. `Some`: the socket is full and will become writable; `None`: it
    /// may be offered more.
    pub fn taken(&self, queue: &mut SendQueue, taken: Taken, now: Instant) -> Option<SocketFull> {
        let Taken {
            taken_bytes,
            full,
            unsent_bytes,
        } = taken;
        match unsent_bytes.filter(|_| !full) {
            Some(unsent_bytes) => queue.taken(taken_bytes, unsent_bytes, now),
            None => queue.given(taken_bytes),
        }
        if !full {
            return None;
        }
        let target = self.target();
        let given_bytes = queue.given_since_bytes();
        match unsent_bytes {
            Some(unsent_bytes) => {
                // Without margins the rate is still measured: reading ahead depends on it.
                let grown = queue.full(unsent_bytes, target.unwrap_or_default(), now);
                if grown && target.is_some() {
                    return None;
                }
            }
            None => queue.full_unknown(),
        }
        let fill_bytes = queue.fill_bytes(target.unwrap_or_default());
        // Some of it may have been sent since.
        let is_margin = |unsent_bytes: u64| unsent_bytes >= fill_bytes / 2;
        let wait = match target.and(unsent_bytes).is_some_and(is_margin) {
            true => Wait::Margin,
            false => Wait::Socket,
        };
        Some(SocketFull {
            wait,
            given_bytes,
            fill_bytes,
        })
    }

    /// One connection became writable.
    pub fn writable(&mut self, now: Instant) {
        if let Some(top_ups) = &mut self.top_ups {
            top_ups.writable(now);
        }
    }

    /// Whether a round is due. Returns `true` once per round.
    pub fn take_due(&mut self) -> bool {
        self.top_ups.as_mut().is_some_and(TopUps::take_due)
    }

    /// A round of top-ups begins, over the margins of all sending connections.
    pub fn round<'a>(
        &mut self,
        sending: impl Iterator<Item = &'a SendQueue>,
        now: Instant,
    ) -> Option<Round> {
        let top_ups = self.top_ups.as_mut()?;
        let (from, mut demand) = (top_ups.target(), TotalDemand::default());
        for queue in sending {
            demand.add(queue, from);
        }
        let until = top_ups.round(demand, now);
        Some(Round {
            until,
            from_us: from.us,
            to_us: top_ups.target().us,
            rates_bytes_per_s: demand.rates_bytes_per_s,
        })
    }

    /// Spreads the first window of a response over a round trip, if it would leave as a burst. The kernel keeps the
    /// pace until it is told otherwise, which would hold back a growing window; so it is told a round trip later.
    /// `before`: when an earlier pacing of the connection would have ended.
    pub fn pace(
        &mut self,
        conn: ConnId,
        before: Option<Instant>,
        sample: &TcpSample,
        now: Instant,
    ) -> Option<FirstFlight> {
        let rate_bytes_per_s = first_flight_rate_bytes_per_s(sample)?;
        let until = now.plus_us(sample.rtt_us);
        self.unpaced(conn, before);
        self.paced.insert((until, conn));
        Some(FirstFlight {
            rate_bytes_per_s,
            until,
        })
    }

    /// Takes a connection whose round trip of pacing is over.
    pub fn take_unpaced(&mut self, now: Instant) -> Option<ConnId> {
        let (until, conn) = *self.paced.first()?;
        if until > now {
            return None;
        }
        self.paced.pop_first();
        Some(conn)
    }

    /// A connection that was paced until then is gone, or is paced anew.
    pub fn unpaced(&mut self, conn: ConnId, until: Option<Instant>) {
        if let Some(until) = until {
            self.paced.remove(&(until, conn));
        }
    }

    /// When the next pacing ends.
    pub fn unpaces_at(&self) -> Option<Instant> {
        self.paced.first().map(|(until, _)| *until)
    }
}

/// The pace of a first flight, bytes per second. With nothing in flight no ACK clocks what is sent next, so a whole
/// window would leave at line rate and overflow the queue at the bottleneck. `None` where a window is no burst, or
/// where the path is too short to spread it. The shortest round trip counts for that, since queues make any path long.
pub(super) fn first_flight_rate_bytes_per_s(sample: &TcpSample) -> Option<u64> {
    let burst = sample.unacked_bytes == 0
        && sample.rtt_us > 0
        && sample.path.cwnd_bytes >= PACED_WINDOW_BYTES_MIN
        && sample.path.rtt_min_us >= PACED_RTT_US_MIN;
    // A quarter more than the window in a round trip, so that the last of it is not late.
    let rate = u128::from(sample.path.cwnd_bytes) * u128::from(US_PER_S) * 5 / 4;
    burst.then(|| u64::try_from(rate / u128::from(sample.rtt_us)).unwrap_or(u64::MAX))
}
