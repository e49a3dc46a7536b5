//! MOUNT: from a path to the handle of its folder.

use std::net::IpAddr;

use ackpace_wire::nfs3::handle::Sealed;
use ackpace_wire::nfs3::{Handle, Kind, MountArgs, MountResults, MountStatus, Status, mount_reply};

use super::call::Call;
use super::exports::{Export, Exports, NoExport};
use super::fail::Fail;
use super::identity::parts;
use super::outcome::Outcome;

/// Carries out a call of MOUNT.
pub fn carry_out(call: &Call<'_>, args: &MountArgs<'_>) -> Outcome {
    answer(call.xid, call.exports, args, |path| folder(call, path))
}

/// The same, where `folder` finds the handle of the folder of a path.
pub fn answer(
    xid: u32,
    exports: &Exports,
    args: &MountArgs<'_>,
    folder: impl FnOnce(&[u8]) -> Result<Sealed, Fail>,
) -> Outcome {
    let mut to = Vec::new();
    match args {
        MountArgs::Null | MountArgs::Unmount(_) | MountArgs::UnmountAll => {
            mount_reply(xid, &MountResults::Void, &mut to);
        }
        MountArgs::Dump => mount_reply(xid, &MountResults::Dump, &mut to),
        MountArgs::Export => exports.listed(|exports| {
            mount_reply(xid, &MountResults::Export(exports), &mut to);
        }),
        MountArgs::Mount(path) => {
            let folder = match folder(path) {
                Ok(sealed) => Ok(sealed),
                Err(Fail::Cold) => return Outcome::Cold,
                Err(Fail::Is(status)) => Err(of(status)),
            };
            let folder = folder.as_ref();
            let handle = folder.map(|sealed| Handle(sealed.as_bytes()));
            let results = MountResults::Mount(handle.map_err(|status| *status));
            mount_reply(xid, &results, &mut to);
        }
    }
    Outcome::Reply(to)
}

/// An export's folder, or one below it. No link is followed: a path that needs one is not found.
fn folder(call: &Call<'_>, path: &[u8]) -> Result<Sealed, Fail> {
    let (path, export) = exported(call.exports, path, call.from)?;
    let node = call.tree.by_path(&path, call.wait)?;
    match node.kind() {
        Kind::Folder => node.seal(call.key, export.number),
        _ => Err(Fail::Is(Status::NotDir)),
    }
}

/// The path of a folder to mount, and the export that has it for this client.
pub fn exported<'e>(
    exports: &'e Exports,
    path: &[u8],
    client: IpAddr,
) -> Result<(Vec<u8>, &'e Export), Fail> {
    let acces = Fail::Is(Status::Acces);
    // libnfs mounts the empty path for nfs://host/file.
    let is_absolute = path.is_empty() || path.starts_with(b"/");
    if !is_absolute || parts(path).any(|name| matches!(name, b"." | b"..")) {
        return Err(acces);
    }
    let path = parts(path).collect::<Vec<_>>().join(&b'/');
    let export = exports.of_folder(&path, client);
    let export = export.map_err(|why| match why {
        NoExport::Unknown => Fail::Is(Status::NoEnt),
        NoExport::Refused => acces,
    })?;
    Ok((path, export))
}

/// MOUNT has fewer reasons.
fn of(status: Status) -> MountStatus {
    match status {
        Status::NoEnt | Status::Stale => MountStatus::NoEnt,
        Status::Acces => MountStatus::Acces,
        Status::NotDir => MountStatus::NotDir,
        Status::NameTooLong => MountStatus::NameTooLong,
        Status::Io => MountStatus::Io,
        _ => MountStatus::ServerFault,
    }
}
