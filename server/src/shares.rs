//! How `memory_max` is divided, and the tables of `ackpace limits`.

use std::fmt::Write;

use ackpace_core::limits as core;
use ackpace_core::units::{KIB, MIB};
use ackpace_wire::limits as wire;

use crate::disk::{Ask, News};
use crate::limits::{
    CLOSING_LANES, CLOSING_MAX, CONNECTIONS_COMMON, CONNECTIONS_MIN, CONTROL_ANSWER_BYTES,
    CONTROL_HELD_BYTES_MAX, COPIED_BYTES_MAX, DESCRIPTORS_OWN, DEVICES_MAX, HOT_OPEN_MAX,
    HOT_TABLES_BYTES, LOG_BATCH_BYTES, LOG_QUEUE_BYTES_MAX, LOG_QUEUE_LINES_MAX, PARTED_FILES_MAX,
    PROGRAM_BYTES, QUERIES_BYTES_MAX, READERS_MAX, THREAD_BYTES,
};
use crate::log::Record;
use crate::mailbox::Mailboxes;
use crate::memory;
use crate::options::{Cancel, LogTarget, ServeOptions};
use crate::resolver::RESULT_BYTES;
use crate::store::file::{FILE_BYTES, KNOWN_BYTES};

/// What each owner of memory may use at worst. The kernel's memory (page cache, sockets) is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// `memory_max` in bytes.
    pub memory_bytes: u64,
    /// Workers.
    pub workers: u16,
    /// Connections of each worker: `connections_max`, or what memory allows.
    pub connections_per_worker: u32,
    /// Small files kept ready by all workers together: `object_cache`, or an eighth of the memory.
    pub object_cache_bytes: u64,
    /// What is read ahead of clients, from all disks together: `prefetch_memory`, or what
    /// [`CONNECTIONS_COMMON`] connections of each worker leave.
    pub prefetch_bytes: u64,
    /// Names of all listings under way, an eighth of the memory or [`core::LISTING_BYTES_MAX`]; 0: nothing is listed.
    pub listing_bytes: u64,
    /// Requests that the access log will tell of, until their responses are settled; 0: it is off.
    pub records_bytes: u64,
    /// Files that are read for clients that left, if they are (`cancel` off), of one disk.
    pub parted_bytes: u64,
    /// Requests that wait for a resolver.
    pub queries_bytes: u64,
    /// Queues of the logs that are written, and batches on their way out.
    pub log_bytes: u64,
}

impl Shares {
    /// Divides the memory: fixed owners first, the rest by connections.
    ///
    /// # Errors
    /// One sentence when it is not enough for [`CONNECTIONS_MIN`] connections a worker.
    pub fn of(options: &ServeOptions, workers: u16) -> Result<Shares, String> {
        Shares::divide(options, workers, memory::usable_bytes())
    }

    fn divide(options: &ServeOptions, workers: u16, usable_bytes: u64) -> Result<Shares, String> {
        let memory_bytes = options.memory_max.resolve(usable_bytes);
        let shares = Shares {
            memory_bytes,
            workers,
            connections_per_worker: CONNECTIONS_MIN,
            object_cache_bytes: (options.object_cache.resolve(usable_bytes)).min(memory_bytes / 8),
            listing_bytes: match options.listing {
                true => core::LISTING_BYTES_MAX.min(memory_bytes / 8),
                false => 0,
            },
            records_bytes: match options.access_log {
                LogTarget::Off => 0,
                LogTarget::Stdout | LogTarget::File(_) => {
                    (core::RECORDS_BYTES_MAX * u64::from(workers)).min(memory_bytes / 32)
                }
            },
            log_bytes: match options.access_log {
                LogTarget::Off => log_bytes(),
                LogTarget::Stdout | LogTarget::File(_) => 2 * log_bytes(),
            },
            parted_bytes: match options.cancel {
                Cancel::On => 0,
                Cancel::Off => PARTED_FILES_MAX as u64 * FILE_BYTES,
            },
            queries_bytes: QUERIES_BYTES_MAX.min(memory_bytes / 32),
            prefetch_bytes: 0,
        };
        // Where memory is little, what is read ahead leaves room for a common number of connections.
        let each_bytes = shares.connection_bytes() + mailboxes_bytes();
        let common = options.connections_max.min(CONNECTIONS_COMMON) * u64::from(workers);
        let room_bytes = memory_bytes.saturating_sub(shares.total_bytes() + common * each_bytes);
        let prefetch_bytes = options.prefetch_memory.resolve(usable_bytes);
        let shares = Shares {
            prefetch_bytes: prefetch_bytes.min(room_bytes.max(core::READ_BYTES_MAX)),
            ..shares
        };
        let least_bytes = shares.total_bytes();
        if memory_bytes < least_bytes {
            return Err(format!(
                "--memory-max {} is {} MiB here, and {workers} workers with {CONNECTIONS_MIN} connections each need {} \
                 MiB; raise it or start fewer workers (--workers)",
                options.memory_max,
                memory_bytes / MIB,
                least_bytes.div_ceil(MIB),
            ));
        }
        let left_bytes = memory_bytes - least_bytes;
        let more = left_bytes / u64::from(workers) / each_bytes;
        let affordable = u64::from(CONNECTIONS_MIN) + more;
        let connections_per_worker = affordable.min(options.connections_max) as u32; // at most 16,384
        Ok(Shares {
            connections_per_worker,
            ..shares
        })
    }

    /// What the sockets of each worker are to hold unsent. It is the kernel's memory, not ours; but where that is counted
    /// (cgroup v2), little memory for us is little for it, too. `tcp_bytes` is what the kernel has for the sockets of all programs: half of
    /// that is left to others.
    pub fn send_queue_bytes(&self, tcp_bytes: u64) -> u64 {
        let fair_bytes =
            (self.memory_bytes / 4).min(tcp_bytes / 2) / u64::from(self.workers.max(1));
        fair_bytes.min(core::STEADY_QUEUE_BYTES)
    }

    /// Each owner of memory and the most that it uses, in bytes.
    pub fn owners(&self) -> Vec<(&'static str, u64)> {
        let workers = u64::from(self.workers);
        let connections = workers * u64::from(self.connections_per_worker);
        vec![
            (
                "connections: state, request heads, responses, slices of listings",
                connections * self.connection_bytes(),
            ),
            (
                "mailboxes between workers, disks and resolvers",
                connections * mailboxes_bytes(),
            ),
            // The names and watches of their directories (inotify) belong to this budget, not beside it.
            ("small files kept ready", self.object_cache_bytes),
            (
                "which of them are watched, changed or asked for again",
                ready_tables_bytes(self.object_cache_bytes) * workers,
            ),
            (
                "what is read ahead of clients, and where it lies",
                self.prefetch_bytes + self.prefetch_bytes / POOL_OVERHEAD,
            ),
            (
                "names of listings under way, and pages being made of them",
                self.listing_bytes + self.listings_made_bytes(),
            ),
            ("requests that wait to be looked up", self.queries_bytes),
            (
                "requests for the access log until they are acknowledged",
                self.records_bytes,
            ),
            ("queues of the logs", self.log_bytes),
            (
                "metrics, answers of the admin socket, decisions",
                CONTROL_HELD_BYTES_MAX as u64 + CONTROL_ANSWER_BYTES + decisions_bytes() * workers,
            ),
            (
                "what is known of files and their residency",
                beliefs_bytes() * workers
                    + files_bytes()
                    + disks_bytes(self.prefetch_bytes)
                    + self.parted_bytes,
            ),
            (
                "the program and its threads",
                PROGRAM_BYTES
                    + THREAD_BYTES * (workers + THREADS_BESIDE)
                    + COPIED_BYTES_MAX as u64 * workers,
            ),
        ]
    }

    /// What one more connection costs at worst, its mailboxes aside. Request heads and streams that are kept for the next ones
    /// are in it: a new one is made only if none is kept, so there are never more than connections.
    fn connection_bytes(&self) -> u64 {
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

    /// Each resolver may be at a page with a long README, each byte of which takes up to six, beside the text itself.
    fn listings_made_bytes(&self) -> u64 {
        match self.listing_bytes {
            0 => 0,
            _ => (core::RESOLVERS_MAX * 7 * wire::README_BYTES_MAX) as u64,
        }
    }

    fn total_bytes(&self) -> u64 {
        self.owners().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// Threads besides the workers: resolvers, logs, control, signals, and those of all devices.
const THREADS_BESIDE: u64 =
    (core::RESOLVERS_MAX + 5 + CLOSING_LANES + DEVICES_MAX * (1 + READERS_MAX)) as u64;

/// A slot of the pool costs a part of itself for the list of slots that a stream holds.
const POOL_OVERHEAD: u64 = core::SLOT_BYTES / 32;

/// A box at each device's thread, with what that knows by place, one for the news that come back, and what resolvers found.
fn mailboxes_bytes() -> u64 {
    const BY_PLACE_BYTES: u64 = 64;
    DEVICES_MAX as u64 * (Mailboxes::<Ask>::PLACE_BYTES + BY_PLACE_BYTES)
        + Mailboxes::<News>::PLACE_BYTES
        + RESULT_BYTES
}

/// A queue with its places, and a batch whose last line may be a long one, in a buffer that grew by doubling.
fn log_bytes() -> u64 {
    let places_bytes = LOG_QUEUE_LINES_MAX * (size_of::<Record>() + 64);
    let batch_bytes = 2 * (LOG_BATCH_BYTES + wire::ACCESS_LOG_LINE_BYTES_MAX);
    LOG_QUEUE_BYTES_MAX + (places_bytes + batch_bytes) as u64
}

fn decisions_bytes() -> u64 {
    (core::DECISIONS_MAX * size_of::<ackpace_core::why::Decision>()) as u64
}

fn beliefs_bytes() -> u64 {
    core::BELIEFS_MAX as u64 * ackpace_core::cache::BELIEF_BYTES
}

/// What each worker needs to keep any files ready at all.
fn ready_tables_bytes(object_cache_bytes: u64) -> u64 {
    match object_cache_bytes {
        0 => 0,
        _ => HOT_TABLES_BYTES,
    }
}

fn files_bytes() -> u64 {
    core::OBJECTS_REMEMBERED_MAX as u64 * KNOWN_BYTES
}

/// What all disks remember of files, and of as many windows: by their shares of the memory, and each the least.
fn disks_bytes(prefetch_bytes: u64) -> u64 {
    let shared = prefetch_bytes / core::REMEMBERED_EACH_BYTES;
    let all = core::OBJECTS_REMEMBERED_MIN * DEVICES_MAX;
    let most = core::OBJECTS_REMEMBERED_MAX * DEVICES_MAX;
    (shared + all as u64).min(most as u64) * (core::OBJECT_BYTES + core::CACHED_EACH_BYTES)
}

/// The text of `ackpace limits`: memory by owner with its sum, then every bound with what happens at it.
///
/// # Errors
/// As [`Shares::of`].
pub fn print(options: &ServeOptions, workers: u16) -> Result<String, String> {
    let shares = Shares::of(options, workers)?;
    let mut text = String::new();
    let mut row = |bound: String, what: &str| {
        let _ = writeln!(text, "{bound:>12}  {what}");
    };
    row(mib(shares.memory_bytes), "memory_max");
    for (owner, bytes) in shares.owners() {
        row(mib(bytes), owner);
    }
    row(
        mib(shares.total_bytes()),
        "in all, at worst (page cache and sockets are the kernel's)",
    );
    row(String::new(), "");
    for (bound, what) in bounds(options, &shares) {
        row(bound, what);
    }
    Ok(text)
}

fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB)
}

fn bounds(options: &ServeOptions, shares: &Shares) -> Vec<(String, &'static str)> {
    let kib = |bytes: usize| format!("{} KiB", bytes as u64 / KIB);
    let time = |time: std::time::Duration| crate::options::display_duration(time).to_string();
    let connections = u64::from(shares.workers) * u64::from(shares.connections_per_worker);
    let at_limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    vec![
        (shares.workers.to_string(), "workers"),
        (
            shares.connections_per_worker.to_string(),
            "connections of a worker; more wait in the listen backlog",
        ),
        (
            (3 * connections
                + u64::from(shares.workers) * HOT_OPEN_MAX as u64
                + CLOSING_MAX as u64
                + DESCRIPTORS_OWN)
                .to_string(),
            "descriptors wanted at worst; out of them: accepting pauses, requests get 503",
        ),
        (
            at_limit.map_or("unlimited".to_owned(), |most| most.to_string()),
            "descriptors allowed (ulimit -Hn)",
        ),
        (kib(wire::HEAD_BYTES_MAX), "of a request head; more: 431"),
        (
            kib(wire::TARGET_BYTES_MAX),
            "of a request target; more: 414",
        ),
        (wire::FIELDS_MAX.to_string(), "header fields; more: 431"),
        (
            wire::RANGES_MAX.to_string(),
            "ranges of a request; more: the whole file is sent",
        ),
        (
            core::PIPELINED_MAX.to_string(),
            "pipelined requests answered in a row; then others have their turn",
        ),
        (
            mib(core::BODY_SKIP_BYTES_MAX),
            "of a request body are skipped; more: the connection ends",
        ),
        (time(options.header_timeout), "for a request head"),
        (time(options.idle_timeout), "between two requests"),
        (time(options.send_timeout), "without an acknowledged byte"),
        (
            time(options.pause_timeout),
            "with a closed window and answered probes",
        ),
        (
            options.rate_min_bytes_per_s.to_string(),
            "bytes a second at least, over a minute",
        ),
        (
            time(options.drain_timeout),
            "to finish after the signal to stop",
        ),
        (
            core::READS_IN_FLIGHT_MAX.to_string(),
            "reads in one device, far fewer in a disk with an arm; the next is chosen when one finishes",
        ),
        (
            mib(core::READ_BYTES_LONG_MAX),
            "of a file are read at once for one client, 4 MiB where that takes longer than 75 ms",
        ),
        (
            mib(core::WINDOW_BYTES),
            "of a file are judged at once, and read if it has several readers",
        ),
        (
            core::RESOLVERS_MAX.to_string(),
            "threads that open files and read directories, half of them for one device",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    fn options(args: &[&str]) -> ServeOptions {
        Line::parse_from([&["ackpace"], args].concat()).options
    }

    #[test]
    fn connections_shrink_to_what_memory_allows_and_the_sum_stays_below() {
        let roomy = Shares::divide(&options(&[]), 2, 64 << 30).expect("plenty");
        assert_eq!(roomy.connections_per_worker, 16_384);
        let small = Shares::divide(&options(&[]), 2, 1 << 30).expect("256 MiB");
        assert!(small.connections_per_worker < 16_384 && small.total_bytes() <= small.memory_bytes);
        let next = Shares {
            connections_per_worker: small.connections_per_worker + 2,
            ..small.clone()
        };
        assert!(
            next.total_bytes() > next.memory_bytes,
            "room for more was left unused"
        );
    }

    #[test]
    fn little_memory_still_serves_hundreds_of_connections() {
        let options = options(&["--memory-max", "128MiB", "--access-log", "/dev/null"]);
        let little = Shares::divide(&options, 2, 64 << 30).expect("enough");
        assert!(little.connections_per_worker >= 350, "{little:?}");
        assert!(little.total_bytes() <= little.memory_bytes);
    }

    #[test]
    fn what_is_kept_for_the_access_log_is_charged_where_there_is_one() {
        let without = Shares::divide(&options(&[]), 4, 64 << 30).expect("plenty");
        assert_eq!(without.records_bytes, 0);
        let with = Shares::divide(&options(&["--access-log", "-"]), 4, 64 << 30).expect("plenty");
        assert_eq!(with.records_bytes, 4 * core::RECORDS_BYTES_MAX);
        let more_bytes = with.connection_bytes() - without.connection_bytes();
        assert_eq!(more_bytes, core::RECORD_BRIEF_BYTES_MAX);
    }

    #[test]
    fn sockets_hold_a_quarter_of_the_memory_at_most() {
        let roomy = Shares::divide(&options(&[]), 2, 64 << 30).expect("plenty");
        assert_eq!(roomy.send_queue_bytes(u64::MAX), core::STEADY_QUEUE_BYTES);
        assert_eq!(roomy.send_queue_bytes(64 * MIB), 16 * MIB);
        let small = Shares::divide(&options(&["--memory-max", "128MiB"]), 2, 64 << 30);
        assert_eq!(small.expect("enough").send_queue_bytes(u64::MAX), 16 * MIB);
    }

    #[test]
    fn too_little_memory_is_refused_with_what_would_do() {
        let refused = Shares::divide(&options(&["--memory-max", "16MiB"]), 2, 64 << 30)
            .expect_err("too little");
        assert!(
            refused.starts_with("--memory-max 16MiB is 16 MiB here, and 2 workers with 16"),
            "{refused}"
        );
        assert!(
            refused.ends_with("raise it or start fewer workers (--workers)"),
            "{refused}"
        );
    }
}
