//! The load of NFS: connections with several READs under way each, in one thread.

use super::calls::Blocking;
use super::conn::{Answered, Asked, Conn};
use super::walk::Walk;
use super::{Reads, Server};
use ackpace_lab_base::content::{self, Tag};
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_swarm::histogram::Histogram;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Of so many READs the bytes of one are compared.
const CHECKED_EACH: u64 = 64;
/// Bytes taken by one call of recv, where they are not discarded; as long as the longest READ.
const BUFFER_BYTES: usize = 1 << 20;
/// Calls of recv for one event, after which the other connections have their turn.
const RECVS_MAX: usize = 16;
/// A paced load looks for calls that are due this often.
const TICK: Duration = Duration::from_micros(500);
/// Longest wait for events.
const WAIT_MAX: Duration = Duration::from_millis(20);
/// Events taken by one wait.
const EVENTS: usize = 64;

/// The results of one window.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct WindowCounts {
    /// Length of the window.
    pub elapsed_s: f64,
    /// Bytes of payload.
    pub body_bytes: u64,
    /// READs that were answered.
    pub responses: u64,
    /// Those among them whose bytes were compared.
    pub checked: u64,
    /// Number of recv calls.
    pub recvs: u64,
    /// CPU time of the load.
    pub load_cpu_s: f64,
    /// Time from a call to the last byte of its reply, median.
    pub read_p50_us: u64,
    /// The same, 99th percentile.
    pub read_p99_us: u64,
}

/// A file that is read.
struct Target {
    handle: Vec<u8>,
    tag: Tag,
}

/// A connection and what it reads.
struct Reader {
    conn: Conn,
    walk: Walk,
}

/// A running load.
pub struct Load {
    who: String,
    reads: Reads,
    epoll: rustix::fd::OwnedFd,
    files: Vec<Target>,
    readers: Vec<Reader>,
    buffer: Vec<u8>,
    answered: Vec<Answered>,
    began: Instant,
    asked: u64,
    counts: WindowCounts,
    times: Histogram,
}

impl Load {
    /// Opens all connections, finds the files and makes the first calls.
    ///
    /// # Errors
    /// The server can't be reached, or lacks a file.
    pub fn start(server: &Server, reads: &Reads) -> Result<Self> {
        let mut load = Self {
            who: server.name.clone(),
            reads: reads.clone(),
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).doing(|| "epoll_create".into())?,
            files: find(server, reads)?,
            readers: Vec::with_capacity(reads.connections),
            buffer: vec![0; BUFFER_BYTES],
            answered: Vec::new(),
            began: Instant::now(),
            asked: 0,
            counts: WindowCounts::default(),
            times: Histogram::default(),
        };
        for index in 0..reads.connections {
            let socket = Blocking::connect(server, server.nfs)?.into_stream()?;
            let conn = Conn::new(socket, reads.under_way, reads.len_bytes);
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&load.epoll, conn.socket(), data, epoll::EventFlags::IN)
                .doing(|| "epoll_ctl".into())?;
            let walk = Walk::new(index, reads);
            load.readers.push(Reader { conn, walk });
        }
        load.began = Instant::now();
        load.ask_all()?;
        Ok(load)
    }

    /// Reads for `window` and returns its counts. The load continues between two calls.
    ///
    /// # Errors
    /// The first wrong answer, as the contender's fault; or a failed system call.
    pub fn run_for(&mut self, window: Duration) -> Result<WindowCounts> {
        (self.counts, self.times) = (WindowCounts::default(), Histogram::default());
        let cpu_s = thread_cpu_s();
        let start = Instant::now();
        let wait = match self.reads.rate_bytes_per_s {
            Some(_) => TICK,
            None => WAIT_MAX,
        };
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: wait.as_nanos() as _,
        };
        let mut events = Vec::with_capacity(EVENTS);
        while start.elapsed() < window && !self.is_done() {
            events.clear();
            let room = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, room, Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).doing(|| "epoll_wait".into()),
            }
            for event in &events {
                self.readable(event.data.u64() as usize)?;
            }
            if self.reads.rate_bytes_per_s.is_some() {
                self.ask_all()?;
            }
        }
        let mut counts = std::mem::take(&mut self.counts);
        counts.elapsed_s = start.elapsed().as_secs_f64();
        counts.load_cpu_s = thread_cpu_s() - cpu_s;
        counts.read_p50_us = self.times.quantile_us(0.5).unwrap_or(0);
        counts.read_p99_us = self.times.quantile_us(0.99).unwrap_or(0);
        Ok(counts)
    }

    /// True if each connection has read its file, and reads no more.
    fn is_done(&self) -> bool {
        let is_done = |reader: &Reader| reader.walk.is_at_end() && !reader.conn.waits();
        self.reads.is_once && self.readers.iter().all(is_done)
    }

    /// Makes the calls that are due, divided among the connections.
    fn ask_all(&mut self) -> Result<()> {
        let readers = self.readers.len();
        let Some(rate) = self.reads.rate_bytes_per_s else {
            return (0..readers).try_for_each(|index| self.ask(index, u64::MAX));
        };
        let so_far_bytes = self.began.elapsed().as_secs_f64() * rate as f64;
        let due = (so_far_bytes / f64::from(self.reads.len_bytes)) as u64;
        // A server that has fallen behind is not asked to make up for more than one turn.
        let turn = (readers * self.reads.under_way) as u64;
        self.asked = self.asked.max(due.saturating_sub(turn));
        let first = self.asked as usize;
        for step in 0..readers {
            let share = (due - self.asked).div_ceil((readers - step) as u64);
            self.ask((first + step) % readers, share)?;
        }
        Ok(())
    }

    /// Makes at most so many calls on a connection, as far as it has room for them.
    fn ask(&mut self, index: usize, most: u64) -> Result<()> {
        let Reader { conn, walk } = &mut self.readers[index];
        let since = Instant::now();
        for _ in 0..most {
            if !conn.has_room() || (self.reads.is_once && walk.is_at_end()) {
                break;
            }
            let asked = Asked {
                offset_bytes: walk.next_bytes(),
                since,
                is_checked: self.asked % CHECKED_EACH == 0,
            };
            conn.ask(&self.files[index % self.files.len()].handle, asked);
            self.asked += 1;
        }
        conn.send().doing(|| format!("{}: sending calls", self.who))
    }

    fn readable(&mut self, index: usize) -> Result<()> {
        for _ in 0..RECVS_MAX {
            self.counts.recvs += 1;
            let conn = &mut self.readers[index].conn;
            let received = conn.receive(&mut self.buffer, &mut self.answered);
            if !received.map_err(|what| LabError::contender(&self.who, what))? {
                break;
            }
        }
        let now = Instant::now();
        for one in std::mem::take(&mut self.answered) {
            self.counts.responses += 1;
            self.counts.body_bytes += u64::from(one.payload_bytes);
            let took = now.duration_since(one.asked.since);
            self.times.add(took.as_micros() as u64);
            if let Some(payload) = &one.payload {
                self.check(index, &one, payload)?;
            }
        }
        match self.reads.rate_bytes_per_s {
            None => self.ask(index, u64::MAX),
            Some(_) => Ok(()),
        }
    }

    fn check(&mut self, index: usize, one: &Answered, payload: &[u8]) -> Result<()> {
        self.counts.checked += 1;
        let tag = self.files[index % self.files.len()].tag;
        let payload = &payload[..one.payload_bytes as usize];
        compare(&self.who, tag, one.asked.offset_bytes, payload)
    }
}

/// Compares bytes with what the file has there.
///
/// # Errors
/// The first wrong one.
pub fn compare(who: &str, tag: Tag, offset_bytes: u64, bytes: &[u8]) -> Result<()> {
    match content::first_wrong(tag, offset_bytes, bytes) {
        None => Ok(()),
        Some(wrong) => Err(LabError::contender(
            who,
            format!("READ at {offset_bytes}: byte {wrong} of the file is wrong"),
        )),
    }
}

fn find(server: &Server, reads: &Reads) -> Result<Vec<Target>> {
    let top = Blocking::connect(server, server.mount)?.mount()?;
    let mut client = Blocking::connect(server, server.nfs)?;
    let mut found = Vec::new();
    for (path, _) in reads.of.list() {
        let name = path.trim_start_matches('/');
        found.push(Target {
            handle: client.look_up(&top, name)?,
            tag: Tag::of(&path),
        });
    }
    Ok(found)
}

fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
