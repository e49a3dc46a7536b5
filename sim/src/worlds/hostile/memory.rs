//! Where bytes of files are: in the page cache, which evicts pages, or in slots of the pool.

use std::collections::BTreeMap;

use ackpace_core::cache::RESIDENCY_TRUST_US;
use ackpace_core::conn::{ObjectId, ResidencySource, Span};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::units::{Instant, KIB};

/// The page cache keeps and drops folios of this size.
const PAGE_BYTES: u64 = 16 * KIB;

/// Slots that were read for one stream.
#[derive(Debug)]
pub(super) struct FilledSlots {
    pub object: ObjectId,
    /// Offset in the file of their first byte.
    pub from_bytes: u64,
    /// The bytes that they hold.
    pub span: Span,
    slots: u32,
    released: u32,
}

impl FilledSlots {
    pub fn new(object: ObjectId, from_bytes: u64, span: Span, slots: u32) -> FilledSlots {
        FilledSlots {
            object,
            from_bytes,
            span,
            slots,
            released: 0,
        }
    }

    /// Slots not released yet.
    pub fn slots(&self) -> u32 {
        self.slots - self.released
    }

    /// Whether it holds the byte at this offset of the file.
    pub fn holds(&self, object: ObjectId, at_bytes: u64) -> bool {
        let gone_bytes = self.from_bytes + u64::from(self.released) * SLOT_BYTES;
        self.object == object && self.span.contains(at_bytes) && at_bytes >= gone_bytes
    }

    /// Releases the slots whose bytes are sent, all those before this offset of the file; returns how many.
    pub fn release(&mut self, before_bytes: u64) -> u32 {
        let sent_bytes = before_bytes.saturating_sub(self.from_bytes);
        let whole = if before_bytes >= self.span.end_bytes() {
            self.slots
        } else {
            (sent_bytes / SLOT_BYTES).min(self.slots.into()) as u32
        };
        let freed = whole.saturating_sub(self.released);
        self.released += freed;
        freed
    }
}

/// A file, and which of its pages are in memory.
pub(super) struct File {
    pub len_bytes: u64,
    pub residency: ResidencySource,
    resident: Vec<bool>,
    /// When the worker was last told that each page is in memory.
    told_at: BTreeMap<u64, Instant>,
}

impl File {
    pub fn new(len_bytes: u64, residency: ResidencySource) -> File {
        let pages = len_bytes.div_ceil(PAGE_BYTES) as usize;
        File {
            len_bytes,
            residency,
            resident: vec![residency == ResidencySource::Always; pages],
            told_at: BTreeMap::new(),
        }
    }

    fn pages(&self, span: Span) -> std::ops::Range<u64> {
        let end = span.end_bytes().div_ceil(PAGE_BYTES);
        span.offset_bytes / PAGE_BYTES..end.min(self.resident.len() as u64)
    }

    /// Puts the pages into memory.
    pub fn keep(&mut self, span: Span) {
        for page in self.pages(span) {
            self.resident[page as usize] = true;
        }
    }

    /// Evicts the pages, as the kernel does when it needs the memory.
    pub fn drop_pages(&mut self, span: Span) {
        if self.residency != ResidencySource::Always {
            for page in self.pages(span) {
                self.resident[page as usize] = false;
            }
        }
    }

    /// Bytes in memory from the start of the span.
    pub fn resident_bytes(&self, span: Span) -> u64 {
        let cold = self.pages(span).find(|page| !self.resident[*page as usize]);
        cold.map_or(span.len_bytes, |page| {
            (page * PAGE_BYTES).saturating_sub(span.offset_bytes)
        })
    }

    /// Records that the worker was told now that the pages are in memory.
    pub fn worker_was_told(&mut self, span: Span, now: Instant) {
        for page in self.pages(span) {
            self.told_at.insert(page, now);
        }
    }

    /// Whether a worker may send these bytes: they are in memory, or it was told so less than `RESIDENCY_TRUST_US` ago.
    pub fn may_be_believed(&self, span: Span, now: Instant) -> bool {
        let trusted = |page: &u64| {
            let told_at = self.told_at.get(page);
            told_at.is_some_and(|at| now.since_us(*at) < RESIDENCY_TRUST_US)
        };
        let mut pages = self.pages(span);
        pages.all(|page| self.resident[page as usize] || trusted(&page))
    }
}
