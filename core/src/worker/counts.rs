//! The counters of a worker's own decisions, for operators: plain numbers, written by one thread.

use super::ConnPhase;
use crate::congestion::Signal;
use crate::why::{TopUp, Wait, Why};

/// The counters since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Goes up with every change of the counters below, so that a reader knows when to read them.
    pub changes: u64,
    /// Sockets that were filled, by [`TopUp`]; a response's first filling is not counted.
    pub top_ups: [u64; TopUp::ALL.len()],
    /// Rounds of top-ups: each visits every sending connection's margin.
    pub rounds: u64,
    /// Responses whose first window was paced.
    pub paced: u64,
    /// Congestion signals, by [`Signal`].
    pub signals: [u64; Signal::ALL.len()],
    /// Waits that ended, by [`Wait`]; none for a turn.
    pub waits: [u64; Wait::ALL.len()],
    /// Total time of these waits.
    pub waited_us: [u64; Wait::ALL.len()],
    /// Sends from the page cache that found their bytes missing: evicted, or not read yet.
    pub missed: u64,
    /// Lost wakeups mended: streams that waited for the disk while nobody worked for them, and that took their next
    /// step. Each is a bug of ours.
    pub mended: u64,
    /// Connections that were closed, by [`Why`].
    pub closed: [u64; Why::ALL.len()],
}

/// How many connections of a worker are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections by [`PHASES`].
    pub phases: [u64; PHASES.len()],
    /// Responses under way, by what their next bytes wait for.
    pub waiting: [u64; Wait::ALL.len()],
    /// Their bytes that the kernel has not taken yet; of a listing, only those of the current slice.
    pub waiting_bytes: [u64; Wait::ALL.len()],
    /// Sum of the rates at which bytes arrived in the last seconds, over all connections that are sending.
    pub rates_bytes_per_s: u64,
    /// B_net: the sum of their estimated rates, where known.
    pub believed_bytes_per_s: u64,
}

/// The stable names of the phases of a connection.
pub const PHASES: [&str; 6] = [
    "idle",
    "head",
    "resolving",
    "sending",
    "skipping",
    "lingering",
];

/// The phase's index in [`PHASES`]. `idle`: the client owes us no request.
pub(super) fn phase_index(phase: ConnPhase, idle: bool) -> usize {
    match phase {
        ConnPhase::Open if idle => 0,
        ConnPhase::Open => 1,
        ConnPhase::Resolving => 2,
        ConnPhase::Sending => 3,
        ConnPhase::Skipping { .. } => 4,
        ConnPhase::Lingering { .. } => 5,
    }
}

impl Counts {
    /// A socket is filled, for this reason.
    pub(super) fn topped_up(&mut self, top_up: TopUp) {
        self.top_ups[top_up as usize] += 1;
        self.changes += 1;
    }

    /// A round of top-ups was made.
    pub(super) fn round(&mut self) {
        self.rounds += 1;
        self.changes += 1;
    }

    /// A first window is paced.
    pub(super) fn paced(&mut self) {
        self.paced += 1;
        self.changes += 1;
    }

    /// A path showed this sign of congestion.
    pub(super) fn congested(&mut self, signal: Signal) {
        self.signals[signal as usize] += 1;
        self.changes += 1;
    }

    /// A response was stalled for so long.
    pub(super) fn waited(&mut self, wait: Wait, us: u64) {
        self.waits[wait as usize] += 1;
        self.waited_us[wait as usize] += us;
        self.changes += 1;
    }

    /// Bytes were missing from the page cache when they were to be sent.
    pub(super) fn missed(&mut self) {
        self.missed += 1;
        self.changes += 1;
    }

    /// A lost wakeup was found.
    pub(super) fn mended(&mut self) {
        self.mended += 1;
        self.changes += 1;
    }

    /// A connection is closed.
    pub(super) fn closed(&mut self, why: Why) {
        self.closed[why as usize] += 1;
        self.changes += 1;
    }
}
