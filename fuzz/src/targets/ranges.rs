//! A length, a line feed, and any bytes as a Range field: [`ackpace_wire::http::range::evaluate`].

use ackpace_wire::http::plan;
use ackpace_wire::http::range::{Ranges, Span, evaluate, most};
use ackpace_wire::limits::{RANGES_COMMON, RANGES_MAX};

use super::{CONTEXT, check_plan, file, whole_request};

/// Laws: spans lie inside the file and together are no longer than it; they match a plain reading of RFC 9110 section
/// 14.1.2; what is ignored is malformed or excessive.
pub fn ranges(data: &[u8]) {
    let end = data.iter().position(|&byte| byte == b'\n');
    let (length, value) = data.split_at(end.map_or(0, |end| end + 1));
    let length = std::str::from_utf8(length).map(str::trim);
    let len_bytes = length
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1000);

    let got = evaluate(value, len_bytes, RANGES_MAX);
    let read = read_plainly(value, len_bytes);
    match (&got, &read) {
        (Ranges::Satisfiable(spans), Some(read)) => {
            assert_eq!(*spans, read.spans);
            assert!((1..=most(value)).contains(&read.spans.len()));
            let total: u128 = read
                .spans
                .iter()
                .map(|span| u128::from(span.len_bytes))
                .sum();
            assert!(total <= u128::from(len_bytes));
        }
        (Ranges::Unsatisfiable, Some(read)) => assert!(read.spans.is_empty()),
        (Ranges::Ignored, Some(read)) => {
            let ascends = || (read.spans).is_sorted_by(|a, b| a.last_byte() < b.offset_bytes);
            let excessive = if read.count <= RANGES_COMMON {
                is_excessive(&read.spans, len_bytes)
            } else {
                read.count > RANGES_MAX || !ascends()
            };
            let empty_file = len_bytes == 0;
            assert!(excessive || empty_file, "ignored without cause: {read:?}");
        }
        (Ranges::Ignored, None) => {}
        (got, None) => panic!("{got:?} for what is no set of ranges"),
    }

    let head = [b"GET / HTTP/1.1\r\nHost: a\r\nRange: ", value, b"\r\n\r\n"].concat();
    if let Some(request) = whole_request(&head) {
        check_plan(&plan::file(&request, &file(len_bytes), &CONTEXT), len_bytes);
    }
}

#[derive(Debug)]
struct Read {
    spans: Vec<Span>,
    count: usize,
}

/// The grammar of RFC 9110 section 14.1.1 in 128 bits, with strings and no regard for speed.
fn read_plainly(value: &[u8], len_bytes: u64) -> Option<Read> {
    let text = std::str::from_utf8(value).ok()?;
    let unit = text.get(..6)?;
    let specs = unit.eq_ignore_ascii_case("bytes=").then(|| &text[6..])?;
    let mut read = Read {
        spans: Vec::new(),
        count: 0,
    };
    for spec in specs.split(',').map(|spec| spec.trim_matches([' ', '\t'])) {
        if spec.is_empty() {
            continue;
        }
        read.count += 1;
        let (first, last) = spec.split_once('-')?;
        let len = u128::from(len_bytes);
        let (start, end) = match (first, last) {
            ("", suffix) => (len.saturating_sub(number(suffix)?), len),
            (first, "") => (number(first)?, len),
            (first, last) if number(first)? > number(last)? => return None,
            (first, last) => (number(first)?, len.min(number(last)?.saturating_add(1))),
        };
        if start < end {
            read.spans.push(Span {
                offset_bytes: start as u64,
                len_bytes: (end - start) as u64,
            });
        }
    }
    (read.count > 0).then_some(read)
}

/// A number of any length; a number above 64 bits counts as the largest 64-bit number.
fn number(text: &str) -> Option<u128> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = || text.parse().unwrap_or(u128::MAX).min(u64::MAX.into());
    digits.then(number)
}

fn is_excessive(spans: &[Span], len_bytes: u64) -> bool {
    let total: u128 = spans.iter().map(|span| u128::from(span.len_bytes)).sum();
    let touches =
        |a: &Span, b: &Span| a.offset_bytes <= b.last_byte() && b.offset_bytes <= a.last_byte();
    let crowded = |span: &Span| spans.iter().filter(|other| touches(span, other)).count() > 2;
    total > u128::from(len_bytes) || spans.iter().any(crowded)
}
