//! What supervisor and answerer say to each other: JSON, a datagram each, between two processes of one program.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Bytes of a datagram; the longest one has secrets and addresses. More: it is not sent.
const DATAGRAM_BYTES_MAX: usize = 16 << 10;
/// Descriptors beside the first one.
const DESCRIPTORS_MAX: usize = 2;

/// Credentials for CHAP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    /// The name.
    pub name: String,
    /// The secret.
    pub secret: Vec<u8>,
}

/// A unit, as far as the supervisor needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its size.
    pub len_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Vendor, product and revision.
    pub name: String,
    /// Its serial number; empty: none.
    pub serial: String,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unit {
            len_bytes,
            block_bytes,
            serial,
            ..
        } = self;
        write!(
            f,
            "{len_bytes} bytes in blocks of {block_bytes}, serial number '{serial}'"
        )
    }
}

/// The kernel's side of FUSE, as it introduced itself once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The minor version of the protocol.
    pub minor: u32,
    /// Requests outlive an answerer.
    pub has_resend: bool,
}

/// The beginning, with the descriptors of /dev/fuse and of the counters beside it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begin {
    /// The unit's address.
    pub url: String,
    /// This side's name.
    pub initiator: String,
    /// Credentials.
    pub chap: Option<Secret>,
    /// Those of the target.
    pub target: Option<Secret>,
    /// Digests of headers.
    pub header_digest: bool,
    /// Digests of data.
    pub data_digest: bool,
    /// Nobody may write.
    pub is_read_only: bool,
    /// Requests fail after so long without a session.
    pub patience_s: u32,
    /// Of an answerer that takes over: what the unit was before.
    pub unit: Option<Unit>,
    /// And the kernel has introduced itself already.
    pub kernel: Option<Kernel>,
    /// Another one has died before: what it had taken is to be sent again.
    pub is_successor: bool,
}

/// What the supervisor says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// Do it.
    Begin(Box<Begin>),
    /// The answer to [`Said::Resolve`]; none: why not.
    Resolved(Result<Vec<SocketAddr>, String>),
}

/// What the answerer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// The unit is there.
    Ready(Unit),
    /// The kernel has introduced itself.
    Kernel(Kernel),
    /// Which addresses has this host?
    Resolve {
        /// Its name.
        host: String,
        /// The port that they are for.
        port: u16,
    },
    /// A line for the operator.
    Line(String),
    /// There is no session, and why.
    Trouble(String),
    /// FUSE was unmounted, or aborted.
    Over,
    /// It can't go on, and a successor could not either.
    End(String),
}

/// One end of the line between both.
pub struct Line(OwnedFd);

impl Line {
    /// Both ends. That of the answerer becomes its standard input.
    ///
    /// # Errors
    /// As socketpair(2).
    pub fn pair() -> io::Result<(Line, OwnedFd)> {
        let kind = SocketType::SEQPACKET;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, other) = net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        Ok((Line(own), other))
    }

    /// The answerer's end.
    pub fn of(fd: OwnedFd) -> Line {
        Line(fd)
    }

    /// For poll(2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Another descriptor of the same end.
    ///
    /// # Errors
    /// As dup(2).
    pub fn again(&self) -> io::Result<Line> {
        Ok(Line(self.0.try_clone()?))
    }

    /// Says something, without waiting.
    ///
    /// # Errors
    /// The line is full, or the other one is gone.
    pub fn say(&self, message: &impl Serialize, beside: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        if bytes.len() > DATAGRAM_BYTES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !beside.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(beside));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        net::sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, flags)?;
        Ok(())
    }

    /// What was said; `None`: nothing yet.
    ///
    /// # Errors
    /// The other one is gone, or says nothing that makes sense.
    pub fn hear<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut bytes = vec![0; DATAGRAM_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(&mut bytes)];
        let came = match net::recvmsg(&self.0, &mut into, &mut ancillary, flags) {
            Ok(came) if came.bytes > 0 => came.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => return Err(error.into()),
        };
        let mut beside = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                beside.extend(all);
            }
        }
        Ok(Some((serde_json::from_slice(&bytes[..came])?, beside)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard_with_what_travels_beside() {
        let (own, other) = Line::pair().expect("a pair");
        let other = Line::of(other);
        assert!(other.hear::<Said>().expect("it is open").is_none());
        let said = Said::Resolve {
            host: "san.example".to_owned(),
            port: 3260,
        };
        own.say(&said, &[own.fd(), own.fd()]).expect("room");
        let heard = other.hear::<Said>().expect("it is open");
        assert!(heard.is_some_and(|(heard, beside)| heard == said && beside.len() == 2));
        drop(own);
        assert!(other.hear::<Said>().is_err(), "it is gone");
    }
}
