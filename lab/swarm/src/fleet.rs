//! A run: starts the threads, combines their reports, and passes commands to them.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::command::SwarmCommand;
use super::histogram::Histogram;
use super::setup::{Setup, us};
use super::summary::{Answer, Begin, ClassSecond, ClassSummary, FaultLine, Line, Second, Summary};
use super::tally::{Share, Tally};
use super::worker::{Moment, Order, Remote, Report, Shard, Worker};
use super::workload::{Kind, Workload};
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::punctual::be_punctual;

/// Error texts that a class keeps for its summary.
const TEXTS: usize = 8;
/// Time limit for the threads to drop the clients of a class; a busy thread takes a turn of some milliseconds.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// Real-time priority of a class that runs apart: above the emulator, whose links do not notice its few
/// microseconds.
const APART_PRIORITY: i32 = 11;

/// The running threads of a swarm, and the planned orders.
pub struct Fleet {
    setup: Arc<Setup>,
    remotes: Vec<Remote>,
    threads: Vec<JoinHandle<()>>,
    reports: Receiver<Report>,
    commands: Receiver<SwarmCommand>,
    speaker: Sender<SwarmCommand>,
    plan: Vec<(u64, Order)>,
    end_us: Option<u64>,
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
    jain_demand_min: Vec<Option<f64>>,
    texts: Vec<Vec<String>>,
    shares: Vec<Vec<Share>>,
    cpu_us: u64,
    lateness: Histogram,
    measured_from_us: u64,
    /// Number of threads whose clients are all done, and of threads that ended.
    done: usize,
    ended: usize,
    failure: Option<String>,
}

struct PartOfSecond {
    threads: usize,
    tallies: Vec<Tally>,
    moments: Vec<Moment>,
}

impl Fleet {
    /// Starts a thread for each core of `cores`, pinned to it; if there is none, a single unpinned thread. Each
    /// class that runs apart has another thread on the first core, with priority over the others there.
    pub fn start(workload: &Workload, target: SocketAddr, cores: &[usize]) -> Result<Self> {
        let setup = Arc::new(Setup::new(workload, target)?);
        check_cores(cores)?;
        setup.raise_descriptors()?;
        let shards = Shard::all(&setup, cores.len().max(1));
        let (sender, reports) = channel();
        let (speaker, commands) = channel();
        let mut fleet = Self {
            remotes: Vec::new(),
            threads: Vec::new(),
            reports,
            commands,
            speaker,
            plan: plan(workload),
            end_us: workload
                .duration_s
                .map(|duration_s| us(workload.warmup_s + duration_s)),
            sums: Sums::new(setup.classes.len(), shards.len()),
            setup,
        };
        for shard in shards {
            let (worker, remote) = Worker::new(fleet.setup.clone(), shard, sender.clone())?;
            fleet.remotes.push(remote);
            let core = cores.get(shard.part).copied();
            let name = format!("swarm-{}", shard.thread);
            let run = move || {
                if shard.class.is_some() {
                    be_punctual(APART_PRIORITY);
                }
                if let Some(core) = core {
                    // The cores were checked before; if one was taken away since, the thread runs where it may.
                    let _ = pin(core);
                }
                worker.run();
            };
            let spawned = std::thread::Builder::new().name(name).spawn(run);
            fleet.threads.push(spawned.doing(|| "thread".into())?);
        }
        Ok(fleet)
    }

    /// A channel for commands during the run.
    pub fn speaker(&self) -> Sender<SwarmCommand> {
        self.speaker.clone()
    }

    /// Runs to the end of the workload, to `stop`, or until no client has anything left to do. Calls `say` for
    /// each line as it comes, with the summary last.
    pub fn run(mut self, mut say: impl FnMut(&Line)) -> Result<Summary> {
        say(&Line::Begin(Begin {
            seed: self.setup.seed,
            target: self.setup.target.to_string(),
            clients: self.setup.clients(),
            threads: self.threads.len(),
        }));
        let mut stopping = false;
        while self.sums.ended < self.threads.len() {
            while let Ok(command) = self.commands.try_recv() {
                stopping |= command == SwarmCommand::Stop;
                say(&Line::Answer(self.obey(&command)));
            }
            let now_us = self.setup.now_us();
            self.follow_plan(now_us);
            if !stopping && self.end_us.is_some_and(|end_us| now_us >= end_us) {
                stopping = true;
                self.order(&Order::Stop);
            }
            let wait_us = self
                .next_us(stopping)
                .saturating_sub(now_us)
                .clamp(1, 20_000);
            match self.reports.recv_timeout(Duration::from_micros(wait_us)) {
                Ok(report) => {
                    self.take(report, &mut say);
                    if self.sums.done >= self.threads.len() && !stopping {
                        stopping = true;
                        self.order(&Order::Stop);
                    }
                }
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

    fn obey(&mut self, command: &SwarmCommand) -> Answer {
        let number = |name: &String| {
            let found = self
                .setup
                .classes
                .iter()
                .position(|prepared| prepared.class.name == *name);
            let names: Vec<&str> = self
                .setup
                .classes
                .iter()
                .map(|prepared| &*prepared.class.name)
                .collect();
            found.ok_or_else(|| format!("no class \"{name}\"; there are: {}", names.join(", ")))
        };
        let paced = |class: usize| match self.setup.classes[class].class.kind {
            Kind::Plain | Kind::SelfPaced => Ok(class),
            kind => Err(format!(
                "its clients' kind is {}: no pace but theirs",
                kind.name()
            )),
        };
        let (leaving, left) = channel::<()>();
        let order = match command {
            SwarmCommand::Rate { class, bits_per_s } => {
                let class = number(class).and_then(paced);
                class.map(|class| Order::Rate {
                    class,
                    bytes_per_s: bits_per_s.div_ceil(8),
                    share: 1.0,
                })
            }
            SwarmCommand::Requests { class, per_s } => number(class).map(|class| Order::Requests {
                class,
                per_s: *per_s,
            }),
            SwarmCommand::Pause { class, for_s } => number(class).map(|class| Order::Pause {
                class,
                for_us: us(*for_s),
            }),
            SwarmCommand::Leave { class } => number(class).map(|class| Order::Leave {
                class,
                _left: leaving.clone(),
            }),
            SwarmCommand::Reset => Ok(Order::Reset),
            SwarmCommand::Stop => Ok(Order::Stop),
        };
        if let Ok(order) = &order {
            self.order(order);
        }
        let refused = order.err(); // this also drops our own end of its channel
        drop(leaving);
        // Nothing is ever sent: the channel closes when the last thread has carried the order out.
        let _ = left.recv_timeout(LEAVE_MAX);
        Answer {
            command: command.line(),
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

    fn follow_plan(&mut self, now_us: u64) {
        while self.plan.last().is_some_and(|(at_us, _)| *at_us <= now_us) {
            if let Some((_, order)) = self.plan.pop() {
                self.order(&order);
            }
        }
    }

    fn next_us(&self, stopping: bool) -> u64 {
        let end_us = self.end_us.filter(|_| !stopping).unwrap_or(u64::MAX);
        self.plan
            .last()
            .map_or(end_us, |(at_us, _)| end_us.min(*at_us))
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
            Report::Done => self.sums.done += 1,
            Report::Reset { thread, tallies } => self.sums.reset(thread, tallies.len()),
            Report::Fault { class, fault, text } => {
                let name = self.setup.classes[class].class.name.clone();
                let texts = &mut self.sums.texts[class];
                if texts.len() < TEXTS {
                    texts.push(format!("{}: {text}", fault.name()));
                }
                say(&Line::Fault(FaultLine {
                    class: name,
                    error: fault.name().into(),
                    text,
                }));
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
                    self.sums.done = self.threads.len(); // the figures of the others would be incomplete
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
                    connected: moment.connected,
                    active: moment.active,
                    ..ClassSecond::of(&prepared.class.name, tally)
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
                jain_demand_min: sums.jain_demand_min[number],
                first_errors: sums.texts[number].clone(),
                ..ClassSummary::of(
                    &prepared.class.name,
                    prepared.clients,
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

fn check_cores(cores: &[usize]) -> Result<()> {
    let ours = sched_getaffinity(None).doing(|| "sched_getaffinity".into())?;
    match cores
        .iter()
        .find(|core| **core >= CpuSet::MAX_CPU || !ours.is_set(**core))
    {
        Some(core) => {
            let allowed: Vec<String> = (0..CpuSet::MAX_CPU)
                .filter(|core| ours.is_set(*core))
                .map(|core| core.to_string())
                .collect();
            let what = format!("core {core}: not ours; allowed are {}", allowed.join(","));
            Err(LabError::Setup(what))
        }
        None => Ok(()),
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
            jain_demand_min: vec![None; classes],
            texts: vec![Vec::new(); classes],
            shares: vec![Vec::new(); classes],
            cpu_us: 0,
            lateness: Histogram::default(),
            measured_from_us: 0,
            done: 0,
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
        self.jain_demand_min = vec![None; classes];
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
            let of_demand = moment.fairness.index_of_demand();
            lower(&mut self.jain_demand_min[class], of_demand);
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

/// The orders at set times, in reverse order of time.
fn plan(workload: &Workload) -> Vec<(u64, Order)> {
    let mut plan = Vec::new();
    if workload.warmup_s > 0.0 {
        plan.push((us(workload.warmup_s), Order::Reset));
    }
    for (number, class) in workload.classes.iter().enumerate() {
        for change in &class.change {
            let order = Order::Rate {
                class: number,
                bytes_per_s: change.bits_per_s.div_ceil(8),
                share: change.share,
            };
            plan.push((us(change.at_s), order));
        }
    }
    plan.sort_by_key(|(at_us, _)| std::cmp::Reverse(*at_us));
    plan
}
