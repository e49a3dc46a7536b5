//! Answers that an origin gave: its fields, and plans that send its response as it is.

use super::super::ask::push_line;
use super::super::fields::Field;
use super::super::hops;
use super::super::response::Response;
use super::super::status::Status;
use super::{Context, Head, Method, Part, Plan, Request, Version, finish, keeps_alive};
use crate::limits::{MEDIA_TYPE_BYTES_MAX, PASSED_FIELDS_BYTES_MAX, STORED_FIELDS_BYTES_MAX};

/// The fields that plans write themselves for a stored object, and Set-Cookie, which is for one client.
const OF_PLANS: [&[u8]; 9] = [
    b"content-length",
    b"content-range",
    b"content-type",
    b"etag",
    b"last-modified",
    b"date",
    b"age",
    b"accept-ranges",
    b"set-cookie",
];

/// The lines of an origin's response that every answer for the stored object carries: its end-to-end fields but for
/// those that [`file`](super::file) writes itself, and Set-Cookie. For
/// [`Representation::fields`](super::Representation::fields).
///
/// # Errors
/// A sentence if they are longer than [`STORED_FIELDS_BYTES_MAX`], or Connection names too many fields.
pub fn stored(response: &Response<'_>) -> Result<Vec<u8>, &'static str> {
    let why = "The fields to store with the response have more than 4 KB.";
    lines_without(response, &OF_PLANS, STORED_FIELDS_BYTES_MAX, why)
}

/// The lines of an origin's response that is passed through: all its end-to-end fields but Content-Length. For
/// [`relayed`] and [`through`].
///
/// # Errors
/// A sentence if they are longer than [`PASSED_FIELDS_BYTES_MAX`], or Connection names too many fields.
pub fn passed(response: &Response<'_>) -> Result<Vec<u8>, &'static str> {
    let why = "The fields of the response have more than 8 KB.";
    lines_without(response, &OF_PLANS[..1], PASSED_FIELDS_BYTES_MAX, why)
}

fn lines_without(
    response: &Response<'_>,
    without: &[&[u8]],
    bytes_max: usize,
    too_long: &'static str,
) -> Result<Vec<u8>, &'static str> {
    let mut lines = Vec::new();
    for (name, value) in hops::end_to_end(response.fields())? {
        if !without.iter().any(|other| name.eq_ignore_ascii_case(other)) {
            push_line(name, value, &mut lines);
        }
    }
    if lines.len() > bytes_max {
        return Err(too_long);
    }
    Ok(lines)
}

/// The media type of an origin's response, for [`Representation::content_type`](super::Representation::content_type);
/// empty if there is none that is text of at most [`MEDIA_TYPE_BYTES_MAX`].
pub fn content_type<'a>(response: &Response<'a>) -> &'a str {
    let value = response.fields().single(Field::ContentType);
    let value = value.filter(|value| value.len() <= MEDIA_TYPE_BYTES_MAX);
    value
        .and_then(|value| std::str::from_utf8(value).ok())
        .unwrap_or_default()
}

/// An origin's short response, whole: an error or a redirect. `fields` are from [`passed`]; the caller bounds `body`. A
/// HEAD gets no body, and the length of `body` as its Content-Length.
pub fn relayed(
    request: &Request<'_>,
    status: u16,
    fields: &[u8],
    body: Vec<u8>,
    context: &Context,
) -> Plan {
    let len_bytes = body.len() as u64;
    let mut plan = through(request, status, fields, Some(len_bytes), context);
    if let [Part::Bytes(text), Part::Stream { .. }] = &mut plan.parts[..] {
        text.extend_from_slice(&body);
        plan.parts.truncate(1);
    }
    plan
}

/// A response that is passed through while it comes in, with these `fields` from [`passed`].
///
/// With a length it is a stream of so many bytes; without, one in chunks for HTTP/1.1, and one that ends with the
/// connection for HTTP/1.0. There is no stream for a HEAD, a 204, a 304 and a length of 0. Date is the origin's, or ours
/// if it sent none.
pub fn through(
    request: &Request<'_>,
    status: u16,
    fields: &[u8],
    body_len_bytes: Option<u64>,
    context: &Context,
) -> Plan {
    let known = Status::ALL.into_iter().find(|one| one.code() == status);
    let mut head = match known {
        Some(known) => Head::undated(known.line()),
        None => Head::undated(&format!("{status} ")), // RFC 9112 section 4: the reason may be empty
    };
    if !each_line(fields).any(|line| is_named(line, b"date")) {
        head.date("Date", context.now_unix_s);
    }
    head.lines(fields);
    let may_have_body = !matches!(status, 204 | 304);
    let has_body = may_have_body && request.method != Method::Head && body_len_bytes != Some(0);
    let chunked = request.version == Version::Http11 && body_len_bytes.is_none();
    match body_len_bytes {
        Some(len_bytes) if may_have_body => {
            head.field_fmt("Content-Length", format_args!("{len_bytes}"));
        }
        None if has_body && chunked => head.field("Transfer-Encoding", b"chunked"),
        _ => {}
    }
    let ends_by_itself = !has_body || chunked || body_len_bytes.is_some();
    let keep_alive = keeps_alive(request, context) && ends_by_itself;
    let mut plan = finish(head, status, request.version, keep_alive, 0);
    if has_body {
        plan.parts.push(Part::Stream { chunked });
        plan.body_len_bytes = body_len_bytes;
    }
    plan
}

/// Adds those of the stored lines that belong into a 304: what describes the content alone does not (RFC 9110 section
/// 15.4.5).
pub(super) fn push_metadata(fields: &[u8], head: &mut Head) {
    for line in each_line(fields) {
        let start = line.get(..b"content-".len());
        let of_content = start.is_some_and(|start| start.eq_ignore_ascii_case(b"content-"));
        if !of_content || is_named(line, b"content-location") {
            head.lines(line);
        }
    }
}

/// The lines with their ends.
fn each_line(fields: &[u8]) -> impl Iterator<Item = &[u8]> {
    fields.split_inclusive(|&byte| byte == b'\n')
}

fn is_named(line: &[u8], name: &[u8]) -> bool {
    let start = line.get(..name.len());
    let is_it = start.is_some_and(|start| start.eq_ignore_ascii_case(name));
    is_it && line.get(name.len()) == Some(&b':')
}

#[cfg(test)]
mod tests;
