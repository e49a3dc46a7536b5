//! Who calls, after squashing, and what the permissions of a file let him do.
//!
//! The server opens files with its own rights, so it checks the mode bits for the caller. It knows no access control lists: where
//! a file has one, its group bits are what the list grants at most.

use ackpace_wire::files::User;
use ackpace_wire::rpc::Credential;
use rustix::fs::Statx;
use smallvec::SmallVec;

use crate::options::{ExportSpec, Squash};

/// The right to read, in the lowest three bits of a mode.
pub const READ: u16 = 4;
/// The right to write a file, or names into a folder.
pub const WRITE: u16 = 2;
/// The right to execute a file or to search a folder.
pub const EXECUTE: u16 = 1;

/// A user with his groups, the first of which is the one that files of his get.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    uid: u32,
    gids: SmallVec<[u32; 17]>,
}

impl Caller {
    /// The user of a credential, as the export has him. What a client says of its users is believed, as AUTH_SYS goes.
    pub fn new(credential: &Credential<'_>, export: &ExportSpec) -> Caller {
        let anonymous = || Caller {
            uid: export.anonuid,
            gids: SmallVec::from_slice(&[export.anongid]),
        };
        let Credential::Sys(sys) = credential else {
            return anonymous();
        };
        let squashed = |id: u32, anonymous: u32| match export.squash {
            Squash::Root if id == 0 => anonymous,
            Squash::Root | Squash::None | Squash::All => id,
        };
        if export.squash == Squash::All {
            return anonymous();
        }
        let gids = [sys.gid].into_iter().chain(sys.gids().iter().copied());
        Caller {
            uid: squashed(sys.uid, export.anonuid),
            gids: gids.map(|gid| squashed(gid, export.anongid)).collect(),
        }
    }

    /// The same for the broker.
    pub fn user(&self) -> User {
        let (gid, gids) = self
            .gids
            .split_first()
            .map_or((u32::MAX, &[][..]), |(gid, gids)| (*gid, gids));
        User {
            uid: self.uid,
            gid,
            gids: gids.to_vec(),
        }
    }

    /// Whether the file's mode gives this right: [`READ`], [`WRITE`] or [`EXECUTE`].
    pub fn may(&self, file: &Statx, right: u16) -> bool {
        let mode = file.stx_mode;
        if self.uid == 0 {
            // Root executes what anybody may.
            let is_folder = mode & libc::S_IFMT as u16 == libc::S_IFDIR as u16;
            return right & EXECUTE == 0 || is_folder || mode & 0o111 != 0;
        }
        let bits = if self.owns(file) {
            mode >> 6
        } else if self.gids.contains(&file.stx_gid) {
            mode >> 3
        } else {
            mode
        };
        bits & right == right
    }

    /// Whether a READ of the file is carried out. The owner may always: his client has checked when it opened the file, and the
    /// mode may have changed since. Who may execute it may read it, since a client reads it for that.
    pub fn may_read_content(&self, file: &Statx) -> bool {
        self.owns(file) || self.may(file, READ) || self.may(file, EXECUTE)
    }

    /// Whether the file is the caller's.
    pub fn owns(&self, file: &Statx) -> bool {
        self.uid == file.stx_uid
    }
}

#[cfg(test)]
mod tests {
    use ackpace_wire::rpc::Sys;
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

    use super::*;
    use crate::options::Network;

    fn caller(squash: Squash, uid: u32, gid: u32, gids: &[u32]) -> Caller {
        let mut export = ExportSpec::new("/", vec![Network::Any]);
        (export.squash, export.anonuid, export.anongid) = (squash, 70, 80);
        Caller::new(&Credential::Sys(Sys::new(b"", uid, gid, gids)), &export)
    }

    fn ids(caller: &Caller) -> (u32, &[u32]) {
        (caller.uid, &caller.gids)
    }

    #[test]
    fn users_are_squashed_as_the_export_says() {
        let root = caller(Squash::Root, 0, 0, &[0, 5]);
        assert_eq!(ids(&root), (70, &[80, 80, 5][..]));
        assert_eq!(
            ids(&caller(Squash::Root, 9, 0, &[])),
            (9, &[80][..]),
            "a user in root's group"
        );
        assert_eq!(ids(&caller(Squash::None, 0, 0, &[5])), (0, &[0, 5][..]));
        assert_eq!(ids(&caller(Squash::All, 9, 9, &[5])), (70, &[80][..]));
        let export = ExportSpec::new("/", vec![Network::Any]);
        let nobody = Caller::new(&Credential::Nobody, &export);
        assert_eq!(ids(&nobody), (65_534, &[65_534][..]));
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let mut file = statx(CWD, c"/", AtFlags::empty(), StatxFlags::BASIC_STATS).expect("/");
        (file.stx_uid, file.stx_gid) = (1, 2);
        let mut may = |mode: u16, who: &Caller, right| {
            file.stx_mode = libc::S_IFREG as u16 | mode;
            who.may(&file, right)
        };
        let (owner, member, other, root) = (
            caller(Squash::None, 1, 2, &[]),
            caller(Squash::None, 3, 9, &[8, 2]),
            caller(Squash::None, 3, 3, &[]),
            caller(Squash::None, 0, 0, &[]),
        );
        assert!(may(0o400, &owner, READ) && !may(0o077, &owner, READ));
        assert!(may(0o040, &member, READ) && !may(0o707, &member, READ));
        assert!(may(0o004, &other, READ) && !may(0o770, &other, READ));
        assert!(may(0, &root, READ) && !may(0o666, &root, EXECUTE) && may(0o010, &root, EXECUTE));
        file.stx_mode = libc::S_IFREG as u16;
        assert!(owner.may_read_content(&file) && !member.may_read_content(&file));
        file.stx_mode |= 0o010;
        assert!(member.may_read_content(&file) && !member.may(&file, READ));
        file.stx_mode = libc::S_IFDIR as u16;
        assert!(root.may(&file, EXECUTE) && !other.may(&file, EXECUTE));
    }
}
