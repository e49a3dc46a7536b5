//! Files by their blocks: from an open file to its bytes in the slab.
//!
//! **Whose bytes these are.** Blocks may go to another file at any time. So the bytes of a READ are taken in this order
//! ([`Blocks::hold`], then [`Blocks::is_current`]):
//! 1. The slab gives bytes that the blocks had when their chunks had the present counters: they are held, and stay as they are.
//! 2. The file has the time of change and the length that it had when it was mapped: so from then until now the blocks were its own,
//!    and all of these bytes are what the file had at the first step.
//!
//! In the other order, the blocks could go to another file in between, and its bytes would leave.
//!
//! **The grain of ctime.** Two changes in one tick of the kernel's clock have the same ctime (10 ms at most). So a map is not made of
//! a file that was changed less than [`YOUNG_NS`] ago: a later change has another ctime. The file is looked at before and after
//! FIEMAP, which has everything that was written put on the unit first.

use std::sync::Arc;

use ackpace_core::blocks::{Map, Piece};
use ackpace_core::conn::{ObjectId, Span, Version};
use rustix::time::{ClockId, clock_gettime};

use super::tally::Fallback;
use super::{Mount, Unit};
use crate::store::door::Wait;
use crate::store::file::File;
use crate::store::files::lock;
use crate::store::place::{Lies, Mapped, Unmapped};
use crate::store::slab::Pinned;

/// Twice the longest tick of Linux (HZ=100). A file that was changed less long ago is read through the mount.
const YOUNG_NS: i128 = 20_000_000;

/// A file whose bytes are read from the unit, as one READ found it.
pub struct Blocks {
    pub file: Arc<File>,
    mapped: Arc<Mapped>,
    pub mount: Arc<Mount>,
    pub unit: Arc<Unit>,
}

impl std::fmt::Debug for Blocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "blocks of {:?}", self.file)
    }
}

impl Unit {
    /// An open file by its blocks, or as it is if its bytes have to come through the mount; `told` is what the file was a moment ago.
    /// `None`: the file has to be mapped first, by a thread that may wait.
    pub fn find(
        self: &Arc<Unit>,
        file: Arc<File>,
        told: &Version,
        wait: Wait,
    ) -> Option<Result<Blocks, Arc<File>>> {
        let Some(mount) = self.mount() else {
            self.tally.fell_back(Fallback::Away);
            return Some(Err(file));
        };
        if file.fd.st_dev() != mount.st_dev {
            return Some(Err(file));
        }
        let kept = lock(&file.place, wait)?.clone();
        let is_of_now = |of: &Arc<Mapped>| of.epoch == mount.epoch && of.version == *told;
        let mapped = match kept.filter(is_of_now) {
            Some(mapped) => Ok(mapped),
            None if is_young(told) => Err(Fallback::Young),
            None if wait == Wait::No => return None,
            None => self.map(&file, told, &mount),
        };
        let why = match mapped {
            Ok(mapped) => match mapped.lies {
                Ok(_) => {
                    return Some(Ok(Blocks {
                        file,
                        mapped,
                        mount,
                        unit: Arc::clone(self),
                    }));
                }
                Err(why) => why.into(),
            },
            Err(why) => why,
        };
        self.tally.fell_back(why);
        Some(Err(file))
    }

    /// Maps this version of a file, and keeps the map with it.
    fn map(
        self: &Arc<Unit>,
        file: &Arc<File>,
        told: &Version,
        mount: &Mount,
    ) -> Result<Arc<Mapped>, Fallback> {
        let is_same = || file.version().is_ok_and(|version| version == *told);
        if !is_same() || is_young(told) {
            return Err(Fallback::Young);
        }
        let len_bytes = (told.len_bytes, mount.seen.len_bytes);
        let lies = Lies::of(&**file, len_bytes, self.name(), &self.map_memory);
        if !is_same() {
            return Err(Fallback::Changed);
        }
        if let Err(Unmapped::Memory) = lies {
            return Err(Fallback::Memory); // there may be some later
        }
        let mapped = Arc::new(Mapped {
            epoch: mount.epoch,
            version: *told,
            lies,
        });
        let before = lock(&file.place, Wait::Yes);
        let before = before.and_then(|mut place| place.replace(Arc::clone(&mapped)));
        drop(before);
        Ok(mapped)
    }
}

/// Whether a file may change again without another ctime. One whose ctime lies ahead of the clock may.
fn is_young(version: &Version) -> bool {
    let now = clock_gettime(ClockId::Realtime);
    let now_ns = i128::from(now.tv_sec) * 1_000_000_000 + i128::from(now.tv_nsec);
    now_ns - version.ctime_ns < YOUNG_NS
}

impl Blocks {
    /// The name of this map of the file in the machines.
    pub fn id(&self) -> ObjectId {
        match &self.mapped.lies {
            Ok(lies) => lies.id,
            Err(_) => self.key(0), // none is made of such a file
        }
    }

    /// Where its extents lie.
    pub fn map(&self) -> Option<&Map> {
        self.mapped.lies.as_ref().ok().map(|lies| &lies.map)
    }

    /// The length of the file.
    pub fn len_bytes(&self) -> u64 {
        self.mapped.version.len_bytes
    }

    fn pieces(&self, span: Span) -> impl Iterator<Item = Piece> {
        self.map().into_iter().flat_map(move |map| map.pieces(span))
    }

    /// Whether the slab has all of a span of the file, of the versions of now.
    pub fn is_resident(&self, span: Span) -> bool {
        let mut pieces = self.pieces(span);
        pieces.all(|piece| self.has(piece.on_unit()))
    }

    /// Whether the slab has all of a span of the unit, of the versions of now.
    pub fn has(&self, on_unit: Span) -> bool {
        let mut versions = self.mount.counters.versions(on_unit);
        versions.all(|(version, part)| {
            let key = self.key(version);
            self.unit.slab.covers(key, part)
        })
    }

    /// All bytes of a span of the file, of the versions of now, held in place; `None`: some are not there.
    pub fn hold(&self, span: Span) -> Option<Vec<Pinned>> {
        let mut held = Vec::new();
        for piece in self.pieces(span) {
            for (version, part) in self.mount.counters.versions(piece.on_unit()) {
                let mut rest = part;
                while rest.len_bytes > 0 {
                    let found = self.unit.slab.find(self.key(version), rest)?;
                    rest = rest.behind(found.len_bytes());
                    held.push(found);
                }
            }
        }
        let held_bytes: u64 = held.iter().map(Pinned::len_bytes).sum();
        (held_bytes == span.len_bytes).then_some(held)
    }

    /// Whether the map holds still, so that what was held before belongs to the file.
    pub fn is_current(&self) -> bool {
        let version = self.file.version();
        self.unit.has(&self.mount) && version.is_ok_and(|version| version == self.mapped.version)
    }

    /// Under which name the slab keeps bytes of the unit that had this counter.
    pub fn key(&self, version: u32) -> ObjectId {
        ObjectId {
            device: self.unit.device,
            index: self.mount.epoch,
            generation: version,
        }
    }
}

#[cfg(test)]
#[path = "blocks_tests.rs"]
mod tests;
