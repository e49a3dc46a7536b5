use std::fs;

use ackpace_core::units::MIB;

use super::private::{by_child, private_file};
use super::*;

const BYTES: u64 = 8 * SEGMENT_BYTES;

fn object(index: u32) -> ObjectId {
    ObjectId {
        device: 1,
        index,
        generation: 0,
    }
}

fn span(offset_bytes: u64, len_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes,
    }
}

fn slab() -> Arc<Slab> {
    Arc::new(Slab::open(None, BYTES).expect("a slab"))
}

/// Leases, writes `byte` everywhere, and publishes it as the start of an object.
fn keep(slab: &Arc<Slab>, id: u32, len_bytes: u64, byte: u8) -> bool {
    let Some(mut lease) = slab.lease(len_bytes) else {
        return false;
    };
    for mut piece in lease.iovecs(0, len_bytes) {
        piece.fill(byte);
    }
    slab.publish(&mut lease, object(id), 0, span(0, len_bytes));
    true
}

#[test]
fn what_was_published_is_found_and_stays_while_it_is_pinned() {
    let slab = slab();
    assert!(keep(&slab, 1, 3 * MIB, 1));
    assert!(slab.covers(object(1), span(0, 3 * MIB)));
    let pinned = slab.find(object(1), span(MIB, 4 * MIB)).expect("kept");
    assert_eq!(pinned.len_bytes(), MIB, "the rest is in the next segment");
    assert_eq!((pinned.segment(), pinned.offset_bytes()), (0, MIB));
    for id in 2..40 {
        keep(&slab, id, 3 * MIB, 2);
    }
    assert!(pinned.bytes().iter().all(|byte| *byte == 1));
    let counts = slab.counts();
    assert_eq!((counts.segments, counts.segments_pinned), (8, 1));
    assert_eq!(counts.allocated_bytes, BYTES);
    assert!(counts.kept_bytes <= BYTES && counts.kept_bytes > BYTES / 2);
    let found = slab.find(object(39), span(0, MIB)).expect("kept last");
    let mut read = vec![0; MIB as usize];
    let read_bytes = rustix::io::pread(found.fd(), &mut read, found.offset_bytes());
    assert_eq!(read_bytes.ok(), Some(MIB as usize));
    assert!(read.iter().all(|byte| *byte == 2), "the file says the same");
}

#[test]
fn an_object_that_changed_is_not_found_but_what_is_being_sent_stays() {
    let slab = slab();
    assert!(keep(&slab, 1, MIB, 1));
    let pinned = slab.find(object(1), span(0, MIB)).expect("kept");
    slab.forget(object(1));
    assert!(slab.find(object(1), span(0, 1)).is_none());
    assert!(keep(&slab, 1, MIB, 2));
    let found = slab.find(object(1), span(0, MIB)).expect("kept again");
    assert!(found.bytes().iter().all(|byte| *byte == 2));
    assert!(pinned.bytes().iter().all(|byte| *byte == 1));
}

#[test]
fn a_crowd_of_pins_is_told_until_they_go() {
    let slab = slab();
    let leases: Vec<_> = (0..4).map(|_| slab.lease(SEGMENT_BYTES)).collect();
    assert!(leases.iter().all(Option::is_some));
    assert!(!slab.is_crowded(), "half of them");
    let more: Vec<_> = (0..4).map(|_| slab.lease(SEGMENT_BYTES)).collect();
    assert!(slab.is_crowded());
    assert!(slab.lease(1).is_none());
    drop(more);
    assert!(!slab.is_crowded());
    assert!(slab.lease(1).is_some());
    assert!(slab.lease(0).is_none() && slab.lease(1 << 40).is_none());
}

#[test]
#[should_panic(expected = "of SlabLease")]
fn nobody_receives_over_what_is_published() {
    let slab = slab();
    let mut lease = slab.lease(8192).expect("room");
    slab.publish(&mut lease, object(1), 0, span(0, 4096));
    assert_eq!(lease.iovecs(4096, 4096).len(), 1);
    lease.iovecs(0, 8192);
}

#[test]
fn a_tmpfs_that_is_full_is_no_room_and_no_signal() {
    let Ok(file) = private_file(4 * SEGMENT_BYTES) else {
        return println!("skipped: slab-full: no tmpfs of our own here");
    };
    let slab = Arc::new(Slab::of(file, 8, None).expect("a slab"));
    let kept = (0..40)
        .filter(|id| keep(&slab, *id, SEGMENT_BYTES, 3))
        .count();
    assert!(kept >= 20, "{kept}: what is there goes round");
    assert!(kept < 40, "some found no room");
    assert!(slab.counts().allocated_bytes <= 4 * SEGMENT_BYTES);
}

#[test]
fn without_the_right_to_mount_a_child_makes_the_same_file() {
    // As root, too: its user namespace is one of an ordinary user.
    let size = c"16777216";
    match by_child(size) {
        Ok(file) => {
            let slab = Slab::of(file, 8, None).expect("a slab");
            assert!(memory::is_huge(&slab.memory.file).expect("fstat"));
            assert!(keep(&Arc::new(slab), 1, 3 * MIB, 1));
        }
        Err(refused) => println!("skipped: slab-child: {refused}"),
    }
}

#[test]
fn a_folder_is_refused_with_the_cure_or_says_what_is_lost() {
    let refused = |dir: &str, bytes| match Slab::open(Some(Path::new(dir)), bytes) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert!(refused("/proc", BYTES).contains(
        "/proc is not in a tmpfs; mount one: mount -t tmpfs -o huge=always,size=16777216"
    ));
    assert!(refused("/no/such", BYTES).contains("--slab-dir"));
    assert!(refused("/proc", 1000).contains("16MiB"));
    let Ok(told) = rustix::fs::statvfs("/dev/shm") else {
        return println!("skipped: slab-folder: no /dev/shm here");
    };
    let free_bytes = told.f_bavail * told.f_frsize;
    if told.f_blocks == 0 || free_bytes < 2 * BYTES || fs::write("/dev/shm/.ackpace", "").is_err() {
        return println!("skipped: slab-folder: /dev/shm is full, or not ours");
    }
    let _ = fs::remove_file("/dev/shm/.ackpace");
    assert!(refused("/dev/shm", free_bytes + (1 << 30)).contains("remount,size="));
    let slab = Slab::open(Some(Path::new("/dev/shm")), BYTES).expect("a slab");
    assert_eq!(slab.is_copied(), slab.lost().is_some());
    if let Some(lost) = slab.lost() {
        assert!(
            lost.ends_with("mount -o remount,huge=always /dev/shm"),
            "{lost}"
        );
    }
}

#[test]
fn a_copied_slab_keeps_its_memory() {
    let slab = Arc::new(Slab::open(None, BYTES).expect("a slab").copied());
    for id in 0..20 {
        assert!(keep(&slab, id, SEGMENT_BYTES, id as u8));
        let found = slab.find(object(id), span(0, SEGMENT_BYTES)).expect("kept");
        assert!(found.bytes().iter().all(|byte| *byte == id as u8));
    }
    assert_eq!(slab.counts().allocated_bytes, BYTES);
}
