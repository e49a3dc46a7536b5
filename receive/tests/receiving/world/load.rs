//! Load beside the receiver: loops that never sleep, or the compilation of a kernel.

use crate::o1::{NS_PER_TICK, Scheduler, Task, Wake};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{RngCore, SeedableRng};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Mean CPU time of a compiler for one file.
const FILE_NS: f64 = 1_000e6;
/// Mean CPU time between two waits for the disk, and the mean time of the one disk for a wait.
const BURST_NS: f64 = 400e6;
const DISK_NS: f64 = 10e6;
/// Credit of a new compiler: make waits for long, so it has 900 ms, and each of two forks leaves .95 of the bonus,
/// rounded down (CHILD_PENALTY).
const CREDIT_NS: u64 = 700 * NS_PER_TICK;
/// What a child gets of its parent's slice.
const FIRST_SLICE_TICKS: u64 = 50;

/// Background load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Processes that execute operations in a loop (section 5, fairness).
    Loops(usize),
    /// `make -nj` (section 4, BLn): n slots, each with one compiler after the other. Compilers sometimes wait for a disk.
    Make(usize),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    task: Task,
    /// CPU time until it waits for the disk, and until its file is done.
    burst_ns: u64,
    file_ns: u64,
}

/// The processes of a load.
#[derive(Clone, Debug)]
pub(super) struct Jobs {
    slots: Vec<Slot>,
    first: Task,
    waits_for_disk: bool,
    rng: Pcg64Mcg,
    disk_free_ns: u64,
    wakes: BinaryHeap<Reverse<(u64, usize)>>,
}

impl Jobs {
    pub fn new(load: Load, scheduler: &mut Scheduler, seed: u64) -> Jobs {
        let (count, waits_for_disk) = match load {
            Load::Loops(count) => (count, false),
            Load::Make(count) => (count, true),
        };
        let mut jobs = Jobs {
            slots: Vec::new(),
            first: 0,
            waits_for_disk,
            rng: Pcg64Mcg::seed_from_u64(seed),
            disk_free_ns: 0,
            wakes: BinaryHeap::new(),
        };
        for nth in 0..count {
            // They have run for a while, and are somewhere in their slices.
            let slice_ticks = 1 + jobs.rng.next_u64() % 100;
            let task = scheduler.add(0, 0, slice_ticks);
            jobs.first = task - nth;
            let (burst_ns, file_ns) = (jobs.draw(BURST_NS), jobs.draw(FILE_NS));
            jobs.slots.push(Slot {
                task,
                burst_ns,
                file_ns,
            });
            scheduler.wake(task, Wake::Disk, 0);
        }
        jobs
    }

    /// Draws from an exponential distribution.
    fn draw(&mut self, mean_ns: f64) -> u64 {
        let part = ((self.rng.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        (-part.ln() * mean_ns) as u64 + 1_000
    }

    /// CPU time until it sleeps.
    pub fn left_ns(&self, task: Task) -> u64 {
        match self.waits_for_disk {
            true => self.slots[task - self.first].burst_ns,
            false => u64::MAX,
        }
    }

    /// The process ran for this long.
    pub fn run(&mut self, task: Task, ns: u64) {
        if self.waits_for_disk {
            let slot = &mut self.slots[task - self.first];
            slot.burst_ns -= ns;
            slot.file_ns = slot.file_ns.saturating_sub(ns);
        }
    }

    /// The process begins to wait for the disk; if its file is done, as the next compiler of its slot. The scheduler must
    /// have put it to sleep before.
    pub fn waits(&mut self, task: Task, scheduler: &mut Scheduler, now_ns: u64) {
        let nth = task - self.first;
        self.slots[nth].burst_ns = self.draw(BURST_NS);
        if self.slots[nth].file_ns == 0 {
            self.slots[nth].file_ns = self.draw(FILE_NS);
            scheduler.replace(task, CREDIT_NS, FIRST_SLICE_TICKS, now_ns);
        }
        self.disk_free_ns = self.disk_free_ns.max(now_ns) + self.draw(DISK_NS);
        self.wakes.push(Reverse((self.disk_free_ns, nth)));
    }

    /// When the disk is done with the next wait.
    pub fn wakes_at_ns(&self) -> Option<u64> {
        self.wakes.peek().map(|&Reverse((at_ns, _))| at_ns)
    }

    /// The process that waited for it.
    pub fn wakes(&mut self) -> Option<Task> {
        self.wakes
            .pop()
            .map(|Reverse((_, nth))| self.slots[nth].task)
    }
}
