//! The thread that divides send memory: it asks the workers, hears them, and hands shares out, as its machine orders
//! ([`ackpace_share::pool`]). No worker ever waits for it.
//!
//! Shares wait in a mailbox for each connection, where a later one replaces an earlier one; a question waits in a cell of
//! its worker. What workers tell comes by a queue. What does not fit into that is lost, and the next samples, a second later, tell it.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::thread;
use std::time::Duration;

use ackpace_core::conn::ConnId;
use ackpace_core::machine::Machine;
use ackpace_share::Policy;
use ackpace_share::bound::Grant;
use ackpace_share::pool::{In, Out, Pool, Settings};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};

use crate::clock::Clock;
use crate::count::Count;
use crate::limits::REPORTS_MAX;
use crate::mailbox::{Mailboxes, ThreadWaker};

/// No question waits.
const NO_QUESTION: u32 = u32::MAX;

/// A share for a connection; `None` takes it back.
#[derive(Clone, Copy, Debug)]
pub struct ShareChange {
    pub conn: ConnId,
    pub grant: Option<Grant>,
}

pub struct ShareChannel {
    grants: Mailboxes<ShareChange>,
    /// From which slot on it is asked for samples; [`NO_QUESTION`]: it is not.
    sample_from: AtomicU32,
    waker: Arc<ThreadWaker>,
}

impl ShareChannel {
    /// Memory for each connection.
    pub const PLACE_BYTES: u64 = Mailboxes::<ShareChange>::PLACE_BYTES;

    /// The next share. Only its worker may call this.
    pub fn take_grant(&self) -> Option<ShareChange> {
        self.grants.take()
    }

    pub fn take_question(&self) -> Option<u32> {
        if self.sample_from.load(Relaxed) == NO_QUESTION {
            return None;
        }
        Some(self.sample_from.swap(NO_QUESTION, AcqRel)).filter(|from| *from != NO_QUESTION)
    }
}

/// Numbers for operators, written by the divider alone.
#[derive(Debug, Default)]
pub struct DividerTally {
    pub shares_bytes: Count,
    /// What sockets held, unsent and in flight, when they were last sampled.
    pub held_bytes: Count,
    pub connections: Count,
    pub divisions: Count,
}

/// What workers, divider and operators share.
pub struct Dividing {
    settings: Settings,
    channels: Vec<ShareChannel>,
    start_bytes: AtomicU64,
    reports: Sender<In>,
    heard: Receiver<In>,
    pub tally: DividerTally,
}

impl Dividing {
    /// Send memory of `pool_bytes` that nobody has a share of yet; each worker has this waker and so many `places`.
    pub fn new(
        policy: Policy,
        pool_bytes: u64,
        wakers: impl Iterator<Item = Arc<ThreadWaker>>,
        places: u32,
        clock: Clock,
    ) -> Dividing {
        let channel = |waker| ShareChannel {
            grants: Mailboxes::new(places),
            sample_from: AtomicU32::new(NO_QUESTION),
            waker,
        };
        let channels: Vec<ShareChannel> = wakers.map(channel).collect();
        let settings = Settings {
            policy,
            pool_bytes,
            workers: channels.len() as u16, // at most 64
            secret: RandomState::new().hash_one(0),
        };
        let start_bytes = Pool::new(settings, clock.now()).totals().start_bytes;
        let (reports, heard) = bounded(REPORTS_MAX);
        Dividing {
            settings,
            channels,
            start_bytes: AtomicU64::new(start_bytes),
            reports,
            heard,
            tally: DividerTally::default(),
        }
    }

    pub fn pool_bytes(&self) -> u64 {
        self.settings.pool_bytes
    }

    /// What a connection may hold that begins to send, until it is told its share.
    pub fn start_bytes(&self) -> u64 {
        self.start_bytes.load(Relaxed)
    }

    pub fn channel(&self, worker: usize) -> &ShareChannel {
        &self.channels[worker]
    }

    pub fn report(&self, report: In) {
        let _ = self.reports.try_send(report);
    }

    fn run(&self, clock: Clock) {
        let mut pool = Pool::new(self.settings, clock.now());
        loop {
            let due = pool.deadline().map(|at| at.since_us(clock.now()));
            let wait = Duration::from_micros(due.unwrap_or(u64::MAX));
            match self.heard.recv_timeout(wait) {
                Ok(report) => {
                    let more = self.heard.try_iter().take(REPORTS_MAX);
                    for report in std::iter::once(report).chain(more) {
                        pool.on(report, clock.now());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.obey(&mut pool, clock);
        }
    }

    /// Executes what the machine orders, and wakes the workers that it is for.
    fn obey(&self, pool: &mut Pool, clock: Clock) {
        let mut to_wake = 0u64; // a bit for each of 64 workers
        while let Some(out) = pool.poll(clock.now()) {
            let worker = match out {
                Out::Sample { worker, from } => {
                    self.channel(worker.into()).sample_from.store(from, Release);
                    worker
                }
                Out::Share {
                    worker,
                    conn,
                    grant,
                } => {
                    let told = ShareChange { conn, grant };
                    self.channel(worker.into()).grants.put(conn.index, told);
                    worker
                }
            };
            to_wake |= 1 << worker;
        }
        let totals = pool.totals();
        self.start_bytes.store(totals.start_bytes, Relaxed);
        self.tally.shares_bytes.set(totals.shares_bytes);
        self.tally.held_bytes.set(totals.held_bytes);
        self.tally.connections.set(totals.connections);
        self.tally.divisions.set(totals.divisions);
        let woken = self.channels.iter().enumerate();
        woken
            .filter(|(worker, _)| to_wake & 1 << worker != 0)
            .for_each(|(_, channel)| channel.waker.wake());
    }
}

/// Starts the thread, which lives as long as the process.
pub fn start(dividing: &Arc<Dividing>, clock: Clock) -> io::Result<()> {
    let dividing = Arc::clone(dividing);
    thread::Builder::new()
        .name("divider".to_owned())
        .spawn(move || dividing.run(clock))?;
    Ok(())
}
