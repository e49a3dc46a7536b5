//! What is kept, for how long, and for whom (RFC 9111).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ackpace_tests::{Answer, Asked, Content, Origin, Server, Step, eventually};

use crate::{asks, gateway, lasting, long, whole};

/// An object that is stale as soon as it comes, with these further directives.
fn stale(bytes: Vec<u8>, tag: &str, more: &str) -> Content {
    let content = Content::new(bytes, tag).with("Age: 100");
    content.with(&format!("Cache-Control: max-age=10{more}"))
}

#[test]
fn what_is_fresh_is_fetched_once() {
    let origin = Origin::new();
    let bytes = long(3_000_000, 1);
    origin.put("/a", &lasting(bytes.clone(), "v").with("Age: 50"));
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    assert_eq!(whole(&mut conn, "/a", &bytes), "ackpace; fwd=uri-miss");
    // A single reader's bytes may pass; the second one's stay.
    whole(&mut conn, "/a", &bytes);
    let sent_bytes = origin.sent_bytes();
    for _ in 0..5 {
        assert_eq!(whole(&mut conn, "/a", &bytes), "ackpace; hit");
        let age = conn
            .get("/a", "")
            .field("Age")
            .and_then(|age| age.parse::<u64>().ok());
        assert!(age.is_some_and(|age| (50..110).contains(&age)), "{age:?}");
    }
    assert_eq!(origin.sent_bytes(), sent_bytes, "it was fetched again");
}

#[test]
fn what_is_stale_is_asked_about_and_not_fetched_again() {
    let origin = Origin::new();
    let bytes = long(200_000, 1);
    origin.put("/a", &stale(bytes.clone(), "v", ""));
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    // A single reader's bytes may pass; the second one's stay.
    whole(&mut conn, "/a", &bytes);
    whole(&mut conn, "/a", &bytes);
    let sent_bytes = origin.sent_bytes();
    for _ in 0..3 {
        assert_eq!(
            whole(&mut conn, "/a", &bytes),
            "ackpace; fwd=stale; fwd-status=304"
        );
    }
    assert_eq!(origin.sent_bytes(), sent_bytes);
    let last = origin.asked("/a").pop().expect("it was asked");
    assert_eq!(last.field("If-None-Match"), Some("\"v\""));
}

#[test]
fn a_304_that_says_so_makes_it_fresh() {
    let origin = Origin::new();
    let (old, new) = (stale(vec![7; 5000], "v", ""), lasting(vec![7; 5000], "v"));
    origin.put("/a", &old);
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    whole(&mut conn, "/a", &old.bytes);
    origin.put("/a", &new);
    assert_eq!(
        whole(&mut conn, "/a", &old.bytes),
        "ackpace; fwd=stale; fwd-status=304"
    );
    assert_eq!(whole(&mut conn, "/a", &old.bytes), "ackpace; hit");
}

#[test]
fn a_new_version_takes_the_place_of_the_old_one() {
    let origin = Origin::new();
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    for nth in 0..20 {
        // Some grow, some shrink, some differ by their tag and bytes alone.
        let bytes = long([400_000, 400_000, 3_000_000, 10][nth % 4], nth as u64);
        origin.put("/a", &stale(bytes.clone(), &nth.to_string(), ""));
        whole(&mut conn, "/a", &bytes);
        whole(&mut server.connect(), "/a", &bytes);
    }
}

#[test]
fn a_reader_of_the_old_version_gets_nothing_of_the_new_one() {
    let origin = Origin::new();
    let (old, new) = (long(60_000_000, 1), long(60_000_000, 2));
    origin.put("/a", &stale(old.clone(), "old", ""));
    let server = gateway(&origin, "");
    let mut slow = server.begin("/a", "");
    assert_eq!(slow.head().status, 200);
    assert_eq!(slow.compare(&old[..1_000_000]), 1_000_000);
    origin.put("/a", &stale(new.clone(), "new", ""));
    whole(&mut server.connect(), "/a", &new);
    let more = slow.compare(&old[1_000_000..]);
    assert!(
        more < 59_000_000,
        "all of the old version, which the origin no longer had"
    );
    whole(&mut server.connect(), "/a", &new);
}

#[test]
fn an_origin_that_swaps_versions_between_reads_never_makes_a_mixture() {
    let origin = Origin::new();
    let both = [
        stale(long(6_000_000, 11), "one", ""),
        stale(long(6_000_000, 12), "two", ""),
    ];
    let served = both.clone();
    let count = AtomicUsize::new(0);
    origin.on("/a", move |asked| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        served[nth / 3 % 2].answer(asked)
    });
    let server = gateway(&origin, "");
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..8 {
                    let mut conn = server.begin("/a", "");
                    let head = conn.head();
                    if head.status == 502 {
                        continue;
                    }
                    let tag = head
                        .field("ETag")
                        .expect("a tag")
                        .trim_matches('"')
                        .to_owned();
                    let own = both.iter().find(|one| one.fields.contains(&tag));
                    conn.compare(&own.expect("one of both").bytes);
                }
            });
        }
    });
}

#[test]
fn what_may_be_sent_stale_is_sent_while_the_origin_is_asked() {
    let origin = Origin::new();
    let may_answer = Arc::new(AtomicBool::new(false));
    let more = ", stale-while-revalidate=600";
    let (old, new) = (
        stale(long(90_000, 1), "old", more),
        stale(long(90_000, 2), "new", more),
    );
    let (first, second, waits) = (old.clone(), new.clone(), Arc::clone(&may_answer));
    origin.on("/a", move |asked| {
        if asked.field("If-None-Match").is_none() && asked.field("If-Range").is_some()
            || asked.nth == 0
        {
            return first.answer(asked);
        }
        eventually("it may answer", || waits.load(Ordering::Relaxed));
        second.answer(asked)
    });
    let server = gateway(&origin, "");
    let mut conn = server.connect();
    whole(&mut conn, "/a", &old.bytes);
    for _ in 0..5 {
        let status = whole(&mut conn, "/a", &old.bytes);
        assert_eq!(status, "ackpace; hit; detail=stale");
    }
    may_answer.store(true, Ordering::Relaxed);
    eventually("the new version is there", || {
        let mut conn = server.begin("/a", "");
        let is_new = conn.head().field("ETag") == Some("\"new\"");
        // One that began with the old version may be cut off.
        conn.compare(if is_new { &new.bytes } else { &old.bytes });
        is_new
    });
}

#[test]
fn what_is_stale_is_better_than_an_error_unless_the_origin_says_otherwise() {
    let mut origin = Origin::new();
    let cases = [
        ("/a", "", 200),
        ("/b", ", must-revalidate", 502),
        ("/c", ", stale-if-error=0", 502),
    ];
    let bytes = long(150_000, 1);
    for (target, more, _) in cases {
        origin.put(target, &stale(bytes.clone(), "v", more));
    }
    let server = gateway(&origin, "");
    for (target, _, _) in cases {
        whole(&mut server.connect(), target, &bytes);
        whole(&mut server.connect(), target, &bytes);
    }
    let check = |server: &Server, how: &str| {
        for (target, _, status) in cases {
            let response = server.get(target, "");
            assert_eq!(response.status, status, "{target}, {how}");
            assert!(status != 200 || response.body == bytes, "{target}, {how}");
        }
    };
    origin.go_down();
    check(&server, "down");
    origin.come_up();
    for (target, _, _) in cases {
        origin.raw(target, "HTTP/1.1 503 \r\nContent-Length: 0\r\n\r\n");
    }
    eventually("it is up", || {
        let response = server.get("/d", "");
        response.status == 404
    });
    let response = server.get("/a", "");
    assert_eq!(response.status, 200);
    assert!(response.body == bytes);
    assert!(server.get("/b", "").status >= 500);
}

/// Says in its body what a client sent to be recognised.
fn names_its_client(asked: &Asked, fields: &str) -> Answer {
    let who = |name| asked.field(name).unwrap_or("nobody").to_owned();
    let body = who("Cookie") + " " + &who("Authorization") + " " + &who("Accept-Language");
    Answer::raw(format!(
        "HTTP/1.1 200 \r\nETag: \"v\"\r\n{fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

#[test]
fn what_is_for_one_client_reaches_no_other() {
    let origin = Origin::new();
    let kinds = [
        ("no-store", "Cache-Control: no-store\r\n"),
        ("private", "Cache-Control: private, max-age=60\r\n"),
        ("cookie", "Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n"),
        ("any", "Cache-Control: max-age=60\r\nVary: *\r\n"),
        (
            "vary",
            "Cache-Control: max-age=60\r\nVary: Cookie, Accept-Language\r\n",
        ),
        (
            "untagged",
            "Vary: Cookie, Accept-Language\r\nETag: W/\"x\"\r\n",
        ),
    ];
    for (kind, fields) in kinds {
        for nth in 0..4 {
            origin.on(&format!("/{kind}{nth}"), move |asked| {
                names_its_client(asked, fields)
            });
        }
    }
    let server = gateway(&origin, "");
    for (kind, _) in kinds {
        for nth in 0..4 {
            thread::scope(|scope| {
                for who in ["ann", "bob", "cyd", "dan"] {
                    let server = &server;
                    scope.spawn(move || {
                        for _ in 0..3 {
                            let fields = asks("Cookie", who) + &asks("Accept-Language", who);
                            let text = server.get(&format!("/{kind}{nth}"), &fields).text();
                            assert_eq!(text, format!("{who} nobody {who}"), "{kind}");
                        }
                    });
                }
            });
        }
    }
}

#[test]
fn cookies_that_an_origin_sets_reach_one_client_each() {
    let origin = Origin::new();
    let count = AtomicUsize::new(0);
    origin.on("/a", move |_| {
        let nth = count.fetch_add(1, Ordering::Relaxed);
        thread::sleep(std::time::Duration::from_millis(20)); // so that several wait for it
        Answer::raw(format!(
            "HTTP/1.1 200 \r\nSet-Cookie: id={nth}\r\nContent-Length: 0\r\n\r\n"
        ))
    });
    let server = gateway(&origin, "");
    let conns: Vec<_> = (0..20).map(|_| server.begin("/a", "")).collect();
    let mut cookies: Vec<String> = (conns.into_iter())
        .map(|mut conn| {
            conn.response()
                .field("Set-Cookie")
                .expect("a cookie")
                .to_owned()
        })
        .collect();
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 20, "two clients share a cookie");
}

#[test]
fn requests_with_authorization_pass_and_their_answers_are_kept_for_nobody() {
    let origin = Origin::new();
    let fields = "Cache-Control: max-age=60\r\n";
    origin.on("/a", move |asked| names_its_client(asked, fields));
    let server = gateway(&origin, "");
    for nth in 0..6 {
        let who = format!("Basic {nth}");
        let response = server.get("/a", &asks("Authorization", &who));
        assert_eq!(response.text(), format!("nobody {who} nobody"));
        assert_eq!(server.get("/a", "").text(), "nobody nobody nobody");
    }
}

#[test]
fn clients_cookies_reach_no_origin_whose_answer_is_for_all() {
    let origin = Origin::new();
    origin.on("/a", |asked| {
        names_its_client(asked, "Cache-Control: max-age=60\r\n")
    });
    let server = gateway(&origin, "");
    for _ in 0..3 {
        assert_eq!(
            server.get("/a", &asks("Cookie", "ann")).text(),
            "nobody nobody nobody"
        );
    }
}

#[test]
fn queries_are_part_of_the_name() {
    let origin = Origin::new();
    for target in ["/a", "/a?", "/a?x=1", "/a?x=2", "/a?x=%41", "/b%20c?d"] {
        origin.put(target, &lasting(target.as_bytes().to_vec(), "v"));
    }
    let server = gateway(&origin, "");
    for _ in 0..2 {
        for target in ["/a", "/a?x=1", "/a?x=2", "/a?x=%41", "/b%20c?d"] {
            assert_eq!(server.get(target, "").text(), target);
        }
    }
}

#[test]
fn a_body_that_comes_without_a_head_of_its_own_is_never_another_ones() {
    // Bytes behind a response, in the moment in which others wait for a connection.
    let origin = Origin::new();
    let evil = "HTTP/1.1 200 \r\nContent-Length: 4\r\n\r\nevil";
    for nth in 0..120 {
        let own = format!("/{nth}");
        let text = format!(
            "HTTP/1.1 200 \r\nContent-Length: {}\r\n\r\n{own}{evil}",
            own.len()
        );
        origin.on(&own, move |_| {
            Answer(vec![Step::Send(text.clone().into_bytes())])
        });
    }
    let server = gateway(&origin, "");
    for _ in 0..3 {
        let conns: Vec<_> = (0..120)
            .map(|nth| server.begin(&format!("/{nth}"), ""))
            .collect();
        for (nth, mut conn) in conns.into_iter().enumerate() {
            let response = conn.response();
            let own = response.status == 200 && response.text() == format!("/{nth}");
            assert!(own || response.status == 502, "{nth}: {}", response.text());
        }
    }
}
