use clap::{Args, Command, FromArgMatches};

use super::*;
use crate::options::shown_key;

pub(super) fn cluster(hand_off: &str) -> Arc<Cluster> {
    let peer = |name: &str, nth: u8| {
        let key = shown_key(&[nth; 32]);
        format!("--peer={name}=192.0.2.{nth}:7800,{key}")
    };
    let hand_off = format!("--hand-off={hand_off}");
    cluster_of(&["--node=b", &hand_off, &peer("c", 3), &peer("a", 2)], 2)
}

/// A node with these options and room for so many others.
pub(super) fn cluster_of(args: &[&str], others: usize) -> Arc<Cluster> {
    let command = ClusterOptions::augment_args(Command::new("x").no_binary_name(true));
    let own = ["--cluster-listen=192.0.2.1:7800", "--cluster-key=k"];
    let matches = command.try_get_matches_from(own.iter().chain(args));
    let options = ClusterOptions::from_arg_matches(&matches.expect("good values"));
    let options = options.expect("good values");
    let cluster = Cluster::new(&options, &Compare::default(), others).expect("descriptors");
    cluster.expect("a cluster")
}

/// As the thread does at HELLO.
fn comes(cluster: &Cluster, node: usize) {
    cluster.stand(node, Standing::Up);
    cluster.relay_ports[node].store(7801, Relaxed);
}

#[test]
fn nodes_stand_in_the_order_of_their_names_and_the_others_are_down_at_first() {
    let cluster = cluster("auto");
    assert_eq!(cluster.nodes()[..], ["a", "b", "c"]);
    assert_eq!(cluster.me(), 1);
    assert_eq!(cluster.addr(2), "192.0.2.3:7800".parse().ok());
    assert_eq!(Some(cluster.relay_addr()), "192.0.2.1:7801".parse().ok());
    assert_eq!([0, 1, 2].map(|standing| cluster.count(standing)), [1, 0, 2]);
    assert_eq!(cluster.choose(7, 0), Some(1));
    assert_eq!([0, 1, 2].map(|node| cluster.peer(node)), [None; 3]);
    let has = |ip: &str| cluster.has_node_at(ip.parse().expect("an address"));
    assert!(has("192.0.2.2") && has("::ffff:192.0.2.3") && !has("192.0.2.1"));
}

#[test]
fn a_node_that_is_drained_serves_nothing_and_says_so() {
    let cluster = cluster("auto");
    comes(&cluster, 0);
    assert_eq!(cluster.peer(0), "192.0.2.2:7801".parse().ok());
    cluster.drain(true);
    assert!(cluster.is_draining());
    assert_eq!(cluster.choose(7, 0), Some(0));
    let idle = Load::default();
    cluster.told(
        0,
        Load {
            draining: true,
            ..idle
        },
    );
    assert_eq!(cluster.choose(7, 0), None, "nobody takes requests");
    assert_eq!(cluster.ask_drain("b", false), Ok(()));
    assert_eq!(cluster.choose(7, 0), Some(1));
    assert_eq!(
        cluster.ask_drain("a", false),
        Ok(()),
        "it is left for the thread"
    );
    let (node, frame) = cluster.heard.try_recv().expect("a frame");
    assert_eq!((node, frame.message), (0, Message::Drain { on: false }));
    assert!(
        cluster
            .ask_drain("c", true)
            .is_err_and(|why| why.contains("can't be reached"))
    );
    assert!(
        cluster
            .ask_drain("x", true)
            .is_err_and(|why| why.contains("no node of"))
    );
}

#[test]
fn how_another_node_serves_is_what_the_operator_allows() {
    let response = Response {
        len_bytes: 1 << 20,
        may_move: true,
        is_hot_here: false,
        moved_before: false,
    };
    for (hand_off, how) in [
        ("auto", How::HandOver),
        ("relay", How::Relay),
        ("off", How::Here),
    ] {
        let cluster = cluster(hand_off);
        assert_eq!(cluster.how(1, 0, response), how);
        assert_eq!(cluster.how(1, 1, response), How::Here);
    }
}

#[test]
fn an_object_that_another_node_has_is_served_there_until_it_is_gone() {
    let cluster = cluster("auto");
    comes(&cluster, 0);
    comes(&cluster, 2);
    cluster.known().place.came(2, 7);
    assert_eq!(cluster.choose(7, 0), Some(2));
    cluster.stand(2, Standing::Down);
    assert_ne!(cluster.choose(7, 0), Some(2));
    cluster.came(9);
    assert_eq!(cluster.seen().1, 2);
    assert_eq!(lock(&cluster.reports).take(), [9]);
}

#[test]
fn each_worker_is_asked_once_to_count_its_connections() {
    let cluster = cluster("auto");
    assert!(!cluster.asks_census(0));
    cluster.ask_census(2);
    assert!(cluster.asks_census(1) && cluster.asks_census(0));
    assert!(!cluster.asks_census(0) && !cluster.asks_census(1) && !cluster.asks_census(2));
    cluster.ask_census(64);
    assert!((0..64).all(|worker| cluster.asks_census(worker)));
}

#[test]
fn hashes_of_names_are_alike_everywhere() {
    assert_eq!(key_of(b"a"), 0xaf63_dc4c_8601_ec8c); // FNV-1a, 64 bits
}
