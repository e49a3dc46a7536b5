//! Options of TCP sockets that rustix has not, as `include/uapi/linux/tcp.h` has them.

use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use ackpace_wire::cluster::Tuple;
use rustix::net::{self, AddressFamily, SocketAddrAny, SocketType};

use super::Refused;

pub(super) use libc::{IPPROTO_TCP, SOL_SOCKET};

pub(super) const SO_BUF_LOCK: i32 = 72;
pub(super) const TCP_REPAIR_WINDOW: i32 = 29;
/// `TCP_REPAIR_OFF_NO_WP`: leaves repair without a probe of the client's window.
pub(super) const REPAIR_OFF_SILENT: i32 = -1;
pub(super) const REPAIR_OFF: i32 = 0;
pub(super) const REPAIR_ON: i32 = 1;
pub(super) const RECV_QUEUE: i32 = 1;
pub(super) const SEND_QUEUE: i32 = 2;
/// The least that TCP_MAXSEG takes (Linux's TCP_MIN_MSS).
const MAXSEG_BYTES_MIN: u32 = 88;
/// `TCP_CA_NAME_MAX`, and `TCP_ULP_NAME_MAX`.
const NAME_BYTES: usize = 16;

/// Values of options: numbers, or structures of them.
///
/// # Safety
/// Any bytes are a value, and a value has no padding.
pub(super) unsafe trait Plain: Copy {}
// SAFETY: numbers and arrays of bytes are.
unsafe impl Plain for u8 {}
// SAFETY: likewise.
unsafe impl Plain for i32 {}
// SAFETY: likewise.
unsafe impl Plain for u32 {}
// SAFETY: likewise.
unsafe impl Plain for u64 {}
// SAFETY: likewise.
unsafe impl<const N: usize> Plain for [u8; N] {}
// SAFETY: five u32.
unsafe impl Plain for Window {}
// SAFETY: two u32.
unsafe impl Plain for RepairOption {}

/// `struct tcp_repair_window`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub snd_wl1: u32,
    pub snd_wnd_bytes: u32,
    pub max_window_bytes: u32,
    pub rcv_wnd_bytes: u32,
    pub rcv_wup: u32,
}

/// `struct tcp_repair_opt`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepairOption {
    pub kind: u32,
    pub value: u32,
}

/// Sets an option. `what` names it for an error.
pub(super) fn set<T: Plain>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: T,
    what: &str,
) -> Result<(), Refused> {
    set_all(socket, level, option, &[value], what)
}

/// Sets an option whose value is a list.
pub(super) fn set_all<T: Plain>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    values: &[T],
    what: &str,
) -> Result<(), Refused> {
    let len = size_of_val(values) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which `values` has, all of them set.
    let done = unsafe {
        let values = values.as_ptr().cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, values, len)
    };
    match done {
        0 => Ok(()),
        _ => Err(Refused::os(what, io::Error::last_os_error())),
    }
}

/// Sets an option of TCP.
pub(super) fn set_tcp(
    socket: BorrowedFd<'_>,
    option: i32,
    value: i32,
    what: &str,
) -> Result<(), Refused> {
    set(socket, IPPROTO_TCP, option, value, what)
}

/// An option, whose value the kernel may leave shorter: the rest is zeros.
pub(super) fn get<T: Plain>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    what: &str,
) -> Result<T, Refused> {
    let (mut value, mut len) = (
        MaybeUninit::<T>::zeroed(),
        size_of::<T>() as libc::socklen_t,
    );
    // SAFETY: the kernel writes at most `len` bytes, which `value` has.
    let done = unsafe {
        let value = value.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut len)
    };
    match done {
        // SAFETY: zeros and what the kernel wrote are a value of any `Plain`.
        0 => Ok(unsafe { value.assume_init() }),
        _ => Err(Refused::os(what, io::Error::last_os_error())),
    }
}

/// Name of the socket's congestion control.
pub(super) fn congestion_control(socket: BorrowedFd<'_>) -> Result<String, Refused> {
    name(socket, libc::TCP_CONGESTION, "TCP_CONGESTION")
}

/// Name of the protocol above TCP, as "tls" is; empty without.
pub(super) fn upper_protocol(socket: BorrowedFd<'_>) -> Result<String, Refused> {
    name(socket, libc::TCP_ULP, "TCP_ULP")
}

fn name(socket: BorrowedFd<'_>, option: i32, what: &str) -> Result<String, Refused> {
    let name: [u8; NAME_BYTES] = get(socket, IPPROTO_TCP, option, what)?;
    let end = name.iter().position(|byte| *byte == 0);
    let name = &name[..end.unwrap_or(NAME_BYTES)];
    Ok(String::from_utf8_lossy(name).into_owned())
}

/// Selects a congestion control.
pub(super) fn set_congestion_control(socket: BorrowedFd<'_>, name: &str) -> Result<(), Refused> {
    let what = "TCP_CONGESTION";
    set_all(
        socket,
        IPPROTO_TCP,
        libc::TCP_CONGESTION,
        name.as_bytes(),
        what,
    )
}

/// The ends of a TCP socket. An IPv4 connection of an IPv6 socket is one of IPv4.
pub(super) fn tuple(socket: BorrowedFd<'_>) -> Result<Tuple, Refused> {
    let is_tcp = net::sockopt::socket_type(socket).is_ok_and(|it| it == SocketType::STREAM)
        && net::sockopt::socket_protocol(socket)
            .is_ok_and(|it| it.is_some_and(|it| it == net::ipproto::TCP));
    if !is_tcp {
        return Err(Refused::new("this is no TCP socket"));
    }
    let own = net::getsockname(socket).map_err(|error| Refused::os("getsockname", error.into()))?;
    let other = net::getpeername(socket);
    let other = other.map_err(|error| Refused::os("the socket is not connected", error.into()))?;
    let other = other.ok_or_else(|| Refused::new("this is no TCP socket"))?;
    Ok(Tuple {
        client: address(other)?,
        server: address(own)?,
    })
}

fn address(address: SocketAddrAny) -> Result<SocketAddr, Refused> {
    let ip = address.address_family() == AddressFamily::INET
        || address.address_family() == AddressFamily::INET6;
    let address = ip.then(|| SocketAddr::try_from(address).ok()).flatten();
    let address = address.ok_or_else(|| Refused::new("this is no TCP socket"))?;
    Ok(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// The length of a connection's segments.
///
/// # Errors
/// As getsockopt(2); or no other socket could have so short ones.
pub(super) fn mss_bytes(socket: BorrowedFd<'_>) -> Result<u16, Refused> {
    let mss: u32 = get(socket, IPPROTO_TCP, libc::TCP_MAXSEG, "TCP_MAXSEG")?;
    match mss >= MAXSEG_BYTES_MIN {
        true => Ok(u16::try_from(mss).unwrap_or(u16::MAX)),
        false => Err(Refused::new("its segments are too short")),
    }
}
