//! A directory's page, made slice by slice. Names are read and sorted in large pieces ([`super::names`]); sizes, times
//! and text are made when their slice is due. So the client's pace decides, and a client that pauses holds no more than
//! a position in the directory.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use ackpace_core::limits::SLICE_BYTES;
use ackpace_wire::http::plan::{LAST_CHUNK, push_chunk};
use ackpace_wire::limits::README_BYTES_MAX;
use ackpace_wire::listing::{Entry, EntryKind, Format, Readme, entry, foot, head, readme_rank};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use super::charge::Charge;
use super::names::{Cursor, Name, Names};
use super::shelf::Shelf;
use crate::limits::SHORT_LISTING_NAMES_MAX;
use crate::sched::Breath;
use crate::store::attributes::known;
use crate::store::closing::Descriptor;
use crate::store::root::{Found, Miss, Root, Wait};

#[derive(Clone, Copy)]
pub struct Around<'a> {
    /// The root, which decides where links lead and what is hidden.
    pub root: &'a Root,
    pub shelf: &'a Shelf,
}

pub struct Listing {
    dir: Descriptor,
    /// Relative to the root, empty or ending with a slash.
    path: Vec<u8>,
    format: Format,
    chunked: bool,
    /// The names that come next, if there was memory to hold them.
    names: Option<Names>,
    /// The last entry that was taken from them.
    cursor: Option<Cursor>,
    begun: bool,
    written: u64,
    readme: Option<Vec<u8>>,
    ended: bool,
    /// The part of the foot that did not fit into the slice (a long README), and the charge for its memory.
    over: Vec<u8>,
    over_room: Option<Charge>,
    /// The first such name of the slice that is being made.
    unknown: Option<Unknown>,
}

/// The next part of a listing, framed as its response needs it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice {
    /// The bytes to send; empty at most in the last slice of a listing that is not chunked.
    pub bytes: Vec<u8>,
    pub last: bool,
    /// The first of its names that has neither size nor date because the file system failed.
    pub unknown: Option<Unknown>,
}

/// A name of which the file system does not tell what it is.
#[derive(Debug, PartialEq, Eq)]
pub struct Unknown {
    pub path: Vec<u8>,
    pub why: Miss,
}

impl fmt::Display for Unknown {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: ", String::from_utf8_lossy(&self.path))?;
        match self.why {
            Miss::Failed(error) => error.fmt(to),
            Miss::Forbidden(why) => to.write_str(why),
            _ => to.write_str("no descriptors or memory left"),
        }
    }
}

impl Listing {
    /// The directory, below the root, with a slash at its end.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Reads and sorts the first names of the directory: directories first, then bytewise. Hidden names are left out,
    /// and so are links to them. The listing has this format, and is chunked or not.
    /// Errors: See [`Miss`]; [`Miss::Cold`] for a long directory that may not be read with this `wait`.
    pub fn open(
        around: Around<'_>,
        place: &OwnedFd,
        path: &[u8],
        (format, chunked): (Format, bool),
        wait: Wait,
    ) -> Result<Listing, Miss> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let owner = known(place).map_err(miss)?.stx_uid;
        let dir = around.root.door().open_quietly(owner, |quiet| {
            openat(place, ".", flags | quiet, Mode::empty())
        });
        let dir = dir.map_err(miss)?;
        let dir = Descriptor::of(dir).map_err(miss)?;
        if wait != Wait::Long && is_long(&dir).map_err(miss)? {
            return Err(Miss::Cold);
        }
        let mut readme: Option<(u8, Vec<u8>)> = None;
        let names = read(around, &dir, path, None, |name| {
            let rank = readme_rank(name)
                .filter(|rank| readme.as_ref().is_none_or(|(best, _)| rank < best));
            if let Some(rank) = rank {
                readme = Some((rank, name.to_vec()));
            }
        });
        Ok(Listing {
            names: names.map_err(miss)?.kept(),
            dir,
            path: path.to_vec(),
            format,
            chunked,
            cursor: None,
            begun: false,
            written: 0,
            readme: readme.map(|(_, name)| name),
            ended: false,
            over: Vec::new(),
            over_room: None,
            unknown: None,
        })
    }

    /// The next slice of about [`SLICE_BYTES`]; `None` if the directory has to be read again for it, which takes long,
    /// and `may_read` is false.
    pub fn slice(&mut self, around: Around<'_>, may_read: bool) -> io::Result<Option<Slice>> {
        let mut text = Vec::with_capacity(SLICE_BYTES + SLICE_BYTES / 4);
        if !self.ended && !self.names_go_on(around, may_read, &mut text)? {
            return Ok(None);
        }
        self.go_on(&mut text);
        let last = self.ended && self.over.is_empty();
        let mut bytes = text;
        if self.chunked {
            let text = std::mem::take(&mut bytes);
            bytes.reserve(text.len() + 32);
            push_chunk(&text, &mut bytes);
            if last {
                bytes.extend_from_slice(LAST_CHUNK);
            }
        }
        let unknown = self.unknown.take();
        Ok(Some(Slice {
            bytes,
            last,
            unknown,
        }))
    }

    /// Writes the next entries, and after the last one the foot; `false`: the directory has to be read again.
    fn names_go_on(
        &mut self,
        around: Around<'_>,
        may_read: bool,
        text: &mut Vec<u8>,
    ) -> io::Result<bool> {
        let mut names = match self.names.take() {
            Some(names) => names,
            None if may_read => self.read_on(around)?,
            None => return Ok(false),
        };
        if !std::mem::replace(&mut self.begun, true) {
            head(self.format, &[b"/", &self.path[..]].concat(), text);
        }
        self.entries(around, &mut names, text)?;
        while text.is_empty() && names.more() {
            // All of them are gone.
            if !may_read {
                return Ok(false);
            }
            names = self.read_on(around)?;
            self.entries(around, &mut names, text)?;
        }
        self.ended = names.is_used_up() && !names.more();
        if self.ended {
            self.foot(around, text);
        } else if !names.is_used_up() {
            self.names = names.kept();
        }
        Ok(true)
    }

    /// Makes the end of the page. What does not fit into the slice takes memory of all listings; if there is none, the
    /// README is left out.
    fn foot(&mut self, around: Around<'_>, text: &mut Vec<u8>) {
        let reading = around.shelf.reading();
        let readme = reading.as_ref().and_then(|_| self.readme_text(around));
        if let Some((name, readme)) = readme {
            let readme = Readme {
                name: &name,
                text: &readme,
            };
            foot(self.format, Some(readme), self.written, &mut self.over);
            self.over_room = around.shelf.claim(self.over.capacity());
            let waits = self.over_room.is_some();
            if waits || text.len() + self.over.len() <= SLICE_BYTES {
                return;
            }
            self.over = Vec::new();
        }
        foot(self.format, None, self.written, text);
    }

    /// Writes what did not fit into the slice before, as much as fits into this one.
    fn go_on(&mut self, text: &mut Vec<u8>) {
        let room_bytes = SLICE_BYTES.saturating_sub(text.len());
        let here_bytes = self.over.len().min(room_bytes);
        text.extend(self.over.drain(..here_bytes));
        if self.over.is_empty() {
            (self.over, self.over_room) = (Vec::new(), None);
        }
    }

    /// Writes entries until the slice is full or `names` are used up.
    fn entries(
        &mut self,
        around: Around<'_>,
        names: &mut Names,
        text: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut breath = Breath::begin();
        let mut cursor = self.cursor.take().unwrap_or_default();
        let mut any = false;
        while text.len() < SLICE_BYTES {
            breath.take();
            let Some((entry, name)) = names.take() else {
                break;
            };
            any = true;
            cursor.directory = entry.directory;
            cursor.name.clear();
            cursor.name.extend_from_slice(name);
            self.entry(around, entry, name, text)?;
        }
        self.cursor = (any || !cursor.name.is_empty()).then_some(cursor);
        Ok(())
    }

    fn read_on(&self, around: Around<'_>) -> io::Result<Names> {
        let cursor = self.cursor.as_ref();
        Ok(read(around, &self.dir, &self.path, cursor, |_| {})?)
    }

    /// Writes an entry, unless it is to be left out.
    fn entry(
        &mut self,
        around: Around<'_>,
        listed: Name,
        name: &[u8],
        text: &mut Vec<u8>,
    ) -> io::Result<()> {
        let is_link = |kind| kind == FileType::Symlink;
        let mut stat = Err(Miss::NotFound);
        let mut link = is_link(listed.kind);
        if !link {
            stat =
                statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|error| match error {
                    Errno::NOENT => Miss::NotFound,
                    Errno::ACCESS => Miss::Forbidden("its file system does not show it"),
                    error => Miss::Failed(error),
                });
            link = stat.is_ok_and(|itself| is_link(FileType::from_raw_mode(itself.st_mode)));
        }
        if link {
            stat = around.root.stat(&[&self.path[..], name].concat());
        }
        let unknown = |why| Unknown {
            path: [&self.path[..], name].concat(),
            why,
        };
        let kind = kind(listed, link, stat);
        let Some(kind) = kind.map_err(|why| io::Error::other(unknown(why).to_string()))? else {
            return Ok(());
        };
        if let Some(why) = stat.err().filter(|_| kind != EntryKind::Other) {
            self.unknown = self.unknown.take().or(Some(unknown(why)));
        }
        let (stat, file) = (
            stat.ok(),
            matches!(kind, EntryKind::File | EntryKind::LinkToFile),
        );
        let written = Entry {
            name,
            kind,
            len_bytes: stat.filter(|_| file).map(|stat| stat.st_size as u64),
            modified_unix_s: stat.map(|stat| stat.st_mtime),
        };
        entry(self.format, self.written == 0, &written, text);
        self.written += 1;
        Ok(())
    }

    fn readme_text(&self, around: Around<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let name = self
            .readme
            .as_ref()
            .filter(|_| self.format == Format::Html)?;
        let Ok(Found::File(fd, _)) = around
            .root
            .find(&[&self.path[..], name].concat(), Wait::Yes)
        else {
            return None;
        };
        // One byte more shows the page that there is more.
        let mut text = Vec::new();
        let mut file = io::Read::take(
            std::fs::File::from(fd.try_clone().ok()?),
            README_BYTES_MAX as u64 + 1,
        );
        io::Read::read_to_end(&mut file, &mut text).ok()?;
        Some((name.clone(), text))
    }
}

/// Whether it has so many names that other searches are not to wait until all are read.
fn is_long(dir: &OwnedFd) -> rustix::io::Result<bool> {
    Ok(Dir::read_from(dir)?.nth(SHORT_LISTING_NAMES_MAX).is_some())
}

/// Reads the names of a directory that come after `after`, as many as a piece holds; `seen` gets all that are shown.
fn read(
    around: Around<'_>,
    dir: &OwnedFd,
    path: &[u8],
    after: Option<&Cursor>,
    mut seen: impl FnMut(&[u8]),
) -> rustix::io::Result<Names> {
    let mut names = around.shelf.piece();
    let mut breath = Breath::begin();
    for found in Dir::read_from(dir)? {
        breath.take();
        let found = found?;
        let (name, kind) = (found.file_name().to_bytes(), found.file_type());
        if matches!(name, b"." | b"..") || around.root.hides(name) {
            continue;
        }
        let was_listed = |directory| after.is_some_and(|after| !after.is_before(directory, name));
        let mut directory = kind == FileType::Directory;
        if matches!(kind, FileType::Symlink | FileType::Unknown) {
            // Whatever the link leads to, the name is not in this piece.
            if was_listed(false) || names.is_beyond(true, name) && after.is_some() {
                continue;
            }
            match around.root.stat(&[path, name].concat()) {
                Err(Miss::Hidden) => continue,
                Err(_) => {}
                Ok(stat) => {
                    directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
                }
            }
        }
        seen(name);
        if !was_listed(directory) && !names.is_beyond(directory, name) {
            names.push(name, kind, directory, &mut breath);
        }
    }
    names.finish(&mut breath);
    Ok(names)
}

/// What a name is shown as; `None`: not at all, since it is gone or leads to something hidden. Programs that mirror a listing
/// delete what it lacks. Some ask for each file besides, and delete what they don't get: so where the file system fails,
/// only what the directory says is a directory is shown, since a listing of that fails, too.
fn kind(listed: Name, link: bool, stat: Result<Stat, Miss>) -> Result<Option<EntryKind>, Miss> {
    let (is_directory, is_file) = match stat {
        Err(Miss::Hidden) => return Ok(None),
        Err(Miss::NotFound) if !link => return Ok(None), // deleted meanwhile
        Err(Miss::NotFound | Miss::Astray(_)) => (false, false),
        Err(Miss::Forbidden(_)) => (listed.directory, true),
        Err(_) if listed.directory => (true, false),
        Err(miss) => return Err(miss),
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => (true, false),
            is => (false, is == FileType::RegularFile),
        },
    };
    Ok(Some(match (is_directory, is_file) {
        (true, _) if link => EntryKind::LinkToDirectory,
        (true, _) => EntryKind::Directory,
        (_, true) if link => EntryKind::LinkToFile,
        (_, true) => EntryKind::File,
        _ => EntryKind::Other,
    }))
}

fn miss(error: Errno) -> Miss {
    match error {
        Errno::ACCESS => Miss::Forbidden("the directory may not be read"),
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Miss::Exhausted,
        error => Miss::Failed(error),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use ackpace_wire::hide::Hide;
    use ackpace_wire::limits::LISTING_ENTRY_BYTES_MAX;

    use super::*;
    use crate::options::FollowSymlinks;

    /// A directory of a test, with files, directories and links in it. Removed at the end.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, entries: usize) -> Tree {
            let name = format!("ackpace-listing-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("a directory");
            let tree = Tree(path);
            for nth in 0..entries {
                let path = tree.at(nth);
                let made = match nth % 5 {
                    0 => fs::create_dir(path),
                    1 => std::os::unix::fs::symlink(tree.at(0), path),
                    _ => fs::write(path, "text"),
                };
                made.expect("an entry");
            }
            tree
        }

        fn at(&self, nth: usize) -> PathBuf {
            self.0.join(format!("{nth:05}{}", "n".repeat(50)))
        }

        fn listing(&self, shelf: &Shelf, mut between: impl FnMut()) -> String {
            let root = Root::open(&self.0, FollowSymlinks::Inside, &[], Hide::default());
            let root = root.expect("a root");
            let Ok(Found::Directory(place)) = root.find(b"", Wait::Yes) else {
                panic!("it is a directory");
            };
            let around = Around { root: &root, shelf };
            let json = (Format::Json, false);
            let listing = Listing::open(around, &place, b"", json, Wait::Long);
            let mut listing = listing.expect("it may be read");
            let mut text = Vec::new();
            loop {
                let slice = match listing.slice(around, false) {
                    Ok(None) => listing.slice(around, true),
                    slice => slice,
                };
                let slice = slice.expect("it may be read on").expect("it was read");
                assert!(slice.last || !slice.bytes.is_empty());
                text.extend_from_slice(&slice.bytes);
                if slice.last {
                    return String::from_utf8(text).expect("ASCII");
                }
                between();
            }
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_name_is_left_out_only_if_it_is_gone_or_hidden_and_a_file_never_for_a_failure() {
        let tree = Tree::new("kinds", 1);
        let of = |path: PathBuf| Ok(statat(rustix::fs::CWD, path, AtFlags::empty()).expect("ours"));
        let [file, directory] = [of("/proc/self/exe".into()), of(tree.at(0))];
        let failed = Err(Miss::Failed(Errno::IO));
        use EntryKind::{Directory, File, LinkToDirectory, LinkToFile, Other};
        use FileType as T;
        let breaks_off = Err(Miss::Failed(Errno::IO));
        let cases = [
            (T::RegularFile, false, Err(Miss::NotFound), Ok(None)),
            (T::RegularFile, false, file, Ok(Some(File))),
            (T::RegularFile, false, directory, Ok(Some(Directory))), // replaced meanwhile
            (T::RegularFile, false, failed, breaks_off),
            (T::Directory, false, failed, Ok(Some(Directory))),
            (T::Unknown, false, failed, breaks_off),
            (T::Symlink, true, Err(Miss::Hidden), Ok(None)),
            (T::Symlink, true, Err(Miss::NotFound), Ok(Some(Other))),
            (T::Symlink, true, Err(Miss::Astray("")), Ok(Some(Other))),
            (T::Symlink, true, directory, Ok(Some(LinkToDirectory))),
            (T::Symlink, true, failed, breaks_off),
            (
                T::Symlink,
                true,
                Err(Miss::Forbidden("")),
                Ok(Some(LinkToFile)),
            ),
        ];
        for (is, link, stat, shown) in cases {
            let mut names = Shelf::new(0, None).piece();
            names.push(b"n", is, is == T::Directory, &mut Breath::begin());
            let (listed, _) = names.take().expect("a name");
            assert_eq!(kind(listed, link, stat), shown, "{is:?} {stat:?}");
        }
    }

    #[test]
    fn a_listing_is_the_same_whether_its_names_are_kept_or_read_again() {
        let tree = Tree::new("again", 1200);
        let kept = tree.listing(&Shelf::new(1 << 20, None), || {});
        assert_eq!(kept.matches("\"name\"").count(), 1200);
        // No room: each slice reads the directory, in pieces.
        let read_again = tree.listing(&Shelf::new(0, None), || {});
        assert!(kept == read_again, "other bytes");
    }

    #[test]
    fn listings_that_pause_hold_no_more_than_there_is_and_the_others_read_again() {
        const MOST_BYTES: u64 = 2 << 20;
        let shelf = Shelf::new(MOST_BYTES, None);
        let filled = || {
            let (mut names, mut breath) = (shelf.piece(), Breath::begin());
            for nth in 0..1000 {
                let name = format!("{nth:0100}");
                names.push(name.as_bytes(), FileType::RegularFile, false, &mut breath);
            }
            names.finish(&mut breath);
            names
        };
        let kept: Vec<Names> = (0..30).filter_map(|_| filled().kept()).collect();
        let all = |names: Names| !names.more();
        assert!(
            !kept.is_empty() && !filled().is_used_up() && !all(filled()),
            "a part"
        );
        drop(kept);
        assert!(all(filled()), "one alone has all of its names");
    }

    #[test]
    fn what_stays_is_listed_once_and_in_order_while_the_directory_changes() {
        let tree = Tree::new("changes", 1200);
        let mut gone = (2..1200).step_by(5);
        let mut new = 1200..;
        let listing = tree.listing(&Shelf::new(0, None), || {
            for _ in 0..20 {
                if let Some(gone) = gone.next() {
                    fs::remove_file(tree.at(gone)).expect("our own");
                }
            }
            let new = new.next().expect("numbers do not end");
            fs::write(tree.at(new), "").expect("a file");
        });
        let names = listing.split("\"name\":\"").skip(1);
        let listed: Vec<usize> = names
            .map(|rest| rest[..5].parse().expect("a number"))
            .collect();
        let stay = |nth: &usize| *nth < 1200 && nth % 5 != 2;
        let all = (0..1200).filter(stay);
        let (first, then): (Vec<usize>, Vec<usize>) = all.partition(|nth| nth % 5 < 2);
        let stayed: Vec<usize> = listed.iter().copied().filter(stay).collect();
        assert_eq!(stayed, [first, then].concat());
        assert!(listed.contains(&1200), "new names behind are seen");
    }

    /// All slices of a directory with a README of quotes, with so much room for all listings.
    fn slices(name: &str, room_bytes: u64) -> Vec<Slice> {
        let tree = Tree::new(name, 0);
        fs::write(tree.0.join("README"), "\"".repeat(README_BYTES_MAX)).expect("a file");
        let root = Root::open(&tree.0, FollowSymlinks::Inside, &[], Hide::default());
        let root = root.expect("a root");
        let around = Around {
            root: &root,
            shelf: &Shelf::new(room_bytes, None),
        };
        let Ok(Found::Directory(place)) = root.find(b"", Wait::Yes) else {
            panic!("it is a directory");
        };
        let html = (Format::Html, false);
        let listing = Listing::open(around, &place, b"", html, Wait::Long);
        let mut listing = listing.expect("it may be read");
        let mut slices = Vec::new();
        while !slices.last().is_some_and(|slice: &Slice| slice.last) {
            assert!(slices.len() < 1_000, "it ends");
            let slice = listing.slice(around, true).expect("it may be read");
            slices.push(slice.expect("a slice"));
        }
        slices
    }

    fn page(slices: Vec<Slice>) -> String {
        let bytes = slices.into_iter().flat_map(|slice| slice.bytes).collect();
        String::from_utf8(bytes).expect("UTF-8")
    }

    #[test]
    fn a_long_readme_goes_out_in_slices() {
        let slices = slices("long", 64 << 20);
        let longest = slices.iter().map(|slice| slice.bytes.len()).max();
        assert!(longest <= Some(SLICE_BYTES + LISTING_ENTRY_BYTES_MAX));
        let page = page(slices);
        assert_eq!(page.matches("&quot;").count(), README_BYTES_MAX);
        assert!(page.trim_end().ends_with("</html>"));
    }

    #[test]
    fn a_readme_that_finds_no_room_is_left_out() {
        let page = page(slices("none", 20_000));
        assert!(page.contains("README") && !page.contains("&quot;&quot;"));
        assert!(page.trim_end().ends_with("</html>"));
    }
}
