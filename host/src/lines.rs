//! Lines for whoever reads them, who may stop reading: a pager, a paused terminal, a collector that hangs. A thread of its own
//! writes; what it can't keep up with is dropped and counted, and never holds up what else there is to do.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::Duration;

/// Lines that wait for a reader. More: dropped.
const WAITING_MAX: usize = 1_024;
/// How long the end waits until all are written.
const END_WITHIN: Duration = Duration::from_millis(500);

/// Where a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Standard output: what was asked for.
    Output,
    /// Standard error: what the operator should know.
    Errors,
}

/// Writes lines to both.
#[derive(Debug)]
pub struct Lines {
    waiting: Option<SyncSender<(To, String)>>,
    written: Receiver<()>,
    dropped: u64,
}

impl Lines {
    /// Starts the thread.
    pub fn new() -> Lines {
        Lines::with(|to, line| {
            let line = format!("{line}\n");
            // A closed stream is no reason to end, least of all with something that has to be undone.
            let _ = match to {
                To::Output => io::stdout().write_all(line.as_bytes()),
                To::Errors => io::stderr().write_all(line.as_bytes()),
            };
        })
    }

    fn with(mut write: impl FnMut(To, String) + Send + 'static) -> Lines {
        let (waiting, lines) = mpsc::sync_channel::<(To, String)>(WAITING_MAX);
        let (end, written) = mpsc::channel();
        thread::spawn(move || {
            lines.into_iter().for_each(|(to, line)| write(to, line));
            drop(end);
        });
        Lines {
            waiting: Some(waiting),
            written,
            dropped: 0,
        }
    }

    /// Has the line written, or drops it.
    pub fn write(&mut self, to: To, line: impl Into<String>) {
        let Some(waiting) = &self.waiting else {
            return;
        };
        if self.dropped > 0 {
            let told = format!("{} lines were dropped: nobody read them", self.dropped);
            if waiting.try_send((To::Errors, told)).is_ok() {
                self.dropped = 0;
            }
        }
        self.dropped += u64::from(waiting.try_send((to, line.into())).is_err());
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::new()
    }
}

impl Drop for Lines {
    /// Waits for a moment until all is written.
    fn drop(&mut self) {
        self.waiting = None;
        let _ = self.written.recv_timeout(END_WITHIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_read_holds_up_nobody_and_hears_how_many_were_dropped() {
        let (go_on, paused) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let mut lines = Lines::with(move |to, line| {
            let _ = paused.recv();
            let _ = tell.send((to, line));
        });
        for nth in 0..2 * WAITING_MAX {
            lines.write(To::Output, nth.to_string());
        }
        assert!(lines.dropped > WAITING_MAX as u64 / 2);
        drop(go_on); // from now on it reads
        let first = told.recv().expect("a line");
        assert_eq!(first, (To::Output, "0".to_owned()));
        let mut said = Vec::new();
        for _ in 0..10_000 {
            lines.write(To::Output, "last");
            said.extend(told.try_iter());
            if said.iter().any(|(_, line)| line == "last") {
                break;
            }
            thread::yield_now();
        }
        let dropped = said.iter().find(|(to, _)| *to == To::Errors);
        assert!(dropped.is_some_and(|(_, line)| line.contains("were dropped")));
    }
}
