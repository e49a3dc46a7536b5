//! Why a procedure has no file to work with.

use ackpace_wire::nfs3::Status;
use rustix::io::Errno;

use crate::store::door::Miss;

/// Why there is no file, or why it can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fail {
    /// Ask again with [`Wait::Yes`](crate::store::door::Wait::Yes).
    Cold,
    /// This is answered.
    Is(Status),
}

impl From<Status> for Fail {
    fn from(status: Status) -> Fail {
        Fail::Is(status)
    }
}

impl From<Miss> for Fail {
    /// For the name of a call: a handle that leads to nothing is stale.
    fn from(miss: Miss) -> Fail {
        Fail::Is(match miss {
            Miss::Cold => return Fail::Cold,
            Miss::NotFound | Miss::Hidden => Status::NoEnt,
            Miss::Astray(_) => Status::Stale, // a folder on the way was replaced by a link
            Miss::Forbidden(_) => Status::Acces,
            Miss::Exhausted | Miss::Leased => Status::Jukebox,
            Miss::Failed(Errno::STALE) => Status::Stale,
            Miss::Failed(_) => Status::Io,
        })
    }
}
