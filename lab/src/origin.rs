//! The origin of a gateway: an nginx on the clients' core that serves the place's files. Its log tells what was fetched from
//! it, and when.

use crate::metrics::Values;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_disk::LoggedRead;
use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TEMPLATE: &str = include_str!("../peers/origin.conf");
/// Time limit for it to listen.
const START_MAX: Duration = Duration::from_secs(10);
/// Time in which it notices that a gateway has ended, and logs what it had sent to it.
const LOGGED_AFTER: Duration = Duration::from_millis(200);

/// A running origin; killed when dropped.
pub struct Origin {
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    log: PathBuf,
    /// Where the round's lines begin in the log.
    mark_bytes: AtomicU64,
}

/// A response of the origin that has ended.
#[derive(Clone, Debug, PartialEq)]
struct Fetch {
    began_us: u64,
    ended_us: u64,
    from_bytes: u64,
    len_bytes: u64,
    file: String,
}

impl Origin {
    /// Starts it for the files below `root`; `place` moves the command to its core and network.
    pub fn start(
        address: SocketAddr,
        root: &Path,
        scratch: &Path,
        place: impl FnOnce(Command) -> Command,
        listens: impl Fn() -> Result<bool>,
    ) -> Result<Self> {
        let config = scratch.join("origin.conf");
        let log = scratch.join("origin-fetches.log");
        File::create(&log).doing(|| log.display().to_string())?; // without the lines of an earlier run
        let text = TEMPLATE
            .replace("@SCRATCH@", &scratch.to_string_lossy())
            .replace("@ROOT@", &root.to_string_lossy())
            .replace("@IP@", &address.ip().to_string())
            .replace("@PORT@", &address.port().to_string());
        std::fs::write(&config, text).doing(|| config.display().to_string())?;
        let mut command = Command::new("/usr/sbin/nginx");
        command.args(["-e", "stderr", "-c"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = place(command).spawn();
        let origin = Self {
            address,
            child: child.doing(|| "the origin (package nginx)".into())?,
            log,
            mark_bytes: AtomicU64::new(0),
        };
        let start = std::time::Instant::now();
        while !listens()? {
            if start.elapsed() > START_MAX {
                return Err(LabError::Setup("the origin does not listen".into()));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(origin)
    }

    /// A round begins: what was fetched before does not count.
    pub fn mark(&self) {
        let len_bytes = std::fs::metadata(&self.log).map_or(0, |log| log.len());
        self.mark_bytes.store(len_bytes, Relaxed);
    }

    /// Body bytes and number of the responses that ended in these times.
    pub fn fetched(&self, since_us: u64, until_us: u64) -> Result<(u64, u64)> {
        let fetches = self.fetches()?;
        let within = fetches
            .iter()
            .filter(|fetch| (since_us..until_us).contains(&fetch.ended_us));
        Ok(within.fold((0, 0), |(bytes, number), fetch| {
            (bytes + fetch.len_bytes, number + 1)
        }))
    }

    /// The round's fetches as if they were a disk's reads.
    pub fn reads(&self) -> Result<Vec<LoggedRead>> {
        let read = |fetch: Fetch| LoggedRead {
            arrived_us: fetch.began_us,
            finished_us: fetch.ended_us,
            len_bytes: fetch.len_bytes,
            file: fetch.file,
        };
        Ok(self.fetches()?.into_iter().map(read).collect())
    }

    /// Adds the figures of a round whose gateway has ended.
    pub fn add(&self, values: &mut Values) -> Result<()> {
        std::thread::sleep(LOGGED_AFTER);
        let fetches = self.fetches()?;
        let all_bytes: u64 = fetches.iter().map(|fetch| fetch.len_bytes).sum();
        let distinct_bytes = distinct_bytes(&fetches);
        values.set("origin_bytes", all_bytes as f64);
        if distinct_bytes > 0 {
            let amplification = all_bytes as f64 / distinct_bytes as f64;
            values.set("origin_amplification", amplification);
            let peak = values.get("memory_peak_bytes");
            values.set_some(
                "memory_over_fetched",
                peak.map(|peak| peak / distinct_bytes as f64),
            );
        }
        Ok(())
    }

    fn fetches(&self) -> Result<Vec<Fetch>> {
        let text = std::fs::read(&self.log).doing(|| self.log.display().to_string())?;
        let from = (self.mark_bytes.load(Relaxed) as usize).min(text.len());
        let text = String::from_utf8_lossy(&text[from..]);
        Ok(text.lines().filter_map(fetch).collect())
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            // The master ends its worker.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// The clock of the log, in us.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_micros() as u64)
}

/// A line of the log. Its times have whole ms.
fn fetch(line: &str) -> Option<Fetch> {
    let mut words = line.splitn(4, ' ');
    let ended_us = (words.next()?.parse::<f64>().ok()? * 1e6).round() as u64;
    let took_us = (words.next()?.parse::<f64>().ok()? * 1e6).round() as u64;
    let len_bytes = words.next()?.parse().ok()?;
    let (range, file) = words.next()?.split_once("\" /")?;
    let from = range
        .trim_start_matches('"')
        .strip_prefix("bytes ")
        .and_then(|range| range.split_once('-')?.0.parse().ok());
    Some(Fetch {
        began_us: ended_us.saturating_sub(took_us),
        ended_us,
        from_bytes: from.unwrap_or(0),
        len_bytes,
        file: file.to_owned(),
    })
}

/// Bytes of the files that were fetched at least once.
fn distinct_bytes(fetches: &[Fetch]) -> u64 {
    let mut spans: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
    for fetch in fetches {
        let end_bytes = fetch.from_bytes + fetch.len_bytes;
        let of_file = spans.entry(&fetch.file).or_default();
        of_file.push((fetch.from_bytes, end_bytes));
    }
    let mut distinct_bytes = 0;
    for of_file in spans.values_mut() {
        of_file.sort_unstable();
        let mut reached_bytes = 0;
        for (from_bytes, end_bytes) in of_file.iter() {
            distinct_bytes += end_bytes.saturating_sub(reached_bytes.max(*from_bytes));
            reached_bytes = reached_bytes.max(*end_bytes);
        }
    }
    distinct_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_log_is_a_fetch() {
        let part = fetch("1700000000.250 0.050 4096 \"bytes 8192-16383/90000\" /a-00001.bin");
        let expected = Fetch {
            began_us: 1_700_000_000_200_000,
            ended_us: 1_700_000_000_250_000,
            from_bytes: 8192,
            len_bytes: 4096,
            file: "a-00001.bin".into(),
        };
        assert_eq!(part, Some(expected));
        let whole = fetch("1700000000.250 0.050 77 \"-\" /b.bin").unwrap();
        assert_eq!((whole.from_bytes, whole.len_bytes), (0, 77));
        assert_eq!(fetch("1700000000.250 0.0"), None, "half a line");
    }

    #[test]
    fn bytes_that_were_fetched_twice_count_once() {
        let fetch = |file: &str, from_bytes, len_bytes| Fetch {
            began_us: 0,
            ended_us: 0,
            from_bytes,
            len_bytes,
            file: file.into(),
        };
        let all = [
            fetch("a", 100, 100),
            fetch("a", 0, 120),
            fetch("a", 150, 10),
            fetch("a", 300, 1),
            fetch("b", 100, 5),
        ];
        assert_eq!(distinct_bytes(&all), 206);
    }
}
