//! A page cache of a fixed size. It evicts the block whose last read or send is longest ago.

use std::collections::BTreeMap;

use ackpace_core::conn::Span;

/// Granularity: a block is in memory whole or not at all.
const BLOCK_BYTES: u64 = 16 << 10;

/// The page cache of a world.
pub(in crate::worlds) struct PageCache {
    blocks_max: u64,
    /// When each block of each file was last used.
    blocks: BTreeMap<(u32, u64), u64>,
    by_age: BTreeMap<u64, (u32, u64)>,
    uses: u64,
}

impl PageCache {
    /// An empty cache.
    pub fn new(max_bytes: u64) -> PageCache {
        PageCache {
            blocks_max: max_bytes / BLOCK_BYTES,
            blocks: BTreeMap::new(),
            by_age: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.by_age.clear();
    }

    /// Inserts bytes that were read from the disk.
    pub fn fill(&mut self, file: u32, span: Span) {
        for block in blocks(span) {
            self.touch((file, block));
        }
        while self.blocks.len() as u64 > self.blocks_max {
            let Some((_, oldest)) = self.by_age.pop_first() else {
                return;
            };
            self.blocks.remove(&oldest);
        }
    }

    /// Bytes from the start of this span that are in memory.
    pub fn resident_bytes(&self, file: u32, span: Span) -> u64 {
        let there = blocks(span).take_while(|block| self.blocks.contains_key(&(file, *block)));
        let end_bytes = there.last().map_or(0, |block| (block + 1) * BLOCK_BYTES);
        let bytes = end_bytes.saturating_sub(span.offset_bytes);
        bytes.min(span.len_bytes)
    }

    /// Marks bytes in memory as used: they are being sent.
    pub fn send(&mut self, file: u32, span: Span) {
        for block in blocks(span) {
            self.touch((file, block));
        }
    }

    fn touch(&mut self, block: (u32, u64)) {
        self.uses += 1;
        if let Some(before) = self.blocks.insert(block, self.uses) {
            self.by_age.remove(&before);
        }
        self.by_age.insert(self.uses, block);
    }
}

fn blocks(span: Span) -> std::ops::Range<u64> {
    span.offset_bytes / BLOCK_BYTES..span.end_bytes().div_ceil(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_gives_way() {
        let span = |nth: u64| Span {
            offset_bytes: nth * BLOCK_BYTES,
            len_bytes: BLOCK_BYTES,
        };
        let mut cache = PageCache::new(3 * BLOCK_BYTES);
        (0..3).for_each(|nth| cache.fill(1, span(nth)));
        cache.send(1, span(0));
        cache.fill(2, span(0));
        let there = |cache: &PageCache, nth| cache.resident_bytes(1, span(nth)) > 0;
        assert_eq!([0, 1, 2].map(|nth| there(&cache, nth)), [true, false, true]);
        let both = Span {
            offset_bytes: 100,
            len_bytes: 2 * BLOCK_BYTES,
        };
        assert_eq!(cache.resident_bytes(1, both), BLOCK_BYTES - 100);
    }
}
