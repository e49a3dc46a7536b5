//! What a path means: a file, one of its precompressed siblings, a directory's index, a listing.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use ackpace_core::conn::Version;
use ackpace_core::upstream::Fault;
use ackpace_wire::content_type::{self, Overrides};
use ackpace_wire::http::Times;
use ackpace_wire::http::negotiation::{Coding, choose_coding};
use ackpace_wire::listing::Format;
use rustix::fs::Stat;

use super::charge::Room;
use super::listing::{Around, Listing};
use super::shelf::Shelf;
use crate::cluster::Peers;
use crate::gateway::{Found as FoundObject, Gateway, How, Through};
use crate::source::Source;
use crate::store::attributes::version;
use crate::store::closing::Descriptor;
use crate::store::device::Devices;
use crate::store::file::File;
use crate::store::files::Files;
use crate::store::root::{Found, Miss, Root, Wait};
use crate::unit::Unit;

/// Directories above an uncached name that are looked up in the kernel's caches: a search will wait for the device of
/// the first one found. More: it counts as that of the root.
const SEARCH_UP_MAX: usize = 8;

/// Everything that is served under one root, and how.
pub struct Site {
    pub root: Root,
    pub files: Files,
    pub devices: Arc<Devices>,
    pub types: Overrides,
    /// Names of index files, which are sent for their directory.
    pub index: Vec<String>,
    /// Whether directories without an index file are listed.
    pub listing: bool,
    /// Precompressed siblings that are looked for, by coding.
    pub siblings: Vec<Coding>,
    /// The memory of the listings under way.
    pub shelf: Shelf,
    /// The memory of responses with many ranges.
    pub ranges: Room,
    /// The origins that are served in place of a directory.
    pub gateway: Option<Arc<Gateway>>,
    /// The other nodes of the cluster, which have the same files.
    pub peers: Option<Peers>,
    /// The unit on which files of NFS lie.
    pub unit: Option<Arc<Unit>>,
}

/// The parts of a request that decide what it finds.
#[derive(Clone, Debug)]
pub struct Query {
    /// Decoded, begins with `/`.
    pub path: Box<[u8]>,
    /// The Accept-Encoding fields, if siblings are looked for.
    pub accept_encoding: Box<[Box<[u8]>]>,
    pub format: Format,
    /// Whether a listing would be sent in chunks; `None`: only its head is asked for.
    pub chunked: Option<bool>,
}

pub enum SiteAnswer {
    File(Served),
    /// An object of an origin.
    Object(FoundObject),
    /// A short response of an origin that is no object, as it is.
    Relayed {
        status: u16,
        fields: Box<[u8]>,
        body: Arc<[u8]>,
    },
    /// A response of an origin that passes through.
    Through(Through),
    /// No origin answers.
    NoAnswer(Fault),
    /// Only what is cached was asked for, and this is not.
    NotCached,
    /// A directory: the client is to ask again with a slash at the end.
    Slash,
    /// The one file that is served has this name.
    Elsewhere(Vec<u8>),
    /// A directory to be listed; `None` if only the head was asked for.
    Listing(Option<Box<Listing>>),
    NotFound,
    /// Nothing, since the root is not there.
    Gone,
    /// A link that is not followed, or a hidden name: both are answered 404. The reason is for the log.
    Astray(&'static str),
    /// It is there, but may not be served; the reason is for the log.
    Forbidden(&'static str),
    /// No descriptors or memory are left for it now.
    Exhausted,
    /// Too many requests wait for look-ups.
    Crowded,
    /// Another program has a lease on the file, and has not given it up yet.
    Leased,
    /// The file system failed; the reason is for the log.
    Failed(String),
}

impl SiteAnswer {
    /// What Cache-Status says of a response after the name of the cache; `None`: it is not sent.
    pub fn cache_status(&self) -> Option<&'static str> {
        match self {
            SiteAnswer::Object(found) => Some(match (found.how, found.collapsed) {
                (How::Missed, true) => "fwd=uri-miss; collapsed",
                (How::Changed, true) => "fwd=stale; collapsed",
                (How::Revalidated, true) => "fwd=stale; fwd-status=304; collapsed",
                (how, _) => how.status(),
            }),
            SiteAnswer::Relayed { .. } => Some("fwd=uri-miss"),
            SiteAnswer::Through(_) => Some("fwd=bypass"),
            _ => None,
        }
    }
}

/// A file and the form in which it is sent.
pub struct Served {
    pub file: Arc<File>,
    /// The path by which it was found, relative to the root. `file` has the one by which it was opened first, which may be another
    /// one (hard links).
    pub path: Box<[u8]>,
    pub version: Version,
    pub times: Times,
    /// The name that decides its content type: without the suffix of a sibling.
    pub name: Box<[u8]>,
    pub coding: Option<Coding>,
    /// A client with another Accept-Encoding would get another file.
    pub vary: bool,
}

impl Site {
    /// The device that a search for this path will wait for: that of the deepest directory above it that is in the
    /// kernel's caches. Never waits.
    pub fn device_of_search(&self, path: &[u8]) -> u16 {
        let near = self.near(path);
        near.map_or(0, |place| self.devices.index(place.file_system()))
    }

    /// Makes the device of a search known, which may wait.
    pub fn meet(&self, path: &[u8]) {
        if let Some(place) = self.near(path) {
            self.devices.of(&*place, place.file_system());
        }
    }

    /// The deepest directory above the path that is in the kernel's caches.
    fn near(&self, path: &[u8]) -> Option<Descriptor> {
        let path = path.strip_prefix(b"/").unwrap_or(path);
        let slashes = path.iter().enumerate().rev();
        let slashes = slashes.filter(|(_, byte)| **byte == b'/');
        let above = slashes.map(|(at, _)| &path[..=at]).take(SEARCH_UP_MAX);
        let mut above = above.chain([&b""[..]]);
        above.find_map(|above| self.root.cached_directory(above))
    }

    /// Finds what `query` asks for; `None` if that would wait longer than it may.
    pub fn find(&self, query: &Query, wait: Wait) -> Option<SiteAnswer> {
        match self.resolve(query, wait) {
            Ok(answer) => Some(answer),
            Err(Miss::Cold) => None,
            Err(Miss::NotFound) => Some(SiteAnswer::NotFound),
            Err(Miss::Hidden) => Some(SiteAnswer::Astray(
                "its name, or that of what it leads to, is hidden",
            )),
            Err(Miss::Astray(why)) => Some(SiteAnswer::Astray(why)),
            Err(Miss::Forbidden(why)) => Some(SiteAnswer::Forbidden(why)),
            Err(Miss::Exhausted) => Some(SiteAnswer::Exhausted),
            Err(Miss::Leased) => Some(SiteAnswer::Leased),
            Err(Miss::Failed(error)) => Some(SiteAnswer::Failed(error.to_string())),
        }
    }

    fn resolve(&self, query: &Query, wait: Wait) -> Result<SiteAnswer, Miss> {
        let path = query.path.strip_prefix(b"/").unwrap_or(&query.path);
        if let Some(only) = self.root.only().filter(|_| path.is_empty()) {
            return Ok(SiteAnswer::Elsewhere(only.to_vec()));
        }
        match self.root.find(path, wait)? {
            Found::File(fd, stat) => self.file(path, fd, &stat, query, wait),
            Found::Directory(_) if !path.is_empty() && !path.ends_with(b"/") => {
                Ok(SiteAnswer::Slash)
            }
            Found::Directory(place) => self.directory(path, &place, query, wait),
        }
    }

    /// The file, or the sibling that the client prefers.
    fn file(
        &self,
        path: &[u8],
        fd: Descriptor,
        stat: &Stat,
        query: &Query,
        wait: Wait,
    ) -> Result<SiteAnswer, Miss> {
        // A coding on top of one would need both in Content-Encoding.
        let is_coded = content_type::coding(path, content_type::of(path, &self.types)).is_some();
        let siblings = if is_coded { &[][..] } else { &self.siblings };
        let mut there = Vec::new();
        for &coding in siblings {
            match self.root.find(&sibling(path, coding), wait) {
                Ok(Found::File(fd, stat)) => there.push((coding, fd, stat)),
                Err(miss @ (Miss::Cold | Miss::Exhausted)) => return Err(miss),
                Ok(Found::Directory(_)) | Err(_) => {}
            }
        }
        let offered: Vec<Coding> = there.iter().map(|(coding, ..)| *coding).collect();
        let accept_encoding = query.accept_encoding.iter().map(|field| &**field);
        let chosen = choose_coding(accept_encoding, &offered);
        let served = |fd: Descriptor, stat: &Stat, path: &[u8], coding: Option<Coding>| {
            let file = match wait {
                Wait::No => self.files.try_intern(fd, stat, path, &self.devices),
                Wait::Yes | Wait::Long => Some(self.files.intern(fd, stat, path, &self.devices)),
            };
            let file = file.ok_or(Miss::Cold)?;
            Ok(SiteAnswer::File(Served {
                path: path.into(),
                file,
                version: version(stat),
                times: Times {
                    modified_unix_s: stat.st_mtime,
                    modified_ns: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
                    changed_unix_s: stat.st_ctime,
                    changed_ns: u32::try_from(stat.st_ctime_nsec).unwrap_or(0),
                    inode: stat.st_ino,
                },
                name: name_of(&query.path, path, coding),
                coding,
                vary: !offered.is_empty(),
            }))
        };
        for (coding, fd, stat) in there {
            if Some(coding) == chosen {
                let path = sibling(path, coding);
                return served(fd, &stat, &path, chosen);
            }
        }
        served(fd, stat, path, None)
    }

    fn directory(
        &self,
        path: &[u8],
        place: &OwnedFd,
        query: &Query,
        wait: Wait,
    ) -> Result<SiteAnswer, Miss> {
        for name in &self.index {
            let path = [path, name.as_bytes()].concat();
            match self.root.find(&path, wait) {
                Ok(Found::File(fd, stat)) => return self.file(&path, fd, &stat, query, wait),
                Ok(Found::Directory(_)) | Err(Miss::NotFound | Miss::Hidden) => {}
                Err(miss) => return Err(miss),
            }
        }
        if !self.listing {
            return Err(Miss::Forbidden(
                "it is a directory without an index, and listing is off",
            ));
        }
        match (query.chunked, wait) {
            (None, _) => Ok(SiteAnswer::Listing(None)),
            (Some(_), Wait::No) => Err(Miss::Cold),
            (Some(chunked), _) => {
                let form = (query.format, chunked);
                let listing = Listing::open(self.around(), place, path, form, wait)?;
                Ok(SiteAnswer::Listing(Some(Box::new(listing))))
            }
        }
    }

    /// For messages: a source as the operator knows it.
    pub fn shown_source(&self, source: &Source) -> String {
        match (source, &self.gateway) {
            (Source::File(file), _) => self.shown(&file.path),
            (Source::Blocks(blocks), _) => self.shown(&blocks.file.path),
            (Source::Object(object), Some(gateway)) => gateway.shown(&object.target),
            (Source::Object(object), None) => object.target.escape_ascii().to_string(),
        }
    }

    pub fn around(&self) -> Around<'_> {
        Around {
            root: &self.root,
            shelf: &self.shelf,
        }
    }

    /// For messages: a path below the root as the operator knows it.
    pub fn shown(&self, path: &[u8]) -> String {
        if let Some(gateway) = &self.gateway {
            return gateway.shown(&[b"/", path].concat());
        }
        use std::os::unix::ffi::OsStrExt;
        self.root
            .path()
            .join(Path::new(std::ffi::OsStr::from_bytes(path)))
            .display()
            .to_string()
    }
}

/// The path of the sibling in this coding: `page.html.gz`.
fn sibling(path: &[u8], coding: Coding) -> Vec<u8> {
    [path, b".", coding.suffix().as_bytes()].concat()
}

/// The last segment of a path, without the suffix of a sibling. An index file has its own name, not
/// its directory's.
fn name_of(asked: &[u8], path: &[u8], coding: Option<Coding>) -> Box<[u8]> {
    let suffix_len = coding.map_or(0, |coding| 1 + coding.suffix().len());
    let path = if asked.ends_with(b"/") || coding.is_some() {
        &path[..path.len() - suffix_len]
    } else {
        asked
    };
    path.rsplit(|&byte| byte == b'/')
        .next()
        .unwrap_or(path)
        .into()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use ackpace_wire::hide::Hide;

    use super::*;
    use crate::options::FollowSymlinks;

    /// A site below `root`, whose file system is known.
    pub fn site(root: &Path) -> Site {
        let devices = Arc::<Devices>::default();
        let dir = Descriptor::of(fs::File::open(root).expect("a root").into()).expect("open");
        devices.of(&*dir, dir.file_system());
        Site {
            root: Root::open(root, FollowSymlinks::Inside, &[], Hide::default())
                .expect("a root")
                .with(Arc::clone(&devices)),
            files: Files::default(),
            devices,
            types: Overrides::default(),
            index: Vec::new(),
            listing: false,
            siblings: Vec::new(),
            shelf: Shelf::new(1 << 20, None),
            ranges: Room::default(),
            gateway: None,
            peers: None,
            unit: None,
        }
    }

    #[test]
    fn one_file_by_two_paths_is_one() {
        let dir = std::env::temp_dir().join(format!("ackpace-site-{}", std::process::id()));
        fs::create_dir_all(dir.join("inner")).expect("a directory");
        fs::write(dir.join("inner/a"), "a").expect("a file");
        fs::hard_link(dir.join("inner/a"), dir.join("a")).expect("a link");
        let site = site(&dir);
        let find = |path: &[u8]| {
            let query = Query {
                path: path.into(),
                accept_encoding: [].into(),
                format: Format::Html,
                chunked: None,
            };
            match site.find(&query, Wait::Yes) {
                Some(SiteAnswer::File(served)) => served,
                _ => panic!("it was just written"),
            }
        };
        let (first, other) = (find(b"/inner/a"), find(b"/a"));
        assert!(Arc::ptr_eq(&first.file, &other.file));
        assert_eq!((&*first.path, &*other.path), (&b"inner/a"[..], &b"a"[..]));
        fs::remove_dir_all(&dir).expect("our own directory");
    }
}
