//! A well-formed request, and the meaning of its fields for the connection (RFC 9110 sections 7, 9 and 10, RFC
//! 9112 sections 3, 6 and 9).

use super::fields::{Field, Fields, decimal, is_token_byte, members};
use super::host;
use super::status::{Reject, Status};
use super::target;

/// A request method (RFC 9110 section 9). Case matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method<'a> {
    /// GET
    Get,
    /// HEAD
    Head,
    /// OPTIONS
    Options,
    /// CONNECT, whose target is host and port
    Connect,
    /// A registered method that a file server has no use for (POST, PUT, TRACE, PROPFIND...)
    Known(&'a [u8]),
    /// Any other token
    Unknown(&'a [u8]),
}

impl<'a> Method<'a> {
    pub(super) fn of(token: &'a [u8]) -> Self {
        match token {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"OPTIONS" => Self::Options,
            b"CONNECT" => Self::Connect,
            // RFC 9110 section 9.3, RFC 5789, and WebDAV (RFC 4918), which some operating systems try first.
            b"POST" | b"PUT" | b"DELETE" | b"TRACE" | b"PATCH" | b"PROPFIND" | b"PROPPATCH"
            | b"MKCOL" | b"COPY" | b"MOVE" | b"LOCK" | b"UNLOCK" | b"REPORT" | b"SEARCH" => {
                Self::Known(token)
            }
            _ => Self::Unknown(token),
        }
    }

    /// The token as it was sent.
    pub const fn as_bytes(&self) -> &'a [u8] {
        match self {
            Self::Get => b"GET",
            Self::Head => b"HEAD",
            Self::Options => b"OPTIONS",
            Self::Connect => b"CONNECT",
            Self::Known(token) | Self::Unknown(token) => token,
        }
    }
}

/// The HTTP version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: no chunks, one request per connection unless the client asks for more
    Http10,
    /// HTTP/1.1
    Http11,
}

impl Version {
    /// The version as written in the first line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
        }
    }
}

/// How the body of a request is framed (RFC 9112 section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestBody {
    /// No body.
    None,
    /// The length in bytes; never 0.
    Length(u64),
    /// Chunks (RFC 9112 section 7.1).
    Chunked,
}

/// The expectation in Expect (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Nothing,
    Continue,
    Unknown,
}

/// A request head that follows the grammar and is unambiguous. Cheap to copy; owns nothing.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method<'a>,
    /// The request target as it was sent: no white space or control bytes, otherwise unchecked.
    /// [`target::resolve`] turns it into a path.
    pub target: &'a [u8],
    /// The version that the client speaks.
    pub version: Version,
    /// True if the client wants to reuse the connection and the protocol allows it.
    pub keep_alive: bool,
    /// The body that follows the head.
    pub body: RequestBody,
    /// True if the client waits for a 100 before it sends a body. It gets its final answer instead and
    /// `keep_alive` is false, so neither side has to guess whether the body comes.
    pub expect_continue: bool,
    expect: Expect,
    fields: Fields<'a>,
}

impl<'a> Request<'a> {
    /// Why the server refuses this well-formed request: its method (405, 501), a target that does not fit the
    /// method (400) or an unknown expectation (417). `None`: serve it.
    pub fn refusal(&self) -> Option<Reject> {
        let (status, why) = match self.method {
            Method::Connect if host::is_valid_with_port(self.target) => (
                Status::MethodNotAllowed,
                "This is a file server, not a proxy.",
            ),
            Method::Connect => (
                Status::BadRequest,
                "The target of CONNECT must be a host and a port.",
            ),
            Method::Known(_) => (
                Status::MethodNotAllowed,
                "Files here can only be read: use GET or HEAD.",
            ),
            Method::Unknown(_) => (Status::NotImplemented, "The method is unknown."),
            Method::Get | Method::Head if self.target == b"*" => {
                (Status::BadRequest, "The target * belongs to OPTIONS alone.")
            }
            Method::Get | Method::Head | Method::Options => {
                if self.expect != Expect::Unknown {
                    return None;
                }
                (
                    Status::ExpectationFailed,
                    "The only expectation known here is 100-continue.",
                )
            }
        };
        Some(Reject { status, why })
    }

    /// True if the answer depends on the target and on `keep_alive` alone. Such a request is a GET without
    /// conditions, ranges, a body or expectations. Keep-alive with HTTP/1.0 is excluded, since its answer
    /// carries another Connection field. The caller checks Accept and Accept-Encoding, since it knows whether
    /// there is a choice.
    pub fn is_plain(&self) -> bool {
        let conditions = [
            Field::Range,
            Field::IfRange,
            Field::IfMatch,
            Field::IfNoneMatch,
            Field::IfModifiedSince,
            Field::IfUnmodifiedSince,
        ];
        self.method == Method::Get
            && (self.version == Version::Http11 || !self.keep_alive)
            && self.body == RequestBody::None
            && self.expect == Expect::Nothing
            && conditions
                .iter()
                .all(|field| self.fields.first(*field).is_none())
    }

    /// The requested host: that of an absolute target, else that of the Host field (RFC 9112 section 3.3).
    /// Always valid when present; `None` only with HTTP/1.0.
    pub fn host(&self) -> Option<&'a [u8]> {
        target::authority(self.target).or_else(|| self.fields.first(Field::Host))
    }

    /// The Range field; `None` if it is missing or repeated.
    pub fn range(&self) -> Option<&'a [u8]> {
        self.fields.single(Field::Range)
    }

    /// The If-Range field; empty, which matches nothing, if it is repeated.
    pub fn if_range(&self) -> Option<&'a [u8]> {
        let first = self.fields.first(Field::IfRange)?;
        Some(if self.fields.is_repeated(Field::IfRange) {
            b""
        } else {
            first
        })
    }

    /// The If-Modified-Since field; `None` if it is missing or repeated.
    pub fn if_modified_since(&self) -> Option<&'a [u8]> {
        self.fields.single(Field::IfModifiedSince)
    }

    /// The If-Unmodified-Since field; `None` if it is missing or repeated.
    pub fn if_unmodified_since(&self) -> Option<&'a [u8]> {
        self.fields.single(Field::IfUnmodifiedSince)
    }

    /// The Referer field.
    pub fn referer(&self) -> Option<&'a [u8]> {
        self.fields.first(Field::Referer)
    }

    /// The User-Agent field.
    pub fn user_agent(&self) -> Option<&'a [u8]> {
        self.fields.first(Field::UserAgent)
    }

    /// All fields. Read lists (Accept, If-None-Match...) by [`Fields::values`].
    pub fn fields(&self) -> &Fields<'a> {
        &self.fields
    }
}

/// Evaluates the fields that control the connection.
///
/// # Errors
/// 400 for a Host or a length that is missing, wrong or ambiguous; 501 for an unknown transfer coding.
pub(super) fn weigh<'a>(
    method: Method<'a>,
    target: &'a [u8],
    version: Version,
    fields: Fields<'a>,
) -> Result<Request<'a>, Reject> {
    check_host(target, version, &fields)?;
    let body = framing(version, &fields)?;
    let expect = expectation(version, &fields);
    let expect_continue = expect == Expect::Continue && body != RequestBody::None;
    // The bytes after CONNECT may already belong to a tunnel.
    let tunnel = method == Method::Connect;
    Ok(Request {
        method,
        target,
        version,
        keep_alive: wants_keep_alive(version, &fields) && !expect_continue && !tunnel,
        body,
        expect_continue,
        expect,
        fields,
    })
}

/// RFC 9112 section 3.2: exactly one valid Host with HTTP/1.1, at most one with HTTP/1.0.
fn check_host(target: &[u8], version: Version, fields: &Fields<'_>) -> Result<(), Reject> {
    if fields.is_repeated(Field::Host) {
        return Err(Reject::bad("The request has several Host fields."));
    }
    match fields.first(Field::Host) {
        Some(host) if !host::is_valid(host) => {
            return Err(Reject::bad(
                "The Host field is not a host with an optional port.",
            ));
        }
        None if version == Version::Http11 => {
            return Err(Reject::bad("The request has no Host field."));
        }
        _ => {}
    }
    match target::authority(target) {
        Some(authority) if !host::is_valid(authority) => Err(Reject::bad(
            "The target does not name a host with an optional port.",
        )),
        _ => Ok(()),
    }
}

/// RFC 9112 sections 6.1 to 6.3, without any ambiguous message.
fn framing(version: Version, fields: &Fields<'_>) -> Result<RequestBody, Reject> {
    let length = fields.first(Field::ContentLength);
    if fields.is_repeated(Field::ContentLength) {
        return Err(Reject::bad(
            "The request has several Content-Length fields.",
        ));
    }
    let Some(coding) = fields.first(Field::TransferEncoding) else {
        return length.map_or(Ok(RequestBody::None), content_length);
    };
    if length.is_some() {
        return Err(Reject::bad(
            "The request has both Transfer-Encoding and Content-Length.",
        ));
    }
    if version == Version::Http10 {
        return Err(Reject::bad("Transfer-Encoding is not part of HTTP/1.0."));
    }
    if fields.is_repeated(Field::TransferEncoding) {
        return Err(Reject::bad(
            "The request has several Transfer-Encoding fields.",
        ));
    }
    if coding.eq_ignore_ascii_case(b"chunked") {
        return Ok(RequestBody::Chunked);
    }
    if coding.is_empty() || !coding.iter().copied().all(is_token_byte) {
        return Err(Reject::bad("Transfer-Encoding is not one coding."));
    }
    Err(Reject {
        status: Status::NotImplemented,
        why: "The only transfer coding known here is chunked.",
    })
}

fn content_length(value: &[u8]) -> Result<RequestBody, Reject> {
    let len_bytes = decimal(value);
    let len_bytes = len_bytes.ok_or(Reject::bad("Content-Length is not a number of bytes."))?;
    Ok(match len_bytes {
        0 => RequestBody::None,
        _ => RequestBody::Length(len_bytes),
    })
}

/// RFC 9110 section 10.1.1; a client of HTTP/1.0 cannot wait for a 100.
fn expectation(version: Version, fields: &Fields<'_>) -> Expect {
    let mut expect = Expect::Nothing;
    for member in members(fields.values(Field::Expect)) {
        if !member.eq_ignore_ascii_case(b"100-continue") {
            return Expect::Unknown;
        }
        if version == Version::Http11 {
            expect = Expect::Continue;
        }
    }
    expect
}

/// RFC 9112 section 9.3: `close` wins, and HTTP/1.0 must ask for a persistent connection. The same holds for a response.
pub(super) fn wants_keep_alive(version: Version, fields: &Fields<'_>) -> bool {
    let mut keep_alive = version == Version::Http11;
    for member in members(fields.values(Field::Connection)) {
        if member.eq_ignore_ascii_case(b"close") {
            return false;
        }
        keep_alive |= member.eq_ignore_ascii_case(b"keep-alive");
    }
    keep_alive
}
