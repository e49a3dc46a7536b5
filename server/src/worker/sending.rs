//! Sending: what the machine orders, offered to a socket (`transmit`), and what came of it.

use ackpace_core::conn::{Held, Part, Span, StreamId};
use ackpace_core::machine::Machine;
use ackpace_core::send::Refill;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::In;
use rustix::event::epoll;

use super::events::EventSource;
use super::transmit::{Cached, Promised, Sent, send_cached, send_pieces, send_texts};
use super::{INTEREST, Worker, data_of};
use crate::tally::SendPath;

/// Bytes of a response that a socket is to be offered.
pub(super) struct Order {
    pub stream: StreamId,
    /// Of which part of its plan.
    pub part: u16,
    /// Which bytes of that.
    pub span: Span,
    /// What holds them.
    pub held: Held,
    /// More follows.
    pub more: bool,
    /// The kernel says again and again that they are missing, just after they were read: a read that never waits decides.
    pub unconfirmed: bool,
    /// How it is filled; `None`: it takes what it likes.
    pub refill: Option<Refill>,
}

/// An attempt to send, for who reports it.
struct Attempt {
    sent: Sent,
    way: SendPath,
    /// Where in the part, or in the file, the bytes lie.
    at_bytes: u64,
}

impl Worker {
    pub(super) fn send(&mut self, order: &Order, now: Instant) {
        let Some(attempt) = self.attempt(order, now) else {
            return;
        };
        let stream = order.stream;
        let event = match attempt.sent {
            Sent::Taken {
                taken_bytes,
                blocked,
            } => self.taken(order, attempt.way, taken_bytes, blocked),
            Sent::Broken(why) => {
                self.tell_broken(stream, attempt.at_bytes, why);
                In::Failed { stream, why }
            }
            Sent::Missing => In::Missing { stream },
            Sent::Reset => {
                return self.tcp_event(stream.conn, &EventSource::SocketError, now);
            }
        };
        self.decider.on(event, now);
    }

    /// Offer the bytes to the socket, and never more than the head promises; `None` if their response is gone.
    fn attempt(&mut self, order: &Order, now: Instant) -> Option<Attempt> {
        let (mut span, held, more) = (order.span, order.held, order.more);
        let conn = self.conns.get(order.stream.conn)?;
        let plan = self.decider.plan(order.stream)?;
        let part = plan.parts.get(usize::from(order.part))?;
        if let Some(owed_bytes) = conn.owed_bytes {
            debug_assert!(span.len_bytes <= owed_bytes, "more than was promised");
            span.len_bytes = span.len_bytes.min(owed_bytes);
        }
        if let Some(refill) = order.refill {
            conn.set_lowat(refill.lowat_bytes);
        }
        let way = way_of(part, held, conn.ready);
        let at_bytes = match part {
            Part::Body { span: body, .. } => body.offset_bytes + span.offset_bytes,
            Part::Bytes(_) | Part::Slices => span.offset_bytes,
        };
        // What fills the socket has to leave at once: on loopback a segment may hold a second of what its client takes.
        let fills = (order.refill).is_some_and(|refill| span.len_bytes >= refill.bytes);
        if more && !fills && matches!(part, Part::Body { .. }) {
            conn.cork(); // sendfile(2) has no MSG_MORE: each window would end in a small segment
        }
        let sent = match (part, &conn.source) {
            (Part::Bytes(_), _) => send_texts(&conn.transport, plan.texts(order.part), span, more),
            (Part::Slices, _) => send_texts(
                &conn.transport,
                std::iter::once(&conn.slice[..]),
                span,
                more,
            ),
            (
                Part::Body {
                    version, promise, ..
                },
                Some(source),
            ) => {
                let span = Span {
                    offset_bytes: at_bytes,
                    ..span
                };
                let of = Promised {
                    source,
                    version,
                    promise: *promise,
                    proven: conn.proven.take(),
                    now,
                    clock: self.shared.clock,
                };
                match held {
                    Held::PageCache => {
                        conn.refers = true;
                        let cached = Cached {
                            of,
                            // What fills a socket leaves whole, or its last segment would be a short one.
                            span: if fills { span } else { conn.reach.of(span) },
                            sure: conn.sure,
                            unconfirmed: order.unconfirmed,
                        };
                        send_cached(&conn.transport, &cached, &mut conn.reach, &mut self.copied)
                    }
                    Held::Slots => {
                        // A response that the file's change has reached must not end as if it were whole.
                        let prove_again = conn.refers;
                        for piece in conn.pieces.iter_mut().filter(|_| prove_again) {
                            piece.proven = false;
                        }
                        send_pieces(&conn.transport, &mut conn.pieces, &of, span)
                    }
                }
            }
            (Part::Body { .. }, None) => Sent::Broken(Why::ReadFailed),
        };
        if let (Sent::Taken { taken_bytes, .. }, Some(owed_bytes)) = (&sent, &mut conn.owed_bytes) {
            *owed_bytes = owed_bytes.saturating_sub(*taken_bytes);
        }
        Some(Attempt {
            sent,
            way,
            at_bytes,
        })
    }

    /// What the socket took, for the machine and for who watches. A full socket is told when to call.
    fn taken(&mut self, order: &Order, way: SendPath, taken_bytes: u64, blocked: bool) -> In {
        let full = blocked
            || order
                .refill
                .is_some_and(|refill| taken_bytes >= refill.bytes);
        let within_body = order.more && matches!(way, SendPath::Sendfile | SendPath::Direct);
        let mut unsent_bytes = None;
        if let Some(conn) = self.conns.get(order.stream.conn) {
            if let Some(refill) = order.refill.filter(|_| full) {
                conn.set_lowat(2 * refill.call_bytes);
                conn.uncork();
                if !blocked {
                    self.budget.topped_up(taken_bytes);
                    // A socket calls only after it has refused something. Being asked by epoll and saying no is that, too.
                    let _ = epoll::modify(&self.epoll, &conn.transport, data_of(conn.id), INTEREST);
                }
            }
            if full || within_body {
                unsent_bytes = conn.transport.unsent().map(|unsent| unsent.0);
            }
        }
        self.budget.took(taken_bytes);
        self.tally.sent_bytes[way as usize].add(taken_bytes);
        if blocked {
            let none = taken_bytes == 0;
            self.tally.sends_refused.add(none.into());
            self.tally.sends_cut.add((!none).into());
        }
        In::Sent {
            stream: order.stream,
            taken_bytes,
            full,
            unsent_bytes,
        }
    }

    fn tell_broken(&mut self, stream: StreamId, at_bytes: u64, why: Why) {
        let conn = self.conns.get(stream.conn);
        if let Some(source) = conn.and_then(|conn| conn.source.as_ref()) {
            let file = self.shared.site.shown(source.path());
            tracing::error!(
                file,
                at_bytes,
                "{why}: the response ends before its last byte"
            );
        }
    }
}

/// The way that bytes of this part take; `ready`: the response is a cached one.
fn way_of(part: &Part, held: Held, ready: bool) -> SendPath {
    match (part, held) {
        (Part::Body { .. }, Held::Slots) => SendPath::Direct,
        (Part::Body { .. }, Held::PageCache) => SendPath::Sendfile,
        (Part::Bytes(_), _) if ready => SendPath::ResponseCache,
        (Part::Bytes(_) | Part::Slices, _) => SendPath::Made,
    }
}
