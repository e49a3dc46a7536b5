//! What the kernel knows about a connection (tcp(7), TCP_INFO; include/uapi/linux/tcp.h).

use ackpace_lab_base::error::{Doing, Result};
use std::os::fd::{AsFd, AsRawFd};

/// A few fields; the order of the kernel's structure never changes, it only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Payload of a full segment.
    pub mss_bytes: u32,
    /// Smallest round trip seen.
    pub rtt_min_us: u32,
    /// Segments sent again.
    pub retransmits: u32,
    /// Time in which there was data in flight.
    pub busy_us: u64,
    /// Time limited by the receiver's window.
    pub receiver_limited_us: u64,
    /// Time limited by the send buffer.
    pub buffer_limited_us: u64,
}

const LEN_BYTES: usize = 192;

/// Asks about a connected socket.
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
    let word = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |b| u32::from_ne_bytes(*b))
    };
    let long = |at: usize| {
        bytes[at..]
            .first_chunk()
            .map_or(0, |b| u64::from_ne_bytes(*b))
    };
    Ok(TcpInfo {
        mss_bytes: word(16),
        rtt_min_us: word(148),
        retransmits: word(100),
        busy_us: long(168),
        receiver_limited_us: long(176),
        buffer_limited_us: long(184),
    })
}
