//! One file has one name, whoever opens it, and however many threads at once.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::fstat;

use super::*;

fn open(files: &Files, devices: &Devices, path: &std::path::Path) -> Arc<super::File> {
    files.of(File::open(path).expect("the file is there"), devices)
}

#[test]
fn one_file_has_one_name_while_it_is_open_and_after() {
    let dir = std::env::temp_dir().join(format!("ackpace-files-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (path, other) = (dir.join("a"), dir.join("b"));
    std::fs::write(&path, "one").expect("a file");
    std::fs::write(&other, "two").expect("a file");
    let (files, devices) = (Files::default(), Devices::default());
    let first = open(&files, &devices, &path);
    assert!(Arc::ptr_eq(&first, &open(&files, &devices, &path)));
    assert_ne!(first.id, open(&files, &devices, &other).id);
    let id = first.id;
    drop(first);
    assert_eq!(
        open(&files, &devices, &path).id,
        id,
        "remembered after its last stream"
    );
    std::fs::remove_dir_all(&dir).expect("our own directory");
}

#[test]
fn closed_files_are_forgotten_in_the_end() {
    let (files, devices) = (Files::default(), Devices::default());
    let fd = || OwnedFd::from(File::open("/dev/null").expect("a device"));
    let stat = fstat(fd()).expect("an open descriptor");
    for ino in 0..2 * OBJECTS_REMEMBERED_MAX as u64 {
        let mut stat = stat;
        stat.st_ino = ino;
        files.intern(
            Descriptor::of(fd()).expect("an open file"),
            &stat,
            b"",
            &devices,
        );
    }
    let mut known = 0;
    for part in &files.parts {
        let part = part.lock().expect("no panic");
        assert_eq!(part.by_age.len(), part.known.len());
        known += part.known.len();
    }
    assert!(known <= OBJECTS_REMEMBERED_MAX, "{known}");
    // Those that are known are spread over all parts.
    assert!(known >= OBJECTS_REMEMBERED_MAX / 2, "{known}");
}

/// An open file for a look-up of a worker: nothing of it may wait.
fn try_open(files: &Files, devices: &Devices) -> Option<Arc<super::File>> {
    let fd = OwnedFd::from(File::open("/dev/null").expect("a device"));
    let stat = fstat(&fd).expect("an open descriptor");
    files.try_intern(
        Descriptor::of(fd).expect("an open file"),
        &stat,
        b"",
        devices,
    )
}

#[test]
fn a_worker_does_not_wait_for_a_thread_that_holds_its_part_of_the_table() {
    let (files, devices) = (Files::default(), Devices::default());
    let path = std::path::Path::new("/dev/null");
    let first = open(&files, &devices, path);
    for held in &files.parts {
        let held = held.lock().expect("no panic");
        let found = try_open(&files, &devices);
        // One part knows the file; all others are of no concern to it.
        assert_eq!(found.is_none(), held.known.len() == 1);
    }
    let again = try_open(&files, &devices).expect("nobody holds a lock");
    assert!(Arc::ptr_eq(&first, &again));
}

#[test]
fn a_worker_leaves_a_file_system_that_nobody_has_met_to_others() {
    let (files, devices) = (Files::default(), Devices::default());
    assert!(try_open(&files, &devices).is_none());
    let first = open(&files, &devices, std::path::Path::new("/dev/null"));
    let again = try_open(&files, &devices).expect("it was met");
    assert!(Arc::ptr_eq(&first, &again));
}

#[test]
fn a_file_that_two_threads_open_at_once_is_one() {
    let (files, devices) = (Files::default(), Devices::default());
    let path = std::path::Path::new("/dev/null");
    for _ in 0..200 {
        let start = std::sync::Barrier::new(3);
        let opened = || {
            start.wait();
            open(&files, &devices, path)
        };
        let [a, b, c] = thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(opened));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert!(Arc::ptr_eq(&a, &b) && Arc::ptr_eq(&b, &c));
    }
}
