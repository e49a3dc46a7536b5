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

/// The file.
#[derive(Debug)]
pub struct Ledger {
    file: File,
    /// Whose each line is; `None`: it is free.
    lines: Vec<Option<Thread>>,
}

impl Ledger {
    /// Opens it, or a new one.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(path: &Path) -> io::Result<Ledger> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        Ok(Ledger {
            file: options.open(path)?,
            lines: Vec::new(),
        })
    }

    /// What an earlier guard has left.
    ///
    /// # Errors
    /// As read(2).
    pub fn left(&self) -> io::Result<Vec<Entry>> {
        let mut text = Vec::new();
        (&self.file)
            .take((GUARDED_MAX * LINE_BYTES) as u64)
            .read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        Ok(text.lines().filter_map(Entry::parse).collect())
    }

    /// Forgets all.
    ///
    /// # Errors
    /// As ftruncate(2).
    pub fn clear(&mut self) -> io::Result<()> {
        self.lines.clear();
        self.file.set_len(0)
    }

    /// Writes what is about to be changed, in place of the thread's former line.
    ///
    /// # Errors
    /// As write(2); or there are more threads than lines.
    pub fn write(&mut self, entry: Entry) -> io::Result<()> {
        let at = match self.place(|line| line == Some(entry.thread)) {
            Some(at) => at,
            None => self.free()?,
        };
        self.lines[at] = Some(entry.thread);
        self.put(at, &entry.line())
    }

    /// A thread has its own value again, or is gone.
    ///
    /// # Errors
    /// As write(2).
    pub fn strike(&mut self, thread: Thread) -> io::Result<()> {
        match self.place(|line| line == Some(thread)) {
            Some(at) => {
                self.lines[at] = None;
                self.put(at, "")
            }
            None => Ok(()),
        }
    }

    fn place(&self, is_it: impl Fn(Option<Thread>) -> bool) -> Option<usize> {
        self.lines.iter().position(|line| is_it(*line))
    }

    fn free(&mut self) -> io::Result<usize> {
        if let Some(at) = self.place(|line| line.is_none()) {
            return Ok(at);
        }
        if self.lines.len() >= GUARDED_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.lines.push(None);
        Ok(self.lines.len() - 1)
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
        for tid in [1, 2, u32::MAX] {
            ledger.write(entry(tid)).expect("room");
        }
        ledger
            .write(Entry {
                from: -20,
                to: 3,
                ..entry(2)
            })
            .expect("its own line");
        ledger.strike(entry(1).thread).expect("a line");
        ledger.strike(entry(9).thread).expect("nothing to do");
        let left = Ledger::open(&path).expect("a file").left().expect("text");
        assert_eq!(
            left,
            [
                Entry {
                    from: -20,
                    to: 3,
                    ..entry(2)
                },
                entry(u32::MAX)
            ]
        );
        ledger.write(entry(4)).expect("the free line");
        assert_eq!(
            Ledger::open(&path)
                .expect("a file")
                .left()
                .expect("text")
                .len(),
            3
        );
        ledger.clear().expect("a file");
        assert!(
            Ledger::open(&path)
                .expect("a file")
                .left()
                .expect("text")
                .is_empty()
        );
        std::fs::remove_file(&path).expect("our own");
    }

    #[test]
    fn what_is_broken_is_passed_over() {
        for line in ["", "1 2", "1 2 3 0 0 99", "x 2 3 0 0 0", "1 2 3 0 0"] {
            assert_eq!(Entry::parse(line), None, "{line}");
        }
        assert!(entry(u32::MAX).line().len() < LINE_BYTES);
    }

    #[test]
    fn there_are_so_many_lines() {
        let path = std::env::temp_dir().join(format!("ackpace-host-lines-{}", std::process::id()));
        let mut ledger = Ledger::open(&path).expect("a file");
        for tid in 0..GUARDED_MAX as u32 {
            ledger.write(entry(tid)).expect("room");
        }
        assert!(ledger.write(entry(u32::MAX)).is_err());
        std::fs::remove_file(&path).expect("our own");
    }
}
