//! The shell of the worker in all worlds that measure: it executes each order on the clients and on the disk, and checks
//! the laws that hold in every run (`laws.rs`). How clients read, and how time passes, is for the world to say.

use ackpace_core::Machine;
use ackpace_core::congestion::Delay;
use ackpace_core::conn::{Held, Part, Plan, Span, StreamId, TcpEvent, TcpSample, Want};
use ackpace_core::disk;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{In, Out, Received, SendOrder, SendPolicy, Worker};

use super::laws::Progress;
use super::socket::settings;
use super::store::Store;

/// What became of the bytes that a socket was offered.
pub(super) struct Given {
    pub taken_bytes: u64,
    pub full: bool,
    /// What the shell tells the worker of the unsent bytes.
    pub unsent_bytes: Option<u64>,
}

/// The clients of a world and their sockets, by number.
pub(super) trait Clients {
    /// What the client has sent.
    fn receive(&mut self, nth: usize, now: Instant) -> Received;
    /// What it asked for.
    fn plan(&self, nth: usize) -> Plan;
    /// Gives bytes to its socket.
    fn give(&mut self, nth: usize, order: &SendOrder, now: Instant) -> Given;
    /// What TCP_INFO would tell.
    fn sample(&mut self, nth: usize, now: Instant) -> TcpSample;
    /// Its socket is given nothing for a while, and becomes writable when less than this is left in it.
    fn watch(&mut self, _nth: usize, _epollout_bytes: u32, _now: Instant) {}
    /// A want, where there is no disk.
    fn want(&mut self, want: Want, _now: Instant) {
        panic!("nobody reads for {want:?}");
    }
    /// The same want is void.
    fn forget(&mut self, _nth: usize) {}
    /// Its response has ended.
    fn ended(&mut self, _nth: usize) {}
    /// Its connection is closed.
    fn closed(&mut self, nth: usize, why: Why) {
        panic!("client {nth} was closed: {why:?}");
    }
}

/// The response to a client: the rest of a file.
#[derive(Default)]
pub(super) struct Response {
    file: u32,
    from_bytes: u64,
    pub progress: Progress,
    asked_at: Instant,
    /// Time from its request to the first byte of its body.
    pub first_byte_us: Option<u64>,
}

/// A worker, its clients, and perhaps a disk.
pub(super) struct Shell<C> {
    pub worker: Worker,
    pub clients: C,
    pub store: Option<Store>,
    /// The last response to each client.
    pub responses: Vec<Response>,
    pub now: Instant,
}

impl<C: Clients> Shell<C> {
    /// This many clients, none of which has connected.
    pub fn new(
        send: SendPolicy,
        delay: Delay,
        clients: C,
        count: usize,
        store: Option<Store>,
    ) -> Self {
        Shell {
            worker: Worker::new(settings(send, delay)),
            clients,
            store,
            responses: (0..count).map(|_| Response::default()).collect(),
            now: Instant { us: 0 },
        }
    }

    pub fn on(&mut self, event: In) {
        self.worker.on(event, self.now);
    }

    /// Whether the worker has asked to be called by now.
    pub fn is_due(&self) -> bool {
        self.worker.deadline().is_some_and(|at| at <= self.now)
    }

    /// Turns of both threads, as long as something wakes them. `woken`: the worker has heard something.
    pub fn turn(&mut self, mut woken: bool) {
        self.disk_turn();
        while std::mem::take(&mut woken) || self.has_answers() {
            while let Some(answer) = self.store.as_mut().and_then(|s| s.answers.pop_front()) {
                self.free_void(&answer);
                self.on(answer);
            }
            while let Some(out) = self.worker.poll(self.now) {
                self.execute(out);
            }
            self.disk_turn();
        }
    }

    /// Slots that come for a stream that has left are freed at once.
    fn free_void(&mut self, answer: &In) {
        if let In::Fetched { stream, seq, .. } = *answer {
            let void = !self.worker.awaits(stream, seq);
            if let Some(store) = self.store.as_mut().filter(|_| void) {
                store.release(stream, u64::MAX, self.now);
            }
        }
    }

    fn has_answers(&self) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(|store| !store.answers.is_empty())
    }

    fn disk_turn(&mut self) {
        if let Some(store) = &mut self.store {
            store.turn(self.now);
        }
    }

    fn on_disk(&mut self, event: disk::In) {
        if let Some(store) = &mut self.store {
            store.on(event, self.now);
        }
    }

    fn release(&mut self, stream: StreamId, before_bytes: u64) {
        if let Some(store) = &mut self.store {
            store.release(stream, before_bytes, self.now);
        }
    }

    fn execute(&mut self, out: Out) {
        let now = self.now;
        match out {
            Out::Receive { conn, .. } => {
                let nth = conn.index as usize;
                let received = self.clients.receive(nth, now);
                if matches!(received, Received::Request { .. }) {
                    self.responses[nth].asked_at = now;
                }
                self.on(In::Received { conn, received });
            }
            Out::Resolve { stream, .. } => {
                let nth = stream.conn.index as usize;
                let plan = self.clients.plan(nth);
                self.responses[nth].begins(&plan);
                self.on(In::Resolved { stream, plan });
            }
            Out::Probe { .. } | Out::Want(_) | Out::Forget(_) => self.execute_about_reads(out),
            Out::Release(stream) => self.release(stream, u64::MAX),
            Out::Ended(stream) => {
                let nth = stream.conn.index as usize;
                let response = &mut self.responses[nth];
                let store = self.store.as_ref();
                let excused = store.is_some_and(|store| store.files.excuses(response.file));
                response.progress.ends(excused);
                self.clients.ended(nth);
                self.release(stream, u64::MAX);
            }
            Out::Send(order) => {
                let told = self.send(&order);
                self.on(told);
            }
            Out::Underfed {
                conn,
                epollout_bytes,
            } => self.clients.watch(conn.index as usize, epollout_bytes, now),
            Out::Sample(conn) => {
                let sample = self.clients.sample(conn.index as usize, now);
                let event = TcpEvent::Sample(sample);
                self.on(In::Tcp { conn, event });
            }
            Out::Close { conn, why, .. } => {
                let nth = conn.index as usize;
                self.responses[nth].progress.closes(why);
                self.clients.closed(nth, why);
            }
            // Nobody is accepted, listed, logged or paced.
            Out::Accept(_) | Out::Listen(_) | Out::Pace { .. } | Out::Cap { .. } => {}
            Out::Push(_) => {} // its sockets hold nothing back
            Out::Slice(_) | Out::Arrived { .. } | Out::Shutdown(_) => {}
            Out::Export { .. } | Out::Keep { .. } => unreachable!("nobody asked for it"),
        }
    }

    fn execute_about_reads(&mut self, out: Out) {
        match out {
            Out::Probe {
                stream,
                object,
                span,
                ..
            } => {
                let store = self.store.as_ref();
                let is_resident = store.is_some_and(|store| {
                    store.cached.resident_bytes(object.index, span) == span.len_bytes
                });
                self.on(In::Probed {
                    stream,
                    is_resident,
                });
            }
            Out::Want(want) if self.store.is_none() => self.clients.want(want, self.now),
            Out::Want(want) => self.on_disk(disk::In::Want(want)),
            Out::Forget(stream) => {
                self.clients.forget(stream.conn.index as usize);
                self.on_disk(disk::In::Forget(stream));
            }
            other => unreachable!("not about reads: {other:?}"),
        }
    }

    /// Gives bytes to a socket. Returns what the worker is told.
    fn send(&mut self, order: &SendOrder) -> In {
        let mut order = *order;
        let SendOrder {
            stream, part, held, ..
        } = order;
        let (nth, now) = (stream.conn.index as usize, self.now);
        let response = &mut self.responses[nth];
        let asked = order.span;
        (response.progress).check(part, asked.offset_bytes, asked.len_bytes);
        let file = response.file;
        let mut span = Span {
            offset_bytes: response.from_bytes + asked.offset_bytes,
            ..asked
        };
        let store = self.store.as_mut().filter(|_| part == 1);
        if let Some(store) = &store {
            if store.files.is_changed(file) {
                let why = Why::FileChanged;
                return In::Failed { stream, why };
            }
            match held {
                Held::Slots => store.leases.check(stream, span),
                Held::PageCache => order.span.len_bytes = store.cached.resident_bytes(file, span),
            }
            if order.span.len_bytes == 0 {
                return In::Missing { stream };
            }
        }
        let Given {
            taken_bytes,
            full,
            unsent_bytes,
        } = self.clients.give(nth, &order, now);
        span.len_bytes = taken_bytes;
        response.progress.sent(taken_bytes);
        if part == 1 && taken_bytes > 0 {
            let us = now.since_us(response.asked_at);
            response.first_byte_us.get_or_insert(us);
        }
        match (store, held) {
            (Some(store), Held::Slots) => store.release(stream, span.end_bytes(), now),
            (Some(store), Held::PageCache) => store.cached.send(file, span),
            (None, _) => {}
        }
        In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes,
        }
    }
}

impl Response {
    fn begins(&mut self, plan: &Plan) {
        for part in &plan.parts {
            if let Part::Body { object, span, .. } = part {
                (self.file, self.from_bytes) = (object.index, span.offset_bytes);
                self.progress = Progress::new(plan.head_len_bytes, span.len_bytes);
            }
        }
    }
}
