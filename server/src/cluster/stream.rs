//! A stream between two nodes: its socket, TLS, and the frames that come and go.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_wire::cluster::{Bad, Frame, Parsed, encode, parse};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt,
};
use rustls::Connection;

use super::key::PublicKey;
use super::member::SILENT_US;
use super::tls::shown_key;

/// Bytes that wait for the other node. More: it does not read, so it is as good as gone, and the stream is cut.
const OUT_BYTES_MAX: usize = 1 << 20;
/// Bytes that are received in one turn of the thread. More: the next turn receives them.
const TURN_BYTES_MAX: usize = 64 << 10;
/// Memory of a stream at worst: what waits to be sent, TLS's own buffers, and what was received.
pub const STREAM_BYTES: u64 = (OUT_BYTES_MAX + 4 * TURN_BYTES_MAX) as u64;
/// The same of one on which nothing was said yet.
pub const OPENING_BYTES: u64 = 2 * TURN_BYTES_MAX as u64;

/// Why a stream is of no use any more.
#[derive(Debug)]
pub enum Broken {
    /// Nobody listens there: no process of that node runs.
    Refused,
    /// It was only a look whether that is so, and somebody listens there.
    Taken,
    /// The other side closed it.
    Ended,
    /// The network failed, or the other side is silent.
    Closed(String),
    /// The other side is not who it should be, or says what nobody understands.
    Wrong(String),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        match error.kind() {
            ErrorKind::ConnectionRefused => Broken::Refused,
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Broken::Ended,
            _ => Broken::Closed(error.to_string()),
        }
    }
}

impl From<rustls::Error> for Broken {
    fn from(error: rustls::Error) -> Broken {
        let why = match &error {
            rustls::Error::InvalidCertificate(_) => {
                "no node that is known here has its key: look at --peer or etcd".to_owned()
            }
            rustls::Error::AlertReceived(_) => {
                format!(
                    "it refuses this node, whose key may be missing from its --peer or from etcd ({error})"
                )
            }
            error => format!("it does not speak TLS as a node does: {error}"),
        };
        Broken::Wrong(why)
    }
}

/// One end of a stream.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    tls: Connection,
    /// The socket does not stand yet.
    is_connecting: bool,
    /// Frames that TLS has not taken.
    out: Vec<u8>,
    /// What came and is not used yet.
    received: Vec<u8>,
}

impl Stream {
    /// A stream over this socket, which stands unless `is_connecting`.
    pub fn new(socket: OwnedFd, tls: Connection, is_connecting: bool) -> Stream {
        Stream {
            socket: socket.into(),
            tls,
            is_connecting,
            out: Vec::new(),
            received: Vec::new(),
        }
    }

    /// The other node's key, once the handshake is over.
    pub fn key(&self) -> Option<PublicKey> {
        let is_over = !self.is_connecting && !self.tls.is_handshaking();
        is_over.then(|| shown_key(&self.tls)).flatten()
    }

    /// Whether something waits until the socket can take it.
    pub fn wants_write(&self) -> bool {
        self.is_connecting || self.tls.wants_write()
    }

    /// Adds a frame to what is sent next.
    pub fn push(&mut self, frame: &Frame) {
        encode(frame, &mut self.out);
    }

    /// Receives and sends what can be received and sent now.
    pub fn turn(&mut self) -> Result<(), Broken> {
        if self.is_connecting {
            if !self.stands()? {
                return Ok(());
            }
            self.is_connecting = false;
        }
        let received = self.receive();
        // An alert leaves first, so that the other side learns what is wrong.
        let sent = self.send();
        received.and(sent)
    }

    /// Looks whether the other node's port refuses.
    pub fn probe(&self) -> Result<(), Broken> {
        match self.stands()? {
            true => Err(Broken::Taken),
            false => Ok(()),
        }
    }

    fn stands(&self) -> Result<bool, Broken> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error.into());
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn receive(&mut self) -> Result<(), Broken> {
        let mut left = TURN_BYTES_MAX;
        while left > 0 {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(Broken::Ended),
                Ok(read) => left = left.saturating_sub(read),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            }
            let state = self.tls.process_new_packets()?;
            let waiting = state.plaintext_bytes_to_read();
            let plain = self.tls.reader().take(waiting as u64);
            { plain }.read_to_end(&mut self.received)?;
            if state.peer_has_closed() {
                return Err(Broken::Ended);
            }
        }
        Ok(())
    }

    /// Sends what waits, as far as the socket takes it.
    pub fn send(&mut self) -> Result<(), Broken> {
        while !self.is_connecting {
            if !self.out.is_empty() && !self.tls.is_handshaking() {
                let taken = self.tls.writer().write(&self.out)?;
                drop(self.out.drain(..taken));
            }
            if !self.tls.wants_write() {
                break;
            }
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        match self.out.len() > OUT_BYTES_MAX {
            true => Err(Broken::Closed("it does not read what it is sent".into())),
            false => Ok(()),
        }
    }

    /// The next frame that came whole.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Broken> {
        match parse(&self.received) {
            Parsed::Incomplete => Ok(None),
            Parsed::Complete { frame, len_bytes } => {
                drop(self.received.drain(..len_bytes));
                Ok(Some(frame))
            }
            Parsed::Bad(Bad::Version) => Err(Broken::Wrong(
                "it speaks another version of the protocol: run one release".to_owned(),
            )),
            Parsed::Bad(bad) => Err(Broken::Wrong(format!(
                "it sent an invalid message ({bad:?})"
            ))),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that connects to another node, from the address at which this one listens.
pub fn dial(from: IpAddr, to: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if from.is_ipv6() == to.is_ipv6() {
        bind(&socket, &SocketAddr::new(from, 0))?;
    }
    tune(&socket)?;
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => Ok(socket),
        Err(error) => Err(error),
    }
}

/// Sets what a stream needs: messages leave at once, and a dead path is noticed.
pub fn tune(socket: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, (SILENT_US / 1000) as u32)
}

#[cfg(test)]
mod tests;
