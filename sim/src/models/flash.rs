//! A channel of a flash device: one thing at a time, in the order of arrival, always equally fast.

use super::disk::request::{Completion, Counters, Request, Split};
use std::collections::VecDeque;
use std::ops::Range;

const NS_PER_S: u64 = 1_000_000_000;

/// One channel.
#[derive(Clone, Debug)]
pub struct Channel {
    latency_ns: u64,
    rate_bytes_per_s: u64,
    queue: VecDeque<Completion>,
    free_ns: u64,
    bad: Vec<Range<u64>>,
    hung_since_ns: Option<u64>,
    counters: Counters,
}

impl Channel {
    /// An idle channel; the rate is above 0.
    pub fn new(latency_ns: u64, rate_bytes_per_s: u64) -> Self {
        Self {
            latency_ns,
            rate_bytes_per_s,
            queue: VecDeque::new(),
            free_ns: 0,
            bad: Vec::new(),
            hung_since_ns: None,
            counters: Counters::default(),
        }
    }

    /// Takes a request that arrives at `now_ns`; arrivals do not go back in time.
    pub fn submit(&mut self, now_ns: u64, request: Request) {
        let started_ns = self.free_ns.max(now_ns);
        let split = Split {
            overhead_ns: self.latency_ns,
            transfer_ns: request.len_bytes * NS_PER_S / self.rate_bytes_per_s,
            ..Split::default()
        };
        let touches =
            |bad: &Range<u64>| bad.start < request.end_bytes() && request.offset_bytes < bad.end;
        self.free_ns = started_ns + split.busy_ns();
        self.queue.push_back(Completion {
            request,
            arrived_ns: now_ns,
            started_ns,
            finished_ns: self.free_ns,
            split,
            queued_before: self.queue.len(),
            hit: false,
            failed: self.bad.iter().any(touches),
        });
    }

    /// When the next completion is due, if any is.
    pub fn next_ns(&self) -> Option<u64> {
        let next = self.queue.front().filter(|_| self.hung_since_ns.is_none());
        next.map(|completion| completion.finished_ns)
    }

    /// The next completion if it is due by `now_ns`.
    pub fn complete(&mut self, now_ns: u64) -> Option<Completion> {
        self.next_ns().filter(|due| *due <= now_ns)?;
        let completion = self.queue.pop_front()?;
        self.counters.count(&completion);
        Some(completion)
    }

    /// Requests that wait or are served.
    pub fn under_way(&self) -> usize {
        self.queue.len()
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// From `now_ns` on nothing completes.
    pub fn hang(&mut self, now_ns: u64) {
        self.hung_since_ns.get_or_insert(now_ns);
    }

    /// Ends a hang: everything under way is late by its length, the first by its overhead.
    pub fn resume(&mut self, now_ns: u64) {
        let Some(since_ns) = self.hung_since_ns.take() else {
            return;
        };
        let late_ns = now_ns.saturating_sub(since_ns);
        for (nth, completion) in self.queue.iter_mut().enumerate() {
            completion.finished_ns += late_ns;
            if nth == 0 {
                completion.split.overhead_ns += late_ns;
            } else {
                completion.started_ns += late_ns;
            }
        }
        self.free_ns += late_ns;
    }

    /// Requests that touch a bad region and come from now on fail.
    pub fn set_bad(&mut self, regions: Vec<Range<u64>>) {
        self.bad = regions;
    }
}
