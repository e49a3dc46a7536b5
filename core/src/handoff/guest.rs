//! The guest's end of one tenure.

use alloc::collections::VecDeque;

use super::{
    ANSWER_US, FREEZE_US, Facts, GONE_MAX, In, LATE_US, LEASE_US, LOST_US, Message, Out,
    PREPARE_US, RENEW_US, RESTORE_US, Refusal, Step, may_move,
};
use crate::machine::Machine;
use crate::units::Instant;

/// Each has its latest end, but for `Guest`, which ends with its lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Preparing(Instant),
    Restoring(Instant),
    Guest,
    /// It wants to return the connection.
    Leaving(Instant),
    Freezing(Instant),
    Returned(Instant),
    /// The client has closed; home does not know yet.
    Closing(u32),
    Closed,
}

/// Decides for one connection at the node that serves it for a time, from PREPARE on.
pub struct Guest {
    home: u16,
    epoch: u32,
    state: State,
    /// The lease's end. Past: the node's kernel program lets nothing through.
    lease_until: Instant,
    /// The lease ended then, and home has not renewed it since.
    lapsed_at: Option<Instant>,
    /// The stamp of the last PREPARED.
    stamp_us: Option<u64>,
    /// When home is asked next, for the lease or for its answer.
    ask_at: Instant,
    turn: u32,
    /// It died while the socket was restored.
    home_died: bool,
    outs: VecDeque<Out>,
}

impl Guest {
    /// Home asks this node to prepare; a node that is being emptied (`draining`) refuses.
    pub fn new(home: u16, epoch: u32, draining: bool, now: Instant) -> Guest {
        let mut guest = Guest {
            home,
            epoch,
            state: State::Preparing(now.plus_us(PREPARE_US)),
            lease_until: Instant::default(),
            lapsed_at: None,
            stamp_us: None,
            ask_at: now,
            turn: 0,
            home_died: false,
            outs: VecDeque::new(),
        };
        if draining {
            guest.prepared(Err(Refusal::Draining), now);
        } else {
            guest.outs.push_back(Out::Prepare);
        }
        guest
    }

    /// Whether this node owns the connection, its socket runs and its lease is valid.
    pub fn owns(&self, now: Instant) -> bool {
        let runs = matches!(self.state, State::Guest | State::Leaving(_));
        runs && now < self.lease_until
    }

    /// Nothing is left to be done.
    pub fn is_over(&self) -> bool {
        self.state == State::Closed && self.outs.is_empty()
    }

    /// Its home.
    pub fn peer(&self) -> u16 {
        self.home
    }

    /// When the lease ends as it is known now.
    pub fn lease_until(&self) -> Instant {
        self.lease_until
    }

    /// Of its tenure.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    fn send(&mut self, message: Message) {
        let (to, epoch) = (self.home, self.epoch);
        self.outs.push_back(Out::Send { to, epoch, message });
    }

    fn refuse(&mut self, why: Refusal) {
        self.outs.push_back(Out::Tell(Step::Refused(why)));
    }

    fn close(&mut self) {
        self.outs.push_back(Out::Close);
        self.state = State::Closed;
    }

    fn nak(&mut self, reason: Refusal) {
        self.send(Message::Nak { reason, turn: 0 });
        self.close();
    }

    fn prepared(&mut self, done: Result<(), Refusal>, now: Instant) {
        let State::Preparing(_) = self.state else {
            return;
        };
        match done {
            Ok(()) => {
                self.stamp_us = Some(now.us);
                self.send(Message::Prepared { stamp_us: now.us });
            }
            Err(reason) => self.nak(reason),
        }
    }

    fn heard(&mut self, message: Message, now: Instant) {
        match (self.state, message) {
            (State::Closed, _) => {}
            (State::Closing(_), Message::BackOk | Message::Abort) => {
                self.state = State::Closed;
            }
            (State::Closing(_), _) => {}
            (State::Preparing(_), Message::Prepare) if self.stamp_us.is_some() => {
                self.prepared(Ok(()), now);
            }
            (State::Preparing(_), Message::Handoff { stamp_us }) => self.handoff(stamp_us, now),
            (_, Message::BackOk | Message::Abort) => self.surrender(),
            (State::Preparing(_) | State::Restoring(_), _) => {}
            (_, Message::Handoff { .. }) => self.send(Message::Ready),
            (_, Message::Renewed { stamp_us }) => self.renewed(stamp_us, now),
            (State::Leaving(_), Message::Prepared { .. }) => self.outs.push_back(Out::Look),
            (State::Leaving(_), Message::Nak { reason, turn: 0 }) => self.remain(reason),
            (State::Returned(_), Message::Nak { reason, turn }) if turn == self.turn => {
                self.thaw(reason);
            }
            _ => {}
        }
    }

    fn handoff(&mut self, stamp_us: u64, now: Instant) {
        let until = Instant { us: stamp_us }.plus_us(LEASE_US);
        if self.stamp_us != Some(stamp_us) || now.plus_us(LATE_US) > until {
            return self.nak(Refusal::Late);
        }
        self.lease_until = until;
        self.outs.push_back(Out::Restore);
        self.state = State::Restoring(now.plus_us(RESTORE_US));
    }

    fn restored(&mut self, stands: bool, now: Instant) {
        let State::Restoring(_) = self.state else {
            return;
        };
        if !stands {
            return self.nak(Refusal::Restore);
        }
        if now >= self.lease_until {
            return self.nak(Refusal::Late);
        }
        let (until, epoch) = (self.lease_until, self.epoch);
        self.outs.push_back(Out::Lease { until });
        self.outs.push_back(Out::Claim { epoch });
        self.send(Message::Ready);
        (self.state, self.ask_at) = (State::Guest, now);
        if self.home_died {
            self.become_home();
        }
    }

    /// The tenure is over. In `Preparing` and `Restoring` the socket has never sent.
    fn surrender(&mut self) {
        let never = matches!(self.state, State::Preparing(_) | State::Restoring(_));
        self.close();
        self.send(Message::Aborted { sent: !never });
    }

    fn renewed(&mut self, stamp_us: u64, now: Instant) {
        let until = Instant { us: stamp_us }.plus_us(LEASE_US);
        if stamp_us > now.us || until <= self.lease_until {
            return;
        }
        self.lease_until = until;
        if now < until {
            self.lapsed_at = None;
        }
        self.outs.push_back(Out::Lease { until });
    }

    fn leave(&mut self, now: Instant) {
        if self.state != State::Guest || self.lapsed_at.is_some() {
            return self.refuse(Refusal::Moving);
        }
        // Home gets the bytes into memory before anything freezes here, too.
        self.send(Message::Prepare);
        self.state = State::Leaving(now.plus_us(ANSWER_US));
    }

    fn remain(&mut self, why: Refusal) {
        self.state = State::Guest;
        self.refuse(why);
    }

    fn thaw(&mut self, why: Refusal) {
        self.outs.push_back(Out::Thaw);
        self.remain(why);
    }

    fn looked(&mut self, facts: &Facts, now: Instant) {
        let State::Leaving(_) = self.state else {
            return;
        };
        match may_move(facts) {
            Ok(()) => {
                self.outs.push_back(Out::Freeze);
                self.state = State::Freezing(now.plus_us(FREEZE_US));
            }
            Err(hold) => self.remain(Refusal::Hold(hold)),
        }
    }

    fn froze(&mut self, saved: bool, now: Instant) {
        let State::Freezing(_) = self.state else {
            return;
        };
        if !saved {
            return self.thaw(Refusal::Save);
        }
        self.turn = self.turn.saturating_add(1);
        self.state = State::Returned(now.plus_us(LOST_US));
        self.ask_at = now;
    }

    fn home_is_gone(&mut self, now: Instant) {
        match self.state {
            State::Preparing(_) => self.close(),
            State::Restoring(_) => self.home_died = true,
            State::Closing(_) => self.state = State::Closed,
            State::Closed => {}
            // The old home may have had it, and may even have moved it again: nobody knows.
            State::Returned(_) => self.close(),
            _ if self.lapsed_at.is_some() || now >= self.lease_until => self.close(),
            State::Freezing(_) => {
                self.outs.push_back(Out::Thaw);
                self.become_home();
            }
            State::Guest | State::Leaving(_) => self.become_home(),
        }
    }

    fn become_home(&mut self) {
        let epoch = self.epoch.saturating_add(1);
        self.outs.push_back(Out::Claim { epoch });
        self.outs.push_back(Out::BecomeHome { epoch });
        self.state = State::Closed;
    }

    fn client_gone(&mut self, now: Instant) {
        if matches!(self.state, State::Guest | State::Leaving(_)) {
            self.close();
            (self.state, self.ask_at) = (State::Closing(0), now);
        }
    }

    /// Asks home, if it is time.
    fn ask(&mut self, now: Instant) {
        if self.asks_at().is_none_or(|at| at > now) {
            return;
        }
        self.ask_at = now.plus_us(RENEW_US);
        match self.state {
            State::Closing(tries) if tries >= GONE_MAX => self.state = State::Closed,
            State::Closing(tries) => {
                self.state = State::Closing(tries + 1);
                self.send(Message::Gone);
            }
            State::Returned(_) => {
                self.send(Message::Renew { stamp_us: now.us });
                self.send(Message::Back { turn: self.turn });
            }
            _ => self.send(Message::Renew { stamp_us: now.us }),
        }
    }

    fn asks_at(&self) -> Option<Instant> {
        let silent = matches!(
            self.state,
            State::Preparing(_) | State::Restoring(_) | State::Closed
        );
        (!silent).then_some(self.ask_at)
    }

    /// The lease has ended: the guest stays silent and waits.
    fn lapse(&mut self, now: Instant) {
        let held = matches!(
            self.state,
            State::Guest | State::Leaving(_) | State::Freezing(_)
        );
        if !held || now < self.lease_until || self.lapsed_at.is_some() {
            return;
        }
        self.lapsed_at = Some(now);
        self.outs.push_back(Out::Tell(Step::Lapsed));
        match self.state {
            State::Freezing(_) => self.thaw(Refusal::Silent),
            State::Leaving(_) => self.remain(Refusal::Silent),
            _ => {}
        }
    }

    fn tick(&mut self, now: Instant) {
        self.lapse(now);
        self.ask(now);
        if self.ends_at().is_none_or(|at| at > now) {
            return;
        }
        match self.state {
            State::Preparing(_) => self.close(),
            State::Restoring(_) => self.nak(Refusal::Restore),
            State::Leaving(_) => self.remain(Refusal::Silent),
            State::Freezing(_) => self.thaw(Refusal::Save),
            State::Guest | State::Returned(_) => self.close(),
            State::Closing(_) | State::Closed => {}
        }
    }

    /// When the state ends by itself.
    fn ends_at(&self) -> Option<Instant> {
        match self.state {
            State::Preparing(until)
            | State::Restoring(until)
            | State::Leaving(until)
            | State::Freezing(until)
            | State::Returned(until) => Some(until),
            State::Guest => self.lapsed_at.map(|at| at.plus_us(LOST_US)),
            State::Closing(_) | State::Closed => None,
        }
    }

    /// When the lease ends, if that is news.
    fn lapses_at(&self) -> Option<Instant> {
        let held = matches!(
            self.state,
            State::Guest | State::Leaving(_) | State::Freezing(_)
        );
        (held && self.lapsed_at.is_none()).then_some(self.lease_until)
    }
}

impl Machine for Guest {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Return => self.leave(now),
            In::Heard { epoch, message } if epoch == self.epoch => self.heard(message, now),
            In::Prepared(done) => self.prepared(done, now),
            In::Facts(facts) => self.looked(&facts, now),
            In::Froze(saved) => self.froze(saved, now),
            In::Restored(stands) => self.restored(stands, now),
            In::Died(node) if node == self.home => self.home_is_gone(now),
            In::ClientGone => self.client_gone(now),
            In::Move { .. } => self.refuse(Refusal::Moving),
            In::Heard { .. } | In::Tracked(_) => {}
            In::Unreachable(_) | In::Died(_) => {}
        }
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        self.tick(now);
        self.outs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let all = [self.asks_at(), self.ends_at(), self.lapses_at()];
        all.into_iter().flatten().min()
    }
}
