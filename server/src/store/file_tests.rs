//! Whether the bytes of an open file are what was promised, and whether they are in memory.

use std::fs::File;
use std::io::Seek;

use super::*;
use crate::store::device::Devices;
use crate::store::files::Files;

const START: Instant = Instant { us: 7 };

fn open(files: &Files, devices: &Devices, path: &std::path::Path) -> Arc<super::File> {
    files.of(File::open(path).expect("the file is there"), devices)
}

#[test]
fn a_file_that_is_sent_may_lose_its_name_and_not_its_content() {
    use std::os::unix::fs::MetadataExt;
    let dir = std::env::temp_dir().join(format!("ackpace-holds-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (path, other) = (dir.join("a"), dir.join("b"));
    let devices = Devices::default();
    let begun = |promise| {
        let _ = std::fs::remove_file(&other);
        std::fs::write(&path, "0123456789").expect("a file");
        let file = open(&Files::default(), &devices, &path);
        let promised = file.version().expect("open");
        let holds = move || file.check_version(&promised, promise, START) == VersionCheck::Same;
        assert!(holds());
        holds
    };
    let rewrite = |text: &str| {
        let before = std::fs::metadata(&path).expect("there");
        let mut file = File::options().write(true).open(&path).expect("ours");
        // The clock of the file system is coarse: until it has ticked, a change has no new time.
        loop {
            file.rewind().expect("a file");
            file.write_all(text.as_bytes()).expect("room");
            let now = std::fs::metadata(&path).expect("there");
            if (now.ctime(), now.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
                break;
            }
        }
        file.set_modified(before.modified().expect("a time"))
            .expect("our own file");
    };
    for promise in [Promise::OneVersion, Promise::Prefix] {
        let holds = begun(promise);
        std::fs::rename(&path, &other).expect("renamed");
        assert!(holds(), "moved away");
        std::fs::remove_file(&other).expect("removed");
        assert!(holds(), "removed");
        let holds = begun(promise);
        std::fs::write(&other, "another").expect("a file");
        std::fs::rename(&other, &path).expect("renamed");
        assert!(holds(), "replaced");
        let holds = begun(promise);
        rewrite("9876543210");
        assert!(!holds(), "its time was put back");
        let holds = begun(promise);
        rewrite("short");
        std::fs::rename(&path, &other).expect("renamed");
        File::options()
            .write(true)
            .open(&other)
            .and_then(|file| file.set_len(4))
            .expect("truncated");
        assert!(!holds(), "truncated");
        let holds = begun(promise);
        rewrite("01234567890");
        std::fs::write(&path, "01234567890").expect("grown");
        assert_eq!(holds(), promise == Promise::Prefix, "grown");
    }
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

#[test]
fn a_file_that_is_about_to_grow_is_asked_about_again_for_a_while() {
    let dir = std::env::temp_dir().join(format!("ackpace-grows-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let path = dir.join("a");
    std::fs::write(&path, "0123456789").expect("a file");
    let file = open(&Files::default(), &Devices::default(), &path);
    let promised = file.version().expect("open");
    let holds = |promise, us| file.check_version(&promised, promise, START.plus_us(us));
    let changed = File::options().write(true).open(&path).expect("ours");
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
    changed.set_modified(later).expect("our own file");
    assert_eq!(holds(Promise::OneVersion, 0), VersionCheck::Changed);
    assert_eq!(holds(Promise::Prefix, 0), VersionCheck::NotYet);
    assert_eq!(
        holds(Promise::Prefix, UNSETTLED_US - 1),
        VersionCheck::NotYet
    );
    assert_eq!(
        holds(Promise::Prefix, UNSETTLED_US),
        VersionCheck::Changed,
        "in place"
    );
    changed.set_len(11).expect("our own file");
    assert_eq!(
        holds(Promise::Prefix, UNSETTLED_US),
        VersionCheck::Same,
        "it grew"
    );
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

#[test]
fn cached_bytes_are_copied_without_waiting() {
    let path = std::env::temp_dir().join(format!("ackpace-cached-{}", std::process::id()));
    std::fs::write(&path, "0123456789").expect("a file");
    let file = open(&Files::default(), &Devices::default(), &path);
    let mut bytes = [0; 20];
    match file.read_cached(3, &mut bytes) {
        Ok(read) => assert_eq!(&bytes[..read], b"3456789"),
        Err(error) => assert_eq!(error, rustix::io::Errno::OPNOTSUPP, "overlayfs"),
    }
    std::fs::remove_file(&path).expect("our own file");
}
