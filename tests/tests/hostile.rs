//! Hostile clients, and clients that behave like them: the others are still served, and nothing stays behind.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use ackpace_tests::{
    Conn, Rng, Server, Setup, Tree, eventually, limit_receive_buffer, pattern, raise_own_limit,
    reset_on_drop, skip,
};

const FILE: &str = "GET /a HTTP/1.1\r\nHost: t\r\n\r\n";

#[test]
fn fifteen_hundred_slow_clients_hold_up_nobody() {
    const SLOW: usize = 1500;
    if raise_own_limit() < SLOW as u64 + 100 {
        return skip("it needs 1,600 descriptors (ulimit -Hn)");
    }
    let tree = Tree::new();
    tree.file("a", "a");
    let content = pattern(50 << 20, 5);
    tree.file("big", &content);
    let server = Server::start(&tree, "--header-timeout 10min");
    let mut slow: Vec<Conn> = (0..SLOW).map(|_| server.connect()).collect();
    for (nth, conn) in slow.iter_mut().enumerate() {
        conn.send(match nth % 3 {
            0 => "G",
            1 => "GET /a HTTP/1.1\r\nHost: t\r\nX-Slow: ",
            _ => "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 1000\r\n\r\nslow",
        });
    }
    eventually("all slow clients are accepted", || {
        server.descriptors() > SLOW
    });
    let mut download = server.begin("/big", "");
    let head = download.head();
    let mut body = Vec::new();
    while body.len() < content.len() {
        let piece = download.exactly((content.len() - body.len()).min(5 << 20));
        body.extend(piece);
        // Each slow client sends a little more, and new clients are served in between.
        for conn in slow.iter_mut().step_by(10) {
            conn.send("x");
        }
        assert_eq!(server.ask(FILE).text(), "a");
    }
    assert_eq!(head.status, 200);
    assert!(body == content, "other bytes");
    assert!(
        server.descriptors() > SLOW,
        "the slow ones were there all the time"
    );
    drop(slow);
    eventually("the slow clients are forgotten", || {
        server.descriptors() < SLOW
    });
}

#[test]
fn a_client_that_sends_fin_and_reads_nothing_counts_until_its_answer_has_arrived() {
    const CLIENTS: usize = 20;
    let tree = Tree::new();
    tree.file("a", pattern(1 << 20, 3));
    let args = "--pause-timeout 2s --send-timeout 2s";
    let server = Server::start(&tree, args);
    let before = server.descriptors();
    let clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.connect().stream;
            limit_receive_buffer(&client, 4096);
            client.write_all(FILE.as_bytes()).expect("a request");
            client
                .shutdown(std::net::Shutdown::Write)
                .expect("a half-closed client");
            client
        })
        .collect();
    eventually("their sockets are the server's", || {
        server.descriptors() >= before + CLIENTS
    });
    eventually("a limit ends them all", || {
        server.descriptors() <= before + 2
    });
    for mut client in clients {
        let mut all = Vec::new();
        let end = client.read_to_end(&mut all);
        let kind = end.expect_err("it was cut off").kind();
        assert_eq!(kind, ErrorKind::ConnectionReset);
    }
}

#[test]
fn at_the_limit_each_listener_has_its_turn() {
    let tree = Tree::new();
    tree.file("a", "a");
    let (first, second) = (tree.at("first.sock"), tree.at("second.sock"));
    let at = |path: &std::path::Path| format!("unix:{}", path.display());
    let _server = Setup::new(tree.path())
        .listen(at(&first))
        .args(&[
            "--listen",
            &at(&second),
            "--workers",
            "1",
            "--connections-max",
            "1",
        ])
        .start();
    let ask = |path: &std::path::Path| {
        let mut client = UnixStream::connect(path).expect("the backlog has room");
        client
            .write_all(b"GET /a HTTP/1.0\r\n\r\n")
            .expect("a request");
        client
    };
    // Clients of the first one stand in line all the time: none goes before the next has come.
    let mut others = VecDeque::from([ask(&first), ask(&first)]);
    let answer_of = |mut client: UnixStream| {
        let mut text = String::new();
        client.read_to_string(&mut text).expect("an answer");
        assert!(text.ends_with('a'), "{text}");
    };
    let waits = ask(&second);
    let served = std::thread::spawn(move || answer_of(waits));
    for _ in 0..4 {
        others.push_back(ask(&first));
        answer_of(others.pop_front().expect("three"));
    }
    eventually("the client of the second one is served", || {
        served.is_finished()
    });
    served.join().expect("its answer");
}

#[test]
fn heads_and_bodies_that_only_drip_are_given_up() {
    const SLOW: usize = 200;
    raise_own_limit();
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--header-timeout 1s");
    let before = server.descriptors();
    let mut slow: Vec<Dripping> = (0..SLOW).map(|nth| Dripping::new(&server, nth)).collect();
    // All but the silent ones keep sending, a byte at a time, until the server closes. None of them closes.
    eventually("the slow clients are told that it is over", || {
        slow.iter_mut()
            .map(Dripping::over)
            .filter(|over| !over)
            .count()
            == 0
    });
    eventually("their descriptors are free", || {
        server.descriptors() <= before
    });
    for (nth, slow) in slow.iter().enumerate() {
        let answer = String::from_utf8_lossy(&slow.answer);
        let expected = if nth % 4 < 2 {
            "HTTP/1.1 408"
        } else {
            "HTTP/1.1 405"
        };
        let silent = nth % 4 < 2 && answer.is_empty();
        assert!(silent || answer.starts_with(expected), "{nth}: {answer:?}");
    }
    assert_eq!(server.ask(FILE).text(), "a");
}

/// A client that endlessly sends a request byte by byte.
struct Dripping {
    conn: Conn,
    next: &'static str,
    answer: Vec<u8>,
    over: bool,
}

impl Dripping {
    fn new(server: &Server, nth: usize) -> Dripping {
        let (start, next) = [
            ("", ""),
            ("GET /a HTTP/1.1\r\n", "X"),
            (
                "POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n\r\n",
                "x",
            ),
            (
                "POST /a HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n",
                "x",
            ),
        ][nth % 4];
        let mut conn = server.connect();
        conn.send(start)
            .stream
            .set_nonblocking(true)
            .expect("a socket");
        Dripping {
            conn,
            next,
            answer: Vec::new(),
            over: false,
        }
    }

    /// Sends a byte, unless the server has closed; returns whether it has.
    fn over(&mut self) -> bool {
        let mut piece = [0; 4096];
        while !self.over {
            match self.conn.stream.read(&mut piece) {
                Ok(0) => self.over = true,
                Ok(read) => self.answer.extend_from_slice(&piece[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.over = true,
            }
        }
        if !self.over {
            let _ = self.conn.try_send(self.next);
        }
        self.over
    }
}

#[test]
fn idle_connections_are_closed_in_order() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--idle-timeout 1s");
    let mut conn = server.connect();
    assert_eq!(conn.get("/a", "").text(), "a");
    conn.ends();
}

#[test]
fn a_storm_of_resets_leaves_neither_descriptors_nor_memory() {
    const SEED: u64 = 6;
    println!("seed {SEED}");
    raise_own_limit();
    let tree = Tree::new();
    tree.file("a", "a");
    tree.file("big", pattern(8 << 20, SEED));
    tree.dir("many");
    for nth in 0..500 {
        std::fs::write(tree.at(format!("many/{nth}")), "").expect("a file");
    }
    let server = Server::start(&tree, "");
    let mut rng = Rng::new(SEED);
    // A disk's threads, with their descriptors, start with the first cold file and stay.
    assert_eq!(server.get("/a", "").status, 200);
    let descriptors = server.descriptors();
    storm(&server, &mut rng, 200); // fills pools and caches
    let memory_bytes = settled(&server, descriptors);
    storm(&server, &mut rng, 2000);
    let memory_bytes_after = settled(&server, descriptors);
    let grown_bytes = memory_bytes_after.saturating_sub(memory_bytes);
    assert!(
        grown_bytes < 8 << 20,
        "memory grew by {grown_bytes} bytes from {memory_bytes}"
    );
    assert_eq!(server.ask(FILE).text(), "a");
}

/// The server's memory once no more than these descriptors are left.
fn settled(server: &Server, descriptors: usize) -> u64 {
    eventually("all connections are gone", || {
        server.descriptors() <= descriptors
    });
    server.memory_bytes()
}

fn storm(server: &Server, rng: &mut Rng, count: usize) {
    let mut open: Vec<TcpStream> = Vec::new();
    for _ in 0..count {
        let mut conn = server.connect();
        reset_on_drop(&conn.stream);
        let request: &[u8] = [
            &b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n"[..],
            b"GET /many/ HTTP/1.1\r\nHost: t\r\n\r\n",
            b"GET /a HTTP/1.1\r\nHost: t\r\n\r\nGET /big HTTP/1.1\r\nHost: t\r\n\r\n",
            b"POST /a HTTP/1.1\r\nHost: t\r\nContent-Length: 9\r\n\r\n",
        ][rng.below(4)];
        let cut = rng.below(2 * request.len()).min(request.len());
        conn.send(&request[..cut]);
        if cut == request.len() && rng.below(2) == 0 {
            conn.exactly(rng.below(16));
        }
        // Some clients leave at once, some after others have come.
        open.push(conn.stream);
        if open.len() > 50 {
            open.swap_remove(rng.below(50));
        }
    }
}

#[test]
fn a_server_that_ran_out_of_descriptors_recovers() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Setup::new(tree.path())
        .args("--workers 1")
        .descriptors_max(64)
        .start();
    server.out_line(&["lost: descriptors: 64 are allowed", "LimitNOFILE="]);
    assert_eq!(server.ask(FILE).text(), "a");
    let before = server.descriptors();
    let mut crowd: Vec<Conn> = (0..200).map(|_| server.connect()).collect();
    for conn in &mut crowd {
        conn.send("GET /a HT");
    }
    eventually("the server holds what it can", || {
        server.descriptors() >= 60.max(before)
    });
    server.err_line(&["WARN", "accept: ", "LimitNOFILE"]);
    drop(crowd);
    eventually("the descriptors are back", || {
        server.descriptors() <= before
    });
    for _ in 0..100 {
        assert_eq!(server.ask(FILE).text(), "a");
    }
}

/// A client that was served, and has begun its next request.
fn busy(server: &Server) -> Conn {
    let mut conn = server.connect();
    let first = "OPTIONS * HTTP/1.1\r\nHost: t\r\n\r\nOPTIONS * HTTP/1.1\r\n";
    assert_eq!(conn.send(first).response().status, 204);
    conn
}

#[test]
fn a_client_that_comes_to_a_full_worker_gets_the_last_place_of_another_one() {
    let tree = Tree::new();
    let server = Server::start(&tree, "--workers 2 --connections-max 8");
    let mut places: VecDeque<Conn> = (0..16).map(|_| busy(&server)).collect();
    // Each time one place of one worker is free, and the kernel gives the client to either worker.
    for _ in 0..30 {
        drop(places.pop_front());
        places.push_back(busy(&server));
    }
}

#[test]
fn a_client_beyond_connections_max_waits_until_one_is_idle_or_leaves() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--workers 1 --connections-max 16");
    // A disk's threads, with their descriptors, start with the first cold file and stay.
    assert_eq!(server.get("/a", "").status, 200);
    let before = server.descriptors();
    let mut places: Vec<Conn> = (0..16).map(|_| busy(&server)).collect();
    server.err_line(&["WARN", "no worker has a place left", "connections_max"]);
    let mut waiting = server.connect();
    waiting.send(FILE);
    let mut served = places.pop().expect("sixteen");
    assert_eq!(served.send("Host: t\r\n\r\n").response().status, 204);
    assert_eq!(served.get("/a", "").text(), "a", "it is served on");
    drop(served);
    assert_eq!(waiting.response().text(), "a", "one has left");
    // Its own connection is idle now, and makes room for the next one.
    assert_eq!(server.ask(FILE).text(), "a", "one was idle");
    waiting.ends();
    for conn in &mut places {
        let end = conn.send("Host: t\r\n\r\n").response();
        assert_eq!(end.status, 204, "none of them was idle");
    }
    drop((places, waiting));
    eventually("all have left", || server.descriptors() <= before);
}

#[test]
fn an_address_has_its_connections_and_no_more() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--workers 3 --connections-per-address 4");
    let mut allowed: Vec<Conn> = (0..4).map(|_| server.connect()).collect();
    for conn in &mut allowed {
        assert_eq!(conn.get("/a", "").text(), "a");
    }
    let mut fifth = server.connect();
    let response = fifth.get("/a", "");
    assert_eq!(
        (response.status, response.field("Connection")),
        (503, Some("close"))
    );
    fifth.ends();
    for conn in &mut allowed {
        assert_eq!(conn.get("/a", "").text(), "a");
    }
    drop(allowed.pop());
    drop(fifth);
    eventually("the next one is served again", || {
        server.ask(FILE).status == 200
    });
}

/// A pause may be longer than a silence; the log tells which of them ended the connection.
const PAUSES: &str = "--send-timeout 1s --pause-timeout 4s --access-log - --access-log-format json";

#[test]
fn a_paused_client_is_not_dead_until_the_pause_is_over() {
    let tree = Tree::new();
    let content = pattern(32 << 20, 7);
    tree.file("big", &content);
    let server = Server::start(&tree, PAUSES);
    let mut paused = server.connect();
    limit_receive_buffer(&paused.stream, 64 << 10);
    paused.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    let line = server.out_line(&["\"target\":\"/big\""]);
    assert!(line.contains("\"why\":\"pause_timeout\""), "{line}");
    let (_, rest) = line.split_once("\"duration_ms\":").expect("the duration");
    let duration_ms: f64 = rest
        .split(',')
        .next()
        .and_then(|ms| ms.parse().ok())
        .expect("a number");
    assert!(duration_ms >= 4000.0, "{line}");
    assert!(paused.rest_or_reset().len() < content.len());
}

#[test]
fn a_client_of_a_unix_socket_may_pause_as_long_as_any_other() {
    let tree = Tree::new();
    tree.file("big", pattern(4 << 20, 7));
    let home = Tree::new();
    let socket = home.at("http.sock");
    let listen = format!("unix:{}", socket.display());
    let server = Setup::new(tree.path()).listen(&listen).args(PAUSES).start();
    let mut paused = UnixStream::connect(&socket).expect("the server listens");
    let sent = paused.write_all(b"GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
    sent.expect("a new connection takes a request");
    let line = server.out_line(&["\"target\":\"/big\""]);
    assert!(line.contains("\"why\":\"pause_timeout\""), "{line}");
    let mut got = Vec::new();
    let _ = paused.read_to_end(&mut got); // the end, or a reset
    assert!(got.len() < 4 << 20);
}

#[test]
fn requests_that_come_without_end_are_all_answered_while_others_are_served() {
    let tree = Tree::new();
    tree.file("a", "a");
    let server = Server::start(&tree, "--workers 1");
    let mut greedy = server.connect();
    let mut reader = Conn::open(server.address());
    greedy.send(FILE.repeat(2000));
    for _ in 0..20 {
        assert_eq!(reader.get("/a", "").text(), "a");
    }
    for nth in 0..2000 {
        assert_eq!(greedy.response().text(), "a", "answer {nth}");
    }
}
