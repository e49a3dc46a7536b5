//! A READ, from its answer until its bytes are in memory.

use super::messages::{CallId, Out, Read};
use super::runs::{Comes, RunId, reader, waiting_rate};
use super::{Nfs, Phase};
use crate::conn::{Span, StreamId, Want, WantSeq};
use crate::units::Instant;
use crate::why::Why;

impl Nfs {
    /// Finds out whether a READ's bytes are in memory.
    pub(super) fn look_for(&mut self, id: CallId, read: Read, now: Instant) {
        let places = &self.places;
        let is_needed = |run| places.iter().any(|place| place.is_of(run));
        let (run, forgotten) = self.runs.asked(&read, is_needed, now);
        self.outs.extend(forgotten.into_iter().map(Out::Forget));
        self.set(id, Phase::Probing(read, run));
        let (object, span) = (read.object, read.span);
        self.outs.push_back(Out::Probe {
            call: id,
            object,
            span,
        });
    }

    pub(super) fn probed(&mut self, id: CallId, is_resident: bool, now: Instant) {
        let Some(Phase::Probing(read, run)) = self.call(id).map(|call| call.phase) else {
            return;
        };
        if is_resident {
            self.runs.resident(run, &read);
            self.ready(id, read.reply_bytes(), Some(read), now);
        } else {
            let comes = self.runs.missing(run, &read);
            self.set(id, Phase::Waiting(read, comes, run));
            if comes == Comes::ByItself {
                self.want(id, &read, read.span, now);
            }
        }
        if let Some(run) = run {
            self.want_ahead(run, now);
        }
    }

    /// Wants what is to be read ahead of a run.
    fn want_ahead(&mut self, run: RunId, now: Instant) {
        let outs = &mut self.outs;
        self.runs
            .wants(run, now, |want| outs.push_back(Out::Want(want)));
    }

    /// Wants these bytes of a READ for itself.
    fn want(&mut self, id: CallId, read: &Read, span: Span, now: Instant) {
        let stream = self.reader(id);
        let place = &mut self.places[usize::from(id.0)];
        place.seq = place.seq.next();
        self.outs.push_back(Out::Want(Want {
            stream,
            object: read.object,
            span,
            underrun_at: now,
            rate_bytes_per_s: waiting_rate(span.len_bytes),
            seq: place.seq,
            answers: place.answers,
            signals: 0,
            through_cache: true,
        }));
    }

    fn reader(&self, id: CallId) -> StreamId {
        let index = usize::from(id.0);
        reader(&self.settings, index, self.places[index].nth)
    }

    /// The call whose reader this is.
    fn of_reader(&self, stream: StreamId) -> Option<CallId> {
        let first = self.settings.readers;
        let index = stream.conn.index.checked_sub(first.index)? as usize;
        let place = self.places.get(index)?;
        let id = CallId(index as u8); // `places` has at most 256
        (self.reader(id) == stream && place.call.is_some()).then_some(id)
    }

    pub(super) fn fetched(&mut self, stream: StreamId, seq: WantSeq, span: Span, now: Instant) {
        if let Some(id) = self.of_reader(stream) {
            let awaited = self.awaited(id, seq);
            if let Some(read) = awaited {
                self.fetched_alone(id, &read, span, now);
            }
        } else if let Some(run) = self.runs.fetched(stream, seq, span) {
            self.run_came(run, now);
            self.want_ahead(run, now);
        }
    }

    /// The READ that waits for this want.
    fn awaited(&mut self, id: CallId, seq: WantSeq) -> Option<Read> {
        let is_last = self.places[usize::from(id.0)].seq == seq;
        match self.call(id)?.phase {
            Phase::Waiting(read, Comes::ByItself, _) if is_last => Some(read),
            _ => None,
        }
    }

    fn fetched_alone(&mut self, id: CallId, read: &Read, span: Span, now: Instant) {
        self.places[usize::from(id.0)].answers += 1;
        let end_bytes = span.end_bytes().max(read.span.offset_bytes);
        if end_bytes < read.span.end_bytes() {
            let rest = read.span.behind(end_bytes - read.span.offset_bytes);
            return self.want(id, read, rest, now);
        }
        self.forget(id);
        self.ready(id, read.reply_bytes(), Some(*read), now);
    }

    /// A READ needs its reader no more. The next one that wants is another stream.
    pub(super) fn forget(&mut self, id: CallId) {
        let stream = self.reader(id);
        self.outs.push_back(Out::Forget(stream));
        let place = &mut self.places[usize::from(id.0)];
        (place.nth, place.seq, place.answers) = (place.nth.wrapping_add(1), WantSeq::default(), 0);
    }

    /// More of a run is in memory, or nothing more will come: READs that waited for that go on.
    fn run_came(&mut self, run: RunId, now: Instant) {
        for index in 0..self.places.len() {
            let phase = self.places[index].call.map(|call| call.phase);
            let Some(Phase::Waiting(read, Comes::WithRun, Some(of))) = phase else {
                continue;
            };
            let id = CallId(index as u8); // below 256
            match self.runs.has_read(of, read.span) {
                _ if of != run => {}
                Some(true) => self.ready(id, read.reply_bytes(), Some(read), now),
                Some(false) => {}
                None => {
                    self.set(id, Phase::Waiting(read, Comes::ByItself, Some(of)));
                    self.want(id, &read, read.span, now);
                }
            }
        }
    }

    pub(super) fn fetch_failed(&mut self, stream: StreamId, seq: WantSeq, why: Why, now: Instant) {
        let Some(id) = self.of_reader(stream) else {
            if let Some(run) = self.runs.fetch_failed(stream, seq) {
                self.run_came(run, now);
            }
            return;
        };
        if self.awaited(id, seq).is_none() {
            return;
        }
        self.forget(id);
        if self.stuck == Some(id) {
            return self.close(true, why); // its head says that it succeeds
        }
        self.set(id, Phase::Resolving);
        self.outs.push_back(Out::Refuse { call: id, why });
    }

    /// Bytes were evicted between the probe and the send: they are wanted. If the head is out, everything waits for them.
    pub(super) fn missing(&mut self, now: Instant) {
        let Some(&id) = self.ready.front() else {
            return;
        };
        let Some(call) = self.call(id) else {
            return;
        };
        let Phase::Ready(_, Some(read)) = call.phase else {
            return;
        };
        let sent_bytes = call.sent_bytes;
        self.ready.pop_front();
        if sent_bytes > 0 {
            self.stuck = Some(id);
        }
        self.set(id, Phase::Waiting(read, Comes::ByItself, None));
        let of_payload = sent_bytes.saturating_sub(read.head_bytes.into());
        self.want(id, &read, read.span.behind(of_payload), now);
    }

    /// Bytes that are in memory can't be sent: the file was cut, or its file system can't do it. A reply that has begun can't say
    /// so any more.
    pub(super) fn unreadable(&mut self, why: Why) {
        let Some(&id) = self.ready.front() else {
            return;
        };
        let sent_bytes = self.call(id).map_or(0, |call| call.sent_bytes);
        if sent_bytes > 0 {
            return self.close(true, why);
        }
        self.ready.pop_front();
        self.set(id, Phase::Resolving);
        self.outs.push_back(Out::Refuse { call: id, why });
    }
}
