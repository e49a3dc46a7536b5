//! Clients' sockets: accepting, their options, and TCP's state of a connection. Their bytes go through
//! [`crate::transport`].

use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use ackpace_core::congestion::{CaState, Path};
use ackpace_core::conn::TcpSample;
use ackpace_core::handoff::Facts;
use ackpace_core::rate::Flow;
use ackpace_share::Control;
use ackpace_share::reading::Counted;
use ackpace_wire::tcp_info::{self, TcpInfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with, sockopt};

use crate::transport::Transport;

#[derive(Debug)]
pub struct Accepted {
    pub socket: OwnedFd,
    /// Its address; `None` on a unix socket. IPv4 in IPv6 is IPv4.
    pub peer: Option<SocketAddr>,
}

/// Accepts one client from a listener.
/// Errors: EAGAIN when no client waits; EMFILE and the like when the process is out of descriptors.
pub fn accept(from: &OwnedFd) -> rustix::io::Result<Accepted> {
    let (socket, address) = acceptfrom_with(from, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let peer = address.and_then(|address| peer_address(&address));
    Ok(Accepted { socket, peer })
}

fn peer_address(address: &SocketAddrAny) -> Option<SocketAddr> {
    let address = SocketAddr::try_from(address.clone()).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// TCP_NOTSENT_LOWAT (tcp(7)): the socket takes no more than this beyond what is in flight, and becomes writable when
/// half of it is left.
pub fn set_lowat(socket: &OwnedFd, bytes: u32) {
    // At most 8 MiB.
    set_int(
        socket,
        libc::IPPROTO_TCP,
        libc::TCP_NOTSENT_LOWAT,
        bytes as libc::c_int,
    );
}

/// SO_RCVLOWAT (socket(7)): epoll reports a socket readable when so many bytes are there, or the peer's end or an error.
pub fn set_receive_lowat(socket: &OwnedFd, bytes: u32) {
    let bytes = bytes as libc::c_int; // the kernel bounds it
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes);
}

/// Lets a socket, and those that a listener accepts, hold from the start as much as the kernel's own tuning might let
/// it grow to (`tcp_wmem`). That tuning follows the congestion window, which losses keep small: a fast client's buffer
/// would be less than its margin, and become writable many times in T. This holds no more memory, since
/// TCP_NOTSENT_LOWAT is the bound. Where the kernel grants less (`net.core.wmem_max`), its tuning stays on.
pub fn open_send_buffer(socket: &OwnedFd) {
    const SO_BUF_LOCK: libc::c_int = 72; // asm-generic/socket.h; Linux 5.14
    let tuned = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem");
    let most: Option<libc::c_int> = tuned
        .ok()
        .and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
    let (Some(most), Ok(_)) = (most, sockopt::tcp_nodelay(socket)) else {
        return; // not TCP
    };
    let half = most / 2; // the kernel doubles the value, for its own needs
    if !set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, half) {
        set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, half);
    }
    let granted = sockopt::socket_send_buffer_size(socket).unwrap_or(0);
    if granted < half as usize * 2 {
        set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
    }
}

/// Has the kernel ask peers of a listener's sockets that are silent for a minute whether they are there, and give up after two.
pub fn keep_alive(listener: &OwnedFd) {
    const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);
    let _ = sockopt::set_socket_keepalive(listener, true);
    let _ = sockopt::set_tcp_keepidle(listener, MINUTE);
    let _ = sockopt::set_tcp_keepintvl(listener, MINUTE / 4);
    let _ = sockopt::set_tcp_keepcnt(listener, 4);
}

fn set_int(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> bool {
    // SAFETY: the kernel reads one int, which lives here.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    result == 0
}

impl Transport {
    /// The socket takes no more than this beyond what is in flight (TCP_NOTSENT_LOWAT).
    pub fn set_lowat(&self, unsent_bytes_max: u32) {
        set_lowat(&self.0, unsent_bytes_max);
    }

    /// SO_MAX_PACING_RATE (socket(7)), bytes per second; `None` removes the bound. A hint.
    pub fn set_pace(&self, rate_bytes_per_s: Option<u64>) {
        let value = rate_bytes_per_s.unwrap_or(u64::MAX);
        // SAFETY: the kernel reads eight bytes, which live here.
        unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MAX_PACING_RATE,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            );
        }
    }

    /// Bytes that the socket was given and has not sent yet (SIOCOUTQNSD), without those in flight. `None` for sockets that
    /// are not TCP.
    pub fn unsent_bytes(&self) -> Option<u64> {
        const SIOCOUTQNSD: libc::Ioctl = 0x894b; // linux/sockios.h
        let mut unsent: libc::c_int = 0;
        // SAFETY: the kernel writes one int.
        let asked = unsafe { libc::ioctl(self.0.as_raw_fd(), SIOCOUTQNSD, &mut unsent) };
        u64::try_from(unsent).ok().filter(|_| asked == 0)
    }

    /// Segments that are not full need not wait for an acknowledgement (TCP_NODELAY), as on sockets that a listener accepts.
    pub fn send_short_segments(&self) {
        let _ = sockopt::set_tcp_nodelay(&self.0, true);
    }

    /// Holds back segments that are not full, or sends the last one (TCP_CORK). Not for unix sockets.
    pub fn cork(&self, on: bool) {
        let _ = sockopt::set_tcp_cork(&self.0, on);
    }

    /// Has the switch of this node let FIN pass, which it does not for any other socket of a guest
    /// ([`ackpace_wire::cluster::broker::FAREWELL_PRIORITY`]).
    pub fn say_farewell(&self) {
        let value = ackpace_wire::cluster::broker::FAREWELL_PRIORITY;
        // SAFETY: the kernel reads one int, which lives here.
        unsafe {
            libc::setsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PRIORITY,
                (&raw const value).cast(),
                size_of_val(&value) as libc::socklen_t,
            );
        }
    }

    /// Whether the broker of this machine has frozen it (TCP_REPAIR, which anybody may read): it takes nothing then.
    pub fn is_frozen(&self) -> bool {
        let mut value: libc::c_int = 0;
        let mut len = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the kernel writes one int.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_REPAIR,
                (&raw mut value).cast(),
                &raw mut len,
            )
        };
        result == 0 && value == 1
    }

    /// Makes the following close send RST and drop the bytes in the kernel.
    pub fn abort(&self) {
        let _ = sockopt::set_socket_linger(&self.0, Some(std::time::Duration::ZERO));
    }

    /// Bytes that the socket was given and that are not acknowledged yet, unsent ones included (SIOCOUTQ).
    pub fn held_bytes(&self) -> Option<u64> {
        let mut held: libc::c_int = 0;
        // SAFETY: the kernel writes one int.
        let asked = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &mut held) };
        u64::try_from(held).ok().filter(|_| asked == 0)
    }

    /// SO_SNDBUF as the kernel keeps it, which is twice what it is told. Without CAP_NET_ADMIN it grants twice
    /// net.core.wmem_max at most.
    pub fn bound_send_buffer(&self, bytes: u64) {
        let half = libc::c_int::try_from(bytes / 2).unwrap_or(libc::c_int::MAX / 2);
        if !set_int(&self.0, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, half) {
            set_int(&self.0, libc::SOL_SOCKET, libc::SO_SNDBUF, half);
        }
    }

    /// Whether the connection was reset or has timed out: epoll would report EPOLLERR, and the error stays in the socket. A send
    /// that the reset met after some bytes has taken the error along and told nobody. Then the connection is closed (it has no
    /// peer any more) while the client lacks bytes.
    pub fn is_dead(&self) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::empty())];
        let is_told = poll(&mut polled, Some(&Timespec::default())).is_ok();
        let told = polled[0].revents();
        let is_closed = || rustix::net::getpeername(&self.0).err() == Some(Errno::NOTCONN);
        let lacks_bytes = || self.held_bytes().is_some_and(|held| held > 0);
        is_told
            && (told.contains(PollFlags::ERR)
                || told.contains(PollFlags::HUP) && is_closed() && lacks_bytes())
    }

    /// The congestion control of a connection (TCP_CONGESTION, tcp(7)).
    pub fn control(&self) -> Control {
        let mut name = [0u8; 16]; // TCP_CA_NAME_MAX
        let mut len = name.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes into `name`.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_CONGESTION,
                name.as_mut_ptr().cast(),
                &mut len,
            )
        };
        let name = name.split(|byte| *byte == 0).next().filter(|_| result == 0);
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        Control::named(name.unwrap_or_default())
    }

    /// The address that the client connected to; `None`: no TCP.
    pub fn server_addr(&self) -> Option<SocketAddr> {
        let addr = rustix::net::getsockname(&self.0).ok()?;
        SocketAddr::try_from(addr).ok()
    }

    /// What decides whether the connection may move to another node now, with `frozen` others on their way there. `was_moved`: it
    /// has been moved, so something must have been acknowledged since. `None`: no TCP.
    pub fn facts(&self, frozen: u32, was_moved: bool) -> Option<Facts> {
        let info = tcp_info(&self.0)?;
        Some(Facts {
            established: info.state == 1,
            prepared: true,
            frozen,
            rtt_us: info.rtt_us.into(),
            // The prime byte counts. With nothing in flight no timer runs that a move would start again.
            acked: !was_moved || info.bytes_acked > 1 || self.held_bytes() == Some(0),
            retransmits: info.retransmits.into(),
            ca_state: info.ca_state,
            repairing: info.repairing_segments,
            timestamps: info.timestamps,
        })
    }

    /// TCP's state of a connection. A unix socket has the unread bytes only: its peer is on this machine and may pause, but
    /// no network loses it, so unread bytes are a closed window. A kernel before 5.4 has no flow.
    pub fn sample(&self) -> TcpSample {
        self.sample_and_count().0
    }

    /// [`Transport::sample`], and what the division of send memory needs besides, by the same reading of TCP_INFO.
    pub fn sample_and_count(&self) -> (TcpSample, Counted) {
        let unacked_bytes = self.held_bytes().unwrap_or(0);
        let Some(info) = tcp_info(&self.0) else {
            let sample = TcpSample {
                unacked_bytes,
                window_closed: unacked_bytes > 0,
                ..TcpSample::default()
            };
            return (sample, Counted::default());
        };
        let counted = Counted {
            sent_segments: info.data_segs_out_segments,
            rto_us: info.rto_us.into(),
        };
        (sample_of(&info, unacked_bytes), counted)
    }
}

fn sample_of(info: &TcpInfo, unacked_bytes: u64) -> TcpSample {
    TcpSample {
        unacked_bytes,
        unsent_bytes: Some(info.notsent_bytes.into()),
        window_closed: info.snd_wnd_bytes == Some(0),
        probes_unanswered: info.probes.into(),
        rtt_us: info.rtt_us.into(),
        path: path(info),
        flow: info.snd_wnd_bytes.map(|window_bytes| Flow {
            acked_bytes: info.bytes_acked,
            busy_us: info.busy_time_us,
            window_limited_us: info.rwnd_limited_us,
            window_bytes: window_bytes.into(),
            segment_bytes: info.snd_mss_bytes.into(),
            quiet_us: u64::from(info.last_data_sent_ms) * 1_000,
        }),
    }
}

/// Segments of `tcpi_snd_ssthresh` that mean "none" (TCP_INFINITE_SSTHRESH).
const NO_THRESHOLD: u32 = 0x7fff_ffff;

fn path(info: &TcpInfo) -> Path {
    let bytes = |segments: u32| u64::from(segments) * u64::from(info.snd_mss_bytes);
    Path {
        state: match info.ca_state {
            0 => CaState::Open,
            1 => CaState::Disorder,
            2 => CaState::Cwr,
            3 => CaState::Recovery,
            _ => CaState::Loss,
        },
        cwnd_bytes: bytes(info.snd_cwnd_segments),
        threshold_bytes: (info.snd_ssthresh_segments < NO_THRESHOLD)
            .then(|| bytes(info.snd_ssthresh_segments)),
        rtt_min_us: Some(info.min_rtt_us)
            .filter(|us| *us != u32::MAX)
            .map_or(0, u64::from),
        marked_segments: info.delivered_ce_segments,
        resent_segments: info.total_retrans_segments,
    }
}

/// Reads it; `None` for sockets that are not TCP, and before Linux 4.18.
fn tcp_info(socket: &OwnedFd) -> Option<TcpInfo> {
    let mut bytes = [0; tcp_info::LEN_BYTES];
    let mut len = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `bytes`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &mut len,
        )
    };
    let written = bytes.get(..len as usize).filter(|_| result == 0)?;
    TcpInfo::parse(written)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use rustix::net::{SendFlags, send};

    use super::*;

    fn pair() -> (Transport, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (server, _) = listener.accept().expect("the client");
        server.set_nonblocking(true).expect("a socket");
        (Transport::new(server.into()), client)
    }

    #[test]
    fn a_sample_shows_a_closed_window_and_the_bytes_behind_it() {
        let (server, mut client) = pair();
        let mut sent = 0;
        while let Ok(taken) = send(&server.0, &[7; 65_536], SendFlags::DONTWAIT) {
            sent += taken as u64;
        }
        // The client's kernel needs a moment to close its window; the loop ends by its count, not by a clock.
        let closed = (0..1_000_000)
            .map(|_| server.sample())
            .find(|sample| sample.window_closed);
        let closed = closed.expect("a client that reads nothing closes its window");
        assert!(
            closed.unacked_bytes > 0 && closed.unacked_bytes < sent,
            "{closed:?} of {sent}"
        );
        let told = server.sample();
        let flow = told.flow.expect("Linux 5.4 or later");
        assert_eq!(flow.window_bytes, 0);
        let unsent_bytes = told.unsent_bytes.expect("a TCP socket");
        assert!((1..=sent).contains(&unsent_bytes), "{told:?}");
        assert!(
            flow.acked_bytes > 0 && flow.acked_bytes + told.unacked_bytes >= sent,
            "{told:?}"
        );
        assert!(
            flow.busy_us > 0 && flow.window_limited_us <= flow.busy_us,
            "{told:?}"
        );
        let path = told.path;
        assert!(path.cwnd_bytes >= flow.segment_bytes && flow.segment_bytes > 500);
        assert!((1..1_000_000).contains(&told.rtt_us), "{told:?}");
        assert!((1..=told.rtt_us).contains(&path.rtt_min_us), "{told:?}");
        assert!(path.state < CaState::Recovery && path.marked_segments == 0);
        client.set_read_timeout(None).expect("a socket");
        let mut got = vec![0; sent as usize];
        client.read_exact(&mut got).expect("all that was sent");
        let empty = (0..1_000_000)
            .map(|_| server.sample())
            .find(|sample| sample.unacked_bytes == 0);
        assert!(empty.is_some(), "everything is acknowledged at last");
    }

    #[test]
    fn a_socket_is_dead_after_a_reset_alone() {
        let ((server, client), (other, _kept)) = (pair(), pair());
        assert!(!server.is_dead());
        let client = Transport::new(client.into());
        client.abort();
        drop(client);
        let dead = (0..1_000_000).any(|_| server.is_dead());
        assert!(dead && server.is_dead(), "and stays so");
        assert!(!other.is_dead());
    }

    #[test]
    fn a_socket_is_dead_also_when_a_send_has_taken_its_error_but_not_after_an_orderly_end() {
        let (server, client) = pair();
        while send(&server.0, &[7; 65_536], SendFlags::DONTWAIT).is_ok() {}
        let client = Transport::new(client.into());
        client.abort();
        drop(client);
        assert!((0..1_000_000).any(|_| server.is_dead()));
        // As a send would that had taken bytes before.
        assert!(sockopt::socket_error(&server.0).expect("a socket").is_err());
        assert!(sockopt::socket_error(&server.0).expect("a socket").is_ok());
        assert!(server.is_dead());

        let (server, client) = pair();
        rustix::net::shutdown(&server.0, rustix::net::Shutdown::Write).expect("a socket");
        drop(client);
        let is_over = || rustix::net::getpeername(&server.0).is_err();
        assert!((0..1_000_000).any(|_| is_over()), "both FINs came");
        assert!(!server.is_dead());
    }

    #[test]
    fn what_a_listener_accepts_may_hold_as_much_as_the_kernel_ever_gives() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let listener = OwnedFd::from(listener);
        let sizes = || {
            let _client = TcpStream::connect(addr).expect("a connection");
            let accepted = accept(&listener).expect("the client").socket;
            sockopt::socket_send_buffer_size(&accepted).expect("a socket")
        };
        let before = sizes();
        open_send_buffer(&listener);
        let tuned = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem").expect("Linux");
        let most = tuned.split_whitespace().nth(2).map(str::parse::<usize>);
        let after = sizes();
        // With a low net.core.wmem_max and without rights it stays as tuned, or grows as far as that allows.
        let most = most.expect("three numbers").expect("a number");
        assert!(
            after == most / 2 * 2 || after >= before && after < most,
            "{before} {after}"
        );
    }
}
