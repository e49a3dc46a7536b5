//! The connection to the target: what the session orders, sends and receives, by calls that never wait.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_wire::iscsi::session::Output;
use ackpace_wire::iscsi::{Session, TaskId, crc};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::tasks::Tasks;

/// Calls of recv(2) and send(2) of one turn. More: the kernel's requests are looked at first.
const CALLS_A_TURN: usize = 64;
/// Bytes of what belongs to no task, of which one call takes so many.
const SCRAP_BYTES: usize = 4096;

/// What is being sent.
struct Sending {
    output: Output,
    /// Bytes of it that are gone.
    sent_bytes: usize,
    /// CRC32C of the payload, if it is needed.
    crc: u32,
}

enum Socket {
    None,
    /// connect(2) is under way; other addresses of the target are left.
    Opening(OwnedFd),
    Open(OwnedFd),
}

/// The connection.
pub struct Link {
    socket: Socket,
    sending: Option<Sending>,
    /// The session may have more to send.
    has_more: bool,
    /// Addresses that were not tried yet in this attempt.
    left: VecDeque<SocketAddr>,
    scrap: [u8; SCRAP_BYTES],
}

impl Link {
    /// There is none yet.
    pub fn new() -> Link {
        Link {
            socket: Socket::None,
            sending: None,
            has_more: false,
            left: VecDeque::new(),
            scrap: [0; SCRAP_BYTES],
        }
    }

    /// For poll(2): the socket, and whether it is waited for until it takes bytes.
    pub fn wants(&self) -> Option<(BorrowedFd<'_>, bool)> {
        match &self.socket {
            Socket::None => None,
            Socket::Opening(socket) => Some((socket.as_fd(), true)),
            Socket::Open(socket) => Some((socket.as_fd(), self.sending.is_some() || self.has_more)),
        }
    }

    /// The task whose payload is being sent: its memory has to stay.
    pub fn sends(&self) -> Option<TaskId> {
        match &self.sending.as_ref()?.output {
            Output::Pdu(send) => send.payload().map(|payload| payload.task),
            Output::Bytes(_) => None,
        }
    }

    /// Opens a connection to the first of these addresses that takes one.
    pub fn open(&mut self, addresses: Vec<SocketAddr>, session: &mut Session, now_us: u64) {
        self.close();
        self.left = addresses.into();
        self.open_next("its name has no address", session, now_us);
    }

    /// Closes it, whatever it was doing.
    pub fn close(&mut self) {
        self.socket = Socket::None;
        self.sending = None;
        self.left.clear();
    }

    fn open_next(&mut self, why: &str, session: &mut Session, now_us: u64) {
        let mut why = why.to_owned();
        while let Some(address) = self.left.pop_front() {
            match connect(address) {
                Ok(socket) => {
                    self.socket = Socket::Opening(socket);
                    return;
                }
                Err(error) => why = format!("{address}: {error}"),
            }
        }
        self.lost(&why, session, now_us);
    }

    fn lost(&mut self, why: &str, session: &mut Session, now_us: u64) {
        self.close();
        session.lost(why, now_us);
    }

    /// poll(2) has reported something.
    pub fn turn(&mut self, session: &mut Session, tasks: &mut Tasks, now_us: u64) {
        match std::mem::replace(&mut self.socket, Socket::None) {
            Socket::None => {}
            Socket::Opening(socket) => match net::sockopt::socket_error(&socket) {
                Ok(Ok(())) if net::getpeername(&socket).is_ok() => {
                    self.socket = Socket::Open(socket);
                    session.connected(now_us);
                }
                // Nothing is decided yet.
                Ok(Ok(())) => self.socket = Socket::Opening(socket),
                Ok(Err(error)) | Err(error) => {
                    let cure = match error {
                        Errno::CONNREFUSED => {
                            ": is the target running, and on this port (3260 if none is given)?"
                        }
                        _ => "",
                    };
                    self.open_next(&format!("{error}{cure}"), session, now_us);
                }
            },
            Socket::Open(socket) => {
                self.socket = Socket::Open(socket);
                self.receive(session, tasks, now_us);
            }
        }
    }

    fn receive(&mut self, session: &mut Session, tasks: &mut Tasks, now_us: u64) {
        for _ in 0..CALLS_A_TURN {
            let Socket::Open(socket) = &self.socket else {
                return;
            };
            let wants = session.wants();
            let scrap_bytes = wants.len_bytes.min(SCRAP_BYTES);
            let into = match wants.place {
                Some(place) => tasks.place_mut(place, wants.len_bytes),
                None => Some(&mut self.scrap[..scrap_bytes]),
            };
            let Some(into) = into else {
                return self.lost("it sent bytes that nobody asked for", session, now_us);
            };
            match net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return self.lost("it closed the connection", session, now_us),
                Ok((len_bytes, _)) => session.receive(&into[..len_bytes], now_us),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => return self.lost(&error.to_string(), session, now_us),
            }
            // An answer frees its task before more is placed.
            tasks.hear(session, self.sends());
        }
    }

    /// Sends what the session has, until the socket is full.
    pub fn send(&mut self, session: &mut Session, tasks: &mut Tasks, now_us: u64) {
        self.has_more = false;
        for _ in 0..CALLS_A_TURN {
            let Socket::Open(socket) = &self.socket else {
                return;
            };
            if self.sending.is_none() {
                self.sending = session.to_send().map(|output| Sending::new(output, tasks));
            }
            let Some(sending) = &mut self.sending else {
                return;
            };
            match sending.send(socket, tasks) {
                Ok(false) => {}
                Ok(true) => {
                    self.sending = None;
                    tasks.sent();
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Err(error) => return self.lost(&error.to_string(), session, now_us),
            }
        }
        self.has_more = true;
    }
}

impl Sending {
    fn new(output: Output, tasks: &Tasks) -> Sending {
        let crc = match &output {
            Output::Pdu(send) if send.needs_crc() => send
                .payload()
                .map_or(0, |payload| crc::of(tasks.payload(payload))),
            _ => 0,
        };
        Sending {
            output,
            sent_bytes: 0,
            crc,
        }
    }

    /// Sends more of it; `true`: that was the rest.
    fn send(&mut self, socket: &OwnedFd, tasks: &Tasks) -> Result<bool, Errno> {
        let tail;
        let parts: [&[u8]; 3] = match &self.output {
            Output::Bytes(bytes) => [bytes, &[], &[]],
            Output::Pdu(send) => {
                tail = send.tail(self.crc);
                let payload = send.payload().map_or(&[][..], |it| tasks.payload(it));
                [send.header(), payload, tail.bytes()]
            }
        };
        let mut skipped_bytes = self.sent_bytes;
        let mut left_bytes = 0;
        let rest = parts.map(|part| {
            let skips_bytes = skipped_bytes.min(part.len());
            skipped_bytes -= skips_bytes;
            left_bytes += part.len() - skips_bytes;
            IoSlice::new(&part[skips_bytes..])
        });
        let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        if matches!(&self.output, Output::Pdu(send) if send.goes_on()) {
            flags |= SendFlags::MORE; // targets ask for PDUs of 8 KiB, and each would be a packet
        }
        let sent_bytes = net::sendmsg(socket, &rest, &mut Default::default(), flags)?;
        self.sent_bytes += sent_bytes;
        Ok(sent_bytes == left_bytes)
    }
}

/// Begins to connect.
fn connect(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address.is_ipv4() {
        true => AddressFamily::INET,
        false => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::sockopt::set_tcp_nodelay(&socket, true)?;
    match net::connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}
