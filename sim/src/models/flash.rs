//! A channel of a flash device: it serves one request at a time, in the order of arrival, at a constant rate.

use super::disk::request::{Completion, Request, Split};
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
        }
    }

    /// Queues a request that arrives at `now_ns`. Calls come in the order of time.
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

    /// Time of the next completion; `None` if nothing is under way or the channel hangs.
    pub fn next_ns(&self) -> Option<u64> {
        let next = self.queue.front().filter(|_| self.hung_since_ns.is_none());
        next.map(|completion| completion.finished_ns)
    }

    /// Returns the next completion that is due by `now_ns`. Call it until it returns `None`.
    pub fn complete(&mut self, now_ns: u64) -> Option<Completion> {
        self.next_ns().filter(|due| *due <= now_ns)?;
        let completion = self.queue.pop_front()?;
        Some(completion)
    }

    /// Stops all completions from `now_ns` on.
    pub fn hang(&mut self, now_ns: u64) {
        self.hung_since_ns.get_or_insert(now_ns);
    }

    /// Ends a hang. All requests under way are late by its length, which counts as overhead of the first.
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

    /// Replaces the bad regions. Requests that come from now on and touch one fail.
    pub fn set_bad(&mut self, regions: Vec<Range<u64>>) {
        self.bad = regions;
    }
}
