//! Origins that break the rules: each costs its own client a clean error at most, and nothing stays behind.

use ackpace_tests::{Answer, Conn, Origin, Server, Step, eventually};

use crate::{asks, gateway, lasting, long, whole};

/// Heads that may not be believed.
const HEADS: &[&str] = &[
    "garbage\r\n\r\n",
    "\r\n\r\n",
    "HTTP/1.1 abc\r\n\r\n",
    "HTTP/1.1 99 \r\n\r\n",
    "HTTP/2 200 \r\n\r\n",
    "HTTP/1.1 101 \r\nUpgrade: x\r\n\r\n",
    "HTTP/1.1 200 \r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 \r\nContent-Length: 1, 2\r\n\r\nab",
    "HTTP/1.1 200 \r\nContent-Length: -1\r\n\r\nab",
    "HTTP/1.1 200 \r\nContent-Length: +2\r\n\r\nab",
    "HTTP/1.1 200 \r\nContent-Length: 99999999999999999999999999\r\n\r\nab",
    "HTTP/1.1 200 \r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nab",
    "HTTP/1.1 200 \r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 \r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 \r\nTransfer-Encoding: identity\r\n\r\nab",
    "HTTP/1.0 200 \r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 \r\nContent-Length : 2\r\n\r\nab",
    "HTTP/1.1 200 \r\nX: a\r\n folded\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 \r\nX: a\0b\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 \r\nX: a\rb\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 304 \r\n\r\n",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 5-2/9\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 0-9/5\r\nContent-Length: 10\r\n\r\n0123456789",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 7-8/9\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 0-8/9\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 0-18446744073709551615/*\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes */9\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 0-1/18446744073709551614\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 0-1/9223372036854775808\r\nContent-Length: 2\r\n\r\nab",
    "HTTP/1.1 200 \r\nETag: \"v\"\r\nAccept-Ranges: bytes\r\nContent-Length: 18446744073709551615\r\n\r\nab",
    "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes 0-1/18446744073709551615\r\nContent-Length: 2\r\n\r\nab",
];

/// Bodies whose framing is broken, behind `Transfer-Encoding: chunked`.
const CHUNKS: &[&str] = &[
    "zz\r\nab\r\n0\r\n\r\n",
    "FFFFFFFFFFFFFFFFFFFF\r\nab",
    "-2\r\nab\r\n0\r\n\r\n",
    "2\r\nabXX0\r\n\r\n",
    "2\nab\n0\n\n",
    "2\r\nab\r\n0\r\nTrailer",
    "",
];

/// Reads whatever a client is given, which has to end. A response that breaks off at once may end before its head: status 0.
fn outcome(server: &Server, target: &str, fields: &str) -> (u16, Vec<u8>) {
    let mut conn = server.begin(target, &(asks("Connection", "close") + fields));
    let all = conn.rest_or_reset();
    let Some(at) = all.windows(4).position(|four| four == b"\r\n\r\n") else {
        assert!(all.is_empty(), "half a head");
        return (0, all);
    };
    let status = std::str::from_utf8(&all[9..12]).map(str::parse);
    let status = status.expect("a status").expect("a number");
    (status, all[at + 4..].to_vec())
}

/// The gateway still serves, and has given up what the bad origin cost.
fn recovers(server: &Server, origin: &Origin, descriptors: usize) {
    let content = lasting(long(200_000, 9), "v");
    origin.put("/good", &content);
    whole(&mut server.connect(), "/good", &content.bytes);
    origin.hang_up();
    eventually("what it cost is given back", || {
        server.descriptors() <= descriptors
    });
}

/// A gateway that has served something, and how many descriptors it has.
fn ready(origin: &Origin) -> (Server, usize) {
    let server = gateway(origin, "");
    assert_eq!(server.get("/nothing", "").status, 404);
    origin.hang_up();
    let mut before = usize::MAX;
    eventually("it is at rest", || {
        let now = server.descriptors();
        std::mem::replace(&mut before, now) == now && origin.connections().0 == 0
    });
    (server, before)
}

#[test]
fn heads_that_may_not_be_believed_are_errors() {
    let origin = Origin::new();
    let (server, descriptors) = ready(&origin);
    for (nth, head) in HEADS.iter().enumerate() {
        let answer = Answer::raw(head).then(Step::Close);
        origin.on(&format!("/{nth}"), move |_| answer.clone());
        for fields in ["", "Range: bytes=0-1\r\n", "Range: bytes=-2\r\n"] {
            let (status, body) = outcome(&server, &format!("/{nth}"), fields);
            // A client that asked for a part gets what the origin says of it.
            let passes = status == 206 && !fields.is_empty() && head.ends_with("0123456789");
            let is_clean = status >= 400 || body == b"ab" || body.is_empty() || passes;
            assert!(
                is_clean,
                "{head:?} as {status} with {:?}",
                String::from_utf8_lossy(&body)
            );
        }
        let mut head = server.connect();
        head.send(format!(
            "HEAD /{nth} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n"
        ));
        head.head();
        head.ends();
    }
    let text = server.err();
    assert!(text.contains("its clients get 502"), "{text}");
    assert!(!text.contains("report"), "{text}");
    assert!(text.lines().count() < 30, "too many lines:\n{text}");
    recovers(&server, &origin, descriptors);
}

#[test]
fn chunks_that_break_the_rules_never_look_complete() {
    let origin = Origin::new();
    let (server, descriptors) = ready(&origin);
    for (nth, chunks) in CHUNKS.iter().enumerate() {
        let text = format!("HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let answer = Answer::raw(text).then(Step::Close);
        origin.on(&format!("/{nth}"), move |_| answer.clone());
        for _ in 0..3 {
            let (status, body) = outcome(&server, &format!("/{nth}"), "");
            let looks_complete = status == 200 && body.ends_with(b"0\r\n\r\n");
            assert!(
                !looks_complete,
                "{chunks:?} as {:?}",
                String::from_utf8_lossy(&body)
            );
        }
    }
    recovers(&server, &origin, descriptors);
}

#[test]
fn what_never_ends_is_ended() {
    let origin = Origin::new();
    let (server, descriptors) = ready(&origin);
    let memory_bytes = server.memory_bytes();
    let endless = |start: &str, again: &str| {
        Answer::raw(start).then(Step::Endless(again.repeat(1000).into_bytes()))
    };
    let chunked = "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n";
    for (nth, answer) in [
        endless("HTTP/1.1 200 \r\n", "X-More: and more\r\n"),
        endless("HTTP/1.1 200 \r\nX-More: ", "and more "),
        endless("HTTP/1.1 ", "200"),
        endless("", "HTTP/1.1 100 \r\n\r\n"),
        endless("", "HTTP/1.1 103 \r\nLink: a\r\n\r\n"),
        endless(chunked, "\r\n"),
        endless(&format!("{chunked}2;"), "extension"),
        endless(&format!("{chunked}0\r\n"), "X-More: and more\r\n"),
        endless(chunked, "000000000000"),
    ]
    .into_iter()
    .enumerate()
    {
        origin.on(&format!("/{nth}"), move |_| answer.clone());
        for _ in 0..2 {
            let (status, _) = outcome(&server, &format!("/{nth}"), "");
            assert!(matches!(status, 0 | 200 | 502), "{nth}: {status}");
        }
    }
    let grown_bytes = server.memory_bytes().saturating_sub(memory_bytes);
    assert!(grown_bytes < 32 << 20, "{grown_bytes} bytes more");
    recovers(&server, &origin, descriptors);
}

#[test]
fn an_endless_body_goes_on_as_long_as_its_client_wants_it() {
    let origin = Origin::new();
    let (server, descriptors) = ready(&origin);
    let endless = |start: &str| Answer::raw(start).then(Step::Endless(vec![b'a'; 1 << 16]));
    let closed = endless("HTTP/1.1 200 \r\n\r\n");
    origin.on("/a", move |_| closed.clone());
    for _ in 0..3 {
        let mut conn = server.begin("/a", "");
        assert_eq!(conn.head().status, 200);
        conn.exactly(5_000_000);
    }
    recovers(&server, &origin, descriptors);
}

#[test]
fn a_byte_at_a_time_is_slow_and_right() {
    let origin = Origin::new();
    let content = lasting(long(2000, 2), "v");
    let all = content.clone();
    origin.on("/a", move |asked| {
        let steps = all.answer(asked).0.into_iter().flat_map(|step| match step {
            Step::Send(head) => vec![
                Step::Drip(b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 103 \r\nLink: b\r\n\r\n".to_vec()),
                Step::Drip(head),
            ],
            Step::Body(bytes, span) => vec![Step::Drip(bytes[span].to_vec())],
            step => vec![step],
        });
        Answer(steps.collect())
    });
    let text = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nA: b\r\n\r\n";
    origin.on("/b", move |_| Answer(vec![Step::Drip(text.to_vec())]));
    let server = gateway(&origin, "");
    for _ in 0..2 {
        whole(&mut server.connect(), "/a", &content.bytes);
        assert_eq!(server.get("/b", "").text(), "hello");
    }
}

#[test]
fn lengths_that_lie_are_never_believed() {
    let origin = Origin::new();
    let (server, descriptors) = ready(&origin);
    let fields = "ETag: \"v\"\r\nCache-Control: max-age=60\r\nAccept-Ranges: bytes\r\n";
    for tagged in ["", fields] {
        let head = |status: &str, len: usize| {
            format!("HTTP/1.1 {status}\r\n{tagged}Content-Length: {len}\r\n\r\n")
        };
        // Too little comes: the response ends early. Too much: the rest belongs to nothing.
        let short = Answer::raw(head("200 ", 1000) + "abc").then(Step::Close);
        let much = Answer::raw(head("200 ", 3) + "abc" + &"HTTP/1.1 200 \r\n\r\nevil".repeat(99));
        let name = if tagged.is_empty() { "plain" } else { "tagged" };
        let (shorts, muches) = (format!("/short-{name}"), format!("/much-{name}"));
        origin.on(&shorts, move |_| short.clone());
        origin.on(&muches, move |_| much.clone());
        for _ in 0..4 {
            let (status, body) = outcome(&server, &shorts, "");
            let is_clean = status == 502 || b"abc".starts_with(&body);
            assert!(is_clean, "{status}: {:?}", String::from_utf8_lossy(&body));
            assert_eq!(server.get(&muches, "").text(), "abc");
        }
    }
    recovers(&server, &origin, descriptors);
}

#[test]
fn another_part_than_the_one_asked_for_reaches_nobody() {
    let origin = Origin::new();
    let (server, descriptors) = ready(&origin);
    let content = lasting(long(2_000_000, 4), "v");
    // The first answer is right; then: another start, another end, another length, all of it, none of it.
    for kind in 0..6 {
        let all = content.clone();
        origin.on(&format!("/{kind}"), move |asked| {
            let right = all.answer(asked);
            let Some(span) = asked.range(all.bytes.len()).filter(|_| asked.nth > 0) else {
                return right;
            };
            let (first, last, len) = (span.start, span.end - 1, all.bytes.len());
            let before = first.saturating_sub(1);
            let (range, sent) = match kind {
                0 => (format!("{}-{last}/{len}", first + 1), first + 1..span.end),
                1 => (format!("{}-{last}/{len}", before), before..span.end),
                2 => (format!("{first}-{}/{len}", last + 9), first..last + 10),
                3 => (format!("{first}-{last}/{}", len + 1), span.clone()),
                4 => (format!("0-{}/{len}", len - 1), 0..len),
                _ => (format!("{first}-{last}/{len}"), first..first),
            };
            let sent = sent.start..sent.end.min(len);
            let head = format!(
                "HTTP/1.1 206 \r\nETag: \"v\"\r\nContent-Range: bytes {range}\r\nContent-Length: {}\r\n\r\n",
                sent.len()
            );
            Answer::raw(head).then(Step::Body(all.bytes.clone(), sent))
        });
        for _ in 0..3 {
            let mut conn: Conn = server.begin(&format!("/{kind}"), "");
            if conn.head().status == 200 {
                println!("kind {kind}");
                conn.compare(&content.bytes);
            }
        }
    }
    recovers(&server, &origin, descriptors);
}
