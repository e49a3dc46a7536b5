//! Which connections of this node others serve now, by their clients: for operators.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// As many as the thread that moves connections has away at most (`server/src/moving.rs`).
#[derive(Debug, Default)]
pub struct AwayTable(Mutex<HashMap<SocketAddr, Whereabouts>>);

/// Where a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    pub node: usize,
    /// How often it has moved.
    pub moves: u32,
}

impl AwayTable {
    /// A client's connection went to a node.
    pub fn went(&self, client: SocketAddr, to: Whereabouts) {
        self.lock().insert(canonical(client), to);
    }

    /// It is this node's again, or gone.
    pub fn left(&self, client: SocketAddr) {
        self.lock().remove(&canonical(client));
    }

    pub fn of(&self, client: SocketAddr) -> Option<Whereabouts> {
        self.lock().get(&canonical(client)).copied()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Whereabouts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn canonical(client: SocketAddr) -> SocketAddr {
    SocketAddr::new(client.ip().to_canonical(), client.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_found_until_it_is_back() {
        let (table, client) = (AwayTable::default(), |text: &str| {
            text.parse().expect("an address")
        });
        let at = |node| Whereabouts { node, moves: 3 };
        table.went(client("[::ffff:192.0.2.1]:4242"), at(1));
        table.went(client("192.0.2.1:4243"), at(2));
        assert_eq!(table.of(client("192.0.2.1:4242")), Some(at(1)));
        table.left(client("192.0.2.1:4242"));
        assert_eq!(table.of(client("192.0.2.1:4242")), None);
        assert_eq!(table.of(client("192.0.2.1:4243")), Some(at(2)));
    }
}
