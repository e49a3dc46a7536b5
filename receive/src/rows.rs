//! What the program in the kernel counts (`receive/src/bpf/receive.h`), read from its maps. Numbers are in the byte order of
//! this machine.

use ackpace_host_base::fields::Fields;
use serde::Serialize;

/// Segments of a connection that wait at once (`ARRIVALS_MAX`): a receive buffer of 6 MB takes some 100 as a network card
/// merges them, and 4,000 where none are merged. More: not measured, and counted.
const ARRIVALS_MAX: usize = 1_024;
/// Bytes of `struct row_key`.
const ROW_KEY_BYTES: usize = 8;
/// Bytes of `struct watched` before its ring, and of a `struct arrival` in that.
const WATCHED_HEAD_BYTES: usize = 160;
const ARRIVAL_BYTES: usize = 16;
/// Of its head, between what the copying core writes and what the other one does.
const APART_BYTES: usize = 68;
const AGAIN: u8 = 2;

/// Upper ends of the first five bins, nanoseconds; the sixth has none. They are those of Wu and Crawford's Table 4.
const ENDS_NS: [u64; 5] = [
    1_000_000,
    10_000_000,
    100_000_000,
    200_000_000,
    1_000_000_000,
];

/// Counts by duration: < 1 ms, 1-10 ms, 10-100 ms, 100-200 ms, 200 ms-1 s, > 1 s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bins(pub [u64; 6]);

impl Bins {
    /// How each is headed.
    pub const NAMES: [&str; 6] = ["<1ms", "1-10ms", "10-100ms", "100-200ms", "200ms-1s", ">1s"];

    /// Counts one duration, `times`.
    pub fn add(&mut self, ns: u64, times: u64) {
        let bin = ENDS_NS.iter().take_while(|end| ns >= **end).count();
        self.0[bin] += times;
    }

    /// Six counts.
    pub fn of(fields: &mut Fields<'_>) -> Bins {
        Bins(std::array::from_fn(|_| fields.long()))
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// A service as one of its ends sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Its port.
    pub port: u16,
    /// The port is that of the other end: this process is its client.
    pub is_peer: bool,
}

/// Which process receives, and of which service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// The process; 0: nobody has read from the connection yet.
    pub pid: u32,
    /// The service.
    pub service: Service,
}

/// What a connection has now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Who reads from it.
    pub who: Who,
    /// Its segments that were not copied yet, by age.
    pub waiting: Bins,
    /// Its receive queue.
    pub queue_bytes: u32,
    /// How far its segments out of order reach.
    pub gap_bytes: u32,
    /// As in a row, and not yet in one, as all that follows.
    pub again: u64,
    /// See above.
    pub unmeasured: u64,
    /// See above.
    pub queue_bytes_most: u32,
    /// See above.
    pub backlog_bytes_most: u32,
    /// See above.
    pub gap_bytes_most: u32,
}

/// `struct queues`: those of a connection at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueueSample {
    at_ns: u64,
    queue_bytes: u32,
    backlog_bytes: u32,
    gap_bytes: u32,
}

/// The sender of a service, if it is on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sender {
    /// Expiries of its retransmission timer.
    pub timeouts: u64,
    /// The timeout that follows from its last round trips, without backoff.
    pub rto_us: u32,
    /// The largest seen.
    pub rto_us_most: u32,
}

impl QueueSample {
    fn of(fields: &mut Fields<'_>) -> QueueSample {
        let queues = QueueSample {
            at_ns: fields.long(),
            queue_bytes: fields.word(),
            backlog_bytes: fields.word(),
            gap_bytes: fields.word(),
        };
        fields.word();
        queues
    }
}

impl Service {
    /// From a `struct service`.
    pub fn parse(bytes: &[u8]) -> Service {
        Service::of(&mut Fields(bytes))
    }

    fn of(fields: &mut Fields<'_>) -> Service {
        Service {
            port: fields.half(),
            is_peer: fields.half() != 0,
        }
    }
}

impl Who {
    /// From a `struct row_key`.
    pub fn parse(bytes: &[u8]) -> Who {
        let mut fields = Fields(bytes);
        Who {
            pid: fields.word(),
            service: Service::of(&mut fields),
        }
    }
}

impl Watched {
    /// From a `struct watched`, as of `now_ns` of the kernel's monotonic clock.
    pub fn parse(bytes: &[u8], now_ns: u64) -> Watched {
        let mut fields = Fields(bytes);
        let who = Who::parse(&fields.take::<ROW_KEY_BYTES>());
        let left = QueueSample::of(&mut fields);
        let copied = fields.word();
        fields.take::<APART_BYTES>();
        let queues = QueueSample::of(&mut fields).max(left); // the later ones
        let [arrived, _, _, again, unmeasured] = std::array::from_fn(|_| fields.word());
        let mut watched = Watched {
            who,
            waiting: Bins::default(),
            queue_bytes: queues.queue_bytes,
            gap_bytes: queues.gap_bytes,
            again: again.into(),
            unmeasured: unmeasured.into(),
            queue_bytes_most: fields.word(),
            backlog_bytes_most: fields.word(),
            gap_bytes_most: fields.word(),
        };
        // While it is read it may be written to: never more than the ring has.
        let waiting = arrived.wrapping_sub(copied).min(ARRIVALS_MAX as u32);
        for nth in 0..waiting {
            let at = copied.wrapping_add(nth) as usize % ARRIVALS_MAX;
            let slot = bytes
                .get(WATCHED_HEAD_BYTES + at * ARRIVAL_BYTES..)
                .unwrap_or(&[]);
            let mut fields = Fields(slot);
            let (at_ns, _, segments) = (fields.long(), fields.word(), fields.half());
            let [_, flags] = fields.take();
            if flags & AGAIN == 0 {
                watched
                    .waiting
                    .add(now_ns.saturating_sub(at_ns), segments.into());
            }
        }
        watched
    }
}

impl Sender {
    /// From a `struct sender`.
    pub fn parse(bytes: &[u8]) -> Sender {
        let mut fields = Fields(bytes);
        Sender {
            timeouts: fields.long(),
            rto_us: fields.word(),
            rto_us_most: fields.word(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bins_are_those_of_the_paper() {
        let mut bins = Bins::default();
        for (ns, bin) in [
            (0, 0),
            (999_999, 0),
            (1_000_000, 1),
            (9_999_999, 1),
            (10_000_000, 2),
            (100_000_000, 3),
            (200_000_000, 4),
            (999_999_999, 4),
            (1_000_000_000, 5),
            (u64::MAX, 5),
        ] {
            let before = bins.0[bin];
            bins.add(ns, 3);
            assert_eq!(bins.0[bin], before + 3, "{ns}");
        }
        assert_eq!(bins.total(), 30);
    }

    fn watched(copied: u32, arrivals: &[(u64, u16, u8)]) -> Vec<u8> {
        let arrived = copied.wrapping_add(arrivals.len() as u32);
        let mut words = vec![7, 9_400];
        words.extend([1, 1, 10, 20, 30, 0]); // at the later time: a long, in both byte orders
        words.push(copied);
        words.extend([0; APART_BYTES / 4]);
        words.extend([0, 0, 99, 99, 99, 0]);
        words.extend([arrived, copied, copied, 2, 3, 11, 12, 13]);
        let mut bytes: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        assert_eq!(bytes.len(), WATCHED_HEAD_BYTES);
        bytes.resize(WATCHED_HEAD_BYTES + ARRIVALS_MAX * ARRIVAL_BYTES, 0);
        for (nth, (at_ns, segments, flags)) in arrivals.iter().enumerate() {
            let at = copied.wrapping_add(nth as u32) as usize % ARRIVALS_MAX;
            let slot = &mut bytes[WATCHED_HEAD_BYTES + at * ARRIVAL_BYTES..][..ARRIVAL_BYTES];
            slot[..8].copy_from_slice(&at_ns.to_ne_bytes());
            slot[12..14].copy_from_slice(&segments.to_ne_bytes());
            slot[15] = *flags;
        }
        bytes
    }

    #[test]
    fn what_waits_is_counted_by_age_across_the_end_of_the_ring() {
        let now_ns = 5_000_000_000;
        let arrivals = [
            (1_000_000_000, 4, 0),
            (4_950_000_000, 2, 1),
            (4_960_000_000, 9, AGAIN),
        ];
        let seen = Watched::parse(&watched(u32::MAX, &arrivals), now_ns);
        assert_eq!(seen.waiting, Bins([0, 0, 2, 0, 0, 4]));
        assert_eq!(
            (
                seen.who.pid,
                seen.who.service.port,
                seen.who.service.is_peer
            ),
            (7, 9_400, false)
        );
        assert_eq!((seen.again, seen.unmeasured), (2, 3));
        assert_eq!((seen.queue_bytes, seen.gap_bytes), (10, 30));
        assert_eq!(
            (
                seen.queue_bytes_most,
                seen.backlog_bytes_most,
                seen.gap_bytes_most
            ),
            (11, 12, 13)
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in prop::collection::vec(any::<u8>(), 0..2_000), now_ns in any::<u64>()) {
            let seen = Watched::parse(&bytes, now_ns);
            prop_assert!(seen.waiting.total() <= ARRIVALS_MAX as u64 * u64::from(u16::MAX));
            Who::parse(&bytes);
            Sender::parse(&bytes);
        }
    }
}
