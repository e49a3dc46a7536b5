//! A world of one client with one file, one connection, and one target behind the disk machine.

use alloc::collections::{BTreeMap, VecDeque};

use super::*;
use crate::disk::{self, Destination, Disk, Layout};

/// A target that is so far away, and so fast.
pub const TARGET_US: u64 = 10_000;
pub const TARGET_BYTES_PER_S: u64 = 400_000_000;

/// What happens later.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A READ of the client arrives, at this byte.
    Asked(u64),
    /// So many bytes of a read of the target have come.
    Part(disk::ReadId, Span, u64),
    /// It is done.
    Done(disk::ReadId, Span),
    /// The last turn was not enough.
    Turn,
    /// The socket takes output again.
    Writable,
}

/// One client with one file, one connection, one target.
pub struct World {
    now: Instant,
    pub nfs: Nfs,
    disk: Disk,
    arriving: bool,
    /// Things go wrong: bytes are evicted, sockets are full; and reads of the target fail.
    pub faults: bool,
    pub reads_fail: bool,
    /// The machine has closed the connection.
    pub is_closed: bool,
    /// How long the client waits before it asks again.
    pub thinks_us: u64,
    /// The most that was read ahead of it.
    pub ahead_bytes_max: u64,
    /// By time, and in order of coming.
    events: BTreeMap<(Instant, u64), Event>,
    next: u64,
    /// Until then the target's line is taken.
    line_until: Instant,
    /// How much of the file is kept in memory: what was read last.
    pub page_cache_bytes: u64,
    kept: VecDeque<Span>,
    kept_bytes: u64,
    /// Which pieces of 4 KiB are in memory.
    resident: Vec<bool>,
    pub read_bytes: u64,
    /// The byte at which each call reads, if it has not failed.
    calls: BTreeMap<CallId, Option<u64>>,
    asked: Vec<u64>,
    pub answered_bytes: u64,
    len_bytes: u64,
    pub rng: u64,
}

const PIECE_BYTES: u64 = 4 * KIB;
/// What a target that is arriving hands on at a time.
const CHUNK_BYTES: u64 = 256 * KIB;

impl World {
    /// `arriving`: the target's bytes are handed on as they come.
    pub fn new(len_bytes: u64, arriving: bool) -> World {
        let settings = disk::Settings {
            arriving,
            rotational: false,
            memory_bytes: 64 << 20,
            page_cache_bytes: 1 << 30,
            reads: Some(16),
            ..disk::Settings::ONE_DISK
        };
        World {
            now: NOW,
            nfs: Nfs::new(SETTINGS, NOW),
            disk: Disk::new(settings),
            arriving,
            faults: false,
            reads_fail: false,
            is_closed: false,
            thinks_us: 0,
            ahead_bytes_max: 0,
            events: BTreeMap::new(),
            next: 0,
            line_until: NOW,
            page_cache_bytes: u64::MAX,
            kept: VecDeque::new(),
            kept_bytes: 0,
            resident: vec![false; (len_bytes / PIECE_BYTES) as usize],
            read_bytes: 0,
            calls: BTreeMap::new(),
            asked: Vec::new(),
            answered_bytes: 0,
            len_bytes,
            rng: 1,
        }
    }

    fn later(&mut self, us: u64, event: Event) {
        self.next += 1;
        self.events.insert((self.now.plus_us(us), self.next), event);
    }

    fn pieces(&mut self, span: Span) -> &mut [bool] {
        let (from, end) = (span.offset_bytes, span.end_bytes().min(self.len_bytes));
        let [from, end] = [from / PIECE_BYTES, end.div_ceil(PIECE_BYTES)];
        &mut self.resident[from as usize..end as usize]
    }

    /// The client reads these bytes, some READs of a length at once, which arrive in random order. Returns its rate.
    pub fn read(
        &mut self,
        offsets: impl IntoIterator<Item = u64>,
        each_bytes: u64,
        at_once: usize,
    ) -> u64 {
        let mut offsets = offsets.into_iter();
        let mut asked = 0;
        let mut steps = 0;
        offsets.by_ref().take(at_once).for_each(|at_bytes| {
            asked += 1;
            self.ask(at_bytes);
        });
        while self.answered_bytes < asked * each_bytes && !self.is_closed {
            steps += 1;
            assert!(steps < 1_000_000, "it does not end");
            let next = self.events.pop_first();
            let ((at, _), event) =
                next.unwrap_or_else(|| panic!("stuck: {:?}", self.disk.forgotten()));
            self.now = at;
            self.happens(event);
            let before_bytes = self.answered_bytes;
            self.turn(each_bytes);
            let ahead_bytes = self.read_bytes.saturating_sub(self.answered_bytes);
            self.ahead_bytes_max = self.ahead_bytes_max.max(ahead_bytes);
            // Each answer lets the client ask for more.
            let answers = (self.answered_bytes - before_bytes) / each_bytes;
            for at_bytes in offsets.by_ref().take(answers as usize) {
                asked += 1;
                self.ask(at_bytes);
            }
        }
        self.answered_bytes * 1_000_000 / self.now.since_us(NOW)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Asked(at_bytes) => self.asked.push(at_bytes),
            Event::Part(read, span, len_bytes) => {
                self.pieces(Span { len_bytes, ..span }).fill(true);
                self.disk.on(disk::In::Part { read, len_bytes }, self.now);
            }
            Event::Done(read, span) => {
                let result = match self.reads_fail && self.fails(20) {
                    false => Ok(span.len_bytes),
                    true => Err(disk::ReadError {
                        errno: 5,
                        offset_bytes: span.offset_bytes,
                    }),
                };
                if result.is_ok() {
                    self.pieces(span).fill(true);
                    self.keep(span);
                }
                self.disk.on(disk::In::Done { read, result }, self.now);
            }
            Event::Turn => {}
            Event::Writable => self.nfs.on(In::Tcp(TcpEvent::Writable), self.now),
        }
    }

    fn keep(&mut self, span: Span) {
        self.kept.push_back(span);
        self.kept_bytes += span.len_bytes;
        while self.kept_bytes > self.page_cache_bytes {
            let oldest = self.kept.pop_front().expect("what is kept");
            self.kept_bytes -= oldest.len_bytes;
            self.pieces(oldest).fill(false);
        }
    }

    /// A READ arrives within 200 us after the client's pause.
    fn ask(&mut self, at_bytes: u64) {
        let us = self.thinks_us + 1 + self.random(200);
        self.later(us, Event::Asked(at_bytes));
    }

    pub fn random(&mut self, below: u64) -> u64 {
        let (factor, term) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.rng = u64::wrapping_mul(self.rng, factor).wrapping_add(term);
        (self.rng >> 33) % below
    }

    /// Orders of both machines, as many as a turn has; the rest follow a little later.
    fn turn(&mut self, each_bytes: u64) {
        let now = self.now;
        self.nfs.on(In::Tcp(TcpEvent::Readable), now);
        for _ in 0..256 {
            if let Some(out) = self.nfs.poll(now) {
                self.execute(out, each_bytes);
            } else if let Some(out) = self.disk.poll(now) {
                self.target(out);
            } else {
                return;
            }
        }
        self.later(10, Event::Turn);
    }

    fn execute(&mut self, out: Out, each_bytes: u64) {
        let now = self.now;
        match out {
            Out::Receive => {
                let received = match self.asked.is_empty() {
                    true => Received::Nothing,
                    false => Received::Call {
                        reply_bytes_max: 512,
                    },
                };
                self.nfs.on(In::Received(received), now);
            }
            Out::Resolve(call) => {
                let at_bytes = self.asked.remove(0);
                self.calls.insert(call, Some(at_bytes));
                let Answer::Read(read) = read_of(FILE, at_bytes, each_bytes) else {
                    unreachable!("it is a READ");
                };
                let file_len_bytes = self.len_bytes;
                let answer = Answer::Read(Read {
                    file_len_bytes,
                    ..read
                });
                self.nfs.on(In::Resolved { call, answer }, now);
            }
            Out::Probe { call, span, .. } => {
                let is_resident = self.pieces(span).iter().all(|piece| *piece);
                self.nfs.on(In::Probed { call, is_resident }, now);
            }
            Out::Want(want) => self.disk.on(disk::In::Want(want), now),
            Out::Forget(stream) => self.disk.on(disk::In::Forget(stream), now),
            Out::Send {
                call, from_bytes, ..
            } => self.send(call, from_bytes, each_bytes),
            Out::Left(call) => {
                self.calls.remove(&call);
                self.answered_bytes += each_bytes;
            }
            Out::Refuse { call, .. } => {
                assert!(self.faults);
                self.calls.insert(call, None);
                let answer = Answer::Reply { len_bytes: 40 };
                self.nfs.on(In::Resolved { call, answer }, now);
            }
            Out::Close { .. } => {
                assert!(self.faults);
                self.is_closed = true;
            }
        }
    }

    fn send(&mut self, call: CallId, from_bytes: u64, each_bytes: u64) {
        let len_bytes = match self.calls[&call] {
            Some(_) => 128 + each_bytes,
            None => 40,
        };
        assert!(from_bytes < len_bytes);
        if let Some(offset_bytes) = self.calls[&call] {
            let span = Span {
                offset_bytes,
                len_bytes: each_bytes,
            };
            let rest = span.behind(from_bytes.saturating_sub(128));
            if self.fails(10) {
                self.pieces(rest).fill(false);
            }
            if !self.pieces(rest).iter().all(|piece| *piece) {
                assert!(self.faults, "not in memory");
                return self.nfs.on(In::Missing, self.now);
            }
        }
        let full = self.fails(5);
        let mut taken_bytes = len_bytes - from_bytes;
        if full {
            taken_bytes = self.random(taken_bytes + 1);
            self.later(500, Event::Writable);
        }
        self.nfs.on(In::Sent { taken_bytes, full }, self.now);
    }

    /// Once in so many times, if things go wrong at all.
    fn fails(&mut self, times: u64) -> bool {
        self.faults && self.random(times) == 0
    }

    fn target(&mut self, out: disk::Out) {
        let now = self.now;
        match out {
            disk::Out::Map(object) => {
                let (layout, direct) = (Layout::default(), false);
                let mapped = disk::In::Mapped {
                    object,
                    layout,
                    direct,
                };
                self.disk.on(mapped, now);
            }
            disk::Out::Read {
                read, span, into, ..
            } => {
                assert_eq!(into, Destination::PageCache);
                let begins = self.line_until.max(now);
                let us = span.len_bytes * 1_000_000 / TARGET_BYTES_PER_S;
                self.line_until = begins.plus_us(us);
                self.read_bytes += span.len_bytes;
                if self.arriving {
                    let before_us = begins.since_us(now) + TARGET_US;
                    for nth in 1..span.len_bytes.div_ceil(CHUNK_BYTES) {
                        let came_bytes = nth * CHUNK_BYTES;
                        let came_us = came_bytes * 1_000_000 / TARGET_BYTES_PER_S;
                        self.later(before_us + came_us, Event::Part(read, span, came_bytes));
                    }
                }
                let done_us = self.line_until.since_us(now) + TARGET_US;
                self.later(done_us, Event::Done(read, span));
            }
            disk::Out::Fetched {
                stream, seq, span, ..
            } => self.nfs.on(In::Fetched { stream, seq, span }, now),
            disk::Out::Cancel(_) => {}
            disk::Out::Failed { stream, seq, .. } => {
                let why = Why::ReadFailed;
                self.nfs.on(In::FetchFailed { stream, seq, why }, now);
            }
        }
    }
}
