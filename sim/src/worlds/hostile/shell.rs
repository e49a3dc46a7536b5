//! The worker's shell: it executes each order as badly as the input likes, and checks it against the four laws of
//! [`super`].

use std::sync::Arc;

use ackpace_core::Machine;
use ackpace_core::addresses::{Address, AddressCounts};
use ackpace_core::conn::{ConnId, ObjectId, Span, StreamId, TcpEvent, Want};
use ackpace_core::units::{Instant, KIB, MIB};
use ackpace_core::why::Why;
use ackpace_core::worker::{Expect, In, Out, Received, Worker};

use super::client::{Away, ClientState, PLACES};
use super::disk_thread::{Ask, DiskThread};
use super::input::Input;
use super::mailbox::Mailboxes;
use super::memory::{File, FilledSlots};
use super::messages::{Answer, WantCompletion};
use super::response::{Response, residency};
use super::settings::{disk_settings, settings, share_bytes};
use super::trace::Trace;

/// How often each rare case happened that the laws are about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CaseCounts {
    /// A share had no room, and the kernel was to report the socket writable.
    pub by_call: u64,
    /// A connection that had been given away came back.
    pub moved: u64,
    /// A share was taken back.
    pub taken_back: u64,
}

/// One run. The worker's side is in this file, the disk's in `device.rs`.
pub(super) struct Run<'a> {
    pub input: Input<'a>,
    pub now: Instant,
    /// When the worker last ran out of orders. What it orders next may rest on what it knew of the page cache then
    /// ([`File::may_be_believed`]): the server's shell asks the kernel again before sendfile(2).
    pub idle_at: Instant,
    pub worker: Worker,
    pub clients: Vec<Option<ClientState>>,
    pub generations: Vec<u32>,
    pub backlog: u32,
    /// The listeners are watched.
    listening: bool,
    /// The log hears of ended responses.
    pub logs: bool,
    /// Connections that were given away and not adopted yet.
    pub away: Vec<Away>,
    pub files: Vec<File>,
    /// How often the files have been opened; each time they get a new generation.
    pub opened: u32,
    pub asks: Mailboxes<Ask>,
    pub completions: Mailboxes<WantCompletion>,
    /// A wake-up of the worker is pending.
    pub worker_woken: bool,
    /// The worker has sent the disk thread a message and will wake it at the end of its turn.
    pub must_wake_disk: bool,
    /// The input may repeat messages, or deliver them after their stream has ended (`echo` in `acts.rs`).
    pub echoes: bool,
    /// The last message of the disk that the worker heard.
    pub last_completion: Option<WantCompletion>,
    pub disk_thread: DiskThread,
    /// The input divides the send memory.
    pub divided: bool,
    /// It does so by now: the worker knows the share of a new connection.
    pub divides: bool,
    pub counts: CaseCounts,
    /// Bytes sent, responses ended and reads done: any progress increases it.
    pub progress: u64,
    pub trace: Trace,
}

impl<'a> Run<'a> {
    pub fn new(mut input: Input<'a>) -> Run<'a> {
        let first = input.byte();
        let echoes = first % 4 == 3;
        let (mut settings, disk) = (settings(&mut input), disk_settings(&mut input));
        settings.connections_per_address = 2;
        let lengths = [3 * MIB + 5_000, 5 * MIB, 20_000, MIB, 70 * KIB, 1, 0];
        let count = 1 + input.below(2);
        let files = (0..count).map(|_| {
            let len_bytes = input.pick(&lengths);
            File::new(len_bytes, residency(&mut input))
        });
        let files = files.collect();
        let now = Instant { us: 1 };
        let mut run = Run {
            now,
            idle_at: now,
            worker: Worker::new(settings),
            listening: true,
            logs: settings.arrivals,
            away: Vec::new(),
            clients: (0..PLACES).map(|_| None).collect(),
            generations: vec![0; PLACES as usize],
            backlog: 0,
            files,
            opened: 0,
            asks: Mailboxes::new(PLACES),
            completions: Mailboxes::new(PLACES),
            worker_woken: false,
            must_wake_disk: false,
            echoes,
            last_completion: None,
            disk_thread: DiskThread::new(disk),
            divided: first / 4 % 4 > 0,
            divides: false,
            counts: CaseCounts::default(),
            progress: 0,
            trace: Trace::default(),
            input,
        };
        let counts = AddressCounts::new(64, 1);
        run.worker.count_addresses_in(Arc::new(counts));
        if run.divided && !run.input.once_in(4) {
            let share_bytes = share_bytes(&mut run.input);
            run.start_share(share_bytes);
        }
        run
    }

    pub fn on(&mut self, event: In) {
        self.worker.on(event, self.now);
    }

    pub fn tcp(&mut self, conn: ConnId, event: TcpEvent) {
        self.on(In::Tcp { conn, event });
    }

    pub fn file(&mut self, object: ObjectId) -> &mut File {
        &mut self.files[object.index as usize]
    }

    /// The connection with this id, if it is still there.
    pub fn client(&mut self, id: ConnId) -> Option<&mut ClientState> {
        let client = self.clients.get_mut(id.index as usize)?.as_mut();
        client.filter(|client| client.id == id)
    }

    fn living(&mut self, id: ConnId, out: &Out) -> &mut ClientState {
        let client = self.client(id);
        client.unwrap_or_else(|| panic!("an order for the dead: {out:?}"))
    }

    /// Executes up to `outs_max` orders of the worker; returns how many there were.
    pub fn obey_worker(&mut self, outs_max: u32) -> u32 {
        let mut outs = 0;
        while outs < outs_max {
            let Some(out) = self.worker.poll(self.now) else {
                self.idle_at = self.now;
                break;
            };
            self.trace.note(self.now, "worker", &out);
            self.execute(out);
            outs += 1;
        }
        outs
    }

    /// Takes the oldest message of the disk, places the slots that it brings, and passes it to the worker; `false` if there
    /// is none.
    pub fn hear_one(&mut self) -> bool {
        let Some(mut completion) = self.completions.take() else {
            return false;
        };
        self.trace.note(self.now, "completion", &completion);
        let (heard, stream) = (completion.heard(), completion.stream);
        let kept = completion.is_awaited(&self.worker);
        if let Answer::Fetched(span, piece, _) = &mut completion.answer {
            let (span, piece) = (*span, piece.take());
            self.place_piece(stream, span, piece, kept);
        }
        self.last_completion = Some(completion);
        self.on(heard);
        true
    }

    fn place_piece(
        &mut self,
        stream: StreamId,
        span: Span,
        piece: Option<FilledSlots>,
        kept: bool,
    ) {
        let (now, mut freed) = (self.now, 0);
        let client = self.client(stream.conn).filter(|_| kept);
        match (client, piece) {
            (Some(client), Some(piece)) => {
                // A re-read replaces the pieces from its offset on.
                let from_bytes = piece.span.offset_bytes;
                client.pieces.retain(|before| {
                    let stays = before.span.offset_bytes < from_bytes;
                    freed += if stays { 0 } else { before.slots() };
                    stays
                });
                client.pieces.push_back(piece);
            }
            (None, Some(piece)) => freed = piece.slots(),
            (Some(client), None) => {
                let of = client.response.as_ref().map(|(_, response)| response.file);
                if let Some(file) = of.and_then(|nth| self.files.get_mut(nth as usize)) {
                    file.worker_was_told(span, now);
                }
            }
            (None, None) => {}
        }
        self.disk_thread.free(freed);
    }

    fn execute(&mut self, out: Out) {
        match out {
            Out::Accept(most) => self.accept(most),
            Out::Listen(on) => assert_ne!(std::mem::replace(&mut self.listening, on), on),
            Out::Receive { conn, expect } => self.receive(conn, expect, &out),
            Out::Resolve { stream, .. } => self.look_up(stream, &out),
            Out::Probe {
                stream,
                object,
                span,
                ..
            } => self.probe(stream, object, span),
            Out::Want(want) => self.want(want, &out),
            Out::Forget(stream) => self.forget(stream, &out),
            Out::Release(stream) => {
                self.living(stream.conn, &out);
                self.release_all(stream.conn);
            }
            Out::Ended(stream) => self.ended(stream, &out),
            Out::Slice(stream) => self.ask_slice(stream, &out),
            Out::Send(order) => {
                self.living(order.stream.conn, &out);
                self.send(&order);
            }
            Out::Underfed {
                conn,
                epollout_bytes,
            } => {
                assert!(epollout_bytes > 0, "it would never be writable");
                self.living(conn, &out).awaits_writable = true;
            }
            Out::Pace { conn, .. } | Out::Push(conn) | Out::Keep { conn, .. } => {
                self.living(conn, &out);
            }
            Out::Cap { conn, cap_bytes } => {
                self.living(conn, &out);
                self.join(conn, cap_bytes);
            }
            Out::Sample(conn) => {
                self.living(conn, &out);
                self.sample(conn);
            }
            Out::Arrived { stream, outcome } => self.told(stream, outcome),
            Out::Export { conn, exported } => self.exported(conn, exported),

            Out::Shutdown(conn) => {
                let client = self.living(conn, &out);
                assert!(!client.shut, "our FIN twice");
                client.shut = true;
            }
            Out::Close { conn, .. } => self.close(conn, &out),
        }
    }

    fn ask_slice(&mut self, stream: StreamId, out: &Out) {
        let client = self.living(stream.conn, out);
        let response = client.response.as_mut().filter(|(of, _)| *of == stream);
        let (_, response) = response.expect("a slice of a response under way");
        response.slicing = true;
    }

    fn accept(&mut self, most: u32) {
        for _ in 0..most.min(self.backlog) {
            let free = self.clients.iter().position(Option::is_none);
            let Some(index) = free else { return };
            if self.input.once_in(32) {
                return self.on(In::AcceptFailed);
            }
            self.backlog -= 1;
            let id = self.conn_at(index);
            let socket_bytes = self.input.pick(&[MIB, 64 * KIB, 300_000, 1 << 40]);
            let mut client = ClientState::new(id, socket_bytes);
            if self.divided && !self.input.once_in(8) {
                client.address = Some(Address(u64::from(id.index) + 1));
                client.share.costly = self.input.once_in(2);
            } else if !self.divided && self.input.once_in(2) {
                client.address = Some(Address(9)); // too many of one
            }
            let address = client.address;
            self.clients[index] = Some(client);
            self.on(In::Accepted { conn: id, address });
        }
    }

    /// The id of the next connection at a free place.
    pub fn conn_at(&self, index: usize) -> ConnId {
        ConnId {
            index: index as u32,
            generation: self.generations[index],
        }
    }

    fn receive(&mut self, conn: ConnId, expect: Expect, out: &Out) {
        let partly = self.input.once_in(16);
        let body_bytes = match self.input.once_in(16) {
            true => self.input.pick(&[300, 3 * MIB]),
            false => 0,
        };
        let client = self.living(conn, out);
        if expect != Expect::Head && client.body_bytes > 0 {
            let bytes = client.body_bytes.min(MIB);
            client.body_bytes -= bytes;
            let done = client.body_bytes == 0;
            let received = Received::Skipped { bytes, done };
            return self.on(In::Received { conn, received });
        }
        let next = client.input.pop_front();
        let received = match (expect, next) {
            (Expect::Head, Some(request)) if partly => {
                client.input.push_front(request);
                Received::HeadPart
            }
            (Expect::Head, Some(request)) => {
                client.received = Some(request);
                client.body_bytes = body_bytes;
                let more = !client.input.is_empty() || client.fin;
                let body = body_bytes > 0;
                Received::Request { body, more }
            }
            (_, Some(_)) => Received::Skipped {
                bytes: 100,
                done: false,
            },
            (_, None) if client.fin => Received::End,
            (_, None) => Received::Nothing,
        };
        self.on(In::Received { conn, received });
        if received == Received::HeadPart {
            self.tcp(conn, TcpEvent::Readable); // the rest of it
        }
    }

    fn look_up(&mut self, stream: StreamId, out: &Out) {
        let later = self.input.once_in(3);
        let client = self.living(stream.conn, out);
        assert!(!client.torn, "another request on a torn connection");
        let request = client.received.take().expect("received before");
        client.resolving = Some((stream, request));
        if !later {
            self.resolve(stream.conn);
        }
    }

    /// Answers the look-up of a request.
    pub fn resolve(&mut self, conn: ConnId) {
        let divides = self.divides;
        let Some(client) = self.client(conn) else {
            return;
        };
        let Some((stream, request)) = client.resolving.take() else {
            return;
        };
        let plan = request.plan.clone();
        client.share.owed |= divides && client.address.is_some();
        self.on(In::Resolved { stream, plan });
        // Its client may have left in the meantime.
        if self.worker.plan(stream).is_some() {
            let client = self.client(conn).expect("it was there");
            let start_bytes = client.given_bytes();
            client.response = Some((stream, Response::new(request, start_bytes)));
        }
    }

    /// Completes the slice that is being made, or fails it.
    pub fn slice(&mut self, conn: ConnId, fails: bool) {
        let client = self
            .client(conn)
            .and_then(|client| client.response.as_mut());
        let Some((stream, response)) = client.filter(|(_, response)| response.slicing) else {
            return;
        };
        let stream = *stream;
        if fails {
            (response.slicing, response.excused) = (false, true);
            let why = Why::ListingFailed;
            return self.on(In::Failed { stream, why });
        }
        let (len_bytes, last) = response.sliced();
        self.on(In::Sliced {
            stream,
            len_bytes,
            last,
        });
    }

    fn probe(&mut self, stream: StreamId, object: ObjectId, span: Span) {
        let now = self.now;
        let file = self.file(object);
        let is_resident = file.resident_bytes(span) >= span.len_bytes;
        if is_resident {
            file.worker_was_told(span, now);
        }
        self.on(In::Probed {
            stream,
            is_resident,
        });
    }

    /// Passes a want to the disk, if its response still stands.
    fn want(&mut self, want: Want, out: &Out) {
        let client = self.living(want.stream.conn, out);
        let Some((_, response)) = &client.response else {
            return;
        };
        let spans = response.bodies(want.object);
        assert!(
            spans.into_iter().any(|span| span.covers(want.span)),
            "a want for what its response has not: {want:?}"
        );
        client.has_want = true;
        self.asks.put(want.stream.conn.index, Ask::Want(want));
        self.must_wake_disk = true;
    }

    fn forget(&mut self, stream: StreamId, out: &Out) {
        let client = self.living(stream.conn, out);
        client.resolving.take_if(|(of, _)| *of == stream);
        if std::mem::take(&mut client.has_want) {
            self.asks.put(stream.conn.index, Ask::Forget(stream));
            self.must_wake_disk = true;
        }
    }

    fn ended(&mut self, stream: StreamId, out: &Out) {
        let client = self.living(stream.conn, out);
        let response = client.response.take_if(|(of, _)| *of == stream);
        let (_, response) = response.expect("a response ends once");
        assert!(
            response.is_whole() || response.excused || client.reset,
            "a response ends after {} bytes, though nothing has failed",
            response.sent_bytes
        );
        client.torn |= !response.is_whole();
        self.progress += 1;
        self.untold(stream, response);
        self.release_all(stream.conn);
    }

    fn close(&mut self, conn: ConnId, out: &Out) {
        let client = self.living(conn, out);
        assert!(client.response.is_none(), "closed, but not ended: {out:?}");
        assert!(client.untold.is_empty(), "never told to the log");
        self.release_all(conn);
        self.clients[conn.index as usize] = None;
        self.generations[conn.index as usize] += 1;
        self.progress += 1;
    }

    /// Returns all slots of a connection to the pool.
    pub fn release_all(&mut self, conn: ConnId) {
        let pieces = self
            .client(conn)
            .map(|client| std::mem::take(&mut client.pieces));
        let slots = pieces.iter().flatten().map(FilledSlots::slots).sum();
        self.disk_thread.free(slots);
    }
}
