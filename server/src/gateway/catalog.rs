//! The table of targets: which object an origin has at each, as far as that was asked lately.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ackpace_wire::http::caching::Use;

use super::object::Object;

/// Entries that are looked at for one that makes room. More: the last one goes, used or not.
const LOOKS_MAX: usize = 32;
/// How long a target is known to have nothing that can be kept; its requests are not gathered meanwhile.
const PASSED_S: u64 = 30;
/// Memory of an entry besides its object's: its key twice, and its places in the table and the queue.
const ENTRY_BYTES: usize = 160;

/// What is known of a target.
#[derive(Clone, Debug)]
pub enum LookUp {
    /// An object, which may be sent at once.
    Fresh(Arc<Object>),
    /// An object that has to be asked about. It may be sent meanwhile if that is said.
    Stale(Arc<Object>, bool),
    /// Nothing that can be kept.
    Passes,
    Unknown,
}

enum Kept {
    Object(Arc<Object>),
    Passes { until_unix_s: u64 },
}

struct Entry {
    kept: Kept,
    used: AtomicBool,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Arc<[u8]>, Entry>,
    by_age: VecDeque<Arc<[u8]>>,
    held_bytes: usize,
    purges: u64,
}

/// The table. In a full one, what was not asked for since it was looked at last makes room (second chance).
pub struct Catalog {
    table: RwLock<Table>,
    bytes_max: usize,
}

impl Catalog {
    /// An empty table that holds so many bytes at most.
    pub fn new(bytes_max: usize) -> Catalog {
        Catalog {
            table: RwLock::default(),
            bytes_max,
        }
    }

    pub fn look_up(&self, target: &[u8], now_unix_s: u64) -> LookUp {
        let table = self.read();
        let Some(entry) = table.entries.get(target) else {
            return LookUp::Unknown;
        };
        entry.used.store(true, Ordering::Relaxed);
        match &entry.kept {
            Kept::Passes { until_unix_s } if now_unix_s < *until_unix_s => LookUp::Passes,
            Kept::Passes { .. } => LookUp::Unknown,
            Kept::Object(object) if object.is_changed() => LookUp::Unknown,
            Kept::Object(object) => {
                let found = Arc::clone(object);
                match object.validity().usable(now_unix_s) {
                    Use::Fresh => LookUp::Fresh(found),
                    Use::WhileRevalidating => LookUp::Stale(found, true),
                    Use::Revalidate => LookUp::Stale(found, false),
                }
            }
        }
    }

    /// How often targets were forgotten.
    pub fn purges(&self) -> u64 {
        self.read().purges
    }

    /// The origin has this object there. Another version that was there has changed. If targets were forgotten since the origin
    /// was asked, the answer may be older than that, and is not kept.
    pub fn enter(&self, object: &Arc<Object>, purges: u64) {
        let table = self.write();
        if table.purges != purges {
            return;
        }
        let before = self.put(table, &object.target, Kept::Object(Arc::clone(object)));
        if let Some(Kept::Object(before)) = before.filter(|before| !before.is(object)) {
            before.has_changed();
        }
    }

    /// What the origin has there can't be kept. Whether an object that was there has `changed`; if not, responses under way go on.
    pub fn passes(&self, target: &[u8], changed: bool, now_unix_s: u64) {
        let until_unix_s = now_unix_s + PASSED_S;
        let before = self.put(self.write(), target, Kept::Passes { until_unix_s });
        if let Some(Kept::Object(before)) = before.filter(|_| changed) {
            before.has_changed();
        }
    }

    /// The object is not what is there any more.
    pub fn leave(&self, object: &Arc<Object>) {
        let mut table = self.write();
        let there = table.entries.get(&object.target[..]);
        if there.is_some_and(|entry| entry.kept.is(object)) {
            let key: Arc<[u8]> = (*object.target).into();
            table.remove(&key);
            table.by_age.retain(|other| *other != key);
        }
        drop(table);
        object.has_changed();
    }

    /// Forgets the targets that begin with these bytes; or makes them stale, so that the origin is asked about each when it is
    /// wanted. Returns how many.
    pub fn purge(&self, prefix: &[u8], only_stale: bool) -> usize {
        let mut table = self.write();
        table.purges += 1;
        let keys: Vec<Arc<[u8]>> = (table.entries.keys())
            .filter(|key| key.starts_with(prefix))
            .cloned()
            .collect();
        for key in &keys {
            match table.entries.get(key).map(|entry| &entry.kept) {
                Some(Kept::Object(object)) if only_stale => object.expire(),
                _ => drop(table.remove(key)),
            }
        }
        if !only_stale {
            let Table {
                entries, by_age, ..
            } = &mut *table;
            by_age.retain(|key| entries.contains_key(key));
        }
        keys.len()
    }

    /// Targets that are known, and the memory that they hold.
    pub fn held(&self) -> (usize, usize) {
        let table = self.read();
        (table.entries.len(), table.held_bytes)
    }

    fn put(
        &self,
        mut table: RwLockWriteGuard<'_, Table>,
        target: &[u8],
        kept: Kept,
    ) -> Option<Kept> {
        let key: Arc<[u8]> = target.into();
        let before = table.remove(&key);
        table.held_bytes += cost_bytes(&key, &kept);
        if before.is_none() {
            table.by_age.push_back(Arc::clone(&key));
        }
        let used = AtomicBool::new(false);
        table.entries.insert(key, Entry { kept, used });
        let gone = table.make_room(self.bytes_max);
        drop(table);
        drop(gone); // objects give up their memory without the lock
        before
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn is(&self, object: &Arc<Object>) -> bool {
        matches!(self, Kept::Object(own) if Arc::ptr_eq(own, object))
    }
}

fn cost_bytes(key: &[u8], kept: &Kept) -> usize {
    let object_bytes = match kept {
        Kept::Object(object) => object.held_bytes(),
        Kept::Passes { .. } => 0,
    };
    ENTRY_BYTES + 2 * key.len() + object_bytes
}

impl Table {
    /// Takes an entry out; its place in the queue stays.
    fn remove(&mut self, key: &Arc<[u8]>) -> Option<Kept> {
        let entry = self.entries.remove(key)?;
        self.held_bytes -= cost_bytes(key, &entry.kept);
        Some(entry.kept)
    }

    /// Forgets entries until what is left fits. Returns what they held.
    fn make_room(&mut self, bytes_max: usize) -> Vec<Kept> {
        let (mut gone, mut looks) = (Vec::new(), 0);
        while self.held_bytes > bytes_max {
            let Some(key) = self.by_age.pop_front() else {
                break;
            };
            let used = self.entries.get(&key).map(|entry| &entry.used);
            let used = used.is_some_and(|used| used.swap(false, Ordering::Relaxed));
            if used && looks < LOOKS_MAX {
                looks += 1;
                self.by_age.push_back(key);
            } else {
                gone.extend(self.remove(&key));
            }
        }
        gone
    }
}
