use proptest::prelude::*;

use super::{
    CacheControl, DELTA_S_MAX, Freshness, HEURISTIC_S_MAX, NotStorable, Use, VARY_NAMES_MAX,
    is_for_all, varies_for,
};
use crate::http::date;
use crate::http::fields::Field;
use crate::http::testing::{config, get, request, response};

const NOW: u64 = 1_000_000_000;

fn control(line: &str) -> CacheControl {
    let head = format!("HTTP/1.1 200 OK\r\n{line}\r\n\r\n");
    CacheControl::of(response(head.as_bytes()).fields())
}

/// What a 200 with these lines says that was asked for and received at once.
fn of(lines: &str) -> Freshness {
    let head = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
    Freshness::of(&response(head.as_bytes()), NOW, NOW)
}

fn date(name: &str, unix_s: u64) -> String {
    let mut line = format!("{name}: ").into_bytes();
    date::write(unix_s, &mut line);
    String::from_utf8(line).expect("a date is ASCII") + "\r\n"
}

#[test]
fn what_may_be_for_one_client_is_not_for_all() {
    let for_all = |status: u16, line: &str| {
        let head = format!("HTTP/1.1 {status} \r\n{line}\r\n");
        is_for_all(&response(head.as_bytes()))
    };
    for status in [200, 301, 404, 410, 500, 503] {
        assert!(for_all(status, ""), "{status}");
        assert!(
            for_all(status, "Vary: Accept-Encoding, host\r\n"),
            "{status}"
        );
        for line in [
            "Set-Cookie: a=b\r\n",
            "Cache-Control: private\r\n",
            "Cache-Control: no-store\r\n",
            "Vary: Cookie\r\n",
            "Vary: *\r\n",
        ] {
            assert!(!for_all(status, line), "{status} {line}");
        }
    }
    for status in [206, 302, 304, 401, 403] {
        assert!(!for_all(status, ""), "{status}");
    }
}

#[test]
fn directives_are_read_in_any_case_and_form() {
    let none = CacheControl::default();
    let aged = |max_age_s| CacheControl {
        max_age_s: Some(max_age_s),
        ..none
    };
    let unstored = CacheControl {
        no_store: true,
        ..none
    };
    for (line, want) in [
        ("Cache-Control:", none),
        ("Cache-Control: public, immutable, x=y", none),
        ("Cache-Control: x=\"no-store, \\\", private\"", none),
        ("Cache-Control: max-age=7", aged(7)),
        ("cache-control: ,,MAX-AGE=\"7\" ,", aged(7)),
        ("Cache-Control: max-age=9,max-age=7, max-age=8", aged(7)),
        (
            "Cache-Control: max-age=9\r\nCache-Control: max-age=7",
            aged(7),
        ),
        (
            "Cache-Control: max-age=99999999999999999999999",
            aged(DELTA_S_MAX),
        ),
        ("Cache-Control: max-age", aged(0)),
        ("Cache-Control: max-age=", aged(0)),
        ("Cache-Control: max-age=-1", aged(0)),
        ("Cache-Control: max-age=1.5", aged(0)),
        ("Cache-Control: max-age = 5", aged(0)),
        ("Cache-Control: No-Store", unstored),
        ("Cache-Control: no-store=\"a\"", unstored),
        ("Cache-Control: =, ;, no-store", unstored),
        ("Cache-Control: x=\"y, no-store", unstored),
        ("Cache-Control: no-store; x", unstored),
    ] {
        assert_eq!(control(line), want, "{line}");
    }
    assert_eq!(
        control(
            "Cache-Control: no-cache=\"a, b\", private, proxy-revalidate, only-if-cached, s-maxage=1, stale-while-revalidate=2, stale-if-error=3"
        ),
        CacheControl {
            no_cache: true,
            private: true,
            must_revalidate: true,
            only_if_cached: true,
            s_maxage_s: Some(1),
            stale_while_revalidate_s: Some(2),
            stale_if_error_s: Some(3),
            ..none
        }
    );
}

#[test]
fn a_request_is_read_by_the_same_rules() {
    let head = get("Cache-Control: max-age=0, Only-If-Cached\r\n");
    let control = CacheControl::of(request(&head).fields());
    assert!(control.only_if_cached && control.max_age_s == Some(0));
}

#[test]
fn the_lifetime_follows_the_order_of_rfc_9111_section_4_2_1() {
    let dated = |more: &str| of(&(date("Date", NOW) + more)).fresh_for_s;
    let expires = date("Expires", NOW + 30);
    let modified = date("Last-Modified", NOW - 1000);
    for (lines, want) in [
        (
            format!("Cache-Control: max-age=20, s-maxage=10\r\n{expires}"),
            10,
        ),
        (format!("Cache-Control: max-age=20\r\n{expires}"), 20),
        (format!("{expires}{modified}"), 30),
        (modified.clone(), 100),
        (
            date("Last-Modified", NOW - 100 * HEURISTIC_S_MAX),
            HEURISTIC_S_MAX,
        ),
        (date("Last-Modified", NOW + 5), 0),
        (format!("Expires: 0\r\n{modified}"), 0),
        (format!("{expires}{expires}{modified}"), 0),
        (date("Expires", NOW - 1), 0),
        (date("Expires", u64::MAX), DELTA_S_MAX),
        ("Cache-Control: public\r\n".to_owned(), 0),
        (
            format!("Cache-Control: no-cache, max-age=9\r\n{modified}"),
            0,
        ),
    ] {
        assert_eq!(dated(&lines), want, "{lines}");
    }
    // Without its Date a response was made when it was received.
    assert_eq!(of(&expires).fresh_for_s, 30);
    let other_formats =
        "Date: Sunday, 06-Nov-94 08:49:37 GMT\r\nExpires: Sun Nov  6 08:50:37 1994\r\n";
    assert_eq!(of(other_formats).fresh_for_s, 60);
}

#[test]
fn the_age_follows_rfc_9111_section_4_2_3() {
    let age = |lines: &str, delay_s| {
        let head = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        Freshness::of(&response(head.as_bytes()), NOW - delay_s, NOW).age_s
    };
    let dated = |ago_s| date("Date", NOW - ago_s);
    assert_eq!(age("", 0), 0);
    assert_eq!(age("", 3), 3);
    assert_eq!(age(&dated(50), 3), 50);
    assert_eq!(age(&(dated(50) + "Age: 60\r\n"), 3), 63);
    assert_eq!(age("Age: 5, 70\r\nAge: 80\r\n", 0), 5);
    assert_eq!(age("Age: x\r\n", 0), 0);
    assert_eq!(age("Age: 99999999999\r\n", 0), DELTA_S_MAX);
    assert_eq!(age(&date("Date", NOW + 50), 0), 0);
}

#[test]
fn what_may_not_be_shared_is_not_storable() {
    for (lines, want) in [
        ("", None),
        ("Vary: Accept-Encoding, Origin\r\n", None),
        ("Cache-Control: no-cache, max-age=0\r\n", None),
        ("Cache-Control: no-store\r\n", Some(NotStorable::NoStore)),
        (
            "Cache-Control: private=\"x\"\r\n",
            Some(NotStorable::Private),
        ),
        (
            "Set-Cookie:\r\nCache-Control: public\r\n",
            Some(NotStorable::SetCookie),
        ),
        ("Vary: a\r\nVary: b, *\r\n", Some(NotStorable::Vary)),
    ] {
        assert_eq!(of(lines).not_storable, want, "{lines}");
    }
    let names = |count| of(&format!("Vary: {}\r\n", "a,".repeat(count))).not_storable;
    assert_eq!(names(VARY_NAMES_MAX), None);
    assert_eq!(names(VARY_NAMES_MAX + 1), Some(NotStorable::Vary));
    for (status, storable) in [
        (200, true),
        (206, true),
        (304, true),
        (302, false),
        (500, false),
    ] {
        let head = format!("HTTP/1.1 {status} x\r\nCache-Control: max-age=9\r\n\r\n");
        let freshness = Freshness::of(&response(head.as_bytes()), NOW, NOW);
        assert_eq!(freshness.not_storable.is_none(), storable, "{status}");
    }
}

#[test]
fn stale_use_needs_leave_and_must_revalidate_takes_it() {
    let uses = |line: &str| {
        let freshness = of(&format!("Age: 1\r\nCache-Control: {line}\r\n"));
        let at = |stored_s| match freshness.use_after(stored_s) {
            Use::Fresh => 'f',
            Use::WhileRevalidating => 'w',
            Use::Revalidate => 'r',
        };
        let errors = |stored_s| freshness.is_usable_on_error(stored_s, 2);
        let text = (0..7).map(at).collect::<String>();
        (text, (0..7).filter(|&stored_s| errors(stored_s)).count())
    };
    for (line, text, usable) in [
        ("max-age=3", "ffrrrrr", 4),
        ("max-age=3, stale-while-revalidate=2", "ffwwrrr", 4),
        ("max-age=3, stale-if-error=4", "ffrrrrr", 6),
        ("max-age=3, stale-if-error=0", "ffrrrrr", 2),
        (
            "max-age=3, stale-while-revalidate=2, must-revalidate",
            "ffrrrrr",
            2,
        ),
        ("s-maxage=3", "ffrrrrr", 2),
        ("s-maxage=3, stale-while-revalidate=2", "ffwwrrr", 4),
        ("no-cache, max-age=3, stale-if-error=9", "rrrrrrr", 0),
        ("max-age=1", "rrrrrrr", 2),
    ] {
        assert_eq!(uses(line), (text.to_owned(), usable), "{line}");
    }
}

#[test]
fn a_304_starts_the_age_anew_and_replaces_what_it_speaks_of() {
    let stored = of("Age: 50\r\nCache-Control: max-age=60\r\n");
    let renewed = |lines: &str| {
        let head = format!("HTTP/1.1 304 x\r\n{lines}\r\n");
        stored.renewed(&response(head.as_bytes()), NOW, NOW)
    };
    let silent = renewed("ETag: \"1\"\r\nAge: 2\r\n");
    assert_eq!((silent.fresh_for_s, silent.age_s), (60, 2));
    assert_eq!(renewed("Cache-Control: max-age=9\r\n").fresh_for_s, 9);
    assert!(renewed("Set-Cookie: a\r\n").not_storable.is_some());
}

#[test]
fn a_response_varies_for_a_client_that_sends_a_named_field() {
    let varies = |vary: &str, lines: &str| {
        let head = format!("HTTP/1.1 200 OK\r\nVary: {vary}\r\n\r\n");
        let response = response(head.as_bytes());
        let asked = get(lines);
        varies_for(response.fields().values(Field::Vary), &request(&asked))
    };
    let browser = "Accept-Encoding: br\r\nORIGIN: x\r\n";
    for (vary, varies_at_all) in [
        ("", false),
        ("accept-encoding, Host", false),
        ("Accept", false),
        ("accept, origin", true),
        ("*", true),
    ] {
        assert_eq!(varies(vary, browser), varies_at_all, "{vary}");
    }
    assert!(!varies(&"a,".repeat(VARY_NAMES_MAX), browser));
    assert!(varies(&"a,".repeat(VARY_NAMES_MAX + 1), browser));
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn another_directive_never_makes_a_response_more_usable(
        line in "((max-age|s-maxage|stale-if-error|x)=[0-9]{1,3}, ){0,3}",
        more in "(no-store|no-cache|private|must-revalidate|max-age=[0-9]{1,3}, max-age=0)",
        stored_s in 0u64..1000,
    ) {
        let few = of(&format!("Cache-Control: {line}\r\n"));
        let many = of(&format!("Cache-Control: {line}{more}\r\n"));
        prop_assert!(few.not_storable.is_none() || many.not_storable.is_some());
        prop_assert!(many.use_after(stored_s) != Use::Fresh || few.use_after(stored_s) == Use::Fresh);
        prop_assert!(!many.is_usable_on_error(stored_s, 5) || few.is_usable_on_error(stored_s, 5));
    }
}
