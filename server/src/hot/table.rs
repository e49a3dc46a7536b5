//! The answers that are kept, in bounded memory: found by a hash of their key, and forgotten in the order of the second chance
//! (CLOCK, Corbató 1968).
//!
//! All memory is counted: the table when it is made, an answer when it comes, and one that is forgotten while it is
//! still being sent until that is over.

use std::collections::VecDeque;
use std::sync::Arc;

use ackpace_core::units::Instant;

use super::changes::Sight;
use super::{Content, Key, Ready};
use crate::limits::{
    HOT_ANSWER_BYTES_MIN, HOT_ANSWERS_MAX, HOT_COPY_BYTES_MAX, HOT_EVICTIONS_MAX, HOT_LOOKS_MAX,
    HOT_OPEN_MAX, HOT_PATH_BYTES_MAX, HOT_SWEPT_MAX,
};
use crate::store::file::File;

/// An answer that is kept, with what it was found by.
pub(super) struct Slot {
    pub hash: u64,
    pub path: Box<[u8]>,
    pub keep_alive: bool,
    pub content: Content,
    pub ready: Ready,
    pub looked_up: Instant,
    /// The turn in which an open file was last compared with what its head says.
    pub proven: Instant,
    /// `None`: nobody tells of changes.
    pub sight: Option<Sight>,
    pub used: bool,
    pub due: bool,
    /// The next one in its chain.
    pub next: u32,
}

/// The end of a chain.
pub(super) const NONE: u32 = u32::MAX;

/// The answers.
pub(super) struct Table {
    budget_bytes: usize,
    held_bytes: usize,
    /// Files that are kept open.
    open: usize,
    /// As many as it may ever hold have room here from the start: it never grows, so no turn has to move it.
    #[expect(
        clippy::vec_box,
        reason = "a place that is free costs 8 bytes, not the 200 of an answer"
    )]
    slots: Vec<Box<Slot>>,
    /// The first one of each chain.
    chains: Box<[u32]>,
    hand: usize,
    swept: usize,
    /// Bytes of forgotten answers that are still being sent.
    lent: VecDeque<Arc<[u8]>>,
}

/// What the allocator keeps of each piece of memory, and rounds it up by.
const PIECE_BYTES: usize = 24;
/// No answer is longer, its path and its head with it.
const NEXT_BYTES: usize = HOT_COPY_BYTES_MAX as usize + 2 * HOT_PATH_BYTES_MAX + (4 << 10);
/// A place among those that are lent, in a queue that may have just doubled.
const LENT_BYTES: usize = 4 * size_of::<Arc<[u8]>>();

impl Table {
    pub fn new(budget_bytes: usize) -> Table {
        let places = (budget_bytes / HOT_ANSWER_BYTES_MIN).min(HOT_ANSWERS_MAX);
        let chains = vec![NONE; places.next_power_of_two()];
        let slots = Vec::with_capacity(places);
        let table_bytes = places * size_of::<Box<Slot>>() + size_of_val(&*chains);
        Table {
            budget_bytes,
            held_bytes: if places > 0 { table_bytes } else { 0 },
            open: 0,
            slots,
            chains: chains.into(),
            hand: 0,
            swept: 0,
            lent: VecDeque::new(),
        }
    }

    /// From now on it may hold so much.
    pub fn allow(&mut self, budget_bytes: usize) {
        self.budget_bytes = budget_bytes;
    }

    /// Whether the next answer may have to take another one's place.
    pub fn is_nearly_full(&self) -> bool {
        self.held_bytes + NEXT_BYTES > self.budget_bytes
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub fn find(&self, hash: u64, key: &Key<'_>) -> Option<usize> {
        let mut at = self.chains[self.chain(hash)];
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.hash == hash && *slot.path == *key.path && slot.keep_alive == key.keep_alive {
                return Some(at as usize);
            }
            at = slot.next;
        }
        None
    }

    pub fn slot(&mut self, at: usize) -> &mut Slot {
        &mut self.slots[at]
    }

    /// Keep one more, which is not there yet; what was longest unused makes room. Says whether there was enough.
    pub fn insert(&mut self, slot: Slot) -> bool {
        let (bytes, open) = (slot.own_bytes() + slot.text_bytes(), slot.open());
        let fits = |table: &Table| {
            table.held_bytes + bytes <= table.budget_bytes
                && table.open + open <= HOT_OPEN_MAX
                && table.slots.len() < table.slots.capacity()
        };
        for _ in 0..HOT_EVICTIONS_MAX {
            if fits(self) || !self.evict() {
                break;
            }
        }
        let fits = fits(self);
        if fits {
            self.held_bytes += bytes;
            self.open += open;
            self.slots.push(Box::new(slot));
            self.link(self.slots.len() - 1);
        }
        fits
    }

    /// Forget one that was not used lately; says whether there was any.
    pub fn evict(&mut self) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        for _ in 0..HOT_LOOKS_MAX {
            self.hand %= self.slots.len();
            if !std::mem::take(&mut self.slots[self.hand].used) {
                break;
            }
            self.hand += 1;
        }
        self.remove(self.hand % self.slots.len());
        true
    }

    /// Look at some: forget those that `old` says so of, and bytes that are sent.
    pub fn sweep(&mut self, old: impl Fn(&Slot) -> bool) {
        for _ in 0..HOT_SWEPT_MAX {
            if !self.slots.is_empty() {
                self.swept = (self.swept + 1) % self.slots.len();
                if old(&self.slots[self.swept]) {
                    self.remove(self.swept);
                }
            }
            match self.lent.pop_front() {
                Some(text) if Arc::strong_count(&text) > 1 => self.lent.push_back(text),
                Some(text) => self.held_bytes -= lent_bytes(&text),
                None => {}
            }
        }
        if self.lent.len() < self.lent.capacity() / 4 {
            self.lent.shrink_to(self.lent.capacity() / 2);
        }
    }

    pub fn remove(&mut self, at: usize) {
        self.unlink(at);
        let last = self.slots.len() - 1;
        if at != last {
            self.unlink(last);
        }
        let gone = self.slots.swap_remove(at);
        if at != last {
            self.link(at);
        }
        self.open -= gone.open();
        self.held_bytes -= gone.own_bytes() + gone.text_bytes();
        let text = match gone.ready {
            Ready::Whole { text, .. } => text,
            Ready::Open { head, .. } => head,
        };
        if Arc::strong_count(&text) > 1 {
            self.held_bytes += lent_bytes(&text);
            self.lent.push_back(text);
        }
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    fn link(&mut self, at: usize) {
        let chain = self.chain(self.slots[at].hash);
        self.slots[at].next = std::mem::replace(&mut self.chains[chain], at as u32);
    }

    fn unlink(&mut self, at: usize) {
        let next = self.slots[at].next;
        let chain = self.chain(self.slots[at].hash);
        let mut before = self.chains[chain];
        if before as usize == at {
            self.chains[chain] = next;
            return;
        }
        while let Some(slot) = self.slots.get_mut(before as usize) {
            if slot.next as usize == at {
                slot.next = next;
                return;
            }
            before = slot.next;
        }
    }
}

fn lent_bytes(text: &[u8]) -> usize {
    text.len() + 2 * size_of::<usize>() + PIECE_BYTES + LENT_BYTES
}

impl Slot {
    /// What the answer costs without its bytes.
    fn own_bytes(&self) -> usize {
        let file_bytes = match &self.ready {
            Ready::Whole { .. } => 0,
            Ready::Open { file, .. } => {
                size_of::<File>() + 2 * size_of::<usize>() + file.path.len() + 2 * PIECE_BYTES
            }
        };
        size_of::<Slot>() + self.path.len() + 2 * PIECE_BYTES + file_bytes
    }

    /// What its bytes cost, which may be sent for longer than they are kept.
    fn text_bytes(&self) -> usize {
        match &self.ready {
            Ready::Whole { text, .. } => lent_bytes(text),
            Ready::Open { head, .. } => lent_bytes(head),
        }
    }

    fn open(&self) -> usize {
        usize::from(matches!(self.ready, Ready::Open { .. }))
    }
}
