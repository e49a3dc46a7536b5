//! The files of pending wants, which the machine's orders refer to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, StreamId};

use crate::limits::UNCANCELLED_FILES_MAX;
use crate::store::file::File;

/// Holds a stream's file from its first want until the stream is forgotten.
#[derive(Default)]
pub(super) struct Wanted {
    /// The file of each connection, by worker and slot.
    by_place: HashMap<(u16, u32), ObjectId>,
    by_object: HashMap<ObjectId, (Arc<File>, u32)>,
    /// Files of departed streams that are read all the same (`cancel` off).
    uncancelled: VecDeque<Arc<File>>,
}

impl Wanted {
    /// Adds a want, in place of the earlier one of its connection.
    pub fn add(&mut self, stream: StreamId, file: Arc<File>) {
        let (place, object) = ((stream.worker, stream.conn.index), file.id);
        if self.by_place.get(&place) == Some(&object) {
            return;
        }
        self.remove(stream);
        self.by_place.insert(place, object);
        self.by_object.entry(object).or_insert((file, 0)).1 += 1;
    }

    /// Forgets a stream.
    pub fn remove(&mut self, stream: StreamId) {
        let Some(object) = self.by_place.remove(&(stream.worker, stream.conn.index)) else {
            return;
        };
        if let Some((_, wishes)) = self.by_object.get_mut(&object) {
            *wishes -= 1;
            if *wishes == 0 {
                self.by_object.remove(&object);
            }
        }
    }

    /// Forgets a stream, but keeps its file, since its reads are made all the same.
    pub fn keep_uncancelled(&mut self, stream: StreamId) {
        let object = self.by_place.get(&(stream.worker, stream.conn.index));
        if let Some(file) = object.and_then(|object| self.get(*object)) {
            self.uncancelled.push_back(file);
        }
        if self.uncancelled.len() > UNCANCELLED_FILES_MAX {
            self.uncancelled.pop_front();
        }
        self.remove(stream);
    }

    /// The file, if a want or an uncancelled read refers to it.
    pub fn get(&self, object: ObjectId) -> Option<Arc<File>> {
        let wanted = self.by_object.get(&object).map(|(file, _)| file);
        let uncancelled = || self.uncancelled.iter().find(|file| file.id == object);
        wanted.or_else(uncancelled).map(Arc::clone)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty() && self.by_place.is_empty()
    }
}
