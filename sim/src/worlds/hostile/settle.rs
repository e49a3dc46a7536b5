//! The end of a run: nothing fails any more, and every part does its pending work. Threads wake only for what wakes the
//! threads of the server.

use ackpace_core::Machine;
use ackpace_core::conn::TcpEvent;
use ackpace_core::units::Instant;
use ackpace_core::worker::Census;

use super::disk_thread::Fate;
use super::shell::Run;

/// Rounds without any progress after which the run has stalled: more than any timer needs.
const ROUNDS_MAX: u32 = 3_000;
/// Rounds until shares are widened: with small shares, long responses would need thousands of rounds.
const WIDER_EACH: u32 = 64;
/// Time from one round to the next where send memory is divided. A timer fills a socket only where shares last some time.
const ROUND_US: u64 = 20_000;

impl Run<'_> {
    /// Sends all that was asked for. Then all clients leave, and nothing may be kept.
    ///
    /// # Panics
    /// If a stream stalls for ever, or something is kept.
    pub fn settle(&mut self) {
        self.trace.note(self.now, "settle", &());
        for client in self.clients.iter_mut().flatten() {
            client.fails_next = false;
        }
        while self.adopt() {}
        self.away.clear(); // the machine is full
        self.until("is not served", |run| run.is_served());
        self.unshare_idle();
        let clients: Vec<_> = self.clients.iter_mut().flatten().collect();
        let mut leaving = Vec::new();
        for client in clients {
            client.fin = true;
            leaving.push(client.id);
        }
        self.backlog = 0;
        for conn in leaving {
            self.tcp(conn, TcpEvent::Fin);
        }
        self.until("is not closed", |run| {
            run.clients.iter().all(Option::is_none)
        });
        self.check_empty();
    }

    fn is_served(&self) -> bool {
        let mut clients = self.clients.iter().flatten();
        clients.all(|client| {
            client.response.is_none()
                && client.resolving.is_none()
                && (client.input.is_empty() && client.body_bytes == 0 || client.torn)
        })
    }

    fn until(&mut self, what: &str, done: impl Fn(&Run<'_>) -> bool) {
        let (mut rounds, mut before) = (0, self.progress);
        for nth in 1.. {
            if done(self) {
                return;
            }
            if nth % WIDER_EACH == 0 {
                self.widen_shares();
            }
            if self.divided {
                self.now = self.now.plus_us(ROUND_US);
            }
            if !self.round() {
                let next = [self.worker.deadline(), self.disk_thread.disk.deadline()];
                let next = next.into_iter().flatten().min();
                assert!(next.is_some(), "who {what} waits for nothing, for ever");
                let soon = Instant {
                    us: self.now.us + 1,
                };
                self.now = next.unwrap_or_default().max(soon);
            }
            self.check();
            rounds = if self.progress == before {
                rounds + 1
            } else {
                0
            };
            before = self.progress;
            assert!(rounds < ROUNDS_MAX, "somebody {what}, for ever");
        }
    }

    /// Every part does its pending work; `false` if there was none.
    fn round(&mut self) -> bool {
        let mut busy = false;
        let conns: Vec<_> = self
            .clients
            .iter()
            .flatten()
            .map(|client| client.id)
            .collect();
        for conn in conns {
            busy |= self.client_turn(conn);
        }
        if self.worker_woken || is_due(self.worker.deadline(), self.now) {
            self.worker_turn();
            busy = true;
        }
        while self.map_one() {}
        if let Some(read) = self.disk_thread.reads.keys().next().copied() {
            self.read_done(read, Fate::Whole);
            self.disk_turn();
            busy = true;
        }
        if self.disk_thread.woken || is_due(self.disk_thread.disk.deadline(), self.now) {
            self.disk_turn();
            busy = true;
        }
        busy
    }

    /// A client takes what its socket has; `false` if there was nothing.
    fn client_turn(&mut self, conn: ackpace_core::conn::ConnId) -> bool {
        let Some(client) = self.client(conn) else {
            return false;
        };
        client.window_closed = false;
        let slicing = client.response.as_ref().is_some_and(|(_, r)| r.slicing);
        let share = if client.share.costly { 2 } else { 1 };
        let busy = client.awaits_writable
            || client.unacked_bytes > 0
            || client.resolving.is_some()
            || slicing;
        self.acknowledge(conn, share);
        self.resolve(conn);
        self.slice(conn, false);
        busy
    }

    /// Checks that nothing is kept after the last client has left.
    fn check_empty(&mut self) {
        // Reads under way come back, and so do those made for clients that have left since, when they are due.
        for _ in 0..ROUNDS_MAX {
            self.worker_turn();
            while self.map_one() {}
            self.disk_turn();
            while let Some(read) = self.disk_thread.reads.keys().next().copied() {
                self.read_done(read, Fate::Whole);
            }
            if self.disk_thread.disk.load().streams == 0 {
                break;
            }
            self.now = self.now.plus_us(self.now.us); // for a byte a second, much may be due late
        }
        assert_eq!(self.worker.connections(), 0);
        assert_eq!(self.worker.census(self.now), Census::default());
        assert_eq!(
            self.worker.counts().mended,
            0,
            "forgotten, until a watch saw it"
        );
        assert!(
            self.disk_thread.reads.is_empty(),
            "reads for nobody, without end"
        );
        assert_eq!(self.disk_thread.used, 0, "slots are lost");
        assert_eq!(
            self.disk_thread.disk.load().streams,
            0,
            "a stream that has left"
        );
        assert!(
            self.disk_thread.disk.idle(),
            "the disk machine keeps something"
        );
    }
}

fn is_due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}
