//! `ackpace-host receive guard`: a receiver that loses its core with its socket's lock is raised, and has its own nice value
//! back however the guard ends; nobody else is touched.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use ackpace_tests::{
    Outcome, Program, eventually, host, host_can, host_start, host_watch, network_apart, skip,
};

const LEDGER: &str = "/run/ackpace-host/guard.ledger";
/// Nice value of an extra turn.
const RAISED: i32 = -20;

/// One guard on a machine: one test at a time. `None`, and the test is reported as skipped, where this kernel or these
/// rights don't allow one.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ONE: Mutex<()> = Mutex::new(());
    if !host_can("receive guard") {
        return None;
    }
    Some(ONE.lock().unwrap_or_else(PoisonError::into_inner))
}

fn guard(options: &str) -> Outcome {
    host(&*format!("receive guard {options}"))
}

/// A guard that runs.
fn guarding(port: u16) -> Program {
    let guarding = host_start(&*format!("receive guard --json --port {port}"));
    guarding.err_line(&["guards port"]);
    guarding
}

/// Makes the calling thread a usual task of nice 0 on one processor, whatever the test runs as.
fn usual_on(cpu: usize) -> io::Result<()> {
    let none = libc::sched_param { sched_priority: 0 };
    // SAFETY: plain system calls about the calling thread, with arguments that live through them.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut cpus);
        let is_set = libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const none) == 0
            && libc::setpriority(libc::PRIO_PROCESS, 0, 0) == 0
            && libc::sched_setaffinity(0, size_of_val(&cpus), &raw const cpus) == 0;
        if is_set {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// Whether this is true within this time, where only the kernel decides that.
fn may(within: Duration, is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + within;
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        thread::sleep(Duration::from_millis(100)); // between two looks
    }
    false
}

fn nice_of(tid: u32) -> i32 {
    // SAFETY: no pointers.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, tid) }
}

/// A process that does nothing, with this nice value.
struct Sleeper(Child);

impl Sleeper {
    fn new(nice: i32) -> Sleeper {
        let mut sleep = Command::new("sleep");
        sleep.arg("600");
        // SAFETY: plain system calls, which a child may make between fork and exec.
        unsafe {
            sleep.pre_exec(move || {
                usual_on(0)?;
                match libc::setpriority(libc::PRIO_PROCESS, 0, nice) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            })
        };
        Sleeper(sleep.spawn().expect("it starts"))
    }

    fn nice(&self) -> i32 {
        nice_of(self.0.id())
    }

    /// When it started, as a guard writes it: ticks of 10 ms, in nanoseconds.
    fn started_ns(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it lives");
        let field = stat
            .rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(19));
        field
            .and_then(|ticks| ticks.parse::<u64>().ok())
            .expect("a number")
            * 10_000_000
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A kernel without sched_ext is told from one that refuses the program; what is left behind is nothing.
#[test]
fn exact_is_refused_where_the_kernel_has_no_sched_ext() {
    let Some(_alone) = alone() else { return };
    if fs::exists("/sys/kernel/sched_ext").unwrap_or(true) {
        return skip("this kernel has sched_ext; receive/guest/ runs the scheduler");
    }
    let refused = guard("--exact --port 80");
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let says = "has no sched_ext (CONFIG_SCHED_CLASS_EXT)";
    assert!(refused.err.contains(says), "{refused:?}");
    assert!(refused.err.contains("without --exact"), "{refused:?}");
    let told = host("doctor").out;
    assert!(told.contains(says), "{told}");
    assert_eq!(guard("--exact --dry-run").code, Some(2));
    // It holds no lock, and the other form starts.
    guarding(9).end(libc::SIGTERM);
}

#[test]
fn what_a_killed_guard_left_is_undone_and_nobody_else_is_touched() {
    let Some(_one) = alone() else { return };
    let sleepers = [RAISED, 3, RAISED, RAISED, 7].map(Sleeper::new);
    let [raised, paying, reused, renamed, other] = &sleepers;
    let line = |of: &Sleeper, started_ns: u64, rest: &str| {
        let pid = of.0.id();
        format!("{pid} {pid} {started_ns} {rest}\n")
    };
    // Their own value, the one before the last change, and the one after it.
    let left = [
        line(raised, raised.started_ns(), "2 2 -20"),
        line(paying, paying.started_ns(), "0 -20 3"),
        line(reused, reused.started_ns() + 50_000_000, "0 0 -20"),
        line(renamed, renamed.started_ns(), "0 0 3"),
        line(other, other.started_ns(), "0 -20 3"),
        "4194303 4194303 1 0 0 -20\n".to_owned(),
    ];
    fs::create_dir_all("/run/ackpace-host").expect("root");
    fs::write(LEDGER, left.concat()).expect("root");
    let restored = guard("--restore");
    assert!(
        restored.success && restored.err.contains("2 threads"),
        "{}",
        restored.err
    );
    assert_eq!((raised.nice(), paying.nice()), (2, 0));
    assert_eq!(reused.nice(), RAISED, "another thread with its number");
    assert_eq!(renamed.nice(), RAISED, "not what a guard has set");
    assert_eq!(other.nice(), 7, "somebody else has set it since");
    let again = guard("--restore");
    assert!(
        again.success && again.err.contains("0 threads"),
        "{}",
        again.err
    );
}

#[test]
fn a_receiver_that_loses_its_core_with_the_lock_is_raised_and_has_its_own_value_back() {
    let Some(_one) = alone() else { return };
    // Segments of an Ethernet make a long backlog, in which a kernel without preemption offers the core.
    if !network_apart() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let mut guarding = guarding(address.port());
    let watching = host_watch(address.port());

    let second = guard("--port 1");
    assert_eq!(second.code, Some(2), "{}", second.err);
    assert!(
        second.err.contains("guards this machine already"),
        "{}",
        second.err
    );

    // One processor: a receiver of long calls beside loops; the sender is elsewhere if there is an elsewhere.
    let is_over = Arc::new(AtomicBool::new(false));
    let mut busy = Vec::new();
    for _ in 0..3 {
        let is_over = Arc::clone(&is_over);
        busy.push(thread::spawn(move || {
            usual_on(0).expect("root");
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        }));
    }
    let mut sender = TcpStream::connect(address).expect("it listens");
    let (mut receiver, _) = listener.accept().expect("the sender");
    let over = Arc::clone(&is_over);
    let sends = thread::spawn(move || {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        usual_on(cpus - 1).expect("root");
        let data = vec![7; 1 << 20];
        while !over.load(Ordering::Relaxed) && sender.write_all(&data).is_ok() {}
    });
    let (tell, told) = std::sync::mpsc::channel();
    let receives = thread::spawn(move || {
        usual_on(0).expect("root");
        // SAFETY: no pointers.
        let _ = tell.send(unsafe { libc::gettid() } as u32);
        let mut buffer = vec![0; 4 << 20];
        while receiver.read(&mut buffer).is_ok_and(|read| read > 0) {}
        // SAFETY: no pointers.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    });
    let tid = told.recv().expect("it runs");
    let was_lost = may(Duration::from_secs(60), || {
        let page = watching.last_line();
        let times = page.split("\"lost_owning\":").nth(1);
        let times = times.and_then(|text| text.split(',').next()?.parse::<u64>().ok());
        times.is_some_and(|times| times > 0)
    });
    guarding.signal(libc::SIGTERM);
    guarding.wait();
    let counts = guarding.out();
    assert_eq!(nice_of(tid), 0, "its own value: {counts}");
    if was_lost {
        let turns = counts.contains("\"turns\":") && !counts.contains("\"turns\":0");
        assert!(turns, "{counts}");
    } else {
        skip("in a minute this kernel took no core from a thread that had its socket's lock");
    }
    is_over.store(true, Ordering::Relaxed);
    sends.join().expect("no panic");
    assert_eq!(receives.join().expect("no panic"), 0);
    busy.into_iter()
        .for_each(|thread| thread.join().expect("no panic"));
    eventually("nothing is left to be undone", || {
        fs::read_to_string(LEDGER).is_ok_and(|text| text.is_empty())
    });
    assert_eq!(watching.end(libc::SIGINT), Some(0));
}
