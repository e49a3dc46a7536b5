//! `ackpace-host files`: nonsense harms nobody, strangers are shown out, and rights are given up.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use ackpace_tests::{Program, Rng, Tree, eventually, host, host_start, needs_root};

const SEED: u64 = 53;
/// "ACKF", the version, and HELLO.
const HELLO: [u8; 12] = *b"ACKF\0\0\0\x01\0\0\0\x01";
const HERE: u8 = 21;
const FAILED: u8 = 27;

fn start(tree: &Tree, uid: u32, args: &str) -> Program {
    let (root, socket) = (tree.dir("root"), tree.at("files.sock"));
    let (root, socket) = (root.display(), socket.display());
    let line = format!("files --root {root} --allow-uid {uid}:{uid} --socket {socket} {args}");
    let broker = host_start(line.trim());
    broker.err_line(&["files: ready"]);
    broker
}

/// A line to a broker.
struct Line(OwnedFd);

impl Line {
    fn open(path: &Path) -> Line {
        // SAFETY: no pointers; the descriptor is new.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: all zeros are an address, which is filled below its length.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let path = path.as_os_str().as_encoded_bytes();
        for (to, from) in address.sun_path.iter_mut().zip(path) {
            *to = *from as libc::c_char;
        }
        let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
        // SAFETY: the address has so many bytes.
        let done = unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), len) };
        assert_eq!(done, 0, "connect: {}", io::Error::last_os_error());
        Line(socket)
    }

    /// Asks; an answer without bytes is the end.
    fn ask(&self, datagram: &[u8]) -> Vec<u8> {
        let mut answer = vec![0; 100];
        // SAFETY: both have the lengths that are given.
        let len = unsafe {
            let sent = libc::send(
                self.0.as_raw_fd(),
                datagram.as_ptr().cast(),
                datagram.len(),
                libc::MSG_NOSIGNAL,
            );
            if sent < 0 {
                return Vec::new();
            }
            libc::recv(
                self.0.as_raw_fd(),
                answer.as_mut_ptr().cast(),
                answer.len(),
                0,
            )
        };
        answer.truncate(len.max(0) as usize);
        answer
    }
}

#[test]
fn nonsense_is_refused_and_harms_nobody() {
    if !needs_root("users of other numbers") {
        return;
    }
    let tree = Tree::new();
    let mut broker = start(&tree, 0, "");
    let socket = tree.at("files.sock");
    let good = Line::open(&socket);
    assert_eq!(good.ask(&HELLO)[11], HERE);
    let mut rng = Rng::new(SEED);
    let bad = Line::open(&socket);
    for round in 0..2000 {
        let len = 1 + rng.below(if round % 100 == 0 { 20_000 } else { 200 });
        let mut datagram: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
        if round % 2 == 0 && len > 12 {
            datagram[..12].copy_from_slice(&HELLO);
            datagram[11] = (round % 30) as u8;
        }
        let answer = bad.ask(&datagram);
        assert_eq!(answer.get(11), Some(&FAILED), "round {round}: {answer:?}");
    }
    // Many lines: more than it takes are closed, and there is room again when they go.
    let lines: Vec<Line> = (0..50).map(|_| Line::open(&socket)).collect();
    let answered = lines.iter().filter(|line| !line.ask(&HELLO).is_empty());
    assert!((20..=32).contains(&answered.count()));
    drop(lines);
    eventually("there is room", || {
        Line::open(&socket).ask(&HELLO).get(11) == Some(&HERE)
    });
    assert_eq!(good.ask(&HELLO)[11], HERE);
    assert!(broker.ended().is_none());
    // Another one at the same place says so; one whose socket was left behind does not.
    let root = tree.at("root");
    let line = format!(
        "files --root {} --for 0:0 --socket {}",
        root.display(),
        socket.display()
    );
    let second = host(&*line);
    assert!(
        !second.success && second.err.contains("another instance"),
        "{}",
        second.err
    );
    broker.kill();
    let _third = start(&tree, 0, "");
    assert_eq!(Line::open(&socket).ask(&HELLO)[11], HERE);
}

#[test]
fn strangers_are_shown_out_and_rights_are_given_up() {
    if !needs_root("users of other numbers") {
        return;
    }
    let tree = Tree::new();
    let mut broker = start(&tree, 1001, "");
    let capabilities = |broker: &Program| {
        let status = fs::read_to_string(format!("/proc/{}/status", broker.pid()));
        let status = status.expect("it runs");
        let line = status.lines().find(|line| line.starts_with("CapPrm:"));
        u64::from_str_radix(
            line.expect("it is told")
                .trim_start_matches("CapPrm:")
                .trim(),
            16,
        )
        .expect("a number")
    };
    // CAP_SETGID and CAP_SETUID.
    assert_eq!(capabilities(&broker), 1 << 6 | 1 << 7);
    let socket = tree.at("files.sock");
    // 1002 may open the socket here, and is still nobody.
    let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    fs::set_permissions(&socket, anybody).expect("our own");
    for (uid, is_welcome) in [(1001, true), (1002, false)] {
        let socket = socket.clone();
        let asked = std::thread::spawn(move || {
            // SAFETY: no pointers; the system call changes this thread alone.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
            assert_eq!(done, 0, "{}", io::Error::last_os_error());
            Line::open(&socket).ask(&HELLO)
        });
        let answer = asked.join().expect("no panic");
        assert_eq!(!answer.is_empty(), is_welcome, "{uid}: {answer:?}");
    }
    broker.kill();
    let broker = start(&tree, 1001, "--allow-root");
    assert_ne!(capabilities(&broker) & 1 << 1, 0, "CAP_DAC_OVERRIDE");
    drop(broker);
    let lacking = host("files --root /proc/nowhere --for 0:0 --socket /proc/nowhere/x");
    assert!(lacking.err.contains("/proc/nowhere"), "{}", lacking.err);
}
