//! The decisions about a device, and their reasons: for `ackpace why DEVICE` and the log.
//!
//! Levels (T_D, K, the pool) are compared once a second with those of the last decision; a change of a quarter counts
//! as a decision. What happens once, or to one stream, is recorded when it happens.

mod sentences;

use alloc::vec::Vec;

use super::Disk;
use crate::conn::{ObjectId, StreamId};
use crate::depth::{DepthBound, TrialOutcome};
use crate::history::History;
use crate::limits::{DEVICE_DECISIONS_MAX, NOTICE_DEPTH_EACH_US, NOTICE_EACH_US};
use crate::prefetch::{DeviceLoad, TargetBound};
use crate::units::Instant;

/// One decision about a device: when, what, and the numbers that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceDecision {
    /// When.
    pub at: Instant,
    /// What, with its reason.
    pub change: DeviceChange,
}

/// What was decided. Its `Display` is a sentence for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChange {
    /// T_D has changed.
    Target {
        /// T_D before.
        from_us: u64,
        /// T_D now.
        to_us: u64,
        /// What sets it.
        bound: TargetBound,
        /// N.
        streams: u64,
        /// B_net.
        rates_bytes_per_s: u64,
    },
    /// K has changed.
    Depth {
        /// K before.
        from: usize,
        /// K now.
        to: usize,
        /// What sets it.
        bound: DepthBound,
    },
    /// One K was measured against another.
    Tried(TrialOutcome),
    /// The pool was resized.
    Memory {
        /// M before.
        from_bytes: u64,
        /// M now.
        to_bytes: u64,
    },
    /// The pool controller makes reads longer or shorter than calculated ([`DeviceLoad::fill_percent`]).
    PoolTarget {
        /// Hundredths of what is calculated, before.
        from_percent: u64,
        /// And now.
        to_percent: u64,
        /// What the pool holds.
        used_bytes: u64,
        /// M.
        memory_bytes: u64,
    },
    /// The reads of a stream take another path.
    ReadPath {
        /// Whose.
        stream: StreamId,
        /// Of which file.
        object: ObjectId,
        /// The path now.
        to: ReadPath,
    },
}

/// Which path the reads of a stream take, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPath {
    /// Past the page cache.
    Direct,
    /// Through it: two others read in the same window.
    Crowd,
    /// Through it: the file is popular.
    Popular,
    /// Through it: the file can't be read past it, or no file is to be.
    Indirect,
}

impl ReadPath {
    /// The rest of the sentence "it is read".
    pub fn sentence(self) -> &'static str {
        match self {
            ReadPath::Direct => "past the page cache, for this client alone",
            ReadPath::Crowd => "through the page cache, since two others read at the same place",
            ReadPath::Popular => "through the page cache, since the file is popular",
            ReadPath::Indirect => "through the page cache, for want of O_DIRECT",
        }
    }
}

/// The values that are compared to find decisions.
#[derive(Clone, Copy)]
struct Levels {
    /// T_D.
    target_us: u64,
    /// K, reads that the device gets at once.
    depth: usize,
    /// Memory for reading ahead.
    memory_bytes: u64,
    /// How full of that the pool is to be.
    fill_percent: u64,
}

/// The decisions of one device, and which of them were last recorded and logged.
pub(super) struct Journal {
    /// Read paths have a history of their own: they are many, and must not displace the others.
    changes: History<DeviceDecision>,
    /// The decisions about read paths.
    read_paths: History<DeviceDecision>,
    /// The levels of the last decisions.
    recorded: Levels,
    /// The levels of the last notices.
    logged: Levels,
    /// When the last notice was, and the last one about K.
    logged_at: Option<Instant>,
    depth_logged_at: Option<Instant>,
    /// What the log has still to be told.
    notice: Option<DeviceDecision>,
}

/// Memory of the decisions of one device.
pub const JOURNAL_BYTES: u64 = (2 * DEVICE_DECISIONS_MAX * size_of::<DeviceDecision>()) as u64;

impl Journal {
    /// An empty journal; T_D, K and the pool start at these values.
    pub fn new(target_us: u64, depth: usize, memory_bytes: u64) -> Journal {
        let levels = Levels {
            target_us,
            depth,
            memory_bytes,
            fill_percent: 100,
        };
        Journal {
            changes: History::new(DEVICE_DECISIONS_MAX),
            read_paths: History::new(DEVICE_DECISIONS_MAX),
            recorded: levels,
            logged: levels,
            logged_at: None,
            depth_logged_at: None,
            notice: None,
        }
    }

    /// Adds a decision to its history.
    pub fn record(&mut self, change: DeviceChange, now: Instant) {
        let decision = DeviceDecision { at: now, change };
        match change {
            DeviceChange::ReadPath { .. } => self.read_paths.push(decision),
            _ => self.changes.push(decision),
        }
    }
}

/// A snapshot of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceState {
    /// Its load.
    pub load: DeviceLoad,
    /// T_D, and what sets it.
    pub target: (u64, TargetBound),
    /// K outside of trials, and what sets it.
    pub depth: (usize, DepthBound),
    /// The K being tried.
    pub tried: Option<usize>,
    /// Reads in the device.
    pub in_flight: usize,
    /// t_p.
    pub positioning_us: u64,
    /// R.
    pub media_bytes_per_s: u64,
    /// What the pool holds.
    pub used_bytes: u64,
    /// What the next read lacks of the pool; 0: nothing.
    pub lacking_bytes: u64,
}

impl Disk {
    /// The last decisions, oldest first: up to `most / 2` about the device, and as many about the read paths of its streams.
    pub fn decisions(&self, most: usize) -> impl Iterator<Item = &DeviceDecision> {
        let last = |history: &'_ History<DeviceDecision>| {
            let count = history.iter().count();
            count.saturating_sub(most / 2)
        };
        let Journal {
            changes,
            read_paths,
            ..
        } = &self.journal;
        let mut decisions: Vec<&DeviceDecision> = changes.iter().skip(last(changes)).collect();
        decisions.extend(read_paths.iter().skip(last(read_paths)));
        decisions.sort_by_key(|decision| decision.at);
        decisions.into_iter()
    }

    /// What the log should tell the operator, at most once in [`NOTICE_EACH_US`]: T_D halved or doubled since the last
    /// notice; or so did K, since it was measured or memory is short, and the last notice of that is
    /// [`NOTICE_DEPTH_EACH_US`] ago. Each is returned once.
    pub fn take_notice(&mut self) -> Option<DeviceDecision> {
        self.journal.notice.take()
    }

    /// How the device stands now.
    pub fn state(&self) -> DeviceState {
        let load = self.load();
        let slots_bytes = |slots: u32| u64::from(slots) * crate::limits::SLOT_BYTES;
        DeviceState {
            load,
            target: self.settings.prefetch.target(&load, &self.model),
            depth: self.settled_reads(),
            tried: self.depth.tried(),
            in_flight: self.flights.len(),
            positioning_us: self.model.positioning_us(),
            media_bytes_per_s: self.model.media_bytes_per_s(),
            used_bytes: slots_bytes(self.slots_used),
            lacking_bytes: slots_bytes(self.slots_lacking),
        }
    }

    /// Compares the levels with those of the last decision, and of the last notice.
    pub(super) fn observe(&mut self, now: Instant) {
        let state = self.state();
        self.compare(&state, now);
    }

    fn compare(&mut self, state: &DeviceState, now: Instant) {
        let recorded = self.journal.recorded;
        for change in changes(&recorded, state) {
            if change.is_of_a_part(4) {
                self.journal.recorded.take(&change);
                self.journal.record(change, now);
            }
        }
        let waits = self.journal.logged_at;
        if waits.is_some_and(|at| now < at.plus_us(NOTICE_EACH_US)) {
            return;
        }
        let (logged, depth_logged_at) = (self.journal.logged, self.journal.depth_logged_at);
        let is_soon = depth_logged_at.is_some_and(|at| now < at.plus_us(NOTICE_DEPTH_EACH_US));
        let mut changed = changes(&logged, state).into_iter().filter(|change| {
            let is_depth = matches!(change, DeviceChange::Depth { .. });
            change.is_worth_a_line() && !(is_depth && is_soon)
        });
        let Some(change) = changed.next() else {
            return;
        };
        self.journal.logged.take(&change);
        self.journal.logged_at = Some(now);
        if matches!(change, DeviceChange::Depth { .. }) {
            self.journal.depth_logged_at = Some(now);
        }
        self.journal.notice = Some(DeviceDecision { at: now, change });
    }
}

impl Levels {
    /// The level of `change` holds from now on.
    fn take(&mut self, change: &DeviceChange) {
        match *change {
            DeviceChange::Target { to_us, .. } => self.target_us = to_us,
            DeviceChange::Depth { to, .. } => self.depth = to,
            DeviceChange::Memory { to_bytes, .. } => self.memory_bytes = to_bytes,
            DeviceChange::PoolTarget { to_percent, .. } => self.fill_percent = to_percent,
            _ => {}
        }
    }
}

/// All levels compared with those before, changed or not.
fn changes(before: &Levels, state: &DeviceState) -> [DeviceChange; 4] {
    let load = &state.load;
    let ((to_us, target), (to, depth)) = (state.target, state.depth);
    [
        DeviceChange::Target {
            from_us: before.target_us,
            to_us,
            bound: target,
            streams: load.streams,
            rates_bytes_per_s: load.rates_bytes_per_s,
        },
        DeviceChange::Depth {
            from: before.depth,
            to,
            bound: depth,
        },
        DeviceChange::Memory {
            from_bytes: before.memory_bytes,
            to_bytes: load.memory_bytes,
        },
        DeviceChange::PoolTarget {
            from_percent: before.fill_percent,
            to_percent: load.fill_percent,
            used_bytes: state.used_bytes,
            memory_bytes: load.memory_bytes,
        },
    ]
}

impl DeviceChange {
    /// The level before and after.
    fn levels(&self) -> Option<(u64, u64)> {
        match *self {
            DeviceChange::Target { from_us, to_us, .. } => Some((from_us, to_us)),
            DeviceChange::Depth { from, to, .. } => Some((from as u64, to as u64)),
            DeviceChange::Memory {
                from_bytes,
                to_bytes,
            } => Some((from_bytes, to_bytes)),
            DeviceChange::PoolTarget {
                from_percent,
                to_percent,
                ..
            } => Some((from_percent, to_percent)),
            _ => None,
        }
    }

    /// Whether a level has changed by this part of what it was, or more.
    fn is_of_a_part(&self, part: u64) -> bool {
        let levels = self.levels();
        levels.is_some_and(|(from, to)| from.abs_diff(to) >= (from / part).max(1))
    }

    /// Whether an operator should read of it: T_D or K has halved or doubled, for a reason that concerns him.
    fn is_worth_a_line(&self) -> bool {
        let logged = match self {
            DeviceChange::Target { .. } => true,
            // Where nobody waits, K follows the length of the reads, up and down, and nobody has anything to do.
            DeviceChange::Depth { bound, .. } => {
                !matches!(bound, DepthBound::FirstRead | DepthBound::Most)
            }
            _ => false,
        };
        let levels = self.levels().filter(|_| logged);
        levels.is_some_and(|(from, to)| from != to && (to >= 2 * from || to <= from / 2))
    }
}

#[cfg(test)]
mod tests;
