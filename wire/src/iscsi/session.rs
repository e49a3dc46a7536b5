//! A logical unit that is kept in reach, without I/O and without a clock: connects, logs in, asks what the unit is, finds out
//! when the target is silent, begins anew, and asks again for what was unanswered.
//!
//! The caller
//! - executes what [`Session::poll`] orders, says what came of it by [`Session::connected`] and [`Session::lost`], and calls
//!   again at [`Session::deadline_us`];
//! - sends what [`Session::to_send`] hands out, each piece whole and in this order, and drops what it has not sent when the
//!   connection is lost or an order closes it;
//! - receives where [`Session::wants`] says, shows the bytes to [`Session::receive`], then takes all from [`Session::told`].
//!
//! A task is taken at any time, with or without a connection, and ends with one [`Told::Done`]. Its memory stays as it is
//! until then. After a connection was lost a task is asked again as a whole: bytes that came before may come again.
//!
//! Silence is judged by the progress of tasks, since a target can send pings and empty data without end.

mod bringing;
mod hearing;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

pub use self::bringing::Unit;
pub use self::messages::{End, Order, Output, Told};

use self::bringing::Bringing;
use super::initiator::{Command, Initiator, Refused, TaskId, Wants};
use super::login::{Login, LoginError, Settings, SettingsError, Turn};
use super::url::Address;
use crate::limits::ISCSI_TASKS_MAX;

/// From the order to connect until the unit is known. Longer: the connection is closed, and another one is made.
const BRING_UP_US: u64 = 15_000_000;
/// Without progress: the target is asked for a sign of life, and again after so long.
const QUIET_US: u64 = 5_000_000;
/// Without an answer to that. Longer: the connection is closed.
const SILENT_US: u64 = 10_000_000;
/// Without progress of the tasks under way, whatever else the target says: what Linux gives a disk. Longer: the same.
const STUCK_US: u64 = 30_000_000;
/// A session that lasts less long counts as an attempt that failed.
const LASTS_US: u64 = 1_000_000;
/// How often a task is asked again by another session. More: it is what ends them.
const REPEATS_MAX: u8 = 16;
/// How soon the next attempt follows one that failed: at once after a session that worked, then so, doubled each time.
const AGAIN_US: u64 = 250_000;
/// No two attempts are farther apart.
const AGAIN_US_MAX: u64 = 4_000_000;
/// How soon a task is asked again that the target put off.
const LATER_US: u64 = 100_000;
/// How often one attempt follows a target that has moved.
const MOVES_MAX: u8 = 4;
/// Tasks of a caller at a time; the rest are the session's own.
pub const SESSION_TASKS_MAX: usize = ISCSI_TASKS_MAX - bringing::TASKS;

/// A task of the caller.
#[derive(Clone, Copy, Debug)]
struct Task {
    command: Command,
    is_aborting: bool,
    /// When it was put off first.
    put_off_us: Option<u64>,
    /// Sessions that it outlived.
    repeats: u8,
}

#[derive(Debug)]
enum Link {
    /// There is none. The next attempt is due then.
    Down { again_us: u64 },
    /// It is being opened.
    Opening { until_us: u64 },
    /// It logs in.
    LoggingIn {
        login: Box<Login>,
        output: Option<Vec<u8>>,
        until_us: u64,
    },
    /// There is a session.
    Up(Box<Up>),
    /// The caller wanted the end.
    Over,
}

#[derive(Debug)]
struct Up {
    initiator: Initiator,
    bringing: Bringing,
    /// Until then the unit has to be known.
    until_us: u64,
    /// When something came that means something: data, the end of a task, an answer to a ping.
    moved_us: u64,
    /// When the target was asked for a sign of life, and has not answered.
    pinged_us: Option<u64>,
    /// When it was asked last.
    asked_us: u64,
    /// It logs out, and the connection may end at any time.
    is_leaving: bool,
}

/// A logical unit that is kept in reach.
#[derive(Debug)]
pub struct Session {
    address: Address,
    settings: Settings,
    patience_us: u64,
    link: Link,
    /// An order to close comes before all others.
    closes: bool,
    /// Of the caller, at most [`SESSION_TASKS_MAX`].
    tasks: BTreeMap<TaskId, Task>,
    /// Tasks that are to be asked, in this order.
    waiting: VecDeque<TaskId>,
    /// Tasks that were put off, and until when.
    later: VecDeque<(u64, TaskId)>,
    told: VecDeque<Told>,
    /// What is known of the unit, since the first time that there was a session.
    unit: Option<Unit>,
    /// Where the target said that it is now, and how often in this attempt.
    moved_to: Option<(String, u16)>,
    moves: u8,
    /// Attempts that failed since there was a session that lasted.
    failures: u32,
    /// When there was a session first, of those that still is.
    ready_us: u64,
    /// Since when there has been none.
    down_since_us: Option<u64>,
    trouble: Option<String>,
    leaves: bool,
}

impl Up {
    /// When the target is asked for a sign of life.
    fn pings_us(&self) -> Option<u64> {
        let since_us = self.moved_us.max(self.asked_us);
        self.pinged_us.is_none().then_some(since_us + QUIET_US)
    }

    /// When the connection is given up.
    fn silent_us(&self) -> Option<u64> {
        let pinged = self.pinged_us.map(|at_us| at_us + SILENT_US);
        let stuck = (self.initiator.load() > 0).then_some(self.moved_us + STUCK_US);
        let begun = (!self.bringing.is_done()).then_some(self.until_us);
        [pinged, stuck, begun].into_iter().flatten().min()
    }
}

impl Session {
    /// A session with a unit. Its first order is to connect. A question to the target in the settings has to be random; each login
    /// asks another one. Without a session for `patience_us`, tasks end as
    /// [`End::Unreachable`], and so do those that are asked later, until there is one again.
    ///
    /// # Errors
    /// The settings are refused.
    pub fn new(
        address: &Address,
        settings: Settings,
        patience_us: u64,
    ) -> Result<Session, SettingsError> {
        Login::new(settings.clone())?;
        Ok(Session {
            address: address.clone(),
            settings,
            patience_us,
            link: Link::Down { again_us: 0 },
            closes: false,
            tasks: BTreeMap::new(),
            waiting: VecDeque::new(),
            later: VecDeque::new(),
            told: VecDeque::new(),
            unit: None,
            moved_to: None,
            moves: 0,
            failures: 0,
            ready_us: 0,
            down_since_us: None,
            trouble: None,
            leaves: false,
        })
    }

    /// The unit, if there was a session.
    pub fn unit(&self) -> Option<&Unit> {
        self.unit.as_ref()
    }

    /// Whether there is a session now.
    pub fn is_ready(&self) -> bool {
        matches!(&self.link, Link::Up(up) if up.bringing.is_done())
    }

    /// Tasks of the caller.
    pub fn load(&self) -> usize {
        self.tasks.len()
    }

    /// Takes a task, by a number that no other task has, below 2^63.
    ///
    /// # Errors
    /// It is not taken: there are [`SESSION_TASKS_MAX`], its length is wrong, or the session ends.
    pub fn ask(&mut self, id: TaskId, command: Command) -> Result<(), Refused> {
        debug_assert!(!bringing::is_own(id) && !self.tasks.contains_key(&id));
        if self.leaves {
            return Err(Refused::Over);
        }
        if !command.has_length() {
            return Err(Refused::Length);
        }
        if self.tasks.len() >= SESSION_TASKS_MAX {
            return Err(Refused::Full);
        }
        let task = Task {
            command,
            is_aborting: false,
            put_off_us: None,
            repeats: 0,
        };
        self.tasks.insert(id, task);
        self.waiting.push_back(id);
        Ok(())
    }

    /// Nobody wants this task any more. It still ends with a [`Told::Done`], and nothing is placed into its memory from now
    /// on.
    pub fn abort(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else {
            return;
        };
        task.is_aborting = true;
        let was_waiting = self.waiting.len() + self.later.len();
        self.waiting.retain(|waiting| *waiting != id);
        self.later.retain(|(_, later)| *later != id);
        if self.waiting.len() + self.later.len() < was_waiting {
            return self.end(id, End::Aborted);
        }
        match &mut self.link {
            Link::Up(up) => up.initiator.abort(id),
            _ => self.end(id, End::Aborted),
        }
        self.hear(0); // it may end at once
    }

    /// Ends the session in order, once all tasks have ended. The last that is told is [`Told::LoggedOut`].
    pub fn log_out(&mut self) {
        self.leaves = true;
    }

    /// The next order.
    pub fn poll(&mut self, now_us: u64) -> Option<Order> {
        self.pass(now_us);
        if std::mem::take(&mut self.closes) {
            return Some(Order::Close);
        }
        match &self.link {
            Link::Down { again_us } if *again_us <= now_us && !self.is_over() => {}
            _ => return None,
        }
        self.down_since_us.get_or_insert(now_us);
        let until_us = now_us + BRING_UP_US;
        self.link = Link::Opening { until_us };
        let (host, port) = match &self.moved_to {
            Some((host, port)) => (host.clone(), *port),
            None => (self.address.host.clone(), self.address.port),
        };
        Some(Order::Connect { host, port })
    }

    /// When [`Session::poll`] has something to do even if nothing happens; 0: at once. `None`: never.
    pub fn deadline_us(&self) -> Option<u64> {
        if self.closes {
            return Some(0);
        }
        let gives_up = self.gives_up_us();
        let later = self.later.iter().map(|(at_us, _)| *at_us).min();
        let link = match &self.link {
            Link::Down { .. } if self.is_over() => Some(0),
            Link::Down { again_us } => Some(*again_us),
            Link::Opening { until_us } | Link::LoggingIn { until_us, .. } => Some(*until_us),
            Link::Up(up) if self.is_over() && !up.is_leaving => Some(0),
            Link::Up(up) => up.silent_us().into_iter().chain(up.pings_us()).min(),
            Link::Over => None,
        };
        [gives_up, later, link].into_iter().flatten().min()
    }

    /// The connection is open.
    pub fn connected(&mut self, now_us: u64) {
        let Link::Opening { until_us } = self.link else {
            return;
        };
        if let Some(chap) = &mut self.settings.chap {
            if let Some(mutual) = &mut chap.mutual {
                mutual.renew(&chap.secret);
            }
        }
        match Login::new(self.settings.clone()) {
            Ok((login, first)) => {
                self.link = Link::LoggingIn {
                    login: Box::new(login),
                    output: Some(first),
                    until_us,
                };
            }
            Err(error) => self.failed(error.to_string(), now_us), // new() has tried them
        }
    }

    /// The connection is closed, or could not be opened: the shell has none any more.
    pub fn lost(&mut self, why: &str, now_us: u64) {
        match &self.link {
            Link::Down { .. } | Link::Over => {}
            Link::Up(up) if up.is_leaving => self.left(now_us),
            _ => {
                self.failed(why.to_owned(), now_us);
                self.closes = false;
            }
        }
    }

    /// What the next bytes of the connection are.
    pub fn wants(&self) -> Wants {
        match &self.link {
            Link::LoggingIn { login, .. } => Wants {
                place: None,
                len_bytes: login.wants_bytes(),
            },
            Link::Up(up) => {
                let wants = up.initiator.wants();
                let place = wants.place.filter(|place| !bringing::is_own(place.task));
                Wants { place, ..wants }
            }
            _ => Wants {
                place: None,
                len_bytes: 1,
            },
        }
    }

    /// Takes received bytes: as many as [`Session::wants`] says at most, from where it says.
    pub fn receive(&mut self, bytes: &[u8], now_us: u64) {
        match &mut self.link {
            Link::LoggingIn { login, output, .. } => match login.receive(bytes) {
                Ok((_, Turn::Receive)) => {}
                Ok((_, Turn::Send(bytes))) => *output = Some(bytes),
                Ok((_, Turn::Done(agreed))) => self.logged_in(agreed, now_us),
                Err(LoginError::Moved(moved)) => {
                    let to = (moved.host.clone(), moved.port);
                    self.move_to(to, moved.is_permanent, now_us);
                }
                Err(error) => self.failed(error.to_string(), now_us),
            },
            Link::Up(up) => {
                let place = up.initiator.wants().place;
                if let Some(place) = place.filter(|place| bringing::is_own(place.task)) {
                    up.bringing.receive(place, bytes);
                }
                match up.initiator.receive(bytes) {
                    Ok(used_bytes) => debug_assert_eq!(used_bytes, bytes.len()),
                    Err(fault) => {
                        let why = format!("the target breaks the protocol: {fault}");
                        self.failed(why, now_us);
                    }
                }
                self.hear(now_us);
            }
            _ => {}
        }
    }

    /// The next bytes to send.
    pub fn to_send(&mut self) -> Option<Output> {
        if self.closes {
            return None;
        }
        self.ask_waiting();
        match &mut self.link {
            Link::LoggingIn { output, .. } => output.take().map(Output::Bytes),
            Link::Up(up) => up.initiator.poll().map(Output::Pdu),
            _ => None,
        }
    }

    /// The next thing to tell.
    pub fn told(&mut self) -> Option<Told> {
        self.told.pop_front()
    }

    /// Time passes.
    fn pass(&mut self, now_us: u64) {
        while let Some((at_us, id)) = self.later.front().copied() {
            if at_us > now_us {
                break;
            }
            self.later.pop_front();
            self.waiting.push_back(id);
        }
        if self.gives_up_us().is_some_and(|at_us| at_us <= now_us) {
            let all: Vec<TaskId> = self.tasks.keys().copied().collect();
            all.into_iter()
                .for_each(|id| self.end(id, End::Unreachable));
        }
        let why = match &mut self.link {
            Link::Opening { until_us } | Link::LoggingIn { until_us, .. } => {
                (*until_us <= now_us).then_some("it does not answer in time")
            }
            Link::Up(up) => {
                if up.pings_us().is_some_and(|at_us| at_us <= now_us) {
                    (up.pinged_us, up.asked_us) = (Some(now_us), now_us);
                    up.initiator.ping();
                }
                let is_silent = up.silent_us().is_some_and(|at_us| at_us <= now_us);
                is_silent.then_some("it is silent")
            }
            Link::Down { .. } | Link::Over => None,
        };
        if let Some(why) = why {
            self.failed(why.to_owned(), now_us);
        }
        self.leave();
    }

    /// Logs out, if that is wanted and nothing is under way.
    fn leave(&mut self) {
        if !self.leaves || !self.tasks.is_empty() {
            return;
        }
        match &mut self.link {
            Link::Up(up) => {
                up.is_leaving = true;
                up.initiator.log_out(); // what is under way is waited for
            }
            Link::Over => {}
            Link::Down { .. } => self.over(),
            Link::Opening { .. } | Link::LoggingIn { .. } => {
                self.closes = true;
                self.over();
            }
        }
    }

    fn is_over(&self) -> bool {
        self.leaves && self.tasks.is_empty()
    }

    fn over(&mut self) {
        self.link = Link::Over;
        self.told.push_back(Told::LoggedOut);
    }

    /// When tasks end for lack of a session.
    fn gives_up_us(&self) -> Option<u64> {
        let since_us = self.down_since_us.filter(|_| !self.tasks.is_empty())?;
        Some(since_us.saturating_add(self.patience_us))
    }

    /// Gives waiting tasks to the initiator, while there is a session.
    fn ask_waiting(&mut self) {
        let Link::Up(up) = &mut self.link else {
            return;
        };
        if !up.bringing.is_done() || up.is_leaving {
            return;
        }
        while let Some(id) = self.waiting.front() {
            if let Some(task) = self.tasks.get(id) {
                if up.initiator.ask(*id, task.command).is_err() {
                    return; // its queue is full, or it ends
                }
            }
            self.waiting.pop_front();
        }
    }
}
