//! Progress: somebody is at work for each wish that is not answered.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Disk, Place};
use crate::conn::StreamId;
use crate::limits::AWAITED_CHECK_US;
use crate::units::Instant;

impl Disk {
    /// Streams whose wish is neither answered nor waited for by a read, a look-up or a turn: our own fault, and never to be
    /// seen. For asserts; the machine itself looks once in [`AWAITED_CHECK_US`].
    pub fn forgotten(&self) -> Vec<StreamId> {
        let places = self.forgotten_places();
        let stream = |at: Place| Some(self.readers.get(&at)?.want.stream);
        places.into_iter().filter_map(stream).collect()
    }

    /// Wishes for which nobody was at work, and that have their turn again.
    pub fn mended(&self) -> u64 {
        self.mended
    }

    pub(super) fn mend(&mut self, now: Instant) {
        if self.readers.is_empty() || now < self.check_at() {
            return;
        }
        self.checked_at = now;
        self.observe(now);
        for at in self.forgotten_places() {
            self.mended += 1;
            self.stand(at);
        }
    }

    pub(super) fn check_at(&self) -> Instant {
        self.checked_at.plus_us(AWAITED_CHECK_US)
    }

    fn forgotten_places(&self) -> Vec<Place> {
        let flights = self.flights.iter();
        let read_for: BTreeSet<Place> = flights
            .flat_map(|flight| flight.waiters.iter().copied())
            .collect();
        let forgotten = self.readers.iter().filter(|(at, reader)| {
            let object = reader.want.object;
            let at_work =
                reader.answered.is_some() || reader.spot.is_some() || read_for.contains(at);
            !at_work && !self.objects.waits_for_layout(object, **at)
        });
        forgotten.map(|(at, _)| *at).collect()
    }
}
