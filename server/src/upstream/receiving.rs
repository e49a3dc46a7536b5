//! What comes from origins: heads are parsed, and bodies go where the job of their task wants them.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering::Relaxed;

use crate::clock::unix_ms;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::upstream::{Fault, In, Kind, LinkId, TaskId};
use ackpace_wire::http::{BodyReader, Framing, ParsedResponse, Response, parse_response};
use ackpace_wire::limits::RESPONSE_HEAD_BYTES_MAX;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::link::{Link, Step};
use super::{Job, Upstream};

/// Bytes that one connection is heard out for in a turn. More: the next turn goes on.
const TURN_BYTES_MAX: u64 = 1 << 20;
/// Interim responses before a final one. More: the origin is at fault.
const INTERIMS_MAX: u32 = 8;
/// The rest of a body that nobody wants is read if it is so short. Longer: another connection costs less.
const SKIPPED_BYTES_MAX: u64 = 64 << 10;

/// What a job makes of the head of its response.
pub(super) enum Verdict {
    /// Its body is wanted.
    Take,
    /// Its body is not wanted, and the job is done.
    Skip,
    /// It shows that the object has changed.
    Changed,
    /// It can't be used, for which its origin is not to blame; why, for the log.
    Refuse(&'static str),
    /// The origin is at fault; why, for the log.
    Fault(Fault, &'static str),
}

/// What one attempt to receive came to.
pub(super) enum Heard {
    /// Some bytes, which were used.
    Some(u64),
    /// No more for now.
    Nothing,
    /// The link is at its end, or used by nobody.
    Over,
}

impl Upstream {
    /// Epoll says something of a connection.
    pub(super) fn hear_link(&mut self, id: LinkId, flags: EventFlags, now: Instant) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        if let Step::Connecting = link.step {
            let told = EventFlags::OUT | EventFlags::ERR | EventFlags::HUP;
            if !flags.intersects(told) {
                return;
            }
            match link.connected() {
                Ok(true) => {
                    link.step = Step::Idle;
                    return self.machine.on(In::Connected(id), now);
                }
                Ok(false) => return,
                Err(broken) => {
                    let origin = link.origin;
                    self.tell_broken(origin, &broken, now);
                    return self.broken(id, Fault::Unreachable, now);
                }
            }
        }
        if link.flush().is_err() {
            self.gone(id, now);
            return;
        }
        let mut left_bytes = TURN_BYTES_MAX;
        while left_bytes > 0 {
            let origin = self.links.get(&id).map(|link| usize::from(link.origin));
            match self.hear_once(id, now) {
                Heard::Some(bytes) => {
                    let tally = origin.map(|origin| &self.gateway.tally.origins[origin]);
                    tally.inspect(|tally| _ = tally.fetched_bytes.fetch_add(bytes, Relaxed));
                    left_bytes = left_bytes.saturating_sub(bytes.max(1));
                }
                Heard::Nothing | Heard::Over => return,
            }
        }
        self.eager.push(id);
    }

    fn hear_once(&mut self, id: LinkId, now: Instant) -> Heard {
        let Some(link) = self.links.get_mut(&id) else {
            return Heard::Over;
        };
        match link.step {
            Step::Connecting => Heard::Nothing,
            // An origin that says something unasked, or closes: the connection is of no use.
            Step::Idle => match link.is_spoilt() {
                true => self.gone(id, now),
                false => Heard::Nothing,
            },
            Step::Head(_) => self.hear_head(id, now),
            Step::Body { .. } => self.hear_body(id, now),
        }
    }

    /// The origin closed the connection.
    pub(super) fn gone(&mut self, id: LinkId, now: Instant) -> Heard {
        let link = self.links.get(&id);
        if let Some((link, why)) = link.and_then(|link| Some((link, link.why_gone()?))) {
            let task = link.task.and_then(|task| self.jobs.get(&task));
            match (&link.step, task) {
                (Step::Body { .. }, Some(Job::Pass(passing))) if passing.has_begun() => {
                    self.tell_of(link.origin, &format!("{why}, which ends there"), now);
                }
                (Step::Body { .. }, _) => {
                    self.tell_of(link.origin, &format!("{why}; the rest is asked for"), now);
                }
                _ => self.tell_origin(link.origin, why, now),
            }
        }
        self.broken(id, Fault::Closed, now);
        Heard::Over
    }

    fn hear_head(&mut self, id: LinkId, now: Instant) -> Heard {
        let Some(link) = self.links.get_mut(&id) else {
            return Heard::Over;
        };
        let room = (RESPONSE_HEAD_BYTES_MAX - link.received.len()).min(self.copied.len());
        let into = &mut [IoSliceMut::new(&mut self.copied[..room])];
        match link.receive(into) {
            Ok(0) => self.gone(id, now),
            Ok(len) => {
                link.received.extend_from_slice(&self.copied[..len]);
                self.parse(id, now);
                Heard::Some(len as u64)
            }
            Err(Errno::AGAIN) => Heard::Nothing,
            Err(_) => self.gone(id, now),
        }
    }

    /// Parses what was received of a head.
    fn parse(&mut self, id: LinkId, now: Instant) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Step::Head(asked) = link.step else { return };
        let received = std::mem::take(&mut link.received);
        let mut at = 0;
        loop {
            match parse_response(&received[at..], asked) {
                ParsedResponse::Incomplete => {
                    link.received = received[at..].to_vec();
                    return;
                }
                ParsedResponse::Interim { head_len_bytes } if link.interims < INTERIMS_MAX => {
                    link.interims += 1;
                    at += head_len_bytes;
                }
                ParsedResponse::Interim { .. } => {
                    return self.at_fault(id, Fault::Bad, "interim responses without end", now);
                }
                ParsedResponse::Bad(why) => return self.at_fault(id, Fault::Bad, why, now),
                ParsedResponse::Complete {
                    response,
                    head_len_bytes,
                } => return self.head(id, &response, &received[at + head_len_bytes..], now),
            }
        }
    }

    /// The head of a response is there, and bytes that came behind it.
    fn head(&mut self, id: LinkId, response: &Response<'_>, behind: &[u8], now: Instant) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let Some(task) = link.task else { return };
        let body = |skipped| Step::Body {
            reader: BodyReader::new(response.framing),
            left_bytes: match response.framing {
                Framing::Length(len_bytes) => Some(len_bytes),
                _ => None,
            },
            keep: response.keep_alive,
            skipped,
        };
        link.step = body(false);
        self.machine.on(In::Head(id), now);
        let origin = link.origin;
        let verdict = match self.jobs.get_mut(&task) {
            Some(Job::Read(reading)) => reading.head(response, origin),
            Some(Job::Open(_)) => self.opened(task, response, now),
            Some(Job::Pass(_)) => self.passing(task, response, now),
            None => Verdict::Skip,
        };
        match verdict {
            Verdict::Take => {}
            Verdict::Skip => {
                if let Some(link) = self.links.get_mut(&id) {
                    link.step = body(true);
                }
            }
            Verdict::Changed => return self.changed(id, task, now),
            Verdict::Refuse(why) => return self.refused(id, task, why, now),
            Verdict::Fault(fault, why) => return self.at_fault(id, fault, why, now),
        }
        let mut behind = behind;
        while !behind.is_empty() {
            match self.take(id, behind, now) {
                Some(used) if used > 0 => behind = &behind[used..],
                _ => return,
            }
        }
        self.end_if_complete(id, now);
    }

    /// Uses received bytes of a body. Returns how many; `None`: the link is over.
    fn take(&mut self, id: LinkId, bytes: &[u8], now: Instant) -> Option<usize> {
        let link = self.links.get_mut(&id)?;
        let (
            Some(task),
            Step::Body {
                reader,
                left_bytes,
                skipped,
                ..
            },
        ) = (link.task, &mut link.step)
        else {
            self.gone(id, now); // bytes behind the end of the response
            return None;
        };
        let Ok(piece) = reader.next(bytes) else {
            self.at_fault(
                id,
                Fault::Bad,
                "a body that is not framed as announced",
                now,
            );
            return None;
        };
        if let Some(left_bytes) = left_bytes {
            *left_bytes -= piece.data.len() as u64;
        }
        if !*skipped {
            let data = &bytes[piece.data.clone()];
            match self.jobs.get_mut(&task) {
                Some(Job::Read(reading)) => reading.copy(data),
                Some(Job::Open(opening)) => opening.collect(data),
                Some(Job::Pass(passing)) => passing.take(data),
                None => {}
            }
        }
        self.moved(id, task, now);
        self.end_if_complete(id, now);
        Some(piece.consumed_bytes)
    }

    fn hear_body(&mut self, id: LinkId, now: Instant) -> Heard {
        let Some(link) = self.links.get_mut(&id) else {
            return Heard::Over;
        };
        let Some(task) = link.task else {
            return Heard::Over;
        };
        let Step::Body {
            left_bytes,
            skipped,
            reader,
            ..
        } = &link.step
        else {
            return Heard::Over;
        };
        let (left_bytes, skipped, needs_end) = (*left_bytes, *skipped, reader.needs_end());
        let job = self.jobs.get_mut(&task);
        if let Some(Job::Pass(passing)) = &job {
            if passing.is_full() {
                self.machine.on(In::Paused(id, true), now);
                return Heard::Nothing; // `next_slice` goes on
            }
        }
        let most_bytes = left_bytes.unwrap_or(u64::MAX).min(TURN_BYTES_MAX);
        // Payload and nothing else is received where it belongs.
        if let (Some(Job::Read(_)), Some(_), false) = (job, left_bytes, skipped) {
            return self.hear_payload(id, task, most_bytes, now);
        }
        let most = (self.copied.len() as u64).min(most_bytes) as usize;
        let received = link.receive(&mut [IoSliceMut::new(&mut self.copied[..most])]);
        match received {
            Ok(0) if needs_end => {
                self.ended(id, task, now);
                Heard::Over
            }
            Ok(0) => self.gone(id, now),
            Ok(len) => {
                let copied = std::mem::take(&mut self.copied);
                let mut bytes = &copied[..len];
                while !bytes.is_empty() {
                    match self.take(id, bytes, now) {
                        Some(used) if used > 0 => bytes = &bytes[used..],
                        _ => break,
                    }
                }
                self.copied = copied;
                Heard::Some(len as u64)
            }
            Err(Errno::AGAIN) => Heard::Nothing,
            Err(_) => self.gone(id, now),
        }
    }

    /// Receives bytes of a read into the memory where they stay.
    fn hear_payload(&mut self, id: LinkId, task: TaskId, most_bytes: u64, now: Instant) -> Heard {
        let (Some(link), Some(Job::Read(reading))) =
            (self.links.get_mut(&id), self.jobs.get_mut(&task))
        else {
            return Heard::Over;
        };
        match link.receive(&mut reading.room(most_bytes)) {
            Ok(0) => self.gone(id, now),
            Ok(len) => {
                reading.came(len as u64);
                if let Step::Body {
                    left_bytes: Some(left_bytes),
                    ..
                } = &mut link.step
                {
                    *left_bytes -= len as u64;
                }
                self.moved(id, task, now);
                self.end_if_complete(id, now);
                Heard::Some(len as u64)
            }
            Err(Errno::AGAIN) => Heard::Nothing,
            Err(_) => self.gone(id, now),
        }
    }

    /// Bytes of a body were used.
    fn moved(&mut self, id: LinkId, task: TaskId, now: Instant) {
        let event = match self.jobs.get(&task) {
            Some(Job::Open(_)) => In::Head(id),
            _ => In::Moved(id),
        };
        self.machine.on(event, now);
        match self.jobs.get(&task) {
            Some(Job::Read(reading)) => {
                let (read, got_bytes) = (reading.read, reading.got_bytes);
                self.read_moved(read, got_bytes, now);
            }
            Some(Job::Pass(_)) => self.pass_moved(task, now),
            Some(Job::Open(_)) => self.collected(id, task, now),
            None => {}
        }
    }

    /// Ends the task of a link if its response is complete, or as complete as it is wanted.
    fn end_if_complete(&mut self, id: LinkId, now: Instant) {
        let Some(Link {
            task: Some(task),
            step:
                Step::Body {
                    reader,
                    left_bytes,
                    skipped,
                    ..
                },
            ..
        }) = self.links.get(&id)
        else {
            return;
        };
        let done = match left_bytes {
            Some(left_bytes) => *left_bytes == 0,
            None => reader.is_done(),
        };
        let enough = match self.jobs.get(task) {
            Some(Job::Read(reading)) => reading.rest().len_bytes == 0,
            _ => *skipped && left_bytes.is_none_or(|left_bytes| left_bytes > SKIPPED_BYTES_MAX),
        };
        let task = *task;
        if done || enough {
            self.ended(id, task, now);
        }
    }

    /// The response on a link has ended; what is left of it is not wanted.
    fn ended(&mut self, id: LinkId, task: TaskId, now: Instant) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        let step = std::mem::replace(&mut link.step, Step::Idle);
        link.task = None;
        let Step::Body {
            reader,
            left_bytes,
            keep,
            ..
        } = step
        else {
            return;
        };
        let whole = match left_bytes {
            Some(left_bytes) => left_bytes == 0,
            None => reader.is_done(),
        };
        let keep = keep && whole;
        self.machine.on(In::Done { link: id, keep }, now);
        if !keep {
            self.links.remove(&id);
        }
        match self.jobs.remove(&task) {
            Some(Job::Read(reading)) if reading.got_bytes == reading.had_bytes => {
                self.read_failed(reading, now); // it would be asked for without end
            }
            Some(Job::Read(mut reading)) if reading.rest().len_bytes > 0 => {
                // The origin gave a part of the part: the rest is asked for.
                let read = reading.read;
                reading.had_bytes = reading.got_bytes;
                let task = self.begin(Kind::Read, Job::Read(reading), now);
                self.reads.insert(read, task);
            }
            Some(Job::Read(reading)) => self.read_done(reading, now),
            Some(Job::Open(opening)) => self.open_ended(opening, now),
            Some(Job::Pass(passing)) => self.pass_ended(passing, now),
            None => {}
        }
    }

    /// The response shows that the object of a read has another version.
    fn changed(&mut self, id: LinkId, task: TaskId, now: Instant) {
        let link = self.links.remove(&id);
        self.machine.on(In::Drop(task), now);
        if let Some(Job::Read(reading)) = self.jobs.remove(&task) {
            let (catalog, object) = (&self.gateway.catalog, &reading.object);
            if let (true, Some(link)) = (self.gateway.is_peer(), link) {
                let target = String::from_utf8_lossy(&object.target);
                let text = format!(
                    "{} has another size or time of modification there, or is missing: copy files with their times (rsync -t)",
                    target.escape_debug()
                );
                self.tell_origin(link.origin, &text, now);
            }
            match self.gateway.is_peer() {
                true => catalog.passes(&object.target, true, unix_ms() / 1000),
                false => catalog.leave(object),
            }
            self.read_failed(reading, now);
        }
    }

    /// The response can't be used, and would be the same the next time: no other origin is asked.
    fn refused(&mut self, id: LinkId, task: TaskId, why: &'static str, now: Instant) {
        if let Some(link) = self.links.remove(&id) {
            self.tell_origin(link.origin, why, now);
        }
        self.machine.on(In::Drop(task), now);
        self.failed(task, Fault::Bad, now);
    }

    /// The origin is at fault: its connection ends, and the task is tried elsewhere or again.
    fn at_fault(&mut self, id: LinkId, fault: Fault, why: &'static str, now: Instant) {
        if let Some(link) = self.links.get(&id) {
            let origin = link.origin;
            self.tell_origin(origin, why, now);
        }
        self.broken(id, fault, now);
    }
}
