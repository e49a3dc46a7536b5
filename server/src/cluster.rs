//! This server as a node of a cluster: which nodes there are, what is known of them, and by which of them a request is served
//! best ([`ackpace_core::place`]).
//!
//! [`Cluster`] is what the workers ask. One thread keeps a stream to each of the other nodes, tells them how busy this node is, and
//! hears the same of them.

mod away;
pub mod etcd;
mod flows;
mod joining;
mod key;
mod member;
mod movable;
mod peers;
mod placing;
mod reports;
mod standing;
mod start;
mod stream;
mod table;
mod tally;
mod thread;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ackpace_core::handoff::FROZEN_MAX;
use ackpace_core::place::{Chosen, How, Load as Waiting, Place, Response, Settings, Standing};
use ackpace_core::units::Instant;
use ackpace_wire::cluster::{FlowId, Frame, Load, Message};
use ackpace_wire::limits::CLUSTER_BODY_BYTES_MAX;
use crossbeam_channel::{Receiver, Sender, bounded};

pub use self::away::{AwayTable, Whereabouts};
pub use self::flows::Flows;
pub use self::key::{Key, KeyError, drawn};
pub use self::movable::Movable;
pub use self::peers::{Parts, Peers, key_of, relay_addr};
pub use self::placing::{By, Placing};
use self::reports::Reports;
pub use self::start::start;
use self::table::Table;
pub use self::table::id_of;
pub use self::tally::{ClusterTally, REASONS, STEPS};
pub use self::thread::{Busy, Meet};
use crate::clock::Clock;
use crate::mailbox::ThreadWaker;
use crate::options::{ClusterAt, ClusterOptions, Compare, EtcdAt, HandOff, Peer};

/// Frames that wait for the thread. More: the sender is told, and treats the other node as one that can't be reached.
const MAIL_MAX: usize = 4096;

/// Memory of what waits for the thread, at worst: as many frames as connections freeze at once have the state of one.
pub const MAIL_BYTES: u64 = (MAIL_MAX * (size_of::<(usize, Frame)>() + 64)
    + FROZEN_MAX as usize * CLUSTER_BODY_BYTES_MAX) as u64;
/// Connections of this node that others serve at a time or that are on their way; and those of other nodes that this one serves. More: they are
/// relayed.
pub const MOVED_MAX: usize = 4096;
/// Memory of both: what a take-over needs of each, with the head of its response and what the log says of it, which are seldom long.
pub const MOVED_BYTES: u64 = (2 * MOVED_MAX * (4 << 10)) as u64;
/// Memory of one other node, at worst: its stream, and two more that are being opened.
pub const NODE_BYTES: u64 = stream::STREAM_BYTES + 2 * stream::OPENING_BYTES;

/// Descriptors of a cluster with so many other nodes: epoll, waker, listener; and for each a stream, two that are being opened, and
/// one that takes its place.
pub fn descriptors(others: u64) -> u64 {
    3 + 4 * others
}

/// What is known of a node.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub standing: Standing,
    /// Since when.
    pub since: Instant,
    /// It is down, and its process has ended: its port refuses, or another process has its name. Silence is no proof.
    pub is_dead: bool,
    /// Drawn at its start; 0: not heard yet.
    pub boot_nonce: u32,
    /// The highest version that it speaks.
    pub version: u16,
    /// What it told last.
    pub load: Load,
}

impl Seen {
    fn nothing(now: Instant) -> Seen {
        Seen {
            standing: Standing::Down,
            since: now,
            is_dead: false,
            boot_nonce: 0,
            version: 0,
            load: Load::default(),
        }
    }
}

/// The cluster as this node sees it. Nodes are known by their places ([`table`]).
#[derive(Debug)]
pub struct Cluster {
    me: usize,
    name: String,
    own_addr: SocketAddr,
    table: RwLock<Table>,
    /// Drains, and ends of drains, that are to be written into etcd: of each node the last one.
    wishes: Mutex<BTreeMap<String, bool>>,
    has_etcd: bool,
    /// What etcd listed last, for the thread.
    listed: Mutex<Option<Vec<Peer>>>,
    /// Where each node's HTTP is to be asked, while a stream to it stands; else 0.
    relay_ports: Vec<AtomicU16>,
    hand_off: HandOff,
    boot_nonce: u32,
    clock: Clock,
    known: Mutex<Known>,
    reports: Mutex<Reports>,
    /// Workers that are to count their connections, a bit each.
    census: AtomicU64,
    is_draining: AtomicBool,
    mail: Sender<(usize, Frame)>,
    heard: Receiver<(usize, Frame)>,
    waker: ThreadWaker,
    /// What the broker of this machine can move; `None`: there is none.
    movable: RwLock<Option<Movable>>,
    /// That there is none was told.
    is_lack_told: AtomicBool,
    pub tally: ClusterTally,
    /// Connections of this node that others serve.
    pub away: AwayTable,
}

#[derive(Debug)]
struct Known {
    place: Place,
    seen: Vec<Seen>,
}

impl Cluster {
    /// The cluster of these options, where a node is chosen as it says, with room for so many other nodes; `None`: there is none. No
    /// stream stands yet.
    ///
    /// # Errors
    /// The system gives no random bytes or no descriptor.
    pub fn new(
        options: &ClusterOptions,
        compare: &Compare,
        others: usize,
    ) -> io::Result<Option<Arc<Cluster>>> {
        let ClusterAt::Tcp(addr) = options.cluster_listen else {
            return Ok(None);
        };
        if !options.is_on() {
            return Ok(None);
        }
        let clock = Clock::start();
        let mut nodes: Vec<(&str, SocketAddr)> = vec![(&options.node, addr)];
        nodes.extend(options.peer.iter().map(|peer| (&*peer.name, peer.addr)));
        nodes.sort_unstable();
        let me = nodes.iter().position(|(name, _)| *name == options.node);
        let table = Table::new(&nodes, 1 + others.max(options.peer.len()));
        let hashes = table.names.iter().map(|name| key_of(name.as_bytes()));
        let hashes: Vec<u64> = hashes.collect();
        let settings = Settings {
            policy: compare.place,
            break_even_bytes: compare.break_even_bytes,
            ..Settings::default()
        };
        let mut place = Place::new(&hashes, settings);
        let me = me.unwrap_or_default(); // it is one of them
        let mut seen = vec![Seen::nothing(clock.now()); hashes.len()];
        seen[me].standing = Standing::Up;
        let standings = seen.iter().map(|seen| seen.standing).enumerate();
        standings.for_each(|(node, standing)| place.stand(node, standing));
        let (mail, heard) = bounded(MAIL_MAX);
        Ok(Some(Arc::new(Cluster {
            me,
            name: options.node.clone(),
            own_addr: addr,
            table: RwLock::new(table),
            wishes: Mutex::default(),
            has_etcd: options.cluster_etcd != EtcdAt::Off,
            listed: Mutex::default(),
            relay_ports: hashes.iter().map(|_| AtomicU16::new(0)).collect(),
            hand_off: options.hand_off,
            boot_nonce: u32::from_le_bytes(drawn()?),
            clock,
            known: Mutex::new(Known { place, seen }),
            reports: Mutex::default(),
            census: AtomicU64::new(0),
            is_draining: AtomicBool::new(false),
            mail,
            heard,
            waker: ThreadWaker::new()?,
            movable: RwLock::default(),
            is_lack_told: AtomicBool::new(false),
            tally: ClusterTally::default(),
            away: AwayTable::default(),
        })))
    }

    /// The number of this node.
    pub fn me(&self) -> usize {
        self.me
    }

    /// The name of this node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The time by the clock of that thread.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Wakes the thread of the cluster.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// What the broker of this machine can move from now on.
    pub fn can_move(&self, movable: Option<Movable>) {
        self.is_lack_told.store(movable.is_some(), Release);
        *(self.movable.write()).unwrap_or_else(PoisonError::into_inner) = movable;
    }

    /// Whether a connection to this address of the server may move to a node.
    pub fn may_move(&self, node: usize, server: impl FnOnce() -> Option<SocketAddr>) -> bool {
        if self.hand_off != HandOff::Auto {
            return false;
        }
        let movable = self.movable.read().unwrap_or_else(PoisonError::into_inner);
        let movable = movable.as_ref();
        let name = self.name_of(node);
        movable.is_some_and(|it| server().is_some_and(|server| it.has(&name, server)))
    }

    /// Says once that no connection moves.
    pub fn tell_no_broker(&self, path: &Path, why: &dyn std::fmt::Display) {
        if self.hand_off == HandOff::Auto && !self.is_lack_told.swap(true, AcqRel) {
            tracing::info!(
                "cluster: no connection moves between nodes, and requests are relayed: ackpace-host handoff does not answer at {}: {why}",
                path.display()
            );
        }
    }

    /// This node takes no more requests of others and gives its own away, or no longer so. The others are told at once.
    pub fn drain(&self, on: bool) {
        if self.is_draining.swap(on, AcqRel) != on {
            let standing = if on { Standing::Draining } else { Standing::Up };
            self.stand(self.me, standing);
            tracing::info!(
                "cluster: this node {}",
                match on {
                    true => "is draining: the others serve its requests",
                    false => "takes requests again",
                }
            );
        }
        self.waker.wake();
    }

    pub fn is_draining(&self) -> bool {
        self.is_draining.load(Acquire)
    }

    /// Leaves a frame for another node. `false`: no stream to it stands, or too much waits. `true` does not mean that it arrives.
    pub fn send(&self, node: usize, frame: Frame) -> bool {
        let sent = self.peer(node).is_some() && self.mail.try_send((node, frame)).is_ok();
        if sent {
            self.waker.wake();
        }
        sent
    }

    /// Has a node drained, or no longer.
    ///
    /// # Errors
    /// There is no such node, or it can't be reached now: what to say to the operator.
    pub fn ask_drain(&self, name: &str, on: bool) -> Result<(), String> {
        let Some(node) = self.place_of(name).filter(|_| !name.is_empty()) else {
            let names: Vec<String> = self
                .nodes()
                .iter()
                .filter(|n| !n.is_empty())
                .cloned()
                .collect();
            return Err(format!(
                "{} is no node of this cluster: {}",
                crate::options::shown(name),
                names.join(", ")
            ));
        };
        if self.has_etcd {
            lock(&self.wishes).insert(name.to_owned(), on);
        }
        if node == self.me {
            self.drain(on);
            return Ok(());
        }
        let frame = Frame {
            flow: FlowId::default(),
            epoch: 0,
            message: Message::Drain { on },
        };
        match self.send(node, frame) {
            true => Ok(()),
            false if self.has_etcd => Ok(()), // it will find it there
            false => Err(format!("{name} can't be reached from this node")),
        }
    }

    /// Each of so many workers is to count its connections.
    pub fn ask_census(&self, workers: usize) {
        let all = u64::MAX.checked_shr(64 - workers.clamp(1, 64) as u32);
        self.census.fetch_or(all.unwrap_or(u64::MAX), AcqRel);
    }

    /// Whether the worker is to count its connections, since that is to be told.
    pub fn asks_census(&self, worker: usize) -> bool {
        let bit = 1u64 << (worker % 64);
        self.census.load(Relaxed) & bit != 0 && self.census.fetch_and(!bit, AcqRel) & bit != 0
    }

    /// What is known of each node, and of how many objects it is known who has them.
    pub fn seen(&self) -> (Vec<Seen>, usize) {
        let known = self.known();
        (known.seen.clone(), known.place.objects_known())
    }

    /// How many nodes are up (0), drain (1), or are down (2).
    pub fn count(&self, standing: usize) -> u64 {
        let (seen, _) = self.seen();
        let nodes = seen.iter().enumerate();
        let of =
            nodes.filter(|(at, seen)| seen.standing as usize == standing && self.is_member(*at));
        of.count() as u64
    }

    /// Where this node serves HTTP to the others: the port after that of its streams.
    pub fn relay_addr(&self) -> SocketAddr {
        let mut addr = self.own_addr;
        addr.set_port(addr.port().saturating_add(1)); // the option takes no port that has none after it
        addr
    }

    /// How long it is so, microseconds.
    pub fn since_us(&self, seen: &Seen) -> u64 {
        self.clock.now().since_us(seen.since)
    }

    /// Nothing is known of the node at a place, since it is another one, with this hash of its name.
    fn forget(&self, node: usize, name: u64) {
        let mut known = self.known();
        known.place.rename(node, name);
        if let Some(seen) = known.seen.get_mut(node) {
            *seen = Seen::nothing(self.clock.now());
        }
    }

    /// A node takes requests, or takes none.
    fn stand(&self, node: usize, standing: Standing) {
        let mut known = self.known();
        known.place.stand(node, standing);
        if let Some(seen) = known.seen.get_mut(node) {
            if seen.standing != standing {
                (seen.standing, seen.since) = (standing, self.clock.now());
            }
        }
    }

    /// A node, or this one, tells how busy it is, and whether it is to be emptied.
    fn told(&self, node: usize, load: Load) {
        let waiting = Waiting {
            processing: load.processing,
            disk: load.disk,
        };
        let mut known = self.known();
        known.place.told(node, waiting);
        if let Some(seen) = known.seen.get_mut(node) {
            seen.load = load;
        }
        drop(known);
        self.stand(
            node,
            match load.draining {
                true => Standing::Draining,
                false => Standing::Up,
            },
        );
    }

    /// Whether the thread was awake since this was last asked ([`ThreadWaker::was_awake`]).
    pub fn was_awake(&self) -> bool {
        self.waker.was_awake()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        lock(&self.known)
    }
}

/// What the workers ask.
#[allow(dead_code, reason = "the relay of requests asks it")]
impl Cluster {
    /// How another node is to serve a request.
    pub fn hand_off(&self) -> HandOff {
        self.hand_off
    }

    /// Drawn at the start of this process. It tells it from those before it.
    pub fn boot_nonce(&self) -> u32 {
        self.boot_nonce
    }

    /// The node that serves an object best, for a request that came to this one, and by what it was chosen. `None`: no node takes
    /// requests.
    pub fn choose_told(&self, key: u64, random: u64) -> Option<Chosen> {
        self.known().place.choose_told(Some(self.me), key, random)
    }

    /// The node that serves an object best, for a request that came to this one. `None`: no node takes requests.
    pub fn choose(&self, key: u64, random: u64) -> Option<usize> {
        self.known().place.choose(Some(self.me), key, random)
    }

    /// How it serves the response, asked at node `at`. `node` is what [`Cluster::choose`] said.
    pub fn how(&self, at: usize, node: usize, response: Response) -> How {
        match self.hand_off {
            HandOff::Off => How::Here,
            HandOff::Relay => self.known().place.how(
                at,
                node,
                Response {
                    may_move: false,
                    ..response
                },
            ),
            HandOff::Auto => self.known().place.how(at, node, response),
        }
    }

    /// An object came into the memory of this node. The others hear of it within a second or two.
    pub fn came(&self, key: u64) {
        self.known().place.came(self.me, key);
        lock(&self.reports).came(key);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
