//! How threads tell each other things without waiting: a bell that wakes, and boxes that hold the
//! latest message of each place.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use crossbeam_utils::atomic::AtomicCell;
use rustix::event::{EventfdFlags, eventfd};

/// Wakes one thread that waits on its descriptor (eventfd(2)).
#[derive(Debug)]
pub struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    /// A silent bell.
    ///
    /// # Errors
    /// When the process is out of descriptors.
    pub fn new() -> io::Result<Bell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Bell {
            fd,
            rung: AtomicBool::new(false),
        })
    }

    /// Wake the thread, or keep it from falling asleep. Further rings cost nothing until it has heard.
    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // The counter can't overflow: one write for each time the bell was heard.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// The thread has woken and will look at everything now. To be called before it looks.
    pub fn heard(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        self.rung.store(false, Ordering::Release);
    }
}

impl AsFd for Bell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// One cell for each place in a table; a later message replaces an earlier one that nobody has
/// taken. So nothing can overflow, whatever the speed of the two sides.
pub struct Mailboxes<T> {
    cells: Box<[AtomicCell<Option<T>>]>,
    /// Places whose cell was filled, each at most once.
    filled: ArrayQueue<u32>,
}

impl<T> Mailboxes<T> {
    /// What a place costs: its cell, and a number in the queue with the mark beside it.
    pub const PLACE_BYTES: u64 = (size_of::<AtomicCell<Option<T>>>() + 16) as u64;

    /// Boxes for places `0..places`; at least one.
    pub fn new(places: u32) -> Mailboxes<T> {
        let places = places.max(1);
        Mailboxes {
            cells: (0..places).map(|_| AtomicCell::new(None)).collect(),
            filled: ArrayQueue::new(places as usize),
        }
    }

    /// Leave a message for `place`; returns the one that it replaces. A place that is not in the table has no box: its message
    /// comes back.
    pub fn put(&self, place: u32, message: T) -> Option<T> {
        let Some(cell) = self.cells.get(place as usize) else {
            debug_assert!(false, "place {place} of {}", self.cells.len());
            return Some(message);
        };
        let replaced = cell.swap(Some(message));
        if replaced.is_none() {
            let pushed = self.filled.push(place);
            debug_assert!(pushed.is_ok(), "a place stands in the queue at most once");
        }
        replaced
    }

    /// Take the message of the place that has waited longest.
    pub fn take(&self) -> Option<T> {
        let place = self.filled.pop()?;
        self.cells[place as usize].swap(None)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

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
    fn no_message_is_lost_between_two_threads() {
        let boxes = Arc::new(Mailboxes::new(4));
        let writer = Arc::clone(&boxes);
        let wrote = std::thread::spawn(move || {
            for n in 1..=100_000u64 {
                writer.put((n % 4) as u32, n);
            }
        });
        let mut last = [0u64; 4];
        while last.iter().copied().max() != Some(100_000) || last.contains(&0) {
            if let Some(n) = boxes.take() {
                let place = (n % 4) as usize;
                assert!(n > last[place], "an old message came after a newer one");
                last[place] = n;
            }
        }
        wrote.join().expect("the writer does not panic");
        while boxes.take().is_some() {}
        assert!(boxes.put(1, 7).is_none(), "taken cells are empty");
    }

    #[test]
    fn a_bell_rung_twice_is_heard_once_and_can_ring_again() {
        let bell = Bell::new().expect("a descriptor");
        let sounds = |bell: &Bell| {
            let mut fds = [PollFd::new(bell, PollFlags::IN)];
            poll(&mut fds, Some(&rustix::event::Timespec::default())).expect("poll") == 1
        };
        assert!(!sounds(&bell));
        bell.ring();
        bell.ring();
        assert!(sounds(&bell));
        bell.heard();
        assert!(!sounds(&bell));
        bell.ring();
        assert!(sounds(&bell));
    }
}
