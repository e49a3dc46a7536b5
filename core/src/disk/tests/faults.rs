//! What can't be read, clocks that leap, and memory that is short.

use super::*;

const EIO: i32 = 5;

fn failed(read: ReadId, offset_bytes: u64) -> In {
    let errno = EIO;
    In::Done {
        read,
        result: Err(ReadError {
            errno,
            offset_bytes,
        }),
    }
}

/// A stream and what it was told: the first byte and how many there are, or where it failed.
type Told = (u32, Result<(u64, u64), ReadError>);

fn told(outs: &[Out]) -> Vec<Told> {
    let told = outs.iter().filter_map(|out| match out {
        Out::Filled { stream, span, .. } => {
            Some((stream.conn.index, Ok((span.offset_bytes, span.len_bytes))))
        }
        Out::Failed { stream, error } => Some((stream.conn.index, Err(*error))),
        _ => None,
    });
    told.collect()
}

#[test]
fn an_error_reaches_each_waiter_and_an_early_end_is_one() {
    let mut disk = Disk::new(SETTINGS);
    disk.on(In::Want(want(1, 9, 0, 0)), NOW);
    disk.on(In::Want(want(2, 9, 0, 0)), NOW);
    let (read, ..) = read_of(&orders(&mut disk, NOW)[0]);
    disk.on(failed(read, 100), NOW);
    let error = |errno, offset_bytes| ReadError {
        errno,
        offset_bytes,
    };
    let outs = orders(&mut disk, NOW);
    assert_eq!(told(&outs), [(1, Ok((0, 100))), (2, Ok((0, 100)))]);
    for n in [1, 2] {
        disk.on(In::Want(want(n, 9, 100, 1)), NOW);
    }
    let (read, span, _) = read_of(&orders(&mut disk, NOW)[0]);
    assert_eq!(span.offset_bytes, 100);
    disk.on(failed(read, 100), NOW);
    let mut both = told(&orders(&mut disk, NOW));
    both.sort_by_key(|(n, _)| *n);
    assert_eq!(both, [1, 2].map(|n| (n, Err(error(EIO, 100)))));
    disk.on(In::Want(want(3, 3, MIB, 0)), NOW);
    let (read, ..) = read_of(&orders(&mut disk, NOW)[0]);
    let result = Ok(0);
    disk.on(In::Done { read, result }, NOW);
    let outs = orders(&mut disk, NOW);
    assert_eq!(told(&outs), [(3, Err(error(0, MIB)))]);
}

#[test]
fn what_was_read_before_a_bad_block_is_told_first() {
    let (mut disk, first) = disk_with(SETTINGS, 1);
    let (read, span, _) = read_of(&first[0]);
    disk.on(failed(read, 2 * READ_ALIGN_BYTES), NOW);
    let outs = orders(&mut disk, NOW);
    assert_eq!(told(&outs), [(0, Ok((0, 2 * READ_ALIGN_BYTES)))]);
    assert!(
        matches!(outs[0], Out::Filled { read: of, held: Held::Slots, .. } if of == read),
        "with the memory of the read: {span:?}"
    );
    disk.on(In::Want(want(0, 0, 2 * READ_ALIGN_BYTES, 1)), NOW);
    let (read, span, _) = read_of(&orders(&mut disk, NOW)[0]);
    assert_eq!(span.offset_bytes, 2 * READ_ALIGN_BYTES);
    disk.on(failed(read, span.offset_bytes), NOW);
    let error = ReadError {
        errno: EIO,
        offset_bytes: span.offset_bytes,
    };
    assert_eq!(told(&orders(&mut disk, NOW)), [(0, Err(error))]);
}

#[test]
fn who_waits_behind_a_bad_block_is_read_for_on_its_own() {
    let mut disk = Disk::new(SETTINGS);
    for (n, from_bytes) in [(1, 0), (2, 64 * KIB), (3, 68 * KIB), (4, 512 * KIB)] {
        disk.on(In::Want(want(n, 9, from_bytes, 0)), NOW);
    }
    let first = orders(&mut disk, NOW);
    assert_eq!(first.len(), 1, "one read for all of the window");
    let (read, ..) = read_of(&first[0]);
    disk.on(failed(read, 64 * KIB), NOW);
    let outs = orders(&mut disk, NOW);
    let error = ReadError {
        errno: EIO,
        offset_bytes: 64 * KIB,
    };
    assert_eq!(told(&outs), [(1, Ok((0, 64 * KIB))), (2, Err(error))]);
    let again: Vec<_> = outs
        .iter()
        .filter(|out| matches!(out, Out::Read { .. }))
        .collect();
    assert_eq!(again.len(), 1, "{outs:?}");
    let (read, span, into) = read_of(again[0]);
    assert_eq!((span.offset_bytes, into), (68 * KIB, Into::PageCache));
    let result = Ok(span.len_bytes);
    disk.on(In::Done { read, result }, NOW);
    let came = told(&orders(&mut disk, NOW));
    let rest = |from| (from, MIB - from);
    assert_eq!(came, [(3, Ok(rest(68 * KIB))), (4, Ok(rest(512 * KIB)))]);
}
