//! What is cached, for how long, and what makes room.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::*;
use crate::store::closing::Descriptor;
use ackpace_core::limits::{CACHED_COPY_BYTES_MAX, CACHED_FILE_BYTES_MAX, CACHED_OPEN_MAX};
use proptest::prelude::*;

fn file(path: impl AsRef<Path>) -> Arc<File> {
    let object = ObjectId {
        device: 0,
        index: 1,
        generation: 0,
    };
    let fd = OwnedFd::from(fs::File::open(path).expect("a file"));
    let fd = Descriptor::of(fd).expect("an open file");
    let residency = ackpace_core::conn::ResidencySource::Ask;
    Arc::new(File::new(fd, object, residency, b"", None))
}

fn content(file: &File) -> Content {
    Content {
        object: file.id,
        version: file.version().expect("an open file"),
    }
}

fn response(fill: u8, len: usize) -> CachedResponse {
    CachedResponse::whole(&[b'h'; 100], &vec![fill; len])
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

/// Caches a response of no file in particular.
fn keep(
    response_cache: &mut ResponseCache,
    key: &Key<'_>,
    response: CachedResponse,
    now: Instant,
) -> bool {
    let content = content(&file("/dev/null"));
    response_cache.keep(key, content, response, now)
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
    let mut response_cache = ResponseCache::new(1 << 30);
    for index in 0..2 * CACHED_OPEN_MAX as u32 {
        let response = CachedResponse::Open {
            head: [].into(),
            file: file("/dev/null"),
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
fn an_open_file_that_has_changed_is_found_anew_and_a_copy_is_believed() {
    let path = std::env::temp_dir().join(format!("ackpace-cache-{}", std::process::id()));
    fs::write(&path, "old").expect("written");
    let (mut response_cache, key) = (ResponseCache::new(1 << 20), kept_by(b"/a"));
    for (is_open, text) in [(false, "longer"), (true, "longer still")] {
        let file = file(&path);
        let content = content(&file);
        let response = match is_open {
            true => CachedResponse::Open {
                head: [].into(),
                file,
            },
            false => response(1, 10),
        };
        assert!(response_cache.keep(&key, content, response, at(1)));
        assert!(response_cache.get(&key, at(2)).is_some());
        fs::write(&path, text).expect("written");
        assert_eq!(response_cache.get(&key, at(3)).is_none(), is_open);
    }
    assert_eq!(response_cache.held().0, 0, "it is gone");
    fs::remove_file(&path).expect("our own file");
}

#[test]
fn a_file_is_closed_when_its_second_is_over_and_a_copy_stays() {
    let mut response_cache = ResponseCache::new(1 << 20);
    assert_eq!(response_cache.closes_at(), None);
    let files = [1, 400_001].map(|us| {
        let file = file("/dev/null");
        let response = CachedResponse::Open {
            head: [].into(),
            file: Arc::clone(&file),
        };
        let path = us.to_string();
        assert!(keep(
            &mut response_cache,
            &kept_by(path.as_bytes()),
            response,
            at(us)
        ));
        assert!(keep(
            &mut response_cache,
            &kept_by(b"/a"),
            self::response(1, 10),
            at(us)
        ));
        file
    });
    for (us, open) in [
        (CACHED_FRESH_US, 2),
        (CACHED_FRESH_US + 1, 1),
        (CACHED_FRESH_US + 400_001, 0),
    ] {
        response_cache.close_files(at(us));
        let held = files.iter().filter(|file| Arc::strong_count(file) > 1);
        assert_eq!(held.count(), open, "{us}");
    }
    assert_eq!(
        (response_cache.closes_at(), response_cache.held().0),
        (None, 1)
    );
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
