//! A path's own round-trip time. The kernel timestamps datagrams on arrival in both directions (SO_TIMESTAMPNS,
//! socket(7)), so the time to wake a thread does not count.

use super::traffic::Pair;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::net::{SendFlags, send};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// No datagram is lost here; this limit detects an emulator that hangs.
const PATIENCE: Duration = Duration::from_secs(5);
const NS_PER_S: i64 = 1_000_000_000;

/// Round-trip times of one datagram after the other, in ms: the sum of both one-way times, without the work of
/// the far end between them.
pub fn round_trips(pair: &Pair, lasting: Duration) -> Result<Vec<f64>> {
    let what = || "timed datagrams".to_owned();
    for end in [&pair.server, &pair.client] {
        rustix::io::ioctl_fionbio(end, false).doing(what)?;
        set(end, libc::SO_TIMESTAMPNS, &1i32)?;
        let patience = libc::timeval {
            tv_sec: PATIENCE.as_secs() as libc::time_t,
            tv_usec: 0,
        };
        set(end, libc::SO_RCVTIMEO, &patience)?;
    }
    let mut times_ms = Vec::new();
    let until = Instant::now() + lasting;
    while Instant::now() < until {
        let there = one_way_ns(&pair.server, &pair.client)?;
        let back = one_way_ns(&pair.client, &pair.server)?;
        // The kernel starts to stamp a moment after the request.
        if let Some((there, back)) = there.zip(back) {
            times_ms.push((there + back) as f64 / 1e6);
        }
    }
    Ok(times_ms)
}

/// Time from just before the send until the datagram is in the other end's kernel.
fn one_way_ns(from: &OwnedFd, to: &OwnedFd) -> Result<Option<i64>> {
    let sent_ns = now_ns();
    send(from, &[1], SendFlags::empty()).doing(|| "sending a timed datagram".into())?;
    let arrived_ns = receive(to)?;
    Ok(arrived_ns.map(|arrived_ns| arrived_ns - sent_ns))
}

/// Receives a datagram; returns its time of arrival on the clock of [`now_ns`], if the kernel stamped it.
fn receive(end: &OwnedFd) -> Result<Option<i64>> {
    let mut byte = 0u8;
    let mut part = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    let mut control = [0u64; 16]; // aligned as control messages require
    // SAFETY: msghdr is plain data, for which all zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: all pointers in the message are to live values of the lengths given.
    let got = unsafe { libc::recvmsg(end.as_raw_fd(), &raw mut message, 0) };
    if got != 1 {
        let error = std::io::Error::last_os_error();
        return Err(LabError::Setup(format!(
            "a timed datagram did not come: {error}"
        )));
    }
    let mut stamp_ns = None;
    // SAFETY: the macros of cmsg(3) walk within the control buffer that the kernel filled; a message of this
    // kind holds a timespec, read wherever it lies.
    unsafe {
        let mut each = libc::CMSG_FIRSTHDR(&raw const message);
        while let Some(head) = each.as_ref() {
            if (head.cmsg_level, head.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
                let data = libc::CMSG_DATA(each).cast::<libc::timespec>();
                let stamp = data.read_unaligned();
                stamp_ns = Some(stamp.tv_sec * NS_PER_S + stamp.tv_nsec);
            }
            each = libc::CMSG_NXTHDR(&raw const message, each);
        }
    }
    Ok(stamp_ns)
}

/// The clock of the kernel's timestamps.
fn now_ns() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * NS_PER_S + now.tv_nsec
}

fn set<T>(end: &OwnedFd, option: libc::c_int, value: &T) -> Result<()> {
    // SAFETY: the option's value outlives the call.
    let done = unsafe {
        libc::setsockopt(
            end.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()).doing(|| "a socket's option".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, bind, connect, getsockname, socket};
    use std::net::{Ipv4Addr, SocketAddr};

    #[test]
    fn datagrams_over_the_loopback_are_stamped_after_they_were_sent() {
        let end = || {
            let end = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
            bind(&end, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
            let own = SocketAddr::try_from(getsockname(&end).unwrap()).unwrap();
            (end, own)
        };
        let ((server, server_at), (client, client_at)) = (end(), end());
        connect(&server, &client_at).unwrap();
        connect(&client, &server_at).unwrap();
        let pair = Pair { server, client };
        let times_ms = round_trips(&pair, Duration::from_millis(50)).unwrap();
        assert!(!times_ms.is_empty() && times_ms.iter().all(|ms| *ms > 0.0));
    }
}
