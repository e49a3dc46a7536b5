//! The machine that divides send memory among the connections of all workers: when it asks them what TCP says, when it
//! divides, and who is told of a new share. It has a thread of its own (`server/src/divider.rs`), so no worker waits.
//!
//! Each second every worker is asked for a reading of each connection that sends, in pieces. When all have answered, or
//! [`DIVIDE_WAIT_US`] is over, the pool is divided. A connection that joins brings a reading of itself; for those it is
//! divided again, [`DIVIDE_APART_US`] after the last time at the earliest. Until then a new connection has a start share.
//!
//! What is in a socket can't be taken back. So where somebody holds more than its new share, others get that much less
//! until it is gone ([`within`]), and the pool is a bound.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use super::bound::Grant;
use super::drain::Drains;
use super::reading::{Known, Reading};
use super::remembered::Remembered;
use super::{Demand, Divider, Policy};
use crate::conn::ConnId;
use crate::limits::{
    DIVIDE_APART_US, DIVIDE_EACH_US, DIVIDE_WAIT_US, SEND_POOL_BYTES_MAX, SHARE_BYTES_MIN,
    SHARE_GROWTH_PERCENT_MIN, SHARE_SEGMENTS_START, TARGET_US_MAX,
};
use crate::machine::Machine;
use crate::units::Instant;

/// The payload of an Ethernet's segment.
const SEGMENT_BYTES: u64 = 1_448;

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
    /// A connection of this worker begins to send. It has the start share.
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
        /// Its connections with a share, from the slot that was asked for.
        readings: Vec<Reading>,
        /// The slot from which there may be more.
        next: Option<u32>,
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

/// How the pool stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The pool.
    pub pool_bytes: u64,
    /// The sum of the shares.
    pub shares_bytes: u64,
    /// What the sockets held when they were last looked at, unsent and in flight.
    pub held_bytes: u64,
    /// Connections that have a share.
    pub connections: u64,
    /// Divisions since the start.
    pub divisions: u64,
    /// What a connection has that joins, until the next division.
    pub start_bytes: u64,
}

/// A connection, by its worker and its slot.
type Place = (u16, u32);

/// One that has or had a share.
#[derive(Clone, Copy, Debug)]
struct Member {
    known: Known,
    /// As it was told; `None`: it sends nothing now. Its estimate is kept for its next response.
    share_bytes: Option<u64>,
    /// In which round it was last heard of.
    round: u64,
}

/// Memory of a connection in the pool: what is known of it, its place in the tables, and an order. Maps and queues count
/// twice, since they may be half empty; the 64 bytes are for what it holds and its share, in numbers.
pub const MEMBER_BYTES: u64 = (2 * size_of::<(Place, Member)>()
    + 2 * size_of::<Out>()
    + 2 * size_of::<(Place, Demand)>()
    + 64) as u64;

/// Where a round of looks stands.
#[derive(Clone, Debug)]
enum Round {
    /// The next one begins at this time.
    Rests(Instant),
    /// These workers have not said all yet; it ends at this time all the same.
    Asks(Vec<bool>, Instant),
}

/// The machine.
#[derive(Debug)]
pub struct Pool {
    settings: Settings,
    divider: Divider,
    remembered: Remembered,
    members: BTreeMap<Place, Member>,
    round: Round,
    drains: Drains,
    /// Number of the round.
    nth: u64,
    /// Somebody joined since the last division.
    joined: bool,
    divided_at: Instant,
    outs: VecDeque<Out>,
    standing: Standing,
    // Buffers, for members with a share.
    places: Vec<Place>,
    demands: Vec<Demand>,
    held: Vec<u64>,
    shares: Vec<u64>,
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
            members: BTreeMap::new(),
            round: Round::Rests(now.plus_us(DIVIDE_EACH_US)),
            drains: Drains::default(),
            nth: 0,
            joined: false,
            divided_at: now,
            outs: VecDeque::new(),
            standing: Standing {
                pool_bytes: settings.pool_bytes,
                start_bytes: start_bytes(settings.pool_bytes, 0),
                ..Standing::default()
            },
            places: Vec::new(),
            demands: Vec::new(),
            held: Vec::new(),
            shares: Vec::new(),
        }
    }

    /// How it stands, as of the last division.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    fn joined(&mut self, worker: u16, reading: Reading, now: Instant) {
        let place = (worker, reading.conn.index);
        let start_bytes = self.standing.start_bytes;
        match self.members.get_mut(&place) {
            Some(member) if member.known.reading().conn == reading.conn => {
                member.known.read(reading, start_bytes, now);
                (member.share_bytes, member.round) = (Some(start_bytes), self.nth);
            }
            _ => {
                let belief = self.remembered.belief(reading.address, now);
                let member = Member {
                    known: Known::new(reading, belief, now),
                    share_bytes: Some(start_bytes),
                    round: self.nth,
                };
                self.members.insert(place, member);
            }
        }
        self.joined = true;
    }

    fn sampled(&mut self, worker: u16, readings: Vec<Reading>, next: Option<u32>, now: Instant) {
        for reading in readings {
            self.read(worker, reading, now);
        }
        let Round::Asks(open, _) = &mut self.round else {
            return; // too late for its round
        };
        match (next, open.get_mut(usize::from(worker))) {
            (Some(from), Some(true)) => self.outs.push_back(Out::Sample { worker, from }),
            (None, Some(open)) => *open = false,
            _ => {}
        }
    }

    fn read(&mut self, worker: u16, reading: Reading, now: Instant) {
        let place = (worker, reading.conn.index);
        let same = |member: &&mut Member| member.known.reading().conn == reading.conn;
        let Some(member) = self.members.get_mut(&place).filter(same) else {
            return self.joined(worker, reading, now); // the news of that was lost
        };
        let share_bytes = member.share_bytes.unwrap_or(self.standing.start_bytes);
        member.known.read(reading, share_bytes, now);
        member.round = self.nth;
        if let Some(belief) = member.known.belief() {
            self.remembered.keep(reading.address, belief, now);
        }
        match reading.is_idle() {
            false => member.share_bytes = Some(share_bytes),
            true => {
                member.share_bytes = None;
                self.outs.push_back(Out::Share {
                    worker,
                    conn: reading.conn,
                    grant: None,
                });
            }
        }
    }

    /// When a round of looks is over, those who were not heard of have left. A worker that has not answered is not told
    /// from one without connections: its connections keep what they have.
    fn end_round(&mut self) {
        let Round::Asks(open, _) = &self.round else {
            return;
        };
        for ((worker, _), member) in &mut self.members {
            let answered = !open.get(usize::from(*worker)).is_some_and(|open| *open);
            if answered && member.round < self.nth {
                member.share_bytes = None;
            }
        }
    }

    fn divide(&mut self, now: Instant) {
        (self.joined, self.divided_at) = (false, now);
        self.places.clear();
        self.demands.clear();
        self.held.clear();
        for (place, member) in &self.members {
            if member.share_bytes.is_some() {
                self.places.push(*place);
                self.demands.push(member.known.demand());
                self.held.push(member.known.reading().sample.unacked_bytes);
            }
        }
        let pool_bytes = self.settings.pool_bytes;
        self.divider
            .divide(&self.demands, pool_bytes, TARGET_US_MAX);
        let shares = self.divider.in_phase(self.drains.phase(now), &self.demands);
        self.shares.clear();
        self.shares.extend_from_slice(shares);
        within(&mut self.shares, &self.held, pool_bytes);
        let mut shares_bytes = 0;
        for (place, share_bytes) in self.places.iter().zip(&self.shares) {
            let Some(member) = self.members.get_mut(place) else {
                continue;
            };
            let share_bytes = (*share_bytes).max(SHARE_BYTES_MIN);
            let before_bytes = member.share_bytes.unwrap_or(0);
            if is_worth_telling(before_bytes, share_bytes) {
                member.share_bytes = Some(share_bytes);
                self.outs.push_back(Out::Share {
                    worker: place.0,
                    conn: member.known.reading().conn,
                    grant: Some(Grant {
                        share_bytes,
                        segment_bytes: member.known.reading().segment_bytes(),
                    }),
                });
            }
            shares_bytes += member.share_bytes.unwrap_or(0);
        }
        self.standing = Standing {
            pool_bytes,
            shares_bytes,
            held_bytes: self.held.iter().sum(),
            connections: self.places.len() as u64,
            divisions: self.standing.divisions + 1,
            start_bytes: start_bytes(pool_bytes, self.places.len() as u64),
        };
    }

    /// What is due at this time.
    fn advance(&mut self, now: Instant) {
        match &self.round {
            Round::Rests(at) if *at <= now => {
                self.nth += 1;
                let workers = self.settings.workers;
                let ends_at = now.plus_us(DIVIDE_WAIT_US);
                self.round = Round::Asks(vec![true; workers.into()], ends_at);
                let looks = (0..workers).map(|worker| Out::Sample { worker, from: 0 });
                self.outs.extend(looks);
            }
            Round::Asks(open, ends_at) if *ends_at <= now || !open.contains(&true) => {
                self.end_round();
                self.drains.round(now);
                self.divide(now);
                self.round = Round::Rests(now.plus_us(DIVIDE_EACH_US));
            }
            Round::Rests(_) if self.drains.take_over(now) => self.divide(now),
            Round::Rests(_) if self.joined && now >= self.joins_at() => self.divide(now),
            Round::Rests(_) | Round::Asks(..) => {}
        }
    }

    /// When it is divided for those who joined.
    fn joins_at(&self) -> Instant {
        self.divided_at.plus_us(DIVIDE_APART_US)
    }
}

impl Machine for Pool {
    type In = In;
    type Out = Out;

    fn on(&mut self, event: In, now: Instant) {
        match event {
            In::Joined { worker, reading } => self.joined(worker, reading, now),
            In::Sampled {
                worker,
                readings,
                next,
            } => self.sampled(worker, readings, next, now),
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
        Some(match &self.round {
            Round::Rests(at) => {
                let drained_at = self.drains.ends_at().unwrap_or(*at);
                let joins_at = if self.joined { self.joins_at() } else { *at };
                (*at).min(drained_at).min(joins_at)
            }
            Round::Asks(open, _) if !open.contains(&true) => Instant { us: 0 },
            Round::Asks(_, ends_at) => *ends_at,
        })
    }
}

/// What a connection has that joins `others`, until the next division: a first flight, or an equal part of the pool.
fn start_bytes(pool_bytes: u64, others: u64) -> u64 {
    let equal_bytes = pool_bytes / (others + 1);
    equal_bytes.clamp(SHARE_BYTES_MIN, SHARE_SEGMENTS_START * SEGMENT_BYTES)
}

/// Whether a change is worth a system call.
fn is_worth_telling(before_bytes: u64, share_bytes: u64) -> bool {
    let growth_bytes = share_bytes.saturating_sub(before_bytes);
    share_bytes < before_bytes
        || growth_bytes > 0 && growth_bytes * 100 >= before_bytes * SHARE_GROWTH_PERCENT_MIN
}

/// Lessens what is granted beyond what sockets hold, in proportion, until all is within the pool. Who holds more than its
/// share gives it back as its client acknowledges.
fn within(shares: &mut [u64], held: &[u64], pool_bytes: u64) {
    let both = || shares.iter().zip(held);
    let taken: u128 = both()
        .map(|(share, held)| u128::from(*share.max(held)))
        .sum();
    let room: u128 = both()
        .map(|(share, held)| u128::from(share.saturating_sub(*held)))
        .sum();
    let excess = taken.saturating_sub(pool_bytes.into()).min(room);
    if excess == 0 {
        return;
    }
    for (share, held) in shares.iter_mut().zip(held) {
        let own = u128::from(share.saturating_sub(*held));
        *share -= (own * excess).div_ceil(room) as u64; // at most `own`
    }
}

#[cfg(test)]
mod tests;
