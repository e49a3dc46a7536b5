//! What is cached, for how long, and what makes room.

use std::os::fd::OwnedFd;

use super::changes::Change;
use super::*;
use crate::store::attributes::version;
use crate::store::closing::Descriptor;
use crate::store::files::Files;
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

fn response(fill: u8, len: usize) -> CachedResponse {
    CachedResponse::whole(&[b'h'; 100], &vec![fill; len])
}

fn kept_by(path: &[u8]) -> Key<'_> {
    Key {
        site: Files::default().site(),
        path: path.into(),
        keep_alive: true,
    }
}

fn at(us: u64) -> Instant {
    Instant { us }
}

/// Caches a response to a look-up at that time.
fn keep(
    response_cache: &mut ResponseCache,
    key: &Key<'_>,
    response: CachedResponse,
    now: Instant,
) -> bool {
    let made = Made {
        content: content(1),
        response,
        looked_up: response_cache.changes().looked_up_at(now),
        watch_state: None,
    };
    response_cache.keep(key, made)
}

fn body(response: &CachedResponse) -> &[u8] {
    match response {
        CachedResponse::Whole {
            text,
            head_len_bytes,
        } => &text[*head_len_bytes..],
        CachedResponse::Open { .. } => &[],
    }
}

fn filled(found: Option<Hit<'_>>) -> Option<u8> {
    body(found?.response).first().copied()
}

#[test]
fn files_that_are_kept_open_are_bounded() {
    let file = || {
        let fd = OwnedFd::from(std::fs::File::open("/dev/null").expect("a device"));
        let residency = ackpace_core::conn::ResidencySource::Ask;
        Arc::new(File::new(
            Descriptor::of(fd).expect("an open file"),
            content(1).object,
            residency,
            b"",
            None,
        ))
    };
    let mut response_cache = ResponseCache::new(1 << 30);
    for index in 0..2 * CACHED_OPEN_MAX as u32 {
        let response = CachedResponse::Open {
            head: [].into(),
            file: file(),
        };
        assert!(keep(
            &mut response_cache,
            &kept_by(&index.to_be_bytes()),
            response,
            at(1)
        ));
    }
    assert_eq!(response_cache.table.len(), CACHED_OPEN_MAX);
}

#[test]
fn a_file_that_is_kept_open_and_is_another_one_now_is_looked_up_again() {
    let path = std::env::temp_dir().join(format!("ackpace-hot-{}", std::process::id()));
    std::fs::write(&path, "old").expect("written");
    let fd = OwnedFd::from(std::fs::File::open(&path).expect("our own file"));
    let residency = ackpace_core::conn::ResidencySource::Ask;
    let file = Arc::new(File::new(
        Descriptor::of(fd).expect("an open file"),
        content(1).object,
        residency,
        b"",
        None,
    ));
    let content = Content {
        version: file.version().expect("open"),
        ..content(1)
    };
    let (mut response_cache, key) = (ResponseCache::new(1 << 20), kept_by(b"/a"));
    let response = CachedResponse::Open {
        head: [].into(),
        file,
    };
    let looked_up = response_cache.changes().looked_up_at(at(1));
    let made = Made {
        content,
        response,
        looked_up,
        watch_state: None,
    };
    assert!(response_cache.keep(&key, made) && response_cache.get(&key, at(1)).is_some());
    std::fs::write(&path, "longer").expect("written");
    assert!(response_cache.get(&key, at(2)).is_none());
    std::fs::remove_file(&path).expect("our own file");
}

#[test]
fn an_answer_is_good_for_a_second() {
    let mut response_cache = ResponseCache::new(10_000);
    let empty = response_cache.held();
    let (a, b) = (&kept_by(b"/a"), &kept_by(b"/b"));
    assert!(keep(&mut response_cache, a, response(1, 1000), at(7)));
    let end = 7 + CACHED_FRESH_US;
    assert_eq!(filled(response_cache.get(a, at(end - 1))), Some(1));
    assert_eq!(filled(response_cache.get(a, at(end))), None);
    assert_eq!(filled(response_cache.get(b, at(7))), None);
    assert!(keep(&mut response_cache, a, response(2, 1000), at(end)));
    assert_eq!(filled(response_cache.get(a, at(end))), Some(2));
    response_cache.forget(a);
    assert!(response_cache.get(a, at(end)).is_none() && response_cache.held() == empty);
}

#[test]
fn an_answer_is_good_until_a_change_is_heard_of_and_is_not_kept_behind_one() {
    let (mut response_cache, key) = (ResponseCache::new(10_000), kept_by(b"/a"));
    response_cache.changes().enter(1, 0).expect("room");
    let made = |response_cache: &mut ResponseCache, looked_up| {
        let watch_state = response_cache.changes().watch_state(1, looked_up);
        assert!(watch_state.is_some());
        Made {
            content: content(1),
            response: response(1, 10),
            looked_up,
            watch_state,
        }
    };
    let before = response_cache.changes().looked_up_at(at(1));
    let first = made(&mut response_cache, before);
    assert!(response_cache.keep(&key, first) && response_cache.get(&key, at(2)).is_some());
    response_cache.changes().heard(1, Change::Some, at(3));
    assert!(response_cache.get(&key, at(4)).is_none());
    let late = made(&mut response_cache, before);
    assert!(
        !response_cache.keep(&key, late),
        "it was looked up before the change"
    );
    let now = response_cache.changes().looked_up_at(at(4));
    let anew = made(&mut response_cache, now);
    assert!(response_cache.keep(&key, anew) && response_cache.get(&key, at(5)).is_some());
}

#[test]
fn who_asks_late_has_the_file_looked_up_again_once() {
    let mut response_cache = ResponseCache::new(100_000);
    let key = &kept_by(b"/a");
    let late = at(CACHED_FRESH_US / 2);
    assert!(keep(&mut response_cache, key, response(1, 10), at(0)));
    assert!(response_cache.get(key, at(late.us - 1)).is_some() && response_cache.due().is_none());
    for _ in 0..3 {
        assert_eq!(filled(response_cache.get(key, late)), Some(1));
    }
    let due = response_cache.due().expect("somebody asked late");
    assert_eq!(&due, key);
    assert!(response_cache.due().is_none(), "once");
    assert!(keep(&mut response_cache, key, response(1, 10), late));
    assert!(response_cache.get(key, at(late.us + 1)).is_some() && response_cache.due().is_none());
    for index in 0..2 * REVALIDATIONS_PER_TURN_MAX as u8 {
        let path = [b'/', index];
        assert!(keep(
            &mut response_cache,
            &kept_by(&path),
            response(1, 1),
            at(0)
        ));
        assert!(response_cache.get(&kept_by(&path), late).is_some());
    }
    assert_eq!(
        std::iter::from_fn(|| response_cache.due()).count(),
        REVALIDATIONS_PER_TURN_MAX
    );
}

#[test]
fn answers_that_end_their_connection_are_kept_apart() {
    let mut response_cache = ResponseCache::new(10_000);
    let kept = &kept_by(b"/a");
    let ended = &Key {
        keep_alive: false,
        ..kept.clone()
    };
    assert!(keep(&mut response_cache, kept, response(1, 10), at(0)));
    assert!(response_cache.get(ended, at(0)).is_none());
    assert!(keep(&mut response_cache, ended, response(2, 10), at(0)));
    assert_eq!(filled(response_cache.get(kept, at(0))), Some(1));
    assert_eq!(filled(response_cache.get(ended, at(0))), Some(2));
    response_cache.forget(kept);
    assert!(
        response_cache.get(kept, at(0)).is_none() && response_cache.get(ended, at(0)).is_some()
    );
}

#[test]
fn a_file_is_kept_when_it_is_asked_for_again() {
    let mut response_cache = ResponseCache::new(10_000);
    let a = &kept_by(b"/a");
    let small = Candidate {
        path_len_bytes: 2,
        len_bytes: 10,
        changed_unix_s: 100,
        varies: false,
    };
    let long = |len_bytes| Candidate { len_bytes, ..small };
    assert_eq!(response_cache.wants(a, &small, 103), None);
    assert_eq!(response_cache.wants(a, &small, 103), Some(Form::Copied));
    let open = long(CACHED_COPY_BYTES_MAX + 1);
    assert_eq!(response_cache.wants(a, &open, 103), Some(Form::Open));
    let (too_long, fresh) = (long(CACHED_FILE_BYTES_MAX + 1), 102);
    assert_eq!(response_cache.wants(a, &too_long, 103), None);
    assert_eq!(response_cache.wants(a, &small, fresh), None);
    let varies = Candidate {
        varies: true,
        ..small
    };
    assert_eq!(response_cache.wants(a, &varies, 103), None);
    let mut none = ResponseCache::new(0);
    let twice = [(); 2].map(|()| none.wants(a, &small, 103));
    assert_eq!(twice, [None, None]);
    assert_eq!(none.held(), (0, 0));
}

#[test]
fn who_is_used_stays_and_who_is_not_makes_room() {
    let mut response_cache = ResponseCache::new(4000);
    let [a, b, c, d] = [b"/a", b"/b", b"/c", b"/d"].map(|path| kept_by(path));
    for key in [&a, &b, &c] {
        assert!(keep(&mut response_cache, key, response(0, 700), at(1)));
    }
    assert!(response_cache.get(&a, at(1)).is_some() && response_cache.get(&c, at(1)).is_some());
    assert!(keep(&mut response_cache, &d, response(0, 700), at(1)));
    let unused = response_cache.get(&b, at(1));
    assert!(unused.is_none(), "the only one without a second chance");
    assert!(response_cache.get(&a, at(1)).is_some() && response_cache.get(&d, at(1)).is_some());
}

#[test]
fn what_is_still_being_sent_is_counted_until_it_is_sent() {
    let (mut response_cache, key) = (ResponseCache::new(40_000), &kept_by(b"/a"));
    let (_, empty_bytes) = response_cache.held();
    let mut under_way = Vec::new();
    for nth in 0.. {
        if !keep(&mut response_cache, key, response(nth, 3000), at(1)) {
            break;
        }
        let found = response_cache.get(key, at(1)).expect("just kept");
        under_way.push(found.response.clone());
        assert!(response_cache.held().1 >= 3000 * u64::from(nth));
    }
    assert_eq!(under_way.len(), 12, "all that fit in");
    under_way.clear();
    for _ in 0..12 {
        assert!(keep(&mut response_cache, key, response(1, 3000), at(1)));
    }
    response_cache.forget(key);
    assert_eq!(response_cache.held().1, empty_bytes);
}

#[test]
fn when_descriptors_are_short_some_are_evicted() {
    let mut response_cache = ResponseCache::new(4 << 20);
    let count = RESPONSES_SHED_MAX as u32 + 100;
    for nth in 0..count {
        let path = nth.to_be_bytes();
        assert!(keep(
            &mut response_cache,
            &kept_by(&path),
            response(0, 1),
            at(1)
        ));
    }
    response_cache.shed();
    assert_eq!(response_cache.table.len(), 100);
    response_cache.shed();
    assert_eq!(response_cache.table.len(), 0);
}

proptest! {
    #[test]
    fn it_never_holds_more_than_its_budget_and_finds_what_it_holds(
        budget in 0u64..20_000,
        acts in prop::collection::vec((0u8..40, 0usize..3000, 0u8..5), 1..200),
    ) {
        let mut response_cache = ResponseCache::new(budget);
        let mut under_way = Vec::new();
        for (name, len, act) in acts {
            let path = [b'/', name];
            let key = Key { keep_alive: act == 1, ..kept_by(&path) };
            match act {
                2 => response_cache.forget(&key),
                3 => under_way.extend(response_cache.get(&key, at(1)).map(|found| found.response.clone())),
                4 => under_way.clear(),
                _ => {
                    let kept = keep(&mut response_cache, &key, response(name, len), at(1));
                    prop_assert_eq!(response_cache.get(&key, at(1)).is_some(), kept);
                }
            }
            prop_assert!(response_cache.held().1 <= budget);
            for at in 0..response_cache.table.len() {
                let slot = response_cache.table.slot(at).expect("below its length");
                prop_assert!(body(&slot.response).iter().all(|byte| [*byte] == slot.path[1..]));
                let (hash, path) = (slot.hash, slot.path.clone());
                let key = Key { keep_alive: slot.keep_alive, ..kept_by(&path) };
                prop_assert_eq!(response_cache.table.find(hash, &key), Some(at));
            }
        }
    }
}
