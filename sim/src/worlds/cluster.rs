//! A cluster of web servers, as DTCP simulates it (section 4), driven by the policies of `ackpace_core::place`.
//!
//! Each node has a CPU, a disk, two input adaptors and two output adaptors: one of each for clients, one for the other nodes.
//! Each is a queue, first come, first served. The cluster is kept saturated: a request begins when another one has ended.

mod connection;
mod costs;
mod counts;
mod lru;
mod node;
mod routes;
mod run;
mod synthetic;
mod views;
mod workload;

use ackpace_core::place::{Faults, Policy};

pub use costs::Costs;
pub use synthetic::{Synthetic, specweb99};
pub use workload::{Request, Workload};

/// How a request that another node serves better gets there, and its response back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    /// It does not: the node of a connection's first request serves all of them.
    Single,
    /// The first node asks the other one and passes the response on: LARD's back-end forwarding.
    Relay {
        /// The first node keeps what it has passed on.
        keeps: bool,
    },
    /// The connection moves, and is back after the response: DTCP's partial hand-off.
    Partial(Partial),
    /// The connection moves and stays there; earlier nodes forward its ACKs.
    Multiple,
}

/// What a partial hand-off costs, and when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// It costs what it costs on Linux ([`Costs`]); otherwise nothing, as in the paper.
    pub costs: bool,
    /// The connection returns when another node is asked for; otherwise after each response.
    pub lazy: bool,
    /// Only long responses move, short ones are relayed, and what is hot is fetched ([`ackpace_core::place::How`]).
    pub by_length: bool,
    /// ACKs go to the first node, which forwards them: the paper's active layer.
    pub active_layer: bool,
}

/// What is known of the nodes where a request is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// A front sees all caches and queues as they are: the paper's "optimal behavior".
    Exact,
    /// A front is told once a second.
    Told,
    /// Each node decides for the connections that it has, is told once a second, and knows itself. New connections go to any.
    EachTold,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// What is asked for.
    pub workload: &'a Workload,
    /// How many nodes serve it.
    pub nodes: usize,
    /// How requests get to other nodes.
    pub mechanism: Mechanism,
    /// By what nodes are chosen.
    pub policy: Policy,
    /// What is known of them.
    pub knowledge: Knowledge,
    /// Memory of each node for files.
    pub cache_bytes: u64,
    /// Requests that are served at once by all nodes.
    pub outstanding: usize,
    /// Of Algorithm 1.
    pub threshold: u32,
    /// What things cost.
    pub costs: Costs,
    /// Files that nodes have in memory at the start: node, file.
    pub warm: &'a [(usize, u32)],
    /// So many requests come first and do not count.
    pub uncounted: usize,
    /// Of everything random.
    pub seed: u64,
}

/// Results of a run, over all requests that count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Throughput of the cluster.
    pub requests_per_s: f64,
    /// Requests that were served from the memory of a node.
    pub hit_percent: f64,
    /// Bytes on the network between the nodes, for each request.
    pub peer_bytes: f64,
    /// Bytes of responses that pass the TCP of a node, up or down, over the bytes that clients get.
    pub stack_ratio: f64,
    /// Requests that another node served than the one that had the connection.
    pub elsewhere_percent: f64,
    /// Moves of a connection, for each request.
    pub moves: f64,
    /// Nodes that a connection has come through, for each request, its server included.
    pub chain: f64,
    /// ACKs that a node forwards to another one, for each request.
    pub acks_forwarded: f64,
    /// Requests that had to wait until their connection was back.
    pub queued_percent: f64,
    /// What Algorithm 1 as printed would have done.
    pub faults: Faults,
}

impl World<'_> {
    /// Runs the world.
    pub fn run(&self) -> Outcome {
        run::Run::new(self).until_the_end()
    }
}
