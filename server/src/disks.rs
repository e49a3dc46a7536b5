//! The disk threads, each started when the first cold byte of its device is wanted.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::disk::{self, Context, DiskHandle};
use crate::limits::DEVICES_MAX;

/// All disk threads of the process, by the number of their device.
pub struct Disks {
    handles: [OnceLock<Arc<DiskHandle>>; DEVICES_MAX],
    starting: Mutex<()>,
    context: Context,
}

impl Disks {
    pub fn new(context: Context) -> Disks {
        Disks {
            handles: Default::default(),
            starting: Mutex::default(),
            context,
        }
    }

    /// The thread of a device, started if need be.
    pub fn get(&self, device: u16) -> io::Result<&Arc<DiskHandle>> {
        let place = &self.handles[usize::from(device) % DEVICES_MAX];
        if let Some(handle) = place.get() {
            return Ok(handle);
        }
        let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if place.get().is_none() {
            let handle = disk::start(device, &self.context)?;
            place.get_or_init(|| handle);
        }
        place.get().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The threads that were started, by number.
    pub fn started(&self) -> impl Iterator<Item = (usize, &DiskHandle)> {
        let handles = self.handles.iter().enumerate();
        handles.filter_map(|(device, place)| Some((device, &**place.get()?)))
    }

    /// Wakes the threads whose bits are set.
    pub fn wake(&self, devices: u64) {
        for (device, place) in self.handles.iter().enumerate() {
            if (devices >> device) & 1 == 1 {
                place.get().inspect(|handle| handle.wake());
            }
        }
    }
}
