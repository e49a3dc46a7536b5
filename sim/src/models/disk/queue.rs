//! Requests that wait for a disk's arm, and the choice of the next one.

use super::profile::{Discipline, QueueProfile};
use super::request::Request;
use std::collections::VecDeque;

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// The request.
    pub request: Request,
    /// When it arrived.
    pub arrived_ns: u64,
    /// How many requests were under way then.
    pub queued_before: usize,
}

/// Waiting requests in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Queue {
    profile: QueueProfile,
    waiting: VecDeque<Waiting>,
}

impl Queue {
    /// An empty queue.
    pub fn new(profile: QueueProfile) -> Self {
        Self {
            profile,
            waiting: VecDeque::new(),
        }
    }

    /// Appends a request.
    pub fn push(&mut self, waiting: Waiting) {
        self.waiting.push_back(waiting);
    }

    /// Number of waiting requests.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// When the oldest request arrived.
    pub fn oldest_ns(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.arrived_ns)
    }

    /// Removes the next request to serve at `now_ns` among those that arrived by then. `last_end_bytes` is where the
    /// last service ended; `positioning_ns` returns the time to reach a request.
    pub fn take(
        &mut self,
        now_ns: u64,
        last_end_bytes: u64,
        positioning_ns: impl Fn(&Request) -> u64,
    ) -> Option<Waiting> {
        let oldest = self.waiting.front()?;
        if oldest.arrived_ns > now_ns {
            return None;
        }
        let aged = now_ns - oldest.arrived_ns > self.profile.age_max_ns;
        let window = self.waiting.iter().take(self.profile.depth).enumerate();
        let window = window.filter(|(_, waiting)| waiting.arrived_ns <= now_ns);
        let next = match self.profile.discipline {
            _ if aged => Some(0),
            Discipline::Fifo => Some(0),
            Discipline::Clook => window
                .min_by_key(|(_, waiting)| {
                    let at = waiting.request.offset_bytes;
                    (at < last_end_bytes, at)
                })
                .map(|(nth, _)| nth),
            Discipline::Sptf => window
                .min_by_key(|(_, waiting)| positioning_ns(&waiting.request))
                .map(|(nth, _)| nth),
        };
        self.waiting.remove(next?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::profile::scsi_2003;
    use super::super::request::Kind;
    use super::*;

    fn order(discipline: Discipline, age_max_ns: u64, from_bytes: u64) -> Vec<u64> {
        let mut queue = Queue::new(QueueProfile {
            discipline,
            depth: 4,
            age_max_ns,
        });
        for (id, offset_bytes) in [500, 100, 900, 300, 301, 50].into_iter().enumerate() {
            queue.push(Waiting {
                request: Request {
                    id: id as u64,
                    offset_bytes,
                    len_bytes: 1,
                    kind: Kind::Read,
                },
                arrived_ns: id as u64,
                queued_before: 0,
            });
        }
        let (mut at, mut order) = (from_bytes, Vec::new());
        while let Some(next) = queue.take(100, at, |request| request.offset_bytes.abs_diff(at)) {
            at = next.request.offset_bytes;
            order.push(at);
        }
        order
    }

    #[test]
    fn each_discipline_has_its_order_within_the_window_of_the_four_oldest() {
        assert_eq!(
            order(Discipline::Fifo, 1000, 0),
            [500, 100, 900, 300, 301, 50]
        );
        assert_eq!(
            order(Discipline::Clook, 1000, 400),
            [500, 900, 50, 100, 300, 301]
        );
        assert_eq!(
            order(Discipline::Sptf, 1000, 400),
            [500, 301, 300, 100, 50, 900]
        );
    }

    #[test]
    fn beyond_the_age_bound_the_oldest_is_next() {
        assert_eq!(
            order(Discipline::Sptf, 97, 0),
            [500, 100, 900, 301, 300, 50]
        );
    }

    #[test]
    fn what_has_not_come_yet_is_not_taken() {
        let mut queue = Queue::new(scsi_2003().queue);
        queue.push(Waiting {
            request: Request {
                id: 1,
                offset_bytes: 0,
                len_bytes: 1,
                kind: Kind::Read,
            },
            arrived_ns: 10,
            queued_before: 0,
        });
        assert!(queue.take(9, 0, |_| 0).is_none());
        assert!(queue.take(10, 0, |_| 0).is_some());
    }
}
