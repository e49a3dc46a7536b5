//! What the emulator tells: totals, bytes by file, and a line for each request.

use super::store::Owner;
use ackpace_lab_base::content::Tag;
use ackpace_sim::models::disk::request::{self, Completion, Kind};
use std::collections::{BTreeMap, HashMap};

/// Blocks of a page of the map of what was read.
const SEEN_BLOCKS: u64 = 1 << 15;

/// What the device did since the last reset. Requests that were answered in fast mode are not counted.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Counters {
    /// Since when, as time of the trace.
    pub since_us: u64,
    /// Now, as time of the trace.
    pub now_us: u64,
    /// Disks or channels: all of them busy all the time is `busy_us = members * (now_us - since_us)`.
    pub members: usize,
    /// Reads that completed.
    pub reads: u64,
    /// Writes that completed.
    pub writes: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Bytes of these writes.
    pub written_bytes: u64,
    /// Requests that failed with EIO.
    pub failed: u64,
    /// Reads that the drive's own memory answered.
    pub hits: u64,
    /// Sum of the next four.
    pub busy_us: u64,
    /// Command processing, latency of flash, hangs.
    pub overhead_us: u64,
    /// Arm movement.
    pub seek_us: u64,
    /// Waiting for the platter.
    pub rotation_us: u64,
    /// Transfer.
    pub transfer_us: u64,
    /// Sum over requests of the time before the device began with them; over elapsed time it is the
    /// mean number of waiting requests.
    pub waited_us: u64,
    /// Requests under way now.
    pub queued: usize,
    /// Bytes asked for that belong to no file of the lab: the file system's own.
    pub other_read_bytes: u64,
    /// Blocks of the medium that are kept in memory as they are.
    pub kept_bytes: u64,
    /// Writes refused with ENOSPC since the disk was up: they were neither zeros nor lab content, and
    /// `kept_bytes` is at its bound.
    pub refused_writes: u64,
    /// Bytes of files.
    pub files: Vec<FileCounters>,
}

/// Reads of one file.
#[derive(Clone, Debug, serde::Serialize, PartialEq, Eq)]
pub struct FileCounters {
    /// Its path below the mount point, or the tag in hexadecimal if nobody told the name.
    pub file: String,
    /// Bytes that the host asked for.
    pub read_bytes: u64,
    /// Of these, bytes that had been asked for before.
    pub again_bytes: u64,
}

/// Bytes by file, and which blocks were asked for already.
#[derive(Default)]
pub struct ByFile {
    files: BTreeMap<Tag, (u64, u64)>,
    other_bytes: u64,
    seen: HashMap<u64, Box<[u64]>>,
}

impl ByFile {
    /// Counts a read: parts of the medium with their owners.
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

    /// Remembers a block; whether it was known.
    fn mark(&mut self, block: u64) -> bool {
        let page = self.seen.entry(block / SEEN_BLOCKS);
        let page = page.or_insert_with(|| vec![0; SEEN_BLOCKS as usize / 64].into());
        let (word, bit) = ((block % SEEN_BLOCKS / 64) as usize, 1 << (block % 64));
        let known = page[word] & bit != 0;
        page[word] |= bit;
        known
    }

    /// Files in the order of their tags.
    pub fn files(&self, names: &HashMap<Tag, String>) -> Vec<FileCounters> {
        let one = |(tag, (read_bytes, again_bytes)): (&Tag, &(u64, u64))| FileCounters {
            file: name(names, *tag),
            read_bytes: *read_bytes,
            again_bytes: *again_bytes,
        };
        self.files.iter().map(one).collect()
    }

    /// Bytes of no file.
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

/// Puts the model's totals into the lab's form.
pub fn totals(model: &request::Counters) -> Counters {
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
