//! The machine of `receive guard`: which thread gets an extra turn, and how it pays that back. It is pure: events and times
//! are arguments, orders are answers. Its shell (`receive/src/guard.rs`) hears the kernel and sets nice values.
//!
//! A thread owns its socket's lock while it receives. If it loses its core there, TCP can only queue what arrives, and sends
//! no ACK before the thread runs again. So the guard raises its priority until its receive call ends. What it ran meanwhile
//! is its debt to the other threads, by the policy of [`crate::turn`] with [`When::LockOwned`]: it may owe up to
//! `TURN_OWED_US_MAX`, and a turn lasts no longer than what is left of that.
//!
//! | a thread is | its nice value | until |
//! |---|---|---|
//! | [`Level::Own`], with less debt or none | as it was found | it loses its core with the lock, and owes less than it may |
//! | [`Level::Raised`], in an extra turn | [`RAISED_NICE`] | its call ends, or the turn is cut: it was as long as it may be |
//! | [`Level::Paying`], with a debt of 4 ms or more | [`PAYING_STEPS`] above its own | all is paid, or the next turn begins |
//!
//! A thread that pays has half of its weight, so beside many busy threads it runs for half as long as at its own weight. For
//! each microsecond that it runs, it leaves one to them, and its debt falls by that. Beside a single one it leaves less: it
//! has a third of the core in place of half, but its debt falls as fast.

use std::collections::HashMap;

use ackpace_core::units::Instant;
use ackpace_host_base::fields::Fields;
use serde::Serialize;

use crate::turn::{Account, Expiring, When};

/// Threads that are known at once: those in a turn, or in debt. More: no turn for them, and counted.
pub const GUARDED_MAX: usize = 1_024;
/// From this debt on, microseconds, a thread pays: a turn takes some tens of microseconds, and how much a thread has run is
/// told by the kernel to a tick.
const PAID_FROM_US: u64 = 4_000;

/// The nice value during an extra turn: the strongest.
pub const RAISED_NICE: i32 = -20;
/// Steps of nice by which a thread is weaker while it pays: at nice 0 a weight of 526 in place of 1024
/// (`sched_prio_to_weight`).
pub const PAYING_STEPS: i32 = 3;
/// The weakest nice value.
const WEAKEST_NICE: i32 = 19;
/// Bytes of a `struct event` (`receive/src/bpf/guard.h`).
const EVENT_BYTES: usize = 40;

/// A thread. The kernel uses a thread's number again after that thread has ended; with the start time it is unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Thread {
    /// The number of the thread (gettid(2)).
    pub tid: u32,
    /// The number of its process.
    pub pid: u32,
    /// When it started, nanoseconds since boot.
    pub started_ns: u64,
}

/// What the program in the kernel tells of a thread (`receive/src/bpf/guard.h`, `struct event`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardEvent {
    /// The thread.
    pub thread: Thread,
    /// When it happened, by CLOCK_MONOTONIC.
    pub at_ns: u64,
    /// What happened.
    pub kind: Kind,
}

/// What happened to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It lost its core while it owned a socket's lock.
    Lost {
        /// Packets stood behind the lock already.
        has_backlog: bool,
    },
    /// Its receive call has ended. Or it left its core asleep, without the lock, or under another policy than SCHED_NORMAL.
    Ended {
        /// For how long it had a core since [`Kind::Lost`].
        ran_ns: u64,
    },
}

impl GuardEvent {
    /// Reads a `struct event`; `None`: it is too short, or of no known kind.
    pub fn parse(bytes: &[u8]) -> Option<GuardEvent> {
        let mut fields = Fields(bytes.get(..EVENT_BYTES)?);
        let [at_ns, ran_ns, started_ns] = std::array::from_fn(|_| fields.long());
        let [tid, pid, kind, backlog] = std::array::from_fn(|_| fields.word());
        let kind = match kind {
            1 => Kind::Lost {
                has_backlog: backlog != 0,
            },
            2 => Kind::Ended { ran_ns },
            _ => return None,
        };
        let thread = Thread {
            tid,
            pid,
            started_ns,
        };
        Some(GuardEvent {
            thread,
            at_ns,
            kind,
        })
    }
}

/// The state of a thread, which its nice value follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// It has its own nice value.
    Own,
    /// It is in an extra turn.
    Raised,
    /// It pays.
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

/// An order to the shell: give this thread the nice value of this level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelOrder {
    /// The thread.
    pub thread: Thread,
    /// Its level from now on.
    pub level: Level,
}

/// What was done since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TurnCounts {
    /// How often a thread lost its core with the lock.
    pub lost: u64,
    /// Extra turns that were given.
    pub turns: u64,
    /// Extra turns that were refused, since the thread owes too much.
    pub owed_too_much: u64,
    /// Extra turns that were refused, since [`GUARDED_MAX`] threads are known.
    pub too_many: u64,
    /// Extra turns that were cut, since they were as long as they may be.
    pub cut: u64,
    /// What threads ran in extra turns, microseconds: their debts.
    pub charged_us: u64,
    /// What they have paid of that, microseconds.
    pub paid_us: u64,
}

/// What is known of a thread that had an extra turn. It is kept until [`Turns::forget`]; or, once the thread is at its own
/// level, until [`Turns::has_room_for`] needs the place.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Its debt.
    account: Account,
    /// Its level, by the last order.
    level: Level,
    /// When its last extra turn began.
    raised_at: Instant,
    /// When that turn is cut.
    cut_at: Instant,
    /// Its running time at the last [`Turns::ran`]. `None`: there was none since its last turn.
    ran_us: Option<u64>,
}

/// The threads, at most [`GUARDED_MAX`].
#[derive(Debug, Default)]
pub struct Turns {
    threads: HashMap<Thread, State>,
    /// What was done since the start.
    pub counts: TurnCounts,
}

impl Turns {
    /// Takes an event, which the shell hears at `now`, `late_us` after it happened. Returns the order that follows.
    pub fn on(&mut self, event: &GuardEvent, late_us: u64, now: Instant) -> Option<LevelOrder> {
        let thread = event.thread;
        let level = match event.kind {
            Kind::Lost { has_backlog } => self.lost(thread, has_backlog, now),
            // It stays raised until this order is carried out, so it may have run while the event was on its way.
            Kind::Ended { ran_ns } => self.ended(thread, ran_ns.div_ceil(1_000) + late_us),
        };
        level.map(|level| LevelOrder { thread, level })
    }

    /// A thread has lost its core with the lock: it gets an extra turn, unless it is in one or owes too much.
    fn lost(&mut self, thread: Thread, packets_wait: bool, now: Instant) -> Option<Level> {
        self.counts.lost += 1;
        if !self.has_room_for(thread) {
            self.counts.too_many += 1;
            return None;
        }
        let new = || State {
            account: Account::default(),
            level: Level::Own,
            raised_at: now,
            cut_at: now,
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
        (state.raised_at, state.cut_at) = (now, now.plus_us(extra_us));
        self.counts.turns += 1;
        Some(Level::Raised)
    }

    /// Whether the table has room for a thread. If need be, forgets all that are at their own level: they owe too little to pay,
    /// and nobody looks whether they have ended.
    fn has_room_for(&mut self, thread: Thread) -> bool {
        if self.threads.len() >= GUARDED_MAX && !self.threads.contains_key(&thread) {
            (self.threads).retain(|_, state| state.level != Level::Own);
        }
        self.threads.len() < GUARDED_MAX || self.threads.contains_key(&thread)
    }

    /// A call has ended, and with it the extra turn, in which the thread ran for `used_us`.
    fn ended(&mut self, thread: Thread, used_us: u64) -> Option<Level> {
        let state = self.threads.get_mut(&thread)?;
        if state.level != Level::Raised {
            return None; // it was cut, or never given
        }
        self.counts.charged_us += used_us;
        Some(state.settle(used_us))
    }

    /// When to [`Turns::poll`] next: when the first turn is cut.
    pub fn deadline(&self) -> Option<Instant> {
        let raised = self.at(Level::Raised);
        raised.map(|(_, state)| state.cut_at).min()
    }

    fn at(&self, level: Level) -> impl Iterator<Item = (&Thread, &State)> {
        let threads = self.threads.iter();
        threads.filter(move |(_, state)| state.level == level)
    }

    /// Cuts turns that are as long as they may be. How long these threads had a core is not known: the whole turn is
    /// charged.
    pub fn poll(&mut self, now: Instant) -> Vec<LevelOrder> {
        let mut orders = Vec::new();
        for (thread, state) in &mut self.threads {
            if state.level == Level::Raised && now >= state.cut_at {
                let used_us = now.since_us(state.raised_at);
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

    /// The threads that pay.
    pub fn paying(&self) -> Vec<Thread> {
        self.at(Level::Paying).map(|(thread, _)| *thread).collect()
    }

    /// A thread that pays has run for `ran_us` since it started. Returns the order that follows once its debt is paid.
    pub fn ran(&mut self, thread: Thread, ran_us: u64) -> Option<LevelOrder> {
        let state = self.threads.get_mut(&thread);
        let state = state.filter(|state| state.level == Level::Paying)?;
        let before_us = state.ran_us.replace(ran_us).unwrap_or(ran_us);
        let us = ran_us.saturating_sub(before_us);
        let owed_us = state.account.owed_us();
        // At its own weight it would have run for twice as long. The account takes that for a full slice and pays half of it at
        // most, in grains of a microsecond.
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

    /// Forgets a thread, since it has ended or somebody else has set its nice value.
    pub fn forget(&mut self, thread: Thread) {
        self.threads.remove(&thread);
    }

    /// How many threads are not at their own level.
    #[cfg(test)]
    fn changed(&self) -> usize {
        self.threads.len() - self.at(Level::Own).count()
    }
}

impl State {
    /// Charges a turn that is over. The thread pays once its turns add up to a debt of [`PAID_FROM_US`].
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
    use crate::turn::TURN_OWED_US_MAX;
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
        assert_eq!(turns.changed(), 0);
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
        assert_eq!(turns.changed(), 1);
        turns.forget(THREAD);
        assert_eq!(turns.changed(), 0);
    }

    #[test]
    fn those_at_their_own_level_make_room() {
        let mut turns = Turns::default();
        let thread = |tid| Thread { tid, ..THREAD };
        for tid in 0..GUARDED_MAX as u32 {
            turns.on(&lost(thread(tid)), 0, at(0));
        }
        let one_more = lost(thread(u32::MAX));
        assert_eq!(turns.on(&one_more, 0, at(0)), None, "all are in a turn");
        assert_eq!(turns.counts.too_many, 1);
        let end = GuardEvent {
            thread: thread(3),
            ..ended(50)
        };
        turns.on(&end, 0, at(1));
        assert!(turns.paying().is_empty(), "nobody looks whether it ends");
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
                prop_assert_eq!(changed, turns.changed());
                prop_assert!(turns.counts.paid_us <= turns.counts.charged_us, "pays what it never got");
            }
        }
    }
}
