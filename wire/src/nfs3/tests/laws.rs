//! Laws for any call, any reply and any bytes.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::coding::{self, STATUSES};
use crate::limits::{NFS_LISTING_BYTES_MAX, RPC_PAYLOAD_BYTES_MAX};
use crate::nfs3::{
    Args, Asked, Attributes, Before, Change, Create, Device, Entry, Found, FsInfo, FsStat, Handle,
    Kind, Listing, Made, MountArgs, Name, PathConf, Place, Read, ReadDir, Request, Results,
    SetAttributes, SetTime, Stable, Status, Time, Write, Written, parse, payload, reply,
};
use crate::rpc::xdr::Reader;
use crate::rpc::{Credential, Incoming, Next, NoCall, Record, Refusal, Split, Sys};

/// Bytes that values borrow from.
fn leaked(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), len).prop_map(|bytes| &*bytes.leak())
}

fn handle() -> impl Strategy<Value = Handle<'static>> {
    leaked(0..=64).prop_map(Handle)
}

fn place() -> impl Strategy<Value = Place<'static>> {
    (handle(), leaked(0..300)).prop_map(|(folder, name)| Place {
        folder,
        name: Name(name),
    })
}

fn time() -> impl Strategy<Value = Time> {
    (any::<u32>(), 0..1_000_000_000u32).prop_map(|(s, ns)| Time { s, ns })
}

fn set() -> impl Strategy<Value = SetAttributes> {
    let set_time = || {
        option::of(prop_oneof![
            Just(SetTime::Now),
            time().prop_map(SetTime::At)
        ])
    };
    let owner = || any::<Option<u32>>();
    let times = (set_time(), set_time());
    (owner(), owner(), owner(), any::<Option<u64>>(), times).prop_map(
        |(mode, uid, gid, size_bytes, (read_at, written_at))| SetAttributes {
            mode,
            uid,
            gid,
            size_bytes,
            read_at,
            written_at,
        },
    )
}

fn kind() -> impl Strategy<Value = Kind> {
    select(&Kind::ALL[..])
}

fn mk_nod() -> impl Strategy<Value = Args<'static>> {
    let device = any::<(u32, u32)>().prop_map(|(major, minor)| Device { major, minor });
    (place(), kind(), set(), device).prop_map(|(place, kind, set, device)| {
        let is_device = matches!(kind, Kind::Block | Kind::Character);
        let is_other = matches!(kind, Kind::Regular | Kind::Folder | Kind::Link);
        Args::MkNod {
            place,
            kind,
            set: if is_other {
                SetAttributes::default()
            } else {
                set
            },
            device: if is_device { device } else { Device::default() },
        }
    })
}

fn create() -> impl Strategy<Value = Create> {
    prop_oneof![
        set().prop_map(Create::Unchecked),
        set().prop_map(Create::Guarded),
        any::<[u8; 8]>().prop_map(Create::Exclusive),
    ]
}

fn read_dir() -> impl Strategy<Value = ReadDir<'static>> {
    let numbers = any::<(bool, u64, [u8; 8], u32, u32)>();
    (handle(), numbers).prop_map(|(folder, (has_attributes, cookie, verifier, names, all))| {
        ReadDir {
            has_attributes,
            folder,
            cookie,
            verifier,
            names_bytes_max: names,
            len_bytes_max: if has_attributes { all } else { names },
        }
    })
}

fn write() -> impl Strategy<Value = Write<'static>> {
    let numbers = (any::<(u64, u32)>(), select(&Stable::ALL[..]), 0..9000u32);
    (handle(), numbers).prop_map(
        |(file, ((offset_bytes, len_bytes), stable, payload_bytes))| Write {
            file,
            offset_bytes,
            len_bytes,
            stable,
            payload_bytes,
        },
    )
}

fn changing() -> impl Strategy<Value = Args<'static>> {
    prop_oneof![
        (handle(), set(), option::of(time())).prop_map(|(file, set, guard)| Args::SetAttr {
            file,
            set,
            guard
        }),
        write().prop_map(Args::Write),
        (place(), create()).prop_map(|(place, how)| Args::Create { place, how }),
        (place(), set()).prop_map(|(place, set)| Args::MkDir { place, set }),
        (place(), set(), leaked(0..4200)).prop_map(|(place, set, target)| Args::SymLink {
            place,
            set,
            target
        }),
        mk_nod(),
        place().prop_map(Args::Remove),
        place().prop_map(Args::RmDir),
        (place(), place()).prop_map(|(from, to)| Args::Rename { from, to }),
        (handle(), place()).prop_map(|(file, place)| Args::Link { file, place }),
        (handle(), any::<(u64, u32)>()).prop_map(|(file, (offset_bytes, len_bytes))| {
            Args::Commit {
                file,
                offset_bytes,
                len_bytes,
            }
        }),
    ]
}

fn args() -> impl Strategy<Value = Args<'static>> {
    prop_oneof![
        Just(Args::Null),
        handle().prop_map(Args::GetAttr),
        place().prop_map(Args::Lookup),
        (handle(), any::<u32>()).prop_map(|(file, mask)| Args::Access { file, mask }),
        handle().prop_map(Args::ReadLink),
        (handle(), any::<(u64, u32)>()).prop_map(|(file, (offset_bytes, len_bytes))| {
            Args::Read {
                file,
                offset_bytes,
                len_bytes,
            }
        }),
        read_dir().prop_map(Args::ReadDir),
        handle().prop_map(Args::FsStat),
        handle().prop_map(Args::FsInfo),
        handle().prop_map(Args::PathConf),
        changing(),
        changing(),
    ]
}

fn request() -> impl Strategy<Value = Request<'static>> {
    let sys = (
        leaked(0..=255),
        any::<(u32, u32)>(),
        vec(any::<u32>(), 0..=16),
    );
    let credential = prop_oneof![
        Just(Credential::Nobody),
        sys.prop_map(|(machine, (uid, gid), gids)| {
            Credential::Sys(Sys::new(machine, uid, gid, &gids))
        }),
    ];
    let mount = prop_oneof![
        Just(MountArgs::Null),
        Just(MountArgs::Dump),
        Just(MountArgs::UnmountAll),
        Just(MountArgs::Export),
        leaked(0..=1024).prop_map(MountArgs::Mount),
        leaked(0..=1024).prop_map(MountArgs::Unmount),
    ];
    let asked = prop_oneof![
        8 => args().prop_map(Asked::Nfs),
        1 => mount.prop_map(Asked::Mount),
    ];
    (any::<u32>(), credential, asked).prop_map(|(xid, credential, asked)| Request {
        xid,
        credential,
        asked,
    })
}

fn payload_of(request: &Request<'_>) -> Vec<u8> {
    match request.asked {
        Asked::Nfs(Args::Write(write)) => vec![b'p'; write.payload_bytes as usize],
        _ => Vec::new(),
    }
}

proptest! {
    #[test]
    fn a_call_is_understood_as_it_was_meant(request in request(), pieces_bytes in 1..600usize) {
        let payload_sent = payload_of(&request);
        let stream = coding::call(&request, &payload_sent);
        let mut incoming = Incoming::new(payload);
        let (mut early, mut received) = (false, 0);
        let mut complete = false;
        for mut piece in stream.chunks(pieces_bytes) {
            while !piece.is_empty() {
                prop_assert!(!complete, "a record before its end");
                let (taken, mut next) = incoming.feed(piece).expect("a good stream");
                piece = &piece[taken..];
                if let Next::Payload { len_bytes } = next {
                    // All about a WRITE is known before its payload.
                    prop_assert_eq!(parse(&incoming.record()), Ok(request));
                    early = true;
                    let here = piece.len().min(len_bytes as usize);
                    next = incoming.took_payload(here as u32);
                    received += here;
                    piece = &piece[here..];
                }
                complete = next == Next::Record;
            }
        }
        prop_assert!(complete);
        prop_assert_eq!(early, !payload_sent.is_empty());
        prop_assert_eq!(received, payload_sent.len());
        prop_assert_eq!(parse(&incoming.record()), Ok(request));
    }

    #[test]
    fn a_shorter_record_is_no_call_and_its_payload_is_not_found(request in request()) {
        let stream = coding::call(&request, &payload_of(&request));
        let head = &stream[4..stream.len() - payload_of(&request).len().next_multiple_of(4)];
        for len in 0..head.len() {
            let shorter = &head[..len];
            let no_call = parse(&Record { head: shorter, cut: false });
            prop_assert!(no_call.is_err(), "{} of {}: {:?}", len, head.len(), no_call);
            let is_found = matches!(payload(shorter), Split::At { .. });
            prop_assert!(!is_found);
        }
        let is_write = matches!(request.asked, Asked::Nfs(Args::Write(_)));
        let at_end = matches!(payload(head), Split::At { offset_bytes, .. } if offset_bytes == head.len());
        prop_assert_eq!(at_end, is_write);
        let cut = parse(&Record { head, cut: true });
        let refused = matches!(cut, Err(NoCall::Refused { why: Refusal::GarbageArgs, .. }));
        prop_assert!(refused);
    }

    #[test]
    fn no_changed_byte_and_no_bytes_cause_a_panic(
        request in request(),
        flips in vec((any::<Index>(), any::<u8>()), 1..4),
        any_head in vec(any::<u8>(), 0..200),
    ) {
        let mut stream = coding::call(&request, &payload_of(&request));
        for (at, byte) in flips {
            *at.get_mut(&mut stream) = byte;
        }
        for bytes in [&stream[4..], &any_head] {
            let _ = parse(&Record { head: bytes, cut: false });
            let _ = payload(bytes);
        }
        let mut incoming = Incoming::new(payload);
        let _ = incoming.feed(&stream);
    }
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let numbers = any::<([u32; 6], [u64; 4])>();
    let times = (time(), time(), time());
    (kind(), numbers, times).prop_map(|(kind, (small, large), times)| Attributes {
        kind,
        mode: small[0],
        links: small[1],
        uid: small[2],
        gid: small[3],
        size_bytes: large[0],
        used_bytes: large[1],
        device: Device {
            major: small[4],
            minor: small[5],
        },
        file_system: large[2],
        file_id: large[3],
        read_at: times.0,
        written_at: times.1,
        changed_at: times.2,
    })
}

fn maybe() -> impl Strategy<Value = Option<Attributes>> {
    option::of(attributes())
}

fn change() -> impl Strategy<Value = Change> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size_bytes, written_at, changed_at)| Before {
            size_bytes,
            written_at,
            changed_at,
        });
    (option::of(before), maybe()).prop_map(|(before, after)| Change { before, after })
}

/// What a procedure may answer, with a number of it.
fn results() -> impl Strategy<Value = (u32, Results<'static>)> {
    fn or<T: Clone + std::fmt::Debug>(
        good: impl Strategy<Value = T>,
    ) -> impl Strategy<Value = Result<T, Status>> {
        prop_oneof![good.prop_map(Ok), select(&STATUSES[..]).prop_map(Err)]
    }
    let found = (handle(), maybe()).prop_map(|(file, attributes)| Found { file, attributes });
    let made = (option::of(handle()), maybe());
    let made = made.prop_map(|(file, attributes)| Made { file, attributes });
    let read = (0..=RPC_PAYLOAD_BYTES_MAX, any::<bool>());
    let read = read.prop_map(|(len_bytes, is_end)| Read { len_bytes, is_end });
    let written = (any::<(u32, [u8; 8])>(), select(&Stable::ALL[..]));
    let written = written.prop_map(|((len_bytes, verifier), stable)| Written {
        len_bytes,
        stable,
        verifier,
    });
    let fs_stat = any::<([u64; 6], u32)>().prop_map(|(n, constant_s)| FsStat {
        bytes: n[0],
        free_bytes: n[1],
        available_bytes: n[2],
        files: n[3],
        free_files: n[4],
        available_files: n[5],
        constant_s,
    });
    let fs_info = (any::<([u32; 4], u64, [bool; 3])>(), time());
    let fs_info = fs_info.prop_map(|((n, file_bytes_max, can), resolution)| FsInfo {
        read_bytes_max: n[0],
        write_bytes_max: n[1],
        multiple_bytes: n[2],
        listing_bytes: n[3],
        file_bytes_max,
        resolution,
        links: can[0],
        sym_links: can[1],
        sets_times: can[2],
    });
    let conf =
        any::<(u32, u32, bool, bool)>().prop_map(|(links_max, name_bytes_max, a, b)| PathConf {
            links_max,
            name_bytes_max,
            chown_restricted: a,
            case_insensitive: b,
        });
    prop_oneof![
        Just((0, Results::Null)),
        or(attributes()).prop_map(|one| (1, Results::GetAttr(one))),
        (or(Just(())), change()).prop_map(|(one, change)| (2, Results::SetAttr(one, change))),
        (or(found), maybe()).prop_map(|(one, folder)| (3, Results::Lookup(one, folder))),
        (or(any::<u32>()), maybe()).prop_map(|(one, file)| (4, Results::Access(one, file))),
        (or(leaked(0..300)), maybe()).prop_map(|(one, file)| (5, Results::ReadLink(one, file))),
        (or(read), maybe()).prop_map(|(one, file)| (6, Results::Read(one, file))),
        (or(written), change()).prop_map(|(one, change)| (7, Results::Write(one, change))),
        (or(made), change()).prop_map(|(one, change)| (8, Results::Make(one, change))),
        (or(Just(())), change()).prop_map(|(one, change)| (12, Results::Remove(one, change))),
        (or(Just(())), change(), change())
            .prop_map(|(one, from, to)| (14, Results::Rename(one, from, to))),
        (or(Just(())), maybe(), change())
            .prop_map(|(one, file, folder)| (15, Results::Link(one, file, folder))),
        (or(fs_stat), maybe()).prop_map(|(one, file)| (18, Results::FsStat(one, file))),
        (or(fs_info), maybe()).prop_map(|(one, file)| (19, Results::FsInfo(one, file))),
        (or(conf), maybe()).prop_map(|(one, file)| (20, Results::PathConf(one, file))),
        (or(any::<[u8; 8]>()), change())
            .prop_map(|(one, change)| (21, Results::Commit(one, change))),
    ]
}

proptest! {
    #[test]
    fn a_reply_is_understood_as_it_was_meant((procedure, results) in results(), xid: u32) {
        let mut to = Vec::new();
        let behind = reply(xid, &results, &mut to);
        let behind_bytes = behind.payload_bytes + behind.pad_bytes;
        let len = to.len() as u32 - 4 + behind_bytes;
        prop_assert_eq!(&to[..4], &(1 << 31 | len).to_be_bytes());
        prop_assert_eq!(&to[4..8], &xid.to_be_bytes());
        prop_assert_eq!(len % 4, 0);
        let mut from = Reader(&to[28..]);
        prop_assert_eq!(coding::results(procedure, &mut from), Ok(results));
        prop_assert_eq!(from.0, b"");
        let read_bytes = match results {
            Results::Read(Ok(read), _) => read.len_bytes,
            _ => 0,
        };
        prop_assert_eq!(behind.payload_bytes, read_bytes);
        prop_assert!(behind.pad_bytes < 4);
    }

    #[test]
    fn a_listing_ends_where_the_client_has_no_more_room(
        asked in read_dir(),
        names_bytes_max in 0..2000u32,
        len_bytes_max in 0..3000u32,
        folder in maybe(),
        names in vec((leaked(1..40), maybe(), option::of(handle())), 0..20),
    ) {
        let has_attributes = asked.has_attributes;
        let len_bytes_max = if has_attributes { len_bytes_max } else { names_bytes_max };
        let asked = ReadDir { names_bytes_max, len_bytes_max, ..asked };
        let entry = |at: usize| {
            let (name, attributes, file) = names[at];
            let attributes = attributes.filter(|_| has_attributes);
            let file = file.filter(|_| has_attributes);
            let cookie = at as u64 + 1;
            Entry { file_id: cookie, name, cookie, attributes, file }
        };
        let mut to = b"before".to_vec();
        let mut listing = Listing::begin(1, &asked, [7; 8], folder, &mut to);
        let pushed = (0..names.len()).take_while(|at| listing.push(&entry(*at))).count();
        let is_end = pushed == names.len();
        listing.end(is_end);

        let len = to.len() as u32 - 6 - 4;
        prop_assert_eq!(&to[6..10], &(1 << 31 | len).to_be_bytes());
        let mut from = Reader(&to[6 + 28..]);
        let counted_bytes = from.0.len() - 4;
        let listed = coding::listed(has_attributes, &mut from).expect("a reply");
        prop_assert_eq!(from.0, b"");
        match listed {
            Err(status) => {
                prop_assert_eq!(status, Status::TooSmall);
                prop_assert!(pushed == 0);
                prop_assert!(len_bytes_max < 88 + 8 + 24 + 40 + 92 + 68 + 8 + 8);
            }
            Ok(listed) => {
                let entries: Vec<_> = (0..pushed).map(entry).collect();
                prop_assert_eq!(listed, (folder, [7; 8], entries, is_end));
                prop_assert!(counted_bytes <= len_bytes_max as usize);
                let of_names = (0..pushed).map(|at| 24 + names[at].0.len().next_multiple_of(4));
                let names_bytes: usize = of_names.sum();
                prop_assert!(pushed <= 1 || names_bytes <= names_bytes_max as usize);
            }
        }
    }
}

#[test]
fn a_listing_is_bounded_whatever_the_client_asks_for() {
    let asked = ReadDir {
        has_attributes: false,
        folder: Handle(b""),
        cookie: 0,
        verifier: [0; 8],
        names_bytes_max: u32::MAX,
        len_bytes_max: u32::MAX,
    };
    let mut to = Vec::new();
    let mut listing = Listing::begin(1, &asked, [0; 8], None, &mut to);
    let name = |cookie: u64| Entry {
        file_id: cookie,
        name: b"name",
        cookie,
        attributes: None,
        file: None,
    };
    let pushed = (1..=100_000)
        .take_while(|at| listing.push(&name(*at)))
        .count();
    listing.end(false);
    assert_eq!(pushed, (NFS_LISTING_BYTES_MAX as usize - 4 - 8 - 8) / 28);
    assert!(to.len() <= NFS_LISTING_BYTES_MAX as usize + 4 + 24 + 4);
}

#[test]
fn other_programs_versions_and_procedures_are_refused() {
    let call = |program: u32, version: u32, procedure: u32| {
        let numbers = [1, 0, 2, program, version, procedure, 0, 0, 0, 0];
        let head: Vec<u8> = numbers.iter().flat_map(|one| one.to_be_bytes()).collect();
        match parse(&Record {
            head: &head,
            cut: false,
        }) {
            Err(NoCall::Refused { why, .. }) => Some(why),
            _ => None,
        }
    };
    let mismatch = Some(Refusal::ProgramMismatch { low: 3, high: 3 });
    assert_eq!(call(100_003, 3, 0), None);
    assert_eq!(call(100_005, 3, 0), None);
    assert_eq!(call(100_003, 4, 0), mismatch);
    assert_eq!(call(100_003, 2, 0), mismatch);
    assert_eq!(call(100_005, 1, 0), mismatch);
    assert_eq!(call(100_000, 2, 0), Some(Refusal::ProgramUnavailable));
    assert_eq!(call(100_227, 3, 0), Some(Refusal::ProgramUnavailable));
    assert_eq!(call(100_003, 3, 22), Some(Refusal::ProcedureUnavailable));
    assert_eq!(call(100_005, 3, 6), Some(Refusal::ProcedureUnavailable));
    assert_eq!(call(100_003, 3, 1), Some(Refusal::GarbageArgs));
}

#[test]
fn names_that_no_file_can_have_are_told_apart() {
    for (name, expected) in [
        (&b"a"[..], Ok(&b"a"[..])),
        (b"..", Ok(b"..")),
        (b"\xff\xfe not UTF-8", Ok(b"\xff\xfe not UTF-8")),
        (b"", Err(Status::Acces)),
        (b"a/b", Err(Status::Acces)),
        (b"a\0", Err(Status::Acces)),
        (&[b'n'; 255], Ok(&[b'n'; 255])),
        (&[b'n'; 256], Err(Status::NameTooLong)),
    ] {
        assert_eq!(Name(name).check(), expected);
    }
    assert!(Name(b".").is_dots() && Name(b"..").is_dots() && !Name(b"...").is_dots());
}
