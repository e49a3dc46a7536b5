//! The home's end of a connection.

mod hearing;

use alloc::collections::VecDeque;

use super::{
    ANSWER_US, FREEZE_US, Facts, In, LEASE_US, MARGIN_US, Message, Out, RESTORE_US, RESTORES_MAX,
    Refusal, Step, Tracked, may_move,
};
use crate::machine::Machine;
use crate::units::Instant;

/// The client answers to the first segment of a restored socket within this time, beyond the round trip: what the guest has sent stands
/// before it in the queues of the path.
const SETTLE_US: u64 = 20_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Own,
    Preparing {
        until: Instant,
    },
    Frozen {
        until: Instant,
    },
    Offered {
        lease_until: Instant,
    },
    Away {
        lease_until: Instant,
    },
    Returning {
        turn: u32,
        until: Instant,
        lease_until: Instant,
    },
    TakeOver(Phase, Instant),
    Closed,
}

/// Each ends at the latest at the instant beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The guest's lease runs.
    Waiting,
    /// The client is asked what it has; before the first restore, only what it has said counts.
    Looking,
    Restoring,
}

/// Decides for one connection at the node that accepted it.
pub struct Home {
    me: u16,
    /// The other node of the present, or last, tenure.
    peer: u16,
    /// Of that tenure, or the own one since. It saturates after 4 billion moves.
    epoch: u32,
    state: State,
    stamp_us: u64,
    /// Of the present tenure: attempts to return up to this one were refused.
    refused_turn: u32,
    rtt_us: u64,
    /// A restored socket stands, in this take-over.
    stands: bool,
    /// Looks since the take-over began.
    tries: u32,
    outs: VecDeque<Out>,
}

impl Home {
    /// This node owns the connection: it accepted it, or became its home with this epoch.
    pub fn new(me: u16, epoch: u32) -> Home {
        Home {
            me,
            peer: me,
            epoch,
            state: State::Own,
            stamp_us: 0,
            refused_turn: 0,
            rtt_us: 0,
            stands: false,
            tries: 0,
            outs: VecDeque::new(),
        }
    }

    /// Whether this node owns the connection, and its socket runs.
    pub fn owns(&self) -> bool {
        matches!(self.state, State::Own | State::Preparing { .. })
    }

    /// Nothing is left to be done.
    pub fn is_over(&self) -> bool {
        self.state == State::Closed && self.outs.is_empty()
    }

    /// The other node of the present, or last, tenure; this one before the first.
    pub fn peer(&self) -> u16 {
        self.peer
    }

    /// The present epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    fn send(&mut self, message: Message) {
        let (to, epoch) = (self.peer, self.epoch);
        self.outs.push_back(Out::Send { to, epoch, message });
    }

    fn tell(&mut self, step: Step) {
        self.outs.push_back(Out::Tell(step));
    }

    fn refuse(&mut self, why: Refusal) {
        self.tell(Step::Refused(why));
    }

    fn begin(&mut self, to: u16, draining: bool, reachable: bool, now: Instant) {
        let refusals = [
            (to == self.me, Refusal::Itself),
            (self.state != State::Own, Refusal::Moving),
            (draining, Refusal::Draining),
            (!reachable, Refusal::Silent),
        ];
        if let Some((_, why)) = refusals.into_iter().find(|(is, _)| *is) {
            return self.refuse(why);
        }
        self.peer = to;
        self.epoch = self.epoch.saturating_add(1);
        (self.stamp_us, self.refused_turn) = (0, 0);
        self.send(Message::Prepare);
        let until = now.plus_us(ANSWER_US);
        self.state = State::Preparing { until };
    }

    /// Home goes on as before.
    fn stay(&mut self, why: Refusal, tell_guest: bool) {
        if tell_guest {
            self.send(Message::Abort);
        }
        self.state = State::Own;
        self.refuse(why);
    }

    fn thaw(&mut self, why: Refusal, tell_guest: bool) {
        self.outs.push_back(Out::Thaw);
        self.stay(why, tell_guest);
    }

    fn looked(&mut self, facts: &Facts, now: Instant) {
        let State::Preparing { .. } = self.state else {
            return;
        };
        self.rtt_us = facts.rtt_us;
        match may_move(facts) {
            Ok(()) => {
                self.outs.push_back(Out::Freeze);
                let until = now.plus_us(FREEZE_US);
                self.state = State::Frozen { until };
            }
            Err(hold) => self.stay(Refusal::Hold(hold), true),
        }
    }

    fn froze(&mut self, saved: bool, now: Instant) {
        let State::Frozen { .. } = self.state else {
            return;
        };
        if !saved {
            return self.thaw(Refusal::Save, true);
        }
        let stamp_us = self.stamp_us;
        self.send(Message::Handoff { stamp_us });
        self.state = State::Offered {
            lease_until: lease_from(now),
        };
    }

    fn restored(&mut self, stands: bool, now: Instant) {
        match self.state {
            State::Returning { .. } if stands => {
                self.send(Message::BackOk);
                self.claim();
                self.own(Step::Returned);
            }
            State::Returning {
                turn, lease_until, ..
            } => {
                let reason = Refusal::Restore;
                self.send(Message::Nak { reason, turn });
                self.refused_turn = turn;
                self.state = State::Away { lease_until };
            }
            State::TakeOver(Phase::Restoring, _) if stands => {
                self.stands = true;
                self.claim();
                self.look_after(self.rtt_us + self.rtt_us / 4 + SETTLE_US, now);
            }
            State::TakeOver(Phase::Restoring, _) => self.look_after(SETTLE_US, now),
            _ => {}
        }
    }

    fn claim(&mut self) {
        let epoch = self.epoch.saturating_add(1);
        self.outs.push_back(Out::Claim { epoch });
    }

    /// After a claim.
    fn own(&mut self, step: Step) {
        self.epoch = self.epoch.saturating_add(1);
        self.tell(step);
        self.state = State::Own;
    }

    fn wait_for_lease(&mut self, lease_until: Instant) {
        self.send(Message::Abort);
        self.state = State::TakeOver(Phase::Waiting, lease_until);
    }

    /// The guest can't send any more.
    fn fence(&mut self, now: Instant) {
        self.outs.push_back(Out::Fence);
        (self.stands, self.tries) = (false, 0);
        self.look_after(0, now);
    }

    fn look_after(&mut self, us: u64, now: Instant) {
        self.state = State::TakeOver(Phase::Looking, now.plus_us(us));
    }

    fn track(&mut self, now: Instant) {
        self.tries += 1;
        if self.tries > RESTORES_MAX {
            return self.reset();
        }
        self.outs.push_back(Out::Track);
        self.look_after(RESTORE_US, now);
    }

    /// All that the client has said lately may have been lost. So a socket is restored at once, and its first segment makes the client
    /// say it again. If that shows more than was restored, another socket takes its place.
    fn tracked(&mut self, tracked: Tracked, now: Instant) {
        let State::TakeOver(Phase::Looking, _) = self.state else {
            return;
        };
        if self.stands && !tracked.beyond {
            return self.own(Step::TookOver);
        }
        if tracked.hole {
            return self.reset();
        }
        self.end_restored();
        let ack = tracked.ack;
        self.outs.push_back(Out::TakeOver { ack });
        self.state = State::TakeOver(Phase::Restoring, now.plus_us(RESTORE_US));
    }

    fn end_restored(&mut self) {
        if core::mem::take(&mut self.stands) {
            self.outs.push_back(Out::Fence);
        }
    }

    fn reset(&mut self) {
        self.end_restored();
        self.outs.push_back(Out::Reset);
        self.state = State::Closed;
    }

    fn close(&mut self) {
        self.outs.push_back(Out::Close);
        self.state = State::Closed;
    }

    /// The other node is unreachable, or its process has ended.
    fn lost(&mut self, died: bool, now: Instant) {
        match self.state {
            State::Preparing { .. } => self.stay(Refusal::Silent, false),
            State::Frozen { .. } => self.thaw(Refusal::Silent, false),
            State::Offered { .. } | State::Away { .. } | State::Returning { .. } if died => {
                self.fence(now);
            }
            State::TakeOver(Phase::Waiting, _) if died => self.fence(now),
            _ => {}
        }
    }

    fn client_gone(&mut self) {
        match self.state {
            State::Preparing { .. } => {
                self.send(Message::Abort);
                self.close();
            }
            State::Own | State::TakeOver(..) => self.close(),
            _ => {}
        }
    }

    fn prepared(&mut self, done: Result<(), Refusal>) {
        let State::Away { .. } = self.state else {
            return;
        };
        self.send(match done {
            Ok(()) => Message::Prepared { stamp_us: 0 },
            Err(reason) => Message::Nak { reason, turn: 0 },
        });
    }

    /// What is due.
    fn tick(&mut self, now: Instant) {
        if self.timer().is_none_or(|at| at > now) {
            return;
        }
        match self.state {
            State::Preparing { .. } => self.stay(Refusal::Silent, true),
            State::Frozen { .. } => self.thaw(Refusal::Save, true),
            State::Offered { lease_until, .. }
            | State::Away { lease_until }
            | State::Returning { lease_until, .. } => self.wait_for_lease(lease_until),
            State::TakeOver(Phase::Waiting, _) => self.fence(now),
            State::TakeOver(Phase::Looking, _) => self.track(now),
            State::TakeOver(Phase::Restoring, _) => self.look_after(0, now),
            State::Own | State::Closed => {}
        }
    }

    fn timer(&self) -> Option<Instant> {
        match self.state {
            State::Own | State::Closed => None,
            State::Preparing { until, .. } | State::Frozen { until } => Some(until),
            State::Offered { lease_until } | State::Away { lease_until } => Some(lease_until),
            State::Returning { until, .. } | State::TakeOver(_, until) => Some(until),
        }
    }
}

/// The end of a lease that is granted now, as home counts it.
fn lease_from(now: Instant) -> Instant {
    now.plus_us(LEASE_US + MARGIN_US)
}

impl Machine for Home {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Move {
                to,
                draining,
                reachable,
            } => self.begin(to, draining, reachable, now),
            In::Heard { epoch, message } => self.heard(epoch, message, now),
            In::Prepared(done) => self.prepared(done),
            In::Facts(facts) => self.looked(&facts, now),
            In::Froze(saved) => self.froze(saved, now),
            In::Restored(stands) => self.restored(stands, now),
            In::Tracked(tracked) => self.tracked(tracked, now),
            In::Unreachable(node) if node == self.peer => self.lost(false, now),
            In::Died(node) if node == self.peer => self.lost(true, now),
            In::ClientGone => self.client_gone(),
            In::Unreachable(_) | In::Died(_) => {}
            In::Return => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        self.tick(now);
        self.outs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        if self.outs.is_empty() {
            self.timer()
        } else {
            Some(Instant { us: 0 })
        }
    }
}
