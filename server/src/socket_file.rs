//! Unix sockets in the file system: the file of a listening socket goes away with its server, and with no other.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};

/// The file of a socket that this process bound. Dropping it removes the file, unless the path is another's by now.
#[derive(Debug)]
pub struct SocketFile {
    pub path: PathBuf,
    made: Identity,
}

/// Device, inode, and the time when it was made, since inode numbers are reused at once.
type Identity = (u64, u64, i64, i64);

fn identity(meta: &fs::Metadata) -> Identity {
    (meta.dev(), meta.ino(), meta.mtime(), meta.mtime_nsec())
}

impl SocketFile {
    /// Takes charge of the file that bind(2) just made.
    pub fn bound_at(path: &Path) -> io::Result<SocketFile> {
        let meta = fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.to_owned(),
            made: identity(&meta),
        })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let meta = fs::symlink_metadata(&self.path);
        if meta.is_ok_and(|meta| identity(&meta) == self.made) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether the path is a socket that nobody listens on: a killed server left it behind. A server whose backlog is full
/// lives; asking it does not wait.
pub fn is_stale(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    let connected = || try_connect(path, SocketFlags::NONBLOCK, None);
    is_socket && connected().is_err_and(|error| error == Errno::CONNREFUSED)
}

/// Connects to a server, and waits for `wait_max` at most while its backlog is full.
/// Errors: As connect(2); `WouldBlock` after the wait.
pub fn connect_within(path: &Path, wait_max: Duration) -> io::Result<UnixStream> {
    Ok(try_connect(path, SocketFlags::empty(), Some(wait_max))?)
}

fn try_connect(
    path: &Path,
    flags: SocketFlags,
    wait_max: Option<Duration>,
) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = flags | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // connect(2) of a unix socket obeys the send timeout.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, wait_max)?;
    connect(&socket, &address)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, None)?;
    Ok(UnixStream::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn path(test: &str) -> PathBuf {
        let name = format!("ackpace-socket-{test}-{}.sock", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn a_socket_file_goes_away_with_its_server_and_with_no_other() {
        let path = path("owner");
        let _first = UnixListener::bind(&path).expect("a free path");
        let first = SocketFile::bound_at(&path).expect("a socket");
        fs::remove_file(&path).expect("our own file");
        let _second = UnixListener::bind(&path).expect("a free path");
        let second = SocketFile::bound_at(&path).expect("a socket");
        drop(first);
        assert!(path.exists(), "it is another server's now");
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_server_whose_backlog_is_full_lives_and_nobody_waits_for_it() {
        let path = path("backlog");
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .expect("a descriptor");
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("free");
        rustix::net::listen(&socket, 1).expect("a socket that is bound");
        let waiting: Vec<_> = (0..8)
            .map(|_| connect_within(&path, Duration::from_millis(1)))
            .collect();
        let full = waiting.last().expect("eight");
        let kind = full.as_ref().map_err(io::Error::kind).map(|_| ());
        assert_eq!(kind, Err(io::ErrorKind::WouldBlock), "the backlog is full");
        assert!(!is_stale(&path));
        drop(socket);
        assert!(is_stale(&path), "nobody listens");
        fs::remove_file(&path).expect("our own file");
        assert!(!is_stale(&path), "there is nothing");
    }
}
