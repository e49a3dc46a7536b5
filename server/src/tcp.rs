//! Sockets: listening, accepting, sending, and what TCP says of a connection.

use std::fs;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use ackpace_core::conn::TcpSample;
use ackpace_core::worker::Address;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketAddrAny, SocketAddrUnix,
    SocketFlags, SocketType, acceptfrom_with, bind, listen, send, sendmsg, socket_with, sockopt,
};

use crate::limits::BACKLOG;
use crate::options::{CongestionControl, Listen};

/// Why a listener could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The system refused.
    #[error("--listen {listen}: {error}{cure}")]
    Refused {
        /// As the operator would write it.
        listen: String,
        /// The system's answer.
        error: io::Error,
        /// What to do, if there is something.
        cure: &'static str,
    },
    /// A descriptor that was passed is no listening stream socket.
    #[error(
        "--listen fd:{fd}: {problem}; pass a listening stream socket, as a socket unit of systemd does"
    )]
    Inherited {
        /// The descriptor.
        fd: RawFd,
        /// What it is instead.
        problem: String,
    },
    /// Something else stands where the socket should be.
    #[error(
        "--listen unix:{0}: the path exists and is not a socket; name another path or remove it"
    )]
    NotASocket(PathBuf),
    /// The kernel refuses the congestion control.
    #[error(
        "--congestion-control {control}: {error}; the kernel has {available}, of which ordinary users may use {allowed} \
         (sysctl net.ipv4.tcp_available_congestion_control, net.ipv4.tcp_allowed_congestion_control; modprobe tcp_NAME)"
    )]
    CongestionControl {
        /// As the operator wrote it.
        control: String,
        /// The system's answer.
        error: io::Error,
        /// What the kernel has.
        available: String,
        /// What it allows to everybody.
        allowed: String,
    },
    /// It is for a listener that is not there.
    #[error("--congestion-control {0}: there is no --listen of this address")]
    NoListener(String),
    /// Another server answers there.
    #[error("--listen unix:{0}: another server listens there; stop it or name another path")]
    UnixInUse(PathBuf),
}

/// Where clients may connect, bound for all workers.
#[derive(Debug)]
pub struct Listeners {
    /// For each worker, its sockets: own ones for TCP, so that the kernel spreads the connections, shared ones otherwise.
    pub by_worker: Vec<Vec<OwnedFd>>,
    /// For people: `http://127.0.0.1:8080`.
    pub urls: Vec<String>,
    /// Paths of unix sockets, with device and inode, to be removed at the end if they are still ours.
    pub unix: Vec<(PathBuf, u64, u64)>,
}

impl Listeners {
    /// Binds everything, or nothing stays behind but an error.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn bind(
        listens: &[Listen],
        workers: u16,
        controls: &[CongestionControl],
    ) -> Result<Listeners, ListenError> {
        let has = |control: &CongestionControl| match &control.listen {
            Some(listen) => listens.contains(listen),
            None => true,
        };
        if let Some(lost) = controls.iter().find(|control| !has(control)) {
            return Err(ListenError::NoListener(lost.to_string()));
        }
        let mut by_worker: Vec<Vec<OwnedFd>> = (0..workers).map(|_| Vec::new()).collect();
        let mut all = Listeners {
            by_worker: Vec::new(),
            urls: Vec::new(),
            unix: Vec::new(),
        };
        for wanted in listens {
            let refused = |error: Errno| refuse(wanted, error);
            match wanted {
                Listen::Tcp { addr, all: any } => {
                    let bound = bind_tcp(*addr, *any, workers).map_err(refused)?;
                    let local = local_address(&bound[0]).map_err(refused)?;
                    for socket in &bound {
                        set_congestion_control(socket, wanted, controls)?;
                    }
                    all.urls.push(format!(
                        "http://{}",
                        if *any { localhost(local) } else { local }
                    ));
                    by_worker
                        .iter_mut()
                        .zip(bound)
                        .for_each(|(worker, socket)| worker.push(socket));
                }
                Listen::Unix(path) => {
                    let socket = bind_unix(path, wanted)?;
                    if let Ok(meta) = fs::symlink_metadata(path) {
                        all.unix.push((path.clone(), meta.dev(), meta.ino()));
                    }
                    all.urls.push(format!("unix:{}", path.display()));
                    share(&mut by_worker, socket).map_err(refused)?;
                }
                Listen::Fd(fd) => {
                    let socket = inherit(*fd)?;
                    set_congestion_control(&socket, wanted, controls)?;
                    let url = local_address(&socket)
                        .map_or(format!("fd:{fd}"), |local| format!("http://{local}"));
                    all.urls.push(url);
                    share(&mut by_worker, socket).map_err(refused)?;
                }
            }
        }
        all.by_worker = by_worker;
        Ok(all)
    }
}

/// A socket for metrics: its address, and what people write for it.
///
/// # Errors
/// One sentence with what to do.
pub fn bind_metrics(addr: SocketAddr, any: bool) -> Result<(OwnedFd, String), String> {
    let wanted = Listen::Tcp { addr, all: any };
    let bound = bind_tcp(addr, any, 1).and_then(|mut sockets| {
        let socket = sockets.pop().ok_or(Errno::INVAL)?;
        let local = local_address(&socket)?;
        Ok((socket, if any { localhost(local) } else { local }))
    });
    match bound {
        Ok((socket, local)) => Ok((socket, format!("http://{local}/metrics"))),
        Err(error) => {
            let refused = refuse(&wanted, error).to_string();
            Err(refused.replacen("--listen", "--metrics", 1))
        }
    }
}

/// Removes unix sockets that are still the ones that we made.
pub fn remove_unix(sockets: &[(PathBuf, u64, u64)]) {
    for (path, dev, ino) in sockets {
        if fs::symlink_metadata(path).is_ok_and(|meta| (meta.dev(), meta.ino()) == (*dev, *ino)) {
            let _ = fs::remove_file(path);
        }
    }
}

fn refuse(listen: &Listen, error: Errno) -> ListenError {
    let cure = match error {
        Errno::ADDRINUSE => "; another server listens there: stop it or choose another port",
        Errno::ACCESS => {
            "; ports below 1024 need CAP_NET_BIND_SERVICE: choose a higher one or pass the socket as fd:3"
        }
        Errno::ADDRNOTAVAIL => "; this machine does not have that address (see `ip address`)",
        _ => "",
    };
    ListenError::Refused {
        listen: listen.to_string(),
        error: error.into(),
        cure,
    }
}

/// One socket for each worker. Several may share an address by SO_REUSEPORT only, with which a second
/// server of the same user would quietly take half of our clients: so the address is tried without it first.
fn bind_tcp(addr: SocketAddr, any: bool, workers: u16) -> rustix::io::Result<Vec<OwnedFd>> {
    let one = |addr: SocketAddr, shared: bool| {
        let family = if addr.is_ipv6() {
            AddressFamily::INET6
        } else {
            AddressFamily::INET
        };
        let socket = stream_socket(family)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        sockopt::set_socket_reuseport(&socket, shared)?;
        sockopt::set_tcp_nodelay(&socket, true)?; // inherited by what is accepted
        if addr.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, !any)?;
        }
        bind(&socket, &addr)?;
        listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let first = match one(addr, false) {
        // A machine without IPv6: all of its addresses are IPv4.
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) if any => {
            let addr = SocketAddr::from(([0, 0, 0, 0], addr.port()));
            return bind_tcp(addr, false, workers);
        }
        first => first?,
    };
    if workers == 1 {
        return Ok(vec![first]);
    }
    let addr = local_address(&first)?; // the port, if any was asked for
    drop(first);
    (0..workers).map(|_| one(addr, true)).collect()
}

/// Gives a listener the congestion control that was asked for, its own or that of all; what it accepts
/// inherits it.
fn set_congestion_control(
    socket: &OwnedFd,
    listen: &Listen,
    controls: &[CongestionControl],
) -> Result<(), ListenError> {
    let own = controls
        .iter()
        .rev()
        .find(|control| control.listen.as_ref() == Some(listen));
    let common = || {
        controls
            .iter()
            .rev()
            .find(|control| control.listen.is_none())
    };
    let Some(control) = own.or_else(common) else {
        return Ok(());
    };
    // An inherited socket that is not TCP has none.
    if local_address(socket).is_err() && own.is_none() {
        return Ok(());
    }
    let set = sockopt::set_tcp_congestion(socket, &control.name)
        .and_then(|()| sockopt::tcp_congestion(socket));
    let error = match set {
        Ok(name) if name == control.name => return Ok(()),
        Ok(_) => Errno::NOTSUP,
        Err(error) => error,
    };
    let sysctl = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}_congestion_control"));
        text.map_or("?".into(), |text| {
            text.split_whitespace().collect::<Vec<_>>().join(", ")
        })
    };
    Err(ListenError::CongestionControl {
        control: control.to_string(),
        error: error.into(),
        available: sysctl("available"),
        allowed: sysctl("allowed"),
    })
}

fn stream_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )
}

fn bind_unix(path: &Path, wanted: &Listen) -> Result<OwnedFd, ListenError> {
    let refused = |error: Errno| refuse(wanted, error);
    let address = SocketAddrUnix::new(path).map_err(refused)?;
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            return Err(ListenError::NotASocket(path.to_owned()));
        }
        // A socket that nobody listens on is what a killed server leaves behind.
        let probe = stream_socket(AddressFamily::UNIX).map_err(refused)?;
        match rustix::net::connect(&probe, &address) {
            Err(Errno::CONNREFUSED) => {
                fs::remove_file(path).map_err(|error| ListenError::Refused {
                    listen: wanted.to_string(),
                    error,
                    cure: "",
                })?
            }
            _ => return Err(ListenError::UnixInUse(path.to_owned())),
        }
    }
    let socket = stream_socket(AddressFamily::UNIX).map_err(refused)?;
    bind(&socket, &address).map_err(refused)?;
    listen(&socket, BACKLOG).map_err(refused)?;
    Ok(socket)
}

fn inherit(fd: RawFd) -> Result<OwnedFd, ListenError> {
    let problem = |problem: &str| ListenError::Inherited {
        fd,
        problem: problem.to_owned(),
    };
    if fd < 3 {
        return Err(problem("descriptors below 3 are standard input and output"));
    }
    // SAFETY: the number is only asked about; nothing is closed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    match sockopt::socket_type(borrowed) {
        Ok(SocketType::STREAM) => {}
        Ok(_) => return Err(problem("it is a socket of another type")),
        Err(Errno::NOTSOCK) => return Err(problem("it is not a socket")),
        Err(_) => return Err(problem("it is not open")),
    }
    if !sockopt::socket_acceptconn(borrowed).unwrap_or(false) {
        return Err(problem("it does not listen"));
    }
    // SAFETY: the operator passed this descriptor to us by `fd:`; nothing else in the process knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let ready = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
        .and_then(|()| rustix::io::ioctl_fionbio(&socket, true));
    ready.map_err(|error| problem(&error.to_string()))?;
    let _ = sockopt::set_tcp_nodelay(&socket, true); // not for unix sockets
    Ok(socket)
}

fn share(by_worker: &mut [Vec<OwnedFd>], socket: OwnedFd) -> rustix::io::Result<()> {
    for worker in by_worker {
        worker.push(rustix::io::fcntl_dupfd_cloexec(&socket, 3)?);
    }
    Ok(())
}

fn local_address(socket: &impl AsFd) -> rustix::io::Result<SocketAddr> {
    SocketAddr::try_from(rustix::net::getsockname(socket)?)
}

/// An address that a browser here can open, for one that stands for all.
fn localhost(all: SocketAddr) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], all.port()))
}

/// A client that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Its socket.
    pub socket: OwnedFd,
    /// Its address; `None` on a unix socket. IPv4 in IPv6 is IPv4.
    pub peer: Option<SocketAddr>,
}

/// Accepts one client.
///
/// # Errors
/// EAGAIN when nobody waits; EMFILE and the like when the process is out of descriptors.
pub fn accept(listener: &OwnedFd) -> rustix::io::Result<Accepted> {
    let (socket, address) =
        acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let peer = address.and_then(|address| peer_address(&address));
    Ok(Accepted { socket, peer })
}

fn peer_address(address: &SocketAddrAny) -> Option<SocketAddr> {
    let address = SocketAddr::try_from(address.clone()).ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// What the bound per address counts: an IPv4 address, or the /64 of an IPv6 one, which is one customer.
pub fn counted(peer: IpAddr) -> Address {
    match peer {
        IpAddr::V4(v4) => Address(u64::from(u32::from(v4))),
        IpAddr::V6(v6) => Address(prefix(v6)),
    }
}

/// The upper half; 2000::/3 and all that follows is above any IPv4 address.
fn prefix(v6: Ipv6Addr) -> u64 {
    ((u128::from(v6) >> 64) as u64) | (1 << 63)
}

/// Reads into `into`; `Ok(0)` is the peer's FIN.
///
/// # Errors
/// EAGAIN when nothing is there; the socket's error.
pub fn receive(socket: &OwnedFd, into: &mut [u8]) -> rustix::io::Result<usize> {
    loop {
        match rustix::net::recv(socket, &mut *into, RecvFlags::DONTWAIT) {
            Err(Errno::INTR) => {}
            result => return result.map(|(read, _)| read),
        }
    }
}

/// Sends texts one after the other, as far as the socket takes them. `more`: bytes follow at once.
///
/// # Errors
/// As send(2); `EAGAIN` for a socket that takes nothing now.
pub fn send_texts(
    socket: &OwnedFd,
    texts: &[IoSlice<'_>],
    more: bool,
) -> rustix::io::Result<usize> {
    let mut flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    flags.set(SendFlags::MORE, more);
    loop {
        let sent = match texts {
            [one] => send(socket, one, flags),
            several => sendmsg(socket, several, &mut SendAncillaryBuffer::default(), flags),
        };
        match sent {
            Err(Errno::INTR) => {}
            sent => return sent,
        }
    }
}

/// Sends a span of a file from the page cache (sendfile(2)); 0 at the end of the file.
///
/// # Errors
/// EAGAIN when the socket takes nothing; EIO when a page can't be read; the socket's error.
pub fn send_file(
    socket: &OwnedFd,
    file: &OwnedFd,
    offset_bytes: u64,
    len_bytes: u64,
) -> rustix::io::Result<usize> {
    let mut at_bytes = offset_bytes;
    loop {
        match rustix::fs::sendfile(socket, file, Some(&mut at_bytes), len_bytes as usize) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// TCP_NOTSENT_LOWAT (tcp(7)): the socket takes no more than this beyond what is in flight, and calls when
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

/// Lets a socket, and what a listener accepts, hold from the start what the kernel's own tuning might let it grow to
/// (`tcp_wmem`): that follows the congestion window, which losses keep small, so that a fast client's buffer is less than
/// its margin and calls many times in T. Nothing more is held for that: TCP_NOTSENT_LOWAT is the bound. Where the kernel grants less
/// (`net.core.wmem_max`), its tuning stays on.
pub fn open_send_buffer(socket: &OwnedFd) {
    const SO_BUF_LOCK: libc::c_int = 72; // asm-generic/socket.h; Linux 5.14
    let tuned = fs::read_to_string("/proc/sys/net/ipv4/tcp_wmem");
    let most: Option<libc::c_int> = tuned
        .ok()
        .and_then(|text| text.split_whitespace().nth(2)?.parse().ok());
    let (Some(most), Ok(_)) = (most, sockopt::tcp_nodelay(socket)) else {
        return; // not TCP
    };
    let half = most / 2; // the kernel doubles what it is given, for its own needs
    if !set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, half) {
        set_int(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, half);
    }
    let granted = sockopt::socket_send_buffer_size(socket).unwrap_or(0);
    if granted < half as usize * 2 {
        set_int(socket, libc::SOL_SOCKET, SO_BUF_LOCK, 0);
    }
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

/// SO_MAX_PACING_RATE (socket(7)), bytes per second; `None` takes the bound away. A hint.
pub fn set_pace(socket: &OwnedFd, rate_bytes_per_s: Option<u64>) {
    let value = rate_bytes_per_s.unwrap_or(u64::MAX);
    // SAFETY: the kernel reads eight bytes, which live here.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        );
    }
}

/// What the socket was given and has not sent yet (SIOCOUTQNSD); what is in flight is not in it. `None`
/// for sockets that are not TCP.
pub fn unsent_bytes(socket: &OwnedFd) -> Option<u64> {
    const SIOCOUTQNSD: libc::Ioctl = 0x894b; // linux/sockios.h
    let mut unsent: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCOUTQNSD, &mut unsent) };
    u64::try_from(unsent).ok().filter(|_| asked == 0)
}

/// Holds back segments that are not full, or lets the last one go (TCP_CORK). Not for unix sockets.
pub fn cork(socket: &OwnedFd, on: bool) {
    let _ = sockopt::set_tcp_cork(socket, on);
}

/// Makes the coming close send RST and drop what the kernel holds.
pub fn abort(socket: &OwnedFd) {
    let _ = sockopt::set_socket_linger(socket, Some(std::time::Duration::ZERO));
}

/// What TCP knows of a connection. A unix socket knows the unsent bytes only.
pub fn sample(socket: &OwnedFd) -> TcpSample {
    let mut unacked: libc::c_int = 0;
    // SAFETY: the kernel writes one int.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &mut unacked) };
    let unacked_bytes = if asked == 0 {
        u64::try_from(unacked).unwrap_or(0)
    } else {
        0
    };
    match tcp_info(socket) {
        Some(info) => TcpSample {
            unacked_bytes,
            window_closed: info.tcpi_snd_wnd == 0,
            probes_unanswered: u32::from(info.tcpi_probes),
            // In the order of linux/tcp.h behind its eight bytes: rto, ato, snd_mss, ...
            rtt_us: info.words[15].into(),
            cwnd_bytes: u64::from(info.words[18]) * u64::from(info.words[2]),
        },
        None => TcpSample {
            unacked_bytes,
            ..TcpSample::default()
        },
    }
}

/// What TCP knows of one connection, for people who look at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Round trip time, smoothed.
    pub rtt_us: u64,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// The window that the client offers.
    pub window_bytes: u64,
    /// A full segment (MSS).
    pub segment_bytes: u64,
    /// Segments that were sent again, in all.
    pub retransmitted_segments: u64,
    /// Time in which the client's window was what held the connection up (`tcpi_rwnd_limited`).
    pub window_limited_us: u64,
    /// D0: sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// D1: in the socket, not sent.
    pub unsent_bytes: u64,
}

/// Asks for them; `None` for sockets that are not TCP.
pub fn facts(socket: &OwnedFd) -> Option<Facts> {
    let (info, unsent_bytes) = (tcp_info(socket)?, unsent_bytes(socket)?);
    // In the order of linux/tcp.h behind its eight bytes: rto, ato, snd_mss, ...
    let [segment_bytes, rtt_us, cwnd, again] = [2, 15, 18, 23].map(|at| u64::from(info.words[at]));
    Some(Facts {
        rtt_us,
        cwnd_bytes: cwnd * segment_bytes,
        window_bytes: info.tcpi_snd_wnd.into(),
        segment_bytes,
        retransmitted_segments: again,
        window_limited_us: info.times[1],
        in_flight_bytes: sample(socket).unacked_bytes.saturating_sub(unsent_bytes),
        unsent_bytes,
    })
}

/// The beginning of `struct tcp_info` (linux/tcp.h) as of Linux 5.4, which added `tcpi_snd_wnd`. The
/// libc crate's stops before it.
#[repr(C)]
struct TcpInfo {
    tcpi_state: u8,
    tcpi_ca_state: u8,
    tcpi_retransmits: u8,
    tcpi_probes: u8,
    tcpi_backoff: u8,
    tcpi_options: u8,
    tcpi_wscale: u8,
    tcpi_flags: u8,
    words: [u32; 24],
    rates: [u64; 4],
    segs: [u32; 6],
    delivery_rate: u64,
    times: [u64; 3],
    delivered: [u32; 2],
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    tcpi_snd_wnd: u32,
}

fn tcp_info(socket: &OwnedFd) -> Option<TcpInfo> {
    let mut info = std::mem::MaybeUninit::<TcpInfo>::zeroed();
    let size = size_of::<TcpInfo>();
    let mut len = size as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &mut len,
        )
    };
    // SAFETY: all-zero bytes and whatever the kernel wrote are valid integers.
    (result == 0 && len as usize == size).then(|| unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let client =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let (server, _) = listener.accept().expect("the client");
        server.set_nonblocking(true).expect("a socket");
        (server.into(), client)
    }

    #[test]
    fn a_sample_shows_a_closed_window_and_the_bytes_behind_it() {
        let (server, mut client) = pair();
        let mut sent = 0;
        while let Ok(taken) = send_texts(&server, &[IoSlice::new(&[7; 65_536])], false) {
            sent += taken as u64;
        }
        // The client's kernel needs a moment to close its window; the loop ends by its count, not by a clock.
        let closed = (0..1_000_000)
            .map(|_| sample(&server))
            .find(|sample| sample.window_closed);
        let closed = closed.expect("a client that reads nothing closes its window");
        assert!(
            closed.unacked_bytes > 0 && closed.unacked_bytes < sent,
            "{closed:?} of {sent}"
        );
        let facts = facts(&server).expect("a TCP socket");
        assert_eq!(facts.window_bytes, 0);
        assert!(
            facts.unsent_bytes > 0 && facts.unsent_bytes <= sent,
            "{facts:?}"
        );
        assert!(facts.cwnd_bytes >= facts.segment_bytes && facts.segment_bytes > 500);
        assert!((1..1_000_000).contains(&facts.rtt_us), "{facts:?}");
        client.set_read_timeout(None).expect("a socket");
        let mut got = vec![0; sent as usize];
        client.read_exact(&mut got).expect("all that was sent");
        let empty = (0..1_000_000)
            .map(|_| sample(&server))
            .find(|sample| sample.unacked_bytes == 0);
        assert!(empty.is_some(), "everything is acknowledged at last");
    }

    #[test]
    fn a_second_server_is_told_that_the_address_is_taken() {
        let first = Listeners::bind(
            &[Listen::Tcp {
                addr: ([127, 0, 0, 1], 0).into(),
                all: false,
            }],
            2,
            &[],
        );
        let first = first.expect("any free port");
        let addr = local_address(&first.by_worker[0][0]).expect("bound");
        assert_eq!(local_address(&first.by_worker[1][0]).expect("bound"), addr);
        let second =
            Listeners::bind(&[Listen::Tcp { addr, all: false }], 2, &[]).expect_err("taken");
        assert!(
            second.to_string().contains("another server listens there"),
            "{second}"
        );
    }

    #[test]
    fn a_congestion_control_is_set_for_its_listener_or_refused() {
        let parse = |text: &str| CongestionControl::parse(text.as_ref()).expect("well written");
        let listens = [Listen::local(0)];
        let bind = |texts: &[&str]| {
            let controls: Vec<_> = texts.iter().map(|text| parse(text)).collect();
            Listeners::bind(&listens, 1, &controls)
        };
        let bound = bind(&["nonsense", "127.0.0.1:0=reno"]).expect("reno is always there");
        let name = sockopt::tcp_congestion(&bound.by_worker[0][0]).expect("a listener");
        assert_eq!(name, "reno");
        let refused = bind(&["nonsense"]).expect_err("unknown").to_string();
        assert!(
            refused.contains("nonsense") && refused.contains("reno"),
            "{refused}"
        );
        let lost = bind(&[":9=reno"])
            .expect_err("no such listener")
            .to_string();
        assert_eq!(
            lost,
            "--congestion-control :9=reno: there is no --listen of this address"
        );
    }

    #[test]
    fn an_abandoned_unix_socket_is_replaced_and_a_living_one_is_not() {
        let path = std::env::temp_dir().join(format!("ackpace-unix-{}", std::process::id()));
        let listen = [Listen::Unix(path.clone())];
        let first = Listeners::bind(&listen, 1, &[]).expect("a fresh path");
        assert!(matches!(
            Listeners::bind(&listen, 1, &[]),
            Err(ListenError::UnixInUse(_))
        ));
        drop(first.by_worker);
        let second = Listeners::bind(&listen, 1, &[]).expect("nobody listens");
        remove_unix(&second.unix);
        assert!(!path.exists());
        fs::write(&path, "mine").expect("a file");
        assert!(matches!(
            Listeners::bind(&listen, 1, &[]),
            Err(ListenError::NotASocket(_))
        ));
        fs::remove_file(&path).expect("our own file");
    }

    #[test]
    fn an_inherited_descriptor_must_listen() {
        let (server, mut client) = pair();
        let fd = server.as_raw_fd();
        let refused = inherit(fd).expect_err("a connection is no listener");
        assert!(refused.to_string().contains("does not listen"), "{refused}");
        client
            .write_all(b"still open")
            .expect("the descriptor was not closed");
        assert!(inherit(1).is_err() && inherit(999_999).is_err());
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

    #[test]
    fn an_ipv6_customer_is_counted_by_its_64_bits() {
        let counted_text = |text: &str| counted(text.parse().expect("an address"));
        assert_eq!(
            counted_text("2001:db8::1"),
            counted_text("2001:db8::ffff:2")
        );
        assert_ne!(counted_text("2001:db8::1"), counted_text("2001:db8:0:1::1"));
        assert_ne!(counted_text("127.0.0.1"), counted_text("127.0.0.2"));
    }
}
