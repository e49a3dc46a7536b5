//! The metrics of NFS.

use crate::admin::metric::{Metric, SampleSource, Value, counter, gauge};
use crate::nfs_tally::{Ended, Path};

/// Behind those of HTTP; only where NFS is served. Each is a sum over its threads.
pub static METRICS: [Metric; 7] = [
    gauge(
        "nfs_open_connections",
        "Connections of NFS clients that are open now.",
        SampleSource::Nfs("", &[""], |tally, _| Value::Whole(tally.connections.get())),
    ),
    counter(
        "nfs_accepted_connections",
        "Connections of NFS clients that were accepted.",
        SampleSource::Nfs("", &[""], |tally, _| Value::Whole(tally.accepted.get())),
    ),
    counter(
        "nfs_shed_connections",
        "Connections that could not be accepted, or were idle and made room. If it grows, raise memory_max or LimitNOFILE.",
        SampleSource::Nfs("", &[""], |tally, _| Value::Whole(tally.shed.get())),
    ),
    counter(
        "nfs_calls",
        "Calls by result: done, failed with an error of NFS, such as no such file, or refused by RPC, such as another version. Many refused: a client speaks something else.",
        SampleSource::Nfs("result", &Ended::NAMES, |tally, at| {
            Value::Whole(tally.calls[at].get())
        }),
    ),
    counter(
        "nfs_missed_reads",
        "READs whose bytes were not in memory when they came: a disk or an origin was asked, or was being asked already.",
        SampleSource::Nfs("", &[""], |tally, _| Value::Whole(tally.missed.get())),
    ),
    counter(
        "nfs_written_bytes",
        "Bytes that NFS clients wrote: the payload of WRITEs that succeeded.",
        SampleSource::Nfs("", &[""], |tally, _| {
            Value::Whole(tally.written_bytes.get())
        }),
    ),
    counter(
        "nfs_sent_bytes",
        "Bytes sent to NFS clients by how they got into the socket: made for the reply, by sendfile(2) without a copy, copied through the server's memory, as on a disk that is slow or not known yet, or from the memory for payload of origins.",
        SampleSource::Nfs("path", &Path::NAMES, |tally, at| {
            Value::Whole(tally.sent_bytes[at].get())
        }),
    ),
];
