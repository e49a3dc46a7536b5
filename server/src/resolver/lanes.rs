//! Which job a free thread of the pool takes. A job looks up a path, or makes the next slice of a directory listing. Jobs wait
//! in the lane of their device, and the lanes take turns. A device that hangs keeps all threads that its jobs got, so two
//! bounds leave threads to others:
//!
//! - A lane gets at most half of the threads that other lanes leave, rounded up. Devices that hang one after the other keep
//!   8, 4, 2, 1 and 1 of 16 threads, so others can work until the fifth hangs.
//! - Long jobs get at most a quarter of the threads, and the next free one if none of them runs. Of this quarter, too, a
//!   lane gets at most half of what other lanes leave.
//!
//! A job is long if it reads a long directory: for a listing that begins, or for a slice of one whose names are kept no more
//! (`server/src/front/shelf.rs`). This shows only when it runs. So each job is queued as a short one first, and a long one
//! then goes back to the queue.
//!
//! The caller holds a lock around all this. It bounds how many jobs may wait, where it admits them
//! (`server/src/resolver.rs`).

use std::collections::VecDeque;

use crate::limits::DEVICES_MAX;

/// The jobs that wait, by device, and how many are running.
pub struct Lanes<J> {
    lanes: Vec<Lane<J>>,
    threads: usize,
    busy: usize,
    /// Threads that run a long job.
    long_busy: usize,
    waiting: usize,
    turn: usize,
}

struct Lane<J> {
    /// Its short jobs that wait, and its long ones; `usize::from(long)` is the index.
    waiting: [VecDeque<J>; 2],
    /// Threads that run one of its jobs.
    busy: usize,
    /// Threads that run a long one.
    long_busy: usize,
}

/// What a running job counts for. Its thread gives this to [`Lanes::done`] afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    pub device: u16,
    /// It was queued as a long one.
    pub long: bool,
}

impl<J> Lanes<J> {
    /// Empty lanes for a pool of `threads`.
    pub fn new(threads: usize) -> Lanes<J> {
        let lane = |_| Lane {
            waiting: [VecDeque::new(), VecDeque::new()],
            busy: 0,
            long_busy: 0,
        };
        Lanes {
            lanes: (0..DEVICES_MAX).map(lane).collect(),
            threads,
            busy: 0,
            long_busy: 0,
            waiting: 0,
            turn: 0,
        }
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    pub fn busy(&self) -> usize {
        self.busy
    }

    /// Adds a job for this device, whose index is below [`DEVICES_MAX`].
    pub fn put(&mut self, device: u16, long: bool, job: J) {
        self.lanes[usize::from(device)].waiting[usize::from(long)].push_back(job);
        self.waiting += 1;
    }

    /// Takes the next job that may run now.
    pub fn take(&mut self) -> Option<(Taken, J)> {
        let (at, long) = self.next_lane()?;
        let lane = &mut self.lanes[at];
        let job = lane.waiting[usize::from(long)].pop_front()?;
        (lane.busy, lane.long_busy) = (lane.busy + 1, lane.long_busy + usize::from(long));
        self.long_busy += usize::from(long);
        (self.busy, self.waiting) = (self.busy + 1, self.waiting - 1);
        self.turn = at + 1;
        let device = at as u16;
        Some((Taken { device, long }, job))
    }

    /// Whether a job may run now.
    pub fn is_ready(&self) -> bool {
        self.next_lane().is_some()
    }

    /// A thread has ended a job, so others may be ready now.
    pub fn done(&mut self, taken: Taken) {
        let lane = &mut self.lanes[usize::from(taken.device)];
        (lane.busy, lane.long_busy) = (lane.busy - 1, lane.long_busy - usize::from(taken.long));
        self.long_busy -= usize::from(taken.long);
        self.busy -= 1;
    }

    /// The lane of the next job that may run, and whether that is a long one. Long jobs go first if none is running, and
    /// else last.
    fn next_lane(&self) -> Option<(usize, bool)> {
        if self.waiting == 0 {
            return None;
        }
        let (short, long) = (|| self.next_lane_of(false), || self.next_lane_of(true));
        match self.long_busy {
            0 => long().or_else(short),
            busy if busy < self.long_threads() => short().or_else(long),
            _ => short(),
        }
    }

    /// Threads that may run long jobs.
    fn long_threads(&self) -> usize {
        (self.threads / 4).max(1)
    }

    /// The first lane that has such a job and may get one more thread, beginning with the lane whose turn it is.
    fn next_lane_of(&self, long: bool) -> Option<(usize, bool)> {
        let count = self.lanes.len();
        let mut order = (self.turn..self.turn + count).map(|at| at % count);
        let at = order.find(|&at| {
            let lane = &self.lanes[at];
            let left_by_others = self.threads - (self.busy - lane.busy);
            let long_left_by_others = self.long_threads() - (self.long_busy - lane.long_busy);
            !lane.waiting[usize::from(long)].is_empty()
                && lane.busy < left_by_others.div_ceil(2)
                && (!long || lane.long_busy < long_left_by_others.div_ceil(2))
        });
        at.map(|at| (at, long))
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
                lanes.put(device, false, job);
            }
            while let Some((taken, _)) = lanes.take() {
                began[usize::from(taken.device)] += 1;
            }
        }
        assert_eq!(began, [1, 4, 1, 8, 2]);
        assert_eq!((lanes.busy(), lanes.waiting()), (16, 484));
    }

    #[test]
    fn lanes_take_turns_and_keep_the_order_within() {
        let mut lanes = Lanes::new(100);
        for job in [(7, "a"), (7, "b"), (2, "c"), (7, "d"), (2, "e")] {
            lanes.put(job.0, false, job.1);
        }
        let taken = std::iter::from_fn(|| lanes.take());
        let order: Vec<_> = taken.map(|(taken, job)| (taken.device, job)).collect();
        assert_eq!(order, [(2, "c"), (7, "a"), (2, "e"), (7, "b"), (7, "d")]);
    }

    #[test]
    fn long_jobs_leave_most_threads_and_are_not_forgotten() {
        let mut lanes = Lanes::new(16);
        for job in 0..100 {
            lanes.put(0, true, job);
        }
        let mut taken: Vec<_> = std::iter::from_fn(|| lanes.take()).collect();
        assert_eq!(taken.len(), 2, "half of a quarter of the threads");
        for job in 0..100 {
            lanes.put(7, true, job);
        }
        lanes.put(8, true, 0);
        taken.extend(std::iter::from_fn(|| lanes.take()));
        let of: Vec<_> = taken
            .iter()
            .map(|(taken, _)| (taken.device, taken.long))
            .collect();
        let first = [(0, true), (0, true)];
        assert_eq!(
            of,
            [first, [(7, true), (8, true)]].concat(),
            "if all of the first hang"
        );
        assert!(lanes.take().is_none(), "the quarter is taken");
        for job in 100..200 {
            lanes.put(0, false, job);
        }
        let short = std::iter::from_fn(|| lanes.take()).all(|(taken, _)| !taken.long);
        assert!(short && lanes.busy() == 9, "seven of the first");
        for (taken, _) in taken {
            lanes.done(taken);
        }
        let next = lanes.take().map(|(taken, _)| taken.long);
        assert_eq!(next, Some(true), "one at least, however many others wait");
    }

    proptest! {
        #[test]
        fn every_job_is_done_once_and_no_thread_idles_beside_one_lane(
            threads in 1usize..20,
            acts in prop::collection::vec((0u16..DEVICES_MAX as u16, any::<bool>(), any::<bool>()), 1..200),
        ) {
            let mut lanes = Lanes::new(threads);
            let (mut put, mut taken, mut under_way) = (0, 0, Vec::new());
            for (device, long, finish) in acts {
                lanes.put(device, long, put);
                put += 1;
                while let Some((lane, _)) = lanes.take() {
                    taken += 1;
                    under_way.push(lane);
                }
                prop_assert!(lanes.busy() <= threads && lanes.busy() == under_way.len());
                prop_assert_eq!(lanes.waiting(), put - taken);
                let short = lanes.lanes.iter().any(|lane| !lane.waiting[0].is_empty());
                prop_assert!(!short || lanes.busy() >= threads.div_ceil(2));
                let long = under_way.iter().filter(|taken: &&Taken| taken.long).count();
                prop_assert!(long <= (threads / 4).max(1));
                prop_assert!(lanes.waiting() == 0 || long > 0 || lanes.busy() >= threads.div_ceil(2));
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
