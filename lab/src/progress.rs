//! Shows the progress of a run.

/// Progress of one experiment.
pub struct Progress {
    name: &'static str,
    rounds: usize,
    done: usize,
}

impl Progress {
    /// Starts with `rounds` rounds.
    pub fn new(name: &'static str, rounds: usize) -> Self {
        Self {
            name,
            rounds,
            done: 0,
        }
    }

    /// Shows the current step.
    pub fn say(&self, what: &str) {
        eprintln!(
            "{}: {} of {} rounds: {what}",
            self.name, self.done, self.rounds
        );
    }

    /// Counts rounds that are done, or that will not be.
    pub fn add(&mut self, rounds: usize) {
        self.done += rounds;
    }
}
