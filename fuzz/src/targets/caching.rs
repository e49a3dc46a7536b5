//! Any bytes as the field lines of an origin's response and of a client's request: [`ackpace_wire::http::caching`].

use ackpace_wire::http::ask::pass;
use ackpace_wire::http::caching::{CacheControl, Freshness, NotStorable, Use, varies_for};
use ackpace_wire::http::fields::Field;
use ackpace_wire::http::{Asked, ParsedResponse, Response, parse_response};

use super::whole_request;

const NOW_UNIX_S: u64 = 1_000_000_000;

/// Laws: a response never becomes usable again by lying longer or by a stricter directive; words that forbid storing
/// are never overheard; a request that is passed on is one head.
pub fn caching(data: &[u8]) {
    let with = |more: &str| {
        let start = format!("HTTP/1.1 200 OK\r\n{more}");
        [start.as_bytes(), data, b"\r\n\r\n"].concat()
    };
    let head = with("");
    let Some(response) = whole_response(&head) else {
        return;
    };
    let ours = of(&response);
    check_uses(&ours);
    check_words(&response, &ours);
    for (line, check) in [
        (
            "no-store",
            (|it| it.not_storable.is_some()) as fn(&Freshness) -> bool,
        ),
        ("private", |it| it.not_storable.is_some()),
        ("no-cache", |it| it.use_after(0) == Use::Revalidate),
        ("must-revalidate", |it| {
            it.must_revalidate && it.stale_if_error_s == Some(0)
        }),
        ("s-maxage=0", |it| it.fresh_for_s == 0),
    ] {
        let stricter = with(&format!("Cache-Control: {line}\r\n"));
        if let Some(stricter) = whole_response(&stricter) {
            assert!(check(&of(&stricter)), "{line} is overheard");
        }
    }
    ask(data, &response);
}

fn whole_response(head: &[u8]) -> Option<Response<'_>> {
    match parse_response(head, Asked::Get) {
        ParsedResponse::Complete {
            response,
            head_len_bytes,
        } if head_len_bytes == head.len() => Some(response),
        _ => None,
    }
}

fn of(response: &Response<'_>) -> Freshness {
    Freshness::of(response, NOW_UNIX_S - 2, NOW_UNIX_S)
}

fn check_uses(ours: &Freshness) {
    let rank = |use_| match use_ {
        Use::Fresh => 0,
        Use::WhileRevalidating => 1,
        Use::Revalidate => 2,
    };
    let after = [0, 1, 60, 86_400, 1 << 31, u64::MAX];
    assert!(after.is_sorted_by_key(|&stored_s| rank(ours.use_after(stored_s))));
    let failing = |&stored_s: &u64| !ours.is_usable_on_error(stored_s, 60);
    assert!(after.is_sorted_by_key(failing));
    assert!(ours.age_s >= 2, "it took that long to come");
    let stale_s = [ours.stale_while_revalidate_s, ours.stale_if_error_s];
    assert!(!ours.must_revalidate || stale_s == [Some(0); 2]);
}

/// The words at the start of a line, or alone in it, are read whatever else is there.
fn check_words(response: &Response<'_>, ours: &Freshness) {
    let fields = response.fields();
    let mut lines = fields.values(Field::CacheControl);
    let says = |word: &[u8]| lines.clone().any(|line| line.eq_ignore_ascii_case(word));
    if says(b"no-store") || says(b"private") || fields.first(Field::SetCookie).is_some() {
        assert!(ours.not_storable.is_some());
    }
    if ours.not_storable == Some(NotStorable::NoStore) {
        let text = |line: &[u8]| line.to_ascii_lowercase();
        let has = |line: &[u8]| text(line).windows(8).any(|w| w == b"no-store");
        assert!(lines.any(has), "nobody said so");
    }
}

fn ask(lines: &[u8], response: &Response<'_>) {
    let head = [b"GET / HTTP/1.1\r\nHost: a\r\n", lines, b"\r\n\r\n"].concat();
    let Some(request) = whole_request(&head) else {
        return;
    };
    let vary = response.fields().values(Field::Vary);
    if varies_for(vary.clone(), &request) {
        assert!(vary.clone().any(|line| !line.is_empty()));
    }
    assert!(varies_for([&b"host, *"[..]].into_iter(), &request));
    let control = CacheControl::of(request.fields());
    assert_eq!(control, CacheControl::of(response.fields()));
    let mut out = Vec::new();
    if pass(&request, b"/a", b"origin", &[], "ackpace", &mut out).is_ok() {
        let passed = whole_request(&out).expect("one head");
        assert_eq!(passed.host(), Some(&b"origin"[..]));
        assert!(passed.keep_alive && !passed.expect_continue);
        let via = passed.fields().iter().last();
        assert_eq!(via, Some((&b"Via"[..], &b"1.1 ackpace"[..])));
    }
}
