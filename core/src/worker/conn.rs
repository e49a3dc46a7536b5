//! One connection of a worker: what each duty keeps of it, and where it stands.

use alloc::boxed::Box;

use super::accept::Admitted;
use super::arrivals::Arrivals;
use super::evidence::Evidence;
use super::patience::Patience;
use super::requests::Request;
use super::sending::Output;
use super::stream::Stream;
use crate::conn::{ConnId, StreamId};
use crate::units::Instant;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Waiting for a request, or for the rest of its head.
    Open,
    /// The request is being resolved.
    Resolving,
    /// Its response is being sent.
    Sending,
    /// The response is sent, the request's body is not yet skipped.
    Skipping { skipped_bytes: u64 },
    /// Our FIN is out; input is thrown away until the peer's FIN.
    Lingering { skipped_bytes: u64 },
}

/// A connection.
pub(super) struct Conn {
    pub id: ConnId,
    /// The worker that owns it.
    pub worker: u16,
    /// Number of the response under way or the next one, wrapping.
    pub nth: u16,
    pub admitted: Admitted,
    pub phase: Phase,
    /// Its input, and the request under way.
    pub request: Request,
    /// Its response under way. Apart, since it is half of all that is kept of a connection, and most are idle.
    pub stream: Option<Box<Stream>>,
    /// Its socket, as far as sending goes.
    pub output: Output,
    /// What TCP said of it.
    pub evidence: Evidence,
    pub arrivals: Arrivals,
    pub patience: Patience,
    /// It stands in line for a step ([`super::turns::Turns`]).
    pub queued: bool,
}

impl Conn {
    /// The response under way, or the next one.
    pub fn stream_id(&self) -> StreamId {
        StreamId {
            worker: self.worker,
            conn: self.id,
            nth: self.nth,
        }
    }

    /// When its socket is to be looked at although it does not call: it waits for the disk, whose turn depends on what
    /// is left in it, or its client's rate is not known.
    pub fn look_at(&self) -> Option<Instant> {
        let stream = self.stream.as_ref();
        let fetched = stream.is_some_and(|stream| stream.reads_from_disk());
        let stands = fetched && self.output.writable;
        let margin = &self.output.margin;
        margin
            .look_at()
            .filter(|_| stands || margin.is_of_interest() && stream.is_some())
    }

    /// Whether it is in the middle of a body: long work, done a step at a time between the others.
    pub fn is_within_body(&self) -> bool {
        let within_body = |stream: &Stream| stream.sent_bytes > stream.plan.head_len_bytes;
        self.phase == Phase::Sending && self.stream.as_deref().is_some_and(within_body)
    }
}
