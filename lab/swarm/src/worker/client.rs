//! One client: its state, what it waits for, and its next plans.

use rustix::fd::OwnedFd;

use super::pace::Pace;
use super::playback::Playback;
use crate::draw::Dice;
use crate::objects::Wanted;
use crate::setup::{NEVER_US, Reading};
use crate::tally::Share;
use ackpace_lab_base::content::Tag;

/// State of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No connection.
    Off,
    /// The connection is being established.
    Connecting,
    /// Connected, without a request.
    Free,
    /// A request was sent; the head of the answer is incomplete.
    Head,
    /// Receiving the body of the answer.
    Body,
}

/// The events that epoll watches for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// None: the socket is not in the set, so not even a reset wakes the thread.
    None,
    /// Data or the end of the stream.
    Read,
    /// The end of connecting.
    Write,
}

/// Actions that a client plans for a later time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Read on at its pace.
    Read,
    /// Start, or ask for the next object.
    Begin,
    /// Leave within an answer.
    Leave,
}

impl Plan {
    /// All of them, ordered by number.
    pub const ALL: [Self; 3] = [Self::Read, Self::Begin, Self::Leave];
}

/// A client. It takes some 370 bytes; an idle one holds no other memory.
#[derive(Debug)]
pub struct Client {
    /// Number of its class.
    pub class: usize,
    /// Its number in the class.
    pub number: u32,
    /// Its connection.
    pub socket: Option<OwnedFd>,
    /// State of the connection.
    pub state: State,
    /// The events that epoll watches.
    pub interest: Interest,
    /// Counts connections, so that events of an earlier one are recognised.
    pub generation: u32,
    /// Its random generator.
    pub dice: Dice,
    /// True if there is a request: already sent, or to be sent once connected.
    pub asked: bool,
    /// True if the connection has already delivered a whole answer.
    pub reused: bool,
    /// True if the server closes after this answer.
    pub closing: bool,
    /// True if it will do nothing more.
    pub gone: bool,
    /// True if a byte of this answer has arrived.
    pub heard: bool,
    /// Object of the request.
    pub object: u32,
    /// Tag of the object.
    pub tag: Tag,
    /// The requested part.
    pub wanted: Wanted,
    /// Intended start of the request.
    pub intended_us: u64,
    /// Beginning of a head that arrives in pieces.
    pub head: Vec<u8>,
    /// Offset in the file of the body's next byte.
    pub offset_bytes: u64,
    /// Bytes of the body still to come.
    pub left_bytes: u64,
    /// Bytes of the body received.
    pub taken_bytes: u64,
    /// SO_RCVLOWAT of the socket.
    pub low_water_bytes: u32,
    /// Time since which it waits for a byte; `NEVER_US` if it does not.
    pub starved_us: u64,
    /// Requests that ended, successfully or not.
    pub served: u32,
    /// Consecutive failed requests.
    pub failures: u32,
    /// The time of each plan.
    pub plans_us: [u64; Plan::ALL.len()],
    /// Its pace; `pace.rate_bytes_per_s` is 0 without a rate.
    pub pace: Pace,
    /// Its film, if it is a player.
    pub playback: Option<Playback>,
    /// Its bytes and active time since the last reset.
    pub share: Share,
    /// Body bytes of this second and of the previous one.
    pub seconds_bytes: [u64; 2],
    /// Time since which it wants data without interruption; `NEVER_US` if it does not.
    pub active_since_us: u64,
    /// The time up to which `share` is settled.
    settled_us: u64,
    /// Its next timer in the wheel.
    timer_us: u64,
    /// A later timer that is also in the wheel, so that distant plans are not added again after each near one.
    later_timer_us: u64,
}

impl Client {
    /// A client that plans to start at `begin_us`.
    pub fn new(class: usize, number: u32, dice: Dice, begin_us: u64) -> Self {
        let mut client = Self {
            class,
            number,
            socket: None,
            state: State::Off,
            interest: Interest::None,
            generation: 0,
            dice,
            asked: false,
            reused: false,
            closing: false,
            gone: false,
            heard: false,
            object: 0,
            tag: Tag(0),
            wanted: Wanted::Whole,
            intended_us: 0,
            head: Vec::new(),
            offset_bytes: 0,
            left_bytes: 0,
            taken_bytes: 0,
            low_water_bytes: 1,
            starved_us: NEVER_US,
            served: 0,
            failures: 0,
            plans_us: [NEVER_US; Plan::ALL.len()],
            pace: Pace::default(),
            playback: None,
            share: Share::default(),
            seconds_bytes: [0; 2],
            active_since_us: NEVER_US,
            settled_us: 0,
            timer_us: NEVER_US,
            later_timer_us: NEVER_US,
        };
        client.plan(Plan::Begin, begin_us);
        client
    }

    /// Sets the time of a plan; `NEVER_US` cancels it.
    pub fn plan(&mut self, plan: Plan, at_us: u64) {
        self.plans_us[plan as usize] = at_us;
    }

    /// A timer to add to the wheel, if those already there do not suffice.
    pub fn timer(&mut self) -> Option<u64> {
        let due_us = self.plans_us.iter().copied().min().unwrap_or(NEVER_US);
        if due_us >= self.timer_us {
            return None;
        }
        if due_us >= self.later_timer_us {
            self.timer_us = std::mem::replace(&mut self.later_timer_us, NEVER_US);
            return None; // a timer that comes too early does no harm
        }
        if self.timer_us != NEVER_US {
            self.later_timer_us = self.timer_us;
        }
        self.timer_us = due_us;
        Some(due_us)
    }

    /// True if a timer that fired is the current one.
    pub fn takes_timer(&mut self, due_us: u64) -> bool {
        if due_us == self.timer_us {
            self.timer_us = NEVER_US;
            return true;
        }
        if due_us == self.later_timer_us {
            self.later_timer_us = NEVER_US;
        }
        false
    }

    /// Records that the client starts or ceases to want data.
    pub fn set_active(&mut self, active: bool, now_us: u64) {
        if active == (self.active_since_us != NEVER_US) {
            return;
        }
        self.settle(now_us);
        if active {
            self.pace.restart(now_us);
        }
        self.active_since_us = if active { now_us } else { NEVER_US };
    }

    /// Updates `share`; needed before the rate changes and before `share` is read.
    pub fn settle(&mut self, now_us: u64) {
        if self.active_since_us != NEVER_US {
            let since_us = now_us.saturating_sub(self.settled_us);
            let demand = u128::from(since_us) * u128::from(self.pace.rate_bytes_per_s);
            self.share.active_us += since_us;
            self.share.demand_bytes += (demand / 1_000_000) as u64;
        }
        self.settled_us = now_us;
    }

    /// Changes the pace.
    pub fn set_pace(&mut self, reading: Reading, buffer_bytes: Option<u32>, now_us: u64) {
        self.settle(now_us);
        self.pace = Pace::new(reading, buffer_bytes, now_us);
    }

    /// Counts received body bytes.
    pub fn take(&mut self, bytes: u64) {
        self.offset_bytes += bytes;
        self.left_bytes -= bytes;
        self.taken_bytes += bytes;
        self.share.bytes += bytes;
        self.seconds_bytes[0] += bytes;
    }

    /// Ends the wait for a byte, and returns its length in microseconds.
    pub fn fed(&mut self, now_us: u64) -> u64 {
        let since_us = std::mem::replace(&mut self.starved_us, NEVER_US);
        now_us.saturating_sub(since_us)
    }

    /// Starts to wait for a byte, unless it already does.
    pub fn starve(&mut self, now_us: u64) {
        self.starved_us = self.starved_us.min(now_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Client {
        Client::new(0, 0, Dice::of(1, 0, 0), 5)
    }

    #[test]
    fn a_far_plan_is_added_to_the_wheel_once() {
        let mut client = client();
        assert_eq!(client.timer(), Some(5));
        assert!(client.takes_timer(5));
        client.plan(Plan::Begin, NEVER_US);
        client.plan(Plan::Leave, 5_000_000);
        assert_eq!(client.timer(), Some(5_000_000));
        for at_us in (40_000..4_990_000).step_by(40_000) {
            client.plan(Plan::Read, at_us);
            assert_eq!(client.timer(), Some(at_us));
            assert!(client.takes_timer(at_us));
        }
        client.plan(Plan::Read, 5_010_000);
        assert_eq!(
            client.timer(),
            None,
            "the departure's timer is in the wheel and comes first"
        );
        assert!(client.takes_timer(5_000_000));
        client.plan(Plan::Leave, NEVER_US);
        assert_eq!(client.timer(), Some(5_010_000));
        assert!(!client.takes_timer(77), "a timer of an old plan is none");
    }

    #[test]
    fn demand_is_the_rate_over_the_time_in_which_it_was_active() {
        let mut client = client();
        client.set_pace(Reading::Steady(1000), None, 0);
        client.settle(1_000_000);
        assert_eq!(client.share, Share::default());
        client.set_active(true, 1_000_000);
        client.set_pace(Reading::Steady(3000), None, 2_000_000);
        client.set_active(false, 4_000_000);
        client.settle(9_000_000);
        let share = client.share;
        assert_eq!((share.active_us, share.demand_bytes), (3_000_000, 7000));
    }
}
