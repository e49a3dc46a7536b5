//! READDIR and READDIRPLUS.
//!
//! A cookie is the kernel's own position in the folder (getdents64(2), d_off), which the file system keeps valid while names come and
//! go. So nothing is remembered between two calls, and a call reads little more than it tells: a folder of any length is read in
//! a time that grows with its length.

use std::mem::MaybeUninit;

use ackpace_wire::limits::NFS_LISTING_BYTES_MAX;
use ackpace_wire::nfs3::{Entry, Handle, Listing, ReadDir, Status};
use rustix::fs::{RawDir, SeekFrom, seek};
use rustix::io::Errno;

use super::call::{Call, There};
use super::caller::{EXECUTE, READ};
use super::fail::Fail;
use super::tree::close_here;
use crate::store::door::Miss;

/// Bytes of names that are read at once at least: some four of the longest.
const ROOM_BYTES_LEAST: usize = 1 << 10;

/// READDIR and READDIRPLUS. Waits for the disk.
pub fn list(call: &Call<'_>, asked: &ReadDir<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
    let folder = call.find_folder(asked.folder)?;
    folder.may(READ)?;
    call.waits()?;
    let names = call.tree.open_folder(&folder.node, call.eyes_of(&folder))?;
    if asked.cookie != 0 {
        let sought = i64::try_from(asked.cookie).map_err(|_| Errno::INVAL);
        let sought = sought.and_then(|_| seek(&names, SeekFrom::Start(asked.cookie)));
        sought.map_err(|_| Fail::Is(Status::BadCookie))?;
    }
    // The kernel's entries are as long as those of READDIR, about.
    let room_bytes = asked.len_bytes_max.min(NFS_LISTING_BYTES_MAX / 2) as usize;
    let mut room = vec![MaybeUninit::uninit(); room_bytes.max(ROOM_BYTES_LEAST)];
    let mut names = RawDir::new(names, &mut room);
    let attributes = Some(folder.node.attributes());
    let start = to.len();
    let mut listing = Listing::begin(call.xid, asked, [0; 8], attributes, to);
    let is_end = loop {
        #[cfg(test)]
        if names.is_buffer_empty() {
            tests::count_read();
        }
        let Some(entry) = names.next() else {
            break true;
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::INTR) => continue,
            Err(error) => {
                listing.end(true);
                to.truncate(start);
                return Err(match error {
                    Errno::NOENT => Fail::Is(Status::Stale), // it was removed
                    error => Miss::Failed(error).into(),
                });
            }
        };
        let (name, file_id, cookie) = (
            entry.file_name().to_bytes(),
            entry.ino(),
            entry.next_entry_cookie(),
        );
        match told(call, &folder, asked, name, file_id) {
            Some(told) if !told.push(name, cookie, &mut listing) => break false,
            _ => {}
        }
    };
    listing.end(is_end);
    Ok(())
}

/// What is told of a name.
struct Told {
    file_id: u64,
    attributes: Option<ackpace_wire::nfs3::Attributes>,
    handle: Option<ackpace_wire::nfs3::handle::Sealed>,
}

impl Told {
    fn push(&self, name: &[u8], cookie: u64, to: &mut Listing<'_>) -> bool {
        to.push(&Entry {
            file_id: self.file_id,
            name,
            cookie,
            attributes: self.attributes,
            file: self.handle.as_ref().map(|sealed| Handle(sealed.as_bytes())),
        })
    }
}

/// `None`: clients do not see the name, or it is gone.
fn told(
    call: &Call<'_>,
    folder: &There<'_>,
    asked: &ReadDir<'_>,
    name: &[u8],
    file_id: u64,
) -> Option<Told> {
    let bare = Told {
        file_id,
        attributes: None,
        handle: None,
    };
    let own_id = folder.node.told.stx_ino;
    let node = match name {
        b"." => folder.node.clone(),
        // Above the export is nothing.
        b".." if folder.is_top() => {
            return Some(Told {
                file_id: own_id,
                ..bare
            });
        }
        b".." => return Some(bare),
        name if call.tree.hides(name) => return None,
        // Without the right to search, names are all that the caller sees.
        _ if !asked.has_attributes || folder.may(EXECUTE).is_err() => return Some(bare),
        name => match call
            .tree
            .below(&folder.node, name, false, call.eyes_of(folder))
        {
            Ok(node) => node,
            Err(Fail::Is(Status::NoEnt)) => return None,
            Err(_) => return Some(bare),
        },
    };
    let told = Told {
        file_id: node.told.stx_ino,
        attributes: Some(node.attributes()),
        handle: folder.seal(&node, call.key).ok(),
    };
    close_here(node.place); // this thread may wait
    Some(told)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
pub mod tests;
