//! The socket at which servers learn of the mount: one greeting to each, and then the line stays open until the mount goes.

use std::fs;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use ackpace_host_base::failure::Failure;
use ackpace_wire::gateway::Hello;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    self, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};

use crate::handoff::door::refuse_if_heard;
use crate::handoff::options::User;

/// Groups of servers may connect.
const MODE: u32 = 0o660;
/// Of the socket's folder, if it has to be made: servers may pass.
const FOLDER_MODE: u32 = 0o755;
/// Servers at a time, those that are being replaced included. More: they are shown out.
const SERVERS_MAX: usize = 16;

/// A door that listens.
pub struct Door {
    listener: OwnedFd,
    path: PathBuf,
    users: Vec<User>,
    servers: Vec<OwnedFd>,
}

impl Door {
    /// Opens it. A file that a killed instance left is replaced.
    ///
    /// # Errors
    /// The folder is not there, or can't be written. Or another gateway listens there: its --runtime is another one.
    pub fn open(path: &Path, users: &[User]) -> Result<Door, Failure> {
        let failed =
            |error: io::Error| Failure::operator(format!("--socket {}: {error}", path.display()));
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir_all(folder).map_err(failed)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE)).map_err(failed)?;
        }
        refuse_if_heard(path)?;
        let _ = fs::remove_file(path);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let bound = || {
            let listener =
                net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            net::bind(&listener, &SocketAddrUnix::new(path)?)?;
            net::listen(&listener, SERVERS_MAX as i32)?;
            Ok::<_, rustix::io::Errno>(listener)
        };
        let listener = bound().map_err(|error| failed(error.into()))?;
        if let Some(user) = users.first() {
            chown(path, None, Some(user.gid)).map_err(failed)?;
        }
        // A second user is of another group; SO_PEERCRED says who may stay.
        let mode = if users.len() > 1 { 0o666 } else { MODE };
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)?;
        Ok(Door {
            listener,
            path: path.to_owned(),
            users: users.to_vec(),
            servers: Vec::new(),
        })
    }

    /// For poll(2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Greets who has come, and forgets who has gone.
    pub fn serve(&mut self, hello: &Hello, counters: BorrowedFd<'_>) {
        self.servers.retain(|server| !is_gone(server));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        while let Ok(server) = net::accept_with(&self.listener, flags) {
            if self.is_welcome(&server)
                && self.servers.len() < SERVERS_MAX
                && greet(&server, hello, counters).is_ok()
            {
                self.servers.push(server);
            }
        }
    }

    fn is_welcome(&self, server: &OwnedFd) -> bool {
        net::sockopt::socket_peercred(server).is_ok_and(|peer| {
            let uid = peer.uid.as_raw();
            peer.uid.is_root() || self.users.iter().any(|user| user.uid == uid)
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn is_gone(server: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(server, PollFlags::empty())];
    let polled = poll(&mut fds, Some(&Timespec::default()));
    polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

fn greet(server: &OwnedFd, hello: &Hello, counters: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let counters = [counters];
    beside.push(SendAncillaryMessage::ScmRights(&counters));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    net::sendmsg(server, &[IoSlice::new(&hello.encode())], &mut beside, flags)?;
    Ok(())
}
