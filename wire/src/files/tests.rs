use super::*;
use crate::limits::{
    FILES_DATAGRAM_BYTES_MAX, NFS_NAME_BYTES_MAX, NFS_PATH_BYTES_MAX, RPC_GROUPS_MAX,
};
use crate::nfs3::SetTime;
use crate::rpc::Bad;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn known() -> impl Strategy<Value = Known> {
    let path = "([a-zü]{1,9}(/[a-z.]{3,9}){0,3})?";
    (path, any::<u64>(), any::<u64>()).prop_map(|(path, device, inode)| Known {
        path: path.into_bytes(),
        device,
        inode,
    })
}

fn spot() -> impl Strategy<Value = Spot> {
    (known(), "[a-zü]{1,99}").prop_map(|(folder, name)| Spot {
        folder,
        name: name.into_bytes(),
    })
}

fn time() -> impl Strategy<Value = Time> {
    (any::<u32>(), 0..1_000_000_000u32).prop_map(|(s, ns)| Time { s, ns })
}

fn set() -> impl Strategy<Value = SetAttributes> {
    let at = || {
        option::of(prop_oneof![
            Just(SetTime::Now),
            time().prop_map(SetTime::At)
        ])
    };
    let numbers = any::<(Option<u32>, Option<u32>, Option<u32>, Option<u64>)>();
    (numbers, at(), at()).prop_map(|((mode, uid, gid, size_bytes), read_at, written_at)| {
        SetAttributes {
            mode,
            uid,
            gid,
            size_bytes,
            read_at,
            written_at,
        }
    })
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        set().prop_map(How::Unchecked),
        set().prop_map(How::Guarded),
        any::<Verifier>().prop_map(How::Exclusive),
    ]
}

fn node() -> impl Strategy<Value = Node> {
    let device = any::<(u32, u32)>().prop_map(|(major, minor)| Device { major, minor });
    prop_oneof![
        Just(Node::Pipe),
        Just(Node::Socket),
        device.clone().prop_map(Node::Block),
        device.prop_map(Node::Character),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let aim = prop_oneof![Just(For::Reading), Just(For::Writing)];
    let operation = prop_oneof![
        known().prop_map(|file| Operation::Look(file.path)),
        (known(), aim).prop_map(|(file, aim)| Operation::Open(file, aim)),
        (spot(), how()).prop_map(|(spot, how)| Operation::Create(spot, how)),
        (spot(), set()).prop_map(|(spot, set)| Operation::MakeFolder(spot, set)),
        (spot(), "[a-z./]{1,99}", set()).prop_map(|(spot, target, set)| Operation::MakeLink(
            spot,
            target.into_bytes(),
            set
        )),
        (spot(), node(), set()).prop_map(|(spot, node, set)| Operation::MakeNode(spot, node, set)),
        spot().prop_map(Operation::Remove),
        spot().prop_map(Operation::RemoveFolder),
        (spot(), spot()).prop_map(|(from, to)| Operation::Rename(from, to)),
        (known(), spot()).prop_map(|(file, spot)| Operation::AddName(file, spot)),
        (known(), set(), option::of(time()))
            .prop_map(|(file, set, guard)| Operation::Set(file, set, guard)),
    ];
    let gids = vec(any::<u32>(), 0..=RPC_GROUPS_MAX);
    let user = (any::<u32>(), any::<u32>(), gids);
    let user = user.prop_map(|(uid, gid, gids)| User { uid, gid, gids });
    prop_oneof![
        1 => Just(Request::Hello),
        20 => (user, operation).prop_map(|(user, operation)| Request::Do(user, operation)),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let here = any::<(u64, u64, bool)>().prop_map(|(device, inode, allows_root)| Reply::Here {
        device,
        inode,
        allows_root,
    });
    prop_oneof![
        here,
        Just(Reply::Done),
        any::<bool>().prop_map(|is_new| Reply::Opened { is_new }),
        Just(Reply::Found),
        Just(Reply::NotSync),
        Just(Reply::Moved),
        any::<i32>().prop_map(|errno| Reply::Failed { errno }),
    ]
}

proptest! {
    #[test]
    fn what_is_asked_is_understood_and_its_beginnings_are_not(request in request(), cut: prop::sample::Index) {
        let datagram = encode_request(&request);
        prop_assert!(datagram.len() <= FILES_DATAGRAM_BYTES_MAX);
        prop_assert!(parse_request(&datagram[..cut.index(datagram.len())]).is_err());
        prop_assert_eq!(parse_request(&datagram), Ok(request));
    }

    #[test]
    fn what_is_answered_is_understood_and_its_beginnings_are_not(reply in reply(), cut: prop::sample::Index) {
        let datagram = encode_reply(&reply);
        prop_assert!(parse_reply(&datagram[..cut.index(datagram.len())]).is_err());
        prop_assert_eq!(parse_reply(&datagram), Ok(reply));
    }

    #[test]
    fn one_byte_that_is_wrong_makes_no_panic(request in request(), at: prop::sample::Index, byte: u8) {
        let mut datagram = encode_request(&request);
        let at = at.index(datagram.len());
        datagram[at] = byte;
        let _ = parse_request(&datagram);
        let _ = parse_reply(&datagram);
    }
}

fn removing(path: &[u8], name: &[u8]) -> Vec<u8> {
    let folder = Known {
        path: path.to_vec(),
        ..Known::default()
    };
    let name = name.to_vec();
    let operation = Operation::Remove(Spot { folder, name });
    encode_request(&Request::Do(User::default(), operation))
}

#[test]
fn what_leaves_a_folder_is_no_name() {
    for (path, name) in [
        (&b""[..], &b"a"[..]),
        (b"a/b", b"..."),
        (b"a", &[b'n'; NFS_NAME_BYTES_MAX]),
        (b"\xff\xfe", b"\xff"),
    ] {
        assert!(parse_request(&removing(path, name)).is_ok(), "{path:?}");
    }
    for (path, name) in [
        (&b""[..], &b""[..]),
        (b"", b"."),
        (b"", b".."),
        (b"", b"a/b"),
        (b"", b"a\0"),
        (b"/", b"a"),
        (b"/etc", b"a"),
        (b"a/", b"a"),
        (b"a//b", b"a"),
        (b"a/../b", b"a"),
        (b"..", b"a"),
        (b"a\0b", b"a"),
    ] {
        let parsed = parse_request(&removing(path, name));
        assert_eq!(parsed, Err(Bad::Value), "{path:?} {name:?}");
    }
    let long = removing(b"", &[b'n'; NFS_NAME_BYTES_MAX + 1]);
    assert_eq!(parse_request(&long), Err(Bad::Long));
    let long = removing(&[b'n'; NFS_PATH_BYTES_MAX + 1], b"a");
    assert_eq!(parse_request(&long), Err(Bad::Long));
}

#[test]
fn bounds_are_kept_before_memory_is_taken() {
    let user = |groups| User {
        gids: vec![1; groups],
        ..User::default()
    };
    let ask = |user| {
        let open = Operation::Open(Known::default(), For::Reading);
        parse_request(&encode_request(&Request::Do(user, open)))
    };
    assert!(ask(user(RPC_GROUPS_MAX)).is_ok());
    assert_eq!(ask(user(RPC_GROUPS_MAX + 1)), Err(Bad::Long));
    let folder = || Known {
        path: vec![b'p'; NFS_PATH_BYTES_MAX],
        ..Known::default()
    };
    let spot = || Spot {
        folder: folder(),
        name: vec![b'n'; NFS_NAME_BYTES_MAX],
    };
    let longest = [
        Operation::Rename(spot(), spot()),
        Operation::AddName(folder(), spot()),
        Operation::MakeLink(
            spot(),
            vec![b't'; NFS_PATH_BYTES_MAX],
            SetAttributes::default(),
        ),
    ];
    for operation in longest {
        let request = Request::Do(user(RPC_GROUPS_MAX), operation);
        assert_eq!(parse_request(&encode_request(&request)), Ok(request));
    }
    assert!(parse_request(&vec![0; FILES_DATAGRAM_BYTES_MAX + 1]).is_err());
    for target in [&b""[..], b"a\0b"] {
        let link = Operation::MakeLink(spot(), target.to_vec(), SetAttributes::default());
        let datagram = encode_request(&Request::Do(user(0), link));
        assert_eq!(parse_request(&datagram), Err(Bad::Value));
    }
}

#[test]
fn another_version_is_not_understood() {
    let mut datagram = encode_request(&Request::Hello);
    datagram[7] += 1;
    assert_eq!(parse_request(&datagram), Err(Bad::Value));
    datagram[7] -= 1;
    datagram.push(0);
    assert_eq!(parse_request(&datagram), Err(Bad::Long));
}
