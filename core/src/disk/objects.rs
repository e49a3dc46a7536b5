//! The files of a device that are being read or were read recently: where their bytes lie on it, whether they can be read past
//! the page cache, and whether a file is popular, so that it is read into it all the same.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::ReaderId;
use crate::conn::{Held, ObjectId, Want};
use crate::limits::{
    OBJECT_BYTES, OBJECTS_REMEMBERED_MAX, OBJECTS_REMEMBERED_MIN, REMEMBERED_EACH_BYTES,
};
use crate::units::{Instant, US_PER_S};

/// Two readers that begin at the same byte of a file within this time make it popular.
const POPULAR_US: u64 = 3600 * US_PER_S;
/// Bytes at which readers of a file began that are remembered. More: the oldest is forgotten.
const STARTS_MAX: usize = 4;
/// Extents that are kept of those known of a file, spread over these. More: between two of them the file is taken to be contiguous, and a slightly
/// wrong order costs a seek.
const EXTENTS_KEPT: usize = 8;

/// A contiguous piece of a file on the device (FIEMAP, `struct fiemap_extent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in the file.
    pub file_bytes: u64,
    /// Where it begins on the device.
    pub device_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

/// The extents known of one file. A file being written may have moved since; then a slightly wrong order costs a seek.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Where each extent begins, in the file and on the device. An extent reaches to the beginning of the next.
    extents: Vec<(u64, u64)>,
}

impl Layout {
    /// From extents in any order, a few of which are kept. Without any, only the file's own order is known.
    pub fn new(mut extents: Vec<Extent>) -> Layout {
        extents.sort_by_key(|extent| extent.file_bytes);
        let (len, most) = (extents.len(), extents.len().min(EXTENTS_KEPT));
        let kept = (0..most).map(|nth| &extents[nth * len / most]);
        Layout {
            extents: kept
                .map(|extent| (extent.file_bytes, extent.device_bytes))
                .collect(),
        }
    }

    /// Where a byte of the file lies on the device, bytes. In a hole and behind the last extent it counts as following
    /// the extent before. `None` if nothing is known.
    pub fn device_bytes(&self, file_bytes: u64) -> Option<u64> {
        let behind = self
            .extents
            .partition_point(|(from_bytes, _)| *from_bytes <= file_bytes);
        let (from_bytes, device_bytes) = self.extents.get(behind.saturating_sub(1))?;
        let into = file_bytes.saturating_sub(*from_bytes);
        Some(device_bytes.saturating_add(into))
    }
}

#[derive(Default)]
struct Object {
    /// Where its bytes lie on the device; `None`: not known yet, or dropped.
    layout: Option<Layout>,
    /// Whether it can be read past the page cache, as was told with its layout.
    direct: bool,
    /// Readers that wait for the layout.
    waiting: Vec<ReaderId>,
    /// The readers of the file now.
    readers: BTreeSet<ReaderId>,
    /// All bytes ever read of it past the page cache.
    past_bytes: u64,
    /// Where readers began lately, the newest first.
    starts: VecDeque<Start>,
    /// Until this time the file is read into the page cache for readers to come.
    popular_until: Instant,
}

/// A reader of a file began here.
#[derive(Clone, Copy)]
struct Start {
    from_bytes: u64,
    at: Instant,
    /// [`Objects::filled_bytes`] and [`Object::past_bytes`] at that time.
    filled_bytes: u64,
    past_bytes: u64,
}

/// What a file takes at most. A node of a B-tree may be half empty, and so may a list that grew.
const _: () = assert!(
    2 * (size_of::<ObjectId>() + size_of::<Object>())
        + 2 * size_of::<ObjectId>()
        + STARTS_MAX * size_of::<Start>()
        + EXTENTS_KEPT * size_of::<(u64, u64)>()
        <= OBJECT_BYTES as usize
);

/// The files of one device.
pub(super) struct Objects {
    /// The files that are read, and those that were lately.
    known: BTreeMap<ObjectId, Object>,
    /// All of them, in the order in which they are looked at to be forgotten.
    by_age: VecDeque<ObjectId>,
    /// How many may be known while nobody reads some of them.
    remembered_max: usize,
    /// What the page cache is taken to hold.
    page_cache_bytes: u64,
    /// All bytes ever read into it: the clock for the age of its contents.
    filled_bytes: u64,
}

impl Objects {
    /// An empty table for a device with `memory_bytes` for reading ahead, which bounds how many files are remembered.
    pub fn new(memory_bytes: u64, page_cache_bytes: u64) -> Objects {
        let many = usize::try_from(memory_bytes / REMEMBERED_EACH_BYTES);
        Objects {
            known: BTreeMap::new(),
            by_age: VecDeque::new(),
            remembered_max: many
                .unwrap_or(OBJECTS_REMEMBERED_MAX)
                .clamp(OBJECTS_REMEMBERED_MIN, OBJECTS_REMEMBERED_MAX),
            page_cache_bytes,
            filled_bytes: 0,
        }
    }

    /// A stream begins to read a file, with this want. The file becomes popular if another reader began here so recently that its
    /// bytes would still be in the page cache had they been read into it: since then no more was read into it, or of this file
    /// past it, than half of what it holds. A client that resumes begins elsewhere.
    pub fn enter(&mut self, reader: ReaderId, want: &Want, now: Instant) {
        let object = self.known.entry(want.object).or_insert_with(|| {
            self.by_age.push_back(want.object);
            Object::default()
        });
        object.readers.insert(reader);
        let (filled_bytes, half_bytes) = (self.filled_bytes, self.page_cache_bytes / 2);
        let (from_bytes, past_bytes) = (want.span.offset_bytes, object.past_bytes);
        let kept = |start: &Start| {
            start.from_bytes == from_bytes
                && now.since_us(start.at) < POPULAR_US
                && (filled_bytes - start.filled_bytes) + (past_bytes - start.past_bytes)
                    <= half_bytes
        };
        if want.answers == 0 && object.starts.iter().any(kept) {
            object.popular_until = now.plus_us(POPULAR_US);
        }
        object.starts.retain(|start| start.from_bytes != from_bytes);
        object.starts.truncate(STARTS_MAX - 1);
        object.starts.push_front(Start {
            from_bytes,
            at: now,
            filled_bytes,
            past_bytes,
        });
        self.forget_some();
    }

    /// So many bytes of a file are being read.
    pub fn read(&mut self, id: ObjectId, len_bytes: u64, held: Held) {
        let bytes = match (held, self.known.get_mut(&id)) {
            (Held::PageCache, _) => &mut self.filled_bytes,
            (Held::Slots, Some(object)) => &mut object.past_bytes,
            (Held::Slots, None) => return,
        };
        *bytes = bytes.saturating_add(len_bytes);
    }

    /// A stream no longer reads the file.
    pub fn leave(&mut self, id: ObjectId, reader: ReaderId) {
        if let Some(object) = self.known.get_mut(&id) {
            object.readers.remove(&reader);
            object.waiting.retain(|waiting| *waiting != reader);
        }
    }

    /// The readers of the file.
    pub fn readers(&self, id: ObjectId) -> impl Iterator<Item = ReaderId> + '_ {
        let object = self.known.get(&id);
        object
            .into_iter()
            .flat_map(|object| object.readers.iter().copied())
    }

    /// Whether the file should be read into the page cache, for readers to come: several had the same bytes recently.
    pub fn is_popular(&self, id: ObjectId, now: Instant) -> bool {
        let object = self.known.get(&id);
        object.is_some_and(|object| now < object.popular_until)
    }

    /// Whether the file can be read past the page cache.
    pub fn is_direct(&self, id: ObjectId) -> bool {
        let object = self.known.get(&id);
        object.is_some_and(|object| object.direct)
    }

    /// Where a byte of the file lies on the device. Files without a known layout count as lying one after another, in
    /// the order in which they were opened.
    pub fn device_bytes(&self, id: ObjectId, file_bytes: u64) -> u64 {
        let layout = self.known.get(&id).and_then(|o| o.layout.as_ref());
        let known = layout.and_then(|layout| layout.device_bytes(file_bytes));
        known.unwrap_or_else(|| (u64::from(id.index) << 36).saturating_add(file_bytes))
    }

    /// Whether the layout that `reader` needs is known. If not, `reader` waits for it, and `asked` becomes whether it
    /// is the first one that waits, for whom the layout has to be asked for. Of a file that is not in the table no
    /// layout is waited for.
    pub fn is_mapped(&mut self, id: ObjectId, reader: ReaderId, asked: &mut bool) -> bool {
        let Some(object) = self.known.get_mut(&id) else {
            return true;
        };
        if object.layout.is_some() {
            return true;
        }
        *asked = object.waiting.is_empty();
        if !object.waiting.contains(&reader) {
            object.waiting.push(reader);
        }
        false
    }

    /// Whether a reader waits for the layout.
    pub fn waits_for_layout(&self, id: ObjectId, reader: ReaderId) -> bool {
        let object = self.known.get(&id);
        object.is_some_and(|object| object.waiting.contains(&reader))
    }

    /// The layout is known, and whether the file can be read past the page cache. Returns the readers that waited for that.
    pub fn mapped(&mut self, id: ObjectId, layout: Layout, direct: bool) -> Vec<ReaderId> {
        let Some(object) = self.known.get_mut(&id) else {
            return Vec::new();
        };
        object.direct = direct;
        object.layout = Some(layout);
        core::mem::take(&mut object.waiting)
    }

    /// Forgets files without readers while there are too many. Looks at two for each one that is added, so that the
    /// table shrinks back to its bound when streams have ended.
    fn forget_some(&mut self) {
        for _ in 0..2 {
            if self.known.len() <= self.remembered_max {
                return;
            }
            let Some(id) = self.by_age.pop_front() else {
                return;
            };
            match self.known.get(&id) {
                Some(object) if !object.readers.is_empty() => self.by_age.push_back(id),
                _ => _ = self.known.remove(&id),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::{ConnId, Span, StreamId, WantSeq};

    fn stream(slot: u32) -> ReaderId {
        ReaderId::Stream(0, slot)
    }

    fn id(index: u32) -> ObjectId {
        ObjectId {
            device: 0,
            index,
            generation: 0,
        }
    }

    /// All files that a device remembers, and a large page cache.
    fn table() -> Objects {
        Objects::new(u64::MAX, 1 << 40)
    }

    /// The first want of a reader that begins here.
    fn from(file: u32, from_bytes: u64) -> Want {
        let at = Instant { us: 0 };
        let conn = ConnId {
            index: 0,
            generation: 0,
        };
        Want {
            stream: StreamId {
                worker: 0,
                conn,
                nth: 0,
            },
            object: id(file),
            span: Span {
                offset_bytes: from_bytes,
                len_bytes: 1 << 40,
            },
            underrun_at: at,
            rate_bytes_per_s: 0,
            seq: WantSeq(1),
            answers: 0,
            signals: 0,
            through_cache: false,
        }
    }

    const AT: fn(u64) -> Instant = |s| Instant { us: s * 1_000_000 };

    #[test]
    fn a_second_reader_makes_a_file_shared_at_once_or_within_the_window() {
        let mut objects = table();
        objects.enter(stream(0), &from(1, 0), AT(0));
        assert!(!objects.is_popular(id(1), AT(0)));
        objects.enter(stream(1), &from(1, 0), AT(1));
        assert!(objects.is_popular(id(1), AT(1)));
        let mut objects = table();
        objects.enter(stream(0), &from(1, 0), AT(0));
        objects.leave(id(1), stream(0));
        objects.enter(stream(0), &from(1, 0), AT(4000));
        assert!(!objects.is_popular(id(1), AT(4000)), "too long ago");
        objects.leave(id(1), stream(0));
        objects.enter(stream(0), &from(1, 0), AT(5000));
        assert!(objects.is_popular(id(1), AT(5000)));
        assert!(!objects.is_popular(id(1), AT(9000)));
    }

    #[test]
    fn a_download_that_is_resumed_is_one_reader_and_who_begins_there_again_is_another() {
        let mut objects = table();
        for (n, from_mib) in [0, 290, 900, 500].into_iter().enumerate() {
            objects.enter(stream(0), &from(1, from_mib << 20), AT(n as u64));
            objects.leave(id(1), stream(0));
            assert!(!objects.is_popular(id(1), AT(9)), "from {from_mib} MiB");
        }
        objects.enter(stream(1), &from(1, 290 << 20), AT(9));
        assert!(objects.is_popular(id(1), AT(9)));
    }

    #[test]
    fn what_would_not_be_there_any_more_is_not_popular() {
        for into in [Held::PageCache, Held::Slots] {
            let mut objects = Objects::new(0, 1 << 30);
            objects.enter(stream(0), &from(1, 0), AT(0));
            objects.read(id(1), 1 << 30, into);
            objects.enter(stream(1), &from(1, 0), AT(1));
            assert!(!objects.is_popular(id(1), AT(1)));
        }
    }

    #[test]
    fn starts_are_bounded() {
        let mut objects = table();
        for n in 0..100 {
            objects.enter(stream(n), &from(1, u64::from(n)), AT(0));
        }
        assert_eq!(objects.known[&id(1)].starts.len(), STARTS_MAX);
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_read() {
        let mut objects = table();
        objects.enter(stream(0), &from(0, 0), AT(0));
        for n in 1..3 * OBJECTS_REMEMBERED_MAX as u32 {
            objects.enter(stream(n), &from(n, 0), AT(0));
            objects.leave(id(n), stream(n));
        }
        assert!(objects.known.len() <= OBJECTS_REMEMBERED_MAX);
        assert_eq!(objects.known.len(), objects.by_age.len());
        assert!(objects.known.contains_key(&id(0)));
    }

    #[test]
    fn little_memory_remembers_fewer_files() {
        let mut objects = Objects::new(4 << 20, 0);
        for n in 0..3 * OBJECTS_REMEMBERED_MAX as u32 {
            objects.enter(stream(n), &from(n, 0), AT(0));
            objects.leave(id(n), stream(n));
        }
        assert_eq!(objects.known.len(), OBJECTS_REMEMBERED_MIN);
    }

    #[test]
    fn a_layout_is_asked_for_once_and_all_hear_of_it() {
        let mut objects = table();
        objects.enter(stream(0), &from(1, 0), AT(0));
        let mut asked = false;
        assert!(!objects.is_mapped(id(1), stream(1), &mut asked) && asked);
        assert!(!objects.is_mapped(id(1), stream(2), &mut asked) && !asked);
        assert_eq!(
            objects.mapped(id(1), Layout::default(), true),
            [stream(1), stream(2)]
        );
        assert!(objects.is_mapped(id(1), stream(3), &mut asked));
    }

    #[test]
    fn bytes_are_found_in_their_extent_and_holes_behind_the_one_before() {
        let extent = |file_bytes, device_bytes, len_bytes| Extent {
            file_bytes,
            device_bytes,
            len_bytes,
        };
        let layout = Layout::new(alloc::vec![extent(8192, 500, 100), extent(0, 9000, 4096)]);
        assert_eq!(layout.device_bytes(10), Some(9010));
        assert_eq!(layout.device_bytes(5000), Some(14_000), "a hole");
        assert_eq!(layout.device_bytes(8292), Some(600), "behind the end");
        let lies = Layout::new(alloc::vec![extent(0, u64::MAX, u64::MAX)]);
        assert_eq!(lies.device_bytes(u64::MAX), Some(u64::MAX));
        assert_eq!(Layout::default().device_bytes(0), None);
    }

    #[test]
    fn a_layout_keeps_its_first_extent_and_spreads_the_others() {
        let extent = |nth: u64| Extent {
            file_bytes: nth * 100,
            device_bytes: 1_000_000 - nth * 1000,
            len_bytes: 100,
        };
        let layout = Layout::new((0..64).map(extent).collect());
        assert_eq!(layout.extents.len(), EXTENTS_KEPT);
        assert_eq!(layout.device_bytes(5), Some(1_000_005));
        assert_eq!(layout.device_bytes(1600), Some(984_000));
        let followed = Some(984_100);
        assert_eq!(layout.device_bytes(1700), followed, "as if it followed");
    }
}
