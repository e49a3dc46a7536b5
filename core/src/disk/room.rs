//! What the device and the pool have room for.

use super::length::has_underrun;
use super::{Disk, ReaderId};
use crate::conn::Span;
use crate::depth::DepthBound;
use crate::limits::{READ_ALIGN_BYTES, READ_BYTES_MIN, READS_IN_FLIGHT_MIN, SLOT_BYTES};
use crate::units::Instant;

impl Disk {
    /// Slots that must come free before the next read can be made; 0: it waits for something else.
    pub fn slots_lacking(&self) -> u32 {
        self.slots_lacking
    }

    /// K: reads that the device gets at once. They shall not be all that fits into memory.
    pub fn reads_max(&self) -> usize {
        match self.settings.reads {
            Some(reads) => reads as usize,
            None => self.depth.reads().min(self.reads_in_memory_max()),
        }
    }

    /// K but for a trial, and what sets it.
    pub(super) fn settled_reads(&self) -> (usize, DepthBound) {
        if let Some(reads) = self.settings.reads {
            return (reads as usize, DepthBound::Setting);
        }
        let most = self.reads_in_memory_max();
        match self.depth.settled() {
            (reads, _) if reads > most => (most, DepthBound::Memory),
            settled => settled,
        }
    }

    /// Reads of the present length that take a quarter of the memory.
    fn reads_in_memory_max(&self) -> usize {
        let most = self.settings.memory_bytes / 4 / self.depth.mean_read_bytes().max(1);
        (most as usize).max(READS_IN_FLIGHT_MIN)
    }

    /// Reads that the device has now.
    pub fn reads_in_flight(&self) -> usize {
        self.flights.len()
    }

    /// How many slots the memory for reading ahead has.
    pub(super) fn slots_max(&self) -> u32 {
        u32::try_from(self.settings.memory_bytes / SLOT_BYTES).unwrap_or(u32::MAX)
    }

    /// Whether the device takes one more read. Look-ups are its work, too, but never leave it idle.
    pub(super) fn has_room(&self) -> bool {
        let most = self.reads_max();
        let for_reads = most.saturating_sub(self.look_ups as usize);
        self.flights.len() < for_reads.max(self.enough().min(most))
    }

    /// Whether the sweep waits for a first read, or for the look-up before one: a drive takes whatever is near its arm, and
    /// would leave that one until it is old.
    pub(super) fn holds_back(&self) -> bool {
        let urgent = self.look_ups > 0 || self.flights.iter().any(|flight| flight.urgent);
        self.settings.rotational && urgent && self.flights.len() >= self.enough()
    }

    /// Reads with which the device is not idle.
    pub(super) fn enough(&self) -> usize {
        READS_IN_FLIGHT_MIN * self.settings.spindles.max(1) as usize
    }

    /// Slots for a read of about this length. If memory is short it waits for them, but never with an idle device.
    pub(super) fn slots_for(&mut self, wanted: Span, read_bytes: u64) -> Option<u32> {
        let ahead_bytes = wanted.offset_bytes % READ_ALIGN_BYTES;
        let slots = |bytes: u64| {
            let slots = bytes.saturating_add(ahead_bytes).div_ceil(SLOT_BYTES);
            u32::try_from(slots).unwrap_or(u32::MAX)
        };
        let all = slots(wanted.len_bytes);
        // Whole slots, rounded down: what is not filled would wait in vain for its last byte. A read to the end is rounded up, or
        // the last bytes would cost another one.
        let whole = match read_bytes >= wanted.len_bytes {
            true => all,
            false => u32::try_from((read_bytes / SLOT_BYTES).max(1)).unwrap_or(u32::MAX),
        };
        let most = (self.slots_max() / 4).max(1);
        let want = whole.min(all).min(most);
        let free = self.slots_max().saturating_sub(self.slots_used);
        if want <= free {
            return Some(want);
        }
        let least = slots(READ_BYTES_MIN.min(wanted.len_bytes));
        if self.flights.is_empty() && least <= free {
            return Some(free);
        }
        let lacking = if self.flights.is_empty() { least } else { want };
        // The first that comes free lets one of the candidates go on.
        self.slots_lacking = match self.slots_lacking {
            0 => lacking - free,
            before => before.min(lacking - free),
        };
        None
    }

    /// Where memory bounds the length of reads, it shall be used.
    pub(super) fn adjust_pool(&mut self, id: ReaderId, now: Instant) {
        let (load, want) = (self.load(), self.readers[&id].want);
        if self.settings.prefetch.lacks_memory(&load, &self.model) {
            let (used, max) = (self.slots_used, self.slots_max());
            self.pool_controller
                .turn(has_underrun(&want, now), used, max, load.streams);
        }
    }
}
