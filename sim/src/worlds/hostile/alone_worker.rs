//! A worker machine without a disk machine. Any message may come at any time: answers to one of its last orders, also
//! wrong, repeated or late ones, and messages about unknown connections.

use std::collections::VecDeque;

use ackpace_core::Machine;
use ackpace_core::addresses::Address;
use ackpace_core::congestion::{CaState, Path};
use ackpace_core::conn::{
    ConnId, Held, Part, ResidencySource, Span, StreamId, TcpEvent, TcpSample, Want,
};
use ackpace_core::limits::{READ_BYTES_LONG_MAX, SEND_BYTES_MAX};
use ackpace_core::rate::Flow;
use ackpace_core::units::{Instant, MIB};
use ackpace_core::why::Why;
use ackpace_core::worker::{Exported, In, LocalFile, Out, Received, SendOrder, Stage, Worker};

use super::client::PLACES;
use super::input::Input;
use super::messages;
use super::response::{Shape, request};
use super::settings::settings;
use super::trace::Trace;
use crate::worlds::response::CHOSEN;

/// Orders to which answers may still come.
const ORDERS_KEPT: usize = 24;
/// Bytes from this value on choose messages about shares of the send memory.
const SHARES_FROM: u8 = 224;
/// More orders than one message can ever cause.
const OUTS_MAX: u32 = 1_000;
const MESSAGES_MAX: u32 = 2_000;
/// The longest file that the kernel supports.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;
const FILES: [Shape; 3] = [
    Shape {
        len_bytes: 5 * MIB + 1,
        residency: ResidencySource::Ask,
    },
    Shape {
        len_bytes: FILE_BYTES_MAX,
        residency: ResidencySource::Ask,
    },
    Shape {
        len_bytes: 3 * MIB,
        residency: ResidencySource::Remember,
    },
];

/// Drives the worker machine with arbitrary messages.
///
/// # Panics
/// When the machine panics, orders bytes that are not in a response, or orders without end.
pub fn worker_alone(data: &[u8]) {
    let mut input = Input::new(data);
    let mut alone = LoneWorker {
        worker: Worker::new(settings(&mut input)),
        input,
        now: Instant { us: 1 },
        orders: VecDeque::new(),
        generations: [0; PLACES as usize],
        open: [false; PLACES as usize],
        trace: Trace::default(),
    };
    for _ in 0..MESSAGES_MAX {
        if alone.input.is_empty() {
            return;
        }
        alone.message();
        if !alone.input.once_in(4) {
            alone.obey();
        }
    }
}

struct LoneWorker<'a> {
    worker: Worker,
    input: Input<'a>,
    now: Instant,
    orders: VecDeque<Out>,
    generations: [u32; PLACES as usize],
    open: [bool; PLACES as usize],
    trace: Trace,
}

impl LoneWorker<'_> {
    fn on(&mut self, event: In) {
        self.trace.note(self.now, "told", &event);
        self.worker.on(event, self.now);
    }

    fn obey(&mut self) {
        let mut outs = 0;
        while let Some(out) = self.worker.poll(self.now) {
            self.trace.note(self.now, "worker", &out);
            self.check(&out);
            if let Out::Close { conn, .. } | Out::Export { conn, .. } = out {
                let index = conn.index as usize;
                assert!(self.open[index], "closed twice");
                self.open[index] = false;
                self.generations[index] += 1;
            }
            if self.orders.len() == ORDERS_KEPT {
                self.orders.pop_front();
            }
            outs += 1;
            assert!(outs < OUTS_MAX, "the worker turns in circles: {out:?}");
            self.orders.push_back(out);
        }
        let due = self.worker.deadline().is_some_and(|at| at <= self.now);
        assert!(!due, "the worker wakes for nothing, for ever");
    }

    /// Every send, probe and want must lie in the response that it is for.
    fn check(&self, out: &Out) {
        let (stream, inside) = match *out {
            Out::Send(SendOrder {
                stream, part, span, ..
            }) => {
                let plan = self.worker.plan(stream).expect("a response to send of");
                let most_bytes = match plan.parts.get(usize::from(part)) {
                    Some(Part::Bytes(_)) => plan.texts(part).map(|t| t.len() as u64).sum(),
                    Some(Part::Body { span, .. }) => span.len_bytes,
                    Some(Part::Slices) => u64::MAX,
                    None => 0,
                };
                let end_bytes = span.offset_bytes.checked_add(span.len_bytes);
                let fits = end_bytes.is_some_and(|end| end <= most_bytes);
                (
                    stream,
                    fits && (1..=SEND_BYTES_MAX).contains(&span.len_bytes),
                )
            }
            Out::Probe { stream, span, .. } => (stream, self.is_of_body(stream, span)),
            Out::Cap { conn, .. } => {
                let index = conn.index as usize;
                let lives = self.open[index] && self.generations[index] == conn.generation;
                assert!(lives, "a share for the dead: {out:?}");
                return;
            }
            Out::Want(Want { stream, span, .. }) => {
                let gone = self.worker.plan(stream).is_none(); // its end follows
                (stream, gone || self.is_of_body(stream, span))
            }
            _ => return,
        };
        assert!(inside, "{stream:?} has nothing like {out:?}");
    }

    fn is_of_body(&self, stream: StreamId, inner: Span) -> bool {
        let parts = self.worker.plan(stream).map(|plan| plan.parts.iter());
        inner.len_bytes > 0
            && parts.into_iter().flatten().any(|part| match part {
                Part::Body { span, .. } => span.covers(inner),
                Part::Bytes(_) | Part::Slices => false,
            })
    }

    fn message(&mut self) {
        let byte = self.input.byte();
        match byte % 32 {
            _ if byte >= SHARES_FROM => self.share(),
            0..20 => {
                // Often the last order, sometimes one of long ago; rarely that of another connection.
                let back = self.input.below(4) * self.input.below(7);
                let nth = self.orders.len().checked_sub(1 + back as usize);
                if let Some(out) = nth.and_then(|nth| self.orders.get(nth)).cloned() {
                    self.answer(out);
                }
            }
            20..22 => self.on(In::Incoming),
            22..25 => {
                let conn = self.someone();
                let event = self.input.pick(&[
                    TcpEvent::Writable,
                    TcpEvent::Readable,
                    TcpEvent::Fin,
                    TcpEvent::Reset,
                ]);
                self.on(In::Tcp { conn, event });
            }
            25 => {
                let conn = self.someone();
                self.sample(conn);
            }
            26 => {
                let conn = self.someone();
                let nth = self.input.below(3) as u16;
                let stream = StreamId {
                    worker: 0,
                    conn,
                    nth,
                };
                let why = self.input.pick(&Why::ALL);
                self.on(In::Failed { stream, why });
            }
            27 if self.input.once_in(8) => self.on(In::Drain),
            27 => {
                let conn = self.someone();
                let unacked_bytes = self.input.once_in(2).then(|| number(&mut self.input));
                self.on(In::Export {
                    conn,
                    unacked_bytes,
                });
            }
            28 => self.on(In::AcceptFailed),
            _ => {
                let us = self
                    .input
                    .pick(&[1_000, 300_000, 21_000_000, 3_600_000_000]);
                let back = self.input.once_in(16);
                self.now = match back {
                    true => Instant {
                        us: self.now.us.saturating_sub(us),
                    },
                    false => self.now.plus_us(us),
                };
            }
        }
    }

    /// Any cap for anybody, also for one who has none.
    fn share(&mut self) {
        let conn = self.someone();
        let bytes = number(&mut self.input);
        let event = match self.input.below(4) {
            0 => In::StartCap { cap_bytes: bytes },
            1 => In::SocketLevel {
                conn,
                held_bytes: bytes,
            },
            _ => In::Cap {
                conn,
                cap_bytes: self.input.pick(&[
                    None,
                    Some(0),
                    Some(1),
                    Some(5_000),
                    Some(1 << 20),
                    Some(u64::MAX),
                ]),
            },
        };
        self.on(event);
    }

    fn someone(&mut self) -> ConnId {
        let index = self.input.below(PLACES.into()) as u32;
        let generation = self.generations[index as usize];
        let late = self.input.once_in(8);
        ConnId {
            index,
            generation: generation.saturating_sub(late.into()),
        }
    }

    fn answer(&mut self, out: Out) {
        match out {
            Out::Accept(_) => self.accept(),
            Out::Receive { conn, .. } => {
                let bytes = self.input.pick(&[100, 1 << 20, 1 << 40]);
                let [a, b] = [self.input.once_in(2), self.input.once_in(2)];
                let request = Received::Request { body: a, more: b };
                let skipped = Received::Skipped { bytes, done: a };
                let received = self.input.pick(&[
                    request,
                    request,
                    request,
                    Received::HeadPart,
                    Received::Nothing,
                    skipped,
                    Received::Broken,
                    Received::End,
                ]);
                self.on(In::Received { conn, received });
            }
            Out::Resolve { stream, .. } => {
                let plan = request(&mut self.input, &FILES, 0).plan;
                self.on(In::Resolved { stream, plan });
            }
            Out::Probe { stream, .. } => {
                let is_resident = self.input.once_in(2);
                self.on(In::Probed {
                    stream,
                    is_resident,
                });
            }
            Out::Want(want) => {
                let (span, there) = (self.span_near(want.span), !self.input.once_in(8));
                let held = self.input.pick(&[Held::PageCache, Held::Slots]);
                self.on(messages::answer(&want, span, held, CHOSEN, there));
            }
            Out::Slice(stream) => {
                let len_bytes = self.input.pick(&[16_384, 0, 1, 1 << 40]);
                let last = self.input.once_in(2);
                self.on(In::Sliced {
                    stream,
                    len_bytes,
                    last,
                });
            }
            Out::Send(SendOrder { stream, span, .. }) => {
                match self.input.below(8) {
                    0 => return self.on(In::Missing { stream }),
                    1 => self.on(In::Waited { stream }),
                    _ => {}
                }
                let taken_bytes = self.input.pick(&[span.len_bytes, span.len_bytes / 3, 0, 1]);
                let unsent_bytes = self
                    .input
                    .pick(&[Some(0), None, Some(70_000), Some(1 << 32)]);
                let full = self.input.once_in(3);
                self.on(In::Sent {
                    stream,
                    taken_bytes,
                    full,
                    unsent_bytes,
                });
            }
            Out::Sample(conn) => self.sample(conn),
            Out::Export { exported, .. } => self.adopt(exported),
            _ => {}
        }
    }

    /// The wanted span, or its start, or a span that begins before it, begins behind it, or ends beyond it.
    fn span_near(&mut self, want: Span) -> Span {
        let by_bytes = self.input.pick(&[16_384, 1, 1 << 20, 5_000]);
        let Span {
            offset_bytes,
            len_bytes,
        } = want;
        let (offset_bytes, len_bytes) = match self.input.below(8) {
            0 => (offset_bytes + by_bytes, len_bytes),
            1 => (offset_bytes.saturating_sub(by_bytes), len_bytes),
            2 => (offset_bytes, len_bytes + by_bytes),
            3 => (offset_bytes, 0),
            4 => (offset_bytes, len_bytes),
            _ => (offset_bytes, by_bytes.min(len_bytes)),
        };
        Span {
            offset_bytes,
            len_bytes: len_bytes.min(READ_BYTES_LONG_MAX),
        }
    }

    fn place(&mut self) -> Option<ConnId> {
        let index = self.open.iter().position(|open| !open)?;
        if self.worker.room() == 0 {
            return None;
        }
        self.open[index] = true;
        Some(ConnId {
            index: index as u32,
            generation: self.generations[index],
        })
    }

    /// A connection that this machine gave away comes back, perhaps twice, perhaps with other numbers.
    fn adopt(&mut self, mut exported: Box<Exported<LocalFile>>) {
        let Some(conn) = self.place() else {
            return;
        };
        match self.input.below(8) {
            0 => exported.given_bytes = number(&mut self.input),
            1 => exported.acked_bytes = u64::MAX,
            2 => exported.rate.bytes_per_s = u64::MAX,
            3 => {
                if let Stage::Response(response) = &mut exported.stage {
                    response.sent_bytes = number(&mut self.input);
                    response.waited_net_us = u64::MAX;
                }
            }
            _ => {}
        }
        let address = self.input.pick(&[None, Some(Address(1))]);
        self.on(In::Adopt {
            conn,
            address,
            exported,
        });
    }

    fn accept(&mut self) {
        let Some(conn) = self.place() else {
            return;
        };
        let address = self.input.pick(&[None, Some(Address(1))]);
        self.on(In::Accepted { conn, address });
    }

    fn sample(&mut self, conn: ConnId) {
        let threshold_bytes = self.input.once_in(2).then(|| number(&mut self.input));
        let path = Path {
            state: self
                .input
                .pick(&[CaState::Open, CaState::Cwr, CaState::Loss]),
            cwnd_bytes: number(&mut self.input),
            threshold_bytes,
            rtt_min_us: number(&mut self.input),
            marked_segments: number(&mut self.input) as u32,
            resent_segments: number(&mut self.input) as u32,
        };
        let unsent_bytes = self.input.once_in(2).then(|| number(&mut self.input));
        let sample = TcpSample {
            unacked_bytes: number(&mut self.input),
            unsent_bytes,
            window_closed: self.input.once_in(3),
            probes_unanswered: number(&mut self.input) as u32,
            rtt_us: number(&mut self.input),
            path,
            flow: self.input.once_in(2).then(|| flow(&mut self.input)),
        };
        let event = TcpEvent::Sample(sample);
        self.on(In::Tcp { conn, event });
    }
}

/// Kernel counters that may be wrong, wrap or stand still.
fn flow(input: &mut Input<'_>) -> Flow {
    Flow {
        acked_bytes: number(input),
        busy_us: number(input),
        window_limited_us: number(input),
        window_bytes: number(input),
        segment_bytes: number(input),
        quiet_us: number(input),
    }
}

fn number(input: &mut Input<'_>) -> u64 {
    input.pick(&[0, 1, 70_000, 1 << 20, u64::from(u32::MAX)])
}
