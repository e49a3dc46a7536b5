//! Everything that an origin has, through a gateway.

use std::sync::Arc;

use ackpace_tests::{Answer, Content, Origin, Rng, Step, pattern};

use crate::{asks, gateway, lasting, long, part, whole};

const HOUR_AGO: &str = "Last-Modified: Sat, 01 Jan 2022 00:00:00 GMT";

#[test]
fn files_of_all_lengths_come_right_cold_and_warm() {
    const KIB: usize = 1 << 10;
    let origin = Origin::new();
    let server = gateway(&origin, "");
    let lens = [
        0,
        1,
        8 * KIB,
        8 * KIB + 1,
        64 * KIB,
        64 * KIB + 1,
        512 * KIB,
        1 << 20,
    ];
    let more = [(2 << 20) - 1, (2 << 20) + 1, (9 << 20) + 7];
    for len in lens.into_iter().chain(more) {
        let (target, bytes) = (format!("/{len}"), pattern(len, len as u64));
        origin.put(&target, &lasting(bytes.clone(), "v"));
        let mut conn = server.connect();
        assert_eq!(whole(&mut conn, &target, &bytes), "ackpace; fwd=uri-miss");
        // A single reader's bytes pass, but for the first ones. The second one's stay.
        let second = match len <= 128 * KIB {
            true => "ackpace; hit",
            false => "ackpace; fwd=partial",
        };
        assert_eq!(whole(&mut conn, &target, &bytes), second);
        for _ in 0..2 {
            assert_eq!(whole(&mut conn, &target, &bytes), "ackpace; hit");
            let other = whole(&mut server.connect(), &target, &bytes);
            assert_eq!(other, "ackpace; hit");
        }
    }
}

#[test]
fn any_range_comes_right_cold_and_warm() {
    let seed = ackpace_tests::hunter::seed();
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    let origin = Origin::new();
    let bytes = long(5_000_000, seed);
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    for nth in 0..300 {
        let target = format!("/{}", nth % 40);
        if nth < 40 {
            origin.put(&target, &lasting(bytes.clone(), "v"));
        }
        let first = rng.below(bytes.len());
        let most = [1, 100, 70_000, 3_000_000][rng.below(4)];
        part(&mut conn, &target, &bytes, first, first + rng.below(most));
    }
}

#[test]
fn suffixes_several_ranges_and_impossible_ones_are_answered_as_for_a_file() {
    let origin = Origin::new();
    let bytes = long(300_000, 7);
    let server = gateway(&origin, "");
    for (nth, (range, expected)) in [
        ("-1", bytes.len() - 1..bytes.len()),
        ("-200000", 100_000..bytes.len()),
        ("-9999999", 0..bytes.len()),
        ("250000-", 250_000..bytes.len()),
        ("0-0", 0..1),
        ("299999-400000", 299_999..300_000),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("/{nth}");
        origin.put(&target, &lasting(bytes.clone(), "v"));
        for _ in 0..2 {
            let response = server.get(&target, &asks("Range", &format!("bytes={range}")));
            assert_eq!(response.status, 206, "{range}: {}", response.head);
            assert!(response.body == bytes[expected.clone()], "{range}");
        }
    }
    for nth in 10..13 {
        let target = format!("/{nth}");
        origin.put(&target, &lasting(bytes.clone(), "v"));
        let range = asks("Range", "bytes=9999999-");
        let response = server.get(&target, &range);
        assert_eq!(response.status, 416, "{}", response.head);
        assert_eq!(response.field("Content-Range"), Some("bytes */300000"));
        let several = asks("Range", "bytes=5-9,200000-299999,-3");
        let response = server.get(&target, &several);
        assert_eq!(response.status, 206, "{}", response.head);
        let mut rest = &response.body[..];
        for span in [5..10, 200_000..300_000, 299_997..300_000] {
            let line = format!(
                "Content-Range: bytes {}-{}/300000\r\n\r\n",
                span.start,
                span.end - 1
            );
            let at = rest
                .windows(line.len())
                .position(|window| window == line.as_bytes());
            rest = &rest[at.expect("a part") + line.len()..];
            assert!(rest.starts_with(&bytes[span.clone()]), "{span:?}");
            rest = &rest[span.len()..];
        }
    }
}

#[test]
fn an_object_of_nothing_has_no_ranges() {
    let origin = Origin::new();
    origin.put("/a", &lasting(Vec::new(), "v"));
    let server = gateway(&origin, "");
    for _ in 0..2 {
        let response = server.get("/a", &asks("Range", "bytes=0-9"));
        assert!(matches!(response.status, 200 | 416), "{}", response.head);
        assert_eq!(response.body, b"");
    }
    assert_eq!(server.get("/a", "").body, b"");
}

#[test]
fn conditions_of_clients_are_answered_by_the_gateway() {
    let origin = Origin::new();
    let bytes = long(100_000, 3);
    origin.put("/a", &lasting(bytes.clone(), "v").with(HOUR_AGO));
    let server = gateway(&origin, "");
    for _ in 0..2 {
        let get = |name, value| server.get("/a", &asks(name, value));
        assert_eq!(get("If-None-Match", "\"v\"").status, 304);
        assert_eq!(get("If-None-Match", "\"w\"").status, 200);
        let date = "Sat, 01 Jan 2022 00:00:00 GMT";
        assert_eq!(get("If-Modified-Since", date).status, 304);
        assert_eq!(get("If-Match", "\"w\"").status, 412);
        let ranged = |if_range| {
            let fields = asks("Range", "bytes=5-9") + &asks("If-Range", if_range);
            server.get("/a", &fields)
        };
        assert_eq!(ranged("\"v\"").body, bytes[5..10]);
        assert!(ranged("\"w\"").body == bytes);
    }
    assert!(origin.asked("/a").len() <= 2, "{:?}", origin.asked("/a"));
}

#[test]
fn head_is_get_without_the_body() {
    let origin = Origin::new();
    let content = lasting(long(100_000, 3), "v")
        .with("X-Own: kept")
        .with("Content-Type: a/b");
    origin.put("/a", &content).put("/b", &content);
    origin.raw("/c", "HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n");
    let server = gateway(&origin, "");
    for target in ["/a", "/b"] {
        if target == "/b" {
            whole(&mut server.connect(), target, &content.bytes);
        }
        let mut conn = server.connect();
        for _ in 0..2 {
            let head = conn
                .send(format!("HEAD {target} HTTP/1.1\r\nHost: t\r\n\r\n"))
                .head();
            assert_eq!(head.status, 200);
            for (name, value) in [
                ("Content-Length", "100000"),
                ("ETag", "\"v\""),
                ("X-Own", "kept"),
                ("Content-Type", "a/b"),
            ] {
                assert_eq!(head.field(name), Some(value), "{}", head.head);
            }
        }
        whole(&mut conn, target, &content.bytes);
    }
    let mut conn = server.connect();
    for _ in 0..3 {
        assert_eq!(
            conn.send("HEAD /c HTTP/1.1\r\nHost: t\r\n\r\n")
                .head()
                .status,
            200
        );
    }
}

#[test]
fn responses_without_a_length_come_whole() {
    let origin = Origin::new();
    let short = pattern(20_000, 1);
    let tall = long(3_000_000, 2);
    for (name, bytes) in [("short", &short), ("tall", &tall)] {
        let mut chunked = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
        for piece in bytes.chunks(7919) {
            chunked.extend(format!("{:x};ext=\"a\"\r\n", piece.len()).into_bytes());
            chunked.extend_from_slice(piece);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(b"0\r\nTrailer: dropped\r\n\r\n");
        origin.raw(&format!("/{name}/chunked"), chunked);
        let bytes: Arc<[u8]> = bytes.clone().into();
        for (kind, head) in [
            ("closed", "HTTP/1.1 200 \r\n\r\n"),
            (
                "old",
                "HTTP/1.0 200 OK\r\nETag: \"v\"\r\nCache-Control: max-age=60\r\n\r\n",
            ),
        ] {
            let answer = Answer::raw(head).then(Step::Body(Arc::clone(&bytes), 0..bytes.len()));
            let answer = answer.then(Step::Close);
            origin.on(&format!("/{name}/{kind}"), move |_| answer.clone());
        }
    }
    let server = gateway(&origin, "");
    for (name, bytes) in [("short", &short), ("tall", &tall)] {
        for kind in ["chunked", "closed", "old"] {
            let target = format!("/{name}/{kind}");
            for nth in 0..3 {
                let mut conn = server.connect();
                let response = conn.get(&target, "");
                assert_eq!(response.status, 200, "{target}, {nth}: {}", response.head);
                assert!(response.body == *bytes, "{target}, {nth}");
                conn.send(format!("GET {target} HTTP/1.0\r\n\r\n"));
                assert!(
                    conn.response().body == *bytes,
                    "{target} to HTTP/1.0, {nth}"
                );
                conn.ends();
            }
        }
    }
}

#[test]
fn an_origin_without_ranges_gives_all_it_has() {
    let origin = Origin::new();
    let server = gateway(&origin, "");
    for len in [1000, 100_000, 3_000_000] {
        let (target, bytes) = (format!("/{len}"), long(len, 5));
        origin.put(&target, &lasting(bytes.clone(), "v").without_ranges());
        for _ in 0..3 {
            whole(&mut server.connect(), &target, &bytes);
            let ranged = server.get(&target, &asks("Range", "bytes=500-899"));
            match ranged.status {
                200 => assert!(ranged.body == bytes, "{len}"),
                206 => assert!(ranged.body == bytes[500..900], "{len}"),
                _ => panic!("{}", ranged.head),
            }
        }
    }
}

#[test]
fn what_is_no_file_passes_as_it_is() {
    let origin = Origin::new();
    let server = gateway(&origin, "");
    for status in [
        201, 203, 301, 302, 307, 400, 401, 403, 404, 410, 429, 500, 503,
    ] {
        let target = format!("/{status}");
        origin.raw(
            &target,
            format!(
                "HTTP/1.1 {status} \r\nLocation: /else\r\nX-Own: yes\r\nConnection: X-Hop\r\nX-Hop: \
                 no\r\nContent-Length: 5\r\n\r\nhello"
            ),
        );
        let mut conn = server.connect();
        for nth in 0..3 {
            let response = conn.get(&target, "");
            assert_eq!(
                (response.status, response.text().as_str()),
                (status, "hello"),
                "{nth}"
            );
            assert_eq!(response.field("Location"), Some("/else"));
            assert_eq!(response.field("X-Own"), Some("yes"));
            assert_eq!(response.field("X-Hop"), None, "it is for one hop");
        }
    }
    origin.raw("/204", "HTTP/1.1 204 \r\nX-Own: yes\r\n\r\n");
    let mut conn = server.connect();
    for _ in 0..3 {
        assert_eq!(conn.get("/204", "").status, 204);
    }
    assert_eq!(conn.get("/nothing", "").status, 404);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Origin::new();
    let bodies: Vec<Vec<u8>> = (0..60).map(|nth| long(nth * 5000, nth as u64)).collect();
    for (nth, bytes) in bodies.iter().enumerate() {
        let content = match nth % 3 {
            0 => Content::untagged(bytes.clone()),
            _ => lasting(bytes.clone(), "v"),
        };
        origin.put(&format!("/{nth}"), &content);
    }
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    for _ in 0..2 {
        let get = |nth| format!("GET /{nth} HTTP/1.1\r\nHost: t\r\n\r\n");
        conn.send((0..60).map(get).collect::<String>());
        for (nth, bytes) in bodies.iter().enumerate() {
            assert!(conn.response().body == *bytes, "answer {nth}");
        }
    }
}

#[test]
fn content_that_comes_encoded_unasked_passes_as_it_is() {
    let origin = Origin::new();
    let bytes = pattern(30_000, 4);
    let encoded = lasting(bytes.clone(), "v").with("Content-Encoding: gzip");
    origin.put("/a", &encoded);
    let server = gateway(&origin, "");
    for _ in 0..3 {
        let response = server.get("/a", "");
        assert_eq!(response.field("Content-Encoding"), Some("gzip"));
        assert!(response.body == bytes);
    }
    for asked in origin.asked("/a").iter().take(1) {
        assert_eq!(asked.field("Accept-Encoding"), Some("identity"));
    }
}
