//! Any bytes as an origin's response: [`ackpace_wire::http::parse_response`], and all steps from there to a plan.

use ackpace_wire::http::conditional::Validators;
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::{
    Asked, ContentRange, ETag, Framing, ParsedResponse, Representation, Response, Version,
    parse_response, plan,
};
use ackpace_wire::limits::{
    PASSED_FIELDS_BYTES_MAX, RESPONSE_FIELDS_MAX, RESPONSE_HEAD_BYTES_MAX, STORED_FIELDS_BYTES_MAX,
};

use super::{CONTEXT, check_head_bytes, check_plan, file, whole_request};

/// Laws: a verdict on some bytes stands whatever follows. An accepted head has no bare CR or LF and one length, and means
/// the same to `httparse`. What is relayed of it makes well-formed responses.
pub fn response_head(data: &[u8]) {
    for asked in [Asked::Get, Asked::Head] {
        let parsed = parse_response(data, asked);
        for end in [data.len() / 3, data.len() / 2, data.len().saturating_sub(1)] {
            check_earlier(&parse_response(&data[..end], asked), &parsed);
        }
        match parsed {
            ParsedResponse::Incomplete => assert!(data.len() < RESPONSE_HEAD_BYTES_MAX),
            ParsedResponse::Bad(why) => assert!(!why.is_empty()),
            ParsedResponse::Interim { head_len_bytes } => {
                check_head(&data[..head_len_bytes], asked, None);
            }
            ParsedResponse::Complete {
                response,
                head_len_bytes,
            } => {
                check_head(&data[..head_len_bytes], asked, Some(&response));
                check_framing(&response, asked);
                relay(&response);
            }
        }
    }
}

/// More bytes may complete a head, but never change a verdict on it.
fn check_earlier(early: &ParsedResponse<'_>, late: &ParsedResponse<'_>) {
    let end = |parsed: &ParsedResponse<'_>| match parsed {
        ParsedResponse::Complete { head_len_bytes, .. } => Ok((*head_len_bytes, false)),
        ParsedResponse::Interim { head_len_bytes } => Ok((*head_len_bytes, true)),
        ParsedResponse::Bad(why) => Err(*why),
        ParsedResponse::Incomplete => Err(""),
    };
    if !matches!(early, ParsedResponse::Incomplete) {
        assert_eq!(end(early), end(late));
    }
}

fn check_head(head: &[u8], asked: Asked, response: Option<&Response<'_>>) {
    assert!(head.len() <= RESPONSE_HEAD_BYTES_MAX);
    check_head_bytes(head);
    let without_its_end = parse_response(&head[..head.len() - 1], asked);
    assert!(matches!(without_its_end, ParsedResponse::Incomplete));
    let mut slots = [httparse::EMPTY_HEADER; RESPONSE_FIELDS_MAX];
    let mut theirs = httparse::Response::new(&mut slots);
    let parsed = theirs.parse(head);
    assert_eq!(parsed, Ok(httparse::Status::Complete(head.len())));
    let Some(response) = response else {
        assert!(theirs.code.is_some_and(|code| (100..200).contains(&code)));
        return;
    };
    assert_eq!(theirs.code, Some(response.status));
    let is_new = response.version == Version::Http11;
    assert_eq!(theirs.version, Some(u8::from(is_new)));
    let their_fields = theirs.headers.iter().map(|h| (h.name.as_bytes(), h.value));
    assert!(response.fields().iter().eq(their_fields));
}

fn check_framing(response: &Response<'_>, asked: Asked) {
    let fields = response.fields();
    let has = |field| fields.first(field).is_some();
    assert!(!(has(Field::ContentLength) && has(Field::TransferEncoding)));
    assert_eq!(has(Field::ContentLength), response.len_bytes.is_some());
    match response.framing {
        Framing::None => assert!(asked == Asked::Head || matches!(response.status, 204 | 304)),
        Framing::Length(len_bytes) => assert_eq!(response.len_bytes, Some(len_bytes)),
        Framing::Chunked => assert!(has(Field::TransferEncoding)),
        Framing::UntilClose => assert!(!response.keep_alive && response.len_bytes.is_none()),
    }
}

fn relay(response: &Response<'_>) {
    let fields = response.fields();
    let range = fields.single(Field::ContentRange);
    if let Some(ContentRange::Part { span, len_bytes }) = range.and_then(ContentRange::parse) {
        assert!(span.len_bytes > 0 && span.last_byte() < len_bytes.unwrap_or(u64::MAX));
    }
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=0-1,5-9\r\n\r\n",
        "GET / HTTP/1.0\r\nIf-None-Match: *\r\n\r\n",
        "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let request = whole_request(head.as_bytes()).expect("a request of ours");
        if let Ok(lines) = plan::relay::stored(response) {
            assert!(lines.len() <= STORED_FIELDS_BYTES_MAX);
            let tag = fields.single(Field::ETag).and_then(ETag::foreign);
            let object = Representation {
                validators: Validators::foreign(tag, None, None),
                content_type: plan::relay::content_type(response),
                fields: &lines,
                age_s: Some(1),
                ..file(1000)
            };
            check_plan(&plan::file(&request, &object, &CONTEXT), 1000);
        }
        if let Ok(lines) = plan::relay::passed(response) {
            assert!(lines.len() <= PASSED_FIELDS_BYTES_MAX);
            let status = response.status;
            let body = b"short".to_vec();
            check_plan(&plan::relayed(&request, status, &lines, body, &CONTEXT), 0);
            for len_bytes in [None, Some(9)] {
                let plan = plan::through(&request, status, &lines, len_bytes, &CONTEXT);
                check_plan(&plan, 0);
            }
        }
    }
}
