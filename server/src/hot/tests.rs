//! What is kept, for how long, and what makes room. Other tests keep answers with [`keep`].

use super::*;
use proptest::prelude::*;

pub fn keep(hot: &mut Hot, target: &str) {
    hot.keep(kept_by(target.as_bytes()), content(1), ready(1, 10), at(1));
}

pub fn kept(hot: &mut Hot, target: &str) -> bool {
    hot.get(kept_by(target.as_bytes()), at(1)).is_some()
}

pub fn content(index: u32) -> Content {
    let object = ObjectId {
        device: 0,
        index,
        generation: 0,
    };
    let version = Version {
        len_bytes: 1000,
        mtime_ns: 5,
        ..Version::default()
    };
    Content { object, version }
}

pub fn ready(fill: u8, len: usize) -> Ready {
    Ready::whole(&[b'h'; 100], &vec![fill; len])
}

pub fn kept_by(target: &[u8]) -> Key<'_> {
    let keep_alive = true;
    Key { target, keep_alive }
}

pub fn at(us: u64) -> Instant {
    Instant { us }
}

fn body(ready: &Ready) -> &[u8] {
    match ready {
        Ready::Whole {
            text,
            head_len_bytes,
        } => &text[*head_len_bytes..],
        Ready::Open { .. } => &[],
    }
}

fn filled(found: Option<(&Ready, &Content)>) -> Option<u8> {
    body(found?.0).first().copied()
}

#[test]
fn files_that_are_kept_open_are_bounded() {
    let file = || {
        let fd = std::fs::File::open("/dev/null").expect("a device").into();
        let oracle = ackpace_core::conn::Oracle::Ask;
        Arc::new(File::new(fd, content(1).object, oracle, b"", 0))
    };
    let mut hot = Hot::new(1 << 30);
    for index in 0..2 * HOT_OPEN_MAX as u32 {
        let ready = Ready::Open {
            head: [].into(),
            file: file(),
        };
        hot.keep(kept_by(&index.to_be_bytes()), content(index), ready, at(1));
    }
    assert_eq!((hot.open, hot.slots.len()), (HOT_OPEN_MAX, HOT_OPEN_MAX));
}

#[test]
fn an_answer_is_good_for_a_second() {
    let mut hot = Hot::new(10_000);
    let (a, b) = (kept_by(b"/a"), kept_by(b"/b"));
    hot.keep(a, content(1), ready(1, 1000), at(7));
    let end = 7 + HOT_GOOD_US;
    assert_eq!(filled(hot.get(a, at(end - 1))), Some(1));
    assert_eq!(filled(hot.get(a, at(end))), None);
    assert_eq!(filled(hot.get(b, at(7))), None);
    let renewed = |index| hot.renewed(a, &content(index), &[b'H'].into());
    let Some(Ready::Whole { text, .. }) = renewed(1) else {
        panic!("it is there");
    };
    assert_eq!((text.len(), &text[..2]), (1001, &[b'H', 1][..]));
    assert!(renewed(2).is_none());
    hot.keep(a, content(1), ready(2, 1000), at(end));
    assert_eq!(filled(hot.get(a, at(end))), Some(2));
    hot.forget(b"/a");
    assert!(!hot.holds(b"/a") && hot.held_bytes == 0);
}

#[test]
fn who_asks_late_has_the_file_looked_up_again_once() {
    let mut hot = Hot::new(10_000);
    let key = kept_by(b"/a");
    let late = at(HOT_GOOD_US / 2);
    hot.keep(key, content(1), ready(1, 10), at(0));
    assert!(hot.get(key, at(late.us - 1)).is_some() && hot.due().is_none());
    for _ in 0..3 {
        assert_eq!(filled(hot.get(key, late)), Some(1));
    }
    let due = hot.due().expect("somebody asked late");
    assert_eq!(due.key(), key);
    assert!(hot.due().is_none(), "once");
    hot.keep(key, content(1), ready(1, 10), late);
    assert!(hot.get(key, at(late.us + 1)).is_some() && hot.due().is_none());
    for index in 0..2 * HOT_DUE_MAX as u8 {
        let target = [b'/', index];
        hot.keep(kept_by(&target), content(1), ready(1, 1), at(0));
        assert!(hot.get(kept_by(&target), late).is_some());
    }
    assert_eq!(std::iter::from_fn(|| hot.due()).count(), HOT_DUE_MAX);
}

#[test]
fn answers_that_end_their_connection_are_kept_apart() {
    let mut hot = Hot::new(10_000);
    let kept = kept_by(b"/a");
    let ended = Key {
        keep_alive: false,
        ..kept
    };
    hot.keep(kept, content(1), ready(1, 10), at(0));
    assert!(hot.get(ended, at(0)).is_none());
    hot.keep(ended, content(1), ready(2, 10), at(0));
    assert_eq!(filled(hot.get(kept, at(0))), Some(1));
    assert_eq!(filled(hot.get(ended, at(0))), Some(2));
    hot.forget(b"/a");
    assert!(!hot.holds(b"/a") && hot.held_bytes == 0);
}

#[test]
fn a_target_is_kept_when_it_is_asked_for_again() {
    let mut hot = Hot::new(10_000);
    let a = kept_by(b"/a");
    let small = Candidate {
        len_bytes: 10,
        modified_unix_s: 100,
        varies: false,
    };
    let long = |len_bytes| Candidate { len_bytes, ..small };
    assert_eq!(hot.wants(a, &small, 103), None);
    assert_eq!(hot.wants(a, &small, 103), Some(Keep::Copied));
    let open = long(HOT_COPY_BYTES_MAX + 1);
    assert_eq!(hot.wants(a, &open, 103), Some(Keep::Open));
    let (too_long, fresh) = (long(HOT_FILE_BYTES_MAX + 1), 102);
    assert_eq!(hot.wants(a, &too_long, 103), None);
    assert_eq!(hot.wants(a, &small, fresh), None);
    let varies = Candidate {
        varies: true,
        ..small
    };
    assert_eq!(hot.wants(a, &varies, 103), None);
    let mut none = Hot::new(0);
    let twice = [(); 2].map(|()| none.wants(a, &small, 103));
    assert_eq!(twice, [None, None]);
}

#[test]
fn who_is_used_stays_and_who_is_not_makes_room() {
    let mut hot = Hot::new(4000);
    for (index, target) in [b"/a", b"/b", b"/c"].into_iter().enumerate() {
        hot.keep(kept_by(target), content(index as u32), ready(0, 700), at(1));
    }
    assert!(hot.get(kept_by(b"/a"), at(1)).is_some() && hot.get(kept_by(b"/c"), at(1)).is_some());
    hot.keep(kept_by(b"/d"), content(4), ready(0, 700), at(1));
    assert!(
        hot.get(kept_by(b"/b"), at(1)).is_none(),
        "the only one without a second chance"
    );
    assert!(hot.get(kept_by(b"/a"), at(1)).is_some() && hot.get(kept_by(b"/d"), at(1)).is_some());
}

proptest! {
    #[test]
    fn it_never_holds_more_than_its_budget_and_finds_what_it_holds(
        budget in 0u64..20_000,
        acts in prop::collection::vec((0u8..40, 0usize..3000, 0u8..3), 1..200),
    ) {
        let mut hot = Hot::new(budget);
        for (name, len, act) in acts {
            let key = Key { target: &[b'/', name], keep_alive: act == 1 };
            match act {
                2 => hot.forget(key.target),
                _ => hot.keep(key, content(name.into()), ready(name, len), at(1)),
            }
            prop_assert!(hot.held_bytes as u64 <= budget);
            let places: usize = hot.by_target.iter().map(HashMap::len).sum();
            prop_assert_eq!(places, hot.slots.len());
            prop_assert_eq!(hot.slots.iter().map(Slot::bytes).sum::<usize>(), hot.held_bytes);
            for (at, slot) in hot.slots.iter().enumerate() {
                prop_assert_eq!(hot.by_target[usize::from(slot.keep_alive)][&slot.target], at);
                prop_assert!(body(&slot.ready).iter().all(|byte| [*byte] == slot.target[1..]));
            }
        }
    }
}
