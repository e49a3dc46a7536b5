//! A limit on the rate at which one process reads a device, while others read at full speed (cgroups(7): io, blkio).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A cgroup with one process and a limit. It is removed when this is dropped, once the process has ended.
pub struct Throttle {
    group: PathBuf,
    device: String,
    is_v2: bool,
}

impl Throttle {
    /// Puts a process into a cgroup of its own, without a limit at first; `at` is a path on the device.
    pub fn new(pid: u32, at: &Path) -> io::Result<Throttle> {
        static NTH: AtomicU32 = AtomicU32::new(0);
        let number = fs::metadata(at)?.dev();
        let device = format!("{}:{}", libc::major(number), libc::minor(number));
        let v1 = Path::new("/sys/fs/cgroup/blkio");
        let is_v2 = !v1.is_dir();
        let above = if is_v2 {
            Path::new("/sys/fs/cgroup")
        } else {
            v1
        };
        if is_v2 {
            fs::write(above.join("cgroup.subtree_control"), "+io")?;
        }
        let nth = NTH.fetch_add(1, Ordering::Relaxed);
        let group = above.join(format!("ackpace-test-{}-{nth}", std::process::id()));
        fs::create_dir(&group)?;
        let throttle = Throttle {
            group,
            device,
            is_v2,
        };
        throttle.limit(None)?;
        fs::write(throttle.group.join("cgroup.procs"), pid.to_string())?;
        Ok(throttle)
    }

    /// Limits the process to this rate from now on; `None`: no limit.
    pub fn limit(&self, rate_bytes_per_s: Option<u64>) -> io::Result<()> {
        let device = &self.device;
        let (file, line) = match (self.is_v2, rate_bytes_per_s) {
            (true, None) => ("io.max", format!("{device} rbps=max")),
            (true, Some(rate)) => ("io.max", format!("{device} rbps={rate}")),
            (false, rate) => (
                "blkio.throttle.read_bps_device",
                format!("{device} {}", rate.unwrap_or(0)),
            ),
        };
        fs::write(self.group.join(file), line)
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = self.limit(None);
        // A cgroup can be removed once it has no process: ours may take a moment to end.
        for _ in 0..200 {
            match fs::remove_dir(&self.group) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    std::thread::sleep(std::time::Duration::from_millis(10));
                }
                _ => return,
            }
        }
    }
}
