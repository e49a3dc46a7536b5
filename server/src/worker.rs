//! The thread of a worker: it reports events to the machine, executes the orders, and sleeps in epoll until the next
//! event. It decides nothing.
//!
//! The orders and bytes of a turn are bounded, so that new requests never wait long.

mod accept;
mod answer;
mod conns;
mod events;
mod execute;
mod look;
mod sending;
mod source;
mod transmit;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ackpace_core::conn::{ConnId, Held, Span, StreamId, WantSeq};
use ackpace_core::disk::{Chosen, ReadError};
use ackpace_core::limits::{EVENTS_PER_TURN_MAX, LOWAT_BYTES_START};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::why::Why;
use ackpace_core::worker::{Budget, In, Policy, Settings, Worker as Decider};
use crossbeam_channel::Receiver;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};

use self::conns::Conns;
pub use self::conns::PLACE_BYTES;
use self::events::EventSource;
use crate::answers::Question;
use crate::clock::Clock;
use crate::disk::{Channel, Completion, ReadBytes};
use crate::disks::Disks;
use crate::front::http::HeadPool;
use crate::front::site::Site;
use crate::handover::HandOver;
use crate::ledger::Ledger;
use crate::limits::{
    COPIED_BYTES_MAX, NEWS_PER_TURN_MAX, QUESTIONS_PER_TURN_MAX, RESULTS_PER_TURN_MAX,
};
use crate::log::AccessHandle;
use crate::mailbox::ThreadWaker;
use crate::resolver::{Inbox, Resolver};
use crate::response_cache::ResponseCache;
use crate::response_cache::watch::Watch;
use crate::tally::Tally;
use crate::tcp;

/// What all workers share.
pub struct Shared {
    /// What is served.
    pub site: Arc<Site>,
    /// The disk threads.
    pub disks: Arc<Disks>,
    /// Each worker's mailboxes for completions from the disks, and its waker.
    pub channels: Arc<Vec<Channel>>,
    /// Each worker's hand-over queue and published load.
    pub handovers: Vec<HandOver>,
    /// The thread pool for work that may block.
    pub resolver: Resolver,
    /// Set when the server is to stop; the wakers are woken afterwards.
    pub stopping: AtomicBool,
    /// The clock of all machines.
    pub clock: Clock,
    /// The account of the memory that `memory_max` allows.
    pub ledger: Arc<Ledger>,
    /// Bytes that one connection is charged in `ledger`.
    pub connection_bytes: u64,
}

/// A worker's thread and its state.
pub struct Worker {
    decider: Decider,
    index: usize,
    shared: Arc<Shared>,
    waker: Arc<ThreadWaker>,
    inbox: Inbox,
    questions: Receiver<Question>,
    log: AccessHandle,
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    conns: Conns,
    heads: HeadPool,
    /// A buffer for bytes of the page cache that are copied without waiting for a disk.
    copied: Box<[u8]>,
    response_cache: ResponseCache,
    /// `None` where inotify(7) is refused.
    watch: Option<Watch>,
    draining: bool,
    /// The disk threads to wake at the end of the turn, a bit each.
    disks_to_wake: u64,
    /// What this turn may still do.
    budget: Budget,
    tally: Arc<Tally>,
    /// Lost wakeups already reported.
    mended: u64,
}

/// What a worker is given besides its settings.
pub struct Equipment {
    /// Results of the resolvers.
    pub inbox: Inbox,
    /// Questions of operators.
    pub questions: Receiver<Question>,
    /// The counters of this worker.
    pub tally: Arc<Tally>,
    /// The access log.
    pub log: AccessHandle,
    /// Listening sockets.
    pub listeners: Vec<OwnedFd>,
    /// Memory for the response cache.
    pub response_cache_bytes: u64,
}

/// User data of epoll events that are not about a connection. Connection ids, as `u64`, are below these.
const WAKER: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const WATCH: u64 = u64::MAX - 2;

impl Worker {
    /// A worker that is ready to run.
    ///
    /// # Errors
    /// When descriptors are lacking.
    pub fn new(
        settings: Settings,
        shared: Arc<Shared>,
        equipment: Equipment,
    ) -> io::Result<Worker> {
        let Equipment {
            inbox,
            questions,
            tally,
            log,
            listeners,
            response_cache_bytes,
        } = equipment;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let decider = Decider::new(settings);
        let places_max = decider.connections_max();
        let index = usize::from(settings.worker);
        let waker = Arc::clone(&shared.channels[index].waker);
        epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        let lowat_bytes = match settings.send {
            Policy::Margin { .. } => Some(LOWAT_BYTES_START),
            Policy::Eager => None,
        };
        for listener in &listeners {
            if let Some(bytes) = lowat_bytes {
                // Inherited by accepted sockets.
                tcp::set_lowat(listener, bytes);
                tcp::open_send_buffer(listener);
            }
            epoll::add(
                &epoll,
                listener,
                EventData::new_u64(LISTENER),
                EventFlags::IN,
            )?;
        }
        let ledger = Arc::clone(&shared.ledger);
        let watch = if response_cache_bytes > 0 {
            Watch::new().ok()
        } else {
            None
        };
        if let Some(watch) = &watch {
            epoll::add(&epoll, watch, EventData::new_u64(WATCH), EventFlags::IN)?;
        }
        Ok(Worker {
            decider,
            index,
            shared,
            waker,
            inbox,
            questions,
            log,
            epoll,
            listeners,
            conns: Conns::new(places_max, lowat_bytes),
            heads: HeadPool::default(),
            copied: vec![0; COPIED_BYTES_MAX].into(),
            response_cache: ResponseCache::new(response_cache_bytes).on(ledger),
            watch,
            draining: false,
            disks_to_wake: 0,
            budget: Budget::default(),
            tally,
            mended: 0,
        })
    }

    /// Serves until it is told to stop and the last connection has ended.
    ///
    /// # Errors
    /// When epoll_wait(2) fails, other than by a signal.
    pub fn run(mut self) -> io::Result<()> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.tally.thread.set(thread.unsigned_abs().into());
        let mut events = Vec::with_capacity(EVENTS_PER_TURN_MAX);
        while !self.is_over() {
            let timeout = self
                .decider
                .deadline()
                .map(|at| timespec(at.since_us(self.now())));
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let begun = self.now();
            // Only waits that could block are counted.
            self.tally.wakeups.add(
                timeout
                    .is_none_or(|timeout| timeout != Timespec::default())
                    .into(),
            );
            self.turn(&events, begun);
            self.report_load(begun);
            self.publish();
            let took_us = self.now().since_us(begun);
            self.tally.turns.add(took_us);
        }
        Ok(())
    }

    /// Whether the worker was told to stop, its last connection has ended, and no other worker leaves one more for it.
    fn is_over(&self) -> bool {
        if self.decider.finished() && !self.has_accepted_waiting() {
            self.shared.handovers[self.index].end();
        }
        self.decider.finished() && !self.has_accepted_waiting()
    }

    /// Whether connections that others accepted wait in the hand-over queue.
    fn has_accepted_waiting(&self) -> bool {
        !self.shared.handovers[self.index].is_empty()
    }

    /// Publishes this worker's load for the others.
    fn report_load(&self, now: Instant) {
        if self.shared.handovers.len() > 1 {
            let (known, rate_bytes_per_s) = self.decider.rates(now);
            self.shared.handovers[self.index].measured(known, rate_bytes_per_s);
        }
    }

    fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    fn turn(&mut self, events: &[Event], now: Instant) {
        let mut signalled = false;
        self.take_handed(now);
        for event in events {
            match event.data.u64() {
                WAKER => {
                    signalled = true;
                    self.hear(now);
                }
                WATCH => {
                    if let Some(watch) = &mut self.watch {
                        watch.hear(self.response_cache.changes(), now);
                    }
                }
                LISTENER => self.decider.on(In::Incoming, now),
                of => self.tcp_event(conn_of(of), &EventSource::Epoll(event.flags), now),
            }
        }
        self.hear_disks(now);
        self.budget = Budget::default();
        while let Some(out) = self.decider.poll(now) {
            self.execute(out, now);
            if let Some(cut) = self.budget.executed() {
                self.tally.turns_cut[cut as usize].add(1);
                break;
            }
        }
        self.look_up_again(now);
        if self.has_accepted_waiting() && self.room() > 0 {
            self.waker.wake(); // a slot came free
        }
        // Answered after the orders: before them, a connection might be shown as it was before this turn's events took
        // effect.
        if signalled {
            for question in self
                .questions
                .clone()
                .try_iter()
                .take(QUESTIONS_PER_TURN_MAX)
            {
                self.tell(&question, now);
            }
            if !self.questions.is_empty() {
                self.waker.wake();
            }
        }
        self.shared
            .disks
            .wake(std::mem::take(&mut self.disks_to_wake));
    }

    /// Publishes the machine's counters, and reports lost wakeups.
    fn publish(&mut self) {
        let mended = self.decider.counts().mended;
        let more = mended - std::mem::replace(&mut self.mended, mended);
        if more > 0 {
            tracing::error!(
                streams = more,
                "streams waited for the disk and nothing worked for them; they go on now. Please report this"
            );
        }
        self.tally.decided.follow(self.decider.counts());
        self.tally
            .connections
            .set(self.decider.connections().into());
        self.tally
            .target_us
            .set(self.decider.target_us().unwrap_or(0));
    }

    /// Takes the completions of the disks, which wake this thread only for streams that are stalled or soon will be.
    fn hear_disks(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        for _ in 0..NEWS_PER_TURN_MAX {
            match shared.channels[self.index].completions.take() {
                Some(Completion::Filled(stream, seq, span, fill, chosen)) => {
                    self.filled((stream, seq), span, (fill, chosen), now);
                }
                Some(Completion::Failed(stream, seq, error)) => {
                    self.read_failed((stream, seq), error, now);
                }
                None => return,
            }
        }
        self.waker.wake(); // there may be more
    }

    /// Bytes of a stream are in memory. Slots that come for a departed client are freed at once.
    fn filled(
        &mut self,
        (stream, seq): (StreamId, WantSeq),
        span: Span,
        (fill, chosen): (ReadBytes, Chosen),
        now: Instant,
    ) {
        let held = match fill {
            ReadBytes::PageCache => Held::PageCache,
            ReadBytes::Slots(piece) => {
                let awaited = self.decider.awaits(stream, seq);
                if let Some(conn) = self.conns.get(stream.conn).filter(|_| awaited) {
                    // A re-read replaces the pieces from its offset on.
                    conn.pieces
                        .retain(|before| before.span.offset_bytes < span.offset_bytes);
                    conn.pieces.push_back(piece);
                }
                Held::Slots
            }
        };
        let filled = In::Filled {
            stream,
            seq,
            span,
            held,
            chosen,
        };
        self.decider.on(filled, now);
    }

    /// The waker was woken: by a disk, a resolver, another worker, the control thread, or to stop the server.
    fn hear(&mut self, now: Instant) {
        self.waker.awake();
        for _ in 0..RESULTS_PER_TURN_MAX {
            let Some((stream, done)) = self.inbox.take() else {
                break;
            };
            self.resolver_done(stream, done, now);
        }
        if self.inbox.has_more() {
            self.waker.wake();
        }
        if self.shared.stopping.load(Ordering::Acquire) && !self.draining {
            self.drain(now);
        }
    }

    fn read_failed(&mut self, (stream, seq): (StreamId, WantSeq), error: ReadError, now: Instant) {
        let awaited = self.decider.awaits(stream, seq);
        let conn = self.conns.get(stream.conn).filter(|_| awaited);
        let source = conn.and_then(|conn| conn.source.as_ref());
        let why = match error.errno {
            0 => Why::FileChanged, // it ended before the promised length
            _ => Why::ReadFailed,
        };
        if let Some(source) = source {
            let file = self.shared.site.shown(source.path());
            let offset_bytes = error.offset_bytes;
            if why == Why::ReadFailed {
                let error = io::Error::from_raw_os_error(error.errno);
                tracing::error!(
                    file,
                    offset_bytes,
                    "read failed: {error}; the response ends here"
                );
            } else {
                tracing::error!(file, offset_bytes, "{why}: the response ends here");
            }
        }
        self.decider.on(In::Unfilled { stream, seq, why }, now);
    }

    /// Takes what waits in the backlogs, closes the listeners, and lets the machine end the rest.
    fn drain(&mut self, now: Instant) {
        self.draining = true;
        self.accept(self.room(), now);
        for listener in self.listeners.drain(..) {
            let _ = epoll::delete(&self.epoll, &listener);
        }
        self.decider.on(In::Drain, now);
    }
}

fn conn_of(data: u64) -> ConnId {
    ConnId {
        index: data as u32,
        generation: (data >> 32) as u32,
    }
}

/// The events that epoll reports of a connection's socket.
const INTEREST: EventFlags = EventFlags::IN
    .union(EventFlags::OUT)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);

fn data_of(conn: ConnId) -> EventData {
    EventData::new_u64((u64::from(conn.generation) << 32) | u64::from(conn.index))
}

fn timespec(us: u64) -> Timespec {
    Timespec {
        tv_sec: (us / 1_000_000) as i64,
        tv_nsec: (us % 1_000_000 * 1000) as i64,
    }
}
