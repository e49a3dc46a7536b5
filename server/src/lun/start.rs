//! How the unit's thread starts.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread;

use ackpace_core::disk::{Disk, In, Settings};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_wire::iscsi::{Address, Session};
use crossbeam_channel::bounded;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{Lun, reading};
use crate::disk::{Context, DiskHandle, Wanted};
use crate::sched;
use crate::store::pool::Pool;
use crate::unit::Unit;
use crate::upstream::Names;

/// Without the target for so long, what waits for it fails with EIO, and so does what is asked later: what Linux gives a disk.
pub const PATIENCE_US: u64 = 30_000_000;
/// Bytes that are received at once and belong to no task: headers, and data that nobody wants any more.
const COPIED_BYTES: usize = 64 << 10;
/// The event of the waker.
const WAKER: u64 = 0;
/// That of the connection.
pub const LINK: u64 = 1;

/// Starts the thread, which lives as long as the process. Returns how NFS threads reach it.
pub fn start(unit: &Arc<Unit>, session: Session, context: Context) -> io::Result<Arc<DiskHandle>> {
    let settings = Settings {
        rotational: false,
        spindles: 1,
        // Everything goes into the slab, and is there for all.
        direct: false,
        page_cache_bytes: unit.slab.len_bytes(),
        arriving: true,
        ..context.settings
    };
    let mut disk = Disk::new(settings);
    // What is read ahead stays in the slab until it is sent: half of that, beside what is hot.
    let memory_bytes = unit.slab.len_bytes() / 2;
    disk.on(In::Budget { memory_bytes }, Instant { us: 0 });
    let waker = Arc::clone(&unit.waker);
    // No read goes into slots.
    let pool = Arc::new(Pool::new(1, Arc::clone(&waker))?);
    let (questions, asked) = bounded(1);
    let handle = Arc::new(DiskHandle::new(
        &context,
        pool,
        Arc::clone(&waker),
        questions,
    ));
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
    let lun = Lun {
        unit: Arc::clone(unit),
        disk,
        session,
        names: names(&unit.url)?,
        link: None,
        files: Wanted::new(settings.cancel),
        reads: HashMap::new(),
        queue: VecDeque::new(),
        asked: HashMap::new(),
        asked_max: reading::asked_max(unit.slab.len_bytes()),
        tasks: 0,
        starved_since: None,
        is_ready: false,
        is_eager: false,
        copied: vec![0; COPIED_BYTES].into(),
        epoll,
        handle: Arc::clone(&handle),
        questions: asked,
        channels: context.channels,
        clock: context.clock,
        seldom: context.seldom,
    };
    thread::Builder::new()
        .name("lun".to_owned())
        .spawn(move || {
            sched::give_way();
            lun.run();
        })?;
    context.ledger.take(context.device_bytes);
    Ok(handle)
}

/// The addresses of the target's name, which may take seconds here: the thread itself must not wait for them. An address needs none.
fn names(url: &str) -> io::Result<Option<((String, u16), Names)>> {
    let address = url.parse::<Address>();
    let named = address.ok().filter(|at| at.host.parse::<IpAddr>().is_err());
    let place = named.map(|at| (at.host, at.port));
    let names = place.map(|place| Ok((place.clone(), Names::of_place(place)?)));
    names.transpose()
}
