//! What is kept of a reader, a stream that reads from a device, and how it enters and changes. A reader has one want: for the
//! bytes of its file that follow those it has. Its want is queued ([`super::scheduler`]), is being read (a flight), or is answered.

use super::scheduler::{Position, QueuedWant, ReaderId};
use super::{Disk, Layout};
use crate::conn::{ObjectId, Want};
use crate::limits::SHORT_REST_BYTES;
use crate::prefetch::DeviceLoad;
use crate::units::Instant;

/// A stream that reads from this device.
pub(super) struct Reader {
    /// Its latest want.
    pub want: Want,
    /// Where its want is queued; `None`: it waits for its file's layout, or is being read, or is answered.
    pub position: Option<Position>,
    /// Its want is answered, and it has no new one. It has all bytes before this one.
    pub answered: Option<u64>,
    /// The sweep in which it was last read.
    pub served: Option<u64>,
    /// Its want is put off: it becomes due as if the stream ran dry then.
    pub put_off_to: Option<Instant>,
    /// What an origin was asked first ([`super::In::Begun`]) gave it bytes before its first want.
    pub was_fed: bool,
}

impl Reader {
    /// A stream that begins to read, with its first want.
    pub fn new(want: Want, was_fed: bool) -> Reader {
        Reader {
            want,
            position: None,
            answered: None,
            served: None,
            put_off_to: None,
            was_fed,
        }
    }

    /// The number of its next read, from 0 on.
    pub fn nth(&self) -> u32 {
        self.want.answers.saturating_add(self.was_fed.into())
    }

    /// The next byte of the file that it lacks.
    pub fn at_bytes(&self) -> u64 {
        self.answered.unwrap_or(self.want.span.offset_bytes)
    }
}

/// What a device's machine keeps of a stream that reads from it: the stream, its turn, and its entry among those of its file.
pub const STREAM_BYTES: u64 = 2
    * (size_of::<(ReaderId, Reader)>() + size_of::<QueuedWant>() + 4 * size_of::<ReaderId>())
        as u64;

impl Disk {
    /// The load of the device. Streams of unknown rate count as fast as the mean of the others: a crowd that has just
    /// arrived must not assume that it has the memory to itself.
    pub fn load(&self) -> DeviceLoad {
        let streams = self.readers.len() as u64;
        let all = u128::from(self.rates_bytes_per_s) * u128::from(streams);
        let all = all.checked_div(self.rates_known.into()).unwrap_or(0);
        DeviceLoad {
            streams,
            rates_bytes_per_s: u64::try_from(all).unwrap_or(u64::MAX),
            memory_bytes: self.settings.memory_bytes,
            planned_percent: self.pool_controller.percent(),
        }
    }

    /// A reader has this rate from now on; 0: it is not known.
    pub(super) fn add_rate(&mut self, rate_bytes_per_s: u64) {
        self.rates_bytes_per_s += rate_bytes_per_s;
        self.rates_known += u64::from(rate_bytes_per_s > 0);
    }

    /// It has this rate no longer.
    pub(super) fn remove_rate(&mut self, rate_bytes_per_s: u64) {
        self.rates_bytes_per_s -= rate_bytes_per_s;
        self.rates_known -= u64::from(rate_bytes_per_s > 0);
    }

    /// A stream begins to read from this device.
    pub(super) fn enter(&mut self, id: ReaderId, want: Want, now: Instant) {
        self.objects.enter(id, &want, now);
        self.add_rate(want.rate_bytes_per_s);
        let was_fed = self.settings.arriving && want.underrun_at > now;
        self.readers.insert(id, Reader::new(want, was_fed));
    }

    /// Keeps the read of a stream that left, as a server does that cannot cancel its requests.
    pub(super) fn read_uncancelled(&mut self, want: Want, now: Instant) {
        self.next += 1;
        let id = ReaderId::Left(self.next);
        self.enter(id, want, now);
        self.enqueue(id);
    }

    /// A want is new, or has a new date.
    pub(super) fn renew(&mut self, id: ReaderId, want: Want) {
        let Some(reader) = self.readers.get_mut(&id) else {
            return;
        };
        let before = core::mem::replace(&mut reader.want, want);
        if reader.answered.take().is_some() || before.underrun_at != want.underrun_at {
            reader.put_off_to = None; // until the next sample, at most
        }
        if let Some(position) = reader.position.take() {
            self.scheduler.remove(id, position);
        }
        self.remove_rate(before.rate_bytes_per_s);
        self.add_rate(want.rate_bytes_per_s);
    }

    /// Notes where the reader's want is queued.
    pub(super) fn set_position(&mut self, id: ReaderId, position: Position) {
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.position = Some(position);
        }
    }

    /// What the scheduler has to know of a reader's want: when it is due, and where its bytes lie.
    pub(super) fn entry(&self, id: ReaderId) -> Option<QueuedWant> {
        let reader = self.readers.get(&id)?;
        let Want {
            object,
            span,
            underrun_at,
            rate_bytes_per_s,
            ..
        } = reader.want;
        Some(QueuedWant {
            reader: id,
            dry_at: reader
                .put_off_to
                .unwrap_or_else(|| self.settings.prefetch.dry_at(underrun_at, rate_bytes_per_s)),
            device_bytes: self.objects.device_bytes(object, span.offset_bytes),
            served: reader.served,
            is_first: reader.nth() == 0 && !id.is_gone(),
            rest_dry_at: rest_dry_at(&reader.want).filter(|_| !id.is_gone()),
        })
    }

    /// It is known how a file is read: the wants that waited for that are queued, unless a flight serves them by now.
    pub(super) fn mapped(&mut self, object: ObjectId, layout: Layout, direct: bool) {
        for id in self.objects.mapped(object, layout, direct) {
            let waits = self.readers.get(&id).is_some_and(|reader| {
                reader.want.object == object
                    && reader.position.is_none()
                    && reader.answered.is_none()
            });
            let flies = self
                .flights
                .iter()
                .any(|flight| flight.waiters.contains(&id));
            if waits && !flies {
                self.enqueue(id);
            }
        }
    }
}

/// If little is left of a response, when its client has taken all that it was given. Of one whose rate is not known nobody
/// can tell, so that counts as long ago.
fn rest_dry_at(want: &Want) -> Option<Instant> {
    let dry_at = match want.rate_bytes_per_s {
        0 => Instant { us: 0 },
        _ => want.underrun_at,
    };
    (want.span.len_bytes <= SHORT_REST_BYTES).then_some(dry_at)
}
