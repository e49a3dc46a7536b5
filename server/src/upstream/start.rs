//! How the upstream's thread starts.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::thread;

use ackpace_core::disk::{Disk, Order, Settings};
use ackpace_core::limits::SLOT_BYTES;
use ackpace_core::units::{Instant, duration_us};
use ackpace_core::upstream::{self, Links};
use crossbeam_channel::bounded;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::names::Names;
use super::{Upstream, WAKER};
use crate::disk::{Budget, Context as DiskContext, DiskHandle, Wanted};
use crate::gateway::Gateway;
use crate::resolver::Return;
use crate::sched;
use crate::store::pool::Pool;

/// Bytes that are received at once where they can't go straight where they belong.
const COPIED_BYTES: usize = 64 << 10;
/// Questions to the origins at a time. More wait. It bounds what one origin that hangs can hold up, and its load.
const OPENINGS_MAX: u32 = 128;
/// Reads at a time, likewise.
const READS_MAX: u32 = 24;
/// Responses that pass through at a time. More wait: each holds a connection of the origin for as long as its client takes, and up to
/// 128 KiB here.
const PASSES_MAX: u32 = 128;
/// From the order to connect until the connection stands. Longer: the origin is down.
const CONNECT: std::time::Duration = std::time::Duration::from_secs(5);
/// From a request to the end of the response's head, and between bytes of a body.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// The same of another node, in whose place the own disk is read.
const CONNECT_PEER: std::time::Duration = std::time::Duration::from_millis(500);
const SILENCE_PEER: std::time::Duration = std::time::Duration::from_secs(2);
/// How long a link is kept without a task. nginx closes after 75 s, others after 5.
const IDLE: std::time::Duration = std::time::Duration::from_secs(20);

/// What the thread is given.
pub struct Context {
    pub gateway: Arc<Gateway>,
    pub returns: Vec<Return>,
    /// As a disk's.
    pub disk: DiskContext,
}

/// How connections to the origins are used.
fn links(gateway: &Gateway) -> upstream::Settings {
    let (connect, silence) = match gateway.is_peer() {
        true => (CONNECT_PEER, SILENCE_PEER),
        false => (CONNECT, SILENCE),
    };
    upstream::Settings {
        origins: gateway.origins.len() as u16,
        links_max: [OPENINGS_MAX, READS_MAX, PASSES_MAX],
        connect_us: duration_us(connect),
        answer_us: duration_us(silence),
        silence_us: duration_us(silence),
        idle_us: duration_us(IDLE),
        patient: !gateway.is_peer(),
    }
}

fn names(gateway: &Gateway) -> io::Result<Vec<Names>> {
    let names = gateway
        .origins
        .iter()
        .map(|origin| match gateway.is_peer() {
            true => Ok(Names::none()), // the cluster knows the address
            false => Names::of(origin),
        });
    names.collect()
}

/// Starts the thread, which lives as long as the process. Returns how workers reach it.
pub fn start(context: Context) -> io::Result<Arc<DiskHandle>> {
    let Context {
        gateway,
        returns,
        disk: context,
    } = context;
    let settings = Settings {
        rotational: false,
        spindles: 1,
        order: Order::Deadline,
        reads: Some(READS_MAX),
        arriving: true,
        page_cache_bytes: gateway.kept_bytes_max(),
        ..context.settings
    };
    let waker = Arc::clone(&gateway.waker);
    let slots = u32::try_from(context.pool_bytes / SLOT_BYTES).unwrap_or(u32::MAX);
    let pool = Arc::new(Pool::new(slots, Arc::clone(&waker))?);
    let (questions, asked) = bounded(1);
    let handle = Arc::new(DiskHandle::new(
        &context,
        pool,
        Arc::clone(&waker),
        questions,
    ));
    let epoll = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
    let voice = (context.clock, &context.seldom);
    let tier = (gateway.tier.get()).map(|tier| tier.start(&gateway.slab, &waker, voice));
    let upstream = Upstream {
        disk: Disk::new(settings),
        machine: Links::new(links(&gateway)),
        links: HashMap::new(),
        jobs: HashMap::new(),
        opening: HashMap::new(),
        passes: HashMap::new(),
        reads: HashMap::new(),
        postponed: VecDeque::new(),
        rested: HashMap::new(),
        filled: VecDeque::new(),
        tier: tier.transpose()?,
        tiered: HashMap::new(),
        objects: Wanted::new(settings.cancel),
        names: names(&gateway)?,
        copied: vec![0; COPIED_BYTES].into(),
        epoll,
        handle: Arc::clone(&handle),
        questions: asked,
        channels: context.channels,
        returns,
        budget: Budget::new(Arc::clone(&context.ledger)),
        clock: context.clock,
        seldom: context.seldom,
        is_denial_told: false,
        looked_at: Instant { us: 0 },
        eager: Vec::new(),
        numbers: 0,
        gateway: Arc::clone(&gateway),
    };
    thread::Builder::new()
        .name("upstream".to_owned())
        .spawn(move || {
            sched::give_way();
            upstream.run();
        })?;
    context.ledger.take(context.device_bytes);
    context.ledger.enter(usize::from(gateway.device), waker);
    Ok(handle)
}
