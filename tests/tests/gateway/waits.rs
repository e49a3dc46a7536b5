//! Slow origins: what is there reaches clients at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ackpace_tests::{Answer, Conn, Origin, Server, Step};

use crate::{asks, gateway, lasting, long};

/// What the first answer brings of an object.
const FIRST_BYTES: usize = 128 << 10;

/// A gateway to an origin that answers for an object until it is told to hang.
fn hanging(bytes: &[u8]) -> (Origin, Server, Arc<AtomicBool>) {
    let (origin, hangs) = (Origin::new(), Arc::new(AtomicBool::new(false)));
    let (content, told) = (lasting(bytes.to_vec(), "v"), Arc::clone(&hangs));
    origin.on("/a", move |asked| match told.load(Ordering::Relaxed) {
        true => Answer(vec![Step::Hang]),
        false => content.answer(asked),
    });
    let server = gateway(&origin, "");
    (origin, server, hangs)
}

/// The shortest time that something takes of a client: the machine may be busy.
fn shortest(server: &Server, target: &str, take: impl Fn(&mut Conn)) -> Duration {
    let one = || {
        let begun = Instant::now();
        take(&mut server.begin(target, ""));
        begun.elapsed()
    };
    (0..5).map(|_| one()).min().expect("several")
}

#[test]
fn what_is_in_memory_does_not_wait_for_the_rest() {
    let bytes = long(2_000_000, 1);
    // For one reader, and for several.
    for readers in [0, 1, 2] {
        let (mut origin, server, hangs) = hanging(&bytes);
        for _ in 0..readers {
            let mut conn = server.begin("/a", &asks("Connection", "close"));
            conn.head();
            conn.compare(&bytes);
        }
        let first = format!("bytes=0-{}", FIRST_BYTES - 1);
        assert_eq!(server.get("/a", &asks("Range", &first)).status, 206);
        hangs.store(true, Ordering::Relaxed);
        let mut conn = server.begin("/a", "");
        assert_eq!(conn.head().status, 200);
        assert!(conn.exactly(FIRST_BYTES) == bytes[..FIRST_BYTES]);
        origin.go_down(); // or the server would wait for it at its end
    }
}

#[test]
fn what_is_sent_is_not_held_back_for_what_an_origin_has_yet_to_send() {
    let bytes = long(2_000_000, 1);
    let (mut origin, server, hangs) = hanging(&bytes);
    let first = format!("bytes=0-{}", FIRST_BYTES - 1);
    assert_eq!(server.get("/a", &asks("Range", &first)).status, 206);
    hangs.store(true, Ordering::Relaxed);
    let chunked = "HTTP/1.1 200 \r\nCache-Control: private\r\nTransfer-Encoding: chunked\r\n\r\n";
    let length = "HTTP/1.1 200 \r\nCache-Control: private\r\nContent-Length: 10\r\n\r\n";
    for (target, text) in [
        ("/head", chunked.to_owned()),
        ("/chunk", format!("{chunked}5\r\nhello\r\n")),
        ("/length", format!("{length}hello")),
    ] {
        let answer = Answer::raw(text).then(Step::Hang);
        origin.on(target, move |_| answer.clone());
    }
    let most = Duration::from_millis(150); // MSG_MORE and TCP_CORK hold it back for 200
    let head = |conn: &mut Conn| assert_eq!(conn.head().status, 200);
    let body = |len| {
        move |conn: &mut Conn| {
            head(conn);
            conn.exactly(len);
        }
    };
    let object = shortest(&server, "/a", body(FIRST_BYTES));
    assert!(object < most, "{object:?}");
    let alone = shortest(&server, "/head", head);
    assert!(alone < most, "{alone:?}");
    let chunk = shortest(&server, "/chunk", body("5\r\nhello\r\n".len()));
    assert!(chunk < most, "{chunk:?}");
    let length = shortest(&server, "/length", body("hello".len()));
    assert!(length < most, "{length:?}");
    origin.go_down(); // or the server would wait for it at its end
}
