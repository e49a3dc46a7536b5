//! The machine that divides send memory among the connections of all workers. It decides when to sample them, when to
//! divide, and whom to tell of a new share. It has a thread of its own (`server/src/divider.rs`), so no worker waits.
//!
//! Each second begins a round (`sampling`): it asks every worker for readings of the connections that send. A worker
//! shows its slots piece by piece; when it has shown all, that was a *pass*, and connections that were not among them have
//! left. The round ends when all workers have answered, or after a bound. Then the pool is divided. A connection that joins
//! brings its own reading. For such connections the pool is divided again between two rounds, at the earliest
//! [`DIVIDE_APART_US`] after the last division. Until then they have a start share; one part in [`START_PART`] of the pool is
//! reserved for these.
//!
//! Bytes in a socket can't be taken back, and a share stays in force until the worker has heard of a smaller one. So
//! these are counted of each connection (`member`):
//!
//! | bytes | are |
//! |---|---|
//! | held | in its socket, when it was last sampled |
//! | share | what it was told last that it may hold |
//! | taken | what it may hold at most: the largest share that may be in force, or what is held if that is more |
//!
//! A division computes what each should have, and then cuts that to what others have not taken (`cut_to_fit`). All
//! sockets together hold no more than the pool and the start shares of connections that have just joined. When a worker
//! reports that a connection has drained to its share, the pool is divided again for those whose shares were cut.
//!
//! Now and then a division begins a drain ([`Drains`]), if some connection may learn by it, and another one ends it.

mod member;
mod sampling;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use ackpace_core::conn::ConnId;
use ackpace_core::machine::Machine;
use ackpace_core::send::CAP_BYTES_MIN;
use ackpace_core::units::Instant;

use self::member::Member;
use self::sampling::{Answered, SamplingRounds};
use super::bound::{Grant, Holding};
use super::drain::{self, Drains};
use super::reading::{Known, Reading};
use super::remembered::Remembered;
use super::{
    Claim, ETHERNET_SEGMENT_BYTES, Policy, SEND_POOL_BYTES_MAX, SHARE_SEGMENTS_START, divide,
};

/// How often the pool is divided at most, for connections that join.
pub const DIVIDE_APART_US: u64 = 100_000;
/// One part in so many of the send memory is kept for connections that join until the next division. Less: they would wait
/// for the memory of others with two segments.
pub const START_PART: u64 = 16;

/// A connection, by its worker and its slot.
type Place = (u16, u32);

/// Memory of a connection in the pool: its place in the tables and in a division, and an order. Tables and queues count
/// twice, since they may be half empty.
pub const MEMBER_BYTES: u64 = 2
    * (size_of::<(Place, Member)>() + size_of::<(Place, Claim, u64, u64)>() + size_of::<Out>())
        as u64;

/// What the operator may choose.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How it is divided.
    pub policy: Policy,
    /// The memory for all sockets together, unsent and in flight.
    pub pool_bytes: u64,
    /// Number of workers.
    pub workers: u16,
    /// A random number ([`Remembered`]).
    pub secret: u64,
}

/// What the pool is told.
#[derive(Debug)]
pub enum In {
    /// A connection of this worker begins to send.
    Joined {
        /// The worker.
        worker: u16,
        /// What TCP says of it.
        reading: Reading,
    },
    /// The answer to a `Sample`.
    Sampled {
        /// The worker.
        worker: u16,
        /// The slot that was asked for.
        from: u32,
        /// Its connections with a share, from there on.
        readings: Vec<Reading>,
        /// The slot from which there may be more.
        next: Option<u32>,
    },
    /// A smaller share is in force from now on.
    Lessened {
        /// The worker.
        worker: u16,
        /// Whose share it is.
        conn: ConnId,
        /// What its socket held in that moment.
        holding: Holding,
    },
    /// A connection has no share any more: it was told that it has none, or is closed.
    Left {
        /// The worker.
        worker: u16,
        /// Which.
        conn: ConnId,
    },
}

/// What the pool orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Look at the connections of this worker that have a share, from this slot on; answered by `Sampled`.
    Sample {
        /// The worker.
        worker: u16,
        /// The slot.
        from: u32,
    },
    /// A connection has another share; `None`: it sends nothing, and has none.
    Share {
        /// The worker.
        worker: u16,
        /// Its connection.
        conn: ConnId,
        /// The share.
        grant: Option<Grant>,
    },
}

/// The sums of the pool, as of the last division.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolTotals {
    /// The pool.
    pub pool_bytes: u64,
    /// The sum of the shares.
    pub shares_bytes: u64,
    /// What the sockets held when they were last sampled, unsent and in flight.
    pub held_bytes: u64,
    /// Connections that have a share.
    pub connections: u64,
    /// Divisions since the start.
    pub divisions: u64,
    /// What a connection has that joins, until the next division.
    pub start_bytes: u64,
}

/// The send memory of all workers, and who has which share of it.
#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    /// What was believed of addresses, for their next connections.
    remembered: Remembered,
    /// The connections that have or had a share.
    members: BTreeMap<Place, Member>,
    /// Which worker is asked for which readings.
    sampling: SamplingRounds,
    /// When shares are small for a moment.
    drains: Drains,
    /// The pool is divided again before the next round: since the last division a connection joined, or freed memory that
    /// others wait for.
    divides_again: bool,
    /// The last division cut some shares, because others have not freed that memory yet.
    were_cut: bool,
    /// When the pool was last divided.
    divided_at: Instant,
    /// Orders that wait to be polled.
    outs: VecDeque<Out>,
    /// How much all have together, for the metrics.
    totals: PoolTotals,
}

impl Pool {
    /// A pool that nobody shares yet.
    pub fn new(settings: Settings, now: Instant) -> Pool {
        let pool_bytes = settings
            .pool_bytes
            .clamp(CAP_BYTES_MIN, SEND_POOL_BYTES_MAX);
        Pool {
            settings: Settings {
                pool_bytes,
                ..settings
            },
            remembered: Remembered::new(settings.secret),
            members: BTreeMap::new(),
            sampling: SamplingRounds::new(settings.workers, now),
            drains: Drains::default(),
            divides_again: false,
            were_cut: false,
            divided_at: now,
            outs: VecDeque::new(),
            totals: PoolTotals {
                pool_bytes,
                start_bytes: start_bytes(pool_bytes, 0, 0),
                ..PoolTotals::default()
            },
        }
    }

    /// The sums of the pool.
    pub fn totals(&self) -> PoolTotals {
        self.totals
    }

    /// The member for this connection; `None` if it has none, or its slot has another user.
    fn named(&mut self, worker: u16, conn: ConnId) -> Option<&mut Member> {
        let member = self.members.get_mut(&(worker, conn.index));
        member.filter(|member| member.conn == conn)
    }

    /// A connection begins to send.
    fn joined(&mut self, worker: u16, reading: &Reading, now: Instant) {
        self.divides_again = true;
        let (pass, policy) = (self.sampling.pass(worker), self.settings.policy);
        if let Some(member) = self.named(worker, reading.conn) {
            return member.joins(reading, policy, pass, now);
        }
        let belief = self.remembered.belief(reading.address, now);
        let known = Known::new(reading, belief, now);
        let member = Member::new(known, reading, policy, pass);
        self.members.insert((worker, reading.conn.index), member);
    }

    /// A worker has shown its connections from one slot on, up to the `next` one if there are more.
    fn shown(&mut self, worker: u16, from: u32, next: Option<u32>) {
        match self.sampling.answered(worker, from, next) {
            Answered::Nothing => {}
            Answered::Ask(out) => self.outs.push_back(out),
            Answered::Passed(pass) => {
                // Connections that this pass did not show have left. A worker that does not answer never completes a
                // pass, so its connections keep their shares.
                let all = self.members.range_mut((worker, 0)..=(worker, u32::MAX));
                for (_, member) in all.filter(|(_, member)| member.pass < pass) {
                    member.left();
                }
            }
        }
    }

    /// One of the connections that a worker has shown.
    fn sampled(&mut self, worker: u16, reading: &Reading, now: Instant) {
        let (pass, policy) = (self.sampling.pass(worker), self.settings.policy);
        let division = self.totals.divisions + 1;
        let Some(member) = self.named(worker, reading.conn) else {
            return self.joined(worker, reading, now); // the message that told so was lost
        };
        member.read(reading, policy, pass, now);
        match reading.is_idle() {
            true => member.release(division),
            false => member.sends(reading.holding()),
        }
        if let Some(belief) = member.known.belief() {
            self.remembered.keep(reading.address, belief, now);
        }
        if reading.is_idle() {
            self.outs.push_back(Out::Share {
                worker,
                conn: reading.conn,
                grant: None,
            });
        }
    }

    /// Divides the pool, and tells those whose shares have changed.
    fn divide(&mut self, now: Instant) {
        (self.divides_again, self.divided_at) = (false, now);
        let Settings {
            pool_bytes, policy, ..
        } = self.settings;
        let budget_bytes = pool_bytes - pool_bytes / START_PART;
        let sharing = || self.members.values().filter(|one| one.told.is_some());
        let claims: Vec<Claim> = sharing().map(|one| one.claim).collect();
        let taken: Vec<u64> = sharing().map(|one| one.taken_bytes).collect();
        let all_taken_bytes: u64 = self.members.values().map(|one| one.taken_bytes).sum();
        let left_out_bytes = all_taken_bytes - taken.iter().sum::<u64>();
        let mut totals = PoolTotals {
            pool_bytes,
            held_bytes: sharing().map(|one| one.held_bytes).sum(),
            connections: claims.len() as u64,
            divisions: self.totals.divisions + 1,
            ..PoolTotals::default()
        };
        // What each should have: as if all others held no more than their shares.
        let mut shares = divide(&claims, policy, budget_bytes);
        if self.drains.is_on(now) {
            drain::lessen(&claims, &mut shares);
        }
        // What it can have now.
        let free_bytes = budget_bytes.saturating_sub(left_out_bytes);
        self.were_cut = cut_to_fit(&mut shares, &taken, free_bytes);
        let mut taken_bytes = left_out_bytes;
        let sharing = self.members.iter_mut();
        let sharing = sharing.filter(|(_, one)| one.told.is_some());
        for ((&(worker, _), member), share_bytes) in sharing.zip(shares) {
            let grant = member.tell(share_bytes, totals.divisions);
            totals.shares_bytes += member.share_bytes();
            taken_bytes += member.taken_bytes;
            if grant.is_some() {
                self.outs.push_back(Out::Share {
                    worker,
                    conn: member.conn,
                    grant,
                });
            }
        }
        totals.start_bytes = start_bytes(pool_bytes, totals.connections, taken_bytes);
        self.totals = totals;
    }

    /// Does what is due at this time: begins a round, or ends it with a division, or divides between two rounds.
    fn advance(&mut self, now: Instant) {
        let is_due = self.sampling.due_at() <= now;
        if self.sampling.is_asking() {
            if is_due {
                self.sampling.end(now);
                let learns = |one: &Member| one.told.is_some() && one.claim.learns;
                self.drains.round(self.members.values().any(learns), now);
                self.divide(now);
            }
        } else if is_due {
            self.outs.extend(self.sampling.begin(now));
        } else if self.drains.take_over(now) || self.divides_again && now >= self.again_at() {
            self.divide(now);
        }
    }

    /// When the pool may be divided again before the next round.
    fn again_at(&self) -> Instant {
        self.divided_at.plus_us(DIVIDE_APART_US)
    }
}

impl Machine for Pool {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        let less = match event {
            In::Joined { worker, reading } => {
                self.joined(worker, &reading, now);
                None
            }
            In::Sampled {
                worker,
                from,
                readings,
                next,
            } => {
                for reading in &readings {
                    self.sampled(worker, reading, now);
                }
                self.shown(worker, from, next);
                None
            }
            In::Lessened {
                worker,
                conn,
                holding,
            } => (self.named(worker, conn)).map(|member| member.held(holding)),
            In::Left { worker, conn } => self.named(worker, conn).map(Member::left),
        };
        self.divides_again |= self.were_cut && less == Some(true);
    }

    fn poll(&mut self, now: Instant) -> Option<Out> {
        if self.outs.is_empty() {
            self.advance(now);
        }
        self.outs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.outs.is_empty() {
            return Some(Instant { us: 0 });
        }
        let due_at = self.sampling.due_at();
        if self.sampling.is_asking() {
            return Some(due_at);
        }
        let again_at = self.divides_again.then(|| self.again_at());
        let others = [self.drains.ends_at(), again_at].into_iter().flatten();
        others.chain([due_at]).min()
    }
}

/// The share of a connection that joins `others`, until the next division. It is the least of a first flight, an equal
/// part of the pool, and half of what nobody has taken, but at least [`CAP_BYTES_MIN`].
fn start_bytes(pool_bytes: u64, others: u64, taken_bytes: u64) -> u64 {
    let equal_bytes = pool_bytes / (others + 1);
    let free_bytes = pool_bytes.saturating_sub(taken_bytes);
    equal_bytes
        .min(free_bytes / 2)
        .clamp(CAP_BYTES_MIN, SHARE_SEGMENTS_START * ETHERNET_SEGMENT_BYTES)
}

/// Cuts shares until they fit into `pool_bytes` beside what is taken: of each connection the larger one of its share and
/// its taken bytes counts. Only what a share grants beyond the taken bytes is cut, in proportion. Returns whether any
/// share was cut.
fn cut_to_fit(shares: &mut [u64], taken: &[u64], pool_bytes: u64) -> bool {
    let both = || shares.iter().zip(taken);
    let all: u128 = both()
        .map(|(share, taken)| u128::from(*share.max(taken)))
        .sum();
    let room: u128 = both()
        .map(|(share, taken)| u128::from(share.saturating_sub(*taken)))
        .sum();
    let excess = all.saturating_sub(pool_bytes.into()).min(room);
    if excess == 0 {
        return false;
    }
    for (share, taken) in shares.iter_mut().zip(taken) {
        let own = u128::from(share.saturating_sub(*taken));
        *share -= (own * excess).div_ceil(room) as u64; // at most `own`
    }
    true
}

#[cfg(test)]
mod tests;
