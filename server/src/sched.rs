//! Who runs first where a worker and the threads that help it share a core (sched(7)).

use std::time::{Duration, Instant};

/// For threads that wake often and work little, such as those that wait for a disk: SCHED_BATCH never
/// interrupts others by waking up, so that a worker ends its turn first.
///
/// A hint that needs no privilege; where it is refused, nothing is lost but the last millisecond of a latency.
pub fn give_way() {
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct lives until the call returns; 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &no_priority) };
}

/// For threads whose jobs may be long, such as reading a large directory: whoever waits for them
/// waits for a disk anyway, and a worker must neither be interrupted in a turn nor wait for its own. The low weight
/// gives way to a worker that wakes.
pub fn be_patient() {
    const NICE: i32 = 10;
    give_way();
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}

/// How a patient thread keeps its long jobs from being felt. A worker that the scheduler interrupted
/// for us, in the middle of a turn, would wait until our time slice ends, which is milliseconds; so we
/// offer the core again and again (sched_yield(2)). Where nobody waits for it, that costs next to nothing.
pub struct Breath {
    since: Instant,
}

impl Breath {
    /// Longest work without an offer: eight threads in a row stay below a millisecond.
    const WORK: Duration = Duration::from_micros(50);

    /// The job begins.
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
        // SAFETY: only asks; 0 is the calling thread.
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
