//! Which readers share a file: by position, by time, and by what the page cache was found to hold.

use super::*;
use crate::conn::WantSeq;
use crate::limits::{EVICTED_WINDOWS_MAX, UNSHARED_US};

const MB: u64 = 1_000_000;

fn disk(page_cache_bytes: u64) -> Disk {
    Disk::new(Settings {
        page_cache_bytes,
        reads: Some(8),
        ..SETTINGS
    })
}

/// A reader of file 9 with this behind it, of 1 MB/s.
fn reads_on(index: u32, from_bytes: u64, heard: u32) -> Want {
    Want {
        rate_bytes_per_s: MB,
        ..want(index, 9, from_bytes, heard)
    }
}

/// Where the next bytes of each of these readers of one file go.
fn paths(disk: &mut Disk, from_bytes: &[u64], now: Instant) -> BTreeMap<u64, Destination> {
    for (index, from_bytes) in (0..).zip(from_bytes) {
        disk.on(In::Want(reads_on(index, *from_bytes, 1)), now);
    }
    let reads = orders(disk, now);
    let paths = reads.iter().map(|out| {
        let (_, span, into) = read_of(out);
        (span.offset_bytes, into)
    });
    paths.collect()
}

fn shared(paths: &BTreeMap<u64, Destination>) -> Vec<u64> {
    let cached = paths
        .iter()
        .filter(|(_, into)| **into == Destination::PageCache);
    cached.map(|(from_bytes, _)| *from_bytes).collect()
}

#[test]
fn who_is_followed_near_by_is_read_for_through_the_page_cache_and_the_last_one_past_it() {
    let near = paths(&mut disk(64 * MIB), &[0, 20 * MIB], NOW);
    assert_eq!(shared(&near), [20 * MIB]);
    assert!(
        matches!(near[&0], Destination::Slots(_)),
        "nobody follows: {near:?}"
    );
}

#[test]
fn readers_far_apart_share_nothing_and_more_memory_brings_them_near() {
    let apart = [0, 500 * MIB];
    assert_eq!(shared(&paths(&mut disk(64 * MIB), &apart, NOW)), []);
    assert_eq!(shared(&paths(&mut disk(1 << 30), &apart, NOW)), [500 * MIB]);
}

#[test]
fn who_wants_less_of_the_file_does_not_follow_beyond_that() {
    let mut disk = disk(64 * MIB);
    let mut short = reads_on(5, 0, 1);
    short.span.len_bytes = 10 * MIB;
    disk.on(In::Want(short), NOW);
    assert_eq!(shared(&paths(&mut disk, &[20 * MIB], NOW)), []);
}

#[test]
fn the_nearest_pairs_share_what_memory_there_is() {
    let mut disk = disk(64 * MIB);
    // What they read stays in the device, so that each pair that shares counts when the next one comes.
    let mut sharing = 0;
    for pair in 0..8 {
        let apart = (10 + u64::from(pair)) * MIB;
        for (index, from_bytes) in [(2 * pair, apart), (2 * pair + 1, 0)] {
            let want = Want {
                rate_bytes_per_s: MB,
                ..want(index, pair, from_bytes, 1)
            };
            disk.on(In::Want(want), NOW);
        }
        let reads = orders(&mut disk, NOW);
        let cached = reads
            .iter()
            .filter(|out| read_of(out).2 == Destination::PageCache);
        assert!(cached.clone().count() <= 1);
        sharing += cached.count();
    }
    assert!((2..=4).contains(&sharing), "{sharing} pairs in 64 MiB");
}

#[test]
fn a_file_is_popular_if_what_is_kept_of_it_would_be_there_for_the_next() {
    let again = |page_cache_bytes| {
        let mut disk = disk(page_cache_bytes);
        let mut from_bytes = 0;
        for heard in 0..40 {
            disk.on(In::Want(reads_on(1, from_bytes, heard)), NOW);
            let outs = orders(&mut disk, NOW);
            let read = outs.last().expect("a read");
            from_bytes = read_of(read).1.end_bytes();
            disk.on(done(read), NOW);
            orders(&mut disk, NOW);
            if let (_, _, Destination::Slots(slots)) = read_of(read) {
                disk.on(In::Freed(slots), NOW);
            }
        }
        disk.on(In::Forget(stream(1)), NOW);
        let later = NOW.plus_us(60_000_000);
        disk.on(In::Want(reads_on(2, 0, 0)), later);
        read_of(&orders(&mut disk, later)[0]).2
    };
    assert_eq!(again(1 << 30), Destination::PageCache);
    assert!(
        matches!(again(16 * MIB), Destination::Slots(_)),
        "longer than what is kept"
    );
}

/// One reader of a popular file, for which the whole file is read into the page cache; a later reader finds nothing of
/// it.
fn in_vain(disk: &mut Disk, windows: u64, now: Instant) {
    disk.on(In::Want(reads_on(1, 0, 0)), now);
    for window in 0..windows {
        let outs = orders(disk, now);
        disk.on(done(outs.last().expect("a read")), now);
        orders(disk, now);
        let next = reads_on(1, (window + 1) * WINDOW_BYTES, window as u32 + 1);
        disk.on(In::Want(next), now);
    }
    disk.on(In::Forget(stream(1)), now);
    orders(disk, now);
}

#[test]
fn windows_that_were_gone_before_their_second_reader_came_end_the_popularity_of_a_file_for_a_while()
{
    let mut disk = disk(1 << 30);
    for index in [2, 3] {
        disk.on(In::Want(reads_on(index, 0, 0)), NOW); // popular
        disk.on(In::Forget(stream(index)), NOW);
    }
    in_vain(&mut disk, 40, NOW);
    let mut path = |index, window: u64, heard, now| {
        disk.on(In::Want(reads_on(index, window * WINDOW_BYTES, heard)), now);
        let outs = orders(&mut disk, now);
        let read = outs.iter().rfind(|out| matches!(out, Out::Read { .. }));
        let read = *read.expect("a read");
        disk.on(done(&read), now);
        orders(&mut disk, now);
        read_of(&read).2
    };
    for nth in 0..EVICTED_WINDOWS_MAX as u64 - 1 {
        assert_eq!(
            path(4, nth, nth as u32, NOW),
            Destination::PageCache,
            "{nth}"
        );
    }
    let nth = EVICTED_WINDOWS_MAX as u64 - 1;
    assert!(matches!(
        path(4, nth, nth as u32, NOW),
        Destination::Slots(_)
    ));
    // Others ask for the same at once, and all of them would be wrong again.
    assert!(matches!(path(5, 0, 0, NOW), Destination::Slots(_)));
    let later = NOW.plus_us(UNSHARED_US);
    assert_eq!(
        path(6, 0, 0, later),
        Destination::PageCache,
        "it is tried again"
    );
}

#[test]
fn windows_that_were_found_are_evidence_for_it() {
    let mut disk = disk(1 << 30);
    for index in [2, 3] {
        disk.on(In::Want(reads_on(index, 0, 0)), NOW);
        disk.on(In::Forget(stream(index)), NOW);
    }
    in_vain(&mut disk, 80, NOW);
    // Of four windows it finds three: it wants each fourth.
    for nth in 0..20 {
        let want = reads_on(4, nth * 4 * WINDOW_BYTES, nth as u32);
        disk.on(In::Want(want), NOW);
        let outs = orders(&mut disk, NOW);
        assert_eq!(read_of(&outs[0]).2, Destination::PageCache, "{nth}");
        disk.on(done(&outs[0]), NOW);
        orders(&mut disk, NOW);
    }
}

#[test]
fn what_nobody_could_ask_about_is_looked_for_in_the_page_cache_first() {
    let mut disk = disk(64 * MIB);
    for index in [2, 3] {
        disk.on(In::Want(reads_on(index, 0, 0)), NOW);
        disk.on(In::Forget(stream(index)), NOW);
    }
    in_vain(&mut disk, 12, NOW);
    let much_later = NOW.plus_us(7_200_000_000);
    let unasked = Want {
        absent: false,
        ..reads_on(4, 3 * WINDOW_BYTES, 1)
    };
    disk.on(In::Want(unasked), much_later);
    let outs = orders(&mut disk, much_later);
    assert_eq!(read_of(&outs[0]).2, Destination::PageCache);
    disk.on(done(&outs[0]), much_later);
    disk.on(In::Forget(stream(4)), much_later);
    orders(&mut disk, much_later);
    disk.on(In::Want(reads_on(5, 4 * WINDOW_BYTES, 1)), much_later);
    let outs = orders(&mut disk, much_later);
    assert!(
        matches!(read_of(&outs[0]).2, Destination::Slots(_)),
        "it is not there"
    );
}

#[test]
fn a_follower_who_is_slower_than_he_seems_ends_it_by_what_he_does_not_find() {
    let mut disk = disk(64 * MIB);
    let fast = Want {
        rate_bytes_per_s: 100 * MB,
        underrun_at: NOW.plus_us(30_000_000),
        ..reads_on(1, 300 * MIB, 1)
    };
    disk.on(In::Want(fast), NOW);
    let mut heard = 1;
    let mut leader_reads = |disk: &mut Disk, from_bytes: u64| {
        disk.on(In::Want(reads_on(0, from_bytes, heard)), NOW);
        heard += 1;
        let read = orders(disk, NOW).pop().expect("a read");
        disk.on(done(&read), NOW);
        orders(disk, NOW);
        read_of(&read).2
    };
    for window in 400..500 {
        assert_eq!(
            leader_reads(&mut disk, window * WINDOW_BYTES),
            Destination::PageCache
        );
    }
    for (heard, window) in (2..).zip(400..400 + EVICTED_WINDOWS_MAX as u64) {
        let absent = Want {
            seq: WantSeq(heard + 1),
            span: Span {
                offset_bytes: window * WINDOW_BYTES,
                ..fast.span
            },
            ..fast
        };
        disk.on(In::Want(absent), NOW);
    }
    let path = leader_reads(&mut disk, 500 * WINDOW_BYTES);
    assert!(matches!(path, Destination::Slots(_)), "{path:?}");
}

proptest! {
    /// Whatever their rates and positions: a nearer reader shares if one farther away does, more memory never takes
    /// sharing away, and what is counted for readers is zero when they are gone.
    #[test]
    fn nearness_is_monotonous(
        apart in 1u64..400,
        nearer_percent in 0u64..100,
        rates in (10_000u64..20_000_000, 10_000u64..20_000_000),
        cache_mib in 1u64..4_000,
    ) {
        let shares = |apart_bytes: u64, cache_mib: u64| {
            let mut disk = disk(cache_mib * MIB);
            for (index, from_bytes, rate) in [(0, apart_bytes, rates.0), (1, 0, rates.1)] {
                let want = Want { rate_bytes_per_s: rate, ..reads_on(index, from_bytes, 1) };
                disk.on(In::Want(want), NOW);
            }
            let reads = orders(&mut disk, NOW);
            let cached = reads.iter().any(|out| read_of(out).2 == Destination::PageCache);
            (0..2).for_each(|index| disk.on(In::Forget(stream(index)), NOW));
            assert_eq!(disk.cache_fill_bytes_per_s, 0);
            cached
        };
        let (far, near) = (apart * MIB, apart * MIB * nearer_percent / 100);
        prop_assert!(!shares(far, cache_mib) || shares(near, cache_mib));
        prop_assert!(!shares(far, cache_mib) || shares(far, 2 * cache_mib));
    }
}
