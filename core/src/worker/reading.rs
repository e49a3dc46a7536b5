//! Reading: what a stream asks of the page cache and the disk, and what comes back.

use alloc::collections::VecDeque;

use super::Worker;
use super::messages::Out;
use super::stream::Undo;
use crate::conn::{Held, Span, StreamId, WantSeq};
use crate::disk::Chosen;
use crate::units::Instant;
use crate::why::{What, Why};

/// Cancels what a stream no longer needs, before anything else is done for it.
pub(super) fn undo(outs: &mut VecDeque<Out>, undo: Undo, stream: StreamId) {
    if undo.slots {
        outs.push_back(Out::Release(stream));
    }
    if undo.want {
        outs.push_back(Out::Forget(stream));
    }
}

/// The answer of the disk machine to a want.
pub(super) struct ReadAnswer {
    pub seq: WantSeq,
    pub span: Span,
    pub held: Held,
    pub chosen: Chosen,
}

impl Worker {
    /// Whether the stream awaits an answer to the want of this number. If not, the answer is late, and its slots are
    /// free.
    pub fn awaits(&self, stream: StreamId, seq: WantSeq) -> bool {
        let stream = self.table.stream(stream);
        stream.is_some_and(|stream| stream.awaits(seq))
    }

    /// The answer to a probe.
    pub(super) fn probed(&mut self, id: StreamId, resident_bytes: u64, now: Instant) {
        if let Some(conn) = self.table.with_mut(id) {
            let supply = conn.output.supply(now);
            if let Some(stream) = conn.stream.as_mut() {
                let want = stream.probed(resident_bytes, &mut self.residency_cache, &supply, now);
                undo(&mut self.outs, stream.undo(), id);
                self.outs.extend(want.map(Out::Want));
            }
        }
        self.wake(id.conn.index, true);
    }

    /// Bytes that were to be sent from the page cache are missing.
    pub(super) fn missing(&mut self, id: StreamId) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.missing(&mut self.residency_cache);
            self.counts.missed();
            undo(&mut self.outs, stream.undo(), id);
            self.wake(id.conn.index, false);
        }
    }

    /// A slice of a listing was made.
    pub(super) fn sliced(&mut self, id: StreamId, len_bytes: u64, last: bool) {
        if let Some(stream) = self.table.stream_mut(id) {
            stream.sliced(len_bytes, last);
            self.wake(id.conn.index, false);
        }
    }

    /// The disk has bytes for a stream.
    pub(super) fn filled(&mut self, id: StreamId, fill: &ReadAnswer, now: Instant) {
        if !self.awaits(id, fill.seq) {
            return;
        }
        let what = What::Read(fill.chosen);
        self.decisions.record(now, Some(id.conn), what);
        if let Some(stream) = self.table.stream_mut(id) {
            // The stall ends when it sends. While its socket is full, it stays stalled for the socket.
            stream.filled(
                fill.seq,
                fill.span,
                fill.held,
                &mut self.residency_cache,
                now,
            );
            undo(&mut self.outs, stream.undo(), id);
            self.wake(id.conn.index, false);
        }
    }

    /// The disk can't read a stream's next bytes: the response ends when what it has is sent.
    pub(super) fn unfilled(&mut self, id: StreamId, seq: WantSeq, why: Why) {
        if !self.awaits(id, seq) {
            return;
        }
        if let Some(stream) = self.table.stream_mut(id) {
            stream.unfilled(seq, why);
            self.wake(id.conn.index, false);
        }
    }
}
