//! Handing bytes to a socket: texts from memory, files from the page cache or from the memory into which they were read.

use std::collections::VecDeque;
use std::io::IoSlice;

use ackpace_core::conn::{Promise, Span, Version};
use ackpace_core::residency::{Confirmation, Means, Reach, means, trusted_bytes};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use rustix::io::Errno;
use smallvec::SmallVec;

use super::source::Source;
use crate::clock::Clock;
use crate::disk::SlotBytes;
use crate::limits::{SLICES_MAX, TEXTS_MAX};
use crate::store::file::Holds;
use crate::store::residency;
use crate::transport::{PlainBytes, Transport};

/// What came of an attempt to send.
pub(super) enum Sent {
    Taken {
        taken_bytes: u64,
        blocked: bool,
    },
    /// The file is not what was promised, or can't be read.
    Broken(Why),
    /// The first byte is not in memory, or not yet: sending it would wait for the disk. Or its file is being written in this
    /// moment.
    Missing,
    /// The connection is dead.
    Reset,
}

/// The source of a body, and the version of it that a response promises.
pub(super) struct Promised<'a> {
    pub source: &'a Source,
    pub version: &'a Version,
    pub promise: Promise,
    /// It was found to be that version, while its response was made: in the same turn it is not looked at again.
    pub proven: Option<Confirmation>,
    /// The turn, and its clock.
    pub now: Instant,
    pub clock: Clock,
}

impl Promised<'_> {
    fn checked(&self) -> Holds {
        self.source.holds(self.version, self.promise, self.now)
    }

    fn holds(&self) -> Holds {
        match self.proven {
            Some(look) if self.still(look) => Holds::Yes,
            _ => self.checked(),
        }
    }

    /// Whether what was found in this turn may still be relied on.
    fn still(&self, look: Confirmation) -> bool {
        look.holds(self.now, self.clock.now())
    }
}

/// Bytes of a file that are to be sent from the page cache.
pub(super) struct Cached<'a> {
    pub of: Promised<'a>,
    pub span: Span,
    /// What was found in memory in this turn.
    pub sure: Option<(Confirmation, Span)>,
    /// The kernel says again and again that they are missing, just after they were read: a read that never waits decides.
    pub unconfirmed: bool,
}

/// Send the span of texts that follow each other, several in one call.
pub(super) fn send_texts<'a>(
    transport: &Transport,
    texts: impl Iterator<Item = &'a [u8]>,
    span: Span,
    more: bool,
) -> Sent {
    let mut pieces = [IoSlice::new(&[]); TEXTS_MAX];
    let (mut skip, mut left) = (span.offset_bytes as usize, span.len_bytes as usize);
    let (mut count, mut offered) = (0, 0);
    for text in texts {
        if count == TEXTS_MAX || left == 0 {
            break;
        }
        let behind = skip.min(text.len());
        skip -= behind;
        let text = &text[behind..];
        let text = &text[..text.len().min(left)];
        pieces[count] = IoSlice::new(text);
        count += usize::from(!text.is_empty());
        (offered, left) = (offered + text.len(), left - text.len());
    }
    let more = more || left > 0;
    match transport.send_texts(&pieces[..count], more) {
        Ok(taken) => Sent::Taken {
            taken_bytes: taken.0,
            blocked: taken.0 < offered as u64,
        },
        Err(error) => send_error(error),
    }
}

/// Send what is in memory now, by the means that suits; `reach` learns how much the socket takes, `copied` is a buffer.
pub(super) fn send_cached(
    transport: &Transport,
    cached: &Cached,
    reach: &mut Reach,
    copied: &mut [u8],
) -> Sent {
    let Cached { of, span, .. } = cached;
    let now = of.now;
    let sure = cached.sure.filter(|(look, _)| of.still(*look));
    let sure_bytes = trusted_bytes(*span, sure.map(|(_, sure)| sure), cached.unconfirmed);
    let resident_bytes = resident_bytes(of.source, *span, sure_bytes);
    if resident_bytes < span.len_bytes {
        residency::missed(now);
    }
    let here = Span {
        len_bytes: resident_bytes,
        ..*span
    };
    let in_doubt = residency::in_doubt(now) && !of.source.stays_resident(here);
    if means(cached.unconfirmed, in_doubt) == Means::Copy {
        let sent = send_copied(transport, of.source, || of.checked(), here, copied, now);
        if let Some(sent) = sent {
            return sent;
        }
    }
    if here.len_bytes == 0 {
        return Sent::Missing;
    }
    let sent = send_body(transport, of.source, || of.holds(), here);
    if let Sent::Taken {
        taken_bytes,
        blocked,
    } = sent
    {
        reach.took(taken_bytes, blocked);
    }
    sent
}

/// How many bytes of the span are in memory now, if the first `sure_bytes` are.
fn resident_bytes(source: &Source, span: Span, sure_bytes: u64) -> u64 {
    let sure_bytes = sure_bytes.min(span.len_bytes);
    let rest = Span {
        offset_bytes: span.offset_bytes + sure_bytes,
        len_bytes: span.len_bytes - sure_bytes,
    };
    if rest.len_bytes == 0 {
        return sure_bytes;
    }
    let told = source.resident_bytes(rest);
    sure_bytes + told.unwrap_or(rest.len_bytes).min(rest.len_bytes)
}

/// Send a piece of the file by way of our own memory: sendfile(2) would wait for the disk if somebody dropped it in this moment.
/// `None` where the file system can't do that without waiting.
fn send_copied(
    transport: &Transport,
    source: &Source,
    holds: impl Fn() -> Holds,
    span: Span,
    copied: &mut [u8],
    now: Instant,
) -> Option<Sent> {
    if span.len_bytes == 0 {
        return Some(Sent::Missing);
    }
    let (mut taken_bytes, mut blocked) = (0, false);
    while taken_bytes < span.len_bytes && !blocked {
        let left_bytes = span.len_bytes - taken_bytes;
        let most = copied
            .len()
            .min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
        let read = source.read_resident(span.offset_bytes + taken_bytes, &mut copied[..most]);
        if read == Err(Errno::AGAIN) {
            residency::missed(now);
        }
        let read = match read {
            Ok(read) if read > 0 => read,
            _ if taken_bytes > 0 => break, // the next order tells why
            Ok(_) => return Some(Sent::Broken(Why::FileChanged)),
            Err(Errno::OPNOTSUPP) => return None,
            Err(Errno::IO) => return Some(Sent::Broken(Why::ReadFailed)),
            Err(_) => return Some(Sent::Missing),
        };
        match holds() {
            Holds::Yes => {}
            Holds::NotYet if taken_bytes > 0 => break, // the next order asks again
            Holds::NotYet => return Some(Sent::Missing),
            Holds::No => return Some(Sent::Broken(Why::FileChanged)),
        }
        match transport.send_texts(&[IoSlice::new(&copied[..read])], false) {
            Ok(taken) => {
                taken_bytes += taken.0;
                blocked = taken.0 < read as u64;
            }
            Err(error) if taken_bytes == 0 => return Some(send_error(error)),
            Err(_) => blocked = true, // it says so again
        }
    }
    Some(Sent::Taken {
        taken_bytes,
        blocked,
    })
}

/// Send a piece of the file, if the file is still what was promised. A file that is truncated just
/// behind that look ends the piece early, as a full socket does; the next look tells them apart.
fn send_body(
    transport: &Transport,
    source: &Source,
    holds: impl Fn() -> Holds,
    span: Span,
) -> Sent {
    match holds() {
        Holds::Yes => {}
        Holds::NotYet => return Sent::Missing,
        Holds::No => return Sent::Broken(Why::FileChanged),
    }
    match source.send_to(transport, span) {
        Ok(PlainBytes(0)) => Sent::Broken(Why::FileChanged),
        Ok(taken) => Sent::Taken {
            taken_bytes: taken.0,
            blocked: taken.0 < span.len_bytes,
        },
        Err(error) => send_error(error),
    }
}

/// As [`send_body`], from the memory into which the piece was read; what is sent of that goes back at once.
pub(super) fn send_pieces(
    transport: &Transport,
    pieces: &mut VecDeque<SlotBytes>,
    of: &Promised,
    span: Span,
) -> Sent {
    if pieces.iter().any(|piece| !piece.proven) {
        match of.checked() {
            Holds::Yes => {}
            Holds::NotYet => return Sent::Missing,
            Holds::No => return Sent::Broken(Why::FileChanged),
        }
    }
    // All of them were read before this look.
    pieces.iter_mut().for_each(|piece| piece.proven = true);
    let mut slices = SmallVec::<[IoSlice; 8]>::new();
    let (mut at_bytes, mut offered) = (span.offset_bytes, 0);
    for piece in &*pieces {
        let here = piece.span.contains(at_bytes) && piece.from_bytes <= at_bytes;
        if !here || !piece.lease.has(at_bytes - piece.from_bytes) || slices.len() >= SLICES_MAX {
            continue;
        }
        let len_bytes = piece.span.end_bytes().min(span.end_bytes()) - at_bytes;
        let room = SLICES_MAX - slices.len();
        let lent = piece.lease.slices(at_bytes - piece.from_bytes, len_bytes);
        for slice in lent.into_iter().take(room) {
            offered += slice.len();
            at_bytes += slice.len() as u64;
            slices.push(slice);
        }
        if at_bytes >= span.end_bytes() {
            break;
        }
    }
    if slices.is_empty() {
        return Sent::Broken(Why::ReadFailed);
    }
    let sent = transport.send_texts(&slices, false);
    drop(slices);
    match sent {
        Ok(taken) => {
            release_until(pieces, span.offset_bytes + taken.0);
            Sent::Taken {
                taken_bytes: taken.0,
                blocked: taken.0 < offered as u64,
            }
        }
        Err(error) => send_error(error),
    }
}

/// Gives back the memory of a file's bytes before `until_bytes`. Nothing else frees what was sent. The kernel has copied
/// what it took, so that is where slots end; memory that it only refers to would end where the client has acknowledged it
/// ([`Held`](ackpace_core::conn::Held)).
fn release_until(pieces: &mut VecDeque<SlotBytes>, until_bytes: u64) {
    while let Some(piece) = pieces.front_mut() {
        if until_bytes < piece.span.end_bytes() {
            let sent_bytes = until_bytes.saturating_sub(piece.from_bytes);
            piece.lease.release_front(sent_bytes);
            break;
        }
        pieces.pop_front();
    }
}

fn send_error(error: Errno) -> Sent {
    match error {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Sent::Taken {
            taken_bytes: 0,
            blocked: true,
        },
        Errno::IO => Sent::Broken(Why::ReadFailed),
        _ => Sent::Reset,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use ackpace_core::conn::{ObjectId, ResidencySource};
    use ackpace_core::limits::SLOT_BYTES;
    use rustix::fs::{Advice, fadvise, fstat};

    use super::*;
    use crate::mailbox::ThreadWaker;
    use crate::store::closing::Descriptor;
    use crate::store::file::File;
    use crate::store::pool::Pool;

    const LEN: u64 = 256 << 10;
    const NOW: Instant = Instant { us: 5_000_000 };

    /// What becomes of these bytes, and what arrives of them.
    fn copied(source: &Source, span: Span) -> (Option<Sent>, Vec<u8>) {
        let (socket, mut client) = UnixStream::pair().expect("two descriptors");
        socket.set_nonblocking(true).expect("a socket");
        let transport = Transport::Plain(socket.into());
        let mut room = vec![0; 16 << 10];
        let sent = send_copied(&transport, source, || Holds::Yes, span, &mut room, NOW);
        drop(transport);
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("what was sent");
        (sent, came)
    }

    #[test]
    fn memory_comes_back_slot_by_slot_whatever_says_how_far() {
        let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
        let pool = Arc::new(Pool::new(8, waker).expect("address space"));
        let lent = |from_slot: u64, slots: u32| SlotBytes {
            lease: pool.lease(slots).expect("free"),
            from_bytes: from_slot * SLOT_BYTES,
            span: Span {
                offset_bytes: from_slot * SLOT_BYTES,
                len_bytes: u64::from(slots) * SLOT_BYTES,
            },
            proven: true,
        };
        let free = pool.free_slots();
        let mut pieces = VecDeque::from([lent(10, 3), lent(13, 5)]);
        // How far the client has acknowledged is far behind what the kernel took, and may stand still or jump.
        for (until_bytes, held) in [
            (0, 8),
            (10 * SLOT_BYTES, 8),
            (11 * SLOT_BYTES - 1, 8),
            (11 * SLOT_BYTES, 7),
            (11 * SLOT_BYTES, 7),
            (13 * SLOT_BYTES, 5),
            (17 * SLOT_BYTES + 1, 1),
            (18 * SLOT_BYTES, 0),
            (u64::MAX, 0),
        ] {
            release_until(&mut pieces, until_bytes);
            assert_eq!(free - pool.free_slots(), held, "until {until_bytes}");
        }
        assert!(pieces.is_empty());
    }

    #[test]
    fn what_is_copied_is_never_waited_for_and_what_is_missing_is_told() {
        let path = std::env::temp_dir().join(format!("ackpace-copied-{}", std::process::id()));
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096) as u8).collect();
        std::fs::write(&path, &bytes).expect("room for a file");
        let fd = std::fs::File::open(&path).expect("our own file");
        std::fs::remove_file(&path).expect("our own file");
        fd.sync_all().expect("our own file");
        let stat = fstat(&fd).expect("an open file");
        let id = ObjectId {
            device: 0,
            index: 0,
            generation: 0,
        };
        let fd = Descriptor::new(OwnedFd::from(fd), stat.st_dev);
        let file = Arc::new(File::new(fd, id, ResidencySource::Ask, b"a", stat.st_dev));
        let source = Source::File(Arc::clone(&file));
        let drop_from = |offset_bytes: u64| {
            fadvise(&file.fd, offset_bytes, None, Advice::Random).expect("an open file");
            fadvise(&file.fd, offset_bytes, None, Advice::DontNeed).expect("an open file");
        };
        let span = |offset_bytes, len_bytes| Span {
            offset_bytes,
            len_bytes,
        };
        let (sent, came) = copied(&source, span(0, 40_000));
        assert!(matches!(
            sent,
            Some(Sent::Taken {
                taken_bytes: 40_000,
                blocked: false
            })
        ));
        assert!(came == bytes[..40_000], "other bytes");
        drop_from(64 << 10);
        if file.resident_bytes(span(128 << 10, 1)) != Some(0) {
            return; // a file system in memory: nothing can be missing
        }
        let (sent, came) = copied(&source, span(0, 100_000));
        assert!(matches!(
            sent,
            Some(Sent::Taken {
                taken_bytes: 65_536,
                blocked: false
            })
        ));
        assert!(came == bytes[..64 << 10], "other bytes");
        assert!(
            residency::in_doubt(NOW),
            "a page is missing that was thought to be there"
        );
        drop_from(128 << 10);
        let (sent, came) = copied(&source, span(200 << 10, 4096));
        assert!(matches!(sent, Some(Sent::Missing)) && came.is_empty());
    }
}
