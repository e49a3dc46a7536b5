//! What can't be read, clocks that leap, and memory that is short.

use alloc::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::limits::{BYPASSES_MAX, URGENT_IN_A_ROW_MAX};

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
        Out::Fetched { stream, span, .. } => {
            Some((stream.conn.index, Ok((span.offset_bytes, span.len_bytes))))
        }
        Out::Failed { stream, error, .. } => Some((stream.conn.index, Err(*error))),
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
        matches!(outs[0], Out::Fetched { read: of, held: Held::Slots, .. } if of == read),
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
    assert_eq!(
        (span.offset_bytes, into),
        (68 * KIB, Destination::PageCache)
    );
    let result = Ok(span.len_bytes);
    disk.on(In::Done { read, result }, NOW);
    let came = told(&orders(&mut disk, NOW));
    let rest = |from| (from, MIB - from);
    assert_eq!(came, [(3, Ok(rest(68 * KIB))), (4, Ok(rest(512 * KIB)))]);
}

/// Streams that always want more while the pool is too small for all of them, and new ones that keep coming.
struct Crowd {
    disk: Disk,
    flying: VecDeque<(ReadId, u64, u32)>,
    /// Slots that clients hold, the oldest first.
    held: VecDeque<u32>,
    /// How many reads had been made when each sent its want.
    wanted: BTreeMap<u32, u64>,
    heard: BTreeMap<u32, u32>,
    reads: u64,
    longest_wait: u64,
}

/// Those from here on read once and leave.
const NEWCOMERS: u32 = 1_000;

impl Crowd {
    fn want(&mut self, n: u32, rates: &[u64]) {
        let heard = self.heard.get(&n).copied().unwrap_or(0);
        let rate = rates.get(n as usize).copied().unwrap_or(0);
        let from_bytes = u64::from(heard % 200) * MIB;
        let want = Want {
            rate_bytes_per_s: if heard == 0 { 0 } else { rate },
            ..want(n, n, from_bytes, heard)
        };
        self.disk.on(In::Want(want), NOW);
        self.wanted.insert(n, self.reads);
    }

    fn turn(&mut self, rates: &[u64]) {
        for out in orders(&mut self.disk, NOW) {
            match out {
                Out::Read {
                    read, span, into, ..
                } => {
                    let Destination::Slots(slots) = into else {
                        panic!("nobody shares")
                    };
                    self.reads += 1;
                    self.flying.push_back((read, span.len_bytes, slots));
                }
                Out::Fetched { stream, .. } => {
                    let n = stream.conn.index;
                    let since = self.wanted.remove(&n).expect("it wanted");
                    if n >= NEWCOMERS {
                        self.disk.on(In::Forget(stream), NOW);
                        continue;
                    }
                    self.longest_wait = self.longest_wait.max(self.reads - since);
                    *self.heard.entry(n).or_default() += 1;
                    self.want(n, rates);
                }
                out => panic!("{out:?}"),
            }
        }
    }

    /// A read comes back; the oldest clients send what they hold beyond `lag` reads.
    fn step(&mut self, lag: usize) {
        if let Some((read, len_bytes, slots)) = self.flying.pop_front() {
            let result = Ok(len_bytes);
            self.disk.on(In::Done { read, result }, NOW);
            self.held.push_back(slots);
        }
        while self.held.len() > lag || self.flying.is_empty() && !self.held.is_empty() {
            let slots = self.held.pop_front().unwrap_or(0);
            self.disk.on(In::Freed(slots), NOW);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(6), cases: 32, ..ProptestConfig::default() })]
    /// However short memory is and however many new streams come: no stream waits for more than two sweeps, in which
    /// each read is bypassed this often at most.
    #[test]
    fn nobody_starves_when_the_pool_is_too_small(
        rates in prop::collection::vec(20_000u64..8_000_000, 2..4),
        pool_slots in 32u64..512,
        newcomers in 0u32..3,
        lag in 0usize..12,
        clook in any::<bool>(),
    ) {
        let order = if clook { Order::CLook } else { Order::Deadline };
        let memory_bytes = pool_slots * SLOT_BYTES;
        let mut crowd = Crowd {
            disk: Disk::new(Settings { memory_bytes, order, ..SETTINGS }),
            flying: VecDeque::new(),
            held: VecDeque::new(),
            wanted: BTreeMap::new(),
            heard: BTreeMap::new(),
            reads: 0,
            longest_wait: 0,
        };
        let streams = rates.len() as u64;
        (0..rates.len() as u32).for_each(|n| crowd.want(n, &rates));
        for turn in 0..10_000 {
            for nth in 0..newcomers {
                let n = NEWCOMERS + turn * 3 + nth;
                if crowd.disk.readers.len() < 40 {
                    crowd.want(n, &[]);
                }
            }
            crowd.turn(&rates);
            crowd.step(lag);
        }
        for (n, since) in &crowd.wanted {
            if *n < NEWCOMERS {
                crowd.longest_wait = crowd.longest_wait.max(crowd.reads - since);
            }
        }
        // At first all are new, and wait behind the newcomers that came with them.
        let share = u64::from(1 + URGENT_IN_A_ROW_MAX.max(BYPASSES_MAX));
        let bound = (2 * streams + 2) * share;
        prop_assert!(crowd.longest_wait <= bound, "{} reads, bound {bound}", crowd.longest_wait);
        prop_assert!(crowd.heard.len() == rates.len() && crowd.reads >= 100, "{} reads", crowd.reads);
    }
}
