//! The door for frames about connections that move between nodes.

use ackpace_core::units::Instant;
use ackpace_wire::cluster::Frame;

/// Who hears frames about connections, and what becomes of nodes. It is called in the thread of the cluster, and must not wait
/// for long.
pub trait Flows: Send {
    /// A frame came from another node.
    fn on_flow(&mut self, from: usize, frame: Frame, now: Instant);
    /// The stream to a node broke. That is no proof that its process has ended.
    fn unreachable(&mut self, node: usize, now: Instant);
    /// The process of a node has ended, with proof.
    fn died(&mut self, node: usize, now: Instant);
    /// Whether a connection is between this node and that one, or belongs to that one: its place is not given to another node.
    fn refers_to(&self, node: usize) -> bool;
    /// Does what is due, after the other calls of a turn.
    fn turn(&mut self, now: Instant);
    /// A frame for another node.
    fn next_frame(&mut self) -> Option<(usize, Frame)>;
    /// When it wants its next turn.
    fn deadline(&self) -> Option<Instant>;
}
