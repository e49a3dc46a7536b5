//! A response that was used since the hand last came by is kept once more. All memory is counted: the table from the
//! start, a response when it enters, and an evicted one that is still being sent until that is over.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::limits::{
    CACHED_COPY_BYTES_MAX, CACHED_OPEN_MAX, CACHED_PATH_BYTES_MAX, CACHED_RESPONSE_BYTES_MIN,
    CACHED_RESPONSES_MAX, CLOCK_STEPS_MAX, EVICTIONS_MAX, RESPONSE_CACHE_STEP_BYTES,
};

/// No response is longer, its path and its head with it.
const NEXT_BYTES: usize = CACHED_COPY_BYTES_MAX as usize + 2 * CACHED_PATH_BYTES_MAX + (4 << 10);

/// What a response takes while it is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Memory, all of it.
    pub bytes: usize,
    /// Files that it keeps open: 0 or 1.
    pub open_files: usize,
}

/// The cost of a response, which stays the same while it is cached.
pub trait Costly {
    /// What it takes, including [`SecondChance::ENTRY_BYTES`].
    fn cost(&self) -> Cost;
}

/// Whether there is room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// It fits.
    Enough,
    /// This one has to be removed first; then ask again.
    Evict(usize),
    /// It does not fit, and enough were evicted for it.
    None,
}

/// The cached responses, by index. Removing one moves the last into its place.
pub struct SecondChance<T> {
    /// What it may ever hold.
    budget_bytes: usize,
    /// What it may hold of that now.
    allowed_bytes: usize,
    held_bytes: usize,
    open_files: usize,
    /// Room for as many as it may ever hold, from the start: it never grows, so no turn has to move it. Boxed, since a
    /// free slot then costs 8 bytes, not the 200 of a response.
    entries: Vec<Box<CacheEntry<T>>>,
    hand: usize,
}

struct CacheEntry<T> {
    response: T,
    /// Used since the hand last came by.
    used: bool,
}

impl<T: Costly> SecondChance<T> {
    /// What a response takes here.
    pub const ENTRY_BYTES: usize = size_of::<CacheEntry<T>>();

    /// Nothing is cached yet, and all of the budget may be used.
    pub fn new(budget_bytes: usize) -> SecondChance<T> {
        let places = places_in(budget_bytes);
        SecondChance {
            budget_bytes,
            allowed_bytes: budget_bytes,
            held_bytes: places * size_of::<Box<CacheEntry<T>>>(),
            open_files: 0,
            entries: Vec::with_capacity(places),
            hand: 0,
        }
    }

    /// Responses that it ever holds at most.
    pub fn places(&self) -> usize {
        places_in(self.budget_bytes)
    }

    /// Responses that it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Memory that is taken now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// What it may ever hold.
    pub fn budget_bytes(&self) -> usize {
        self.budget_bytes
    }

    /// Uses no more than is held now, until [`SecondChance::allow`] returns the budget step by step.
    pub fn use_no_more(&mut self) {
        self.allowed_bytes = self.held_bytes;
    }

    /// The step of the budget to ask for, if the next response may otherwise have to evict another one.
    pub fn step_bytes(&self) -> Option<usize> {
        let left_bytes = self.budget_bytes.saturating_sub(self.allowed_bytes);
        let nearly_full = self.held_bytes + NEXT_BYTES > self.allowed_bytes;
        (left_bytes > 0 && nearly_full).then_some(left_bytes.min(RESPONSE_CACHE_STEP_BYTES))
    }

    /// This much more of the budget may be used.
    pub fn allow(&mut self, step_bytes: usize) {
        self.allowed_bytes = self.budget_bytes.min(self.allowed_bytes + step_bytes);
    }

    /// A response.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.entries.get(at).map(|entry| &entry.response)
    }

    /// A response, to be changed without changing its cost.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.entries.get_mut(at).map(|entry| &mut entry.response)
    }

    /// A client was sent this response: it earns a second chance.
    pub fn touch(&mut self, at: usize) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.used = true;
        }
    }

    /// Whether there is room for a response of this cost, for which `evicted` were evicted before.
    pub fn space(&mut self, cost: Cost, evicted: usize) -> Space {
        if self.fits(cost) {
            return Space::Enough;
        }
        if evicted >= EVICTIONS_MAX {
            return Space::None;
        }
        self.victim().map_or(Space::None, Space::Evict)
    }

    fn fits(&self, cost: Cost) -> bool {
        self.held_bytes + cost.bytes <= self.allowed_bytes
            && self.open_files + cost.open_files <= CACHED_OPEN_MAX
            && self.entries.len() < self.places()
    }

    /// The next one to be evicted: one not used recently, or the last one examined.
    pub fn victim(&mut self) -> Option<usize> {
        if self.entries.is_empty() {
            return None;
        }
        for _ in 0..CLOCK_STEPS_MAX {
            self.hand %= self.entries.len();
            if !core::mem::take(&mut self.entries[self.hand].used) {
                break;
            }
            self.hand += 1;
        }
        Some(self.hand % self.entries.len())
    }

    /// Adds a response for which [`SecondChance::space`] said [`Space::Enough`]; its index is that of the last.
    pub fn push(&mut self, response: T) {
        let cost = response.cost();
        debug_assert!(self.fits(cost), "room is made before");
        self.held_bytes += cost.bytes;
        self.open_files += cost.open_files;
        let used = false;
        self.entries.push(Box::new(CacheEntry { response, used }));
    }

    /// Removes a response; the last one moves into its place.
    pub fn swap_remove(&mut self, at: usize) -> T {
        let gone = self.entries.swap_remove(at).response;
        let cost = gone.cost();
        self.held_bytes -= cost.bytes;
        self.open_files -= cost.open_files;
        gone
    }

    /// Counts memory that belongs to no response here: the shell's tables, and what is still being sent.
    pub fn charge(&mut self, bytes: usize) {
        self.held_bytes += bytes;
    }

    /// Such memory is free again.
    pub fn discharge(&mut self, bytes: usize) {
        self.held_bytes -= bytes;
    }
}

fn places_in(budget_bytes: usize) -> usize {
    (budget_bytes / CACHED_RESPONSE_BYTES_MIN).min(CACHED_RESPONSES_MAX)
}

#[cfg(test)]
mod tests;
