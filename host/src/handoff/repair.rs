//! A live TCP connection as values, and a socket of such values (tcp(7) TCP_REPAIR). Linux only.
//!
//! Freezing: [`freeze`], [`save`] and, where the connection stays, [`thaw`]. Moving: [`restore`] makes a socket, its user fills the send
//! queue with `snd_una..snd_nxt`, [`complete`] sets what only a full queue takes, [`acknowledgement`] is what the kernel is given to
//! learn the round trip time and the window from, and [`start`] lets the socket send.
//!
//! The client sees no difference but time, since bytes that were sent are put back as sent. A byte before `snd_una`, the
//! *prime*, precedes them: it is acknowledged already, so the acknowledgement of the client that is given to the socket once
//! more takes it, and only an acknowledgement that takes something gives a round trip time.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ackpace_wire::cluster::broker::Connection;
use ackpace_wire::cluster::{Congestion, Tcp, Tuple};
use ackpace_wire::limits::{CLUSTER_QUEUE_BYTES_MAX, TCP_WINDOW_BYTES_MAX};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::look::{Looked, Sockets};
use super::socket::{self, RepairOption, Window};
use super::{Refused, packet};

/// In flight. More is more than any path's product, and refused: it takes memory of the kernel beyond tcp_wmem.
pub const FLIGHT_BYTES_MAX: u32 = 128 << 20;
/// Of `tcpi_state`: the only state that moves.
const ESTABLISHED: u8 = 1;
/// `struct tcp_info` up to `tcpi_options` and the scales of the windows.
const INFO_BYTES: usize = 8;
const INFO_TIMESTAMPS: u8 = 1;
const INFO_SACK: u8 = 2;
const INFO_WSCALE: u8 = 4;
const INFO_ECN: u8 = 8;
/// Of `enum tcp_ca_state`: the window goes down to the threshold.
const CWR: u8 = 2;
const RECOVERY: u8 = 3;
/// Kinds of TCP_REPAIR_OPTIONS: those of RFC 9293 3.2, RFC 7323 and RFC 2018.
const OPTION_MSS: u32 = 2;
const OPTION_WSCALE: u32 = 3;
const OPTION_SACK: u32 = 4;
const OPTION_TIMESTAMP: u32 = 8;

/// A socket that is frozen, and what it takes to thaw it.
#[derive(Debug)]
pub struct Saved {
    /// Its connection.
    pub connection: Connection,
    /// Bytes that were written and not sent.
    pub unsent_bytes: u32,
    /// What it had.
    pub before: Before,
}

/// What a socket has lost by freezing: its window.
#[derive(Clone, Copy, Debug)]
pub struct Before(Window);

/// The ends of a connected TCP socket.
///
/// # Errors
/// It is none.
pub fn tuple(socket: BorrowedFd<'_>) -> Result<Tuple, Refused> {
    socket::tuple(socket)
}

/// Closes a socket's window, so that it sends no new data. Its timers go on.
///
/// # Errors
/// It can't move; the socket is as it was.
pub fn freeze(socket: BorrowedFd<'_>) -> Result<Before, Refused> {
    may_freeze(socket)?;
    socket::set_tcp(socket, libc::TCP_REPAIR, socket::REPAIR_ON, "TCP_REPAIR")?;
    let closed = get_window(socket).and_then(|window| {
        close(socket, window)?;
        Ok(Before(window))
    });
    if closed.is_err() {
        leave(socket, socket::REPAIR_OFF_SILENT)?;
    }
    closed
}

/// Saves the connection of a frozen socket. The client's packets are held by now; one that came before may have opened the window
/// again.
///
/// # Errors
/// It can't move; the socket is still frozen.
pub fn save(
    sockets: &mut Sockets,
    socket: BorrowedFd<'_>,
    before: Before,
    una_floor: Option<u32>,
) -> Result<Saved, Refused> {
    let now = get_window(socket)?;
    let window = if now.snd_wnd_bytes == 0 {
        before.0
    } else {
        now
    };
    close(socket, window)?;
    let tuple = tuple(socket)?;
    let (info, looked) = (may_freeze(socket)?, look(sockets, socket, &tuple)?);
    Ok(Saved {
        connection: saved(socket, tuple, &info, &looked, &window, una_floor)?,
        unsent_bytes: looked.write_seq.wrapping_sub(looked.snd_nxt),
        before: Before(window),
    })
}

fn get_window(socket: BorrowedFd<'_>) -> Result<Window, Refused> {
    let (option, what) = (socket::TCP_REPAIR_WINDOW, "TCP_REPAIR_WINDOW");
    socket::get(socket, socket::IPPROTO_TCP, option, what)
}

fn close(socket: BorrowedFd<'_>, window: Window) -> Result<(), Refused> {
    let closed = Window {
        snd_wnd_bytes: 0,
        ..window
    };
    set_window(socket, closed)
}

/// What is asked before anything changes. The first bytes of `struct tcp_info`.
fn may_freeze(socket: BorrowedFd<'_>) -> Result<[u8; INFO_BYTES], Refused> {
    let tcp = socket::IPPROTO_TCP;
    let info: [u8; INFO_BYTES] = socket::get(socket, tcp, libc::TCP_INFO, "TCP_INFO")?;
    if info[0] != ESTABLISHED {
        return Err(Refused::new("one side has closed"));
    }
    if !socket::upper_protocol(socket)?.is_empty() {
        return Err(Refused::new("the kernel encrypts it"));
    }
    Ok(info)
}

fn saved(
    socket: BorrowedFd<'_>,
    tuple: Tuple,
    info: &[u8; INFO_BYTES],
    looked: &Looked,
    window: &Window,
    una_floor: Option<u32>,
) -> Result<Connection, Refused> {
    if looked.state != ESTABLISHED || looked.has_hole || looked.is_urgent {
        return Err(Refused::new(
            "the client closes, or its segments have a hole",
        ));
    }
    let snd_una = match una_floor {
        Some(floor) if (floor.wrapping_sub(looked.snd_una) as i32) > 0 => floor,
        _ => looked.snd_una,
    };
    let flight_bytes = looked.snd_nxt.wrapping_sub(snd_una);
    if flight_bytes > FLIGHT_BYTES_MAX {
        return Err(Refused::new("too much is in flight"));
    }
    let received = received(socket, looked.rcv_nxt.wrapping_sub(looked.copied_seq))?;
    let tcp = socket::IPPROTO_TCP;
    let mss_bytes = socket::mss_bytes(socket)?;
    let has = |bit| info[5] & bit != 0;
    let (low, high) = (info[6] & 15, info[6] >> 4);
    let scales = if cfg!(target_endian = "big") {
        (high, low)
    } else {
        (low, high)
    };
    let timestamp = has(INFO_TIMESTAMPS)
        .then(|| socket::get(socket, tcp, libc::TCP_TIMESTAMP, "TCP_TIMESTAMP"))
        .transpose()?;
    let tcp = Tcp {
        snd_una,
        snd_nxt: looked.snd_nxt,
        rcv_nxt: looked.rcv_nxt,
        snd_wl1: window.snd_wl1,
        snd_wnd_bytes: window.snd_wnd_bytes,
        max_window_bytes: window.max_window_bytes,
        rcv_wnd_bytes: window.rcv_wnd_bytes,
        rcv_wup: window.rcv_wup,
        mss_bytes,
        wscales: has(INFO_WSCALE).then_some(scales),
        sack: has(INFO_SACK),
        timestamp,
        ecn: has(INFO_ECN),
    };
    Ok(Connection {
        tuple,
        tcp,
        congestion: congestion(socket, looked)?,
        received,
    })
}

/// Looks at this very socket: another namespace may have the same tuple.
fn look(sockets: &mut Sockets, socket: BorrowedFd<'_>, tuple: &Tuple) -> Result<Looked, Refused> {
    let cookie = net::sockopt::socket_cookie(socket);
    let cookie = cookie.map_err(|error| Refused::os("SO_COOKIE", error.into()))?;
    let looked = sockets.look(tuple)?.filter(|it| it.cookie == cookie);
    looked.ok_or_else(|| Refused::new("this socket is not of this network namespace"))
}

/// The client's bytes, which stay in the queue.
fn received(socket: BorrowedFd<'_>, len_bytes: u32) -> Result<Vec<u8>, Refused> {
    let len = usize::try_from(len_bytes).unwrap_or(usize::MAX);
    if len > CLUSTER_QUEUE_BYTES_MAX {
        return Err(Refused::new("too many bytes of the client wait"));
    }
    let mut bytes = vec![0; len];
    if len == 0 {
        return Ok(bytes);
    }
    select(socket, socket::RECV_QUEUE)?;
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let read = net::recv(socket, &mut bytes, flags);
    match read.map_err(|error| Refused::os("recv", error.into()))?.0 == len {
        true => Ok(bytes),
        false => Err(Refused::new("the client's bytes can't be read")),
    }
}

fn congestion(socket: BorrowedFd<'_>, looked: &Looked) -> Result<Congestion, Refused> {
    let (cwnd, ssthresh) = (looked.cwnd_segments.max(2), looked.ssthresh_segments);
    let goes_down = matches!(looked.ca_state, CWR | RECOVERY) && (2..cwnd).contains(&ssthresh);
    Ok(Congestion {
        name: socket::congestion_control(socket)?,
        cwnd_segments: if goes_down { ssthresh } else { cwnd },
        ssthresh_segments: ssthresh,
        srtt_us: looked.srtt_us,
        rttvar_us: looked.rttvar_us,
        pacing_bytes_per_s: socket::get(
            socket,
            socket::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            "SO_MAX_PACING_RATE",
        )?,
    })
}

/// Whether a socket is in repair mode: frozen, or restored and not started.
///
/// # Errors
/// It is no TCP socket.
pub fn is_frozen(socket: BorrowedFd<'_>) -> Result<bool, Refused> {
    let (level, option) = (socket::IPPROTO_TCP, libc::TCP_REPAIR);
    Ok(socket::get::<i32>(socket, level, option, "TCP_REPAIR")? == socket::REPAIR_ON)
}

/// Lets a frozen socket go on as if nothing had been, with [`push`] behind it. If it is forgotten what it had, the client is asked
/// for its window.
///
/// # Errors
/// As setsockopt(2).
pub fn thaw(socket: BorrowedFd<'_>, before: Option<Before>) -> Result<(), Refused> {
    match before {
        Some(Before(window)) => {
            set_window(socket, window)?;
            leave(socket, socket::REPAIR_OFF_SILENT)
        }
        None => leave(socket, socket::REPAIR_OFF),
    }
}

/// Sends what the closed window of a thawed socket has kept back, for which no acknowledgement may come. Packets must be let out by
/// now: Linux takes one that is dropped here for congestion.
///
/// # Errors
/// As setsockopt(2).
pub fn push(socket: BorrowedFd<'_>) -> Result<(), Refused> {
    let set = |on| {
        net::sockopt::set_tcp_nodelay(socket, on)
            .map_err(|error| Refused::os("TCP_NODELAY", error.into()))
    };
    let is_on = net::sockopt::tcp_nodelay(socket).unwrap_or(true);
    set(true)?;
    if is_on { Ok(()) } else { set(false) }
}

/// Leaves repair mode. Linux forgets then that the port may be shared, and a restarted listener could not have it.
fn leave(socket: BorrowedFd<'_>, mode: i32) -> Result<(), Refused> {
    socket::set_tcp(socket, libc::TCP_REPAIR, mode, "TCP_REPAIR")?;
    net::sockopt::set_socket_reuseaddr(socket, true)
        .map_err(|error| Refused::os("SO_REUSEADDR", error.into()))
}

fn select(socket: BorrowedFd<'_>, queue: i32) -> Result<(), Refused> {
    let what = "TCP_REPAIR_QUEUE";
    socket::set_tcp(socket, libc::TCP_REPAIR_QUEUE, queue, what)
}

fn set_window(socket: BorrowedFd<'_>, window: Window) -> Result<(), Refused> {
    let option = socket::TCP_REPAIR_WINDOW;
    let what = "TCP_REPAIR_WINDOW";
    socket::set(socket, socket::IPPROTO_TCP, option, window, what)
}

fn window(tcp: &Tcp) -> Window {
    Window {
        snd_wl1: tcp.snd_wl1,
        snd_wnd_bytes: tcp.snd_wnd_bytes,
        max_window_bytes: tcp.max_window_bytes,
        rcv_wnd_bytes: tcp.rcv_wnd_bytes,
        rcv_wup: tcp.rcv_wup,
    }
}

/// Makes a socket of a connection. It is in repair mode, where closing it is silent, with the prime in its send queue, to be
/// filled with `snd_una..snd_nxt`.
///
/// # Errors
/// As the system calls; or a value can't be.
pub fn restore(connection: &Connection) -> Result<OwnedFd, Refused> {
    let tcp = &connection.tcp;
    let flight_bytes = tcp.snd_nxt.wrapping_sub(tcp.snd_una);
    if flight_bytes > FLIGHT_BYTES_MAX || tcp.max_window_bytes > TCP_WINDOW_BYTES_MAX {
        return Err(Refused::new("too much is in flight"));
    }
    let socket = connected(connection, flight_bytes)?;
    let own = socket.as_fd();
    set_options(own, tcp)?;
    if !connection.received.is_empty() {
        select(own, socket::RECV_QUEUE)?;
        put(own, &connection.received)?;
    }
    if tcp.timestamp.is_some() {
        select(own, socket::SEND_QUEUE)?;
        put(own, &[0])?;
        return Ok(socket);
    }
    // Bytes that were put back give no round trip time without timestamps, so here the prime is really sent. The client
    // answers to a byte that it has.
    let open = Window {
        snd_wnd_bytes: tcp.snd_wnd_bytes.max(1),
        max_window_bytes: tcp.max_window_bytes.max(1),
        ..window(tcp)
    };
    set_window(own, open)?;
    let what = "TCP_REPAIR";
    socket::set_tcp(own, libc::TCP_REPAIR, socket::REPAIR_OFF_SILENT, what)?;
    put(own, &[0])?;
    socket::set_tcp(own, libc::TCP_REPAIR, socket::REPAIR_ON, what)?;
    select(own, socket::SEND_QUEUE)?;
    Ok(socket)
}

/// Most that a buffer is made larger for a congestion window: half of what `tcp_wmem` usually lets the kernel tune a buffer to.
/// A larger window is filled as the kernel tunes on.
const WINDOW_BUFFER_BYTES_MAX: u64 = 2 << 20;

/// A socket with the connection's ends and sequence numbers.
fn connected(connection: &Connection, flight_bytes: u32) -> Result<OwnedFd, Refused> {
    let (tuple, tcp) = (&connection.tuple, &connection.tcp);
    let family = match tuple.server {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|error| Refused::os("socket", error.into()))?;
    let own = socket.as_fd();
    socket::set_tcp(own, libc::TCP_REPAIR, socket::REPAIR_ON, "TCP_REPAIR")?;
    // A node that lacks this congestion control uses its own.
    let _ = socket::set_congestion_control(own, &connection.congestion.name);
    let buffer_bytes = buffer_bytes(flight_bytes, connection);
    let force = libc::SO_SNDBUFFORCE;
    socket::set(
        own,
        socket::SOL_SOCKET,
        force,
        buffer_bytes,
        "SO_SNDBUFFORCE",
    )?;
    net::bind(own, &tuple.server).map_err(|error| Refused::os("bind", error.into()))?;
    let received = connection.received.len() as u32;
    set_sequence(own, socket::RECV_QUEUE, tcp.rcv_nxt.wrapping_sub(received))?;
    set_sequence(own, socket::SEND_QUEUE, tcp.snd_una.wrapping_sub(1))?;
    // In repair mode, connect(2) would take 536 bytes for the client's MSS.
    let mss = i32::from(tcp.mss_bytes);
    socket::set_tcp(own, libc::TCP_MAXSEG, mss, "TCP_MAXSEG")?;
    net::connect(own, &tuple.client).map_err(|error| Refused::os("connect", error.into()))?;
    Ok(socket)
}

/// What a socket's buffer has to hold, of which the kernel makes twice as much: what is put into it, since filling it would end
/// at the default size; and the congestion window, since the next response would wait a round trip for each doubling of the buffer.
fn buffer_bytes(flight_bytes: u32, connection: &Connection) -> i32 {
    let window_bytes =
        u64::from(connection.congestion.cwnd_segments) * u64::from(connection.tcp.mss_bytes);
    let flight_bytes = u64::from(flight_bytes);
    let flight_bytes = flight_bytes + flight_bytes / 8 + (64 << 10);
    let bytes = flight_bytes.max(window_bytes.min(WINDOW_BUFFER_BYTES_MAX));
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

fn set_sequence(socket: BorrowedFd<'_>, queue: i32, seq: u32) -> Result<(), Refused> {
    select(socket, queue)?;
    let (level, what) = (socket::IPPROTO_TCP, "TCP_QUEUE_SEQ");
    socket::set(socket, level, libc::TCP_QUEUE_SEQ, seq, what)
}

/// What both ends have agreed on. Only a connected socket takes it.
fn set_options(socket: BorrowedFd<'_>, tcp: &Tcp) -> Result<(), Refused> {
    let option = |kind, value| RepairOption { kind, value };
    let mut options = vec![option(OPTION_MSS, tcp.mss_bytes.into())];
    options.extend(tcp.sack.then_some(option(OPTION_SACK, 0)));
    options.extend(tcp.wscales.map(|(client, own)| {
        let value = u32::from(client) | u32::from(own) << 16;
        option(OPTION_WSCALE, value)
    }));
    let timestamps = tcp.timestamp.map(|_| option(OPTION_TIMESTAMP, 0));
    options.extend(timestamps);
    let level = socket::IPPROTO_TCP;
    let repair = libc::TCP_REPAIR_OPTIONS;
    socket::set_all(socket, level, repair, &options, "TCP_REPAIR_OPTIONS")?;
    if let Some(timestamp) = tcp.timestamp {
        // Above all that the old owner has sent. The lowest bit tells the unit and stays.
        let next = timestamp.wrapping_add(2);
        socket::set(socket, level, libc::TCP_TIMESTAMP, next, "TCP_TIMESTAMP")?;
    }
    Ok(())
}

/// Puts bytes into the selected queue.
fn put(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<(), Refused> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let sent = net::send(socket, bytes, flags);
    match sent.map_err(|error| Refused::os("send", error.into()))? == bytes.len() {
        true => Ok(()),
        false => Err(Refused::new("the queue has no room")),
    }
}

/// Completes a socket that has been filled: it may start then.
///
/// # Errors
/// It is not filled, or is another one; or as setsockopt(2).
pub fn complete(
    sockets: &mut Sockets,
    socket: BorrowedFd<'_>,
    connection: &Connection,
) -> Result<(), Refused> {
    let tcp = &connection.tcp;
    let looked = look(sockets, socket, &connection.tuple)?;
    if looked.write_seq != tcp.snd_nxt {
        let lacking = tcp.snd_nxt.wrapping_sub(looked.write_seq) as i32;
        let text = format!("the send queue lacks {lacking} bytes");
        return Err(Refused::new(text));
    }
    // Since connect(2), Linux predicts that the next header has a window of 0, and would overlook that the client closes its window.
    // It predicts anew when the window changes, as by `acknowledgement`.
    let a_byte_less = Window {
        snd_wnd_bytes: tcp.snd_wnd_bytes.saturating_sub(1),
        ..window(tcp)
    };
    set_window(socket, a_byte_less)?;
    let (general, congestion) = (socket::SOL_SOCKET, &connection.congestion);
    let (cwnd, ssthresh) = (congestion.cwnd_segments, congestion.ssthresh_segments);
    sockets.seed(socket, cwnd.max(2), ssthresh.max(2))?;
    let rate = congestion.pacing_bytes_per_s;
    if rate != u64::MAX {
        let pacing = libc::SO_MAX_PACING_RATE;
        socket::set(socket, general, pacing, rate, "SO_MAX_PACING_RATE")?;
    }
    // The kernel tunes the buffer again.
    socket::set(socket, general, socket::SO_BUF_LOCK, 0, "SO_BUF_LOCK")
}

/// Lets a complete socket send. `asks`: it asks the client for its window, which may have opened since. Linux answers one such
/// question in half a second.
///
/// # Errors
/// As setsockopt(2).
pub fn start(socket: BorrowedFd<'_>, asks: bool) -> Result<(), Refused> {
    let mode = [socket::REPAIR_OFF_SILENT, socket::REPAIR_OFF][usize::from(asks)];
    leave(socket, mode)
}

/// The client's last acknowledgement as a packet, to be given to the socket before it starts. It takes the prime, and its
/// timestamp tells the round trip time.
///
/// # Errors
/// As getsockopt(2).
pub fn acknowledgement(
    socket: BorrowedFd<'_>,
    connection: &Connection,
) -> Result<Vec<u8>, Refused> {
    let (tcp, srtt_us) = (&connection.tcp, connection.congestion.srtt_us);
    let echo = match tcp.timestamp {
        None => None,
        Some(_) => {
            let (level, what) = (socket::IPPROTO_TCP, "TCP_TIMESTAMP");
            let now: u32 = socket::get(socket, level, libc::TCP_TIMESTAMP, what)?;
            let is_us = now & 1 != 0;
            let ago = if is_us {
                srtt_us
            } else {
                (srtt_us + 500) / 1_000
            };
            Some(now.wrapping_sub(ago))
        }
    };
    Ok(packet::acknowledgement(&connection.tuple, tcp, echo))
}
