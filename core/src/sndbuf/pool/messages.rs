//! What the machine that divides send memory is told, what it orders, and how it stands.

use alloc::vec::Vec;

use crate::conn::ConnId;
use crate::sndbuf::Policy;
use crate::sndbuf::bound::Grant;
use crate::sndbuf::reading::{Holding, Reading};

/// What the operator may choose.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How it is divided.
    pub policy: Policy,
    /// The memory for all sockets together, unsent and in flight.
    pub pool_bytes: u64,
    /// Number of workers.
    pub workers: u16,
    /// A random number ([`crate::sndbuf::remembered::Remembered`]).
    pub secret: u64,
}

/// What the pool is told.
#[derive(Debug)]
pub enum In {
    /// A connection of this worker begins to send.
    Joined {
        /// The worker.
        worker: u16,
        /// What TCP says of it.
        reading: Reading,
    },
    /// The answer to a `Sample`.
    Sampled {
        /// The worker.
        worker: u16,
        /// The slot that was asked for.
        from: u32,
        /// Its connections with a share, from there on.
        readings: Vec<Reading>,
        /// The slot from which there may be more.
        next: Option<u32>,
    },
    /// A smaller share is in force from now on.
    Lessened {
        /// The worker.
        worker: u16,
        /// Whose share it is.
        conn: ConnId,
        /// What its socket held in that moment.
        holding: Holding,
    },
    /// A connection has no share any more: it was told that it has none, or is closed.
    Left {
        /// The worker.
        worker: u16,
        /// Which.
        conn: ConnId,
    },
}

/// What the pool orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Look at the connections of this worker that have a share, from this slot on; answered by `Sampled`.
    Sample {
        /// The worker.
        worker: u16,
        /// The slot.
        from: u32,
    },
    /// A connection has another share; `None`: it sends nothing, and has none.
    Share {
        /// The worker.
        worker: u16,
        /// Its connection.
        conn: ConnId,
        /// The share.
        grant: Option<Grant>,
    },
}

/// The sums of the pool, as of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    /// The pool.
    pub pool_bytes: u64,
    /// The sum of the shares.
    pub shares_bytes: u64,
    /// What the sockets held when they were last sampled, unsent and in flight.
    pub held_bytes: u64,
    /// Connections that have a share.
    pub connections: u64,
    /// Divisions since the start.
    pub divisions: u64,
    /// What a connection has that joins, until the next division.
    pub start_bytes: u64,
}
