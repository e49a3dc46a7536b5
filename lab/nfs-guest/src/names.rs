//! Names, links and kinds of files.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::os::unix::net::UnixListener;

use crate::sys::{Doing, Why, device, fifo, holds, refused, same};
use crate::{Check, Place};

pub const CHECKS: &[Check] = &[
    ("long-names", long_names),
    ("odd-names", odd_names),
    ("symbolic-link", symbolic_link),
    ("long-symbolic-link", long_symbolic_link),
    ("loop-of-links", loop_of_links),
    ("hard-link", hard_link),
    ("link-over-a-name", link_over_a_name),
    ("fifo", a_fifo),
    ("socket", a_socket),
    ("device", a_device),
    ("rename", rename),
    ("rename-over-a-file", rename_over),
    ("rename-to-itself", rename_to_itself),
    ("rename-of-a-hard-link", rename_of_a_link),
    ("missing", missing),
];

fn long_names(place: &Place) -> Result<(), Why> {
    let long = "n".repeat(255);
    File::create(place.a.join(&long)).doing("255 bytes")?;
    fs::metadata(place.a.join(&long)).doing("stat of it")?;
    let longer = File::create(place.a.join("n".repeat(256)));
    refused("256 bytes", longer, &[libc::ENAMETOOLONG])
}

fn odd_names(place: &Place) -> Result<(), Why> {
    let names: [&[u8]; 7] = [
        b" ",
        b"a\nb",
        b"\xff\xfe",
        "\u{fc}\u{1f980}".as_bytes(),
        b"...",
        b"-rf",
        b"\\x",
    ];
    for name in names {
        let path = place.a.join(OsStr::from_bytes(name));
        fs::write(&path, name).doing("write")?;
        holds(fs::read(&path).is_ok_and(|bytes| bytes == name), || {
            format!("{path:?} has other bytes")
        })?;
    }
    let listed = fs::read_dir(&place.a).doing("list")?.count();
    same("names", listed, names.len())
}

fn symbolic_link(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("file"), b"behind").doing("write")?;
    symlink("file", place.a.join("link")).doing("link")?;
    let to = fs::read_link(place.a.join("link")).doing("readlink")?;
    same("target", to.as_os_str(), OsStr::new("file"))?;
    same(
        "bytes",
        fs::read(place.a.join("link")).doing("read")?,
        b"behind".to_vec(),
    )?;
    let kind = fs::symlink_metadata(place.a.join("link")).doing("lstat")?;
    holds(kind.is_symlink(), || "it is no link".into())?;
    same("length", kind.len(), 4)
}

fn long_symbolic_link(place: &Place) -> Result<(), Why> {
    let target = "d/".repeat(500);
    symlink(&target, place.a.join("link")).doing("link")?;
    let to = fs::read_link(place.a.join("link")).doing("readlink")?;
    same("target", to.as_os_str(), OsStr::new(&target))
}

fn loop_of_links(place: &Place) -> Result<(), Why> {
    symlink("two", place.a.join("one")).doing("link")?;
    symlink("one", place.a.join("two")).doing("link")?;
    refused("open", File::open(place.a.join("one")), &[libc::ELOOP])
}

fn hard_link(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("one"), b"same").doing("write")?;
    fs::hard_link(place.a.join("one"), place.a.join("two")).doing("link")?;
    let (one, two) = (
        fs::metadata(place.a.join("one")),
        fs::metadata(place.a.join("two")),
    );
    let (one, two) = (one.doing("stat")?, two.doing("stat")?);
    same("inode", two.ino(), one.ino())?;
    same("links", two.nlink(), 2)?;
    fs::remove_file(place.a.join("one")).doing("remove")?;
    same(
        "bytes",
        fs::read(place.a.join("two")).doing("read")?,
        b"same".to_vec(),
    )?;
    same(
        "links",
        fs::metadata(place.a.join("two")).doing("stat")?.nlink(),
        1,
    )
}

fn link_over_a_name(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("one"), b"1").doing("write")?;
    fs::write(place.a.join("two"), b"2").doing("write")?;
    let link = fs::hard_link(place.a.join("one"), place.a.join("two"));
    refused("link", link, &[libc::EEXIST])
}

fn a_fifo(place: &Place) -> Result<(), Why> {
    fifo(&place.a.join("fifo")).doing("mkfifo")?;
    let kind = fs::metadata(place.a.join("fifo"))
        .doing("stat")?
        .file_type();
    holds(kind.is_fifo(), || "it is no fifo".into())
}

fn a_socket(place: &Place) -> Result<(), Why> {
    let _listener = UnixListener::bind(place.a.join("socket")).doing("bind")?;
    let kind = fs::metadata(place.a.join("socket"))
        .doing("stat")?
        .file_type();
    holds(kind.is_socket(), || "it is no socket".into())
}

/// A server that squashes root may refuse it.
fn a_device(place: &Place) -> Result<(), Why> {
    match device(&place.a.join("null"), 1, 3) {
        Ok(()) => {
            let is = fs::metadata(place.a.join("null")).doing("stat")?;
            same("device", is.rdev(), libc::makedev(1, 3))
        }
        refusal => refused("mknod", refusal, &[libc::EPERM, libc::EACCES]),
    }
}

fn rename(place: &Place) -> Result<(), Why> {
    fs::create_dir(place.a.join("folder")).doing("mkdir")?;
    fs::write(place.a.join("one"), b"moved").doing("write")?;
    fs::rename(place.a.join("one"), place.a.join("folder/two")).doing("rename")?;
    refused(
        "the old name",
        fs::metadata(place.a.join("one")),
        &[libc::ENOENT],
    )?;
    same(
        "bytes",
        fs::read(place.a.join("folder/two")).doing("read")?,
        b"moved".to_vec(),
    )
}

fn rename_over(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("one"), b"1").doing("write")?;
    fs::write(place.a.join("two"), b"2").doing("write")?;
    fs::rename(place.a.join("one"), place.a.join("two")).doing("rename")?;
    same(
        "bytes",
        fs::read(place.a.join("two")).doing("read")?,
        b"1".to_vec(),
    )?;
    same("names", fs::read_dir(&place.a).doing("list")?.count(), 1)
}

fn rename_to_itself(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("one"), b"1").doing("write")?;
    fs::rename(place.a.join("one"), place.a.join("one")).doing("rename")?;
    same(
        "bytes",
        fs::read(place.a.join("one")).doing("read")?,
        b"1".to_vec(),
    )
}

/// Both names are of one file: nothing is done (rename(2)).
fn rename_of_a_link(place: &Place) -> Result<(), Why> {
    fs::write(place.a.join("one"), b"1").doing("write")?;
    fs::hard_link(place.a.join("one"), place.a.join("two")).doing("link")?;
    fs::rename(place.a.join("one"), place.a.join("two")).doing("rename")?;
    same(
        "bytes",
        fs::read(place.a.join("two")).doing("read")?,
        b"1".to_vec(),
    )
}

fn missing(place: &Place) -> Result<(), Why> {
    let path = place.a.join("none");
    refused("open", File::open(&path), &[libc::ENOENT])?;
    refused("remove", fs::remove_file(&path), &[libc::ENOENT])?;
    refused("rmdir", fs::remove_dir(&path), &[libc::ENOENT])?;
    fs::write(place.a.join("file"), b"").doing("write")?;
    refused(
        "below a file",
        File::open(place.a.join("file/x")),
        &[libc::ENOTDIR],
    )
}
