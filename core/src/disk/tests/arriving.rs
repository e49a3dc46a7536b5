//! Devices whose bytes arrive in order: they are handed on before a read is done, and a read can be ended.

use super::*;
use crate::conn::Held;

const ORIGIN: Settings = Settings {
    arriving: true,
    rotational: false,
    order: Order::Deadline,
    reads: Some(8),
    ..SETTINGS
};

/// What a stream is told of: the bytes, and what holds them.
fn fetched(outs: &[Out]) -> Vec<(u32, Span, Held)> {
    let told = |out: &Out| match *out {
        Out::Fetched {
            stream, span, held, ..
        } => Some((stream.conn.index, span, held)),
        _ => None,
    };
    outs.iter().filter_map(told).collect()
}

fn part(disk: &mut Disk, read: ReadId, len_bytes: u64) -> Vec<Out> {
    disk.on(In::Part { read, len_bytes }, NOW);
    orders(disk, NOW)
}

fn span(offset_bytes: u64, len_bytes: u64) -> Span {
    Span {
        offset_bytes,
        len_bytes,
    }
}

#[test]
fn the_first_bytes_are_handed_on_at_once_and_then_whole_slots() {
    let (mut disk, outs) = disk_with(ORIGIN, 1);
    let (read, whole, into) = read_of(&outs[0]);
    let slots = FIRST_READ_BYTES / SLOT_BYTES;
    assert_eq!(into, Destination::Slots(slots as u32));
    assert_eq!(
        whole,
        span(0, FIRST_READ_BYTES - SLOT_BYTES),
        "one slot stays partly empty"
    );
    let first = part(&mut disk, read, 1_000);
    assert_eq!(fetched(&first), [(0, span(0, 1_000), Held::Slots)]);
    assert_eq!(part(&mut disk, read, 5_000), [], "it has what it asked for");
    disk.on(In::Want(want(0, 0, 1_000, 1)), NOW);
    assert_eq!(
        orders(&mut disk, NOW),
        [],
        "less than a slot has come since"
    );
    let next = part(&mut disk, read, 1_000 + SLOT_BYTES + 7);
    assert_eq!(fetched(&next), [(0, span(1_000, SLOT_BYTES), Held::Slots)]);
    disk.on(In::Want(want(0, 0, 1_000 + SLOT_BYTES, 2)), NOW);
    disk.on(done(&outs[0]), NOW);
    let rest = whole.len_bytes - 1_000 - SLOT_BYTES;
    let last = fetched(&orders(&mut disk, NOW));
    assert_eq!(last, [(0, span(1_000 + SLOT_BYTES, rest), Held::Slots)]);
}

#[test]
fn what_came_while_a_stream_had_enough_is_its_answer_when_it_wants_more() {
    let (mut disk, outs) = disk_with(ORIGIN, 1);
    let (read, ..) = read_of(&outs[0]);
    part(&mut disk, read, 1_000);
    part(&mut disk, read, 1_000 + 3 * SLOT_BYTES);
    disk.on(In::Want(want(0, 0, 1_000, 1)), NOW);
    let told = fetched(&orders(&mut disk, NOW));
    assert_eq!(told, [(0, span(1_000, 3 * SLOT_BYTES), Held::Slots)]);
}

#[test]
fn a_read_that_is_done_keeps_its_slots_until_its_reader_asks_or_leaves() {
    for leaves in [false, true] {
        let (mut disk, outs) = disk_with(ORIGIN, 1);
        let (read, whole, _) = read_of(&outs[0]);
        part(&mut disk, read, 1_000);
        disk.on(done(&outs[0]), NOW);
        assert_eq!(orders(&mut disk, NOW), []);
        assert!(disk.rests(read));
        let rest = span(1_000, whole.len_bytes - 1_000);
        if leaves {
            disk.on(In::Forget(stream(0)), NOW);
            assert_eq!(orders(&mut disk, NOW), [Out::Cancel(read)]);
        } else {
            disk.on(In::Want(want(0, 0, 1_000, 1)), NOW);
            assert_eq!(fetched(&orders(&mut disk, NOW)), [(0, rest, Held::Slots)]);
        }
        assert!(!disk.rests(read) && disk.idle());
    }
}

#[test]
fn a_read_for_nobody_is_ended_unless_it_is_nearly_done() {
    for (came_bytes, ends) in [(0, true), (FIRST_READ_BYTES - SLOT_BYTES - 1, false)] {
        let settings = Settings {
            prefetch: crate::prefetch::Prefetch::Fixed {
                read_bytes: 512 * KIB,
            },
            ..ORIGIN
        };
        let (mut disk, outs) = disk_with(settings, 1);
        let (read, whole, _) = read_of(&outs[0]);
        part(
            &mut disk,
            read,
            whole
                .len_bytes
                .min(came_bytes + 300 * KIB * u64::from(!ends)),
        );
        disk.on(In::Forget(stream(0)), NOW);
        let ended = orders(&mut disk, NOW).contains(&Out::Cancel(read));
        assert_eq!(ended, ends);
        assert_eq!(orders(&mut disk, NOW), [], "it is ended once");
        disk.on(done(&outs[0]), NOW);
        assert!(disk.idle());
    }
}

#[test]
fn what_the_shell_began_serves_all_who_want_it_and_nothing_is_read_twice() {
    let mut disk = Disk::new(ORIGIN);
    let read = ReadId::of_shell(1);
    let (object, all) = (object(0), span(0, FIRST_READ_BYTES));
    let begun = In::Begun {
        read,
        object,
        span: all,
    };
    disk.on(begun, NOW);
    disk.on(In::Want(want(0, 0, 0, 0)), NOW);
    disk.on(In::Want(want(1, 0, 5_000, 0)), NOW);
    assert_eq!(orders(&mut disk, NOW), []);
    let told = fetched(&part(&mut disk, read, 2_000));
    assert_eq!(told, [(0, span(0, 2_000), Held::PageCache)]);
    let told = fetched(&part(&mut disk, read, 6_000));
    assert_eq!(told, [(1, span(5_000, 1_000), Held::PageCache)]);
    disk.on(In::Want(want(0, 0, 2_000, 1)), NOW);
    let told = fetched(&orders(&mut disk, NOW));
    assert_eq!(told, [(0, span(2_000, 4_000), Held::PageCache)]);
    let result = Ok(all.len_bytes);
    disk.on(In::Done { read, result }, NOW);
    assert_eq!(orders(&mut disk, NOW), []);
    disk.on(In::Want(want(1, 0, all.end_bytes(), 1)), NOW);
    assert_eq!(
        orders(&mut disk, NOW).len(),
        1,
        "what it did not bring is read"
    );
}

#[test]
fn no_stream_is_forgotten_whatever_ends_its_read() {
    let (mut disk, outs) = disk_with(ORIGIN, 3);
    for (nth, out) in outs.iter().enumerate() {
        let (read, whole, _) = read_of(out);
        part(&mut disk, read, 1_000 * nth as u64);
        let result = match nth {
            0 => Ok(whole.len_bytes),
            1 => Ok(1_000),
            _ => Err(ReadError {
                errno: 5,
                offset_bytes: whole.offset_bytes + 2_000,
            }),
        };
        disk.on(In::Done { read, result }, NOW);
    }
    orders(&mut disk, NOW);
    assert_eq!(disk.forgotten(), []);
}

#[test]
fn a_stream_that_has_bytes_of_the_opening_is_read_for_as_for_the_second_time() {
    let mut disk = Disk::new(ORIGIN);
    let fed = Want {
        underrun_at: NOW.plus_us(1),
        rate_bytes_per_s: 0,
        ..want(0, 0, FIRST_READ_BYTES, 1)
    };
    disk.on(In::Want(fed), NOW);
    let (_, whole, _) = read_of(&orders(&mut disk, NOW)[0]);
    assert!(whole.len_bytes < FIRST_READ_BYTES, "{whole:?}");
}

#[test]
fn a_page_cache_without_memory_is_passed_by_for_a_while() {
    let (mut disk, _) = disk_with(ORIGIN, 0);
    let wants: Vec<In> = (0..4).map(|nth| In::Want(want(nth, 0, 0, 1))).collect();
    wants.into_iter().for_each(|want| disk.on(want, NOW));
    let outs = orders(&mut disk, NOW);
    let shared = outs.iter().find_map(|out| match *out {
        Out::Read {
            read,
            into: Destination::PageCache,
            ..
        } => Some(read),
        _ => None,
    });
    disk.on(In::NoMemory(shared.expect("several want it")), NOW);
    let anew = orders(&mut disk, NOW);
    let reads = anew.iter().filter(|out| matches!(out, Out::Read { .. }));
    let mut all = reads.clone();
    assert!(reads.count() > 0, "{anew:?}");
    assert!(
        all.all(|out| matches!(read_of(out).2, Destination::Slots(_))),
        "{anew:?}"
    );
}

#[test]
fn who_can_not_use_slots_is_told_that_there_is_no_memory() {
    let (mut disk, _) = disk_with(ORIGIN, 0);
    let through = Want {
        through_cache: true,
        ..want(0, 0, 0, 1)
    };
    disk.on(In::Want(through), NOW);
    let (read, ..) = read_of(&orders(&mut disk, NOW)[0]);
    disk.on(In::NoMemory(read), NOW);
    let told = orders(&mut disk, NOW);
    let [Out::Failed { stream, error, .. }] = told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((stream, error.errno), (through.stream, 12));
    // It may want again.
    let again = Want {
        seq: through.seq.next(),
        answers: 1,
        ..through
    };
    disk.on(In::Want(again), NOW);
    assert_eq!(
        read_of(&orders(&mut disk, NOW)[0]).2,
        Destination::PageCache
    );
}
