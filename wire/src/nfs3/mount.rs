//! MOUNT version 3: from a path to the handle of its folder (RFC 1813 appendix I). No list of mounts is kept: it would tell who
//! has asked once, not who is there.

use crate::limits::NFS_MOUNT_PATH_BYTES_MAX;
use crate::rpc::xdr::{Put, Reader};
use crate::rpc::{self, AUTH_SYS, Bad};

use super::types::Handle;

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountArgs<'a> {
    /// Nothing; it shows that the server is there.
    Null,
    /// The handle of this path.
    Mount(&'a [u8]),
    /// Who has mounted what?
    Dump,
    /// It is no longer used.
    Unmount(&'a [u8]),
    /// Nothing is.
    UnmountAll,
    /// What can be mounted?
    Export,
}

/// Why a path is not mounted (mountstat3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // the names of RFC 1813 appendix I, without MNT3ERR_
pub enum MountStatus {
    Perm = 1,
    NoEnt = 2,
    Io = 5,
    Acces = 13,
    NotDir = 20,
    Inval = 22,
    NameTooLong = 63,
    NotSupp = 10004,
    ServerFault = 10006,
}

/// A path that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export<'a> {
    /// Its name to clients.
    pub path: &'a [u8],
    /// Networks and hosts that may, as text; none: everybody.
    pub clients: &'a [&'a [u8]],
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountResults<'a> {
    /// NULL, UMNT, UMNTALL.
    Void,
    /// MNT. The handle comes with the one flavor of credentials that tells users: AUTH_SYS.
    Mount(Result<Handle<'a>, MountStatus>),
    /// DUMP: nothing is known.
    Dump,
    /// EXPORT.
    Export(&'a [Export<'a>]),
}

/// Reads the arguments of a procedure; `None`: there is no such procedure.
pub(super) fn read<'a>(procedure: u32, bytes: &'a [u8]) -> Option<Result<MountArgs<'a>, Bad>> {
    let path = || Reader(bytes).opaque(NFS_MOUNT_PATH_BYTES_MAX);
    Some(match procedure {
        0 => Ok(MountArgs::Null),
        1 => path().map(MountArgs::Mount),
        2 => Ok(MountArgs::Dump),
        3 => path().map(MountArgs::Unmount),
        4 => Ok(MountArgs::UnmountAll),
        5 => Ok(MountArgs::Export),
        _ => return None,
    })
}

/// Appends a reply.
pub fn mount_reply(xid: u32, results: &MountResults<'_>, to: &mut Vec<u8>) {
    let start = rpc::begin(xid, to);
    match results {
        MountResults::Void => {}
        MountResults::Mount(Ok(folder)) => {
            to.put_u32(0); // MNT3_OK
            to.put_opaque(folder.0);
            to.put_u32(1); // one flavor
            to.put_u32(AUTH_SYS);
        }
        MountResults::Mount(Err(status)) => to.put_u32(*status as u32),
        MountResults::Dump => to.put_bool(false),
        MountResults::Export(exports) => {
            for export in *exports {
                to.put_bool(true);
                to.put_opaque(export.path);
                for client in export.clients {
                    to.put_bool(true);
                    to.put_opaque(client);
                }
                to.put_bool(false);
            }
            to.put_bool(false);
        }
    }
    rpc::end(start, 0, to);
}
