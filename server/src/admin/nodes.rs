//! `ackpace cluster`: what this node knows of the others, and how a node is emptied.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::place::Standing;
use ackpace_core::units::Time;

use super::Board;
use super::view::plain;
use crate::answers::{ClusterState, Connection, Drained, Explained, NodeState, VERSION};
use crate::cluster::{By, Cluster, Seen, Whereabouts};

fn cluster(board: &Board) -> Result<&Cluster, String> {
    let cluster = board.shared.cluster.as_deref();
    cluster.ok_or_else(|| "this server is no node of a cluster".to_owned())
}

pub fn state(board: &Board) -> Result<ClusterState, String> {
    let cluster = cluster(board)?;
    let (seen, objects) = cluster.seen();
    let nodes = seen.iter().enumerate();
    let nodes = nodes.filter(|(at, _)| cluster.is_member(*at));
    Ok(ClusterState {
        version: VERSION,
        node: cluster.name().to_owned(),
        objects: objects as u64,
        sent_frames: cluster.tally.frames[0].load(Relaxed),
        heard_frames: cluster.tally.frames[1].load(Relaxed),
        broken_streams: cluster.tally.streams[0].load(Relaxed),
        refused_streams: cluster.tally.streams[1].load(Relaxed),
        away_connections: cluster.tally.moved[0].load(Relaxed),
        guest_connections: cluster.tally.moved[1].load(Relaxed),
        nodes: nodes.map(|(at, seen)| node(cluster, at, seen)).collect(),
    })
}

fn node(cluster: &Cluster, at: usize, seen: &Seen) -> NodeState {
    let addr = |addr: Option<SocketAddr>| addr.map(|addr| addr.to_string());
    let is_me = at == cluster.me();
    NodeState {
        node: cluster.name_of(at),
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
        "node {}; objects whose holders it knows: {}; streams broken: {}, refused: {}\n\
         connections that others serve for this node: {}; that it serves for others: {}\n",
        plain(&state.node),
        state.objects,
        state.broken_streams,
        state.refused_streams,
        state.away_connections,
        state.guest_connections,
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

/// What `why` says of a connection that another node serves; `None`: it is not known here.
pub fn elsewhere(cluster: &Cluster, client: SocketAddr) -> Option<Explained> {
    let Whereabouts { node, moves } = cluster.away.of(client)?;
    let node = cluster.name_of(node);
    Some(Explained {
        version: VERSION,
        now: vec![
            format!(
                "{client} is served by node {node}, to which this one handed it: run `ackpace why` there"
            ),
            format!("it has moved between nodes {}", times(moves)),
        ],
        ..Explained::default()
    })
}

/// What `why` says of where a connection and its response came from.
pub fn placed(connection: &Connection) -> Vec<String> {
    let Some(placement) = &connection.placement else {
        return Vec::new();
    };
    let mut sentences = Vec::new();
    let from = placement.from.as_deref().unwrap_or("another one");
    let by = By::NAMES
        .iter()
        .position(|name| placement.by.as_deref() == Some(name));
    let whence = by.map(|by| match by {
        by if by == By::Kept as usize => {
            "it is sent from what this node fetched from another one before".to_owned()
        }
        by if by == By::Relayed as usize => format!("its bytes are relayed from node {from}"),
        by if by == By::Fetched as usize => {
            format!("its bytes are fetched from node {from} and kept here")
        }
        by if by == By::HandedOver as usize => format!(
            "it waits to be handed to node {from}; until then its bytes are relayed from there"
        ),
        _ => "it is sent from this node's own files".to_owned(),
    });
    let whence = whence.zip(placement.why.as_ref());
    sentences.extend(whence.map(|(whence, why)| format!("{whence}: {why}")));
    let moved = times(placement.moves);
    match &placement.home {
        Some(home) => sentences.push(format!(
            "node {home} accepted it and handed it to this one; it has moved between nodes {moved}"
        )),
        None if placement.moves > 0 => sentences.push(format!(
            "it has moved between nodes {moved} and is back at this one"
        )),
        None => {}
    }
    sentences
}

fn times(moves: u32) -> String {
    match moves {
        1 => "once".to_owned(),
        moves => format!("{moves} times"),
    }
}

/// What `cluster drain` and `cluster undrain` say.
pub fn drained(drained: &Drained) -> String {
    let node = plain(&drained.node);
    match drained.draining {
        true => format!(
            "{node} gives its downloads to the others and takes no more requests. It is empty when `ackpace cluster status` shows 0 responses for it.\n\
             Before you reboot its machine, wait until `ackpace cluster status` there also shows 0 connections that others serve for it: their packets pass through.\n"
        ),
        false => format!("{node} takes requests again\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answers::Placement;

    #[test]
    fn a_connection_is_told_of_with_its_nodes() {
        let placement = |by: &str, from: Option<&str>| Placement {
            by: Some(by.to_owned()),
            from: from.map(str::to_owned),
            why: Some("in memory of b".to_owned()),
            ..Placement::default()
        };
        let told = |placement| {
            placed(&Connection {
                placement: Some(placement),
                ..Connection::default()
            })
        };
        assert_eq!(
            told(placement("relayed", Some("b"))),
            ["its bytes are relayed from node b: in memory of b"]
        );
        assert_eq!(
            told(placement("here", None)),
            ["it is sent from this node's own files: in memory of b"]
        );
        let moved = |home: Option<&str>, moves| Placement {
            home: home.map(str::to_owned),
            moves,
            ..Placement::default()
        };
        assert_eq!(
            told(moved(Some("a"), 1)),
            ["node a accepted it and handed it to this one; it has moved between nodes once"]
        );
        assert_eq!(
            told(moved(None, 2)),
            ["it has moved between nodes 2 times and is back at this one"]
        );
        assert!(placed(&Connection::default()).is_empty());
    }

    #[test]
    fn it_is_told_what_becomes_of_a_node_that_is_drained() {
        let told = |draining| {
            drained(&Drained {
                version: VERSION,
                node: "b".to_owned(),
                draining,
            })
        };
        let text = told(true);
        assert!(text.starts_with("b gives its downloads to the others and takes no more"));
        assert!(text.contains("0 connections that others serve for it"));
        assert_eq!(told(false), "b takes requests again\n");
    }

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
            guest_connections: 4,
            nodes: vec![node("a", "up"), node("b\u{1b}[2J", "down")],
            ..ClusterState::default()
        });
        assert!(
            page.starts_with("node a; objects whose holders it knows: 7; "),
            "{page}"
        );
        assert!(page.contains("for this node: 0; that it serves for others: 4\n"));
        assert_eq!(page.lines().count(), 5);
        assert!(
            page.contains("\na                up           90 s         3"),
            "{page}"
        );
        assert!(!page.contains('\u{1b}'));
    }
}
