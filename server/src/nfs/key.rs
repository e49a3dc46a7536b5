//! The key of file handles, in a file that outlives the server.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ackpace_wire::nfs3::handle::Key;

use crate::cluster::drawn;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// Bytes of its file: two digits for each, and the end of the line. Longer: it is another file, and refused.
const FILE_BYTES_MAX: u64 = 2 * KEY_BYTES as u64 + 1;

/// Why a file gives no key; its path stands before it.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refuses the file.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It holds something else, or others may read it.
    #[error("{0}")]
    Bad(String),
}

/// The key of this file, which is made if it is missing.
pub fn load(path: &Path) -> Result<Key, KeyError> {
    match File::open(path) {
        Ok(file) => read(file),
        Err(error) if error.kind() == ErrorKind::NotFound => match make(path) {
            // Another server has just made it.
            Err(KeyError::Io(error)) if error.kind() == ErrorKind::AlreadyExists => {
                read(File::open(path)?)
            }
            made => made,
        },
        Err(error) => Err(error.into()),
    }
}

/// A key that ends with the process.
pub fn draw() -> io::Result<Key> {
    drawn::<KEY_BYTES>().map(Key)
}

/// The key's file where none is named: in systemd's folder for the state of the service, or the user's. `None`: there is neither.
pub fn usual_place(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    if let Some(states) = absolute("STATE_DIRECTORY") {
        let first = states
            .as_os_str()
            .as_bytes()
            .split(|byte| *byte == b':')
            .next();
        let first = first.map(OsStr::from_bytes).map(Path::new);
        return first.map(|state| state.join("nfs.key"));
    }
    // Debian's users for services have a home that is not there, and must not be.
    let home = || {
        let home = absolute("HOME").filter(|home| home.is_dir());
        home.map(|home| home.join(".local/state"))
    };
    let state = absolute("XDG_STATE_HOME").or_else(home)?;
    Some(state.join("ackpace/nfs.key"))
}

/// The variables of this process.
pub fn variable(name: &str) -> Option<PathBuf> {
    env::var_os(name).map(PathBuf::from)
}

/// Makes the folder of a file, for this user alone, if it is missing.
pub fn make_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if folder.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

fn read(file: File) -> Result<Key, KeyError> {
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Bad(format!(
            "others may use it (mode {mode:03o}): chmod 600, or remove it if others could have read it, and clients mount again"
        )));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    let key = read.ok().and_then(|_| of_text(text.trim_end()));
    key.ok_or_else(|| {
        let text =
            "there is no key: one line of 32 hexadecimal digits; remove the file to get a new one";
        KeyError::Bad(text.to_owned())
    })
}

fn of_text(text: &str) -> Option<Key> {
    let is_key = text.len() == 2 * KEY_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = u128::from_str_radix(text, 16).ok().filter(|_| is_key)?;
    Some(Key(number.to_be_bytes()))
}

/// Writes a new key beside the place and gives it its name when it is whole.
fn make(path: &Path) -> Result<Key, KeyError> {
    let key = draw()?;
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600);
    let written = file.open(&beside).and_then(|mut file| {
        writeln!(file, "{:032x}", u128::from_be_bytes(key.0))?;
        file.sync_all()
    });
    let named = written.and_then(|()| fs::hard_link(&beside, path));
    let _ = fs::remove_file(&beside);
    named?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_stays() {
        let dir = env::temp_dir().join(format!("ackpace-nfs-key-{}", std::process::id()));
        let path = dir.join("state/ackpace/nfs.key");
        make_folder(&path).expect("a folder");
        let key = load(&path).expect("a new key");
        assert_eq!(load(&path).expect("the same"), key);
        assert_eq!(
            fs::read_dir(path.parent().expect("a folder"))
                .map(Iterator::count)
                .ok(),
            Some(1)
        );
        let metadata = fs::metadata(&path).expect("a file");
        assert_eq!(
            (metadata.mode() & 0o777, metadata.len()),
            (0o600, FILE_BYTES_MAX)
        );

        let bad = |why: &str| {
            let error = load(&path).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("ours");
        bad("mode 640");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        for text in ["", "0\n", "+123456789012345678901234567890f\n", "\u{fc}"] {
            fs::write(&path, text).expect("ours");
            bad("there is no key");
        }
        fs::write(&path, "0".repeat(33)).expect("ours");
        bad("there is no key");
        fs::remove_dir_all(&dir).expect("our own directory");
    }

    #[test]
    fn the_usual_place_is_the_services_or_the_users() {
        let place = |known: &[(&str, &str)]| {
            usual_place(|name| {
                let known = known.iter().find(|(known, _)| *known == name);
                known.map(|(_, path)| PathBuf::from(path))
            })
        };
        let all = [
            ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b"),
            ("XDG_STATE_HOME", "/x"),
            ("HOME", "/usr"),
        ];
        assert_eq!(place(&all), Some("/var/lib/a/nfs.key".into()));
        assert_eq!(place(&all[1..]), Some("/x/ackpace/nfs.key".into()));
        assert_eq!(
            place(&all[2..]),
            Some("/usr/.local/state/ackpace/nfs.key".into())
        );
        assert_eq!(place(&[("HOME", "relative")]), None);
        assert_eq!(place(&[("HOME", "/usr/no such home")]), None);
    }
}
