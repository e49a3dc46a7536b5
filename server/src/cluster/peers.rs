//! The other nodes as devices (DTCP's back-end forwarding): what one has in memory is read from it, by plain HTTP, in place of this node's
//! disk. Each node is a device of its own with a thread (`server/src/upstream.rs`), so one that hangs holds up no other. All
//! nodes have the same files, so nothing has to be asked before: a file's own tag is the condition of each read, and whatever goes wrong is read
//! from the own disk instead.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ackpace_core::conn::{ObjectId, Span};
use ackpace_wire::http::conditional::Validators;
use ackpace_wire::http::target::encode_path;

use crate::clock::unix_ms;
use crate::gateway::{Gateway, LookUp, Object};

/// Keys of objects that were asked for here lately. More: the older ones count as new.
const ASKED_LATELY: usize = 16_384;
/// A file is fetched for good only if so many of its size fit into the memory for that.
const FITS: u64 = 16;

/// The other nodes, and what is known of their objects.
pub struct Peers {
    /// By their places in the list of nodes; `None`: this node.
    gateways: Box<[Option<Arc<Gateway>>]>,
    /// The keys that were asked for here, each at the place that it hashes to.
    asked: Box<[AtomicU64]>,
    /// The last number given to an object.
    numbers: AtomicU64,
}

impl Peers {
    pub fn new(gateways: impl IntoIterator<Item = Option<Arc<Gateway>>>) -> Peers {
        Peers {
            gateways: gateways.into_iter().collect(),
            asked: (0..ASKED_LATELY).map(|_| AtomicU64::new(0)).collect(),
            numbers: AtomicU64::new(0),
        }
    }

    pub fn gateways(&self) -> impl Iterator<Item = &Arc<Gateway>> {
        self.gateways.iter().flatten()
    }

    /// The file as the object of a node. `None`: it was changed a moment ago, so nothing tells its versions apart for sure; or the node did
    /// not have this version lately.
    pub fn object(
        &self,
        node: usize,
        (path, len_bytes): (&[u8], u64),
        validators: Validators,
    ) -> Option<Arc<Object>> {
        let gateway = self.gateways.get(node)?.as_ref()?;
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
        let room_bytes = (self.gateways().next()).map_or(0, |gateway| gateway.slab.len_bytes());
        was && len_bytes <= room_bytes / FITS
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
