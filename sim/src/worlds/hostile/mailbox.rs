//! The mailboxes between a worker and a disk thread, as in the server, without threads. There is one cell for each
//! place: a later message replaces an earlier one that nobody has taken, and keeps its position in the queue.

use std::collections::VecDeque;

pub(super) struct Mailboxes<T> {
    cells: Vec<Option<T>>,
    filled: VecDeque<u32>,
}

impl<T> Mailboxes<T> {
    pub fn new(places: u32) -> Mailboxes<T> {
        Mailboxes {
            cells: (0..places).map(|_| None).collect(),
            filled: VecDeque::new(),
        }
    }

    /// Stores a message and returns the one that it replaces.
    pub fn put(&mut self, place: u32, message: T) -> Option<T> {
        let replaced = self.cells[place as usize].replace(message);
        if replaced.is_none() {
            self.filled.push_back(place);
        }
        replaced
    }

    pub fn take(&mut self) -> Option<T> {
        let place = self.filled.pop_front()?;
        self.cells[place as usize].take()
    }

    pub fn get(&self, place: u32) -> Option<&T> {
        self.cells[place as usize].as_ref()
    }

    pub fn is_empty(&self) -> bool {
        self.filled.is_empty()
    }
}
