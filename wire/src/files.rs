//! What a server asks of the broker of files on its machine, `ackpace-host files`, and the answers. The broker changes files with
//! the rights of a client's user, which the server has not, and decides nothing.
//!
//! They talk by datagrams (unix(7), SOCK_SEQPACKET): one question, then its answer. A descriptor travels beside some answers
//! ([`Reply::has_descriptor`]), as SCM_RIGHTS. Both run on one machine.
//!
//! Files are named below the folder that the broker was given, by a path without links and by what the server knows of the file
//! there ([`Known`]): another file at that path is left alone.

mod codec;
#[cfg(test)]
mod tests;

pub use self::codec::{encode_reply, encode_request, parse_reply, parse_request};

use crate::nfs3::{Device, SetAttributes, Time, Verifier};

/// The version of these messages. Both sides have the same.
pub const VERSION: u32 = 1;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who is there? First on each line.
    Hello,
    /// Do this with this user's rights, and nothing if the thread can't have exactly those.
    Do(User, Operation),
}

/// A client's user, as its export has him.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group that his files get.
    pub gid: u32,
    /// Further groups, at most [`RPC_GROUPS_MAX`](crate::limits::RPC_GROUPS_MAX).
    pub gids: Vec<u32>,
}

impl User {
    /// Whether it is root, or has a group of root's.
    pub fn is_root(&self) -> bool {
        self.uid == 0 || self.gid == 0 || self.gids.contains(&0)
    }
}

/// A file by its path below the broker's folder, and which one it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Names with slashes between them, none of which is `.` or `..`; empty for the folder itself.
    pub path: Vec<u8>,
    /// Its file system (st_dev).
    pub device: u64,
    /// Its number there (st_ino).
    pub inode: u64,
}

/// A name in a folder, where something is made or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spot {
    /// The folder.
    pub folder: Known,
    /// One name: no slash, no zero byte, neither `.` nor `..`.
    pub name: Vec<u8>,
}

/// What a user does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Looks at what is at a path, as in [`Known`]: its descriptor is a place (O_PATH).
    Look(Vec<u8>),
    /// Opens a file that is there.
    Open(Known, For),
    /// Makes a regular file, or finds it, and opens it for writing.
    Create(Spot, How),
    /// Makes a folder.
    MakeFolder(Spot, SetAttributes),
    /// Makes a symbolic link that says this.
    MakeLink(Spot, Vec<u8>, SetAttributes),
    /// Makes a device, a socket or a pipe.
    MakeNode(Spot, Node, SetAttributes),
    /// Removes a file that is no folder.
    Remove(Spot),
    /// Removes a folder.
    RemoveFolder(Spot),
    /// Renames, from there to there.
    Rename(Spot, Spot),
    /// Gives a file one more name.
    AddName(Known, Spot),
    /// Sets attributes, only if the guard is the file's ctime.
    Set(Known, SetAttributes, Option<Time>),
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum For {
    /// Reading a regular file or a folder.
    Reading = 1,
    /// Writing a regular file.
    Writing = 2,
}

/// How a file is made, as RFC 1813 section 3.3.8 has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// One that is there is opened, and gets the length alone.
    Unchecked(SetAttributes),
    /// One that is there is EEXIST.
    Guarded(SetAttributes),
    /// One that is there is EEXIST, unless it was made with the same number.
    Exclusive(Verifier),
}

/// What [`Operation::MakeNode`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A block device.
    Block(Device),
    /// A character device.
    Character(Device),
}

/// What a broker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Who it is.
    Here {
        /// The file system of its folder (st_dev).
        device: u64,
        /// The number of its folder (st_ino).
        inode: u64,
        /// It does what root asks.
        allows_root: bool,
    },
    /// That is done.
    Done,
    /// The descriptor is beside.
    Opened {
        /// [`Operation::Create`] has made it.
        is_new: bool,
    },
    /// [`Operation::Create`] has found a file that this user may not write. There is no descriptor.
    Found,
    /// The guard is another time than the file's ctime.
    NotSync,
    /// Another file is at the path, or none.
    Moved,
    /// It is not done.
    Failed {
        /// errno of the system call that failed.
        errno: i32,
    },
}

impl Reply {
    /// Whether a descriptor travels beside.
    pub fn has_descriptor(&self) -> bool {
        matches!(self, Reply::Opened { .. })
    }
}
