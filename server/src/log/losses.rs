//! Which troubles of a log are reported, and when: a disk that is full, and has room for a moment now and then, must not
//! flood the other log.

use std::io;
use std::time::Instant;

use crate::limits::LOG_REPORT_INTERVAL;

/// Troubles of the log itself.
#[derive(Debug)]
pub enum Trouble {
    /// The writer could not keep up; at most one report per [`LOG_REPORT_INTERVAL`].
    Dropped {
        /// Lines since the last report.
        lines: u64,
    },
    /// A write failed. Further lines are tried and lost without reports until one succeeds; at most one report per
    /// [`LOG_REPORT_INTERVAL`], also where writes fail and succeed in turn.
    Failed {
        /// The kernel's error.
        error: io::Error,
    },
    /// A write succeeded again.
    Recovered {
        /// Lines lost since the last such report.
        lines_lost: u64,
    },
}

/// What is known of writes that failed, and what was reported of it.
#[derive(Default)]
pub struct Losses {
    /// The last write failed.
    failing: bool,
    /// That was reported.
    is_told: bool,
    /// Its error, until it is reported.
    error: Option<io::Error>,
    /// Lines lost that no report has counted.
    lines: u64,
    /// No failure is reported before that.
    due: Option<Instant>,
}

impl Losses {
    /// The process ends: whatever is not reported is due.
    pub fn hurry(&mut self) {
        self.due = None;
    }

    /// A write has ended that lost so many lines.
    pub fn add(&mut self, lines: u64, result: io::Result<()>) {
        self.lines += lines;
        self.failing = result.is_err();
        self.error = result.err().filter(|_| !self.is_told);
    }

    /// When something of it is to be reported, if it waits for that.
    pub fn waits_until(&self) -> Option<Instant> {
        self.due.filter(|_| self.lines > 0 && !self.is_told)
    }

    /// What is to be reported now.
    pub fn report(&mut self, now: Instant) -> Option<Trouble> {
        let may = self.due.is_none_or(|due| due <= now);
        if self.failing {
            let error = self.error.take_if(|_| may)?;
            (self.is_told, self.due) = (true, Some(now + LOG_REPORT_INTERVAL));
            return Some(Trouble::Failed { error });
        }
        // The end of a failure that was reported, or several short ones since.
        if !std::mem::take(&mut self.is_told) {
            if self.lines == 0 || !may {
                return None;
            }
            self.due = Some(now + LOG_REPORT_INTERVAL);
        }
        let lines_lost = std::mem::take(&mut self.lines);
        Some(Trouble::Recovered { lines_lost })
    }
}
