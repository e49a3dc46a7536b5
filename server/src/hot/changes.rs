//! What has changed in the directories that are watched, in tables of a fixed size: which answers are old.
//!
//! Each event has a number. A directory knows the number of the last event that concerned all its files, and a table the
//! last one of each name, by the hash of directory and name. An answer whose [`Sight`] is older than these is old. So
//! an event costs the same however many answers are kept, and two names that share a place cost a look-up, no more.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use ackpace_core::units::Instant;

use crate::limits::{
    CHANGED_NAMES_MAX, HEARD_EVENTS_MAX, WATCH_EVENTS_MAX, WATCH_LOOKS_MAX, WATCHES_MAX,
};

/// Since which event a file has been watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    directory: u16,
    name: u16,
    nth: u64,
}

/// When a file was about to be looked up: an answer that comes of that knows nothing later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// The time.
    pub at: Instant,
    /// The last event before.
    nth: u64,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The file of this name.
    Of(&'a [u8]),
    /// All files of the directory: one that comes or goes may be an index file, or stand in for another.
    All,
    /// All of them, and the kernel does not watch it any more.
    Gone,
}

/// A directory that is not to be watched for a while, since it told of too many changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loud {
    /// Hash of its path.
    pub path_hash: u64,
}

/// The directories that are watched, and what was heard of them.
pub struct Changes {
    /// Number of the last event.
    nth: u64,
    /// The last event that concerned everything.
    all: u64,
    directories: Vec<Directory>,
    by_watch: HashMap<i32, u16>,
    names: Box<[u64]>,
    events: Events,
    hand: usize,
    hasher: RandomState,
}

struct Directory {
    /// Its number in inotify(7); `None`: the place is free.
    watch: Option<i32>,
    path_hash: u64,
    /// The last event that concerned all its files.
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
            directories: Vec::new(),
            by_watch: HashMap::new(),
            names: vec![0; CHANGED_NAMES_MAX].into(),
            events: Events::default(),
            hand: 0,
            hasher: RandomState::new(),
        }
    }
}

impl Changes {
    /// Hash of a directory's path, by which it is told from others.
    pub fn hash(&self, path: &[u8]) -> u64 {
        self.hasher.hash_one(path)
    }

    /// This moment.
    pub fn moment(&self, now: Instant) -> Moment {
        Moment {
            at: now,
            nth: self.nth,
        }
    }

    /// A file of a directory that is watched, as it was at a moment; `None` if its directory is not.
    pub fn sight(&mut self, watch: i32, name: &[u8], moment: Moment) -> Option<Sight> {
        let directory = *self.by_watch.get(&watch)?;
        self.directories[usize::from(directory)].used = true;
        Some(Sight {
            directory,
            name: self.name(watch, name) as u16,
            nth: moment.nth,
        })
    }

    /// Whether nothing was heard since that concerns the file.
    pub fn still(&self, sight: Sight) -> bool {
        let directory = self.directories.get(usize::from(sight.directory));
        let name = self.names.get(usize::from(sight.name));
        let last = directory.zip(name).map(|(all, one)| all.changed.max(*one));
        last.is_some_and(|last| sight.nth >= last.max(self.all))
    }

    /// Enter a directory that inotify watches from now on, and say which one is to be watched no longer.
    ///
    /// # Errors
    /// All that were looked at are in use: then the new one is not to be watched.
    pub fn enter(&mut self, watch: i32, path_hash: u64) -> Result<Option<i32>, Full> {
        let at = self.room()?;
        let gone = self
            .directories
            .get_mut(at)
            .and_then(|old| old.watch.take());
        if let Some(gone) = gone {
            self.by_watch.remove(&gone);
        }
        self.nth += 1;
        let directory = Directory {
            watch: Some(watch),
            path_hash,
            changed: self.nth,
            used: true,
            events: Events::default(),
        };
        match self.directories.get_mut(at) {
            Some(place) => *place = directory,
            None => self.directories.push(directory),
        }
        self.by_watch.insert(watch, at as u16);
        Ok(gone)
    }

    /// A place for one more directory: a new one, or that of one which was not used lately.
    fn room(&mut self) -> Result<usize, Full> {
        if self.directories.len() < WATCHES_MAX {
            return Ok(self.directories.len());
        }
        for _ in 0..WATCH_LOOKS_MAX {
            let at = self.hand;
            self.hand = (at + 1) % WATCHES_MAX;
            let directory = &mut self.directories[at];
            if directory.watch.is_none() || !std::mem::take(&mut directory.used) {
                return Ok(at);
            }
        }
        Err(Full)
    }

    /// An event of a directory; says whether that was one too many.
    pub fn heard(&mut self, watch: i32, change: Change<'_>, now: Instant) -> Option<Loud> {
        let at = usize::from(*self.by_watch.get(&watch)?);
        self.nth += 1;
        if let Change::Of(name) = change {
            let name = self.name(watch, name);
            self.names[name] = self.nth;
        } else {
            self.directories[at].changed = self.nth;
        }
        let directory = &mut self.directories[at];
        let among_all = self.events.one_more(now);
        let loud =
            directory.events.one_more(now) > WATCH_EVENTS_MAX || among_all > HEARD_EVENTS_MAX;
        let path_hash = directory.path_hash;
        if loud || change == Change::Gone {
            (directory.watch, directory.changed) = (None, self.nth);
            self.by_watch.remove(&watch);
        }
        (loud && change != Change::Gone).then_some(Loud { path_hash })
    }

    /// Events were lost: everything may have changed.
    pub fn lost(&mut self) {
        self.nth += 1;
        self.all = self.nth;
    }

    fn name(&self, watch: i32, name: &[u8]) -> usize {
        self.hasher.hash_one((watch, name)) as usize % CHANGED_NAMES_MAX
    }
}

/// No directory makes room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

const _: () = assert!(WATCHES_MAX <= 1 << 16 && CHANGED_NAMES_MAX <= 1 << 16);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Instant = Instant { us: 5_000_000 };

    fn sight(changes: &mut Changes, watch: i32, name: &[u8]) -> Option<Sight> {
        changes.sight(watch, name, changes.moment(NOW))
    }

    #[test]
    fn what_was_looked_up_before_its_directory_was_watched_or_changed_is_old() {
        let mut changes = Changes::default();
        let before = changes.moment(NOW);
        changes.enter(1, 10).expect("room");
        let sight = changes.sight(1, b"a", before).expect("watched");
        assert!(!changes.still(sight));
        let before = changes.moment(NOW);
        changes.heard(1, Change::Of(b"a"), NOW);
        let sight = changes.sight(1, b"a", before).expect("watched");
        assert!(!changes.still(sight));
    }

    #[test]
    fn a_change_makes_old_what_it_concerns_and_nothing_else() {
        let mut changes = Changes::default();
        assert_eq!(sight(&mut changes, 1, b"a"), None);
        assert_eq!(
            (changes.enter(1, 10), changes.enter(2, 20)),
            (Ok(None), Ok(None))
        );
        let files: [(i32, &[u8]); 3] = [(1, b"a"), (1, b"b"), (2, b"a")];
        let [a, b, other] =
            files.map(|(watch, name)| sight(&mut changes, watch, name).expect("watched"));
        assert!([a, b, other].iter().all(|&sight| changes.still(sight)));
        assert_eq!(changes.heard(1, Change::Of(b"a"), NOW), None);
        assert_eq!(
            [a, b, other].map(|sight| changes.still(sight)),
            [false, true, true]
        );
        assert!(sight(&mut changes, 1, b"a").is_some_and(|anew| changes.still(anew)));
        changes.heard(1, Change::All, NOW);
        assert_eq!([b, other].map(|sight| changes.still(sight)), [false, true]);
        changes.heard(2, Change::Gone, NOW);
        assert_eq!(
            (changes.still(other), sight(&mut changes, 2, b"a")),
            (false, None)
        );
        let b = sight(&mut changes, 1, b"b").expect("watched");
        changes.lost();
        assert!(!changes.still(b));
    }

    #[test]
    fn a_loud_directory_is_told_of_once_and_forgotten() {
        let mut changes = Changes::default();
        changes.enter(1, 10).expect("room");
        let first = sight(&mut changes, 1, b"a").expect("watched");
        for _ in 0..WATCH_EVENTS_MAX {
            assert_eq!(changes.heard(1, Change::Of(b"b"), NOW), None);
        }
        let loud = changes.heard(1, Change::Of(b"b"), NOW);
        assert_eq!(loud, Some(Loud { path_hash: 10 }));
        assert_eq!(
            (
                changes.heard(1, Change::All, NOW),
                sight(&mut changes, 1, b"a")
            ),
            (None, None)
        );
        assert!(!changes.still(first), "nobody heard what came after");
    }

    #[test]
    fn many_directories_that_are_loud_together_are_too_loud() {
        let mut changes = Changes::default();
        let count = HEARD_EVENTS_MAX as i32 / 100;
        for watch in 0..count {
            changes.enter(watch, 0).expect("room");
        }
        let mut heard = || {
            let each = (0..100 * count).map(|nth| changes.heard(nth % count, Change::All, NOW));
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
        let first = sight(&mut changes, 0, b"a").expect("watched");
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
        assert!(
            sight(&mut changes, looked_at, b"a").is_some()
                && sight(&mut changes, 0, b"a").is_none()
        );
        assert_eq!(changes.by_watch.len(), WATCHES_MAX);
    }

    proptest! {
        #[test]
        fn no_change_is_missed(acts in prop::collection::vec((0u8..6, 0i32..4, 0u8..4), 1..200)) {
            let mut changes = Changes::default();
            let (mut seen, mut old) = (Vec::<(i32, u8, Sight)>::new(), Vec::new());
            for (act, watch, name) in acts {
                let (concerned, change): (&dyn Fn(i32, u8) -> bool, _) = match act {
                    0 | 1 => {
                        if sight(&mut changes, watch, &[name]).is_none() {
                            prop_assert_eq!(changes.enter(watch, 0), Ok(None));
                        }
                        seen.extend(sight(&mut changes, watch, &[name]).map(|it| (watch, name, it)));
                        continue;
                    }
                    2 => (&|of, what| (of, what) == (watch, name), Some(Change::Of(&[name]))),
                    3 => (&|of, _| of == watch, Some(Change::All)),
                    4 => (&|of, _| of == watch, Some(Change::Gone)),
                    _ => (&|_, _| true, None),
                };
                match change {
                    Some(change) => drop(changes.heard(watch, change, NOW)),
                    None => changes.lost(),
                }
                old.extend(seen.iter().filter(|it| concerned(it.0, it.1)).map(|it| it.2));
                seen.retain(|it| !concerned(it.0, it.1));
                prop_assert!(!old.iter().any(|sight| changes.still(*sight)));
            }
        }
    }
}
