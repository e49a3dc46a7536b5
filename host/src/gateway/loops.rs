//! Loop devices (loop(4)): attaches one to a file with direct I/O, finds those on a file, detaches them.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use ackpace_host_base::failure::Failure;

// linux/loop.h
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const CONTROL: &str = "/dev/loop-control";
/// Another process may take the free device first, so often at most.
const ATTEMPTS_MAX: usize = 32;

/// `struct loop_config` with its `struct loop_info64`.
#[repr(C)]
struct Config {
    fd: u32,
    block_bytes: u32,
    numbers: [u64; 5],
    number: u32,
    encrypt: [u32; 2],
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    rest: [u64; 2 + 8],
}

/// A loop device. One that does not stay goes when the last mount and this are gone.
pub struct Attached {
    /// Its path.
    pub path: PathBuf,
    /// It is open.
    pub file: File,
}

/// Whether this machine has loop devices.
///
/// # Errors
/// It has none, or they may not be used.
pub fn check() -> Result<(), Failure> {
    let opened = OpenOptions::new().read(true).write(true).open(CONTROL);
    opened.map(|_| ()).map_err(no_control)
}

fn no_control(error: io::Error) -> Failure {
    Failure::operator(format!(
        "{CONTROL}: {error}: the gateway needs a loop device (modprobe loop; in a container --device {CONTROL} and the devices \
         /dev/loop*, as root)"
    ))
}

/// Attaches a device to this file, whose path `losetup` shows.
///
/// # Errors
/// There is none, or it can't do direct I/O.
pub fn attach(
    backing: &File,
    path: &Path,
    block_bytes: u32,
    is_read_only: bool,
    stays: bool,
) -> Result<Attached, Failure> {
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true);
    let control = options.open(CONTROL).map_err(no_control)?;
    // A loop device is as long as the kernel believes the file to be. Of the root of a FUSE mount it believes 0 until somebody asks, which
    // Linux 6.18 does by itself, and 6.12 does not.
    backing
        .metadata()
        .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
    let config = config(backing, path, block_bytes, is_read_only, stays);
    let mut last = io::Error::from_raw_os_error(libc::EBUSY);
    for _ in 0..ATTEMPTS_MAX {
        // SAFETY: loop(4): it takes no argument and returns a number.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        if number < 0 {
            last = io::Error::last_os_error();
            break;
        }
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let file = options.open(&path).map_err(|error| {
            Failure::operator(format!(
                "{}: {error}: the gateway needs a loop device (in a container, all of /dev/loop*)",
                path.display()
            ))
        })?;
        // SAFETY: loop(4): it reads one `struct loop_config`, which lives here.
        if unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) } == 0 {
            return checked(Attached { path, file });
        }
        last = io::Error::last_os_error();
        if last.raw_os_error() != Some(libc::EBUSY) {
            break;
        }
    }
    Err(Failure::runtime(format!(
        "no loop device could be attached: {last}"
    )))
}

fn config(
    backing: &File,
    path: &Path,
    block_bytes: u32,
    is_read_only: bool,
    stays: bool,
) -> Config {
    let mut flags = LO_FLAGS_DIRECT_IO;
    if is_read_only {
        flags |= LO_FLAGS_READ_ONLY;
    }
    if !stays {
        flags |= LO_FLAGS_AUTOCLEAR;
    }
    let mut file_name = [0; 64];
    let name = path.as_os_str().as_encoded_bytes();
    for (to, from) in file_name.iter_mut().take(63).zip(name) {
        *to = *from;
    }
    Config {
        fd: backing.as_raw_fd() as u32,
        block_bytes,
        numbers: [0; 5],
        number: 0,
        encrypt: [0; 2],
        flags,
        file_name,
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        rest: [0; 10],
    }
}

/// With a page cache of its own the device would keep what the target has forgotten.
fn checked(attached: Attached) -> Result<Attached, Failure> {
    let direct = fs::read_to_string(sys(&attached.path).join("loop/dio"));
    match direct.is_ok_and(|text| text.trim() == "1") {
        true => Ok(attached),
        false => {
            clear(&attached.path);
            Err(Failure::operator(format!(
                "{}: this kernel's loop device does no direct I/O on FUSE: Linux 5.14 or newer does",
                attached.path.display()
            )))
        }
    }
}

fn sys(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// The devices on this file.
pub fn on(file: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = entries.map(|entry| Path::new("/dev").join(entry.file_name()));
    names.filter(|device| is_on(device, file)).collect()
}

/// Whether this device is on this file.
pub fn is_on(device: &Path, file: &Path) -> bool {
    let backing = fs::read(sys(device).join("loop/backing_file"));
    backing.is_ok_and(|backing| {
        backing.strip_suffix(b"\n").unwrap_or(&backing) == file.as_os_str().as_encoded_bytes()
    })
}

/// `major:minor` of a device.
pub fn numbers(device: &Path) -> Option<String> {
    let numbers = fs::read_to_string(sys(device).join("dev")).ok()?;
    Some(numbers.trim().to_owned())
}

/// Detaches it, at the latest when its last user is gone.
pub fn clear(device: &Path) {
    if let Ok(file) = File::open(device) {
        // SAFETY: loop(4): it takes no argument.
        unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CLR_FD as _) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_as_long_as_the_kernels() {
        assert_eq!(size_of::<Config>(), 4 + 4 + 232 + 64);
    }
}
