//! Mappings of files that nobody has open, kept for a few seconds: the next client often asks for the same file, and what is in
//! the page tables need not be entered again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::super::closing::{is_started, later, without_disk};
use super::whole::{MappedVersion, WHOLE_BYTES, Whole};
use crate::limits::{LINGERING_MAX, LINGERS};

/// What lingers, and since when; the oldest comes first.
static LINGERING: Mutex<Vec<Lingering>> = Mutex::new(Vec::new());
/// A sweep is ordered: one at a time.
static SWEEP_ORDERED: AtomicBool = AtomicBool::new(false);

/// A mapping of a file of this file system that nobody has open.
struct Lingering {
    since: Instant,
    st_dev: u64,
    whole: Arc<Whole>,
}

/// Memory of what lingers at most, in a list that grew by doubling.
pub const LINGERING_BYTES: u64 =
    (LINGERING_MAX * (2 * size_of::<Lingering>())) as u64 + LINGERING_MAX as u64 * WHOLE_BYTES;

/// Keeps the mapping of a file of this file system for a while.
pub fn keep(st_dev: u64, whole: Arc<Whole>) {
    if !is_started() {
        return later(st_dev, whole); // nobody would end it
    }
    let Ok(mut lingering) = LINGERING.try_lock() else {
        return later(st_dev, whole); // no worker waits
    };
    let too_many = (lingering.len() >= LINGERING_MAX).then(|| lingering.remove(0));
    lingering.push(Lingering {
        since: Instant::now(),
        st_dev,
        whole,
    });
    drop(lingering);
    too_many.into_iter().for_each(end);
    order_sweep();
}

fn order_sweep() {
    if !SWEEP_ORDERED.swap(true, Ordering::AcqRel) && !without_disk(sweep) {
        SWEEP_ORDERED.store(false, Ordering::Release); // the next one tries again
    }
}

/// The mapping of that file, if it lingers.
pub fn take(identity: MappedVersion) -> Option<Arc<Whole>> {
    let mut lingering = LINGERING.try_lock().ok()?; // no worker waits
    let place = lingering
        .iter()
        .position(|kept| kept.whole.identity() == identity)?;
    Some(lingering.remove(place).whole)
}

/// Ends each when its time is over, and itself when none is left. It sleeps until then: its thread has nothing else to do.
fn sweep() {
    loop {
        let (over, next) = {
            let mut lingering = LINGERING.lock().unwrap_or_else(PoisonError::into_inner);
            let young = lingering.partition_point(|kept| kept.since.elapsed() >= LINGERS);
            let over: Vec<Lingering> = lingering.drain(..young).collect();
            let next = lingering.first().map(|kept| kept.since + LINGERS);
            if next.is_none() {
                SWEEP_ORDERED.store(false, Ordering::Release); // under the lock: who keeps one now orders the next
            }
            (over, next)
        };
        over.into_iter().for_each(end);
        let Some(at) = next else {
            return;
        };
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
    }
}

/// Ends all of them now: the process is about to end, and an unmapping that waits for a disk is to be among the files
/// that wait to be closed.
pub fn end_all() {
    let mut lingering = LINGERING.lock().unwrap_or_else(PoisonError::into_inner);
    let all: Vec<Lingering> = lingering.drain(..).collect();
    drop(lingering);
    all.into_iter().for_each(end);
}

/// Each in the thread for its own file system: the last mapping of a deleted file frees its blocks.
fn end(kept: Lingering) {
    later(kept.st_dev, kept.whole);
}
