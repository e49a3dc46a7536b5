//! The access log: one line per request, written when its response has ended (docs/access-log.md).

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ackpace_wire::access_log as wire;
use ackpace_wire::limits::{
    ACCESS_LOG_AGENT_BYTES_MAX, ACCESS_LOG_BRIEF_BYTES_MAX, ACCESS_LOG_REFERER_BYTES_MAX,
    METHOD_BYTES_MAX, TARGET_BYTES_MAX,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Access;
use rustix::io::Errno;

use super::pump::{Counts, Handle, Pump, Sink, Trouble};
use crate::options::{LogFormat, LogTarget};

/// The running access log. Dropping it stops it.
pub struct AccessLog {
    pump: Option<Pump<Record>>,
}

impl AccessLog {
    /// Opens `target` and starts its writer; does neither if it is off. A missing file is created with mode 640, since
    /// the log says who asked for what; a missing folder is not created.
    ///
    /// # Errors
    /// The file could not be opened, or the thread not be started.
    pub fn start(target: &LogTarget, format: LogFormat) -> io::Result<AccessLog> {
        let (sink, shown) = match target {
            LogTarget::Off => return Ok(AccessLog { pump: None }),
            LogTarget::Stdout => {
                let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                (Destination::new(file, None), "standard output".to_owned())
            }
            LogTarget::File(path) => {
                let (file, path) = (open(path)?, Some(path.clone()));
                let shown = path.iter().map(|path| path.display().to_string()).collect();
                (Destination::new(file, path), shown)
            }
        };
        let format = match format {
            LogFormat::Combined => wire::LineFormat::Combined,
            LogFormat::Common => wire::LineFormat::Common,
            LogFormat::Json => wire::LineFormat::Json,
        };
        let render = move |record: &Record, out: &mut Vec<u8>| {
            wire::line(format, &record.request.as_wire(), &record.outcome, out);
        };
        let report = move |trouble: Trouble, _: &mut Vec<u8>| report(&shown, &trouble);
        Ok(AccessLog {
            pump: Some(Pump::start("access log", sink, render, report)?),
        })
    }

    /// The queues of records: one for each worker.
    pub fn handle(&self) -> AccessHandle {
        AccessHandle {
            queue: self.pump.as_ref().map(Pump::handle),
        }
    }

    /// Writes what is queued and ends the writer; gives up after [`crate::limits::LOG_STOP_MAX`].
    pub fn stop(self) -> Counts {
        self.pump.map(Pump::stop).unwrap_or_default()
    }
}

/// The open log, and its name if it has one.
struct Destination {
    file: File,
    path: Option<PathBuf>,
    /// A FIFO or a pipe, a socket, a terminal: a write may wait for a reader.
    has_reader: bool,
}

impl Destination {
    fn new(file: File, path: Option<PathBuf>) -> Destination {
        let kind = file.metadata().map(|meta| meta.file_type());
        let has_reader =
            kind.is_ok_and(|kind| kind.is_fifo() || kind.is_socket()) || file.is_terminal();
        Destination {
            file,
            path,
            has_reader,
        }
    }
}

/// O_NONBLOCK: a FIFO without a reader would have the open wait for one, and a write to it wait as long as its reader
/// does. It changes nothing for files.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    let opened = options.custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => {
            io::Error::other(
                "it is a FIFO that nobody reads (start its reader first) or a socket (write - for standard output)",
            )
        }
        _ => error,
    })
}

/// Checks whether `target` could be opened, and changes nothing.
///
/// # Errors
/// As open(2) would fail.
pub fn check(target: &LogTarget) -> io::Result<()> {
    let LogTarget::File(path) = target else {
        return Ok(());
    };
    match rustix::fs::access(path, Access::WRITE_OK) {
        Err(Errno::NOENT) => {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            Ok(rustix::fs::access(
                folder,
                Access::WRITE_OK | Access::EXEC_OK,
            )?)
        }
        Ok(()) if path.is_dir() => Err(Errno::ISDIR.into()),
        told => Ok(told?),
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Sink for Destination {
    fn renew(&mut self) -> bool {
        let Some(path) = &self.path else { return false };
        let identity = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
        match open(path) {
            Ok(file) => {
                tracing::info!("access log {}: opened anew", path.display());
                let is_same = identity(&file).ok() == identity(&self.file).ok();
                *self = Destination::new(file, self.path.take());
                !is_same
            }
            Err(error) => {
                tracing::error!(
                    "access log {}: {error}; lines go on into the old file: mend this and send SIGUSR1 again",
                    path.display()
                );
                false
            }
        }
    }

    fn is_empty(&self) -> bool {
        let meta = self.file.metadata();
        meta.is_ok_and(|meta| meta.is_file() && meta.len() == 0)
    }

    fn ends_torn(&self) -> bool {
        let Some(path) = &self.path else { return false };
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let last = || {
            let file = options.open(path)?;
            let (meta, mut last) = (file.metadata()?, [b'\n']);
            if meta.is_file() && meta.len() > 0 {
                file.read_exact_at(&mut last, meta.len() - 1)?;
            }
            io::Result::Ok(last)
        };
        // One that may be written and not be read is taken for whole.
        last().is_ok_and(|last| last != [b'\n'])
    }

    fn room_bytes(&self, wait_max: Duration) -> Option<usize> {
        if !self.has_reader {
            return Some(usize::MAX);
        }
        let mut polled = [PollFd::new(&self.file, PollFlags::OUT)];
        let wait_max = Timespec::try_from(wait_max).ok();
        // Where poll(2) fails the write says why.
        let is_ready = poll(&mut polled, wait_max.as_ref()).map_or(true, |ready| ready > 0);
        is_ready.then_some(libc::PIPE_BUF)
    }
}

fn report(target: &str, trouble: &Trouble) {
    match trouble {
        Trouble::Dropped { lines } => tracing::warn!(
            lines,
            "access log {target}: lines were dropped since it is written too slowly; use a faster disk or reader"
        ),
        Trouble::Failed { error } => tracing::error!(
            "access log {target}: {error}; lines are lost until it can be written again: make room, or mend the file and send \
             SIGUSR1"
        ),
        Trouble::Recovered { lines_lost } => {
            tracing::warn!(lines_lost, "access log {target}: is written again");
        }
    }
}

/// A worker's end of the access log; cheap to clone.
#[derive(Clone)]
pub struct AccessHandle {
    queue: Option<Handle<Record>>,
}

impl AccessHandle {
    /// Whether the log is on; if not, make no records.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Bounds the memory of the lines that wait for the writer, from now on.
    pub fn bound(&self, bytes_max: u64) {
        if let Some(queue) = &self.queue {
            queue.bound(bytes_max);
        }
    }

    /// Hands a record to the writer. Never blocks: if the queue is full, the record is dropped and counted.
    pub fn log(&self, record: Record) {
        if let Some(queue) = &self.queue {
            let held_bytes = size_of::<Record>() + BESIDE_BYTES + record.request.text.len();
            queue.push(record, held_bytes); // a drop is counted there
        }
    }

    /// Reopens the log's file by its name, if it has one; earlier records go to the old file. Never blocks.
    pub fn reopen(&self) {
        if let Some(queue) = &self.queue {
            queue.renew();
        }
    }

    /// The counts of lines so far.
    pub fn counts(&self) -> Counts {
        self.queue.as_ref().map(Handle::counts).unwrap_or_default()
    }
}

/// One request and its outcome.
#[derive(Clone, Debug)]
pub struct Record {
    /// The request.
    pub request: RequestText,
    /// The response.
    pub outcome: wire::Outcome,
}

/// The parts of a request that the log shows, kept beyond the life of the request head, in one allocation. An overlong
/// field is cut to one byte more than the line shows, which marks it as cut.
#[derive(Clone, Debug)]
pub struct RequestText {
    text: Box<[u8]>,
    /// Lengths of method, target and version.
    line_bytes: [u16; 3],
    /// Lengths of Range, Referer and User-Agent, where the client sent them.
    fields_bytes: [Option<u16>; 3],
    brief: bool,
}

/// The longest text that is kept, for 16-bit lengths.
const _: () = assert!(
    2 * METHOD_BYTES_MAX
        + TARGET_BYTES_MAX
        + 2 * ACCESS_LOG_REFERER_BYTES_MAX
        + ACCESS_LOG_AGENT_BYTES_MAX
        + 6
        <= u16::MAX as usize
);

/// The cost of an allocation beyond its bytes, and of an entry in a queue that may be half empty.
const BESIDE_BYTES: usize = 64;

/// The most that [`RequestText::held_bytes`] is if only the beginning of each field was kept.
pub const BRIEF_HELD_BYTES: u64 = (size_of::<RequestText>()
    + BESIDE_BYTES
    + 2 * (METHOD_BYTES_MAX + 1)
    + 4 * (ACCESS_LOG_BRIEF_BYTES_MAX + 1)) as u64;

impl RequestText {
    /// Copies what the log shows; only the beginning of each field if all of it would take more than `room_bytes`.
    pub fn new(request: &wire::RequestText<'_>, room_bytes: u64) -> RequestText {
        let whole = RequestText::len_bytes(request);
        let brief = (size_of::<RequestText>() + BESIDE_BYTES + whole) as u64 > room_bytes;
        let request = wire::RequestText { brief, ..*request };
        let (line, fields) = request.kept();
        let mut text = Vec::with_capacity(RequestText::len_bytes(&request));
        let pieces = line.into_iter().chain(fields.into_iter().flatten());
        pieces.for_each(|piece| text.extend_from_slice(piece));
        RequestText {
            text: text.into(),
            line_bytes: line.map(|piece| piece.len() as u16),
            fields_bytes: fields.map(|field| field.map(|piece| piece.len() as u16)),
            brief,
        }
    }

    fn len_bytes(request: &wire::RequestText<'_>) -> usize {
        let (line, fields) = request.kept();
        let pieces = line.into_iter().chain(fields.into_iter().flatten());
        pieces.map(<[u8]>::len).sum()
    }

    /// Memory that it holds, with its share of allocations and queue.
    pub fn held_bytes(&self) -> u64 {
        (size_of::<RequestText>() + BESIDE_BYTES + self.text.len()) as u64
    }

    /// The fields again.
    pub fn as_wire(&self) -> wire::RequestText<'_> {
        let mut rest = &*self.text;
        let mut take = |len_bytes: u16| {
            let (piece, after) = rest.split_at(len_bytes.into());
            rest = after;
            piece
        };
        let [method, target, version] = self.line_bytes.map(&mut take);
        let [range, referer, user_agent] =
            self.fields_bytes.map(|len_bytes| len_bytes.map(&mut take));
        wire::RequestText {
            method,
            target,
            version,
            range,
            referer,
            user_agent,
            brief: self.brief,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use std::os::unix::fs::PermissionsExt;

    fn record(target: &str) -> Record {
        let request = wire::RequestText {
            method: b"GET",
            target: target.as_bytes(),
            version: b"HTTP/1.1",
            ..Default::default()
        };
        Record {
            request: RequestText::new(&request, u64::MAX),
            outcome: wire::Outcome {
                time_unix_ms: 0,
                remote: wire::Remote::Unix,
                status: 200,
                bytes_sent: 5,
                bytes_acked: None,
                waited_disk_us: 0,
                waited_net_us: 0,
                duration_us: 0,
                why: None,
            },
        }
    }

    /// A path of this test's own, gone at its end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("ackpace-{name}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path); // left by a killed run
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn a_file_is_made_for_its_owner_and_group_only_and_appended_to() {
        let path = Scratch::new("access");
        let target = LogTarget::File(path.0.clone());
        for run in ["/1", "/2"] {
            let log = AccessLog::start(&target, LogFormat::Common).expect("a writable folder");
            log.handle().log(record(run));
            assert_eq!(
                log.stop(),
                Counts {
                    written: 1,
                    ..Counts::default()
                }
            );
        }
        let text = std::fs::read_to_string(&path.0).expect("was written");
        assert_eq!(
            text,
            "unix: - - [01/Jan/1970:00:00:00 +0000] \"GET /1 HTTP/1.1\" 200 5\n\
             unix: - - [01/Jan/1970:00:00:00 +0000] \"GET /2 HTTP/1.1\" 200 5\n"
        );
        let mode = std::fs::metadata(&path.0)
            .expect("is there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o137, 0, "{mode:o}"); // the umask may take more away
    }

    #[test]
    fn a_file_that_ends_in_half_a_line_gets_its_end_first() {
        let path = Scratch::new("half");
        let target = LogTarget::File(path.0.clone());
        for (before, begin) in [("", ""), ("whole\n", "whole\n"), ("half", "half\n")] {
            std::fs::write(&path.0, before).expect("a temporary folder");
            let log = AccessLog::start(&target, LogFormat::Common).expect("a writable file");
            log.handle().log(record("/1"));
            log.stop();
            let text = std::fs::read_to_string(&path.0).expect("was written");
            let line = "unix: - - [01/Jan/1970:00:00:00 +0000] \"GET /1 HTTP/1.1\" 200 5\n";
            assert_eq!(text, format!("{begin}{line}"));
        }
    }

    #[test]
    fn a_log_that_is_off_wants_no_records() {
        let log = AccessLog::start(&LogTarget::Off, LogFormat::Json).expect("nothing to fail");
        assert!(!log.handle().is_on());
        log.handle().log(record("/"));
        assert_eq!(log.stop(), Counts::default());
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_at_start() {
        let target = LogTarget::File("/nowhere/at/all".into());
        assert_eq!(
            AccessLog::start(&target, LogFormat::Json)
                .err()
                .map(|error| error.kind()),
            Some(io::ErrorKind::NotFound)
        );
    }

    #[test]
    fn a_full_disk_costs_lines_and_nothing_else() {
        let log = AccessLog::start(&LogTarget::File("/dev/full".into()), LogFormat::Common)
            .expect("a device of Linux");
        log.handle().log(record("/"));
        log.handle().log(record("/"));
        assert_eq!(
            log.stop(),
            Counts {
                failed: 2,
                ..Counts::default()
            }
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn a_kept_request_gives_the_line_of_the_borrowed_one(
            method in proptest::collection::vec(any::<u8>(), 0..40),
            target in proptest::collection::vec(any::<u8>(), 0..10_000),
            range in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..3_000)),
            agent in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..3_000)),
        ) {
            let request = wire::RequestText {
                method: &method,
                target: &target,
                version: b"HTTP/1.1",
                range: range.as_deref(),
                referer: agent.as_deref(),
                user_agent: agent.as_deref(),
                brief: false,
            };
            let outcome = record("").outcome;
            let line = |request: &wire::RequestText<'_>| {
                let mut out = Vec::new();
                wire::line(wire::LineFormat::Json, request, &outcome, &mut out);
                out
            };
            prop_assert_eq!(line(&RequestText::new(&request, u64::MAX).as_wire()), line(&request));
            let brief = wire::RequestText { brief: true, ..request };
            let kept = RequestText::new(&request, 0);
            prop_assert_eq!(line(&kept.as_wire()), line(&brief));
            prop_assert!(kept.held_bytes() <= BRIEF_HELD_BYTES);
            prop_assert!(RequestText::new(&request, 3_000).held_bytes() <= 3_000);
        }
    }
}
