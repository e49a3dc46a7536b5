//! The content of files over time: the truth that responses are judged by.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::content::State;

/// A small file may be answered from memory for a moment after it changed. This allows far more than that moment, since
/// the machine may be busy.
pub const STALE_FOR: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Appear,
    /// Bytes were added at its end.
    Grow,
    /// It was overwritten or truncated: the same inode has other bytes.
    InPlace,
    /// Another file was renamed to its name (rename(2)).
    Replace,
    /// Its times were set.
    Touch,
    Vanish,
}

/// A period of a file's life.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Its content; `None` while there is no such file.
    pub state: Option<Arc<State>>,
    pub change: Change,
    pub begun: Instant,
    /// When the change was done; `None`: it is under way.
    pub ended: Option<Instant>,
    /// The file's time of modification after the change, in ns since 1970.
    pub modified_ns: i128,
}

#[derive(Clone, Debug)]
pub struct Life {
    /// The path at which it is served.
    pub target: String,
    /// All its stages, oldest first; never empty.
    pub stages: Vec<Stage>,
    /// The stages that each strong tag was seen for.
    tags: HashMap<String, Vec<usize>>,
}

impl Life {
    /// A file that has existed for a long time.
    pub fn new(target: &str, state: Option<Arc<State>>, begun: Instant) -> Life {
        let stage = Stage {
            state,
            change: Change::Appear,
            begun,
            ended: Some(begun),
            modified_ns: 0,
        };
        Life {
            target: target.to_owned(),
            stages: vec![stage],
            tags: HashMap::new(),
        }
    }

    pub fn now(&self) -> &Stage {
        self.stages.last().expect("a file has a stage")
    }

    /// Index of the oldest stage that a request at this time may still see.
    pub fn oldest_seen_at(&self, asked: Instant) -> usize {
        let settled = |stage: &Stage| stage.ended.is_some_and(|ended| ended + STALE_FOR <= asked);
        self.stages.iter().rposition(settled).unwrap_or(0)
    }

    /// Whether a change was made since then, or was still under way.
    pub fn changed_since(&self, since: Instant) -> bool {
        let of = |stage: &Stage| stage.ended.is_none_or(|ended| ended >= since);
        self.stages.iter().skip(1).any(of)
    }

    /// Records that a response with this strong tag matches some of these stages. Returns false if none of them matches
    /// what had the tag before, unless a restored time makes them look alike.
    pub fn tagged(&mut self, tag: &str, stages: &[usize]) -> bool {
        let alike = |a: usize, b: usize| {
            let (a, b) = (&self.stages[a], &self.stages[b]);
            let len = |stage: &Stage| stage.state.as_ref().map(|state| state.len_bytes());
            a.state == b.state || (len(a) == len(b) && a.modified_ns == b.modified_ns)
        };
        let Some(known) = self.tags.get(tag) else {
            self.tags.insert(tag.to_owned(), stages.to_vec());
            return true;
        };
        let both = |stage: &&usize| known.iter().any(|known| alike(*known, **stage));
        let both: Vec<usize> = stages.iter().filter(both).copied().collect();
        if both.is_empty() {
            return false;
        }
        self.tags.insert(tag.to_owned(), both);
        true
    }
}

/// All files. Code that changes one records it here before and after.
#[derive(Default)]
pub struct History(Mutex<Vec<Life>>);

impl History {
    pub fn new(lives: Vec<Life>) -> History {
        History(Mutex::new(lives))
    }

    /// Access to the files; to be held for a short time.
    pub fn lives(&self) -> MutexGuard<'_, Vec<Life>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the begin of a change to this content.
    pub fn begin(&self, file: usize, change: Change, state: Option<Arc<State>>) {
        self.lives()[file].stages.push(Stage {
            state,
            change,
            begun: Instant::now(),
            ended: None,
            modified_ns: 0,
        });
    }

    pub fn end(&self, file: usize, modified_ns: i128) {
        let mut lives = self.lives();
        let stage = lives[file].stages.last_mut().expect("it has begun");
        (stage.ended, stage.modified_ns) = (Some(Instant::now()), modified_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_of_two_contents_is_found_unless_their_times_were_made_alike() {
        let start = Instant::now();
        let mut life = Life::new("/a", Some(State::new(0, 1, 100)), start);
        let mut stage = life.now().clone();
        stage.state = Some(State::new(0, 2, 100));
        life.stages.push(stage.clone());
        stage.modified_ns = 500_000_000;
        stage.state = Some(State::new(0, 3, 100));
        life.stages.push(stage);
        assert!(life.tagged("\"a\"", &[0]));
        assert!(life.tagged("\"a\"", &[1]), "a time put back");
        assert!(!life.tagged("\"a\"", &[2]));
        assert!(life.tagged("\"b\"", &[2]));
    }

    #[test]
    fn who_asks_may_see_what_was_there_a_moment_ago_and_nothing_older() {
        let start = Instant::now();
        let mut life = Life::new("/a", Some(State::new(0, 1, 100)), start);
        for nth in 1..4 {
            let mut stage = life.now().clone();
            stage.begun = start + Duration::from_secs(10 * nth);
            stage.ended = Some(stage.begun + Duration::from_secs(1));
            life.stages.push(stage);
        }
        let at = |s| life.oldest_seen_at(start + Duration::from_secs(s));
        assert_eq!([at(1), at(15), at(16), at(100)], [0, 0, 1, 3]);
        assert!(life.changed_since(start + Duration::from_secs(31)));
        assert!(!life.changed_since(start + Duration::from_secs(32)));
    }
}
