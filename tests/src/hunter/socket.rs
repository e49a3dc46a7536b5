//! Non-blocking connects.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::FromRawFd;

use crate::limit_receive_buffer;

/// Begins to connect, with this SO_RCVBUF.
///
/// # Errors
/// Of socket(2) and connect(2).
pub fn begin_connect(address: SocketAddr, receive_bytes: Option<usize>) -> io::Result<TcpStream> {
    let SocketAddr::V4(address) = address else {
        return Err(ErrorKind::Unsupported.into());
    };
    let flags = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_INET, flags, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to nobody else.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    if let Some(bytes) = receive_bytes {
        limit_receive_buffer(&stream, bytes);
    }
    let place = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes(address.ip().octets()),
        },
        sin_zero: [0; 8],
    };
    let len = size_of_val(&place) as libc::socklen_t;
    // SAFETY: the pointer and the length describe `place`.
    let result = unsafe { libc::connect(fd, (&raw const place).cast(), len) };
    let error = io::Error::last_os_error();
    if result != 0 && error.raw_os_error() != Some(libc::EINPROGRESS) {
        return Err(error);
    }
    Ok(stream)
}
