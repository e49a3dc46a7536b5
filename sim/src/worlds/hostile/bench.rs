//! What the disk thread has: its machine, reads under way, slots, and its bell.

use std::collections::BTreeMap;

use ackpace_core::conn::{ObjectId, Span, StreamId, Want};
use ackpace_core::disk::{self, Disk, ReadId};

/// What a worker asks.
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
    /// The file ended after so many bytes.
    Short(u64),
    /// A byte so far behind its start can't be read.
    Broken(u64),
}

#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub object: ObjectId,
    pub span: Span,
    pub slots: u32,
}

/// The memory of the read that has just come back.
pub(super) struct Landed {
    pub read: ReadId,
    pub flight: Flight,
    /// What of it is there.
    pub good: Span,
    pub taken: bool,
}

/// What the disk machine should know of a place: kept from what it was told and has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing {
    /// The last wish that it took.
    pub want: Want,
    /// Answers given to its stream.
    pub answers: u32,
    /// It is not answered.
    pub holds: bool,
}

/// The disk machine and what its shell has.
pub(super) struct Bench {
    pub disk: Disk,
    pub settings: disk::Settings,
    pub reads: BTreeMap<ReadId, Flight>,
    /// Files whose layout is being looked for.
    pub maps: Vec<ObjectId>,
    pub landed: Option<Landed>,
    pub standing: BTreeMap<u32, Standing>,
    /// Slots that are lent, and those that came back and of which the machine has not heard.
    pub used: u32,
    pub freed: u32,
    /// So many slots have to come back before it rings; 0: it does not.
    pub hungry: u32,
    /// Its bell rings.
    pub rung: bool,
    /// The machine has heard nothing since it had nothing to order.
    pub quiet: bool,
}

impl Bench {
    pub fn new(settings: disk::Settings) -> Bench {
        Bench {
            disk: Disk::new(settings),
            settings,
            reads: BTreeMap::new(),
            maps: Vec::new(),
            landed: None,
            standing: BTreeMap::new(),
            used: 0,
            freed: 0,
            hungry: 0,
            rung: false,
            quiet: true,
        }
    }

    /// Slots come back to the pool; it rings when those are there that the next read lacks.
    pub fn free(&mut self, slots: u32) {
        assert!(slots <= self.used, "slots come back twice");
        self.used -= slots;
        self.freed += slots;
        self.feed();
    }

    /// Ring if those have come back that the next read lacks.
    pub fn feed(&mut self) {
        if self.hungry > 0 && self.freed >= self.hungry {
            (self.hungry, self.rung) = (0, true);
        }
    }
}
