//! Devices: the sets of disks below the file systems.
//!
//! A device is a set of disks ([`super::leaves`]). File systems on the same disks share it, since a read of one delays
//! those of the others. Where the disks are unknown, the datasets of a pool share one, and any other file system (an overlay,
//! a network file system) is a device of its own, with cautious assumptions.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, TryLockError};

use ackpace_core::conn::ResidencySource;

use super::attributes::FileSystemId;
use super::latency::DeviceLatency;
use super::leaves::{self, Below, KernelFiles};
use super::magic::Magic;
use super::residency;
use crate::limits::DEVICES_MAX;

/// Mounted file systems whose device is remembered, 40 bytes each. More: all are forgotten, and met again when they are used.
const FILE_SYSTEMS_MAX: usize = 1024;

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Its number in the table of devices.
    pub index: u16,
    /// The numbers (`st_rdev`) of its disks, ascending; empty where they are not known.
    pub disks: Box<[u64]>,
    /// The kernel's names of these (`sda`), as far as it has any.
    pub names: Box<[String]>,
    /// Whether it has an arm, or may have one.
    pub rotational: bool,
    /// Its files are memory (tmpfs, ramfs): always resident.
    pub memory: bool,
    key: DeviceKey,
    readahead_bytes: AtomicU64,
    /// How long its reads take.
    pub latency: Arc<DeviceLatency>,
    /// It is an overlay (overlayfs), whose pages belong to other inodes: cachestat(2) does not see them.
    overlay: bool,
    /// Look-ups of files, and of where they lie, that are under way.
    look_ups: AtomicU32,
}

/// What tells a device from others.
#[derive(Debug, PartialEq, Eq)]
enum DeviceKey {
    /// Its disks.
    Disks(Box<[u64]>),
    /// The origins of a gateway.
    Origin(String),
    /// The name of a pool whose disks are not known.
    Pool(String),
    /// The number and kind of a file system of which nothing is known: a further mount of it has the same device.
    FileSystem(u64, Option<Magic>),
}

/// Counts an operation on a device for as long as this lives.
#[derive(Debug)]
pub struct UnderWay<'a>(&'a AtomicU32);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicU32) -> UnderWay<'a> {
        count.fetch_add(1, Ordering::AcqRel);
        UnderWay(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Device {
    /// How the residency of one of its files can be known.
    pub fn residency(&self, file: &impl AsFd) -> ResidencySource {
        // Other file systems may share the last slot of the table.
        if self.memory && Magic::of(file).is_some_and(Magic::is_memory) {
            ResidencySource::Always
        } else if self.overlay || !residency::may_ask(file) {
            ResidencySource::Remember
        } else {
            ResidencySource::Ask
        }
    }

    /// For messages: its number, and what is known of its disks.
    pub fn shown(&self) -> String {
        let disks = match &self.names {
            _ if self.memory => "in memory".to_owned(),
            names if names.is_empty() => "of unknown disks".to_owned(),
            names => names.join(", "),
        };
        format!("{} ({disks})", self.index)
    }

    /// Whether an operator's name means this device: its number, as in the metrics, or one of its disks, `sda` or
    /// `/dev/sda`.
    pub fn is_called(&self, name: &str) -> bool {
        let disk = name.strip_prefix("/dev/").unwrap_or(name);
        name.parse() == Ok(self.index) || self.names.iter().any(|own| own == disk)
    }

    /// Whether it stands for the origins of a gateway.
    pub fn is_origin(&self) -> bool {
        matches!(self.key, DeviceKey::Origin(_))
    }

    /// Counts a look-up of a file, or of where it lies, which may wait for the disks.
    pub fn look_up(&self) -> UnderWay<'_> {
        UnderWay::begin(&self.look_ups)
    }

    /// Look-ups under way.
    pub fn look_ups(&self) -> u32 {
        self.look_ups.load(Ordering::Relaxed)
    }

    /// The number of its disks; 1 where that is not known.
    pub fn spindles(&self) -> usize {
        self.disks.len().max(1)
    }

    /// The longest span that one readahead(2) is sure to start on any of its file systems.
    pub fn readahead_bytes(&self) -> u64 {
        self.readahead_bytes.load(Ordering::Relaxed)
    }
}

/// All devices met so far. In a full table further ones share the last slot.
#[derive(Debug)]
pub struct Devices {
    /// Locked to look up or to enter, and never during a system call. When it is full it begins anew, so that file systems
    /// which are gone leave room.
    file_systems: RwLock<HashMap<FileSystemId, FileSystem>>,
    places: [OnceLock<Device>; DEVICES_MAX],
    meeting: Mutex<()>,
    kernel: KernelFiles,
    places_max: usize,
}

/// What is kept of a file system that was met.
#[derive(Clone, Copy, Debug)]
struct FileSystem {
    index: u16,
    base_bytes: u64,
    is_here: bool,
}

/// A file system that was met.
#[derive(Clone, Copy, Debug)]
pub struct Met<'a> {
    /// Its device.
    pub device: &'a Device,
    /// The number to add to an offset on it, so that offsets on all file systems of its device can be compared.
    pub base_bytes: u64,
    /// Its files are this machine's, so that a worker may open them: that asks no daemon and no file server.
    pub is_here: bool,
}

impl Default for Devices {
    fn default() -> Devices {
        Devices::told_by(KernelFiles {
            sysfs: "/sys".into(),
            mountinfo: "/proc/self/mountinfo".into(),
        })
    }
}

impl Devices {
    /// An empty table that asks these files.
    pub fn told_by(kernel: KernelFiles) -> Devices {
        Devices {
            file_systems: RwLock::default(),
            places: std::array::from_fn(|_| OnceLock::new()),
            meeting: Mutex::default(),
            kernel,
            places_max: DEVICES_MAX,
        }
    }

    /// The same with so many slots, at least one and [`DEVICES_MAX`] at most.
    pub fn at_most(self, places_max: usize) -> Devices {
        Devices {
            places_max: places_max.clamp(1, DEVICES_MAX),
            ..self
        }
    }

    /// The file system of a file, and its device. Of one that nobody has met, the kernel is asked, which may wait for a file
    /// server: nothing for a worker.
    pub fn of(&self, file: &impl AsFd, id: FileSystemId) -> Met<'_> {
        if let Some(known) = self.known(id) {
            return known;
        }
        // Asked before the lock is taken: a file server may not answer.
        let below = leaves::below(&self.kernel, file, id.st_dev);
        let readahead_bytes = leaves::readahead_bytes(&self.kernel.sysfs, id.st_dev);
        let magic = Magic::of(file);
        let base_bytes = below.base_bytes;
        let is_here = magic.is_some_and(|magic| magic.elsewhere().is_none());
        let _meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        let device = self.meet(id.st_dev, magic, below, readahead_bytes);
        device
            .readahead_bytes
            .fetch_min(readahead_bytes, Ordering::Relaxed);
        let met = FileSystem {
            index: device.index,
            base_bytes,
            is_here,
        };
        let file_systems = self.file_systems.write();
        let mut file_systems = file_systems.unwrap_or_else(PoisonError::into_inner);
        if file_systems.len() >= FILE_SYSTEMS_MAX {
            file_systems.clear();
        }
        file_systems.insert(id, met);
        Met {
            device,
            base_bytes,
            is_here,
        }
    }

    /// A device for the origins of a gateway, of which nothing but their name is known.
    pub fn origin(&self, name: &str) -> u16 {
        let _meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        self.enter(DeviceKey::Origin(name.to_owned()), |index, key| Device {
            index,
            rotational: false,
            names: [name.to_owned()].into(),
            disks: Box::default(),
            memory: false,
            key,
            readahead_bytes: AtomicU64::new(0),
            latency: Arc::default(),
            overlay: false,
            look_ups: AtomicU32::new(0),
        })
        .index
    }

    /// The device of an index that was given out.
    pub fn get(&self, index: u16) -> Option<&Device> {
        self.places.get(usize::from(index))?.get()
    }

    /// All that were met, by number.
    pub fn met_so_far(&self) -> impl Iterator<Item = &Device> {
        self.places.iter().map_while(OnceLock::get)
    }

    /// The device with these disks, or of this file system, or a new one.
    fn meet(
        &self,
        st_dev: u64,
        magic: Option<Magic>,
        below: Below,
        readahead_bytes: u64,
    ) -> &Device {
        let memory = magic.is_some_and(Magic::is_memory);
        let disks = below.disks;
        let key = match below.pool {
            _ if !disks.is_empty() => DeviceKey::Disks(disks.clone()),
            Some(pool) => DeviceKey::Pool(pool),
            None => DeviceKey::FileSystem(st_dev, magic),
        };
        self.enter(key, |index, key| Device {
            index,
            rotational: below.rotational && !memory,
            names: disks
                .iter()
                .filter_map(|disk| leaves::name(&self.kernel.sysfs, *disk))
                .collect(),
            disks,
            memory,
            key,
            readahead_bytes: AtomicU64::new(readahead_bytes),
            latency: Arc::default(),
            overlay: magic == Some(Magic::OVERLAYFS),
            look_ups: AtomicU32::new(0),
        })
    }

    /// The device with this key, or a new one in a free place, or the last one.
    fn enter(&self, key: DeviceKey, device: impl FnOnce(u16, DeviceKey) -> Device) -> &Device {
        let mut all = self.met_so_far();
        if let Some(same) = all.find(|device| device.key == key) {
            return same;
        }
        let places = &self.places[..self.places_max];
        let free = places.iter().position(|place| place.get().is_none());
        let index = free.unwrap_or(places.len() - 1);
        self.places[index].get_or_init(|| device(index as u16, key))
    }

    /// A file system that was met. Never waits: while another one is entered, it may be missing.
    pub fn known(&self, id: FileSystemId) -> Option<Met<'_>> {
        let file_systems = match self.file_systems.try_read() {
            Ok(file_systems) => file_systems,
            Err(TryLockError::Poisoned(file_systems)) => file_systems.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let met = *file_systems.get(&id)?;
        Some(Met {
            device: self.get(met.index)?,
            base_bytes: met.base_bytes,
            is_here: met.is_here,
        })
    }

    /// The number of the device of a file system; of one that nobody has met, that of the last slot, which further ones
    /// share. Never waits.
    pub fn index(&self, id: FileSystemId) -> u16 {
        let last = self.places_max as u16 - 1;
        self.known(id).map_or(last, |met| met.device.index)
    }

    /// Whether the files of a file system are this machine's ([`Met::is_here`]); of one that nobody has met, it is not known.
    /// Never waits.
    pub fn is_here(&self, id: FileSystemId) -> bool {
        self.known(id).is_some_and(|met| met.is_here)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ackpace_core::units::KIB;
    use rustix::fs::makedev;

    use super::*;
    use crate::store::leaves::tests::Sysfs;

    fn mounted(st_dev: u64, mount_id: u64) -> FileSystemId {
        FileSystemId { st_dev, mount_id }
    }

    #[test]
    fn a_device_keeps_its_place_and_a_full_table_shares_its_last_one() {
        let devices = Devices::default();
        let file = fs::File::open("/").expect("the root directory");
        let of = |n| devices.of(&file, mounted((1 << 40) + n, 1)).device;
        assert_eq!((of(0).index, of(0).readahead_bytes()), (0, 128 * KIB));
        for n in 1..DEVICES_MAX as u64 + 3 {
            of(n);
        }
        assert_eq!(of(0).index, 0);
        assert_eq!(of(100).index as usize, DEVICES_MAX - 1);
    }

    #[test]
    fn what_is_known_of_a_file_system_is_not_believed_of_another_mount_with_its_number() {
        let devices = Devices::default();
        let (file, null) = (fs::File::open("/"), fs::File::open("/proc/self/stat"));
        let (file, other) = (file.expect("a directory"), null.expect("procfs"));
        let (one, two, gone) = (
            mounted(1 << 40, 1),
            mounted(1 << 40, 2),
            mounted(1 << 40, 3),
        );
        let first = devices.of(&file, one);
        assert!(devices.is_here(one));
        assert!(!devices.is_here(two) && devices.known(two).is_none());
        let bound = devices.of(&file, two);
        assert_eq!(bound.device.index, first.device.index, "one device");
        let third = devices.of(&other, gone);
        assert_ne!(third.device.index, first.device.index, "another kind");
    }

    #[test]
    fn file_systems_on_the_same_disks_share_a_device() {
        let sys = Sysfs::of_a_server("shared");
        let devices = Devices::told_by(sys.kernel());
        let file = fs::File::open("/").expect("the root directory");
        let met = |major, minor| devices.of(&file, mounted(makedev(major, minor), 1));
        let of = |major, minor| met(major, minor).device;
        let first = of(8, 1);
        assert_eq!(
            (first.spindles(), first.rotational, first.readahead_bytes()),
            (1, true, 256 * KIB)
        );
        assert_eq!(of(8, 2).index, first.index, "another partition of the disk");
        assert_eq!(met(8, 2).base_bytes, 409_600 * 512);
        let array = of(253, 0);
        assert_eq!(
            (array.index, array.spindles()),
            (1, 2),
            "more disks than that one"
        );
        assert_eq!(array.readahead_bytes(), 1280 * KIB);
        assert_eq!(of(9, 0).index, array.index, "the same two, one layer down");
        assert_eq!(array.shown(), "1 (sda, sdb)");
        assert!(array.is_called("1") && array.is_called("/dev/sdb") && !array.is_called("sdc"));
        assert_eq!(array.readahead_bytes(), 128 * KIB, "what both are sure of");
        assert!(!of(259, 0).rotational);
        // Of these nothing is known, so they share nothing.
        let (one, other) = (of(0, 50), of(0, 51));
        assert_ne!(one.index, other.index);
        assert_eq!(one.shown(), format!("{} (of unknown disks)", one.index));
        assert_eq!((one.spindles(), one.rotational), (1, true));
        assert_eq!(met(0, 50).base_bytes, 0);
    }

    #[test]
    fn subvolumes_and_datasets_share_the_device_of_their_pool() {
        let sys = Sysfs::of_a_server("pools");
        let devices = Devices::told_by(sys.kernel());
        let file = fs::File::open("/").expect("the root directory");
        let of = |st_dev, source| {
            sys.mount(&file, "zfs", source);
            devices.of(&file, mounted(st_dev, st_dev)).device.index
        };
        let (one, other) = (of(50, "tank/a"), of(51, "tank/b@yesterday"));
        assert_eq!(one, other);
        assert_ne!(of(52, "dozer/a"), one);
    }

    #[test]
    fn more_file_systems_than_have_a_place_still_get_a_device() {
        let devices = Devices::default();
        let file = fs::File::open("/").expect("the root directory");
        for n in 0..FILE_SYSTEMS_MAX as u64 + 9 {
            let id = mounted((1 << 40) + n, n);
            let index = devices.of(&file, id).device.index;
            assert_eq!(usize::from(index), (n as usize).min(DEVICES_MAX - 1));
            assert!(devices.is_here(id));
        }
        let kept = devices.file_systems.read().expect("no panic").len();
        assert!(kept <= FILE_SYSTEMS_MAX);
    }

    #[test]
    fn files_in_memory_need_no_source() {
        let Ok(file) = fs::File::open("/dev/shm") else {
            return;
        };
        let device = Devices::default();
        if Magic::of(&file).is_some_and(Magic::is_memory) {
            assert_eq!(
                device.of(&file, mounted(5, 1)).device.residency(&file),
                ResidencySource::Always
            );
        }
    }
}
