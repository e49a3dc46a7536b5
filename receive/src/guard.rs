//! `receive guard`: gives a receiver an extra turn, and has it pay for that afterwards.
//!
//! A thread that loses its core while it owns its socket's lock is *raised*: it gets the strongest nice value until its receive
//! call ends. What it ran meanwhile is its debt to the other threads. Then it *pays*: it runs at a weaker nice value than its own
//! until its debt is gone. Last it has its own nice value back. [`super::turns`] decides all of that (its header has a table of
//! these levels); this file hears the kernel, carries out the orders, and undoes everything at its end.
//!
//! A guard may be killed at any time. So each change is recorded before it is made ([`super::ledger`]), and the next start
//! restores what the record still has.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ackpace_host_base::bpf::{Aligned, Program, Ring};
use ackpace_host_base::capabilities::{self, Capability};
use ackpace_host_base::clock::{Clock, monotonic_ns};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::lock::{Lock, RUN_DIR};
use ackpace_host_base::signals::{self, Caught};
use ackpace_host_base::{object, say, tell};
use serde::Serialize;

use crate::exact::Exact;
use crate::filter::Filter;
use crate::ledger::{Entry, Ledger};
use crate::options::Guard;
use crate::priority;
use crate::turns::{GuardEvent, Level, LevelOrder, Thread, TurnCounts, Turns};

static OBJECT: &Aligned<[u8]> = object!("guard");
const NEEDS: &str = "this kernel has no BTF, or lacks a tracepoint or a function that the program uses: Linux 6.3 or later \
                     has all";
/// How often those who pay are looked at, in milliseconds: one who has paid may pay so long in excess.
const PAID_LOOK_MS_MAX: u64 = 20;
/// How often it looks for a signal, at least.
const LOOK: Duration = Duration::from_millis(200);

/// Guards until it is stopped. With `--restore` it only undoes what a killed guard has left.
///
/// # Errors
/// What the operator has to mend, or what failed. All changes are undone first; if some can't be, the record keeps them.
pub fn run(options: &Guard) -> Result<(), Failure> {
    let signals = signals::catch()?;
    let _lock = Lock::take(&lock_path(), "guards this machine")?;
    let mut ledger = open_ledger()?;
    let undone = undo_left(&mut ledger)?;
    if options.restore {
        say!("receive: {undone} threads have back what they had");
        return Ok(());
    }
    if undone > 0 {
        say!("receive: an earlier guard was killed: {undone} threads have back what they had");
    }
    let filter = Filter::of(&options.port, options.pid)?;
    if options.exact {
        let exact = Exact::open(&filter)?;
        let stopped = begin(
            &filter,
            Capability::Bpf,
            signals,
            "the scheduler of this machine",
        )?;
        let result = exact.wait(&stopped);
        let counts = exact.counted()?;
        report(options, &counts, &counts.to_string());
        return result;
    }
    let (_program, events) = open(&filter)?;
    let runs_as = match priority::become_real_time() {
        true => "a real-time task",
        false => "a usual task (real time is refused here)",
    };
    let stopped = begin(&filter, Capability::SysNice, signals, runs_as)?;
    let mut guard = GuardSession {
        turns: Turns::default(),
        nice: NiceSetter::new(ledger),
        clock: Clock::start(),
        dry_run: options.dry_run,
    };
    let result = guard.drive(events, &stopped);
    let undone = guard.nice.restore_all();
    let counts = &guard.turns.counts;
    report(options, counts, &summary(counts, guard.nice.left_alone));
    result.and(undone)
}

/// Attaches the program that tells of lost cores, and what it tells.
///
/// # Errors
/// The kernel refuses; what to do.
pub fn open(filter: &Filter) -> Result<(Program, Ring<GuardEvent>), Failure> {
    let mut program = Program::load(OBJECT, NEEDS)?;
    filter.choose(&program, &filter.meant().map(u32::to_ne_bytes).concat())?;
    let events = program.events(GuardEvent::parse)?;
    program.attach()?;
    Ok((program, events))
}

/// Once all is set up that needs privileges: drops every capability but `kept`, begins to wait for the signal that ends the
/// guard, and tells the operator what is guarded.
fn begin(
    filter: &Filter,
    kept: Capability,
    signals: Caught,
    runs_as: &str,
) -> Result<Receiver<()>, Failure> {
    capabilities::keep_only(&[kept])?;
    let stopped = signals.hear()?;
    say!("receive: guards {filter} as {runs_as}; Ctrl-C ends it");
    Ok(stopped)
}

/// Tells what a guard has done: with `--json` as an object on standard output, else in `words` on standard error.
fn report(options: &Guard, counts: &impl Serialize, words: &str) {
    match options.json {
        true => tell!("{}", serde_json::to_string(counts).unwrap_or_default()),
        false => say!("{words}"),
    }
}

/// The file that one guard of this machine locks.
fn lock_path() -> PathBuf {
    Path::new(RUN_DIR).join("guard.lock")
}

fn open_ledger() -> Result<Ledger, Failure> {
    let path = Path::new(RUN_DIR).join("guard.ledger");
    Ledger::open(&path).map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))
}

fn ledger_failure(error: io::Error) -> Failure {
    Failure::runtime(format!("the record of changed threads: {error}"))
}

/// Restores what an earlier guard has left. Returns how many threads were restored. One that can't be restored now keeps no
/// other from it; the record stays then, since to restore a thread twice does no harm.
fn undo_left(ledger: &mut Ledger) -> Result<u64, Failure> {
    let (mut undone, mut failed) = (0, None);
    for entry in ledger.left().map_err(ledger_failure)? {
        match restore(entry) {
            Ok(restored) => undone += u64::from(restored),
            Err(failure) => failed = failed.or(Some(failure)),
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None => ledger.clear().map_err(ledger_failure).map(|()| undone),
    }
}

/// Gives a thread of the record its own nice value back. `false`: it is left alone, since it has its own, has ended, or has a
/// value that somebody else has set.
fn restore(entry: Entry) -> Result<bool, Failure> {
    // The earlier guard may have been killed before or after the change, so the thread has `to` or `from`.
    for from in [entry.to, entry.from] {
        let set = match from == entry.own {
            true => Ok(false),
            false => priority::set(entry.thread, from, entry.own),
        };
        match set {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(error) if priority::is_lasting(&error) => return Ok(false),
            Err(error) => {
                let tid = entry.thread.tid;
                let text = format!("thread {tid} can't be given its nice value back: {error}");
                return Err(Failure::runtime(text));
            }
        }
    }
    Ok(false)
}

/// What the guard has done, in words.
fn summary(counts: &TurnCounts, left_alone: u64) -> String {
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

/// A guard that runs.
struct GuardSession {
    /// Decides who gets a turn, and who pays.
    turns: Turns,
    nice: NiceSetter,
    clock: Clock,
    /// Nothing is changed: what would be done is only counted.
    dry_run: bool,
}

/// Sets nice values, and keeps the record of that.
struct NiceSetter {
    /// The record of changes.
    ledger: Ledger,
    /// The threads that do not have their own nice value now, by us.
    changed: HashMap<Thread, Changed>,
    /// Orders about changed threads that have failed for a passing reason: they are tried again ([`NiceSetter::take_undone`]).
    undone: HashMap<Thread, Level>,
    /// How many threads were left alone: they had ended, or had what somebody else has set.
    left_alone: u64,
}

/// A thread whose nice value we have changed.
#[derive(Clone, Copy)]
struct Changed {
    /// Its own nice value.
    own: i32,
    /// What it has now by us.
    now: i32,
}

/// What became of an order to set a nice value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carried {
    /// It is done.
    Out,
    /// It failed for a passing reason. The thread keeps what it has by us, and stays in the record: the order is tried again.
    Later,
    /// It can't be done: the thread has ended, is not of the usual class, or has what somebody else has set. Or it could not be
    /// changed for the first time. It is left alone, and is in the record no more.
    LeftAlone,
}

impl GuardSession {
    fn drive(
        &mut self,
        mut events: Ring<GuardEvent>,
        stopped: &Receiver<()>,
    ) -> Result<(), Failure> {
        let mut heard: Vec<GuardEvent> = Vec::new();
        loop {
            events.wait(self.wait(), &mut heard)?;
            for event in heard.drain(..) {
                // A thread stays raised until the order that follows, so the delay counts as time that it ran.
                let late_us = monotonic_ns().saturating_sub(event.at_ns) / 1_000;
                let order = self.turns.on(&event, late_us, self.clock.now());
                self.carry_out(order)?;
            }
            for order in self.turns.poll(self.clock.now()) {
                self.carry_out(Some(order))?;
            }
            // Threads that pay owe run time. The machine hears how long each has run, and orders its own nice value back once its
            // debt is gone.
            for thread in self.turns.paying() {
                match priority::ran_us(thread) {
                    Ok(ran_us) => {
                        let order = self.turns.ran(thread, ran_us);
                        self.carry_out(order)?;
                    }
                    Err(error) if priority::is_lasting(&error) => self.forget(thread)?,
                    Err(_) => {} // it is asked again
                }
            }
            for order in self.nice.take_undone() {
                self.carry_out(Some(order))?;
            }
            if stopped.try_recv() != Err(TryRecvError::Empty) {
                return Ok(());
            }
        }
    }

    /// How long to wait for an event: until something has to be done without one.
    fn wait(&self) -> Duration {
        let now = self.clock.now();
        let until = self
            .turns
            .deadline()
            .map(|at| Duration::from_micros(at.since_us(now)));
        let looks =
            (!self.turns.paying().is_empty()).then_some(Duration::from_millis(PAID_LOOK_MS_MAX));
        let least = until.into_iter().chain(looks).min().unwrap_or(LOOK);
        // epoll_wait(2) counts milliseconds. Less than one would be rounded down to 0, and this loop would spin.
        least.clamp(Duration::from_millis(1), LOOK)
    }

    /// Sets what is ordered, if anything is. The machine forgets a thread that is left alone.
    fn carry_out(&mut self, order: Option<LevelOrder>) -> Result<(), Failure> {
        let Some(order) = order.filter(|_| !self.dry_run) else {
            return Ok(());
        };
        match self.nice.set(order)? {
            Carried::Out | Carried::Later => {}
            Carried::LeftAlone => self.turns.forget(order.thread),
        }
        Ok(())
    }

    /// A thread that pays has ended.
    fn forget(&mut self, thread: Thread) -> Result<(), Failure> {
        self.turns.forget(thread);
        self.nice.forget(thread)
    }
}

impl NiceSetter {
    /// Nothing is changed yet.
    fn new(ledger: Ledger) -> NiceSetter {
        NiceSetter {
            ledger,
            changed: HashMap::new(),
            undone: HashMap::new(),
            left_alone: 0,
        }
    }

    /// Sets the nice value of a level, if the thread has now what it should have.
    ///
    /// # Errors
    /// The record can't be written. A guard that can't record its changes is to end, and to restore everything.
    fn set(&mut self, order: LevelOrder) -> Result<Carried, Failure> {
        let LevelOrder { thread, level } = order;
        self.undone.remove(&thread);
        let before = self.changed.get(&thread).copied();
        let set = match before {
            Some(changed) => self.change(thread, changed, level)?,
            None => match priority::nice(thread) {
                Ok(nice) => self.change(thread, Changed::not(nice), level)?,
                Err(error) => Err(error),
            },
        };
        match set {
            Ok(true) => Ok(Carried::Out),
            Err(error) if before.is_some() && !priority::is_lasting(&error) => {
                self.undone.insert(thread, level);
                Ok(Carried::Later)
            }
            Ok(false) | Err(_) => {
                self.left_alone += 1;
                self.forget(thread)?;
                Ok(Carried::LeftAlone)
            }
        }
    }

    /// Changes a nice value, and records that first. `Ok(false)` and the inner error are those of [`priority::set`]; the outer one is
    /// that of the record, for a thread that is changed already.
    fn change(
        &mut self,
        thread: Thread,
        changed: Changed,
        level: Level,
    ) -> Result<io::Result<bool>, Failure> {
        let Changed { own, now } = changed;
        let to = level.nice(own);
        // To restore a thread needs no new line: the one that it has says `now`. So that works even if nothing can be written.
        if to != own {
            let entry = Entry {
                thread,
                own,
                from: now,
                to,
            };
            match self.ledger.write(entry) {
                Ok(()) => {}
                Err(error) if now == own => return Ok(Err(error)), // it is not changed for the first time
                Err(error) => return Err(ledger_failure(error)),
            }
        }
        let set = priority::set(thread, now, to);
        if let Ok(true) = set {
            match to == own {
                true => self.forget(thread)?,
                false => drop(self.changed.insert(thread, Changed { own, now: to })),
            }
        }
        Ok(set)
    }

    /// The orders that are to be tried again.
    fn take_undone(&mut self) -> Vec<LevelOrder> {
        let undone = self.undone.drain();
        undone
            .map(|(thread, level)| LevelOrder { thread, level })
            .collect()
    }

    /// A thread has its own value, has ended, or is left alone: nothing is to be restored.
    fn forget(&mut self, thread: Thread) -> Result<(), Failure> {
        self.changed.remove(&thread);
        self.undone.remove(&thread);
        self.ledger.strike(thread).map_err(ledger_failure)
    }

    /// Gives all threads their own nice values back, also if some of that fails.
    ///
    /// # Errors
    /// Some could not be restored: they stay in the record, for the next start. Or the record can't be written.
    fn restore_all(&mut self) -> Result<(), Failure> {
        let changed: Vec<Thread> = self.changed.keys().copied().collect();
        let mut result = Ok(());
        for thread in changed {
            let level = Level::Own;
            let set = self.set(LevelOrder { thread, level });
            result = result.and(set.map(|_| ()));
        }
        match self.changed.len() {
            0 => result.and(self.ledger.clear().map_err(ledger_failure)),
            left => Err(Failure::runtime(format!(
                "{left} threads could not be given back what they had: run 'ackpace-host receive guard --restore'"
            ))),
        }
    }
}

impl Changed {
    /// A thread that has its own nice value.
    fn not(nice: i32) -> Changed {
        Changed {
            own: nice,
            now: nice,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A setter whose record is a new file of this name, without a name any more.
    fn setter(name: &str) -> NiceSetter {
        let path = std::env::temp_dir().join(format!("ackpace-{name}-{}", std::process::id()));
        let ledger = Ledger::open(&path).expect("room for a file");
        std::fs::remove_file(&path).expect("our own file");
        NiceSetter::new(ledger)
    }

    fn own_level(thread: Thread) -> LevelOrder {
        let level = Level::Own;
        LevelOrder { thread, level }
    }

    #[test]
    fn a_thread_that_can_not_be_restored_now_is_restored_later() {
        // A thread of its own, which may not make itself stronger any more: setpriority(2) refuses, and the thread lives on.
        let checked = thread::spawn(|| {
            priority::become_usual();
            let thread = priority::calling_thread();
            capabilities::keep_only(&[]).expect("giving up is always allowed");
            let Ok(now) = priority::nice(thread) else {
                return; // idle priority, which is not touched
            };
            let mut setter = setter("restored-later");
            let own = now - 1;
            setter.changed.insert(thread, Changed { own, now });
            let set = setter.set(own_level(thread)).expect("a record");
            assert_eq!(set, Carried::Later);
            assert!(setter.changed.contains_key(&thread), "it is not forgotten");
            assert_eq!(setter.take_undone(), [own_level(thread)]);
            let kept = setter.restore_all().expect_err("it is refused again");
            assert!(kept.to_string().contains("--restore"), "{kept}");
            // Its own value is the weakest: that one is allowed.
            let own = 19;
            setter.changed.insert(thread, Changed { own, now });
            setter.restore_all().expect("it is restored");
            assert!(setter.changed.is_empty());
            assert_eq!(priority::nice(thread).expect("it lives"), own);
        });
        checked.join().expect("no panic");
    }

    #[test]
    fn a_thread_that_has_ended_is_forgotten() {
        let mut setter = setter("ended");
        let ended = Thread {
            started_ns: 0,
            ..priority::calling_thread()
        };
        setter.changed.insert(ended, Changed { own: 0, now: -20 });
        let set = setter.set(own_level(ended)).expect("a record");
        assert_eq!((set, setter.left_alone), (Carried::LeftAlone, 1));
        assert!(setter.changed.is_empty() && setter.take_undone().is_empty());
    }

    #[test]
    fn a_change_that_can_not_be_recorded_is_not_made() {
        let mut setter = setter("unrecorded");
        setter.ledger = Ledger::open(Path::new("/dev/full")).expect("Linux has it");
        let (thread, level) = (priority::calling_thread(), Level::Paying);
        let before = Changed { own: 0, now: -20 };
        setter.changed.insert(thread, before);
        assert!(setter.set(LevelOrder { thread, level }).is_err());
        assert!(setter.changed.contains_key(&thread), "it is not forgotten");
    }

    #[test]
    fn a_thread_that_can_not_be_restored_keeps_no_other_from_it() {
        let checked = thread::spawn(|| {
            priority::become_usual();
            let stuck = priority::calling_thread();
            let (tell, told) = std::sync::mpsc::channel();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let other = thread::spawn(move || {
                // Nobody without a capability may change a thread that has it.
                capabilities::keep_only(&[]).expect("giving up is always allowed");
                tell.send(priority::calling_thread()).expect("it is heard");
                let _ = ends.recv();
            });
            let weaker = told.recv().expect("it told");
            capabilities::keep_only(&[]).expect("giving up is always allowed");
            let has = |thread| priority::nice(thread).expect("it lives");
            let path = std::env::temp_dir().join(format!("ackpace-left-{}", std::process::id()));
            let mut left = Ledger::open(&path).expect("room for a file");
            // To become stronger is refused now; to become weaker is not.
            let entries = [(stuck, has(stuck) - 1), (weaker, 19)];
            for (thread, own) in entries {
                let to = has(thread);
                let entry = Entry {
                    thread,
                    own,
                    from: own,
                    to,
                };
                left.write(entry).expect("room");
            }
            assert!(undo_left(&mut left).is_err(), "the first can't be restored");
            assert_eq!(has(weaker), 19);
            let record = Ledger::open(&path).and_then(|ledger| ledger.left());
            assert_eq!(record.expect("a file").len(), 2, "it stays");
            std::fs::remove_file(&path).expect("our own file");
            drop(end);
            other.join().expect("no panic");
        });
        checked.join().expect("no panic");
    }
}
