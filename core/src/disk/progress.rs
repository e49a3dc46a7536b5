//! Progress: every unanswered want has something at work for it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Disk, ReaderId};
use crate::conn::StreamId;
use crate::limits::AWAITED_CHECK_US;
use crate::units::Instant;

impl Disk {
    /// Streams whose want is neither answered nor pending in a read, a lookup or the scheduler: lost wakeups, bugs of
    /// ours that should never occur. For asserts; the machine itself checks every [`AWAITED_CHECK_US`].
    pub fn forgotten(&self) -> Vec<StreamId> {
        let readers = self.forgotten_readers();
        let stream = |id: ReaderId| Some(self.readers.get(&id)?.want.stream);
        readers.into_iter().filter_map(stream).collect()
    }

    /// Lost wakeups mended: wants that nobody worked for, and that were scheduled again.
    pub fn mended(&self) -> u64 {
        self.mended
    }

    /// From time to time: schedules the wants that nothing works for, and looks at the state of the device.
    pub(super) fn mend(&mut self, now: Instant) {
        if self.readers.is_empty() || now < self.check_at() {
            return;
        }
        self.checked_at = now;
        debug_assert_eq!(self.sums(), self.summed_up(), "sums drift from streams");
        self.observe(now);
        for id in self.forgotten_readers() {
            self.mended += 1;
            self.enqueue(id);
        }
    }

    /// Invariants that are cheap to check: the sum of rates is that of streams whose rate is known.
    pub(super) fn assert_sums(&self) {
        let streams = self.readers.len() as u64;
        assert!(self.rates_known <= streams, "a rate of nobody");
        let rated = self.rates_known > 0;
        assert!(rated || self.rates_bytes_per_s == 0, "a rate of nobody");
    }

    /// The sums over all readers, as they are kept: rates, and readers whose rate is known.
    fn sums(&self) -> (u64, u64) {
        (self.rates_bytes_per_s, self.rates_known)
    }

    /// The same, summed up over all streams.
    fn summed_up(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        for reader in self.readers.values() {
            let rate_bytes_per_s = reader.want.rate_bytes_per_s;
            sums.0 += rate_bytes_per_s;
            sums.1 += u64::from(rate_bytes_per_s > 0);
        }
        sums
    }

    /// When to look again.
    pub(super) fn check_at(&self) -> Instant {
        self.checked_at.plus_us(AWAITED_CHECK_US)
    }

    /// The readers of [`Disk::forgotten`].
    fn forgotten_readers(&self) -> Vec<ReaderId> {
        let flights = self.flights.iter();
        let read_for: BTreeSet<ReaderId> = flights
            .flat_map(|flight| flight.waiters.iter().copied())
            .collect();
        let forgotten = self.readers.iter().filter(|(id, reader)| {
            let object = reader.want.object;
            let at_work =
                reader.answered.is_some() || reader.position.is_some() || read_for.contains(id);
            !at_work && !self.objects.waits_for_layout(object, **id)
        });
        forgotten.map(|(id, _)| *id).collect()
    }
}
