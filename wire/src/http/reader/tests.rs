use proptest::prelude::*;

use super::{Method, Parsed, Request, parse};
use crate::http::testing::{config, get, request};
use crate::http::{RequestBody, Status, Version};
use crate::limits::{
    FIELDS_MAX, HEAD_BYTES_MAX, LEADING_EMPTY_LINES_MAX, METHOD_BYTES_MAX, TARGET_BYTES_MAX,
};

/// The status with which these bytes are rejected.
fn refused(bytes: &[u8]) -> Status {
    match parse(bytes) {
        Parsed::Reject(reject) => reject.status,
        other => panic!("{:?}: {other:?}", String::from_utf8_lossy(bytes)),
    }
}

/// The status of a well-formed request that the server does not serve.
fn refusal(head: &str) -> Option<Status> {
    request(head.as_bytes())
        .refusal()
        .map(|reject| reject.status)
}

fn values(request: &Request<'_>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    request.fields().iter().map(owned).collect()
}

const BROWSER: &str = "GET /a%20b?c HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x/1 (y)\r\n\
    accept: text/html,*/*;q=0.8\r\nACCEPT-ENCODING:gzip, br\r\nRange: bytes=0-\r\n\
    If-Range: \"1\"\r\nIf-Modified-Since: a\r\nIf-Unmodified-Since: b\r\n\
    Referer:\t http://r/ \t\r\nX-Empty:\r\nX-Obs: \u{e4} b\r\n\r\n";

#[test]
fn a_browsers_request_is_read_field_by_field() {
    let request = request(BROWSER.as_bytes());
    assert_eq!(request.method, Method::Get);
    assert_eq!(request.target, b"/a%20b?c");
    assert_eq!(request.version, Version::Http11);
    assert!(request.keep_alive && !request.expect_continue);
    assert_eq!(request.body, RequestBody::None);
    assert_eq!(request.host(), Some(&b"example.com:8080"[..]));
    assert_eq!(request.user_agent(), Some(&b"x/1 (y)"[..]));
    assert_eq!(request.range(), Some(&b"bytes=0-"[..]));
    assert_eq!(request.if_range(), Some(&b"\"1\""[..]));
    assert_eq!(request.if_modified_since(), Some(&b"a"[..]));
    assert_eq!(request.if_unmodified_since(), Some(&b"b"[..]));
    assert_eq!(request.referer(), Some(&b"http://r/"[..]));
    assert_eq!(request.refusal(), None);
    let names = values(&request);
    assert_eq!(names.len(), 11);
    assert_eq!(names[9], (b"X-Empty".to_vec(), b"".to_vec()));
    assert_eq!(names[10].1, "\u{e4} b".as_bytes());
}

#[test]
fn every_prefix_of_a_good_request_is_incomplete_and_what_follows_changes_nothing() {
    for end in 0..BROWSER.len() {
        let parsed = parse(&BROWSER.as_bytes()[..end]);
        assert!(matches!(parsed, Parsed::Incomplete), "{end}: {parsed:?}");
    }
    let followed = [BROWSER, "\r\n\0\0 more"].concat();
    match parse(followed.as_bytes()) {
        Parsed::Complete { head_len_bytes, .. } => assert_eq!(head_len_bytes, BROWSER.len()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn bare_cr_and_bare_lf_are_refused_anywhere_rfc_9112_section_2_2() {
    let lines = "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\r\nGET";
    for (at, _) in lines.match_indices('\r') {
        let mut without_cr = lines.to_owned();
        without_cr.remove(at);
        assert_eq!(refused(without_cr.as_bytes()), Status::BadRequest);
        let mut without_lf = lines.to_owned();
        without_lf.remove(at + 1);
        assert_eq!(refused(without_lf.as_bytes()), Status::BadRequest);
    }
    for head in [
        "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\nb: c\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\r: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\rX: a\r\n\r\n",
        "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(refused(head.as_bytes()), Status::BadRequest, "{head:?}");
    }
}

#[test]
fn lengths_that_could_be_read_two_ways_are_refused_rfc_9112_section_6_3() {
    for (lines, status) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", 400),
        ("transfer-encoding: chunked\r\ncontent-length: 0\r\n", 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Content-Length: 1\r\ncontent-length: 2\r\n", 400),
        ("Content-Length: 1, 1\r\n", 400),
        ("Content-Length:\r\n", 400),
        ("Content-Length: +1\r\n", 400),
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: 0x1\r\n", 400),
        ("Content-Length: 1 1\r\n", 400),
        ("Content-Length: abc\r\n", 400),
        ("Content-Length: 18446744073709551616\r\n", 400),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            400,
        ),
        ("Transfer-Encoding: chunked, chunked\r\n", 400),
        ("Transfer-Encoding: gzip, chunked\r\n", 400),
        ("Transfer-Encoding: chunked, identity\r\n", 400),
        ("Transfer-Encoding: chunked;a=b\r\n", 400),
        ("Transfer-Encoding:\r\n", 400),
        ("Transfer-Encoding: \"chunked\"\r\n", 400),
        ("Transfer-Encoding: chunked,\r\n", 400),
        ("Transfer-Encoding: \x0bchunked\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 501),
        ("Transfer-Encoding: identity\r\n", 501),
        ("Transfer-Encoding: xchunked\r\n", 501),
    ] {
        assert_eq!(refused(&get(lines)).code(), status, "{lines:?}");
    }
    let old = b"GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(old), Status::BadRequest);
}

#[test]
fn a_body_is_announced_by_length_or_by_chunks() {
    let body = |lines: &str| request(&get(lines)).body;
    assert_eq!(body(""), RequestBody::None);
    assert_eq!(body("Content-Length: 0\r\n"), RequestBody::None);
    assert_eq!(body("Content-Length: 007\r\n"), RequestBody::Length(7));
    let longest = "Content-Length: 18446744073709551615\r\n";
    assert_eq!(body(longest), RequestBody::Length(u64::MAX));
    assert_eq!(body("Transfer-Encoding: CHUNKed\r\n"), RequestBody::Chunked);
}

#[test]
fn field_lines_outside_the_grammar_are_refused_rfc_9112_section_5() {
    for lines in [
        "X : a\r\n",
        "X\t: a\r\n",
        ": a\r\n",
        "X: a\r\n folded\r\n",
        "X: a\r\n\tfolded\r\n",
        "X[]: a\r\n",
        "X\u{e4}: a\r\n",
        "X\x07: a\r\n",
        "no colon\r\n",
        "nocolon\r\n",
        "X: a\0b\r\n",
        "X: a\x07\r\n",
        "X: a\x7f\r\n",
        "X: a\x0b\r\n",
    ] {
        assert_eq!(refused(&get(lines)), Status::BadRequest, "{lines:?}");
    }
    let folded_first = b"GET / HTTP/1.1\r\n Host: a\r\n\r\n";
    assert_eq!(refused(folded_first), Status::BadRequest);
}

#[test]
fn request_lines_outside_the_grammar_are_refused_rfc_9112_section_3() {
    for (line, status) in [
        ("GET /", 400),
        ("GET / ", 400),
        ("GET", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET / / HTTP/1.1", 400),
        (" GET / HTTP/1.1", 400),
        ("GET\t/ HTTP/1.1", 400),
        ("G(T / HTTP/1.1", 400),
        ("Extra lineGET / HTTP/1.1", 400),
        ("GET /\x02 HTTP/1.1", 400),
        ("GET /\x7f HTTP/1.1", 400),
        ("GET / http/1.1", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.10", 400),
        ("GET / HTTP/11", 400),
        ("GET / HTTP/x.1", 400),
        ("GET / FTP/1.1", 400),
        ("GET / HTTP/0.9", 505),
        ("GET / HTTP/1.2", 505),
        ("GET / HTTP/9.9", 505),
        ("PRI * HTTP/2.0", 505),
        ("\x16\x03\x01", 400),
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(refused(head.as_bytes()).code(), status, "{line:?}");
    }
}

#[test]
fn there_is_exactly_one_valid_host_rfc_9112_section_3_2() {
    for head in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost:\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a@b\r\n\r\n",
        "GET http://a HTTP/1.1\r\n\r\n",
        "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http:/// HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET http://a:1:2/ HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        assert_eq!(refused(head.as_bytes()), Status::BadRequest, "{head:?}");
    }
    assert_eq!(request(b"GET / HTTP/1.0\r\n\r\n").host(), None);
    let absolute = b"GET http://b:1/x HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(request(absolute).host(), Some(&b"b:1"[..]));
}

#[test]
fn keeping_the_connection_follows_rfc_9112_section_9_3() {
    for (version, lines, keep_alive) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Keep-Alive, CLOSE\r\n", false),
        ("1.1", "Connection: x\r\nConnection: close\r\n", false),
        ("1.1", "Connection: upgrade\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.1", "Expect: 100-continue\r\n", true),
        (
            "1.1",
            "Expect: 100-Continue\r\nContent-Length: 1\r\n",
            false,
        ),
        (
            "1.0",
            "Connection: keep-alive\r\nExpect: 100-continue\r\nContent-Length: 1\r\n",
            true,
        ),
    ] {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{lines}\r\n");
        let request = request(head.as_bytes());
        assert_eq!(request.keep_alive, keep_alive, "{head:?}");
    }
}

#[test]
fn methods_are_told_apart_by_case_rfc_9110_section_9_1() {
    for (method, target, status) in [
        ("GET", "/", None),
        ("HEAD", "/", None),
        ("OPTIONS", "/", None),
        ("OPTIONS", "*", None),
        ("GET", "*", Some(Status::BadRequest)),
        ("POST", "/", Some(Status::MethodNotAllowed)),
        ("TRACE", "/", Some(Status::MethodNotAllowed)),
        ("PROPFIND", "/", Some(Status::MethodNotAllowed)),
        ("CONNECT", "a:1", Some(Status::MethodNotAllowed)),
        ("CONNECT", "a", Some(Status::BadRequest)),
        ("CONNECT", "/", Some(Status::BadRequest)),
        ("get", "/", Some(Status::NotImplemented)),
        ("BREW", "/", Some(Status::NotImplemented)),
    ] {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refusal(&head), status, "{head:?}");
        assert_eq!(
            request(head.as_bytes()).method.as_bytes(),
            method.as_bytes()
        );
    }
    let tunnel = b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n";
    assert!(!request(tunnel).keep_alive);
}

#[test]
fn an_unknown_expectation_fails_rfc_9110_section_10_1_1() {
    for (value, status) in [
        ("100-continue", None),
        ("", None),
        ("200-ok", Some(Status::ExpectationFailed)),
        ("100-continue, x=y", Some(Status::ExpectationFailed)),
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nExpect: {value}\r\n\r\n");
        assert_eq!(refusal(&head), status, "{value}");
    }
}

#[test]
fn a_field_that_takes_one_value_counts_for_nothing_when_repeated() {
    let head = get("Range: bytes=0-\r\nRange: bytes=1-\r\nIf-Range: \"a\"\r\nIf-Range: \"a\"\r\n");
    let request = request(&head);
    assert_eq!(request.range(), None);
    assert_eq!(request.if_range(), Some(&b""[..]));
}

#[test]
fn bounds_hold_at_below_and_above() {
    type Make<'a> = &'a dyn Fn(usize) -> Vec<u8>;
    let head = |len: usize| {
        let empty = get("X: \r\n").len();
        get(&format!("X: {}\r\n", "x".repeat(len - empty)))
    };
    let line = |method: &str, target: &str| {
        format!("{method} /{target} HTTP/1.1\r\nHost: a\r\n\r\n").into_bytes()
    };
    let bounds: [(Make<'_>, usize, Status); 5] = [
        (&head, HEAD_BYTES_MAX, Status::HeaderFieldsTooLarge),
        (
            &|len| line("GET", &"x".repeat(len - 1)),
            TARGET_BYTES_MAX,
            Status::UriTooLong,
        ),
        (
            &|count| get(&"X: y\r\n".repeat(count - 1)),
            FIELDS_MAX,
            Status::HeaderFieldsTooLarge,
        ),
        (
            &|len| line(&"M".repeat(len), ""),
            METHOD_BYTES_MAX,
            Status::NotImplemented,
        ),
        (
            &|count| ["\r\n".repeat(count).into_bytes(), get("")].concat(),
            LEADING_EMPTY_LINES_MAX,
            Status::BadRequest,
        ),
    ];
    for (make, most, status) in bounds {
        for fits in [most - 1, most] {
            request(&make(fits)); // is read
        }
        assert_eq!(refused(&make(most + 1)), status);
    }
    // As soon as it is certain.
    let above = head(HEAD_BYTES_MAX + 1);
    let incomplete = parse(&above[..HEAD_BYTES_MAX - 1]);
    assert!(matches!(incomplete, Parsed::Incomplete));
    let cut = &above[..HEAD_BYTES_MAX];
    assert_eq!(refused(cut), Status::HeaderFieldsTooLarge);
    let target = line("GET", &"x".repeat(TARGET_BYTES_MAX));
    let cut = &target[..4 + TARGET_BYTES_MAX + 1];
    assert_eq!(refused(cut), Status::UriTooLong);
    assert_eq!(
        refused(&[b'M'; METHOD_BYTES_MAX + 1]),
        Status::NotImplemented
    );
}

/// Bytes that are often nearly a request.
fn nearly_a_request() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 15] = [
        b"GET / HTTP/1.1\r\n",
        b"HEAD http://a/b HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Range: bytes=0-1\r\n",
        b"Content-Length: 3\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"x:y\r\n",
        b"\r\n",
        b"\r",
        b"\n",
        b" ",
        b":",
        b"\0",
        b"\xff",
    ];
    let piece = prop::sample::select(&PIECES[..]);
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_verdict_stands_whatever_arrives_later(bytes in nearly_a_request(), cut in any::<prop::sample::Index>()) {
        let prefix = &bytes[..cut.index(bytes.len() + 1)];
        match (parse(prefix), parse(&bytes)) {
            (Parsed::Incomplete, _) => {}
            (Parsed::Reject(early), Parsed::Reject(late)) => prop_assert_eq!(early, late),
            (
                Parsed::Complete { head_len_bytes: early, .. },
                Parsed::Complete { head_len_bytes: late, .. },
            ) => prop_assert_eq!(early, late),
            (early, late) => prop_assert!(false, "{early:?} became {late:?}"),
        }
    }

    #[test]
    fn any_bytes_get_a_verdict(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Parsed::Complete { request, head_len_bytes } = parse(&bytes) {
            prop_assert!(head_len_bytes <= bytes.len());
            prop_assert!(request.fields().iter().count() <= FIELDS_MAX);
        }
    }

    #[test]
    fn fields_come_out_as_they_went_in(
        fields in proptest::collection::vec(("[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}", "([!-~]([ -~]{0,9}[!-~])?)?"), 0..20)
    ) {
        prop_assume!(!fields.iter().any(|(name, _)| {
            ["host", "content-length", "transfer-encoding"].contains(&name.to_lowercase().as_str())
        }));
        let lines: String = fields.iter().map(|(name, value)| format!("{name}: \t{value} \r\n")).collect();
        let head = get(&lines);
        let got = values(&request(&head));
        let want: Vec<_> = fields.iter().map(|(n, v)| (n.clone().into_bytes(), v.clone().into_bytes())).collect();
        prop_assert_eq!(&got[1..], want.as_slice());
    }
}
