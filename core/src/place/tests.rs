use proptest::prelude::*;

use super::*;

const POLICIES: [Policy; 7] = [
    Policy::Algorithm1,
    Policy::Algorithm1Printed,
    Policy::Lard,
    Policy::BoundedHashing,
    Policy::RoundRobin,
    Policy::WeightedRoundRobin,
    Policy::Random,
];

fn names(nodes: usize) -> Vec<u64> {
    (0..nodes as u64).map(|node| node * 77).collect()
}

fn place(nodes: usize, policy: Policy) -> Place {
    let settings = Settings {
        policy,
        objects: 64,
        ..Settings::default()
    };
    Place::new(&names(nodes), settings)
}

fn load(processing: u32, disk: u32) -> Load {
    Load { processing, disk }
}

#[test]
fn an_object_stays_where_it_is_until_its_node_has_a_hundred_more_to_do() {
    let mut place = place(3, Policy::Algorithm1);
    place.came(0, 7);
    for (to_do, chosen) in [(100, 0), (101, 1)] {
        place.told(0, load(to_do, 9));
        place.told(1, load(0, 2));
        place.told(2, load(0, 5));
        assert_eq!(
            place.choose(None, 7, 0),
            Some(if to_do == 100 { 0 } else { 1 })
        );
        assert!(place.set(7).has(chosen));
    }
    assert_eq!(place.set(7), NodeSet(0b11), "it is shared");
}

#[test]
fn the_first_node_keeps_what_it_has_and_takes_what_nobody_has() {
    let mut place = place(3, Policy::Algorithm1);
    place.came(0, 7);
    place.came(1, 7);
    place.told(1, load(90, 0));
    assert_eq!(place.choose(Some(1), 7, 0), Some(1), "not for 90");
    place.told(1, load(101, 0));
    assert_eq!(place.choose(Some(1), 7, 0), Some(0));
    assert_eq!(place.choose(Some(1), 8, 0), Some(1), "all disks are idle");
    place.told(1, load(0, 1));
    assert_ne!(place.choose(Some(1), 9, 0), Some(1));
}

#[test]
fn reports_between_two_choices_are_not_needed_to_spread_them() {
    let mut place = place(4, Policy::Algorithm1);
    let mut got = [0; 4];
    for key in 0..40 {
        got[place.choose(None, key, 0).expect("a node")] += 1;
    }
    assert_eq!(got, [10; 4]);
}

#[test]
fn what_is_printed_loops_if_the_idlest_node_lacks_the_file() {
    let mut place = place(2, Policy::Algorithm1Printed);
    assert!(place.choose(None, 7, 0).is_some());
    let [loops, undefined] = [0, 1];
    assert_eq!(place.faults(), Faults { loops, undefined });
    let other = if place.set(7).has(0) { 1 } else { 0 };
    place.told(1 - other, load(3, 0));
    assert!(place.choose(None, 7, 0).is_some());
    assert_eq!(place.faults().loops, 1);
}

#[test]
fn lard_gives_an_object_away_as_a_whole() {
    let mut place = place(2, Policy::Lard);
    place.came(0, 7);
    place.told(0, load(60, 5));
    assert_eq!(place.choose(None, 7, 0), Some(0));
    place.told(0, load(60, 6));
    place.told(1, load(0, 25));
    assert_eq!(
        place.choose(None, 7, 0),
        Some(0),
        "the other one is not idle"
    );
    place.told(0, load(60, 6));
    place.told(1, load(0, 24));
    assert_eq!(place.choose(None, 7, 0), Some(1));
    assert_eq!(place.set(7), NodeSet(0b10));
}

#[test]
fn turns_pass_over_who_does_not_serve_and_follow_the_weights() {
    let mut place = place(3, Policy::RoundRobin);
    place.stand(1, Standing::Draining);
    let got: Vec<_> = (0..4).map(|key| place.choose(None, key, 0)).collect();
    assert_eq!(got, [Some(0), Some(2), Some(0), Some(2)]);
    let mut place = self::place(2, Policy::WeightedRoundRobin);
    place.weigh(1, 3);
    let to_1 = (0..100).filter(|key| place.choose(None, *key, 0) == Some(1));
    assert_eq!(to_1.count(), 75);
}

#[test]
fn a_node_in_the_place_of_another_one_begins_with_nothing() {
    let mut place = place(2, Policy::Algorithm1);
    place.came(1, 7);
    place.told(1, load(0, 0));
    place.rename(1, 5);
    assert_eq!(place.set(7), NodeSet(0));
    place.stand(0, Standing::Down);
    assert_eq!(place.choose(None, 7, 0), None, "it does not stand yet");
    place.stand(1, Standing::Up);
    assert_eq!(place.choose(None, 7, 0), Some(1));
    place.rename(2, 5); // there is no such place
}

#[test]
fn a_node_that_nobody_hears_from_has_nothing() {
    let mut place = place(2, Policy::Algorithm1);
    place.came(0, 7);
    place.stand(0, Standing::Down);
    assert_eq!(place.choose(None, 7, 0), Some(1));
    place.stand(1, Standing::Down);
    assert_eq!(place.choose(None, 7, 0), None);
    place.stand(0, Standing::Up);
    assert_eq!(place.choose(None, 7, 0), Some(0));
    assert_eq!(place.how(0, 0, RESPONSE), How::Here);
    assert_eq!(place.how(1, 0, RESPONSE), How::Relay);
}

const RESPONSE: Response = Response {
    len_bytes: 0,
    may_move: true,
    is_hot_here: false,
    moved_before: false,
};

#[derive(Clone, Debug)]
enum Step {
    Told(usize, u32, u32),
    Stand(usize, Standing),
    Weigh(usize, u32),
    Came(usize, u64),
    Went(usize, u64),
    Choose(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (node, key) = (0usize..70, 0u64..100);
    let standing = prop_oneof![
        Just(Standing::Up),
        Just(Standing::Draining),
        Just(Standing::Down)
    ];
    let much = prop_oneof![0u32..300, any::<u32>()];
    prop_oneof![
        (node.clone(), much.clone(), much.clone()).prop_map(|(n, p, d)| Step::Told(n, p, d)),
        (node.clone(), standing).prop_map(|(n, s)| Step::Stand(n, s)),
        (node.clone(), much).prop_map(|(n, w)| Step::Weigh(n, w)),
        (node.clone(), key.clone()).prop_map(|(n, k)| Step::Came(n, k)),
        (node, key.clone()).prop_map(|(n, k)| Step::Went(n, k)),
        (key, any::<u64>()).prop_map(|(k, r)| Step::Choose(k, r)),
    ]
}

proptest! {
    /// Whatever a node is told, it chooses one that takes requests, if there is one, and its table keeps its size.
    #[test]
    fn the_chosen_node_serves(
        nodes in 0usize..67,
        at in prop::option::of(0usize..70),
        policy in 0usize..POLICIES.len(),
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut place = place(nodes, POLICIES[policy]);
        let mut up = vec![true; nodes.min(NODES_MAX)];
        for step in steps {
            match step {
                Step::Told(node, processing, disk) => place.told(node, load(processing, disk)),
                Step::Stand(node, standing) => {
                    place.stand(node, standing);
                    if let Some(up) = up.get_mut(node) {
                        *up = standing == Standing::Up;
                    }
                }
                Step::Weigh(node, weight) => place.weigh(node, weight),
                Step::Came(node, key) => place.came(node, key),
                Step::Went(node, key) => place.went(node, key),
                Step::Choose(key, random) => match place.choose(at, key, random) {
                    Some(node) => prop_assert!(up[node], "{node} does not serve"),
                    None => prop_assert!(!up.contains(&true)),
                },
            }
            prop_assert!(place.objects_known() <= 64);
        }
    }

    /// With equal nodes, none has more than 1.25 times its share of the objects, rounded up.
    #[test]
    fn bounded_hashing_is_bounded(nodes in 1usize..20, keys in prop::collection::vec(any::<u64>(), 1..400)) {
        let mut place = place(nodes, Policy::BoundedHashing);
        let mut got = vec![0; nodes];
        for key in &keys {
            got[place.choose(None, *key, 0).expect("a node")] += 1;
        }
        // Each choice counts twice if it reads: once for the CPU, once for the disk.
        let bound = (keys.len() * 125).div_ceil(nodes * 100) + 1;
        prop_assert!(got.iter().all(|got| *got <= bound), "{got:?} over {bound}");
    }

    /// The repaired algorithm always has an answer, which is that of the printed one where that has one.
    #[test]
    fn the_repaired_algorithm_agrees_with_the_printed_one(
        loads in prop::collection::vec((0u32..300, 0u32..4), 1..16),
        set: u16,
        key: u64,
    ) {
        let mut nodes = Nodes::new(&names(loads.len()));
        for (node, (processing, disk)) in loads.iter().enumerate() {
            nodes.told(node, load(*processing, *disk));
        }
        let set = NodeSet(u64::from(set) & ((1 << loads.len()) - 1));
        let ours = sharing::algorithm_1(&nodes, set, None, key, THRESHOLD).expect("a node serves");
        let shares = ours.set.without(ours.node) == set || ours.set == set;
        prop_assert!(ours.set.has(ours.node) && shares);
        match sharing::algorithm_1_printed(&nodes, set, key, THRESHOLD) {
            Some(Printed::Chosen(printed)) => prop_assert_eq!(ours, printed),
            Some(Printed::Loops) => prop_assert_ne!(set, NodeSet::default()),
            Some(Printed::Undefined) => prop_assert_eq!(set, NodeSet::default()),
            None => prop_assert!(false, "a node serves"),
        }
    }
}
