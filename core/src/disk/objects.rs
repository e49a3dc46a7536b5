//! The files of a device that are being read or were lately: where they lie, and whether they are popular.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::Place;
use super::layout::Layout;
use crate::conn::ObjectId;
use crate::limits::{OBJECTS_REMEMBERED_MAX, POPULAR_US};
use crate::units::Instant;

#[derive(Default)]
struct Object {
    layout: Option<Layout>,
    /// Who waits for the layout.
    waiting: Vec<Place>,
    readers: BTreeSet<Place>,
    last_reader_at: Option<Instant>,
    popular_until: Instant,
}

/// See the module.
#[derive(Default)]
pub(super) struct Objects {
    known: BTreeMap<ObjectId, Object>,
    by_age: VecDeque<ObjectId>,
}

impl Objects {
    /// A stream begins to read a file; `anew`: not for the first time.
    pub fn enter(&mut self, id: ObjectId, place: Place, anew: bool, now: Instant) {
        let object = self.known.entry(id).or_insert_with(|| {
            self.by_age.push_back(id);
            Object::default()
        });
        object.readers.insert(place);
        let before = object.last_reader_at.replace(now);
        if !anew && before.is_some_and(|before| now.since_us(before) < POPULAR_US) {
            object.popular_until = now.plus_us(POPULAR_US);
        }
        self.forget_some();
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
        objects.enter(id(1), (0, 0), false, AT(0));
        assert!(!objects.is_shared(id(1), AT(0)));
        objects.enter(id(1), (0, 1), false, AT(1));
        assert!(objects.is_shared(id(1), AT(1)));
        let mut objects = Objects::default();
        objects.enter(id(1), (0, 0), false, AT(0));
        objects.leave(id(1), (0, 0));
        objects.enter(id(1), (0, 0), false, AT(4000));
        assert!(!objects.is_shared(id(1), AT(4000)), "too long ago");
        objects.leave(id(1), (0, 0));
        objects.enter(id(1), (0, 0), false, AT(5000));
        assert!(objects.is_shared(id(1), AT(5000)));
        assert!(!objects.is_shared(id(1), AT(9000)));
    }

    #[test]
    fn the_table_is_bounded_and_keeps_who_is_read() {
        let mut objects = Objects::default();
        objects.enter(id(0), (0, 0), false, AT(0));
        for n in 1..3 * OBJECTS_REMEMBERED_MAX as u32 {
            objects.enter(id(n), (0, n), false, AT(0));
            objects.leave(id(n), (0, n));
        }
        assert!(objects.known.len() <= OBJECTS_REMEMBERED_MAX);
        assert_eq!(objects.known.len(), objects.by_age.len());
        assert!(objects.known.contains_key(&id(0)));
    }

    #[test]
    fn a_layout_is_asked_for_once_and_all_hear_of_it() {
        let mut objects = Objects::default();
        objects.enter(id(1), (0, 0), false, AT(0));
        let mut asked = false;
        assert!(!objects.is_mapped(id(1), (0, 1), &mut asked) && asked);
        assert!(!objects.is_mapped(id(1), (0, 2), &mut asked) && !asked);
        assert_eq!(objects.mapped(id(1), Layout::default()), [(0, 1), (0, 2)]);
        assert!(objects.is_mapped(id(1), (0, 3), &mut asked));
    }
}
