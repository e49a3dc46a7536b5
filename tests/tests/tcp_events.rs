//! `ackpace-host events`: what TCP does to a connection reaches its server at once, and one that lies harms nobody.
//!
//! Where windows are to be cut, the test has a network namespace of its own, whose loopback is a slow link with a short
//! queue.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ackpace_tests::{
    Conn, Server, Setup, Tree, Tuning, client, command, eventually, forget_cached, has_direct,
    host_binary, needs_root, pattern, reset_on_drop, run, skip,
};

const LEN: usize = 48 << 20;
const RESET: u32 = 4;

/// Moves this thread, and all that it starts, into a network namespace with a loopback of 40 Mbit/s that drops what does not
/// fit into a queue of 20 KB. `false`, and the test is reported as skipped, where that or `events` can't be.
fn apart() -> bool {
    let (Some(mut ip), Some(mut tc)) = (client("ip"), client("tc")) else {
        return false;
    };
    if !needs_root("a network namespace") {
        return false;
    }
    let told = run(command(host_binary()).args(["doctor", "--json"])).out;
    let lost = |line: &&str| line.contains("\"ok\":false") && line.contains("\"'events'\"");
    if let Some(line) = told.lines().find(lost) {
        skip(&format!("ackpace-host can't hear events here: {line}"));
        return false;
    }
    // SAFETY: no pointers; only this thread moves.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(moved, 0, "unshare: {}", io::Error::last_os_error());
    done(ip.args(["link", "set", "lo", "mtu", "1500", "up"]));
    let link = "qdisc add dev lo root tbf rate 40mbit burst 16kb limit 20kb";
    if !run(tc.args(link.split(' '))).success {
        skip("this kernel has no token bucket (tbf)");
        return false;
    }
    let control = "/proc/sys/net/ipv4/tcp_congestion_control";
    std::fs::write(control, "reno").expect("reno is always there");
    true
}

fn done(command: &mut Command) {
    let outcome = run(command);
    assert!(outcome.success, "{command:?}: {}", outcome.err);
}

/// A socket of whole packets (SOCK_SEQPACKET), which the standard library lacks.
struct Packets(OwnedFd);

impl Packets {
    fn new() -> Packets {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers.
        Packets::owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }).expect("a descriptor")
    }

    fn owned(fd: libc::c_int) -> Option<Packets> {
        // SAFETY: a descriptor that the kernel has just made, and that nobody else owns.
        (fd >= 0).then(|| Packets(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    fn fd(&self) -> libc::c_int {
        self.0.as_raw_fd()
    }

    fn address(path: &Path) -> libc::sockaddr_un {
        let path = path.as_os_str().as_bytes();
        // SAFETY: all zeros are an address without a path.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        assert!(path.len() < address.sun_path.len());
        let bytes = path.iter().map(|byte| *byte as libc::c_char);
        address
            .sun_path
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, byte)| *to = byte);
        address
    }

    fn connect(path: &Path) -> Option<Packets> {
        let (socket, address) = (Packets::new(), Packets::address(path));
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: pointer and length describe `address`.
        let result = unsafe { libc::connect(socket.fd(), (&raw const address).cast(), len) };
        (result == 0).then_some(socket)
    }

    fn listen(path: &Path) -> Packets {
        let (socket, address) = (Packets::new(), Packets::address(path));
        let len = size_of_val(&address) as libc::socklen_t;
        // SAFETY: pointer and length describe `address`.
        let bound = unsafe { libc::bind(socket.fd(), (&raw const address).cast(), len) };
        // SAFETY: no pointers.
        let listens = unsafe { libc::listen(socket.fd(), 8) };
        assert_eq!((bound, listens), (0, 0), "{}", io::Error::last_os_error());
        socket
    }

    fn accept(&self) -> Option<Packets> {
        let none = std::ptr::null_mut();
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no address is asked for.
        Packets::owned(unsafe { libc::accept4(self.fd(), none, std::ptr::null_mut(), flags) })
    }

    /// `false`: there is no room, or nobody.
    fn send(&self, packet: &[u8]) -> bool {
        let (start, len) = (packet.as_ptr().cast(), packet.len());
        // SAFETY: pointer and length describe `packet`.
        unsafe { libc::send(self.fd(), start, len, libc::MSG_NOSIGNAL) == len as isize }
    }

    /// `None`: nothing is there; empty: the other end is gone.
    fn receive(&self) -> Option<Vec<u8>> {
        let mut packet = vec![0; 8 << 10];
        // SAFETY: pointer and length describe `packet`.
        let len = unsafe { libc::recv(self.fd(), packet.as_mut_ptr().cast(), packet.len(), 0) };
        let len = usize::try_from(len).ok()?;
        packet.truncate(len);
        Some(packet)
    }

    /// Cookies and kinds of the events that are there.
    fn events(&self) -> Vec<(u64, u32)> {
        let packets = std::iter::from_fn(|| self.receive().filter(|packet| !packet.is_empty()));
        let events = packets.flat_map(|packet| {
            assert_eq!(&packet[..8], b"ackpace1");
            let pieces = packet[8..].chunks_exact(24).map(|event| {
                let cookie = u64::from_ne_bytes(event[..8].try_into().expect("eight bytes"));
                let kind = u32::from_ne_bytes(event[16..20].try_into().expect("four bytes"));
                (cookie, kind)
            });
            pieces.collect::<Vec<_>>()
        });
        events.collect()
    }
}

/// A packet with one event for each cookie.
fn packet(cookies: &[u64], kind: u32) -> Vec<u8> {
    let mut packet = b"ackpace1".to_vec();
    for cookie in cookies {
        packet.extend(cookie.to_ne_bytes());
        packet.extend(1u64.to_ne_bytes());
        packet.extend(kind.to_ne_bytes());
        packet.extend([0; 4]);
    }
    packet
}

fn cookie(socket: &TcpStream) -> u64 {
    let (mut value, mut len) = (0u64, 8);
    // SAFETY: the kernel writes at most eight bytes, which there are.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_COOKIE,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    assert_eq!(got, 0, "getsockopt: {}", io::Error::last_os_error());
    value
}

/// Both ends of a connection to this listener: first the one that it accepted.
fn ends(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let other = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (socket, _) = listener.accept().expect("it waits");
    for stream in [&socket, &other] {
        stream.set_nonblocking(true).expect("a socket");
    }
    (socket, other)
}

/// A server that hears events at `socket`, with a cold file.
struct Bench {
    server: Server,
    metrics: SocketAddr,
    body: Vec<u8>,
    tree: Tree,
}

impl Bench {
    /// `None`, and the test is reported as skipped, where files are on no disk.
    fn start(tree: Tree, socket: &Path) -> Option<Bench> {
        let body = pattern(LEN, 7);
        let file = tree.file("site/big", &body);
        if !has_direct(&file) {
            skip("the temporary directory is on no disk");
            return None;
        }
        forget_cached(&File::open(file).expect("it is there"));
        let socket = socket.to_str().expect("UTF-8");
        let args = ["--workers", "1", "--metrics", "0", "--tcp-events", socket];
        let server = Setup::new(tree.at("site")).args(&args).start();
        let line = server.out_line(&["metrics at http://"]);
        let url = line.trim_end().trim_start_matches("metrics at http://");
        let metrics = url.trim_end_matches("/metrics").parse();
        Some(Bench {
            server,
            metrics: metrics.expect("an address"),
            body,
            tree,
        })
    }

    /// The sum of the samples whose line begins so.
    fn metric(&self, begins: &str) -> u64 {
        let page = Conn::open(self.metrics).get("/metrics", "").text();
        let lines = page.lines().filter(|line| line.starts_with(begins));
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum()
    }

    fn is_told(&self) -> bool {
        self.metric("ackpace_tcp_events_sources ") == 1
    }

    /// A download of which the head has come.
    fn download(&self) -> Conn {
        let mut conn = self.server.connect();
        conn.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(conn.head().status, 200);
        conn
    }
}

fn socket_of(tree: &Tree) -> (PathBuf, String) {
    let path = tree.at("events.sock");
    (path.clone(), path.to_str().expect("UTF-8").to_owned())
}

#[test]
fn a_cut_window_and_a_reset_are_told_of_sockets_that_match_and_are_known() {
    if !apart() {
        return;
    }
    let tree = Tree::new();
    let (path, socket) = socket_of(&tree);
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("a port"));
    let port = listeners[0].local_addr().expect("bound").port().to_string();
    let host = Tuning::doing("events", &["--socket", &socket, "--port", &port]);
    let mut hears = None;
    eventually("it listens", || {
        hears = Packets::connect(&path);
        hears.is_some()
    });
    let hears = hears.expect("just connected");
    let (mut ours, mut reader) = ends(&listeners[0]);
    let (unknown, unknown_reader) = ends(&listeners[0]);
    let (other, other_reader) = ends(&listeners[1]);
    let known = cookie(&ours);
    let of_other_port = cookie(&other);
    let mut told = Vec::new();
    eventually("its window is cut", || {
        while ours.write(&[7; 64 << 10]).is_ok() {}
        while reader.read(&mut [0; 64 << 10]).is_ok() {}
        told.extend(hears.events());
        told.iter()
            .any(|(cookie, kind)| *cookie == known && (1..RESET).contains(kind))
    });
    for stream in [&unknown_reader, &other_reader, &reader] {
        reset_on_drop(stream);
    }
    drop((unknown_reader, other_reader));
    drop(reader);
    eventually("it is reset", || {
        told.extend(hears.events());
        told.contains(&(known, RESET))
    });
    assert!(
        told.iter().all(|(cookie, _)| *cookie == known),
        "{told:?} and {of_other_port}"
    );
    drop((unknown, other));
    let second = run(command(host_binary()).args(["events", "--socket", &socket]));
    assert_eq!(second.code, Some(2), "{}", second.err);
    assert_eq!(host.end(libc::SIGTERM), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_server_takes_events_loses_its_host_and_finds_it_again() {
    if !apart() {
        return;
    }
    let tree = Tree::new();
    let (path, socket) = socket_of(&tree);
    let host = Tuning::doing("events", &["--socket", &socket]);
    eventually("it listens", || path.exists());
    let Some(bench) = Bench::start(tree, &path) else {
        return;
    };
    eventually("it is connected", || bench.is_told());
    let mut conn = bench.download();
    let mut got = 0;
    eventually("a cut window is told", || {
        if got + (1 << 20) < LEN {
            let bytes = conn.exactly(1 << 20);
            assert_eq!(bytes, bench.body[got..][..1 << 20]);
            got += bytes.len();
        }
        bench.metric("ackpace_tcp_events_total{") > 0
            && bench.metric("ackpace_congestion_signals_total{") > 0
    });
    let mut tc = client("tc").expect("it was there before");
    done(tc.args("qdisc del dev lo root".split(' '))); // the rest comes fast
    assert_eq!(host.end(libc::SIGKILL), None);
    bench.server.err_line(&["WARN", "ackpace-host has ended"]);
    eventually("that is told", || !bench.is_told());
    let rest = conn.exactly(LEN - got);
    assert!(rest == bench.body[got..], "without it all goes on");
    let host = Tuning::doing("events", &["--socket", &socket]);
    eventually("it is found again", || bench.is_told());
    assert_eq!(host.end(libc::SIGTERM), Some(0));
    bench.server.stop();
    drop(bench.tree);
}

#[test]
fn a_host_that_lies_harms_no_download() {
    let Some(mut ss) = client("ss") else {
        return;
    };
    let tree = Tree::new();
    let (path, _) = socket_of(&tree);
    let door = Packets::listen(&path);
    let Some(bench) = Bench::start(tree, &path) else {
        return;
    };
    let admit = || {
        let mut server = None;
        eventually("the server comes", || {
            server = door.accept();
            server.is_some()
        });
        server.expect("just accepted")
    };
    let wrong = admit();
    assert!(wrong.send(b"GET / HTTP/1.1\r\n\r\n"));
    eventually("garbage ends the connection", || {
        wrong.receive() == Some(Vec::new())
    });
    let lies = admit();
    eventually("it is believed", || bench.is_told());
    let mut conn = bench.download();
    let filter = format!("sport = :{}", bench.server.address().port());
    let table = run(ss.args(["-tnHe", "state", "established", &filter])).out;
    let cookie = table
        .split(" sk:")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    let cookie = cookie.and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let cookie = cookie.unwrap_or_else(|| panic!("no cookie in {table}"));
    let counted = |name: &str, kind: u32| {
        eventually(name, || {
            lies.send(&packet(&[cookie, cookie + 1, u64::MAX], kind));
            bench.metric(name) > 0
        });
    };
    counted("ackpace_void_tcp_events_total", RESET);
    for (at, kind) in ["cwr", "recovery", "timeout"].into_iter().enumerate() {
        let name = format!("ackpace_tcp_events_total{{kind=\"{kind}\"}}");
        counted(&name, at as u32 + 1);
    }
    let flood: Vec<u64> = (0..128).map(|n| cookie + n % 2).collect();
    let mut packets = 0;
    for nth in 0..20_000 {
        packets += u32::from(lies.send(&packet(&flood, 1 + nth % 4)));
    }
    assert!(packets > 0, "some of the flood was taken");
    let rest = conn.exactly(LEN);
    assert!(rest == bench.body, "each byte, and no reset");
    assert_eq!(bench.metric("ackpace_tcp_events_total{kind=\"reset\"}"), 0);
    // The machine asked the kernel, which knows of no cut on an idle loopback.
    lies.send(&[0; 9_000]);
    eventually("garbage ends this one, too", || {
        lies.receive() == Some(Vec::new())
    });
    bench.server.stop();
    drop(bench.tree);
}
