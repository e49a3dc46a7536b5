//! LOOKUP, ACCESS and READLINK.

use ackpace_wire::limits::NFS_PATH_BYTES_MAX;
use ackpace_wire::nfs3::{Found, Handle, Kind, Place, Results, Status, access, reply};
use rustix::fs::readlinkat;

use super::call::{Call, There};
use super::caller::{EXECUTE, READ, WRITE};
use super::fail::Fail;
use super::tree::Node;
use crate::store::door::Miss;

/// LOOKUP: the file of a name. A name that clients do not see is none.
pub fn lookup(call: &Call<'_>, place: &Place<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
    let folder = call.find_folder(place.folder)?;
    let attributes = Some(folder.node.attributes());
    let found = named(call, &folder, place).and_then(|node| {
        let sealed = folder.seal(&node, call.key)?;
        Ok((node, sealed))
    });
    let found = match &found {
        Ok((node, sealed)) => Ok(Found {
            file: Handle(sealed.as_bytes()),
            attributes: Some(node.attributes()),
        }),
        Err(Fail::Cold) => return Err(Fail::Cold),
        Err(Fail::Is(status)) => Err(*status),
    };
    reply(call.xid, &Results::Lookup(found, attributes), to);
    Ok(())
}

fn named(call: &Call<'_>, folder: &There<'_>, place: &Place<'_>) -> Result<Node, Fail> {
    folder.may(EXECUTE)?;
    let name = place.name.check()?;
    match name {
        b"." => Ok(folder.node.clone()),
        b".." if folder.is_top() => Ok(folder.node.clone()),
        b".." => {
            let above = folder.node.path.iter().rposition(|byte| *byte == b'/');
            let above = &folder.node.path[..above.unwrap_or(0)];
            call.tree.by_path(above, call.eyes_of(folder))
        }
        name => call
            .tree
            .below(&folder.node, name, true, call.eyes_of(folder)),
    }
}

/// ACCESS: what the mode lets the caller do, as far as the export does.
pub fn access(call: &Call<'_>, file: Handle<'_>, mask: u32, to: &mut Vec<u8>) -> Result<(), Fail> {
    let there = call.find(file)?;
    let is_folder = there.node.kind() == Kind::Folder;
    let mut bits = 0;
    if there.may(READ).is_ok() {
        bits |= access::READ;
    }
    if there.may(EXECUTE).is_ok() {
        bits |= if is_folder {
            access::LOOKUP
        } else {
            access::EXECUTE
        };
    }
    if there.export.spec.is_writable && there.may(WRITE).is_ok() {
        bits |= access::MODIFY | access::EXTEND;
        if is_folder {
            bits |= access::DELETE;
        }
    }
    let attributes = Some(there.node.attributes());
    reply(call.xid, &Results::Access(Ok(bits & mask), attributes), to);
    Ok(())
}

/// READLINK: what a symbolic link says. Where it leads is the client's business.
pub fn read_link(call: &Call<'_>, file: Handle<'_>, to: &mut Vec<u8>) -> Result<(), Fail> {
    let there = call.find(file)?;
    if there.node.kind() != Kind::Link {
        return Err(Fail::Is(Status::Inval));
    }
    call.waits()?;
    let target = readlinkat(&*there.node.place, c"", Vec::new());
    let target = target.map_err(Miss::Failed)?;
    let target = target.as_bytes();
    if target.len() > NFS_PATH_BYTES_MAX {
        return Err(Fail::Is(Status::NameTooLong));
    }
    let attributes = Some(there.node.attributes());
    reply(call.xid, &Results::ReadLink(Ok(target), attributes), to);
    Ok(())
}
