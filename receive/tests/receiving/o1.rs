//! The O(1) scheduler of Linux 2.6.14 (kernel/sched.c), for one CPU and conventional processes: static and dynamic
//! priority, sleep_avg and the bonus from it, time slices in ticks of a millisecond, an active and an expired array. Wu
//! and Crawford changed this scheduler; their rule, asked when a slice ends, is `receive/src/turn.rs`.
//!
//! The caller keeps the time. It calls [`Scheduler::tick`] each millisecond and [`Scheduler::wake`] when a process has
//! something to do. It calls [`Scheduler::schedule`] when one of these says so, and when the running process sleeps.

mod array;

use self::array::Array;
use ackpace_receive::turn::{Account, Expiring, Place, When, listing_1};

/// Nanoseconds in a millisecond, which is a tick.
pub const NS_PER_TICK: u64 = 1_000_000;
/// Time slice of nice 0, in ticks (DEF_TIMESLICE).
const SLICE_TICKS: u64 = 100;
/// MAX_SLEEP_AVG and STARVATION_LIMIT, in ticks.
const SLEEP_AVG_TICKS: u64 = 1_000;
const SLEEP_AVG_NS: u64 = SLEEP_AVG_TICKS * NS_PER_TICK;
/// MAX_BONUS: the bonus is 0 to 10, of which 5 is neutral.
const BONUS: u64 = 10;
/// A process of nice 0 is interactive from a bonus of 5 + 2 on (INTERACTIVE_DELTA).
const INTERACTIVE_DELTA: i64 = 2;
/// GRANULARITY: interactive processes of one priority take turns at least this often, in ticks.
const GRANULARITY_TICKS: u64 = 10;

/// A process, numbered in the order of [`Scheduler::add`].
pub type Task = usize;

/// What happens when a slice ends while packets wait for the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Nothing, as in Linux 2.6.14.
    Usual,
    /// Wu and Crawford's Listings 1 and 2.
    Listing1,
    /// An extra turn that is charged to the next slices.
    Charged(When),
}

/// What wakes a process. It decides how much credit its sleep brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// From an interruptible sleep, by an interrupt.
    Interrupt,
    /// From a disk (TASK_UNINTERRUPTIBLE).
    Disk,
}

/// What the running process does to its socket when a tick comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receiving {
    /// Its backlog queue or its prequeue is not empty.
    pub packets_wait: bool,
    /// It owns the socket's lock.
    pub owns_lock: bool,
}

/// How often time slices of receiving processes ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceCounts {
    /// All slices that ended.
    pub expired: u64,
    /// Slices that ended while the process owned the lock.
    pub with_lock: u64,
    /// Slices that ended while packets waited.
    pub with_packets: u64,
    /// Extra turns.
    pub extra: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activated {
    No,
    Interrupt,
    Disk,
}

#[derive(Clone, Copy, Debug)]
struct Process {
    nice: i64,
    /// Dynamic priority: 0 to 39, the lower the better. Linux adds 100.
    prio: usize,
    sleep_avg_ns: u64,
    slice_ticks: u64,
    activated: Activated,
    /// When it began to run, to wait or to sleep.
    since_ns: u64,
    /// The array in which it is queued; `None`: it sleeps.
    array: Option<usize>,
    /// The paper's `extra_run_flag`, or an extra turn that will be charged.
    turn: Turn,
    account: Account,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    None,
    Yields,
    Charged { from_ns: u64 },
}

/// The scheduler of one CPU.
#[derive(Clone, Debug)]
pub struct Scheduler {
    rule: Rule,
    processes: Vec<Process>,
    arrays: [Array; 2],
    active: usize,
    expired_since_ns: Option<u64>,
    best_expired_nice: i64,
    running: Option<Task>,
    counts: SliceCounts,
}

/// The slice of a nice value, in ticks (Wu and Crawford's Table 1).
pub fn slice_ticks(nice: i64) -> u64 {
    let most_ticks = if nice < 0 {
        4 * SLICE_TICKS
    } else {
        SLICE_TICKS
    };
    (most_ticks * (20 - nice) as u64 / 20).max(5)
}

impl Process {
    fn bonus(&self) -> u64 {
        self.sleep_avg_ns / NS_PER_TICK * BONUS / SLEEP_AVG_TICKS
    }

    fn effective_prio(&self) -> usize {
        let bonus = self.bonus() as i64 - BONUS as i64 / 2;
        (20 + self.nice - bonus).clamp(0, 39) as usize
    }

    /// TASK_INTERACTIVE's DELTA.
    fn delta(&self) -> i64 {
        self.nice * BONUS as i64 / 40 + INTERACTIVE_DELTA
    }

    fn is_interactive(&self) -> bool {
        self.prio as i64 <= 20 + self.nice - self.delta()
    }

    /// INTERACTIVE_SLEEP: a sleep of this length makes it interactive at once.
    fn long_sleep_ns(&self) -> u64 {
        let bonus = BONUS as i64 / 2 + self.delta() + 1;
        (SLEEP_AVG_TICKS * bonus.max(0) as u64 / BONUS).saturating_sub(1) * NS_PER_TICK
    }

    /// Its sleep becomes credit (recalc_task_prio).
    fn credit(&mut self, until_ns: u64) {
        let slept_ns = until_ns.saturating_sub(self.since_ns).min(SLEEP_AVG_NS);
        let from_disk = self.activated == Activated::Disk;
        if slept_ns > self.long_sleep_ns() && !from_disk {
            self.sleep_avg_ns = SLEEP_AVG_NS - SLICE_TICKS * NS_PER_TICK;
        } else if slept_ns > 0 {
            let worth_ns = slept_ns * (BONUS - self.bonus()).max(1);
            self.sleep_avg_ns = match self.long_sleep_ns() {
                most_ns if from_disk && self.sleep_avg_ns >= most_ns => self.sleep_avg_ns,
                most_ns if from_disk => (self.sleep_avg_ns + worth_ns).min(most_ns),
                _ => (self.sleep_avg_ns + worth_ns).min(SLEEP_AVG_NS),
            };
        }
        self.prio = self.effective_prio();
    }

    /// How long an interactive process runs before others of its priority have their turn, in ticks.
    fn granularity_ticks(&self) -> u64 {
        GRANULARITY_TICKS << ((BONUS - self.bonus()).max(1) - 1)
    }
}

impl Scheduler {
    /// A scheduler without processes.
    pub fn new(rule: Rule) -> Scheduler {
        Scheduler {
            rule,
            processes: Vec::new(),
            arrays: [Array::default(), Array::default()],
            active: 0,
            expired_since_ns: None,
            best_expired_nice: i64::MAX,
            running: None,
            counts: SliceCounts::default(),
        }
    }

    /// Adds a process, which sleeps at first. `nice` is -20 to 19; `sleep_avg_ns` is its credit, at most a second.
    pub fn add(&mut self, nice: i64, sleep_avg_ns: u64, slice_ticks: u64) -> Task {
        let mut process = Process {
            nice,
            prio: 0,
            sleep_avg_ns: sleep_avg_ns.min(SLEEP_AVG_NS),
            slice_ticks: slice_ticks.max(1),
            activated: Activated::No,
            since_ns: 0,
            array: None,
            turn: Turn::None,
            account: Account::default(),
        };
        process.prio = process.effective_prio();
        self.processes.push(process);
        self.processes.len() - 1
    }

    /// The running process; `None`: the CPU is idle.
    pub fn running(&self) -> Option<Task> {
        self.running
    }

    /// How often slices of receiving processes ended.
    pub fn counts(&self) -> SliceCounts {
        self.counts
    }

    /// The process has something to do. Returns whether to schedule now.
    pub fn wake(&mut self, task: Task, how: Wake, now_ns: u64) -> bool {
        let process = &mut self.processes[task];
        if process.array.is_some() {
            return false;
        }
        if how == Wake::Disk {
            process.activated = Activated::Disk;
        }
        process.credit(now_ns);
        if process.activated == Activated::No {
            process.activated = Activated::Interrupt;
        }
        process.since_ns = now_ns;
        let prio = process.prio;
        self.enqueue(task, self.active);
        self.running
            .is_none_or(|running| prio < self.processes[running].prio)
    }

    fn enqueue(&mut self, task: Task, array: usize) {
        self.arrays[array].push(self.processes[task].prio, task);
        self.processes[task].array = Some(array);
    }

    fn dequeue(&mut self, task: Task) {
        let process = &mut self.processes[task];
        if let Some(array) = process.array.take() {
            self.arrays[array].remove(process.prio, task);
        }
    }

    /// EXPIRED_STARVING.
    fn expired_starve(&self, now_ns: u64) -> bool {
        let awake = (self.arrays[0].len() + self.arrays[1].len()) as u64;
        let bound_ns = SLEEP_AVG_NS * awake + NS_PER_TICK;
        let too_long = self
            .expired_since_ns
            .is_some_and(|since_ns| now_ns - since_ns >= bound_ns);
        too_long
            || self
                .running
                .is_some_and(|task| self.processes[task].nice > self.best_expired_nice)
    }

    /// A millisecond has passed (scheduler_tick). Returns whether to schedule now.
    pub fn tick(&mut self, receiving: Option<Receiving>, now_ns: u64) -> bool {
        let Some(task) = self.running else {
            return false;
        };
        let process = &mut self.processes[task];
        if process.array != Some(self.active) {
            return true;
        }
        process.slice_ticks -= 1;
        if process.slice_ticks == 0 {
            self.expire(task, receiving, now_ns);
            return true;
        }
        let used_ticks = slice_ticks(process.nice).saturating_sub(process.slice_ticks);
        let every_ticks = process.granularity_ticks();
        let takes_turns = process.is_interactive()
            && used_ticks % every_ticks == 0
            && process.slice_ticks >= every_ticks;
        if takes_turns {
            self.dequeue(task);
            self.enqueue(task, self.active);
        }
        takes_turns
    }

    fn expire(&mut self, task: Task, receiving: Option<Receiving>, now_ns: u64) {
        self.expired_since_ns.get_or_insert(now_ns);
        let expired_starve = self.expired_starve(now_ns);
        self.dequeue(task);
        self.settle(task, now_ns);
        let process = &mut self.processes[task];
        process.prio = process.effective_prio();
        let is_interactive = process.is_interactive();
        let of = Expiring {
            packets_wait: receiving.is_some_and(|of| of.packets_wait),
            owns_lock: receiving.is_some_and(|of| of.owns_lock),
            is_interactive,
            expired_starve,
        };
        if receiving.is_some() {
            self.counts.expired += 1;
            self.counts.with_lock += u64::from(of.owns_lock);
            self.counts.with_packets += u64::from(of.packets_wait);
        }
        if self.gives_charged_turn(task, of, now_ns) {
            return;
        }
        self.refill(task);
        let place = match self.rule {
            Rule::Listing1 => listing_1(of),
            Rule::Usual | Rule::Charged(_) => Place::Usual,
        };
        match place {
            Place::Active { yields } => {
                self.counts.extra += 1;
                if yields {
                    self.processes[task].turn = Turn::Yields;
                }
                self.enqueue(task, self.active);
            }
            Place::Usual if is_interactive && !expired_starve => self.enqueue(task, self.active),
            Place::Usual | Place::Expired => self.enqueue_expired(task),
        }
    }

    fn enqueue_expired(&mut self, task: Task) {
        let nice = self.processes[task].nice;
        self.best_expired_nice = self.best_expired_nice.min(nice);
        self.enqueue(task, 1 - self.active);
    }

    /// Gives it a full slice, less what it owes for extra turns.
    fn refill(&mut self, task: Task) {
        let process = &mut self.processes[task];
        let full_us = slice_ticks(process.nice) * 1_000;
        process.slice_ticks = process.account.slice_us(full_us, 1_000) / 1_000;
    }

    /// Whether it gets an extra turn that is charged: then it stays in front, without a new slice.
    fn gives_charged_turn(&mut self, task: Task, of: Expiring, now_ns: u64) -> bool {
        let Rule::Charged(when) = self.rule else {
            return false;
        };
        let process = &mut self.processes[task];
        let extra_ticks = process.account.extra_us(of, when) / 1_000;
        if extra_ticks == 0 {
            return false;
        }
        self.counts.extra += 1;
        process.slice_ticks = extra_ticks;
        process.turn = Turn::Charged { from_ns: now_ns };
        process.array = Some(self.active);
        self.arrays[self.active].push_front(process.prio, task);
        true
    }

    /// Charges an extra turn that has ended.
    fn settle(&mut self, task: Task, now_ns: u64) {
        let process = &mut self.processes[task];
        if let Turn::Charged { from_ns } = process.turn {
            process.turn = Turn::None;
            process.account.charge((now_ns - from_ns).div_ceil(1_000));
        }
    }

    /// The running process returns from its receive call (Listing 2). Returns whether it yields: then schedule.
    pub fn call_ends(&mut self, now_ns: u64) -> bool {
        let Some(task) = self.running else {
            return false;
        };
        match self.processes[task].turn {
            Turn::None => return false,
            Turn::Yields => self.processes[task].turn = Turn::None,
            Turn::Charged { .. } => {
                self.settle(task, now_ns);
                self.refill(task);
            }
        }
        // sys_sched_yield: it moves to the expired array and keeps the rest of its slice.
        self.dequeue(task);
        self.enqueue_expired(task);
        true
    }

    /// Chooses the process that runs next (schedule). `sleeps`: the running one has nothing more to do.
    pub fn schedule(&mut self, sleeps: bool, now_ns: u64) -> Option<Task> {
        if let Some(task) = self.running {
            let process = &mut self.processes[task];
            let ran_ns = (now_ns - process.since_ns).min(SLEEP_AVG_NS) / process.bonus().max(1);
            process.sleep_avg_ns = process.sleep_avg_ns.saturating_sub(ran_ns);
            process.since_ns = now_ns;
            if sleeps {
                self.dequeue(task);
            }
        }
        if self.arrays[self.active].is_empty() {
            if self.arrays[1 - self.active].is_empty() {
                self.expired_since_ns = None;
                self.running = None;
                return None;
            }
            self.active = 1 - self.active;
            self.expired_since_ns = None;
            self.best_expired_nice = i64::MAX;
        }
        let next = self.arrays[self.active].first();
        if let Some(task) = next {
            if self.processes[task].activated == Activated::Interrupt {
                // Waiting for the CPU after an interrupt counts as sleep.
                self.dequeue(task);
                self.processes[task].credit(now_ns);
                self.enqueue(task, self.active);
            }
            self.processes[task].activated = Activated::No;
            self.processes[task].since_ns = now_ns;
        }
        self.running = next;
        next
    }
}

#[cfg(test)]
mod tests;
