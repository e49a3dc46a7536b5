//! What a worker says of a connection that sends, and what becomes of it: losses, an estimate, a demand.

use super::estimate::{Belief, Estimate, Look};
use super::{Control, Credit, Demand, Pace};
use crate::congestion::{CaState, Path};
use crate::conn::{Address, ConnId, TcpSample};
use crate::law::{Acks, Conditions};
use crate::units::Instant;

/// The counters of a connection that a [`TcpSample`] does not have (tcp(7), `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// `tcpi_data_segs_out`.
    pub sent_segments: u32,
    /// `tcpi_delivery_rate`; 0: not known.
    pub delivered_bytes_per_s: u64,
    /// `tcpi_rto`.
    pub rto_us: u64,
}

/// All that is said of a connection in one look.
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
    /// What holds its client up.
    pub pace: Pace,
    /// B_n for the send margin; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// For how long its share held it up since the last reading.
    pub held_up_us: u64,
}

impl Reading {
    /// MSS; an Ethernet's where TCP does not say.
    pub fn segment_bytes(&self) -> u64 {
        let told = self.sample.flow.map_or(0, |flow| flow.segment_bytes);
        if told > 0 { told } else { 1_448 }
    }

    /// Whether it needs any send memory.
    pub fn is_idle(&self) -> bool {
        !self.is_sending && self.sample.unacked_bytes == 0
    }
}

/// Counts how often a connection entered Recovery or Loss, by looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Losses {
    events: u32,
    last: Option<Path>,
}

impl Losses {
    /// How many there were, with those that this look shows: one at most. An episode that is over by now shows in a
    /// threshold that has changed; marks (ECN) change it, too, and lose nothing.
    pub fn seen(&mut self, path: Path) -> u32 {
        if let Some(before) = self.last.replace(path) {
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
    estimate: Estimate,
    losses: Losses,
    reading: Reading,
    read_at: Instant,
    credit: Credit,
}

impl Known {
    /// A connection that joins; `belief` is that of its client's last one.
    pub fn new(reading: Reading, belief: Option<Belief>, now: Instant) -> Known {
        let mut known = Known {
            estimate: belief.map_or_else(Estimate::default, Estimate::seeded),
            losses: Losses::default(),
            reading,
            read_at: now,
            credit: Credit::default(),
        };
        known.look(reading, now);
        known
    }

    /// One more reading, by which it had this share.
    pub fn read(&mut self, reading: Reading, share_bytes: u64, now: Instant) {
        let us = now.since_us(self.read_at).max(1);
        let percent = u128::from(reading.held_up_us) * 100 / u128::from(us);
        self.credit = Credit {
            share_bytes,
            limited_percent: percent.min(100) as u64,
        };
        self.look(reading, now);
    }

    fn look(&mut self, reading: Reading, now: Instant) {
        let look = Look {
            sent_segments: reading.counted.sent_segments,
            loss_events: self.losses.seen(reading.sample.path),
            delivered_bytes_per_s: reading.counted.delivered_bytes_per_s,
            rtt_us: reading.sample.rtt_us,
        };
        self.estimate.look(look, now);
        (self.reading, self.read_at) = (reading, now);
    }

    /// The last reading.
    pub fn reading(&self) -> &Reading {
        &self.reading
    }

    /// What its client's next connection may start from.
    pub fn belief(&self) -> Option<Belief> {
        self.estimate.belief()
    }

    /// What it asks for.
    pub fn demand(&self) -> Demand {
        let Reading {
            sample,
            counted,
            control,
            pace,
            rate_bytes_per_s,
            ..
        } = self.reading;
        Demand {
            path: Conditions {
                mss_bytes: self.reading.segment_bytes(),
                rtt_us: sample.rtt_us,
                loss: self.estimate.loss(),
                acks: Acks::Each,
            },
            rto_us: counted.rto_us,
            rtt_min_us: sample.path.rtt_min_us,
            cwnd_bytes: sample.path.cwnd_bytes,
            peer_window_bytes: sample.flow.map_or(0, |flow| flow.window_bytes),
            delivered_bytes_per_s: self.estimate.delivered_bytes_per_s(),
            rate_bytes_per_s,
            control,
            pace,
            standing: self.estimate.standing(),
            credit: self.credit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
