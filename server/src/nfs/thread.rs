//! The thread of NFS beside a worker: it sleeps in epoll, tells the machines of its connections what happened, and has their orders
//! executed (`nfs/conn.rs`). It never waits for a disk: what may wait goes to the threads of the resolver, and bytes to the
//! disks' own.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ackpace_core::conn::{ConnId, StreamId, TcpEvent};
use ackpace_core::limits::{EVENTS_PER_TURN_MAX, NFS_PAUSE_US};
use ackpace_core::machine::Machine;
use ackpace_core::nfs::{CallId, In};
use ackpace_core::units::Instant;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::conn::{Conn, Turned, place_of};
use super::conns::Conns;
use super::hands::Hands;
use super::served::Outcome;
use crate::disk::Completion;
use crate::limits::{
    COMPLETIONS_PER_TURN_MAX, NFS_ACCEPTS_PER_TURN_MAX, NFS_LOOK_EACH_US, RESULTS_PER_TURN_MAX,
};
use crate::listeners::Listener;
use crate::log::Topic;
use crate::mailbox::ThreadWaker;
use crate::resolver::{Done, Inbox};
use crate::tcp;
use crate::transport::Transport;
use crate::worker::events::{EventSource, INTEREST, LISTENER, WAKER, conn_of, data_of};

/// The thread and its state.
pub struct Thread {
    hands: Hands,
    conns: Conns,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    /// epoll reports the listeners.
    is_listening: bool,
    /// When accepting is tried again after a failure.
    accepts_at: Option<Instant>,
    waker: Arc<ThreadWaker>,
    inbox: Inbox,
    /// When connections are looked at that nothing else wakes.
    looks_at: Option<Instant>,
    /// When what is left is cut off.
    ends_at: Option<Instant>,
    drain_timeout_us: u64,
}

/// What a thread is given besides its hands.
pub struct Given {
    pub listeners: Vec<Listener>,
    pub inbox: Inbox,
    /// Connections at once.
    pub connections: u32,
    pub drain_timeout_us: u64,
}

impl Thread {
    pub fn new(hands: Hands, given: Given) -> io::Result<Thread> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let waker = Arc::clone(&hands.shared.channels[usize::from(hands.number)].waker);
        epoll::add(&epoll, &*waker, EventData::new_u64(WAKER), EventFlags::IN)?;
        let mut thread = Thread {
            hands,
            conns: Conns::new(given.connections),
            epoll,
            listeners: given.listeners,
            is_listening: false,
            accepts_at: None,
            waker,
            inbox: given.inbox,
            looks_at: None,
            ends_at: None,
            drain_timeout_us: given.drain_timeout_us,
        };
        thread.listen(true)?;
        Ok(thread)
    }

    /// Serves until it is told to stop and the last connection has ended.
    pub fn run(mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(EVENTS_PER_TURN_MAX);
        while !self.is_over() {
            let timeout = self.sleeps_us().map(timespec);
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let now = self.now();
            self.turn(&events, now);
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        self.hands.shared.clock.now()
    }

    fn is_over(&self) -> bool {
        self.ends_at.is_some() && self.conns.open() == 0
    }

    /// How long it may sleep; `None`: until something happens.
    fn sleeps_us(&self) -> Option<u64> {
        if self.conns.due() > 0 {
            return Some(0);
        }
        let due = [self.looks_at, self.accepts_at, self.ends_at];
        let due = due.into_iter().flatten().min();
        due.map(|at| at.since_us(self.now()))
    }

    fn turn(&mut self, events: &[Event], now: Instant) {
        for event in events {
            match event.data.u64() {
                WAKER => self.hear(now),
                LISTENER => self.accept(now),
                of => self.tcp(conn_of(of), event.flags, now),
            }
        }
        self.hear_disks(now);
        // Each once: those that have more to do stand behind the others, and the next turn goes on.
        for _ in 0..self.conns.due() {
            let Some(conn) = self.conns.next_due() else {
                break;
            };
            let (id, turned) = (conn.id, conn.turn(&mut self.hands, now));
            match turned {
                Turned::Rests => {
                    self.looks_at = self.looks_at.or(Some(now.plus_us(NFS_LOOK_EACH_US)))
                }
                Turned::GoesOn => self.conns.list(id),
                Turned::Closed => self.closed(id, now),
            }
        }
        self.hands.wake_disks();
        self.look(now);
    }

    fn closed(&mut self, id: ConnId, now: Instant) {
        self.conns.remove(id);
        self.hands.tally.connections.set(self.conns.open().into());
        if !self.is_listening && self.ends_at.is_none() {
            self.accepts_at = Some(now);
        }
    }

    fn tcp(&mut self, id: ConnId, mut flags: EventFlags, now: Instant) {
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        let hung_up = flags.contains(EventFlags::HUP) && !flags.contains(EventFlags::ERR);
        if hung_up && conn.transport.is_dead() {
            flags |= EventFlags::ERR; // a send has taken the error along
        }
        EventSource::Epoll(flags).each(|event| conn.machine.on(In::Tcp(event), now));
        self.conns.list(id);
    }

    /// Another thread woke this one: a disk, a resolver, or who stops the server.
    fn hear(&mut self, now: Instant) {
        self.waker.awake();
        for _ in 0..RESULTS_PER_TURN_MAX {
            let Some((stream, done)) = self.inbox.take() else {
                break;
            };
            self.carried_out(stream, done, now);
        }
        if self.inbox.has_more() {
            self.waker.wake();
        }
        if self.hands.shared.stopping.load(Ordering::Acquire) && self.ends_at.is_none() {
            self.drain(now);
        }
    }

    fn carried_out(&mut self, stream: StreamId, done: Done, now: Instant) {
        let Some(conn) = self.conns.get(stream.conn) else {
            return; // it has departed
        };
        let call = CallId(stream.nth as u8); // as it was submitted
        match done {
            Done::Ran(result) => {
                let outcome = result.downcast().map_or(Outcome::Cold, |outcome| *outcome);
                conn.resolved(call, outcome, &self.hands, now);
            }
            answer => conn.answered(call, answer, &self.hands, now),
        }
        self.conns.list(stream.conn);
        self.quench(now);
    }

    /// There may be room for payload again: those that wait for it receive on.
    fn quench(&mut self, now: Instant) {
        for id in std::mem::take(&mut self.hands.thirsty) {
            if let Some(conn) = self.conns.get(id) {
                conn.machine.on(In::Tcp(TcpEvent::Readable), now);
                self.conns.list(id);
            }
        }
    }

    fn hear_disks(&mut self, now: Instant) {
        let shared = Arc::clone(&self.hands.shared);
        let completions = &shared.channels[usize::from(self.hands.number)].completions;
        for _ in 0..COMPLETIONS_PER_TURN_MAX {
            let Some(completion) = completions.take() else {
                return;
            };
            let (Completion::Fetched(stream, ..) | Completion::Failed(stream, ..)) = &completion;
            if let Some(conn) = self.conns.at(place_of(stream.conn.index)) {
                let id = conn.id;
                conn.hear(completion, now);
                self.conns.list(id);
            }
        }
        self.waker.wake(); // there may be more
    }

    /// Looks at all connections now and then: at timeouts, at pieces of the slab that clients have acknowledged, and at files that
    /// nobody reads any more.
    fn look(&mut self, now: Instant) {
        if self.accepts_at.is_some_and(|at| at <= now) {
            self.accepts_at = None;
            let _ = self.listen(true);
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.cut_off(now);
        }
        if self.looks_at.is_none_or(|at| at > now) {
            return;
        }
        let (mut again, mut due, mut stalled) =
            (!self.hands.thirsty.is_empty(), Vec::new(), Vec::new());
        for conn in self.conns.each() {
            again |= conn.tidy(now.since_us(conn.used_at) > 2 * NFS_PAUSE_US);
            if conn.stalls(now) {
                stalled.push(conn.id);
            } else if conn.machine.deadline().is_some_and(|at| at <= now) {
                due.push(conn.id);
            }
        }
        due.into_iter().for_each(|id| self.conns.list(id));
        stalled.into_iter().for_each(|id| self.cut(id, now));
        self.quench(now);
        self.looks_at = again.then(|| now.plus_us(NFS_LOOK_EACH_US));
    }

    /// Accepts clients. Where no place is left, the connection that has been idle for longest makes room: its client connects again
    /// when it has something to ask.
    fn accept(&mut self, now: Instant) {
        for nth in 0..self.listeners.len() {
            for _ in 0..NFS_ACCEPTS_PER_TURN_MAX {
                if self.conns.is_full() && !self.make_room(now) {
                    return;
                }
                match tcp::accept(&self.listeners[nth].socket) {
                    Ok(client) => self.adopt(client, now),
                    Err(Errno::AGAIN) => break,
                    // The client was gone before it was accepted, or sent us a network error (accept(2)).
                    Err(Errno::CONNABORTED | Errno::PROTO | Errno::PERM | Errno::INTR) => {}
                    Err(error) => return self.cannot_accept(error, now),
                }
            }
        }
    }

    fn adopt(&mut self, client: tcp::Accepted, now: Instant) {
        let Some(from) = client.peer else {
            return; // NFS has no other
        };
        let conn = Conn::new(Transport::new(client.socket), from, &self.hands, now);
        let Some(id) = self.conns.add(conn, &self.hands, now) else {
            return;
        };
        let tally = &self.hands.tally;
        tally.accepted.add(1);
        tally.connections.set(self.conns.open().into());
        let Some(conn) = self.conns.get(id) else {
            return;
        };
        if epoll::add(&self.epoll, &conn.transport, data_of(id), INTEREST).is_err() {
            return self.closed(id, now);
        }
        tracing::debug!(remote = %from, "NFS accepted");
        self.conns.list(id);
    }

    /// Closes an idle connection. `false`: there is none, and accepting waits until one ends.
    fn make_room(&mut self, now: Instant) -> bool {
        self.hands.tally.shed.add(1);
        let Some(id) = self.conns.idlest() else {
            let _ = self.listen(false);
            let text = format_args!(
                "no NFS connection is left: new clients wait until one ends or rests. Raise memory_max if this lasts"
            );
            self.hands.shared.seldom.tell(Topic::Full, None, text, now);
            return false;
        };
        self.end(id, In::Drain, now);
        true
    }

    /// Ends a connection now. The disks hear of it.
    fn end(&mut self, id: ConnId, why: In, now: Instant) {
        if let Some(conn) = self.conns.get(id) {
            conn.machine.on(why, now);
            let _ = conn.turn(&mut self.hands, now);
        }
        self.closed(id, now);
    }

    fn cannot_accept(&mut self, error: Errno, now: Instant) {
        self.hands.tally.shed.add(1);
        let text = format_args!(
            "accept (NFS): {error}; trying again in a tenth of a second. Raise LimitNOFILE if descriptors are short"
        );
        let seldom = &self.hands.shared.seldom;
        seldom.tell(Topic::Accept, None, text, now);
        let _ = self.listen(false);
        self.accepts_at = Some(now.plus_us(100_000));
    }

    /// Has epoll report the listeners, or not.
    fn listen(&mut self, on: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.is_listening, on) == on {
            return Ok(());
        }
        for listener in &self.listeners {
            match on {
                true => {
                    let data = EventData::new_u64(LISTENER);
                    epoll::add(&self.epoll, listener, data, EventFlags::IN)?;
                }
                false => epoll::delete(&self.epoll, listener)?,
            }
        }
        Ok(())
    }

    /// It is told to stop: calls that have come are answered.
    fn drain(&mut self, now: Instant) {
        let _ = self.listen(false);
        self.listeners.clear();
        self.accepts_at = None;
        self.ends_at = Some(now.plus_us(self.drain_timeout_us));
        let ids: Vec<ConnId> = self.conns.each().map(|conn| conn.id).collect();
        for id in ids {
            if let Some(conn) = self.conns.get(id) {
                conn.drain(now);
            }
            self.conns.list(id);
        }
    }

    /// The drain has taken long enough.
    fn cut_off(&mut self, now: Instant) {
        let ids: Vec<ConnId> = self.conns.each().map(|conn| conn.id).collect();
        for id in ids {
            self.cut(id, now);
        }
    }

    fn cut(&mut self, id: ConnId, now: Instant) {
        if let Some(conn) = self.conns.get(id) {
            conn.transport.abort();
        }
        self.end(id, In::Tcp(TcpEvent::Reset), now);
    }
}

fn timespec(us: u64) -> Timespec {
    Timespec {
        tv_sec: (us / 1_000_000) as i64,
        tv_nsec: (us % 1_000_000 * 1000) as i64,
    }
}
