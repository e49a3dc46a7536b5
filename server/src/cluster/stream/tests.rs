use std::net::TcpListener;
use std::time::Duration;

use ackpace_wire::cluster::{FlowId, Message};

use super::*;
use crate::cluster::key::Key;
use crate::cluster::tls::Tls;

fn key(name: &str) -> Key {
    let file = format!("ackpace-stream-{name}-{}", std::process::id());
    let path = std::env::temp_dir().join(file);
    let _ = std::fs::remove_file(&path);
    let key = Key::make(&path).expect("a key");
    std::fs::remove_file(&path).expect("ours");
    key
}

/// Two ends, of which the first one dialed; each takes one key.
fn pair(dials: (&Key, &Key), answers: (&Key, &Key)) -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("bound");
    let ours = dial(to.ip(), to).expect("a socket");
    let (theirs, _) = listener.accept().expect("it connects");
    theirs.set_nonblocking(true).expect("a socket");
    let tls = |(own, peer): (&Key, &Key)| Tls::new(own, vec![peer.public]).expect("a key");
    let ours = Stream::new(ours, tls(dials).dial(to).expect("tls"), true);
    let theirs = Stream::new(theirs.into(), tls(answers).answer().expect("tls"), false);
    (ours, theirs)
}

fn frame(message: Message) -> Frame {
    Frame {
        flow: FlowId::default(),
        epoch: 3,
        message,
    }
}

/// Has both ends work until `done`, and returns the first failure of each.
fn until(
    ends: &mut (Stream, Stream),
    mut done: impl FnMut(&mut Stream, &mut Stream) -> bool,
) -> [Option<Broken>; 2] {
    let mut failed = [None, None];
    for _ in 0..500 {
        let (one, two) = ends;
        for (end, failed) in [&mut *one, &mut *two].into_iter().zip(&mut failed) {
            if failed.is_none() {
                *failed = end.turn().err();
            }
        }
        if failed.iter().all(Option::is_some) || done(one, two) {
            return failed;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("nothing comes of it: {failed:?}");
}

#[test]
fn both_ends_know_each_other_s_key_and_hear_each_other() {
    let (a, b) = (key("a1"), key("b1"));
    let mut ends = pair((&a, &b), (&b, &a));
    assert!(ends.0.wants_write(), "it connects");
    let failed = until(&mut ends, |one, two| {
        one.key() == Some(b.public) && two.key() == Some(a.public)
    });
    assert!(failed.iter().all(Option::is_none), "{failed:?}");
    let long = frame(Message::Came((0..2048).collect()));
    ends.0.push(&long);
    ends.0.push(&frame(Message::Ping));
    ends.1.push(&frame(Message::Ready));
    let mut heard = Vec::new();
    until(&mut ends, |one, two| {
        heard.extend(one.next_frame().expect("a frame"));
        heard.extend(two.next_frame().expect("a frame"));
        heard.len() == 3
    });
    for message in [long.message, Message::Ping, Message::Ready] {
        assert!(heard.contains(&frame(message)), "{heard:?}");
    }
}

#[test]
fn a_key_that_is_not_pinned_is_refused_by_whichever_side_sees_it() {
    let (a, b, stranger) = (key("a2"), key("b2"), key("c2"));
    for mut ends in [
        pair((&stranger, &b), (&b, &a)),
        pair((&a, &b), (&stranger, &a)),
    ] {
        let failed = until(&mut ends, |_, _| false);
        for broken in failed {
            let Some(Broken::Wrong(why)) = broken else {
                panic!("{broken:?}");
            };
            assert!(why.contains("--peer"), "{why}");
        }
    }
}

#[test]
fn what_is_no_frame_or_no_tls_is_told_apart() {
    let (a, b) = (key("a3"), key("b3"));
    let mut ends = pair((&a, &b), (&b, &a));
    until(&mut ends, |one, two| {
        one.key().is_some() && two.key().is_some()
    });
    ends.0.out.extend(b"GET / HTTP/1.1\r\n\r\n");
    let mut told = None;
    until(&mut ends, |_, two| {
        told = two.next_frame().err();
        told.is_some()
    });
    assert!(matches!(&told, Some(Broken::Wrong(why)) if why.contains("an invalid message")));
    let (mut one, mut two) = pair((&a, &b), (&b, &a));
    one.socket.set_nonblocking(false).expect("a socket");
    one.socket
        .write_all(b"GET / HTTP/1.1\r\n\r\n")
        .expect("it connects");
    std::thread::sleep(Duration::from_millis(20));
    assert!(matches!(two.turn(), Err(Broken::Wrong(_))));
}

#[test]
fn a_stream_that_is_cut_in_the_middle_of_a_frame_gives_no_frame() {
    let (a, b) = (key("a4"), key("b4"));
    let mut ends = pair((&a, &b), (&b, &a));
    until(&mut ends, |one, two| {
        one.key().is_some() && two.key().is_some()
    });
    let mut bytes = Vec::new();
    encode(&frame(Message::Came(vec![1, 2])), &mut bytes);
    ends.0.out.extend(&bytes[..bytes.len() - 1]);
    ends.0.send().expect("it stands");
    drop(ends.0);
    for _ in 0..500 {
        if let Err(broken) = ends.1.turn() {
            assert!(matches!(broken, Broken::Ended), "{broken:?}");
            assert!(matches!(ends.1.next_frame(), Ok(None)));
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("the end is not noticed");
}

#[test]
fn whoever_does_not_read_is_cut_before_much_waits_for_it() {
    let (a, b) = (key("a5"), key("b5"));
    let mut ends = pair((&a, &b), (&b, &a));
    until(&mut ends, |one, two| {
        one.key().is_some() && two.key().is_some()
    });
    let frame = frame(Message::Came((0..2048).collect()));
    for _ in 0..4096 {
        ends.0.push(&frame);
        if let Err(broken) = ends.0.send() {
            assert!(matches!(&broken, Broken::Closed(why) if why.contains("does not read")));
            assert!(ends.0.out.len() < OUT_BYTES_MAX + (20 << 10));
            return;
        }
    }
    panic!("64 MiB wait for it");
}

#[test]
fn a_port_that_refuses_is_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let to = listener.local_addr().expect("bound");
    drop(listener);
    let tls = Tls::new(&key("a6"), Vec::new()).expect("a key");
    let mut refused = None;
    match dial(to.ip(), to) {
        Err(error) => refused = Some(Broken::from(io::Error::from(error))),
        Ok(socket) => {
            let mut stream = Stream::new(socket, tls.dial(to).expect("tls"), true);
            for _ in 0..500 {
                refused = stream.turn().err();
                if refused.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    assert!(matches!(refused, Some(Broken::Refused)), "{refused:?}");
}
