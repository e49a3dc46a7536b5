//! Origins that fail: what can be mended is, and the rest is a clean error.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use ackpace_tests::{Answer, Content, Origin, Setup, Step, eventually};

use crate::{asks, behind, gateway, lasting, long, part, whole};

#[test]
fn an_origin_that_refuses_connections_is_a_502_until_it_is_back() {
    let mut origin = Origin::new();
    origin.put("/a", &lasting(vec![1; 1000], "v"));
    origin.go_down();
    let server = gateway(&origin, "");
    for _ in 0..10 {
        assert_eq!(server.get("/a", "").status, 502);
    }
    server.err_line(&["its clients get 502"]);
    origin.come_up();
    eventually("it is back", || server.get("/a", "").status == 200);
    assert_eq!(server.get("/a", "").body, vec![1; 1000]);
}

#[test]
fn a_name_without_an_address_is_a_502() {
    let server = Setup::new("http://nothing.invalid:81/pub")
        .args("--cache-memory 16MiB")
        .start();
    for _ in 0..3 {
        assert_eq!(server.get("/a", "").status, 502);
    }
    server.err_line(&["nothing.invalid"]);
}

#[test]
fn a_body_that_breaks_off_is_asked_for_from_there_on() {
    for reset in [false, true] {
        let origin = Origin::new();
        let bytes = long(3_000_000, 1);
        let content = lasting(bytes.clone(), "v");
        origin.on("/a", move |asked| {
            let mut answer = content.answer(asked).cut(100_000 + asked.nth * 1000);
            if reset {
                answer.0.pop();
                answer = answer.then(Step::Reset);
            }
            answer
        });
        let server = gateway(&origin, "");
        let mut conn = server.connect();
        whole(&mut conn, "/a", &bytes);
        part(&mut conn, "/a", &bytes, 5, 2_500_000);
        let asked = origin.asked("/a");
        assert!(asked.len() > 10, "{}", asked.len());
        let again = &asked[asked.len() - 1];
        assert_eq!(again.field("If-Range"), Some("\"v\""));
    }
}

#[test]
fn an_origin_that_closes_after_each_head_is_given_up() {
    let origin = Origin::new();
    let content = lasting(long(3_000_000, 1), "v");
    let all = content.clone();
    origin.on("/a", move |asked| match asked.nth {
        0 => all.answer(asked).cut(70_000),
        _ => all.answer(asked).cut(0),
    });
    let server = gateway(&origin, "");
    let mut conn = server.begin("/a", "");
    assert_eq!(conn.head().status, 200);
    let got = conn.compare(&content.bytes);
    assert!(got < content.bytes.len());
    let asked = origin.asked("/a").len();
    assert!(asked < 50, "asked {asked} times");
}

#[test]
fn a_body_that_nobody_wants_may_break_off() {
    let origin = Origin::new();
    let content = lasting(long(1000, 1), "v");
    let head = "HTTP/1.1 416 \r\nContent-Range: bytes */1000\r\nContent-Length: 900\r\n\r\n";
    let server = gateway(&origin, "");
    for nth in 0..20 {
        let (target, all) = (format!("/{nth}"), content.clone());
        origin.on(&target, move |asked| {
            match asked.range(1000).filter(|span| span.start >= 1000) {
                Some(_) => Answer::raw(head).then(Step::Close),
                None => all.answer(asked),
            }
        });
        let response = server.get(&target, &asks("Range", "bytes=5000-"));
        assert_eq!(response.status, 416, "{}", response.head);
        assert_eq!(server.get(&target, "").body, content.bytes[..]);
    }
}

#[test]
fn what_passes_and_breaks_off_ends_the_connection_before_its_last_byte() {
    let origin = Origin::new();
    let bytes = long(900_000, 1);
    let all = Content::untagged(bytes.clone());
    origin.on("/length", move |asked| all.answer(asked).cut(500_000));
    let mut chunk = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n".to_vec();
    chunk.extend_from_slice(&bytes[..150_000]);
    let chunked = Answer::raw(chunk).then(Step::Close);
    origin.on("/chunked", move |_| chunked.clone());
    let server = gateway(&origin, "");
    for _ in 0..3 {
        let mut conn = server.begin("/length", "");
        assert_eq!(conn.head().status, 200);
        assert!(conn.compare(&bytes) < bytes.len());
        let mut conn = server.begin("/chunked", "");
        assert_eq!(conn.head().status, 200);
        let rest = conn.rest_or_reset();
        assert!(!rest.ends_with(b"0\r\n\r\n"), "it looks complete");
    }
}

#[test]
fn the_second_origin_goes_on_where_the_first_one_died() {
    let (mut first, second) = (Origin::new(), Origin::new());
    let bytes = long(40_000_000, 1);
    for origin in [&first, &second] {
        origin.put("/a", &lasting(bytes.clone(), "v"));
    }
    let server = behind(&[&first, &second], "");
    let mut conns: Vec<_> = (0..5).map(|_| server.begin("/a", "")).collect();
    for conn in &mut conns {
        assert_eq!(conn.head().status, 200);
        assert_eq!(conn.compare(&bytes[..1_000_000]), 1_000_000);
    }
    assert_eq!(
        second.sent_bytes(),
        0,
        "the first one is asked as long as it works"
    );
    first.go_down();
    thread::scope(|scope| {
        for mut conn in conns {
            let rest = &bytes[1_000_000..];
            scope.spawn(move || assert_eq!(conn.compare(rest), rest.len()));
        }
    });
    whole(&mut server.connect(), "/a", &bytes);
    assert!(second.sent_bytes() > 0);
}

#[test]
fn origins_with_different_versions_are_never_mixed() {
    let origins = [Origin::new(), Origin::new()];
    let versions = [1, 2].map(|nth| lasting(long(5_000_000, nth), &format!("v{nth}")));
    for (origin, content) in origins.iter().zip(versions.clone()) {
        origin.on("/a", move |asked| {
            let answer = content.answer(asked);
            if asked.nth % 3 == 2 {
                answer.cut(300_000)
            } else {
                answer
            }
        });
    }
    let server = behind(&[&origins[0], &origins[1]], "");
    let (ended, complete) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let mut conn = server.begin("/a", "");
                    let head = conn.head();
                    if head.status == 502 {
                        continue;
                    }
                    let tag = head.field("ETag").expect("a tag");
                    let own = versions.iter().find(|one| one.fields.contains(tag));
                    let own = &own.expect("one of both").bytes;
                    let got = conn.compare(own);
                    [&ended, &complete][usize::from(got == own.len())]
                        .fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    println!("{ended:?} ended early, {complete:?} complete");
}

#[test]
fn connections_that_the_origin_closed_meanwhile_cost_no_error() {
    let origin = Origin::new();
    let content = lasting(long(90_000, 1), "v");
    let server = gateway(&origin, "");
    for nth in 0..60 {
        let target = format!("/{nth}");
        let all = content.clone();
        // Every third response is the last one on its connection, which says nothing of that.
        origin.on(&target, move |asked| {
            let answer = all.answer(asked);
            if nth % 3 == 0 {
                answer.then(Step::Close)
            } else {
                answer
            }
        });
        whole(&mut server.connect(), &target, &content.bytes);
        if nth % 5 == 0 {
            origin.hang_up();
        }
    }
    assert!(!server.err().contains("502"), "{}", server.err());
}

#[test]
fn downloads_outlive_an_origin_that_restarts() {
    let mut origin = Origin::new();
    let bytes: Arc<[u8]> = long(20_000_000, 3).into();
    let content = Content::new(Arc::clone(&bytes), "v").with("Cache-Control: max-age=60");
    origin.put("/a", &content);
    let server = gateway(&origin, "--cache-memory 16MiB");
    let left = AtomicUsize::new(6);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut whole = 0;
                for _ in 0..12 {
                    let mut conn = server.begin("/a", "");
                    let head = conn.head();
                    assert!(matches!(head.status, 200 | 502), "{}", head.head);
                    if head.status == 200 {
                        whole += usize::from(conn.compare(&bytes) == bytes.len());
                    }
                }
                left.fetch_sub(1, Ordering::Relaxed);
                whole
            });
        }
        while left.load(Ordering::Relaxed) > 0 {
            origin.go_down();
            origin.come_up();
            thread::sleep(std::time::Duration::from_millis(100)); // serves for a moment
        }
    });
    eventually("it is whole again", || {
        let mut conn = server.begin("/a", &asks("Connection", "close"));
        conn.head().status == 200 && conn.compare(&bytes) == bytes.len()
    });
}
