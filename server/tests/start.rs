//! The start and the stop of the real binary: what it needs, and what it tells whom.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::directory;

/// How long a server may take before a test gives it up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server with no more than this many descriptors, in this directory, with these variables.
struct Run<'a> {
    directory: &'a Path,
    variables: &'a [(&'a str, &'a Path)],
    descriptors: u64,
}

impl Run<'_> {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", "ulimit -n \"$0\" && exec \"$@\""])
            .arg(self.descriptors.to_string())
            .arg(env!("CARGO_BIN_EXE_ackpace"))
            .args(arguments)
            .current_dir(self.directory)
            .env_clear()
            .envs(self.variables.iter().copied())
            .stdin(Stdio::null());
        shell
    }
}

/// A server that was started in a directory, killed at the end of the test.
struct Serving {
    child: Child,
    out: BufReader<ChildStdout>,
    /// The lines that were read.
    said: String,
}

impl Serving {
    fn start(run: &Run<'_>, arguments: &[&str]) -> Serving {
        let mut child = run
            .command(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut serving = Serving {
            child,
            out,
            said: String::new(),
        };
        serving.said_until("reading ");
        serving
    }

    /// Reads lines up to one that begins so.
    fn said_until(&mut self, begin: &str) {
        let mut line = String::new();
        while !line.starts_with(begin) {
            line.clear();
            let read = self.out.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "it ended: {}", self.said);
            self.said += &line;
        }
    }

    fn address(&self) -> &str {
        let url = self.said.split_once("http://").expect("an address").1;
        url.split(['\n', ' ']).next().unwrap_or(url)
    }

    /// Sends SIGTERM.
    fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_start_with_too_few_descriptors_says_how_many_it_needs_and_with_these_it_serves() {
    let directory = directory("descriptors");
    std::fs::write(directory.join("a"), "served").unwrap();
    let run = |descriptors| Run {
        directory: &directory,
        variables: &[],
        descriptors,
    };
    let arguments = [
        "serve",
        "--workers=2",
        "--connections-max=16",
        "-l=127.0.0.1:0",
        "-l=unix:socket",
        "--metrics=127.0.0.1:0",
        "--access-log=log",
        "--admin=admin",
    ];
    let refused = run(12).command(&arguments).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!((refused.status.code(), refused.stdout.len()), (Some(2), 0));
    let begin =
        "ackpace: descriptors: 12 are allowed (ulimit -Hn), and a start with workers = 2 needs ";
    let rest = text.strip_prefix(begin).expect("what is needed");
    assert!(
        rest.contains("; 32 connections want ") || rest.contains("; 16 connections want "),
        "{text}"
    );
    assert!(rest.contains(". Set LimitNOFILE="), "{text}");
    assert!(
        rest.contains(" (or ulimit -n ") && rest.lines().count() == 1,
        "{text}"
    );
    let check = [&["check"], &arguments[1..]].concat();
    let checked = run(12).command(&check).output().unwrap();
    assert_eq!(String::from_utf8(checked.stderr).unwrap(), text);

    let least = rest
        .split(';')
        .next()
        .and_then(|number| number.parse().ok());
    let mut serving = Serving::start(&run(least.expect("a number")), &arguments);
    let mut client = TcpStream::connect(serving.address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = b"GET /a HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n";
    client.write_all(request).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("served"),
        "{answer}"
    );
    serving.terminate();
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_service_manager_is_told_when_the_server_listens_and_when_it_stops() {
    let directory = directory("notify");
    let path = directory.join("manager");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let heard = || {
        let mut text = [0; 64];
        let len = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..len]).into_owned()
    };
    let run = Run {
        directory: &directory,
        variables: &[
            ("NOTIFY_SOCKET", &path),
            ("WATCHDOG_USEC", Path::new("200000")),
        ],
        descriptors: 1024,
    };
    let arguments = [
        "serve",
        "-l=127.0.0.1:0",
        "--admin=off",
        "--workers=3",
        "--connections-max=16",
    ];
    let mut serving = Serving::start(&run, &arguments);
    assert_eq!(heard(), "READY=1\n");
    for _ in 0..5 {
        assert_eq!(heard(), "WATCHDOG=1\n", "although no worker has a client");
    }
    let client = TcpStream::connect(serving.address()).unwrap();
    serving.terminate();
    let mut said = (0..1000).map(|_| heard());
    let end = said.find(|state| state != "WATCHDOG=1\n");
    assert_eq!(end.as_deref(), Some("STOPPING=1\n"));
    drop(client);
    assert_eq!(serving.child.wait().unwrap().code(), Some(0));
}
