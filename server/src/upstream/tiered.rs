//! The disk tier as the upstream uses it: what it has is not fetched again, and whole windows of the slab go there.

use ackpace_core::limits::WINDOW_BYTES;
use ackpace_core::tier::window_span;
use ackpace_core::units::Instant;

use super::Upstream;
use super::reading::{Into, Reading};
use crate::gateway::Object;
use crate::store::tier::{Room, TierRead, Window};

impl Upstream {
    fn window(&self, object: &Object, offset_bytes: u64) -> Window {
        let origin = self.gateway.origins.first();
        let identity = object.identity(origin.map_or("", |origin| origin.shown()));
        Window {
            object: object.id,
            identity: identity.into(),
            object_len_bytes: object.len_bytes,
            number: offset_bytes / WINDOW_BYTES,
        }
    }

    /// Begins a read from the tier if that has its first byte; otherwise the read comes back.
    pub(super) fn read_tier(&mut self, mut reading: Reading) -> Option<Reading> {
        let Some(tier) = &self.tier else {
            return Some(reading);
        };
        let window = self.window(&reading.object, reading.span.offset_bytes);
        if !tier.has(&window) {
            return Some(reading);
        }
        // What the slab had of it is read again.
        (reading.got_bytes, reading.had_bytes) = (0, 0);
        let room = match std::mem::replace(&mut reading.into, Into::Tier) {
            Into::Slots { lease, .. } => Room::Slots(lease),
            Into::Slab(lease) => Room::Slab(lease),
            into @ (Into::Postponed | Into::Tier) => {
                reading.into = into;
                return Some(reading);
            }
        };
        let read = TierRead {
            read: reading.read,
            window,
            span: reading.span,
            room,
        };
        if let Some(read) = tier.read(read) {
            reading.into = read.room.into();
            return Some(reading);
        }
        self.tiered.insert(reading.read, reading);
        None
    }

    /// Reads of the tier came back. What it has not got is asked of an origin.
    pub(super) fn hear_tier(&mut self, now: Instant) {
        while let Some(done) = self.tier.as_ref().and_then(|tier| tier.done()) {
            // A read for which nobody waits any more gives back its memory here.
            let Some(mut reading) = self.tiered.remove(&done.read) else {
                continue;
            };
            reading.into = done.room.into();
            reading.came(done.got_bytes);
            match reading.rest().len_bytes {
                0 => self.read_done(reading, now),
                _ => {
                    self.read_origin(reading, now);
                    self.read_moved(done.read, done.got_bytes, now);
                }
            }
        }
    }

    /// A read ended: the windows of which it brought the last byte into the slab go to the tier. The first bytes of an object, which
    /// come with the answer about it, do not count: one who asks for it does not make it wanted by several.
    pub(super) fn keep_windows(&self, reading: &Reading) {
        let (Some(tier), Into::Slab(_)) = (&self.tier, &reading.into) else {
            return;
        };
        if reading.read.is_of_shell() || reading.got_bytes == 0 || reading.object.is_changed() {
            return;
        }
        let from_bytes = reading.span.offset_bytes;
        let last_bytes = from_bytes + reading.got_bytes - 1;
        let first = self.window(&reading.object, from_bytes);
        for number in first.number..=last_bytes / WINDOW_BYTES {
            let span = window_span(reading.object.len_bytes, number);
            if reading.object.is_resident(span) {
                tier.keep(Window {
                    number,
                    ..first.clone()
                });
            }
        }
    }
}

impl From<Room> for Into {
    fn from(room: Room) -> Into {
        let from_bytes = 0;
        match room {
            Room::Slots(lease) => Into::Slots { lease, from_bytes },
            Room::Slab(lease) => Into::Slab(lease),
        }
    }
}
