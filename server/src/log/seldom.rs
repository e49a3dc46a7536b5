//! Lines that many clients cause at once: one in ten seconds of each topic, and for each file, with a count.

use std::fmt::{Arguments, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ackpace_core::units::{Instant, duration_us};
use tracing::Level;

use crate::limits::{LOG_REPORT_INTERVAL, LOG_SELDOM_MAX};

/// What a line tells of. Lines about different topics do not displace each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// accept(2) failed.
    Accept,
    /// No worker has a place left, and new clients wait.
    Full,
    /// No worker has a place for a client.
    NoPlace,
    /// A client could not be watched by epoll.
    Epoll,
    /// A request got 500.
    Failed,
    /// A request got 503 for want of descriptors or memory.
    Exhausted,
    /// A request got 503 behind a disk that does not answer.
    Crowded,
    /// A request got 503 for a file on which another program has a lease.
    Leased,
    /// The threads of a disk could not be started.
    DiskThreads,
    /// A listing broke off, or has a name of which nothing else is known.
    Listing,
    /// A file was changed while it was sent.
    FileChanged,
    /// A file could not be read on while it was sent.
    Unreadable,
}

impl Topic {
    fn level(self) -> Level {
        match self {
            Topic::Failed | Topic::Unreadable | Topic::DiskThreads => Level::ERROR,
            _ => Level::WARN,
        }
    }
}

/// The owner of such lines, for all workers. The first line of a topic and file is written at once, and those of the next
/// [`LOG_REPORT_INTERVAL`] together at its end: `times=39`.
#[derive(Debug)]
pub struct Seldom {
    rows: Mutex<Vec<Row>>,
    /// When the next count is due; `u64::MAX`: nothing waits to be told.
    due_us: AtomicU64,
}

/// A topic and a file of which a line was written.
#[derive(Debug)]
struct Row {
    topic: Topic,
    file: Option<String>,
    due: Instant,
    /// The first text since the last line.
    text: String,
    times: u64,
}

/// A line that is to be written now.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    topic: Topic,
    file: Option<String>,
    text: String,
    times: u64,
}

impl Default for Seldom {
    fn default() -> Seldom {
        Seldom {
            rows: Mutex::default(),
            due_us: AtomicU64::new(u64::MAX),
        }
    }
}

impl Seldom {
    /// Tells of something that happened, to `file` if it is given: now, or within [`LOG_REPORT_INTERVAL`].
    pub fn tell(&self, topic: Topic, file: Option<&str>, text: Arguments<'_>, now: Instant) {
        if let Some(line) = self.happened(topic, file, text, now) {
            line.write();
        }
    }

    /// When [`Seldom::tell_rest`] has something to tell.
    pub fn due(&self) -> Option<Instant> {
        let us = self.due_us.load(Ordering::Relaxed);
        (us != u64::MAX).then_some(Instant { us })
    }

    /// Writes the counts that are due.
    pub fn tell_rest(&self, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.rest(now).into_iter().for_each(Line::write);
        }
    }

    /// Writes all counts: the server ends.
    pub fn tell_all(&self) {
        self.tell_rest(Instant { us: u64::MAX });
    }

    fn happened(
        &self,
        topic: Topic,
        file: Option<&str>,
        text: Arguments<'_>,
        now: Instant,
    ) -> Option<Line> {
        let mut rows = self.rows();
        let mut file = file;
        let mut at = find(&rows, topic, file);
        if at.is_none() && rows.len() >= LOG_SELDOM_MAX {
            rows.retain(|row| row.times > 0 || now < row.due);
            if rows.len() >= LOG_SELDOM_MAX {
                file = Some("(several)");
            }
            at = find(&rows, topic, file);
        }
        let due = now.plus_us(duration_us(LOG_REPORT_INTERVAL));
        let Some(at) = at else {
            let row = Row {
                topic,
                file: file.map(str::to_owned),
                due,
                text: String::new(),
                times: 1,
            };
            rows.push(row);
            let line = rows.last_mut().map(|row| row.line(text.to_string(), due));
            self.note_due(&rows);
            return line;
        };
        let row = &mut rows[at];
        row.times += 1;
        if row.times == 1 {
            row.text.clear();
            let _ = row.text.write_fmt(text); // into memory
        }
        let line = (row.due <= now).then(|| {
            let text = std::mem::take(&mut row.text);
            row.line(text, due)
        });
        self.note_due(&rows);
        line
    }

    fn rest(&self, now: Instant) -> Vec<Line> {
        let mut rows = self.rows();
        let next = now.plus_us(duration_us(LOG_REPORT_INTERVAL));
        let due = |row: &&mut Row| row.times > 0 && row.due <= now;
        let lines = rows.iter_mut().filter(due).map(|row| {
            let text = std::mem::take(&mut row.text);
            row.line(text, next)
        });
        let lines = lines.collect();
        rows.retain(|row| now < row.due);
        self.note_due(&rows);
        lines
    }

    fn note_due(&self, rows: &[Row]) {
        let waiting = rows.iter().filter(|row| row.times > 0);
        let due_us = waiting.map(|row| row.due.us).min().unwrap_or(u64::MAX);
        self.due_us.store(due_us, Ordering::Relaxed);
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn find(rows: &[Row], topic: Topic, file: Option<&str>) -> Option<usize> {
    let same = |row: &Row| row.topic == topic && row.file.as_deref() == file;
    rows.iter().position(same)
}

impl Row {
    /// The line for what was counted; the next one is due then.
    fn line(&mut self, text: String, due: Instant) -> Line {
        self.due = due;
        Line {
            topic: self.topic,
            file: self.file.clone(),
            text,
            times: std::mem::take(&mut self.times),
        }
    }
}

impl Line {
    fn write(self) {
        let times = (self.times > 1).then_some(self.times);
        let (file, text) = (self.file, self.text);
        match self.topic.level() {
            Level::ERROR => tracing::error!(file, times, "{text}"),
            _ => tracing::warn!(file, times, "{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Instant {
        Instant { us: s * 1_000_000 }
    }

    fn told(line: Option<Line>) -> Option<(String, u64)> {
        line.map(|line| (line.text, line.times))
    }

    #[test]
    fn a_flood_is_a_line_at_once_and_one_in_ten_seconds() {
        let seldom = Seldom::default();
        let mut lines = Vec::new();
        // Twenty a second for half a minute.
        for n in 0..600 {
            let now = Instant { us: n * 50_000 };
            lines.extend(told(seldom.happened(
                Topic::Accept,
                None,
                format_args!("event {n}"),
                now,
            )));
        }
        let expected = [("event 0", 1), ("event 1", 200), ("event 201", 200)];
        assert_eq!(
            lines,
            expected.map(|(text, times)| (text.to_owned(), times))
        );
        assert_eq!(seldom.due(), Some(at(30)));
        let rest = seldom.rest(at(30));
        assert_eq!(rest[0].times, 199, "none is left out of the count");
        assert_eq!(seldom.due(), None);
    }

    #[test]
    fn files_and_kinds_do_not_displace_each_other() {
        let seldom = Seldom::default();
        let happened = |topic, file| {
            seldom
                .happened(topic, file, format_args!("x"), at(1))
                .is_some()
        };
        assert!(happened(Topic::FileChanged, Some("/a")));
        assert!(happened(Topic::FileChanged, Some("/b")));
        assert!(happened(Topic::Unreadable, Some("/a")));
        assert!(!happened(Topic::FileChanged, Some("/a")));
    }

    #[test]
    fn what_comes_late_is_told_at_once_again() {
        let seldom = Seldom::default();
        let text = format_args!("x");
        assert!(seldom.happened(Topic::Crowded, None, text, at(1)).is_some());
        let text = format_args!("y");
        let line = told(seldom.happened(Topic::Crowded, None, text, at(60)));
        assert_eq!(line, Some(("y".to_owned(), 1)));
        assert!(seldom.rest(at(100)).is_empty());
    }

    #[test]
    fn more_files_than_are_remembered_share_a_line() {
        let seldom = Seldom::default();
        let mut lines = 0;
        for n in 0..10 * LOG_SELDOM_MAX {
            let file = format!("/{n}");
            let text = format_args!("x");
            let line = seldom.happened(Topic::FileChanged, Some(&file), text, at(1));
            lines += usize::from(line.is_some());
        }
        assert_eq!(lines, LOG_SELDOM_MAX + 1);
        assert_eq!(seldom.rows().len(), LOG_SELDOM_MAX + 1);
        let rest = seldom.rest(at(20));
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].times as usize, 9 * LOG_SELDOM_MAX - 1);
        assert!(seldom.rows().is_empty() || seldom.rows().len() == 1);
    }
}
