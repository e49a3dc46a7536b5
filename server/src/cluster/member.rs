//! The stream to one other node, as times: when it is opened, when something has to be said on it, when it is given up. Time is
//! an input.

use ackpace_core::units::{Instant, US_PER_S};

/// The first pause before the stream is tried again; each further one is twice as long.
const RETRY_US: u64 = 100_000;
/// The longest such pause: a node that comes back is found within this time.
const RETRY_US_MAX: u64 = 2 * US_PER_S;
/// A handshake and HELLO take no longer. Longer: the stream is cut.
pub const OPENING_US_MAX: u64 = 5 * US_PER_S;
/// Something is said at least this often.
const SAY_US: u64 = 250_000;
/// A node that is not heard for so long is down, as far as this one can tell: five of its messages in a row are late.
pub const SILENT_US: u64 = 1_500_000;

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Open the stream, or look whether the other node's port refuses.
    Dial,
    /// Say something.
    Ping,
    /// Cut the stream: the other node is silent.
    Cut,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Waits { until: Instant },
    Opens { until: Instant },
    Stands { heard: Instant, said: Instant },
}

/// The stream to one other node.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    state: State,
    retry_us: u64,
}

impl Member {
    /// One that is to be opened now.
    pub fn new(now: Instant) -> Member {
        Member {
            state: State::Waits { until: now },
            retry_us: RETRY_US,
        }
    }

    /// What is to be done now.
    pub fn due(&self, now: Instant) -> Option<Due> {
        match self.state {
            State::Waits { until } => (until <= now).then_some(Due::Dial),
            State::Opens { until } => (until <= now).then_some(Due::Cut),
            State::Stands { heard, .. } if heard.plus_us(SILENT_US) <= now => Some(Due::Cut),
            State::Stands { said, .. } => (said.plus_us(SAY_US) <= now).then_some(Due::Ping),
        }
    }

    /// When something is due next.
    pub fn deadline(&self) -> Instant {
        match self.state {
            State::Waits { until } | State::Opens { until } => until,
            State::Stands { heard, said } => heard.plus_us(SILENT_US).min(said.plus_us(SAY_US)),
        }
    }

    /// Whether a stream stands.
    pub fn stands(&self) -> bool {
        matches!(self.state, State::Stands { .. })
    }

    /// A stream is being opened.
    pub fn dials(&mut self, now: Instant) {
        self.state = State::Opens {
            until: now.plus_us(OPENING_US_MAX),
        };
    }

    /// A stream stands: the other node has said HELLO.
    pub fn opened(&mut self, now: Instant) {
        self.retry_us = RETRY_US;
        self.state = State::Stands {
            heard: now,
            said: now,
        };
    }

    /// It broke, or could not be opened.
    pub fn broke(&mut self, now: Instant) {
        self.state = State::Waits {
            until: now.plus_us(self.retry_us),
        };
        self.retry_us = (2 * self.retry_us).min(RETRY_US_MAX);
    }

    /// The other node said something.
    pub fn heard(&mut self, now: Instant) {
        if let State::Stands { heard, .. } = &mut self.state {
            *heard = now;
        }
    }

    /// This node said something.
    pub fn said(&mut self, now: Instant) {
        if let State::Stands { said, .. } = &mut self.state {
            *said = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant { us: ms * 1000 }
    }

    #[test]
    fn it_is_tried_again_ever_more_seldom_until_it_stands() {
        let mut member = Member::new(at(0));
        let mut now = at(0);
        for pause_ms in [100, 200, 400, 800, 1600, 2000, 2000] {
            assert_eq!(member.due(now), Some(Due::Dial));
            member.dials(now);
            assert_eq!(member.due(now), None);
            member.broke(now);
            assert_eq!(member.deadline(), now.plus_us(pause_ms * 1000));
            now = member.deadline();
        }
        member.dials(now);
        assert_eq!(member.due(now.plus_us(OPENING_US_MAX)), Some(Due::Cut));
        member.opened(now);
        assert!(member.stands());
        member.broke(now);
        assert_eq!(member.deadline(), now.plus_us(RETRY_US));
    }

    #[test]
    fn it_speaks_four_times_a_second_and_is_cut_when_nothing_is_heard() {
        let mut member = Member::new(at(0));
        member.opened(at(1000));
        assert_eq!(member.due(at(1249)), None);
        assert_eq!(member.due(at(1250)), Some(Due::Ping));
        member.said(at(1250));
        assert_eq!(member.deadline(), at(1500));
        member.heard(at(1400));
        member.said(at(2800));
        assert_eq!(member.due(at(2899)), None);
        assert_eq!(member.due(at(2900)), Some(Due::Cut));
    }
}
