//! Small files that are asked for again and again: head and body ready to be sent, a copy for each worker.
//!
//! An answer is used for a second after its file was looked up, so that nothing is staler than that, and [`watch`]
//! hears of most changes at once. Who asks for one in the second half of its second gets it, and then the file is
//! looked up again: nobody waits for that as long as somebody asks twice a second. A file enters when it is asked
//! for a second time, so that a sweep over many files displaces nothing.

pub mod watch;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Version};
use ackpace_core::units::Instant;

use crate::limits::{
    HOT_COPY_BYTES_MAX, HOT_DUE_MAX, HOT_FILE_BYTES_MAX, HOT_GOOD_US, HOT_OPEN_MAX, HOT_SEEN_MAX,
};
use crate::store::file::File;

/// An answer that is ready to be sent.
#[derive(Clone, Debug)]
pub enum Ready {
    /// Head and body in one piece, for a file so short that a copy costs less than a second system call.
    Whole {
        /// All bytes of the answer.
        text: Arc<[u8]>,
        /// How many of them are its head.
        head_len_bytes: usize,
    },
    /// A head, and the file open for sendfile(2).
    Open {
        /// The whole head.
        head: Arc<[u8]>,
        /// The file.
        file: Arc<File>,
    },
}

impl Ready {
    /// An answer in one piece.
    pub fn whole(head: &[u8], body: &[u8]) -> Ready {
        Ready::Whole {
            text: [head, body].concat().into(),
            head_len_bytes: head.len(),
        }
    }

    /// The same file below another head.
    fn below(&self, head: &Arc<[u8]>) -> Ready {
        match self {
            Ready::Whole {
                text,
                head_len_bytes,
            } => Ready::whole(head, &text[*head_len_bytes..]),
            Ready::Open { file, .. } => Ready::Open {
                head: Arc::clone(head),
                file: Arc::clone(file),
            },
        }
    }
}

/// What an answer for a file depends on besides the file: what a plain request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The request target: a path, as it was sent.
    pub target: &'a [u8],
    /// The client keeps the connection; if not, the answer says that it ends.
    pub keep_alive: bool,
}

/// An answer whose file is to be looked up again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    target: Box<[u8]>,
    keep_alive: bool,
}

impl Due {
    /// Which answer.
    pub fn key(&self) -> Key<'_> {
        Key {
            target: &self.target,
            keep_alive: self.keep_alive,
        }
    }
}

/// Which content of which file an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The file.
    pub object: ObjectId,
    /// What it was.
    pub version: Version,
}

/// The cache: by [`Key`], bounded in bytes, in the order of the second chance (CLOCK, Corbató 1968).
pub struct Hot {
    budget_bytes: usize,
    held_bytes: usize,
    /// Files that are kept open.
    open: usize,
    /// Places in `slots` by target, of answers that end their connection and of those that keep it.
    by_target: [HashMap<Box<[u8]>, usize>; 2],
    slots: Vec<Slot>,
    due: Vec<Due>,
    hand: usize,
    /// Hashes of targets that were asked for once, by their low bits; a later one displaces an earlier one.
    seen: Box<[u64]>,
    hasher: RandomState,
}

struct Slot {
    target: Box<[u8]>,
    keep_alive: bool,
    content: Content,
    ready: Ready,
    looked_up: Instant,
    used: bool,
    due: bool,
}

/// What is known of a file's answer that might be kept.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Length of the file.
    pub len_bytes: u64,
    /// When it was last modified, seconds since 1970.
    pub modified_unix_s: i64,
    /// Others may get another answer for the same target.
    pub varies: bool,
}

/// How a body is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// As a copy, sent with its head.
    Copied,
    /// As an open file.
    Open,
}

impl Hot {
    /// An empty cache of `budget_bytes`; with 0 it stays empty.
    pub fn new(budget_bytes: u64) -> Hot {
        Hot {
            budget_bytes: usize::try_from(budget_bytes).unwrap_or(usize::MAX),
            held_bytes: 0,
            open: 0,
            by_target: Default::default(),
            slots: Vec::new(),
            due: Vec::new(),
            hand: 0,
            seen: vec![0; HOT_SEEN_MAX].into(),
            hasher: RandomState::new(),
        }
    }

    /// Whether it may ever hold anything.
    pub fn is_on(&self) -> bool {
        self.budget_bytes > 0
    }

    /// Files that it holds, and the memory that they take.
    pub fn held(&self) -> (u64, u64) {
        (self.slots.len() as u64, self.held_bytes as u64)
    }

    /// The answer, if its file was looked up within the last second.
    pub fn get(&mut self, key: Key<'_>, now: Instant) -> Option<(&Ready, &Content)> {
        let slot = &mut self.slots[*self.by_target[usize::from(key.keep_alive)].get(key.target)?];
        slot.used = true;
        let age_us = now.since_us(slot.looked_up);
        if age_us >= HOT_GOOD_US {
            return None;
        }
        if age_us >= HOT_GOOD_US / 2 && !slot.due && self.due.len() < HOT_DUE_MAX {
            slot.due = true;
            self.due.push(Due {
                target: key.target.into(),
                keep_alive: key.keep_alive,
            });
        }
        Some((&slot.ready, &slot.content))
    }

    /// An answer whose file is to be looked up again, when those who wait have got theirs.
    pub fn due(&mut self) -> Option<Due> {
        self.due.pop()
    }

    /// Whether an answer for this target, which was just looked up, is worth keeping, and how: it is the same for everybody, has
    /// been asked for before, and may ever fit in.
    pub fn wants(&mut self, key: Key<'_>, candidate: &Candidate, now_unix_s: u64) -> Option<Keep> {
        let len_bytes = candidate.len_bytes;
        if candidate.varies || len_bytes > HOT_FILE_BYTES_MAX || self.budget_bytes == 0 {
            return None;
        }
        // Its validators are weak while it may still change within the second.
        let old = candidate.modified_unix_s + 2 < now_unix_s as i64;
        if !(self.place(key).is_some() || self.asked_before(key.target)) || !old {
            return None;
        }
        match len_bytes {
            0..=HOT_COPY_BYTES_MAX => Some(Keep::Copied),
            _ => Some(Keep::Open),
        }
    }

    /// Whether the target was among the last to be asked for; from now on it is.
    fn asked_before(&mut self, target: &[u8]) -> bool {
        let hash = self.hasher.hash_one(target) | 1;
        let seen = &mut self.seen[(hash as usize >> 1) & (HOT_SEEN_MAX - 1)];
        std::mem::replace(seen, hash) == hash
    }

    /// What is kept for this content, below a new head, so that it need not be read again.
    pub fn renewed(&self, key: Key<'_>, content: &Content, head: &Arc<[u8]>) -> Option<Ready> {
        let slot = &self.slots[self.place(key)?];
        (slot.content == *content).then(|| slot.ready.below(head))
    }

    /// Keep an answer whose file was just looked up, in the place of an older one. What was longest unused makes room.
    pub fn keep(&mut self, key: Key<'_>, content: Content, ready: Ready, now: Instant) {
        self.drop_answer(key);
        let slot = Slot {
            target: key.target.into(),
            keep_alive: key.keep_alive,
            content,
            ready,
            looked_up: now,
            used: false,
            due: false,
        };
        let needed_bytes = slot.bytes();
        if needed_bytes > self.budget_bytes {
            return;
        }
        let open = slot.open();
        while self.held_bytes + needed_bytes > self.budget_bytes || self.open + open > HOT_OPEN_MAX
        {
            self.evict_one();
        }
        self.held_bytes += needed_bytes;
        self.open += open;
        self.by_target[usize::from(key.keep_alive)].insert(key.target.into(), self.slots.len());
        self.slots.push(slot);
    }

    /// Whether an answer for the target is kept, however old.
    pub fn holds(&self, target: &[u8]) -> bool {
        self.by_target
            .iter()
            .any(|places| places.contains_key(target))
    }

    /// Forget the answers for a target.
    pub fn forget(&mut self, target: &[u8]) {
        for keep_alive in [false, true] {
            self.drop_answer(Key { target, keep_alive });
        }
    }

    fn drop_answer(&mut self, key: Key<'_>) {
        if let Some(at) = self.place(key) {
            self.remove(at);
        }
    }

    fn place(&self, key: Key<'_>) -> Option<usize> {
        self.by_target[usize::from(key.keep_alive)]
            .get(key.target)
            .copied()
    }

    /// Forget everything.
    pub fn clear(&mut self) {
        self.by_target.iter_mut().for_each(HashMap::clear);
        self.slots.clear();
        self.due.clear();
        (self.held_bytes, self.open, self.hand) = (0, 0, 0);
    }

    fn evict_one(&mut self) {
        loop {
            self.hand = if self.hand < self.slots.len() {
                self.hand
            } else {
                0
            };
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.used) {
                return self.remove(self.hand);
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, at: usize) {
        let gone = self.slots.swap_remove(at);
        self.held_bytes -= gone.bytes();
        self.open -= gone.open();
        self.by_target[usize::from(gone.keep_alive)].remove(&gone.target);
        if let Some(moved) = self.slots.get(at) {
            let places = &mut self.by_target[usize::from(moved.keep_alive)];
            if let Some(place) = places.get_mut(&moved.target) {
                *place = at;
            }
        }
    }
}

impl Slot {
    /// What the slot costs, with what the tables need for it.
    fn bytes(&self) -> usize {
        const TABLES_BYTES: usize = 128;
        let Slot { target, ready, .. } = self;
        let ready_bytes = match ready {
            Ready::Whole { text, .. } => text.len(),
            Ready::Open { head, file } => head.len() + size_of::<File>() + file.path.len(),
        };
        size_of::<Slot>() + TABLES_BYTES + 2 * target.len() + ready_bytes
    }

    fn open(&self) -> usize {
        usize::from(matches!(self.ready, Ready::Open { .. }))
    }
}

#[cfg(test)]
mod tests;
