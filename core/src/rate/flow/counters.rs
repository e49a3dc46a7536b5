//! What TCP counts, and what that says.

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
    /// `tcpi_last_data_sent`, the time since the socket sent bytes last.
    pub quiet_us: u64,
}

impl Flow {
    /// The right edge of the window, as a number of bytes since the beginning.
    pub(super) fn edge_bytes(&self) -> u64 {
        self.acked_bytes.saturating_add(self.window_bytes)
    }
}

/// A piece of evidence of how fast a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The client had something to read during all the time counted.
    Sample {
        /// What it read, bytes per second.
        bytes_per_s: u64,
        /// The client's window limited the transfer, not the path: it reads no faster than this.
        by_itself: bool,
    },
    /// The client has something to read, and its window is closed: it reads no faster than this.
    AtMost {
        /// The most that it can have read, announced or not, over the time until now, bytes per second.
        bytes_per_s: u64,
    },
    /// The client had nothing to read most of the time.
    AtLeast {
        /// It reads at least this fast, bytes per second.
        bytes_per_s: u64,
    },
}

impl Evidence {
    /// The same, if the client reads no faster than this, bytes per second.
    pub(super) fn at_most(self, most_bytes_per_s: u64) -> Evidence {
        match self {
            Evidence::Sample {
                bytes_per_s,
                by_itself,
            } => Evidence::Sample {
                bytes_per_s: bytes_per_s.min(most_bytes_per_s),
                by_itself,
            },
            other => other,
        }
    }
}
