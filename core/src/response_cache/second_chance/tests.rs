use proptest::prelude::*;

use super::*;

/// A response by its name and cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named(u32, Cost);

impl Costly for Named {
    fn cost(&self) -> Cost {
        self.1
    }
}

fn named(name: u32, bytes: usize) -> Named {
    let open_files = 0;
    Named(name, Cost { bytes, open_files })
}

/// What the shell does: make room, then add. Says which ones were evicted; `None` if it does not fit.
fn insert(cache: &mut SecondChance<Named>, response: Named) -> Option<Vec<u32>> {
    let mut evicted = Vec::new();
    loop {
        match cache.space(response.cost(), evicted.len()) {
            Space::Enough => break,
            Space::Evict(at) => evicted.push(cache.swap_remove(at).0),
            Space::None => return None,
        }
    }
    cache.push(response);
    Some(evicted)
}

fn find(cache: &SecondChance<Named>, name: u32) -> Option<usize> {
    (0..cache.len()).find(|at| cache.get(*at).is_some_and(|it| it.0 == name))
}

#[test]
fn a_response_that_was_used_stays_and_one_that_was_not_makes_room() {
    let mut cache = SecondChance::new(4096);
    let each = (4096 - cache.held_bytes()) / 3;
    for name in 0..3 {
        assert_eq!(insert(&mut cache, named(name, each)), Some(vec![]));
    }
    cache.touch(0);
    cache.touch(2);
    assert_eq!(insert(&mut cache, named(3, each)), Some(vec![1]));
    assert_eq!(
        insert(&mut cache, named(4, each)).map(|gone| gone.len()),
        Some(1),
        "all had their second chance"
    );
}

#[test]
fn open_files_and_places_are_bounds_of_their_own() {
    let open = |name| {
        let (bytes, open_files) = (1, 1);
        Named(name, Cost { bytes, open_files })
    };
    let mut cache = SecondChance::new(1 << 30);
    for name in 0..2 * CACHED_OPEN_MAX as u32 {
        assert!(insert(&mut cache, open(name)).is_some());
    }
    assert_eq!(cache.len(), CACHED_OPEN_MAX);
    let mut cache = SecondChance::new(10 * CACHED_RESPONSE_BYTES_MIN);
    for name in 0..20 {
        assert!(insert(&mut cache, named(name, 1)).is_some());
    }
    assert_eq!((cache.len(), cache.places()), (10, 10));
}

#[test]
fn a_response_that_never_fits_evicts_a_bounded_number() {
    let mut cache = SecondChance::new(1 << 20);
    let mut name = 0;
    while insert(&mut cache, named(name, 1000)).is_some_and(|gone| gone.is_empty()) {
        name += 1;
    }
    let before = cache.len();
    assert_eq!(insert(&mut cache, named(u32::MAX, 2 << 20)), None);
    assert_eq!(cache.len(), before - EVICTIONS_MAX);
}

#[test]
fn making_room_takes_no_longer_where_everything_was_used() {
    let mut cache = SecondChance::new(4 << 20);
    while cache.len() < cache.places() {
        let name = cache.len() as u32;
        assert!(insert(&mut cache, named(name, 1)).is_some());
    }
    (0..cache.len()).for_each(|at| cache.touch(at));
    assert!(insert(&mut cache, named(u32::MAX, 1)).is_some());
    let unused = cache.entries.iter().filter(|entry| !entry.used).count();
    assert!(unused <= CLOCK_STEPS_MAX + 1, "{unused} were looked at");
}

#[test]
fn the_budget_is_taken_step_by_step_when_it_is_needed() {
    let mut cache = SecondChance::<Named>::new(2 * RESPONSE_CACHE_STEP_BYTES);
    assert_eq!(cache.step_bytes(), None, "all of it is allowed");
    cache.use_no_more();
    assert_eq!(cache.space(named(0, 1).cost(), 0), Space::None);
    let step_bytes = cache.step_bytes();
    assert_eq!(step_bytes, Some(RESPONSE_CACHE_STEP_BYTES));
    cache.allow(RESPONSE_CACHE_STEP_BYTES);
    assert_eq!(cache.step_bytes(), None, "there is room for the next one");
    assert_eq!(insert(&mut cache, named(0, 1)), Some(vec![]));
    cache.charge(RESPONSE_CACHE_STEP_BYTES - NEXT_BYTES);
    let rest_bytes = cache.step_bytes().expect("nearly full");
    assert!(
        rest_bytes < RESPONSE_CACHE_STEP_BYTES,
        "no more than there is"
    );
    cache.allow(rest_bytes);
    assert_eq!(cache.step_bytes(), None, "nothing is left");
}

proptest! {
    #[test]
    fn it_never_holds_more_than_its_budget(
        budget_bytes in 0usize..200_000,
        acts in prop::collection::vec((0u8..6, 0u32..60, 0usize..20_000), 1..300),
    ) {
        let mut cache = SecondChance::new(budget_bytes);
        let own_bytes = cache.held_bytes();
        let mut lent = Vec::new();
        for (act, name, bytes) in acts {
            match act {
                0 => find(&cache, name).into_iter().for_each(|at| cache.touch(at)),
                // Evicted while it is being sent: its bytes still count.
                1 => if let Some(at) = find(&cache, name) {
                    let gone = cache.swap_remove(at);
                    cache.charge(gone.1.bytes);
                    lent.push(gone.1.bytes);
                },
                2 => lent.pop().into_iter().for_each(|bytes| cache.discharge(bytes)),
                _ => if find(&cache, name).is_none() {
                    let kept = insert(&mut cache, named(name, bytes)).is_some();
                    prop_assert_eq!(find(&cache, name).is_some(), kept);
                },
            }
            let responses: usize = cache.entries.iter().map(|it| it.response.1.bytes).sum();
            let lent: usize = lent.iter().sum();
            prop_assert_eq!(cache.held_bytes(), own_bytes + responses + lent);
            prop_assert!(cache.held_bytes() <= budget_bytes);
        }
    }

    #[test]
    fn a_response_that_is_asked_for_again_before_each_newcomer_stays(
        others in 4usize..CLOCK_STEPS_MAX - 4,
        newcomers in prop::collection::vec(1usize..400, 1..200),
    ) {
        let mut cache = SecondChance::new(128 << 10);
        prop_assert!(insert(&mut cache, named(0, 400)).is_some());
        let room_bytes = cache.budget_bytes() - cache.held_bytes();
        for name in 1..=others as u32 {
            prop_assert!(insert(&mut cache, named(name, room_bytes / others)).is_some());
        }
        for (name, bytes) in (1000..).zip(newcomers) {
            let at = find(&cache, 0).expect("it was asked for since");
            cache.touch(at);
            prop_assert!(insert(&mut cache, named(name, bytes)).is_some());
        }
        prop_assert!(find(&cache, 0).is_some());
    }
}
