//! The connections to a gateway's origins, its *links*: which task each carries, when one more is opened, which origin is
//! asked, and when an answer has been waited for long enough. HTTP/1.1 carries one task at a time on a link.
//!
//! A *task* is one request and its response. The shell knows what it asks for. All origins have the same, so a task that one
//! does not answer goes to the next; a task whose response breaks off goes on where it broke off, as the shell asks for the rest.

mod origins;
#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use self::origins::Origins;
use crate::machine::Machine;
use crate::units::Instant;

/// How often a task that brings nothing is tried with each origin. More: it fails.
const TRIES_EACH: u32 = 2;

/// How the links are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Origins, at least one; the first that works is asked.
    pub origins: u16,
    /// Tasks of each [`Kind`] that have a link at a time. More: they wait, so that none of the kinds starves another.
    pub links_max: [u32; 3],
    /// From the order to connect until the connection stands.
    pub connect_us: u64,
    /// From the request to the end of the response's head.
    pub answer_us: u64,
    /// Between bytes of a response's body.
    pub silence_us: u64,
    /// A link without a task is closed after this time: origins close theirs, and a request that meets that is lost.
    pub idle_us: u64,
    /// Reads wait a little for an origin that restarts. If not, they fail at once: something else has the bytes.
    pub patient: bool,
}

/// A connection to an origin. A number is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// One request and its response, by a number that the shell never uses twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// What a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A client waits for the head of its response. It waits for a link for [`Settings::answer_us`] at most.
    Open,
    /// Bytes of an object.
    Read,
    /// A response that goes through to one client, at that client's pace.
    Pass,
}

/// What ends a link, or a task that no origin answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection came about.
    Unreachable,
    /// The origin closed before the end of the response.
    Closed,
    /// Nothing came for too long.
    Silent,
    /// What came is no response that can be understood or used.
    Bad,
}

/// What the machine is told.
#[derive(Clone, Copy, Debug)]
pub enum In {
    /// A task to carry out.
    Task(TaskId, Kind),
    /// Nobody wants it any more.
    Drop(TaskId),
    /// The connection stands.
    Connected(LinkId),
    /// The head of the response has come, or bytes of its body that have to come again if it breaks off.
    Head(LinkId),
    /// Bytes of the response's body have come that need not come again.
    Moved(LinkId),
    /// The shell reads no more of the body for now, or goes on: its client is slow.
    Paused(LinkId, bool),
    /// The response is complete.
    Done {
        /// The link.
        link: LinkId,
        /// It may carry another task.
        keep: bool,
    },
    /// The link failed.
    Broken(LinkId, Fault),
}

/// What the machine orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Connect to an origin; answered by `Connected` or `Broken`.
    Connect {
        /// The number of the new link.
        link: LinkId,
        /// Which origin.
        origin: u16,
    },
    /// Write the request of this task, or of what is left of it, to this link.
    Ask {
        /// The link.
        link: LinkId,
        /// The task.
        task: TaskId,
    },
    /// Close the link. No event of it counts any more.
    Close(LinkId),
    /// No origin carries the task out.
    Failed(TaskId, Fault),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Connecting,
    Idle,
    Asked,
    Body,
    Paused,
}

struct Link {
    origin: u16,
    state: State,
    task: Option<TaskId>,
    /// When it entered its state, or last moved.
    since: Instant,
    /// It has carried a task before, so its origin may have closed it meanwhile.
    reused: bool,
}

struct Task {
    kind: Kind,
    link: Option<LinkId>,
    /// How often it was tried since it last brought bytes.
    tries: u32,
    /// Its last fault.
    fault: Fault,
    /// When it came, or lost its link.
    since: Instant,
}

/// Chooses links for tasks.
pub struct Links {
    settings: Settings,
    origins: Origins,
    links: BTreeMap<LinkId, Link>,
    tasks: BTreeMap<TaskId, Task>,
    /// Tasks without a link, by kind.
    waiting: [VecDeque<TaskId>; 3],
    outs: VecDeque<Out>,
    next: u64,
    /// When the reads that wait for an origin go on.
    reads_wait_until: Option<Instant>,
}

impl Links {
    /// No links.
    pub fn new(settings: Settings) -> Links {
        Links {
            settings,
            origins: Origins::new(settings.origins),
            links: BTreeMap::new(),
            tasks: BTreeMap::new(),
            waiting: Default::default(),
            outs: VecDeque::new(),
            next: 0,
            reads_wait_until: None,
        }
    }

    /// Whether an origin is left alone after failures.
    pub fn is_down(&self, origin: u16, now: Instant) -> bool {
        self.origins.is_down(origin, now)
    }

    /// The links to an origin, and how many of them carry a task.
    pub fn count(&self, origin: u16) -> (usize, usize) {
        let links = || self.links.values().filter(|link| link.origin == origin);
        let busy = links().filter(|link| link.task.is_some()).count();
        (links().count(), busy)
    }

    fn drop_task(&mut self, id: TaskId) {
        let Some(task) = self.tasks.remove(&id) else {
            return;
        };
        match task.link {
            Some(link) => self.close(link),
            None => self.waiting[task.kind as usize].retain(|waiting| *waiting != id),
        }
    }

    fn close(&mut self, link: LinkId) {
        if self.links.remove(&link).is_some() {
            self.outs.push_back(Out::Close(link));
        }
    }

    fn enter(&mut self, id: LinkId, state: State, now: Instant) {
        if let Some(link) = self.links.get_mut(&id) {
            (link.state, link.since) = (state, now);
        }
    }

    /// Bytes of a response came: its origin works, and its task gets on.
    fn moved(&mut self, id: LinkId, now: Instant) {
        self.enter(id, State::Body, now);
        let Some(link) = self.links.get(&id) else {
            return;
        };
        self.origins.works(link.origin);
        if let Some(task) = link.task.and_then(|task| self.tasks.get_mut(&task)) {
            task.tries = 0;
        }
    }

    fn done(&mut self, id: LinkId, keep: bool, now: Instant) {
        let Some(link) = self.links.get_mut(&id) else {
            return;
        };
        (link.state, link.since, link.reused) = (State::Idle, now, true);
        self.origins.works(link.origin);
        if let Some(task) = link.task.take() {
            self.tasks.remove(&task);
        }
        if !keep {
            self.close(id);
        }
    }

    /// A link failed. One that was used before may have been closed by its origin in the moment of the request; so have its
    /// neighbours, probably, and the task is asked anew without blame.
    fn broken(&mut self, id: LinkId, fault: Fault, now: Instant) {
        let Some(link) = self.links.get(&id) else {
            return;
        };
        let (origin, task, was) = (link.origin, link.task, link.state);
        let stale = link.reused && link.state == State::Asked && fault == Fault::Closed;
        self.close(id);
        if stale {
            let idle = |link: &Link| link.origin == origin && link.task.is_none() && link.reused;
            let all: Vec<LinkId> = (self.links.iter())
                .filter(|(_, link)| idle(link))
                .map(|(id, _)| *id)
                .collect();
            all.into_iter().for_each(|id| self.close(id));
        } else if task.is_some() || fault == Fault::Unreachable {
            self.origins.blame(origin, fault, now);
        }
        if was == State::Connecting {
            self.unreachable(now);
        }
        let Some(id) = task else { return };
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        (task.link, task.fault, task.since) = (None, fault, now);
        task.tries += match fault {
            _ if stale => 0,
            Fault::Silent => TRIES_EACH, // that took long enough
            _ => 1,
        };
        let waiting = &mut self.waiting[task.kind as usize];
        match task.kind {
            Kind::Open if !stale => waiting.push_back(id),
            _ => waiting.push_front(id),
        }
        self.give_up();
    }

    /// Tasks that were tried too often fail.
    fn give_up(&mut self) {
        let most = TRIES_EACH * self.origins.len() as u32;
        for waiting in &mut self.waiting {
            waiting.retain(|id| {
                let Some(task) = self.tasks.get(id).filter(|task| task.tries >= most) else {
                    return true;
                };
                self.outs.push_back(Out::Failed(*id, task.fault));
                self.tasks.remove(id);
                false
            });
        }
    }

    /// Until when reads wait for an origin that restarts.
    fn recovers_at(&self, now: Instant) -> Option<Instant> {
        let at = self.origins.recovers_at(now);
        at.filter(|_| self.settings.patient)
    }

    /// The next task gets an idle link, or has one opened for it.
    fn assign(&mut self, now: Instant) -> Option<Out> {
        let reads_wait = !self.waiting[Kind::Read as usize].is_empty();
        self.reads_wait_until = self.recovers_at(now).filter(|_| reads_wait);
        let task = self.ready().next()?;
        let origin = self.origins.choose(now);
        let of_origin = |link: &&Link| link.origin == origin;
        let idle = self.links.iter().rev();
        let idle = idle
            .filter(|(_, link)| of_origin(link) && link.state == State::Idle)
            .max_by_key(|(_, link)| link.since)
            .map(|(id, _)| *id);
        if let Some(id) = idle {
            return Some(self.ask(id, task, now));
        }
        let connecting = |link: &&Link| link.state == State::Connecting;
        let links = self.links.values().filter(of_origin);
        if links.filter(connecting).count() >= self.ready().count() {
            return None;
        }
        self.next += 1;
        let id = LinkId(self.next);
        let link = Link {
            origin,
            state: State::Connecting,
            task: None,
            since: now,
            reused: false,
        };
        self.links.insert(id, link);
        Some(Out::Connect { link: id, origin })
    }

    /// The tasks that may have a link, first the one whose turn it is.
    fn ready(&self) -> impl Iterator<Item = TaskId> + '_ {
        let mut more = self.settings.links_max.map(|most| most as usize);
        for task in self.tasks.values().filter(|task| task.link.is_some()) {
            let more = &mut more[task.kind as usize];
            *more = more.saturating_sub(1);
        }
        if self.reads_wait_until.is_some() {
            more[Kind::Read as usize] = 0;
        }
        let by_kind = self.waiting.iter().zip(more);
        by_kind.flat_map(|(waiting, more)| waiting.iter().take(more).copied())
    }

    fn ask(&mut self, id: LinkId, task: TaskId, now: Instant) -> Out {
        for waiting in &mut self.waiting {
            waiting.retain(|waiting| *waiting != task);
        }
        if let Some(task) = self.tasks.get_mut(&task) {
            task.link = Some(id);
        }
        if let Some(link) = self.links.get_mut(&id) {
            link.task = Some(task);
        }
        self.enter(id, State::Asked, now);
        Out::Ask { link: id, task }
    }

    /// When a link has waited for too long; `None`: it may wait for ever.
    fn ends_at(&self, link: &Link) -> Option<Instant> {
        let after_us = match link.state {
            State::Connecting => self.settings.connect_us,
            State::Idle => self.settings.idle_us,
            State::Asked => self.settings.answer_us,
            State::Body => self.settings.silence_us,
            State::Paused => return None,
        };
        Some(link.since.plus_us(after_us))
    }

    /// Ends links that have waited for too long.
    fn look(&mut self, now: Instant) {
        let over = |link: &Link| self.ends_at(link).is_some_and(|at| at <= now);
        let all: Vec<(LinkId, State)> = (self.links.iter())
            .filter(|(_, link)| over(link))
            .map(|(id, link)| (*id, link.state))
            .collect();
        for (id, state) in all {
            match state {
                State::Idle => self.close(id),
                State::Connecting => self.broken(id, Fault::Unreachable, now),
                _ => self.broken(id, Fault::Silent, now),
            }
        }
        while let Some((id, _)) = self.oldest().filter(|(_, ends_at)| *ends_at <= now) {
            let tried = self.tasks.get(&id).filter(|task| task.tries > 0);
            let fault = tried.map_or(Fault::Silent, |task| task.fault);
            self.drop_task(id);
            self.outs.push_back(Out::Failed(id, fault));
        }
    }

    /// The question that waits for a link first in turn, and when it has waited for too long.
    fn oldest(&self) -> Option<(TaskId, Instant)> {
        let id = *self.waiting[Kind::Open as usize].front()?;
        let since = self.tasks.get(&id)?.since;
        Some((id, since.plus_us(self.settings.answer_us)))
    }

    /// Tasks that wait for a connection which does not come about have been tried, too.
    fn unreachable(&mut self, now: Instant) {
        if !self.origins.all_are_down(now) {
            return;
        }
        let [open, read, pass] = &self.waiting;
        let reads = match self.recovers_at(now) {
            Some(_) => 0,
            None => read.len(),
        };
        for id in open.iter().chain(pass).chain(read.iter().take(reads)) {
            if let Some(task) = self.tasks.get_mut(id) {
                (task.tries, task.fault) = (task.tries + 1, Fault::Unreachable);
            }
        }
        self.give_up();
    }
}

impl Machine for Links {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Task(id, kind) => {
                let task = Task {
                    kind,
                    link: None,
                    tries: 0,
                    fault: Fault::Unreachable,
                    since: now,
                };
                self.tasks.insert(id, task);
                self.waiting[kind as usize].push_back(id);
            }
            In::Drop(id) => self.drop_task(id),
            In::Connected(link) => self.enter(link, State::Idle, now),
            In::Head(link) => self.enter(link, State::Body, now),
            In::Moved(link) => self.moved(link, now),
            In::Paused(link, true) => self.enter(link, State::Paused, now),
            In::Paused(link, false) => self.enter(link, State::Body, now),
            In::Done { link, keep } => self.done(link, keep, now),
            In::Broken(link, fault) => self.broken(link, fault, now),
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        self.look(now);
        self.outs.pop_front().or_else(|| self.assign(now))
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let links = self.links.values();
        let ends = links.filter_map(|link| self.ends_at(link));
        let asked = self.oldest().map(|(_, ends_at)| ends_at);
        ends.chain(asked).chain(self.reads_wait_until).min()
    }
}
