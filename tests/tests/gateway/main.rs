//! A gateway in front of origins that behave well, badly, or not at all: its clients get the right bytes or a clean error.

mod cache;
mod content;
mod crowd;
mod failing;
mod hostile;
mod nginx;
mod onward;
mod told;
mod waits;

use ackpace_tests::{Conn, Content, Origin, Server, Setup, pattern};

/// A gateway to this origin, with little memory.
fn gateway(origin: &Origin, args: &str) -> Server {
    behind(&[origin], args)
}

/// A gateway to these origins, which have the same.
fn behind(origins: &[&Origin], args: &str) -> Server {
    let [first, others @ ..] = origins else {
        panic!("no origin");
    };
    let mut setup = Setup::new(first.url());
    for other in others {
        setup = setup.args(&["--origin", &other.url()]);
    }
    let args = match args.contains("--cache-memory") {
        true => args.to_owned(),
        false => format!("--cache-memory 64MiB {args}"),
    };
    setup.args("--workers 2").args(&*args).start()
}

/// Bytes that differ from those at every other offset, quickly made.
fn long(len: usize, seed: u64) -> Vec<u8> {
    let tile = pattern(65_521, seed);
    let mut bytes = Vec::with_capacity(len + tile.len());
    let mut nth = 0u64;
    while bytes.len() < len {
        bytes.extend_from_slice(&nth.to_le_bytes());
        bytes.extend_from_slice(&tile);
        nth += 1;
    }
    bytes.truncate(len);
    bytes
}

/// An object that stays fresh for an hour.
fn lasting(bytes: Vec<u8>, tag: &str) -> Content {
    Content::new(bytes, tag).with("Cache-Control: max-age=3600")
}

/// GETs a target and checks that these bytes come, all of them. Returns Cache-Status.
#[track_caller]
fn whole(conn: &mut Conn, target: &str, bytes: &[u8]) -> String {
    conn.send(format!("GET {target} HTTP/1.1\r\nHost: t\r\n\r\n"));
    let head = conn.head();
    assert_eq!(head.status, 200, "{}", head.head);
    let len = head.field("Content-Length").map(str::parse);
    assert_eq!(len, Some(Ok(bytes.len())), "{}", head.head);
    assert_eq!(conn.compare(bytes), bytes.len(), "it is cut off");
    head.field("Cache-Status").unwrap_or_default().to_owned()
}

/// GETs a range of a target and checks that these bytes come.
#[track_caller]
fn part(conn: &mut Conn, target: &str, bytes: &[u8], first: usize, last: usize) {
    conn.send(format!(
        "GET {target} HTTP/1.1\r\nHost: t\r\nRange: bytes={first}-{last}\r\n\r\n"
    ));
    let head = conn.head();
    assert_eq!(head.status, 206, "{}", head.head);
    let expected = &bytes[first..=last.min(bytes.len() - 1)];
    let got = conn.compare(expected);
    assert_eq!(got, expected.len(), "{first}-{last} is cut off");
}

/// Field lines of a request.
fn asks(name: &str, value: &str) -> String {
    format!("{name}: {value}\r\n")
}
