//! Each owner of memory, and what it costs at worst.

use ackpace_core::limits as core;
use ackpace_core::payload::tables_bytes_max;
use ackpace_core::tier::FILE_MEMORY_BYTES;
use ackpace_wire::limits as wire;

use super::{AHEAD_COST_BYTES, Shares};
use crate::cluster;
use crate::disk::{Completion, DiskAsk};
use crate::divider::ShareChannel;
use crate::front::shelf::Shelf;
use crate::limits::{
    CONTROL_HELD_BYTES_MAX, COPIED_BYTES_MAX, NFS_PAYLOADS_BYTES_MAX, READERS_MAX, REPORTS_MAX,
    RESPONSE_CACHE_TABLES_BYTES,
};
use crate::log::{LOG_BATCH_BYTES, LOG_LINE_PLACE_BYTES, LOG_QUEUE_LINES_MAX};
use crate::mailbox::Mailboxes;
use crate::nfs;
use crate::resolver::RESULT_BYTES;
use crate::store::closing::CLOSING_LANES;
use crate::store::file::FILE_BYTES;
use crate::store::files::KNOWN_BYTES;
use crate::store::tier;

/// Threads other than the workers, the divider and those of devices: the resolvers, two logs, control, signals, the watchdog's, one
/// that looks after the root, one that measures a device, and those that close files.
const THREADS_BESIDE: u64 = (core::RESOLVERS_MAX + 7 + CLOSING_LANES) as u64;
/// Memory of a thread: the part of its stack that it uses, and what the allocator keeps for it.
const THREAD_BYTES: u64 = 32 << 10;
/// Memory of the program itself: its tables, the options, and small pieces that the allocator can't give back.
const PROGRAM_BYTES: u64 = 4 << 20;
/// Bytes of one metrics page or one answer of the admin socket while it is made, roughly and at most: 64 workers, the
/// 256 fastest connections of all and those of one worker, or a piece of connections with long paths. Not enforced: the
/// content bounds it.
const CONTROL_ANSWER_BYTES: u64 = 1 << 20;

/// Threads of a device.
const DEVICE_THREADS: u64 = (1 + READERS_MAX) as u64;

/// An owner of memory, and the most that it uses.
pub struct Owner {
    /// As `ackpace limits` calls it.
    pub name: &'static str,
    /// Charged to the ledger at the start.
    at_start_bytes: u64,
    later_bytes: u64,
}

impl Owner {
    pub fn bytes(&self) -> u64 {
        self.at_start_bytes + self.later_bytes
    }
}

fn at_start(name: &'static str, at_start_bytes: u64) -> Owner {
    Owner {
        name,
        at_start_bytes,
        later_bytes: 0,
    }
}

fn later(name: &'static str, later_bytes: u64) -> Owner {
    Owner {
        name,
        at_start_bytes: 0,
        later_bytes,
    }
}

impl Shares {
    pub fn owners(&self) -> Vec<Owner> {
        let (workers, connections) = (u64::from(self.workers), self.connections());
        let aside_bytes = Shelf::aside_bytes(self.listing_bytes);
        vec![
            later(
                "connections: state, request heads, responses, slices of listings",
                connections * self.connection_bytes(),
            ),
            at_start(
                "mailboxes between workers and resolvers",
                connections * MAILBOXES_BYTES,
            ),
            at_start("NFS: connections, replies, handles", self.nfs_bytes()),
            later(
                "disks: threads, mailboxes, what is known of their files",
                self.devices as u64 * self.device_bytes(),
            ),
            later("small files in the response cache", self.object_cache_bytes),
            at_start(
                "shares of the memory for sending, and what is known of paths",
                self.divider_bytes(),
            ),
            at_start(
                "which small files were asked for once",
                match self.object_cache_bytes {
                    0 => 0,
                    _ => RESPONSE_CACHE_TABLES_BYTES * workers,
                },
            ),
            later(
                "what is read ahead of clients, and where it lies, at least",
                AHEAD_COST_BYTES,
            ),
            at_start("where files lie on the iSCSI unit", self.unit_bytes()),
            at_start(
                "payload of origins, a unit or other nodes, and what is known of it",
                self.slab_bytes + self.catalog_bytes() + tables_bytes_max(self.slab_bytes),
            ),
            at_start("what is known of the cache folder", self.tier_bytes()),
            Owner {
                name: "names of listings under way, and pages being made of them",
                at_start_bytes: aside_bytes,
                later_bytes: self.listing_bytes - aside_bytes,
            },
            later("responses with many ranges", self.ranges_bytes),
            at_start("requests that wait to be looked up", self.queries_bytes),
            at_start(
                "requests for the access log until they are acknowledged",
                self.records_bytes,
            ),
            at_start("queues of the logs", self.logs * self.log_bytes()),
            at_start(
                "metrics, answers of the admin socket, decisions",
                CONTROL_HELD_BYTES_MAX as u64 + CONTROL_ANSWER_BYTES + DECISIONS_BYTES * workers,
            ),
            at_start("other nodes, and their caches", self.cluster_bytes()),
            at_start(
                "what is known of files and their residency",
                RESIDENCY_CACHE_BYTES * workers
                    + core::OBJECTS_REMEMBERED_MAX as u64 * KNOWN_BYTES
                    + self.parted_bytes,
            ),
            at_start(
                "the program and its threads",
                PROGRAM_BYTES
                    + THREAD_BYTES * (workers + THREADS_BESIDE)
                    + COPIED_BYTES_MAX as u64 * workers,
            ),
        ]
    }

    /// What is known of the objects of origins: a sixteenth of their payload.
    pub fn catalog_bytes(&self) -> u64 {
        self.slab_bytes / 16
    }

    /// Files of the cache folder that can be remembered.
    pub fn tier_files(&self) -> usize {
        usize::try_from(self.tier_index_bytes / FILE_MEMORY_BYTES).unwrap_or(usize::MAX)
    }

    /// What is known of the files, and what waits for them; 0 without a cache folder.
    fn tier_bytes(&self) -> u64 {
        match self.tier_index_bytes {
            0 => 0,
            index_bytes => index_bytes + tier::QUEUES_BYTES + THREAD_BYTES * tier::THREADS,
        }
    }

    /// The cost of a disk when it is first read from: its threads, its mailboxes, and what it remembers.
    pub fn device_bytes(&self) -> u64 {
        DEVICE_THREADS * THREAD_BYTES
            + (self.connections() + self.nfs_connections() * NFS_READERS) * ask_bytes()
            + ackpace_core::disk::JOURNAL_BYTES
            + self.remembered() * core::OBJECT_BYTES
    }

    /// What the divider knows of each connection, and its mailboxes; 0 where send memory is not divided.
    fn divider_bytes(&self) -> u64 {
        let fixed_bytes = THREAD_BYTES
            + ackpace_share::remembered::TABLE_BYTES
            + (REPORTS_MAX * (size_of::<ackpace_share::pool::In>() + 16)) as u64;
        self.send_bytes.map_or(0, |_| {
            self.connections() * self.divider_each_bytes() + fixed_bytes
        })
    }

    /// The threads of the cluster and of etcd, what it knows, what waits for it, and its streams; 0 without one.
    fn cluster_bytes(&self) -> u64 {
        let fixed_bytes = 2 * THREAD_BYTES
            + ackpace_core::place::BYTES
            + cluster::MAIL_BYTES
            + cluster::MOVED_BYTES
            + cluster::etcd::ANSWER_BYTES;
        match self.nodes {
            0 => 0,
            nodes => fixed_bytes + nodes * cluster::NODE_BYTES,
        }
    }

    /// Maps of files, the thread that hears from the gateway program and the one that connects; 0 without a unit.
    fn unit_bytes(&self) -> u64 {
        match self.maps_bytes {
            0 => 0,
            maps_bytes => maps_bytes + 2 * THREAD_BYTES,
        }
    }

    /// Connections of NFS.
    fn nfs_connections(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.nfs_connections)
    }

    /// NFS: its connections with their mailboxes, and its threads; 0 without it.
    fn nfs_bytes(&self) -> u64 {
        let thread_bytes = THREAD_BYTES + COPIED_BYTES_MAX as u64;
        let sweeping_bytes = THREAD_BYTES;
        match self.nfs_connections {
            0 => 0,
            _ => {
                nfs::FILES_BYTES
                    + self.nfs_connections() * nfs_connection_bytes()
                    + u64::from(self.workers) * thread_bytes
                    + sweeping_bytes
                    + self.nfs_writes_bytes()
            }
        }
    }

    /// Payload that NFS clients write, and what is known of files that they write; 0 where they can't.
    fn nfs_writes_bytes(&self) -> u64 {
        match self.nfs_writes {
            true => nfs::WRITES_BYTES + u64::from(self.workers) * NFS_PAYLOADS_BYTES_MAX,
            false => 0,
        }
    }

    /// All that one more connection of NFS costs.
    pub(super) fn nfs_each_bytes(&self) -> u64 {
        nfs_connection_bytes() + self.devices as u64 * NFS_READERS * ask_bytes()
    }

    /// The same of one more connection.
    fn divider_each_bytes(&self) -> u64 {
        let each_bytes = ackpace_share::pool::MEMBER_BYTES + ShareChannel::PLACE_BYTES;
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

    /// All that one more connection costs.
    pub(super) fn each_bytes(&self) -> u64 {
        let at_disks_bytes = self.devices as u64 * ask_bytes();
        self.connection_bytes() + MAILBOXES_BYTES + at_disks_bytes + self.divider_each_bytes()
    }

    /// A queue with its entries, and a batch whose last line may be a long one, in a buffer that grew by doubling.
    fn log_bytes(&self) -> u64 {
        let places_bytes = LOG_QUEUE_LINES_MAX * LOG_LINE_PLACE_BYTES;
        let batch_bytes = 2 * (LOG_BATCH_BYTES + wire::ACCESS_LOG_LINE_BYTES_MAX);
        self.log_queue_bytes + (places_bytes + batch_bytes) as u64
    }

    pub(super) fn total_bytes(&self) -> u64 {
        self.owners().iter().map(Owner::bytes).sum()
    }

    /// Memory that is charged at the start.
    pub(super) fn fixed_bytes(&self) -> u64 {
        self.owners().iter().map(|owner| owner.at_start_bytes).sum()
    }
}

/// The mailbox of a connection at a device's thread, with its state there.
fn ask_bytes() -> u64 {
    const BY_PLACE_BYTES: u64 = 64;
    Mailboxes::<DiskAsk>::PLACE_BYTES + BY_PLACE_BYTES
}

/// Mailboxes of a connection besides those at disks: for completions, and for the results of resolvers.
const MAILBOXES_BYTES: u64 = Mailboxes::<Completion>::PLACE_BYTES + RESULT_BYTES;

/// The last decisions of a worker.
const DECISIONS_BYTES: u64 =
    (core::DECISIONS_MAX * size_of::<ackpace_core::why::Decision>()) as u64;

/// What a worker believes of the page cache.
const RESIDENCY_CACHE_BYTES: u64 =
    ackpace_core::cache::RESIDENCY_CACHED_MAX as u64 * ackpace_core::cache::SIGHTING_BYTES;

/// Readers of one connection of NFS.
const NFS_READERS: u64 = ackpace_core::nfs::READERS as u64;

/// One connection of NFS with its mailboxes, but those at disks.
fn nfs_connection_bytes() -> u64 {
    let calls = core::NFS_CALLS_MAX as u64;
    nfs::connection_bytes()
        + NFS_READERS * Mailboxes::<Completion>::PLACE_BYTES
        + calls * RESULT_BYTES
}
