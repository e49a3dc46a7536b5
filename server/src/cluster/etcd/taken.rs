//! Which of the nodes that etcd lists are taken: all nodes that see one list take the same.

use ackpace_wire::cluster::etcd::Listing;

use crate::cluster::id_of;
use crate::options::{Peer, shown_key};

/// The nodes that are taken, in the order of their names, and why others are not. Those of `--peer` are known already.
pub fn taken(listing: &Listing, own: &Peer, pinned: &[Peer]) -> (Vec<Peer>, Vec<String>) {
    let (mut taken, mut complaints): (Vec<Peer>, Vec<String>) = Default::default();
    for node in listing.nodes.iter().filter(|node| node.name != own.name) {
        let name = &node.name;
        let Some(entry) = &node.entry else {
            complaints.push(format!(
                "the entry of {name} is not ADDR,KEY,VERSION: delete it (etcdctl del), and {name} writes it anew"
            ));
            continue;
        };
        let peer = Peer {
            name: name.clone(),
            addr: entry.addr,
            key: entry.key,
        };
        if let Some(pin) = pinned.iter().find(|pin| pin.name == peer.name) {
            if *pin != peer {
                complaints.push(format!(
                    "the entry {peer} differs from --peer {pin}, which is used"
                ));
            }
            continue;
        }
        let others = [own].into_iter().chain(pinned).chain(&taken);
        let why = { others }.find_map(|other| clash(&peer, other));
        match why {
            Some(why) => complaints.push(format!("{name} is left out: {why}")),
            None => taken.push(peer),
        }
    }
    (taken, complaints)
}

/// Why two nodes can't be in one cluster.
fn clash(one: &Peer, other: &Peer) -> Option<String> {
    let name = &other.name;
    if one.addr == other.addr {
        return Some(format!(
            "its address, {}, is also that of {name}: give each node its own cluster_listen",
            one.addr
        ));
    }
    if one.key == other.key {
        let key = shown_key(&one.key);
        return Some(format!(
            "its key, {key}, is also that of {name}: make one for each node"
        ));
    }
    let is_one = id_of(&one.name) == id_of(name);
    is_one.then(|| format!("its name and that of {name} hash to one number: rename one of them"))
}

#[cfg(test)]
mod tests {
    use ackpace_wire::cluster::etcd::{Entry, Listed};

    use super::*;

    fn peer(name: &str, nth: u8) -> Peer {
        Peer {
            name: name.to_owned(),
            addr: ([192, 0, 2, nth], 7800).into(),
            key: [nth; 32],
        }
    }

    fn listing(peers: &[Peer]) -> Listing {
        let listed = |peer: &Peer| Listed {
            name: peer.name.clone(),
            entry: Some(Entry {
                addr: peer.addr,
                key: peer.key,
                version: 1,
            }),
            revision: 1,
            lease: 7,
        };
        Listing {
            revision: 1,
            nodes: peers.iter().map(listed).collect(),
            drains: Vec::new(),
        }
    }

    #[test]
    fn who_is_listed_is_taken_but_for_this_node_and_for_whom_it_clashes_with() {
        let own = peer("a", 1);
        let list = [peer("a", 9), peer("b", 2), peer("c", 2), peer("d", 4)];
        let (nodes, complaints) = taken(&listing(&list), &own, &[]);
        assert_eq!(nodes, [peer("b", 2), peer("d", 4)]);
        assert!(
            complaints[0].contains("c is left out: its address, 192.0.2.2:7800, is also that of b")
        );
        let thief = Peer {
            key: own.key,
            ..peer("e", 5)
        };
        let (nodes, complaints) = taken(&listing(&[thief]), &own, &[]);
        assert!(nodes.is_empty() && complaints[0].contains("is also that of a: make one"));
        let mut unread = listing(&[peer("b", 2)]);
        unread.nodes[0].entry = None;
        let (nodes, complaints) = taken(&unread, &own, &[]);
        assert!(nodes.is_empty() && complaints[0].contains("is not ADDR,KEY"));
    }

    #[test]
    fn a_node_of_peer_is_what_that_says() {
        let (own, pinned) = (peer("a", 1), [peer("b", 2)]);
        let list = [peer("b", 3), peer("c", 4), peer("d", 2)];
        let (nodes, complaints) = taken(&listing(&list), &own, &pinned);
        assert_eq!(nodes, [peer("c", 4)]);
        assert!(complaints[0].contains("which is used"), "{complaints:?}");
        assert!(
            complaints[1].contains("is also that of b"),
            "{complaints:?}"
        );
        let (nodes, complaints) = taken(&listing(&pinned), &own, &pinned);
        assert!(nodes.is_empty() && complaints.is_empty());
    }

    #[test]
    fn two_names_of_one_number_are_not_in_one_cluster() {
        let twin = (0..).map(|nth| format!("n{nth}"));
        let twin = { twin }.find(|name| id_of(name) == id_of("a"));
        let twin = peer(&twin.expect("there are 65,472 numbers"), 2);
        let (nodes, complaints) = taken(&listing(&[twin]), &peer("a", 1), &[]);
        assert!(nodes.is_empty() && complaints[0].contains("one number"));
    }
}
