//! The TCP sockets of a network namespace, read from the kernel (sock_diag(7)): listeners, bytes in send
//! queues, and the congestion control actually in use.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_wire::tcp_info::TcpInfo;
use rustix::fd::OwnedFd;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use std::net::IpAddr;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST_DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const HEADER_LEN: usize = 16;
/// struct inet_diag_req_v2 and inet_diag_msg of linux/inet_diag.h.
const REQUEST_LEN: usize = 56;
const MESSAGE_LEN: usize = 72;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
/// Offset of SK_MEMINFO_WMEM_QUEUED.
const WMEM_QUEUED_AT: usize = 5 * 4;
const TCP_ESTABLISHED: u32 = 1;
const TCP_LISTEN: u32 = 10;
const ANSWER_LEN_BYTES: usize = 256 << 10;

/// A netlink socket for the sockets of the network namespace in which it was opened.
pub struct Sockets {
    netlink: OwnedFd,
}

/// The established connections of one port at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    /// Number of connections.
    pub connections: usize,
    /// Sum of their sk_wmem_queued: memory of data that is written and not yet ACKed.
    pub queued_bytes: u64,
    /// Bytes written and not yet sent, as by SIOCOUTQNSD.
    pub unsent_bytes: u64,
    /// Names of the congestion controls in use, each once.
    pub congestion_controls: Vec<String>,
}

impl Sockets {
    /// Opens it in the network namespace of the calling thread.
    pub fn open() -> Result<Self> {
        let netlink = socket_with(
            AddressFamily::NETLINK,
            SocketType::DGRAM,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        );
        Ok(Self {
            netlink: netlink.doing(|| "sock_diag".into())?,
        })
    }

    /// True if a socket listens on the port.
    pub fn listening(&self, port: u16) -> Result<bool> {
        let mut found = false;
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            self.each(family, port, 1 << TCP_LISTEN, |_| found = true)?;
        }
        Ok(found)
    }

    /// The send queues of the server on this address and port.
    pub fn queues(&self, address: IpAddr, port: u16) -> Result<Queues> {
        let family = match address {
            IpAddr::V4(_) => AddressFamily::INET,
            IpAddr::V6(_) => AddressFamily::INET6,
        };
        let mut queues = Queues::default();
        self.each(family, port, 1 << TCP_ESTABLISHED, |socket| {
            queues.connections += 1;
            queues.queued_bytes += u64::from(socket.queued_bytes);
            queues.unsent_bytes += u64::from(socket.unsent_bytes);
            let known = |name: &String| name == &socket.congestion_control;
            if !queues.congestion_controls.iter().any(known) {
                queues.congestion_controls.push(socket.congestion_control);
            }
        })?;
        Ok(queues)
    }

    fn each(
        &self,
        family: AddressFamily,
        port: u16,
        states: u32,
        mut with: impl FnMut(Socket),
    ) -> Result<()> {
        let what = || "sock_diag".to_owned();
        let request = request(family.as_raw() as u8, port, states);
        send(&self.netlink, &request, SendFlags::empty()).doing(what)?;
        let mut answer = vec![0; ANSWER_LEN_BYTES];
        loop {
            let (len, _) = recv(&self.netlink, &mut answer[..], RecvFlags::empty()).doing(what)?;
            for message in messages(&answer[..len]) {
                match message {
                    Message::Socket(socket) => with(socket),
                    Message::Done => return Ok(()),
                    Message::Refused(errno) => {
                        return Err(std::io::Error::from_raw_os_error(errno)).doing(what);
                    }
                    Message::Unknown => {
                        return Err(LabError::Setup("sock_diag: not in the known form".into()));
                    }
                }
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Message {
    Socket(Socket),
    Done,
    Refused(i32),
    Unknown,
}

#[derive(Debug, Default, PartialEq)]
struct Socket {
    queued_bytes: u32,
    unsent_bytes: u32,
    congestion_control: String,
}

/// A request for all sockets with this local port in one of the states, including memory, TCP_INFO and
/// congestion control.
fn request(family: u8, port: u16, states: u32) -> Vec<u8> {
    let len = (HEADER_LEN + REQUEST_LEN) as u32;
    let mut bytes = Vec::with_capacity(len as usize);
    bytes.extend(len.to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST_DUMP.to_ne_bytes());
    bytes.extend([0; 8]); // sequence, port id
    let wanted = [INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO];
    let extensions = wanted.iter().fold(0u8, |bits, n| bits | (1 << (n - 1)));
    bytes.extend([family, libc::IPPROTO_TCP as u8, extensions, 0]);
    bytes.extend(states.to_ne_bytes());
    bytes.extend(port.to_be_bytes());
    bytes.resize(len as usize, 0); // any peer, address, interface
    let cookie = len as usize - 8; // INET_DIAG_NOCOOKIE
    bytes[cookie..].fill(0xff);
    bytes
}

/// Splits one answer into its netlink messages.
fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut found = Vec::new();
    while bytes.len() >= HEADER_LEN {
        let len = word(bytes, 0).unwrap_or(0) as usize;
        let Some(message) = bytes.get(HEADER_LEN..len) else {
            found.push(Message::Unknown);
            break;
        };
        found.push(match half(bytes, 4) {
            Some(NLMSG_DONE) => Message::Done,
            Some(NLMSG_ERROR) => {
                Message::Refused((word(message, 0).unwrap_or(0) as i32).wrapping_neg())
            }
            Some(SOCK_DIAG_BY_FAMILY) => socket(message).map_or(Message::Unknown, Message::Socket),
            _ => Message::Unknown,
        });
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn socket(message: &[u8]) -> Option<Socket> {
    let mut attributes = message.get(MESSAGE_LEN..)?;
    let mut socket = Socket::default();
    while attributes.len() >= 4 {
        let (len, kind) = (usize::from(half(attributes, 0)?), half(attributes, 2)?);
        let value = attributes.get(4..len)?;
        match kind {
            INET_DIAG_INFO => {
                socket.unsent_bytes = TcpInfo::parse(value).map_or(0, |info| info.notsent_bytes);
            }
            INET_DIAG_SKMEMINFO => socket.queued_bytes = word(value, WMEM_QUEUED_AT)?,
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                socket.congestion_control = String::from_utf8_lossy(name).into_owned();
            }
            _ => {}
        }
        attributes = attributes
            .get(len.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Some(socket)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    #[test]
    fn a_listener_and_what_waits_in_its_connection_are_seen() {
        let sockets = Sockets::open().unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(sockets.listening(port).unwrap());
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        while server.write(&[7; 65536]).is_ok() {} // the client never reads
        let queues = sockets.queues(Ipv4Addr::LOCALHOST.into(), port).unwrap();
        assert_eq!(queues.connections, 1);
        assert!(queues.queued_bytes > 65536, "{queues:?}");
        assert!(queues.unsent_bytes > 0, "{queues:?}");
        assert_eq!(queues.congestion_controls.len(), 1);
        drop(listener);
        // A process that another test has just forked holds a copy of the socket until it starts its program.
        let until = Instant::now() + Duration::from_secs(60);
        while sockets.listening(port).unwrap() {
            assert!(Instant::now() < until, "it is closed");
            std::thread::sleep(Duration::from_millis(5)); // between two looks
        }
    }

    #[test]
    fn broken_answers_are_refused_and_never_read_beyond_their_end() {
        let whole = request(2, 80, 2);
        for len in 0..whole.len() {
            let found = messages(&whole[..len]);
            assert!(
                found.iter().all(|message| *message == Message::Unknown),
                "{len}"
            );
        }
        assert_eq!(messages(&[0; 64])[0], Message::Unknown, "a length of 0");
        let mut error = vec![0; 20];
        error[0] = 20;
        error[4] = 2;
        error[16..].copy_from_slice(&(-13i32).to_ne_bytes());
        assert_eq!(messages(&error), [Message::Refused(13)]);
    }
}
