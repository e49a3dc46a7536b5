//! The path of the admin socket: a server makes it, `ackpace top` and `ackpace why` find it.
//!
//! Only the server's own user (and root) may use it: its mode is 600, and a folder that the server makes has 700.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};

use crate::limits::CONTROL_CLIENTS_MAX;
use crate::options::{AdminAt, shown_path};
use crate::socket_file::{SocketFile, connect_within, is_stale};

/// `ackpace top` and `why` wait so long for a server whose admin socket takes nobody.
const ADMIN_CONNECT_MAX: std::time::Duration = std::time::Duration::from_secs(2);
/// Abandoned sockets of earlier servers that one start removes. More: the next start goes on.
const STALE_SOCKETS_MAX: usize = 256;
/// Folders of users in which root looks for servers, of each kind. More: the others are left out, and `--admin` names them.
const USER_FOLDERS_MAX: usize = 64;

/// Makes the socket that the options ask for; `None` for none.
/// Errors: One sentence that begins with the path, when the operator named one that can't be used. Where the server chooses the path itself, no
/// failure keeps it from starting.
pub fn make(wanted: &AdminAt) -> Result<Option<(OwnedFd, SocketFile)>, String> {
    match wanted {
        AdminAt::Off => Ok(None),
        AdminAt::Path(path) => bind_at(path).map(Some).map_err(|error| {
            let cure = "name a path in a folder that this user may write, or stop the server that listens there";
            format!("{}: {error}; {cure}", shown_path(path))
        }),
        AdminAt::Auto => {
            let name = format!("{}.sock", std::process::id());
            for folder in folders() {
                let made = own_folder(&folder).and_then(|()| {
                    remove_stale(&folder);
                    bind_at(&folder.join(&name))
                });
                match made {
                    Ok(made) => return Ok(Some(made)),
                    Err(error) => tracing::debug!("no admin socket in {}: {error}", folder.display()),
                }
            }
            Ok(None)
        }
    }
}

/// Its admin socket takes no connection.
const ANSWERS_NOBODY: &str = "there is one that answers nobody: is it stopped?";

/// Connects to the only server that runs here, or to that of a path.
pub fn find(path: Option<&Path>) -> Result<UnixStream, String> {
    if let Some(path) = path {
        return connect_within(path, ADMIN_CONNECT_MAX).map_err(|error| {
            let cure = match error.kind() {
                io::ErrorKind::WouldBlock => ANSWERS_NOBODY,
                _ => "is a server running with that --admin, as this user?",
            };
            format!("{}: {error}; {cure}", shown_path(path))
        });
    }
    let mut cure = "start one, or name its socket by --admin PATH";
    let mut found: Vec<(PathBuf, UnixStream)> = Vec::new();
    let folders = all_folders();
    for path in folders.iter().flat_map(|folder| sockets(folder)) {
        match connect_within(&path, ADMIN_CONNECT_MAX) {
            Ok(stream) => found.push((path, stream)),
            Err(error) => match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    cure = "there is one of another user: run this as that user or as root";
                }
                io::ErrorKind::WouldBlock => cure = ANSWERS_NOBODY,
                _ => {}
            },
        }
    }
    if found.len() > 1 {
        let paths = found
            .iter()
            .map(|(path, _)| format!("\n  --admin {}", shown_path(path)));
        return Err(format!(
            "several servers run here; say which:{}",
            paths.collect::<String>()
        ));
    }
    let found = found.pop().map(|(_, stream)| stream);
    found.ok_or_else(|| {
        let folders: Vec<_> = folders.iter().map(|folder| shown_path(folder)).collect();
        format!(
            "no running server was found in {}; {cure}",
            folders.join(", ")
        )
    })
}

/// The folders where a server of this user may put its socket, the best first.
fn folders() -> Vec<PathBuf> {
    let user = rustix::process::geteuid();
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    // systemd's RuntimeDirectory= may name several.
    let service: Vec<PathBuf> = variable("RUNTIME_DIRECTORY")
        .map(|all| std::env::split_paths(&all).collect())
        .unwrap_or_default();
    let session = variable("XDG_RUNTIME_DIR").map(|path| Path::new(&path).join("ackpace"));
    let system = user.is_root().then(|| PathBuf::from("/run/ackpace"));
    let shared = std::env::temp_dir().join(format!("ackpace-{}", user.as_raw()));
    let others = [session, system, Some(shared)].into_iter().flatten();
    service
        .into_iter()
        .chain(others)
        .filter(|path| path.is_absolute())
        .collect()
}

/// The folders to search for servers: those of services, and for root those of users, too.
fn all_folders() -> Vec<PathBuf> {
    let mut all = folders();
    all.push("/run/ackpace".into());
    if rustix::process::geteuid().is_root() {
        let users = fs::read_dir("/run/user").into_iter().flatten().flatten();
        let users = users.map(|user| user.path().join("ackpace"));
        all.extend(users.take(USER_FOLDERS_MAX));
        all.extend(shared_folders(&std::env::temp_dir()));
    }
    all.sort();
    all.dedup();
    all
}

/// The folders of users that have no other place (`ackpace-UID`), each of that user itself.
fn shared_folders(temporary: &Path) -> Vec<PathBuf> {
    let is_own = |folder: &PathBuf| {
        let name = folder.file_name().and_then(OsStr::to_str);
        let user = name.and_then(|name| name.strip_prefix("ackpace-")?.parse().ok());
        let meta = fs::symlink_metadata(folder);
        meta.is_ok_and(|meta| meta.is_dir() && Some(meta.uid()) == user)
    };
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten();
    let folders = entries.map(|entry| entry.path()).filter(is_own);
    folders.take(USER_FOLDERS_MAX).collect()
}

/// Makes the folder, or checks that only this user may write to it.
fn own_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let meta = fs::symlink_metadata(folder)?;
    let ours = meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if meta.is_dir() && ours {
        return Ok(());
    }
    Err(io::Error::other(
        "it is a link, another user's, or others may write to it",
    ))
}

fn sockets(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.extension() == Some(OsStr::new("sock")))
        .filter(|path| fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket()))
        .take(STALE_SOCKETS_MAX)
        .collect()
}

/// Killed servers leave their sockets behind.
fn remove_stale(folder: &Path) {
    for path in sockets(folder) {
        if is_stale(&path) {
            let _ = fs::remove_file(path);
        }
    }
}

fn bind_at(path: &Path) -> io::Result<(OwnedFd, SocketFile)> {
    if is_stale(path) {
        fs::remove_file(path)?;
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Before it has a name, since Linux takes the mode of the path from the socket.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, CONTROL_CLIENTS_MAX as i32)?;
    Ok((socket, SocketFile::bound_at(path)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("ackpace-place-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        path
    }

    #[test]
    fn a_socket_is_its_owners_alone_and_goes_away_with_its_server() {
        let folder = folder("mode");
        own_folder(&folder).expect("a new folder");
        assert_eq!(
            fs::symlink_metadata(&folder).expect("a folder").mode() & 0o777,
            0o700
        );
        let path = folder.join("1.sock");
        let (socket, bound) = bind_at(&path).expect("a free path");
        assert_eq!(
            fs::symlink_metadata(&path).expect("a socket").mode() & 0o777,
            0o600
        );
        assert!(bind_at(&path).is_err(), "somebody listens there");
        drop((socket, bound));
        assert!(!path.exists());
        fs::remove_dir_all(folder).expect("our own folder");
    }

    #[test]
    fn abandoned_sockets_are_removed_and_living_ones_and_files_are_not() {
        let folder = folder("stale");
        own_folder(&folder).expect("a new folder");
        let [dead, alive, file] = ["1.sock", "2.sock", "3.sock"].map(|name| folder.join(name));
        drop(std::os::unix::net::UnixListener::bind(&dead).expect("a free path"));
        let living = bind_at(&alive).expect("a free path");
        fs::write(&file, "mine").expect("a file");
        remove_stale(&folder);
        assert!(!dead.exists() && alive.exists() && file.exists());
        assert!(bind_at(&file).is_err(), "it is no socket");
        drop(living);
        fs::remove_dir_all(folder).expect("our own folder");
    }

    #[test]
    fn folders_of_users_are_found_if_they_are_theirs() {
        let temporary = folder("users");
        own_folder(&temporary).expect("a new folder");
        let user = rustix::process::geteuid().as_raw();
        let own = temporary.join(format!("ackpace-{user}"));
        own_folder(&own).expect("a new folder");
        for other in [format!("ackpace-{}", user + 1), "ackpace-x".to_owned()] {
            own_folder(&temporary.join(other)).expect("a new folder");
        }
        assert_eq!(shared_folders(&temporary), [own]);
        fs::remove_dir_all(temporary).expect("our own folder");
    }

    #[test]
    fn a_folder_that_others_may_write_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let folder = folder("open");
        own_folder(&folder).expect("a new folder");
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("our own folder");
        assert!(own_folder(&folder).is_err());
        fs::remove_dir(&folder).expect("our own folder");
        std::os::unix::fs::symlink("/tmp", &folder).expect("a link");
        assert!(own_folder(&folder).is_err());
        fs::remove_file(folder).expect("our own link");
    }
}
