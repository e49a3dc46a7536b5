//! What a node knows of each node: whether it serves, and what waits there.

use alloc::vec::Vec;

/// Nodes of a cluster: a [`NodeSet`] is one word. Further ones are left out.
pub const NODES_MAX: usize = u64::BITS as usize;

/// Some of the nodes, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(pub u64);

impl NodeSet {
    /// Whether this node is one of them; false for a node that cannot be.
    pub fn has(self, node: usize) -> bool {
        node < NODES_MAX && self.0 >> node & 1 == 1
    }

    /// With this node, too.
    pub fn with(self, node: usize) -> NodeSet {
        NodeSet(self.0 | bit(node))
    }

    /// Without this node.
    pub fn without(self, node: usize) -> NodeSet {
        NodeSet(self.0 & !bit(node))
    }
}

/// No bit for a node that cannot be.
fn bit(node: usize) -> u64 {
    match node < NODES_MAX {
        true => 1 << node,
        false => 0,
    }
}

/// What waits at a node (DTCP 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Processing Load: messages that wait for the CPU, or in one of the two input adaptors.
    pub processing: u32,
    /// Disk Load: messages that wait for the disk.
    pub disk: u32,
}

impl Load {
    /// Both together.
    pub fn sum(self) -> u64 {
        u64::from(self.processing) + u64::from(self.disk)
    }
}

/// Whether a node takes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    #[default]
    Up,
    /// It finishes what it has.
    Draining,
    /// Nobody hears from it.
    Down,
}

#[derive(Debug)]
struct Node {
    name: u64,
    weight: u32,
    standing: Standing,
    told: Load,
    /// What this node has sent there since it was told.
    since: Load,
}

/// All nodes of the cluster, this one included.
#[derive(Debug)]
pub struct Nodes(Vec<Node>);

impl Nodes {
    /// Nodes of these names, hashed; all are up and idle, and weigh 1.
    pub fn new(names: &[u64]) -> Nodes {
        let node = |name: &u64| Node {
            name: *name,
            weight: 1,
            standing: Standing::Up,
            told: Load::default(),
            since: Load::default(),
        };
        Nodes(names.iter().take(NODES_MAX).map(node).collect())
    }

    /// Another node, of this name, takes the place of one: idle, down, and of weight 1.
    pub fn rename(&mut self, node: usize, name: u64) {
        if let Some(node) = self.0.get_mut(node) {
            *node = Node {
                name,
                weight: 1,
                standing: Standing::Down,
                told: Load::default(),
                since: Load::default(),
            };
        }
    }

    /// How many there are, up or not.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Those that take requests.
    pub fn serving(&self) -> impl Iterator<Item = usize> {
        let nodes = self.0.iter().enumerate();
        let up = nodes.filter(|(_, node)| node.standing == Standing::Up);
        up.map(|(node, _)| node)
    }

    /// Whether it takes requests.
    pub fn serves(&self, node: usize) -> bool {
        self.0
            .get(node)
            .is_some_and(|node| node.standing == Standing::Up)
    }

    /// What it was last said to have, and what was sent there since: between two reports not all goes to one node.
    pub fn load(&self, node: usize) -> Load {
        self.0.get(node).map_or(Load::default(), |node| Load {
            processing: node.told.processing.saturating_add(node.since.processing),
            disk: node.told.disk.saturating_add(node.since.disk),
        })
    }

    /// How much more than a node of weight 1 it can do.
    pub fn weight(&self, node: usize) -> u32 {
        self.0.get(node).map_or(1, |node| node.weight)
    }

    /// The hash of its name.
    pub fn name(&self, node: usize) -> u64 {
        self.0.get(node).map_or(0, |node| node.name)
    }

    /// It says what waits there.
    pub fn told(&mut self, node: usize, load: Load) {
        if let Some(node) = self.0.get_mut(node) {
            (node.told, node.since) = (load, Load::default());
        }
    }

    /// It takes requests, or takes none.
    pub fn stand(&mut self, node: usize, standing: Standing) {
        if let Some(node) = self.0.get_mut(node) {
            node.standing = standing;
        }
    }

    /// It is to get so much more than a node of weight 1; 0 counts as 1.
    pub fn weigh(&mut self, node: usize, weight: u32) {
        if let Some(node) = self.0.get_mut(node) {
            node.weight = weight.max(1);
        }
    }

    /// A request goes there; `reads`: its disk has to work.
    pub fn sent(&mut self, node: usize, reads: bool) {
        if let Some(node) = self.0.get_mut(node) {
            node.since.processing = node.since.processing.saturating_add(1);
            node.since.disk = node.since.disk.saturating_add(u32::from(reads));
        }
    }
}
