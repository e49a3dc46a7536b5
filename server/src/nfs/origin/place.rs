//! How what an origin has is named: by paths, by targets, and in file handles.
//!
//! | a handle's body | bytes |
//! |---|---|
//! | form: 2 a path, 3 hints; 4 is added for a folder | 1 |
//! | a path of up to 39 bytes | all |
//! | or: a keyed hash of the path | 8 |
//! | how many names the path has; 0: too many for hints | 1 |
//! | for each name, the first bytes of its hash: 4, or as many as there is room for | up to 30 |
//!
//! So a handle with a short path means the same for ever. A longer one is found again by the hints, from listing to listing.

use ackpace_wire::http::target;
use ackpace_wire::limits::NFS_HANDLE_BODY_BYTES_MAX;
use ackpace_wire::nfs3::handle::Key;
use ackpace_wire::s3;

use crate::nfs::identity::parts;

const BY_PATH: u8 = 2;
const BY_HINTS: u8 = 3;
const FOLDER: u8 = 4;
const HASH_BYTES: usize = 8;
/// Bytes of all hints.
const HINTS_BYTES: usize = NFS_HANDLE_BODY_BYTES_MAX - 1 - HASH_BYTES - 1;
/// Bytes of a hint at most.
const HINT_BYTES: usize = 4;

/// What a handle says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said<'a> {
    /// The path itself.
    Path(&'a [u8]),
    /// The hash of the path, and hints at its names.
    Hints(u64, Hints<'a>),
}

/// Hints at the names of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hints<'a> {
    /// How many names it has; 0: unknown.
    pub depth: usize,
    bytes: &'a [u8],
}

impl Hints<'_> {
    /// Whether a name may be the one of this number.
    pub fn fits(&self, key: &Key, nth: usize, name: &[u8]) -> bool {
        let len = hint_bytes(self.depth);
        let hint = self.bytes.get(nth * len..(nth + 1) * len);
        len > 0 && hint == key.hash(name).to_be_bytes().get(..len)
    }
}

fn hint_bytes(depth: usize) -> usize {
    HINTS_BYTES.checked_div(depth).unwrap_or(0).min(HINT_BYTES)
}

/// Whether a handle has room for a path.
pub fn has_room(path: &[u8]) -> bool {
    path.len() < NFS_HANDLE_BODY_BYTES_MAX
}

/// The body of the handle of a path, which has no slash before or behind it.
pub fn body(key: &Key, path: &[u8], is_folder: bool) -> Vec<u8> {
    let folder = if is_folder { FOLDER } else { 0 };
    if has_room(path) {
        return [&[BY_PATH | folder], path].concat();
    }
    let depth = parts(path).count();
    let len = hint_bytes(depth);
    let told = if len > 0 { depth as u8 } else { 0 }; // at most 30
    let mut body = vec![BY_HINTS | folder];
    body.extend(key.hash(path).to_be_bytes());
    body.push(told);
    for name in parts(path) {
        body.extend_from_slice(&key.hash(name).to_be_bytes()[..len]);
    }
    body
}

/// What a body says, and whether it is a folder's; `None`: it is none of these.
pub fn read(body: &[u8]) -> Option<(Said<'_>, bool)> {
    let (form, rest) = body.split_first()?;
    let is_folder = form & FOLDER != 0;
    let said = match form & !FOLDER {
        BY_PATH => Said::Path(rest),
        BY_HINTS => {
            let (hash, rest) = rest.split_first_chunk::<HASH_BYTES>()?;
            let (depth, bytes) = rest.split_first()?;
            let depth = usize::from(*depth);
            Said::Hints(u64::from_be_bytes(*hash), Hints { depth, bytes })
        }
        _ => return None,
    };
    Some((said, is_folder))
}

/// What origins are asked for a path; of a folder with a slash at its end. Buckets have a spelling of their own.
pub fn target_of(path: &[u8], is_folder: bool, has_buckets: bool) -> Box<[u8]> {
    let mut target = Vec::with_capacity(path.len() + 2);
    for name in parts(path) {
        target.push(b'/');
        match has_buckets {
            true => s3::encode(name, &mut target),
            false => target::push_name(name, &mut target),
        }
    }
    if is_folder || target.is_empty() {
        target.push(b'/');
    }
    target.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([3; 16]);

    #[test]
    fn a_short_path_is_its_own_handle() {
        for (path, is_folder) in [(&b""[..], true), (b"a/b", false), (&[b'x'; 39], true)] {
            let body = body(&KEY, path, is_folder);
            assert!(body.len() <= NFS_HANDLE_BODY_BYTES_MAX);
            assert_eq!(read(&body), Some((Said::Path(path), is_folder)));
        }
        for other in [&b""[..], b"\x01x", b"\x03", b"\x03012345678"] {
            assert!(read(other).is_none_or(|(said, _)| matches!(said, Said::Hints(..))));
        }
        assert_eq!(read(b"\x08x"), None);
    }

    #[test]
    fn hints_fit_the_names_of_a_long_path() {
        for depth in [1usize, 7, 8, 30, 31, 300] {
            let names: Vec<String> = (0..depth)
                .map(|nth| format!("a-long-name-of-a-folder-that-makes-it-long-{nth}"))
                .collect();
            let path = names.join("/");
            let body = body(&KEY, path.as_bytes(), false);
            assert!(body.len() <= NFS_HANDLE_BODY_BYTES_MAX, "{depth}");
            let Some((Said::Hints(hash, hints), false)) = read(&body) else {
                panic!("{depth}");
            };
            assert_eq!(hash, KEY.hash(path.as_bytes()));
            assert_eq!(hints.depth, if depth <= 30 { depth } else { 0 });
            for (nth, name) in names.iter().enumerate() {
                assert_eq!(hints.fits(&KEY, nth, name.as_bytes()), depth <= 30);
            }
            assert!(!hints.fits(&KEY, depth, b"another"));
        }
    }

    #[test]
    fn a_target_is_what_clients_of_http_ask_for() {
        let of = |path: &[u8], is_folder, has_buckets| {
            String::from_utf8(target_of(path, is_folder, has_buckets).into()).expect("ASCII")
        };
        assert_eq!(of(b"", true, false), "/");
        assert_eq!(of(b"a b/c++?%", false, false), "/a%20b/c++%3F%25");
        assert_eq!(of(b"a/\xff", true, false), "/a/%FF/");
        assert_eq!(of(b"a b/c++", true, true), "/a%20b/c%2B%2B/");
        for path in [&b"a b/c++?%#\\\"<x>\xc3\xa4:@!$&'()*,;=~"[..], b"%2e%2e"] {
            let target = target_of(path, false, false);
            assert_eq!(target::onward(&target).expect("a target")[..], target[..]);
            let target = target_of(path, false, true);
            assert_eq!(s3::target(&target).expect("a target")[..], target[..]);
        }
    }
}
