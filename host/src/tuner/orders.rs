//! The orders that follow from shares, and what became of them. They are carried out at once, by a pass of their own, or wait for
//! the next look.

use ackpace_core::sndbuf::outside::{HandsOff, Step};
use ackpace_core::units::Instant;

use super::{Change, Sums, Tuner, Why};
use crate::kernel::{ORDERS_MAX, Order};
use crate::snapshot::Outcome;

impl Tuner {
    /// Whether orders are worth a pass of their own: it costs little, or a drain begins or ends, which lasts less than it is to
    /// the next look.
    pub(super) fn is_at_once(&mut self) -> bool {
        let drained = std::mem::replace(&mut self.drains, self.pool.is_draining());
        let sockets = self.members.len() as u64 + self.strangers;
        let chosen = self.chosen.dry_run || self.chosen.once;
        chosen || drained || self.drains || sockets <= self.at_once_sockets_max
    }

    /// Adds the orders that follow from snapshots and shares; what the same walk counts. Those that wait are as many as the
    /// kernel's program takes at most.
    pub(super) fn changes(&mut self, now: Instant, wait: bool, changes: &mut Vec<Change>) -> Sums {
        let most = self.chosen.lowat_bytes_most;
        let mut sums = Sums::default();
        for member in self.members.iter_mut() {
            member.order = None;
            let step = match wait && changes.len() == ORDERS_MAX {
                true => Step::Keep,
                false => member.step(most, now),
            };
            match step {
                Step::Leave(why) if why != HandsOff::Unmatched => member.left = Some(why),
                _ => {}
            }
            sums.add(member);
            let (to, why) = match step {
                Step::Keep | Step::Leave(_) => continue,
                Step::GiveBack(why) => (None, Why::GiveBack(why)),
                Step::Set(to, cause) => (Some(to), Why::Set(cause)),
            };
            member.order = wait.then_some(changes.len() as u32);
            changes.push(Change {
                order: Order {
                    cookie: member.snapshot.cookie,
                    from: member.snapshot.now,
                    to,
                },
                local: member.snapshot.local,
                peer: member.snapshot.peer,
                share_bytes: member.share_bytes(),
                why,
            });
        }
        sums
    }

    /// What became of orders: `outcome` of each socket that is still there. In a dry run all count as done.
    pub fn carried_out(
        &mut self,
        changes: &[Change],
        outcome: impl Fn(u64) -> Option<Outcome>,
        now: Instant,
    ) {
        for change in changes {
            let outcome = match self.chosen.dry_run {
                true => Some(Outcome::Done),
                false => outcome(change.order.cookie),
            };
            let at = self.members.find(change.order.cookie);
            self.became(change, outcome, at, now);
        }
        self.count();
    }

    /// What became of the order that waited for this look.
    pub(super) fn obeyed(&mut self, at: usize, outcome: Outcome, now: Instant) {
        let order = self.members.at(at).and_then(|member| member.order.take());
        let change = order.and_then(|nth| self.waiting.get(nth as usize).copied());
        let Some(change) = change else {
            return;
        };
        self.unheard = self.unheard.saturating_sub(1);
        self.became(&change, Some(outcome), Some(at), now);
        if outcome == Outcome::Done {
            self.done.push(change);
        }
    }

    fn became(
        &mut self,
        change: &Change,
        outcome: Option<Outcome>,
        at: Option<usize>,
        now: Instant,
    ) {
        match (outcome, at.and_then(|at| self.members.at(at))) {
            (Some(Outcome::Done), Some(member)) => {
                member.changed(change, now);
                match change.why {
                    Why::Set(cause) => self.tally.changed(cause),
                    Why::GiveBack(why) => self.tally.gave_back(why),
                }
            }
            (Some(Outcome::Refused), member) => {
                self.tally.refused += 1;
                if let (Some(member), Why::Set(_)) = (member, change.why) {
                    member.ours = None; // the kernel has undone what of it was set
                }
            }
            _ => self.tally.void += 1,
        }
    }
}
