//! Writes lines out of the process: a bounded queue, and one thread that writes them in batches.
//!
//! After each batch the thread rests for [`LOG_REST`], so a busy server pays for some fifty wake-ups a second and not for
//! one per line.

use std::io::{self, Write};
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};

use super::LOG_REPORT_INTERVAL;

/// Lines that wait for the thread of a log. The thread rests 20 ms at most, so this carries 400,000 lines a second.
/// More: they are lost, counted and reported.
pub const LOG_QUEUE_LINES_MAX: usize = 8 << 10;
/// Bytes that these lines may hold, less where memory is little. A line of the access log holds some 300 bytes, and up
/// to 14 KB if a client wants it. More: lines are lost, counted and reported.
pub const LOG_QUEUE_BYTES_MAX: u64 = 8 << 20;
/// Bytes of lines after which a batch is written: so many that the cost of the system call does not matter.
pub const LOG_BATCH_BYTES: usize = 64 << 10;
/// Memory of a place in the queue, filled or not.
pub const LOG_LINE_PLACE_BYTES: usize = size_of::<Message>() + size_of::<usize>();
/// How long the thread of a log rests after a batch, and so the delay of a line. A log whose reader takes nothing is tried
/// as often.
const LOG_REST: Duration = Duration::from_millis(20);
/// How long a stop waits for a log to be written. More: the rest is lost, since a stuck pipe must not keep the server
/// from stopping.
const LOG_STOP_MAX: Duration = Duration::from_secs(2);

/// The counts of lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub written: u64,
    /// Lines lost since the queue was full or a write failed.
    pub lost: u64,
}

/// Where lines go.
pub type Sink = Box<dyn Write + Send>;

/// Opens the sink anew, if there is one to open.
pub type Reopen = Box<dyn FnMut() -> Option<Sink> + Send>;

enum Message {
    Line(Box<[u8]>),
    /// Dropped when all lines before it are written.
    Flush(Sender<()>),
}

#[derive(Default)]
struct QueueState {
    queued_bytes: AtomicU64,
    bytes_max: AtomicU64,
    written: AtomicU64,
    lost: AtomicU64,
    /// The sink is to be reopened.
    renewing: AtomicBool,
    stopping: AtomicBool,
}

/// The input end of the queue; cheap to clone.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<QueueState>,
    sender: Sender<Message>,
}

impl Handle {
    /// Queues a line with its line feed; never blocks. If there is no room, the line is lost and counted.
    pub fn push(&self, line: Box<[u8]>) {
        let (shared, bytes) = (&self.shared, line.len() as u64);
        let queued_bytes = shared.queued_bytes.fetch_add(bytes, Relaxed) + bytes;
        let fits = queued_bytes <= shared.bytes_max.load(Relaxed)
            && !shared.stopping.load(Relaxed)
            && self.sender.try_send(Message::Line(line)).is_ok();
        if !fits {
            shared.queued_bytes.fetch_sub(bytes, Relaxed);
            shared.lost.fetch_add(1, Relaxed);
        }
    }

    /// Bounds the memory of the lines that wait, from now on.
    pub fn bound(&self, bytes_max: u64) {
        self.shared.bytes_max.store(bytes_max, Relaxed);
    }

    /// The counts of lines so far.
    pub fn counts(&self) -> Counts {
        Counts {
            written: self.shared.written.load(Relaxed),
            lost: self.shared.lost.load(Relaxed),
        }
    }

    /// Has the sink reopened after the next batch; lines queued now still go to the old one. Never blocks.
    pub fn renew(&self) {
        self.shared.renewing.store(true, Relaxed);
        // A full queue needs no message: its thread is working and sees the flag.
        let _ = self.sender.try_send(Message::Flush(bounded(0).0));
    }

    /// Waits until the lines queued now are written, `wait_max` at most. For a process about to end.
    pub fn flush(&self, wait_max: Duration) {
        let deadline = Instant::now() + wait_max;
        let (done, written) = bounded(0);
        let flush = Message::Flush(done);
        if self.sender.send_deadline(flush, deadline).is_ok() {
            let _ = written.recv_deadline(deadline); // either way the process goes on
        }
    }
}

/// The thread behind a queue. When dropped, it writes what is queued, for [`LOG_STOP_MAX`] at most; later lines are lost.
pub struct Pump(Handle);

impl Pump {
    /// Starts a thread that writes lines to `sink`; messages about it call it `name`.
    pub fn start(name: String, sink: Sink, reopen: Reopen) -> io::Result<Pump> {
        let (sender, receiver) = bounded(LOG_QUEUE_LINES_MAX);
        let shared = Arc::new(QueueState::default());
        shared.bytes_max.store(LOG_QUEUE_BYTES_MAX, Relaxed);
        let writer = Writer::new(name, sink, reopen, Arc::clone(&shared));
        let thread = thread::Builder::new().name("log".to_owned());
        thread.spawn(move || writer.run(&receiver))?;
        Ok(Pump(Handle { shared, sender }))
    }

    /// The input end of the queue.
    pub fn handle(&self) -> Handle {
        self.0.clone()
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.shared.stopping.store(true, Relaxed);
        self.0.flush(LOG_STOP_MAX);
    }
}

struct Writer {
    name: String,
    sink: Sink,
    reopen: Reopen,
    shared: Arc<QueueState>,
    batch: Vec<u8>,
    /// The sink ends in half a line: a write failed in the middle of one.
    torn: bool,
    failing: bool,
    /// How much of `shared.lost` was reported, and when that was.
    told: u64,
    told_at: Option<Instant>,
}

impl Writer {
    fn new(name: String, sink: Sink, reopen: Reopen, shared: Arc<QueueState>) -> Writer {
        Writer {
            name,
            sink,
            reopen,
            shared,
            batch: Vec::with_capacity(LOG_BATCH_BYTES),
            torn: false,
            failing: false,
            told: 0,
            told_at: None,
        }
    }

    fn run(mut self, receiver: &Receiver<Message>) {
        while let Ok(first) = receiver.recv() {
            let mut flushed = Vec::new();
            for message in iter::once(first).chain(receiver.try_iter()) {
                match message {
                    Message::Line(line) => self.take(&line),
                    Message::Flush(done) => flushed.push(done),
                }
                if self.batch.len() >= LOG_BATCH_BYTES {
                    break;
                }
            }
            self.write();
            drop(flushed);
            self.renew();
            if receiver.is_empty() {
                thread::sleep(LOG_REST);
            }
        }
    }

    fn take(&mut self, line: &[u8]) {
        let bytes = line.len() as u64;
        self.shared.queued_bytes.fetch_sub(bytes, Relaxed);
        self.batch.extend_from_slice(line);
    }

    fn renew(&mut self) {
        if self.shared.renewing.swap(false, Relaxed) {
            if let Some(sink) = (self.reopen)() {
                (self.sink, self.torn) = (sink, false);
            }
        }
    }

    fn write(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let torn = self.torn.into();
        if self.torn {
            self.batch.insert(0, b'\n'); // ends the line that was lost before
        }
        let (taken_bytes, result) = write_all(&mut self.sink, &self.batch);
        let (taken, left) = self.batch.split_at(taken_bytes);
        let written = line_ends(taken).saturating_sub(torn);
        let lost = line_ends(taken) + line_ends(left) - torn - written;
        self.shared.written.fetch_add(written, Relaxed);
        self.shared.lost.fetch_add(lost, Relaxed);
        self.torn = taken.last().map_or(self.torn, |&last| last != b'\n');
        self.batch.clear();
        if let Some(lines) = self.untold(result.is_err(), Instant::now()) {
            let name = &self.name;
            match result {
                Ok(()) => tracing::warn!(
                    lines,
                    "{name}: lines were lost since it could not be written as fast as they came"
                ),
                Err(error) => tracing::error!(
                    lines,
                    "{name}: {error}; lines are lost until it can be written again: make room, or mend the file and send \
                     SIGUSR1"
                ),
            }
        }
    }

    /// Lines lost that are to be reported now, after a write that failed or did not: once when writes begin to fail, once when
    /// it is over, and no more than once in [`LOG_REPORT_INTERVAL`].
    fn untold(&mut self, failed: bool, now: Instant) -> Option<u64> {
        let lines = self.shared.lost.load(Relaxed) - self.told;
        let fails_on = std::mem::replace(&mut self.failing, failed) && failed;
        let is_soon = self
            .told_at
            .is_some_and(|at| now - at < LOG_REPORT_INTERVAL);
        if lines == 0 || fails_on || is_soon {
            return None;
        }
        self.told += lines;
        self.told_at = Some(now);
        Some(lines)
    }
}

/// Writes `batch` and returns how many of its bytes were taken, also when that fails.
fn write_all(sink: &mut Sink, batch: &[u8]) -> (usize, io::Result<()>) {
    let mut taken_bytes = 0;
    while taken_bytes < batch.len() {
        match sink.write(&batch[taken_bytes..]) {
            Ok(0) => return (taken_bytes, Err(io::ErrorKind::WriteZero.into())),
            Ok(more_bytes) => taken_bytes += more_bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // A FIFO that nobody reads now, or another process with the same terminal made it non-blocking.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(LOG_REST),
            Err(error) => return (taken_bytes, Err(error)),
        }
    }
    (taken_bytes, Ok(()))
}

fn line_ends(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;

    use super::*;

    /// A sink that follows its script, then takes everything.
    #[derive(Clone, Default)]
    struct Script {
        taken: Arc<Mutex<Vec<u8>>>,
        steps: Arc<Mutex<VecDeque<io::Result<usize>>>>,
    }

    impl Script {
        fn new(steps: impl IntoIterator<Item = io::Result<usize>>) -> Script {
            let steps = Arc::new(Mutex::new(steps.into_iter().collect()));
            let taken = Arc::default();
            Script { taken, steps }
        }

        fn text(&self) -> String {
            let taken = self.taken.lock().expect("no panic before");
            String::from_utf8_lossy(&taken).into_owned()
        }
    }

    impl Write for Script {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let step = self.steps.lock().expect("no panic before").pop_front();
            let len = step.unwrap_or(Ok(bytes.len()))?.min(bytes.len());
            let mut taken = self.taken.lock().expect("no panic before");
            taken.extend_from_slice(&bytes[..len]);
            Ok(len)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn full() -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }

    fn start(sink: impl Write + Send + 'static) -> Pump {
        let name = "a log".to_owned();
        Pump::start(name, Box::new(sink), Box::new(|| None)).expect("a thread")
    }

    fn writer(sink: &Script) -> Writer {
        let (name, sink) = ("a log".to_owned(), Box::new(sink.clone()));
        Writer::new(name, sink, Box::new(|| None), Arc::default())
    }

    fn counts(writer: &Writer) -> (u64, u64) {
        let shared = &writer.shared;
        (shared.written.load(Relaxed), shared.lost.load(Relaxed))
    }

    #[test]
    fn all_lines_are_written_in_order_by_the_end() {
        let sink = Script::default();
        let pump = start(sink.clone());
        let handle = pump.handle();
        handle.push((*b"a\n").into());
        handle.flush(Duration::from_secs(60));
        assert_eq!(sink.text(), "a\n");
        for line in ["b\n", "c\n"] {
            handle.push(line.as_bytes().into());
        }
        drop(pump);
        assert_eq!(sink.text(), "a\nb\nc\n");
        handle.push((*b"late\n").into());
        let (written, lost) = (3, 1);
        assert_eq!(handle.counts(), Counts { written, lost });
    }

    #[test]
    fn lines_and_bytes_that_wait_are_bounded() {
        /// Holds its first write until it is released.
        struct Stuck(Sender<()>, Receiver<()>);
        impl Write for Stuck {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let _ = (self.0.send(()), self.1.recv());
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (entered, has_entered) = bounded(8);
        let (release, released) = bounded::<()>(0);
        let pump = start(Stuck(entered, released));
        let handle = pump.handle();
        handle.push((*b"\n").into());
        has_entered.recv().expect("the thread writes");
        handle.bound(10);
        for line in ["12345\n", "123\n", "\n"] {
            handle.push(line.as_bytes().into());
        }
        assert_eq!(handle.counts().lost, 1);
        handle.bound(LOG_QUEUE_BYTES_MAX);
        (2..LOG_QUEUE_LINES_MAX + 3).for_each(|_| handle.push((*b"\n").into()));
        assert_eq!(handle.counts().lost, 4);
        drop((release, pump));
        let written = LOG_QUEUE_LINES_MAX as u64 + 1;
        assert_eq!(handle.counts(), Counts { written, lost: 4 });
    }

    #[test]
    fn short_writes_go_on_and_a_torn_line_gets_its_end_before_the_next_one() {
        let sink = Script::new([
            Ok(1),
            Err(io::ErrorKind::Interrupted.into()),
            Ok(2),
            Err(io::ErrorKind::WouldBlock.into()),
            Ok(2),
            full(),
            full(),
        ]);
        let mut writer = writer(&sink);
        for batch in ["aaa\nbbb\nccc\n", "ddd\n", "eee\nfff\n"] {
            writer.take(batch.as_bytes());
            writer.write();
        }
        assert_eq!(sink.text(), "aaa\nb\neee\nfff\n");
        assert_eq!(counts(&writer), (3, 3));
    }

    #[test]
    fn a_renewed_sink_gets_what_comes_after_and_no_end_of_a_torn_line() {
        let (old, new) = (Script::new([Ok(1), full()]), Script::default());
        let mut writer = writer(&old);
        let mut next: Option<Sink> = Some(Box::new(new.clone()));
        writer.reopen = Box::new(move || next.take());
        writer.take(b"aa\n");
        writer.write();
        writer.shared.renewing.store(true, Relaxed);
        writer.renew();
        writer.take(b"bb\n");
        writer.write();
        assert_eq!((&*old.text(), &*new.text()), ("a", "bb\n"));
    }

    #[test]
    fn lost_lines_are_told_when_writes_fail_and_when_it_is_over_once_in_an_interval() {
        let mut writer = writer(&Script::default());
        let start = Instant::now();
        let mut step = |after, lost, failed| {
            writer.shared.lost.fetch_add(lost, Relaxed);
            writer.untold(failed, start + LOG_REPORT_INTERVAL / 10 * after)
        };
        assert_eq!(step(0, 0, false), None);
        assert_eq!(step(1, 3, true), Some(3));
        assert_eq!(step(40, 5, true), None, "it fails on");
        assert_eq!(step(41, 0, false), Some(5), "it is over");
        assert_eq!(step(42, 2, false), None, "too soon");
        assert_eq!(step(51, 1, true), Some(3));
        assert_eq!(step(70, 0, false), None);
    }
}
