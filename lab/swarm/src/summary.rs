//! What a swarm prints: one JSON object a line, told apart by `kind`. Names and units do not change.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::histogram::Histogram;
use super::tally::{Fault, Share, Tally};
use ackpace_lab_base::stats;

/// A line of output.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// The first: all threads run.
    Begin(Begin),
    /// A second is over.
    Second(Second),
    /// Something went wrong with a request; the first few of each class only.
    Fault(FaultLine),
    /// A command was carried out, or refused.
    Answer(Answer),
    /// The last.
    Summary(Summary),
}

/// Facts of a run.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Begin {
    /// Start of all draws: with it the run can be repeated.
    pub seed: u64,
    /// Where the server listens.
    pub target: String,
    /// Clients of all classes.
    pub clients: u64,
    /// Threads.
    pub threads: usize,
}

/// One second of all classes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Second {
    /// End of the second, since the begin of the run.
    pub at_s: u64,
    /// In the workload's order.
    pub classes: Vec<ClassSecond>,
}

/// One second of a class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ClassSecond {
    /// Name of the class.
    pub class: String,
    /// Bytes of bodies, all checked.
    pub bytes: u64,
    /// Answers taken whole.
    pub completed: u64,
    /// Requests sent.
    pub requests: u64,
    /// Requests that failed, of whatever kind.
    pub errors: u64,
    /// Waits above the class's `stall_s` that ended in this second.
    pub stalls: u64,
    /// Clients with a connection, at the end of the second.
    pub connected: u64,
    /// Clients that want something, at the end of the second.
    pub active: u64,
    /// Median time to first byte of the answers that began; none: null.
    pub ttfb_p50_us: Option<u64>,
    /// Its 99th percentile.
    pub ttfb_p99_us: Option<u64>,
}

/// A fault in words.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct FaultLine {
    /// Name of the class.
    pub class: String,
    /// Kind, as in the summary's `errors`.
    pub error: String,
    /// The request, the offset, what was awaited.
    pub text: String,
}

/// Answer to a command.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Answer {
    /// The command as it came.
    pub command: String,
    /// When it was given to the threads, since the begin of the run; `leave`: when all had left.
    pub at_s: f64,
    /// Why it was not carried out.
    pub refused: Option<String>,
}

/// The figures of a run, from the last `reset` (or the end of the warm-up) to its end.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// Start of all draws.
    pub seed: u64,
    /// Length of the time that the figures are of.
    pub elapsed_s: f64,
    /// CPU time of the swarm's threads in it.
    pub cpu_s: f64,
    /// How late the swarm's own timers fired, 99th percentile: above a few ms it was too busy itself.
    pub timer_late_p99_us: Option<u64>,
    /// Whether any class failed.
    pub failed: bool,
    /// In the workload's order.
    pub classes: Vec<ClassSummary>,
}

/// The figures of a class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ClassSummary {
    /// Name of the class.
    pub class: String,
    /// Its clients.
    pub clients: u64,
    /// Bytes of bodies, all checked.
    pub bytes: u64,
    /// Those per second, of all clients together.
    pub goodput_bytes_per_s: f64,
    /// A client's bytes over the time in which it wanted some: over the clients that did.
    pub client_goodput_bytes_per_s: Spread,
    /// A client's bytes over what its rate would have given in that time; without rates null.
    pub demand_met: Option<Spread>,
    /// Time to first byte from the intended begin of a request, a connection's set-up included.
    pub ttfb_us: Times,
    /// Time to last byte from there.
    pub completion_us: Times,
    /// Requests sent.
    pub requests: u64,
    /// Answers taken whole.
    pub completed: u64,
    /// Those per second.
    pub completed_per_s: f64,
    /// Answers that clients left on purpose; a half close counts here and, when whole, in `completed`.
    pub aborted: u64,
    /// Jumps within a file.
    pub seeks: u64,
    /// Pauses begun.
    pub pauses: u64,
    /// Connections made.
    pub connects: u64,
    /// Clients with a connection at the end.
    pub connected: u64,
    /// Waits for a byte above the class's `stall_s`.
    pub stalls: u64,
    /// Their time together.
    pub stalled_s: f64,
    /// Lowest of Jain's indices over any two seconds, of the clients that wanted bytes all the while.
    pub jain_min: Option<f64>,
    /// The same of bytes / rate.
    pub jain_demand_min: Option<f64>,
    /// Requests that failed, by kind: connect, reset, closed-early, timeout, overrun, status, head,
    /// length, range, wrong-byte. Kinds that did not occur are left out.
    pub errors: BTreeMap<String, u64>,
    /// A wrong answer was among them: status, head, length, range or wrong-byte.
    pub failed: bool,
    /// The first few in words.
    pub first_errors: Vec<String>,
}

/// A figure over clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Spread {
    /// Lowest.
    pub min: f64,
    /// One of a hundred is lower (nearest rank).
    pub p1: f64,
    /// Half of them are lower.
    pub p50: f64,
    /// Mean.
    pub mean: f64,
    /// Number of clients.
    pub clients: u64,
}

/// Times of requests, in microseconds, each within 1.6 %; null without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Times {
    /// Number of requests.
    pub count: u64,
    /// Median.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
    /// 99.9th percentile.
    pub p999: Option<u64>,
    /// Longest, exact.
    pub max: Option<u64>,
}

impl Times {
    /// Of a histogram.
    pub(crate) fn of(times: &Histogram) -> Self {
        Self {
            count: times.count(),
            p50: times.quantile_us(0.5),
            p99: times.quantile_us(0.99),
            p999: times.quantile_us(0.999),
            max: (times.count() > 0).then(|| times.max_us()),
        }
    }
}

impl Spread {
    /// Of a value for each client; `None` of nobody.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let rank = (values.len() as f64 / 100.0).ceil() as usize;
        Some(Self {
            min: *values.first()?,
            p1: values[rank.max(1) - 1],
            p50: stats::median(&values)?,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            clients: values.len() as u64,
        })
    }
}

impl ClassSecond {
    /// Counts of a second; the clients' moment is filled in by the caller.
    pub(crate) fn of(class: &str, tally: &Tally) -> Self {
        Self {
            class: class.into(),
            bytes: tally.bytes,
            completed: tally.completed,
            requests: tally.requests,
            errors: tally.fault_count(),
            stalls: tally.stalls,
            connected: 0,
            active: 0,
            ttfb_p50_us: tally.first_byte.quantile_us(0.5),
            ttfb_p99_us: tally.first_byte.quantile_us(0.99),
        }
    }
}

impl ClassSummary {
    /// Figures of a class from its counts and its clients' shares.
    pub(crate) fn of(
        class: &str,
        clients: u32,
        tally: &Tally,
        shares: &[Share],
        elapsed_s: f64,
    ) -> Self {
        let per_s = |count: u64| count as f64 / elapsed_s.max(1e-6);
        let active = shares.iter().filter(|share| share.active_us > 0);
        let goodput = |share: &Share| share.bytes as f64 * 1e6 / share.active_us as f64;
        let rated = shares.iter().filter(|share| share.demand_bytes > 0);
        let met = |share: &Share| share.bytes as f64 / share.demand_bytes as f64;
        let happened = |fault: &&Fault| tally.faults[**fault as usize] > 0;
        let named = |fault: &Fault| (fault.name().to_owned(), tally.faults[*fault as usize]);
        Self {
            class: class.into(),
            clients: u64::from(clients),
            bytes: tally.bytes,
            goodput_bytes_per_s: per_s(tally.bytes),
            client_goodput_bytes_per_s: Spread::of(active.map(goodput).collect())
                .unwrap_or_default(),
            demand_met: Spread::of(rated.map(met).collect()),
            ttfb_us: Times::of(&tally.first_byte),
            completion_us: Times::of(&tally.completion),
            requests: tally.requests,
            completed: tally.completed,
            completed_per_s: per_s(tally.completed),
            aborted: tally.aborted,
            seeks: tally.seeks,
            pauses: tally.pauses,
            connects: tally.connects,
            stalls: tally.stalls,
            stalled_s: tally.stalled_us as f64 / 1e6,
            errors: Fault::ALL.iter().filter(happened).map(named).collect(),
            failed: tally.failed(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_has_the_figures_of_its_clients() {
        let share = |bytes, active_us, demand_bytes| Share {
            bytes,
            active_us,
            demand_bytes,
        };
        let shares = [
            share(1000, 1_000_000, 2000),
            share(0, 0, 0), // never began: not a slow client
            share(3000, 2_000_000, 3000),
        ];
        let mut tally = Tally {
            bytes: 4000,
            ..Tally::default()
        };
        tally.fault(Fault::Timeout);
        let got = ClassSummary::of("a", 3, &tally, &shares, 2.0);
        let goodput = got.client_goodput_bytes_per_s;
        assert_eq!(
            (goodput.min, goodput.p1, goodput.mean),
            (1000.0, 1000.0, 1250.0)
        );
        assert_eq!(goodput.clients, 2);
        assert_eq!(got.demand_met.unwrap().mean, 0.75);
        assert_eq!(got.goodput_bytes_per_s, 2000.0);
        assert_eq!(got.errors, BTreeMap::from([("timeout".to_owned(), 1)]));
        assert!(!got.failed && got.ttfb_us.p50.is_none());
    }

    #[test]
    fn a_line_is_one_object_that_is_read_back() {
        let line = Line::Second(Second {
            at_s: 3,
            classes: vec![ClassSecond::of("a", &Tally::default())],
        });
        let text = serde_json::to_string(&line).unwrap();
        assert!(
            text.starts_with("{\"kind\":\"second\",\"at_s\":3,\"classes\":[{\"class\":\"a\""),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }
}
