//! The connection to the target: its socket, and what it has not taken yet.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use ackpace_core::units::Instant;
use ackpace_wire::iscsi::session::Output;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendFlags, SocketFlags, SocketType, connect,
    ipproto, recvmsg, send, socket_with, sockopt,
};

use super::Lun;
use super::start::LINK;
use crate::tcp;
use crate::upstream::Names;

/// What is handed to the socket at once: some hundred commands.
const OUT_BYTES: usize = 16 << 10;

/// More are not waited for at once: the socket's buffer has room for twice as much.
const AWAITED_BYTES_MAX: u32 = 64 << 10;

/// A connection.
pub struct Link {
    socket: OwnedFd,
    /// It stands.
    is_open: bool,
    /// What the socket has not taken.
    out: Vec<u8>,
    sent_bytes: usize,
    /// The thread is woken when so many bytes have come.
    awaited_bytes: u32,
}

impl Link {
    /// Begins to connect.
    fn connect(to: SocketAddr) -> rustix::io::Result<Link> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(Link {
            socket,
            is_open: false,
            out: Vec::new(),
            sent_bytes: 0,
            awaited_bytes: 1,
        })
    }

    /// Whether bytes may come.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Receives into these.
    pub fn receive(&self, into: &mut [IoSliceMut<'_>]) -> rustix::io::Result<usize> {
        loop {
            let beside = &mut RecvAncillaryBuffer::default();
            match recvmsg(&self.socket, into, beside, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                received => return received.map(|received| received.bytes),
            }
        }
    }

    /// Nothing has come, and so many bytes are still to come of a PDU: one wake-up for all of them, not one for each packet. No byte of
    /// a task is of use before its last one.
    pub fn awaits(&mut self, len_bytes: usize) {
        let len_bytes = len_bytes.min(AWAITED_BYTES_MAX as usize) as u32;
        if std::mem::replace(&mut self.awaited_bytes, len_bytes) != len_bytes {
            tcp::set_receive_lowat(&self.socket, len_bytes);
        }
    }

    /// Sends what is left. `false`: the socket takes no more.
    fn flush(&mut self) -> rustix::io::Result<bool> {
        while self.sent_bytes < self.out.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match send(&self.socket, &self.out[self.sent_bytes..], flags) {
                Ok(taken) => self.sent_bytes += taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.sent_bytes = 0;
        Ok(true)
    }
}

impl Lun {
    /// Begins to connect to the target. Its name is looked up by a thread of its own; one to which it has moved, here for the first time.
    pub(super) fn connect(&mut self, host: String, port: u16) -> Result<(), String> {
        let place = (host, port);
        let address = match place.0.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, port),
            Err(_) => self.look_up(place)?,
        };
        let link = Link::connect(address).and_then(|link| {
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&self.epoll, &link.socket, EventData::new_u64(LINK), flags)?;
            Ok(link)
        });
        self.link = Some(link.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn look_up(&mut self, place: (String, u16)) -> Result<SocketAddr, String> {
        if self.names.as_ref().is_none_or(|(of, _)| *of != place) {
            let names = Names::of_place(place.clone()).map_err(|error| error.to_string())?;
            self.names = Some((place, names));
        }
        let names = self.names.as_mut().map(|(_, names)| names.next());
        names.unwrap_or_else(|| Err("it has no name".to_owned()))
    }

    /// Epoll says something of the connection.
    pub(super) fn hear_link(&mut self, now: Instant) {
        let Some(link) = self.link.as_mut().filter(|link| !link.is_open) else {
            return;
        };
        match sockopt::socket_error(&link.socket) {
            Ok(Ok(())) if rustix::net::getpeername(&link.socket).is_ok() => {
                link.is_open = true;
                self.session.connected(now.us);
            }
            Ok(Ok(())) => {} // it does not stand yet
            Ok(Err(error)) | Err(error) => {
                if let Some((_, names)) = &mut self.names {
                    names.failed();
                }
                self.lost(&error.to_string(), now);
            }
        }
    }

    /// The connection is over.
    pub(super) fn lost(&mut self, why: &str, now: Instant) {
        self.link = None;
        self.session.lost(why, now.us);
    }

    /// Sends what there is to send, as far as the socket takes it.
    pub(super) fn send(&mut self, now: Instant) {
        loop {
            let Some(link) = self.link.as_mut().filter(|link| link.is_open) else {
                return;
            };
            while link.out.len() < OUT_BYTES {
                match self.session.to_send() {
                    Some(Output::Bytes(bytes)) => link.out.extend(bytes),
                    // Nothing is written here, so nothing follows a header.
                    Some(Output::Pdu(pdu)) => link.out.extend(pdu.header()),
                    None => break,
                }
            }
            if link.out.is_empty() {
                return;
            }
            match link.flush() {
                Ok(true) => {}
                Ok(false) => return, // epoll says when it takes more
                Err(error) => return self.lost(&error.to_string(), now),
            }
        }
    }
}
