//! A file of a tmpfs with huge pages that has no mount point: only whoever holds the file reaches it.
//!
//! Mounting needs CAP_SYS_ADMIN. Without it, a child does it in a user namespace and a mount namespace of its own, passes the
//! file back and ends. The child is a fork that makes system calls only, since its parent may have other threads: it
//! neither allocates nor locks. That needs no second program and no hidden command.

use std::ffi::{CStr, CString};
use std::fmt::{self, Display};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_string, fsmount,
    fsopen,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// What was tried, and what the kernel said.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    step: Step,
    errno: Errno,
}

/// The steps, by the byte with which the child names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Child = 0,
    Namespaces = 1,
    Mount = 2,
    File = 3,
}

const STEPS: [Step; 4] = [Step::Child, Step::Namespaces, Step::Mount, Step::File];

impl Step {
    fn or(self) -> impl Fn(Errno) -> Refused {
        move |errno| Refused { step: self, errno }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.step {
            Step::Child => "a child that would mount a tmpfs fails",
            Step::Namespaces => "this user may neither mount a tmpfs nor have a user namespace",
            Step::Mount => "a tmpfs with huge=always is refused",
            Step::File => "a file in a new tmpfs is refused",
        };
        write!(f, "{what} ({})", std::io::Error::from(self.errno))
    }
}

/// A file of a new tmpfs for so many bytes.
pub fn private_file(bytes: u64) -> Result<OwnedFd, Refused> {
    let size = CString::new(bytes.to_string()).map_err(|_| Step::Mount.or()(Errno::INVAL))?;
    match mounted(&size) {
        Err(refused) if refused.errno == Errno::PERM => by_child(&size),
        done => done,
    }
}

/// Allocates nothing.
fn mounted(size: &CStr) -> Result<OwnedFd, Refused> {
    let mount = || {
        let fs = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(fs.as_fd(), c"size", size)?;
        fsconfig_set_string(fs.as_fd(), c"huge", c"always")?;
        fsconfig_set_string(fs.as_fd(), c"mode", c"0700")?;
        fsconfig_create(fs.as_fd())?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        fsmount(fs.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    let root = mount().map_err(Step::Mount.or())?;
    // The file keeps the file system when the mount goes.
    nameless(root).map_err(Step::File.or())
}

/// A file without a name in this folder, which can't be given one.
pub fn nameless(dir: impl AsFd) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::TMPFILE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
    openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)
}

/// The same by a child in namespaces of its own.
pub(super) fn by_child(size: &CStr) -> Result<OwnedFd, Refused> {
    let user = identity(rustix::process::geteuid().as_raw());
    let group = identity(rustix::process::getegid().as_raw());
    let (here, there) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(Step::Child.or())?;
    // SAFETY: the child makes system calls only, on what is on its stack or was made before, until it ends by `_exit`.
    match unsafe { libc::fork() } {
        0 => {
            let done = enter(&user, &group).and_then(|()| mounted(size));
            send(there.as_fd(), &done);
            // SAFETY: it ends this process, and runs nothing of its parent's.
            unsafe { libc::_exit(0) }
        }
        child => {
            let child = Pid::from_raw(child.max(0)).ok_or(Step::Child.or()(Errno::AGAIN))?;
            drop(there); // so that a child that ends without a word is heard
            let done = receive(here.as_fd());
            let _ = rustix::io::retry_on_intr(|| waitpid(Some(child), WaitOptions::empty()));
            done
        }
    }
}

/// A map of user or group ids in which one stands for itself (user_namespaces(7)).
fn identity(id: u32) -> String {
    format!("{id} {id} 1")
}

/// Moves the process into a user namespace in which it is itself and may mount.
fn enter(user: &str, group: &str) -> Result<(), Refused> {
    let write = |path: &CStr, text: &str| {
        let file = open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(file, text.as_bytes()).map(|_| ())
    };
    let enter = || {
        // SAFETY: the process is a fork with a single thread, and no descriptors are unshared.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)? };
        write(c"/proc/self/setgroups", "deny")?;
        write(c"/proc/self/uid_map", user)?;
        write(c"/proc/self/gid_map", group)
    };
    enter().map_err(Step::Namespaces.or())
}

/// Tells the parent. A failure to do so is heard as an end without a word.
fn send(to: BorrowedFd<'_>, done: &Result<OwnedFd, Refused>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let mut word = [0; 5];
    let files = done.as_ref().map(|file| [file.as_fd()]);
    match &files {
        Ok(files) => {
            control.push(SendAncillaryMessage::ScmRights(files));
        }
        Err(refused) => {
            word[0] = refused.step as u8;
            word[1..].copy_from_slice(&refused.errno.raw_os_error().to_ne_bytes());
        }
    }
    let _ = sendmsg(
        to,
        &[IoSlice::new(&word)],
        &mut control,
        SendFlags::NOSIGNAL,
    );
}

fn receive(from: BorrowedFd<'_>) -> Result<OwnedFd, Refused> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut word = [0; 5];
    let received = rustix::io::retry_on_intr(|| {
        let mut into = [IoSliceMut::new(&mut word)];
        recvmsg(from, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    received.map_err(Step::Child.or())?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            if let Some(file) = files.next() {
                return Ok(file);
            }
        }
    }
    let step = STEPS
        .get(usize::from(word[0]))
        .copied()
        .unwrap_or(Step::Child);
    let errno = i32::from_ne_bytes([word[1], word[2], word[3], word[4]]);
    let errno = if errno == 0 {
        Errno::IO
    } else {
        Errno::from_raw_os_error(errno)
    };
    Err(step.or()(errno))
}
