//! What a server may get wrong, and what another user may try: each is refused with a reason, and the broker goes on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::Duration;

use ackpace_wire::cluster::broker::{
    Connection, Reply, Request, VERSION, encode_request, parse_reply,
};
use ackpace_wire::limits::BROKER_DATAGRAM_BYTES_MAX;
use rustix::process::{Pid, Signal};

use crate::client::Client;
use crate::node::Node;
use crate::segment::{A, CLIENT, PORT, World, run, vip};

/// A node, and a connection to it.
struct Scene {
    world: World,
    node: Node,
    client: TcpStream,
    server: TcpStream,
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        let world = World::new(test)?;
        let node = Node::start(&world, A);
        let (client, server) = connection(&world, PORT);
        Some(Scene {
            world,
            node,
            client,
            server,
        })
    }

    fn ask(&mut self, request: &Request, socket: Option<BorrowedFd<'_>>) -> Reply {
        self.node.client.ask(request, socket).0
    }

    /// About the server's socket.
    fn ask_here(&mut self, request: &Request) -> Reply {
        let socket = self.server.as_fd();
        self.node.client.ask(request, Some(socket)).0
    }

    fn frozen(&mut self, epoch: u32) -> Connection {
        match self.ask_here(&freeze(epoch)) {
            Reply::Saved { connection, .. } => *connection,
            other => panic!("{other:?}"),
        }
    }

    /// The connection works, and the broker answers.
    fn is_well(&mut self) {
        let hello = self.ask(&Request::Hello { version: VERSION }, None);
        let Reply::Hello(hello) = hello else {
            panic!("{hello:?}");
        };
        assert_eq!((hello.node.as_str(), hello.version), ("a", VERSION));
        assert_eq!(hello.vips, [vip(false), vip(true)]);
        assert_eq!((hello.ports, hello.peers.len()), (vec![PORT], 2));
        self.talks();
    }

    fn talks(&self) {
        let mut got = [0; 4];
        (&self.client).write_all(b"ping").expect("it is open");
        (&self.server).read_exact(&mut got).expect("it is open");
        (&self.server).write_all(b"pong").expect("it is open");
        (&self.client).read_exact(&mut got).expect("it is open");
        assert_eq!(&got, b"pong");
    }
}

fn connection(world: &World, port: u16) -> (TcpStream, TcpStream) {
    let server = SocketAddr::new(vip(false), port);
    let listener = world.within(A, move || TcpListener::bind(server).expect("it is here"));
    let client = world.within(CLIENT, move || {
        TcpStream::connect(server).expect("it listens")
    });
    let server = listener.accept().expect("just now").0;
    for end in [&client, &server] {
        end.set_read_timeout(Some(Duration::from_secs(5)))
            .expect("a socket");
    }
    (client, server)
}

fn freeze(epoch: u32) -> Request {
    Request::Freeze {
        epoch,
        una_floor: None,
    }
}

fn start(epoch: u32) -> Request {
    Request::Start {
        epoch,
        lease_until_ns: None,
    }
}

fn refused(reply: Reply) -> String {
    match reply {
        Reply::Failed { text, .. } => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_no_request_is_refused() {
    let Some(mut scene) = Scene::new("what_is_no_request_is_refused") else {
        return;
    };
    let whole = encode_request(9, &freeze(1));
    let mut all: Vec<Vec<u8>> = (1..whole.len()).map(|len| whole[..len].to_vec()).collect();
    all.push(vec![0xff; BROKER_DATAGRAM_BYTES_MAX]);
    all.push(vec![b'A'; BROKER_DATAGRAM_BYTES_MAX + 100]);
    for datagram in &all {
        scene.node.client.send(datagram, &[]);
        let (answer, _) = scene.node.client.hear().expect("an answer");
        let (_, reply) = parse_reply(&answer).expect("an answer");
        assert!(refused(reply).contains("this is no request"));
    }
    let own = scene.server.as_fd();
    for sockets in [&[own, own][..], &[own; 8]] {
        scene.node.client.send(&whole, sockets);
        let (answer, _) = scene.node.client.hear().expect("an answer");
        let (id, reply) = parse_reply(&answer).expect("an answer");
        assert_eq!(
            (id, refused(reply).as_str()),
            (9, "more than one descriptor came")
        );
    }
    scene.is_well();
}

#[test]
fn what_is_no_connection_of_the_service_is_refused() {
    let Some(mut scene) = Scene::new("what_is_no_connection_of_the_service_is_refused") else {
        return;
    };
    let file = OwnedFd::from(std::fs::File::open("/dev/null").expect("it is there"));
    let datagrams = OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    let listener = OwnedFd::from(TcpListener::bind("127.0.0.1:0").expect("a socket"));
    for fd in [&file, &datagrams, &listener] {
        refused(scene.ask(&freeze(1), Some(fd.as_fd())));
    }
    // The client's end has another server; its socket is in another namespace, too.
    let far = scene.client.try_clone().expect("a socket");
    let why = refused(scene.ask(&freeze(1), Some(far.as_fd())));
    assert!(why.contains("--vip and --port"), "{why}");
    let (_client, other) = connection(&scene.world, PORT + 1);
    let why = refused(scene.ask(&freeze(1), Some(other.as_fd())));
    assert!(why.contains("--vip and --port"), "{why}");
    assert_eq!(
        refused(scene.ask(&freeze(1), None)),
        "no socket came with this request"
    );
    scene.is_well();
}

#[test]
fn nothing_happens_out_of_order() {
    let Some(mut scene) = Scene::new("nothing_happens_out_of_order") else {
        return;
    };
    assert_eq!(
        refused(scene.ask_here(&Request::Thaw)),
        "this socket is not frozen"
    );
    let away = |epoch, peer| Request::Redirect { epoch, peer };
    assert_eq!(
        refused(scene.ask_here(&away(1, 0))),
        "this socket is not frozen"
    );
    let why = refused(scene.ask_here(&start(1)));
    assert_eq!(why, "this connection was not restored here");
    let connection = scene.frozen(5);
    assert_eq!(
        refused(scene.ask_here(&freeze(6))),
        "this socket is frozen already"
    );
    refused(scene.ask_here(&away(5, 99)));
    refused(scene.ask_here(&away(4, 0)));
    let restore = |epoch, connection: &Connection| Request::Restore {
        epoch,
        connection: Box::new(connection.clone()),
    };
    let early = restore(4, &connection);
    let why = refused(scene.ask(&early, None));
    assert_eq!(why, "a later owner has this connection");
    // Its own socket still has these ends.
    refused(scene.ask(&restore(5, &connection), None));
    assert_eq!(scene.ask_here(&Request::Thaw), Reply::Done);
    scene.is_well();
}

#[test]
fn values_that_cannot_be_are_refused() {
    let Some(mut scene) = Scene::new("values_that_cannot_be_are_refused") else {
        return;
    };
    let connection = scene.frozen(1);
    assert_eq!(scene.ask_here(&Request::Thaw), Reply::Done);
    let wrong: [fn(&mut Connection); 5] = [
        |it| it.tuple.server.set_ip([10, 77, 0, 2].into()),
        |it| it.tuple.server.set_port(81),
        |it| (it.tcp.mss_bytes, it.tuple.client) = (48, "10.77.0.1:9".parse().expect("one")),
        |it| it.tcp.snd_nxt = it.tcp.snd_una.wrapping_add(1 << 29),
        |it| it.tuple.client = "[fd77::1]:9".parse().expect("an address"),
    ];
    for change in wrong {
        let mut connection = Box::new(connection.clone());
        change(&mut connection);
        let request = Request::Restore {
            epoch: 1,
            connection,
        };
        let (reply, socket) = scene.node.client.ask(&request, None);
        refused(reply);
        assert!(socket.is_none());
    }
    scene.is_well();
}

#[test]
fn a_vip_that_has_gone_is_the_reason_told() {
    let Some(mut scene) = Scene::new("a_vip_that_has_gone_is_the_reason_told") else {
        return;
    };
    let mut connection = scene.frozen(1);
    assert_eq!(scene.ask_here(&Request::Thaw), Reply::Done);
    connection.tuple.client = "10.77.0.1:9".parse().expect("an address");
    let request = Request::Restore {
        epoch: 1,
        connection: Box::new(connection),
    };
    let at = |what: &str| {
        format!(
            "-n {} addr {what} {}/32 dev lo",
            scene.world.space(A),
            vip(false)
        )
    };
    let (add, del) = (at("add"), at("del"));
    run(&del);
    let why = refused(scene.ask(&request, None));
    assert!(
        why.starts_with("10.77.9.9 is on no device of this node: "),
        "{why}"
    );
    run(&add);
    assert_eq!(scene.ask(&request, None), Reply::Restored);
    scene.is_well();
}

#[test]
fn a_queue_that_was_not_filled_does_not_start() {
    let Some(mut scene) = Scene::new("a_queue_that_was_not_filled_does_not_start") else {
        return;
    };
    let mut connection = scene.frozen(1);
    assert_eq!(scene.ask_here(&Request::Thaw), Reply::Done);
    connection.tuple.client = "10.77.0.1:9".parse().expect("an address");
    connection.tcp.snd_nxt = connection.tcp.snd_una.wrapping_add(100);
    let request = Request::Restore {
        epoch: 1,
        connection: Box::new(connection),
    };
    let (reply, socket) = scene.node.client.ask(&request, None);
    assert_eq!(reply, Reply::Restored);
    let socket = socket.expect("it comes beside");
    let why = refused(scene.ask(&start(1), Some(socket.as_fd())));
    assert_eq!(why, "the send queue lacks 100 bytes");
    let why = refused(scene.ask(&start(2), Some(socket.as_fd())));
    assert_eq!(why, "this connection was not restored here");
    scene.is_well();
}

#[test]
fn a_server_that_goes_leaves_nothing_behind() {
    let Some(mut scene) = Scene::new("a_server_that_goes_leaves_nothing_behind") else {
        return;
    };
    scene.frozen(1);
    // The next one waits until the first has gone.
    scene.node.client = Client::connect(&scene.node.path).expect("it listens");
    // What it had is forgotten, and the client is asked.
    assert_eq!(scene.ask_here(&Request::Thaw), Reply::Done);
    scene.is_well();
}

/// Thousands of questions whose answers nobody takes.
#[test]
fn a_server_that_does_not_listen_is_shown_out() {
    let Some(mut scene) = Scene::new("a_server_that_does_not_listen_is_shown_out") else {
        return;
    };
    let deaf = std::mem::replace(
        &mut scene.node.client,
        Client::connect(&scene.node.path).expect("it listens"),
    );
    let hello = encode_request(1, &Request::Hello { version: VERSION });
    let mut asked = 0;
    while deaf.try_send(&hello) && asked < 100_000 {
        asked += 1;
    }
    assert!(asked < 100_000);
    scene.is_well();
}

#[test]
fn another_user_may_not_ask() {
    let Some(mut scene) = Scene::new("another_user_may_not_ask") else {
        return;
    };
    let path = scene.node.path.clone();
    let stranger = thread::spawn(move || {
        // Of the group that may connect, as a group has others than the server.
        // SAFETY: no pointers; this thread alone is another user from now on.
        unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        Client::connect(&path).expect("it listens")
    });
    let stranger = stranger.join().expect("no panic");
    // Whoever has come waits until the server has gone.
    scene.node.client = Client::connect(&scene.node.path).expect("it listens");
    assert!(stranger.hear().is_none(), "it is shown out");
    scene.is_well();
}

/// It has two capabilities, and a child would have none.
#[test]
fn the_broker_keeps_two_rights() {
    let Some(scene) = Scene::new("the_broker_keeps_two_rights") else {
        return;
    };
    let status = format!("/proc/{}/status", scene.node.process.0.id());
    let status = std::fs::read_to_string(status).expect("it runs");
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        u64::from_str_radix(line.expect("a line").trim(), 16).expect("a number")
    };
    // CAP_NET_BIND_SERVICE and CAP_NET_ADMIN (linux/capability.h).
    assert_eq!(of("CapEff:"), 1 << 10 | 1 << 12);
    assert_eq!((of("CapPrm:"), of("CapInh:")), (of("CapEff:"), 0));
}

#[test]
fn what_is_away_goes_on_without_a_broker() {
    let Some(mut scene) = Scene::new("what_is_away_goes_on_without_a_broker") else {
        return;
    };
    let connection = scene.frozen(7);
    let redirect = Request::Redirect { epoch: 7, peer: 0 };
    assert!(matches!(
        scene.ask_here(&redirect),
        Reply::Redirected { .. }
    ));
    let pid = Pid::from_child(&scene.node.process.0);
    rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
    assert!(scene.node.process.0.wait().expect("our child").success());
    assert!(!scene.node.path.exists());
    scene.node = Node::start(&scene.world, A);
    let tuple = connection.tuple;
    let earlier = scene.ask(&Request::Fence { tuple, epoch: 6 }, None);
    assert!(matches!(earlier, Reply::Failed { .. }), "{earlier:?}");
    let fence = Request::Fence { tuple, epoch: 7 };
    assert_eq!(scene.ask(&fence, None), Reply::Done, "it is known");
    assert_eq!(scene.ask(&Request::Forget(tuple), None), Reply::Done);
}
