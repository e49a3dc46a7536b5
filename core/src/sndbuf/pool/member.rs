//! A connection in the pool: what is known of it, its share, and what of the pool is taken by it.
//!
//! A share that was told is not yet in force, and one that is in force may be filled at any time. So as much is taken as the
//! largest share that may be in force, or what the socket holds, if that is more. A reading says which share is in force
//! ([`Holding`]): with the last one that was told, all larger ones are done with.

use crate::conn::ConnId;
use crate::limits::SHARE_BYTES_MIN;
use crate::sndbuf::Claim;
use crate::sndbuf::bound::Grant;
use crate::sndbuf::reading::{Holding, Known, Reading};
use crate::units::Instant;

/// What the last reading says of one, as far as a division needs it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shown {
    /// What it asks for.
    pub claim: Claim,
    /// What its socket held.
    pub socket_bytes: u64,
    /// [`Known::stalled_from`].
    pub stalled_from: Option<Instant>,
    /// [`Known::is_share_limited`].
    pub is_share_limited: bool,
    /// Its MSS.
    segment_bytes: u64,
    /// [`Reading::refill_rtt_us`].
    refill_rtt_us: u64,
}

impl Shown {
    /// By the last reading, with the claim that follows from it.
    pub fn of(known: &Known, reading: &Reading, claim: Claim) -> Shown {
        Shown {
            claim,
            socket_bytes: reading.sample.unacked_bytes,
            stalled_from: known.stalled_from(),
            is_share_limited: known.is_share_limited(),
            segment_bytes: reading.segment_bytes(),
            refill_rtt_us: reading.refill_rtt_us(),
        }
    }
}

/// One that has or had a share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    /// Which connection.
    pub conn: ConnId,
    /// Its last reading.
    pub shown: Shown,
    /// The share that was told; `None`: none, and its estimate is kept for its next response.
    pub told: Option<Grant>,
    /// The division by which that was told.
    division: u64,
    /// A reading says that this is not in force, so it may be lost: it is told again.
    unheard: bool,
    /// The most that its socket may hold, until it is heard of or told again.
    taken_bytes: u64,
    /// In which pass through its worker's slots it was last heard of.
    pub pass: u64,
}

impl Member {
    /// One that begins with the share that it has.
    pub fn new(known: &Known, reading: &Reading, claim: Claim, pass: u64) -> Member {
        let holding = reading.holding();
        Member {
            conn: reading.conn,
            shown: Shown::of(known, reading, claim),
            told: Some(Grant {
                share_bytes: holding.share_bytes,
                segment_bytes: reading.segment_bytes(),
                division: holding.division,
                ..Grant::default()
            }),
            division: holding.division,
            unheard: false,
            taken_bytes: holding.held_bytes.max(holding.share_bytes),
            pass,
        }
    }

    pub fn share_bytes(&self) -> u64 {
        self.told.map_or(0, |grant| grant.share_bytes)
    }

    pub fn taken_bytes(&self) -> u64 {
        self.taken_bytes
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

    /// It begins to send, with the share that its last reading has.
    pub fn joins(&mut self, known: &Known, reading: &Reading, claim: Claim, pass: u64) {
        if self.told.is_none() {
            *self = Member::new(known, reading, claim, pass); // it had heard that it had none
            return;
        }
        self.shown = Shown::of(known, reading, claim);
        self.held(reading.holding());
        self.pass = pass;
        self.sends(reading.holding());
    }

    /// It sends, as its last reading says, and takes part again if it did not.
    pub fn sends(&mut self, holding: Holding) {
        self.told.get_or_insert(Grant {
            share_bytes: holding.share_bytes,
            segment_bytes: self.shown.segment_bytes,
            division: holding.division,
            ..Grant::default()
        });
        self.unheard |= holding.division != self.division;
    }

    /// It is told a share, for which it may pause so long. `None` if that is nothing new to it.
    pub fn tell(&mut self, share_bytes: u64, pause_us_max: u64, division: u64) -> Option<Grant> {
        let grant = Grant {
            share_bytes: share_bytes.max(SHARE_BYTES_MIN),
            segment_bytes: self.shown.segment_bytes,
            rtt_us: self.shown.refill_rtt_us,
            division,
            pause_us_max,
        };
        let is_new = self.told.is_none_or(|told| {
            told.pause_us_max != grant.pause_us_max
                || told.rtt_us > 0 && grant.rtt_us == 0 // its client has a pace of its own
                || is_worth_telling(told.share_bytes, grant.share_bytes)
        });
        if !is_new && !self.unheard {
            return None;
        }
        self.told = Some(grant);
        self.unheard = false;
        self.division = grant.division;
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
        || growth_bytes > 0
            && growth_bytes * 100 >= before_bytes * crate::limits::SHARE_GROWTH_PERCENT_MIN
}
