//! Byte ranges (RFC 9110 section 14): the spans of a file that a Range field asks for.

use super::ask::AskedRange;
use super::fields::trim;
use crate::limits::RANGES_COMMON;

/// A run of bytes of a representation; never empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Offset of its first byte.
    pub offset_bytes: u64,
    /// Its length, at least 1.
    pub len_bytes: u64,
}

impl Span {
    /// The position of its last byte, as Content-Range states it.
    pub const fn last_byte(&self) -> u64 {
        self.offset_bytes + self.len_bytes - 1
    }
}

/// The result of a Range field for a representation of known length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Send the whole representation: RFC 9110 section 14.2 lets a server ignore the field.
    Ignored,
    /// No range lies inside the file: 416.
    Unsatisfiable,
    /// Send these, one at least, in this order.
    Satisfiable(Vec<Span>),
}

/// The most ranges that the value of a Range field may have, by its commas.
pub fn most(value: &[u8]) -> usize {
    let items = value.split(|&byte| byte == b',');
    items
        .filter(|item| item.iter().any(|byte| !matches!(byte, b' ' | b'\t')))
        .count()
}

/// Evaluates the value of a Range field for a representation of `len_bytes`, where there is memory for an answer with
/// `ranges_max` of them.
///
/// The field is ignored if
///
/// - its unit is not bytes;
/// - it breaks the grammar: section 14.2 allows this as well as a refusal, and the client still gets the file
///   that it wanted;
/// - it has more than `ranges_max` ranges;
/// - it has more than [`RANGES_COMMON`], and these do not ascend or overlap;
/// - its ranges are together longer than the file, or more than two of them overlap: "either a broken client or
///   a deliberate denial-of-service attack" (section 14.2, and nginx's rule).
///
/// All other ranges are sent one by one in the order asked for, without coalescing. No range can lie inside an
/// empty file. One that starts at 0 or counts from the end gets the whole (empty) file, as from nginx, since
/// many clients resume with `bytes=0-`.
pub fn evaluate(value: &[u8], len_bytes: u64, ranges_max: usize) -> Ranges {
    let Some(specs) = value
        .split_at_checked(b"bytes=".len())
        .filter(|(unit, _)| unit.eq_ignore_ascii_case(b"bytes="))
        .map(|(_, specs)| specs)
    else {
        return Ranges::Ignored;
    };
    let mut spans = Vec::new();
    let mut count = 0;
    for spec in specs.split(|&byte| byte == b',').map(trim) {
        if spec.is_empty() {
            continue; // RFC 9110 section 5.6.1.2
        }
        count += 1;
        let Some(spec) = Spec::parse(spec).filter(|_| count <= ranges_max) else {
            return Ranges::Ignored;
        };
        match spec.resolve(len_bytes) {
            Some(span) => spans.push(span),
            None if len_bytes == 0 && spec.starts_at_0() => return Ranges::Ignored,
            None => {}
        }
    }
    match (count, &spans[..]) {
        (0, _) => Ranges::Ignored,
        (_, []) => Ranges::Unsatisfiable,
        (_, [_]) => Ranges::Satisfiable(spans),
        (..=RANGES_COMMON, few) if is_excessive(few, len_bytes) => Ranges::Ignored,
        (..=RANGES_COMMON, _) => Ranges::Satisfiable(spans),
        (_, many) if many.is_sorted_by(|a, b| a.last_byte() < b.offset_bytes) => {
            Ranges::Satisfiable(spans)
        }
        _ => Ranges::Ignored,
    }
}

/// The first range of a field's value, as an origin can be asked for it before its length is known. `None` without one.
pub fn first(value: &[u8]) -> Option<AskedRange> {
    let (unit, specs) = value.split_at_checked(b"bytes=".len())?;
    let mut specs = specs.split(|&byte| byte == b',').map(trim);
    let spec = Spec::parse(specs.find(|spec| !spec.is_empty())?)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(match spec {
        Spec::From { first, last } => AskedRange::Span { first, last },
        Spec::Suffix { len_bytes } => AskedRange::Suffix(len_bytes),
    })
}

/// One range-spec (RFC 9110 section 14.1.1). Numbers beyond 64 bits saturate: no file is that long.
#[derive(Clone, Copy)]
enum Spec {
    From { first: u64, last: u64 },
    Suffix { len_bytes: u64 },
}

impl Spec {
    fn parse(text: &[u8]) -> Option<Self> {
        let dash = text.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (&text[..dash], &text[dash + 1..]);
        if first.is_empty() {
            return number(last).map(|len_bytes| Self::Suffix { len_bytes });
        }
        let first = number(first)?;
        let last = if last.is_empty() {
            u64::MAX
        } else {
            number(last)?
        };
        (first <= last).then_some(Self::From { first, last })
    }

    fn resolve(self, len_bytes: u64) -> Option<Span> {
        let (offset_bytes, end_bytes) = match self {
            Self::From { first, last } => (first, last.saturating_add(1).min(len_bytes)),
            Self::Suffix { len_bytes: suffix } => (len_bytes.saturating_sub(suffix), len_bytes),
        };
        (offset_bytes < end_bytes).then(|| Span {
            offset_bytes,
            len_bytes: end_bytes - offset_bytes,
        })
    }

    fn starts_at_0(self) -> bool {
        match self {
            Self::From { first, .. } => first == 0,
            Self::Suffix { len_bytes } => len_bytes > 0,
        }
    }
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |number, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        Some(number.saturating_mul(10).saturating_add(digit))
    })
}

fn is_excessive(spans: &[Span], len_bytes: u64) -> bool {
    let total_bytes = spans
        .iter()
        .try_fold(0u64, |total, span| total.checked_add(span.len_bytes));
    if total_bytes.is_none_or(|total_bytes| total_bytes > len_bytes) {
        return true;
    }
    spans.iter().any(|span| {
        let overlapping = spans.iter().filter(|other| {
            other.offset_bytes <= span.last_byte() && span.offset_bytes <= other.last_byte()
        });
        overlapping.count() > 2 // itself and one other
    })
}

#[cfg(test)]
mod tests {
    use super::{Ranges, Span, most};
    use crate::http::testing::config;
    use crate::limits::{RANGES_COMMON, RANGES_MAX};
    use proptest::prelude::*;

    fn evaluate(value: &[u8], len_bytes: u64) -> Ranges {
        super::evaluate(value, len_bytes, RANGES_MAX)
    }

    fn spans(value: &str, len_bytes: u64) -> Vec<(u64, u64)> {
        match evaluate(value.as_bytes(), len_bytes) {
            Ranges::Satisfiable(spans) => {
                let pair = |span: &Span| (span.offset_bytes, span.last_byte());
                spans.iter().map(pair).collect()
            }
            other => panic!("{value} of {len_bytes}: {other:?}"),
        }
    }

    #[test]
    fn every_form_of_rfc_9110_section_14_1_2_selects_its_bytes() {
        for (value, want) in [
            ("bytes=0-0", &[(0, 0)][..]),
            ("bytes=500-999", &[(500, 999)]),
            ("bytes=500-", &[(500, 999)]),
            ("bytes=-1", &[(999, 999)]),
            ("bytes=-1000", &[(0, 999)]),
            ("BYTES=0-9", &[(0, 9)]),
            // What reaches past the end is cut to it.
            ("bytes=990-1990", &[(990, 999)]),
            ("bytes=-1001", &[(0, 999)]),
            ("bytes=5-99999999999999999999999999999", &[(5, 999)]),
            ("bytes=0-18446744073709551615", &[(0, 999)]),
            // Several keep their order and lose the unsatisfiable; two may overlap, and touching is no overlap.
            (
                "bytes=0-9, -10,, 100000-\t,10-19 ,",
                &[(0, 9), (990, 999), (10, 19)],
            ),
            ("bytes=5000-,7-7", &[(7, 7)]),
            ("bytes=0-9,5-14", &[(0, 9), (5, 14)]),
            ("bytes=0-9,10-999", &[(0, 9), (10, 999)]),
        ] {
            assert_eq!(spans(value, 1000), want, "{value}");
        }
    }

    #[test]
    fn nothing_inside_the_file_is_unsatisfiable() {
        for value in [
            "bytes=1000-",
            "bytes=-0",
            "bytes=1000-1001,2000-",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(
                evaluate(value.as_bytes(), 1000),
                Ranges::Unsatisfiable,
                "{value}"
            );
        }
    }

    #[test]
    fn what_the_grammar_does_not_know_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=alpha",
            "bytes=10-alpha",
            "bytes=10",
            "bytes=-",
            "bytes=10-11 12-",
            "bytes=9-0",
            "bytes=0-9,9-0",
            "bytes=+1-2",
            "bytes=--1",
            "bytes=1-2-3",
            "bytes =0-9",
            "items=0-9",
            "lines=0-",
            "bytes=0 -9",
            "bytes=0x1-",
            "0-9",
            "bytes=\u{661}-",
            // Greedy, as section 14.2 allows: more than the file, twice all of it, three that overlap.
            "bytes=0-10001, 0-0",
            "bytes=0-,0-",
            "bytes=0-9,5-14,9-20",
        ] {
            assert_eq!(evaluate(value.as_bytes(), 1000), Ranges::Ignored, "{value}");
        }
    }

    #[test]
    fn an_empty_file_answers_a_resume_from_its_start_with_the_whole() {
        assert_eq!(evaluate(b"bytes=0-", 0), Ranges::Ignored);
        assert_eq!(evaluate(b"bytes=0-99", 0), Ranges::Ignored);
        assert_eq!(evaluate(b"bytes=-5", 0), Ranges::Ignored);
        assert_eq!(evaluate(b"bytes=5-", 0), Ranges::Unsatisfiable);
    }

    #[test]
    fn more_than_common_ranges_have_to_ascend_without_overlap() {
        let value = |pairs: &[(usize, usize)]| {
            let specs: Vec<_> = pairs.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            format!("bytes={}", specs.join(","))
        };
        for count in [RANGES_COMMON, RANGES_COMMON + 1, 255] {
            // Touching is no overlap, and what lies behind the end is left out.
            let mut pairs: Vec<_> = (0..count).map(|nth| (nth * 4, nth * 4 + 3)).collect();
            assert_eq!(spans(&value(&pairs), 4 * count as u64).len(), count);
            assert_eq!(spans(&value(&pairs), 4 * count as u64 - 4).len(), count - 1);
            assert_eq!(most(value(&pairs).as_bytes()), count);
            let above = super::evaluate(value(&pairs).as_bytes(), 2000, count - 1);
            assert_eq!(above, Ranges::Ignored, "more than there is memory for");
            pairs[5].1 += 1;
            let mut descending = pairs.clone();
            descending.reverse();
            for odd in [pairs, descending] {
                let got = evaluate(value(&odd).as_bytes(), 2000);
                let is_refused = got == Ranges::Ignored;
                assert_eq!(is_refused, count > RANGES_COMMON, "{odd:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn spans_lie_inside_the_file_and_never_add_up_to_more(
            specs in proptest::collection::vec((any::<Option<u16>>(), any::<Option<u16>>()), 1..20),
            len_bytes in prop_oneof![0u64..70_000, Just(u64::MAX)],
        ) {
            let text = |number: Option<u16>| number.map_or(String::new(), |n| n.to_string());
            let specs: Vec<_> = specs.iter().map(|&(a, b)| format!("{}-{}", text(a), text(b))).collect();
            let value = format!("bytes={}", specs.join(","));
            if let Ranges::Satisfiable(spans) = evaluate(value.as_bytes(), len_bytes) {
                prop_assert!(!spans.is_empty());
                let mut total_bytes = 0u64;
                for span in &spans {
                    prop_assert!(span.len_bytes >= 1 && span.last_byte() < len_bytes);
                    total_bytes += span.len_bytes;
                }
                prop_assert!(total_bytes <= len_bytes);
            }
        }

        #[test]
        fn one_range_is_what_slicing_gives(first in 0usize..300, last in 0usize..300, len in 1usize..200) {
            let file: Vec<usize> = (0..len).collect();
            let value = format!("bytes={first}-{last}");
            let got = evaluate(value.as_bytes(), len as u64);
            let asked = first.min(len)..last.saturating_add(1).min(len);
            match (first <= last, file.get(asked)) {
                (false, _) => prop_assert_eq!(got, Ranges::Ignored),
                (true, Some(bytes)) if !bytes.is_empty() => {
                    let want = [(bytes[0] as u64, bytes[bytes.len() - 1] as u64)];
                    prop_assert_eq!(spans(&value, len as u64), want);
                }
                _ => prop_assert_eq!(got, Ranges::Unsatisfiable),
            }
        }
    }
}
