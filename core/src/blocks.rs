//! Files by the blocks of the disk below them: where the bytes of a file lie on a unit ([`Map`]), and under which versions
//! ([`versions`]) a cache keeps the bytes of a unit.
//!
//! **The map** has only files whose bytes lie on the unit as they are: no holes, nothing unwritten, inline or encoded.
//!
//! **Versions.** The unit is divided into chunks of [`CHUNK_BYTES`], each with a counter. Whoever writes to the unit increments the counters
//! of the chunks before the write is sent and after it is answered. A cache keeps bytes under the counter that their chunk had before they
//! were read, if it still has it when they have come. So bytes that were overwritten are not found any more, without anybody
//! being told; they age out. There are [`COUNTERS`]: beyond 64 GiB chunks share them, and a write hides bytes that it has not changed.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::conn::Span;
pub use crate::disk::Extent;
use crate::units::KIB;

/// Bytes of the unit that share a counter.
pub const CHUNK_BYTES: u64 = 64 * KIB;
/// Counters in all: 4 MiB of them.
pub const COUNTERS: usize = 1 << 20;
/// Extents of a file. More: it is read through the mount. A file so scattered gains little here, and its map would take more than 24 KiB.
pub const EXTENTS_MAX: usize = 1024;
/// Bytes that are asked of the unit at once: a task. Longer: a client waits for bytes behind those that it wants. Shorter: more tasks
/// for each byte.
pub const TASK_BYTES: u64 = 256 * KIB;
/// Bytes of an extent in a [`Map`].
pub const EXTENT_BYTES: u64 = size_of::<Extent>() as u64;
/// The counters of a task: one of [`TASK_BYTES`] that begins inside a chunk touches one chunk more.
pub const TASK_CHUNKS_MAX: usize = (TASK_BYTES / CHUNK_BYTES) as usize + 1;

/// Why a file has no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoMap {
    /// It has a hole.
    Hole,
    /// It has more than [`EXTENTS_MAX`] extents.
    Many,
}

/// Where the bytes of a file lie on its unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// In the order of the file, without gaps.
    extents: Box<[Extent]>,
    len_bytes: u64,
}

/// A part of a file that lies in one piece on the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which bytes of the file.
    pub file: Span,
    /// Where the first of them lies on the unit.
    pub unit_bytes: u64,
}

impl Piece {
    /// Which bytes of the unit.
    pub fn on_unit(&self) -> Span {
        Span {
            offset_bytes: self.unit_bytes,
            len_bytes: self.file.len_bytes,
        }
    }
}

impl Map {
    /// The map of a file of `len_bytes` by its extents, which are in its order and may reach behind its end.
    ///
    /// # Errors
    /// They leave a part of the file out, or are too many.
    pub fn new(extents: Vec<Extent>, len_bytes: u64) -> Result<Map, NoMap> {
        let mut end_bytes = 0;
        for extent in &extents {
            if extent.file_bytes != end_bytes {
                return Err(NoMap::Hole);
            }
            end_bytes = end_bytes.saturating_add(extent.len_bytes);
        }
        match end_bytes >= len_bytes {
            _ if extents.len() > EXTENTS_MAX => Err(NoMap::Many),
            true => Ok(Map {
                extents: extents.into(),
                len_bytes,
            }),
            false => Err(NoMap::Hole),
        }
    }

    /// The extents.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The length of the file.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The pieces of a span of the file, in its order; nothing behind its end.
    pub fn pieces(&self, span: Span) -> impl Iterator<Item = Piece> + '_ {
        let end_bytes = span.end_bytes().min(self.len_bytes);
        let first = self
            .extents
            .partition_point(|extent| extent.file_bytes + extent.len_bytes <= span.offset_bytes);
        let extents = self.extents[first..].iter();
        let inside = extents.take_while(move |extent| extent.file_bytes < end_bytes);
        inside.filter_map(move |extent| {
            let from_bytes = extent.file_bytes.max(span.offset_bytes);
            let until_bytes = (extent.file_bytes + extent.len_bytes).min(end_bytes);
            (from_bytes < until_bytes).then(|| Piece {
                file: Span {
                    offset_bytes: from_bytes,
                    len_bytes: until_bytes - from_bytes,
                },
                unit_bytes: extent.device_bytes + (from_bytes - extent.file_bytes),
            })
        })
    }

    /// The tasks that read a span of the file: pieces of the unit of [`TASK_BYTES`] at most, whole blocks of `align_bytes`, a power
    /// of two. With each comes how many bytes of the span are there when it and those before it are done. They may bring bytes
    /// around the span, too, but none behind `unit_bytes`, the end of the unit.
    pub fn tasks(&self, span: Span, align_bytes: u64, unit_bytes: u64) -> Vec<(Span, u64)> {
        let mut tasks: Vec<(Span, u64)> = Vec::new();
        for piece in self.pieces(span) {
            let on_unit = piece.on_unit();
            let begin_bytes = on_unit.offset_bytes / align_bytes * align_bytes;
            let end_bytes = on_unit.end_bytes().next_multiple_of(align_bytes);
            let mut rest = Span {
                offset_bytes: begin_bytes,
                len_bytes: end_bytes.min(unit_bytes).saturating_sub(begin_bytes),
            };
            let file_bytes = |at_bytes: u64| {
                let done_bytes = at_bytes.clamp(on_unit.offset_bytes, on_unit.end_bytes());
                piece.file.offset_bytes + (done_bytes - on_unit.offset_bytes) - span.offset_bytes
            };
            while rest.len_bytes > 0 {
                let task = Span {
                    len_bytes: rest.len_bytes.min(TASK_BYTES),
                    ..rest
                };
                rest = rest.behind(task.len_bytes);
                tasks.push((task, file_bytes(task.end_bytes())));
            }
        }
        tasks
    }
}

/// The numbers of the counters of a span of the unit, chunk by chunk.
pub fn chunks(span: Span) -> impl Iterator<Item = (usize, Span)> {
    let mut rest = span;
    core::iter::from_fn(move || {
        let chunk = rest.offset_bytes / CHUNK_BYTES;
        let left_bytes = CHUNK_BYTES - rest.offset_bytes % CHUNK_BYTES;
        let part = Span {
            len_bytes: rest.len_bytes.min(left_bytes),
            ..rest
        };
        rest = rest.behind(part.len_bytes);
        let number = (chunk % COUNTERS as u64) as usize; // below COUNTERS
        (part.len_bytes > 0).then_some((number, part))
    })
}

/// A span of the unit by its versions: neighbouring chunks whose counters are the same are one.
pub fn versions(
    span: Span,
    mut counter: impl FnMut(usize) -> u32,
) -> impl Iterator<Item = (u32, Span)> {
    let mut chunks = chunks(span).map(move |(number, part)| (counter(number), part));
    let mut next = chunks.next();
    core::iter::from_fn(move || {
        let (version, mut whole) = next?;
        loop {
            next = chunks.next();
            match next {
                Some((of, part)) if of == version => whole.len_bytes += part.len_bytes,
                _ => return Some((version, whole)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn span(offset_bytes: u64, len_bytes: u64) -> Span {
        Span {
            offset_bytes,
            len_bytes,
        }
    }

    /// A file whose extents lie at these places and are so long, in blocks of 4 KiB.
    fn map(extents: &[(u64, u64)], cut_bytes: u64) -> Map {
        let mut file_bytes = 0;
        let extents = extents.iter().map(|(at, len)| {
            let extent = Extent {
                file_bytes,
                device_bytes: at * 4096,
                len_bytes: len * 4096,
            };
            file_bytes += extent.len_bytes;
            extent
        });
        let extents: Vec<Extent> = extents.collect();
        let len_bytes = file_bytes.saturating_sub(cut_bytes);
        Map::new(extents, len_bytes).expect("no holes")
    }

    #[test]
    fn a_file_with_holes_or_too_many_extents_has_no_map() {
        let extent = |file_bytes: u64| Extent {
            file_bytes,
            device_bytes: 1 << 20,
            len_bytes: 4096,
        };
        assert!(Map::new(vec![extent(0)], 4096).is_ok());
        assert_eq!(Map::new(vec![extent(0)], 4097), Err(NoMap::Hole));
        assert_eq!(Map::new(vec![extent(4096)], 4096), Err(NoMap::Hole));
        assert_eq!(
            Map::new(vec![extent(0), extent(8192)], 4096),
            Err(NoMap::Hole)
        );
        assert_eq!(Map::new(Vec::new(), 1), Err(NoMap::Hole));
        let many = |count: u64| (0..count).map(|nth| extent(nth * 4096)).collect();
        assert!(Map::new(many(EXTENTS_MAX as u64), 1).is_ok());
        let too_many = many(EXTENTS_MAX as u64 + 1);
        assert_eq!(Map::new(too_many, 1), Err(NoMap::Many));
    }

    #[test]
    fn a_span_is_cut_at_extents_and_at_the_end_of_the_file() {
        let map = map(&[(100, 2), (7, 1), (300, 5)], 1000);
        let of = |at: u64, len: u64| -> Vec<(u64, u64, u64)> {
            let pieces = map.pieces(span(at, len));
            pieces
                .map(|it| (it.file.offset_bytes, it.file.len_bytes, it.unit_bytes))
                .collect()
        };
        assert_eq!(of(0, 1), [(0, 1, 409_600)]);
        assert_eq!(of(8191, 2), [(8191, 1, 417_791), (8192, 1, 28_672)]);
        let end = 8 * 4096 - 1000;
        assert_eq!(
            of(12_288, 1 << 40),
            [(12_288, end - 12_288, 300 * 4096)],
            "nothing behind the end"
        );
        assert_eq!(of(end, 10), []);
    }

    #[test]
    fn neighbours_with_one_counter_are_one_span() {
        let of = |at: u64, len: u64| -> Vec<(u32, u64, u64)> {
            let counter = |number: usize| u32::from(number >= 2);
            versions(span(at, len), counter)
                .map(|(version, part)| (version, part.offset_bytes, part.len_bytes))
                .collect()
        };
        assert_eq!(of(10, 20), [(0, 10, 20)]);
        assert_eq!(
            of(10, 3 * CHUNK_BYTES),
            [
                (0, 10, 2 * CHUNK_BYTES - 10),
                (1, 2 * CHUNK_BYTES, CHUNK_BYTES + 10)
            ]
        );
        let all = COUNTERS as u64 * CHUNK_BYTES;
        assert_eq!(of(all, 1), [(0, all, 1)], "the counters begin again");
        assert_eq!(of(5, 0), []);
    }

    proptest! {
        #[test]
        fn pieces_are_the_span_byte_by_byte(
            extents in vec((0u64..10_000, 1u64..9), 1..40),
            cut_bytes in 0u64..4096,
            at in 0u64..400_000,
            len in 0u64..400_000,
        ) {
            let map = map(&extents, cut_bytes);
            let mut at_bytes = at;
            for piece in map.pieces(span(at, len)) {
                prop_assert_eq!(piece.file.offset_bytes, at_bytes);
                prop_assert!(piece.file.len_bytes > 0);
                let of = map.extents().iter().find(|it| {
                    span(it.file_bytes, it.len_bytes).covers(piece.file)
                });
                let of = of.expect("inside one extent");
                prop_assert_eq!(piece.unit_bytes - of.device_bytes, at_bytes - of.file_bytes);
                at_bytes += piece.file.len_bytes;
            }
            let end_bytes = (at + len).min(map.len_bytes()).max(at);
            prop_assert_eq!(at_bytes, end_bytes);
        }

        #[test]
        fn tasks_bring_all_of_the_span_in_order(
            extents in vec((0u64..10_000, 1u64..200), 1..20),
            at in 0u64..2_000_000,
            len in 1u64..4_000_000,
            align in 0u32..4,
        ) {
            let map = map(&extents, 0);
            let align_bytes = 512 << align;
            let tasks = map.tasks(span(at, len), align_bytes, 20_000 * 4096);
            let mut done_bytes = 0;
            for (task, there_bytes) in &tasks {
                prop_assert!((1..=TASK_BYTES).contains(&task.len_bytes));
                prop_assert_eq!(task.offset_bytes % align_bytes, 0);
                prop_assert_eq!(task.len_bytes % align_bytes, 0);
                for piece in map.pieces(span(at + done_bytes, there_bytes - done_bytes)) {
                    prop_assert!(task.covers(piece.on_unit()), "{task:?} {piece:?}");
                }
                prop_assert!(*there_bytes >= done_bytes);
                done_bytes = *there_bytes;
            }
            prop_assert_eq!(done_bytes, (at + len).min(map.len_bytes()).saturating_sub(at));
        }

        #[test]
        fn versions_are_the_span_and_each_chunk_has_its_own(
            at in 0u64..1 << 37, len in 0u64..1 << 20, bits in any::<u64>(),
        ) {
            let counter = |number: usize| (bits >> (number % 64)) as u32 & 1;
            let mut at_bytes = at;
            let mut before = None;
            for (version, part) in versions(span(at, len), counter) {
                prop_assert_eq!(part.offset_bytes, at_bytes);
                prop_assert_ne!(before, Some(version));
                for (number, _) in chunks(part) {
                    prop_assert_eq!(counter(number), version);
                }
                (at_bytes, before) = (part.end_bytes(), Some(version));
            }
            prop_assert_eq!(at_bytes, at + len);
            prop_assert!(chunks(span(at, len.min(TASK_BYTES))).count() <= TASK_CHUNKS_MAX);
        }
    }
}
