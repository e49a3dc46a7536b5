//! Where a request is served: by which node of the cluster, and how (DTCP 4.3, Algorithm 1).
//!
//! Asked when a plan is known, before its first byte is sent. A node knows of the others what they told it: their loads
//! ([`Place::told`]), and what came into and went out of their memory ([`Place::came`], [`Place::went`]). Between two
//! reports it adds what it decides itself.

mod hashing;
mod how;
mod nodes;
mod sets;
mod sharing;

pub use how::{BREAK_EVEN_BYTES, How, Response};
use nodes::Nodes;
pub use nodes::{Load, NODES_MAX, NodeSet, Standing};
use sets::Sets;
pub use sets::{BYTES, OBJECTS_MAX};
use sharing::{Choice, Printed};

/// The paper's threshold of Algorithm 1: a node with so many more messages than the one with least Disk Load shares an
/// object with it.
pub const THRESHOLD: u32 = 100;

/// By what a node is chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Algorithm 1, repaired.
    #[default]
    Algorithm1,
    /// Algorithm 1 as printed. Where that never ends, or reads what is not set, N is chosen and counted.
    Algorithm1Printed,
    /// LARD's basic rule: an object has one node.
    Lard,
    /// Consistent hashing with bounded loads.
    BoundedHashing,
    /// One node after the other.
    RoundRobin,
    /// The node with least to do for its weight; of equals one after the other.
    WeightedRoundRobin,
    /// Any node.
    Random,
}

/// What an operator may choose.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// By what a node is chosen.
    pub policy: Policy,
    /// Of Algorithm 1, messages.
    pub threshold: u32,
    /// From which length on connections move, bytes.
    pub break_even_bytes: u64,
    /// Objects whose sets are known; at most [`OBJECTS_MAX`].
    pub objects: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            policy: Policy::default(),
            threshold: THRESHOLD,
            break_even_bytes: BREAK_EVEN_BYTES,
            objects: OBJECTS_MAX,
        }
    }
}

/// How often Algorithm 1 as printed would not have chosen a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// It would never have ended.
    pub loops: u64,
    /// It would have read M, which nothing had set.
    pub undefined: u64,
}

/// A choice, and what it was made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The node.
    pub node: usize,
    /// The nodes that were known to have the object.
    pub set: NodeSet,
    /// What waited at the node that has the connection.
    pub at: Load,
    /// What waited at the chosen node.
    pub there: Load,
}

/// What one node knows of the cluster, and by what it decides.
#[derive(Debug)]
pub struct Place {
    settings: Settings,
    nodes: Nodes,
    sets: Sets,
    /// The node that had the last turn.
    turn: Option<usize>,
    faults: Faults,
}

impl Place {
    /// Nodes by the hashes of their names; those beyond [`NODES_MAX`] are left out.
    pub fn new(names: &[u64], settings: Settings) -> Place {
        Place {
            settings,
            nodes: Nodes::new(names),
            sets: Sets::new(settings.objects),
            turn: None,
            faults: Faults::default(),
        }
    }

    /// Another node, of this name, hashed, takes the place of one. It is down until it [stands](Place::stand).
    pub fn rename(&mut self, node: usize, name: u64) {
        self.nodes.rename(node, name);
        self.sets.forget(node);
    }

    /// A node says what waits there.
    pub fn told(&mut self, node: usize, load: Load) {
        self.nodes.told(node, load);
    }

    /// A node takes requests, or takes none. One that nobody hears from has lost its sets.
    pub fn stand(&mut self, node: usize, standing: Standing) {
        self.nodes.stand(node, standing);
        if standing == Standing::Down {
            self.sets.forget(node);
        }
    }

    /// A node is to get so much more than one of weight 1.
    pub fn weigh(&mut self, node: usize, weight: u32) {
        self.nodes.weigh(node, weight);
    }

    /// An object came into the memory of a node.
    pub fn came(&mut self, node: usize, key: u64) {
        if node < self.nodes.count() {
            self.sets.came(node, key);
        }
    }

    /// An object went out of it.
    pub fn went(&mut self, node: usize, key: u64) {
        self.sets.went(node, key);
    }

    /// The nodes that are known to have an object.
    pub fn set(&mut self, key: u64) -> NodeSet {
        self.sets.ask(key)
    }

    /// Objects of which a node is known that has them.
    pub fn objects_known(&self) -> usize {
        self.sets.known()
    }

    /// What Algorithm 1 as printed would have done wrong.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// The node that serves an object of this key; `None`: no node takes requests. `at`: the node that has the connection;
    /// `None` asks for a front that serves nothing. `random`: a random number, for [`Policy::Random`].
    pub fn choose(&mut self, at: Option<usize>, key: u64, random: u64) -> Option<usize> {
        self.choose_told(at, key, random).map(|chosen| chosen.node)
    }

    /// The same, with what the choice was made by.
    pub fn choose_told(&mut self, at: Option<usize>, key: u64, random: u64) -> Option<Chosen> {
        let before = self.sets.ask(key);
        let Choice { node, set } = self.choice(at, key, before, random)?;
        // A set that shrinks forgets a node that may still have it; LARD wants that.
        for gone in self.nodes.serving() {
            if before.has(gone) && !set.has(gone) {
                self.sets.went(gone, key);
            }
        }
        if set.has(node) {
            self.sets.came(node, key);
        }
        let chosen = Chosen {
            node,
            set: before,
            at: at.map_or(Load::default(), |at| self.nodes.load(at)),
            there: self.nodes.load(node),
        };
        self.nodes.sent(node, !before.has(node));
        Some(chosen)
    }

    /// How a response is served for which `node` was chosen, by the node `at`.
    pub fn how(&self, at: usize, node: usize, response: Response) -> How {
        match at == node {
            true => How::Here,
            false => how::elsewhere(response, self.settings.break_even_bytes),
        }
    }

    fn choice(&mut self, at: Option<usize>, key: u64, set: NodeSet, random: u64) -> Option<Choice> {
        let (nodes, threshold) = (&self.nodes, self.settings.threshold);
        let blind = |node| Choice { node, set };
        match self.settings.policy {
            Policy::Algorithm1 => sharing::algorithm_1(nodes, set, at, key, threshold),
            Policy::Algorithm1Printed => self.as_printed(key, set),
            Policy::Lard => sharing::lard(nodes, set),
            Policy::BoundedHashing => hashing::bounded(nodes, key).map(blind),
            Policy::RoundRobin => self.in_turn(|_, _| 0).map(blind),
            Policy::WeightedRoundRobin => self.in_turn(for_weight).map(blind),
            Policy::Random => {
                let serving = nodes.serving().count() as u64;
                let nth = random.checked_rem(serving)? as usize;
                nodes.serving().nth(nth).map(blind)
            }
        }
    }

    fn as_printed(&mut self, key: u64, set: NodeSet) -> Option<Choice> {
        let threshold = self.settings.threshold;
        match sharing::algorithm_1_printed(&self.nodes, set, key, threshold)? {
            Printed::Chosen(choice) => return Some(choice),
            Printed::Loops => self.faults.loops += 1,
            Printed::Undefined => self.faults.undefined += 1,
        }
        sharing::algorithm_1(&self.nodes, NodeSet::default(), None, key, threshold).map(|n| {
            Choice {
                set: set.with(n.node),
                ..n
            }
        })
    }

    /// The node of least `burden`; of equals the next one after the last turn.
    fn in_turn(&mut self, burden: impl Fn(&Nodes, usize) -> u64) -> Option<usize> {
        let (nodes, last) = (&self.nodes, self.turn);
        let order = |node: &usize| (burden(nodes, *node), last.is_some_and(|last| *node <= last));
        let next = nodes.serving().min_by_key(order)?;
        self.turn = Some(next);
        Some(next)
    }
}

/// What a node would have to do, for its weight: in 65,536ths, so that weights of up to that count.
fn for_weight(nodes: &Nodes, node: usize) -> u64 {
    ((nodes.load(node).sum() + 1) << 16) / u64::from(nodes.weight(node))
}

#[cfg(test)]
mod tests;
