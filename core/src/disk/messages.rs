//! What the disk machine is told and what it orders: its whole contract with a shell.

use super::chosen::Chosen;
use super::layout::Layout;
use super::scheduler::Order;
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Span, StreamId, Want};
use crate::prefetch::Prefetch;

/// What the operator may choose, and what is known of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long reads are.
    pub prefetch: Prefetch,
    /// In which order they are made.
    pub order: Order,
    /// Whether the wishes of those who left are dropped. If not, the due ones are read all the same, as by a server that
    /// has given its requests away.
    pub cancel: bool,
    /// What becomes of the wishes of those whose path is congested.
    pub delay: Delay,
    /// What nobody else comes for soon is read past the page cache. If not, all goes through it.
    pub direct: bool,
    /// M, the size of the pool for direct reads; whole slots of it count. With what it is at first, the tables of files and windows
    /// get their size.
    pub memory_bytes: u64,
    /// What the page cache is expected to hold of what is read into it, until it is found to be less or more.
    pub page_cache_bytes: u64,
    /// It has an arm.
    pub rotational: bool,
    /// How many disks it is made of, as far as that is known.
    pub spindles: u32,
    /// K, the number of reads that it is given at once; `None`: found by measurement ([`crate::depth`]).
    pub reads: Option<u32>,
}

/// Number of a read, unique in one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

/// Where and how a read failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The `errno` of the system call; 0: the file ended before the bytes that were promised.
    pub errno: i32,
    /// The first byte that could not be read.
    pub offset_bytes: u64,
}

/// Where a read goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The kernel's page cache.
    PageCache,
    /// So many slots of the pool, which are free: the machine counts them.
    Slots(u32),
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum In {
    /// A stream wishes for bytes; replaces its earlier wish.
    Want(Want),
    /// A stream is gone: it, and the earlier ones of its connection's place, wish for nothing more.
    Forget(StreamId),
    /// Where a file lies; empty if nobody knows.
    Mapped {
        /// Which.
        object: ObjectId,
        /// Where.
        layout: Layout,
    },
    /// A read came back.
    Done {
        /// Which.
        read: ReadId,
        /// Bytes from its start that are there: fewer than asked for if the file ends. Through the page cache
        /// a file that ends early is no error either: who sends notices. Where it failed, all bytes before that place are
        /// there.
        result: Result<u64, ReadError>,
    },
    /// So many slots of the pool are free again.
    Freed(u32),
    /// So many files of the device are being looked for, or mapped, from now on: reads of which the machine knows no more
    /// than that somebody waits for them.
    LookUps(u32),
    /// The device can't be read past the page cache.
    Indirect,
    /// The kernel does not tell what is cached of the device's files. Nothing is decided by it here, but it is explained.
    Blind,
    /// The pool has this size from now on. If more of it is in use, nothing is read into it until that has come back.
    Budget {
        /// M.
        memory_bytes: u64,
    },
}

/// What the machine orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Find out where the file lies; answered by `Mapped`, and not waited for by others.
    Map(ObjectId),
    /// Read.
    Read {
        /// Name of the read for its `Done`.
        read: ReadId,
        /// The file.
        object: ObjectId,
        /// The bytes; into slots: multiples of [`crate::limits::READ_ALIGN_BYTES`], beyond the end of the file perhaps.
        span: Span,
        /// Where to.
        into: Destination,
    },
    /// Tell the stream that bytes of its wish are there, from its start.
    Filled {
        /// By which read.
        read: ReadId,
        /// Who wished.
        stream: StreamId,
        /// Which of its wishes ([`Want::seq`]).
        seq: u32,
        /// Which bytes.
        span: Span,
        /// Where they are; slots go to this stream.
        held: Held,
        /// Why they were read now, and so many.
        chosen: Chosen,
        /// The stream stands still for lack of them, or soon will: wake its worker. Otherwise the worker finds
        /// the news when it wakes for another reason.
        urgent: bool,
    },
    /// Tell the stream that its wish can't be fulfilled: not even its first byte is there.
    Failed {
        /// Who wished.
        stream: StreamId,
        /// Which of its wishes.
        seq: u32,
        /// Why.
        error: ReadError,
    },
    /// The stream stands still and has an answer that its worker has not heard: wake it.
    Nudge(StreamId),
}
