//! A logical unit of an iSCSI target as all threads know it: where its file system is mounted, whether both programs see the same
//! unit, and which bytes of its files are in memory ([`Blocks`]). `server/src/lun.rs` is the thread that reads from it.

mod blocks;
mod counters;
mod tally;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use ackpace_core::conn::ObjectId;
use ackpace_wire::gateway::Hello;
use ackpace_wire::iscsi::Session;

pub use self::blocks::Blocks;
pub use self::counters::Counters;
pub use self::tally::{Fallback, Tally};
use crate::mailbox::ThreadWaker;
use crate::store::place::MapMemory;
use crate::store::slab::Slab;

/// The memory of all maps, less where memory is little. More: files that are not mapped yet are read through the mount, until others
/// are closed.
pub const MAPS_BYTES_MAX: u64 = 16 << 20;

/// For so long a start waits for the unit. Shorter: the first READs after each start go through the mount, and what is read ahead for
/// them there competes with the unit for the way to the target.
const WAIT: Duration = Duration::from_secs(2);
/// How often a start looks whether there is a mount yet.
const LOOKS_EACH: Duration = Duration::from_millis(5);

/// A logical unit whose file system is mounted here by `ackpace-host gateway`.
pub struct Unit {
    /// Its address, for the operator.
    pub url: String,
    /// Its number among the devices.
    pub device: u16,
    /// Its bytes that are in memory.
    pub slab: Arc<Slab>,
    pub tally: Tally,
    pub(crate) waker: Arc<ThreadWaker>,
    state: Mutex<State>,
    /// What is used; `None`: READs go through the mount.
    mount: RwLock<Option<Arc<Mount>>>,
    /// The epoch of that; 0: none.
    epoch: AtomicU32,
    /// The last name that was given out.
    named: AtomicU64,
    map_memory: Arc<MapMemory>,
    /// Until the thread starts that has it.
    session: Mutex<Option<Session>>,
}

/// What the unit is, as one side sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub serial: String,
    pub len_bytes: u64,
    pub block_bytes: u32,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (serial, block_bytes) = (self.serial.escape_debug(), self.block_bytes);
        let len_bytes = self.len_bytes;
        write!(
            f,
            "serial number \"{serial}\", {len_bytes} bytes in blocks of {block_bytes}"
        )
    }
}

/// A mount, from its hello until that connection ends.
#[derive(Debug)]
pub struct Mount {
    /// Which one, counted from 1.
    pub epoch: u32,
    /// The number of its file system (stat(2)).
    pub st_dev: u64,
    pub seen: Seen,
    pub counters: Counters,
    /// Where it is mounted, for the operator.
    path: String,
}

/// What both sides have said.
#[derive(Default)]
struct State {
    epochs: u32,
    /// What the gateway program said.
    mount: Option<Arc<Mount>>,
    /// What the own session saw.
    seen: Option<Seen>,
}

impl Unit {
    /// A unit of which nothing is known.
    pub fn new(
        (url, session): (String, Session),
        device: u16,
        (slab, maps_bytes_max): (Arc<Slab>, u64),
        waker: Arc<ThreadWaker>,
    ) -> Unit {
        Unit {
            url,
            device,
            slab,
            tally: Tally::default(),
            waker,
            state: Mutex::default(),
            mount: RwLock::default(),
            epoch: AtomicU32::new(0),
            named: AtomicU64::new(0),
            map_memory: MapMemory::new(maps_bytes_max),
            session: Mutex::new(Some(session)),
        }
    }

    /// The session, for the thread that has it from now on.
    pub fn session(&self) -> Result<Session, &'static str> {
        let mut session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        session.take().ok_or("the unit's thread was started")
    }

    /// The mount, while it can be used. The lock is held for a moment only.
    pub fn mount(&self) -> Option<Arc<Mount>> {
        if self.epoch.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mount = self.mount.read().unwrap_or_else(PoisonError::into_inner);
        mount.clone()
    }

    /// Waits a little for the mount, at a start of a server whose folder is on this device. What is lost is told.
    pub fn begin(&self, root: &str, st_dev: Option<u64>) {
        let url = &self.url;
        if !self.comes_within(WAIT) {
            tracing::warn!(
                "{url}: not there after {} s: READs go through the mount, if there is one, until it is",
                WAIT.as_secs()
            );
            return;
        }
        let is_there = |mount: Arc<Mount>| Some(mount.st_dev) == st_dev;
        if !self.mount().is_none_or(is_there) {
            tracing::warn!(
                "{root} is not on the mount of {url}: its READs do not come from there; serve that mount, or a folder below"
            );
        }
    }

    /// Waits until there is a mount that can be used. `false`: it takes longer than that.
    fn comes_within(&self, most: Duration) -> bool {
        let until = Instant::now() + most;
        while self.mount().is_none() {
            if Instant::now() >= until {
                return false;
            }
            thread::sleep(LOOKS_EACH);
        }
        true
    }

    /// Whether this mount can still be used.
    pub fn has(&self, mount: &Mount) -> bool {
        self.epoch.load(Ordering::Acquire) == mount.epoch
    }

    /// The gateway program has mounted it.
    pub fn mounted(&self, hello: &Hello, counters: Counters) {
        self.change(|state| {
            state.epochs += 1;
            state.mount = Some(Arc::new(Mount {
                epoch: state.epochs,
                st_dev: hello.device,
                seen: Seen {
                    serial: hello.serial.clone(),
                    len_bytes: hello.len_bytes,
                    block_bytes: hello.block_bytes,
                },
                counters,
                path: hello.mount.clone(),
            }));
        });
    }

    /// The gateway program has ended, or the mount is gone.
    pub fn unmounted(&self) {
        self.change(|state| state.mount = None);
    }

    /// The own session has found it.
    pub fn found(&self, seen: Seen) {
        self.change(|state| state.seen = Some(seen));
    }

    /// Both have to see the same unit, or none is used. The log is told when that changes.
    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.mount.as_ref().map(|mount| mount.epoch);
        let before = (before, state.seen.clone());
        change(&mut state);
        let url = &self.url;
        let usable = match (&state.mount, &state.seen) {
            (Some(mount), Some(seen)) if mount.seen == *seen => Some(Arc::clone(mount)),
            (Some(mount), Some(seen)) => {
                if before != (Some(mount.epoch), Some(seen.clone())) {
                    tracing::error!(
                        "{url}: it has {seen}, but ackpace-host gateway has mounted {} at {}: READs go through the mount; give both \
                         programs the same --iscsi, or restart them if the unit was resized",
                        mount.seen,
                        mount.path.escape_debug(),
                    );
                }
                None
            }
            _ => None,
        };
        let epoch = usable.as_ref().map_or(0, |mount| mount.epoch);
        let was = self.epoch.swap(epoch, Ordering::AcqRel);
        match &usable {
            Some(mount) if was != epoch => tracing::info!(
                "{url}: READs of files at {} come from there",
                mount.path.escape_debug()
            ),
            None if was != 0 => tracing::warn!("{url}: READs go through the mount from now on"),
            _ => {}
        }
        *self.mount.write().unwrap_or_else(PoisonError::into_inner) = usable;
        drop(state);
        self.waker.wake();
    }

    /// The name of a new map.
    pub fn name(&self) -> ObjectId {
        let named = self.named.fetch_add(1, Ordering::Relaxed) + 1;
        ObjectId {
            device: self.device,
            index: named as u32,
            generation: (named >> 32) as u32,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use ackpace_wire::iscsi::Settings;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    /// A unit with 16 MiB of memory.
    pub fn unit() -> Arc<Unit> {
        let slab = Slab::open(None, 16 << 20).expect("a little memory");
        let waker = ThreadWaker::new().expect("a descriptor");
        let url = "iscsi://192.0.2.1/iqn.2026-01.org.example:disk/1".to_owned();
        let slab = (Arc::new(slab), MAPS_BYTES_MAX);
        let settings = Settings {
            initiator: "iqn.2026-01.org.example:a".to_owned(),
            target: "iqn.2026-01.org.example:disk".to_owned(),
            isid: [0x80, 0, 0, 0, 0, 2],
            chap: None,
            header_digests: false,
            data_digests: false,
            segment_bytes: 8192,
        };
        let address = url.parse().expect("an address");
        let session = Session::new(&address, settings, 1).expect("settings");
        Arc::new(Unit::new((url, session), 3, slab, Arc::new(waker)))
    }

    /// Counters that are all 0.
    pub fn counters() -> Counters {
        let memory = memfd_create("counters", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&memory, 4 << 20).expect("memory");
        Counters::map(&memory).expect("memory")
    }

    pub fn hello(st_dev: u64) -> Hello {
        Hello {
            device: st_dev,
            len_bytes: 1 << 30,
            block_bytes: 512,
            serial: "beaf11".to_owned(),
            mount: "/srv/disk".to_owned(),
            ..Hello::default()
        }
    }

    pub fn seen() -> Seen {
        Seen {
            serial: "beaf11".to_owned(),
            len_bytes: 1 << 30,
            block_bytes: 512,
        }
    }

    #[test]
    fn a_mount_is_used_while_both_programs_see_the_same_unit() {
        let unit = unit();
        unit.mounted(&hello(7), counters());
        assert!(unit.mount().is_none(), "the own session has seen nothing");
        unit.found(Seen {
            serial: "other".to_owned(),
            ..seen()
        });
        assert!(unit.mount().is_none());
        unit.found(seen());
        let first = unit.mount().expect("the same unit");
        assert_eq!((first.epoch, first.st_dev), (1, 7));
        unit.found(seen());
        assert!(unit.has(&first), "it was seen again");
        unit.found(Seen {
            len_bytes: 1 << 29,
            ..seen()
        });
        assert!(unit.mount().is_none() && !unit.has(&first), "it shrank");
        unit.found(seen());
        assert!(unit.has(&first));
        unit.unmounted();
        assert!(!unit.has(&first));
        unit.mounted(&hello(7), counters());
        let second = unit.mount().expect("the same unit");
        assert!(second.epoch == 2 && !unit.has(&first), "another mount");
    }
}
