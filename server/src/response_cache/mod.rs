//! The response cache: complete responses of small files that are requested again and again, a copy for each worker.
//!
//! `core/src/response_cache.rs` decides what enters, what is evicted, and how long a response may be used after its file was
//! looked up. A copied body is read anew at each look-up, so that nothing is staler than that, whoever writes the file and
//! however: a mapped page, or a stalled write, changes no time when its bytes change, and not every file system can tell
//! whether there is one. [`watch`] hears of most changes at once.

pub mod changes;
mod table;
pub mod watch;

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Version};
use ackpace_core::response_cache::{Admission, Candidate, Form, Freshness};
use ackpace_core::units::Instant;

use self::changes::{Changes, Moment, Sight};
use self::table::{ResponseTable, Slot};
use crate::ledger::Ledger;
use crate::limits::RESPONSES_SHED_MAX;
use crate::store::file::File;

/// An answer that is ready to be sent.
#[derive(Clone, Debug)]
pub enum CachedResponse {
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

impl CachedResponse {
    /// An answer in one piece.
    pub fn whole(head: &[u8], body: &[u8]) -> CachedResponse {
        CachedResponse::Whole {
            text: [head, body].concat().into(),
            head_len_bytes: head.len(),
        }
    }

    /// Whether its file is what its head says, as far as that can be asked: one that is open may have been written to since.
    fn holds(&self, content: &Content) -> bool {
        match self {
            CachedResponse::Whole { .. } => true,
            CachedResponse::Open { file, .. } => file.version() == Ok(content.version),
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
pub struct Hit<'a> {
    /// The answer.
    pub ready: &'a CachedResponse,
    /// Of what.
    pub content: &'a Content,
    /// A file that is open was compared with `content` just now.
    pub proven_now: bool,
}

/// The cache: by [`Key`], bounded in bytes.
pub struct ResponseCache {
    /// Who else wants the memory; `None`: the budget is ours.
    ledger: Option<Arc<Ledger>>,
    table: ResponseTable,
    changes: Changes,
    due: Vec<Key<'static>>,
    admission: Admission,
    hasher: RandomState,
}

/// An answer that was just made.
pub struct Made {
    /// Of what.
    pub content: Content,
    /// The answer.
    pub ready: CachedResponse,
    /// When its file was looked up.
    pub moment: Moment,
    /// Where its file is watched; `None`: it is not.
    pub sight: Option<Sight>,
}

impl ResponseCache {
    /// An empty cache of `budget_bytes`; with 0 it stays empty.
    pub fn new(budget_bytes: u64) -> ResponseCache {
        ResponseCache {
            ledger: None,
            table: ResponseTable::new(usize::try_from(budget_bytes).unwrap_or(usize::MAX)),
            changes: Changes::default(),
            due: Vec::new(),
            admission: Admission::default(),
            hasher: RandomState::new(),
        }
    }

    /// The same, which takes its budget from the ledger step by step, when it uses it.
    pub fn on(mut self, ledger: Arc<Ledger>) -> ResponseCache {
        self.table.bounds().close();
        ledger.take(self.held().1);
        self.ledger = Some(ledger);
        self
    }

    /// Take one more step of the budget, if that is needed and there.
    fn grow(&mut self) {
        let bounds = self.table.bounds();
        if let (Some(ledger), Some(step_bytes)) = (&self.ledger, bounds.step_bytes()) {
            if ledger.claim(step_bytes as u64) {
                bounds.allow(step_bytes);
            }
        }
    }

    /// Whether it may ever hold anything.
    pub fn is_on(&self) -> bool {
        self.table.budget_bytes() > 0
    }

    /// Answers that it holds, and the memory that they and its table take: never more than its budget.
    pub fn held(&self) -> (u64, u64) {
        (self.table.len() as u64, self.table.held_bytes() as u64)
    }

    /// What is known of changes, for who hears of them.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The answer, if its file was looked up within the last second and nothing is known to have changed since.
    pub fn get(&mut self, key: &Key<'_>, now: Instant) -> Option<Hit<'_>> {
        let at = self.table.find(self.hash(key), key)?;
        let slot = self.table.slot(at)?;
        if !slot.freshness.is_fresh(now) || is_old(&self.changes, slot) {
            return None;
        }
        let proven_now = slot.freshness.needs_comparison(now);
        if proven_now && !slot.ready.holds(&slot.content) {
            return None;
        }
        slot.freshness.compared(now);
        if slot.freshness.falls_due(now, self.due.len()) {
            self.due.push(key.clone().into_owned());
        }
        self.table.touch(at);
        let slot = self.table.slot(at)?;
        Some(Hit {
            ready: &slot.ready,
            content: &slot.content,
            proven_now,
        })
    }

    /// An answer whose file is to be looked up again, when those who wait have got theirs.
    pub fn due(&mut self) -> Option<Key<'static>> {
        self.due.pop()
    }

    /// Whether an answer for this path, which was just looked up, is to be cached, and how.
    pub fn wants(&mut self, key: &Key<'_>, candidate: &Candidate, now_unix_s: u64) -> Option<Form> {
        if !self.is_on() {
            return None;
        }
        let hash = self.hash(key);
        let is_cached = self.table.find(hash, key).is_some();
        self.admission.admit(hash, is_cached, candidate, now_unix_s)
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
            freshness: Freshness::new(made.moment.at),
            sight: made.sight,
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
        for _ in 0..RESPONSES_SHED_MAX {
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
