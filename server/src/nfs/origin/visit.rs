//! A call that looks at what origins have: each answer is either known, or has to be asked for.

use std::sync::Arc;

use ackpace_wire::limits::NFS_PATH_BYTES_MAX;
use ackpace_wire::nfs3::handle::{self, Sealed};
use ackpace_wire::nfs3::{Attributes, Handle, Status};

use super::inquiry::{Heard, Question};
use super::known::Note;
use super::listings::Names;
use super::place::{self, Hints, Said, read, target_of};
use super::{From, Origin};
use crate::clock::unix_ms;
use crate::gateway::{Ask, LookUp, Object};
use crate::nfs::exports::{Export, Exports, NoExport};
use crate::nfs::search::joined;

/// Why a call goes no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// This is to be asked.
    Asks(Question),
    /// This is answered.
    Is(Status),
}

impl std::convert::From<Status> for Stop {
    fn from(status: Status) -> Stop {
        Stop::Is(status)
    }
}

/// What is at a path.
pub enum What {
    File(Arc<Object>),
    Folder,
    Missing,
}

/// A file or folder of an export.
pub struct There<'a> {
    /// Without a slash before or behind it.
    pub path: Arc<[u8]>,
    pub is_folder: bool,
    pub export: &'a Export,
}

impl There<'_> {
    /// Whether it is the folder of the export.
    pub fn is_top(&self) -> bool {
        *self.path == *self.export.folder()
    }
}

/// A call under way.
pub struct Visit<'a, 'f> {
    pub origin: &'a Origin,
    pub exports: &'a Exports,
    pub from: From<'f>,
}

impl<'a> Visit<'a, '_> {
    /// What a handle means. Whether it is there still, only its origin knows.
    pub fn find(&mut self, handle: Handle<'_>) -> Result<There<'a>, Stop> {
        let stale = Stop::Is(Status::Stale);
        let file = handle::open(&self.origin.key, handle.0);
        let file = file.filter(|file| file.file_system == self.origin.number);
        let file = file.ok_or(stale.clone())?;
        let export = self.exports.of_number(file.export, self.from.addr);
        let export = export.map_err(|why| match why {
            NoExport::Unknown => stale.clone(),
            NoExport::Refused => Stop::Is(Status::Acces),
        })?;
        let (said, is_folder) = read(file.body).ok_or(stale.clone())?;
        let path = match said {
            Said::Path(path) => path.into(),
            Said::Hints(hash, hints) => match self.origin.known.path(hash) {
                Some(path) => path,
                None => self.search(hash, hints)?,
            },
        };
        match export.has(&path) {
            true => Ok(There {
                path,
                is_folder,
                export,
            }),
            false => Err(stale),
        }
    }

    /// The same, of a folder.
    pub fn find_folder(&mut self, handle: Handle<'_>) -> Result<There<'a>, Stop> {
        let there = self.find(handle)?;
        match there.is_folder {
            true => Ok(there),
            false => Err(Stop::Is(Status::NotDir)),
        }
    }

    /// The handle of a path in an export, which is remembered if its handle has no room for it.
    pub fn seal(&self, export: &Export, path: &[u8], is_folder: bool) -> Result<Sealed, Stop> {
        let Origin { key, known, .. } = self.origin;
        if !place::has_room(path) {
            known.remember(key.hash(path), path);
        }
        self.seal_only(export, path, is_folder)
    }

    /// The same for one of many names, of which few are used.
    pub fn seal_only(&self, export: &Export, path: &[u8], is_folder: bool) -> Result<Sealed, Stop> {
        let Origin { key, number, .. } = self.origin;
        let file = handle::File {
            export: export.number,
            file_system: *number,
            body: &place::body(key, path, is_folder),
        };
        handle::seal(key, &file).ok_or(Stop::Is(Status::ServerFault))
    }

    /// Searches a path by hints, from listing to listing.
    fn search(&mut self, hash: u64, hints: Hints<'_>) -> Result<Arc<[u8]>, Stop> {
        let stale = Stop::Is(Status::Stale);
        if hints.depth == 0 {
            return Err(stale);
        }
        let key = &self.origin.key;
        let mut folders = vec![(Vec::new(), 0)];
        while let Some((folder, nth)) = folders.pop() {
            let names = match self.names(&folder.as_slice().into()) {
                Ok(Some(names)) => names,
                // It is not listed.
                Ok(None) | Err(Stop::Is(Status::Acces | Status::Io | Status::FBig)) => continue,
                Err(stop) => return Err(stop),
            };
            for listed in names.behind(0) {
                if !hints.fits(key, nth, listed.name) {
                    continue;
                }
                let path = joined(&folder, listed.name);
                if nth + 1 < hints.depth {
                    if listed.is_folder {
                        folders.push((path, nth + 1));
                    }
                } else if key.hash(&path) == hash {
                    self.origin.known.remember(hash, &path);
                    return Ok(path.into());
                }
            }
        }
        Err(stale)
    }

    /// What is at the path of a name in a folder.
    pub fn below(&mut self, folder: &[u8], name: &[u8]) -> Result<(Arc<[u8]>, What), Stop> {
        let path: Arc<[u8]> = joined(folder, name).into();
        if path.len() > NFS_PATH_BYTES_MAX {
            return Err(Stop::Is(Status::NameTooLong));
        }
        let listed = self.origin.listings.get(folder);
        let listed = listed.filter(|names| names.is_fresh());
        let is_folder = listed.as_ref().and_then(|names| {
            let is_folder = names.find(&self.origin.key, name)?;
            if !is_folder {
                self.ask_ahead(folder, names, name);
            }
            Some(is_folder)
        });
        let what = match is_folder {
            Some(true) => What::Folder,
            Some(false) | None => self.what(&path)?,
        };
        Ok((path, what))
    }

    /// A client that looks up one name after the other will want the next ones, too. Nobody waits for the answers.
    fn ask_ahead(&self, folder: &[u8], names: &Names, name: &[u8]) {
        let Origin { gateway, key, .. } = self.origin;
        let has_buckets = self.origin.has_buckets();
        names.next_looked_up(key, name, |next| {
            let target = target_of(&joined(folder, next), false, has_buckets);
            let known = gateway.catalog.look_up(&target, unix_ms() / 1000);
            if matches!(known, LookUp::Unknown) {
                drop(gateway.ask(self.from.stream, Ask::Refresh(target)));
            }
        });
    }

    /// What is at a path.
    fn what(&mut self, path: &Arc<[u8]>) -> Result<What, Stop> {
        let what = self.file(path)?;
        // A bucket redirects nobody to a folder.
        if !matches!(what, What::Missing) || !self.origin.has_buckets() || self.is_noted(path) {
            return Ok(what);
        }
        let names = self.names(path)?;
        let is_folder = names.is_some_and(|names| !names.is_empty());
        let (what, note) = match is_folder {
            true => (What::Folder, Note::Folder),
            false => (What::Missing, Note::Missing),
        };
        self.note(path, note);
        Ok(what)
    }

    fn note(&self, path: &[u8], note: Note) {
        let hash = self.origin.key.hash(path);
        self.origin.known.keep(hash, path, note);
    }

    fn is_noted(&self, path: &[u8]) -> bool {
        let hash = self.origin.key.hash(path);
        self.origin.known.note(hash).is_some()
    }

    /// What is at the path of a file: an object, or what is there in its place.
    pub fn file(&mut self, path: &Arc<[u8]>) -> Result<What, Stop> {
        let origin = self.origin;
        let question = Question::File(Arc::clone(path));
        if let Some(heard) = self.from.inquiry.answer(&question) {
            let (what, note) = match heard {
                Heard::Object(object) => return Ok(What::File(Arc::clone(object))),
                Heard::Folder => (What::Folder, Note::Folder),
                Heard::Missing => (What::Missing, Note::Missing),
                Heard::Names(_) => return Err(Stop::Is(Status::ServerFault)),
                Heard::Not(status) => return Err(Stop::Is(*status)),
            };
            if !origin.has_buckets() {
                self.note(path, note);
            }
            return Ok(what);
        }
        let target = target_of(path, false, origin.has_buckets());
        match origin.gateway.catalog.look_up(&target, unix_ms() / 1000) {
            LookUp::Fresh(object) => return Ok(What::File(object)),
            LookUp::Stale(object, true) => {
                // Nobody waits for the answer.
                drop(origin.gateway.ask(self.from.stream, Ask::Refresh(target)));
                return Ok(What::File(object));
            }
            LookUp::Stale(_, false) => return Err(Stop::Asks(question)),
            // An origin said so lately, and GET may cost it the whole file.
            LookUp::Passes => {
                self.from.inquiry.tell_no_object(path);
                return Err(Stop::Is(Status::Io));
            }
            LookUp::Unknown => {}
        }
        match origin.known.note(origin.key.hash(path)) {
            Some(Note::Folder) => Ok(What::Folder),
            Some(Note::Missing) => Ok(What::Missing),
            None => Err(Stop::Asks(question)),
        }
    }

    /// The names of a folder; `None`: it is not there. A listing that is not fresh stands in while no origin answers.
    pub fn names(&mut self, path: &Arc<[u8]>) -> Result<Option<Arc<Names>>, Stop> {
        let kept = self.origin.listings.get(path);
        if let Some(names) = kept.as_ref().filter(|names| names.is_fresh()) {
            return Ok(Some(Arc::clone(names)));
        }
        let question = Question::Names(Arc::clone(path));
        match self.from.inquiry.answer(&question) {
            None => Err(Stop::Asks(question)),
            Some(Heard::Names(names)) => Ok(Some(Arc::clone(names))),
            Some(Heard::Missing) => Ok(None),
            Some(Heard::Not(Status::Jukebox)) if kept.is_some() => Ok(kept),
            Some(Heard::Not(status)) => Err(Stop::Is(*status)),
            Some(Heard::Object(_) | Heard::Folder) => Err(Stop::Is(Status::ServerFault)),
        }
    }

    /// The attributes of a folder, as far as they are known.
    pub fn folder(&self, there: &There<'_>) -> Attributes {
        self.origin.folder(&there.path, there.export)
    }

    /// The attributes of a file whose object is known and fresh.
    pub fn known_file(&self, path: &[u8], export: &Export) -> Option<Attributes> {
        let target = target_of(path, false, self.origin.has_buckets());
        let known = self
            .origin
            .gateway
            .catalog
            .look_up(&target, unix_ms() / 1000);
        match known {
            LookUp::Fresh(object) => Some(self.origin.file(path, &object, export)),
            _ => None,
        }
    }
}
