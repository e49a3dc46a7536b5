//! Plain requests: the response depends only on their target and on whether the connection stays open.

use std::borrow::Cow;

use ackpace_core::conn::Plan as CorePlan;
use ackpace_core::limits::CACHED_PATH_BYTES_MAX;
use ackpace_wire::http::target;
use ackpace_wire::http::{Parsed, Request, parse};

use super::planning::{context, core_plan, planned, query_of};
use super::site::{Served, Site, SiteAnswer};
use crate::response_cache::Key;
use crate::store::files::SiteId;
use crate::store::root::Wait;

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

    /// The cache key of the request at the start of `bytes`, which was sent to this site.
    pub fn key(self, bytes: &[u8], site: SiteId) -> Option<Key<'_>> {
        let start = usize::from(self.start);
        let path = bytes.get(start..start + usize::from(self.len))?;
        Some(Key {
            site,
            path: match self.normal {
                true => path.into(),
                false => target::resolve(path).ok()?.path,
            },
            keep_alive: self.keep_alive,
        })
    }
}

/// The file that a request for `key` would get now, and the plan of the response; `None` if there is no such file, the
/// look-up would wait, or the key is of another site.
pub fn answer_again(key: &Key<'_>, site: &Site) -> Option<(Served, CorePlan)> {
    if key.site != site.files.site() {
        return None;
    }
    let head = head(key);
    let Parsed::Complete { request, .. } = parse(&head) else {
        return None;
    };
    let target = target::resolve(request.target).ok()?;
    let query = query_of(&request, &target, site);
    let answer = site.find(&query, Wait::No)?;
    let plan = planned(
        &request,
        &answer,
        query.format,
        &context(false, false),
        site,
    );
    let SiteAnswer::File(served) = answer else {
        return None;
    };
    let plan = core_plan(plan, Some(&served));
    Some((served, plan))
}

/// A request for `key`; any will do, since the response depends on nothing else.
fn head(key: &Key<'_>) -> Vec<u8> {
    let connection = match key.keep_alive {
        true => "",
        false => "Connection: close\r\n",
    };
    let mut head = b"GET ".to_vec();
    target::encode_path(&key.path, &mut head);
    head.extend(format!(" HTTP/1.1\r\nHost: localhost\r\n{connection}\r\n").into_bytes());
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::files::Files;

    fn place(head: &[u8]) -> Option<KeyPlace> {
        match parse(head) {
            Parsed::Complete { request, .. } => KeyPlace::of(head, &request),
            _ => panic!("not a head"),
        }
    }

    fn key(head: &str) -> Option<Key<'_>> {
        place(head.as_bytes())?.key(head.as_bytes(), site())
    }

    /// The first of any process.
    fn site() -> SiteId {
        Files::default().site()
    }

    fn kept(keep_alive: bool) -> Option<Key<'static>> {
        let path = (&b"/a b"[..]).into();
        Some(Key {
            site: site(),
            path,
            keep_alive,
        })
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

    #[test]
    fn the_request_for_a_key_asks_for_that_key() {
        for keep_alive in [true, false] {
            for path in [&b"/a b"[..], b"/", b"/a/", b"/%41", b"/\xff?#\r\n"] {
                let path = path.into();
                let key = Key {
                    site: site(),
                    path,
                    keep_alive,
                };
                let head = head(&key);
                let again = place(&head).and_then(|place| place.key(&head, site()));
                assert_eq!(again, Some(key));
            }
        }
    }
}
