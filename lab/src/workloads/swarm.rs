//! Clients of the swarm: a process of its own on the clients' core, in the clients' network, told by lines
//! when the window begins and ends. It checks every byte itself.

use super::after::{Gone, curves, keeper, resident_share};
use super::{Pace, Seen};
use crate::arena::Arena;
use crate::metrics::Values;
use crate::multiply::{Counted, Multiplication};
use crate::peers::Running;
use crate::place::Network;
use crate::scrape::Scrape;
use crate::watch::{Watch, Work};
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_swarm::command::Command as Order;
use ackpace_lab_swarm::summary::{Answer, ClassSummary, Line, Second, Summary};
use ackpace_lab_swarm::workload::Workload as Clients;
use ackpace_lab_wan::{Direction, LinkSpec};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The swarm answers an order, and ends, within this time.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Something happens while clients are measured.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Act {
    /// Seconds after the window's begin.
    pub after_s: f64,
    /// What.
    pub deed: Deed,
}

/// What may happen.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// The own link of a path changes, on the way to the client.
    Link {
        /// Name of the path.
        path: String,
        /// What changes of its link.
        change: LinkSpec,
    },
    /// All clients of a class reset their connections at once. From then on the disk's requests are looked at:
    /// the class has a set of files of its own, of the same name.
    Leave {
        /// Name of the class and of its files.
        class: String,
    },
}

/// Clients of the swarm.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Swarm {
    /// Their classes.
    pub clients: Clients,
    /// Added to the pace's warm-up: until all have begun and are at their rate.
    pub settle_s: f64,
    /// What happens in the window, in order.
    pub acts: Vec<Act>,
    /// Whether perf looks at the server's core in the window.
    pub profile: bool,
    /// Whether the page shows figures over time: then the window begins with a second of the swarm.
    pub curves: bool,
    /// A set of files of which is told how much is in memory at both ends of the window, and which is kept from a machine
    /// that takes back what is idle ([`ackpace_lab_base::pages::Keeper`]).
    pub lasting: Option<&'static str>,
    /// Goodput of a server that can't be better, if the experiment knows it.
    pub ideal_bytes_per_s: Option<f64>,
    /// Whether matrices are multiplied on the server's core.
    pub multiplies: bool,
    /// Whether the server is asked, at both ends of the window, how fast it believes its clients to be.
    pub believed: bool,
}

impl Swarm {
    /// Clients that need no time but the pace's to settle, and get no orders.
    pub fn new(clients: Clients) -> Self {
        Self {
            clients,
            settle_s: 0.0,
            acts: Vec::new(),
            profile: false,
            curves: false,
            lasting: None,
            ideal_bytes_per_s: None,
            multiplies: false,
            believed: false,
        }
    }

    /// Connections that a server must hold at once.
    pub fn connections(&self) -> usize {
        let of_class = |class| self.clients.clients_of(class) as usize;
        self.clients.classes.iter().map(of_class).sum()
    }

    pub(super) fn run(&self, server: Running, arena: &Arena, pace: Pace) -> Result<Seen> {
        self.undo(arena)?;
        let multiplication = self.multiplies.then(|| Multiplication::start(arena));
        let mut multiplication = multiplication.transpose()?;
        let mut swarm = Process::start(&self.clients, &server, arena)?;
        swarm.hear_for(pace.warm_up + Duration::from_secs_f64(self.settle_s))?;
        if !arena.congestion_control_checked(&server)? {
            let what = "has no connection after the warm-up: congestion control unchecked";
            return Err(LabError::contender(&server.name, what));
        }
        if self.curves {
            swarm.await_second()?;
        }
        let begin_s = swarm.order(&Order::Reset)?.at_s;
        let ask = || crate::believed::ask(arena.ackpace());
        let early = self.believed.then(ask).transpose()?;
        let profile = self
            .profile
            .then(|| super::profile::Profile::start(arena, &server));
        let profile = profile.transpose()?;
        let resident = |set| resident_share(arena, set);
        let keeper = self.lasting.map(|set| keeper(arena, set));
        let _keeper = keeper.transpose()?;
        let before_share = self.lasting.map(resident).transpose()?;
        let scraped = Scrape::take(arena)?;
        let watch = Watch::begin(&server, &arena.instruments, true)?;
        let counted = multiplication.as_mut().map(Counted::begin).transpose()?;
        let gone = self.window(&mut swarm, arena, pace.window)?;
        let late = self.believed.then(ask).transpose()?;
        let multiplied = counted.map(Counted::end).transpose()?;
        let after_share = self.lasting.map(resident).transpose()?;
        let cache_bytes = server.group.page_cache_bytes();
        let watched = watch.end()?;
        let scraped = (scraped, Scrape::take(arena)?);
        let (summary, seconds) = swarm.end()?;
        let mut values = watched.values(work(&summary));
        Scrape::add(scraped.0, scraped.1, &mut values);
        values.set_some("resident_before_share", before_share);
        values.set_some("resident_share", after_share);
        if let Some(gone) = gone {
            gone.add(&mut values, arena)?;
        }
        values.extend(multiplied.unwrap_or_default());
        let each = summary.classes.first();
        let true_bytes_per_s = each.map_or(0.0, |class| class.client_goodput_bytes_per_s.mean);
        for (believed, after) in [(early, "3s"), (late, "10s")] {
            crate::believed::compare(
                &believed.unwrap_or_default(),
                true_bytes_per_s,
                after,
                &mut values,
            );
        }
        values.set_some("page_residence_s", residence_s(&values, cache_bytes));
        values.set_some("disk_over_goodput", disk_over_goodput(&values));
        if let Some(profile) = profile {
            profile.end(&mut values)?;
        }
        add(&mut values, &summary);
        let (swarm, lab) = (values.get("load_core_share"), values.get("lab_core_share"));
        let both = swarm.zip(lab).map(|(swarm, lab)| swarm + lab);
        values.set_some("load_core_full_share", both);
        if let (Some(ideal), Some(goodput)) =
            (self.ideal_bytes_per_s, values.get("goodput_bytes_per_s"))
        {
            values.set("goodput_of_ideal_share", goodput / ideal);
        }
        refuse_wrong_bytes(&server.name, &summary)?;
        super::finish(server, &mut values)?;
        let detail = serde_json::to_value(&summary).map_err(std::io::Error::from);
        let mut detail = detail.doing(|| "the swarm's summary".into())?;
        if self.curves {
            detail["curves"] = curves(&seconds, begin_s);
        }
        Ok(Seen { values, detail })
    }

    /// Links are again as declared: the last round may have changed them.
    fn undo(&self, arena: &Arena) -> Result<()> {
        let (Some(wan), Network::Wan { topology, .. }) =
            (&arena.instruments.wan, &arena.place.network)
        else {
            return Ok(());
        };
        for act in &self.acts {
            let Deed::Link { path, .. } = &act.deed else {
                continue;
            };
            let declared = topology.path.iter().find(|one| one.name == *path);
            if let Some(declared) = declared {
                wan.set_path(path, Direction::Down, &declared.down)?;
            }
        }
        Ok(())
    }

    /// The window and what happens in it; who left.
    fn window(&self, swarm: &mut Process, arena: &Arena, window: Duration) -> Result<Option<Gone>> {
        let (start, mut gone) = (Instant::now(), None);
        for act in &self.acts {
            let at = Duration::from_secs_f64(act.after_s).min(window);
            swarm.hear_for(at.saturating_sub(start.elapsed()))?;
            match (&act.deed, &arena.instruments.wan) {
                (Deed::Link { path, change }, Some(wan)) => {
                    wan.set_path(path, Direction::Down, change)?;
                }
                (Deed::Link { .. }, None) => {}
                (Deed::Leave { class }, _) => {
                    let traced = Gone::trace(arena)?;
                    let class = class.clone();
                    swarm.order(&Order::Leave {
                        class: class.clone(),
                    })?;
                    gone = traced.map(|traced| traced.gone(class));
                }
            }
        }
        swarm.hear_for(window.saturating_sub(start.elapsed()))?;
        Ok(gone)
    }
}

/// The swarm's process and what it says.
struct Process {
    who: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<std::result::Result<Line, String>>,
    seconds: Vec<Second>,
}

impl Process {
    fn start(clients: &Clients, server: &Running, arena: &Arena) -> Result<Self> {
        let file = arena.scratch().join("workload.toml");
        let text = toml::to_string(clients)
            .map_err(|error| LabError::Setup(format!("the workload as TOML: {error}")))?;
        std::fs::write(&file, text).doing(|| file.display().to_string())?;
        let program = std::env::current_exe().doing(|| "our own program".into())?;
        let mut command = Command::new(program);
        command
            .arg("swarm")
            .arg(&file)
            .args(["--json", "-", "--commands", "--target"]);
        command.arg(server.address.to_string());
        command.args(["--cores", &arena.load_core().to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = arena
            .client(command)
            .spawn()
            .doing(|| "swarm: start".into())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output
            .ok_or(rustix::io::Errno::BADF)
            .doing(|| "swarm: its output".into())?;
        let (speaker, lines) = channel();
        std::thread::spawn(move || {
            for text in BufReader::new(output)
                .lines()
                .map_while(std::io::Result::ok)
            {
                let line = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"));
                if speaker.send(line).is_err() {
                    return; // nobody listens any more
                }
            }
        });
        Ok(Self {
            who: server.name.clone(),
            child,
            input,
            lines,
            seconds: Vec::new(),
        })
    }

    /// Listens for a while and keeps what it says each second.
    fn hear_for(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while let Some(left) = end.checked_duration_since(Instant::now()) {
            match self.lines.recv_timeout(left) {
                Ok(Ok(line)) => self.keep(&line),
                Ok(Err(what)) => return Err(LabError::Setup(format!("swarm: {what}"))),
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
            }
        }
        Ok(())
    }

    fn say(&mut self, order: &str) -> Result<()> {
        let Some(input) = &mut self.input else {
            return Err(self.gone());
        };
        writeln!(input, "{order}").doing(|| format!("swarm: {order}"))
    }

    fn keep(&mut self, line: &Line) {
        if let Line::Second(second) = line {
            self.seconds.push(second.clone());
        }
    }

    /// Gives an order and waits until it is carried out.
    fn order(&mut self, order: &Order) -> Result<Answer> {
        self.say(&order.line())?;
        let answer = self.wait(|line| match line {
            Line::Answer(answer) => Some(answer),
            _ => None,
        })?;
        match &answer.refused {
            None => Ok(answer),
            Some(why) => Err(LabError::Setup(format!("swarm: {}: {why}", answer.command))),
        }
    }

    /// Waits until a second of its own is over.
    fn await_second(&mut self) -> Result<()> {
        self.wait(|line| matches!(line, Line::Second(_)).then_some(()))
    }

    /// Ends it; its figures since the last reset, and all seconds.
    fn end(mut self) -> Result<(Summary, Vec<Second>)> {
        self.say(&Order::Stop.line())?;
        let summary = self.wait(|line| match line {
            Line::Summary(summary) => Some(summary),
            _ => None,
        })?;
        Ok((summary, std::mem::take(&mut self.seconds)))
    }

    fn wait<T>(&mut self, wanted: impl Fn(Line) -> Option<T>) -> Result<T> {
        let end = Instant::now() + ANSWER_MAX;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(Ok(line)) => {
                    self.keep(&line);
                    if let Some(found) = wanted(line) {
                        return Ok(found);
                    }
                }
                Ok(Err(what)) => return Err(LabError::Setup(format!("swarm: {what}"))),
                Err(_) => return Err(self.gone()),
            }
        }
    }

    /// It ends by itself when it can't go on, and says on its standard error why.
    fn gone(&mut self) -> LabError {
        LabError::contender(
            &self.who,
            "the swarm ended or fell silent; its own words are above",
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.input = None; // the end of its input ends it
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(2) {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Little's law: what is there over what comes in.
fn residence_s(values: &Values, cache_bytes: Option<u64>) -> Option<f64> {
    let disk_bytes_per_s = values.get("disk_bytes_per_s").filter(|rate| *rate > 0.0)?;
    Some(cache_bytes? as f64 / disk_bytes_per_s)
}

/// What was read for each byte that a client got.
fn disk_over_goodput(values: &Values) -> Option<f64> {
    let goodput = values
        .get("goodput_bytes_per_s")
        .filter(|rate| *rate > 0.0)?;
    Some(values.get("disk_bytes_per_s")? / goodput)
}

fn work(summary: &Summary) -> Work {
    Work {
        body_bytes: summary.classes.iter().map(|class| class.bytes).sum(),
        responses: summary.classes.iter().map(|class| class.completed).sum(),
    }
}

/// The clients' figures: sums for all, the rest for each class, and for all where there is one class.
fn add(values: &mut Values, summary: &Summary) {
    values.set("load_core_share", summary.cpu_s / summary.elapsed_s);
    let late = summary.timer_late_p99_us.map(|late_us| late_us as f64);
    values.set_some("clients_late_p99_us", late);
    let sum = |of: fn(&ClassSummary) -> u64| summary.classes.iter().map(of).sum::<u64>() as f64;
    values.set("errors", sum(|class| class.errors.values().sum()));
    values.set("responses", sum(|class| class.completed));
    values.set("stalls", sum(|class| class.stalls));
    for class in &summary.classes {
        if let [_] = &summary.classes[..] {
            add_class(values, class, "");
        } else {
            let at = format!("@{}", class.class);
            values.set(
                &format!("goodput_bytes_per_s{at}"),
                class.goodput_bytes_per_s,
            );
            values.set(&format!("stalls{at}"), class.stalls as f64);
            add_class(values, class, &at);
        }
    }
}

fn add_class(values: &mut Values, class: &ClassSummary, at: &str) {
    let mut set = |key: &str, value: Option<f64>| values.set_some(&format!("{key}{at}"), value);
    let each = &class.client_goodput_bytes_per_s;
    let some = |value: f64| (each.clients > 0).then_some(value);
    set("client_goodput_min_bytes_per_s", some(each.min));
    set("client_goodput_p50_bytes_per_s", some(each.p50));
    set("client_goodput_mean_bytes_per_s", some(each.mean));
    set("demand_met_min", class.demand_met.map(|met| met.min));
    set("demand_met_mean", class.demand_met.map(|met| met.mean));
    set("demand_met_p1", class.demand_met.map(|met| met.p1));
    set("demand_met_p50", class.demand_met.map(|met| met.p50));
    let us = |time: Option<u64>| time.map(|us| us as f64);
    set("ttfb_p50_us", us(class.ttfb_us.p50));
    set("ttfb_p99_us", us(class.ttfb_us.p99));
    set("completion_p50_us", us(class.completion_us.p50));
    set("completion_p99_us", us(class.completion_us.p99));
    set("jain", class.jain_min);
    set("jain_demand", class.jain_demand_min);
}

/// A contender that sends a wrong byte has no figures.
fn refuse_wrong_bytes(who: &str, summary: &Summary) -> Result<()> {
    let failed = summary.classes.iter().find(|class| class.failed);
    match failed {
        None => Ok(()),
        Some(class) => {
            let first = class
                .first_errors
                .first()
                .map_or("wrong answers", String::as_str);
            Err(LabError::contender(
                who,
                format!("class {}: {first}", class.class),
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(classes: &[&str]) -> Summary {
        let class = |name: &&str| ClassSummary {
            class: (*name).to_owned(),
            bytes: 500,
            completed: 2,
            errors: [("timeout".to_owned(), 3)].into(),
            ..ClassSummary::default()
        };
        Summary {
            seed: 1,
            elapsed_s: 2.0,
            cpu_s: 1.0,
            timer_late_p99_us: None,
            failed: false,
            classes: classes.iter().map(class).collect(),
        }
    }

    #[test]
    fn one_class_gives_plain_figures_and_several_give_theirs_by_name() {
        let mut values = Values::default();
        let mut one = summary(&["films"]);
        one.classes[0].ttfb_us.p50 = Some(70);
        add(&mut values, &one);
        assert_eq!(values.get("ttfb_p50_us"), Some(70.0));
        assert_eq!(values.get("load_core_share"), Some(0.5));
        let two = summary(&["fast", "slow"]);
        let mut values = Values::default();
        add(&mut values, &two);
        assert_eq!(values.get("errors"), Some(6.0));
        assert_eq!(values.get("stalls@slow"), Some(0.0));
        assert_eq!(values.get("ttfb_p50_us@slow"), None, "no answer, no time");
        assert_eq!(work(&two).body_bytes, 1000);
    }

    #[test]
    fn what_the_disk_read_counts_for_each_byte_that_was_got() {
        let mut values = Values::default();
        values.set("disk_bytes_per_s", 30.0);
        assert_eq!(disk_over_goodput(&values), None, "nobody got anything");
        values.set("goodput_bytes_per_s", 40.0);
        assert_eq!(disk_over_goodput(&values), Some(0.75));
    }

    #[test]
    fn wrong_bytes_are_the_contenders_failure_and_named() {
        let mut wrong = summary(&["films"]);
        assert!(refuse_wrong_bytes("p", &wrong).is_ok());
        wrong.classes[0].failed = true;
        wrong.classes[0].first_errors = vec!["/a differs at byte 7".into()];
        let error = refuse_wrong_bytes("p", &wrong).unwrap_err().to_string();
        assert!(
            error.contains("p: class films: /a differs at byte 7"),
            "{error}"
        );
    }
}
