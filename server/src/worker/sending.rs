//! Sending: the last door. What the machine orders is offered to a socket, never more than the head promises, and the
//! machine is told what came of it. Bytes are in slots, into which their disk read them; in texts, such as heads; or in
//! the page cache ([`cached`]).

mod cached;
mod slots;

use std::collections::VecDeque;
use std::io::IoSlice;

use ackpace_core::conn::{Held, Part, Promise, Span, StreamId, Version};
use ackpace_core::machine::Machine;
use ackpace_core::residency::Confirmation;
use ackpace_core::send::Refill;
use ackpace_core::sndbuf::depletion::Lasts;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::In;
use rustix::event::epoll;
use rustix::io::Errno;

use self::cached::{Cached, send_cached};
use self::slots::{release_until, slices_of};
use super::Worker;
use super::conns::Conn;
use super::events::{EventSource, INTEREST, data_of};
use super::source::Source;
use crate::clock::Clock;
use crate::disk::SlotBytes;
use crate::limits::TEXTS_MAX;
use crate::sched::Sleeps;
use crate::store::file::Holds;
use crate::tally::SendPath;
use crate::transport::Transport;

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
    /// How much the socket should take and when it becomes writable again; `None`: the kernel decides both.
    pub refill: Option<Refill>,
}

/// Bytes of a file that are to be sent, and what the response promises of it.
struct Body {
    version: Version,
    promise: Promise,
    /// In the file.
    span: Span,
    /// They fill the socket to its target, or to its share of the send memory.
    fills: bool,
}

/// An attempt to send, for who reports it.
struct Attempt {
    sent: Sent,
    path: SendPath,
    /// Its share of the send memory has no room for more.
    bounded: bool,
    /// What the socket held before, if it has a share.
    held_bytes: Option<u64>,
    /// Where in the part, or in the file, the bytes lie.
    at_bytes: u64,
}

/// Whether a socket takes more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// As far as is known.
    Open,
    /// It refused some, and will call.
    Blocked,
    /// Its share of the send memory has no room for more.
    Bounded,
}

/// What came of an attempt to send.
enum Sent {
    Taken {
        taken_bytes: u64,
        blocked: bool,
    },
    /// The file is not what was promised, or can't be read.
    Broken(Why),
    /// The first byte is not in memory, or not yet: sending it would wait for the disk. Or its file is being written in this
    /// moment.
    Missing,
    /// The connection is dead.
    Reset,
}

/// The source of a body, and the version of it that a response promises.
struct Promised<'a> {
    source: &'a Source,
    version: &'a Version,
    promise: Promise,
    /// It was found to be that version, while its response was made: in the same turn it is not asked about again.
    proven: Option<Confirmation>,
    turn: Turn<'a>,
}

/// The turn in which something is sent.
#[derive(Clone, Copy)]
struct Turn<'a> {
    began: Instant,
    clock: Clock,
    sleeps: &'a Sleeps,
}

impl<'a> Turn<'a> {
    fn new(began: Instant, clock: Clock, sleeps: &'a Sleeps) -> Turn<'a> {
        Turn {
            began,
            clock,
            sleeps,
        }
    }
}

impl Promised<'_> {
    /// Whether its bytes may be sent as those of the promised version, asked now.
    fn checked(&self) -> Holds {
        self.source
            .holds(self.version, self.promise, self.turn.began)
    }

    /// The same; not asked again if it was found so in this turn.
    fn holds(&self) -> Holds {
        match self.proven {
            Some(found) if self.still(found) => Holds::Yes,
            _ => self.checked(),
        }
    }

    /// Whether what was found in this turn may still be relied on.
    fn still(&self, found: Confirmation) -> bool {
        found.holds(self.turn.began, self.turn.clock.now())
    }
}

impl Worker {
    pub(super) fn send(&mut self, order: &Order, now: Instant) {
        let Some(attempt) = self.attempt(order, now) else {
            return;
        };
        let stream = order.stream;
        if let Some(conn) = self.conns.get(stream.conn) {
            conn.settle(&mut self.reserve);
        }
        if let Some(held_bytes) = attempt.held_bytes {
            let conn = stream.conn;
            self.decider.on(In::Holds { conn, held_bytes }, now);
        }
        let event = match attempt.sent {
            Sent::Taken {
                taken_bytes,
                blocked,
            } => {
                let end = match (blocked, attempt.bounded) {
                    (true, _) => End::Blocked,
                    (false, true) => End::Bounded,
                    (false, false) => End::Open,
                };
                let (sent, lasts) = self.taken(order, attempt.path, (taken_bytes, end), now);
                self.decider.on(sent, now);
                let conn = stream.conn;
                match lasts {
                    Some(lasts) => In::ShareLasts { conn, lasts },
                    None => return,
                }
            }
            Sent::Broken(why) => {
                self.tell_broken(stream, attempt.at_bytes, why, now);
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
        let (mut span, held, mut more) = (order.span, order.held, order.more);
        let conn = self.conns.get(order.stream.conn)?;
        let plan = self.decider.plan(order.stream)?;
        let part = plan.parts.get(usize::from(order.part))?;
        if let Some(owed_bytes) = conn.owed_bytes {
            debug_assert!(span.len_bytes <= owed_bytes, "more than was promised");
            span.len_bytes = span.len_bytes.min(owed_bytes);
        }
        let room = conn.room(span.len_bytes, &mut self.reserve, now);
        let held_bytes = room.as_ref().map(|room| room.held_bytes);
        (self.tally.lent_bytes).add(room.as_ref().map_or(0, |room| room.lent_bytes));
        let room_bytes = room.map_or(u64::MAX, |room| room.room_bytes);
        let bounded = span.len_bytes > room_bytes || more && span.len_bytes == room_bytes;
        span.len_bytes = span.len_bytes.min(room_bytes);
        more &= !bounded;
        if let Some(refill) = order.refill {
            conn.set_lowat_for(refill);
        }
        let path = send_path(part, held, conn.ready);
        let at_bytes = at_bytes(part, span);
        let of = |sent, bounded| Attempt {
            sent,
            path,
            bounded,
            held_bytes,
            at_bytes,
        };
        if room_bytes == 0 {
            return Some(of(NOTHING, bounded));
        }
        // A send that fills the socket is not corked: TCP_CORK would hold back its last segment for up to 200 ms. On
        // loopback a segment may hold a second of what its client takes.
        let fills = bounded || (order.refill).is_some_and(|refill| span.len_bytes >= refill.bytes);
        if more && !fills && matches!(part, Part::Body { .. }) {
            conn.cork(); // sendfile(2) has no MSG_MORE: each window would end in a small segment
        }
        let sent = match part {
            Part::Bytes(_) => send_texts(&conn.transport, plan.texts(order.part), span, more),
            Part::Slices => {
                let text = std::iter::once(&conn.slice[..]);
                send_texts(&conn.transport, text, span, more)
            }
            &Part::Body {
                version, promise, ..
            } => {
                let body = Body {
                    version,
                    promise,
                    span: Span {
                        offset_bytes: at_bytes,
                        ..span
                    },
                    fills,
                };
                let turn = Turn::new(now, self.shared.clock, &self.sleeps);
                send_body(conn, &mut self.copied, order, &body, turn)
            }
        };
        if let (Sent::Taken { taken_bytes, .. }, Some(owed_bytes)) = (&sent, &mut conn.owed_bytes) {
            *owed_bytes = owed_bytes.saturating_sub(*taken_bytes);
        }
        let whole =
            matches!(sent, Sent::Taken { taken_bytes, .. } if taken_bytes >= span.len_bytes);
        Some(of(sent, bounded && whole))
    }

    /// What the socket took, for the machine and for who watches. A full socket is told when to call, or lasts for so
    /// long.
    fn taken(
        &mut self,
        order: &Order,
        path: SendPath,
        (taken_bytes, end): (u64, End),
        now: Instant,
    ) -> (In, Option<Lasts>) {
        let blocked = end == End::Blocked;
        let full = end != End::Open
            || order
                .refill
                .is_some_and(|refill| taken_bytes >= refill.bytes);
        let within_body = order.more && matches!(path, SendPath::Sendfile | SendPath::Direct);
        let (mut unsent_bytes, mut lasts) = (None, None);
        if let Some(conn) = self.conns.get(order.stream.conn) {
            lasts = fill(conn, taken_bytes, end, now);
            let is_called = full && lasts.is_none();
            if let Some(refill) = order.refill.filter(|_| is_called) {
                // The kernel calls a socket writable when it holds less than half of TCP_NOTSENT_LOWAT.
                conn.set_lowat(2 * refill.call_bytes);
            }
            if full && (order.refill.is_some() || end == End::Bounded) {
                conn.uncork();
                if !blocked {
                    self.budget.topped_up(taken_bytes);
                }
                // A sendfile(2) that took less may have met a new end of its file, and not a full socket.
                let refused = blocked && path != SendPath::Sendfile;
                if !refused && is_called {
                    // Edge-triggered EPOLLOUT needs SOCK_NOSPACE, which a refused send sets. EPOLL_CTL_MOD asks the
                    // socket and sets it, too.
                    let _ = epoll::modify(&self.epoll, &conn.transport, data_of(conn.id), INTEREST);
                }
            }
            if full || within_body {
                unsent_bytes = conn.transport.unsent().map(|unsent| unsent.0);
            }
            let stops = end != End::Open && is_called;
            if let Some(bound) = conn.bound.as_mut().filter(|_| stops) {
                bound.stopped(unsent_bytes.unwrap_or(0), now);
            }
        }
        self.budget.took(taken_bytes);
        self.tally.sent_bytes[path as usize].add(taken_bytes);
        if blocked {
            let none = taken_bytes == 0;
            self.tally.sends_refused.add(none.into());
            self.tally.sends_cut.add((!none).into());
        }
        let sent = In::Sent {
            stream: order.stream,
            taken_bytes,
            full,
            unsent_bytes,
        };
        (sent, lasts)
    }
}

/// What a socket took counts for its share of the send memory. `Some`: that has no room, and lasts for so long.
fn fill(conn: &mut Conn, taken_bytes: u64, end: End, now: Instant) -> Option<Lasts> {
    conn.bound.as_mut()?.given(taken_bytes);
    match end {
        End::Bounded => conn.share_lasts(now),
        End::Open | End::Blocked => None,
    }
}

/// Sends bytes of a file from where they are.
fn send_body(
    conn: &mut Conn,
    copied: &mut [u8],
    order: &Order,
    body: &Body,
    turn: Turn<'_>,
) -> Sent {
    let Some(source) = &conn.source else {
        return Sent::Broken(Why::ReadFailed);
    };
    let of = Promised {
        source,
        version: &body.version,
        promise: body.promise,
        proven: conn.proven.take(),
        turn,
    };
    match order.held {
        Held::PageCache => {
            conn.refers = true;
            let cached = Cached {
                promised: of,
                // What fills a socket leaves whole, or its last segment would be a short one.
                span: match body.fills {
                    true => body.span,
                    false => conn.reach.of(body.span),
                },
                sure: conn.sure,
                unconfirmed: order.unconfirmed,
            };
            send_cached(&conn.transport, &cached, &mut conn.reach, copied)
        }
        Held::Slots => {
            // After sendfile(2) the socket may still refer to pages of the file, which a writer can change. So the version
            // is checked again: a response with changed bytes must not end as if it were complete.
            let prove_again = conn.refers;
            for piece in conn.pieces.iter_mut().filter(|_| prove_again) {
                piece.proven = false;
            }
            send_pieces(&conn.transport, &mut conn.pieces, &of, body.span)
        }
    }
}

/// The socket took nothing, and may take more.
const NOTHING: Sent = Sent::Taken {
    taken_bytes: 0,
    blocked: false,
};

/// Where in the part, or in the file, a span of the part lies.
fn at_bytes(part: &Part, span: Span) -> u64 {
    match part {
        Part::Body { span: body, .. } => body.offset_bytes + span.offset_bytes,
        Part::Bytes(_) | Part::Slices => span.offset_bytes,
    }
}

/// The send path that bytes of this part take; `ready`: the response is a cached one.
fn send_path(part: &Part, held: Held, ready: bool) -> SendPath {
    match (part, held) {
        (Part::Body { .. }, Held::Slots) => SendPath::Direct,
        (Part::Body { .. }, Held::PageCache) => SendPath::Sendfile,
        (Part::Bytes(_), _) if ready => SendPath::ResponseCache,
        (Part::Bytes(_) | Part::Slices, _) => SendPath::Made,
    }
}

/// Send bytes of a file from the slots into which they were read, if the file is still what was promised. Slots whose last
/// byte is sent go back at once.
fn send_pieces(
    transport: &Transport,
    pieces: &mut VecDeque<SlotBytes>,
    of: &Promised,
    span: Span,
) -> Sent {
    if pieces.iter().any(|piece| !piece.proven) {
        match of.checked() {
            Holds::Yes => {}
            Holds::NotYet => return Sent::Missing,
            Holds::No => return Sent::Broken(Why::FileChanged),
        }
    }
    // All of them were read before this check.
    pieces.iter_mut().for_each(|piece| piece.proven = true);
    let slices = slices_of(pieces, span);
    if slices.is_empty() {
        return Sent::Broken(Why::ReadFailed);
    }
    let offered: usize = slices.iter().map(|slice| slice.len()).sum();
    let sent = transport.send_texts(&slices, false);
    drop(slices);
    match sent {
        Ok(taken) => {
            release_until(pieces, span.offset_bytes + taken.0);
            Sent::Taken {
                taken_bytes: taken.0,
                blocked: taken.0 < offered as u64,
            }
        }
        Err(error) => send_error(error),
    }
}

fn send_error(error: Errno) -> Sent {
    match error {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Sent::Taken {
            taken_bytes: 0,
            blocked: true,
        },
        Errno::IO => Sent::Broken(Why::ReadFailed),
        _ => Sent::Reset,
    }
}

/// Send the span of texts that follow each other, several in one call.
fn send_texts<'a>(
    transport: &Transport,
    texts: impl Iterator<Item = &'a [u8]>,
    span: Span,
    more: bool,
) -> Sent {
    let mut pieces = [IoSlice::new(&[]); TEXTS_MAX];
    let (mut skip, mut left) = (span.offset_bytes as usize, span.len_bytes as usize);
    let (mut count, mut offered) = (0, 0);
    for text in texts {
        if count == TEXTS_MAX || left == 0 {
            break;
        }
        let behind = skip.min(text.len());
        skip -= behind;
        let text = &text[behind..];
        let text = &text[..text.len().min(left)];
        pieces[count] = IoSlice::new(text);
        count += usize::from(!text.is_empty());
        (offered, left) = (offered + text.len(), left - text.len());
    }
    let more = more || left > 0;
    match transport.send_texts(&pieces[..count], more) {
        Ok(taken) => Sent::Taken {
            taken_bytes: taken.0,
            blocked: taken.0 < offered as u64,
        },
        Err(error) => send_error(error),
    }
}
