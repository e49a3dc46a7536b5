//! Any bytes as a request head: [`ackpace_wire::http::parse`], and all steps from there to a plan.

use ackpace_wire::http::fields::Field;
use ackpace_wire::http::{Parsed, Request, Version, host, parse, plan, target};
use ackpace_wire::limits::{FIELDS_MAX, HEAD_BYTES_MAX, TARGET_BYTES_MAX};

use super::{CONTEXT, check_head_bytes, check_plan, file};

/// Laws: a verdict on some bytes stands whatever follows. An accepted head has no bare CR or LF, one Host and one
/// length, and means the same to `httparse`. Every outcome has a well-formed response.
pub fn request_head(data: &[u8]) {
    let parsed = parse(data);
    for end in [data.len() / 3, data.len() / 2, data.len().saturating_sub(1)] {
        check_earlier(&parse(&data[..end]), &parsed);
    }
    match parsed {
        Parsed::Incomplete => assert!(data.len() < HEAD_BYTES_MAX),
        Parsed::Reject(reject) => {
            assert!(reject.status.code() >= 400 && !reject.why.is_empty());
            let plan = plan::error(None, &reject, &CONTEXT);
            assert!(
                !plan.keep_alive,
                "nobody knows where the next request starts"
            );
            check_plan(&plan, 0);
        }
        Parsed::Complete {
            request,
            head_len_bytes,
        } => {
            let head = &data[..head_len_bytes];
            check_bytes(head);
            check_request(&request);
            compare_with_httparse(head, &request);
            answer(&request);
        }
    }
}

/// More bytes may complete a head, but never change a verdict on it.
fn check_earlier(early: &Parsed<'_>, late: &Parsed<'_>) {
    match (early, late) {
        (Parsed::Incomplete, _) => {}
        (Parsed::Reject(early), Parsed::Reject(late)) => assert_eq!(early, late),
        (
            Parsed::Complete {
                head_len_bytes: early,
                ..
            },
            Parsed::Complete {
                head_len_bytes: late,
                ..
            },
        ) => assert_eq!(early, late),
        _ => panic!("{early:?} became {late:?}"),
    }
}

fn check_bytes(head: &[u8]) {
    assert!(head.len() <= HEAD_BYTES_MAX);
    check_head_bytes(head);
    let without_its_end = parse(&head[..head.len() - 1]);
    assert!(matches!(without_its_end, Parsed::Incomplete));
}

fn check_request(request: &Request<'_>) {
    let fields = request.fields();
    let named = |name: &str| {
        let is_it = |given: &[u8]| given.eq_ignore_ascii_case(name.as_bytes());
        fields.iter().filter(|(given, _)| is_it(given)).count()
    };
    assert!(fields.iter().count() <= FIELDS_MAX && request.target.len() <= TARGET_BYTES_MAX);
    assert!(named("host") <= 1 && named("content-length") <= 1);
    assert!(named("content-length") + named("transfer-encoding") <= 1);
    assert!(request.host().is_none_or(host::is_valid));
    assert!(request.version == Version::Http10 || named("host") == 1);
    assert!(!(request.expect_continue && request.keep_alive));
    for (field, name) in [
        (Field::Range, "range"),
        (Field::IfRange, "if-range"),
        (Field::Accept, "accept"),
        (Field::IfMatch, "if-match"),
        (Field::IfNoneMatch, "if-none-match"),
        (Field::AcceptEncoding, "accept-encoding"),
        (Field::UserAgent, "user-agent"),
    ] {
        let of_name = |(given, _): &(&[u8], &[u8])| given.eq_ignore_ascii_case(name.as_bytes());
        let searched = fields.iter().filter(of_name).map(|(_, value)| value);
        assert!(searched.clone().eq(fields.values(field)), "{name}");
        assert_eq!(fields.first(field), searched.clone().next());
        assert_eq!(fields.is_repeated(field), searched.count() > 1);
    }
}

fn compare_with_httparse(head: &[u8], request: &Request<'_>) {
    if std::str::from_utf8(request.target).is_err() {
        return; // httparse takes UTF-8 only
    }
    let mut slots = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut theirs = httparse::Request::new(&mut slots);
    let parsed = theirs.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    assert_eq!(
        theirs.method.map(str::as_bytes),
        Some(request.method.as_bytes())
    );
    assert_eq!(theirs.path.map(str::as_bytes), Some(request.target));
    assert_eq!(
        theirs.version,
        Some(u8::from(request.version == Version::Http11))
    );
    let their_fields = theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value));
    assert!(request.fields().iter().eq(their_fields));
}

fn answer(request: &Request<'_>) {
    if let Some(reject) = request.refusal() {
        check_plan(&plan::error(Some(request), &reject, &CONTEXT), 0);
        return;
    }
    match target::resolve(request.target) {
        Err(reject) => check_plan(&plan::error(Some(request), &reject, &CONTEXT), 0),
        Ok(_) => {
            check_plan(&plan::file(request, &file(1000), &CONTEXT), 1000);
            let moved = ackpace_wire::http::Status::MovedPermanently;
            let reference = target::folder_reference(request.target);
            let redirect = plan::redirect(request, moved, &reference, &CONTEXT);
            check_plan(&redirect, 0);
            check_plan(&plan::options(request, &CONTEXT), 0);
        }
    }
}
