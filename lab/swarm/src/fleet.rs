//! A run: starts the threads, combines their reports, and passes commands to them. One thread has most classes, and each
//! class that runs apart has another.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::command::SwarmCommand;
use super::histogram::Histogram;
use super::setup::Setup;
use super::summary::{Answer, ClassSecond, ClassSummary, Line, Second, Summary};
use super::tally::{Share, Tally};
use super::worker::{Moment, Order, Remote, Report, Worker};
use super::workload::Workload;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::punctual::be_punctual;

/// Error texts that a class keeps for its summary.
const TEXTS: usize = 8;
/// Time limit for the threads to drop the clients of a class; a busy thread takes a turn of some milliseconds.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// How long a command may wait for its turn.
const COMMANDS_EVERY: Duration = Duration::from_millis(20);
/// Real-time priority of a class that runs apart: above the emulator, whose links do not notice its few
/// microseconds.
const APART_PRIORITY: i32 = 11;

/// The running threads of a swarm.
pub struct Fleet {
    setup: Arc<Setup>,
    remotes: Vec<Remote>,
    threads: Vec<JoinHandle<()>>,
    reports: Receiver<Report>,
    commands: Receiver<SwarmCommand>,
    speaker: Sender<SwarmCommand>,
    sums: Sums,
}

/// The reports so far.
struct Sums {
    /// Per thread and class, since that thread's last reset.
    totals: Vec<Vec<Tally>>,
    /// Seconds for which some thread has not reported yet.
    seconds: BTreeMap<u64, PartOfSecond>,
    connected: Vec<u64>,
    jain_min: Vec<Option<f64>>,
    texts: Vec<Vec<String>>,
    shares: Vec<Vec<Share>>,
    cpu_us: u64,
    lateness: Histogram,
    measured_from_us: u64,
    /// Number of threads that ended.
    ended: usize,
    failure: Option<String>,
}

struct PartOfSecond {
    threads: usize,
    tallies: Vec<Tally>,
    moments: Vec<Moment>,
}

impl Fleet {
    /// Starts the threads, pinned to `core` if there is one. A class that runs apart has priority over the others there.
    pub fn start(workload: &Workload, target: SocketAddr, core: Option<usize>) -> Result<Self> {
        let setup = Arc::new(Setup::new(workload, target)?);
        setup.raise_descriptors()?;
        let all = 0..setup.classes.len();
        let (apart, together): (Vec<usize>, Vec<usize>) =
            all.partition(|&class| setup.classes[class].class.apart);
        let mut threads = vec![together];
        threads.extend(apart.into_iter().map(|class| vec![class]));
        let (sender, reports) = channel();
        let (speaker, commands) = channel();
        let mut fleet = Self {
            remotes: Vec::new(),
            threads: Vec::new(),
            reports,
            commands,
            speaker,
            sums: Sums::new(setup.classes.len(), threads.len()),
            setup,
        };
        for (thread, classes) in threads.iter().enumerate() {
            let of = (thread, &classes[..]);
            let (worker, remote) = Worker::new(fleet.setup.clone(), of, sender.clone())?;
            fleet.remotes.push(remote);
            let run = move || {
                if thread > 0 {
                    be_punctual(APART_PRIORITY);
                }
                if let Some(core) = core {
                    let _ = pin(core); // if the core was taken away, the thread runs where it may
                }
                worker.run();
            };
            let name = format!("swarm-{thread}");
            let spawned = std::thread::Builder::new().name(name).spawn(run);
            fleet.threads.push(spawned.doing(|| "thread".into())?);
        }
        Ok(fleet)
    }

    /// A channel for commands during the run.
    pub fn speaker(&self) -> Sender<SwarmCommand> {
        self.speaker.clone()
    }

    /// Runs until `stop`. Calls `say` for each line as it comes, with the summary last.
    pub fn run(mut self, mut say: impl FnMut(&Line)) -> Result<Summary> {
        while self.sums.ended < self.threads.len() {
            while let Ok(command) = self.commands.try_recv() {
                say(&Line::Answer(self.obey(command)));
            }
            match self.reports.recv_timeout(COMMANDS_EVERY) {
                Ok(report) => self.take(report, &mut say),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let end = Instant::now();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                return Err(LabError::Setup("a thread of the swarm panicked".into()));
            }
        }
        if let Some(failure) = self.sums.failure.take() {
            return Err(LabError::Setup(failure));
        }
        let summary = self.summary(end);
        say(&Line::Summary(summary.clone()));
        Ok(summary)
    }

    fn obey(&mut self, command: SwarmCommand) -> Answer {
        let (leaving, left) = channel::<()>();
        let order = match &command {
            SwarmCommand::Leave(name) => {
                let mut classes = self.setup.classes.iter();
                let class = classes.position(|prepared| prepared.class.name == *name);
                class.map(|class| Order::Leave {
                    class,
                    _left: leaving,
                })
            }
            SwarmCommand::Reset => Some(Order::Reset),
            SwarmCommand::Stop => Some(Order::Stop),
        };
        if let Some(order) = &order {
            self.order(order);
        }
        let refused = order.is_none();
        drop(order); // and our own end of its channel
        // Nothing is ever sent: the channel closes when the last thread has carried the order out.
        let _ = left.recv_timeout(LEAVE_MAX);
        Answer {
            command,
            at_s: self.setup.now_us() as f64 / 1e6,
            refused,
        }
    }

    fn order(&mut self, order: &Order) {
        if matches!(order, Order::Reset) {
            self.sums.measured_from_us = self.setup.now_us();
        }
        for remote in &self.remotes {
            remote.order(order.clone());
        }
    }

    fn take(&mut self, report: Report, say: &mut impl FnMut(&Line)) {
        match report {
            Report::Second {
                thread,
                second,
                tallies,
                moments,
            } => {
                self.sums.count(thread, &tallies);
                let threads = self.threads.len();
                if let Some(whole) = self.sums.second(second, threads, &tallies, &moments) {
                    say(&Line::Second(self.second(second, &whole)));
                }
            }
            Report::Reset { thread, tallies } => self.sums.reset(thread, tallies.len()),
            Report::Fault { class, fault, text } => {
                let texts = &mut self.sums.texts[class];
                if texts.len() < TEXTS {
                    texts.push(format!("{}: {text}", fault.name()));
                }
            }
            Report::End {
                thread,
                tallies,
                shares,
                cpu_us,
                lateness,
                failure,
            } => {
                self.sums.count(thread, &tallies);
                for (all, more) in self.sums.shares.iter_mut().zip(shares) {
                    all.extend(more);
                }
                self.sums.cpu_us += cpu_us;
                self.sums.lateness.merge(&lateness);
                self.sums.ended += 1;
                if failure.is_some() {
                    self.order(&Order::Stop); // the figures of the others would be incomplete
                }
                self.sums.failure = self.sums.failure.take().or(failure);
            }
        }
    }

    fn second(&self, at_s: u64, whole: &PartOfSecond) -> Second {
        let parts = whole.tallies.iter().zip(&whole.moments);
        let classes = self.setup.classes.iter().zip(parts);
        Second {
            at_s,
            classes: classes
                .map(|(prepared, (tally, moment))| ClassSecond {
                    class: prepared.class.name.clone(),
                    bytes: tally.bytes,
                    completed: tally.completed,
                    connected: moment.connected,
                    active: moment.active,
                })
                .collect(),
        }
    }

    fn summary(&self, end: Instant) -> Summary {
        let end_us = end.duration_since(self.setup.epoch).as_micros() as u64;
        let elapsed_s = end_us.saturating_sub(self.sums.measured_from_us) as f64 / 1e6;
        let sums = &self.sums;
        let class = |number: usize| {
            let prepared = &self.setup.classes[number];
            let mut tally = Tally::default();
            sums.totals
                .iter()
                .for_each(|thread| tally.merge(&thread[number]));
            let shares = &sums.shares[number];
            ClassSummary {
                connected: sums.connected[number],
                jain_min: sums.jain_min[number],
                first_errors: sums.texts[number].clone(),
                ..ClassSummary::of(
                    &prepared.class.name,
                    prepared.class.clients,
                    &tally,
                    shares,
                    elapsed_s,
                )
            }
        };
        let classes: Vec<_> = (0..self.setup.classes.len()).map(class).collect();
        Summary {
            seed: self.setup.seed,
            elapsed_s,
            cpu_s: sums.cpu_us as f64 / 1e6,
            timer_late_p99_us: sums.lateness.quantile_us(0.99),
            failed: classes.iter().any(|class| class.failed),
            classes,
        }
    }
}

fn pin(core: usize) -> rustix::io::Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
}

/// A fleet that is dropped early leaves no thread behind.
impl Drop for Fleet {
    fn drop(&mut self) {
        for remote in &self.remotes {
            remote.order(Order::Stop);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Sums {
    fn new(classes: usize, threads: usize) -> Self {
        Self {
            totals: vec![vec![Tally::default(); classes]; threads],
            seconds: BTreeMap::new(),
            connected: vec![0; classes],
            jain_min: vec![None; classes],
            texts: vec![Vec::new(); classes],
            shares: vec![Vec::new(); classes],
            cpu_us: 0,
            lateness: Histogram::default(),
            measured_from_us: 0,
            ended: 0,
            failure: None,
        }
    }

    fn count(&mut self, thread: usize, tallies: &[Tally]) {
        for (total, tally) in self.totals[thread].iter_mut().zip(tallies) {
            total.merge(tally);
        }
    }

    /// Discards a thread's reports from before a reset. The other threads reset within microseconds.
    fn reset(&mut self, thread: usize, classes: usize) {
        self.totals[thread] = vec![Tally::default(); classes];
        self.jain_min = vec![None; classes];
    }

    /// Adds a thread's part of a second; returns the second when all threads have reported.
    fn second(
        &mut self,
        second: u64,
        threads: usize,
        tallies: &[Tally],
        moments: &[Moment],
    ) -> Option<PartOfSecond> {
        let part = self.seconds.entry(second).or_insert_with(|| PartOfSecond {
            threads: 0,
            tallies: vec![Tally::default(); tallies.len()],
            moments: vec![Moment::default(); moments.len()],
        });
        part.threads += 1;
        for (sum, tally) in part.tallies.iter_mut().zip(tallies) {
            sum.merge(tally);
        }
        for (sum, moment) in part.moments.iter_mut().zip(moments) {
            sum.connected += moment.connected;
            sum.active += moment.active;
            sum.fairness.merge(&moment.fairness);
        }
        if part.threads < threads {
            return None;
        }
        let whole = self.seconds.remove(&second)?;
        // An earlier second that a busy thread skipped never becomes complete.
        self.seconds = self.seconds.split_off(&second);
        for (class, moment) in whole.moments.iter().enumerate() {
            self.connected[class] = moment.connected;
            lower(&mut self.jain_min[class], moment.fairness.index());
        }
        Some(whole)
    }
}

fn lower(least: &mut Option<f64>, value: Option<f64>) {
    *least = match (*least, value) {
        (Some(least), Some(value)) => Some(least.min(value)),
        (least, value) => least.or(value),
    };
}
