//! The response cache takes no more memory than it counts, and no more than it may, whatever clients ask for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use ackpace::limits::RESPONSE_CACHE_TABLES_BYTES;
use ackpace::response_cache::{CachedResponse, Content, Key, ResponseCache};
use ackpace::store::attributes::{known, known_version};
use ackpace_core::conn::ObjectId;
use ackpace_core::limits::CACHED_PATH_BYTES_MAX;
use ackpace_core::units::Instant;

/// Bytes that are allocated now, and at most since the last look.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: the system's allocator does the work; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// One path of many, as long as it may be or short.
fn path(nth: u32, len_bytes: usize) -> Vec<u8> {
    let mut path = format!("/{nth}/").into_bytes();
    path.resize(len_bytes.max(path.len()), b'x');
    path
}

#[test]
fn hostile_paths_and_answers_take_what_is_counted_and_no_more() {
    const BUDGET_BYTES: u64 = 2 << 20;
    let device = std::fs::File::open("/dev/null").expect("a device");
    let stat = known(&device).expect("an open file");
    let content = Content {
        object: ObjectId {
            device: 0,
            index: 1,
            generation: 0,
        },
        version: known_version(&stat),
    };
    let before_bytes = NOW.load(Ordering::Relaxed);
    let mut response_cache = ResponseCache::new(BUDGET_BYTES);
    let mut under_way = Vec::with_capacity(1000);
    let own_bytes = under_way.capacity() * size_of::<CachedResponse>();
    // Short ones fill the table, long ones the memory; some are being sent when they are forgotten.
    for (path_bytes, body_bytes, lent) in [
        (10, 1, false),
        (CACHED_PATH_BYTES_MAX, 8192, false),
        (CACHED_PATH_BYTES_MAX, 1, true),
        (10, 8192, true),
        (10, 1, false),
    ] {
        for nth in 0..10_000u32 {
            let now = Instant {
                us: 1000 * u64::from(nth),
            };
            let path = path(nth, path_bytes);
            let response = CachedResponse::whole(&[b'h'; 300], &vec![b'b'; body_bytes]);
            let key = Key {
                path: path[..].into(),
                keep_alive: nth % 2 == 0,
            };
            response_cache.keep(&key, content, response, now);
            if lent && nth % 10 == 0 {
                under_way.extend(
                    response_cache
                        .get(&key, now)
                        .map(|found| found.response.clone()),
                );
            }
        }
        let (answers, held_bytes) = response_cache.held();
        assert!(held_bytes <= BUDGET_BYTES && (answers > 0 || lent));
        let heap_bytes = NOW.load(Ordering::Relaxed) - before_bytes - own_bytes;
        let counted_bytes = held_bytes + RESPONSE_CACHE_TABLES_BYTES;
        assert!(
            heap_bytes as u64 <= counted_bytes && 2 * heap_bytes as u64 >= held_bytes,
            "{heap_bytes} bytes of heap, {held_bytes} counted"
        );
        println!("{answers} answers: {heap_bytes} bytes of heap, {held_bytes} counted");
        under_way.clear();
    }
    // Between two looks, too: what was being made is the test's own.
    let most_bytes = MOST.load(Ordering::Relaxed) - before_bytes - own_bytes;
    let making_bytes = 4 * (8192 + CACHED_PATH_BYTES_MAX);
    assert!(most_bytes as u64 <= BUDGET_BYTES + RESPONSE_CACHE_TABLES_BYTES + making_bytes as u64);
}
