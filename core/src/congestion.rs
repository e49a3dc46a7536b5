//! What congestion of a path means for reads from a disk: the second half of TPF's EDRC (3.3).
//!
//! A stock kernel notifies nobody when it cuts a congestion window; it only tells when it is asked (TCP_INFO). So a
//! connection that reads from a disk is sampled when its socket was given bytes ([`crate::limits::WATCH_US`]), and each
//! sample is compared with the one before ([`Watch`]).
//!
//! What follows from congestion is the operator's choice ([`Delay`]). The paper postpones the request by T_D/2. Here
//! the rate is measured again, and the want is due when its stream will run dry at that rate.

use crate::units::US_PER_S;

/// What congestion does to a stream's want. In any case, the next want goes by the rate measured until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// The rate is measured at once, and the want's deadline follows it. The deadline also moves when the rate falls by
    /// itself.
    Rate,
    /// TPF 3.3: the want keeps its deadline, except that T_D/2 is added to it, once, if the disk is busy.
    Paper,
    /// Nothing: the want keeps its deadline, like a request that was given to a kernel.
    Off,
}

/// State of TCP's congestion control (linux/tcp.h, `enum tcp_ca_state`), in the order of what it costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaState {
    /// Nothing is wrong.
    #[default]
    Open,
    /// Segments arrive out of order; that alone means nothing.
    Disorder,
    /// The window is being cut: ECN marks, or a full queue of this host.
    Cwr,
    /// Duplicate ACKs tell of a loss.
    Recovery,
    /// The retransmission timer ran out.
    Loss,
}

/// What TCP knows of a connection's path (tcp(7), `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// `tcpi_ca_state`.
    pub state: CaState,
    /// `tcpi_snd_cwnd`, full segments in bytes.
    pub cwnd_bytes: u64,
    /// `tcpi_snd_ssthresh`, likewise in bytes: the window after the last cut. `None`: never cut, or cut by a congestion
    /// control that uses it differently (bbr).
    pub threshold_bytes: Option<u64>,
    /// `tcpi_min_rtt`; 0: not measured yet.
    pub rtt_min_us: u64,
    /// Segments whose ACK reported a mark (`tcpi_delivered_ce`), in all.
    pub marked_segments: u32,
    /// Segments that were sent again (`tcpi_total_retrans`), in all.
    pub resent_segments: u32,
}

impl Path {
    /// The most that the connection takes until the next cut, bytes per second: one and a half times its cut window,
    /// which grows, per shortest round trip. (Longer round trips are what queues add, and those shrink with the
    /// window.) A path that loses segments all the time has this as its mean. `None` where no window limits it.
    pub fn most_bytes_per_s(&self) -> Option<u64> {
        let threshold_bytes = self.threshold_bytes.filter(|_| self.rtt_min_us > 0)?;
        let window_bytes = if self.state >= CaState::Cwr {
            threshold_bytes // it gets there segment by segment
        } else {
            threshold_bytes.max(self.cwnd_bytes * 2 / 3)
        };
        let window_bytes = u128::from(window_bytes) * 3 / 2;
        let rate = window_bytes * u128::from(US_PER_S) / u128::from(self.rtt_min_us);
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }
}

/// A congestion signal. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// ECN marks, or a full queue of this host.
    Ecn,
    /// Duplicate ACKs: a segment was lost.
    DupAcks,
    /// Silence: the retransmission timer ran out.
    Timeout,
}

impl Signal {
    /// Every variant, each at the index of its discriminant.
    pub const ALL: [Signal; 3] = [Signal::Ecn, Signal::DupAcks, Signal::Timeout];

    /// The stable name: a label of the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Ecn => "ecn",
            Signal::DupAcks => "dup_acks",
            Signal::Timeout => "timeout",
        }
    }

    /// The rest of the sentence "its path is congested: ".
    pub fn sentence(self) -> &'static str {
        match self {
            Signal::Ecn => "packets are marked (ECN)",
            Signal::DupAcks => "a segment was lost (duplicate ACKs)",
            Signal::Timeout => "nothing was acknowledged in time",
        }
    }
}

/// The last sample of a connection's path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    last: Option<Path>,
}

impl Watch {
    /// Whether the window was cut since the last sample, and by which signal. The first sample has nothing to be
    /// compared with.
    pub fn seen(&mut self, path: Path) -> Option<Signal> {
        let before = self.last.replace(path)?;
        let worse = path.state >= CaState::Cwr && path.state > before.state;
        let marked = path.marked_segments != before.marked_segments;
        let resent = path.resent_segments != before.resent_segments;
        // The episode may be over already; then the threshold tells. A changed threshold alone may be a cut that was
        // undone.
        let cut = path.threshold_bytes.is_some() && path.threshold_bytes != before.threshold_bytes;
        let signal = match path.state {
            CaState::Loss => Signal::Timeout,
            CaState::Recovery => Signal::DupAcks,
            _ if resent && !marked => Signal::DupAcks,
            _ => Signal::Ecn,
        };
        (worse || cut && (marked || resent)).then_some(signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Path = Path {
        state: CaState::Open,
        cwnd_bytes: 100_000,
        threshold_bytes: None,
        rtt_min_us: 100_000,
        marked_segments: 0,
        resent_segments: 0,
    };

    fn signals(paths: &[Path]) -> Vec<Option<Signal>> {
        let mut watch = Watch::default();
        paths.iter().map(|path| watch.seen(*path)).collect()
    }

    #[test]
    fn a_cut_is_told_once_whether_it_is_seen_under_way_or_afterwards() {
        let cut = Path {
            state: CaState::Cwr,
            threshold_bytes: Some(50_000),
            marked_segments: 3,
            ..CALM
        };
        let over = Path {
            state: CaState::Open,
            cwnd_bytes: 50_000,
            ..cut
        };
        let grown = Path {
            cwnd_bytes: 60_000,
            ..over
        };
        let told = Some(Signal::Ecn);
        assert_eq!(
            signals(&[CALM, cut, cut, over, grown]),
            [None, told, None, None, None]
        );
        assert_eq!(
            signals(&[CALM, over, grown]),
            [None, told, None],
            "missed under way"
        );
    }

    #[test]
    fn losses_differ_from_marks_and_disorder_means_nothing() {
        let disorder = Path {
            state: CaState::Disorder,
            ..CALM
        };
        let lost = Path {
            state: CaState::Recovery,
            threshold_bytes: Some(50_000),
            resent_segments: 1,
            ..CALM
        };
        let silent = Path {
            state: CaState::Loss,
            threshold_bytes: Some(2_896),
            resent_segments: 2,
            ..CALM
        };
        let (dup_acks, timeout) = (Some(Signal::DupAcks), Some(Signal::Timeout));
        assert_eq!(
            signals(&[CALM, disorder, lost, silent]),
            [None, None, dup_acks, timeout]
        );
        let over = Path {
            state: CaState::Open,
            ..lost
        };
        assert_eq!(signals(&[CALM, over]), [None, dup_acks]);
        let undone = Path {
            threshold_bytes: Some(90_000),
            ..over
        };
        assert_eq!(signals(&[CALM, over, undone])[2], None, "taken back");
    }

    #[test]
    fn a_window_bounds_the_rate_and_bbr_has_none() {
        let cut = Path {
            state: CaState::Cwr,
            threshold_bytes: Some(50_000),
            ..CALM
        };
        assert_eq!(cut.most_bytes_per_s(), Some(750_000));
        let over = Path {
            state: CaState::Open,
            cwnd_bytes: 90_000,
            ..cut
        };
        assert_eq!(over.most_bytes_per_s(), Some(900_000), "it has grown");
        assert_eq!(CALM.most_bytes_per_s(), None);
        let unmeasured = Path {
            rtt_min_us: 0,
            ..cut
        };
        assert_eq!(unmeasured.most_bytes_per_s(), None);
    }
}
