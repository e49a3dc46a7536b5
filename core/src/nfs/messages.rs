//! What the machine of an NFS connection is told and what it orders: its whole contract with the shell.

use crate::conn::{ConnId, ObjectId, Span, StreamId, TcpEvent, Want, WantSeq};
use crate::why::Why;

/// What the operator may choose, and who this connection is to the disk machines. Times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The worker that owns the connection.
    pub worker: u16,
    /// The first of its readers: this id and the [`READERS`](super::READERS) - 1 indices behind it are the connection's own while
    /// it lives. To a disk machine each is what a connection of HTTP is: it has one want at a time.
    pub readers: ConnId,
    /// Without a byte taken while replies wait.
    pub send_timeout_us: u64,
}

/// A call under way, by the number of its place, which the next call gets after [`Out::Left`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u8);

/// The result of an order to receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// No more input is there. A part of a call may have come.
    Nothing,
    /// A whole call that can be carried out or refused.
    Call {
        /// The longest reply that it may get, without payload of a READ.
        reply_bytes_max: u32,
    },
    /// The peer will send nothing more.
    End,
    /// What comes can't be understood.
    Broken,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A reply that the shell holds: all but a READ that succeeds with payload.
    Reply {
        /// Its bytes.
        len_bytes: u32,
    },
    /// A READ of bytes that the file has.
    Read(Read),
}

/// A READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The open file.
    pub object: ObjectId,
    /// Its length.
    pub file_len_bytes: u64,
    /// The bytes that are sent: at least 1, and none behind its end.
    pub span: Span,
    /// Bytes of the reply before them.
    pub head_bytes: u32,
    /// Zero bytes behind them.
    pub pad_bytes: u32,
}

impl Read {
    /// Bytes of the whole reply.
    pub(super) fn reply_bytes(&self) -> u64 {
        u64::from(self.head_bytes) + self.span.len_bytes + u64::from(self.pad_bytes)
    }
}

/// What the machine is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum In {
    /// An event of the transport.
    Tcp(TcpEvent),
    /// The result of a `Receive`.
    Received(Received),
    /// The result of a `Resolve` or a `Refuse`.
    Resolved {
        /// The call.
        call: CallId,
        /// What becomes of it.
        answer: Answer,
    },
    /// The result of a `Probe`.
    Probed {
        /// The call.
        call: CallId,
        /// Whether all that it reads is in memory.
        is_resident: bool,
    },
    /// The answer to a `Want`: bytes from its start are in the page cache or the slab.
    Fetched {
        /// For whom.
        stream: StreamId,
        /// Which of its wants.
        seq: WantSeq,
        /// What is in memory now.
        span: Span,
    },
    /// The other answer to a `Want`: it can't be read.
    FetchFailed {
        /// For whom.
        stream: StreamId,
        /// Which of its wants.
        seq: WantSeq,
        /// The reason.
        why: Why,
    },
    /// The result of a `Send`.
    Sent {
        /// What the kernel took.
        taken_bytes: u64,
        /// The socket takes no more. EPOLLOUT will fire.
        full: bool,
    },
    /// The other result of a `Send`: its next byte is a file's and not in memory. Nothing was taken.
    Missing,
    /// The third result of a `Send`: its next byte is a file's and can't be read. Nothing was taken.
    Unreadable(Why),
    /// Stop: answer the calls that have come, and close.
    Drain,
}

/// What the machine orders. The shell executes it at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Take a call from the input; answered by `Received` at once.
    Receive,
    /// Carry out the call that was just received, or refuse it; answered by `Resolved`, in any order among calls.
    Resolve(CallId),
    /// Find out whether all that a READ sends is in memory; answered by `Probed` at once.
    Probe {
        /// The call.
        call: CallId,
        /// The file.
        object: ObjectId,
        /// The bytes.
        span: Span,
    },
    /// Hand this want to the disk machine; answered by `Fetched` or `FetchFailed`. Its file is read into the page cache or the slab,
    /// never into slots: replies leave in any order.
    Want(Want),
    /// Every stage forgets the reader's want in this turn.
    Forget(StreamId),
    /// Replace the reply to a READ that can't be read by one that says so; answered by `Resolved`.
    Refuse {
        /// The call.
        call: CallId,
        /// The reason.
        why: Why,
    },
    /// Send a reply from this byte on: what is left of its head, its payload and its padding; answered by `Sent`, `Missing` or
    /// `Unreadable` at once.
    Send {
        /// The call.
        call: CallId,
        /// Bytes of the reply that were sent before.
        from_bytes: u64,
        /// Another reply follows at once (MSG_MORE).
        more: bool,
    },
    /// Sample TCP_INFO; answered at once by a `Tcp` event with the sample.
    Sample,
    /// The kernel has all of the reply: free what the shell holds for the call.
    Left(CallId),
    /// Close the connection and free all that is held for it.
    Close {
        /// With RST, so that the kernel drops what it still holds.
        abort: bool,
        /// The reason.
        why: Why,
    },
}
