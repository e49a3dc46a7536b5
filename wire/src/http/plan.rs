//! Plans: each answer is fully decided before its first byte is sent.
//!
//! Byte n of an answer is a function of its [`Plan`] alone, so a connection can be resumed or handed over at
//! any byte. A plan does no I/O: it names spans of the file, and the shell sends them.

pub mod location;
pub mod relay;

pub use relay::{relayed, through};

use super::conditional::{self, Validators, Verdict};
use super::etag::ETag;
use super::head::Head;
use super::negotiation::Coding;
use super::range::{self, Ranges, Span};
use super::request::{Method, Request, Version};
use super::status::{Reject, Status};
use crate::limits::TARGET_BYTES_MAX;

/// The value of Allow in every answer that carries it.
pub const ALLOW: &[u8] = b"GET, HEAD, OPTIONS";

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The status code in its status line.
    pub status: u16,
    /// What to send, in order. The first part is `Bytes` and starts with the head.
    pub parts: Vec<Part>,
    /// True if the connection may serve the next request after this answer.
    pub keep_alive: bool,
    /// Length of the head, at the start of the first part. An access log does not count these bytes.
    pub head_len_bytes: u64,
    /// Bytes after the head; `None` for a stream whose length is unknown until it ends.
    pub body_len_bytes: Option<u64>,
    /// True unless the tag is weak: all bytes of the file must come from one version.
    pub one_version: bool,
}

/// One piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Literal bytes.
    Bytes(Vec<u8>),
    /// A span of the file; never empty.
    File {
        /// Offset of the first byte in the file.
        offset_bytes: u64,
        /// Length of the span.
        len_bytes: u64,
    },
    /// Bytes generated while they are sent; always the last part.
    Stream {
        /// True: sent in chunks (RFC 9112 section 7.1), see [`push_chunk`]. False: ended by its length if
        /// [`Plan::body_len_bytes`] says one, else by closing the connection.
        chunked: bool,
    },
}

/// The state of a file at the time of the answer, or of an origin's object.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// Its length.
    pub len_bytes: u64,
    /// Its validators.
    pub validators: Validators,
    /// Its media type; empty if an origin sent none.
    pub content_type: &'a str,
    /// The content coding of the file (a precompressed sibling); `None` for the plain file.
    pub coding: Option<Coding>,
    /// True if another Accept-Encoding could have selected another file: the answer then carries Vary.
    pub vary: bool,
    /// Further lines that an origin sent, from [`relay::stored`]; empty for a file.
    pub fields: &'a [u8],
    /// The Date that the origin sent, in seconds since 1970; `None` for a file, whose answers are dated by the clock.
    pub date_unix_s: Option<u64>,
    /// Its age for a client, sent as Age (RFC 9111 section 5.1); `None` for a file.
    pub age_s: Option<u64>,
}

/// Inputs of an answer other than request and file.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// The wall clock, in seconds since 1970.
    pub now_unix_s: u64,
    /// True while the server shuts down: no connection is kept.
    pub draining: bool,
    /// True if the caller wants this connection closed, as after its last allowed request or an unread body.
    pub close: bool,
    /// Ranges of an answer for which there is memory ([`crate::limits::RANGES_COMMON`] at least). More: the whole file.
    pub ranges_max: usize,
}

/// The answer for a file: 200, 206, 304, 412 or 416.
///
/// `request` is GET or HEAD and has no [`Request::refusal`]. HEAD gets the head of a GET without Range, since
/// RFC 9110 section 14.2 defines Range for GET alone.
pub fn file(request: &Request<'_>, file: &Representation<'_>, context: &Context) -> Plan {
    match conditional::evaluate(request, &file.validators) {
        Verdict::Proceed => {}
        Verdict::NotModified => return not_modified(request, file, context),
        Verdict::Failed => {
            let why = "The file is not the version that was asked for.";
            return refuse(request, Status::PreconditionFailed, why, context);
        }
    }
    let range = request
        .range()
        .filter(|_| request.method == Method::Get)
        .filter(|_| conditional::range_holds(request, &file.validators));
    let answer = FileAnswer {
        request,
        file,
        context,
    };
    let ranges = range.map_or(Ranges::Ignored, |value| {
        range::evaluate(value, file.len_bytes, context.ranges_max)
    });
    let plan = match ranges {
        Ranges::Ignored => answer.whole(),
        Ranges::Unsatisfiable => unsatisfiable(request, file, context),
        Ranges::Satisfiable(spans) => match &spans[..] {
            [span] => answer.one_range(*span),
            spans => answer.several_ranges(spans),
        },
    };
    Plan {
        one_version: (file.validators.etag).is_none_or(|tag| !tag.is_weak()),
        ..plan
    }
}

/// Redirects the client to `reference`, as made by [`folder_reference`](super::target::folder_reference) or
/// [`file_reference`](super::target::file_reference).
///
/// The answer is 414 if that is longer than a target may be.
pub fn redirect(
    request: &Request<'_>,
    status: Status,
    reference: &[u8],
    context: &Context,
) -> Plan {
    if reference.len() > TARGET_BYTES_MAX {
        // The server would refuse the redirected request: encoding makes the target longer.
        let why = "The address that this leads to is too long.";
        let status = Status::UriTooLong;
        return error(Some(request), &Reject { status, why }, context);
    }
    let extra = |head: &mut Head| head.field("Location", reference);
    message(Some(request), status, "", context, extra)
}

/// An error with a short text for a person. `request` is `None` if the request could not be parsed. The
/// connection closes afterwards in that case and where [`Status::closes`] says so.
pub fn error(request: Option<&Request<'_>>, reject: &Reject, context: &Context) -> Plan {
    message(request, reject.status, reject.why, context, |head| {
        if reject.status == Status::MethodNotAllowed {
            head.field("Allow", ALLOW);
        }
    })
}

/// The head of a listing, whose body is a stream. The answer depends on Accept.
pub fn listing(request: &Request<'_>, content_type: &str, context: &Context) -> Plan {
    let chunked = request.version == Version::Http11;
    let has_body = request.method != Method::Head;
    let keep_alive = keeps_alive(request, context) && (chunked || !has_body);
    let mut head = Head::new(Status::Ok, context.now_unix_s);
    head.field("Content-Type", content_type.as_bytes());
    head.field("Vary", b"Accept");
    // Its length and time are unknown until it has been generated.
    if has_body && chunked {
        head.field("Transfer-Encoding", b"chunked");
    }
    let mut plan = finish(head, Status::Ok.code(), request.version, keep_alive, 0);
    if has_body {
        plan.parts.push(Part::Stream { chunked });
        plan.body_len_bytes = None;
    }
    plan
}

/// The answer to OPTIONS, for `*` and for any path.
pub fn options(request: &Request<'_>, context: &Context) -> Plan {
    let mut head = Head::new(Status::NoContent, context.now_unix_s);
    head.field("Allow", ALLOW);
    let keep_alive = keeps_alive(request, context);
    let status = Status::NoContent.code();
    finish(head, status, request.version, keep_alive, 0)
}

/// Appends `data` as one chunk (RFC 9112 section 7.1). Empty data adds nothing, since an empty chunk would end
/// the body.
pub fn push_chunk(data: &[u8], out: &mut Vec<u8>) {
    use std::io::Write;
    if data.is_empty() {
        return;
    }
    let _ = write!(out, "{:x}\r\n", data.len());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// The last chunk, which ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The common inputs of the three 2xx answers for a file.
struct FileAnswer<'a> {
    request: &'a Request<'a>,
    file: &'a Representation<'a>,
    context: &'a Context,
}

impl FileAnswer<'_> {
    fn whole(&self) -> Plan {
        let mut head = self.head(Status::Ok);
        self.content_type(&mut head);
        head.field_fmt("Content-Length", format_args!("{}", self.file.len_bytes));
        let mut plan = self.finish(head, Status::Ok);
        if self.request.method != Method::Head {
            push_file(
                &mut plan,
                Span {
                    offset_bytes: 0,
                    len_bytes: self.file.len_bytes,
                },
            );
        }
        plan
    }

    fn one_range(&self, span: Span) -> Plan {
        let mut head = self.head(Status::PartialContent);
        self.content_type(&mut head);
        head.field_fmt("Content-Length", format_args!("{}", span.len_bytes));
        let (first, last) = (span.offset_bytes, span.last_byte());
        head.field_fmt(
            "Content-Range",
            format_args!("bytes {first}-{last}/{}", self.file.len_bytes),
        );
        let mut plan = self.finish(head, Status::PartialContent);
        push_file(&mut plan, span);
        plan
    }

    /// multipart/byteranges (RFC 9110 section 14.6).
    fn several_ranges(&self, spans: &[Span]) -> Plan {
        let boundary = self.boundary(spans);
        let mut body = Vec::with_capacity(2 * spans.len() + 1);
        for span in spans {
            body.push(Part::Bytes(self.part_head(&boundary, span)));
            body.push(Part::File {
                offset_bytes: span.offset_bytes,
                len_bytes: span.len_bytes,
            });
        }
        body.push(Part::Bytes(format!("\r\n--{boundary}--\r\n").into_bytes()));
        let body_len_bytes = body.iter().map(part_len_bytes).sum();

        let mut head = self.head(Status::PartialContent);
        head.field_fmt(
            "Content-Type",
            format_args!("multipart/byteranges; boundary={boundary}"),
        );
        head.field_fmt("Content-Length", format_args!("{body_len_bytes}"));
        let mut plan = self.finish(head, Status::PartialContent);
        plan.parts.append(&mut body);
        plan.body_len_bytes = Some(body_len_bytes);
        plan
    }

    fn part_head(&self, boundary: &str, span: &Span) -> Vec<u8> {
        let (first, last) = (span.offset_bytes, span.last_byte());
        let (content_type, len_bytes) = (self.file.content_type, self.file.len_bytes);
        let content_type = match content_type {
            "" => "",
            _ => &format!("Content-Type: {content_type}\r\n"),
        };
        format!(
            "\r\n--{boundary}\r\n{content_type}\
             Content-Range: bytes {first}-{last}/{len_bytes}\r\n\r\n"
        )
        .into_bytes()
    }

    fn content_type(&self, head: &mut Head) {
        if !self.file.content_type.is_empty() {
            head.field("Content-Type", self.file.content_type.as_bytes());
        }
    }

    /// A function of the file's version and of the ranges: every mirror answers the same request with the same
    /// bytes. With 128 bits it does not occur in the file by chance.
    fn boundary(&self, spans: &[Span]) -> String {
        let tag = self.file.validators.etag.as_ref();
        let tag = tag.map_or(&[][..], ETag::opaque);
        let mut low = fnv(0xcbf2_9ce4_8422_2325, tag);
        for span in spans {
            low = fnv(low, &span.offset_bytes.to_be_bytes());
            low = fnv(low, &span.len_bytes.to_be_bytes());
        }
        let high = fnv(low, b"ackpace");
        format!("{high:016x}{low:016x}")
    }

    fn head(&self, status: Status) -> Head {
        let mut head = file_head(status, self.file, self.context);
        if let Some(coding) = self.file.coding {
            head.field("Content-Encoding", coding.token().as_bytes());
        }
        validator_fields(&mut head, self.file);
        head.field("Accept-Ranges", b"bytes");
        head.lines(self.file.fields);
        head
    }

    fn finish(&self, head: Head, status: Status) -> Plan {
        let keep_alive = keeps_alive(self.request, self.context);
        finish(head, status.code(), self.request.version, keep_alive, 0)
    }
}

/// FNV-1a: small, and identical on every machine and in every compiler version.
fn fnv(state: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(state, |state, &byte| {
        (state ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Status line, Date and Age.
fn file_head(status: Status, file: &Representation<'_>, context: &Context) -> Head {
    let mut head = Head::new(status, file.date_unix_s.unwrap_or(context.now_unix_s));
    if let Some(age_s) = file.age_s {
        head.field_fmt("Age", format_args!("{age_s}"));
    }
    head
}

fn validator_fields(head: &mut Head, file: &Representation<'_>) {
    if let Some(unix_s) = file.validators.last_modified_unix_s {
        head.date("Last-Modified", unix_s);
    }
    if let Some(tag) = &file.validators.etag {
        head.tag(tag);
    }
    if file.vary {
        head.field("Vary", b"Accept-Encoding");
    }
}

/// RFC 9110 section 15.4.5: only the fields that could update a cached response, and no body.
fn not_modified(request: &Request<'_>, file: &Representation<'_>, context: &Context) -> Plan {
    let mut head = file_head(Status::NotModified, file, context);
    validator_fields(&mut head, file);
    relay::push_metadata(file.fields, &mut head);
    let keep_alive = keeps_alive(request, context);
    let status = Status::NotModified.code();
    finish(head, status, request.version, keep_alive, 0)
}

fn unsatisfiable(request: &Request<'_>, file: &Representation<'_>, context: &Context) -> Plan {
    let status = Status::RangeNotSatisfiable;
    let why = "The file ends before the range that was asked for.";
    message(Some(request), status, why, context, |head| {
        head.field_fmt("Content-Range", format_args!("bytes */{}", file.len_bytes));
    })
}

fn refuse(request: &Request<'_>, status: Status, why: &'static str, context: &Context) -> Plan {
    error(Some(request), &Reject { status, why }, context)
}

/// A short plain-text answer: it suits browsers and curl alike, and needs no escaping.
fn message(
    request: Option<&Request<'_>>,
    status: Status,
    why: &str,
    context: &Context,
    extra: impl FnOnce(&mut Head),
) -> Plan {
    let mut body = format!("{}\n", status.line());
    if !why.is_empty() {
        body.push_str(why);
        body.push('\n');
    }
    let mut head = Head::new(status, context.now_unix_s);
    head.field("Content-Type", b"text/plain; charset=utf-8");
    head.field_fmt("Content-Length", format_args!("{}", body.len()));
    extra(&mut head);
    if request.is_some_and(|request| request.method == Method::Head) {
        body.clear();
    }
    let version = request.map_or(Version::Http11, |request| request.version);
    let keep_alive =
        request.is_some_and(|request| keeps_alive(request, context)) && !status.closes();
    let mut plan = finish(head, status.code(), version, keep_alive, body.len() as u64);
    if let Some(Part::Bytes(bytes)) = plan.parts.first_mut() {
        bytes.extend_from_slice(body.as_bytes());
    }
    plan
}

const fn keeps_alive(request: &Request<'_>, context: &Context) -> bool {
    request.keep_alive && !context.draining && !context.close
}

/// Adds Connection (`close`, or `keep-alive` to an HTTP/1.0 client) where needed, and ends the head.
fn finish(
    mut head: Head,
    status: u16,
    version: Version,
    keep_alive: bool,
    body_len_bytes: u64,
) -> Plan {
    match (keep_alive, version) {
        (false, _) => head.field("Connection", b"close"),
        (true, Version::Http10) => head.field("Connection", b"keep-alive"),
        (true, Version::Http11) => {}
    }
    let head = head.finish();
    Plan {
        status,
        keep_alive,
        head_len_bytes: head.len() as u64,
        body_len_bytes: Some(body_len_bytes),
        one_version: true,
        parts: vec![Part::Bytes(head)],
    }
}

fn push_file(plan: &mut Plan, span: Span) {
    if span.len_bytes > 0 {
        plan.parts.push(Part::File {
            offset_bytes: span.offset_bytes,
            len_bytes: span.len_bytes,
        });
    }
    plan.body_len_bytes = Some(span.len_bytes);
}

fn part_len_bytes(part: &Part) -> u64 {
    match part {
        Part::Bytes(bytes) => bytes.len() as u64,
        Part::File { len_bytes, .. } => *len_bytes,
        Part::Stream { .. } => 0,
    }
}

#[cfg(test)]
mod tests;
