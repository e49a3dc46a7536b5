//! Executing the machine's orders, one by one.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ackpace_core::balance::{self, Load};
use ackpace_core::conn::{ConnId, Part, Plan, Span, StreamId, TcpEvent, Version, Want};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{Expect, In, Out, Outcome};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;
use smallvec::SmallVec;

use super::{LISTENER, Worker, data_of};
use crate::clock::unix_ms;
use crate::desk::Desk;
use crate::disk::Ask;
use crate::front::http::{Surroundings, Task};
use crate::front::site::{Answer, Served};
use crate::hot::{Body, Content, Ready};
use crate::limits::{HOT_COPY_BYTES_MAX, TEXTS_MAX};
use crate::resolver::{Done, Job};
use crate::store::file::File;
use crate::store::residency::resident_bytes;
use crate::store::root::Wait;
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
            Out::Ended(stream) => self.ended(stream),
            Out::Slice(stream) => self.slice(stream, now),
            Out::Send {
                stream,
                part,
                from_bytes,
                len_bytes,
                more,
                lowat_bytes,
            } => {
                self.set_lowat(stream.conn, lowat_bytes);
                let span = Span {
                    offset_bytes: from_bytes,
                    len_bytes,
                };
                self.send(stream, part, span, more, now);
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

    pub(super) fn accept(&mut self, most: u32, now: Instant) {
        let mut left = most;
        for listener in 0..self.listeners.len() {
            while left > 0 {
                match tcp::accept(&self.listeners[listener]) {
                    Ok(client) => {
                        left -= 1;
                        self.accepted(client, now);
                    }
                    Err(Errno::AGAIN) => break,
                    // The client was gone before it was accepted, or sent us a network error (accept(2)).
                    Err(Errno::CONNABORTED | Errno::PROTO | Errno::PERM | Errno::INTR) => left -= 1,
                    Err(error) => {
                        self.tally.accept_errors.add(1);
                        tracing::warn!(
                            connections = self.decider.connections(),
                            "accept: {error}; trying again soon"
                        );
                        self.decider.on(In::AcceptFailed, now);
                        return;
                    }
                }
            }
        }
    }

    /// Give a new connection to who carries least, if we carry too much.
    fn accepted(&mut self, client: tcp::Accepted, now: Instant) {
        let shared = Arc::clone(&self.shared);
        let (me, desks) = (self.index, &shared.desks);
        if desks.len() == 1 || self.draining {
            desks[me].opened();
            return self.take_over(client, now);
        }
        let loads: SmallVec<[Load; 16]> = desks.iter().map(Desk::load).collect();
        let to = balance::place(me, &loads);
        let room = loads[to].connections < u64::from(self.decider.connections_max());
        if to == me || !room {
            desks[me].opened();
            return self.take_over(client, now);
        }
        match desks[to].hand(client) {
            Ok(()) => shared.lines[to].bell.ring(),
            Err(client) => {
                desks[me].opened();
                self.take_over(client, now);
            }
        }
    }

    /// Serve a connection that counts as ours already.
    pub(super) fn take_over(&mut self, client: tcp::Accepted, now: Instant) {
        if self.decider.room() == 0 {
            tracing::warn!("a client is turned away: no place is left in any worker");
            return self.shared.desks[self.index].closed();
        }
        let address = client.peer.map(|peer| tcp::counted(peer.ip()));
        let conn = self.conns.add(client.socket, client.peer);
        let Some(added) = self.conns.get(conn) else {
            return;
        };
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        if let Err(error) = epoll::add(&self.epoll, &added.socket, data_of(conn), flags) {
            tracing::warn!("epoll: {error}; a client is turned away");
            self.conns.remove(conn);
            return self.shared.desks[self.index].closed();
        }
        self.tally.accepted.add(1);
        self.decider.on(In::Accepted { conn, address }, now);
    }

    fn listen(&mut self, on: bool) {
        let flags = if on {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        for listener in &self.listeners {
            let _ = epoll::modify(&self.epoll, listener, EventData::new_u64(LISTENER), flags);
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

    fn resolve(&mut self, stream: StreamId, refuse: bool, now: Instant) {
        let around = Surroundings {
            site: &self.shared.site,
            draining: self.draining,
            logging: self.log.is_on(),
        };
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let plain = conn
            .front
            .plain_target()
            .filter(|_| !refuse && !self.draining);
        let ready = plain.and_then(|target| self.hot.get(target, unix_ms() / 1000));
        if let Some((ready, content)) = ready {
            if let Body::Open(file) = &ready.body {
                conn.file = Some(Arc::clone(file));
            }
            let plan = conn.front.ready(stream.nth, ready, content, &around);
            conn.ready = true;
            self.tally.ready_hits.add(1);
            self.tally.answered(conn.front.status());
            conn.front.used(&mut self.heads);
            return self.decider.on(In::Resolved { stream, plan }, now);
        }
        let missed = self.hot.is_on() && plain.is_some();
        self.tally.ready_misses.add(missed.into());
        conn.ready = false;
        match conn.front.task(stream.nth, refuse, &around) {
            Task::Answer(plan) => {
                self.tally.answered(conn.front.status());
                conn.front.used(&mut self.heads);
                self.decider.on(In::Resolved { stream, plan }, now);
            }
            Task::Find(query) => {
                conn.format = query.format;
                match self.shared.site.find(&query, Wait::No) {
                    Some(answer) => self.answer(stream, answer, now),
                    None if self.shared.resolver.submit(stream, Job::Find(query)) => {}
                    None => self.answer(stream, Answer::Exhausted, now),
                }
            }
        }
    }

    pub(super) fn resolver_done(&mut self, stream: StreamId, done: Done, now: Instant) {
        match done {
            Done::Found(answer) => self.answer(stream, answer, now),
            Done::Sliced(Ok(slice), listing) => {
                let Some(conn) = self.conns.get(stream.conn) else {
                    return;
                };
                (conn.slice, conn.listing) = (slice.bytes, listing);
                let len_bytes = conn.slice.len() as u64;
                self.decider.on(
                    In::Sliced {
                        stream,
                        len_bytes,
                        last: slice.last,
                    },
                    now,
                );
            }
            Done::Sliced(Err(error), _) => {
                tracing::warn!("a listing could not be continued: {error}");
                self.decider.on(
                    In::Failed {
                        stream,
                        why: Why::ListingFailed,
                    },
                    now,
                );
            }
        }
    }

    /// Plan the answer now that it is known what lies there.
    fn answer(&mut self, stream: StreamId, answer: Answer, now: Instant) {
        let around = Surroundings {
            site: &self.shared.site,
            draining: self.draining,
            logging: self.log.is_on(),
        };
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let plan = conn.front.plan(stream.nth, &answer, conn.format, &around);
        self.tally.answered(conn.front.status());
        if let Answer::File(served) = &answer {
            self.keep_ready(stream, served, &plan);
        }
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        match answer {
            Answer::File(served) => conn.file = Some(served.file),
            Answer::Listing(listing) => conn.listing = listing,
            Answer::Astray(why) => tracing::debug!(remote = ?conn.remote, "404: {why}"),
            Answer::Forbidden(why) => tracing::debug!(remote = ?conn.remote, "403: {why}"),
            Answer::Failed(error) => tracing::error!(remote = ?conn.remote, "500: {error}"),
            Answer::Exhausted => {
                self.hot.clear(); // it may be what keeps the descriptors
                tracing::warn!("503: no descriptors, memory or places left for a request")
            }
            Answer::Slash | Answer::Elsewhere(_) | Answer::NotFound => {}
        }
        conn.front.used(&mut self.heads);
        self.decider.on(In::Resolved { stream, plan }, now);
    }

    /// Keep the answer ready for the next who asks, if it is a small file's and the same for everybody.
    fn keep_ready(&mut self, stream: StreamId, served: &Served, plan: &Plan) {
        let now_unix_s = unix_ms() / 1000;
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let target = conn
            .front
            .plain_target()
            .filter(|_| !served.vary && !self.draining);
        let Some(target) = target.filter(|target| self.hot.wants(target, served.version.len_bytes))
        else {
            return;
        };
        // Its validators are weak while it may still change within the second.
        let old = served.modified_unix_s + 2 < now_unix_s as i64;
        let (Some(Part::Bytes(head)), true) = (plan.parts.first(), old) else {
            return;
        };
        let content = Content {
            object: served.file.id,
            version: served.version,
        };
        let kept = self.hot.body(target, &content);
        // What is kept is watched since it was read.
        if let Some(watch) = self.watch.as_mut().filter(|_| kept.is_none()) {
            let (directory, name) = self.shared.site.place(&served.file.path);
            watch.add(&directory, name, target, &self.hot);
        }
        let len_bytes = served.version.len_bytes;
        let copied = || match len_bytes {
            0..=HOT_COPY_BYTES_MAX => served.file.resident(&served.version).map(Body::Copied),
            _ => Some(Body::Open(Arc::clone(&served.file))),
        };
        if let Some(body) = kept.or_else(copied) {
            let ready = Ready {
                head: Arc::clone(head),
                body,
            };
            self.hot.keep(target, content, ready, now_unix_s);
            self.count_ready();
        }
    }

    /// Let others see what is kept ready.
    pub(super) fn count_ready(&self) {
        let (files, bytes) = self.hot.held();
        self.tally.ready_files.set(files);
        self.tally.ready_bytes.set(bytes);
    }

    fn probe(&mut self, stream: StreamId, span: Span, now: Instant) {
        let file = self
            .conns
            .get(stream.conn)
            .and_then(|conn| conn.file.as_ref());
        let resident_bytes = file.map_or(0, |file| resident_bytes(&file.fd, file.oracle, span));
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

    fn send(&mut self, stream: StreamId, part: u16, span: Span, more: bool, now: Instant) {
        let (Some(conn), Some(plan)) = (self.conns.get(stream.conn), self.decider.plan(stream))
        else {
            return;
        };
        let (nth, Some(part)) = (part, plan.parts.get(usize::from(part))) else {
            return;
        };
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
                send_body(&conn.socket, file, version, span)
            }
            (Part::Body { .. }, None) => Sent::Broken(Why::ReadFailed),
        };
        let event = match sent {
            Sent::Taken {
                taken_bytes,
                blocked,
            } => {
                self.turn_bytes += taken_bytes;
                let way = match part {
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
                    blocked,
                    unsent_bytes: if blocked {
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

    /// Follow the connection's margin; a socket without one, such as a unix socket, goes without.
    fn set_lowat(&mut self, id: ConnId, lowat_bytes: Option<u32>) {
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        if let Some(bytes) = lowat_bytes.filter(|_| conn.lowat_bytes != lowat_bytes) {
            tcp::set_lowat(&conn.socket, bytes);
            conn.lowat_bytes = lowat_bytes;
        }
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
    if !file.version().is_ok_and(|now| promised.still_holds(&now)) {
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
