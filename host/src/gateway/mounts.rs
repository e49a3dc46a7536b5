//! What is mounted where: /proc/self/mountinfo (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use super::loops;

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `major:minor` of its files.
    pub device: String,
    /// Where it is mounted.
    pub at: PathBuf,
}

impl Mount {
    /// Whether it shows what is on this loop device.
    pub fn is_of(&self, device: &Path) -> bool {
        loops::numbers(device).is_some_and(|numbers| numbers == self.device)
    }
}

/// All of this process's namespace, in the order in which they were mounted.
///
/// # Errors
/// /proc is not there.
pub fn all() -> io::Result<Vec<Mount>> {
    let text = std::fs::read("/proc/self/mountinfo")?;
    Ok(parse(&text))
}

/// Whether something is mounted exactly there.
pub fn is_mounted(at: &Path) -> bool {
    all().is_ok_and(|all| all.iter().any(|mount| mount.at == at))
}

fn parse(text: &[u8]) -> Vec<Mount> {
    let lines = text.split(|byte| *byte == b'\n');
    let mount = |line: &[u8]| {
        let mut fields = line.split(|byte| *byte == b' ');
        Some(Mount {
            device: String::from_utf8(fields.nth(2)?.to_vec()).ok()?,
            at: PathBuf::from(OsString::from_vec(plain(fields.nth(1)?))),
        })
    };
    lines.filter_map(mount).collect()
}

/// Spaces and their like stand as a backslash and three octal digits.
fn plain(mut text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let Some((byte, rest)) = text.split_first() {
        let digits = rest.first_chunk::<3>().filter(|_| *byte == b'\\');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        plain.push(octal.unwrap_or(*byte));
        text = if octal.is_some() { &rest[3..] } else { rest };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_spaces() {
        let text = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            80 22 7:3 / /srv/a\\040b\\134 rw,noatime - ext4 /dev/loop3 rw\nbroken\n";
        let mount = |device: &str, at: &str| Mount {
            device: device.to_owned(),
            at: at.into(),
        };
        assert_eq!(parse(text), [mount("8:1", "/"), mount("7:3", "/srv/a b\\")]);
        assert!(is_mounted(Path::new("/proc")));
    }
}
