//! Samples something at a fixed interval, in a thread of its own, while clients are measured.

use ackpace_lab_base::error::{LabError, Result};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running sampler; it collects its samples in a `T`.
pub struct Sampler<T> {
    what: &'static str,
    stop: Sender<()>,
    thread: JoinHandle<Result<T>>,
}

impl<T: Send + 'static> Sampler<T> {
    /// Calls `sample` after each `pause`, until an error or [`Sampler::end`]. `what` is sampled: a word for errors.
    pub fn start(
        what: &'static str,
        pause: Duration,
        mut samples: T,
        mut sample: impl FnMut(&mut T) -> Result<()> + Send + 'static,
    ) -> Self {
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                sample(&mut samples)?;
            }
            Ok(samples)
        });
        Self { what, stop, thread }
    }

    /// Stops it, and returns the samples.
    ///
    /// # Errors
    /// The first sample that failed.
    pub fn end(self) -> Result<T> {
        drop(self.stop);
        let panicked = || LabError::Setup(format!("the sampler of {} panicked", self.what));
        self.thread.join().map_err(|_| panicked())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_collected_until_one_fails() {
        let (sampled, samples) = channel();
        let sampler = Sampler::start("numbers", Duration::ZERO, 0, move |count| {
            *count += 1;
            sampled.send(*count).unwrap();
            match *count {
                3 => Err(LabError::Setup("three are enough".into())),
                _ => Ok(()),
            }
        });
        assert_eq!(samples.into_iter().collect::<Vec<i32>>(), [1, 2, 3]);
        let error = sampler.end().unwrap_err();
        assert_eq!(error.to_string(), "three are enough");
    }
}
