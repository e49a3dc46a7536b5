//! One case: starts all programs, takes a snapshot when the first byte has come and another at the end of its time, and
//! reports the difference.
//!
//! The sender and all that a network card would do have the first core; the receiver and the loops the second one.
//! `init.sh` has made the two network namespaces.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::proc::{self, IP, Senders};

const PORT: u16 = 5_301;
const SENDER: &str = "rxs";
const RECEIVER: &str = "rxr";
const RECEIVER_ADDRESS: &str = "10.77.0.2";
/// Masks of taskset(1).
const FIRST_CORE: &str = "1";
const SECOND_CORE: &str = "2";
const BOTH_CORES: &str = "3";
const NOBODYS_PORT: &str = "9";
/// Interval at which the case checks whether something has begun or ended.
const POLL: Duration = Duration::from_millis(20);
/// Time limit for anything to begin or to end; after that the case fails. An emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is done for the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Help {
    /// Nothing.
    None,
    /// `receive guard`, for somebody else: its scheduler without its rule.
    Scheduler,
    /// `receive guard`.
    Guard,
}

/// Parameters of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Name of the question that it belongs to.
    pub name: String,
    /// Preemption of the kernel, as debugfs' sched/preempt names it.
    pub preempt: String,
    /// Base slice of the scheduler, microseconds.
    pub slice_us: u64,
    /// Loops beside the receiver.
    pub loops: u32,
    /// Receive buffer of the receiver.
    pub buffer_bytes: usize,
    /// Most bytes that one receive call takes.
    pub call_bytes: usize,
    /// What is done for the receiver.
    pub help: Help,
    /// Length of the measurement.
    pub seconds: u64,
}

impl Case {
    /// Question, preemption, slice, loops and help, such as `guard/lazy/1400/10/guard`.
    pub fn label(&self) -> String {
        let help = serde_json::to_string(&self.help).unwrap_or_default();
        let help = help.trim_matches('"');
        let Case {
            name,
            preempt,
            slice_us,
            loops,
            ..
        } = self;
        format!("{name}/{preempt}/{slice_us}/{loops}/{help}")
    }
}

/// Results of a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its parameters.
    pub case: Case,
    /// Length of the measurement by the clock of the guest, microseconds.
    pub window_us: u64,
    /// Bytes that the receiver got.
    pub received_bytes: u64,
    /// CPU time of the receiver.
    pub receiver_us: u64,
    /// CPU time of all loops together.
    pub loops_us: u64,
    /// CPU time of `receive guard`, on whichever core.
    pub guard_us: u64,
    /// Counters of the sender's namespace.
    pub senders: Senders,
    /// The last page of `receive watch` within the measurement.
    pub watched: Watched,
    /// What `receive guard` counted; `null` without one.
    pub turns: serde_json::Value,
}

/// The figures of the receiver in a page of `receive watch --json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// T_wait.
    pub to_tcp: [u64; 6],
    /// T_wait of the segments that waited behind the lock.
    pub backlogged: [u64; 6],
    /// Segments that were retransmitted needlessly.
    pub again: u64,
    /// Segments that were not measured.
    pub unmeasured: u64,
    /// How the receiver lost its core.
    pub core: Core,
}

/// Part of [`Watched`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Core {
    /// With the lock.
    pub lost_owning: u64,
    /// Without.
    pub lost_free: u64,
    /// For how long, with the lock.
    pub off_owning: [u64; 6],
}

/// A child process, killed when dropped.
#[derive(Debug)]
struct Running {
    child: Child,
    what: String,
}

impl Running {
    /// Starts it on a core, with its output in files of /tmp.
    fn start(core: &str, words: &[&str], out: &Path) -> Result<Running> {
        let what = words.join(" ");
        let file = |path: &Path| File::create(path).doing(|| path.display().to_string());
        let child = Command::new("taskset")
            .arg(core)
            .args(words)
            .stdin(Stdio::null())
            .stdout(file(out)?)
            .stderr(file(&out.with_extension("err"))?)
            .spawn()
            .doing(|| what.clone())?;
        Ok(Running { child, what })
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until its output in this file contains a word. It must not end before.
    fn says(&mut self, path: &Path, word: &str) -> Result<()> {
        let what = format!("{}: '{word}'", self.what);
        let said = || fs::read_to_string(path).is_ok_and(|text| text.contains(word));
        wait_until(&what, || {
            let ended = self.child.try_wait().doing(|| what.clone())?;
            if ended.is_some() && !said() {
                let err = fs::read_to_string(path.with_extension("err")).unwrap_or_default();
                let why = err.trim().replace('\n', " | ");
                return Err(LabError::Setup(format!("{}: {why}", self.what)));
            }
            Ok(said())
        })
    }

    /// Ends it as Ctrl-C does.
    fn stop(&mut self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            kill_process(pid, Signal::INT).doing(|| self.what.clone())?;
        }
        self.ends()
    }

    fn ends(&mut self) -> Result<()> {
        let what = self.what.clone();
        wait_until(&what, || {
            Ok(self.child.try_wait().doing(|| what.clone())?.is_some())
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > end {
            let what = format!("{what}: nothing came for {} s", PATIENCE.as_secs());
            return Err(LabError::Setup(what));
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// The files of a case, which the next one overwrites.
struct Files;

impl Files {
    fn out(name: &str) -> PathBuf {
        Path::new("/tmp").join(name).with_extension("out")
    }

    fn err(name: &str) -> PathBuf {
        Files::out(name).with_extension("err")
    }
}

struct Snapshot {
    at: Instant,
    received_bytes: u64,
    receiver_us: u64,
    loops_us: u64,
    guard_us: u64,
}

/// The processes of a case.
struct Processes {
    loops: Vec<Running>,
    watch: Running,
    guard: Option<Running>,
    receiver: Running,
    count: PathBuf,
}

impl Processes {
    fn start(case: &Case, own: &str) -> Result<Processes> {
        let port = PORT.to_string();
        let host = |name: &str, core: &str, rest: &[&str]| -> Result<Running> {
            let words = [&["ackpace-host", "receive", name, "--json"], rest].concat();
            let mut running = Running::start(core, &words, &Files::out(name))?;
            running.says(&Files::err(name), "Ctrl-C ends it")?;
            Ok(running)
        };
        let watch = host("watch", FIRST_CORE, &["--port", &port])?;
        // It runs where it is woken, as it would elsewhere.
        let guard = |rest: &[&str]| host("guard", BOTH_CORES, rest).map(Some);
        let guard = match case.help {
            Help::None => None,
            Help::Scheduler => guard(&["--port", NOBODYS_PORT])?,
            Help::Guard => guard(&["--port", &port])?,
        };
        let count = PathBuf::from("/tmp/count");
        let _ = fs::remove_file(&count);
        let (call, buffer) = (case.call_bytes.to_string(), case.buffer_bytes.to_string());
        let words = [
            IP,
            "netns",
            "exec",
            RECEIVER,
            own,
            "receive",
            "--port",
            &port,
            "--call-bytes",
            &call,
            "--buffer-bytes",
            &buffer,
            "--count",
            "/tmp/count",
        ];
        let mut receiver = Running::start(SECOND_CORE, &words, &Files::out("receiver"))?;
        receiver.says(&Files::out("receiver"), "listening")?;
        // The loops start last, since any later process would have to wait for the core.
        let spin = |nth| {
            Running::start(
                SECOND_CORE,
                &[own, "spin"],
                &Files::out(&format!("spin{nth}")),
            )
        };
        let loops = (0..case.loops).map(spin).collect::<Result<_>>()?;
        Ok(Processes {
            loops,
            watch,
            guard,
            receiver,
            count,
        })
    }

    fn snapshot(&self) -> Snapshot {
        let count = fs::read(&self.count).unwrap_or_default();
        let count = count.first_chunk().copied().map(u64::from_ne_bytes);
        Snapshot {
            at: Instant::now(),
            received_bytes: count.unwrap_or(0),
            receiver_us: proc::ran_us(self.receiver.pid()),
            loops_us: self.loops.iter().map(|one| proc::ran_us(one.pid())).sum(),
            guard_us: self.guard.as_ref().map_or(0, |one| proc::ran_us(one.pid())),
        }
    }

    /// The last page of `receive watch` so far.
    fn page(&self) -> Result<Watched> {
        let path = Files::out("watch");
        let text = fs::read_to_string(&path).doing(|| path.display().to_string())?;
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let last = whole.lines().next_back().unwrap_or_default();
        watched(last)
            .ok_or_else(|| LabError::Setup(format!("not a page of receive watch: '{last}'")))
    }
}

/// The receiver in a page.
fn watched(page: &str) -> Option<Watched> {
    let page: serde_json::Value = serde_json::from_str(page).ok()?;
    let receivers = page["receivers"].as_array()?;
    let is_local = |one: &&serde_json::Value| one["side"] == "local" && !one["pid"].is_null();
    serde_json::from_value(receivers.iter().find(is_local)?.clone()).ok()
}

/// Runs a case.
///
/// # Errors
/// What could not be started, did not begin, or did not end.
pub fn run(case: &Case) -> Result<Outcome> {
    set("preempt", &case.preempt)?;
    set("base_slice_ns", &(case.slice_us * 1_000).to_string())?;
    let own = std::env::current_exe().doing(|| "its own path".to_owned())?;
    let own = own.display().to_string();
    let mut processes = Processes::start(case, &own)?;
    let before = Senders::of(SENDER)?;
    let (to, seconds) = (
        format!("{RECEIVER_ADDRESS}:{PORT}"),
        (case.seconds + 1).to_string(),
    );
    let words = [
        IP,
        "netns",
        "exec",
        SENDER,
        &own,
        "send",
        "--to",
        &to,
        "--seconds",
        &seconds,
    ];
    let mut sender = Running::start(FIRST_CORE, &words, &Files::out("sender"))?;
    wait_until("the first byte", || {
        Ok(processes.snapshot().received_bytes > 0)
    })?;
    let first = processes.snapshot();
    thread::sleep(Duration::from_secs(case.seconds));
    let last = processes.snapshot();
    let watched = processes.page()?;
    let senders = Senders::of(SENDER)?.since(before);
    // Without the loops, the rest of the data arrives sooner.
    processes.loops.clear();
    sender.ends()?;
    processes.receiver.ends()?;
    processes.watch.stop()?;
    Ok(Outcome {
        case: case.clone(),
        window_us: (last.at - first.at).as_micros() as u64,
        received_bytes: last.received_bytes - first.received_bytes,
        receiver_us: last.receiver_us - first.receiver_us,
        loops_us: last.loops_us - first.loops_us,
        guard_us: last.guard_us - first.guard_us,
        senders,
        watched,
        turns: turns(&mut processes.guard)?,
    })
}

fn turns(guard: &mut Option<Running>) -> Result<serde_json::Value> {
    let Some(guard) = guard else {
        return Ok(serde_json::Value::Null);
    };
    guard.stop()?;
    let path = Files::out("guard");
    let text = fs::read_to_string(&path).doing(|| path.display().to_string())?;
    serde_json::from_str(&text)
        .map_err(|error| LabError::Setup(format!("receive guard: {error}: '{text}'")))
}

fn set(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/sys/kernel/debug/sched").join(name);
    fs::write(&path, value).doing(|| format!("{value} to {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_is_found_in_a_page() {
        let one = |side: &str, pid: &str, first: u64| {
            format!(
                "{{\"side\":\"{side}\",\"pid\":{pid},\"to_tcp\":[{first},0,0,0,0,7],\"backlogged\":[0,0,0,0,0,7],\"again\":1,\
                 \"unmeasured\":2,\"core\":{{\"lost_owning\":3,\"lost_free\":4,\"off_owning\":[0,0,3,0,0,0],\"more\":0}}}}"
            )
        };
        let page = format!(
            "{{\"receivers\":[{},{}]}}",
            one("peer", "8", 1),
            one("local", "9", 5)
        );
        let seen = watched(&page).expect("a receiver");
        assert_eq!(seen.to_tcp, [5, 0, 0, 0, 0, 7]);
        assert_eq!((seen.again, seen.unmeasured), (1, 2));
        assert_eq!((seen.core.lost_owning, seen.core.lost_free), (3, 4));
        let unread = format!("{{\"receivers\":[{}]}}", one("local", "null", 5));
        assert_eq!(watched(&unread), None, "nobody reads");
        assert_eq!(watched("{"), None);
    }
}
