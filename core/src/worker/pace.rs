//! What TCP said last about a connection, for operators: how many bytes arrived in the last seconds, and how long its
//! socket held some. It decides nothing. B_n ([`crate::rate`]) is an estimate; this is what happened.

use crate::conn::TcpSample;
use crate::units::{Instant, US_PER_S};

/// The rate shown for a connection is that of this time, or of up to twice as long: windows open in steps. When nothing has
/// arrived for twice as long, it is 0.
const SHOWN_US: u64 = 4 * US_PER_S;

/// How many bytes of a connection had arrived at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    at: Instant,
    acked_bytes: u64,
}

/// The last seconds of one connection. Marks are set when bytes arrive. A client that reads at its own pace opens its
/// window in steps of up to half a receive buffer, so its rate is what arrived from the end of one step to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecentArrivals {
    /// The rate shown is measured from here.
    from: Mark,
    /// The mark that replaces `from`.
    next: Mark,
    /// The last time bytes arrived, as far as is known.
    last: Mark,
    /// Time of the last sample.
    heard_at: Instant,
    /// Total time for which the socket had held bytes by then; `None` where nothing counts it.
    busy_us: Option<u64>,
}

impl RecentArrivals {
    /// A new connection.
    pub fn new(now: Instant) -> RecentArrivals {
        RecentArrivals::from_here(now, 0)
    }

    /// A connection of which so much has arrived; it says nothing about the rate from now on.
    pub fn from_here(at: Instant, acked_bytes: u64) -> RecentArrivals {
        let mark = Mark { at, acked_bytes };
        RecentArrivals {
            from: mark,
            next: mark,
            last: mark,
            heard_at: at,
            busy_us: None,
        }
    }

    /// A response begins, after `given_bytes` in all were given to the socket. If the last sample is long ago, those
    /// have arrived, and the time between counts for no response.
    pub fn begin(&mut self, given_bytes: u64, now: Instant) {
        if now.since_us(self.heard_at.max(self.last.at)) > SHOWN_US {
            *self = RecentArrivals::from_here(now, given_bytes);
        }
    }

    /// A TCP_INFO sample. Returns how long the socket held nothing since the last one, or nothing but a corked rest; `None` where
    /// nothing counts it.
    pub fn heard(&mut self, sample: &TcpSample, acked_bytes: u64, now: Instant) -> Option<u64> {
        let us = now.since_us(core::mem::replace(&mut self.heard_at, now));
        if acked_bytes > self.last.acked_bytes {
            let at = now.minus_us(arrived_ago_us(sample).min(us));
            if at.since_us(self.next.at) >= SHOWN_US {
                (self.from, self.next) = (self.next, self.last);
            }
            self.last = Mark { at, acked_bytes };
        }
        let busy_us = sample.flow.map(|flow| flow.busy_us);
        let was = core::mem::replace(&mut self.busy_us, busy_us);
        // Ignore counters that go backwards.
        let busy_us = busy_us?.checked_sub(was?)?;
        Some(us.saturating_sub(busy_us).max(corked_us(sample).min(us)))
    }

    /// Rate at which bytes arrived in the last seconds, bytes per second; during a connection's first second, the bytes
    /// so far.
    pub fn bytes_per_s(&self, now: Instant) -> u64 {
        if now.since_us(self.last.at) >= 2 * SHOWN_US {
            return 0;
        }
        let bytes = self.last.acked_bytes - self.from.acked_bytes;
        let us = self.last.at.since_us(self.from.at).max(US_PER_S);
        let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// How long ago the last bytes arrived, at most, as far as TCP tells: a round trip after they were sent.
fn arrived_ago_us(sample: &TcpSample) -> u64 {
    let flow = sample.flow;
    flow.map_or(0, |flow| flow.quiet_us.saturating_sub(sample.rtt_us))
}

/// Whether a socket holds nothing that its client could get now. A cork (tcp(7)) holds back a partial segment until
/// more follows.
pub(super) fn is_drained(sample: &TcpSample) -> bool {
    let unsent_bytes = sample.unsent_bytes.unwrap_or(sample.unacked_bytes);
    let corked = |flow: crate::rate::Flow| {
        unsent_bytes < flow.segment_bytes && unsent_bytes <= flow.window_bytes
    };
    sample.unacked_bytes <= unsent_bytes && (unsent_bytes == 0 || sample.flow.is_some_and(corked))
}

/// For how long a socket has held nothing but a corked rest: TCP counts that time as busy. Its last segment was acknowledged a round
/// trip after it was sent.
fn corked_us(sample: &TcpSample) -> u64 {
    match is_drained(sample) && sample.unacked_bytes > 0 {
        true => arrived_ago_us(sample),
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Flow;
    use proptest::prelude::*;

    const MS: u64 = 1000;

    fn at(ms: u64) -> Instant {
        Instant { us: ms * MS }
    }

    #[test]
    fn time_with_nothing_but_a_corked_rest_is_idle() {
        let sample = |unacked_bytes, busy_ms| TcpSample {
            unacked_bytes,
            unsent_bytes: Some(700),
            rtt_us: 20 * MS,
            flow: Some(Flow {
                busy_us: busy_ms * MS,
                quiet_us: 420 * MS,
                window_bytes: 64_000,
                segment_bytes: 1_448,
                ..Flow::default()
            }),
            ..TcpSample::default()
        };
        let idle_us = |unacked_bytes, ms| {
            let mut shown = RecentArrivals::new(at(0));
            shown.heard(&sample(unacked_bytes, 0), 0, at(0));
            shown.heard(&sample(unacked_bytes, ms), 0, at(ms))
        };
        assert_eq!(idle_us(700, 500), Some(400 * MS), "after the last ACK");
        assert_eq!(idle_us(700, 300), Some(300 * MS), "since the last sample");
        assert_eq!(idle_us(2_148, 500), Some(0), "a segment is in flight");
    }

    fn busy(busy_us: u64) -> TcpSample {
        let flow = Flow {
            busy_us,
            segment_bytes: 1448,
            window_bytes: 64 << 10,
            ..Flow::default()
        };
        TcpSample {
            flow: Some(flow),
            unsent_bytes: Some(0),
            ..TcpSample::default()
        }
    }

    #[test]
    fn a_burst_into_a_receive_buffer_is_gone_from_what_is_shown_after_seconds() {
        let mut pace = RecentArrivals::new(at(0));
        for ms in (100..20_000).step_by(100) {
            let acked_bytes = 14_000_000 + ms * 1000;
            pace.heard(&TcpSample::default(), acked_bytes, at(ms));
            if ms > 2 * SHOWN_US / MS + 200 {
                assert_eq!(pace.bytes_per_s(at(ms)), 1_000_000, "after {ms} ms");
            }
        }
        assert_eq!(pace.bytes_per_s(at(27_900)), 0, "it stands still");
    }

    #[test]
    fn a_window_that_opens_in_steps_of_seconds_is_no_unsteady_client() {
        // 1 MB/s by half a receive buffer of 6 MB, asked every 400 ms.
        let mut pace = RecentArrivals::new(at(0));
        for ms in (400..40_000).step_by(400) {
            let acked_bytes = 6_000_000 + ms / 3_000 * 3_000_000;
            pace.heard(&TcpSample::default(), acked_bytes, at(ms));
            let shown = pace.bytes_per_s(at(ms));
            if ms > 12_000 {
                assert!(
                    (800_000..1_200_000).contains(&shown),
                    "{shown} after {ms} ms"
                );
            }
        }
    }

    #[test]
    fn what_arrived_before_a_pause_is_not_of_the_next_response() {
        let mut pace = RecentArrivals::new(at(0));
        pace.heard(&TcpSample::default(), 1_000_000, at(500));
        assert_eq!(pace.bytes_per_s(at(500)), 1_000_000, "of its first second");
        // No sample was taken of its last 9 MB.
        pace.begin(10_000_000, at(60_000));
        pace.heard(&TcpSample::default(), 10_500_000, at(61_000));
        assert_eq!(pace.bytes_per_s(at(61_000)), 500_000);
    }

    #[test]
    fn a_socket_is_dry_for_as_long_as_it_was_not_busy() {
        let mut pace = RecentArrivals::new(at(0));
        assert_eq!(
            pace.heard(&busy(0), 0, at(100)),
            None,
            "nobody counted before"
        );
        assert_eq!(pace.heard(&busy(300 * MS), 0, at(1100)), Some(700 * MS));
        assert_eq!(pace.heard(&busy(MS), 0, at(1200)), None, "backwards");
    }

    #[test]
    fn what_is_in_flight_or_waits_for_a_window_is_not_dry_and_a_corked_head_is() {
        let sample = |unacked_bytes, unsent_bytes, window_bytes| {
            let mut sample = busy(0);
            sample.unacked_bytes = unacked_bytes;
            sample.unsent_bytes = Some(unsent_bytes);
            sample.flow = sample.flow.map(|flow| Flow {
                window_bytes,
                ..flow
            });
            sample
        };
        assert!(is_drained(&sample(0, 0, 0)));
        assert!(is_drained(&sample(300, 300, 64 << 10)), "a head");
        assert!(!is_drained(&sample(300, 300, 0)), "its window is closed");
        assert!(!is_drained(&sample(300, 0, 64 << 10)), "in flight");
        assert!(!is_drained(&sample(1448, 1448, 64 << 10)), "a full segment");
        let unix = |unacked_bytes| TcpSample {
            unacked_bytes,
            ..TcpSample::default()
        };
        assert!(is_drained(&unix(0)) && !is_drained(&unix(1)));
    }

    proptest! {
        #[test]
        fn a_steady_client_is_shown_as_it_is_however_seldom_it_is_asked(
            bytes_per_s in 1u64..1 << 40,
            each_ms in 10u64..1500,
            burst_bytes in 0u64..1 << 30,
        ) {
            let mut pace = RecentArrivals::new(at(0));
            let mut now = at(0);
            while now.us < 3 * SHOWN_US + 3 * each_ms * MS {
                now = now.plus_us(each_ms * MS);
                let acked = burst_bytes + (u128::from(bytes_per_s) * u128::from(now.us) / 1_000_000) as u64;
                pace.heard(&TcpSample::default(), acked, now);
            }
            // A tick of rounding at either end.
            prop_assert!(pace.bytes_per_s(now).abs_diff(bytes_per_s) <= 1, "{pace:?}");
            // Until it stalls.
            let later = now.plus_us(2 * SHOWN_US);
            prop_assert_eq!(pace.bytes_per_s(later), 0);
        }

        #[test]
        fn samples_that_lie_break_nothing(
            samples in proptest::collection::vec((0u64..10 * SHOWN_US, any::<u64>(), proptest::option::of(any::<u64>()), any::<bool>()), 0..50),
        ) {
            let mut pace = RecentArrivals::new(at(0));
            let mut now = at(0);
            for (us, acked_bytes, busy_us, begins) in samples {
                now = now.plus_us(us);
                let sample = busy_us.map_or_else(TcpSample::default, busy);
                let idle_us = pace.heard(&sample, acked_bytes, now);
                prop_assert!(idle_us.unwrap_or(0) <= us);
                if begins {
                    pace.begin(acked_bytes, now);
                }
                pace.bytes_per_s(now.plus_us(us));
            }
        }
    }
}
