//! What origins are asked, and which of them is believed.

use std::thread;
use std::time::Duration;

use ackpace_tests::{Answer, Origin, eventually};

use crate::{asks, behind, gateway, lasting, long, whole};

#[test]
fn an_origin_that_promises_ranges_and_has_none_gives_all_it_has() {
    let origin = Origin::new();
    let bytes = long(3_000_000, 1);
    let promising = lasting(bytes.clone(), "v").with("Accept-Ranges: bytes");
    origin.put("/a", &promising.clone().without_ranges());
    let server = gateway(&origin, "");
    for _ in 0..3 {
        whole(&mut server.connect(), "/a", &bytes);
    }
    // It is found out when a part is asked for. Its answer to HEAD promised them; or it had some once.
    origin.put("/head", &promising.clone().without_ranges());
    let mut conn = server.connect();
    conn.send("HEAD /head HTTP/1.1\r\nHost: t\r\n\r\n");
    assert_eq!(conn.head().status, 200);
    let (before, after) = (promising.clone(), promising.without_ranges());
    origin.on("/once", move |asked| match asked.nth {
        0 => before.answer(asked),
        _ => after.answer(asked),
    });
    for target in ["/head", "/once"] {
        eventually("it passes", || {
            let mut conn = server.begin(target, &asks("Connection", "close"));
            conn.head().status == 200 && conn.compare(&bytes) == bytes.len()
        });
    }
}

#[test]
fn an_origin_that_lacks_an_object_ends_no_download_of_it() {
    let (mut first, second) = (Origin::new(), Origin::new());
    let bytes = long(40_000_000, 1);
    first.put("/a", &lasting(bytes.clone(), "v"));
    let server = behind(&[&first, &second], "");
    let mut conn = server.begin("/a", "");
    assert_eq!(conn.head().status, 200);
    assert_eq!(conn.compare(&bytes[..1_000_000]), 1_000_000);
    first.go_down();
    let rest = &bytes[1_000_000..];
    thread::scope(|scope| {
        let reader = scope.spawn(|| conn.compare(rest));
        eventually("the second one is asked", || !second.asked("/a").is_empty());
        thread::sleep(Duration::from_millis(100)); // it restarts
        first.come_up();
        assert_eq!(reader.join().expect("a reader"), rest.len());
    });
}

#[test]
fn an_origin_that_cannot_answer_now_is_passed_by() {
    for status in [502, 503, 504] {
        let (first, second) = (Origin::new(), Origin::new());
        let content = lasting(vec![1; 1000], "v");
        first.raw(
            "/a",
            format!("HTTP/1.1 {status} \r\nContent-Length: 4\r\n\r\nbusy"),
        );
        second.put("/a", &content);
        let both = behind(&[&first, &second], "");
        assert_eq!(both.get("/a", "").status, 200, "{status}");
        // The only one is believed, and so is the last one.
        let alone = gateway(&first, "");
        let response = alone.get("/a", "");
        assert_eq!(
            (response.status, response.text().as_str()),
            (status, "busy")
        );
        let same = behind(&[&first, &first], "");
        assert_eq!(same.get("/a", "").status, status);
    }
}

#[test]
fn an_origin_with_too_many_fields_is_not_left_alone_for_that() {
    let (first, second) = (Origin::new(), Origin::new());
    let fields = format!("X-More: {}\r\n", "y".repeat(1000)).repeat(10);
    first.raw(
        "/many",
        format!("HTTP/1.1 200 \r\n{fields}Content-Length: 0\r\n\r\n"),
    );
    for nth in 0..5 {
        first.put(&format!("/{nth}"), &lasting(vec![1; 10], "v"));
    }
    let server = behind(&[&first, &second], "");
    for nth in 0..5 {
        assert_eq!(server.get("/many", "").status, 502);
        assert_eq!(server.get(&format!("/{nth}"), "").status, 200);
    }
    assert!(second.asked("/many").is_empty());
    server.err_line(&["too many fields"]);
}

#[test]
fn targets_reach_an_origin_as_they_are_written() {
    let origin = Origin::new();
    let targets = ["/@scope%2Fpkg", "/a//b/", "/%7Ea;b?c=%2F", "/a%252Fb"];
    for target in targets {
        origin.put(target, &lasting(target.as_bytes().to_vec(), "v"));
    }
    let server = gateway(&origin, "");
    for _ in 0..2 {
        for target in targets {
            assert_eq!(server.get(target, "").text(), target);
        }
    }
    for target in targets {
        assert_eq!(
            origin.asked(target).len(),
            1,
            "{target} is kept by its name"
        );
    }
    for target in ["/..%2fx", "/a%2f..%2f..%2fx", "/%2e%2e/x", "/%zz"] {
        assert_eq!(server.get(target, "").status, 400, "{target}");
    }
    assert_eq!(server.get("/a/x/%2e%2E//b/", "").text(), "/a//b/");
}

#[test]
fn a_request_of_the_gateways_own_is_refused_so_that_loops_end() {
    let origin = Origin::new();
    for target in ["/a", "/b"] {
        origin.put(target, &lasting(vec![1; 10], "v"));
    }
    origin.on("/private", |_| {
        Answer::raw("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n")
    });
    let server = gateway(&origin, "");
    assert_eq!(server.get("/a", "").status, 200);
    assert_eq!(
        server.get("/private", &asks("Authorization", "x")).status,
        200
    );
    for target in ["/a", "/private"] {
        let asked = origin.asked(target);
        let via = asked[0].field("Via").expect("it names itself");
        assert!(via.starts_with("1.1 ackpace-"), "{via}");
        for via in [via.to_owned(), format!("1.0 other, {via}")] {
            assert_eq!(server.get("/b", &asks("Via", &via)).status, 502);
        }
    }
    assert!(origin.asked("/b").is_empty());
    assert_eq!(
        server.get("/b", &asks("Via", "1.1 ackpace-other")).status,
        200
    );
}
