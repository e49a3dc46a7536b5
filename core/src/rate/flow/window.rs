//! What the client's window tells of its receive buffer: whether its program has bytes to read there, and since when.

use super::{Flow, Gauge};
use crate::limits::FLOW_US_MIN;
use crate::units::Instant;

/// A closed window opens when one part in so many of the receive buffer is free.
pub(super) const WINDOW_OPENS_PART: u64 = 16;

/// The last send tells when a window opened, if at most one part in so many of what it opened by can have opened later.
const UNSURE_PART: u64 = 4;

impl Gauge {
    /// Whether the client certainly has bytes that its program has not read. A receiver announces a larger window with
    /// its next ACK, and on its own only when the window is twice as large as last announced (Linux, tcp_cleanup_rbuf).
    pub fn has_unread(&self) -> bool {
        self.has_unread_behind(self.last.map(|(_, flow)| flow).unwrap_or_default())
    }

    /// The same, if this is its window now. A receiver may read as much again as its window, and two segments, before it tells of
    /// that.
    pub(super) fn has_unread_behind(&self, flow: Flow) -> bool {
        let window_doubled_bytes = flow
            .window_bytes
            .saturating_add(flow.segment_bytes.saturating_mul(2));
        self.unread_bytes > window_doubled_bytes
    }

    /// The counters when the window last opened, and that time; `None` unless it has stopped the socket since.
    pub(super) fn when_opened(&self, flow: Flow, now: Instant) -> Option<(Flow, Instant)> {
        let (from, before) = self.last?;
        let us = now.since_us(from);
        // An opening right after the last sample is dated FLOW_US_MIN after it, or the two would count as one.
        let within = flow.quiet_us < us && us >= 2 * FLOW_US_MIN;
        let quiet_us = flow.quiet_us.min(us.saturating_sub(FLOW_US_MIN));
        let limited_us = flow
            .window_limited_us
            .saturating_sub(before.window_limited_us);
        let busy_us = flow.busy_us.saturating_sub(before.busy_us);
        // A window below one segment may have opened after the last send. So it must be small beside all that opened.
        let told_bytes = flow.edge_bytes().saturating_sub(before.edge_bytes());
        let by_then = told_bytes / UNSURE_PART >= flow.window_bytes;
        let stopped = busy_us >= us / 20 * 19 && limited_us / 8 >= quiet_us / 9;
        let then = Flow {
            busy_us: flow.busy_us.saturating_sub(quiet_us),
            window_limited_us: flow.window_limited_us.saturating_sub(quiet_us),
            quiet_us: 0,
            ..flow
        };
        let at = Instant {
            us: now.us.saturating_sub(quiet_us),
        };
        (within && quiet_us >= FLOW_US_MIN && stopped && by_then).then_some((then, at))
    }

    /// The most that the client can have read without announcing it. Linux announces a window on its own when it is
    /// twice the last one and a sixteenth of the receive buffer (`__tcp_select_window`); others when it is one segment
    /// (RFC 9293, 3.8.6.2.2).
    pub(super) fn untold_bytes(&mut self, flow: Flow) -> u64 {
        // At first, all that it took is in the buffer, or was read.
        let held_bytes = match self.buffer_bytes {
            0 => self.unread_bytes.saturating_add(self.burst_bytes),
            _ => self.unread_bytes,
        };
        self.buffer_bytes = (self.buffer_bytes).max(held_bytes.saturating_add(flow.window_bytes));
        (self.buffer_bytes / WINDOW_OPENS_PART)
            .max(flow.window_bytes.saturating_mul(2))
            .max(flow.segment_bytes.saturating_mul(2))
    }
}
