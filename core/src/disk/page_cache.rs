//! How long bytes stay in the page cache: whether they are still there for their next reader.
//!
//! The kernel evicts what was least recently used. So whether a window is still there when its next reader comes is a
//! question of bytes, not of time: how many are read into the page cache meanwhile, against how many it holds. The
//! capacity is first estimated from the machine's memory and then learned. Windows found evicted lower the estimate,
//! windows found present raise it. Other programs use the page cache, too, so what is learned is what they leave.

use alloc::collections::BTreeMap;

use crate::cache::rest_of_window;
use crate::conn::{ObjectId, Span};
use crate::limits::{
    CACHED_BYTES_MIN, CACHED_EACH_BYTES, CACHED_WINDOWS_MAX, CACHED_WINDOWS_MIN,
    EVICTED_WINDOWS_MAX, REMEMBERED_EACH_BYTES, UNSHARED_US, WINDOW_BYTES,
};
use crate::units::Instant;

/// A file's window, by number.
type Window = (ObjectId, u64);

/// The part of a window that was read into the page cache.
#[derive(Clone, Copy)]
struct Cached {
    /// Which bytes of the file.
    span: Span,
    /// Bytes that the device had read into the page cache by then.
    at_bytes: u64,
}

/// What a byte that is not in the page cache says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// Nothing: it was not read into the page cache, or only a moment ago.
    NotCached,
    /// It was evicted before a reader came, and had been read before the estimate was last lowered.
    EvictedBefore,
    /// The same, but it had been read since: the current estimate is too high.
    EvictedSince,
}

/// A node of the map is half empty at worst.
const _: () = assert!(
    2 * (size_of::<Window>() + size_of::<Cached>() + size_of::<u64>() + size_of::<Window>())
        <= CACHED_EACH_BYTES as usize
);

/// What was read into the page cache, and an estimate of how much that holds.
pub(super) struct PageCacheModel {
    /// What the page cache holds at most, by the memory of the machine.
    expected_bytes: u64,
    /// The estimate as of `lowered_at`; it grows back with time.
    learned_bytes: u64,
    /// When the estimate was last lowered.
    lowered_at: Instant,
    /// What had been read by then. Windows from before it are already known to have been too many.
    lowered_at_bytes: u64,
    /// All bytes ever read into the page cache.
    read_bytes: u64,
    /// What was read into it lately.
    windows: BTreeMap<Window, Cached>,
    /// The same windows by [`Cached::at_bytes`], the oldest first.
    by_age: BTreeMap<u64, Window>,
    /// How many are remembered.
    windows_max: usize,
}

impl PageCacheModel {
    /// A page cache that is expected to hold `expected_bytes`, on a device with `memory_bytes` for reading ahead.
    pub fn new(expected_bytes: u64, memory_bytes: u64) -> PageCacheModel {
        let mut model = PageCacheModel {
            expected_bytes,
            learned_bytes: expected_bytes,
            lowered_at: Instant { us: 0 },
            lowered_at_bytes: 0,
            read_bytes: 0,
            windows: BTreeMap::new(),
            by_age: BTreeMap::new(),
            windows_max: CACHED_WINDOWS_MAX,
        };
        model.remember_by(memory_bytes);
        model
    }

    /// The device has this much memory for reading ahead: it bounds how many windows are remembered.
    pub fn remember_by(&mut self, memory_bytes: u64) {
        let many = usize::try_from(memory_bytes / REMEMBERED_EACH_BYTES);
        let most = many.unwrap_or(CACHED_WINDOWS_MAX);
        self.windows_max = most.clamp(CACHED_WINDOWS_MIN, CACHED_WINDOWS_MAX);
        self.forget_some();
    }

    /// All bytes ever read into the page cache: the clock for the age of its contents.
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// How many bytes may be read into the page cache before what was read first is evicted. While nothing is found
    /// evicted, the estimate grows back.
    pub fn bytes(&self, now: Instant) -> u64 {
        let times = now.since_us(self.lowered_at) / UNSHARED_US;
        let factor = 1u64 << times.min(40);
        let regained_bytes = self.learned_bytes.saturating_mul(factor);
        regained_bytes
            .min(self.expected_bytes)
            .max(self.learned_bytes)
    }

    /// These bytes were read into the page cache.
    pub fn read(&mut self, object: ObjectId, span: Span) {
        let mut from_bytes = span.offset_bytes;
        while from_bytes < span.end_bytes() {
            let nth = from_bytes / WINDOW_BYTES;
            let piece = rest_of_window(from_bytes, span.end_bytes());
            self.read_bytes = self.read_bytes.saturating_add(piece.len_bytes);
            self.forget((object, nth));
            let cached = Cached {
                span: piece,
                at_bytes: self.read_bytes,
            };
            self.windows.insert((object, nth), cached);
            self.by_age.insert(self.read_bytes, (object, nth));
            from_bytes = piece.end_bytes();
        }
        self.forget_some();
    }

    fn forget(&mut self, window: Window) -> Option<Cached> {
        let cached = self.windows.remove(&window)?;
        self.by_age.remove(&cached.at_bytes);
        Some(cached)
    }

    /// Forgets the windows that were read longest ago, while there are too many.
    fn forget_some(&mut self) {
        while self.windows.len() > self.windows_max {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                return;
            };
            self.windows.remove(&oldest);
        }
    }

    fn cached(&self, object: ObjectId, at_bytes: u64) -> Option<Cached> {
        let cached = self.windows.get(&(object, at_bytes / WINDOW_BYTES))?;
        cached.span.contains(at_bytes).then_some(*cached)
    }

    /// Whether this byte was read so recently that it should still be there.
    pub fn may_hold(&self, object: ObjectId, at_bytes: u64, now: Instant) -> bool {
        let cached = self.cached(object, at_bytes);
        cached.is_some_and(|cached| self.read_bytes - cached.at_bytes <= self.bytes(now))
    }

    /// This byte is wanted, since it is not in the page cache. The estimate learns from that. Returns what it says.
    pub fn gone(&mut self, object: ObjectId, at_bytes: u64, now: Instant) -> Absence {
        let Some(cached) = self.cached(object, at_bytes) else {
            return Absence::NotCached;
        };
        self.forget((object, at_bytes / WINDOW_BYTES));
        let age_bytes = self.read_bytes - cached.at_bytes;
        if age_bytes < CACHED_BYTES_MIN {
            return Absence::NotCached;
        }
        let known = cached.at_bytes < self.lowered_at_bytes;
        let room_bytes = self.bytes(now);
        if age_bytes <= room_bytes {
            self.learned_bytes = (age_bytes / 4 * 3).max(CACHED_BYTES_MIN);
            self.lowered_at = now;
            self.lowered_at_bytes = self.read_bytes;
        } else if age_bytes / 2 <= room_bytes {
            (self.learned_bytes, self.lowered_at) = (room_bytes, now); // twice that is too much
        }
        if known {
            Absence::EvictedBefore
        } else {
            Absence::EvictedSince
        }
    }

    /// A stream went from `from_bytes` to `to_bytes` on what it found in the page cache. Returns how many windows of
    /// that had been read into it, [`EVICTED_WINDOWS_MAX`] at most.
    pub fn found(
        &mut self,
        object: ObjectId,
        from_bytes: u64,
        to_bytes: u64,
        now: Instant,
    ) -> usize {
        if from_bytes >= to_bytes {
            return 0;
        }
        let (first, last) = (from_bytes / WINDOW_BYTES, (to_bytes - 1) / WINDOW_BYTES);
        let found = self.windows.range((object, first)..=(object, last));
        let mut ages = found.rev().map(|(_, cached)| cached.at_bytes);
        // The last of them was found a moment ago, the first perhaps long ago.
        let Some(at_bytes) = ages.next() else {
            return 0;
        };
        let age_bytes = self.read_bytes - at_bytes;
        if age_bytes > self.bytes(now) {
            self.learned_bytes = age_bytes;
        }
        1 + ages.take(EVICTED_WINDOWS_MAX - 1).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::MIB;
    use proptest::prelude::*;

    const NOW: Instant = Instant { us: 5_000_000 };
    const FILE: ObjectId = ObjectId {
        device: 0,
        index: 1,
        generation: 0,
    };

    fn window(nth: u64) -> Span {
        Span {
            offset_bytes: nth * WINDOW_BYTES,
            len_bytes: WINDOW_BYTES,
        }
    }

    /// A page cache into which this many windows were read, one after the other.
    fn room_after(windows: u64, expected_bytes: u64) -> PageCacheModel {
        let mut room = PageCacheModel::new(expected_bytes, 1 << 30);
        (0..windows).for_each(|nth| room.read(FILE, window(nth)));
        room
    }

    #[test]
    fn what_was_gone_says_that_it_holds_less_until_nothing_was_for_a_while() {
        let mut room = room_after(101, 1 << 30);
        assert_eq!(
            room.gone(FILE, 60 * WINDOW_BYTES, NOW),
            Absence::EvictedSince
        );
        assert_eq!(room.bytes(NOW), 30 * MIB);
        assert_eq!(
            room.gone(FILE, 50 * WINDOW_BYTES, NOW),
            Absence::EvictedBefore
        );
        assert_eq!(room.bytes(NOW), 30 * MIB);
        let later = |times| NOW.plus_us(times * UNSHARED_US);
        assert_eq!(room.bytes(later(1)), 60 * MIB);
        assert_eq!(room.bytes(later(20)), 1 << 30, "what is expected");
        // Not all of that, then.
        assert_eq!(
            room.gone(FILE, 49 * WINDOW_BYTES, later(1)),
            Absence::EvictedBefore
        );
        assert_eq!(room.bytes(later(1)), 51 * MIB / 4 * 3);
    }

    #[test]
    fn a_want_that_crossed_its_answer_says_nothing() {
        let mut room = room_after(9, 1 << 30);
        assert_eq!(
            room.gone(FILE, WINDOW_BYTES, NOW),
            Absence::NotCached,
            "a moment ago"
        );
        assert_eq!(room.bytes(NOW), 1 << 30);
        assert_eq!(room.gone(FILE, 100 * WINDOW_BYTES, NOW), Absence::NotCached);
    }

    #[test]
    fn what_was_found_says_that_it_holds_more() {
        let mut room = room_after(101, 16 * MIB);
        assert!(room.may_hold(FILE, 85 * WINDOW_BYTES, NOW));
        assert!(!room.may_hold(FILE, 40 * WINDOW_BYTES, NOW));
        let found = room.found(FILE, 20 * WINDOW_BYTES, 41 * WINDOW_BYTES, NOW);
        assert_eq!(found, EVICTED_WINDOWS_MAX);
        assert_eq!(room.bytes(NOW), 60 * MIB);
        assert_eq!(
            room.found(FILE, 90 * WINDOW_BYTES, 92 * WINDOW_BYTES, NOW),
            2
        );
        assert_eq!(
            room.found(FILE, 300 * WINDOW_BYTES, 301 * WINDOW_BYTES, NOW),
            0
        );
        assert_eq!(room.bytes(NOW), 60 * MIB);
    }

    proptest! {
        /// Whatever was read, found or evicted: the tables are bounded and agree, and so is the estimate.
        #[test]
        fn what_is_remembered_and_believed_is_bounded(
            steps in prop::collection::vec((0u8..4, 0u64..3_000, 1u64..6_000_000), 1..300),
            expected_mib in 0u64..2_000,
        ) {
            let mut room = PageCacheModel::new(expected_mib << 20, 0);
            let mut now = NOW;
            for (kind, nth, len_bytes) in steps {
                let offset_bytes = nth * 777_777;
                match kind {
                    0 | 1 => room.read(FILE, Span { offset_bytes, len_bytes }),
                    2 => _ = room.gone(FILE, offset_bytes, now),
                    _ => _ = room.found(FILE, offset_bytes, offset_bytes + len_bytes, now),
                }
                now = now.plus_us(len_bytes);
                prop_assert!(room.windows.len() <= CACHED_WINDOWS_MIN);
                prop_assert_eq!(room.windows.len(), room.by_age.len());
                let least_bytes = CACHED_BYTES_MIN.min(expected_mib << 20);
                let most_bytes = (expected_mib << 20).max(room.read_bytes());
                prop_assert!((least_bytes..=most_bytes.max(CACHED_BYTES_MIN)).contains(&room.bytes(now)));
            }
        }
    }
}
