//! Tracks changes of the watched directories and files, in tables of a fixed size, and says which responses are out of
//! date.
//!
//! Events are numbered. A directory has the number of the last event that changed its names, a file that of the last event that
//! changed its content. A response keeps the numbers from before its file was looked up ([`WatchState`]), and is out of date once
//! its directory or file has a later one. So an event costs the same however many responses are cached.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use ackpace_core::units::Instant;

use crate::limits::{
    HEARD_EVENTS_MAX, WATCH_EVENTS_MAX, WATCH_LOOKS_MAX, WATCHED_FILES_MAX, WATCHES_MAX,
};

/// The last events of a file and its directory before the file was looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchState {
    /// Its directory.
    directory: SeenEvent,
    /// Its content; `None`: it is not watched, since whoever sends it compares versions.
    content: Option<SeenEvent>,
}

/// A slot of a table, and its last event before the look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SeenEvent {
    /// The slot, and the number of the event.
    place: u16,
    nth: u64,
}

/// When the look-up of a file began: what happens later, the response may not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookedUpAt {
    /// The time.
    pub at: Instant,
    /// The number of the last event before.
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
    /// The number of the last event that concerned everything: events were lost.
    all: u64,
    /// The watched directories. Their events: a name came or went.
    directories: WatchTable,
    /// The watched files. Their events: bytes have changed.
    files: WatchTable,
    /// Events of this second, of all that is watched.
    events: Events,
    /// Hashes paths.
    hasher: RandomState,
}

/// Watched directories, or files. One that was not used lately makes room (CLOCK).
struct WatchTable {
    /// The slots.
    watched: Vec<Watched>,
    /// The slots in use, by watch descriptor.
    by_watch: HashMap<i32, u16>,
    /// The slot at which the search for one to replace goes on.
    hand: usize,
    /// Slots that there may be.
    most: usize,
}

struct Watched {
    /// Its watch descriptor of inotify(7); `None`: the slot is free.
    watch: Option<i32>,
    /// The hash of its path, for [`Loud`].
    path_hash: u64,
    /// The last event that concerned it.
    changed: u64,
    /// It was found since the hand last came by.
    used: bool,
    /// Its events of this second.
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

    /// The present moment, for a look-up that begins now.
    pub fn looked_up_at(&self, now: Instant) -> LookedUpAt {
        LookedUpAt {
            at: now,
            nth: self.nth,
        }
    }

    /// The last event of a directory before a look-up of a file in it. `watch`: the directory's watch descriptor. `None`: it is not
    /// watched.
    pub fn watch_state(&mut self, watch: i32, looked_up: LookedUpAt) -> Option<WatchState> {
        let directory = SeenEvent {
            place: self.directories.find(watch)?,
            nth: looked_up.nth,
        };
        Some(WatchState {
            directory,
            content: None,
        })
    }

    /// The same with the last event of the file until now: its content is read after this. `None`: the file is not watched.
    pub fn watch_state_of_file(&mut self, state: WatchState, watch: i32) -> Option<WatchState> {
        let content = Some(SeenEvent {
            place: self.files.find(watch)?,
            nth: self.nth,
        });
        Some(WatchState { content, ..state })
    }

    /// Whether no event has concerned the file or its directory since then, and both are still watched.
    pub fn is_unchanged_since(&self, state: WatchState) -> bool {
        let is_unchanged = |table: &WatchTable, seen: SeenEvent| {
            let watched = table.watched.get(usize::from(seen.place));
            watched.is_some_and(|watched| seen.nth >= watched.changed.max(self.all))
        };
        let content = (state.content).is_none_or(|seen| is_unchanged(&self.files, seen));
        content && is_unchanged(&self.directories, state.directory)
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
    fn state(changes: &mut Changes, watch: i32, file: i32) -> Option<WatchState> {
        let looked_up = changes.looked_up_at(NOW);
        let state = changes.watch_state(watch, looked_up)?;
        changes.watch_state_of_file(state, FILES + 10 * watch + file)
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
        let before = changes.looked_up_at(NOW);
        enter(&mut changes, 1, 1);
        let state = changes.watch_state(1, before).expect("watched");
        assert!(!changes.is_unchanged_since(state));
        let before = changes.looked_up_at(NOW);
        changes.heard(1, Change::Some, NOW);
        let state = changes.watch_state(1, before).expect("watched");
        assert!(!changes.is_unchanged_since(state));
    }

    #[test]
    fn bytes_are_looked_at_after_their_file_is_watched() {
        let mut changes = Changes::default();
        enter(&mut changes, 1, 1);
        let before = changes.looked_up_at(NOW);
        changes.heard(FILES + 10, Change::Some, NOW);
        let state = changes.watch_state(1, before).expect("watched");
        let state = changes
            .watch_state_of_file(state, FILES + 10)
            .expect("watched");
        assert!(
            changes.is_unchanged_since(state),
            "they are read behind this"
        );
        changes.heard(FILES + 10, Change::Some, NOW);
        assert!(!changes.is_unchanged_since(state));
    }

    #[test]
    fn a_change_makes_old_what_it_concerns_and_nothing_else() {
        let mut changes = Changes::default();
        assert_eq!(state(&mut changes, 1, 0), None);
        enter(&mut changes, 1, 2);
        assert_eq!(state(&mut changes, 1, 2), None, "not this one");
        enter(&mut changes, 2, 1);
        let files = [(1, 0), (1, 1), (2, 0)];
        let [a, b, other] = files.map(|(watch, file)| state(&mut changes, watch, file));
        let [a, b, other] = [a, b, other].map(|state| state.expect("watched"));
        assert!(
            [a, b, other]
                .iter()
                .all(|&state| changes.is_unchanged_since(state))
        );
        assert_eq!(changes.heard(FILES + 10, Change::Some, NOW), None);
        assert_eq!(
            [a, b, other].map(|state| changes.is_unchanged_since(state)),
            [false, true, true]
        );
        assert!(state(&mut changes, 1, 0).is_some_and(|anew| changes.is_unchanged_since(anew)));
        changes.heard(1, Change::Some, NOW);
        assert_eq!(
            [b, other].map(|state| changes.is_unchanged_since(state)),
            [false, true]
        );
        changes.heard(2, Change::Gone, NOW);
        assert_eq!(
            (changes.is_unchanged_since(other), state(&mut changes, 2, 0)),
            (false, None)
        );
        let b = state(&mut changes, 1, 1).expect("watched");
        changes.lost();
        assert!(!changes.is_unchanged_since(b));
    }

    #[test]
    fn what_is_loud_is_told_of_once_and_forgotten() {
        for loud_one in [1, FILES + 10] {
            let mut changes = Changes::default();
            assert_eq!(changes.enter(1, 10), Ok(None));
            assert_eq!(changes.enter_file(FILES + 10, 10), Ok(None));
            let mut first = None;
            for _ in 0..WATCH_EVENTS_MAX {
                first = state(&mut changes, 1, 0);
                assert_eq!(changes.heard(loud_one, Change::Some, NOW), None);
            }
            let loud = changes.heard(loud_one, Change::Some, NOW);
            assert_eq!(loud, Some(Loud { path_hash: 10 }));
            assert_eq!(
                (
                    changes.heard(loud_one, Change::Some, NOW),
                    state(&mut changes, 1, 0)
                ),
                (None, None)
            );
            let first = first.expect("it was watched");
            assert!(
                !changes.is_unchanged_since(first),
                "nobody heard what came after"
            );
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
        let seen =
            |changes: &mut Changes, watch| changes.watch_state(watch, changes.looked_up_at(NOW));
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
        assert!(!changes.is_unchanged_since(first));
        assert!(seen(&mut changes, looked_at).is_some() && seen(&mut changes, 0).is_none());
        assert_eq!(changes.directories.by_watch.len(), WATCHES_MAX);
    }

    proptest! {
        #[test]
        fn no_change_is_missed(acts in prop::collection::vec((0u8..7, 0i32..4, 0i32..4), 1..200)) {
            let mut changes = Changes::default();
            let (mut seen, mut old) = (Vec::<(i32, i32, WatchState)>::new(), Vec::new());
            for (act, watch, file) in acts {
                let wd = FILES + 10 * watch + file;
                let (concerned, change): (&dyn Fn(i32, i32) -> bool, _) = match act {
                    0 | 1 => {
                        let looked_up = changes.looked_up_at(NOW);
                        if changes.watch_state(watch, looked_up).is_none() {
                            prop_assert_eq!(changes.enter(watch, 0), Ok(None));
                        }
                        if state(&mut changes, watch, file).is_none() {
                            prop_assert_eq!(changes.enter_file(wd, 0), Ok(None));
                        }
                        seen.extend(state(&mut changes, watch, file).map(|it| (watch, file, it)));
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
                prop_assert!(!old.iter().any(|state| changes.is_unchanged_since(*state)));
                prop_assert!(seen.iter().all(|it| changes.is_unchanged_since(it.2)));
            }
        }
    }
}
