//! What outlives a guard that is killed: a file with a line for each thread whose nice value it has changed. It is written
//! before the change, so that the next start, or `receive guard --restore`, can undo it.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::turns::Thread;
use crate::turns::GUARDED_MAX;

/// Bytes of a line, with its end.
const LINE_BYTES: usize = 96;

/// A change: what a thread had before all of them, what before this one, and what it gets by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Whose.
    pub thread: Thread,
    /// Its own nice value.
    pub own: i32,
    /// What it has when the line is written.
    pub from: i32,
    /// What it gets next.
    pub to: i32,
}

/// The file, with what each of its lines says; `None`: it is free.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    lines: Vec<Option<Entry>>,
}

impl Ledger {
    /// Opens it, with what an earlier guard has left in it, or a new one.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn open(path: &Path) -> io::Result<Ledger> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        let mut text = Vec::new();
        (&file)
            .take((GUARDED_MAX * LINE_BYTES) as u64)
            .read_to_end(&mut text)?;
        let lines = String::from_utf8_lossy(&text)
            .lines()
            .map(Entry::parse)
            .collect();
        Ok(Ledger { file, lines })
    }

    /// All that it has.
    pub fn entries(&self) -> Vec<Entry> {
        self.lines.iter().flatten().copied().collect()
    }

    /// What it has of a thread.
    pub fn of(&self, thread: Thread) -> Option<Entry> {
        let mut entries = self.lines.iter().flatten();
        entries.find(|entry| entry.thread == thread).copied()
    }

    /// Writes what is about to be changed, in place of the thread's former line, or in a free one.
    ///
    /// # Errors
    /// As write(2); or there are more threads than lines.
    pub fn write(&mut self, entry: Entry) -> io::Result<()> {
        let has = |thread| move |line: &Option<Entry>| line.map(|entry| entry.thread) == thread;
        let mut lines = self.lines.iter();
        let at = lines.position(has(Some(entry.thread)));
        let at = at.or_else(|| self.lines.iter().position(has(None)));
        let at = at.unwrap_or(self.lines.len());
        if at >= GUARDED_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.put(at, &entry.line())?;
        self.lines.resize(self.lines.len().max(at + 1), None);
        self.lines[at] = Some(entry);
        Ok(())
    }

    /// A thread has its own value again, or is gone.
    ///
    /// # Errors
    /// As write(2).
    pub fn strike(&mut self, thread: Thread) -> io::Result<()> {
        for at in 0..self.lines.len() {
            if self.lines[at]
                .take_if(|entry| entry.thread == thread)
                .is_some()
            {
                self.put(at, "")?;
            }
        }
        Ok(())
    }

    /// Forgets all.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn clear(&mut self) -> io::Result<()> {
        self.lines.clear();
        self.file.set_len(0)
    }

    fn put(&self, at: usize, line: &str) -> io::Result<()> {
        let mut bytes = [b' '; LINE_BYTES];
        bytes[..line.len()].copy_from_slice(line.as_bytes());
        bytes[LINE_BYTES - 1] = b'\n';
        self.file.write_all_at(&bytes, (at * LINE_BYTES) as u64)
    }
}

impl Entry {
    /// `pid tid started own from to`, which is at most 94 bytes: 10 + 10 + 20 + 3 x 3, and spaces.
    fn line(&self) -> String {
        let Thread {
            tid,
            pid,
            started_ns,
        } = self.thread;
        format!(
            "{pid} {tid} {started_ns} {} {} {}",
            self.own, self.from, self.to
        )
    }

    fn parse(line: &str) -> Option<Entry> {
        let mut words = line.split_whitespace();
        let (pid, tid) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let started_ns = words.next()?.parse().ok()?;
        let mut nice = || {
            words
                .next()?
                .parse()
                .ok()
                .filter(|nice| (-20..=19).contains(nice))
        };
        Some(Entry {
            thread: Thread {
                tid,
                pid,
                started_ns,
            },
            own: nice()?,
            from: nice()?,
            to: nice()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(tid: u32) -> Entry {
        let thread = Thread {
            tid,
            pid: u32::MAX,
            started_ns: u64::MAX,
        };
        Entry {
            thread,
            own: 0,
            from: 0,
            to: -20,
        }
    }

    #[test]
    fn what_is_changed_is_there_for_the_next_one() {
        let path = std::env::temp_dir().join(format!("ackpace-host-ledger-{}", std::process::id()));
        let mut ledger = Ledger::open(&path).expect("a file");
        for tid in 1..=GUARDED_MAX as u32 {
            ledger.write(entry(tid)).expect("room");
        }
        assert!(ledger.write(entry(u32::MAX)).is_err(), "it is full");
        let again = Entry {
            from: -20,
            to: 3,
            ..entry(2)
        };
        ledger.write(again).expect("its own line");
        ledger.strike(entry(1).thread).expect("a line");
        ledger.strike(entry(1).thread).expect("nothing to do");
        ledger.write(entry(u32::MAX)).expect("the free line");
        let left = Ledger::open(&path).expect("a file");
        assert_eq!(left.entries(), ledger.entries());
        assert_eq!(left.of(again.thread), Some(again));
        assert_eq!(left.of(entry(u32::MAX).thread), Some(entry(u32::MAX)));
        assert_eq!(left.of(entry(1).thread), None);
        std::fs::remove_file(&path).expect("our own");
    }

    #[test]
    fn what_is_broken_is_passed_over() {
        for line in ["", "1 2", "1 2 3 0 0 99", "x 2 3 0 0 0", "1 2 3 0 0"] {
            assert_eq!(Entry::parse(line), None, "{line}");
        }
        assert!(entry(u32::MAX).line().len() < LINE_BYTES);
    }
}
