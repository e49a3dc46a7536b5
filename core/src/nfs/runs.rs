//! Runs: READs of one file that lie close together, in whatever order they come.
//!
//! A client has many READs of a file under way at once, and they arrive out of order, so one READ behind another proves nothing.
//! What counts is how densely they cover a stretch of the file. A run whose READs cover half of its stretch or more is read ahead
//! of: it has one want for all bytes behind what was asked for, and is to the disk machine what a response of HTTP is (TPF's
//! stream n). READs that are scattered become runs of their own, or one that is too thin to be read ahead of.

use alloc::vec::Vec;

use super::messages::{Read, Settings};
use crate::conn::{ConnId, ObjectId, Span, StreamId, Want, WantSeq};
use crate::limits::{
    NFS_CALLS_MAX, NFS_PAUSE_US, NFS_RATE_US_MIN, NFS_RUNS_MAX, RATE_BYTES_PER_S_MAX,
    READ_BYTES_MAX, REDATE_US_MIN,
};
use crate::send::Supply;
use crate::units::{Instant, US_PER_S};

/// READs that a client may have under way at once and out of order: a READ so many times its length away is still near.
const NEAR_READS: u64 = 16;
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
    ahead: Option<Ahead>,
    /// The number of the last want, and how many were answered.
    seq: WantSeq,
    answers: u32,
}

/// What is read ahead of a run.
#[derive(Clone, Copy)]
struct Ahead {
    /// All bytes up to here were read, from where reading ahead began.
    end_bytes: u64,
    /// The want that was not answered yet.
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

/// All runs of a connection.
pub(super) struct Runs {
    settings: Settings,
    runs: Vec<Run>,
}

impl Runs {
    pub fn new(settings: Settings) -> Runs {
        let runs = Vec::new();
        Runs { settings, runs }
    }

    /// A READ has come: the run that it belongs to. `None`: there are too many. May replace a run, whose reader is returned: it is
    /// to be forgotten. `is_needed` tells for which runs READs wait.
    pub fn asked(
        &mut self,
        read: &Read,
        is_needed: impl Fn(RunId) -> bool,
        now: Instant,
    ) -> (Option<RunId>, Option<StreamId>) {
        if let Some(index) = self.runs.iter().position(|run| run.is_near(read)) {
            self.runs[index].add(read, now);
            return (Some(self.id(index)), None);
        }
        let mut run = Run::new(read, now);
        if self.runs.len() < NFS_RUNS_MAX {
            self.runs.push(run);
            return (Some(self.id(self.runs.len() - 1)), None);
        }
        let unneeded = (0..self.runs.len()).filter(|index| !is_needed(self.id(*index)));
        let Some(oldest) = unneeded.min_by_key(|index| self.runs[*index].asked_at) else {
            return (None, None);
        };
        let forgotten = self.known(oldest);
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
        let span = read.span;
        match &run.ahead {
            Some(ahead) => {
                let comes_soon = span.offset_bytes
                    <= ahead.end_bytes.saturating_add(READ_BYTES_MAX)
                    && span.end_bytes() > ahead.end_bytes;
                match comes_soon {
                    true => Comes::WithRun,
                    false => Comes::ByItself,
                }
            }
            None => {
                let ahead = Ahead {
                    end_bytes: run.high_bytes,
                    want: None,
                };
                run.ahead = run.is_dense().then_some(ahead);
                Comes::ByItself
            }
        }
    }

    /// The bytes of a READ are in memory: nothing needs to be read ahead of them.
    pub fn resident(&mut self, id: Option<RunId>, read: &Read) {
        let ahead = self.get_mut(id).and_then(|run| run.ahead.as_mut());
        if let Some(ahead) = ahead {
            let follows = read.span.offset_bytes <= ahead.end_bytes;
            if follows && ahead.want.is_none() {
                ahead.end_bytes = ahead.end_bytes.max(read.span.end_bytes());
            }
        }
    }

    /// The want that the disk machine is to be told now, or with a new deadline.
    pub fn want(&mut self, id: Option<RunId>, now: Instant) -> Option<Want> {
        let stream = self.stream(id?);
        let run = self.get_mut(id)?;
        let end_bytes = run.ahead?.end_bytes;
        let ahead_bytes = end_bytes.saturating_sub(run.high_bytes); // D2 and D3; D1 is not known
        let supply = Supply {
            socket_bytes: 0,
            rate_bytes_per_s: run.rate.bytes_per_s,
            full: false,
        };
        let (rate_bytes_per_s, answers) = (supply.rate_bytes_per_s, run.answers);
        let underrun_at = supply.underrun_at(ahead_bytes, now);
        let is_paused = ahead_bytes > 0 && now.since_us(run.asked_at) > NFS_PAUSE_US;
        let want = match run.ahead?.want {
            Some(told) if !is_moved(&told, underrun_at, rate_bytes_per_s, now) => return None,
            Some(told) => Want {
                underrun_at,
                rate_bytes_per_s,
                answers,
                ..told
            },
            None if is_paused || end_bytes >= run.file_len_bytes => return None,
            None => Want {
                stream,
                object: run.object,
                span: Span {
                    offset_bytes: end_bytes,
                    len_bytes: run.file_len_bytes - end_bytes,
                },
                underrun_at,
                rate_bytes_per_s,
                seq: run.seq.next(),
                answers,
                signals: 0,
            },
        };
        run.seq = want.seq;
        run.ahead = Some(Ahead {
            end_bytes,
            want: Some(want),
        });
        Some(want)
    }

    /// A want of this reader is answered. Late answers are void: `None`.
    pub fn fetched(&mut self, stream: StreamId, seq: WantSeq, span: Span) -> Option<RunId> {
        let id = self.of_stream(stream)?;
        let run = self.get_mut(Some(id))?;
        let ahead = run.ahead.as_mut()?;
        let want = ahead.want.take_if(|want| want.seq == seq)?;
        run.answers = run.answers.wrapping_add(1);
        if span.offset_bytes <= want.span.offset_bytes {
            ahead.end_bytes = ahead.end_bytes.max(span.end_bytes());
        }
        Some(id)
    }

    /// A want of this reader failed: nothing is read ahead any more, and each READ wants for itself. Late answers are void.
    pub fn fetch_failed(&mut self, stream: StreamId, seq: WantSeq) -> Option<RunId> {
        let id = self.of_stream(stream)?;
        let run = self.get_mut(Some(id))?;
        run.ahead.as_mut()?.want.take_if(|want| want.seq == seq)?;
        run.ahead = None;
        Some(id)
    }

    /// Whether what was read ahead reaches this far; `None`: nothing is read ahead.
    pub fn reaches(&self, id: RunId, end_bytes: u64) -> Option<bool> {
        let run = self.runs.get(id.index).filter(|run| run.nth == id.nth)?;
        Some(run.ahead.as_ref()?.end_bytes >= end_bytes)
    }

    /// All readers that a disk machine may know.
    pub fn all_known(&self) -> impl Iterator<Item = StreamId> + '_ {
        (0..self.runs.len()).filter_map(|index| self.known(index))
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

    /// The reader of this run, if it has ever wanted.
    fn known(&self, index: usize) -> Option<StreamId> {
        let has_wanted = self.runs[index].seq != WantSeq::default();
        has_wanted.then(|| self.stream(self.id(index)))
    }

    /// Runs are the readers behind those of the calls.
    fn stream(&self, id: RunId) -> StreamId {
        reader(&self.settings, NFS_CALLS_MAX + id.index, id.nth)
    }

    fn of_stream(&self, stream: StreamId) -> Option<RunId> {
        let mut all = (0..self.runs.len()).map(|index| self.id(index));
        all.find(|id| self.stream(*id) == stream)
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
            ahead: None,
            seq: WantSeq::default(),
            answers: 0,
        };
        run.add(read, now);
        run
    }

    fn is_near(&self, read: &Read) -> bool {
        let (span, near_bytes) = (read.span, NEAR_READS * read.span.len_bytes);
        self.object == read.object
            && span.offset_bytes <= self.high_bytes.saturating_add(near_bytes)
            && span.end_bytes().saturating_add(near_bytes) >= self.base_bytes
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

    /// Whether it is read ahead of: more than one READ covers at least half of the stretch.
    fn is_dense(&self) -> bool {
        self.reads > 1 && self.asked_bytes >= (self.high_bytes - self.base_bytes) / 2
    }
}

impl RunRate {
    /// So much was asked for. A client that never had to wait takes as much as it asks for; one that had to might take twice
    /// as much.
    fn asked(&mut self, len_bytes: u64, now: Instant) {
        self.bytes += len_bytes;
        let us = now.since_us(self.since);
        if us < NFS_RATE_US_MIN {
            return;
        }
        let sample = u128::from(self.bytes) * u128::from(US_PER_S) / u128::from(us);
        let sample = u64::try_from(sample).unwrap_or(u64::MAX);
        let rate = match (self.is_starved, self.bytes_per_s) {
            (true, rate) => sample.saturating_mul(2).max(rate),
            (false, 0) => sample,
            (false, rate) => rate / 2 + sample / 2,
        };
        *self = RunRate {
            bytes_per_s: rate.clamp(1, RATE_BYTES_PER_S_MAX),
            since: now,
            bytes: 0,
            is_starved: false,
        };
    }
}
