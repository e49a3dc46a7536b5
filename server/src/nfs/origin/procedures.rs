//! The procedures of NFS and MOUNT for what origins have. Nothing there can be changed.

use ackpace_core::conn::Span;
use ackpace_wire::limits::RPC_PAYLOAD_BYTES_MAX;
use ackpace_wire::nfs3::handle::Sealed;
use ackpace_wire::nfs3::{
    Args, Asked, Attributes, Change, Entry, Found, FsStat, Handle, Listing, MountArgs, Place, Read,
    ReadDir, Request, Results, Status, access, reply,
};

use super::visit::{Stop, There, Visit, What};
use super::{From, Origin};
use crate::nfs::exports::Exports;
use crate::nfs::fail::Fail;
use crate::nfs::outcome::Outcome;
use crate::nfs::{mount, procedures};
use crate::source::Source;

/// Carries out a call, or says what it has to ask.
pub fn carry_out(
    origin: &Origin,
    exports: &Exports,
    request: &Request<'_>,
    from: From<'_>,
) -> Outcome {
    let mut visit = Visit {
        origin,
        exports,
        from,
    };
    let xid = request.xid;
    let (stop, args) = match &request.asked {
        Asked::Nfs(args) => match visit.attempt(xid, args) {
            Ok(outcome) => return outcome,
            Err(stop) => (stop, args),
        },
        Asked::Mount(args) => return visit.mount(xid, args),
    };
    let failed = |status| {
        let mut to = Vec::new();
        let results = procedures::failed(args, status, Change::default());
        reply(xid, &results, &mut to);
        Outcome::Reply(to)
    };
    match stop {
        Stop::Is(status) => failed(status),
        Stop::Asks(question) => match visit.from.inquiry.ask(question, origin) {
            Some(ask) => Outcome::Asks(ask),
            None => failed(Status::Io),
        },
    }
}

impl<'a> Visit<'a, '_> {
    fn attempt(&mut self, xid: u32, args: &Args<'_>) -> Result<Outcome, Stop> {
        let mut to = Vec::new();
        match *args {
            Args::Null => {
                reply(xid, &Results::Null, &mut to);
            }
            Args::GetAttr(file) => {
                let there = self.find(file)?;
                let attributes = self.attributes(&there)?;
                reply(xid, &Results::GetAttr(Ok(attributes)), &mut to);
            }
            Args::Lookup(place) => self.look_up(xid, &place, &mut to)?,
            Args::Access { file, mask } => self.access(xid, file, mask, &mut to)?,
            Args::ReadLink(file) => {
                self.find(file)?;
                return Err(Stop::Is(Status::Inval));
            }
            Args::Read {
                file,
                offset_bytes,
                len_bytes,
            } => return self.read(xid, file, (offset_bytes, len_bytes)),
            Args::ReadDir(asked) => self.list(xid, &asked, &mut to)?,
            Args::FsStat(file) => {
                let attributes = self.known(file)?;
                // How much an origin has, nobody knows.
                let room = FsStat {
                    bytes: 0,
                    free_bytes: 0,
                    available_bytes: 0,
                    files: 0,
                    free_files: 0,
                    available_files: 0,
                    constant_s: 0,
                };
                reply(xid, &Results::FsStat(Ok(room), attributes), &mut to);
            }
            Args::FsInfo(file) => {
                let attributes = self.known(file)?;
                let info = procedures::info();
                reply(xid, &Results::FsInfo(Ok(info), attributes), &mut to);
            }
            Args::PathConf(file) => {
                let attributes = self.known(file)?;
                let conf = procedures::conf();
                reply(xid, &Results::PathConf(Ok(conf), attributes), &mut to);
            }
            Args::SetAttr { file, .. }
            | Args::Write(ackpace_wire::nfs3::Write { file, .. })
            | Args::Commit { file, .. }
            | Args::Link { file, .. } => return self.read_only(file),
            Args::Create { place, .. }
            | Args::MkDir { place, .. }
            | Args::SymLink { place, .. }
            | Args::MkNod { place, .. }
            | Args::Remove(place)
            | Args::RmDir(place)
            | Args::Rename { from: place, .. } => return self.read_only(place.folder),
        }
        Ok(Outcome::Reply(to))
    }

    fn read_only(&mut self, file: Handle<'_>) -> Result<Outcome, Stop> {
        self.find(file)?;
        Err(Stop::Is(Status::RoFs))
    }

    /// The attributes of a file that is there. A folder that was listed is listed anew if that is long ago, so that clients see what
    /// has changed.
    fn attributes(&mut self, there: &There<'_>) -> Result<Attributes, Stop> {
        if !there.is_folder {
            let object = match self.file(&there.path)? {
                What::File(object) => object,
                What::Folder | What::Missing => return Err(Stop::Is(Status::Stale)),
            };
            return Ok(self.origin.file(&there.path, &object, there.export));
        }
        let hash = self.origin.key.hash(&there.path);
        if self.origin.known.listed_since(hash).is_some() {
            match self.names(&there.path) {
                Ok(Some(_)) | Err(Stop::Is(_)) => {}
                Ok(None) if there.is_top() => {}
                Ok(None) => return Err(Stop::Is(Status::Stale)),
                Err(stop) => return Err(stop),
            }
        }
        Ok(self.folder(there))
    }

    /// The attributes behind a reply, if they are known without asking.
    fn known(&mut self, file: Handle<'_>) -> Result<Option<Attributes>, Stop> {
        let there = self.find(file)?;
        Ok(match there.is_folder {
            true => Some(self.folder(&there)),
            false => self.known_file(&there.path, there.export),
        })
    }

    fn look_up(&mut self, xid: u32, place: &Place<'_>, to: &mut Vec<u8>) -> Result<(), Stop> {
        let folder = self.find_folder(place.folder)?;
        let attributes = Some(self.folder(&folder));
        let found = match self.named(&folder, place) {
            Err(Stop::Is(status)) => Err(status),
            found => Ok(found?),
        };
        let found = found.as_ref().map_err(|status| *status);
        let found = found.map(|(sealed, attributes)| Found {
            file: Handle(sealed.as_bytes()),
            attributes: Some(*attributes),
        });
        reply(xid, &Results::Lookup(found, attributes), to);
        Ok(())
    }

    fn named(
        &mut self,
        folder: &There<'_>,
        place: &Place<'_>,
    ) -> Result<(Sealed, Attributes), Stop> {
        let export = folder.export;
        let of_folder = |visit: &Self, path: &[u8]| {
            let sealed = visit.seal(export, path, true)?;
            Ok((sealed, visit.origin.folder(path, export)))
        };
        match place.name.check()? {
            b"." => of_folder(self, &folder.path),
            b".." if folder.is_top() => of_folder(self, &folder.path),
            b".." => of_folder(self, above(&folder.path)),
            name => match self.below(&folder.path, name)? {
                (path, What::Folder) => of_folder(self, &path),
                (path, What::File(object)) => {
                    let sealed = self.seal(export, &path, false)?;
                    Ok((sealed, self.origin.file(&path, &object, export)))
                }
                (_, What::Missing) => Err(Stop::Is(Status::NoEnt)),
            },
        }
    }

    /// Everybody may read everything.
    fn access(
        &mut self,
        xid: u32,
        file: Handle<'_>,
        mask: u32,
        to: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        let there = self.find(file)?;
        let bits = match there.is_folder {
            true => access::READ | access::LOOKUP,
            false => access::READ,
        };
        let attributes = self.known(file)?;
        reply(xid, &Results::Access(Ok(bits & mask), attributes), to);
        Ok(())
    }

    fn read(
        &mut self,
        xid: u32,
        file: Handle<'_>,
        (offset_bytes, len_bytes): (u64, u32),
    ) -> Result<Outcome, Stop> {
        let there = self.find(file)?;
        if there.is_folder {
            return Err(Stop::Is(Status::IsDir));
        }
        let object = match self.file(&there.path)? {
            What::File(object) => object,
            What::Folder | What::Missing => return Err(Stop::Is(Status::Stale)),
        };
        let attributes = self.origin.file(&there.path, &object, there.export);
        let left_bytes = object.len_bytes.saturating_sub(offset_bytes);
        let len_bytes = left_bytes.min(len_bytes.min(RPC_PAYLOAD_BYTES_MAX).into());
        let result = Read {
            len_bytes: len_bytes as u32, // at most what was asked
            is_end: len_bytes == left_bytes,
        };
        let mut head = Vec::new();
        let results = Results::Read(Ok(result), Some(attributes));
        let behind = reply(xid, &results, &mut head);
        if len_bytes == 0 {
            return Ok(Outcome::Reply(head));
        }
        Ok(Outcome::Read {
            file_len_bytes: object.len_bytes,
            source: Source::Object(object),
            span: Span {
                offset_bytes,
                len_bytes,
            },
            head,
            pad_bytes: behind.pad_bytes,
        })
    }

    /// READDIR and READDIRPLUS. Of files, only those have attributes of which the gateway knows more than the name.
    fn list(&mut self, xid: u32, asked: &ReadDir<'_>, to: &mut Vec<u8>) -> Result<(), Stop> {
        let folder = self.find_folder(asked.folder)?;
        let names = self.names(&folder.path)?;
        let names = names.ok_or(Stop::Is(Status::Stale))?;
        let attributes = self.folder(&folder);
        let mut listing = Listing::begin(xid, asked, [0; 8], Some(attributes), to);
        let own = [(1, &b"."[..]), (2, b"..")];
        let own = own.into_iter().filter(|(cookie, _)| *cookie > asked.cookie);
        for (cookie, name) in own {
            let path = match name {
                b".." if !folder.is_top() => above(&folder.path),
                _ => &folder.path,
            };
            let entry = Entry {
                file_id: self.origin.key.hash(path),
                name,
                cookie,
                attributes: None,
                file: None,
            };
            if !listing.push(&entry) {
                listing.end(false);
                return Ok(());
            }
        }
        for listed in names.behind(asked.cookie.max(2)) {
            let path = crate::nfs::search::joined(&folder.path, listed.name);
            let sealed = match asked.has_attributes {
                true => (self.seal_only(folder.export, &path, listed.is_folder)).ok(),
                false => None,
            };
            let attributes = match (asked.has_attributes, listed.is_folder) {
                (false, _) => None,
                (true, true) => Some(self.origin.folder(&path, folder.export)),
                (true, false) => self.known_file(&path, folder.export),
            };
            let entry = Entry {
                file_id: self.origin.key.hash(&path),
                name: listed.name,
                cookie: listed.cookie,
                attributes,
                file: sealed.as_ref().map(|sealed| Handle(sealed.as_bytes())),
            };
            if !listing.push(&entry) {
                listing.end(false);
                return Ok(());
            }
        }
        listing.end(true);
        Ok(())
    }

    fn mount(&mut self, xid: u32, args: &MountArgs<'_>) -> Outcome {
        let mut asks = None;
        let exports = self.exports;
        let outcome = mount::answer(xid, exports, args, |path| {
            self.folder_at(path).map_err(|stop| match stop {
                Stop::Is(status) => Fail::Is(status),
                Stop::Asks(question) => {
                    asks = Some(question);
                    Fail::Cold
                }
            })
        });
        match asks {
            Some(question) => match self.from.inquiry.ask(question, self.origin) {
                Some(ask) => Outcome::Asks(ask),
                None => outcome,
            },
            None => outcome,
        }
    }

    /// The handle of a folder that is mounted. That of an export is taken for one: so clients can mount while no origin answers.
    fn folder_at(&mut self, path: &[u8]) -> Result<Sealed, Stop> {
        let (path, export) =
            mount::exported(self.exports, path, self.from.addr).map_err(|fail| {
                match fail {
                    Fail::Is(status) => Stop::Is(status),
                    Fail::Cold => Stop::Is(Status::ServerFault), // it asks nothing
                }
            })?;
        if path == export.folder() {
            return self.seal(export, &path, true);
        }
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(&path);
        match self.below(above(&path), name)?.1 {
            What::Folder => self.seal(export, &path, true),
            What::File(_) => Err(Stop::Is(Status::NotDir)),
            What::Missing => Err(Stop::Is(Status::NoEnt)),
        }
    }
}

/// The path of the folder of a path.
fn above(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    &path[..slash.unwrap_or(0)]
}
