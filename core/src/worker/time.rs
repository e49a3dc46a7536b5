//! The timer scan: which time limits have run out, and when to look at which connection again ([`Checks`]).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::Worker;
use super::messages::Out;
use super::stream::Stream;
use super::timeouts::TimeoutVerdict;
use super::turns::QueueEnd;
use super::{Conn, ConnPhase};
use crate::conn::ConnId;
use crate::limits::{AWAITED_CHECK_US, SCAN_PERIOD_US, SCAN_SLICE, TOUCHED_MAX};
use crate::units::Instant;
use crate::why::{Wait, Why};

/// A connection is checked after so many ticks at the latest. A check that comes too early is cheap and finds a new time.
const CHECK_TICKS_MAX: u64 = 128;

/// When to check which connection again, in ticks of a second. Every connection has one entry at most; one whose time moves later
/// stays where it is.
#[derive(Default)]
pub(super) struct Checks {
    due: BTreeSet<(u64, u32)>,
    /// The tick of each connection; 0: none.
    ticks: Vec<u64>,
}

impl Checks {
    /// Schedules a check of connection `index` at `at`, or earlier if that was asked for before. It comes with the first tick at
    /// or after `at`, but not with the current one.
    pub fn by(&mut self, index: u32, at: Instant, now: Instant) {
        let place = index as usize;
        if place >= self.ticks.len() {
            self.ticks.resize(place + 1, 0);
        }
        let next = now.us / SCAN_PERIOD_US + 1;
        let tick = at.us.div_ceil(SCAN_PERIOD_US);
        let tick = tick.clamp(next, next + CHECK_TICKS_MAX);
        if self.ticks[place] == 0 || tick < self.ticks[place] {
            self.remove(index);
            self.ticks[place] = tick;
            self.due.insert((tick, index));
        }
    }

    /// Removes the connection.
    pub fn remove(&mut self, index: u32) {
        if let Some(tick) = self.ticks.get_mut(index as usize) {
            self.due.remove(&(core::mem::take(tick), index));
        }
    }

    /// Takes a connection that is due.
    pub fn pop(&mut self, now: Instant) -> Option<u32> {
        let &(_, index) = self.due.first().filter(|_| self.is_behind(now))?;
        self.remove(index);
        Some(index)
    }

    /// Whether a connection is due.
    pub fn is_behind(&self, now: Instant) -> bool {
        self.due
            .first()
            .is_some_and(|(tick, _)| *tick <= now.us / SCAN_PERIOD_US)
    }

    /// When the next is due.
    pub fn next_at(&self) -> Option<Instant> {
        let (tick, _) = self.due.first()?;
        Some(Instant {
            us: tick * SCAN_PERIOD_US,
        })
    }
}

impl Worker {
    /// Checks a few of the connections that are due.
    pub(super) fn scan(&mut self, now: Instant) {
        for _ in 0..SCAN_SLICE {
            let Some(index) = self.checks.pop(now) else {
                return;
            };
            self.check(index, now);
            self.watch(index, now);
        }
    }

    /// A connection is due: ends it, has it measured, or leaves it, as its time limits say.
    fn check(&mut self, index: u32, now: Instant) {
        let drained = self.drain.cuts_at().is_some_and(|at| at <= now);
        self.mend(index, now);
        let Some(conn) = self.table.at(index) else {
            return;
        };
        let (id, unsettled) = (conn.id, !conn.arrivals.is_empty());
        // Whether its socket still holds something is measured before it is closed.
        let unmeasured = conn.phase == ConnPhase::Open && !unsettled && !conn.arrivals.is_settled();
        let unseen = conn.sample_at().is_some_and(|at| at <= now);
        if drained {
            return self.close(id, true, Why::Draining, now);
        }
        match self.verdict(conn, now) {
            TimeoutVerdict::Look => self.look(index),
            TimeoutVerdict::Patient if unsettled || unseen => self.outs.push_back(Out::Sample(id)),
            TimeoutVerdict::Patient => {}
            TimeoutVerdict::Measure => self.outs.push_back(Out::Sample(id)),
            TimeoutVerdict::End(_) if unmeasured => self.outs.push_back(Out::Sample(id)),
            TimeoutVerdict::End(why) => self.give_up(id, why, now),
        }
    }

    /// What its time limits say of a connection.
    fn verdict(&self, conn: &Conn, now: Instant) -> TimeoutVerdict {
        match self.silent_until(conn).filter(|at| *at <= now) {
            Some(at) => conn.timeouts.ended(Why::Draining, at),
            None => conn.timeouts.verdict(conn.phase, &self.settings, now),
        }
    }

    /// Receives what has arrived, whether the kernel has reported it yet or not.
    pub(super) fn look(&mut self, index: u32) {
        if let Some(conn) = self.table.at_mut(index) {
            conn.request.readable();
            self.wake(index, QueueEnd::Back);
        }
    }

    /// A receive has left no input behind. If that was to be known, it decides.
    pub(super) fn looked(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        conn.timeouts.emptied(now);
        let leaves = conn.phase == ConnPhase::Open && conn.timeouts.idle();
        if leaves && self.drain.is_under_way() {
            // If it has received all that was sent, it may be closed at once.
            self.outs.push_back(Out::Sample(id));
        }
        let conn = self.table.get(id);
        if conn.is_some_and(|conn| matches!(self.verdict(conn, now), TimeoutVerdict::End(_))) {
            self.check(id.index, now);
        }
    }

    /// A stream must not wait for the disk for ever: if it has no want while it waits, this is a lost wakeup, and it
    /// takes its next step.
    fn mend(&mut self, index: u32, now: Instant) {
        let Some(conn) = self.table.at(index) else {
            return;
        };
        let forgotten = |stream: &Stream| {
            let (wait, us) = stream.waits(now);
            wait == Wait::Disk && us >= AWAITED_CHECK_US && !stream.is_awaited()
        };
        let stands = conn.phase == ConnPhase::Sending && !conn.queued && conn.output.may_offer;
        if stands && conn.stream.as_deref().is_some_and(forgotten) {
            self.counts.mended();
            self.wake(index, QueueEnd::Back);
        }
    }

    /// Something happened to the connection: its next check is scheduled when all that is to be done now is done. One
    /// request is several events, and scheduling costs as much as each of them.
    pub(super) fn touch(&mut self, index: u32, now: Instant) {
        let Some(conn) = self.table.at_mut(index).filter(|conn| !conn.touched) else {
            return;
        };
        conn.touched = true;
        self.touched.push(index);
        self.touched_at = now;
        if self.touched.len() == TOUCHED_MAX {
            self.watch_touched(now);
        }
    }

    /// Schedules the next checks of all to whom something happened.
    pub(super) fn watch_touched(&mut self, now: Instant) {
        while let Some(index) = self.touched.pop() {
            if let Some(conn) = self.table.at_mut(index) {
                conn.touched = false;
            }
            self.watch(index, now);
        }
    }

    /// Schedules the next check of the connection: when its next time limit may run out.
    fn watch(&mut self, index: u32, now: Instant) {
        let Some(conn) = self.table.at(index) else {
            return;
        };
        let stands = |stream: &Stream| stream.waits_for() == Wait::Disk;
        let soon = !conn.arrivals.is_empty() || conn.stream.as_deref().is_some_and(stands);
        let soon = soon.then_some(now);
        let limit = conn.timeouts.check_at(conn.phase, &self.settings);
        let silent_until = self.silent_until(conn);
        let cuts_at = self.drain.cuts_at();
        let at = [soon, limit, cuts_at, silent_until, conn.sample_at()];
        let at = at.into_iter().flatten().min();
        // No limit runs while we look up the file.
        let at = at.unwrap_or(Instant { us: u64::MAX });
        self.checks.by(index, at, now);
    }

    /// Until when a drain waits for a connection that has never sent a byte.
    fn silent_until(&self, conn: &Conn) -> Option<Instant> {
        let since = conn.timeouts.silent_since();
        let since = since.filter(|_| conn.phase == ConnPhase::Open)?;
        self.drain.silent_until(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a map: whatever is due comes out, in time, and nothing else.
        #[test]
        fn it_does_what_a_map_does(acts in prop::collection::vec((0u32..20, 0u64..300, 0u64..20, any::<bool>()), 1..200)) {
            let (mut checks, mut map, mut now) = (Checks::default(), BTreeMap::new(), Instant { us: 0 });
            for (index, ahead_s, wait_s, remove) in acts {
                if remove {
                    checks.remove(index);
                    map.remove(&index);
                } else {
                    let at = now.plus_us(ahead_s * SCAN_PERIOD_US + 17);
                    checks.by(index, at, now);
                    let due = map.entry(index).or_insert(at);
                    *due = at.min(*due);
                }
                now = now.plus_us(wait_s * SCAN_PERIOD_US + 3);
                while let Some(index) = checks.pop(now) {
                    prop_assert!(map.remove(&index).is_some(), "{} was not in it", index);
                }
                for due in map.values() {
                    prop_assert!(due.us + SCAN_PERIOD_US > now.us, "{:?} is late at {:?}", due, now);
                }
                prop_assert_eq!(checks.due.len(), map.len());
                prop_assert_eq!(checks.next_at().is_some(), !map.is_empty());
            }
        }
    }
}
