//! The files of a device that are being read or were lately: where they lie, and whether they are popular.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::Place;
use super::layout::Layout;
use crate::conn::{ObjectId, Span};
use crate::limits::{HAD_SPANS_MAX, OBJECTS_REMEMBERED_MAX, POPULAR_US, RESUME_BYTES_MAX};
use crate::units::Instant;

#[derive(Default)]
struct Object {
    layout: Option<Layout>,
    /// Who waits for the layout.
    waiting: Vec<Place>,
    readers: BTreeSet<Place>,
    /// When the last of them came.
    last_reader_at: Option<Instant>,
    /// What was read for them since: from where each began, the newest first.
    had: VecDeque<Span>,
    popular_until: Instant,
}

impl Object {
    /// Whether a reader that begins here is for bytes that one before it has had. What was on its way to a client whose
    /// connection broke does not count: that is asked for again by the same one.
    fn had(&self, from_bytes: u64) -> bool {
        self.had.iter().any(|had| {
            let arrived = from_bytes.saturating_add(RESUME_BYTES_MAX) < had.end_bytes();
            from_bytes == had.offset_bytes || from_bytes > had.offset_bytes && arrived
        })
    }

    /// A reader begins here, where one before it ended or elsewhere.
    fn begin(&mut self, from_bytes: u64) {
        let goes_on = |had: &Span| (had.offset_bytes..=had.end_bytes()).contains(&from_bytes);
        if !self.had.iter().any(goes_on) {
            self.had.truncate(HAD_SPANS_MAX - 1);
            self.had.push_front(Span {
                offset_bytes: from_bytes,
                len_bytes: 0,
            });
        }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Objects {
    known: BTreeMap<ObjectId, Object>,
    by_age: VecDeque<ObjectId>,
}

impl Objects {
    /// A stream begins to read a file at this byte; `anew`: not for the first time. It makes the file popular if another
    /// has had these bytes: who resumes, or plays a file request by request, is one reader.
    pub fn enter(&mut self, id: ObjectId, place: Place, from_bytes: u64, anew: bool, now: Instant) {
        let object = self.known.entry(id).or_insert_with(|| {
            self.by_age.push_back(id);
            Object::default()
        });
        object.readers.insert(place);
        let before = object.last_reader_at.replace(now);
        if before.is_some_and(|before| now.since_us(before) >= POPULAR_US) {
            object.had.clear();
        }
        if !anew && object.had(from_bytes) {
            object.popular_until = now.plus_us(POPULAR_US);
        }
        object.begin(from_bytes);
        self.forget_some();
    }

    /// These bytes are being read.
    pub fn read(&mut self, id: ObjectId, span: Span) {
        let Some(object) = self.known.get_mut(&id) else {
            return;
        };
        let end_bytes = span.end_bytes();
        for had in &mut object.had {
            // Reads begin at whole blocks: a little before the byte that was wished for.
            let begins = span.offset_bytes <= had.end_bytes() && had.offset_bytes < end_bytes;
            if begins && end_bytes > had.end_bytes() {
                had.len_bytes = end_bytes - had.offset_bytes;
            }
        }
    }

    /// A stream reads it no more.
    pub fn leave(&mut self, id: ObjectId, place: Place) {
        if let Some(object) = self.known.get_mut(&id) {
            object.readers.remove(&place);
            object.waiting.retain(|waiting| *waiting != place);
        }
    }

    /// Who reads it.
    pub fn readers(&self, id: ObjectId) -> impl Iterator<Item = Place> + '_ {
        let object = self.known.get(&id);
        object
            .into_iter()
            .flat_map(|object| object.readers.iter().copied())
    }

    /// Whether what is read of it shall stay for others: it has several readers, or had some lately.
    pub fn is_shared(&self, id: ObjectId, now: Instant) -> bool {
        let object = self.known.get(&id);
        object.is_some_and(|object| object.readers.len() > 1 || now < object.popular_until)
    }

    /// Where a byte of it lies; where nothing is known, files follow each other in the order in which they were opened.
    pub fn device_bytes(&self, id: ObjectId, file_bytes: u64) -> u64 {
        let layout = self.known.get(&id).and_then(|o| o.layout.as_ref());
        let known = layout.and_then(|layout| layout.device_bytes(file_bytes));
        known.unwrap_or_else(|| (u64::from(id.index) << 36).saturating_add(file_bytes))
    }

    /// `place` needs the layout: `true` if it is there. Otherwise it waits for it; `asked` is set for the first.
    pub fn is_mapped(&mut self, id: ObjectId, place: Place, asked: &mut bool) -> bool {
        let Some(object) = self.known.get_mut(&id) else {
            return true;
        };
        if object.layout.is_some() {
            return true;
        }
        *asked = object.waiting.is_empty();
        if !object.waiting.contains(&place) {
            object.waiting.push(place);
        }
        false
    }

    /// Whether a reader waits for the layout.
    pub fn waits_for_layout(&self, id: ObjectId, place: Place) -> bool {
        let object = self.known.get(&id);
        object.is_some_and(|object| object.waiting.contains(&place))
    }

    /// The layout is known: those who waited for it.
    pub fn mapped(&mut self, id: ObjectId, layout: Layout) -> Vec<Place> {
        let Some(object) = self.known.get_mut(&id) else {
            return Vec::new();
        };
        object.layout = Some(layout);
        core::mem::take(&mut object.waiting)
    }

    /// Two steps for each one added: the table shrinks back to its size when streams end.
    fn forget_some(&mut self) {
        for _ in 0..2 {
            if self.known.len() <= OBJECTS_REMEMBERED_MAX {
                return;
            }
            let Some(id) = self.by_age.pop_front() else {
                return;
            };
            match self.known.get(&id) {
                Some(object) if !object.readers.is_empty() => self.by_age.push_back(id),
                _ => drop(self.known.remove(&id)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(index: u32) -> ObjectId {
        ObjectId {
            device: 0,
            index,
            generation: 0,
        }
    }

    const AT: fn(u64) -> Instant = |s| Instant { us: s * 1_000_000 };

    #[test]
    fn a_second_reader_makes_a_file_shared_at_once_or_within_the_window() {
        let mut objects = Objects::default();
        objects.enter(id(1), (0, 0), 0, false, AT(0));
        assert!(!objects.is_shared(id(1), AT(0)));
        objects.enter(id(1), (0, 1), 0, false, AT(1));
        assert!(objects.is_shared(id(1), AT(1)));
        let mut objects = Objects::default();
        objects.enter(id(1), (0, 0), 0, false, AT(0));
        objects.leave(id(1), (0, 0));
        objects.enter(id(1), (0, 0), 0, false, AT(4000));
        assert!(!objects.is_shared(id(1), AT(4000)), "too long ago");
        objects.leave(id(1), (0, 0));
        objects.enter(id(1), (0, 0), 0, false, AT(5000));
        assert!(objects.is_shared(id(1), AT(5000)));
        assert!(!objects.is_shared(id(1), AT(9000)));
    }

    /// Read from here on, on a connection of its own, until the device was read up to `to_mib`; then the client is gone.
    fn download(objects: &mut Objects, from_mib: u64, to_mib: u64) {
        let (from_bytes, to_bytes) = (from_mib << 20, to_mib << 20);
        let place = (0, from_mib as u32);
        objects.enter(id(1), place, from_bytes, false, AT(from_mib));
        for offset_bytes in (from_bytes..to_bytes).step_by(1 << 20) {
            let len_bytes = 1 << 20;
            objects.read(
                id(1),
                Span {
                    offset_bytes,
                    len_bytes,
                },
            );
        }
        objects.leave(id(1), place);
    }

    #[test]
    fn a_download_that_is_resumed_is_one_reader_and_who_asks_for_the_same_bytes_is_another() {
        let mut objects = Objects::default();
        // It broke three times, and what was on its way was lost; the last time somewhere else went on first.
        for (from_mib, to_mib) in [(0, 300), (290, 500), (900, 1000), (500, 900)] {
            download(&mut objects, from_mib, to_mib);
            assert!(!objects.is_shared(id(1), AT(1000)), "from {from_mib} MiB");
        }
        let mut other = Objects::default();
        download(&mut other, 0, 300);
        download(&mut other, 100, 101);
        assert!(other.is_shared(id(1), AT(1000)), "its bytes were had");
        download(&mut objects, 0, 1);
        assert!(objects.is_shared(id(1), AT(1000)), "the whole was had");
    }

    #[test]
    fn places_that_were_read_are_bounded() {
        let mut objects = Objects::default();
        for n in 0..100 {
            download(&mut objects, n * 1000, n * 1000 + 20);
        }
        assert_eq!(objects.known[&id(1)].had.len(), HAD_SPANS_MAX);
        assert!(!objects.is_shared(id(1), AT(100_000)));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_read() {
        let mut objects = Objects::default();
        objects.enter(id(0), (0, 0), 0, false, AT(0));
        for n in 1..3 * OBJECTS_REMEMBERED_MAX as u32 {
            objects.enter(id(n), (0, n), 0, false, AT(0));
            objects.leave(id(n), (0, n));
        }
        assert!(objects.known.len() <= OBJECTS_REMEMBERED_MAX);
        assert_eq!(objects.known.len(), objects.by_age.len());
        assert!(objects.known.contains_key(&id(0)));
    }

    #[test]
    fn a_layout_is_asked_for_once_and_all_hear_of_it() {
        let mut objects = Objects::default();
        objects.enter(id(1), (0, 0), 0, false, AT(0));
        let mut asked = false;
        assert!(!objects.is_mapped(id(1), (0, 1), &mut asked) && asked);
        assert!(!objects.is_mapped(id(1), (0, 2), &mut asked) && !asked);
        assert_eq!(objects.mapped(id(1), Layout::default()), [(0, 1), (0, 2)]);
        assert!(objects.is_mapped(id(1), (0, 3), &mut asked));
    }
}
