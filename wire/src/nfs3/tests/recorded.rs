//! Real calls and replies: `recorded.txt`.

use super::coding;
use crate::nfs3::{
    Args, Asked, Export, Handle, Listing, MountArgs, MountResults, MountStatus, Name, Place,
    ReadDir, Request, Results, SetAttributes, SetTime, Stable, Time, Write, mount_reply, parse,
    payload, reply,
};
use crate::rpc::xdr::Reader;
use crate::rpc::{Credential, Incoming, Next, Sys};

struct Recorded {
    procedure: &'static str,
    call: Vec<u8>,
    reply: Vec<u8>,
}

fn all() -> Vec<Recorded> {
    let unhex = |line: &str| -> Vec<u8> {
        let digits = line.as_bytes().chunks(2);
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        digits.map(|two| byte(two).expect("hex")).collect()
    };
    let blocks = include_str!("recorded.txt").split("\n\n").skip(1);
    let one = |block: &'static str| {
        let mut lines = block.lines();
        let mut next = |start: &str| lines.next().and_then(|line| line.strip_prefix(start));
        Recorded {
            procedure: next("").expect("a procedure"),
            call: unhex(next("call ").expect("a call")),
            reply: unhex(next("reply ").expect("a reply")),
        }
    };
    blocks.map(one).collect()
}

/// The call's head without mark and payload, and the bytes of the payload.
fn head(call: &[u8]) -> (Vec<u8>, u32) {
    let mut incoming = Incoming::new(payload);
    let (mut taken, mut next) = incoming.feed(call).expect("a good stream");
    let mut payload_bytes = 0;
    if let Next::Payload { len_bytes } = next {
        payload_bytes = len_bytes;
        next = incoming.took_payload(len_bytes);
        taken += len_bytes as usize;
    }
    if next == Next::More {
        let padding = &call[taken..];
        assert_eq!(incoming.feed(padding), Ok((padding.len(), Next::Record)));
    } else {
        assert_eq!((taken, next), (call.len(), Next::Record));
    }
    assert!(!incoming.record().cut);
    (incoming.record().head.to_vec(), payload_bytes)
}

fn request(head: &[u8]) -> Request<'_> {
    parse(&crate::rpc::Record { head, cut: false }).expect("a call")
}

#[test]
fn all_28_procedures_are_recorded() {
    let mut names: Vec<_> = all().iter().map(|one| one.procedure).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 22 + 6);
}

#[test]
fn calls_are_understood_as_they_were_meant() {
    let sys = Sys::new(b"client.example", 1000, 1000, &[4, 24, 1000]);
    for one in all() {
        let (head, payload_bytes) = head(&one.call);
        let request = request(&head);
        assert_eq!(
            request.credential,
            Credential::Sys(sys),
            "{}",
            one.procedure
        );
        let payload = &one.call[4 + head.len()..][..payload_bytes as usize];
        let mut again = coding::call(&request, payload);
        let stamp = 4 + 6 * 4 + 2 * 4; // ours is 0
        again[stamp..stamp + 4].copy_from_slice(&one.call[stamp..stamp + 4]);
        assert_eq!(again, one.call, "{}", one.procedure);
    }
}

#[test]
fn replies_are_encoded_as_the_other_server_encodes_them() {
    for one in all() {
        let (head, _) = head(&one.call);
        let asked = request(&head);
        let xid = asked.xid;
        let procedure = u32::from_be_bytes(*head[20..].first_chunk().expect("a procedure"));
        let mut from = Reader(&one.reply[4 + 24..]);
        let mut to = Vec::new();
        match asked.asked {
            Asked::Nfs(Args::ReadDir(ask)) => {
                let listed = coding::listed(ask.has_attributes, &mut from).expect("a reply");
                let (folder, verifier, entries, is_end) = listed.expect("success");
                let ask = ReadDir {
                    len_bytes_max: u32::MAX,
                    names_bytes_max: u32::MAX,
                    ..ask
                };
                let mut listing = Listing::begin(xid, &ask, verifier, folder, &mut to);
                assert!(entries.iter().all(|entry| listing.push(entry)));
                listing.end(is_end);
            }
            Asked::Nfs(_) => {
                let results = coding::results(procedure, &mut from).expect("a reply");
                let behind = reply(xid, &results, &mut to);
                let left = (behind.payload_bytes + behind.pad_bytes) as usize;
                to.extend_from_slice(&one.reply[to.len()..][..left]);
            }
            Asked::Mount(args) => {
                let results = match args {
                    MountArgs::Mount(b"/exp") => MountResults::Mount(
                        Handle::read(&mut {
                            from.u32().expect("a status");
                            from
                        })
                        .map_err(|_| MountStatus::Io),
                    ),
                    MountArgs::Mount(_) => MountResults::Mount(Err(MountStatus::Acces)),
                    MountArgs::Dump => MountResults::Dump,
                    MountArgs::Export => MountResults::Export(&[Export {
                        path: b"/exp",
                        clients: &[],
                    }]),
                    _ => MountResults::Void,
                };
                mount_reply(xid, &results, &mut to);
            }
        }
        assert_eq!(to, one.reply, "{}", one.procedure);
    }
}

#[test]
fn some_of_them_by_hand() {
    let asked = |procedure: &str| {
        let all = all();
        let mut found = all.iter().filter(|one| one.procedure == procedure);
        found.next().expect("it is recorded").call.clone()
    };
    let (head_of_write, payload_bytes) = head(&asked("NFS WRITE"));
    let Asked::Nfs(Args::Write(write)) = request(&head_of_write).asked else {
        panic!("a WRITE");
    };
    assert_eq!(payload_bytes, 5);
    let expected = Write {
        file: write.file,
        offset_bytes: 4096,
        len_bytes: 5,
        stable: Stable::Unstable,
        payload_bytes: 5,
    };
    assert_eq!(write, expected);

    let (head_of_create, _) = head(&asked("NFS CREATE"));
    let Asked::Nfs(Args::Create { place, how }) = request(&head_of_create).asked else {
        panic!("a CREATE");
    };
    let folder = place.folder;
    assert_eq!(folder.0.len(), 24);
    let name = Name(b"new file");
    assert_eq!(place, Place { folder, name });
    let set = SetAttributes {
        mode: Some(0o644),
        size_bytes: Some(0),
        read_at: Some(SetTime::At(Time {
            s: 1_700_000_000,
            ns: 5,
        })),
        written_at: Some(SetTime::Now),
        ..SetAttributes::default()
    };
    assert_eq!(how, crate::nfs3::Create::Guarded(set));
}

#[test]
fn a_call_and_its_reply_by_hand() {
    #[rustfmt::skip]
    let call = [
        0x80, 0, 0, 44, // the last fragment
        0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 2, // xid, CALL, version of RPC
        0, 1, 0x86, 0xa3, 0, 0, 0, 3, 0, 0, 0, 1, // NFS 3 GETATTR
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // no credentials, no verifier
        0, 0, 0, 0, // an empty handle
    ];
    let (head, _) = head(&call);
    let expected = Request {
        xid: 9,
        credential: Credential::Nobody,
        asked: Asked::Nfs(Args::GetAttr(Handle(b""))),
    };
    assert_eq!(request(&head), expected);
    let mut to = Vec::new();
    let stale = crate::nfs3::Status::Stale;
    reply(9, &Results::GetAttr(Err(stale)), &mut to);
    #[rustfmt::skip]
    assert_eq!(to, [
        0x80, 0, 0, 28, 0, 0, 0, 9, 0, 0, 0, 1, // xid, REPLY
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, // accepted, no verifier, success
        0, 0, 0, 70,
    ]);
}
