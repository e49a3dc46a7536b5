//! The line to the broker of files, `ackpace-host files` ([`ackpace_wire::files`]): it has the rights of the clients' users, which the
//! server has not. Only threads that may wait ask it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ackpace_core::limits::RESOLVERS_MAX;
use ackpace_wire::files::{Operation, Reply, Request, User, encode_request, parse_reply};
use ackpace_wire::nfs3::Status;
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    self, AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType,
};

use crate::options::shown_path;

/// How long an answer may take. Longer: a disk hangs, the line is given up, and the client tries again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the longest answer, and one to notice a longer one.
const ANSWER_BYTES: usize = 65;

/// A broker, by lines that are opened when they are needed: one for each thread that waits for it.
pub struct Broker {
    path: PathBuf,
    /// Lines that nobody uses, at most [`RESOLVERS_MAX`].
    lines: Mutex<Vec<OwnedFd>>,
    /// It did not answer last, and the log says so.
    is_away: AtomicBool,
    /// It has another folder, and the log says so.
    is_elsewhere: AtomicBool,
}

/// Who a broker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// Its folder: st_dev and st_ino.
    pub root: (u64, u64),
    /// It does what root asks.
    pub allows_root: bool,
}

/// What a broker has done.
#[derive(Debug)]
pub enum Told {
    /// What was asked.
    Done,
    /// It has opened a file, which it has made or found.
    Opened(OwnedFd),
    /// It has found a file that this user may not write.
    Found,
    /// The guard did not fit.
    NotSync,
    /// Another file is at the path, or none.
    Moved,
}

impl Broker {
    /// The broker that listens there. Nobody is asked yet.
    pub fn new(path: &Path) -> Broker {
        Broker {
            path: path.to_owned(),
            lines: Mutex::default(),
            is_away: AtomicBool::new(false),
            is_elsewhere: AtomicBool::new(false),
        }
    }

    /// Who it is.
    ///
    /// # Errors
    /// Nobody answers, or another version's.
    pub fn hello(&self) -> Result<Here, Errno> {
        let (line, _) = self.line()?;
        match exchange(&line, &encode_request(&Request::Hello))? {
            (
                Reply::Here {
                    device,
                    inode,
                    allows_root,
                },
                _,
            ) => {
                self.keep(line);
                Ok(Here {
                    root: (device, inode),
                    allows_root,
                })
            }
            _ => Err(Errno::PROTO),
        }
    }

    /// Has it do something for a user.
    ///
    /// # Errors
    /// What the system call says; [`Status::Jukebox`] if the broker does not answer, so that the client tries again.
    pub fn ask(&self, user: User, operation: Operation) -> Result<Told, Status> {
        let datagram = encode_request(&Request::Do(user, operation));
        match self.answered(&datagram) {
            Ok((reply, descriptor)) => {
                if self.is_away.swap(false, Ordering::Relaxed) {
                    tracing::info!("ackpace-host files answers again");
                }
                let told = told(reply, descriptor);
                if matches!(told, Ok(Told::Done | Told::Opened(_)))
                    && self.is_elsewhere.swap(false, Ordering::Relaxed)
                {
                    tracing::info!("ackpace-host files has the same folder again");
                }
                told
            }
            Err(error) => {
                if !self.is_away.swap(true, Ordering::Relaxed) {
                    let path = shown_path(&self.path);
                    tracing::warn!(
                        "{path}: ackpace-host files does not answer ({error}): NFS clients that write wait until it does"
                    );
                }
                Err(Status::Jukebox)
            }
        }
    }

    /// Again and again it found another file than the server, whose folder has this st_dev and st_ino: tells the log if it has another
    /// one. It follows what is mounted, so that passes, unless it sees other mounts than the server.
    pub fn compare(&self, own: Option<(u64, u64)>) {
        let is_same = self.hello().map(|here| Some(here.root) == own);
        if is_same == Ok(false) && !self.is_elsewhere.swap(true, Ordering::Relaxed) {
            let path = shown_path(&self.path);
            tracing::warn!(
                "{path}: ackpace-host files has another folder or file system than this server: NFS clients that write wait until both \
                 have the same. If that lasts, see whether both see the mount: 'stat -c %d:%i' of --root by 'nsenter -t PID -m' for each"
            );
        }
    }

    /// Asks by a line that may have ended meanwhile: then by a new one, since nobody has heard the question.
    fn answered(&self, datagram: &[u8]) -> Result<(Reply, Option<OwnedFd>), Errno> {
        let (mut line, mut is_new) = self.line()?;
        loop {
            let answer = match exchange(&line, datagram) {
                Err(Errno::PIPE | Errno::CONNRESET) if !is_new => {
                    self.lock().clear(); // they have ended, too
                    (line, is_new) = self.line()?;
                    continue;
                }
                answer => answer?,
            };
            self.keep(line);
            return Ok(answer);
        }
    }

    /// A line, and whether it is new.
    fn line(&self) -> Result<(OwnedFd, bool), Errno> {
        if let Some(line) = self.lock().pop() {
            return Ok((line, false));
        }
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let line = net::socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
        for timeout in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&line, timeout, Some(PATIENCE))?;
        }
        net::connect(&line, &SocketAddrUnix::new(&self.path)?)?;
        Ok((line, true))
    }

    fn keep(&self, line: OwnedFd) {
        let mut lines = self.lock();
        if lines.len() < RESOLVERS_MAX {
            lines.push(line);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<OwnedFd>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks, and waits for the answer.
fn exchange(line: &OwnedFd, datagram: &[u8]) -> Result<(Reply, Option<OwnedFd>), Errno> {
    let mut nothing = net::SendAncillaryBuffer::new(&mut []);
    net::sendmsg(
        line,
        &[IoSlice::new(datagram)],
        &mut nothing,
        SendFlags::NOSIGNAL,
    )?;
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut answer = [0; ANSWER_BYTES];
    let came = loop {
        let mut into = [IoSliceMut::new(&mut answer)];
        match net::recvmsg(line, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            came => break came?,
        }
    };
    let mut descriptor = None;
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(mut all) = message {
            descriptor = all.next();
        }
    }
    if came.bytes == 0 {
        return Err(Errno::CONNABORTED); // whether it is done, nobody knows
    }
    let reply = parse_reply(&answer[..came.bytes]).map_err(|_| Errno::PROTO)?;
    Ok((reply, descriptor))
}

fn told(reply: Reply, descriptor: Option<OwnedFd>) -> Result<Told, Status> {
    match (reply, descriptor) {
        (Reply::Done, _) => Ok(Told::Done),
        (Reply::Opened { .. }, Some(file)) => Ok(Told::Opened(file)),
        (Reply::Found, _) => Ok(Told::Found),
        (Reply::NotSync, _) => Ok(Told::NotSync),
        (Reply::Moved, _) => Ok(Told::Moved),
        (Reply::Failed { errno }, _) => Err(status_of(Errno::from_raw_os_error(errno))),
        (Reply::Here { .. } | Reply::Opened { .. }, _) => Err(Status::ServerFault),
    }
}

/// The status of a system call that changes files.
pub fn status_of(error: Errno) -> Status {
    match error {
        Errno::PERM => Status::Perm,
        Errno::NOENT => Status::NoEnt,
        Errno::NXIO => Status::NxIo,
        Errno::ACCESS | Errno::TXTBSY => Status::Acces,
        Errno::EXIST => Status::Exist,
        Errno::XDEV => Status::XDev,
        Errno::NODEV => Status::NoDev,
        Errno::NOTDIR => Status::NotDir,
        Errno::ISDIR => Status::IsDir,
        Errno::INVAL | Errno::OVERFLOW | Errno::LOOP => Status::Inval,
        Errno::FBIG => Status::FBig,
        Errno::NOSPC => Status::NoSpc,
        Errno::ROFS => Status::RoFs,
        Errno::MLINK => Status::MLink,
        Errno::NAMETOOLONG => Status::NameTooLong,
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::DQuot,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP => Status::NotSupp,
        // Without a descriptor, memory or a lease it may go well in a moment.
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::BUSY => Status::Jukebox,
        _ => Status::Io,
    }
}
