//! What stands in a file.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use crate::sys::{Aligned, Doing, Mapped, Why, allocate, holds, pattern, refused, same};
use crate::{Check, Place};

pub const CHECKS: &[Check] = &[
    ("write-and-read", write_and_read),
    ("append", append),
    ("two-who-append", two_who_append),
    ("overwrite-in-the-middle", overwrite),
    ("shrink-and-grow", shrink_and_grow),
    ("truncate-at-open", truncate_at_open),
    ("exclusive-create", exclusive),
    ("hole", hole),
    ("far-behind-4-gib", far),
    ("odd-offsets", odd_offsets),
    ("32-mib", many_bytes),
    ("direct", direct),
    ("synchronous", synchronous),
    ("mapped-write", mapped_write),
    ("read-behind-the-end", behind_the_end),
    ("seek-to-the-end", seek_to_the_end),
    ("allocate", allocate_ahead),
    ("copy", copy),
    ("removed-while-open", removed_while_open),
    ("replaced-while-open", replaced_while_open),
];

const MIB: usize = 1 << 20;

fn new(place: &Place) -> Result<File, Why> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(true);
    options.open(place.a.join("file")).doing("a new file")
}

fn is(place: &Place, should: &[u8]) -> Result<(), Why> {
    let bytes = fs::read(place.a.join("file")).doing("read")?;
    same("length", bytes.len(), should.len())?;
    let wrong = bytes.iter().zip(should).position(|(is, of)| is != of);
    holds(wrong.is_none(), || format!("byte {wrong:?} is wrong"))
}

fn write_and_read(place: &Place) -> Result<(), Why> {
    let bytes = pattern(100_001, 1);
    fs::write(place.a.join("file"), &bytes).doing("write")?;
    is(place, &bytes)
}

fn append(place: &Place) -> Result<(), Why> {
    new(place)?.write_all(b"one").doing("write")?;
    let mut options = OpenOptions::new();
    let mut file = options
        .append(true)
        .open(place.a.join("file"))
        .doing("open")?;
    file.write_all(b" two").doing("append")?;
    drop(file);
    is(place, b"one two")
}

fn two_who_append(place: &Place) -> Result<(), Why> {
    new(place)?;
    let open = || OpenOptions::new().append(true).open(place.a.join("file"));
    let (mut one, mut two) = (open().doing("open")?, open().doing("open")?);
    for _ in 0..20 {
        one.write_all(b"1").doing("append")?;
        two.write_all(b"2").doing("append")?;
    }
    drop((one, two));
    is(place, "12".repeat(20).as_bytes())
}

fn overwrite(place: &Place) -> Result<(), Why> {
    let mut bytes = pattern(3 * MIB, 2);
    let mut file = new(place)?;
    file.write_all(&bytes).doing("write")?;
    file.sync_all().doing("fsync")?;
    file.write_all_at(&[7; 5000], 1_000_003)
        .doing("overwrite")?;
    drop(file);
    bytes[1_000_003..1_005_003].fill(7);
    is(place, &bytes)
}

fn shrink_and_grow(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    file.write_all_at(&[9; 10_000], 0).doing("write")?;
    file.set_len(5_001).doing("shrink")?;
    file.set_len(9_000).doing("grow")?;
    drop(file);
    let mut should = vec![9; 5_001];
    should.resize(9_000, 0);
    is(place, &should)
}

fn truncate_at_open(place: &Place) -> Result<(), Why> {
    new(place)?.write_all(&[1; 9_000]).doing("write")?;
    drop(new(place)?);
    is(place, b"")
}

fn exclusive(place: &Place) -> Result<(), Why> {
    let create = || File::create_new(place.a.join("file"));
    create().doing("a new file")?;
    refused("a second one", create(), &[libc::EEXIST])
}

fn hole(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    file.write_all_at(b"behind", 3_000_000).doing("write")?;
    drop(file);
    let mut should = vec![0; 3_000_000];
    should.extend(b"behind");
    is(place, &should)
}

fn far(place: &Place) -> Result<(), Why> {
    let at = (5 << 30) + 3;
    let file = new(place)?;
    file.write_all_at(b"far", at).doing("write")?;
    file.sync_all().doing("fsync")?;
    drop(file);
    let file = File::open(place.a.join("file")).doing("open")?;
    same("length", file.metadata().doing("stat")?.len(), at + 3)?;
    let mut bytes = [1; 5];
    file.read_exact_at(&mut bytes, at - 2).doing("read")?;
    same("bytes", &bytes, b"\0\0far")
}

fn odd_offsets(place: &Place) -> Result<(), Why> {
    let mut should = vec![0; 300_000];
    let file = new(place)?;
    file.set_len(300_000).doing("length")?;
    let mut at = 1;
    for nth in 0..60 {
        let len = (nth * 977) % 9_001 + 1;
        let bytes = pattern(len, nth as u64);
        file.write_all_at(&bytes, at as u64).doing("write")?;
        should[at..at + len].copy_from_slice(&bytes);
        at = (at * 7 + 4_093) % 290_000;
    }
    drop(file);
    is(place, &should)
}

fn many_bytes(place: &Place) -> Result<(), Why> {
    let bytes = pattern(32 * MIB, 3);
    fs::write(place.a.join("file"), &bytes).doing("write")?;
    is(place, &bytes)
}

fn direct(place: &Place) -> Result<(), Why> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true);
    let options = options.custom_flags(libc::O_DIRECT);
    let file = options.open(place.a.join("file")).doing("open")?;
    let mut memory = Aligned::new(MIB);
    memory.bytes().copy_from_slice(&pattern(MIB, 4));
    file.write_all_at(memory.bytes(), 8192).doing("write")?;
    memory.bytes().fill(0);
    file.read_exact_at(memory.bytes(), 8192).doing("read")?;
    holds(memory.bytes() == pattern(MIB, 4), || {
        "its bytes are wrong".into()
    })
}

fn synchronous(place: &Place) -> Result<(), Why> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).custom_flags(libc::O_SYNC);
    let mut file = options.open(place.a.join("file")).doing("open")?;
    for nth in 0..10 {
        file.write_all(&[nth; 3_000]).doing("write")?;
    }
    drop(file);
    let should: Vec<u8> = (0..10).flat_map(|nth| [nth; 3_000]).collect();
    is(place, &should)
}

fn mapped_write(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    file.set_len(100_000).doing("length")?;
    let mut mapped = Mapped::new(&file, 100_000).doing("mmap")?;
    mapped.bytes()[50_000..50_004].copy_from_slice(b"here");
    mapped.sync().doing("msync")?;
    drop(mapped);
    drop(file);
    let mut should = vec![0; 100_000];
    should[50_000..50_004].copy_from_slice(b"here");
    is(place, &should)
}

fn behind_the_end(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    file.write_all_at(b"short", 0).doing("write")?;
    let mut bytes = [0; 10];
    same("bytes", file.read_at(&mut bytes, 3).doing("read")?, 2)?;
    same("bytes", file.read_at(&mut bytes, 5).doing("read")?, 0)?;
    same("bytes", file.read_at(&mut bytes, 1 << 40).doing("read")?, 0)
}

fn seek_to_the_end(place: &Place) -> Result<(), Why> {
    let mut file = new(place)?;
    file.write_all(&[1; 4_321]).doing("write")?;
    let at = file.seek(SeekFrom::End(-21)).doing("seek")?;
    same("offset", at, 4_300)?;
    let mut rest = Vec::new();
    file.read_to_end(&mut rest).doing("read")?;
    same("length", rest.len(), 21)
}

/// NFS version 3 has no such procedure: the kernel says so, and nothing is half done.
fn allocate_ahead(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    match allocate(&file, 100_000) {
        Ok(()) => same("length", file.metadata().doing("stat")?.len(), 100_000),
        refusal => refused("fallocate", refusal, &[libc::EOPNOTSUPP]),
    }
}

fn copy(place: &Place) -> Result<(), Why> {
    let bytes = pattern(2 * MIB + 5, 5);
    fs::write(place.a.join("first"), &bytes).doing("write")?;
    let copied = fs::copy(place.a.join("first"), place.a.join("file"));
    same("copied", copied.doing("copy")?, bytes.len() as u64)?;
    is(place, &bytes)
}

fn removed_while_open(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    file.write_all_at(b"still here", 0).doing("write")?;
    fs::remove_file(place.a.join("file")).doing("remove")?;
    refused("stat", fs::metadata(place.a.join("file")), &[libc::ENOENT])?;
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 0).doing("read")?;
    same("bytes", &bytes, b"still here")
}

fn replaced_while_open(place: &Place) -> Result<(), Why> {
    let file = new(place)?;
    file.write_all_at(b"old", 0).doing("write")?;
    fs::write(place.a.join("other"), b"new").doing("write")?;
    fs::rename(place.a.join("other"), place.a.join("file")).doing("rename")?;
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 0).doing("read")?;
    same("the old file", &bytes, b"old")?;
    is(place, b"new")
}
