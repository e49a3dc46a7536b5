//! `ackpace-lab disk serve`: a disk in a process of its own, and the protocol to control it.
//!
//! The process listens on the socket `control` in the disk's folder: each connection sends a line of words and
//! receives an answer. The commands are `counters`, `reset`, `fast on|off`, `eio START LEN`, `eio-file PATH START LEN`,
//! `hang`, `heal` and `down`.

use super::{CorpusFile, Disk, Fault, RUN, Spec, profile};
use ackpace_lab_base::error::{Doing, LabError, Result};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `ackpace-lab disk`
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Build an emulated disk, mount it at /run/ackpace-lab/disk-NAME/mnt, and end with a signal
    Serve(Up),
}

#[derive(clap::Args)]
struct Up {
    /// Name of the disk: letters, digits, - and _
    name: String,
    /// 10k-scsi-2003, flash, or a TOML file by its path
    #[arg(long, default_value = "10k-scsi-2003")]
    profile: String,
    /// Capacity instead of the profile's, as 20G (of 2^30 bytes)
    #[arg(long, value_parser = bytes)]
    size: Option<u64>,
    /// File with a path and a length in bytes on each line, separated by a tab
    #[arg(long)]
    corpus: Option<PathBuf>,
    /// Mount it writable
    #[arg(long)]
    writable: bool,
}

/// Brings the disk up, answers until `down` or a signal, takes it down.
///
/// # Errors
/// None; what goes wrong is the first line of the output.
pub fn run(args: &Args) -> Result<ExitCode> {
    let Verb::Serve(up) = &args.verb;
    serve(up);
    Ok(ExitCode::SUCCESS)
}

impl Up {
    fn spec(&self) -> Result<Spec> {
        let mut profile = profile::load(&self.profile)?;
        if let Some(size_bytes) = self.size {
            profile = profile.with_size(size_bytes / 4096 * 4096);
        }
        let mut corpus = Vec::new();
        if let Some(path) = &self.corpus {
            let text = std::fs::read_to_string(path).doing(|| path.display().to_string())?;
            corpus.extend(parse_corpus(path, &text)?);
        }
        Ok(Spec {
            name: self.name.clone(),
            profile,
            corpus,
            writable: self.writable,
            read_ahead_kb: 128,
        })
    }
}

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
    println!("up {}", disk.mount_point().display());
    std::thread::spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are to live values.
        unsafe { libc::sigwait(&waited, &mut signal) };
        let _ = UnixStream::connect(&control).and_then(|mut socket| socket.write_all(b"down\n"));
    });
    for socket in listener.incoming().flatten() {
        if let Some(last) = answer(&disk, socket) {
            drop(disk);
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
        ["hang"] => disk.set_fault(&Fault::Hang),
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
        _ => return Err(LabError::Setup("no such command".into())),
    }
    Ok("ok".into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_nonsense_is_not() {
        assert_eq!(bytes("20G"), Ok(20 << 30));
        assert_eq!(bytes("4096"), Ok(4096));
        for wrong in ["", "G", "-1", "1X", "99999999T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
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
