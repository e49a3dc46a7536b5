//! Any bytes as the field lines of a GET: [`ackpace_wire::http::conditional::evaluate`].

use ackpace_wire::http::conditional::{Validators, Verdict, evaluate, range_holds};
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::{Request, plan};

use super::{CONTEXT, check_plan, file, whole_request};

const LEN_BYTES: u64 = 1000;

/// Laws: a verdict needs a field that can cause it and, for tags, our tag in it; a field that RFC 9110 section 13.2.2
/// ignores changes nothing; the plan agrees with the verdict.
pub fn conditionals(data: &[u8]) {
    let head = head(data, "");
    let Some(request) = whole_request(&head) else {
        return;
    };
    let ours = file(LEN_BYTES);
    let validators = ours.validators;
    let verdict = evaluate(&request, &validators);
    check_cause(&request, &validators, verdict);
    check_precedence(data, &request, &validators, verdict);

    let plan = plan::file(&request, &ours, &CONTEXT);
    check_plan(&plan, LEN_BYTES);
    match verdict {
        _ if request.refusal().is_some() => {}
        Verdict::NotModified => assert_eq!(plan.status, 304),
        Verdict::Failed => assert_eq!(plan.status, 412),
        Verdict::Proceed => {
            let ranged = plan.status == 206 || plan.status == 416;
            assert!(ranged || plan.status == 200);
            let asked = request.range().is_some() && range_holds(&request, &validators);
            assert!(!ranged || asked, "a range that nobody may have");
        }
    }
}

fn head(lines: &[u8], more: &str) -> Vec<u8> {
    let start = &b"GET / HTTP/1.1\r\nHost: a\r\n"[..];
    [start, more.as_bytes(), lines, b"\r\n\r\n"].concat()
}

fn tag_of(validators: &Validators) -> &[u8] {
    let tag = validators.etag.as_ref();
    tag.expect("its mtime tells versions apart").opaque()
}

fn check_cause(request: &Request<'_>, validators: &Validators, verdict: Verdict) {
    let fields = request.fields();
    let has = |field| fields.first(field).is_some();
    // A field of tags can match only if it has our tag or a lone star.
    let may_match = |field| {
        let tag = tag_of(validators);
        let mut values = fields.values(field);
        values.any(|value| value == b"*" || value.windows(tag.len()).any(|w| w == tag))
    };
    match verdict {
        Verdict::Failed => assert!(has(Field::IfMatch) || has(Field::IfUnmodifiedSince)),
        Verdict::NotModified if has(Field::IfNoneMatch) => assert!(may_match(Field::IfNoneMatch)),
        Verdict::NotModified => assert!(request.if_modified_since().is_some()),
        Verdict::Proceed => {}
    }
    if has(Field::IfMatch) && !may_match(Field::IfMatch) {
        assert_eq!(verdict, Verdict::Failed);
    }
    for (field, want) in [
        (Field::IfMatch, Verdict::Failed),
        (Field::IfNoneMatch, Verdict::NotModified),
    ] {
        let exactly = fields.single(field) == Some(tag_of(validators));
        let alone =
            !has(Field::IfMatch) && !has(Field::IfUnmodifiedSince) || field == Field::IfMatch;
        if exactly && alone {
            assert_eq!(verdict == want, field == Field::IfNoneMatch);
        }
    }
    if range_holds(request, validators) {
        let value = request.if_range().unwrap_or(tag_of(validators));
        let is_date = value.first().is_some_and(u8::is_ascii_alphabetic) && value.len() > 20;
        assert!(value == tag_of(validators) || is_date, "{value:?}");
    }
}

/// Dates beside tags, and fields without meaning, change nothing.
fn check_precedence(
    lines: &[u8],
    request: &Request<'_>,
    validators: &Validators,
    verdict: Verdict,
) {
    let with = |more: &str| {
        let head = head(lines, more);
        whole_request(&head).map(|request| evaluate(&request, validators))
    };
    let same = |with: Option<Verdict>| assert!(with.is_none_or(|with| with == verdict));
    same(with("X: y\r\n"));
    same(with("If-Modified-Since: no date\r\n").filter(|_| request.if_modified_since().is_none()));
    for date in [
        "Thu, 01 Jan 1970 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ] {
        if request.fields().first(Field::IfNoneMatch).is_some() {
            same(with(&format!("If-Modified-Since: {date}\r\n")));
        }
        if request.fields().first(Field::IfMatch).is_some() {
            same(with(&format!("If-Unmodified-Since: {date}\r\n")));
        }
    }
}
