//! Small files that are asked for again and again: head and body ready to be sent, a copy for each worker.
//!
//! An answer is used within the second in which it was made; the first request of the next second looks
//! the file up again, so that nothing is staler than that, and [`watch`] hears of most changes at once. A
//! file enters when it is asked for a second time, so that a sweep over many files displaces nothing.

pub mod watch;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use ackpace_core::conn::{ObjectId, Version};

use crate::limits::{HOT_COPY_BYTES_MAX, HOT_FILE_BYTES_MAX, HOT_OPEN_MAX, HOT_SEEN_MAX};
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

    /// The same file below another head.
    fn below(&self, head: &Arc<[u8]>) -> Ready {
        match self {
            Ready::Whole {
                text,
                head_len_bytes,
            } => Ready::whole(head, &text[*head_len_bytes..]),
            Ready::Open { file, .. } => Ready::Open {
                head: Arc::clone(head),
                file: Arc::clone(file),
            },
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

/// The cache: by request target, bounded in bytes, in the order of the second chance (CLOCK, Corbató 1968).
pub struct Hot {
    budget_bytes: usize,
    held_bytes: usize,
    /// Files that are kept open.
    open: usize,
    by_target: HashMap<Box<[u8]>, usize>,
    slots: Vec<Slot>,
    hand: usize,
    /// Hashes of targets that were asked for once, by their low bits; a later one displaces an earlier one.
    seen: Box<[u64]>,
    hasher: RandomState,
}

struct Slot {
    target: Box<[u8]>,
    content: Content,
    ready: Ready,
    made_unix_s: u64,
    used: bool,
}

/// What is known of a file's answer that might be kept.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// Length of the file.
    pub len_bytes: u64,
    /// When it was last modified, seconds since 1970.
    pub modified_unix_s: i64,
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

impl Hot {
    /// An empty cache of `budget_bytes`; with 0 it stays empty.
    pub fn new(budget_bytes: u64) -> Hot {
        Hot {
            budget_bytes: usize::try_from(budget_bytes).unwrap_or(usize::MAX),
            held_bytes: 0,
            open: 0,
            by_target: HashMap::new(),
            slots: Vec::new(),
            hand: 0,
            seen: vec![0; HOT_SEEN_MAX].into(),
            hasher: RandomState::new(),
        }
    }

    /// Whether it may ever hold anything.
    pub fn is_on(&self) -> bool {
        self.budget_bytes > 0
    }

    /// Files that it holds, and the memory that they take.
    pub fn held(&self) -> (u64, u64) {
        (self.slots.len() as u64, self.held_bytes as u64)
    }

    /// The answer for a target, if it was made in this second.
    pub fn get(&mut self, target: &[u8], now_unix_s: u64) -> Option<(&Ready, &Content)> {
        let slot = &mut self.slots[*self.by_target.get(target)?];
        slot.used = true;
        (slot.made_unix_s == now_unix_s).then_some((&slot.ready, &slot.content))
    }

    /// Whether an answer for this target, which was just looked up, is worth keeping, and how: it is the same for everybody, has
    /// been asked for before, and may ever fit in.
    pub fn wants(&mut self, target: &[u8], candidate: &Candidate, now_unix_s: u64) -> Option<Keep> {
        let len_bytes = candidate.len_bytes;
        if candidate.varies || len_bytes > HOT_FILE_BYTES_MAX || self.budget_bytes == 0 {
            return None;
        }
        // Its validators are weak while it may still change within the second.
        let old = candidate.modified_unix_s + 2 < now_unix_s as i64;
        if !(self.holds(target) || self.asked_before(target)) || !old {
            return None;
        }
        match len_bytes {
            0..=HOT_COPY_BYTES_MAX => Some(Keep::Copied),
            _ => Some(Keep::Open),
        }
    }

    /// Whether the target was among the last to be asked for; from now on it is.
    fn asked_before(&mut self, target: &[u8]) -> bool {
        let hash = self.hasher.hash_one(target) | 1;
        let seen = &mut self.seen[(hash as usize >> 1) & (HOT_SEEN_MAX - 1)];
        std::mem::replace(seen, hash) == hash
    }

    /// What is kept for this content, below a new head, so that it need not be read again.
    pub fn renewed(&self, target: &[u8], content: &Content, head: &Arc<[u8]>) -> Option<Ready> {
        let slot = &self.slots[*self.by_target.get(target)?];
        (slot.content == *content).then(|| slot.ready.below(head))
    }

    /// Keep an answer, in the place of an older one for the same target. What was longest unused makes room.
    pub fn keep(&mut self, target: &[u8], content: Content, ready: Ready, now_unix_s: u64) {
        self.forget(target);
        let slot = Slot {
            target: target.into(),
            content,
            ready,
            made_unix_s: now_unix_s,
            used: false,
        };
        let needed_bytes = slot.bytes();
        if needed_bytes > self.budget_bytes {
            return;
        }
        let open = slot.open();
        while self.held_bytes + needed_bytes > self.budget_bytes || self.open + open > HOT_OPEN_MAX
        {
            self.evict_one();
        }
        self.held_bytes += needed_bytes;
        self.open += open;
        self.by_target.insert(target.into(), self.slots.len());
        self.slots.push(slot);
    }

    /// Whether an answer for the target is kept, of whatever second.
    pub fn holds(&self, target: &[u8]) -> bool {
        self.by_target.contains_key(target)
    }

    /// Forget the answer for a target.
    pub fn forget(&mut self, target: &[u8]) {
        if let Some(&at) = self.by_target.get(target) {
            self.remove(at);
        }
    }

    /// Forget everything.
    pub fn clear(&mut self) {
        self.by_target.clear();
        self.slots.clear();
        (self.held_bytes, self.open, self.hand) = (0, 0, 0);
    }

    fn evict_one(&mut self) {
        loop {
            self.hand = if self.hand < self.slots.len() {
                self.hand
            } else {
                0
            };
            let slot = &mut self.slots[self.hand];
            if !std::mem::take(&mut slot.used) {
                return self.remove(self.hand);
            }
            self.hand += 1;
        }
    }

    fn remove(&mut self, at: usize) {
        let gone = self.slots.swap_remove(at);
        self.held_bytes -= gone.bytes();
        self.open -= gone.open();
        self.by_target.remove(&gone.target);
        if let Some(moved) = self.slots.get(at) {
            if let Some(place) = self.by_target.get_mut(&moved.target) {
                *place = at;
            }
        }
    }
}

impl Slot {
    /// What the slot costs, with what the tables need for it.
    fn bytes(&self) -> usize {
        const TABLES_BYTES: usize = 128;
        let Slot { target, ready, .. } = self;
        let ready_bytes = match ready {
            Ready::Whole { text, .. } => text.len(),
            Ready::Open { head, file } => head.len() + size_of::<File>() + file.path.len(),
        };
        size_of::<Slot>() + TABLES_BYTES + 2 * target.len() + ready_bytes
    }

    fn open(&self) -> usize {
        usize::from(matches!(self.ready, Ready::Open { .. }))
    }
}

#[cfg(test)]
mod tests_support {
    use super::tests::{content, ready};
    use super::*;

    pub fn keep(hot: &mut Hot, target: &str) {
        hot.keep(target.as_bytes(), content(1), ready(1, 10), 1);
    }

    pub fn kept(hot: &mut Hot, target: &str) -> bool {
        hot.get(target.as_bytes(), 1).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn content(index: u32) -> Content {
        let object = ObjectId {
            device: 0,
            index,
            generation: 0,
        };
        let version = Version {
            len_bytes: 1000,
            mtime_ns: 5,
        };
        Content { object, version }
    }

    pub fn ready(fill: u8, len: usize) -> Ready {
        Ready::whole(&[b'h'; 100], &vec![fill; len])
    }

    fn body(ready: &Ready) -> &[u8] {
        match ready {
            Ready::Whole {
                text,
                head_len_bytes,
            } => &text[*head_len_bytes..],
            Ready::Open { .. } => &[],
        }
    }

    fn filled(found: Option<(&Ready, &Content)>) -> Option<u8> {
        body(found?.0).first().copied()
    }

    #[test]
    fn files_that_are_kept_open_are_bounded() {
        let file = || {
            let fd = std::fs::File::open("/dev/null").expect("a device").into();
            let oracle = ackpace_core::conn::Oracle::Ask;
            Arc::new(File::new(fd, content(1).object, oracle, b"", 0))
        };
        let mut hot = Hot::new(1 << 30);
        for index in 0..2 * HOT_OPEN_MAX as u32 {
            let ready = Ready::Open {
                head: [].into(),
                file: file(),
            };
            hot.keep(&index.to_be_bytes(), content(index), ready, 1);
        }
        assert_eq!((hot.open, hot.slots.len()), (HOT_OPEN_MAX, HOT_OPEN_MAX));
    }

    #[test]
    fn an_answer_is_good_for_its_second() {
        let mut hot = Hot::new(10_000);
        hot.keep(b"/a", content(1), ready(1, 1000), 7);
        assert_eq!(filled(hot.get(b"/a", 7)), Some(1));
        assert_eq!(filled(hot.get(b"/a", 8)), None);
        assert_eq!(filled(hot.get(b"/b", 7)), None);
        let renewed = |index| hot.renewed(b"/a", &content(index), &[b'H'].into());
        let Some(Ready::Whole { text, .. }) = renewed(1) else {
            panic!("it is there");
        };
        assert_eq!((text.len(), &text[..2]), (1001, &[b'H', 1][..]));
        assert!(renewed(2).is_none());
        hot.keep(b"/a", content(1), ready(2, 1000), 8);
        assert_eq!(filled(hot.get(b"/a", 8)), Some(2));
        hot.forget(b"/a");
        assert!(!hot.holds(b"/a") && hot.held_bytes == 0);
    }

    #[test]
    fn a_target_is_kept_when_it_is_asked_for_again() {
        let mut hot = Hot::new(10_000);
        let small = Candidate {
            len_bytes: 10,
            modified_unix_s: 100,
            varies: false,
        };
        let long = |len_bytes| Candidate { len_bytes, ..small };
        assert_eq!(hot.wants(b"/a", &small, 103), None);
        assert_eq!(hot.wants(b"/a", &small, 103), Some(Keep::Copied));
        let open = long(HOT_COPY_BYTES_MAX + 1);
        assert_eq!(hot.wants(b"/a", &open, 103), Some(Keep::Open));
        let (too_long, fresh) = (long(HOT_FILE_BYTES_MAX + 1), 102);
        assert_eq!(hot.wants(b"/a", &too_long, 103), None);
        assert_eq!(hot.wants(b"/a", &small, fresh), None);
        let varies = Candidate {
            varies: true,
            ..small
        };
        assert_eq!(hot.wants(b"/a", &varies, 103), None);
        let mut none = Hot::new(0);
        let twice = [(); 2].map(|()| none.wants(b"/a", &small, 103));
        assert_eq!(twice, [None, None]);
    }

    #[test]
    fn who_is_used_stays_and_who_is_not_makes_room() {
        let mut hot = Hot::new(4000);
        for (index, target) in [b"/a", b"/b", b"/c"].into_iter().enumerate() {
            hot.keep(target, content(index as u32), ready(0, 700), 1);
        }
        assert!(hot.get(b"/a", 1).is_some() && hot.get(b"/c", 1).is_some());
        hot.keep(b"/d", content(4), ready(0, 700), 1);
        assert!(
            hot.get(b"/b", 1).is_none(),
            "the only one without a second chance"
        );
        assert!(hot.get(b"/a", 1).is_some() && hot.get(b"/d", 1).is_some());
    }

    proptest! {
        #[test]
        fn it_never_holds_more_than_its_budget_and_finds_what_it_holds(
            budget in 0u64..20_000,
            acts in prop::collection::vec((0u8..40, 0usize..3000, any::<bool>()), 1..200),
        ) {
            let mut hot = Hot::new(budget);
            for (name, len, forget) in acts {
                let target = [b'/', name];
                if forget {
                    hot.forget(&target);
                } else {
                    hot.keep(&target, content(name.into()), ready(name, len), 1);
                }
                prop_assert!(hot.held_bytes as u64 <= budget);
                prop_assert_eq!(hot.by_target.len(), hot.slots.len());
                prop_assert_eq!(hot.slots.iter().map(Slot::bytes).sum::<usize>(), hot.held_bytes);
                for (at, slot) in hot.slots.iter().enumerate() {
                    prop_assert_eq!(hot.by_target[&slot.target], at);
                    prop_assert!(body(&slot.ready).iter().all(|byte| [*byte] == slot.target[1..]));
                }
            }
        }
    }
}
