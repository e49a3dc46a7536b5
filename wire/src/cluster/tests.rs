use super::*;
use crate::limits::{CLUSTER_HEAD_BYTES_MAX, CLUSTER_QUEUE_BYTES_MAX};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::net::SocketAddr;

fn object() -> impl Strategy<Value = Object> {
    let name = "[a-z/]{1,40}";
    (name, any::<[u64; 3]>(), any::<i64>()).prop_map(|(name, mut bytes, mtime_ns)| {
        bytes.sort_unstable();
        let [from_bytes, to_bytes, size_bytes] = bytes;
        Object {
            name: name.into_bytes(),
            size_bytes,
            mtime_ns,
            from_bytes,
            to_bytes,
        }
    })
}

pub(super) fn tuple() -> impl Strategy<Value = Tuple> {
    let v4 = any::<([u8; 4], [u8; 4])>();
    let v4 = v4.prop_map(|(a, b)| (a.into(), b.into()));
    let v6 = any::<([u8; 16], [u8; 16])>();
    let v6 = v6.prop_map(|(a, b)| (a.into(), b.into()));
    (prop_oneof![v4, v6], 1..=u16::MAX, 1..=u16::MAX).prop_map(|((a, b), client, server)| Tuple {
        client: SocketAddr::new(a, client),
        server: SocketAddr::new(b, server),
    })
}

fn tcp() -> impl Strategy<Value = Tcp> {
    let windows = any::<[u32; 4]>();
    let windows = windows.prop_map(|all| all.map(|bytes| bytes >> 2));
    let numbers = (any::<[u32; 4]>(), windows, 48..=u16::MAX);
    let wscales = option::of((0..=14u8, 0..=14u8));
    let options = (wscales, option::of(any::<u32>()), any::<[bool; 2]>());
    (numbers, options).prop_map(
        |((seqs, windows, mss_bytes), (wscales, timestamp, [sack, ecn]))| Tcp {
            snd_una: seqs[0],
            snd_nxt: seqs[0].wrapping_add(windows[0]),
            rcv_nxt: seqs[1],
            snd_wl1: seqs[2],
            snd_wnd_bytes: windows[1],
            max_window_bytes: windows[2],
            rcv_wnd_bytes: windows[3],
            rcv_wup: seqs[3],
            mss_bytes,
            wscales,
            sack,
            timestamp,
            ecn,
        },
    )
}

fn progress() -> impl Strategy<Value = Progress> {
    let numbers = (
        any::<u16>(),
        any::<[u64; 2]>(),
        0..=u64::MAX / 2,
        any::<u64>(),
        any::<u32>(),
    );
    numbers.prop_map(
        |(nth, [rate, idle_us], given_bytes, acked, moves)| Progress {
            nth,
            given_bytes,
            acked_bytes: acked.min(given_bytes),
            rate_bytes_per_s: rate,
            idle_us,
            moves,
        },
    )
}

fn response() -> impl Strategy<Value = Response> {
    let head = vec(any::<u8>(), 1..=CLUSTER_HEAD_BYTES_MAX);
    let text = || vec(any::<u8>(), 0..50);
    let fields = [option::of(text()), option::of(text()), option::of(text())];
    let record = (
        any::<u16>(),
        [text(), text(), text()],
        fields,
        any::<bool>(),
    );
    let record = record.prop_map(|(status, line, fields, brief)| Record {
        status,
        line,
        fields,
        brief,
    });
    let numbers = (any::<u64>(), any::<[u64; 3]>(), any::<bool>());
    (object(), head, numbers, option::of(record)).prop_map(
        |(object, head, (sent, took_us, one_version), record)| Response {
            sent_bytes: sent.min(object.to_bytes - object.from_bytes),
            object,
            head,
            one_version,
            took_us,
            record,
        },
    )
}

pub(super) fn handoff() -> impl Strategy<Value = Handoff> {
    let congestion = ("[a-z_]{1,16}", any::<[u32; 3]>(), 1u32.., any::<u64>()).prop_map(
        |(name, [ssthresh_segments, srtt_us, rttvar_us], cwnd_segments, pacing_bytes_per_s)| {
            Congestion {
                name,
                cwnd_segments,
                ssthresh_segments,
                srtt_us,
                rttvar_us,
                pacing_bytes_per_s,
            }
        },
    );
    let queue = || vec(any::<u8>(), 0..200);
    let queues = (queue(), queue());
    let carried = (progress(), option::of(response()));
    (tuple(), tcp(), congestion, carried, queues).prop_map(
        |(tuple, tcp, congestion, (progress, response), (received, unparsed))| Handoff {
            tuple,
            tcp,
            congestion,
            progress,
            response,
            received,
            unparsed,
        },
    )
}

fn message() -> impl Strategy<Value = Message> {
    let hello = ("[!-~]{1,63}", any::<u32>(), any::<[u16; 2]>());
    let hello = (hello, 1..=u16::MAX);
    let hello = hello.prop_map(
        |((node, boot_nonce, versions), relay_port)| Message::Hello {
            node,
            boot_nonce,
            version_min: versions[0].min(versions[1]),
            version_max: versions[0].max(versions[1]),
            relay_port,
        },
    );
    let nak = (0..Reason::ALL.len(), any::<u32>());
    let load = (any::<[u32; 3]>(), any::<bool>());
    let load = load.prop_map(|([processing, disk, connections], draining)| {
        Message::Load(Load {
            processing,
            disk,
            connections,
            draining,
        })
    });
    let keys = || vec(any::<u64>(), 0..100);
    let stamped = any::<u64>();
    let moved = (any::<u64>(), handoff());
    let plain = [
        Message::Ready,
        Message::BackOk,
        Message::Gone,
        Message::Abort,
        Message::Ping,
        Message::Aborted { sent: true },
        Message::Drain { on: true },
    ];
    prop_oneof![
        hello,
        object().prop_map(Message::Prepare),
        stamped.prop_map(|stamp_us| Message::Prepared { stamp_us }),
        stamped.prop_map(|stamp_us| Message::Renew { stamp_us }),
        stamped.prop_map(|stamp_us| Message::Renewed { stamp_us }),
        nak.prop_map(|(at, turn)| Message::Nak {
            reason: Reason::ALL[at],
            turn,
        }),
        moved.prop_map(|(stamp_us, state)| Message::Handoff {
            stamp_us,
            state: Box::new(state),
        }),
        (any::<u32>(), handoff()).prop_map(|(turn, state)| Message::Back {
            turn,
            state: Box::new(state),
        }),
        load,
        keys().prop_map(Message::Came),
        proptest::sample::select(plain.to_vec()),
    ]
}

fn frame() -> impl Strategy<Value = Frame> {
    let flow = any::<(u16, u32, u64)>();
    let flow = flow.prop_map(|(home, boot_nonce, number)| FlowId {
        home,
        boot_nonce,
        number,
    });
    (flow, any::<u32>(), message()).prop_map(|(flow, epoch, message)| Frame {
        flow,
        epoch,
        message,
    })
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn what_is_encoded_is_parsed_and_no_part_of_it_is_taken_for_all(
        one in frame(), other in frame(), cut in any::<prop::sample::Index>()
    ) {
        let mut bytes = encoded(&one);
        let len_bytes = bytes.len();
        prop_assert_eq!(parse(&bytes[..cut.index(len_bytes)]), Parsed::Incomplete);
        encode(&other, &mut bytes);
        prop_assert_eq!(parse(&bytes), Parsed::Complete { frame: one, len_bytes });
    }

    #[test]
    fn any_bytes_are_parsed_to_something_that_has_the_same_bytes(
        one in frame(), at in any::<prop::sample::Index>(), to in any::<u8>()
    ) {
        let mut bytes = encoded(&one);
        let at = at.index(bytes.len());
        bytes[at] = to;
        if let Parsed::Complete { frame, len_bytes } = parse(&bytes) {
            let hello = matches!(frame.message, Message::Hello { .. });
            prop_assert!(hello || encoded(&frame) == bytes[..len_bytes]);
        }
    }
}

fn a_handoff() -> Handoff {
    Handoff {
        tuple: Tuple {
            client: "192.0.2.1:40000".parse().expect("an address"),
            server: "192.0.2.80:80".parse().expect("an address"),
        },
        tcp: Tcp {
            mss_bytes: 1448,
            ..Tcp::default()
        },
        congestion: Congestion {
            name: "cubic".into(),
            cwnd_segments: 10,
            ssthresh_segments: 7,
            srtt_us: 20_000,
            rttvar_us: 5_000,
            pacing_bytes_per_s: u64::MAX,
        },
        progress: Progress::default(),
        response: Some(Response {
            object: an_object("a", [0, 10, 10]),
            head: b"HTTP/1.1 200 OK\r\n\r\n".to_vec(),
            one_version: true,
            sent_bytes: 5,
            took_us: [0; 3],
            record: None,
        }),
        received: Vec::new(),
        unparsed: Vec::new(),
    }
}

fn an_object(name: &str, [from_bytes, to_bytes, size_bytes]: [u64; 3]) -> Object {
    Object {
        name: name.into(),
        size_bytes,
        mtime_ns: -1,
        from_bytes,
        to_bytes,
    }
}

fn framed(message: Message) -> Vec<u8> {
    encoded(&Frame {
        flow: FlowId::default(),
        epoch: 1,
        message,
    })
}

/// A hand-off with one thing changed.
fn changed(change: impl FnOnce(&mut Handoff)) -> Vec<u8> {
    let mut state = Box::new(a_handoff());
    change(&mut state);
    framed(Message::Handoff { stamp_us: 1, state })
}

/// A message with some of its bytes replaced.
fn patched(message: Message, at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut all = framed(message);
    all[at..at + bytes.len()].copy_from_slice(bytes);
    all
}

fn hello(node: &str, version_min: u16) -> Message {
    Message::Hello {
        node: node.into(),
        boot_nonce: 7,
        version_min,
        version_max: 1,
        relay_port: 7801,
    }
}

#[test]
fn what_no_node_sends_is_refused() {
    let request = |handoff: &mut Handoff, change: fn(&mut Response)| {
        handoff.response.iter_mut().for_each(change);
    };
    let body = HEADER_LEN_BYTES;
    let cases = [
        ("no magic", b"GET".to_vec(), Bad::Magic),
        ("version 2", patched(Message::Ready, 4, &[2]), Bad::Version),
        ("type 0", patched(Message::Ready, 6, &[0]), Bad::Type),
        ("type 19", patched(Message::Ready, 6, &[19]), Bad::Type),
        ("a flag", patched(Message::Ready, 7, &[1]), Bad::Type),
        (
            "4 GB of PING",
            patched(Message::Ping, 8, &[255; 4]),
            Bad::Length,
        ),
        (
            "4 GB",
            patched(Message::Came(vec![]), 8, &[255; 4]),
            Bad::Length,
        ),
        (
            "half a key",
            [patched(Message::Came(vec![]), 8, &[4]), vec![0; 4]].concat(),
            Bad::Length,
        ),
        (
            "too many keys",
            framed(Message::Came(vec![0; CLUSTER_KEYS_MAX + 1])),
            Bad::Length,
        ),
        (
            "READY and more",
            [patched(Message::Ready, 8, &[1]), vec![0]].concat(),
            Bad::Length,
        ),
        (
            "RENEW and less",
            patched(Message::Renew { stamp_us: 0 }, 8, &[7]),
            Bad::Length,
        ),
        ("no name", framed(hello("", 1)), Bad::Value),
        ("a name of two words", framed(hello("a b", 1)), Bad::Value),
        (
            "a long name",
            framed(hello(&"a".repeat(64), 1)),
            Bad::Length,
        ),
        ("versions 2 to 1", framed(hello("a", 2)), Bad::Value),
        (
            "no reason",
            patched(
                Message::Nak {
                    reason: Reason::Busy,
                    turn: 0,
                },
                body,
                &[0],
            ),
            Bad::Value,
        ),
        (
            "neither yes nor no",
            patched(Message::Aborted { sent: true }, body, &[2]),
            Bad::Value,
        ),
        (
            "no object",
            framed(Message::Prepare(an_object("", [0; 3]))),
            Bad::Value,
        ),
        (
            "NUL",
            framed(Message::Prepare(an_object("a\0", [0; 3]))),
            Bad::Value,
        ),
        (
            "a range upside down",
            framed(Message::Prepare(an_object("a", [2, 1, 3]))),
            Bad::Value,
        ),
        (
            "a range beyond",
            framed(Message::Prepare(an_object("a", [0, 4, 3]))),
            Bad::Value,
        ),
        (
            "family 5",
            patched(
                Message::Handoff {
                    stamp_us: 1,
                    state: Box::new(a_handoff()),
                },
                body + 8,
                &[5],
            ),
            Bad::Value,
        ),
        (
            "port 0",
            changed(|state| state.tuple.client.set_port(0)),
            Bad::Value,
        ),
        (
            "MSS 47",
            changed(|state| state.tcp.mss_bytes = 47),
            Bad::Value,
        ),
        (
            "wscale 15",
            changed(|state| state.tcp.wscales = Some((0, 15))),
            Bad::Value,
        ),
        (
            "2 GB in flight",
            changed(|state| state.tcp.snd_nxt = 1 << 31),
            Bad::Value,
        ),
        (
            "una beyond nxt",
            changed(|state| state.tcp.snd_una = 1),
            Bad::Value,
        ),
        (
            "a window of 2 GB",
            changed(|state| state.tcp.rcv_wnd_bytes = 1 << 31),
            Bad::Value,
        ),
        (
            "cwnd 0",
            changed(|state| state.congestion.cwnd_segments = 0),
            Bad::Value,
        ),
        (
            "a path as its name",
            changed(|state| state.congestion.name = "../x".into()),
            Bad::Value,
        ),
        (
            "a long head",
            changed(|state| request(state, |request| request.head = vec![0; 1025])),
            Bad::Length,
        ),
        (
            "more sent",
            changed(|state| request(state, |request| request.sent_bytes = 30)),
            Bad::Value,
        ),
        (
            "a long queue",
            changed(|state| state.received = vec![0; CLUSTER_QUEUE_BYTES_MAX + 1]),
            Bad::Length,
        ),
        (
            "two long queues",
            changed(|state| {
                state.received = vec![0; CLUSTER_QUEUE_BYTES_MAX];
                state.unparsed = vec![0];
            }),
            Bad::Length,
        ),
    ];
    for (what, bytes, bad) in cases {
        assert_eq!(parse(&bytes), Parsed::Bad(bad), "{what}");
    }
}

#[test]
fn a_hello_of_a_later_version_is_understood() {
    let mut bytes = patched(hello("n2", 1), 4, &[9]);
    bytes[8] += 3;
    bytes.extend([1, 2, 3]);
    let Parsed::Complete { frame, len_bytes } = parse(&bytes) else {
        panic!("{:?}", parse(&bytes));
    };
    assert_eq!((frame.message, len_bytes), (hello("n2", 1), bytes.len()));
}

#[test]
fn nothing_prints_a_sequence_number() {
    let mut state = a_handoff();
    (state.tcp.snd_una, state.tcp.snd_nxt) = (123_456, 123_460);
    let message = Message::Handoff {
        stamp_us: 1,
        state: Box::new(state.clone()),
    };
    for text in [format!("{message:?}"), format!("{:?}", state.tcp)] {
        assert!(!text.contains("1234"), "{text}");
    }
}

#[test]
fn the_longest_message_is_within_the_bound() {
    let mut state = a_handoff();
    state.received = vec![0; CLUSTER_QUEUE_BYTES_MAX];
    if let Some(response) = &mut state.response {
        response.head = vec![0; CLUSTER_HEAD_BYTES_MAX];
        response.object.name = vec![b'a'; crate::limits::CLUSTER_OBJECT_BYTES_MAX];
        let target = vec![0; crate::limits::CLUSTER_ASKED_BYTES_MAX];
        response.record = Some(Record {
            line: [Vec::new(), target, Vec::new()],
            fields: [Some(Vec::new()), Some(Vec::new()), Some(Vec::new())],
            ..Record::default()
        });
    }
    state.congestion.name = "a".repeat(16);
    state.tuple.client = "[2001:db8::1]:40000".parse().expect("an address");
    state.tuple.server = "[2001:db8::2]:80".parse().expect("an address");
    let bytes = framed(Message::Handoff {
        stamp_us: 1,
        state: Box::new(state),
    });
    assert!(matches!(parse(&bytes), Parsed::Complete { .. }));
}
