//! What a metric is: its type, the unit of its values, and where its samples are counted.

use super::{Board, WorkerChannel};
use crate::cluster::Cluster;
use crate::disk;
use crate::gateway::{Gateway, OriginTally};
use crate::nfs_tally;
use crate::store::slab::Slab;
use crate::unit::Unit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricType {
    /// A counter: it only grows.
    Counter,
    Gauge,
    /// A histogram of the lengths of turns.
    Histogram,
}

pub enum SampleSource {
    One(fn(&Board) -> Value),
    Worker(fn(&WorkerChannel) -> Value),
    /// One for each worker and each value of a label: the label, its values, and the count of a worker for the value with
    /// this index.
    WorkerBy(
        &'static str,
        fn() -> Vec<&'static str>,
        fn(&WorkerChannel, usize) -> Value,
    ),
    /// The same, summed over all workers.
    By(
        &'static str,
        fn() -> Vec<&'static str>,
        fn(&WorkerChannel, usize) -> Value,
    ),
    Disk(fn(&disk::DeviceTally) -> Value),
    /// Of a gateway, one for each value of a label.
    Gateway(
        &'static str,
        &'static [&'static str],
        fn(&Gateway, usize) -> Value,
    ),
    /// Of the memory for payload, for each value of a label.
    Slab(
        &'static str,
        &'static [&'static str],
        fn(&Slab, usize) -> Value,
    ),
    /// Of each origin of a gateway.
    Origin(fn(&OriginTally) -> Value),
    /// Of a cluster, one for each value of a label.
    Cluster(
        &'static str,
        &'static [&'static str],
        fn(&Cluster, usize) -> Value,
    ),
    /// Of NFS, a sum over its threads for each value of a label; no label if that is empty.
    Nfs(
        &'static str,
        &'static [&'static str],
        fn(&nfs_tally::Tally, usize) -> Value,
    ),
    /// Of an iSCSI unit, for each value of a label; no label if that is empty.
    Unit(
        &'static str,
        &'static [&'static str],
        fn(&Unit, usize) -> Value,
    ),
    Log(fn(&crate::log::Counts) -> Value),
    /// The lengths of turns, over all workers.
    Turns,
}

/// A value, in the unit in which it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    Whole(u64),
    Us(u64),
}

pub struct Metric {
    /// Without `ackpace_` and `_total`; its last word is the unit, or what is counted.
    pub name: &'static str,
    pub kind: MetricType,
    /// What it measures, and what to do when it changes.
    pub help: &'static str,
    pub source: SampleSource,
}

impl Metric {
    /// The end of the name: OpenMetrics wants it stated by itself, too.
    pub fn unit(&self) -> &str {
        let is_rate = self.name.ends_with("bytes_per_second");
        let last = self.name.rsplit('_').next().unwrap_or_default();
        if is_rate { "bytes_per_second" } else { last }
    }
}

impl Value {
    /// The sum over two workers. It is in seconds if one of them is, since a sum begins with a whole 0.
    pub fn plus(self, other: Value) -> Value {
        match (self, other) {
            (Value::Whole(a), Value::Whole(b)) => Value::Whole(a.wrapping_add(b)),
            (Value::Whole(a) | Value::Us(a), Value::Whole(b) | Value::Us(b)) => {
                Value::Us(a.wrapping_add(b))
            }
        }
    }
}

pub(super) const fn counter(
    name: &'static str,
    help: &'static str,
    source: SampleSource,
) -> Metric {
    Metric {
        name,
        kind: MetricType::Counter,
        help,
        source,
    }
}

pub(super) const fn gauge(name: &'static str, help: &'static str, source: SampleSource) -> Metric {
    Metric {
        name,
        kind: MetricType::Gauge,
        help,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_keep_their_unit() {
        assert_eq!(Value::Whole(0).plus(Value::Us(3)), Value::Us(3));
        assert_eq!(Value::Whole(1).plus(Value::Whole(2)), Value::Whole(3));
    }
}
