use proptest::prelude::*;

use super::{
    Context, Part, Plan, Representation, error, file, listing, options, push_chunk, redirect,
};
use crate::http::conditional::Validators;
use crate::http::target::folder_reference;
use crate::http::testing::{at, config, get, request};
use crate::http::{Coding, Reject, Status, Times};
use crate::limits::{MEDIA_TYPE_BYTES_MAX, PART_HEAD_BYTES_MAX};

const NOW: u64 = 1_000_000_000; // Sun, 09 Sep 2001 01:46:40 GMT
const MODIFIED: i64 = 784_111_777; // Sun, 06 Nov 1994 08:49:37 GMT

pub(super) fn html(len_bytes: u64) -> Representation<'static> {
    changed_at(&Times::of(MODIFIED), len_bytes, None)
}

fn changed_at(times: &Times, len_bytes: u64, coding: Option<Coding>) -> Representation<'static> {
    Representation {
        len_bytes,
        validators: Validators::new(times, len_bytes, coding, NOW),
        content_type: "text/html; charset=utf-8",
        coding,
        vary: false,
        fields: &[],
        date_unix_s: None,
        age_s: None,
    }
}

pub(super) fn head_of(plan: &Plan) -> String {
    match plan.parts.first() {
        Some(Part::Bytes(bytes)) => {
            let (head, _) = bytes.split_at(plan.head_len_bytes as usize);
            String::from_utf8(head.to_vec()).expect("a head is ASCII")
        }
        other => panic!("the first part is {other:?}"),
    }
}

/// The value of a field that may occur once at most.
pub(super) fn field(plan: &Plan, name: &str) -> Option<String> {
    let head = head_of(plan);
    let mut values = head.split("\r\n").filter_map(|line| {
        let (given, value) = line.split_once(": ")?;
        (given == name).then(|| value.to_owned())
    });
    let value = values.next();
    assert_eq!(values.next(), None, "{name} is repeated in {head}");
    value
}

/// The bytes sent after the head, for a file whose byte n is n mod 251.
pub(super) fn body_of(plan: &Plan) -> Vec<u8> {
    let mut wire = Vec::new();
    for part in &plan.parts {
        match part {
            Part::Bytes(bytes) => wire.extend(bytes),
            Part::File {
                offset_bytes,
                len_bytes,
            } => wire.extend(content(*offset_bytes, *len_bytes)),
            Part::Stream { .. } => panic!("a stream has no bytes yet"),
        }
    }
    wire.split_off(plan.head_len_bytes as usize)
}

fn content(offset_bytes: u64, len_bytes: u64) -> impl Iterator<Item = u8> {
    (offset_bytes..offset_bytes + len_bytes).map(|at| (at % 251) as u8)
}

fn answer(lines: &str, len_bytes: u64) -> Plan {
    file(&request(&get(lines)), &html(len_bytes), &at(NOW))
}

#[test]
fn a_whole_file_is_one_head_and_one_span() {
    let plan = answer("", 1000);
    let want = "HTTP/1.1 200 OK\r\n\
        Date: Sun, 09 Sep 2001 01:46:40 GMT\r\n\
        Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
        ETag: \"2ebc98a1-3e8\"\r\n\
        Accept-Ranges: bytes\r\n\
        Content-Type: text/html; charset=utf-8\r\n\
        Content-Length: 1000\r\n\r\n";
    assert_eq!(head_of(&plan), want);
    assert_eq!((plan.status, plan.keep_alive), (200, true));
    assert_eq!(plan.body_len_bytes, Some(1000));
    let span = Part::File {
        offset_bytes: 0,
        len_bytes: 1000,
    };
    assert_eq!(plan.parts[1..], [span]);
}

#[test]
fn an_empty_file_has_a_length_of_0_and_no_span() {
    let plan = answer("Range: bytes=0-\r\n", 0);
    assert_eq!((plan.status, plan.parts.len()), (200, 1));
    assert_eq!(field(&plan, "Content-Length").as_deref(), Some("0"));
}

#[test]
fn head_gets_the_head_of_a_get_without_range_rfc_9110_sections_9_3_2_and_14_2() {
    let head = b"HEAD / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1\r\n\r\n";
    let plan = file(&request(head), &html(1000), &at(NOW));
    assert_eq!(head_of(&plan), head_of(&answer("", 1000)));
    assert_eq!((plan.parts.len(), plan.body_len_bytes), (1, Some(0)));
}

#[test]
fn one_range_is_a_206_that_says_which() {
    let plan = answer("Range: bytes=990-1990\r\n", 1000);
    assert_eq!(plan.status, 206);
    assert_eq!(field(&plan, "Content-Length").as_deref(), Some("10"));
    let content_range = field(&plan, "Content-Range");
    assert_eq!(content_range.as_deref(), Some("bytes 990-999/1000"));
    assert_eq!(body_of(&plan), content(990, 10).collect::<Vec<_>>());
    let alone = answer("Range: bytes=5000-,990-\r\n", 1000);
    assert_eq!(alone, plan, "one that is left is no multipart");
}

#[test]
fn several_ranges_are_a_multipart_of_exact_length_rfc_9110_section_14_6() {
    let plan = answer("Range: bytes=0-1, -2\r\n", 1000);
    let content_type = field(&plan, "Content-Type").expect("a type");
    let boundary = content_type
        .strip_prefix("multipart/byteranges; boundary=")
        .expect("a boundary");
    let body = body_of(&plan);
    let want = [
        format!("\r\n--{boundary}\r\nContent-Type: text/html; charset=utf-8\r\n").into_bytes(),
        b"Content-Range: bytes 0-1/1000\r\n\r\n\x00\x01".to_vec(),
        format!("\r\n--{boundary}\r\nContent-Type: text/html; charset=utf-8\r\n").into_bytes(),
        b"Content-Range: bytes 998-999/1000\r\n\r\n".to_vec(),
        content(998, 2).collect(),
        format!("\r\n--{boundary}--\r\n").into_bytes(),
    ];
    assert_eq!(body, want.concat());
    assert_eq!(plan.body_len_bytes, Some(body.len() as u64));
    let length = field(&plan, "Content-Length");
    assert_eq!(length, Some(body.len().to_string()));
    assert_eq!(field(&plan, "Content-Range"), None, "section 15.3.7.2");
}

#[test]
fn as_many_ranges_as_a_head_holds_are_answered_and_no_head_of_a_part_is_longer_than_its_bound() {
    let specs: Vec<_> = (0..1500).map(|nth| format!("{0}-{0}", nth * 2)).collect();
    let lines = format!("Range: bytes={}\r\n", specs.join(","));
    let plan = answer(&lines, 3000);
    assert_eq!((plan.status, plan.parts.len()), (206, 2 * 1500 + 2));
    let media_type = "x".repeat(MEDIA_TYPE_BYTES_MAX);
    let longest = Representation {
        content_type: &media_type,
        ..html(u64::MAX)
    };
    let lines = format!("Range: bytes=0-1,{0}-{0}\r\n", u64::MAX - 1);
    let plan = file(&request(&get(&lines)), &longest, &at(NOW));
    let Part::Bytes(last) = &plan.parts[3] else {
        panic!("{plan:?}");
    };
    assert_eq!(last.len(), PART_HEAD_BYTES_MAX);
}

#[test]
fn the_boundary_is_a_function_of_version_and_ranges_alone() {
    let boundary = |lines: &str, len| field(&answer(lines, len), "Content-Type");
    let first = boundary("Range: bytes=0-1,3-4\r\n", 1000);
    assert_eq!(boundary("X: y\r\nRange: bytes=0-1,3-4\r\n", 1000), first);
    assert_ne!(boundary("Range: bytes=0-1,3-5\r\n", 1000), first);
    assert_ne!(boundary("Range: bytes=0-1,3-4\r\n", 1001), first);
}

#[test]
fn a_range_beyond_the_end_is_a_416_that_says_how_long_the_file_is() {
    let plan = answer("Range: bytes=1000-\r\n", 1000);
    assert_eq!((plan.status, plan.keep_alive), (416, true));
    let content_range = field(&plan, "Content-Range");
    assert_eq!(content_range.as_deref(), Some("bytes */1000"));
    let not_ours = answer("Range: bytes=1000-\r\nIf-Range: \"x\"\r\n", 1000);
    assert_eq!(not_ours.status, 200);
}

#[test]
fn a_304_has_validators_and_no_body_rfc_9110_section_15_4_5() {
    let sibling = Representation {
        vary: true,
        ..changed_at(&Times::of(MODIFIED), 1000, Some(Coding::Gzip))
    };
    let head = get("If-None-Match: \"2ebc98a1-3e8-gz\"\r\nRange: bytes=0-\r\n");
    let plan = file(&request(&head), &sibling, &at(NOW));
    assert_eq!((plan.status, plan.parts.len()), (304, 1));
    for (name, value) in [
        ("ETag", Some("\"2ebc98a1-3e8-gz\"")),
        ("Last-Modified", Some("Sun, 06 Nov 1994 08:49:37 GMT")),
        ("Vary", Some("Accept-Encoding")),
        ("Content-Length", None),
        ("Content-Type", None),
        ("Content-Encoding", None),
    ] {
        assert_eq!(field(&plan, name).as_deref(), value, "{name}");
    }
}

#[test]
fn a_failed_precondition_is_a_412() {
    let plan = answer("If-Match: \"x\"\r\n", 1000);
    assert_eq!((plan.status, plan.keep_alive), (412, true));
    assert!(!body_of(&plan).is_empty());
}

#[test]
fn a_coded_file_names_its_coding_and_ranges_count_coded_bytes_rfc_9110_section_14_1_2() {
    let sibling = Representation {
        vary: true,
        ..changed_at(&Times::of(MODIFIED), 100, Some(Coding::Zstd))
    };
    let plan = file(&request(&get("Range: bytes=-1\r\n")), &sibling, &at(NOW));
    assert_eq!(field(&plan, "Content-Encoding").as_deref(), Some("zstd"));
    assert_eq!(field(&plan, "ETag").as_deref(), Some("\"2ebc98a1-64-zst\""));
    let content_range = field(&plan, "Content-Range");
    assert_eq!(content_range.as_deref(), Some("bytes 99-99/100"));
    assert_eq!(field(&plan, "Vary").as_deref(), Some("Accept-Encoding"));
}

#[test]
fn last_modified_is_never_later_than_date_and_a_fresh_file_has_a_weak_tag() {
    let of = |modified_unix_s| {
        let times = Times {
            changed_unix_s: 0,
            ..Times::of(modified_unix_s)
        };
        let future = changed_at(&times, 1, None);
        let plan = file(&request(&get("")), &future, &at(NOW));
        let tag = field(&plan, "ETag").unwrap_or_default();
        let same = field(&plan, "Date") == field(&plan, "Last-Modified");
        (same, tag.starts_with("W/"))
    };
    assert_eq!(of(NOW as i64 + 1000), (true, false));
    assert_eq!(of(NOW as i64), (true, true));
    assert_eq!(of(NOW as i64 - 1), (false, true));
    assert_eq!(of(NOW as i64 - 2), (false, false));
}

#[test]
fn connection_is_named_where_it_differs_from_the_versions_default() {
    let plan = |version: &str, lines: &str, context: &Context| {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let plan = file(&request(head.as_bytes()), &html(1), context);
        (plan.keep_alive, field(&plan, "Connection"))
    };
    let close = || (false, Some("close".to_owned()));
    let draining = Context {
        draining: true,
        ..at(NOW)
    };
    let last = Context {
        close: true,
        ..at(NOW)
    };
    assert_eq!(plan("1.1", "", &at(NOW)), (true, None));
    assert_eq!(plan("1.1", "Connection: close\r\n", &at(NOW)), close());
    assert_eq!(plan("1.0", "", &at(NOW)), close());
    let kept = plan("1.0", "Connection: keep-alive\r\n", &at(NOW));
    assert_eq!(kept, (true, Some("keep-alive".to_owned())));
    assert_eq!(plan("1.1", "", &draining), close());
    assert_eq!(plan("1.1", "", &last), close());
}

#[test]
fn an_error_closes_where_the_next_request_cannot_be_found() {
    let head = get("");
    for status in Status::ALL.into_iter().filter(|s| s.code() >= 400) {
        let reject = Reject {
            status,
            why: "Because.",
        };
        let unread = error(None, &reject, &at(NOW));
        assert_eq!((unread.status, unread.keep_alive), (status.code(), false));
        assert_eq!(field(&unread, "Connection").as_deref(), Some("close"));
        let read = error(Some(&request(&head)), &reject, &at(NOW));
        assert_eq!(read.keep_alive, !status.closes());
        let text = String::from_utf8(body_of(&read)).expect("text");
        assert_eq!(text, format!("{}\nBecause.\n", status.line()));
        assert_eq!(field(&read, "Content-Length"), Some(text.len().to_string()));
        let allow = (status == Status::MethodNotAllowed).then(|| "GET, HEAD, OPTIONS".to_owned());
        assert_eq!(field(&read, "Allow"), allow);
    }
    let head = request(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    let silent = error(Some(&head), &Reject::bad("x"), &at(NOW));
    assert_eq!((silent.parts.len(), silent.body_len_bytes), (1, Some(0)));
    assert_eq!(body_of(&silent), b"");
}

#[test]
fn a_redirect_to_what_would_be_refused_is_refused_itself() {
    let head = get("");
    for (quotes, status) in [(2_700, 301), (2_800, 414), (8_000, 414)] {
        let raw = [b"/dir?", &vec![b'"'; quotes][..]].concat();
        let reference = folder_reference(&raw);
        let plan = redirect(
            &request(&head),
            Status::MovedPermanently,
            &reference,
            &at(NOW),
        );
        assert_eq!(plan.status, status, "{quotes} bytes of three");
        let texts = plan.parts.iter().map(|part| match part {
            Part::Bytes(bytes) => bytes.len(),
            Part::File { .. } | Part::Stream { .. } => 0,
        });
        assert!(texts.sum::<usize>() <= crate::limits::PLAN_BYTES_MAX);
    }
}

#[test]
fn a_listing_is_chunked_for_1_1_and_ended_by_closing_for_1_0() {
    let plan = |head: &str| listing(&request(head.as_bytes()), "text/html", &at(NOW));
    let new = plan("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(new.parts[1..], [Part::Stream { chunked: true }]);
    assert_eq!((new.keep_alive, new.body_len_bytes), (true, None));
    assert_eq!(field(&new, "Transfer-Encoding").as_deref(), Some("chunked"));
    assert_eq!(field(&new, "Vary").as_deref(), Some("Accept"));
    let old = plan("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(old.parts[1..], [Part::Stream { chunked: false }]);
    assert!(!old.keep_alive && field(&old, "Transfer-Encoding").is_none());
    let head = plan("HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!((head.parts.len(), head.keep_alive), (1, true));
}

#[test]
fn options_names_the_methods_and_has_no_length_rfc_9110_section_8_6() {
    let plan = options(&request(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"), &at(NOW));
    assert_eq!((plan.status, plan.parts.len()), (204, 1));
    assert_eq!(field(&plan, "Allow").as_deref(), Some("GET, HEAD, OPTIONS"));
    assert_eq!(field(&plan, "Content-Length"), None);
}

#[test]
fn a_chunk_is_size_data_and_end_and_never_the_last_by_accident() {
    let mut out = Vec::new();
    push_chunk(&[b'x'; 26], &mut out);
    push_chunk(b"", &mut out);
    assert_eq!(out, [b"1a\r\n", &[b'x'; 26][..], b"\r\n"].concat());
}

/// A multipart body read back by its Content-Range lines alone.
fn read_multipart(body: &[u8], boundary: &str, len_bytes: u64) -> Vec<(u64, u64)> {
    let delimiter = format!("\r\n--{boundary}");
    let (mut rest, mut ranges) = (body, Vec::new());
    loop {
        rest = rest
            .strip_prefix(delimiter.as_bytes())
            .expect("a delimiter");
        if rest == b"--\r\n" {
            return ranges;
        }
        let end = rest
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8(rest[..end].to_vec()).expect("ASCII");
        let (_, range) = head.split_once("Content-Range: bytes ").expect("a range");
        let (range, total) = range.split_once('/').expect("a total");
        assert_eq!(total, len_bytes.to_string());
        let (first, last) = range.split_once('-').expect("two ends");
        let (first, last): (u64, u64) = (first.parse().expect("a"), last.parse().expect("b"));
        let span_len = (last - first + 1) as usize;
        let (data, after) = rest[end + 4..].split_at(span_len);
        assert!(data.iter().copied().eq(content(first, last - first + 1)));
        ranges.push((first, last));
        rest = after;
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_is_sent_is_what_content_length_says(
        len_bytes in 0u64..3000,
        specs in proptest::collection::vec("[0-9]{0,4}-[0-9]{0,4}", 1..18),
        method in prop::sample::select(vec!["GET", "HEAD"]),
        vary in any::<bool>(),
    ) {
        let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nRange: bytes={}\r\n\r\n", specs.join(","));
        let file_of = Representation { vary, ..html(len_bytes) };
        let plan = file(&request(head.as_bytes()), &file_of, &at(NOW));
        let body = body_of(&plan);
        prop_assert_eq!(plan.body_len_bytes, Some(body.len() as u64));
        let length = field(&plan, "Content-Length").and_then(|text| text.parse::<u64>().ok());
        if method == "GET" {
            prop_assert_eq!(length, plan.body_len_bytes);
        } else {
            prop_assert_eq!((plan.status, length, body.len()), (200, Some(len_bytes), 0));
        }
        for part in &plan.parts {
            if let Part::File { offset_bytes, len_bytes: span } = part {
                prop_assert!(*span > 0 && offset_bytes + span <= len_bytes);
            }
        }
        let content_type = field(&plan, "Content-Type").unwrap_or_default();
        if let Some(boundary) = content_type.strip_prefix("multipart/byteranges; boundary=") {
            prop_assert!(read_multipart(&body, boundary, len_bytes).len() > 1);
        }
        let again = file(&request(head.as_bytes()), &file_of, &at(NOW));
        prop_assert_eq!(plan, again);
    }

    #[test]
    fn every_head_is_one_that_our_own_rules_for_lines_accept(
        path in proptest::collection::vec(any::<u8>(), 0..30),
        query in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..30)),
    ) {
        let head = get("");
        let raw = [&path[..], b"?", query.as_deref().unwrap_or_default()].concat();
        let plan = redirect(&request(&head), Status::MovedPermanently, &folder_reference(&raw), &at(NOW));
        let location = field(&plan, "Location").unwrap_or_default();
        prop_assert!(!location.is_empty() && location.bytes().all(|byte| byte.is_ascii_graphic()));
        let lines = head_of(&plan);
        prop_assert_eq!(lines.matches("\r\n\r\n").count(), 1);
        prop_assert_eq!(lines.matches('\r').count(), lines.matches("\r\n").count());
        prop_assert_eq!(lines.matches('\n').count(), lines.matches("\r\n").count());
    }
}
