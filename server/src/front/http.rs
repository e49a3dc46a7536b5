//! One connection's side of HTTP: takes bytes, returns requests, and plans responses.
//!
//! A request is parsed where its bytes lie, and parsed again when its response is planned: only what the access log
//! keeps is copied. The worker lends the buffers for heads; a connection between two requests holds none. What a request
//! asks for is found by `worker/answer.rs`.

mod settled;
mod travelling;

use std::collections::VecDeque;

use ackpace_core::conn::Plan as CorePlan;
use ackpace_core::limits::{ARRIVAL_BYTES, RECORD_BRIEF_BYTES_MAX};
use ackpace_core::worker::Received;
use ackpace_wire::access_log;
use ackpace_wire::http::target::{self, Form};
use ackpace_wire::http::{
    BodySkip, Context, Method, Parsed, Plan, Reject, Request, RequestBody, Status, parse, plan,
};
use ackpace_wire::limits::{HEAD_BYTES_MAX, RANGES_COMMON, RANGES_MAX};
use ackpace_wire::listing::Format;
use rustix::io::Errno;

use super::charge::Charge;
use super::fetching::asked_of;
use super::plain;
use super::planning::{
    BodyOf, PARTS_COMMON, cached_core_plan, closes, context, core_plan, planned, query_of,
    ranges_room,
};
use super::site::{Query, Site, SiteAnswer};
use crate::cluster::By;
use crate::gateway::Asked;
use crate::log::{BRIEF_HELD_BYTES, RequestText};
use crate::response_cache::{CachedResponse, Content, Key};
use crate::transport::Transport;

/// Buffers for request heads that a worker keeps for reuse. More: returned buffers are freed.
const HEAD_BUFFERS_KEPT_MAX: usize = 256;

/// A buffer for a request head and what follows it.
pub type HeadBuffer = Box<[u8; HEAD_BYTES_MAX]>;

/// Buffers that are lent to connections while bytes of a head are there. Returned ones are reused, the most recent
/// first.
#[derive(Default)]
pub struct HeadPool {
    free: Vec<HeadBuffer>,
}

impl HeadPool {
    fn lend(&mut self) -> HeadBuffer {
        self.free
            .pop()
            .unwrap_or_else(|| Box::new([0; HEAD_BYTES_MAX]))
    }

    fn take_back(&mut self, buffer: HeadBuffer) {
        if self.free.len() < HEAD_BUFFERS_KEPT_MAX {
            self.free.push(buffer);
        }
    }
}

/// The state of a connection's input, and of its responses under way.
#[derive(Default)]
pub struct Front {
    buffer: Option<HeadBuffer>,
    /// The offset of the first unused byte in the buffer.
    start: usize,
    end: usize,
    /// Length of the request head at `start`; 0 if there is none.
    head_len: usize,
    /// The position of its path, if the request is plain.
    plain: Option<plain::KeyPlace>,
    body: Option<BodySkip>,
    /// What the access log will say of responses that have not fully arrived, oldest first.
    records: VecDeque<Box<Noted>>,
    /// The status of the response that was planned last; 0 before the first.
    status: u16,
    /// Memory of the response under way, if it has more ranges than is common.
    ranges: Option<Charge>,
}

/// A response for the access log.
struct Noted {
    nth: u16,
    status: u16,
    /// What the cache of a gateway did.
    cache: Option<&'static str>,
    /// By what this node has its bytes.
    by: By,
    request: RequestText,
    ended: Option<Ended>,
}

#[derive(Clone, Copy)]
pub struct Ended {
    pub unix_ms: u64,
    /// How much later than the machine's time of the response's end this is, microseconds: the machine uses the time of
    /// the turn.
    pub later_us: u64,
}

/// What a [`Noted`] costs beside its request.
const NOTED_BYTES: u64 = (size_of::<Noted>() - size_of::<RequestText>() + 48) as u64;

/// The share of each connection is enough for the beginning of each field.
const _: () = assert!(NOTED_BYTES + BRIEF_HELD_BYTES + ARRIVAL_BYTES <= RECORD_BRIEF_BYTES_MAX);

/// Slots for records that an idle connection keeps.
const RECORDS_COMMON: usize = 4;

/// The next step for a request.
pub enum Task {
    Answer(CorePlan),
    /// The site has to look up a path.
    Find(Query),
    /// An origin has it.
    Fetch(Asked),
}

/// The surroundings of a connection: what planning a response depends on besides it.
pub struct Surroundings<'a> {
    pub site: &'a Site,
    pub draining: bool,
    /// Memory that the record of a request for the access log may hold; `None` if the log is off.
    pub record_room_bytes: Option<u64>,
}

impl Front {
    /// Looks for a request head: first in the buffer, then in the socket.
    pub fn receive(
        &mut self,
        transport: &Transport,
        pool: &mut HeadPool,
    ) -> rustix::io::Result<Received> {
        loop {
            if let Some(received) = self.parsed() {
                return Ok(received);
            }
            let buffer = self.buffer.get_or_insert_with(|| pool.lend());
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let room = buffer.len() - self.end;
            let read = transport.receive(&mut buffer[self.end..]);
            if let Ok(read) = read {
                self.end += read;
            }
            match read {
                Ok(0) => return Ok(Received::End),
                // Only if the buffer was filled to the brim may more be in the socket (edge-triggered epoll(7)).
                Ok(read) if read < room => {
                    let received = match self.parsed() {
                        Some(Received::Request { body, .. }) => Received::Request {
                            body,
                            more: self.start + self.head_len < self.end,
                        },
                        Some(other) => other,
                        None => Received::HeadPart,
                    };
                    return Ok(received);
                }
                Ok(_) => {}
                Err(Errno::AGAIN) if self.start == self.end => {
                    self.release(pool);
                    return Ok(Received::Nothing);
                }
                Err(Errno::AGAIN) => return Ok(Received::HeadPart),
                Err(error) => return Err(error),
            }
        }
    }

    /// The request head at the start of the buffer, if it is complete or malformed.
    fn parsed(&mut self) -> Option<Received> {
        let bytes = &self.buffer.as_ref()?[self.start..self.end];
        let body = match parse(bytes) {
            Parsed::Incomplete => return None,
            Parsed::Complete {
                request,
                head_len_bytes,
            } => {
                self.head_len = head_len_bytes;
                self.plain = plain::KeyPlace::of(bytes, &request);
                request.body
            }
            // Where the next request would start is unknown.
            Parsed::Reject(_) => {
                (self.head_len, self.plain) = (bytes.len(), None);
                RequestBody::None
            }
        };
        self.body = (body != RequestBody::None).then(|| BodySkip::new(body));
        Some(Received::Request {
            body: self.body.is_some(),
            more: true,
        })
    }

    /// Skips the body of the request that was answered.
    pub fn skip_body(
        &mut self,
        transport: &Transport,
        pool: &mut HeadPool,
    ) -> rustix::io::Result<Received> {
        let Some(skip) = &mut self.body else {
            return Ok(Received::Skipped {
                bytes: 0,
                done: true,
            });
        };
        let buffer = self.buffer.get_or_insert_with(|| pool.lend());
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            match transport.receive(&mut buffer[..]) {
                Ok(0) => return Ok(Received::End),
                Ok(read) => self.end = read,
                Err(Errno::AGAIN) => {
                    self.release(pool);
                    return Ok(Received::Nothing);
                }
                Err(error) => return Err(error),
            }
        }
        let Ok(skipped) = skip.skip(&buffer[self.start..self.end]) else {
            return Ok(Received::Broken);
        };
        self.start += skipped.consumed_bytes;
        if skipped.done {
            self.body = None;
        }
        Ok(Received::Skipped {
            bytes: skipped.consumed_bytes as u64,
            done: skipped.done,
        })
    }

    pub fn discard(
        &mut self,
        transport: &Transport,
        pool: &mut HeadPool,
    ) -> rustix::io::Result<Received> {
        let buffer = self.buffer.get_or_insert_with(|| pool.lend());
        let read = transport.receive(&mut buffer[..]);
        (self.start, self.end) = (0, 0);
        self.release(pool);
        match read {
            Ok(0) => Ok(Received::End),
            Ok(read) => Ok(Received::Skipped {
                bytes: read as u64,
                done: false,
            }),
            Err(Errno::AGAIN) => Ok(Received::Nothing),
            Err(error) => Err(error),
        }
    }

    /// The cache key of the request at the start of the buffer, if it is plain.
    pub fn plain(&self) -> Option<Key<'_>> {
        self.plain?.key(self.unused())
    }

    /// The plan of a cached response to that request.
    pub fn cached_plan(
        &mut self,
        nth: u16,
        cached: &CachedResponse,
        content: &Content,
        around: &Surroundings<'_>,
    ) -> CorePlan {
        let keep_alive = self.plain.is_some_and(|place| place.keep_alive());
        let text = (around.record_room_bytes).and_then(|_| self.text(&self.request(), around));
        self.recorded(nth, Status::Ok.code(), text);
        cached_core_plan(cached, content, keep_alive)
    }

    /// The request at the start of the buffer: a whole one, since the machine was told of it.
    pub fn request(&self) -> Result<Request<'_>, Reject> {
        match parse(self.unused()) {
            Parsed::Complete { request, .. } => Ok(request),
            Parsed::Reject(reject) => Err(reject),
            Parsed::Incomplete => Err(Reject::bad("The request is incomplete.")),
        }
    }

    /// What that request needs. With `refuse`, its client has too many connections.
    pub fn task(&mut self, nth: u16, refuse: bool, around: &Surroundings<'_>) -> Task {
        let request = self.request();
        match self.query(&request, refuse, around) {
            Ok(task) => task,
            Err(plan) => {
                let text = self.text(&request, around);
                self.recorded(nth, plan.status, text);
                Task::Answer(core_plan(plan, None))
            }
        }
    }

    /// What is to be looked up for a request.
    /// Errors: The response to one that needs nothing of the site.
    fn query(
        &self,
        request: &Result<Request<'_>, Reject>,
        refuse: bool,
        around: &Surroundings<'_>,
    ) -> Result<Task, Plan> {
        let context = context(around.draining);
        let request = request.as_ref();
        let request = request.map_err(|reject| plan::error(None, reject, &context))?;
        let error = |reject: &Reject, close| {
            let context = Context { close, ..context };
            plan::error(Some(request), reject, &context)
        };
        let close = closes(request);
        if refuse {
            let why = "This address has too many connections.";
            let status = Status::ServiceUnavailable;
            return Err(error(&Reject { status, why }, true));
        }
        if let Some(reject) = self.broken_body() {
            return Err(error(&reject, true));
        }
        if let Some(reject) = request.refusal() {
            return Err(error(&reject, close));
        }
        let target = target::resolve(request.target).map_err(|reject| error(&reject, close))?;
        if request.method == Method::Options || target.form == Form::Asterisk {
            return Err(plan::options(request, &Context { close, ..context }));
        }
        Ok(match &around.site.gateway {
            Some(gateway) => {
                let asked = asked_of(request, self.head(), gateway);
                Task::Fetch(asked.map_err(|reject| error(&reject, close))?)
            }
            None => Task::Find(query_of(request, &target, around.site)),
        })
    }

    /// The head of the request at the start of the buffer.
    pub fn head(&self) -> &[u8] {
        let unused = self.unused();
        unused.get(..self.head_len).unwrap_or(unused)
    }

    /// What is wrong with the part of the request's body that has arrived. A fault that shows later only ends the
    /// connection, since the response is already out.
    fn broken_body(&self) -> Option<Reject> {
        let mut skip = self.body?;
        let body = self.unused().get(self.head_len..)?;
        skip.skip(body).err()
    }

    /// The response to the request at the start of the buffer, by what the site found.
    pub fn plan(
        &mut self,
        nth: u16,
        answer: &SiteAnswer,
        format: Format,
        around: &Surroundings<'_>,
    ) -> CorePlan {
        let context = context(around.draining);
        let request = self.request();
        let (ranges, plan) = match &request {
            Ok(request) => {
                let ranges = ranges_room(request, answer, around.site);
                let context = Context {
                    close: closes(request),
                    ranges_max: match ranges {
                        Some(_) => RANGES_MAX,
                        None => RANGES_COMMON,
                    },
                    ..context
                };
                let plan = planned(request, answer, format, &context, around.site);
                (ranges, plan)
            }
            Err(reject) => (None, plan::error(None, reject, &context)),
        };
        let text = self.text(&request, around);
        self.ranges = ranges.filter(|_| plan.parts.len() > PARTS_COMMON);
        self.recorded(nth, plan.status, text);
        if let Some(noted) = self.records.back_mut().filter(|noted| noted.nth == nth) {
            noted.cache = answer.cache_status();
        }
        core_plan(plan, BodyOf::answer(answer))
    }

    /// What the access log will say of a request; `None` without a log.
    fn text(
        &self,
        request: &Result<Request<'_>, Reject>,
        around: &Surroundings<'_>,
    ) -> Option<RequestText> {
        let room_bytes = around.record_room_bytes?.saturating_sub(NOTED_BYTES);
        let text = match request {
            Ok(request) => access_log::RequestText {
                method: request.method.as_bytes(),
                target: request.target,
                version: request.version.as_str().as_bytes(),
                range: request.range(),
                referer: request.referer(),
                user_agent: request.user_agent(),
                brief: false,
            },
            Err(_) => {
                let mut lines = self.unused().split(|&byte| byte == b'\n');
                let line = lines.next().unwrap_or_default();
                access_log::RequestText {
                    target: line.strip_suffix(b"\r").unwrap_or(line),
                    ..Default::default()
                }
            }
        };
        Some(RequestText::new(&text, room_bytes))
    }

    /// Keeps what the access log will say of a response.
    fn recorded(&mut self, nth: u16, status: u16, request: Option<RequestText>) {
        self.status = status;
        let noted = |request| Noted {
            nth,
            status,
            cache: None,
            by: By::Here,
            request,
            ended: None,
        };
        self.records.extend(request.map(noted).map(Box::new));
    }

    /// The response has ended: the kernel has all of it, or it was cut off.
    pub fn ended(&mut self, nth: u16, ended: impl FnOnce() -> Ended) {
        self.ranges = None;
        if let Some(noted) = self.records.back_mut().filter(|noted| noted.nth == nth) {
            noted.ended = Some(ended());
        }
    }

    /// The status of the response that was planned last.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The request is planned and its head used up. Its body, and the next request, follow.
    pub fn used(&mut self, pool: &mut HeadPool) {
        self.start += self.head_len;
        (self.head_len, self.plain) = (0, None);
        if self.start == self.end {
            self.release(pool);
        }
    }

    pub fn release(&mut self, pool: &mut HeadPool) {
        (self.start, self.end, self.head_len) = (0, 0, 0);
        self.plain = None;
        if let Some(buffer) = self.buffer.take() {
            pool.take_back(buffer);
        }
    }

    /// The bytes that are not used up: the head of the request, and what follows it.
    pub fn unused(&self) -> &[u8] {
        self.buffer
            .as_ref()
            .map_or(&[], |buffer| &buffer[self.start..self.end])
    }
}
