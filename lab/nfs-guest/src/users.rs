//! Who may do what. Without root these checks pass unseen.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use crate::sys::{Doing, Why, as_root, as_user, is_root, refused, same};
use crate::{Check, Place};

pub const CHECKS: &[Check] = &[
    ("owner-alone", owner_alone),
    ("further-groups", further_groups),
    ("read-only-folder", read_only_folder),
    ("sticky-folder", sticky_folder),
    ("owner-of-a-new-file", owner_of_a_new_file),
    ("setgid-folder", setgid_folder),
    ("chmod-by-another", chmod_by_another),
];

/// Runs as a user.
fn by<T>(uid: u32, groups: &[u32], what: impl FnOnce() -> T) -> Result<T, Why> {
    as_user(uid, uid, groups).doing("another user")?;
    let done = what();
    as_root();
    Ok(done)
}

fn open_to_all(place: &Place) -> Result<(), Why> {
    fs::set_permissions(&place.a, Permissions::from_mode(0o777)).doing("chmod")
}

fn owner_alone(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    open_to_all(place)?;
    let path = place.a.join("file");
    by(1000, &[], || {
        fs::write(&path, b"mine")
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o600)))
    })?
    .doing("write")?;
    by(1000, &[], || fs::read(&path))?.doing("read by its owner")?;
    refused(
        "read by another",
        by(1001, &[], || fs::read(&path))?,
        &[libc::EACCES],
    )?;
    let write = by(1001, &[], || File::options().write(true).open(&path))?;
    refused("write by another", write, &[libc::EACCES])
}

fn further_groups(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    open_to_all(place)?;
    let path = place.a.join("file");
    by(1000, &[2222], || {
        fs::write(&path, b"group")?;
        chown(&path, None, Some(2222))?;
        fs::set_permissions(&path, Permissions::from_mode(0o640))
    })?
    .doing("a file of a group")?;
    by(1001, &[7, 2222, 9], || fs::read(&path))?.doing("read by a member")?;
    refused(
        "read by another",
        by(1001, &[7, 9], || fs::read(&path))?,
        &[libc::EACCES],
    )
}

fn read_only_folder(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    fs::write(place.a.join("file"), b"").doing("write")?;
    fs::set_permissions(&place.a, Permissions::from_mode(0o755)).doing("chmod")?;
    let create = by(1000, &[], || File::create(place.a.join("new")))?;
    refused("create", create, &[libc::EACCES])?;
    let remove = by(1000, &[], || fs::remove_file(place.a.join("file")))?;
    refused("remove", remove, &[libc::EACCES])
}

fn sticky_folder(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    fs::set_permissions(&place.a, Permissions::from_mode(0o1777)).doing("chmod")?;
    let path = place.a.join("file");
    by(1000, &[], || fs::write(&path, b"mine"))?.doing("write")?;
    let remove = by(1001, &[], || fs::remove_file(&path))?;
    refused("remove by another", remove, &[libc::EPERM, libc::EACCES])?;
    by(1000, &[], || fs::remove_file(&path))?.doing("remove by its owner")
}

fn owner_of_a_new_file(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    open_to_all(place)?;
    by(1000, &[], || fs::write(place.a.join("file"), b""))?.doing("write")?;
    let is = fs::metadata(place.a.join("file")).doing("stat")?;
    same("owner", (is.uid(), is.gid()), (1000, 1000))
}

fn setgid_folder(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    open_to_all(place)?;
    let folder = place.a.join("folder");
    by(1000, &[2222], || {
        fs::create_dir(&folder)?;
        chown(&folder, None, Some(2222))?;
        fs::set_permissions(&folder, Permissions::from_mode(0o2775))?;
        fs::write(folder.join("file"), b"")
    })?
    .doing("a folder of a group")?;
    let is = fs::metadata(folder.join("file")).doing("stat")?;
    same("group", is.gid(), 2222)
}

fn chmod_by_another(place: &Place) -> Result<(), Why> {
    if !is_root() {
        return Ok(());
    }
    open_to_all(place)?;
    let path = place.a.join("file");
    by(1000, &[], || fs::write(&path, b"mine"))?.doing("write")?;
    let chmod = by(1001, &[], || {
        fs::set_permissions(&path, Permissions::from_mode(0o777))
    })?;
    refused("chmod by another", chmod, &[libc::EPERM])
}
