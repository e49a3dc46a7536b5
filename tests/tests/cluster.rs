//! Nodes of a cluster find each other, notice who is gone, and let nobody else in.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ackpace_tests::{
    Conn, Outcome, PATIENCE, Server, Setup, Tree, command, connect_with, eventually, run,
    server_binary,
};

/// A node that may be started.
struct Place {
    name: &'static str,
    ip: Ipv4Addr,
    port: u16,
    /// Where the others are told that it is: a proxy, or itself.
    told: SocketAddr,
    key: PathBuf,
    public: String,
}

/// Nodes with keys and addresses in 127/8.
struct Cluster {
    tree: Tree,
    places: Vec<Place>,
}

/// A node that runs.
struct Node {
    server: Server,
    admin: PathBuf,
    log: PathBuf,
}

impl Cluster {
    fn new(names: &[&'static str]) -> Cluster {
        let tree = Tree::new();
        tree.file("site/a", "0123456789");
        let places = (1..).zip(names).map(|(nth, name)| {
            let ip = Ipv4Addr::new(127, 0, 0, nth);
            let port = two_ports(ip);
            let key = tree.at(format!("{name}.key"));
            let public = make_key(&key);
            Place {
                name,
                ip,
                port,
                told: (ip, port).into(),
                key,
                public,
            }
        });
        let places = places.collect();
        Cluster { tree, places }
    }

    /// The options of a node.
    fn options(&self, nth: usize) -> Vec<String> {
        let place = &self.places[nth];
        let mut args = vec![
            format!("--node={}", place.name),
            format!("--cluster-listen={}:{}", place.ip, place.port),
            format!("--cluster-key={}", place.key.display()),
        ];
        let others = self.places.iter().filter(|other| other.name != place.name);
        args.extend(
            others.map(|other| format!("--peer={}={},{}", other.name, other.told, other.public)),
        );
        args
    }

    fn setup(&self, nth: usize, options: &[String]) -> (Setup, PathBuf, PathBuf) {
        let name = self.places[nth].name;
        let admin = self.tree.at(format!("{name}.sock"));
        let log = self.tree.at(format!("{name}.log"));
        let mut args = options.to_vec();
        args.push(format!("--admin={}", admin.display()));
        args.push(format!("--access-log={}", log.display()));
        args.extend(["--metrics=0", "--workers=1"].map(str::to_owned));
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let setup = Setup::new(self.tree.at("site")).args(&args[..]);
        (setup, admin, log)
    }

    fn start(&self, nth: usize) -> Node {
        self.start_with(nth, &self.options(nth))
    }

    fn start_with(&self, nth: usize, options: &[String]) -> Node {
        let (setup, admin, log) = self.setup(nth, options);
        Node {
            server: setup.start(),
            admin,
            log,
        }
    }

    fn cluster_address(&self, nth: usize) -> SocketAddr {
        (self.places[nth].ip, self.places[nth].port).into()
    }
}

impl Node {
    fn ackpace(&self, words: &[&str]) -> Outcome {
        let mut command = command(server_binary());
        command.arg("cluster").args(words);
        run(command.arg("--admin").arg(&self.admin))
    }

    /// The standing of a node, as this one sees it.
    fn standing(&self, name: &str) -> String {
        self.field(name, "standing")
    }

    fn field(&self, name: &str, field: &str) -> String {
        let status = self.ackpace(&["status", "--json"]);
        assert!(status.success, "{}", status.err);
        let of = format!("{{\"node\":\"{name}\",");
        let node = status.out.split(&of).nth(1).expect("the node");
        let value = node.split(&format!("\"{field}\":")).nth(1);
        let value = value.expect("the field");
        value
            .split([',', '}'])
            .next()
            .unwrap_or_default()
            .trim_matches('"')
            .to_owned()
    }

    #[track_caller]
    fn sees(&self, name: &str, standing: &str) {
        eventually(&format!("{name} is {standing}"), || {
            self.standing(name) == standing
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

fn make_key(path: &PathBuf) -> String {
    let mut command = command(server_binary());
    let made = run(command.args(["cluster", "key", "--out"]).arg(path));
    assert!(made.success, "{}", made.err);
    made.out.trim().to_owned()
}

/// Waits until the other side has closed.
fn is_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn three_nodes_find_each_other_and_notice_who_is_gone() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    let (a, c) = (cluster.start(0), cluster.start(2));
    a.sees("c", "up");
    assert_eq!(a.standing("b"), "ended", "its port refuses");
    let mut b = cluster.start(1);
    b.server.out_line(&["node b of a cluster with a, c: "]);
    for node in [&a, &b, &c] {
        for name in ["a", "b", "c"] {
            node.sees(name, "up");
        }
    }
    let relay = format!("127.0.0.2:{}", cluster.places[1].port + 1);
    assert_eq!(a.field("b", "relay"), relay);
    b.server.kill();
    a.sees("b", "ended");
    c.sees("b", "ended");
    a.server
        .err_line(&["WARN", "b can't be reached: it closed the stream"]);
    assert_eq!(a.field("b", "relay"), "null");
    let page = a.ackpace(&["status"]).out;
    assert!(
        page.starts_with("node a; ") && page.contains("\nb                ended "),
        "{page}"
    );
    assert_eq!(a.server.sum("ackpace_cluster_nodes", &["\"up\""]), 2.0);
    assert_eq!(
        a.server
            .sum("ackpace_cluster_streams_total", &["\"broken\""]),
        1.0
    );
    drop(b);
    let b = cluster.start(1);
    a.sees("b", "up");
    c.sees("b", "up");
    assert!(a.server.sum("ackpace_cluster_frames_total", &["\"heard\""]) > 4.0);
    // One that hangs is silent, which proves nothing about its process.
    b.server.signal(libc::SIGSTOP);
    a.sees("b", "down");
    c.sees("b", "down");
    b.server.signal(libc::SIGCONT);
    a.sees("b", "up");
    c.sees("b", "up");
    // A node that stops has told so before its streams end.
    drop(b);
    a.sees("b", "ended");
}

#[test]
fn a_node_is_drained_from_itself_or_from_another() {
    let cluster = Cluster::new(&["a", "b"]);
    let (a, b) = (cluster.start(0), cluster.start(1));
    a.sees("b", "up");
    b.sees("a", "up");
    for (words, at, standing) in [
        (["drain", "b"], "b", "draining"),
        (["undrain", "b"], "b", "up"),
        (["drain", "a"], "a", "draining"),
        (["undrain", "a"], "a", "up"),
    ] {
        let told = a.ackpace(&words);
        assert!(
            told.success && told.out.contains(" requests"),
            "{}",
            told.err
        );
        a.sees(at, standing);
        b.sees(at, standing);
    }
    for (words, part) in [
        (&["drain", "x"][..], "x is no node of this cluster: a, b"),
        (&["drain"], "name the node"),
        (&["status", "b"], "status takes no node"),
    ] {
        let told = a.ackpace(words);
        assert!(!told.success && told.err.contains(part), "{}", told.err);
    }
    assert!(a.ackpace(&["drain", "b"]).success);
    a.sees("b", "draining");
    drop(b);
    a.sees("b", "ended");
    a.server.err_line(&["INFO", "b has ended"]);
    let told = a.ackpace(&["drain", "b"]);
    assert!(told.err.contains("b can't be reached"), "{}", told.err);
}

#[test]
fn a_wrong_key_and_a_second_node_of_one_name_stay_outside() {
    let mut cluster = Cluster::new(&["a", "b", "c"]);
    let stranger = cluster.tree.at("stranger.key");
    make_key(&stranger);
    cluster.places[2].key = stranger;
    let (a, b, c) = (cluster.start(0), cluster.start(1), cluster.start(2));
    a.sees("b", "up");
    a.server.err_line(&[
        "the stream to c at ",
        "no node that is known here has its key",
    ]);
    c.server.err_line(&["is refused: it refuses this node"]);
    assert_eq!(
        (a.standing("c"), c.standing("a")),
        ("down".into(), "down".into())
    );
    // Another process with the name and the key of a, at the same address.
    cluster.places[0].port = two_ports(cluster.places[0].ip);
    let options = cluster.options(0);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let second = Setup::new(cluster.tree.at("site"));
    let second = second.args(&options[..]).start();
    b.server.err_line(&[
        "the stream to a at ",
        "another running server is also called a",
    ]);
    assert_eq!(
        (b.standing("a"), a.standing("b")),
        ("up".into(), "up".into())
    );
    drop(second);
}

#[test]
fn rubbish_silence_and_strangers_disturb_nobody() {
    let cluster = Cluster::new(&["a", "b", "c"]);
    // In the place of c is somebody who takes connections and says nothing.
    let silent = TcpListener::bind(cluster.cluster_address(2)).expect("the port of c");
    let (a, b) = (cluster.start(0), cluster.start(1));
    a.sees("b", "up");
    let to = cluster.cluster_address(1);
    let from = |last| connect_with(to, Some(Ipv4Addr::new(127, 0, 0, last)), None, 0);
    let mut rubbish = from(1).expect("a connection");
    rubbish
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it is taken");
    is_closed(rubbish);
    b.server
        .err_line(&["an incoming stream is refused: it does not speak TLS"]);
    is_closed(from(9).expect("a connection")); // from where no node is
    let quiet: Vec<TcpStream> = (0..20).map(|_| from(3).expect("a connection")).collect();
    // Of 20 that say nothing the oldest make room at once, and the others are cut after 5 s.
    quiet.into_iter().for_each(is_closed);
    assert_eq!(
        (a.standing("b"), b.standing("a")),
        ("up".into(), "up".into())
    );
    assert_eq!(
        a.standing("c"),
        "down",
        "that its port takes connections is no proof"
    );
    assert!(
        b.server
            .sum("ackpace_cluster_streams_total", &["\"refused\""])
            >= 21.0
    );
    drop(silent);
    a.sees("c", "ended");
}

#[test]
fn a_stream_that_is_cut_in_the_middle_of_a_frame_stands_again() {
    let mut cluster = Cluster::new(&["a", "b"]);
    let left = Arc::new(AtomicU64::new(u64::MAX));
    cluster.places[1].told = proxy(cluster.cluster_address(1), Arc::clone(&left));
    let (a, b) = (cluster.start(0), cluster.start(1));
    a.sees("b", "up");
    // Some bytes more, which end no record; then the proxy lets all through again.
    for more in [7, 40, 101] {
        let before = a
            .server
            .sum("ackpace_cluster_streams_total", &["\"broken\""]);
        left.store(more, Ordering::SeqCst);
        eventually("the stream breaks", || {
            a.server
                .sum("ackpace_cluster_streams_total", &["\"broken\""])
                > before
        });
        a.sees("b", "up");
        b.sees("a", "up");
    }
}

/// Passes bytes to a server until `left` are used up, then cuts both sides and lets everything through.
fn proxy(to: SocketAddr, left: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.2:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // It comes from the address of the node that dials.
            let Ok(server) = connect_with(to, Some(Ipv4Addr::LOCALHOST), None, 0) else {
                continue;
            };
            let back = (server.try_clone(), client.try_clone());
            let (Ok(from), Ok(into)) = back else { continue };
            let counted = Arc::clone(&left);
            std::thread::spawn(move || pass(client, server, &counted));
            let all = Arc::new(AtomicU64::new(u64::MAX));
            std::thread::spawn(move || pass(from, into, &all));
        }
    });
    address
}

fn pass(mut from: TcpStream, mut into: TcpStream, left: &AtomicU64) {
    let mut bytes = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let most = left.load(Ordering::SeqCst);
        let passed = (read as u64).min(most) as usize;
        let passes = into.write_all(&bytes[..passed]).is_ok();
        if most != u64::MAX {
            left.store(most - passed as u64, Ordering::SeqCst);
        }
        if !passes || passed < read {
            left.store(u64::MAX, Ordering::SeqCst);
            break;
        }
    }
    for end in [&from, &into] {
        let _ = end.shutdown(std::net::Shutdown::Both);
    }
}

#[test]
fn nodes_ask_at_a_port_of_their_own_and_leave_no_line_in_the_access_log() {
    let cluster = Cluster::new(&["a", "b"]);
    let a = cluster.start(0);
    let relay = SocketAddr::from((cluster.places[0].ip, cluster.places[0].port + 1));
    let from = |last| connect_with(relay, Some(Ipv4Addr::new(127, 0, 0, last)), None, 0);
    let mut node = Conn::over(from(2).expect("a connection")).expect("a socket");
    assert_eq!(node.get("/a", "").text(), "0123456789");
    is_closed(from(9).expect("a connection"));
    is_closed(from(1).expect("a connection"));
    assert_eq!(a.server.get("/a?of=a-client", "").status, 200);
    let log = || std::fs::read_to_string(&a.log).unwrap_or_default();
    eventually("the client's line", || log().contains("of=a-client"));
    assert_eq!(log().lines().count(), 1, "{}", log());
}

#[test]
fn a_relayed_response_is_told_of_in_log_and_metrics_and_its_log_can_be_analysed() {
    let cluster = Cluster::new(&["a", "b"]);
    cluster.tree.file("site/other", "abc");
    let mut options = cluster.options(0);
    options.push("--access-log-format=json".to_owned());
    let (a, b) = (cluster.start_with(0, &options), cluster.start(1));
    a.sees("b", "up");
    b.sees("a", "up");
    for (path, objects) in [("/a", 1), ("/other", 2)] {
        // Of a file that has just changed nothing tells the versions apart.
        eventually("the tag is strong", || {
            let response = b.server.get(path, "");
            !response.field("ETag").unwrap_or("W/").starts_with("W/")
        });
        // Before b has told that, it counts the first one as a load of its own, and gives the second one to a.
        eventually("a hears what b has", || {
            let status = a.ackpace(&["status", "--json"]).out;
            status.contains(&format!("\"objects\":{objects},"))
        });
    }
    assert_eq!(a.server.get("/a", "").text(), "0123456789");
    assert_eq!(a.server.get("/nothing", "").status, 404);
    let log = || std::fs::read_to_string(&a.log).unwrap_or_default();
    eventually("both lines", || log().lines().count() == 2);
    for end in ["relayed", "here"] {
        let end = format!(",\"node\":\"a\",\"by\":\"{end}\",\"moves\":0}}\n");
        assert!(log().contains(&end), "no {end} in {}", log());
    }
    let placed = |by: &str| a.server.sum("ackpace_cluster_responses_total", &[by]);
    assert_eq!((placed("\"relayed\""), placed("\"here\"")), (1.0, 0.0));
    assert_eq!(a.server.sum("ackpace_cluster_moved_connections", &[]), 0.0);
    b.server.signal(libc::SIGSTOP);
    assert_eq!(a.server.get("/other", "").text(), "abc");
    let told = ["/site/other", "node b does not send it from offset_bytes=0"];
    a.server.err_line(&told);
    b.server.signal(libc::SIGCONT);
    eventually("its line", || log().lines().count() == 3);
    let mut command = command(server_binary());
    let analysed = run(command.args(["cluster", "analyse"]).arg(&a.log));
    assert!(
        analysed.out.starts_with("3 lines (json), ") && analysed.out.contains("not in this log"),
        "{}{}",
        analysed.out,
        analysed.err
    );
}

#[test]
fn a_start_with_wrong_options_says_what_to_mend() {
    let cluster = Cluster::new(&["a", "b"]);
    let good = cluster.options(0);
    let refused = |change: &dyn Fn(&mut Vec<String>), parts: &[&str]| {
        let mut options = good.clone();
        change(&mut options);
        cluster.setup(0, &options).0.assert_refused(parts);
    };
    refused(&|o| drop(o.pop()), &["also needs peer"]);
    refused(&|o| drop(o.remove(0)), &["peer ", "also needs node"]);
    let (own, other) = (&cluster.places[0], &cluster.places[1]);
    refused(
        &|o| o[3] = o[3].replace(&other.public, &own.public),
        &["--peer b: it has this node's own key"],
    );
    refused(
        &|o| o[3] = o[3].replace("b=", "a="),
        &["a is this node itself"],
    );
    refused(
        &|o| o.push("--origin=http://127.0.0.1:1/".into()),
        &["a gateway"],
    );
    refused(
        &|o| o.push("--peer=c=nowhere".into()),
        &["--peer", "is not NAME=ADDR,KEY"],
    );
    std::fs::set_permissions(&own.key, std::fs::Permissions::from_mode(0o644)).expect("ours");
    refused(
        &|_| {},
        &["--cluster-key ", "a.key: others may use it", "chmod 600"],
    );
    std::fs::remove_file(&own.key).expect("ours");
    cluster
        .setup(0, &good)
        .0
        .assert_refused_now(&["--cluster-key ", "No such file"]);
    // A key is never written over, and its public half can be printed again.
    let again = |words: &[&str]| {
        let mut command = command(server_binary());
        run(command.args(["cluster", "key"]).args(words).arg(&other.key))
    };
    let over = again(&["--out"]);
    assert!(!over.success && over.err.contains("exists"), "{}", over.err);
    assert_eq!(again(&["--public"]).out.trim(), other.public);
}
