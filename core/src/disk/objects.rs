//! The files of a device that are being read or were read recently: where their bytes lie on it, whether they can be read past
//! the page cache, and whether a file is popular, so that it is read into it all the same.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::layout::Layout;
use super::{Destination, ReaderId};
use crate::conn::{ObjectId, Span, Want};
use crate::limits::{
    EXTENTS_COMMON, EXTENTS_MAX, EXTENTS_SURE, OBJECT_BYTES, OBJECTS_REMEMBERED_MAX,
    OBJECTS_REMEMBERED_MIN, PAST_READS_MAX, POPULAR_US, REMEMBERED_EACH_BYTES, RESUME_BYTES_MAX,
};
use crate::units::Instant;

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
    /// When the latest reader came.
    last_reader_at: Option<Instant>,
    /// What was read for its readers lately, a span for each byte at which one began, the newest first. Forgotten when no reader
    /// came for [`POPULAR_US`].
    past_reads: VecDeque<PastRead>,
    /// Until this time the file is read into the page cache for readers to come.
    popular_until: Instant,
}

/// What was read of a file from a starting point on.
#[derive(Clone, Copy)]
struct PastRead {
    /// The bytes.
    span: Span,
    /// [`Objects::filled_bytes`] when the latest reader began here.
    begun_at_bytes: u64,
}

impl Object {
    /// The past reads in which an earlier reader has had this byte. The last [`RESUME_BYTES_MAX`] of each do not count. When a
    /// connection breaks they may have been on their way, and the same client asks for them again.
    fn had(&self, at_bytes: u64) -> impl Iterator<Item = &PastRead> {
        self.past_reads.iter().filter(move |PastRead { span, .. }| {
            let arrived = at_bytes.saturating_add(RESUME_BYTES_MAX) < span.end_bytes();
            at_bytes == span.offset_bytes || at_bytes > span.offset_bytes && arrived
        })
    }

    /// A reader begins at this byte. If an earlier one came as far as this, its span goes on; if not, a new one begins.
    fn begin(&mut self, from_bytes: u64, begun_at_bytes: u64) {
        let goes_on = |past: &PastRead| {
            (past.span.offset_bytes..=past.span.end_bytes()).contains(&from_bytes)
        };
        if !self.past_reads.iter().any(goes_on) {
            self.past_reads.truncate(PAST_READS_MAX - 1);
            let span = Span {
                offset_bytes: from_bytes,
                len_bytes: 0,
            };
            self.past_reads.push_front(PastRead {
                span,
                begun_at_bytes,
            });
        }
        let same = |past: &&mut PastRead| past.span.offset_bytes == from_bytes;
        if let Some(past) = self.past_reads.iter_mut().find(same) {
            past.begun_at_bytes = begun_at_bytes;
        }
    }
}

/// What a file takes at most. A node of a B-tree may be half empty, and so may a list that grew.
const _: () = assert!(
    2 * (size_of::<ObjectId>() + size_of::<Object>())
        + 2 * size_of::<ObjectId>()
        + PAST_READS_MAX * size_of::<PastRead>()
        + (EXTENTS_SURE + EXTENTS_COMMON) * size_of::<(u64, u64)>()
        <= OBJECT_BYTES as usize
);

/// The files of one device.
pub(super) struct Objects {
    /// The files that are read, and those that were lately.
    known: BTreeMap<ObjectId, Object>,
    /// All of them, in the order in which they are looked at to be forgotten.
    by_age: VecDeque<ObjectId>,
    /// Files with more than [`EXTENTS_SURE`] known extents, the oldest first.
    fragmented: VecDeque<ObjectId>,
    /// How many extents the files in `fragmented` have.
    extents: usize,
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
            fragmented: VecDeque::new(),
            extents: 0,
            remembered_max: many
                .unwrap_or(OBJECTS_REMEMBERED_MAX)
                .clamp(OBJECTS_REMEMBERED_MIN, OBJECTS_REMEMBERED_MAX),
            page_cache_bytes,
            filled_bytes: 0,
        }
    }

    /// A stream begins to read a file, with this want. The file becomes popular if another reader had these bytes so recently
    /// that they would still be in the page cache had they been read into it: no more was read into it since than half of what it
    /// holds, since the other half are bytes that all readers have had. A client that resumes, or plays a file request by
    /// request, is one reader.
    pub fn enter(&mut self, reader: ReaderId, want: &Want, now: Instant) {
        let object = self.known.entry(want.object).or_insert_with(|| {
            self.by_age.push_back(want.object);
            Object::default()
        });
        object.readers.insert(reader);
        let before = object.last_reader_at.replace(now);
        if before.is_some_and(|before| now.since_us(before) >= POPULAR_US) {
            object.past_reads.clear();
        }
        let popular = now < object.popular_until;
        let kept = |past: &PastRead| {
            // What was read past the page cache would have filled it, too.
            let own_bytes = if popular { 0 } else { past.span.len_bytes };
            let since_bytes = self.filled_bytes - past.begun_at_bytes;
            since_bytes.saturating_add(own_bytes) <= self.page_cache_bytes / 2
        };
        let from_bytes = want.span.offset_bytes;
        if want.answers == 0 && object.had(from_bytes).any(kept) {
            object.popular_until = now.plus_us(POPULAR_US);
        }
        object.begin(from_bytes, self.filled_bytes);
        self.forget_some();
    }

    /// These bytes are being read.
    pub fn read(&mut self, id: ObjectId, span: Span, into: Destination) {
        if into == Destination::PageCache {
            self.filled_bytes = self.filled_bytes.saturating_add(span.len_bytes);
        }
        let Some(object) = self.known.get_mut(&id) else {
            return;
        };
        let end_bytes = span.end_bytes();
        for PastRead { span: past, .. } in &mut object.past_reads {
            // Reads begin at whole blocks, a little before the byte that was wanted.
            let touches = span.offset_bytes <= past.end_bytes() && past.offset_bytes < end_bytes;
            if touches && end_bytes > past.end_bytes() {
                past.len_bytes = end_bytes - past.offset_bytes;
            }
        }
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
        let waiting = core::mem::take(&mut object.waiting);
        let extents = layout.len();
        let before = object.layout.replace(layout);
        self.forget_extents(id, before.as_ref());
        if extents > EXTENTS_SURE {
            self.fragmented.push_back(id);
            self.extents += extents;
        }
        self.thin_some();
        waiting
    }

    /// A layout was dropped or replaced: its extents no longer count.
    fn forget_extents(&mut self, id: ObjectId, layout: Option<&Layout>) {
        let fragmented = layout.filter(|layout| layout.len() > EXTENTS_SURE);
        if let Some(layout) = fragmented {
            self.extents -= layout.len();
            self.fragmented.retain(|of| *of != id);
        }
    }

    /// Thins the oldest layouts while there are too many extents in all files together.
    fn thin_some(&mut self) {
        let extents_max = (EXTENTS_COMMON * self.remembered_max).max(EXTENTS_MAX);
        while self.extents > extents_max {
            let Some(id) = self.fragmented.pop_front() else {
                return;
            };
            let Some(object) = self.known.get_mut(&id) else {
                continue;
            };
            let Some(layout) = &mut object.layout else {
                continue;
            };
            self.extents -= layout.len();
            layout.thin(EXTENTS_SURE);
            if object.readers.is_empty() {
                object.layout = None; // the next reader asks again
            }
        }
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
                _ => {
                    let object = self.known.remove(&id);
                    self.forget_extents(id, object.and_then(|object| object.layout).as_ref());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::{ConnId, StreamId, WantSeq};

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

    /// Read from here on, on a connection of its own, until the device was read up to `to_mib`; then the client is
    /// gone.
    fn download(objects: &mut Objects, from_mib: u64, to_mib: u64) {
        let (from_bytes, to_bytes) = (from_mib << 20, to_mib << 20);
        let reader = stream(from_mib as u32);
        objects.enter(reader, &from(1, from_bytes), AT(from_mib));
        for offset_bytes in (from_bytes..to_bytes).step_by(1 << 20) {
            let len_bytes = 1 << 20;
            let span = Span {
                offset_bytes,
                len_bytes,
            };
            objects.read(id(1), span, Destination::Slots(64));
        }
        objects.leave(id(1), reader);
    }

    #[test]
    fn a_download_that_is_resumed_is_one_reader_and_who_asks_for_the_same_bytes_is_another() {
        let mut objects = table();
        // It broke three times, and what was on its way was lost; the last time somewhere else went on first.
        for (from_mib, to_mib) in [(0, 300), (290, 500), (900, 1000), (500, 900)] {
            download(&mut objects, from_mib, to_mib);
            assert!(!objects.is_popular(id(1), AT(1000)), "from {from_mib} MiB");
        }
        let mut other = table();
        download(&mut other, 0, 300);
        download(&mut other, 100, 101);
        assert!(other.is_popular(id(1), AT(1000)), "its bytes were had");
        download(&mut objects, 0, 1);
        assert!(objects.is_popular(id(1), AT(1000)), "the whole was had");
    }

    #[test]
    fn places_that_were_read_are_bounded() {
        let mut objects = table();
        for n in 0..100 {
            download(&mut objects, n * 1000, n * 1000 + 20);
        }
        assert_eq!(objects.known[&id(1)].past_reads.len(), PAST_READS_MAX);
        assert!(!objects.is_popular(id(1), AT(100_000)));
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
    fn extents_are_bounded_over_all_files_and_files_that_are_read_keep_some() {
        let mut objects = Objects::new(0, 0);
        let extent = |nth: u64| super::super::Extent {
            file_bytes: nth << 20,
            device_bytes: nth << 30,
            len_bytes: 1 << 20,
        };
        for n in 0..5_000 {
            let fragmented = Layout::new((0..64).map(extent).collect());
            objects.enter(stream(n), &from(n, 0), AT(0));
            objects.mapped(id(n), fragmented, true);
            if n % 2 == 1 {
                objects.leave(id(n), stream(n));
            }
            let held = objects
                .known
                .values()
                .filter_map(|object| object.layout.as_ref());
            let (mut all, mut counted) = (0, 0);
            for layout in held {
                all += layout.len();
                counted += if layout.len() > EXTENTS_SURE {
                    layout.len()
                } else {
                    0
                };
            }
            assert_eq!(counted, objects.extents);
            assert!(counted <= EXTENTS_COMMON * OBJECTS_REMEMBERED_MIN);
            assert!(all <= counted + EXTENTS_SURE * objects.known.len());
        }
        assert_eq!(objects.device_bytes(id(0), 0), 0);
        let far = objects.device_bytes(id(0), 63 << 20);
        assert_eq!(far, (48 << 30) + (15 << 20), "one of four extents is known");
        for n in 0..5_000 {
            objects.leave(id(n), stream(n));
        }
        for n in 5_000..20_000 {
            objects.enter(stream(n), &from(n, 0), AT(0));
            objects.leave(id(n), stream(n));
        }
        assert_eq!((objects.extents, objects.fragmented.len()), (0, 0));
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
}
