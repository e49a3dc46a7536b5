//! Priorities where a worker and the threads that help it share a core (sched(7)), and whether a thread slept.

use std::cell::Cell;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use ackpace_core::units;

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

    /// Begins a job.
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

/// Whether a worker slept in its turn while it read a file: then a call that took long has waited for a page. Else it lost its
/// processor, which a hypervisor takes for milliseconds, or slept for the lock of its socket, which who asks for TCP_INFO of all
/// sockets (sock_diag(7), `ss -i`) may hold for as long.
#[derive(Debug, Default)]
pub struct Sleeps {
    /// The turn that was last looked at.
    turn: Cell<Option<units::Instant>>,
    /// What the thread had used by its start.
    before: Cell<Option<Usage>>,
}

impl Sleeps {
    /// What follows belongs to the turn that began then. Costs a system call once a turn.
    pub fn begin(&self, turn: units::Instant) {
        if self.turn.replace(Some(turn)) != Some(turn) {
            self.before.set(usage());
        }
    }

    /// Whether the thread has slept and read since, or since it was last asked. Where the kernel does not tell, it has. What
    /// is read through a daemon or from a file server, so not `on_device`, is not counted: then a sleep is enough.
    pub fn take_any(&self, on_device: bool) -> bool {
        let now = usage();
        let before = self.before.replace(now);
        let Some((before, now)) = before.zip(now) else {
            return true;
        };
        before.has_waited_for_reads(&now, on_device && *READS_ARE_COUNTED)
    }
}

/// What a thread has used so far (getrusage(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    /// How often it gave up its processor to wait (`ru_nvcsw`).
    sleeps: u64,
    /// What it read from devices, in blocks (`ru_inblock`): a page that is missing is read by who waits for it.
    read_blocks: u64,
}

/// Whether the kernel counts what is read (CONFIG_TASK_IO_ACCOUNTING): only then it has this file.
static READS_ARE_COUNTED: LazyLock<bool> = LazyLock::new(|| Path::new("/proc/self/io").exists());

impl Usage {
    /// Whether the thread has slept until `now`, and has read meanwhile if that is counted.
    fn has_waited_for_reads(&self, now: &Usage, reads_are_counted: bool) -> bool {
        let has_read = self.read_blocks != now.read_blocks;
        self.sleeps != now.sleeps && (has_read || !reads_are_counted)
    }
}

/// What the calling thread has used.
fn usage() -> Option<Usage> {
    // SAFETY: all fields are integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct lives until the call returns.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    (result == 0).then_some(Usage {
        sleeps: usage.ru_nvcsw.unsigned_abs(),
        read_blocks: usage.ru_inblock.unsigned_abs(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_waited_for_a_page_if_it_slept_and_has_read() {
        let usage = |sleeps, read_blocks| Usage {
            sleeps,
            read_blocks,
        };
        let before = usage(7, 100);
        for (now, counted, waited) in [
            (usage(7, 100), true, false),
            (usage(8, 100), true, false), // for the lock of its socket
            (usage(7, 108), true, false), // it has read ahead
            (usage(8, 108), true, true),
            (usage(8, 100), false, true), // nobody knows
            (usage(7, 100), false, false),
        ] {
            let found = before.has_waited_for_reads(&now, counted);
            assert_eq!(found, waited, "{now:?}, {counted}");
        }
    }

    #[test]
    fn the_kernel_counts_the_sleeps_of_a_thread_and_a_turn_begins_anew() {
        let before = usage().expect("Linux has it");
        std::thread::sleep(Duration::from_millis(1));
        let after = usage().expect("Linux has it");
        assert!(after.sleeps > before.sleeps);
        assert!(before.has_waited_for_reads(&after, false));
        let sleeps = Sleeps::default();
        sleeps.begin(units::Instant { us: 7 });
        let begun = sleeps.before.get();
        std::thread::sleep(Duration::from_millis(1));
        sleeps.begin(units::Instant { us: 7 });
        assert_eq!(sleeps.before.get(), begun, "it is the same turn");
        assert_eq!(
            sleeps.take_any(true),
            !*READS_ARE_COUNTED,
            "it has read nothing"
        );
        std::thread::sleep(Duration::from_millis(1));
        assert!(sleeps.take_any(false), "a daemon may have read");
        sleeps.begin(units::Instant { us: 8 });
        assert_ne!(sleeps.before.get(), begun);
    }

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
