//! The access log: what it tells of a request, and its times, which are those of the client's clock.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use ackpace_tests::{Server, Setup, Tree, eventually, pattern, reset_on_drop, run};

fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("a time after 1970").as_millis() as i64
}

/// The text between these two, after the first.
fn between<'a>(line: &'a str, before: &str, behind: &str) -> &'a str {
    let rest = line.split_once(before).map(|(_, rest)| rest);
    let field = rest.and_then(|rest| rest.split_once(behind));
    field.unwrap_or_else(|| panic!("no {before} in {line}")).0
}

/// Parses `2026-11-21T16:48:38.042Z` into Unix milliseconds.
fn parsed_ms(time: &str) -> i64 {
    let numbers: Vec<i64> = time
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect();
    let [year, month, day, hour, minute, second, ms] = numbers[..] else {
        panic!("no time: {time}");
    };
    // Days since 1970 in the Gregorian calendar; years begin with March.
    let (year, month) = (year - i64::from(month < 3), (month + 9) % 12);
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    (((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + ms
}

#[test]
fn a_line_tells_when_its_response_ended_and_how_long_it_took() {
    assert_eq!(parsed_ms("1970-01-01T00:00:00.001Z"), 1);
    assert_eq!(parsed_ms("2000-10-10T20:55:36.042Z"), 971_211_336_042);
    let tree = Tree::new();
    tree.file("a", "x".repeat(100_000));
    let server = Server::start(&tree, "--access-log - --access-log-format json");
    let mut kept = server.connect();
    for nth in 0..3 {
        let (from_ms, target) = (unix_ms(), format!("/a?{nth}"));
        let got = kept.get(&target, "");
        let to_ms = unix_ms();
        assert_eq!(got.body.len(), 100_000);
        // Sends no request until the line is there. The server itself finds out what was acknowledged, a tick later.
        // The next response begins at once, a whole tick before its own line.
        let line = server.out_line(&[&target]);
        assert!(
            line.contains("\"bytes_acked\":100000,\"complete\":true"),
            "{line}"
        );
        let time_ms = parsed_ms(between(&line, "\"time\":\"", "\""));
        assert!(
            (from_ms - 1..=to_ms + 200).contains(&time_ms),
            "asked at {from_ms}, had at {to_ms}: {line}"
        );
        let took_ms: f64 = between(&line, "\"duration_ms\":", ",")
            .parse()
            .expect("a number");
        assert!(
            took_ms > 0.0 && took_ms <= (to_ms - from_ms + 200) as f64,
            "asked at {from_ms}, had at {to_ms}: {line}"
        );
    }
}

#[test]
fn answers_without_a_body_and_errors_have_their_time_and_order_too() {
    let tree = Tree::new();
    tree.file("a", "x".repeat(1_000));
    let server = Server::start(&tree, "--access-log - --access-log-format json");
    let mut first = server.connect();
    let etag = first.get("/a", "").field("ETag").expect("a tag").to_owned();
    let asks = [
        ("HEAD /a", String::new(), 200),
        ("GET /a", format!("If-None-Match: {etag}\r\n"), 304),
        ("GET /missing", String::new(), 404),
        ("GET /a", "Range: bytes=2000-\r\n".to_owned(), 416),
        ("GET /a", "Range: bytes=1-2\r\n".to_owned(), 206),
        ("DELETE /a", String::new(), 405),
    ];
    // First one after the other on a connection, then all at once.
    for round in ["one", "all"] {
        let mut conn = server.connect();
        let requests = (1..).zip(&asks).map(|(nth, (line, fields, _))| {
            format!("{line}?{round}-{nth} HTTP/1.1\r\nHost: t\r\n{fields}\r\n")
        });
        let mut requests: Vec<String> = requests.collect();
        if round == "all" {
            requests = vec![requests.concat()];
        }
        let mut requests = requests.into_iter();
        let from_ms = unix_ms();
        for (line, _, expected) in &asks {
            if let Some(request) = requests.next() {
                conn.send(request);
            }
            let status = match line.starts_with("HEAD") {
                true => conn.head().status,
                false => conn.response().status,
            };
            assert_eq!(status, *expected, "{line}");
        }
        let to_ms = unix_ms();
        server.out_line(&[&format!("?{round}-{}\"", asks.len())]);
        let out = server.out();
        let lines = out
            .lines()
            .filter(|line| line.contains(&format!("?{round}-")));
        let mut before_ms = from_ms - 1;
        for ((nth, (_, _, status)), line) in (1..).zip(&asks).zip(lines) {
            // In request order, and with the time of the last byte, however late the line is written.
            assert!(line.contains(&format!("?{round}-{nth}\"")), "{out}");
            assert!(line.contains(&format!("\"status\":{status}")), "{line}");
            let time_ms = parsed_ms(between(line, "\"time\":\"", "\""));
            assert!(
                (before_ms..=to_ms + 200).contains(&time_ms),
                "between {before_ms} and {to_ms}: {line}"
            );
            before_ms = time_ms;
            let took = between(line, "\"duration_ms\":", ",");
            assert!(took.parse::<f64>().expect("a number") > 0.0, "{line}");
        }
    }
    let mut broken = server.connect();
    broken.send("GET /a HTTP/9.9\r\nHost: t\r\n\r\n");
    assert_eq!(broken.response().status, 505);
    let line = server.out_line(&["\"status\":505"]);
    let took = between(&line, "\"duration_ms\":", ",");
    assert!(took.parse::<f64>().expect("a number") > 0.0, "{line}");
}

#[test]
fn a_fifo_without_a_reader_stops_the_start_and_a_stuck_one_is_told() {
    let (tree, home) = (Tree::new(), Tree::new());
    tree.file("a", "a");
    let fifo = home.at("log");
    assert!(run(Command::new("mkfifo").arg(&fifo)).success, "mkfifo");
    let path = fifo.to_str().expect("UTF-8").to_owned();
    let setup = || Setup::new(tree.path()).args(&["--access-log", &path]);
    let (code, err) = setup().fails();
    assert_eq!(code, Some(75), "{err}");
    assert!(err.contains(&path) && err.contains("nobody reads"), "{err}");

    let mut options = File::options();
    let reader = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(&fifo);
    let mut reader = reader.expect("a FIFO");
    let server = setup().start();
    // More lines than the FIFO (64 KiB), a batch and the queue take.
    let mut conn = server.connect();
    for _ in 0..120 {
        conn.send("GET /a HTTP/1.1\r\nHost: t\r\n\r\n".repeat(100));
        for _ in 0..100 {
            assert_eq!(conn.response().status, 200);
        }
    }
    let mut read = || {
        let mut text = Vec::new();
        let read = reader.read_to_end(&mut text).expect_err("it is still open");
        assert_eq!(read.kind(), ErrorKind::WouldBlock);
        text
    };
    eventually("a reader again", || {
        read();
        server.err().contains("lines were lost")
    });
}

#[test]
fn the_combined_log_tells_what_was_asked_and_answered() {
    let tree = Tree::new();
    tree.file("a b", "0123456789");
    let server = Server::start(&tree, "--access-log -");
    let fields = "Referer: http://r/\r\nUser-Agent: an \"agent\"\\\r\n";
    assert_eq!(server.get("/a%20b?q", fields).status, 200);
    let line = server.out_line(&["GET /a%20b?q"]);
    let (before, rest) = line.split_once(" - - [").expect("the address");
    assert_eq!(before, "127.0.0.1");
    let (_, rest) = rest.split_once(" +0000] ").expect("the time in UTC");
    assert_eq!(
        rest,
        r#""GET /a%20b?q HTTP/1.1" 200 10 "http://r/" "an \x22agent\x22\x5C""#
    );

    let bad = server.ask("GET /\x1b HTTP/1.1\r\n\r\n");
    server.out_line(&[&format!(
        r#"] "GET /\x1B HTTP/1.1" 400 {} "-" "-""#,
        bad.body.len()
    )]);
}

#[test]
fn the_json_log_tells_a_complete_download_from_an_aborted_one() {
    const LEN: usize = 32 << 20;
    let tree = Tree::new();
    let content = pattern(LEN, 13);
    tree.file("big", &content);
    let server = Server::start(&tree, "--access-log - --access-log-format json");
    let whole = server.get("/big?whole", "");
    assert!(whole.body == content, "other bytes");
    let line = server.out_line(&["/big?whole"]);
    let expected = format!(
        "\"status\":200,\"bytes_sent\":{LEN},\"bytes_acked\":{LEN},\"complete\":true,\"why\":null"
    );
    assert!(line.contains(&expected), "{line}");
    assert!(
        line.starts_with("{\"time\":\"") && line.ends_with('}'),
        "{line}"
    );

    let mut aborted = server.stalled("/big", "User-Agent: a \"quoted\" agent\r\n");
    aborted.exactly(100_000);
    reset_on_drop(&aborted.stream);
    drop(aborted);
    let line = server.out_line(&["\"target\":\"/big\""]);
    assert!(
        line.contains("\"complete\":false,\"why\":\"peer_reset\""),
        "{line}"
    );
    assert!(
        line.contains(r#""user_agent":"a \"quoted\" agent""#),
        "{line}"
    );
    let number = |key: &str| {
        let (_, rest) = line
            .split_once(key)
            .unwrap_or_else(|| panic!("no {key} in {line}"));
        rest.split(',')
            .next()
            .and_then(|value| value.parse::<usize>().ok())
    };
    let (sent, acked) = (number("\"bytes_sent\":"), number("\"bytes_acked\":"));
    let (sent, acked) = (sent.expect("a number"), acked.expect("a number"));
    assert!(sent < LEN && acked < sent, "{line}");
    assert!(acked >= 100_000, "what was read had arrived: {line}");

    // A range, and a client that closes orderly in the middle.
    assert_eq!(server.get("/big?part", "Range: bytes=-7\r\n").body.len(), 7);
    let line = server.out_line(&["/big?part"]);
    assert!(
        line.contains("\"bytes_acked\":7,\"complete\":true"),
        "{line}"
    );
    assert!(line.contains("\"range\":\"bytes=-7\""), "{line}");
}

#[test]
fn the_log_goes_to_a_file_that_is_appended_to() {
    let tree = Tree::new();
    tree.file("a", "a");
    let home = Tree::new();
    let log = home.file("access.log", "an old line\n");
    let path = log.to_str().expect("UTF-8");
    for _ in 0..2 {
        let server = Server::start(&tree, &["--access-log", path]);
        assert_eq!(server.get("/a", "").status, 200);
        server.stop(); // writes what is still queued
    }
    let text = fs::read_to_string(&log).expect("the log");
    assert!(text.starts_with("an old line\n127.0.0.1 "), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
}
