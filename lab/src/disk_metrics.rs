//! Metrics of slow disks, of congestion and of departed clients: the second part of the list of metrics.

use crate::metric::{Metric, metric};

/// Metrics of disks, and of clients whose network changes.
pub const DISK_METRICS: &[Metric] = &[
    metric(
        "demand_met_min",
        "demand met min",
        1.0,
        "what a client got over what its rate would have given, the worst-off client",
    ),
    metric(
        "demand_met_mean",
        "demand met mean",
        1.0,
        "what a client got over what its rate would have given, mean of the clients",
    ),
    metric(
        "goodput_of_ideal_share",
        "of the ideal",
        1.0,
        "goodput over that of a reader which can't be better: with the buffers' memory and nothing else on its mind, or the device's own rate",
    ),
    metric(
        "disk_reads_per_s",
        "disk requests/s",
        1.0,
        "reads that the emulated disk completed, a second",
    ),
    metric(
        "disk_again_pages_per_s",
        "thrashed pages/s",
        1.0,
        "pages of 4 KB that were read although they had been read before in this round, a second: they were in memory, and were pushed out before their client got them",
    ),
    metric(
        "disk_amplification",
        "disk over distinct bytes",
        1.0,
        "bytes read from the emulated disk in this round over the distinct ones among them: 1 = nothing was read twice",
    ),
    metric(
        "disk_over_goodput",
        "disk over goodput",
        1.0,
        "bytes read from the emulated disk in the window over bytes of bodies that clients got in it: below 1 = what was read went to several of them, or had been read before the window",
    ),
    metric(
        "link_marked_packets",
        "packets marked",
        1.0,
        "packets to clients that were marked \"congestion experienced\"",
    ),
    metric(
        "congestion_signals",
        "congestion signals",
        1.0,
        "cuts of congestion windows that ackpace saw on connections which read from the disk, by its own count",
    ),
    metric(
        "delayed_reads",
        "reads put off",
        1.0,
        "reads that were due and that ackpace put off for congestion (EDRC), by its own count",
    ),
    metric(
        "delayed_read_bytes",
        "put off KB",
        1e-3,
        "bytes that would have been read by them",
    ),
    metric(
        "dead_reads",
        "reads for the dead",
        1.0,
        "reads of files of clients that had left, which reached the disk later than 5 ms after their resets",
    ),
    metric(
        "dead_read_bytes",
        "read for the dead KB",
        1e-3,
        "bytes of these",
    ),
    metric(
        "living_disk_share",
        "disk for the living",
        1.0,
        "share of the bytes that the disk brought in the five seconds after the resets which were for clients that had stayed",
    ),
    metric(
        "resident_before_share",
        "in memory before",
        1.0,
        "share of the pages of a set of files that are in memory at the begin of the window (mincore)",
    ),
    metric(
        "resident_share",
        "still in memory",
        1.0,
        "share of the pages of a set of files that are in memory at the end of the window (mincore)",
    ),
];
