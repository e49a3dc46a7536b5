//! Parts of a slab that stay in place: those that are being received into, and those that are being sent.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ackpace_core::payload::{Few, Row};
use smallvec::SmallVec;

use super::Slab;

/// Memory to receive into: one row of bytes, wherever it lies. All offsets count from its first byte. What is not
/// published when it is dropped is given up.
#[derive(Debug)]
pub struct SlabLease {
    slab: Arc<Slab>,
    /// Each is in a segment of its own, which this pins.
    rows: Few<Row>,
    len_bytes: u64,
    /// Bytes up to the last one that was published. Others may be reading them.
    published_bytes: u64,
}

impl SlabLease {
    /// These rows of the slab, `len_bytes` in all, which nobody else has and which are pinned once each.
    pub(super) fn new(slab: Arc<Slab>, rows: Few<Row>, len_bytes: u64) -> SlabLease {
        let published_bytes = 0;
        SlabLease {
            slab,
            rows,
            len_bytes,
            published_bytes,
        }
    }

    /// The bytes that it has room for.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The memory of `len_bytes` from `from_bytes` on, for receiving into it.
    ///
    /// # Panics
    /// If that is more than it has, or some of it is published.
    pub fn iovecs(&mut self, from_bytes: u64, len_bytes: u64) -> SmallVec<[IoSliceMut<'_>; 4]> {
        assert!(
            from_bytes >= self.published_bytes,
            "{from_bytes} of {self:?}"
        );
        let slice = |row: Row| {
            let at = self.slab.row_bytes(row);
            // SAFETY: the row lies inside the mapping, in a segment that has memory and is pinned. Its bytes were given to
            // this lease alone, nobody finds them before they are published, and `&mut self` keeps our own hands away.
            // They were zeroed by the kernel, or filled before.
            IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(at, row.len_bytes as usize) })
        };
        self.parts(from_bytes, len_bytes).map(slice).collect()
    }

    /// The rows of this part, which is not received into any more.
    pub(super) fn published(&mut self, from_bytes: u64, len_bytes: u64) -> Few<Row> {
        let rows = self.parts(from_bytes, len_bytes).collect();
        self.published_bytes = self.published_bytes.max(from_bytes + len_bytes);
        rows
    }

    fn parts(&self, from_bytes: u64, len_bytes: u64) -> impl Iterator<Item = Row> {
        let room_bytes = self.len_bytes.checked_sub(from_bytes);
        let is_inside = room_bytes.is_some_and(|room| len_bytes <= room);
        assert!(is_inside, "{len_bytes} bytes at {from_bytes} of {self:?}");
        let (mut skip_bytes, mut left_bytes) = (from_bytes, len_bytes);
        self.rows.iter().filter_map(move |row| {
            let skipped_bytes = skip_bytes.min(row.len_bytes);
            let here_bytes = left_bytes.min(row.len_bytes - skipped_bytes);
            skip_bytes -= skipped_bytes;
            left_bytes -= here_bytes;
            let part = Row {
                segment: row.segment,
                at_bytes: row.at_bytes + skipped_bytes,
                len_bytes: here_bytes,
            };
            (here_bytes > 0).then_some(part)
        })
    }
}

impl Drop for SlabLease {
    fn drop(&mut self) {
        self.rows
            .iter()
            .for_each(|row| self.slab.unpin(row.segment));
    }
}

/// Bytes that were found. They stay as they are until this is dropped: keep it until the client has acknowledged what was
/// sent of them.
#[derive(Debug)]
pub struct Pinned {
    slab: Arc<Slab>,
    row: Row,
}

impl Pinned {
    /// A row that was found, whose segment is pinned once for it.
    pub(super) fn new(slab: Arc<Slab>, row: Row) -> Pinned {
        Pinned { slab, row }
    }

    /// The file, for sendfile(2). Not if the slab [is copied](Slab::is_copied).
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.slab.memory.file.as_fd()
    }

    /// Where the bytes begin in the file.
    pub fn offset_bytes(&self) -> u64 {
        u64::from(self.row.segment) * ackpace_core::payload::SEGMENT_BYTES + self.row.at_bytes
    }

    /// How many.
    pub fn len_bytes(&self) -> u64 {
        self.row.len_bytes
    }

    /// A part of them, held in place by itself.
    ///
    /// # Panics
    /// If it is longer than that.
    #[must_use]
    pub fn part(&self, from_bytes: u64, len_bytes: u64) -> Pinned {
        let end_bytes = from_bytes.checked_add(len_bytes);
        let is_inside = end_bytes.is_some_and(|end| end <= self.row.len_bytes);
        assert!(is_inside, "{len_bytes} bytes at {from_bytes} of {self:?}");
        self.slab.pin(self.row.segment); // it is pinned already, so it is not being freed
        let row = Row {
            at_bytes: self.row.at_bytes + from_bytes,
            len_bytes,
            ..self.row
        };
        Pinned::new(Arc::clone(&self.slab), row)
    }

    /// The segment that it holds in place. A caller that has two of the same segment may drop one.
    pub fn segment(&self) -> u32 {
        self.row.segment
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        let at = self.slab.row_bytes(self.row);
        // SAFETY: the row lies inside the mapping, in a segment that has memory and is pinned, so it is neither punched nor
        // written over. What is found is published, and a lease gives no access to what is published.
        unsafe { std::slice::from_raw_parts(at, self.row.len_bytes as usize) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.slab.unpin(self.row.segment);
    }
}
