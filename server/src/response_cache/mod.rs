//! The response cache: complete responses for small files that are requested often. Each worker has its own. Its memory is its part
//! of the option `object_cache`.
//!
//! `core/src/response_cache.rs` decides what enters, what is evicted, and for how long a response may be used after its file was
//! looked up: a second (`CACHED_FRESH_US`). This file keeps the table, and does what is decided.
//!
//! | a cached response | its body | how it follows the file |
//! |---|---|---|
//! | [`CachedResponse::Whole`] | a copy | each look-up reads the body again, so no copy is older than that second |
//! | [`CachedResponse::Open`] | an open file | the first hit of a turn compares the file with the version in the head |
//!
//! [`watch`] reports most changes at once (inotify(7)), and [`changes`] says which responses they make old. The second bounds
//! what inotify misses: bytes that are written through a mapped page, or late, change no time stamp when they change, and not
//! every file system reports such writes.
//!
//! A turn is a pass of the worker's loop; `now` stays the same in it.

pub mod changes;
mod table;
pub mod watch;

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Version};
use ackpace_core::response_cache::{Admission, Candidate, Form, Freshness};
use ackpace_core::units::Instant;

use self::changes::{Changes, LookedUpAt, WatchState};
use self::table::{CachedSlot, ResponseTable};
use crate::ledger::Ledger;
use crate::limits::RESPONSES_SHED_MAX;
use crate::store::file::File;
use crate::store::files::SiteId;

/// A response, head and body, that can be sent at once.
#[derive(Clone, Debug)]
pub enum CachedResponse {
    /// Head and body in one buffer: copying so short a file costs less than a second system call.
    Whole {
        /// All bytes of the response.
        text: Arc<[u8]>,
        /// The length of its head.
        head_len_bytes: usize,
    },
    /// A head, and an open file for sendfile(2).
    Open {
        /// The whole head.
        head: Arc<[u8]>,
        /// The file.
        file: Arc<File>,
    },
}

impl CachedResponse {
    /// A response in one buffer.
    pub fn whole(head: &[u8], body: &[u8]) -> CachedResponse {
        CachedResponse::Whole {
            text: [head, body].concat().into(),
            head_len_bytes: head.len(),
        }
    }

    /// Whether the body is still the version that the head describes. A copy always is; an open file may have been written to
    /// since, so the kernel is asked.
    fn is_current(&self, content: &Content) -> bool {
        match self {
            CachedResponse::Whole { .. } => true,
            CachedResponse::Open { file, .. } => file.version() == Ok(content.version),
        }
    }
}

/// The cache key: all that the response to a plain request depends on, besides the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The site that was asked: the same path is another file in another one.
    pub site: SiteId,
    /// The decoded and normalised path of the request target, so that all its spellings share one response.
    pub path: Cow<'a, [u8]>,
    /// The connection stays open after the response; if not, the response says so.
    pub keep_alive: bool,
}

impl Key<'_> {
    fn into_owned(self) -> Key<'static> {
        Key {
            site: self.site,
            path: self.path.into_owned().into(),
            keep_alive: self.keep_alive,
        }
    }
}

/// The file and its version that a response holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The file.
    pub object: ObjectId,
    /// Its version.
    pub version: Version,
}

/// A response found in the cache.
pub struct Hit<'a> {
    /// The response.
    pub response: &'a CachedResponse,
    /// What it holds.
    pub content: &'a Content,
    /// For an open file: this call has compared it with `content`. `false` after another hit of this turn did. Says nothing of a
    /// copy.
    pub compared_now: bool,
}

/// The cache, by [`Key`], bounded in bytes.
pub struct ResponseCache {
    /// The account that the memory comes from, a step at a time; `None`: the cache may use all of its budget at once.
    ledger: Option<Arc<Ledger>>,
    /// The responses.
    table: ResponseTable,
    /// What has changed of the watched files and directories.
    changes: Changes,
    /// Responses whose files are to be looked up again at the end of this turn.
    due: Vec<Key<'static>>,
    /// Which responses are worth caching.
    admission: Admission,
    /// Hashes keys, for the table and for admission.
    hasher: RandomState,
}

/// A response that was just made.
pub struct Made {
    /// What it holds.
    pub content: Content,
    /// The response.
    pub response: CachedResponse,
    /// When the look-up of its file began.
    pub looked_up: LookedUpAt,
    /// The last events of its directory and its file before the look-up; `None`: they are not watched.
    pub watch_state: Option<WatchState>,
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

    /// Takes the memory from the ledger: now what the empty table needs, and later the budget step by step (`Self::grow`).
    pub fn with_ledger(mut self, ledger: Arc<Ledger>) -> ResponseCache {
        self.table.eviction().use_no_more();
        ledger.take(self.held().1);
        self.ledger = Some(ledger);
        self
    }

    /// Takes one more step of the budget if it is needed and available.
    fn grow(&mut self) {
        let eviction = self.table.eviction();
        if let (Some(ledger), Some(step_bytes)) = (&self.ledger, eviction.step_bytes()) {
            if ledger.claim(step_bytes as u64) {
                eviction.allow(step_bytes);
            }
        }
    }

    /// Whether the cache may hold anything at all.
    pub fn is_on(&self) -> bool {
        self.table.budget_bytes() > 0
    }

    /// The number of cached responses, and the memory that they and the table take: never more than the budget.
    pub fn held(&self) -> (u64, u64) {
        (self.table.len() as u64, self.table.held_bytes() as u64)
    }

    /// The record of file changes.
    pub fn changes(&mut self) -> &mut Changes {
        &mut self.changes
    }

    /// The response, if its file was looked up within the last second and is not known to have changed since. An open file is
    /// compared with the version in its head, once a turn. Notes the response for a new look-up if that is due.
    pub fn get(&mut self, key: &Key<'_>, now: Instant) -> Option<Hit<'_>> {
        let at = self.table.find(self.hash(key), key)?;
        let slot = self.table.slot(at)?;
        if !slot.freshness.is_fresh(now) || is_old(&self.changes, slot) {
            return None;
        }
        let compared_now = slot.freshness.needs_comparison(now);
        if compared_now {
            // A copy is current unasked.
            if !slot.response.is_current(&slot.content) {
                return None;
            }
            slot.freshness.compared(now);
        }
        if slot.freshness.falls_due(now, self.due.len()) {
            self.due.push(key.clone().into_owned());
        }
        self.table.touch(at);
        let slot = self.table.slot(at)?;
        Some(Hit {
            response: &slot.response,
            content: &slot.content,
            compared_now,
        })
    }

    /// A key whose file is due to be looked up again, once the clients of this turn have their responses.
    pub fn due(&mut self) -> Option<Key<'static>> {
        self.due.pop()
    }

    /// Whether to cache the response for this path, which was just looked up, and in which form.
    pub fn wants(&mut self, key: &Key<'_>, candidate: &Candidate, now_unix_s: u64) -> Option<Form> {
        if !self.is_on() {
            return None;
        }
        let hash = self.hash(key);
        let is_cached = self.table.find(hash, key).is_some();
        self.admission.admit(hash, is_cached, candidate, now_unix_s)
    }

    /// Caches a response; responses that were not used lately make room. An older one for the same key goes in any case. Returns
    /// whether the new one is cached.
    pub fn keep(&mut self, key: &Key<'_>, made: Made) -> bool {
        self.forget(key);
        let state = made.watch_state;
        if state.is_some_and(|state| !self.changes.is_unchanged_since(state)) {
            return false; // its file has changed since the look-up, or is watched only since then
        }
        self.grow();
        let changes = &self.changes;
        self.table.sweep(|slot| is_old(changes, slot));
        self.table.insert(CachedSlot {
            hash: self.hash(key),
            site: key.site,
            path: (*key.path).into(),
            keep_alive: key.keep_alive,
            content: made.content,
            response: made.response,
            freshness: Freshness::new(made.looked_up.at),
            watch_state: made.watch_state,
            next: table::NONE,
        })
    }

    /// Removes a response.
    pub fn forget(&mut self, key: &Key<'_>) {
        if let Some(at) = self.table.find(self.hash(key), key) {
            self.table.remove(at);
        }
    }

    /// Evicts some responses, since memory or descriptors are short.
    pub fn shed(&mut self) {
        for _ in 0..RESPONSES_SHED_MAX {
            if !self.table.evict() {
                break;
            }
        }
    }

    fn hash(&self, key: &Key<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(&key.path);
        // Of a fixed length, so no two keys feed the same bytes; one call costs as much as eight bytes of a path.
        hasher.write_u64(u64::from(key.site.number()) << 1 | u64::from(key.keep_alive));
        hasher.finish()
    }
}

/// Whether the file is known to have changed since the response was made.
fn is_old(changes: &Changes, slot: &CachedSlot) -> bool {
    let state = slot.watch_state;
    state.is_some_and(|state| !changes.is_unchanged_since(state))
}

#[cfg(test)]
mod tests;
