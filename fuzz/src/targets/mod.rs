//! The targets, one per file, and what they share.

pub mod accept_encoding;
pub mod body_skip;
pub mod broker;
pub mod bucket;
pub mod caching;
pub mod cluster;
pub mod conditionals;
pub mod config;
pub mod etcd;
pub mod files;
pub mod fuse;
pub mod gateway_hello;
pub mod iscsi_address;
pub mod iscsi_login;
pub mod iscsi_session;
pub mod listing;
pub mod nfs3;
pub mod ranges;
pub mod request_head;
pub mod response_body;
pub mod response_head;
pub mod target;
pub mod trace;

use ackpace_wire::http::conditional::Validators;
use ackpace_wire::http::{Context, Parsed, Part, Plan, Representation, Request, Times, parse};
use ackpace_wire::limits::{RANGES_MAX, RESPONSE_FIELDS_MAX};

/// An ordinary response at a fixed time.
const CONTEXT: Context = Context {
    now_unix_s: 1_000_000_000,
    draining: false,
    close: false,
    ranges_max: RANGES_MAX,
};

/// A file of this length, the same on every run.
fn file(len_bytes: u64) -> Representation<'static> {
    let times = Times::of(784_111_777);
    Representation {
        len_bytes,
        validators: Validators::new(&times, len_bytes, None, CONTEXT.now_unix_s),
        content_type: "text/plain",
        coding: None,
        vary: false,
        fields: &[],
        date_unix_s: None,
        age_s: None,
    }
}

/// The request, if the bytes are exactly one head.
fn whole_request(head: &[u8]) -> Option<Request<'_>> {
    match parse(head) {
        Parsed::Complete {
            request,
            head_len_bytes,
        } if head_len_bytes == head.len() => Some(request),
        _ => None,
    }
}

/// Laws of every head: it ends with an empty line, and has no bare CR or LF and no control byte.
fn check_head_bytes(head: &[u8]) {
    assert!(head.ends_with(b"\r\n\r\n"));
    for (at, &byte) in head.iter().enumerate() {
        match byte {
            b'\r' => assert_eq!(head.get(at + 1), Some(&b'\n')),
            b'\n' => assert_eq!(head[at - 1], b'\r'),
            _ => assert!(byte >= b' ' && byte != 0x7f || byte == b'\t'),
        }
    }
}

/// Laws of every plan: a readable head, a body of the stated length, spans inside the file.
fn check_plan(plan: &Plan, file_len_bytes: u64) {
    let Some((Part::Bytes(first), rest)) = plan.parts.split_first() else {
        panic!("the first part is no bytes: {plan:?}");
    };
    let (head, after_head) = first.split_at(plan.head_len_bytes as usize);
    let mut body_len_bytes = after_head.len() as u64;
    let (mut streams, mut chunked) = (false, false);
    for part in rest {
        assert!(!streams, "something follows a stream");
        match part {
            Part::Bytes(bytes) => body_len_bytes += bytes.len() as u64,
            Part::File {
                offset_bytes,
                len_bytes,
            } => {
                assert!(*len_bytes > 0, "an empty span");
                let end = offset_bytes.checked_add(*len_bytes);
                assert!(end.is_some_and(|end| end <= file_len_bytes), "{part:?}");
                // Two spans of a file of 2^64 - 1 bytes and their part heads can exceed that.
                body_len_bytes = body_len_bytes.saturating_add(*len_bytes);
            }
            Part::Stream { chunked: in_chunks } => (streams, chunked) = (true, *in_chunks),
        }
    }
    if streams {
        body_len_bytes = plan.body_len_bytes.unwrap_or(0); // some say their length beforehand
        assert!(!(chunked && plan.body_len_bytes.is_some()));
    } else {
        assert_eq!(plan.body_len_bytes, Some(body_len_bytes));
    }

    let mut slots = [httparse::EMPTY_HEADER; RESPONSE_FIELDS_MAX + 16];
    let mut response = httparse::Response::new(&mut slots);
    let parsed = response.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    assert_eq!(response.code, Some(plan.status));
    let field = |name: &str| {
        let mut values = response.headers.iter().filter(|h| h.name == name);
        let value = values.next().map(|h| h.value);
        assert!(values.next().is_none(), "{name} is repeated");
        value
    };
    let is_date = |h: &httparse::Header<'_>| h.name.eq_ignore_ascii_case("date");
    assert!(response.headers.iter().any(is_date));
    let closes = field("Connection") == Some(b"close");
    assert_eq!(closes, !plan.keep_alive);
    if body_len_bytes > 0 {
        let length = field("Content-Length");
        assert_eq!(length, Some(body_len_bytes.to_string().as_bytes()));
    }
    if plan.status == 204 || plan.status == 304 {
        assert_eq!((body_len_bytes, field("Content-Length")), (0, None));
    }
}
