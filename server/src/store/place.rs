//! Where a file lies on the disk below its file system, kept with the open file.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use ackpace_core::blocks::{EXTENT_BYTES, EXTENTS_MAX, Extent, Map, NoMap};
use ackpace_core::conn::{ObjectId, Version};

use super::direct::{NotPlain, plain_extents};

/// What is known of the place of an open file.
pub type Place = Mutex<Option<Arc<Mapped>>>;

/// Where a version of a file lies, or why that can't be told.
#[derive(Debug)]
pub struct Mapped {
    /// At which mount of its file system.
    pub epoch: u32,
    /// Which version.
    pub version: Version,
    /// Where.
    pub lies: Result<Lies, Unmapped>,
}

/// A map, by a name of its own.
#[derive(Debug)]
pub struct Lies {
    /// The name.
    pub id: ObjectId,
    /// The map.
    pub map: Map,
    _charge: Charge,
}

/// Why a file has no map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmapped {
    /// A part of it is not on the disk as it is: not written, kept in the inode, encoded.
    Kind,
    /// It has a hole.
    Hole,
    /// It has too many extents.
    Many,
    /// There is no memory for a map now.
    Memory,
}

impl From<NotPlain> for Unmapped {
    fn from(why: NotPlain) -> Unmapped {
        match why {
            NotPlain::Unknown | NotPlain::Kind => Unmapped::Kind,
            NotPlain::Many => Unmapped::Many,
        }
    }
}

impl From<NoMap> for Unmapped {
    fn from(why: NoMap) -> Unmapped {
        match why {
            NoMap::Hole => Unmapped::Hole,
            NoMap::Many => Unmapped::Many,
        }
    }
}

/// The memory of all maps.
#[derive(Debug)]
pub struct MapMemory {
    held_bytes: AtomicU64,
    most_bytes: u64,
}

impl MapMemory {
    /// So much at most.
    pub fn new(most_bytes: u64) -> Arc<MapMemory> {
        Arc::new(MapMemory {
            held_bytes: AtomicU64::new(0),
            most_bytes,
        })
    }

    /// Takes some; `None`: there is none.
    fn charge(self: &Arc<MapMemory>, bytes: u64) -> Option<Charge> {
        let more = |held: u64| Some(held + bytes).filter(|held| *held <= self.most_bytes);
        let taken = self.held_bytes.fetch_update(Relaxed, Relaxed, more);
        taken.is_ok().then(|| Charge {
            memory: Arc::clone(self),
            bytes,
        })
    }
}

/// Memory of a map, given back when this is dropped.
#[derive(Debug)]
struct Charge {
    memory: Arc<MapMemory>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.held_bytes.fetch_sub(self.bytes, Relaxed);
    }
}

impl Lies {
    /// Maps a file of `len_bytes` on a disk of `disk_bytes`. What was written to it is on the disk then. May wait for long.
    pub fn of(
        file: &impl AsFd,
        (len_bytes, disk_bytes): (u64, u64),
        id: ObjectId,
        memory: &Arc<MapMemory>,
    ) -> Result<Lies, Unmapped> {
        let extents = plain_extents(file, len_bytes, EXTENTS_MAX)?;
        let known = extents.iter().map(|of| {
            let extent = Extent {
                file_bytes: of.file_offset_bytes,
                device_bytes: of.phys_offset_bytes?,
                len_bytes: of.len_bytes,
            };
            // A file system may not be larger than its disk, but say so.
            let end_bytes = extent.device_bytes.checked_add(extent.len_bytes)?;
            (end_bytes <= disk_bytes).then_some(extent)
        });
        let known: Option<Vec<Extent>> = known.collect();
        let known = known.ok_or(Unmapped::Kind)?;
        let bytes = known.len() as u64 * EXTENT_BYTES;
        Ok(Lies {
            _charge: memory.charge(bytes).ok_or(Unmapped::Memory)?,
            id,
            map: Map::new(known, len_bytes)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_have_a_bound() {
        let memory = MapMemory::new(100);
        let all = memory.charge(100).expect("room");
        assert!(memory.charge(1).is_none());
        drop(all);
        assert!(memory.charge(1).is_some());
    }
}
