//! The worker's behaviour, tested with a shell that a test drives by hand ([`Bench`]). `sim/src/worlds/hostile/` has a shell
//! that does random things.

mod accept;
mod arrivals;
mod congestion;
mod ending;
mod export;
mod files;
mod framing;
mod margins;
mod requests;
mod sender;
mod time;
mod underfed;

use std::sync::Arc;

use super::*;
use crate::congestion::{CaState, Delay, Path};
use crate::conn::{
    Held, ObjectId, Part, Plan, Promise, ResidencySource, Span, TcpEvent, TcpSample, Version,
    WantSeq,
};
use crate::limits::{
    ACCEPT_RETRY_US, ACCEPTS_PER_TURN_MAX, BODY_SKIP_BYTES_MAX, LINGER_BYTES_MAX, PIPELINED_MAX,
    SCAN_SLICE, SEND_BYTES_MAX, WINDOW_BYTES,
};
use crate::prefetch::LengthBound;
use crate::units::{MIB, US_PER_S};
use crate::why::Why;
use crate::why::{Chosen, Reason};
use smallvec::SmallVec;

const WINDOW: u64 = WINDOW_BYTES;
const HEAD_BYTES: u64 = 100;
const OBJECT: ObjectId = ObjectId {
    device: 0,
    index: 1,
    generation: 0,
};

/// The number of the pending want.
const PENDING: WantSeq = WantSeq(u32::MAX);

/// Why a read was made: it does not matter for what follows.
const CHOSEN: Chosen = Chosen {
    reason: Reason::Due,
    bound: LengthBound::Rate,
    len_bytes: WINDOW,
    margin_us: 0,
    target_us: US_PER_S,
    rate_bytes_per_s: 1_000_000,
    took_us: 10_000,
};

fn settings() -> Settings {
    Settings {
        worker: 3,
        connections_max: 1_000,
        connections_per_address: 0,
        header_timeout_us: 10 * US_PER_S,
        idle_timeout_us: 75 * US_PER_S,
        send_timeout_us: 60 * US_PER_S,
        pause_timeout_us: 600 * US_PER_S,
        rate_min_bytes_per_s: 100,
        drain_timeout_us: 30 * US_PER_S,
        arrivals: false,
        arrivals_bytes_max: MIB,
        send: SendPolicy::Eager,
        pacing: false,
        delay: Delay::Rate,
    }
}

fn conn_id(index: u32) -> ConnId {
    ConnId {
        index,
        generation: 0,
    }
}

fn stream_id(conn: ConnId, nth: u16) -> StreamId {
    StreamId {
        worker: 3,
        conn,
        nth,
    }
}

fn bytes(len_bytes: u64) -> Part {
    Part::Bytes(Arc::from(vec![b'x'; len_bytes as usize]))
}

fn body(residency: ResidencySource, offset_bytes: u64, len_bytes: u64) -> Part {
    let version = Version {
        len_bytes: offset_bytes + len_bytes,
        ..Version::default()
    };
    let span = Span {
        offset_bytes,
        len_bytes,
    };
    Part::Body {
        object: OBJECT,
        version,
        promise: Promise::OneVersion,
        residency,
        span,
    }
}

/// A head and these parts behind it.
fn plan(parts: impl IntoIterator<Item = Part>, keep_alive: bool) -> Plan {
    let parts: SmallVec<[Part; 2]> = [bytes(HEAD_BYTES)].into_iter().chain(parts).collect();
    let len_bytes = |part: &Part| match part {
        Part::Bytes(bytes) => Some(bytes.len() as u64),
        Part::Body { span, .. } => Some(span.len_bytes),
        Part::Slices => None,
    };
    let body_len_bytes = parts.iter().skip(1).map(len_bytes).sum();
    Plan {
        parts,
        head_len_bytes: HEAD_BYTES,
        body_len_bytes,
        keep_alive,
    }
}

fn unacked(unacked_bytes: u64) -> TcpSample {
    TcpSample {
        unacked_bytes,
        ..TcpSample::default()
    }
}

/// How a connection ended.
#[derive(Debug, PartialEq)]
struct Closed {
    at_s: u64,
    abort: bool,
    why: Why,
}

/// A shell without a kernel: the test says what the kernel would.
struct Bench {
    worker: Worker,
    now: Instant,
    /// The answer to each `Sample`.
    sample: TcpSample,
    /// Responses that the worker called ended; left out of the lists of orders.
    ended: Vec<StreamId>,
}

impl Bench {
    fn new(settings: Settings) -> Bench {
        Bench {
            worker: Worker::new(settings),
            now: Instant { us: 0 },
            sample: TcpSample::default(),
            ended: Vec::new(),
        }
    }

    /// All orders until the worker has none; only samples are answered.
    fn outs(&mut self) -> Vec<Out> {
        self.outs_of(false)
    }

    /// `fills`: the socket was just given what it took.
    fn outs_of(&mut self, fills: bool) -> Vec<Out> {
        let mut outs = Vec::new();
        while let Some(out) = self.worker.poll(self.now) {
            if let Out::Ended(stream) = out {
                self.ended.push(stream);
                continue;
            }
            let sampled = match out {
                Out::Sample(conn) => Some(conn),
                _ => None,
            };
            outs.push(out);
            assert!(outs.len() < 10_000, "the worker turns in circles");
            if let Some(conn) = sampled {
                // What a socket just took is not acknowledged in the same moment.
                let mut sample = self.sample;
                if fills {
                    sample.unacked_bytes = sample.unacked_bytes.max(1);
                }
                let event = TcpEvent::Sample(sample);
                self.worker.on(In::Tcp { conn, event }, self.now);
            }
        }
        outs
    }

    /// An answer from the disk, to the pending want.
    fn tell(&mut self, mut event: In) -> Vec<Out> {
        if let In::Fetched { stream, seq, .. }
        | In::FetchFailed { stream, seq, .. }
        | In::FetchElsewhere { stream, seq, .. } = &mut event
        {
            let stands = |seq: &WantSeq| self.worker.awaits(*stream, *seq);
            if *seq == PENDING {
                *seq = (1..1_000).map(WantSeq).find(stands).unwrap_or_default();
            }
        }
        let fills = matches!(event, In::Sent { full: true, .. });
        self.worker.on(event, self.now);
        self.outs_of(fills)
    }

    fn tcp(&mut self, conn: ConnId, event: TcpEvent) -> Vec<Out> {
        self.tell(In::Tcp { conn, event })
    }

    fn received(&mut self, conn: ConnId, received: Received) -> Vec<Out> {
        self.tell(In::Received { conn, received })
    }

    /// Time passes, and nothing arrives; the worker is called whenever it asked for that.
    fn wait_us(&mut self, us: u64) -> Vec<Out> {
        let (end, mut outs) = (self.now.plus_us(us), Vec::new());
        while let Some(at) = self.worker.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            for out in self.outs() {
                match out {
                    Out::Receive { conn, .. } => {
                        outs.append(&mut self.received(conn, Received::Nothing));
                    }
                    out => outs.push(out),
                }
            }
        }
        self.now = end;
        outs
    }

    fn wait_s(&mut self, s: u64) -> Vec<Out> {
        self.wait_us(s * US_PER_S)
    }

    /// A new connection that has sent nothing yet.
    fn client(&mut self, index: u32) -> ConnId {
        let conn = conn_id(index);
        let outs = self.tell(In::Accepted {
            conn,
            address: None,
        });
        let expect = Expect::Head;
        assert!(outs.contains(&Out::Receive { conn, expect }), "{outs:?}");
        self.received(conn, Received::Nothing);
        conn
    }

    /// A request comes; its stream.
    fn request(&mut self, conn: ConnId) -> StreamId {
        self.tcp(conn, TcpEvent::Readable);
        let (body, more) = (false, false);
        let outs = self.received(conn, Received::Request { body, more });
        resolve_of(&outs)
    }

    fn resolved(&mut self, stream: StreamId, plan: Plan) -> Vec<Out> {
        self.tell(In::Resolved { stream, plan })
    }

    fn sent(&mut self, stream: StreamId, taken_bytes: u64, full: bool) -> Vec<Out> {
        self.tell(In::Sent {
            stream,
            taken_bytes,
            full,
            unsent_bytes: None,
        })
    }

    fn fetched(&mut self, stream: StreamId, span: Span) -> Vec<Out> {
        let held = Held::PageCache;
        self.tell(In::Fetched {
            stream,
            seq: PENDING,
            span,
            held,
            chosen: CHOSEN,
        })
    }

    fn probed(&mut self, stream: StreamId, is_resident: bool) -> Vec<Out> {
        self.tell(In::Probed {
            stream,
            is_resident,
        })
    }

    /// The kernel takes all that it is given and all is in memory: until nothing is sent.
    fn deliver(&mut self, outs: Vec<Out>) -> Vec<Out> {
        let mut queue = VecDeque::from(outs);
        let mut rest = Vec::new();
        while let Some(out) = queue.pop_front() {
            queue.extend(match out {
                Out::Send(order) => self.sent(order.stream, order.span.len_bytes, false),
                Out::Probe { stream, .. } => self.probed(stream, true),
                other => {
                    rest.push(other);
                    continue;
                }
            });
        }
        rest
    }

    /// A client whose response is just its head; nothing is left to send.
    fn served(&mut self, index: u32, keep_alive: bool) -> (ConnId, Vec<Out>) {
        let conn = self.client(index);
        let stream = self.request(conn);
        let outs = self.resolved(stream, plan([], keep_alive));
        (conn, self.deliver(outs))
    }

    /// Let time pass until the connection is closed, `None` if it is still open after `s`.
    fn closed_within_s(&mut self, s: u64) -> Option<Closed> {
        for _ in 0..s * 10 {
            let outs = self.wait_us(US_PER_S / 10);
            if let Some(closed) = self.closed_in(&outs) {
                return Some(closed);
            }
        }
        None
    }

    fn closed_in(&self, outs: &[Out]) -> Option<Closed> {
        let at_s = self.now.us / US_PER_S;
        outs.iter().find_map(|out| match *out {
            Out::Close { abort, why, .. } => Some(Closed { at_s, abort, why }),
            _ => None,
        })
    }
}

fn closed(at_s: u64, abort: bool, why: Why) -> Option<Closed> {
    Some(Closed { at_s, abort, why })
}

fn resolve_of(outs: &[Out]) -> StreamId {
    let resolve = outs.iter().find_map(|out| match out {
        Out::Resolve { stream, .. } => Some(*stream),
        _ => None,
    });
    resolve.unwrap_or_else(|| panic!("no Resolve in {outs:?}"))
}

/// Part, offset and length of the first `Send`.
fn send_of(outs: &[Out]) -> Option<(u16, u64, u64)> {
    outs.iter().find_map(|out| match *out {
        Out::Send(order) => Some((order.part, order.span.offset_bytes, order.span.len_bytes)),
        _ => None,
    })
}

fn wants_of(outs: &[Out]) -> Vec<(u64, Instant)> {
    let wants = outs.iter().filter_map(|out| match out {
        Out::Want(want) => Some((want.span.offset_bytes / WINDOW, want.underrun_at)),
        _ => None,
    });
    wants.collect()
}
