//! Hard disks (and flash) in user space: the models of `ackpace-sim`, run in real time under a real ext4.
//!
//! - A slow disk for a test or an experiment: [`profile::load`] a device, call [`Disk::up`] with a [`Spec`],
//!   and read below [`Disk::mount_point`]. The disk goes down when it is dropped. It needs root, FUSE and loop
//!   devices, but no kernel module.
//! - Terabytes in a second: name [`CorpusFile`]s. Their bytes are generated when they are read, and
//!   `ackpace_lab_base::content` verifies them.
//! - Faults: [`Disk::set_fault`] with a [`Fault`]; [`Disk::places`] says where a file lies.
//! - Statistics: [`Disk::counters`] (seeks, rotation, repeated reads, bytes by file) and [`Disk::log`] (each
//!   read).
//! - A disk for a test: [`run`], the subcommand `disk` of a program that includes [`Args`]. [`clean`] removes what
//!   killed processes left.
//!
//! A FUSE file answers each request in the time that the model gives it (`engine.rs`, `fuse.rs`). It is
//! attached as a loop device with direct I/O. On it is an ext4 (`mount.rs`) with a corpus (`fill.rs`) whose
//! bytes are generated on reading (`store.rs`). The time spent on the path through the kernel is measured and
//! subtracted (`engine.rs`, `arrivals.rs`).

mod arrivals;
mod command;
mod counts;
mod engine;
mod fill;
mod fuse;
mod mount;
pub mod profile;
mod store;
#[cfg(test)]
mod tests;

pub use command::{Args, run};
pub use counts::{Counters, FileCounters, LoggedRead};
pub use fill::CorpusFile;

use ackpace_lab_base::content::Tag;
use ackpace_lab_base::error::{Doing, LabError, Result};
use ackpace_lab_base::punctual::Awake;
use ackpace_lab_base::punctual::be_punctual;
use ackpace_sim::models::disk::profile::Profile;
use engine::{Engine, Lead, Timing, lock};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The I/O scheduler of a disk without reordering in the kernel: the drive orders its queue itself.
pub const NO_ELEVATOR: &str = "none";
/// Parent folder of all disks: each has a folder `disk-NAME` with the mount point `mnt`.
pub const RUN: &str = "/run/ackpace-lab";
/// Blocks of a disk that are stored verbatim, 1 GB: the metadata of some million files. Beyond it, writes fail
/// with ENOSPC.
const PAGES_MAX: usize = 262_144;
/// Longest request to the device; the kernel splits longer ones. A request has at most 128 segments, so one
/// made of single pages is split at this length anyway. Contiguous memory would allow more; this limit makes
/// the length independent of that.
const REQUEST_BYTES_MAX: u64 = 512 << 10;
/// Answer time of the idle device while the path overhead is measured.
const PROBE_US: u64 = 600;
const PROBES: usize = 64;
/// Most overhead that is compensated, in nanoseconds. More than this is not the path but an overloaded machine.
const LEAD_NS_MAX: u64 = 400_000;

/// The disk to build.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Name of its folder: letters, digits, `-`, `_`.
    pub name: String,
    /// The device.
    pub profile: Profile,
    /// Its files. With files or with `writable` the disk has an ext4; otherwise only the bare device exists.
    pub corpus: Vec<CorpusFile>,
    /// Mount it writable. Written blocks without lab content are kept in memory.
    pub writable: bool,
    /// The kernel's read-ahead, in KB: 128 is its default for disks.
    pub read_ahead_kb: u64,
}

/// The fault to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Requests that touch these ranges of the device fail with EIO.
    Eio {
        /// Byte ranges of the device.
        regions: Vec<Range<u64>>,
    },
    /// Requests are not answered until it is healed.
    Hang,
    /// No fault: everything works again.
    None,
}

/// An emulated disk that is up. Dropping it takes it down.
pub struct Disk {
    folder: PathBuf,
    engine: Arc<Engine>,
    device: Option<mount::Loop>,
    mounted: bool,
    threads: Vec<JoinHandle<()>>,
    lock: Option<File>,
    _awake: Awake,
}

impl Disk {
    /// Builds the disk and mounts it; needs root. In a private mount namespace the mounts are private.
    ///
    /// # Errors
    /// A missing prerequisite (root, FUSE, mkfs.ext4), a name that is taken, or a corpus that does not fit.
    pub fn up(spec: &Spec) -> Result<Self> {
        let (folder, lock) = folder(&spec.name)?;
        let (engine, thread) = Engine::start(&spec.profile, PAGES_MAX)?;
        let mut disk = Self {
            folder,
            engine,
            device: None,
            mounted: false,
            threads: vec![thread],
            lock: Some(lock),
            _awake: Awake::keep(),
        };
        let fuse_at = disk.folder.join("fuse");
        let channel = mount::mount_fuse(&fuse_at)?;
        disk.serve(channel)?;
        if spec.writable || !spec.corpus.is_empty() {
            disk.fill(spec)?;
        }
        let device = disk.attach(spec)?;
        if spec.writable || !spec.corpus.is_empty() {
            mount::mount_ext4(device.path(), &disk.mount_point(), spec.writable)?;
            disk.mounted = true;
        }
        disk.device = Some(device);
        disk.calibrate()?;
        Ok(disk)
    }

    /// Measures the present cost of a request outside the model, which grows with other load on the machine.
    /// Nobody else may read meanwhile. Resets the counters.
    ///
    /// # Errors
    /// The device cannot be read.
    fn calibrate(&self) -> Result<()> {
        // In a thread with the same punctuality as the disk's own.
        let lead = std::thread::scope(|scope| {
            let probing = scope.spawn(|| {
                be_punctual(engine::PRIORITY);
                self.measure_overhead()
            });
            probing.join().unwrap_or(Ok(Lead::default()))
        })?;
        self.engine.set_lead(lead);
        self.fast(false);
        self.engine.reset_counters();
        Ok(())
    }

    /// The mount point.
    pub fn mount_point(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Path of the block device.
    pub fn device(&self) -> &Path {
        self.device
            .as_ref()
            .map_or(Path::new(""), mount::Loop::path)
    }

    /// Activity since it came up, or since the last [`Disk::reset_counters`].
    pub fn counters(&self) -> Counters {
        self.engine.counters()
    }

    /// Resets the counters.
    pub fn reset_counters(&self) {
        self.engine.reset_counters();
    }

    /// Begins to log reads of files, or ends that; returns those that were logged.
    pub fn log(&self, on: bool) -> Vec<LoggedRead> {
        self.engine.log(on)
    }

    /// Injects a fault or heals it.
    pub fn set_fault(&self, fault: &Fault) {
        match fault {
            Fault::Eio { regions } => self.engine.set_bad(regions),
            Fault::Hang => self.engine.hang(),
            Fault::None => {
                self.engine.set_bad(&[]);
                self.engine.resume();
            }
        }
    }

    /// The byte ranges on the device that hold a part of a corpus file, for [`Fault::Eio`].
    pub fn places(&self, path: &str, bytes: Range<u64>) -> Vec<Range<u64>> {
        lock(&self.engine.store).places(Tag::of(path), bytes)
    }

    /// Switches fast mode: requests are answered at once and not counted.
    pub fn fast(&self, fast: bool) {
        self.engine
            .set_timing(if fast { Timing::Fast } else { Timing::Model });
    }

    /// Sets the kernel's read-ahead for files on it, in KB.
    ///
    /// # Errors
    /// /sys refuses.
    pub fn set_read_ahead_kb(&self, kb: u64) -> Result<()> {
        self.device.as_ref().map_or(Ok(()), |device| {
            device.set("read_ahead_kb", &kb.to_string())
        })
    }

    /// Sets the kernel's I/O scheduler; with [`NO_ELEVATOR`], requests reach the device in the order issued.
    ///
    /// # Errors
    /// The kernel has no scheduler of this name.
    pub fn set_elevator(&self, name: &str) -> Result<()> {
        self.device
            .as_ref()
            .map_or(Ok(()), |device| device.set("scheduler", name))
    }

    fn serve(&mut self, channel: std::os::fd::OwnedFd) -> Result<()> {
        let what = || "FUSE session".into();
        let mut config = fuser::Config::default();
        config.acl = fuser::SessionACL::All;
        let files = fuse::DiskFile::new(Arc::clone(&self.engine));
        let acl = fuser::SessionACL::All;
        let session = fuser::Session::from_fd(files, channel, acl, config).doing(what)?;
        let thread = std::thread::Builder::new().name("lab-disk-fuse".into());
        // The session ends with its mount; its error adds nothing.
        let serve = move || {
            be_punctual(engine::PRIORITY);
            drop(session.run());
        };
        let thread = thread.spawn(serve).doing(what)?;
        self.threads.push(thread);
        Ok(())
    }

    fn attach(&self, spec: &Spec) -> Result<mount::Loop> {
        let backing = self.folder.join("fuse").join(fuse::FILE);
        let device = mount::Loop::attach(&backing, &format!("ackpace-lab {}", spec.name))?;
        // The drive orders its queue itself; a scheduler above it would distort the measurement.
        device.set("scheduler", NO_ELEVATOR)?;
        device.set("max_sectors_kb", &(REQUEST_BYTES_MAX >> 10).to_string())?;
        let turns = !matches!(spec.profile, Profile::Flash(_));
        device.set("rotational", if turns { "1" } else { "0" })?;
        device.set("read_ahead_kb", &spec.read_ahead_kb.to_string())?;
        Ok(device)
    }

    fn fill(&self, spec: &Spec) -> Result<()> {
        let total: u64 = spec.corpus.iter().map(|file| file.len_bytes).sum();
        if total > self.engine.size_bytes() {
            return Err(LabError::Setup(format!(
                "the corpus has {total} bytes, the disk {}",
                self.engine.size_bytes()
            )));
        }
        let device = self.attach(spec)?;
        mount::make_ext4(device.path(), spec.corpus.len() as u64)?;
        if spec.corpus.is_empty() {
            device.detach();
            return Ok(());
        }
        let at = self.mount_point();
        mount::mount_ext4(device.path(), &at, true)?;
        let allocated = fill::allocate(&at, &spec.corpus);
        mount::take_down(&at);
        // No cache may hold the blocks that are edited now.
        device.detach();
        fill::give_content(&self.engine.store, &allocated?)?;
        for file in &spec.corpus {
            self.engine.set_name(Tag::of(&file.path), &file.path);
        }
        Ok(())
    }

    /// Measures the path overhead: how much longer a request takes than the device says, for short and long
    /// ones.
    fn measure_overhead(&self) -> Result<Lead> {
        let what = || format!("reading {}", self.device().display());
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_DIRECT);
        let file = file.open(self.device()).doing(what)?;
        self.engine.set_timing(Timing::Flat { us: PROBE_US });
        let mut buffer = AlignedBuffer::new();
        let mut of_len = |len: usize| {
            let mut extra = Vec::with_capacity(PROBES);
            for _ in 0..PROBES {
                let start = Instant::now();
                file.read_exact_at(&mut buffer.bytes()[..len], 0)
                    .doing(what)?;
                let took_ns = start.elapsed().as_nanos() as u64;
                extra.push(took_ns.saturating_sub(PROBE_US * 1000 + self.engine.last_late_ns()));
            }
            // The mean has to be subtracted, but without the few outliers caused by other load on the machine.
            extra.sort_unstable();
            let usual = &extra[..PROBES * 7 / 8];
            Ok(usual.iter().sum::<u64>() / usual.len() as u64)
        };
        let (short_ns, long_ns) = (of_len(4096)?, of_len(1 << 20)?);
        Ok(Lead {
            base_ns: short_ns.min(LEAD_NS_MAX),
            per_mb_ns: long_ns.saturating_sub(short_ns).min(LEAD_NS_MAX),
        })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.fast(true);
        self.set_fault(&Fault::None);
        if self.mounted {
            mount::take_down(&self.mount_point());
        }
        if let Some(device) = self.device.take() {
            device.detach();
        }
        mount::take_down(&self.folder.join("fuse"));
        self.engine.stop();
        let start = Instant::now();
        for thread in self.threads.drain(..) {
            // The mount may still be in use; then its thread ends together with the last user.
            while !thread.is_finished() && start.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
        remove_folder(&self.folder);
        drop(self.lock.take());
    }
}

/// Removes what disks of ended processes left: mounts, loop devices, folders. `name` limits it to one disk.
/// Disks that are up stay.
pub fn clean(name: Option<&str>) {
    let Ok(entries) = std::fs::read_dir(RUN) else {
        return;
    };
    for entry in entries.flatten() {
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let Some(of) = file_name.strip_prefix("disk-") else {
            continue;
        };
        if name.is_some_and(|name| name != of) {
            continue;
        }
        let folder = entry.path();
        let held = File::open(folder.join("lock"))
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_err());
        if !held {
            // Without their process, requests fail at once.
            mount::take_down(&folder.join("mnt"));
            mount::take_down(&folder.join("fuse"));
            remove_folder(&folder);
        }
    }
    let _ = std::fs::remove_dir(RUN);
}

/// The folder of a new disk, and the lock that marks it as up.
fn folder(name: &str) -> Result<(PathBuf, File)> {
    if !rustix::process::geteuid().is_root() {
        let what = "an emulated disk needs root: FUSE for all users, a loop device, mounts";
        return Err(LabError::Setup(what.into()));
    }
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 40 || !name.chars().all(good) {
        return Err(LabError::Setup(format!(
            "a disk cannot be called {name:?}: 1 to 40 letters, digits, - and _"
        )));
    }
    clean(Some(name));
    let folder = Path::new(RUN).join(format!("disk-{name}"));
    let what = || folder.display().to_string();
    std::fs::create_dir_all(RUN).doing(|| RUN.into())?;
    if std::fs::create_dir(&folder).is_err() {
        return Err(LabError::Setup(format!("the disk {name} is up already")));
    }
    let lock = File::create(folder.join("lock")).doing(what)?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).doing(what)?;
    for part in ["fuse", "mnt"] {
        std::fs::create_dir(folder.join(part)).doing(what)?;
    }
    Ok((folder, lock))
}

/// Removes only our own files and empty folders: a mount that failed to go away must not lose files.
fn remove_folder(folder: &Path) {
    for part in ["fuse", "mnt"] {
        let _ = std::fs::remove_dir(folder.join(part));
    }
    for part in ["lock", "control", "log"] {
        let _ = std::fs::remove_file(folder.join(part));
    }
    let _ = std::fs::remove_dir(folder);
    let _ = std::fs::remove_dir(RUN);
}

/// A buffer of one megabyte, aligned for O_DIRECT.
struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    fn new() -> Self {
        let bytes = vec![0; (1 << 20) + 4096];
        let start = bytes.as_ptr().align_offset(4096);
        Self { bytes, start }
    }

    fn bytes(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + (1 << 20)]
    }
}
