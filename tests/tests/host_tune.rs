//! `ackpace-host tune`: sockets of other programs are held to shares, all of it is undone however it ends, and what
//! others have set stays.
//!
//! Each test has a network namespace of its own, with a loopback that has the segments of an Ethernet. The senders are
//! sockets of the test, so that their options can be read, or an unmodified server.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::{fs, thread};

use ackpace_tests::{
    Cgroup, Outcome, Program, Setup, Tree, client, eventually, host, host_binary, host_can,
    host_start, limit_receive_buffer, network_apart, pattern, run, skip,
};

/// So little that each of a few sockets is clamped at once.
const LITTLE: &str = "64KiB";

/// A network namespace of its own, whose sockets use reno. `false`, and the test is reported as skipped, where this kernel
/// or these rights don't allow what `tune` needs.
fn apart() -> bool {
    let is_apart = host_can("tune") && network_apart();
    if is_apart {
        // bbr would not be clamped as far.
        let control = "/proc/sys/net/ipv4/tcp_congestion_control";
        fs::write(control, "reno").expect("reno is always there");
    }
    is_apart
}

fn option(socket: &TcpStream, option: libc::c_int) -> u32 {
    let (mut value, mut len) = (0u32, 4);
    // SAFETY: the kernel writes at most four bytes, which there are.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            option,
            (&raw mut value).cast(),
            &raw mut len,
        )
    };
    assert_eq!(got, 0, "getsockopt: {}", io::Error::last_os_error());
    value
}

fn set(socket: &TcpStream, level: libc::c_int, option: libc::c_int, value: u32) {
    // SAFETY: the kernel reads four bytes, which live here.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            4,
        )
    };
    assert_eq!(done, 0, "setsockopt: {}", io::Error::last_os_error());
}

fn lowat(socket: &TcpStream) -> u32 {
    option(socket, libc::TCP_NOTSENT_LOWAT)
}

/// Its program may write as much as the kernel likes.
fn is_unbounded(socket: &TcpStream) -> bool {
    lowat(socket) == 0
}

/// Whether so many sockets of the port have neither a clamp nor a bound, as a dry run sees them. (No socket option tells of
/// a clamp.)
fn are_untouched(port: u16, sockets: usize) -> bool {
    let port = port.to_string();
    let seen = tune(&format!(
        "--budget 64KiB --port {port} --dry-run --once --json"
    ));
    assert!(seen.success, "{}", seen.err);
    let none = "\"from_clamp_segments\":null";
    let joined = seen
        .out
        .lines()
        .filter(|line| line.contains("\"why\":\"joined\"") && line.contains(none));
    joined
        .filter(|line| line.contains("\"from_lowat_bytes\":null"))
        .count()
        == sockets
}

/// A program that sends more than its clients read: a socket for each of them, and the other ends.
struct Sender {
    port: u16,
    sockets: Vec<TcpStream>,
    _clients: Vec<TcpStream>,
}

impl Sender {
    fn start(address: &str, clients: usize) -> Sender {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let (mut sockets, mut others) = (Vec::new(), Vec::new());
        for _ in 0..clients {
            let client = TcpStream::connect(address).expect("it listens");
            limit_receive_buffer(&client, 16 << 10);
            let (mut socket, _) = listener.accept().expect("the client");
            socket.set_nonblocking(true).expect("a socket");
            let mut written = 0;
            while let Ok(more) = socket.write(&[7; 64 << 10]) {
                written += more;
            }
            assert!(written > 0);
            sockets.push(socket);
            others.push(client);
        }
        Sender {
            port: address.port(),
            sockets,
            _clients: others,
        }
    }

    /// All of them are bounded.
    fn is_held(&self) -> bool {
        self.sockets.iter().all(|socket| lowat(socket) > 0)
    }

    /// None of them is bounded or clamped.
    fn is_untouched(&self) -> bool {
        self.sockets.iter().all(is_unbounded) && are_untouched(self.port, self.sockets.len())
    }
}

fn tune(options: &str) -> Outcome {
    host(&*format!("tune {options}"))
}

fn start(options: &str) -> Program {
    host_start(&*format!("tune {options}"))
}

/// A number of `tune status --json`.
fn status(name: &str) -> u64 {
    let told = tune("status --json").out;
    let number = told.split(&format!("\"{name}\":")).nth(1);
    let digits = number.and_then(|text| text.split(|sign: char| !sign.is_ascii_digit()).next());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// How another user fares at the status socket.
fn asked_by_nobody() -> io::Error {
    let space = fs::metadata("/proc/thread-self/ns/net")
        .expect("Linux")
        .ino();
    let path = format!("/run/ackpace-host/tune-{space}.sock");
    let ask = move || {
        // SAFETY: no pointers; the raw call changes this thread alone, which ends here.
        let changed = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        assert_eq!(changed, 0, "setresuid: {}", io::Error::last_os_error());
        UnixStream::connect(path).map(|_| ())
    };
    let asked = thread::spawn(ask).join().expect("no panic");
    asked.expect_err("it is not for everybody")
}

#[test]
fn sockets_are_held_while_it_runs_and_others_never() {
    if !apart() {
        return;
    }
    let (four, six) = (Sender::start("127.0.0.1:0", 3), Sender::start("[::1]:0", 3));
    let other = Sender::start("127.0.0.1:0", 2);
    let ports = format!("{},{}", four.port, six.port);
    let tuning = start(&format!("--budget {LITTLE} --port {ports}"));
    eventually("IPv4 is held", || four.is_held());
    eventually("IPv6 is held", || six.is_held());
    eventually("the status tells", || {
        status("tuned") == 6 && status("clamped") == 6
    });
    assert_eq!(status("sockets"), 6);
    assert!(other.sockets.iter().all(is_unbounded), "they do not match");
    tuning.err_line(&[": joined"]);
    let metrics = tune("status --metrics").out;
    assert!(
        metrics.contains("ackpace_host_tune_changes_total{cause=\"joined\"} 6"),
        "{metrics}"
    );

    let stranger = asked_by_nobody();
    assert_eq!(stranger.kind(), io::ErrorKind::PermissionDenied);

    let second = tune("--budget 1MiB");
    assert_eq!(second.code, Some(2), "{}", second.err);
    let pid = format!("process {} ", tuning.pid());
    assert!(
        second.err.contains(&pid) && second.err.contains("already"),
        "{}",
        second.err
    );
    assert!(four.is_held(), "the second one changed nothing");

    // Both of its processes hear it, as by systemctl kill.
    let children = format!("/proc/{0}/task/{0}/children", tuning.pid());
    let child = fs::read_to_string(children).expect("it runs");
    // SAFETY: no pointers; the process lives as long as its parent.
    let sent = unsafe { libc::kill(child.trim().parse().expect("one child"), libc::SIGTERM) };
    assert_eq!(sent, 0);
    assert_eq!(tuning.end(libc::SIGTERM), Some(0));
    assert!(four.is_untouched() && six.is_untouched() && other.is_untouched());
    let none = tune("status");
    assert!(
        none.code == Some(1) && none.err.contains("no instance is running"),
        "{}",
        none.err
    );
}

#[test]
fn what_a_killed_one_left_is_undone_by_restore_or_the_next() {
    if !apart() {
        return;
    }
    let sender = Sender::start("127.0.0.1:0", 3);
    let port = sender.port.to_string();
    let options = format!("--budget {LITTLE} --port {port}");
    for round in 0..2 {
        let tuning = start(&options);
        eventually("they are held", || sender.is_held());
        assert_eq!(tuning.end(libc::SIGKILL), None);
        assert!(sender.is_held(), "nobody could undo it");
        if round == 0 {
            let restored = tune("--restore");
            assert!(
                restored.success && restored.err.contains("3 sockets"),
                "{}",
                restored.err
            );
        } else {
            let next = start("--budget 1MiB --port 1");
            next.err_line(&["an earlier instance was killed", "3 sockets"]);
            assert_eq!(next.end(libc::SIGINT), Some(0));
        }
        assert!(sender.is_untouched());
    }
    let again = tune("--restore");
    assert!(
        again.success && again.err.contains("nothing to undo"),
        "{}",
        again.err
    );
}

/// As `ip netns exec` does: a new mount namespace, with a /sys of its own.
#[test]
fn where_records_can_not_be_seen_restore_does_not_say_that_there_are_none() {
    if !apart() {
        return;
    }
    let Some(mut unshare) = client("unshare") else {
        return;
    };
    let script = "umount -l /sys/fs/bpf; exec \"$0\" tune --restore";
    let host = host_binary().to_str().expect("UTF-8");
    let refused = run(unshare.args(["--mount", "sh", "-c", script, host]));
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("nsenter"), "{}", refused.err);
}

#[test]
fn what_a_program_has_set_stays_before_and_after() {
    if !apart() {
        return;
    }
    let sender = Sender::start("127.0.0.1:0", 3);
    let [bounded, fixed, later] = &sender.sockets[..] else {
        panic!("three sockets");
    };
    set(bounded, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 20_000);
    set(fixed, libc::SOL_SOCKET, libc::SO_SNDBUF, 50_000);
    let port = sender.port.to_string();
    let tuning = start(&format!("--budget 24KiB --port {port}"));
    eventually("the third one is held", || status("clamped") == 1);
    set(later, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 30_000);
    eventually("its clamp is undone", || status("clamped") == 0);
    eventually("all are left alone", || {
        status("program_set_lowat") == 2 && status("tuned") == 0
    });
    assert_eq!(status("program_set_sndbuf"), 1);
    assert_eq!(
        (lowat(bounded), lowat(fixed), lowat(later)),
        (20_000, 0, 30_000)
    );
    assert_eq!(tuning.end(libc::SIGTERM), Some(0));
    assert_eq!(
        (lowat(bounded), lowat(fixed), lowat(later)),
        (20_000, 0, 30_000)
    );
    // Without what their program set, they have nothing.
    set(bounded, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 0);
    set(later, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, 0);
    assert!(
        are_untouched(sender.port, 2),
        "but for the one with SO_SNDBUF"
    );
}

#[test]
fn bbr_keeps_what_it_needs_to_measure() {
    if !apart() {
        return;
    }
    if fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "bbr").is_err() {
        return skip("this kernel has no bbr");
    }
    let sender = Sender::start("127.0.0.1:0", 3);
    let port = sender.port.to_string();
    let tuning = start(&format!("--budget 24KiB --port {port}"));
    eventually("they are clamped", || status("clamped") == 3);
    tuning.err_line(&[": joined"]);
    let said = tuning.err();
    let clamps = said.split("clamp none -> ").skip(1);
    let clamps: Vec<u32> = clamps
        .filter_map(|text| text.split(' ').next()?.parse().ok())
        .collect();
    assert!(clamps.iter().all(|segments| *segments >= 8), "{clamps:?}");
    assert_eq!(tuning.end(libc::SIGTERM), Some(0));
    assert!(sender.is_untouched());
}

#[test]
fn a_server_that_knows_nothing_of_it_serves_on_and_one_of_ours_is_left_alone() {
    if !apart() {
        return;
    }
    let Some(mut python) = client("python3") else {
        return;
    };
    let tree = Tree::new();
    let content = pattern(24 << 20, 5);
    tree.file("big", &content);
    let port = 8_080;
    let mut server = python
        .args("-m http.server 8080 --bind 127.0.0.1 --directory".split(' '))
        .arg(tree.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let ours = Setup::new(tree.path()).start();
    let ports = format!("{port},{}", ours.address().port());
    let tuning = start(&format!("--budget 512KiB --port {ports}"));
    let get = |port: u16| {
        let mut stream = None;
        eventually("it listens", || {
            stream = TcpStream::connect(("127.0.0.1", port)).ok();
            stream.is_some()
        });
        let mut stream = stream.expect("just now");
        limit_receive_buffer(&stream, 64 << 10);
        write!(stream, "GET /big HTTP/1.0\r\nHost: t\r\n\r\n").expect("a socket");
        stream
    };
    let (mut theirs, held) = (get(port), get(ours.address().port()));
    eventually("the other server's socket is held", || status("tuned") == 1);
    eventually("ours is left alone", || {
        tune("status --json")
            .out
            .contains("\"left_alone\":{\"program_set_")
    });
    let mut answer = Vec::new();
    theirs.read_to_end(&mut answer).expect("all of it");
    assert!(answer.ends_with(&content), "every byte, while it is held");
    drop(held);
    assert_eq!(tuning.end(libc::SIGTERM), Some(0));
    let _ = server.kill();
    let _ = server.wait();
}

#[test]
fn a_dry_run_and_a_look_change_nothing_that_lasts() {
    if !apart() {
        return;
    }
    let sender = Sender::start("127.0.0.1:0", 2);
    let port = sender.port.to_string();
    let dry = tune(&format!(
        "--budget 128KiB --port {port} --dry-run --once --json"
    ));
    assert!(dry.success, "{}", dry.err);
    let told = dry
        .out
        .lines()
        .filter(|line| line.contains("\"why\":\"joined\""))
        .count();
    assert_eq!(told, 2, "{}", dry.out);
    assert!(sender.is_untouched());
    let once = tune(&format!(
        "--budget 128KiB --port {port} --once --policy equal"
    ));
    assert!(
        once.success && once.out.contains("2 match, 2 share, 2 tuned"),
        "{}{}",
        once.out,
        once.err
    );
    assert!(sender.is_untouched(), "undone at its end");
}

#[test]
fn what_has_no_line_is_counted() {
    if !apart() {
        return;
    }
    let many = Sender::start("127.0.0.1:0", 24);
    let port = many.port;
    let dry = format!("--budget 1MiB --port {port} --dry-run --once --json");
    let told = tune(&dry).out;
    assert!(told.contains("{\"held_back\":4}"), "{told}");
    let told = tune(&format!("{dry} --quiet")).out;
    assert_eq!(told.lines().count(), 1, "the state at the end: {told}");
}

#[test]
fn what_can_not_be_is_refused_by_one_clear_line() {
    if !apart() {
        return;
    }
    let sender = Sender::start("127.0.0.1:0", 4);
    let port = sender.port.to_string();
    let tree = Tree::new();
    let directory = tree.path().to_str().expect("UTF-8").to_owned();
    let cgroup = format!("--budget 1MiB --cgroup {directory}");
    for (options, part) in [
        (&*cgroup, "--port"),
        ("--budget 1MiB --cgroup /nonexistent", "No such file"),
        ("--budget much", "256MiB"),
        ("--port 80", "--budget"),
    ] {
        let refused = tune(options);
        assert_eq!(refused.code, Some(2), "{options:?}: {}", refused.err);
        assert!(refused.err.contains(part), "{options:?}: {}", refused.err);
    }
    let short = tune(&format!("--budget 8KiB --port {port} --once"));
    assert!(
        short.success && short.err.contains("4 connections (17 KiB)"),
        "{}",
        short.err
    );
    assert!(sender.is_untouched());
}

#[test]
fn the_sockets_of_a_cgroup_are_held_until_it_is_gone() {
    if !apart() {
        return;
    }
    let Some(mut python) = client("python3") else {
        return;
    };
    let Some(cgroup) = Cgroup::new() else {
        return skip("no cgroup of version 2 can be made here");
    };
    let inside = format!("{}/cgroup.procs", cgroup.path("inner"));
    let script = "import os,socket,sys\n\
        open(sys.argv[1],'w').write(str(os.getpid()))\n\
        s=socket.create_server(('127.0.0.1',8081)); c,_=s.accept()\n\
        try:\n c.sendall(bytes(9<<20))\n\
        finally: c.close()\n";
    let mut server = python
        .args(["-c", script, &inside])
        .stderr(Stdio::null()) // it ends in the middle of a write
        .spawn()
        .expect("it starts");
    let other = Sender::start("127.0.0.1:0", 1);
    let mut client = None;
    eventually("it listens", || {
        client = TcpStream::connect("127.0.0.1:8081").ok();
        client.is_some()
    });
    let tuning = start(&format!("--budget {LITTLE} --cgroup {}", cgroup.path("")));
    eventually("its socket is held", || status("tuned") == 1);
    assert_eq!(status("sockets"), 1);
    assert!(
        other.sockets.iter().all(is_unbounded),
        "it is of another cgroup"
    );
    drop(client);
    let _ = server.wait();
    drop(cgroup);
    tuning.err_line(&["is gone"]);
    assert_eq!(tuning.end(libc::SIGTERM), Some(0));
}
