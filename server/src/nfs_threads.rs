//! NFS, from options to threads.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ackpace_core::units::duration_us;

use crate::config::Layer;
use crate::ending::Running;
use crate::failure::Failure;
use crate::front::site::Site;
use crate::listeners::Listeners;
use crate::nfs::{Nfs, Served};
use crate::options::{Listen, ServeOptions};
use crate::resolver::Inbox;
use crate::shares::{Shares, descriptors_allowed};
use crate::worker::Shared;

/// NFS, if it is served: with sockets that listen, and threads that do not run yet.
#[derive(Default)]
pub struct Prepared {
    nfs: Option<Nfs>,
    addrs: Vec<SocketAddr>,
}

/// Binds its addresses, and finds what is exported there.
pub fn prepare(
    (options, given): (&ServeOptions, &Layer),
    shares: &Shares,
    site: &Arc<Site>,
) -> Result<Prepared, Failure> {
    if shares.nfs_connections == 0 {
        return Ok(Prepared::default());
    }
    let bound = Listeners::bind_nfs(&options.nfs_options.nfs, shares.workers);
    let (listeners, addrs) = bound.map_err(|error| error.failure(given))?;
    let at: Vec<IpAddr> = addrs.iter().map(SocketAddr::ip).collect();
    let served = Served::open(options, given, site, &at, descriptors_allowed())?;
    let nfs = Nfs {
        served: Arc::new(served),
        listeners,
        connections: shares.nfs_connections,
        send_timeout_us: duration_us(options.send_timeout),
        drain_timeout_us: duration_us(options.drain_timeout),
    };
    Ok(Prepared {
        nfs: Some(nfs),
        addrs,
    })
}

/// Whether it can be served, without listening.
pub fn check(options: &ServeOptions, given: &Layer, site: &Arc<Site>) -> Result<(), Failure> {
    let listens = &options.nfs_options.nfs;
    let at = listens.iter().filter_map(|listen| match listen {
        Listen::Tcp { addr, .. } => Some(addr.ip()),
        _ => None, // the option takes no other
    });
    match listens.is_empty() {
        true => Ok(()),
        false => Served::check(options, given, site, &at.collect::<Vec<_>>()),
    }
}

impl Prepared {
    /// Where it is served.
    pub fn addrs(&self) -> Vec<SocketAddr> {
        self.addrs.clone()
    }

    /// How many threads it has.
    pub fn threads(&self) -> usize {
        self.nfs.as_ref().map_or(0, |nfs| nfs.listeners.len())
    }

    /// Starts them; `first` of those whom the disks answer is the first thread.
    pub fn start(
        self,
        first: usize,
        shared: &Arc<Shared>,
        inboxes: Vec<Inbox>,
        running: &mut Running,
    ) -> io::Result<()> {
        let Some(nfs) = self.nfs else {
            return Ok(());
        };
        let threads = nfs.threads(first, shared, inboxes)?;
        for (nth, thread) in threads.into_iter().enumerate() {
            running.start(format!("nfs-{nth}"), move || thread.run())?;
        }
        Ok(())
    }
}
