//! The target of a request as a gateway's origin gets it.

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use super::{ABOVE, Unresolved, decode, encode_query, split};
use crate::http::status::Reject;

const HIDDEN: Reject = Reject::bad("The path has a segment of dots beside an encoded slash.");

/// The target of a request for an origin: path and query as the client wrote them, so `%2F` stays what it is, and `//` too. Segments
/// `.` and `..`, also as `%2e`, are resolved (RFC 3986 section 5.2.4), and bytes that may not stand in a target are encoded.
///
/// # Errors
/// As for [`resolve`](super::resolve), and 400 for dots beside an encoded slash: an origin that decodes it would resolve them.
pub fn onward(raw: &[u8]) -> Result<Vec<u8>, Reject> {
    let Unresolved { path, query, .. } = split(raw)?;
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut ends_in_dots = false;
    for segment in path.strip_prefix(b"/").unwrap_or(path).split(is_slash) {
        let decoded = decode(segment)?;
        ends_in_dots = is_dots(&decoded);
        match &decoded[..] {
            b"." => {}
            b".." => _ = segments.pop().ok_or(ABOVE)?,
            decoded if decoded.split(is_slash).any(is_dots) => return Err(HIDDEN),
            _ => segments.push(segment),
        }
    }
    if ends_in_dots {
        segments.push(b""); // a folder
    }
    let mut out = Vec::with_capacity(raw.len());
    for segment in segments {
        out.push(b'/');
        encode_query(segment, &mut out);
    }
    if let Some(query) = query {
        out.push(b'?');
        encode_query(query, &mut out);
    }
    Ok(out)
}

/// All that may not stand in a segment of a path (RFC 3986 section 3.3), and the escape itself.
const NAME: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'[')
    .add(b'\\')
    .add(b']')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Appends a name as one segment of a target, in the spelling that people type.
pub fn push_name(name: &[u8], out: &mut Vec<u8>) {
    for piece in percent_encode(name, NAME) {
        out.extend_from_slice(piece.as_bytes());
    }
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::onward;
    use crate::http::target::resolve;
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn of(raw: &str) -> Option<String> {
        let target = onward(raw.as_bytes()).ok()?;
        Some(String::from_utf8(target).expect("ASCII"))
    }

    #[test]
    fn a_target_stays_as_it_was_written() {
        for raw in [
            "/",
            "/a/b?c=%2F&d=../..",
            "/@babel%2Fcore",
            "/a//b/",
            "//a",
            "/%7Ea+b;c:d(e)'*",
            "/a%252Fb",
            "/a?",
            "/a...%2f.b",
        ] {
            assert_eq!(of(raw).as_deref(), Some(raw));
        }
    }

    #[test]
    fn what_may_not_stand_there_is_encoded_cut_or_resolved() {
        for (raw, want) in [
            ("/\u{e9} \"<\\?\u{e9}<", "/%C3%A9%20%22%3C%5C?%C3%A9%3C"),
            ("/a#b?c", "/a"),
            ("http://h", "/"),
            ("http://h?a", "/?a"),
            ("https://h/a%2Fb", "/a%2Fb"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E", "/"),
            ("/a/b/..", "/a/"),
            ("/a//../b", "/a/b"),
            ("/%2e", "/"),
        ] {
            assert_eq!(of(raw).as_deref(), Some(want), "{raw}");
        }
    }

    #[test]
    fn nothing_climbs_above_the_root_and_no_dots_hide_behind_an_encoded_slash() {
        for raw in [
            "/..",
            "/a/../..",
            "/%2e%2e/x",
            "/..%2fx",
            "/a%2f..%2F..%2fx",
            "/a%2F.",
            "/%zz",
            "/a%00",
            "/a?\0",
        ] {
            assert_eq!(of(raw), None, "{raw}");
        }
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn what_an_origin_gets_is_safe_and_the_same_twice(raw in "/[a.%2eF/5c\\\\?#]{0,40}") {
            let Ok(target) = onward(raw.as_bytes()) else { return Ok(()) };
            prop_assert!(target[0] == b'/' && target.iter().all(u8::is_ascii_graphic));
            let again = onward(&target);
            prop_assert_eq!(again.as_deref(), Ok(&target[..]));
            // However often an origin decodes and merges slashes, it stays below the path.
            let resolved = resolve(&target).expect("it is a target");
            let slashes = |path: &[u8]| path.iter().filter(|&&byte| byte == b'/').count();
            let path = target.split(|&byte| byte == b'?').next().expect("a path");
            let encoded = path.windows(3).filter(|three| three.eq_ignore_ascii_case(b"%2f")).count();
            prop_assert!(slashes(&resolved.path) <= slashes(path) + encoded);
        }
    }
}
