//! Lines that many clients cause at once: one in ten seconds of each topic, and for each file, with a count.

use std::fmt::Arguments;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ackpace_core::units::{Instant, duration_us};
use tracing::Level;

use super::LOG_REPORT_INTERVAL;

/// Topics and files of which the last line is remembered, so that each has one in `LOG_REPORT_INTERVAL`. More: the others
/// share one line of each topic.
const LOG_SELDOM_MAX: usize = 64;
const SEVERAL: &str = "(several)";

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
    /// An origin does not answer, or not as it should.
    Origin,
    /// Another node does not send what it is asked for.
    Node,
    /// An object of an origin was changed or could not be fetched while it was sent.
    Object,
    /// What an origin has can't be read by NFS.
    Unkept,
    /// A client of NFS is refused a mount.
    Mount,
    /// The slab gets no memory.
    Slab,
    /// Bytes of the iSCSI unit can't be read.
    Unit,
    /// The cache folder can't be read or written.
    Tier,
}

impl Topic {
    fn level(self) -> Level {
        match self {
            Topic::Failed | Topic::Unreadable | Topic::DiskThreads => Level::ERROR,
            _ => Level::WARN,
        }
    }
}

/// The owner of such lines, for all workers. The first line of a topic and file is written at once. Those of the next
/// `LOG_REPORT_INTERVAL` are counted, and told together (`times=39`) before the first line after it, of any topic.
#[derive(Debug, Default)]
pub struct Seldom {
    rows: Mutex<Vec<Row>>,
}

/// A topic and a file of which a line was written.
#[derive(Debug)]
struct Row {
    topic: Topic,
    file: Option<String>,
    until: Instant,
    /// The first text since the line, and how often there was one.
    text: String,
    times: u64,
}

impl Seldom {
    /// Tells of something that happened, to `file` if it is given.
    pub fn tell(&self, topic: Topic, file: Option<&str>, text: Arguments<'_>, now: Instant) {
        let rows = self.happened(topic, file, text, now);
        rows.iter().for_each(Row::write);
    }

    /// Writes all counts: the server ends.
    pub fn tell_all(&self) {
        let rows = self.over(Instant { us: u64::MAX });
        rows.iter().for_each(Row::write);
    }

    /// The lines that are to be written now.
    fn happened(
        &self,
        topic: Topic,
        file: Option<&str>,
        text: Arguments<'_>,
        now: Instant,
    ) -> Vec<Row> {
        let mut lines = self.over(now);
        let mut rows = self.rows();
        let is_full = rows.len() >= LOG_SELDOM_MAX;
        let at = |file| {
            let same = |row: &Row| row.topic == topic && row.file.as_deref() == file;
            rows.iter().position(same)
        };
        let (at, file) = match at(file) {
            None if is_full => (at(Some(SEVERAL)), Some(SEVERAL)),
            at => (at, file),
        };
        if let Some(at) = at {
            let row = &mut rows[at];
            if row.times == 0 {
                row.text = text.to_string();
            }
            row.times += 1;
            return lines;
        }
        let row = |text, times| Row {
            topic,
            file: file.map(str::to_owned),
            until: now.plus_us(duration_us(LOG_REPORT_INTERVAL)),
            text,
            times,
        };
        rows.push(row(String::new(), 0));
        lines.push(row(text.to_string(), 1));
        lines
    }

    /// Forgets the rows whose interval is over, and returns those that have counted something.
    fn over(&self, now: Instant) -> Vec<Row> {
        let mut rows = self.rows();
        let (over, rest): (Vec<Row>, Vec<Row>) = std::mem::take(&mut *rows)
            .into_iter()
            .partition(|row| row.until <= now);
        *rows = rest;
        over.into_iter().filter(|row| row.times > 0).collect()
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Row {
    fn write(&self) {
        let times = (self.times > 1).then_some(self.times);
        let (file, text) = (self.file.as_deref(), &self.text);
        match (self.topic, self.topic.level()) {
            (Topic::Origin, _) => tracing::warn!(origin = file, times, "{text}"),
            (Topic::Object | Topic::Unkept, _) => tracing::warn!(object = file, times, "{text}"),
            (_, Level::ERROR) => tracing::error!(file, times, "{text}"),
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

    fn told(lines: Vec<Row>) -> Vec<(String, u64)> {
        let told = lines.into_iter().map(|line| (line.text, line.times));
        told.collect()
    }

    #[test]
    fn a_flood_is_a_line_at_once_and_a_count_in_ten_seconds() {
        let seldom = Seldom::default();
        let mut lines = Vec::new();
        // Twenty a second for half a minute.
        for n in 0..600 {
            let (text, now) = (format!("event {n}"), Instant { us: n * 50_000 });
            let text = format_args!("{text}");
            lines.extend(told(seldom.happened(Topic::Accept, None, text, now)));
        }
        lines.extend(told(seldom.over(at(30))));
        let expected = [
            ("event 0", 1),
            ("event 1", 199),
            ("event 200", 1),
            ("event 201", 199),
            ("event 400", 1),
            ("event 401", 199),
        ];
        let expected = expected.map(|(text, times)| (text.to_owned(), times));
        assert_eq!(lines, expected, "none is left out of the count");
        assert!(seldom.rows().is_empty());
    }

    #[test]
    fn files_and_topics_do_not_displace_each_other() {
        let seldom = Seldom::default();
        let told = |topic, file| {
            let lines = seldom.happened(topic, file, format_args!("x"), at(1));
            !lines.is_empty()
        };
        assert!(told(Topic::FileChanged, Some("/a")));
        assert!(told(Topic::FileChanged, Some("/b")));
        assert!(told(Topic::Unreadable, Some("/a")));
        assert!(!told(Topic::FileChanged, Some("/a")));
    }

    #[test]
    fn more_files_than_are_remembered_share_a_line() {
        let seldom = Seldom::default();
        let mut lines = 0;
        for n in 0..10 * LOG_SELDOM_MAX {
            let file = format!("/{n}");
            let text = format_args!("x");
            let told = seldom.happened(Topic::FileChanged, Some(&file), text, at(1));
            lines += told.len();
        }
        assert_eq!(lines, LOG_SELDOM_MAX + 1);
        let rest = seldom.over(at(20));
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].times as usize, 9 * LOG_SELDOM_MAX - 1);
    }
}
