use std::fs;
use std::io::Write;
use std::time::{Duration, SystemTime};

use ackpace_core::blocks::{CHUNK_BYTES, chunks};

use super::super::tests::{hello, seen, unit};
use super::super::{Counters, Seen};
use super::*;
use crate::store::device::Devices;
use crate::store::direct::plain_extents;
use crate::store::files::Files;

const LEN: usize = 300_000;

/// A file on a file system that has extents, and a unit that pretends to be below it.
struct World {
    path: std::path::PathBuf,
    unit: Arc<Unit>,
    memory: std::os::fd::OwnedFd,
    files: Files,
    devices: Devices,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl World {
    /// `None`: the file system does not tell where files lie.
    fn new(name: &str) -> Option<World> {
        let test = std::env::current_exe().expect("the path of this test");
        let path = test.with_file_name(format!("blocks-{name}-{}", std::process::id()));
        fs::write(&path, vec![7; LEN]).expect("a file");
        let memory = rustix::fs::memfd_create("counters", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = memory.expect("memory");
        rustix::fs::ftruncate(&memory, 4 << 20).expect("memory");
        let world = World {
            path,
            unit: unit(),
            memory,
            files: Files::default(),
            devices: Devices::default(),
        };
        let (file, _) = world.open();
        if plain_extents(&*file, LEN as u64, 64).is_err() {
            println!("skipped: blocks: this file system has no plain extents");
            return None;
        }
        world.mount(file.fd.st_dev());
        Some(world)
    }

    fn mount(&self, st_dev: u64) {
        let len_bytes = 1 << 60;
        let counters = Counters::map(&self.memory).expect("memory");
        self.unit.mounted(
            &ackpace_wire::gateway::Hello {
                len_bytes,
                ..hello(st_dev)
            },
            counters,
        );
        self.unit.found(Seen {
            len_bytes,
            ..seen()
        });
    }

    fn open(&self) -> (Arc<File>, Version) {
        let file = fs::File::open(&self.path).expect("our own file");
        let file = self.files.of(file, &self.devices);
        let version = file.version().expect("it is open");
        (file, version)
    }

    fn find(&self, wait: Wait) -> Option<Result<Blocks, Arc<File>>> {
        let (file, version) = self.open();
        self.unit.find(file, &version, wait)
    }

    /// Whether the file is to be read through the mount.
    fn is_through_mount(&self) -> bool {
        matches!(self.find(Wait::Yes), Some(Err(_)))
    }

    /// Whether it is while it has just changed: it changes again, as often as this machine takes too long to look.
    fn is_through_mount_at_first(&self) -> bool {
        (0..100).any(|_| {
            let file = fs::OpenOptions::new().append(true).open(&self.path);
            let touched = file.and_then(|file| file.set_modified(SystemTime::now()));
            touched.expect("our own file");
            self.is_through_mount()
        })
    }

    fn blocks(&self) -> Blocks {
        std::thread::sleep(Duration::from_millis(25));
        match self.find(Wait::Yes) {
            Some(Ok(blocks)) => blocks,
            other => panic!("{other:?}: {:?}", self.unit.tally),
        }
    }

    /// As if the target had brought all bytes of the file.
    fn bring(&self, blocks: &Blocks, bytes: u8) {
        for piece in blocks.pieces(all()) {
            for (number, part) in chunks(piece.on_unit()) {
                let mut lease = self.unit.slab.lease(part.len_bytes).expect("room");
                for mut row in lease.iovecs(0, part.len_bytes) {
                    row.fill(bytes);
                }
                let version = blocks.mount.counters.get(number);
                let key = blocks.key(version);
                self.unit.slab.publish(&mut lease, key, 0, part);
            }
        }
    }
}

fn all() -> Span {
    Span {
        offset_bytes: 0,
        len_bytes: LEN as u64,
    }
}

#[test]
fn a_file_at_rest_is_read_by_its_blocks_until_it_changes() {
    let Some(world) = World::new("rest") else {
        return;
    };
    assert!(world.is_through_mount_at_first());
    std::thread::sleep(Duration::from_millis(25));
    assert!(world.find(Wait::No).is_none(), "it is to be mapped first");
    let blocks = world.blocks();
    let kept = world.find(Wait::No);
    assert!(matches!(kept, Some(Ok(kept)) if kept.id() == blocks.id()));
    assert!(blocks.hold(all()).is_none() && !blocks.is_resident(all()));
    world.bring(&blocks, 3);
    assert!(blocks.is_resident(all()) && blocks.is_current());
    let held = blocks.hold(all()).expect("all of it");
    assert!(
        held.iter()
            .all(|held| held.bytes().iter().all(|byte| *byte == 3))
    );
    let mut file = fs::OpenOptions::new().append(true).open(&world.path);
    let file = file.as_mut().expect("our own file");
    file.write_all(b"more").expect("our own file");
    assert!(!blocks.is_current(), "it was changed");
    assert!(world.is_through_mount_at_first());
    assert_ne!(world.blocks().id(), blocks.id(), "another map");
}

#[test]
fn bytes_that_were_written_over_are_not_found() {
    let Some(world) = World::new("written") else {
        return;
    };
    let blocks = world.blocks();
    world.bring(&blocks, 3);
    let first = blocks.pieces(all()).next().expect("a piece").on_unit();
    let (number, _) = chunks(first).next().expect("a chunk");
    let count = |value: u32| {
        let at_bytes = number as u64 * 4;
        rustix::io::pwrite(&world.memory, &value.to_ne_bytes(), at_bytes).expect("memory");
    };
    count(1);
    assert!(!blocks.is_resident(all()) && blocks.hold(all()).is_none());
    let behind = Span {
        offset_bytes: CHUNK_BYTES,
        len_bytes: 1,
    };
    assert!(blocks.is_resident(behind), "another chunk");
    world.bring(&blocks, 4);
    let held = blocks.hold(all()).expect("all of it");
    assert_eq!(held[0].bytes()[0], 4);
    assert_eq!(held.last().map(|held| held.bytes()[0]), Some(3));
    assert!(blocks.is_current(), "the file itself was not changed");
}

#[test]
fn another_mount_and_files_that_are_not_plain() {
    let Some(world) = World::new("other") else {
        return;
    };
    let blocks = world.blocks();
    world.bring(&blocks, 3);
    let (file, _) = world.open();
    world.unit.unmounted();
    assert!(!blocks.is_current());
    assert!(world.is_through_mount());
    world.mount(file.fd.st_dev());
    assert!(!blocks.is_current() && world.blocks().hold(all()).is_none());
    world.unit.unmounted();
    world.mount(file.fd.st_dev() + 1);
    assert!(world.is_through_mount());
    world.unit.unmounted();
    world.mount(file.fd.st_dev());
    fs::File::create(&world.path)
        .and_then(|file| file.set_len(LEN as u64))
        .expect("a hole");
    std::thread::sleep(Duration::from_millis(25));
    assert!(world.is_through_mount());
    let holes = &world.unit.tally.fallbacks[Fallback::Hole as usize];
    assert_eq!(holes.load(std::sync::atomic::Ordering::Relaxed), 1);
}
