//! Instruments of a running server: metrics, readiness, `ackpace top` and `ackpace why`, also with hostile clients.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ackpace_tests::{
    Conn, Outcome, PATIENCE, Response, Server, Setup, Tree, cached_bytes, client, command,
    eventually, forget_cached, limit_receive_buffer, pattern, raise_own_limit, rested, run,
    server_binary, skip,
};

const LEN: usize = 32 << 20;

/// A server with metrics and an admin socket.
struct Watched {
    tree: Tree,
    server: Server,
    metrics: SocketAddr,
    admin: PathBuf,
}

impl Watched {
    fn start(args: &[&str]) -> Watched {
        let tree = Tree::new();
        tree.file("site/big", pattern(LEN, 3));
        rested(&tree.file("site/a", "0123456789"));
        let admin = tree.at("admin.sock");
        let path = admin.to_str().expect("UTF-8").to_owned();
        let watching = ["--metrics", "0", "--admin", &path];
        let server = Setup::new(tree.at("site"))
            .args(&watching)
            .args(args)
            .start();
        let line = server.out_line(&["metrics at http://"]);
        let url = line.trim_end().trim_start_matches("metrics at http://");
        let address = url.trim_end_matches("/metrics").parse();
        Watched {
            tree,
            server,
            metrics: address.expect("an address"),
            admin,
        }
    }

    fn scrape(&self, path: &str, fields: &str) -> Response {
        Conn::open(self.metrics).get(path, fields)
    }

    /// The sum of all samples of this name with these labels.
    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        sum(&self.scrape("/metrics", "").text(), name, labels)
    }

    fn ackpace(&self, args: &[&str]) -> Outcome {
        let mut command = command(server_binary());
        command
            .arg(args[0])
            .arg("--admin")
            .arg(&self.admin)
            .args(&args[1..]);
        run(&mut command)
    }

    /// A download of `/big` whose client has stopped reading after the head.
    fn stalled(&self) -> Conn {
        let mut conn = self.server.connect();
        limit_receive_buffer(&conn.stream, 64 << 10);
        conn.send("GET /big HTTP/1.1\r\nHost: t\r\n\r\n");
        assert_eq!(conn.head().status, 200);
        conn
    }
}

fn sum(page: &str, name: &str, labels: &[&str]) -> f64 {
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

#[test]
fn metrics_show_the_bytes_of_a_download_while_it_runs_and_after() {
    let watched = Watched::start(&["--workers", "2"]);
    let mut conn = watched.stalled();
    eventually("a response under way that waits for its client", || {
        let page = watched.scrape("/metrics", "").text();
        let net = ["margin", "window", "socket"].map(|why| {
            let why = format!("why=\"{why}\"");
            sum(&page, "ackpace_waiting_responses", &[&why])
        });
        let sent = sum(
            &page,
            "ackpace_sent_bytes_total",
            &["send_path=\"sendfile\""],
        );
        let waiting = sum(&page, "ackpace_waiting_bytes", &[]);
        // Bytes that the kernel does not have yet are waiting.
        net.iter().sum::<f64>() == 1.0 && sent > 0.0 && sent + waiting == LEN as f64
    });
    assert_eq!(
        watched.sum("ackpace_connections", &["phase=\"sending\""]),
        1.0
    );
    assert_eq!(conn.exactly(LEN).len(), LEN);
    let made = watched.sum("ackpace_sent_bytes_total", &["send_path=\"made\""]);
    assert_eq!(
        watched.sum("ackpace_sent_bytes_total", &["send_path=\"sendfile\""]),
        LEN as f64
    );
    assert!((100.0..1000.0).contains(&made), "one head: {made}");
    for _ in 0..4 {
        assert_eq!(conn.get("/a", "").text(), "0123456789");
    }
    assert_eq!(conn.get("/missing", "").status, 404);
    let page = watched.scrape("/metrics", "").text();
    assert_eq!(sum(&page, "ackpace_requests_total", &["2xx"]), 5.0);
    assert_eq!(sum(&page, "ackpace_requests_total", &["4xx"]), 1.0);
    assert!(
        sum(&page, "ackpace_response_cache_hits_total", &[]) >= 1.0,
        "{page}"
    );
    assert!(sum(&page, "ackpace_sent_bytes_total", &["response_cache"]) > 10.0);
    assert!(sum(&page, "ackpace_waited_seconds_total", &[]) > 0.0);
    assert!(sum(&page, "ackpace_topups_total", &["writable"]) >= 1.0);
    assert!(sum(&page, "ackpace_full_sends_total", &[]) >= 1.0);
    assert!(sum(&page, "ackpace_cpu_seconds_total", &[]) > 0.0);
    assert!(sum(&page, "ackpace_thread_switches_total", &["\"voluntary\""]) > 0.0);
    assert_eq!(sum(&page, "ackpace_accepted_connections_total", &[]), 1.0);
    assert_eq!(sum(&page, "ackpace_open_connections", &[]), 1.0);
    let turns = sum(&page, "ackpace_turn_seconds_count", &[]);
    assert!(turns > 0.0 && turns == sum(&page, "ackpace_turn_seconds_bucket", &["+Inf"]));
    conn.finish().ends();
    eventually("the end of the connection is counted", || {
        watched.sum("ackpace_closed_connections_total", &["peer_closed"]) == 1.0
            && watched.sum("ackpace_connections", &[]) == 0.0
    });
    watched.server.stop();
}

#[test]
fn the_page_is_good_for_prometheus_own_parser_in_both_formats() {
    let Some(mut python) = client("python3") else {
        return;
    };
    if !run(python.args(["-c", "import prometheus_client"])).success {
        return skip("python3 lacks a module (apt-get install python3-prometheus-client)");
    }
    let watched = Watched::start(&["--access-log", "-"]);
    assert_eq!(watched.server.get("/a", "").status, 200);
    let read = "import sys\n\
        from prometheus_client.openmetrics.parser import text_string_to_metric_families as new\n\
        from prometheus_client.parser import text_string_to_metric_families as old\n\
        families = list({'new': new, 'old': old}[sys.argv[1]](open(sys.argv[2]).read()))\n\
        for family in families:\n\
        \x20   assert family.documentation and family.type != 'unknown', family\n\
        \x20   assert sys.argv[1] == 'old' or family.unit or family.type == 'info', family\n\
        print(len(families), sum(len(family.samples) for family in families))\n";
    let open = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4\r\n";
    for (format, accept, media) in [
        (
            "new",
            open,
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
        ("old", "", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let response = watched.scrape("/metrics", accept);
        assert_eq!(
            (response.status, response.field("Content-Type")),
            (200, Some(media))
        );
        let page = watched.tree.file("page", response.body);
        let Some(mut python) = client("python3") else {
            return;
        };
        let outcome = run(python.args(["-c", read, format]).arg(page));
        assert!(outcome.success, "{format}: {}", outcome.err);
        let families: usize = outcome
            .out
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("a number");
        assert!(families >= 35, "{}", outcome.out);
    }
    watched.server.stop();
}

#[test]
fn a_small_file_is_ready_for_who_opens_a_connection_for_each_request() {
    let watched = Watched::start(&["--workers", "1"]);
    eventually("the third within a second of the second", || {
        let hits = watched.sum("ackpace_response_cache_hits_total", &[]);
        for _ in 0..3 {
            let mut conn = watched.server.connect();
            let response = conn.get("/a", "Connection: close\r\n");
            assert_eq!(response.text(), "0123456789");
            conn.ends();
        }
        watched.sum("ackpace_response_cache_hits_total", &[]) > hits
    });
}

#[test]
fn a_server_is_ready_until_it_drains_and_alive_until_it_ends() {
    let mut watched = Watched::start(&["--drain-timeout", "10min"]);
    let mut conn = watched.stalled();
    assert_eq!(watched.scrape("/readyz", "").text(), "ready\n");
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    watched.server.signal(libc_sigterm());
    eventually("it is not ready", || {
        let response = watched.scrape("/readyz", "");
        (response.status, response.text()) == (503, "draining\n".into())
    });
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    assert_eq!(watched.sum("ackpace_draining_servers", &[]), 1.0);
    let top = watched.ackpace(&["top", "--once", "--json"]);
    assert!(top.out.contains("\"draining\":true"), "{}", top.out);
    assert_eq!(conn.exactly(LEN).len(), LEN);
    drop(conn);
    assert_eq!(watched.server.wait().code(), Some(0));
    assert!(
        !watched.admin.exists(),
        "the socket is gone with its server"
    );
    let top = watched.ackpace(&["top", "--once"]);
    assert_eq!(top.code, Some(1));
    assert!(top.err.contains("is a server running"), "{}", top.err);
}

#[test]
fn a_root_that_is_removed_is_not_ready_answers_503_and_is_told_once() {
    let watched = Watched::start(&["--workers", "2"]);
    assert_eq!(watched.server.get("/a", "").status, 200);
    assert_eq!(watched.server.get("/", "").status, 200);
    std::fs::remove_dir_all(watched.tree.at("site")).expect("our own tree");
    let removed = (503, "the directory that is served was removed\n".into());
    eventually("it is not ready", || {
        let response = watched.scrape("/readyz", "");
        (response.status, response.text()) == removed
    });
    eventually("/a is no longer in the response cache", || {
        watched.server.get("/a", "").status == 503
    });
    for target in ["/", "/a", "/missing", "/?json", "/"] {
        assert_eq!(watched.server.get(target, "").status, 503, "{target}");
    }
    watched.tree.file("site/a", "of another directory");
    assert_eq!(watched.server.get("/a", "").status, 503);
    assert_eq!(watched.scrape("/readyz", "").status, 503);
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    watched
        .server
        .err_line(&["ERROR", "/site: the directory was removed", "restart"]);
    let told = watched.server.err();
    assert_eq!(told.matches("was removed").count(), 1, "{told}");
    watched.server.stop();
}

fn libc_sigterm() -> i32 {
    15
}

#[test]
fn why_of_a_stalled_client_names_its_closed_window() {
    let watched = Watched::start(&["--workers", "2"]);
    let conn = watched.stalled();
    let peer = conn.stream.local_addr().expect("an address").to_string();
    let mut told = String::new();
    eventually("the window is closed", || {
        let why = watched.ackpace(&["why", &peer]);
        assert!(why.success, "{}", why.err);
        told = why.out;
        told.contains("its client's window is closed (0 B)")
    });
    for part in [
        &format!("{peer} (connection ")[..],
        "gets /", // the file
        "it waits for its client, which does not read: its receive window is closed or full, for ",
        "wait unsent in the socket",
        "The last decisions:\n",
        " ago: given ",
        " since its response had begun",
    ] {
        assert!(told.contains(part), "no {part:?} in\n{told}");
    }
    // By its name, too.
    let id = told
        .split("(connection ")
        .nth(1)
        .and_then(|rest| rest.split(')').next());
    let why = watched.ackpace(&["why", "--json", id.expect("a name")]);
    assert!(
        why.out.contains("\"wait\":\"window\"") && why.out.contains("\"window_bytes\":0"),
        "{}",
        why.out
    );
    drop(conn);
    eventually("the client is gone", || {
        let why = watched.ackpace(&["why", &peer]);
        why.code == Some(1) && why.err.contains("there is no such connection now")
    });
    let wrong = watched.ackpace(&["why", "nobody"]);
    assert_eq!(wrong.code, Some(1), "{}", wrong.err);
    let text = "nobody is no connection and no device; the devices are 0 (";
    assert!(wrong.err.contains(text), "{}", wrong.err);
    let neither = watched.ackpace(&["why", "1.2"]);
    assert_eq!(neither.code, Some(2), "{}", neither.err);
    watched.server.stop();
}

#[test]
fn why_of_a_cold_download_tells_why_its_reads_were_made() {
    let watched = Watched::start(&[]);
    let file = std::fs::File::open(watched.tree.at("site/big")).expect("a file");
    forget_cached(&file);
    if cached_bytes(&file) > 0 {
        skip("the files of tests are where the page cache can't be emptied");
        return watched.server.stop();
    }
    let conn = watched.stalled();
    let peer = conn.stream.local_addr().expect("an address").to_string();
    let mut told = String::new();
    eventually("a read is explained", || {
        told = watched.ackpace(&["why", &peer]).out;
        told.contains(" ago: read ")
    });
    let first = "before all who have something, since it had nothing yet; so long since its rate is not known yet";
    assert!(told.contains(first), "{told}");
    // The device that the file was read from explains itself, too.
    let device = watched.ackpace(&["why", "0"]);
    assert!(device.success, "{}", device.err);
    for part in [
        "device 0 (",
        ") is read from by 1 stream, ",
        "\nT_D is ",
        " reads at once (K), since ",
        " for reading ahead are in use",
    ] {
        assert!(device.out.contains(part), "no {part:?} in\n{}", device.out);
    }
    let json = watched.ackpace(&["why", "--json", "0"]).out;
    assert!(json.contains("\"device\":{\"device\":0,"), "{json}");
    drop(conn);
    watched.server.stop();
}

#[test]
fn the_numbers_of_top_add_up() {
    let Some(mut python) = client("python3") else {
        return;
    };
    let watched = Watched::start(&["--workers", "2"]);
    let conns: Vec<Conn> = (0..12).map(|_| watched.stalled()).collect();
    let idle = watched.server.connect();
    let mut json = String::new();
    eventually("all are under way", || {
        let top = watched.ackpace(&["top", "--once", "--json", "-n", "200"]);
        assert!(top.success, "{}", top.err);
        json = top.out;
        json.matches("\"phase\":\"sending\"").count() == conns.len()
            && json.matches("\"connections\":").count() == 3
    });
    let check = "import json, sys\n\
        top = json.loads(sys.argv[1]); workers, conns = top['workers'], top['connections']\n\
        assert top['version'] == 1 and top['left_out'] == 0 and top['silent_workers'] == []\n\
        assert [row['worker'] for row in workers] == [0, 1]\n\
        assert sum(row['sending'] for row in workers) == len(conns) == 12\n\
        assert sum(row['rate_bytes_per_s'] for row in workers) == sum(c['rate_bytes_per_s'] for c in conns)\n\
        heads = set()\n\
        for c in conns:\n\
        \x20   response = c['response']\n\
        \x20   heads.add(response['sent_bytes'] + response['left_bytes'] - (32 << 20))\n\
        \x20   assert c['object'].endswith('/big') and c['unsent_bytes'] > 0 and c['rtt_us'] > 0, c\n\
        \x20   assert c['unsent_bytes'] + c['in_flight_bytes'] <= response['sent_bytes'], c\n\
        \x20   assert response['waited_disk_us'] + response['waited_net_us'] <= response['took_us'], c\n\
        assert len(heads) == 1 and 100 < heads.pop() < 1000\n\
        assert sum(row['sent_bytes'] for row in workers) == sum(c['response']['sent_bytes'] for c in conns)\n";
    let outcome = run(python.args(["-c", check, json.trim_end()]));
    assert!(outcome.success, "{}\n{json}", outcome.err);
    let few = watched.ackpace(&["top", "--once", "-n", "5"]);
    assert!(few.out.contains("\nand 7 more\n"), "{}", few.out);
    assert!(
        few.out.contains("window") && few.out.contains("/big"),
        "{}",
        few.out
    );
    drop((conns, idle));
    watched.server.stop();
}

#[test]
fn the_one_server_is_found_without_options() {
    let tree = Tree::new();
    tree.file("site/a", "a");
    let home = tree.dir("runtime");
    let set = |command: &mut std::process::Command| {
        command
            .env("XDG_RUNTIME_DIR", &home)
            .env_remove("RUNTIME_DIRECTORY");
        command.env_remove("ACKPACE_ADMIN");
    };
    let start = || {
        let mut server = command(server_binary());
        set(&mut server);
        server
            .args(["--listen", "127.0.0.1:0"])
            .arg(tree.at("site"));
        server.stdout(std::process::Stdio::piped());
        let mut server = server.spawn().expect("the server starts");
        let mut line = String::new();
        let out = server.stdout.as_mut().expect("its output");
        BufReader::new(out)
            .read_line(&mut line)
            .expect("its greeting");
        server
    };
    let top = |args: &[&str]| {
        let mut top = command(server_binary());
        set(&mut top);
        run(top.args(["top", "--once"]).args(args))
    };
    let sockets = || std::fs::read_dir(home.join("ackpace")).map_or(0, Iterator::count);
    let mut first = start();
    let path = home.join(format!("ackpace/{}.sock", first.id()));
    let mode = |path: &Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!((mode(&path), mode(&home.join("ackpace"))), (0o600, 0o700));
    let path = path.to_str().expect("UTF-8");
    assert!(top(&["--admin", path]).success);
    // Another server of this machine may be in a place where root looks, too.
    let alone = top(&[]);
    if alone.success {
        assert!(
            alone.out.contains(&format!("(process {})", first.id())),
            "{}",
            alone.out
        );
    }
    let mut second = start();
    let two = top(&[]);
    assert_eq!(two.code, Some(1), "{}", two.out);
    assert!(
        two.err.contains("several servers run here") && two.err.contains(path),
        "{}",
        two.err
    );
    first
        .kill()
        .and_then(|()| first.wait())
        .expect("our own child");
    assert_eq!(sockets(), 2, "a killed server leaves its socket");
    let mut third = start();
    assert_eq!(sockets(), 2, "the next one removes it");
    for server in [&mut second, &mut third] {
        server
            .kill()
            .and_then(|()| server.wait())
            .expect("our own child");
    }
}

#[test]
fn a_thousand_silent_clients_at_the_metrics_port_keep_nobody_out() {
    if raise_own_limit() < 1200 {
        return skip("it needs 1,200 descriptors (ulimit -Hn)");
    }
    let watched = Watched::start(&[]);
    let before = watched.server.descriptors();
    let mut silent = Vec::new();
    for nth in 0..1000 {
        let mut conn = TcpStream::connect(watched.metrics).expect("the port takes it");
        match nth % 3 {
            0 => {}
            1 => drop(conn.write_all(b"GET /metrics HTTP/1.1\r\nHost: ")),
            _ => drop(conn.write_all(b"\x16\x03\x01\x00\xff")),
        }
        silent.push(conn);
        if nth % 100 == 0 {
            assert_eq!(watched.scrape("/healthz", "").status, 200, "after {nth}");
        }
    }
    assert_eq!(watched.scrape("/metrics", "").status, 200);
    assert_eq!(watched.server.get("/a", "").status, 200);
    let held = watched.server.descriptors();
    assert!(held <= before + 40, "{held} descriptors, {before} before");
    drop(silent);
    eventually("they are forgotten", || {
        watched.server.descriptors() <= before + 1
    });
    watched.server.stop();
}

#[test]
fn garbage_at_the_metrics_port_gets_an_answer_and_an_end() {
    let watched = Watched::start(&[]);
    for (request, status) in [
        ("\r\n\r\nnonsense\r\n\r\n", 400),
        ("GET /metrics HTTP/9.9\r\nHost: t\r\n\r\n", 505),
        (
            "POST /metrics HTTP/1.1\r\nHost: t\r\nContent-Length: 3\r\n\r\nabc",
            405,
        ),
        ("GET /etc/passwd HTTP/1.1\r\nHost: t\r\n\r\n", 404),
        (
            "GET /metrics HTTP/1.1\r\nHost: t\r\n\r\nGET / HTTP/1.1\r\nHost: t\r\n\r\n",
            200,
        ),
    ] {
        let mut conn = Conn::open(watched.metrics);
        let response = conn.send(request).response();
        assert_eq!(response.status, status, "{request:?}");
        assert_eq!(response.field("Connection"), Some("close"));
        conn.ends();
    }
    let mut long = Conn::open(watched.metrics);
    let head = format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(5000));
    assert_eq!(long.send(head).response().status, 431);
    let mut head = Conn::open(watched.metrics);
    head.send("HEAD /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(head.head().status, 200);
    head.ends();
    // Clients that do not read their responses hold up nobody.
    let deaf: Vec<Conn> = (0..100).map(|_| Conn::open(watched.metrics)).collect();
    for conn in &deaf {
        limit_receive_buffer(&conn.stream, 2048);
        let _ = (&conn.stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    watched.server.stop();
}

#[test]
fn the_admin_socket_survives_garbage_silence_and_a_thousand_clients() {
    if raise_own_limit() < 1200 {
        return skip("it needs 1,200 descriptors (ulimit -Hn)");
    }
    let watched = Watched::start(&[]);
    let before = watched.server.descriptors();
    let connect = || {
        let stream = UnixStream::connect(&watched.admin)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        std::io::Result::Ok(BufReader::new(stream))
    };
    let line = |conn: &mut BufReader<UnixStream>| {
        let mut line = String::new();
        conn.read_line(&mut line).expect("an answer in time");
        line
    };
    let mut conn = connect().expect("a socket");
    for request in [
        "\n",
        "ackpace/2 top\n",
        "\u{0}\u{ff}\n",
        "ackpace/1 why x\n",
        "GET / HTTP/1.1\r\n",
    ] {
        conn.get_mut()
            .write_all(request.as_bytes())
            .expect("the server takes it");
        let answer = line(&mut conn);
        assert!(
            answer.starts_with("{\"version\":1,\"error\":\""),
            "{request:?}: {answer}"
        );
    }
    // Several requests at once are answered one by one.
    conn.get_mut()
        .write_all(b"ackpace/1 top 1\nackpace/1 top\nackp")
        .expect("the server takes it");
    assert!(line(&mut conn).contains("\"workers\":[{"));
    assert!(line(&mut conn).contains("\"workers\":[{"));
    conn.get_mut()
        .write_all(b"ace/1 top\n")
        .expect("the server takes it");
    assert!(line(&mut conn).contains("\"workers\":[{"));
    let mut long = connect().expect("a socket");
    long.get_mut()
        .write_all(&[b'x'; 600])
        .expect("the server takes it");
    assert!(line(&mut long).contains("too long"));
    let mut rest = Vec::new();
    long.read_to_end(&mut rest).expect("an orderly end");
    assert!(rest.is_empty());
    let silent: Vec<_> = (0..1000)
        .filter_map(|_| match connect() {
            Ok(conn) => Some(conn),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        })
        .collect();
    let top = watched.ackpace(&["top", "--once"]);
    assert!(top.success, "{}", top.err);
    let held = watched.server.descriptors();
    assert!(held <= before + 40, "{held} descriptors, {before} before");
    assert_eq!(watched.server.get("/a", "").status, 200);
    drop(silent);
    watched.server.stop();
}
