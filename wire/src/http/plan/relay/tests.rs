use super::super::tests::{body_of, field, head_of, html};
use super::super::{Plan, Representation, file};
use super::{Part, content_type, passed, relayed, stored, through};
use crate::http::ETag;
use crate::http::conditional::Validators;
use crate::http::testing::{at, get, request, response};
use crate::limits::{PASSED_FIELDS_BYTES_MAX, STORED_FIELDS_BYTES_MAX};

const NOW: u64 = 1_000_000_000;

const ORIGIN: &str = "HTTP/1.1 200 OK\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nServer: x\r\n\
    Content-Type: a/b\r\nETag: W/\"1\"\r\nLast-Modified: l\r\nAge: 9\r\nAccept-Ranges: none\r\n\
    Content-Range: r\r\nContent-Length: 5\r\nSet-Cookie: c\r\nconnection: X-Hop\r\nx-hop: h\r\n\
    Keep-Alive: k\r\nProxy-Authenticate: p\r\nCache-Control:max-age=1\r\nContent-Language: de\r\n\
    Content-Location: /l\r\n\r\n";

const KEPT: &str = "Server: x\r\nCache-Control: max-age=1\r\nContent-Language: de\r\n\
    Content-Location: /l\r\n";

fn object(fields: &[u8]) -> Representation<'_> {
    Representation {
        validators: Validators::foreign(ETag::foreign(b"W/\"\xe4\""), None, None),
        content_type: "",
        fields,
        date_unix_s: Some(784_111_777),
        age_s: Some(7),
        ..html(1000)
    }
}

fn asked(method_and_version: (&str, &str)) -> Vec<u8> {
    let (method, version) = method_and_version;
    format!("{method} / HTTP/{version}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n").into_bytes()
}

#[test]
fn stored_lines_are_those_that_plans_do_not_write() {
    let lines = stored(&response(ORIGIN.as_bytes())).expect("short lines");
    assert_eq!(String::from_utf8_lossy(&lines), KEPT);
    let lines = passed(&response(ORIGIN.as_bytes())).expect("short lines");
    let lines = String::from_utf8(lines).expect("ASCII");
    for (name, is_passed) in [
        ("Set-Cookie: c", true),
        ("ETag: W/\"1\"", true),
        ("Content-Range: r", true),
        ("Content-Length", false),
        ("X-Hop", false),
        ("x-hop", false),
        ("Keep-Alive", false),
        ("Proxy-", false),
    ] {
        assert_eq!(lines.contains(name), is_passed, "{name}");
    }
    assert_eq!(content_type(&response(ORIGIN.as_bytes())), "a/b");
}

#[test]
fn lines_above_their_bounds_are_refused() {
    for (len, is_stored, is_passed) in [
        (STORED_FIELDS_BYTES_MAX, true, true),
        (STORED_FIELDS_BYTES_MAX + 1, false, true),
        (PASSED_FIELDS_BYTES_MAX, false, true),
        (PASSED_FIELDS_BYTES_MAX + 1, false, false),
    ] {
        let head = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(len - 5));
        let response = response(head.as_bytes());
        assert_eq!(stored(&response).is_ok(), is_stored, "{len}");
        assert_eq!(passed(&response).is_ok(), is_passed, "{len}");
    }
}

#[test]
fn an_object_is_sent_with_the_origins_fields_date_and_age() {
    let plan = file(
        &request(&get("Range: bytes=0-1\r\n")),
        &object(KEPT.as_bytes()),
        &at(NOW),
    );
    let Part::Bytes(head) = &plan.parts[0] else {
        panic!("{plan:?}");
    };
    let want = "HTTP/1.1 206 Partial Content\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\nAge: 7\r\n\
        ETag: W/\"\u{fffd}\"\r\nAccept-Ranges: bytes\r\nServer: x\r\nCache-Control: max-age=1\r\n\
        Content-Language: de\r\nContent-Location: /l\r\nContent-Length: 2\r\n\
        Content-Range: bytes 0-1/1000\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(head), want);
    let several = get("Range: bytes=0-1,5-6\r\n");
    let plan = file(&request(&several), &object(b""), &at(NOW));
    assert!(!body_of(&plan).windows(8).any(|text| text == b"Content-T"));
}

#[test]
fn a_304_has_what_updates_a_stored_response_rfc_9110_section_15_4_5() {
    let known = get("If-None-Match: *\r\n");
    let object = Representation {
        validators: Validators::foreign(None, None, None),
        ..object(KEPT.as_bytes())
    };
    let plan = file(&request(&known), &object, &at(NOW));
    assert_eq!(plan.status, 304);
    for (name, is_sent) in [
        ("Age", true),
        ("Cache-Control", true),
        ("Content-Location", true),
        ("Content-Language", false),
    ] {
        assert_eq!(field(&plan, name).is_some(), is_sent, "{name}");
    }
}

#[test]
fn a_short_response_is_relayed_whole() {
    let of = |method, status, fields: &str| {
        let head = asked((method, "1.1"));
        let body = b"gone".to_vec();
        relayed(&request(&head), status, fields.as_bytes(), body, &at(NOW))
    };
    let plan = of("GET", 404, "Date: d\r\nX: y\r\n");
    let want = "HTTP/1.1 404 Not Found\r\nDate: d\r\nX: y\r\nContent-Length: 4\r\n\r\n";
    assert_eq!(head_of(&plan), want);
    assert_eq!((plan.parts.len(), plan.body_len_bytes), (1, Some(4)));
    assert_eq!(body_of(&plan), b"gone");
    let odd = of("HEAD", 418, "");
    assert!(head_of(&odd).starts_with("HTTP/1.1 418 \r\nDate: Sun, 09 Sep 2001"));
    assert_eq!(field(&odd, "Content-Length").as_deref(), Some("4"));
    assert_eq!((body_of(&odd).len(), odd.body_len_bytes), (0, Some(0)));
    let confirmed = of("GET", 304, "");
    assert_eq!(field(&confirmed, "Content-Length"), None);
    assert_eq!(body_of(&confirmed), b"");
}

#[test]
fn a_response_is_passed_through_in_the_framing_that_its_length_and_the_client_allow() {
    let chunked = Some(Part::Stream { chunked: true });
    let plain = Some(Part::Stream { chunked: false });
    for (asking, status, len_bytes, stream, keep_alive) in [
        (("GET", "1.1"), 200, Some(9), plain.clone(), true),
        (("GET", "1.1"), 206, None, chunked, true),
        (("GET", "1.0"), 200, Some(9), plain.clone(), true),
        (("GET", "1.0"), 200, None, plain, false),
        (("GET", "1.1"), 200, Some(0), None, true),
        (("GET", "1.1"), 204, None, None, true),
        (("GET", "1.0"), 304, Some(9), None, true),
        (("HEAD", "1.1"), 200, Some(9), None, true),
        (("HEAD", "1.0"), 200, None, None, true),
    ] {
        let head = asked(asking);
        let plan = through(&request(&head), status, b"", len_bytes, &at(NOW));
        let of = |plan: &Plan| (plan.status, plan.parts.get(1).cloned(), plan.keep_alive);
        assert_eq!(
            of(&plan),
            (status, stream.clone(), keep_alive),
            "{asking:?}"
        );
        let body_len_bytes = if stream.is_some() { len_bytes } else { Some(0) };
        assert_eq!(plan.body_len_bytes, body_len_bytes);
        let said = field(&plan, "Content-Length").and_then(|text| text.parse().ok());
        assert_eq!(said, len_bytes.filter(|_| status != 304));
        let is_chunked = matches!(stream, Some(Part::Stream { chunked: true }));
        assert_eq!(field(&plan, "Transfer-Encoding").is_some(), is_chunked);
        assert_eq!(
            field(&plan, "Connection").as_deref() == Some("close"),
            !keep_alive
        );
    }
}
