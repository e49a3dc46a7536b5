//! Replies to READDIR and READDIRPLUS, which end where the client has no more room (RFC 1813 sections 3.3.16 and 3.3.17).

use super::args::ReadDir;
use super::results::{Results, reply};
use super::types::{Attributes, Handle, Status, Verifier, put_attributes};
use crate::limits::NFS_LISTING_BYTES_MAX;
use crate::rpc;
use crate::rpc::xdr::Put;

/// Bytes of the end of the list, and of whether it is the folder's end.
const END_BYTES: usize = 8;

/// A name in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The file in its file system.
    pub file_id: u64,
    /// Its name.
    pub name: &'a [u8],
    /// What the client gives to go on behind this name. Not 0.
    pub cookie: u64,
    /// Its attributes, for READDIRPLUS. Without: the client asks for them.
    pub attributes: Option<Attributes>,
    /// Its handle, for READDIRPLUS. Without: the client looks the name up.
    pub file: Option<Handle<'a>>,
}

/// A reply in the making.
#[derive(Debug)]
pub struct Listing<'v> {
    to: &'v mut Vec<u8>,
    xid: u32,
    folder: Option<Attributes>,
    has_attributes: bool,
    /// Where the reply starts in `to`.
    start: usize,
    /// Where that starts what the client's bound is for (READDIR3resok, READDIRPLUS3resok).
    counted: usize,
    /// That bound, or ours.
    len_bytes_max: usize,
    /// What remains for names: `dircount`.
    names_bytes_left: usize,
    entries: usize,
}

impl<'v> Listing<'v> {
    /// Begins a reply, with the folder's attributes.
    pub fn begin(
        xid: u32,
        asked: &ReadDir<'_>,
        verifier: Verifier,
        folder: Option<Attributes>,
        to: &'v mut Vec<u8>,
    ) -> Listing<'v> {
        let start = rpc::begin(xid, to);
        to.put_u32(0); // NFS3_OK
        let counted = to.len();
        put_attributes(folder.as_ref(), to);
        to.extend(verifier);
        let bounded = |bytes: u32| bytes.min(NFS_LISTING_BYTES_MAX) as usize;
        Listing {
            to,
            xid,
            folder,
            has_attributes: asked.has_attributes,
            start,
            counted,
            len_bytes_max: bounded(asked.len_bytes_max),
            names_bytes_left: bounded(asked.names_bytes_max),
            entries: 0,
        }
    }

    /// Appends a name. `false`: there is no room for it, and the listing ends before it.
    pub fn push(&mut self, entry: &Entry<'_>) -> bool {
        let before = self.to.len();
        self.to.put_bool(true);
        self.to.put_u64(entry.file_id);
        self.to.put_opaque(entry.name);
        self.to.put_u64(entry.cookie);
        let name_bytes = self.to.len() - before;
        if self.has_attributes {
            put_attributes(entry.attributes.as_ref(), self.to);
            let put = |to: &mut Vec<u8>, file: Handle<'_>| to.put_opaque(file.0);
            self.to.put_optional(entry.file, put);
        }
        // `dircount` is a hint: one name is sent if there is room for it at all, since the client would not get further.
        let is_hinted = name_bytes <= self.names_bytes_left || self.entries == 0;
        if self.len_bytes() + END_BYTES > self.len_bytes_max || !is_hinted {
            self.to.truncate(before);
            return false;
        }
        self.names_bytes_left = self.names_bytes_left.saturating_sub(name_bytes);
        self.entries += 1;
        true
    }

    /// Ends the reply. Without room for one name it says so (NFS3ERR_TOOSMALL).
    pub fn end(self, is_folders_end: bool) {
        let is_stuck = self.entries == 0 && !is_folders_end;
        if is_stuck || self.len_bytes() + END_BYTES > self.len_bytes_max {
            self.to.truncate(self.start);
            let failed = Results::ReadDir(Status::TooSmall, self.folder);
            reply(self.xid, &failed, self.to);
            return;
        }
        self.to.put_bool(false);
        self.to.put_bool(is_folders_end);
        rpc::end(self.start, 0, self.to);
    }

    fn len_bytes(&self) -> usize {
        self.to.len() - self.counted
    }
}
