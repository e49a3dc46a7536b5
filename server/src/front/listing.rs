//! A directory's page, made slice by slice: names are read and sorted once, everything else (sizes,
//! times, text) when its slice is due. So 50,000 entries cost 2 MB, and the client's pace decides.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ackpace_core::limits::SLICE_BYTES;
use ackpace_wire::http::plan::{LAST_CHUNK, push_chunk};
use ackpace_wire::limits::README_BYTES_MAX;
use ackpace_wire::listing::{Entry, Format, Kind, Readme, entry, foot, head, readme_rank};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::sched::Breath;
use crate::store::root::{Found, Miss, Root, Wait};

/// Bytes of names that all listings of a site hold together, and may hold.
#[derive(Clone, Debug)]
pub struct Held {
    used_bytes: Arc<AtomicU64>,
    most_bytes: u64,
}

impl Held {
    /// Nothing yet; `most_bytes` at most.
    pub fn new(most_bytes: u64) -> Held {
        Held {
            used_bytes: Arc::default(),
            most_bytes,
        }
    }
}

/// Where the directories of a listing lie, and what of them is shown.
#[derive(Clone, Copy)]
pub struct Shelf<'a> {
    /// The root, which decides where links lead and what is hidden.
    pub root: &'a Root,
    /// What all listings hold.
    pub held: &'a Held,
}

/// A listing under way.
pub struct Listing {
    dir: OwnedFd,
    /// Relative to the root, empty or ending with a slash.
    path: Vec<u8>,
    format: Format,
    chunked: bool,
    names: Names,
    next: usize,
    written: u64,
    readme: Option<Vec<u8>>,
}

/// The next piece of a listing, framed as its response needs it.
#[derive(Debug, PartialEq, Eq)]
pub struct Slice {
    /// What to send; never empty but for the last one of a listing that is not chunked.
    pub bytes: Vec<u8>,
    /// Nothing follows.
    pub last: bool,
}

/// Many names in one allocation, in the order in which they are listed.
struct Names {
    bytes: Vec<u8>,
    entries: Vec<Name>,
    /// The count of all listings, and what this one has put into it.
    held: Held,
    held_bytes: u64,
}

#[derive(Clone, Copy)]
struct Name {
    start: u32,
    len: u16,
    kind: FileType,
    directory: bool,
}

impl Listing {
    /// The directory, below the root, with a slash at its end.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Reads and sorts the names of the directory: directories first, then bytewise. Hidden names are left out,
    /// and so are links to them.
    ///
    /// # Errors
    /// [`Miss::Exhausted`] when all listings together hold too many names.
    pub fn open(
        shelf: Shelf<'_>,
        place: &OwnedFd,
        path: &[u8],
        format: Format,
        chunked: bool,
    ) -> Result<Listing, Miss> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(place, ".", flags, Mode::empty()).map_err(|error| match error {
            Errno::ACCESS => Miss::Forbidden("the directory may not be read"),
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Miss::Exhausted,
            error => Miss::Failed(error),
        })?;
        let mut names = Names::new(shelf.held.clone());
        let mut readme: Option<(u8, Vec<u8>)> = None;
        let mut breath = Breath::begin();
        for found in Dir::read_from(&dir).map_err(Miss::Failed)? {
            breath.take();
            let found = found.map_err(Miss::Failed)?;
            let name = found.file_name().to_bytes();
            if matches!(name, b"." | b"..") || shelf.root.hides(name) {
                continue;
            }
            let mut directory = found.file_type() == FileType::Directory;
            if matches!(found.file_type(), FileType::Symlink | FileType::Unknown) {
                let target = shelf.root.stat(&[path, name].concat());
                if matches!(target, Err(Miss::Hidden)) {
                    continue;
                }
                directory = target
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
            }
            let rank = readme_rank(name)
                .filter(|rank| readme.as_ref().is_none_or(|(best, _)| rank < best));
            if let Some(rank) = rank {
                readme = Some((rank, name.to_vec()));
            }
            names.push(name, found.file_type(), directory)?;
        }
        names.sort(&mut breath);
        let (path, readme) = (path.to_vec(), readme.map(|(_, name)| name));
        Ok(Listing {
            dir,
            path,
            format,
            chunked,
            names,
            next: 0,
            written: 0,
            readme,
        })
    }

    /// The next slice of about [`SLICE_BYTES`].
    ///
    /// # Errors
    /// Those of the file system below, for a listing that can't go on.
    pub fn slice(&mut self, shelf: Shelf<'_>) -> io::Result<Slice> {
        let mut text = Vec::with_capacity(SLICE_BYTES + SLICE_BYTES / 4);
        if self.next == 0 {
            head(self.format, &[b"/", &self.path[..]].concat(), &mut text);
        }
        let mut breath = Breath::begin();
        while text.len() < SLICE_BYTES && self.next < self.names.entries.len() {
            breath.take();
            let name = self.names.entries[self.next];
            self.next += 1;
            self.entry(shelf, name, &mut text);
        }
        let last = self.next == self.names.entries.len();
        if last {
            let readme = self.readme_text(shelf);
            let readme = readme.as_ref().map(|(name, text)| Readme { name, text });
            foot(self.format, readme, self.written, &mut text);
        }
        if !self.chunked {
            return Ok(Slice { bytes: text, last });
        }
        let mut bytes = Vec::with_capacity(text.len() + 32);
        push_chunk(&text, &mut bytes);
        if last {
            bytes.extend_from_slice(LAST_CHUNK);
        }
        Ok(Slice { bytes, last })
    }

    fn entry(&mut self, shelf: Shelf<'_>, name: Name, text: &mut Vec<u8>) {
        let bytes = self.names.get(name);
        let mut stat: Option<Stat> = None;
        let mut link = name.kind == FileType::Symlink;
        if !link {
            // A name that was deleted meanwhile is left out.
            let Ok(itself) = statat(&self.dir, bytes, AtFlags::SYMLINK_NOFOLLOW) else {
                return;
            };
            link = FileType::from_raw_mode(itself.st_mode) == FileType::Symlink;
            stat = Some(itself);
        }
        if link {
            stat = match shelf.root.stat(&[&self.path[..], bytes].concat()) {
                Ok(stat) => Some(stat),
                Err(Miss::Hidden) => return,
                Err(_) => None,
            };
        }
        let kind = match stat.map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Some(FileType::Directory) if link => Kind::LinkToDirectory,
            Some(FileType::RegularFile) if link => Kind::LinkToFile,
            Some(FileType::Directory) => Kind::Directory,
            Some(FileType::RegularFile) => Kind::File,
            _ => Kind::Other,
        };
        let file = matches!(kind, Kind::File | Kind::LinkToFile);
        let written = Entry {
            name: bytes,
            kind,
            len_bytes: stat.filter(|_| file).map(|stat| stat.st_size as u64),
            modified_unix_s: stat.map(|stat| stat.st_mtime),
        };
        entry(self.format, self.written == 0, &written, text);
        self.written += 1;
    }

    fn readme_text(&self, shelf: Shelf<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let name = self
            .readme
            .as_ref()
            .filter(|_| self.format == Format::Html)?;
        let Ok(Found::File(fd, _)) = shelf.root.find(&[&self.path[..], name].concat(), Wait::Yes)
        else {
            return None;
        };
        // One byte more tells the page that there is more.
        let mut text = Vec::new();
        let mut file = io::Read::take(std::fs::File::from(fd), README_BYTES_MAX as u64 + 1);
        io::Read::read_to_end(&mut file, &mut text).ok()?;
        Some((name.clone(), text))
    }
}

impl Names {
    fn new(held: Held) -> Names {
        Names {
            bytes: Vec::new(),
            entries: Vec::new(),
            held,
            held_bytes: 0,
        }
    }

    fn push(&mut self, name: &[u8], kind: FileType, directory: bool) -> Result<(), Miss> {
        let cost_bytes = (name.len() + size_of::<Name>()) as u64;
        let held_bytes = self
            .held
            .used_bytes
            .fetch_add(cost_bytes, Ordering::Relaxed)
            + cost_bytes;
        self.held_bytes += cost_bytes;
        let (Ok(start), Ok(len)) = (u32::try_from(self.bytes.len()), u16::try_from(name.len()))
        else {
            return Err(Miss::Exhausted);
        };
        if held_bytes > self.held.most_bytes {
            return Err(Miss::Exhausted);
        }
        self.bytes.extend_from_slice(name);
        self.entries.push(Name {
            start,
            len,
            kind,
            directory,
        });
        Ok(())
    }

    fn get(&self, name: Name) -> &[u8] {
        &self.bytes[name.start as usize..name.start as usize + usize::from(name.len)]
    }

    fn sort(&mut self, breath: &mut Breath) {
        /// Comparisons that are worth a look at the clock.
        const COMPARISONS: u32 = 64;
        let mut left = COMPARISONS;
        let Names { bytes, entries, .. } = self;
        let text =
            |name: &Name| &bytes[name.start as usize..name.start as usize + usize::from(name.len)];
        entries.sort_unstable_by(|a, b| {
            left -= 1;
            if left == 0 {
                left = COMPARISONS;
                breath.take();
            }
            b.directory
                .cmp(&a.directory)
                .then_with(|| text(a).cmp(text(b)))
        });
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.held
            .used_bytes
            .fetch_sub(self.held_bytes, Ordering::Relaxed);
    }
}
