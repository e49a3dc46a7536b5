//! A start, and what may come in its way: signals, an output that nobody reads, odd names; and the longest log that is allowed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use ackpace_tests::{
    Server, Setup, Tree, eventually, forget_cached, hide_from_child, needs_root, pattern, run,
};

fn fifo(home: &Tree, name: &str) -> PathBuf {
    let path = home.at(name);
    assert!(run(Command::new("mkfifo").arg(&path)).success, "mkfifo");
    path
}

fn open_fifo(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(flags | libc::O_NONBLOCK);
    options.open(path)
}

/// A pipe that is full, and has a reader who does not read.
fn full_pipe(home: &Tree) -> File {
    let output = fifo(home, "output");
    // One that is open for both is there without a reader.
    let mut options = OpenOptions::new();
    let kept = options
        .read(true)
        .write(true)
        .open(&output)
        .expect("a FIFO");
    let mut filling = open_fifo(&output, 0).expect("it has a reader");
    let full = loop {
        match filling.write_all(&[b'x'; 4096]) {
            Ok(()) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(full, ErrorKind::WouldBlock);
    kept
}

/// Makes `output` the descriptor `fd` of this process.
fn become_fd(output: i32, fd: i32) -> io::Result<()> {
    // SAFETY: a system call with numbers.
    match unsafe { libc::dup2(output, fd) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A server that waits for its configuration, which comes from the pipe that is returned.
fn reading_its_configuration(tree: &Tree, home: &Tree) -> (Server, Option<File>) {
    let config = fifo(home, "config.toml");
    let args = ["-c", config.to_str().expect("UTF-8")];
    let server = Setup::new(tree.path()).args(&args).spawn();
    let mut opened = None;
    eventually("it reads its configuration", || {
        opened = open_fifo(&config, 0).ok();
        opened.is_some()
    });
    (server, opened)
}

#[test]
fn a_signal_that_ends_no_server_does_not_end_a_start_either() {
    let (tree, home) = (Tree::new(), Tree::new());
    tree.file("a", "a");
    let (mut server, config) = reading_its_configuration(&tree, &home);
    for signal in [libc::SIGUSR1, libc::SIGHUP, libc::SIGUSR2] {
        server.signal(signal);
    }
    drop(config); // a file without keys
    server.greeted();
    assert_eq!(server.get("/a", "").text(), "a");
}

#[test]
fn a_start_that_waits_is_ended_by_sigterm() {
    let (tree, home) = (Tree::new(), Tree::new());
    let (mut server, config) = reading_its_configuration(&tree, &home);
    server.signal(libc::SIGTERM);
    assert_eq!(server.wait().code(), None, "by the signal");
    drop(config);
}

#[test]
fn a_server_whose_output_is_full_serves_and_ends_as_any_other() {
    let (tree, home) = (Tree::new(), Tree::new());
    let kept = full_pipe(&home);
    let socket = home.at("socket");
    let fd = kept.as_raw_fd();
    let server = Setup::new(tree.path())
        .listen(format!("unix:{}", socket.display()))
        .before(move || become_fd(fd, 1))
        .spawn();
    eventually("it listens", || UnixStream::connect(&socket).is_ok());
    server.signal(libc::SIGUSR2); // ends a wait, not the start
    server.err_line(&["WARN", "standard output is not read"]);
    server.stop();
    assert!(!socket.exists(), "the socket stayed");
}

#[test]
fn without_proc_and_dev_null_files_are_served_and_the_start_says_what_is_lost() {
    if !needs_root("a server without /proc and /dev") {
        return;
    }
    let (tree, content) = (Tree::new(), pattern(3 << 20, 48));
    let cold = tree.file("cold", &content);
    std::os::unix::fs::symlink("cold", tree.at("link")).expect("a link");
    forget_cached(&File::open(cold).expect("our own file"));
    let server = Setup::new(tree.path())
        .args("--compare read=page-cache")
        .before(|| hide_from_child(&[c"/proc", c"/dev"]))
        .start();
    server.out_line(&["lost: /proc: ", "symbolic links get 404"]);
    let whole = server.get("/cold", "");
    assert_eq!((whole.status, whole.body == content), (200, true));
    assert_eq!(server.get("/link", "").status, 404);
}

#[test]
fn a_start_that_fails_ends_though_nobody_reads_why() {
    let home = Tree::new();
    let kept = full_pipe(&home);
    let fd = kept.as_raw_fd();
    let missing = home.at("missing");
    let mut server = Setup::new(&missing)
        .before(move || become_fd(fd, 2))
        .spawn();
    assert_eq!(server.wait().code(), Some(75));
}

#[test]
fn names_of_the_operator_do_not_act_on_a_terminal() {
    let home = Tree::new();
    let odd = "\u{1b}[31mred\n\u{202e}";
    let root = home.dir(odd);
    let server = Setup::new(&root)
        .listen(format!(
            "unix:{}",
            home.at(format!("socket{odd}")).display()
        ))
        .start();
    server.out_line(&["reading ", "/\\u{1b}[31mred\\n\\u{202e}: "]);
    let out = server.out();
    let acts = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!out.contains(acts), "{out:?}");
    assert!(out.lines().all(|line| !line.starts_with("red")), "{out:?}");
}

#[test]
fn a_log_as_long_as_a_file_may_be_costs_lines_and_nothing_else() {
    const BYTES_MAX: u64 = 4096;
    let (tree, home) = (Tree::new(), Tree::new());
    tree.file("a", "a");
    let log = home.at("access.log");
    let server = Setup::new(tree.path())
        .args(&["--access-log", log.to_str().expect("UTF-8")])
        .before(|| {
            let limit = libc::rlimit {
                rlim_cur: BYTES_MAX,
                rlim_max: BYTES_MAX,
            };
            // SAFETY: the pointer is to a live rlimit.
            match unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &limit) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        })
        .start();
    let mut conn = server.connect();
    for nth in 0..200 {
        assert_eq!(conn.get(&format!("/a?{nth}"), "").status, 200);
    }
    server.err_line(&["ERROR", "access.log: File too large", "lines are lost"]);
    assert_eq!(conn.get("/a", "").text(), "a");
    let len_bytes = fs::metadata(&log).expect("the log").len();
    assert_eq!(len_bytes, BYTES_MAX);
}
