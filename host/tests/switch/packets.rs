//! Packets of TCP and ICMP, as a client may send them, and what comes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use ackpace_wire::cluster::Tuple;
use rustix::net::{AddressFamily, RecvFlags, SocketType};

use crate::world::{CLIENT, DEVICE, PORT, World, address, vip};

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const ACK: u8 = 16;
const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A connection of the client by this port.
pub fn tuple(is_ipv6: bool, port: u16) -> Tuple {
    Tuple {
        client: SocketAddr::new(address(CLIENT, is_ipv6), port),
        server: SocketAddr::new(vip(is_ipv6), PORT),
    }
}

/// What stands in a TCP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
}

/// A packet of TCP from one end to the other.
pub fn tcp(from: SocketAddr, to: SocketAddr, said: Said, payload: &[u8]) -> Vec<u8> {
    tcp_with(from, to, said, &[], payload)
}

/// The same with options, of a multiple of four bytes.
pub fn tcp_with(
    from: SocketAddr,
    to: SocketAddr,
    said: Said,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut tcp = Vec::new();
    tcp.extend(from.port().to_be_bytes());
    tcp.extend(to.port().to_be_bytes());
    tcp.extend(said.seq.to_be_bytes());
    tcp.extend(said.ack.to_be_bytes());
    let words = 5 + options.len() as u8 / 4;
    tcp.extend([words << 4, said.flags, 1, 0, 0, 0, 0, 0]);
    tcp.extend(options);
    tcp.extend(payload);
    put_sum(&mut tcp, 16, from.ip(), to.ip(), TCP);
    ip(from.ip(), to.ip(), TCP, 64, &tcp)
}

/// One from the client.
pub fn of_client(tuple: &Tuple, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let said = Said { seq, ack, flags };
    tcp(tuple.client, tuple.server, said, payload)
}

/// An IP packet.
pub fn ip(from: IpAddr, to: IpAddr, protocol: u8, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = (20 + payload.len()) as u16;
            let mut head = vec![0x45, 0];
            head.extend(total.to_be_bytes());
            head.extend([0, 0, 0x40, 0, ttl, protocol, 0, 0]);
            head.extend(from.octets());
            head.extend(to.octets());
            let whole = !sum(&head);
            head[10..12].copy_from_slice(&whole.to_be_bytes());
            head
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut head = vec![0x60, 0, 0, 0];
            head.extend((payload.len() as u16).to_be_bytes());
            head.extend([protocol, ttl]);
            head.extend(from.octets());
            head.extend(to.octets());
            head
        }
        _ => panic!("two kinds of addresses"),
    };
    packet.extend(payload);
    packet
}

/// A router's "packet too big" about a packet that the VIP has sent.
pub fn too_big(tuple: &Tuple, router: IpAddr) -> Vec<u8> {
    let said = Said {
        seq: 7,
        ack: 8,
        flags: ACK,
    };
    let inner = tcp(tuple.server, tuple.client, said, b"");
    let (kind, protocol) = match router {
        IpAddr::V4(_) => ([3, 4, 0, 0, 0, 0, 5, 0], ICMP),
        IpAddr::V6(_) => ([2, 0, 0, 0, 0, 0, 5, 0], ICMPV6),
    };
    let mut icmp = kind.to_vec();
    icmp.extend(inner);
    match router {
        IpAddr::V4(_) => {
            let whole = !sum(&icmp);
            icmp[2..4].copy_from_slice(&whole.to_be_bytes());
        }
        IpAddr::V6(_) => put_sum(&mut icmp, 2, router, tuple.server.ip(), ICMPV6),
    }
    ip(router, tuple.server.ip(), protocol, 64, &icmp)
}

fn put_sum(bytes: &mut [u8], at: usize, from: IpAddr, to: IpAddr, protocol: u8) {
    let mut covered = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (IpAddr::V6(from), IpAddr::V6(to)) => [from.octets(), to.octets()].concat(),
        _ => panic!("two kinds of addresses"),
    };
    covered.extend((bytes.len() as u32).to_be_bytes());
    covered.extend([0, 0, 0, protocol]);
    covered.extend(&*bytes);
    let whole = !sum(&covered);
    bytes[at..at + 2].copy_from_slice(&whole.to_be_bytes());
}

fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([word[0], low]))
    });
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// Whether TCP's checksum of an IP packet is right.
pub fn is_whole(packet: &[u8]) -> bool {
    let (from, to, at): (IpAddr, IpAddr, usize) = match packet[0] >> 4 {
        4 => {
            let address = |at: usize| packet[at..].first_chunk::<4>().copied().expect("whole");
            (address(12).into(), address(16).into(), 20)
        }
        _ => {
            let address = |at: usize| packet[at..].first_chunk::<16>().copied().expect("whole");
            (address(8).into(), address(24).into(), 40)
        }
    };
    let mut tcp = packet[at..].to_vec();
    let told = [tcp[16], tcp[17]];
    tcp[16..18].copy_from_slice(&[0, 0]);
    put_sum(&mut tcp, 16, from, to, TCP);
    told == [tcp[16], tcp[17]]
}

/// Sends IP packets as they are.
pub struct Sends(OwnedFd, u32);

impl Sends {
    /// From a namespace, to the MAC of another one.
    pub fn from(world: &World, number: usize) -> Sends {
        world.within(number, || Sends(packet_socket(0), index()))
    }

    /// To a MAC.
    pub fn send(&self, to: [u8; 6], packet: &[u8]) {
        let kind: u16 = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
        let mut frame = to.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1]);
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        self.send_frame(&frame);
    }

    pub fn send_frame(&self, frame: &[u8]) {
        // SAFETY: plain numbers.
        let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        at.sll_family = libc::AF_PACKET as u16;
        at.sll_ifindex = self.1 as i32;
        at.sll_protocol = u16::from_ne_bytes([frame[12], frame[13]]);
        let len = size_of::<libc::sockaddr_ll>() as u32;
        let bytes = frame.as_ptr().cast();
        // SAFETY: both are as long as is told.
        let sent = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                bytes,
                frame.len(),
                0,
                (&raw const at).cast(),
                len,
            )
        };
        assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
    }
}

/// The MAC of a namespace's device.
pub fn mac(world: &World, number: usize) -> [u8; 6] {
    world.within(number, || {
        // SAFETY: plain numbers.
        let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in asked.ifr_name.iter_mut().zip(DEVICE.bytes()) {
            *to = from as libc::c_char;
        }
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        // SAFETY: it reads the name and writes the address.
        let told = unsafe {
            libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut asked);
            asked.ifr_ifru.ifru_hwaddr.sa_data
        };
        std::array::from_fn(|at| told[at] as u8)
    })
}

/// What comes on the device of a namespace, before any program sees it.
pub struct Comes(OwnedFd);

/// A packet that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Came {
    pub to: [u8; 6],
    pub ttl: u8,
    pub packet: Vec<u8>,
}

impl Came {
    /// What TCP says.
    pub fn said(&self) -> Said {
        let at = if self.packet[0] >> 4 == 4 { 20 } else { 40 };
        said(&self.packet[at..])
    }
}

fn said(tcp: &[u8]) -> Said {
    let word = |from: usize| {
        let bytes = tcp[from..].first_chunk().copied();
        u32::from_be_bytes(bytes.expect("whole"))
    };
    Said {
        seq: word(4),
        ack: word(8),
        flags: tcp[13],
    }
}

impl Comes {
    /// Packets of one kind, from now on.
    pub fn to(world: &World, number: usize, is_ipv6: bool) -> Comes {
        let kind: u16 = if is_ipv6 { 0x86dd } else { 0x0800 };
        world.within(number, move || {
            let socket = packet_socket(kind.to_be());
            // SAFETY: plain numbers.
            let mut at: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
            at.sll_family = libc::AF_PACKET as u16;
            at.sll_ifindex = index() as i32;
            at.sll_protocol = kind.to_be();
            let len = size_of::<libc::sockaddr_ll>() as u32;
            // SAFETY: it is as long as is told.
            let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const at).cast(), len) };
            assert_eq!(bound, 0);
            Comes(socket)
        })
    }

    /// TCP of a flow in either direction that comes within a time, until there are so many.
    pub fn of(&self, tuple: &Tuple, count: usize, within: Duration) -> Vec<Came> {
        let until = Instant::now() + within;
        let mut came = Vec::new();
        while came.len() < count {
            let Some(frame) = self.next(until) else {
                break;
            };
            came.extend(one_of(tuple, &frame));
        }
        came
    }

    /// Anything that comes and fits.
    pub fn any(&self, within: Duration, fits: impl Fn(&[u8]) -> bool) -> bool {
        let until = Instant::now() + within;
        while let Some(frame) = self.next(until) {
            if fits(&frame[14..]) {
                return true;
            }
        }
        false
    }

    fn next(&self, until: Instant) -> Option<Vec<u8>> {
        let mut poll = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: one descriptor.
        let ready = unsafe { libc::poll(&raw mut poll, 1, left.as_millis() as i32) };
        if ready <= 0 {
            return None;
        }
        let mut frame = vec![0; 70_000];
        // SAFETY: at most as much as is told.
        let read = unsafe {
            libc::recv(
                self.0.as_raw_fd(),
                frame.as_mut_ptr().cast(),
                frame.len(),
                0,
            )
        };
        frame.truncate(read.max(0) as usize);
        Some(frame)
    }
}

fn one_of(tuple: &Tuple, frame: &[u8]) -> Option<Came> {
    let packet = frame.get(14..)?;
    let (protocol, ttl, at, from, to): (u8, u8, usize, IpAddr, IpAddr) = match packet[0] >> 4 {
        4 => {
            let address = |at: usize| packet[at..].first_chunk::<4>().copied();
            (
                packet[9],
                packet[8],
                20,
                address(12)?.into(),
                address(16)?.into(),
            )
        }
        _ => {
            let address = |at: usize| packet[at..].first_chunk::<16>().copied();
            (
                packet[6],
                packet[7],
                40,
                address(8)?.into(),
                address(24)?.into(),
            )
        }
    };
    if protocol != TCP {
        return None;
    }
    let port = |at: usize| packet[at..].first_chunk().copied().map(u16::from_be_bytes);
    let ends = (
        SocketAddr::new(from, port(at)?),
        SocketAddr::new(to, port(at + 2)?),
    );
    let is_it = ends == (tuple.client, tuple.server) || ends == (tuple.server, tuple.client);
    is_it.then(|| Came {
        to: frame[..6].try_into().expect("six"),
        ttl,
        packet: packet.to_vec(),
    })
}

fn packet_socket(protocol: u16) -> OwnedFd {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol)) };
    assert!(socket >= 0, "{}", io::Error::last_os_error());
    // SAFETY: opened just now.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20).expect("root may");
    socket
}

fn index() -> u32 {
    let name = std::ffi::CString::new(DEVICE).expect("no zero");
    // SAFETY: a name that ends in zero.
    unsafe { libc::if_nametoindex(name.as_ptr()) }
}

/// All of TCP that comes into the stack of a node.
pub struct Stack(OwnedFd, bool);

impl Stack {
    pub fn of(world: &World, number: usize, is_ipv6: bool) -> Stack {
        world.within(number, move || {
            let tcp = Some(rustix::net::ipproto::TCP);
            let family = if is_ipv6 {
                AddressFamily::INET6
            } else {
                AddressFamily::INET
            };
            let socket = rustix::net::socket(family, SocketType::RAW, tcp).expect("root may");
            rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 4 << 20)
                .expect("root may");
            Stack(socket, is_ipv6)
        })
    }

    /// What has come from this port.
    pub fn came(&self, port: u16) -> Vec<Said> {
        std::thread::sleep(Duration::from_millis(200));
        let mut bytes = [0; 4_096];
        let mut came = Vec::new();
        while let Ok((_, read)) = rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT) {
            // Only IPv4 tells the IP header, too.
            let at = if self.1 {
                0
            } else {
                usize::from(bytes[0] & 15) * 4
            };
            let tcp = &bytes[at..read];
            if tcp[..2] == port.to_be_bytes() {
                came.push(said(tcp));
            }
        }
        came
    }
}
