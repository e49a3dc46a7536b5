//! Decides when a client may read how much: without a limit, steadily, or in bursts.

use crate::setup::Reading;

/// Interval of a paced client's reads, if its buffer allows: short enough for a smooth rate, long enough that
/// one core serves thousands of clients.
const PACE_US: u64 = 40_000;
/// Least that a paced client reads at once; a slow one reads less often instead.
const QUANTUM_BYTES_MIN: u64 = 2048;
/// Most that it reads at once.
const QUANTUM_BYTES_MAX: u64 = 256 << 10;
/// Most that a paced client may catch up on after a wait: this fraction of a second of its rate (1/4).
const BURST_PARTS: u64 = 4;

/// A client's pace.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Mean rate; 0 = as fast as possible.
    pub rate_bytes_per_s: u64,
    way: Way,
}

#[derive(Clone, Copy, Debug, Default)]
enum Way {
    #[default]
    Free,
    Steady(Steady),
    Bursts(Bursts),
}

/// A token bucket: tokens are bytes; they arrive at the rate, and reading spends them.
#[derive(Clone, Copy, Debug)]
struct Steady {
    rate_bytes_per_s: u64,
    quantum_bytes: u64,
    /// The instant at which the bucket was empty. Its age times the rate is the present content; an instant in
    /// the future is a debt. In nanoseconds, so that thousands of roundings a second do not change the rate.
    empty_at_ns: u64,
}

/// A fixed number of bytes from the start of each period, as fast as they come.
#[derive(Clone, Copy, Debug)]
struct Bursts {
    len_bytes: u64,
    every_us: u64,
    /// Bytes left of the current burst.
    left_bytes: u64,
    /// Start of the next burst.
    next_us: u64,
}

impl Pace {
    /// A pace that allows one quantum, or a burst, at once.
    pub fn new(reading: Reading, buffer_bytes: Option<u32>, now_us: u64) -> Self {
        let way = match reading {
            Reading::Free | Reading::Steady(0) => Way::Free,
            Reading::Steady(rate) => Way::Steady(Steady::new(rate, buffer_bytes, now_us)),
            Reading::Bursts {
                len_bytes,
                every_us,
            } => Way::Bursts(Bursts {
                len_bytes,
                every_us,
                left_bytes: 0,
                next_us: now_us,
            }),
        };
        Self {
            rate_bytes_per_s: reading.rate_bytes_per_s(),
            way,
        }
    }

    /// True if it reads by the clock.
    pub fn is_paced(&self) -> bool {
        !matches!(self.way, Way::Free)
    }

    /// Discards credit from a time in which nothing was wanted: a pause is not caught up on.
    pub fn restart(&mut self, now_us: u64) {
        if let Way::Steady(steady) = &mut self.way {
            steady.empty_at_ns = steady.empty_at_ns.max(now_us * 1000);
        }
    }

    /// Bytes that may be read now; starts a due burst.
    pub fn room_bytes(&mut self, now_us: u64) -> u64 {
        match &mut self.way {
            Way::Free => u64::MAX,
            Way::Steady(steady) => steady.room_bytes(now_us),
            Way::Bursts(bursts) => bursts.room_bytes(now_us),
        }
    }

    /// Counts bytes that were read.
    pub fn spend(&mut self, bytes: u64) {
        match &mut self.way {
            Way::Free => {}
            Way::Steady(steady) => steady.empty_at_ns += steady.time_ns(bytes),
            Way::Bursts(bursts) => bursts.left_bytes = bursts.left_bytes.saturating_sub(bytes),
        }
    }

    /// The time of the client's next read, with `left_bytes` left of the body. `None`: as soon as data arrives.
    pub fn reads_us(&self, left_bytes: u64) -> Option<u64> {
        match &self.way {
            Way::Free => None,
            Way::Steady(steady) => Some(steady.ready_us(left_bytes)),
            Way::Bursts(bursts) => (bursts.left_bytes == 0).then_some(bursts.next_us),
        }
    }
}

impl Steady {
    fn new(rate_bytes_per_s: u64, buffer_bytes: Option<u32>, now_us: u64) -> Self {
        // A read of more than this part of the buffer would leave the sender with a closed window.
        let most = buffer_bytes.map_or(QUANTUM_BYTES_MAX, |bytes| u64::from(bytes) / 4);
        let smooth = rate_bytes_per_s.saturating_mul(PACE_US) / 1_000_000;
        let quantum_bytes = smooth.min(most).clamp(QUANTUM_BYTES_MIN, QUANTUM_BYTES_MAX);
        let mut steady = Self {
            rate_bytes_per_s,
            quantum_bytes,
            empty_at_ns: 0,
        };
        steady.empty_at_ns = (now_us * 1000).saturating_sub(steady.time_ns(quantum_bytes));
        steady
    }

    fn room_bytes(&mut self, now_us: u64) -> u64 {
        let burst = (self.rate_bytes_per_s / BURST_PARTS).max(self.quantum_bytes);
        let now_ns = now_us * 1000;
        let oldest_ns = now_ns.saturating_sub(self.time_ns(burst));
        self.empty_at_ns = self.empty_at_ns.max(oldest_ns);
        let age_ns = now_ns.saturating_sub(self.empty_at_ns);
        (u128::from(age_ns) * u128::from(self.rate_bytes_per_s) / 1_000_000_000) as u64
    }

    /// The time at which a quantum may be read, or the rest of the body if that is shorter.
    fn ready_us(&self, left_bytes: u64) -> u64 {
        let next = self.quantum_bytes.min(left_bytes.max(1));
        (self.empty_at_ns + self.time_ns(next)).div_ceil(1000)
    }

    fn time_ns(&self, bytes: u64) -> u64 {
        let time = u128::from(bytes) * 1_000_000_000;
        time.div_ceil(u128::from(self.rate_bytes_per_s.max(1))) as u64
    }
}

impl Bursts {
    fn room_bytes(&mut self, now_us: u64) -> u64 {
        if self.left_bytes == 0 && now_us >= self.next_us {
            self.left_bytes = self.len_bytes;
            // Late timers do not shift the period. A burst that took longer than its period is not caught up
            // on.
            let kept_us = self.next_us + self.every_us;
            self.next_us = if kept_us > now_us {
                kept_us
            } else {
                now_us + self.every_us
            };
        }
        self.left_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_pace_never_gives_more_than_its_rate_and_a_burst(
            rate in 1u64..1 << 28,
            steps in proptest::collection::vec(0u64..200_000, 1..100),
        ) {
            let mut pace = Pace::new(Reading::Steady(rate), None, 1_000_000);
            let (mut now_us, mut read) = (1_000_000, 0u64);
            for step in steps {
                now_us += step;
                let room = pace.room_bytes(now_us);
                pace.spend(room);
                read += room;
                let given = u128::from(now_us - 1_000_000) * u128::from(rate) / 1_000_000;
                let burst = (rate / BURST_PARTS).max(QUANTUM_BYTES_MAX);
                prop_assert!(u128::from(read) <= given + u128::from(burst));
            }
        }

        #[test]
        fn at_the_time_it_names_there_is_room(rate in 8u64..1 << 30, left in 1u64..1 << 30) {
            let mut pace = Pace::new(Reading::Steady(rate), Some(65_536), 1_000_000);
            let room = pace.room_bytes(1_000_000);
            pace.spend(room);
            let ready_us = pace.reads_us(left).unwrap();
            let Way::Steady(Steady { quantum_bytes, .. }) = pace.way else {
                panic!("it is steady");
            };
            prop_assert!(pace.room_bytes(ready_us) >= left.min(quantum_bytes));
        }

        #[test]
        fn bursts_keep_their_mean_however_late_their_timers_are(
            late in proptest::collection::vec(0u64..9_000, 100..101),
        ) {
            let reading = Reading::Bursts { len_bytes: 5000, every_us: 10_000 };
            let mut pace = Pace::new(reading, None, 0);
            prop_assert_eq!(pace.rate_bytes_per_s, 500_000);
            for (nth, late_us) in (0u64..).zip(late) {
                prop_assert_eq!(pace.reads_us(1), Some(nth * 10_000));
                let now_us = nth * 10_000 + late_us;
                prop_assert_eq!(pace.room_bytes(now_us), 5000);
                pace.spend(5000);
            }
        }
    }

    #[test]
    fn a_burst_is_read_as_its_bytes_come_and_one_that_took_too_long_is_not_caught_up_on() {
        let reading = Reading::Bursts {
            len_bytes: 100,
            every_us: 1000,
        };
        let mut pace = Pace::new(reading, None, 0);
        assert_eq!(pace.room_bytes(0), 100);
        pace.spend(60);
        assert_eq!((pace.reads_us(9), pace.room_bytes(2500)), (None, 40));
        pace.spend(40);
        assert_eq!(pace.reads_us(9), Some(1000), "it is due since then");
        assert_eq!(pace.room_bytes(2500), 100);
        pace.spend(100);
        assert_eq!((pace.reads_us(9), pace.room_bytes(3499)), (Some(3500), 0));
    }
}
