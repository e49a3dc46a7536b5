//! Where the bytes of a planned response come from, if this node is one of a cluster: from here, or from a node that has them in
//! memory ([`ackpace_core::place`]).

use std::sync::Arc;

use ackpace_core::conn::{Part, Plan, ResidencySource, StreamId, WantSeq};
use ackpace_core::disk::ReadError;
use ackpace_core::machine::Machine;
use ackpace_core::place::{How, Response};
use ackpace_core::units::Instant;
use ackpace_core::worker::{In, LocalFile};

use super::Worker;
use crate::cluster::{Cluster, key_of};
use crate::front::planning::validators;
use crate::front::site::{Served, Site};
use crate::gateway::Object;
use crate::log::Topic;
use crate::source::Source;

/// Chooses where the body of a planned response is read. If that is another node, the plan names its object, which is returned.
pub(super) fn placed(
    (cluster, site): (&Cluster, &Site),
    served: &Served,
    plan: &mut Plan,
    now: Instant,
) -> Option<Arc<Object>> {
    let bodies = plan.parts.iter().filter_map(|part| match part {
        Part::Body { span, .. } => Some(span.len_bytes),
        _ => None,
    });
    let len_bytes: u64 = bodies.sum();
    if len_bytes == 0 {
        return None;
    }
    let peers = site.peers.as_ref()?;
    let (key, validators) = (key_of(&served.path), validators(served, site));
    let is_hot_here = peers.is_hot(key, served.version.len_bytes);
    let kept = peers.kept(served, &validators);
    let object = match kept {
        Some(object) => object,
        None => {
            let node = cluster.choose(key, now.us)?;
            if node == cluster.me() {
                cluster.came(key);
                return None;
            }
            let response = Response {
                len_bytes,
                may_move: false,
                is_hot_here,
                moved_before: false,
            };
            match cluster.how(cluster.me(), node, response) {
                How::Here | How::HandOver => return None,
                How::Relay | How::Fetch => peers.object(node, served, validators)?,
            }
        }
    };
    for part in &mut plan.parts {
        if let Part::Body {
            object: name,
            residency,
            ..
        } = part
        {
            (*name, *residency) = (object.id, ResidencySource::Ask); // the slab tells
        }
    }
    Some(object)
}

impl Worker {
    /// A node does not bring what a stream wants from it: the rest is read from the own disk. `false`: nothing else has those bytes.
    pub(super) fn read_here(
        &mut self,
        (stream, seq): (StreamId, WantSeq),
        error: ReadError,
        now: Instant,
    ) -> bool {
        let conn = self.conns.get(stream.conn);
        let Some((conn, file)) =
            conn.and_then(|conn| conn.body.here.take().map(|file| (conn, file)))
        else {
            return false;
        };
        let (file, version) = file;
        let local = LocalFile {
            object: file.id,
            version,
            residency: file.residency,
        };
        conn.body.source = Some(Source::File(file));
        self.forget(stream);
        let text = format_args!(
            "another node does not send it from offset_bytes={} on: it is read from this node's disk",
            error.offset_bytes
        );
        let shared = Arc::clone(&self.shared);
        shared.seldom.tell(Topic::Node, None, text, now);
        self.decider.on(
            In::FetchElsewhere {
                stream,
                seq,
                file: local,
            },
            now,
        );
        true
    }
}
