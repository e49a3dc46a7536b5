//! How fast a client reads, as TCP's counters show it: acknowledged bytes, less those that lie in its receive buffer, over the time
//! in which it had something to read.
//!
//! A burst into an empty receive buffer is no pace: its bytes are acknowledged, and the window that the client offers has shrunk by as
//! many. While our socket holds bytes the client has something to read, and while its window is smaller than it was, too. In
//! between nobody can say, and what was read then counts for nothing but a bound from below.

use crate::limits::{FLOW_READ_BYTES_MIN, FLOW_US_MAX, FLOW_US_MIN, STRETCH_US_MIN};
use crate::units::{Instant, US_PER_S};

/// What TCP has counted of a connection (tcp(7), `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// `tcpi_bytes_acked`.
    pub acked_bytes: u64,
    /// `tcpi_busy_time`: the socket held bytes, sent or not.
    pub busy_us: u64,
    /// `tcpi_rwnd_limited`: the part of it in which the client's window was what held it up.
    pub window_limited_us: u64,
    /// `tcpi_snd_wnd`, the window that the client offers.
    pub window_bytes: u64,
    /// `tcpi_snd_mss`, a full segment.
    pub segment_bytes: u64,
}

/// What is known of how fast a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// It had something to read all the time that counts.
    Sample {
        /// What it read, bytes per second.
        bytes_per_s: u64,
        /// Its own window held it up, not its path: it reads no faster than this.
        by_itself: bool,
    },
    /// It had nothing to read most of the time.
    AtLeast {
        /// It reads this or more, bytes per second.
        bytes_per_s: u64,
    },
}

/// Two looks at a connection and what was in between, added up until it says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauge {
    last: Option<(Instant, Flow)>,
    /// When our socket was given bytes first and last since the last look, and in how many pieces.
    given: Option<(Instant, Instant)>,
    pieces: u32,
    /// Acknowledged, and not read by the client's program, as far as its window shows.
    unread_bytes: u64,
    /// Time that counts, what was read in it, and how much of it the client's window held up.
    fed_us: u64,
    read_bytes: u64,
    limited_us: u64,
    /// All time, and what was read in it at least.
    all_us: u64,
    all_bytes: u64,
}

impl Gauge {
    /// The last look; `None` before the first one.
    pub fn looked_at(&self) -> Option<Instant> {
        self.last.map(|(at, _)| at)
    }

    /// Whether the client certainly has bytes that its program has not read. It tells of a window that opens when it sends an ACK, and
    /// by itself only when the window is twice as large as it said last (Linux, tcp_cleanup_rbuf).
    pub fn has_unread(&self) -> bool {
        self.has_unread_behind(self.last.map(|(_, flow)| flow).unwrap_or_default())
    }

    fn has_unread_behind(&self, flow: Flow) -> bool {
        let untold_bytes = flow
            .window_bytes
            .saturating_add(flow.segment_bytes.saturating_mul(2));
        self.unread_bytes > untold_bytes
    }

    /// What was before counts no more: the connection had nothing to send, or its path is another one.
    pub fn begin_anew(&mut self) {
        *self = Gauge {
            last: self.last,
            unread_bytes: self.unread_bytes,
            ..Gauge::default()
        };
    }

    /// Our socket is given bytes.
    pub fn given(&mut self, now: Instant) {
        let (first, last) = self.given.unwrap_or((now, now));
        let new = self.given.is_none() || now.since_us(last) >= FLOW_US_MIN;
        self.pieces = self.pieces.saturating_add(new.into());
        self.given = Some((first, now));
    }

    /// Another look, which may complete a piece of evidence over `least_us` at least.
    pub fn look(&mut self, flow: Flow, now: Instant, least_us: u64) -> Option<Evidence> {
        let Some((from, before)) = self.last else {
            self.last = Some((now, flow));
            return None;
        };
        let us = now.since_us(from);
        if us < FLOW_US_MIN {
            return None;
        }
        let backwards = flow.acked_bytes < before.acked_bytes || flow.busy_us < before.busy_us;
        if backwards || us > FLOW_US_MAX {
            // Counters of another connection, or of long ago.
            *self = Gauge {
                last: Some((now, flow)),
                ..Gauge::default()
            };
            return None;
        }
        let at_rest =
            flow.acked_bytes == before.acked_bytes && flow.window_bytes == before.window_bytes;
        if at_rest && flow.busy_us - before.busy_us < us / 2 {
            return None; // nobody has told of anything: what is read now shows in the next ACK
        }
        let fed_from = self.given.take().map_or(from, |(at, _)| at.max(from));
        self.add(before, flow, (us, now.since_us(fed_from)));
        (self.last, self.pieces) = (Some((now, flow)), 0);
        self.judge(least_us)
    }

    /// Adds what lies between two looks: so much time, and so much since our socket was given bytes.
    fn add(&mut self, before: Flow, flow: Flow, (us, given_us): (u64, u64)) {
        let acked_bytes = flow.acked_bytes - before.acked_bytes;
        let busy_us = (flow.busy_us - before.busy_us).min(us);
        let limited_us = flow
            .window_limited_us
            .saturating_sub(before.window_limited_us);
        let (had_unread, had_unread_bytes) = (self.has_unread(), self.unread_bytes);
        let had_bytes = self.unread_bytes.saturating_add(acked_bytes);
        let unread_bytes = (self.unread_bytes.saturating_add(before.window_bytes))
            .saturating_sub(flow.window_bytes)
            .min(had_bytes);
        let read_bytes = had_bytes - unread_bytes;
        self.unread_bytes = unread_bytes;
        self.all_us += us;
        self.all_bytes = self.all_bytes.saturating_add(read_bytes);
        let has_unread = self.has_unread_behind(flow);
        // It had bytes all the time if it had more than it read, or got none that could have come too late.
        let always = match (had_unread, has_unread) {
            (true, true) => {
                self.pieces == 0 || read_bytes < had_unread_bytes || unread_bytes > acked_bytes
            }
            (false, true) => self.pieces <= 1 || read_bytes < unread_bytes,
            (_, false) => false,
        };
        let long = busy_us >= us / 4 * 3;
        // What it read when our socket was empty came out of its buffer, which was full while it held us up.
        let held_up = limited_us > 0 && busy_us < us / 20 * 19;
        let (fed_us, fed_bytes) = match (always, long) {
            (true, _) if had_unread => (us, read_bytes),
            // Of what it got since then; what it had before it may have read before.
            (true, _) => (
                given_us.max(busy_us),
                acked_bytes.saturating_sub(unread_bytes),
            ),
            (false, true) if held_up && !has_unread => {
                (busy_us, read_bytes.saturating_sub(before.window_bytes))
            }
            (false, true) => (busy_us, read_bytes),
            // It came to an end somewhere in between.
            (false, false) => return,
        };
        self.fed_us += fed_us;
        self.read_bytes = self.read_bytes.saturating_add(fed_bytes);
        self.limited_us += match has_unread {
            true => fed_us,
            false => limited_us.min(fed_us),
        };
    }

    /// Whether what was added up says something; then it begins anew.
    fn judge(&mut self, least_us: u64) -> Option<Evidence> {
        let by_itself = self.limited_us >= self.fed_us / 4;
        // Windows open in steps, up to half a receive buffer: a short sample is of one step or of none.
        let sample_us = match by_itself {
            true => least_us.max(STRETCH_US_MIN),
            false => least_us,
        };
        let steps_bytes = self
            .last
            .map_or(0, |(_, flow)| flow.segment_bytes.saturating_mul(4));
        let much_bytes = (FLOW_READ_BYTES_MIN * least_us / STRETCH_US_MIN).max(steps_bytes);
        let much = self.read_bytes >= much_bytes || self.fed_us >= 8 * least_us;
        let evidence = if self.fed_us >= sample_us && much {
            Evidence::Sample {
                bytes_per_s: per_s(self.read_bytes, self.fed_us),
                by_itself,
            }
        } else if self.all_us >= 2 * least_us && self.fed_us < least_us {
            Evidence::AtLeast {
                bytes_per_s: per_s(self.all_bytes, self.all_us),
            }
        } else {
            return None;
        };
        self.begin_anew();
        Some(evidence)
    }
}

fn per_s(bytes: u64, us: u64) -> u64 {
    let rate = u128::from(bytes) * u128::from(US_PER_S) / u128::from(us.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
