//! A place, built: files made, memory filled or a slow disk mounted, the network there. Servers are started
//! in it; it goes with the value.

use crate::cgroup::{self, Group};
use crate::corpus::{self, Set};
use crate::error::{LabError, Result};
use crate::pages::{self, Pinned};
use crate::peers::{Contender, Ground, Running, Site};
use crate::place::{Disk, Network, Place};
use crate::sockets::Sockets;
use crate::throttle::LoopDisk;
use crate::world::{self, World};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What does not change within a run.
pub struct Lab {
    /// Cores.
    pub world: World,
    /// Directory of the files, kept for the next run.
    pub scratch: PathBuf,
    /// The ackpace binary.
    pub ackpace: PathBuf,
}

/// A place that is there.
pub struct Arena<'a> {
    lab: &'a Lab,
    /// Its declaration.
    pub place: Place,
    /// The served directory.
    pub root: PathBuf,
    /// The sockets of the server's network.
    pub sockets: Arc<Sockets>,
    address: IpAddr,
    ports: std::ops::RangeFrom<u16>,
    // In this order they go: what is locked in memory, then the disk below it.
    _pinned: Vec<Pinned>,
    disk: Option<LoopDisk>,
}

impl<'a> Arena<'a> {
    /// Builds a place.
    pub fn up(lab: &'a Lab, place: &Place) -> Result<Self> {
        let mut pinned = Vec::new();
        let mut disk = None;
        let root = match &place.disk {
            Disk::Memory => {
                let root = lab.scratch.join("site");
                corpus::make(&root, &place.files)?;
                pinned = pin(&root, &place.files, |_| true)?;
                root
            }
            Disk::Throttled {
                read_ahead_kb,
                cached,
                ..
            } => {
                let slow = LoopDisk::up(&lab.scratch, &place.files, *read_ahead_kb)?;
                pinned.extend(pin(&slow.mount, &place.files, |name| {
                    cached.contains(&name)
                })?);
                pinned.push(Pinned::new(&slow.image)?); // the disk below the loop device shall not be what is slow
                let root = slow.mount.clone();
                disk = Some(slow);
                root
            }
        };
        let address = match place.network {
            Network::Loopback => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        Ok(Self {
            lab,
            place: place.clone(),
            root,
            sockets: Arc::new(Sockets::open()?),
            address,
            ports: 8001..,
            _pinned: pinned,
            disk,
        })
    }

    /// Drops from memory what shall not be there.
    pub fn before_round(&self) -> Result<()> {
        if let Disk::Throttled { cached, .. } = &self.place.disk {
            for set in &self.place.files {
                if !cached.contains(&name(set)) {
                    for (path, _) in set.files() {
                        pages::drop_cached(&corpus::below(&self.root, &path))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Starts a contender that shall hold so many connections at once.
    pub fn start(&mut self, contender: &Contender, connections: usize) -> Result<Running> {
        // A port of its own each time: none waits for the last one's connections to be forgotten.
        let port = self.ports.next().unwrap_or(u16::MAX);
        let site = Site {
            root: &self.root,
            scratch: &self.lab.scratch,
            ackpace: &self.lab.ackpace,
            address: SocketAddr::new(self.address, port),
            connections,
        };
        let ground = Ground {
            world: &self.lab.world,
            group: self.group()?,
            sockets: &self.sockets,
            enter: &|_| {},
        };
        Running::start(contender, &site, ground)
    }

    /// The end of the log of the server that was started last.
    pub fn log_tail(&self) -> String {
        crate::peers::log_tail(&self.lab.scratch)
    }

    /// Fails unless the connections of a server use the congestion control that the network shall have.
    /// False while it has none.
    pub fn congestion_control_checked(&self, server: &Running) -> Result<bool> {
        let want = world::CONGESTION_CONTROL;
        let seen = self
            .sockets
            .queues(server.address.ip(), server.address.port())?;
        match seen.congestion_controls.iter().find(|name| *name != want) {
            Some(name) => Err(LabError::contender(
                &server.name,
                format!("its connections use {name}, not {want}: nothing measured"),
            )),
            None => Ok(seen.connections > 0),
        }
    }

    fn group(&self) -> Result<Group> {
        let read = match (&self.place.disk, &self.disk) {
            (
                Disk::Throttled {
                    read_bytes_per_s, ..
                },
                Some(disk),
            ) => Some((disk.device.clone(), *read_bytes_per_s)),
            _ => None,
        };
        Group::new(&cgroup::Spec {
            name: "server".into(),
            memory_limit_bytes: self.place.memory_limit_bytes,
            read,
        })
    }
}

fn name(set: &Set) -> &'static str {
    match set {
        Set::Files { name, .. } => name,
        Set::Listing => "many",
    }
}

fn pin(root: &Path, sets: &[Set], wanted: impl Fn(&str) -> bool) -> Result<Vec<Pinned>> {
    let wanted = sets.iter().filter(|set| wanted(name(set)));
    wanted
        .flat_map(Set::files)
        .map(|(path, _)| Pinned::new(&corpus::below(root, &path)))
        .collect()
}
