//! Sends from the page cache: by sendfile(2), or, where that might wait long for the disk, by a non-blocking copy through
//! our own memory.
//!
//! An order names bytes that the machine believes to be in memory. Before a send the kernel may be asked which of them are,
//! by mincore(2), cachestat(2) or a sample ([`ackpace_core::residency`]). It is not asked about files that live in memory,
//! nor about those of a fast disk as long as no pages go missing. The kernel may drop a page after it has answered. If a
//! wait for that page would be short, sendfile(2) may meet it; if not, the bytes are copied, unless nobody can drop them
//! ([`means`]).

use std::io::IoSlice;

use ackpace_core::conn::Span;
use ackpace_core::residency::latency::PageWait;
use ackpace_core::residency::{
    Confirmation, Means, Occasion, ProbeLimit, has_waited, means, piece, trusted_bytes,
};
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use rustix::io::Errno;

use super::super::source::Source;
use super::promised::{Promised, Turn};
use super::{Sent, send_error};
use crate::store::file::VersionCheck;
use crate::store::residency;
use crate::transport::{PlainBytes, Transport};

/// An order: bytes of a file that are to be sent from the page cache.
pub(super) struct Cached<'a> {
    /// The file, and the version of it that is promised.
    pub promised: Promised<'a>,
    /// The bytes.
    pub span: Span,
    /// What the kernel found in memory earlier in this turn, and when. While that answer holds, it is not asked again.
    pub resident_now: Option<(Confirmation, Span)>,
    /// The kernel reported the bytes missing again and again, just after they were read. So it is not asked: all of them count as
    /// resident, and a copy stops at the first missing page. Where no copy is possible, sendfile(2) may wait.
    pub skip_residency_check: bool,
}

/// Sends what is in memory now, by sendfile(2) or by a copy through the buffer `copied`. `probe_limit` learns what the socket
/// took by sendfile(2), and so how far the next question should go.
pub(super) fn send_cached(
    transport: &Transport,
    cached: &Cached,
    probe_limit: &mut ProbeLimit,
    copied: &mut [u8],
) -> Sent {
    let Cached { promised, span, .. } = cached;
    let now = promised.turn.began;
    let confirmed = (cached.resident_now).filter(|(at, _)| promised.is_valid(*at));
    let confirmed = confirmed.map(|(_, span)| span);
    let confirmed_bytes = trusted_bytes(*span, confirmed, cached.skip_residency_check);
    let occasion = match residency::in_doubt(now) {
        true => Occasion::SendInDoubt,
        false => Occasion::Send,
    };
    let resident_bytes = resident_bytes(promised.source, *span, confirmed_bytes, occasion);
    if resident_bytes < span.len_bytes {
        residency::missed(now);
    }
    let here = Span {
        len_bytes: resident_bytes,
        ..*span
    };
    let source = promised.source;
    let stays = || stays(source, here, now);
    if means(cached.skip_residency_check, source.wait(), stays) == Means::Copy {
        let check = || promised.check_version_now();
        let sent = send_copied(transport, source, check, here, copied, now);
        if let Some(sent) = sent {
            return sent;
        }
    }
    if here.len_bytes == 0 {
        return Sent::Missing;
    }
    let sent = send_in_pieces(transport, promised, here);
    if let Sent::Taken {
        taken_bytes,
        refused,
    } = sent
    {
        probe_limit.took(taken_bytes, refused);
    }
    sent
}

/// Whether nobody can drop these bytes, which are in memory. While pages go missing the page tables are looked at now;
/// else an earlier look counts.
fn stays(source: &Source, here: Span, now: Instant) -> bool {
    match residency::in_doubt(now) {
        true => source.stays_resident(here),
        false => source.is_proven(here),
    }
}

/// Sends bytes that were found in memory, in pieces. Bytes that stay there for certain ([`Source::is_proven`]) go in one
/// piece. A piece that has waited for a page is the last one: the next order asks about the rest.
///
/// After the socket has taken bytes, an error is not returned, since these must be counted: the next order meets the error
/// again. A file that is truncated meanwhile ends its piece early, as a full socket does. The worker asks epoll to look at
/// the socket in both cases, and the next order shows which it was.
fn send_in_pieces(transport: &Transport, promised: &Promised, span: Span) -> Sent {
    match promised.check_version() {
        VersionCheck::Same => {}
        VersionCheck::NotYet => return Sent::Missing, // it is being written or checked: the next order asks again
        VersionCheck::Changed => return Sent::Broken(Why::FileChanged),
    }
    promised.turn.sleeps.begin(promised.turn.began); // to tell a wait for the disk from a lost processor
    let (mut taken_bytes, mut refused, mut waited) = (0, false, false);
    while taken_bytes < span.len_bytes && !refused && !waited {
        let rest = span.behind(taken_bytes);
        let wait = promised.source.wait();
        let proven = wait == PageWait::Long && promised.source.is_proven(rest);
        let piece = piece(rest, wait, proven);
        let Turn { clock, sleeps, .. } = promised.turn;
        let began = clock.now();
        match promised.source.send_to(transport, piece) {
            Ok(PlainBytes(0)) if taken_bytes == 0 => return Sent::Broken(Why::FileChanged),
            Err(error) if taken_bytes == 0 => return send_file_error(transport, error),
            Ok(PlainBytes(0)) | Err(_) => break, // the next order meets the reason again
            Ok(taken) => {
                taken_bytes += taken.0;
                refused = taken.0 < piece.len_bytes;
            }
        }
        let took_us = clock.now().since_us(began);
        waited = !proven && has_waited(took_us, || sleeps.take_any(promised.source.is_on_device()));
        if waited {
            residency::missed(promised.turn.began);
            promised.source.has_waited(piece.len_bytes, took_us);
        }
    }
    Sent::Taken {
        taken_bytes,
        refused,
    }
}

/// What an error of sendfile(2) means, which may be one of the socket or of the file.
fn send_file_error(transport: &Transport, error: Errno) -> Sent {
    match send_error(error) {
        Sent::Reset if error != Errno::PIPE && !transport.is_dead() => {
            Sent::Broken(Why::ReadFailed)
        }
        sent => sent,
    }
}

/// How many bytes of the span, from its start, are in memory. The first `confirmed_bytes` are; the kernel is asked about
/// the others. Where it can't say they count as resident; a copy, where one is possible, finds out without waiting.
fn resident_bytes(source: &Source, span: Span, confirmed_bytes: u64, occasion: Occasion) -> u64 {
    let confirmed_bytes = confirmed_bytes.min(span.len_bytes);
    let rest = span.behind(confirmed_bytes);
    if rest.len_bytes == 0 {
        return confirmed_bytes;
    }
    let told = source.resident_bytes(rest, occasion);
    confirmed_bytes + told.unwrap_or(rest.len_bytes).min(rest.len_bytes)
}

/// Sends the span by way of the buffer `copied`, with reads that never wait (RWF_NOWAIT), but may start to read what is missing.
/// sendfile(2) would wait for the disk if a page were dropped in this moment. `check` says whether what was read may be sent as
/// the promised version. `None`: the file system has no such reads, and the caller uses sendfile(2).
fn send_copied(
    transport: &Transport,
    source: &Source,
    check: impl Fn() -> VersionCheck,
    span: Span,
    copied: &mut [u8],
    now: Instant,
) -> Option<Sent> {
    if span.len_bytes == 0 {
        return Some(Sent::Missing);
    }
    let (mut taken_bytes, mut refused) = (0, false);
    while taken_bytes < span.len_bytes && !refused {
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
        match check() {
            VersionCheck::Same => {}
            VersionCheck::NotYet if taken_bytes > 0 => break, // the next order asks again
            VersionCheck::NotYet => return Some(Sent::Missing),
            VersionCheck::Changed => return Some(Sent::Broken(Why::FileChanged)),
        }
        match transport.send_texts(&[IoSlice::new(&copied[..read])], false) {
            Ok(taken) => {
                taken_bytes += taken.0;
                refused = taken.0 < read as u64;
            }
            Err(error) if taken_bytes == 0 => return Some(send_error(error)),
            Err(_) => refused = true, // the next order meets the error again
        }
    }
    Some(Sent::Taken {
        taken_bytes,
        refused,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use ackpace_core::conn::{ObjectId, Promise, ResidencySource};
    use ackpace_core::residency::latency::Way;
    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::clock::Clock;
    use crate::sched::Sleeps;
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
        let sent = send_copied(
            &transport,
            source,
            || VersionCheck::Same,
            span,
            &mut room,
            NOW,
        );
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
        let id = ObjectId {
            device: 0,
            index: 0,
            generation: 0,
        };
        let fd = Descriptor::of(OwnedFd::from(fd)).expect("an open file");
        let latency = Some(Arc::default());
        Arc::new(File::new(fd, id, ResidencySource::Ask, b"a", latency))
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

    /// Sends the first bytes of the file to a client. Returns what came of it, and what the client got.
    fn sent(file: &Arc<File>, len_bytes: u64) -> (Sent, Vec<u8>) {
        let source = Source::File(Arc::clone(file));
        let version = file.version().expect("an open file");
        let promised = Promised {
            source: &source,
            version: &version,
            promise: Promise::OneVersion,
            confirmed: None,
            turn: Turn {
                began: NOW,
                clock: Clock::start(),
                sleeps: &Sleeps::default(),
            },
        };
        let cached = Cached {
            promised,
            span: span(0, len_bytes),
            resident_now: None,
            skip_residency_check: false,
        };
        let (socket, mut client) = UnixStream::pair().expect("two descriptors");
        socket.set_nonblocking(true).expect("a socket");
        let transport = Transport::Plain(socket.into());
        let mut room = vec![0; 16 << 10];
        let sent = send_cached(&transport, &cached, &mut ProbeLimit::default(), &mut room);
        drop(transport);
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("what was sent");
        (sent, came)
    }

    #[test]
    fn only_an_error_of_the_socket_counts_as_a_reset() {
        let (socket, client) = UnixStream::pair().expect("two descriptors");
        let transport = Transport::Plain(socket.into());
        let means = |error| send_file_error(&transport, error);
        for error in [Errno::INVAL, Errno::STALE, Errno::NOTCONN, Errno::IO] {
            assert!(
                matches!(means(error), Sent::Broken(Why::ReadFailed)),
                "{error}"
            );
        }
        assert!(matches!(
            means(Errno::AGAIN),
            Sent::Taken { refused: true, .. }
        ));
        drop(client);
        assert!(matches!(means(Errno::PIPE), Sent::Reset));
    }

    #[test]
    fn what_is_in_memory_is_sent_and_what_is_missing_is_not_waited_for() {
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096) as u8).collect();
        for wait in [PageWait::Long, PageWait::Short] {
            let file = file_of(&bytes, "sent");
            let latency = file.latency().expect("a local file");
            let reads = if wait == PageWait::Short { 16 } else { 0 };
            (0..reads).for_each(|_| latency.has_read(4096, 100, Way::Past));
            assert_eq!(file.wait(), wait);
            drop_from(&file, 64 << 10);
            if file.resident_bytes(span(128 << 10, 1), Occasion::Choice) != Some(0) {
                return; // a file system in memory: nothing can be missing
            }
            residency::missed(NOW); // a fast disk is asked about only then
            let (taken, came) = sent(&file, 100_000);
            assert!(matches!(
                taken,
                Sent::Taken {
                    taken_bytes: 65_536,
                    refused: false
                }
            ));
            assert!(came == bytes[..64 << 10], "other bytes");
            assert_eq!(
                file.resident_bytes(span(64 << 10, 1), Occasion::Choice),
                Some(0),
                "read"
            );
            drop_from(&file, 0);
            let (missing, came) = sent(&file, 100_000);
            assert!(matches!(missing, Sent::Missing) && came.is_empty());
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
                refused: false
            })
        ));
        assert!(came == bytes[..40_000], "other bytes");
        drop_from(&file, 64 << 10);
        if file.resident_bytes(span(128 << 10, 1), Occasion::Choice) != Some(0) {
            return; // a file system in memory: nothing can be missing
        }
        let (sent, came) = copied(&source, span(0, 100_000));
        assert!(matches!(
            sent,
            Some(Sent::Taken {
                taken_bytes: 65_536,
                refused: false
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
