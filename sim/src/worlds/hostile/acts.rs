//! The events of a run, one after the other, as the bytes of its input choose them.

use ackpace_core::conn::{ConnId, Span, StreamId, TcpEvent};
use ackpace_core::disk::{self, ReadId};
use ackpace_core::limits::WINDOW_BYTES;
use ackpace_core::units::MIB;
use ackpace_core::worker::In;

use super::client::PLACES;
use super::disk_thread::Fate;
use super::response::{Shape, object, request};
use super::shell::Run;

/// Events per input; the rest of a longer one is ignored.
const ACTS_MAX: u32 = 1_000;
/// Where send memory is divided, bytes from this value on choose events of its division.
const SHARES_FROM: u8 = 192;
/// More orders than one event can ever cause: beyond this, the worker is in a loop.
pub(super) const OUTS_MAX: u32 = 20_000;
/// Requests waiting in one client's input.
const REQUESTS_MAX: usize = 4;

impl Run<'_> {
    /// Executes the whole input.
    pub fn act(&mut self) {
        for _ in 0..ACTS_MAX {
            if self.input.is_empty() {
                return;
            }
            let byte = self.input.byte();
            let act = byte % 64;
            self.trace.note(self.now, "act", &act);
            match act {
                _ if byte >= SHARES_FROM && self.divided => self.act_of_shares(),
                0..22 => self.act_of_turns(act),
                22..40 => self.act_of_client(act),
                40..57 => self.act_of_memory(act),
                _ => self.act_of_chance(act),
            }
            self.check();
        }
    }

    /// One of the threads takes a turn, or a part of one.
    fn act_of_turns(&mut self, act: u8) {
        match act {
            0..6 => self.worker_turn(),
            6..9 => drop(self.hear_one()),
            9..12 => {
                let most = 1 + self.input.below(4) as u32;
                self.obey_worker(most);
            }
            12..16 => self.disk_turn(),
            16..18 => drop(self.hear_ask()),
            18 => {
                self.memory_came_back();
                self.pump_disk();
            }
            19 => self.pump_disk(),
            20 => self.act_of_moves(),
            _ => {
                self.worker_turn();
                self.disk_turn();
            }
        }
    }

    /// A turn as in the server: it hears messages first, then executes orders.
    pub fn worker_turn(&mut self) {
        self.worker_woken = false;
        while self.hear_one() {}
        let outs = self.obey_worker(OUTS_MAX);
        assert!(outs < OUTS_MAX, "the worker turns in circles");
        self.disk_thread.woken |= std::mem::take(&mut self.must_wake_disk);
    }

    pub fn someone(&mut self) -> Option<ConnId> {
        let nth = self.input.below(PLACES.into()) as usize;
        let living = self.clients.iter().flatten();
        let count = living.clone().count().max(1);
        living.map(|client| client.id).nth(nth % count)
    }

    fn act_of_client(&mut self, act: u8) {
        if act < 24 {
            if act == 23 {
                return self.act_of_moves();
            }
            self.backlog = (self.backlog + 1).min(PLACES);
            self.on(In::Incoming);
            return;
        }
        let Some(conn) = self.someone() else {
            self.backlog = 1;
            return self.on(In::Incoming);
        };
        match act {
            24..30 => self.ask(conn),
            30..36 => {
                let share = 1 + self.input.below(3);
                self.acknowledge(conn, share);
            }
            36 => self.tcp(conn, TcpEvent::Writable),
            37 => self.tcp(conn, TcpEvent::Readable),
            38 => match self.input.below(3) {
                0 => {
                    if let Some(client) = self.client(conn) {
                        client.fin = true;
                    }
                    self.tcp(conn, TcpEvent::Fin);
                }
                1 => self.reset(conn),
                _ => self.on(In::Incoming),
            },
            _ => {
                let closed = self.input.once_in(2);
                if let Some(client) = self.client(conn) {
                    client.window_closed = closed;
                    client.marks += 1;
                }
            }
        }
    }

    /// The client sends a request; often several at once.
    fn ask(&mut self, conn: ConnId) {
        let shapes = self.files.iter().map(|file| Shape {
            len_bytes: file.len_bytes,
            residency: file.residency,
        });
        let shapes: Vec<_> = shapes.collect();
        for _ in 0..=self.input.below(2) {
            let request = request(&mut self.input, &shapes, self.opened);
            let client = self.client(conn).expect("someone");
            if !client.fin && client.input.len() < REQUESTS_MAX {
                client.input.push_back(request);
            }
        }
        self.tcp(conn, TcpEvent::Readable);
    }

    fn act_of_memory(&mut self, act: u8) {
        match act {
            40..47 => {
                if let Some(read) = self.some_read() {
                    self.read_done(read, Fate::Whole);
                }
            }
            47 => {
                let bytes = self.input.below(4 * MIB);
                let fate = match self.input.below(4) {
                    0 => Fate::Short(bytes),
                    1 => Fate::Broken(bytes),
                    _ => Fate::Whole,
                };
                if let Some(read) = self.some_read() {
                    self.read_done(read, fate);
                }
            }
            48 => drop(self.map_one()),
            49..52 => {
                let (nth, span) = self.some_pages();
                self.files[nth].drop_pages(span);
            }
            52..55 => {
                let (nth, span) = self.some_pages();
                self.files[nth].keep(span);
            }
            _ => {
                let all = Span {
                    offset_bytes: 0,
                    len_bytes: u64::MAX,
                };
                self.files.iter_mut().for_each(|file| file.drop_pages(all));
            }
        }
    }

    fn some_read(&mut self) -> Option<ReadId> {
        let count = self.disk_thread.reads.len() as u64;
        let nth = self.input.below(count.max(1)) as usize;
        self.disk_thread.reads.keys().nth(nth).copied()
    }

    /// A window of a file, a part of one, or several.
    fn some_pages(&mut self) -> (usize, Span) {
        let nth = self.input.below(self.files.len() as u64) as usize;
        let windows = 1 + self.files[nth].len_bytes / WINDOW_BYTES;
        let window = self.input.below(windows);
        let into_bytes = self
            .input
            .pick(&[0, 0, WINDOW_BYTES / 2, 3 * WINDOW_BYTES / 4]);
        let offset_bytes = window * WINDOW_BYTES + into_bytes;
        let len_bytes = self.input.pick(&[WINDOW_BYTES, 16_384, 4 * WINDOW_BYTES]);
        let span = Span {
            offset_bytes,
            len_bytes,
        };
        (nth, span)
    }

    fn act_of_chance(&mut self, act: u8) {
        match act {
            57..60 => {
                let us = self.input.pick(&[1_000, 50_000, 300_000, 1_100_000]);
                self.now = self.now.plus_us(us);
            }
            60 => {
                let us = self.input.pick(&[5_000_000, 21_000_000, 700_000_000]);
                self.now = self.now.plus_us(us);
            }
            61 => {
                if let Some(conn) = self.someone() {
                    let fails = self.input.once_in(4);
                    self.resolve(conn);
                    self.slice(conn, fails);
                }
            }
            62 => self.rare_event(),
            _ => self.echo(),
        }
    }

    /// An event that is rare.
    fn rare_event(&mut self) {
        match self.input.below(5) {
            0 => {
                let share = self.input.pick(&[1, 2]);
                let memory_bytes = (self.disk_thread.settings.memory_bytes / share).max(8 * 16_384);
                self.on_disk(disk::In::Budget { memory_bytes });
            }
            1 => {
                let look_ups = self.input.below(3) as u32;
                self.on_disk(disk::In::LookUps(look_ups));
            }
            2 => self.opened += 1,
            3 => {
                if let Some(conn) = self.someone() {
                    if let Some(client) = self.client(conn) {
                        client.fails_next = true;
                    }
                }
            }
            _ => {
                if self.input.once_in(8) {
                    self.on(In::Drain);
                }
            }
        }
    }

    /// Repeats a message, or delivers it long after its stream has ended. The machines must tolerate both.
    fn echo(&mut self) {
        if !self.echoes {
            return;
        }
        match self.input.below(5) {
            0 => {
                if let Some(completion) = &self.last_completion {
                    let heard = completion.heard();
                    self.on(heard);
                }
            }
            1 => {
                let place = self.input.below(PLACES.into()) as u32;
                if let Some(outstanding) = self.disk_thread.outstanding.get(&place) {
                    let stream = before(outstanding.want.stream);
                    self.on_disk(disk::In::Forget(stream));
                }
            }
            2 => {
                let nth = self.input.below(2) as u32;
                let object = object(nth % self.files.len() as u32, self.opened);
                self.mapped(object);
            }
            3 => {
                let (read, result) = (ReadId(self.input.below(4)), Ok(1));
                if !self.disk_thread.reads.contains_key(&read) {
                    self.on_disk(disk::In::Done { read, result });
                }
            }
            _ => self.on_disk(disk::In::Freed(0)),
        }
    }
}

/// The previous response of this connection, or of the one that had its place before.
fn before(stream: StreamId) -> StreamId {
    let mut before = stream;
    if stream.nth > 0 {
        before.nth -= 1;
    } else {
        before.conn.generation = stream.conn.generation.wrapping_sub(1);
    }
    before
}

impl Run<'_> {
    /// A client acknowledges one in `share` of its outstanding bytes. Its socket becomes writable when it has room.
    pub fn acknowledge(&mut self, conn: ConnId, share: u64) {
        let Some(client) = self.client(conn) else {
            return;
        };
        let acked_bytes = client.unacked_bytes.div_ceil(share);
        client.unacked_bytes -= acked_bytes;
        client.acked_bytes += acked_bytes;
        if client.awaits_writable && client.is_writable() {
            client.awaits_writable = false;
            self.tcp(conn, TcpEvent::Writable);
        }
    }

    /// The client resets its connection.
    pub fn reset(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn) {
            client.reset = true;
            self.tcp(conn, TcpEvent::Reset);
        }
    }
}
