//! Watches the process: workers that sleep for a disk, memory, small requests, metrics, its end.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::findings::Findings;
use super::wrong::{Kind, Wrong};
use crate::Server;

/// A worker that sleeps for a disk this long is a finding.
const ASLEEP: Duration = Duration::from_millis(100);
/// Pause between two samples of the workers.
const SAMPLE_PAUSE: Duration = Duration::from_millis(3);
/// A request for a small file that takes this long is a finding, whatever the machine does.
const SMALL: Duration = Duration::from_secs(20);
/// How long a server may take to end after SIGTERM: longer than its own drain timeout.
const STOP: Duration = Duration::from_secs(90);
/// How long it takes at most when no client is left: shorter than its drain timeout.
const STOP_ALONE: Duration = Duration::from_secs(20);

/// Extremes that were seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extremes {
    /// The longest uninterruptible sleep of a worker.
    pub asleep_ms: u128,
    /// The largest RssAnon.
    pub memory_bytes: u64,
    /// The slowest small request; a busy machine makes them slow, too.
    pub small_ms: u128,
}

/// A sleep of a thread, as /proc/PID/task/TID/status shows it. While the count of its sleeps (voluntary_ctxt_switches)
/// stays the same it has not run, however seldom we look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sleep {
    nth: u64,
    since: Instant,
    told: bool,
}

/// The count of its sleeps, if the thread is a worker in uninterruptible sleep. A thread that a worker has just started bears
/// the worker's name until it takes its own: a thread that reads the disk may sleep for it.
fn uninterruptible(status: &str) -> Option<u64> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    if !field("Name:")?.trim_start().starts_with("worker") {
        return None;
    }
    let is_asleep = field("State:")?.trim_start().starts_with('D');
    let nth = field("voluntary_ctxt_switches:")?.trim().parse().ok()?;
    is_asleep.then_some(nth)
}

/// Watches the workers of a process until `over`.
pub fn workers(
    pid: u32,
    memory_bytes_max: u64,
    findings: &Findings,
    over: &AtomicBool,
) -> Extremes {
    let threads = threads_of(pid);
    let mut sleeps: Vec<Option<Sleep>> = vec![None; threads.len()];
    let mut seen = Extremes::default();
    let mut turn = 0u64;
    while !over.load(Ordering::Acquire) {
        for ((name, thread), sleep) in threads.iter().zip(&mut sleeps) {
            let now = Instant::now();
            let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
            let Some(nth) = uninterruptible(&status) else {
                *sleep = None;
                continue;
            };
            let own = sleep.filter(|sleep| sleep.nth == nth);
            let own = sleep.insert(own.unwrap_or(Sleep {
                nth,
                since: now,
                told: false,
            }));
            let lasted = now - own.since;
            seen.asleep_ms = seen.asleep_ms.max(lasted.as_millis());
            if lasted > ASLEEP && !own.told {
                own.told = true;
                let place = fs::read_to_string(thread.join("stack")).unwrap_or_default();
                let others = others_of(pid, thread);
                let text = format!(
                    "{name} sleeps for a disk for more than {} ms (state D), in\n{place}{others}",
                    lasted.as_millis()
                );
                findings.add(
                    &Wrong::new(Kind::Asleep, text),
                    "all clients of this worker wait",
                );
            }
        }
        if turn % 32 == 0 {
            let bytes = anonymous_bytes(pid).unwrap_or(0);
            if bytes > memory_bytes_max && seen.memory_bytes <= memory_bytes_max {
                let text = format!(
                    "RssAnon is {bytes} bytes; `ackpace limits` promises {memory_bytes_max}"
                );
                findings.add(&Wrong::new(Kind::Memory, text), "");
            }
            seen.memory_bytes = seen.memory_bytes.max(bytes);
        }
        turn += 1;
        std::thread::sleep(SAMPLE_PAUSE);
    }
    seen
}

/// The workers: their names and their directories in /proc.
fn threads_of(pid: u32) -> Vec<(String, PathBuf)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let paths = tasks
        .into_iter()
        .flatten()
        .flatten()
        .map(|task| task.path());
    let named = paths.filter_map(|path| {
        let name = fs::read_to_string(path.join("comm")).ok()?;
        name.starts_with("worker")
            .then(|| (name.trim_end().to_owned(), path))
    });
    named.collect()
}

/// Where all other threads are that sleep for a disk or have work, with their names and states: one of them may hold the lock that
/// this one waits for.
fn others_of(pid: u32, this: &Path) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let paths = tasks.into_iter().flatten().flatten();
    let others = paths.map(|task| task.path()).filter(|path| path != this);
    let told = others.filter_map(|path| {
        let status = fs::read_to_string(path.join("status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let (name, state) = (field("Name:")?.trim(), field("State:")?.trim());
        let stack = fs::read_to_string(path.join("stack")).unwrap_or_default();
        (!state.starts_with('S')).then(|| format!("meanwhile {name}: {state}, in\n{stack}"))
    });
    told.collect()
}

fn anonymous_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))?;
    line.trim()
        .strip_suffix(" kB")?
        .parse::<u64>()
        .ok()
        .map(|kib| kib * 1024)
}

/// The memory bound in the output of `ackpace limits`, in bytes.
pub fn promised_bytes(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find(|line| line.contains("in all, at worst"))?;
    let mut words = line.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()? {
        "KiB" => 1u64 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    // The output is rounded to a tenth.
    Some(((number + 0.05) * unit as f64) as u64)
}

/// Requests a small file all the time, over several connections, and returns the time of the slowest response.
pub fn small(
    address: SocketAddr,
    findings: &Findings,
    over: &AtomicBool,
    dead: &AtomicBool,
) -> u128 {
    let mut slowest = Duration::ZERO;
    let mut streams: Vec<Option<TcpStream>> = vec![None, None, None];
    let mut nth = 0;
    while !over.load(Ordering::Acquire) && !dead.load(Ordering::Acquire) {
        nth = (nth + 1) % streams.len();
        let begun = Instant::now();
        let answered = ask_small(address, &mut streams[nth]);
        let took = begun.elapsed();
        if answered.is_err() {
            streams[nth] = None;
        }
        if took >= SMALL && slowest < SMALL {
            let text = format!("a small file took {took:?}: {answered:?}");
            findings.add(&Wrong::new(Kind::Stall, text), "");
        }
        slowest = slowest.max(took);
        std::thread::sleep(Duration::from_millis(10));
    }
    slowest.as_millis()
}

fn ask_small(address: SocketAddr, stream: &mut Option<TcpStream>) -> io::Result<()> {
    let stream = match stream {
        Some(stream) => stream,
        None => stream.insert(TcpStream::connect_timeout(&address, SMALL)?),
    };
    stream.set_read_timeout(Some(SMALL))?;
    stream.write_all(b"GET /probe HTTP/1.1\r\nHost: t\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.ends_with(b"\r\n\r\nprobe") {
        match stream.read(&mut piece)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    Ok(())
}

/// What the server has said last.
pub fn last_lines(server: &Server) -> String {
    let err = server.err();
    let lines: Vec<&str> = err.lines().rev().take(12).collect();
    let lines: Vec<&str> = lines.into_iter().rev().collect();
    format!("its last words:\n{}", lines.join("\n"))
}

/// Stops the server, which no client has any more.
pub fn stop(mut server: Server, findings: &Findings) {
    server.signal(libc::SIGTERM);
    let begun = Instant::now();
    let until = begun + STOP;
    let status = loop {
        match server.ended() {
            None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            status => break status,
        }
    };
    let panicked = server.err().contains("panicked");
    if status.and_then(|status| status.code()) != Some(0) || panicked {
        let text = format!("after SIGTERM: {status:?}, panicked: {panicked}");
        findings.add(&Wrong::new(Kind::Abort, text), &last_lines(&server));
        server.kill();
    }
    if begun.elapsed() > STOP_ALONE {
        let s = begun.elapsed().as_secs_f64();
        let text = format!("after SIGTERM it lived on for {s:.1} s, without a client");
        findings.add(&Wrong::new(Kind::Stall, text), &last_lines(&server));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_in_state_d_is_told_by_the_count_of_its_sleeps() {
        let status = |state: &str| {
            format!(
                "Name:\tworker-0\nState:\t{state}\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n"
            )
        };
        assert_eq!(uninterruptible(&status("D (disk sleep)")), Some(17));
        assert_eq!(uninterruptible(&status("S (sleeping)")), None);
        assert_eq!(uninterruptible(&status("R (running)")), None);
        let reader = status("D (disk sleep)").replace("worker-0", "read-0.3");
        assert_eq!(uninterruptible(&reader), None, "it was listed too early");
    }

    #[test]
    fn what_limits_promises_is_read_from_its_page() {
        let page = "  6026.3 MiB  memory_max\n  4163.7 MiB  in all, at worst (page cache and sockets are the kernel's)\n";
        assert_eq!(
            promised_bytes(page),
            Some(((4163.7 + 0.05) * 1_048_576.0) as u64)
        );
        assert_eq!(promised_bytes("nothing"), None);
    }
}
