//! Attributes.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::sys::{Doing, Why, holds, is_root, same, set_times};
use crate::{Check, Place};

pub const CHECKS: &[Check] = &[
    ("mode", mode),
    ("owner", owner),
    ("times", times),
    ("writing-changes-mtime", writing_changes_mtime),
    ("a-new-name-changes-its-folder", a_name_changes_its_folder),
    ("chmod-changes-ctime", chmod_changes_ctime),
    ("blocks", blocks),
    ("writing-clears-setuid", writing_clears_setuid),
];

/// Longer than the clock of any file system takes from one time to the next.
const TICK: Duration = Duration::from_millis(50);

fn file(place: &Place) -> Result<std::path::PathBuf, Why> {
    let path = place.a.join("file");
    File::create(&path).doing("create")?;
    Ok(path)
}

fn ctime(path: &Path) -> Result<(i64, i64), Why> {
    let is = fs::metadata(path).doing("stat")?;
    Ok((is.ctime(), is.ctime_nsec()))
}

fn mtime(path: &Path) -> Result<(i64, i64), Why> {
    let is = fs::metadata(path).doing("stat")?;
    Ok((is.mtime(), is.mtime_nsec()))
}

fn mode(place: &Place) -> Result<(), Why> {
    let path = file(place)?;
    for mode in [0o600, 0o4755, 0o2711, 0o1777, 0o000, 0o644] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).doing("chmod")?;
        let is = fs::metadata(&path).doing("stat")?.mode() & 0o7777;
        same("mode", format!("{is:o}"), format!("{mode:o}"))?;
    }
    Ok(())
}

/// A server that squashes root refuses it.
fn owner(place: &Place) -> Result<(), Why> {
    let path = file(place)?;
    match chown(&path, Some(1234), Some(5678)) {
        Ok(()) => {
            let is = fs::metadata(&path).doing("stat")?;
            same("owner", (is.uid(), is.gid()), (1234, 5678))
        }
        Err(error) => {
            let is_squashed = fs::metadata(&path).doing("stat")?.uid() != 0;
            let is_refused = error.raw_os_error() == Some(libc::EPERM);
            holds(is_refused && (is_squashed || !is_root()), || {
                format!("chown: {error}")
            })
        }
    }
}

fn times(place: &Place) -> Result<(), Why> {
    let path = file(place)?;
    let all = [(1_000_000_007, 123_456_789), (2_000_000_011, 987_654_321)];
    set_times(&path, all).doing("utimensat")?;
    let is = fs::metadata(&path).doing("stat")?;
    same("atime", (is.atime(), is.atime_nsec()), all[0])?;
    same("mtime", (is.mtime(), is.mtime_nsec()), all[1])
}

fn writing_changes_mtime(place: &Place) -> Result<(), Why> {
    let path = file(place)?;
    let before = mtime(&path)?;
    sleep(TICK);
    let opened = File::options().write(true).open(&path).doing("open")?;
    opened.write_all_at(b"x", 0).doing("write")?;
    drop(opened);
    holds(mtime(&path)? > before, || "mtime is the old one".into())
}

fn a_name_changes_its_folder(place: &Place) -> Result<(), Why> {
    let before = mtime(&place.a)?;
    sleep(TICK);
    let path = file(place)?;
    let between = mtime(&place.a)?;
    holds(between > before, || "create: mtime is the old one".into())?;
    sleep(TICK);
    fs::remove_file(path).doing("remove")?;
    holds(mtime(&place.a)? > between, || {
        "remove: mtime is the old one".into()
    })
}

fn chmod_changes_ctime(place: &Place) -> Result<(), Why> {
    let path = file(place)?;
    let before = ctime(&path)?;
    sleep(TICK);
    fs::set_permissions(&path, Permissions::from_mode(0o600)).doing("chmod")?;
    holds(ctime(&path)? > before, || "ctime is the old one".into())
}

fn blocks(place: &Place) -> Result<(), Why> {
    let path = file(place)?;
    fs::write(&path, vec![1; 1 << 20]).doing("write")?;
    let opened = File::open(&path).doing("open")?;
    opened.sync_all().doing("fsync")?;
    let bytes = fs::metadata(&path).doing("stat")?.blocks() * 512;
    holds(bytes >= 1 << 20, || {
        format!("1 MiB has {bytes} bytes of blocks")
    })
}

/// By somebody who is not root: the kernel or the server clears it.
fn writing_clears_setuid(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    let path = file(place)?;
    fs::set_permissions(&path, Permissions::from_mode(0o6777)).doing("chmod")?;
    crate::sys::as_user(1000, 1000, &[]).doing("another user")?;
    let written = fs::write(&path, b"x");
    crate::sys::as_root();
    written.doing("write")?;
    let is = fs::metadata(&path).doing("stat")?.mode() & 0o6000;
    same("setuid and setgid", is, 0)
}
