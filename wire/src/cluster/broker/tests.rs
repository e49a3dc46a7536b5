use super::*;
use crate::cluster::Bad;
use crate::cluster::tests::{handoff, tuple};
use crate::limits::{
    BROKER_DATAGRAM_BYTES_MAX, BROKER_LEASES_MAX, BROKER_LIST_MAX, BROKER_TEXT_BYTES_MAX,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn connection() -> impl Strategy<Value = Box<Connection>> {
    handoff().prop_map(|handoff| {
        Box::new(Connection {
            tuple: handoff.tuple,
            tcp: handoff.tcp,
            congestion: handoff.congestion,
            received: handoff.received,
        })
    })
}

fn request() -> impl Strategy<Value = Request> {
    let lease = (tuple(), any::<u32>(), any::<u64>());
    let lease = lease.prop_map(|(tuple, epoch, until_ns)| Lease {
        tuple,
        epoch,
        until_ns,
    });
    prop_oneof![
        any::<u16>().prop_map(|version| Request::Hello { version }),
        (any::<u32>(), option::of(any::<u32>()))
            .prop_map(|(epoch, una_floor)| Request::Freeze { epoch, una_floor }),
        Just(Request::Thaw),
        (any::<u32>(), connection())
            .prop_map(|(epoch, connection)| Request::Restore { epoch, connection }),
        (any::<u32>(), option::of(any::<u64>())).prop_map(|(epoch, lease_until_ns)| {
            Request::Start {
                epoch,
                lease_until_ns,
            }
        }),
        (any::<u32>(), any::<u16>()).prop_map(|(epoch, peer)| Request::Redirect { epoch, peer }),
        vec(lease, 0..40).prop_map(Request::Lease),
        (tuple(), any::<u32>()).prop_map(|(tuple, epoch)| Request::Fence { tuple, epoch }),
        tuple().prop_map(Request::Track),
        tuple().prop_map(Request::Forget),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let vips = vec(tuple().prop_map(|tuple| tuple.server.ip()), 0..5);
    let ports = vec(any::<u16>(), 0..BROKER_LIST_MAX);
    let hello = (
        any::<u16>(),
        "[a-z]{1,9}",
        vips,
        ports,
        vec("[a-z]{1,9}", 0..9),
    );
    let tracked = any::<(u32, u32, u32)>().prop_map(|(ack, seq_end, held_end)| Tracked {
        ack,
        seq_end,
        held_end,
    });
    prop_oneof![
        hello.prop_map(|(version, node, vips, ports, peers)| {
            Reply::Hello(Hello {
                version,
                node,
                vips,
                ports,
                peers,
            })
        }),
        (connection(), any::<u32>()).prop_map(|(connection, unsent_bytes)| Reply::Saved {
            connection,
            unsent_bytes
        }),
        Just(Reply::Restored),
        Just(Reply::Done),
        any::<u32>().prop_map(|held| Reply::Redirected { held }),
        option::of(tracked).prop_map(Reply::Tracked),
        (any::<i32>(), "[a-zü]{0,99}").prop_map(|(errno, text)| Reply::Failed { errno, text }),
    ]
}

proptest! {
    #[test]
    fn what_is_asked_is_understood_and_its_beginnings_are_not(id: u64, request in request(), cut: prop::sample::Index) {
        let datagram = encode_request(id, &request);
        prop_assert!(datagram.len() <= BROKER_DATAGRAM_BYTES_MAX);
        let part = &datagram[..cut.index(datagram.len())];
        // Fewer leases are leases, too.
        prop_assert!(parse_request(part).is_err() || matches!(request, Request::Lease(_)));
        prop_assert_eq!(parse_request(&datagram), Ok((id, request)));
    }

    #[test]
    fn what_is_answered_is_understood_and_its_beginnings_are_not(id: u64, reply in reply(), cut: prop::sample::Index) {
        let datagram = encode_reply(id, &reply);
        prop_assert!(datagram.len() <= BROKER_DATAGRAM_BYTES_MAX);
        prop_assert!(parse_reply(&datagram[..cut.index(datagram.len())]).is_err());
        prop_assert_eq!(parse_reply(&datagram), Ok((id, reply)));
    }

    #[test]
    fn one_byte_that_is_wrong_makes_no_panic(id: u64, request in request(), at: prop::sample::Index, byte: u8) {
        let mut datagram = encode_request(id, &request);
        let at = at.index(datagram.len());
        datagram[at] = byte;
        let _ = parse_request(&datagram);
        let _ = parse_reply(&datagram);
    }
}

#[test]
fn a_refusal_names_the_question() {
    let mut datagram = encode_request(7, &Request::Thaw);
    datagram.push(0);
    assert_eq!(parse_request(&datagram), Err((7, Bad::Length)));
    datagram[4] = 99;
    assert_eq!(parse_request(&datagram), Err((7, Bad::Type)));
    datagram[0] = 0;
    assert_eq!(parse_request(&datagram), Err((0, Bad::Magic)));
}

#[test]
fn a_later_version_may_say_more_at_first() {
    let mut datagram = encode_request(1, &Request::Hello { version: 9 });
    datagram.extend([1, 2, 3]);
    let hello = Request::Hello { version: 9 };
    assert_eq!(parse_request(&datagram), Ok((1, hello)));
    let mut datagram = encode_reply(1, &Reply::Hello(Hello::default()));
    datagram.push(1);
    assert!(parse_reply(&datagram).is_ok());
}

#[test]
fn bounds_are_kept_before_memory_is_taken() {
    let long = Reply::Failed {
        errno: 1,
        text: "ü".repeat(BROKER_TEXT_BYTES_MAX),
    };
    let (_, cut) = parse_reply(&encode_reply(1, &long)).expect("it is cut");
    assert!(matches!(cut, Reply::Failed { text, .. } if text.len() == BROKER_TEXT_BYTES_MAX));
    let tuple = Tuple {
        client: "[fd00::1]:1".parse().expect("an address"),
        server: "[fd00::2]:2".parse().expect("an address"),
    };
    let lease = Lease {
        tuple,
        epoch: 1,
        until_ns: 1,
    };
    for (count, fits) in [(BROKER_LEASES_MAX, true), (BROKER_LEASES_MAX + 1, false)] {
        let datagram = encode_request(1, &Request::Lease(vec![lease; count]));
        assert_eq!(parse_request(&datagram).is_ok(), fits, "{count}");
    }
    let many = Hello {
        ports: vec![80; BROKER_LIST_MAX + 1],
        ..Hello::default()
    };
    assert!(parse_reply(&encode_reply(1, &Reply::Hello(many))).is_err());
    assert!(parse_request(&vec![0; BROKER_DATAGRAM_BYTES_MAX + 1]).is_err());
}
