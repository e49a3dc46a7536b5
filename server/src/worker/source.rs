//! What the bytes of a response come from, and what sending asks of it.

use std::sync::Arc;

use ackpace_core::conn::{Promise, Span, Version};
use ackpace_core::residency::{Means, means};
use ackpace_core::units::Instant;

use crate::store::file::{File, VersionCheck};
use crate::transport::Transport;

/// A source of bytes. A second kind (memory that is counted by references, an origin) answers the same questions.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file, sent from the page cache or from slots into which its disk read it.
    File(Arc<File>),
}

impl Source {
    /// Whether its bytes may be sent as those of the `promised` version. Neither waits nor locks.
    pub fn check_version(
        &self,
        promised: &Version,
        promise: Promise,
        now: Instant,
    ) -> VersionCheck {
        match self {
            Source::File(file) => file.check_version(promised, promise, now),
        }
    }

    /// Whether the span is in the page cache, as far as that can be known.
    pub fn is_resident(&self, span: Span) -> bool {
        match self {
            Source::File(file) => file.is_resident(span),
        }
    }

    /// How bytes that are believed to be in the page cache are to be sent.
    pub fn means(&self) -> Means {
        match self {
            Source::File(file) => means(file.residency, file.wait()),
        }
    }

    /// A send of so many bytes, which should have been in the page cache, took so long.
    pub fn has_waited(&self, len_bytes: u64, took_us: u64) {
        match self {
            Source::File(file) => file.has_waited(len_bytes, took_us),
        }
    }

    /// Copies bytes of the page cache, as many as are there. Never waits.
    ///
    /// # Errors
    /// EAGAIN if the first one is missing; EOPNOTSUPP where it can't promise not to wait.
    pub fn read_resident(&self, offset_bytes: u64, into: &mut [u8]) -> rustix::io::Result<usize> {
        match self {
            Source::File(file) => file.read_cached(offset_bytes, into),
        }
    }

    /// Sends bytes without a copy of our own, and returns how many were taken; 0 at its end. Waits for what is not in the page
    /// cache.
    ///
    /// # Errors
    /// EAGAIN when the socket takes nothing; EIO when bytes can't be read; the socket's error.
    pub fn send_to(&self, transport: &Transport, span: Span) -> rustix::io::Result<u64> {
        match self {
            Source::File(file) => transport.send_file(&file.fd, span),
        }
    }

    /// The file from which a disk reads what is missing; `None` for a source that never lacks bytes.
    pub fn on_disk(&self) -> Option<&Arc<File>> {
        match self {
            Source::File(file) => Some(file),
        }
    }

    /// Its path below the root of its site, for messages.
    pub fn path(&self) -> &[u8] {
        match self {
            Source::File(file) => &file.path,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use ackpace_core::conn::ResidencySource;

    use super::*;
    use crate::store::attributes::version;
    use crate::store::closing::Descriptor;
    use crate::store::device::Devices;
    use crate::store::files::Files;

    #[test]
    fn a_file_answers_what_sending_asks_until_it_is_another() {
        let path = std::env::temp_dir().join(format!("ackpace-source-{}", std::process::id()));
        fs::write(&path, "0123456789").expect("room for a file");
        let fd = OwnedFd::from(fs::File::open(&path).expect("our own file"));
        let stat = rustix::fs::fstat(&fd).expect("an open file");
        let fd = Descriptor::of(fd).expect("an open file");
        let file = Files::default().intern(fd, &stat, b"name", &Devices::default());
        let source = Source::File(Arc::clone(&file));
        let span = Span {
            offset_bytes: 2,
            len_bytes: 5,
        };
        let holds = || {
            let now = Instant { us: 7 };
            source.check_version(&version(&stat), Promise::OneVersion, now)
        };
        assert_eq!(holds(), VersionCheck::Same);
        assert!(file.residency != ResidencySource::Ask || source.is_resident(span));
        let (socket, mut client) = UnixStream::pair().expect("two descriptors");
        let transport = Transport::new(socket.into());
        assert_eq!(source.send_to(&transport, span), Ok(5));
        drop(transport);
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("what was sent");
        assert_eq!(came, b"23456");
        let mut copy = [0; 3];
        match source.read_resident(7, &mut copy) {
            Ok(read) => assert_eq!(&copy[..read], b"789"),
            Err(error) => assert_eq!(error, rustix::io::Errno::OPNOTSUPP, "overlayfs"),
        }
        assert_eq!(source.path(), b"name");
        assert!(
            source
                .on_disk()
                .is_some_and(|on_disk| Arc::ptr_eq(on_disk, &file))
        );
        fs::write(&path, "shorter").expect("our own file");
        assert_eq!(holds(), VersionCheck::Changed);
        fs::remove_file(&path).expect("our own file");
    }
}
