//! The line to `ackpace-host handoff` on this machine, which has the rights that it takes to move a connection. Each question
//! waits for its answer: some 20 to 200 us.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ackpace_wire::cluster::Tuple;
use ackpace_wire::cluster::broker::{
    Connection, Hello, Lease, Reply, Request, Tracked, VERSION, encode_request, parse_reply,
};
use ackpace_wire::limits::{BROKER_DATAGRAM_BYTES_MAX, BROKER_LEASES_MAX};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect, recvmsg, sendmsg, socket_with, sockopt,
};

/// How long an answer may take. Longer: the broker hangs, and requests are relayed.
const ANSWER: Duration = Duration::from_millis(200);

/// A broker that answered once.
pub struct Broker {
    line: OwnedFd,
    pub hello: Hello,
    last: u64,
    buffer: Box<[u8]>,
}

/// What went wrong: with the question alone, or with the line.
#[derive(Debug)]
pub enum Failed {
    /// The broker says why not.
    Refused(String),
    /// It does not answer, or not as it should: it is of no use any more.
    Gone(io::Error),
}

impl<E: Into<io::Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        Failed::Gone(error.into())
    }
}

fn odd(what: &str) -> Failed {
    Failed::Gone(io::Error::other(what.to_owned()))
}

impl Broker {
    /// Connects to the broker of this machine.
    pub fn connect(path: &Path) -> Result<Broker, Failed> {
        let kind = SocketType::SEQPACKET;
        let line = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&line, timeout, Some(ANSWER))?;
        }
        connect(&line, &SocketAddrUnix::new(path)?)?;
        let mut broker = Broker {
            line,
            hello: Hello::default(),
            last: 0,
            buffer: vec![0; BROKER_DATAGRAM_BYTES_MAX].into(),
        };
        match broker.ask(&Request::Hello { version: VERSION }, None)? {
            (Reply::Hello(hello), None) if hello.version == VERSION => {
                broker.hello = hello;
                Ok(broker)
            }
            _ => Err(odd("it speaks another version")),
        }
    }

    /// Freezes a socket. Returns its connection, and how many bytes it has been given and not sent.
    pub fn freeze(
        &mut self,
        socket: BorrowedFd<'_>,
        epoch: u32,
        una_floor: Option<u32>,
    ) -> Result<(Box<Connection>, u64), Failed> {
        match self.ask(&Request::Freeze { epoch, una_floor }, Some(socket))? {
            (
                Reply::Saved {
                    connection,
                    unsent_bytes,
                },
                None,
            ) => Ok((connection, unsent_bytes.into())),
            _ => Err(odd("it answers something else than it was asked")),
        }
    }

    pub fn thaw(&mut self, socket: BorrowedFd<'_>) -> Result<(), Failed> {
        self.done(&Request::Thaw, Some(socket))
    }

    /// A socket of this connection, which is to be filled.
    pub fn restore(&mut self, epoch: u32, connection: Connection) -> Result<OwnedFd, Failed> {
        let connection = Box::new(connection);
        match self.ask(&Request::Restore { epoch, connection }, None)? {
            (Reply::Restored, Some(socket)) => Ok(socket),
            _ => Err(odd("it answers something else than it was asked")),
        }
    }

    pub fn start(
        &mut self,
        socket: BorrowedFd<'_>,
        epoch: u32,
        lease_until_ns: Option<u64>,
    ) -> Result<(), Failed> {
        let start = Request::Start {
            epoch,
            lease_until_ns,
        };
        self.done(&start, Some(socket))
    }

    /// Sends the client's packets to a peer from now on; the frozen socket may be closed then.
    pub fn redirect(
        &mut self,
        socket: BorrowedFd<'_>,
        epoch: u32,
        peer: u16,
    ) -> Result<u32, Failed> {
        match self.ask(&Request::Redirect { epoch, peer }, Some(socket))? {
            (Reply::Redirected { held }, None) => Ok(held),
            _ => Err(odd("it answers something else than it was asked")),
        }
    }

    pub fn leases(&mut self, leases: &mut Vec<Lease>) -> Result<(), Failed> {
        while !leases.is_empty() {
            let rest = leases.split_off(leases.len().min(BROKER_LEASES_MAX));
            let some = std::mem::replace(leases, rest);
            self.done(&Request::Lease(some), None)?;
        }
        Ok(())
    }

    pub fn fence(&mut self, tuple: Tuple, epoch: u32) -> Result<(), Failed> {
        self.done(&Request::Fence { tuple, epoch }, None)
    }

    pub fn track(&mut self, tuple: Tuple) -> Result<Option<Tracked>, Failed> {
        match self.ask(&Request::Track(tuple), None)? {
            (Reply::Tracked(tracked), None) => Ok(tracked),
            _ => Err(odd("it answers something else than it was asked")),
        }
    }

    pub fn forget(&mut self, tuple: Tuple) -> Result<(), Failed> {
        self.done(&Request::Forget(tuple), None)
    }

    fn done(&mut self, request: &Request, socket: Option<BorrowedFd<'_>>) -> Result<(), Failed> {
        match self.ask(request, socket)? {
            (Reply::Done, None) => Ok(()),
            _ => Err(odd("it answers something else than it was asked")),
        }
    }

    fn ask(
        &mut self,
        request: &Request,
        socket: Option<BorrowedFd<'_>>,
    ) -> Result<(Reply, Option<OwnedFd>), Failed> {
        self.last += 1;
        let id = self.last;
        let datagram = encode_request(id, request);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let sockets: Vec<BorrowedFd<'_>> = socket.into_iter().collect();
        if !sockets.is_empty() {
            beside.push(SendAncillaryMessage::ScmRights(&sockets));
        }
        let slices = [IoSlice::new(&datagram)];
        sendmsg(&self.line, &slices, &mut beside, SendFlags::NOSIGNAL)?;
        self.answer(id)
    }

    fn answer(&mut self, id: u64) -> Result<(Reply, Option<OwnedFd>), Failed> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut self.buffer)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let came = recvmsg(self.line.as_fd(), &mut slices, &mut beside, flags)?;
        let socket = beside.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        let cut = ReturnFlags::TRUNC | ReturnFlags::CTRUNC;
        if came.bytes == 0 || came.flags.intersects(cut) {
            return Err(odd("it closed the connection"));
        }
        match parse_reply(&self.buffer[..came.bytes]) {
            Ok((of, Reply::Failed { text, .. })) if of == id => Err(Failed::Refused(text)),
            Ok((of, reply)) if of == id => Ok((reply, socket)),
            _ => Err(odd("it answers something else than it was asked")),
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Refused(why) => f.write_str(why),
            Failed::Gone(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "{error}; name this server's user by its --for USER")
            }
            Failed::Gone(error) => error.fmt(f),
        }
    }
}
