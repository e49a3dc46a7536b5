//! What the worker machine is told and what it orders: its whole contract with a shell.

use crate::congestion::Delay;
use crate::conn::{ConnId, Held, ObjectId, Plan, Span, StreamId, TcpEvent, Want};
use crate::disk::Chosen;
use crate::send::Room;
use crate::send::control::Policy;
use crate::why::Why;

/// What the operator may choose. Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// This worker's number, for its streams' names.
    pub worker: u16,
    /// Connections at once, at most [`CONNECTIONS_MAX`].
    pub connections_max: u32,
    /// Connections at once from one address; 0: no bound.
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
    /// What the log may keep of requests until they are settled; beyond it, the oldest is settled with what is known.
    pub arrivals_bytes_max: u64,
    /// Who is given bytes to send, and when.
    pub send: Policy,
    /// Whether the first window of a response is paced, if it would leave as a burst.
    pub pacing: bool,
    /// What becomes of wishes when a path is congested.
    pub delay: Delay,
}

/// A client's address as far as the bound per address counts: an IPv4 address, or the /64 of an IPv6 one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address(pub u64);

/// What came of an order to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing is there.
    Nothing,
    /// A part of a request head.
    HeadPart,
    /// A whole request head, good or bad.
    Request {
        /// A body follows it.
        body: bool,
        /// More input is at hand or may be.
        more: bool,
    },
    /// Bytes of a request body, or behind the last request, were thrown away.
    Skipped {
        /// How many.
        bytes: u64,
        /// The body ended.
        done: bool,
    },
    /// What follows is no body as announced: nothing behind it can be understood.
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
    /// Anything, to throw it away.
    Rest,
}

/// What the worker is told.
#[derive(Debug)]
pub enum In {
    /// A connection waits to be accepted.
    Incoming,
    /// It was accepted and has this name; `None` for clients without an address.
    Accepted {
        /// Its name: a place that the shell knows to be free.
        conn: ConnId,
        /// Where it comes from.
        address: Option<Address>,
    },
    /// Accepting failed for want of descriptors or memory.
    AcceptFailed,
    /// The transport has news.
    Tcp {
        /// Of whom.
        conn: ConnId,
        /// What.
        event: TcpEvent,
    },
    /// The result of a `Receive`.
    Received {
        /// From whom.
        conn: ConnId,
        /// What.
        received: Received,
    },
    /// The log keeps so much of the request until its response is settled. To be told before `Resolved`, if there is a log.
    Recorded {
        /// Of which response.
        stream: StreamId,
        /// How many bytes.
        bytes: u64,
    },
    /// The request has an answer.
    Resolved {
        /// Which response this is.
        stream: StreamId,
        /// All of it.
        plan: Plan,
    },
    /// The result of a `Probe`.
    Probed {
        /// For whom.
        stream: StreamId,
        /// How many bytes from the start of the span are in memory.
        resident_bytes: u64,
    },
    /// The result of a `Send`.
    Sent {
        /// Of which response.
        stream: StreamId,
        /// What the kernel took.
        taken_bytes: u64,
        /// The socket is full: it takes no more, or has taken what it was to take; and it will call.
        full: bool,
        /// What it holds unsent now (SIOCOUTQNSD), asked if it is full or more of a file follows; `None` where
        /// nobody can say.
        unsent_bytes: Option<u64>,
    },
    /// The result of a `Send` from the page cache: its first byte is not there any more, or not yet, and sending it
    /// would wait for the disk.
    Missing {
        /// Of which response.
        stream: StreamId,
    },
    /// The result of a `Slice`.
    Sliced {
        /// For whom.
        stream: StreamId,
        /// Length of the slice; 0 is allowed.
        len_bytes: u64,
        /// No slice follows.
        last: bool,
    },
    /// A `Want` is fulfilled.
    Filled {
        /// Whose.
        stream: StreamId,
        /// Which of its wishes ([`Want::seq`]).
        seq: u32,
        /// What is in memory now.
        span: Span,
        /// Where.
        held: Held,
        /// Why it was read then, and so much.
        chosen: Chosen,
    },
    /// A `Want` can't be fulfilled: the response ends where it begins. What was fetched before that is still sent.
    Unfilled {
        /// Whose.
        stream: StreamId,
        /// Which of its wishes.
        seq: u32,
        /// Why.
        why: Why,
    },
    /// The response can't go on.
    Failed {
        /// Which.
        stream: StreamId,
        /// Why.
        why: Why,
    },
    /// Stop: no new connections, end those under way within the drain timeout.
    Drain,
}

impl In {
    /// Which connection it is about.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            In::Incoming | In::AcceptFailed | In::Drain => None,
            In::Accepted { conn, .. } | In::Tcp { conn, .. } | In::Received { conn, .. } => {
                Some(*conn)
            }
            In::Recorded { stream, .. }
            | In::Resolved { stream, .. }
            | In::Probed { stream, .. }
            | In::Sent { stream, .. }
            | In::Missing { stream }
            | In::Sliced { stream, .. }
            | In::Filled { stream, .. }
            | In::Unfilled { stream, .. }
            | In::Failed { stream, .. } => Some(stream.conn),
        }
    }
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
    /// Time it stood still for lack of bytes from the disk, with nothing in its socket.
    pub waited_disk_us: u64,
    /// Time it stood still for its client.
    pub waited_net_us: u64,
    /// From the request to the last byte taken by the kernel.
    pub took_us: u64,
}

/// What the worker orders. The shell executes it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Accept up to so many connections.
    Accept(u32),
    /// Watch the listeners, or leave new connections in their backlog.
    Listen(bool),
    /// Look at the input; answered by `Received` at once.
    Receive {
        /// Of whom.
        conn: ConnId,
        /// For what.
        expect: Expect,
    },
    /// Find what the request just received asks for, and plan its answer; answered by `Resolved`.
    Resolve {
        /// The response to plan.
        stream: StreamId,
        /// The client has too many connections: say so instead.
        refuse: bool,
    },
    /// Tell how much of the span is in memory, from its start; answered by `Probed` at once.
    Probe {
        /// For whom.
        stream: StreamId,
        /// Of which file.
        object: ObjectId,
        /// Which bytes.
        span: Span,
    },
    /// Hand this wish to the disk machine; answered by `Filled` or `Failed`.
    Want(Want),
    /// The stream is gone: its wishes and its listing are forgotten by every stage in this turn.
    Forget(StreamId),
    /// Give back what was fetched for the stream and is not sent: its client does not read.
    Release(StreamId),
    /// The kernel has all bytes of the response, or it is cut off: close what was open for it.
    Ended(StreamId),
    /// Make the next slice of the listing; answered by `Sliced` or `Failed`.
    Slice(StreamId),
    /// Send bytes of a part (of its present slice, if it is a listing; of it and the texts that follow it, if it is
    /// one); answered by `Sent` or `Missing` at once.
    Send {
        /// Of which response.
        stream: StreamId,
        /// Which of its parts.
        part: u16,
        /// From where in the part.
        from_bytes: u64,
        /// How many at most.
        len_bytes: u64,
        /// Where the bytes of a file are.
        held: Held,
        /// More of the response follows (MSG_MORE).
        more: bool,
        /// The bytes were missing `MISSES_MAX` times just after they were read into the page cache: whatever the kernel tells of
        /// them, who reads them without waiting shall say.
        unconfirmed: bool,
        /// What the socket is to take, with these bytes and others behind them, and when it calls; `None`: that is the kernel's affair.
        room: Option<Room>,
    },
    /// Send no faster than this (SO_MAX_PACING_RATE), bytes per second; `None`: as TCP likes. Paced is only what is
    /// sent from now on.
    Pace {
        /// Which.
        conn: ConnId,
        /// How fast.
        rate_bytes_per_s: Option<u64>,
    },
    /// Measure the connection; answered by a `Tcp` event with a sample at once.
    Sample(ConnId),
    /// A response has ended for its client: log it.
    Arrived {
        /// Which.
        stream: StreamId,
        /// How.
        outcome: Outcome,
    },
    /// Send FIN; the input stays open.
    Shutdown(ConnId),
    /// Close the connection and free its place.
    Close {
        /// Which.
        conn: ConnId,
        /// With RST, so that the kernel drops what it still holds.
        abort: bool,
        /// Why.
        why: Why,
    },
}
