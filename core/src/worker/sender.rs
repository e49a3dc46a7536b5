//! The cap of a socket, where send memory is divided: it has one from the first byte of a response until its client has
//! everything. Who divides knows why it is as large as it is; here it is a number.

use super::messages::Out;
use super::{Conn, Worker};
use crate::conn::ConnId;

/// A connection with a cap, for who divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Which.
    pub conn: ConnId,
    /// A response is under way.
    pub is_sending: bool,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// Its client reads at a pace of its own, more slowly than its path delivers.
    pub is_own_pace: bool,
}

impl Sender {
    /// `None`: the connection has no cap.
    fn of(conn: &Conn) -> Option<Sender> {
        let queue = &conn.output.send_queue;
        conn.output.is_capped.then(|| Sender {
            conn: conn.id,
            is_sending: conn.stream.is_some(),
            rate_bytes_per_s: queue.rate_bytes_per_s(),
            is_own_pace: queue.is_own_pace(),
        })
    }
}

impl Worker {
    /// The connections with a cap, in the order of their slots, from slot `from` on.
    pub fn senders(&self, from: u32) -> impl Iterator<Item = Sender> {
        self.table.from(from).filter_map(Sender::of)
    }

    /// A connection with a cap; `None` if it has none, or is gone.
    pub fn sender(&self, id: ConnId) -> Option<Sender> {
        self.table.get(id).and_then(Sender::of)
    }

    /// A response begins. A unix socket has no cap: its client is on this machine, and TCP counts nothing for it.
    pub(super) fn join(&mut self, id: ConnId) {
        let Some(cap_bytes) = self.start_cap_bytes else {
            return;
        };
        let conn = self.table.get_mut(id);
        let Some(conn) = conn.filter(|conn| conn.admitted.address.is_some()) else {
            return;
        };
        // If it has one, its client has not yet got the response before.
        if !conn.output.is_capped {
            conn.output.is_capped = true;
            conn.output.send_queue.cap(Some(cap_bytes));
            self.outs.push_back(Out::Cap {
                conn: id,
                cap_bytes,
            });
        }
    }

    /// The level of its socket, unsent and in flight, before it is offered more.
    pub(super) fn socket_level(&mut self, id: ConnId, held_bytes: u64) {
        if let Some(conn) = self.table.get_mut(id) {
            conn.output.send_queue.socket_level(held_bytes);
        }
    }

    /// Its cap has changed. It keeps the one that it has if there shall be none and another response has begun: who divides
    /// will see that.
    pub(super) fn cap(&mut self, id: ConnId, cap_bytes: Option<u64>) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        let begins = cap_bytes.is_none() && conn.stream.is_some();
        if conn.output.is_capped && !begins {
            conn.output.is_capped = cap_bytes.is_some();
            conn.output.send_queue.cap(cap_bytes);
        }
    }
}
