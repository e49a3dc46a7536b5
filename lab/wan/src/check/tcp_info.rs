//! Reads the kernel's TCP_INFO of a connection.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_wire::tcp_info::{LEN_BYTES, TcpInfo};
use std::os::fd::{AsFd, AsRawFd};

/// TCP_INFO of a connected socket.
pub fn tcp_info(socket: impl AsFd) -> Result<TcpInfo> {
    let mut bytes = [0u8; LEN_BYTES];
    let mut len = LEN_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to a buffer of that length, and the length itself.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &mut len,
        )
    };
    if done != 0 {
        return Err(std::io::Error::last_os_error()).doing(|| "TCP_INFO".into());
    }
    TcpInfo::parse(&bytes[..len as usize])
        .ok_or_else(|| LabError::Setup("TCP_INFO: this kernel is older than Linux 4.18".into()))
}
