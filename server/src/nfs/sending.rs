//! Sends replies: their heads by send(2), payload by sendfile(2) from the page cache or the slab behind that, then what pads it.
//!
//! The payload of a file by its blocks is held from the first byte of its reply on: it is the file's at that time (`unit/blocks.rs`),
//! and nothing that happens later can cut it short.

use std::io::IoSlice;

use ackpace_core::conn::{Promise, Span};
use ackpace_core::residency::{Means, means};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use smallvec::SmallVec;

use super::hands::Hands;
use crate::nfs_tally::Path;
use crate::source::Source;
use crate::store::slab::Pinned;
use crate::transport::Transport;
use crate::worker::pins::Pins;
use crate::worker::sending::{
    COPIED_BYTES_MAX, Promised, Sent, send_cached, send_error, send_held, send_slab,
};

/// A reply that is ready to leave, or to be read for.
pub struct Reply {
    /// All of it, or what stands before the payload.
    pub head: Vec<u8>,
    pub payload: Option<Payload>,
}

/// The payload of a READ.
pub struct Payload {
    pub source: Source,
    pub span: Span,
    /// Zero bytes behind it, at most 3.
    pub pad_bytes: u32,
    /// The length that the file was said to have.
    pub file_len_bytes: u64,
    /// All of it, if it comes from the unit and has begun to leave.
    held: Vec<Pinned>,
    /// How often bytes from the unit were not there any more when it was to leave.
    missed: u8,
}

/// How often the bytes of a reply are fetched anew from the unit because others wrote nearby. More: they come through the mount.
const MISSES_MAX: u8 = 3;

/// What came of an order to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// The socket took so many bytes. `full`: it takes no more.
    Taken { taken_bytes: u64, full: bool },
    /// The next byte is a file's, and not in memory.
    Missing,
    /// The next byte is a file's, and can't be sent.
    Broken(Why),
    /// The connection is dead.
    Reset,
}

/// What came of one piece of a reply.
enum Piece {
    All,
    /// A part, perhaps nothing.
    Some(u64),
    Not(Left),
}

impl Reply {
    /// Sends what is left of the reply from this byte on, piece by piece, until the socket takes no more.
    pub fn send(
        &mut self,
        from_bytes: u64,
        (transport, pins): (&Transport, &mut Pins),
        hands: &mut Hands,
        now: Instant,
    ) -> Left {
        let payload = self.payload.as_mut().filter(|_| from_bytes == 0);
        if let Some(left) = payload.and_then(Payload::hold) {
            return left;
        }
        let mut at_bytes = from_bytes;
        loop {
            let (piece, len_bytes) = self.piece(at_bytes, (transport, &mut *pins), hands, now);
            let taken_bytes = |at_bytes: u64| at_bytes - from_bytes;
            match piece {
                Piece::All => at_bytes += len_bytes,
                Piece::Some(some_bytes) => {
                    // A part of a file is no proof that the socket is full: the next order finds out, and arms EPOLLOUT.
                    return Left::Taken {
                        taken_bytes: taken_bytes(at_bytes) + some_bytes,
                        full: some_bytes == 0,
                    };
                }
                Piece::Not(_) if at_bytes > from_bytes => {
                    return Left::Taken {
                        taken_bytes: taken_bytes(at_bytes),
                        full: false, // the next order meets it again
                    };
                }
                Piece::Not(left) => return left,
            }
            if at_bytes >= self.len_bytes() {
                return Left::Taken {
                    taken_bytes: taken_bytes(at_bytes),
                    full: false,
                };
            }
        }
    }

    /// Bytes of the whole reply.
    pub fn len_bytes(&self) -> u64 {
        let behind = self.payload.as_ref();
        let behind = behind.map_or(0, |it| it.span.len_bytes + u64::from(it.pad_bytes));
        self.head.len() as u64 + behind
    }

    /// Sends one piece, which is so long.
    fn piece(
        &self,
        at_bytes: u64,
        (transport, pins): (&Transport, &mut Pins),
        hands: &mut Hands,
        now: Instant,
    ) -> (Piece, u64) {
        if let Some(payload) = self.payload.as_ref().filter(|it| it.is_copied()) {
            return self.all_at_once(payload, at_bytes, transport, hands);
        }
        let in_head = usize::try_from(at_bytes).unwrap_or(usize::MAX);
        if let Some(rest) = self.head.get(in_head..).filter(|rest| !rest.is_empty()) {
            let more = self.payload.is_some();
            return (text(transport, rest, more, hands), rest.len() as u64);
        }
        let Some(payload) = &self.payload else {
            return (Piece::All, 0);
        };
        let in_payload = at_bytes - self.head.len() as u64;
        let rest = payload.span.behind(in_payload);
        if rest.len_bytes > 0 {
            let sent = payload.send(rest, (transport, pins), hands, now);
            return (sent, rest.len_bytes);
        }
        let pad_bytes = u64::from(payload.pad_bytes) - (in_payload - payload.span.len_bytes);
        let pad = &[0; 3][..(pad_bytes as usize).min(3)];
        (text(transport, pad, false, hands), pad_bytes)
    }

    /// Sends all that is left by one call.
    fn all_at_once(
        &self,
        payload: &Payload,
        at_bytes: u64,
        transport: &Transport,
        hands: &Hands,
    ) -> (Piece, u64) {
        let pad = &[0; 3][..(payload.pad_bytes as usize).min(3)];
        let held = payload.held.iter().map(Pinned::bytes);
        let mut skip = usize::try_from(at_bytes).unwrap_or(usize::MAX);
        let mut slices: SmallVec<[IoSlice<'_>; 4]> = SmallVec::new();
        for part in [&*self.head].into_iter().chain(held).chain([pad]) {
            let skipped = skip.min(part.len());
            skip -= skipped;
            if skipped < part.len() {
                slices.push(IoSlice::new(&part[skipped..]));
            }
        }
        let left_bytes = self.len_bytes() - at_bytes;
        let sent = match transport.send_slices(&slices, false) {
            Ok(taken_bytes) => {
                let of_head_bytes = (self.head.len() as u64).saturating_sub(at_bytes);
                let made_bytes = taken_bytes.min(of_head_bytes);
                let sent_bytes = &hands.tally.sent_bytes;
                sent_bytes[Path::Made as usize].add(made_bytes);
                sent_bytes[Path::Slab as usize].add(taken_bytes - made_bytes);
                taken_of(taken_bytes, left_bytes)
            }
            Err(error) => of_sent(send_error(error), left_bytes),
        };
        (sent, left_bytes)
    }
}

/// Sends bytes of our own memory.
fn text(transport: &Transport, bytes: &[u8], more: bool, hands: &Hands) -> Piece {
    match transport.send_slices(&[IoSlice::new(bytes)], more) {
        Ok(taken) => {
            hands.tally.sent_bytes[Path::Made as usize].add(taken);
            taken_of(taken, bytes.len() as u64)
        }
        Err(error) => of_sent(send_error(error), bytes.len() as u64),
    }
}

fn taken_of(taken_bytes: u64, len_bytes: u64) -> Piece {
    match taken_bytes {
        all if all == len_bytes => Piece::All,
        some => Piece::Some(some),
    }
}

fn of_sent(sent: Sent, len_bytes: u64) -> Piece {
    match sent {
        Sent::Taken { taken_bytes, .. } => taken_of(taken_bytes, len_bytes),
        Sent::Missing => Piece::Not(Left::Missing),
        Sent::Broken(why) => Piece::Not(Left::Broken(why)),
        Sent::Reset => Piece::Not(Left::Reset),
    }
}

impl Payload {
    pub fn new(source: Source, span: Span, pad_bytes: u32, file_len_bytes: u64) -> Payload {
        Payload {
            source,
            span,
            pad_bytes,
            file_len_bytes,
            held: Vec::new(),
            missed: 0,
        }
    }

    /// Whether it is held, and so short that a copy costs less than sendfile(2).
    fn is_copied(&self) -> bool {
        !self.held.is_empty() && self.span.len_bytes <= COPIED_BYTES_MAX
    }

    /// Holds all of it, before the first byte of its reply leaves. What it returns keeps the reply from leaving.
    fn hold(&mut self) -> Option<Left> {
        let Source::Blocks(blocks) = &self.source else {
            return None;
        };
        if !self.held.is_empty() {
            return None; // the socket took nothing the last time
        }
        let held = blocks.hold(self.span);
        if !blocks.is_current() {
            return Some(Left::Broken(Why::FileChanged));
        }
        match held {
            Some(held) => {
                self.held = held;
                None
            }
            None if self.missed >= MISSES_MAX => Some(Left::Broken(Why::FileChanged)),
            None => {
                self.missed += 1;
                Some(Left::Missing)
            }
        }
    }

    /// Sends what is left of it. The file may change meanwhile, as it may between two READs: nothing else is promised.
    fn send(
        &self,
        rest: Span,
        (transport, pins): (&Transport, &mut Pins),
        hands: &mut Hands,
        now: Instant,
    ) -> Piece {
        let (sent, path) = match &self.source {
            Source::File(file) => {
                let promised = Promised {
                    version: None,
                    promise: Promise::Prefix,
                    now,
                    clock: hands.shared.clock,
                };
                let path = match means(file.residency, file.wait()) {
                    Means::Copy => Path::Copied,
                    Means::Sendfile => Path::Sendfile,
                };
                let sent = send_cached(transport, (file, &promised), rest, &mut hands.copied);
                (sent, path)
            }
            Source::Object(object) => (send_slab(transport, object, rest, pins), Path::Slab),
            Source::Blocks(blocks) => {
                let from_bytes = rest.offset_bytes - self.span.offset_bytes;
                let slab = &blocks.unit.slab;
                let sent = send_held(transport, (slab, &self.held), from_bytes, pins);
                (sent, Path::Slab)
            }
        };
        if let Sent::Taken { taken_bytes, .. } = sent {
            hands.tally.sent_bytes[path as usize].add(taken_bytes);
        }
        of_sent(sent, rest.len_bytes)
    }
}
