use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Mutex;

use ackpace_wire::base64;

use super::*;
use crate::options::EtcdUrl;

const EMPTY: &str = r#"{"header":{"revision":"9"}}"#;

/// An etcd that answers as it is told, and keeps what it was asked.
struct Fake {
    url: EtcdUrl,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// `answer`: the bytes of the answer to a question.
    fn start(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                let mut question = Vec::new();
                let mut bytes = [0; 4096];
                while !is_whole(&question) {
                    match socket.read(&mut bytes) {
                        Ok(read @ 1..) => question.extend(&bytes[..read]),
                        _ => break,
                    }
                }
                let question = String::from_utf8_lossy(&question).into_owned();
                let answer = answer(&question);
                lock(&noted).push(question);
                let _ = socket.write_all(&answer);
            }
        });
        let url = EtcdUrl {
            host: "127.0.0.1".to_owned(),
            port,
            tls: false,
            prefix: "/m".to_owned(),
        };
        Fake { url, asked }
    }

    fn keeper(&self) -> Keeper {
        let own = Peer {
            name: "b".to_owned(),
            addr: ([192, 0, 2, 1], 7800).into(),
            key: [1; 32],
        };
        let cluster = crate::cluster::tests::cluster("auto");
        let http = Http::new(self.url.clone(), None);
        Keeper::new(cluster, own, Vec::new(), http, "/m".to_owned())
    }

    fn was_asked(&self, path: &str) -> bool {
        let is_it = |question: &String| question.starts_with(&format!("POST {path} "));
        lock(&self.asked).iter().any(is_it)
    }
}

fn is_whole(question: &[u8]) -> bool {
    let text = String::from_utf8_lossy(question);
    text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
        let (_, len) = head.split_once("Content-Length: ").expect("a length");
        body.len() >= len.lines().next().unwrap_or("").parse().expect("a number")
    })
}

fn answer(status: u16, body: &str) -> Vec<u8> {
    let len = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {len}\r\n\r\n{body}").into_bytes()
}

/// What etcd answers, with these entries at this revision.
fn etcd(question: &str, revision: u64, entries: &[(&str, &str)]) -> Vec<u8> {
    let quoted = |text: &str| base64::encode(text.as_bytes());
    let entries = entries.iter().map(|(key, value)| {
        let (key, value) = (quoted(key), quoted(value));
        format!(r#"{{"key":"{key}","mod_revision":"3","value":"{value}","lease":"5"}}"#)
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    let header = format!(r#""header":{{"revision":"{revision}"}}"#);
    let path = question.split(' ').nth(1).unwrap_or_default();
    let body = match path {
        "/v3/lease/grant" => format!(r#"{{{header},"ID":"7","TTL":"10"}}"#),
        "/v3/lease/keepalive" => format!(r#"{{"result":{{{header},"ID":"7"}}}}"#),
        "/v3/kv/txn" => format!(r#"{{{header},"succeeded":true}}"#),
        "/v3/kv/range" => format!(r#"{{{header},"kvs":[{entries}]}}"#),
        _ => format!("{{{header}}}"),
    };
    answer(200, &body)
}

fn entry(last: u8) -> String {
    format!("192.0.2.{last}:7800,{},1", base64::encode(&[last; 32]))
}

#[test]
fn odd_answers_leave_the_last_list_as_it_is() {
    let huge = " ".repeat(300 << 10);
    let chunks = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4b000\r\n{huge}");
    let whole = answer(200, EMPTY);
    for (odd, why) in [
        (
            answer(503, r#"{"error":"no leader","code":14}"#),
            "it answers 503: no leader",
        ),
        (answer(404, "<html>"), "it answers 404"),
        (answer(200, "<html>"), "is no JSON"),
        (answer(200, "[7]"), "lacks revision"),
        (answer(200, &huge), "is too long"),
        (chunks.into_bytes(), "is too long"),
        (whole[..whole.len() - 1].to_vec(), "end of file"),
        (b"SSH-2.0-x\r\n".to_vec(), "does not start with HTTP/1.1"),
        (
            "HTTP/1.1 100 C\r\n\r\n".repeat(9).into_bytes(),
            "it sends no answer",
        ),
        (Vec::new(), "end of file"),
    ] {
        let told = String::from_utf8_lossy(&odd[..odd.len().min(60)]).into_owned();
        let fake = Fake::start(move |question| match question.contains("/v3/kv/range") {
            true => odd.clone(),
            false => etcd(question, 9, &[]),
        });
        let mut keeper = fake.keeper();
        let failed = keeper.round().expect_err(&told).to_string();
        assert!(failed.contains(why), "{told}: {failed}");
        assert!(lock(&keeper.cluster.listed).is_none(), "{told}");
        assert!(!fake.was_asked("/v3/kv/txn"), "{told}");
    }
}

#[test]
fn an_answer_that_does_not_end_in_time_is_none() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".to_vec();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let held = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("it asks");
        let _ = socket.write_all(&head);
        // A byte now and then.
        for _ in 0..200 {
            thread::sleep(Duration::from_millis(50));
            if socket.write_all(b" ").is_err() {
                break;
            }
        }
    });
    let url = EtcdUrl {
        port,
        ..Fake::start(|_| Vec::new()).url
    };
    let failed = Http::new(url, None).post("/v3/kv/range", "{}");
    assert!(matches!(failed, Err(Failed::Io(error)) if error.kind() == io::ErrorKind::TimedOut));
    held.join().expect("it has ended");
}

#[test]
fn a_node_lists_itself_and_takes_whom_it_finds() {
    let (a, c) = (entry(2), entry(3));
    let fake = Fake::start(move |question| {
        etcd(
            question,
            9,
            &[("/m/nodes/a", &a), ("/m/nodes/c", &c), ("/m/drains/b", "1")],
        )
    });
    let mut keeper = fake.keeper();
    keeper.round().expect("it answers");
    let listed = lock(&keeper.cluster.listed).take().expect("a list");
    let names: Vec<&str> = listed.iter().map(|peer| &*peer.name).collect();
    assert_eq!(names, ["a", "c"]);
    assert!(fake.was_asked("/v3/kv/txn") && keeper.cluster.is_draining());
    // The lease is over: the fake says so, and gives a new one.
    keeper.kept = None;
    lock(&fake.asked).clear();
    keeper.round().expect("it answers");
    assert!(fake.was_asked("/v3/lease/keepalive") && fake.was_asked("/v3/lease/grant"));
}

#[test]
fn a_name_that_another_key_has_is_not_taken() {
    let other = entry(9);
    let fake = Fake::start(move |question| etcd(question, 9, &[("/m/nodes/b", &other)]));
    fake.keeper().round().expect("it answers");
    assert!(!fake.was_asked("/v3/kv/txn"));
}

#[test]
fn an_entry_of_the_process_before_is_written_anew_under_this_one_s_lease() {
    let own = entry(1);
    let fake = Fake::start(move |question| etcd(question, 9, &[("/m/nodes/b", &own)]));
    fake.keeper().round().expect("it answers");
    let asked = lock(&fake.asked);
    let write = asked
        .iter()
        .find(|question| question.contains("/v3/kv/txn"));
    let write = write.expect("it stands under lease 5");
    assert!(write.contains(r#""mod_revision":"3""#) && write.contains(r#""lease":"7""#));
}

#[test]
fn a_drain_is_not_lost_with_what_etcd_loses() {
    let revision = Arc::new(Mutex::new((9, true)));
    let told = Arc::clone(&revision);
    let fake = Fake::start(move |question| {
        let (revision, is_drained) = *lock(&told);
        let drain = [("/m/drains/b", "1")];
        etcd(question, revision, &drain[..usize::from(is_drained)])
    });
    let mut keeper = fake.keeper();
    keeper.round().expect("it answers");
    assert!(keeper.cluster.is_draining());
    *lock(&revision) = (2, false); // it has begun anew
    keeper.round().expect("it answers");
    assert!(keeper.cluster.is_draining() && fake.was_asked("/v3/kv/put"));
    *lock(&revision) = (3, true);
    keeper.round().expect("it answers");
    *lock(&revision) = (4, false); // somebody took it away
    keeper.round().expect("it answers");
    assert!(!keeper.cluster.is_draining());
}

#[test]
fn whatever_a_watch_says_is_a_bell() {
    let created = r#"{"result":{"created":true}}"#;
    let cancelled = r#"{"result":{"canceled":true,"compact_revision":"4"}}"#;
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let rings = |said: String| {
        let fake = Fake::start(move |_| format!("{head}{said}").into_bytes());
        let mut watch = Http::new(fake.url.clone(), None)
            .watch("{}")
            .expect("a watch");
        (0..9).any(|_| watch.listen() == Rung::Yes)
    };
    // The fake closes at its end, which rings, too.
    for said in [
        format!(
            "{}{}",
            chunk(&format!("{created}\n")),
            chunk(&format!("{cancelled}\n"))
        ),
        chunk("{\"error\":\"no\"}\n"),
        chunk(&"x".repeat(40_000)),
        "0\r\n\r\n".to_owned(),
        "rubbish".to_owned(),
    ] {
        assert!(rings(said.clone()), "{said:.60}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let said = format!("{head}{}", chunk(&format!("{created}\n")));
    let held = thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("it asks");
        socket.write_all(said.as_bytes()).expect("it reads");
        socket
    });
    let url = EtcdUrl {
        port,
        ..Fake::start(|_| Vec::new()).url
    };
    let mut watch = Http::new(url, None).watch("{}").expect("a watch");
    let mut socket = held.join().expect("it answered");
    assert_eq!([watch.listen(), watch.listen()], [Rung::No, Rung::No]);
    socket
        .write_all(chunk("{}\n").as_bytes())
        .expect("it reads");
    assert_eq!(watch.listen(), Rung::Yes);
}
