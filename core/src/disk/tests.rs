//! The machine's behaviour, tested by hand: faults in [`faults`], the sharing of files in [`sharing`].
//! `sim/src/worlds/hostile/` has shells that do random things.

mod arriving;
mod faults;
mod memory;
mod rests;
mod sharing;
mod sweep;

use std::collections::BTreeMap;

use super::room::READS_IN_FLIGHT_MIN;
use super::*;
use crate::conn::{ConnId, ObjectId, WantSeq};
use crate::limits::{FIRST_READ_BYTES, READ_ALIGN_BYTES, READ_BYTES_MIN, SLOT_BYTES, WINDOW_BYTES};
use crate::units::{KIB, MIB};

pub(super) const NOW: Instant = Instant { us: 5_000_000 };
const FILE_BYTES: u64 = 1 << 30;

pub(super) const SETTINGS: Settings = Settings {
    memory_bytes: 64 * MIB,
    page_cache_bytes: 64 * MIB,
    ..Settings::ONE_DISK
};

fn stream(index: u32) -> StreamId {
    StreamId {
        worker: 0,
        conn: ConnId {
            index,
            generation: 0,
        },
        nth: 0,
    }
}

fn object(index: u32) -> ObjectId {
    ObjectId {
        device: 0,
        index,
        generation: 0,
    }
}

/// A stalled stream of 1 MB/s, with `from_bytes` of its file behind it.
pub(super) fn want(index: u32, file: u32, from_bytes: u64, heard: u32) -> Want {
    Want {
        stream: stream(index),
        object: object(file),
        span: Span {
            offset_bytes: from_bytes,
            len_bytes: FILE_BYTES - from_bytes,
        },
        underrun_at: NOW,
        rate_bytes_per_s: if heard == 0 { 0 } else { 1_000_000 },
        seq: WantSeq(heard + 1),
        answers: heard,
        signals: 0,
        through_cache: false,
    }
}

/// All orders until there is none; files are found at once, one behind the other.
pub(super) fn orders(disk: &mut Disk, now: Instant) -> Vec<Out> {
    let mut outs = Vec::new();
    while let Some(out) = disk.poll(now) {
        if let Out::Map(object) = out {
            let extent = Extent {
                file_bytes: 0,
                device_bytes: u64::from(object.index) * FILE_BYTES,
                len_bytes: FILE_BYTES,
            };
            let layout = Layout::new(vec![extent]);
            let direct = true;
            disk.on(
                In::Mapped {
                    object,
                    layout,
                    direct,
                },
                now,
            );
        } else {
            outs.push(out);
        }
    }
    outs
}

fn disk_with(settings: Settings, streams: u32) -> (Disk, Vec<Out>) {
    let mut disk = Disk::new(settings);
    for n in 0..streams {
        disk.on(In::Want(want(n, n, 0, 0)), NOW);
    }
    let outs = orders(&mut disk, NOW);
    (disk, outs)
}

pub(super) fn read_of(out: &Out) -> (ReadId, Span, Destination) {
    match *out {
        Out::Read {
            read, span, into, ..
        } => (read, span, into),
        ref other => panic!("expected a read, got {other:?}"),
    }
}

pub(super) fn done(out: &Out) -> In {
    let (read, span, _) = read_of(out);
    In::Done {
        read,
        result: Ok(span.len_bytes),
    }
}

#[test]
fn the_device_never_holds_more_than_its_places() {
    let (mut disk, first) = disk_with(SETTINGS, 20);
    assert_eq!(first.len(), disk.reads_max());
    disk.on(done(&first[1]), NOW);
    let next = orders(&mut disk, NOW);
    assert!(matches!(next[0], Out::Fetched { stream: s, held: Held::Slots, .. } if s == stream(1)));
    assert!(next.len() >= 2, "an answer, and the next read: {next:?}");
}

#[test]
fn a_first_read_is_short_and_the_next_follows_the_rate() {
    let (mut disk, first) = disk_with(SETTINGS, 1);
    let (_, span, into) = read_of(&first[0]);
    assert_eq!(
        (span.len_bytes, into),
        (FIRST_READ_BYTES, Destination::Slots(8))
    );
    disk.on(done(&first[0]), NOW);
    orders(&mut disk, NOW);
    let not_due = Want {
        underrun_at: NOW.plus_us(600_000),
        ..want(0, 0, FIRST_READ_BYTES, 1)
    };
    disk.on(In::Want(not_due), NOW);
    assert_eq!(orders(&mut disk, NOW), [], "T_D is 1 s for one stream");
    assert_eq!(disk.deadline(), Some(NOW.plus_us(100_000)));
    let next = orders(&mut disk, NOW.plus_us(100_000));
    let (_, span, _) = read_of(&next[0]);
    assert_eq!(
        span,
        Span {
            offset_bytes: FIRST_READ_BYTES,
            len_bytes: 500_000 / SLOT_BYTES * SLOT_BYTES
        },
        "half a second of 1 MB/s"
    );
}

#[test]
fn a_file_no_longer_than_a_first_read_takes_one_read() {
    for len_bytes in [1, SLOT_BYTES, 20_000, 60_000, FIRST_READ_BYTES] {
        for offset_bytes in [0, 5_000] {
            let mut disk = Disk::new(SETTINGS);
            let mut small = want(0, 0, offset_bytes, 0);
            (small.span.len_bytes, small.rate_bytes_per_s) = (len_bytes, 0);
            disk.on(In::Want(small), NOW);
            let (_, span, _) = read_of(&orders(&mut disk, NOW)[0]);
            assert!(span.end_bytes() >= small.span.end_bytes(), "{span:?}");
        }
    }
}

#[test]
fn nothing_is_read_or_told_to_a_client_that_left() {
    let (mut disk, first) = disk_with(SETTINGS, 20);
    for n in 0..20 {
        disk.on(In::Forget(stream(n)), NOW);
    }
    for out in &first {
        disk.on(done(out), NOW);
    }
    assert_eq!(orders(&mut disk, NOW), []);
    assert!(disk.idle() && disk.load().streams == 0 && disk.load().rates_bytes_per_s == 0);
}

#[test]
fn without_cancelling_those_who_left_are_read_for_and_hear_nothing() {
    let settings = Settings {
        cancel: false,
        ..SETTINGS
    };
    let (mut disk, mut reads) = disk_with(settings, 20);
    for n in 0..20 {
        disk.on(In::Forget(stream(n)), NOW);
    }
    let mut count = 0;
    while let Some(read) = reads.pop() {
        count += 1;
        disk.on(done(&read), NOW);
        reads.extend(orders(&mut disk, NOW));
    }
    assert_eq!(count, 20);
    assert!(disk.idle() && disk.load().streams == 0);
}

#[test]
fn a_window_with_three_readers_is_read_once_through_the_page_cache() {
    let mut disk = Disk::new(SETTINGS);
    for (n, from_bytes) in [(1, 0), (2, 4096), (4, WINDOW_BYTES - 1)] {
        disk.on(In::Want(want(n, 9, from_bytes, 0)), NOW);
    }
    let first = orders(&mut disk, NOW);
    assert_eq!(first.len(), 1);
    let (_, span, into) = read_of(&first[0]);
    assert_eq!(
        (span.end_bytes(), into),
        (WINDOW_BYTES, Destination::PageCache)
    );
    disk.on(In::Want(want(3, 9, 8192, 0)), NOW);
    assert_eq!(orders(&mut disk, NOW), [], "a read under way is joined");
    disk.on(done(&first[0]), NOW);
    let told = orders(&mut disk, NOW);
    let cached = |out: &Out| matches!(out, Out::Fetched { held: Held::PageCache, span, .. } if span.end_bytes() == WINDOW_BYTES);
    assert!(told.len() == 4 && told.iter().all(cached), "{told:?}");
}

#[test]
fn the_last_reader_of_a_shared_file_cancels_its_read() {
    let mut disk = Disk::new(SETTINGS);
    for n in 0..2 {
        disk.on(In::Want(want(n, 8, 0, 0)), NOW); // keeps the device busy
        disk.on(In::Want(want(10 + n, 9, 0, 0)), NOW);
    }
    disk.on(In::Forget(stream(10)), NOW);
    disk.on(In::Forget(stream(11)), NOW);
    let reads: Vec<_> = orders(&mut disk, NOW).iter().map(read_of).collect();
    assert_eq!(reads.len(), 1, "only the other file's: {reads:?}");
}

#[test]
fn a_want_that_crossed_its_answer_is_void() {
    let (mut disk, first) = disk_with(SETTINGS, 1);
    disk.on(done(&first[0]), NOW);
    assert!(matches!(orders(&mut disk, NOW)[..], [Out::Fetched { .. }]));
    disk.on(In::Want(want(0, 0, 0, 0)), NOW);
    assert_eq!(orders(&mut disk, NOW), []);
    disk.on(In::Want(want(0, 0, FIRST_READ_BYTES, 1)), NOW);
    assert_eq!(
        orders(&mut disk, NOW).len(),
        1,
        "it heard, and wants for more"
    );
}

#[test]
fn an_unaligned_want_is_read_from_its_block_and_told_as_wanted() {
    let mut disk = Disk::new(SETTINGS);
    let want = Want {
        span: Span {
            offset_bytes: 10_000,
            len_bytes: 100,
        },
        ..want(1, 1, 0, 0)
    };
    disk.on(In::Want(want), NOW);
    let outs = orders(&mut disk, NOW);
    let (_, span, into) = read_of(&outs[0]);
    assert_eq!(
        (span, into),
        (
            Span {
                offset_bytes: 8192,
                len_bytes: 4096
            },
            Destination::Slots(1)
        )
    );
    disk.on(done(&outs[0]), NOW);
    assert!(matches!(orders(&mut disk, NOW)[..], [Out::Fetched { span, .. }] if span == want.span));
}

#[test]
fn a_want_through_the_page_cache_gets_no_slots_and_joins_no_read_into_slots() {
    let mut disk = Disk::new(SETTINGS);
    disk.on(In::Want(want(1, 1, 0, 0)), NOW);
    let outs = orders(&mut disk, NOW);
    assert!(matches!(read_of(&outs[0]).2, Destination::Slots(_)));
    let through = Want {
        through_cache: true,
        ..want(2, 1, 0, 0)
    };
    disk.on(In::Want(through), NOW);
    let through = orders(&mut disk, NOW);
    assert_eq!(read_of(&through[0]).2, Destination::PageCache);
    disk.on(done(&through[0]), NOW);
    let told = orders(&mut disk, NOW);
    let [
        Out::Fetched {
            stream: of,
            held: Held::PageCache,
            ..
        },
    ] = told[..]
    else {
        panic!("{told:?}");
    };
    assert_eq!(of, stream(2));
}

#[test]
fn who_stands_still_is_read_for_as_much_as_the_others() {
    let mut disk = Disk::new(SETTINGS);
    for n in 0..9 {
        let later = Want {
            underrun_at: NOW.plus_us(30_000_000),
            ..want(n, n, 0, 1)
        };
        disk.on(In::Want(later), NOW);
    }
    let slow = |n, underrun_at| Want {
        underrun_at,
        rate_bytes_per_s: 100_000,
        ..want(n, n, 0, 1)
    };
    disk.on(In::Want(slow(9, NOW)), NOW);
    disk.on(In::Want(slow(10, NOW.plus_us(1_000))), NOW);
    let outs = orders(&mut disk, NOW);
    let len = |n: usize| read_of(&outs[n]).1.len_bytes;
    assert!(len(0) > 5 * len(1), "{outs:?}");
    assert!(len(0) <= 10 * len(1) + SLOT_BYTES, "{outs:?}");
}

#[test]
fn a_file_that_takes_no_direct_reads_is_read_through_the_page_cache_and_others_are_not() {
    let mut disk = Disk::new(SETTINGS);
    let direct = [true, false];
    let mut wanted = |n: u32, heard| {
        disk.on(In::Want(want(n, n, 0, heard)), NOW);
        while let Some(out) = disk.poll(NOW) {
            match out {
                Out::Map(object) => {
                    let mapped = In::Mapped {
                        object,
                        layout: Layout::default(),
                        direct: direct[n as usize],
                    };
                    disk.on(mapped, NOW);
                }
                out => return read_of(&out).2,
            }
        }
        panic!("a read");
    };
    assert!(matches!(wanted(0, 0), Destination::Slots(_)));
    assert_eq!(wanted(1, 0), Destination::PageCache);
}
