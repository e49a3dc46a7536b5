//! The files of pending wants, which the machine's orders refer to.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, StreamId};

use crate::limits::UNCANCELLED_FILES_MAX;
use crate::source::Named;

/// Holds a stream's file from its first want until the stream is forgotten.
pub(crate) struct Wanted<T> {
    /// Whether the reads of streams that left are cancelled.
    cancel: bool,
    /// The file of each connection, by worker and slot.
    by_slot: HashMap<(u16, u32), ObjectId>,
    by_object: HashMap<ObjectId, (Arc<T>, u32)>,
    /// Files of departed streams that are read all the same (`cancel` off).
    uncancelled: VecDeque<Arc<T>>,
}

impl<T: Named> Wanted<T> {
    /// `cancel`: the reads of streams that left are cancelled, so their files are not needed.
    pub fn new(cancel: bool) -> Wanted<T> {
        Wanted {
            cancel,
            by_slot: HashMap::new(),
            by_object: HashMap::new(),
            uncancelled: VecDeque::new(),
        }
    }

    /// Adds a want, in place of the earlier one of its connection: the mailbox may have replaced the message that its stream left.
    pub fn add(&mut self, stream: StreamId, file: Arc<T>) {
        let (slot, object) = ((stream.worker, stream.conn.index), file.name());
        if self.by_slot.get(&slot) == Some(&object) {
            return;
        }
        self.remove(stream);
        self.by_slot.insert(slot, object);
        self.by_object.entry(object).or_insert((file, 0)).1 += 1;
    }

    /// Forgets a stream. Its file is kept if its reads are made all the same.
    pub fn remove(&mut self, stream: StreamId) {
        let Some(object) = self.by_slot.remove(&(stream.worker, stream.conn.index)) else {
            return;
        };
        if !self.cancel {
            self.keep_uncancelled(object);
        }
        if let Some((_, wants)) = self.by_object.get_mut(&object) {
            *wants -= 1;
            if *wants == 0 {
                self.by_object.remove(&object);
            }
        }
    }

    fn keep_uncancelled(&mut self, object: ObjectId) {
        self.uncancelled.extend(self.get(object));
        if self.uncancelled.len() > UNCANCELLED_FILES_MAX {
            self.uncancelled.pop_front();
        }
    }

    /// The file, if a want or an uncancelled read refers to it.
    pub fn get(&self, object: ObjectId) -> Option<Arc<T>> {
        let wanted = self.by_object.get(&object).map(|(file, _)| file);
        let uncancelled = || self.uncancelled.iter().find(|file| file.name() == object);
        wanted.or_else(uncancelled).map(Arc::clone)
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_object.is_empty() && self.by_slot.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ackpace_core::conn::ConnId;
    use rustix::fs::{MemfdFlags, memfd_create};

    use crate::store::device::Devices;
    use crate::store::file::File;
    use crate::store::files::Files;

    fn files() -> [Arc<File>; 2] {
        let (files, devices) = (Files::default(), Devices::default());
        [(); 2].map(|()| {
            let fd = memfd_create("file", MemfdFlags::empty()).expect("a file");
            files.of(fd, &devices)
        })
    }

    fn stream(nth: u16) -> StreamId {
        let conn = ConnId {
            index: 3,
            generation: 0,
        };
        StreamId {
            worker: 0,
            conn,
            nth,
        }
    }

    #[test]
    fn a_file_is_held_until_its_stream_is_gone_whether_or_not_that_was_told() {
        for cancel in [true, false] {
            let [first, second] = files();
            let mut wanted = Wanted::new(cancel);
            wanted.add(stream(1), Arc::clone(&first));
            wanted.add(stream(2), Arc::clone(&second)); // nobody told that stream 1 left
            assert_eq!(wanted.get(first.id).is_some(), !cancel, "its read is made");
            wanted.remove(stream(2));
            assert_eq!(wanted.get(second.id).is_some(), !cancel, "its read is made");
            assert!(wanted.is_empty());
        }
    }
}
