//! Segments: which are free, which one is being filled, in which order they were filled, and which is freed next.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{EXTENT_BYTES_MIN, Few, ROW_ALIGN_BYTES, ROW_BYTES_MIN, Row, SEGMENT_BYTES};
use crate::conn::ObjectId;

/// Segments that are looked at for one that may be freed: some microseconds. More: of those that were looked at, the oldest
/// goes, although it was used; if all are pinned, none does, and the next search looks at others.
const LOOKS_MAX: usize = 256;
/// So many segments are freed before a free one is tried again, after one did not get its memory.
const SHORT_OPENS: u32 = 64;

/// An extent: its object, and where it begins there.
pub type Key = (ObjectId, u64);

#[derive(Debug)]
pub struct Segments {
    all: Vec<Segment>,
    free: Vec<u32>,
    /// Full ones, the oldest first; those that the hand went by are behind.
    full: VecDeque<u32>,
    filling: Option<Filling>,
    /// Keys in the lists of all segments.
    keys: u64,
    keys_max: u64,
    short_opens: u32,
}

#[derive(Debug, Default)]
struct Segment {
    /// The extents that began here; some may be forgotten since.
    keys: Vec<Key>,
    /// One of its bytes was found since the hand last came by.
    used: bool,
}

#[derive(Clone, Copy, Debug)]
struct Filling {
    segment: u32,
    /// Where the next row starts.
    at_bytes: u64,
}

impl Segments {
    pub fn new(count: u32) -> Segments {
        Segments {
            all: (0..count).map(|_| Segment::default()).collect(),
            free: (0..count).rev().collect(),
            full: VecDeque::with_capacity(count as usize),
            filling: None,
            keys: 0,
            keys_max: u64::from(count) * (SEGMENT_BYTES / EXTENT_BYTES_MIN),
            short_opens: 0,
        }
    }

    pub fn used_count(&self) -> u32 {
        (self.all.len() - self.free.len()) as u32
    }

    pub fn used(&mut self, segment: u32) {
        self.all[segment as usize].used = true;
    }

    pub fn has_many_keys(&self) -> bool {
        self.keys > self.keys_max / 8 * 7
    }

    pub fn is_out_of_keys(&self) -> bool {
        self.keys >= self.keys_max
    }

    /// Adds an extent to the list of its segment, unless there are too many.
    pub fn add_key(&mut self, segment: u32, key: Key) -> bool {
        if self.is_out_of_keys() {
            return false;
        }
        self.all[segment as usize].keys.push(key);
        self.keys += 1;
        true
    }

    /// The list of a segment that is being freed.
    pub fn take_keys(&mut self, segment: u32) -> Vec<Key> {
        let segment = &mut self.all[segment as usize];
        segment.used = false;
        let keys = core::mem::take(&mut segment.keys);
        self.keys -= keys.len() as u64;
        keys
    }

    /// A segment to be filled: a free one, or else a victim. The other way round while memory is short.
    pub fn next(&mut self, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        if self.short_opens > 0 {
            self.short_opens -= 1;
            return self.victim(is_pinned).or_else(|| self.free.pop());
        }
        self.free.pop().or_else(|| self.victim(is_pinned))
    }

    /// The full segment that is freed next; it is in no list any more.
    pub fn victim(&mut self, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let mut spared = None;
        for _ in 0..self.full.len().min(LOOKS_MAX) {
            let segment = self.full.pop_front()?;
            if !is_pinned(segment) {
                if !core::mem::take(&mut self.all[segment as usize].used) {
                    return Some(segment);
                }
                spared = spared.or(Some(segment));
            }
            self.full.push_back(segment);
        }
        let place = self.full.iter().rposition(|it| Some(*it) == spared)?;
        self.full.remove(place)
    }

    /// An empty segment is free.
    pub fn give_back(&mut self, segment: u32) {
        self.free.push(segment);
    }

    /// A segment that [`Segments::next`] named is not needed after all.
    pub fn put_back(&mut self, segment: u32) {
        if self.all[segment as usize].keys.is_empty() {
            self.free.push(segment);
        } else {
            self.full.push_front(segment);
        }
    }

    /// What a read takes of the segment that is being filled.
    pub fn rest_bytes(&self, len_bytes: u64) -> u64 {
        let rest_bytes = self.filling.map_or(0, |it| SEGMENT_BYTES - it.at_bytes);
        let is_enough = rest_bytes >= len_bytes.min(ROW_BYTES_MIN);
        if is_enough {
            rest_bytes.min(len_bytes)
        } else {
            0
        }
    }

    /// Rows for a read: `rest_bytes` in the segment that is being filled, the others in `opened`, which are enough for them.
    pub fn lay_out(&mut self, len_bytes: u64, rest_bytes: u64, opened: &[u32]) -> Few<Row> {
        let mut rows = Few::new();
        if rest_bytes > 0 {
            rows.extend(self.fill(rest_bytes));
        }
        let mut left_bytes = len_bytes - rest_bytes;
        for segment in opened {
            self.close();
            let (segment, at_bytes) = (*segment, 0);
            self.filling = Some(Filling { segment, at_bytes });
            let row_bytes = left_bytes.min(SEGMENT_BYTES);
            left_bytes -= row_bytes;
            rows.extend(self.fill(row_bytes));
        }
        rows
    }

    fn fill(&mut self, len_bytes: u64) -> Option<Row> {
        let filling = self.filling.as_mut()?;
        let row = Row {
            segment: filling.segment,
            at_bytes: filling.at_bytes,
            len_bytes,
        };
        filling.at_bytes += len_bytes.next_multiple_of(ROW_ALIGN_BYTES);
        Some(row)
    }

    /// The segment that is being filled is full.
    fn close(&mut self) {
        self.full.extend(self.filling.take().map(|it| it.segment));
    }

    /// These segments, the last that were filled, did not get their memory.
    pub fn not_opened(&mut self, opened: &[u32]) {
        self.close();
        self.full.retain(|it| !opened.contains(it));
        self.free.extend(opened);
        self.short_opens = SHORT_OPENS;
    }
}
