//! A connection's share of the send memory, where that is divided ([`crate::sndbuf::pool`]): it has one from the first
//! byte of a response until its client has everything.

use super::messages::Out;
use super::{Conn, Worker};
use crate::conn::ConnId;
use crate::sndbuf::Pace;
use crate::sndbuf::bound::Grant;

/// A connection with a share, for who divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Which.
    pub conn: ConnId,
    /// A response is under way.
    pub is_sending: bool,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// What sets its client's pace.
    pub pace: Pace,
}

impl Sender {
    /// `None`: the connection has no share.
    fn of(conn: &Conn) -> Option<Sender> {
        let queue = &conn.output.send_queue;
        conn.output.has_share.then(|| Sender {
            conn: conn.id,
            is_sending: conn.stream.is_some(),
            rate_bytes_per_s: queue.rate_bytes_per_s(),
            pace: match queue.is_own_pace() {
                true => Pace::Client,
                false => Pace::Path,
            },
        })
    }
}

impl Worker {
    /// The connections with a share, in the order of their slots, from slot `from` on.
    pub fn senders(&self, from: u32) -> impl Iterator<Item = Sender> {
        self.table.from(from).filter_map(Sender::of)
    }

    /// A connection with a share; `None` if it has none, or is gone.
    pub fn sender(&self, id: ConnId) -> Option<Sender> {
        self.table.get(id).and_then(Sender::of)
    }

    /// A response begins. A unix socket has no share: its client is on this machine, and TCP counts nothing for it.
    pub(super) fn join(&mut self, id: ConnId) {
        let Some(share_bytes) = self.start_share_bytes else {
            return;
        };
        let conn = self.table.get_mut(id);
        let Some(conn) = conn.filter(|conn| conn.admitted.address.is_some()) else {
            return;
        };
        if core::mem::replace(&mut conn.output.has_share, true) {
            return; // its client has not yet got the response before
        }
        let grant = Grant {
            share_bytes,
            ..Grant::default()
        };
        conn.output.send_queue.share(Some(grant));
        self.outs.push_back(Out::Share {
            conn: id,
            grant: Some(grant),
            joins: true,
        });
    }

    /// The level of its socket, unsent and in flight, before it is offered more.
    pub(super) fn socket_level(&mut self, id: ConnId, held_bytes: u64) {
        if let Some(conn) = self.table.get_mut(id) {
            conn.output.send_queue.socket_level(held_bytes);
        }
    }

    /// Its share is taken back, unless its socket holds something: another response has begun since it was sampled,
    /// and the next sample will tell.
    pub(super) fn no_share(&mut self, id: ConnId, held_bytes: u64) {
        if held_bytes == 0 {
            self.share(id, None);
        }
    }

    /// Its share has changed; `None`: it has none.
    pub(super) fn share(&mut self, id: ConnId, grant: Option<Grant>) {
        let Some(conn) = self.table.get_mut(id) else {
            return;
        };
        if !conn.output.has_share {
            return; // a late one
        }
        conn.output.has_share = grant.is_some();
        let pause_us_max = grant.map_or(u64::MAX, |grant| grant.pause_us_max);
        conn.timeouts.pause_at_most(pause_us_max);
        conn.output.send_queue.share(grant);
        self.outs.push_back(Out::Share {
            conn: id,
            grant,
            joins: false,
        });
        // Whoever divides has not heard yet that a response has begun.
        let begins = conn.stream.is_some() && grant.is_none();
        if begins {
            self.join(id);
        }
    }
}
