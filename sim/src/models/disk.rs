//! A hard disk: command overhead, arm, platter, zones, the drive's own cache and a tagged queue.
//!
//! [`Disk::submit`] and [`Disk::complete`] drive it. The caller passes all times. They count from any origin, and the
//! platter's angle follows from them. Results depend only on when requests arrive, not on when the caller collects
//! completions: a service that follows another starts exactly when that one ended.

mod drive_cache;
mod geometry;
pub mod profile;
mod queue;
pub mod request;

use drive_cache::{CacheHit, DriveCache};
use geometry::Geometry;
use profile::DiskProfile;
use queue::{Queue, Waiting};
use request::{Completion, Kind, Request, Split};
use std::ops::Range;

/// Revolutions that a drive spends on retries of an unreadable sector before it gives up.
const RETRY_TURNS: u64 = 10;
const NS_PER_S: u64 = 1_000_000_000;

/// One disk.
#[derive(Clone, Debug)]
pub struct Disk {
    profile: DiskProfile,
    geometry: Geometry,
    cache: DriveCache,
    queue: Queue,
    job: Option<Job>,
    last_end_bytes: u64,
    free_ns: u64,
    bad: Vec<Range<u64>>,
    hung_since_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    waiting: Waiting,
    started_ns: u64,
    split: Split,
    hit: bool,
    failed: bool,
}

/// The service of a request, if it started now.
struct Plan {
    split: Split,
    positioning_ns: u64,
    hit: Option<CacheHit>,
}

impl Disk {
    /// An idle disk with its head at offset 0. The caller has checked that no divisor in the profile is 0.
    pub fn new(profile: DiskProfile) -> Self {
        Self {
            geometry: Geometry::new(&profile),
            cache: DriveCache::new(profile.segments, profile.segment_bytes, profile.size_bytes),
            queue: Queue::new(profile.queue),
            job: None,
            last_end_bytes: 0,
            free_ns: 0,
            bad: Vec::new(),
            hung_since_ns: None,
            profile,
        }
    }

    /// Queues a request that arrives at `now_ns`. Calls come in the order of time.
    pub fn submit(&mut self, now_ns: u64, request: Request) {
        debug_assert!(request.len_bytes > 0 && request.end_bytes() <= self.profile.size_bytes);
        let queued_before = self.under_way();
        self.queue.push(Waiting {
            request,
            arrived_ns: now_ns,
            queued_before,
        });
        self.start_next();
    }

    /// Time of the next completion; `None` if nothing is being served or the disk hangs.
    pub fn next_ns(&self) -> Option<u64> {
        let job = self.job.filter(|_| self.hung_since_ns.is_none());
        job.map(|job| job.started_ns + job.split.busy_ns())
    }

    /// Returns the next completion that is due by `now_ns`. Call it until it returns `None`.
    pub fn complete(&mut self, now_ns: u64) -> Option<Completion> {
        let finished_ns = self.next_ns().filter(|due| *due <= now_ns)?;
        let job = self.job.take()?;
        let completion = Completion {
            request: job.waiting.request,
            arrived_ns: job.waiting.arrived_ns,
            started_ns: job.started_ns,
            finished_ns,
            split: job.split,
            queued_before: job.waiting.queued_before,
            hit: job.hit,
            failed: job.failed,
        };
        self.free_ns = finished_ns;
        self.start_next();
        Some(completion)
    }

    /// Number of requests that wait or are being served.
    pub fn under_way(&self) -> usize {
        self.queue.len() + usize::from(self.job.is_some())
    }

    /// Stops all completions from `now_ns` on. The time until [`Self::resume`] counts as overhead of the request in
    /// service.
    pub fn hang(&mut self, now_ns: u64) {
        self.hung_since_ns.get_or_insert(now_ns);
    }

    /// Ends a hang.
    pub fn resume(&mut self, now_ns: u64) {
        let Some(since_ns) = self.hung_since_ns.take() else {
            return;
        };
        if let Some(job) = &mut self.job {
            job.split.overhead_ns += now_ns.saturating_sub(since_ns);
        }
        self.free_ns = self.free_ns.max(now_ns);
        self.start_next();
    }

    /// Replaces the bad regions. Requests that touch one fail from now on, after some turns (`RETRY_TURNS`) of retries.
    pub fn set_bad(&mut self, regions: Vec<Range<u64>>) {
        for region in &regions {
            self.cache.forget(region.start, region.end);
        }
        self.bad = regions;
    }

    fn start_next(&mut self) {
        if self.job.is_some() || self.hung_since_ns.is_some() {
            return;
        }
        let Some(oldest_ns) = self.queue.oldest_ns() else {
            return;
        };
        let now_ns = self.free_ns.max(oldest_ns);
        // `plan` borrows the whole disk but does not read its queue: the queue is moved out meanwhile.
        let mut queue = std::mem::replace(&mut self.queue, Queue::new(self.profile.queue));
        let next = queue.take(now_ns, self.last_end_bytes, |request| {
            self.plan(request, now_ns).positioning_ns
        });
        self.queue = queue;
        self.job = next.map(|waiting| self.start(waiting, now_ns));
    }

    fn start(&mut self, waiting: Waiting, now_ns: u64) -> Job {
        let request = waiting.request;
        let mut plan = self.plan(&request, now_ns);
        let failed = self.is_bad(&request);
        self.last_end_bytes = request.end_bytes();
        match (&plan.hit, request.kind) {
            _ if failed => {
                plan.split.rotation_ns += RETRY_TURNS * self.geometry.revolution_ns;
                self.cache.disturb(&self.geometry, &request, now_ns);
            }
            (Some(hit), _) => self.cache.take(hit),
            (None, Kind::Write) => self.cache.disturb(&self.geometry, &request, now_ns),
            (None, Kind::Read) => {
                let split = &plan.split;
                let under_head_ns = now_ns + split.busy_ns() - split.transfer_ns;
                self.cache
                    .read(&self.geometry, &request, now_ns, under_head_ns);
            }
        }
        Job {
            waiting,
            started_ns: now_ns,
            split: plan.split,
            hit: plan.hit.is_some_and(|hit| hit.ready_ns <= now_ns) && !failed,
            failed,
        }
    }

    fn plan(&self, request: &Request, now_ns: u64) -> Plan {
        let hit = match request.kind {
            Kind::Read if !self.is_bad(request) => self.cache.find(&self.geometry, request, now_ns),
            _ => None,
        };
        match hit {
            Some(hit) => self.plan_hit(request, hit, now_ns),
            None => self.plan_miss(request, now_ns),
        }
    }

    fn plan_miss(&self, request: &Request, now_ns: u64) -> Plan {
        let head_ns = self.cache.head_ns(&self.geometry, now_ns);
        let place_ns = self.geometry.place_ns(request.offset_bytes);
        let overhead_ns = self.profile.overhead_ns;
        let seek_ns = self.geometry.seek_ns(head_ns, place_ns);
        let arrives_ns = now_ns + overhead_ns + seek_ns;
        let rotation_ns = self.geometry.rotation_ns(place_ns, arrives_ns);
        Plan {
            split: Split {
                overhead_ns,
                seek_ns,
                rotation_ns,
                transfer_ns: self.geometry.place_ns(request.end_bytes()) - place_ns,
            },
            positioning_ns: overhead_ns + seek_ns + rotation_ns,
            hit: None,
        }
    }

    fn plan_hit(&self, request: &Request, hit: CacheHit, now_ns: u64) -> Plan {
        let bus_ns = request.len_bytes * NS_PER_S / self.profile.bus_bytes_per_s;
        let busy_ns = (self.profile.overhead_ns + bus_ns).max(hit.ready_ns.saturating_sub(now_ns));
        let overhead_ns = self.profile.overhead_ns;
        let resumes_ns = hit.resumes_ns.saturating_sub(now_ns + overhead_ns);
        let rotation_ns = if hit.ready_ns > now_ns {
            resumes_ns.min(busy_ns - overhead_ns)
        } else {
            0
        };
        Plan {
            split: Split {
                overhead_ns,
                seek_ns: 0,
                rotation_ns,
                transfer_ns: busy_ns - overhead_ns - rotation_ns,
            },
            positioning_ns: overhead_ns.max(hit.under_head_ns.saturating_sub(now_ns)),
            hit: Some(hit),
        }
    }

    fn is_bad(&self, request: &Request) -> bool {
        let touches =
            |bad: &Range<u64>| bad.start < request.end_bytes() && request.offset_bytes < bad.end;
        self.bad.iter().any(touches)
    }
}
