//! Two clients: what one has closed, the other sees when it opens (close-to-open, RFC 1813 section 4.8 and nfs(5)).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::sys::{Doing, Why, holds, lock, pattern, same};
use crate::{Check, Place};

pub const CHECKS: &[Check] = &[
    ("closed-then-opened", closed_then_opened),
    ("overwritten-by-the-other", overwritten),
    ("shorter-by-the-other", shorter),
    ("turns", turns),
    ("name-by-the-other", a_name),
    ("renamed-by-the-other", renamed),
    ("removed-by-the-other", removed),
    ("locks-of-one-client", locks),
];

/// Attributes and names may be as old as a client caches them.
const OLD: Duration = Duration::from_secs(75);

/// Waits until the other client sees it.
fn seen(what: &str, is: impl Fn() -> bool) -> Result<(), Why> {
    let start = Instant::now();
    while !is() {
        holds(start.elapsed() < OLD, || format!("{what} is never seen"))?;
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn has(path: &Path, should: &[u8]) -> Result<(), Why> {
    let bytes = fs::read(path).doing("read by the other")?;
    same("length", bytes.len(), should.len())?;
    holds(bytes == should, || "the other reads wrong bytes".into())
}

fn closed_then_opened(place: &Place) -> Result<(), Why> {
    let bytes = pattern(500_000, 1);
    fs::write(place.a.join("file"), &bytes).doing("write")?;
    has(&place.b.join("file"), &bytes)
}

fn overwritten(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("file"), pattern(500_000, 1)).doing("write")?;
    has(&place.b.join("file"), &pattern(500_000, 1))?;
    // Same length, same second perhaps.
    fs::write(place.a.join("file"), pattern(500_000, 2)).doing("write")?;
    has(&place.b.join("file"), &pattern(500_000, 2))
}

fn shorter(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("file"), pattern(500_000, 1)).doing("write")?;
    has(&place.b.join("file"), &pattern(500_000, 1))?;
    let file = File::options().write(true).open(place.a.join("file"));
    file.doing("open")?.set_len(77).doing("shrink")?;
    has(&place.b.join("file"), &pattern(500_000, 1)[..77])
}

fn turns(place: &Place) -> Result<(), Why> {
    let mut bytes = vec![0; 100_000];
    fs::write(place.a.join("file"), &bytes).doing("write")?;
    for nth in 0..20_u8 {
        let (here, there) = match nth % 2 {
            0 => (&place.a, &place.b),
            _ => (&place.b, &place.a),
        };
        let at = usize::from(nth) * 4_999;
        let file = File::options()
            .write(true)
            .open(here.join("file"))
            .doing("open")?;
        file.write_all_at(&[nth + 1; 300], at as u64)
            .doing("write")?;
        drop(file);
        bytes[at..at + 300].fill(nth + 1);
        has(&there.join("file"), &bytes)?;
    }
    Ok(())
}

fn a_name(place: &Place) -> Result<(), Why> {
    seen("the folder", || place.b.exists())?;
    fs::write(place.a.join("file"), b"x").doing("write")?;
    seen("the name", || place.b.join("file").exists())
}

fn renamed(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("one"), b"x").doing("write")?;
    seen("the name", || place.b.join("one").exists())?;
    fs::rename(place.a.join("one"), place.a.join("two")).doing("rename")?;
    seen("the new name", || place.b.join("two").exists())?;
    seen("that the old name is gone", || {
        !place.b.join("one").exists()
    })
}

fn removed(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("file"), b"x").doing("write")?;
    let open = File::open(place.b.join("file")).doing("open by the other")?;
    fs::remove_file(place.a.join("file")).doing("remove")?;
    seen("that it is gone", || !place.b.join("file").exists())?;
    // What is open there is stale, or still readable from its cache; nothing else is.
    let mut byte = [0];
    match open.read_at(&mut byte, 0) {
        Ok(1) => same("byte", byte[0], b'x'),
        Ok(read) => Err(format!("{read} bytes are read")),
        Err(error) => same("errno", error.raw_os_error(), Some(libc::ESTALE)),
    }
}

/// Without locks at the server (nolock), they hold among the processes of one client.
fn locks(place: &Place) -> Result<(), Why> {
    let file = File::create(place.a.join("file")).doing("create")?;
    same("the lock is had", lock(&file).doing("fcntl")?, true)
}
