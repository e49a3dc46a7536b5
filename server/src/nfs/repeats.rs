//! Replies to calls that must not be carried out twice. A client that has lost its connection repeats what was not answered, by the
//! same number: a file that is removed would be missing the second time.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Replies that are kept: 16 clients with all their calls under way. More: the oldest one is forgotten.
const REPLIES_MAX: usize = 1024;
/// The longest reply that is kept: RENAME has 260 bytes. Longer: a repeated call is carried out again.
const REPLY_BYTES_MAX: usize = 512;
/// A reply is kept for so long: clients repeat within a minute (timeo). Longer: an old number would be taken for a new call's.
const KEPT: Duration = Duration::from_secs(120);
/// A repeated call waits for so long until the first one has its reply. Longer: its client is told to try again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Memory of all replies at worst.
pub const REPLIES_BYTES: u64 =
    (REPLIES_MAX * (REPLY_BYTES_MAX + 3 * size_of::<(Key, Known)>())) as u64;

/// A call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    from: IpAddr,
    xid: u32,
    /// Of all its bytes.
    call: u64,
}

#[derive(Debug)]
struct Known {
    since: Instant,
    /// Without: it is under way.
    reply: Option<Vec<u8>>,
}

/// What is to be done with a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is new: carry it out.
    New,
    /// It has this reply.
    Replied(Vec<u8>),
    /// The first one takes too long.
    Waits,
}

/// Replies by their calls.
#[derive(Debug, Default)]
pub struct Repeats {
    state: Mutex<State>,
    replied: Condvar,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<Key, Known>,
    by_age: VecDeque<Key>,
}

impl Repeats {
    /// What a call is known by: the client, its number and its bytes.
    pub fn key(&self, from: IpAddr, xid: u32, record: &[u8]) -> Key {
        Key {
            from,
            xid,
            call: self.hasher.hash_one(record),
        }
    }

    /// A call begins, or is a repeated one. Waits for the first one if that is under way.
    pub fn begin(&self, key: Key) -> Seen {
        let mut state = self.lock();
        let until = Instant::now() + PATIENCE;
        loop {
            let now = Instant::now();
            match state.known.get(&key) {
                Some(known) if now.duration_since(known.since) >= KEPT => {
                    state.forget(&key);
                }
                Some(Known {
                    reply: Some(reply), ..
                }) => return Seen::Replied(reply.clone()),
                Some(_) if now >= until => return Seen::Waits,
                Some(_) => {
                    let waited = self.replied.wait_timeout(state, until - now);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                None => {
                    state.add(key, now);
                    return Seen::New;
                }
            }
        }
    }

    /// A new call has its reply. Without one it may begin again.
    pub fn end(&self, key: Key, reply: Option<&[u8]>) {
        let reply = reply.filter(|reply| reply.len() <= REPLY_BYTES_MAX);
        let mut state = self.lock();
        match (state.known.get_mut(&key), reply) {
            (Some(known), Some(reply)) => known.reply = Some(reply.to_vec()),
            (Some(_), None) => state.forget(&key),
            (None, _) => {}
        }
        drop(state);
        self.replied.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: Key, now: Instant) {
        while self.by_age.len() >= REPLIES_MAX {
            let oldest = self.by_age.pop_front();
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        let (since, reply) = (now, None);
        self.known.insert(key, Known { since, reply });
        self.by_age.push_back(key);
    }

    fn forget(&mut self, key: &Key) {
        self.known.remove(key);
        self.by_age.retain(|other| other != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_call_gets_the_first_ones_reply() {
        let repeats = Repeats::default();
        let (a, b): (IpAddr, IpAddr) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let key = repeats.key(a, 7, b"remove x");
        assert_eq!(repeats.begin(key), Seen::New);
        repeats.end(key, Some(b"done"));
        assert_eq!(repeats.begin(key), Seen::Replied(b"done".to_vec()));
        for other in [
            repeats.key(b, 7, b"remove x"),
            repeats.key(a, 8, b"remove x"),
            repeats.key(a, 7, b"remove y"),
        ] {
            assert_eq!(repeats.begin(other), Seen::New);
            repeats.end(other, None);
            assert_eq!(repeats.begin(other), Seen::New, "it has no reply");
            repeats.end(other, Some(&[0; REPLY_BYTES_MAX + 1]));
            assert_eq!(repeats.begin(other), Seen::New, "a long one is not kept");
        }
    }

    #[test]
    fn a_repeated_call_waits_for_the_first_one() {
        let repeats = Repeats::default();
        let key = repeats.key([10, 0, 0, 1].into(), 7, b"remove x");
        assert_eq!(repeats.begin(key), Seen::New);
        std::thread::scope(|scope| {
            let second = scope.spawn(|| repeats.begin(key));
            repeats.end(key, Some(b"done"));
            let seen = second.join().expect("no panic");
            assert_eq!(seen, Seen::Replied(b"done".to_vec()));
        });
    }

    #[test]
    fn the_oldest_replies_make_room() {
        let repeats = Repeats::default();
        let from = [10, 0, 0, 1].into();
        for xid in 0..2 * REPLIES_MAX as u32 {
            let key = repeats.key(from, xid, b"");
            assert_eq!(repeats.begin(key), Seen::New);
            repeats.end(key, Some(b"done"));
        }
        let state = repeats.lock();
        assert!(state.known.len() == REPLIES_MAX && state.by_age.len() == REPLIES_MAX);
        drop(state);
        let last = repeats.key(from, 2 * REPLIES_MAX as u32 - 1, b"");
        assert_ne!(repeats.begin(last), Seen::New);
        assert_eq!(repeats.begin(repeats.key(from, 0, b"")), Seen::New);
    }
}
