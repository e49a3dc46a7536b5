//! Slabs: which bytes of which objects lie where in the memory from which a gateway sends, and which of it is freed next.
//!
//! The memory consists of segments of [`SEGMENT_BYTES`]. A segment is filled from its start to its end, is full, and is freed
//! as a whole: packets may refer to its bytes, and only a whole huge page leaves the file with them. Bytes are kept as
//! extents: from this offset of that object on, so many bytes lie there. A read is laid out in a few long [`Row`]s, so that one
//! sendfile(2) takes many bytes.
//!
//! Second chance picks the segment to be freed: the one that was filled first, unless one of its bytes was found since the
//! hand last came by. What is hot in a segment does not move to another one: a single hot extent keeps all of its segment.
//!
//! Memory over payload is at most 1.05 for extents of 64 KiB: up to 64 KiB of a segment stay unused, and an
//! extent has [`EXTENT_MEMORY_BYTES`] in the tables.

mod segments;

use alloc::collections::BTreeMap;

use smallvec::SmallVec;

use crate::conn::{ObjectId, Span};
use crate::limits::READ_BYTES_MAX;
use crate::units::{KIB, MIB};
use segments::Segments;

/// A huge page of x86-64 and aarch64: what can be freed without splitting a page.
pub const SEGMENT_BYTES: u64 = 2 * MIB;
/// The memory has at most one extent for each of this many bytes. From 7/8 of them on, the oldest segments are freed early;
/// with all of them, nothing can be reserved.
pub const EXTENT_BYTES_MIN: u64 = 16 * KIB;
/// What an extent takes in the tables at most: a key in the list of its segment, which may be half empty, and a map of its own
/// if it is the only one of its object.
pub const EXTENT_MEMORY_BYTES: u64 = 480;
/// Rows start at a page, so that what sendfile(2) takes is whole pages: 64 KiB that start elsewhere are 17 pieces, not 16.
/// Direct reads from a disk can then fill them, too.
const ROW_ALIGN_BYTES: u64 = 4 * KIB;
/// A read that is longer is not broken up for a rest of a segment that is shorter than this: the rest stays unused, 3 % of a
/// segment at most.
const ROW_BYTES_MIN: u64 = 64 * KIB;
/// Extents or rows that one question walks over. More: the answer is "so far", or "no".
const STEPS_MAX: usize = 128;
/// Segments that are freed early by one reservation while there are too many extents. More: the next one goes on.
const EARLY_MAX: usize = 4;

/// Bytes side by side in one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The segment.
    pub segment: u32,
    /// Its first byte, counted from the start of the segment.
    pub at_bytes: u64,
    /// How many.
    pub len_bytes: u64,
}

/// A few rows, or segments: a read of [`READ_BYTES_MAX`] touches no more.
pub type Few<T> = SmallVec<[T; 4]>;

/// Room for a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserved {
    /// Where its bytes go, one row behind the other; each is in another segment.
    pub rows: Few<Row>,
    /// Segments that have to be emptied and given memory before anything is written to them.
    pub opened: Few<u32>,
}

/// What is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that are being filled or full.
    pub segments_used: u32,
    /// Extents that can be found.
    pub extents: u64,
    /// Their bytes.
    pub kept_bytes: u64,
}

/// Where everything is.
#[derive(Debug)]
pub struct Payload {
    segments: Segments,
    objects: BTreeMap<ObjectId, Object>,
    extents: u64,
    kept_bytes: u64,
}

/// What is kept of one object.
#[derive(Debug, Default)]
struct Object {
    /// By the offset of their first byte. They do not overlap.
    extents: BTreeMap<u64, Extent>,
    kept_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    segment: u32,
    at_bytes: u32,
    len_bytes: u32,
}

impl Extent {
    /// Whether these bytes follow it in its segment.
    fn goes_on_at(&self, row: Row) -> bool {
        self.segment == row.segment
            && u64::from(self.at_bytes) + u64::from(self.len_bytes) == row.at_bytes
    }
}

/// The tables of an object that was forgotten. They may be long: drop them where nobody waits.
#[must_use]
#[derive(Debug)]
pub struct Forgotten {
    _object: Option<Object>,
}

/// Memory that the tables of so much payload take at most.
pub const fn tables_bytes_max(slab_bytes: u64) -> u64 {
    slab_bytes / EXTENT_BYTES_MIN * EXTENT_MEMORY_BYTES
}

impl Payload {
    /// So many segments, all free.
    pub fn new(segments: u32) -> Payload {
        Payload {
            segments: Segments::new(segments),
            objects: BTreeMap::new(),
            extents: 0,
            kept_bytes: 0,
        }
    }

    /// The row in which the first byte of `span` lies, as far as it goes inside `span`. Its segment earns a second chance.
    pub fn find(&mut self, object: ObjectId, span: Span) -> Option<Row> {
        let row = self.objects.get(&object)?.row(span)?;
        self.segments.used(row.segment);
        Some(row)
    }

    /// Whether all of `span` is here, in at most 128 rows.
    pub fn covers(&self, object: ObjectId, span: Span) -> bool {
        let Some(object) = self.objects.get(&object) else {
            return span.len_bytes == 0;
        };
        let mut rest = span;
        for _ in 0..STEPS_MAX {
            match object.row(rest) {
                Some(row) => rest = rest.behind(row.len_bytes),
                None => break,
            }
        }
        rest.len_bytes == 0
    }

    /// Room for a read of `len_bytes`, 1 to [`READ_BYTES_MAX`]. Segments for which `is_pinned` says so are not freed for it;
    /// the caller must pin those of the result before it lets anybody else reserve. `None`: all are pinned or being filled, or
    /// there are too many extents.
    pub fn reserve(
        &mut self,
        len_bytes: u64,
        mut is_pinned: impl FnMut(u32) -> bool,
    ) -> Option<Reserved> {
        if !(1..=READ_BYTES_MAX).contains(&len_bytes) {
            return None;
        }
        for _ in 0..EARLY_MAX {
            if !self.segments.has_many_keys() {
                break;
            }
            let Some(early) = self.segments.victim(&mut is_pinned) else {
                break;
            };
            self.empty(early);
            self.segments.give_back(early);
        }
        if self.segments.is_out_of_keys() {
            return None;
        }
        let rest_bytes = self.segments.rest_bytes(len_bytes);
        let count = (len_bytes - rest_bytes).div_ceil(SEGMENT_BYTES);
        let opened = self.open(count, &mut is_pinned)?;
        let rows = self.segments.lay_out(len_bytes, rest_bytes, &opened);
        Some(Reserved { rows, opened })
    }

    /// Takes `count` segments, or none.
    fn open(&mut self, count: u64, is_pinned: &mut impl FnMut(u32) -> bool) -> Option<Few<u32>> {
        let mut opened = Few::new();
        while (opened.len() as u64) < count {
            let Some(segment) = self.segments.next(is_pinned) else {
                opened
                    .iter()
                    .rev()
                    .for_each(|it| self.segments.put_back(*it));
                return None;
            };
            opened.push(segment);
        }
        opened.iter().for_each(|segment| self.empty(*segment));
        Some(opened)
    }

    /// These segments of a reservation did not get their memory: they are free again, and the rows in them are void. For a
    /// while full segments are freed rather than further free ones taken. Before anybody else reserves.
    pub fn not_opened(&mut self, opened: &[u32]) {
        self.segments.not_opened(opened);
    }

    /// The bytes of `object` from `offset_bytes` on are in this row now, part of a reservation, and may be found. Bytes that
    /// are kept elsewhere already stay there: the later ones are dropped. They are dropped, too, when there are too many extents.
    ///
    /// # Panics
    /// If the row is not inside a segment.
    pub fn filled(&mut self, object: ObjectId, offset_bytes: u64, row: Row) {
        let end_bytes = row.at_bytes.checked_add(row.len_bytes);
        assert!(end_bytes.is_some_and(|end| end <= SEGMENT_BYTES), "{row:?}");
        let mut rest = Span {
            offset_bytes,
            len_bytes: row.len_bytes.min(u64::MAX - offset_bytes),
        };
        // Each turn steps over an extent or fills the gap in front of one.
        while rest.len_bytes > 0 {
            let gap = self
                .objects
                .get(&object)
                .map_or(Gap::Here(rest.len_bytes), |it| it.gap(rest));
            let step_bytes = match gap {
                Gap::Kept(kept_bytes) => kept_bytes,
                Gap::Here(len_bytes) => {
                    let at_bytes = row.at_bytes + (rest.offset_bytes - offset_bytes);
                    let part = Row {
                        at_bytes,
                        len_bytes,
                        ..row
                    };
                    self.add(object, rest.offset_bytes, part);
                    len_bytes
                }
            };
            rest = rest.behind(step_bytes);
        }
    }

    /// Adds bytes that are kept nowhere.
    fn add(&mut self, id: ObjectId, offset_bytes: u64, row: Row) {
        let len_bytes = row.len_bytes as u32; // of a segment
        if let Some(before) = self
            .objects
            .get_mut(&id)
            .and_then(|it| it.before(offset_bytes, row))
        {
            before.len_bytes += len_bytes;
        } else {
            if !self.segments.add_key(row.segment, (id, offset_bytes)) {
                return;
            }
            let extent = Extent {
                segment: row.segment,
                at_bytes: row.at_bytes as u32,
                len_bytes,
            };
            let object = self.objects.entry(id).or_default();
            object.extents.insert(offset_bytes, extent);
            self.extents += 1;
        }
        if let Some(object) = self.objects.get_mut(&id) {
            object.kept_bytes += row.len_bytes;
            self.kept_bytes += row.len_bytes;
        }
    }

    /// The object changed: none of its bytes is found any more. Their room comes back when their segments are freed.
    pub fn forget(&mut self, object: ObjectId) -> Forgotten {
        let object = self.objects.remove(&object);
        if let Some(object) = &object {
            self.extents -= object.extents.len() as u64;
            self.kept_bytes -= object.kept_bytes;
        }
        Forgotten { _object: object }
    }

    /// What is there.
    pub fn counts(&self) -> Counts {
        Counts {
            segments_used: self.segments.used_count(),
            extents: self.extents,
            kept_bytes: self.kept_bytes,
        }
    }

    /// Forgets what lies in a segment. Some of its keys may be stale: the object was forgotten, and perhaps kept again
    /// elsewhere.
    fn empty(&mut self, segment: u32) {
        for (id, offset_bytes) in self.segments.take_keys(segment) {
            let Some(object) = self.objects.get_mut(&id) else {
                continue;
            };
            let extent = object.extents.get(&offset_bytes);
            let Some(extent) = extent.filter(|it| it.segment == segment).copied() else {
                continue;
            };
            object.extents.remove(&offset_bytes);
            object.kept_bytes -= u64::from(extent.len_bytes);
            if object.extents.is_empty() {
                self.objects.remove(&id);
            }
            self.extents -= 1;
            self.kept_bytes -= u64::from(extent.len_bytes);
        }
    }
}

/// What the first byte of a span is.
enum Gap {
    /// So many bytes from it on are kept.
    Kept(u64),
    /// So many bytes of the span are not.
    Here(u64),
}

impl Object {
    /// The extent with this byte, and how many of its bytes lie before it.
    fn at(&self, offset_bytes: u64) -> Option<(Extent, u64)> {
        let (start_bytes, extent) = self.extents.range(..=offset_bytes).next_back()?;
        let skipped_bytes = offset_bytes - start_bytes;
        (skipped_bytes < u64::from(extent.len_bytes)).then_some((*extent, skipped_bytes))
    }

    /// The row with the first byte of `span`, as far as it goes inside `span`.
    fn row(&self, span: Span) -> Option<Row> {
        let (first, skipped_bytes) = self.at(span.offset_bytes)?;
        let mut row = Row {
            segment: first.segment,
            at_bytes: u64::from(first.at_bytes) + skipped_bytes,
            len_bytes: u64::from(first.len_bytes) - skipped_bytes,
        };
        let later = self
            .extents
            .range(span.offset_bytes..)
            .skip_while(|(at, _)| **at == span.offset_bytes);
        for (offset_bytes, extent) in later.take(STEPS_MAX) {
            let goes_on = *offset_bytes == span.offset_bytes + row.len_bytes
                && extent.segment == row.segment
                && u64::from(extent.at_bytes) == row.at_bytes + row.len_bytes;
            if row.len_bytes >= span.len_bytes || !goes_on {
                break;
            }
            row.len_bytes += u64::from(extent.len_bytes);
        }
        row.len_bytes = row.len_bytes.min(span.len_bytes);
        (row.len_bytes > 0).then_some(row)
    }

    /// Whether the first byte of `rest` is kept, and how far that goes.
    fn gap(&self, rest: Span) -> Gap {
        if let Some((extent, skipped_bytes)) = self.at(rest.offset_bytes) {
            return Gap::Kept(u64::from(extent.len_bytes) - skipped_bytes);
        }
        let next = self.extents.range(rest.offset_bytes..).next();
        let free_bytes = next.map_or(u64::MAX, |(at, _)| at - rest.offset_bytes);
        Gap::Here(rest.len_bytes.min(free_bytes))
    }

    /// The extent that these bytes continue, in the object and in the segment.
    fn before(&mut self, offset_bytes: u64, row: Row) -> Option<&mut Extent> {
        let (at, extent) = self.extents.range_mut(..offset_bytes).next_back()?;
        let goes_on = at + u64::from(extent.len_bytes) == offset_bytes && extent.goes_on_at(row);
        goes_on.then_some(extent)
    }
}

#[cfg(test)]
mod tests;
