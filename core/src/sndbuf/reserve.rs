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

use alloc::collections::VecDeque;

use crate::conn::ConnId;
use crate::limits::{
    CONNECTIONS_MAX, LOAN_BYTES_MAX, LOAN_LOOKS_PER_TURN_MAX, LOAN_REST_US, LOAN_RTT_US_MAX,
    LOAN_SLEPT_EACH_US, LOAN_SLEPT_US_MAX, LOAN_WAIT_US, LOAN_WORTH, LOANS_PER_TURN_MAX,
    PLEDGE_LOOKS, SHARE_BYTES_MIN,
};
use crate::units::Instant;

/// One part in so many of what is pledged is not lent, but kept for those who leave.
const KEPT_PART: u64 = 8;
/// One loan is at most one part in so many of what may be lent, so that several have one at a time.
const LOAN_PART: u64 = 3;
/// A socket counts as nearly empty if it holds at most one part in so many of what it may hold without a loan.
const DRY_PART: u64 = 4;
/// One part in so many of a share is pledged.
const PLEDGE_PART: u64 = 2;

/// The reserve of one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// A socket takes part if it can be lent so many times what it pledges.
    worth: u64,
    /// One loan is at most one part in so many of what may be lent.
    part: u64,
    pledged_bytes: u64,
    lent_bytes: u64,
    /// What those would pledge that were found nearly empty lately.
    dry_bytes: u64,
    /// Who waits for a loan, the first one first. Some may have left.
    waiting: VecDeque<ConnId>,
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
    /// No: what it has not pledged serves it, or it gets none now. The reserve rests, or it has waited in vain.
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

    /// The worker has slept for `us` until now while somebody waited. If that is much, memory lacks and not the worker's time:
    /// nobody lends for [`LOAN_REST_US`].
    pub fn slept(&mut self, us: u64, now: Instant) {
        let (from, before_us) = self.slept;
        self.slept = match now.since_us(from) <= LOAN_SLEPT_EACH_US {
            true => (from, before_us.saturating_add(us)),
            false => (now, us),
        };
        if self.slept.1 >= LOAN_SLEPT_US_MAX {
            self.rests_until = now.plus_us(LOAN_REST_US);
        }
    }

    fn rests(&self, now: Instant) -> bool {
        now < self.rests_until
    }

    /// The first of those who wait, if there is enough for a loan. While nobody lends all are called, to go on without one.
    fn next(&mut self, now: Instant) -> Option<ConnId> {
        match self.rests(now) || self.free_bytes() >= self.loan_bytes_max() {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// The calls of one turn: as many as the longest loans that are free. If more were called, the last ones would find nothing,
    /// and lose their places.
    pub fn calls(&self, now: Instant) -> Calls {
        let loans = match self.rests(now) {
            true => u64::MAX,
            false => self.free_bytes() / self.loan_bytes_max().max(1),
        };
        Calls {
            left: loans.min(LOANS_PER_TURN_MAX),
            looks_left: LOAN_LOOKS_PER_TURN_MAX,
        }
    }

    fn free_bytes(&self) -> u64 {
        lendable_bytes(self.pledged_bytes).saturating_sub(self.lent_bytes)
    }

    fn loan_bytes_max(&self) -> u64 {
        (lendable_bytes(self.pledged_bytes) / self.part).min(LOAN_BYTES_MAX)
    }

    /// Whether one who pledges so much can be lent much more, once all who run dry have pledged.
    fn has_partners(&self, bytes: u64) -> bool {
        let loan_bytes = (lendable_bytes(self.dry_bytes) / self.part).min(LOAN_BYTES_MAX);
        loan_bytes >= bytes.saturating_mul(self.worth)
    }
}

/// Whom a worker calls in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    left: u64,
    looks_left: u32,
}

impl Calls {
    /// The next socket to be filled with a loan, if there is enough for one. `waits` says whether it still waits
    /// ([`super::bound::Bound::called`]): those that are gone, or wait no longer, are passed over.
    pub fn next(
        &mut self,
        reserve: &mut Reserve,
        now: Instant,
        mut waits: impl FnMut(ConnId) -> bool,
    ) -> Option<ConnId> {
        while self.left > 0 && self.looks_left > 0 {
            self.looks_left -= 1;
            let conn = reserve.next(now)?;
            if waits(conn) {
                self.left -= 1;
                return Some(conn);
            }
        }
        None
    }
}

impl Open {
    fn room_bytes(&self) -> u64 {
        let bytes = self.window_bytes.min(self.cwnd_bytes);
        bytes.saturating_sub(self.in_flight_bytes)
    }
}

/// Whether loans on a path of this shortest round trip are back soon enough; 0: it is not known.
pub fn is_short(rtt_us: u64) -> bool {
    (1..=LOAN_RTT_US_MAX).contains(&rtt_us)
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
    pledged_bytes: u64,
    lent_bytes: u64,
    /// What it would pledge, if it was found nearly empty lately.
    dry_bytes: u64,
    /// How often in a row it was not.
    steady_looks: u32,
    /// Since when it waits for a loan.
    waits_from: Option<Instant>,
    /// It is its turn.
    called: bool,
    /// It has waited in vain, and goes on with its share for so many looks.
    alone_looks: u32,
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
    /// find it so it withdraws its pledge, unless that is lent. It has one loan at a time, and waits for [`LOAN_WAIT_US`] at most.
    pub fn borrows(&mut self, look: Look, reserve: &mut Reserve, now: Instant) -> Borrows {
        self.settle(look.held_bytes, look.share_bytes, reserve);
        let dry = self.is_dry(look);
        let rests = reserve.rests(now);
        self.take_part(dry && !rests, pledge_bytes(look.share_bytes), reserve);
        let is_late = |from: Instant| now >= from.plus_us(LOAN_WAIT_US);
        if self.waits_from.is_some_and(is_late) {
            (self.waits_from, self.alone_looks) = (None, PLEDGE_LOOKS);
        }
        let enough = look.wanted_bytes <= self.room_bytes(look);
        let borrows = dry && !enough && self.pledged_bytes > 0 && self.lent_bytes == 0;
        if !borrows || rests || self.alone_looks > 0 {
            self.alone_looks = self.alone_looks.saturating_sub(1);
            (self.waits_from, self.called) = (None, false);
            return Borrows::No;
        }
        match self.waits() && !self.called {
            true => Borrows::Waits,
            false => Borrows::IfOpen,
        }
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
        let called = core::mem::take(&mut self.called);
        let has_room = called || reserve.waiting.len() < CONNECTIONS_MAX as usize;
        if most_bytes < self.pledged_bytes || !has_room {
            self.waits_from = None;
            return Loan::None;
        }
        let is_turn = called || reserve.waiting.is_empty();
        if is_turn && bytes <= reserve.free_bytes() {
            self.waits_from = None;
            self.borrow(bytes, reserve);
            return Loan::Lent(bytes);
        }
        self.waits_from.get_or_insert(now);
        match called {
            true => reserve.waiting.push_front(conn),
            false => reserve.waiting.push_back(conn),
        }
        Loan::Waits
    }

    /// It is its turn to borrow ([`Reserve::next`]). Whether it still waits.
    pub fn called(&mut self) -> bool {
        self.called = self.waits();
        self.called
    }

    /// It is gone, or has no share any more.
    pub fn end(&mut self, reserve: &mut Reserve) {
        self.pledge(0, reserve);
        self.borrow(0, reserve);
        self.runs_dry(0, reserve);
        *self = Stake::default();
    }

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

    fn pledge(&mut self, bytes: u64, reserve: &mut Reserve) {
        reserve.pledged_bytes = reserve.pledged_bytes - self.pledged_bytes + bytes;
        self.pledged_bytes = bytes;
    }

    fn borrow(&mut self, bytes: u64, reserve: &mut Reserve) {
        reserve.lent_bytes = reserve.lent_bytes - self.lent_bytes + bytes;
        self.lent_bytes = bytes;
    }

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
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const SHARE_BYTES: u64 = 24_000;

    fn conn(index: usize) -> ConnId {
        ConnId {
            index: index as u32,
            generation: 0,
        }
    }

    fn at(ms: u64) -> Instant {
        Instant { us: ms * 1_000 }
    }

    /// Sockets, and what of each is in the kernel.
    struct World {
        reserve: Reserve,
        sockets: Vec<Socket>,
        now: Instant,
    }

    #[derive(Clone, Copy, Debug)]
    struct Socket {
        stake: Stake,
        share_bytes: u64,
        held_bytes: u64,
        given_bytes: u64,
        rtt_us: u64,
    }

    impl World {
        fn new(shares: &[u64]) -> World {
            let socket = |&share_bytes: &u64| Socket {
                stake: Stake::default(),
                share_bytes,
                held_bytes: 0,
                given_bytes: 0,
                rtt_us: 50,
            };
            World {
                reserve: Reserve::default(),
                sockets: shares.iter().map(socket).collect(),
                now: at(0),
            }
        }

        /// It is offered so much, by a client with this window. What comes of it.
        fn fill(&mut self, index: usize, wanted_bytes: u64, window_bytes: u64) -> Loan {
            let socket = &mut self.sockets[index];
            let look = Look {
                share_bytes: socket.share_bytes,
                held_bytes: socket.held_bytes,
                wanted_bytes,
                takes_part: is_short(socket.rtt_us),
            };
            let open = Open {
                window_bytes,
                cwnd_bytes: u64::MAX,
                in_flight_bytes: 0,
            };
            let loan = match socket.stake.borrows(look, &mut self.reserve, self.now) {
                Borrows::No => Loan::None,
                Borrows::Waits => Loan::Waits,
                Borrows::IfOpen => {
                    let whose = (conn(index), look);
                    (socket.stake).lend(whose, open, &mut self.reserve, self.now)
                }
            };
            let beyond_bytes = match loan {
                Loan::None => 0,
                Loan::Lent(bytes) => bytes,
                Loan::Waits => return loan,
            };
            let room_bytes = socket.stake.room_bytes(look) + beyond_bytes;
            let taken_bytes = wanted_bytes.min(room_bytes);
            socket.held_bytes += taken_bytes;
            socket.given_bytes += taken_bytes;
            (socket.stake).settle(socket.held_bytes, socket.share_bytes, &mut self.reserve);
            loan
        }

        fn check(&self) {
            let sum = |of: fn(&Socket) -> u64| -> u64 { self.sockets.iter().map(of).sum() };
            let pledged_bytes = sum(|socket| socket.stake.pledged_bytes);
            let lent_bytes = sum(|socket| socket.stake.lent_bytes);
            assert_eq!(self.reserve.pledged_bytes(), pledged_bytes);
            assert_eq!(self.reserve.lent_bytes(), lent_bytes);
            // What they hold, or may take at any time.
            let most_bytes = sum(|socket| {
                let standing_bytes = socket.stake.standing_bytes(socket.share_bytes);
                socket
                    .held_bytes
                    .max(standing_bytes + socket.stake.lent_bytes)
            });
            let all_bytes = sum(|socket| socket.share_bytes) + self.reserve.short_bytes();
            assert!(most_bytes <= all_bytes, "{most_bytes} of {all_bytes}");
        }
    }

    proptest! {
        #[test]
        fn all_together_hold_no_more_than_their_shares(
            shares in prop::collection::vec(SHARE_BYTES_MIN..80_000, 2..24),
            eager: bool,
            steps in prop::collection::vec((0..8u8, any::<u16>(), 0..600_000u64), 1..400),
        ) {
            let mut world = World::new(&shares);
            if eager {
                world.reserve = Reserve::eager();
            }
            for (what, index, bytes) in steps {
                let index = usize::from(index) % shares.len();
                match what {
                    0..3 => {
                        world.fill(index, bytes, 300_000);
                    }
                    3 => {
                        let socket = &mut world.sockets[index];
                        socket.held_bytes -= socket.held_bytes.min(bytes);
                    }
                    4 => world.sockets.iter_mut().for_each(|socket| socket.held_bytes = 0),
                    5 => {
                        let (socket, reserve) = (&mut world.sockets[index], &mut world.reserve);
                        socket.share_bytes = (socket.held_bytes + SHARE_BYTES_MIN).max(bytes / 8);
                        socket.stake.share(socket.share_bytes, socket.held_bytes, reserve);
                        if bytes % 5 == 0 {
                            socket.rtt_us = 20_000;
                        }
                    }
                    6 => {
                        let (socket, reserve) = (&mut world.sockets[index], &mut world.reserve);
                        socket.stake.end(reserve);
                        (socket.held_bytes, socket.rtt_us) = (0, 50);
                    }
                    _ => {
                        world.now = world.now.plus_us(bytes);
                        while let Some(conn) = world.reserve.next(world.now) {
                            world.sockets[conn.index as usize].stake.called();
                        }
                    }
                }
                world.check();
            }
        }
    }

    /// Clients that take all at once, and are filled whenever they have taken it, `turns` times each.
    fn filled(world: &mut World, turns: usize) {
        for _ in 0..turns {
            for index in 0..world.sockets.len() {
                world.sockets[index].held_bytes = 0;
                world.fill(index, 300_000, 200_000);
                world.check();
            }
            for _ in 0..world.sockets.len() {
                let Some(conn) = world.reserve.next(world.now) else {
                    break;
                };
                let index = conn.index as usize;
                if world.sockets[index].stake.called() {
                    world.fill(index, 300_000, 200_000);
                    world.check();
                }
            }
            world.now = world.now.plus_us(1_000);
        }
    }

    #[test]
    fn sockets_that_run_dry_have_many_times_their_shares_in_turn() {
        let mut world = World::new(&[SHARE_BYTES; 100]);
        filled(&mut world, 300);
        let given = || world.sockets.iter().map(|socket| socket.given_bytes);
        let (least, most) = (given().min().unwrap(), given().max().unwrap());
        assert!(
            least * 10 >= most * 9,
            "{least} to {most}: some wait for longer than others"
        );
        // Of 100 pledges of 12 KB an eighth is kept, and the last 256 KB are not called for: four times 200 KB a turn.
        assert_eq!(world.reserve.loan_bytes_max(), LOAN_BYTES_MAX);
        assert!(given().sum::<u64>() > 290 * 4 * 200_000, "{least}");
    }

    #[test]
    fn few_or_unequal_ones_keep_their_shares() {
        for shares in [&[SHARE_BYTES; 20][..], &[60_000, 6_000, 6_000, 6_000]] {
            let mut world = World::new(shares);
            filled(&mut world, 40);
            assert_eq!(world.sockets[0].stake.pledged_bytes, 0, "{shares:?}");
        }
    }

    #[test]
    fn who_waits_in_vain_goes_on_with_its_share() {
        let mut world = World::new(&[SHARE_BYTES; 40]);
        filled(&mut world, 2);
        let mut waits: Vec<usize> = Vec::new();
        for index in 0..40 {
            let socket = &mut world.sockets[index];
            if socket.stake.lent_bytes == 0 {
                socket.held_bytes = 0;
                if world.fill(index, 300_000, 200_000) == Loan::Waits {
                    waits.push(index);
                }
            }
        }
        let waiting = *waits.first().expect("all others wait");
        world.now = world.now.plus_us(LOAN_WAIT_US / 2);
        assert_eq!(world.fill(waiting, 300_000, 200_000), Loan::Waits);
        world.now = world.now.plus_us(LOAN_WAIT_US / 2);
        for _ in 0..PLEDGE_LOOKS {
            world.sockets[waiting].held_bytes = 0;
            assert_eq!(world.fill(waiting, 300_000, 200_000), Loan::None);
            assert!(world.sockets[waiting].held_bytes >= SHARE_BYTES / 2);
        }
    }

    #[test]
    fn nobody_starves_where_one_loan_comes_back_in_a_turn() {
        let mut world = World::new(&[SHARE_BYTES; 40]);
        filled(&mut world, 40);
        let (mut filled_bytes, mut timers) = ([0; 40], [world.now; 40]);
        for turn in 0..5_000 {
            let is_lent = |index: &usize| world.sockets[*index].stake.lent_bytes() > 0;
            let back = (0..40).map(|nth| (turn + nth) % 40).find(is_lent);
            if let Some(index) = back {
                let (socket, reserve) = (&mut world.sockets[index], &mut world.reserve);
                socket.held_bytes = 0;
                socket.stake.settle(0, SHARE_BYTES, reserve);
            }
            let waits = |index: &usize| world.sockets[*index].stake.waits();
            let is_late = |index: &usize| waits(index) && timers[*index] <= world.now;
            let late: Vec<usize> = (0..40).filter(is_late).collect();
            // As a worker does: it calls as many as there are loans, and then serves all.
            let mut called = Vec::new();
            let mut calls = world.reserve.calls(world.now);
            let sockets = &mut world.sockets;
            let mut waits = |conn: ConnId| sockets[conn.index as usize].stake.called();
            while let Some(conn) = calls.next(&mut world.reserve, world.now, &mut waits) {
                called.push(conn.index as usize);
            }
            for index in called.into_iter().chain(back).chain(late) {
                let before_bytes = world.sockets[index].held_bytes;
                world.fill(index, 300_000, 200_000);
                world.check();
                filled_bytes[index] += world.sockets[index].held_bytes - before_bytes;
                timers[index] = world.now.plus_us(LOAN_WAIT_US); // each attempt sets it anew
            }
            world.now = world.now.plus_us(1_000);
        }
        let starved = filled_bytes.iter().filter(|bytes| **bytes == 0).count();
        assert_eq!(starved, 0, "{filled_bytes:?}");
    }

    #[test]
    fn while_a_worker_sleeps_beside_those_who_wait_nobody_lends() {
        let mut world = World::new(&[SHARE_BYTES; 40]);
        filled(&mut world, 40);
        assert!(world.reserve.is_awaited());
        for _ in 0..5 {
            world.now = world.now.plus_us(LOAN_SLEPT_EACH_US + 1);
            world.reserve.slept(LOAN_SLEPT_US_MAX - 1, world.now);
        }
        assert!(!world.reserve.rests(world.now));
        world.reserve.slept(LOAN_SLEPT_US_MAX, world.now);
        for round in 0..2 {
            while let Some(conn) = world.reserve.next(world.now) {
                world.sockets[conn.index as usize].stake.called();
            }
            for index in 0..40 {
                world.sockets[index].held_bytes = 0;
                assert_eq!(world.fill(index, 300_000, 200_000), Loan::None);
            }
            for _ in 0..PLEDGE_LOOKS * round {
                (0..40).for_each(|index| {
                    world.sockets[index].held_bytes = 0;
                    world.fill(index, 300_000, 200_000);
                });
            }
        }
        assert_eq!(
            world.reserve.pledged_bytes(),
            0,
            "they have their shares back"
        );
        world.now = world.now.plus_us(LOAN_REST_US);
        filled(&mut world, 2);
        assert!(world.reserve.lent_bytes() > 0, "they try again");
    }

    #[test]
    fn what_a_share_serves_waits_for_nobody() {
        let mut world = World::new(&[SHARE_BYTES; 40]);
        filled(&mut world, 2);
        for index in 0..40 {
            if world.sockets[index].stake.lent_bytes == 0 {
                world.sockets[index].held_bytes = 0;
                assert_eq!(world.fill(index, 5_000, 200_000), Loan::None);
                assert_eq!(world.sockets[index].held_bytes, 5_000);
            }
        }
    }

    #[test]
    fn a_client_whose_window_is_closed_borrows_nothing() {
        let mut world = World::new(&[SHARE_BYTES; 40]);
        filled(&mut world, 40);
        world
            .sockets
            .iter_mut()
            .for_each(|socket| socket.held_bytes = 0);
        let loans: Vec<Loan> = (0..40)
            .map(|index| world.fill(index, 300_000, 5_000))
            .collect();
        assert!(
            !loans.iter().any(|loan| matches!(loan, Loan::Lent(_))),
            "{loans:?}"
        );
    }

    #[test]
    fn who_does_not_run_dry_takes_its_pledge_back() {
        let mut world = World::new(&[SHARE_BYTES; 40]);
        filled(&mut world, 40);
        assert!(world.reserve.pledged_bytes() > 0);
        for _ in 0..=PLEDGE_LOOKS {
            for index in 0..40 {
                world.sockets[index].held_bytes = 9_000;
                world.fill(index, 300_000, 200_000);
            }
        }
        assert_eq!(
            world.reserve,
            Reserve {
                waiting: world.reserve.waiting.clone(),
                ..Reserve::default()
            }
        );
    }
}
