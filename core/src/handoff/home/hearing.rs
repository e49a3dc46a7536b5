//! What a home makes of messages.

use super::{Home, Phase, State, lease_from};
use crate::handoff::{Message, Out, RESTORE_US, Refusal, Step};
use crate::units::Instant;

impl Home {
    pub(super) fn heard(&mut self, epoch: u32, message: Message, now: Instant) {
        if epoch > self.epoch {
            return;
        }
        let over = matches!(self.state, State::Own | State::TakeOver(..) | State::Closed);
        if epoch < self.epoch || over {
            return self.heard_of_the_past(epoch, message, now);
        }
        match self.state {
            State::Preparing { .. } => self.heard_preparing(message),
            State::Offered { lease_until, .. } => self.heard_offered(message, lease_until, now),
            State::Away { .. } | State::Returning { .. } => self.heard_away(message, now),
            _ => {}
        }
    }

    /// The tenure is over, or home has resolved to end it.
    fn heard_of_the_past(&mut self, epoch: u32, message: Message, now: Instant) {
        let waiting = matches!(self.state, State::TakeOver(Phase::Waiting, _));
        let present = epoch == self.epoch && waiting;
        match message {
            Message::Aborted { .. } if present => return self.fence(now),
            Message::Gone if present => self.close(),
            Message::Ready | Message::Back { .. } | Message::Renew { .. } => {}
            Message::Gone | Message::Prepare => {}
            _ => return,
        }
        let (to, message) = (self.peer, Message::BackOk);
        self.outs.push_back(Out::Send { to, epoch, message });
    }

    fn heard_preparing(&mut self, message: Message) {
        match message {
            Message::Prepared { stamp_us } => {
                self.stamp_us = stamp_us.max(self.stamp_us);
                self.outs.push_back(Out::Look);
            }
            Message::Nak { reason, .. } => self.stay(reason, false),
            _ => {}
        }
    }

    fn heard_offered(&mut self, message: Message, lease_until: Instant, now: Instant) {
        match message {
            Message::Nak {
                reason: reason @ (Refusal::Restore | Refusal::Late),
                ..
            } => self.thaw(reason, false),
            Message::Aborted { sent: false } => self.thaw(Refusal::Silent, false),
            Message::Aborted { sent: true } => self.fence(now),
            Message::Ready
            | Message::Renew { .. }
            | Message::Prepare
            | Message::Back { .. }
            | Message::Gone => {
                self.state = State::Away { lease_until };
                self.outs.push_back(Out::Redirect { to: self.peer });
                self.tell(Step::Moved);
                self.heard_away(message, now);
            }
            _ => {}
        }
    }

    fn heard_away(&mut self, message: Message, now: Instant) {
        match message {
            Message::Renew { stamp_us } => {
                if let State::Away { lease_until } | State::Returning { lease_until, .. } =
                    &mut self.state
                {
                    *lease_until = lease_from(now);
                }
                self.send(Message::Renewed { stamp_us });
            }
            Message::Prepare => self.outs.push_back(Out::Prepare),
            Message::Back { turn } => self.back(turn, now),
            Message::Aborted { .. } => self.fence(now),
            Message::Gone => {
                self.send(Message::BackOk);
                self.close();
            }
            _ => {}
        }
    }

    fn back(&mut self, turn: u32, now: Instant) {
        let State::Away { lease_until } = self.state else {
            return;
        };
        if turn <= self.refused_turn {
            let reason = Refusal::Restore;
            return self.send(Message::Nak { reason, turn });
        }
        self.outs.push_back(Out::Restore);
        self.state = State::Returning {
            turn,
            until: now.plus_us(RESTORE_US),
            lease_until,
        };
    }
}
