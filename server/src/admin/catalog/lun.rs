//! The metrics of NFS over an iSCSI target.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::admin::metric::{Metric, SampleSource, Value, counter, gauge};
use crate::unit::Fallback;

/// Behind those of NFS; only where there is a unit.
pub static METRICS: [Metric; 7] = [
    gauge(
        "lun_usable_mounts",
        "1 while READs of files on the mount come straight from the target; 0: all go through the mount, and the log tells why.",
        SampleSource::Unit("", &[""], |unit, _| {
            Value::Whole(unit.mount().is_some().into())
        }),
    ),
    counter(
        "lun_reads",
        "Reads of the target that it has answered, 256 KiB each at most.",
        SampleSource::Unit("", &[""], |unit, _| whole(&unit.tally.reads)),
    ),
    counter(
        "lun_read_bytes",
        "Bytes that these brought.",
        SampleSource::Unit("", &[""], |unit, _| whole(&unit.tally.read_bytes)),
    ),
    counter(
        "lun_looked_reads",
        "READs of clients that come from the target, by whether their bytes were in memory: hit or miss. Many misses of files that are read again: raise cache_memory.",
        SampleSource::Unit("result", &["hit", "miss"], |unit, at| {
            let tally = &unit.tally;
            whole([&tally.hits, &tally.misses][at.min(1)])
        }),
    ),
    counter(
        "lun_repeated_reads",
        "Reads of the target that were made again, since somebody wrote there meanwhile.",
        SampleSource::Unit("", &[""], |unit, _| whole(&unit.tally.repeats)),
    ),
    counter(
        "lun_mount_reads",
        "READs of clients through the mount, by reason: away (no gateway program or no target, or they do not fit together), young (the file was changed just now), changed (while it was read), kind (a part is unwritten, in the inode or encoded), hole, many (extents; defragment it), memory (for where files lie, or for their bytes).",
        SampleSource::Unit("why", &Fallback::NAMES, |unit, at| {
            whole(&unit.tally.fallbacks[at])
        }),
    ),
    counter(
        "lun_lost_sessions",
        "Sessions with the target that were lost. Each is tried again; if it grows, look at the network and the target.",
        SampleSource::Unit("", &[""], |unit, _| whole(&unit.tally.lost)),
    ),
];

fn whole(count: &AtomicU64) -> Value {
    Value::Whole(count.load(Relaxed))
}
