//! The reasons for what happens: why a response or a connection ended ([`Why`]), what its bytes wait for ([`Wait`]),
//! why a socket was filled ([`TopUp`]), and the last decisions of a worker or a device ([`Decisions`]). One vocabulary for the
//! log, the metrics, `ackpace top` and `ackpace why`.

mod decisions;
#[cfg(test)]
mod tests;

use core::fmt;

pub use self::decisions::{Chosen, Decision, Decisions, Reason, What};

/// The reason why a response or a connection ended. Names are stable: operators search their logs for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The response was sent completely and the connection was to end. What the client still sent then no longer matters.
    Done,
    /// The peer closed between two requests.
    PeerClosed,
    /// The peer sent RST or vanished.
    PeerReset,
    /// No request came in `idle_timeout`.
    Idle,
    /// A request head did not arrive in `header_timeout`.
    HeaderTimeout,
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
    /// The response is not what its head promises: a bug of ours. The connection ends.
    Misframed,
    /// The server is stopping.
    Draining,
}

impl Why {
    /// Every reason, each at the index of its number.
    pub const ALL: [Why; 13] = [
        Why::Done,
        Why::PeerClosed,
        Why::PeerReset,
        Why::Idle,
        Why::HeaderTimeout,
        Why::SendTimeout,
        Why::PauseTimeout,
        Why::TooSlow,
        Why::FileChanged,
        Why::ReadFailed,
        Why::ListingFailed,
        Why::Misframed,
        Why::Draining,
    ];

    /// The stable name, as it stands in the log.
    pub fn name(self) -> &'static str {
        match self {
            Why::Done => "done",
            Why::PeerClosed => "peer_closed",
            Why::PeerReset => "peer_reset",
            Why::Idle => "idle",
            Why::HeaderTimeout => "header_timeout",
            Why::SendTimeout => "send_timeout",
            Why::PauseTimeout => "pause_timeout",
            Why::TooSlow => "too_slow",
            Why::FileChanged => "file_changed",
            Why::ReadFailed => "read_failed",
            Why::ListingFailed => "listing_failed",
            Why::Misframed => "misframed",
            Why::Draining => "draining",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the next bytes of a response wait for. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wait {
    /// They are not in memory yet, and the socket has nothing for its client: a read, or the next slice of a listing,
    /// is under way.
    Disk,
    /// The socket holds the send margin of its client: the state of a healthy download.
    Margin,
    /// The kernel took no more for another reason: SO_SNDBUF, memory, or sending without margins.
    Socket,
    /// The client's receive window is closed or full: it does not read.
    Window,
    /// Only the worker's turn: they are sent next.
    Turn,
}

impl Wait {
    /// Every one, each at the index of its number.
    pub const ALL: [Wait; 5] = [
        Wait::Disk,
        Wait::Margin,
        Wait::Socket,
        Wait::Window,
        Wait::Turn,
    ];

    /// The stable name: a label of the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Wait::Disk => "disk",
            Wait::Margin => "margin",
            Wait::Socket => "socket",
            Wait::Window => "window",
            Wait::Turn => "turn",
        }
    }

    /// The rest of the sentence "it waits for".
    pub fn sentence(self) -> &'static str {
        match self {
            Wait::Disk => "the disk: its next bytes are not in memory yet",
            Wait::Margin => "its client: the socket holds its margin, as it should",
            Wait::Socket => "its client: the socket takes no more (SO_SNDBUF)",
            Wait::Window => "its client, which does not read: its receive window is closed or full",
            Wait::Turn => "its turn only: bytes are ready and the socket takes them",
        }
    }

    /// Whether it waits for the network side.
    pub fn is_net(self) -> bool {
        matches!(self, Wait::Margin | Wait::Socket | Wait::Window)
    }

    /// What it waits for, given what TCP says now: a full socket is the client's doing when its window (tcp(7),
    /// `tcpi_snd_wnd`) leaves no room for another full segment.
    #[must_use]
    pub fn seen_with(self, tcp: &WindowFacts) -> Wait {
        let full = tcp.in_flight_bytes + tcp.segment_bytes > tcp.window_bytes;
        let closed = tcp.window_bytes == 0 || full && tcp.unsent_bytes > 0;
        if self.is_net() && closed {
            Wait::Window
        } else {
            self
        }
    }
}

/// What decides whether the client's window limits the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowFacts {
    /// The window that the client offers.
    pub window_bytes: u64,
    /// Sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// D1: in the socket, not sent.
    pub unsent_bytes: u64,
    /// A full segment (MSS).
    pub segment_bytes: u64,
}

/// Why a socket was given bytes. Names are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TopUp {
    /// The response began.
    First,
    /// The kernel reported the socket writable: little was left in it.
    Writable,
    /// Another socket was filled: the kernel would have reported this one writable before the next round.
    Near,
    /// It had counted as full, and TCP_INFO showed that it was empty.
    Empty,
}

impl TopUp {
    /// Every one, each at the index of its number.
    pub const ALL: [TopUp; 4] = [TopUp::First, TopUp::Writable, TopUp::Near, TopUp::Empty];

    /// The stable name: a label of the metrics.
    pub fn name(self) -> &'static str {
        match self {
            TopUp::First => "first",
            TopUp::Writable => "writable",
            TopUp::Near => "near",
            TopUp::Empty => "empty",
        }
    }
}
