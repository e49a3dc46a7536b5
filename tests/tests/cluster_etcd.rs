//! Nodes find each other by etcd, and go on without it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use ackpace_tests::{
    Outcome, Program, Server, Setup, Tree, command, etcd, eventually, run, server_binary,
};

/// An etcd of this test.
struct Etcd {
    binary: PathBuf,
    tree: Tree,
    ports: [u16; 2],
    life: u32,
    program: Option<Program>,
}

impl Etcd {
    /// `None`: it is not installed, and the test is reported as skipped.
    fn start() -> Option<Etcd> {
        let binary = etcd()?;
        let mut etcd = Etcd {
            binary,
            tree: Tree::new(),
            ports: [0; 2].map(|_| two_ports(Ipv4Addr::LOCALHOST)),
            life: 0,
            program: None,
        };
        etcd.run();
        Some(etcd)
    }

    fn run(&mut self) {
        let [port, peer] = self.ports.map(|port| format!("http://127.0.0.1:{port}"));
        let mut command = command(&self.binary);
        let data = self.tree.at(format!("etcd-{}", self.life));
        command.arg("--data-dir").arg(data);
        command.arg("--unsafe-no-fsync"); // nothing has to outlive this machine
        for (option, value) in [
            ("--listen-client-urls", &port),
            ("--advertise-client-urls", &port),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
        ] {
            command.args([option, value]);
        }
        self.program = Some(Program::start(&mut command));
        let program = self.program.as_ref().expect("it runs");
        program.err_line(&["ready to serve client requests"]);
    }

    fn kill(&mut self) {
        self.program
            .take()
            .into_iter()
            .for_each(|mut program| program.kill());
    }

    /// Starts it again; `empty`: with nothing of what it had.
    fn again(&mut self, empty: bool) {
        self.life += u32::from(empty);
        self.run();
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/ackpace/test", self.ports[0])
    }
}

/// Nodes with keys and addresses in 127/8.
struct Cluster {
    tree: Tree,
    url: String,
}

/// A node that runs.
struct Node {
    server: Server,
    admin: PathBuf,
}

impl Cluster {
    fn new(url: String) -> Cluster {
        let tree = Tree::new();
        tree.file("site/a", "0123456789");
        Cluster { tree, url }
    }

    fn key(&self, name: &str) -> PathBuf {
        let key = self.tree.at(format!("{name}.key"));
        if !key.exists() {
            let mut command = command(server_binary());
            let made = run(command.args(["cluster", "key", "--out"]).arg(&key));
            assert!(made.success, "{}", made.err);
        }
        key
    }

    /// Starts a node at an address in 127/8.
    fn start(&self, name: &str, last: u8) -> Node {
        let ip = Ipv4Addr::new(127, 0, 1, last);
        self.start_at(name, (ip, two_ports(ip)).into(), &[])
    }

    fn start_at(&self, name: &str, at: SocketAddr, more: &[String]) -> Node {
        let admin = self.tree.at(format!("{name}.sock"));
        let mut args = vec![
            format!("--node={name}"),
            format!("--cluster-listen={at}"),
            format!("--cluster-key={}", self.key(name).display()),
            format!("--cluster-etcd={}", self.url),
            format!("--admin={}", admin.display()),
            "--metrics=0".to_owned(),
            "--workers=1".to_owned(),
        ];
        args.extend_from_slice(more);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let server = Setup::new(self.tree.at("site")).args(&args[..]).start();
        Node { server, admin }
    }
}

impl Node {
    fn ackpace(&self, words: &[&str]) -> Outcome {
        let mut command = command(server_binary());
        command.arg("cluster").args(words);
        run(command.arg("--admin").arg(&self.admin))
    }

    /// The nodes that this one knows, each with its standing.
    fn nodes(&self) -> Vec<(String, String)> {
        let status = self.ackpace(&["status", "--json"]);
        assert!(status.success, "{}", status.err);
        let (_, list) = status.out.split_once("\"nodes\":[").expect("the nodes");
        let nodes = list.split("{\"node\":\"").skip(1);
        let part = |text: &str, from: &str| {
            let rest = text.split_once(from).map_or(text, |(_, rest)| rest);
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let mut nodes: Vec<_> = nodes
            .map(|node| (part(node, "\u{0}"), part(node, "\"standing\":\"")))
            .collect();
        nodes.sort();
        nodes
    }

    #[track_caller]
    fn sees(&self, nodes: &[(&str, &str)]) {
        let mut last = Vec::new();
        let wanted: Vec<_> = nodes
            .iter()
            .map(|(name, standing)| ((*name).to_owned(), (*standing).to_owned()))
            .collect();
        eventually(&format!("{nodes:?}"), || {
            last = self.nodes();
            last == wanted
        });
    }
}

/// A port that is free, as is the one after it.
fn two_ports(ip: Ipv4Addr) -> u16 {
    for _ in 0..100 {
        let one = TcpListener::bind((ip, 0)).expect("a port");
        let port = one.local_addr().expect("bound").port();
        if port < u16::MAX && TcpListener::bind((ip, port + 1)).is_ok() {
            return port;
        }
    }
    panic!("no two ports");
}

#[test]
fn nodes_join_and_leave() {
    let Some(etcd) = Etcd::start() else { return };
    let cluster = Cluster::new(etcd.url());
    let (a, c) = (cluster.start("a", 1), cluster.start("c", 3));
    for node in [&a, &c] {
        node.sees(&[("a", "up"), ("c", "up")]);
    }
    // One whose name stands between theirs.
    let mut b = cluster.start("b", 2);
    for node in [&a, &b, &c] {
        node.sees(&[("a", "up"), ("b", "up"), ("c", "up")]);
    }
    assert_eq!(a.server.sum("ackpace_cluster_nodes", &["\"up\""]), 3.0);
    // What one has, the others read from it.
    assert_eq!(b.server.get("/a", "").text(), "0123456789");
    // It leaves once its lease has ended.
    b.server.kill();
    a.sees(&[("a", "up"), ("b", "ended"), ("c", "up")]);
    a.sees(&[("a", "up"), ("c", "up")]);
    c.sees(&[("a", "up"), ("c", "up")]);
    // It comes back elsewhere, with the key that it had.
    let b = cluster.start("b", 4);
    for node in [&a, &b, &c] {
        node.sees(&[("a", "up"), ("b", "up"), ("c", "up")]);
    }
}

#[test]
fn a_drain_outlives_the_node() {
    let Some(etcd) = Etcd::start() else { return };
    let cluster = Cluster::new(etcd.url());
    let ip = Ipv4Addr::new(127, 0, 1, 2);
    let at = (ip, two_ports(ip)).into();
    let (a, b) = (cluster.start("a", 1), cluster.start_at("b", at, &[]));
    a.sees(&[("a", "up"), ("b", "up")]);
    b.sees(&[("a", "up"), ("b", "up")]);
    assert!(a.ackpace(&["drain", "b"]).success);
    a.sees(&[("a", "up"), ("b", "draining")]);
    b.server.err_line(&["this node is draining"]);
    let told = a.ackpace(&["drain", "x"]);
    assert!(
        told.err.contains("x is no node of this cluster: a, b"),
        "{}",
        told.err
    );
    drop(b);
    a.sees(&[("a", "up"), ("b", "ended")]);
    let b = cluster.start_at("b", at, &[]);
    a.sees(&[("a", "up"), ("b", "draining")]);
    b.sees(&[("a", "up"), ("b", "draining")]);
    // Whoever is asked, b hears of it.
    assert!(a.ackpace(&["undrain", "b"]).success);
    a.sees(&[("a", "up"), ("b", "up")]);
    b.sees(&[("a", "up"), ("b", "up")]);
}

#[test]
fn without_etcd_all_goes_on() {
    let Some(mut etcd) = Etcd::start() else {
        return;
    };
    let cluster = Cluster::new(etcd.url());
    let (a, b) = (cluster.start("a", 1), cluster.start("b", 2));
    let both = [("a", "up"), ("b", "up")];
    a.sees(&both);
    b.sees(&both);
    assert!(a.ackpace(&["drain", "b"]).success);
    let drained = [("a", "up"), ("b", "draining")];
    a.sees(&drained);
    etcd.kill();
    a.server
        .err_line(&["etcd does not answer, and the known nodes stay"]);
    b.server
        .err_line(&["etcd does not answer, and the known nodes stay"]);
    a.sees(&drained);
    assert_eq!(a.server.get("/a", "").status, 200);
    // A node that starts meanwhile serves alone.
    let c = cluster.start("c", 3);
    c.server.err_line(&["etcd does not answer"]);
    c.sees(&[("c", "up")]);
    assert_eq!(c.server.get("/a", "").status, 200);
    // It comes back with nothing: the nodes list themselves anew, and nobody was cut off meanwhile.
    etcd.again(true);
    let all = [("a", "up"), ("b", "draining"), ("c", "up")];
    for node in [&a, &b, &c] {
        node.sees(&all);
    }
    let broken = a
        .server
        .sum("ackpace_cluster_streams_total", &["\"broken\""]);
    assert_eq!(broken, 0.0);
    // What it lost of drains was written anew, too, and ends.
    assert!(c.ackpace(&["undrain", "b"]).success);
    a.sees(&[("a", "up"), ("b", "up"), ("c", "up")]);
    // The same with what it had.
    etcd.kill();
    etcd.again(false);
    a.server.err_line(&["etcd answers again"]);
    a.sees(&[("a", "up"), ("b", "up"), ("c", "up")]);
}

#[test]
fn peer_pins_a_node_and_a_name_is_taken_once() {
    let Some(etcd) = Etcd::start() else { return };
    let cluster = Cluster::new(etcd.url());
    let ip = Ipv4Addr::new(127, 0, 1, 2);
    let at: SocketAddr = (ip, two_ports(ip)).into();
    let public = {
        let mut command = command(server_binary());
        let key = cluster.key("other");
        run(command.args(["cluster", "key", "--public"]).arg(key)).out
    };
    let pin = format!("--peer=b={at},{}", public.trim());
    let own = Ipv4Addr::new(127, 0, 1, 1);
    let a = cluster.start_at("a", (own, two_ports(own)).into(), &[pin]);
    let b = cluster.start_at("b", at, &[]);
    a.server.err_line(&[
        "etcd: the entry b=",
        "differs from --peer b=",
        "which is used",
    ]);
    assert_ne!(a.nodes()[1].1, "up");
    // Another node of this name, with a key of its own.
    let another = Cluster::new(etcd.url());
    let second = another.start("b", 5);
    second
        .server
        .err_line(&["the name b is taken, by a node at", "with another key"]);
    drop(b);
}
