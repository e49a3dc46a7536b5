//! The hand-over queue of each worker: connections that other workers give it. Beside the queue stands the worker's load,
//! by which the others choose whom to give a connection ([`ackpace_core::balance`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use ackpace_core::balance::WorkerLoad;
use ackpace_core::worker::{Exported, LocalFile};
use crossbeam_queue::ArrayQueue;

use super::conns::Conn;
use crate::limits::{HANDED_MAX, WORKERS_MAX};

/// A connection on its way to another worker, which has a place for it.
pub struct Handed {
    pub(crate) conn: Conn,
    /// The machine's half; `None`: it was just accepted.
    pub(crate) exported: Option<Box<Exported<LocalFile>>>,
}

impl Handed {
    /// A connection that was just accepted.
    pub fn accepted(conn: Conn) -> Box<Handed> {
        let exported = None;
        Box::new(Handed { conn, exported })
    }
}

/// The queue of one worker. Its numbers are hints, each right by itself: nothing waits for them.
pub struct HandOver {
    /// The worker's connections, those in the queue included.
    connections: AtomicU64,
    rate_bytes_per_s: AtomicU64,
    handed: ArrayQueue<Box<Handed>>,
    /// Its worker ends and takes no more than what is in the queue already.
    ended: AtomicBool,
}

impl Default for HandOver {
    fn default() -> HandOver {
        HandOver {
            connections: AtomicU64::new(0),
            rate_bytes_per_s: AtomicU64::new(0),
            handed: ArrayQueue::new(HANDED_MAX),
            ended: AtomicBool::new(false),
        }
    }
}

impl HandOver {
    pub fn load(&self) -> WorkerLoad {
        WorkerLoad {
            connections: self.connections.load(Ordering::Relaxed),
            rate_bytes_per_s: self.rate_bytes_per_s.load(Ordering::Relaxed),
        }
    }

    /// Its worker measured the rates of its connections; this is their sum.
    pub fn measured(&self, rate_bytes_per_s: u64) {
        self.rate_bytes_per_s
            .store(rate_bytes_per_s, Ordering::Relaxed);
    }

    /// Takes one of the worker's `places`, for a connection that is to be accepted. `false`: all are taken.
    pub fn claim(&self, places: u64) -> bool {
        let more = |taken| (taken < places).then_some(taken + 1);
        let claimed = (self.connections).fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        claimed.is_ok()
    }

    /// The same for a connection that is to be handed to the worker. `false` also while its queue is nearly full: each of the
    /// other workers may be about to hand one.
    pub fn claim_to_hand(&self, places: u64) -> bool {
        let free = HANDED_MAX - self.handed.len();
        free >= usize::from(WORKERS_MAX) && self.claim(places)
    }

    /// Gives a place back: its connection is no more.
    pub fn closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Leaves a connection for its worker, whose waker is to be signalled then. It has a place already.
    /// Errors: A connection that the caller has to serve itself, if its worker ends: this one, or another one that waited in the
    /// queue.
    pub fn hand(&self, client: Box<Handed>) -> Result<(), Box<Handed>> {
        self.handed.push(client)?;
        // The fences (here and in `end`) order push and flag: either we see that the worker ends, or it sees what we pushed.
        // If both happen, whoever pops a connection serves it.
        fence(Ordering::SeqCst);
        let ended = self.ended.load(Ordering::Relaxed);
        if let Some(client) = ended.then(|| self.handed.pop()).flatten() {
            return Err(client);
        }
        Ok(())
    }

    /// Its worker ends: the queue takes no more. What is in it is still to be served.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    pub fn is_empty(&self) -> bool {
        self.handed.is_empty()
    }

    pub fn take(&self) -> Option<Box<Handed>> {
        self.handed.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Accepted;

    fn client() -> Box<Handed> {
        let accepted = Accepted {
            socket: std::fs::File::open("/dev/null").expect("a device").into(),
            peer: None,
        };
        Handed::accepted(Conn::new(accepted, None))
    }

    #[test]
    fn each_place_is_claimed_once_and_free_again_when_its_connection_is_no_more() {
        let (handover, places) = (HandOver::default(), 50);
        let claimed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        claimed.fetch_add(handover.claim(places).into(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(claimed.into_inner(), places);
        handover.closed();
        assert!(handover.claim_to_hand(places) && !handover.claim_to_hand(places));
        handover.measured(500);
        let load = handover.load();
        assert_eq!((load.connections, load.rate_bytes_per_s), (places, 500));
    }

    #[test]
    fn nothing_more_is_claimed_for_a_queue_that_all_other_workers_might_overflow() {
        let handover = HandOver::default();
        let handed = (0..).take_while(|_| handover.claim_to_hand(u64::MAX));
        let handed = handed.map(|_| assert!(handover.hand(client()).is_ok()));
        let handed = handed.count();
        for _ in 1..WORKERS_MAX {
            assert!(handover.hand(client()).is_ok(), "after {handed}");
        }
        assert!(handover.claim(u64::MAX), "for its own worker");
        assert!(handover.take().is_some());
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
