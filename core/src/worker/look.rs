//! How one connection stands now: what `ackpace top` and `ackpace why` show of it.

use super::counts::{Census, Counts, PHASES, phase_index};
use super::{Conn, Phase, Worker};
use crate::conn::{ConnId, StreamId};
use crate::units::Instant;
use crate::why::{Decision, TopUp, Wait};

/// One connection, seen from inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Which.
    pub conn: ConnId,
    /// Its name in [`PHASES`].
    pub phase: &'static str,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// T_n, the time for which its socket should have bytes; `None` while B_n is not known.
    pub margin_us: Option<u64>,
    /// What its socket is filled up to; `None` without margins.
    pub fill_bytes: Option<u64>,
    /// Its response under way.
    pub response: Option<Response>,
}

/// A response under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// Its name.
    pub stream: StreamId,
    /// What its next bytes wait for, as far as we know without asking TCP.
    pub wait: Wait,
    /// For how long.
    pub wait_us: u64,
    /// Why its socket was filled last.
    pub top_up: TopUp,
    /// Bytes of it, head included, that the kernel took.
    pub sent_bytes: u64,
    /// Bytes of it that are still to be given to the kernel; of a listing, those that are made.
    pub left_bytes: u64,
    /// Since its request.
    pub took_us: u64,
    /// Time that it stood still for the disk.
    pub waited_disk_us: u64,
    /// Time that it stood still since its socket took no more.
    pub waited_net_us: u64,
}

impl Worker {
    /// What was counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// T, the margin of every connection; `None` without margins.
    pub fn target_us(&self) -> Option<u64> {
        self.top_ups.map(|top_ups| top_ups.target().us)
    }

    /// The last decisions, oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// Every connection that has a response under way. To be asked when somebody wants to know: it goes through all
    /// connections.
    pub fn looks(&self, now: Instant) -> impl Iterator<Item = Look> {
        let sending = self.conns.iter().flatten();
        sending
            .filter(|conn| conn.stream.is_some())
            .map(move |conn| self.look_at(conn, now))
    }

    /// Where all connections stand now. To be asked when somebody wants to know.
    pub fn census(&self, now: Instant) -> Census {
        let mut census = Census::default();
        let conns = self.conns.iter().flatten();
        conns.for_each(|conn| census.add(conn, now));
        census
    }

    /// One connection; `None` if it is gone.
    pub fn look_into(&self, id: ConnId, now: Instant) -> Option<Look> {
        Some(self.look_at(self.conn(id)?, now))
    }

    fn look_at(&self, conn: &Conn, now: Instant) -> Look {
        let worker = self.settings.worker;
        Look {
            conn: conn.id,
            phase: PHASES[phase_index(conn.phase, conn.patience.idle())],
            rate_bytes_per_s: conn.margin.rate_bytes_per_s(),
            margin_us: conn.margin.margin_us(now),
            fill_bytes: self
                .top_ups
                .map(|top_ups| conn.margin.fill_bytes(top_ups.target())),
            response: conn.stream.as_ref().map(|stream| {
                let (wait, wait_us) = stream.waits(now);
                let (waited_disk_us, waited_net_us) = stream.waited_us(now);
                Response {
                    stream: StreamId {
                        worker,
                        conn: conn.id,
                        nth: conn.nth,
                    },
                    wait,
                    wait_us,
                    top_up: conn.top_up,
                    sent_bytes: stream.sent_bytes,
                    left_bytes: stream.left_bytes(),
                    took_us: now.since_us(stream.started_at),
                    waited_disk_us,
                    waited_net_us,
                }
            }),
        }
    }
}

impl Census {
    /// Counts one more connection.
    fn add(&mut self, conn: &Conn, now: Instant) {
        self.phases[phase_index(conn.phase, conn.patience.idle())] += 1;
        if conn.phase != Phase::Sending {
            return;
        }
        let rate_bytes_per_s = conn.margin.rate_bytes_per_s();
        self.rates_bytes_per_s = self.rates_bytes_per_s.saturating_add(rate_bytes_per_s);
        if let Some(stream) = &conn.stream {
            let (wait, _) = stream.waits(now);
            self.waiting[wait as usize] += 1;
            let bytes = &mut self.waiting_bytes[wait as usize];
            *bytes = bytes.saturating_add(stream.left_bytes());
        }
    }
}
