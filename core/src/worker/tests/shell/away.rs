//! Connections that are given away, and those that come back.

use super::super::*;
use super::Shell;
use super::clients::{Client, Response};

/// A connection without a machine: what its shells send each other.
pub struct Away {
    client: Client,
    response: Option<Response>,
    exported: Box<Exported<LocalFile>>,
}

impl Shell {
    /// Somebody wants this connection. The kernel may know what its client has acknowledged.
    pub fn export(&mut self, conn: ConnId) {
        let unacked_bytes = self.clients[&conn].unacked_bytes;
        let unacked_bytes = (self.dice.below(2) == 0).then_some(unacked_bytes);
        self.on(In::Export {
            conn,
            unacked_bytes,
        });
    }

    /// Nothing is left of it here but what goes along.
    pub(super) fn exported(&mut self, conn: ConnId, exported: Box<Exported<LocalFile>>) {
        let client = self.clients.remove(&conn).expect("an export of the living");
        assert!(!client.fin || self.mishaps, "a half-closed one");
        let other = |stream: &StreamId| stream.conn != conn;
        assert!(self.untold.keys().all(other), "never told to the log");
        assert!(self.wants.iter().all(other) && self.leases.keys().all(other));
        assert!(self.resolving.keys().all(other) && self.listings.iter().all(other));
        let nth = exported.nth;
        let response = self.responses.remove(&stream_id(conn, nth));
        assert_eq!(exported.given_bytes, client.taken_bytes);
        assert!(exported.acked_bytes <= client.taken_bytes - client.unacked_bytes);
        match (&exported.stage, &response) {
            (Stage::Response(cursor), Some(response)) => {
                assert_eq!(cursor.sent_bytes, response.sent_bytes);
            }
            (Stage::Response(_), None) | (_, Some(_)) => panic!("{exported:?}"),
            _ => {}
        }
        self.away.push(Away {
            client,
            response,
            exported,
        });
    }

    /// A connection that is away comes (back) to this machine.
    pub fn adopt(&mut self) {
        if self.worker.room() == 0 {
            return;
        }
        let Some(away) = self.away.pop() else {
            return;
        };
        let (conn, nth) = (self.place(), away.exported.nth);
        let client = Client {
            full: false, // as far as the machine knows
            ..away.client
        };
        self.clients.insert(conn, client);
        if let Some(response) = away.response {
            self.responses.insert(stream_id(conn, nth), response);
        }
        self.on(In::Adopt {
            conn,
            address: None,
            exported: away.exported,
        });
    }
}
