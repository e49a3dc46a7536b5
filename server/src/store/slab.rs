//! Slabs: memory in which a gateway keeps payload in the form in which it leaves, by sendfile(2).
//!
//! It is a file of a tmpfs with huge pages, mapped as a whole. [`Payload`] knows what lies where; this is its shell.
//! Bytes are received into the mapping ([`Slab::lease`]), are found from then on ([`Slab::publish`], [`Slab::find`]) and leave
//! the file when their segment is freed.
//!
//! **Packets refer to the file's pages.** If a page is written over, a receiver on the same machine reads the new bytes,
//! even after TCP has acknowledged the old ones: a packet in a receive queue is still the page. So a segment is punched out
//! of the file as a whole before it is filled anew. Its old page lives until the last packet is gone, and the file gets another
//! one. Without huge pages that costs ten times the CPU time. Then [`Slab::is_copied`]: segments are written over in place, and
//! senders copy.
//!
//! **A segment stays while it is pinned** by a [`Pinned`] or a [`SlabLease`]. A connection keeps what it sent pinned until
//! the client has acknowledged it. So the memory that packets hold is part of the slab, and the slab is never larger than
//! it was told to be. Only packets in the receive queue of a client on this machine come on top; that client's memory
//! pays for them.
//!
//! Locks: [`Payload`] stands behind one that is held for a look-up, or while a segment is freed (some microseconds), and
//! never over a system call. Whoever leases holds another one meanwhile: a segment that is being punched is not filled.

mod lease;
mod memory;
mod private;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::payload::{Payload, Row, SEGMENT_BYTES};

pub use lease::{Pinned, SlabLease};
use memory::Memory;

/// The least size of a slab: a long read touches three segments, and others are being sent. Less: the slab is refused.
const SEGMENTS_MIN: u64 = 8;
/// The greatest: 8 TiB, more than machines have. More: the slab is refused.
const SEGMENTS_MAX: u64 = 1 << 22;

/// Why there is no slab.
#[derive(Debug, thiserror::Error)]
pub enum SlabError {
    /// The size is out of range.
    #[error("{0} bytes are no memory for payload; give it at least 16MiB, at most 8TiB")]
    Size(u64),
    /// The folder can't be used.
    #[error("{}: {error}; give --slab-dir a folder of a tmpfs in which this user may create files", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the kernel said.
        error: io::Error,
    },
    /// The folder is on a disk.
    #[error("{} is not in a tmpfs; mount one: mount -t tmpfs -o huge=always,size={bytes} tmpfs {}", dir.display(), dir.display())]
    NoTmpfs {
        /// The folder.
        dir: PathBuf,
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// The tmpfs of the folder has too little room.
    #[error("{} has room for {} MiB, not for {} MiB; mount -o remount,size={bytes} {}, or --cache-memory {}MiB",
        dir.display(), free_bytes >> 20, bytes >> 20, dir.display(), (free_bytes >> 20).max((SEGMENTS_MIN * SEGMENT_BYTES) >> 20))]
    NoRoom {
        /// The folder.
        dir: PathBuf,
        /// Bytes that are free there.
        free_bytes: u64,
        /// Bytes that were asked for.
        bytes: u64,
    },
    /// The memory can't be had or mapped.
    #[error("{bytes} bytes of memory for payload: {error}; give it less")]
    Memory {
        /// Bytes that were asked for.
        bytes: u64,
        /// What the kernel said.
        error: io::Error,
    },
}

impl SlabError {
    /// The key of the option at fault.
    pub fn option(&self) -> &'static str {
        match self {
            SlabError::Size(_) | SlabError::Memory { .. } => "cache_memory",
            SlabError::Folder { .. } | SlabError::NoTmpfs { .. } | SlabError::NoRoom { .. } => {
                "slab_dir"
            }
        }
    }

    /// Whether a later start may find it mended: the tmpfs may not be mounted yet, or another instance uses it.
    pub fn may_pass(&self) -> bool {
        self.option() == "slab_dir"
    }
}

/// What a slab has and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlabCounts {
    /// Segments that it may have.
    pub segments: u32,
    /// Those that are being filled or full.
    pub segments_used: u32,
    /// Those that can't be freed now.
    pub segments_pinned: u32,
    /// Extents that can be found.
    pub extents: u64,
    /// Their bytes.
    pub kept_bytes: u64,
    /// Bytes of segments that have their memory.
    pub allocated_bytes: u64,
}

/// The slab of a process, shared by all its threads.
#[derive(Debug)]
pub struct Slab {
    memory: Memory,
    table: Mutex<Payload>,
    /// Of each segment, whether it has memory. Held by whoever leases.
    allocated: Mutex<Box<[bool]>>,
    allocated_segments: AtomicU32,
    /// Of each segment, how many hold it in place. It rises from 0 only while the table is locked.
    pins: Box<[AtomicU32]>,
    pinned_segments: AtomicU32,
    /// The last lease found no segment, and no pin has gone since.
    is_starved: AtomicBool,
    /// Why the kernel gave the last segment that was opened no memory (errno); 0: it did.
    refused: AtomicI32,
    is_copied: bool,
    lost: Option<String>,
}

impl Slab {
    /// A slab of `bytes`, in whole segments. With `dir`, a nameless file of that tmpfs; without, of a tmpfs with
    /// huge pages that nobody else can reach, or where that is refused, of memfd_create(2). Its memory is taken as it is used.
    ///
    /// # Errors
    /// The size is out of range, the folder can't be used or is too small, or address space is lacking.
    pub fn open(dir: Option<&Path>, bytes: u64) -> Result<Slab, SlabError> {
        let segments = bytes / SEGMENT_BYTES;
        if !(SEGMENTS_MIN..=SEGMENTS_MAX).contains(&segments) {
            return Err(SlabError::Size(bytes));
        }
        let (file, lost) = memory::file(dir, segments * SEGMENT_BYTES)?;
        Slab::of(file, segments as u32, lost).map_err(|error| SlabError::Memory { bytes, error })
    }

    fn of(file: OwnedFd, segments: u32, lost: Option<String>) -> io::Result<Slab> {
        Ok(Slab {
            memory: Memory::new(file, segments)?,
            table: Mutex::new(Payload::new(segments)),
            allocated: Mutex::new((0..segments).map(|_| false).collect()),
            allocated_segments: AtomicU32::new(0),
            pins: (0..segments).map(|_| AtomicU32::new(0)).collect(),
            pinned_segments: AtomicU32::new(0),
            is_starved: AtomicBool::new(false),
            refused: AtomicI32::new(0),
            is_copied: lost.is_some(),
            lost,
        })
    }

    /// The same, but segments are written over in place, and senders must copy: for comparison.
    #[must_use]
    pub fn copied(mut self) -> Slab {
        self.is_copied = true;
        self
    }

    /// The bytes that it may keep.
    pub fn len_bytes(&self) -> u64 {
        self.pins.len() as u64 * SEGMENT_BYTES
    }

    /// Whether what is sent has to be copied, by send(2) from [`Pinned::bytes`]: its bytes may change in place as soon as
    /// nobody pins them.
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// If there are no huge pages: what that costs, why it is, and the cure.
    pub fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    /// Room for `len_bytes` that are to be received, 1 to `READ_BYTES_MAX`. `None`: all segments are pinned, or there is no
    /// memory. For threads that receive: it makes system calls, and one thread waits for the other.
    pub fn lease(self: &Arc<Slab>, len_bytes: u64) -> Option<SlabLease> {
        let mut allocated = locked(&self.allocated);
        let leased = self.reserve(len_bytes, &mut allocated);
        self.is_starved.store(leased.is_none(), Ordering::Relaxed);
        leased
    }

    /// Why the kernel has no memory for it: somebody else has filled the tmpfs. `None`: it has, as far as is known.
    pub fn refused(&self) -> Option<io::Error> {
        let errno = self.refused.load(Ordering::Relaxed);
        (errno != 0).then(|| io::Error::from_raw_os_error(errno))
    }

    fn reserve(self: &Arc<Slab>, len_bytes: u64, allocated: &mut [bool]) -> Option<SlabLease> {
        let mut table = locked(&self.table);
        let is_pinned = |segment| self.pins[segment as usize].load(Ordering::Acquire) > 0;
        let reserved = table.reserve(len_bytes, is_pinned)?;
        reserved.rows.iter().for_each(|row| self.pin(row.segment));
        drop(table);
        let lease = SlabLease::new(Arc::clone(self), reserved.rows, len_bytes);
        let mut opened = reserved.opened.iter();
        if opened.all(|segment| self.empty(*segment, &mut allocated[*segment as usize])) {
            return Some(lease);
        }
        locked(&self.table).not_opened(&reserved.opened);
        None
    }

    /// Gives a segment new memory; a copied one keeps its old memory. Says whether it has some.
    fn empty(&self, segment: u32, is_allocated: &mut bool) -> bool {
        if *is_allocated && self.is_copied {
            return true;
        }
        if *is_allocated {
            if self.memory.punch(segment).is_err() {
                return false; // it keeps its pages, and may not be written to
            }
            *is_allocated = false;
            self.allocated_segments.fetch_sub(1, Ordering::Relaxed);
        }
        let allocated = self.memory.allocate(segment);
        let errno = (allocated.as_ref().err()).map_or(0, |error| error.raw_os_error().unwrap_or(0));
        self.refused.store(errno, Ordering::Relaxed);
        if allocated.is_err() {
            return false;
        }
        *is_allocated = true;
        self.allocated_segments.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// The bytes that were received into the lease from `lease_from_bytes` on are this span of the object, and may be
    /// found. They can't be received into again.
    ///
    /// # Panics
    /// If the lease is not that long.
    pub fn publish(
        &self,
        lease: &mut SlabLease,
        object: ObjectId,
        lease_from_bytes: u64,
        span: Span,
    ) {
        let rows = lease.published(lease_from_bytes, span.len_bytes);
        let mut at_bytes = span.offset_bytes;
        let mut table = locked(&self.table);
        for row in rows {
            table.filled(object, at_bytes, row);
            at_bytes += row.len_bytes;
        }
    }

    /// The row in which the first byte of `span` lies, as far as it goes inside `span`. It stays where it is until it is
    /// dropped.
    pub fn find(self: &Arc<Slab>, object: ObjectId, span: Span) -> Option<Pinned> {
        let mut table = locked(&self.table);
        let row = table.find(object, span)?;
        self.pin(row.segment);
        drop(table);
        Some(Pinned::new(Arc::clone(self), row))
    }

    /// Whether all of `span` is here now.
    pub fn covers(&self, object: ObjectId, span: Span) -> bool {
        locked(&self.table).covers(object, span)
    }

    /// The object changed: none of its bytes is found any more. What is pinned stays as it is. What is published for it later
    /// is found, so bytes of the old version must not be.
    pub fn forget(&self, object: ObjectId) {
        let forgotten = locked(&self.table).forget(object);
        drop(forgotten); // after the lock
    }

    /// More than half of the segments are pinned, or some are and the last lease found none. Senders should copy for a
    /// while, and unpin.
    pub fn is_crowded(&self) -> bool {
        let pinned = self.pinned_segments.load(Ordering::Relaxed);
        let is_starved = self.is_starved.load(Ordering::Relaxed);
        pinned > self.pins.len() as u32 / 2 || (is_starved && pinned > 0)
    }

    /// What it has and keeps.
    pub fn counts(&self) -> SlabCounts {
        let kept = locked(&self.table).counts();
        let allocated = self.allocated_segments.load(Ordering::Relaxed);
        SlabCounts {
            segments: self.pins.len() as u32,
            segments_used: kept.segments_used,
            segments_pinned: self.pinned_segments.load(Ordering::Relaxed),
            extents: kept.extents,
            kept_bytes: kept.kept_bytes,
            allocated_bytes: u64::from(allocated) * SEGMENT_BYTES,
        }
    }

    /// Holds a segment in place. Only while the table is locked, or while it is held already, so that it is not being freed.
    fn pin(&self, segment: u32) {
        if self.pins[segment as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            self.pinned_segments.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Release: whoever frees the segment sees our last look at it done.
    fn unpin(&self, segment: u32) {
        if self.pins[segment as usize].fetch_sub(1, Ordering::Release) == 1 {
            self.pinned_segments.fetch_sub(1, Ordering::Relaxed);
            self.is_starved.store(false, Ordering::Relaxed);
        }
    }

    fn row_bytes(&self, row: Row) -> *mut u8 {
        self.memory.at(row)
    }
}

/// No code panics while it holds one of these locks but for a bug, which ends the process.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
