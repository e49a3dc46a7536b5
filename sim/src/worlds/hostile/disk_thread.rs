//! State of the disk thread: its machine, the reads in flight, the slots, and whether it is to be woken.

use std::collections::BTreeMap;

use ackpace_core::conn::{ObjectId, Span, StreamId, Want};
use ackpace_core::disk::{self, Disk, ReadId};

use crate::worlds::store::ReadInFlight;

/// A message of a worker to the disk thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Want(Want),
    Forget(StreamId),
}

impl Ask {
    pub fn stream(&self) -> StreamId {
        match self {
            Ask::Want(want) => want.stream,
            Ask::Forget(stream) => *stream,
        }
    }
}

/// How a read ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Whole,
    /// The file ended after this many bytes.
    Short(u64),
    /// The byte this far behind the start can't be read.
    Broken(u64),
}

/// The memory of the read that has just completed.
pub(super) struct Landed {
    pub read: ReadId,
    pub flight: ReadInFlight,
    /// The part that was read.
    pub good: Span,
    pub taken: bool,
}

/// What the disk machine should know of a connection's place, from what it was told and has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outstanding {
    /// The last want that it accepted.
    pub want: Want,
    /// Answers given to its stream.
    pub answers: u32,
    /// The want is not answered yet.
    pub holds: bool,
}

/// The disk machine and the state of its shell.
pub(super) struct DiskThread {
    pub disk: Disk,
    pub settings: disk::Settings,
    pub reads: BTreeMap<ReadId, ReadInFlight>,
    /// Files whose layout is being looked up.
    pub maps: Vec<ObjectId>,
    pub landed: Option<Landed>,
    pub outstanding: BTreeMap<u32, Outstanding>,
    /// Slots that are lent out.
    pub used: u32,
    /// Slots that came back and that the machine has not heard of yet.
    pub freed: u32,
    /// Slots that must come back before the thread is woken; 0: it does not wait for any.
    pub slots_awaited: u32,
    /// A wake-up is pending.
    pub woken: bool,
    /// The machine has heard nothing since it last had no orders.
    pub quiet: bool,
}

impl DiskThread {
    pub fn new(settings: disk::Settings) -> DiskThread {
        DiskThread {
            disk: Disk::new(settings),
            settings,
            reads: BTreeMap::new(),
            maps: Vec::new(),
            landed: None,
            outstanding: BTreeMap::new(),
            used: 0,
            freed: 0,
            slots_awaited: 0,
            woken: false,
            quiet: true,
        }
    }

    /// Returns slots to the pool, and wakes the thread once the next read has those that it lacks.
    pub fn free(&mut self, slots: u32) {
        assert!(slots <= self.used, "slots come back twice");
        self.used -= slots;
        self.freed += slots;
        self.wake_if_enough();
    }

    /// Wakes the thread if the slots that the next read lacks have come back.
    pub fn wake_if_enough(&mut self) {
        if self.slots_awaited > 0 && self.freed >= self.slots_awaited {
            (self.slots_awaited, self.woken) = (0, true);
        }
    }
}
