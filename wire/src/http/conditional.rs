//! Preconditions (RFC 9110 section 13): does the client have this representation already, or an
//! older one that it must not mix with it?

use super::date;
use super::etag::{self, ETag};
use super::fields::Field;
use super::request::{Method, Request};

/// What preconditions are compared with.
#[derive(Clone, Copy, Debug)]
pub struct Validators {
    /// The tag of the selected representation.
    pub etag: ETag,
    /// Its Last-Modified as sent: between 1970 and the time of the answer, in seconds.
    pub last_modified_unix_s: u64,
    /// True if the date says for certain that nothing changed since (RFC 9110 section 8.8.2.2).
    pub last_modified_is_strong: bool,
}

impl Validators {
    /// The validators of a file of `len_bytes` last modified at `modified_unix_s`, sent in `coding`,
    /// at the time `now_unix_s`.
    ///
    /// Last-Modified is never later than the answer (section 8.8.2.1) nor before 1970.
    pub fn new(
        modified_unix_s: i64,
        len_bytes: u64,
        coding: Option<super::Coding>,
        now_unix_s: u64,
    ) -> Self {
        let last_modified_unix_s = u64::try_from(modified_unix_s).unwrap_or(0).min(now_unix_s);
        Self {
            etag: ETag::new(modified_unix_s, len_bytes, coding, now_unix_s),
            last_modified_unix_s,
            last_modified_is_strong: now_unix_s - last_modified_unix_s >= etag::WEAK_FOR_S,
        }
    }
}

/// What the preconditions come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Answer as if there were none (Range is still to be looked at).
    Proceed,
    /// 304
    NotModified,
    /// 412
    Failed,
}

/// Weighs If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since in the order of RFC 9110
/// section 13.2.2, for a representation that exists and would be sent with a 2xx.
pub fn evaluate(request: &Request<'_>, validators: &Validators) -> Verdict {
    let reads = matches!(request.method, Method::Get | Method::Head);
    // Steps 1 and 2
    let unchanged = match any_matches(request, Field::IfMatch, |given| {
        given.is_strongly(&validators.etag)
    }) {
        Some(matches) => matches,
        None => request
            .if_unmodified_since()
            .and_then(date::parse)
            .is_none_or(|date_s| validators.last_modified_unix_s <= date_s),
    };
    if !unchanged {
        return Verdict::Failed;
    }
    // Steps 3 and 4
    let known = match any_matches(request, Field::IfNoneMatch, |given| {
        given.is_weakly(&validators.etag)
    }) {
        Some(true) if !reads => return Verdict::Failed,
        Some(matches) => matches,
        None if reads => request
            .if_modified_since()
            .and_then(date::parse)
            .is_some_and(|date_s| validators.last_modified_unix_s <= date_s),
        None => false,
    };
    if known {
        Verdict::NotModified
    } else {
        Verdict::Proceed
    }
}

/// Step 5: may the client's Range be honoured? True without If-Range; with it only if the tag
/// matches strongly, or the date is exactly the Last-Modified and that is a strong one
/// (RFC 9110 section 13.1.5). Otherwise the client gets the whole file.
pub fn range_holds(request: &Request<'_>, validators: &Validators) -> bool {
    let Some(value) = request.if_range() else {
        return true;
    };
    let mut tags = etag::given(value);
    if let Some(tag) = tags.next() {
        return tags.next().is_none() && tag.is_strongly(&validators.etag);
    }
    validators.last_modified_is_strong
        && date::parse(value) == Some(validators.last_modified_unix_s)
}

/// `None` without the field; true for `*`, or if one of the tags is like ours.
fn any_matches(
    request: &Request<'_>,
    field: Field,
    is_ours: impl Fn(&etag::Given<'_>) -> bool,
) -> Option<bool> {
    request.fields().first(field)?;
    let mut values = request.fields().values(field);
    Some(values.any(|value| value == b"*" || etag::given(value).any(|given| is_ours(&given))))
}
