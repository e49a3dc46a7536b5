//! The catalog of metrics: what is measured, where it is counted, and what to do when it changes.
//!
//! The unit of a value is the last word of its name, or `bytes_per_second`.

mod cluster;
mod lun;
mod nfs;

use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::congestion::Signal;
use ackpace_core::why::{TopUp, Wait, Why};
use ackpace_core::worker::{Cut, PHASES};

use super::metric::{Metric, MetricType, SampleSource, Value, counter, gauge};
use super::{Board, WorkerChannel};
use crate::count::Count;
use crate::divider::Dividing;
use crate::gateway::Answered;
use crate::tally::SendPath;

/// All metrics, in the order of the page.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
    let metrics = METRICS.iter().chain(&nfs::METRICS);
    metrics.chain(&lun::METRICS).chain(&cluster::METRICS)
}

/// `requests_total` and the like, but those of a cluster.
static METRICS: [Metric; 67] = [
    gauge(
        "start_time_seconds",
        "When the server started, since 1970.",
        SampleSource::One(|board| Value::Whole(board.started_unix_s)),
    ),
    gauge(
        "draining_servers",
        "1 while the server is stopping: no new connections.",
        SampleSource::One(|board| Value::Whole(board.shared.stopping.load(Relaxed).into())),
    ),
    counter(
        "wakeups",
        "Times a worker came back from waiting for events: the price of each GB. Over 160 per GB with slow clients: look at topups.",
        SampleSource::Worker(|channel| whole(&channel.tally.wakeups)),
    ),
    counter(
        "cpu_seconds",
        "CPU time of a worker's thread, from /proc. Near 1 a second: this worker is full.",
        SampleSource::Worker(|channel| {
            Value::Us(thread(channel).map_or(0, |thread| thread.cpu_us))
        }),
    ),
    counter(
        "thread_switches",
        "Context switches of a worker's thread, from /proc: voluntary ones are its sleeps, others mean that it shares its core.",
        SampleSource::WorkerBy(
            "kind",
            || vec!["voluntary", "involuntary"],
            |channel, at| Value::Whole(thread(channel).map_or(0, |thread| thread.switches[at])),
        ),
    ),
    Metric {
        name: "turn_seconds",
        kind: MetricType::Histogram,
        help: "How long the workers' turns take, from the events to the last order. Over a millisecond: new requests wait that long.",
        source: SampleSource::Turns,
    },
    counter(
        "cut_turns",
        "Turns that ended at a bound before the work did, so that new events had their look.",
        SampleSource::By(
            "bound",
            || Cut::ALL.map(Cut::name).to_vec(),
            |channel, at| whole(&channel.tally.turns_cut[at]),
        ),
    ),
    gauge(
        "open_connections",
        "Connections that are open now. When every worker has connections_max, idle ones are closed, and if there are none, accepting pauses.",
        SampleSource::Worker(|channel| whole(&channel.tally.connections)),
    ),
    gauge(
        "connections",
        "Connections by what they are doing, counted when they are asked for.",
        SampleSource::WorkerBy(
            "phase",
            || PHASES.to_vec(),
            |channel, at| whole(&channel.tally.decided.phases[at]),
        ),
    ),
    counter(
        "accepted_connections",
        "Connections that were accepted. Uneven over workers: few clients, or one address.",
        SampleSource::Worker(|channel| whole(&channel.tally.accepted)),
    ),
    counter(
        "moved_connections",
        "Open connections that a worker gave to another, since it carried more than its share.",
        SampleSource::Worker(|channel| whole(&channel.tally.moved)),
    ),
    counter(
        "accept_errors",
        "Accepting failed for want of descriptors or memory: raise LimitNOFILE.",
        SampleSource::Worker(|channel| whole(&channel.tally.accept_errors)),
    ),
    counter(
        "closed_connections",
        "Connections that ended, by the reason that stands in the log, too.",
        SampleSource::By(
            "why",
            || Why::ALL.into_iter().map(Why::name).collect(),
            |channel, at| whole(&channel.tally.decided.closed[at]),
        ),
    ),
    counter(
        "requests",
        "Requests that were answered, by the class of their status. 5xx: look at the log; a method or a version of HTTP that the server lacks (501, 505) counts there, too.",
        SampleSource::By(
            "status",
            || vec!["1xx", "2xx", "3xx", "4xx", "5xx"],
            |channel, at| whole(&channel.tally.answers[at + 1]),
        ),
    ),
    counter(
        "sent_bytes",
        "Bytes given to sockets, heads included, by the path they take: from the page cache (sendfile), from memory read past it (direct), from small files in the response cache, made for the answer.",
        SampleSource::WorkerBy(
            "send_path",
            || SendPath::ALL.into_iter().map(SendPath::name).collect(),
            |channel, at| whole(&channel.tally.sent_bytes[at]),
        ),
    ),
    counter(
        "full_sends",
        "Sends that filled the socket: it took nothing (EAGAIN) or a part.",
        SampleSource::By(
            "taken",
            || vec!["none", "part"],
            |channel, at| whole([&channel.tally.sends_refused, &channel.tally.sends_cut][at]),
        ),
    ),
    counter(
        "response_cache_hits",
        "Requests that were answered from the small files in the response cache.",
        SampleSource::Worker(|channel| whole(&channel.tally.response_cache_hits)),
    ),
    counter(
        "response_cache_misses",
        "Requests that looked there in vain; big files and each file's first request in a second are among them.",
        SampleSource::Worker(|channel| whole(&channel.tally.response_cache_misses)),
    ),
    gauge(
        "response_cache_files",
        "Small files in the response cache.",
        SampleSource::Worker(|channel| whole(&channel.tally.response_cache_files)),
    ),
    gauge(
        "response_cache_bytes",
        "Memory of the small files in the response cache. At object_cache with many misses: raise it.",
        SampleSource::Worker(|channel| whole(&channel.tally.response_cache_bytes)),
    ),
    gauge(
        "waiting_responses",
        "Responses under way by what their next bytes wait for, counted when they are asked for: disk, margin (healthy), socket, window (the client does not read), turn.",
        SampleSource::By("why", waits, |channel, at| {
            whole(&channel.tally.decided.waiting[at])
        }),
    ),
    gauge(
        "waiting_bytes",
        "Bytes of these responses that the kernel does not have yet.",
        SampleSource::By("why", waits, |channel, at| {
            whole(&channel.tally.decided.waiting_bytes[at])
        }),
    ),
    counter(
        "waits",
        "Waits of responses that ended, by what was waited for.",
        SampleSource::By("why", timed_waits, |channel, at| {
            whole(&channel.tally.decided.waits[at])
        }),
    ),
    counter(
        "waited_seconds",
        "Time of these waits, over all responses; for the disk only with nothing in the socket. Much of that: the disk is what is slow.",
        SampleSource::By("why", timed_waits, |channel, at| {
            Value::Us(channel.tally.decided.waited_us[at].get())
        }),
    ),
    counter(
        "topups",
        "Sockets that were filled again: the socket became writable since little was left in it (`writable`), it would have become so before the next round (`near`), or it had counted as full and was empty (`empty`). Few near ones among many: clients are too different to share wake-ups.",
        SampleSource::By(
            "why",
            // A first filling is none of them.
            || TopUp::ALL[1..].iter().map(|why| why.name()).collect(),
            |channel, at| whole(&channel.tally.decided.top_ups[at + 1]),
        ),
    ),
    counter(
        "congestion_signals",
        "Cuts of congestion windows, seen on connections that read from a disk: marks (ecn), losses (dup_acks), silence (timeout).",
        SampleSource::By(
            "signal",
            || Signal::ALL.into_iter().map(Signal::name).collect(),
            |channel, at| whole(&channel.tally.decided.signals[at]),
        ),
    ),
    counter(
        "topup_rounds",
        "Looks at the margins of all connections of a worker.",
        SampleSource::Worker(|channel| whole(&channel.tally.decided.rounds)),
    ),
    counter(
        "missed_sends",
        "Sends from the page cache whose bytes were gone, or still being read by somebody else: they were read first. A file that is just being written counts here, too, while its version is not settled (a millisecond). Grows: memory is short, or others read the same files.",
        SampleSource::Worker(|channel| whole(&channel.tally.decided.missed)),
    ),
    counter(
        "mended_streams",
        "Responses that waited for a disk while nothing was read for them, and were helped on. Not 0: a fault of the server, please report it.",
        SampleSource::Worker(|channel| whole(&channel.tally.decided.mended)),
    ),
    counter(
        "paced_responses",
        "Responses on a used connection whose first window was spread over a round trip.",
        SampleSource::Worker(|channel| whole(&channel.tally.decided.paced)),
    ),
    gauge(
        "target_seconds",
        "T: the time for which sockets are filled; 0 with --compare send=eager. At 0.1: many fast clients share the budget.",
        SampleSource::Worker(|channel| Value::Us(channel.tally.target_us.get())),
    ),
    gauge(
        "send_pool_bytes",
        "Memory that is divided among the connections that send (--send-memory); 0: the kernel divides it.",
        SampleSource::One(|board| divided(board, Dividing::pool_bytes)),
    ),
    gauge(
        "send_shares_bytes",
        "The sum of the shares. Far below the pool: clients that take nothing still hold the rest.",
        SampleSource::One(|board| divided(board, |dividing| dividing.tally.shares_bytes.get())),
    ),
    gauge(
        "send_held_bytes",
        "What sockets with a share held, unsent and in flight, when the divider last looked.",
        SampleSource::One(|board| divided(board, |dividing| dividing.tally.held_bytes.get())),
    ),
    gauge(
        "send_sharing_connections",
        "Connections with a share. Pool / this is near 3 KB: too many for the pool.",
        SampleSource::One(|board| divided(board, |dividing| dividing.tally.connections.get())),
    ),
    counter(
        "send_divisions",
        "Divisions of send memory: one a second, and up to ten while connections join.",
        SampleSource::One(|board| divided(board, |dividing| dividing.tally.divisions.get())),
    ),
    gauge(
        "rate_bytes_per_second",
        "What arrived in the last seconds at all clients who are sent something now, per second, counted when they are asked for.",
        SampleSource::Worker(|channel| whole(&channel.tally.decided.rates_bytes_per_s)),
    ),
    gauge(
        "believed_rate_bytes_per_second",
        "What these are believed to take, as far as it is known.",
        SampleSource::Worker(|channel| whole(&channel.tally.decided.believed_bytes_per_s)),
    ),
    counter(
        "disk_reads",
        "Reads of cold windows that came to an end, by device.",
        SampleSource::Disk(|tally| Value::Whole(tally.reads.load(Relaxed))),
    ),
    counter(
        "disk_failed_reads",
        "Those that failed: look at the log and at dmesg.",
        SampleSource::Disk(|tally| Value::Whole(tally.failed.load(Relaxed))),
    ),
    counter(
        "disk_read_bytes",
        "Bytes of those that did not fail.",
        SampleSource::Disk(|tally| Value::Whole(tally.bytes.load(Relaxed))),
    ),
    counter(
        "disk_service_seconds",
        "Time that reads took in the device; over disk_reads, the mean of one.",
        SampleSource::Disk(|tally| Value::Us(tally.service_us.load(Relaxed))),
    ),
    counter(
        "disk_direct_reads",
        "Reads that went past the page cache.",
        SampleSource::Disk(|tally| Value::Whole(tally.direct.load(Relaxed))),
    ),
    counter(
        "disk_delayed_wants",
        "Reads that were due and that signs of congestion put off (EDRC): others went first.",
        SampleSource::Disk(|tally| Value::Whole(tally.delayed.load(Relaxed))),
    ),
    counter(
        "disk_delayed_bytes",
        "What would have been read by them.",
        SampleSource::Disk(|tally| Value::Whole(tally.delayed_bytes.load(Relaxed))),
    ),
    gauge(
        "disk_streams",
        "Responses that read from the device.",
        SampleSource::Disk(|tally| Value::Whole(tally.streams.load(Relaxed))),
    ),
    gauge(
        "disk_rates_bytes_per_second",
        "What they take together. At disk_media or above it, the device can't keep up.",
        SampleSource::Disk(|tally| Value::Whole(tally.rates_bytes_per_s.load(Relaxed))),
    ),
    gauge(
        "disk_target_seconds",
        "The target: how long a client's bytes are to last after a read.",
        SampleSource::Disk(|tally| Value::Us(tally.target_us.load(Relaxed))),
    ),
    gauge(
        "disk_positioning_seconds",
        "Time between two reads in which nothing is read, at the present load.",
        SampleSource::Disk(|tally| Value::Us(tally.positioning_us.load(Relaxed))),
    ),
    gauge(
        "disk_media_bytes_per_second",
        "What the device gives while it reads.",
        SampleSource::Disk(|tally| Value::Whole(tally.media_bytes_per_s.load(Relaxed))),
    ),
    gauge(
        "disk_depth_reads",
        "The depth: reads that the device gets at once.",
        SampleSource::Disk(|tally| Value::Whole(tally.reads_max.load(Relaxed))),
    ),
    gauge(
        "disk_in_flight_reads",
        "Reads that it has now.",
        SampleSource::Disk(|tally| Value::Whole(tally.in_flight.load(Relaxed))),
    ),
    gauge(
        "prefetch_used_bytes",
        "Memory in which bytes wait for their clients.",
        SampleSource::Disk(|tally| Value::Whole(tally.memory_used_bytes.load(Relaxed))),
    ),
    gauge(
        "prefetch_memory_bytes",
        "What of it there is. If all is used, clients wait though the device could read: raise memory_max.",
        SampleSource::Disk(|tally| Value::Whole(tally.memory_bytes.load(Relaxed))),
    ),
    counter(
        "prefetch_waits",
        "Times that the next read waited for memory.",
        SampleSource::Disk(|tally| Value::Whole(tally.memory_waits.load(Relaxed))),
    ),
    counter(
        "log_lines",
        "Lines of the two logs that were written.",
        SampleSource::Log(|counts| Value::Whole(counts.written)),
    ),
    counter(
        "log_lost_lines",
        "Lines that were lost since the log is written too slowly, or a write failed.",
        SampleSource::Log(|counts| Value::Whole(counts.lost)),
    ),
    counter(
        "gateway_answers",
        "Requests to a gateway by how they were answered. Many missed ones: clients want different things, or origins say no-store; failed: look at the log.",
        SampleSource::Gateway("how", &Answered::NAMES, |gateway, at| {
            Value::Whole(gateway.tally.answered(at))
        }),
    ),
    gauge(
        "slab_bytes",
        "Memory for payload of origins or of an iSCSI unit: what it may be, what it takes, and the payload that it keeps.",
        SampleSource::Slab("of", &["size", "allocated", "kept"], |slab, at| {
            let counts = slab.counts();
            let all = [slab.len_bytes(), counts.allocated_bytes, counts.kept_bytes];
            Value::Whole(all[at])
        }),
    ),
    gauge(
        "slab_segments",
        "Segments of 2 MiB of that memory: all, in use, and pinned, since packets refer to them. Over half of them pinned: payload is copied; raise cache_memory.",
        SampleSource::Slab("of", &["all", "used", "pinned"], |slab, at| {
            let counts = slab.counts();
            let all = [
                counts.segments,
                counts.segments_used,
                counts.segments_pinned,
            ];
            Value::Whole(all[at].into())
        }),
    ),
    counter(
        "origin_requests",
        "Requests to an origin.",
        SampleSource::Origin(|origin| Value::Whole(origin.requests.load(Relaxed))),
    ),
    counter(
        "origin_bytes",
        "Bytes from an origin, heads included. Over sent bytes: what caching saves.",
        SampleSource::Origin(|origin| Value::Whole(origin.fetched_bytes.load(Relaxed))),
    ),
    counter(
        "origin_faults",
        "Connections to an origin that failed, or whose responses were not as they should be. It is left alone for a while after each: look at the log.",
        SampleSource::Origin(|origin| Value::Whole(origin.faults.load(Relaxed))),
    ),
    gauge(
        "origin_connections",
        "Connections to an origin now.",
        SampleSource::Origin(|origin| Value::Whole(origin.links.load(Relaxed))),
    ),
    gauge(
        "tier_bytes",
        "Payload of origins on disk (cache_dir).",
        SampleSource::Gateway("of", &["kept"], |gateway, _| {
            Value::Whole(gateway.tier.get().map_or(0, |tier| tier.kept().1))
        }),
    ),
    counter(
        "tier_reads",
        "Reads from cache_dir, and how many of its files were damaged and are fetched again. Damaged ones without a power failure: look at the disk.",
        SampleSource::Gateway("how", &["read", "damaged"], |gateway, at| {
            let tally = gateway.tier.get().map(|tier| tier.tally());
            let all = tally.map(|tally| [&tally.reads, &tally.damaged]);
            Value::Whole(all.map_or(0, |all| all[at].load(Relaxed)))
        }),
    ),
    counter(
        "tier_writes",
        "Windows that went to cache_dir, that were left out since its disk is slower than its origin, that made room for others, and that could not be written. Failed: look at the log.",
        SampleSource::Gateway(
            "how",
            &["written", "skipped", "evicted", "failed"],
            |gateway, at| {
                let all = gateway.tier.get().map(|tier| tier.tally());
                let all = all.map(|of| [&of.writes, &of.skipped, &of.evicted, &of.errors]);
                Value::Whole(all.map_or(0, |all| all[at].load(Relaxed)))
            },
        ),
    ),
];

/// The kernel's counters of a worker's thread.
struct ThreadCounters {
    cpu_us: u64,
    /// Context switches: voluntary, involuntary.
    switches: [u64; 2],
}

/// Reads it (proc(5)); `None` for a thread that does not run.
fn thread(channel: &WorkerChannel) -> Option<ThreadCounters> {
    let task = format!("/proc/self/task/{}", channel.tally.thread.get());
    let schedstat = std::fs::read_to_string(format!("{task}/schedstat")).ok()?;
    let cpu_ns: u64 = schedstat.split(' ').next()?.parse().ok()?;
    let status = std::fs::read_to_string(format!("{task}/status")).ok()?;
    let switches = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    Some(ThreadCounters {
        cpu_us: cpu_ns / 1000,
        switches: [
            switches("voluntary_ctxt_switches:")?,
            switches("nonvoluntary_ctxt_switches:")?,
        ],
    })
}

/// A number of the divider; 0 where send memory is not divided.
fn divided(board: &Board, value: fn(&Dividing) -> u64) -> Value {
    Value::Whole(board.shared.dividing.as_deref().map_or(0, value))
}

fn whole(count: &Count) -> Value {
    Value::Whole(count.get())
}

fn waits() -> Vec<&'static str> {
    Wait::ALL.into_iter().map(Wait::name).collect()
}

/// The names of the waits that are timed: all but that for a turn, which is not counted as a wait that ends.
fn timed_waits() -> Vec<&'static str> {
    waits().into_iter().take(Wait::Turn as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_plain_and_stands_once() {
        let mut names: Vec<&str> = metrics().map(|metric| metric.name).collect();
        names.sort_unstable();
        let before = names.len();
        names.dedup();
        assert_eq!(names.len(), before);
        for Metric { name, help, .. } in metrics() {
            let is_plain = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(name.chars().all(is_plain), "{name}");
            assert!(
                help.ends_with('.') && !help.contains(['\n', '\\', '"', '|']),
                "{help}"
            );
        }
    }
}
