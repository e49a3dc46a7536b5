//! The kernel's side: FUSE mount, loop device with direct I/O, ext4, and the removal of each.

use super::fuse;
use ackpace_lab_base::error::{Doing, LabError, Result};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long something in use may block its removal before it is forced.
const BUSY_MAX: Duration = Duration::from_secs(3);

// linux/loop.h
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4c82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4c0a;
const LOOP_CLR_FD: libc::c_ulong = 0x4c01;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;

/// struct loop_config with its struct loop_info64.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    sizelimit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
    reserved: [u64; 8],
}

/// Mounts a FUSE file system at an empty folder and returns the descriptor for its session.
pub fn mount_fuse(at: &Path) -> Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(|error| {
        LabError::Setup(format!(
            "/dev/fuse: {error}: the emulated disks need FUSE (modprobe fuse; in a container --device /dev/fuse)"
        ))
    })?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={}",
        device.as_raw_fd(),
        fuse::REQUEST_BYTES_MAX
    );
    let options = CString::new(options).doing(|| "FUSE options".into())?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("ackpace-lab", at, "fuse.ackpace-lab", flags, &*options)
        .doing(|| format!("mounting FUSE at {}", at.display()))?;
    Ok(device.into())
}

/// A loop device. It disappears when nobody holds or mounts it any more.
pub struct Loop {
    path: PathBuf,
    file: File,
}

impl Loop {
    /// Attaches the file with direct I/O; `losetup` shows `name`.
    pub fn attach(backing: &Path, name: &str) -> Result<Self> {
        let what = || format!("loop device for {}", backing.display());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true);
        let control = options
            .open("/dev/loop-control")
            .doing(|| "/dev/loop-control".into())?;
        let direct = options
            .clone()
            .custom_flags(libc::O_DIRECT)
            .open(backing)
            .doing(what)?;
        let mut last = std::io::Error::from_raw_os_error(libc::EBUSY);
        // Another process may take the free device first.
        for _ in 0..32 {
            // SAFETY: loop(4): takes no argument, returns a number.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(std::io::Error::last_os_error()).doing(what);
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let file = options.open(&path).doing(|| path.display().to_string())?;
            let config = LoopConfig::new(&direct, name);
            // SAFETY: loop(4): reads one struct loop_config, which lives here.
            if unsafe { libc::ioctl(file.as_raw_fd(), LOOP_CONFIGURE, &config) } == 0 {
                return Self { path, file }.checked();
            }
            last = std::io::Error::last_os_error();
            if last.raw_os_error() != Some(libc::EBUSY) {
                break;
            }
        }
        Err(last).doing(what)
    }

    /// Path of the device.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes to a file of its folder `queue` in /sys.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        let path = sys(&self.path).join("queue").join(key);
        std::fs::write(&path, value).doing(|| format!("writing {value} to {}", path.display()))
    }

    fn checked(self) -> Result<Self> {
        let dio = sys(&self.path).join("loop/dio");
        match std::fs::read_to_string(&dio) {
            Ok(text) if text.trim() == "1" => Ok(self),
            _ => Err(LabError::Setup(format!(
                "{}: this kernel's loop device refuses direct I/O on FUSE: everything would be cached twice",
                self.path.display()
            ))),
        }
    }

    /// Detaches it, at the latest when its last user is gone; waits a little for that.
    pub fn detach(self) {
        // SAFETY: loop(4): takes no argument. ENXIO: gone already.
        unsafe { libc::ioctl(self.file.as_raw_fd(), LOOP_CLR_FD) };
        let attached = sys(&self.path).join("loop/backing_file");
        drop(self.file);
        let start = Instant::now();
        while attached.exists() && start.elapsed() < BUSY_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl LoopConfig {
    fn new(backing: &File, name: &str) -> Self {
        let mut file_name = [0; 64];
        for (to, from) in file_name.iter_mut().take(63).zip(name.bytes()) {
            *to = from;
        }
        Self {
            fd: backing.as_raw_fd() as u32,
            block_size: 4096,
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            sizelimit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags: LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
            file_name,
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
            reserved: [0; 8],
        }
    }
}

fn sys(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Creates an ext4 for about this many files, without journal and checksums. Without a journal, only the files'
/// own blocks are read while a server is measured; without checksums, extents can be edited (see `fill.rs`).
pub fn make_ext4(device: &Path, files: u64) -> Result<()> {
    let inodes = (files * 5 / 4 + 16_384).to_string();
    let mut command = Command::new("mkfs.ext4");
    command.args([
        "-q", "-F", "-b", "4096", "-I", "256", "-m", "0", "-N", &inodes,
    ]);
    command.args(["-O", "^has_journal,^metadata_csum,^resize_inode,uninit_bg"]);
    command
        .args(["-E", "nodiscard,lazy_itable_init=1"])
        .arg(device);
    let output = command.output().map_err(|error| {
        LabError::Setup(format!("mkfs.ext4: {error}: install the package e2fsprogs"))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(LabError::Setup(format!("mkfs.ext4: {why}")))
}

/// Mounts it.
pub fn mount_ext4(device: &Path, at: &Path, writable: bool) -> Result<()> {
    let mut flags = MountFlags::NOATIME | MountFlags::NOSUID | MountFlags::NODEV;
    if !writable {
        flags |= MountFlags::RDONLY;
    }
    mount(device, at, "ext4", flags, c"noinit_itable,nodiscard")
        .doing(|| format!("mounting {} at {}", device.display(), at.display()))
}

/// Unmounts. A mount that is still in use after a while is detached from the tree and goes with its last user.
pub fn take_down(at: &Path) {
    let start = Instant::now();
    loop {
        match unmount(at, UnmountFlags::empty()) {
            Err(rustix::io::Errno::BUSY) if start.elapsed() < BUSY_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::BUSY) => {
                let _ = unmount(at, UnmountFlags::DETACH);
                return;
            }
            _ => return, // done, or it was not a mount
        }
    }
}
