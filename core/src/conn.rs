//! The vocabulary that the stages share: who asks, for which bytes, and what TCP says.

use alloc::sync::Arc;

use smallvec::SmallVec;

use crate::congestion::Path;
use crate::rate::Flow;
use crate::units::Instant;

/// A connection of one worker. The generation tells it from earlier users of the same slot, so a late completion never
/// reaches a new client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

impl StreamId {
    /// Whether this is an earlier stream of the slot of `other`: a response of an earlier connection there, or an
    /// earlier response of the same connection. Both numbers wrap, so the shorter way round tells which is earlier (as
    /// for serial numbers, RFC 1982).
    pub fn is_before(self, other: StreamId) -> bool {
        let (conn, of) = (self.conn.generation, other.conn.generation);
        match conn.wrapping_sub(of) as i32 {
            0 => (self.nth.wrapping_sub(other.nth) as i16) < 0,
            ahead => ahead < 0,
        }
    }
}

/// An open file. All workers that serve it now share this id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Number of the device (a set of disks) that holds it.
    pub device: u16,
    /// Slot in the table of objects.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// What fstat(2) said about a file, when its response was planned or now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Size in bytes.
    pub len_bytes: u64,
    /// Time of the last change of content, nanoseconds since 1970. Anyone who may write the file can set it.
    pub mtime_ns: i128,
    /// Time of the last change of content or inode, nanoseconds since 1970. Nobody can set it back.
    pub ctime_ns: i128,
    /// Number of names of the file: 0 after the last was removed.
    pub links: u64,
}

/// What a response promises of its file's bytes (RFC 9110 section 8.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// All are of one version: the validator is strong, or the operator is told so.
    OneVersion,
    /// They lie below the promised length of a file that is being written: the validator is weak.
    Prefix,
}

/// How a file differs from the version that was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Not at all, or only by growing where no more than a prefix was promised.
    None,
    /// Only the inode changed: a rename, a link, permissions. Or the content changed and its time was set back. Whether
    /// its name still leads to the file tells the two apart.
    Inode,
    /// Another time with the same length, of a file that is being written: either it is about to grow, or it was
    /// changed in place.
    Unsettled,
    /// The content was changed.
    Content,
}

impl Version {
    /// How the file, which is `now`, differs from this version.
    ///
    /// The kernel changes an appended file's time first and its length a little later (ext4, xfs), so where a prefix
    /// was promised, the same length with a new time is not decided yet.
    pub fn change(&self, now: &Version, promise: Promise) -> Change {
        let (same_len, same_time) = (
            now.len_bytes == self.len_bytes,
            now.mtime_ns == self.mtime_ns,
        );
        match promise {
            _ if same_len && same_time && now.ctime_ns == self.ctime_ns => Change::None,
            _ if same_len && same_time && now.links != self.links => Change::None,
            _ if same_len && same_time => Change::Inode,
            Promise::Prefix if now.len_bytes > self.len_bytes => Change::None,
            Promise::Prefix if same_len => Change::Unsettled,
            Promise::Prefix | Promise::OneVersion => Change::Content,
        }
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
    /// The offset of the first byte behind the span.
    pub fn end_bytes(&self) -> u64 {
        self.offset_bytes.saturating_add(self.len_bytes)
    }

    /// What is left of the span behind its first `taken_bytes`.
    #[must_use]
    pub fn behind(&self, taken_bytes: u64) -> Span {
        let taken_bytes = taken_bytes.min(self.len_bytes);
        Span {
            offset_bytes: self.offset_bytes + taken_bytes,
            len_bytes: self.len_bytes - taken_bytes,
        }
    }

    /// Whether the byte at `offset_bytes` lies inside.
    pub fn contains(&self, offset_bytes: u64) -> bool {
        (self.offset_bytes..self.end_bytes()).contains(&offset_bytes)
    }

    /// Whether some byte lies inside both.
    pub fn overlaps(&self, other: Span) -> bool {
        self.offset_bytes < other.end_bytes() && other.offset_bytes < self.end_bytes()
    }

    /// Whether all of `other` lies inside.
    pub fn covers(&self, other: Span) -> bool {
        self.offset_bytes <= other.offset_bytes && other.end_bytes() <= self.end_bytes()
    }
}

/// How to find out whether the bytes of a file are in memory (`server/src/store/residency.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResidencySource {
    /// The file lives in memory (tmpfs): nothing to ask.
    Always,
    /// cachestat(2) tells, at any time and without side effects.
    Ask,
    /// Only what we read ourselves is known, and a read of a byte that does not wait may confirm that it is still there. A cold
    /// window must never be probed: that would start a small read that the disk machine knows nothing of.
    Remember,
}

/// A piece of a response. Byte n of a response is a function of its [`Plan`] alone; resuming a response and handing
/// over a connection need that.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes made by the planner: the head, or a boundary between ranges.
    Bytes(Arc<[u8]>),
    /// A range of a file.
    Body {
        /// The file.
        object: ObjectId,
        /// What it was when the response was planned.
        version: Version,
        /// What the response promises of its bytes.
        promise: Promise,
        /// How its residency is known.
        residency: ResidencySource,
        /// The range.
        span: Span,
    },
    /// A text of unknown length, made slice by slice on demand (a listing).
    Slices,
}

/// A whole response, decided before its first byte is sent.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The parts, in order.
    pub parts: SmallVec<[Part; 2]>,
    /// Bytes at the start of the response that belong to its head, not its body.
    pub head_len_bytes: u64,
    /// Bytes of its body, as its head announces or its framing implies; `None`: only its end tells.
    pub body_len_bytes: Option<u64>,
    /// Whether the connection may carry another request afterwards.
    pub keep_alive: bool,
}

impl Plan {
    /// Bytes of the whole response that its head promises; `None`: only its end tells.
    pub fn promised_bytes(&self) -> Option<u64> {
        self.head_len_bytes.checked_add(self.body_len_bytes?)
    }

    /// Whether the parts hold exactly the promised bytes. What is made on demand counts for nothing.
    pub fn is_sound(&self) -> bool {
        let len_bytes = |part: &Part| match part {
            Part::Bytes(bytes) => Some(bytes.len() as u64),
            Part::Body { span, .. } => {
                let end_bytes = span.offset_bytes.checked_add(span.len_bytes);
                end_bytes.map(|_| span.len_bytes)
            }
            Part::Slices => None,
        };
        let all = self.parts.iter().try_fold(0u64, |sum, part| {
            sum.checked_add(len_bytes(part).unwrap_or(0))
        });
        let made = self.parts.iter().any(|part| matches!(part, Part::Slices));
        match self.promised_bytes() {
            // What is made is counted as it is sent.
            Some(promised_bytes) if made => all.is_some_and(|all| all < promised_bytes),
            Some(promised_bytes) => all == Some(promised_bytes),
            None => made && all.is_some() && self.body_len_bytes.is_none(),
        }
    }

    /// The consecutive texts from this part on, which are sent as one: a head and a body that are both at hand leave in
    /// one system call.
    pub fn texts(&self, part: u16) -> impl Iterator<Item = &[u8]> {
        let from = self.parts.get(usize::from(part)..).unwrap_or_default();
        from.iter().map_while(|part| match part {
            Part::Bytes(bytes) => Some(&**bytes),
            Part::Body { .. } | Part::Slices => None,
        })
    }
}

/// The memory in which bytes wait to be sent. Part of the contract with the disk machine.
///
/// Both variants are done with a byte when the kernel has taken it: sendfile(2) holds the pages itself, and slots are
/// copied. The slab of a gateway counts as page cache: it is asked about, and its bytes may be gone. What packets in flight
/// refer to is held by the shell (`server/src/worker/pins.rs`), and the machines need not know.
///
/// Nobody compares variants: each answers what its users ask, so that a further one can't be forgotten anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// The kernel's page cache, or a gateway's slab, sent by sendfile(2). Nobody holds the bytes: they may be evicted before
    /// they are sent.
    PageCache,
    /// Slots of the device's pool, read past the page cache for one stream. The shell holds them; each is free as soon
    /// as its last byte is sent.
    Slots,
}

/// When memory that holds bytes of a stream is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freed {
    /// The kernel decides.
    ByKernel,
    /// As soon as its last byte is sent, since send(2) has copied it.
    WhenSent,
}

impl Held {
    /// Whether the bytes may be gone before they are sent.
    pub const fn is_evictable(self) -> bool {
        match self {
            Held::PageCache => true,
            Held::Slots => false,
        }
    }

    /// Whether the bytes are the stream's own, in memory that the process counts.
    pub const fn is_own_memory(self) -> bool {
        match self {
            Held::PageCache => false,
            Held::Slots => true,
        }
    }

    /// When the memory is free again.
    pub const fn freed(self) -> Freed {
        match self {
            Held::PageCache => Freed::ByKernel,
            Held::Slots => Freed::WhenSent,
        }
    }
}

/// A stream's want: the bytes that follow those it has. It stands until it is answered; a later want of the same stream
/// replaces it. The disk machine decides how many bytes are read, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// For whom.
    pub stream: StreamId,
    /// Of which file.
    pub object: ObjectId,
    /// From the first byte that it lacks (the paper's PP) to the last one that it will need.
    pub span: Span,
    /// The deadline: when the stream runs out of bytes. It is absolute, so that the disk machine computes T_n = underrun_at
    /// - now (TPF eq. 5) for all streams without asking anyone.
    pub underrun_at: Instant,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// Its number in its stream. A want that only gets a new deadline keeps its number.
    pub seq: WantSeq,
    /// Number of answers that the stream has received.
    pub answers: u32,
    /// Number of congestion signals that the stream has had ([`crate::congestion::Signal`]). If it is higher than in
    /// the want that this one replaces, congestion is the reason for the new deadline.
    pub signals: u32,
    /// The bytes are to be in the page cache or the slab, and never in slots: what leaves in any order, or more than once, can't
    /// be freed when it is sent.
    pub through_cache: bool,
}

/// The number of a want in its stream. An answer bears the number of the want that it answers, and is void for any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantSeq(
    /// 0: no want was made yet. It wraps, and leaves 0 out.
    pub u32,
);

impl WantSeq {
    /// The number of the next want.
    #[must_use]
    pub fn next(self) -> WantSeq {
        WantSeq(self.0.wrapping_add(1).max(1))
    }

    /// Whether it is that of an earlier want of the same stream.
    pub fn is_before(self, other: WantSeq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }
}

/// What the transport says about a connection: one vocabulary for epoll, TCP_INFO and any other source.
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
    /// Of that, not sent yet (SIOCOUTQNSD); `None` where this can't be known.
    pub unsent_bytes: Option<u64>,
    /// The peer's receive window is closed: a paused player, a full disk.
    pub window_closed: bool,
    /// Zero-window probes that the peer left unanswered.
    pub probes_unanswered: u32,
    /// Round trip time, smoothed (`tcpi_rtt`); 0: not measured yet.
    pub rtt_us: u64,
    /// What may be in flight, and why not more.
    pub path: Path,
    /// TCP's counters; `None` where nothing counts.
    pub flow: Option<Flow>,
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROMISED: Version = Version {
        len_bytes: 10,
        mtime_ns: 5,
        ctime_ns: 7,
        links: 1,
    };

    /// What a file of `len_bytes` is after a change at this time.
    fn written(len_bytes: u64, at_ns: i128) -> Version {
        Version {
            len_bytes,
            mtime_ns: at_ns,
            ctime_ns: at_ns,
            links: 1,
        }
    }

    #[test]
    fn one_version_is_one_version_and_a_prefix_may_grow() {
        for (now, one_version, prefix) in [
            (PROMISED, Change::None, Change::None),
            (written(11, 9), Change::Content, Change::None),
            (written(10, 9), Change::Content, Change::Unsettled),
            (written(9, 9), Change::Content, Change::Content),
            (written(0, 9), Change::Content, Change::Content),
        ] {
            assert_eq!(PROMISED.change(&now, Promise::OneVersion), one_version);
            assert_eq!(PROMISED.change(&now, Promise::Prefix), prefix, "{now:?}");
        }
    }

    #[test]
    fn a_time_that_was_put_back_is_no_proof_and_a_lost_name_is_no_change() {
        let inode = Version {
            ctime_ns: 9,
            ..PROMISED
        };
        let unlinked = Version { links: 0, ..inode };
        for promise in [Promise::OneVersion, Promise::Prefix] {
            assert_eq!(PROMISED.change(&inode, promise), Change::Inode);
            assert_eq!(PROMISED.change(&unlinked, promise), Change::None);
        }
    }

    #[test]
    fn a_plan_is_sound_if_its_parts_are_what_it_promises() {
        let plan = |body_len_bytes, parts: &[Part]| Plan {
            parts: parts.iter().cloned().collect(),
            head_len_bytes: 3,
            body_len_bytes,
            keep_alive: true,
        };
        let text = |len: usize| Part::Bytes(alloc::vec![0; len].into());
        let body = Part::Body {
            object: ObjectId {
                device: 0,
                index: 0,
                generation: 0,
            },
            version: PROMISED,
            promise: Promise::OneVersion,
            residency: ResidencySource::Ask,
            span: Span {
                offset_bytes: 2,
                len_bytes: 8,
            },
        };
        assert!(plan(Some(8), &[text(3), body.clone()]).is_sound());
        assert!(plan(Some(0), &[text(3)]).is_sound());
        assert!(plan(None, &[text(3), Part::Slices]).is_sound());
        assert!(plan(Some(9), &[text(3), Part::Slices]).is_sound());
        assert!(!plan(Some(7), &[text(3), body.clone()]).is_sound());
        assert!(!plan(Some(9), &[text(3), body.clone()]).is_sound());
        assert!(!plan(None, &[text(3), body]).is_sound());
        assert!(!plan(Some(0), &[text(3), Part::Slices]).is_sound());
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
