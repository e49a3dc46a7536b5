//! The machine that divides send memory among the connections of all workers. It decides when to sample them, when to
//! divide, and whom to tell of a new share. It has a thread of its own (`server/src/divider.rs`), so no worker waits.
//!
//! Each second begins a round (`sampling`): it asks every worker for readings of the connections that send. A worker
//! shows its slots piece by piece; when it has shown all, that was a *pass*, and connections that were not among them have
//! left. The round ends when all workers have answered, or after [`DIVIDE_WAIT_US`](crate::limits::DIVIDE_WAIT_US). Then
//! the pool is divided. A connection that joins brings its own reading. For such connections the pool is divided again
//! between two rounds, at the earliest [`DIVIDE_APART_US`] after the last division. Until then they have a start share;
//! one part in [`START_PART`] of the pool is reserved for these.
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
//! Now and then a division begins a drain ([`Drains`]), if some connection may learn by it. For a moment, connections
//! that are limited by their shares get small ones. The queues on their paths empty, and TCP measures the round trip
//! without them. Then it divides again.
//!
//! A stalled client, which takes nothing, claims no more than its socket holds. If stalled clients hold more than one
//! part in [`STALLED_PART`] of the pool while a share limits somebody else, those that stalled first get little time:
//! they are closed after [`PAUSED_US`], not after `pause_timeout`.

mod member;
mod members;
mod messages;
mod sampling;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use self::member::{Member, Shown};
use self::members::{Members, SLOT_BYTES};
pub use self::messages::{In, Out, PoolTotals, Settings};
use self::sampling::{Answered, SamplingRounds};
use super::drain::Drains;
use super::estimate::Fade;
use super::reading::{Holding, Known, Reading};
use super::remembered::Remembered;
use super::{Claim, Divider};
use crate::conn::ConnId;
use crate::limits::{
    DIVIDE_APART_US, ETHERNET_SEGMENT_BYTES, PAUSED_US, SEND_POOL_BYTES_MAX, SHARE_BYTES_MIN,
    SHARE_SEGMENTS_START, STALLED_PART, START_PART, TARGET_US_MAX,
};
use crate::machine::Machine;
use crate::units::Instant;

/// A connection, by its worker and its slot.
type Place = (u16, u32);

/// Memory of a connection in the pool: its slot, its place in the tables, and an order. Tables and queues count
/// twice, since they may be half empty; the 64 bytes are for what it holds and its share, in numbers.
pub const MEMBER_BYTES: u64 = (SLOT_BYTES
    + 2 * size_of::<Out>()
    + 2 * size_of::<(Place, Claim)>()
    + 2 * size_of::<Stalled>()
    + 64) as u64;

/// A connection whose client takes nothing. They are sorted by when they stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stalled {
    /// Since when.
    from: Instant,
    /// Which connection.
    place: Place,
    /// What its socket holds.
    held_bytes: u64,
}

/// What the connections have together at a division.
#[derive(Clone, Copy, Debug, Default)]
struct MemberSums {
    /// Held by those that have a share.
    held_bytes: u64,
    /// Held by stalled ones. They get no other share than this.
    stalled_bytes: u64,
    /// Taken by those that the division leaves out: they are stalled, or have no share any more.
    left_out_bytes: u64,
}

/// The send memory of all workers, and who has which share of it.
#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    /// Computes shares from claims.
    divider: Divider,
    /// What was believed of addresses, for their next connections.
    remembered: Remembered,
    /// The connections that have or had a share.
    members: Members,
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
    /// How much the estimates of a round fade, computed once.
    fade: Fade,
    /// Orders that wait to be polled.
    outs: VecDeque<Out>,
    /// How much all have together, for the metrics.
    totals: PoolTotals,
    /// What is taken by all connections, also by those that have no share any more.
    taken_bytes: u64,
    // Buffers of a division. The first three have an entry for each connection that gets a share of it.
    places: Vec<Place>,
    taken: Vec<u64>,
    shares: Vec<u64>,
    /// Those whose clients take nothing.
    stalled: Vec<Stalled>,
}

impl Pool {
    /// A pool that nobody shares yet.
    pub fn new(settings: Settings, now: Instant) -> Pool {
        let settings = Settings {
            pool_bytes: settings
                .pool_bytes
                .clamp(SHARE_BYTES_MIN, SEND_POOL_BYTES_MAX),
            ..settings
        };
        Pool {
            settings,
            divider: Divider::new(settings.policy),
            remembered: Remembered::new(settings.secret),
            members: Members::new(settings.workers),
            sampling: SamplingRounds::new(settings.workers, now),
            drains: Drains::default(),
            divides_again: false,
            were_cut: false,
            divided_at: now,
            fade: Fade::default(),
            outs: VecDeque::new(),
            totals: PoolTotals {
                pool_bytes: settings.pool_bytes,
                start_bytes: start_bytes(settings.pool_bytes, 0, 0),
                ..PoolTotals::default()
            },
            taken_bytes: 0,
            places: Vec::new(),
            taken: Vec::new(),
            shares: Vec::new(),
            stalled: Vec::new(),
        }
    }

    /// The sums of the pool, as of the last division.
    pub fn totals(&self) -> PoolTotals {
        self.totals
    }

    /// A connection begins to send.
    fn joined(&mut self, worker: u16, reading: &Reading, now: Instant) {
        self.divides_again = true;
        let pass = self.sampling.pass(worker);
        let claim = |known: &Known| self.divider.claim(&known.demand(reading), TARGET_US_MAX);
        if let Some((member, known)) = self.members.named(worker, reading.conn) {
            known.read(reading, now, &mut self.fade);
            return member.joins(known, reading, claim(known), pass);
        }
        let belief = self.remembered.belief(reading.address, now);
        let known = Known::new(reading, belief, now);
        let member = Member::new(&known, reading, claim(&known), pass);
        let place = (worker, reading.conn.index);
        self.members.insert(place, member, known);
    }

    /// A worker has shown its connections from one slot on, up to the `next` one if there are more.
    fn shown(&mut self, worker: u16, from: u32, next: Option<u32>) {
        match self.sampling.answered(worker, from, next) {
            Answered::Nothing => {}
            Answered::Ask(out) => self.outs.push_back(out),
            Answered::Passed(pass) => {
                // Connections that this pass did not show have left. A worker that does not answer never completes a
                // pass, so its connections keep their shares.
                let all = self.members.of_worker(worker);
                for member in all.filter(|member| member.pass < pass) {
                    member.left();
                }
            }
        }
    }

    /// One of the connections that a worker has shown.
    fn sampled(&mut self, worker: u16, reading: &Reading, now: Instant) {
        let (pass, division) = (self.sampling.pass(worker), self.totals.divisions + 1);
        let Some((member, known)) = self.members.named(worker, reading.conn) else {
            return self.joined(worker, reading, now); // the message that told so was lost
        };
        known.read(reading, now, &mut self.fade);
        let claim = self.divider.claim(&known.demand(reading), TARGET_US_MAX);
        member.shown = Shown::of(known, reading, claim);
        member.held(reading.holding());
        member.pass = pass;
        match reading.is_idle() {
            true => member.release(division),
            false => member.sends(reading.holding()),
        }
        let belief = known.belief();
        if let Some(belief) = belief {
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

    /// A smaller share is in force, so less may be taken by the connection.
    fn lessened(&mut self, worker: u16, conn: ConnId, holding: Holding) {
        let named = self.members.named(worker, conn);
        let less = named.map(|(member, _)| member.held(holding));
        self.divides_again |= self.were_cut && less == Some(true);
    }

    /// A connection has no share any more, and nothing is taken by it.
    fn left(&mut self, worker: u16, conn: ConnId) {
        let named = self.members.named(worker, conn);
        let less = named.map(|(member, _)| member.left());
        self.divides_again |= self.were_cut && less == Some(true);
    }

    /// Divides the pool, and tells those whose shares have changed.
    fn divide(&mut self, now: Instant) {
        (self.divides_again, self.divided_at) = (false, now);
        let sums = self.gather();
        let pool_bytes = self.settings.pool_bytes;
        let budget_bytes = pool_bytes - pool_bytes / START_PART;
        // What each should have: as if all others held no more than their shares.
        self.divider
            .divide_added(budget_bytes.saturating_sub(sums.stalled_bytes));
        let shares = self.divider.in_phase(self.drains.phase(now));
        self.shares.clear();
        self.shares.extend_from_slice(shares);
        // What it can have now.
        let left_bytes = budget_bytes.saturating_sub(sums.left_out_bytes);
        self.were_cut = cut_to_fit(&mut self.shares, &self.taken, left_bytes);
        let connections = (self.places.len() + self.stalled.len()) as u64;
        self.totals = PoolTotals {
            pool_bytes,
            shares_bytes: 0, // each that is told adds its own
            held_bytes: sums.held_bytes,
            connections,
            divisions: self.totals.divisions + 1,
            start_bytes: 0, // by what is taken when all are told
        };
        self.tell_stalled(sums.stalled_bytes);
        for nth in 0..self.places.len() {
            self.tell(self.places[nth], self.shares[nth], u64::MAX);
        }
        self.totals.start_bytes = start_bytes(pool_bytes, connections, self.taken_bytes);
    }

    /// Fills the buffers for a division, and adds up.
    fn gather(&mut self) -> MemberSums {
        self.places.clear();
        self.divider.clear();
        self.taken.clear();
        self.stalled.clear();
        self.taken_bytes = 0;
        let mut sums = MemberSums::default();
        for (place, member) in self.members.iter() {
            let (held_bytes, taken_bytes) = (member.shown.socket_bytes, member.taken_bytes());
            self.taken_bytes += taken_bytes;
            if member.told.is_none() {
                sums.left_out_bytes += taken_bytes;
                continue;
            }
            sums.held_bytes += held_bytes;
            if let Some(from) = member.shown.stalled_from {
                sums.left_out_bytes += taken_bytes;
                sums.stalled_bytes += held_bytes;
                self.stalled.push(Stalled {
                    from,
                    place,
                    held_bytes,
                });
            } else {
                self.places.push(place);
                self.divider.add(&member.shown.claim);
                self.taken.push(taken_bytes);
            }
        }
        sums
    }

    /// A stalled client keeps what its socket holds. While all of them together hold too much and a share limits
    /// somebody else, the first to stall get a shorter pause timeout: as many as hold the excess.
    fn tell_stalled(&mut self, stalled_bytes: u64) {
        let members = &mut self.members;
        let mut is_share_limited = |place: &Place| {
            let member = members.at(*place);
            member.is_some_and(|member| member.shown.is_share_limited)
        };
        let most_bytes = self.settings.pool_bytes / STALLED_PART;
        let mut excess_bytes = match self.places.iter().any(&mut is_share_limited) {
            true => stalled_bytes.saturating_sub(most_bytes),
            false => 0,
        };
        self.stalled.sort_unstable();
        for nth in 0..self.stalled.len() {
            let Stalled {
                place, held_bytes, ..
            } = self.stalled[nth];
            let pause_us_max = if excess_bytes > 0 {
                PAUSED_US
            } else {
                u64::MAX
            };
            excess_bytes = excess_bytes.saturating_sub(held_bytes);
            let member = self.members.at(place);
            let before_bytes = member.map_or(0, |member| member.share_bytes());
            self.tell(place, held_bytes.min(before_bytes), pause_us_max);
        }
    }

    /// Tells a connection its share, if that is worth telling.
    fn tell(&mut self, place: Place, share_bytes: u64, pause_us_max: u64) {
        let Some(member) = self.members.at(place) else {
            return;
        };
        let before_bytes = member.taken_bytes();
        let grant = member.tell(share_bytes, pause_us_max, self.totals.divisions);
        self.taken_bytes += member.taken_bytes() - before_bytes; // telling lessens nothing
        self.totals.shares_bytes += member.share_bytes();
        if grant.is_some() {
            self.outs.push_back(Out::Share {
                worker: place.0,
                conn: member.conn,
                grant,
            });
        }
    }

    /// Does what is due at this time: begins a round, or ends it with a division, or divides between two rounds.
    fn advance(&mut self, now: Instant) {
        if self.sampling.is_asking() {
            if self.sampling.due_at() <= now {
                self.sampling.end(now);
                let members = &self.members;
                let sharing = || members.iter().filter(|(_, one)| one.told.is_some());
                let learns = || sharing().any(|(_, one)| one.shown.claim.learns);
                self.drains.round(learns, now);
                self.divide(now);
            }
        } else if self.sampling.due_at() <= now {
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
        match event {
            In::Joined { worker, reading } => self.joined(worker, &reading, now),
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
            }
            In::Lessened {
                worker,
                conn,
                holding,
            } => self.lessened(worker, conn, holding),
            In::Left { worker, conn } => self.left(worker, conn),
        }
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
        let drained_at = self.drains.ends_at().unwrap_or(due_at);
        let again_at = if self.divides_again {
            self.again_at()
        } else {
            due_at
        };
        Some(due_at.min(drained_at).min(again_at))
    }
}

/// The share of a connection that joins `others`, until the next division. It is the least of a first flight, an equal
/// part of the pool, and half of what nobody has taken, but at least [`SHARE_BYTES_MIN`].
fn start_bytes(pool_bytes: u64, others: u64, taken_bytes: u64) -> u64 {
    let equal_bytes = pool_bytes / (others + 1);
    let free_bytes = pool_bytes.saturating_sub(taken_bytes);
    equal_bytes.min(free_bytes / 2).clamp(
        SHARE_BYTES_MIN,
        SHARE_SEGMENTS_START * ETHERNET_SEGMENT_BYTES,
    )
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
mod bound_tests;
#[cfg(test)]
mod tests;
