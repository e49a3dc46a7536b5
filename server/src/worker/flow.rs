//! What a worker knows of a connection that has moved between the nodes of a cluster.

use ackpace_wire::cluster::FlowId;

/// A connection that has moved between nodes, as its worker knows it.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Its name in all nodes.
    pub id: FlowId,
    /// Of the present tenure, or of the last one.
    pub epoch: u32,
    /// SND.UNA when its socket was restored here.
    pub una_floor: u32,
    /// The node that accepted it, if this one serves it for a time.
    pub home: Option<usize>,
    /// How often it moved.
    pub moves: u32,
}
