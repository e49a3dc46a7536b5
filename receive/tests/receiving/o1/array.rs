//! A priority array: a queue for each of 40 dynamic priorities, and a bit for each queue that is not empty.

use std::collections::VecDeque;

const PRIORITIES: usize = 40;

/// Processes that are ready to run, by their priority.
#[derive(Clone, Debug)]
pub(super) struct Array {
    queues: [VecDeque<usize>; PRIORITIES],
    bits: u64,
    len: usize,
}

impl Default for Array {
    fn default() -> Array {
        Array {
            queues: std::array::from_fn(|_| VecDeque::new()),
            bits: 0,
            len: 0,
        }
    }
}

impl Array {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn push(&mut self, prio: usize, task: usize) {
        self.queues[prio].push_back(task);
        self.bits |= 1 << prio;
        self.len += 1;
    }

    pub fn push_front(&mut self, prio: usize, task: usize) {
        self.queues[prio].push_front(task);
        self.bits |= 1 << prio;
        self.len += 1;
    }

    pub fn remove(&mut self, prio: usize, task: usize) {
        let queue = &mut self.queues[prio];
        let at = queue.iter().position(|&one| one == task);
        queue.remove(at.expect("it is queued where its priority says"));
        if queue.is_empty() {
            self.bits &= !(1 << prio);
        }
        self.len -= 1;
    }

    /// The first process of the best priority that has any.
    pub fn first(&self) -> Option<usize> {
        let prio = self.bits.trailing_zeros() as usize;
        self.queues
            .get(prio)
            .and_then(|queue| queue.front().copied())
    }
}
