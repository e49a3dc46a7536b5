//! Whose job is next: jobs wait in the lane of the device that they will wait for, so that one which hangs holds up its own.

use std::collections::VecDeque;

use crate::limits::DEVICES_MAX;

/// Jobs by device, and how many of each are being done. Of the threads that the others leave a lane has one half at most: one
/// device has half of all, the next one a quarter, and there is one left for the fourth.
pub struct Lanes<J> {
    lanes: Vec<Lane<J>>,
    threads: usize,
    busy: usize,
    waiting: usize,
    /// Whose turn it is.
    turn: usize,
}

struct Lane<J> {
    waiting: VecDeque<J>,
    busy: usize,
}

impl<J> Lanes<J> {
    /// Empty lanes in front of so many threads.
    pub fn new(threads: usize) -> Lanes<J> {
        let lane = |_| Lane {
            waiting: VecDeque::new(),
            busy: 0,
        };
        Lanes {
            lanes: (0..DEVICES_MAX).map(lane).collect(),
            threads,
            busy: 0,
            waiting: 0,
            turn: 0,
        }
    }

    /// Jobs that nobody does yet.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Jobs that are being done.
    pub fn busy(&self) -> usize {
        self.busy
    }

    /// One more job for this device, whose place is below [`DEVICES_MAX`].
    pub fn put(&mut self, device: u16, job: J) {
        self.lanes[usize::from(device)].waiting.push_back(job);
        self.waiting += 1;
    }

    /// The next job and its device; lanes take turns.
    pub fn take(&mut self) -> Option<(u16, J)> {
        let at = self.next()?;
        let job = self.lanes[at].waiting.pop_front()?;
        self.lanes[at].busy += 1;
        (self.busy, self.waiting) = (self.busy + 1, self.waiting - 1);
        self.turn = at + 1;
        Some((at as u16, job))
    }

    /// Whether a job may begin.
    pub fn is_ready(&self) -> bool {
        self.next().is_some()
    }

    /// A job for this device is done.
    pub fn done(&mut self, device: u16) {
        self.lanes[usize::from(device)].busy -= 1;
        self.busy -= 1;
    }

    fn next(&self) -> Option<usize> {
        if self.waiting == 0 {
            return None;
        }
        let count = self.lanes.len();
        (self.turn..self.turn + count)
            .map(|at| at % count)
            .find(|&at| {
                let lane = &self.lanes[at];
                let left = self.threads - (self.busy - lane.busy);
                !lane.waiting.is_empty() && lane.busy < left.div_ceil(2)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_device_that_hangs_leaves_threads_for_others() {
        let mut lanes = Lanes::new(16);
        let mut began = [0; 5];
        for device in [3, 1, 4, 0, 2] {
            for job in 0..100 {
                lanes.put(device, job);
            }
            while let Some((device, _)) = lanes.take() {
                began[usize::from(device)] += 1;
            }
        }
        assert_eq!(began, [1, 4, 1, 8, 2]);
        assert_eq!((lanes.busy(), lanes.waiting()), (16, 484));
    }

    #[test]
    fn lanes_take_turns_and_keep_the_order_within() {
        let mut lanes = Lanes::new(100);
        for job in [(7, "a"), (7, "b"), (2, "c"), (7, "d"), (2, "e")] {
            lanes.put(job.0, job.1);
        }
        let order: Vec<_> = std::iter::from_fn(|| lanes.take()).collect();
        assert_eq!(order, [(2, "c"), (7, "a"), (2, "e"), (7, "b"), (7, "d")]);
    }

    proptest! {
        #[test]
        fn every_job_is_done_once_and_no_thread_idles_beside_one_lane(
            threads in 1usize..20,
            acts in prop::collection::vec((0u16..DEVICES_MAX as u16, any::<bool>()), 1..200),
        ) {
            let mut lanes = Lanes::new(threads);
            let (mut put, mut taken, mut under_way) = (0, 0, Vec::new());
            for (device, finish) in acts {
                lanes.put(device, put);
                put += 1;
                while let Some((lane, _)) = lanes.take() {
                    taken += 1;
                    under_way.push(lane);
                }
                prop_assert!(lanes.busy() <= threads && lanes.busy() == under_way.len());
                prop_assert_eq!(lanes.waiting(), put - taken);
                prop_assert!(lanes.waiting() == 0 || lanes.busy() >= threads.div_ceil(2));
                if finish {
                    under_way.pop().into_iter().for_each(|lane| lanes.done(lane));
                }
            }
            loop {
                while let Some((lane, _)) = lanes.take() {
                    taken += 1;
                    under_way.push(lane);
                }
                if under_way.is_empty() {
                    break;
                }
                under_way.drain(..).for_each(|lane| lanes.done(lane));
            }
            prop_assert_eq!((taken, lanes.waiting(), lanes.busy()), (put, 0, 0));
        }
    }
}
