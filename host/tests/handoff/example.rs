//! A server that is not ours moves its connections by the broker: `host/examples/moving_files/`.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::node::{Node, Started};
use crate::segment::{A, B, CLIENT, PORT, World, address, vip};
use crate::world::bytes;

const BIG_BYTES: u64 = 20_000_000;
const SMALL_BYTES: u64 = 5_000;
/// At which instances listen for each other.
const LINE_PORT: u16 = 7_900;

/// The example as `cargo test` builds it, beside the binary of this package.
fn example() -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_BIN_EXE_ackpace-host"));
    let path = own.parent()?.join("examples/moving_files");
    path.exists().then_some(path)
}

/// Two nodes with brokers and an instance each.
struct Scene {
    world: World,
    nodes: Vec<Node>,
    servers: Vec<Started>,
    folder: PathBuf,
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        let Some(example) = example() else {
            println!("skipped: {test}: 'cargo build -p ackpace-host --examples' builds its server");
            return None;
        };
        let world = World::new(test)?;
        let folder = std::env::temp_dir().join(world.space(A) + "files");
        let www = [A, B].map(|node| folder.join(format!("www{node}")));
        www.iter()
            .for_each(|www| fs::create_dir_all(www).expect("a folder"));
        for (name, content) in [("big", big()), ("small", small())] {
            fs::write(www[0].join(name), content).expect("a file");
            // Of one time.
            fs::hard_link(www[0].join(name), www[1].join(name)).expect("a file");
        }
        let nodes: Vec<Node> = [A, B].map(|node| Node::start(&world, node)).into();
        nodes.iter().for_each(|node| node.client.leave());
        let mut scene = Scene {
            world,
            nodes,
            servers: Vec::new(),
            folder,
        };
        for (node, other, name) in [(A, B, "b"), (B, A, "a")] {
            let line = |node| SocketAddr::new(address(node, false), LINE_PORT).to_string();
            let listen = SocketAddr::new(vip(false), PORT).to_string();
            let mut command = Command::new(&example);
            command
                .arg(&scene.nodes[node - A].path)
                .args([&listen, &line(node), name, &line(other)])
                .arg(&www[node - A])
                .stderr(File::create(scene.log(node)).expect("a file"));
            let started = scene.world.within(node, move || command.spawn());
            scene.servers.push(Started(started.expect("it was built")));
        }
        let until = Instant::now() + Duration::from_secs(10);
        while !scene.is_up() {
            assert!(Instant::now() < until, "it does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Some(scene)
    }

    fn is_up(&self) -> bool {
        let is_up = |node| {
            let to = SocketAddr::new(vip(false), PORT);
            self.world
                .within(node, move || TcpStream::connect(to).is_ok())
        };
        is_up(A) && is_up(B)
    }

    fn log(&self, node: usize) -> PathBuf {
        self.folder.join(format!("log{node}"))
    }

    /// How often the instance of A said so.
    fn said(&self, what: &str) -> usize {
        let log = fs::read_to_string(self.log(A)).expect("it was made");
        log.lines().filter(|line| line.contains(what)).count()
    }

    fn client(&self) -> TcpStream {
        let to = SocketAddr::new(vip(false), PORT);
        let client = self.world.within(CLIENT, move || TcpStream::connect(to));
        let client = client.expect("it listens");
        let patience = Some(Duration::from_secs(20));
        client.set_read_timeout(patience).expect("a socket");
        client
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for node in [A, B] {
            let log = fs::read_to_string(self.log(node)).unwrap_or_default();
            print!("node {node}:\n{log}");
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn ask(client: &mut TcpStream, name: &str) {
    write!(client, "GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is open");
}

/// Reads a head.
fn head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head comes");
        head.extend(byte);
    }
    String::from_utf8(head).expect("text")
}

/// Asks for a file and reads it.
fn get(client: &mut TcpStream, name: &str, content: &[u8]) {
    ask(client, name);
    let told = head(client);
    assert!(told.starts_with("HTTP/1.1 200 "), "{told}");
    let mut body = vec![0; content.len()];
    client.read_exact(&mut body).expect("the body comes");
    assert!(body == content, "wrong bytes of {name}");
}

fn big() -> Vec<u8> {
    bytes(0, BIG_BYTES)
}

fn small() -> Vec<u8> {
    bytes(7, 7 + SMALL_BYTES)
}

#[test]
fn curl_sees_one_server_while_its_download_moves() {
    let Some(scene) = Scene::new("curl_sees_one_server_while_its_download_moves") else {
        return;
    };
    let mut curl = Command::new("curl");
    for (name, to) in [("big", "got1"), ("small", "got2")] {
        curl.arg(format!("http://{}:{PORT}/{name}", vip(false)));
        curl.arg("-o").arg(scene.folder.join(to));
    }
    curl.args(["-sS", "--max-time", "30", "-w", "%{num_connects} "]);
    curl.stdout(Stdio::piped());
    let told = scene.world.within(CLIENT, move || curl.output());
    let Ok(told) = told else {
        println!("skipped: curl_sees_one_server_while_its_download_moves: no curl");
        return;
    };
    assert!(told.status.success(), "{told:?}");
    assert_eq!(told.stdout, b"1 0 ", "one connection for both");
    let got = |name| fs::read(scene.folder.join(name)).expect("curl wrote it");
    assert!(
        got("got1") == big() && got("got2") == small(),
        "wrong bytes"
    );
    assert_eq!(scene.said("moved at"), 1);
}

#[test]
fn a_connection_comes_back_and_moves_again() {
    let Some(scene) = Scene::new("a_connection_comes_back_and_moves_again") else {
        return;
    };
    let mut client = scene.client();
    for round in 1..=3 {
        get(&mut client, "big", &big());
        get(&mut client, "small", &small());
        let until = Instant::now() + Duration::from_secs(5);
        while scene.said("back") < round {
            assert!(Instant::now() < until, "it does not come back");
            thread::sleep(Duration::from_millis(20));
        }
        get(&mut client, "small", &small());
        assert_eq!(scene.said("moved at"), round);
    }
    // It ends at the guest, and home hears of it.
    get(&mut client, "big", &big());
    client.shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!(client.read(&mut [0]).expect("FIN comes"), 0);
    assert_eq!(scene.said("taken over"), 0);
}

#[test]
fn home_takes_over_from_a_guest_that_is_killed() {
    let Some(mut scene) = Scene::new("home_takes_over_from_a_guest_that_is_killed") else {
        return;
    };
    let mut client = scene.client();
    ask(&mut client, "big");
    head(&mut client);
    let (mut got, mut piece) = (Vec::<u8>::new(), vec![0; 1 << 20]);
    let mut is_killed = false;
    while got.len() < big().len() {
        let count = client.read(&mut piece).expect("more comes");
        assert!(count > 0, "it has closed at {}", got.len());
        got.extend(&piece[..count]);
        thread::sleep(Duration::from_millis(if is_killed { 0 } else { 5 }));
        if !is_killed && scene.said("moved at") > 0 {
            drop(scene.servers.pop());
            is_killed = true;
        }
    }
    assert!(got == big(), "wrong bytes");
    assert!(is_killed);
    get(&mut client, "small", &small());
    assert_eq!(scene.said("taken over"), 1);
}

#[test]
fn whatever_is_refused_is_served_at_home() {
    let Some(mut scene) = Scene::new("whatever_is_refused_is_served_at_home") else {
        return;
    };
    let mut client = scene.client();
    for lacks in [
        "the file",
        "the other broker",
        "the other server",
        "a broker",
    ] {
        match lacks {
            "the file" => {
                let path = scene.folder.join(format!("www{B}/big"));
                fs::remove_file(&path).expect("it is there");
                fs::write(&path, vec![0; BIG_BYTES as usize]).expect("a file");
            }
            "the other server" => drop(scene.servers.pop()),
            _ => drop(scene.nodes.pop()),
        }
        get(&mut client, "big", &big());
        get(&mut client, "small", &small());
        println!("without {lacks}");
    }
    assert_eq!(scene.said("moved at"), 0);
}
