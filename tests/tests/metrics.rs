//! The metrics port of a running server: metrics and readiness, also with hostile clients.

use std::io::Write;
use std::net::TcpStream;

use ackpace_tests::{
    Conn, Watched, client, eventually, limit_receive_buffer, metric, raise_own_limit, run, skip,
};

#[test]
fn metrics_show_the_bytes_of_a_download_while_it_runs_and_after() {
    let watched = Watched::start("--workers 2");
    let mut conn = watched.stalled("/big", "");
    eventually("a response under way that waits for its client", || {
        let page = watched.scrape("/metrics", "").text();
        let net = ["margin", "window", "socket"].map(|why| {
            let why = format!("why=\"{why}\"");
            metric(&page, "ackpace_waiting_responses", &[&why])
        });
        let sent = metric(
            &page,
            "ackpace_sent_bytes_total",
            &["send_path=\"sendfile\""],
        );
        let waiting = metric(&page, "ackpace_waiting_bytes", &[]);
        // Bytes that the kernel does not have yet are waiting.
        net.iter().sum::<f64>() == 1.0 && sent > 0.0 && sent + waiting == Watched::BIG_BYTES as f64
    });
    assert_eq!(
        watched.sum("ackpace_connections", &["phase=\"sending\""]),
        1.0
    );
    assert_eq!(conn.exactly(Watched::BIG_BYTES).len(), Watched::BIG_BYTES);
    let made = watched.sum("ackpace_sent_bytes_total", &["send_path=\"made\""]);
    assert_eq!(
        watched.sum("ackpace_sent_bytes_total", &["send_path=\"sendfile\""]),
        Watched::BIG_BYTES as f64
    );
    assert!((100.0..1000.0).contains(&made), "one head: {made}");
    for _ in 0..4 {
        assert_eq!(conn.get("/a", "").text(), "0123456789");
    }
    assert_eq!(conn.get("/missing", "").status, 404);
    let page = watched.scrape("/metrics", "").text();
    assert_eq!(metric(&page, "ackpace_requests_total", &["2xx"]), 5.0);
    assert_eq!(metric(&page, "ackpace_requests_total", &["4xx"]), 1.0);
    assert!(
        metric(&page, "ackpace_response_cache_hits_total", &[]) >= 1.0,
        "{page}"
    );
    assert!(metric(&page, "ackpace_sent_bytes_total", &["response_cache"]) > 10.0);
    assert!(metric(&page, "ackpace_waited_seconds_total", &[]) > 0.0);
    assert!(metric(&page, "ackpace_topups_total", &["writable"]) >= 1.0);
    assert!(metric(&page, "ackpace_full_sends_total", &[]) >= 1.0);
    assert!(metric(&page, "ackpace_cpu_seconds_total", &[]) > 0.0);
    assert!(metric(&page, "ackpace_thread_switches_total", &["\"voluntary\""]) > 0.0);
    assert_eq!(
        metric(&page, "ackpace_accepted_connections_total", &[]),
        1.0
    );
    assert_eq!(metric(&page, "ackpace_open_connections", &[]), 1.0);
    let turns = metric(&page, "ackpace_turn_seconds_count", &[]);
    assert!(turns > 0.0 && turns == metric(&page, "ackpace_turn_seconds_bucket", &["+Inf"]));
    conn.finish().ends();
    eventually("the end of the connection is counted", || {
        watched.sum("ackpace_closed_connections_total", &["peer_closed"]) == 1.0
            && watched.sum("ackpace_connections", &[]) == 0.0
    });
}

#[test]
fn the_page_is_good_for_prometheus_own_parser_in_both_formats() {
    let Some(mut python) = client("python3") else {
        return;
    };
    if !run(python.args(["-c", "import prometheus_client"])).success {
        return skip("python3 lacks a module (apt-get install python3-prometheus-client)");
    }
    let watched = Watched::start("--access-log -");
    assert_eq!(watched.get("/a", "").status, 200);
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
}

#[test]
fn a_small_file_is_ready_for_who_opens_a_connection_for_each_request() {
    let watched = Watched::start("--workers 1");
    eventually("the third within a second of the second", || {
        let hits = watched.sum("ackpace_response_cache_hits_total", &[]);
        for _ in 0..3 {
            let mut conn = watched.connect();
            let response = conn.get("/a", "Connection: close\r\n");
            assert_eq!(response.text(), "0123456789");
            conn.ends();
        }
        watched.sum("ackpace_response_cache_hits_total", &[]) > hits
    });
}

#[test]
fn a_server_is_ready_until_it_drains_and_alive_until_it_ends() {
    let mut watched = Watched::start("--drain-timeout 10min");
    let mut conn = watched.stalled("/big", "");
    assert_eq!(watched.scrape("/readyz", "").text(), "ready\n");
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    watched.signal(libc::SIGTERM);
    eventually("it is not ready", || {
        let response = watched.scrape("/readyz", "");
        (response.status, response.text()) == (503, "draining\n".into())
    });
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    assert_eq!(watched.sum("ackpace_draining_servers", &[]), 1.0);
    let top = watched.ackpace("top --once --json");
    assert!(top.out.contains("\"draining\":true"), "{}", top.out);
    assert_eq!(conn.exactly(Watched::BIG_BYTES).len(), Watched::BIG_BYTES);
    drop(conn);
    assert_eq!(watched.wait().code(), Some(0));
    assert!(
        !watched.admin.exists(),
        "the socket is gone with its server"
    );
    let top = watched.ackpace("top --once");
    assert_eq!(top.code, Some(1));
    assert!(top.err.contains("is a server running"), "{}", top.err);
}

#[test]
fn a_root_that_is_removed_is_not_ready_answers_503_and_is_told_once() {
    let watched = Watched::start("--workers 2");
    assert_eq!(watched.get("/a", "").status, 200);
    assert_eq!(watched.get("/", "").status, 200);
    std::fs::remove_dir_all(watched.tree.at("site")).expect("our own tree");
    let removed = (503, "the directory that is served was removed\n".into());
    eventually("it is not ready", || {
        let response = watched.scrape("/readyz", "");
        (response.status, response.text()) == removed
    });
    eventually("/a is no longer in the response cache", || {
        watched.get("/a", "").status == 503
    });
    for target in ["/", "/a", "/missing", "/?json", "/"] {
        assert_eq!(watched.get(target, "").status, 503, "{target}");
    }
    watched.tree.file("site/a", "of another directory");
    assert_eq!(watched.get("/a", "").status, 503);
    assert_eq!(watched.scrape("/readyz", "").status, 503);
    assert_eq!(watched.scrape("/healthz", "").status, 200);
    watched.err_line(&["ERROR", "/site: the directory was removed", "restart"]);
    let told = watched.err();
    assert_eq!(told.matches("was removed").count(), 1, "{told}");
}

#[test]
fn a_thousand_silent_clients_at_the_metrics_port_keep_nobody_out() {
    if raise_own_limit() < 1200 {
        return skip("it needs 1,200 descriptors (ulimit -Hn)");
    }
    let watched = Watched::start("");
    let before = watched.descriptors();
    let mut silent = Vec::new();
    for nth in 0..1000 {
        let mut conn = TcpStream::connect(watched.metrics()).expect("the port takes it");
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
    assert_eq!(watched.get("/a", "").status, 200);
    let held = watched.descriptors();
    assert!(held <= before + 40, "{held} descriptors, {before} before");
    drop(silent);
    eventually("they are forgotten", || watched.descriptors() <= before + 1);
}

#[test]
fn garbage_at_the_metrics_port_gets_an_answer_and_an_end() {
    let watched = Watched::start("");
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
        let mut conn = Conn::open(watched.metrics());
        let response = conn.send(request).response();
        assert_eq!(response.status, status, "{request:?}");
        assert_eq!(response.field("Connection"), Some("close"));
        conn.ends();
    }
    let mut long = Conn::open(watched.metrics());
    let head = format!("GET / HTTP/1.1\r\nHost: t\r\nX: {}", "x".repeat(5000));
    assert_eq!(long.send(head).response().status, 431);
    let mut head = Conn::open(watched.metrics());
    head.send("HEAD /metrics HTTP/1.0\r\n\r\n");
    assert_eq!(head.head().status, 200);
    head.ends();
    // Clients that do not read their responses hold up nobody.
    let deaf: Vec<Conn> = (0..100).map(|_| Conn::open(watched.metrics())).collect();
    for conn in &deaf {
        limit_receive_buffer(&conn.stream, 2048);
        let _ = (&conn.stream).write_all(b"GET /metrics HTTP/1.1\r\nHost: t\r\n\r\n");
    }
    assert_eq!(watched.scrape("/healthz", "").status, 200);
}
