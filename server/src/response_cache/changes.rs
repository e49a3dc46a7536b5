//! Tracks changes of the watched directories and files, in tables of a fixed size, and says which responses are out of
//! date.
//!
//! Events are numbered. A directory has the number of the last event that changed its names, a file that of the last
//! event that changed its content. A response is out of date if its [`Sight`] is older. So an event costs the same
//! however many responses are cached.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use ackpace_core::units::Instant;

use crate::limits::{
    HEARD_EVENTS_MAX, WATCH_EVENTS_MAX, WATCH_LOOKS_MAX, WATCHED_FILES_MAX, WATCHES_MAX,
};

/// The last events before a file was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Its directory.
    directory: SeenEvent,
    /// Its content; `None`: the sender checks it.
    content: Option<SeenEvent>,
}

/// A slot of a table, and its last event before the look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenEvent {
    place: u16,
    nth: u64,
}

/// The moment before a file was looked up: the response knows nothing later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub at: Instant,
    /// The last event before.
    nth: u64,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A name came or went, or bytes changed.
    Some,
    /// The kernel no longer watches it.
    Gone,
}

/// A directory or file that changes too often, and is not watched for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loud {
    /// Hash of its path.
    pub path_hash: u64,
}

/// The watched directories and files, and their last events.
pub struct Changes {
    /// Number of the last event.
    nth: u64,
    /// The last event that concerned everything.
    all: u64,
    directories: WatchTable,
    files: WatchTable,
    events: Events,
    hasher: RandomState,
}

/// Watched directories, or files. One that was not used lately makes room (CLOCK).
struct WatchTable {
    watched: Vec<Watched>,
    by_watch: HashMap<i32, u16>,
    hand: usize,
    most: usize,
}

struct Watched {
    /// Its watch descriptor of inotify(7); `None`: the slot is free.
    watch: Option<i32>,
    path_hash: u64,
    /// The last event that concerned it.
    changed: u64,
    used: bool,
    events: Events,
}

/// Events within a second.
#[derive(Clone, Copy, Default)]
struct Events {
    since: Instant,
    count: u32,
}

impl Events {
    fn one_more(&mut self, now: Instant) -> u32 {
        if now.since_us(self.since) >= 1_000_000 {
            (self.since, self.count) = (now, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

impl Default for Changes {
    fn default() -> Changes {
        Changes {
            nth: 0,
            all: 0,
            directories: WatchTable::new(WATCHES_MAX),
            files: WatchTable::new(WATCHED_FILES_MAX),
            events: Events::default(),
            hasher: RandomState::new(),
        }
    }
}

impl Changes {
    /// The hash of a path.
    pub fn hash(&self, path: &[u8]) -> u64 {
        self.hasher.hash_one(path)
    }

    /// The present moment.
    pub fn moment(&self, now: Instant) -> Moment {
        Moment {
            at: now,
            nth: self.nth,
        }
    }

    /// A file as it was at a moment; `None` if its directory is not watched.
    pub fn sight(&mut self, watch: i32, moment: Moment) -> Option<Sight> {
        let directory = SeenEvent {
            place: self.directories.find(watch)?,
            nth: moment.nth,
        };
        Some(Sight {
            directory,
            content: None,
        })
    }

    /// The same with the content of the file, which is read after this; `None` if the file is not watched.
    pub fn sight_of_file(&mut self, sight: Sight, watch: i32) -> Option<Sight> {
        let content = Some(SeenEvent {
            place: self.files.find(watch)?,
            nth: self.nth,
        });
        Some(Sight { content, ..sight })
    }

    /// Whether no event has concerned the file since.
    pub fn still(&self, sight: Sight) -> bool {
        let holds = |table: &WatchTable, seen: SeenEvent| {
            let watched = table.watched.get(usize::from(seen.place));
            watched.is_some_and(|watched| seen.nth >= watched.changed.max(self.all))
        };
        let content = sight.content.is_none_or(|seen| holds(&self.files, seen));
        content && holds(&self.directories, sight.directory)
    }

    /// Adds a directory that inotify watches from now on. Returns the watch that it replaces, which is to be removed.
    ///
    /// # Errors
    /// No place was found: the new watch is to be removed.
    pub fn enter(&mut self, watch: i32, path_hash: u64) -> Result<Option<i32>, Full> {
        self.nth += 1;
        self.directories.enter(watch, path_hash, self.nth)
    }

    /// The same for a file.
    ///
    /// # Errors
    /// As [`Changes::enter`].
    pub fn enter_file(&mut self, watch: i32, path_hash: u64) -> Result<Option<i32>, Full> {
        self.nth += 1;
        self.files.enter(watch, path_hash, self.nth)
    }

    /// Records an event. Returns what it concerns if that changes too often.
    pub fn heard(&mut self, watch: i32, change: Change, now: Instant) -> Option<Loud> {
        let mut tables = [&mut self.directories, &mut self.files].into_iter();
        let watched = tables.find_map(|table| {
            let at = *table.by_watch.get(&watch)?;
            Some((&mut table.watched[usize::from(at)], &mut table.by_watch))
        });
        let (watched, by_watch) = watched?;
        self.nth += 1;
        watched.changed = self.nth;
        let among_all = self.events.one_more(now);
        let loud = watched.events.one_more(now) > WATCH_EVENTS_MAX || among_all > HEARD_EVENTS_MAX;
        if loud || change == Change::Gone {
            watched.watch = None;
            by_watch.remove(&watch);
        }
        let path_hash = watched.path_hash;
        (loud && change != Change::Gone).then_some(Loud { path_hash })
    }

    /// Events were lost: everything may have changed.
    pub fn lost(&mut self) {
        self.nth += 1;
        self.all = self.nth;
    }
}

impl WatchTable {
    fn new(most: usize) -> WatchTable {
        WatchTable {
            watched: Vec::new(),
            by_watch: HashMap::new(),
            hand: 0,
            most,
        }
    }

    fn find(&mut self, watch: i32) -> Option<u16> {
        let at = *self.by_watch.get(&watch)?;
        self.watched[usize::from(at)].used = true;
        Some(at)
    }

    fn enter(&mut self, watch: i32, path_hash: u64, nth: u64) -> Result<Option<i32>, Full> {
        let at = self.room()?;
        let gone = self.watched.get_mut(at).and_then(|old| old.watch.take());
        if let Some(gone) = gone {
            self.by_watch.remove(&gone);
        }
        let watched = Watched {
            watch: Some(watch),
            path_hash,
            changed: nth,
            used: true,
            events: Events::default(),
        };
        match self.watched.get_mut(at) {
            Some(place) => *place = watched,
            None => self.watched.push(watched),
        }
        self.by_watch.insert(watch, at as u16);
        Ok(gone)
    }

    /// A slot for one more: a new one, or that of one which was not used lately.
    fn room(&mut self) -> Result<usize, Full> {
        if self.watched.len() < self.most {
            return Ok(self.watched.len());
        }
        for _ in 0..WATCH_LOOKS_MAX {
            let at = self.hand;
            self.hand = (at + 1) % self.most;
            let watched = &mut self.watched[at];
            if watched.watch.is_none() || !std::mem::take(&mut watched.used) {
                return Ok(at);
            }
        }
        Err(Full)
    }
}

/// All slots are taken, and none was left unused lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

const _: () = assert!(WATCHES_MAX <= 1 << 16 && WATCHED_FILES_MAX <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Instant = Instant { us: 5_000_000 };
    /// Files of directory n have this number and the next ones.
    const FILES: i32 = 100_000;

    /// A file of a directory.
    fn sight(changes: &mut Changes, watch: i32, file: i32) -> Option<Sight> {
        let moment = changes.moment(NOW);
        let sight = changes.sight(watch, moment)?;
        changes.sight_of_file(sight, FILES + 10 * watch + file)
    }

    fn enter(changes: &mut Changes, watch: i32, files: i32) {
        assert_eq!(changes.enter(watch, 10), Ok(None));
        for file in 0..files {
            assert_eq!(changes.enter_file(FILES + 10 * watch + file, 0), Ok(None));
        }
    }

    #[test]
    fn what_was_looked_up_before_its_directory_was_watched_or_changed_is_old() {
        let mut changes = Changes::default();
        let before = changes.moment(NOW);
        enter(&mut changes, 1, 1);
        let sight = changes.sight(1, before).expect("watched");
        assert!(!changes.still(sight));
        let before = changes.moment(NOW);
        changes.heard(1, Change::Some, NOW);
        let sight = changes.sight(1, before).expect("watched");
        assert!(!changes.still(sight));
    }

    #[test]
    fn bytes_are_looked_at_after_their_file_is_watched() {
        let mut changes = Changes::default();
        enter(&mut changes, 1, 1);
        let before = changes.moment(NOW);
        changes.heard(FILES + 10, Change::Some, NOW);
        let sight = changes.sight(1, before).expect("watched");
        let sight = changes.sight_of_file(sight, FILES + 10).expect("watched");
        assert!(changes.still(sight), "they are read behind this");
        changes.heard(FILES + 10, Change::Some, NOW);
        assert!(!changes.still(sight));
    }

    #[test]
    fn a_change_makes_old_what_it_concerns_and_nothing_else() {
        let mut changes = Changes::default();
        assert_eq!(sight(&mut changes, 1, 0), None);
        enter(&mut changes, 1, 2);
        assert_eq!(sight(&mut changes, 1, 2), None, "not this one");
        enter(&mut changes, 2, 1);
        let files = [(1, 0), (1, 1), (2, 0)];
        let [a, b, other] = files.map(|(watch, file)| sight(&mut changes, watch, file));
        let [a, b, other] = [a, b, other].map(|sight| sight.expect("watched"));
        assert!([a, b, other].iter().all(|&sight| changes.still(sight)));
        assert_eq!(changes.heard(FILES + 10, Change::Some, NOW), None);
        assert_eq!(
            [a, b, other].map(|sight| changes.still(sight)),
            [false, true, true]
        );
        assert!(sight(&mut changes, 1, 0).is_some_and(|anew| changes.still(anew)));
        changes.heard(1, Change::Some, NOW);
        assert_eq!([b, other].map(|sight| changes.still(sight)), [false, true]);
        changes.heard(2, Change::Gone, NOW);
        assert_eq!(
            (changes.still(other), sight(&mut changes, 2, 0)),
            (false, None)
        );
        let b = sight(&mut changes, 1, 1).expect("watched");
        changes.lost();
        assert!(!changes.still(b));
    }

    #[test]
    fn what_is_loud_is_told_of_once_and_forgotten() {
        for loud_one in [1, FILES + 10] {
            let mut changes = Changes::default();
            assert_eq!(changes.enter(1, 10), Ok(None));
            assert_eq!(changes.enter_file(FILES + 10, 10), Ok(None));
            let mut first = None;
            for _ in 0..WATCH_EVENTS_MAX {
                first = sight(&mut changes, 1, 0);
                assert_eq!(changes.heard(loud_one, Change::Some, NOW), None);
            }
            let loud = changes.heard(loud_one, Change::Some, NOW);
            assert_eq!(loud, Some(Loud { path_hash: 10 }));
            assert_eq!(
                (
                    changes.heard(loud_one, Change::Some, NOW),
                    sight(&mut changes, 1, 0)
                ),
                (None, None)
            );
            let first = first.expect("it was watched");
            assert!(!changes.still(first), "nobody heard what came after");
        }
    }

    #[test]
    fn many_directories_that_are_loud_together_are_too_loud() {
        let mut changes = Changes::default();
        let count = HEARD_EVENTS_MAX as i32 / 100;
        for watch in 0..count {
            changes.enter(watch, 0).expect("room");
        }
        let mut heard = || {
            let each = (0..100 * count).map(|nth| changes.heard(nth % count, Change::Some, NOW));
            each.flatten().count()
        };
        assert_eq!((heard(), heard()), (0, count as usize));
    }

    #[test]
    fn one_that_is_not_used_makes_room_and_its_answers_are_old() {
        let mut changes = Changes::default();
        for watch in 0..WATCHES_MAX as i32 {
            assert_eq!(changes.enter(watch, 0), Ok(None));
        }
        let seen = |changes: &mut Changes, watch| changes.sight(watch, changes.moment(NOW));
        let first = seen(&mut changes, 0).expect("watched");
        assert_eq!(
            changes.enter(-1, 0),
            Err(Full),
            "all were used since the last look"
        );
        let looked_at = WATCH_LOOKS_MAX as i32;
        for _ in 1..WATCHES_MAX / WATCH_LOOKS_MAX {
            assert_eq!(changes.enter(-1, 0), Err(Full));
        }
        assert_eq!(changes.enter(-1, 0), Ok(Some(0)));
        assert!(!changes.still(first));
        assert!(seen(&mut changes, looked_at).is_some() && seen(&mut changes, 0).is_none());
        assert_eq!(changes.directories.by_watch.len(), WATCHES_MAX);
    }

    proptest! {
        #[test]
        fn no_change_is_missed(acts in prop::collection::vec((0u8..7, 0i32..4, 0i32..4), 1..200)) {
            let mut changes = Changes::default();
            let (mut seen, mut old) = (Vec::<(i32, i32, Sight)>::new(), Vec::new());
            for (act, watch, file) in acts {
                let wd = FILES + 10 * watch + file;
                let (concerned, change): (&dyn Fn(i32, i32) -> bool, _) = match act {
                    0 | 1 => {
                        let moment = changes.moment(NOW);
                        if changes.sight(watch, moment).is_none() {
                            prop_assert_eq!(changes.enter(watch, 0), Ok(None));
                        }
                        if sight(&mut changes, watch, file).is_none() {
                            prop_assert_eq!(changes.enter_file(wd, 0), Ok(None));
                        }
                        seen.extend(sight(&mut changes, watch, file).map(|it| (watch, file, it)));
                        continue;
                    }
                    2 => (&|of, what| (of, what) == (watch, file), Some((wd, Change::Some))),
                    3 => (&|of, what| (of, what) == (watch, file), Some((wd, Change::Gone))),
                    4 => (&|of, _| of == watch, Some((watch, Change::Some))),
                    5 => (&|of, _| of == watch, Some((watch, Change::Gone))),
                    _ => (&|_, _| true, None),
                };
                match change {
                    Some((of, change)) => drop(changes.heard(of, change, NOW)),
                    None => changes.lost(),
                }
                old.extend(seen.iter().filter(|it| concerned(it.0, it.1)).map(|it| it.2));
                seen.retain(|it| !concerned(it.0, it.1));
                prop_assert!(!old.iter().any(|sight| changes.still(*sight)));
                prop_assert!(seen.iter().all(|it| changes.still(it.2)));
            }
        }
    }
}
