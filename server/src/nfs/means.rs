//! What it takes to change files, shared by all threads.

use ackpace_wire::nfs3::Verifier;

use super::alone::Changes;
use super::broker::Broker;
use super::repeats::Repeats;
use super::writers::Writers;

/// What it takes to change files.
pub struct Writing {
    /// Who has the clients' rights.
    pub broker: Broker,
    /// Files that are open for writing.
    pub writers: Writers,
    /// Replies to calls that may be repeated.
    pub repeats: Repeats,
    /// Changes under way.
    pub changes: Changes,
    /// Of this run: a client that sees another one writes again what it has not committed.
    pub verifier: Verifier,
}
