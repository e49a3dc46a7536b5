//! The socket at which one server at a time asks: datagrams, with a descriptor beside some (unix(7), SOCK_SEQPACKET).

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use ackpace_host_base::failure::Failure;
use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use super::options::User;

/// The server's group may connect.
const MODE: u32 = 0o660;
/// Of the socket's folder, if it has to be made: the server may pass.
const FOLDER_MODE: u32 = 0o755;
/// Servers that wait until the present one has ended: one that is being replaced. More: connect(2) waits, or fails.
const WAITING_MAX: i32 = 4;
/// Descriptors that a datagram may have. One is asked for; a second one shows that the sender is no server of ours.
const DESCRIPTORS_MAX: usize = 2;

/// A door that listens.
pub struct Door {
    listener: OwnedFd,
    path: PathBuf,
    user: User,
}

impl Door {
    /// Opens it. A file that a killed instance left is replaced: the caller has the lock.
    ///
    /// # Errors
    /// The folder is not there, or can't be written.
    pub fn open(path: &Path, user: User) -> Result<Door, Failure> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                Failure::operator(format!("{}: {error}: run it as root", path.display()))
            }
            io::ErrorKind::NotFound => Failure::operator(format!("{}: {error}", path.display())),
            _ => Failure::runtime(format!("{}: {error}", path.display())),
        };
        if let Some(folder) = path.parent().filter(|folder| !folder.exists()) {
            fs::create_dir_all(folder).map_err(failed)?;
            fs::set_permissions(folder, fs::Permissions::from_mode(FOLDER_MODE)).map_err(failed)?;
        }
        let _ = fs::remove_file(path);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let bound = || {
            let listener = net::socket_with(family, kind, flags, None)?;
            net::bind(&listener, &SocketAddrUnix::new(path)?)?;
            net::listen(&listener, WAITING_MAX)?;
            Ok::<_, Errno>(listener)
        };
        let listener = bound().map_err(|error| failed(error.into()))?;
        chown(path, None, Some(user.gid)).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(MODE)).map_err(failed)?;
        Ok(Door {
            listener,
            path: path.to_owned(),
            user,
        })
    }

    /// Opens it, unless another instance listens there.
    ///
    /// # Errors
    /// As above; or one does.
    pub fn open_alone(path: &Path, user: User) -> Result<Door, Failure> {
        refuse_if_heard(path)?;
        Door::open(path, user)
    }

    /// For poll(2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next server; `None`: nobody, or somebody else, who is shown out.
    pub fn let_in(&self) -> Option<Stream> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = net::accept_with(&self.listener, flags).ok()?;
        let peer = net::sockopt::socket_peercred(&stream).ok()?;
        let is_welcome = peer.uid.is_root() || peer.uid.as_raw() == self.user.uid;
        is_welcome.then_some(Stream(stream))
    }
}

/// An error if somebody listens there.
///
/// # Errors
/// That one.
pub fn refuse_if_heard(path: &Path) -> Result<(), Failure> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let is_heard = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, kind, flags, None)?;
        net::connect(&socket, &SocketAddrUnix::new(path)?)
    };
    match is_heard() {
        // Its queue is full, or it is there.
        Ok(()) | Err(Errno::AGAIN) => Err(Failure::operator(format!(
            "--socket {}: another instance listens there: stop it first, or name another --socket",
            path.display()
        ))),
        Err(_) => Ok(()),
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A server that is there.
pub struct Stream(OwnedFd);

/// What came.
#[derive(Debug)]
pub enum Came {
    /// Nothing yet.
    Nothing,
    /// The server has gone.
    End,
    /// A datagram of this length, and what travelled beside: `Err` for more than one.
    Datagram(usize, Result<Option<OwnedFd>, ()>),
}

impl Stream {
    /// For poll(2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Whether the server has closed this line, as it does when an answer takes too long. What it asked is still here.
    pub fn is_given_up(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::empty())];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        polled.is_ok() && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Takes the next datagram. `buffer` has one byte more than a datagram may, to notice a longer one.
    pub fn take(&self, buffer: &mut [u8]) -> Came {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut into = [IoSliceMut::new(buffer)];
        let came = match net::recvmsg(&self.0, &mut into, &mut beside, flags) {
            Ok(came) if came.bytes > 0 => came,
            Err(Errno::AGAIN | Errno::INTR) => return Came::Nothing,
            _ => return Came::End,
        };
        let mut sockets: Vec<OwnedFd> = Vec::new();
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(all) = message {
                sockets.extend(all);
            }
        }
        let is_cut = came.flags.contains(ReturnFlags::CTRUNC) || sockets.len() > 1;
        let socket = if is_cut { Err(()) } else { Ok(sockets.pop()) };
        Came::Datagram(came.bytes, socket)
    }

    /// Answers. A server that does not take its answers is none.
    ///
    /// # Errors
    /// As sendmsg(2).
    pub fn answer(&self, datagram: &[u8], socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let sockets = socket.map(|socket| [socket]);
        if let Some(sockets) = &sockets {
            beside.push(SendAncillaryMessage::ScmRights(sockets));
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        net::sendmsg(&self.0, &[IoSlice::new(datagram)], &mut beside, flags)?;
        Ok(())
    }
}
