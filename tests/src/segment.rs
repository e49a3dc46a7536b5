//! Three nodes of a cluster and their clients on one segment, each in a network namespace. The addresses of the service are on
//! lo of each node; packets to the nth go to the nth node. Each node has a mount namespace with a BPF file system of its own.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::{
    Files, Outcome, Program, Server, Setup, Tree, client, command, done, eventually, host_binary,
    host_can, rested, run, server_binary,
};

/// The names of the nodes.
pub const NODES: [&str; 3] = ["a", "b", "c"];
/// The port of the service.
const PORT: u16 = 80;
/// The port at which the nodes listen for each other.
const CLUSTER_PORT: u16 = 7800;

/// A network namespace.
pub struct Space {
    net: String,
    /// Its process keeps it, and its mounts; it ends with the pipe to its standard input.
    keeper: Option<Child>,
}

impl Space {
    /// A new one, with a BPF file system in its mount namespace. `None`: that can't be made here.
    fn new() -> Option<Space> {
        let line = "mount -t bpf bpf /sys/fs/bpf && ip link set lo up && echo up && exec cat";
        let mut keeper = Command::new("unshare")
            .args(["--net", "--mount", "sh", "-c", line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut told = String::new();
        let out = keeper.stdout.take()?;
        let space = Space {
            net: format!("/proc/{}/ns/net", keeper.id()),
            keeper: Some(keeper),
        };
        BufReader::new(out).read_line(&mut told).ok()?;
        (told == "up\n").then_some(space)
    }

    /// One that somebody else keeps, at this path.
    pub fn at(net: &str) -> Space {
        Space {
            net: net.to_owned(),
            keeper: None,
        }
    }

    /// A command that starts inside.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut entered = command("nsenter");
        entered.arg(format!("--net={}", self.net));
        if let Some(keeper) = &self.keeper {
            entered.arg(format!("--mount=/proc/{}/ns/mnt", keeper.id()));
        }
        entered.arg(program);
        entered
    }

    fn ip(&self, arguments: &str) {
        let outcome = run(self.command("ip").args(arguments.split_whitespace()));
        assert!(outcome.success, "ip {arguments}: {}", outcome.err);
    }

    /// Does something inside, in a thread of its own. Sockets that are opened there stay there.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let own = File::open(&self.net).expect("it is kept");
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                enter(&own).expect("root may");
                work()
            });
            match inside.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Sets a value below /proc/sys/net.
    pub fn sysctl(&self, key: &str, value: &str) {
        let path = format!("/proc/sys/net/{key}");
        self.within(|| fs::write(&path, value))
            .unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

/// Moves this thread.
fn enter(space: &File) -> io::Result<()> {
    // SAFETY: no pointers; the descriptor is open.
    done(unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// The segment, and what the nodes serve.
pub struct Segment {
    /// Files: `site` is what all nodes serve.
    pub tree: Tree,
    switch: Space,
    /// Where the clients are.
    pub client: Space,
    nodes: Vec<Place>,
}

/// A node that may be started.
struct Place {
    space: Space,
    key: PathBuf,
    public: String,
}

/// A node that runs.
pub struct Node {
    name: &'static str,
    /// Its server.
    pub server: Server,
    /// The broker of its machine.
    pub broker: Option<Program>,
    admin: PathBuf,
    log: PathBuf,
}

/// An address of the service, whose packets go to the nth node.
pub fn vip(nth: usize) -> SocketAddr {
    let ip = [10, 77, 9, 11 + nth as u8];
    SocketAddr::new(ip.into(), PORT)
}

/// The same of IPv6.
pub fn vip6(nth: usize) -> SocketAddr {
    let ip: IpAddr = format!("fd77:9::{}", 11 + nth).parse().expect("an address");
    SocketAddr::new(ip, PORT)
}

/// A node's own address, or that of the clients, on the segment.
fn own(nth: Option<usize>) -> [String; 2] {
    let host = nth.map_or(1, |nth| 11 + nth);
    [format!("10.77.0.{host}"), format!("fd77::{host}")]
}

impl Segment {
    /// With clients on the segment itself. `None`: said why not.
    pub fn new() -> Option<Segment> {
        Segment::before(None)
    }

    /// With clients behind a router; both are namespaces that somebody else keeps. `None`: said why not.
    pub fn behind(router: Space, client: Space) -> Option<Segment> {
        Segment::before(Some((router, client)))
    }

    fn before(far: Option<(Space, Space)>) -> Option<Segment> {
        client("ip")?;
        client("nsenter")?;
        if !host_can("handoff") {
            return None;
        }
        let Some(switch) = Space::new() else {
            crate::skip("no namespace, or no BPF file system, can be made here");
            return None;
        };
        let space = || Space::new().expect("there is one already");
        let tree = Tree::new();
        let nodes = NODES.map(|name| {
            let key = tree.at(format!("{name}.key"));
            let mut command = command(server_binary());
            let made = run(command.args(["cluster", "key", "--out"]).arg(&key));
            assert!(made.success, "{}", made.err);
            Place {
                space: space(),
                key,
                public: made.out.trim().to_owned(),
            }
        });
        let (near, client) = match far {
            Some((router, client)) => (Some(router), client),
            None => (None, space()),
        };
        let segment = Segment {
            tree,
            switch,
            client,
            nodes: nodes.into(),
        };
        segment.wire(near.as_ref());
        Some(segment)
    }

    fn wire(&self, router: Option<&Space>) {
        self.switch.ip("link add br0 type bridge mcast_snooping 0");
        self.switch.ip("link set br0 up");
        for (nth, place) in self.nodes.iter().enumerate() {
            self.join(&place.space, Some(nth));
            for to in 0..NODES.len() {
                let [four, six] = [vip(to).ip(), vip6(to).ip()];
                place.space.ip(&format!("addr add {four}/32 dev lo"));
                place.space.ip(&format!("addr add {six}/128 dev lo nodad"));
            }
            if router.is_some() {
                let [via, _] = own(None);
                place.space.ip(&format!("route add default via {via}"));
            }
        }
        let near = router.unwrap_or(&self.client);
        self.join(near, None);
        for nth in 0..NODES.len() {
            let [via4, via6] = own(Some(nth));
            near.ip(&format!("route add {} via {via4}", vip(nth).ip()));
            near.ip(&format!("route add {} via {via6}", vip6(nth).ip()));
        }
        if router.is_some() {
            near.sysctl("ipv4/ip_forward", "1");
        }
    }

    /// Plugs a namespace in.
    fn join(&self, space: &Space, nth: Option<usize>) {
        let port = port(nth);
        // ip(8) takes a path where it takes a name.
        self.switch.ip(&format!(
            "link add eth0 netns {} type veth peer name {port}",
            space.net
        ));
        self.switch.ip(&format!("link set {port} master br0 up"));
        for key in ["arp_ignore=1", "arp_announce=2", "rp_filter=0"] {
            let (key, value) = key.split_once('=').expect("both");
            if nth.is_some() {
                space.sysctl(&format!("ipv4/conf/all/{key}"), value);
            }
        }
        space.sysctl("ipv6/conf/eth0/accept_dad", "0");
        let [four, six] = own(nth);
        space.ip(&format!("addr add {four}/24 dev eth0"));
        space.ip(&format!("addr add {six}/64 dev eth0 nodad"));
        space.ip("link set eth0 up");
    }

    /// Takes the link of a node away, or brings it back.
    pub fn link(&self, nth: usize, up: bool) {
        let state = if up { "up" } else { "down" };
        self.switch
            .ip(&format!("link set {} {state}", port(Some(nth))));
    }

    /// Takes the addresses of a node's service from another one, or gives them back.
    pub fn has_vips(&self, at: usize, of: usize, has: bool) {
        let word = if has { "add" } else { "del" };
        let [four, six] = [vip(of).ip(), vip6(of).ip()];
        let space = &self.nodes[at].space;
        space.ip(&format!("addr {word} {four}/32 dev lo"));
        space.ip(&format!("addr {word} {six}/128 dev lo"));
    }

    /// Writes the files that all nodes serve.
    pub fn files(&self, files: &Files) {
        for (name, content) in &files.0 {
            self.tree.file(format!("site/{name}"), content);
        }
    }

    /// Starts the broker of a node.
    pub fn broker(&self, nth: usize) -> Program {
        let mut command = self.nodes[nth].space.command(host_binary());
        let all = (0..NODES.len()).flat_map(|nth| [vip(nth).ip(), vip6(nth).ip()]);
        let vips: Vec<String> = all.map(|vip| vip.to_string()).collect();
        command
            .args(["handoff", "--for=0", "--device=eth0"])
            .arg(format!("--port={PORT}"))
            .arg(format!("--vip={}", vips.join(",")))
            .arg(format!("--node={}", NODES[nth]))
            .arg("--socket")
            .arg(self.socket(nth));
        for other in (0..NODES.len()).filter(|other| *other != nth) {
            // Clients of both kinds.
            let [_, six] = own(Some(other));
            command.arg(format!("--peer={}={six}", NODES[other]));
        }
        let broker = Program::start(&mut command);
        eventually("a broker", || self.socket(nth).exists());
        broker
    }

    /// Where the broker of a node is asked.
    pub fn socket(&self, nth: usize) -> PathBuf {
        self.tree.at(format!("{}.broker", NODES[nth]))
    }

    /// Starts the server of a node, with further arguments, and waits until it serves.
    pub fn server(&self, nth: usize, broker: Option<Program>, args: &[&str]) -> Node {
        let at = |kind: &str| self.tree.at(format!("{}.{kind}", NODES[nth]));
        let (admin, log) = (at("sock"), at("log"));
        let [four, _] = own(Some(nth));
        let mut words = vec![
            format!("--node={}", NODES[nth]),
            format!("--cluster-listen={four}:{CLUSTER_PORT}"),
            format!("--cluster-key={}", self.nodes[nth].key.display()),
            format!("--hand-off-socket={}", self.socket(nth).display()),
            format!("--admin={}", admin.display()),
            format!("--access-log={}", log.display()),
        ];
        for (other, place) in self.nodes.iter().enumerate().filter(|(it, _)| *it != nth) {
            let [four, _] = own(Some(other));
            let (name, key) = (NODES[other], &place.public);
            words.push(format!("--peer={name}={four}:{CLUSTER_PORT},{key}"));
        }
        let fixed = "--access-log-format=json --compare=place=random --cache-memory=16MiB";
        words.extend(fixed.split(' ').map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let space = File::open(&self.nodes[nth].space.net).expect("it is kept");
        let setup = Setup::new(self.tree.at("site"))
            .listen(format!(":{PORT}"))
            .args(&words[..])
            .args(args)
            .before(move || enter(&space));
        Node {
            name: NODES[nth],
            server: setup.start(),
            broker,
            admin,
            log,
        }
    }

    /// Starts all nodes with these arguments, and waits until connections may move between them.
    pub fn start(&self, args: &[&str]) -> Vec<Node> {
        let last = fs::read_dir(self.tree.at("site")).expect("files").flatten();
        last.for_each(|file| rested(&file.path()));
        let nodes = (0..NODES.len()).map(|nth| self.server(nth, Some(self.broker(nth)), args));
        let nodes: Vec<Node> = nodes.collect();
        for node in &nodes {
            node.server
                .err_line(&["cluster: connections to ", " move "]);
            node.sees_all_up();
        }
        nodes
    }

    /// The nodes that have a connection of a client.
    pub fn holders(&self) -> Vec<usize> {
        let has = |nth: &usize| {
            self.nodes[*nth].space.within(|| {
                ["tcp", "tcp6"].iter().any(|table| {
                    let table = fs::read_to_string(format!("/proc/thread-self/net/{table}"));
                    table.unwrap_or_default().lines().any(|line| {
                        let mut words = line.split_whitespace().skip(1);
                        let local = words.next().unwrap_or_default();
                        let state = words.nth(1).unwrap_or_default();
                        local.ends_with(":0050") && state == "01"
                    })
                })
            })
        };
        (0..NODES.len()).filter(has).collect()
    }
}

/// What tests of packets ask.
impl Segment {
    /// The client's end of a connection of IPv4 to the service.
    pub fn connected(&self) -> Option<SocketAddr> {
        let table = self
            .client
            .within(|| fs::read_to_string("/proc/thread-self/net/tcp"));
        table.ok()?.lines().find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (local, other, state) = (words.get(1)?, words.get(2)?, words.get(3)?);
            let (ip, port) = local.split_once(':')?;
            let is_it = other.ends_with(":0050") && *state == "01";
            let ip = u32::from_str_radix(ip, 16).ok()?.to_ne_bytes();
            let port = u16::from_str_radix(port, 16).ok()?;
            is_it.then(|| SocketAddr::new(ip.into(), port))
        })
    }

    /// Whether a node has been told that the path to the clients takes no more than this.
    pub fn believes(&self, nth: usize, mtu: u16) -> bool {
        let [client, _] = own(None);
        let mut ip = self.nodes[nth].space.command("ip");
        let told = run(ip.args(["route", "get", &client]));
        told.out.contains(&format!(" mtu {mtu}"))
    }
}

fn port(nth: Option<usize>) -> String {
    format!("port{}", nth.map_or(0, |nth| nth + 1))
}

impl Node {
    /// Runs `ackpace cluster` for it.
    pub fn ackpace(&self, words: &[&str]) -> Outcome {
        let mut command = command(server_binary());
        command.arg("cluster").args(words);
        run(command.arg("--admin").arg(&self.admin))
    }

    /// Has a node drained, or no longer, and waits until this one knows it.
    pub fn drain(&self, name: &str, on: bool) {
        let (word, standing) = if on {
            ("drain", "draining")
        } else {
            ("undrain", "up")
        };
        let told = self.ackpace(&[word, name]);
        assert!(told.success, "{}", told.err);
        self.sees(name, standing);
    }

    /// Waits until it sees all nodes up.
    pub fn sees_all_up(&self) {
        NODES.iter().for_each(|name| self.sees(name, "up"));
    }

    /// Waits until a node stands so in its eyes.
    #[track_caller]
    pub fn sees(&self, name: &str, standing: &str) {
        let what = format!("{name} is {standing} for {}", self.name);
        eventually(&what, || {
            let status = self.ackpace(&["status", "--json"]).out;
            let of = format!("{{\"node\":\"{name}\",");
            let node = status.split(&of).nth(1).unwrap_or_default();
            let value = node.split("\"standing\":\"").nth(1).unwrap_or_default();
            value.starts_with(&format!("{standing}\""))
        });
    }

    /// The targets of the responses that it served so far, in the order of their ends.
    pub fn served(&self) -> Vec<String> {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let target = |line: &str| {
            let rest = line.split("\"target\":\"").nth(1)?;
            Some(rest.split('"').next()?.to_owned())
        };
        log.lines().filter_map(target).collect()
    }
}
