//! The metrics of a node of a cluster.

use std::sync::atomic::Ordering::Relaxed;

use crate::admin::metric::{Metric, SampleSource, Value, counter, gauge};
use crate::cluster::{By, REASONS, STEPS};

/// At the end of the page; only where there is a cluster.
pub static METRICS: [Metric; 8] = [
    gauge(
        "cluster_nodes",
        "Nodes of the cluster as this one sees them, itself included. Down: no message comes from it; look at its log.",
        SampleSource::Cluster("standing", &["up", "draining", "down"], |cluster, at| {
            Value::Whole(cluster.count(at))
        }),
    ),
    counter(
        "cluster_frames",
        "Messages between this node and the others.",
        SampleSource::Cluster("direction", &["sent", "heard"], |cluster, at| {
            Value::Whole(cluster.tally.frames[at].load(Relaxed))
        }),
    ),
    counter(
        "cluster_streams",
        "Streams between this node and others that broke, or were refused for a wrong key or name or an invalid message: look at the log.",
        SampleSource::Cluster("end", &["broken", "refused"], |cluster, at| {
            Value::Whole(cluster.tally.streams[at].load(Relaxed))
        }),
    ),
    counter(
        "cluster_responses",
        "Responses with a body by how they were placed: from this node's own files, from what it had fetched from another node, relayed from one, fetched from one and kept, or with the connection handed over. Responses from the response cache are not placed. If many long ones are relayed, connections can't move: the log says why.",
        SampleSource::Cluster("placed", &By::NAMES, |cluster, at| {
            Value::Whole(cluster.tally.placed[at].load(Relaxed))
        }),
    ),
    counter(
        "cluster_moves",
        "Connections that were to move between nodes, by what became of that. Taken over: the other node died, and this one goes on for it; lapsed: the lease of a guest ended, since its home did not renew it; refused: it stayed; reset: the client got RST, since nobody knew how its connection goes on.",
        SampleSource::Cluster("step", &STEPS, |cluster, at| {
            Value::Whole(cluster.tally.steps[at].load(Relaxed))
        }),
    ),
    counter(
        "cluster_refused_moves",
        "Connections that stayed where they were, by the reason. Moment: they are in a bad one, as when losses are repaired, and the next may move; object: the other node has not the same file, or the response can't travel; busy: the other node has no room, is drained, speaks another version or has refused a moment ago; silent: it did not answer in time; socket: ackpace-host handoff could not freeze or restore it: look at its log.",
        SampleSource::Cluster("reason", &REASONS, |cluster, at| {
            Value::Whole(cluster.tally.reasons[at].load(Relaxed))
        }),
    ),
    counter(
        "cluster_broker_answers",
        "Requests that ackpace-host handoff refused. Not 0: look at its log.",
        SampleSource::Cluster("answer", &["refused"], |cluster, _| {
            Value::Whole(cluster.tally.broker_refused.load(Relaxed))
        }),
    ),
    gauge(
        "cluster_moved_connections",
        "Connections that this node accepted and that others serve now or that are moving (away), and those that it serves for others (guests).",
        SampleSource::Cluster("where", &["away", "guests"], |cluster, at| {
            Value::Whole(cluster.tally.moved[at].load(Relaxed))
        }),
    ),
];
