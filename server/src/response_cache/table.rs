//! The hash table of cached responses. `core/src/response_cache/second_chance.rs` decides what is evicted.

use std::collections::VecDeque;
use std::sync::Arc;

use ackpace_core::response_cache::{Cost, Costly, SecondChance, Space};
use ackpace_core::units::Instant;

use super::{CachedResponse, Content, Key};
use crate::store::file::File;

/// Evicted responses that are checked for being sent when a new one is cached: more than come in, so that none counts for
/// long after its last byte has left.
const LENT_CHECKED_MAX: usize = 2;

/// A cached response with its key.
pub(super) struct CachedSlot {
    /// The hash of the key, and the key.
    pub hash: u64,
    pub path: Box<[u8]>,
    pub keep_alive: bool,
    /// The file and version that it holds.
    pub content: Content,
    pub response: CachedResponse,
    pub found: Instant,
    /// The next slot of its chain.
    pub next: u32,
}

/// The end of a chain.
pub(super) const NONE: u32 = u32::MAX;

pub(super) struct ResponseTable {
    /// The responses, in no order: what is evicted is decided there.
    slots: SecondChance<CachedSlot>,
    /// The first slot of each chain.
    chains: Box<[u32]>,
    /// Bytes of evicted responses that are still being sent.
    lent: VecDeque<Arc<[u8]>>,
}

/// What the allocator adds to each allocation: its header and rounding.
const PIECE_BYTES: usize = 24;
/// An entry in the queue of lent bytes, which may have just doubled.
const LENT_BYTES: usize = 4 * size_of::<Arc<[u8]>>();

impl ResponseTable {
    pub fn new(budget_bytes: usize) -> ResponseTable {
        let mut slots = SecondChance::new(budget_bytes);
        let chains = vec![NONE; slots.places().next_power_of_two()];
        if slots.places() > 0 {
            slots.charge(size_of_val(&*chains));
        }
        ResponseTable {
            slots,
            chains: chains.into(),
            lent: VecDeque::new(),
        }
    }

    /// What decides on room and evicts. It has the slots, too.
    pub fn eviction(&mut self) -> &mut SecondChance<CachedSlot> {
        &mut self.slots
    }

    pub fn budget_bytes(&self) -> usize {
        self.slots.budget_bytes()
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn held_bytes(&self) -> usize {
        self.slots.held_bytes()
    }

    pub fn find(&self, hash: u64, key: &Key<'_>) -> Option<usize> {
        let mut at = self.chains[self.chain(hash)];
        while let Some(slot) = self.slots.get(at as usize) {
            if slot.hash == hash && slot.is_for(key) {
                return Some(at as usize);
            }
            at = slot.next;
        }
        None
    }

    /// Notes that a client was given this response.
    pub fn touch(&mut self, at: usize) {
        self.slots.touch(at);
    }

    pub fn slot(&mut self, at: usize) -> Option<&mut CachedSlot> {
        self.slots.get_mut(at)
    }

    /// Adds a response that is not there yet, and evicts others for it. Returns whether it fits.
    pub fn insert(&mut self, slot: CachedSlot) -> bool {
        let cost = slot.cost();
        let mut evicted = 0;
        loop {
            match self.slots.space(cost, evicted) {
                Space::Enough => break,
                Space::Evict(at) => self.remove(at),
                Space::None => return false,
            }
            evicted += 1;
        }
        self.slots.push(slot);
        self.link(self.slots.len() - 1);
        true
    }

    /// Evicts a response that was not used lately; returns whether there was one.
    pub fn evict(&mut self) -> bool {
        let victim = self.slots.victim();
        if let Some(at) = victim {
            self.remove(at);
        }
        victim.is_some()
    }

    /// Checks some lent bytes, and stops counting those that were sent.
    pub fn check_lent(&mut self) {
        for _ in 0..LENT_CHECKED_MAX {
            match self.lent.pop_front() {
                Some(text) if Arc::strong_count(&text) > 1 => self.lent.push_back(text),
                Some(text) => self.slots.discharge(lent_bytes(&text)),
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
        let text = match gone.response {
            CachedResponse::Whole { text, .. } => text,
            CachedResponse::Open { head, .. } => head,
        };
        if Arc::strong_count(&text) > 1 {
            self.slots.charge(lent_bytes(&text));
            self.lent.push_back(text);
        }
    }

    fn chain(&self, hash: u64) -> usize {
        hash as usize & (self.chains.len() - 1)
    }

    fn link(&mut self, at: usize) {
        let Some(hash) = self.slots.get(at).map(|slot| slot.hash) else {
            return;
        };
        let chain = self.chain(hash);
        let next = std::mem::replace(&mut self.chains[chain], at as u32);
        if let Some(slot) = self.slots.get_mut(at) {
            slot.next = next;
        }
    }

    fn unlink(&mut self, at: usize) {
        let Some((hash, next)) = self.slots.get(at).map(|slot| (slot.hash, slot.next)) else {
            return;
        };
        let chain = self.chain(hash);
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

impl Costly for CachedSlot {
    fn cost(&self) -> Cost {
        Cost {
            bytes: self.own_bytes() + self.text_bytes(),
            open_files: usize::from(matches!(self.response, CachedResponse::Open { .. })),
        }
    }
}

impl CachedSlot {
    fn is_for(&self, key: &Key<'_>) -> bool {
        *self.path == *key.path && self.keep_alive == key.keep_alive
    }

    /// Whether the bytes to be sent are those that the head describes. A copy has both.
    pub fn is_as_promised(&self) -> bool {
        match &self.response {
            CachedResponse::Whole { .. } => true,
            CachedResponse::Open { file, .. } => file.version() == Ok(self.content.version),
        }
    }

    /// What the response costs without its bytes.
    fn own_bytes(&self) -> usize {
        let file_bytes = match &self.response {
            CachedResponse::Whole { .. } => 0,
            CachedResponse::Open { file, .. } => {
                size_of::<File>() + 2 * size_of::<usize>() + file.path.len() + 2 * PIECE_BYTES
            }
        };
        SecondChance::<CachedSlot>::ENTRY_BYTES + self.path.len() + 2 * PIECE_BYTES + file_bytes
    }

    /// What its bytes cost, which may be sent for longer than they are cached.
    fn text_bytes(&self) -> usize {
        match &self.response {
            CachedResponse::Whole { text, .. } => lent_bytes(text),
            CachedResponse::Open { head, .. } => lent_bytes(head),
        }
    }
}
