//! Priorities where a worker and the threads that help it share a core (sched(7)).

use std::time::{Duration, Instant};

/// For threads that wake often and work little, such as those that wait for a disk: under SCHED_BATCH they never
/// preempt others by waking up, so that a worker ends its turn first.
///
/// A hint that needs no privilege; where it is refused, only the last millisecond of a latency is lost.
pub fn give_way() {
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct lives until the call returns; 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &no_priority) };
}

/// For threads whose jobs may be long, such as reading a large directory. Their clients wait for a disk anyway, and a
/// worker must neither be preempted in a turn nor wait for the core. The low weight lets a worker that wakes preempt
/// them.
///
/// But such a thread may lose its core while it owns a lock for which a worker waits, such as that of the address space
/// (mmap(2)). It comes back when the others have had their share, which takes in proportion to its slice over its
/// weight: 28 ms for each task beside it with nice 10 and the kernel's slice of 2.8 ms. With this slice and weight it
/// is 3 ms.
pub fn be_patient() {
    const NICE: i32 = 5;
    const SLICE: Duration = Duration::from_millis(1);
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: NICE,
        sched_priority: 0,
        sched_runtime: SLICE.as_nanos() as u64, // from Linux 6.12 on; before, the kernel ignores it
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the struct lives until the call returns and tells its own size; 0 is the calling thread.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result != 0 {
        // A filter of system calls may let the older ones pass.
        give_way();
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    }
}

/// Keeps the long jobs of such a thread from delaying workers. A worker that the scheduler preempted for this thread,
/// in the middle of a turn, would wait until its time slice ends, which is milliseconds. So it yields the core again
/// and again (sched_yield(2)). Where nobody waits for the core, that costs next to nothing.
pub struct Breath {
    since: Instant,
}

impl Breath {
    /// Longest work between two yields: eight threads in a row stay below a millisecond.
    const WORK: Duration = Duration::from_micros(50);

    pub fn begin() -> Breath {
        Breath {
            since: Instant::now(),
        }
    }

    /// To be called every few microseconds of a job.
    pub fn take(&mut self) {
        if self.since.elapsed() >= Breath::WORK {
            std::thread::yield_now();
            self.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patient_thread_is_a_batch_thread_and_its_parent_is_not() {
        // SAFETY: it only queries; 0 is the calling thread.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        let before = policy();
        let patient = std::thread::spawn(move || {
            be_patient();
            policy()
        });
        assert_eq!(patient.join().ok(), Some(libc::SCHED_BATCH));
        assert_eq!(policy(), before);
    }
}
