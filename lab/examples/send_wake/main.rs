//! Which wake-up serves a socket whose send credit is used up? Three answers side by side, over an emulated network with
//! the kernel's own TCP; `docs/decisions/0026-waking-a-socket-without-credit.md` has what came out.
//!
//! `cargo run --release -p ackpace-lab --example send_wake -- [SECONDS [ROUNDS]]`, as root.
//!
//! The case is SSBT's Figure 17 in small: one fast connection and 15 slow ones, round trip 12 ms, and send memory of
//! 160 KB, which is divided by need. A socket may hold its share and no more, unsent and in flight. While the share
//! binds, nothing is unsent, so the kernel's own signal (TCP_NOTSENT_LOWAT) fires at once or never.

mod paths;

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ackpace_lab_base::error::{Doing, Result};
use ackpace_lab_wan::Wan;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::time::{ClockId, clock_gettime};

use self::paths::{Sink, clamp_routes, sink, topology};

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 7000;
const SLOW: u8 = 15;
const RTT_MS: f64 = 12.0;
const FAST_MBIT_PER_S: f64 = 300.0;
const SLOW_MBIT_PER_S: f64 = 10.0;
const POOL_BYTES: u64 = 160_000;
/// What 15 connections behind one link of 10 Mbit/s need each, and what is left for the fast one.
const SLOW_SHARE_BYTES: u64 = 5_300;
const FAST_SHARE_BYTES: u64 = POOL_BYTES - SLOW as u64 * SLOW_SHARE_BYTES;
const MSS_BYTES: u64 = 1_448;
/// A write takes whole segments, but for a share that is smaller.
const WRITE_BYTES_MAX: u64 = 64 * 1024;
/// A send buffer that does not bind.
const OPEN_BYTES: u32 = 4 << 20;

/// What wakes the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wake {
    /// All sockets are looked at each millisecond: the most that the shares allow.
    Tick,
    /// A timer when, by the measured rate, a share of the credit is left.
    Deadline { level: f64 },
    /// A timer when that share of a round trip is left.
    RoundTrip { level: f64 },
    /// SO_SNDBUF is the share, and nobody counts: the kernel wakes at two thirds of it. It checks its bound only when it
    /// needs a new buffer, and not while the last unsent one grows, so what is in flight is not bounded.
    SendBuffer,
    /// The same, with as many bytes written as the share has left.
    Counted,
    /// SO_SNDBUF is lowered after each write, so that the kernel wakes at this level.
    Alarm { level: f64 },
    /// A clamp on cwnd (here by a route's metric): the rest of the share is unsent, and TCP_NOTSENT_LOWAT wakes.
    Clamp { in_flight: f64 },
}

const WAKES: [(&str, Wake); 11] = [
    ("each millisecond", Wake::Tick),
    ("deadline, rate, 1/2", Wake::Deadline { level: 0.5 }),
    ("deadline, RTT, 1/2", Wake::RoundTrip { level: 0.5 }),
    ("deadline, RTT, 2/3", Wake::RoundTrip { level: 0.667 }),
    ("SO_SNDBUF alone", Wake::SendBuffer),
    ("SO_SNDBUF, counted", Wake::Counted),
    ("alarm, 1/2", Wake::Alarm { level: 0.5 }),
    ("alarm, 2/3", Wake::Alarm { level: 0.667 }),
    ("alarm, 3/4", Wake::Alarm { level: 0.75 }),
    ("cwnd clamp 3/4", Wake::Clamp { in_flight: 0.75 }),
    ("cwnd clamp 1/2", Wake::Clamp { in_flight: 0.5 }),
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "sink") {
        return sink();
    }
    let number = |nth: usize, otherwise: u64| {
        arguments
            .get(nth)
            .and_then(|text| text.parse().ok())
            .unwrap_or(otherwise)
    };
    let (window, rounds) = (Duration::from_secs(number(0, 6)), number(1, 3));
    println!(
        "{:<5} {:<20} {:>8} {:>8} {:>12} {:>12} {:>9} {:>9} {:>9}",
        "round",
        "wake-up",
        "fast",
        "slow",
        "wake-ups/GB",
        "calls/GB",
        "CPU s/GB",
        "held KB",
        "most KB"
    );
    for round in 1..=rounds {
        for (name, wake) in WAKES {
            let told = measure(wake, window)?;
            println!(
                "{round:<5} {name:<20} {:>8.2} {:>8.2} {:>12.0} {:>12.0} {:>9.3} {:>9.1} {:>9.1}",
                told.fast_mbit_per_s,
                told.slow_mbit_per_s,
                told.wakeups_per_gb,
                told.calls_per_gb,
                told.cpu_s_per_gb,
                told.held_bytes / 1e3,
                told.most_bytes / 1e3
            );
        }
    }
    Ok(())
}

/// One run of a way to wake.
struct Told {
    fast_mbit_per_s: f64,
    slow_mbit_per_s: f64,
    wakeups_per_gb: f64,
    calls_per_gb: f64,
    cpu_s_per_gb: f64,
    held_bytes: f64,
    most_bytes: f64,
}

fn measure(wake: Wake, window: Duration) -> Result<Told> {
    let wan = Wan::up(&topology())?;
    let clamp = match wake {
        Wake::Clamp { in_flight } => Some(in_flight),
        _ => None,
    };
    let own = std::env::current_exe().doing(|| "this program's path".into())?;
    let told = wan.server().run(|| {
        if let Some(in_flight) = clamp {
            clamp_routes(in_flight)?;
        }
        let listener = TcpListener::bind((SERVER, PORT)).doing(|| "listening".into())?;
        let mut command = Command::new(own);
        command.arg("sink").stdin(Stdio::piped());
        wan.client().enter_before_exec(&mut command);
        let mut sink = Sink(command.spawn().doing(|| "the clients".into())?);
        let told = Sender::accept(&listener, wake)
            .and_then(|mut sender| sender.run(window))
            .doing(|| "sending".into());
        sink.end();
        told
    })?;
    Ok(told)
}

/// A socket with a share of the pool.
struct Conn {
    stream: TcpStream,
    share_bytes: u64,
    /// Unsent and in flight when it was last looked at.
    held_bytes: u64,
    written_bytes: u64,
    due: Instant,
    /// What was acknowledged by then: for the rate.
    measured: (Instant, u64),
    rate_bytes_per_s: f64,
    /// As TCP measures it, or that of the empty path.
    rtt: Duration,
}

struct Sender {
    wake: Wake,
    conns: Vec<Conn>,
    epoll: std::os::fd::OwnedFd,
    calls: u64,
    wakeups: u64,
    data: Vec<u8>,
}

impl Sender {
    fn accept(listener: &TcpListener, wake: Wake) -> io::Result<Sender> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut conns = Vec::new();
        for _ in 0..=SLOW {
            // The kernel takes a route's clamp only for an address that it has served before.
            drop(listener.accept()?);
        }
        for nth in 0..=u64::from(SLOW) {
            let (stream, from) = listener.accept()?;
            stream.set_nonblocking(true)?;
            let is_fast = from.ip() == IpAddr::V4(Ipv4Addr::new(10, 1, 0, 1));
            let share_bytes = if is_fast {
                FAST_SHARE_BYTES
            } else {
                SLOW_SHARE_BYTES
            };
            let now = Instant::now();
            let conn = Conn {
                stream,
                share_bytes,
                held_bytes: 0,
                written_bytes: 0,
                due: now,
                measured: (now, 0),
                rate_bytes_per_s: 0.0,
                rtt: Duration::from_secs_f64(RTT_MS / 1e3),
            };
            conn.set_send_buffer(match wake {
                Wake::SendBuffer | Wake::Counted => share_bytes as u32,
                _ => OPEN_BYTES,
            })?;
            if let Wake::Clamp { in_flight } = wake {
                let unsent_bytes = share_bytes as f64 * (1.0 - in_flight);
                set_lowat(&conn.stream, unsent_bytes as u32)?;
            }
            let interest = match wake {
                Wake::Tick | Wake::Deadline { .. } | Wake::RoundTrip { .. } => EventFlags::empty(),
                _ => EventFlags::OUT | EventFlags::ET,
            };
            epoll::add(&epoll, &conn.stream, EventData::new_u64(nth), interest)?;
            conns.push(conn);
        }
        Ok(Sender {
            wake,
            conns,
            epoll,
            calls: 0,
            wakeups: 0,
            data: vec![0; WRITE_BYTES_MAX as usize],
        })
    }

    /// Two seconds to warm up, and then the window.
    fn run(&mut self, window: Duration) -> io::Result<Told> {
        self.serve(Duration::from_secs(2), &mut Vec::new())?;
        let before: Vec<u64> = self.conns.iter().map(Conn::acked_bytes).collect();
        (self.calls, self.wakeups) = (0, 0);
        let (from, cpu) = (Instant::now(), cpu_s());
        let mut held = Vec::new();
        self.serve(window, &mut held)?;
        let (took_s, cpu_s) = (from.elapsed().as_secs_f64(), cpu_s() - cpu);
        let mut mbit_per_s = [0.0; 2];
        let mut all_bytes = 0;
        for (conn, before) in self.conns.iter_mut().zip(before) {
            conn.look()?;
            let bytes = conn.acked_bytes() - before;
            all_bytes += bytes;
            let class = usize::from(conn.share_bytes == SLOW_SHARE_BYTES);
            mbit_per_s[class] += bytes as f64 * 8e-6 / took_s;
        }
        let gb = all_bytes as f64 / 1e9;
        Ok(Told {
            fast_mbit_per_s: mbit_per_s[0],
            slow_mbit_per_s: mbit_per_s[1],
            wakeups_per_gb: self.wakeups as f64 / gb,
            calls_per_gb: self.calls as f64 / gb,
            cpu_s_per_gb: cpu_s / gb,
            held_bytes: held.iter().sum::<u64>() as f64 / held.len().max(1) as f64,
            most_bytes: held.iter().copied().max().unwrap_or(0) as f64,
        })
    }

    fn serve(&mut self, window: Duration, held: &mut Vec<u64>) -> io::Result<()> {
        let until = Instant::now() + window;
        let mut events = Vec::with_capacity(64);
        let mut due: Vec<usize> = (0..self.conns.len()).collect();
        loop {
            for &nth in &due {
                self.top_up(nth)?;
            }
            held.push(self.conns.iter().map(|conn| conn.held_bytes).sum());
            let now = Instant::now();
            if now >= until {
                return Ok(());
            }
            let timeout = self.sleeps(until, now);
            events.clear();
            epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&timeout),
            )?;
            (self.wakeups, self.calls) = (self.wakeups + 1, self.calls + 1);
            let now = Instant::now();
            due = match self.wake {
                Wake::Tick => (0..self.conns.len()).collect(),
                // One wake-up for all that are due within a millisecond.
                Wake::Deadline { .. } | Wake::RoundTrip { .. } => (0..self.conns.len())
                    .filter(|&nth| self.conns[nth].due <= now + Duration::from_millis(1))
                    .collect(),
                _ => events
                    .iter()
                    .map(|event| event.data.u64() as usize)
                    .collect(),
            };
        }
    }

    fn sleeps(&self, until: Instant, now: Instant) -> Timespec {
        let next = match self.wake {
            Wake::Tick => now + Duration::from_millis(1),
            Wake::Deadline { .. } | Wake::RoundTrip { .. } => self
                .conns
                .iter()
                .map(|conn| conn.due)
                .min()
                .unwrap_or(until),
            _ => until,
        };
        let wait = next.min(until).saturating_duration_since(now);
        Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: wait.subsec_nanos().into(),
        }
    }

    /// Fills a socket up to its share, and arms what wakes us next.
    fn top_up(&mut self, nth: usize) -> io::Result<()> {
        let conn = &mut self.conns[nth];
        let lowered = matches!(self.wake, Wake::Alarm { .. });
        if lowered {
            conn.set_send_buffer(OPEN_BYTES)?;
            self.calls += 1;
        }
        conn.look()?;
        self.calls += 1;
        let by_kernel = self.wake == Wake::SendBuffer;
        loop {
            let credit_bytes = conn.share_bytes.saturating_sub(conn.held_bytes);
            let bytes = match by_kernel {
                true => MSS_BYTES.max(conn.share_bytes / 4),
                false if conn.held_bytes == 0 => credit_bytes,
                false => credit_bytes / MSS_BYTES * MSS_BYTES,
            };
            if bytes == 0 {
                break;
            }
            let piece = &self.data[..bytes.min(WRITE_BYTES_MAX) as usize];
            self.calls += 1;
            match io::Write::write(&mut conn.stream, piece) {
                Ok(taken) => {
                    conn.held_bytes += taken as u64;
                    conn.written_bytes += taken as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        let now = Instant::now();
        conn.measure(now);
        match self.wake {
            Wake::Alarm { level } => {
                // The kernel makes it writable at two thirds of its send buffer.
                conn.set_send_buffer((conn.share_bytes as f64 * level * 1.5) as u32)?;
                self.calls += 1;
                self.arm(nth)?;
            }
            Wake::Clamp { .. } | Wake::Counted => self.arm(nth)?,
            Wake::Deadline { level } => conn.due = now + conn.lasts(level),
            Wake::RoundTrip { level } => {
                conn.due = now + conn.rtt.mul_f64(1.0 - level);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Sender {
    /// Has the kernel look whether it is writable, so that it reports when it becomes so.
    fn arm(&mut self, nth: usize) -> io::Result<()> {
        self.calls += 1;
        let (stream, data) = (&self.conns[nth].stream, EventData::new_u64(nth as u64));
        epoll::modify(&self.epoll, stream, data, EventFlags::OUT | EventFlags::ET)?;
        Ok(())
    }
}

impl Conn {
    fn fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Reads what it holds, unsent and in flight (SIOCOUTQ).
    fn look(&mut self) -> io::Result<()> {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the request writes one int.
        if unsafe { libc::ioctl(self.fd(), libc::TIOCOUTQ, &raw mut bytes) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.held_bytes = bytes.unsigned_abs().into();
        Ok(())
    }

    fn acked_bytes(&self) -> u64 {
        self.written_bytes - self.held_bytes
    }

    fn measure(&mut self, now: Instant) {
        let (from, before) = self.measured;
        let s = now.duration_since(from).as_secs_f64();
        if s >= 0.1 {
            self.rate_bytes_per_s = (self.acked_bytes() - before) as f64 / s;
            self.measured = (now, self.acked_bytes());
            self.rtt = rtt_of(&self.stream).unwrap_or(self.rtt);
        }
    }

    /// How long it lasts until that level, by the measured rate.
    fn lasts(&self, level: f64) -> Duration {
        if self.rate_bytes_per_s <= 0.0 {
            return Duration::from_millis(1);
        }
        let spare_bytes = self.held_bytes as f64 - level * self.share_bytes as f64;
        Duration::from_secs_f64((spare_bytes.max(0.0) / self.rate_bytes_per_s).clamp(0.000_5, 1.0))
    }

    /// SO_SNDBUF; the kernel takes half of what it doubles.
    fn set_send_buffer(&self, bytes: u32) -> io::Result<()> {
        rustix::net::sockopt::set_socket_send_buffer_size(self.stream.as_fd(), bytes as usize / 2)?;
        Ok(())
    }
}

fn set_lowat(stream: &TcpStream, bytes: u32) -> io::Result<()> {
    // SAFETY: the option is one int.
    let done = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_NOTSENT_LOWAT,
            (&raw const bytes).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The smoothed round trip (TCP_INFO).
fn rtt_of(stream: &TcpStream) -> Option<Duration> {
    // SAFETY: plain numbers, for which 0 is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes no more than so many bytes of a live struct.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut bytes,
        )
    };
    (done == 0 && info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

fn cpu_s() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}
