//! Runs: READs of one file that lie close together, in whatever order they come.
//!
//! A client has many READs of a file under way at once, and they arrive out of order, so one READ behind another proves nothing.
//! What counts is how densely they cover a stretch of the file. A run whose READs cover half of its stretch or more is read ahead
//! of: what lies behind is wanted part by part, dated by the client's rate, as for a response of HTTP (TPF's stream n). READs that
//! are scattered become runs of their own, or one that is too thin to be read ahead of.

use alloc::vec::Vec;

use super::messages::{Read, Settings};
use crate::conn::{ConnId, ObjectId, Span, StreamId, Want, WantSeq};
use crate::limits::{
    FIRST_READ_BYTES, NFS_CALLS_MAX, NFS_PART_BYTES, NFS_PARTS_MAX, NFS_PAUSE_US, NFS_RATE_US_MIN,
    NFS_RUNS_MAX, RATE_BYTES_PER_S_MAX, REDATE_US_MIN,
};
use crate::send::Supply;
use crate::units::{Instant, US_PER_S};

/// READs that a client may have under way at once and out of order: a READ so many times its length away from the highest one is
/// still near.
const NEAR_READS: u64 = NFS_CALLS_MAX as u64;
/// The stretch of a run is what its last READs would cover, this many times.
const STRETCH_READS: u64 = 4 * NEAR_READS;

/// A run, by its place, and how often that was used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunId {
    index: usize,
    nth: u16,
}

/// How the bytes of a READ come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comes {
    /// By a want of its own.
    ByItself,
    /// With what its run has read ahead.
    WithRun,
}

/// READs of one file that lie close together.
struct Run {
    nth: u16,
    object: ObjectId,
    file_len_bytes: u64,
    /// The stretch: from here...
    base_bytes: u64,
    /// ...to the end of the highest READ.
    high_bytes: u64,
    /// How much of it was asked for.
    asked_bytes: u64,
    /// READs so far.
    reads: u32,
    asked_at: Instant,
    rate: RunRate,
    /// Where the next part begins that is read ahead; `None`: nothing is.
    next_bytes: Option<u64>,
    /// Up to here READs wait for what is read ahead.
    needed_bytes: u64,
    readers: [Reader; NFS_PARTS_MAX],
}

/// One of the readers that read ahead. Several do, since one want is one read, and a target may be far away.
#[derive(Clone, Copy, Default)]
struct Reader {
    part: Option<Part>,
    /// The number of its last want, and how many were answered.
    seq: WantSeq,
    answers: u32,
}

/// Bytes that are being read ahead.
#[derive(Clone, Copy)]
struct Part {
    /// What has not come of it.
    rest: Span,
    /// The want for that, if it was not answered yet.
    want: Option<Want>,
}

/// How fast a client takes a run.
#[derive(Clone, Copy, Default)]
struct RunRate {
    /// B_n; 0: not known yet.
    bytes_per_s: u64,
    since: Instant,
    bytes: u64,
    /// A READ had to wait for its bytes since then: the client may be faster.
    is_starved: bool,
}

/// Memory of all runs.
pub(super) const BYTES_MAX: usize = NFS_RUNS_MAX * size_of::<Run>();

/// All runs of a connection.
pub(super) struct Runs {
    settings: Settings,
    runs: Vec<Run>,
    /// Congestion signals that the connection has had.
    signals: u32,
}

impl Runs {
    pub fn new(settings: Settings) -> Runs {
        Runs {
            settings,
            runs: Vec::new(),
            signals: 0,
        }
    }

    /// A READ has come: the run that it belongs to. `None`: there are too many. May replace a run, whose readers are returned: they
    /// are to be forgotten. `is_needed` tells for which runs READs wait.
    pub fn asked(
        &mut self,
        read: &Read,
        is_needed: impl Fn(RunId) -> bool,
        now: Instant,
    ) -> (Option<RunId>, Vec<StreamId>) {
        if let Some(index) = self.runs.iter().position(|run| run.is_near(read)) {
            self.runs[index].add(read, now);
            return (Some(self.id(index)), Vec::new());
        }
        let mut run = Run::new(read, now);
        if self.runs.len() < NFS_RUNS_MAX {
            self.runs.push(run);
            return (Some(self.id(self.runs.len() - 1)), Vec::new());
        }
        let unneeded = (0..self.runs.len()).filter(|index| !is_needed(self.id(*index)));
        let Some(oldest) = unneeded.min_by_key(|index| self.runs[*index].asked_at) else {
            return (None, Vec::new());
        };
        let forgotten = self.known(oldest).collect();
        run.nth = self.runs[oldest].nth.wrapping_add(1);
        self.runs[oldest] = run;
        (Some(self.id(oldest)), forgotten)
    }

    /// The bytes of a READ are not in memory: how they come there.
    pub fn missing(&mut self, id: Option<RunId>, read: &Read) -> Comes {
        let Some(run) = self.get_mut(id) else {
            return Comes::ByItself;
        };
        run.rate.is_starved = true;
        if let Some(next_bytes) = run.next_bytes {
            return run.comes(read.span, next_bytes);
        }
        if run.is_dense() {
            run.next_bytes = Some(run.high_bytes);
        }
        Comes::ByItself
    }

    /// The bytes of a READ are in memory: nothing needs to be read ahead of them.
    pub fn resident(&mut self, id: Option<RunId>, read: &Read) {
        let Some(run) = self.get_mut(id) else {
            return;
        };
        if let Some(next_bytes) = run.next_bytes {
            let follows = read.span.offset_bytes <= next_bytes;
            if follows && run.readers.iter().all(|reader| reader.part.is_none()) {
                run.next_bytes = Some(next_bytes.max(read.span.end_bytes()));
            }
        }
    }

    /// The wants that the disk machine is to be told now, or with a new deadline.
    pub fn wants(&mut self, id: RunId, now: Instant, mut tell: impl FnMut(Want)) {
        for nth in 0..NFS_PARTS_MAX {
            let (stream, signals) = (self.stream(id, nth), self.signals);
            let want = self
                .get_mut(Some(id))
                .and_then(|run| run.want(nth, stream, signals, now));
            want.into_iter().for_each(&mut tell);
        }
    }

    /// The path is congested, and carries at most this much if that is known. Wants whose deadline that moves are to be told.
    pub fn congest(
        &mut self,
        most_bytes_per_s: Option<u64>,
        now: Instant,
        mut tell: impl FnMut(Want),
    ) {
        self.signals = self.signals.wrapping_add(1);
        for index in 0..self.runs.len() {
            let rate = &mut self.runs[index].rate.bytes_per_s;
            *rate = (*rate).min(most_bytes_per_s.unwrap_or(u64::MAX).max(1));
            self.wants(self.id(index), now, &mut tell);
        }
    }

    /// Whether anything is being read ahead.
    pub fn read_ahead(&self) -> bool {
        let mut readers = self.runs.iter().flat_map(|run| &run.readers);
        readers.any(|reader| reader.part.is_some())
    }

    /// A want of this reader is answered. Late answers are void: `None`.
    pub fn fetched(&mut self, stream: StreamId, seq: WantSeq, span: Span) -> Option<RunId> {
        let (id, nth) = self.of_stream(stream)?;
        let reader = &mut self.get_mut(Some(id))?.readers[nth];
        let part = reader.part.as_mut()?;
        part.want.take_if(|want| want.seq == seq)?;
        reader.answers = reader.answers.wrapping_add(1);
        let came_bytes = span.end_bytes().saturating_sub(part.rest.offset_bytes);
        part.rest = part.rest.behind(came_bytes);
        reader.part.take_if(|part| part.rest.len_bytes == 0);
        Some(id)
    }

    /// A want of this reader failed: nothing is read ahead any more, and each READ wants for itself. Late answers are void.
    pub fn fetch_failed(&mut self, stream: StreamId, seq: WantSeq) -> Option<RunId> {
        let (id, nth) = self.of_stream(stream)?;
        let run = self.get_mut(Some(id))?;
        let part = run.readers[nth].part.as_mut()?;
        part.want.take_if(|want| want.seq == seq)?;
        run.next_bytes = None;
        for reader in &mut run.readers {
            reader.part = None; // a late answer finds none
        }
        Some(id)
    }

    /// Whether all these bytes were read ahead; `None`: nothing is read ahead.
    pub fn has_read(&self, id: RunId, span: Span) -> Option<bool> {
        let run = self.runs.get(id.index).filter(|run| run.nth == id.nth)?;
        let next_bytes = run.next_bytes?;
        Some(span.end_bytes() <= next_bytes && !run.reads(span))
    }

    /// All readers that a disk machine may know.
    pub fn all_known(&self) -> impl Iterator<Item = StreamId> + '_ {
        (0..self.runs.len()).flat_map(|index| self.known(index))
    }

    fn id(&self, index: usize) -> RunId {
        let nth = self.runs[index].nth;
        RunId { index, nth }
    }

    fn get_mut(&mut self, id: Option<RunId>) -> Option<&mut Run> {
        let id = id?;
        let run = self.runs.get_mut(id.index)?;
        (run.nth == id.nth).then_some(run)
    }

    /// The readers of this run that have ever wanted.
    fn known(&self, index: usize) -> impl Iterator<Item = StreamId> + '_ {
        let readers = self.runs[index].readers.iter().enumerate();
        let known = readers.filter(|(_, reader)| reader.seq != WantSeq::default());
        known.map(move |(nth, _)| self.stream(self.id(index), nth))
    }

    /// The readers of runs are those behind the calls' own.
    fn stream(&self, id: RunId, nth: usize) -> StreamId {
        let index = NFS_CALLS_MAX + id.index * NFS_PARTS_MAX + nth;
        reader(&self.settings, index, id.nth)
    }

    fn of_stream(&self, stream: StreamId) -> Option<(RunId, usize)> {
        let first = self.settings.readers.index as usize + NFS_CALLS_MAX;
        let nth = (stream.conn.index as usize).checked_sub(first)?;
        let (index, nth) = (nth / NFS_PARTS_MAX, nth % NFS_PARTS_MAX);
        let id = (index < self.runs.len()).then(|| self.id(index))?;
        (self.stream(id, nth) == stream).then_some((id, nth))
    }
}

/// A reader of the connection.
pub(super) fn reader(settings: &Settings, index: usize, nth: u16) -> StreamId {
    let first = settings.readers;
    let index = first.index + index as u32; // below READERS
    let conn = ConnId { index, ..first };
    StreamId {
        worker: settings.worker,
        conn,
        nth,
    }
}

/// The rate of a client that waits for so much, as far as the disk machine needs to know one: all of it is to be one read. 0: a
/// first read is as long.
pub(super) fn waiting_rate(len_bytes: u64) -> u64 {
    match len_bytes {
        0..=FIRST_READ_BYTES => 0,
        _ => len_bytes.saturating_mul(US_PER_S / NFS_RATE_US_MIN),
    }
}

/// Whether a want needs to be told again: it had no rate and has one now, or its deadline moved by more than an eighth of its
/// distance.
fn is_moved(told: &Want, underrun_at: Instant, rate_bytes_per_s: u64, now: Instant) -> bool {
    let moved_us = told.underrun_at.since_us(underrun_at) + underrun_at.since_us(told.underrun_at);
    let is_late = told.underrun_at <= now && underrun_at <= now;
    let is_known = told.rate_bytes_per_s == 0 && rate_bytes_per_s > 0;
    is_known || !is_late && moved_us > REDATE_US_MIN.max(told.underrun_at.since_us(now) / 8)
}

impl Run {
    fn new(read: &Read, now: Instant) -> Run {
        let mut run = Run {
            nth: 0,
            object: read.object,
            file_len_bytes: read.file_len_bytes,
            base_bytes: read.span.offset_bytes,
            high_bytes: read.span.offset_bytes,
            asked_bytes: 0,
            reads: 0,
            asked_at: now,
            rate: RunRate {
                since: now,
                ..RunRate::default()
            },
            next_bytes: None,
            needed_bytes: 0,
            readers: [Reader::default(); NFS_PARTS_MAX],
        };
        run.add(read, now);
        run
    }

    fn is_near(&self, read: &Read) -> bool {
        let (span, near_bytes) = (read.span, NEAR_READS * read.span.len_bytes);
        self.object == read.object
            && span.offset_bytes <= self.high_bytes.saturating_add(near_bytes)
            && span.end_bytes().saturating_add(near_bytes) >= self.high_bytes
    }

    fn add(&mut self, read: &Read, now: Instant) {
        let span = read.span;
        // Of a file that has become shorter: a read behind its end fails, and nothing more is read ahead.
        self.file_len_bytes = self.file_len_bytes.max(read.file_len_bytes);
        self.base_bytes = self.base_bytes.min(span.offset_bytes);
        self.high_bytes = self.high_bytes.max(span.end_bytes());
        self.asked_bytes += span.len_bytes;
        self.reads = self.reads.saturating_add(1);
        let stretch_bytes = self.high_bytes - self.base_bytes;
        let most_bytes = STRETCH_READS * span.len_bytes;
        if stretch_bytes > most_bytes {
            let kept = u128::from(self.asked_bytes) * u128::from(most_bytes);
            self.asked_bytes = (kept / u128::from(stretch_bytes)) as u64; // less than before
            self.base_bytes = self.high_bytes - most_bytes;
        }
        self.asked_bytes = self.asked_bytes.min(self.high_bytes - self.base_bytes);
        self.asked_at = now;
        self.rate.asked(span.len_bytes, now);
    }

    /// Whether some of these bytes are being read ahead.
    fn reads(&self, span: Span) -> bool {
        let mut parts = self.readers.iter().filter_map(|reader| reader.part);
        parts.any(|part| part.rest.overlaps(span))
    }

    /// How bytes come that are not in memory, if reading ahead has come up to the next part. A run that has become thin reads ahead
    /// no more.
    fn comes(&mut self, span: Span, next_bytes: u64) -> Comes {
        let is_next = span.end_bytes() > next_bytes && self.is_dense();
        if !is_next && !self.reads(span) {
            return Comes::ByItself;
        }
        self.needed_bytes = self.needed_bytes.max(span.end_bytes());
        Comes::WithRun
    }

    /// The want of this reader, if there is one to be told.
    fn want(&mut self, nth: usize, stream: StreamId, signals: u32, now: Instant) -> Option<Want> {
        if self.readers[nth].part.is_none() {
            self.begin_part(nth, now);
        }
        let reader = &mut self.readers[nth];
        let part = reader.part.as_mut()?;
        let waited_bytes = self.high_bytes.saturating_sub(part.rest.offset_bytes);
        let supply = Supply {
            socket_bytes: 0, // D1 is not known
            rate_bytes_per_s: self.rate.bytes_per_s.max(waiting_rate(waited_bytes)),
            full: false,
        };
        let ahead_bytes = part.rest.offset_bytes.saturating_sub(self.high_bytes); // D2 and D3
        let underrun_at = supply.underrun_at(ahead_bytes, now);
        let rate_bytes_per_s = supply.rate_bytes_per_s;
        let seq = match part.want {
            Some(told) if !is_moved(&told, underrun_at, rate_bytes_per_s, now) => return None,
            Some(told) => told.seq,
            None => reader.seq.next(),
        };
        reader.seq = seq;
        part.want = Some(Want {
            stream,
            object: self.object,
            span: part.want.map_or(part.rest, |told| told.span),
            underrun_at,
            rate_bytes_per_s,
            seq,
            answers: reader.answers,
            signals,
            through_cache: true,
        });
        part.want
    }

    /// Gives this reader the next part, unless the file ends. If no READ waits for that, the client must not have paused, and one
    /// of unknown rate has one part at a time.
    fn begin_part(&mut self, nth: usize, now: Instant) {
        let Some(next_bytes) = self.next_bytes else {
            return;
        };
        let is_needed = next_bytes < self.needed_bytes;
        let is_paused = now.since_us(self.asked_at) > NFS_PAUSE_US;
        let is_one_enough = self.rate.bytes_per_s == 0 && nth > 0;
        let may_wait = is_paused || is_one_enough || !self.is_dense();
        let len_bytes = self
            .file_len_bytes
            .saturating_sub(next_bytes)
            .min(NFS_PART_BYTES);
        if may_wait && !is_needed || len_bytes == 0 {
            return;
        }
        let rest = Span {
            offset_bytes: next_bytes,
            len_bytes,
        };
        self.readers[nth].part = Some(Part { rest, want: None });
        self.next_bytes = Some(rest.end_bytes());
    }

    /// Whether it is read ahead of: more than one READ covers at least half of the stretch.
    fn is_dense(&self) -> bool {
        self.reads > 1 && self.asked_bytes >= (self.high_bytes - self.base_bytes) / 2
    }
}

impl RunRate {
    /// So much was asked for. A client that never had to wait takes as much as it asks for. One that had to, and took all that was
    /// believed, might take twice as much.
    fn asked(&mut self, len_bytes: u64, now: Instant) {
        self.bytes += len_bytes;
        let us = now.since_us(self.since);
        if us < NFS_RATE_US_MIN {
            return;
        }
        let sample = u128::from(self.bytes) * u128::from(US_PER_S) / u128::from(us);
        let sample = u64::try_from(sample).unwrap_or(u64::MAX);
        let rate = match (self.is_starved, self.bytes_per_s) {
            (false, 0) => sample,
            (false, rate) => rate / 2 + sample / 2,
            (true, rate) if sample >= rate / 10 * 9 => sample.saturating_mul(2),
            // The target may be what is slow.
            (true, rate) if sample < rate / 2 => rate - (rate - sample) / 4,
            (true, rate) => rate,
        };
        *self = RunRate {
            bytes_per_s: rate.clamp(1, RATE_BYTES_PER_S_MAX),
            since: now,
            bytes: 0,
            is_starved: false,
        };
    }
}
