//! The state of a device and its last decisions, for `ackpace why DEVICE` and the log.
//!
//! Target, depth and memory are compared once a second with those of the last decision; a change of a quarter is one.

use super::Disk;
use crate::limits::SLOT_BYTES;
use crate::prefetch::{DepthBound, DeviceLoad, TargetBound};
use crate::units::{Instant, US_PER_S};
use crate::why::{Decision, Decisions, What};

/// Decisions of one device that are kept. More: a new one replaces the oldest.
const DEVICE_DECISIONS_MAX: usize = 128;
/// Memory of the decisions of one device.
pub const JOURNAL_BYTES: u64 = (DEVICE_DECISIONS_MAX * size_of::<Decision>()) as u64;
/// How often the log tells of one device at most. More: the last change is told when it may again.
const NOTICE_EACH_US: u64 = 10 * US_PER_S;

/// The decisions of one device, and the levels that were last recorded and logged.
pub(super) struct Journal {
    decisions: Decisions,
    target_us: u64,
    depth: u64,
    memory_bytes: u64,
    /// The target that the log was last told, and when.
    logged_target_us: u64,
    logged_at: Option<Instant>,
    /// What the log has still to be told.
    notice: Option<What>,
}

impl Journal {
    /// An empty journal; target, depth and memory start at these values.
    pub fn new(target_us: u64, depth: usize, memory_bytes: u64) -> Journal {
        Journal {
            decisions: Decisions::new(DEVICE_DECISIONS_MAX),
            target_us,
            depth: depth as u64,
            memory_bytes,
            logged_target_us: target_us,
            logged_at: None,
            notice: None,
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
    /// K, and what sets it.
    pub depth: (usize, DepthBound),
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
    /// The last decisions about the device, oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.journal.decisions.iter()
    }

    /// What the log should tell the operator, at most once in ten seconds: the target halved or doubled since the last
    /// notice. Each is returned once.
    pub fn take_notice(&mut self) -> Option<What> {
        self.journal.notice.take()
    }

    /// How the device stands now.
    pub fn state(&self) -> DeviceState {
        let load = self.load();
        DeviceState {
            load,
            target: self.settings.prefetch.target(&load, &self.model),
            depth: self.depth(),
            in_flight: self.flights.len(),
            positioning_us: self.model.positioning_us(),
            media_bytes_per_s: self.model.media_bytes_per_s(),
            used_bytes: u64::from(self.slots_used) * SLOT_BYTES,
            lacking_bytes: u64::from(self.slots_lacking) * SLOT_BYTES,
        }
    }

    /// When to look at the levels again.
    pub(super) fn observes_at(&self) -> Instant {
        self.observed_at.plus_us(US_PER_S)
    }

    /// Compares the levels with those of the last decision, and the target with that of the last notice.
    pub(super) fn observe(&mut self, now: Instant) {
        if self.readers.is_empty() || now < self.observes_at() {
            return;
        }
        self.observed_at = now;
        let DeviceState {
            load,
            target: (to_us, bound),
            depth: (depth, depth_bound),
            ..
        } = self.state();
        let journal = &mut self.journal;
        let target = |from_us| What::ReadTarget {
            from_us,
            to_us,
            bound,
            streams: load.streams,
            rates_bytes_per_s: load.rates_bytes_per_s,
        };
        let (from_us, from, from_bytes) = (journal.target_us, journal.depth, journal.memory_bytes);
        let (to, to_bytes) = (depth as u64, load.memory_bytes);
        if is_a_quarter(from_us, to_us) {
            journal.target_us = to_us;
            journal.decisions.record(now, None, target(from_us));
        }
        if is_a_quarter(from, to) {
            journal.depth = to;
            let bound = depth_bound;
            let change = What::Depth { from, to, bound };
            journal.decisions.record(now, None, change);
        }
        if is_a_quarter(from_bytes, to_bytes) {
            journal.memory_bytes = to_bytes;
            let change = What::Memory {
                from_bytes,
                to_bytes,
            };
            journal.decisions.record(now, None, change);
        }
        let logged_us = journal.logged_target_us;
        let is_soon = journal
            .logged_at
            .is_some_and(|at| now < at.plus_us(NOTICE_EACH_US));
        if !is_soon && (to_us >= 2 * logged_us || to_us <= logged_us / 2) && to_us != logged_us {
            (journal.logged_target_us, journal.logged_at) = (to_us, Some(now));
            journal.notice = Some(target(logged_us));
        }
    }
}

/// Whether a level has changed by a quarter of what it was, or more.
fn is_a_quarter(from: u64, to: u64) -> bool {
    from.abs_diff(to) >= (from / 4).max(1)
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use super::super::In;
    use super::super::tests::{NOW, SETTINGS, orders, want};
    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_target_is_a_decision_when_it_changes_by_a_quarter_and_a_notice_when_it_doubles() {
        let mut disk = Disk::new(SETTINGS);
        for n in 0..200 {
            disk.on(In::Want(want(n, n, 0, 1)), NOW);
        }
        orders(&mut disk, NOW);
        let told: Vec<String> = disk.decisions().map(|told| told.what.to_string()).collect();
        assert!(
            told[0].starts_with("the target goes from 1.0 s to ")
                && told[0].ends_with(" s, since memory has room for no more (memory_max); 200 streams take 200 MB/s together"),
            "{told:?}"
        );
        let notice = disk.take_notice().expect("it more than doubled");
        assert!(matches!(notice, What::ReadTarget { .. }));
        assert_eq!(disk.take_notice(), None, "told once");
        let count = disk.decisions().count();
        orders(&mut disk, NOW.plus_us(2_000_000));
        assert_eq!(disk.decisions().count(), count, "nothing has changed");
        // The others leave: that is recorded as a decision at once, and logged when the next line may be written.
        for n in 1..200 {
            disk.on(In::Forget(want(n, n, 0, 1).stream), NOW);
        }
        orders(&mut disk, NOW.plus_us(NOTICE_EACH_US / 2));
        assert!(disk.decisions().count() > count);
        assert_eq!(disk.take_notice(), None, "too soon");
        orders(&mut disk, NOW.plus_us(NOTICE_EACH_US));
        let text = disk.take_notice().expect("a second again").to_string();
        assert!(
            text.contains(" to 1.0 s, since two sweeps take less"),
            "{text}"
        );
    }
}
