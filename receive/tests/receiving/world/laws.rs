//! Equations 1 to 12 of Wu and Crawford, with their own numbers as tests. Equation 8 is in `share/src/law.rs`, and 9 to 11
//! are in `sim/src/models/rto.rs`.

use ackpace_share::law::{Conditions, Window};

pub use ackpace_sim::models::rto::Smoothed;

/// Eq. 1, and 3-1 as its bound of T_wait: the least time until an expired process runs again, that is the slices of
/// the N1 processes left in the active array, and of the N2 in the expired one that come before it.
pub fn backlog_wait_us(active_us: &[u64], expired_before_us: &[u64]) -> u64 {
    active_us.iter().chain(expired_before_us).sum()
}

/// Eq. 2, and 3-2 as its bound of T_wait: the slices of the N3 processes of higher priority.
///
/// Linux 2.6 bounds it: after 150 ms the timer of delayed ACKs processes the prequeue (`tcp_prequeue`,
/// `tcp_delack_timer`), which the paper does not say.
pub fn prequeue_wait_us(higher_us: &[u64]) -> u64 {
    higher_us.iter().sum()
}

/// What a round trip consists of (eqs. 4 and 5), microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundTrip {
    /// T_t: transmission.
    pub transmit_us: u64,
    /// T_pd: propagation.
    pub propagate_us: u64,
    /// T_q: queues of routers.
    pub queue_us: u64,
    /// T_pp: processing.
    pub process_us: u64,
}

impl RoundTrip {
    /// Eq. 4; with a wait at the receiver, eq. 5.
    pub fn us(&self, wait_us: u64) -> u64 {
        self.transmit_us + self.propagate_us + self.queue_us + self.process_us + wait_us
    }

    /// Eq. 12: the sender's timer expires although nothing was lost.
    pub fn times_out(&self, wait_us: u64, rto_us: u64) -> bool {
        self.us(wait_us) > rto_us
    }
}

/// E and Var of samples, for eqs. 6 and 7.
pub fn mean_and_variance(samples: &[f64]) -> (f64, f64) {
    let count = samples.len().max(1) as f64;
    let mean = samples.iter().sum::<f64>() / count;
    let variance = samples
        .iter()
        .map(|one| (one - mean) * (one - mean))
        .sum::<f64>()
        / count;
    (mean, variance)
}

/// Eq. 8: BW = MSS / RTT * C / sqrt(p).
pub fn mathis(path: &Conditions, c: f64) -> Window {
    path.mathis(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::o1::slice_ticks;
    use ackpace_share::law::{Acks, Loss};
    use ackpace_sim::models::rto::{RTO_US_MAX, RTO_US_MIN};

    const LAN: RoundTrip = RoundTrip {
        transmit_us: 12,
        propagate_us: 180,
        queue_us: 0,
        process_us: 8,
    };

    #[test]
    fn ten_processes_of_nice_0_hold_a_packet_for_a_second() {
        let slices_us = [slice_ticks(0) * 1_000; 10];
        assert_eq!(backlog_wait_us(&slices_us[..6], &slices_us[6..]), 1_000_000);
        assert_eq!(prequeue_wait_us(&slices_us[..3]), 300_000);
        assert_eq!(prequeue_wait_us(&[]), 0);
    }

    #[test]
    fn waits_add_to_round_trips_in_mean_and_variance() {
        assert_eq!((LAN.us(0), LAN.us(1_000_000)), (200, 1_000_200));
        let queues = [0.0, 40.0, 90.0, 10.0];
        let waits = [0.0, 1_000_000.0];
        let (short, long): (Vec<f64>, Vec<f64>) = queues
            .iter()
            .flat_map(|queue| waits.map(|wait| (200.0 + queue, 200.0 + queue + wait)))
            .unzip();
        let (short, long) = (mean_and_variance(&short), mean_and_variance(&long));
        let wait = mean_and_variance(&waits);
        assert!((long.0 - short.0 - wait.0).abs() < 1e-3, "eq. 6");
        assert!(
            (long.1 / (short.1 + wait.1) - 1.0).abs() < 1e-9,
            "eq. 7, since they are independent"
        );
    }

    #[test]
    fn bandwidth_falls_as_the_round_trip_grows() {
        let path = |rtt_us| Conditions {
            mss_bytes: 1_448,
            rtt_us,
            loss: Loss::new(1e-4),
            acks: Acks::Each,
        };
        let fast = mathis(&path(LAN.us(0)), 1.0).bytes_per_s();
        let slow = mathis(&path(LAN.us(1_800)), 1.0).bytes_per_s();
        assert_eq!(
            (fast, slow),
            (724_000_000, 72_400_000),
            "ten times as long, a tenth"
        );
    }

    #[test]
    fn the_timeout_is_200_ms_to_120_s_and_learns_of_a_wait() {
        assert_eq!((RTO_US_MIN, RTO_US_MAX), (200_000, 120_000_000));
        let mut smoothed = Smoothed::first(LAN.us(0));
        (0..100).for_each(|_| smoothed.sample(LAN.us(0)));
        assert_eq!(smoothed.rto_paper_us(), 200_000);
        smoothed.sample(LAN.us(1_000_000));
        // SRTT 200 + 1e6/8, RTTVAR 1e6/4.
        let rto_us = smoothed.rto_paper_us();
        assert!(rto_us.abs_diff(125_200 + 4 * 250_000) < 20, "{rto_us}");
        (0..100).for_each(|_| smoothed.sample(200_000_000));
        assert_eq!(smoothed.rto_paper_us(), 120_000_000);
    }

    #[test]
    fn two_slices_are_one_too_many() {
        let rto_us = 200_000;
        for (others, times_out) in [(0, false), (1, false), (2, true), (10, true)] {
            let wait_us = backlog_wait_us(&vec![100_000; others], &[]);
            assert_eq!(LAN.times_out(wait_us, rto_us), times_out, "{others}");
        }
    }

    /// What the paper's tables say of each other: megabytes of 2^20 bytes over a rate give iperf's own time, which it prints
    /// as 20 s. It ends with the last write, so later where the receiver stands still.
    #[test]
    fn times_of_the_papers_tables() {
        let s = |mbytes: f64, mbits: f64| mbytes * 1_048_576.0 * 8.0 / 1e6 / mbits;
        for (mbytes, mbits, took_s) in [
            (1_198.0, 504.0, 20.0),
            (174.0, 72.1, 20.2),
            (220.0, 88.8, 20.8),
        ] {
            assert!((s(mbytes, mbits) - took_s).abs() < 0.1, "{mbytes}, {mbits}");
        }
        // Table 4 counts packets, Table 3 bytes: between 1,448 of payload and 1,500 of a packet.
        for (mbytes, packets) in [(1_198.0, 863_065.0), (174.0, 124_712.0), (220.0, 157_798.0)] {
            let bytes: f64 = mbytes * 1_048_576.0 / packets;
            assert!((1_440.0..1_480.0).contains(&bytes), "{bytes}");
        }
    }

    /// Table 7: each share of the CPU carries 504 Mbit/s for all of it, as Table 3's BL0 does, to 3 %. And what the
    /// receiver has beyond its fair share is a head start of about a second, whatever the number of others.
    #[test]
    fn table_7_is_bl0_by_the_share_and_a_head_start() {
        for (others, mbits, share) in [
            (1.0, 265.0, 0.5258),
            (3.0, 143.0, 0.2838),
            (4.0, 117.0, 0.238),
            (9.0, 70.0, 0.1386),
        ] {
            let whole: f64 = mbits / share;
            assert!((whole / 504.0 - 1.0).abs() < 0.03, "{others}: {whole}");
            let fair = 1.0 / (others + 1.0);
            let alone_s: f64 = 20.0 * (share - fair) / (1.0 - fair);
            assert!((0.8..1.1).contains(&alone_s), "{others}: {alone_s}");
        }
    }
}
