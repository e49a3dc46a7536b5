//! Redirects of an origin to itself, which keep their client at the gateway.

use std::borrow::Cow;

/// The address of an origin, below which all lies that a gateway has of it.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// By TLS.
    pub tls: bool,
    /// Its host, with its port if that is not the usual one.
    pub authority: &'a str,
    /// Empty, or a path that begins with a slash and does not end with one.
    pub base: &'a str,
}

/// The value of Location for a client of the gateway: a place below the origin's address becomes a path of the gateway.
/// `None`: it is elsewhere.
pub fn location<'a>(value: &'a [u8], home: &Home<'_>) -> Option<Cow<'a, [u8]>> {
    let path = after(own_path(value, home)?, home.base.as_bytes())?;
    Some(match path {
        // Two slashes would begin a host (RFC 3986 section 4.2). Browsers take a backslash for one, and drop control bytes.
        [b'/', b'/' | b'\\' | 0..=0x1f | 0x7f, ..] => [b"/.", path].concat().into(),
        [b'/', ..] => Cow::Borrowed(path),
        path => [b"/", path].concat().into(),
    })
}

/// The path of a reference to the origin's host, with what is behind it.
fn own_path<'a>(value: &'a [u8], home: &Home<'_>) -> Option<&'a [u8]> {
    let (scheme, port) = match home.tls {
        true => (&b"https:"[..], &b":443"[..]),
        false => (&b"http:"[..], &b":80"[..]),
    };
    let rest = without(value, scheme).unwrap_or(value);
    match without(rest, b"//") {
        Some(rest) => {
            let rest = without(rest, home.authority.as_bytes())?;
            after(rest, b"").or_else(|| after(without(rest, port)?, b""))
        }
        None => value.starts_with(b"/").then_some(value),
    }
}

/// What is behind a path; `None` if it goes on in the same segment.
fn after<'a>(path: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base)?;
    matches!(rest.first(), None | Some(b'/' | b'?' | b'#')).then_some(rest)
}

/// The value behind its start, in any case.
fn without<'a>(value: &'a [u8], start: &[u8]) -> Option<&'a [u8]> {
    let (begins, rest) = value.split_at_checked(start.len())?;
    begins.eq_ignore_ascii_case(start).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn of(value: &str, (tls, authority, base): (bool, &str, &str)) -> String {
        let home = Home {
            tls,
            authority,
            base,
        };
        let local = location(value.as_bytes(), &home);
        let local = local.map_or(value.as_bytes().to_vec(), Cow::into_owned);
        String::from_utf8(local).expect("text")
    }

    #[test]
    fn a_place_of_the_origin_is_one_of_the_gateway() {
        let home = (false, "a.example", "/pub");
        for (value, want) in [
            ("http://a.example/pub/x?y#z", "/x?y#z"),
            ("HTTP://A.Example:80/pub/", "/"),
            ("//a.example/pub?y", "/?y"),
            ("http://a.example/pub", "/"),
            ("/pub/x", "/x"),
            ("/pub//b.example/x", "/.//b.example/x"),
            ("/pub/\\b.example/", "/./\\b.example/"),
            ("/pub/\t/b.example/", "/./\t/b.example/"),
        ] {
            assert_eq!(of(value, home), want, "{value}");
        }
        assert_eq!(of("https://a:444/x", (true, "a:444", "")), "/x");
        assert_eq!(of("https://a:443", (true, "a", "")), "/");
        assert_eq!(of("http://a//b/x", (false, "a", "")), "/.//b/x");
    }

    #[test]
    fn any_other_place_is_as_it_was() {
        let home = (false, "a.example", "/pub");
        for value in [
            "https://a.example/pub/x",
            "http://a.example.evil/pub/x",
            "http://a.example@b/pub/x",
            "http://a.example:8080/pub/x",
            "http://a.example/public",
            "http://a.example/other",
            "//b.example/pub",
            "/other",
            "x",
            "../x",
            "",
            "http:",
            "mailto:a@a.example",
        ] {
            assert_eq!(of(value, home), value);
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn nobody_is_sent_to_another_host(path in "[/a?#:@.\\\\\t]{0,12}") {
            let sent = of(&format!("http://a{path}"), (false, "a", ""));
            // As browsers read it.
            let sent = sent.replace('\t', "").replace('\\', "/");
            prop_assert!(sent.starts_with("http://a") || sent.starts_with('/') && !sent.starts_with("//"), "{}", sent);
        }
    }
}
