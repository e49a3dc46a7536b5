//! Time: whose patience, or ours with whom, has run out, and the end of all connections.

use alloc::vec::Vec;

use super::messages::Out;
use super::patience::Verdict;
use super::{Phase, Worker};
use crate::limits::{SCAN_PERIOD_US, SCAN_SLICE};
use crate::units::Instant;
use crate::why::Why;

impl Worker {
    /// Look at a slice of the connections: whose patience, or ours with whom, has run out?
    pub(super) fn scan(&mut self, now: Instant) {
        let end = (self.scan_from + SCAN_SLICE).min(self.conns.len() as u32);
        let drained = self
            .draining
            .is_some_and(|since| now.since_us(since) >= self.settings.drain_timeout_us);
        for index in self.scan_from..end {
            let Some(conn) = &mut self.conns[index as usize] else {
                continue;
            };
            let (id, unsettled) = (conn.id, !conn.arrivals.is_empty());
            if drained {
                self.close(id, true, Why::Draining, now);
                continue;
            }
            match conn.patience.verdict(conn.phase, &self.settings, now) {
                Verdict::Patient if unsettled => self.outs.push_back(Out::Sample(id)),
                Verdict::Patient => {}
                Verdict::Measure => self.outs.push_back(Out::Sample(id)),
                Verdict::End(why) => self.give_up(id, why, now),
            }
        }
        self.scan_from = end;
        if end == self.conns.len() as u32 {
            self.scan_from = 0;
            self.scan_at = (self.open > 0).then(|| now.plus_us(SCAN_PERIOD_US));
        }
    }

    /// Top up everybody who is near the margin at which the kernel would call for it, in one go.
    pub(super) fn top_up(&mut self, now: Instant) {
        let (mut rates_bytes_per_s, mut near) = (0u64, Vec::new());
        for (index, conn) in self.conns.iter_mut().enumerate() {
            let sending = conn.as_mut().filter(|conn| conn.phase == Phase::Sending);
            let Some(conn) = sending else { continue };
            rates_bytes_per_s = rates_bytes_per_s.saturating_add(conn.margin.rate_bytes_per_s());
            if !conn.writable && conn.margin.near(now) {
                conn.writable = true;
                near.push(index as u32);
            }
        }
        for index in near {
            self.wake(index, false);
        }
        if let Some(top_ups) = &mut self.top_ups {
            top_ups.done(rates_bytes_per_s, now);
        }
    }

    pub(super) fn drain(&mut self, now: Instant) {
        if self.draining.is_some() {
            return;
        }
        self.draining = Some(now);
        for index in 0..self.conns.len() as u32 {
            if let Some(conn) = &self.conns[index as usize] {
                if conn.phase == Phase::Open && conn.patience.idle() {
                    self.linger(index, now);
                }
            }
        }
        self.scan_at = (self.open > 0).then_some(now);
    }
}
