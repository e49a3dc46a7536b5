//! Connections that the machine gives away, and that come back to it; and what it tells the log of ended responses.

use ackpace_core::conn::{ConnId, StreamId};
use ackpace_core::why::Why;
use ackpace_core::worker::{Exported, In, LocalFile, Outcome, Stage};

use super::acts::OUTS_MAX;
use super::client::{Away, Untold};
use super::response::Response;
use super::share::SocketShare;
use super::shell::Run;

impl Run<'_> {
    /// Somebody wants this connection, or one comes back.
    pub fn act_of_moves(&mut self) {
        if !self.away.is_empty() {
            self.adopt();
        } else if let Some(conn) = self.someone() {
            let unacked_bytes = self.client(conn).map(|client| client.unacked_bytes);
            let unacked_bytes = unacked_bytes.filter(|_| self.input.once_in(2));
            self.on(In::Export {
                conn,
                unacked_bytes,
            });
            self.obey_worker(OUTS_MAX); // it is answered in this turn
        }
    }

    /// Nothing is left here of a connection that leaves, but what goes along.
    pub fn exported(&mut self, conn: ConnId, exported: Box<Exported<LocalFile>>) {
        self.release_all(conn);
        let client = self.clients[conn.index as usize].take();
        let mut client = client.expect("an export of the living");
        assert!(!client.fin && !client.shut, "a half-closed one");
        assert!(client.untold.is_empty(), "never told to the log");
        assert!(!client.has_want);
        assert!(client.resolving.is_none(), "nobody would resolve it");
        let acked_bytes = exported.acked_bytes;
        assert!(acked_bytes <= exported.given_bytes - client.unacked_bytes);
        assert_eq!(exported.given_bytes, client.given_bytes());
        match (&exported.stage, &client.response) {
            (Stage::Response(cursor), Some((_, response))) => {
                assert_eq!(cursor.sent_bytes, response.sent_bytes);
            }
            (Stage::Response(_), None) | (_, Some(_)) => panic!("{exported:?}"),
            _ => {}
        }
        let costly = client.share.costly;
        client.share = SocketShare::default();
        client.share.costly = costly;
        self.generations[conn.index as usize] += 1;
        self.away.push(Away { client, exported });
    }

    /// A connection that is away comes to this machine; `false` if there is none, or no room.
    pub fn adopt(&mut self) -> bool {
        let place = self.clients.iter().position(Option::is_none);
        let place = place.filter(|_| self.worker.room() > 0);
        let Some((index, mut away)) = place.and_then(|index| Some((index, self.away.pop()?)))
        else {
            return false;
        };
        let conn = self.conn_at(index);
        let address = away.client.address;
        let client = &mut away.client;
        (client.id, client.awaits_writable) = (conn, false); // as far as the machine knows
        if let Some((stream, _)) = &mut client.response {
            stream.conn = conn;
            client.share.owed = self.divides && address.is_some();
        }
        self.clients[index] = Some(away.client);
        self.counts.moved += 1;
        self.on(In::Adopt {
            conn,
            address,
            exported: away.exported,
        });
        true
    }

    /// The worker tells the log of a response what its client has of it.
    pub fn told(&mut self, stream: StreamId, outcome: Outcome) {
        let client = self.client(stream.conn).expect("told before it closes");
        let nth = client.untold.iter().position(|of| of.stream == stream);
        let Untold { response, .. } = client.untold.remove(nth.expect("told once, when ended"));
        let end_bytes = response.start_bytes + response.sent_bytes;
        let body_from_bytes = response.start_bytes + response.plan.head_len_bytes;
        let acked_bytes = client.acked_bytes.min(end_bytes);
        let sent_bytes = end_bytes.saturating_sub(body_from_bytes);
        assert_eq!(outcome.sent_bytes, sent_bytes, "{outcome:?}");
        assert!(outcome.acked_bytes <= acked_bytes.saturating_sub(body_from_bytes));
        let done = outcome.why == Why::Done;
        // A reset may come before the worker has seen that the last byte was sent.
        let judged = done == response.is_whole() || client.reset && !done;
        assert!(judged, "{outcome:?}");
        assert!(!outcome.whole || acked_bytes == end_bytes, "{outcome:?}");
    }

    /// A response has ended; the log may be told later.
    pub fn untold(&mut self, stream: StreamId, response: Response) {
        if self.logs {
            let client = self.client(stream.conn).expect("it has ended");
            client.untold.push(Untold { stream, response });
        }
    }
}
