//! What the disk machine is told and what it orders: its whole contract with the shell.

use super::objects::Layout;
use super::scheduler::Order;
use crate::congestion::Delay;
use crate::conn::{Held, ObjectId, Span, StreamId, Want, WantSeq};
use crate::prefetch::Prefetch;
use crate::why::Chosen;

/// What the operator may choose, and what is known about the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long reads are.
    pub prefetch: Prefetch,
    /// The order in which they are made.
    pub order: Order,
    /// Whether the wants of streams that ended are dropped. If not, those that are due are still read, as by a server
    /// that has already given its requests to the kernel.
    pub cancel: bool,
    /// What congestion does to the wants of the streams concerned.
    pub delay: Delay,
    /// Whether bytes for one reader are read past the page cache, where their file allows it. If not, everything goes
    /// through it.
    pub direct: bool,
    /// M, the size of the pool for direct reads, in whole slots. Its initial value also sets the size of the table of
    /// files.
    pub memory_bytes: u64,
    /// What the page cache is taken to hold of what is read into it: a file that is asked for twice is popular only if it
    /// would still be there the second time.
    pub page_cache_bytes: u64,
    /// The device has an arm.
    pub rotational: bool,
    /// The number of disks in the device, as far as that is known.
    pub spindles: u32,
    /// K, the queue depth: reads given to the device at once; `None`: by how long they take (`disk/room.rs`).
    pub reads: Option<u32>,
    /// The device is an origin: its bytes arrive one after the other, are handed on before the read is done
    /// (`disk/arriving.rs`), and a read can be cancelled.
    pub arriving: bool,
}

impl Settings {
    /// One rotating disk, driven as the server does by default, without memory for it. Tests and worlds begin with it.
    pub const ONE_DISK: Settings = Settings {
        prefetch: Prefetch::Tdap,
        order: Order::CLook,
        cancel: true,
        delay: Delay::Rate,
        direct: true,
        memory_bytes: 0,
        page_cache_bytes: 0,
        rotational: true,
        spindles: 1,
        reads: None,
        arriving: false,
    };
}

/// Number of a read, unique in one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReadId(pub u64);

impl ReadId {
    /// The number of a read that the shell began, apart from those that the machine gives.
    pub const fn of_shell(nth: u64) -> ReadId {
        ReadId(nth | 1 << 63)
    }

    /// Whether the shell began this read.
    pub const fn is_of_shell(self) -> bool {
        self.0 >> 63 == 1
    }
}

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
    /// This many slots of the pool, which are free: the machine counts them.
    Slots(u32),
}

/// What the machine is told.
#[derive(Clone, Debug)]
pub enum In {
    /// A stream wants bytes; this replaces its earlier want.
    Want(Want),
    /// A stream is gone: neither it nor an earlier stream in the same slot wants anything more.
    Forget(StreamId),
    /// How a file is read.
    Mapped {
        /// The file.
        object: ObjectId,
        /// Its layout; empty if it can't be known.
        layout: Layout,
        /// Whether it can be read past the page cache.
        direct: bool,
    },
    /// A read came back.
    Done {
        /// The read.
        read: ReadId,
        /// Bytes from its start that were read: fewer than asked for if the file ends. If the read failed, all bytes
        /// before the failure were read.
        result: Result<u64, ReadError>,
    },
    /// There is no memory for a read into the page cache: those who wait for it want anew. Such reads are made past it for a while.
    NoMemory(ReadId),
    /// A read that the machine did not order brings bytes into the page cache: the shell asked an origin what it has, and
    /// the answer begins with them. `Part` and `Done` follow.
    Begun {
        /// The read, by a number of the shell's own ([`ReadId::of_shell`]).
        read: ReadId,
        /// The object.
        object: ObjectId,
        /// The bytes that it will bring.
        span: Span,
    },
    /// Bytes of a read have arrived, of a device whose bytes arrive in order ([`Settings::arriving`]).
    Part {
        /// The read.
        read: ReadId,
        /// So many from its start are there.
        len_bytes: u64,
    },
    /// This many slots of the pool are free again.
    Freed(u32),
    /// The number of files of the device that are being looked up or mapped, from now on. Each is a read of which the
    /// machine knows no more than that somebody waits for it.
    LookUps(u32),
    /// The pool has this size from now on. If more of it is in use, nothing is read into it until enough is free again.
    Budget {
        /// M.
        memory_bytes: u64,
    },
}

/// What the machine orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Find out how the file is read, and where it lies on the device; answered by `Mapped`. Other orders do not wait for it.
    Map(ObjectId),
    /// Read.
    Read {
        /// Number of the read, for its `Done`.
        read: ReadId,
        /// The file.
        object: ObjectId,
        /// The bytes. Reads into slots are multiples of [`crate::limits::READ_ALIGN_BYTES`] and may reach beyond the
        /// end of the file.
        span: Span,
        /// Where the bytes go.
        into: Destination,
    },
    /// Nobody wants what is left of this read any more. If it is under way, end it if it can be ended; `Done` follows.
    Cancel(ReadId),
    /// Tell the stream that bytes from the start of its want are in memory.
    Fetched {
        /// The read.
        read: ReadId,
        /// The stream.
        stream: StreamId,
        /// Which of its wants ([`Want::seq`]).
        seq: WantSeq,
        /// Which bytes.
        span: Span,
        /// Where they are; slots go to this stream.
        held: Held,
        /// Why they were read now, and why so many.
        chosen: Chosen,
    },
    /// Tell the stream that its want can't be fulfilled: not even its first byte can be read.
    Failed {
        /// The stream.
        stream: StreamId,
        /// Which of its wants.
        seq: WantSeq,
        /// The reason.
        error: ReadError,
    },
}
