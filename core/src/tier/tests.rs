use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

const COST: u32 = 100;

fn name(n: u128) -> Name {
    Name(n)
}

/// An index of `files` files of [`COST`] that is full.
fn full(files: u128) -> Index {
    let mut index = Index::new(u64::from(COST) * files as u64, 1000);
    (0..files).for_each(|n| index.add(name(n), COST, true));
    index
}

#[test]
fn the_oldest_leaves_unless_it_was_read() {
    let mut index = full(3);
    assert_eq!(index.read(name(0)), Some(true));
    assert_eq!(index.next_to_leave(COST), Some(name(1)));
    assert_eq!(index.next_to_leave(COST), None, "there is room for one");
    index.add(name(9), COST, false);
    assert_eq!(index.next_to_leave(COST), Some(name(2)));
    index.add(name(8), COST, false);
    assert_eq!(
        index.next_to_leave(COST),
        Some(name(0)),
        "one more round for each read"
    );
}

#[test]
fn where_all_were_read_one_leaves_all_the_same() {
    let mut index = full(500);
    assert!((0..500).all(|n| index.read(name(n)).is_some()));
    assert!(index.next_to_leave(COST).is_some());
    assert_eq!(index.kept(), (499, 49_900));
}

#[test]
fn a_file_is_checked_once() {
    let mut index = Index::new(1000, 10);
    index.add(name(1), COST, false);
    assert_eq!(index.read(name(1)), Some(false));
    index.checked(name(1));
    assert_eq!(index.read(name(1)), Some(true));
    assert_eq!(index.read(name(2)), None);
}

#[test]
fn the_number_of_files_is_bounded_too() {
    let mut index = Index::new(u64::MAX, 2);
    index.add(name(1), 1, true);
    index.add(name(2), 1, true);
    assert_eq!(index.next_to_leave(1), Some(name(1)));
    assert_eq!(index.next_to_leave(1), None);
    let mut nothing_fits = Index::new(10, 0);
    assert_eq!(nothing_fits.next_to_leave(11), None, "nothing can leave");
}

#[test]
fn names_tell_everything_apart_and_stay_the_same() {
    let names: alloc::collections::BTreeSet<Name> = [
        Name::of(b"a", 1, 0),
        Name::of(b"a", 0, 1),
        Name::of(b"a", 1, 1),
        Name::of(b"b", 1, 0),
        Name::of(b"", 1, 0),
    ]
    .into();
    assert_eq!(names.len(), 5);
    // Another value would make every cache folder useless.
    let known = Name::of(b"http://o.example\n/a\n\"1\"", 5 << 20, 3);
    assert_eq!(alloc::format!("{:032x}", known.0), KNOWN);
}

const KNOWN: &str = "fc632081d37bde396eae21e38e8721f0";

#[test]
fn windows_end_with_their_object() {
    let span = |len, window| {
        let span = window_span(len, window);
        (span.offset_bytes, span.len_bytes)
    };
    assert_eq!(span(WINDOW_BYTES + 5, 0), (0, WINDOW_BYTES));
    assert_eq!(span(WINDOW_BYTES + 5, 1), (WINDOW_BYTES, 5));
    assert_eq!(span(WINDOW_BYTES + 5, 2).1, 0);
    assert_eq!(span(0, 0).1, 0);
    assert_eq!(span(u64::MAX, u64::MAX).1, 0);
}

/// One event, as a shell tells it.
#[derive(Clone, Debug)]
enum Event {
    Write(u128, u32),
    Read(u128),
    Lost(u128),
    Full,
}

fn event() -> impl Strategy<Value = Event> {
    let name = 0..24_u128;
    prop_oneof![
        4 => (name.clone(), 1..400_u32).prop_map(|(n, cost)| Event::Write(n, cost)),
        3 => name.clone().prop_map(Event::Read),
        1 => name.prop_map(Event::Lost),
        1 => Just(Event::Full),
    ]
}

proptest! {
    /// Beside a model that keeps a plain list in the order of leaving.
    #[test]
    fn it_does_what_a_list_does(events in prop::collection::vec(event(), 1..300), bytes_max in 400..2000_u64, files_max in 1..20_usize) {
        let mut index = Index::new(bytes_max, files_max);
        let mut list: Vec<(u128, u32, bool)> = Vec::new();
        let leave = |list: &mut Vec<(u128, u32, bool)>| {
            while list.first().is_some_and(|first| first.2) {
                let mut first = list.remove(0);
                first.2 = false;
                list.push(first);
            }
            (!list.is_empty()).then(|| list.remove(0).0)
        };
        for event in events {
            match event {
                Event::Write(n, cost) => {
                    if index.has(name(n)) {
                        continue;
                    }
                    while let Some(gone) = index.next_to_leave(cost) {
                        prop_assert_eq!(leave(&mut list), Some(gone.0));
                    }
                    index.add(name(n), cost, false);
                    list.push((n, cost, false));
                }
                Event::Read(n) => {
                    let there = list.iter_mut().find(|it| it.0 == n);
                    prop_assert_eq!(index.read(name(n)).is_some(), there.is_some());
                    there.into_iter().for_each(|it| it.2 = true);
                }
                Event::Lost(n) => {
                    index.remove(name(n));
                    list.retain(|it| it.0 != n);
                }
                Event::Full => prop_assert_eq!(index.oldest().map(|it| it.0), leave(&mut list)),
            }
            let bytes: u64 = list.iter().map(|it| u64::from(it.1)).sum();
            prop_assert_eq!(index.kept(), (list.len(), bytes));
            prop_assert!(bytes <= bytes_max && list.len() <= files_max);
        }
    }
}
