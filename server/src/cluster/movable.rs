//! Which connections can move between nodes: what the broker of this machine said.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// Connections to these addresses and ports move to and from these nodes.
#[derive(Clone, Debug, Default)]
pub struct Movable {
    /// Addresses that all nodes have.
    pub addresses: Vec<IpAddr>,
    pub ports: Vec<u16>,
    /// The names of the nodes.
    pub nodes: Vec<String>,
}

impl Movable {
    /// Whether a connection to this address may move to or from a node.
    pub fn has(&self, node: &str, server: SocketAddr) -> bool {
        self.nodes.iter().any(|name| name == node)
            && self.addresses.contains(&server.ip().to_canonical())
            && self.ports.contains(&server.port())
    }
}

impl fmt::Display for Movable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nth = 0;
        for address in &self.addresses {
            for port in &self.ports {
                let at = SocketAddr::new(*address, *port);
                write!(f, "{}{at}", if nth == 0 { "" } else { ", " })?;
                nth += 1;
            }
        }
        Ok(())
    }
}
