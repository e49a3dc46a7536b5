//! The hand-over queue of each worker: new connections that others accepted for it, and what it carries, for them to see.

use std::sync::atomic::{AtomicU64, Ordering};

use ackpace_core::balance::Load;
use crossbeam_queue::ArrayQueue;

use crate::limits::HANDED_MAX;
use crate::tcp::Accepted;

/// The queue of one worker. Its numbers are hints, each right by itself: nothing waits for them.
pub struct HandOver {
    connections: AtomicU64,
    known: AtomicU64,
    rate_bytes_per_s: AtomicU64,
    handed: ArrayQueue<Accepted>,
}

impl Default for HandOver {
    fn default() -> HandOver {
        HandOver {
            connections: AtomicU64::new(0),
            known: AtomicU64::new(0),
            rate_bytes_per_s: AtomicU64::new(0),
            handed: ArrayQueue::new(HANDED_MAX),
        }
    }
}

impl HandOver {
    /// The load of its worker.
    pub fn load(&self) -> Load {
        Load {
            connections: self.connections.load(Ordering::Relaxed),
            known: self.known.load(Ordering::Relaxed),
            rate_bytes_per_s: self.rate_bytes_per_s.load(Ordering::Relaxed),
        }
    }

    /// Its worker measured the rates of its connections.
    pub fn measured(&self, known: u64, rate_bytes_per_s: u64) {
        self.known.store(known, Ordering::Relaxed);
        self.rate_bytes_per_s
            .store(rate_bytes_per_s, Ordering::Relaxed);
    }

    /// Its worker has one connection more.
    pub fn opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Its worker has one connection less.
    pub fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Leaves a connection for its worker, whose waker is to be signalled then; it counts as the worker's from now
    /// on. Comes back if the queue is full.
    pub fn hand(&self, client: Accepted) -> Result<(), Accepted> {
        self.handed.push(client)?;
        self.opened();
        Ok(())
    }

    /// Whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.handed.is_empty()
    }

    /// Takes the next connection.
    pub fn take(&self) -> Option<Accepted> {
        self.handed.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client() -> Accepted {
        Accepted {
            socket: std::fs::File::open("/dev/null").expect("a device").into(),
            peer: None,
        }
    }

    #[test]
    fn what_is_handed_counts_at_once_and_is_bounded() {
        let handover = HandOver::default();
        for _ in 0..HANDED_MAX {
            assert!(handover.hand(client()).is_ok());
        }
        assert!(
            handover.hand(client()).is_err(),
            "it stays with who accepted it"
        );
        assert_eq!(handover.load().connections, HANDED_MAX as u64);
        assert!(handover.take().is_some());
        handover.closed();
        handover.measured(3, 500);
        let load = handover.load();
        assert_eq!((load.connections, load.known), (HANDED_MAX as u64 - 1, 3));
        assert_eq!(load.rate_bytes_per_s, 500);
    }
}
