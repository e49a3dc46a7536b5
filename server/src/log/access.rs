//! The access log: one line per request, written when its response has ended (docs/access-log.md).

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use ackpace_wire::access_log as wire;
use ackpace_wire::limits::{
    ACCESS_LOG_AGENT_BYTES_MAX, ACCESS_LOG_BRIEF_BYTES_MAX, ACCESS_LOG_REFERER_BYTES_MAX,
    METHOD_BYTES_MAX, TARGET_BYTES_MAX,
};

use rustix::fs::Access;
use rustix::io::Errno;

use super::pump::{Counts, Handle, Pump, Reopen, Sink};
use crate::options::{LogFormat, LogTarget};

/// The running access log. Dropping it stops it.
pub struct AccessLog {
    pump: Option<Pump>,
    format: wire::LineFormat,
}

impl AccessLog {
    /// Opens `target` and starts its writer; does neither if it is off. A missing file is created with mode 640, since
    /// the log says who asked for what; a missing folder is not created.
    pub fn start(target: &LogTarget, format: LogFormat) -> io::Result<AccessLog> {
        let format = match format {
            LogFormat::Combined => wire::LineFormat::Combined,
            LogFormat::Common => wire::LineFormat::Common,
            LogFormat::Json => wire::LineFormat::Json,
        };
        let (name, sink, reopen): (String, Sink, Reopen) = match target {
            LogTarget::Off => return Ok(AccessLog { pump: None, format }),
            LogTarget::Stdout => {
                let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
                let name = "access log: standard output".to_owned();
                (name, Box::new(file), Box::new(|| None))
            }
            LogTarget::File(path) => {
                let (file, path) = (open(path)?, path.clone());
                let name = format!("access log {}", path.display());
                (name, Box::new(file), Box::new(move || reopen(&path)))
            }
        };
        let pump = Some(Pump::start(name, sink, reopen)?);
        Ok(AccessLog { pump, format })
    }

    /// The input end, for each worker.
    pub fn handle(&self) -> AccessHandle {
        AccessHandle {
            queue: self.pump.as_ref().map(Pump::handle),
            format: self.format,
        }
    }
}

/// O_NONBLOCK: a FIFO without a reader would have the open wait for one. It changes nothing for files.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o640);
    let opened = options.custom_flags(libc::O_NONBLOCK).open(path);
    opened.map_err(|error| match error.raw_os_error() {
        Some(libc::ENXIO) => io::Error::other(
            "it is a FIFO that nobody reads (start its reader first) or a socket (write - for standard output)",
        ),
        _ => error,
    })
}

fn reopen(path: &Path) -> Option<Sink> {
    match open(path) {
        Ok(file) => {
            tracing::info!("access log {}: opened anew", path.display());
            Some(Box::new(file))
        }
        Err(error) => {
            tracing::error!(
                "access log {}: {error}; lines go on into the old file: mend this and send SIGUSR1 again",
                path.display()
            );
            None
        }
    }
}

/// Checks whether `target` could be opened, and changes nothing.
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

/// A worker's end of the access log; cheap to clone.
#[derive(Clone)]
pub struct AccessHandle {
    queue: Option<Handle>,
    format: wire::LineFormat,
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

    /// Hands the line of a record to the writer. Never blocks: if the queue is full, it is lost and counted.
    pub fn log(&self, record: &Record<'_>) {
        if let Some(queue) = &self.queue {
            let mut line = Vec::with_capacity(512);
            wire::line(
                self.format,
                &record.request.as_wire(),
                &record.outcome,
                &mut line,
            );
            queue.push(line.into());
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

#[derive(Clone, Debug)]
pub struct Record<'a> {
    pub request: RequestText,
    pub outcome: wire::Outcome<'a>,
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
    use std::path::PathBuf;

    fn record(target: &str) -> Record<'static> {
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
                cache: None,
                sender: None,
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
            log.handle().log(&record(run));
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
    fn what_cannot_be_written_costs_lines_and_what_cannot_be_opened_is_an_error() {
        let start = |target: LogTarget| AccessLog::start(&target, LogFormat::Common);
        for (target, is_on, lost) in [
            (LogTarget::Off, false, 0),
            (LogTarget::File("/dev/full".into()), true, 2),
        ] {
            let log = start(target).expect("it can be opened");
            let handle = log.handle();
            assert_eq!(handle.is_on(), is_on);
            (0..2).for_each(|_| handle.log(&record("/")));
            drop(log);
            assert_eq!(handle.counts(), Counts { written: 0, lost });
        }
        let error = start(LogTarget::File("/nowhere/at/all".into())).err();
        let kind = error.map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::NotFound));
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
