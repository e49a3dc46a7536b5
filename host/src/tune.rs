//! `tune`: drives the machine that decides ([`crate::tuner`], which introduces its words) with the process that passes over the
//! sockets ([`crate::passes`]) until it is stopped, and undoes all changes at the end. It has no capability itself.

use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::time::Duration;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::clock::{Clock, thread_cpu_ns};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::lock::Lock;
use ackpace_host_base::say;
use ackpace_host_base::signals::{self, Caught};

use crate::cgroups::ChosenCgroup;
use crate::journal::Journal;
use crate::kernel::Order;
use crate::matching::Matching;
use crate::options::Tune;
use crate::passes::Passes;
use crate::place::{self, Place};
use crate::snapshot::{Answer, Outcome, View};
use crate::status::{self, Board};
use crate::tuner::{Action, Change, FLOOR_BYTES, Tuner, TunerSettings};
use ackpace_host_base::lines::{Lines, To};

/// After so many snapshots `--once` is done: by the second one rates are known.
const SNAPSHOTS_OF_ONCE: u64 = 2;

/// The binary that is running.
const OWN_BINARY: &str = "/proc/self/exe";
/// A pass that hangs is told of after this time. Less: lines on a machine that is merely busy.
const TOLD_AFTER: Duration = Duration::from_secs(2);
const HANGS: &str = "tune: a pass hangs, since a process keeps the lock of a socket of its own; nothing is divided until it lets go. \
                     `grep -lE 'tcp_(send|recv)msg' /proc/[0-9]*/task/*/stack` usually names it";
/// What an instance does, for a second one.
const DOES: &str = "tunes this network namespace";

/// Tunes until SIGTERM or SIGINT.
///
/// # Errors
/// An option or the machine does not allow it, or a system call fails; all changes are undone before.
pub fn run(options: &Tune) -> Result<(), Failure> {
    // Caught before anything is changed.
    let signals = signals::catch()?;
    let mut session = TuneSession::start(options, signals)?;
    let result = session.drive(options);
    let undone = session.end();
    result.and(undone)
}

/// Undoes what a killed instance has left.
///
/// # Errors
/// Another instance runs, or the kernel refuses.
pub fn restore() -> Result<(), Failure> {
    let place = Place::here()?;
    place::sees_records()?;
    let _lock = Lock::take(&place.lock, DOES)?;
    place::clear_dead();
    if !place.pin.exists() {
        let _ = fs::remove_file(&place.lock);
        say!("tune: there is nothing to undo in this network namespace");
        return Ok(());
    }
    let mut passes = passes(Some(&place.pin), &Matching::default())?;
    let undone = end(&mut passes, &place)?;
    say!("tune: original settings restored on {undone} sockets");
    Ok(())
}

/// Passes by this binary, which are given up if one hangs.
///
/// # Errors
/// As [`Passes::start`] and [`Passes::open`].
pub fn passes(pin: Option<&Path>, matching: &Matching) -> Result<Passes, Failure> {
    let mut passes = Passes::start(Path::new(OWN_BINARY))?;
    passes.open(pin, matching)?;
    Ok(passes)
}

/// What lives as long as `tune` does.
struct TuneSession {
    /// Look at sockets, and change them.
    passes: Passes,
    /// Decides what is changed.
    tuner: Tuner,
    clock: Clock,
    /// Writes a line for each change.
    journal: Journal,
    /// What `ackpace-host tune status` is told.
    board: Board,
    /// Only the sockets of this cgroup and those below it count; `None`: all sockets.
    cgroup: Option<ChosenCgroup>,
    // What the last look and the last orders led to: kept, so that no pass allocates.
    view: View,
    outcomes: HashMap<u64, Outcome>,
    /// `None` in a dry run, which changes nothing.
    held: Option<Held>,
}

/// What tells others that this instance tunes.
struct Held {
    /// Where its files are: lock, socket, and the pinned record of changes.
    place: Place,
    _lock: Lock,
    _socket: status::SocketFile,
}

impl TuneSession {
    /// Takes the lock, opens the program in the kernel, and undoes what a killed instance has left.
    fn start(options: &Tune, signals: Caught) -> Result<TuneSession, Failure> {
        let matching = options.matching().map_err(Failure::operator)?;
        let cgroup = matching.cgroup.as_deref().map(ChosenCgroup::at);
        let cgroup = cgroup.transpose().map_err(Failure::operator)?;
        let place = Place::here()?;
        let lock = match options.dry_run {
            true => None,
            false => Some(Lock::take(&place.lock, DOES)?),
        };
        if lock.is_some() {
            place::ensure_pin_folder()?;
        }
        let mut passes = Passes::start(Path::new(OWN_BINARY))?;
        capabilities::keep_only(CapabilitySet::empty())?; // before a thread starts
        let clock = Clock::start();
        let board = Board::default();
        passes.wait_until(signals.hear()?, tell_of_hangs(&board));
        let mut session = TuneSession {
            tuner: Tuner::new(chosen(options), clock.now()),
            passes,
            clock,
            journal: Journal::new(options),
            board,
            cgroup,
            view: View::default(),
            outcomes: HashMap::new(),
            held: None,
        };
        session.tuner.tally.pid = std::process::id();
        session.tuner.tally.policy = options.policy.name().to_owned();
        if let Some(lock) = lock {
            session.hold(place, lock)?;
        }
        session.begin(&matching, options)?;
        Ok(session)
    }

    /// Tells others from now on that this instance tunes.
    fn hold(&mut self, place: Place, lock: Lock) -> Result<(), Failure> {
        self.board.show(&self.tuner.tally);
        let socket = status::answer_at(&place.socket, &self.board)
            .map_err(|error| Failure::runtime(format!("{}: {error}", place.socket.display())))?;
        self.held = Some(Held {
            place,
            _lock: lock,
            _socket: socket,
        });
        Ok(())
    }

    /// Undoes what an earlier instance left, and takes a first look.
    fn begin(&mut self, matching: &Matching, options: &Tune) -> Result<(), Failure> {
        let pin = self.held.as_ref().map(|held| &*held.place.pin);
        self.passes.open(pin, matching)?;
        if pin.is_some() {
            let undone = give_all_back(&mut self.passes)?;
            if undone > 0 {
                self.journal.say(format_args!(
                    "an earlier instance was killed; original settings restored on {undone} sockets"
                ));
            }
        }
        let cgroup = self.look_for_cgroup();
        let (mut sockets, budget_bytes) = (0, self.tuner.tally.budget_bytes);
        self.passes
            .look(cgroup, &mut self.view, |view| sockets += view.matched())?;
        self.board.show(&self.tuner.tally);
        let word = if options.dry_run {
            "would divide"
        } else {
            "divides"
        };
        self.journal.say(format_args!(
            "{word} {budget_bytes} B {} among {sockets} sockets that match now",
            options.policy.name()
        ));
        if sockets == 0 && self.cgroup.is_some() {
            self.journal.say(
                "a connection is of the cgroup in which its listener was made: restart a program that was moved since",
            );
        }
        Ok(())
    }

    /// Takes turns whenever the tuner has something to do, until it is stopped.
    fn drive(&mut self, options: &Tune) -> Result<(), Failure> {
        loop {
            self.turn()?;
            if options.once && self.tuner.tally.passes >= SNAPSHOTS_OF_ONCE {
                self.journal.flush();
                let words = self.last_words(options.json);
                self.journal.tell(words.trim_end().to_owned());
                return Ok(());
            }
            let now = self.clock.now();
            let at = self
                .tuner
                .deadline()
                .unwrap_or_else(|| now.plus_us(1_000_000));
            let wait = Duration::from_micros(at.since_us(now).max(1_000));
            if self.passes.is_stopped_within(wait) {
                return Ok(());
            }
        }
    }

    fn last_words(&self, json: bool) -> String {
        match json {
            true => serde_json::to_string(&self.tuner.tally).unwrap_or_default() + "\n",
            false => self.tuner.tally.page(),
        }
    }

    /// Does what the machine orders, until it rests.
    fn turn(&mut self) -> Result<(), Failure> {
        let from_us = thread_cpu_ns() / 1_000 + self.passes.cpu_us;
        let was_short = self.tuner.tally.is_short;
        let mut sampled = false;
        while let Some(action) = self.tuner.poll(self.clock.now()) {
            match action {
                Action::Snapshot => {
                    self.look()?;
                    sampled = true;
                }
                Action::Orders(changes) => self.carry_out(&changes)?,
            }
        }
        let us = thread_cpu_ns() / 1_000 + self.passes.cpu_us - from_us;
        let tally = &mut self.tuner.tally;
        tally.cpu_us += us;
        if sampled {
            tally.passes += 1;
            tally.pass_cpu_us = us;
        }
        if tally.is_short && !was_short {
            self.journal.say(format_args!(
                "--budget {} B is less than the minimum for {} connections ({} KiB); usage will exceed it",
                tally.budget_bytes,
                tally.sharing,
                (tally.sharing * FLOOR_BYTES).div_ceil(1_024)
            ));
        }
        self.board.show(&self.tuner.tally);
        self.journal.turn(self.clock.now());
        Ok(())
    }

    /// A snapshot, of which the machine hears.
    fn look(&mut self) -> Result<(), Failure> {
        let cgroup = self.look_for_cgroup();
        let now = self.clock.now();
        let tuner = &mut self.tuner;
        tuner.begin_look(now);
        let piece = |view: &View| tuner.looked(view, now);
        self.passes.look(cgroup, &mut self.view, piece)?;
        self.tuner.end_look(now);
        Ok(())
    }

    /// The id of the chosen cgroup; says so if it is gone, or there again.
    fn look_for_cgroup(&mut self) -> u64 {
        let Some(cgroup) = &mut self.cgroup else {
            return 0;
        };
        let (id, line) = cgroup.look();
        if let Some(line) = line {
            self.journal.say(line);
        }
        id
    }

    /// Has the kernel set what is ordered, and tells the tuner what came of it.
    fn carry_out(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let outcomes = &mut self.outcomes;
        outcomes.clear();
        if !self.tuner.tally.dry_run {
            let orders: Vec<Order> = changes.iter().map(|change| change.order).collect();
            self.passes.carry_out(&orders, |answer: Answer| {
                outcomes.insert(answer.cookie, answer.outcome);
            })?;
        }
        let now = self.clock.now();
        let outcome = |cookie: u64| outcomes.get(&cookie).copied();
        self.tuner.carried_out(changes, outcome, now);
        let dry_run = self.tuner.tally.dry_run;
        let done =
            |change: &&Change| dry_run || outcome(change.order.cookie) == Some(Outcome::Done);
        for change in changes.iter().filter(done) {
            self.journal.change(change, now);
        }
        Ok(())
    }

    /// Undoes everything, and tells.
    fn end(&mut self) -> Result<(), Failure> {
        self.journal.flush();
        if let Some(held) = self.held.take() {
            let undone = end(&mut self.passes, &held.place)?;
            self.journal.say(format_args!(
                "stopped; original settings restored on {undone} sockets"
            ));
        }
        Ok(())
    }
}

/// Shows for how long a pass hangs, and says when that begins and ends.
fn tell_of_hangs(board: &Board) -> impl FnMut(Duration) + use<> {
    let (board, mut lines, mut told) = (board.clone(), Lines::new(), Duration::ZERO);
    move |waited| {
        board.stuck(waited);
        if waited >= TOLD_AFTER {
            if told.is_zero() {
                lines.write(To::Errors, HANGS);
            }
            told = waited;
        } else if waited.is_zero() && !told.is_zero() {
            let line = format!("tune: the pass goes on, after {} s", told.as_secs());
            lines.write(To::Errors, line);
            told = waited;
        }
    }
}

/// Undoes all changes and removes the records, which are empty then. How many sockets were changed.
fn end(passes: &mut Passes, place: &Place) -> Result<u64, Failure> {
    let undone = give_all_back(passes)?;
    fs::remove_file(&place.pin)
        .map_err(|error| Failure::runtime(format!("{}: {error}", place.pin.display())))?;
    let _ = fs::remove_file(&place.lock); // whoever waits for it looks whether it is there
    Ok(undone)
}

/// Undoes all changes. How many sockets were changed.
fn give_all_back(passes: &mut Passes) -> Result<u64, Failure> {
    let before = passes.changed()?;
    passes.restore()?;
    match passes.changed()? {
        0 => Ok(before),
        left => Err(Failure::runtime(format!(
            "the kernel refuses to restore the settings of {left} sockets: 'ackpace-host tune --restore' tries again"
        ))),
    }
}

/// What the options mean to the tuner.
fn chosen(options: &Tune) -> TunerSettings {
    let sysctl = fs::read_to_string("/proc/sys/net/ipv4/tcp_notsent_lowat");
    let most = sysctl.ok().and_then(|text| text.trim().parse().ok());
    TunerSettings {
        policy: options.policy.chosen(),
        budget_bytes: options.budget.unwrap_or(0),
        // Keyed at random for each process.
        secret: RandomState::new().build_hasher().finish(),
        lowat_bytes_most: most.unwrap_or(u32::MAX),
        dry_run: options.dry_run,
    }
}
