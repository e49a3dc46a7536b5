//! `ackpace cluster`: what this node knows of the others, and how a node is emptied.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::place::Standing;
use ackpace_core::units::Time;

use super::Board;
use super::view::plain;
use crate::answers::{ClusterState, Drained, NodeState, VERSION};
use crate::cluster::{Cluster, Seen};

fn cluster(board: &Board) -> Result<&Cluster, String> {
    let cluster = board.shared.cluster.as_deref();
    cluster.ok_or_else(|| "this server is no node of a cluster".to_owned())
}

pub fn state(board: &Board) -> Result<ClusterState, String> {
    let cluster = cluster(board)?;
    let (seen, objects) = cluster.seen();
    let nodes = seen.iter().enumerate();
    Ok(ClusterState {
        version: VERSION,
        node: cluster.nodes()[cluster.me()].clone(),
        objects: objects as u64,
        sent_frames: cluster.tally.frames[0].load(Relaxed),
        heard_frames: cluster.tally.frames[1].load(Relaxed),
        broken_streams: cluster.tally.streams[0].load(Relaxed),
        refused_streams: cluster.tally.streams[1].load(Relaxed),
        nodes: nodes.map(|(at, seen)| node(cluster, at, seen)).collect(),
    })
}

fn node(cluster: &Cluster, at: usize, seen: &Seen) -> NodeState {
    let addr = |addr: Option<std::net::SocketAddr>| addr.map(|addr| addr.to_string());
    let is_me = at == cluster.me();
    NodeState {
        node: cluster.nodes()[at].clone(),
        address: addr(cluster.addr(at)).unwrap_or_default(),
        relay: addr(match is_me {
            true => Some(cluster.relay_addr()),
            false => cluster.peer(at),
        }),
        standing: standing(seen).to_owned(),
        since_us: cluster.since_us(seen),
        protocol: seen.version,
        processing: seen.load.processing,
        disk: seen.load.disk,
        connections: seen.load.connections,
    }
}

/// The standing of a node, in a word.
pub fn standing(seen: &Seen) -> &'static str {
    match seen.standing {
        Standing::Up => "up",
        Standing::Draining => "draining",
        Standing::Down if seen.is_dead => "ended",
        Standing::Down => "down",
    }
}

pub fn drain(board: &Board, name: &str, on: bool) -> Result<Drained, String> {
    cluster(board)?.ask_drain(name, on)?;
    Ok(Drained {
        version: VERSION,
        node: name.to_owned(),
        draining: on,
    })
}

/// What `cluster status` says.
pub fn page(state: &ClusterState) -> String {
    let mut page = format!(
        "node {}; of {} objects it is known who has them; {} streams broke, {} were refused\n",
        plain(&state.node),
        state.objects,
        state.broken_streams,
        state.refused_streams
    );
    let _ = writeln!(
        page,
        "{:16} {:8} {:>8} {:>9} {:>9} {:>11}  address",
        "node", "standing", "for", "responses", "disk", "connections"
    );
    for node in &state.nodes {
        let _ = writeln!(
            page,
            "{:16} {:8} {:>8} {:>9} {:>9} {:>11}  {}",
            plain(&node.node),
            plain(&node.standing),
            Time(node.since_us).to_string(),
            node.processing,
            node.disk,
            node.connections,
            plain(&node.address)
        );
    }
    page
}

/// What `cluster drain` and `cluster undrain` say.
pub fn drained(drained: &Drained) -> String {
    let node = plain(&drained.node);
    match drained.draining {
        true => format!("{node} is told to take no more requests; see `ackpace cluster status`\n"),
        false => format!("{node} is told to take requests again\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_line_for_each_node() {
        let node = |name: &str, standing: &str| NodeState {
            node: name.into(),
            standing: standing.into(),
            address: "192.0.2.1:7800".into(),
            since_us: 90_000_000,
            processing: 3,
            ..NodeState::default()
        };
        let page = page(&ClusterState {
            node: "a".into(),
            objects: 7,
            nodes: vec![node("a", "up"), node("b\u{1b}[2J", "down")],
            ..ClusterState::default()
        });
        assert!(page.starts_with("node a; of 7 objects "), "{page}");
        assert_eq!(page.lines().count(), 4);
        assert!(
            page.contains("\na                up           90 s         3"),
            "{page}"
        );
        assert!(!page.contains('\u{1b}'));
    }
}
