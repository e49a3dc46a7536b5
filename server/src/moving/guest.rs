//! Connections that this node serves for others.

use std::os::fd::AsFd;

use ackpace_core::handoff::{Guest, In, Message as Plain, Out, Step};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_wire::cluster::broker::Lease;
use ackpace_wire::cluster::{FlowId, Handoff, Message, Object, Reason, Tuple};

use super::home::NEVER;
use super::prepare::Ready;
use super::{Key, MOVED_MAX, Moving, flow, plain, state};
use crate::worker::{Handed, Told};

/// An entry that is forgotten is gone by then.
const BEFORE_GONE_NS: u64 = 10_000_000_000;

/// A connection of another node.
pub struct Stay {
    machine: Guest,
    id: FlowId,
    object: Option<Object>,
    pub file: Option<Ready>,
    /// What came with HANDOFF, and what goes back.
    state: Option<Box<Handoff>>,
    tuple: Option<Tuple>,
    /// The connection while no worker has it.
    pub handed: Option<Box<Handed>>,
    frozen: bool,
    /// Home has started a socket of its own.
    went_home: bool,
    lease_until: Instant,
    due: Option<Instant>,
}

impl Stay {
    pub fn home(&self) -> usize {
        self.machine.peer().into()
    }

    /// Its connection, if that stays here and the broker that has gone left it frozen.
    pub fn left_frozen(&mut self) -> Option<Box<Handed>> {
        let may_be = !self.frozen;
        let mut handed = (self.handed).take_if(|it| may_be && it.conn.transport.is_frozen())?;
        handed.conn.stays = true;
        Some(handed)
    }

    /// Keeps what comes with a message.
    pub fn keep(&mut self, message: Message) {
        match message {
            Message::Handoff { state, .. } => self.state = Some(state),
            Message::BackOk => self.went_home = true,
            _ => {}
        }
    }
}

impl Moving {
    /// Another node asks whether this one can serve a connection.
    pub(super) fn prepare_guest(
        &mut self,
        from: usize,
        key: (FlowId, u32),
        object: Object,
        now: Instant,
    ) {
        if self.guests.len() >= MOVED_MAX || self.broker.is_none() {
            let (reason, turn) = (Reason::Busy, 0);
            return self.say(from, key.0, key.1, Message::Nak { reason, turn });
        }
        let draining = self.cluster.is_draining();
        let machine = Guest::new(from as u16, key.1, draining, now);
        let object = Some(object).filter(|object| object.size_bytes > 0);
        self.guests.insert(
            key,
            Stay {
                machine,
                id: key.0,
                object,
                file: None,
                state: None,
                tuple: None,
                handed: None,
                frozen: false,
                went_home: false,
                lease_until: now,
                due: None,
            },
        );
        self.drive_guest(key, None, now);
    }

    pub(super) fn drive_guest(&mut self, key: (FlowId, u32), event: Option<In>, now: Instant) {
        let Some(mut stay) = self.guests.remove(&key) else {
            return;
        };
        if let Some(event) = event {
            stay.machine.on(event, now);
        }
        while let Some(out) = stay.machine.poll(now) {
            if let Some(event) = self.guest_out(&mut stay, key, out, now) {
                stay.machine.on(event, now);
            }
        }
        let over = stay.machine.is_over();
        let at = (!over).then(|| stay.machine.deadline()).flatten();
        self.schedule(Key::Guest(key.0, key.1), &mut stay.due, at);
        if !over {
            self.guests.insert(key, stay);
        } else if let Some(handed) = stay.handed.take() {
            self.drop_handed(handed);
        }
    }

    fn guest_out(
        &mut self,
        stay: &mut Stay,
        key: (FlowId, u32),
        out: Out,
        now: Instant,
    ) -> Option<In> {
        match out {
            Out::Send { to, epoch, message } => {
                // Without the broker the kernel's lease can't be renewed, so home's must not be: home takes over when both are over.
                let in_vain = matches!(message, Plain::Renew { .. }) && self.broker.is_none();
                if let Some(message) = guest_message(stay, message).filter(|_| !in_vain) {
                    self.say(to.into(), stay.id, epoch, message);
                }
                None
            }
            Out::Prepare => self.prepare(Key::Guest(key.0, key.1), stay.object.clone()),
            Out::Look => {
                self.looking.push_back(Key::Guest(key.0, key.1));
                None
            }
            Out::Restore => Some(In::Restored(self.restore_guest(stay, key))),
            Out::Lease { until } => {
                stay.lease_until = until;
                let until_ns = self.lease_ns(until);
                self.leases.extend(stay.tuple.map(|tuple| Lease {
                    tuple,
                    epoch: key.1,
                    until_ns,
                }));
                None
            }
            Out::Claim { .. } => {
                if let Some(handed) = stay.handed.take() {
                    self.leave_to_worker(handed);
                }
                None
            }
            Out::Freeze => Some(In::Froze(self.freeze_guest(stay, key.1))),
            Out::Thaw => {
                let node = stay.home();
                self.thaw_count(node, &mut stay.frozen);
                if let Some(handed) = &stay.handed {
                    self.ask_broker(|broker| broker.thaw(handed.conn.transport.as_fd()));
                }
                None
            }
            Out::Close => {
                self.close_guest(stay);
                None
            }
            Out::BecomeHome { epoch } => {
                self.become_home(stay, epoch);
                None
            }
            Out::Tell(step) => {
                self.told(step, stay.home(), now);
                if let Step::Refused(_) = step {
                    self.keep_guest(stay);
                }
                None
            }
            // The rest is for homes.
            _ => None,
        }
    }

    /// It stays here: a worker goes on with it. One that is left frozen waits for the next broker, or until home has taken over.
    fn keep_guest(&mut self, stay: &mut Stay) {
        let goes_on = |it: &mut Box<Handed>| !self.is_left_frozen(it);
        if let Some(mut handed) = stay.handed.take_if(goes_on) {
            handed.conn.stays = true;
            self.leave_to_worker(handed);
        }
    }

    pub(super) fn look_guest(&mut self, key: (FlowId, u32), now: Instant) {
        let Some(stay) = self.guests.get(&key) else {
            return;
        };
        let facts = stay
            .handed
            .as_ref()
            .and_then(|handed| (handed.conn.transport).facts(self.frozen[stay.home()], true));
        self.drive_guest(key, Some(In::Facts(facts.unwrap_or(NEVER))), now);
    }

    fn restore_guest(&mut self, stay: &mut Stay, key: (FlowId, u32)) -> bool {
        let Some(state) = stay.state.take() else {
            return false;
        };
        let moves = state.progress.moves;
        let here = flow(stay.id, key.1, state.tcp.snd_una, Some(stay.home()), moves);
        let until_ns = self.lease_ns(stay.machine.lease_until());
        stay.handed = self.restore(&state, stay.file.as_ref(), here, Some(until_ns));
        stay.tuple = Some(state.tuple);
        stay.handed.is_some()
    }

    fn freeze_guest(&mut self, stay: &mut Stay, epoch: u32) -> bool {
        let Some(handed) = stay.handed.as_ref() else {
            return false;
        };
        let floor = handed.conn.flow.as_ref().map(|flow| flow.una_floor);
        let fd = handed.conn.transport.as_fd();
        let frozen = self.ask_broker(|broker| broker.freeze(fd, epoch, floor));
        let Some((connection, unsent_bytes)) = frozen else {
            return false;
        };
        self.frozen[stay.home()] += 1;
        stay.frozen = true;
        stay.state = state::pack(handed, &connection, unsent_bytes)
            .ok()
            .map(Box::new);
        stay.state.is_some()
    }

    /// It is elsewhere, or the client is gone: the socket ends without a word.
    fn close_guest(&mut self, stay: &mut Stay) {
        let (node, epoch) = (stay.home(), stay.machine.epoch());
        let is_left = stay.frozen && stay.went_home;
        self.thaw_count(node, &mut stay.frozen);
        match stay.handed.take() {
            Some(handed) => {
                // What came between the freeze and home's start is lost if this fails: the client sends it again.
                let _ = is_left && self.send_on(&handed, epoch, node);
                handed.conn.transport.abort(); // which the switch keeps from the client
                self.drop_handed(handed);
            }
            None if stay.tuple.is_some() => self.tell_workers(|| Told::Drop(stay.id)),
            None => {}
        }
        if let Some(tuple) = stay.tuple {
            self.forget(tuple);
        }
    }

    /// Its home is dead. What came to that node still comes from there, by the kernel's program; this node answers as its own.
    fn become_home(&mut self, stay: &mut Stay, epoch: u32) {
        self.cluster.tally.took_over(stay.home());
        // Of its node's own connections the switch has no entries; until this one is gone, the lease must not end.
        if let Some(tuple) = stay.tuple {
            let until_ns = super::monotonic_ns().saturating_add(BEFORE_GONE_NS);
            let mut lease = vec![Lease {
                tuple,
                epoch: stay.machine.epoch(),
                until_ns,
            }];
            self.ask_broker(|broker| broker.leases(&mut lease));
            self.forget(tuple);
        }
        // It was on its way back.
        if let Some(mut handed) = stay.handed.take() {
            if let Some(flow) = &mut handed.conn.flow {
                (flow.home, flow.epoch) = (None, epoch);
            }
            return self.leave_to_worker(handed);
        }
        self.tell_workers(|| Told::IsHome(stay.id, epoch));
    }

    fn tell_workers(&self, what: impl Fn() -> Told) {
        for worker in 0..self.shared.handovers.len() {
            self.shared.nodes.tell(worker, what());
            self.shared.channels[worker].waker.wake();
        }
    }
}

/// What a guest says.
fn guest_message(stay: &Stay, message: Plain) -> Option<Message> {
    match message {
        Plain::Prepare => stay.handed.as_ref().and_then(|it| state::prepare(it)),
        Plain::Back { turn } => Some(Message::Back {
            turn,
            state: stay.state.clone()?,
        }),
        message => plain(message),
    }
}
