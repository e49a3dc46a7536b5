//! The reasons for what happens: why a response or a connection ended ([`Why`]), what its bytes wait for ([`Wait`]),
//! why a socket was filled ([`TopUp`]), and the last decisions of a worker or a device ([`Decisions`]). One vocabulary for the
//! log, the metrics, `ackpace top` and `ackpace why`.

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::fmt;

use crate::congestion::{Delay, Signal};
use crate::conn::ConnId;
use crate::disk::{Chosen, DepthBound};
use crate::limits::THIN_BYTES_MAX;
use crate::prefetch::TargetBound;
use crate::units::{Bytes, Instant, Time, US_PER_S};

/// The reason why a response or a connection ended. Names are stable: operators search their logs for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The response was sent completely and the connection was to end.
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
    /// The peer's window stayed closed for `pause_timeout`, or for less where divided send memory is short.
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
    pub const ALL: [Why; 14] = [
        Why::Done,
        Why::PeerClosed,
        Why::PeerReset,
        Why::Idle,
        Why::HeaderTimeout,
        Why::BodyTimeout,
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
            Why::BodyTimeout => "body_timeout",
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
    /// Its share of the send memory was full, and part of it should be free again (`core/src/send/refill_timers.rs`).
    Timer,
    /// It had counted as full, and TCP_INFO showed that it was empty.
    Empty,
}

impl TopUp {
    /// Every one, each at the index of its number.
    pub const ALL: [TopUp; 5] = [
        TopUp::First,
        TopUp::Writable,
        TopUp::Near,
        TopUp::Timer,
        TopUp::Empty,
    ];

    /// The stable name: a label of the metrics.
    pub fn name(self) -> &'static str {
        match self {
            TopUp::First => "first",
            TopUp::Writable => "writable",
            TopUp::Near => "near",
            TopUp::Timer => "timer",
            TopUp::Empty => "empty",
        }
    }
}

/// One decision: when, about whom, what, and the numbers that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// About whom; `None`: about all connections of the worker, or about the device.
    pub conn: Option<ConnId>,
    /// What, with its reason.
    pub what: What,
}

/// What was decided. Its `Display` is a sentence for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A socket was filled until it took no more.
    ToppedUp {
        /// Why it was its turn.
        top_up: TopUp,
        /// What it waits for now.
        wait: Wait,
        /// What the socket took.
        given_bytes: u64,
        /// D1: what it holds unsent; `None` where this can't be known (unix sockets).
        unsent_bytes: Option<u64>,
        /// The level up to which it is filled.
        fill_bytes: u64,
        /// B_n; 0: not known yet.
        rate_bytes_per_s: u64,
    },
    /// The response is stalled for something other than its socket.
    Waits {
        /// For what.
        wait: Wait,
        /// Bytes of the response that the kernel has not taken yet.
        left_bytes: u64,
        /// What its socket holds, as far as is known.
        socket_bytes: u64,
    },
    /// T of all connections has changed by a tenth or more.
    Target {
        /// T before.
        from_us: u64,
        /// T now.
        to_us: u64,
        /// B_net, what all connections take together.
        rates_bytes_per_s: u64,
    },
    /// T_D of a device has changed.
    ReadTarget {
        /// T_D before.
        from_us: u64,
        /// T_D now.
        to_us: u64,
        /// What sets it.
        bound: TargetBound,
        /// How many streams read from the device.
        streams: u64,
        /// What these take together.
        rates_bytes_per_s: u64,
    },
    /// The queue depth of a device has changed.
    Depth {
        /// Reads at once before.
        from: u64,
        /// And now.
        to: u64,
        /// What sets it.
        bound: DepthBound,
    },
    /// The memory in which a device reads ahead was resized.
    Memory {
        /// Before.
        from_bytes: u64,
        /// Now.
        to_bytes: u64,
    },
    /// The first window of a response is spread over a round trip.
    Paced {
        /// The window: what would leave at once.
        window_bytes: u64,
        /// How fast it leaves instead.
        rate_bytes_per_s: u64,
        /// For how long: the round trip time.
        for_us: u64,
    },
    /// The path is congested, and the stream's want at the disk gets a new deadline.
    Congested {
        /// How TCP tells.
        signal: Signal,
        /// What is done about it.
        delay: Delay,
        /// B_n before.
        from_bytes_per_s: u64,
        /// B_n now.
        to_bytes_per_s: u64,
    },
    /// The disk machine had bytes of the response read, and they are in memory.
    Read(Chosen),
    /// A response ended early, or after it had waited.
    Ended {
        /// Why.
        why: Why,
        /// Bytes of it that the kernel took.
        sent_bytes: u64,
        /// Since its request.
        took_us: u64,
    },
    /// A connection was closed for an unusual reason.
    Closed {
        /// Why.
        why: Why,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            What::ToppedUp { top_up, .. } => self.topped_up(top_up, f),
            What::Waits {
                wait,
                left_bytes,
                socket_bytes,
            } => waits(wait, left_bytes, socket_bytes, f),
            What::Target {
                from_us,
                to_us,
                rates_bytes_per_s,
            } => write!(
                f,
                "the margin of all connections goes from {} to {}, since together they take {}/s",
                Time(from_us),
                Time(to_us),
                Bytes(rates_bytes_per_s)
            ),
            What::ReadTarget {
                from_us,
                to_us,
                bound,
                streams,
                rates_bytes_per_s,
            } => write!(
                f,
                "the target goes from {} to {}, since {}; {streams} streams take {}/s together",
                Time(from_us),
                Time(to_us),
                bound.sentence(),
                Bytes(rates_bytes_per_s)
            ),
            What::Depth { from, to, bound } => write!(
                f,
                "the depth goes from {from} to {to} reads at once: {}",
                bound.sentence()
            ),
            What::Memory {
                from_bytes,
                to_bytes,
            } => {
                let why = match from_bytes < to_bytes {
                    true => "which nobody else uses now",
                    false => "since others want the rest",
                };
                let (from, to) = (Bytes(from_bytes), Bytes(to_bytes));
                write!(
                    f,
                    "memory for reading ahead goes from {from} to {to}, {why}"
                )
            }
            What::Paced {
                window_bytes,
                rate_bytes_per_s,
                for_us,
            } => write!(
                f,
                "paced at {}/s for {}, a round trip, since nothing was in flight: its window of {} would leave at once, and \
                 overflow a queue on the way",
                Bytes(rate_bytes_per_s),
                Time(for_us),
                Bytes(window_bytes)
            ),
            What::Congested { signal, .. } => {
                write!(f, "its path is congested: {}; ", signal.sentence())?;
                self.delayed(f)
            }
            What::Read(chosen) => chosen.fmt(f),
            What::Ended {
                why,
                sent_bytes,
                took_us,
            } => write!(
                f,
                "the response ended ({why}) after {} in {}",
                Bytes(sent_bytes),
                Time(took_us)
            ),
            What::Closed { why } => write!(f, "the connection was closed ({why})"),
        }
    }
}

impl What {
    /// What a socket was given, why, and what it holds now.
    fn topped_up(&self, top_up: TopUp, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What::ToppedUp {
            wait,
            given_bytes,
            unsent_bytes,
            fill_bytes,
            rate_bytes_per_s,
            ..
        } = *self
        else {
            return Ok(());
        };
        let because = match top_up {
            TopUp::First => "its response began",
            TopUp::Writable => "the socket became writable: little was left in it",
            TopUp::Near => "the socket would have become writable before the next round",
            TopUp::Timer => {
                "its share of the send memory was full, and part of it should be free by now"
            }
            TopUp::Empty => "the socket had counted as full, and was empty",
        };
        write!(f, "given {} because {because}; ", Bytes(given_bytes))?;
        if let Some(unsent_bytes) = unsent_bytes {
            write!(f, "the socket holds {} unsent", Bytes(unsent_bytes))?;
            if let Some(us) = (unsent_bytes * US_PER_S).checked_div(rate_bytes_per_s) {
                let rate = Bytes(rate_bytes_per_s);
                write!(f, ", {} at the {rate}/s that it takes", Time(us))?;
            }
            let level = Bytes(fill_bytes);
            match unsent_bytes > fill_bytes {
                true => write!(f, ", more than the {level} up to which it is filled now")?,
                false => write!(f, ", and is filled up to {level}")?,
            }
            f.write_str("; ")?;
        }
        write!(f, "now it waits for {}", wait.sentence())
    }

    /// What is done about congestion.
    fn delayed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let What::Congested {
            delay,
            from_bytes_per_s,
            to_bytes_per_s,
            ..
        } = *self
        else {
            return Ok(());
        };
        let (from, to) = (Bytes(from_bytes_per_s), Bytes(to_bytes_per_s));
        match delay {
            Delay::Rate if from_bytes_per_s == to_bytes_per_s => {
                write!(f, "whether it is slower than {from}/s is measured now")
            }
            Delay::Rate => write!(
                f,
                "taken for {to}/s instead of {from}/s, so its next bytes are read later"
            ),
            Delay::Paper => f.write_str(
                "its next read is put off for half of the target time, if the disk is busy (delay = paper)",
            ),
            Delay::Off => f.write_str("nothing changes (delay = off)"),
        }
    }
}

fn waits(
    wait: Wait,
    left_bytes: u64,
    socket_bytes: u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let left = Bytes(left_bytes);
    if wait == Wait::Disk && socket_bytes > THIN_BYTES_MAX {
        let held = Bytes(socket_bytes);
        return write!(
            f,
            "its next bytes are not in memory yet, and its socket should hold {held} until then; {left} are left"
        );
    }
    write!(f, "waits for {}; {left} are left", wait.sentence())
}

/// The last decisions of a worker or a device. One writer; readers get copies. Nothing is allocated after the start: a new one
/// replaces the oldest.
#[derive(Clone, Debug)]
pub struct Decisions {
    ring: Vec<Decision>,
    next: usize,
    most: usize,
}

impl Decisions {
    /// None yet, with room for `most`, at least one.
    pub fn new(most: usize) -> Decisions {
        let most = most.max(1);
        Decisions {
            ring: Vec::with_capacity(most),
            next: 0,
            most,
        }
    }

    /// Records a decision: the only way in.
    pub fn record(&mut self, at: Instant, conn: Option<ConnId>, what: What) {
        let decision = Decision { at, conn, what };
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = decision,
            None => self.ring.push(decision),
        }
        self.next = (self.next + 1) % self.most;
    }

    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}
