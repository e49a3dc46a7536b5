//! The orders that follow from shares, and what became of them.

use ackpace_core::units::Instant;
use ackpace_share::outside::{HandsOff, Step};

use super::{Change, Sums, Tuner, Why};
use crate::kernel::Order;
use crate::snapshot::Outcome;

impl Tuner {
    /// The orders that follow from snapshots and shares; what the same walk counts.
    pub(super) fn changes(&mut self, now: Instant) -> (Vec<Change>, Sums) {
        let most = self.chosen.lowat_bytes_most;
        let (mut changes, mut sums) = (Vec::new(), Sums::default());
        for member in self.members.iter_mut() {
            let step = match self.divides {
                true => member.step(most, now),
                false => member.let_go(),
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
        (changes, sums)
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
            self.became(change, outcome, now);
        }
        self.count();
    }

    fn became(&mut self, change: &Change, outcome: Option<Outcome>, now: Instant) {
        let at = self.members.find(change.order.cookie);
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
