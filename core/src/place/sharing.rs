//! Rules by server sets: the paper's Algorithm 1, repaired and as printed, and LARD's basic rule.

use super::hashing::score;
use super::nodes::{NodeSet, Nodes};

/// With more waiting than this a node may give an object away (LARD's T_high), if another one has less than
/// [`LITTLE`]; with twice as much, in any case.
const MUCH: u32 = 65;
/// LARD's T_low.
const LITTLE: u32 = 25;

/// What is decided for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The node that serves it.
    pub node: usize,
    /// The object's set afterwards.
    pub set: NodeSet,
}

/// What Algorithm 1 does as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Printed {
    /// It ends, with this.
    Chosen(Choice),
    /// The idlest node lacks the file. Line 4 takes it out of a set in which it is not, line 2 finds it again, for ever.
    Loops,
    /// The set is empty: line 10 reads M, which nothing has set.
    Undefined,
}

/// N, "node with least Disk Load" (line 9). Of equals `at`, which need not move anything; then the one with least Processing
/// Load; then the one to which the object belongs by its hash.
fn least_disk(nodes: &Nodes, at: Option<usize>, key: u64) -> Option<usize> {
    nodes.serving().min_by_key(|node| {
        let load = nodes.load(*node);
        let by_hash = !score(nodes, *node, key);
        (load.disk, Some(*node) != at, load.processing, by_hash)
    })
}

/// "Node with least Processing Load" (line 2), of those in `set`.
fn least_processing(nodes: &Nodes, set: NodeSet) -> Option<usize> {
    let of_set = nodes.serving().filter(|node| set.has(*node));
    of_set.min_by_key(|node| nodes.load(*node).processing)
}

/// Lines 9 to 15.
fn joined(nodes: &Nodes, set: NodeSet, m: usize, n: usize, threshold: u32) -> Choice {
    let [of_m, of_n] = [m, n].map(|node| nodes.load(node).processing);
    if of_m.saturating_sub(of_n) > threshold && !set.has(n) {
        let set = set.with(n);
        return Choice { node: n, set };
    }
    Choice { node: m, set }
}

/// Algorithm 1 repaired: M is the node with least Processing Load within the set; an empty set takes N. `at` keeps what it
/// has, unless M has more than `threshold` less to do: "the decision is left to the first back-end".
pub fn algorithm_1(
    nodes: &Nodes,
    set: NodeSet,
    at: Option<usize>,
    key: u64,
    threshold: u32,
) -> Option<Choice> {
    let n = least_disk(nodes, at, key)?;
    let Some(m) = least_processing(nodes, set) else {
        let set = set.with(n);
        return Some(Choice { node: n, set });
    };
    let choice = joined(nodes, set, m, n, threshold);
    let keeps = |at: &usize| {
        let [of_at, of_m] = [*at, m].map(|node| nodes.load(node).processing);
        let has = set.has(*at) && nodes.serves(*at);
        has && choice.node == m && of_at.saturating_sub(of_m) <= threshold
    };
    let node = at.filter(keeps).unwrap_or(choice.node);
    Some(Choice { node, ..choice })
}

/// Algorithm 1 as printed; loads do not change while it runs. `None`: no node serves.
pub fn algorithm_1_printed(
    nodes: &Nodes,
    set: NodeSet,
    key: u64,
    threshold: u32,
) -> Option<Printed> {
    let n = least_disk(nodes, None, key)?;
    let m = least_processing(nodes, NodeSet(u64::MAX))?;
    Some(if set == NodeSet::default() {
        Printed::Undefined
    } else if set.has(m) {
        Printed::Chosen(joined(nodes, set, m, n, threshold))
    } else {
        Printed::Loops
    })
}

/// LARD's basic rule: an object has one node, until that has too much to do. Then another one takes it over.
pub fn lard(nodes: &Nodes, set: NodeSet) -> Option<Choice> {
    let waits = |node: usize| nodes.load(node).sum();
    let least = nodes.serving().min_by_key(|node| waits(*node))?;
    let has = least_processing(nodes, set).filter(|has| {
        let too_much = waits(*has) > u64::from(MUCH) && waits(least) < u64::from(LITTLE);
        !too_much && waits(*has) < u64::from(2 * MUCH)
    });
    let node = has.unwrap_or(least);
    let set = NodeSet::default().with(node);
    Some(Choice { node, set })
}
