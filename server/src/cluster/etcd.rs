//! Which nodes there are, by etcd: a node writes its own entry under a lease of a few seconds, reads all of them, and has the thread of
//! the cluster take them. A drain stands there, too. This runs in a thread of its own, which may wait; whatever goes wrong in it, the
//! last list stays.
//!
//! A watch is only a bell: whatever it says, be it an event, that etcd has compacted what was asked for, or its end, all
//! is read again. So is it every few seconds without one.

mod http;
mod taken;

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ackpace_wire::cluster::VERSION;
use ackpace_wire::cluster::etcd::{self, Entry, Listed, Listing};
use ackpace_wire::limits::ETCD_ANSWER_BYTES_MAX;

use self::http::{Failed, Http, Rung, Watch};
use self::taken::taken;
use super::{Cluster, Key, lock};
use crate::gateway::Tls;
use crate::options::{ClusterOptions, EtcdAt, Peer};

/// Memory of an answer of etcd and of what is read from it, at worst.
pub const ANSWER_BYTES: u64 = 16 * ETCD_ANSWER_BYTES_MAX as u64;

/// How long an entry stands after its node was last heard of.
const LEASE_S: u64 = 10;
/// The lease is renewed and the list is read this often, at least.
const EACH: Duration = Duration::from_secs(3);
/// Rounds are at least so far apart, whatever rings.
const PAUSE: Duration = Duration::from_millis(100);
/// After this time etcd is asked again that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Complaints about entries that are told once each. More: all may be told once more.
const TOLD_MAX: usize = 256;

/// Starts the thread, if etcd is to be asked. It lives as long as the process.
///
/// # Errors
/// No thread can be started, or TLS is asked for and no authority is known.
pub fn start(cluster: &Arc<Cluster>, options: &ClusterOptions, key: &Key) -> io::Result<()> {
    let EtcdAt::At(url) = &options.cluster_etcd else {
        return Ok(());
    };
    let tls = url.tls.then(Tls::load).transpose();
    let tls = tls.map_err(io::Error::other)?;
    let own = Peer {
        name: cluster.name().to_owned(),
        addr: cluster.own_addr,
        key: key.public,
    };
    let pinned = options.peer.clone();
    let http = Http::new(url.clone(), tls);
    let keeper = Keeper::new(Arc::clone(cluster), own, pinned, http, url.prefix.clone());
    thread::Builder::new()
        .name("etcd".to_owned())
        .spawn(move || keeper.run())?;
    Ok(())
}

/// What keeps this node's entry and reads those of the others.
struct Keeper {
    cluster: Arc<Cluster>,
    own: Peer,
    pinned: Vec<Peer>,
    http: Http,
    prefix: String,
    lease: Option<u64>,
    /// When the lease was last given or renewed.
    kept: Option<Instant>,
    /// etcd's, when it last answered. One that goes back has lost what it had.
    revision: u64,
    /// That this node is to be emptied stood in the last list.
    is_drained: bool,
    watch: Option<Watch>,
    told: BTreeSet<String>,
    fails: bool,
}

impl Keeper {
    fn new(
        cluster: Arc<Cluster>,
        own: Peer,
        pinned: Vec<Peer>,
        http: Http,
        prefix: String,
    ) -> Keeper {
        Keeper {
            cluster,
            own,
            pinned,
            http,
            prefix,
            lease: None,
            kept: None,
            revision: 0,
            is_drained: false,
            watch: None,
            told: BTreeSet::new(),
            fails: false,
        }
    }

    fn run(mut self) {
        loop {
            let until = match self.round() {
                Ok(()) => {
                    if std::mem::take(&mut self.fails) {
                        tracing::info!("cluster: etcd answers again");
                    }
                    EACH
                }
                Err(failed) => {
                    self.watch = None;
                    if !std::mem::replace(&mut self.fails, true) {
                        tracing::warn!(
                            "cluster: etcd does not answer, and the known nodes stay: {}: {failed}",
                            self.http.url()
                        );
                    }
                    RETRY
                }
            };
            thread::sleep(PAUSE);
            self.wait(Instant::now() + until);
        }
    }

    /// Until something rings, an operator asks for something, or it is time.
    fn wait(&mut self, until: Instant) {
        if self.watch.is_none() && !self.fails {
            let question = etcd::ask_watch(&self.prefix, self.revision + 1);
            match self.http.watch(&question) {
                Ok(watch) => self.watch = Some(watch),
                // The list is read without it, too, only later.
                Err(failed) => tracing::debug!("cluster: etcd refuses to be watched: {failed}"),
            }
        }
        while Instant::now() < until && lock(&self.cluster.wishes).is_empty() {
            match self.watch.as_mut().map(Watch::listen) {
                None => thread::sleep(PAUSE),
                Some(Rung::No) => {}
                Some(Rung::Yes) => {
                    self.watch = None;
                    return;
                }
            }
        }
        if self.fails {
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }

    /// Renews the lease, reads the list, and does what follows from it.
    fn round(&mut self) -> Result<(), Failed> {
        let lease = self.keep()?;
        let answer = self
            .http
            .post("/v3/kv/range", &etcd::ask_listing(&self.prefix))?;
        let listing = etcd::listing(&self.prefix, &answer)?;
        let is_lost = listing.revision < self.revision;
        self.revision = listing.revision;
        self.list_myself(&listing, lease)?;
        if is_lost && self.is_drained {
            lock(&self.cluster.wishes)
                .entry(self.own.name.clone())
                .or_insert(true);
        }
        self.follow_drain(&listing);
        let (peers, complaints) = taken(&listing, &self.own, &self.pinned);
        complaints.into_iter().for_each(|why| self.complain(why));
        *lock(&self.cluster.listed) = Some(peers);
        self.cluster.wake();
        self.grant_wishes()
    }

    /// The lease, renewed or new.
    fn keep(&mut self) -> Result<u64, Failed> {
        if let Some(lease) = self.lease {
            if self.kept.is_some_and(|at| at.elapsed() < EACH / 2) {
                return Ok(lease);
            }
            let answer = self
                .http
                .post("/v3/lease/keepalive", &etcd::ask_more(lease))?;
            if etcd::goes_on(&answer)? {
                self.kept = Some(Instant::now());
                return Ok(lease);
            }
            self.lease = None;
        }
        let answer = self
            .http
            .post("/v3/lease/grant", &etcd::ask_lease(LEASE_S))?;
        let lease = etcd::lease(&answer)?;
        (self.lease, self.kept) = (Some(lease), Some(Instant::now()));
        Ok(lease)
    }

    /// Writes this node's own entry, unless it stands there, or another node has the name.
    fn list_myself(&mut self, listing: &Listing, lease: u64) -> Result<(), Failed> {
        let entry = Entry {
            addr: self.own.addr,
            key: self.own.key,
            version: VERSION,
        };
        let before: Option<&Listed> = listing.nodes.iter().find(|node| node.name == self.own.name);
        let other = before.and_then(|node| node.entry.as_ref());
        if let Some(other) = other.filter(|other| other.key != entry.key) {
            self.complain(format!(
                "the name {} is taken, by a node at {} with another key: rename this one. If it has just got a new key, wait 10 s for its old entry to expire",
                self.own.name, other.addr
            ));
            return Ok(());
        }
        let is_there = before.is_some_and(|node| node.lease == lease);
        if is_there && other == Some(&entry) {
            return Ok(());
        }
        let key = etcd::node_key(&self.prefix, &self.own.name);
        let revision = before.map_or(0, |node| node.revision);
        let question = etcd::ask_write(&key, revision, &entry.text(), lease);
        let answer = self.http.post("/v3/kv/txn", &question)?;
        // If somebody was faster, the next round sees what he wrote.
        match etcd::is_written(&answer)? {
            true => tracing::info!("cluster: this node is listed in etcd"),
            false => tracing::debug!("cluster: this node's entry has just changed"),
        }
        Ok(())
    }

    /// This node is emptied when that comes to stand there, and no longer when it goes. While it is to be written, what stands there
    /// is old.
    fn follow_drain(&mut self, listing: &Listing) {
        let is_drained = listing.drains.contains(&self.own.name);
        let is_old = lock(&self.cluster.wishes).contains_key(&self.own.name);
        if !is_old && is_drained != self.is_drained {
            self.is_drained = is_drained;
            self.cluster.drain(is_drained);
        }
    }

    /// Writes which nodes operators want emptied, or no longer.
    fn grant_wishes(&mut self) -> Result<(), Failed> {
        let wishes = lock(&self.cluster.wishes).clone();
        for (name, on) in wishes {
            let key = etcd::drain_key(&self.prefix, &name);
            match on {
                true => self.http.post("/v3/kv/put", &etcd::ask_put(&key, "1"))?,
                false => self
                    .http
                    .post("/v3/kv/deleterange", &etcd::ask_delete(&key))?,
            };
            let mut wishes = lock(&self.cluster.wishes);
            if wishes.get(&name) == Some(&on) {
                wishes.remove(&name);
            }
        }
        Ok(())
    }

    fn complain(&mut self, why: String) {
        if self.told.len() >= TOLD_MAX {
            self.told.clear();
        }
        if self.told.insert(why.clone()) {
            tracing::warn!("cluster: etcd: {why}");
        }
    }
}

#[cfg(test)]
mod tests;
