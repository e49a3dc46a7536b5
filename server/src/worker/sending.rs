//! Bytes for sockets: texts from memory, files from the page cache or from the memory into which they were read.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use ackpace_core::conn::{Held, Part, Span, StreamId, TcpEvent};
use ackpace_core::limits::TOP_UP_BYTES_MIN;
use ackpace_core::machine::Machine;
use ackpace_core::residency::{Means, means, trusted_bytes};
use ackpace_core::send::Room;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::In;
use rustix::event::epoll;
use rustix::io::Errno;
use smallvec::SmallVec;

use super::{INTEREST, Worker, data_of};
use crate::disk::Piece;
use crate::limits::{SLICES_MAX, TEXTS_MAX};
use crate::store::file::{File, Holds};
use crate::store::residency;
use crate::tally::Way;
use crate::tcp;

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
    /// What tells of pages says again and again that they are missing: who reads them without waiting shall say.
    pub unconfirmed: bool,
    /// How it is filled; `None`: it takes what it likes.
    pub room: Option<Room>,
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

/// An attempt to send, for who reports it.
struct Attempt {
    sent: Sent,
    way: Way,
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
            Sent::Reset => In::Tcp {
                conn: stream.conn,
                event: TcpEvent::Reset,
            },
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
        if let Some(room) = order.room {
            conn.set_lowat(room.lowat_bytes);
        }
        let (way, at_bytes) = match part {
            Part::Body { span: body, .. } => {
                let way = match held {
                    Held::Slots => Way::Direct,
                    Held::PageCache => Way::Sendfile,
                };
                (way, body.offset_bytes + span.offset_bytes)
            }
            Part::Bytes(_) if conn.ready => (Way::KeptReady, span.offset_bytes),
            Part::Bytes(_) | Part::Slices => (Way::Made, span.offset_bytes),
        };
        // Who is full when it has taken this shall get all of it now: on loopback a segment may hold a second of what its client takes.
        let fills = (order.room).is_some_and(|room| span.len_bytes >= room.bytes);
        if more && !fills && !conn.corked && matches!(part, Part::Body { .. }) {
            // sendfile(2) has no MSG_MORE: without the cork each window would end in a small segment.
            tcp::cork(&conn.socket, true);
            conn.corked = true;
        }
        let sent = match (part, &conn.file) {
            (Part::Bytes(_), _) => send_texts(&conn.socket, plan.texts(order.part), span, more),
            (Part::Slices, _) => {
                send_texts(&conn.socket, std::iter::once(&conn.slice[..]), span, more)
            }
            (
                Part::Body {
                    version, promise, ..
                },
                Some(file),
            ) => {
                let span = Span {
                    offset_bytes: at_bytes,
                    ..span
                };
                let clock = self.shared.clock;
                let proven = conn.proven.take().filter(|_| held == Held::PageCache);
                let proven = proven.is_some_and(|look| look.holds(now, clock.now()));
                let checked = || file.holds(version, *promise, now);
                let holds = || if proven { Holds::Yes } else { checked() };
                match held {
                    Held::PageCache => {
                        // What fills a socket leaves whole, or its last segment would be a short one.
                        let span = if fills { span } else { conn.reach.of(span) };
                        let sure = conn.sure.filter(|(look, _)| look.holds(now, clock.now()));
                        let sure = sure.map(|(_, sure)| sure);
                        let sure_bytes = trusted_bytes(span, sure, order.unconfirmed);
                        let resident_bytes = resident_bytes(file, span, sure_bytes);
                        if resident_bytes < span.len_bytes {
                            residency::missed(now);
                        }
                        let here = Span {
                            len_bytes: resident_bytes,
                            ..span
                        };
                        match means(order.unconfirmed, residency::in_doubt(now)) {
                            Means::Copy => {
                                let copied = &mut self.copied;
                                send_copied(&conn.socket, file, checked, here, copied, now)
                            }
                            Means::Sendfile => None,
                        }
                        .unwrap_or_else(|| {
                            let sent = send_cached(&conn.socket, file, holds, here);
                            if let Sent::Taken {
                                taken_bytes,
                                blocked,
                            } = sent
                            {
                                conn.reach.took(taken_bytes, blocked);
                            }
                            sent
                        })
                    }
                    Held::Slots => send_pieces(&conn.socket, &mut conn.pieces, holds, span),
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
    fn taken(&mut self, order: &Order, way: Way, taken_bytes: u64, blocked: bool) -> In {
        let full = blocked || order.room.is_some_and(|room| taken_bytes >= room.bytes);
        let within_body = order.more && matches!(way, Way::Sendfile | Way::Direct);
        let mut unsent_bytes = None;
        if let Some(conn) = self.conns.get(order.stream.conn) {
            if let Some(room) = order.room.filter(|_| full) {
                conn.set_lowat(2 * room.call_bytes);
                if core::mem::take(&mut conn.corked) {
                    tcp::cork(&conn.socket, false);
                }
                if !blocked {
                    self.this_turn.top_up_bytes += taken_bytes.max(TOP_UP_BYTES_MIN);
                    // A socket calls only after it has refused something. Being asked by epoll and saying no is that, too.
                    let _ = epoll::modify(&self.epoll, &conn.socket, data_of(conn.id), INTEREST);
                }
            }
            if full || within_body {
                unsent_bytes = tcp::unsent_bytes(&conn.socket);
            }
        }
        self.this_turn.bytes += taken_bytes;
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
        if let Some(file) = conn.and_then(|conn| conn.file.as_ref()) {
            let file = self.shared.site.shown(&file.path);
            tracing::error!(
                file,
                at_bytes,
                "{why}: the response ends before its last byte"
            );
        }
    }
}

/// Send the span of texts that follow each other, several in one call.
fn send_texts<'a>(
    socket: &OwnedFd,
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
    match tcp::send_texts(socket, &pieces[..count], more) {
        Ok(taken) => Sent::Taken {
            taken_bytes: taken as u64,
            blocked: taken < offered,
        },
        Err(error) => send_error(error),
    }
}

/// How many bytes of the span are in memory now, whose first were found there in this turn.
fn resident_bytes(file: &File, span: Span, sure_bytes: u64) -> u64 {
    let sure_bytes = sure_bytes.min(span.len_bytes);
    let rest = Span {
        offset_bytes: span.offset_bytes + sure_bytes,
        len_bytes: span.len_bytes - sure_bytes,
    };
    if rest.len_bytes == 0 {
        return sure_bytes;
    }
    let told = file.resident_bytes(rest);
    sure_bytes + told.unwrap_or(rest.len_bytes).min(rest.len_bytes)
}

/// Send bytes that were just found in memory.
fn send_cached(socket: &OwnedFd, file: &File, holds: impl Fn() -> Holds, here: Span) -> Sent {
    match here.len_bytes {
        0 => Sent::Missing,
        _ => send_body(socket, file, holds, here),
    }
}

/// Send a piece of the file by way of our own memory: sendfile(2) would wait for the disk if somebody dropped it in this moment.
/// `None` where the file system can't do that without waiting.
fn send_copied(
    socket: &OwnedFd,
    file: &File,
    holds: impl Fn() -> Holds,
    span: Span,
    copied: &mut [u8],
    now: Instant,
) -> Option<Sent> {
    if span.len_bytes == 0 {
        return Some(Sent::Missing);
    }
    let (mut taken_bytes, mut blocked) = (0, false);
    while taken_bytes < span.len_bytes && !blocked {
        let left_bytes = span.len_bytes - taken_bytes;
        let most = copied
            .len()
            .min(usize::try_from(left_bytes).unwrap_or(usize::MAX));
        let read = file.read_cached(span.offset_bytes + taken_bytes, &mut copied[..most]);
        if read == Err(Errno::AGAIN) {
            residency::missed(now);
        }
        let read = match read {
            Ok(read) if read > 0 => read,
            _ if taken_bytes > 0 => break, // the next order tells why
            Ok(_) => return Some(Sent::Broken(Why::FileChanged)),
            Err(Errno::OPNOTSUPP) => return None,
            Err(Errno::IO) => return Some(Sent::Broken(Why::ReadFailed)),
            Err(_) => return Some(Sent::Missing),
        };
        match holds() {
            Holds::Yes => {}
            Holds::NotYet if taken_bytes > 0 => break, // the next order asks again
            Holds::NotYet => return Some(Sent::Missing),
            Holds::No => return Some(Sent::Broken(Why::FileChanged)),
        }
        match tcp::send_texts(socket, &[IoSlice::new(&copied[..read])], false) {
            Ok(taken) => {
                taken_bytes += taken as u64;
                blocked = taken < read;
            }
            Err(error) if taken_bytes == 0 => return Some(send_error(error)),
            Err(_) => blocked = true, // it says so again
        }
    }
    Some(Sent::Taken {
        taken_bytes,
        blocked,
    })
}

/// Send a piece of the file, if the file is still what was promised. A file that is truncated just
/// behind that look ends the piece early, as a full socket does; the next look tells them apart.
fn send_body(socket: &OwnedFd, file: &File, holds: impl Fn() -> Holds, span: Span) -> Sent {
    match holds() {
        Holds::Yes => {}
        Holds::NotYet => return Sent::Missing,
        Holds::No => return Sent::Broken(Why::FileChanged),
    }
    match tcp::send_file(socket, &file.fd, span.offset_bytes, span.len_bytes) {
        Ok(0) => Sent::Broken(Why::FileChanged),
        Ok(taken) => Sent::Taken {
            taken_bytes: taken as u64,
            blocked: (taken as u64) < span.len_bytes,
        },
        Err(error) => send_error(error),
    }
}

/// As [`send_body`], from the memory into which the piece was read; what is sent of that goes back at once.
fn send_pieces(
    socket: &OwnedFd,
    pieces: &mut VecDeque<Piece>,
    holds: impl Fn() -> Holds,
    span: Span,
) -> Sent {
    if pieces.iter().any(|piece| !piece.proven) {
        match holds() {
            Holds::Yes => {}
            Holds::NotYet => return Sent::Missing,
            Holds::No => return Sent::Broken(Why::FileChanged),
        }
    }
    // All of them were read before this look.
    pieces.iter_mut().for_each(|piece| piece.proven = true);
    let mut slices = SmallVec::<[IoSlice; 8]>::new();
    let (mut at_bytes, mut offered) = (span.offset_bytes, 0);
    for piece in &*pieces {
        let here = piece.span.contains(at_bytes) && piece.from_bytes <= at_bytes;
        if !here || !piece.lease.has(at_bytes - piece.from_bytes) || slices.len() >= SLICES_MAX {
            continue;
        }
        let len_bytes = piece.span.end_bytes().min(span.end_bytes()) - at_bytes;
        let room = SLICES_MAX - slices.len();
        let lent = piece.lease.slices(at_bytes - piece.from_bytes, len_bytes);
        for slice in lent.into_iter().take(room) {
            offered += slice.len();
            at_bytes += slice.len() as u64;
            slices.push(slice);
        }
        if at_bytes >= span.end_bytes() {
            break;
        }
    }
    if slices.is_empty() {
        return Sent::Broken(Why::ReadFailed);
    }
    let sent = tcp::send_texts(socket, &slices, false);
    drop(slices);
    match sent {
        Ok(taken) => {
            let until_bytes = span.offset_bytes + taken as u64;
            while let Some(piece) = pieces.front_mut() {
                if until_bytes < piece.span.end_bytes() {
                    piece
                        .lease
                        .release_front(until_bytes.saturating_sub(piece.from_bytes));
                    break;
                }
                pieces.pop_front();
            }
            Sent::Taken {
                taken_bytes: taken as u64,
                blocked: taken < offered,
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

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use ackpace_core::conn::{ObjectId, ResidencySource};
    use rustix::fs::{Advice, fadvise, fstat};

    use super::*;
    use crate::store::closing::Descriptor;

    const LEN: u64 = 256 << 10;
    const NOW: Instant = Instant { us: 5_000_000 };

    /// What becomes of these bytes, and what arrives of them.
    fn copied(file: &File, span: Span) -> (Option<Sent>, Vec<u8>) {
        let (socket, mut client) = UnixStream::pair().expect("two descriptors");
        socket.set_nonblocking(true).expect("a socket");
        let socket = OwnedFd::from(socket);
        let mut room = vec![0; 16 << 10];
        let sent = send_copied(&socket, file, || Holds::Yes, span, &mut room, NOW);
        drop(socket);
        let mut came = Vec::new();
        client.read_to_end(&mut came).expect("what was sent");
        (sent, came)
    }

    #[test]
    fn what_is_copied_is_never_waited_for_and_what_is_missing_is_told() {
        let path = std::env::temp_dir().join(format!("ackpace-copied-{}", std::process::id()));
        let bytes: Vec<u8> = (0..LEN).map(|at| (at / 4096) as u8).collect();
        std::fs::write(&path, &bytes).expect("room for a file");
        let fd = std::fs::File::open(&path).expect("our own file");
        std::fs::remove_file(&path).expect("our own file");
        fd.sync_all().expect("our own file");
        let stat = fstat(&fd).expect("an open file");
        let id = ObjectId {
            device: 0,
            index: 0,
            generation: 0,
        };
        let fd = Descriptor::new(OwnedFd::from(fd), stat.st_dev);
        let file = File::new(fd, id, ResidencySource::Ask, b"a", stat.st_dev);
        let drop_from = |offset_bytes: u64| {
            fadvise(&file.fd, offset_bytes, None, Advice::Random).expect("an open file");
            fadvise(&file.fd, offset_bytes, None, Advice::DontNeed).expect("an open file");
        };
        let span = |offset_bytes, len_bytes| Span {
            offset_bytes,
            len_bytes,
        };
        let (sent, came) = copied(&file, span(0, 40_000));
        assert!(matches!(
            sent,
            Some(Sent::Taken {
                taken_bytes: 40_000,
                blocked: false
            })
        ));
        assert!(came == bytes[..40_000], "other bytes");
        drop_from(64 << 10);
        if file.resident_bytes(span(128 << 10, 1)) != Some(0) {
            return; // a file system in memory: nothing can be missing
        }
        let (sent, came) = copied(&file, span(0, 100_000));
        assert!(matches!(
            sent,
            Some(Sent::Taken {
                taken_bytes: 65_536,
                blocked: false
            })
        ));
        assert!(came == bytes[..64 << 10], "other bytes");
        assert!(
            residency::in_doubt(NOW),
            "a page is missing that was thought to be there"
        );
        drop_from(128 << 10);
        let (sent, came) = copied(&file, span(200 << 10, 4096));
        assert!(matches!(sent, Some(Sent::Missing)) && came.is_empty());
    }
}
