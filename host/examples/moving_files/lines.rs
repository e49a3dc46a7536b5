//! The line to the broker of this node, and the one to the other instance.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ackpace_wire::cluster::broker::{Reply, Request, VERSION, encode_request, parse_reply};
use ackpace_wire::limits::BROKER_DATAGRAM_BYTES_MAX;
use rustix::cmsg_space;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

/// An answer that takes longer does not come.
const ANSWER: Duration = Duration::from_secs(1);
/// Of a message between instances: the state of a connection, the head and what the client has asked. More: refused.
const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// The broker of this node. If it goes, it is looked for again at the next question.
pub struct Broker {
    path: String,
    stream: Option<OwnedFd>,
    last: u64,
}

impl Broker {
    pub fn at(path: &str) -> Broker {
        Broker {
            path: path.to_owned(),
            stream: None,
            last: 0,
        }
    }

    /// Asks; a refusal is an error. A socket comes beside [`Reply::Restored`] alone.
    pub fn ask(
        &mut self,
        request: &Request,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<(Reply, Option<OwnedFd>)> {
        if self.stream.is_none() {
            self.stream = Some(connect(&self.path)?);
            let (hello, _) = self.ask(&Request::Hello { version: VERSION }, None)?;
            if !matches!(hello, Reply::Hello(it) if it.version == VERSION) {
                return Err(io::Error::other("the broker is of another version"));
            }
        }
        self.last += 1;
        let answer = self
            .stream
            .as_ref()
            .map(|it| exchange(it, self.last, request, socket));
        match answer {
            Some(Ok((Reply::Failed { text, .. }, _))) => Err(io::Error::other(text)),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => {
                self.stream = None;
                Err(error)
            }
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

fn connect(path: &str) -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
    let stream = net::socket_with(family, SocketType::SEQPACKET, flags, None)?;
    sockopt::set_socket_timeout(&stream, sockopt::Timeout::Recv, Some(ANSWER))?;
    net::connect(&stream, &SocketAddrUnix::new(path)?)?;
    Ok(stream)
}

/// A question and its answer, each one datagram.
fn exchange(
    stream: &OwnedFd,
    id: u64,
    request: &Request,
    socket: Option<BorrowedFd<'_>>,
) -> io::Result<(Reply, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !socket.as_slice().is_empty() {
        beside.push(SendAncillaryMessage::ScmRights(socket.as_slice()));
    }
    let datagram = encode_request(id, request);
    net::sendmsg(
        stream,
        &[IoSlice::new(&datagram)],
        &mut beside,
        SendFlags::NOSIGNAL,
    )?;

    let mut datagram = vec![0; BROKER_DATAGRAM_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut datagram)];
    let came = net::recvmsg(
        stream.as_fd(),
        &mut into,
        &mut beside,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let socket = beside.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
        _ => None,
    });
    match parse_reply(&datagram[..came.bytes]) {
        Ok((of, reply)) if of == id => Ok((reply, socket)),
        _ => Err(io::Error::other("the broker does not answer as it should")),
    }
}

/// Messages between instances: lists of byte strings, each with its length before it.
pub struct Line(pub TcpStream);

impl Line {
    pub fn open(to: SocketAddr) -> io::Result<Line> {
        TcpStream::connect_timeout(&to, ANSWER).map(Line)
    }

    pub fn put(&self, words: &[&[u8]]) -> io::Result<()> {
        let mut message = vec![words.len() as u8];
        for word in words {
            message.extend((word.len() as u32).to_le_bytes());
            message.extend(*word);
        }
        (&self.0).write_all(&message)
    }

    /// The next one; an error if none comes for a second.
    pub fn get(&self) -> io::Result<Vec<Vec<u8>>> {
        let (mut line, mut left) = (&self.0, MESSAGE_BYTES_MAX);
        self.0.set_read_timeout(Some(ANSWER))?;
        let mut count = [0];
        line.read_exact(&mut count)?;
        let mut words = Vec::new();
        for _ in 0..count[0] {
            let mut len = [0; 4];
            line.read_exact(&mut len)?;
            let len = u32::from_le_bytes(len) as usize;
            left = left.checked_sub(len).ok_or(io::ErrorKind::InvalidData)?;
            let mut word = vec![0; len];
            line.read_exact(&mut word)?;
            words.push(word);
        }
        Ok(words)
    }

    /// Says something and waits for the answer: what comes with a "yes"; `None` for a "no".
    pub fn ask(&self, words: &[&[u8]]) -> io::Result<Option<Vec<u8>>> {
        self.put(words)?;
        let mut answer = self.get()?.into_iter();
        let is_yes = answer.next().is_some_and(|it| it == b"yes");
        Ok(is_yes.then(|| answer.next().unwrap_or_default()))
    }

    pub fn yes(&self, with: &[u8]) -> io::Result<()> {
        self.put(&[b"yes", with])
    }

    pub fn no(&self) -> io::Result<()> {
        self.put(&[b"no"])
    }
}
