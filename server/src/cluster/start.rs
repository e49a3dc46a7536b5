//! How the thread of a node starts.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::flows::Flows;
use super::member::Member;
use super::table::Place;
use super::thread::{Busy, LISTENER, Meet, Thread, WAKER};
use super::tls::Tls;
use super::{Cluster, Key};
use crate::options::Peer;

/// Starts the thread, which lives as long as the process. `listener`: where the other nodes open their streams.
///
/// # Errors
/// Descriptors or memory are short, or TLS refuses the key.
pub fn start(
    cluster: Arc<Cluster>,
    key: &Key,
    peers: &[Peer],
    listener: OwnedFd,
    (busy, meet): (Busy, Meet),
    flows: Box<dyn Flows>,
) -> io::Result<()> {
    let thread = thread(cluster, key, peers, listener, (busy, meet), flows)?;
    std::thread::Builder::new()
        .name("cluster".to_owned())
        .spawn(move || thread.run())?;
    Ok(())
}

/// What runs in the thread.
pub fn thread(
    cluster: Arc<Cluster>,
    key: &Key,
    peers: &[Peer],
    listener: OwnedFd,
    (busy, meet): (Busy, Meet),
    flows: Box<dyn Flows>,
) -> io::Result<Thread> {
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    let own = EventData::new_u64(WAKER);
    epoll::add(&epoll, &cluster.waker, own, EventFlags::IN)?;
    epoll::add(
        &epoll,
        &listener,
        EventData::new_u64(LISTENER),
        EventFlags::IN,
    )?;
    let tls = Tls::new(key, peers.iter().map(|peer| peer.key).collect());
    let names = cluster.nodes();
    let place = |name: &String| {
        let peer = peers.iter().find(|peer| peer.name == *name);
        let own = (name == cluster.name()).then_some(key.public);
        Place::pinned(peer.map(|peer| peer.key).or(own))
    };
    let (now, nodes) = (cluster.clock.now(), names.len());
    Ok(Thread {
        tls: tls.map_err(io::Error::other)?,
        places: names.iter().map(place).collect(),
        listener,
        epoll,
        members: vec![Member::new(now); nodes],
        standing: vec![None; nodes],
        open: HashMap::new(),
        last_id: LISTENER,
        busy,
        flows,
        tell_at: now,
        told_draining: false,
        meet,
        full_told: None,
        logged: vec![None; nodes],
        cluster,
    })
}
