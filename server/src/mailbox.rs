//! Communication between threads that never blocks: wakers, and mailboxes that hold the latest message for each place in
//! a table.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};

use crossbeam_utils::atomic::AtomicCell;
use rustix::event::{EventfdFlags, eventfd};

/// Wakes one thread that waits on its descriptor (eventfd(2)).
#[derive(Debug)]
pub struct ThreadWaker {
    fd: OwnedFd,
    signalled: AtomicBool,
    /// The thread was awake since [`ThreadWaker::was_awake`] was last asked.
    turned: AtomicBool,
}

impl ThreadWaker {
    /// A waker.
    pub fn new() -> io::Result<ThreadWaker> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(ThreadWaker {
            fd,
            signalled: AtomicBool::new(false),
            turned: AtomicBool::new(true),
        })
    }

    /// Wakes the thread, or keeps it from falling asleep. Until it is awake, further calls make no system call.
    pub fn wake(&self) {
        if !self.signalled.swap(true, AcqRel) {
            // The counter can't overflow: one write for each time the thread was awake.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Clears the signal. The thread calls it before it checks its inputs: a wake-up that comes during the check then stands
    /// until its next wait.
    pub fn awake(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        // A swap, not a store: it acquires what the last `wake` released. If that found the flag set and wrote nothing, this
        // alone makes its message visible to the check that follows. After a store, the check could read old values and the
        // message would wait for the next wake-up.
        self.signalled.swap(false, AcqRel);
        self.turned.store(true, Relaxed);
    }

    /// Whether the thread was awake since this was last asked, or is new. Wakes it: if it runs, it will have been awake the
    /// next time.
    pub fn was_awake(&self) -> bool {
        let turned = self.turned.swap(false, Relaxed);
        self.wake();
        turned
    }
}

impl AsFd for ThreadWaker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One cell for each place in a table; a later message replaces an earlier one that was not taken. So mailboxes never
/// overflow, however fast the two sides are, and neither waits for the other (docs/decisions/0022-mailboxes.md).
///
/// Any thread may put; one thread takes.
pub struct Mailboxes<T> {
    /// A message is boxed, so that a cell is one word, which the processor swaps at once.
    cells: Box<[AtomicCell<Option<Box<T>>>]>,
    filled: Filled,
}

impl<T> Mailboxes<T> {
    /// Memory for each place: its cell, its link, and a message with the allocator's header.
    pub const PLACE_BYTES: u64 =
        (size_of::<AtomicCell<Option<Box<T>>>>() + size_of::<AtomicU32>() + size_of::<T>() + 16)
            as u64;

    /// Mailboxes for places `0..places`; at least one.
    pub fn new(places: u32) -> Mailboxes<T> {
        const {
            assert!(
                AtomicCell::<Option<Box<T>>>::is_lock_free(),
                "crossbeam guards longer values by locks that all cells of the process share"
            );
        }
        let places = places.max(1);
        Mailboxes {
            cells: (0..places).map(|_| AtomicCell::new(None)).collect(),
            filled: Filled::new(places),
        }
    }

    /// How many places there are.
    pub fn places(&self) -> u32 {
        self.cells.len() as u32 // as it was made
    }

    /// Leaves a message for `place` and returns the one that it replaces. Returns the message itself if the table has
    /// no such place.
    pub fn put(&self, place: u32, message: T) -> Option<T> {
        let Some(cell) = self.cells.get(place as usize) else {
            debug_assert!(false, "place {place} of {}", self.cells.len());
            return Some(message);
        };
        let replaced = cell.swap(Some(Box::new(message)));
        if replaced.is_none() {
            self.filled.push(place);
        }
        replaced.map(|message| *message)
    }

    /// Takes the message of the place that was filled first. Only one thread may call this.
    pub fn take(&self) -> Option<T> {
        let place = self.filled.pop()?;
        self.cells[place as usize]
            .swap(None)
            .map(|message| *message)
    }
}

/// The end of a list.
const NONE: u32 = u32::MAX;

/// Places whose cell was filled, in that order, each at most once. Producers push to a stack (Treiber 1986). When the
/// one consumer has emptied its list, it turns the whole stack into a new one.
///
/// ABA does no harm: the top that a producer has read may be taken and pushed again before it swaps, but a push needs only the
/// current top. A pop of a single place would suffer, since it also needs the one below; there is none.
struct Filled {
    /// The place that was filled last.
    top: AtomicU32,
    next_taken: AtomicU32,
    /// For each place the one below it in the stack, or behind it in the list.
    links: Box<[AtomicU32]>,
}

impl Filled {
    fn new(places: u32) -> Filled {
        debug_assert!(places < NONE);
        Filled {
            top: AtomicU32::new(NONE),
            next_taken: AtomicU32::new(NONE),
            links: (0..places).map(|_| AtomicU32::new(NONE)).collect(),
        }
    }

    /// Adds a place that is neither in the stack nor in the list.
    fn push(&self, place: u32) {
        let link = &self.links[place as usize];
        let mut top = self.top.load(Relaxed);
        loop {
            link.store(top, Relaxed);
            match (self.top).compare_exchange_weak(top, place, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    /// The place that was filled first. Only one thread may call this.
    fn pop(&self) -> Option<u32> {
        let place = match self.next_taken.load(Relaxed) {
            NONE => self.turn_over(),
            place => place,
        };
        let link = self.links.get(place as usize)?;
        self.next_taken.store(link.load(Relaxed), Relaxed);
        Some(place)
    }

    /// Takes the whole stack and reverses it. Returns the place that was pushed first, or [`NONE`].
    fn turn_over(&self) -> u32 {
        let (mut above, mut place) = (NONE, self.top.swap(NONE, Acquire));
        while place != NONE {
            let below = self.links[place as usize].swap(above, Relaxed);
            (above, place) = (place, below);
        }
        above
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn a_thread_that_does_not_wake_is_told_from_one_that_does() {
        let waker = ThreadWaker::new().expect("a descriptor");
        assert!(waker.was_awake(), "it is new");
        assert!(!waker.was_awake() && !waker.was_awake(), "it hangs");
        waker.awake();
        assert!(waker.was_awake() && !waker.was_awake());
    }

    #[test]
    fn the_latest_message_of_a_place_wins_and_keeps_its_turn() {
        let boxes = Mailboxes::new(3);
        assert_eq!(boxes.put(2, "a"), None);
        assert_eq!(boxes.put(0, "b"), None);
        assert_eq!(boxes.put(2, "c"), Some("a"));
        assert_eq!(
            [boxes.take(), boxes.take(), boxes.take()],
            [Some("c"), Some("b"), None]
        );
    }

    #[test]
    fn places_come_in_the_order_in_which_they_were_filled() {
        let boxes = Mailboxes::new(100);
        let take = || std::iter::from_fn(|| boxes.take());
        for place in [7, 3, 99] {
            assert_eq!(boxes.put(place, place), None);
        }
        assert_eq!(boxes.take(), Some(7));
        // Behind those that were taken out of the stack together.
        assert_eq!([boxes.put(7, 70), boxes.put(0, 0)], [None, None]);
        assert_eq!(boxes.put(3, 30), Some(3));
        assert_eq!(take().collect::<Vec<_>>(), [30, 99, 70, 0]);
        assert_eq!(take().next(), None);
    }

    /// Several threads put their numbers into all places at random. Each message is taken or replaced once, and those of
    /// one thread and place come in order.
    #[test]
    fn no_message_is_lost_or_doubled_whoever_puts_at_the_same_time() {
        const PLACES: u32 = 5;
        const THREADS: u32 = 3;
        const EACH: u32 = 100_000;
        let boxes = Mailboxes::new(PLACES);
        let ended = AtomicU32::new(0);
        let mut met = vec![0u8; (THREADS * EACH) as usize];
        std::thread::scope(|scope| {
            let (boxes, ended) = (&boxes, &ended);
            let put_all = |thread: u32| {
                let mut replaced = Vec::new();
                for nth in 0..EACH {
                    let place = nth.wrapping_mul(2_654_435_761 + thread) >> 16;
                    let place = place % PLACES;
                    replaced.extend(boxes.put(place, (thread, place, nth)));
                }
                ended.fetch_add(1, Release);
                replaced
            };
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || put_all(thread)))
                .collect();
            let mut last = [[None; PLACES as usize]; THREADS as usize];
            loop {
                let all = ended.load(Acquire) == THREADS;
                while let Some((thread, place, nth)) = boxes.take() {
                    let last = &mut last[thread as usize][place as usize];
                    assert!(*last < Some(nth), "an old message came after a newer one");
                    *last = Some(nth);
                    met[(thread * EACH + nth) as usize] += 1;
                }
                if all {
                    break;
                }
            }
            for thread in threads {
                for (thread, _, nth) in thread.join().expect("it does not panic") {
                    met[(thread * EACH + nth) as usize] += 1;
                }
            }
        });
        let wrong = met.iter().position(|times| *times != 1);
        assert_eq!(wrong, None, "each is taken or replaced, once");
        assert!(boxes.put(1, (0, 0, 0)).is_none(), "taken cells are empty");
    }

    #[test]
    fn messages_that_nobody_took_are_freed() {
        let message = Arc::new(());
        let boxes = Mailboxes::new(2);
        boxes.put(1, Arc::clone(&message));
        drop(boxes);
        assert_eq!(Arc::strong_count(&message), 1);
    }

    #[test]
    fn a_waker_that_is_signalled_twice_wakes_once_and_can_wake_again() {
        let waker = ThreadWaker::new().expect("a descriptor");
        let sounds = |waker: &ThreadWaker| {
            let mut fds = [PollFd::new(waker, PollFlags::IN)];
            poll(&mut fds, Some(&rustix::event::Timespec::default())).expect("poll") == 1
        };
        assert!(!sounds(&waker));
        waker.wake();
        waker.wake();
        assert!(sounds(&waker));
        waker.awake();
        assert!(!sounds(&waker));
        waker.wake();
        assert!(sounds(&waker));
    }
}
