//! Writes the heads of requests to an origin. Nothing that stands in them can end a line: every text is checked, and a
//! head that would be ambiguous is not written.

use std::io::Write;

use super::date;
use super::etag::ETag;
use super::fields::{Fields, is_token_byte};
use super::hops;
use super::host;
use super::request::{Method, Request};
use super::response::Asked;

/// The bytes that are asked for (RFC 9110 section 14.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedRange {
    /// From the first to the last one, both included.
    Span {
        /// Position of the first byte.
        first: u64,
        /// Position of the last byte.
        last: u64,
    },
    /// From this one to the end.
    From(u64),
    /// So many at the end.
    Suffix(u64),
}

/// The condition on which an origin is asked (RFC 9110 section 13).
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// Asked without one.
    None,
    /// If-Range with a strong tag: the range of this version, or the whole of another.
    RangeOfTag(&'a ETag),
    /// If-Range with a Last-Modified that is a strong validator.
    RangeOfDate(u64),
    /// If-Match with a strong tag: this version, or 412.
    Match(&'a ETag),
    /// If-Unmodified-Since: this version, or 412.
    UnmodifiedSince(u64),
    /// If-None-Match, or without a tag If-Modified-Since: another version than this one, or 304. RFC 9111 section 4.3.1 would have
    /// both; some stores then obey the date (against RFC 9110 section 13.1.3), and miss a change within its second.
    Changed {
        /// The tag, weak or strong.
        tag: Option<&'a ETag>,
        /// The Last-Modified.
        since_unix_s: Option<u64>,
    },
}

/// One request of the gateway's own.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// GET or HEAD.
    pub method: Asked,
    /// The target in origin form (RFC 9112 section 3.2.1): no space and no control byte.
    pub target: &'a [u8],
    /// The origin's host, with its port if that is not the default.
    pub host: &'a [u8],
    /// The bytes asked for; `None`: all.
    pub range: Option<AskedRange>,
    /// The condition.
    pub condition: Condition<'a>,
    /// Further fields, such as those of a signature: names and values. They may not repeat those written here.
    pub lines: &'a [(&'a str, &'a [u8])],
    /// The name of this gateway in Via (RFC 9110 section 7.6.3), a token.
    pub via: &'a str,
}

/// Appends the head of a request to `out`.
///
/// # Errors
/// A sentence for a target, host or line that could be read as something else, for an empty range, and for a weak tag
/// where only a strong one may stand. `out` is then as before.
pub fn ask(ask: &Ask<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let before = out.len();
    let written = write(ask, out);
    if written.is_err() {
        out.truncate(before);
    }
    written
}

fn write(ask: &Ask<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
    start(ask.method, ask.target, ask.host, out)?;
    out.extend_from_slice(b"User-Agent: ackpace\r\nAccept-Encoding: identity\r\n");
    if let Some(range) = ask.range {
        push_range(range, out)?;
    }
    push_condition(&ask.condition, out)?;
    push_lines(ask.lines, out)?;
    push_line(b"Via", format!("1.1 {}", ask.via).as_bytes(), out);
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// Appends the head of a request that passes a client's on: its own method and end-to-end fields, and Via (RFC 9110
/// sections 7.6.1 and 7.6.3). Target and host are the origin's, `lines` and `via` as in [`Ask`]. A body is not passed on.
///
/// # Errors
/// As for [`ask`], for other methods than GET and HEAD, and for a Connection that names too many fields.
pub fn pass(
    request: &Request<'_>,
    target: &[u8],
    host: &[u8],
    lines: &[(&str, &[u8])],
    via: &str,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let before = out.len();
    let written = write_passed(request, target, host, lines, via, out);
    if written.is_err() {
        out.truncate(before);
    }
    written
}

fn write_passed(
    request: &Request<'_>,
    target: &[u8],
    host: &[u8],
    lines: &[(&str, &[u8])],
    via: &str,
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    let method = match request.method {
        Method::Get => Asked::Get,
        Method::Head => Asked::Head,
        _ => return Err("Only GET and HEAD are passed on."),
    };
    start(method, target, host, out)?;
    push_end_to_end(request.fields(), lines, out)?;
    push_lines(lines, out)?;
    let version = request.version.as_str().trim_start_matches("HTTP/");
    // Writing into memory cannot fail.
    let _ = write!(out, "Via: {version} {via}\r\n\r\n");
    Ok(())
}

/// The client's fields but for those that are written here, in `lines` or for a body.
fn push_end_to_end(
    fields: &Fields<'_>,
    lines: &[(&str, &[u8])],
    out: &mut Vec<u8>,
) -> Result<(), &'static str> {
    const OURS: [&[u8]; 3] = [b"host", b"content-length", b"expect"];
    for (name, value) in hops::end_to_end(fields)? {
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        let is_replaced = lines.iter().any(|(other, _)| is(other.as_bytes()));
        if !is_replaced && !OURS.iter().any(|other| is(other)) {
            push_line(name, value, out);
        }
    }
    Ok(())
}

/// The request line and Host.
fn start(method: Asked, target: &[u8], host: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let is_visible = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    if target.first() != Some(&b'/') || !target.iter().all(is_visible) {
        return Err("The target for the origin is no path without spaces.");
    }
    if host.is_empty() || !host::is_valid(host) {
        return Err("The origin's host is not a host with an optional port.");
    }
    out.extend_from_slice(match method {
        Asked::Get => b"GET ",
        Asked::Head => b"HEAD ",
    });
    out.extend_from_slice(target);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    push_line(b"Host", host, out);
    Ok(())
}

fn push_range(range: AskedRange, out: &mut Vec<u8>) -> Result<(), &'static str> {
    let _ = match range {
        AskedRange::Span { first, last } if first <= last => {
            write!(out, "Range: bytes={first}-{last}\r\n")
        }
        AskedRange::From(first) => write!(out, "Range: bytes={first}-\r\n"),
        AskedRange::Suffix(len_bytes) if len_bytes > 0 => {
            write!(out, "Range: bytes=-{len_bytes}\r\n")
        }
        AskedRange::Span { .. } | AskedRange::Suffix(_) => {
            return Err("The range for the origin is empty.");
        }
    };
    Ok(())
}

fn push_condition(condition: &Condition<'_>, out: &mut Vec<u8>) -> Result<(), &'static str> {
    match condition {
        Condition::RangeOfTag(tag) | Condition::Match(tag) if tag.is_weak() => {
            return Err("A weak tag names no version.");
        }
        Condition::None => {}
        Condition::RangeOfTag(tag) => push_tag("If-Range", tag, out),
        Condition::Match(tag) => push_tag("If-Match", tag, out),
        Condition::RangeOfDate(unix_s) => push_date("If-Range", *unix_s, out),
        Condition::UnmodifiedSince(unix_s) => push_date("If-Unmodified-Since", *unix_s, out),
        Condition::Changed { tag, since_unix_s } => match (tag, since_unix_s) {
            (Some(tag), _) => push_tag("If-None-Match", tag, out),
            (None, Some(unix_s)) => push_date("If-Modified-Since", *unix_s, out),
            (None, None) => {}
        },
    }
    Ok(())
}

fn push_tag(name: &str, tag: &ETag, out: &mut Vec<u8>) {
    let mut value = Vec::new();
    tag.write(&mut value);
    push_line(name.as_bytes(), &value, out);
}

fn push_date(name: &str, unix_s: u64, out: &mut Vec<u8>) {
    let mut value = Vec::new();
    date::write(unix_s, &mut value);
    push_line(name.as_bytes(), &value, out);
}

fn push_lines(lines: &[(&str, &[u8])], out: &mut Vec<u8>) -> Result<(), &'static str> {
    let is_text = |byte: &u8| *byte >= b' ' && *byte != 0x7f || *byte == b'\t';
    for (name, value) in lines {
        let is_name = !name.is_empty() && name.bytes().all(is_token_byte);
        if !is_name || !value.iter().all(is_text) {
            return Err("A field for the origin is no line.");
        }
        push_line(name.as_bytes(), value, out);
    }
    Ok(())
}

/// Appends one line of a checked name and value.
pub(super) fn push_line(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    for text in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(text);
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, AskedRange, Condition, ask, pass};
    use crate::http::etag::ETag;
    use crate::http::testing::{config, get, request};
    use crate::http::{Asked, Parsed, parse};
    use proptest::prelude::*;

    const PLAIN: Ask<'static> = Ask {
        method: Asked::Get,
        target: b"/a%20b?c",
        host: b"origin:81",
        range: None,
        condition: Condition::None,
        lines: &[],
        via: "us",
    };

    /// What is written between the lines that always stand there.
    fn more(one: &Ask<'_>) -> Result<String, &'static str> {
        const START: &str = "GET /a%20b?c HTTP/1.1\r\nHost: origin:81\r\n\
            User-Agent: ackpace\r\nAccept-Encoding: identity\r\n";
        let mut out = Vec::new();
        ask(one, &mut out)?;
        request(&out);
        let text = String::from_utf8(out).expect("a head of ASCII");
        let rest = text.strip_prefix(START).expect("the usual start");
        Ok(rest
            .strip_suffix("Via: 1.1 us\r\n\r\n")
            .expect("an end")
            .to_owned())
    }

    #[test]
    fn every_range_and_condition_is_one_line() {
        let [strong, weak] =
            [&b"\"s\""[..], b"W/\"w\""].map(|tag| ETag::foreign(tag).expect("a tag"));
        assert_eq!(more(&PLAIN).as_deref(), Ok(""));
        for (range, want) in [
            (AskedRange::Span { first: 0, last: 0 }, Ok("bytes=0-0")),
            (
                AskedRange::From(u64::MAX),
                Ok("bytes=18446744073709551615-"),
            ),
            (AskedRange::Suffix(7), Ok("bytes=-7")),
            (AskedRange::Span { first: 1, last: 0 }, Err(())),
            (AskedRange::Suffix(0), Err(())),
        ] {
            let got = more(&Ask {
                range: Some(range),
                ..PLAIN
            });
            let want = want.map(|value| format!("Range: {value}\r\n"));
            assert_eq!(got.map_err(|_| ()), want);
        }
        let (tag, since_unix_s) = (Some(&weak), Some(784_111_777));
        for (condition, want) in [
            (Condition::RangeOfTag(&strong), Ok("If-Range: \"s\"\r\n")),
            (Condition::Match(&strong), Ok("If-Match: \"s\"\r\n")),
            (Condition::RangeOfTag(&weak), Err(())),
            (Condition::Match(&weak), Err(())),
            (
                Condition::RangeOfDate(0),
                Ok("If-Range: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
            ),
            (
                Condition::UnmodifiedSince(0),
                Ok("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n"),
            ),
            (
                Condition::Changed { tag, since_unix_s },
                Ok("If-None-Match: W/\"w\"\r\n"),
            ),
        ] {
            let got = more(&Ask { condition, ..PLAIN });
            assert_eq!(got.map_err(|_| ()), want.map(str::to_owned));
        }
    }

    #[test]
    fn nothing_smuggles_a_line() {
        for target in [
            "",
            "*",
            "a",
            "http://a/",
            "/a b",
            "/a\r\nX: y",
            "/a\x7f",
            "/a\0",
        ] {
            assert!(
                more(&Ask {
                    target: target.as_bytes(),
                    ..PLAIN
                })
                .is_err(),
                "{target}"
            );
        }
        for host in ["", "a b", "a\r\nX: y", "a/b", "u@a"] {
            assert!(
                more(&Ask {
                    host: host.as_bytes(),
                    ..PLAIN
                })
                .is_err(),
                "{host}"
            );
        }
        for line in [
            ("", "x"),
            ("a b", "x"),
            ("a:", "x"),
            ("a", "x\r\ny: z"),
            ("a", "\0"),
        ] {
            let lines = &[(line.0, line.1.as_bytes())][..];
            assert!(more(&Ask { lines, ..PLAIN }).is_err(), "{line:?}");
        }
        let lines = &[("x-amz-date", &b"20261128T000000Z"[..])][..];
        assert_eq!(
            more(&Ask { lines, ..PLAIN }).as_deref(),
            Ok("x-amz-date: 20261128T000000Z\r\n")
        );
    }

    #[test]
    fn what_belongs_to_the_clients_connection_is_not_passed_on_rfc_9110_section_7_6_1() {
        let head = b"HEAD / HTTP/1.0\r\nHost: ours\r\nX-Hop: 1\r\nCookie: a=b\r\nConnection: close, x-HOP\r\n\
            Keep-Alive: 5\r\nTE: trailers\r\nTrailer: x\r\nUpgrade: h2c\r\nProxy-Authorization: x\r\n\
            proxy-connection: x\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\
            Accept-Encoding: br\r\nVia: 1.1 a\r\nX-Sum: 9\r\n\r\n";
        let mut out = b"before".to_vec();
        pass(
            &request(head),
            b"/x",
            b"origin",
            &[("x-sum", b"8")],
            "us",
            &mut out,
        )
        .expect("a head");
        let want = "beforeHEAD /x HTTP/1.1\r\nHost: origin\r\nCookie: a=b\r\nAccept-Encoding: br\r\nVia: 1.1 a\r\n\
            x-sum: 8\r\nVia: 1.0 us\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&out), want);
    }

    #[test]
    fn a_request_that_cannot_be_passed_on_leaves_nothing_behind() {
        let many = get(&format!("Connection: {}\r\n", "a,".repeat(33)));
        let post = b"POST / HTTP/1.1\r\nHost: a\r\n\r\n";
        for head in [&many[..], post] {
            let mut out = b"before".to_vec();
            assert!(pass(&request(head), b"/", b"a", &[], "us", &mut out).is_err());
            assert_eq!(out, b"before");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn whatever_is_written_is_one_head_of_ours(
            target in "(/[ -~\r\n]{0,9}|[\\x00-\\xff]{0,3})",
            host in "[a-z:0-9@ \r\n\\[\\]]{0,9}",
            name in "[a-z: \r\n-]{0,6}",
            value in "[ -~\r\n\0\t]{0,9}",
        ) {
            let lines = &[(name.as_str(), value.as_bytes())][..];
            let mut out = Vec::new();
            let one = Ask { target: target.as_bytes(), host: host.as_bytes(), lines, ..PLAIN };
            let written = ask(&one, &mut out).is_ok();
            prop_assert_eq!(written, !out.is_empty());
            if written && !["host", "expect", "connection"].contains(&name.as_str()) {
                match parse(&out) {
                    Parsed::Complete { request, head_len_bytes } => {
                        prop_assert_eq!(head_len_bytes, out.len());
                        prop_assert_eq!(request.fields().iter().count(), 4);
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }
}
