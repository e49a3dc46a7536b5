//! Giving a live connection away, at any byte of a response, and taking one over from another machine.
//!
//! `Export` is answered by [`Out::Export`], with all that another machine needs to go on from the next byte, or by
//! [`Out::Keep`]. [`In::Adopt`] gives that to the other machine, or back to this one. Byte n of a response is a function of its
//! plan alone ([`Part`]), so the plan and the number of bytes sent say which byte is next.
//!
//! This is the machine's half. The socket, its input that no request was made of, the framing of a request's body and
//! the log's records belong to the shell, which sends them along (docs/decisions/0023-handing-over-a-connection.md).
//!
//! [`In::Adopt`]: super::In::Adopt

use alloc::boxed::Box;
use alloc::sync::Arc;

use smallvec::SmallVec;

use super::arrivals::Arrivals;
use super::evidence::Evidence;
use super::messages::{Address, Out};
use super::patience::Patience;
use super::requests::Request;
use super::sending::Output;
use super::stream::{Cursor, Stream};
use super::{Conn, Phase, Worker};
use crate::conn::{
    ConnId, ObjectId, Part, Plan, Promise, ResidencySource, Span, StreamId, Version,
};
use crate::rate::BelievedRate;
use crate::units::Instant;
use crate::why::Why;

/// A connection, as far as the machine knows it, for another machine. `F` names a file. The machines use [`LocalFile`],
/// which means nothing elsewhere. Between two processes the shells use a path and what fstat(2) said
/// ([`Exported::with_files`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported<F> {
    /// Number of the response under way or the next one, wrapping.
    pub nth: u16,
    /// All bytes ever given to its socket.
    pub given_bytes: u64,
    /// How many of these its client has acknowledged, as far as is known.
    pub acked_bytes: u64,
    /// How fast its client is.
    pub rate: BelievedRate,
    /// Where it stands.
    pub stage: Stage<F>,
}

/// What an exported connection is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage<F> {
    /// No byte has ever arrived.
    New {
        /// For how long.
        for_us: u64,
    },
    /// Part of a request head has arrived. The shell has it.
    Head {
        /// How long ago the client began it, or connected.
        for_us: u64,
    },
    /// Between two requests.
    Idle {
        /// For how long.
        for_us: u64,
    },
    /// A response is under way. Later requests may wait in the input.
    Response(ExportedResponse<F>),
}

/// A response under way: its plan and its cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportedResponse<F> {
    /// The parts of its plan, in order.
    pub parts: SmallVec<[ExportedPart<F>; 2]>,
    /// As in [`Plan`].
    pub head_len_bytes: u64,
    /// As in [`Plan`], and always known.
    pub body_len_bytes: u64,
    /// Whether the connection may carry another request afterwards.
    pub keep_alive: bool,
    /// The cursor: bytes of the whole response, head included, that were given to the socket. The next machine sends
    /// the byte after them first.
    pub sent_bytes: u64,
    /// The body of its request follows in the input, and is to be skipped after it.
    pub request_body: bool,
    /// Time since its request.
    pub took_us: u64,
    /// Time it was stalled for the disk.
    pub waited_disk_us: u64,
    /// Time it was stalled for its client.
    pub waited_net_us: u64,
}

/// A part of an exported plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportedPart<F> {
    /// Bytes made by the planner, Date and all: the next machine must send these.
    Bytes(Arc<[u8]>),
    /// A range of a file.
    File {
        /// Which file, and which version of it.
        file: F,
        /// What the response promises of its bytes.
        promise: Promise,
        /// The range.
        span: Span,
    },
}

/// A file as the machines of this process name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalFile {
    /// Its name in this process.
    pub object: ObjectId,
    /// The version that is promised, as fstat(2) tells it here. Another node's copy has its own times of change.
    pub version: Version,
    /// How its residency is known here.
    pub residency: ResidencySource,
}

/// Why a connection is not given away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Its request is being resolved. Once it is, it may be asked for again.
    Resolving,
    /// Its response is made on demand: no other machine could make the same bytes.
    Listing,
    /// The body of an answered request is being skipped.
    RequestBody,
    /// Its client has sent FIN. A socket that is not in ESTABLISHED can't be restored elsewhere.
    HalfClosed,
    /// It is about to end: our FIN is out, or its client is gone.
    Ending,
}

impl<F> Exported<F> {
    /// The same connection with its files renamed. A shell renames the files for its peers before it sends the export,
    /// and finds its own files again when it receives one.
    ///
    /// # Errors
    /// The first error of `rename`: the connection can't go on here.
    pub fn with_files<G, E>(self, rename: impl FnMut(F) -> Result<G, E>) -> Result<Exported<G>, E> {
        let stage = match self.stage {
            Stage::New { for_us } => Stage::New { for_us },
            Stage::Head { for_us } => Stage::Head { for_us },
            Stage::Idle { for_us } => Stage::Idle { for_us },
            Stage::Response(response) => Stage::Response(response.with_files(rename)?),
        };
        Ok(Exported {
            nth: self.nth,
            given_bytes: self.given_bytes,
            acked_bytes: self.acked_bytes,
            rate: self.rate,
            stage,
        })
    }
}

impl<F> ExportedResponse<F> {
    fn with_files<G, E>(
        self,
        mut rename: impl FnMut(F) -> Result<G, E>,
    ) -> Result<ExportedResponse<G>, E> {
        let parts = self.parts.into_iter().map(|part| match part {
            ExportedPart::Bytes(bytes) => Ok(ExportedPart::Bytes(bytes)),
            ExportedPart::File {
                file,
                promise,
                span,
            } => rename(file).map(|file| ExportedPart::File {
                file,
                promise,
                span,
            }),
        });
        Ok(ExportedResponse {
            parts: parts.collect::<Result<_, E>>()?,
            head_len_bytes: self.head_len_bytes,
            body_len_bytes: self.body_len_bytes,
            keep_alive: self.keep_alive,
            sent_bytes: self.sent_bytes,
            request_body: self.request_body,
            took_us: self.took_us,
            waited_disk_us: self.waited_disk_us,
            waited_net_us: self.waited_net_us,
        })
    }
}

impl ExportedResponse<LocalFile> {
    /// `None`: the response has a part that is made on demand.
    fn of(stream: &Stream, request_body: bool, now: Instant) -> Option<Self> {
        let plan = &stream.plan;
        let parts = plan.parts.iter().map(|part| match part {
            Part::Bytes(bytes) => Some(ExportedPart::Bytes(bytes.clone())),
            Part::Body {
                object,
                version,
                promise,
                residency,
                span,
            } => Some(ExportedPart::File {
                file: LocalFile {
                    object: *object,
                    version: *version,
                    residency: *residency,
                },
                promise: *promise,
                span: *span,
            }),
            Part::Slices => None,
        });
        let (waited_disk_us, waited_net_us) = stream.waited_us(now);
        Some(ExportedResponse {
            parts: parts.collect::<Option<_>>()?,
            head_len_bytes: plan.head_len_bytes,
            body_len_bytes: plan.body_len_bytes?,
            keep_alive: plan.keep_alive,
            sent_bytes: stream.sent_bytes,
            request_body,
            took_us: now.since_us(stream.started_at),
            waited_disk_us,
            waited_net_us,
        })
    }

    fn plan(&self) -> Plan {
        let parts = self.parts.iter().map(|part| match part {
            ExportedPart::Bytes(bytes) => Part::Bytes(bytes.clone()),
            ExportedPart::File {
                file,
                promise,
                span,
            } => Part::Body {
                object: file.object,
                version: file.version,
                promise: *promise,
                residency: file.residency,
                span: *span,
            },
        });
        Plan {
            parts: parts.collect(),
            head_len_bytes: self.head_len_bytes,
            body_len_bytes: Some(self.body_len_bytes),
            keep_alive: self.keep_alive,
        }
    }

    fn cursor(&self) -> Cursor {
        Cursor {
            sent_bytes: self.sent_bytes,
            took_us: self.took_us,
            waited_disk_us: self.waited_disk_us,
            waited_net_us: self.waited_net_us,
        }
    }
}

impl Exported<LocalFile> {
    /// Whether its numbers agree. They may come from another node.
    fn is_sound(&self) -> bool {
        let (sent_bytes, waited_us) = match &self.stage {
            Stage::Response(response) => (
                response.sent_bytes,
                response.waited_disk_us.max(response.waited_net_us),
            ),
            Stage::New { .. } | Stage::Head { .. } | Stage::Idle { .. } => (0, 0),
        };
        let sums_fit = self.given_bytes.max(waited_us) <= u64::MAX / 2;
        sent_bytes.max(self.acked_bytes) <= self.given_bytes && sums_fit
    }
}

impl Conn {
    /// What it is in the middle of; otherwise, why it can't be given away now.
    fn stage(&self, now: Instant) -> Result<Stage<LocalFile>, Kept> {
        let for_us = self.patience.for_us(now);
        match self.phase {
            _ if self.evidence.gone => Err(Kept::Ending),
            Phase::Lingering { .. } => Err(Kept::Ending),
            _ if !self.request.is_open() => Err(Kept::HalfClosed),
            Phase::Resolving => Err(Kept::Resolving),
            Phase::Skipping { .. } => Err(Kept::RequestBody),
            Phase::Sending => {
                let stream = self.stream.as_deref();
                let response =
                    stream.and_then(|stream| ExportedResponse::of(stream, self.request.body, now));
                response.map(Stage::Response).ok_or(Kept::Listing)
            }
            Phase::Open if self.patience.silent() => Ok(Stage::New { for_us }),
            Phase::Open if self.patience.idle() => Ok(Stage::Idle { for_us }),
            Phase::Open => Ok(Stage::Head { for_us }),
        }
    }
}

impl Worker {
    /// The shell wants to give a connection away. Every stage forgets it in this turn, as when it closes.
    ///
    /// The shell has frozen its socket: `unacked_bytes` is what it holds, if that is known.
    pub(super) fn export(&mut self, id: ConnId, unacked_bytes: Option<u64>, now: Instant) {
        let stage = match self.table.get(id).map(|conn| conn.stage(now)) {
            Some(Ok(stage)) => stage,
            Some(Err(why)) => return self.outs.push_back(Out::Keep { conn: id, why }),
            None => return,
        };
        let Some(mut conn) = self.table.remove(id) else {
            return;
        };
        let stream_id = conn.stream_id();
        // Whoever goes on sends these bytes.
        self.outs
            .retain(|out| !matches!(out, Out::Send { stream, .. } if *stream == stream_id));
        if let Some(stream) = conn.stream.take() {
            self.let_go(stream_id, stream, now);
        }
        if let Some(unacked_bytes) = unacked_bytes {
            conn.arrivals.measured(unacked_bytes);
        }
        self.leave(&mut conn);
        let exported = Exported {
            nth: conn.nth,
            given_bytes: conn.arrivals.given_bytes(),
            acked_bytes: conn.arrivals.acked_bytes(),
            rate: conn.output.margin.believed(),
            stage,
        };
        self.outs.push_back(Out::Export {
            conn: id,
            exported: Box::new(exported),
        });
    }

    /// Another machine sends the rest of this response: give back what was fetched for it, and cancel its want.
    fn let_go(&mut self, id: StreamId, mut stream: Box<Stream>, now: Instant) {
        stream.go_on(&mut self.counts, now);
        if stream.reads_from_disk() {
            self.outs.push_back(Out::Forget(id));
        }
        if stream.let_go() {
            self.outs.push_back(Out::Release(id));
        }
        self.table.spare(stream);
    }

    /// A connection that another machine gave away, or this one: it goes on from the next byte.
    pub(super) fn adopt(
        &mut self,
        id: ConnId,
        address: Option<Address>,
        exported: &Exported<LocalFile>,
        now: Instant,
    ) {
        let mut conn = Conn::new(id, &self.settings, self.door.admit(address), now);
        conn.nth = exported.nth;
        let mut sound = exported.is_sound();
        if sound {
            let (given_bytes, acked_bytes) = (exported.given_bytes, exported.acked_bytes);
            conn.arrivals = Arrivals::adopted(given_bytes, acked_bytes);
            conn.patience = Patience::adopted(&self.settings, given_bytes, acked_bytes, now);
            conn.evidence = Evidence::adopted(acked_bytes, now);
            conn.output = Output::adopted(exported.rate, now);
        }
        match &exported.stage {
            Stage::New { for_us } => conn.patience.was(true, true, *for_us, now),
            Stage::Head { for_us } => conn.patience.was(false, true, *for_us, now),
            Stage::Idle { for_us } => conn.patience.was(false, false, *for_us, now),
            Stage::Response(response) => {
                let plan = response.plan();
                sound &= plan.is_sound() && plan.parts.len() < usize::from(u16::MAX);
                sound &= plan.promised_bytes() >= Some(response.sent_bytes);
                if sound {
                    self.go_on_with(&mut conn, response, plan, now);
                }
            }
        }
        self.table.insert(conn);
        if self.drain.is_under_way() && matches!(exported.stage, Stage::Idle { .. }) {
            self.outs.push_back(Out::Sample(id)); // it leaves as others did when the drain began
        }
        if !sound {
            return self.close(id, true, Why::Misframed, now);
        }
        self.wake(id.index, true);
    }

    fn go_on_with(
        &mut self,
        conn: &mut Conn,
        response: &ExportedResponse<LocalFile>,
        plan: Plan,
        now: Instant,
    ) {
        conn.request = Request::adopted(response.request_body, now);
        conn.arrivals
            .goes_on(response.sent_bytes, response.head_len_bytes);
        conn.patience.was(false, false, 0, now);
        conn.patience.response_begun(now);
        let (id, delay) = (conn.stream_id(), self.settings.delay);
        let stream = Stream::resumed(id, plan, &response.cursor(), delay, now);
        conn.stream = Some(self.table.boxed(stream));
        conn.phase = Phase::Sending;
    }
}
