//! The machine that divides send memory among the connections of all workers. It decides when to sample them, when to
//! divide, and whom to tell of a new share. It has a thread of its own (`server/src/divider.rs`), so no worker waits.
//!
//! Each second it asks every worker for readings of the connections that send, a piece at a time ([`sampling`]). When
//! all have answered, or after [`DIVIDE_WAIT_US`](crate::limits::DIVIDE_WAIT_US), it divides the pool. A connection
//! that joins brings its own reading. For such connections it divides again, at the earliest [`DIVIDE_APART_US`] after
//! the last division. Until then they have a start share; one part in [`START_PART`] of the pool is reserved for these.
//!
//! Bytes in a socket can't be taken back, and a share stays in force until the worker has heard of a smaller one. So
//! where a connection may hold more than its new share ([`member`]), the others get that much less until it has drained
//! ([`within`]). All sockets together hold no more than the pool and the start shares of connections that have just
//! joined. When a worker reports that a connection has drained, the pool is divided again for those who got less.
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
    DIVIDE_APART_US, PAUSED_US, SEND_POOL_BYTES_MAX, SHARE_BYTES_MIN, SHARE_SEGMENTS_START,
    STALLED_PART, START_PART, TARGET_US_MAX,
};
use crate::machine::Machine;
use crate::units::Instant;

/// The payload of an Ethernet's segment.
const SEGMENT_BYTES: u64 = 1_448;

/// A connection, by its worker and its slot.
type Place = (u16, u32);

/// Memory of a connection in the pool: its slot, its place in the tables, and an order. Tables and queues count
/// twice, since they may be half empty; the 64 bytes are for what it holds and its share, in numbers.
pub const MEMBER_BYTES: u64 = (SLOT_BYTES
    + 2 * size_of::<Out>()
    + 2 * size_of::<(Place, Claim)>()
    + 2 * size_of::<Stalled>()
    + 64) as u64;

/// One whose client takes nothing: since when, where it is, and what is in its socket.
type Stalled = (Instant, Place, u64);

/// The machine.
#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    divider: Divider,
    remembered: Remembered,
    members: Members,
    sampling: SamplingRounds,
    drains: Drains,
    /// Since the last division a connection joined, or freed memory that others wait for.
    awaited: bool,
    /// The last division had to cut some shares ([`within`]), because others have not freed that memory yet.
    short: bool,
    divided_at: Instant,
    fade: Fade,
    outs: VecDeque<Out>,
    totals: PoolTotals,
    // Buffers, for members with a share.
    places: Vec<Place>,
    taken: Vec<u64>,
    /// What is taken by all, with those who have no share.
    taken_bytes: u64,
    shares: Vec<u64>,
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
            awaited: false,
            short: false,
            divided_at: now,
            fade: Fade::default(),
            outs: VecDeque::new(),
            totals: PoolTotals {
                pool_bytes: settings.pool_bytes,
                start_bytes: start_bytes(settings.pool_bytes, 0, 0),
                ..PoolTotals::default()
            },
            places: Vec::new(),
            taken: Vec::new(),
            taken_bytes: 0,
            shares: Vec::new(),
            stalled: Vec::new(),
        }
    }

    /// How it stands, as of the last division.
    pub fn totals(&self) -> PoolTotals {
        self.totals
    }

    /// Whether the last division was for a drain, whose shares hold for a moment only.
    pub fn is_draining(&self) -> bool {
        self.drains.ends_at().is_some()
    }

    fn joined(&mut self, worker: u16, reading: &Reading, now: Instant) {
        self.awaited = true;
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

    fn sampled(&mut self, worker: u16, from: u32, next: Option<u32>) {
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

    fn read(&mut self, worker: u16, reading: &Reading, now: Instant) {
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

    fn lessened(&mut self, worker: u16, conn: ConnId, holding: Holding) {
        let named = self.members.named(worker, conn);
        let less = named.map(|(member, _)| member.held(holding));
        self.awaited |= self.short && less == Some(true);
    }

    fn left(&mut self, worker: u16, conn: ConnId) {
        let named = self.members.named(worker, conn);
        let less = named.map(|(member, _)| member.left());
        self.awaited |= self.short && less == Some(true);
    }

    fn divide(&mut self, now: Instant) {
        (self.awaited, self.divided_at) = (false, now);
        self.places.clear();
        self.divider.clear();
        self.taken.clear();
        self.stalled.clear();
        let (mut held_bytes, mut aside_bytes, mut stalled_bytes) = (0, 0, 0);
        self.taken_bytes = 0;
        for (place, member) in self.members.iter() {
            let socket_bytes = member.shown.socket_bytes;
            self.taken_bytes += member.taken_bytes();
            match (member.told, member.shown.stalled_from) {
                (None, _) => aside_bytes += member.taken_bytes(),
                (Some(_), Some(from)) => {
                    held_bytes += socket_bytes;
                    aside_bytes += member.taken_bytes();
                    stalled_bytes += socket_bytes;
                    self.stalled.push((from, place, socket_bytes));
                }
                (Some(_), None) => {
                    held_bytes += socket_bytes;
                    self.places.push(place);
                    self.divider.add(&member.shown.claim);
                    self.taken.push(member.taken_bytes());
                }
            }
        }
        let pool_bytes = self.settings.pool_bytes;
        let budget_bytes = pool_bytes - pool_bytes / START_PART;
        self.divider
            .divide_added(budget_bytes.saturating_sub(stalled_bytes));
        let shares = self.divider.in_phase(self.drains.phase(now));
        self.shares.clear();
        self.shares.extend_from_slice(shares);
        let left_bytes = budget_bytes.saturating_sub(aside_bytes);
        self.short = within(&mut self.shares, &self.taken, left_bytes);
        let connections = (self.places.len() + self.stalled.len()) as u64;
        self.totals = PoolTotals {
            pool_bytes,
            shares_bytes: 0,
            held_bytes,
            connections,
            divisions: self.totals.divisions + 1,
            start_bytes: 0,
        };
        self.tell_stalled(stalled_bytes);
        for nth in 0..self.places.len() {
            self.tell(self.places[nth], self.shares[nth], u64::MAX);
        }
        let free_bytes = pool_bytes.saturating_sub(self.taken_bytes);
        self.totals.start_bytes = start_bytes(pool_bytes, connections, pool_bytes - free_bytes);
    }

    /// A stalled client keeps what its socket holds. While all of them together hold too much and a share limits
    /// somebody else, the first to stall get a shorter pause timeout: as many as hold the excess.
    fn tell_stalled(&mut self, stalled_bytes: u64) {
        let members = &mut self.members;
        let mut is_short = |place: &Place| {
            let member = members.at(*place);
            member.is_some_and(|member| member.shown.is_held_up)
        };
        let most_bytes = self.settings.pool_bytes / STALLED_PART;
        let mut excess_bytes = match self.places.iter().any(&mut is_short) {
            true => stalled_bytes.saturating_sub(most_bytes),
            false => 0,
        };
        self.stalled.sort_unstable();
        for nth in 0..self.stalled.len() {
            let (_, place, socket_bytes) = self.stalled[nth];
            let pause_us_max = if excess_bytes > 0 {
                PAUSED_US
            } else {
                u64::MAX
            };
            excess_bytes = excess_bytes.saturating_sub(socket_bytes);
            let member = self.members.at(place);
            let before_bytes = member.map_or(0, |member| member.share_bytes());
            self.tell(place, socket_bytes.min(before_bytes), pause_us_max);
        }
    }

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

    /// What is due at this time.
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
        } else if self.drains.take_over(now) || self.awaited && now >= self.awaited_at() {
            self.divide(now);
        }
    }

    /// When to divide again for connections that joined, or that wait for memory that others free.
    fn awaited_at(&self) -> Instant {
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
                    self.read(worker, reading, now);
                }
                self.sampled(worker, from, next);
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
        let awaited_at = if self.awaited {
            self.awaited_at()
        } else {
            due_at
        };
        Some(due_at.min(drained_at).min(awaited_at))
    }
}

/// The share of a connection that joins `others`, until the next division. It is the least of a first flight, an equal
/// part of the pool, and half of what nobody has taken, but at least [`SHARE_BYTES_MIN`].
fn start_bytes(pool_bytes: u64, others: u64, taken_bytes: u64) -> u64 {
    let equal_bytes = pool_bytes / (others + 1);
    let free_bytes = pool_bytes.saturating_sub(taken_bytes);
    equal_bytes
        .min(free_bytes / 2)
        .clamp(SHARE_BYTES_MIN, SHARE_SEGMENTS_START * SEGMENT_BYTES)
}

/// Cuts shares until all fit into the pool. Only what a share grants beyond the bytes already taken is cut, in
/// proportion. Returns whether any share was cut.
fn within(shares: &mut [u64], taken: &[u64], pool_bytes: u64) -> bool {
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
