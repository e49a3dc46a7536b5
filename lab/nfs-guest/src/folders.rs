//! Folders.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use crate::sys::{Doing, Why, refused, same};
use crate::{Check, Place};

pub const CHECKS: &[Check] = &[
    ("make-and-remove", make_and_remove),
    ("not-empty", not_empty),
    ("many-names", many_names),
    ("removing-while-listing", removing_while_listing),
    ("deep", deep),
    ("rename-a-folder", rename_a_folder),
    ("rename-below-itself", rename_below_itself),
    ("rename-over-a-folder", rename_over_a_folder),
    ("links-of-a-folder", links_of_a_folder),
    ("remove-a-folder-as-a-file", wrong_kind),
];

fn make_and_remove(place: &Place) -> Result<(), Why> {
    let path = place.a.join("folder");
    fs::create_dir(&path).doing("mkdir")?;
    refused("a second one", fs::create_dir(&path), &[libc::EEXIST])?;
    fs::remove_dir(&path).doing("rmdir")?;
    refused("stat", fs::metadata(&path), &[libc::ENOENT])
}

fn not_empty(place: &Place) -> Result<(), Why> {
    fs::create_dir(place.a.join("folder")).doing("mkdir")?;
    File::create(place.a.join("folder/file")).doing("create")?;
    let errnos = [libc::ENOTEMPTY, libc::EEXIST];
    refused("rmdir", fs::remove_dir(place.a.join("folder")), &errnos)
}

fn listed(place: &Place) -> Result<BTreeSet<String>, Why> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(&place.a).doing("list")? {
        let name = entry.doing("an entry")?.file_name();
        let name = name.to_string_lossy().into_owned();
        if !names.insert(name.clone()) {
            return Err(format!("{name} is listed twice"));
        }
    }
    Ok(names)
}

fn many_names(place: &Place) -> Result<(), Why> {
    let names: BTreeSet<String> = (0..1_000).map(|nth| format!("name-{nth:05}")).collect();
    for name in &names {
        File::create(place.a.join(name)).doing("create")?;
    }
    same("all are listed", listed(place)? == names, true)
}

fn removing_while_listing(place: &Place) -> Result<(), Why> {
    for nth in 0..500 {
        File::create(place.a.join(format!("name-{nth:05}"))).doing("create")?;
    }
    let mut seen = 0;
    for entry in fs::read_dir(&place.a).doing("list")? {
        fs::remove_file(entry.doing("an entry")?.path()).doing("remove")?;
        seen += 1;
    }
    same("names", seen, 500)?;
    same("names left", listed(place)?.len(), 0)
}

fn deep(place: &Place) -> Result<(), Why> {
    let mut path = place.a.clone();
    for nth in 0..60 {
        path.push(format!("d{nth}"));
        fs::create_dir(&path).doing("mkdir")?;
    }
    fs::write(path.join("file"), b"deep").doing("write")?;
    same(
        "bytes",
        fs::read(path.join("file")).doing("read")?,
        b"deep".to_vec(),
    )
}

fn rename_a_folder(place: &Place) -> Result<(), Why> {
    fs::create_dir(place.a.join("one")).doing("mkdir")?;
    fs::write(place.a.join("one/file"), b"inside").doing("write")?;
    fs::rename(place.a.join("one"), place.a.join("two")).doing("rename")?;
    same(
        "bytes",
        fs::read(place.a.join("two/file")).doing("read")?,
        b"inside".to_vec(),
    )
}

fn rename_below_itself(place: &Place) -> Result<(), Why> {
    fs::create_dir(place.a.join("one")).doing("mkdir")?;
    let rename = fs::rename(place.a.join("one"), place.a.join("one/two"));
    refused("rename", rename, &[libc::EINVAL])
}

fn rename_over_a_folder(place: &Place) -> Result<(), Why> {
    for name in ["one", "empty", "full"] {
        fs::create_dir(place.a.join(name)).doing("mkdir")?;
    }
    File::create(place.a.join("full/file")).doing("create")?;
    let errnos = [libc::ENOTEMPTY, libc::EEXIST];
    let over_full = fs::rename(place.a.join("one"), place.a.join("full"));
    refused("over a full one", over_full, &errnos)?;
    fs::rename(place.a.join("one"), place.a.join("empty")).doing("over an empty one")?;
    File::create(place.a.join("file")).doing("create")?;
    let over_file = fs::rename(place.a.join("empty"), place.a.join("file"));
    refused("over a file", over_file, &[libc::ENOTDIR])
}

fn links_of_a_folder(place: &Place) -> Result<(), Why> {
    fs::create_dir(place.a.join("one")).doing("mkdir")?;
    fs::create_dir(place.a.join("one/two")).doing("mkdir")?;
    let links = fs::metadata(place.a.join("one")).doing("stat")?.nlink();
    // 1: a file system that does not count them, such as btrfs.
    same("links", links == 3 || links == 1, true)
}

fn wrong_kind(place: &Place) -> Result<(), Why> {
    fs::create_dir(place.a.join("folder")).doing("mkdir")?;
    File::create(place.a.join("file")).doing("create")?;
    let errnos = [libc::EISDIR, libc::EPERM];
    refused("unlink", fs::remove_file(place.a.join("folder")), &errnos)?;
    refused(
        "rmdir",
        fs::remove_dir(place.a.join("file")),
        &[libc::ENOTDIR],
    )
}
