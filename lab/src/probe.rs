//! A keep-alive probe: small requests at a fixed pace, each timed from its first byte sent to its last byte
//! received. It measures the latency that a visitor sees while the server is busy with others.

use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::stats::percentile;
use ackpace_lab_swarm::head;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pause between an answer and the next probe.
const PAUSE: Duration = Duration::from_millis(2);
/// A probe without an answer for this long ends the run.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Latencies of one window.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Latencies {
    /// Number of answered probes.
    pub count: usize,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
    /// Connections opened again because the server had closed the previous one.
    pub reconnects: u64,
}

/// A probe that runs in its own thread until it is stopped.
pub struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Latencies>>,
}

impl Probe {
    /// Stops the probe and summarises it. It waits for the last answer, so a stall at the end counts.
    pub fn stop(self) -> Result<Latencies> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(result) => result,
            Err(_) => Err(LabError::Setup("the probe's thread panicked".into())),
        }
    }
}

/// Gives this thread real-time priority where allowed. The probe must measure the server, and not its own wait
/// for the clients' core.
fn prefer_this_thread() {
    let parameter = libc::sched_param { sched_priority: 1 };
    // SAFETY: plain call with a pointer to a live struct; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) };
}

/// A visitor: a keep-alive connection that asks for one small file.
pub struct Prober {
    who: String,
    address: SocketAddr,
    socket: TcpStream,
    request: Vec<u8>,
    body_len_bytes: u64,
    reconnects: u64,
    buffer: Vec<u8>,
}

impl Prober {
    /// Connects and sends one request, so that the server knows the connection before it is busy.
    pub fn connect(
        who: &str,
        address: SocketAddr,
        path: &str,
        body_len_bytes: u64,
    ) -> Result<Self> {
        let socket = connect(who, address)?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: lab\r\nUser-Agent: ackpace-lab\r\n\r\n");
        let mut prober = Self {
            who: who.to_owned(),
            address,
            socket,
            request: request.into_bytes(),
            body_len_bytes,
            reconnects: 0,
            buffer: vec![0; 64 << 10],
        };
        prober.ask()?;
        Ok(prober)
    }

    /// Probes for the length of `window` in this thread.
    pub fn run_for(&mut self, window: Duration) -> Result<Latencies> {
        let start = Instant::now();
        self.run_while(|| start.elapsed() < window)
    }

    /// Probes in a thread of its own.
    pub fn start(mut self) -> Probe {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            prefer_this_thread();
            self.run_while(|| !seen.load(Ordering::Relaxed))
        });
        Probe { stop, thread }
    }

    fn run_while(&mut self, go_on: impl Fn() -> bool) -> Result<Latencies> {
        let mut latencies_ns = Vec::new();
        while go_on() {
            latencies_ns.push(self.ask()?);
            std::thread::sleep(PAUSE);
        }
        Ok(summary(latencies_ns, self.reconnects))
    }

    /// Sends one request; returns its latency in ns. If the server closed the connection before the first byte
    /// of an answer, the request is repeated on a new one and timed there.
    fn ask(&mut self) -> Result<u64> {
        if let Some(ns) = self.try_ask()? {
            return Ok(ns);
        }
        self.reconnects += 1;
        self.socket = connect(&self.who, self.address)?;
        match self.try_ask()? {
            Some(ns) => Ok(ns),
            None => Err(self.fault("closed a new connection without an answer")),
        }
    }

    fn try_ask(&mut self) -> Result<Option<u64>> {
        let start = Instant::now();
        if let Err(error) = self.socket.write_all(&self.request) {
            return match error.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(None),
                _ => Err(error).doing(|| format!("{}: sending a probe", self.who)),
            };
        }
        let (mut have, mut need) = (0, usize::MAX);
        while have < need {
            match self.socket.read(&mut self.buffer[have..]) {
                Ok(0) if have == 0 => return Ok(None),
                Ok(0) => return Err(self.fault("closed within the answer to a probe")),
                Ok(bytes) => have += bytes,
                Err(error) if have == 0 && error.kind() == ErrorKind::ConnectionReset => {
                    return Ok(None);
                }
                Err(error) => return Err(error).doing(|| format!("{}: probe", self.who)),
            }
            if need == usize::MAX {
                need = self.answer_len(have)?.unwrap_or(usize::MAX);
            }
        }
        if have > need {
            return Err(self.fault("more bytes than its Content-Length"));
        }
        Ok(Some(start.elapsed().as_nanos() as u64))
    }

    fn answer_len(&self, have: usize) -> Result<Option<usize>> {
        let Some(head) = head::parse(&self.buffer[..have]).map_err(|why| self.fault(&why))? else {
            return Ok(None);
        };
        if head.status != 200 || head.body_len_bytes != Some(self.body_len_bytes) {
            return Err(self.fault(&format!("wrong answer to a probe: {head:?}")));
        }
        Ok(Some(head.len_bytes + self.body_len_bytes as usize))
    }

    fn fault(&self, what: &str) -> LabError {
        LabError::contender(&self.who, what)
    }
}

fn connect(who: &str, address: SocketAddr) -> Result<TcpStream> {
    let what = || format!("{who}: probe to {address}");
    let socket = TcpStream::connect(address).doing(what)?;
    socket.set_nodelay(true).doing(what)?;
    socket.set_read_timeout(Some(ANSWER_MAX)).doing(what)?;
    Ok(socket)
}

fn summary(mut latencies_ns: Vec<u64>, reconnects: u64) -> Latencies {
    latencies_ns.sort_unstable();
    let at_us = |percent| percentile(&latencies_ns, percent).unwrap_or(0) as f64 / 1e3;
    Latencies {
        count: latencies_ns.len(),
        p50_us: at_us(50.0),
        p99_us: at_us(99.0),
        max_us: at_us(100.0),
        reconnects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers `per_connection` requests on each connection, then closes it.
    fn server(answer: &'static [u8], per_connection: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let mut socket = socket.unwrap();
                for _ in 0..per_connection {
                    if !matches!(socket.read(&mut [0; 4096]), Ok(n) if n > 0) {
                        break;
                    }
                    socket.write_all(answer).unwrap();
                }
            }
        });
        address
    }

    #[test]
    fn a_probe_times_whole_answers_and_follows_a_closed_connection() {
        let address = server(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", 2);
        let mut prober = Prober::connect("test", address, "/p", 4).unwrap();
        for _ in 0..5 {
            assert!(prober.ask().unwrap() > 0);
        }
        assert_eq!(prober.reconnects, 2, "six probes, two on each connection");
    }

    #[test]
    fn a_wrong_answer_to_a_probe_is_an_error() {
        let address = server(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbod", 1);
        let error = Prober::connect("test", address, "/p", 4).err().unwrap();
        assert!(
            error.to_string().contains("wrong answer to a probe"),
            "{error}"
        );
    }
}
