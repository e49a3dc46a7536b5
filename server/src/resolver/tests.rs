//! Jobs and results: bounds, wake-ups, and that workers wait for nobody.

use super::*;
use crate::front::site::tests::site;
use crate::limits::SHORT_LISTING_NAMES_MAX;
use ackpace_core::conn::ConnId;
use ackpace_wire::listing::Format;

fn stream(nth: u16) -> StreamId {
    let (index, generation) = (0, 0);
    StreamId {
        worker: 0,
        conn: ConnId { index, generation },
        nth,
    }
}

fn find(path_bytes: usize) -> Job {
    Job::Find(Query {
        path: vec![b'/'; path_bytes].into(),
        accept_encoding: [Box::from(&b"gzip"[..])].into(),
        format: Format::Html,
        chunked: None,
    })
}

#[test]
fn what_waits_is_bounded_by_what_it_holds_and_makes_room_when_it_is_taken() {
    let jobs = Jobs::new(1_000, 10_000);
    let put = |path_bytes: usize| jobs.put(0, stream(0), find(path_bytes)).is_some();
    assert!(put(4_000) && put(4_000));
    assert!(!put(4_000), "a long one does not fit");
    assert!(put(100), "a short one does");
    let (device, _) = jobs.next(None);
    assert!(put(4_000), "one of them is being done");
    (0..3).for_each(|_| drop(jobs.next(Some(device))));
    assert_eq!(jobs.held_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn a_listing_of_a_long_directory_begins_in_a_long_job() {
    let dir = std::env::temp_dir().join(format!("ackpace-long-{}", std::process::id()));
    for (names, path) in [(10, "short"), (SHORT_LISTING_NAMES_MAX, "long")] {
        std::fs::create_dir_all(dir.join(path)).expect("a directory");
        for nth in 0..names {
            std::fs::write(dir.join(path).join(nth.to_string()), "").expect("a file");
        }
    }
    let site = Site {
        listing: true,
        ..site(&dir)
    };
    let begins = |path: &[u8], long| {
        let query = Query {
            path: path.into(),
            accept_encoding: [].into(),
            format: Format::Json,
            chunked: Some(true),
        };
        let done = run(&site, Taken { device: 0, long }, Job::Find(query));
        matches!(done, Ok(Done::Found(SiteAnswer::Listing(Some(_)))))
    };
    assert!(begins(b"/short/", false));
    assert!(!begins(b"/long/", false), "look-ups would wait behind it");
    assert!(begins(b"/long/", true));
    std::fs::remove_dir_all(&dir).expect("our own");
}

#[test]
fn a_worker_queues_a_job_and_hears_results_while_a_thread_holds_the_locks() {
    let jobs = Jobs::new(10, 10_000);
    let lanes = jobs.lanes();
    assert!(jobs.put(0, stream(1), find(1)).is_some());
    drop(lanes);
    assert_eq!(jobs.next(None).1.stream, stream(1));

    let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
    let (back, mut inbox) = Return::new(0, 9, waker);
    for nth in 0..3 {
        back.put(stream(nth), Done::Found(SiteAnswer::NotFound));
    }
    let next = |inbox: &mut Inbox| inbox.take().map(|(stream, _)| stream.nth);
    let held = back.results.lock().expect("no panic");
    assert_eq!(next(&mut inbox), None, "not now");
    drop(held);
    assert_eq!(next(&mut inbox), Some(0));
    let held = back.results.lock().expect("no panic");
    assert_eq!([(); 3].map(|()| next(&mut inbox)), [Some(1), Some(2), None]);
    drop(held);
    assert!(!inbox.has_more());
}

#[test]
fn nobody_wants_the_job_of_a_client_that_has_left() {
    let jobs = Jobs::new(10, 10_000);
    let interests: Vec<JobInterest> = (0..2)
        .map(|nth| jobs.put(0, stream(nth), find(1)).expect("room for two"))
        .collect();
    let (taken, first) = jobs.next(None);
    assert!(first.is_wanted());
    drop(interests);
    let (_, second) = jobs.next(Some(taken));
    assert!(!second.is_wanted() && !first.is_wanted());
}

/// Workers add jobs in bursts while threads come and go: each job is done once, and no thread sleeps beside one that
/// could begin, or this would not end.
#[test]
fn every_job_wakes_somebody() {
    const WORKERS: u16 = 3;
    const THREADS: u16 = 4;
    const EACH: u16 = 5_000;
    let jobs = Jobs::new(50, u64::MAX);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        let (jobs, done) = (&jobs, &done);
        for worker in 0..WORKERS {
            scope.spawn(move || {
                for nth in 0..EACH {
                    let device = nth % 3;
                    while jobs
                        .put(device, stream(worker * EACH + nth), find(1))
                        .is_none()
                    {
                        thread::yield_now();
                    }
                    while nth % 100 == 99 && jobs.waiting.load(Ordering::Relaxed) > 0 {
                        thread::yield_now(); // until all threads are about to sleep
                    }
                }
            });
        }
        for _ in 0..THREADS {
            scope.spawn(move || {
                let mut before = None;
                loop {
                    let (taken, waiting) = jobs.next(before);
                    before = Some(taken);
                    if waiting.stream.nth == u16::MAX {
                        break;
                    }
                    done.fetch_add(u64::from(waiting.stream.nth) + 1, Ordering::Relaxed);
                }
                // Its last job has ended, too.
                jobs.lanes().done(before.expect("a job"));
            });
        }
        let all = u64::from(WORKERS * EACH);
        while done.load(Ordering::Relaxed) < all * (all + 1) / 2 {
            thread::yield_now();
        }
        for nth in 0..THREADS {
            while jobs.put(nth, stream(u16::MAX), find(1)).is_none() {
                thread::yield_now();
            }
        }
    });
    let all = u64::from(WORKERS * EACH);
    assert_eq!(done.load(Ordering::Relaxed), all * (all + 1) / 2);
    assert_eq!(jobs.held_bytes.load(Ordering::Relaxed), 0);
}

/// How often this thread has slept (proc(5)).
fn sleeps() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").expect("proc(5)");
    let mut lines = status.lines();
    let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count
        .and_then(|count| count.trim().parse().ok())
        .expect("a count of switches")
}

/// Before, all of them woke up for each job, and all but one went to sleep again.
#[test]
fn a_job_wakes_one_thread() {
    const THREADS: u16 = 8;
    const JOBS: u16 = 500;
    let jobs = Jobs::new(50, u64::MAX);
    let all_idle = || {
        jobs.waiting.load(Ordering::SeqCst) == 0
            && jobs.idle.load(Ordering::SeqCst) == usize::from(THREADS)
    };
    let slept = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut before = None;
                loop {
                    let (taken, waiting) = jobs.next(before);
                    before = Some(taken);
                    if waiting.stream.nth == u16::MAX {
                        break;
                    }
                }
                jobs.lanes().done(before.expect("a job"));
                slept.fetch_add(sleeps(), Ordering::Relaxed);
            });
        }
        for nth in 0..JOBS {
            while !all_idle() {
                thread::yield_now();
            }
            assert!(jobs.put(0, stream(nth), find(1)).is_some());
        }
        for nth in 0..THREADS {
            assert!(jobs.put(nth, stream(u16::MAX), find(1)).is_some());
        }
    });
    let slept = slept.load(Ordering::Relaxed);
    assert!(slept < 2 * u64::from(JOBS), "{slept} for {JOBS} jobs");
}
