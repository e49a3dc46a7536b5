//! Executes `Send` orders: offers bytes of a response to its socket, and reports the result to the machine. It never offers
//! more than the response's head promises, nor bytes of a file that is not the promised version any more.
//!
//! The bytes are in texts, such as heads; in slots, into which their disk read them ([`slices_of`]); or in the page cache
//! ([`cached`]).
//!
//! An order may say how far the socket is to be *filled*, and at which level the kernel is to report it writable (EPOLLOUT) once
//! it is full ([`Refill`]). Where send memory is divided, the connection's share bounds what its socket holds, too
//! ([`ackpace_share::bound`]).

mod cached;
mod slab;

use std::collections::VecDeque;
use std::io::IoSlice;

use ackpace_core::conn::{ConnId, Freed, Held, Part, Promise, Span, Version};
use ackpace_core::machine::Machine;
use ackpace_core::send::Refill;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, SendOrder};
use rustix::event::epoll;
use rustix::io::Errno;
use smallvec::SmallVec;

pub(crate) use self::cached::send_cached;
pub(crate) use self::slab::{COPIED_BYTES_MAX, send_held, send_slab};
use super::Worker;
use super::conns::Conn;
use super::events::{EventSource, INTEREST, data_of};
use super::pins;
use crate::clock::Clock;
use crate::disk::SlotBytes;
use crate::limits::{SLICES_MAX, TEXTS_MAX};
use crate::source::Source;
use crate::store::file::{File, VersionCheck};
use crate::tally::SendPath;
use crate::transport::Transport;

/// What a response promises of a file. Its head describes one version of it; bytes of another one must not follow. So the version is
/// checked whenever bytes are about to be sent.
pub(crate) struct Promised {
    /// The version that the head describes; `None`: any, since nothing is promised (NFS).
    pub version: Option<Version>,
    /// Whether all bytes must be of that version, or may lie in a file that grows.
    pub promise: Promise,
    /// When the turn began.
    pub now: Instant,
    pub clock: Clock,
}

impl Promised {
    /// Whether bytes of the file may be sent as those of the promised version. The kernel is asked now.
    fn check_version(&self, file: &File) -> VersionCheck {
        self.version.map_or(VersionCheck::Same, |version| {
            file.check_version(&version, self.promise, self.now)
        })
    }

    /// The same of anything.
    fn check(&self, source: &Source) -> VersionCheck {
        match source {
            Source::File(file) => self.check_version(file),
            Source::Object(object) if object.is_changed() => VersionCheck::Changed,
            Source::Object(_) => VersionCheck::Same,
            Source::Blocks(_) => VersionCheck::Changed, // NFS alone has them
        }
    }
}

/// The result of one attempt to send, for the report to the machine.
struct Attempt {
    sent: Sent,
    path: SendPath,
    socket: SocketState,
    /// What the socket held before it, unsent and in flight; `None` without a share.
    held_bytes: Option<u64>,
    /// Where in the part, or in the file, the bytes lie.
    at_bytes: u64,
}

/// Whether a socket takes more after an attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SocketState {
    /// It does, as far as is known: it took all that it was offered.
    Open,
    /// It refused some bytes. EPOLLOUT is to say when it takes more.
    Full,
    /// It took all that it was offered, but its share of the send memory is full.
    ShareFull,
}

/// What came of an attempt to send.
pub(crate) enum Sent {
    /// The socket took bytes; none is allowed.
    Taken {
        taken_bytes: u64,
        /// It did not take others that were offered: the kernel refused them, or, by sendfile(2), the file ended early.
        refused: bool,
        /// sendfile(2) took so long that it has probably waited for a page.
        waited: bool,
    },
    /// The file is not what was promised, or can't be read.
    Broken(Why),
    /// Its first byte is not in memory.
    Missing,
    Reset,
}

impl Sent {
    /// The socket took so many bytes, and perhaps refused others.
    const fn taken(taken_bytes: u64, refused: bool) -> Sent {
        Sent::Taken {
            taken_bytes,
            refused,
            waited: false,
        }
    }
}

impl Worker {
    /// Executes an order: offers its bytes, and tells the machine what came of it.
    pub(super) fn send(&mut self, order: &SendOrder, now: Instant) {
        let Some(attempt) = self.attempt(order, now) else {
            return;
        };
        let (stream, conn) = (order.stream, order.stream.conn);
        if let Some(held_bytes) = attempt.held_bytes {
            self.decider.on(In::SocketLevel { conn, held_bytes }, now);
        }
        match attempt.sent {
            Sent::Taken {
                taken_bytes,
                waited,
                ..
            } => {
                if waited {
                    self.decider.on(In::Waited { stream }, now);
                }
                let sent = self.taken(order, &attempt, taken_bytes, now);
                self.decider.on(sent, now);
            }
            Sent::Broken(why) => {
                self.tell_broken(stream, attempt.at_bytes, why, now);
                self.decider.on(In::Failed { stream, why }, now);
            }
            Sent::Missing => self.decider.on(In::Missing { stream }, now),
            Sent::Reset => self.tcp_event(conn, &EventSource::SocketError, now),
        }
    }

    /// Offers the bytes of an order to the socket: no more than the head promises, and no more than its share of the send memory
    /// has room for. `None` if the response is gone.
    fn attempt(&mut self, order: &SendOrder, now: Instant) -> Option<Attempt> {
        let (mut span, held, mut more) = (order.span, order.held, order.more);
        let conn = self.conns.get(order.stream.conn)?;
        let plan = self.decider.plan(order.stream)?;
        let part = plan.parts.get(usize::from(order.part))?;
        if let Some(owed_bytes) = conn.owed_bytes {
            debug_assert!(span.len_bytes <= owed_bytes, "more than was promised");
            span.len_bytes = span.len_bytes.min(owed_bytes);
        }
        let room = conn.room(now);
        let held_bytes = room.map(|room| room.held_bytes);
        let room_bytes = room.map_or(u64::MAX, |room| room.room_bytes);
        // The share is full after this send, if the socket takes it all.
        let share_ends = span.len_bytes > room_bytes || more && span.len_bytes == room_bytes;
        span.len_bytes = span.len_bytes.min(room_bytes);
        more &= !share_ends; // nothing follows until the share has room: no segment is to be held back for that
        let path = send_path(part, held, conn.from_response_cache);
        let at_bytes = at_bytes(part, span);
        let of = |sent| Attempt {
            socket: socket_state(&sent, span.len_bytes, share_ends),
            sent,
            path,
            held_bytes,
            at_bytes,
        };
        if room_bytes == 0 {
            return Some(of(NOTHING));
        }
        match order.refill {
            Some(refill) => conn.set_lowat(refill.lowat_bytes),
            None => conn.unset_lowat(),
        }
        // A send that fills the socket is not corked: TCP_CORK would hold back its last segment for up to 200 ms. On
        // loopback a segment may hold a second of what its client takes.
        let fills_socket =
            share_ends || (order.refill).is_some_and(|refill| span.len_bytes >= refill.bytes);
        if more && !fills_socket && matches!(part, Part::Body { .. }) {
            conn.cork(); // sendfile(2) has no MSG_MORE: each window would end in a small segment
        }
        let sent = match part {
            Part::Bytes(_) => send_texts(&conn.transport, plan.texts(order.part), span, more),
            Part::Slices => {
                let text = std::iter::once(&conn.listing.slice[..]);
                send_texts(&conn.transport, text, span, more)
            }
            &Part::Body {
                version, promise, ..
            } => {
                let promised = Promised {
                    version: Some(version),
                    promise,
                    now,
                    clock: self.shared.clock,
                };
                let span = Span {
                    offset_bytes: at_bytes,
                    ..span
                };
                send_body(conn, &mut self.copied, held, &promised, span)
            }
        };
        if conn.pins.has_some() {
            self.pins_due.get_or_insert(now.plus_us(pins::LOOK_EACH_US));
        }
        if let (Sent::Taken { taken_bytes, .. }, Some(owed_bytes)) = (&sent, &mut conn.owed_bytes) {
            *owed_bytes = owed_bytes.saturating_sub(*taken_bytes);
        }
        Some(of(sent))
    }

    /// Nothing follows for a while: sends what is corked, and has the kernel report the socket writable when less than
    /// `epollout_bytes` are left in it.
    pub(super) fn watch_level(&mut self, conn: ConnId, epollout_bytes: u32) {
        if let Some(conn) = self.conns.get(conn) {
            conn.uncork();
            conn.set_lowat(epollout_bytes.saturating_mul(2));
            let _ = epoll::modify(&self.epoll, &conn.transport, data_of(conn.id), INTEREST);
        }
    }

    /// Nothing follows for as long as an origin takes: sends what is held back. A disk is quicker than the kernel, which waits
    /// for 200 ms, and one packet less is worth the wait.
    pub(super) fn push(&mut self, conn: ConnId) {
        let conn = self.conns.get(conn);
        if let Some(conn) = conn.filter(|conn| matches!(conn.body.source, Some(Source::Object(_))))
        {
            conn.transport.cork(false);
            conn.corked = false;
        }
    }

    /// The socket took bytes, perhaps none: the report for the machine, and for who watches.
    fn taken(
        &mut self,
        order: &SendOrder,
        attempt: &Attempt,
        taken_bytes: u64,
        now: Instant,
    ) -> In {
        let (path, socket) = (attempt.path, attempt.socket);
        let fills = |refill: Refill| taken_bytes >= refill.bytes;
        // By the order it may be full although the kernel would take more.
        let full = socket != SocketState::Open || order.refill.is_some_and(fills);
        let within_body = order.more && matches!(path, SendPath::Sendfile | SendPath::Direct);
        let mut unsent_bytes = None;
        if let Some(conn) = self.conns.get(order.stream.conn) {
            if let Some(refill) = order.refill.filter(|_| full) {
                // The mark was high while the socket was filled (`attempt`). Now it is low: the kernel reports a socket writable
                // when it holds less than half of TCP_NOTSENT_LOWAT.
                conn.set_lowat(2 * refill.epollout_bytes);
            }
            if full && (order.refill.is_some() || socket == SocketState::ShareFull) {
                conn.uncork();
                if socket != SocketState::Full {
                    self.budget.topped_up(taken_bytes);
                }
                if !has_armed_epollout(attempt) {
                    // EPOLL_CTL_MOD asks the socket whether it is writable, and sets SOCK_NOSPACE if not.
                    let _ = epoll::modify(&self.epoll, &conn.transport, data_of(conn.id), INTEREST);
                }
            }
            if full || within_body {
                unsent_bytes = conn.transport.unsent_bytes();
            }
            let stops = socket != SocketState::Open;
            if let Some(bound) = conn.bound.as_mut().filter(|_| stops) {
                bound.stopped(unsent_bytes.unwrap_or(0), now);
            }
        }
        self.budget.took(taken_bytes);
        self.tally.sent_bytes[path as usize].add(taken_bytes);
        if socket == SocketState::Full {
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
}

/// The socket after an attempt to send `len_bytes`. `share_ends`: if it took all of them its share is full.
fn socket_state(sent: &Sent, len_bytes: u64, share_ends: bool) -> SocketState {
    match *sent {
        Sent::Taken { refused: true, .. } => SocketState::Full,
        Sent::Taken { taken_bytes, .. } if share_ends && taken_bytes >= len_bytes => {
            SocketState::ShareFull
        }
        Sent::Taken { .. } | Sent::Broken(_) | Sent::Missing | Sent::Reset => SocketState::Open,
    }
}

/// Whether EPOLLOUT fires after this attempt without more ado. Edge-triggered, it needs SOCK_NOSPACE in the socket, which a
/// refused send sets. A sendfile(2) that took less may have met a new end of its file, and not a full socket.
fn has_armed_epollout(attempt: &Attempt) -> bool {
    attempt.socket == SocketState::Full && attempt.path != SendPath::Sendfile
}

/// Sends bytes of a file from where they are.
fn send_body(
    conn: &mut Conn,
    copied: &mut [u8],
    held: Held,
    promised: &Promised,
    span: Span,
) -> Sent {
    let Some(source) = &conn.body.source else {
        return Sent::Broken(Why::ReadFailed);
    };
    let sent = match (held, source) {
        (Held::PageCache, Source::File(file)) => {
            conn.body.used_sendfile = true;
            send_cached(&conn.transport, (file, promised), span, copied)
        }
        (Held::PageCache, Source::Object(object)) => {
            send_slab(&conn.transport, object, span, &mut conn.pins)
        }
        (Held::PageCache, Source::Blocks(_)) => Sent::Broken(Why::ReadFailed), // NFS alone has them
        (Held::Slots, _) => {
            // After sendfile(2) the socket may still refer to pages of the file, which a writer can change. So the version
            // is checked again: a response with changed bytes must not end as if it were complete.
            let check_again = conn.body.used_sendfile;
            for piece in conn.body.pieces.iter_mut().filter(|_| check_again) {
                piece.version_checked = false;
            }
            send_pieces(
                &conn.transport,
                &mut conn.body.pieces,
                (source, promised),
                span,
            )
        }
    };
    if let (Sent::Taken { taken_bytes, .. }, Freed::WhenSent) = (&sent, held.freed()) {
        release_until(&mut conn.body.pieces, span.offset_bytes + taken_bytes);
    }
    sent
}

/// The socket took nothing, and may take more.
const NOTHING: Sent = Sent::taken(0, false);

/// Where in the part, or in the file, a span of the part lies.
fn at_bytes(part: &Part, span: Span) -> u64 {
    match part {
        Part::Body { span: body, .. } => body.offset_bytes + span.offset_bytes,
        Part::Bytes(_) | Part::Slices => span.offset_bytes,
    }
}

fn send_path(part: &Part, held: Held, from_response_cache: bool) -> SendPath {
    match (part, held) {
        (Part::Body { .. }, Held::Slots) => SendPath::Direct,
        (Part::Body { .. }, Held::PageCache) => SendPath::Sendfile,
        (Part::Bytes(_), _) if from_response_cache => SendPath::ResponseCache,
        (Part::Bytes(_) | Part::Slices, _) => SendPath::Made,
    }
}

/// Send bytes of a file from the slots into which they were read, if the file is still what was promised.
fn send_pieces(
    transport: &Transport,
    pieces: &mut VecDeque<SlotBytes>,
    (source, promised): (&Source, &Promised),
    span: Span,
) -> Sent {
    if pieces.iter().any(|piece| !piece.version_checked) {
        match promised.check(source) {
            VersionCheck::Same => {}
            VersionCheck::NotYet => return NOTHING, // the next order asks again
            VersionCheck::Changed => return Sent::Broken(Why::FileChanged),
        }
    }
    // All of them were read before this check, so it is for all of them.
    pieces
        .iter_mut()
        .for_each(|piece| piece.version_checked = true);
    let slices = slices_of(pieces, span);
    if slices.is_empty() {
        return Sent::Broken(Why::ReadFailed);
    }
    let offered: usize = slices.iter().map(|slice| slice.len()).sum();
    match transport.send_slices(&slices, false) {
        Ok(taken) => Sent::taken(taken, taken < offered as u64),
        Err(error) => send_error(error),
    }
}

/// The span as it lies in slots, as far as one call takes it.
fn slices_of(pieces: &VecDeque<SlotBytes>, span: Span) -> SmallVec<[IoSlice<'_>; 8]> {
    let mut slices = SmallVec::<[IoSlice; 8]>::new();
    let mut at_bytes = span.offset_bytes;
    for piece in pieces {
        let here = piece.span.contains(at_bytes) && piece.from_bytes <= at_bytes;
        if !here || !piece.lease.has(at_bytes - piece.from_bytes) || slices.len() >= SLICES_MAX {
            continue;
        }
        let len_bytes = piece.span.end_bytes().min(span.end_bytes()) - at_bytes;
        let room = SLICES_MAX - slices.len();
        let lent = piece.lease.slices(at_bytes - piece.from_bytes, len_bytes);
        for slice in lent.into_iter().take(room) {
            at_bytes += slice.len() as u64;
            slices.push(slice);
        }
        if at_bytes >= span.end_bytes() {
            break;
        }
    }
    slices
}

/// Gives back the memory of a file's bytes before `until_bytes`. Nothing else frees what was sent. The kernel has copied
/// what it took, so that is where slots end; memory that it only refers to would end where the client has acknowledged it
/// ([`Held`]).
fn release_until(pieces: &mut VecDeque<SlotBytes>, until_bytes: u64) {
    while let Some(piece) = pieces.front_mut() {
        if until_bytes < piece.span.end_bytes() {
            let sent_bytes = until_bytes.saturating_sub(piece.from_bytes);
            piece.lease.release_front(sent_bytes);
            break;
        }
        pieces.pop_front();
    }
}

pub(crate) fn send_error(error: Errno) -> Sent {
    match error {
        Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM => Sent::taken(0, true),
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
    match transport.send_slices(&pieces[..count], more) {
        Ok(taken) => Sent::taken(taken, taken < offered as u64),
        Err(error) => send_error(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ackpace_core::limits::SLOT_BYTES;

    use super::*;
    use crate::mailbox::ThreadWaker;
    use crate::store::pool::Pool;

    #[test]
    fn memory_comes_back_slot_by_slot_whatever_says_how_far() {
        let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
        let pool = Arc::new(Pool::new(8, waker).expect("address space"));
        pool.enlist(8);
        let lent = |from_slot: u64, slots: u32| SlotBytes {
            lease: pool.lease(slots).expect("free"),
            from_bytes: from_slot * SLOT_BYTES,
            span: Span {
                offset_bytes: from_slot * SLOT_BYTES,
                len_bytes: u64::from(slots) * SLOT_BYTES,
            },
            version_checked: true,
        };
        let free = pool.free_slots();
        let mut pieces = VecDeque::from([lent(10, 3), lent(13, 5)]);
        // How far the client has acknowledged is far behind what the kernel took, and may stand still or jump.
        for (until_bytes, held) in [
            (0, 8),
            (10 * SLOT_BYTES, 8),
            (11 * SLOT_BYTES - 1, 8),
            (11 * SLOT_BYTES, 7),
            (11 * SLOT_BYTES, 7),
            (13 * SLOT_BYTES, 5),
            (17 * SLOT_BYTES + 1, 1),
            (18 * SLOT_BYTES, 0),
            (u64::MAX, 0),
        ] {
            release_until(&mut pieces, until_bytes);
            assert_eq!(free - pool.free_slots(), held, "until {until_bytes}");
        }
        assert!(pieces.is_empty());
    }
}
