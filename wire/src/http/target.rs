//! The request target: turns what the client sent into a path that cannot leave the root.

mod onward;

use std::borrow::Cow;

pub use self::onward::{onward, push_name};
use super::status::Reject;

/// The form in which a target was sent (RFC 9112 section 3.2). Only CONNECT uses authority-form, and it never
/// gets this far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `/path?query`
    Origin,
    /// `http://host/path?query`
    Absolute,
    /// `*`: the server as a whole, for OPTIONS
    Asterisk,
}

/// A resolved target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The form in which it was sent.
    pub form: Form,
    /// The decoded path: begins with `/`, has no empty segment and none that is `.` or `..`, and
    /// no NUL. It ends with `/` if and only if a directory was asked for. Any other byte may occur.
    /// Borrowed when decoding changed nothing.
    pub path: Cow<'a, [u8]>,
    /// The text after the first `?`, as it was sent.
    pub query: Option<&'a [u8]>,
}

/// Resolves a target that [`super::parse`] accepted.
///
/// Percent-encoding is decoded *before* the path is split at slashes, so `%2e%2e` is `..` and `%2f` is a slash,
/// as in nginx: only one spelling of a path reaches the file system. A fragment, which does not belong in a
/// target, is cut off as nginx does.
///
/// # Errors
/// 400 for a bad escape, an encoded NUL, a path that climbs above the root, a scheme other than http(s), and
/// any text that is not a target of GET, HEAD or OPTIONS.
pub fn resolve(raw: &[u8]) -> Result<Target<'_>, Reject> {
    if is_plain(raw) {
        return Ok(Target {
            form: Form::Origin,
            path: Cow::Borrowed(raw),
            query: None,
        });
    }
    let Unresolved { form, path, query } = split(raw)?;
    Ok(Target {
        form,
        path: normal_path(path)?,
        query,
    })
}

/// A target, as it was sent. Its path is never empty.
struct Unresolved<'a> {
    form: Form,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

fn split(raw: &[u8]) -> Result<Unresolved<'_>, Reject> {
    if raw.contains(&0) {
        return Err(NUL);
    }
    let (form, rest) = if raw == b"*" {
        (Form::Asterisk, &b"/"[..])
    } else if raw.first() == Some(&b'/') {
        (Form::Origin, raw)
    } else if let Some(rest) = after_scheme(raw) {
        (Form::Absolute, &rest[authority_len(rest)..])
    } else {
        return Err(Reject::bad(
            "The target is neither a path nor an http address.",
        ));
    };
    let rest = before(rest, b'#');
    let path = before(rest, b'?');
    let query = rest.get(path.len() + 1..);
    // `http://host` and `http://host?query` mean the root (RFC 9112 section 3.2.1)
    let path = if path.is_empty() { b"/" } else { path };
    Ok(Unresolved { form, path, query })
}

/// Whether the target is its own path: nothing in it is to be decoded, cut off or resolved. Most are; one look at each byte
/// tells.
fn is_plain(raw: &[u8]) -> bool {
    let Some(path) = raw.strip_prefix(b"/") else {
        return false;
    };
    let mut begins_segment = true;
    path.iter().all(|byte| {
        let began_segment = begins_segment;
        begins_segment = *byte == b'/';
        match byte {
            0 | b'#' | b'?' | b'%' => false,
            b'/' | b'.' => !began_segment, // it may be an empty one, `.` or `..`
            _ => true,
        }
    })
}

/// The authority of an absolute target, unchecked.
pub(crate) fn authority(raw: &[u8]) -> Option<&[u8]> {
    let rest = after_scheme(raw)?;
    Some(&rest[..authority_len(rest)])
}

/// Appends `path` so that it denotes exactly these bytes in a URI. It escapes everything but unreserved bytes
/// (RFC 3986 section 2.3), `/` and a few sub-delimiters that no client misreads.
pub fn encode_path(path: &[u8], out: &mut Vec<u8>) {
    push_escaped(path, PATH_ESCAPES, out);
}

/// Appends a query or a segment as it was sent, and escapes the bytes that a field value or a URI cannot hold.
pub fn encode_query(query: &[u8], out: &mut Vec<u8>) {
    push_escaped(query, QUERY_ESCAPES, out);
}

/// A reference from `raw`, a target that names a folder without a slash at its end, to that folder: its last segment as the
/// client spelled it, a slash, and its query. It is relative to the target, so it is right below any prefix that a proxy
/// takes off, and it never leads to another host (RFC 9110 section 10.2.2, RFC 3986 section 4.2).
pub fn folder_reference(raw: &[u8]) -> Vec<u8> {
    let rest = before(raw, b'#');
    let path = before(rest, b'?');
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let mut reference = relative(name);
    encode_query(name, &mut reference);
    reference.push(b'/');
    encode_query(&rest[path.len()..], &mut reference);
    reference
}

/// A reference from the target `/` to the file of this decoded name.
pub fn file_reference(name: &[u8]) -> Vec<u8> {
    let mut reference = relative(name);
    encode_path(name, &mut reference);
    reference
}

/// The beginning of a relative reference to `name`: what stands before a colon would be a scheme.
fn relative(name: &[u8]) -> Vec<u8> {
    let begins = if name.contains(&b':') {
        &b"./"[..]
    } else {
        b""
    };
    begins.to_vec()
}

/// The bytes that `encode_path` escapes. `:` and `@` stay: `//` cannot occur in a normal path, and a path is written with
/// its leading slash or after `./`.
const PATH_ESCAPES: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'+')
    .remove(b',')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

const QUERY_ESCAPES: &percent_encoding::AsciiSet = &percent_encoding::CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

fn push_escaped(bytes: &[u8], set: &'static percent_encoding::AsciiSet, out: &mut Vec<u8>) {
    for piece in percent_encoding::percent_encode(bytes, set) {
        out.extend_from_slice(piece.as_bytes());
    }
}

fn after_scheme(raw: &[u8]) -> Option<&[u8]> {
    let colon = raw.iter().take(6).position(|&byte| byte == b':')?;
    let scheme = &raw[..colon];
    if !scheme.eq_ignore_ascii_case(b"http") && !scheme.eq_ignore_ascii_case(b"https") {
        return None;
    }
    raw[colon + 1..].strip_prefix(b"//")
}

fn authority_len(rest: &[u8]) -> usize {
    rest.iter()
        .position(|byte| b"/?#".contains(byte))
        .unwrap_or(rest.len())
}

fn before(text: &[u8], end: u8) -> &[u8] {
    let end = text.iter().position(|&byte| byte == end);
    &text[..end.unwrap_or(text.len())]
}

/// The normalised path. Most paths arrive normal; those are borrowed, not copied.
fn normal_path(path: &[u8]) -> Result<Cow<'_, [u8]>, Reject> {
    if is_normal(path) {
        return Ok(Cow::Borrowed(path));
    }
    let path = decode(path)?;
    if is_normal_decoded(&path) {
        return Ok(Cow::Owned(path));
    }
    resolve_segments(&path).map(Cow::Owned)
}

fn is_normal(path: &[u8]) -> bool {
    !path.contains(&b'%') && is_normal_decoded(path)
}

/// True if `path` starts with `/` and has no empty, `.` or `..` segment. It may end in one `/`.
fn is_normal_decoded(path: &[u8]) -> bool {
    let Some(inner) = path.strip_prefix(b"/") else {
        return false;
    };
    let inner = inner.strip_suffix(b"/").unwrap_or(inner);
    path == b"/"
        || inner
            .split(|&byte| byte == b'/')
            .all(|segment| !matches!(segment, b"" | b"." | b".."))
}

fn decode(path: &[u8]) -> Result<Vec<u8>, Reject> {
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let [high, low, after @ ..] = tail else {
            return Err(BAD_ESCAPE);
        };
        let byte = (hex(*high)? << 4) | hex(*low)?;
        if byte == 0 {
            return Err(NUL);
        }
        decoded.push(byte);
        rest = after;
    }
    Ok(decoded)
}

const ABOVE: Reject = Reject::bad("The path climbs above the root.");

const NUL: Reject = Reject::bad("The path contains a NUL.");

const BAD_ESCAPE: Reject =
    Reject::bad("A percent sign in the path is not followed by two hex digits.");

fn hex(digit: u8) -> Result<u8, Reject> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(BAD_ESCAPE),
    }
}

/// RFC 3986 section 5.2.4, except that `//` counts as one slash and a path above the root is refused.
fn resolve_segments(path: &[u8]) -> Result<Vec<u8>, Reject> {
    let mut out = Vec::with_capacity(path.len() + 1);
    let mut directory = true;
    for segment in path.split(|&byte| byte == b'/') {
        directory = true;
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = out.iter().rposition(|&byte| byte == b'/');
                let parent = parent.ok_or(ABOVE)?;
                out.truncate(parent);
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(segment);
                directory = false;
            }
        }
    }
    if directory {
        out.push(b'/');
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::{Form, encode_path, encode_query, file_reference, folder_reference, resolve};
    use crate::http::testing::config;
    use proptest::prelude::*;
    use std::borrow::Cow;

    fn path(raw: &str) -> String {
        match resolve(raw.as_bytes()) {
            Ok(target) => String::from_utf8_lossy(&target.path).into_owned(),
            Err(reject) => panic!("{raw}: {reject:?}"),
        }
    }

    #[test]
    fn ordinary_paths_are_taken_as_they_are_without_a_copy() {
        for raw in [
            "/",
            "/a",
            "/a/b.txt",
            "/a/",
            "/.well-known/x",
            "/a..b/...",
            "/a;b=c/d+e:f@g",
        ] {
            let target = resolve(raw.as_bytes()).expect(raw);
            assert_eq!(target.path, raw.as_bytes());
            assert!(matches!(target.path, Cow::Borrowed(_)), "{raw}");
        }
    }

    #[test]
    fn dot_segments_and_double_slashes_are_removed_after_decoding() {
        for (raw, want) in [
            ("/foo/bar/.", "/foo/bar/"),
            ("/foo/bar/..", "/foo/"),
            ("/foo/./bar", "/foo/bar"),
            ("/foo//../bar", "/bar"),
            ("//", "/"),
            ("//host/path", "/host/path"),
            ("/a/..", "/"),
            ("/a/b/../../", "/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a%2fb", "/a/b"),
            ("/a%2F%2fb%2F", "/a/b/"),
            ("/%61%20b", "/a b"),
            ("/a%0a", "/a\n"),
            ("/%C3%A4", "/\u{e4}"),
            ("/%255c", "/%5c"),
            ("/a+b", "/a+b"),
        ] {
            assert_eq!(path(raw), want, "{raw}");
        }
    }

    #[test]
    fn nothing_climbs_above_the_root() {
        for raw in [
            "/..",
            "/../",
            "/../etc/passwd",
            "/a/../../b",
            "/%2e%2e/x",
            "/.%2e",
            "/a/..//..",
            "/..%2f..%2fetc",
            "http://h/..",
            "//..",
            "/./..",
        ] {
            assert!(resolve(raw.as_bytes()).is_err(), "{raw}");
        }
    }

    #[test]
    fn bad_escapes_and_nul_are_refused() {
        for raw in [
            "/%", "/%1", "/a%zz", "/%0g", "/a%00b", "/%%30", "/\0", "/a?\0",
        ] {
            assert!(resolve(raw.as_bytes()).is_err(), "{raw}");
        }
    }

    #[test]
    fn the_query_is_kept_raw_and_a_fragment_is_cut() {
        for (raw, want_path, want_query) in [
            ("/a?", "/a", Some("")),
            ("/a?b=%zz&c=../..", "/a", Some("b=%zz&c=../..")),
            ("/a?b?c", "/a", Some("b?c")),
            ("/a?b#c", "/a", Some("b")),
            ("/a#b?c", "/a", None),
            ("/foo/bar/.?args", "/foo/bar/", Some("args")),
            ("/foo/bar/..#frag", "/foo/", None),
            ("/a%3fb", "/a?b", None),
            ("/a%23b", "/a#b", None),
        ] {
            let target = resolve(raw.as_bytes()).expect(raw);
            assert_eq!(target.path, want_path.as_bytes(), "{raw}");
            assert_eq!(target.query, want_query.map(str::as_bytes), "{raw}");
        }
    }

    #[test]
    fn every_form_of_rfc_9112_section_3_2_is_told_apart() {
        for (raw, form, want) in [
            ("/a", Form::Origin, "/a"),
            ("http://localhost", Form::Absolute, "/"),
            ("http://localhost:8080?args#frag", Form::Absolute, "/"),
            ("HTTP://localhost/a/../b", Form::Absolute, "/b"),
            ("https://[::1]/x?y", Form::Absolute, "/x"),
            ("*", Form::Asterisk, "/"),
        ] {
            let target = resolve(raw.as_bytes()).expect(raw);
            assert_eq!((target.form, path(raw).as_str()), (form, want), "{raw}");
        }
        for raw in [
            "",
            "a",
            "localhost:80",
            "ftp://h/",
            "http:/h",
            "http:h",
            "file:///etc",
            "**",
            "?a",
            "#",
            "httpx://h/",
        ] {
            assert!(resolve(raw.as_bytes()).is_err(), "{raw}");
        }
    }

    #[test]
    fn what_is_encoded_has_no_byte_that_ends_a_path() {
        let mut out = Vec::new();
        encode_path(b"/a b?c#d%e\r\n\"<\\\xff", &mut out);
        assert_eq!(out, b"/a%20b%3Fc%23d%25e%0D%0A%22%3C%5C%FF");
        out.clear();
        encode_query(b"a=%20&b=\"<\xff", &mut out);
        assert_eq!(out, b"a=%20&b=%22%3C%FF");
    }

    #[test]
    fn a_reference_to_a_folder_is_relative_and_keeps_the_spelling() {
        for (raw, want) in [
            (&b"/dir"[..], "dir/"),
            (b"/a/dir?a=b", "dir/?a=b"),
            (b"/dir%20sp?", "dir%20sp/?"),
            (b"/a/x:y", "./x:y/"),
            (b"/a%2fdir", "a%2fdir/"),
            (b"//evil.example", "evil.example/"),
            (b"/\\evil", "%5Cevil/"),
            (b"/javascript:x", "./javascript:x/"),
            (b"http://h/a/dir?x#y", "dir/?x"),
            (b"/\xff?x=\"\xff", "%FF/?x=%22%FF"),
        ] {
            let got = folder_reference(raw);
            assert_eq!(String::from_utf8_lossy(&got), want, "{raw:?}");
        }
        assert_eq!(file_reference(b"one file.iso"), b"one%20file.iso");
        assert_eq!(file_reference(b"a:b%?"), b"./a:b%25%3F");
    }

    /// RFC 3986 section 5.3, for a reference that begins with neither a slash nor a scheme.
    fn followed(raw: &[u8], reference: &[u8]) -> Vec<u8> {
        let path = super::before(raw, b'?');
        let slash = path.iter().rposition(|&byte| byte == b'/').expect("a path");
        [&path[..=slash], reference].concat()
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn a_reference_leads_from_a_folder_without_its_slash_to_the_folder(raw in "/[a:.%2e/f5c?\"]{0,30}") {
            let Ok(target) = resolve(raw.as_bytes()) else { return Ok(()) };
            if target.path.ends_with(b"/") {
                return Ok(());
            }
            let reference = folder_reference(raw.as_bytes());
            prop_assert!(reference[0] != b'/' && reference.iter().all(u8::is_ascii_graphic));
            let scheme = reference.iter().position(|&byte| byte == b':');
            prop_assert!(scheme.is_none_or(|at| reference[..at].contains(&b'/') || reference[..at].contains(&b'?')));
            let next = followed(raw.as_bytes(), &reference);
            let want = [&target.path, &b"/"[..]].concat();
            prop_assert_eq!(resolve(&next).map(|target| target.path.into_owned()), Ok(want));
        }

        #[test]
        fn a_resolved_path_is_safe_whatever_was_sent(raw in "/[a.%2e/f5c?#]{0,40}") {
            if let Ok(target) = resolve(raw.as_bytes()) {
                let path = target.path;
                prop_assert_eq!(path[0], b'/');
                prop_assert!(!path.windows(2).any(|pair| pair == b"//"));
                prop_assert!(path.split(|&b| b == b'/').all(|s| s != b"." && s != b".."));
                prop_assert!(!path.contains(&0));
            }
        }

        #[test]
        fn encoding_a_resolved_path_leads_back_to_it(
            segments in proptest::collection::vec(proptest::collection::vec(1u8.., 1..9), 0..6)
        ) {
            let mut path = Vec::new();
            for segment in &segments {
                let segment: Vec<u8> = segment.iter().map(|&b| if b == b'/' { b'x' } else { b }).collect();
                if segment != b"." && segment != b".." {
                    path.push(b'/');
                    path.extend(segment);
                }
            }
            path.push(b'/');
            let mut raw = Vec::new();
            encode_path(&path, &mut raw);
            prop_assert!(raw.is_ascii());
            prop_assert_eq!(resolve(&raw).map(|target| target.path.into_owned()), Ok(path));
        }
    }
}
