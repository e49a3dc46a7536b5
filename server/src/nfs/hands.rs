//! What an NFS thread works with, besides its connections.

use std::sync::Arc;

use ackpace_core::conn::{ConnId, StreamId, Want};

use super::room::Room;
use super::served::Served;
use crate::disk::DiskAsk;
use crate::nfs_tally::Tally;
use crate::source::Source;
use crate::worker::Shared;

pub struct Hands {
    pub shared: Arc<Shared>,
    pub served: Arc<Served>,
    pub tally: Arc<Tally>,
    /// Its number among those whom the disks answer.
    pub number: u16,
    /// Without a byte taken while replies wait.
    pub send_timeout_us: u64,
    /// Memory for payload of WRITEs.
    pub room: Room,
    /// Connections that wait for it, each once.
    pub thirsty: Vec<ConnId>,
    /// For bytes of the page cache that are copied, and for input before it is taken.
    pub copied: Box<[u8]>,
    /// The disk threads to wake at the end of the turn, a bit each.
    disks_to_wake: u64,
}

/// A disk whose thread can't be started.
pub struct NoDisk;

impl Hands {
    pub fn new(
        (shared, served, tally): (Arc<Shared>, Arc<Served>, Arc<Tally>),
        number: u16,
        send_timeout_us: u64,
        copied_bytes: usize,
    ) -> Hands {
        Hands {
            shared,
            served,
            tally,
            number,
            send_timeout_us,
            room: Room::of_thread(),
            thirsty: Vec::new(),
            copied: vec![0; copied_bytes].into(),
            disks_to_wake: 0,
        }
    }

    /// Hands a want to its disk.
    pub fn want(&mut self, want: Want, source: Source) -> Result<(), NoDisk> {
        let device = want.object.device;
        let disk = self.shared.disks.get(device).map_err(|error| {
            crate::disk::tell_lacking(&error, &self.shared.seldom, self.shared.clock.now());
            NoDisk
        })?;
        let place = want.stream.conn.index;
        disk.ask(self.number, place, DiskAsk::Want(want, source));
        self.disks_to_wake |= 1 << device;
        Ok(())
    }

    /// Has a disk forget what a reader wants.
    pub fn forget(&mut self, device: u16, stream: StreamId) {
        if let Ok(disk) = self.shared.disks.get(device) {
            disk.ask(self.number, stream.conn.index, DiskAsk::Forget(stream));
            self.disks_to_wake |= 1 << device;
        }
    }

    /// Wakes the disks that were asked: once a turn is enough.
    pub fn wake_disks(&mut self) {
        let disks = std::mem::take(&mut self.disks_to_wake);
        self.shared.disks.wake(disks);
    }
}
