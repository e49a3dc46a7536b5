//! One short life of an emulated disk on the real kernel. It needs root, FUSE and loop devices.

use super::*;
use ackpace_lab_base::content::first_wrong;
use std::io::Read;
use std::sync::mpsc::channel;

const MB: u64 = 1 << 20;

fn spec(name: &str) -> Spec {
    let file = |path: &str, len_bytes| CorpusFile {
        path: path.into(),
        len_bytes,
    };
    Spec {
        name: format!("{name}-{}", std::process::id()),
        profile: profile::load("flash").unwrap().with_size(1 << 30),
        corpus: vec![
            file("a/big.bin", 40 * MB + 77),
            file("a/second.bin", 8 * MB),
            file("tiny.bin", 5),
            file("empty.bin", 0),
        ],
        writable: false,
        read_ahead_kb: 128,
    }
}

/// Moves this thread to a private mount namespace, so that a killed test leaves no mount.
fn apart() -> Result<()> {
    use rustix::mount::{MountPropagationFlags, mount_change};
    if !rustix::process::geteuid().is_root() {
        return Err(LabError::Setup("needs root".into()));
    }
    for path in ["/dev/fuse", "/dev/loop-control"] {
        std::fs::metadata(path).doing(|| path.into())?;
    }
    // SAFETY: no pointers; only this thread and those that it starts move.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(std::io::Error::last_os_error()).doing(|| "unshare of mounts".into());
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).doing(|| "private mounts".into())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn left_of(disk: &str, device: &Path) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/thread-self/mounts").unwrap();
    let mut left: Vec<String> = mounts
        .lines()
        .filter(|line| line.contains(disk))
        .map(str::to_owned)
        .collect();
    let name = device.file_name().unwrap().to_string_lossy().into_owned();
    let backing = std::fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
    left.extend(backing.into_iter().filter(|backing| backing.contains(disk)));
    let folder = Path::new(RUN).join(disk);
    left.extend(folder.exists().then(|| folder.display().to_string()));
    left
}

#[test]
fn a_disk_serves_its_corpus_breaks_where_told_and_leaves_nothing() {
    if let Err(why) = apart() {
        println!("skipped: a_disk_serves_its_corpus_breaks_where_told_and_leaves_nothing: {why}");
        return;
    }
    let spec = spec("life");
    let disk = Disk::up(&spec).unwrap();
    let device = disk.device().to_owned();
    let at = disk.mount_point();
    for file in &spec.corpus {
        let bytes = read(&at.join(&file.path)).unwrap();
        assert_eq!(bytes.len() as u64, file.len_bytes, "{}", file.path);
        assert_eq!(
            first_wrong(Tag::of(&file.path), 0, &bytes),
            None,
            "{}",
            file.path
        );
    }
    let counters = disk.counters();
    assert!(counters.busy_us > 0 && counters.reads > 0);
    let big = counters.files.iter().find(|file| file.file == "a/big.bin");
    let big = big.expect("the counters name the file");
    assert_eq!((big.read_bytes, big.again_bytes), (40 * MB + 4096, 0));

    hangs_and_recovers(&disk, &at);
    fails_where_told(&disk, &at);
    let check = std::process::Command::new("e2fsck")
        .args(["-fn"])
        .arg(&device)
        .output();
    let check = check.unwrap();
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.status.success(), "{said}");

    drop(disk);
    let left = left_of(&format!("disk-{}", spec.name), &device);
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// A bad region fails the reads that touch it, and no others; the log has these, too.
fn fails_where_told(disk: &Disk, at: &Path) {
    disk.log(true);
    let second = at.join("a/second.bin");
    ackpace_lab_base::pages::drop_cached(&second).unwrap();
    let regions = disk.places("a/second.bin", 4 * MB..4 * MB + 4096);
    assert_eq!(regions.len(), 1);
    disk.set_fault(&Fault::Eio { regions });
    assert_eq!(read(&second).unwrap_err().raw_os_error(), Some(libc::EIO));
    disk.set_fault(&Fault::None);
    assert_eq!(read(&second).unwrap().len() as u64, 8 * MB);
    let log = disk.log(false);
    assert!(!log.is_empty() && log.iter().all(|read| read.file == "a/second.bin"));
    let again = disk
        .counters()
        .files
        .into_iter()
        .find(|file| file.file == "a/second.bin");
    assert!(again.unwrap().again_bytes > 0);
}

/// A hang holds all answers back; healing releases them.
fn hangs_and_recovers(disk: &Disk, at: &Path) {
    let second = at.join("a/second.bin");
    ackpace_lab_base::pages::drop_cached(&second).unwrap();
    disk.set_fault(&Fault::Hang);
    let before = disk.counters().reads;
    let (done, came) = channel();
    let reader = std::thread::spawn(move || done.send(read(&second).map(|bytes| bytes.len())));
    while disk.counters().queued == 0 {
        std::thread::yield_now(); // until the read is in the device
    }
    assert!(came.try_recv().is_err());
    assert_eq!(disk.counters().reads, before);
    disk.set_fault(&Fault::None);
    assert_eq!(came.recv().unwrap().unwrap() as u64, 8 * MB);
    reader.join().unwrap().unwrap();
}
