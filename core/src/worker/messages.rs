//! What the worker machine is told and what it orders: its whole contract with the shell.

use alloc::boxed::Box;

use super::exported::{Exported, Kept, LocalFile};
use crate::addresses::Address;
use crate::congestion::Delay;
use crate::conn::{ConnId, Held, ObjectId, Plan, Span, StreamId, TcpEvent, Want, WantSeq};
use crate::send::Refill;
use crate::send::control::SendPolicy;
use crate::why::Chosen;
use crate::why::Why;

/// What the operator may choose. Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This worker's number, which is part of its streams' ids.
    pub worker: u16,
    /// Connections at once, at most [`CONNECTIONS_MAX`](crate::limits::CONNECTIONS_MAX).
    pub connections_max: u32,
    /// Connections at once from one address ([`super::Worker::count_addresses_in`]); 0: no bound.
    pub connections_per_address: u32,
    /// From the first byte of a request head to its last.
    pub header_timeout_us: u64,
    /// From the end of a response to the first byte of the next request.
    pub idle_timeout_us: u64,
    /// Without an acknowledged byte while bytes are pending.
    pub send_timeout_us: u64,
    /// The same while the peer's window is closed and it answers probes.
    pub pause_timeout_us: u64,
    /// Least mean rate over a minute while bytes are pending; 0: no bound.
    pub rate_min_bytes_per_s: u64,
    /// From the order to stop until everything is cut off.
    pub drain_timeout_us: u64,
    /// Whether to find out what reached the client (for the access log).
    pub arrivals: bool,
    /// What the log may keep of requests until they are settled. Beyond it, the oldest is settled with what is known.
    pub arrivals_bytes_max: u64,
    /// Which socket is given bytes, and when.
    pub send: SendPolicy,
    /// Whether to pace the first window of a response that would leave as a burst.
    pub pacing: bool,
    /// What congestion of a path does to wants.
    pub delay: Delay,
}

/// The result of an order to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// No input is there.
    Nothing,
    /// A part of a request head.
    HeadPart,
    /// A whole request head, good or bad.
    Request {
        /// A body follows it.
        body: bool,
        /// More input is there, or may be.
        more: bool,
    },
    /// Bytes of a request body, or behind the last request, were discarded.
    Skipped {
        /// How many.
        bytes: u64,
        /// The body ended.
        done: bool,
    },
    /// The body is not framed as announced: nothing behind it can be understood.
    Broken,
    /// The peer will send nothing more.
    End,
}

/// What to look for in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// A request head.
    Head,
    /// The body of the request that was just answered.
    Body,
    /// Anything, to be discarded.
    Rest,
}

/// What the worker is told.
#[derive(Debug)]
pub enum In {
    /// A connection waits to be accepted.
    Incoming,
    /// A connection was accepted.
    Accepted {
        /// Its id: a slot that the shell knows to be free.
        conn: ConnId,
        /// Its client; `None` for clients without an address.
        address: Option<Address>,
    },
    /// Accepting failed for lack of descriptors or memory.
    AcceptFailed,
    /// Whether another worker has a place free. Told while this one has none.
    PlacesElsewhere(bool),
    /// An event of the transport.
    Tcp {
        /// The connection.
        conn: ConnId,
        /// The event.
        event: TcpEvent,
    },
    /// The result of a `Receive`.
    Received {
        /// The connection.
        conn: ConnId,
        /// The result.
        received: Received,
    },
    /// The log keeps this much of the request until its response is settled. Told before `Resolved`, if there is a log.
    Recorded {
        /// The response.
        stream: StreamId,
        /// The size of the log's record.
        bytes: u64,
    },
    /// The request has an answer: the plan of its response.
    Resolved {
        /// The response.
        stream: StreamId,
        /// Its whole plan.
        plan: Plan,
    },
    /// The result of a `Probe`.
    Probed {
        /// The response.
        stream: StreamId,
        /// Whether all of the span is in memory.
        is_resident: bool,
    },
    /// The result of a `Send`.
    Sent {
        /// The response.
        stream: StreamId,
        /// What the kernel took.
        taken_bytes: u64,
        /// The socket is full: it takes no more, or has taken all that it was to take. EPOLLOUT will fire.
        full: bool,
        /// What it holds unsent now (SIOCOUTQNSD), asked if it is full or more of a file follows; `None` where this
        /// can't be known.
        unsent_bytes: Option<u64>,
    },
    /// The result of a `Send` from the page cache whose first byte is missing: evicted, or not read yet. Sending it
    /// would wait for the disk.
    Missing {
        /// The response.
        stream: StreamId,
    },
    /// A `Send` from the page cache took so long that it has probably waited for a page. Told before its `Sent`.
    Waited {
        /// The response.
        stream: StreamId,
    },
    /// The result of a `Slice`.
    Sliced {
        /// The response.
        stream: StreamId,
        /// Length of the slice; 0 is allowed.
        len_bytes: u64,
        /// No slice follows.
        last: bool,
    },
    /// The answer to a `Want`: bytes from its start were read, and are in memory.
    Fetched {
        /// The response.
        stream: StreamId,
        /// Which of its wants ([`Want::seq`]).
        seq: WantSeq,
        /// What is in memory now.
        span: Span,
        /// What holds it.
        held: Held,
        /// Why it was read then, and why so much.
        chosen: Chosen,
    },
    /// The other answer to a `Want`: it can't be read. The response ends where the want begins. What was fetched before it is still sent.
    FetchFailed {
        /// The response.
        stream: StreamId,
        /// Which of its wants.
        seq: WantSeq,
        /// The reason.
        why: Why,
    },
    /// The answer to a `Want` whose device fails where another one has the same bytes: those that the response has not got yet
    /// come from this file, in place of all files of its plan.
    FetchElsewhere {
        /// The response.
        stream: StreamId,
        /// Which of its wants.
        seq: WantSeq,
        /// The file of the same bytes.
        file: LocalFile,
    },
    /// The response can't go on.
    Failed {
        /// The response.
        stream: StreamId,
        /// The reason.
        why: Why,
    },
    /// The request that was to be resolved is in the input again, as if it had just come: it is for another machine.
    Unresolved {
        /// The response that it would have got.
        stream: StreamId,
    },
    /// Give this connection away; answered by `Export` or `Keep` in this turn. Its socket is frozen: it sends nothing and
    /// acknowledges nothing until it is restored elsewhere, or thawed
    /// (docs/decisions/0023-handing-over-a-connection.md). Within a process it need not be frozen, since nobody else
    /// gives it bytes.
    Export {
        /// The connection.
        conn: ConnId,
        /// What the frozen socket holds that its client has not acknowledged (SIOCOUTQ); `None`: not known.
        unacked_bytes: Option<u64>,
    },
    /// Go on with a connection that was given away, here or by another machine. The shell has room for it, as for an
    /// accepted one; its files are open and are the promised versions; its unparsed input is what `Receive` finds
    /// first. If there is a log, `Recorded` follows.
    Adopt {
        /// Its id: a slot that the shell knows to be free.
        conn: ConnId,
        /// Its client; `None` for clients without an address.
        address: Option<Address>,
        /// All that the other machine knew of it.
        exported: Box<Exported<LocalFile>>,
    },
    /// A connection's socket may hold so much, unsent and in flight; `None`: it needs no cap until its next response.
    Cap {
        /// The connection.
        conn: ConnId,
        /// Its cap.
        cap_bytes: Option<u64>,
    },
    /// The level of the socket of a connection with a cap, just before it was offered more: what it held, unsent and in flight
    /// (SIOCOUTQ). `Sent` follows.
    SocketLevel {
        /// The connection.
        conn: ConnId,
        /// What it held.
        held_bytes: u64,
    },
    /// Send memory is divided; this is what the socket of a connection may hold that begins to send, until it is told more.
    StartCap {
        /// The cap.
        cap_bytes: u64,
    },
    /// Stop: answer the requests that have arrived, and end all connections within the drain timeout.
    Drain,
}

impl In {
    /// Which connection it is about.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            In::Incoming
            | In::AcceptFailed
            | In::PlacesElsewhere(_)
            | In::StartCap { .. }
            | In::Drain => None,
            In::SocketLevel { conn, .. } => Some(*conn),
            In::Accepted { conn, .. }
            | In::Tcp { conn, .. }
            | In::Received { conn, .. }
            | In::Export { conn, .. }
            | In::Cap { conn, .. }
            | In::Adopt { conn, .. } => Some(*conn),
            In::Recorded { stream, .. }
            | In::Resolved { stream, .. }
            | In::Probed { stream, .. }
            | In::Sent { stream, .. }
            | In::Missing { stream }
            | In::Waited { stream }
            | In::Sliced { stream, .. }
            | In::Fetched { stream, .. }
            | In::FetchFailed { stream, .. }
            | In::FetchElsewhere { stream, .. }
            | In::Unresolved { stream }
            | In::Failed { stream, .. } => Some(stream.conn),
        }
    }
}

/// Bytes of a response that a socket is to be offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendOrder {
    /// The response.
    pub stream: StreamId,
    /// The part to send.
    pub part: u16,
    /// Where to begin in the part, and how many bytes at most.
    pub span: Span,
    /// What holds the bytes, if they are a file's.
    pub held: Held,
    /// More of the response follows (MSG_MORE).
    pub more: bool,
    /// How much the socket should take, of these bytes and those behind them, and when EPOLLOUT should fire;
    /// `None`: the kernel decides.
    pub refill: Option<Refill>,
}

/// What reached the client of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Body bytes that the kernel took.
    pub sent_bytes: u64,
    /// Body bytes that the client's TCP acknowledged.
    pub acked_bytes: u64,
    /// All of the response was acknowledged.
    pub whole: bool,
    /// Why it ended.
    pub why: Why,
    /// Time it was stalled for lack of bytes from the disk, with nothing in its socket.
    pub waited_disk_us: u64,
    /// Time it was stalled for its client.
    pub waited_net_us: u64,
    /// From the request to the last byte taken by the kernel.
    pub took_us: u64,
}

/// What the worker orders. The shell executes it at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Out {
    /// Accept up to this many connections.
    Accept(u32),
    /// Watch the listeners, or leave new connections in their backlog.
    Listen(bool),
    /// Read the input; answered by `Received` at once.
    Receive {
        /// The connection.
        conn: ConnId,
        /// What to look for.
        expect: Expect,
    },
    /// Look up what the request just received asks for, and plan its response; answered by `Resolved`.
    Resolve {
        /// The response to plan.
        stream: StreamId,
        /// The client has too many connections: plan a refusal instead.
        refuse: bool,
    },
    /// Find out whether all of the span is in memory; answered by `Probed` at once.
    Probe {
        /// The response.
        stream: StreamId,
        /// The file.
        object: ObjectId,
        /// The bytes.
        span: Span,
    },
    /// Hand this want to the disk machine; answered by `Fetched`, `FetchFailed` or `Failed`.
    Want(Want),
    /// Every stage forgets the stream's want and its listing in this turn.
    Forget(StreamId),
    /// Free what was fetched for the stream and is not sent: its client does not read, or the pieces are void.
    Release(StreamId),
    /// The kernel has taken all bytes of the response, or it is cut off: close what was open for it.
    Ended(StreamId),
    /// Make the next slice of the listing; answered by `Sliced` or `Failed`.
    Slice(StreamId),
    /// Send bytes of a part (of a listing: of its current slice; of a text: of it and the texts that follow it);
    /// answered by `Sent` or `Missing` at once.
    Send(SendOrder),
    /// The response is stalled for its disk, although its socket takes more. Send what is held back for bytes that were to follow
    /// at once, and let EPOLLOUT fire when the socket holds less than this: its client may take it sooner than was predicted.
    Underfed {
        /// The connection.
        conn: ConnId,
        /// Unsent bytes, at least 1.
        epollout_bytes: u32,
    },
    /// The response is stalled for its disk. Send what is held back for the bytes that were to follow, if they may take long.
    Push(ConnId),
    /// Send no faster than this (SO_MAX_PACING_RATE), bytes per second; `None`: as fast as TCP likes. It applies to
    /// what is sent from now on.
    Pace {
        /// The connection.
        conn: ConnId,
        /// How fast.
        rate_bytes_per_s: Option<u64>,
    },
    /// A response begins, and send memory is divided: the socket may hold so much, unsent and in flight.
    Cap {
        /// The connection.
        conn: ConnId,
        /// The cap, until the next [`In::Cap`].
        cap_bytes: u64,
    },
    /// Sample TCP_INFO; answered at once by a `Tcp` event with the sample.
    Sample(ConnId),
    /// A response has ended for its client: log it.
    Arrived {
        /// The response.
        stream: StreamId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The answer to `Export`: the connection has left this machine. No order about it follows, as after `Close`, and
    /// what the shell has open for its response is closed. Its bytes up to `given_bytes` are the socket's; the next one
    /// is the next machine's.
    Export {
        /// The connection.
        conn: ConnId,
        /// All that this machine knows of it.
        exported: Box<Exported<LocalFile>>,
    },
    /// The answer to `Export`: the connection stays, and nothing has changed.
    Keep {
        /// The connection.
        conn: ConnId,
        /// The reason.
        why: Kept,
    },
    /// Send FIN; the input stays open.
    Shutdown(ConnId),
    /// Close the connection and free its slot.
    Close {
        /// The connection.
        conn: ConnId,
        /// With RST, so that the kernel drops what it still holds.
        abort: bool,
        /// The reason.
        why: Why,
    },
}
