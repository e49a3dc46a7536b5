//! What a worker counts of its own decisions, for whoever looks: plain numbers, written by one thread.

use super::Phase;
use crate::congestion::Signal;
use crate::why::{TopUp, Wait, Why};

/// What was counted since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Goes up with every change of what follows, so that a reader knows when to look.
    pub changes: u64,
    /// Sockets that were filled, by [`TopUp`]; a response's first filling is not counted.
    pub top_ups: [u64; TopUp::ALL.len()],
    /// Looks at everybody's margin.
    pub rounds: u64,
    /// Responses whose first window was paced.
    pub paced: u64,
    /// Signs of congestion, by [`Signal`].
    pub signals: [u64; Signal::ALL.len()],
    /// Waits that ended, by [`Wait`]; none for a turn.
    pub waits: [u64; Wait::ALL.len()],
    /// Time that they took.
    pub waited_us: [u64; Wait::ALL.len()],
    /// Sends from the page cache whose bytes were not there any more, or not yet.
    pub missed: u64,
    /// Streams that waited for the disk and for which nobody was at work: they were asked for again. Each is our own fault.
    pub mended: u64,
    /// Connections that were closed, by [`Why`].
    pub closed: [u64; Why::ALL.len()],
}

/// Where all connections of a worker stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Connections by [`PHASES`].
    pub phases: [u64; PHASES.len()],
    /// Responses under way, by what their next bytes wait for.
    pub waiting: [u64; Wait::ALL.len()],
    /// Their bytes that are not with the kernel yet; of a listing, those that are made.
    pub waiting_bytes: [u64; Wait::ALL.len()],
    /// What arrived in the last seconds at all who are sent something now, per second.
    pub rates_bytes_per_s: u64,
    /// B_net: what these are believed to take, as far as it is known.
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

/// The phase's place in [`PHASES`]. `idle`: the client owes us no request.
pub(super) fn phase_index(phase: Phase, idle: bool) -> usize {
    match phase {
        Phase::Open if idle => 0,
        Phase::Open => 1,
        Phase::Resolving => 2,
        Phase::Sending => 3,
        Phase::Skipping { .. } => 4,
        Phase::Lingering { .. } => 5,
    }
}

impl Counts {
    pub(super) fn topped_up(&mut self, top_up: TopUp) {
        self.top_ups[top_up as usize] += 1;
        self.changes += 1;
    }

    pub(super) fn round(&mut self) {
        self.rounds += 1;
        self.changes += 1;
    }

    pub(super) fn paced(&mut self) {
        self.paced += 1;
        self.changes += 1;
    }

    pub(super) fn congested(&mut self, signal: Signal) {
        self.signals[signal as usize] += 1;
        self.changes += 1;
    }

    pub(super) fn waited(&mut self, wait: Wait, us: u64) {
        self.waits[wait as usize] += 1;
        self.waited_us[wait as usize] += us;
        self.changes += 1;
    }

    pub(super) fn missed(&mut self) {
        self.missed += 1;
        self.changes += 1;
    }

    pub(super) fn mended(&mut self) {
        self.mended += 1;
        self.changes += 1;
    }

    pub(super) fn closed(&mut self, why: Why) {
        self.closed[why as usize] += 1;
        self.changes += 1;
    }
}
