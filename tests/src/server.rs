//! Starting, watching and stopping a server.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::thread;

use crate::client::command;
use crate::{Conn, Program, Tree, Words, done, limit_receive_buffer, server_binary};

/// A server to be started.
pub struct Setup {
    root: PathBuf,
    listen: Vec<OsString>,
    args: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    user: Option<u32>,
    descriptors_max: Option<u64>,
    before: Option<Box<dyn FnMut() -> io::Result<()> + Send + Sync>>,
}

impl Setup {
    /// Serves `root` on a port that the kernel chooses.
    pub fn new(root: impl AsRef<Path>) -> Setup {
        Setup {
            root: root.as_ref().to_owned(),
            listen: vec!["127.0.0.1:0".into()],
            args: Vec::new(),
            variables: Vec::new(),
            user: None,
            descriptors_max: None,
            before: None,
        }
    }

    /// Listens at this place instead.
    pub fn listen(mut self, place: impl Into<OsString>) -> Setup {
        self.listen = vec![place.into()];
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: &(impl Words + ?Sized)) -> Setup {
        self.args.extend(args.words());
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Setup {
        self.variables.push((name.into(), value.into()));
        self
    }

    /// Runs as this user and group, without any capability.
    pub fn user(mut self, id: u32) -> Setup {
        self.user = Some(id);
        self
    }

    /// Runs as a user to whom file modes apply: another user if this is root.
    pub fn ordinary(self) -> Setup {
        // SAFETY: it takes nothing and always succeeds.
        match unsafe { libc::geteuid() } {
            0 => self.user(65534),
            _ => self,
        }
    }

    /// Limits its descriptors to `count` (setrlimit(2), the hard limit).
    pub fn descriptors_max(mut self, count: u64) -> Setup {
        self.descriptors_max = Some(count);
        self
    }

    /// Calls `act` in the new process before it becomes the server. It may make system calls only.
    pub fn before(mut self, act: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Setup {
        self.before = Some(Box::new(act));
        self
    }

    /// Starts it and waits until it serves.
    pub fn start(self) -> Server {
        let mut server = self.spawn();
        server.greeted();
        server
    }

    /// Starts it and waits until it ends because it can't serve. Returns the exit code and what it wrote on standard
    /// error.
    pub fn fails(self) -> (Option<i32>, String) {
        let mut server = self.spawn();
        let status = server.wait();
        (status.code(), server.err())
    }

    /// Starts it and waits until it refuses with exit code 2 (a restart changes nothing) and one line, which contains all
    /// these parts.
    #[track_caller]
    pub fn assert_refused(self, parts: &[&str]) {
        self.assert_ends(2, parts);
    }

    /// The same with exit code 75: a later start may do.
    #[track_caller]
    pub fn assert_refused_now(self, parts: &[&str]) {
        self.assert_ends(75, parts);
    }

    #[track_caller]
    fn assert_ends(self, expected: i32, parts: &[&str]) {
        let (code, err) = self.fails();
        assert_eq!(code, Some(expected), "{err}");
        assert_eq!(
            err.trim_end().lines().count(),
            1,
            "one clear message: {err}"
        );
        for part in parts {
            assert!(err.contains(part), "no {part:?} in {err}");
        }
    }

    /// Starts it and does not wait for it.
    pub fn spawn(self) -> Server {
        // A user without rights may not reach the binary where it was built.
        let (home, binary) = match self.user {
            None => (None, server_binary().to_owned()),
            Some(_) => {
                let home = Tree::new();
                let copy = home.at("ackpace");
                fs::copy(server_binary(), &copy).expect("a copy of the server");
                (Some(home), copy)
            }
        };
        let mut server = command(binary);
        for place in &self.listen {
            server.arg("--listen").arg(place);
        }
        // Servers of tests leave nothing where the servers of users are looked for.
        server.env("ACKPACE_ADMIN", "off");
        server.args(&self.args).arg(&self.root);
        server.envs(self.variables);
        let (user, descriptors_max, mut before) = (self.user, self.descriptors_max, self.before);
        // SAFETY: between fork and exec the child makes system calls only and allocates nothing.
        unsafe {
            server.pre_exec(move || {
                if let Some(before) = &mut before {
                    before()?;
                }
                limit_descriptors(descriptors_max)?;
                become_user(user)
            });
        }
        Server {
            program: Program::start(&mut server),
            url: String::new(),
            _home: home,
        }
    }
}

fn limit_descriptors(count: Option<u64>) -> io::Result<()> {
    let Some(count) = count else { return Ok(()) };
    let limit = libc::rlimit {
        rlim_cur: count,
        rlim_max: count,
    };
    // SAFETY: the pointer is to a live rlimit.
    done(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })
}

fn become_user(id: Option<u32>) -> io::Result<()> {
    let Some(id) = id else { return Ok(()) };
    // SAFETY: no groups are passed; the others take numbers.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()))?;
        done(libc::setresgid(id, id, id))?;
        done(libc::setresuid(id, id, id))
    }
}

/// A running server, which its drop stops.
pub struct Server {
    program: Program,
    url: String,
    _home: Option<Tree>,
}

impl Deref for Server {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl Server {
    /// Serves this directory with these arguments.
    pub fn start(tree: &Tree, args: &(impl Words + ?Sized)) -> Server {
        Setup::new(tree.path()).args(args).start()
    }

    /// Waits until it serves, and learns its address.
    pub fn greeted(&mut self) {
        let first = self.out_line(&["serving "]);
        let gateways = ["serving http", "serving s3://"];
        let is_gateway = gateways.iter().any(|start| first.starts_with(start));
        self.out_line(&[if is_gateway {
            "payload that "
        } else {
            "reading "
        }]);
        let text = self.out();
        let line = text.lines().find(|line| line.starts_with("serving "));
        // The path that is served may hold " at " too.
        let places = ["http://", "unix:", "fd:"];
        let url = line.and_then(|line| {
            let mut parts = line.split(" at ").skip(1);
            parts.find(|part| places.iter().any(|place| part.starts_with(place)))
        });
        let url = url.and_then(|url| url.split(" (").next());
        self.url = url
            .unwrap_or_else(|| panic!("no address in {text:?}"))
            .to_owned();
    }

    /// The address that it prints, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of a path that begins with a slash.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Host and port.
    pub fn address(&self) -> SocketAddr {
        let address = self.url.strip_prefix("http://").map(str::parse);
        match address {
            Some(Ok(address)) => address,
            _ => panic!("no TCP address: {}", self.url),
        }
    }

    /// A new connection to it.
    pub fn connect(&self) -> Conn {
        Conn::open(self.address())
    }

    /// Sends bytes on a new connection and reads the one response.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> crate::Response {
        self.connect().send(request).response()
    }

    /// Sends a GET on a new connection, with further field lines that each end with CRLF. Its response is read later.
    pub fn begin(&self, target: &str, fields: &str) -> Conn {
        let mut conn = self.connect();
        conn.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{fields}\r\n"));
        conn
    }

    /// GETs a path on a new connection, with further field lines that each end with CRLF.
    pub fn get(&self, target: &str, fields: &str) -> crate::Response {
        self.connect().get(target, fields)
    }

    /// A download whose client has stopped reading after the head, with further field lines that each end with CRLF.
    pub fn stalled(&self, target: &str, fields: &str) -> Conn {
        let mut conn = self.connect();
        limit_receive_buffer(&conn.stream, 64 << 10);
        conn.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n{fields}\r\n"));
        assert_eq!(conn.head().status, 200);
        conn
    }

    /// Number of its open descriptors.
    pub fn descriptors(&self) -> usize {
        let dir = fs::read_dir(format!("/proc/{}/fd", self.pid()));
        dir.expect("the server runs").count()
    }

    /// Its anonymous resident memory (RssAnon), in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()));
        let status = status.expect("the server runs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line
            .and_then(|line| line.trim().strip_suffix(" kB"))
            .expect("RssAnon");
        kib.parse::<u64>().expect("a number") * 1024
    }

    /// Stops it now, as its drop does.
    pub fn stop(self) {}

    /// The address of its metrics.
    pub fn metrics(&self) -> SocketAddr {
        let line = self.out_line(&["metrics at http://"]);
        let url = line.trim_end().trim_start_matches("metrics at http://");
        let address = url.trim_end_matches("/metrics").parse();
        address.expect("an address")
    }

    /// GETs a path of its metrics port, with further field lines that each end with CRLF.
    pub fn scrape(&self, path: &str, fields: &str) -> crate::Response {
        Conn::open(self.metrics()).get(path, fields)
    }

    /// The sum of all samples of this name with these labels, now.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        metric(&self.scrape("/metrics", "").text(), name, labels)
    }
}

/// Stops a server that runs by SIGTERM, and checks that it ends with exit code 0 and has not panicked.
impl Drop for Server {
    fn drop(&mut self) {
        if thread::panicking() {
            self.kill();
            eprintln!("the server's messages:\n{}", self.err());
        } else if self.ended().is_none() {
            self.signal(libc::SIGTERM);
            let (code, err) = (self.wait().code(), self.err());
            assert_eq!(code, Some(0), "exit code after SIGTERM; it said:\n{err}");
            assert!(!err.contains("panicked"), "it panicked:\n{err}");
        }
    }
}

/// The sum of all samples of this name with these labels on a page of metrics.
pub fn metric(page: &str, name: &str, labels: &[&str]) -> f64 {
    let samples = page.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    });
    let values = samples.map(|line| {
        line.rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok())
    });
    values.map(|value| value.expect("a number")).sum()
}
