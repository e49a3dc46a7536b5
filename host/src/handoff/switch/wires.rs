//! The sockets by which held packets leave, and what devices there are.
//!
//! A held packet leaves by a packet socket with a mark: the program on the device's way out sends it to the peer, or turns it round
//! into the own stack, so it takes the way of all others.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use ackpace_host_base::failure::Failure;
use rustix::net::{AddressFamily, SendFlags, SocketType, sockopt};

use super::frame::HEAD_BYTES;

/// `RELEASED`.
const RELEASED: u32 = 0xac4b_ace1;
/// What may wait for a peer's MAC.
const SEND_BYTES: usize = 4 << 20;

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
}

/// The Ethernet devices that are up, in this thread's network namespace.
///
/// # Errors
/// As if_nameindex(3) and netdevice(7).
pub fn ethernet() -> io::Result<Vec<Device>> {
    // SAFETY: no arguments.
    let first = unsafe { libc::if_nameindex() };
    if first.is_null() {
        return Err(io::Error::last_os_error());
    }
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let mut devices = Vec::new();
    for at in 0.. {
        // SAFETY: the list ends with an index of 0, and `at` does not go beyond that.
        let one = unsafe { &*first.add(at) };
        if one.if_index == 0 {
            break;
        }
        // SAFETY: a name that ends in zero, until the list is freed.
        let name = unsafe { CStr::from_ptr(one.if_name) };
        if is_ethernet_and_up(&socket, name) {
            devices.push(Device {
                index: one.if_index,
                name: name.to_string_lossy().into_owned(),
            });
        }
    }
    // SAFETY: it came from if_nameindex, and nothing of it is used any more.
    unsafe { libc::if_freenameindex(first) };
    Ok(devices)
}

fn is_ethernet_and_up(socket: &OwnedFd, name: &CStr) -> bool {
    // SAFETY: plain numbers, for which zeros are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in asked.ifr_name.iter_mut().zip(name.to_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: both calls read the name and write into `asked`, and each field is read after the call that writes it.
    unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut asked) == 0
            && i32::from(asked.ifr_ifru.ifru_flags) & libc::IFF_UP != 0
            && libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut asked) == 0
            && asked.ifr_ifru.ifru_hwaddr.sa_family == libc::ARPHRD_ETHER
    }
}

/// The sockets.
pub struct Wires {
    packets: OwnedFd,
    ipv4: OwnedFd,
    /// `None`: this kernel has no IPv6.
    ipv6: Option<OwnedFd>,
}

impl Wires {
    /// Opens them.
    ///
    /// # Errors
    /// It takes CAP_NET_RAW and CAP_NET_ADMIN.
    pub fn open() -> Result<Wires, Failure> {
        let open = || -> io::Result<Wires> {
            let raw = Some(rustix::net::ipproto::RAW);
            Ok(Wires {
                packets: packet_socket()?,
                ipv4: rustix::net::socket(AddressFamily::INET, SocketType::RAW, raw)?,
                ipv6: rustix::net::socket(AddressFamily::INET6, SocketType::RAW, raw).ok(),
            })
        };
        open().map_err(|error| {
            Failure::operator(format!(
                "sockets for held packets: {error}; they need CAP_NET_RAW and CAP_NET_ADMIN"
            ))
        })
    }

    /// Sends a frame again, to where its flow is by now. `head`: what the kernel has still to do.
    ///
    /// # Errors
    /// As packet(7).
    pub fn send(&self, device: u32, head: &[u8; HEAD_BYTES], frame: &[u8]) -> io::Result<()> {
        // SAFETY: plain numbers, for which zeros are valid.
        let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        to.sll_family = libc::AF_PACKET as u16;
        to.sll_ifindex = device as i32;
        let kind = frame.get(12..14).and_then(|kind| kind.first_chunk());
        to.sll_protocol = u16::from_ne_bytes(kind.copied().unwrap_or_default());
        let bytes = [head, frame].concat();
        // SAFETY: the kernel reads the bytes and the address, both of the length that is told.
        let sent = unsafe {
            libc::sendto(
                self.packets.as_raw_fd(),
                bytes.as_ptr().cast(),
                bytes.len(),
                libc::MSG_DONTWAIT,
                (&raw const to).cast(),
                size_of::<libc::sockaddr_ll>() as u32,
            )
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Sends an IP packet to an address of this node, by the loopback.
    ///
    /// # Errors
    /// As raw(7).
    pub fn inject(&self, to: IpAddr, packet: &[u8]) -> io::Result<()> {
        let socket = match to {
            IpAddr::V4(_) => Some(&self.ipv4),
            IpAddr::V6(_) => self.ipv6.as_ref(),
        };
        let socket = socket.ok_or(io::ErrorKind::Unsupported)?;
        let to = SocketAddr::new(to, 0);
        rustix::net::sendto(socket, packet, SendFlags::DONTWAIT, &to)?;
        Ok(())
    }
}

/// One that sends alone.
fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was opened just now, for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_MARK, RELEASED)?;
    sockopt::set_socket_send_buffer_size_force(&socket, SEND_BYTES)?;
    Ok(socket)
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: u32) -> io::Result<()> {
    // SAFETY: the kernel reads a number of the length that is told.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<u32>() as u32,
        )
    };
    if set < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
