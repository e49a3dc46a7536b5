//! Statistics of the emulator: totals, bytes by file, and a log of reads.

use super::store::Owner;
use ackpace_lab_base::content::Tag;
use ackpace_sim::models::disk::request;
use std::collections::{BTreeMap, HashMap};

/// Blocks in one page of the bitmap of blocks that were read.
const SEEN_BLOCKS: u64 = 1 << 15;

/// Activity of the device since the last reset. Requests answered in fast mode are not counted.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Counters {
    /// The present, in the time of [`LoggedRead`].
    pub now_us: u64,
    /// Reads that completed.
    pub reads: u64,
    /// Bytes read by these reads.
    pub read_bytes: u64,
    /// Time of the device's parts with requests. If all are always busy, it is their number times the elapsed time.
    pub busy_us: u64,
    /// Arm movement.
    pub seek_us: u64,
    /// Rotational latency.
    pub rotation_us: u64,
    /// Time that requests waited before the device began with them, summed over requests. Divided by elapsed
    /// time it is the mean number of waiting requests.
    pub waited_us: u64,
    /// Disks or channels.
    pub members: usize,
    /// Requests in flight now.
    pub queued: usize,
    /// Reads by file.
    pub files: Vec<FileCounters>,
}

/// A read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRead {
    /// When it reached the disk.
    pub arrived_us: u64,
    /// When the disk had it.
    pub finished_us: u64,
    /// Its length.
    pub len_bytes: u64,
    /// The file of its first block, by its path below the mount point.
    pub file: String,
}

/// Reads of one file.
#[derive(Clone, Debug, serde::Serialize, PartialEq, Eq)]
pub struct FileCounters {
    /// Its path below the mount point, or its tag in hexadecimal if the name is unknown.
    pub file: String,
    /// Bytes that the host read.
    pub read_bytes: u64,
    /// The part of these bytes that the host had read before.
    pub again_bytes: u64,
}

/// Bytes by file, and the set of blocks that were read already.
#[derive(Default)]
pub struct ByFile {
    files: BTreeMap<Tag, (u64, u64)>,
    seen: HashMap<u64, Box<[u64]>>,
}

impl ByFile {
    /// Counts a read, given the owners of its blocks.
    pub fn read(&mut self, owners: &[Owner]) {
        for (blocks, owner) in owners {
            let len_blocks = blocks.end - blocks.start;
            let Some((tag, _)) = owner else {
                continue; // the file system's own
            };
            let again = blocks.clone().filter(|block| self.mark(*block)).count() as u64;
            let (read_bytes, again_bytes) = self.files.entry(*tag).or_default();
            *read_bytes += len_blocks * 4096;
            *again_bytes += again * 4096;
        }
    }

    /// Remembers a block; returns true if it was known.
    fn mark(&mut self, block: u64) -> bool {
        let page = self.seen.entry(block / SEEN_BLOCKS);
        let page = page.or_insert_with(|| vec![0; SEEN_BLOCKS as usize / 64].into());
        let (word, bit) = ((block % SEEN_BLOCKS / 64) as usize, 1 << (block % 64));
        let known = page[word] & bit != 0;
        page[word] |= bit;
        known
    }

    /// The counters of all files, in the order of their tags.
    pub fn files(&self, names: &HashMap<Tag, String>) -> Vec<FileCounters> {
        let one = |(tag, (read_bytes, again_bytes)): (&Tag, &(u64, u64))| FileCounters {
            file: name(names, *tag),
            read_bytes: *read_bytes,
            again_bytes: *again_bytes,
        };
        self.files.iter().map(one).collect()
    }
}

/// A file's path, or its tag.
pub fn name(names: &HashMap<Tag, String>, tag: Tag) -> String {
    match names.get(&tag) {
        Some(name) => name.clone(),
        None => format!("{:016x}", tag.0),
    }
}

/// Converts the model's totals into [`Counters`].
pub fn totals(model: &request::DeviceTotals) -> Counters {
    let split = &model.split;
    Counters {
        reads: model.reads,
        read_bytes: model.read_bytes,
        busy_us: split.busy_ns() / 1000,
        seek_us: split.seek_ns / 1000,
        rotation_us: split.rotation_ns / 1000,
        waited_us: model.waited_ns / 1000,
        ..Counters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_read_twice_is_counted_for_its_file() {
        let (tag, mut by_file) = (Tag::of("a"), ByFile::default());
        by_file.read(&[(0..10, Some((tag, 0))), (10..12, None)]);
        by_file.read(&[(8..14, Some((tag, 8)))]);
        let names = HashMap::from([(tag, "a".to_owned())]);
        let file = FileCounters {
            file: "a".into(),
            read_bytes: 16 * 4096,
            again_bytes: 2 * 4096,
        };
        assert_eq!(by_file.files(&names), [file]);
    }
}
