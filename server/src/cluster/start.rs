//! How the thread of a node starts.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::flows::Flows;
use super::member::Member;
use super::thread::{Busy, LISTENER, Thread, WAKER};
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
    busy: Busy,
    flows: Box<dyn Flows>,
) -> io::Result<()> {
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
    let key_of = |name: &String| {
        let peer = peers.iter().find(|peer| peer.name == *name);
        peer.map_or(key.public, |peer| peer.key)
    };
    let (now, nodes) = (cluster.clock.now(), cluster.names.len());
    let thread = Thread {
        tls: tls.map_err(io::Error::other)?,
        keys: cluster.names.iter().map(key_of).collect(),
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
        logged: vec![None; nodes],
        cluster,
    };
    std::thread::Builder::new()
        .name("cluster".to_owned())
        .spawn(move || thread.run())?;
    Ok(())
}
