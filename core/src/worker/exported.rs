//! What machines give each other of a live connection: its plan and its cursor, in terms that hold elsewhere, too.
//!
//! This is the machine's half. The socket, its input that no request was made of, the framing of a request's body and
//! the log's records belong to the shell, which sends them along (docs/decisions/0023-handing-over-a-connection.md).

use alloc::sync::Arc;

use smallvec::SmallVec;

use crate::conn::{ObjectId, Part, Plan, Promise, ResidencySource, Span, Version};
use crate::rate::BelievedRate;

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
    /// Its address had too many connections when it came: its request gets a refusal.
    pub refused: bool,
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
            refused: self.refused,
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
    /// Its plan, as this process knows it.
    pub(super) fn plan(&self) -> Plan {
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
}

impl Exported<LocalFile> {
    /// Whether its numbers agree. They may come from another node.
    pub(super) fn is_sound(&self) -> bool {
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
