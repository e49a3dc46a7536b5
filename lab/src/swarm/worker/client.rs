//! One client: what it has, what it waits for, and when it looks next.

use rustix::fd::OwnedFd;

use crate::content::Tag;
use crate::swarm::draw::Dice;
use crate::swarm::objects::Wanted;
use crate::swarm::setup::NEVER_US;
use crate::swarm::tally::Share;

/// A paced client reads so often, if its buffer allows: often enough to be smooth, seldom enough that
/// thousands of them fit in one core.
const PACE_US: u64 = 40_000;
/// Least that a paced client reads at once; a slow one reads less often instead.
const QUANTUM_BYTES_MIN: u64 = 2048;
/// Most that it reads at once.
const QUANTUM_BYTES_MAX: u64 = 256 << 10;
/// What a paced client that was kept waiting may catch up on, as a part of a second of its rate.
const BURST_PARTS: u64 = 4;

/// State of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// None.
    Off,
    /// Under way.
    Connecting,
    /// There, and nothing asked for.
    Free,
    /// Asked; the head of the answer is not whole.
    Head,
    /// In the answer's body.
    Body,
}

/// What epoll watches for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Nothing: the socket is not in the set, so that not even a reset wakes us.
    None,
    /// Bytes or the end.
    Read,
    /// The end of connecting.
    Write,
}

/// What a client plans to do at a time of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Read on at its pace.
    Read,
    /// Begin, or ask for the next object.
    Begin,
    /// Leave.
    Abort,
    /// Stop reading, or go on.
    Pause,
    /// Jump to another place.
    Seek,
}

impl Plan {
    /// All of them, as their numbers go.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Begin,
        Self::Abort,
        Self::Pause,
        Self::Seek,
    ];
}

/// A client. Some 300 bytes; nothing else is held for one that is idle.
#[derive(Debug)]
pub struct Client {
    /// Number of its class.
    pub class: usize,
    /// Its number in the class.
    pub number: u32,
    /// Its connection.
    pub socket: Option<OwnedFd>,
    /// State of that.
    pub state: State,
    /// What epoll watches.
    pub interest: Interest,
    /// Counts connections, so that an event of the last one is known as such.
    pub generation: u32,
    /// Its draws.
    pub dice: Dice,
    /// There is a request: asked, or about to be when the connection stands.
    pub asked: bool,
    /// The connection has brought a whole answer before.
    pub reused: bool,
    /// The server closes after this answer.
    pub closing: bool,
    /// The client has said its last word on this connection.
    pub half_closed: bool,
    /// It is one of those who leave within an answer.
    pub aborts: bool,
    /// It does not read for a while.
    pub paused: bool,
    /// It will do nothing more.
    pub gone: bool,
    /// A byte of this answer has come.
    pub heard: bool,
    /// Object of the request.
    pub object: u32,
    /// Its tag.
    pub tag: Tag,
    /// The part asked for.
    pub wanted: Wanted,
    /// Intended begin of the request.
    pub intended_us: u64,
    /// Start of a head that came in pieces.
    pub head: Vec<u8>,
    /// Offset in the file of the body's next byte.
    pub offset_bytes: u64,
    /// Body bytes still to come.
    pub left_bytes: u64,
    /// Body bytes of this answer.
    pub taken_bytes: u64,
    /// SO_RCVLOWAT of the socket.
    pub low_water_bytes: u32,
    /// Since when it waits for a byte; `NEVER_US` if it does not.
    pub starved_us: u64,
    /// Requests that ended, well or not.
    pub served: u32,
    /// Requests in a row that failed.
    pub failures: u32,
    /// When it plans what.
    pub plans_us: [u64; Plan::ALL.len()],
    /// Its pace; `pace.rate_bytes_per_s` is 0 without one.
    pub pace: Pace,
    /// What it got since the last reset.
    pub share: Share,
    /// Body bytes of this second and of the one before.
    pub seconds_bytes: [u64; 2],
    /// Since when it wants something without a break; `NEVER_US` if it does not.
    pub active_since_us: u64,
    /// Until when `share` is settled.
    settled_us: u64,
    /// The next timer of it in the wheel.
    timer_us: u64,
    /// A later one that is in there too, so that far plans are not added again after each near one.
    later_timer_us: u64,
}

impl Client {
    /// A client that plans to begin.
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
            half_closed: false,
            aborts: false,
            paused: false,
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

    /// Plans something; `NEVER_US` drops the plan.
    pub fn plan(&mut self, plan: Plan, at_us: u64) {
        self.plans_us[plan as usize] = at_us;
    }

    /// A timer to add to the wheel, if those in there do not do.
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

    /// Whether a timer that fired is one that counts.
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

    /// The client begins or ceases to want something.
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

    /// Brings `share` up to date, before the rate changes and before it is read.
    pub fn settle(&mut self, now_us: u64) {
        if self.active_since_us != NEVER_US {
            let since_us = now_us.saturating_sub(self.settled_us);
            let demand = u128::from(since_us) * u128::from(self.pace.rate_bytes_per_s);
            self.share.active_us += since_us;
            self.share.demand_bytes += (demand / 1_000_000) as u64;
        }
        self.settled_us = now_us;
    }

    /// Another rate, 0 for none.
    pub fn set_rate(&mut self, rate_bytes_per_s: u64, buffer_bytes: Option<u32>, now_us: u64) {
        self.settle(now_us);
        self.pace = Pace::new(rate_bytes_per_s, buffer_bytes, now_us);
    }

    /// Counts body bytes.
    pub fn take(&mut self, bytes: u64) {
        self.offset_bytes += bytes;
        self.left_bytes -= bytes;
        self.taken_bytes += bytes;
        self.share.bytes += bytes;
        self.seconds_bytes[0] += bytes;
    }

    /// How long it has waited for a byte that is here now, and it waits no longer.
    pub fn fed(&mut self, now_us: u64) -> u64 {
        let since_us = std::mem::replace(&mut self.starved_us, NEVER_US);
        now_us.saturating_sub(since_us)
    }

    /// It waits for a byte from now on, if it did not already.
    pub fn starve(&mut self, now_us: u64) {
        self.starved_us = self.starved_us.min(now_us);
    }
}

/// A token clock: tokens are bytes, they come at the rate and are spent by reading.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// Rate; 0 = as fast as it can.
    pub rate_bytes_per_s: u64,
    quantum_bytes: u64,
    /// The instant at which there were no tokens: its age, times the rate, is what there is now. Later
    /// than now: a debt.
    /// In nanoseconds, so that thousands of roundings a second do not make a rate of their own.
    empty_at_ns: u64,
}

impl Pace {
    /// A clock that may read one quantum at once.
    pub fn new(rate_bytes_per_s: u64, buffer_bytes: Option<u32>, now_us: u64) -> Self {
        // A read of more than a part of the buffer would leave the sender with a closed window.
        let most = buffer_bytes.map_or(QUANTUM_BYTES_MAX, |bytes| u64::from(bytes) / 4);
        let smooth = rate_bytes_per_s.saturating_mul(PACE_US) / 1_000_000;
        let quantum_bytes = smooth.min(most).clamp(QUANTUM_BYTES_MIN, QUANTUM_BYTES_MAX);
        let mut pace = Self {
            rate_bytes_per_s,
            quantum_bytes,
            empty_at_ns: 0,
        };
        pace.empty_at_ns = (now_us * 1000).saturating_sub(pace.time_ns(quantum_bytes));
        pace
    }

    /// Time in which nothing was wanted brings no tokens: a pause is not caught up on.
    pub fn restart(&mut self, now_us: u64) {
        self.empty_at_ns = self.empty_at_ns.max(now_us * 1000);
    }

    /// Bytes that may be read now.
    pub fn room_bytes(&mut self, now_us: u64) -> u64 {
        let burst = (self.rate_bytes_per_s / BURST_PARTS).max(self.quantum_bytes);
        let now_ns = now_us * 1000;
        let oldest_ns = now_ns.saturating_sub(self.time_ns(burst));
        self.empty_at_ns = self.empty_at_ns.max(oldest_ns);
        let age_ns = now_ns.saturating_sub(self.empty_at_ns);
        (u128::from(age_ns) * u128::from(self.rate_bytes_per_s) / 1_000_000_000) as u64
    }

    /// Bytes were read.
    pub fn spend(&mut self, bytes: u64) {
        self.empty_at_ns += self.time_ns(bytes);
    }

    /// When a quantum, or what is left of the body if that is less, may be read.
    pub fn ready_us(&self, left_bytes: u64) -> u64 {
        let next = self.quantum_bytes.min(left_bytes.max(1));
        (self.empty_at_ns + self.time_ns(next)).div_ceil(1000)
    }

    fn time_ns(&self, bytes: u64) -> u64 {
        let time = u128::from(bytes) * 1_000_000_000;
        time.div_ceil(u128::from(self.rate_bytes_per_s.max(1))) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client() -> Client {
        Client::new(0, 0, Dice::of(1, 0, 0), 5)
    }

    #[test]
    fn a_far_plan_is_added_to_the_wheel_once() {
        let mut client = client();
        assert_eq!(client.timer(), Some(5));
        assert!(client.takes_timer(5));
        client.plan(Plan::Begin, NEVER_US);
        client.plan(Plan::Seek, 5_000_000);
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
            "the seek's timer is in the wheel and comes first"
        );
        assert!(client.takes_timer(5_000_000));
        client.plan(Plan::Seek, NEVER_US);
        assert_eq!(client.timer(), Some(5_010_000));
        assert!(!client.takes_timer(77), "a timer of an old plan is none");
    }

    #[test]
    fn demand_is_the_rate_over_the_time_in_which_it_was_active() {
        let mut client = client();
        client.set_rate(1000, None, 0);
        client.settle(1_000_000);
        assert_eq!(client.share, Share::default());
        client.set_active(true, 1_000_000);
        client.set_rate(3000, None, 2_000_000);
        client.set_active(false, 4_000_000);
        client.settle(9_000_000);
        let share = client.share;
        assert_eq!((share.active_us, share.demand_bytes), (3_000_000, 7000));
    }

    #[test]
    fn waiting_counts_from_the_first_wish() {
        let mut client = client();
        assert_eq!(client.fed(10), 0, "it did not wait");
        client.starve(10);
        client.starve(20);
        assert_eq!(client.fed(110), 100);
    }

    proptest! {
        #[test]
        fn a_pace_never_gives_more_than_its_rate_and_a_burst(
            rate in 1u64..1 << 28,
            steps in proptest::collection::vec(0u64..200_000, 1..100),
        ) {
            let mut pace = Pace::new(rate, None, 1_000_000);
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
            let mut pace = Pace::new(rate, Some(65_536), 1_000_000);
            let room = pace.room_bytes(1_000_000);
            pace.spend(room);
            let ready_us = pace.ready_us(left);
            prop_assert!(pace.room_bytes(ready_us) >= left.min(pace.quantum_bytes));
        }
    }
}
