//! Small files that are asked for again and again: head and body ready to be sent, a copy for each worker.
//!
//! An answer is used for a second after its file was looked up, and a copied body is read anew each time that happens, so
//! that nothing is staler than that, whoever writes the file and however: a page that is mapped, or a stalled write, changes no
//! time when its bytes change, and not every file system can tell whether there is one. [`watch`] hears of most changes at
//! once. Who asks for an answer in the second half of its second gets it, and then the file is looked up again: nobody
//! waits for that as long as somebody asks twice a second. A file enters when it is asked for a second time, so that a
//! sweep over many files displaces nothing.

pub mod changes;
mod table;
pub mod watch;

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Version};
use ackpace_core::units::Instant;

use self::changes::{Changes, Moment, Sight};
use self::table::{Slot, Table};
use crate::ledger::Ledger;
use crate::limits::{
    HOT_COPY_BYTES_MAX, HOT_DUE_MAX, HOT_FILE_BYTES_MAX, HOT_GOOD_US, HOT_PATH_BYTES_MAX,
    HOT_SEEN_MAX, HOT_SHED_MAX, HOT_STEP_BYTES,
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

    /// Whether its file is what its head says, as far as that can be asked: one that is open may have been written to since.
    fn holds(&self, content: &Content) -> bool {
        match self {
            Ready::Whole { .. } => true,
            Ready::Open { file, .. } => file.version() == Ok(content.version),
        }
    }
}

/// What an answer for a file depends on besides the file: what a plain request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The path that the request target means, decoded and normal: all its spellings have one answer.
    pub path: Cow<'a, [u8]>,
    /// The client keeps the connection; if not, the answer says that it ends.
    pub keep_alive: bool,
}

impl Key<'_> {
    fn into_owned(self) -> Key<'static> {
        Key {
            path: self.path.into_owned().into(),
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

/// An answer that is kept.
pub struct Found<'a> {
    /// The answer.
    pub ready: &'a Ready,
    /// Of what.
    pub content: &'a Content,
    /// A file that is open was compared with `content` just now.
    pub proven_now: bool,
}

/// The cache: by [`Key`], bounded in bytes.
pub struct Hot {
    budget_bytes: usize,
    /// What it may hold of that now.
    allowed_bytes: usize,
    /// Who else wants the memory; `None`: the budget is ours.
    ledger: Option<Arc<Ledger>>,
    table: Table,
    changes: Changes,
    due: Vec<Key<'static>>,
    /// Hashes of paths that were asked for once, by their low bits; a later one displaces an earlier one.
    seen: Box<[u64]>,
    hasher: RandomState,
}

/// What is known of a file's answer that might be kept.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Length of the file.
    pub len_bytes: u64,
    /// When it was last changed, seconds since 1970: the later of mtime and ctime.
    pub changed_unix_s: i64,
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

/// An answer that was just made.
pub struct Made {
    /// Of what.
    pub content: Content,
    /// The answer.
    pub ready: Ready,
    /// When its file was looked up.
    pub moment: Moment,
    /// Where its file is watched; `None`: it is not.
    pub sight: Option<Sight>,
}

impl Hot {
    /// An empty cache of `budget_bytes`; with 0 it stays empty.
    pub fn new(budget_bytes: u64) -> Hot {
        let budget_bytes = usize::try_from(budget_bytes).unwrap_or(usize::MAX);
        Hot {
            budget_bytes,
            allowed_bytes: budget_bytes,
            ledger: None,
            table: Table::new(budget_bytes),
            changes: Changes::default(),
            due: Vec::new(),
            seen: vec![0; HOT_SEEN_MAX].into(),
            hasher: RandomState::new(),
        }
    }

    /// The same, which takes its budget from the ledger step by step, when it uses it.
    pub fn on(mut self, ledger: Arc<Ledger>) -> Hot {
        self.allowed_bytes = self.held().1 as usize;
        self.table.allow(self.allowed_bytes);
        ledger.take(self.allowed_bytes as u64);
        self.ledger = Some(ledger);
        self
    }

    /// Take one more step of the budget, if that is needed and there.
    fn grow(&mut self) {
        let step_bytes = (self.budget_bytes.saturating_sub(self.allowed_bytes)).min(HOT_STEP_BYTES);
        let needed = step_bytes > 0 && self.table.is_nearly_full();
        let ledger = self.ledger.as_ref().filter(|_| needed);
        if ledger.is_some_and(|ledger| ledger.claim(step_bytes as u64)) {
            self.allowed_bytes += step_bytes;
            self.table.allow(self.allowed_bytes);
        }
    }

    /// Whether it may ever hold anything.
    pub fn is_on(&self) -> bool {
        self.budget_bytes > 0
    }

    /// Answers that it holds, and the memory that they and its table take: never more than its budget.
    pub fn held(&self) -> (u64, u64) {
        if !self.is_on() {
            return (0, 0);
        }
        (self.table.len() as u64, self.table.held_bytes() as u64)
    }

    /// What is known of changes, for who hears of them.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The answer, if its file was looked up within the last second and nothing is known to have changed since.
    pub fn get(&mut self, key: &Key<'_>, now: Instant) -> Option<Found<'_>> {
        let slot = self.table.slot(self.table.find(self.hash(key), key)?);
        let age_us = now.since_us(slot.looked_up);
        if age_us >= HOT_GOOD_US || is_old(&self.changes, slot) {
            return None;
        }
        // Once a turn: asking costs a tenth of such an answer.
        let proven_now = slot.proven != now;
        if proven_now && !slot.ready.holds(&slot.content) {
            return None;
        }
        (slot.used, slot.proven) = (true, now);
        if age_us >= HOT_GOOD_US / 2 && !slot.due && self.due.len() < HOT_DUE_MAX {
            slot.due = true;
            self.due.push(key.clone().into_owned());
        }
        Some(Found {
            ready: &slot.ready,
            content: &slot.content,
            proven_now,
        })
    }

    /// An answer whose file is to be looked up again, when those who wait have got theirs.
    pub fn due(&mut self) -> Option<Key<'static>> {
        self.due.pop()
    }

    /// Whether an answer for this path, which was just looked up, is worth keeping, and how: it is the same for everybody, has
    /// been asked for before, and may ever fit in.
    pub fn wants(&mut self, key: &Key<'_>, candidate: &Candidate, now_unix_s: u64) -> Option<Keep> {
        let len_bytes = candidate.len_bytes;
        let long = len_bytes > HOT_FILE_BYTES_MAX || key.path.len() > HOT_PATH_BYTES_MAX;
        if candidate.varies || long || self.budget_bytes == 0 {
            return None;
        }
        // Its validators are weak while it may still change within the second.
        let old = candidate.changed_unix_s.saturating_add(2) < now_unix_s as i64;
        let hash = self.hash(key);
        if !(self.table.find(hash, key).is_some() || self.asked_before(hash)) || !old {
            return None;
        }
        match len_bytes {
            0..=HOT_COPY_BYTES_MAX => Some(Keep::Copied),
            _ => Some(Keep::Open),
        }
    }

    /// Whether the path was among the last to be asked for; from now on it is.
    fn asked_before(&mut self, hash: u64) -> bool {
        let hash = hash | 1;
        let seen = &mut self.seen[(hash as usize >> 1) & (HOT_SEEN_MAX - 1)];
        std::mem::replace(seen, hash) == hash
    }

    /// Keep an answer whose file was looked up lately, in the place of an older one. What was longest unused makes room. Says
    /// whether it is kept.
    pub fn keep(&mut self, key: &Key<'_>, made: Made) -> bool {
        self.forget(key);
        if made.sight.is_some_and(|sight| !self.changes.still(sight)) {
            return false; // it changed, or was not watched yet
        }
        self.grow();
        let changes = &self.changes;
        self.table.sweep(|slot| is_old(changes, slot));
        self.table.insert(Slot {
            hash: self.hash(key),
            path: (*key.path).into(),
            keep_alive: key.keep_alive,
            content: made.content,
            ready: made.ready,
            looked_up: made.moment.at,
            proven: made.moment.at,
            sight: made.sight,
            used: false,
            due: false,
            next: table::NONE,
        })
    }

    /// Forget an answer.
    pub fn forget(&mut self, key: &Key<'_>) {
        if let Some(at) = self.table.find(self.hash(key), key) {
            self.table.remove(at);
        }
    }

    /// Give back memory and descriptors, some at a time.
    pub fn shed(&mut self) {
        for _ in 0..HOT_SHED_MAX {
            if !self.table.evict() {
                break;
            }
        }
    }

    fn hash(&self, key: &Key<'_>) -> u64 {
        self.hasher.hash_one((&*key.path, key.keep_alive))
    }
}

/// Whether a change was heard of since the answer was made.
fn is_old(changes: &Changes, slot: &Slot) -> bool {
    slot.sight.is_some_and(|sight| !changes.still(sight))
}

#[cfg(test)]
mod tests;
