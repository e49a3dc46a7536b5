//! The keeper: looks through the folder at the start, writes windows, and removes what leaves.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ackpace_core::units::{Instant, duration_us};
use crossbeam_channel::Receiver;
use rustix::io::Errno;

use super::page::{self, page};
use super::{Troubles, Window, cost_bytes, count};
use crate::store::slab::Slab;

/// How long nothing is written after an error: what a disk that fails is spared.
const REST: Duration = Duration::from_secs(30);
/// Files that leave when the disk is full: its other users may have filled it. If it is full again: as many more.
const LEAVE_WHEN_FULL: usize = 32;

pub(super) struct Keeper {
    troubles: Troubles,
    slab: Arc<Slab>,
    windows: Receiver<Window>,
    /// Nothing is written before this.
    rests_until: Instant,
}

/// How writing a window ended, if no call failed.
enum Written {
    New,
    /// It was there already.
    Before,
    /// The slab lost some of it first.
    Lost,
}

impl Keeper {
    pub fn new(troubles: Troubles, slab: Arc<Slab>, windows: Receiver<Window>) -> Keeper {
        Keeper {
            troubles,
            slab,
            windows,
            rests_until: Instant { us: 0 },
        }
    }

    pub fn run(mut self) {
        self.look_through();
        let windows = self.windows.clone();
        windows.iter().for_each(|window| self.keep(&window));
    }

    /// Finds the files of earlier starts. Windows are written meanwhile.
    fn look_through(&mut self) {
        let tier = Arc::clone(&self.troubles.tier);
        let foreign = tier.folder.others();
        let (mut others, mut other) = (foreign.others, foreign.other);
        for nth in 0..=u8::MAX {
            let listed = tier.folder.list(nth);
            others += listed.others;
            other = other.or(listed.other);
            for (name, len_bytes) in listed.files {
                let cost_bytes = cost_bytes(len_bytes);
                if !tier.index().has(name) {
                    self.make_room(cost_bytes);
                    tier.index().add(name, cost_bytes, false);
                }
            }
            while let Ok(window) = self.windows.try_recv() {
                self.keep(&window);
            }
        }
        let (files, kept_bytes) = tier.kept();
        let dir = tier.folder.path().display();
        tracing::info!(
            "{dir}: {files} files with {} MiB are kept there",
            kept_bytes >> 20
        );
        if let Some(other) = other {
            tracing::warn!(
                "{dir}: {others} files there are not the server's, such as {other}; they are left alone, and do not count"
            );
        }
    }

    /// Files leave until there is room for one of this cost.
    fn make_room(&self, cost_bytes: u32) {
        let tier = &self.troubles.tier;
        loop {
            let Some(name) = tier.index().next_to_leave(cost_bytes) else {
                return;
            };
            tier.folder.remove(name);
            count(&tier.tally.evicted, 1);
        }
    }

    fn keep(&mut self, window: &Window) {
        let tier = Arc::clone(&self.troubles.tier);
        let (name, cost_bytes) = (window.name(), window.cost_bytes());
        if tier.index().has(name) || tier.is_purged(&window.identity) {
            return;
        }
        if self.troubles.clock.now() < self.rests_until {
            return count(&tier.tally.skipped, 1);
        }
        self.make_room(cost_bytes);
        match self.write(window) {
            Ok(Written::New) => {
                tier.index().add(name, cost_bytes, true);
                count(&tier.tally.writes, 1);
                count(&tier.tally.written_bytes, window.span().len_bytes);
            }
            Ok(Written::Before) => tier.index().add(name, cost_bytes, false),
            Ok(Written::Lost) => count(&tier.tally.skipped, 1),
            Err(error) => self.failed(error),
        }
    }

    /// Writes a window from where it lies in the slab. Its file has its name when all of it is written.
    fn write(&self, window: &Window) -> rustix::io::Result<Written> {
        let folder = &self.troubles.tier.folder;
        let file = folder.nameless()?;
        let span = window.span();
        let (mut checksum, mut written_bytes) = (crc32fast::Hasher::new(), 0);
        while written_bytes < span.len_bytes {
            let rest = span.behind(written_bytes);
            let Some(piece) = self.slab.find(window.object, rest) else {
                return Ok(Written::Lost);
            };
            write_at(&file, piece.bytes(), page::LEN as u64 + written_bytes)?;
            checksum.update(piece.bytes());
            written_bytes += piece.len_bytes();
        }
        write_at(&file, &page(window, checksum.finalize()), 0)?;
        Ok(match folder.name(&file, window.name())? {
            true => Written::New,
            false => Written::Before,
        })
    }

    /// A window could not be written. Serving goes on.
    fn failed(&mut self, error: Errno) {
        let tier = Arc::clone(&self.troubles.tier);
        count(&tier.tally.errors, 1);
        let rest_s = REST.as_secs();
        if !matches!(error, Errno::NOSPC | Errno::DQUOT) {
            self.rests_until = self.troubles.clock.now().plus_us(duration_us(REST));
            let text = format_args!("{error}; nothing is written there for {rest_s} s");
            return self.troubles.tell(text);
        }
        let mut left = 0;
        while left < LEAVE_WHEN_FULL {
            let Some(name) = tier.index().oldest() else {
                break;
            };
            tier.folder.remove(name);
            left += 1;
        }
        count(&tier.tally.evicted, left as u64);
        if left == 0 {
            self.rests_until = self.troubles.clock.now().plus_us(duration_us(REST));
        }
        self.troubles.tell(format_args!(
            "the disk is full, so that {left} files made room; give cache_size less than the disk has room for"
        ));
    }
}

/// Writes all of `bytes`.
fn write_at(file: &OwnedFd, mut bytes: &[u8], mut at_bytes: u64) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(file, bytes, at_bytes) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                at_bytes += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
