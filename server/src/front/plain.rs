//! Plain requests: the response depends only on their target and on whether the connection stays open.

use std::borrow::Cow;

use ackpace_core::limits::CACHED_PATH_BYTES_MAX;
use ackpace_wire::http::Request;
use ackpace_wire::http::target;

use crate::response_cache::Key;

/// The position of a plain request's path in its head.
#[derive(Clone, Copy, Debug)]
pub struct KeyPlace {
    start: u16,
    len: u16,
    /// The path is normal as it stands; most are.
    normal: bool,
    keep_alive: bool,
}

impl KeyPlace {
    /// The position, if `request`, which was read from `bytes`, is plain and its path short enough to be cached.
    pub fn of(bytes: &[u8], request: &Request<'_>) -> Option<KeyPlace> {
        let target = request.target;
        let path = target.len() <= CACHED_PATH_BYTES_MAX && target.starts_with(b"/");
        if !(path && !target.contains(&b'?') && request.is_plain()) {
            return None;
        }
        let start = target.as_ptr().addr() - bytes.as_ptr().addr();
        let (len, normal) = match target::resolve(target).ok()?.path {
            Cow::Borrowed(path) => (path.len(), true),
            Cow::Owned(_) => (target.len(), false),
        };
        Some(KeyPlace {
            start: start.try_into().ok()?,
            len: len.try_into().ok()?,
            normal,
            keep_alive: request.keep_alive,
        })
    }

    /// Whether the connection stays open after the response.
    pub fn keep_alive(self) -> bool {
        self.keep_alive
    }

    /// The cache key of the request at the start of `bytes`.
    pub fn key(self, bytes: &[u8]) -> Option<Key<'_>> {
        let start = usize::from(self.start);
        let path = bytes.get(start..start + usize::from(self.len))?;
        Some(Key {
            path: match self.normal {
                true => path.into(),
                false => target::resolve(path).ok()?.path,
            },
            keep_alive: self.keep_alive,
        })
    }
}

#[cfg(test)]
mod tests {
    use ackpace_wire::http::{Parsed, parse};

    use super::*;

    fn place(head: &[u8]) -> Option<KeyPlace> {
        match parse(head) {
            Parsed::Complete { request, .. } => KeyPlace::of(head, &request),
            _ => panic!("not a head"),
        }
    }

    fn key(head: &str) -> Option<Key<'_>> {
        place(head.as_bytes())?.key(head.as_bytes())
    }

    fn kept(keep_alive: bool) -> Option<Key<'static>> {
        let path = (&b"/a b"[..]).into();
        Some(Key { path, keep_alive })
    }

    #[test]
    fn a_request_is_plain_or_it_is_not() {
        assert_eq!(key("GET /a%20b HTTP/1.1\r\nHost: x\r\n\r\n"), kept(true));
        for closing in [
            "GET /a%20b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            "GET /a%20b HTTP/1.0\r\n\r\n",
        ] {
            assert_eq!(key(closing), kept(false), "{closing}");
        }
        let long = "x".repeat(CACHED_PATH_BYTES_MAX);
        for other in [
            "GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET http://x/a HTTP/1.1\r\nHost: x\r\n\r\n",
            "HEAD /a HTTP/1.1\r\nHost: x\r\n\r\n",
            "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: x\r\nRange: bytes=0-\r\n\r\n",
            "GET /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n",
            "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n",
            &format!("GET /{long} HTTP/1.1\r\nHost: x\r\n\r\n"),
        ] {
            assert_eq!(key(other), None, "{other}");
        }
    }

    #[test]
    fn all_spellings_of_a_path_have_one_key() {
        for spelling in [
            "/a%20b",
            "//a%20b",
            "/./a%20b",
            "/x/../%61%20%62",
            "/a%20b#c",
        ] {
            let head = format!("GET {spelling} HTTP/1.1\r\nHost: x\r\n\r\n");
            assert_eq!(key(&head), kept(true), "{spelling}");
        }
        let head = "GET /a%20b/ HTTP/1.1\r\nHost: x\r\n\r\n";
        assert_ne!(key(head), kept(true), "this asks for a directory");
    }
}
