//! Receive buffers that grow. What a grown buffer takes looks like what its program read.
//!
//! Linux enlarges a buffer by what was read in a round trip (`tcp_rcv_space_adjust`): after a single burst, to up to ten
//! times its size. A window never opens wider than the buffer, and when the buffer was full first, it held no more than
//! the window had told by then. So a wider window proves that it has grown. How much of that step was growth and not
//! reading stays unknown.

use super::Flow;
use super::window::WINDOW_OPENS_PART;

/// What is known of the size of a client's receive buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Growth {
    /// What the buffer held at most when it was full last; or at least, if it has grown since and that has settled.
    most_bytes: u64,
    /// The right edge of the window then; 0: it was never full.
    full_edge_bytes: u64,
    /// It was full since it has grown, or since the beginning.
    pub full: bool,
    /// It has grown at some time.
    pub seen: bool,
}

impl Growth {
    /// Whether the buffer has grown since it was full last, or since its growth settled: its window is wider than it was.
    pub fn is_proven(&self, flow: Flow) -> bool {
        // A receiver tells nothing of a smaller rest (Linux, `__tcp_select_window`).
        let rest_bytes = (flow.window_bytes / WINDOW_OPENS_PART).max(flow.segment_bytes);
        let most_bytes = self.most_bytes.saturating_add(rest_bytes);
        self.full_edge_bytes > 0 && flow.window_bytes > most_bytes
    }

    /// The window has been this wide for long, and the buffer was not full meanwhile. From now on only a still wider window is
    /// growth.
    pub fn settle(&mut self, flow: Flow) {
        self.most_bytes = self.most_bytes.max(flow.window_bytes);
    }

    /// The counters tell of the window.
    pub fn see(&mut self, flow: Flow) {
        let edge_bytes = flow.edge_bytes();
        if self.is_proven(flow) {
            (self.full, self.seen) = (false, true);
        }
        // All that the edge has advanced since the buffer was full may be growth, if it has grown.
        let told_bytes = match self.full {
            true => 0,
            false => edge_bytes.saturating_sub(self.full_edge_bytes),
        };
        let most_bytes = self.most_bytes.saturating_add(told_bytes);
        let closed = flow.window_bytes <= most_bytes / WINDOW_OPENS_PART
            && flow.window_bytes < flow.segment_bytes;
        if closed {
            (self.most_bytes, self.full_edge_bytes, self.full) = (most_bytes, edge_bytes, true);
        }
    }
}
