//! The response cache: complete responses for small files that are requested often. Each worker has its own. Its memory is its part
//! of the option `object_cache`.
//!
//! `core/src/response_cache.rs` decides what enters and what is evicted. This file keeps the table.
//!
//! A response is believed for a second after its file was found ([`CACHED_FRESH_US`]). Then the ordinary path makes a new one, and
//! reads the body anew. An open file is asked for its version at each hit, since its bytes must be those that the head describes.

mod table;

use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Version};
use ackpace_core::response_cache::{Admission, Candidate, Form};
use ackpace_core::units::Instant;

use self::table::{CachedSlot, ResponseTable};
use crate::ledger::Ledger;
use crate::limits::{CACHED_FRESH_US, RESPONSES_SHED_MAX};
use crate::store::file::File;

/// A response, head and body, that can be sent at once.
#[derive(Clone, Debug)]
pub enum CachedResponse {
    /// Head and body in one buffer: copying so short a file costs less than a second system call.
    Whole {
        /// All bytes of the response.
        text: Arc<[u8]>,
        /// How many of them are its head.
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
}

/// The cache key: all that the response to a plain request depends on, besides the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key<'a> {
    /// The decoded and normalised path of the request target, so that all its spellings share one response.
    pub path: Cow<'a, [u8]>,
    /// The connection stays open after the response; if not, the response says so.
    pub keep_alive: bool,
}

/// The file and its version that a response holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// The file, as the machines know it.
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
}

/// The cache, by [`Key`], bounded in bytes.
pub struct ResponseCache {
    /// The account that the memory comes from, a step at a time; `None`: the cache may use all of its budget at once.
    ledger: Option<Arc<Ledger>>,
    table: ResponseTable,
    admission: Admission,
    /// Hashes keys, for the table and for admission.
    hasher: RandomState,
    /// When to look for open files whose second is over; `None`: none is open.
    closes_at: Option<Instant>,
}

impl ResponseCache {
    /// An empty cache of `budget_bytes`; with 0 it stays empty.
    pub fn new(budget_bytes: u64) -> ResponseCache {
        ResponseCache {
            ledger: None,
            table: ResponseTable::new(usize::try_from(budget_bytes).unwrap_or(usize::MAX)),
            admission: Admission::default(),
            hasher: RandomState::new(),
            closes_at: None,
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

    /// The response, if its file was found within the last second.
    pub fn get(&mut self, key: &Key<'_>, now: Instant) -> Option<Hit<'_>> {
        let at = self.table.find(self.hash(key), key)?;
        let slot = self.table.slot(at)?;
        if now.since_us(slot.found) >= CACHED_FRESH_US {
            return None; // it stays: a copy that is here says that its successor is worth caching
        }
        if !slot.is_as_promised() {
            self.table.remove(at);
            return None;
        }
        self.table.touch(at);
        let slot = self.table.slot(at)?;
        Some(Hit {
            response: &slot.response,
            content: &slot.content,
        })
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

    /// Caches a response whose file was just found; responses that were not used lately make room. An older one for the same key goes
    /// in any case. Returns whether the new one is cached.
    pub fn keep(
        &mut self,
        key: &Key<'_>,
        content: Content,
        response: CachedResponse,
        now: Instant,
    ) -> bool {
        self.forget(key);
        self.grow();
        self.table.check_lent();
        if matches!(response, CachedResponse::Open { .. }) {
            self.closes_at = self.closes_at.or(Some(now.plus_us(CACHED_FRESH_US)));
        }
        self.table.insert(CachedSlot {
            hash: self.hash(key),
            path: (*key.path).into(),
            keep_alive: key.keep_alive,
            content,
            response,
            found: now,
            next: table::NONE,
        })
    }

    /// Removes a response.
    pub fn forget(&mut self, key: &Key<'_>) {
        if let Some(at) = self.table.find(self.hash(key), key) {
            self.table.remove(at);
        }
    }

    /// When to call [`ResponseCache::close_files`].
    pub fn closes_at(&self) -> Option<Instant> {
        self.closes_at
    }

    /// Removes responses with an open file whose second is over: the file may be deleted, and its space or its mount wait for that.
    pub fn close_files(&mut self, now: Instant) {
        if self.closes_at.is_none_or(|at| now < at) {
            return;
        }
        let mut oldest: Option<Instant> = None;
        for at in (0..self.table.len()).rev() {
            match self.table.slot(at) {
                Some(slot) if matches!(slot.response, CachedResponse::Open { .. }) => {
                    if now.since_us(slot.found) < CACHED_FRESH_US {
                        oldest = Some(oldest.map_or(slot.found, |oldest| oldest.min(slot.found)));
                    } else {
                        self.table.remove(at);
                    }
                }
                _ => {}
            }
        }
        self.closes_at = oldest.map(|found| found.plus_us(CACHED_FRESH_US));
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
        hasher.write_u8(key.keep_alive.into()); // of a fixed length, so no two keys feed the same bytes
        hasher.finish()
    }
}

#[cfg(test)]
mod tests;
