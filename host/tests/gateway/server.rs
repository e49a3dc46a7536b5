//! What a server learns: the greeting, the counters, and the end.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use ackpace_wire::gateway::{COUNTERS, HELLO_BYTES, Hello};
use rustix::cmsg_space;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketAddrUnix,
    SocketType,
};

use crate::world::{DISK_BYTES, World, pattern, target, until, write_direct};

/// Connects as a server does.
fn connect(socket: &Path) -> (OwnedFd, Hello, File) {
    let line = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    net::connect(&line, &SocketAddrUnix::new(socket).expect("a path")).expect("it listens");
    let mut bytes = [0; HELLO_BYTES + 1];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut bytes)];
    let came = net::recvmsg(&line, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC);
    let len = came.expect("a greeting").bytes;
    let mut counters = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            counters.extend(all);
        }
    }
    let hello = Hello::parse(&bytes[..len]).expect("a hello");
    (
        line,
        hello,
        File::from(counters.pop().expect("a descriptor")),
    )
}

fn counts(file: &File) -> Vec<u32> {
    let mut bytes = vec![0; 4 * COUNTERS];
    file.read_exact_at(&mut bytes, 0).expect("4 MiB");
    let words = bytes.chunks_exact(4);
    words
        .map(|word| u32::from_ne_bytes(word.try_into().expect("four")))
        .collect()
}

#[test]
fn a_server_is_told_where_the_unit_is_and_which_chunks_change() {
    let Some(tgtd) = target() else { return };
    let world = World::new(&tgtd);
    let gateway = world.start(&["--format"]);
    let (line, hello, counters) = connect(&world.socket());
    let mount = fs::canonicalize(world.mount()).expect("it is there");
    assert_eq!(hello.device, fs::metadata(&mount).expect("mounted").dev());
    assert_eq!((hello.len_bytes, hello.block_bytes), (DISK_BYTES, 512));
    assert_eq!(hello.mount, mount.to_str().expect("UTF-8"));
    assert!(hello.url.starts_with("iscsi://127.0.0.1:") && !hello.is_read_only);
    assert!(!hello.serial.is_empty());
    assert!(counters.write_at(b"x", 0).is_err(), "it only reads");

    let before = counts(&counters);
    let path = world.mount().join("file");
    let bytes = pattern(5, 4 << 20);
    write_direct(&path, &bytes).expect("room");
    rustix::fs::syncfs(File::open(&path).expect("just written")).expect("synced");
    // Nothing is under way after that: each chunk was counted before and after each write of it.
    let after = counts(&counters);
    let changed: Vec<usize> = (0..COUNTERS)
        .filter(|at| before[*at] != after[*at])
        .collect();
    assert!(
        changed.len() >= 64,
        "4 MiB lie in 64 chunks: {}",
        changed.len()
    );
    for at in changed {
        assert_eq!(after[at].wrapping_sub(before[at]) % 2, 0, "chunk {at}");
    }
    // By where the bytes lie in the unit.
    let disk = fs::read(tgtd.disk()).expect("the disk");
    for (nth, piece) in bytes.chunks(65_536).enumerate() {
        let mut blocks = (0..disk.len()).step_by(1024);
        let found = blocks.find(|at| disk[*at..].starts_with(&piece[..1024]));
        let at = found.unwrap_or_else(|| panic!("piece {nth} is on the disk")) / 65_536;
        assert!(after[at] > before[at], "piece {nth}");
    }

    // They are the same for the next answerer.
    gateway.kill_answerer();
    write_direct(&path, &pattern(6, 4 << 20)).expect("room");
    assert!(
        counts(&counters)
            .iter()
            .zip(&after)
            .all(|(now, then)| now >= then)
    );
    assert!(counts(&counters) != after);

    gateway.terminate();
    let mut byte = [0];
    let came = net::recv(&line, &mut byte[..], RecvFlags::empty());
    assert_eq!(came.map(|(len, _)| len), Ok(0), "the mount goes");
    until("it is gone", || !world.is_mounted());
    gateway.stop_ended();
}
