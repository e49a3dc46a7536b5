//! What an object store with the interface of Amazon S3 says, and how it wants to be asked. The server signs (rusty-s3).

mod page;

pub use self::page::{Item, Page};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use crate::http::target::authority;
use crate::http::{Reject, Status};

/// All but the unreserved characters and the slash: the one spelling of a path that is signed.
const KEY: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Bytes of the code in an error. Longer: it is none.
const CODE_BYTES_MAX: usize = 64;

/// Appends a key, or a part of one, as it stands in a path.
pub fn encode(key: &[u8], out: &mut Vec<u8>) {
    for piece in percent_encode(key, KEY) {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// The key, or part of one, of an encoded path.
pub fn decode(path: &[u8]) -> Vec<u8> {
    percent_decode(path).collect()
}

/// The target of a key, in its one spelling: a slash and the key, encoded. `raw` is a request's target that
/// [`resolve`](crate::http::target::resolve) accepts. Unlike a path of files it is not normalised: `//` in it is two slashes of the key.
/// Its query is dropped.
///
/// # Errors
/// 404 for a path with a segment `.` or `..`: a key may have one, but it would not arrive (RFC 3986 section 5.2.4).
pub fn target(raw: &[u8]) -> Result<Vec<u8>, Reject> {
    let path = match authority(raw) {
        Some(authority) => {
            let scheme = raw.iter().position(|&byte| byte == b':').unwrap_or(0);
            raw.get(scheme + 3 + authority.len()..).unwrap_or_default()
        }
        None => raw,
    };
    let end = path.iter().position(|byte| b"?#".contains(byte));
    let path = decode(&path[..end.unwrap_or(path.len())]);
    let key = path.strip_prefix(b"/").unwrap_or(&path);
    if has_dots(key) {
        return Err(Reject {
            status: Status::NotFound,
            why: "A key with a segment . or .. can't be asked for by a path.",
        });
    }
    let mut target = vec![b'/'];
    encode(key, &mut target);
    Ok(target)
}

/// Whether a path has a segment that URLs resolve.
pub fn has_dots(path: &[u8]) -> bool {
    let mut segments = path.split(|&byte| byte == b'/');
    segments.any(|segment| matches!(segment, b"." | b".."))
}

/// The code of an error, such as `NoSuchKey`; `None`: the body has none.
pub fn error_code(body: &[u8]) -> Option<&str> {
    let (open, close) = (&b"<Code>"[..], b'<');
    let at = body.windows(open.len()).position(|window| window == open)?;
    let code = &body[at + open.len()..];
    let len = code
        .iter()
        .take(CODE_BYTES_MAX)
        .position(|&byte| byte == close)?;
    let code = std::str::from_utf8(&code[..len]).ok()?;
    let is_word = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then_some(code)
}

/// Whether an answer says that there is no such key: also 403 where the store does not say more to those who may not list (S3
/// does so to whoever has no right to list the bucket).
pub fn is_missing(status: u16, code: Option<&str>) -> bool {
    match status {
        404 | 410 => code != Some("NoSuchBucket"),
        403 => matches!(code, None | Some("AccessDenied")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::config;
    use proptest::prelude::*;

    fn of(raw: &str) -> Option<String> {
        let target = target(raw.as_bytes()).ok()?;
        Some(String::from_utf8(target).expect("ASCII"))
    }

    #[test]
    fn a_key_arrives_as_it_is() {
        for (raw, want) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a%20b+c%2Bd%25?x#y", "/a%20b%2Bc%2Bd%25"),
            ("//a//b/", "//a//b/"),
            ("/%2Fa%3f%c3%a4", "//a%3F%C3%A4"),
            ("http://a.example//x?y", "//x"),
            ("http://a.example", "/"),
            ("/~a.b-c_d!$:@", "/~a.b-c_d%21%24%3A%40"),
        ] {
            assert_eq!(of(raw).as_deref(), Some(want), "{raw}");
        }
        for raw in ["/a/../b", "/a/%2e%2E", "/./a", "//.", "/a%2f..%2Fb"] {
            assert_eq!(of(raw), None, "{raw}");
        }
    }

    #[test]
    fn errors_have_a_code_or_none() {
        let body =
            b"<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>x</Message></Error>";
        assert_eq!(error_code(body), Some("NoSuchKey"));
        for body in [
            &b""[..],
            b"<Code>",
            b"<Code></Code>",
            b"<Code>a b</Code>",
            b"<Code>a",
        ] {
            assert_eq!(error_code(body), None);
        }
        assert!(is_missing(404, Some("NoSuchKey")) && is_missing(403, None));
        assert!(
            !is_missing(403, Some("SignatureDoesNotMatch"))
                && !is_missing(404, Some("NoSuchBucket"))
        );
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn what_is_encoded_is_what_is_decoded(key in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut path = vec![b'/'];
            encode(&key, &mut path);
            prop_assert!(path.is_ascii());
            prop_assert_eq!(&decode(&path)[1..], &key[..]);
            match target(&path) {
                Ok(same) => prop_assert_eq!(same, path),
                Err(_) => prop_assert!(has_dots(&key)),
            }
        }

        #[test]
        fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = (target(&bytes), error_code(&bytes));
        }
    }
}
