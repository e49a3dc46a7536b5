//! Sends from the page cache: by sendfile(2), or, where that might wait long for the disk, by a non-blocking copy through
//! our own memory ([`ackpace_core::residency`]).
//!
//! An order names bytes that the machine believes to be there. The kernel is not asked again.

use std::io::IoSlice;

use ackpace_core::conn::Span;
use ackpace_core::residency::{Means, is_long, means};
use ackpace_core::why::Why;
use rustix::io::Errno;

use super::{NOTHING, Promised, Sent, send_error};
use crate::store::file::{File, VersionCheck};
use crate::transport::Transport;

/// Sends bytes that are believed to be in the page cache, by sendfile(2) or by a copy through the buffer `copied`.
pub(crate) fn send_cached(
    transport: &Transport,
    (file, promised): (&File, &Promised),
    span: Span,
    copied: &mut [u8],
) -> Sent {
    match means(file.residency, file.wait()) {
        Means::Copy => send_copied(transport, (file, promised), span, copied)
            .unwrap_or_else(|| send_by_sendfile(transport, (file, promised), span)),
        Means::Sendfile => send_by_sendfile(transport, (file, promised), span),
    }
}

/// Sends bytes by sendfile(2), which waits for those that are missing. A file that is truncated meanwhile ends the call early, as a
/// full socket does. The worker asks epoll to look at the socket in both cases, and the next order shows which it was.
fn send_by_sendfile(
    transport: &Transport,
    (file, promised): (&File, &Promised),
    span: Span,
) -> Sent {
    match promised.check_version(file) {
        VersionCheck::Same => {}
        VersionCheck::NotYet => return NOTHING, // the next order asks again
        VersionCheck::Changed => return Sent::Broken(Why::FileChanged),
    }
    let clock = promised.clock;
    let began = clock.now();
    match transport.send_file(&file.fd, span) {
        Ok(0) => Sent::Broken(Why::FileChanged),
        Ok(taken_bytes) => {
            let took_us = clock.now().since_us(began);
            file.has_waited(taken_bytes, took_us);
            Sent::Taken {
                taken_bytes,
                refused: taken_bytes < span.len_bytes,
                waited: is_long(taken_bytes, took_us),
            }
        }
        Err(error) => send_file_error(transport, error),
    }
}

/// What an error of sendfile(2) means, which may be one of the socket or of the file. An error of the connection is told once: the
/// socket has it no more.
fn send_file_error(transport: &Transport, error: Errno) -> Sent {
    let is_of_connection = matches!(
        error,
        Errno::PIPE | Errno::CONNRESET | Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH
    );
    match send_error(error) {
        Sent::Reset if !is_of_connection && !transport.is_dead() => Sent::Broken(Why::ReadFailed),
        sent => sent,
    }
}

/// Sends the span by way of the buffer `copied`, with reads that never wait (RWF_NOWAIT), but may start to read what is missing.
/// `None`: the file system has no such reads, and the caller uses sendfile(2).
///
/// After the socket has taken bytes, an error is not returned, since these must be counted: the next order meets it again.
fn send_copied(
    transport: &Transport,
    (file, promised): (&File, &Promised),
    span: Span,
    copied: &mut [u8],
) -> Option<Sent> {
    let (mut taken_bytes, mut refused) = (0, false);
    while taken_bytes < span.len_bytes && !refused {
        let rest = span.behind(taken_bytes);
        let most =
            usize::try_from(rest.len_bytes).map_or(copied.len(), |len| len.min(copied.len()));
        let read = file.read_cached(rest.offset_bytes, &mut copied[..most]);
        let read = match read {
            Ok(read) if read > 0 => read,
            _ if taken_bytes > 0 => break,
            Ok(_) => return Some(Sent::Broken(Why::FileChanged)),
            Err(Errno::OPNOTSUPP) => return None,
            Err(Errno::IO) => return Some(Sent::Broken(Why::ReadFailed)),
            Err(_) => return Some(Sent::Missing),
        };
        match promised.check_version(file) {
            VersionCheck::Same => {}
            VersionCheck::Changed if taken_bytes == 0 => {
                return Some(Sent::Broken(Why::FileChanged));
            }
            VersionCheck::NotYet | VersionCheck::Changed => break, // the next order asks again
        }
        match transport.send_slices(&[IoSlice::new(&copied[..read])], false) {
            Ok(taken) => {
                taken_bytes += taken;
                refused = taken < read as u64;
            }
            Err(error) if taken_bytes == 0 => return Some(send_error(error)),
            Err(_) => refused = true,
        }
    }
    Some(Sent::taken(taken_bytes, refused))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use ackpace_core::conn::{ObjectId, Promise, ResidencySource};
    use ackpace_core::residency::Way;
    use ackpace_core::units::Instant;
    use rustix::fs::{Advice, fadvise};

    use super::*;
    use crate::clock::Clock;
    use crate::store::closing::Descriptor;

    const LEN: u64 = 256 << 10;

    /// A file with these bytes, all of them in memory. It has no name any more, so nobody else opens it. Its device counts as fast
    /// after 16 short reads.
    fn file_of(bytes: &[u8], name: &str, short_reads: u32) -> Arc<File> {
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
        let file = File::new(fd, id, ResidencySource::Ask, b"a", latency);
        let latency = file.latency().expect("a local file");
        (0..short_reads).for_each(|_| latency.has_read(4096, 100, Way::Past));
        Arc::new(file)
    }

    /// Drops all pages from there on, as another program might. `false`: a file system in memory, where nothing can be missing.
    fn drop_from(file: &File, offset_bytes: u64) -> bool {
        fadvise(&file.fd, offset_bytes, None, Advice::Random).expect("an open file");
        fadvise(&file.fd, offset_bytes, None, Advice::DontNeed).expect("an open file");
        !file.is_resident(Span {
            offset_bytes,
            len_bytes: 1,
        })
    }

    /// Sends bytes of the file to a client. Returns what came of it, and what the client got.
    fn sent(file: &Arc<File>, offset_bytes: u64, len_bytes: u64) -> (Sent, Vec<u8>) {
        let version = file.version().expect("an open file");
        let promised = Promised {
            version: Some(version),
            promise: Promise::OneVersion,
            now: Instant::default(),
            clock: Clock::start(),
        };
        let span = Span {
            offset_bytes,
            len_bytes,
        };
        let (socket, mut client) = UnixStream::pair().expect("two descriptors");
        socket.set_nonblocking(true).expect("a socket");
        let transport = Transport::new(socket.into());
        let mut room = vec![0; 16 << 10];
        let sent = send_cached(&transport, (file, &promised), span, &mut room);
        drop(transport);
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("what was sent");
        (sent, came)
    }

    fn bytes() -> Vec<u8> {
        (0..LEN).map(|at| (at / 4096) as u8).collect()
    }

    #[test]
    fn only_an_error_of_the_socket_counts_as_a_reset() {
        let (socket, client) = UnixStream::pair().expect("two descriptors");
        let transport = Transport::new(socket.into());
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
        // The call has taken these along, so the socket looks sound.
        for error in [Errno::PIPE, Errno::CONNRESET, Errno::TIMEDOUT] {
            assert!(matches!(means(error), Sent::Reset), "{error}");
        }
        drop(client);
    }

    #[test]
    fn what_is_missing_on_a_slow_or_unknown_device_is_not_waited_for() {
        let file = file_of(&bytes(), "copied", 0);
        let (all, came) = sent(&file, 0, 40_000);
        assert!(matches!(
            all,
            Sent::Taken {
                taken_bytes: 40_000,
                refused: false,
                waited: false
            }
        ));
        assert!(came == bytes()[..40_000], "other bytes");
        if !drop_from(&file, 64 << 10) {
            return;
        }
        let (some, came) = sent(&file, 0, 100_000);
        assert!(matches!(
            some,
            Sent::Taken {
                taken_bytes: 65_536,
                refused: false,
                ..
            }
        ));
        assert!(came == bytes()[..64 << 10], "other bytes");
        drop_from(&file, 128 << 10);
        let (none, came) = sent(&file, 200 << 10, 4096);
        assert!(matches!(none, Sent::Missing) && came.is_empty());
    }

    #[test]
    fn what_is_missing_on_a_fast_device_is_read_by_sendfile() {
        let file = file_of(&bytes(), "sent", 16);
        drop_from(&file, 64 << 10);
        let (all, came) = sent(&file, 0, 100_000);
        assert!(matches!(
            all,
            Sent::Taken {
                taken_bytes: 100_000,
                refused: false,
                ..
            }
        ));
        assert!(came == bytes()[..100_000], "other bytes");
    }
}
