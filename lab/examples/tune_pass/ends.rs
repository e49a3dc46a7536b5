//! The two ends of the connections, each in several processes, since a process may open only so many files.

use std::env;
use std::io::{self, BufRead, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

pub const SERVE: &str = "serve";
pub const CONNECT: &str = "connect";
pub const CLIENTS: &str = "clients";
/// Connections of one process, below the usual hard limit of open files.
const EACH: usize = 17_000;
const FIRST_PORT: usize = 7_000;
const SERVER: &str = "10.77.0.1";
const CLIENT: &str = "10.77.0.2";
/// A receiver takes so much from each connection in each lap.
const TAKEN_BYTES: usize = 2 * 1_448;
/// A lap is cut into so many parts.
const PARTS: usize = 200;
/// Small, so that 50,000 fit beside the kernel's own limit.
const SEND_BUFFERS: &str = "4096 16384 16384";
static RECEIVE_BUFFER: libc::c_int = 4_096;
const ENTRIES: &str = "65536";

/// All of them. Whatever of it runs ends with this.
pub struct Connections {
    parts: usize,
    children: Vec<Child>,
}

impl Connections {
    /// Moves this process into the senders' namespace, and starts both ends. Returns when all are connected.
    pub fn start(sockets: usize, sending: usize, lap_ms: usize) -> Result<Connections> {
        unshare()?;
        for (name, value) in [
            ("tcp_wmem", SEND_BUFFERS),
            ("tcp_child_ehash_entries", ENTRIES),
        ] {
            let path = format!("/proc/sys/net/ipv4/{name}");
            std::fs::write(&path, value).doing(|| path)?;
        }
        let mut clients = spawn(&[CLIENTS])?;
        hear(&mut clients)?; // it has its namespace
        let pid = clients.id().to_string();
        ip(&["link", "set", "lo", "up"])?;
        ip(&[
            "link", "add", "pass", "type", "veth", "peer", "name", "pass", "netns", &pid,
        ])?;
        ip(&["addr", "add", &format!("{SERVER}/24"), "dev", "pass"])?;
        ip(&["link", "set", "pass", "up"])?;
        let mut connections = Connections {
            parts: sockets.div_ceil(EACH),
            children: Vec::new(),
        };
        let mut left = (sockets, sending);
        let mut orders = String::new();
        let mut servers = Vec::new();
        for part in 0..connections.parts {
            let count = left.0.min(EACH);
            let sends = left.1.min(count);
            left = (left.0 - count, left.1 - sends);
            let numbers = [FIRST_PORT + part, count, sends].map(|number| number.to_string());
            let mut server = spawn(&[SERVE, &numbers[0], &numbers[1], &numbers[2]])?;
            hear(&mut server)?; // it listens
            servers.push(server);
            orders += &format!("{} {lap_ms}\n", numbers.join(" "));
        }
        let mut tell = clients.stdin.take().expect("it is piped");
        tell.write_all(orders.as_bytes())
            .doing(|| "clients".into())?;
        drop(tell);
        for server in &mut servers {
            hear(server)?; // all have come
        }
        connections.children = servers;
        connections.children.push(clients);
        Ok(connections)
    }

    /// The senders' ports, for `--port`.
    pub fn ports(&self) -> String {
        let ports: Vec<String> = (FIRST_PORT..FIRST_PORT + self.parts)
            .map(|port| port.to_string())
            .collect();
        ports.join(",")
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn unshare() -> Result<()> {
    // SAFETY: no pointers; this process has one thread.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => {
            Err(io::Error::last_os_error()).doing(|| "a new network namespace (needs root)".into())
        }
    }
}

fn ip(arguments: &[&str]) -> Result<()> {
    let what = || format!("ip {}", arguments.join(" "));
    let status = Command::new("ip").args(arguments).status().doing(what)?;
    match status.success() {
        true => Ok(()),
        false => Err(LabError::contender("ip", arguments.join(" "))),
    }
}

/// This program in another role.
fn spawn(arguments: &[&str]) -> Result<Child> {
    let own = env::current_exe().doing(|| "this program".into())?;
    let mut command = Command::new(own);
    command
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    command.spawn().doing(|| arguments.join(" "))
}

/// Waits for its next octet.
fn hear(child: &mut Child) -> Result<()> {
    let mut octet = [0];
    let out = child.stdout.as_mut().expect("it is piped");
    out.read_exact(&mut octet)
        .doing(|| "one of the ends has failed".into())
}

fn say() -> Result<()> {
    let mut out = io::stdout();
    out.write_all(b".")
        .and_then(|()| out.flush())
        .doing(|| "the starter".into())
}

/// The kernel kills this process when its starter has ended.
fn end_with_starter() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .doing(|| "prctl".into())
}

/// The receivers' namespace. Each line that comes in is a process of receivers.
pub fn clients() -> Result<()> {
    end_with_starter()?;
    unshare()?;
    say()?;
    let lines: Vec<String> = io::stdin()
        .lock()
        .lines()
        .map_while(io::Result::ok)
        .collect();
    ip(&["link", "set", "lo", "up"])?;
    ip(&["addr", "add", &format!("{CLIENT}/24"), "dev", "pass"])?;
    ip(&["link", "set", "pass", "up"])?;
    let mut children = Vec::new();
    for line in &lines {
        let words: Vec<&str> = [CONNECT].into_iter().chain(line.split(' ')).collect();
        children.push(spawn(&words)?);
    }
    for mut child in children {
        let _ = child.wait();
    }
    Ok(())
}

/// Sends on the first `sending` of `count` connections, for good.
pub fn serve(port: usize, count: usize, sending: usize) -> Result<()> {
    let address = format!("{SERVER}:{port}");
    let listener = TcpListener::bind(&address).doing(|| address)?;
    say()?;
    end_with_starter()?;
    let epoll = epoll::create(CreateFlags::empty()).doing(|| "epoll".into())?;
    let mut sockets = Vec::with_capacity(count);
    for nth in 0..count {
        let (socket, _) = listener.accept().doing(|| "accept".into())?;
        socket.set_nonblocking(true).doing(|| "a socket".into())?;
        if nth < sending {
            let data = EventData::new_u64(nth as u64);
            epoll::add(&epoll, &socket, data, EventFlags::OUT).doing(|| "epoll".into())?;
        }
        sockets.push(socket);
    }
    say()?;
    let mut events = Vec::with_capacity(1_024);
    loop {
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None)
            .doing(|| "epoll".into())?;
        for event in events.drain(..) {
            let mut socket = &sockets[event.data.u64() as usize];
            let _ = socket.write(&[7; 4_096]); // refused: as full as it may be
        }
    }
}

/// Takes what comes on the first `sending` of `count` connections, at a pace.
pub fn connect(port: usize, count: usize, sending: usize, lap_ms: usize) -> Result<()> {
    end_with_starter()?;
    let address = format!("{SERVER}:{port}");
    let mut sockets = Vec::with_capacity(count);
    for _ in 0..count {
        let socket = TcpStream::connect(&address).doing(|| address.clone())?;
        // SAFETY: the kernel reads the int that the pointer is of.
        unsafe {
            let (value, len) = (&raw const RECEIVE_BUFFER, size_of::<libc::c_int>());
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVBUF,
                value.cast(),
                len as libc::socklen_t,
            );
        }
        socket.set_nonblocking(true).doing(|| "a socket".into())?;
        sockets.push(socket);
    }
    let lap = Duration::from_millis(lap_ms as u64);
    let mut next = Instant::now();
    let mut taken = [0; TAKEN_BYTES];
    loop {
        for part in sockets[..sending].chunks(sending.div_ceil(PARTS).max(1)) {
            for mut socket in part {
                let _ = socket.read(&mut taken);
            }
            next = (next + lap / PARTS as u32).max(Instant::now());
            thread::sleep(next.saturating_duration_since(Instant::now()));
        }
        if sending == 0 {
            thread::sleep(lap);
        }
    }
}
