//! Sends from the page cache: by sendfile(2), or, where that might wait for the disk, by a non-blocking copy through
//! our own memory.
//!
//! An order names bytes that the machine believes to be in memory. Before sendfile(2), the kernel is asked about them:
//! by mincore(2), cachestat(2) or a sample ([`ackpace_core::residency`]). A page that turns out to be missing puts the
//! page cache in doubt ([`residency::missed`]). For a while, orders of all files are copied, unless their pages can't
//! go.

use std::io::IoSlice;

use ackpace_core::conn::Span;
use ackpace_core::residency::limits::QUESTIONS_MAX;
use ackpace_core::residency::{
    Confirmation, Means, Reach, has_waited, means, piece, trusted_bytes,
};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use rustix::io::Errno;

use super::{Promised, Sent, Source, send_error};
use crate::store::file::Holds;
use crate::store::residency;
use crate::transport::{PlainBytes, Transport};

/// An order: bytes of a file that are to be sent from the page cache.
pub(super) struct Cached<'a> {
    pub promised: Promised<'a>,
    pub span: Span,
    /// What the kernel found in memory earlier in this turn, and when. While that answer holds, it is not asked again.
    pub sure: Option<(Confirmation, Span)>,
    /// The kernel says again and again that they are missing, just after they were read. So it is not asked: they are
    /// copied, and the copy shows what is there.
    pub unconfirmed: bool,
}

/// Sends what is in memory now, by sendfile(2) or by a copy through the buffer `copied`. `reach` learns what the socket
/// took by sendfile(2), and so how far the next question should go.
pub(super) fn send_cached(
    transport: &Transport,
    cached: &Cached,
    reach: &mut Reach,
    copied: &mut [u8],
) -> Sent {
    let Cached { promised, span, .. } = cached;
    let now = promised.now;
    let sure = cached.sure.filter(|(found, _)| promised.still(*found));
    let sure_bytes = trusted_bytes(*span, sure.map(|(_, sure)| sure), cached.unconfirmed);
    let asked = match sure {
        Some((found, _)) if sure_bytes >= span.len_bytes => found,
        _ => promised.asked_now(),
    };
    let resident_bytes = resident_bytes(promised.source, *span, sure_bytes);
    if resident_bytes < span.len_bytes {
        residency::missed(now);
    }
    let here = Span {
        len_bytes: resident_bytes,
        ..*span
    };
    let in_doubt = residency::in_doubt(now) && !promised.source.stays_resident(here);
    if means(cached.unconfirmed, in_doubt) == Means::Copy {
        let holds = || promised.checked();
        let sent = send_copied(transport, promised.source, holds, here, copied, now);
        if let Some(sent) = sent {
            return sent;
        }
    }
    if here.len_bytes == 0 {
        return Sent::Missing;
    }
    let sent = send_in_pieces(transport, promised, here, asked);
    if let Sent::Taken {
        taken_bytes,
        blocked,
    } = sent
    {
        reach.took(taken_bytes, blocked);
    }
    sent
}

/// Sends bytes that were found in memory when `asked`. One long call would reach its last pages long after the kernel
/// was asked about them. So it sends in pieces, and asks again before each one but the first. Proven bytes
/// ([`Source::is_proven`]) go in one piece without a question: their pages are in our page tables, or never leave
/// memory. After a miss it stops, and the next order copies the rest.
///
/// When the socket has taken something no error is returned, since that has to be counted: the next order meets the
/// error again. A file that is truncated meanwhile ends its piece early, as a full socket does; the next order shows
/// which of the two it was.
fn send_in_pieces(
    transport: &Transport,
    promised: &Promised,
    span: Span,
    asked: Confirmation,
) -> Sent {
    match promised.holds() {
        Holds::Yes => {}
        Holds::NotYet => return Sent::Missing, // the file is being written: the next order asks again
        Holds::No => return Sent::Broken(Why::FileChanged),
    }
    let mut taken_bytes = 0;
    while taken_bytes < span.len_bytes {
        let rest = span.behind(taken_bytes);
        let proven = promised.source.is_proven(rest);
        let piece = piece(rest, proven);
        let asked = (taken_bytes == 0).then_some(asked);
        if !proven && !is_confirmed(promised, piece, asked) {
            residency::missed(promised.now);
            if taken_bytes == 0 {
                return Sent::Missing;
            }
        }
        if taken_bytes > 0 && residency::in_doubt(promised.now) {
            break; // the next order copies
        }
        match send_piece(transport, promised, piece) {
            Sent::Taken {
                taken_bytes: more_bytes,
                blocked,
            } => {
                taken_bytes += more_bytes;
                if blocked {
                    return Sent::Taken {
                        taken_bytes,
                        blocked,
                    };
                }
            }
            sent if taken_bytes == 0 => return sent,
            _ => break, // the next order meets the error again
        }
    }
    Sent::Taken {
        taken_bytes,
        blocked: false,
    }
}

/// Whether the kernel says that the piece is in memory, by an answer that still holds. `asked`: when it last answered;
/// `None`: it was not asked yet. A worker that loses its core after an answer asks again, at most [`QUESTIONS_MAX`]
/// times. Then it trusts the last answer, or it would never send.
fn is_confirmed(promised: &Promised, piece: Span, asked: Option<Confirmation>) -> bool {
    let mut asked = asked;
    for _ in 0..QUESTIONS_MAX {
        if asked.is_some_and(|asked| promised.still(asked)) {
            return true;
        }
        asked = Some(promised.asked_now());
        if !promised.source.is_still_resident(piece) {
            return false;
        }
    }
    true
}

/// Sends a piece by one sendfile(2). If that takes long, it has waited for a page that was dropped.
fn send_piece(transport: &Transport, promised: &Promised, piece: Span) -> Sent {
    let began = promised.clock.now();
    let sent = match promised.source.send_to(transport, piece) {
        Ok(PlainBytes(0)) => Sent::Broken(Why::FileChanged),
        Ok(taken) => Sent::Taken {
            taken_bytes: taken.0,
            blocked: taken.0 < piece.len_bytes,
        },
        Err(error) => send_error(error),
    };
    // Where the kernel can't say what is resident, any send may wait, and so would a copy: no reason for doubt.
    let took_us = promised.clock.now().since_us(began);
    if has_waited(took_us) && promised.source.resident_bytes(piece).is_some() {
        residency::missed(promised.now);
    }
    sent
}

/// How many bytes of the span, from its start, are in memory. The first `sure_bytes` are; the kernel is asked about
/// the others, and where it can't say they count as being there.
fn resident_bytes(source: &Source, span: Span, sure_bytes: u64) -> u64 {
    let sure_bytes = sure_bytes.min(span.len_bytes);
    let rest = span.behind(sure_bytes);
    if rest.len_bytes == 0 {
        return sure_bytes;
    }
    let told = source.resident_bytes(rest);
    sure_bytes + told.unwrap_or(rest.len_bytes).min(rest.len_bytes)
}

/// Sends the span by way of the buffer `copied`, with reads that never wait (RWF_NOWAIT): sendfile(2) would wait for
/// the disk if a page were dropped in this moment. `holds` says whether what was read may be sent as the promised
/// version. `None`: the file system has no such reads, and the caller uses sendfile(2).
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
            _ if taken_bytes > 0 => break, // the next order meets the reason again
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
            Err(_) => blocked = true, // the next order meets the error again
        }
    }
    Some(Sent::Taken {
        taken_bytes,
        blocked,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use ackpace_core::conn::{ObjectId, Promise, ResidencySource};
    use ackpace_core::residency::limits::UNPROVEN_SEND_BYTES_MAX;
    use rustix::fs::{Advice, fadvise, fstat};

    use super::*;
    use crate::clock::Clock;
    use crate::store::closing::Descriptor;
    use crate::store::file::File;

    const LEN: u64 = 256 << 10;
    const NOW: Instant = Instant { us: 50_000_000 };

    /// Copies these bytes to a client. Returns what came of it, and what the client got.
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

    /// A file with these bytes, all of them in memory. It has no name any more, so nobody else opens it.
    fn file_of(bytes: &[u8], name: &str) -> Arc<File> {
        let path = std::env::temp_dir().join(format!("ackpace-{name}-{}", std::process::id()));
        std::fs::write(&path, bytes).expect("room for a file");
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
        let place = (stat.st_dev, true);
        Arc::new(File::new(fd, id, ResidencySource::Ask, b"a", place))
    }

    /// Drops all pages from there on, as another program might.
    fn drop_from(file: &File, offset_bytes: u64) {
        fadvise(&file.fd, offset_bytes, None, Advice::Random).expect("an open file");
        fadvise(&file.fd, offset_bytes, None, Advice::DontNeed).expect("an open file");
    }

    fn span(offset_bytes: u64, len_bytes: u64) -> Span {
        Span {
            offset_bytes,
            len_bytes,
        }
    }

    #[test]
    fn what_was_dropped_since_the_question_is_missed_before_its_piece_is_sent() {
        let file = file_of(&vec![7; 4 * UNPROVEN_SEND_BYTES_MAX as usize], "pieces");
        let source = Source::File(Arc::clone(&file));
        let version = file.version().expect("an open file");
        let clock = Clock::start();
        // Far from the times of other tests: a doubt is one of the whole process.
        let now = Instant { us: 1 << 42 };
        let promised = Promised {
            source: &source,
            version: &version,
            promise: Promise::OneVersion,
            proven: None,
            now,
            clock,
        };
        let sent = |all: Span, asked: Confirmation| {
            let path = std::env::temp_dir().join(format!("ackpace-sent-{}", std::process::id()));
            let into = std::fs::File::create(&path).expect("room for a file");
            std::fs::remove_file(&path).expect("our own file");
            match send_in_pieces(&Transport::Plain(into.into()), &promised, all, asked) {
                Sent::Taken {
                    taken_bytes,
                    blocked: false,
                } => Some(taken_bytes),
                Sent::Missing => None,
                _ => panic!("a file takes all"),
            }
        };
        let all = span(0, 4 * UNPROVEN_SEND_BYTES_MAX);
        assert_eq!(sent(all, promised.asked_now()), Some(all.len_bytes));
        drop_from(&file, 2 * UNPROVEN_SEND_BYTES_MAX);
        let behind = span(3 * UNPROVEN_SEND_BYTES_MAX, 1);
        if file.resident_bytes(behind) != Some(0) {
            return; // a file system in memory: nothing can be missing
        }
        let an_earlier_turn = Confirmation::new(Instant { us: 1 }, clock.now());
        assert_eq!(sent(behind, an_earlier_turn), None, "asked again");
        let began = sent(all, promised.asked_now());
        assert_eq!(began, Some(2 * UNPROVEN_SEND_BYTES_MAX));
        let behind = file.resident_bytes(span(2 * UNPROVEN_SEND_BYTES_MAX, 1));
        assert_eq!(behind, Some(0), "it was not read");
    }

    #[test]
    fn only_what_the_kernel_knows_and_keeps_shows_that_others_drop_pages() {
        for (residency, is_here, expected) in [
            (ResidencySource::Ask, true, true),
            (ResidencySource::Ask, false, false), // FUSE drops its own
            (ResidencySource::Remember, true, false), // nobody can say what is missing
        ] {
            let fd = std::fs::File::open("/proc/self/exe").expect("this program");
            let fd = Descriptor::new(OwnedFd::from(fd), 0);
            let id = ObjectId {
                device: 0,
                index: 0,
                generation: 0,
            };
            let file = Arc::new(File::new(fd, id, residency, b"a", (0, is_here)));
            assert_eq!(Source::File(file).shows_drops(), expected, "{residency:?}");
        }
    }

    #[test]
    fn what_is_copied_is_never_waited_for_and_what_is_missing_is_told() {
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096) as u8).collect();
        let file = file_of(&bytes, "copied");
        let source = Source::File(Arc::clone(&file));
        let (sent, came) = copied(&source, span(0, 40_000));
        assert!(matches!(
            sent,
            Some(Sent::Taken {
                taken_bytes: 40_000,
                blocked: false
            })
        ));
        assert!(came == bytes[..40_000], "other bytes");
        drop_from(&file, 64 << 10);
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
        drop_from(&file, 128 << 10);
        let (sent, came) = copied(&source, span(200 << 10, 4096));
        assert!(matches!(sent, Some(Sent::Missing)) && came.is_empty());
    }
}
