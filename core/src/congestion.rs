//! What congestion of a path means for reads from a disk: the second half of TPF's EDRC (3.3).
//!
//! A stock kernel calls nobody when it cuts a congestion window. It tells of that when it is asked (TCP_INFO), so a
//! connection that reads from a disk is asked when its socket was given bytes ([`crate::limits::WATCH_US`]), and what it
//! says is held against what it said before ([`Watch`]). A signal of another source would come in by the same door.
//!
//! What follows from it is the operator's choice ([`Delay`]): the paper puts the request off for T_D/2; here the rate is
//! looked at again, and the wish is due when its stream will run dry at that.

use crate::units::US_PER_S;

/// What becomes of a stream's wish when its path is congested. Whatever it is, the next wish goes by the rate measured until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// Its rate is sampled at once, and the wish is dated by that. It is dated anew, too, when the rate falls by itself.
    Rate,
    /// TPF 3.3: the wish keeps its date but for T_D/2 that are added to it, once, if the disk is busy.
    Paper,
    /// Nothing: the wish keeps its date, as a request that was given to a kernel does.
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
    /// The window is being cut: marks of ECN, or a queue of this host was full.
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
    /// `tcpi_snd_ssthresh` likewise: the window after the last cut. `None`: never cut, or cut by a congestion control that
    /// has another idea of it (bbr).
    pub threshold_bytes: Option<u64>,
    /// `tcpi_min_rtt`; 0: not measured yet.
    pub rtt_min_us: u64,
    /// Segments whose ACK told of a mark (`tcpi_delivered_ce`), in all.
    pub marked_segments: u32,
    /// Segments that were sent again (`tcpi_total_retrans`), in all.
    pub resent_segments: u32,
}

impl Path {
    /// What the connection takes at most until the next cut: half as much again as its cut window, which grows, in each of the
    /// shortest round trips. (Longer ones are what queues add, and those become shorter with the window.) A path that loses
    /// segments all the time has this as its mean. `None` where no window binds it.
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

/// A sign of congestion. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Marks (ECN), or a queue of this host that was full.
    Ecn,
    /// Duplicate ACKs: a segment was lost.
    DupAcks,
    /// Silence: the retransmission timer ran out.
    Timeout,
}

impl Signal {
    /// Every one, each at the index of its number.
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

/// What was last seen of a connection's path.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    last: Option<Path>,
}

impl Watch {
    /// Whether the window was cut since the last look, and by what. The first look has nothing to be held against.
    pub fn seen(&mut self, path: Path) -> Option<Signal> {
        let before = self.last.replace(path)?;
        let worse = path.state >= CaState::Cwr && path.state > before.state;
        let marked = path.marked_segments != before.marked_segments;
        let resent = path.resent_segments != before.resent_segments;
        // The episode may be over already: then its threshold tells. That one alone may be a cut that was taken back.
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
