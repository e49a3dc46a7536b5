//! The input divides the send memory: any share for any connection at any time.

use ackpace_core::conn::{ConnId, TcpEvent};
use ackpace_core::units::MIB;
use ackpace_core::worker::{In, Sender};
use ackpace_share::bound::Grant;

use super::client::PLACES;
use super::input::Input;
use super::settings::share_bytes;
use super::shell::Run;

impl Run<'_> {
    /// A connection that is there, was there, or never will be.
    fn anyone(&mut self) -> ConnId {
        let index = self.input.below(u64::from(PLACES) + 1) as u32;
        let generation = self.generations.get(index as usize).copied().unwrap_or(0);
        let apart = self.input.pick(&[0, 0, 0, 0, 0, u32::MAX, 1]);
        ConnId {
            index,
            generation: generation.wrapping_add(apart),
        }
    }

    /// Something happens to the send memory.
    pub fn act_of_shares(&mut self) {
        let what = self.input.below(8);
        let conn = self.anyone();
        let held_bytes = self.client(conn).map_or(0, |client| client.unacked_bytes);
        match what {
            1 => {
                let share_bytes = share_bytes(&mut self.input);
                self.start_share(share_bytes);
            }
            2 => self.unshare_idle(),
            3 => {
                let grant = grant(&mut self.input, held_bytes / 2); // less than is in flight
                self.share(conn, grant);
            }
            _ => {
                let share_bytes = share_bytes(&mut self.input);
                let grant = grant(&mut self.input, share_bytes);
                self.share(conn, grant);
                if what == 7 {
                    self.share(conn, grant);
                }
            }
        }
    }

    /// Send memory is divided from now on.
    pub fn start_share(&mut self, cap_bytes: u64) {
        self.divides = true;
        self.trace.note(self.now, "start", &cap_bytes);
        self.on(In::StartCap { cap_bytes });
    }

    /// A connection has another share, as `server/src/worker/divide.rs` hears of it. Setting SO_SNDBUF has the kernel check whether
    /// it is writable.
    fn share(&mut self, conn: ConnId, grant: Grant) {
        self.trace.note(self.now, "share", &(conn, grant));
        let Some(client) = self.client(conn) else {
            return;
        };
        if client.share.bound.is_none() {
            return; // a late one
        }
        let changes = client.share.hold(grant);
        let becomes_writable = changes && client.awaits_writable && client.is_writable();
        client.awaits_writable &= !becomes_writable;
        let bound = client.share.bound;
        if becomes_writable {
            self.tcp(conn, TcpEvent::Writable);
        }
        let cap_bytes = bound.map(|bound| bound.share_bytes());
        self.on(In::Cap { conn, cap_bytes });
    }

    /// A connection has no share any more, unless its socket holds something or another response has begun.
    fn unshare(&mut self, conn: ConnId) {
        self.trace.note(self.now, "no share", &conn);
        let client = self.client(conn);
        if client.is_none_or(|client| client.share.bound.is_none() || client.unacked_bytes > 0) {
            return;
        }
        let cap_bytes = None;
        self.on(In::Cap { conn, cap_bytes });
        if self.worker.sender(conn).is_none() {
            self.counts.taken_back += 1;
            if let Some(client) = self.client(conn) {
                client.share.end();
            }
        }
    }

    /// Nobody whose socket is empty has a share any more.
    pub fn unshare_idle(&mut self) {
        let living = self.clients.iter().flatten().map(|client| client.id);
        let living: Vec<_> = living.collect();
        living.into_iter().for_each(|conn| self.unshare(conn));
    }

    /// All who send get a share with which they are soon done.
    pub fn widen_shares(&mut self) {
        if !self.divided {
            return;
        }
        let senders: Vec<Sender> = self.worker.senders(0).collect();
        for sender in senders {
            self.share(sender.conn, Grant::start(MIB));
        }
    }

    /// A response begins, with this cap.
    pub fn join(&mut self, conn: ConnId, cap_bytes: u64) {
        if let Some(client) = self.client(conn) {
            client.share.hold(Grant::start(cap_bytes));
        }
    }
}

fn grant(input: &mut Input<'_>, share_bytes: u64) -> Grant {
    Grant {
        share_bytes,
        segment_bytes: input.pick(&[1_448, 1_448, 536, 70_000, 0, u64::MAX]),
        division: input.below(4),
    }
}
