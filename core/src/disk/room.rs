//! What the device and the pool have room for: how many reads at once, how long each is, and where its bytes go.

use super::flights::{ReadPath, first};
use super::{Destination, Disk, ReaderId};
use crate::cache::rest_of_window;
use crate::conn::{Span, Want};
use crate::limits::{
    FIRST_READ_BYTES, READ_ALIGN_BYTES, READ_BYTES_MIN, READS_IN_FLIGHT_MAX, SLOT_BYTES,
};
use crate::prefetch::{DepthBound, LengthBound, ReadNeed};
use crate::units::Instant;

/// The least K: a disk with an arm is never idle while the next read is chosen.
pub(super) const READS_IN_FLIGHT_MIN: usize = 2;
/// The greatest K of each disk without an arm: they gain nothing from more reads of the usual length.
const READS_FLASH: usize = 8;
/// A device is given as many reads as take it this long. More: a new client's first read, which waits for them, would be late;
/// and a read in the device can't be cancelled.
const IN_DEVICE_US: u64 = 60_000;

impl Disk {
    /// Slots that must come free before the next read can be made; 0: it waits for something else.
    pub fn slots_lacking(&self) -> u32 {
        self.slots_lacking
    }

    /// K: reads that the device gets at once.
    pub fn reads_max(&self) -> usize {
        self.depth().0
    }

    /// K, and what sets it: as many reads as complete in [`IN_DEVICE_US`] (Little's law), but not more than their memory is a
    /// quarter of the pool.
    pub(super) fn depth(&self) -> (usize, DepthBound) {
        if let Some(reads) = self.settings.reads {
            return (reads as usize, DepthBound::Setting);
        }
        let of_kind = match self.settings.rotational {
            true => READS_IN_FLIGHT_MAX,
            false => (READS_FLASH * self.spindles()).min(READS_IN_FLIGHT_MAX),
        };
        let in_time = IN_DEVICE_US.div_ceil(self.model.mean_read_us().max(1));
        let in_memory = self.settings.memory_bytes / 4 / self.model.mean_read_bytes().max(1);
        let (reads, bound) = [
            (in_time as usize, DepthBound::FirstRead),
            (of_kind, DepthBound::Most),
            (in_memory as usize, DepthBound::Memory),
        ]
        .into_iter()
        .min_by_key(|(reads, _)| *reads)
        .expect("three bounds");
        (reads.max(READS_IN_FLIGHT_MIN), bound)
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
        READS_IN_FLIGHT_MIN * self.spindles()
    }

    fn spindles(&self) -> usize {
        self.settings.spindles.max(1) as usize
    }

    /// Slots for a read of about this length. If memory is short it waits for them, but never with an idle device.
    pub(super) fn slots_for(&mut self, wanted: Span, read_bytes: u64) -> Option<u32> {
        let ahead_bytes = wanted.offset_bytes % READ_ALIGN_BYTES;
        let slots = |bytes: u64| {
            let slots = bytes.saturating_add(ahead_bytes).div_ceil(SLOT_BYTES);
            u32::try_from(slots).unwrap_or(u32::MAX)
        };
        // Whole slots, rounded down: what is not filled would wait in vain for its last byte. At the end of what is wanted
        // no byte follows.
        let want = match read_bytes < wanted.len_bytes {
            true => u32::try_from((read_bytes / SLOT_BYTES).max(1)).unwrap_or(u32::MAX),
            false => slots(wanted.len_bytes),
        };
        let most = (self.slots_max() / 4).max(1);
        let want = want.min(slots(wanted.len_bytes)).min(most);
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

    /// What is read for a want on this path, where to, and what sets the length. `None`: the pool lacks the slots for it.
    pub(super) fn length(
        &mut self,
        want: &Want,
        nth: u32,
        path: ReadPath,
        target_us: u64,
        now: Instant,
    ) -> Option<(Span, Destination, LengthBound)> {
        let need = self.read_need(want, nth, target_us, now);
        let (read_bytes, bound) = self.settings.prefetch.read_bytes(&need);
        let (span, into, bound) = match path {
            ReadPath::Crowd | ReadPath::Popular => (
                rest_of_window(want.span.offset_bytes, want.span.end_bytes()),
                Destination::PageCache,
                LengthBound::Window,
            ),
            ReadPath::Direct => {
                let slots = self.slots_for(want.span, read_bytes)?;
                let whole = (read_bytes / SLOT_BYTES).max(1);
                let short = u64::from(slots) < whole;
                let bound = if short { LengthBound::Memory } else { bound };
                let filled = self.filled(slots);
                (
                    in_slots(want.span, filled),
                    Destination::Slots(slots),
                    bound,
                )
            }
            ReadPath::Indirect => (first(want.span, read_bytes), Destination::PageCache, bound),
        };
        let ends = span.end_bytes() >= want.span.end_bytes();
        Some((span, into, if ends { LengthBound::End } else { bound }))
    }

    /// The evidence from which the policy computes the length of a read for a want.
    pub(super) fn read_need(
        &self,
        want: &Want,
        nth: u32,
        target_us: u64,
        now: Instant,
    ) -> ReadNeed {
        let free = self.slots_max().saturating_sub(self.slots_used);
        ReadNeed {
            target_us,
            margin_us: want.underrun_at.since_us(now),
            rate_bytes_per_s: self.rate_for(want, now),
            nth,
            rest_bytes: want.span.len_bytes,
            most_bytes: self.model.read_bytes_max(),
            free_bytes: u64::from(free) * SLOT_BYTES,
            rates_bytes_per_s: self.load().rates_bytes_per_s,
        }
    }

    /// B_n for a read. After an underrun the measured rate is only a lower bound: our reads were late, not the client slow.
    /// Such a stream counts with the mean rate of all, if that is more, or it would stay as slow as it was read for.
    pub(super) fn rate_for(&self, want: &Want, now: Instant) -> u64 {
        let mean = self.rates_bytes_per_s.checked_div(self.rates_known);
        let least = mean.filter(|_| has_underrun(want, now)).unwrap_or(0);
        want.rate_bytes_per_s.max(least)
    }
}

/// Whether a stream whose rate is known has run dry: its client has taken all bytes before this want.
pub(super) fn has_underrun(want: &Want, now: Instant) -> bool {
    want.rate_bytes_per_s > 0 && want.underrun_at <= now
}

/// The span to read into so many slots. It begins at the start of what is wanted, rounded down to what a direct read must
/// begin at. It ends where the slots end, or earlier at the end of what is wanted, rounded up.
fn in_slots(wanted: Span, slots: u32) -> Span {
    let offset_bytes = wanted.offset_bytes / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    let room_bytes = u64::from(slots) * SLOT_BYTES;
    let need_bytes = wanted.end_bytes() - offset_bytes;
    let len_bytes = room_bytes.min(need_bytes.next_multiple_of(READ_ALIGN_BYTES));
    Span {
        offset_bytes,
        len_bytes,
    }
}

const _: () = assert!(FIRST_READ_BYTES % SLOT_BYTES == 0 && SLOT_BYTES % READ_ALIGN_BYTES == 0);
