//! Does the emulator behave like its model? Runs the same sequence of requests by fio on the raw device and
//! through the model alone, and compares the throughput.

use super::engine::lock;
use super::{Disk, REQUEST_BYTES_MAX, Spec, profile};
use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::packages;
use ackpace_sim::models::array::Device;
use ackpace_sim::models::closed::{Host, Pattern, run as run_model};
use ackpace_sim::models::disk::profile::Profile;
use ackpace_sim::models::disk::request::Request;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Largest allowed deviation of the emulator from the model, as a share.
const OFF_MAX: f64 = 0.05;
/// Most measurements of a figure before it counts as off.
const TRIES: u64 = 4;
/// First seed of the random sequences.
const SEED: u64 = 1;
const FIO: &str = "/usr/bin/fio";
const LENGTHS: [(&str, u64); 3] = [("4K", 4 << 10), ("128K", 128 << 10), ("1M", 1 << 20)];
const DEPTHS: [usize; 2] = [1, 8];

/// Arguments of `disk check`
#[derive(clap::Args)]
pub struct CheckArgs {
    /// Only this profile (name or TOML file); may be given several times
    #[arg(long)]
    profile: Vec<String>,
    /// Approximate time in seconds for each of the 12 figures of a profile
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// One row of the table.
struct Row {
    label: &'static str,
    len: (&'static str, u64),
    depth: usize,
    random: bool,
}

/// Measures and prints; exit code 1 if a figure is off by more than 5 %.
pub fn run(args: &CheckArgs) -> Result<ExitCode> {
    packages::provide_program(FIO, "fio", "the check measures with")?;
    let given = args.profile.iter().map(String::as_str);
    let names: Vec<&str> = match args.profile.is_empty() {
        true => profile::names(),
        false => given.collect(),
    };
    let mut good = true;
    for name in names {
        let profile = profile::load(name)?;
        println!("{name}: fio on the raw device, O_DIRECT, beside the model; seeds from {SEED}");
        println!("                     model                measured           off");
        good &= check(&profile, args.seconds)?;
    }
    Ok(if good {
        ExitCode::SUCCESS
    } else {
        println!("off by more than {} %: not good", OFF_MAX * 100.0);
        ExitCode::FAILURE
    })
}

fn check(profile: &Profile, seconds: u64) -> Result<bool> {
    let disk = Disk::up(&Spec {
        name: "check".into(),
        profile: profile.clone(),
        corpus: Vec::new(),
        writable: false,
        read_ahead_kb: 128,
    })?;
    // One file covers the whole device, so reading costs as much as with a corpus.
    let size_bytes = profile.size_bytes();
    lock(&disk.engine.store).place(0, Tag::of("check"), 0, size_bytes);
    let mut good = true;
    for (nth, row) in rows().iter().enumerate() {
        let (mut best, mut off) = ((0.0, 0.0), f64::NEG_INFINITY);
        // Other load on the machine can only slow the emulator down: the fastest of a few tries counts.
        for attempt in 0..TRIES {
            // Never repeat places: the drive's own cache would hold them.
            let seed = SEED + nth as u64 * TRIES + attempt;
            let requests = row.requests(profile, seconds, seed);
            let outcome = run_model(&mut Device::new(profile), &requests, row.host(), 0);
            let model = outcome.bytes_per_s();
            // Calibrate as for a disk that just came up, because the load on the machine varies.
            disk.calibrate()?;
            let measured = measure(&disk, &requests, row.depth)?;
            if measured / model - 1.0 > off {
                (best, off) = ((model, measured), measured / model - 1.0);
            }
            if off.abs() <= OFF_MAX {
                break;
            }
        }
        good &= off.abs() <= OFF_MAX;
        println!("{}", row.text(best.0, best.1));
    }
    Ok(good)
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (label, random) in [("sequential", false), ("random", true)] {
        for len in LENGTHS {
            rows.extend(DEPTHS.map(|depth| Row {
                label,
                len,
                depth,
                random,
            }));
        }
    }
    rows
}

impl Row {
    /// Host parameters for the model: those of fio, and of a kernel that splits long requests.
    fn host(&self) -> Host {
        Host {
            depth: self.depth,
            piece_bytes: REQUEST_BYTES_MAX,
        }
    }

    /// As many requests as the model serves in `seconds`, found by a short trial.
    fn requests(&self, profile: &Profile, seconds: u64, seed: u64) -> Vec<Request> {
        let size_bytes = profile.size_bytes();
        let pattern = match self.random {
            true => Pattern::Random { seed },
            false => Pattern::Sequential { from_bytes: 0 },
        };
        let tried = pattern.reads(size_bytes, self.len.1, 400);
        let tried = run_model(&mut Device::new(profile), &tried, self.host(), 0);
        let count = (tried.per_s() * seconds as f64) as u64;
        pattern.reads(size_bytes, self.len.1, count.clamp(50, 2_000_000))
    }

    fn text(&self, model: f64, measured: f64) -> String {
        let len = self.len.1 as f64;
        format!(
            "  {:10} {:>4} x{:<2} {:8.1}/s {:7.2} MB/s {:8.1}/s {:7.2} MB/s {:+6.1} %",
            self.label,
            self.len.0,
            self.depth,
            model / len,
            model / 1e6,
            measured / len,
            measured / 1e6,
            (measured / model - 1.0) * 100.0
        )
    }
}

/// Throughput that fio measures, in bytes/s.
fn measure(disk: &Disk, requests: &[Request], depth: usize) -> Result<f64> {
    let log = disk.folder.join("log");
    std::fs::write(&log, replay(disk.device(), requests)).doing(|| log.display().to_string())?;
    // The same priority as the disk's own threads: before other work.
    let mut command = Command::new("chrt");
    command.args(["-f", "1", FIO, "--name=check", "--direct=1"]);
    // At depth 1, a plain read has the fewest wake-ups.
    let engine = if depth == 1 { "psync" } else { "libaio" };
    command.arg(format!("--ioengine={engine}"));
    command.args(["--replay_no_stall=1", "--output-format=json"]);
    command.arg(format!("--iodepth={depth}"));
    command.arg(format!("--read_iolog={}", log.display()));
    let output = command.output().doing(|| FIO.into())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let start = text.find('{').unwrap_or(0);
    let said: Option<serde_json::Value> = serde_json::from_str(&text[start..]).ok();
    let read = said.as_ref().map(|said| &said["jobs"][0]["read"]);
    let figure = |key: &str| read.and_then(|read| read[key].as_f64());
    match (
        output.status.success(),
        figure("io_bytes"),
        figure("runtime"),
    ) {
        (true, Some(bytes), Some(ms)) if ms > 0.0 => Ok(bytes * 1000.0 / ms),
        _ => Err(LabError::Setup(format!(
            "fio failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
    }
}

/// The requests as fio's log of version 2.
fn replay(device: &Path, requests: &[Request]) -> String {
    let device = device.display();
    let mut text = format!("fio version 2 iolog\n{device} add\n{device} open\n");
    for request in requests {
        let _ = writeln!(
            text,
            "{device} read {} {}",
            request.offset_bytes, request.len_bytes
        );
    }
    let _ = writeln!(text, "{device} close");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_is_given_the_very_requests_of_the_model() {
        let reads = Pattern::Sequential { from_bytes: 4096 }.reads(1 << 20, 4096, 2);
        assert_eq!(
            replay(Path::new("/dev/x"), &reads),
            "fio version 2 iolog\n/dev/x add\n/dev/x open\n/dev/x read 4096 4096\n/dev/x read 8192 4096\n/dev/x close\n"
        );
        assert_eq!(rows().len(), 12);
    }
}
