//! Who runs first where a worker and the threads that help it share a core (sched(7)).

/// For threads whose jobs may be long, such as reading a large directory: whoever waits for them
/// waits for a disk anyway, and a worker must neither be interrupted in a turn nor wait for its own.
/// SCHED_BATCH never interrupts others by waking up; the lowest weight gives way to a worker that wakes,
/// and still leaves eight such threads a tenth of a core that is busy all the time.
///
/// A hint that needs no privilege; where it is refused, nothing is lost but the last millisecond of a latency.
pub fn be_patient() {
    const NICE: i32 = 19;
    let no_priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: the struct lives until the call returns; 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &no_priority) };
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
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
