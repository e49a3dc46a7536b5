//! Consistent hashing with bounded loads (Mirrokni, Thorup and Zadimoghaddam 2018): an object goes to its first node that has
//! no more than 1.25 times its share of what waits. The order of the nodes is that of rendezvous hashing.

use super::nodes::Nodes;

/// The bound over a node's fair share, in hundredths.
const BOUND_HUNDREDTHS: u128 = 125;

/// Each bit of the input changes half of the output (the finish of SplitMix64).
pub fn mix(key: u64) -> u64 {
    let mut mixed = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// How much this object belongs to this node: the same on all nodes of the cluster.
pub fn score(nodes: &Nodes, node: usize, key: u64) -> u64 {
    mix(mix(key) ^ nodes.name(node))
}

/// The node of an object. The bounds add up to more than what waits, so there is always one below its own.
pub fn bounded(nodes: &Nodes, key: u64) -> Option<usize> {
    let (mut waits, mut weights) = (1u128, 0u128);
    for node in nodes.serving() {
        waits += u128::from(nodes.load(node).sum());
        weights += u128::from(nodes.weight(node));
    }
    let has_room = |node: &usize| {
        let share = waits * u128::from(nodes.weight(*node)) * BOUND_HUNDREDTHS;
        u128::from(nodes.load(*node).sum()) < share.div_ceil(weights * 100)
    };
    let with_room = nodes.serving().filter(has_room);
    with_room.max_by_key(|node| score(nodes, *node, key))
}
