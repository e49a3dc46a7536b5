//! What workers know of a gateway: its origins, the objects that these have ([`Catalog`]), and where the bytes of objects lie
//! that several clients want ([`Slab`]). What is not known is asked of the upstream's thread (`server/src/upstream.rs`),
//! whose answers come as those of a resolver do.

mod access;
mod address;
mod ask;
mod catalog;
mod object;
mod s3;
mod tally;
mod tls;
pub mod via;

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ackpace_core::conn::StreamId;
use crossbeam_queue::SegQueue;

pub use self::access::Access;
pub use self::address::Address;
pub use self::ask::{Asked, Hint, Index, Pass, Through};
pub use self::catalog::{Catalog, LookUp};
pub use self::object::{Found, How, Object};
pub use self::tally::{Answered, GatewayTally, OriginTally};
pub use self::tls::{Tls, told as tls_told};
use crate::interest::JobInterest;
use crate::mailbox::ThreadWaker;
use crate::store::slab::Slab;
use crate::store::tier::Tier;

/// What a worker asks of the upstream's thread.
#[derive(Debug)]
pub enum Ask {
    /// What the origin has at a target.
    Open(Asked),
    /// Whether the object at a target is still the same. Nobody waits for the answer.
    Refresh(Box<[u8]>),
    /// The next bytes of a response that passes through ([`Pass`]).
    Next(u64),
}

/// Memory of all that is asked and not heard yet. More: the request is answered 503.
const ASKED_BYTES_MAX: u64 = 8 << 20;

/// What the operator is told of an origin that says nothing.
pub const NO_ANSWER: &str = "it closed the connection before an answer";

/// How the line of that field begins.
const LOCATION: &[u8] = b"Location: ";

impl Ask {
    fn held_bytes(&self) -> u64 {
        match self {
            Ask::Open(asked) => asked.held_bytes(),
            Ask::Refresh(target) => target.len() as u64,
            Ask::Next(_) => 0,
        }
    }
}

/// An [`Ask`], for whom, and whether that one still waits.
pub struct Waiting {
    pub stream: StreamId,
    pub ask: Ask,
    pub interest: std::sync::Weak<()>,
}

/// Where another node is. It may change: another node takes its place.
pub struct PeerAt {
    /// The address from which it is asked, by which it knows this one.
    pub from: IpAddr,
    to: Mutex<(String, SocketAddr)>,
}

impl PeerAt {
    pub fn new(from: IpAddr, name: &str, to: SocketAddr) -> PeerAt {
        PeerAt {
            from,
            to: Mutex::new((name.to_owned(), to)),
        }
    }

    /// Another node is there, or the same one elsewhere.
    pub fn is_now(&self, name: &str, to: SocketAddr) {
        *self.lock() = (name.to_owned(), to);
    }

    pub fn to(&self) -> SocketAddr {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (String, SocketAddr)> {
        self.to.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is served, and how to ask for it.
pub struct Gateway {
    pub origins: Vec<Address>,
    /// For those of them that are reached by TLS.
    pub tls: Option<Tls>,
    /// The names of index files, if the origins are buckets.
    pub index: Vec<String>,
    /// Whether folders of buckets are listed.
    pub listing: bool,
    /// Its one origin is another node of the cluster. What does not come from there comes from the own disk.
    pub peer: Option<PeerAt>,
    /// Its number among the devices.
    pub device: u16,
    pub catalog: Catalog,
    pub slab: Arc<Slab>,
    /// What is kept on disk, if anything is.
    pub tier: OnceLock<Arc<Tier>>,
    pub tally: GatewayTally,
    asks: SegQueue<Waiting>,
    waiting: AtomicUsize,
    waiting_max: usize,
    /// Memory of what is asked.
    held_bytes: AtomicU64,
    pub(crate) waker: Arc<ThreadWaker>,
}

impl Gateway {
    /// A gateway to these origins; `waiting_max` bounds what may be asked at once.
    pub fn new(
        origins: Vec<Address>,
        device: u16,
        (catalog, slab): (Catalog, Arc<Slab>),
        waiting_max: usize,
        waker: Arc<ThreadWaker>,
    ) -> Gateway {
        Gateway {
            tally: GatewayTally::new(origins.len()),
            origins,
            tls: None,
            index: Vec::new(),
            listing: false,
            peer: None,
            device,
            catalog,
            slab,
            tier: OnceLock::new(),
            asks: SegQueue::new(),
            waiting: AtomicUsize::new(0),
            waiting_max,
            held_bytes: AtomicU64::new(0),
            waker,
        }
    }

    /// Reaches origins by TLS.
    pub fn by(self, tls: Option<Tls>) -> Gateway {
        Gateway { tls, ..self }
    }

    /// Answers for folders of buckets with the first of these index files that is there, or else with a listing.
    pub fn folders(self, index: Vec<String>, listing: bool) -> Gateway {
        Gateway {
            index,
            listing,
            ..self
        }
    }

    /// Its origin is another node of the cluster.
    pub fn of_node(self, peer: PeerAt) -> Gateway {
        Gateway {
            peer: Some(peer),
            ..self
        }
    }

    pub fn is_peer(&self) -> bool {
        self.peer.is_some()
    }

    /// An origin, for the operator.
    pub fn origin_shown(&self, origin: usize) -> String {
        match &self.peer {
            Some(peer) => format!("node {}", peer.lock().0),
            None => self
                .origins
                .get(origin)
                .map(ToString::to_string)
                .unwrap_or_default(),
        }
    }

    /// Whether the origins are buckets: all are, or none.
    pub fn has_buckets(&self) -> bool {
        let first = self.origins.first();
        first.is_some_and(|origin| origin.bucket.is_some())
    }

    /// Asks the upstream's thread, which answers as long as the [`JobInterest`] is there. `None`: too much is asked already.
    pub fn ask(&self, stream: StreamId, ask: Ask) -> Option<JobInterest> {
        let one_more = |waiting| (waiting < self.waiting_max).then_some(waiting + 1);
        (self.waiting)
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .ok()?;
        let with_it =
            |held: u64| Some(held + ask.held_bytes()).filter(|held| *held <= ASKED_BYTES_MAX);
        let held = (self.held_bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it);
        if held.is_err() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let (job, interest) = JobInterest::new();
        self.asks.push(Waiting {
            stream,
            ask,
            interest,
        });
        self.waker.wake();
        Some(job)
    }

    /// The next question, for the upstream's thread.
    pub fn next_ask(&self) -> Option<Waiting> {
        let waiting = self.asks.pop()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let bytes = waiting.ask.held_bytes();
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        Some(waiting)
    }

    /// These field lines of an origin's response for clients of the gateway: Location leads to the gateway where it led to an
    /// origin, past which clients would not come.
    pub fn local(&self, fields: &[u8]) -> Vec<u8> {
        let mut lines = Vec::with_capacity(fields.len());
        for line in fields.split_inclusive(|&byte| byte == b'\n') {
            let (name, place) = line.split_at(line.len().min(LOCATION.len()));
            let mut origins = self.origins.iter();
            let is_location = name.eq_ignore_ascii_case(LOCATION);
            let place = place.strip_suffix(b"\r\n").unwrap_or(place);
            match origins
                .find_map(|origin| origin.local(place))
                .filter(|_| is_location)
            {
                Some(local) => lines.extend_from_slice(&[name, &local, b"\r\n"].concat()),
                None => lines.extend_from_slice(line),
            }
        }
        lines
    }

    /// Forgets the objects whose targets begin with these bytes, and begins to remove what the disk has of them; or makes them
    /// stale. Returns how many there were.
    /// Errors: The disk is busy with an earlier purge.
    pub fn purge(&self, prefix: &[u8], only_stale: bool) -> Result<usize, &'static str> {
        let tier = self.tier.get().filter(|_| !only_stale);
        match tier.is_none_or(|tier| tier.purge(prefix)) {
            true => Ok(self.catalog.purge(prefix, only_stale)),
            false => {
                Err("an earlier purge still looks through cache_dir; the log tells when it is over")
            }
        }
    }

    /// How much payload can be kept, in memory and on disk.
    pub fn kept_bytes_max(&self) -> u64 {
        let on_disk = self.tier.get().map_or(0, |tier| tier.place().1);
        self.slab.len_bytes().saturating_add(on_disk)
    }

    /// For the greeting: where payload is kept.
    pub fn keeps(&self) -> String {
        let (mib, how) = (
            self.slab.len_bytes() >> 20,
            match self.slab.is_copied() {
                true => "sent by a copy",
                false => "sent by sendfile",
            },
        );
        let on_disk = self.tier.get().map_or_else(String::new, |tier| {
            let (dir, bytes) = tier.place();
            format!(
                "; {} keeps {} MiB of it on disk",
                dir.display(),
                bytes >> 20
            )
        });
        format!(
            "payload that several clients want stays in {mib} MiB of memory (--cache-memory), {how}{on_disk}"
        )
    }

    /// For messages: an object as the operator knows it.
    pub fn shown(&self, target: &[u8]) -> String {
        let base = self.origins.first().map_or("", Address::shown);
        format!("{base}{}", target.escape_ascii())
    }
}

impl std::fmt::Display for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (nth, origin) in self.origins.iter().enumerate() {
            write!(f, "{}{origin}", if nth == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
