//! What a worker says of a connection that sends, and what becomes of it: losses, an estimate, a demand.

use ackpace_core::addresses::Address;
use ackpace_core::congestion::{CaState, Path};
use ackpace_core::conn::{ConnId, TcpSample};
use ackpace_core::limits::RATE_BYTES_PER_S_MAX;
use ackpace_core::units::{Instant, US_PER_S};

use super::bound::Holding;
use super::estimate::{Belief, Estimate, PathSample};
use super::law::{Acks, Conditions};
use super::{Control, Demand, ETHERNET_SEGMENT_BYTES, ShareUse};

/// The counters of a connection that a [`TcpSample`] does not have (tcp(7), `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// `tcpi_data_segs_out`.
    pub sent_segments: u32,
    /// `tcpi_rto`.
    pub rto_us: u64,
}

/// All that is said of a connection in one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whose.
    pub conn: ConnId,
    /// Its client.
    pub address: Address,
    /// A response is under way.
    pub is_sending: bool,
    /// What TCP says.
    pub sample: TcpSample,
    /// And counts, in the same moment.
    pub counted: Counted,
    /// Its congestion control.
    pub control: Control,
    /// Its client reads at a pace of its own.
    pub is_own_pace: bool,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// For how long its share limited it since the last reading.
    pub share_limited_us: u64,
    /// Its share in that moment.
    pub share_bytes: u64,
    /// The division that this share is from; 0: none yet.
    pub division: u64,
}

impl Reading {
    /// MSS; an Ethernet's where TCP does not say.
    pub fn segment_bytes(&self) -> u64 {
        let told = self.sample.flow.map_or(0, |flow| flow.segment_bytes);
        if told > 0 {
            told
        } else {
            ETHERNET_SEGMENT_BYTES
        }
    }

    /// What of it bounds the socket.
    pub fn holding(&self) -> Holding {
        Holding {
            held_bytes: self.sample.unacked_bytes,
            share_bytes: self.share_bytes,
            division: self.division,
        }
    }

    /// Whether it needs no send memory.
    pub fn is_idle(&self) -> bool {
        !self.is_sending && self.sample.unacked_bytes == 0
    }
}

/// Counts how often a connection entered Recovery or Loss, by looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    /// How often, so far.
    events: u32,
    /// The path at the last look.
    last: Option<LastPath>,
}

/// What tells a loss, of the path as it was seen last.
#[derive(Clone, Copy, Debug)]
struct LastPath {
    state: CaState,
    resent_segments: u32,
    threshold_bytes: Option<u64>,
}

impl Losses {
    /// How many there were, with those that this sample shows: one at most. An episode that is over by now shows in a
    /// threshold that has changed; marks (ECN) change it, too, and lose nothing.
    pub fn seen(&mut self, path: Path) -> u32 {
        let last = LastPath {
            state: path.state,
            resent_segments: path.resent_segments,
            threshold_bytes: path.threshold_bytes,
        };
        if let Some(before) = self.last.replace(last) {
            let lost = |state| state >= CaState::Recovery;
            let cut = path.threshold_bytes.is_some()
                && path.threshold_bytes != before.threshold_bytes
                && path.resent_segments != before.resent_segments;
            let entered = lost(path.state) && !lost(before.state);
            self.events = self.events.wrapping_add((entered || cut).into());
        }
        self.events
    }
}

/// What is known of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its loss, and what its path delivered.
    estimate: Estimate,
    /// How often it has lost something.
    losses: Losses,
    /// Bytes that its client had acknowledged at the last reading, and for how long something was in flight by then; `None`:
    /// nothing counts that.
    progress: Option<(u64, u64)>,
    /// When it was last read.
    read_at: Instant,
    /// What was acknowledged between the last two readings, by the time in which something was in flight; 0: nothing.
    delivered_bytes_per_s: u64,
    /// How it used the share that it had until then.
    share_use: ShareUse,
}

impl Known {
    /// A connection that joins; `belief` is that of its client's last one.
    pub fn new(reading: &Reading, belief: Option<Belief>, now: Instant) -> Known {
        let mut known = Known {
            estimate: belief.map_or_else(Estimate::default, Estimate::seeded),
            losses: Losses::default(),
            progress: None,
            read_at: now,
            delivered_bytes_per_s: 0,
            share_use: ShareUse::default(),
        };
        known.read(reading, now);
        known.share_use = ShareUse::default();
        known
    }

    /// One more reading.
    pub fn read(&mut self, reading: &Reading, now: Instant) {
        let us = now.since_us(self.read_at).max(1);
        let percent = u128::from(reading.share_limited_us) * 100 / u128::from(us);
        self.share_use = ShareUse {
            share_bytes: reading.share_bytes,
            limited_percent: percent.min(100) as u64,
        };
        let flow = reading.sample.flow;
        let before = core::mem::replace(
            &mut self.progress,
            flow.map(|flow| (flow.acked_bytes, flow.busy_us)),
        );
        self.delivered_bytes_per_s = delivered_bytes_per_s(before, reading);
        let sample = PathSample {
            sent_segments: reading.counted.sent_segments,
            loss_events: self.losses.seen(reading.sample.path),
            delivered_bytes_per_s: self.delivered_bytes_per_s,
            rtt_us: reading.sample.rtt_us,
        };
        self.estimate.sampled(sample, now);
        self.read_at = now;
    }

    /// Whether its estimate counts.
    pub fn is_known(&self) -> bool {
        self.estimate.is_known()
    }

    /// What its client's next connection may start from.
    pub fn belief(&self) -> Option<Belief> {
        self.estimate.belief()
    }

    /// What it asks for; `reading` is the last one.
    pub fn demand(&self, reading: &Reading) -> Demand {
        let sample = reading.sample;
        Demand {
            network: reading.address.network(),
            path: Conditions {
                mss_bytes: reading.segment_bytes(),
                rtt_us: sample.rtt_us,
                loss: self.estimate.loss(),
                acks: Acks::Each,
            },
            rto_us: reading.counted.rto_us,
            rtt_min_us: sample.path.rtt_min_us,
            cwnd_bytes: sample.path.cwnd_bytes,
            peer_window_bytes: sample.flow.map_or(0, |flow| flow.window_bytes),
            delivered_max_bytes_per_s: self.estimate.delivered_max_bytes_per_s(),
            // A path's rate is measured here: the send margin believes what it has not seen refuted, and where a share is
            // all that a socket holds, nothing refutes it.
            rate_bytes_per_s: match reading.is_own_pace {
                true => reading.rate_bytes_per_s,
                false => self.delivered_bytes_per_s,
            },
            control: reading.control,
            is_own_pace: reading.is_own_pace,
            is_known: self.estimate.is_known(),
            share_use: self.share_use,
        }
    }
}

/// What was acknowledged since the reading `before`, by the time in which something was in flight.
///
/// The kernel's own `tcpi_delivery_rate` does not serve: it keeps the fastest rate until one is measured of a socket that
/// had more to send, and a share-limited socket never has.
fn delivered_bytes_per_s(before: Option<(u64, u64)>, now: &Reading) -> u64 {
    let (Some((acked_bytes, busy_us)), Some(flow)) = (before, now.sample.flow) else {
        return 0;
    };
    let bytes = flow.acked_bytes.saturating_sub(acked_bytes);
    let us = flow.busy_us.saturating_sub(busy_us);
    let us = us.max(now.sample.rtt_us).max(1);
    let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us);
    rate.min(RATE_BYTES_PER_S_MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_core::rate::Flow;

    fn path(state: CaState, threshold_bytes: u64, resent_segments: u32) -> Path {
        Path {
            state,
            threshold_bytes: Some(threshold_bytes),
            resent_segments,
            ..Path::default()
        }
    }

    #[test]
    fn an_episode_counts_once_whether_it_is_seen_or_over() {
        use CaState::{Cwr, Loss, Open, Recovery};
        let mut losses = Losses::default();
        for (state, threshold_bytes, resent_segments, events) in [
            (Open, 90, 0, 0),
            (Recovery, 50, 1, 1), // under way
            (Recovery, 50, 4, 1), // still
            (Open, 50, 4, 1),     // over
            (Open, 30, 6, 2),     // another one came and went
            (Open, 30, 6, 2),
            (Cwr, 20, 6, 2),      // a mark
            (Recovery, 10, 7, 3), // under way
            (Recovery, 8, 9, 4),  // that one was over, and the next one has begun
            (Loss, 8, 9, 4),      // it became worse
            (Open, 8, 9, 4),
        ] {
            let seen = losses.seen(path(state, threshold_bytes, resent_segments));
            assert_eq!(seen, events, "{state:?} {threshold_bytes}");
        }
    }

    #[test]
    fn a_rate_is_of_the_time_in_which_something_was_in_flight() {
        let reading = |acked_bytes, busy_us| Reading {
            conn: ConnId {
                index: 0,
                generation: 0,
            },
            address: Address(1),
            is_sending: true,
            sample: TcpSample {
                rtt_us: 20_000,
                flow: Some(Flow {
                    acked_bytes,
                    busy_us,
                    ..Flow::default()
                }),
                ..TcpSample::default()
            },
            counted: Counted::default(),
            control: Control::Reno,
            is_own_pace: false,
            rate_bytes_per_s: 77,
            share_limited_us: 0,
            share_bytes: 5_000,
            division: 0,
        };
        let first = reading(10_000, 50_000);
        for (acked_bytes, busy_us, rate) in [
            (1_010_000, 1_050_000, 1_000_000),
            (110_000, 150_000, 1_000_000), // a short answer
            (11_000, 50_001, 50_000),      // less than a round trip says nothing more
            (10_000, 50_000, 0),
        ] {
            let mut known = Known::new(&first, None, Instant { us: 0 });
            let second = reading(acked_bytes, busy_us);
            known.read(&second, Instant { us: 1_000_000 });
            let demand = known.demand(&second);
            assert_eq!(demand.rate_bytes_per_s, rate);
        }
    }
}
