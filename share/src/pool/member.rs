//! A connection in the pool: what is known of it, its share, and what of the pool is taken by it.
//!
//! A share that was told is not yet in force, and one that is in force may be filled at any time. So as much is taken as the
//! largest share that may be in force, or what the socket holds, if that is more. A reading says which share is in force
//! ([`Holding`]): with the last one that was told, all larger ones are done with.

use ackpace_core::conn::ConnId;
use ackpace_core::send::CAP_BYTES_MIN;
use ackpace_core::units::Instant;

use crate::bound::{Grant, Holding};
use crate::reading::{Known, Reading};
use crate::{Claim, Policy};

/// A share that grows by less than this, in hundredths, is not worth a system call. One that shrinks always is, or the
/// shares would exceed the pool.
const SHARE_GROWTH_PERCENT_MIN: u64 = 3;

/// One that has or had a share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Which connection.
    pub conn: ConnId,
    /// What is known of it.
    pub known: Known,
    /// What it asks for, by its last reading.
    pub claim: Claim,
    /// What its socket held then.
    pub held_bytes: u64,
    /// Its segment.
    segment_bytes: u64,
    /// The share that was told; `None`: none, and what is known is kept for its next response.
    pub told: Option<Grant>,
    /// The division by which that was told.
    division: u64,
    /// A reading says that this is not in force, so it may be lost: it is told again.
    unheard: bool,
    /// The most that its socket may hold, until it is heard of or told again.
    pub taken_bytes: u64,
    /// In which pass through its worker's slots it was last heard of.
    pub pass: u64,
}

impl Member {
    /// One that begins with the share that it has.
    pub fn new(known: Known, reading: &Reading, policy: Policy, pass: u64) -> Member {
        let mut member = Member {
            conn: reading.conn,
            known,
            claim: Claim::default(),
            held_bytes: 0,
            segment_bytes: 0,
            told: None,
            division: 0,
            unheard: false,
            taken_bytes: 0,
            pass: 0,
        };
        member.shows(reading, policy, pass);
        member.begins(reading);
        member
    }

    /// With the share that its last reading has.
    fn begins(&mut self, reading: &Reading) {
        let Holding {
            held_bytes,
            share_bytes,
            division,
        } = reading.holding();
        self.told = Some(Grant {
            share_bytes,
            segment_bytes: self.segment_bytes,
            division,
        });
        (self.division, self.unheard) = (division, false);
        self.taken_bytes = held_bytes.max(share_bytes);
    }

    pub fn share_bytes(&self) -> u64 {
        self.told.map_or(0, |grant| grant.share_bytes)
    }

    fn shows(&mut self, reading: &Reading, policy: Policy, pass: u64) {
        self.claim = Claim::of(&self.known.demand(reading), policy);
        self.held_bytes = reading.sample.unacked_bytes;
        self.segment_bytes = reading.segment_bytes();
        self.pass = pass;
    }

    /// One more reading.
    pub fn read(&mut self, reading: &Reading, policy: Policy, pass: u64, now: Instant) {
        self.known.read(reading, now);
        self.shows(reading, policy, pass);
        self.held(reading.holding());
    }

    /// It begins to send, by a reading. If it has heard that it had no share, it begins with what it has.
    pub fn joins(&mut self, reading: &Reading, policy: Policy, pass: u64, now: Instant) {
        let is_new = self.told.is_none();
        self.read(reading, policy, pass, now);
        match is_new {
            true => self.begins(reading),
            false => self.sends(reading.holding()),
        }
    }

    /// What its socket holds, and by which share. Whether less is taken by it now.
    pub fn held(&mut self, holding: Holding) -> bool {
        let now_bytes = holding.held_bytes.max(holding.share_bytes);
        let is_last = self.told.is_some() && holding.division == self.division;
        let before_bytes = self.taken_bytes;
        self.unheard &= !is_last;
        if let Some(told) = self.told.as_mut().filter(|_| is_last) {
            told.share_bytes = holding.share_bytes; // what a connection begins with is not told
        }
        self.taken_bytes = match is_last {
            true => now_bytes,
            false => before_bytes.max(now_bytes),
        };
        self.taken_bytes < before_bytes
    }

    /// It sends, as its last reading says, and takes part again if it did not.
    pub fn sends(&mut self, holding: Holding) {
        self.told.get_or_insert(Grant {
            share_bytes: holding.share_bytes,
            segment_bytes: self.segment_bytes,
            division: holding.division,
        });
        self.unheard |= holding.division != self.division;
    }

    /// It is told a share. `None` if that is nothing new to it.
    pub fn tell(&mut self, share_bytes: u64, division: u64) -> Option<Grant> {
        let grant = Grant {
            share_bytes: share_bytes.max(CAP_BYTES_MIN),
            segment_bytes: self.segment_bytes,
            division,
        };
        let is_new = is_worth_telling(self.share_bytes(), grant.share_bytes);
        if !is_new && !self.unheard {
            return None;
        }
        self.told = Some(grant);
        (self.division, self.unheard) = (division, false);
        self.taken_bytes = self.taken_bytes.max(grant.share_bytes);
        Some(grant)
    }

    /// It is told that it has no share. What it may hold is taken until it says that it has left.
    pub fn release(&mut self, division: u64) {
        self.told = None;
        self.division = division;
    }

    /// It has no share, and its socket holds nothing. Whether something was taken by it.
    pub fn left(&mut self) -> bool {
        self.told = None;
        core::mem::take(&mut self.taken_bytes) > 0
    }
}

/// Whether a change is worth a system call.
pub(super) fn is_worth_telling(before_bytes: u64, share_bytes: u64) -> bool {
    let growth_bytes = share_bytes.saturating_sub(before_bytes);
    share_bytes < before_bytes
        || growth_bytes > 0 && growth_bytes * 100 >= before_bytes * SHARE_GROWTH_PERCENT_MIN
}
