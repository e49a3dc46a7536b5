//! Each owner of memory, and what it costs at worst.

use ackpace_core::limits as core;
use ackpace_wire::limits as wire;

use super::{AHEAD_COST_BYTES, Shares};
use crate::disk::{Completion, DiskAsk};
use crate::divider::ShareChannel;
use crate::limits::{
    CLOSING_LANES, CONTROL_ANSWER_BYTES, CONTROL_HELD_BYTES_MAX, COPIED_BYTES_MAX, LOG_BATCH_BYTES,
    LOG_QUEUE_LINES_MAX, PROGRAM_BYTES, READERS_MAX, REPORTS_MAX, RESPONSE_CACHE_TABLES_BYTES,
    THREAD_BYTES,
};
use crate::log::Record;
use crate::mailbox::Mailboxes;
use crate::resolver::RESULT_BYTES;
use crate::store::file::FILE_BYTES;
use crate::store::files::KNOWN_BYTES;

/// Threads other than the workers, the divider and those of devices: the resolvers, two logs, control, signals, the watchdog's, one
/// that looks after the root, one that measures a device, and those that close files.
const THREADS_BESIDE: u64 = (core::RESOLVERS_MAX + 7 + CLOSING_LANES) as u64;

/// Threads of a device.
const DEVICE_THREADS: u64 = (1 + READERS_MAX) as u64;

impl Shares {
    /// Each owner of memory and the most that it uses, in bytes.
    pub fn owners(&self) -> Vec<(&'static str, u64)> {
        let (workers, connections) = (u64::from(self.workers), self.connections());
        vec![
            (
                "connections: state, request heads, responses, slices of listings",
                connections * self.connection_bytes(),
            ),
            (
                "mailboxes between workers, disks and resolvers",
                connections * self.mailboxes_bytes(),
            ),
            ("small files in the response cache", self.object_cache_bytes),
            (
                "shares of the memory for sending, and what is known of paths",
                self.divider_bytes(),
            ),
            (
                "which small files were asked for once",
                cache_tables_bytes(self.object_cache_bytes) * workers,
            ),
            (
                "what is read ahead of clients, and where it lies, at least",
                AHEAD_COST_BYTES,
            ),
            (
                "names of listings under way, and pages being made of them",
                self.listing_bytes + self.readmes_bytes,
            ),
            ("responses with many ranges", self.ranges_bytes),
            ("requests that wait to be looked up", self.queries_bytes),
            (
                "requests for the access log until they are acknowledged",
                self.records_bytes,
            ),
            ("queues of the logs", self.logs * self.log_bytes()),
            (
                "metrics, answers of the admin socket, decisions",
                CONTROL_HELD_BYTES_MAX as u64 + CONTROL_ANSWER_BYTES + decisions_bytes() * workers,
            ),
            (
                "what is known of files and their residency",
                residency_cache_bytes() * workers
                    + files_bytes()
                    + self.devices as u64 * self.remembered() * core::OBJECT_BYTES
                    + self.parted_bytes,
            ),
            (
                "the program and its threads",
                PROGRAM_BYTES
                    + THREAD_BYTES * (workers + THREADS_BESIDE)
                    + THREAD_BYTES * DEVICE_THREADS * self.devices as u64
                    + COPIED_BYTES_MAX as u64 * workers,
            ),
        ]
    }

    /// The cost of a disk when it is first read from: its threads, its mailboxes, and what it remembers.
    pub fn device_bytes(&self) -> u64 {
        DEVICE_THREADS * THREAD_BYTES
            + self.connections() * ask_bytes()
            + ackpace_core::disk::JOURNAL_BYTES
            + self.remembered() * core::OBJECT_BYTES
    }

    /// What the divider knows of each connection, and its mailboxes; 0 where send memory is not divided.
    fn divider_bytes(&self) -> u64 {
        let fixed_bytes = THREAD_BYTES
            + ackpace_core::sndbuf::remembered::TABLE_BYTES
            + (REPORTS_MAX * (size_of::<ackpace_core::sndbuf::pool::In>() + 16)) as u64;
        self.send_bytes.map_or(0, |_| {
            self.connections() * self.divider_each_bytes() + fixed_bytes
        })
    }

    /// The same of one more connection.
    pub(super) fn divider_each_bytes(&self) -> u64 {
        let each_bytes = ackpace_core::sndbuf::pool::MEMBER_BYTES + ShareChannel::PLACE_BYTES;
        self.send_bytes.map_or(0, |_| each_bytes)
    }

    /// The cost of one more connection at worst, without its mailboxes. Request heads and streams kept for reuse are in
    /// it: a new one is made only if none is kept, so there are never more than connections.
    pub fn connection_bytes(&self) -> u64 {
        core::connection_bytes_max(&core::Holdings {
            state_bytes: ackpace_core::worker::CONNECTION_BYTES
                + crate::worker::PLACE_BYTES
                + ackpace_core::disk::STREAM_BYTES
                + core::OBJECT_BYTES,
            head_bytes: wire::HEAD_BYTES_MAX as u64,
            plan_bytes: wire::PLAN_BYTES_MAX as u64,
            file_bytes: FILE_BYTES + KNOWN_BYTES,
            slice_bytes: match self.listing_bytes {
                0 => 0,
                _ => (core::SLICE_BYTES + wire::LISTING_ENTRY_BYTES_MAX) as u64,
            },
            record_bytes: match self.records_bytes {
                0 => 0,
                _ => core::RECORD_BRIEF_BYTES_MAX,
            },
        })
    }

    /// Mailboxes of a connection: one at each device's thread, with its state there, one for completions, and one for
    /// the results of resolvers.
    pub(super) fn mailboxes_bytes(&self) -> u64 {
        self.devices as u64 * ask_bytes() + Mailboxes::<Completion>::PLACE_BYTES + RESULT_BYTES
    }

    /// A queue with its entries, and a batch whose last line may be a long one, in a buffer that grew by doubling.
    fn log_bytes(&self) -> u64 {
        let places_bytes = LOG_QUEUE_LINES_MAX * (size_of::<Record>() + 64);
        let batch_bytes = 2 * (LOG_BATCH_BYTES + wire::ACCESS_LOG_LINE_BYTES_MAX);
        self.log_queue_bytes + (places_bytes + batch_bytes) as u64
    }

    /// The sum of all owners.
    pub(super) fn total_bytes(&self) -> u64 {
        self.owners().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// The mailbox of a connection at a device's thread, with its state there.
fn ask_bytes() -> u64 {
    const BY_PLACE_BYTES: u64 = 64;
    Mailboxes::<DiskAsk>::PLACE_BYTES + BY_PLACE_BYTES
}

/// The last decisions of a worker.
fn decisions_bytes() -> u64 {
    (core::DECISIONS_MAX * size_of::<ackpace_core::why::Decision>()) as u64
}

/// What a worker believes of the page cache.
fn residency_cache_bytes() -> u64 {
    ackpace_core::cache::RESIDENCY_CACHED_MAX as u64 * ackpace_core::cache::SIGHTING_BYTES
}

/// Memory that each worker needs to cache any responses at all.
fn cache_tables_bytes(object_cache_bytes: u64) -> u64 {
    match object_cache_bytes {
        0 => 0,
        _ => RESPONSE_CACHE_TABLES_BYTES,
    }
}

/// What is remembered of files of all sites.
fn files_bytes() -> u64 {
    core::OBJECTS_REMEMBERED_MAX as u64 * KNOWN_BYTES
}
