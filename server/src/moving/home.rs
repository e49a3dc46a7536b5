//! Connections that this node accepted, on their way to other nodes and back.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::handoff::{Facts, Home, In, Message as Plain, Out, Refusal, Step, Tracked};
use ackpace_core::machine::Machine;
use ackpace_core::units::Instant;
use ackpace_wire::cluster::{FlowId, Handoff, Message, Object};

use super::prepare::Ready;
use super::{Key, Moving, flow, plain, state};
use crate::cluster::{Cluster, Whereabouts};
use crate::worker::Handed;

/// A connection of this node that is on its way, or that another node serves.
pub struct Away {
    machine: Home,
    pub id: FlowId,
    number: u64,
    /// The connection while it is here and no worker has it.
    handed: Option<Box<Handed>>,
    /// The frozen socket, after the other node has started its own, until the broker has sent the client's packets there: without it
    /// they would be answered by RST.
    left: Option<Box<Handed>>,
    /// What it was when it was frozen. From then on it is all that a take-over has.
    saved: Option<Box<Handoff>>,
    frozen: bool,
    frozen_at: Instant,
    /// Home takes over, and the broker was not there to fence it.
    unfenced: bool,
    /// The end of what the client holds, above holes too, when it was last asked for.
    held_end: Option<u32>,
    /// The end of what the socket of a take-over counts as sent.
    restored_end: Option<u32>,
    /// The state that came back, and the object that came with PREPARE.
    came: Option<Box<Handoff>>,
    asked: Option<Object>,
    /// The file of what was saved.
    file: Option<Ready>,
    /// The file of what comes back, which may be another response.
    pub came_file: Option<Ready>,
    moves: u32,
    una_floor: Option<u32>,
    due: Option<Instant>,
    over: bool,
}

impl Away {
    /// A connection that is to move for the first time, or again.
    pub fn new(cluster: &Cluster, handed: Box<Handed>, number: u64) -> Away {
        let before = handed.conn.flow.as_deref();
        let me = cluster.me() as u16; // at most 64
        let (moves, una_floor) = (
            before.map_or(0, |it| it.moves),
            before.map(|it| it.una_floor),
        );
        Away {
            machine: Home::new(me, before.map_or(0, |it| it.epoch)),
            id: FlowId {
                home: me,
                boot_nonce: cluster.boot_nonce(),
                number,
            },
            number,
            handed: Some(handed),
            left: None,
            saved: None,
            frozen: false,
            frozen_at: Instant::default(),
            unfenced: false,
            held_end: None,
            restored_end: None,
            came: None,
            asked: None,
            file: None,
            came_file: None,
            moves,
            una_floor,
            due: None,
            over: false,
        }
    }

    pub fn peer(&self) -> usize {
        self.machine.peer().into()
    }

    /// Keeps what comes with a message.
    pub fn keep(&mut self, message: Message) {
        match message {
            Message::Back { state, .. } => self.came = Some(state),
            Message::Prepare(object) => self.asked = Some(object),
            _ => {}
        }
    }
}

impl Moving {
    /// Tells a machine something, or only asks it, and does what it orders.
    pub(super) fn drive_home(&mut self, number: u64, event: Option<In>, now: Instant) {
        let Some(mut away) = self.homes.remove(&number) else {
            return;
        };
        if let Some(event) = event {
            away.machine.on(event, now);
        }
        while let Some(out) = away.machine.poll(now) {
            if let Some(event) = self.home_out(&mut away, out, now) {
                away.machine.on(event, now);
            }
        }
        let at = (!away.over).then(|| away.machine.deadline()).flatten();
        self.schedule(Key::Home(number), &mut away.due, at);
        if away.over || away.machine.is_over() {
            self.finish(away);
        } else {
            self.homes.insert(number, away);
        }
    }

    /// The connection stays here from now on, or is gone.
    fn finish(&mut self, mut away: Away) {
        let node = away.peer();
        self.thaw_count(node, &mut away.frozen);
        if let Some(saved) = &away.saved {
            self.cluster.away.left(saved.tuple.client);
        }
        self.drop_left(&mut away);
        if let Some(handed) = away.handed.take() {
            self.keep_here(&away, handed);
        }
    }

    /// Executes an order. Returns what the machine is to hear at once.
    fn home_out(&mut self, away: &mut Away, out: Out, now: Instant) -> Option<In> {
        match out {
            Out::Send { to, epoch, message } => {
                if let Some(message) = home_message(away, message) {
                    self.say(to.into(), away.id, epoch, message);
                }
                None
            }
            // Of a process that has ended, its guest could not know whether it had the connection.
            Out::Prepare if self.shared.stopping.load(Relaxed) => {
                Some(In::Prepared(Err(Refusal::Draining)))
            }
            Out::Prepare => {
                away.came_file = None;
                let asked = away.asked.take().filter(|object| object.size_bytes > 0);
                self.prepare(Key::Home(away.number), asked)
            }
            Out::Look => {
                self.looking.push_back(Key::Home(away.number));
                None
            }
            Out::Freeze => {
                away.frozen_at = now;
                Some(In::Froze(self.freeze_home(away)))
            }
            Out::Thaw => {
                let node = away.peer();
                self.thaw_count(node, &mut away.frozen);
                if let Some(handed) = &away.handed {
                    self.ask_broker(|broker| broker.thaw(handed.conn.transport.as_fd()));
                }
                None
            }
            Out::Redirect { to } => {
                self.redirect(away, to.into());
                None
            }
            Out::Close => {
                if let (None, Some(saved)) = (&away.handed, &away.saved) {
                    self.forget(saved.tuple);
                }
                None
            }
            Out::Tell(step) => {
                self.told(step, away.peer(), now);
                if let (Step::Refused(Refusal::Silent), Some(handed)) = (step, &mut away.handed) {
                    state::serve_here(handed);
                }
                away.over |= matches!(step, Step::Refused(_) | Step::Returned | Step::TookOver)
                    && away.machine.owns();
                None
            }
            out => self.home_takes(away, out, now),
        }
    }

    /// The same of the orders by which the connection becomes this node's again.
    fn home_takes(&mut self, away: &mut Away, out: Out, now: Instant) -> Option<In> {
        match out {
            Out::Restore => {
                // Another connection is not what this guest had.
                let own = away.saved.as_ref().map(|saved| saved.tuple);
                let came = away.came.take().filter(|it| Some(it.tuple) == own);
                let stands = match came {
                    Some(state) => {
                        let file = away.came_file.take();
                        self.restore_home(away, &state, file)
                    }
                    None => false,
                };
                Some(In::Restored(stands))
            }
            Out::TakeOver { ack } => {
                let (held_end, away_us) = (away.held_end, now.since_us(away.frozen_at));
                let state = (away.saved.as_deref())
                    .and_then(|state| state.acknowledged(ack))
                    .and_then(|state| state.holding(held_end))
                    .map(|state| state.later(away_us));
                away.restored_end = state.as_ref().map(|state| state.tcp.snd_nxt);
                let stands = state.is_some_and(|state| {
                    let file = away.file.clone();
                    self.restore_home(away, &state, file)
                });
                Some(In::Restored(stands))
            }
            Out::Fence => {
                self.fence(away);
                if let Some(handed) = away.handed.take() {
                    handed.conn.transport.abort(); // which the fence keeps from the client
                    self.drop_handed(handed);
                }
                None
            }
            Out::Track => self.track(away).map(In::Tracked),
            Out::Reset => {
                self.reset(away);
                None
            }
            // The socket was claimed when it was restored; the rest is for guests.
            _ => None,
        }
    }

    /// Whether the moment suits. If not, the connection stays.
    pub(super) fn look_home(&mut self, number: u64, now: Instant) {
        let Some(away) = self.homes.get(&number) else {
            return;
        };
        let facts = away.handed.as_ref().and_then(|handed| {
            (handed.conn.transport).facts(self.frozen[away.peer()], away.moves > 0)
        });
        self.drive_home(number, Some(In::Facts(facts.unwrap_or(NEVER))), now);
    }

    fn freeze_home(&mut self, away: &mut Away) -> bool {
        let (epoch, floor) = (away.machine.epoch(), away.una_floor);
        let Some(handed) = away.handed.as_ref() else {
            return false;
        };
        let fd = handed.conn.transport.as_fd();
        let frozen = self.ask_broker(|broker| broker.freeze(fd, epoch, floor));
        let Some((connection, unsent_bytes)) = frozen else {
            return false;
        };
        self.frozen[away.peer()] += 1;
        away.frozen = true;
        away.file = state::file(handed);
        away.saved = state::pack(handed, &connection, unsent_bytes)
            .ok()
            .map(Box::new);
        away.saved.is_some()
    }

    /// The other node has it: the client's packets go there, and the socket ends silently.
    fn redirect(&mut self, away: &mut Away, to: usize) {
        self.thaw_count(to, &mut away.frozen);
        let Some(handed) = away.handed.take() else {
            return;
        };
        away.left = Some(handed);
        self.redirect_left(away);
        away.moves += 1;
        let (node, moves) = (to, away.moves);
        if let Some(saved) = &away.saved {
            let client = saved.tuple.client;
            self.cluster.away.went(client, Whereabouts { node, moves });
        }
    }

    /// Has the client's packets sent to the node that has the connection, and ends the socket silently. The switch has its entry
    /// since the freeze, so that this fails only where the broker is gone.
    fn redirect_left(&mut self, away: &mut Away) {
        let (to, epoch) = (away.peer(), away.machine.epoch());
        let left = away.left.as_ref();
        if left.is_some_and(|left| self.send_on(left, epoch, to)) {
            self.drop_left(away);
        }
    }

    /// A broker has come: what the one before could not do any more.
    pub(super) fn redirect_all_left(&mut self) {
        let mut homes = std::mem::take(&mut self.homes);
        homes.values_mut().for_each(|away| self.redirect_left(away));
        self.homes = homes;
    }

    fn drop_left(&self, away: &mut Away) {
        if let Some(left) = away.left.take() {
            self.drop_handed(left);
        }
    }

    /// Makes a socket of a state and starts it.
    fn restore_home(&mut self, away: &mut Away, state: &Handoff, file: Option<Ready>) -> bool {
        self.drop_left(away);
        let (id, epoch) = (away.id, away.machine.epoch().saturating_add(1));
        let now_here = flow(id, epoch, state.tcp.snd_una, None, away.moves + 1);
        let handed = self.restore(state, file.as_ref(), now_here, None);
        let stands = handed.is_some();
        away.handed = handed;
        stands
    }

    fn fence(&mut self, away: &mut Away) {
        let epoch = away.machine.epoch().saturating_add(1); // the own one, which a restored socket has
        if let Some(tuple) = away.saved.as_ref().map(|saved| saved.tuple) {
            let fenced = self.ask_broker(|broker| broker.fence(tuple, epoch));
            away.unfenced = fenced.is_none();
        }
    }

    /// `None`: the broker is not there, and the machine asks again for some seconds.
    fn track(&mut self, away: &mut Away) -> Option<Tracked> {
        if away.unfenced {
            self.fence(away);
        }
        let Some(saved) = away.saved.as_deref() else {
            return Some(LOST);
        };
        let tuple = saved.tuple;
        let Some(tracked) = self.ask_broker(|broker| broker.track(tuple)) else {
            return self.broker.is_some().then_some(LOST);
        };
        let Some(tracked) = tracked else {
            // No packet came: nothing that the guest may have sent was acknowledged.
            return Some(Tracked {
                ack: saved.tcp.snd_una,
                hole: false,
                beyond: false,
            });
        };
        away.held_end = Some(tracked.held_end);
        let newer = tracked.ack.wrapping_sub(saved.tcp.snd_una) as i32 > 0;
        let ack = if newer {
            tracked.ack
        } else {
            saved.tcp.snd_una
        };
        let more = tracked.seq_end.wrapping_sub(saved.tcp.rcv_nxt) as i32 > 0;
        let beyond = |end: u32| tracked.held_end.wrapping_sub(end) as i32 > 0;
        Some(Tracked {
            ack,
            beyond: away.restored_end.is_some_and(beyond),
            hole: more || saved.acknowledged(ack).is_none(),
        })
    }

    /// The client gets RST: nobody knows what it would get next.
    fn reset(&mut self, away: &mut Away) {
        let Some(saved) = away.saved.take() else {
            return;
        };
        self.drop_left(away);
        self.cluster.tally.reset();
        let tuple = saved.tuple;
        let tracked = self.ask_broker(|broker| broker.track(tuple)).flatten();
        let mut bare = *saved;
        if let Some(tracked) = tracked {
            (bare.tcp.snd_una, bare.tcp.snd_nxt) = (tracked.ack, tracked.ack);
        } else {
            bare.tcp.snd_nxt = bare.tcp.snd_una;
        }
        (bare.response, bare.received) = (None, Vec::new());
        let last = flow(away.id, away.machine.epoch().saturating_add(1), 0, None, 0);
        if let Some(handed) = self.restore(&bare, None, last, None) {
            handed.conn.transport.abort();
            self.drop_handed(handed);
        }
        self.forget(tuple);
    }

    /// The connection is this node's again, or still: a worker goes on with it.
    fn keep_here(&mut self, away: &Away, mut handed: Box<Handed>) {
        let stays = handed.conn.flow.is_none() && away.moves == 0;
        if !stays {
            let floor = handed.conn.flow.as_ref().map_or(0, |it| it.una_floor);
            let epoch = away.machine.epoch();
            handed.conn.flow = Some(Box::new(flow(away.id, epoch, floor, None, away.moves)));
        }
        self.leave_to_worker(handed);
    }
}

/// What home says; what travels with it comes from the connection.
fn home_message(away: &Away, message: Plain) -> Option<Message> {
    match message {
        Plain::Prepare => away.handed.as_ref().and_then(|it| state::prepare(it)),
        Plain::Handoff { stamp_us } => Some(Message::Handoff {
            stamp_us,
            state: away.saved.clone()?,
        }),
        message => plain(message),
    }
}

/// A moment that never suits.
pub(super) const NEVER: Facts = Facts {
    established: false,
    prepared: false,
    frozen: 0,
    rtt_us: 0,
    acked: false,
    retransmits: 0,
    ca_state: 0,
    repairing: 0,
    timestamps: false,
};

/// Nothing is known of the client.
const LOST: Tracked = Tracked {
    ack: 0,
    hole: true,
    beyond: false,
};
