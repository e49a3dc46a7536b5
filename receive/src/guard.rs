//! `receive guard`: gives a receiver an extra turn, and has it pay for that afterwards.
//!
//! A thread that loses its core while it owns its socket's lock is *raised*: it gets the strongest nice value until its receive
//! call ends. What it ran meanwhile is its debt to the other threads. Then it *pays*: it runs at a weaker nice value than its own
//! until its debt is gone. Last it has its own nice value back. [`super::turns`] decides all of that (its header has a table of
//! these levels); this file hears the kernel, carries out the orders, and undoes everything at its end.
//!
//! A guard may be killed at any time. So each change is recorded before it is made ([`super::ledger`]), and the next start
//! restores what the record still has.

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use ackpace_host_base::bpf::{Aligned, Program, Ring};
use ackpace_host_base::capabilities::{self, CapabilitySet};
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
use crate::turns::{GuardEvent, LevelOrder, TurnCounts, Turns};

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
    let _lock = Lock::take(
        &Path::new(RUN_DIR).join("guard.lock"),
        "guards this machine",
    )?;
    let mut ledger = open_ledger()?;
    let undone = undo(&mut ledger)?;
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
            CapabilitySet::BPF,
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
    let stopped = begin(&filter, CapabilitySet::SYS_NICE, signals, runs_as)?;
    let mut guard = GuardSession {
        turns: Turns::default(),
        nice: NiceSetter::new(ledger),
        clock: Clock::start(),
        dry_run: options.dry_run,
    };
    let result = guard.drive(events, &stopped);
    let undone = undo(&mut guard.nice.ledger).map(|_| ());
    let counts = &guard.turns.counts;
    report(options, counts, &summary(counts, guard.nice.left_alone));
    result.and(undone)
}

/// Attaches the program that tells of lost cores, and what it tells.
///
/// # Errors
/// The kernel refuses; what to do.
pub fn open(filter: &Filter) -> Result<(Program, Ring<GuardEvent>), Failure> {
    let mut program = Program::load(OBJECT, NEEDS, None)?;
    filter.choose(&program, &filter.meant().map(u32::to_ne_bytes).concat())?;
    let events = program.events(GuardEvent::parse)?;
    program.attach()?;
    Ok((program, events))
}

/// Once all is set up that needs privileges: drops every capability but `kept`, begins to wait for the signal that ends the
/// guard, and tells the operator what is guarded.
fn begin(
    filter: &Filter,
    kept: CapabilitySet,
    signals: Caught,
    runs_as: &str,
) -> Result<Receiver<()>, Failure> {
    capabilities::keep_only(kept)?;
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

fn open_ledger() -> Result<Ledger, Failure> {
    let path = Path::new(RUN_DIR).join("guard.ledger");
    Ledger::open(&path).map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))
}

fn ledger_failure(error: io::Error) -> Failure {
    Failure::runtime(format!("the record of changed threads: {error}"))
}

/// Gives all threads of the record their own nice values back, also if some of that fails. Returns how many it has restored:
/// those that have ended, or have what somebody else has set, are left alone.
///
/// # Errors
/// Some could not be restored: they stay in the record, for the next start. Or the record can't be written.
fn undo(ledger: &mut Ledger) -> Result<u64, Failure> {
    let (mut undone, mut left) = (0, 0);
    for entry in ledger.entries() {
        match restore(entry) {
            Err(error) if !priority::is_lasting(&error) => left += 1,
            restored => {
                undone += u64::from(restored.unwrap_or(false));
                ledger.strike(entry.thread).map_err(ledger_failure)?;
            }
        }
    }
    match left {
        0 => ledger.clear().map_err(ledger_failure).map(|()| undone),
        _ => Err(Failure::runtime(format!(
            "{left} threads could not be given back what they had: run 'ackpace-host receive guard --restore'"
        ))),
    }
}

/// Gives a thread its own nice value back. `false`: it has its own, or what somebody else has set.
fn restore(entry: Entry) -> io::Result<bool> {
    // A guard may be killed before or after a change, so the thread has `to` or `from`.
    for from in [entry.to, entry.from] {
        if from != entry.own && priority::set(entry.thread, from, entry.own)? {
            return Ok(true);
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
    /// The threads that do not have their own nice value now, by us.
    ledger: Ledger,
    /// Orders about these that have failed for a passing reason: they are tried again.
    again: Vec<LevelOrder>,
    /// How many threads were left alone: they had ended, or had what somebody else has set.
    left_alone: u64,
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
                    Err(error) if priority::is_lasting(&error) => {
                        self.turns.forget(thread);
                        self.nice.ledger.strike(thread).map_err(ledger_failure)?;
                    }
                    Err(_) => {} // it is asked again
                }
            }
            for order in std::mem::take(&mut self.nice.again) {
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
        if !self.nice.set(order)? {
            self.turns.forget(order.thread);
        }
        Ok(())
    }
}

impl NiceSetter {
    /// Nothing is changed yet.
    fn new(ledger: Ledger) -> NiceSetter {
        NiceSetter {
            ledger,
            again: Vec::new(),
            left_alone: 0,
        }
    }

    /// Sets the nice value of a level, if the thread has now what it should have. `false`: it is left alone.
    ///
    /// # Errors
    /// The record can't be written. A guard that can't record its changes is to end, and to restore everything.
    fn set(&mut self, order: LevelOrder) -> Result<bool, Failure> {
        let LevelOrder { thread, level } = order;
        self.again.retain(|order| order.thread != thread);
        let before = self.ledger.of(thread);
        let known = before.map_or_else(
            || priority::nice(thread).map(|nice| (nice, nice)),
            |entry| Ok((entry.own, entry.to)),
        );
        let set = match known {
            Ok((own, from)) => {
                let to = level.nice(own);
                // To restore a thread needs no new line: the one that it has says what it has now.
                if to != own {
                    let entry = Entry {
                        thread,
                        own,
                        from,
                        to,
                    };
                    self.ledger.write(entry).map_err(ledger_failure)?;
                }
                priority::set(thread, from, to).map(|set| (set, to == own))
            }
            Err(error) => Err(error),
        };
        match set {
            Ok((true, false)) => return Ok(true),
            Ok((true, true)) => {}
            Err(error) if before.is_some() && !priority::is_lasting(&error) => {
                self.again.push(order);
                return Ok(true);
            }
            Ok((false, _)) | Err(_) => self.left_alone += 1,
        }
        self.ledger.strike(thread).map_err(ledger_failure)?;
        Ok(matches!(set, Ok((true, _))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::{Level, Thread};
    use std::path::PathBuf;
    use std::{fs, thread};

    /// A setter whose record is a new file of this name.
    fn setter(name: &str) -> (NiceSetter, PathBuf) {
        let path = std::env::temp_dir().join(format!("ackpace-{name}-{}", std::process::id()));
        let ledger = Ledger::open(&path).expect("room for a file");
        (NiceSetter::new(ledger), path)
    }

    /// A thread that has `to` by us, of its own value `own`.
    fn changed(thread: Thread, own: i32, to: i32) -> Entry {
        let from = own;
        Entry {
            thread,
            own,
            from,
            to,
        }
    }

    fn own_level(thread: Thread) -> LevelOrder {
        let level = Level::Own;
        LevelOrder { thread, level }
    }

    #[test]
    fn a_thread_that_can_not_be_restored_now_stays_in_the_record_and_keeps_no_other_from_it() {
        // A thread of its own, which may not make itself stronger any more: setpriority(2) refuses, and the thread lives on.
        let checked = thread::spawn(|| {
            priority::become_usual();
            let stuck = priority::calling_thread();
            let (tell, told) = std::sync::mpsc::channel();
            let (end, ends) = std::sync::mpsc::channel::<()>();
            let other = thread::spawn(move || {
                // Nobody without a capability may change a thread that has it.
                capabilities::keep_only(CapabilitySet::empty())
                    .expect("giving up is always allowed");
                tell.send(priority::calling_thread()).expect("it is heard");
                let _ = ends.recv();
            });
            let weaker = told.recv().expect("it told");
            capabilities::keep_only(CapabilitySet::empty()).expect("giving up is always allowed");
            let has = |thread| priority::nice(thread);
            let Ok(now) = has(stuck) else {
                return; // idle priority, which is not touched
            };
            let (mut setter, path) = setter("stuck");
            // To become stronger is refused now; to become weaker is not.
            for entry in [changed(stuck, now - 1, now), changed(weaker, 19, now)] {
                setter.ledger.write(entry).expect("room");
            }
            assert!(setter.set(own_level(stuck)).expect("a record"));
            assert_eq!(setter.again, [own_level(stuck)], "it is tried again");
            let kept = undo(&mut setter.ledger).expect_err("it is refused again");
            assert!(kept.to_string().contains("1 threads"), "{kept}");
            assert_eq!(has(weaker).expect("it lives"), 19);
            let mut left = Ledger::open(&path).expect("a file");
            assert_eq!(left.entries().len(), 1, "it stays");
            left.write(changed(stuck, 19, now)).expect("its own line");
            assert_eq!(undo(&mut left).expect("that one is allowed"), 1);
            assert_eq!(has(stuck).expect("it lives"), 19);
            fs::remove_file(&path).expect("our own file");
            drop(end);
            other.join().expect("no panic");
        });
        checked.join().expect("no panic");
    }

    #[test]
    fn a_thread_that_has_ended_is_forgotten() {
        let (mut setter, path) = setter("ended");
        let ended = Thread {
            started_ns: 0,
            ..priority::calling_thread()
        };
        setter.ledger.write(changed(ended, 0, -20)).expect("room");
        assert!(!setter.set(own_level(ended)).expect("a record"));
        assert_eq!(setter.left_alone, 1);
        assert!(setter.ledger.entries().is_empty() && setter.again.is_empty());
        fs::remove_file(&path).expect("our own file");
    }

    #[test]
    fn a_change_that_can_not_be_recorded_is_not_made() {
        let full = Ledger::open(Path::new("/dev/full")).expect("Linux has it");
        let (thread, level) = (priority::calling_thread(), Level::Paying);
        let before = priority::nice(thread).ok();
        let set = NiceSetter::new(full).set(LevelOrder { thread, level });
        assert!(set.is_err() || before.is_none());
        assert_eq!(priority::nice(thread).ok(), before);
    }
}
