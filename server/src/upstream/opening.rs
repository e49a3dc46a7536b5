//! Asks an origin what it has at a target. The request asks for the first bytes that are wanted, so that they come along: an
//! object's go into the slab. All who ask for the target meanwhile wait for the same answer.

use std::sync::{Arc, Weak};

use ackpace_core::conn::{Span, StreamId};
use ackpace_core::disk::{In, ReadId};
use ackpace_core::limits::FIRST_READ_BYTES;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::upstream::{self, Fault, Kind, LinkId, TaskId};
use ackpace_wire::http::ask::{AskedRange, Condition};
use ackpace_wire::http::caching::is_for_all;
use ackpace_wire::http::plan::relay;
use ackpace_wire::http::{Asked as Method, Response};
use ackpace_wire::s3;

use super::reading::{Into, Reading};
use super::receiving::Verdict;
use super::{Job, REFUSED, Upstream};
use crate::clock::unix_ms;
use crate::front::site::SiteAnswer;
use crate::gateway::{Address, Asked, Found, Hint, How, LookUp, Object};
use crate::resolver::Done;

/// A response that is no object is kept whole for all who wait for it if its body is so short, and it is for all. If not, it
/// passes, to each of them by itself.
const SHORT_BYTES_MAX: usize = 64 << 10;

/// Who waits for an answer, and what it asked.
pub(super) struct Waiter {
    pub stream: StreamId,
    pub asked: Asked,
    pub interest: Weak<()>,
}

/// How much is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The first bytes that are wanted.
    Part,
    /// The head alone, since the part that was asked for is not there.
    Head,
    /// All, since a part of nothing can't be asked for.
    Whole,
}

/// A question under way.
pub(super) struct Opening {
    target: Box<[u8]>,
    hint: Hint,
    step: Step,
    waiters: Vec<Waiter>,
    /// The object that was there, which has to be asked about.
    stale: Option<Arc<Object>>,
    /// A stale object is sent meanwhile, so nobody waits for the answer.
    refreshes: bool,
    /// [`crate::gateway::Catalog::purges`] when it was asked.
    purges: u64,
    /// A short response that is being received.
    short: Option<Short>,
}

struct Short {
    origin: u16,
    status: u16,
    fields: Box<[u8]>,
    body: Vec<u8>,
}

impl Opening {
    pub fn method(&self) -> Method {
        match (self.hint, self.step) {
            (Hint::Head, _) | (_, Step::Head) => Method::Head,
            _ => Method::Get,
        }
    }

    /// The bytes that are asked for; `None`: all.
    fn range(&self) -> Option<AskedRange> {
        match (self.step, self.hint) {
            (Step::Head | Step::Whole, _) | (_, Hint::Head) => None,
            (Step::Part, Hint::Span(first, last)) => Some(AskedRange::Span {
                first,
                last: last.min(first.saturating_add(FIRST_READ_BYTES - 1)),
            }),
            (Step::Part, Hint::Last(len_bytes)) => {
                Some(AskedRange::Suffix(len_bytes.min(FIRST_READ_BYTES)))
            }
        }
    }

    pub fn request(&self, origin: &Address) -> Result<Vec<u8>, &'static str> {
        let range = self.range();
        let stale = self.stale.as_ref();
        let condition = stale.map_or(Condition::None, |object| object.if_changed());
        origin.request(self.method(), &self.target, range, condition)
    }

    /// What is asked for instead after a response of this status; `None`: it is an answer. Whether it `refuses`: of a bucket.
    fn other_step(&mut self, status: u16, refuses: bool) -> Option<Step> {
        match (status, self.step) {
            (416, Step::Part) => Some(match self.hint {
                Hint::Span(0, _) | Hint::Last(_) => Step::Whole,
                Hint::Span(..) | Hint::Head => Step::Head,
            }),
            (403, _) if refuses && self.method() == Method::Head => {
                self.hint = Hint::Span(0, 0); // only the answer to GET says why
                Some(Step::Part)
            }
            _ => None,
        }
    }

    /// Whether someone still wants the answer.
    pub fn is_wanted(&self) -> bool {
        self.refreshes
            || self
                .waiters
                .iter()
                .any(|waiter| waiter.interest.strong_count() > 0)
    }

    /// Keeps bytes of a short response.
    pub fn collect(&mut self, bytes: &[u8]) {
        if let Some(short) = &mut self.short {
            let room = (SHORT_BYTES_MAX + 1).saturating_sub(short.body.len());
            short
                .body
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }
}

impl Short {
    fn is_too_long(&self) -> bool {
        self.body.len() > SHORT_BYTES_MAX
    }
}

fn object_as(object: &Arc<Object>, how: How, collapsed: bool) -> SiteAnswer {
    SiteAnswer::Object(Found {
        object: Arc::clone(object),
        validity: object.validity(),
        how,
        collapsed,
    })
}

fn relayed(status: u16, fields: &[u8], body: &Arc<[u8]>) -> SiteAnswer {
    SiteAnswer::Relayed {
        status,
        fields: fields.into(),
        body: Arc::clone(body),
    }
}

impl Upstream {
    /// A stream wants to know what is at a target.
    pub(super) fn open(
        &mut self,
        stream: StreamId,
        asked: Asked,
        interest: Weak<()>,
        now: Instant,
    ) {
        let waiter = Waiter {
            stream,
            asked,
            interest,
        };
        if let Some(task) = self.opening.get(&waiter.asked.target) {
            if let Some(Job::Open(opening)) = self.jobs.get_mut(task) {
                return opening.waiters.push(waiter); // one for each connection at most, or for each call of NFS
            }
        }
        let (target, hint) = (waiter.asked.target.clone(), waiter.asked.hint);
        self.ask_about(target, hint, vec![waiter], now);
    }

    /// A stale object was sent, and its origin is asked about it.
    pub(super) fn refresh(&mut self, target: Box<[u8]>, now: Instant) {
        if !self.opening.contains_key(&target) {
            self.ask_about(target, Hint::Head, Vec::new(), now);
        }
    }

    fn ask_about(&mut self, target: Box<[u8]>, hint: Hint, waiters: Vec<Waiter>, now: Instant) {
        let stale = match self.gateway.catalog.look_up(&target, unix_ms() / 1000) {
            // It has become known since it was asked for.
            LookUp::Fresh(object) => {
                let how = object.met(hint);
                let answer = |waiter| self.answer_waiter(waiter, object_as(&object, how, false));
                return waiters.iter().for_each(answer);
            }
            LookUp::Stale(object, _) => Some(object),
            LookUp::Passes | LookUp::Unknown => None,
        };
        let opening = Opening {
            target: target.clone(),
            hint,
            step: Step::Part,
            refreshes: waiters.is_empty(),
            purges: self.gateway.catalog.purges(),
            waiters,
            stale,
            short: None,
        };
        let task = self.begin(Kind::Open, Job::Open(opening), now);
        self.opening.insert(target, task);
    }

    /// Ends questions whose clients have all left, and forgets the others that have.
    pub(super) fn end_openings(&mut self, now: Instant) {
        let mut left = Vec::new();
        for (id, job) in &mut self.jobs {
            let Job::Open(opening) = job else { continue };
            opening
                .waiters
                .retain(|waiter| waiter.interest.strong_count() > 0);
            if !opening.is_wanted() {
                left.push(*id);
            }
        }
        for task in left {
            self.end_opening(task, now);
        }
    }

    /// Nobody wants the answer any more.
    pub(super) fn end_opening(&mut self, task: TaskId, now: Instant) {
        if let Some(Job::Open(opening)) = self.jobs.remove(&task) {
            self.opening.remove(&opening.target);
            self.machine.on(upstream::In::Drop(task), now);
        }
    }

    /// The head of an answer.
    pub(super) fn opened(
        &mut self,
        task: TaskId,
        response: &Response<'_>,
        now: Instant,
    ) -> Verdict {
        let origin = self.origin_of(task);
        let has_other = self.has_other(origin, now);
        let Some(Job::Open(opening)) = self.jobs.get_mut(&task) else {
            return Verdict::Skip;
        };
        let now_unix_s = unix_ms() / 1000;
        let refuses = self.gateway.has_buckets() && response.status >= 300;
        if let Some(step) = opening.other_step(response.status, refuses) {
            self.ask_again(task, step, now);
            return Verdict::Skip;
        }
        match response.status {
            502..=504 if has_other => {
                return Verdict::Fault(Fault::Bad, "it says that it can't answer now");
            }
            304 => return self.unchanged(task, response, now),
            500..=599 if opening.stale.is_some() => {
                return Verdict::Fault(Fault::Bad, "an error of the server");
            }
            _ => {}
        }
        if refuses {
            return self.keep_short(task, origin, response.status, Vec::new());
        }
        let asked_part = opening.range().is_some();
        let (target, slab) = (&opening.target, &self.gateway.slab);
        let object = Object::of(response, target, asked_part, slab, now_unix_s);
        if let Some((mut object, span)) = object {
            object.origin = origin;
            object.id = self.object_id();
            if self.gateway.has_buckets() {
                object.vary = Box::default(); // it gets no field by which an answer could vary
            }
            return self.found_object(task, Arc::new(object), span, now);
        }
        // An error may be over soon, and an object there: only of what is no object is each asked for by itself.
        match (response.status, opening.stale.take()) {
            // A head alone does not say whether its object could be kept.
            (200 | 206, _) if opening.method() == Method::Head => {}
            (200 | 206, before) => {
                let same = before.is_some_and(|before| before.is_of(response));
                let catalog = &self.gateway.catalog;
                catalog.passes(&opening.target, !same, now_unix_s);
            }
            (404 | 410, Some(gone)) => self.gateway.catalog.leave(&gone),
            _ => {}
        }
        let short = response
            .len_bytes
            .is_none_or(|len| len <= SHORT_BYTES_MAX as u64);
        let short = short && opening.method() == Method::Get && is_for_all(response);
        let fields = relay::passed(response).map(|fields| self.gateway.local(&fields));
        match fields {
            Ok(fields) if short => self.keep_short(task, origin, response.status, fields),
            fields => {
                let fields = fields.unwrap_or_default();
                self.let_pass(task, (response.status, &fields), now);
                Verdict::Skip
            }
        }
    }

    /// Whether another origin can be asked now.
    fn has_other(&self, origin: u16, now: Instant) -> bool {
        let others = 0..self.gateway.origins.len() as u16;
        others
            .filter(|other| *other != origin)
            .any(|other| !self.machine.is_down(other, now))
    }

    /// An origin says that a stale object is what is there.
    fn unchanged(&mut self, task: TaskId, response: &Response<'_>, now: Instant) -> Verdict {
        let stale = match self.jobs.get_mut(&task) {
            Some(Job::Open(opening)) => opening.stale.take(),
            _ => None,
        };
        let Some(object) = stale else {
            return Verdict::Fault(Fault::Bad, "304 to a request without a condition");
        };
        if object.renew(response, unix_ms() / 1000) {
            self.found(task, &object, How::Revalidated);
        } else {
            self.gateway.catalog.leave(&object);
            self.ask_again(task, Step::Part, now);
        }
        Verdict::Skip
    }

    /// A response that is no object is received whole.
    fn keep_short(&mut self, task: TaskId, origin: u16, status: u16, fields: Vec<u8>) -> Verdict {
        if let Some(Job::Open(opening)) = self.jobs.get_mut(&task) {
            opening.short = Some(Short {
                origin,
                status,
                fields: fields.into(),
                body: Vec::new(),
            });
        }
        Verdict::Take
    }

    /// The answer is an object, some of whose bytes follow.
    fn found_object(
        &mut self,
        task: TaskId,
        object: Arc<Object>,
        span: Option<Span>,
        now: Instant,
    ) -> Verdict {
        let (stale, purges) = match self.jobs.get_mut(&task) {
            Some(Job::Open(opening)) => (opening.stale.take(), opening.purges),
            _ => (None, 0),
        };
        let how = match stale {
            Some(_) => How::Changed,
            None => How::Missed,
        };
        // The same version with other validity keeps its bytes.
        let object = match stale.filter(|stale| stale.is_same(&object)) {
            Some(stale) => {
                stale.revalue(object.validity());
                stale
            }
            None => {
                self.gateway.catalog.enter(&object, purges);
                object
            }
        };
        let span = span.filter(|span| span.len_bytes > 0 && !object.is_resident(*span));
        let first = span.map(|span| Span {
            len_bytes: span.len_bytes.min(FIRST_READ_BYTES),
            ..span
        });
        let lease = first.and_then(|first| self.gateway.slab.lease(first.len_bytes));
        // Told before the workers, whose streams will want these bytes.
        let read = first.filter(|_| lease.is_some()).map(|span| {
            let read = ReadId::of_shell(self.number());
            let object = object.id;
            self.disk.on(In::Begun { read, object, span }, now);
            (read, span)
        });
        self.found(task, &object, how);
        let (Some((read, span)), Some(lease)) = (read, lease) else {
            return Verdict::Skip;
        };
        let reading = Reading::new(read, object, span, Into::Slab(lease), now);
        self.jobs.insert(task, Job::Read(reading));
        self.reads.insert(read, task);
        Verdict::Take
    }

    /// All who wait for the answer get this object. The job is done but for what its task still receives.
    fn found(&mut self, task: TaskId, object: &Arc<Object>, how: How) {
        let Some(Job::Open(opening)) = self.jobs.remove(&task) else {
            return;
        };
        self.opening.remove(&opening.target);
        for (nth, waiter) in opening.waiters.iter().enumerate() {
            self.answer_waiter(waiter, object_as(object, how, nth > 0));
        }
    }

    fn answer_waiter(&self, waiter: &Waiter, answer: SiteAnswer) {
        if waiter.interest.strong_count() > 0 {
            self.return_to(waiter.stream, Done::Found(answer));
        }
    }

    /// The same question in another form, on another task.
    fn ask_again(&mut self, task: TaskId, step: Step, now: Instant) {
        if let Some(Job::Open(opening)) = self.jobs.remove(&task) {
            let target = opening.target.clone();
            let opening = Opening { step, ..opening };
            let task = self.begin(Kind::Open, Job::Open(opening), now);
            self.opening.insert(target, task);
        }
    }

    /// What is there can't be kept: each who waits asks for itself, unless status and fields are enough.
    fn let_pass(&mut self, task: TaskId, (status, fields): (u16, &[u8]), now: Instant) {
        let Some(Job::Open(opening)) = self.jobs.remove(&task) else {
            return;
        };
        self.opening.remove(&opening.target);
        for waiter in opening.waiters {
            if waiter.asked.head.is_empty() {
                self.answer_waiter(&waiter, relayed(status, fields, &Arc::default()));
                continue;
            }
            self.pass(waiter.stream, waiter.asked, waiter.interest, now);
        }
    }

    /// Bytes of a short response came; it may be longer than it may be.
    pub(super) fn collected(&mut self, link: LinkId, task: TaskId, now: Instant) {
        let Some(Job::Open(opening)) = self.jobs.get_mut(&task) else {
            return;
        };
        if let Some(short) = opening.short.take_if(|short| short.is_too_long()) {
            self.let_pass(task, (short.status, &short.fields), now);
            self.links.remove(&link);
            self.machine.on(upstream::In::Drop(task), now);
        }
    }

    /// A short response is complete.
    pub(super) fn open_ended(&mut self, opening: Opening, now: Instant) {
        self.opening.remove(&opening.target);
        let refuses = |short: &Short| self.gateway.has_buckets() && short.status >= 300;
        if opening.short.as_ref().is_some_and(refuses) {
            return self.bucket_answered(opening, now);
        }
        let Some(short) = opening.short else { return };
        let body: Arc<[u8]> = short.body.into();
        for waiter in &opening.waiters {
            self.answer_waiter(waiter, relayed(short.status, &short.fields, &body));
        }
    }

    /// A bucket has no object there. Clients get nothing of its answer, which names keys and who asked.
    fn bucket_answered(&mut self, mut opening: Opening, now: Instant) {
        let Some(short) = opening.short.take() else {
            return;
        };
        let code = s3::error_code(&short.body);
        if !s3::is_missing(short.status, code) {
            self.tell_refused(short.origin, (short.status, code), REFUSED, now);
            return self.open_failed(opening, Fault::Bad, now);
        }
        if short.status == 403 {
            self.tell_denied(short.origin, now);
        }
        if let Some(object) = opening.stale {
            self.gateway.catalog.leave(&object);
        }
        for waiter in opening.waiters {
            self.missing(waiter, now);
        }
    }

    /// No origin answers. What is stale may be better than nothing (RFC 9111 section 4.2.4).
    pub(super) fn open_failed(&mut self, opening: Opening, fault: Fault, _now: Instant) {
        self.opening.remove(&opening.target);
        let now_unix_s = unix_ms() / 1000;
        let stale = opening
            .stale
            .filter(|object| object.validity().is_usable_on_error(now_unix_s));
        for waiter in &opening.waiters {
            let answer = match &stale {
                Some(object) => object_as(object, How::Stale, false),
                None => SiteAnswer::NoAnswer(fault),
            };
            self.answer_waiter(waiter, answer);
        }
    }
}
