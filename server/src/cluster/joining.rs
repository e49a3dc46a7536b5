//! Nodes that come and go while this one runs, as etcd lists them. Those of `--peer` stay where they are.

use ackpace_core::place::Standing;
use ackpace_core::units::{Instant, US_PER_S};
use ackpace_wire::cluster::Frame;

use super::member::Member;
use super::stream::Broken;
use super::table::Place;
use super::thread::Thread;
use super::{key_of, lock, relay_addr};
use crate::options::Peer;

/// A node that is not listed any more, but is heard, stays for so long: etcd may have lost what it had, and then the node lists itself
/// anew.
const UNLISTED_US: u64 = 30 * US_PER_S;
/// A node that was just listed is dialed after this time: it reads the list a moment later than this one, and knows no strangers.
const SETTLING_US: u64 = 200_000;

impl Thread {
    /// Takes the list that etcd gave last, if it is new.
    pub fn take_list(&mut self, now: Instant) {
        let Some(list) = lock(&self.cluster.listed).take() else {
            return;
        };
        for node in 0..self.places.len() {
            let place = self.places[node];
            if place.is_pinned || place.key.is_none() {
                continue;
            }
            let (name, addr) = (self.cluster.name_of(node), self.cluster.addr(node));
            match list.iter().find(|peer| peer.name == name) {
                None => {
                    self.places[node].unlisted = place.unlisted.or(Some(now));
                }
                Some(peer) if Some(peer.addr) == addr && Some(peer.key) == place.key => {
                    self.places[node].unlisted = None;
                }
                Some(_) => self.leave(node, "etcd lists it with another address or key", now),
            }
        }
        self.drop_unlisted(now);
        for peer in &list {
            let node = self.cluster.place_of(&peer.name);
            if !node.is_some_and(|node| self.cluster.is_member(node)) {
                self.join(peer, now);
            }
        }
    }

    /// Nodes that are not listed leave, once nobody hears them or it has been so for long.
    pub fn drop_unlisted(&mut self, now: Instant) {
        for node in 0..self.places.len() {
            let Some(since) = self.places[node].unlisted else {
                continue;
            };
            if self.standing[node].is_none() || now.since_us(since) >= UNLISTED_US {
                self.leave(node, "etcd no longer lists it", now);
            }
        }
    }

    fn leave(&mut self, node: usize, why: &str, now: Instant) {
        let name = self.cluster.name_of(node);
        tracing::info!("cluster: {name} has left: {why}");
        let streams = self.open.iter().filter(|(_, open)| open.node == Some(node));
        let streams: Vec<u64> = streams.map(|(id, _)| *id).collect();
        for id in streams {
            self.cut(id, Broken::Closed(why.to_owned()), now);
        }
        self.cluster.stand(node, Standing::Down);
        self.cluster.enter(node, &name, None);
        self.places[node] = Place {
            left: now,
            ..Place::default()
        };
        self.trust();
    }

    fn join(&mut self, peer: &Peer, now: Instant) {
        let Some(node) = self.place_for(&peer.name) else {
            if self
                .full_told
                .is_none_or(|at| now.since_us(at) > 60 * US_PER_S)
            {
                self.full_told = Some(now);
                let (name, others) = (&peer.name, self.places.len() - 1);
                tracing::warn!(
                    "cluster: {name} is left out: there is room for only {others} other nodes"
                );
            }
            return;
        };
        if self.cluster.name_of(node) != peer.name {
            self.cluster.forget(node, key_of(peer.name.as_bytes()));
        }
        self.cluster.enter(node, &peer.name, Some(peer.addr));
        self.places[node] = Place {
            key: Some(peer.key),
            ..Place::default()
        };
        self.trust();
        self.members[node] = Member::new(now.plus_us(SETTLING_US));
        self.logged[node] = None;
        if let Err(error) = (self.meet)(node, &peer.name, relay_addr(peer.addr)) {
            tracing::warn!("cluster: nothing is relayed from {}: {error}", peer.name);
        }
        tracing::info!("cluster: {} at {} has joined", peer.name, peer.addr);
    }

    /// The place that a node had, or one that nobody had, or that of the node that left first. `None`: all are taken.
    fn place_for(&self, name: &str) -> Option<usize> {
        let free = |node: &usize| !self.cluster.is_member(*node);
        let mut all = 0..self.places.len();
        self.cluster.place_of(name).filter(free).or_else(|| {
            let names = self.cluster.nodes();
            let can_be_given = |node: &usize| {
                free(node) && (names[*node].is_empty() || !self.flows.refers_to(*node))
            };
            let of_age = |node: &usize| (!names[*node].is_empty(), self.places[*node].left);
            { &mut all }.filter(can_be_given).min_by_key(of_age)
        })
    }

    /// TLS takes the keys of the nodes that are there, and no others.
    fn trust(&self) {
        let (me, places) = (self.cluster.me(), self.places.iter().enumerate());
        let others = places.filter(|(node, _)| *node != me);
        self.tls
            .trust(others.filter_map(|(_, place)| place.key).collect());
    }

    /// A frame for another node as it travels.
    pub fn for_wire(&self, mut frame: Frame) -> Frame {
        frame.flow.home = self.cluster.to_wire(frame.flow.home);
        frame
    }

    /// The same of one that came.
    pub fn of_wire(&self, mut frame: Frame) -> Frame {
        frame.flow.home = self.cluster.of_wire(frame.flow.home);
        frame
    }
}

#[cfg(test)]
#[path = "joining_tests.rs"]
mod tests;
