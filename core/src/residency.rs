//! Residency: how bytes that are believed to be in the page cache are sent, so that no worker waits long for a disk.
//!
//! The shell asks the kernel whether a window is in the page cache, and the answer is believed for a second
//! ([`cache`](crate::cache)). A page may be dropped meanwhile, and sendfile(2) would wait for it. On a device whose reads are
//! known to be short ([`latency`]), that is over soon. Elsewhere bytes are copied by reads that never wait ([`means`]).
//! The reasons and the measurements are in docs/decisions/0002-residency.md.

pub mod latency;
pub mod limits;

use crate::conn::ResidencySource;
use crate::units::Instant;
use latency::PageWait;
use limits::{CONFIRMED_US, SEND_WAITED_LONG_US};

/// When the kernel told the version of a file. That holds for the rest of its turn, if that is short: a worker that was off its
/// processor meanwhile knows nothing any more.
#[derive(Clone, Copy, Debug)]
pub struct Confirmation {
    turn: Instant,
    given_at: Instant,
}

impl Confirmation {
    /// An answer that was given now, in the turn that began at `turn`.
    pub fn new(turn: Instant, now: Instant) -> Confirmation {
        let given_at = now;
        Confirmation { turn, given_at }
    }

    /// Whether it still holds now, in this turn.
    pub fn is_valid(&self, turn: Instant, now: Instant) -> bool {
        self.turn == turn && now.since_us(self.given_at) < CONFIRMED_US
    }
}

/// How bytes of the page cache reach the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Means {
    /// By sendfile(2), which waits for a page that was dropped.
    Sendfile,
    /// By preadv2(RWF_NOWAIT) into our own memory, which never waits.
    Copy,
}

/// How to send bytes of a file whose device has this `wait`.
pub fn means(residency: ResidencySource, wait: PageWait) -> Means {
    match (residency, wait) {
        (ResidencySource::Always, _) | (_, PageWait::Short) => Means::Sendfile,
        (_, PageWait::Long) => Means::Copy,
    }
}

/// Whether a send took so long that its device is none of the fast ones. A worker that only lost its processor is back sooner.
pub fn has_waited_long(took_us: u64) -> bool {
    took_us >= SEND_WAITED_LONG_US
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Instant = Instant { us: 7 };

    #[test]
    fn a_confirmation_holds_in_its_turn_and_not_for_long() {
        let given_at = TURN.plus_us(100);
        let confirmation = Confirmation::new(TURN, given_at);
        assert!(confirmation.is_valid(TURN, given_at.plus_us(CONFIRMED_US - 1)));
        let late = given_at.plus_us(CONFIRMED_US);
        assert!(!confirmation.is_valid(TURN, late), "off its processor");
        let next = TURN.plus_us(1);
        assert!(!confirmation.is_valid(next, given_at), "another turn");
    }

    #[test]
    fn what_may_be_dropped_is_copied_where_a_wait_for_it_may_be_long() {
        use ResidencySource::{Always, Ask, Remember};
        for residency in [Ask, Remember] {
            assert_eq!(means(residency, PageWait::Short), Means::Sendfile);
            assert_eq!(means(residency, PageWait::Long), Means::Copy);
        }
        assert_eq!(means(Always, PageWait::Long), Means::Sendfile);
    }
}
