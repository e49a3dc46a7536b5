//! Writes lines out of the process: a bounded queue, and one thread that renders and writes them in batches.
//!
//! The queue is std's bounded channel. Its `try_send` takes no lock, and wakes the thread by a system call only when
//! that waits for a line. It seldom does: after each batch it rests for [`LOG_REST`], so a busy server pays for some
//! fifty wake-ups a second and not for one per line. (A ring such as crossbeam's ArrayQueue would need a way to wait of
//! its own.)

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use super::losses::Losses;
pub use super::losses::Trouble;
use crate::limits::{
    LOG_BATCH_BYTES, LOG_QUEUE_BYTES_MAX, LOG_QUEUE_LINES_MAX, LOG_REPORT_INTERVAL, LOG_REST,
    LOG_STOP_MAX, LOG_STUCK_LOOK_EACH,
};

/// The counts of lines so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines that the kernel took.
    pub written: u64,
    /// Lines dropped since the queue was full.
    pub dropped: u64,
    /// Lines lost since a write failed.
    pub failed: u64,
}

/// Where lines go.
pub trait Sink: Write {
    /// Reopens the file whose name this sink knows, since another file may have that name now. Returns whether it is
    /// another one.
    fn renew(&mut self) -> bool {
        false
    }

    /// Whether the next write begins the file: it is empty, perhaps since somebody truncated it.
    fn is_empty(&self) -> bool {
        false
    }

    /// Whether it ends in half a line that an earlier process left. Asked once for each file, by the thread that writes.
    fn ends_torn(&self) -> bool {
        false
    }

    /// How many bytes a write takes now without waiting for a reader; `None` after `wait_max` without room.
    fn room_bytes(&self, _wait_max: Duration) -> Option<usize> {
        Some(usize::MAX)
    }
}

impl Sink for std::fs::File {}

/// The input end of the queue; cheap to clone.
pub struct Handle<L> {
    shared: Arc<QueueState>,
    sender: SyncSender<Message<L>>,
}

// By hand, since a derive would ask for L: Clone.
impl<L> Clone for Handle<L> {
    fn clone(&self) -> Self {
        Handle {
            shared: self.shared.clone(),
            sender: self.sender.clone(),
        }
    }
}

impl<L> Handle<L> {
    /// Queues a line that holds `held_bytes` of memory; never blocks. Returns `false` if it was dropped.
    pub fn push(&self, line: L, held_bytes: usize) -> bool {
        let held_bytes = held_bytes as u64;
        let queued_bytes = self.shared.queued_bytes.fetch_add(held_bytes, Relaxed) + held_bytes;
        let fits = queued_bytes <= self.shared.bytes_max.load(Relaxed);
        if fits
            && self
                .sender
                .try_send(Message::Line { line, held_bytes })
                .is_ok()
        {
            return true;
        }
        self.shared.queued_bytes.fetch_sub(held_bytes, Relaxed);
        self.shared.dropped.fetch_add(1, Relaxed);
        false
    }

    /// Bounds the memory of the lines that wait, from now on: [`LOG_QUEUE_BYTES_MAX`] at most.
    pub fn bound(&self, bytes_max: u64) {
        let bytes_max = bytes_max.min(LOG_QUEUE_BYTES_MAX);
        self.shared.bytes_max.store(bytes_max, Relaxed);
    }

    /// The counts of lines so far.
    pub fn counts(&self) -> Counts {
        self.shared.counts()
    }

    /// Has the sink reopened after the next batch; lines queued now still go to the old one. Never blocks.
    pub fn renew(&self) {
        self.shared.renewing.store(true, Relaxed);
        // A full queue needs no message: its thread is working and sees the flag.
        let _ = self.sender.try_send(Message::Renew);
        self.shared.wake();
    }

    /// Waits until the lines queued now are written, `wait_max` at most. For a process about to end.
    pub fn flush(&self, wait_max: Duration) {
        let (done, written) = sync_channel(1);
        if self.sender.try_send(Message::Flush(done)).is_ok() {
            self.shared.wake();
            // Either way the process goes on: lines not written in this time are lost.
            let _ = written.recv_timeout(wait_max);
        }
    }
}

/// The thread behind a queue. Stops when dropped.
pub struct Pump<L> {
    handle: Handle<L>,
    ended: Receiver<()>,
}

impl<L: Send + 'static> Pump<L> {
    /// Starts a thread that renders each line by `render`, writes it to `sink`, and reports troubles to `report`. A
    /// report may add lines of its own to the batch.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(
        name: &str,
        sink: impl Sink + Send + 'static,
        render: impl FnMut(&L, &mut Vec<u8>) + Send + 'static,
        report: impl FnMut(Trouble, &mut Vec<u8>) + Send + 'static,
    ) -> io::Result<Pump<L>> {
        let (sender, receiver) = sync_channel(LOG_QUEUE_LINES_MAX);
        let (ending, ended) = sync_channel(1);
        let (about_thread, thread) = sync_channel(1);
        let builder = std::thread::Builder::new().name(name.to_owned());
        let join = builder.spawn(move || {
            let Ok(shared) = thread.recv() else { return };
            Writer::new(sink, render, report, shared).run(&receiver);
            drop(receiver); // from here on a push fails, and is counted
            let _ = ending.send(()); // nobody waits if the pump was given up
        })?;
        let shared = Arc::new(QueueState::new(join.thread().clone()));
        let _ = about_thread.send(shared.clone()); // the thread waits for it
        Ok(Pump {
            handle: Handle { shared, sender },
            ended,
        })
    }

    /// The input end of the queue.
    pub fn handle(&self) -> Handle<L> {
        self.handle.clone()
    }

    /// Writes what is queued and ends the thread. Gives up after [`LOG_STOP_MAX`], since a stuck pipe must not keep the
    /// server from stopping. Later lines are dropped.
    pub fn stop(self) -> Counts {
        self.end(LOG_STOP_MAX);
        self.handle.counts()
    }
}

impl<L> Pump<L> {
    fn end(&self, wait_max: Duration) {
        self.handle.shared.stopping.store(true, Relaxed);
        // A full queue needs no message: its thread is working and sees the flag.
        let _ = self.handle.sender.try_send(Message::Stop);
        self.handle.shared.wake();
        let _ = self.ended.recv_timeout(wait_max);
    }
}

impl<L> Drop for Pump<L> {
    fn drop(&mut self) {
        if !self.handle.shared.stopping.load(Relaxed) {
            self.end(LOG_STOP_MAX);
        }
    }
}

enum Message<L> {
    Line { line: L, held_bytes: u64 },
    Flush(SyncSender<()>),
    Renew,
    Stop,
}

struct QueueState {
    queued_bytes: AtomicU64,
    bytes_max: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
    /// The sink is to be reopened.
    renewing: AtomicBool,
    stopping: AtomicBool,
    thread: Thread,
}

impl QueueState {
    fn new(thread: Thread) -> QueueState {
        QueueState {
            queued_bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(LOG_QUEUE_BYTES_MAX),
            written: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            renewing: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            thread,
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            written: self.written.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
            failed: self.failed.load(Relaxed),
        }
    }

    fn wake(&self) {
        self.thread.unpark();
    }
}

/// The thread's own state.
struct Writer<W, Render, Report> {
    sink: W,
    render: Render,
    report: Report,
    shared: Arc<QueueState>,
    batch: Vec<u8>,
    /// Lines in `batch`.
    lines: u64,
    /// The sink ends in half a line: a write failed in the middle of one.
    torn: bool,
    losses: Losses,
    /// How much of `shared.dropped` was reported.
    dropped_reported: u64,
    dropped_report_due: Option<Instant>,
}

impl<W: Sink, Render, Report: FnMut(Trouble, &mut Vec<u8>)> Writer<W, Render, Report> {
    fn new(sink: W, render: Render, report: Report, shared: Arc<QueueState>) -> Self {
        Writer {
            torn: sink.ends_torn(),
            sink,
            render,
            report,
            shared,
            batch: Vec::with_capacity(LOG_BATCH_BYTES),
            lines: 0,
            losses: Losses::default(),
            dropped_reported: 0,
            dropped_report_due: None,
        }
    }

    fn run<L>(&mut self, receiver: &Receiver<Message<L>>)
    where
        Render: FnMut(&L, &mut Vec<u8>),
    {
        loop {
            match self.wait(receiver) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(message) = receiver.try_recv() {
                self.take(message);
                if self.batch.len() >= LOG_BATCH_BYTES {
                    self.write(Instant::now());
                }
            }
            self.write(Instant::now());
            self.renew();
            if self.shared.stopping.load(Relaxed) {
                return self.finish(receiver);
            }
            std::thread::park_timeout(LOG_REST);
        }
    }

    /// Waits for a line, and no longer than until there is something to report.
    fn wait<L>(&self, receiver: &Receiver<Message<L>>) -> Result<Message<L>, RecvTimeoutError> {
        let unreported = self.shared.dropped.load(Relaxed) > self.dropped_reported;
        let dropped = self.dropped_report_due.filter(|_| unreported);
        match dropped.into_iter().chain(self.losses.waits_until()).min() {
            Some(due) => receiver.recv_timeout(due.saturating_duration_since(Instant::now())),
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        }
    }

    fn take<L>(&mut self, message: Message<L>)
    where
        Render: FnMut(&L, &mut Vec<u8>),
    {
        match message {
            Message::Line { line, held_bytes } => {
                self.shared.queued_bytes.fetch_sub(held_bytes, Relaxed);
                (self.render)(&line, &mut self.batch);
                self.lines += 1;
            }
            Message::Flush(done) => {
                self.write(Instant::now());
                let _ = done.send(()); // the receiver may have given up
            }
            Message::Renew | Message::Stop => {}
        }
    }

    /// Writes what is still queued: all lines pushed before the stop, but no more than one queue's length.
    fn finish<L>(&mut self, receiver: &Receiver<Message<L>>)
    where
        Render: FnMut(&L, &mut Vec<u8>),
    {
        for _ in 0..=LOG_QUEUE_LINES_MAX {
            let Ok(message) = receiver.try_recv() else {
                break;
            };
            self.take(message);
            if self.batch.len() >= LOG_BATCH_BYTES {
                self.write(Instant::now());
            }
        }
        self.dropped_report_due = None; // the last chance to report it
        self.losses.hurry();
        self.write(Instant::now());
        self.write(Instant::now()); // reports of the first write
    }

    /// Writes the batch and the pending reports. A report of this very write goes with the next batch.
    fn write(&mut self, now: Instant) {
        self.report_dropped(now);
        if self.batch.is_empty() {
            self.report_losses(now); // otherwise this write tells first how it is now
        }
        if !self.batch.is_empty() {
            self.torn = self.torn && !self.sink.is_empty();
            if self.torn {
                self.batch.insert(0, b'\n');
            }
            let lines = std::mem::take(&mut self.lines);
            let mut batch = std::mem::take(&mut self.batch);
            let (taken_bytes, result) = self.write_most(&batch);
            self.account(&batch[..taken_bytes], lines, result);
            self.report_losses(now);
            batch.clear();
            batch.append(&mut self.batch); // reports of this write
            self.batch = batch;
        }
    }

    /// Writes `batch` and returns how many of its bytes were taken, also when that fails.
    fn write_most(&mut self, batch: &[u8]) -> (usize, io::Result<()>) {
        let mut taken_bytes = 0;
        while taken_bytes < batch.len() {
            match self.write_some(&batch[taken_bytes..]) {
                Ok(0) => return (taken_bytes, Err(io::ErrorKind::WriteZero.into())),
                Ok(more_bytes) => taken_bytes += more_bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Nobody reads, or another process with the same terminal or pipe made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.shared.stopping.load(Relaxed) {
                        return (taken_bytes, Err(error));
                    }
                    if self.shared.renewing.swap(false, Relaxed) && self.sink.renew() {
                        taken_bytes = self.line_start(batch, taken_bytes);
                        continue;
                    }
                    self.report_dropped(Instant::now());
                    std::thread::park_timeout(LOG_REST);
                }
                Err(error) => return (taken_bytes, Err(error)),
            }
        }
        (taken_bytes, Ok(()))
    }

    /// Where the line begins that was cut after `taken_bytes` of a batch: another file gets all of it. The line feed before a batch
    /// is for the file whose line was torn.
    fn line_start(&self, batch: &[u8], taken_bytes: usize) -> usize {
        let before = batch[..taken_bytes].iter().rposition(|&byte| byte == b'\n');
        before.map_or(self.torn.into(), |end| end + 1)
    }

    fn write_some(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(room_bytes) = self.sink.room_bytes(LOG_STUCK_LOOK_EACH) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        self.sink.write(&bytes[..bytes.len().min(room_bytes)])
    }

    fn renew(&mut self) {
        if self.shared.renewing.swap(false, Relaxed) && self.sink.renew() {
            self.torn = self.sink.ends_torn(); // a line torn here is at the end of the other one
        }
    }

    /// Counts a write that `taken` of a batch of `lines` came through.
    fn account(&mut self, taken: &[u8], lines: u64, result: io::Result<()>) {
        // A line counts as written once its end is; the line feed before the batch ends a line that was lost before.
        let written = line_ends(taken).saturating_sub(self.torn.into());
        self.torn = taken.last().map_or(self.torn, |&last| last != b'\n');
        self.shared.written.fetch_add(written, Relaxed);
        self.shared.failed.fetch_add(lines - written, Relaxed);
        self.losses.add(lines - written, result);
    }

    fn report_losses(&mut self, now: Instant) {
        if let Some(trouble) = self.losses.report(now) {
            self.tell(trouble);
        }
    }

    fn report_dropped(&mut self, now: Instant) {
        let dropped = self.shared.dropped.load(Relaxed);
        if dropped == self.dropped_reported || self.dropped_report_due.is_some_and(|due| now < due)
        {
            return;
        }
        self.tell(Trouble::Dropped {
            lines: dropped - self.dropped_reported,
        });
        self.dropped_reported = dropped;
        self.dropped_report_due = Some(now + LOG_REPORT_INTERVAL);
    }

    fn tell(&mut self, trouble: Trouble) {
        let before = self.batch.len();
        (self.report)(trouble, &mut self.batch);
        self.lines += line_ends(&self.batch[before..]);
    }
}

fn line_ends(text: &[u8]) -> u64 {
    text.iter().filter(|&&byte| byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests;
