//! The hand-over queue of each worker: new connections that other workers accepted for it. Beside the queue stands the
//! worker's load, by which the others choose whom to give a connection ([`ackpace_core::balance`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use ackpace_core::balance::WorkerLoad;
use crossbeam_queue::ArrayQueue;

use crate::limits::HANDED_MAX;
use crate::tcp::Accepted;

/// The queue of one worker. Its numbers are hints, each right by itself: nothing waits for them.
pub struct HandOver {
    /// The worker's connections, those in the queue included.
    connections: AtomicU64,
    /// How many of them have a known rate.
    known: AtomicU64,
    /// The sum of these rates.
    rate_bytes_per_s: AtomicU64,
    handed: ArrayQueue<Accepted>,
    /// Its worker ends and takes no more than what is in the queue already.
    ended: AtomicBool,
}

impl Default for HandOver {
    fn default() -> HandOver {
        HandOver {
            connections: AtomicU64::new(0),
            known: AtomicU64::new(0),
            rate_bytes_per_s: AtomicU64::new(0),
            handed: ArrayQueue::new(HANDED_MAX),
            ended: AtomicBool::new(false),
        }
    }
}

impl HandOver {
    /// The load of its worker.
    pub fn load(&self) -> WorkerLoad {
        WorkerLoad {
            connections: self.connections.load(Ordering::Relaxed),
            known: self.known.load(Ordering::Relaxed),
            rate_bytes_per_s: self.rate_bytes_per_s.load(Ordering::Relaxed),
        }
    }

    /// Its worker measured the rates of its connections: of how many, and their sum.
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

    /// Leaves a connection for its worker, whose waker is to be signalled then. It counts as the worker's from now on.
    ///
    /// # Errors
    /// A connection that the caller has to serve itself, if the queue is full or its worker ends: this one, or another one
    /// that waited in the queue.
    pub fn hand(&self, client: Accepted) -> Result<(), Accepted> {
        self.handed.push(client)?;
        // The fences (here and in `end`) order push and flag: either we see that the worker ends, or it sees what we pushed.
        // If both happen, whoever pops a connection serves it.
        fence(Ordering::SeqCst);
        let ended = self.ended.load(Ordering::Relaxed);
        if let Some(client) = ended.then(|| self.handed.pop()).flatten() {
            return Err(client);
        }
        self.opened();
        Ok(())
    }

    /// Its worker ends: the queue takes no more. What is in it is still to be served.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
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

    #[test]
    fn a_worker_that_ends_is_handed_nothing_more_and_loses_nothing() {
        let handover = HandOver::default();
        assert!(handover.hand(client()).is_ok());
        handover.end();
        assert!(handover.take().is_some(), "it was handed before");
        assert!(
            handover.hand(client()).is_err(),
            "it stays with who accepted it"
        );
        assert!(handover.is_empty());
        assert_eq!(handover.load().connections, 1);
    }

    #[test]
    fn each_connection_is_served_by_one_side_whenever_the_worker_ends() {
        use std::sync::atomic::AtomicUsize;
        for _ in 0..200 {
            let (handover, kept) = (HandOver::default(), AtomicUsize::new(0));
            let mut taken = 0;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..HANDED_MAX {
                        kept.fetch_add(handover.hand(client()).is_err().into(), Ordering::Relaxed);
                    }
                });
                handover.end();
                while handover.take().is_some() {
                    taken += 1;
                }
            });
            assert!(handover.is_empty(), "nobody would serve it");
            assert_eq!(taken + kept.load(Ordering::Relaxed), HANDED_MAX);
        }
    }
}
