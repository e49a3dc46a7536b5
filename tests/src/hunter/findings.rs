//! Findings, printed at once.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::wrong::{Kind, Wrong};

/// Findings that are printed of each kind in a weather.
const SHOWN: usize = 3;
/// How long the metrics page may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where a hunt prints.
#[derive(Clone, Debug)]
pub struct Log {
    pub seed: u64,
    /// A file that receives a copy of all output.
    pub file: Option<PathBuf>,
}

impl Log {
    pub fn say(&self, line: &str) {
        println!("{line}");
        if let Some(path) = &self.file {
            let file = fs::File::options().create(true).append(true).open(path);
            let written = file.and_then(|mut file| writeln!(file, "{line}"));
            written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}

/// Collects findings and prints them at once.
pub struct Findings {
    log: Log,
    weather: &'static str,
    start: Instant,
    metrics: SocketAddr,
    all: Mutex<Vec<Kind>>,
}

impl Findings {
    /// No findings yet, for this weather of a hunt that began then, with the address of the server's metrics.
    pub fn new(log: Log, weather: &'static str, start: Instant, metrics: SocketAddr) -> Findings {
        let all = Mutex::default();
        Findings {
            log,
            weather,
            start,
            metrics,
            all,
        }
    }

    pub fn count(&self) -> usize {
        self.all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Number of findings of each kind, as text.
    pub fn summary(&self) -> String {
        let mut all = self
            .all
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        all.sort_unstable();
        let of = |kinds: &[Kind]| format!(" ({} {:?})", kinds.len(), kinds[0]);
        all.chunk_by(|a, b| a == b).map(of).collect()
    }

    /// Adds one; `plan` describes what the client was going to do.
    pub fn add(&self, wrong: &Wrong, plan: &str) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(wrong.kind);
        if all.iter().filter(|kind| **kind == wrong.kind).count() > SHOWN {
            return;
        }
        let s = self.start.elapsed().as_secs_f64();
        let (kind, seed, weather) = (wrong.kind, self.log.seed, self.weather);
        self.log.say(&format!(
            "FINDING {kind:?} after {s:.1} s, seed {seed}, weather {weather}: {}\n  {plan}",
            wrong.text
        ));
        if kind == Kind::Stall {
            let page = page(self.metrics);
            let about = [
                "ackpace_waiting_",
                "ackpace_disk_",
                "ackpace_connections",
                "ackpace_prefetch_",
            ];
            let lines = page
                .lines()
                .filter(|line| about.iter().any(|name| line.starts_with(name)));
            let lines: Vec<&str> = lines.filter(|line| !line.ends_with(" 0")).collect();
            self.log.say(&format!("  metrics: {}", lines.join("; ")));
        }
    }
}

/// The metrics page; empty if there is none.
fn page(address: SocketAddr) -> String {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    ask().unwrap_or_default()
}
