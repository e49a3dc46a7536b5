//! A namespace with an address of a server and one of a client on its loopback device, and a connection between them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_host::handoff::Refused;
use ackpace_host::handoff::look::{Looked, Sockets};
use ackpace_host::handoff::repair::{self, Before, Saved};
use ackpace_host::kernel::has_bpf;
use ackpace_wire::tcp_info::{LEN_BYTES, TcpInfo};
use rustix::net::{self, AddressFamily, Protocol, SocketType};

/// What a machine sets before the connection begins: keys below /proc/sys/net/ipv4 and their values.
pub type Sysctls<'a> = &'a [(&'a str, &'a str)];

/// A connection, and the door to the kernel.
pub struct World {
    pub sockets: Sockets,
    pub listener: TcpListener,
    pub client: TcpStream,
    pub server: TcpStream,
    /// Bytes that the server has written, and those of them that the client has read.
    pub written: u64,
    pub read: u64,
}

/// Byte n of what the server sends.
pub fn byte(n: u64) -> u8 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub fn bytes(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

/// A new connection from this address.
pub fn connect(from: IpAddr, to: SocketAddr) -> TcpStream {
    let family = if from.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = net::socket(family, SocketType::STREAM, None).expect("a socket");
    net::bind(&socket, &SocketAddr::new(from, 0)).expect("its own address");
    net::connect(&socket, &to).expect("it listens");
    TcpStream::from(socket)
}

/// Gives a packet to this machine.
fn inject(packet: &[u8], to: IpAddr) {
    let family = if to.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let raw = NonZeroU32::new(libc::IPPROTO_RAW as u32).map(Protocol::from_raw);
    let socket = net::socket(family, SocketType::RAW, raw).expect("root");
    let flags = net::SendFlags::empty();
    net::sendto(&socket, packet, flags, &SocketAddr::new(to, 0)).expect("its own address");
}

/// Drops whatever comes for this socket from now on.
pub fn mute(socket: &TcpStream) {
    let mut drop_all = libc::sock_filter {
        code: (libc::BPF_RET | libc::BPF_K) as u16,
        jt: 0,
        jf: 0,
        k: 0,
    };
    let program = libc::sock_fprog {
        len: 1,
        filter: &raw mut drop_all,
    };
    let len = size_of_val(&program) as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: the kernel reads one program of one instruction, which live until it returns.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const program).cast(),
            len,
        )
    };
    assert_eq!(done, 0);
}

/// Ends that.
pub fn unmute(socket: &TcpStream) {
    option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0);
}

/// Sets an option.
pub fn option(socket: &TcpStream, level: i32, option: i32, value: i32) {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes, which there are.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            len,
        )
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// An option.
pub fn value(socket: &TcpStream, level: i32, option: i32) -> i32 {
    let (mut value, mut len) = (0i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, which there are.
    let done = unsafe {
        let value = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, value, &raw mut len)
    };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    value
}

/// `struct tcp_info`.
pub fn raw_info(socket: &TcpStream) -> [u8; LEN_BYTES] {
    let (mut bytes, mut len) = ([0u8; LEN_BYTES], LEN_BYTES as libc::socklen_t);
    // SAFETY: the kernel writes at most `len` bytes, which there are.
    let done = unsafe {
        let bytes = bytes.as_mut_ptr().cast();
        let fd = socket.as_raw_fd();
        libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, bytes, &raw mut len)
    };
    assert_eq!(done, 0);
    bytes
}

/// The same, read.
pub fn info(socket: &TcpStream) -> TcpInfo {
    TcpInfo::parse(&raw_info(socket)).expect("a TCP socket")
}

fn run(line: &str) -> bool {
    let mut words = line.split(' ');
    let program = words.next().expect("a program");
    let status = Command::new(program)
        .args(words)
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

impl World {
    /// IPv4, as it comes; `None`: said why not.
    pub fn new(test: &str) -> Option<World> {
        World::with(test, "10.8.8.8", "10.9.9.9", &[])
    }

    pub fn with(test: &str, client: &str, server: &str, sysctls: Sysctls<'_>) -> Option<World> {
        let skipped = |why: &str| {
            println!("skipped: {test}: {why}");
            None
        };
        if !has_bpf() {
            return skipped("built without BPF");
        }
        // SAFETY: no pointers; only this thread moves.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return skipped("a network namespace needs root");
        }
        if !run("ip link set lo up mtu 1500") {
            return skipped("no ip(8)");
        }
        for address in [client, server] {
            let mut line = format!("ip address add {address} dev lo");
            if address.contains(':') {
                line += " nodad";
            }
            assert!(run(&line), "{line}");
        }
        for (key, value) in sysctls {
            let path = format!("/proc/sys/net/ipv4/{key}");
            // Which congestion control a new namespace may choose is the machine's to say (tcp_allowed_congestion_control).
            if std::fs::write(path, value).is_err() {
                return skipped(&format!(
                    "net.ipv4.{key} can't be {value} in a namespace here"
                ));
            }
        }
        let sockets = match Sockets::open() {
            Ok(sockets) => sockets,
            Err(why) => return skipped(&why.to_string()),
        };
        let (client, server): (IpAddr, IpAddr) = (
            client.parse().expect("an address"),
            server.parse().expect("an address"),
        );
        let listener = TcpListener::bind((server, 0)).expect("loopback is up");
        let client = connect(client, listener.local_addr().expect("it is bound"));
        let server = listener.accept().expect("just now").0;
        server.set_nonblocking(true).expect("a socket");
        client.set_nonblocking(true).expect("a socket");
        Some(World {
            sockets,
            listener,
            client,
            server,
            written: 0,
            read: 0,
        })
    }

    /// The server writes so many bytes.
    pub fn write(&mut self, count: u64) {
        let end = self.written + count;
        let until = Instant::now() + Duration::from_secs(10);
        while self.written < end {
            let next = bytes(self.written, end.min(self.written + 65_536));
            match self.server.write(&next) {
                Ok(written) => self.written += written as u64,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.take();
                    assert!(Instant::now() < until, "stuck at {}", self.written);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The client reads what is there, and checks it.
    pub fn take(&mut self) {
        let mut buffer = [0; 65_536];
        loop {
            match self.client.read(&mut buffer) {
                Ok(0) => panic!("the server has closed"),
                Ok(count) => {
                    let expected = bytes(self.read, self.read + count as u64);
                    assert!(buffer[..count] == expected, "wrong bytes at {}", self.read);
                    self.read += count as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The client reads all that was written. How long that took.
    pub fn take_all(&mut self) -> Duration {
        let from = Instant::now();
        while self.read < self.written {
            self.take();
            let late = from.elapsed() > Duration::from_secs(10);
            assert!(!late, "stuck at {} of {}", self.read, self.written);
            thread::sleep(Duration::from_micros(200));
        }
        from.elapsed()
    }

    pub fn look(&mut self) -> Looked {
        let tuple = repair::tuple(self.server.as_fd()).expect("a connection");
        let looked = self.sockets.look(&tuple).expect("bpf(2)");
        looked.expect("a connection")
    }

    pub fn save(&mut self) -> Result<Saved, Refused> {
        self.save_above(None)
    }

    /// Of a socket that was restored at `una_floor`.
    pub fn save_above(&mut self, una_floor: Option<u32>) -> Result<Saved, Refused> {
        let own = self.server.as_fd();
        let before = repair::freeze(own)?;
        let saved = repair::save(&mut self.sockets, own, before, una_floor);
        if saved.is_err() {
            self.thaw(Some(before));
        }
        saved
    }

    pub fn thaw(&self, before: Option<Before>) {
        let own = self.server.as_fd();
        repair::thaw(own, before).expect("setsockopt");
        repair::push(own).expect("setsockopt");
    }

    /// Closes the frozen socket and makes one of what was saved, filled. The old one is gone meanwhile, so the client has
    /// to be quiet.
    pub fn restore(&mut self, saved: &Saved) {
        let old = std::mem::replace(&mut self.server, self.client.try_clone().expect("a socket"));
        drop(old);
        let socket = loop {
            match repair::restore(&saved.connection) {
                // A child of another test has a copy of the old one until it executes its program.
                Err(why) if why.errno == libc::EADDRNOTAVAIL => thread::yield_now(),
                restored => break restored.expect("it can be restored"),
            }
        };
        self.server = TcpStream::from(socket);
        let tcp = saved.connection.tcp;
        let flight = u64::from(tcp.snd_nxt.wrapping_sub(tcp.snd_una));
        // What was never sent is written again.
        self.written -= u64::from(saved.unsent_bytes);
        let from = self.written - flight;
        let mut left = &bytes(from, self.written)[..];
        while !left.is_empty() {
            let count = self.server.write(left).expect("the buffer is large enough");
            left = &left[count..];
        }
    }

    /// Lets the restored socket send.
    pub fn start(&mut self, saved: &Saved) {
        let own = self.server.as_fd();
        repair::complete(&mut self.sockets, own, &saved.connection).expect("it is filled");
        let packet = repair::acknowledgement(own, &saved.connection).expect("getsockopt");
        let tuple = saved.connection.tuple;
        inject(&packet, tuple.server.ip());
        repair::start(own, false).expect("setsockopt");
    }

    /// Moves the connection onto a new socket.
    pub fn moved(&mut self) -> Saved {
        let saved = self.save().expect("it can move");
        self.restore(&saved);
        self.start(&saved);
        saved
    }
}
