//! How long a client's program can go on reading what it has.
//!
//! A client that reads at its own pace keeps in its receive buffer what it has not read. Then its socket is empty, though its program
//! lacks nothing: it is *fed*. The window tells how much is unread (`Gauge::surely_unread_bytes`), but a window may shrink for other reasons.
//! So a connection counts as fed only while samples prove unread bytes, while these become fewer as its rate predicts, and for
//! [`UNREAD_US_MAX`] at a time: large buffers are full by then, and a wrong proof must not last.

use crate::limits::UNREAD_US_MAX;
use crate::prefetch::us_for;
use crate::units::{Instant, bytes_in};

/// The bytes that a client's program has not read, sent or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unread {
    /// At the last sample: in the receive buffer and in our socket; 0: nothing is proven.
    bytes: u64,
    sampled_at: Instant,
    /// Given to the socket since.
    given_bytes: u64,
    /// What the window shows as unread, though at its rate the client must have read all: that is something else.
    doubted_bytes: u64,
    /// When a sample first showed unread bytes; `None`: the last one showed none.
    shown_from: Option<Instant>,
}

impl Unread {
    /// A sample was counted. It proves that `unread_bytes` are in the client's receive buffer. The socket holds `socket_bytes`, unsent and
    /// in flight, and this is the client's rate, bytes per second.
    pub fn sampled(
        &mut self,
        unread_bytes: u64,
        socket_bytes: u64,
        rate_bytes_per_s: u64,
        now: Instant,
    ) {
        let has_read_all = self.bytes > 0 && self.bytes_at(rate_bytes_per_s, now) == 0;
        let doubted_bytes = match has_read_all {
            true => unread_bytes,
            false => self.doubted_bytes.min(unread_bytes),
        };
        let shown_from = (unread_bytes > 0).then(|| self.shown_from.unwrap_or(now));
        let is_old = shown_from.is_some_and(|from| now.since_us(from) > UNREAD_US_MAX);
        *self = Unread {
            bytes: match unread_bytes - doubted_bytes {
                _ if is_old => 0,
                0 => 0,
                bytes => bytes.saturating_add(socket_bytes),
            },
            sampled_at: now,
            given_bytes: 0,
            doubted_bytes,
            shown_from,
        };
    }

    /// The socket took bytes.
    pub fn given(&mut self, bytes: u64) {
        self.given_bytes = self.given_bytes.saturating_add(bytes);
    }

    /// How long the program of a client of this rate, bytes per second, can go on; 0: nothing is proven, or the rate is not known.
    pub fn lasts_us(&self, rate_bytes_per_s: u64, now: Instant) -> u64 {
        match self.bytes == 0 || rate_bytes_per_s == 0 {
            true => 0,
            false => us_for(self.bytes_at(rate_bytes_per_s, now), rate_bytes_per_s),
        }
    }

    /// What is left of the bytes now.
    fn bytes_at(&self, rate_bytes_per_s: u64, now: Instant) -> u64 {
        let read_bytes = bytes_in(now.since_us(self.sampled_at), rate_bytes_per_s);
        (self.bytes.saturating_add(self.given_bytes)).saturating_sub(read_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 100_000;
    const AT: fn(u64) -> Instant = |ms| Instant { us: ms * 1000 };

    fn fed(unread_bytes: u64) -> Unread {
        let mut unread = Unread::default();
        unread.sampled(unread_bytes, 50_000, RATE, AT(0));
        unread
    }

    #[test]
    fn a_client_goes_on_with_what_is_unread_and_what_it_is_given() {
        let mut unread = fed(100_000);
        assert_eq!(unread.lasts_us(RATE, AT(500)), 1_000_000);
        unread.given(100_000);
        assert_eq!(unread.lasts_us(RATE, AT(500)), 2_000_000);
        assert_eq!(unread.lasts_us(RATE, AT(60_000)), 0);
        assert_eq!(unread.lasts_us(0, AT(0)), 0, "its rate is not known");
    }

    #[test]
    fn without_proof_nothing_counts() {
        let mut unread = fed(0);
        unread.given(100_000);
        assert_eq!(unread.lasts_us(RATE, AT(0)), 0);
    }

    #[test]
    fn a_proof_does_not_last() {
        let mut unread = fed(10_000_000);
        let at = |us: u64| Instant { us };
        unread.sampled(10_000_000, 0, RATE, at(UNREAD_US_MAX));
        assert!(unread.lasts_us(RATE, at(UNREAD_US_MAX)) > 0);
        unread.sampled(10_000_000, 0, RATE, at(UNREAD_US_MAX + 1));
        assert_eq!(unread.lasts_us(RATE, at(UNREAD_US_MAX + 1)), 0);
        unread.sampled(0, 0, RATE, at(UNREAD_US_MAX + 2));
        unread.sampled(10_000_000, 0, RATE, at(UNREAD_US_MAX + 3));
        assert!(
            unread.lasts_us(RATE, at(UNREAD_US_MAX + 3)) > 0,
            "a new one"
        );
    }

    /// A window that shrank for another reason than unread bytes shows the same whatever the client reads.
    #[test]
    fn what_never_becomes_less_is_not_unread() {
        let mut unread = fed(100_000);
        unread.sampled(100_000, 0, RATE, AT(3_000));
        assert_eq!(unread.lasts_us(RATE, AT(3_000)), 0);
        unread.given(50_000);
        unread.sampled(150_000, 0, RATE, AT(3_000));
        assert_eq!(unread.lasts_us(RATE, AT(3_000)), 500_000, "but the rest");
        unread.sampled(0, 0, RATE, AT(6_000));
        unread.sampled(100_000, 0, RATE, AT(6_000));
        assert_eq!(
            unread.lasts_us(RATE, AT(6_000)),
            1_000_000,
            "it has grown since"
        );
    }
}
