//! One direction of one link: a bounded queue, a transmitter with a rate, and a wire with delay, jitter and loss.
//!
//! A packet is offered once, and its whole fate is decided then: the queue is first-in first-out, so nothing later can
//! change it. The one exception is a change of rate, which moves the packets that still wait ([`Retime`]).
//!
//! The decisions come in the order queue (drop-tail or RED), transmitter, wire. A packet that the wire loses has
//! therefore used transmitter time, as on a real link.

mod loss;
mod red;

pub use loss::Loss;
pub use red::Red;

use loss::LossState;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use red::{Judgement, RedState};

const NS_PER_US: u64 = 1_000;
const NS_PER_S: u64 = 1_000_000_000;
const BITS_PER_BYTE: u64 = 8;

/// Parameters of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkProfile {
    /// Rate of the transmitter, over all bytes of the packets; above 0. `None`: transmission takes no time, and nothing
    /// ever queues.
    pub rate_bits_per_s: Option<u64>,
    /// Propagation, from the end of the transmission to the arrival.
    pub delay_us: u64,
    /// Random extra delay, uniform from 0 to this.
    pub jitter_us: u64,
    /// Whether jitter may reorder packets. If not, the later packet waits.
    pub may_reorder: bool,
    /// Queue before the transmitter.
    pub queue: QueueDiscipline,
    /// Loss on the wire.
    pub loss: Loss,
    /// Probability, 0 to 1, that an ECN-capable packet is marked "congestion experienced" regardless of the queue. It
    /// stands for congestion further along the path.
    pub mark: f64,
}

/// The queue before the transmitter.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueDiscipline {
    /// Drops a packet that does not fit. A packet that finds the queue empty always fits.
    DropTail {
        /// Most bytes that wait or are in transmission.
        limit_bytes: u64,
    },
    /// Random early detection.
    Red(Red),
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It arrives.
    Deliver {
        /// When its last bit leaves the transmitter.
        departs_ns: u64,
        /// When it arrives.
        at_ns: u64,
        /// Whether it arrives with "congestion experienced" set.
        mark_ce: bool,
    },
    /// It is dropped.
    Drop(DropCause),
}

/// Why a packet does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropCause {
    /// The queue was full.
    QueueFull,
    /// RED dropped it early.
    Red,
    /// The wire lost it.
    Loss,
}

/// Totals since the link was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Packets offered: the sum of those delivered and dropped.
    pub offered_packets: u64,
    /// Their bytes.
    pub offered_bytes: u64,
    /// Packets that arrive, some of them later than now.
    pub delivered_packets: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Dropped by a full queue.
    pub dropped_full_packets: u64,
    /// Dropped early by RED.
    pub dropped_red_packets: u64,
    /// Lost by the wire.
    pub lost_packets: u64,
    /// Delivered with "congestion experienced".
    pub marked_packets: u64,
}

/// A running link.
#[derive(Clone, Debug)]
pub struct Link {
    profile: LinkProfile,
    rng: Pcg64Mcg,
    red: RedState,
    loss: LossState,
    totals: Totals,
    /// When the transmitter will have sent all that it was given.
    free_at_ns: u64,
    /// Remainder of the division that gave `free_at_ns`, in 1/rate ns. It keeps the rate exact over many packets.
    rest: u64,
    /// Latest arrival so far; later packets do not arrive before it.
    last_at_ns: u64,
    /// Transmitter time allotted so far, up to `free_at_ns`.
    busy_ns: u64,
}

impl Link {
    /// An idle link. Equal seeds and equal packets at equal times give equal fates.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn new(profile: LinkProfile, seed: u64) -> Link {
        assert!(profile.rate_bits_per_s != Some(0), "a link needs a rate");
        Link {
            profile,
            rng: Pcg64Mcg::seed_from_u64(seed),
            red: RedState::default(),
            loss: LossState::default(),
            totals: Totals::default(),
            free_at_ns: 0,
            rest: 0,
            last_at_ns: 0,
            busy_ns: 0,
        }
    }

    /// Decides the fate of a packet that arrives at `now_ns`, which must not run backwards. An `ecn_capable` packet may
    /// be marked instead of being dropped early (RFC 3168).
    pub fn offer(&mut self, now_ns: u64, packet_len_bytes: u32, ecn_capable: bool) -> Verdict {
        let len_bytes = u64::from(packet_len_bytes);
        self.totals.offered_packets += 1;
        self.totals.offered_bytes += len_bytes;
        let mark_ce = match self.admit(now_ns, len_bytes, ecn_capable) {
            Ok(mark_ce) => mark_ce || ecn_capable && self.marks(),
            Err(why) => return self.dropped(why),
        };
        let departs_ns = self.transmit(now_ns, len_bytes);
        if self.loss.loses(&self.profile.loss, &mut self.rng) {
            return self.dropped(DropCause::Loss);
        }
        self.totals.delivered_packets += 1;
        self.totals.delivered_bytes += len_bytes;
        self.totals.marked_packets += u64::from(mark_ce);
        Verdict::Deliver {
            departs_ns,
            at_ns: self.arrival(departs_ns),
            mark_ce,
        }
    }

    /// Changes the parameters of a running link. Packets that wait for the transmitter leave at the new rate: the
    /// caller moves them with the returned [`Retime`]. Packets on the wire, and the delay of waiting ones, stay as they
    /// were.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn set(&mut self, now_ns: u64, profile: LinkProfile) -> Retime {
        assert!(profile.rate_bits_per_s != Some(0), "a link needs a rate");
        let retime = Retime {
            now_ns,
            from_bits_per_s: self.profile.rate_bits_per_s,
            to_bits_per_s: profile.rate_bits_per_s,
            last_at_ns: 0,
        };
        let free_at_ns = retime.departure(self.free_at_ns);
        let latest_ns = (self.profile.delay_us + self.profile.jitter_us) * NS_PER_US;
        self.busy_ns = self.busy_ns + free_at_ns - self.free_at_ns;
        if free_at_ns < self.free_at_ns {
            self.last_at_ns = self.last_at_ns.min(free_at_ns.max(now_ns) + latest_ns);
        } else {
            self.last_at_ns += free_at_ns - self.free_at_ns;
        }
        (self.free_at_ns, self.rest) = (free_at_ns, 0);
        self.profile = profile;
        retime
    }

    /// The current parameters.
    pub fn profile(&self) -> &LinkProfile {
        &self.profile
    }

    /// Totals since the link was made.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// How long the transmitter was busy up to `now_ns`; it was idle for the rest.
    pub fn busy_ns(&self, now_ns: u64) -> u64 {
        self.busy_ns - self.backlog_ns(now_ns).min(self.busy_ns)
    }

    /// Bytes that wait or are in transmission.
    pub fn queue_bytes(&self, now_ns: u64) -> u64 {
        let Some(rate) = self.profile.rate_bits_per_s else {
            return 0;
        };
        let bits = u128::from(self.backlog_ns(now_ns)) * u128::from(rate) / u128::from(NS_PER_S);
        (bits as u64).div_ceil(BITS_PER_BYTE)
    }

    /// RED's average queue length, in bytes; 0 for other queues.
    pub fn red_average_bytes(&self) -> f64 {
        self.red.average_bytes()
    }

    fn backlog_ns(&self, now_ns: u64) -> u64 {
        self.free_at_ns.saturating_sub(now_ns)
    }

    /// Whether the queue takes the packet; `Ok(true)` if it is to be marked.
    fn admit(&mut self, now_ns: u64, len_bytes: u64, ecn_capable: bool) -> Result<bool, DropCause> {
        let Some(rate) = self.profile.rate_bits_per_s else {
            return Ok(false);
        };
        let backlog_ns = self.backlog_ns(now_ns);
        let bytes_per_ns = rate as f64 / (BITS_PER_BYTE * NS_PER_S) as f64;
        let backlog_bytes = (backlog_ns as f64 * bytes_per_ns) as u64;
        let fits = |limit_bytes: u64| backlog_ns == 0 || backlog_bytes + len_bytes <= limit_bytes;
        match &self.profile.queue {
            QueueDiscipline::DropTail { limit_bytes } if fits(*limit_bytes) => Ok(false),
            QueueDiscipline::DropTail { .. } => Err(DropCause::QueueFull),
            QueueDiscipline::Red(red) => {
                let idle_ns = now_ns.saturating_sub(self.free_at_ns);
                let idle_bytes = idle_ns as f64 * bytes_per_ns;
                let judgement = self
                    .red
                    .judge(red, backlog_bytes, idle_bytes, &mut self.rng);
                match judgement {
                    _ if !fits(red.limit_bytes) => Err(DropCause::QueueFull),
                    Judgement::Pass => Ok(false),
                    Judgement::Congested if red.ecn && ecn_capable => Ok(true),
                    Judgement::Congested | Judgement::Overloaded => Err(DropCause::Red),
                }
            }
        }
    }

    /// Whether to mark the next packet regardless of the queue. Draws a random number only if `mark` is above 0.
    fn marks(&mut self) -> bool {
        self.profile.mark > 0.0 && unit(&mut self.rng) < self.profile.mark
    }

    /// Hands the transmitter one more packet; returns when its last bit has left.
    fn transmit(&mut self, now_ns: u64, len_bytes: u64) -> u64 {
        if self.free_at_ns < now_ns {
            (self.free_at_ns, self.rest) = (now_ns, 0);
        }
        if let Some(rate) = self.profile.rate_bits_per_s {
            let work = len_bytes * BITS_PER_BYTE * NS_PER_S + self.rest;
            let takes_ns = work / rate;
            self.rest = work % rate;
            self.free_at_ns += takes_ns;
            self.busy_ns += takes_ns;
        }
        self.free_at_ns
    }

    fn arrival(&mut self, departs_ns: u64) -> u64 {
        let mut at_ns = departs_ns + self.profile.delay_us * NS_PER_US;
        if self.profile.jitter_us > 0 {
            let most_ns = (self.profile.jitter_us * NS_PER_US) as f64;
            at_ns += (unit(&mut self.rng) * most_ns) as u64;
        }
        if !self.profile.may_reorder {
            at_ns = at_ns.max(self.last_at_ns);
        }
        self.last_at_ns = self.last_at_ns.max(at_ns);
        at_ns
    }

    fn dropped(&mut self, why: DropCause) -> Verdict {
        let count = match why {
            DropCause::QueueFull => &mut self.totals.dropped_full_packets,
            DropCause::Red => &mut self.totals.dropped_red_packets,
            DropCause::Loss => &mut self.totals.lost_packets,
        };
        *count += 1;
        Verdict::Drop(why)
    }
}

/// A change of rate, for the packets that waited when it came.
#[derive(Clone, Debug)]
pub struct Retime {
    now_ns: u64,
    from_bits_per_s: Option<u64>,
    to_bits_per_s: Option<u64>,
    last_at_ns: u64,
}

impl Retime {
    /// The new times (departs, arrives) of a packet with these old ones. Call it for the link's packets in order, so
    /// that none overtakes another.
    pub fn apply(&mut self, departs_ns: u64, at_ns: u64) -> (u64, u64) {
        let departs_new_ns = self.departure(departs_ns);
        let wire_ns = at_ns.saturating_sub(departs_ns);
        self.last_at_ns = self.last_at_ns.max(departs_new_ns + wire_ns);
        (departs_new_ns, self.last_at_ns)
    }

    fn departure(&self, old_ns: u64) -> u64 {
        let (Some(from), true) = (self.from_bits_per_s, old_ns > self.now_ns) else {
            return old_ns;
        };
        let Some(to) = self.to_bits_per_s else {
            return self.now_ns;
        };
        let left = u128::from(old_ns - self.now_ns) * u128::from(from) / u128::from(to);
        self.now_ns
            .saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// Uniform in 0..1, the same on every machine.
fn unit(rng: &mut impl RngCore) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
