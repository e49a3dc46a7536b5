//! Messages between the two machines. An answer of the disk machine becomes a message for the worker here: this is the
//! one place that knows both types.

use ackpace_core::conn::{
    Held, ObjectId, Part, Plan, Promise, ResidencySource, Span, StreamId, Version, Want, WantSeq,
};
use ackpace_core::disk::{self, ReadId};
use ackpace_core::units::Instant;
use ackpace_core::why::Chosen;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, Worker};

use super::disk_thread::Outstanding;
use super::memory::FilledSlots;

/// A message of the disk thread to a worker.
#[derive(Debug)]
pub(super) struct WantCompletion {
    pub stream: StreamId,
    pub seq: WantSeq,
    pub answer: Answer,
}

#[derive(Debug)]
pub(super) enum Answer {
    /// With the slots, if the bytes were read into any.
    Fetched(Span, Option<FilledSlots>, Chosen),
    Failed(Why),
}

/// The disk machine's answer to a want.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    /// The read that brought the bytes, if there are any.
    pub read: Option<ReadId>,
    pub stream: StreamId,
    pub span: Span,
    pub held: Held,
}

impl WantCompletion {
    /// The message for an order that answers a want; `None` for any other order.
    pub fn of(
        out: &disk::Out,
        piece: impl FnOnce(Answered) -> Option<FilledSlots>,
    ) -> Option<(WantCompletion, Answered)> {
        match *out {
            disk::Out::Fetched {
                read,
                stream,
                seq,
                span,
                held,
                chosen,
            } => {
                let told = Answered {
                    read: Some(read),
                    stream,
                    span,
                    held,
                };
                let answer = Answer::Fetched(span, piece(told), chosen);
                Some((
                    WantCompletion {
                        stream,
                        seq,
                        answer,
                    },
                    told,
                ))
            }
            disk::Out::Failed { stream, seq, error } => {
                let why = match error.errno {
                    0 => Why::FileChanged,
                    _ => Why::ReadFailed,
                };
                let told = Answered {
                    read: None,
                    stream,
                    span: Span {
                        offset_bytes: error.offset_bytes,
                        len_bytes: 0,
                    },
                    held: Held::PageCache,
                };
                let answer = Answer::Failed(why);
                Some((
                    WantCompletion {
                        stream,
                        seq,
                        answer,
                    },
                    told,
                ))
            }
            _ => None,
        }
    }

    /// Whether its stream waits for it. If not, it is late, and its slots are free.
    pub fn is_awaited(&self, worker: &Worker) -> bool {
        worker.awaits(self.stream, self.seq)
    }

    /// The event for the worker's machine.
    pub fn heard(&self) -> In {
        let (stream, seq) = (self.stream, self.seq);
        match &self.answer {
            Answer::Fetched(span, piece, chosen) => In::Fetched {
                stream,
                seq,
                span: *span,
                held: match piece {
                    Some(_) => Held::Slots,
                    None => Held::PageCache,
                },
                chosen: *chosen,
            },
            Answer::Failed(why) => In::FetchFailed {
                stream,
                seq,
                why: *why,
            },
        }
    }
}

/// Whether the disk machine accepts this want, or waits for a later one that knows its last answer.
pub(super) fn is_taken(want: &Want, outstanding: &Outstanding) -> bool {
    let (seq, before) = (want.seq, outstanding.want.seq);
    outstanding.want.stream != want.stream
        || before.is_before(seq)
        || seq == before && outstanding.holds
}

/// A range of a file that does not change.
pub(super) fn body(
    object: ObjectId,
    file_bytes: u64,
    residency: ResidencySource,
    span: Span,
) -> Part {
    let version = Version {
        len_bytes: file_bytes,
        ..Version::default()
    };
    Part::Body {
        object,
        version,
        promise: Promise::OneVersion,
        residency,
        span,
    }
}

/// A response made of these parts.
pub(super) fn plan(parts: Vec<Part>, head_len_bytes: u64, keep_alive: bool) -> Plan {
    let lengths = parts.iter().map(|part| match part {
        Part::Bytes(text) => Some(text.len() as u64),
        Part::Body { span, .. } => Some(span.len_bytes),
        Part::Slices => None,
    });
    let all_bytes = lengths.sum::<Option<u64>>();
    Plan {
        parts: parts.into(),
        head_len_bytes,
        body_len_bytes: all_bytes.map(|bytes| bytes - head_len_bytes),
        keep_alive,
    }
}

/// An answer to a want, for any span. `there` is `false` if its bytes can't be read.
pub(super) fn answer(want: &Want, span: Span, held: Held, chosen: Chosen, there: bool) -> In {
    let stream = want.stream;
    // Bytes outside this want belong to another want.
    let own = want.span.covers(span) && want.span.offset_bytes == span.offset_bytes;
    let seq = WantSeq(want.seq.0.wrapping_sub(u32::from(!own)));
    if there {
        In::Fetched {
            stream,
            seq,
            span,
            held,
            chosen,
        }
    } else {
        let why = Why::ReadFailed;
        In::FetchFailed { stream, seq, why }
    }
}

/// An arbitrary want.
pub(super) fn want(stream: StreamId, object: ObjectId, span: Span, numbers: [u32; 3]) -> Want {
    let [seq, heard, signals] = numbers;
    Want {
        stream,
        object,
        span,
        underrun_at: Instant::default(),
        rate_bytes_per_s: 0,
        seq: WantSeq(seq),
        answers: heard,
        signals,
        through_cache: false,
    }
}
