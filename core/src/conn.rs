//! The words that the stages share: who asks, for which bytes, and what TCP says.

use alloc::sync::Arc;

use smallvec::SmallVec;

use crate::congestion::Path;
use crate::units::Instant;

/// A connection of one worker. The generation tells it from the earlier users of the same slot,
/// so a late completion never reaches a new client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId {
    /// Slot in the worker's table.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// One response on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The worker that owns the connection.
    pub worker: u16,
    /// The connection.
    pub conn: ConnId,
    /// Number of the response on its connection, wrapping.
    pub nth: u16,
}

/// An open file, the same for all workers that serve it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Number of the device (a set of disks) that holds it.
    pub device: u16,
    /// Slot in the table of objects.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// What a file was when its response was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Size in bytes.
    pub len_bytes: u64,
    /// Time of the last change of content, nanoseconds since 1970.
    pub mtime_ns: i128,
}

impl Version {
    /// Whether the bytes that this version promised may still be sent when the file now is `now`.
    ///
    /// A file that grew is taken for appended to: its promised length is kept. One that shrank, or
    /// that has the same size and another time, was truncated or changed in place.
    pub fn still_holds(&self, now: &Version) -> bool {
        now.len_bytes > self.len_bytes || now == self
    }
}

/// A range of bytes, of a file or of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where it starts.
    pub offset_bytes: u64,
    /// How long it is.
    pub len_bytes: u64,
}

impl Span {
    /// The first byte behind the span.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.len_bytes)
    }

    /// Whether the byte at `offset_bytes` lies inside.
    pub fn contains(&self, offset_bytes: u64) -> bool {
        (self.offset_bytes..self.end_bytes()).contains(&offset_bytes)
    }

    /// Whether all of `other` lies inside.
    pub fn covers(&self, other: Span) -> bool {
        self.offset_bytes <= other.offset_bytes && other.end_bytes() <= self.end_bytes()
    }
}

/// Whether the bytes of a file are in memory can be asked in three ways (server/store/residency).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oracle {
    /// The file lives in memory (tmpfs): nothing to ask.
    Always,
    /// cachestat(2) tells, at any time and without side effects.
    Ask,
    /// Only what we read ourselves is known, and a probe of it may confirm that it is still there.
    /// A cold window must never be probed: that would start a small read behind the chooser's back.
    Remember,
}

/// A piece of a response. Byte n of a response is a function of its [`Plan`] alone: resume and
/// hand-over of a connection need that.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes that the planner made: the head, or a boundary between ranges.
    Bytes(Arc<[u8]>),
    /// A range of a file.
    Body {
        /// The file.
        object: ObjectId,
        /// What it was when the response was planned.
        version: Version,
        /// How its residency is known.
        oracle: Oracle,
        /// The range.
        span: Span,
    },
    /// A text whose length nobody knows yet, made slice by slice on demand (a listing).
    Slices,
}

/// A whole response, decided before its first byte is sent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts, in order.
    pub parts: SmallVec<[Part; 2]>,
    /// Bytes at the start of the response that belong to its head, not its body.
    pub head_len_bytes: u64,
    /// Whether the connection may carry another request afterwards.
    pub keep_alive: bool,
}

impl Plan {
    /// The texts from this part on that are sent as one: a head and a body that are both
    /// at hand leave in one system call.
    pub fn texts(&self, part: u16) -> impl Iterator<Item = &[u8]> {
        let from = self.parts.get(usize::from(part)..).unwrap_or_default();
        from.iter().map_while(|part| match part {
            Part::Bytes(bytes) => Some(&**bytes),
            Part::Body { .. } | Part::Slices => None,
        })
    }
}

/// Memory in which bytes wait for their turn. Part of the contract with the disk machine: who
/// gets it holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The kernel's page cache; sendfile(2) moves it. Nobody holds it: it may be gone when it is to be sent.
    PageCache,
    /// Slots of the device's pool, read past the page cache for one stream. The shell has them; each is free as soon as
    /// its last byte is sent.
    Slots,
}

/// A stream's wish for the bytes that follow those it has. It stands until it is answered; a later wish of the same
/// stream replaces it. How many bytes are read, and when, is the disk machine's to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// For whom.
    pub stream: StreamId,
    /// Of which file.
    pub object: ObjectId,
    /// From the first byte that it has not (the paper's PP) to the last one that it will need.
    pub span: Span,
    /// When the stream runs out of bytes. Absolute, so that the chooser computes T_n = dry_at - now
    /// (TPF eq. 5) for all streams without asking anyone.
    pub dry_at: Instant,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// Answers that the stream has had: a wish from before the last one is void.
    pub heard: u32,
    /// Signals of congestion that the stream has had ([`crate::congestion::Signal`]): one more than in the wish that this
    /// one replaces says why it is dated anew.
    pub signals: u32,
}

/// What the transport says of a connection: one vocabulary for epoll, TCP_INFO and whatever comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEvent {
    /// Input waits in the socket.
    Readable,
    /// The socket takes output again.
    Writable,
    /// The peer sent FIN. It may still read: this is not departure.
    Fin,
    /// RST, or the kernel gave up (EPOLLERR): the peer is gone. Both directions shut (EPOLLHUP alone)
    /// is not that: our last bytes may still be on their way.
    Reset,
    /// A measurement.
    Sample(TcpSample),
}

/// What TCP knows of one connection now (tcp(7), `struct tcp_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// Written to the socket and not yet acknowledged (SIOCOUTQ).
    pub unacked_bytes: u64,
    /// Of that, not sent yet (SIOCOUTQNSD); `None` where nobody can say.
    pub unsent_bytes: Option<u64>,
    /// The peer's receive window is closed: a paused player, a full disk.
    pub window_closed: bool,
    /// Zero-window probes that the peer left unanswered.
    pub probes_unanswered: u32,
    /// Round trip time, smoothed (`tcpi_rtt`); 0: not measured yet.
    pub rtt_us: u64,
    /// What may be in flight, and why it is not more.
    pub path: Path,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grown_file_keeps_its_promise_and_a_changed_one_does_not() {
        let promised = Version {
            len_bytes: 10,
            mtime_ns: 5,
        };
        assert!(promised.still_holds(&Version {
            len_bytes: 10,
            mtime_ns: 5
        }));
        assert!(promised.still_holds(&Version {
            len_bytes: 11,
            mtime_ns: 6
        }));
        assert!(!promised.still_holds(&Version {
            len_bytes: 10,
            mtime_ns: 6
        }));
        assert!(!promised.still_holds(&Version {
            len_bytes: 9,
            mtime_ns: 5
        }));
    }

    #[test]
    fn a_span_at_the_end_of_the_number_range_does_not_wrap() {
        let span = Span {
            offset_bytes: u64::MAX - 1,
            len_bytes: 10,
        };
        assert_eq!(span.end_bytes(), u64::MAX);
        assert!(span.contains(u64::MAX - 1));
        assert!(!span.contains(0));
    }
}
