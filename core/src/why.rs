//! Why things are as they are: why a response or a connection ended ([`Why`]), what its bytes wait for
//! ([`Wait`]), why a socket was filled ([`TopUp`]), and a worker's last decisions ([`Decisions`]). One
//! vocabulary for the log, the metrics, `ackpace top` and `ackpace why`.

use alloc::vec::Vec;
use core::fmt;

use crate::congestion::{Delay, Signal};
use crate::conn::ConnId;
use crate::disk::Chosen;
use crate::limits::{DECISIONS_MAX, THIN_BYTES_MAX};
use crate::units::{Bytes, Instant, Time, US_PER_S};

/// The reason for an end. Names are stable: operators search their logs for them.
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
    /// The response is not what its head promises: our own fault. The connection ends.
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
    /// They are not in memory yet, and the socket has nothing for its client: a read, or the next slice of a listing, is under way.
    Disk,
    /// The socket holds the send margin of its client: this is the state of a healthy download.
    Margin,
    /// The kernel took no more for another reason: SO_SNDBUF, memory, or sending without margins.
    Socket,
    /// The client's receive window is closed or full: it does not read.
    Window,
    /// Nothing but the worker's turn: they are sent next.
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

    /// Whether the network side is what holds it.
    pub fn is_net(self) -> bool {
        matches!(self, Wait::Margin | Wait::Socket | Wait::Window)
    }

    /// What it waits for in the light of what TCP says now: a full socket is the client's doing when its window
    /// (tcp(7), `tcpi_snd_wnd`) leaves no room for another full segment.
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

/// What decides whether the client's window is what binds.
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
    /// The kernel called: little was left in the socket.
    Called,
    /// The kernel called for somebody else, and would have called for this one before the next round.
    Near,
}

impl TopUp {
    /// Every one, each at the index of its number.
    pub const ALL: [TopUp; 3] = [TopUp::First, TopUp::Called, TopUp::Near];

    /// The stable name: a label of the metrics.
    pub fn name(self) -> &'static str {
        match self {
            TopUp::First => "first",
            TopUp::Called => "called",
            TopUp::Near => "near",
        }
    }
}

/// One decision: when, about whom, what, and the numbers that it was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// When.
    pub at: Instant,
    /// About whom; `None`: about all connections of the worker.
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
        /// What holds it now.
        wait: Wait,
        /// What the socket took.
        given_bytes: u64,
        /// D1: what it holds unsent; `None` where nobody can say (unix sockets).
        unsent_bytes: Option<u64>,
        /// What it is filled up to.
        fill_bytes: u64,
        /// B_n; 0: not known yet.
        rate_bytes_per_s: u64,
    },
    /// The response stands still for something else than its socket.
    Waits {
        /// For what.
        wait: Wait,
        /// Of the response, not yet with the kernel.
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
    /// The first window of a response is spread over a round trip.
    Paced {
        /// The window: what would leave at once.
        window_bytes: u64,
        /// How fast it leaves instead.
        rate_bytes_per_s: u64,
        /// For how long: the round trip time.
        for_us: u64,
    },
    /// The path is congested, and the wish that the disk has of the stream is dated anew.
    Congested {
        /// How TCP tells.
        signal: Signal,
        /// What is done about it.
        delay: Delay,
        /// B_n for prefetch before.
        from_bytes_per_s: u64,
        /// B_n for prefetch now.
        to_bytes_per_s: u64,
    },
    /// The disk machine had bytes of the response read, and they are there.
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
    /// A connection was closed for a reason that is not in the ordinary way of things.
    Closed {
        /// Why.
        why: Why,
    },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            What::ToppedUp {
                top_up,
                wait,
                given_bytes,
                unsent_bytes,
                fill_bytes,
                rate_bytes_per_s,
            } => {
                let because = match top_up {
                    TopUp::First => "its response had begun",
                    TopUp::Called => "the kernel called, since little was left in the socket",
                    TopUp::Near => "the kernel would have called before the next round",
                };
                write!(f, "given {} since {because}; ", Bytes(given_bytes))?;
                if let Some(unsent_bytes) = unsent_bytes {
                    let of = Bytes(fill_bytes);
                    write!(f, "the socket holds {} of {of} unsent", Bytes(unsent_bytes))?;
                    if let Some(us) = (unsent_bytes * US_PER_S).checked_div(rate_bytes_per_s) {
                        let rate = Bytes(rate_bytes_per_s);
                        write!(f, ", {} at the {rate}/s that it takes", Time(us))?;
                    }
                    f.write_str("; ")?;
                }
                write!(f, "now it waits for {}", wait.sentence())
            }
            What::Waits {
                wait: Wait::Disk,
                left_bytes,
                socket_bytes,
            } if socket_bytes > THIN_BYTES_MAX => {
                let (left, held) = (Bytes(left_bytes), Bytes(socket_bytes));
                write!(
                    f,
                    "its next bytes are not in memory yet, and its socket should hold {held} until then; {left} are left"
                )
            }
            What::Waits {
                wait, left_bytes, ..
            } => {
                let left = Bytes(left_bytes);
                write!(f, "waits for {}; {left} are left", wait.sentence())
            }
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
            What::Congested {
                signal,
                delay,
                from_bytes_per_s,
                to_bytes_per_s,
            } => {
                write!(f, "its path is congested: {}; ", signal.sentence())?;
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
                        "its next read is put off for half of T_D, if the disk is busy (delay = paper)",
                    ),
                    Delay::Off => f.write_str("nothing changes (delay = off)"),
                }
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

/// The last [`DECISIONS_MAX`] decisions of one worker. One writer; who reads gets copies. Nothing is
/// allocated after the start: a new one takes the place of the oldest.
#[derive(Clone, Debug)]
pub struct Decisions {
    ring: Vec<Decision>,
    next: usize,
}

impl Default for Decisions {
    fn default() -> Decisions {
        Decisions {
            ring: Vec::with_capacity(DECISIONS_MAX),
            next: 0,
        }
    }
}

impl Decisions {
    /// The one way in.
    pub fn record(&mut self, at: Instant, conn: Option<ConnId>, what: What) {
        let decision = Decision { at, conn, what };
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = decision,
            None => self.ring.push(decision),
        }
        self.next = (self.next + 1) % DECISIONS_MAX;
    }

    /// All that are kept, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Decision> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONN: ConnId = ConnId {
        index: 3,
        generation: 1,
    };

    #[test]
    fn every_reason_stands_at_its_number_and_has_a_name_of_its_own() {
        for (at, why) in Why::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, at);
        }
        for (at, wait) in Wait::ALL.into_iter().enumerate() {
            assert_eq!(wait as usize, at);
        }
        for (at, top_up) in TopUp::ALL.into_iter().enumerate() {
            assert_eq!(top_up as usize, at);
        }
        let mut names: Vec<&str> = Why::ALL.into_iter().map(Why::name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Why::ALL.len());
    }

    #[test]
    fn the_ring_keeps_the_last_decisions_in_their_order_and_never_grows() {
        let mut decisions = Decisions::default();
        let capacity = decisions.ring.capacity();
        assert_eq!(decisions.iter().count(), 0);
        for us in 0..3 * DECISIONS_MAX as u64 + 7 {
            let what = What::Closed { why: Why::Idle };
            decisions.record(Instant { us }, Some(CONN), what);
            let kept: Vec<u64> = decisions.iter().map(|decision| decision.at.us).collect();
            let first = (us + 1).saturating_sub(DECISIONS_MAX as u64);
            assert!(kept.into_iter().eq(first..=us), "after {us}");
        }
        assert_eq!(decisions.ring.capacity(), capacity);
    }

    #[test]
    fn a_full_socket_is_the_windows_doing_when_no_segment_fits_in_it() {
        let tcp = WindowFacts {
            window_bytes: 65_536,
            in_flight_bytes: 10_000,
            unsent_bytes: 500_000,
            segment_bytes: 1448,
        };
        let full = WindowFacts {
            in_flight_bytes: 65_000,
            ..tcp
        };
        let shut = WindowFacts {
            window_bytes: 0,
            ..tcp
        };
        for (wait, facts, seen) in [
            (Wait::Margin, tcp, Wait::Margin),
            (Wait::Margin, full, Wait::Window),
            (Wait::Socket, shut, Wait::Window),
            (Wait::Disk, shut, Wait::Disk),
            (Wait::Turn, full, Wait::Turn),
        ] {
            assert_eq!(wait.seen_with(&facts), seen, "{wait:?} {facts:?}");
        }
    }

    #[test]
    fn a_decision_is_a_plain_sentence_with_its_numbers() {
        let topped_up = What::ToppedUp {
            top_up: TopUp::Near,
            wait: Wait::Margin,
            given_bytes: 123_456,
            unsent_bytes: Some(507_904),
            fill_bytes: 507_904,
            rate_bytes_per_s: 2_500_000,
        };
        assert_eq!(
            topped_up.to_string(),
            "given 123 KB since the kernel would have called before the next round; the socket holds 507 KB of 507 KB \
             unsent, 203 ms at the 2.5 MB/s that it takes; now it waits for its client: the socket holds its \
             margin, as it should"
        );
        let waits = |socket_bytes| What::Waits {
            wait: Wait::Disk,
            left_bytes: 999,
            socket_bytes,
        };
        assert_eq!(
            waits(300).to_string(),
            "waits for the disk: its next bytes are not in memory yet; 999 B are left"
        );
        assert_eq!(
            waits(2_000_000).to_string(),
            "its next bytes are not in memory yet, and its socket should hold 2.0 MB until then; 999 B are left"
        );
        let target = What::Target {
            from_us: 400_000,
            to_us: 209_000,
            rates_bytes_per_s: 240_000_000,
        };
        assert_eq!(
            target.to_string(),
            "the margin of all connections goes from 400 ms to 209 ms, since together they take 240 MB/s"
        );
        let paced = What::Paced {
            window_bytes: 400_000,
            rate_bytes_per_s: 25_000_000,
            for_us: 20_000,
        };
        assert_eq!(
            paced.to_string(),
            "paced at 25 MB/s for 20 ms, a round trip, since nothing was in flight: its window of 400 KB would leave at \
             once, and overflow a queue on the way"
        );
        let congested = |delay, to_bytes_per_s| What::Congested {
            signal: Signal::Ecn,
            delay,
            from_bytes_per_s: 1_000_000,
            to_bytes_per_s,
        };
        assert_eq!(
            congested(Delay::Rate, 750_000).to_string(),
            "its path is congested: packets are marked (ECN); taken for 750 KB/s instead of 1.0 MB/s, so its next bytes are \
             read later"
        );
        assert_eq!(
            congested(Delay::Rate, 1_000_000).to_string(),
            "its path is congested: packets are marked (ECN); whether it is slower than 1.0 MB/s is measured now"
        );
        let ended = What::Ended {
            why: Why::PauseTimeout,
            sent_bytes: 4_150_000,
            took_us: 604_000_000,
        };
        assert_eq!(
            ended.to_string(),
            "the response ended (pause_timeout) after 4.1 MB in 604 s"
        );
    }
}
