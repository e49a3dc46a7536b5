//! The output of a swarm: one JSON object a line, distinguished by `kind`. Names and units are stable.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::command::SwarmCommand;
use super::histogram::Histogram;
use super::tally::{Fault, Share, Tally, jain};
use ackpace_lab_base::stats;

/// A line of output.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// The end of a second.
    Second(Second),
    /// A command was carried out or refused.
    Answer(Answer),
    /// The last line.
    Summary(Summary),
}

/// One second of all classes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Second {
    /// End of the second, in seconds since the start of the run.
    pub at_s: u64,
    /// The classes in the workload's order.
    pub classes: Vec<ClassSecond>,
}

/// One second of a class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ClassSecond {
    /// Name of the class.
    pub class: String,
    /// Bytes of bodies, all checked.
    pub bytes: u64,
    /// Complete answers.
    pub completed: u64,
    /// Clients with a connection at the end of the second.
    pub connected: u64,
    /// Clients that want data at the end of the second.
    pub active: u64,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Answer {
    /// The command.
    pub command: SwarmCommand,
    /// Time at which the threads got it, since the start of the run; for `Leave`, when all clients had left.
    pub at_s: f64,
    /// True if there is no such class.
    pub refused: bool,
}

/// The figures of a run, from the last `reset` (or the end of the warm-up) to its end.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Summary {
    /// Seed of all draws.
    pub seed: u64,
    /// Length of the measured time.
    pub elapsed_s: f64,
    /// CPU time of the swarm's threads during it.
    pub cpu_s: f64,
    /// Lateness of the swarm's own timers, 99th percentile: above a few ms the swarm itself was overloaded.
    pub timer_late_p99_us: Option<u64>,
    /// True if any class failed.
    pub failed: bool,
    /// The classes in the workload's order.
    pub classes: Vec<ClassSummary>,
}

/// The figures of a class.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct ClassSummary {
    /// Name of the class.
    pub class: String,
    /// Number of its clients.
    pub clients: u64,
    /// Bytes of bodies, all checked.
    pub bytes: u64,
    /// These bytes per second, for all clients together.
    pub goodput_bytes_per_s: f64,
    /// Goodput of a client while it wanted data; over the clients that ever did.
    pub client_goodput_bytes_per_s: Spread,
    /// Share of its demand that a client received: its bytes over what its rate would have given in that time.
    /// Null for a class without rates.
    pub demand_met: Option<Spread>,
    /// Time from the intended start of a request to its first byte, connection set-up included.
    pub ttfb_us: Times,
    /// Time from the intended start to the last byte.
    pub completion_us: Times,
    /// Requests sent.
    pub requests: u64,
    /// Complete answers.
    pub completed: u64,
    /// Clients that left within an answer.
    pub aborted: u64,
    /// Connections established.
    pub connects: u64,
    /// Clients with a connection at the end.
    pub connected: u64,
    /// Waits for a byte above the class's `stall_s`.
    pub stalls: u64,
    /// Total time of these waits.
    pub stalled_s: f64,
    /// Lowest Jain's index over any two seconds, among the clients that wanted bytes throughout.
    pub jain_min: Option<f64>,
    /// Failed requests by kind: connect, reset, closed-early, timeout, overrun, status, head, length, range,
    /// wrong-byte. Kinds that did not occur are left out.
    pub errors: BTreeMap<String, u64>,
    /// True if an answer was wrong: status, head, length, range or wrong-byte.
    pub failed: bool,
    /// The first few failures in words.
    pub first_errors: Vec<String>,
}

/// The distribution of a figure over clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// 1st percentile (nearest rank).
    pub p1: f64,
    /// Median.
    pub p50: f64,
    /// Mean.
    pub mean: f64,
    /// Number of clients with the figure.
    pub clients: u64,
    /// Jain's index of the figure: 1 if all clients have the same. Null for fewer than two clients.
    pub jain: Option<f64>,
}

/// Times of requests in microseconds, each within 1.6 %; null without requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct Times {
    /// Number of requests.
    pub count: u64,
    /// Median.
    pub p50: Option<u64>,
    /// 99th percentile.
    pub p99: Option<u64>,
}

impl Times {
    /// The times of a histogram.
    pub(crate) fn of(times: &Histogram) -> Self {
        Self {
            count: times.count(),
            p50: times.quantile_us(0.5),
            p99: times.quantile_us(0.99),
        }
    }
}

impl Spread {
    /// The distribution of one value per client; `None` without clients.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let rank = (values.len() as f64 / 100.0).ceil() as usize;
        let (count, sum) = (values.len() as u64, values.iter().sum::<f64>());
        let squares = values.iter().map(|value| value * value).sum();
        Some(Self {
            min: *values.first()?,
            p1: values[rank.max(1) - 1],
            p50: stats::median(&values)?,
            mean: sum / count as f64,
            clients: count,
            jain: jain(count, sum, squares),
        })
    }
}

impl ClassSummary {
    /// The figures of a class from its counts and its clients' shares.
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
            aborted: tally.aborted,
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
            share(0, 0, 0), // never started: does not count as a slow client
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
}
