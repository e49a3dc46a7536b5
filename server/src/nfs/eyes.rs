//! With whose rights files are found and opened: the server's and, where those do not suffice and an export may be changed, the
//! caller's, by the broker. Otherwise a client could make what it can't read again.

use std::os::fd::OwnedFd;

use ackpace_wire::files::{For, Known, Operation};
use ackpace_wire::nfs3::Status;
use rustix::io::Errno;

use super::broker::{Broker, Told};
use super::caller::Caller;
use crate::store::door::{Miss, Wait};

/// How files are looked for.
#[derive(Clone, Copy)]
pub struct Eyes<'a> {
    /// Whether the disk may be waited for.
    pub wait: Wait,
    /// Whose rights there are besides the server's.
    pub caller: Option<(&'a Broker, &'a Caller)>,
}

impl From<Wait> for Eyes<'_> {
    /// With the server's rights alone.
    fn from(wait: Wait) -> Self {
        Eyes { wait, caller: None }
    }
}

impl Eyes<'_> {
    /// A descriptor that the server's rights did not suffice for, as by this operation; the error otherwise.
    fn instead(
        &self,
        error: Errno,
        operation: impl FnOnce() -> Operation,
    ) -> Result<OwnedFd, Miss> {
        let (Errno::ACCESS, Some((broker, caller))) = (error, self.caller) else {
            return Err(Miss::of(error, self.wait));
        };
        if self.wait == Wait::No {
            return Err(Miss::Cold);
        }
        match broker.ask(caller.user(), operation()) {
            Ok(Told::Opened(file)) => Ok(file),
            Ok(_) => Err(Miss::NotFound),
            Err(Status::Jukebox) => Err(Miss::Exhausted),
            Err(_) => Err(Miss::of(error, self.wait)),
        }
    }

    /// What is at a path below the served directory, open as a place.
    pub fn look(&self, error: Errno, path: &[u8]) -> Result<OwnedFd, Miss> {
        self.instead(error, || Operation::Look(path.to_vec()))
    }

    /// A file or folder, open for reading.
    pub fn read(&self, error: Errno, file: Known) -> Result<OwnedFd, Miss> {
        self.instead(error, || Operation::Open(file, For::Reading))
    }
}
