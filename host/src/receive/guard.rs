//! `receive guard`: gives a receiver that lost its core with its socket's lock an extra turn, and takes it back. It carries
//! out what [`super::turns`] orders, and undoes all of it at its end.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use super::events::GuardEvents;
use super::exact;
use super::guarding::{begin, report};
use super::ledger::{Entry, Ledger};
use super::priority;
use super::turns::{GuardEvent, Level, LevelOrder, Thread, TurnCounts, Turns};
use super::watch::chosen;
use crate::capabilities::Capability;
use crate::clock::{Clock, monotonic_ns};
use crate::failure::Failure;
use crate::limits::PAID_LOOK_MS_MAX;
use crate::options::Guard;
use crate::place::{Lock, RUN_DIR};
use crate::signals;

/// How often it looks for a signal, at least.
const LOOK: Duration = Duration::from_millis(200);

/// Guards until it is stopped.
///
/// # Errors
/// What the operator has to mend, or what failed; all changes are undone before.
pub fn run(options: &Guard) -> Result<(), Failure> {
    let signals = signals::catch()?;
    let _lock = Lock::take(&lock(), "guards this machine")?;
    let mut ledger = open()?;
    let undone = undo_left(&mut ledger)?;
    if options.restore {
        say!("receive: {undone} threads have back what they had");
        return Ok(());
    }
    if undone > 0 {
        say!("receive: an earlier guard was killed: {undone} threads have back what they had");
    }
    let chosen = chosen(&options.port, options.pid)?;
    if options.exact {
        return exact::run(options, &chosen, signals);
    }
    let events = GuardEvents::open(&chosen)?;
    let is_real_time = priority::lead();
    let lead = if is_real_time {
        "a real-time task"
    } else {
        "a usual task (real time is refused here)"
    };
    let stopped = begin(options, Capability::SysNice, signals, lead)?;
    let mut guard = GuardSession {
        turns: Turns::default(),
        hands: Hands {
            ledger,
            own: HashMap::new(),
            left_alone: 0,
        },
        clock: Clock::start(),
        dry_run: options.dry_run,
    };
    let result = guard.drive(events, &stopped);
    let undone = guard.end();
    let counts = &guard.turns.counts;
    report(options, counts, &told(counts, guard.hands.left_alone));
    result.and(undone)
}

fn lock() -> PathBuf {
    Path::new(RUN_DIR).join("guard.lock")
}

fn open() -> Result<Ledger, Failure> {
    let path = Path::new(RUN_DIR).join("guard.ledger");
    Ledger::open(&path).map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))
}

fn failed(error: io::Error) -> Failure {
    Failure::runtime(format!("the record of changed threads: {error}"))
}

/// Gives back what an earlier guard has left. How many threads had something to be given back.
fn undo_left(ledger: &mut Ledger) -> Result<u64, Failure> {
    let mut undone = 0;
    for entry in ledger.left().map_err(failed)? {
        // One that is gone, or that has what somebody else gave it since, is left as it is.
        let back = |from: i32| {
            from != entry.own && priority::set(entry.thread, from, entry.own).unwrap_or(false)
        };
        undone += u64::from(back(entry.to) || back(entry.from));
    }
    ledger.clear().map_err(failed)?;
    Ok(undone)
}

fn told(counts: &TurnCounts, left_alone: u64) -> String {
    format!(
        "receive: the core was lost with the lock {} times; {} extra turns, {} of them cut; {} us charged, {} us paid; none \
         for {} who owed too much, {} beyond the bound, {} left alone",
        counts.lost,
        counts.turns,
        counts.cut,
        counts.charged_us,
        counts.paid_us,
        counts.owed_too_much,
        counts.too_many,
        left_alone
    )
}

struct GuardSession {
    turns: Turns,
    hands: Hands,
    clock: Clock,
    dry_run: bool,
}

/// What changes nice values, and keeps the record of it.
struct Hands {
    ledger: Ledger,
    /// The own nice value of each thread that was changed, and what it has now by us.
    own: HashMap<Thread, (i32, i32)>,
    left_alone: u64,
}

impl GuardSession {
    fn drive(&mut self, mut events: GuardEvents, stopped: &Receiver<()>) -> Result<(), Failure> {
        let mut heard: Vec<GuardEvent> = Vec::new();
        loop {
            events.wait(self.wait(), &mut heard)?;
            for event in heard.drain(..) {
                let late_us = monotonic_ns().saturating_sub(event.at_ns) / 1_000;
                let order = self.turns.on(&event, late_us, self.clock.now());
                self.carry_out(order)?;
            }
            for order in self.turns.poll(self.clock.now()) {
                self.carry_out(Some(order))?;
            }
            for thread in self.turns.paying() {
                match priority::ran_us(thread) {
                    Ok(ran_us) => {
                        let order = self.turns.ran(thread, ran_us);
                        self.carry_out(order)?;
                    }
                    Err(_) => self.forget(thread)?,
                }
            }
            if stopped.try_recv() != Err(TryRecvError::Empty) {
                return Ok(());
            }
        }
    }

    /// Until something has to be done without an event.
    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let until = self
            .turns
            .deadline()
            .map(|at| Duration::from_micros(at.since_us(now)));
        let looks =
            (!self.turns.paying().is_empty()).then_some(Duration::from_millis(PAID_LOOK_MS_MAX));
        let least = until.into_iter().chain(looks).min().unwrap_or(LOOK);
        // epoll_wait(2) counts milliseconds, and takes less for none.
        least.clamp(Duration::from_millis(1), LOOK)
    }

    fn carry_out(&mut self, order: Option<LevelOrder>) -> Result<(), Failure> {
        let Some(order) = order.filter(|_| !self.dry_run) else {
            return Ok(());
        };
        if !self.hands.set(order)? {
            self.turns.forget(order.thread);
        }
        Ok(())
    }

    fn forget(&mut self, thread: Thread) -> Result<(), Failure> {
        self.turns.forget(thread);
        self.hands.own.remove(&thread);
        self.hands.ledger.strike(thread).map_err(failed)
    }

    /// Undoes everything, also if some of it fails.
    fn end(&mut self) -> Result<(), Failure> {
        let changed: Vec<Thread> = self.hands.own.keys().copied().collect();
        let mut result = Ok(());
        for thread in changed {
            let set = self.hands.set(LevelOrder {
                thread,
                level: Level::Own,
            });
            result = result.and(set.map(|_| ()));
        }
        result.and(self.hands.ledger.clear().map_err(failed))
    }
}

impl Hands {
    /// Whether it was done. If not, the thread is gone, or somebody else has set its nice value: both are left alone.
    fn set(&mut self, order: LevelOrder) -> Result<bool, Failure> {
        let thread = order.thread;
        let known = match self.own.get(&thread) {
            Some(known) => Ok(*known),
            None => priority::nice(thread).map(|nice| (nice, nice)),
        };
        let done = known.and_then(|(own, from)| {
            let to = order.level.nice(own);
            self.ledger.write(Entry {
                thread,
                own,
                from,
                to,
            })?;
            self.own.insert(thread, (own, to));
            Ok((priority::set(thread, from, to)?, own == to))
        });
        match done {
            Ok((true, false)) => Ok(true),
            Ok((true, true)) => {
                self.own.remove(&thread);
                self.ledger.strike(thread).map_err(failed)?;
                Ok(true)
            }
            Ok((false, _)) | Err(_) => {
                self.left_alone += 1;
                self.own.remove(&thread);
                self.ledger.strike(thread).map_err(failed)?;
                Ok(false)
            }
        }
    }
}
