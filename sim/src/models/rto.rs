//! When TCP gives up waiting for an ACK, as Linux computes it. A server reads this from its kernel (`tcpi_rto`); a
//! simulation has to compute it.

use ackpace_core::units::US_PER_S;

/// The least retransmission timeout of Linux, and of its papers. Below: it counts as this.
pub const RTO_US_MIN: u64 = 200_000;
/// The longest (RFC 6298, 2.5: at least 60 s). Above: it counts as this.
pub const RTO_US_MAX: u64 = 120 * US_PER_S;

/// SRTT and RTTVAR as Linux keeps them (net/ipv4/tcp_input.c, `tcp_rtt_estimator`). They differ from RFC 6298 in three ways. The
/// 200 ms are a floor of the deviation, not of the timeout. The deviation that counts is the largest of the last round
/// trip: it rises at once, and falls by a quarter in a round trip. A round trip that is shorter than expected
/// moves the deviation an eighth as much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxSmoothed {
    /// Eight times SRTT.
    srtt_eighths_us: u64,
    /// Four times the mean deviation, like all that follow.
    deviation_us: u64,
    /// The largest in this round trip.
    deviation_us_max: u64,
    /// `tcpi_rttvar` is a quarter of it.
    rttvar_us: u64,
}

impl LinuxSmoothed {
    /// After the first measured round trip.
    pub fn first(rtt_us: u64) -> LinuxSmoothed {
        let rtt_us = rtt_us.clamp(1, RTO_US_MAX);
        let rttvar_us = (2 * rtt_us).max(RTO_US_MIN); // RTO = 3 RTT
        LinuxSmoothed {
            srtt_eighths_us: 8 * rtt_us,
            deviation_us: 2 * rtt_us,
            deviation_us_max: rttvar_us,
            rttvar_us,
        }
    }

    /// Another measured round trip.
    pub fn sample(&mut self, rtt_us: u64) {
        let rtt_us = rtt_us.min(RTO_US_MAX);
        let srtt_us = self.srtt_eighths_us / 8;
        let error_us = srtt_us.abs_diff(rtt_us);
        self.srtt_eighths_us = (self.srtt_eighths_us + rtt_us)
            .saturating_sub(srtt_us)
            .max(8);
        let mean_us = self.deviation_us / 4;
        match error_us.checked_sub(mean_us) {
            Some(more_us) if rtt_us < srtt_us => self.deviation_us += more_us / 8,
            Some(more_us) => self.deviation_us += more_us,
            None => self.deviation_us -= mean_us - error_us,
        }
        self.deviation_us_max = self.deviation_us_max.max(self.deviation_us);
        self.rttvar_us = self.rttvar_us.max(self.deviation_us_max);
    }

    /// All that was in flight when this was called last is acknowledged: a round trip is over.
    pub fn round(&mut self) {
        self.rttvar_us -= self.rttvar_us.saturating_sub(self.deviation_us_max) / 4;
        self.deviation_us_max = RTO_US_MIN;
    }

    /// SRTT, `tcpi_rtt`.
    pub fn srtt_us(&self) -> u64 {
        self.srtt_eighths_us / 8
    }

    /// SRTT + max(200 ms, the deviation), at most 120 s (`__tcp_set_rto`).
    pub fn rto_us(&self) -> u64 {
        (self.srtt_eighths_us / 8 + self.rttvar_us).min(RTO_US_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_by_hand() {
        // The deviation starts at twice the round trip.
        assert_eq!(LinuxSmoothed::first(400_000).rto_us(), 1_200_000);
        // 4 * mdev = 200 + (80 - 50) = 230 ms, above the floor.
        let mut linux = LinuxSmoothed::first(100_000);
        linux.sample(180_000);
        assert_eq!(linux.rto_us(), 110_000 + 230_000);
    }

    #[test]
    fn a_steady_path_reaches_the_floor_of_the_deviation() {
        let mut linux = LinuxSmoothed::first(300_000);
        for _ in 0..200 {
            linux.sample(10_000);
            linux.round();
        }
        let linux_us = linux.rto_us();
        assert!((210_000..210_100).contains(&linux_us), "{linux_us}");
    }

    #[test]
    fn the_deviation_rises_at_once_and_falls_by_the_round() {
        let mut linux = LinuxSmoothed::first(100_000);
        linux.sample(500_000); // SRTT 150; 4 mdev = 200 + (400 - 50) = 550
        assert_eq!(linux.rto_us(), 150_000 + 550_000);
        for _ in 0..20 {
            linux.sample(150_000);
        }
        assert_eq!(linux.rttvar_us, 550_000, "not within the round trip");
        linux.round();
        assert_eq!(linux.rttvar_us, 550_000, "the largest was of that one");
        linux.round();
        assert_eq!(linux.rttvar_us, 550_000 - 350_000 / 4);
        let before = linux.deviation_us;
        linux.sample(0);
        assert!(
            linux.deviation_us <= before + 150_000 / 8,
            "shorter is no danger"
        );
    }

    proptest! {
        #[test]
        fn any_round_trips_give_a_timeout_within_bounds(rtts_us in prop::collection::vec(any::<u64>(), 1..40)) {
            let mut linux = LinuxSmoothed::first(rtts_us[0]);
            for rtt_us in rtts_us {
                linux.sample(rtt_us);
                if rtt_us % 2 == 0 {
                    linux.round();
                }
                prop_assert!((RTO_US_MIN..=RTO_US_MAX).contains(&linux.rto_us()));
            }
        }
    }
}
