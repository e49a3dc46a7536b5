//! Time: whose patience, or ours with whom, has run out, and the end of all connections.

use alloc::vec::Vec;

use super::messages::Out;
use super::patience::Verdict;
use super::stream::Stream;
use super::{Conn, Phase, Worker};
use crate::limits::{AWAITED_CHECK_US, DRAIN_SILENT_US, SCAN_SLICE};
use crate::send::rounds::Demand;
use crate::units::Instant;
use crate::why::{TopUp, Wait, What, Why};

impl Worker {
    /// Look at a few of the connections that are due: whose patience, or ours with whom, has run out?
    pub(super) fn scan(&mut self, now: Instant) {
        for _ in 0..SCAN_SLICE {
            let Some(index) = self.wheel.pop(now) else {
                return;
            };
            self.look(index, now);
            self.watch(index, now);
        }
    }

    fn look(&mut self, index: u32, now: Instant) {
        let drained = self.drained_at().is_some_and(|at| at <= now);
        self.mend(index, now);
        let Some(Some(conn)) = self.conns.get(index as usize) else {
            return;
        };
        let (id, unsettled) = (conn.id, !conn.arrivals.is_empty());
        let unseen = conn.look_at().is_some_and(|at| at <= now);
        let silent = self.silent_until(conn).is_some_and(|at| at <= now);
        if drained || silent {
            return self.close(id, drained, Why::Draining, now);
        }
        match conn.patience.verdict(conn.phase, &self.settings, now) {
            Verdict::Patient if unsettled || unseen => self.outs.push_back(Out::Sample(id)),
            Verdict::Patient => {}
            Verdict::Measure => self.outs.push_back(Out::Sample(id)),
            Verdict::End(why) => self.give_up(id, why, now),
        }
    }

    /// Nobody may wait for the disk for ever: if no wish of a stream stands that waits for it, it takes its next step.
    fn mend(&mut self, index: u32, now: Instant) {
        let conn = self.conns.get_mut(index as usize).and_then(Option::as_mut);
        let Some(conn) = conn.filter(|conn| conn.phase == Phase::Sending && !conn.queued) else {
            return;
        };
        let forgotten = |stream: &Stream| {
            let (wait, us) = stream.waits(now);
            wait == Wait::Disk && us >= AWAITED_CHECK_US && !stream.is_awaited()
        };
        if conn.writable && conn.stream.as_deref().is_some_and(forgotten) {
            self.counts.mended();
            self.wake(index, false);
        }
    }

    /// Have the connection looked at when its next time limit may be over.
    pub(super) fn watch(&mut self, index: u32, now: Instant) {
        let drained_at = self.drained_at();
        let Some(Some(conn)) = self.conns.get(index as usize) else {
            return;
        };
        let stands = |stream: &Stream| stream.waits(now).0 == Wait::Disk;
        let soon = !conn.arrivals.is_empty() || conn.stream.as_deref().is_some_and(stands);
        let soon = soon.then_some(now);
        let limit = conn.patience.check_at(conn.phase, &self.settings);
        let silent_until = self.silent_until(conn);
        let at = [soon, limit, drained_at, silent_until, conn.look_at()];
        let at = at.into_iter().flatten().min();
        // Nothing runs out while we look for the file.
        let at = at.unwrap_or(Instant { us: u64::MAX });
        self.wheel.by(index, at, now);
    }

    /// When a drain that is under way cuts everybody off.
    fn drained_at(&self) -> Option<Instant> {
        let since = self.draining?;
        Some(since.plus_us(self.settings.drain_timeout_us))
    }

    /// How long a drain waits for the first byte of who has never sent one. What is on its way arrives by then.
    fn silent_until(&self, conn: &Conn) -> Option<Instant> {
        let since = self
            .draining
            .filter(|_| conn.phase == Phase::Open && conn.patience.silent())?;
        Some(since.plus_us(DRAIN_SILENT_US))
    }

    /// Top up everybody for whom the kernel would call before the next round, in one go.
    pub(super) fn top_up(&mut self, now: Instant) {
        let Some(top_ups) = &mut self.top_ups else {
            return;
        };
        let (from, mut demand) = (top_ups.target(), Demand::default());
        let sending = self.conns.iter().flatten();
        for conn in sending.filter(|conn| conn.phase == Phase::Sending) {
            demand.add(&conn.margin, from);
        }
        let until = top_ups.round(demand, now);
        let (from_us, to_us) = (from.us, top_ups.target().us);
        if from_us.abs_diff(to_us) * 10 >= from_us {
            let rates_bytes_per_s = demand.rates_bytes_per_s;
            let what = What::Target {
                from_us,
                to_us,
                rates_bytes_per_s,
            };
            self.decisions.record(now, None, what);
        }
        let mut near = Vec::new();
        for (index, conn) in self.conns.iter_mut().enumerate() {
            let sending = conn.as_mut().filter(|conn| conn.phase == Phase::Sending);
            let Some(conn) = sending else { continue };
            if !conn.writable && conn.margin.joins(until) {
                conn.writable = true;
                conn.top_up = TopUp::Near;
                self.counts.topped_up(TopUp::Near);
                near.push(index as u32);
            }
        }
        for index in near {
            self.wake(index, false);
        }
        self.counts.round();
    }

    pub(super) fn drain(&mut self, now: Instant) {
        if self.draining.is_some() {
            return;
        }
        self.draining = Some(now);
        for index in 0..self.conns.len() as u32 {
            if let Some(conn) = &self.conns[index as usize] {
                if conn.phase == Phase::Open && conn.patience.idle() {
                    // Whether it has all that was sent to it says if it may be closed at once.
                    self.outs.push_back(Out::Sample(conn.id));
                }
            }
            self.watch(index, now);
        }
    }
}
