//! Connections that move between the nodes of a cluster (DTCP): what workers give away goes to another node, and what another
//! node gives away goes to a worker. The machines of [`ackpace_core::handoff`] decide; the broker of this machine
//! ([`broker`]) freezes sockets and makes new ones. All of it runs in the thread of the cluster.
//!
//! | file | what |
//! |---|---|
//! | [`home`] | connections that this node accepted, while another one serves them |
//! | [`guest`] | connections that this node serves for another one |
//! | [`state`] | a connection as it travels |
//! | [`asking`] | what the broker of this machine is asked |
//! | [`prepare`] | files are opened and compared before a connection comes |

mod asking;
mod broker;
mod guest;
mod home;
mod messages;
mod prepare;
mod state;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::handoff::{FROZEN_MAX, Hold, In, Refusal, Step, answer_unknown, may_move};
use ackpace_core::units::{Instant, US_PER_S};
use ackpace_wire::cluster::broker::Lease;
use ackpace_wire::cluster::{FlowId, Frame, Message, Object, Tuple};

use self::broker::Broker;
use self::guest::Stay;
use self::home::Away;
use self::messages::{of_wire, plain};
use self::prepare::Preparers;
use crate::cluster::{Cluster, Flows, MOVED_MAX};
use crate::worker::{Ask, Flow, Handed, Shared};

/// A node that has refused a connection is not asked again for this time.
const REFUSED_US: u64 = 2 * US_PER_S;

/// A connection's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Of this node, by its number.
    Home(u64),
    /// Of another one, and the tenure.
    Guest(FlowId, u32),
}

/// See the module.
pub struct Moving {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    path: PathBuf,
    broker: Option<Broker>,
    broker_at: Instant,
    homes: HashMap<u64, Away>,
    guests: HashMap<(FlowId, u32), Stay>,
    /// When each machine wants to be asked.
    due: BTreeSet<(Instant, Key)>,
    out: VecDeque<(usize, Frame)>,
    /// By node: connections that are frozen between it and this one.
    frozen: Vec<u32>,
    /// Those that may be frozen once fewer are.
    looking: VecDeque<Key>,
    leases: Vec<Lease>,
    /// What the next broker is to forget: of connections that have ended since the last one has gone. Without a broker none comes or
    /// goes, so it has no more than were away and guests ([`MOVED_MAX`] of each).
    to_forget: Vec<Tuple>,
    /// Connections that the last broker has left frozen, and that stay here: the next one thaws them. At most
    /// [`ackpace_core::handoff::FROZEN_MAX`] for each other node, and a broker has to come before there are more.
    left_frozen: Vec<Handed>,
    /// A VIP is missing here, which was told.
    lacks_vip: bool,
    preparers: Preparers,
    /// The number of the last connection that moved from here.
    last: u64,
    /// By node: it refused then.
    refused: Vec<Option<Instant>>,
}

impl Moving {
    /// Moves nothing yet. `path`: of the broker's socket.
    pub fn start(cluster: Arc<Cluster>, shared: Arc<Shared>, path: PathBuf) -> io::Result<Moving> {
        let (site, waker) = (Arc::clone(&shared), Arc::clone(&cluster));
        let preparers = Preparers::start(move || Arc::clone(&site.site), move || waker.wake())?;
        let nodes = cluster.nodes().len();
        Ok(Moving {
            broker: None,
            broker_at: Instant::default(),
            homes: HashMap::new(),
            guests: HashMap::new(),
            due: BTreeSet::new(),
            out: VecDeque::new(),
            frozen: vec![0; nodes],
            looking: VecDeque::new(),
            leases: Vec::new(),
            to_forget: Vec::new(),
            left_frozen: Vec::new(),
            lacks_vip: false,
            preparers,
            last: 0,
            refused: vec![None; nodes],
            shared,
            cluster,
            path,
        })
    }

    fn hear_workers(&mut self, now: Instant) {
        let shared = Arc::clone(&self.shared);
        while let Some(ask) = shared.nodes.next_ask() {
            match ask {
                Ask::Move { handed, to } => self.begin(handed, to, now),
                Ask::Return(handed) => self.give_back(handed, now),
                Ask::Gone(flow) => {
                    let key = (flow.id, flow.epoch);
                    self.drive_guest(key, Some(In::ClientGone), now);
                }
            }
        }
    }

    /// A worker gave a connection away that another node is to serve.
    fn begin(&mut self, handed: Box<Handed>, to: usize, now: Instant) {
        if let Some(why) = self.stays(&handed, to, now) {
            self.cluster.tally.count(Step::Refused(why));
            return self.leave_to_worker(handed);
        }
        self.last += 1;
        let number = self.last;
        let away = Away::new(&self.cluster, handed, number);
        self.homes.insert(number, away);
        let event = In::Move {
            to: to as u16, // at most 64
            draining: false,
            reachable: self.cluster.peer(to).is_some(),
        };
        self.drive_home(number, Some(event), now);
    }

    /// Why it need not be tried to give a connection away.
    fn stays(&self, handed: &Handed, to: usize, now: Instant) -> Option<Refusal> {
        let facts = handed.conn.transport.facts(0, handed.conn.flow.is_some());
        let hold = facts.map_or(Some(Hold::Closing), |facts| may_move(&facts).err());
        let refused = self.refused[to].is_some_and(|at| now.since_us(at) < REFUSED_US);
        let has_room = self.homes.len() < MOVED_MAX && self.broker.is_some();
        match hold {
            Some(hold) => Some(Refusal::Hold(hold)),
            None if refused || !has_room => Some(Refusal::Busy),
            None => (!state::can_travel(handed)).then_some(Refusal::Object),
        }
    }

    /// A worker gave a connection back that belongs to another node.
    fn give_back(&mut self, mut handed: Box<Handed>, now: Instant) {
        let Some(flow) = handed.conn.flow.as_deref().cloned() else {
            return self.leave_to_worker(handed);
        };
        // It can't be told to its home, which would be waited for.
        if !state::can_travel(&handed) {
            self.cluster.tally.count(Step::Refused(Refusal::Object));
            handed.conn.stays = true;
            return self.leave_to_worker(handed);
        }
        let key = (flow.id, flow.epoch);
        match self.guests.get_mut(&key) {
            Some(stay) => {
                stay.handed = Some(handed);
                self.drive_guest(key, Some(In::Return), now);
            }
            None => self.drop_handed(handed), // its tenure is over, and the client hears nothing of it
        }
    }

    /// A connection is gone from here.
    fn drop_handed(&self, handed: Box<Handed>) {
        drop(handed);
        self.shared.ledger.give(self.shared.connection_bytes);
        self.settled();
    }

    /// A connection is with a worker again, or gone.
    fn settled(&self) {
        let shared = &self.shared;
        shared.nodes.settled();
        let ends = shared.stopping.load(Relaxed) && shared.nodes.under_way() == 0;
        if ends || self.cluster.is_draining() {
            shared.channels.iter().for_each(|it| it.waker.wake());
        }
    }

    /// Leaves a connection for a worker: the one with fewest. A frozen one waits for the next broker.
    fn leave_to_worker(&mut self, handed: Box<Handed>) {
        if self.is_left_frozen(&handed) {
            return self.left_frozen.push(*handed);
        }
        let shared = &self.shared;
        let loads = shared.handovers.iter().map(|it| it.load().connections);
        let Some((at, _)) = loads.enumerate().min_by_key(|(_, load)| *load) else {
            return;
        };
        shared.handovers[at].claim(u64::MAX);
        match shared.handovers[at].hand(handed) {
            Ok(()) => {
                shared.channels[at].waker.wake();
                self.settled();
            }
            // The server ends.
            Err(handed) => {
                shared.handovers[at].closed();
                self.drop_handed(handed);
            }
        }
    }

    /// Looks at those whose turn it is: few are frozen at a time.
    fn look(&mut self, now: Instant) {
        for _ in 0..self.looking.len() {
            let Some(key) = self.looking.pop_front() else {
                return;
            };
            match key {
                Key::Home(number) => {
                    let Some(away) = self.homes.get(&number) else {
                        continue;
                    };
                    match self.frozen[away.peer()] < FROZEN_MAX {
                        true => self.look_home(number, now),
                        false => self.looking.push_back(key),
                    }
                }
                Key::Guest(flow, epoch) => {
                    let Some(stay) = self.guests.get(&(flow, epoch)) else {
                        continue;
                    };
                    match self.frozen[stay.home()] < FROZEN_MAX {
                        true => self.look_guest((flow, epoch), now),
                        false => self.looking.push_back(key),
                    }
                }
            }
        }
    }

    fn thaw_count(&mut self, node: usize, was_frozen: &mut bool) {
        if std::mem::take(was_frozen) {
            self.frozen[node] = self.frozen[node].saturating_sub(1);
        }
    }

    fn say(&mut self, to: usize, flow: FlowId, epoch: u32, message: Message) {
        let frame = Frame {
            flow,
            epoch,
            message,
        };
        self.out.push_back((to, frame));
    }

    /// Has a file prepared for a machine, which hears at once if there is nothing to prepare.
    fn prepare(&mut self, key: Key, object: Option<Object>) -> Option<In> {
        match object {
            None => Some(In::Prepared(Ok(()))),
            Some(object) if self.preparers.ask(key, object.clone()) => None,
            Some(_) => Some(In::Prepared(Err(Refusal::Busy))),
        }
    }

    fn hear_prepared(&mut self, now: Instant) {
        while let Some((key, ready)) = self.preparers.next() {
            let result = ready.as_ref().map(|_| ()).map_err(|why| *why);
            let file = ready.ok();
            match key {
                Key::Home(number) => {
                    if let Some(away) = self.homes.get_mut(&number) {
                        away.came_file = file;
                    }
                    self.drive_home(number, Some(In::Prepared(result)), now);
                }
                Key::Guest(flow, epoch) => {
                    if let Some(stay) = self.guests.get_mut(&(flow, epoch)) {
                        stay.file = file;
                    }
                    self.drive_guest((flow, epoch), Some(In::Prepared(result)), now);
                }
            }
        }
    }

    fn keep_time(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.first().copied() {
            if at > now {
                return;
            }
            self.due.pop_first();
            match key {
                Key::Home(number) => self.drive_home(number, None, now),
                Key::Guest(flow, epoch) => self.drive_guest((flow, epoch), None, now),
            }
        }
    }

    /// Notes when a machine wants to be asked.
    fn schedule(&mut self, key: Key, before: &mut Option<Instant>, at: Option<Instant>) {
        if *before == at {
            return;
        }
        if let Some(before) = before.take() {
            self.due.remove(&(before, key));
        }
        if let Some(at) = at {
            self.due.insert((at, key));
            *before = Some(at);
        }
    }

    fn is_mine(&self, flow: FlowId) -> bool {
        usize::from(flow.home) == self.cluster.me() && flow.boot_nonce == self.cluster.boot_nonce()
    }

    /// What becomes of a step, for operators.
    fn told(&mut self, step: Step, node: usize, now: Instant) {
        self.cluster.tally.count(step);
        if step == Step::TookOver {
            self.cluster.tally.took_over(node);
        }
        if let Step::Refused(why) = step {
            tracing::debug!("cluster: {} does not take a connection: {why:?}", node);
            // It would refuse the next one as well.
            if matches!(
                why,
                Refusal::Version | Refusal::Busy | Refusal::Draining | Refusal::Silent
            ) {
                self.refused[node] = Some(now);
            }
        }
    }
}

impl Flows for Moving {
    fn on_flow(&mut self, from: usize, frame: Frame, now: Instant) {
        let Frame {
            flow,
            epoch,
            message,
        } = frame;
        let Some(event) = of_wire(&message) else {
            return;
        };
        let heard = In::Heard {
            epoch,
            message: event,
        };
        let mine = self.is_mine(flow);
        if mine {
            if let Some(away) = self.homes.get_mut(&flow.number) {
                if away.peer() == from {
                    away.keep(message);
                    self.drive_home(flow.number, Some(heard), now);
                }
                return;
            }
        } else if let Some(stay) = self.guests.get_mut(&(flow, epoch)) {
            if stay.home() == from {
                stay.keep(message);
                self.drive_guest((flow, epoch), Some(heard), now);
            }
            return;
        } else if let Message::Prepare(object) = message {
            if usize::from(flow.home) == from {
                self.prepare_guest(from, (flow, epoch), object, now);
            }
            return;
        }
        if let Some(answer) = answer_unknown(event, mine).and_then(plain) {
            self.say(from, flow, epoch, answer);
        }
    }

    fn unreachable(&mut self, node: usize, now: Instant) {
        self.about_node(In::Unreachable(node as u16), now);
    }

    fn died(&mut self, node: usize, now: Instant) {
        self.about_node(In::Died(node as u16), now);
    }

    fn refers_to(&self, node: usize) -> bool {
        let guests = self.guests.iter();
        let mut guests = guests
            .filter(|((flow, _), stay)| stay.home() == node || usize::from(flow.home) == node);
        self.homes.values().any(|away| away.peer() == node) || guests.next().is_some()
    }

    fn turn(&mut self, now: Instant) {
        self.meet_broker(now);
        self.hear_workers(now);
        self.hear_prepared(now);
        self.keep_time(now);
        self.look(now);
        if !self.leases.is_empty() {
            let mut leases = std::mem::take(&mut self.leases);
            self.ask_broker(|broker| broker.leases(&mut leases));
        }
        (self.cluster.tally).stand(self.homes.len(), self.guests.len());
    }

    fn next_frame(&mut self) -> Option<(usize, Frame)> {
        self.out.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let due = self.due.first().map(|(at, _)| *at);
        let broker = self.broker.is_none().then_some(self.broker_at);
        due.into_iter().chain(broker).min()
    }
}

impl Moving {
    fn about_node(&mut self, event: In, now: Instant) {
        let homes: Vec<u64> = self.homes.keys().copied().collect();
        for number in homes {
            self.drive_home(number, Some(event), now);
        }
        let guests: Vec<(FlowId, u32)> = self.guests.keys().copied().collect();
        for key in guests {
            self.drive_guest(key, Some(event), now);
        }
    }

    /// The end of a lease by the clock that the kernel's program has.
    fn lease_ns(&self, until: Instant) -> u64 {
        let left_us = until.since_us(self.cluster.now());
        monotonic_ns().saturating_add(left_us.saturating_mul(1_000))
    }
}

/// CLOCK_MONOTONIC.
fn monotonic_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// A flow as the worker knows it, after a step.
fn flow(id: FlowId, epoch: u32, una_floor: u32, home: Option<usize>, moves: u32) -> Flow {
    Flow {
        id,
        epoch,
        una_floor,
        home,
        moves,
    }
}
