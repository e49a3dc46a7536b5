//! Nice values of threads that may end at any time, and whose numbers may be used again. Only threads of the usual class
//! (SCHED_OTHER) are touched.

use std::fs;
use std::io;

use super::facts::{self, Class};
use super::turns::Thread;

/// Nanoseconds of a tick of /proc (USER_HZ is 100 on all machines that Linux still runs on).
const NS_PER_TICK: u64 = 10_000_000;

/// The nice value of a thread, if it is the one meant and of the usual class.
///
/// # Errors
/// It is gone, or another one by now, or of a class that is not touched.
pub fn nice(thread: Thread) -> io::Result<i32> {
    same(thread)?;
    let scheduling = facts::scheduling(thread.tid)?;
    match scheduling.class {
        Class::Other => Ok(scheduling.nice),
        _ => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "not of the usual class",
        )),
    }
}

/// Whether an error of this file will stay: the thread is gone, or of a class that is not touched. After any other one, such as a
/// lack of descriptors or rights, the thread may still be there as it was.
pub fn is_lasting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported
    ) || error.raw_os_error() == Some(libc::ESRCH)
}

/// Sets the nice value of a thread that has `from` now. `false`: it has another one, which somebody else has set, and keeps
/// it.
///
/// # Errors
/// As [`nice`], and as setpriority(2).
pub fn set(thread: Thread, from: i32, to: i32) -> io::Result<bool> {
    if nice(thread)? != from {
        return Ok(false);
    }
    write(thread.tid, to)?;
    if let Err(error) = same(thread) {
        // It ended in between, or nobody can say. If its number is in use again already, that one had what a new thread has from its
        // parent, which is not known any more; a value that we have just written is all that can be taken back.
        let _ = write(thread.tid, from);
        return Err(error);
    }
    Ok(true)
}

fn write(tid: u32, nice: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, tid, nice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the number still is that thread's: its start time tells.
fn same(thread: Thread) -> io::Result<()> {
    let path = format!("/proc/{}/task/{}/stat", thread.pid, thread.tid);
    let started = started_ticks(&fs::read_to_string(path)?);
    match started == Some(thread.started_ns / NS_PER_TICK) {
        true => Ok(()),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Field 22 of /proc/PID/stat; the name in field 2 may hold anything.
fn started_ticks(stat: &str) -> Option<u64> {
    let behind_name = stat.rsplit_once(')')?.1;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

/// For how long a thread has run, microseconds, to a tick of the scheduler.
///
/// # Errors
/// It is gone.
pub fn ran_us(thread: Thread) -> io::Result<u64> {
    let path = format!("/proc/{}/task/{}/schedstat", thread.pid, thread.tid);
    let text = fs::read_to_string(path)?;
    let ns = text
        .split_whitespace()
        .next()
        .and_then(|ns| ns.parse::<u64>().ok());
    ns.map(|ns| ns / 1_000)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Lets the calling thread run at once when it has an event: as the weakest real-time task, which its children are not; where that
/// is refused, as a usual task of the strongest nice value. Returns whether it is real time.
pub fn become_real_time() -> bool {
    let real_time = libc::sched_param { sched_priority: 1 };
    // SAFETY: the parameters live through the call.
    let set = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const real_time,
        )
    };
    if set == 0 {
        return true;
    }
    become_usual();
    let _ = write(0, -20);
    false
}

/// Makes the calling thread a usual task.
pub(super) fn become_usual() {
    let usual = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters live through the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const usual) };
}

/// The calling thread, as the program in the kernel would tell of it.
#[cfg(test)]
pub(super) fn calling_thread() -> Thread {
    let stat = fs::read_to_string("/proc/thread-self/stat").expect("Linux");
    let tid = stat.split(' ').next().and_then(|tid| tid.parse().ok());
    Thread {
        tid: tid.expect("a number"),
        pid: std::process::id(),
        started_ns: started_ticks(&stat).expect("a start") * NS_PER_TICK + 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let rest = (3..=22)
            .map(|field: u64| field.to_string())
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(started_ticks(&format!("7 (a) b (c) {rest} 0 0")), Some(22));
        assert_eq!(started_ticks("7 (a"), None);
    }

    #[test]
    fn only_what_is_gone_or_not_touched_is_lost_for_good() {
        let of = |errno| is_lasting(&io::Error::from_raw_os_error(errno));
        assert_eq!([libc::ENOENT, libc::ESRCH].map(of), [true; 2]);
        let passing = [libc::EMFILE, libc::ENOMEM, libc::EACCES, libc::EPERM];
        assert_eq!(passing.map(of), [false; 4]);
    }

    #[test]
    fn only_the_thread_that_is_meant_is_changed() {
        let own = calling_thread();
        let was = nice(own);
        let another = Thread {
            started_ns: own.started_ns + 3 * NS_PER_TICK,
            ..own
        };
        let gone = nice(another).expect_err("the number was used again");
        assert!(is_lasting(&gone), "{gone}");
        assert!(set(another, 0, 1).is_err());
        // At idle priority, as a busy machine may run tests, nothing is touched.
        let Ok(was) = was else { return };
        assert!(
            !set(own, was + 1, 19).expect("it lives"),
            "somebody else has set it"
        );
        assert_eq!(nice(own).expect("it lives"), was);
        assert!(set(own, was, 19).expect("a weaker one is always allowed"));
        assert_eq!(nice(own).expect("it lives"), 19);
        assert!(ran_us(own).is_ok());
    }
}
