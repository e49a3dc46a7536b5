//! `ackpace-lab disk`: disks that stay up in a process of their own, and the protocol to control them.
//!
//! `disk up` starts that process and waits until the disk is ready. The process listens on the socket `control`
//! in the disk's folder: each connection sends a line of words and receives an answer.

use super::{CorpusFile, Disk, Fault, RUN, Spec, check, clean, profile};
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Arguments of `ackpace-lab disk`
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Build an emulated disk and mount it at /run/ackpace-lab/disk-NAME/mnt
    Up(Up),
    /// Unmount a disk and end its process; also removes what a killed process left
    Down {
        /// Name of the disk; without it, all disks
        name: Option<String>,
    },
    /// List the disks that are up
    List,
    /// Query or change a disk that is up: counters | reset | fast on|off | eio START LEN | eio-file PATH START LEN |
    /// hang | hang MS | heal | trace FILE|off | read-ahead KB
    Tell {
        /// Name of the disk
        name: String,
        /// The command and its arguments
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Measure disks with fio and compare them with their model; exit code 1 if a figure is off by more than 5 %
    Check(check::CheckArgs),
    /// The process behind a disk
    #[command(hide = true)]
    Serve(Up),
}

#[derive(clap::Args)]
struct Up {
    /// Name of the disk: letters, digits, - and _
    name: String,
    /// 10k-scsi-2003, 7200-sata, raid0-4x7200, flash, or a TOML file
    #[arg(long, default_value = "10k-scsi-2003")]
    profile: String,
    /// Capacity instead of the profile's, as 20G (of 2^30 bytes)
    #[arg(long, value_parser = bytes)]
    size: Option<u64>,
    /// COUNT:LEN files named file-00000.bin and so on, as 1000:64M
    #[arg(long, value_parser = files)]
    files: Option<(u64, u64)>,
    /// File with a path and a length in bytes on each line, separated by a tab
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Mount it writable
    #[arg(long)]
    writable: bool,
    /// The kernel's read-ahead in KB
    #[arg(long, default_value_t = 128)]
    read_ahead_kb: u64,
}

/// Runs the given verb.
///
/// # Errors
/// Invalid arguments, a missing prerequisite of the machine, a disk that is not up, or the error that the
/// disk's process reports.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Up(up) => start(up)?,
        Verb::Down { name } => down(name.as_deref())?,
        Verb::List => list(),
        Verb::Tell { name, words } => println!("{}", tell(name, &words.join(" "))?),
        Verb::Check(args) => return check::run(args),
        Verb::Serve(up) => serve(up),
    }
    Ok(ExitCode::SUCCESS)
}

impl Up {
    fn spec(&self) -> Result<Spec> {
        let mut profile = profile::load(&self.profile)?;
        if let Some(size_bytes) = self.size {
            profile = profile.with_size(size_bytes / 4096 * 4096);
        }
        let mut corpus = Vec::new();
        if let Some((count, len_bytes)) = self.files {
            corpus.extend((0..count).map(|nth| CorpusFile {
                path: format!("file-{nth:05}.bin"),
                len_bytes,
            }));
        }
        if let Some(path) = &self.corpus {
            let text = std::fs::read_to_string(path).doing(|| path.display().to_string())?;
            corpus.extend(parse_corpus(path, &text)?);
        }
        Ok(Spec {
            name: self.name.clone(),
            profile,
            corpus,
            writable: self.writable,
            read_ahead_kb: self.read_ahead_kb,
        })
    }

    fn words(&self) -> Vec<String> {
        let mut words = vec!["disk".into(), "serve".into(), self.name.clone()];
        words.extend(["--profile".into(), self.profile.clone()]);
        words.extend(["--read-ahead-kb".into(), self.read_ahead_kb.to_string()]);
        if let Some(size) = self.size {
            words.extend(["--size".into(), size.to_string()]);
        }
        if let Some((count, len)) = self.files {
            words.extend(["--files".into(), format!("{count}:{len}")]);
        }
        if let Some(path) = &self.corpus {
            words.extend(["--corpus".into(), path.display().to_string()]);
        }
        if self.writable {
            words.push("--writable".into());
        }
        words
    }
}

/// Starts the process and forwards its output.
fn start(up: &Up) -> Result<()> {
    up.spec()?; // reports bad arguments before a process starts
    let program = std::env::current_exe().doing(|| "own path".into())?;
    let mut command = Command::new(program);
    command
        .args(up.words())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    // SAFETY: one system call, no memory is touched.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        })
    };
    let mut child = command.spawn().doing(|| "process of the disk".into())?;
    let mut answer = String::new();
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        stdout
            .read_line(&mut answer)
            .doing(|| "process of the disk".into())?;
    }
    match answer.trim().split_once(' ') {
        Some(("up", text)) => {
            println!("{text}");
            Ok(())
        }
        Some((_, text)) => {
            let _ = child.wait();
            Err(LabError::Setup(text.to_owned()))
        }
        None => {
            let _ = child.wait();
            clean(Some(&up.name));
            Err(LabError::Setup("the process of the disk died".into()))
        }
    }
}

/// The process itself: brings the disk up, answers until `down` or a signal, takes it down.
fn serve(up: &Up) {
    let waited = signals_blocked();
    let built = up.spec().and_then(|spec| {
        let disk = Disk::up(&spec)?;
        let control = Path::new(RUN).join(format!("disk-{}/control", spec.name));
        let listener = UnixListener::bind(&control).doing(|| control.display().to_string())?;
        Ok((disk, listener, control))
    });
    let (disk, listener, control) = match built {
        Ok(built) => built,
        Err(error) => {
            println!("error {}", error.to_string().replace('\n', "; "));
            return;
        }
    };
    let (kept_bytes, lead) = disk.weight();
    println!(
        "up {} on {}; its blocks take {} KB; {} us a request outside the model",
        disk.mount_point().display(),
        disk.device().display(),
        kept_bytes >> 10,
        lead.base_ns / 1000
    );
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        unsafe { libc::sigwait(&waited, &mut signal) };
        let _ = UnixStream::connect(&control).and_then(|mut socket| socket.write_all(b"down\n"));
    });
    for socket in listener.incoming().flatten() {
        if let Some(last) = answer(&disk, socket) {
            disk.down();
            let _ = (&last).write_all(b"down\n");
            return;
        }
    }
}

/// SIGTERM, SIGINT and SIGHUP, blocked in this thread and in all threads that it starts later.
fn signals_blocked() -> libc::sigset_t {
    // SAFETY: a sigset_t is plain data that sigemptyset fills; all pointers are to live values.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

/// Answers one line; returns the socket if the line was `down`.
fn answer(disk: &Disk, socket: UnixStream) -> Option<UnixStream> {
    let mut line = String::new();
    BufReader::new(&socket).read_line(&mut line).ok()?;
    let words: Vec<&str> = line.split_whitespace().collect();
    if words == ["down"] {
        return Some(socket);
    }
    let text = match obey(disk, &words) {
        Ok(text) => text,
        Err(error) => format!("error: {error}"),
    };
    let _ = (&socket).write_all(text.as_bytes());
    None
}

fn obey(disk: &Disk, words: &[&str]) -> Result<String> {
    let number = |word: &str| bytes(word).map_err(|why| LabError::Setup(format!("{word}: {why}")));
    match words {
        ["counters"] => {
            return serde_json::to_string_pretty(&disk.counters())
                .map_err(std::io::Error::from)
                .doing(|| "counters".into());
        }
        ["reset"] => disk.reset_counters(),
        ["fast", "on"] => disk.fast(true),
        ["fast", "off"] => disk.fast(false),
        ["hang"] => disk.set_fault(&Fault::Hang { for_us: None }),
        ["hang", ms] => {
            let for_us = Some(number(ms)? * 1000);
            disk.set_fault(&Fault::Hang { for_us });
        }
        ["eio", start, len] => {
            let start = number(start)?;
            let region = start..start + number(len)?;
            let regions = vec![region];
            disk.set_fault(&Fault::Eio { regions });
        }
        ["eio-file", path, start, len] => {
            let start = number(start)?;
            let regions = disk.places(path, start..start + number(len)?);
            if regions.is_empty() {
                return Err(LabError::Setup(format!("no such bytes of {path} here")));
            }
            disk.set_fault(&Fault::Eio { regions });
        }
        ["heal"] => disk.set_fault(&Fault::None),
        ["trace", "off"] => disk.trace(None)?,
        ["trace", path] => disk.trace(Some(Path::new(path)))?,
        ["read-ahead", kb] => disk.set_read_ahead_kb(number(kb)?)?,
        _ => {
            return Err(LabError::Setup(
                "known are counters, reset, fast on|off, eio START LEN, eio-file PATH START LEN, hang [MS], \
                 heal, trace FILE|off, read-ahead KB"
                    .into(),
            ));
        }
    }
    Ok("ok".into())
}

/// Sends a line to a disk that is up and returns its answer.
fn tell(name: &str, line: &str) -> Result<String> {
    let path = Path::new(RUN).join(format!("disk-{name}/control"));
    let mut socket = UnixStream::connect(&path).map_err(|_| {
        LabError::Setup(format!("no disk {name} is up: ackpace-lab disk up {name}"))
    })?;
    let what = || path.display().to_string();
    socket
        .write_all(format!("{line}\n").as_bytes())
        .doing(what)?;
    let mut text = String::new();
    socket.read_to_string(&mut text).doing(what)?;
    match text.strip_prefix("error: ") {
        Some(why) => Err(LabError::Setup(format!("disk {name}: {why}"))),
        None => Ok(text),
    }
}

fn down(name: Option<&str>) -> Result<()> {
    match name {
        Some(name) => {
            let told = tell(name, "down");
            clean(Some(name));
            told.map(drop)
        }
        None => {
            for name in names() {
                let _ = tell(&name, "down");
            }
            clean(None);
            Ok(())
        }
    }
}

fn list() {
    for name in names() {
        match tell(&name, "counters") {
            Ok(_) => println!("{name}\tup\t{RUN}/disk-{name}/mnt"),
            Err(_) => println!("{name}\tleft behind or of a run: ackpace-lab disk down {name}"),
        }
    }
}

fn names() -> Vec<String> {
    let entries = std::fs::read_dir(RUN).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.strip_prefix("disk-").map(str::to_owned)
        })
        .collect();
    names.sort();
    names
}

fn parse_corpus(path: &Path, text: &str) -> Result<Vec<CorpusFile>> {
    let one = |(nth, line): (usize, &str)| {
        let parts = line.split_once('\t');
        let file = parts.and_then(|(path, len)| {
            Some(CorpusFile {
                path: path.trim_start_matches('/').to_owned(),
                len_bytes: len.trim().parse().ok()?,
            })
        });
        let good = file.filter(|file| {
            let mut parts = file.path.split('/');
            !file.path.is_empty() && parts.all(|part| !matches!(part, "" | "." | ".."))
        });
        good.ok_or_else(|| {
            LabError::Setup(format!(
                "{}:{}: a line is a path below the disk's root, a tab, a length in bytes",
                path.display(),
                nth + 1
            ))
        })
    };
    text.lines().enumerate().map(one).collect()
}

/// 4096, 64K, 20G: IEC suffixes.
fn bytes(text: &str) -> std::result::Result<u64, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let shift = match suffix {
        "" => Some(0),
        "K" | "KiB" => Some(10),
        "M" | "MiB" => Some(20),
        "G" | "GiB" => Some(30),
        "T" | "TiB" => Some(40),
        _ => None,
    };
    let value = digits.parse::<u64>().ok().zip(shift);
    value
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .ok_or_else(|| "a number, or one with K, M, G or T (of 2^10)".into())
}

fn files(text: &str) -> std::result::Result<(u64, u64), String> {
    let parts = text.split_once(':');
    let parsed = parts.and_then(|(count, len)| Some((count.parse().ok()?, bytes(len).ok()?)));
    parsed.ok_or_else(|| "COUNT:LEN, as 1000:64M".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_files_are_read_and_nonsense_is_not() {
        assert_eq!(bytes("20G"), Ok(20 << 30));
        assert_eq!(bytes("4096"), Ok(4096));
        for wrong in ["", "G", "-1", "1X", "99999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!(files("10:1M"), Ok((10, 1 << 20)));
        assert!(files("10").is_err());
    }

    #[test]
    fn a_wrong_line_of_a_corpus_is_named() {
        let file = Path::new("c.tsv");
        let read = parse_corpus(file, "/a/b\t5\n").unwrap();
        assert_eq!((read[0].path.as_str(), read[0].len_bytes), ("a/b", 5));
        for wrong in ["a 5", "../x\t5", "a\tmany", "\t5"] {
            let error = parse_corpus(file, &format!("ok\t1\n{wrong}\n")).unwrap_err();
            assert!(error.to_string().starts_with("c.tsv:2: "), "{error}");
        }
    }
}
