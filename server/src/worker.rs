//! The thread of a worker: it reports events to the machine ([`ackpace_core::worker`]), executes the orders, and sleeps
//! in epoll until the next event. It decides nothing. Finding and planning a response is in `answer`, sending in
//! `sending`; a cold byte goes to the thread of its disk (`server/src/disk.rs`) and comes back as a completion.
//!
//! The orders and bytes of a turn are bounded, so that new requests never wait long.

mod accept;
mod answer;
mod conns;
mod divide;
pub(crate) mod events;
mod fetch;
mod flow;
mod handover;
mod moves;
mod nodes;
pub(crate) mod pins;
mod place;
mod report;
pub(crate) mod sending;
mod snapshot;
mod start;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ackpace_core::conn::{ConnId, Held, Span, StreamId, TcpEvent, Want, WantSeq};
use ackpace_core::disk::ReadError;
use ackpace_core::limits::EVENTS_PER_TURN_MAX;
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_core::why::Chosen;
use ackpace_core::why::Why;
use ackpace_core::worker::{Budget, Expect, In, Out, Outcome, Worker as Decider};
use crossbeam_channel::Receiver;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};

pub use self::conns::{Body, Conn, PLACE_BYTES};
use self::conns::{Conns, ListingSlices};
use self::events::{EventSource, LISTENER, WAKER, conn_of};
pub use self::flow::Flow;
pub use self::handover::{HandOver, Handed};
use self::moves::Giving;
pub use self::nodes::{Ask, Nodes, Told};
pub use self::start::{Shared, WorkerContext};
use crate::answers::Question;
use crate::clock::unix_ms;
use crate::disk::{self, Completion, DiskAsk, ReadBytes};
use crate::front::http::{Ended, HeadPool};
use crate::limits::{COMPLETIONS_PER_TURN_MAX, QUESTIONS_PER_TURN_MAX, RESULTS_PER_TURN_MAX};
use crate::listeners::Listener;
use crate::log::AccessHandle;
use crate::mailbox::ThreadWaker;
use crate::resolver::Inbox;
use crate::response_cache::ResponseCache;
use crate::tally::Tally;

/// A worker's thread and its state. What it is given is documented in [`Shared`] and [`WorkerContext`].
pub struct Worker {
    decider: Decider,
    index: usize,
    shared: Arc<Shared>,
    waker: Arc<ThreadWaker>,
    inbox: Inbox,
    questions: Receiver<Question>,
    log: AccessHandle,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// TCP_NOTSENT_LOWAT of the sockets that come from them; `None`: the system's.
    lowat_bytes: Option<u32>,
    /// The listener that was first to be accepted from the last time.
    first_listener: usize,
    conns: Conns,
    heads: HeadPool,
    /// A buffer for bytes of the page cache that are copied without waiting for a disk.
    copied: Box<[u8]>,
    response_cache: ResponseCache,
    draining: bool,
    giving: Giving,
    /// When to look whether clients have acknowledged pieces of the slab.
    pins_due: Option<Instant>,
    /// The disk threads to wake at the end of the turn, a bit each.
    disks_to_wake: u64,
    /// What this turn may still do.
    budget: Budget,
    tally: Arc<Tally>,
    mended: u64,
}

impl Worker {
    /// Serves until it is told to stop and the last connection has ended.
    pub fn run(mut self) -> io::Result<()> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        self.tally.thread.set(thread.unsigned_abs().into());
        let mut events = Vec::with_capacity(EVENTS_PER_TURN_MAX);
        while !self.is_over() {
            let due = [
                self.decider.sleeps_until(),
                self.response_cache.closes_at(),
                self.pins_due,
            ];
            let due = due.into_iter().flatten().min();
            let timeout = due.map(|at| timespec(at.since_us(self.now())));
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
            self.response_cache.close_files(begun);
            self.release_pins(begun);
            self.report_load(begun);
            self.publish();
            let took_us = self.now().since_us(begun);
            self.tally.turns.add(took_us);
        }
        Ok(())
    }

    /// Whether the worker was told to stop, its last connection has ended, and no other worker leaves one more for it.
    fn is_over(&self) -> bool {
        let is_over = self.decider.finished()
            && !self.has_accepted_waiting()
            && self.shared.nodes.under_way() == 0;
        if is_over {
            self.shared.handovers[self.index].end();
        }
        is_over
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
                LISTENER => self.decider.on(In::Incoming, now),
                of => {
                    let reported = self.reported(conn_of(of), event.flags);
                    self.tcp_event(conn_of(of), &reported, now);
                }
            }
        }
        self.hear_disks(now);
        self.hear_divider(now);
        self.hear_nodes(now);
        self.budget = Budget::default();
        while let Some(out) = self.decider.poll(now) {
            self.execute(out, now);
            if let Some(cut) = self.budget.executed() {
                self.tally.turns_cut[cut as usize].add(1);
                break;
            }
        }
        self.balance(now);
        self.empty(now);
        self.empty_backlogs(now);
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

    /// Takes the completions of the disks, which wake this thread only for streams that are stalled or soon will be.
    fn hear_disks(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        for _ in 0..COMPLETIONS_PER_TURN_MAX {
            match shared.channels[self.index].completions.take() {
                Some(Completion::Fetched(stream, seq, span, fill, chosen)) => {
                    self.fetched((stream, seq), span, (fill, chosen), now);
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
    fn fetched(
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
                    conn.body
                        .pieces
                        .retain(|before| before.span.offset_bytes < span.offset_bytes);
                    conn.body.pieces.push_back(piece);
                }
                Held::Slots
            }
        };
        let fetched = In::Fetched {
            stream,
            seq,
            span,
            held,
            chosen,
        };
        self.decider.on(fetched, now);
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

    /// The bytes of a want can't be read. A late answer is void, and not worth a line of the log.
    fn read_failed(&mut self, (stream, seq): (StreamId, WantSeq), error: ReadError, now: Instant) {
        let why = match error.errno {
            0 => Why::FileChanged, // it ended before the promised length
            _ => Why::ReadFailed,
        };
        if self.decider.awaits(stream, seq) {
            if self.read_here((stream, seq), error, now) {
                return;
            }
            self.tell_read_failed(stream, error, why, now);
        }
        self.decider.on(In::FetchFailed { stream, seq, why }, now);
    }

    /// What epoll reports of a socket. A send that a reset met after some bytes has taken the error along, so EPOLLERR is
    /// missing. Left at that, a connection without room in its share of send memory would be called and refused for ever.
    fn reported(&mut self, conn: ConnId, mut flags: EventFlags) -> EventSource {
        let hung_up = flags.contains(EventFlags::HUP) && !flags.contains(EventFlags::ERR);
        let conn = self.conns.get(conn).filter(|_| hung_up);
        if conn.is_some_and(|conn| conn.transport.is_dead()) {
            flags |= EventFlags::ERR;
        }
        EventSource::Epoll(flags)
    }

    /// The one door by which the machine hears of TCP. Nothing else in the shell makes a [`TcpEvent`].
    fn tcp_event(&mut self, conn: ConnId, source: &EventSource, now: Instant) {
        source.each(|event| {
            if matches!(event, TcpEvent::Reset) {
                tracing::debug!(?conn, "the connection is dead, by {source:?}");
            }
            self.decider.on(In::Tcp { conn, event }, now);
        });
    }

    fn execute(&mut self, out: Out, now: Instant) {
        match out {
            Out::Accept(most) => self.accept(most, now),
            Out::Listen(on) => self.listen(on, now),
            Out::Receive { conn, expect } => self.receive(conn, expect, now),
            Out::Resolve { stream, refuse } => self.resolve(stream, refuse, now),
            Out::Probe { stream, span, .. } => self.probe(stream, span, now),
            Out::Want(want) => {
                self.want(want, now);
            }
            Out::Forget(stream) => self.forget(stream),
            Out::Release(stream) => self.release(stream),
            Out::Ended(stream) => self.ended(stream, now),
            Out::Slice(stream) => self.slice(stream, now),
            Out::Send(order) => self.send(&order, now),
            Out::Underfed {
                conn,
                epollout_bytes,
            } => self.watch_level(conn, epollout_bytes),
            Out::Push(conn) => self.push(conn),
            Out::Pace {
                conn,
                rate_bytes_per_s,
            } => {
                if let Some(conn) = self.conns.get(conn) {
                    conn.transport.set_pace(rate_bytes_per_s);
                }
            }
            Out::Cap { conn, cap_bytes } => self.join(conn, cap_bytes, now),
            Out::Sample(conn) => self.sample(conn, now),
            Out::Arrived { stream, outcome } => self.arrived(stream, &outcome),
            Out::Shutdown(conn) => {
                if let Some(conn) = self.conns.get(conn) {
                    if conn.is_guest() {
                        conn.transport.say_farewell();
                    }
                    conn.transport.shutdown();
                }
            }
            Out::Close { conn, abort, why } => self.close(conn, abort, why),
            Out::Export { conn, exported } => self.exported(conn, exported, now),
            Out::Keep { .. } => self.kept(),
        }
    }

    fn sample(&mut self, conn: ConnId, now: Instant) {
        if let Some(sample) = self.conns.get(conn).map(|conn| conn.transport.sample()) {
            self.tcp_event(conn, &EventSource::TcpInfo(sample), now);
        }
    }

    fn receive(&mut self, id: ConnId, expect: Expect, now: Instant) {
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let received = match expect {
            Expect::Head => conn.front.receive(&conn.transport, &mut self.heads),
            Expect::Body => conn.front.skip_body(&conn.transport, &mut self.heads),
            Expect::Rest => conn.front.discard(&conn.transport, &mut self.heads),
        };
        match received {
            Ok(received) => self.decider.on(In::Received { conn: id, received }, now),
            Err(_) => self.tcp_event(id, &EventSource::SocketError, now),
        }
    }

    fn release(&mut self, stream: StreamId) {
        if let Some(conn) = self.conns.get(stream.conn) {
            conn.body.pieces.clear();
        }
    }

    fn probe(&mut self, stream: StreamId, span: Span, now: Instant) {
        let conn = self.conns.get(stream.conn);
        let source = conn.and_then(|conn| conn.body.source.as_ref());
        let is_resident = source.is_some_and(|source| source.is_resident(span));
        let probed = In::Probed {
            stream,
            is_resident,
        };
        self.decider.on(probed, now);
    }

    fn want(&mut self, want: Want, now: Instant) {
        let Some(conn) = self.conns.get(want.stream.conn) else {
            return;
        };
        let Some(source) = conn.body.source.clone() else {
            return;
        };
        let device = want.object.device;
        match self.shared.disks.get(device) {
            Ok(disk) => {
                conn.asked = Some(device);
                disk.ask(
                    want.stream.worker,
                    want.stream.conn.index,
                    DiskAsk::Want(want, source),
                );
                self.disks_to_wake |= 1 << device;
            }
            Err(error) => {
                disk::tell_lacking(&error, &self.shared.seldom, now);
                self.decider.on(
                    In::Failed {
                        stream: want.stream,
                        why: Why::ReadFailed,
                    },
                    now,
                );
            }
        }
    }

    fn forget(&mut self, stream: StreamId) {
        let Some(device) = self
            .conns
            .get(stream.conn)
            .and_then(|conn| conn.asked.take())
        else {
            return;
        };
        if let Ok(disk) = self.shared.disks.get(device) {
            disk.ask(stream.worker, stream.conn.index, DiskAsk::Forget(stream));
            self.disks_to_wake |= 1 << device;
        }
    }

    fn ended(&mut self, stream: StreamId, now: Instant) {
        let clock = self.shared.clock;
        if let Some(conn) = self.conns.get(stream.conn) {
            conn.front.ended(stream.nth, || Ended {
                unix_ms: unix_ms(),
                later_us: clock.now().since_us(now),
            });
            conn.uncork();
            (conn.body, conn.listing) = (Body::default(), ListingSlices::default());
        }
    }

    fn close(&mut self, id: ConnId, abort: bool, why: Why) {
        let Some(mut conn) = self.conns.remove(id) else {
            return;
        };
        self.closed();
        match abort {
            true => conn.transport.abort(),
            false if conn.is_guest() => conn.transport.say_farewell(),
            false => {}
        }
        if let Some(flow) = conn.flow.take().filter(|flow| flow.home.is_some()) {
            self.tell_gone(*flow);
        }
        if abort && why == Why::Draining && conn.owed_bytes.is_some() {
            self.shared.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        self.end_share(&conn);
        conn.front.release(&mut self.heads);
        tracing::debug!(remote = %conn.remote(), "closed: {why}");
    }

    fn arrived(&mut self, stream: StreamId, outcome: &Outcome) {
        let shared = Arc::clone(&self.shared);
        let Some(conn) = self.conns.get(stream.conn) else {
            return;
        };
        let node = shared
            .cluster
            .as_deref()
            .map(|it| (it.name(), conn.moves()));
        let record = (conn.front).record(stream.nth, conn.remote(), outcome, node);
        // The node that asked writes the line.
        if let Some(record) = record.filter(|_| !conn.is_of_node) {
            self.log.log(&record);
        }
    }
}

fn timespec(us: u64) -> Timespec {
    Timespec {
        tv_sec: (us / 1_000_000) as i64,
        tv_nsec: (us % 1_000_000 * 1000) as i64,
    }
}
