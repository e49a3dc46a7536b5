//! A worker's side of hints ([`crate::hints`]): it notes the sockets of connections that a disk reads for, and lets hints of
//! them in by the one door.

use std::sync::Arc;

use ackpace_core::conn::ConnId;
use ackpace_core::hints::HintKind;
use ackpace_core::units::Instant;
use rustix::event::epoll::EventFlags;

use super::Worker;
use super::conns::Conn;
use super::events::EventSource;
use crate::clock::monotonic_ns;
use crate::hints::ConnHint;
use crate::limits::TCP_HINTS_PER_TURN_MAX;

impl Worker {
    /// Takes what was said of this worker's connections.
    pub(super) fn hear_hints(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let Some(hints) = &shared.hints else {
            return;
        };
        for _ in 0..TCP_HINTS_PER_TURN_MAX {
            let Some(hint) = hints.take(self.index) else {
                return;
            };
            self.hinted(hint, now);
        }
        self.waker.wake(); // there may be more
    }

    /// A hint is no proof. Of congestion the machine asks TCP_INFO before it believes it; a reset is looked for here.
    fn hinted(&mut self, hint: ConnHint, now: Instant) {
        let conn = self.conns.get(hint.conn);
        let source = conn.and_then(|conn| match hint.kind {
            HintKind::Reset => {
                let dead = conn.transport.is_dead();
                dead.then_some(EventSource::Epoll(EventFlags::ERR))
            }
            HintKind::Cwr | HintKind::Recovery | HintKind::Timeout => Some(EventSource::Hint),
        });
        let Some(source) = source else {
            return self.tally.void_tcp_events.add(1);
        };
        tracing::debug!(conn = ?hint.conn, late_us = monotonic_ns().saturating_sub(hint.at_ns) / 1_000,
                        "ackpace-host tells of {}", hint.kind.name());
        self.tally.tcp_events[hint.kind as usize].add(1);
        self.tcp_event(hint.conn, &source, now);
    }

    /// A disk reads for a connection: from now on, hints of its socket are wanted.
    pub(super) fn want_hints(&mut self, id: ConnId) {
        let hints = self.shared.hints.as_ref();
        let Some(hints) = hints.filter(|hints| hints.is_heard()) else {
            return;
        };
        let Some(conn) = self.conns.get(id).filter(|conn| !conn.noted) else {
            return;
        };
        if let Some(cookie) = conn.transport.cookie() {
            conn.noted = hints.note(self.index, id, cookie);
        }
    }

    /// A connection is closed.
    pub(super) fn unnote(&self, conn: &Conn) {
        if let Some(hints) = self.shared.hints.as_ref().filter(|_| conn.noted) {
            hints.forget(self.index, conn.id);
        }
    }
}
