//! Devices: what lies below a file system, as far as reading it matters.
//!
//! A device is one `st_dev`. What is not known of it (an overlay, a network file system) gets
//! cautious defaults.

use std::fs;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use ackpace_core::conn::Oracle;
use ackpace_core::units::KIB;

use super::residency;
use crate::limits::DEVICES_MAX;

/// One device.
#[derive(Debug)]
pub struct Device {
    /// Its number in the table of devices.
    pub index: u16,
    /// The number that stat(2) gives its files.
    pub st_dev: u64,
    /// Its files are memory (tmpfs, ramfs): always resident.
    pub memory: bool,
    /// The longest piece that one readahead(2) is sure to start (`max(read_ahead_kb, max_sectors_kb)`).
    pub readahead_bytes: u64,
    /// cachestat(2) does not see the pages that we read, as on overlayfs, whose pages belong to
    /// another inode.
    blind: AtomicBool,
}

impl Device {
    /// How the residency of one of its files can be known.
    pub fn oracle(&self, file: &impl AsFd) -> Oracle {
        if self.memory {
            Oracle::Always
        } else if self.blind.load(Ordering::Relaxed) || !residency::may_ask(file) {
            Oracle::Remember
        } else {
            Oracle::Ask
        }
    }

    /// cachestat(2) did not see what was read a moment ago: ask it no more.
    pub fn mark_blind(&self) {
        self.blind.store(true, Ordering::Relaxed);
    }
}

/// All devices met so far. A full table lets further ones share the last place.
#[derive(Debug, Default)]
pub struct Devices {
    places: [OnceLock<Device>; DEVICES_MAX],
    meeting: Mutex<()>,
}

impl Devices {
    /// The device of a file with this `st_dev`, and whether it was met for the first time.
    pub fn of(&self, file: &impl AsFd, st_dev: u64) -> &Device {
        if let Some(known) = self.known(st_dev) {
            return known;
        }
        let _meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = self.known(st_dev) {
            return known;
        }
        let free = self.places.iter().position(|place| place.get().is_none());
        let index = free.unwrap_or(DEVICES_MAX - 1);
        self.places[index].get_or_init(|| Device {
            index: index as u16,
            st_dev,
            memory: is_memory(file),
            readahead_bytes: readahead_bytes(st_dev),
            blind: AtomicBool::new(false),
        })
    }

    /// The device at a place that was given out.
    pub fn get(&self, index: u16) -> Option<&Device> {
        self.places.get(usize::from(index))?.get()
    }

    fn known(&self, st_dev: u64) -> Option<&Device> {
        self.places
            .iter()
            .map_while(OnceLock::get)
            .find(|device| device.st_dev == st_dev)
    }
}

fn is_memory(file: &impl AsFd) -> bool {
    const TMPFS: u64 = 0x0102_1994; // statfs(2)
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::fstatfs(file).is_ok_and(|fs| matches!(fs.f_type as u64, TMPFS | RAMFS))
}

/// A partition has no queue of its own: its disk has, one folder up.
fn readahead_bytes(st_dev: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(st_dev), rustix::fs::minor(st_dev));
    let value = |name: &str| {
        ["", "../"].iter().find_map(|up| {
            let path = format!("/sys/dev/block/{major}:{minor}/{up}queue/{name}");
            fs::read_to_string(path).ok()?.trim().parse::<u64>().ok()
        })
    };
    let kib = value("read_ahead_kb")
        .max(value("max_sectors_kb"))
        .unwrap_or(128);
    (kib * KIB).max(128 * KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_its_place_and_a_full_table_shares_its_last_one() {
        let devices = Devices::default();
        let file = fs::File::open("/").expect("the root directory");
        let first = devices.of(&file, 1 << 40);
        assert_eq!((first.index, first.readahead_bytes), (0, 128 * KIB));
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
    fn files_in_memory_need_no_oracle() {
        let Ok(file) = fs::File::open("/dev/shm") else {
            return;
        };
        let device = Devices::default();
        if is_memory(&file) {
            assert_eq!(device.of(&file, 5).oracle(&file), Oracle::Always);
        }
    }
}
