//! What makes this server a node of a cluster: its key, its sockets, and how busy it is.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_wire::cluster::Load;

use crate::admin::WorkerChannel;
use crate::cluster::{self, Busy, Cluster, Key, KeyError, Meet, etcd};
use crate::config::Layer;
use crate::count::Count;
use crate::failure::Failure;
use crate::listeners::{Listeners, bind_cluster};
use crate::moving::Moving;
use crate::options::{ClusterAt, ServeOptions, shown_path};
use crate::shares::Shares;
use crate::worker::Shared;

/// A node before its thread runs.
pub struct Node {
    pub cluster: Arc<Cluster>,
    key: Key,
    listener: OwnedFd,
}

/// Checks what can be checked without listening: the key.
pub fn check(options: &ServeOptions, given: &Layer) -> Result<(), Failure> {
    match options.cluster.is_on() {
        true => key(options, given).map(drop),
        false => Ok(()),
    }
}

/// Reads the key, and binds the sockets for the other nodes; `None`: this server is no node.
pub fn prepare(
    (options, shares): (&ServeOptions, &Shares),
    given: &Layer,
    listeners: &mut Listeners,
) -> Result<Option<Node>, Failure> {
    let failed = |error: io::Error| Failure::runtime(format!("cluster: {error}"));
    let others = shares.nodes as usize;
    let cluster = Cluster::new(&options.cluster, &options.compare, others).map_err(failed)?;
    let Some(cluster) = cluster else {
        return Ok(None);
    };
    let ClusterAt::Tcp(addr) = options.cluster.cluster_listen else {
        return Ok(None);
    };
    let key = key(options, given)?;
    let refused =
        |error: crate::listeners::ListenError| Failure::value_now(given, error.option, &error);
    let listener = bind_cluster(addr).map_err(refused)?;
    listeners
        .bind_of_nodes(cluster.relay_addr())
        .map_err(refused)?;
    Ok(Some(Node {
        cluster,
        key,
        listener,
    }))
}

fn key(options: &ServeOptions, given: &Layer) -> Result<Key, Failure> {
    let path = &options.cluster.cluster_key;
    let key = Key::load(path).map_err(|error| {
        let told = format!("{}: {error}", shown_path(path));
        match error {
            KeyError::Io(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let told = format!("{told}; chown it to the user that the server runs as");
                Failure::value_now(given, "cluster_key", &told)
            }
            KeyError::Io(_) => Failure::value_now(given, "cluster_key", &told),
            KeyError::Bad(_) => Failure::value(given, "cluster_key", &told),
        }
    })?;
    let same = |peer: &&crate::options::Peer| peer.key == key.public;
    match options.cluster.peer.iter().find(same) {
        Some(peer) => {
            let told = format!(
                "{}: it has this node's own key: each node makes its own",
                peer.name
            );
            Err(Failure::value(given, "peer", &told))
        }
        None => Ok(key),
    }
}

impl Node {
    /// Starts the thread, which lives as long as the process.
    pub fn start(
        self,
        options: &ServeOptions,
        workers: &[WorkerChannel],
        shared: &Arc<Shared>,
    ) -> io::Result<()> {
        let tallies: Vec<_> = workers.iter().map(|w| Arc::clone(&w.tally)).collect();
        let moved = Arc::clone(shared);
        let (shared, cluster) = (Arc::clone(shared), Arc::clone(&self.cluster));
        let load = move || {
            let sum = |counts: &dyn Fn(&crate::tally::Tally) -> u64| {
                let sum: u64 = tallies.iter().map(|tally| counts(tally)).sum();
                u32::try_from(sum).unwrap_or(u32::MAX)
            };
            let disks = shared.disks.started();
            let disk: u64 = disks.map(|(_, d)| d.tally().streams.load(Relaxed)).sum();
            let load = Load {
                processing: sum(&|tally| tally.decided.waiting.iter().map(Count::get).sum()),
                disk: u32::try_from(disk).unwrap_or(u32::MAX),
                connections: sum(&|tally| tally.connections.get()),
                draining: cluster.is_draining(),
            };
            // Told the next time.
            cluster.ask_census(tallies.len());
            let channels = shared.channels.iter();
            channels.for_each(|channel| channel.waker.wake());
            load
        };
        let Node {
            cluster,
            key,
            listener,
        } = self;
        let peers = &options.cluster.peer;
        let path = options.cluster.hand_off_socket.clone();
        let site = Arc::clone(&moved);
        let meet = move |node: usize, name: &str, at| match &site.site.peers {
            Some(peers) => peers.meet(node, name, at),
            None => Ok(()),
        };
        let flows = Box::new(Moving::start(Arc::clone(&cluster), moved, path)?);
        let doors = (Box::new(load) as Busy, Box::new(meet) as Meet);
        etcd::start(&cluster, &options.cluster, &key)?;
        cluster::start(cluster, &key, peers, listener, doors, flows)
    }
}
