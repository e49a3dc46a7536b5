//! The commands to a running swarm, one line of JSON each.

use serde::{Deserialize, Serialize};

/// A command.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub enum SwarmCommand {
    /// All clients of the class of this name reset their connections at once and never return. The answer comes when
    /// they have done so.
    Leave(String),
    /// The figures start again from zero.
    Reset,
    /// The run ends, with its summary.
    Stop,
}
