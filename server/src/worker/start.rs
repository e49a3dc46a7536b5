//! What a worker is given, and how it starts.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ackpace_core::addresses::AddressCounts;
use ackpace_core::balance::Moves;
use ackpace_core::limits::LOWAT_BYTES_START;
use ackpace_core::worker::{Budget, SendPolicy, Settings, Worker as Decider};
use crossbeam_channel::Receiver;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::Worker;
use super::conns::Conns;
use super::events::{LISTENER, WAKER};
use super::handover::HandOver;
use super::moves::Giving;
use super::nodes::Nodes;
use crate::answers::Question;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::disk::Channel;
use crate::disk::Disks;
use crate::divider::Dividing;
use crate::front::http::HeadPool;
use crate::front::site::Site;
use crate::ledger::Ledger;
use crate::limits::COPIED_BYTES_MAX;
use crate::listeners::Listener;
use crate::log::{AccessHandle, Seldom};
use crate::nfs_tally;
use crate::resolver::{Inbox, Resolver};
use crate::response_cache::ResponseCache;
use crate::tally::Tally;
use crate::tcp;

pub struct Shared {
    pub site: Arc<Site>,
    pub disks: Arc<Disks>,
    /// Each worker's mailboxes for completions from the disks, and its waker.
    pub channels: Arc<Vec<Channel>>,
    /// How send memory is divided; `None`: it is not.
    pub dividing: Option<Arc<Dividing>>,
    /// Each worker's hand-over queue and published load.
    pub handovers: Vec<HandOver>,
    /// When workers give connections to each other.
    pub moves: Moves,
    /// Connections that go to other nodes of the cluster and come from them.
    pub nodes: Nodes,
    /// The thread pool for work that may block.
    pub resolver: Resolver,
    /// The cluster of which this server is a node, if it is one.
    pub cluster: Option<Arc<Cluster>>,
    /// Set when the server is to stop; the wakers are woken afterwards.
    pub stopping: AtomicBool,
    pub clock: Clock,
    /// The account of the memory that `memory_max` allows.
    pub ledger: Arc<Ledger>,
    /// Bytes that one connection is charged in `ledger`.
    pub connection_bytes: u64,
    /// What bounds the connections of a worker.
    pub places_bound: &'static str,
    /// The lines of the log that many clients cause at once.
    pub seldom: Arc<Seldom>,
    /// Connections with a response that were cut off at the end of the drain.
    pub cut_off: AtomicU64,
    /// The counters of each NFS thread; they are behind the workers in `channels`.
    pub nfs: Vec<Arc<nfs_tally::Tally>>,
    /// Connections of each client address; `None`: nothing bounds them.
    pub addresses: Option<Arc<AddressCounts>>,
}

impl Shared {
    /// Whether another node of the cluster may be there.
    pub fn has_node_at(&self, peer: Option<SocketAddr>) -> bool {
        let cluster = self.cluster.as_ref().zip(peer);
        cluster.is_some_and(|(cluster, peer)| cluster.has_node_at(peer.ip()))
    }

    /// The threads of workers, disks and the cluster that were not awake since this was last asked. It wakes them all. None once the server
    /// stops: workers end then, within bounds of their own.
    pub fn hung(&self) -> Vec<String> {
        if self.stopping.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let workers = self.channels.iter().enumerate();
        let workers = workers.filter(|(_, channel)| !channel.waker.was_awake());
        let disks = self.disks.started().filter(|(_, disk)| !disk.was_awake());
        let first_of_nfs = self.channels.len() - self.nfs.len();
        let workers = workers.map(|(worker, _)| match worker.checked_sub(first_of_nfs) {
            None => format!("worker {worker}"),
            Some(nth) => format!("NFS thread {nth}"),
        });
        let cluster = self.cluster.as_ref().filter(|cluster| !cluster.was_awake());
        let cluster = cluster.map(|_| "the thread of the cluster".to_owned());
        workers
            .chain(cluster)
            .chain(disks.map(|(disk, _)| format!("the thread of disk {disk}")))
            .collect()
    }
}

/// What a worker is given besides its settings.
pub struct WorkerContext {
    pub inbox: Inbox,
    pub questions: Receiver<Question>,
    pub tally: Arc<Tally>,
    pub log: AccessHandle,
    pub listeners: Vec<Listener>,
    pub response_cache_bytes: u64,
}

impl Worker {
    /// A worker that is ready to run.
    pub fn new(
        settings: Settings,
        shared: Arc<Shared>,
        context: WorkerContext,
    ) -> io::Result<Worker> {
        let WorkerContext {
            inbox,
            questions,
            tally,
            log,
            listeners,
            response_cache_bytes,
        } = context;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let mut decider = Decider::new(settings);
        if let Some(counts) = &shared.addresses {
            decider.count_addresses_in(Arc::clone(counts));
        }
        let places_max = decider.connections_max();
        let index = usize::from(settings.worker);
        let waker = Arc::clone(&shared.channels[index].waker);
        epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        let lowat_bytes = match settings.send {
            SendPolicy::Margin { .. } => Some(LOWAT_BYTES_START),
            SendPolicy::Eager => None,
        };
        watch_listeners(&epoll, &listeners, lowat_bytes)?;
        let ledger = Arc::clone(&shared.ledger);
        Ok(Worker {
            decider,
            index,
            shared,
            waker,
            inbox,
            questions,
            log,
            epoll,
            listeners,
            lowat_bytes,
            first_listener: 0,
            conns: Conns::new(places_max),
            heads: HeadPool::default(),
            copied: vec![0; COPIED_BYTES_MAX].into(),
            response_cache: ResponseCache::new(response_cache_bytes).with_ledger(ledger),
            draining: false,
            giving: Giving::default(),
            pins_due: None,
            disks_to_wake: 0,
            budget: Budget::default(),
            tally,
            mended: 0,
        })
    }
}

/// Has epoll report clients that wait. With `lowat_bytes`, accepted sockets inherit it, and a send buffer as large as the
/// kernel allows.
fn watch_listeners(
    epoll: &OwnedFd,
    listeners: &[Listener],
    lowat_bytes: Option<u32>,
) -> io::Result<()> {
    for listener in listeners {
        if let Some(bytes) = lowat_bytes {
            tcp::set_lowat(&listener.socket, bytes);
            tcp::open_send_buffer(&listener.socket);
        }
        let data = EventData::new_u64(LISTENER);
        epoll::add(epoll, listener, data, EventFlags::IN)?;
    }
    Ok(())
}
