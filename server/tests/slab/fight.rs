//! Writers that fill and free segments, senders that push what they find, and clients that check it.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use ackpace::store::slab::{Pinned, Slab};
use ackpace_core::conn::Span;
use ackpace_lab_wan::Wan;
use ackpace_lab_wan::topology::SERVER;
use rustix::net::sockopt::{set_socket_linger, set_socket_recv_buffer_size};

use crate::payload::{Random, keep, object, wrong_bytes};
use crate::{MIB, SEED};

/// Published spans that senders choose from.
const RECENT_MAX: usize = 48;

/// Where the two ends are.
pub trait Place: Sync {
    fn listen(&self) -> io::Result<TcpListener>;
    fn connect(&self, to: &TcpListener) -> io::Result<TcpStream>;
}

/// This machine.
pub struct Here;

impl Place for Here {
    fn listen(&self) -> io::Result<TcpListener> {
        TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))
    }

    fn connect(&self, to: &TcpListener) -> io::Result<TcpStream> {
        TcpStream::connect(to.local_addr()?)
    }
}

impl Place for Wan {
    fn listen(&self) -> io::Result<TcpListener> {
        let bound = self
            .server()
            .run(|| Ok(TcpListener::bind(SocketAddrV4::new(SERVER, 0))));
        bound.map_err(io::Error::other)?
    }

    fn connect(&self, to: &TcpListener) -> io::Result<TcpStream> {
        let to = to.local_addr()?;
        let connected = self.client().run(|| Ok(TcpStream::connect(to)));
        connected.map_err(io::Error::other)?
    }
}

/// Two writers, and senders with their clients.
pub struct Fight {
    slab: Arc<Slab>,
    until: Instant,
    pub ends_when_wrong: AtomicBool,
    recent: Mutex<VecDeque<(u32, Span)>>,
    next_object: AtomicU32,
    wrong: AtomicU64,
    checked: AtomicU64,
    filled: AtomicU64,
    resets: AtomicU64,
}

impl Fight {
    pub fn new(slab: Arc<Slab>, lasts: Duration) -> Fight {
        println!("seed {SEED}");
        Fight {
            slab,
            until: Instant::now() + lasts,
            ends_when_wrong: AtomicBool::new(false),
            recent: Mutex::new(VecDeque::new()),
            next_object: AtomicU32::new(1),
            wrong: AtomicU64::new(0),
            checked: AtomicU64::new(0),
            filled: AtomicU64::new(0),
            resets: AtomicU64::new(0),
        }
    }

    fn is_over(&self) -> bool {
        let is_won = self.ends_when_wrong.load(Ordering::Relaxed) && self.wrong() > 0;
        is_won || Instant::now() >= self.until
    }

    pub fn wrong(&self) -> u64 {
        self.wrong.load(Ordering::Relaxed)
    }

    pub fn checked(&self) -> u64 {
        self.checked.load(Ordering::Relaxed)
    }

    pub fn filled(&self) -> u64 {
        self.filled.load(Ordering::Relaxed)
    }

    pub fn resets(&self) -> u64 {
        self.resets.load(Ordering::Relaxed)
    }

    pub fn print(&self, name: &str) {
        println!(
            "{name}: {} MiB filled, {} MiB checked, {} resets, {} bytes wrong",
            self.filled() / MIB,
            self.checked() / MIB,
            self.resets(),
            self.wrong()
        );
    }

    pub fn all_unpinned(&self) {
        assert_eq!(self.slab.counts().segments_pinned, 0);
        assert!(!self.slab.is_crowded());
    }

    pub fn run(&self, pairs: u64, place: &dyn Place) {
        thread::scope(|scope| {
            for nth in 0..2 {
                scope.spawn(move || self.write(Random(SEED + nth)));
            }
            for nth in 0..pairs {
                scope.spawn(move || self.pair(nth, place));
            }
        });
    }

    fn write(&self, mut random: Random) {
        while !self.is_over() {
            let index = self.next_object.fetch_add(1, Ordering::Relaxed);
            let len_bytes = match random.below(4) {
                0 => 1 + random.below(8000),
                1 => 1 + random.below(4 * MIB),
                _ => 1 + random.below(300_000),
            };
            let offset_bytes = random.below(1 << 30);
            let span = Span {
                offset_bytes,
                len_bytes,
            };
            if !keep(&self.slab, object(index), span) {
                thread::sleep(Duration::from_millis(1)); // until something is unpinned
                continue;
            }
            self.filled.fetch_add(len_bytes, Ordering::Relaxed);
            let mut recent = self.recent.lock().expect("no panic");
            recent.push_back((index, span));
            if recent.len() > RECENT_MAX {
                recent.pop_front();
            }
        }
    }

    /// A server and a client, one connection after the other.
    fn pair(&self, nth: u64, place: &dyn Place) {
        let mut random = Random(SEED * 1000 + nth);
        let listener = place.listen().expect("a listener");
        while !self.is_over() {
            let client = place.connect(&listener).expect("a connection");
            let (server, _) = listener.accept().expect("the connection");
            let seed = random.below(1 << 30);
            thread::scope(|scope| {
                scope.spawn(move || self.send(server, Random(seed)));
                self.read(client, nth, &mut random);
            });
        }
    }

    /// Sends what is found until the client has gone.
    fn send(&self, server: TcpStream, mut random: Random) {
        let mut sender = Sender::new(server);
        loop {
            let recent = self.recent.lock().expect("no panic");
            let some = random.below(RECENT_MAX as u64) as usize;
            let chosen = recent.get(some).copied();
            drop(recent);
            let found = chosen.and_then(|(index, span)| {
                let from_bytes = random.below(span.len_bytes);
                let part = span.behind(from_bytes);
                Some((
                    index,
                    part.offset_bytes,
                    self.slab.find(object(index), part)?,
                ))
            });
            let sent = match found {
                Some((index, offset_bytes, pinned)) => {
                    let head = head(index, offset_bytes, pinned.len_bytes());
                    sender.write(&head).and_then(|()| sender.sendfile(pinned))
                }
                None => {
                    thread::sleep(Duration::from_millis(1));
                    sender.write(&head(0, 0, 0))
                }
            };
            sender.unpin();
            if sent.is_err() {
                return;
            }
        }
    }

    /// Reads and checks until it resets, which it does after some bytes, at once, or with its own half closed.
    fn read(&self, mut client: TcpStream, nth: u64, random: &mut Random) {
        let is_slow = nth % 2 == 0;
        let _ = set_socket_recv_buffer_size(&client, if is_slow { 4 << 20 } else { 64 << 10 });
        let _ = client.set_read_timeout(Some(Duration::from_secs(5)));
        let mut left_bytes = match random.below(4) {
            0 => 0,
            1 => random.below(100_000),
            _ => random.below(32 * MIB),
        };
        let mut buffer = vec![0; 64 << 10];
        while left_bytes > 0 && !self.is_over() {
            let mut head = [0; 20];
            if client.read_exact(&mut head).is_err() {
                break;
            }
            let (index, mut offset_bytes, mut len_bytes) = parsed(&head);
            while len_bytes > 0 && left_bytes > 0 && !self.is_over() {
                if is_slow {
                    thread::sleep(Duration::from_micros(random.below(8000)));
                }
                let most = (len_bytes as usize).min(buffer.len());
                let got = match client.read(&mut buffer[..most]) {
                    Ok(got) if got > 0 => got,
                    _ => break,
                };
                let wrong = wrong_bytes(index, offset_bytes, &buffer[..got]);
                self.wrong.fetch_add(wrong, Ordering::Relaxed);
                self.checked.fetch_add(got as u64, Ordering::Relaxed);
                (offset_bytes, len_bytes) = (offset_bytes + got as u64, len_bytes - got as u64);
                left_bytes = left_bytes.saturating_sub(got as u64);
            }
        }
        if random.below(3) == 0 {
            let _ = client.shutdown(Shutdown::Write);
        }
        reset(client);
        self.resets.fetch_add(1, Ordering::Relaxed);
    }
}

fn head(index: u32, offset_bytes: u64, len_bytes: u64) -> Vec<u8> {
    let mut head = index.to_le_bytes().to_vec();
    head.extend(offset_bytes.to_le_bytes());
    head.extend(len_bytes.to_le_bytes());
    head
}

fn parsed(head: &[u8; 20]) -> (u32, u64, u64) {
    let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|nth| head[from + nth]));
    (number(0) as u32, number(4), number(12))
}

/// Closes with an RST, whatever state the connection is in.
fn reset(client: TcpStream) {
    let at_once = Some(Duration::ZERO);
    set_socket_linger(&client, at_once).expect("SO_LINGER");
}

/// One connection of the server, and what its client has not acknowledged yet.
pub struct Sender {
    socket: TcpStream,
    sent_bytes: u64,
    /// With the place in the stream where each ends.
    pub pinned: VecDeque<(u64, Pinned)>,
}

impl Sender {
    pub fn new(socket: TcpStream) -> Sender {
        Sender {
            socket,
            sent_bytes: 0,
            pinned: VecDeque::new(),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sent_bytes += bytes.len() as u64;
        self.socket.write_all(bytes)
    }

    pub fn sendfile(&mut self, pinned: Pinned) -> io::Result<()> {
        let mut at_bytes = pinned.offset_bytes();
        let mut left_bytes = pinned.len_bytes() as usize;
        self.sent_bytes += pinned.len_bytes();
        let mut sent = Ok(());
        while left_bytes > 0 && sent.is_ok() {
            let some =
                rustix::fs::sendfile(&self.socket, pinned.fd(), Some(&mut at_bytes), left_bytes);
            sent = some.map(|some| left_bytes -= some).map_err(io::Error::from);
        }
        self.pinned.push_back((self.sent_bytes, pinned));
        sent
    }

    /// Lets go of what is acknowledged.
    pub fn unpin(&mut self) {
        let mut unacknowledged = 0;
        // SAFETY: the kernel writes an int to where the pointer points.
        let told =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut unacknowledged) };
        assert_eq!(told, 0, "SIOCOUTQ");
        let acknowledged_bytes = self.sent_bytes - unacknowledged as u64;
        while self
            .pinned
            .front()
            .is_some_and(|(end_bytes, _)| *end_bytes <= acknowledged_bytes)
        {
            self.pinned.pop_front();
        }
    }
}
