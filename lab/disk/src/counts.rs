//! Statistics of the emulator: totals, bytes by file, and a trace line for each request.

use super::store::Owner;
use ackpace_lab_base::content::Tag;
use ackpace_sim::models::disk::request::{self, Completion, Kind};
use std::collections::{BTreeMap, HashMap};

/// Blocks in one page of the bitmap of blocks that were read.
const SEEN_BLOCKS: u64 = 1 << 15;

/// Activity of the device since the last reset. Requests answered in fast mode are not counted.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Counters {
    /// Time of the last reset, in trace time.
    pub since_us: u64,
    /// The present, in trace time.
    pub now_us: u64,
    /// Disks or channels. If all are always busy, `busy_us = members * (now_us - since_us)`.
    pub members: usize,
    /// Reads that completed.
    pub reads: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Bytes read by these reads.
    pub read_bytes: u64,
    /// Bytes written by these writes.
    pub written_bytes: u64,
    /// Requests that failed with EIO.
    pub failed: u64,
    /// Reads served from the drive's own cache.
    pub hits: u64,
    /// Sum of the next four.
    pub busy_us: u64,
    /// Command processing, latency of flash, and hangs.
    pub overhead_us: u64,
    /// Arm movement.
    pub seek_us: u64,
    /// Rotational latency.
    pub rotation_us: u64,
    /// Transfer time.
    pub transfer_us: u64,
    /// Time that requests waited before the device began with them, summed over requests. Divided by elapsed
    /// time it is the mean number of waiting requests.
    pub waited_us: u64,
    /// Requests in flight now.
    pub queued: usize,
    /// Bytes read that belong to no file of the lab: the file system's own.
    pub other_read_bytes: u64,
    /// Bytes of the medium that are stored in memory verbatim.
    pub kept_bytes: u64,
    /// Writes refused with ENOSPC since the disk came up: they were neither zeros nor lab content, and
    /// `kept_bytes` had reached its bound.
    pub refused_writes: u64,
    /// Reads by file.
    pub files: Vec<FileCounters>,
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
    other_bytes: u64,
    seen: HashMap<u64, Box<[u64]>>,
}

impl ByFile {
    /// Counts a read, given the owners of its blocks.
    pub fn read(&mut self, owners: &[Owner]) {
        for (blocks, owner) in owners {
            let len_blocks = blocks.end - blocks.start;
            let Some((tag, _)) = owner else {
                self.other_bytes += len_blocks * 4096;
                continue;
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

    /// Bytes read that belong to no file.
    pub fn other_bytes(&self) -> u64 {
        self.other_bytes
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
        since_us: 0,
        now_us: 0,
        members: 0,
        reads: model.reads,
        writes: model.writes,
        read_bytes: model.read_bytes,
        written_bytes: model.written_bytes,
        failed: model.failed,
        hits: model.hits,
        busy_us: split.busy_ns() / 1000,
        overhead_us: split.overhead_ns / 1000,
        seek_us: split.seek_ns / 1000,
        rotation_us: split.rotation_ns / 1000,
        transfer_us: split.transfer_ns / 1000,
        waited_us: model.waited_ns / 1000,
        queued: 0,
        other_read_bytes: 0,
        kept_bytes: 0,
        refused_writes: 0,
        files: Vec::new(),
    }
}

/// The first line of a trace.
pub const TRACE_HEAD: &str = "arrived_us\tkind\tfile\tfile_offset_bytes\toffset_bytes\tlen_bytes\tqueued_before\
                              \twaited_us\toverhead_us\tseek_us\trotation_us\ttransfer_us\tfinished_us\tresult";

/// The line of a request; the owner is that of its first block.
pub fn trace_line(done: &Completion, owner: Option<(String, u64)>) -> String {
    let kind = match done.request.kind {
        Kind::Read => "read",
        Kind::Write => "write",
    };
    let result = match (done.failed, done.hit) {
        (true, _) => "EIO",
        (false, true) => "memory",
        (false, false) => "medium",
    };
    let (file, at) = owner.unwrap_or_else(|| ("-".into(), 0));
    let (request, split) = (&done.request, &done.split);
    format!(
        "{}\t{kind}\t{file}\t{at}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{result}",
        done.arrived_ns / 1000,
        request.offset_bytes,
        request.len_bytes,
        done.queued_before,
        (done.started_ns - done.arrived_ns) / 1000,
        split.overhead_ns / 1000,
        split.seek_ns / 1000,
        split.rotation_ns / 1000,
        split.transfer_ns / 1000,
        done.finished_ns / 1000,
    )
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
        assert_eq!(by_file.other_bytes(), 2 * 4096);
    }
}
