//! Record marking: how calls follow each other on a stream (RFC 5531 section 11).
//!
//! A record is a sequence of fragments, each behind four bytes with its length, of which the highest bit marks the last one.
//! Nearly all clients send one fragment for each record; old libraries send one for each of their buffers.

use crate::limits::{
    RPC_FRAGMENTS_MAX, RPC_HEAD_BYTES_MAX, RPC_PAYLOAD_BYTES_MAX, RPC_RECORD_BYTES_MAX,
};

const LAST: u32 = 1 << 31;
/// Bytes in which payload is searched at a time. Those behind its beginning are copied for nothing.
const SEARCH_BYTES: usize = 256;

/// What the beginning of a record tells of its payload: opaque data that is not to be parsed, but received where it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// More bytes are needed to tell.
    More,
    /// It has none.
    Without,
    /// There it lies.
    At {
        /// Bytes of the record before it.
        offset_bytes: usize,
        /// Its bytes, without padding.
        len_bytes: u32,
    },
}

/// What follows in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The record goes on, or the next one begins; all bytes were taken.
    More,
    /// So many bytes of payload, without a mark between them. They are not fed: [`Incoming::took_payload`] tells what was
    /// received. The record's head is there.
    Payload {
        /// At least 1.
        len_bytes: u32,
    },
    /// The record is complete. The next call of [`Incoming::feed`] begins another.
    Record,
}

/// Why the stream can't be understood from here on. It is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadStream {
    /// A record has more than [`RPC_RECORD_BYTES_MAX`].
    Long,
    /// A record has more than [`RPC_FRAGMENTS_MAX`].
    Fragments,
}

/// A record, as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its bytes before the payload; without payload its first [`RPC_HEAD_BYTES_MAX`]. What follows them is dropped: no call
    /// has as much before its payload.
    pub head: &'a [u8],
    /// Its end came before that of its payload, or the payload is above its bound and was dropped.
    pub cut: bool,
}

/// Takes records from a stream: heads are kept, payload is left to the caller. Holds at most [`RPC_HEAD_BYTES_MAX`].
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Tells where the payload is.
    find: fn(&[u8]) -> Split,
    head: Vec<u8>,
    phase: Phase,
    cut: bool,
    /// What has come of the mark of the next fragment.
    mark: u32,
    mark_bytes: u8,
    /// What has not come of the fragment.
    fragment_bytes: u32,
    /// It is the record's last one.
    is_last: bool,
    /// Fragments of the record.
    fragments: u32,
    /// Bytes of the record, by the marks that have come.
    record_bytes: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Bytes go into the head, and may lead to payload.
    Search,
    /// Bytes go into the head; there is no payload.
    Head,
    /// So many bytes of payload have not come.
    Payload(u32),
    /// The rest is padding, or nothing that is known.
    Rest,
    /// The record is complete.
    Complete,
}

impl Incoming {
    /// A stream of which nothing has come. `find` tells where the payload of a record is; a verdict other than
    /// [`Split::More`] stands whatever follows, and is found with the first byte that allows it.
    pub fn new(find: fn(&[u8]) -> Split) -> Incoming {
        Incoming {
            find,
            head: Vec::new(),
            phase: Phase::Search,
            cut: false,
            mark: 0,
            mark_bytes: 0,
            fragment_bytes: 0,
            is_last: false,
            fragments: 0,
            record_bytes: 0,
        }
    }

    /// Takes bytes from the front of `input`: how many, and what follows.
    ///
    /// # Errors
    /// If a bound is exceeded.
    pub fn feed(&mut self, input: &[u8]) -> Result<(usize, Next), BadStream> {
        if self.phase == Phase::Complete {
            self.begin();
        }
        let mut rest = input;
        loop {
            if let Some(next) = self.next_without_bytes() {
                return Ok((input.len() - rest.len(), next));
            }
            let Some(&first) = rest.first() else {
                return Ok((input.len(), Next::More));
            };
            let taken = match self.fragment_bytes {
                0 => self.mark_byte(first)?,
                _ => self.fragment_part(rest),
            };
            rest = &rest[taken..];
        }
    }

    /// So many bytes of the payload were received, at most as [`Next::Payload`] has told. Returns what follows: the record may be
    /// complete with them.
    pub fn took_payload(&mut self, len_bytes: u32) -> Next {
        if let Phase::Payload(left_bytes) = self.phase {
            let taken = len_bytes.min(left_bytes).min(self.fragment_bytes);
            self.fragment_bytes -= taken;
            self.phase = match left_bytes - taken {
                0 => Phase::Rest,
                left_bytes => Phase::Payload(left_bytes),
            };
        }
        self.next_without_bytes().unwrap_or(Next::More)
    }

    /// The record as far as it has come: after [`Next::Payload`] its head, after [`Next::Record`] all of it.
    pub fn record(&self) -> Record<'_> {
        Record {
            head: &self.head,
            cut: self.cut,
        }
    }

    /// Whether the stream stands between two records, so that its end loses nothing.
    pub fn is_between(&self) -> bool {
        let untouched = self.fragments == 0 && self.mark_bytes == 0;
        self.phase == Phase::Complete || untouched
    }

    fn begin(&mut self) {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        *self = Incoming {
            head,
            ..Incoming::new(self.find)
        };
    }

    /// What is known to follow without further bytes.
    fn next_without_bytes(&mut self) -> Option<Next> {
        match (self.fragment_bytes, self.phase) {
            (0, phase) if self.is_last => {
                self.cut |= matches!(phase, Phase::Payload(_));
                self.phase = Phase::Complete;
                Some(Next::Record)
            }
            (here_bytes @ 1.., Phase::Payload(left_bytes)) => Some(Next::Payload {
                len_bytes: left_bytes.min(here_bytes),
            }),
            _ => None,
        }
    }

    /// Takes a byte of a mark.
    fn mark_byte(&mut self, byte: u8) -> Result<usize, BadStream> {
        self.mark = self.mark << 8 | u32::from(byte);
        self.mark_bytes += 1;
        if self.mark_bytes < 4 {
            return Ok(1);
        }
        self.fragment_bytes = self.mark & !LAST;
        self.is_last = self.mark & LAST != 0;
        (self.mark, self.mark_bytes) = (0, 0);
        self.fragments += 1;
        if self.fragments > RPC_FRAGMENTS_MAX {
            return Err(BadStream::Fragments);
        }
        // Both are below 2^31.
        self.record_bytes += self.fragment_bytes;
        if self.record_bytes > RPC_RECORD_BYTES_MAX {
            return Err(BadStream::Long);
        }
        Ok(1)
    }

    /// Takes bytes of a fragment that are no payload: how many.
    fn fragment_part(&mut self, input: &[u8]) -> usize {
        let len = input.len().min(self.fragment_bytes as usize);
        let taken = match self.phase {
            Phase::Search | Phase::Head => self.head_part(&input[..len]),
            _ => len,
        };
        // At most the fragment's bytes.
        self.fragment_bytes -= taken as u32;
        taken
    }

    fn head_part(&mut self, input: &[u8]) -> usize {
        let before = self.head.len();
        let mut taken = input.len().min(RPC_HEAD_BYTES_MAX - before);
        if self.phase == Phase::Search {
            taken = taken.min(SEARCH_BYTES);
        }
        self.head.extend(&input[..taken]);
        if self.phase == Phase::Search {
            match (self.find)(&self.head) {
                Split::More => {}
                Split::Without => self.phase = Phase::Head,
                Split::At {
                    offset_bytes,
                    len_bytes,
                } => {
                    let end = offset_bytes.clamp(before, self.head.len());
                    self.head.truncate(end);
                    taken = end - before;
                    self.payload_begins(taken, len_bytes);
                    return taken;
                }
            }
        }
        if self.head.len() == RPC_HEAD_BYTES_MAX {
            self.phase = Phase::Rest;
        }
        taken
    }

    /// The payload lies so many bytes further in this fragment.
    fn payload_begins(&mut self, after_bytes: usize, len_bytes: u32) {
        let left_bytes = self.fragment_bytes as usize - after_bytes;
        self.cut =
            len_bytes > RPC_PAYLOAD_BYTES_MAX || self.is_last && len_bytes as usize > left_bytes;
        self.phase = match len_bytes {
            1.. if !self.cut => Phase::Payload(len_bytes),
            _ => Phase::Rest,
        };
    }
}
