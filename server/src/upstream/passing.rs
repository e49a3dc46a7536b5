//! Responses that pass through: each for one client, at that client's pace, and kept nowhere.

use std::sync::{Arc, Weak};

use ackpace_core::conn::StreamId;
use ackpace_core::limits::SLICE_BYTES;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::upstream::{Fault, In, Kind, TaskId};
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::plan::{self, relay};
use ackpace_wire::http::{
    Asked as Method, Framing, Method as RequestMethod, Parsed, Response, parse,
};

use super::pages::Pages;
use super::receiving::Verdict;
use super::{Job, Upstream};
use crate::front::listing::Slice;
use crate::front::site::SiteAnswer;
use crate::gateway::{Address, Asked, Pass, Through};
use crate::resolver::Done;

/// Bytes of a response that wait for its client. More: the origin waits.
const WAITING_BYTES_MAX: usize = 8 * SLICE_BYTES;

/// A response under way.
pub(super) struct Passing {
    pub stream: StreamId,
    pub asked: Asked,
    /// Who waits for the head.
    pub interest: Weak<()>,
    /// Who will ask for the bytes, once the head is told.
    pub pass: Option<Weak<Pass>>,
    pub number: u64,
    /// It is a listing, made of pages of a bucket.
    pub pages: Option<Pages>,
    pub waiting: Vec<u8>,
    /// Bytes that the head promises and that have not come; `None`: only the end tells.
    owed_bytes: Option<u64>,
    /// The next slice is asked for.
    wanted: bool,
    /// Its bytes go out in chunks.
    pub chunked: bool,
    pub end: End,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// More is to come.
    Open,
    /// All has come.
    Whole,
    /// The rest will not come.
    Broken,
}

impl Passing {
    pub fn method(&self) -> Method {
        match parse(&self.asked.head) {
            _ if self.pages.is_some() => Method::Get,
            Parsed::Complete { request, .. } if request.method == RequestMethod::Head => {
                Method::Head
            }
            _ => Method::Get,
        }
    }

    pub fn request(&self, origin: &Address) -> Result<Vec<u8>, &'static str> {
        match &self.pages {
            Some(pages) => pages.request(origin),
            None => origin.passed(&self.asked.target, &self.asked.head),
        }
    }

    /// Whether the client's request is one that may be answered with this status: it would take a part for all.
    fn may_get(&self, status: u16) -> bool {
        let Parsed::Complete { request, .. } = parse(&self.asked.head) else {
            return false;
        };
        let has = |field| request.fields().first(field).is_some();
        match status {
            206 => request.range().is_some(),
            304 => has(Field::IfNoneMatch) || has(Field::IfModifiedSince),
            _ => true,
        }
    }

    /// Takes bytes of the body.
    pub fn take(&mut self, bytes: &[u8]) {
        match &mut self.pages {
            Some(pages) => pages.take(bytes),
            None => self.waiting.extend_from_slice(bytes),
        }
    }

    /// Whether its client has to take something before more comes.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= WAITING_BYTES_MAX
    }

    /// Whether its client has the head, so that it can't begin anew. A page of a listing can.
    pub fn has_begun(&self) -> bool {
        self.pass.is_some() && self.pages.is_none()
    }

    /// Whether its client has all that came, and waits for more.
    pub fn is_drained(&self) -> bool {
        self.wanted && self.waiting.is_empty() && self.end == End::Open
    }

    /// Whether its client has left.
    fn is_left(&self) -> bool {
        match &self.pass {
            Some(pass) => pass.strong_count() == 0,
            None => self.interest.strong_count() == 0,
        }
    }

    /// The next slice, if it is asked for and there is one.
    fn slice(&mut self) -> Option<std::io::Result<Slice>> {
        if !self.wanted || self.waiting.is_empty() && self.end == End::Open {
            return None;
        }
        self.wanted = false;
        if self.end == End::Broken && self.waiting.is_empty() {
            return Some(Err(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let mut body = std::mem::take(&mut self.waiting);
        self.waiting = body.split_off(body.len().min(WAITING_BYTES_MAX));
        let last = self.end == End::Whole && self.waiting.is_empty();
        let bytes = match self.chunked {
            true => {
                let mut bytes = Vec::with_capacity(body.len() + 32);
                plan::push_chunk(&body, &mut bytes);
                bytes.extend_from_slice(if last { plan::LAST_CHUNK } else { b"" });
                bytes
            }
            false => body,
        };
        Some(Ok(Slice {
            bytes,
            last,
            unknown: None,
        }))
    }
}

impl Upstream {
    /// A stream wants a response that is for it alone.
    pub(super) fn pass(
        &mut self,
        stream: StreamId,
        asked: Asked,
        interest: Weak<()>,
        now: Instant,
    ) {
        self.pass_pages(stream, asked, interest, None, now);
    }

    /// The same; with pages it is a listing.
    pub(super) fn pass_pages(
        &mut self,
        stream: StreamId,
        asked: Asked,
        interest: Weak<()>,
        pages: Option<Pages>,
        now: Instant,
    ) {
        let passing = Passing {
            stream,
            asked,
            interest,
            pass: None,
            number: self.number(),
            pages,
            waiting: Vec::new(),
            owed_bytes: None,
            wanted: false,
            chunked: false,
            end: End::Open,
        };
        let number = passing.number;
        let task = self.begin(Kind::Pass, Job::Pass(passing), now);
        self.passes.insert(number, task);
    }

    /// The head of a response that passes.
    pub(super) fn passing(
        &mut self,
        task: TaskId,
        response: &Response<'_>,
        now: Instant,
    ) -> Verdict {
        if self.gateway.has_buckets() {
            if let Some(verdict) = self.bucket_passing(task, response.status, now) {
                return verdict;
            }
        }
        let Some(Job::Pass(passing)) = self.jobs.get_mut(&task) else {
            return Verdict::Skip;
        };
        if passing.pass.is_some() {
            return Verdict::Fault(Fault::Bad, "a response that broke off can't be resumed");
        }
        if !passing.may_get(response.status) {
            return Verdict::Fault(Fault::Bad, "a part or 304 that was not asked for");
        }
        let fields = match relay::passed(response) {
            Ok(fields) => fields,
            Err(_) => return Verdict::Refuse("a response with too many fields to be passed on"),
        };
        let pass = Arc::new(Pass(passing.number));
        passing.pass = Some(Arc::downgrade(&pass));
        let len_bytes = match response.framing {
            Framing::Length(len_bytes) => Some(len_bytes),
            Framing::None => response.len_bytes,
            Framing::Chunked | Framing::UntilClose => None,
        };
        passing.owed_bytes = len_bytes;
        passing.chunked = len_bytes.is_none() && passing.asked.chunked;
        let through = Through {
            status: response.status,
            fields: self.gateway.local(&fields).into(),
            len_bytes,
            pass,
        };
        if passing.interest.strong_count() > 0 {
            let stream = passing.stream;
            self.return_to(stream, Done::Found(SiteAnswer::Through(through)));
        }
        Verdict::Take
    }

    /// The client's worker asks for the next bytes.
    pub(super) fn next_slice(&mut self, stream: StreamId, number: u64, now: Instant) {
        let task = self.passes.get(&number).copied();
        let job = task.and_then(|task| Some((task, self.jobs.get_mut(&task)?)));
        let Some((task, Job::Pass(passing))) = job else {
            // Its client must not wait for ever.
            let gone = Err(std::io::ErrorKind::NotFound.into());
            return self.return_to(stream, Done::Sliced(gone, None));
        };
        let was_full = passing.is_full();
        passing.wanted = true;
        self.pass_moved(task, now);
        self.next_page(task, now);
        if was_full {
            let link = self.links.iter();
            let link = link
                .filter(|(_, link)| link.task == Some(task))
                .map(|(id, _)| *id);
            if let Some(link) = link.last() {
                self.machine.on(In::Paused(link, false), now);
                self.eager.push(link);
            }
        }
    }

    /// Bytes came, or are asked for.
    pub(super) fn pass_moved(&mut self, task: TaskId, _now: Instant) {
        let Some(Job::Pass(passing)) = self.jobs.get_mut(&task) else {
            return;
        };
        let (stream, number) = (passing.stream, passing.number);
        let Some(slice) = passing.slice() else { return };
        let over = slice.as_ref().map_or(true, |slice| slice.last);
        self.return_to(stream, Done::Sliced(slice, None));
        if over {
            self.jobs.remove(&task);
            self.passes.remove(&number);
        }
    }

    /// The response is complete.
    pub(super) fn pass_ended(&mut self, mut passing: Passing, now: Instant) {
        if passing.pages.is_some() {
            return self.page_ended(passing, now);
        }
        passing.end = End::Whole;
        self.rest_of(passing, now);
    }

    /// The response will not be completed.
    pub(super) fn pass_failed(&mut self, mut passing: Passing, fault: Fault, now: Instant) {
        if passing.pass.is_none() {
            self.passes.remove(&passing.number);
            if passing.interest.strong_count() > 0 {
                self.return_to(passing.stream, Done::Found(SiteAnswer::NoAnswer(fault)));
            }
            return;
        }
        passing.end = End::Broken;
        self.rest_of(passing, now);
    }

    /// What has come of a response waits for its client, without a connection.
    pub(super) fn rest_of(&mut self, passing: Passing, now: Instant) {
        let (number, task) = (passing.number, TaskId(self.number()));
        self.jobs.insert(task, Job::Pass(passing));
        self.passes.insert(number, task);
        self.pass_moved(task, now);
        self.next_page(task, now);
    }

    /// Ends the responses whose clients have left.
    pub(super) fn end_passes(&mut self, now: Instant) {
        let jobs = &self.jobs;
        let left = |task: &TaskId| match jobs.get(task) {
            Some(Job::Pass(passing)) => passing.is_left(),
            _ => true,
        };
        let ended: Vec<(u64, TaskId)> = (self.passes.iter())
            .filter(|(_, task)| left(task))
            .map(|(number, task)| (*number, *task))
            .collect();
        for (number, task) in ended {
            self.passes.remove(&number);
            self.jobs.remove(&task);
            self.machine.on(In::Drop(task), now);
        }
    }
}
