//! Sockets of clients: opening, watching and leaving.

use rustix::event::epoll;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::client::{Client, Interest};

/// Starts to connect a socket; also returns true if it is already connected.
pub fn connect(
    target: SocketAddr,
    source: Option<SocketAddr>,
    receive_buffer_bytes: Option<u32>,
) -> rustix::io::Result<(OwnedFd, bool)> {
    let family = match target {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(bytes) = receive_buffer_bytes {
        // Before connecting, because the window scale is negotiated then. Root may exceed rmem_max.
        if sockopt::set_socket_recv_buffer_size_force(&socket, bytes as usize).is_err() {
            sockopt::set_socket_recv_buffer_size(&socket, bytes as usize)?;
        }
    }
    if let Some(source) = source {
        // The kernel chooses the port when the target is known: a port may then serve many targets.
        no_port_at_bind(&socket)?;
        rustix::net::bind(&socket, &source)?;
    }
    match rustix::net::connect(&socket, &target) {
        Ok(()) => Ok((socket, true)),
        Err(Errno::INPROGRESS) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// Makes epoll watch the events that the client waits for now.
pub fn watch(
    set: &OwnedFd,
    index: u32,
    client: &mut Client,
    interest: Interest,
) -> rustix::io::Result<()> {
    let Some(socket) = &client.socket else {
        return Ok(());
    };
    if client.interest == interest {
        return Ok(());
    }
    let data = (u64::from(client.generation) << 32) | u64::from(index);
    let data = epoll::EventData::new_u64(data);
    let flags = match interest {
        Interest::None => epoll::EventFlags::empty(),
        Interest::Read => epoll::EventFlags::IN,
        Interest::Write => epoll::EventFlags::OUT,
    };
    match (client.interest, interest) {
        // Modifying to no events is not enough: epoll reports HUP and ERR anyway, again and again.
        (_, Interest::None) => epoll::delete(set, socket)?,
        (Interest::None, _) => epoll::add(set, socket, data, flags)?,
        _ => epoll::modify(set, socket, data, flags)?,
    }
    client.interest = interest;
    Ok(())
}

/// Takes the socket from the client; closing it also removes it from the epoll set.
pub fn take(client: &mut Client) -> Option<OwnedFd> {
    client.interest = Interest::None;
    client.generation = client.generation.wrapping_add(1);
    client.reused = false;
    client.low_water_bytes = 1;
    client.closing = false;
    client.socket.take()
}

/// Makes the end of the socket a reset. If this fails, an ordinary close follows, which also resets if there is unread data.
pub fn reset(socket: &OwnedFd) {
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Makes the socket wake the client only from `bytes` bytes on (SO_RCVLOWAT, socket(7)).
pub fn set_low_water(client: &mut Client, bytes: u32) {
    let Some(socket) = &client.socket else {
        return;
    };
    if bytes == client.low_water_bytes {
        return;
    }
    let value = bytes as libc::c_int;
    // SAFETY: the option's value is an int that outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVLOWAT,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    // If this is refused, the client just wakes more often.
    if done == 0 {
        client.low_water_bytes = bytes;
    }
}

/// Receives without blocking.
pub fn receive(socket: impl AsFd, room: &mut [u8]) -> rustix::io::Result<usize> {
    let (got, _) = rustix::net::recv(socket, room, RecvFlags::DONTWAIT)?;
    Ok(got)
}

/// Sets IP_BIND_ADDRESS_NO_PORT, ip(7).
fn no_port_at_bind(socket: &OwnedFd) -> rustix::io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option's value is an int that outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_raw_os_error(
            std::io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EINVAL),
        )),
    }
}
