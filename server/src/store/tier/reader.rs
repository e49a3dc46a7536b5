//! A thread that reads files of the tier into memory of the pool or the slab.

use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use ackpace_core::conn::Span;
use ackpace_core::limits::WINDOW_BYTES;
use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use smallvec::SmallVec;

use super::{TierDone, TierRead, Troubles, Window, count, page};
use crate::store::pool::Lease;
use crate::store::slab::SlabLease;

/// Bytes whose checksum is computed at once: a piece that fits in the processor's cache.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Memory to read into.
#[derive(Debug)]
pub enum Room {
    /// For one client.
    Slots(Lease),
    /// For all.
    Slab(SlabLease),
}

impl Room {
    fn iovecs(&mut self, from_bytes: u64, len_bytes: u64) -> SmallVec<[IoSliceMut<'_>; 4]> {
        match self {
            Room::Slots(lease) => lease.iovecs(from_bytes, len_bytes),
            Room::Slab(lease) => lease.iovecs(from_bytes, len_bytes),
        }
    }
}

/// Why a file did not bring its bytes.
enum Miss {
    /// It is not there.
    Gone,
    /// It is not what it should be.
    Damaged(&'static str),
    /// It can't be read.
    Unreadable(Errno),
    /// It can't be opened now.
    Unopened(Errno),
}

pub(super) struct TierReader {
    troubles: Troubles,
    piece: Box<[u8]>,
}

impl TierReader {
    pub fn new(troubles: Troubles) -> TierReader {
        TierReader {
            troubles,
            piece: vec![0; PIECE_BYTES].into(),
        }
    }

    /// Reads on from window to window, until one is not there.
    pub fn perform(&mut self, read: TierRead) -> TierDone {
        let TierRead {
            read,
            mut window,
            span,
            mut room,
        } = read;
        let mut got_bytes = 0;
        while got_bytes < span.len_bytes {
            let rest = span.behind(got_bytes);
            window.number = rest.offset_bytes / WINDOW_BYTES;
            let inside_bytes = window.span().end_bytes().saturating_sub(rest.offset_bytes);
            let here = Span {
                len_bytes: rest.len_bytes.min(inside_bytes),
                ..rest
            };
            if here.len_bytes == 0 {
                break;
            }
            match self.read_window(&window, here, &mut room.iovecs(got_bytes, here.len_bytes)) {
                Ok(()) => got_bytes += here.len_bytes,
                Err(miss) => {
                    self.missed(&window, miss);
                    break;
                }
            }
        }
        let tally = &self.troubles.tier.tally;
        count(&tally.reads, u64::from(got_bytes > 0));
        count(&tally.read_bytes, got_bytes);
        TierDone {
            read,
            room,
            got_bytes,
        }
    }

    /// Reads a part of a window.
    fn read_window(
        &mut self,
        window: &Window,
        part: Span,
        into: &mut [IoSliceMut<'_>],
    ) -> Result<(), Miss> {
        let (tier, name) = (&self.troubles.tier, window.name());
        let is_checked = tier.index().read(name).ok_or(Miss::Gone)?;
        let file = tier.folder.read(name).map_err(|error| match error {
            Errno::NOENT => Miss::Gone,
            error => Miss::Unopened(error),
        })?;
        let all = window.span();
        let skipped_bytes = part.offset_bytes - all.offset_bytes;
        let needed_bytes = match is_checked {
            true => skipped_bytes + part.len_bytes,
            false => all.len_bytes,
        };
        // Of a file system that has no readahead, a hint is refused.
        let ahead_bytes = NonZeroU64::new(page::LEN as u64 + needed_bytes);
        let _ = fadvise(&file, 0, ahead_bytes, Advice::WillNeed);
        let mut first = [0; page::LEN];
        read_at(&file, &mut [IoSliceMut::new(&mut first)], 0)?;
        let told = page::checksum(&first, window);
        let told = told.ok_or(Miss::Damaged("its first page is of something else"))?;
        if !is_checked {
            if self.checksum(&file, all.len_bytes)? != told {
                return Err(Miss::Damaged("its checksum is another one"));
            }
            self.troubles.tier.index().checked(name);
        }
        read_at(&file, into, page::LEN as u64 + skipped_bytes)
    }

    /// The checksum of so many bytes behind the first page.
    fn checksum(&mut self, file: &OwnedFd, len_bytes: u64) -> Result<u32, Miss> {
        let (mut hasher, mut at_bytes) = (crc32fast::Hasher::new(), 0);
        while at_bytes < len_bytes {
            let len = (len_bytes - at_bytes).min(PIECE_BYTES as u64);
            let piece = &mut self.piece[..len as usize];
            let from_bytes = page::LEN as u64 + at_bytes;
            read_at(file, &mut [IoSliceMut::new(piece)], from_bytes)?;
            hasher.update(piece);
            at_bytes += len;
        }
        Ok(hasher.finalize())
    }

    /// What is of no use goes; the origin has it.
    fn missed(&self, window: &Window, miss: Miss) {
        let (tier, name) = (&self.troubles.tier, window.name());
        match miss {
            Miss::Gone => tier.index().remove(name),
            Miss::Damaged(why) => {
                count(&tier.tally.damaged, 1);
                tier.discard(name);
                self.troubles
                    .tell(format_args!("a file is damaged ({why}) and removed"));
            }
            Miss::Unreadable(error) => {
                count(&tier.tally.errors, 1);
                tier.discard(name);
                self.troubles.tell(format_args!(
                    "{error} in a file, which is removed; the origin is asked"
                ));
            }
            Miss::Unopened(error) => {
                count(&tier.tally.errors, 1);
                self.troubles
                    .tell(format_args!("{error} for a file; the origin is asked"));
            }
        }
    }
}

/// Fills all of `into`.
fn read_at(file: &OwnedFd, mut into: &mut [IoSliceMut<'_>], mut at_bytes: u64) -> Result<(), Miss> {
    while into.iter().any(|slice| !slice.is_empty()) {
        match rustix::io::preadv(file, into, at_bytes) {
            Ok(0) => return Err(Miss::Damaged("it is too short")),
            Ok(read) => {
                IoSliceMut::advance_slices(&mut into, read);
                at_bytes += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(Miss::Unreadable(error)),
        }
    }
    Ok(())
}
