//! `files`: the broker that changes files with the rights of a client's user, for a server that exports them read-write by NFS and
//! has no such rights ([`ackpace_wire::files`]). It decides nothing: the kernel refuses what the user may not do.
//!
//! Each line of the server has a thread here, since rights are a thread's ([`identity`]) and every call may wait for a disk.
//! [`walk`] finds the files, [`operations`] does what is asked, and [`lasting`] has it on the disk before the answer.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::Duration;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::{say, signals};
use ackpace_wire::files::{Reply, Request, encode_reply, parse_request};
use ackpace_wire::limits::FILES_DATAGRAM_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, StatxFlags, statx};
use rustix::io::Errno;

use self::identity::FILE_RIGHTS;
use self::lasting::Top;
use self::operations::Answer;
use self::options::Files;
use crate::handoff::door::{Came, Door, Stream};

pub mod attributes;
pub mod identity;
pub mod lasting;
pub mod operations;
pub mod options;
#[cfg(test)]
mod tests;
pub mod walk;

/// Lines at once: those of the sixteen threads of a server, and of the one that takes over from it. More: closed at once, and the
/// server tries again.
const LINES_MAX: usize = 32;
/// How often the loop looks for a signal.
const LOOK: Duration = Duration::from_millis(100);

/// How often it is seen whether another file system or folder is at the path. The server does so as often.
const LOOK_AT_ROOT: Duration = Duration::from_secs(1);

/// The folder that is served.
#[derive(Debug)]
pub struct Served {
    path: PathBuf,
    /// What was at the path when somebody looked last.
    root: RwLock<Root>,
    /// Whether root is a user like others.
    allows_root: bool,
}

/// An open folder.
#[derive(Clone, Debug)]
struct Root {
    top: Arc<Top>,
    /// Mount, device and inode. The mount belongs to it, since the same disk that is mounted anew has the same device and inodes, and
    /// what was open gets EIO. The kernel gives no number again while a descriptor is open.
    id: (u64, (u32, u32), u64),
}

impl Root {
    fn open(path: &Path) -> Result<Root, Errno> {
        let top = Top::open(path)?;
        let asked = StatxFlags::INO | StatxFlags::MNT_ID;
        let told = statx(top.fd(), c"", AtFlags::EMPTY_PATH, asked)?;
        let device = (told.stx_dev_major, told.stx_dev_minor);
        Ok(Root {
            top: Arc::new(top),
            id: (told.stx_mnt_id, device, told.stx_ino),
        })
    }
}

impl Served {
    /// # Errors
    /// As open(2).
    pub fn open(root: &Path, allows_root: bool) -> Result<Served, Failure> {
        let opened = Root::open(root).map_err(|error| {
            let cure = match error {
                Errno::NOENT => ": make the folder, or mount what has it",
                Errno::ACCESS => ": run it as root, and let root in (chmod)",
                _ => "",
            };
            Failure::operator(format!("--root {}: {error}{cure}", root.display()))
        })?;
        Ok(Served {
            path: root.to_owned(),
            root: RwLock::new(opened),
            allows_root,
        })
    }

    /// Opens the path again where another file system or folder is there now; `true`: so it was. To be called with the program's own
    /// rights.
    ///
    /// # Errors
    /// As open(2): what was there stays in use.
    pub fn look(&self) -> Result<bool, Errno> {
        let now = Root::open(&self.path)?;
        let mut root = self.root.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = root.id != now.id;
        if is_new {
            *root = now;
        }
        Ok(is_new)
    }

    /// Looks for ever, and tells the log what changes.
    fn keep_looking(&self) {
        let path = self.path.display();
        let mut trouble = None;
        loop {
            thread::sleep(LOOK_AT_ROOT);
            let looked = self.look();
            match looked {
                Ok(true) => {
                    say!("files: {path}: another folder or file system is there, and is opened")
                }
                Ok(false) if trouble.is_some() => say!("files: {path}: it is there again"),
                Err(error) if trouble != Some(error) => say!(
                    "files: {path}: {error}: NFS clients that write wait until it is there again, and root may enter it"
                ),
                _ => {}
            }
            trouble = looked.err();
        }
    }

    fn top(&self) -> Arc<Top> {
        let root = self.root.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&root.top)
    }

    /// What is answered, and the descriptor beside it.
    pub fn answer(&self, request: &Request) -> Answer {
        match request {
            Request::Hello => match rustix::fs::fstat(self.top().fd()) {
                Ok(stat) => Answer::of(Reply::Here {
                    device: stat.st_dev,
                    inode: stat.st_ino,
                    allows_root: self.allows_root,
                }),
                Err(error) => Answer::failed(error),
            },
            Request::Do(user, _) if user.is_root() && !self.allows_root => {
                Answer::failed(Errno::PERM)
            }
            Request::Do(user, operation) => match identity::become_user(user) {
                Ok(()) => operations::carry_out(&self.top(), user, operation),
                Err(why) => {
                    say!("files: {why}");
                    Answer::failed(Errno::PERM)
                }
            },
        }
    }
}

/// Answers a server until SIGTERM or SIGINT.
///
/// # Errors
/// The options are wrong, rights are missing, or another instance runs.
pub fn run(options: &Files) -> Result<(), Failure> {
    let served = Arc::new(Served::open(&options.root, options.allow_root)?);
    let caught = signals::catch()?;
    let door = Door::open_alone(&options.socket, options.user)?;
    let mut kept = CapabilitySet::SETUID | CapabilitySet::SETGID;
    if !capabilities::has(kept) {
        return Err(Failure::operator(
            "files: CAP_SETUID and CAP_SETGID are missing: run it as root, or by its unit",
        ));
    }
    if options.allow_root {
        kept |= FILE_RIGHTS; // the kernel takes them from a thread while its user is not root
    }
    capabilities::keep_only(kept)?;
    rustix::process::umask(Mode::empty()); // clients have their own
    ignore_file_size_limits();
    let stopped = caught.hear()?;
    let looked = Arc::clone(&served);
    let look = thread::Builder::new().name("look".to_owned());
    look.spawn(move || looked.keep_looking())
        .map_err(|error| Failure::runtime(format!("files: a thread: {error}")))?;
    say!(
        "files: ready for {}; the server's socket is {}",
        options.root.display(),
        options.socket.display()
    );
    serve(&served, &door, &stopped)
}

/// A limit of this process for the length of files (setrlimit(2)) is an error of a call, and does not end it.
fn ignore_file_size_limits() {
    // SAFETY: SIG_IGN is no function of ours, and the signal is nobody else's.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn serve(served: &Arc<Served>, door: &Door, stopped: &Receiver<()>) -> Result<(), Failure> {
    let lines = Arc::new(());
    while stopped.try_recv() == Err(TryRecvError::Empty) {
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(door.fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(Failure::runtime(format!("poll: {error}"))),
        }
        let Some(stream) = door.let_in() else {
            continue;
        };
        if Arc::strong_count(&lines) > LINES_MAX {
            continue;
        }
        let (served, counted) = (Arc::clone(served), Arc::clone(&lines));
        let line = thread::Builder::new().name("line".to_owned());
        let spawned = line.spawn(move || {
            serve_line(&served, &stream);
            drop(counted);
        });
        if let Err(error) = spawned {
            say!("files: a thread for a line: {error}");
        }
    }
    Ok(())
}

/// Answers one line until the server closes it.
fn serve_line(served: &Served, stream: &Stream) {
    let mut buffer = [0; FILES_DATAGRAM_BYTES_MAX + 1];
    loop {
        let mut fds = [PollFd::from_borrowed_fd(stream.fd(), PollFlags::IN)];
        if !matches!(poll(&mut fds, None), Ok(_) | Err(Errno::INTR)) {
            return;
        }
        let answer = match stream.take(&mut buffer) {
            Came::Nothing => continue,
            Came::End => return,
            Came::Datagram(len, Ok(None)) => match parse_request(&buffer[..len]) {
                Ok(request) => served.answer(&request),
                Err(_) => Answer::failed(Errno::PROTO),
            },
            Came::Datagram(..) => Answer::failed(Errno::PROTO), // nothing comes with a descriptor
        };
        let beside = answer.descriptor.as_ref().map(AsFd::as_fd);
        if stream.answer(&encode_reply(&answer.reply), beside).is_err() {
            return;
        }
    }
}
