//! How `memory_max` is divided: as many connections as it has room for, each at its worst, beside all other owners
//! (`shares/owners.rs` has what each costs). [`text`] prints it.

mod descriptors;
mod owners;
pub mod text;

use ackpace_core::limits as core;
use ackpace_core::payload::SEGMENT_BYTES;
use ackpace_core::tier::FILE_MEMORY_BYTES;
use ackpace_core::units::{KIB, MIB};

pub use self::descriptors::allowed as descriptors_allowed;
use crate::config::{self, Layer};
use crate::disk::SLOT_COST_BYTES;
use crate::ledger::Ledger;
use crate::limits::{
    CGROUP_PERCENT, CONNECTIONS_COMMON, CONNECTIONS_MIN, DEVICES_MAX, MACHINE_PERCENT,
    MEMORY_LITTLE_BYTES, NFS_CONNECTIONS_MAX, NFS_CONNECTIONS_MIN, UNCANCELLED_FILES_MAX,
};
use crate::log::LOG_QUEUE_BYTES_MAX;
use crate::memory::{self, Usable};
use crate::options::{LogTarget, SendMemory, ServeOptions, Size};
use crate::store::file::FILE_BYTES;
use crate::store::tier;
use crate::unit;

/// One device slot for so much of `memory_max`, bytes, since each costs threads and tables. Less memory: fewer slots,
/// two at least.
const DEVICE_EACH_BYTES: u64 = 16 << 20;
/// Memory of the requests that wait for resolvers, less where memory is little; an ordinary one holds 300 bytes. More:
/// the request is answered 503.
const QUERIES_BYTES_MAX: u64 = 8 << 20;
/// Memory for the ranges of all responses beyond those that are common, less where memory is little: some 550 bytes each, 1 MB where they
/// fill a request head. More, or more than half of what is left of it for one: the whole file is sent.
const RANGES_BYTES_MAX: u64 = 16 << 20;

/// The most that each owner of memory may use, whatever the others do. Unused memory is lent to reading ahead
/// ([`Ledger`]). The kernel's memory (page cache, sockets) is not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    pub memory_bytes: u64,
    /// What the page cache is taken to hold.
    pub page_cache_bytes: u64,
    pub workers: u16,
    /// Connections of each worker: `connections_max`, or what memory allows.
    pub connections_per_worker: u32,
    /// Connections of each NFS thread, of which there are as many as workers; 0: NFS is not served.
    pub nfs_connections: u32,
    /// Clients of NFS may write.
    pub nfs_writes: bool,
    /// The response caches of all workers together: `object_cache`, or an eighth of the memory.
    pub object_cache_bytes: u64,
    /// Memory for reading ahead from all disks together, while others use none of theirs: `prefetch_memory`, or all of
    /// that.
    pub prefetch_bytes: u64,
    /// Payload of origins or of a unit; 0 without one.
    pub slab_bytes: u64,
    /// Where files lie on the unit; 0 without one.
    pub maps_bytes: u64,
    /// What is known of the files of `cache_dir`; 0 without it.
    pub tier_index_bytes: u64,
    /// Names of all listings under way and their READMEs, an eighth of the memory or [`core::LISTING_BYTES_MAX`]; 0: nothing is listed.
    pub listing_bytes: u64,
    /// Responses with more than [`ackpace_wire::limits::RANGES_COMMON`] ranges.
    pub ranges_bytes: u64,
    /// Records of requests for the access log, until their responses are settled; 0: it is off.
    pub records_bytes: u64,
    /// Files, of one disk, that are read for departed clients (`compare = "cancel=off"`).
    pub parted_bytes: u64,
    /// Requests that wait for a resolver.
    pub queries_bytes: u64,
    /// Lines that wait in the queue of a log.
    pub log_queue_bytes: u64,
    pub logs: u64,
    pub devices: usize,
    /// Other nodes of the cluster; 0: there is none.
    pub nodes: u64,
    /// The memory for sending, where it is divided; it is the kernel's, and not in `memory_bytes`.
    pub send_bytes: Option<u64>,
}

/// How often it is tried whether so much memory is enough. Each step covers more than half of what lacks.
const ENOUGH_STEPS_MAX: u32 = 32;

impl Shares {
    /// Divides the memory: fixed owners first, the rest by connections.
    /// Errors: One sentence, which begins with the value of `memory_max`, when it is not enough for [`CONNECTIONS_MIN`] connections a
    /// worker.
    pub fn of(options: &ServeOptions, workers: u16) -> Result<Shares, String> {
        Shares::divide(options, workers, memory::usable())
    }

    /// Memory that is enough. With more of it some shares grow, so what lacks is not all that it takes.
    fn enough_bytes(
        options: &ServeOptions,
        workers: u16,
        usable: Usable,
        mut memory_bytes: u64,
    ) -> u64 {
        for _ in 0..ENOUGH_STEPS_MAX {
            let least_bytes = Shares::least(options, workers, usable, memory_bytes).total_bytes();
            if least_bytes <= memory_bytes {
                break;
            }
            memory_bytes = (2 * least_bytes - memory_bytes).next_multiple_of(MIB);
        }
        memory_bytes
    }

    fn divide(options: &ServeOptions, workers: u16, usable: Usable) -> Result<Shares, String> {
        let memory_bytes = memory_bytes(options.memory_max, usable);
        let shares = Shares::least(options, workers, usable, memory_bytes);
        let least_bytes = shares.total_bytes();
        if memory_bytes < least_bytes {
            let (them, fewer) = match workers {
                1 => (
                    format!("1 worker with {CONNECTIONS_MIN} connections needs"),
                    "",
                ),
                _ => (
                    format!("{workers} workers with {CONNECTIONS_MIN} connections each need"),
                    " or start fewer workers (--workers)",
                ),
            };
            let less = match options.cache_memory {
                size if shares.slab_bytes > memory_bytes / 2 => {
                    format!(", lower --cache-memory ({size})")
                }
                _ => String::new(),
            };
            return Err(format!(
                "{} is {} MiB here, and {them} {} MiB; raise it{less}{fewer}",
                options.memory_max,
                memory_bytes / MIB,
                Shares::enough_bytes(options, workers, usable, memory_bytes).div_ceil(MIB),
            ));
        }
        let shares = shares.with_nfs();
        let left_bytes = memory_bytes.saturating_sub(shares.total_bytes());
        let more = left_bytes / u64::from(workers) / shares.each_bytes();
        let affordable = u64::from(CONNECTIONS_MIN) + more;
        let connections_max = options.connections_max.min(shares.sendable());
        let connections_per_worker = affordable.min(connections_max) as u32; // at most 16,384
        let shares = Shares {
            connections_per_worker,
            ..shares
        };
        let fixed_bytes = shares.fixed_bytes() + shares.device_bytes();
        let unused_bytes = memory_bytes.saturating_sub(fixed_bytes);
        let most_bytes = options.prefetch_memory.resolve(usable.bytes);
        Ok(Shares {
            prefetch_bytes: most_bytes.min(unused_bytes),
            ..shares
        })
    }

    /// The shares with as few connections as allowed.
    fn least(options: &ServeOptions, workers: u16, usable: Usable, memory_bytes: u64) -> Shares {
        let cache_bytes = match memory_bytes {
            0..MEMORY_LITTLE_BYTES => memory_bytes / 16,
            _ => memory_bytes / 8,
        };
        let is_logged = options.access_log != LogTarget::Off;
        let records_bytes = core::RECORDS_BYTES_MAX * u64::from(workers);
        let devices = memory_bytes / DEVICE_EACH_BYTES;
        let devices =
            usize::try_from(devices).map_or(DEVICES_MAX, |many| many.clamp(2, DEVICES_MAX));
        Shares {
            memory_bytes,
            page_cache_bytes: page_cache_bytes(usable.bytes, memory_bytes),
            workers,
            connections_per_worker: CONNECTIONS_MIN,
            nfs_writes: options.nfs_options.is_writable(),
            nfs_connections: match options.nfs_options.nfs.is_empty() {
                true => 0,
                false => NFS_CONNECTIONS_MIN,
            },
            object_cache_bytes: options.object_cache.resolve(usable.bytes).min(cache_bytes),
            prefetch_bytes: 0,
            slab_bytes: match (
                options.has_origin() || options.iscsi.is_on(),
                options.cluster.is_on(),
            ) {
                (true, _) => slab_bytes(options.cache_memory, usable.bytes, memory_bytes, 2),
                // Copies of what other nodes have in memory: the page cache has the own files.
                (_, true) => slab_bytes(options.cache_memory, usable.bytes, memory_bytes, 8),
                (false, false) => 0,
            },
            maps_bytes: match options.iscsi.is_on() {
                true => unit::MAPS_BYTES_MAX.min(memory_bytes / 64),
                false => 0,
            },
            tier_index_bytes: match options.tier_dir() {
                Some(_) => tier_index_bytes(options.cache_size, memory_bytes),
                None => 0,
            },
            listing_bytes: match options.listing {
                true => core::LISTING_BYTES_MAX.min(cache_bytes),
                false => 0,
            },
            ranges_bytes: RANGES_BYTES_MAX.min(memory_bytes / 128),
            records_bytes: match is_logged {
                true => records_bytes.min(memory_bytes / 32),
                false => 0,
            },
            parted_bytes: if options.compare.cancel {
                0
            } else {
                UNCANCELLED_FILES_MAX as u64 * FILE_BYTES
            },
            queries_bytes: QUERIES_BYTES_MAX.min(memory_bytes / 32),
            log_queue_bytes: LOG_QUEUE_BYTES_MAX.min(memory_bytes / 32),
            logs: 1 + u64::from(is_logged),
            devices,
            nodes: match options.cluster.is_on() {
                true => options.cluster.others_max(devices) as u64,
                false => 0,
            },
            send_bytes: match options.send_memory {
                SendMemory::Kernel => None,
                SendMemory::Divided(size) => Some(size.resolve(usable.bytes)),
            },
        }
    }

    /// With as many connections of NFS as an eighth of the memory has room for.
    fn with_nfs(self) -> Shares {
        if self.nfs_connections == 0 {
            return self;
        }
        let part_bytes = (self.memory_bytes / 8).min(self.memory_bytes - self.total_bytes());
        let many = part_bytes / u64::from(self.workers) / self.nfs_each_bytes();
        let (least, most) = (
            u64::from(NFS_CONNECTIONS_MIN),
            u64::from(NFS_CONNECTIONS_MAX),
        );
        Shares {
            nfs_connections: many.clamp(least, most) as u32,
            ..self
        }
    }

    fn connections(&self) -> u64 {
        u64::from(self.workers) * u64::from(self.connections_per_worker)
    }

    /// Connections of a worker for which the memory for sending has room.
    fn sendable(&self) -> u64 {
        let each =
            |pool_bytes| pool_bytes / ackpace_core::send::CAP_BYTES_MIN / u64::from(self.workers);
        self.send_bytes
            .map_or(u64::MAX, |pool_bytes| each(pool_bytes).max(1))
    }

    /// The account of the memory at the start.
    pub fn ledger(&self) -> Ledger {
        Ledger::new(self.memory_bytes, self.fixed_bytes(), self.prefetch_bytes)
    }

    /// Files that a disk remembers: by its part of the memory.
    fn remembered(&self) -> u64 {
        let many = self.memory_bytes / REMEMBERED_OF_BYTES / self.devices as u64;
        let (least, most) = (core::OBJECTS_REMEMBERED_MIN, core::OBJECTS_REMEMBERED_MAX);
        many.clamp(least as u64, most as u64)
    }

    /// The memory by which a disk's table of files is sized.
    pub fn remembered_by_bytes(&self) -> u64 {
        self.remembered() * core::REMEMBERED_EACH_BYTES
    }

    /// The key of the option that bounds the connections of a worker.
    pub fn places_bound(&self, connections_max: u64) -> &'static str {
        let most = u64::from(self.connections_per_worker);
        match most {
            most if most >= connections_max => "connections_max",
            most if self.send_bytes.is_some() && most == self.sendable() => "send_memory",
            _ => "memory_max",
        }
    }

    /// The cost of little memory, or of memory for fewer connections than asked for, in a line for the operator; `given` tells who
    /// set what.
    pub fn cost(&self, connections_max: u64, given: &Layer) -> Option<String> {
        let most = self.connections_per_worker;
        // Whoever wants fewer connections says so; by the memory for sending, fewer come as a surprise.
        let by_sending = self.places_bound(connections_max) == "send_memory";
        if let Some(bytes) = self.send_bytes.filter(|_| by_sending) {
            return Some(format!(
                "little send memory: {} KiB ({}) are enough for {most} connections of a worker, more wait",
                bytes / KIB,
                config::named(given, "send_memory"),
            ));
        }
        let is_less = u64::from(most) < connections_max;
        let is_told =
            u64::from(most) < CONNECTIONS_COMMON || config::is_given(given, "connections_max");
        (is_less && is_told).then(|| {
            let (mib, set_by) = (self.memory_bytes / MIB, config::named(given, "memory_max"));
            format!(
                "little memory: {mib} MiB ({set_by}) are enough for {most} connections of a worker, not for {connections_max}, more \
                 wait, and reads from a slow disk may be short; raise memory_max or lower connections_max"
            )
        })
    }

    /// The bytes that the sockets of each worker are to hold unsent. It is the kernel's memory, not ours; but where
    /// that is counted (cgroup v2), little memory for us is little for it, too. `tcp_bytes` is the kernel's limit for
    /// the sockets of all programs: half of that is left to others.
    pub fn send_queue_bytes(&self, tcp_bytes: u64) -> u64 {
        let fair_bytes =
            (self.memory_bytes / 4).min(tcp_bytes / 2) / u64::from(self.workers.max(1));
        fair_bytes.min(core::STEADY_QUEUE_BYTES)
    }
}

/// Memory, of that for all, for which one file is remembered.
const REMEMBERED_OF_BYTES: u64 = 32 * KIB;

/// The least memory for reading ahead, with the lists of slots.
const AHEAD_COST_BYTES: u64 = core::AHEAD_BYTES_MIN / core::SLOT_BYTES * SLOT_COST_BYTES;

fn memory_bytes(memory_max: Size, usable: Usable) -> u64 {
    match memory_max {
        Size::Auto if usable.by_cgroup => Size::Percent(CGROUP_PERCENT).resolve(usable.bytes),
        Size::Auto => Size::Percent(MACHINE_PERCENT).resolve(usable.bytes),
        given => given.resolve(usable.bytes),
    }
}

/// Whole segments: this part of the memory, or what is asked for.
fn slab_bytes(cache_memory: Size, usable_bytes: u64, memory_bytes: u64, part: u64) -> u64 {
    let most_bytes = memory_bytes / part;
    let asked_bytes = match cache_memory {
        Size::Auto => most_bytes,
        given => given.resolve(usable_bytes).min(memory_bytes),
    };
    asked_bytes / SEGMENT_BYTES * SEGMENT_BYTES
}

/// A 32nd of the memory, or what the smallest files need, of which so many have room on the disk.
fn tier_index_bytes(cache_size: Size, memory_bytes: u64) -> u64 {
    let most_bytes = memory_bytes / 32;
    match cache_size {
        Size::Bytes(bytes) => {
            let files = bytes / tier::FILE_BYTES_MIN + 1;
            most_bytes.min(files.saturating_mul(FILE_MEMORY_BYTES))
        }
        Size::Percent(_) | Size::Auto => most_bytes,
    }
}

/// What the page cache is taken to hold: what our own memory leaves, which is seldom all in use.
fn page_cache_bytes(usable_bytes: u64, memory_bytes: u64) -> u64 {
    let rest_bytes = usable_bytes.saturating_sub(memory_bytes);
    rest_bytes.max(usable_bytes / 4)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::{Given, Origin};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: ServeOptions,
    }

    fn options(args: &[&str]) -> ServeOptions {
        Line::parse_from([&["ackpace"], args].concat()).options
    }

    /// As if `connections_max` had been given on the command line.
    fn asked_for(connections_max: &str) -> Layer {
        let given = Given {
            values: vec![connections_max.into()],
            origin: Origin::CommandLine,
        };
        Layer::from([("connections_max".to_owned(), given)])
    }

    fn machine(bytes: u64) -> Usable {
        Usable {
            bytes,
            by_cgroup: false,
        }
    }

    #[test]
    fn connections_shrink_to_what_memory_allows_and_the_sum_stays_below() {
        let roomy = Shares::divide(&options(&[]), 2, machine(64 << 30)).expect("plenty");
        assert_eq!(roomy.connections_per_worker, 16_384);
        let small = Shares::divide(&options(&[]), 2, machine(1 << 30)).expect("256 MiB");
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
    fn a_cgroup_s_limit_is_mostly_ours_and_a_machine_s_memory_is_not() {
        let of = |args: &[&str], by_cgroup| {
            let usable = Usable {
                bytes: 1 << 30,
                by_cgroup,
            };
            Shares::divide(&options(args), 2, usable)
                .expect("enough")
                .memory_bytes
        };
        assert_eq!(of(&[], true), (1 << 30) / 4 * 3);
        assert_eq!(of(&[], false), (1 << 30) / 4);
        assert_eq!(of(&["--memory-max", "50%"], true), (1 << 30) / 2);
    }

    #[test]
    fn it_starts_in_little_memory_and_says_what_that_costs() {
        for (mib, least) in [(38, 45), (48, 100), (64, 200), (115, 350)] {
            let max = format!("{mib}MiB");
            let options = options(&["--memory-max", &max, "--access-log", "/dev/null"]);
            let shares = Shares::divide(&options, 2, machine(64 << 30)).expect("enough");
            assert!(shares.connections_per_worker >= least, "{shares:?}");
            assert!(shares.total_bytes() <= shares.memory_bytes);
            assert!(
                shares.prefetch_bytes > shares.memory_bytes * 2 / 5,
                "{shares:?}"
            );
            let cost = shares.cost(options.connections_max, &Layer::new());
            assert!(cost.is_some_and(|cost| cost.contains(&format!(" {mib} MiB"))));
            assert_eq!(shares.places_bound(options.connections_max), "memory_max");
        }
        let roomy = Shares::divide(&options(&[]), 2, machine(64 << 30)).expect("plenty");
        assert_eq!(roomy.cost(16_384, &Layer::new()), None);
    }

    #[test]
    fn nfs_has_its_part_of_the_memory_and_none_without_it() {
        let of = |args: &[&str], gib: u64| {
            let shares = Shares::divide(&options(args), 2, machine(gib << 30));
            shares.expect("enough")
        };
        let nfs = ["--nfs", "127.0.0.1:2049"];
        let (without, roomy, small) = (of(&[], 64), of(&nfs, 64), of(&nfs, 1));
        assert_eq!(without.nfs_connections, 0);
        assert_eq!(roomy.nfs_connections, NFS_CONNECTIONS_MAX);
        assert!((NFS_CONNECTIONS_MIN..100).contains(&small.nfs_connections));
        assert!(small.total_bytes() <= small.memory_bytes);
        assert!(without.descriptors() < roomy.descriptors());
    }

    #[test]
    fn memory_for_fewer_connections_than_asked_for_is_told_of() {
        let options = options(&["--memory-max", "200MiB", "--connections-max", "2000"]);
        let shares = Shares::divide(&options, 2, machine(64 << 30)).expect("enough");
        let most = shares.connections_per_worker;
        assert!(
            (1_024..2_000).contains(&most),
            "not little, and not enough: {most}"
        );
        let cost = |most: u64, given: &Layer| shares.cost(most, given).unwrap_or_default();
        let told = cost(2_000, &asked_for("2000"));
        let many = format!("{most} connections of a worker, not for 2000,");
        assert!(told.contains(&many), "{told}");
        assert_eq!(cost(2_000, &Layer::new()), "", "nobody asked for so many");
        assert_eq!(cost(u64::from(most), &asked_for("some")), "");
    }

    #[test]
    fn a_pool_with_room_for_fewer_connections_than_allowed_is_told_of() {
        let shares = |send_memory| {
            let args = ["--send-memory", send_memory];
            Shares::divide(&options(&args), 1, machine(64 << 30)).expect("plenty")
        };
        let cost =
            |send_memory, connections_max| shares(send_memory).cost(connections_max, &Layer::new());
        for (send_memory, connections) in [("1MiB", 362), ("8MiB", 2_896), ("44MiB", 15_931)] {
            let cost = cost(send_memory, 16_384).expect("fewer than 16,384");
            let many = format!("enough for {connections} connections");
            assert!(cost.contains(&many), "{cost}");
        }
        assert_eq!(cost("48MiB", 16_384), None);
        assert_eq!(cost("8MiB", 2_000), None, "no more were asked for");
        let bound = |send_memory, most| shares(send_memory).places_bound(most);
        assert_eq!(bound("8MiB", 16_384), "send_memory");
        assert_eq!(bound("8MiB", 2_000), "connections_max");
        assert_eq!(bound("kernel", 16_384), "connections_max");
    }

    #[test]
    fn what_nobody_uses_is_lent_and_no_more() {
        let options = options(&["--memory-max", "128MiB"]);
        let shares = Shares::divide(&options, 2, machine(64 << 30)).expect("enough");
        let ledger = shares.ledger();
        ledger.take(shares.device_bytes());
        let connections = u64::from(shares.workers) * u64::from(shares.connections_per_worker);
        let elastic_bytes = connections * shares.connection_bytes() + shares.object_cache_bytes;
        assert!(ledger.claim(elastic_bytes), "all that may come finds room");
        assert!(ledger.claim_ahead(AHEAD_COST_BYTES), "beside the least");
        assert!(
            !ledger.claim(shares.memory_bytes - shares.total_bytes() + shares.memory_bytes / 2)
        );
    }

    #[test]
    fn sockets_hold_a_quarter_of_the_memory_at_most() {
        let roomy = Shares::divide(&options(&[]), 2, machine(64 << 30)).expect("plenty");
        assert_eq!(roomy.send_queue_bytes(u64::MAX), core::STEADY_QUEUE_BYTES);
        assert_eq!(roomy.send_queue_bytes(64 * MIB), 16 * MIB);
        let small = Shares::divide(&options(&["--memory-max", "128MiB"]), 2, machine(64 << 30));
        assert_eq!(small.expect("enough").send_queue_bytes(u64::MAX), 16 * MIB);
    }

    #[test]
    fn too_little_memory_is_refused_with_what_would_do() {
        let divide = |mib: &str, workers| {
            let options = options(&["--memory-max", &format!("{mib}MiB")]);
            Shares::divide(&options, workers, machine(64 << 30))
        };
        for (workers, who, cure) in [
            (
                2,
                "2 workers with 16 connections each need",
                " or start fewer workers (--workers)",
            ),
            (1, "1 worker with 16 connections needs", ""),
        ] {
            let refused = divide("16", workers).expect_err("too little");
            let begin = format!("16MiB is 16 MiB here, and {who} ");
            let rest = refused.strip_prefix(&begin).expect("what is needed");
            let (mib, end) = rest.split_once(' ').expect("a number");
            assert_eq!(end, format!("MiB; raise it{cure}"));
            assert!(divide(mib, workers).is_ok(), "{mib}");
        }
    }

    #[test]
    fn what_would_do_for_a_unit_and_nfs_is_told_at_once() {
        let divide = |mib: &str| {
            let words = [
                "--memory-max",
                &format!("{mib}MiB"),
                "--nfs",
                "127.0.0.1:0",
                "--iscsi",
                "iscsi://a/iqn.2026-01.org.example:disk/1",
            ];
            Shares::divide(&options(&words), 2, machine(64 << 30))
        };
        let refused = divide("64").expect_err("too little");
        let (_, told) = refused.split_once("each need ").expect("what is needed");
        let (mib, _) = told.split_once(' ').expect("a number");
        assert!(divide(mib).is_ok(), "{refused}");
    }

    #[test]
    fn descriptors_that_are_too_few_are_told_with_what_they_cost() {
        // Who asks for a number wants that many, also if it is the default.
        let (default, asked) = (Layer::new(), asked_for("16384"));
        let options = options(&[]);
        let shares = Shares::divide(&options, 2, machine(64 << 30)).expect("plenty");
        let wanted = shares.descriptors();
        let a_thousand = wanted - 3 * shares.connections() + 3 * 2 * CONNECTIONS_COMMON;
        for (given, allowed, is_lost) in [
            (&default, None, false),
            (&default, Some(wanted), false),
            (&default, Some(a_thousand), false),
            (&default, Some(a_thousand - 3), true),
            (&asked, Some(a_thousand), true),
            (&asked, Some(wanted), false),
        ] {
            let lost = shares.lost_descriptors(given, allowed);
            assert_eq!(lost.is_some(), is_lost, "{allowed:?}");
            let told = shares.tell_descriptors(given, allowed);
            let begin = if is_lost { "lost: " } else { "ok: " };
            assert!(told.starts_with(begin), "{told}");
        }
        let lost = shares.tell_descriptors(&default, Some(40));
        for part in [
            "descriptors: 40 are allowed",
            "With a few downloads",
            &format!("LimitNOFILE={wanted}"),
        ] {
            assert!(lost.contains(part), "{lost}");
        }
    }

    #[test]
    fn a_start_without_enough_descriptors_is_refused_with_the_number_and_the_cure() {
        let options = options(&["--listen", "8080", "--listen", "8081"]);
        let shares = Shares::divide(&options, 2, machine(64 << 30)).expect("plenty");
        let (least, wanted) = (shares.descriptors_least(&options, 0), shares.descriptors());
        assert!(
            least < 64,
            "{least}: a start with 64 is a promise of the tests"
        );
        assert_eq!(shares.check_descriptors(&options, Some(least), 0), Ok(()));
        assert_eq!(shares.check_descriptors(&options, None, 9), Ok(()));
        let inherits = shares.check_descriptors(&options, Some(least), 1);
        assert!(inherits.is_err(), "one is open already");
        let refused = shares.check_descriptors(&options, Some(least - 1), 0);
        let refused = refused.expect_err("too few");
        let begin = format!(
            "descriptors: {} are allowed (ulimit -Hn), and a start with workers = 2 needs {least};",
            least - 1
        );
        assert!(refused.starts_with(&begin), "{refused}");
        let cure = format!(
            "Set LimitNOFILE={wanted} in the unit (or ulimit -n {wanted} before the start)"
        );
        assert!(refused.ends_with(&cure), "{refused}");
    }
}
