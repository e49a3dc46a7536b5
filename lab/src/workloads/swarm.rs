//! Clients of the swarm: a separate process on the clients' core and in their network. Lines on its input tell
//! it when the window begins and ends. It checks every byte itself.

mod figures;
mod process;

use self::figures::{add, disk_over_goodput, refuse_wrong_bytes, residence_s, work};
use self::process::Process;
use super::after::{Gone, curves, keeper, resident_share};
use super::{RoundResult, RoundTimes};
use crate::corpus::Set;
use crate::metrics::Values;
use crate::multiply::{Counted, Multiplication};
use crate::peers::Running;
use crate::probe::{Latencies, Probe, Prober};
use crate::sampler::Sampler;
use crate::scrape::Scrape;
use crate::shares::{self, Shares};
use crate::testbed::Testbed;
use crate::watch::{Instruments, Watch};
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_swarm::command::SwarmCommand;
use ackpace_lab_swarm::summary::Summary;
use ackpace_lab_swarm::workload::{Class, Workload as Clients};
use std::time::{Duration, Instant};

/// An event and its time.
#[derive(Clone, Debug, serde::Serialize)]
pub struct TimedEvent {
    /// Time of the event, in seconds after the window's start.
    pub after_s: f64,
    /// The event.
    #[serde(rename = "deed")] // its name in results, from the first runs on
    pub event: Event,
}

/// What may happen to clients while they are measured.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// From now on, packets to the client of a path are marked "congestion experienced" with this probability.
    Mark {
        /// Name of the path.
        path: String,
        /// The probability; 0 before the window.
        mark: f64,
    },
    /// All clients of a class reset their connections at once. The disk's reads are logged from then on. The
    /// class must have its own set of files of the same name.
    Leave {
        /// Name of the class and of its set of files.
        class: String,
    },
}

/// Clients of the swarm.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Swarm {
    /// Their classes.
    pub clients: Clients,
    /// The events of the window, in order.
    #[serde(rename = "acts")]
    pub events: Vec<TimedEvent>,
    /// Whether perf profiles the server's core in the window.
    pub profile: bool,
    /// Whether the page shows figures over time. The window then begins together with a second of the swarm.
    pub curves: bool,
    /// A set of files whose share in memory is reported at both ends of the window. It is protected from a
    /// machine that reclaims idle memory ([`ackpace_lab_base::pages::Keeper`]).
    pub lasting: Option<&'static str>,
    /// Goodput of an ideal server, if the experiment knows it.
    pub ideal_bytes_per_s: Option<f64>,
    /// Whether a matrix multiplication runs on the server's core.
    pub multiplies: bool,
    /// Whether the server's estimates of its clients' rates are read at both ends of the window.
    pub believed: bool,
    /// The window ends when no client wants anything any more.
    pub until_done: bool,
    /// A small file for which the origin is asked in the window from the server's place. First bytes are then also given as
    /// what they take longer than that.
    pub asks_origin_for: Option<Set>,
    /// Samples the shares of the send memory, which are steady from so many seconds of the window on.
    pub shares_steady_s: Option<f64>,
}

impl Swarm {
    /// Clients that settle within the round's warm-up, without events.
    pub fn new(classes: Vec<Class>) -> Self {
        Self {
            clients: Clients { seed: 1, classes },
            events: Vec::new(),
            profile: false,
            curves: false,
            lasting: None,
            ideal_bytes_per_s: None,
            multiplies: false,
            believed: false,
            until_done: false,
            asks_origin_for: None,
            shares_steady_s: None,
        }
    }

    /// Number of connections that a server must hold at once.
    pub fn connections(&self) -> usize {
        let classes = self.clients.classes.iter();
        classes.map(|class| class.clients as usize).sum()
    }

    pub(super) fn run(
        &self,
        server: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let multiplication = self.multiplies.then(|| Multiplication::start(testbed));
        let mut multiplication = multiplication.transpose()?;
        let mut swarm = self.settled(&server, testbed, times)?;
        let begin_s = swarm.order(&SwarmCommand::Reset)?.at_s;
        let ask = || crate::believed::ask(testbed.ackpace());
        let early = self.believed.then(ask).transpose()?;
        let profile = self
            .profile
            .then(|| super::profile::Profile::start(testbed, &server));
        let profile = profile.transpose()?;
        let resident = |set| resident_share(testbed, set);
        let keeper = self.lasting.map(|set| keeper(testbed, set));
        let _keeper = keeper.transpose()?;
        let before_share = self.lasting.map(resident).transpose()?;
        let scraped = Scrape::take(testbed)?;
        let watch = Watch::begin(&server, &testbed.instruments, true)?;
        let counted = multiplication.as_mut().map(Counted::begin).transpose()?;
        let sampler = self.sampler(testbed)?;
        let asked = self.ask_origin(testbed)?;
        let gone = self.window(&mut swarm, testbed, times.window)?;
        let asked = asked.map(Probe::stop).transpose()?;
        let shares = sampler.map(Sampler::end).transpose()?;
        let late = self.believed.then(ask).transpose()?;
        let multiplied = counted.map(Counted::end).transpose()?;
        let after_share = self.lasting.map(resident).transpose()?;
        let cache_bytes = server.group.page_cache_bytes();
        let socket_bytes = server.group.socket_bytes();
        let watched = watch.end()?;
        let scraped = (scraped, Scrape::take(testbed)?);
        let (summary, seconds) = swarm.end()?;
        let mut values = watched.values(work(&summary));
        Scrape::add(scraped.0, scraped.1, &mut values);
        values.set_some("resident_before_share", before_share);
        values.set_some("resident_share", after_share);
        if let Some(gone) = gone {
            gone.add(&mut values)?;
        }
        values.extend(multiplied.unwrap_or_default());
        add_beliefs(&mut values, &summary, early, late);
        values.set_some("page_residence_s", residence_s(&values, cache_bytes));
        values.set_some("disk_over_goodput", disk_over_goodput(&values));
        if let Some(profile) = profile {
            profile.end(&mut values)?;
        }
        values.set_some("socket_memory_bytes", socket_bytes.map(|n| n as f64));
        add(&mut values, &summary);
        self.add_shares(&mut values);
        add_origin(&mut values, asked);
        refuse_wrong_bytes(&server.name, &summary)?;
        super::finish(server, testbed, &mut values)?;
        let detail = serde_json::to_value(&summary).map_err(std::io::Error::from);
        let mut detail = detail.doing(|| "the swarm's summary".into())?;
        if self.curves {
            detail["curves"] = curves(&seconds, begin_s);
        }
        let mut seen = RoundResult { values, detail };
        self.add_sampled(shares, times.window, &mut seen);
        Ok(seen)
    }

    /// Starts the clients and waits until they have settled; checks their congestion control.
    fn settled(&self, server: &Running, testbed: &Testbed, times: RoundTimes) -> Result<Process> {
        let mut swarm = Process::start(&self.clients, server, testbed)?;
        swarm.hear_for(times.warm_up)?;
        if !testbed.congestion_control_checked(server)? {
            let what = "has no connection after the warm-up: congestion control unchecked";
            return Err(LabError::contender(&server.name, what));
        }
        if self.curves {
            swarm.await_second()?;
        }
        Ok(swarm)
    }

    /// Starts to ask the origin for a small file, if that is wanted.
    fn ask_origin(&self, testbed: &Testbed) -> Result<Option<Probe>> {
        let Instruments { origin, wan, .. } = &testbed.instruments;
        let (Some(set), Some(origin), Some(wan)) = (self.asks_origin_for, origin, wan) else {
            return Ok(None);
        };
        let (path, len_bytes) = set.list().swap_remove(0);
        let start = || {
            let prober = Prober::connect("the origin", origin.address, &path, len_bytes)?;
            Ok(Some(prober.start()))
        };
        wan.server().run(start)
    }

    /// Starts to sample shares of the send memory, if they are asked for.
    fn sampler(&self, testbed: &Testbed) -> Result<Option<Sampler<Shares>>> {
        match self.shares_steady_s {
            None => Ok(None),
            Some(_) => shares::sample(testbed.ackpace(), &self.clients),
        }
    }

    /// Adds the shares that were sampled.
    fn add_sampled(&self, shares: Option<Shares>, window: Duration, seen: &mut RoundResult) {
        let (Some(shares), Some(steady_s)) = (shares, self.shares_steady_s) else {
            return;
        };
        shares.add_values(steady_s, &mut seen.values);
        if self.curves {
            shares.add_curves(window, &mut seen.detail["curves"]);
        }
    }

    /// Adds figures that combine others.
    fn add_shares(&self, values: &mut Values) {
        let (swarm, lab) = (values.get("load_core_share"), values.get("lab_core_share"));
        let both = swarm.zip(lab).map(|(swarm, lab)| swarm + lab);
        values.set_some("load_core_full_share", both);
        if let (Some(ideal), Some(goodput)) =
            (self.ideal_bytes_per_s, values.get("goodput_bytes_per_s"))
        {
            values.set("goodput_of_ideal_share", goodput / ideal);
        }
    }

    /// Runs the window and its events; returns the clients that left.
    fn window(
        &self,
        swarm: &mut Process,
        testbed: &Testbed,
        window: Duration,
    ) -> Result<Option<Gone>> {
        let (start, mut gone) = (Instant::now(), None);
        for timed in &self.events {
            let at = Duration::from_secs_f64(timed.after_s).min(window);
            swarm.hear_for(at.saturating_sub(start.elapsed()))?;
            match (&timed.event, &testbed.instruments.wan) {
                (Event::Mark { path, mark }, Some(wan)) => wan.mark(path, *mark)?,
                (Event::Mark { .. }, None) => {}
                (Event::Leave { class }, _) => {
                    let log = Gone::logged(testbed);
                    swarm.order(&SwarmCommand::Leave(class.clone()))?;
                    gone = log.map(|log| Gone::now(log, class.clone()));
                }
            }
        }
        let left = window.saturating_sub(start.elapsed());
        match self.until_done {
            true => swarm.hear_until_done(left)?,
            false => swarm.hear_for(left)?,
        }
        Ok(gone)
    }
}

/// Adds what the origin itself takes to answer, and how much longer the first byte takes by way of the server.
fn add_origin(values: &mut Values, asked: Option<Latencies>) {
    let Some(asked) = asked else {
        return;
    };
    for (key, first_byte, origin_us, more) in [
        (
            "origin_p50_us",
            "ttfb_p50_us",
            asked.p50_us,
            "ttfb_over_origin_p50_us",
        ),
        (
            "origin_p99_us",
            "ttfb_p99_us",
            asked.p99_us,
            "ttfb_over_origin_p99_us",
        ),
    ] {
        values.set(key, origin_us);
        let first_us = values.get(first_byte);
        values.set_some(more, first_us.map(|first_us| first_us - origin_us));
    }
}

/// Adds the errors of the server's rate estimates after 3 s and after 10 s.
fn add_beliefs(
    values: &mut Values,
    summary: &Summary,
    early: Option<Vec<f64>>,
    late: Option<Vec<f64>>,
) {
    let each = summary.classes.first();
    let true_bytes_per_s = each.map_or(0.0, |class| class.client_goodput_bytes_per_s.mean);
    for (believed, after) in [(early, "3s"), (late, "10s")] {
        crate::believed::compare(
            &believed.unwrap_or_default(),
            true_bytes_per_s,
            after,
            values,
        );
    }
}
