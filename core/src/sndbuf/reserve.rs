//! Sockets that run dry between two turns of their worker lend each other a part of their shares.
//!
//! On a path of microseconds a client takes a whole share, and acknowledges it, long before the worker comes round to its
//! socket again. So most of the pool is idle, and the worker and its clients pay a wake-up and some calls of the kernel for
//! each share, however small. Such sockets pledge a part of their shares to a [`Reserve`] of their worker. One that is found
//! nearly empty is lent what its client's window takes at once, many times its share; the others wait until it is their turn.
//! A loan is in flight at once, and comes back as it is acknowledged.
//!
//! The pool stays a bound. What a socket pledges it may not use itself, and no more is lent than is pledged. Whoever leaves, or
//! whose share changes, takes its pledge along at once, even if it is lent ([`Reserve::short_bytes`]). An eighth of all pledges
//! is never lent, to cover that. If more is withdrawn, the pool is exceeded until borrowers' clients acknowledge
//! (docs/decisions/0030).

mod turns;

use alloc::collections::VecDeque;

pub use self::turns::LoanTurns;
use crate::conn::ConnId;
use crate::limits::{
    CONNECTIONS_MAX, LOAN_BYTES_MAX, LOAN_CALLED_US, LOAN_LOOKS_PER_TURN_MAX, LOAN_REST_US,
    LOAN_RTT_US_MAX, LOAN_SLEPT_EACH_US, LOAN_SLEPT_US_MAX, LOAN_STILL_US, LOAN_WAIT_US,
    LOAN_WAIT_US_MAX, LOAN_WORTH, LOANS_PER_TURN_MAX, PLEDGE_LOOKS, SHARE_BYTES_MIN,
};
use crate::units::Instant;

/// One part in so many of what is pledged is not lent, but kept for those who leave.
const KEPT_PART: u64 = 8;
/// One loan is at most one part in so many of what may be lent, so that several have one at a time.
const LOAN_PART: u64 = 3;
/// A socket counts as nearly empty if it holds at most one part in so many of what it may hold without a loan.
pub(super) const DRY_PART: u64 = 4;
/// One part in so many of a share is pledged.
const PLEDGE_PART: u64 = 2;

/// The reserve of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// A socket takes part if it can be lent so many times what it pledges.
    worth: u64,
    /// One loan is at most one part in so many of what may be lent.
    part: u64,
    /// What the sockets of the worker have pledged together.
    pledged_bytes: u64,
    /// What of it is lent.
    lent_bytes: u64,
    /// What those would pledge that were found nearly empty lately.
    dry_bytes: u64,
    /// Who waits for a loan, the first one first. Some may have left.
    waiting: VecDeque<ConnId>,
    /// When somebody was lent something last.
    lent_at: Instant,
    /// How many were called to borrow and have not done so yet, and when the last one was.
    called: (Instant, u64),
    /// Since when the worker's sleep while some waited is counted, and how much that was, microseconds.
    slept: (Instant, u64),
    /// Until then nobody lends anything.
    rests_until: Instant,
}

/// What limits what goes in flight at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    /// The client's window, `tcpi_snd_wnd`.
    pub window_bytes: u64,
    /// `tcpi_snd_cwnd`.
    pub cwnd_bytes: u64,
    /// In flight now.
    pub in_flight_bytes: u64,
}

/// Whether a socket borrows now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Borrows {
    /// No: what it has not pledged serves it, or it gets none now, since the reserve rests or it has waited for too long.
    No,
    /// If its window is open: [`Stake::lend`] is to be told.
    IfOpen,
    /// It waits for others to give back theirs.
    Waits,
}

/// What comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loan {
    /// Nothing: its window or the longest loan is too small, or too many wait.
    None,
    /// So much, beside what it has not pledged.
    Lent(u64),
    /// It waits for others to give back theirs.
    Waits,
}

/// For many sockets, where loans are worth their calls.
impl Default for Reserve {
    fn default() -> Reserve {
        Reserve::new(LOAN_WORTH, LOAN_PART)
    }
}

impl Reserve {
    /// For tests: two sockets are enough, and one may be lent all there is.
    pub fn eager() -> Reserve {
        Reserve::new(0, 1)
    }

    fn new(worth: u64, part: u64) -> Reserve {
        Reserve {
            worth,
            part,
            pledged_bytes: 0,
            lent_bytes: 0,
            dry_bytes: 0,
            waiting: VecDeque::new(),
            lent_at: Instant { us: 0 },
            called: (Instant { us: 0 }, 0),
            slept: (Instant { us: 0 }, 0),
            rests_until: Instant { us: 0 },
        }
    }

    /// What all have pledged.
    pub fn pledged_bytes(&self) -> u64 {
        self.pledged_bytes
    }

    /// What all have borrowed.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes
    }

    /// What is lent of pledges that were taken back: nobody's share covers it.
    pub fn short_bytes(&self) -> u64 {
        self.lent_bytes.saturating_sub(self.pledged_bytes)
    }

    /// Whether somebody waits for a loan.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How long the worker may sleep at most while somebody waits, microseconds: until those who were called count no more, or until
    /// [`Reserve::slept`] says that memory lacks. No event tells of either.
    pub fn sleeps_us(&self) -> u64 {
        match self.called.1 {
            0 => LOAN_SLEPT_US_MAX,
            _ => LOAN_CALLED_US,
        }
    }

    /// The worker has slept for `us` until now while somebody waited. If that is much, memory lacks and not the worker's time:
    /// nobody lends for [`LOAN_REST_US`].
    pub fn slept(&mut self, us: u64, now: Instant) {
        let (from, before_us) = self.slept;
        self.slept = match now.since_us(from) <= LOAN_SLEPT_EACH_US {
            true => (from, before_us.saturating_add(us)),
            false => (now, us),
        };
        if self.slept.1 >= LOAN_SLEPT_US_MAX {
            self.rest(now);
        }
    }

    /// Whether borrowers give nothing back: nobody was lent anything for some time.
    fn stands_still(&self, now: Instant) -> bool {
        now.since_us(self.lent_at) >= LOAN_STILL_US
    }

    /// Nobody lends anything for some time.
    fn rest(&mut self, now: Instant) {
        self.rests_until = now.plus_us(LOAN_REST_US);
    }

    /// Whether nobody lends anything now.
    fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    /// Whether one more may wait.
    fn has_place(&self) -> bool {
        self.waiting.len() < CONNECTIONS_MAX as usize
    }

    /// The first of those who wait, if there is enough for a loan. While nobody lends all have their turns, to go on without one.
    fn next(&mut self, now: Instant) -> Option<ConnId> {
        match self.rests(now) || self.free_bytes() >= self.loan_bytes_max() {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// The sockets that are filled with loans in this turn of the worker: as many as the longest loans that are free and that nobody was
    /// called for before. If more had their turns, the last ones would find nothing, and lose their places. While nothing is pledged
    /// nobody waits for anything: all go on without a loan.
    pub fn loan_turns(&mut self, now: Instant) -> LoanTurns {
        if now.since_us(self.called.0) >= LOAN_CALLED_US {
            self.called.1 = 0; // they do something else
        }
        let loans = match self.rests(now) || self.pledged_bytes == 0 {
            true => u64::MAX,
            false => {
                let loans = self.free_bytes() / self.loan_bytes_max().max(1);
                loans.saturating_sub(self.called.1)
            }
        };
        LoanTurns {
            left: loans.min(LOANS_PER_TURN_MAX),
            looks_left: LOAN_LOOKS_PER_TURN_MAX,
        }
    }

    /// What may still be lent.
    fn free_bytes(&self) -> u64 {
        lendable_bytes(self.pledged_bytes).saturating_sub(self.lent_bytes)
    }

    /// The longest loan.
    fn loan_bytes_max(&self) -> u64 {
        (lendable_bytes(self.pledged_bytes) / self.part).min(LOAN_BYTES_MAX)
    }

    /// Whether one who pledges so much can be lent much more, once all who run dry have pledged.
    fn has_partners(&self, bytes: u64) -> bool {
        let loan_bytes = (lendable_bytes(self.dry_bytes) / self.part).min(LOAN_BYTES_MAX);
        loan_bytes >= bytes.saturating_mul(self.worth)
    }
}

impl Open {
    /// What may go in flight at once.
    fn room_bytes(&self) -> u64 {
        let bytes = self.window_bytes.min(self.cwnd_bytes);
        bytes.saturating_sub(self.in_flight_bytes)
    }
}

/// Whether loans on a path of this shortest round trip are back soon enough; 0: it is not known.
pub fn is_short(rtt_us: u64) -> bool {
    (1..=LOAN_RTT_US_MAX).contains(&rtt_us)
}

/// What a socket with this share may be lent at most, on a path of this shortest round trip; 0: nothing, since its share is large enough.
pub fn loan_bytes_max(share_bytes: u64, rtt_us: u64) -> u64 {
    let is_worth_it = LOAN_BYTES_MAX / LOAN_WORTH >= pledge_bytes(share_bytes);
    match is_short(rtt_us) && is_worth_it {
        true => LOAN_BYTES_MAX,
        false => 0,
    }
}

/// A socket that is about to be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Its share.
    pub share_bytes: u64,
    /// What it holds, unsent and in flight.
    pub held_bytes: u64,
    /// What it is to be offered, by its rate.
    pub wanted_bytes: u64,
    /// Its round trip is short, and its share does not last.
    pub takes_part: bool,
}

/// One socket's part in the reserve of its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stake {
    /// What of its share it has pledged.
    pledged_bytes: u64,
    /// What it has borrowed of what others have pledged.
    lent_bytes: u64,
    /// What it would pledge, if it was found nearly empty lately.
    dry_bytes: u64,
    /// How often in a row it was not.
    steady_looks: u32,
    /// Since when it waits for a loan.
    waits_from: Option<Instant>,
    /// It is its turn to borrow.
    has_turn: bool,
    /// It has waited for too long, and goes on with its share for so many looks.
    alone_looks: u32,
    /// A loan was not worth it when it was last looked at for one: its window was too small.
    is_narrow: bool,
}

impl Stake {
    /// What it has borrowed.
    pub fn lent_bytes(&self) -> u64 {
        self.lent_bytes
    }

    /// Whether it has pledged something.
    pub fn pledges(&self) -> bool {
        self.pledged_bytes > 0
    }

    /// Whether it waits for a loan.
    pub fn waits(&self) -> bool {
        self.waits_from.is_some()
    }

    /// What of a share it may hold without a loan.
    pub fn standing_bytes(&self, share_bytes: u64) -> u64 {
        share_bytes.saturating_sub(self.pledged_bytes)
    }

    /// Its share has changed, while it holds so much. It pledges only what it does not hold beside its loan.
    pub fn share(&mut self, share_bytes: u64, held_bytes: u64, reserve: &mut Reserve) {
        let bytes = pledge_bytes(share_bytes);
        let own_bytes = held_bytes.saturating_sub(self.lent_bytes);
        if self.pledged_bytes > 0 {
            let fits = own_bytes <= share_bytes - bytes;
            self.pledge(if fits { bytes } else { 0 }, reserve);
        }
        if self.dry_bytes > 0 {
            self.runs_dry(bytes, reserve);
        }
    }

    /// It holds so much: its loan shrinks to what it still holds of it.
    pub fn settle(&mut self, held_bytes: u64, share_bytes: u64, reserve: &mut Reserve) {
        let beyond_bytes = held_bytes.saturating_sub(self.standing_bytes(share_bytes));
        self.borrow(self.lent_bytes.min(beyond_bytes), reserve);
    }

    /// It is about to be filled. Found nearly empty it takes part, if enough others do. After [`PLEDGE_LOOKS`] fillings that did not
    /// find it so it withdraws its pledge, unless that is lent. It has one loan at a time, and waits while others are lent some. While
    /// others wait it joins them; its window is looked at when it is its turn, and before if it was too small.
    pub fn borrows(
        &mut self,
        (conn, look): (ConnId, Look),
        reserve: &mut Reserve,
        now: Instant,
    ) -> Borrows {
        self.settle(look.held_bytes, look.share_bytes, reserve);
        let dry = self.is_dry(look);
        let rests = reserve.rests(now);
        self.take_part(dry && !rests, pledge_bytes(look.share_bytes), reserve);
        if self.waits_in_vain(reserve, now) {
            if reserve.stands_still(now) {
                reserve.rest(now); // the others who wait are not to find out one by one
            }
            (self.waits_from, self.alone_looks) = (None, PLEDGE_LOOKS);
        }
        // What two fillings with its share can do is not worth waiting for.
        let enough = look.wanted_bytes <= self.room_bytes(look).max(look.share_bytes);
        let borrows = dry && !enough && self.pledged_bytes > 0 && self.lent_bytes == 0;
        if !borrows || rests || self.alone_looks > 0 {
            self.alone_looks = self.alone_looks.saturating_sub(1);
            self.waits_from = None;
            self.uses_turn(reserve);
            return Borrows::No;
        }
        if self.has_turn {
            return Borrows::IfOpen;
        }
        if !self.waits() {
            let joins = reserve.is_awaited() && reserve.has_place() && !self.is_narrow;
            if !joins {
                return Borrows::IfOpen;
            }
            self.waits_from = Some(now);
            reserve.waiting.push_back(conn);
        }
        Borrows::Waits
    }

    /// Whether it has waited for too long: nobody is lent anything, or it is not its turn for ages.
    fn waits_in_vain(&self, reserve: &Reserve, now: Instant) -> bool {
        let waited_us = self.waits_from.map_or(0, |from| now.since_us(from));
        let stands_still = reserve.stands_still(now);
        waited_us >= LOAN_WAIT_US_MAX || waited_us >= LOAN_WAIT_US && stands_still
    }

    /// What it is lent, if it borrows: what its window takes at once, and no more than is wanted. Nothing if its window or the longest
    /// loan is smaller than its pledge, which is not worth it.
    pub fn lend(
        &mut self,
        (conn, look): (ConnId, Look),
        open: Open,
        reserve: &mut Reserve,
        now: Instant,
    ) -> Loan {
        let most_bytes = open.room_bytes().min(reserve.loan_bytes_max());
        let beyond_bytes = look.wanted_bytes.saturating_sub(self.room_bytes(look));
        let bytes = beyond_bytes.min(most_bytes);
        let has_turn = self.uses_turn(reserve);
        self.is_narrow = most_bytes < self.pledged_bytes;
        if self.is_narrow || !has_turn && !reserve.has_place() {
            self.waits_from = None;
            return Loan::None;
        }
        let is_turn = has_turn || reserve.waiting.is_empty();
        if is_turn && bytes <= reserve.free_bytes() {
            self.waits_from = None;
            self.borrow(bytes, reserve);
            reserve.lent_at = now;
            return Loan::Lent(bytes);
        }
        self.waits_from.get_or_insert(now);
        match has_turn {
            true => reserve.waiting.push_front(conn),
            false => reserve.waiting.push_back(conn),
        }
        Loan::Waits
    }

    /// It is its turn to borrow (`Reserve::next`): its next [`Stake::lend`] goes before others who wait. `false`: it waits no longer.
    pub fn takes_turn(&mut self) -> bool {
        let is_called = self.waits() && !self.has_turn;
        self.has_turn |= is_called;
        is_called
    }

    /// Its turn is over, if it had one: the loan for which it was called is lent, or free for another.
    fn uses_turn(&mut self, reserve: &mut Reserve) -> bool {
        let has_turn = core::mem::take(&mut self.has_turn);
        reserve.called.1 = reserve.called.1.saturating_sub(has_turn.into());
        has_turn
    }

    /// It is gone, or has no share any more.
    pub fn end(&mut self, reserve: &mut Reserve) {
        self.uses_turn(reserve);
        self.pledge(0, reserve);
        self.borrow(0, reserve);
        self.runs_dry(0, reserve);
        *self = Stake::default();
    }

    /// Whether the socket is nearly empty, and would take part.
    fn is_dry(&self, look: Look) -> bool {
        let standing_bytes = self.standing_bytes(look.share_bytes);
        look.takes_part && look.held_bytes <= standing_bytes / DRY_PART
    }

    /// It was found nearly empty, or not, and would pledge so much.
    fn take_part(&mut self, dry: bool, bytes: u64, reserve: &mut Reserve) {
        self.steady_looks = match dry {
            true => 0,
            false => self.steady_looks.saturating_add(1),
        };
        if dry {
            self.runs_dry(bytes, reserve);
        } else if self.steady_looks >= PLEDGE_LOOKS {
            self.runs_dry(0, reserve);
        }
        let takes_part = self.dry_bytes > 0 && reserve.has_partners(bytes);
        if takes_part && dry && self.pledged_bytes == 0 {
            self.pledge(bytes, reserve);
        } else if !takes_part && self.pledged_bytes > 0 {
            let left_bytes = reserve.pledged_bytes - self.pledged_bytes;
            if reserve.lent_bytes <= lendable_bytes(left_bytes) {
                self.pledge(0, reserve);
            }
        }
    }

    /// What it may take of its share now.
    fn room_bytes(&self, look: Look) -> u64 {
        let standing_bytes = self.standing_bytes(look.share_bytes);
        standing_bytes.saturating_sub(look.held_bytes)
    }

    /// Pledges so much, in place of what it had pledged.
    fn pledge(&mut self, bytes: u64, reserve: &mut Reserve) {
        reserve.pledged_bytes = reserve.pledged_bytes - self.pledged_bytes + bytes;
        self.pledged_bytes = bytes;
    }

    /// Has borrowed so much, in place of what it had.
    fn borrow(&mut self, bytes: u64, reserve: &mut Reserve) {
        reserve.lent_bytes = reserve.lent_bytes - self.lent_bytes + bytes;
        self.lent_bytes = bytes;
    }

    /// Would pledge so much, in place of what it said before; 0: it does not run dry.
    fn runs_dry(&mut self, bytes: u64, reserve: &mut Reserve) {
        reserve.dry_bytes = reserve.dry_bytes - self.dry_bytes + bytes;
        self.dry_bytes = bytes;
    }
}

/// What may be lent of what is pledged.
fn lendable_bytes(pledged_bytes: u64) -> u64 {
    pledged_bytes - pledged_bytes / KEPT_PART
}

/// What a socket with this share pledges; 0: it has too little.
fn pledge_bytes(share_bytes: u64) -> u64 {
    let left_bytes = share_bytes.saturating_sub(SHARE_BYTES_MIN);
    (share_bytes / PLEDGE_PART).min(left_bytes)
}

#[cfg(test)]
mod tests;
