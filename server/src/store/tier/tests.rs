use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ackpace_core::limits::WINDOW_BYTES;
use proptest::prelude::*;

use super::*;

const LEN: u64 = 2 * WINDOW_BYTES + 5000;

/// A folder of this test, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("ackpace-tier-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        Scratch(path)
    }

    fn files(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let folders = folders.filter(|it| it.path().is_dir());
        let files = folders.flat_map(|it| fs::read_dir(it.path()).into_iter().flatten().flatten());
        files.map(|it| it.path()).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < until, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A tier and the slab before it.
struct Bench {
    tier: Arc<Tier>,
    handle: TierHandle,
    slab: Arc<Slab>,
}

fn window(number: u64) -> Window {
    Window {
        object: ObjectId {
            device: 1,
            index: 1,
            generation: 0,
        },
        identity: Arc::from(&b"http://o.example\n/a\n\"1\""[..]),
        object_len_bytes: LEN,
        number,
    }
}

fn byte(at_bytes: u64) -> u8 {
    (at_bytes * 7 + at_bytes / 251) as u8
}

impl Bench {
    fn start(scratch: &Scratch, size_bytes: u64) -> Bench {
        let mut opened = None;
        // Threads of an earlier one may hold the folder for another moment.
        eventually("the folder is free", || {
            opened = Tier::open(&scratch.0, |_| size_bytes, 1000).ok();
            opened.is_some()
        });
        let tier = Arc::new(opened.expect("just opened"));
        let slab = Arc::new(Slab::open(None, 16 << 20).expect("a slab"));
        let waker = Arc::new(ThreadWaker::new().expect("an eventfd"));
        let voice = (Clock::start(), &Arc::default());
        let handle = tier.start(&slab, &waker, voice).expect("threads");
        Bench { tier, handle, slab }
    }

    /// Publishes all of the object, and keeps its windows.
    fn fill(&self) {
        let mut lease = self.slab.lease(LEN).expect("room");
        let mut at_bytes = 0;
        for mut piece in lease.iovecs(0, LEN) {
            piece.iter_mut().for_each(|it| {
                *it = byte(at_bytes);
                at_bytes += 1;
            });
        }
        let span = Span {
            offset_bytes: 0,
            len_bytes: LEN,
        };
        self.slab.publish(&mut lease, window(0).object, 0, span);
        (0..3).for_each(|number| self.handle.keep(window(number)));
        eventually("all is written", || self.tier.kept().0 == 3);
    }

    /// Reads into the slab. Checks what came, and returns how much.
    fn read(&self, offset_bytes: u64, len_bytes: u64) -> u64 {
        let span = Span {
            offset_bytes,
            len_bytes,
        };
        let read = TierRead {
            read: ReadId(7),
            window: window(offset_bytes / WINDOW_BYTES),
            span,
            room: Room::Slab(self.slab.lease(len_bytes).expect("room")),
        };
        assert!(self.handle.read(read).is_none(), "nobody else reads");
        let mut done = None;
        eventually("the read comes back", || {
            done = self.handle.done();
            done.is_some()
        });
        let done = done.expect("just seen");
        let Room::Slab(mut lease) = done.room else {
            panic!("other memory");
        };
        let mut at_bytes = offset_bytes;
        for piece in lease.iovecs(0, done.got_bytes) {
            for it in piece.iter() {
                assert_eq!(*it, byte(at_bytes), "at {at_bytes}");
                at_bytes += 1;
            }
        }
        done.got_bytes
    }
}

fn count_of(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

#[test]
fn what_is_kept_is_read_again_after_a_start() {
    let scratch = Scratch::new("again");
    let first = Bench::start(&scratch, 1 << 30);
    first.fill();
    assert_eq!(first.read(100, LEN - 100), LEN - 100);
    drop(first);
    let again = Bench::start(&scratch, 1 << 30);
    eventually("the files are found", || again.tier.kept().0 == 3);
    assert!(again.handle.has(&window(2)) && !again.handle.has(&window(3)));
    assert_eq!(again.read(WINDOW_BYTES + 1, 10), 10);
    assert_eq!(again.read(0, LEN), LEN, "on over all windows");
    assert_eq!(
        again.read(2 * WINDOW_BYTES, 3 * WINDOW_BYTES),
        5000,
        "and no further"
    );
    assert_eq!(count_of(&again.tier.tally.damaged), 0);
    let other = Window {
        identity: Arc::from(&b"http://o.example\n/a\n\"2\""[..]),
        ..window(0)
    };
    assert!(!again.handle.has(&other), "of another version");
}

#[test]
fn a_damaged_file_is_removed_and_brings_nothing() {
    let scratch = Scratch::new("damaged");
    let first = Bench::start(&scratch, 1 << 30);
    first.fill();
    drop(first);
    for file in scratch.files() {
        let open = fs::File::options().write(true).open(&file).expect("ours");
        let len_bytes = open.metadata().expect("its length").len();
        match len_bytes {
            0..10_000 => open.set_len(len_bytes - 1).expect("shorter"),
            _ => open.write_all_at(b"?", len_bytes / 2).expect("changed"),
        }
    }
    let again = Bench::start(&scratch, 1 << 30);
    eventually("the files are found", || again.tier.kept().0 == 3);
    for number in 0..3 {
        assert_eq!(again.read(number * WINDOW_BYTES, 10), 0);
        assert!(!again.handle.has(&window(number)));
    }
    assert_eq!(count_of(&again.tier.tally.damaged), 3);
    assert_eq!(scratch.files(), Vec::<PathBuf>::new());
    again.fill();
    assert_eq!(again.read(0, LEN), LEN, "kept anew");
}

#[test]
fn files_that_are_gone_and_windows_that_are_gone_do_no_harm() {
    let scratch = Scratch::new("gone");
    let bench = Bench::start(&scratch, 1 << 30);
    bench.fill();
    let files = scratch.files();
    files
        .iter()
        .for_each(|file| fs::remove_file(file).expect("ours"));
    assert_eq!(bench.read(0, LEN), 0);
    bench.slab.forget(window(0).object);
    bench.handle.keep(window(0));
    let skipped = || count_of(&bench.tier.tally.skipped);
    eventually("it is not written", || skipped() == 1);
    assert_eq!(scratch.files(), Vec::<PathBuf>::new(), "no half file");
}

#[test]
fn it_takes_no_more_than_it_may() {
    let scratch = Scratch::new("full");
    let bench = Bench::start(&scratch, 0);
    let (_, bytes_max) = bench.tier.place();
    assert_eq!(bytes_max, TIER_BYTES_MIN);
    bench.fill();
    // The same bytes as windows of other objects.
    for n in 0..60_u8 {
        let other = Window {
            identity: Arc::from([n]),
            ..window(n.into())
        };
        let other = Window {
            number: u64::from(n) % 2,
            ..other
        };
        bench.handle.keep(other);
    }
    eventually("all were written", || {
        count_of(&bench.tier.tally.writes) == 63
    });
    let files = scratch.files();
    let lens = files
        .iter()
        .map(|file| fs::metadata(file).expect("a file").len());
    assert!(lens.sum::<u64>() <= bytes_max);
    assert_eq!(bench.tier.kept().0, files.len());
    assert_eq!(
        count_of(&bench.tier.tally.evicted) as usize,
        63 - files.len()
    );
}

#[test]
fn a_purge_removes_the_files_of_whom_it_means() {
    let scratch = Scratch::new("purge");
    let bench = Bench::start(&scratch, 1 << 30);
    bench.fill();
    let other = Window {
        identity: Arc::from(&b"http://o.example\n/b\n\"1\""[..]),
        ..window(0)
    };
    bench.handle.keep(other.clone());
    eventually("it is written", || bench.tier.kept().0 == 4);
    assert!(bench.tier.purge(b"/b"));
    assert!(!bench.handle.has(&other), "from now on");
    eventually("its file is gone", || bench.tier.kept().0 == 3);
    eventually("the next may begin", || bench.tier.purge(b"/"));
    eventually("all are gone", || scratch.files().is_empty());
    eventually("it ends", || bench.tier.purged().is_none());
    assert_eq!(bench.read(0, LEN), 0);
    bench.fill();
}

#[test]
fn the_folder_is_ours_alone() {
    let scratch = Scratch::new("alone");
    let dir = &scratch.0;
    let open = || Tier::open(dir, |_| 1 << 30, 1000).map(drop);
    assert!(inspect(dir).is_ok(), "it would be made");
    let first = Tier::open(dir, |_| 1 << 30, 1000).expect("a new folder");
    let mode = fs::metadata(dir).expect("made").permissions().mode();
    assert_eq!(mode & 0o7777, 0o700);
    assert!(matches!(open(), Err(TierError::InUse { .. })));
    assert!(inspect(dir).is_ok(), "a look at it does no harm");
    drop(first);
    fs::set_permissions(dir, PermissionsExt::from_mode(0o720)).expect("ours");
    assert!(matches!(open(), Err(TierError::Shared { .. })));
    assert!(matches!(inspect(dir), Err(TierError::Shared { .. })));
    fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).expect("ours");
    assert!(open().is_ok(), "others may read");
    let below = Tier::open(&dir.join("none/below"), |_| 1 << 30, 1000);
    let told = below.expect_err("it has no parent").to_string();
    assert!(told.contains("name a folder"), "{told}");
}

#[test]
fn what_others_put_there_stays() {
    let scratch = Scratch::new("others");
    fs::create_dir_all(scratch.0.join("ab")).expect("a folder");
    let strange = ["README", "ab/README", "ab/cd000000000000000000000000000000"];
    for name in strange {
        fs::write(scratch.0.join(name), "x").expect("a file");
    }
    fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o700)).expect("ours");
    let bench = Bench::start(&scratch, 0);
    bench.fill();
    assert_eq!(bench.tier.kept().0, 3);
    assert!(strange.iter().all(|name| scratch.0.join(name).exists()));
}

proptest! {
    /// A page is right for its own window alone, and only as a whole.
    #[test]
    fn a_page_with_any_other_byte_is_refused(at in 0..page::LEN, to in any::<u8>(), checksum in any::<u32>(), number in 0..3_u64) {
        let mut page = page::page(&window(number), checksum);
        prop_assert_eq!(page::checksum(&page, &window(number)), Some(checksum));
        prop_assert_eq!(page::checksum(&page, &window(number + 1)), None);
        prop_assert_eq!(page::identity(&page), Some(&*window(number).identity));
        let before = std::mem::replace(&mut page[at], to);
        let told = page::checksum(&page, &window(number));
        prop_assert!(before == to || told.is_none_or(|told| told != checksum));
        let _ = page::identity(&page); // it does not panic
    }
}
