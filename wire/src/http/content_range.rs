//! Content-Range (RFC 9110 section 14.4): the bytes of the representation that a 206 carries, or why there are none.

use super::fields::decimal;
use super::range::Span;
use crate::limits::OBJECT_BYTES_MAX;

/// The value of a Content-Range field of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes 0-499/1234`, or `bytes 0-499/*`: the body is this part.
    Part {
        /// The part; it lies inside the representation.
        span: Span,
        /// Length of the representation; `None` if the origin does not know it.
        len_bytes: Option<u64>,
    },
    /// `bytes */1234`: nothing that was asked for exists (416).
    Unsatisfied {
        /// Length of the representation.
        len_bytes: u64,
    },
}

impl ContentRange {
    /// Reads one value. `None` for another unit, any other text, a part that is reversed or reaches past the length,
    /// and numbers above [`OBJECT_BYTES_MAX`].
    pub fn parse(value: &[u8]) -> Option<Self> {
        let (unit, rest) = value.split_at_checked(b"bytes ".len())?;
        let slash = rest.iter().position(|&byte| byte == b'/')?;
        let (part, len) = (&rest[..slash], &rest[slash + 1..]);
        let decimal = |text: &[u8]| decimal(text).filter(|number| *number <= OBJECT_BYTES_MAX);
        if !unit.eq_ignore_ascii_case(b"bytes ") {
            return None;
        }
        if part == b"*" {
            return decimal(len).map(|len_bytes| Self::Unsatisfied { len_bytes });
        }
        let dash = part.iter().position(|&byte| byte == b'-')?;
        let (first, last) = (decimal(&part[..dash])?, decimal(&part[dash + 1..])?);
        let len_bytes = match len {
            b"*" => None,
            _ => Some(decimal(len)?),
        };
        let inside = last < len_bytes.unwrap_or(OBJECT_BYTES_MAX);
        (first <= last && inside).then(|| Self::Part {
            span: Span {
                offset_bytes: first,
                len_bytes: last - first + 1,
            },
            len_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ContentRange::{self, Part, Unsatisfied};
    use crate::http::range::Span;
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn part(offset_bytes: u64, len_bytes: u64, of: Option<u64>) -> Option<ContentRange> {
        let span = Span {
            offset_bytes,
            len_bytes,
        };
        Some(Part {
            span,
            len_bytes: of,
        })
    }

    #[test]
    fn the_three_forms_of_rfc_9110_section_14_4_are_read() {
        for (value, want) in [
            ("bytes 42-1233/1234", part(42, 1192, Some(1234))),
            ("BYTES 0-0/1", part(0, 1, Some(1))),
            ("bytes 42-1233/*", part(42, 1192, None)),
            ("bytes */1234", Some(Unsatisfied { len_bytes: 1234 })),
            ("bytes */0", Some(Unsatisfied { len_bytes: 0 })),
            (
                "bytes 0-9223372036854775806/9223372036854775807",
                part(0, i64::MAX as u64, Some(i64::MAX as u64)),
            ),
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), want, "{value}");
        }
    }

    #[test]
    fn any_other_text_is_none() {
        for value in [
            "",
            "bytes",
            "bytes ",
            "bytes */*",
            "bytes 0-0",
            "bytes 0-0/",
            "bytes 0/1",
            "bytes -1/1",
            "bytes 0-/1",
            "bytes 1-0/2",
            "bytes 0-1/1",
            "bytes 0-0/0",
            "bytes=0-0/1",
            "bytes  0-0/1",
            "bytes 0 -0/1",
            "bytes 0-0/ 1",
            "bytes 0-0/1 ",
            "bytes 0-0/1/2",
            "bytes +0-0/1",
            "bytes 0-0/1, bytes 0-0/1",
            "items 0-0/1",
            "bytes 0-18446744073709551615/*",
            "bytes 0-0/18446744073709551616",
            "bytes 0-0/9223372036854775808",
            "bytes 0-9223372036854775807/*",
            "bytes */9223372036854775808",
            "bytes \u{661}-2/3",
        ] {
            assert_eq!(ContentRange::parse(value.as_bytes()), None, "{value}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_part_lies_inside_its_representation(value in "bytes [0-9]{1,20}-[0-9]{1,20}/([0-9]{1,20}|[*])") {
            if let Some(Part { span, len_bytes }) = ContentRange::parse(value.as_bytes()) {
                prop_assert!(span.len_bytes > 0 && span.last_byte() < len_bytes.unwrap_or(u64::MAX));
            }
        }
    }
}
