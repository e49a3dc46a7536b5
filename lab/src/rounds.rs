//! Runs the rounds of an experiment. In each round, each contender runs once at each point, as a fresh process,
//! in rotating order. A contender that fails is reported with the end of its log and left out; the others go
//! on.

use crate::experiment::{Experiment, Pace};
use crate::metrics::Values;
use crate::peers::Contender;
use crate::progress::Progress;
use crate::sweep::Point;
use crate::testbed::{Lab, Testbed};
use crate::workloads::{self, RoundResult, Workload};
use ackpace_lab_base::error::{LabError, Result};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// One contender in one round.
#[derive(Debug, serde::Serialize)]
pub struct Round {
    /// The point of the sweep.
    pub point: Point,
    /// Index of the round.
    pub round: usize,
    /// Position in the order of the round.
    pub place: usize,
    /// Name of the contender.
    pub contender: String,
    /// Figures, by the keys of `metrics::all`.
    pub values: Values,
    /// Further results of the workload.
    pub detail: serde_json::Value,
}

/// A contender that crashed, hung or answered wrongly; it is left out for the rest of the point.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Failure {
    /// The point of the sweep, in words.
    pub point: String,
    /// Index of the round; `None` if it failed before the first.
    pub round: Option<usize>,
    /// Name of the contender.
    pub contender: String,
    /// What it did wrong.
    pub what: String,
    /// The end of its standard error.
    pub log_tail: String,
}

/// The results of an experiment.
#[derive(Debug, Default, serde::Serialize)]
pub struct Rounds {
    /// The measured rounds.
    pub rounds: Vec<Round>,
    /// The contenders that failed.
    pub failures: Vec<Failure>,
}

/// The inputs of [`run`].
pub struct Plan<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// The contenders that take part.
    pub contenders: &'a [Contender],
    /// Points of the sweep.
    pub points: &'a [Point],
    /// Length and number of the rounds.
    pub pace: Pace,
}

/// Runs all rounds.
///
/// # Errors
/// Failures that no contender caused: a place that can't be built, or a measurement that fails.
pub fn run(lab: &Lab, plan: &Plan) -> Result<Rounds> {
    let all = plan.points.len() * plan.contenders.len() * plan.pace.rounds;
    let mut progress = Progress::new(plan.experiment.name, all);
    let mut rounds = Rounds::default();
    let mut testbed: Option<Testbed> = None;
    for point in plan.points {
        let scenario = (plan.experiment.scenario)(point);
        let mut here = match testbed.take() {
            Some(testbed) if testbed.place.is(&scenario.place) => testbed,
            old => {
                drop(old); // before its successor is built
                progress.say("building the place");
                Testbed::up(lab, &scenario.place)?
            }
        };
        let mut point_run = PointRun {
            plan,
            point,
            workload: &scenario.workload,
            progress: &mut progress,
            rounds: &mut rounds,
        };
        point_run.run(&mut here)?;
        testbed = Some(here);
    }
    Ok(rounds)
}

/// One point of a sweep.
struct PointRun<'a> {
    plan: &'a Plan<'a>,
    point: &'a Point,
    workload: &'a Workload,
    progress: &'a mut Progress,
    rounds: &'a mut Rounds,
}

impl PointRun<'_> {
    fn run(&mut self, testbed: &mut Testbed) -> Result<()> {
        let mut taking_part: Vec<&Contender> = self.plan.contenders.iter().collect();
        let unchecked = !self.workload.checks_itself();
        for contender in taking_part.clone().into_iter().filter(|_| unchecked) {
            let what = format!(
                "{}comparing every byte from {}",
                self.prefix(),
                contender.name
            );
            self.progress.say(&what);
            let verified = self.verify(testbed, contender);
            self.keep(&mut taking_part, contender, None, verified, testbed)?;
        }
        for round in 0..self.plan.pace.rounds {
            for (place, contender) in rotated(taking_part.clone(), round).into_iter().enumerate() {
                let what = format!("{}round {}, {}", self.prefix(), round + 1, contender.name);
                self.progress.say(&what);
                let seen = self.one(testbed, contender);
                let seen = self.keep(&mut taking_part, contender, Some(round), seen, testbed)?;
                if let Some(RoundResult { values, detail }) = seen {
                    self.progress.add(1);
                    self.rounds.rounds.push(Round {
                        point: self.point.clone(),
                        round,
                        place,
                        contender: contender.name.clone(),
                        values,
                        detail,
                    });
                }
            }
        }
        Ok(())
    }

    fn verify(&self, testbed: &mut Testbed, contender: &Contender) -> Result<()> {
        testbed.before_round()?;
        let at = contender.at(self.point);
        let server = testbed.start(&at, self.workload.connections())?;
        self.workload.verify(&server, testbed)?;
        server.stop()
    }

    fn one(&self, testbed: &mut Testbed, contender: &Contender) -> Result<RoundResult> {
        testbed.before_round()?;
        let at = contender.at(self.point);
        let times = workloads::RoundTimes {
            warm_up: Duration::from_secs_f64(self.plan.pace.warm_up_s),
            window: Duration::from_secs_f64(self.plan.pace.window_s),
        };
        if let Workload::Cluster(cluster) = self.workload {
            return cluster.run(testbed, &at, times);
        }
        let server = testbed.start(&at, self.workload.connections())?;
        let killed = server.group.killed();
        let seen = self.workload.run(server, testbed, times);
        match killed.load(Relaxed) {
            0 => seen,
            kills => Err(out_of_memory(&at.name, kills, seen.err())),
        }
    }

    /// Returns the result, or records a failure of the contender, which is then left out. If a person must
    /// provide something, no contender is at fault and the run ends.
    fn keep<T>(
        &mut self,
        taking_part: &mut Vec<&Contender>,
        contender: &Contender,
        round: Option<usize>,
        result: Result<T>,
        testbed: &Testbed,
    ) -> Result<Option<T>> {
        let error = match result {
            Ok(value) => return Ok(Some(value)),
            Err(LabError::Setup(what)) => return Err(LabError::Setup(what)),
            Err(error) => error,
        };
        taking_part.retain(|who| who.name != contender.name);
        self.progress
            .add(self.plan.pace.rounds - round.unwrap_or(0));
        let failure = Failure {
            point: self.point.describe(&self.plan.experiment.sweep),
            round,
            contender: contender.name.clone(),
            what: error.to_string(),
            log_tail: testbed.log_tail(),
        };
        eprintln!("failed: {}; the others go on", failure.what);
        self.rounds.failures.push(failure);
        Ok(None)
    }

    fn prefix(&self) -> String {
        match self.point.describe(&self.plan.experiment.sweep) {
            point if point.is_empty() => point,
            point => format!("{point}, "),
        }
    }
}

/// The failure of a contender of which the kernel killed something for want of memory. A master that starts its workers
/// again would go on as if nothing had happened.
fn out_of_memory(who: &str, kills: u64, then: Option<LabError>) -> LabError {
    let then = then.map_or_else(String::new, |error| format!("; then {error}"));
    let what = format!(
        "needs more memory than its limit: the kernel ended {kills} of its processes{then}"
    );
    LabError::contender(who, what)
}

/// The order of a round. It rotates, and every second full rotation is reversed, so that no contender always
/// follows the same neighbour.
fn rotated<T>(mut order: Vec<T>, round: usize) -> Vec<T> {
    let n = order.len();
    if n > 0 {
        order.rotate_left(round % n);
        if round / n % 2 == 1 {
            order.reverse();
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_killed_is_said_before_what_came_of_it() {
        let then = LabError::contender("nginx", "ended by itself");
        let text = out_of_memory("nginx", 2, Some(then)).to_string();
        assert!(text.starts_with("nginx: needs more memory"), "{text}");
        assert!(text.ends_with("ended 2 of its processes; then nginx: ended by itself"));
        let alone = out_of_memory("nginx", 1, None).to_string();
        assert!(alone.ends_with("ended 1 of its processes"), "{alone}");
    }

    #[test]
    fn each_contender_has_each_place_equally_often() {
        let all = ["a", "b", "c"];
        for place in 0..3 {
            for who in all {
                let times = (0..6).filter(|round| rotated(all.to_vec(), *round)[place] == who);
                assert_eq!(times.count(), 2, "{who} at place {place}");
            }
        }
        assert!(rotated(Vec::<u8>::new(), 3).is_empty());
    }
}
