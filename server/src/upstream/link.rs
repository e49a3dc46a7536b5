//! One connection to an origin: its socket, the request that goes out, and the bytes of the response that are not used yet.

use std::io::IoSliceMut;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_core::upstream::TaskId;
use ackpace_wire::http::{Asked, BodyReader};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SocketFlags, SocketType, bind, connect, ipproto,
    recvmsg, socket_with, sockopt,
};
use rustls::client::UnbufferedClientConnection;

use super::tls::{Broken, Session, send_all};
use crate::gateway::NO_ANSWER;

/// A connection to an origin.
pub struct Link {
    socket: OwnedFd,
    tls: Option<Box<Session>>,
    pub origin: u16,
    /// What it carries.
    pub task: Option<TaskId>,
    /// The request as far as the socket has not taken it.
    out: Vec<u8>,
    /// What was received and is not used up: a head, and what came behind it.
    pub received: Vec<u8>,
    pub step: Step,
    /// Requests that it has carried.
    pub requests: u64,
    /// Interim responses before the present one.
    pub interims: u32,
}

/// What comes next from an origin.
pub enum Step {
    /// The connection does not stand yet.
    Connecting,
    /// Nothing.
    Idle,
    /// The head of a response.
    Head(Asked),
    /// The body of one.
    Body {
        reader: BodyReader,
        /// Its bytes to come, if it is nothing but payload.
        left_bytes: Option<u64>,
        /// The connection may be used again afterwards.
        keep: bool,
        /// Its payload is dropped.
        skipped: bool,
    },
}

impl Link {
    /// Begins to connect, from an address of this machine if one is given, and by TLS if that is given.
    pub fn connect(
        origin: u16,
        (from, to): (Option<IpAddr>, SocketAddr),
        tls: Option<UnbufferedClientConnection>,
    ) -> rustix::io::Result<Link> {
        let family = match to {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        if let Some(from) = from {
            bind(&socket, &SocketAddr::new(from, 0))?;
        }
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        Ok(Link {
            socket,
            tls: tls.map(|tls| Box::new(Session::new(tls))),
            origin,
            task: None,
            out: Vec::new(),
            received: Vec::new(),
            step: Step::Connecting,
            requests: 0,
            interims: 0,
        })
    }

    /// Whether the connection stands, once epoll has said something.
    pub fn connected(&mut self) -> Result<bool, Broken> {
        if let Err(error) = sockopt::socket_error(&self.socket)? {
            return Err(Broken::Socket(error));
        }
        match &mut self.tls {
            Some(tls) => tls.shake(&self.socket),
            None => Ok(true),
        }
    }

    /// Whether the origin has said something unasked, or has closed. What comes next would be taken for its response.
    pub fn is_spoilt(&mut self) -> bool {
        let received = self.receive(&mut [IoSliceMut::new(&mut [0])]);
        !matches!(received, Err(Errno::AGAIN))
    }

    /// What the operator is told if the origin closes now; `None`: it may, as after a response and while nothing is asked.
    pub fn why_gone(&self) -> Option<&'static str> {
        match &self.step {
            // On a connection that was used before, the request and the end may have met.
            Step::Head(_) if self.requests > 1 && self.received.is_empty() => None,
            Step::Idle if self.requests > 0 => None,
            Step::Head(_) | Step::Idle => Some(NO_ANSWER),
            Step::Body { skipped: false, .. } => Some("it broke off in the middle of a response"),
            Step::Body { .. } | Step::Connecting => None,
        }
    }

    /// What the operator is told if the origin has been silent for too long.
    pub fn why_silent(&self) -> Option<&'static str> {
        match &self.step {
            Step::Connecting => Some("no connection came about in time"),
            Step::Head(_) => Some("it does not answer in time"),
            Step::Body { .. } => Some("it stopped in the middle of a response"),
            Step::Idle => None,
        }
    }

    /// Sends a request.
    pub fn ask(&mut self, task: TaskId, asked: Asked, request: Vec<u8>) -> Result<(), Broken> {
        (self.task, self.step, self.interims) = (Some(task), Step::Head(asked), 0);
        self.requests += 1;
        match &mut self.tls {
            Some(tls) => tls.send(&self.socket, request),
            None => {
                self.out = request;
                Ok(self.flush()?)
            }
        }
    }

    /// Sends what is left of the request, as far as the socket takes it.
    pub fn flush(&mut self) -> rustix::io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.flush(&self.socket),
            None => send_all(&self.socket, &mut self.out),
        }
    }

    /// Receives into memory, wherever it lies; 0 is the end.
    pub fn receive(&mut self, into: &mut [IoSliceMut<'_>]) -> rustix::io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            return tls
                .receive(&self.socket, into)
                .map_err(|broken| match broken {
                    Broken::Socket(error) => error,
                    // The end of the bytes may not be the end of the response.
                    Broken::Tls(_) | Broken::Cut => Errno::CONNABORTED,
                });
        }
        loop {
            let mut none = RecvAncillaryBuffer::default();
            match recvmsg(&self.socket, into, &mut none, RecvFlags::DONTWAIT) {
                Err(Errno::INTR) => {}
                received => return received.map(|received| received.bytes),
            }
        }
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
