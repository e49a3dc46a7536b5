//! Who gets an extra turn, and who pays one back: the machine of `receive guard`, by the policy of core's `turn.rs` with
//! [`When::LockOwned`]. It is pure: events and times are arguments, orders are answers.
//!
//! Linux has no expired array to keep a task out of. Here a turn is a nice value of [`RAISED_NICE`] until the receive call
//! ends, and a debt is paid at [`PAYING_STEPS`] above the own nice value, where a task gets half of what it would get. So
//! what it runs then stands for a slice twice as long, of which it pays half, as [`Account::slice_us`] has it.

use std::collections::HashMap;

use ackpace_core::turn::{Account, Expiring, When};
use ackpace_core::units::Instant;
use serde::Serialize;

use crate::limits::{GUARDED_MAX, PAID_FROM_US};

/// Nice value of an extra turn.
pub const RAISED_NICE: i32 = -20;
/// Steps of nice while a debt is paid: a weight of 526 in place of 1024 (`sched_prio_to_weight`).
pub const PAYING_STEPS: i32 = 3;
/// The weakest nice value.
const WEAKEST_NICE: i32 = 19;
/// Bytes of a `struct event` (`host/src/bpf/guard.h`).
pub const EVENT_BYTES: usize = 40;

/// A thread. Its number may be used again; with its start it is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// When it started, nanoseconds since the machine did.
    pub started_ns: u64,
}

/// What the kernel told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardEvent {
    /// Of whom.
    pub thread: Thread,
    /// When, by the kernel's monotonic clock.
    pub at_ns: u64,
    /// What.
    pub kind: Kind,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It lost its core while it owned a socket's lock.
    Lost {
        /// Packets stood behind the lock already.
        has_backlog: bool,
    },
    /// Its call has ended, or it sleeps.
    Ended {
        /// For how long it had a core since.
        ran_ns: u64,
    },
}

impl GuardEvent {
    /// From a `struct event`; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<GuardEvent> {
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let word = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let kind = match word(32)? {
            1 => Kind::Lost {
                has_backlog: word(36)? != 0,
            },
            2 => Kind::Ended { ran_ns: long(8)? },
            _ => return None,
        };
        Some(GuardEvent {
            thread: Thread {
                tid: word(24)?,
                pid: word(28)?,
                started_ns: long(16)?,
            },
            at_ns: long(0)?,
            kind,
        })
    }
}

/// How a thread stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// As it was found.
    Own,
    /// In an extra turn.
    Raised,
    /// Paying.
    Paying,
}

impl Level {
    /// The nice value, for a thread whose own is `own`.
    pub fn nice(self, own: i32) -> i32 {
        match self {
            Level::Own => own,
            Level::Raised => RAISED_NICE.min(own),
            Level::Paying => (own + PAYING_STEPS).min(WEAKEST_NICE),
        }
    }
}

/// What the shell is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelOrder {
    /// To whom.
    pub thread: Thread,
    /// What it gets.
    pub level: Level,
}

/// What was done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TurnCounts {
    /// Cores lost with the lock.
    pub lost: u64,
    /// Extra turns.
    pub turns: u64,
    /// None given: the thread owes too much.
    pub owed_too_much: u64,
    /// None given: too many threads are known.
    pub too_many: u64,
    /// Turns that took as long as they may, and were ended.
    pub cut: u64,
    /// What was charged, microseconds.
    pub charged_us: u64,
    /// What was paid, microseconds.
    pub paid_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    account: Account,
    level: Level,
    /// Since when it is raised, and until when it may be.
    turn: (Instant, Instant),
    /// What it had run when it began to pay, or paid last.
    ran_us: Option<u64>,
}

/// The machine.
#[derive(Debug, Default)]
pub struct Turns {
    threads: HashMap<Thread, State>,
    /// See there.
    pub counts: TurnCounts,
}

impl Turns {
    /// An event, which the shell hears at `now`, `late_us` after it happened. The order that follows.
    pub fn on(&mut self, event: &GuardEvent, late_us: u64, now: Instant) -> Option<LevelOrder> {
        let thread = event.thread;
        let level = match event.kind {
            Kind::Lost { has_backlog } => self.lost(thread, has_backlog, now),
            Kind::Ended { ran_ns } => self.ended(thread, ran_ns.div_ceil(1_000) + late_us),
        };
        level.map(|level| LevelOrder { thread, level })
    }

    fn lost(&mut self, thread: Thread, packets_wait: bool, now: Instant) -> Option<Level> {
        self.counts.lost += 1;
        if self.threads.len() >= GUARDED_MAX && !self.threads.contains_key(&thread) {
            self.threads
                .retain(|_, state| state.level != Level::Own || state.account.owed_us() > 0);
            if self.threads.len() >= GUARDED_MAX {
                self.counts.too_many += 1;
                return None;
            }
        }
        let new = || State {
            account: Account::default(),
            level: Level::Own,
            turn: (now, now),
            ran_us: None,
        };
        let state = self.threads.entry(thread).or_insert_with(new);
        let of = Expiring {
            packets_wait,
            owns_lock: true,
            ..Expiring::default()
        };
        let extra_us = state.account.extra_us(of, When::LockOwned);
        if extra_us == 0 || state.level == Level::Raised {
            self.counts.owed_too_much += u64::from(extra_us == 0);
            return None;
        }
        state.level = Level::Raised;
        state.turn = (now, now.plus_us(extra_us));
        self.counts.turns += 1;
        Some(Level::Raised)
    }

    fn ended(&mut self, thread: Thread, used_us: u64) -> Option<Level> {
        let state = self.threads.get_mut(&thread)?;
        if state.level != Level::Raised {
            return None; // it was cut, or never given
        }
        self.counts.charged_us += used_us;
        Some(state.settle(used_us))
    }

    /// When to [`Turns::poll`] next: the first end of a turn.
    pub fn deadline(&self) -> Option<Instant> {
        let raised = self
            .threads
            .values()
            .filter(|state| state.level == Level::Raised);
        raised.map(|state| state.turn.1).min()
    }

    /// Ends turns that take too long. How long they had a core is not known; all of it is charged.
    pub fn poll(&mut self, now: Instant) -> Vec<LevelOrder> {
        let mut orders = Vec::new();
        for (thread, state) in &mut self.threads {
            if state.level == Level::Raised && now >= state.turn.1 {
                let used_us = now.since_us(state.turn.0);
                self.counts.cut += 1;
                self.counts.charged_us += used_us;
                orders.push(LevelOrder {
                    thread: *thread,
                    level: state.settle(used_us),
                });
            }
        }
        orders.sort_unstable_by_key(|order| order.thread); // a hash map has no order
        orders
    }

    /// Those who pay.
    pub fn paying(&self) -> Vec<Thread> {
        let paying = self
            .threads
            .iter()
            .filter(|(_, state)| state.level == Level::Paying);
        paying.map(|(thread, _)| *thread).collect()
    }

    /// One who pays has run for `ran_us` in all its life. The order that follows, once its debt is paid.
    pub fn ran(&mut self, thread: Thread, ran_us: u64) -> Option<LevelOrder> {
        let state = self
            .threads
            .get_mut(&thread)
            .filter(|state| state.level == Level::Paying)?;
        let us = ran_us.saturating_sub(state.ran_us.replace(ran_us).unwrap_or(ran_us));
        let owed_us = state.account.owed_us();
        state.account.slice_us(2 * us, 1);
        self.counts.paid_us += owed_us - state.account.owed_us();
        if state.account.owed_us() > 0 {
            return None;
        }
        state.level = Level::Own;
        Some(LevelOrder {
            thread,
            level: Level::Own,
        })
    }

    /// It is gone, or somebody else has set its nice value: it is forgotten.
    pub fn forget(&mut self, thread: Thread) {
        self.threads.remove(&thread);
    }

    /// All who are not as they were found.
    pub fn changed(&self) -> Vec<Thread> {
        let changed = self
            .threads
            .iter()
            .filter(|(_, state)| state.level != Level::Own);
        changed.map(|(thread, _)| *thread).collect()
    }
}

impl State {
    /// A turn is over. Small debts are collected before they are paid.
    fn settle(&mut self, used_us: u64) -> Level {
        self.account.charge(used_us);
        self.level = match self.account.owed_us() >= PAID_FROM_US {
            true => Level::Paying,
            false => Level::Own,
        };
        self.ran_us = None;
        self.level
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_core::limits::TURN_OWED_US_MAX;
    use proptest::prelude::*;

    const THREAD: Thread = Thread {
        tid: 7,
        pid: 6,
        started_ns: 5,
    };

    fn at(us: u64) -> Instant {
        Instant { us }
    }

    fn lost(thread: Thread) -> GuardEvent {
        GuardEvent {
            thread,
            at_ns: 0,
            kind: Kind::Lost { has_backlog: false },
        }
    }

    fn ended(ran_us: u64) -> GuardEvent {
        GuardEvent {
            thread: THREAD,
            at_ns: 0,
            kind: Kind::Ended {
                ran_ns: ran_us * 1_000,
            },
        }
    }

    fn level(order: Option<LevelOrder>) -> Option<Level> {
        order.map(|order| order.level)
    }

    #[test]
    fn a_turn_is_given_charged_and_paid() {
        let mut turns = Turns::default();
        assert_eq!(
            level(turns.on(&lost(THREAD), 0, at(0))),
            Some(Level::Raised)
        );
        assert_eq!(
            level(turns.on(&ended(100), 20, at(200))),
            Some(Level::Own),
            "120 us are collected"
        );
        assert_eq!(
            level(turns.on(&lost(THREAD), 0, at(300))),
            Some(Level::Raised)
        );
        let after = turns.on(&ended(PAID_FROM_US), 0, at(900));
        assert_eq!(level(after), Some(Level::Paying));
        assert_eq!(turns.paying(), [THREAD]);
        assert_eq!(
            turns.ran(THREAD, 1_000_000),
            None,
            "from here on it is counted"
        );
        assert_eq!(
            turns.ran(THREAD, 1_000_000 + PAID_FROM_US),
            None,
            "120 us are left"
        );
        let paid = turns.ran(THREAD, 1_000_120 + PAID_FROM_US);
        assert_eq!(level(paid), Some(Level::Own));
        assert_eq!(turns.counts.charged_us, turns.counts.paid_us);
        assert!(turns.changed().is_empty());
    }

    #[test]
    fn a_turn_that_takes_too_long_is_cut_and_one_who_owes_too_much_has_none() {
        let mut turns = Turns::default();
        turns.on(&lost(THREAD), 0, at(0));
        let until = turns.deadline().expect("a turn");
        assert_eq!(until, at(TURN_OWED_US_MAX));
        assert!(turns.poll(at(until.us - 1)).is_empty());
        assert_eq!(
            turns.poll(until),
            [LevelOrder {
                thread: THREAD,
                level: Level::Paying
            }]
        );
        assert_eq!(
            turns.on(&ended(1), 0, until),
            None,
            "it was charged already"
        );
        assert_eq!(turns.on(&lost(THREAD), 0, until), None);
        assert_eq!((turns.counts.cut, turns.counts.owed_too_much), (1, 1));
    }

    #[test]
    fn a_number_that_is_used_again_is_another_thread() {
        let mut turns = Turns::default();
        turns.on(&lost(THREAD), 0, at(0));
        let other = Thread {
            started_ns: 6,
            ..THREAD
        };
        let end = GuardEvent {
            thread: other,
            ..ended(1)
        };
        assert_eq!(turns.on(&end, 0, at(1)), None);
        assert_eq!(turns.changed(), [THREAD]);
        turns.forget(THREAD);
        assert!(turns.changed().is_empty());
    }

    #[test]
    fn those_who_owe_nothing_make_room() {
        let mut turns = Turns::default();
        for tid in 0..GUARDED_MAX as u32 {
            turns.on(&lost(Thread { tid, ..THREAD }), 0, at(0));
        }
        let one_more = lost(Thread {
            tid: u32::MAX,
            ..THREAD
        });
        assert_eq!(turns.on(&one_more, 0, at(0)), None, "all are in a turn");
        assert_eq!(turns.counts.too_many, 1);
        let free = GuardEvent {
            kind: Kind::Ended { ran_ns: 0 },
            ..lost(Thread { tid: 3, ..THREAD })
        };
        turns.on(&free, 0, at(1));
        assert!(turns.on(&one_more, 0, at(2)).is_some());
    }

    #[test]
    fn nice_values_stay_in_their_range() {
        for own in -20..=19 {
            assert_eq!(Level::Own.nice(own), own);
            assert_eq!(Level::Raised.nice(own), -20);
            assert!((own..=19).contains(&Level::Paying.nice(own)));
        }
    }

    #[test]
    fn an_event_is_read() {
        let longs = [11u64, 22, 33].into_iter().flat_map(u64::to_ne_bytes);
        let words = |kind: u32| [7u32, 6, kind, 1].into_iter().flat_map(u32::to_ne_bytes);
        let bytes: Vec<u8> = longs.clone().chain(words(1)).collect();
        assert_eq!(bytes.len(), EVENT_BYTES);
        let thread = Thread {
            started_ns: 33,
            ..THREAD
        };
        let kind = Kind::Lost { has_backlog: true };
        assert_eq!(
            GuardEvent::parse(&bytes),
            Some(GuardEvent {
                thread,
                at_ns: 11,
                kind
            })
        );
        let bytes: Vec<u8> = longs.chain(words(2)).collect();
        let read = GuardEvent::parse(&bytes).expect("an end");
        assert_eq!(read.kind, Kind::Ended { ran_ns: 22 });
        assert_eq!(GuardEvent::parse(&bytes[1..]), None);
    }

    proptest! {
        #[test]
        fn all_that_is_changed_is_given_back(steps in prop::collection::vec((0u32..4, 0u32..3, 0u64..20_000), 1..300)) {
            let (mut turns, mut now, mut ran_us) = (Turns::default(), at(0), 0);
            let mut levels: HashMap<Thread, Level> = HashMap::new();
            for (tid, what, us) in steps {
                now = now.plus_us(us);
                let thread = Thread { tid, ..THREAD };
                let orders = match what {
                    0 => turns.on(&lost(thread), 0, now).into_iter().collect(),
                    1 => turns.on(&GuardEvent { thread, ..ended(us) }, 0, now).into_iter().collect(),
                    _ => turns.poll(now),
                };
                levels.extend(orders.iter().map(|order| (order.thread, order.level)));
                ran_us += us;
                for thread in turns.paying() {
                    levels.extend(turns.ran(thread, ran_us).map(|order| (order.thread, order.level)));
                }
                let changed = levels.values().filter(|level| **level != Level::Own).count();
                prop_assert_eq!(changed, turns.changed().len());
                prop_assert!(turns.counts.paid_us <= turns.counts.charged_us, "pays what it never got");
            }
        }
    }
}
