//! The content of the emulated medium, stored compactly: a run of blocks of a lab file is a tag and a number,
//! and zeros are nothing. Only other blocks (the file system's own) are stored verbatim.

use ackpace_lab_base::content::{self, BLOCK_LEN_BYTES, Tag};
use std::collections::BTreeMap;
use std::ops::Range;

const BLOCK: u64 = BLOCK_LEN_BYTES as u64;

/// The medium refuses a write: it already stores its limit of blocks that are neither zero nor lab content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Consecutive blocks; if they belong to a file, also its tag and the number of the first block in it.
pub type Owner = (Range<u64>, Option<(Tag, u64)>);

/// Blocks of a medium.
pub struct Store {
    runs: BTreeMap<u64, Run>,
    pages: BTreeMap<u64, Box<[u8; BLOCK_LEN_BYTES]>>,
    pages_max: usize,
}

/// Consecutive blocks of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    blocks: u64,
    tag: Tag,
    number: u64,
    /// Bytes of the last block that belong to the file; zeros follow.
    tail_len: usize,
}

impl Store {
    /// An empty medium that stores at most `pages_max` blocks verbatim.
    pub fn new(pages_max: usize) -> Self {
        Self {
            runs: BTreeMap::new(),
            pages: BTreeMap::new(),
            pages_max,
        }
    }

    /// Reads the bytes from `offset_bytes` on into `into`.
    pub fn read(&self, offset_bytes: u64, into: &mut [u8]) {
        let (mut at, mut rest) = (offset_bytes, into);
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK, (at % BLOCK) as usize);
            let len = match self.run_at(block) {
                Some((start, run)) if block + 1 < start + run.blocks => {
                    // All but the last block of a run at once.
                    let left = (start + run.blocks - 1) * BLOCK - at;
                    let len = rest.len().min(left as usize);
                    let from = (run.number + block - start) * BLOCK + within as u64;
                    content::fill(run.tag, from, &mut rest[..len]);
                    len
                }
                found => {
                    let len = rest.len().min(BLOCK_LEN_BYTES - within);
                    let whole = self.block(block, found);
                    rest[..len].copy_from_slice(&whole[within..within + len]);
                    len
                }
            };
            at += len as u64;
            rest = &mut rest[len..];
        }
    }

    /// Writes `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// [`Full`]; the bytes before the refused block are written.
    pub fn write(&mut self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Full> {
        let (mut at, mut rest) = (offset_bytes, bytes);
        while !rest.is_empty() {
            let (block, within) = (at / BLOCK, (at % BLOCK) as usize);
            let len = rest.len().min(BLOCK_LEN_BYTES - within);
            if len == BLOCK_LEN_BYTES {
                self.write_block(block, &rest[..len])?;
            } else {
                let mut whole = self.block(block, self.run_at(block));
                whole[within..within + len].copy_from_slice(&rest[..len]);
                self.write_block(block, &whole)?;
            }
            at += len as u64;
            rest = &rest[len..];
        }
        Ok(())
    }

    /// Records that `len_bytes` of the file, from its block `number` on, are at `block`.
    pub fn place(&mut self, block: u64, tag: Tag, number: u64, len_bytes: u64) {
        let blocks = len_bytes.div_ceil(BLOCK);
        if blocks == 0 {
            return;
        }
        self.clear(block..block + blocks);
        let tail_len = (len_bytes - (blocks - 1) * BLOCK) as usize;
        let added = Run {
            blocks,
            tag,
            number,
            tail_len,
        };
        if let Some((start, run)) = self.runs.range_mut(..block).next_back() {
            let follows = start + run.blocks == block && run.tag == tag;
            if follows && run.number + run.blocks == number && run.tail_len == BLOCK_LEN_BYTES {
                run.blocks += blocks;
                run.tail_len = tail_len;
                return;
            }
        }
        self.runs.insert(block, added);
    }

    /// Sets blocks to zero.
    pub fn clear(&mut self, blocks: Range<u64>) {
        let before = self.runs.range(..blocks.start).next_back();
        if let Some((&start, &run)) =
            before.filter(|(start, run)| **start + run.blocks > blocks.start)
        {
            let (kept, rest) = run.cut(blocks.start - start);
            self.runs.insert(start, kept);
            self.runs.insert(blocks.start, rest);
        }
        let inside: Vec<u64> = self.runs.range(blocks.clone()).map(|(at, _)| *at).collect();
        for start in inside {
            let Some(run) = self.runs.remove(&start) else {
                continue;
            };
            if start + run.blocks > blocks.end {
                let (_, rest) = run.cut(blocks.end - start);
                self.runs.insert(blocks.end, rest);
            }
        }
        let pages: Vec<u64> = self.pages.range(blocks).map(|(at, _)| *at).collect();
        for page in pages {
            self.pages.remove(&page);
        }
    }

    /// The owners of these blocks, in order: parts of the range, each with its file (or none) and the number of
    /// the part's first block in that file.
    pub fn owners(&self, blocks: Range<u64>) -> Vec<Owner> {
        let (mut owners, mut at) = (Vec::new(), blocks.start);
        while at < blocks.end {
            let (end, owner) = match self.run_at(at) {
                Some((start, run)) => {
                    (start + run.blocks, Some((run.tag, run.number + at - start)))
                }
                None => {
                    let next = self.runs.range(at..).next();
                    (next.map_or(blocks.end, |(start, _)| *start), None)
                }
            };
            let end = end.min(blocks.end);
            owners.push((at..end, owner));
            at = end;
        }
        owners
    }

    /// The byte ranges of the medium that hold a part of a file.
    pub fn places(&self, tag: Tag, bytes: Range<u64>) -> Vec<Range<u64>> {
        let wanted = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let own = self.runs.iter().filter(|(_, run)| run.tag == tag);
        let cut = own.filter_map(|(start, run)| {
            let from = wanted.start.max(run.number);
            let to = wanted.end.min(run.number + run.blocks);
            let at = |number: u64| (start + number - run.number) * BLOCK;
            (from < to).then(|| at(from)..at(to))
        });
        cut.collect()
    }

    fn write_block(&mut self, block: u64, bytes: &[u8]) -> Result<(), Full> {
        if let Some(page) = self.pages.get_mut(&block) {
            // The file system rewrites the same places again and again.
            if content::recognise_cut(bytes).is_none() && bytes.iter().any(|byte| *byte != 0) {
                page.copy_from_slice(bytes);
                return Ok(());
            }
        }
        if let Some((tag, number, len)) = content::recognise_cut(bytes) {
            self.place(block, tag, number, len as u64);
            return Ok(());
        }
        self.clear(block..block + 1);
        if bytes.iter().any(|byte| *byte != 0) {
            if self.pages.len() >= self.pages_max {
                return Err(Full);
            }
            let mut page = Box::new([0; BLOCK_LEN_BYTES]);
            page.copy_from_slice(bytes);
            self.pages.insert(block, page);
        }
        Ok(())
    }

    fn run_at(&self, block: u64) -> Option<(u64, Run)> {
        let (start, run) = self.runs.range(..=block).next_back()?;
        (block < start + run.blocks).then_some((*start, *run))
    }

    fn block(&self, block: u64, found: Option<(u64, Run)>) -> [u8; BLOCK_LEN_BYTES] {
        let mut whole = [0; BLOCK_LEN_BYTES];
        if let Some((start, run)) = found {
            let last = block + 1 == start + run.blocks;
            let len = if last { run.tail_len } else { BLOCK_LEN_BYTES };
            let from = (run.number + block - start) * BLOCK;
            content::fill(run.tag, from, &mut whole[..len]);
        } else if let Some(page) = self.pages.get(&block) {
            whole.copy_from_slice(&page[..]);
        }
        whole
    }
}

impl Run {
    /// Splits it after `blocks` blocks (fewer than it has).
    fn cut(self, blocks: u64) -> (Run, Run) {
        let first = Run {
            blocks,
            tail_len: BLOCK_LEN_BYTES,
            ..self
        };
        let rest = Run {
            blocks: self.blocks - blocks,
            number: self.number + blocks,
            ..self
        };
        (first, rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store and a plain array behave alike.
    #[test]
    fn whatever_is_written_is_read_back() {
        const BLOCKS: usize = 64;
        let (mut store, mut plain) = (Store::new(1000), vec![0u8; BLOCKS * BLOCK_LEN_BYTES]);
        let mut chance = 9u64;
        let mut next = |below: u64| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (chance >> 33) % below
        };
        for round in 0..3000 {
            let start = next(60) * BLOCK;
            let blocks = 1 + next(4);
            let mut bytes = vec![0; (blocks * BLOCK) as usize];
            let mut at = start;
            match next(5) {
                0 => {}
                1 => bytes.fill(7),
                2 => {
                    at += 1 + next(4000);
                    bytes.truncate(1 + next(4000) as usize);
                    bytes.fill(round as u8);
                }
                3 => {
                    let len = bytes.len() - next(4000) as usize;
                    content::fill(Tag::of("tail"), next(9) * BLOCK, &mut bytes[..len]);
                }
                _ => content::fill(Tag::of(["a", "b"][next(2) as usize]), start, &mut bytes),
            }
            if next(6) == 0 {
                store.clear(start / BLOCK..start / BLOCK + blocks);
                plain[start as usize..(start + blocks * BLOCK) as usize].fill(0);
            } else {
                store.write(at, &bytes).unwrap();
                plain[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
            }
            let (from, len) = (next(50 * BLOCK) as usize, next(14 * BLOCK) as usize);
            let mut got = vec![1; len];
            store.read(from as u64, &mut got);
            assert!(got == plain[from..from + len], "round {round}");
        }
    }

    #[test]
    fn a_file_costs_nothing_and_its_blocks_name_it() {
        let (mut store, tag) = (Store::new(0), Tag::of("big.bin"));
        let mut bytes = vec![0; 300 * BLOCK_LEN_BYTES];
        content::fill(tag, 0, &mut bytes);
        bytes.truncate(299 * BLOCK_LEN_BYTES + 100);
        bytes.resize(300 * BLOCK_LEN_BYTES, 0);
        for piece in 0..3 {
            let at = piece * 100 * BLOCK_LEN_BYTES;
            let part = &bytes[at..at + 100 * BLOCK_LEN_BYTES];
            store.write(BLOCK * 1000 + at as u64, part).unwrap();
        }
        assert_eq!((store.runs.len(), store.pages.len()), (1, 0));
        let owners = store.owners(990..1010);
        assert_eq!(owners, [(990..1000, None), (1000..1010, Some((tag, 0)))]);
        assert_eq!(
            store.places(tag, 4096..8192),
            std::slice::from_ref(&(1001 * BLOCK..1002 * BLOCK))
        );
        assert_eq!(store.write(0, &[1]), Err(Full));
    }
}
