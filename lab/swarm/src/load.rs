//! The load generator: many keep-alive downloads in one thread, whose bodies the kernel discards.
//!
//! `recv(MSG_TRUNC)` (tcp(7)) discards bytes without copying them. The client thus costs a fraction of the
//! server, and the server is the bottleneck. Any unexpected answer is an error: a contender that fails fast
//! must not look fast.

use crate::head::{self, HEAD_LEN_BYTES_MAX};
use crate::tally::jain;
use crate::verify;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes discarded by one call.
const DISCARD_BYTES: usize = 4 << 20;
/// Events taken by one wait.
const EVENTS: usize = 256;

/// The downloads.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name of the contender, for error texts.
    pub who: String,
    /// Address of the server.
    pub address: SocketAddr,
    /// Paths; connection i takes `paths[i % len]`.
    pub paths: Vec<String>,
    /// Number of concurrent connections.
    pub connections: usize,
    /// Length of each file.
    pub len_bytes: u64,
    /// A small file and its length, which each connection fetches before its first download. All connections
    /// are then accepted before the load begins. Otherwise a server that accepts one connection a turn would be
    /// measured while it still accepts.
    pub greeting: Option<(String, u64)>,
}

/// The results of one window.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct WindowCounts {
    /// Length of the window.
    pub elapsed_s: f64,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Responses that ended in the window, counted.
    pub responses: u64,
    /// Number of recv calls.
    pub recvs: u64,
    /// Connections opened again because the server had closed the previous one between two responses.
    pub reconnects: u64,
    /// CPU time of the load generator.
    pub load_cpu_s: f64,
    /// Jain's index of the bytes per connection: 1 = all got the same.
    pub fairness: f64,
}

struct Conn {
    socket: TcpStream,
    request: Vec<u8>,
    state: Receiving,
    window_bytes: u64,
}

enum Receiving {
    Head(Vec<u8>),
    /// Bytes left of a body of known length.
    Body(u64),
}

/// A running load: connections and the epoll instance that watches them.
pub struct Load {
    spec: Spec,
    epoll: rustix::fd::OwnedFd,
    conns: Vec<Conn>,
    discard: Vec<u8>,
}

impl Load {
    /// Opens all connections and sends the first request on each.
    ///
    /// # Errors
    /// A connection, a greeting or a first request failed.
    pub fn start(spec: Spec) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).doing(|| "epoll_create".into())?;
        let mut load = Self {
            conns: Vec::with_capacity(spec.connections),
            spec,
            epoll,
            discard: vec![0; DISCARD_BYTES], // never written: MSG_TRUNC copies nothing
        };
        for index in 0..load.spec.connections {
            let path = &load.spec.paths[index % load.spec.paths.len()];
            let request = request(path);
            load.conns.push(Conn {
                socket: load.connect()?,
                request,
                state: Receiving::Head(Vec::new()),
                window_bytes: 0,
            });
        }
        for (index, conn) in load.conns.iter_mut().enumerate() {
            begin(&load.epoll, index, conn)
                .doing(|| format!("{}: first request", load.spec.who))?;
        }
        Ok(load)
    }

    /// Downloads for `window` and returns its counts. The load continues between two calls: nothing is closed
    /// or restarted.
    ///
    /// # Errors
    /// The first unexpected answer, as the contender's fault; or a failed system call.
    pub fn run_for(&mut self, window: Duration) -> Result<WindowCounts> {
        for conn in &mut self.conns {
            conn.window_bytes = 0;
        }
        let mut counts = WindowCounts::default();
        let cpu_s = thread_cpu_s();
        let start = Instant::now();
        let mut events = Vec::with_capacity(EVENTS);
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        while start.elapsed() < window {
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&tick),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing(|| "epoll_wait".into()),
            }
            for event in &events {
                self.readable(event.data.u64() as usize, &mut counts)?;
            }
        }
        counts.elapsed_s = start.elapsed().as_secs_f64();
        counts.load_cpu_s = thread_cpu_s() - cpu_s;
        counts.body_bytes = self.conns.iter().map(|conn| conn.window_bytes).sum();
        counts.fairness = fairness(self.conns.iter().map(|conn| conn.window_bytes as f64));
        Ok(counts)
    }

    fn readable(&mut self, index: usize, counts: &mut WindowCounts) -> Result<()> {
        counts.recvs += 1;
        let conn = &mut self.conns[index];
        let got = match &mut conn.state {
            Receiving::Head(head) => read_head(&conn.socket, head),
            Receiving::Body(left) => {
                let want = (*left).min(DISCARD_BYTES as u64) as usize;
                discard(&conn.socket, &mut self.discard[..want])
            }
        };
        match got {
            Ok(0) => self.ended(index, counts),
            Ok(bytes) => self.advance(index, bytes, counts),
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(Errno::CONNRESET) => self.ended(index, counts),
            Err(error) => Err(LabError::contender(
                &self.spec.who,
                format!("recv: {error}"),
            )),
        }
    }

    /// Handles a close by the server: valid between two responses, otherwise an error.
    fn ended(&mut self, index: usize, counts: &mut WindowCounts) -> Result<()> {
        match &self.conns[index].state {
            Receiving::Head(head) if head.is_empty() => {}
            Receiving::Head(_) => return Err(self.fault("closed within a response head".into())),
            Receiving::Body(left) => {
                return Err(self.fault(format!("closed {left} bytes before the end of a body")));
            }
        }
        counts.reconnects += 1;
        let socket = self.connect()?; // the old one leaves epoll when it is dropped
        let conn = &mut self.conns[index];
        conn.socket = socket;
        conn.state = Receiving::Head(Vec::new());
        begin(&self.epoll, index, conn).doing(|| format!("{}: new request", self.spec.who))
    }

    /// Applies `bytes` new bytes to the state of a connection; sends the next request at the end of a body.
    fn advance(&mut self, index: usize, bytes: usize, counts: &mut WindowCounts) -> Result<()> {
        let len_bytes = self.spec.len_bytes;
        let conn = &mut self.conns[index];
        match &mut conn.state {
            Receiving::Head(buffer) => {
                let head = match head::parse(buffer) {
                    Ok(None) => return Ok(()),
                    Ok(Some(head)) => head,
                    Err(why) => return Err(self.fault(why)),
                };
                let body_bytes = (buffer.len() - head.len_bytes) as u64;
                conn.window_bytes += body_bytes;
                if head.status != 200 {
                    return Err(self.fault(format!("status {} instead of 200", head.status)));
                }
                if head.body_len_bytes != Some(len_bytes) {
                    let got = head.body_len_bytes;
                    return Err(self.fault(format!("Content-Length {got:?}, {len_bytes} awaited")));
                }
                conn.state = Receiving::Body(len_bytes - body_bytes.min(len_bytes));
            }
            Receiving::Body(left) => {
                *left -= bytes as u64;
                conn.window_bytes += bytes as u64;
            }
        }
        if matches!(conn.state, Receiving::Body(0)) {
            counts.responses += 1;
            conn.state = Receiving::Head(Vec::new());
            let Conn {
                socket, request, ..
            } = conn;
            let who = &self.spec.who;
            socket
                .write_all(request)
                .doing(|| format!("{who}: sending the next request"))?;
        }
        Ok(())
    }

    fn connect(&self) -> Result<TcpStream> {
        let what = || format!("{}: connection to {}", self.spec.who, self.spec.address);
        let socket = match &self.spec.greeting {
            Some((path, len_bytes)) => {
                verify::ask_once(&self.spec.who, self.spec.address, path, *len_bytes)?
            }
            None => TcpStream::connect(self.spec.address).doing(what)?,
        };
        socket.set_nodelay(true).doing(what)?;
        Ok(socket)
    }

    fn fault(&self, what: String) -> LabError {
        LabError::contender(&self.spec.who, what)
    }
}

/// Sends the request and watches for the answer.
fn begin(epoll: &rustix::fd::OwnedFd, index: usize, conn: &mut Conn) -> std::io::Result<()> {
    conn.socket.write_all(&conn.request)?;
    conn.socket.set_nonblocking(true)?;
    let data = epoll::EventData::new_u64(index as u64);
    Ok(epoll::add(
        epoll,
        &conn.socket,
        data,
        epoll::EventFlags::IN,
    )?)
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: lab\r\nUser-Agent: ackpace-lab\r\n\r\n").into_bytes()
}

/// Appends the available bytes, up to the bound of a head.
fn read_head(socket: &TcpStream, head: &mut Vec<u8>) -> rustix::io::Result<usize> {
    let mut piece = [0; HEAD_LEN_BYTES_MAX];
    let room = HEAD_LEN_BYTES_MAX - head.len();
    let (got, _) = recv(socket, &mut piece[..room], RecvFlags::DONTWAIT)?;
    head.extend_from_slice(&piece[..got]);
    Ok(got)
}

fn discard(socket: &TcpStream, room: &mut [u8]) -> rustix::io::Result<usize> {
    let (got, _) = recv(socket, room, RecvFlags::TRUNC | RecvFlags::DONTWAIT)?;
    Ok(got)
}

fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Jain's index; 1 where it compares nothing.
fn fairness(shares: impl Iterator<Item = f64>) -> f64 {
    let (mut n, mut sum, mut squares) = (0, 0.0, 0.0);
    for share in shares {
        n += 1;
        sum += share;
        squares += share * share;
    }
    jain(n, sum, squares).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    /// Answers each request on each of `accepts` connections with `answer`, until the peer closes.
    fn server(accepts: usize, answer: Vec<u8>, close: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for socket in listener.incoming().take(accepts) {
                let (mut socket, answer) = (socket.unwrap(), answer.clone());
                thread::spawn(move || {
                    let mut request = [0; 4096];
                    while matches!(socket.read(&mut request), Ok(n) if n > 0) {
                        if socket.write_all(&answer).is_err() || close {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    fn spec(address: SocketAddr, connections: usize, len_bytes: u64) -> Spec {
        Spec {
            who: "test".into(),
            address,
            paths: vec!["/a".into()],
            connections,
            len_bytes,
            greeting: None,
        }
    }

    fn answer(head: &str, body_len_bytes: usize) -> Vec<u8> {
        let mut answer = head.as_bytes().to_vec();
        answer.resize(answer.len() + body_len_bytes, b'x');
        answer
    }

    /// Runs windows until `done` holds, at most 500: bounded regardless of the machine's speed.
    fn run_until(load: &mut Load, done: impl Fn(&WindowCounts) -> bool) -> Result<WindowCounts> {
        let mut sum = WindowCounts::default();
        for _ in 0..500 {
            let counts = load.run_for(Duration::from_millis(10))?;
            sum.body_bytes += counts.body_bytes;
            sum.responses += counts.responses;
            sum.reconnects += counts.reconnects;
            if done(&sum) {
                break;
            }
        }
        Ok(sum)
    }

    #[test]
    fn keep_alive_downloads_repeat_and_every_byte_is_counted() {
        let len = 300_000;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
        let address = server(3, answer(&head, len), false);
        let mut load = Load::start(spec(address, 3, len as u64)).unwrap();
        let sum = run_until(&mut load, |sum| sum.responses >= 9).unwrap();
        assert!(sum.responses >= 9, "{sum:?}");
        assert_eq!(sum.reconnects, 0);
        let (low, high) = (sum.responses * len as u64, (sum.responses + 3) * len as u64);
        assert!((low..=high).contains(&sum.body_bytes), "{sum:?}");
    }

    #[test]
    fn a_wrong_answer_is_an_error_not_a_figure() {
        for (head, body, want) in [
            (
                "HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\n",
                9,
                "status 404 instead of 200",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n",
                8,
                "Content-Length Some(8), 9 awaited",
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
                4,
                "closed 5 bytes before the end of a body",
            ),
        ] {
            let address = server(1, answer(head, body), true);
            let mut load = Load::start(spec(address, 1, 9)).unwrap();
            let error = run_until(&mut load, |_| false).unwrap_err();
            assert_eq!(error.to_string(), format!("test: {want}"));
        }
    }
}
