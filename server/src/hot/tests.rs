//! What is kept, for how long, and what makes room.

use std::os::fd::OwnedFd;

use super::changes::Change;
use super::*;
use crate::store::closing::Descriptor;
use crate::store::file::version;
use ackpace_core::limits::{
    CACHED_COPY_BYTES_MAX, CACHED_FILE_BYTES_MAX, CACHED_FRESH_US, CACHED_OPEN_MAX,
    REVALIDATIONS_PER_TURN_MAX,
};
use proptest::prelude::*;

fn content(index: u32) -> Content {
    let object = ObjectId {
        device: 0,
        index,
        generation: 0,
    };
    let stat = rustix::fs::stat("/dev/null").expect("a device");
    let version = version(&stat);
    Content { object, version }
}

fn ready(fill: u8, len: usize) -> Ready {
    Ready::whole(&[b'h'; 100], &vec![fill; len])
}

fn kept_by(path: &[u8]) -> Key<'_> {
    Key {
        path: path.into(),
        keep_alive: true,
    }
}

fn at(us: u64) -> Instant {
    Instant { us }
}

/// Keep an answer that was looked up then.
fn keep(hot: &mut Hot, key: &Key<'_>, ready: Ready, now: Instant) -> bool {
    let made = Made {
        content: content(1),
        ready,
        moment: hot.changes().moment(now),
        sight: None,
    };
    hot.keep(key, made)
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

fn filled(found: Option<Found<'_>>) -> Option<u8> {
    body(found?.ready).first().copied()
}

#[test]
fn files_that_are_kept_open_are_bounded() {
    let file = || {
        let fd = OwnedFd::from(std::fs::File::open("/dev/null").expect("a device"));
        let oracle = ackpace_core::conn::Oracle::Ask;
        Arc::new(File::new(
            Descriptor::new(fd, 0),
            content(1).object,
            oracle,
            b"",
            0,
        ))
    };
    let mut hot = Hot::new(1 << 30);
    for index in 0..2 * CACHED_OPEN_MAX as u32 {
        let ready = Ready::Open {
            head: [].into(),
            file: file(),
        };
        assert!(keep(&mut hot, &kept_by(&index.to_be_bytes()), ready, at(1)));
    }
    assert_eq!(hot.table.len(), CACHED_OPEN_MAX);
}

#[test]
fn a_file_that_is_kept_open_and_is_another_one_now_is_looked_up_again() {
    let path = std::env::temp_dir().join(format!("ackpace-hot-{}", std::process::id()));
    std::fs::write(&path, "old").expect("written");
    let fd = OwnedFd::from(std::fs::File::open(&path).expect("our own file"));
    let oracle = ackpace_core::conn::Oracle::Ask;
    let file = Arc::new(File::new(
        Descriptor::new(fd, 0),
        content(1).object,
        oracle,
        b"",
        0,
    ));
    let content = Content {
        version: file.version().expect("open"),
        ..content(1)
    };
    let (mut hot, key) = (Hot::new(1 << 20), kept_by(b"/a"));
    let ready = Ready::Open {
        head: [].into(),
        file,
    };
    let moment = hot.changes().moment(at(1));
    let made = Made {
        content,
        ready,
        moment,
        sight: None,
    };
    assert!(hot.keep(&key, made) && hot.get(&key, at(1)).is_some());
    std::fs::write(&path, "longer").expect("written");
    assert!(hot.get(&key, at(2)).is_none());
    std::fs::remove_file(&path).expect("our own file");
}

#[test]
fn an_answer_is_good_for_a_second() {
    let mut hot = Hot::new(10_000);
    let empty = hot.held();
    let (a, b) = (&kept_by(b"/a"), &kept_by(b"/b"));
    assert!(keep(&mut hot, a, ready(1, 1000), at(7)));
    let end = 7 + CACHED_FRESH_US;
    assert_eq!(filled(hot.get(a, at(end - 1))), Some(1));
    assert_eq!(filled(hot.get(a, at(end))), None);
    assert_eq!(filled(hot.get(b, at(7))), None);
    assert!(keep(&mut hot, a, ready(2, 1000), at(end)));
    assert_eq!(filled(hot.get(a, at(end))), Some(2));
    hot.forget(a);
    assert!(hot.get(a, at(end)).is_none() && hot.held() == empty);
}

#[test]
fn an_answer_is_good_until_a_change_is_heard_of_and_is_not_kept_behind_one() {
    let (mut hot, key) = (Hot::new(10_000), kept_by(b"/a"));
    hot.changes().enter(1, 0).expect("room");
    let made = |hot: &mut Hot, moment| {
        let sight = hot.changes().sight(1, moment);
        assert!(sight.is_some());
        Made {
            content: content(1),
            ready: ready(1, 10),
            moment,
            sight,
        }
    };
    let before = hot.changes().moment(at(1));
    let first = made(&mut hot, before);
    assert!(hot.keep(&key, first) && hot.get(&key, at(2)).is_some());
    hot.changes().heard(1, Change::Some, at(3));
    assert!(hot.get(&key, at(4)).is_none());
    let late = made(&mut hot, before);
    assert!(!hot.keep(&key, late), "it was looked up before the change");
    let now = hot.changes().moment(at(4));
    let anew = made(&mut hot, now);
    assert!(hot.keep(&key, anew) && hot.get(&key, at(5)).is_some());
}

#[test]
fn who_asks_late_has_the_file_looked_up_again_once() {
    let mut hot = Hot::new(100_000);
    let key = &kept_by(b"/a");
    let late = at(CACHED_FRESH_US / 2);
    assert!(keep(&mut hot, key, ready(1, 10), at(0)));
    assert!(hot.get(key, at(late.us - 1)).is_some() && hot.due().is_none());
    for _ in 0..3 {
        assert_eq!(filled(hot.get(key, late)), Some(1));
    }
    let due = hot.due().expect("somebody asked late");
    assert_eq!(&due, key);
    assert!(hot.due().is_none(), "once");
    assert!(keep(&mut hot, key, ready(1, 10), late));
    assert!(hot.get(key, at(late.us + 1)).is_some() && hot.due().is_none());
    for index in 0..2 * REVALIDATIONS_PER_TURN_MAX as u8 {
        let path = [b'/', index];
        assert!(keep(&mut hot, &kept_by(&path), ready(1, 1), at(0)));
        assert!(hot.get(&kept_by(&path), late).is_some());
    }
    assert_eq!(
        std::iter::from_fn(|| hot.due()).count(),
        REVALIDATIONS_PER_TURN_MAX
    );
}

#[test]
fn answers_that_end_their_connection_are_kept_apart() {
    let mut hot = Hot::new(10_000);
    let kept = &kept_by(b"/a");
    let ended = &Key {
        keep_alive: false,
        ..kept.clone()
    };
    assert!(keep(&mut hot, kept, ready(1, 10), at(0)));
    assert!(hot.get(ended, at(0)).is_none());
    assert!(keep(&mut hot, ended, ready(2, 10), at(0)));
    assert_eq!(filled(hot.get(kept, at(0))), Some(1));
    assert_eq!(filled(hot.get(ended, at(0))), Some(2));
    hot.forget(kept);
    assert!(hot.get(kept, at(0)).is_none() && hot.get(ended, at(0)).is_some());
}

#[test]
fn a_file_is_kept_when_it_is_asked_for_again() {
    let mut hot = Hot::new(10_000);
    let a = &kept_by(b"/a");
    let small = Candidate {
        path_len_bytes: 2,
        len_bytes: 10,
        changed_unix_s: 100,
        varies: false,
    };
    let long = |len_bytes| Candidate { len_bytes, ..small };
    assert_eq!(hot.wants(a, &small, 103), None);
    assert_eq!(hot.wants(a, &small, 103), Some(Form::Copied));
    let open = long(CACHED_COPY_BYTES_MAX + 1);
    assert_eq!(hot.wants(a, &open, 103), Some(Form::Open));
    let (too_long, fresh) = (long(CACHED_FILE_BYTES_MAX + 1), 102);
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
    assert_eq!(none.held(), (0, 0));
}

#[test]
fn who_is_used_stays_and_who_is_not_makes_room() {
    let mut hot = Hot::new(4000);
    let [a, b, c, d] = [b"/a", b"/b", b"/c", b"/d"].map(|path| kept_by(path));
    for key in [&a, &b, &c] {
        assert!(keep(&mut hot, key, ready(0, 700), at(1)));
    }
    assert!(hot.get(&a, at(1)).is_some() && hot.get(&c, at(1)).is_some());
    assert!(keep(&mut hot, &d, ready(0, 700), at(1)));
    let unused = hot.get(&b, at(1));
    assert!(unused.is_none(), "the only one without a second chance");
    assert!(hot.get(&a, at(1)).is_some() && hot.get(&d, at(1)).is_some());
}

#[test]
fn what_is_still_being_sent_is_counted_until_it_is_sent() {
    let (mut hot, key) = (Hot::new(40_000), &kept_by(b"/a"));
    let (_, empty_bytes) = hot.held();
    let mut under_way = Vec::new();
    for nth in 0.. {
        if !keep(&mut hot, key, ready(nth, 3000), at(1)) {
            break;
        }
        let found = hot.get(key, at(1)).expect("just kept");
        under_way.push(found.ready.clone());
        assert!(hot.held().1 >= 3000 * u64::from(nth));
    }
    assert_eq!(under_way.len(), 12, "all that fit in");
    under_way.clear();
    for _ in 0..12 {
        assert!(keep(&mut hot, key, ready(1, 3000), at(1)));
    }
    hot.forget(key);
    assert_eq!(hot.held().1, empty_bytes);
}

#[test]
fn when_descriptors_are_short_some_are_evicted() {
    let mut hot = Hot::new(4 << 20);
    let count = RESPONSES_SHED_MAX as u32 + 100;
    for nth in 0..count {
        let path = nth.to_be_bytes();
        assert!(keep(&mut hot, &kept_by(&path), ready(0, 1), at(1)));
    }
    hot.shed();
    assert_eq!(hot.table.len(), 100);
    hot.shed();
    assert_eq!(hot.table.len(), 0);
}

proptest! {
    #[test]
    fn it_never_holds_more_than_its_budget_and_finds_what_it_holds(
        budget in 0u64..20_000,
        acts in prop::collection::vec((0u8..40, 0usize..3000, 0u8..5), 1..200),
    ) {
        let mut hot = Hot::new(budget);
        let mut under_way = Vec::new();
        for (name, len, act) in acts {
            let path = [b'/', name];
            let key = Key { path: (&path).into(), keep_alive: act == 1 };
            match act {
                2 => hot.forget(&key),
                3 => under_way.extend(hot.get(&key, at(1)).map(|found| found.ready.clone())),
                4 => under_way.clear(),
                _ => {
                    let kept = keep(&mut hot, &key, ready(name, len), at(1));
                    prop_assert_eq!(hot.get(&key, at(1)).is_some(), kept);
                }
            }
            prop_assert!(hot.held().1 <= budget);
            for at in 0..hot.table.len() {
                let slot = hot.table.slot(at).expect("below its length");
                prop_assert!(body(&slot.ready).iter().all(|byte| [*byte] == slot.path[1..]));
                let (hash, path) = (slot.hash, slot.path.clone());
                let key = Key { path: (&*path).into(), keep_alive: slot.keep_alive };
                prop_assert_eq!(hot.table.find(hash, &key), Some(at));
            }
        }
    }
}
