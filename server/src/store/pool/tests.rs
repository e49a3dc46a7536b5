//! Who owns which slot, under any order of lending and returning.

use std::collections::VecDeque;

use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;

fn pool(slots: u32) -> (Arc<Pool>, Arc<ThreadWaker>) {
    let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
    let pool = Pool::new(slots, Arc::clone(&waker)).expect("address space");
    assert_eq!((pool.slots(), pool.enlist(u32::MAX)), (0, slots));
    (Arc::new(pool), waker)
}

fn signalled(waker: &ThreadWaker) -> bool {
    let mut fds = [PollFd::new(waker, PollFlags::IN)];
    let signalled = poll(&mut fds, Some(&Timespec::default())).expect("poll") == 1;
    waker.awake();
    signalled
}

/// The numbers of a lease's slots, in order.
fn numbers(lease: &Lease) -> Vec<u32> {
    let runs = lease.runs.iter();
    runs.flat_map(|run| run.first..run.first + run.count)
        .collect()
}

/// A byte at both ends of each slot.
fn stamp(lease: &mut Lease, with: u8) {
    let (from_bytes, len_bytes) = held(lease);
    for piece in &mut lease.iovecs(from_bytes, len_bytes) {
        for slot in piece.chunks_mut(SLOT_BYTES as usize) {
            slot[0] = with;
            slot[SLOT_BYTES as usize - 1] = with;
        }
    }
}

fn stamped(lease: &Lease, with: u8) -> bool {
    let (from_bytes, len_bytes) = held(lease);
    let pieces = lease.slices(from_bytes, len_bytes);
    let mut slots = pieces
        .iter()
        .flat_map(|piece| piece.chunks(SLOT_BYTES as usize));
    slots.all(|slot| slot[0] == with && slot[SLOT_BYTES as usize - 1] == with)
}

fn held(lease: &Lease) -> (u64, u64) {
    let from_bytes = u64::from(lease.released) * SLOT_BYTES;
    (from_bytes, lease.len_bytes() - from_bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Lease(u32),
    ReleaseFront(usize, u64),
    Drop(usize),
    Retire(u32),
    Enlist(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40u32).prop_map(Step::Lease),
        3 => (any::<usize>(), 0..40 * SLOT_BYTES).prop_map(|(nth, bytes)| Step::ReleaseFront(nth, bytes)),
        3 => any::<usize>().prop_map(Step::Drop),
        1 => (0..200u32).prop_map(Step::Retire),
        1 => (0..200u32).prop_map(Step::Enlist),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]
    #[test]
    fn no_slot_has_two_owners_and_all_come_back(
        slots in 1..300u32,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let (pool, _) = pool(slots);
        let mut leases: VecDeque<(Lease, u8)> = VecDeque::new();
        let mut nth = 0u8;
        for step in steps {
            let free = pool.free_slots();
            match step {
                Step::Lease(count) => match pool.lease(count) {
                    Some(mut lease) => {
                        nth = nth.wrapping_add(1);
                        stamp(&mut lease, nth);
                        prop_assert_eq!(lease.slots(), count);
                        leases.push_back((lease, nth));
                    }
                    None => prop_assert!(count > free, "{count} of {free} were refused"),
                },
                Step::ReleaseFront(at, bytes) if !leases.is_empty() => {
                    let at = at % leases.len();
                    let (lease, _) = &mut leases[at];
                    let most = lease.slots;
                    lease.release_front(bytes);
                    let gone = u64::from(lease.released);
                    prop_assert!(gone <= u64::from(most));
                    prop_assert!(bytes / SLOT_BYTES <= gone || gone == u64::from(most));
                }
                Step::Drop(at) if !leases.is_empty() => drop(leases.remove(at % leases.len())),
                Step::Retire(count) => prop_assert_eq!(pool.retire(count), count.min(free)),
                Step::Enlist(count) => {
                    let retired = slots - pool.slots();
                    prop_assert_eq!(pool.enlist(count), count.min(retired));
                }
                Step::ReleaseFront(..) | Step::Drop(_) => {}
            }
            let lent: u32 = leases.iter().map(|(lease, _)| lease.slots()).sum();
            prop_assert_eq!(pool.free_slots() + lent, pool.slots());
            prop_assert!(taken_bytes(&pool) <= u64::from(pool.slots()) * SLOT_BYTES);
            for (lease, with) in &leases {
                prop_assert!(stamped(lease, *with), "somebody else wrote to a lent slot");
            }
        }
        leases.clear();
        pool.enlist(slots);
        let all = pool.lease(slots).expect("all came back");
        prop_assert_eq!(numbers(&all), (0..slots).collect::<Vec<_>>());
    }
}

#[test]
fn low_slots_are_lent_first_and_neighbours_are_one_piece() {
    let (pool, _) = pool(100);
    let (low, middle) = (pool.lease(3).expect("free"), pool.lease(2).expect("free"));
    let high = pool.lease(70).expect("free");
    assert_eq!(
        high.slices(0, high.len_bytes()).len(),
        1,
        "across the words of the map too"
    );
    drop(low);
    let split = pool.lease(5).expect("free");
    assert_eq!(numbers(&split), [0, 1, 2, 75, 76]);
    let lens = |from_bytes, len_bytes| -> Vec<usize> {
        let slices = split.slices(from_bytes, len_bytes);
        slices.iter().map(|slice| slice.len()).collect()
    };
    let slot = SLOT_BYTES as usize;
    assert_eq!(lens(0, split.len_bytes()), [3 * slot, 2 * slot]);
    assert_eq!(
        lens(2 * SLOT_BYTES + 1, SLOT_BYTES),
        [slot - 1, 1],
        "an offset inside a slot"
    );
    assert_eq!(lens(4 * SLOT_BYTES, 7), [7]);
    assert!(lens(5 * SLOT_BYTES, 0).is_empty(), "nothing, at the end");
    drop((split, middle, high));
}

#[test]
fn what_is_sent_of_a_lease_comes_back_by_whole_slots() {
    let (pool, _) = pool(8);
    let mut lease = pool.lease(4).expect("free");
    stamp(&mut lease, 9);
    lease.release_front(SLOT_BYTES - 1);
    assert_eq!((lease.slots(), pool.take_freed()), (4, 0));
    lease.release_front(2 * SLOT_BYTES + 5);
    assert_eq!((lease.slots(), pool.take_freed()), (2, 2));
    lease.release_front(SLOT_BYTES);
    assert_eq!((lease.slots(), pool.take_freed()), (2, 0), "never twice");
    let other = pool.lease(2).expect("the two");
    assert_eq!(numbers(&other), [0, 1]);
    assert_eq!(
        lease.slices(3 * SLOT_BYTES, 1)[0][0],
        9,
        "offsets count from the first byte as before"
    );
    lease.release_front(u64::MAX);
    assert_eq!((lease.slots(), pool.take_freed()), (0, 2));
    drop(lease);
    assert_eq!(pool.take_freed(), 0);
}

#[test]
#[should_panic(expected = "bytes at")]
fn what_was_given_back_cannot_be_looked_at() {
    let (pool, _) = pool(2);
    let mut lease = pool.lease(2).expect("free");
    lease.release_front(SLOT_BYTES);
    lease.slices(0, SLOT_BYTES);
}

#[test]
fn the_return_that_completes_the_number_wakes_once() {
    let (pool, waker) = pool(8);
    let mut leases: Vec<Lease> = (0..8).map(|_| pool.lease(1).expect("free")).collect();
    pool.wake_at_freed(3);
    leases.truncate(6);
    assert!(!signalled(&waker), "two are not three");
    leases.truncate(5);
    assert!(signalled(&waker));
    leases.truncate(2);
    assert!(!signalled(&waker), "it was told");
    // What came back unheard counts at once.
    pool.wake_at_freed(6);
    assert!(signalled(&waker));
    assert_eq!(pool.take_freed(), 6);
    pool.wake_at_freed(1);
    assert!(!signalled(&waker), "these are known");
    pool.wake_at_freed(0);
    leases.clear();
    assert!(!signalled(&waker), "nobody waits any more");
}

#[test]
fn many_threads_lend_and_return_and_nothing_is_lost() {
    const SLOTS: u32 = 96;
    const ROUNDS: u32 = 3000;
    let (pool, waker) = pool(SLOTS);
    std::thread::scope(|scope| {
        for thread in 1..=4u8 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // 4 x 24 fit at any time, so no thread is ever refused.
                    let mut lease = pool.lease(1 + round % 24).expect("enough for all");
                    stamp(&mut lease, thread);
                    lease.release_front(u64::from(round % 3) * SLOT_BYTES);
                    assert!(
                        stamped(&lease, thread),
                        "another thread wrote to a lent slot"
                    );
                }
            });
        }
    });
    assert_eq!(pool.free_slots(), SLOTS);
    let lent: u32 = 4 * (0..ROUNDS).map(|round| 1 + round % 24).sum::<u32>();
    assert_eq!(pool.take_freed(), lent);
    assert!(!signalled(&waker));
    assert!(pool.lease(SLOTS).is_some() && pool.lease(SLOTS + 1).is_none());
}

#[test]
fn what_is_retired_is_empty_and_what_is_lent_is_kept() {
    let (pool, _) = pool(130);
    let mut low = pool.lease(100).expect("free");
    let mut high = pool.lease(30).expect("free");
    stamp(&mut low, 1);
    stamp(&mut high, 2);
    drop(low);
    assert_eq!(pool.retire(90), 90);
    assert!(stamped(&high, 2), "it is lent");
    assert!(taken_bytes(&pool) <= 40 * SLOT_BYTES);
    let kept = pool.lease(10).expect("free");
    assert!(stamped(&kept, 1), "high ones are retired first");
    assert!(pool.lease(1).is_none() && pool.retire(1) == 0);
    assert_eq!((pool.enlist(50), pool.slots()), (50, 90));
    assert!(
        stamped(&pool.lease(50).expect("back"), 0),
        "it was given back to the kernel"
    );
    assert_eq!((pool.enlist(50), pool.slots()), (40, 130));
}

#[test]
fn only_what_is_lent_takes_memory_and_never_more_than_the_slots() {
    let (pool, _) = pool(100); // three huge pages, and four slots more
    assert_eq!(pool.base.as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
    assert_eq!(taken_bytes(&pool), 0);
    let low = pool.lease(2).expect("free");
    let few = taken_bytes(&pool);
    let least = 2 * SLOT_BYTES;
    assert!((least..=HUGE_PAGE_BYTES as u64).contains(&few), "{few}");
    let high = pool.lease(98).expect("free");
    assert_eq!(taken_bytes(&pool), 100 * SLOT_BYTES, "before any read");
    drop((low, high));
    pool.retire(100);
    assert_eq!(taken_bytes(&pool), 0);
    pool.enlist(100);
    let again = pool.lease(100).expect("free");
    assert_eq!(taken_bytes(&pool), again.len_bytes());
}

/// What the mapping of a pool occupies: the pages that /proc/self/pagemap (proc(5)) shows as present.
fn taken_bytes(pool: &Pool) -> u64 {
    const PRESENT: u64 = 1 << 63;
    let page_bytes = rustix::param::page_size();
    let pages = slots_bytes(pool.slots) / page_bytes;
    let mut words = vec![0u8; pages * 8];
    let map = std::fs::File::open("/proc/self/pagemap").expect("/proc");
    let at_bytes = pool.base.as_ptr() as usize / page_bytes * 8;
    std::os::unix::fs::FileExt::read_exact_at(&map, &mut words, at_bytes as u64).expect("our map");
    let words = words.chunks_exact(8);
    let words = words.map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")));
    (words.filter(|word| word & PRESENT != 0).count() * page_bytes) as u64
}
