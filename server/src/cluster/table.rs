//! The places of the nodes: each has a number in this process, and keeps it for as long as anything refers to it. In a cluster of
//! `--peer`s they stand in the order of their names; those that etcd names come behind, as they come.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Acquire;
use std::sync::{Arc, PoisonError};

use ackpace_core::place::NODES_MAX;
use ackpace_core::units::Instant;

use super::key::PublicKey;
use super::{Cluster, key_of};

/// Who is at each place.
#[derive(Debug)]
pub struct Table {
    /// Empty: nobody was there yet.
    pub names: Arc<[String]>,
    /// Where each node listens for the others; `None`: nobody is there, or the node has left the cluster.
    pub addrs: Vec<Option<SocketAddr>>,
}

impl Table {
    /// Nodes at the first of so many places.
    pub fn new(nodes: &[(&str, SocketAddr)], places: usize) -> Table {
        let empty = places.saturating_sub(nodes.len());
        let names = nodes.iter().map(|(name, _)| (*name).to_owned());
        let addrs = nodes.iter().map(|(_, addr)| Some(*addr));
        Table {
            names: names.chain((0..empty).map(|_| String::new())).collect(),
            addrs: addrs.chain((0..empty).map(|_| None)).collect(),
        }
    }
}

/// A place for a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The key of the node that is there.
    pub key: Option<PublicKey>,
    /// It stands in `--peer`, or is this node.
    pub is_pinned: bool,
    /// It stands in etcd no more, since then.
    pub unlisted: Option<Instant>,
    /// When it left.
    pub left: Instant,
}

impl Place {
    /// For this node or one of `--peer`, which has this key, or else free.
    pub fn pinned(key: Option<PublicKey>) -> Place {
        Place {
            key,
            is_pinned: key.is_some(),
            ..Place::default()
        }
    }
}

/// The number of a name in messages, the same in all nodes: never that of a place, so that one that nobody here has stays what it
/// is. Two nodes of one number can't be in one cluster.
pub fn id_of(name: &str) -> u16 {
    let ids = u64::from(u16::MAX) + 1 - NODES_MAX as u64;
    (NODES_MAX as u64 + key_of(name.as_bytes()) % ids) as u16
}

impl Cluster {
    /// The names at all places, this node's among them; empty where nobody was yet.
    pub fn nodes(&self) -> Arc<[String]> {
        self.table(|table| Arc::clone(&table.names))
    }

    /// The name at a place.
    pub fn name_of(&self, node: usize) -> String {
        let name = |table: &Table| table.names.get(node).cloned();
        self.table(name).unwrap_or_default()
    }

    /// The place of a name, also of a node that has left.
    pub fn place_of(&self, name: &str) -> Option<usize> {
        self.table(|table| table.names.iter().position(|other| other == name))
    }

    /// Where a node listens for the others; `None`: it is none of the cluster.
    pub fn addr(&self, node: usize) -> Option<SocketAddr> {
        self.table(|table| table.addrs.get(node).copied().flatten())
    }

    /// Whether a node belongs to the cluster, up or not.
    pub fn is_member(&self, node: usize) -> bool {
        self.addr(node).is_some()
    }

    /// Where the HTTP of another node is to be asked; `None`: no stream to it stands, or it is this one. Whoever connects there
    /// does so from the address of [`Cluster::relay_addr`]: a node turns strangers away.
    pub fn peer(&self, node: usize) -> Option<SocketAddr> {
        let port = self.relay_ports.get(node)?.load(Acquire);
        let addr = self.addr(node)?;
        (port != 0).then(|| SocketAddr::new(addr.ip(), port))
    }

    /// Whether somebody at this address may be one of the other nodes.
    pub fn has_node_at(&self, ip: IpAddr) -> bool {
        self.table(|table| {
            let others = table.addrs.iter().enumerate();
            let mut others = others.filter(|(node, _)| *node != self.me);
            others.any(|(_, addr)| {
                addr.is_some_and(|addr| addr.ip().to_canonical() == ip.to_canonical())
            })
        })
    }

    /// The number in messages of the node at a place.
    pub fn to_wire(&self, node: u16) -> u16 {
        self.table(|table| {
            let name = table.names.get(usize::from(node));
            name.map_or(node, |name| id_of(name))
        })
    }

    /// The place of the node with a number in messages; the number itself, which is no place, if none has it.
    pub fn of_wire(&self, id: u16) -> u16 {
        self.table(|table| {
            let is_it = |name: &String| !name.is_empty() && id_of(name) == id;
            let place = table.names.iter().position(is_it);
            place.map_or(id.max(NODES_MAX as u16), |place| place as u16) // at most 64 places
        })
    }

    /// Another node comes to a place, or the one that is there has left.
    pub(super) fn enter(&self, node: usize, name: &str, addr: Option<SocketAddr>) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let mut names = table.names.to_vec();
        let (Some(place), Some(at)) = (names.get_mut(node), table.addrs.get_mut(node)) else {
            return;
        };
        *at = addr;
        name.clone_into(place);
        table.names = names.into();
    }

    fn table<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_names_are_alike_everywhere_and_no_places() {
        assert_eq!(id_of("a"), id_of("a"));
        assert_ne!(id_of("a"), id_of("b"));
        assert!(
            ["a", "b", "node-7.example"]
                .map(id_of)
                .iter()
                .all(|id| *id >= 64)
        );
    }
}
