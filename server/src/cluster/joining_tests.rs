use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use ackpace_wire::cluster::{FlowId, Load, Message};

use super::*;
use crate::cluster::start::thread;
use crate::cluster::tests::cluster_of;
use crate::cluster::{Cluster, Flows, Key, id_of};

/// Flows between this node and those at these places.
struct Refers(Arc<Mutex<Vec<usize>>>);

impl Flows for Refers {
    fn on_flow(&mut self, _: usize, _: Frame, _: Instant) {}
    fn unreachable(&mut self, _: usize, _: Instant) {}
    fn died(&mut self, _: usize, _: Instant) {}
    fn refers_to(&self, node: usize) -> bool {
        lock(&self.0).contains(&node)
    }
    fn turn(&mut self, _: Instant) {}
    fn next_frame(&mut self) -> Option<(usize, Frame)> {
        None
    }
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

type Met = Arc<Mutex<Vec<(usize, String, SocketAddr)>>>;

/// Node m, with room for two others, of which etcd lists some.
fn room(name: &str) -> (Thread, Arc<Cluster>, Arc<Mutex<Vec<usize>>>, Met) {
    let cluster = cluster_of(&["--node=m", "--cluster-etcd=http://127.0.0.1:1/m"], 2);
    let path = std::env::temp_dir().join(format!("ackpace-join-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let key = Key::make(&path).expect("a key");
    std::fs::remove_file(&path).expect("ours");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (refers, met) = (Arc::default(), Met::default());
    let noted = Arc::clone(&met);
    let meet = move |node: usize, name: &str, at| {
        lock(&noted).push((node, name.to_owned(), at));
        Ok(())
    };
    let flows = Box::new(Refers(Arc::clone(&refers)));
    let doors: (crate::cluster::Busy, crate::cluster::Meet) =
        (Box::new(Load::default), Box::new(meet));
    let made = thread(
        Arc::clone(&cluster),
        &key,
        &[],
        listener.into(),
        doors,
        flows,
    );
    (made.expect("descriptors"), cluster, refers, met)
}

fn peer(name: &str, nth: u8) -> Peer {
    Peer {
        name: name.to_owned(),
        addr: ([192, 0, 2, nth], 7800).into(),
        key: [nth; 32],
    }
}

fn lists(thread: &mut Thread, peers: &[Peer], s: u64) {
    *lock(&thread.cluster.listed) = Some(peers.to_vec());
    thread.take_list(at(s));
}

fn at(s: u64) -> Instant {
    Instant { us: s * US_PER_S }
}

#[test]
fn a_node_gets_a_place_and_keeps_it_while_it_is_heard() {
    let (mut thread, cluster, _, met) = room("keeps");
    assert_eq!(cluster.nodes()[..], ["m", "", ""]);
    lists(&mut thread, &[peer("z", 1), peer("a", 2)], 1);
    assert_eq!(cluster.nodes()[..], ["m", "z", "a"]);
    assert_eq!(cluster.addr(2), Some(peer("a", 2).addr));
    let relay = |nth| SocketAddr::from(([192, 0, 2, nth], 7801));
    let wanted = [(1, "z".to_owned(), relay(1)), (2, "a".to_owned(), relay(2))];
    assert_eq!(lock(&met)[..], wanted);
    // z is heard, and a is not.
    thread.standing[1] = Some(77);
    lists(&mut thread, &[], 2);
    assert!(cluster.is_member(1) && !cluster.is_member(2));
    lists(&mut thread, &[peer("z", 1)], 20);
    lists(&mut thread, &[], 21);
    thread.drop_unlisted(at(50));
    assert!(cluster.is_member(1), "it was listed meanwhile");
    thread.drop_unlisted(at(51));
    assert!(!cluster.is_member(1), "30 s");
    assert_eq!(cluster.count(0), 1, "those that left are not counted");
    assert_eq!(cluster.count(2), 0);
}

#[test]
fn the_place_of_a_node_that_has_left_is_given_away_unless_a_connection_is_there() {
    let (mut thread, cluster, refers, met) = room("gives");
    lists(&mut thread, &[peer("b", 1), peer("c", 2)], 1);
    cluster.known().place.came(1, 7);
    cluster.known().seen[1].boot_nonce = 5;
    lists(&mut thread, &[peer("b", 1), peer("c", 2), peer("d", 3)], 2);
    assert_eq!(cluster.nodes()[..], ["m", "b", "c"], "d has no place");
    lists(&mut thread, &[peer("c", 2)], 3);
    lists(&mut thread, &[], 4);
    // Its own, if it is free.
    lists(&mut thread, &[peer("c", 4)], 5);
    assert_eq!(cluster.addr(2), Some(peer("c", 4).addr));
    *lock(&refers) = vec![1];
    lists(&mut thread, &[peer("c", 4), peer("d", 3)], 6);
    assert!(
        !cluster.nodes().contains(&"d".to_owned()),
        "a connection is at b"
    );
    lock(&refers).clear();
    lists(&mut thread, &[peer("c", 4), peer("d", 3)], 7);
    assert_eq!(cluster.nodes()[..], ["m", "d", "c"]);
    assert_eq!(cluster.known().seen[1].boot_nonce, 0, "it is another node");
    assert_eq!(cluster.seen().1, 0, "and has nothing of what b had");
    assert_eq!(
        lock(&met).last().map(|it| it.1.clone()),
        Some("d".to_owned())
    );
}

#[test]
fn a_node_that_moves_or_changes_its_key_leaves_and_comes() {
    let (mut thread, cluster, ..) = room("moves");
    lists(&mut thread, &[peer("b", 1)], 1);
    thread.standing[1] = Some(77);
    lists(&mut thread, &[peer("b", 2)], 2);
    assert_eq!(cluster.addr(1), Some(peer("b", 2).addr));
    assert_eq!(thread.places[1].key, Some([2; 32]));
}

#[test]
fn a_flow_has_the_number_of_its_home_s_name_on_the_wire() {
    let (mut thread, ..) = room("wire");
    lists(&mut thread, &[peer("b", 1)], 1);
    let frame = |home| Frame {
        flow: FlowId {
            home,
            boot_nonce: 3,
            number: 4,
        },
        epoch: 5,
        message: Message::Ready,
    };
    for (place, name) in [(0, "m"), (1, "b")] {
        assert_eq!(thread.for_wire(frame(place)), frame(id_of(name)));
        assert_eq!(thread.of_wire(frame(id_of(name))), frame(place));
    }
    let stranger = id_of("stranger");
    assert_eq!(thread.of_wire(frame(stranger)), frame(stranger));
    assert_eq!(thread.for_wire(frame(stranger)), frame(stranger));
    assert!(thread.of_wire(frame(1)).flow.home >= 64, "no name has it");
}
