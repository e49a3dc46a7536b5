//! The other nodes as devices (DTCP's back-end forwarding): what one has in memory is read from it, by plain HTTP, in place of this node's
//! disk. Each node is a device of its own with a thread (`server/src/upstream.rs`), so one that hangs holds up no other. All
//! nodes have the same files, so nothing has to be asked before: a file's own tag is the condition of each read, and whatever goes wrong is read
//! from the own disk instead.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ackpace_core::conn::{ObjectId, Span};
use ackpace_wire::http::conditional::Validators;
use ackpace_wire::http::target::encode_path;

use crate::clock::unix_ms;
use crate::gateway::{Address, Catalog, Gateway, LookUp, Object, PeerAt};
use crate::mailbox::ThreadWaker;
use crate::store::device::Devices;
use crate::store::slab::Slab;

/// Keys of objects that were asked for here lately. More: the older ones count as new.
const ASKED_LATELY: usize = 16_384;
/// A file is fetched for good only if so many of its size fit into the memory for that.
const FITS: u64 = 16;

/// Starts the thread of a node's device.
type Start = Box<dyn Fn(&Arc<Gateway>) -> io::Result<()> + Send + Sync>;

/// What the device of each node is made of.
pub struct Parts {
    pub devices: Arc<Devices>,
    pub slab: Arc<Slab>,
    /// Memory for what is known of the objects of one node.
    pub catalog_bytes: usize,
    /// The address by which the other nodes know this one.
    pub from: IpAddr,
}

/// The other nodes, and what is known of their objects.
pub struct Peers {
    /// By the places of nodes; empty: this node, or nobody was there yet.
    gateways: Box<[OnceLock<Arc<Gateway>>]>,
    parts: Parts,
    start: OnceLock<Start>,
    /// The keys that were asked for here, each at the place that it hashes to.
    asked: Box<[AtomicU64]>,
    /// The last number given to an object.
    numbers: AtomicU64,
}

impl Peers {
    /// So many places for nodes, and nobody is there.
    pub fn new(places: usize, parts: Parts) -> Peers {
        Peers {
            gateways: (0..places).map(|_| OnceLock::new()).collect(),
            parts,
            start: OnceLock::new(),
            asked: (0..ASKED_LATELY).map(|_| AtomicU64::new(0)).collect(),
            numbers: AtomicU64::new(0),
        }
    }

    /// A node is at a place from now on, and its HTTP at an address. A place keeps its device, which has the name of the first node
    /// there.
    ///
    /// # Errors
    /// Descriptors or threads are short.
    pub fn meet(&self, node: usize, name: &str, at: SocketAddr) -> io::Result<()> {
        let Some(place) = self.gateways.get(node) else {
            return Ok(());
        };
        if let Some(gateway) = place.get() {
            gateway.peer.iter().for_each(|peer| peer.is_now(name, at));
            return Ok(());
        }
        let Parts { devices, slab, .. } = &self.parts;
        let device = devices.origin(&format!("node {name}"));
        let memory = (Catalog::new(self.parts.catalog_bytes), Arc::clone(slab));
        let waker = Arc::new(ThreadWaker::new()?);
        let gateway = Gateway::new(vec![Address::of_node(at, name)], device, memory, 0, waker);
        let peer = PeerAt::new(self.parts.from, name, at);
        let gateway = Arc::new(gateway.of_node(peer));
        if let Some(start) = self.start.get() {
            start(&gateway)?;
        }
        place.get_or_init(|| gateway);
        Ok(())
    }

    /// Starts the devices of the nodes that are there, and of those that come.
    ///
    /// # Errors
    /// Descriptors or threads are short.
    pub fn start(&self, start: Start) -> io::Result<()> {
        self.gateways().try_for_each(&start)?;
        self.start.get_or_init(|| start);
        Ok(())
    }

    fn gateways(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.gateways.iter().filter_map(OnceLock::get)
    }

    /// The file as the object of a node. `None`: it was changed a moment ago, so nothing tells its versions apart for sure; or the node did
    /// not have this version lately.
    pub fn object(
        &self,
        node: usize,
        (path, len_bytes): (&[u8], u64),
        validators: Validators,
    ) -> Option<Arc<Object>> {
        let gateway = self.gateways.get(node)?.get()?;
        let target = target(path);
        match gateway.catalog.look_up(&target, unix_ms() / 1000) {
            LookUp::Fresh(object) if object.validators.etag == validators.etag => {
                return Some(object);
            }
            LookUp::Passes => return None,
            _ => {}
        }
        validators.etag.filter(|tag| !tag.is_weak())?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let id = ObjectId {
            device: gateway.device,
            index: number as u32,
            generation: (number >> 32) as u32,
        };
        let object = Object::of_file(id, &target, len_bytes, validators, &gateway.slab);
        let object = Arc::new(object);
        gateway.catalog.enter(&object, gateway.catalog.purges());
        Some(object)
    }

    /// The file as an object of any node whose bytes are all in this node's memory.
    pub fn kept(
        &self,
        (path, len_bytes): (&[u8], u64),
        validators: &Validators,
    ) -> Option<Arc<Object>> {
        let target = target(path);
        let all = Span {
            offset_bytes: 0,
            len_bytes,
        };
        let now_unix_s = unix_ms() / 1000;
        let mut known =
            (self.gateways()).map(|gateway| gateway.catalog.look_up(&target, now_unix_s));
        known.find_map(|known| match known {
            LookUp::Fresh(object)
                if object.validators.etag == validators.etag && object.is_resident(all) =>
            {
                Some(object)
            }
            _ => None,
        })
    }

    /// Whether an object of this length was asked for here before, not long ago, and is worth being kept here. It counts as asked for from
    /// now on.
    pub fn is_hot(&self, key: u64, len_bytes: u64) -> bool {
        let place = &self.asked[key as usize % ASKED_LATELY];
        let was = place.swap(key, Ordering::Relaxed) == key;
        was && len_bytes <= self.parts.slab.len_bytes() / FITS
    }
}

fn target(path: &[u8]) -> Vec<u8> {
    let mut target = b"/".to_vec();
    encode_path(path, &mut target);
    target
}

/// By which an object is known in the cluster: the same number on all nodes (FNV-1a).
pub fn key_of(path: &[u8]) -> u64 {
    path.iter().fold(0xcbf2_9ce4_8422_2325, |key, byte| {
        (key ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Where a node serves HTTP to the others: the port after that of its cluster_listen.
pub fn relay_addr(cluster_listen: SocketAddr) -> SocketAddr {
    SocketAddr::new(cluster_listen.ip(), cluster_listen.port().saturating_add(1))
}
