//! A request and its answer: sends it, receives the answer, and compares it with the file.

use rustix::io::Errno;
use rustix::net::{SendFlags, sockopt};

use super::Worker;
use super::client::{Client, Interest, Plan, State};
use super::request::{answer, name, write_request};
use super::transport;
use crate::head;
use crate::objects::Catalog;
use crate::setup::NEVER_US;
use crate::tally::Fault;
use ackpace_lab_base::content;

/// Minimum room for a head: a paced client receives it on credit.
const HEAD_ROOM_BYTES: u64 = 1460;
/// After a read that returned less than allowed, a paced client waits this long instead of waking at each
/// packet.
const LOOK_AGAIN_US: u64 = 10_000;
/// Paced reads happen at multiples of this, so that one wake-up serves many clients.
const GRID_US: u64 = 4000;
/// First pause after a fault; it doubles with each further one.
const BACKOFF_US: u64 = 100_000;
/// Limit of doublings: 6.4 s.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;
/// A client that waits longer than this for a byte has stalled.
pub(super) const STALL_US: u64 = 1_000_000;

impl Worker {
    /// Sends the client's next request. A player first requests the rest of its film.
    pub(super) fn ask(&mut self, index: usize, intended_us: u64, now_us: u64) {
        let client = &mut self.clients[index];
        let catalog = &self.setup.classes[client.class].catalog;
        if client.playback.is_none_or(|film| film.begins()) {
            client.object = catalog.choose(client.number, &mut client.dice);
        }
        client.wanted = match client.playback.zip(catalog.len_bytes()) {
            Some((film, file_bytes)) => film.segment(file_bytes),
            None => catalog.part(client.number, &mut client.dice),
        };
        client.intended_us = intended_us;
        client.asked = true;
        client.set_active(true, now_us);
        match client.socket {
            Some(_) => self.send_request(index, now_us),
            None => self.open(index, now_us),
        }
    }

    /// Starts a connection.
    pub(super) fn open(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let prepared = &self.setup.classes[client.class];
        let source = prepared.source(client.number);
        let buffer = prepared.receive_buffer_bytes();
        match transport::connect(self.setup.target, source, buffer) {
            Ok((socket, ready)) => {
                client.socket = Some(socket);
                client.state = State::Connecting;
                client.starve(now_us);
                if ready {
                    self.established(index, now_us);
                } else {
                    self.watch(index, Interest::Write);
                }
            }
            Err(error) => self.no_connection(index, error, now_us),
        }
    }

    /// Handles the end of connecting, successful or not.
    pub(super) fn connected(&mut self, index: usize, now_us: u64) {
        let Some(socket) = &self.clients[index].socket else {
            return;
        };
        match sockopt::socket_error(socket).and_then(|outcome| outcome) {
            Ok(()) => self.established(index, now_us),
            Err(error) => self.no_connection(index, error, now_us),
        }
    }

    fn established(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        self.tallies[client.class].connects += 1;
        client.state = State::Free;
        if client.asked {
            self.send_request(index, now_us);
        } else {
            client.starved_us = NEVER_US;
            self.watch(index, Interest::Read);
            self.set_free(index, now_us);
        }
    }

    fn no_connection(&mut self, index: usize, error: Errno, now_us: u64) {
        let client = &self.clients[index];
        let source = self.setup.classes[client.class].source(client.number);
        let from = source.map_or(String::new(), |source| format!(" from {}", source.ip()));
        let text = format!("connection to {}{from}: {error}", self.setup.target);
        self.fault(index, Fault::Connect, text, now_us);
    }

    fn send_request(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let prepared = &self.setup.classes[client.class];
        write_request(&mut self.request, prepared, client);
        let Some(socket) = &client.socket else {
            return;
        };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::net::send(socket, &self.request, flags) {
            Ok(sent) if sent == self.request.len() => {}
            // The server may have closed the connection between two requests (RFC 9112 9.3.1).
            _ if client.reused => return self.reopen(index, now_us),
            other => {
                let text = format!("request: {other:?} of {} bytes sent", self.request.len());
                return self.fault(index, Fault::Reset, text, now_us);
            }
        }
        client.state = State::Head;
        client.heard = false;
        client.taken_bytes = 0;
        client.starve(now_us);
        self.tallies[client.class].requests += 1;
        self.plan_departure(index, now_us);
        self.await_bytes(index, now_us);
    }

    fn reopen(&mut self, index: usize, now_us: u64) {
        drop(transport::take(&mut self.clients[index]));
        self.open(index, now_us);
    }

    /// Makes the client wait for bytes in its own way: at once, or at its pace.
    pub(super) fn await_bytes(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let paced = client.pace.is_paced() && client.state == State::Body;
        if paced {
            client.plan(Plan::Read, now_us);
            self.watch(index, Interest::None);
        } else {
            client.plan(Plan::Read, NEVER_US);
            self.watch(index, Interest::Read);
        }
    }

    /// Data has arrived, or it is time to read.
    pub(super) fn readable(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let Some(socket) = &client.socket else {
            return;
        };
        match client.state {
            State::Free => match transport::receive(socket, &mut self.buffer[..1]) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                Ok(1..) => {
                    let text = "bytes without a request".into();
                    self.fault(index, Fault::Head, text, now_us);
                }
                Ok(0) | Err(_) => self.left_alone(index),
            },
            State::Head | State::Body => self.read(index, now_us),
            _ => {}
        }
    }

    fn read(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let Some(room) = room_bytes(client, self.buffer.len() as u64, now_us) else {
            // A packet woke the client too early.
            let reads_us = client.pace.reads_us(client.left_bytes).unwrap_or(now_us);
            client.plan(Plan::Read, reads_us.next_multiple_of(GRID_US));
            return self.watch(index, Interest::None);
        };
        let Some(socket) = &client.socket else {
            return;
        };
        match transport::receive(socket, &mut self.buffer[..room]) {
            Ok(0) => self.ended(index, None, now_us),
            Ok(got) => self.received(index, got, room, now_us),
            Err(Errno::AGAIN | Errno::INTR) => {
                client.starve(now_us);
                self.watch(index, Interest::Read);
            }
            Err(error) => self.ended(index, Some(error), now_us),
        }
    }

    fn received(&mut self, index: usize, got: usize, room: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let tally = &mut self.tallies[client.class];
        let since_us = client.starved_us.max(self.measured_from_us);
        let waited_us = client.fed(now_us).min(now_us.saturating_sub(since_us));
        let is_player = client.playback.is_some(); // its film may continue in the meantime
        if waited_us > STALL_US && !is_player {
            tally.stalls += 1;
            tally.stalled_us += waited_us;
        }
        if !client.heard {
            client.heard = true;
            tally
                .first_byte
                .add(now_us.saturating_sub(client.intended_us));
        }
        client.pace.spend(got as u64);
        let buffer = std::mem::take(&mut self.buffer);
        let goes_on = self.consume(index, &buffer[..got], now_us);
        self.buffer = buffer;
        if !goes_on {
            return;
        }
        let client = &mut self.clients[index];
        let reads_us = client.pace.reads_us(client.left_bytes);
        if got < room || reads_us.is_none() {
            client.starve(now_us);
        }
        if client.state == State::Body {
            let least = self.setup.classes[client.class]
                .class
                .receive_at_least_bytes;
            let least = u64::from(least.unwrap_or(1)).min(client.left_bytes);
            transport::set_low_water(client, least.max(1) as u32);
        }
        if client.state == State::Body {
            let Some(reads_us) = reads_us else {
                return self.watch(index, Interest::Read);
            };
            let short = if got < room { LOOK_AGAIN_US } else { 0 };
            let reads_us = reads_us.max(now_us + short);
            client.plan(Plan::Read, reads_us.next_multiple_of(GRID_US));
            self.watch(index, Interest::None);
        }
    }

    /// Consumes bytes of an answer; returns false if the answer has ended.
    fn consume(&mut self, index: usize, bytes: &[u8], now_us: u64) -> bool {
        let client = &mut self.clients[index];
        if client.state != State::Head {
            return self.body(index, bytes, now_us);
        }
        let whole = if client.head.is_empty() {
            head::parse(bytes)
        } else {
            client.head.extend_from_slice(bytes);
            head::parse(&client.head)
        };
        let head = match whole {
            Ok(Some(head)) => head,
            Ok(None) => {
                if client.head.is_empty() {
                    client.head.extend_from_slice(bytes);
                }
                return true;
            }
            Err(why) => {
                self.fault(index, Fault::Head, why, now_us);
                return false;
            }
        };
        let before = client.head.len().saturating_sub(bytes.len());
        client.head = Vec::new(); // the client may idle: keep no memory
        let prepared = &self.setup.classes[client.class];
        match answer(&head, client, &prepared.catalog) {
            Ok((offset_bytes, left_bytes)) => {
                client.offset_bytes = offset_bytes;
                client.left_bytes = left_bytes;
                client.closing |= head.close;
                client.state = State::Body;
                let path = &mut self.request;
                path.clear();
                prepared.catalog.write_path(client.object, path);
                client.tag = Catalog::tag(path);
                self.body(index, &bytes[head.len_bytes - before..], now_us)
            }
            Err((fault, why)) => {
                self.fault(index, fault, why, now_us);
                false
            }
        }
    }

    fn body(&mut self, index: usize, bytes: &[u8], now_us: u64) -> bool {
        let client = &mut self.clients[index];
        if bytes.len() as u64 > client.left_bytes {
            let more = bytes.len() as u64 - client.left_bytes;
            self.fault(
                index,
                Fault::Head,
                format!("{more} bytes beyond the answer"),
                now_us,
            );
            return false;
        }
        if let Some(at) = content::first_wrong(client.tag, client.offset_bytes, bytes) {
            let text = format!("offset {at}: {:#04x} is not the file's byte", {
                bytes[(at - client.offset_bytes) as usize]
            });
            self.fault(index, Fault::WrongByte, text, now_us);
            return false;
        }
        client.take(bytes.len() as u64);
        self.tallies[client.class].bytes += bytes.len() as u64;
        if self.clients[index].left_bytes == 0 {
            self.finished(index, now_us);
            return false;
        }
        true
    }

    fn finished(&mut self, index: usize, now_us: u64) {
        let client = &mut self.clients[index];
        let tally = &mut self.tallies[client.class];
        tally.completed += 1;
        tally
            .completion
            .add(now_us.saturating_sub(client.intended_us));
        client.failures = 0;
        client.reused = true;
        client.state = State::Free;
        let prepared = &self.setup.classes[client.class];
        let file_bytes = prepared.catalog.len_bytes().unwrap_or(0);
        let taken_bytes = client.taken_bytes;
        let film = client.playback.as_mut();
        if let Some(since_us) = film.and_then(|film| film.came(taken_bytes, file_bytes, now_us)) {
            tally.stalls += 1;
            tally.stalled_us += now_us.saturating_sub(since_us.max(self.measured_from_us));
        }
        if client.closing || !prepared.class.keep_alive {
            drop(transport::take(client));
            client.state = State::Off;
        } else {
            transport::set_low_water(client, 1);
            self.watch(index, Interest::Read);
        }
        self.over(index);
        self.next(index, now_us);
    }

    /// Handles a connection that ended within an answer or before it.
    fn ended(&mut self, index: usize, error: Option<Errno>, now_us: u64) {
        let client = &self.clients[index];
        if client.reused && !client.heard {
            return self.reopen(index, now_us);
        }
        let at = match client.state {
            State::Body => format!(
                "after {} bytes of the body, {} were to come",
                client.taken_bytes, client.left_bytes
            ),
            _ => "before the end of the head".to_owned(),
        };
        match error {
            Some(error) => self.fault(index, Fault::Reset, format!("{error} {at}"), now_us),
            None => self.fault(index, Fault::ClosedEarly, format!("closed {at}"), now_us),
        }
    }

    /// Handles a failed request: counts and reports it, and lets the client start again after a pause.
    pub(super) fn fault(&mut self, index: usize, fault: Fault, why: String, now_us: u64) {
        self.stall_that_lasts(index, now_us);
        let client = &mut self.clients[index];
        drop(transport::take(client));
        client.state = State::Off;
        client.head = Vec::new();
        let doublings = client.failures.min(BACKOFF_DOUBLINGS_MAX);
        client.failures = client.failures.saturating_add(1);
        let (class, asked) = (client.class, client.asked);
        let request = match asked {
            true => format!(
                "{}: {why}",
                name(client, &self.setup.classes[class].catalog)
            ),
            false => why,
        };
        self.tell(class, fault, || request);
        self.over(index);
        if self.is_last(index) {
            return self.retire(index, now_us);
        }
        let client = &mut self.clients[index];
        client.plan(Plan::Begin, now_us + (BACKOFF_US << doublings));
        if self.open_loops[class].is_some() {
            client.set_active(false, now_us);
        }
    }

    /// Cleans up after a request, however it ended.
    pub(super) fn over(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.served = client.served.saturating_add(u32::from(client.asked));
        client.asked = false;
        client.starved_us = NEVER_US;
        client.plan(Plan::Read, NEVER_US);
        client.plan(Plan::Leave, NEVER_US);
    }
}

/// Bytes that the client may read now; `None` before its time.
fn room_bytes(client: &mut Client, buffer_bytes: u64, now_us: u64) -> Option<usize> {
    let mut room = buffer_bytes;
    if client.state == State::Body {
        room = room.min(client.left_bytes);
    }
    if client.pace.is_paced() {
        let reads_us = client.pace.reads_us(client.left_bytes);
        if client.state == State::Body && reads_us.is_some_and(|reads_us| now_us < reads_us) {
            return None;
        }
        let least = if client.state == State::Head {
            HEAD_ROOM_BYTES
        } else {
            1
        };
        room = room.min(client.pace.room_bytes(now_us).max(least));
    }
    Some(room as usize)
}
