//! A client of the hostile worlds, and the shell's state of its connection.

use std::collections::VecDeque;

use ackpace_core::addresses::Address;
use ackpace_core::conn::{ConnId, ObjectId, Span, StreamId};
use ackpace_core::worker::{Exported, LocalFile};

use super::memory::FilledSlots;
use super::response::{HttpRequest, Response};
use super::share::SocketShare;

/// Connections of the worker.
pub(super) const PLACES: u32 = 4;

/// A response that has ended and that the log does not know yet.
pub(super) struct Untold {
    pub stream: StreamId,
    pub response: Response,
}

/// A connection without a machine: what its shells send each other.
pub(super) struct Away {
    pub client: ClientState,
    pub exported: Box<Exported<LocalFile>>,
}

/// A client, and the shell's state of its connection.
pub(super) struct ClientState {
    pub id: ConnId,
    pub input: VecDeque<HttpRequest>,
    /// What is left of the body of the request before.
    pub body_bytes: u64,
    /// The request that it has just received.
    pub received: Option<HttpRequest>,
    /// The request that is being looked up.
    pub resolving: Option<(StreamId, HttpRequest)>,
    pub response: Option<(StreamId, Response)>,
    pub fin: bool,
    pub reset: bool,
    /// Most bytes that its socket holds.
    pub socket_bytes: u64,
    pub unacked_bytes: u64,
    /// What it has acknowledged.
    pub acked_bytes: u64,
    /// `None`: it is on this machine.
    pub address: Option<Address>,
    pub share: SocketShare,
    /// The socket is full and will become writable.
    pub awaits_writable: bool,
    pub window_closed: bool,
    /// Signs of congestion so far.
    pub marks: u32,
    /// The next send of file bytes fails.
    pub fails_next: bool,
    pub pieces: VecDeque<FilledSlots>,
    /// The disk may hold a want of it.
    pub has_want: bool,
    /// Responses of which the log was not told yet.
    pub untold: Vec<Untold>,
    /// A response ended early: nothing may follow on this connection.
    pub torn: bool,
    pub shut: bool,
}

impl ClientState {
    /// What the kernel takes now.
    pub fn kernel_bytes(&self) -> u64 {
        match self.share.takes(self.unacked_bytes) {
            true => self.socket_bytes.saturating_sub(self.unacked_bytes),
            false => 0,
        }
    }

    /// Bytes ever given to its socket.
    pub fn given_bytes(&self) -> u64 {
        self.acked_bytes + self.unacked_bytes
    }

    /// Whether the kernel reports its socket writable, if it is asked to.
    pub fn is_writable(&self) -> bool {
        self.unacked_bytes < self.socket_bytes / 3 * 2 && self.share.is_writable(self.unacked_bytes)
    }

    /// Bytes in its socket that were not sent yet.
    pub fn unsent_bytes(&self) -> u64 {
        match self.share.costly {
            true => 0,
            false => self.unacked_bytes / 2,
        }
    }

    /// Gives back the slots before this offset of its file; returns how many.
    pub fn release_sent(&mut self, until_bytes: u64) -> u32 {
        let mut freed = 0;
        while let Some(piece) = self.pieces.front_mut() {
            freed += piece.release(until_bytes);
            if until_bytes < piece.span.end_bytes() {
                break;
            }
            self.pieces.pop_front();
        }
        freed
    }

    pub fn new(id: ConnId, socket_bytes: u64) -> ClientState {
        ClientState {
            id,
            input: VecDeque::new(),
            body_bytes: 0,
            received: None,
            resolving: None,
            response: None,
            fin: false,
            reset: false,
            socket_bytes,
            unacked_bytes: 0,
            acked_bytes: 0,
            address: None,
            share: SocketShare::default(),
            awaits_writable: false,
            window_closed: false,
            marks: 0,
            fails_next: false,
            pieces: VecDeque::new(),
            has_want: false,
            untold: Vec::new(),
            torn: false,
            shut: false,
        }
    }
}

/// Checks that the slots hold every byte of the span.
pub(super) fn check_slots(pieces: &VecDeque<FilledSlots>, object: ObjectId, span: Span) {
    let mut at_bytes = span.offset_bytes;
    for piece in pieces {
        if piece.holds(object, at_bytes) {
            at_bytes = piece.span.end_bytes();
        }
    }
    assert!(
        at_bytes >= span.end_bytes(),
        "slots hold nothing at {at_bytes}, but {span:?} is sent: {pieces:?}"
    );
}
