//! The timer scan: which time limits have run out.

use super::Worker;
use super::messages::Out;
use super::stream::Stream;
use super::timeouts::TimeoutVerdict;
use super::turns::QueueEnd;
use super::{Conn, ConnPhase};
use crate::conn::ConnId;
use crate::limits::{AWAITED_CHECK_US, SCAN_SLICE, TOUCHED_MAX};
use crate::units::Instant;
use crate::why::{Wait, Why};

impl Worker {
    /// Checks a few of the connections that are due.
    pub(super) fn scan(&mut self, now: Instant) {
        for _ in 0..SCAN_SLICE {
            let Some(index) = self.wheel.pop(now) else {
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
        self.wheel.by(index, at, now);
    }

    /// Until when a drain waits for a connection that has never sent a byte.
    fn silent_until(&self, conn: &Conn) -> Option<Instant> {
        let since = conn.timeouts.silent_since();
        let since = since.filter(|_| conn.phase == ConnPhase::Open)?;
        self.drain.silent_until(since)
    }
}
