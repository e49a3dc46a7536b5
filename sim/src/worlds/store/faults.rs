//! Fault injection: what goes wrong in a world with its device, its files and its memory.

use std::ops::Range;

use ackpace_core::units::Instant;

/// All faults of one run. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Ranges of the device that can't be read.
    pub bad: Vec<Range<u64>>,
    /// Faults with their times, in the order of time.
    pub timed: Vec<(Instant, Fault)>,
}

/// A fault that happens at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The device completes nothing until it resumes.
    Hangs,
    /// The device goes on.
    Resumes,
    /// A file is cut to this length. It is another version from then on, so no response may continue with it.
    Truncated {
        /// The file.
        file: u32,
        /// Its new length.
        len_bytes: u64,
    },
    /// A file is written in place; its length stays.
    Written {
        /// The file.
        file: u32,
    },
    /// The kernel drops all pages.
    Evicted,
    /// The pool has this size from now on.
    Pool {
        /// Its size.
        memory_bytes: u64,
    },
}

/// The files as they are now, against what the plans of responses say.
pub(in crate::worlds) struct Files {
    lengths_bytes: Vec<u64>,
    changed: Vec<bool>,
    /// A read of it has failed.
    failed: Vec<bool>,
}

impl Files {
    /// As many files, each as long as its plans say.
    pub fn new(count: u32, len_bytes: u64) -> Files {
        let count = count as usize;
        Files {
            lengths_bytes: vec![len_bytes; count],
            changed: vec![false; count],
            failed: vec![false; count],
        }
    }

    /// A file is another version from now on, of this length if that changes, too.
    pub fn change(&mut self, file: u32, len_bytes: Option<u64>) {
        self.changed[file as usize] = true;
        if let Some(len_bytes) = len_bytes {
            let now_bytes = &mut self.lengths_bytes[file as usize];
            *now_bytes = len_bytes.min(*now_bytes);
        }
    }

    /// Notes that a read of the file has failed.
    pub fn fail(&mut self, file: u32) {
        self.failed[file as usize] = true;
    }

    /// Bytes that a read of this many bytes finds.
    pub fn there_bytes(&self, file: u32, offset_bytes: u64, len_bytes: u64) -> u64 {
        let left_bytes = self.lengths_bytes[file as usize].saturating_sub(offset_bytes);
        left_bytes.min(len_bytes)
    }

    /// Whether it is not what responses promised.
    pub fn is_changed(&self, file: u32) -> bool {
        self.changed[file as usize]
    }

    /// Whether a response may end before its last byte for what happened to its file.
    pub fn excuses(&self, file: u32) -> bool {
        self.changed[file as usize] || self.failed[file as usize]
    }
}
