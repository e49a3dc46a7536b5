//! WRITEs of files that are there, each by a client of its own, and a COMMIT for each whole file.

use super::Server;
use super::calls::Blocking;
use super::writer::{Content, Progress, Task, Writer};
use crate::corpus::Set;
use crate::cpu::{self, Usage};
use crate::metrics::Values;
use crate::peers::Running;
use crate::testbed::Testbed;
use crate::watch::{Watch, Work};
use crate::workloads::{RoundResult, RoundTimes, finish};
use ackpace_lab_base::error::{LabError, Result};
use std::sync::atomic::Ordering;

/// WRITEs to a set of files.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Writes {
    /// The files: one for each client, committed when it is written. Their length is a multiple of that of a WRITE.
    pub of: Set,
    /// WRITEs of each client that are under way at a time.
    pub under_way: usize,
    /// Length of a WRITE.
    pub len_bytes: u32,
    /// A file is cut to nothing before it is written again: it gets new blocks.
    pub is_cut_first: bool,
}

/// CPU time of what serves beside the contender's own processes, and of the target.
struct Beside {
    kernel: Usage,
    mount: Usage,
    target: Usage,
}

impl Beside {
    fn take(running: &Running, testbed: &Testbed) -> Result<Self> {
        let of = |pid: Option<i32>| pid.map_or_else(|| Ok(Usage::default()), cpu::usage);
        let target = testbed.instruments.target.as_ref();
        Ok(Self {
            kernel: cpu::kernel_usage()?,
            mount: of(running.mounted())?,
            target: of(target.map(|target| target.pid()))?,
        })
    }

    fn add(&self, before: &Self, gb: f64, values: &mut Values) {
        let kernel_s = self.kernel.since(&before.kernel).used_s;
        let mount_s = self.mount.since(&before.mount).used_s;
        let target_s = self.target.since(&before.target).used_s;
        let all_s = values.get("cpu_s_per_gb").map(|own| own + kernel_s / gb);
        values.set_some("written_s_per_gb", all_s);
        values.set("kernel_s_per_gb", kernel_s / gb);
        values.set("mount_s_per_gb", mount_s / gb);
        values.set("target_s_per_gb", target_s / gb);
    }
}

impl Writes {
    /// Number of clients.
    pub fn connections(&self) -> usize {
        self.of.list().len()
    }

    fn task(&self, file_bytes: u64) -> Task {
        Task {
            under_way: self.under_way,
            len_bytes: self.len_bytes,
            file_bytes,
            is_cut_first: self.is_cut_first,
        }
    }

    pub(in crate::workloads) fn run(
        &self,
        running: Running,
        testbed: &Testbed,
        times: RoundTimes,
    ) -> Result<RoundResult> {
        let server = Server::of(&running, None);
        let mut writers = Vec::new();
        let top = Blocking::connect(&server, server.mount)?.mount()?;
        let mut client = Blocking::connect(&server, server.nfs)?;
        for (path, len_bytes) in self.of.list() {
            let file = client.look_up(&top, path.trim_start_matches('/'))?;
            writers.push(Writer::connect(&server, file, self.task(len_bytes))?);
        }
        let (content, progress) = (Content::new(self.len_bytes), Progress::default());
        let mut values = std::thread::scope(|scope| {
            let (content, progress) = (&content, &progress);
            let threads = writers.into_iter();
            let threads = threads.map(|writer| scope.spawn(move || writer.run(content, progress)));
            let threads: Vec<_> = threads.collect();
            let watched = watched(&running, testbed, times, progress);
            progress.is_over.store(true, Ordering::Relaxed);
            for thread in threads {
                let ended = thread.join();
                ended.map_err(|_| LabError::Setup("a client panicked".into()))??;
            }
            watched
        })?;
        for (path, len_bytes) in self.of.list() {
            let file = client.look_up(&top, path.trim_start_matches('/'))?;
            self.check(&mut client, &server, &file, (&content, len_bytes))?;
        }
        values.set("commits", progress.commits.load(Ordering::Relaxed) as f64);
        drop(client); // a draining server would wait for it
        finish(running, testbed, &mut values)?;
        let detail = serde_json::Value::Null;
        Ok(RoundResult { values, detail })
    }

    /// Compares the file with what was written.
    fn check(
        &self,
        client: &mut Blocking,
        server: &Server,
        file: &[u8],
        (content, file_bytes): (&Content, u64),
    ) -> Result<()> {
        let mut at_bytes = 0;
        while at_bytes < file_bytes {
            let bytes = client.read(file, at_bytes, self.len_bytes)?;
            let expected = content.at(at_bytes, self.len_bytes);
            if bytes != expected {
                let what = format!("wrong bytes at {at_bytes} after they were committed");
                return Err(LabError::contender(&server.name, what));
            }
            at_bytes += u64::from(self.len_bytes);
        }
        Ok(())
    }
}

/// Measures a window after the warm-up.
fn watched(
    running: &Running,
    testbed: &Testbed,
    times: RoundTimes,
    progress: &Progress,
) -> Result<Values> {
    let counts = || {
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        (of(&progress.bytes), of(&progress.writes))
    };
    std::thread::sleep(times.warm_up);
    testbed.congestion_control_checked(running)?;
    let beside = Beside::take(running, testbed)?;
    let (watch, before) = (
        Watch::begin(running, &testbed.instruments, false)?,
        counts(),
    );
    std::thread::sleep(times.window);
    let (watched, after) = (watch.end()?, counts());
    let now = Beside::take(running, testbed)?;
    let work = Work {
        body_bytes: after.0 - before.0,
        responses: after.1 - before.1,
    };
    if work.body_bytes == 0 {
        return Err(LabError::contender(&running.name, "nothing was written"));
    }
    let mut values = watched.values(work);
    now.add(&beside, work.body_bytes as f64 / 1e9, &mut values);
    Ok(values)
}
