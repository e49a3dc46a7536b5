//! What all procedures begin with: the file of a handle, and what its export lets the caller do.

use std::net::IpAddr;

use ackpace_wire::nfs3::handle::{Key, Sealed};
use ackpace_wire::nfs3::{Handle, Kind, Status};
use ackpace_wire::rpc::Credential;

use super::caller::Caller;
use super::exports::{Export, Exports, NoExport};
use super::eyes::Eyes;
use super::fail::Fail;
use super::means::Writing;
use super::tree::{Node, Tree};
use crate::store::door::Wait;

/// A call that is carried out.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The files.
    pub tree: &'a Tree,
    /// Who may have them.
    pub exports: &'a Exports,
    /// That of all handles.
    pub key: &'a Key,
    /// The call's number.
    pub xid: u32,
    /// Who says that he calls.
    pub credential: Credential<'a>,
    /// From where.
    pub from: IpAddr,
    /// Whether the disk may be waited for.
    pub wait: Wait,
    /// What it takes to change files, if an export may be changed.
    pub writing: Option<&'a Writing>,
    /// What a WRITE brings.
    pub payload: &'a [u8],
}

/// A file of an export, for its caller.
pub struct There<'a> {
    /// The file.
    pub node: Node,
    /// The export.
    pub export: &'a Export,
    /// The caller, as the export has him.
    pub caller: Caller,
}

impl<'a> Call<'a> {
    /// Whether the export of a handle may be changed: what that takes.
    pub fn changes(&self, handle: Handle<'_>) -> Option<&'a Writing> {
        let file = ackpace_wire::nfs3::handle::open(self.key, handle.0)?;
        let export = self.exports.of_number(file.export, self.from).ok()?;
        self.writing.filter(|_| export.spec.is_writable)
    }

    /// The file of a handle.
    pub fn find(&self, handle: Handle<'_>) -> Result<There<'a>, Fail> {
        let stale = Fail::Is(Status::Stale);
        let file = ackpace_wire::nfs3::handle::open(self.key, handle.0).ok_or(stale)?;
        let export = self.exports.of_number(file.export, self.from);
        let export = export.map_err(|why| match why {
            NoExport::Unknown => stale,
            NoExport::Refused => Fail::Is(Status::Acces),
        })?;
        let caller = Caller::new(&self.credential, &export.spec);
        let node = self.tree.find(&file, self.eyes(export, &caller))?;
        if !export.has(&node.path) {
            return Err(stale); // it was moved out
        }
        Ok(There {
            node,
            export,
            caller,
        })
    }

    /// With whose rights files of an export are found.
    fn eyes<'e>(&self, export: &Export, caller: &'e Caller) -> Eyes<'e>
    where
        'a: 'e,
    {
        let writing = self.writing.filter(|_| export.spec.is_writable);
        Eyes {
            wait: self.wait,
            caller: writing.map(|writing| (&writing.broker, caller)),
        }
    }

    /// The same, for further files of a call.
    pub fn eyes_of<'e>(&self, there: &'e There<'a>) -> Eyes<'e> {
        self.eyes(there.export, &there.caller)
    }

    /// The same, of a folder.
    pub fn find_folder(&self, handle: Handle<'_>) -> Result<There<'a>, Fail> {
        let there = self.find(handle)?;
        match there.node.kind() {
            Kind::Folder => Ok(there),
            _ => Err(Fail::Is(Status::NotDir)),
        }
    }

    /// A procedure that asks the disk.
    pub fn waits(&self) -> Result<(), Fail> {
        match self.wait {
            Wait::No => Err(Fail::Cold),
            Wait::Yes | Wait::Long => Ok(()),
        }
    }
}

impl There<'_> {
    /// Whether it is the folder of the export.
    pub fn is_top(&self) -> bool {
        *self.node.path == *self.export.folder()
    }

    /// The handle of a file of the same export.
    pub fn seal(&self, node: &Node, key: &Key) -> Result<Sealed, Fail> {
        node.seal(key, self.export.number)
    }

    /// Whether the file's mode gives the caller a right.
    pub fn may(&self, right: u16) -> Result<(), Fail> {
        match self.caller.may(&self.node.told, right) {
            true => Ok(()),
            false => Err(Fail::Is(Status::Acces)),
        }
    }
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
