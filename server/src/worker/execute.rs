//! Executing the machine's orders, one by one. New connections are in `accept`, finding and planning in `answer`.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::OwnedFd;

use ackpace_core::conn::{ConnId, Held, Part, Span, StreamId, TcpEvent, Version, Want};
use ackpace_core::machine::Machine;
use ackpace_core::send::Room;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{Expect, In, Out, Outcome};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::Shutdown;
use smallvec::SmallVec;

use super::{INTEREST, Worker, data_of};
use crate::disk::{Ask, Piece};
use crate::limits::{SLICES_MAX, TEXTS_MAX};
use crate::resolver::Job;
use crate::store::device::Device;
use crate::store::file::File;
use crate::store::residency::{is_read, resident_bytes};
use crate::tally::Way;
use crate::tcp;

/// What came of an attempt to send.
enum Sent {
    Taken {
        taken_bytes: u64,
        blocked: bool,
    },
    /// The file is not what was promised, or can't be read.
    Broken(Why),
    /// The connection is dead.
    Reset,
}

impl Worker {
    pub(super) fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Accept(most) => self.accept(most, now),
            Out::Listen(on) => self.listen(on),
            Out::Receive { conn, expect } => self.receive(conn, expect, now),
            Out::Resolve { stream, refuse } => self.resolve(stream, refuse, now),
            Out::Probe {
                stream,
                span,
                object: _,
            } => self.probe(stream, span, now),
            Out::Want(want) => self.want(want, now),
            Out::Forget(stream) => self.forget(stream),
            Out::Release(stream) => {
                if let Some(conn) = self.conns.get(stream.conn) {
                    conn.pieces.clear();
                }
            }
            Out::Ended(stream) => self.ended(stream),
            Out::Slice(stream) => self.slice(stream, now),
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                held,
                more,
                room,
            } => {
                let span = Span {
                    offset_bytes: from_bytes,
                    len_bytes,
                };
                self.send(stream, part, span, (held, more), room, now);
            }
            Out::Pace {
                conn,
                rate_bytes_per_s,
            } => {
                if let Some(conn) = self.conns.get(conn) {
                    tcp::set_pace(&conn.socket, rate_bytes_per_s);
                }
            }
            Out::Sample(conn) => {
                if let Some(sample) = self.conns.get(conn).map(|conn| tcp::sample(&conn.socket)) {
                    self.decider.on(
                        In::Tcp {
                            conn,
                            event: TcpEvent::Sample(sample),
                        },
                        now,
                    );
                }
            }
            Out::Arrived { stream, outcome } => self.arrived(stream, &outcome),
            Out::Shutdown(conn) => {
                if let Some(conn) = self.conns.get(conn) {
                    let _ = rustix::net::shutdown(&conn.socket, Shutdown::Write);
                }
            }
            Out::Close { conn, abort, why } => self.close(conn, abort, why),
        }
    }

    fn receive(&mut self, id: ConnId, expect: Expect, now: Instant) {
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let received = match expect {
            Expect::Head => conn.front.receive(&conn.socket, &mut self.heads),
            Expect::Body => conn.front.skip_body(&conn.socket, &mut self.heads),
            Expect::Rest => conn.front.discard(&conn.socket, &mut self.heads),
        };
        let event = match received {
            Ok(received) => In::Received { conn: id, received },
            Err(_) => In::Tcp {
                conn: id,
                event: TcpEvent::Reset,
            },
        };
        self.decider.on(event, now);
    }

    fn probe(&mut self, stream: StreamId, span: Span, now: Instant) {
        let file = self
            .conns
            .get(stream.conn)
            .and_then(|conn| conn.file.as_ref());
        let resident_bytes = file.map_or(0, |file| {
            let bytes = resident_bytes(&file.fd, file.oracle, span);
            let device = self.shared.site.devices.get(file.id.device);
            let in_doubt = bytes > 0 && device.is_some_and(Device::is_promoting);
            if in_doubt && !is_read(&file.fd, span) {
                return 0;
            }
            bytes
        });
        self.decider.on(
            In::Probed {
                stream,
                resident_bytes,
            },
            now,
        );
    }

    fn want(&mut self, want: Want, now: Instant) {
        let Some(conn) = self.conns.get(want.stream.conn) else {
            return;
        };
        let Some(file) = conn.file.clone() else {
            return;
        };
        let device = want.object.device;
        match self.shared.disks.get(device) {
            Ok(disk) => {
                conn.asked = Some(device);
                disk.ask(
                    want.stream.worker,
                    want.stream.conn.index,
                    Ask::Want(want, file),
                );
                self.disks_to_ring |= 1 << device;
            }
            Err(error) => {
                tracing::error!("the threads of a disk could not be started: {error}");
                self.decider.on(
                    In::Failed {
                        stream: want.stream,
                        why: Why::ReadFailed,
                    },
                    now,
                );
            }
        }
    }

    fn forget(&mut self, stream: StreamId) {
        let Some(device) = self
            .conns
            .get(stream.conn)
            .and_then(|conn| conn.asked.take())
        else {
            return;
        };
        if let Ok(disk) = self.shared.disks.get(device) {
            disk.ask(stream.worker, stream.conn.index, Ask::Forget(stream));
            self.disks_to_ring |= 1 << device;
        }
    }

    fn ended(&mut self, stream: StreamId) {
        if let Some(conn) = self.conns.get(stream.conn) {
            if std::mem::take(&mut conn.corked) {
                tcp::cork(&conn.socket, false);
            }
            conn.pieces.clear();
            (conn.file, conn.listing, conn.slice) = (None, None, Vec::new());
        }
    }

    fn slice(&mut self, stream: StreamId, now: Instant) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let submitted = conn
            .listing
            .take()
            .is_some_and(|listing| self.shared.resolver.submit(stream, Job::Slice(listing)));
        if !submitted {
            self.decider.on(
                In::Failed {
                    stream,
                    why: Why::ListingFailed,
                },
                now,
            );
        }
    }

    fn send(
        &mut self,
        stream: StreamId,
        part: u16,
        span: Span,
        (held, more): (Held, bool),
        room: Option<Room>,
        now: Instant,
    ) {
        let (Some(conn), Some(plan)) = (self.conns.get(stream.conn), self.decider.plan(stream))
        else {
            return;
        };
        let (nth, Some(part)) = (part, plan.parts.get(usize::from(part))) else {
            return;
        };
        if let Some(room) = room {
            conn.set_lowat(room.lowat_bytes);
        }
        if more && !conn.corked && matches!(part, Part::Body { .. }) {
            // sendfile(2) has no MSG_MORE: without the cork each window would end in a small segment.
            tcp::cork(&conn.socket, true);
            conn.corked = true;
        }
        let at_bytes = span.offset_bytes
            + match part {
                Part::Body { span: body, .. } => body.offset_bytes,
                Part::Bytes(_) | Part::Slices => 0,
            };
        let sent = match (part, &conn.file) {
            (Part::Bytes(_), _) => send_texts(&conn.socket, plan.texts(nth), span, more),
            (Part::Slices, _) => {
                send_texts(&conn.socket, std::iter::once(&conn.slice[..]), span, more)
            }
            (Part::Body { version, .. }, Some(file)) => {
                let span = Span {
                    offset_bytes: at_bytes,
                    ..span
                };
                match held {
                    Held::PageCache => send_body(&conn.socket, file, version, span),
                    Held::Slots => send_pieces(&conn.socket, &mut conn.pieces, file, version, span),
                }
            }
            (Part::Body { .. }, None) => Sent::Broken(Why::ReadFailed),
        };
        let event = match sent {
            Sent::Taken {
                taken_bytes,
                blocked,
            } => {
                self.turn_bytes += taken_bytes;
                let full = blocked || room.is_some_and(|room| taken_bytes >= room.bytes);
                if let Some(room) = room.filter(|_| full) {
                    conn.set_lowat(2 * room.call_bytes);
                    if !blocked {
                        // A socket calls only after it has refused something. Being asked by epoll and saying no is that, too.
                        let _ =
                            epoll::modify(&self.epoll, &conn.socket, data_of(conn.id), INTEREST);
                    }
                }
                let way = match part {
                    Part::Body { .. } if held == Held::Slots => Way::Direct,
                    Part::Body { .. } => Way::Sendfile,
                    Part::Bytes(_) if conn.ready => Way::KeptReady,
                    Part::Bytes(_) | Part::Slices => Way::Made,
                };
                self.tally.sent_bytes[way as usize].add(taken_bytes);
                if blocked {
                    let none = taken_bytes == 0;
                    self.tally.sends_refused.add(none.into());
                    self.tally.sends_cut.add((!none).into());
                }
                In::Sent {
                    stream,
                    taken_bytes,
                    full,
                    unsent_bytes: if full || more && matches!(part, Part::Body { .. }) {
                        tcp::unsent_bytes(&conn.socket)
                    } else {
                        None
                    },
                }
            }
            Sent::Broken(why) => {
                if let Some(file) = &conn.file {
                    let file = self.shared.site.shown(&file.path);
                    tracing::error!(
                        file,
                        at_bytes,
                        "{why}: the response ends before its last byte"
                    );
                }
                In::Failed { stream, why }
            }
            Sent::Reset => In::Tcp {
                conn: stream.conn,
                event: TcpEvent::Reset,
            },
        };
        self.decider.on(event, now);
    }

    fn arrived(&mut self, stream: StreamId, outcome: &Outcome) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        if let Some(record) = conn.front.record(stream.nth, conn.remote, outcome) {
            self.log.log(record);
        }
    }

    fn close(&mut self, id: ConnId, abort: bool, why: Why) {
        let Some(mut conn) = self.conns.remove(id) else {
            return;
        };
        self.shared.desks[self.index].closed();
        if abort {
            tcp::abort(&conn.socket);
        }
        conn.front.release(&mut self.heads);
        tracing::debug!(remote = ?conn.remote, "closed: {why}");
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

/// Send a piece of the file, if the file is still what was promised. A file that is truncated just
/// behind that look ends the piece early, as a full socket does; the next look tells them apart.
fn send_body(socket: &OwnedFd, file: &File, promised: &Version, span: Span) -> Sent {
    if !file.still_holds(promised) {
        return Sent::Broken(Why::FileChanged);
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
    file: &File,
    promised: &Version,
    span: Span,
) -> Sent {
    let unproven = pieces.iter().any(|piece| !piece.proven);
    if unproven && !file.still_holds(promised) {
        return Sent::Broken(Why::FileChanged);
    }
    // All of them were read before this look.
    pieces.iter_mut().for_each(|piece| piece.proven = true);
    let mut slices = SmallVec::<[IoSlice; 8]>::new();
    let (mut at_bytes, mut offered) = (span.offset_bytes, 0);
    for piece in &*pieces {
        if !piece.span.contains(at_bytes) || slices.len() >= SLICES_MAX {
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
