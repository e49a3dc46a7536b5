//! A build of `ackpace-host tune` that runs, and what it tells of itself. Where a machine is busy, it takes a while to come up
//! and to answer: nothing is measured before its first pass, and it is asked again when it has not answered.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::thread;
use std::time::Duration;
use std::{env, process};

use ackpace_lab_base::error::{Doing, LabError, Result};

/// How often it is asked for its first pass, [`ASKED_EACH`], until it counts as one that does not start: 2 minutes.
const FIRST_ASKED_MAX: usize = 240;
/// How often it is asked again later: 15 s, if it refuses at once.
const ASKED_MAX: usize = 30;
const ASKED_EACH: Duration = Duration::from_millis(500);

/// It is ended with this.
pub struct Tuning {
    build: PathBuf,
    child: Child,
    /// What it says on standard error.
    log: PathBuf,
}

/// Its counters so far.
pub struct Counters {
    pub passes: f64,
    /// How many match now.
    pub sockets: f64,
    pub cpu_us: f64,
    pub user_ticks: f64,
    pub kernel_ticks: f64,
}

impl Tuning {
    /// Starts it, and returns when its first pass is over.
    pub fn start(build: &Path, ports: &str, budget_kib: usize) -> Result<Tuning> {
        let log = env::temp_dir().join(format!("tune-pass-{}.log", process::id()));
        let said = File::create_new(&log).doing(|| log.display().to_string())?;
        let mut command = Command::new(build);
        let budget = format!("{budget_kib}KiB");
        command.args(["tune", "--budget", &budget, "--port", ports]);
        let child = command.stderr(said).spawn();
        let mut tuning = Tuning {
            build: build.to_owned(),
            child: child.doing(|| build.display().to_string())?,
            log,
        };
        tuning.status(FIRST_ASKED_MAX, 1.0)?;
        Ok(tuning)
    }

    pub fn counters(&mut self) -> Result<Counters> {
        let told = self.status(ASKED_MAX, 0.0)?;
        let path = format!("/proc/{}/stat", self.child.id());
        let stat = fs::read_to_string(&path).doing(|| path)?;
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
        let field = |nth: usize| {
            let number = fields.get(nth).and_then(|text| text.parse().ok());
            number.unwrap_or(0.0)
        };
        Ok(Counters {
            passes: number(&told, "passes"),
            sockets: number(&told, "sockets"),
            cpu_us: number(&told, "cpu_us"),
            user_ticks: field(11),
            kernel_ticks: field(12),
        })
    }

    /// Its status, once it has made so many passes.
    fn status(&mut self, asked_max: usize, passes_min: f64) -> Result<serde_json::Value> {
        let Tuning { build, child, log } = self;
        let ask = || {
            if let Ok(Some(status)) = child.try_wait() {
                let said = fs::read_to_string(&*log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("nothing");
                return Err(Unanswered::Ended(format!(
                    "it has ended ({status}): {last}"
                )));
            }
            let output = Command::new(&*build)
                .args(["tune", "status", "--json"])
                .output();
            let output = output.map_err(|error| Unanswered::Ended(error.to_string()))?;
            told(&output, passes_min).map_err(Unanswered::Yet)
        };
        asked(asked_max, ask, || thread::sleep(ASKED_EACH))
            .map_err(|why| LabError::contender(&build.display().to_string(), why))
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            // SAFETY: no pointers; our own child, which was not waited for until it ended, so the number is its own.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        }
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.log);
    }
}

/// Why there is no status.
#[derive(Debug)]
enum Unanswered {
    /// It may tell when it is asked again.
    Yet(String),
    /// It will never tell.
    Ended(String),
}

/// Asks until there is an answer, so often at most. What was said last, if there was none.
fn asked<T>(
    asked_max: usize,
    mut ask: impl FnMut() -> std::result::Result<T, Unanswered>,
    mut pause: impl FnMut(),
) -> std::result::Result<T, String> {
    let mut said = String::new();
    for _ in 0..asked_max {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(Unanswered::Ended(why)) => return Err(why),
            Err(Unanswered::Yet(why)) => said = why,
        }
        pause();
    }
    Err(format!("asked {asked_max} times: {said}"))
}

/// What `tune status --json` has told, of at least so many passes; or why it has not.
fn told(output: &Output, passes_min: f64) -> std::result::Result<serde_json::Value, String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("tune status: {}: {}", output.status, said.trim()));
    }
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        format!(
            "tune status: {error}: {:?}",
            String::from_utf8_lossy(&output.stdout)
        )
    })?;
    match number(&told, "passes") {
        passes if passes < passes_min => Err(format!("{passes} passes yet")),
        _ => Ok(told),
    }
}

fn number(told: &serde_json::Value, name: &str) -> f64 {
    told[name].as_f64().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    fn output(code: i32, out: &str, err: &str) -> Output {
        Output {
            status: ExitStatus::from_raw(code << 8),
            stdout: out.into(),
            stderr: err.into(),
        }
    }

    #[test]
    fn one_that_is_not_up_yet_is_asked_again() {
        let mut outputs = [
            output(1, "", "ackpace-host: nothing tunes this network namespace"),
            output(0, "", ""),
            output(0, "{\"passes\":0}\n", ""),
            output(0, "{\"passes\":1}\n", ""),
        ]
        .into_iter();
        let ask = || {
            let output = outputs.next().expect("it has answered before");
            told(&output, 1.0).map_err(Unanswered::Yet)
        };
        let answer = asked(9, ask, || {}).expect("the last one");
        assert_eq!(number(&answer, "passes"), 1.0);
    }

    #[test]
    fn whoever_never_answers_is_asked_so_often_and_its_reason_told() {
        let mut times = 0;
        let refused = output(
            1,
            "",
            "ackpace-host: nothing tunes this network namespace\n",
        );
        let why = asked(
            3,
            || told(&refused, 1.0).map_err(Unanswered::Yet),
            || times += 1,
        );
        let why = why.expect_err("it never answers");
        assert!(
            why.contains("asked 3 times") && why.ends_with("network namespace"),
            "{why}"
        );
        assert_eq!(times, 3);
    }

    #[test]
    fn one_that_has_ended_is_not_asked_again() {
        let ended = || Err::<(), _>(Unanswered::Ended("it has ended".to_owned()));
        let why = asked(3, ended, || panic!("no pause")).expect_err("it has ended");
        assert_eq!(why, "it has ended");
    }
}
