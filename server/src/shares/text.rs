//! The tables of `ackpace limits`.

use std::fmt::Write;

use ackpace_core::blocks::EXTENTS_MAX;
use ackpace_core::limits as core;
use ackpace_core::units::{KIB, MIB};
use ackpace_wire::limits as wire;

use super::{Shares, descriptors_allowed};
use crate::limits;
use crate::options::{ServeOptions, display_duration};

/// A bound, and its consequence.
type Bound = (String, &'static str);

/// The text of `ackpace limits`: memory by owner with its sum, then every bound with its consequence.
pub fn print(options: &ServeOptions, workers: u16) -> Result<String, String> {
    let shares = Shares::of(options, workers)?;
    let mut text = String::new();
    let mut row = |bound: String, what: &str| {
        let _ = writeln!(text, "{bound:>12}  {what}");
    };
    row(mib(shares.memory_bytes), "memory_max");
    for owner in shares.owners() {
        row(mib(owner.bytes()), owner.name);
    }
    row(
        mib(shares.total_bytes()),
        "in all, at worst (page cache and sockets are the kernel's)",
    );
    row(
        mib(shares.prefetch_bytes),
        "may be lent to reading ahead: what the owners above do not use now; they get it back",
    );
    row(String::new(), "");
    let all = [
        of_process(&shares),
        of_requests(),
        of_time(options),
        of_disks(),
        of_nfs(&shares),
    ];
    for (bound, what) in all.into_iter().flatten() {
        row(bound, what);
    }
    Ok(text)
}

fn mib(bytes: u64) -> String {
    format!("{}.{} MiB", bytes / MIB, bytes % MIB * 10 / MIB)
}

fn of_process(shares: &Shares) -> Vec<Bound> {
    let sending = match shares.send_bytes {
        Some(bytes) => (
            format!("{} KiB", bytes / KIB),
            "of payload in all sockets (--send-memory); a connection has a share of it, and waits when that is in flight",
        ),
        None => (
            "kernel".to_owned(),
            "bounds the payload in sockets (tcp_mem, tcp_wmem); a size as --send-memory would be divided by need",
        ),
    };
    vec![
        (shares.workers.to_string(), "workers"),
        (
            shares.connections_per_worker.to_string(),
            "connections of a worker; more go to another one, or wait in the listen backlog",
        ),
        sending,
        (
            shares.descriptors().to_string(),
            "descriptors wanted at worst; out of them: accepting pauses, requests get 503",
        ),
        (
            descriptors_allowed().map_or("unlimited".to_owned(), |most| most.to_string()),
            "descriptors allowed (ulimit -Hn)",
        ),
    ]
}

fn of_requests() -> Vec<Bound> {
    let kib = |bytes: usize| format!("{} KiB", bytes as u64 / KIB);
    vec![
        (kib(wire::HEAD_BYTES_MAX), "of a request head; more: 431"),
        (
            kib(wire::TARGET_BYTES_MAX),
            "of a request target; more: 414",
        ),
        (wire::FIELDS_MAX.to_string(), "header fields; more: 431"),
        (
            wire::RANGES_COMMON.to_string(),
            "ranges of a request in any order; more must ascend without overlap, or the whole file is sent",
        ),
        (
            core::PIPELINED_MAX.to_string(),
            "pipelined requests answered in a row; then others have their turn",
        ),
        (
            mib(core::BODY_SKIP_BYTES_MAX),
            "of a request body are skipped so that the connection goes on; more: it ends after the answer",
        ),
    ]
}

fn of_time(options: &ServeOptions) -> Vec<Bound> {
    let time = |time: std::time::Duration| display_duration(time).to_string();
    vec![
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
    ]
}

fn of_disks() -> Vec<Bound> {
    vec![
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

fn of_nfs(shares: &Shares) -> Vec<Bound> {
    if shares.nfs_connections == 0 {
        return Vec::new();
    }
    let mut bounds = vec![
        (
            shares.nfs_connections.to_string(),
            "NFS connections of a thread; more: the one idle for longest is closed, or clients wait",
        ),
        (
            core::NFS_CALLS_MAX.to_string(),
            "calls of one connection at once; more wait in its socket",
        ),
        (
            mib(wire::RPC_PAYLOAD_BYTES_MAX.into()),
            "of one READ; more: the reply is shorter",
        ),
        (
            mib(core::NFS_REPLIES_BYTES_MAX),
            "of replies of one connection in memory, without payload; full: calls wait in its socket",
        ),
        (
            core::NFS_RUNS_MAX.to_string(),
            "places in files that are read ahead of one connection at once",
        ),
    ];
    if shares.nfs_writes {
        bounds.push((
            mib(limits::NFS_PAYLOADS_BYTES_MAX),
            "of WRITEs of all connections of a thread in memory; full: they wait in their sockets",
        ));
    }
    if shares.maps_bytes > 0 {
        bounds.push((
            EXTENTS_MAX.to_string(),
            "extents of a file that is read straight from the iSCSI unit; more: it is read through the mount",
        ));
        bounds.push((
            mib(shares.maps_bytes),
            "of where files lie on the iSCSI unit; full: further ones are read through the mount",
        ));
    }
    bounds
}
