//! The thread of a node: it opens and takes streams, tells the other nodes what they need to know, and hears them. Nothing in it
//! waits but epoll.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ackpace_core::units::{Instant, US_PER_S};
use ackpace_wire::cluster::{FlowId, Frame, Load, Message};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};

use super::member::{Due, Member, OPENING_US_MAX};
use super::stream::{self, Broken, Stream};
use super::table::Place;
use super::tls::Tls;
use super::{Cluster, Flows, lock};

/// Events that are heard in one turn. More: the next turn hears them.
const EVENTS_MAX: usize = 128;
/// Frames that are taken from the workers in one turn. More: the next turn takes them.
const MAIL_PER_TURN_MAX: usize = 1024;
/// How often load and caches are told.
const TELL_US: u64 = US_PER_S;
/// What is wrong with a node stands in the log once in this time.
const LOG_EACH_US: u64 = 60 * US_PER_S;
/// The events of the waker and of the listener; streams count from 2.
pub const WAKER: u64 = 0;
pub const LISTENER: u64 = 1;

/// Tells how busy this node is.
pub type Busy = Box<dyn Fn() -> Load + Send>;

/// Takes a node's place, its name, and the address of its HTTP.
pub type Meet = Box<dyn Fn(usize, &str, SocketAddr) -> std::io::Result<()> + Send>;

/// A stream, from its first moment on.
pub struct Open {
    pub stream: Stream,
    /// The other node, once that is known.
    pub node: Option<usize>,
    /// This node opened it.
    pub is_ours: bool,
    /// It only asks whether the other node's port refuses.
    pub is_probe: bool,
    /// This node's HELLO was said.
    pub is_greeted: bool,
    /// The other node's HELLO was heard.
    pub stands: bool,
    pub since: Instant,
    /// epoll reports when it can be written to.
    watches_out: bool,
}

pub struct Thread {
    pub cluster: Arc<Cluster>,
    pub tls: Tls,
    /// Whom each place is for.
    pub places: Vec<Place>,
    pub listener: OwnedFd,
    pub epoll: OwnedFd,
    /// By place; that of this node is not used.
    pub members: Vec<Member>,
    /// The stream to each node that stands.
    pub standing: Vec<Option<u64>>,
    /// All streams. Each node has one that is ours, and of those that others open as many stand as there are nodes, and twice as
    /// many open.
    pub open: HashMap<u64, Open>,
    pub last_id: u64,
    pub busy: Busy,
    pub flows: Box<dyn Flows>,
    pub tell_at: Instant,
    pub told_draining: bool,
    /// Another node is there from now on: where its HTTP is to be asked.
    pub meet: Meet,
    /// When it was last said that there is no room for more nodes.
    pub full_told: Option<Instant>,
    /// When something was last said of each node in the log; of strangers in the place of this node.
    pub logged: Vec<Option<Instant>>,
}

impl Thread {
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = self.now();
            self.turn(&events, now);
            events.clear();
            let timeout = self.timeout();
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&timeout));
        }
    }

    pub fn now(&self) -> Instant {
        self.cluster.clock.now()
    }

    fn timeout(&self) -> Timespec {
        let due = self.others().map(|node| self.members[node].deadline());
        let opening = self.open.values().filter(|open| !open.stands);
        let cut = opening.map(|open| open.since.plus_us(OPENING_US_MAX));
        let due = due.chain(cut).chain(self.flows.deadline()).min();
        let due = due.map_or(self.tell_at, |due| due.min(self.tell_at));
        // A millisecond more: it is due when the thread wakes.
        let left = Duration::from_micros(due.since_us(self.now()) + 1000);
        Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        }
    }

    /// The places of the other nodes.
    fn others(&self) -> impl Iterator<Item = usize> + '_ {
        let places = self.places.iter().enumerate();
        let others = places.filter(|(node, place)| *node != self.cluster.me && place.key.is_some());
        others.map(|(node, _)| node)
    }

    fn turn(&mut self, events: &[Event], now: Instant) {
        self.cluster.waker.awake();
        for event in events {
            match event.data.u64() {
                WAKER => {}
                LISTENER => self.accept(now),
                id => self.hear(id, now),
            }
        }
        self.take_list(now);
        self.take_mail(now);
        self.keep_time(now);
        self.flows.turn(now);
        while let Some((node, frame)) = self.flows.next_frame() {
            self.send(node, &self.for_wire(frame), now);
        }
        if self.tell_at <= now || self.told_draining != self.cluster.is_draining() {
            self.tell(now);
        }
    }

    /// Sends what the workers left.
    fn take_mail(&mut self, now: Instant) {
        let mail = self.cluster.heard.clone();
        for (node, frame) in mail.try_iter().take(MAIL_PER_TURN_MAX) {
            self.send(node, &self.for_wire(frame), now);
        }
        if !mail.is_empty() {
            self.cluster.waker.wake();
        }
    }

    /// Opens, keeps and cuts streams, each in its time.
    fn keep_time(&mut self, now: Instant) {
        self.drop_unlisted(now);
        let others: Vec<usize> = self.others().collect();
        for node in others {
            match self.members[node].due(now) {
                Some(Due::Dial) => self.dial(node, now),
                Some(Due::Ping) => self.send(node, &about_none(Message::Ping), now),
                Some(Due::Cut) => self.cut_silent(node, now),
                None => {}
            }
        }
        let late = |open: &Open| !open.stands && open.since.plus_us(OPENING_US_MAX) <= now;
        let late = self.open.iter().filter(|(_, open)| late(open));
        let late: Vec<u64> = late.map(|(id, _)| *id).collect();
        for id in late {
            let why = "it sent no HELLO within 5 s".to_owned();
            self.cut(id, Broken::Wrong(why), now);
        }
    }

    fn cut_silent(&mut self, node: usize, now: Instant) {
        let ours = |open: &Open| open.is_ours && open.node == Some(node);
        let opening = || self.open.iter().find(|(_, o)| ours(o)).map(|(id, _)| *id);
        match self.standing[node].or_else(opening) {
            Some(id) => {
                let why = "it was silent for too long".to_owned();
                self.cut(id, Broken::Closed(why), now);
            }
            None => self.members[node].broke(now),
        }
    }

    /// Tells all what is told each second, or when it changed.
    fn tell(&mut self, now: Instant) {
        let load = (self.busy)();
        self.tell_at = now.plus_us(TELL_US);
        self.told_draining = load.draining;
        self.cluster.told(self.cluster.me, load);
        for (node, count) in self.cluster.tally.taken_over() {
            let plural = if count == 1 { "" } else { "s" };
            let name = self.cluster.name_of(node);
            tracing::info!("cluster: took {count} connection{plural} over from {name}");
        }
        let came = lock(&self.cluster.reports).take();
        let mut frames = vec![about_none(Message::Load(load))];
        if !came.is_empty() {
            frames.push(about_none(Message::Came(came)));
        }
        for node in 0..self.standing.len() {
            for frame in &frames {
                self.send(node, frame, now);
            }
        }
    }

    /// Sends a frame to a node, if a stream to it stands.
    fn send(&mut self, node: usize, frame: &Frame, now: Instant) {
        let Some(id) = self.standing.get(node).copied().flatten() else {
            return;
        };
        let Some(open) = self.open.get_mut(&id) else {
            return;
        };
        open.stream.push(frame);
        self.members[node].said(now);
        self.cluster.tally.frames[0].fetch_add(1, Relaxed);
        match open.stream.send() {
            Ok(()) => watch(&self.epoll, id, open),
            Err(broken) => self.cut(id, broken, now),
        }
    }

    /// Takes the streams that others open, if they come from where the other nodes are.
    fn accept(&mut self, now: Instant) {
        for _ in 0..EVENTS_MAX {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (socket, from) = match acceptfrom_with(&self.listener, flags) {
                Ok(accepted) => accepted,
                Err(Errno::INTR | Errno::CONNABORTED | Errno::PROTO | Errno::PERM) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    // Out of descriptors: the other side tries again, and this thread must not spin.
                    std::thread::sleep(Duration::from_millis(10));
                    return;
                }
            };
            let from = from.and_then(|from: SocketAddrAny| SocketAddr::try_from(from).ok());
            let is_known = from.is_some_and(|from| self.cluster.has_node_at(from.ip()));
            if !is_known {
                let from = from.map_or_else(|| "somewhere".to_owned(), |from| from.to_string());
                self.refused(None, &format!("{from} is not the address of a node"), now);
                continue;
            }
            self.make_room(now);
            let tls = stream::tune(&socket).map_err(|error| error.to_string());
            let tls = tls.and_then(|()| self.tls.answer().map_err(|error| error.to_string()));
            if let Ok(tls) = tls {
                self.add(Stream::new(socket, tls, false), None, false, now);
            }
        }
    }

    /// Of the streams that others are opening, the oldest makes room.
    fn make_room(&mut self, now: Instant) {
        let opening = self.open.iter().filter(|(_, o)| !o.is_ours && !o.stands);
        let opening: Vec<(Instant, u64)> = opening.map(|(id, open)| (open.since, *id)).collect();
        if opening.len() >= 2 * self.others().count() {
            if let Some((_, id)) = opening.into_iter().min() {
                let why = "too many streams are being opened at once".to_owned();
                self.cut(id, Broken::Wrong(why), now);
            }
        }
    }

    /// Opens the stream to a node, if that is ours to do; otherwise only looks whether its port refuses.
    fn dial(&mut self, node: usize, now: Instant) {
        self.members[node].dials(now);
        let Some(to) = self.cluster.addr(node) else {
            return;
        };
        let socket = stream::dial(self.cluster.own_addr.ip(), to);
        let is_theirs = *self.cluster.name_of(node) < *self.cluster.name();
        match (socket, self.tls.dial(to)) {
            (Ok(socket), Ok(tls)) => {
                let stream = Stream::new(socket, tls, true);
                self.add(stream, Some(node), is_theirs, now);
            }
            (Err(error), _) => {
                self.not_opened(node, Broken::from(std::io::Error::from(error)), now)
            }
            (_, Err(error)) => self.not_opened(node, Broken::from(error), now),
        }
    }

    fn add(&mut self, stream: Stream, node: Option<usize>, is_probe: bool, now: Instant) {
        self.last_id += 1;
        let (id, is_ours) = (self.last_id, node.is_some());
        let mut open = Open {
            stream,
            node,
            is_ours,
            is_probe,
            is_greeted: false,
            stands: false,
            since: now,
            watches_out: false,
        };
        let data = EventData::new_u64(id);
        let added = epoll::add(&self.epoll, &open.stream, data, EventFlags::IN);
        watch(&self.epoll, id, &mut open);
        self.open.insert(id, open);
        if let Err(error) = added {
            self.cut(id, Broken::Closed(error.to_string()), now);
        }
    }

    /// Something happened on a stream.
    fn hear(&mut self, id: u64, now: Instant) {
        // It is not in the table meanwhile, so that its frames may change the others.
        let Some(mut open) = self.open.remove(&id) else {
            return;
        };
        let turned = match open.is_probe {
            true => open.stream.probe(),
            false => open.stream.turn(),
        };
        let heard = self.hear_frames(id, &mut open, now);
        let sent = heard.and_then(|()| open.stream.send());
        watch(&self.epoll, id, &mut open);
        self.open.insert(id, open);
        // What came before a stream broke was heard.
        if let Err(broken) = sent.and(turned) {
            self.cut(id, broken, now);
        }
    }

    fn hear_frames(&mut self, id: u64, open: &mut Open, now: Instant) -> Result<(), Broken> {
        if !open.is_greeted {
            let Some(key) = open.stream.key() else {
                return Ok(());
            };
            self.greet(open, &key)?;
        }
        while let Some(frame) = open.stream.next_frame()? {
            self.cluster.tally.frames[1].fetch_add(1, Relaxed);
            self.frame(id, open, frame, now)?;
        }
        Ok(())
    }
}

/// Has epoll report what the stream waits for.
fn watch(epoll: &OwnedFd, id: u64, open: &mut Open) {
    let wants = open.stream.wants_write();
    if wants != open.watches_out {
        open.watches_out = wants;
        let flags = match wants {
            true => EventFlags::IN | EventFlags::OUT,
            false => EventFlags::IN,
        };
        // A stream that can't be watched is silent, and cut for that.
        let _ = epoll::modify(epoll, &open.stream, EventData::new_u64(id), flags);
    }
}

/// A frame that is about no connection.
pub fn about_none(message: Message) -> Frame {
    Frame {
        flow: FlowId::default(),
        epoch: 0,
        message,
    }
}

impl Thread {
    /// Writes a line about a node, or about strangers, once in a while, and counts.
    pub fn refused(&mut self, node: Option<usize>, why: &str, now: Instant) {
        self.cluster.tally.streams[1].fetch_add(1, Relaxed);
        let logged = &mut self.logged[node.unwrap_or(self.cluster.me)];
        if logged.is_some_and(|at| now.since_us(at) < LOG_EACH_US) {
            return;
        }
        *logged = Some(now);
        match node {
            Some(node) => {
                let at = self.cluster.addr(node).map(|at| format!(" at {at}"));
                tracing::warn!(
                    "cluster: the stream to {}{} is refused: {why}",
                    self.cluster.name_of(node),
                    at.unwrap_or_default()
                );
            }
            None => tracing::warn!("cluster: an incoming stream is refused: {why}"),
        }
    }
}
