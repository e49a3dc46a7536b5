//! Why a response or a connection ended. One enum for the log, later for metrics and `ackpace why`.

use core::fmt;

/// The reason. Names are stable: operators search their logs for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The response was sent whole and the connection was to end.
    Done,
    /// The peer closed between two requests.
    PeerClosed,
    /// The peer sent RST or vanished.
    PeerReset,
    /// No request came in `idle_timeout`.
    Idle,
    /// A request head did not arrive in `header_timeout`.
    HeaderTimeout,
    /// A request body did not arrive in time, or was longer than we skip.
    BodyTimeout,
    /// Nothing was acknowledged for `send_timeout`.
    SendTimeout,
    /// The peer's window stayed closed for `pause_timeout`.
    PauseTimeout,
    /// Less than `rate_min` over a minute although the window was open.
    TooSlow,
    /// The file was truncated or changed in place while it was sent.
    FileChanged,
    /// The disk or file system failed; the log line before it names file and offset.
    ReadFailed,
    /// A listing could not be continued.
    ListingFailed,
    /// The server is stopping.
    Draining,
}

impl Why {
    /// The stable name, as it stands in the log.
    pub fn name(self) -> &'static str {
        match self {
            Why::Done => "done",
            Why::PeerClosed => "peer_closed",
            Why::PeerReset => "peer_reset",
            Why::Idle => "idle",
            Why::HeaderTimeout => "header_timeout",
            Why::BodyTimeout => "body_timeout",
            Why::SendTimeout => "send_timeout",
            Why::PauseTimeout => "pause_timeout",
            Why::TooSlow => "too_slow",
            Why::FileChanged => "file_changed",
            Why::ReadFailed => "read_failed",
            Why::ListingFailed => "listing_failed",
            Why::Draining => "draining",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
