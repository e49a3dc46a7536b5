//! Devices: the sets of disks below the file systems.
//!
//! A device is a set of disks ([`super::leaves`]). File systems on the same disks share it, since a read of one delays
//! those of the others. A file system whose disks are unknown (btrfs, an overlay, a network file system) is a device of
//! its own, with cautious assumptions.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ackpace_core::conn::ResidencySource;

use super::latency::DeviceLatency;
use super::leaves::{self, Below};
use super::magic::Magic;
use super::residency;
use crate::limits::{DEVICES_MAX, FILE_SYSTEMS_MAX};

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
    readahead_bytes: AtomicU64,
    /// How long its reads take.
    pub latency: Arc<DeviceLatency>,
    /// cachestat(2) does not see the pages that we read, as on overlayfs, whose pages belong to another inode.
    blind: AtomicBool,
    /// Look-ups of files, and of where they lie, that are under way.
    look_ups: AtomicU32,
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
        } else if self.is_blind() || !residency::may_ask(file) {
            ResidencySource::Remember
        } else {
            ResidencySource::Ask
        }
    }

    /// cachestat(2) did not see pages that were just read: it is not asked any more.
    pub fn mark_blind(&self) {
        self.blind.store(true, Ordering::Relaxed);
    }

    /// Whether cachestat(2) is not asked any more.
    pub fn is_blind(&self) -> bool {
        self.blind.load(Ordering::Relaxed)
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
    file_systems: [OnceLock<FileSystem>; FILE_SYSTEMS_MAX],
    places: [OnceLock<Device>; DEVICES_MAX],
    meeting: Mutex<()>,
    sysfs: PathBuf,
    /// Slots that may be used.
    places_max: usize,
}

/// A file system that was met.
#[derive(Debug)]
struct FileSystem {
    st_dev: u64,
    /// Its device.
    index: u16,
    base_bytes: u64,
    /// To open one of its files asks no daemon and no file server.
    is_here: bool,
}

impl Default for Devices {
    fn default() -> Devices {
        Devices::with_sysfs("/sys")
    }
}

impl Devices {
    /// An empty table that asks the sysfs mounted at `sysfs`.
    pub fn with_sysfs(sysfs: impl Into<PathBuf>) -> Devices {
        Devices {
            file_systems: std::array::from_fn(|_| OnceLock::new()),
            places: std::array::from_fn(|_| OnceLock::new()),
            meeting: Mutex::default(),
            sysfs: sysfs.into(),
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

    /// The device of a file with this `st_dev`. Of a file system that nobody has met, the kernel is asked, which may wait for
    /// a file server: nothing for a worker.
    pub fn of(&self, file: &impl AsFd, st_dev: u64) -> &Device {
        if let Some(known) = self.known(st_dev) {
            return known;
        }
        // Asked before the lock is taken: a file server may not answer.
        let below = leaves::below(&self.sysfs, st_dev);
        let readahead_bytes = leaves::readahead_bytes(&self.sysfs, st_dev);
        let magic = Magic::of(file);
        let memory = magic.is_some_and(Magic::is_memory);
        let base_bytes = below.as_ref().map_or(0, |below| below.base_bytes);
        let _meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known(st_dev) {
            return known;
        }
        let device = self.meet(memory, below, readahead_bytes);
        device
            .readahead_bytes
            .fetch_min(readahead_bytes, Ordering::Relaxed);
        let met = FileSystem {
            st_dev,
            index: device.index,
            base_bytes,
            is_here: magic.is_some_and(|magic| magic.elsewhere().is_none()),
        };
        let free = self.file_systems.iter().find(|name| name.get().is_none());
        free.map(|name| name.get_or_init(|| met));
        device
    }

    /// The number to add to an offset on the file system with this `st_dev`, so that offsets on all file systems of its
    /// device can be compared. The file system must have been met.
    pub fn base_bytes(&self, st_dev: u64) -> u64 {
        self.met(st_dev).map_or(0, |met| met.base_bytes)
    }

    /// The device of an index that was given out.
    pub fn get(&self, index: u16) -> Option<&Device> {
        self.places.get(usize::from(index))?.get()
    }

    /// All that were met, by number.
    pub fn met_so_far(&self) -> impl Iterator<Item = &Device> {
        self.places.iter().map_while(OnceLock::get)
    }

    /// The device with these disks, or a new one.
    fn meet(&self, memory: bool, below: Option<Below>, readahead_bytes: u64) -> &Device {
        let disks: Box<[u64]> = below
            .as_ref()
            .map_or_else(Box::default, |below| below.disks.clone());
        let same = self
            .met_so_far()
            .find(|device| !disks.is_empty() && device.disks == disks);
        if let Some(same) = same {
            return same;
        }
        let places = &self.places[..self.places_max];
        let free = places.iter().position(|place| place.get().is_none());
        let index = free.unwrap_or(places.len() - 1);
        self.places[index].get_or_init(|| Device {
            index: index as u16,
            rotational: below.as_ref().map_or(!memory, |below| below.rotational),
            names: disks
                .iter()
                .filter_map(|disk| leaves::name(&self.sysfs, *disk))
                .collect(),
            disks,
            memory,
            readahead_bytes: AtomicU64::new(readahead_bytes),
            latency: Arc::default(),
            blind: AtomicBool::new(false),
            look_ups: AtomicU32::new(0),
        })
    }

    /// The device of a file system that was met. Those for which the table has no room share the device of the last one
    /// in it. Never waits.
    pub fn known(&self, st_dev: u64) -> Option<&Device> {
        let last = || self.file_systems.last()?.get();
        self.get(self.met(st_dev).or_else(last)?.index)
    }

    /// The number of the device of a file system; of one that nobody has met, that of the last slot, which further ones
    /// share. Never waits.
    pub fn index(&self, st_dev: u64) -> u16 {
        let last = self.places_max - 1;
        self.met(st_dev).map_or(last as u16, |met| met.index)
    }

    /// Whether the files of a file system are this machine's, so that a worker may open them; of one that nobody has met,
    /// it is not known. Never waits.
    pub fn is_here(&self, st_dev: u64) -> bool {
        self.met(st_dev).is_some_and(|met| met.is_here)
    }

    fn met(&self, st_dev: u64) -> Option<&FileSystem> {
        let mut met = self.file_systems.iter().map_while(OnceLock::get);
        met.find(|met| met.st_dev == st_dev)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ackpace_core::units::KIB;
    use rustix::fs::makedev;

    use super::*;
    use crate::store::leaves::tests::Sysfs;

    #[test]
    fn a_device_keeps_its_place_and_a_full_table_shares_its_last_one() {
        let devices = Devices::default();
        let file = fs::File::open("/").expect("the root directory");
        let first = devices.of(&file, 1 << 40);
        assert_eq!((first.index, first.readahead_bytes()), (0, 128 * KIB));
        for n in 1..DEVICES_MAX as u64 + 3 {
            devices.of(&file, (1 << 40) + n);
        }
        assert_eq!(devices.of(&file, 1 << 40).index, 0);
        assert_eq!(
            devices.of(&file, (1 << 40) + 100).index as usize,
            DEVICES_MAX - 1
        );
    }

    #[test]
    fn file_systems_on_the_same_disks_share_a_device() {
        let sys = Sysfs::of_a_server("shared");
        let devices = Devices::with_sysfs(&sys.dir);
        let file = fs::File::open("/").expect("the root directory");
        let of = |major, minor| devices.of(&file, makedev(major, minor));
        let first = of(8, 1);
        assert_eq!(
            (first.spindles(), first.rotational, first.readahead_bytes()),
            (1, true, 256 * KIB)
        );
        assert_eq!(of(8, 2).index, first.index, "another partition of the disk");
        assert_eq!(devices.base_bytes(makedev(8, 2)), 409_600 * 512);
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
        assert_eq!(devices.base_bytes(makedev(0, 50)), 0);
    }

    #[test]
    fn more_file_systems_than_have_a_place_still_get_a_device() {
        let sys = Sysfs::of_a_server("many");
        let devices = Devices::with_sysfs(&sys.dir);
        let file = fs::File::open("/").expect("the root directory");
        for n in 0..FILE_SYSTEMS_MAX as u32 + 9 {
            let index = devices.of(&file, makedev(0, 100 + n)).index;
            assert_eq!(usize::from(index), (n as usize).min(DEVICES_MAX - 1));
        }
    }

    #[test]
    fn files_in_memory_need_no_source() {
        let Ok(file) = fs::File::open("/dev/shm") else {
            return;
        };
        let device = Devices::default();
        if Magic::of(&file).is_some_and(Magic::is_memory) {
            assert_eq!(
                device.of(&file, 5).residency(&file),
                ResidencySource::Always
            );
        }
    }
}
