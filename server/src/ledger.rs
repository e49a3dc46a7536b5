//! The account of the memory that `memory_max` allows. All owners charge it before they take memory.
//!
//! Fixed amounts are charged at the start; connections, caches and listings as they come. The rest belongs to reading
//! ahead, which gives it back when others want it ([`ackpace_core::ahead`]).

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use ackpace_core::ahead::{Ahead, MemoryInUse};

use crate::mailbox::ThreadWaker;

/// The account. Any thread may take and give.
#[derive(Debug)]
pub struct Ledger {
    memory_bytes: u64,
    rule: Ahead,
    /// Memory that no owner has. Below 0 only by amounts that could not be refused.
    free_bytes: AtomicI64,
    /// Memory that all disks have for reading ahead.
    ahead_bytes: AtomicU64,
    disks: AtomicU64,
    /// Reading ahead was asked to give memory back, and has not checked since.
    asked: AtomicBool,
    wakers: [OnceLock<Arc<ThreadWaker>>; crate::limits::DEVICES_MAX],
}

impl Ledger {
    /// An account of `memory_bytes`, of which `fixed_bytes` are used from the start. Reading ahead may have
    /// `ahead_bytes_max`.
    pub fn new(memory_bytes: u64, fixed_bytes: u64, ahead_bytes_max: u64) -> Ledger {
        let signed = |bytes| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ledger {
            memory_bytes,
            rule: Ahead::of(memory_bytes, ahead_bytes_max),
            free_bytes: AtomicI64::new(signed(memory_bytes).saturating_sub(signed(fixed_bytes))),
            ahead_bytes: AtomicU64::new(0),
            disks: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            wakers: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Takes memory if it is available; returns whether it was.
    #[must_use]
    pub fn claim(&self, bytes: u64) -> bool {
        let bytes = bytes as i64;
        let claim = |free: i64| (free >= bytes).then(|| free - bytes);
        let before = self.free_bytes.fetch_update(Relaxed, Relaxed, claim);
        self.ask_if_short(before.map_or_else(|free| free.min(0), |free| free - bytes));
        before.is_ok()
    }

    /// Takes memory that can't be refused, available or not; for small amounts.
    pub fn take(&self, bytes: u64) {
        let before = self.free_bytes.fetch_sub(bytes as i64, Relaxed);
        self.ask_if_short(before - bytes as i64);
    }

    pub fn give(&self, bytes: u64) {
        self.free_bytes.fetch_add(bytes as i64, Relaxed);
    }

    /// Asks reading ahead to give memory back, once until a disk has checked.
    fn ask_if_short(&self, free_bytes: i64) {
        if self.rule.is_short(free_bytes) && !self.asked.swap(true, Relaxed) {
            self.wakers
                .iter()
                .filter_map(OnceLock::get)
                .for_each(|waker| waker.wake());
        }
    }

    /// Adds a disk that reads ahead; its thread is woken when others want memory.
    pub fn enter(&self, device: usize, waker: Arc<ThreadWaker>) {
        if let Some(place) = self.wakers.get(device) {
            let _ = place.set(waker);
        }
        self.disks.fetch_add(1, Relaxed);
        // They share with this one from now on.
        self.wakers
            .iter()
            .filter_map(OnceLock::get)
            .for_each(|waker| waker.wake());
    }

    /// A disk that was asked is about to check. To be called before it checks.
    pub fn heard(&self) {
        self.asked.store(false, Relaxed);
    }

    pub fn is_short(&self) -> bool {
        self.rule.is_short(self.free_bytes.load(Relaxed))
    }

    /// The memory that a disk with `own_bytes` is to have from now on. The process holds `held_bytes`. What exceeds the
    /// account is memory that was given back and that allocators keep; nobody else may have it.
    pub fn share_bytes(&self, own_bytes: u64, held_bytes: u64) -> u64 {
        let free_bytes = self.free_bytes.load(Relaxed);
        let told_bytes = self.memory_bytes as i64 - free_bytes;
        let kept_bytes = (held_bytes as i64 - told_bytes).max(0);
        self.rule.share_bytes(&MemoryInUse {
            all_bytes: self.ahead_bytes.load(Relaxed),
            own_bytes,
            disks: self.disks.load(Relaxed),
            free_bytes: free_bytes - kept_bytes,
        })
    }

    /// Takes more memory for reading ahead, if it is available; returns whether it was.
    #[must_use]
    pub fn claim_ahead(&self, bytes: u64) -> bool {
        let bytes_signed = bytes as i64;
        let claim = |free: i64| (free >= bytes_signed).then(|| free - bytes_signed);
        let claimed = self.free_bytes.fetch_update(Relaxed, Relaxed, claim);
        if claimed.is_ok() {
            self.ahead_bytes.fetch_add(bytes, Relaxed);
        }
        claimed.is_ok()
    }

    /// Gives memory of reading ahead back.
    pub fn give_ahead(&self, bytes: u64) {
        self.ahead_bytes.fetch_sub(bytes, Relaxed);
        self.give(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn what_is_taken_is_never_more_than_there_is() {
        let ledger = Ledger::new(100 * MIB, 40 * MIB, u64::MAX);
        assert!(ledger.claim(50 * MIB) && !ledger.claim(11 * MIB));
        assert!(ledger.claim_ahead(10 * MIB) && !ledger.claim_ahead(1));
        ledger.give(MIB);
        assert!(!ledger.claim_ahead(2 * MIB) && ledger.claim(MIB));
        ledger.take(MIB);
        assert!(!ledger.claim(1), "more was taken than there is");
        ledger.give_ahead(10 * MIB);
        assert!(ledger.claim(9 * MIB) && !ledger.claim(1));
    }

    #[test]
    fn threads_that_claim_at_once_share_what_there_is() {
        let ledger = Ledger::new(1000, 0, u64::MAX);
        let got = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..300 {
                        got.fetch_add(ledger.claim(1).into(), Relaxed);
                    }
                });
            }
        });
        assert_eq!(got.into_inner(), 1000);
    }

    #[test]
    fn disks_are_asked_once_when_others_want_memory() {
        let ledger = Ledger::new(100 * MIB, 0, u64::MAX);
        let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
        ledger.enter(0, Arc::clone(&waker));
        waker.awake();
        let signalled = || {
            let mut fds = [rustix::event::PollFd::new(
                &*waker,
                rustix::event::PollFlags::IN,
            )];
            let polled = rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default()));
            waker.awake();
            polled == Ok(1)
        };
        let share_bytes = ledger.share_bytes(0, 0);
        assert!(share_bytes > 90 * MIB && ledger.claim_ahead(share_bytes));
        assert!(ledger.claim(MIB) && !signalled(), "the reserve is for that");
        assert!(ledger.claim(3 * MIB) && signalled());
        assert!(ledger.claim(MIB) && !signalled(), "it was asked");
        ledger.heard();
        assert!(ledger.share_bytes(share_bytes, 0) < share_bytes);
        assert!(
            !ledger.claim(50 * MIB) && signalled(),
            "it gave nothing back"
        );
    }

    #[test]
    fn what_allocators_keep_is_nobody_s() {
        let ledger = Ledger::new(100 * MIB, 40 * MIB, u64::MAX);
        let share_bytes = ledger.share_bytes(0, 40 * MIB);
        assert_eq!(ledger.share_bytes(0, 60 * MIB), share_bytes - 20 * MIB);
    }
}
