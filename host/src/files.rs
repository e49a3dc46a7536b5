//! `files`: the broker that changes files with the rights of a client's user, for a server that exports them read-write by NFS and
//! has no such rights ([`ackpace_wire::files`]). It decides nothing: the kernel refuses what the user may not do.
//!
//! Each line of the server has a thread here, since rights are a thread's ([`identity`]) and every call may wait for a disk.
//! [`walk`] finds the files, [`operations`] does what is asked.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use ackpace_host_base::capabilities::{self, CapabilitySet};
use ackpace_host_base::failure::Failure;
use ackpace_host_base::{say, signals};
use ackpace_wire::files::{Reply, Request, encode_reply, parse_request};
use ackpace_wire::limits::FILES_DATAGRAM_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

use self::identity::FILE_RIGHTS;
use self::operations::Answer;
use self::options::Files;
use crate::handoff::door::{Came, Door, Stream};

pub mod attributes;
pub mod identity;
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

/// The folder that is served.
#[derive(Debug)]
pub struct Served {
    /// It.
    pub root: OwnedFd,
    /// Whether root is a user like others.
    pub allows_root: bool,
}

impl Served {
    /// # Errors
    /// As open(2).
    pub fn open(root: &Path, allows_root: bool) -> Result<Served, Failure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, root, flags, Mode::empty())
            .map_err(|error| Failure::operator(format!("{}: {error}", root.display())))?;
        Ok(Served { root, allows_root })
    }

    /// What is answered, and the descriptor beside it.
    pub fn answer(&self, request: &Request) -> Answer {
        match request {
            Request::Hello => match rustix::fs::fstat(&self.root) {
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
                Ok(()) => operations::carry_out(&self.root, user, operation),
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
