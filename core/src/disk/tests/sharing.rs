//! Which readers share a file.

use super::*;

/// A reader of file 9 with this behind it, of 1 MB/s.
fn reads_on(index: u32, from_bytes: u64, heard: u32) -> Want {
    want(index, 9, from_bytes, heard)
}

/// Where the next bytes of each of these readers of one file go.
fn paths(from_bytes: &[u64]) -> BTreeMap<u64, Destination> {
    let mut disk = Disk::new(Settings {
        reads: Some(8),
        ..SETTINGS
    });
    for (index, from_bytes) in (0..).zip(from_bytes) {
        disk.on(In::Want(reads_on(index, *from_bytes, 1)), NOW);
    }
    let reads = orders(&mut disk, NOW);
    let paths = reads.iter().map(|out| {
        let (_, span, into) = read_of(out);
        (span.offset_bytes, into)
    });
    paths.collect()
}

#[test]
fn three_readers_in_a_window_share_it_and_two_do_not() {
    let window = 7 * WINDOW_BYTES;
    let last = window + WINDOW_BYTES - READ_ALIGN_BYTES;
    let shared = paths(&[window, window + READ_ALIGN_BYTES, last]);
    assert_eq!(
        shared,
        BTreeMap::from([(window, Destination::PageCache)]),
        "one read for all"
    );
    for readers in [[window, last], [window, window]] {
        // The third is a block too far on.
        let alone = paths(&[readers[0], readers[1], window + WINDOW_BYTES]);
        let alone = alone.values().all(|into| *into != Destination::PageCache);
        assert!(alone, "{readers:?}");
    }
}

#[test]
fn who_goes_on_together_goes_on_sharing() {
    let mut disk = Disk::new(SETTINGS);
    let mut from_bytes = 0;
    for heard in 1..20 {
        for index in 0..3 {
            disk.on(In::Want(reads_on(index, from_bytes, heard)), NOW);
        }
        let outs = orders(&mut disk, NOW);
        let (_, span, into) = read_of(&outs[0]);
        assert_eq!((outs.len(), into), (1, Destination::PageCache));
        disk.on(done(&outs[0]), NOW);
        assert_eq!(orders(&mut disk, NOW).len(), 3);
        from_bytes = span.end_bytes();
    }
    // One that is answered counts where it is now.
    disk.on(In::Want(reads_on(0, from_bytes, 20)), NOW);
    let outs = orders(&mut disk, NOW);
    assert_eq!(read_of(&outs[0]).2, Destination::PageCache);
}

#[test]
fn a_file_is_popular_if_what_is_kept_of_it_would_be_there_for_the_next() {
    let again = |page_cache_bytes| {
        let mut disk = Disk::new(Settings {
            page_cache_bytes,
            ..SETTINGS
        });
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
