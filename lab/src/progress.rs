//! Shows the progress of a run and the time left, on one line of the terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Progress of one experiment.
pub struct Progress {
    name: &'static str,
    rounds: usize,
    done: usize,
    start: Instant,
    /// Expected duration of a round, used until one is done.
    guess: Duration,
    terminal: bool,
}

impl Progress {
    /// Starts with `rounds` rounds, each of which should take about `guess`.
    pub fn new(name: &'static str, rounds: usize, guess: Duration) -> Self {
        Self {
            name,
            rounds,
            done: 0,
            start: Instant::now(),
            guess,
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Shows the current step. On a terminal the line replaces the previous one; elsewhere only steps that are
    /// `worth_a_line` are written.
    pub fn say(&self, what: &str, worth_a_line: bool) {
        let left = self.left(self.start.elapsed());
        let text = format!(
            "{}: {} of {} rounds, {} left: {what}",
            self.name,
            self.done,
            self.rounds,
            time(left)
        );
        let mut out = std::io::stderr();
        if self.terminal {
            let _ = write!(out, "\r\x1b[K{text}");
            let _ = out.flush();
        } else if worth_a_line {
            let _ = writeln!(out, "{text}");
        }
    }

    /// Counts rounds that are done or will not take place.
    pub fn add(&mut self, rounds: usize) {
        self.done += rounds;
    }

    /// Clears the line.
    pub fn end(&self) {
        if self.terminal {
            let mut out = std::io::stderr();
            let _ = write!(out, "\r\x1b[K");
            let _ = out.flush();
        }
    }

    fn left(&self, elapsed: Duration) -> Duration {
        let rounds = self.rounds.saturating_sub(self.done) as u32;
        match self.done {
            0 => self.guess * rounds,
            done => elapsed / done as u32 * rounds,
        }
    }
}

/// "3 min 20 s", "45 s".
pub fn time(time: Duration) -> String {
    let s = time.as_secs();
    match s / 60 {
        0 => format!("{s} s"),
        minutes if minutes < 60 => format!("{minutes} min {} s", s % 60),
        minutes => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_guessed_first_and_extrapolated_then() {
        let mut progress = Progress::new("x", 10, Duration::from_secs(2));
        let elapsed = Duration::from_secs(12);
        assert_eq!(time(progress.left(elapsed)), "20 s");
        progress.add(4);
        assert_eq!(time(progress.left(elapsed)), "18 s");
        progress.add(7);
        assert_eq!(time(progress.left(elapsed)), "0 s");
        assert_eq!(time(Duration::from_secs(200)), "3 min 20 s");
        assert_eq!(time(Duration::from_secs(7260)), "2 h 1 min");
    }
}
