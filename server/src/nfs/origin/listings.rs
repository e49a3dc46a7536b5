//! Listings of an origin's folders: those that arrive, and those that are kept for a while.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ackpace_core::nfs::Lookups;
use ackpace_wire::listing::{Format, Reader};
use ackpace_wire::nfs3::handle::Key;

use crate::gateway::Pass;

/// How long a listing is used before the origin is asked for it again. Longer: new names are seen so late.
const FRESH: Duration = Duration::from_secs(60);
/// How much longer for each name: a folder that clients look at all the time costs the origin 100 names a second at most.
const FRESH_PER_NAME: Duration = Duration::from_millis(10);
/// Names in a listing. More: it is refused, and the log says so.
const NAMES_MAX: usize = 1 << 17;
/// Memory of a listing while it arrives. More: likewise.
const ARRIVING_BYTES_MAX: u64 = 24 << 20;
/// Memory of the listings that are kept. More: the one that was asked for first goes.
const KEPT_BYTES_MAX: u64 = 16 << 20;
/// Memory of what calls have asked for and not used yet: listings that arrive, and the calls themselves. More: clients are told to
/// try again.
const ASKED_BYTES_MAX: u64 = 36 << 20;
/// The first cookie of a name; those before are of `.` and `..`.
const COOKIES_FROM: u64 = 3;

/// Memory of all listings at worst.
pub const LISTINGS_BYTES: u64 = KEPT_BYTES_MAX + ASKED_BYTES_MAX;

/// A name in a listing.
#[derive(Clone, Copy, Debug)]
struct Name {
    /// A hash of it, by which names are in order. It is also the cookie of READDIR: so clients go on where they were although names come and
    /// go, also after a restart.
    cookie: u64,
    start: u32,
    len: u8,
    is_folder: bool,
}

/// A name with what the listing tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    pub name: &'a [u8],
    pub is_folder: bool,
    pub cookie: u64,
}

/// The names of a folder.
#[derive(Debug)]
pub struct Names {
    names: Vec<Name>,
    text: Vec<u8>,
    /// Their places, in the order of the alphabet.
    sorted: Vec<u32>,
    /// How they are looked up in the order of READDIR, and in that of the alphabet.
    lookups: Mutex<[Lookups; 2]>,
    /// Another number for other names.
    pub digest: u64,
    since: Instant,
}

impl Names {
    /// Whether the origin need not be asked.
    pub fn is_fresh(&self) -> bool {
        let names = self.names.len() as u32; // below its bound
        self.since.elapsed() < FRESH + FRESH_PER_NAME * names
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a name is there, and a folder.
    pub fn find(&self, key: &Key, name: &[u8]) -> Option<bool> {
        let cookie = cookie_of(key, name);
        let mut same = self.from(cookie).take_while(|it| it.cookie == cookie);
        same.find(|it| it.name == name).map(|it| it.is_folder)
    }

    /// A name, which is a file's, is looked up. Calls `ask` with those that will be next.
    pub fn next_looked_up(&self, key: &Key, name: &[u8], mut ask: impl FnMut(&[u8])) {
        let cookie = cookie_of(key, name);
        let here = self.names.partition_point(|it| it.cookie < cookie);
        let place = (self.sorted).partition_point(|at| self.text_at(*at) < name);
        let len = self.names.len() as u32; // below its bound
        let [by_cookie, by_name] = {
            let mut lookups = self.lookups.lock().unwrap_or_else(PoisonError::into_inner);
            let [by_cookie, by_name] = &mut *lookups;
            [
                by_cookie.looked_up(here as u32, len),
                by_name.looked_up(place as u32, len),
            ]
        };
        let by_name = by_name.map(|next| self.sorted[next as usize]);
        for next in by_cookie.chain(by_name) {
            let next = &self.names[next as usize];
            if !next.is_folder {
                ask(self.text_of(next));
            }
        }
    }

    /// The names behind this cookie.
    pub fn behind(&self, cookie: u64) -> impl Iterator<Item = Listed<'_>> {
        self.from(cookie.saturating_add(1))
    }

    fn from(&self, cookie: u64) -> impl Iterator<Item = Listed<'_>> {
        let start = self.names.partition_point(|name| name.cookie < cookie);
        self.names[start..].iter().map(|name| Listed {
            name: self.text_of(name),
            is_folder: name.is_folder,
            cookie: name.cookie,
        })
    }

    fn text_of(&self, name: &Name) -> &[u8] {
        &self.text[name.start as usize..][..usize::from(name.len)]
    }

    fn text_at(&self, place: u32) -> &[u8] {
        self.text_of(&self.names[place as usize])
    }

    fn held_bytes(&self) -> u64 {
        let sorted = self.sorted.capacity() * size_of::<u32>();
        (self.names.capacity() * size_of::<Name>() + self.text.capacity() + sorted) as u64
    }
}

fn cookie_of(key: &Key, name: &[u8]) -> u64 {
    (key.hash(name) >> 1).max(COOKIES_FROM) // clients take it for a signed number
}

/// Memory that calls share until they are answered.
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<AtomicU64>);

/// A part of it, which goes back when it is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Budget,
    bytes: u64,
}

impl Budget {
    /// None of it yet.
    pub fn nothing(&self) -> Charge {
        Charge {
            budget: self.clone(),
            bytes: 0,
        }
    }
}

impl Charge {
    /// Takes so many more bytes; `false`: there is no room for them.
    pub fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes as u64;
        let more = |held: u64| {
            held.checked_add(bytes)
                .filter(|held| *held <= ASKED_BYTES_MAX)
        };
        let taken = (self.budget.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        self.bytes += taken.map_or(0, |_| bytes);
        taken.is_ok()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A listing that arrives.
#[derive(Debug)]
pub struct Arriving {
    /// What it is asked for by.
    pub pass: Arc<Pass>,
    reader: Reader,
    names: Vec<Name>,
    text: Vec<u8>,
    charge: Charge,
    is_too_long: bool,
    lacks_memory: bool,
}

/// Why a listing that arrived is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoListing {
    /// It has more names than are kept.
    TooLong,
    /// Too many others arrive.
    NoMemory,
    /// It is something else, or ended in the middle.
    Broken,
}

impl Arriving {
    /// That of the folder with this path at its server.
    pub fn new(pass: Arc<Pass>, format: Format, path: &[u8], budget: &Budget) -> Arriving {
        Arriving {
            pass,
            reader: Reader::new(format, path),
            names: Vec::new(),
            text: Vec::new(),
            charge: budget.nothing(),
            is_too_long: false,
            lacks_memory: false,
        }
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The rest is not wanted.
    pub fn take(&mut self, key: &Key, bytes: &[u8]) -> Result<(), NoListing> {
        let Arriving {
            reader,
            names,
            text,
            charge,
            is_too_long,
            lacks_memory,
            ..
        } = self;
        reader.take(bytes, |named| {
            let start = u32::try_from(text.len()).ok();
            let has_room = names.len() < NAMES_MAX && charge.bytes < ARRIVING_BYTES_MAX;
            let (Some(start), true) = (start, has_room) else {
                *is_too_long = true;
                return;
            };
            // Vectors grow to twice their length, and are there twice meanwhile.
            let name_bytes = size_of::<Name>() + named.name.len();
            if *lacks_memory || !charge.take(3 * name_bytes + size_of::<u32>()) {
                *lacks_memory = true;
                return;
            }
            names.push(Name {
                cookie: cookie_of(key, named.name),
                start,
                len: named.name.len() as u8, // at most 255
                is_folder: named.is_folder,
            });
            text.extend_from_slice(named.name);
        });
        match (self.is_too_long, self.lacks_memory) {
            (true, _) => Err(NoListing::TooLong),
            (_, true) => Err(NoListing::NoMemory),
            _ => Ok(()),
        }
    }

    /// All has come.
    ///
    /// # Errors
    /// It is no listing.
    pub fn end(self, key: &Key) -> Result<Names, NoListing> {
        if !self.reader.is_whole() {
            return Err(NoListing::Broken);
        }
        let mut listed = Names {
            names: Vec::new(),
            text: self.text,
            sorted: Vec::new(),
            lookups: Mutex::default(),
            digest: 0,
            since: Instant::now(),
        };
        let mut names = self.names;
        let text = |name: &Name| listed.text_of(name);
        // Of a name that comes twice, the folder stays.
        names.sort_unstable_by(|one, other| {
            let order = (one.cookie, text(one)).cmp(&(other.cookie, text(other)));
            order.then(other.is_folder.cmp(&one.is_folder))
        });
        names.dedup_by(|later, one| later.cookie == one.cookie && text(later) == text(one));
        names.shrink_to_fit();
        let digest = names.iter().fold(names.len() as u64, |digest, name| {
            let one = name.cookie << 1 | u64::from(name.is_folder);
            digest.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ one
        });
        listed.names = names;
        let mut sorted: Vec<u32> = (0..listed.names.len() as u32).collect();
        sorted.sort_unstable_by(|one, other| listed.text_at(*one).cmp(listed.text_at(*other)));
        listed.sorted = sorted;
        listed.digest = key.hash(&digest.to_le_bytes());
        listed.text.shrink_to_fit();
        Ok(listed)
    }
}

/// The listings that are kept, by the paths of their folders.
#[derive(Debug, Default)]
pub struct Listings(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    kept: HashMap<Arc<[u8]>, Arc<Names>>,
    by_age: VecDeque<Arc<[u8]>>,
    held_bytes: u64,
}

impl Listings {
    /// The listing of a folder as it was seen last, which may not be fresh.
    pub fn get(&self, path: &[u8]) -> Option<Arc<Names>> {
        self.lock().kept.get(path).cloned()
    }

    /// Keeps a listing. One that is too long for that is not kept.
    pub fn keep(&self, path: &[u8], names: &Arc<Names>) {
        let mut table = self.lock();
        table.remove(path);
        let bytes = bytes_of(path, names);
        if bytes > KEPT_BYTES_MAX {
            return;
        }
        while table.held_bytes + bytes > KEPT_BYTES_MAX {
            let Some(oldest) = table.by_age.front().cloned() else {
                return;
            };
            table.remove(&oldest);
        }
        let path: Arc<[u8]> = path.into();
        table.held_bytes += bytes;
        table.by_age.push_back(Arc::clone(&path));
        table.kept.insert(path, Arc::clone(names));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn remove(&mut self, path: &[u8]) {
        if let Some(names) = self.kept.remove(path) {
            self.held_bytes -= bytes_of(path, &names);
            self.by_age.retain(|other| **other != *path);
        }
    }
}

/// Memory of a listing, with its places in the table.
fn bytes_of(path: &[u8], names: &Names) -> u64 {
    const PLACES_BYTES: u64 = 160;
    names.held_bytes() + path.len() as u64 + PLACES_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([5; 16]);

    fn arrived(budget: &Budget, page: &str) -> Result<Names, NoListing> {
        let mut arriving = Arriving::new(Arc::new(Pass(1)), Format::Html, b"/", budget);
        arriving.take(&KEY, page.as_bytes())?;
        arriving.end(&KEY)
    }

    fn page(names: impl Iterator<Item = usize>) -> String {
        names
            .map(|nth| format!("<a href=\"name-{nth}\">"))
            .collect()
    }

    #[test]
    fn names_are_found_and_read_from_any_cookie_on() {
        let budget = Budget::default();
        let html = page(0..1000) + "<a href=\"twice\"><a href=\"twice/\"><a href=\"name-7\">";
        let names = arrived(&budget, &html).expect("a listing");
        assert_eq!(names.find(&KEY, b"name-999"), Some(false));
        assert_eq!(names.find(&KEY, b"twice"), Some(true));
        assert_eq!(names.find(&KEY, b"none"), None);
        let (mut cookie, mut count) = (0, 0);
        while let Some(next) = names.behind(cookie).next() {
            assert!(next.cookie > cookie && next.cookie >= COOKIES_FROM);
            (cookie, count) = (next.cookie, count + 1);
        }
        assert_eq!(count, 1001);
        let less = arrived(&budget, &page(1..1000)).expect("a listing");
        let again = arrived(&budget, &page((1..1000).rev())).expect("a listing");
        assert_eq!(less.digest, again.digest, "their order is no matter");
        assert_ne!(less.digest, names.digest);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn listings_have_bounds() {
        let budget = Budget::default();
        let mut arriving = Arriving::new(Arc::new(Pass(1)), Format::Html, b"/", &budget);
        let piece = page(0..10_000);
        let refused = (0..100).find_map(|_| arriving.take(&KEY, piece.as_bytes()).err());
        assert!(refused.is_some());
        drop(arriving);
        assert_eq!(budget.0.load(Ordering::Relaxed), 0);
        let listings = Listings::default();
        let names = Arc::new(arrived(&budget, &page(0..50_000)).expect("a listing"));
        for nth in 0..100u8 {
            listings.keep(&[nth], &names);
        }
        listings.keep(&[99], &names);
        assert!(listings.get(&[99]).is_some() && listings.get(&[0]).is_none());
        let table = listings.lock();
        assert!(table.held_bytes <= KEPT_BYTES_MAX && table.held_bytes > KEPT_BYTES_MAX / 2);
        assert_eq!(table.kept.len(), table.by_age.len());
    }
}
