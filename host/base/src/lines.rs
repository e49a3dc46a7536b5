//! Lines for whoever reads them, who may stop reading: a pager, a paused terminal, a collector that hangs. A thread of its own
//! writes; what it can't keep up with is dropped and counted, and never holds up what else there is to do.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TryRecvError};
use std::thread;
use std::time::Duration;

/// Lines that wait for a reader. More: dropped.
const WAITING_MAX: usize = 1_024;
/// How long the end waits until all are written.
const END_WITHIN: Duration = Duration::from_millis(500);
/// How often who waits for longer looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

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
    /// Nobody reads standard output any more.
    is_closed: Arc<AtomicBool>,
    dropped: u64,
}

impl Lines {
    /// Starts the thread.
    pub fn new() -> Lines {
        Lines::of_at_most(WAITING_MAX)
    }

    /// Likewise, for so many lines that wait.
    pub fn of_at_most(lines: usize) -> Lines {
        Lines::with(lines, |to, line| {
            let line = format!("{line}\n");
            match to {
                To::Output => io::stdout().write_all(line.as_bytes()),
                To::Errors => io::stderr().write_all(line.as_bytes()),
            }
        })
    }

    fn with(
        most: usize,
        mut write: impl FnMut(To, String) -> io::Result<()> + Send + 'static,
    ) -> Lines {
        let (waiting, lines) = mpsc::sync_channel::<(To, String)>(most);
        let (end, written) = mpsc::channel();
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = Arc::clone(&is_closed);
        thread::spawn(move || {
            for (to, line) in lines {
                // A closed stream is no reason to end where something has to be undone.
                if write(to, line).is_err() && to == To::Output {
                    closed.store(true, Ordering::Relaxed);
                }
            }
            drop(end);
        });
        Lines {
            waiting: Some(waiting),
            written,
            is_closed,
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

    /// Nobody reads standard output any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Waits until all is written, or `stopped` hears that this process is to end.
    pub fn finish(mut self, stopped: &Receiver<()>) {
        self.waiting = None;
        while self.written.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout)
            && stopped.try_recv() == Err(TryRecvError::Empty)
        {}
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
    fn a_reader_who_is_gone_is_noticed() {
        let (_never, stopped) = mpsc::channel();
        for (to, is_closed) in [(To::Errors, false), (To::Output, true)] {
            let mut lines = Lines::with(1, |_, _| Err(io::ErrorKind::BrokenPipe.into()));
            lines.write(to, "x");
            let closed = Arc::clone(&lines.is_closed);
            lines.finish(&stopped);
            assert_eq!(closed.load(Ordering::Relaxed), is_closed);
        }
    }

    #[test]
    fn who_does_not_read_holds_up_nobody_and_hears_how_many_were_dropped() {
        let (go_on, paused) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let mut lines = Lines::with(WAITING_MAX, move |to, line| {
            let _ = paused.recv();
            let _ = tell.send((to, line));
            Ok(())
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
