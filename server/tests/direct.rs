//! Reads past the page cache on a real file system: ext4 on a loop device, mounted where only the test sees it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use ackpace::mailbox::ThreadWaker;
use ackpace::store::attributes::{file_system, known};
use ackpace::store::device::Devices;
use ackpace::store::direct::{Direct, Why, extents, open_direct};
use ackpace::store::pool::{Lease, Pool};
use ackpace::store::reader::Reader;
use ackpace::store::ring::{ReadOrder, Ring, refusal};
use ackpace_core::conn::Span;
use ackpace_core::disk::ReadError;
use ackpace_core::limits::{READ_ALIGN_BYTES, SLOT_BYTES};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::{UnshareFlags, unshare_unsafe};

const MIB: u64 = 1 << 20;

#[test]
fn threads_and_the_ring_read_what_the_page_cache_shows() {
    const SEED: u64 = 7;
    println!("seed {SEED}");
    on_ext4("same", &[], |dir, _| {
        let files = [
            write(dir, "one-byte", &[(0, 1)]),
            write(dir, "one-block", &[(0, 4096)]),
            write(dir, "odd-tail", &[(0, 3 * MIB + 777)]),
            // Holes at the start, in the middle and at the end.
            write(
                dir,
                "sparse",
                &[(70_000, 5000), (MIB, 300_001), (4 * MIB, 0)],
            ),
            write_in_pieces(dir, "fragmented"),
        ];
        let (pool, mut random) = (pool(POOL_SLOTS), Random(SEED));
        for file in files {
            let len_bytes = file.content.len() as u64;
            let mut spans = vec![span(0, 4 * MIB), span(0, 4096), span(len_bytes, 4096)];
            spans.push(span(len_bytes.saturating_sub(1), SLOT_BYTES));
            spans.extend((0..30).map(|_| {
                span(
                    random.below(len_bytes + 9000),
                    1 + random.below(4 * MIB - 4096),
                )
            }));
            for span in spans {
                file.check(span, &pool);
            }
        }
        assert_eq!(pool.free_slots(), POOL_SLOTS, "all came back");
    });
}

#[test]
fn a_file_that_is_renamed_or_deleted_is_still_the_one_that_was_opened() {
    on_ext4("gone", &[], |dir, _| {
        let file = write(dir, "file", &[(0, 100_000)]);
        fs::write(dir.join("other"), "another").expect("a file");
        fs::rename(dir.join("other"), dir.join("file")).expect("a rename");
        let direct = open_direct(&file.fd).expect("the old inode");
        assert_eq!(direct.len_bytes(), 100_000);
        file.check(span(0, MIB), &pool(POOL_SLOTS));
    });
}

#[test]
fn data_in_the_inode_is_refused_or_right() {
    on_ext4("inline", &["-O", "inline_data"], |dir, _| {
        let file = write(dir, "small", &[(0, 50)]);
        match open_direct(&file.fd) {
            Ok(_) => file.check(span(0, 4096), &pool(POOL_SLOTS)),
            Err(why) => assert_eq!(why, Why::Refused),
        }
        let map = extents(&file.fd, 64).expect("ext4 tells");
        assert!(map.iter().all(|extent| extent.phys_offset_bytes.is_none()));
    });
}

#[test]
fn a_written_file_is_mapped_whole_and_in_order_and_what_is_not_yet_written_has_no_place() {
    on_ext4("map", &[], |dir, _| {
        for file in [
            write(dir, "whole", &[(0, 3 * MIB + 777)]),
            write_in_pieces(dir, "fragmented"),
        ] {
            let map = extents(&file.fd, 1000).expect("ext4 tells");
            let mut end_bytes = 0;
            for extent in &map {
                assert_eq!(extent.file_offset_bytes, end_bytes, "{map:?}");
                assert!(extent.phys_offset_bytes.is_some(), "{map:?}");
                end_bytes += extent.len_bytes;
            }
            assert!(end_bytes >= file.content.len() as u64);
            assert_eq!(
                extents(&file.fd, 1).map(|map| map.len()),
                Some(1),
                "as asked"
            );
        }
        let sparse = write(dir, "sparse", &[(0, 4096), (MIB, 4096)]);
        let map = extents(&sparse.fd, 64).expect("ext4 tells");
        let starts: Vec<u64> = map.iter().map(|extent| extent.file_offset_bytes).collect();
        assert_eq!(starts, [0, MIB], "the hole is left out");

        let unwritten = File::create(dir.join("unwritten")).expect("a file");
        rustix::fs::fallocate(&unwritten, rustix::fs::FallocateFlags::empty(), 0, MIB)
            .expect("room");
        let map = extents(&unwritten, 64).expect("ext4 tells");
        assert!(!map.is_empty() && map.iter().all(|extent| extent.phys_offset_bytes.is_none()));
        // The disk is the loop device: the one below its file is not followed.
        let stat = rustix::fs::fstat(&sparse.fd).expect("an open file");
        let devices = Devices::default();
        let id = file_system(&known(&sparse.fd).expect("an open file"));
        let met = devices.of(&sparse.fd, id);
        assert_eq!(
            (&*met.device.disks, met.base_bytes),
            (&[stat.st_dev][..], 0)
        );
        assert!(met.is_here && !met.device.memory);
        let empty = File::create(dir.join("empty")).expect("a file");
        assert_eq!(extents(&empty, 64), Some(Vec::new()));
    });
}

#[test]
fn a_disk_that_ends_too_early_is_an_error_at_the_first_lost_block() {
    on_ext4("short", &[], |dir, image| {
        let file = write(dir, "file", &[(0, 8 * MIB)]);
        let map = extents(&file.fd, 64).expect("ext4 tells");
        let phys_bytes = map[0].phys_offset_bytes.expect("it is written");
        let lost_bytes = 3 * MIB + 5 * READ_ALIGN_BYTES;
        assert!(map[0].len_bytes > lost_bytes, "{map:?}");
        // Behind this the device has nothing any more.
        let cut = File::options().write(true).open(image).expect("the image");
        cut.set_len(phys_bytes + lost_bytes)
            .expect("a shorter image");
        let all = span(2 * MIB, 4 * MIB);
        let error = ReadError {
            errno: libc::EIO,
            offset_bytes: lost_bytes,
        };
        for (how, result, lease) in file.read(all, &pool(POOL_SLOTS)) {
            assert_eq!(result, Err(error), "{how}");
            let got_bytes = lost_bytes - 2 * MIB;
            let expected = &file.content[2 * MIB as usize..lost_bytes as usize];
            assert!(
                bytes(&lease, got_bytes) == expected,
                "{how}: what lies before it is there"
            );
        }
    });
}

#[test]
fn file_systems_without_a_disk_of_their_own_say_so() {
    on_ext4("refused", &[], |dir, _| {
        let (lower, upper, work, merged) = (
            dir.join("lower"),
            dir.join("upper"),
            dir.join("work"),
            dir.join("merged"),
        );
        for at in [&lower, &upper, &work, &merged] {
            fs::create_dir(at).expect("a directory");
        }
        fs::write(lower.join("file"), "below").expect("a file");
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            lower.display(),
            upper.display(),
            work.display()
        );
        let why = |at: &Path| {
            let fd = File::open(at.join("file")).expect("the file").into();
            open_direct(&fd)
                .map(|_| ())
                .expect_err("no disk")
                .to_string()
        };
        if run(
            "mount",
            &["-t", "overlay", "-o", &options, "overlay"],
            &merged,
        ) {
            assert_eq!(why(&merged), "overlayfs shows files of another file system");
            assert!(run("umount", &[], &merged));
        } else {
            skip("refused", "no overlayfs here");
        }
        assert!(run("mount", &["-t", "tmpfs", "tmpfs"], &merged));
        fs::write(merged.join("file"), "in memory").expect("a file");
        assert_eq!(why(&merged), "the file is in memory (tmpfs)");
        assert!(run("umount", &[], &merged));
    });
}

/// A file of the test's file system, on its disk and not in the page cache.
struct Written {
    fd: OwnedFd,
    content: Vec<u8>,
}

impl Written {
    /// Reads a span by a thread and by the ring.
    fn read(
        &self,
        span: Span,
        pool: &Arc<Pool>,
    ) -> Vec<(&'static str, Result<u64, ReadError>, Lease)> {
        let direct = Arc::new(open_direct(&self.fd).expect("ext4 has O_DIRECT"));
        let slots = span.len_bytes.div_ceil(SLOT_BYTES) as u32;
        let lease = || pool.lease(slots).expect("slots");
        let mut by_thread = lease();
        let reader = Reader::open();
        let result = reader.read_direct(&direct, span, &mut by_thread);
        let mut all = vec![("thread", result, by_thread)];
        drop(lease()); // the first slots that are free, with old bytes in them
        all.extend(by_ring(direct, span, lease()).map(|(result, lease)| ("ring", result, lease)));
        all
    }

    fn check(&self, span: Span, pool: &Arc<Pool>) {
        let from = (span.offset_bytes as usize).min(self.content.len());
        let to = (span.end_bytes() as usize).min(self.content.len());
        for (how, result, lease) in self.read(span, pool) {
            let len_bytes = (to - from) as u64;
            assert_eq!(result, Ok(len_bytes), "{how}: {span:?}");
            assert!(
                bytes(&lease, len_bytes) == self.content[from..to],
                "{how}: other bytes for {span:?}"
            );
        }
    }
}

fn by_ring(
    direct: Arc<Direct>,
    span: Span,
    lease: Lease,
) -> Option<(Result<u64, ReadError>, Lease)> {
    let mut ring = Ring::new(1)
        .map_err(|error| skip("ring", &refusal(&error)))
        .ok()?;
    let order = ReadOrder {
        tag: 5,
        direct,
        span,
        lease,
    };
    assert!(ring.submit(order).is_ok());
    loop {
        let mut fds = [PollFd::new(&ring, PollFlags::IN)];
        poll(&mut fds, None).expect("poll");
        if let Some(done) = ring.completions().next() {
            assert_eq!((done.tag, done.span), (5, span));
            return Some((done.result, done.lease));
        }
    }
}

fn bytes(lease: &Lease, len_bytes: u64) -> Vec<u8> {
    let slices = lease.slices(0, len_bytes);
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

/// Rounded as the disk machine does it.
fn span(offset_bytes: u64, len_bytes: u64) -> Span {
    let from_bytes = offset_bytes / READ_ALIGN_BYTES * READ_ALIGN_BYTES;
    let end_bytes = (offset_bytes + len_bytes).next_multiple_of(READ_ALIGN_BYTES);
    Span {
        offset_bytes: from_bytes,
        len_bytes: (end_bytes - from_bytes).min(4 * MIB),
    }
}

const POOL_SLOTS: u32 = (8 * MIB / SLOT_BYTES) as u32;

fn pool(slots: u32) -> Arc<Pool> {
    let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
    let pool = Pool::new(slots, waker).expect("address space");
    pool.enlist(slots);
    Arc::new(pool)
}

/// A file with data at these offsets and of these lengths, and holes between; its end is the last one's.
fn write(dir: &Path, name: &str, parts: &[(u64, u64)]) -> Written {
    let mut file = File::create(dir.join(name)).expect("a file");
    let mut random = Random(parts.len() as u64 + 1);
    for (offset_bytes, len_bytes) in parts {
        let bytes: Vec<u8> = (0..*len_bytes).map(|_| random.next() as u8).collect();
        file.seek(SeekFrom::Start(*offset_bytes)).expect("a seek");
        file.write_all(&bytes).expect("room");
        file.set_len(offset_bytes + len_bytes).expect("room");
    }
    opened(dir, name, &file)
}

/// A file whose pieces lie apart, since another one grows with it.
fn write_in_pieces(dir: &Path, name: &str) -> Written {
    let mut file = File::create(dir.join(name)).expect("a file");
    let mut other = File::create(dir.join(format!("{name}-other"))).expect("a file");
    let mut random = Random(99);
    for _ in 0..40 {
        let bytes: Vec<u8> = (0..5 * 4096).map(|_| random.next() as u8).collect();
        for file in [&mut file, &mut other] {
            file.write_all(&bytes).expect("room");
            file.sync_data().expect("written");
        }
    }
    file.write_all(b"tail").expect("room");
    opened(dir, name, &file)
}

fn opened(dir: &Path, name: &str, file: &File) -> Written {
    file.sync_all().expect("written");
    let mut content = Vec::new();
    let mut again = File::open(dir.join(name)).expect("the file");
    again.read_to_end(&mut content).expect("its bytes");
    rustix::fs::fadvise(&again, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
    Written {
        fd: again.into(),
        content,
    }
}

/// xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

/// Runs `test` with a directory on a new ext4 and the image below it; says that it is skipped where that can't be.
fn on_ext4(name: &str, options: &[&str], test: impl FnOnce(&Path, &Path) + Send) {
    if !rustix::process::geteuid().is_root() {
        return skip(name, "a file system of its own needs root");
    }
    // A thread, since the namespace of its mounts goes with it.
    let test = std::thread::scope(|scope| scope.spawn(|| mounted(name, options, test)).join());
    if let Err(panic) = test {
        std::panic::resume_unwind(panic);
    }
}

fn mounted(name: &str, options: &[&str], test: impl FnOnce(&Path, &Path)) {
    let Some(world) = World::new(name, options) else {
        return;
    };
    test(&world.mount, &world.image);
}

/// The image, where it is mounted, and their end.
struct World {
    dir: PathBuf,
    image: PathBuf,
    mount: PathBuf,
}

impl World {
    fn new(name: &str, options: &[&str]) -> Option<World> {
        let dir =
            std::env::temp_dir().join(format!("ackpace-direct-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let world = World {
            image: dir.join("image"),
            mount: dir.join("mount"),
            dir,
        };
        fs::create_dir_all(&world.mount).expect("a directory");
        let image = File::create(&world.image).expect("an image");
        image.set_len(64 * MIB).expect("room");
        let mut quiet = vec!["-q", "-F", "-b", "4096"];
        quiet.extend(options);
        if !run("mkfs.ext4", &quiet, &world.image) {
            skip(name, "mkfs.ext4 does not run (apt-get install e2fsprogs)");
            return None;
        }
        // SAFETY: only the mounts are unshared, and only this thread's; descriptors stay shared.
        let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNS) };
        let image = world.image.to_str().expect("a plain name");
        let mounted = unshared.is_ok()
            && run("mount", &["--make-rprivate"], Path::new("/"))
            && run("mount", &["-t", "ext4", "-o", "loop", image], &world.mount);
        if !mounted {
            skip(name, "no loop device, or no mounts, here");
            return None;
        }
        Some(world)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Not mounted, it says so; the loop device goes with the mount.
        run("umount", &["-l"], &self.mount);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn run(program: &str, args: &[&str], last: &Path) -> bool {
    let output = Command::new(program).args(args).arg(last).output();
    output.is_ok_and(|output| output.status.success())
}

/// `make test` counts these lines.
fn skip(test: &str, why: &str) {
    println!("skipped: direct-{test}: {why}");
}
