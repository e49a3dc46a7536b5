//! A connection goes to the other instance, and comes back.
//!
//! ```text
//! home                                       guest
//! prepare: path, version      ------------>  opens the file, compares
//!                             <------------  yes
//! FREEZE -> SAVED
//! handoff: state, position    ------------>  RESTORE, fills una..nxt, START
//!                             <------------  yes
//! REDIRECT, closes                           sends the rest, and what is asked next
//!                             <------------  renew, every 100 ms; each time LEASE
//!                                            idle: FREEZE -> SAVED
//! RESTORE, START              <------------  back: state
//! yes                         ------------>  REDIRECT, closes, FORGET
//! ```
//! Whatever is refused on the way: the connection stays where it is ([`Request::Thaw`], if it was frozen).

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_wire::cluster::broker::{
    Connection, FAREWELL_PRIORITY, Lease, Reply, Request, Tracked, encode_request, parse_request,
};
use ackpace_wire::cluster::{Tcp, Tuple};
use ackpace_wire::tcp_info::{LEN_BYTES, TcpInfo};
use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};

use super::lines::Line;
use super::{Client, Response, Server, TICK};

/// A guest may send for so long after it has asked home.
const LEASE: Duration = Duration::from_millis(500);
/// Clocks run differently, and packets of the guest may be on their way.
const MARGIN: Duration = Duration::from_millis(100);

/// What a guest knows of home.
pub struct Home {
    line: Line,
    tuple: Tuple,
    renewed: Instant,
}

/// What home keeps of a connection that is away.
struct Left {
    connection: Box<Connection>,
    epoch: u32,
    /// Position of `snd_nxt` in the response.
    at: u64,
    frozen: Instant,
    /// When the guest was heard last.
    heard: Instant,
}

pub fn set_timeouts(socket: &TcpStream) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(TICK))?;
    socket.set_write_timeout(Some(TICK))
}

impl Server {
    fn ask(
        &self,
        request: &Request,
        socket: Option<&TcpStream>,
    ) -> io::Result<(Reply, Option<OwnedFd>)> {
        let mut broker = self.broker.lock().map_err(|_| io::ErrorKind::Other)?;
        broker.ask(request, socket.map(AsFd::as_fd))
    }

    /// The place of the other node among the broker's peers.
    fn peer(&self) -> Option<u16> {
        let version = ackpace_wire::cluster::broker::VERSION;
        match self.ask(&Request::Hello { version }, None).ok()?.0 {
            Reply::Hello(hello) => {
                let at = hello.peers.iter().position(|peer| *peer == self.other.0)?;
                u16::try_from(at).ok()
            }
            _ => None,
        }
    }

    fn forget(&self, tuple: Tuple) {
        let _ = self.ask(&Request::Forget(tuple), None);
    }
}

/// Whether the moment suits: established, nothing lost, and the client has acknowledged something since the socket was restored.
fn suits(client: &Client, socket: &TcpStream) -> bool {
    let (mut told, mut len) = ([0u8; LEN_BYTES], LEN_BYTES as libc::socklen_t);
    let mut queued = 0i32;
    // SAFETY: the kernel writes at most `len` bytes, and an int.
    let done = unsafe {
        let (fd, tcp) = (socket.as_raw_fd(), libc::IPPROTO_TCP);
        libc::getsockopt(
            fd,
            tcp,
            libc::TCP_INFO,
            told.as_mut_ptr().cast(),
            &raw mut len,
        ) | libc::ioctl(fd, libc::TIOCOUTQ, &raw mut queued)
    };
    let Some(info) = TcpInfo::parse(&told).filter(|_| done == 0) else {
        return false;
    };
    let is_calm = info.state == 1 && info.ca_state <= 1 && info.repairing_segments == 0;
    let acked = client.written as i64 - i64::from(queued);
    is_calm && info.retransmits == 0 && info.rtt_us > 0 && (client.floor.is_none() || acked > 0)
}

/// Freezes a socket, into which nobody writes from now on. `None`: it goes on as before.
fn freeze(server: &Server, client: &Client, epoch: u32) -> Option<(Box<Connection>, u64)> {
    let socket = client.socket.as_ref()?;
    let freeze = Request::Freeze {
        epoch,
        una_floor: client.floor,
    };
    match server.ask(&freeze, Some(socket)) {
        Ok((
            Reply::Saved {
                connection,
                unsent_bytes,
            },
            _,
        )) => Some((connection, unsent_bytes.into())),
        _ => None,
    }
}

/// Makes a socket of a connection, fills it with what the client has not acknowledged, and lets it send. After an error nothing was
/// sent: a socket that has not started is silent when it is closed.
fn stand(
    server: &Server,
    epoch: u32,
    connection: Box<Connection>,
    response: Option<&mut Response>,
    lease_until_ns: Option<u64>,
) -> io::Result<TcpStream> {
    let flight = u64::from(connection.tcp.snd_nxt.wrapping_sub(connection.tcp.snd_una));
    let restored = server.ask(&Request::Restore { epoch, connection }, None)?.1;
    let socket = TcpStream::from(restored.ok_or(io::ErrorKind::InvalidData)?);
    if let Some(response) = response {
        let until = response.at;
        response.at = until
            .checked_sub(flight)
            .ok_or(io::ErrorKind::InvalidData)?;
        while response.at < until {
            response.give(&socket, until)?;
        }
    }
    let start = Request::Start {
        epoch,
        lease_until_ns,
    };
    server.ask(&start, Some(&socket))?;
    set_timeouts(&socket)?;
    Ok(socket)
}

/// Home gives a connection away in the middle of a response, waits until it is back, or has ended there, or takes it over.
/// Afterwards the response goes on at its position, if the socket is here.
pub fn away(server: &Server, client: &mut Client, response: &mut Response) -> io::Result<()> {
    let (Some(peer), Ok(line)) = (server.peer(), Line::open(server.other.1)) else {
        return Ok(());
    };
    // The other one opens the file before anything freezes.
    let prepare = [b"prepare", response.path.as_bytes(), &response.version];
    let ready = line.ask(&prepare).is_ok_and(|answer| answer.is_some());
    let heard = Instant::now();
    let suits = client.socket.as_ref().is_some_and(|it| suits(client, it));
    let epoch = client.epoch + 1;
    let frozen = (ready && suits)
        .then(|| freeze(server, client, epoch))
        .flatten();
    let Some((connection, unsent_bytes)) = frozen else {
        return Ok(());
    };
    let left = Left {
        connection,
        epoch,
        at: response.at - unsent_bytes,
        frozen: Instant::now(),
        heard,
    };
    // SAVED's connection is what RESTORE takes, so this datagram is all that travels of the state.
    let connection = left.connection.clone();
    let restore = encode_request(0, &Request::Restore { epoch, connection });
    let at = left.at.to_le_bytes();
    let handoff = [b"handoff", &restore[..], &at, &response.head, &client.input];
    match line.ask(&handoff) {
        Ok(Some(_)) => {
            client.epoch = epoch;
            // There is no way back. A broker that has just gone may be back soon; until then the socket keeps the client from RST.
            let redirect = Request::Redirect { epoch, peer };
            let ask = || server.ask(&redirect, client.socket.as_ref()).is_ok();
            while !ask() && left.heard.elapsed() < LEASE {
                thread::sleep(TICK);
            }
            client.socket = None;
            eprintln!("{}: moved at byte {}", response.path, left.at);
            wait(server, client, &line, left, response)
        }
        Ok(None) => server.ask(&Request::Thaw, client.socket.as_ref()).map(drop),
        // Nobody knows whether it sends there.
        Err(_) => take_over(server, client, left, response),
    }
}

/// A connection is away.
fn wait(
    server: &Server,
    client: &mut Client,
    line: &Line,
    mut left: Left,
    response: &mut Response,
) -> io::Result<()> {
    let tuple = left.connection.tuple;
    while let Ok(words) = line.get() {
        left.heard = Instant::now();
        match &words[..] {
            [word] if word == b"renew" => {
                if line.yes(&[]).is_err() {
                    break;
                }
            }
            [word, state, input] if word == b"back" => {
                match came_back(server, client, tuple, state) {
                    Ok(()) => {
                        client.input.clone_from(input);
                        response.at = response.end;
                        eprintln!("{}: back", response.path);
                        let _ = line.yes(&[]);
                        return Ok(());
                    }
                    Err(_) => line.no()?,
                }
            }
            _ => {
                server.forget(tuple);
                return Ok(());
            }
        }
    }
    take_over(server, client, left, response)
}

fn came_back(server: &Server, client: &mut Client, tuple: Tuple, state: &[u8]) -> io::Result<()> {
    let (epoch, connection) = parse(state)
        .filter(|it| it.1.tuple == tuple)
        .ok_or(io::ErrorKind::InvalidData)?;
    let una = connection.tcp.snd_una;
    client.socket = Some(stand(server, epoch, connection, None, None)?);
    (client.epoch, client.floor, client.written) = (epoch, Some(una), 0);
    Ok(())
}

fn parse(state: &[u8]) -> Option<(u32, Box<Connection>)> {
    match parse_request(state) {
        Ok((_, Request::Restore { epoch, connection })) => Some((epoch, connection)),
        _ => None,
    }
}

/// The guest is not heard any more. When its lease is over, home goes on where the client has acknowledged, with all that it holds.
fn take_over(
    server: &Server,
    client: &mut Client,
    left: Left,
    response: &mut Response,
) -> io::Result<()> {
    client.socket = None;
    let lease_ends = left.heard + LEASE + MARGIN;
    thread::sleep(lease_ends.saturating_duration_since(Instant::now()));
    let (tuple, epoch) = (left.connection.tuple, left.epoch + 1);
    server.ask(&Request::Fence { tuple, epoch }, None)?;
    thread::sleep(MARGIN);
    let (Reply::Tracked(tracked), _) = server.ask(&Request::Track(tuple), None)? else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let mut connection = left.connection;
    let tcp = &mut connection.tcp;
    let more = tracked.map_or(Some(0), |told| catch_up(tcp, told));
    let at = more.and_then(|more| left.at.checked_add_signed(more));
    let Some(at) = at.filter(|at| *at <= response.end) else {
        server.forget(tuple); // the client gets RST
        return Err(io::Error::other("the guest may have taken a later request"));
    };
    response.at = at;
    // Any packet of the client may update its window, and timestamps lie above the guest's. Their lowest bit tells the unit.
    tcp.snd_wl1 = tcp.rcv_nxt.wrapping_sub(1);
    let passed_ms = (left.frozen.elapsed() + MARGIN).as_millis() as u32 & !1;
    let passed = |stamp: u32| passed_ms * if stamp & 1 == 1 { 1_000 } else { 1 };
    tcp.timestamp = tcp.timestamp.map(|it| it.wrapping_add(passed(it)));
    let (una, flight) = (tcp.snd_una, tcp.snd_nxt.wrapping_sub(tcp.snd_una));
    client.socket = Some(stand(server, epoch, connection, Some(response), None)?);
    (client.epoch, client.floor, client.written) = (epoch, Some(una), flight.into());
    eprintln!("{}: taken over at byte {}", response.path, response.at);
    Ok(())
}

/// Counts as sent what the client holds. By how much `snd_nxt` moves; `None`: the client has sent what home does not know.
fn catch_up(tcp: &mut Tcp, told: Tracked) -> Option<i64> {
    let is_past = |one: u32, other: u32| one.wrapping_sub(other) as i32 > 0;
    if is_past(told.seq_end, tcp.rcv_nxt) {
        return None;
    }
    if is_past(told.ack, tcp.snd_una) {
        tcp.snd_una = told.ack;
    }
    let before = tcp.snd_nxt;
    tcp.snd_nxt = tcp.snd_una;
    if is_past(told.held_end, tcp.snd_una) {
        tcp.snd_nxt = told.held_end;
    }
    Some(i64::from(tcp.snd_nxt.wrapping_sub(before) as i32))
}

/// A connection of the other instance, from "prepare" on.
pub fn visit(server: &Server, line: Line) -> io::Result<()> {
    let words = line.get()?;
    let mut response = match &words[..] {
        [word, path, version] if word == b"prepare" => server
            .open(&String::from_utf8_lossy(path))
            .filter(|response| response.version == *version),
        _ => None,
    };
    let Some(response) = &mut response else {
        return line.no();
    };
    // The lease counts from before home hears of it.
    let lease = Some(monotonic_ns() + LEASE.as_nanos() as u64);
    line.yes(&[])?;
    let words = line.get()?;
    let [_, state, at, head, input] = &words[..] else {
        return line.no();
    };
    let at = at[..]
        .try_into()
        .map(u64::from_le_bytes)
        .unwrap_or(u64::MAX);
    response.end = response.end - response.head.len() as u64 + head.len() as u64;
    (response.at, response.head) = (at, head.clone());
    let Some((epoch, connection)) = parse(state).filter(|_| at <= response.end) else {
        return line.no();
    };
    let (tuple, tcp) = (connection.tuple, connection.tcp);
    let Ok(socket) = stand(server, epoch, connection, Some(response), lease) else {
        return line.no();
    };
    line.yes(&[])?;
    // If this process dies, its kernel is to send nothing more.
    sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
    let mut client = Client {
        socket: Some(socket),
        input: input.clone(),
        epoch,
        written: tcp.snd_nxt.wrapping_sub(tcp.snd_una).into(),
        floor: Some(tcp.snd_una),
        home: Some(Home {
            line,
            tuple,
            renewed: Instant::now(),
        }),
    };
    let sent = client.send(server, response);
    let served = sent.and_then(|()| client.serve(server));
    end(server, &client)?;
    served
}

/// A guest asks home for a longer lease. An error: home is gone, and so is the right to send.
pub fn renew(server: &Server, client: &mut Client) -> io::Result<()> {
    let Some(home) = client
        .home
        .as_mut()
        .filter(|it| it.renewed.elapsed() >= TICK)
    else {
        return Ok(());
    };
    let asked_ns = monotonic_ns();
    home.renewed = Instant::now();
    if let Err(error) = home.line.ask(&[b"renew"]) {
        client.socket = None;
        return Err(error);
    }
    let lease = Lease {
        tuple: home.tuple,
        epoch: client.epoch,
        until_ns: asked_ns + LEASE.as_nanos() as u64,
    };
    server.ask(&Request::Lease(vec![lease]), None).map(drop)
}

/// The client asks for nothing. A guest gives its connection back.
pub fn idle(server: &Server, client: &mut Client) -> io::Result<()> {
    renew(server, client)?;
    let (Some(home), Some(socket), Some(peer)) = (&client.home, &client.socket, server.peer())
    else {
        return Ok(());
    };
    let is_ready = client.input.is_empty() && suits(client, socket);
    let frozen = is_ready
        .then(|| freeze(server, client, client.epoch))
        .flatten();
    let Some((connection, unsent_bytes)) = frozen else {
        return Ok(());
    };
    let is_quiet = unsent_bytes == 0 && connection.tcp.snd_una == connection.tcp.snd_nxt;
    let epoch = client.epoch + 1;
    let restore = encode_request(0, &Request::Restore { epoch, connection });
    let asked = is_quiet.then(|| home.line.ask(&[b"back", &restore, &client.input]));
    let done = match asked {
        None | Some(Ok(None)) => return server.ask(&Request::Thaw, Some(socket)).map(drop),
        // What came meanwhile goes home, and so does what is still on its way here.
        Some(Ok(Some(_))) => server
            .ask(&Request::Redirect { epoch, peer }, Some(socket))
            .map(drop),
        // Nobody knows whether home has it.
        Some(Err(error)) => Err(error),
    };
    client.socket = None;
    done
}

/// A guest's connection is over, or home again.
fn end(server: &Server, client: &Client) -> io::Result<()> {
    let Some(home) = &client.home else {
        return Ok(());
    };
    if let Some(socket) = &client.socket {
        // The switch lets the FIN of such a socket pass alone.
        sockopt::set_socket_linger(socket, None)?;
        let priority = FAREWELL_PRIORITY;
        // SAFETY: the kernel reads an int.
        unsafe {
            let (value, len) = (
                (&raw const priority).cast(),
                size_of::<i32>() as libc::socklen_t,
            );
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PRIORITY,
                value,
                len,
            )
        };
        let _ = socket.shutdown(std::net::Shutdown::Both);
        home.line.put(&[b"end"])?;
    }
    server.forget(home.tuple);
    Ok(())
}

fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
