//! Byte ranges (RFC 9110 section 14): which spans of a file a Range field asks for.

use super::fields::trim;
use crate::limits::RANGES_MAX;

/// A run of bytes of a representation; never empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Where it starts.
    pub offset_bytes: u64,
    /// How long it is, at least 1.
    pub len_bytes: u64,
}

impl Span {
    /// The position of its last byte, as Content-Range names it.
    pub const fn last_byte(&self) -> u64 {
        self.offset_bytes + self.len_bytes - 1
    }
}

/// The satisfiable ranges of one field, in the order asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spans {
    spans: [Span; RANGES_MAX],
    len: usize,
}

impl Spans {
    /// As a slice; never empty inside [`Ranges::Satisfiable`].
    pub fn as_slice(&self) -> &[Span] {
        &self.spans[..self.len]
    }
}

/// What a Range field comes to for a representation of known length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// Send the whole: RFC 9110 section 14.2 lets a server ignore the field.
    Ignored,
    /// None of the ranges lies inside: 416.
    Unsatisfiable,
    /// Send these.
    Satisfiable(Spans),
}

/// Weighs the value of a Range field for a representation of `len_bytes`.
///
/// Ignored are: another unit than bytes; anything outside the grammar (section 14.2 allows this as
/// well as a refusal, and a client that gets the whole file still has what it wanted); more than
/// [`RANGES_MAX`] ranges; several ranges that together are longer than the file, or more than two
/// of which overlap: "either a broken client or a deliberate denial-of-service attack" (section
/// 14.2, and nginx's rule). The rest is sent range by range, in the order asked for, so nothing is
/// coalesced. An empty file has no range to name: one that starts at 0 or counts from the end
/// gets the whole (empty) file, as from nginx, since many clients resume with `bytes=0-`.
pub fn evaluate(value: &[u8], len_bytes: u64) -> Ranges {
    let Some(specs) = value
        .split_at_checked(b"bytes=".len())
        .filter(|(unit, _)| unit.eq_ignore_ascii_case(b"bytes="))
        .map(|(_, specs)| specs)
    else {
        return Ranges::Ignored;
    };
    let mut spans = Spans {
        spans: [Span::default(); RANGES_MAX],
        len: 0,
    };
    let mut count = 0;
    for spec in specs.split(|&byte| byte == b',').map(trim) {
        if spec.is_empty() {
            continue; // RFC 9110 section 5.6.1.2
        }
        count += 1;
        let Some(spec) = Spec::parse(spec).filter(|_| count <= RANGES_MAX) else {
            return Ranges::Ignored;
        };
        match spec.resolve(len_bytes) {
            Some(span) => {
                spans.spans[spans.len] = span;
                spans.len += 1;
            }
            None if len_bytes == 0 && spec.starts_at_0() => return Ranges::Ignored,
            None => {}
        }
    }
    match (count, spans.as_slice()) {
        (0, _) => Ranges::Ignored,
        (_, []) => Ranges::Unsatisfiable,
        (_, [_]) => Ranges::Satisfiable(spans),
        (_, several) if is_excessive(several, len_bytes) => Ranges::Ignored,
        _ => Ranges::Satisfiable(spans),
    }
}

/// One range-spec (RFC 9110 section 14.1.1). Numbers beyond 64 bits are cut to them: no file
/// reaches there.
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
        .fold(0u64, |total, span| total.saturating_add(span.len_bytes));
    if total_bytes > len_bytes {
        return true;
    }
    spans.iter().any(|span| {
        let overlapping = spans.iter().filter(|other| {
            other.offset_bytes <= span.last_byte() && span.offset_bytes <= other.last_byte()
        });
        overlapping.count() > 2 // itself and one other
    })
}
