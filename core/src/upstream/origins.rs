//! Which origin is asked: the first one that works. One that failed is left alone for a while.

use alloc::vec::Vec;

use super::Fault;
use crate::units::{Instant, US_PER_S};

/// An origin that failed is left alone for this time, twice as long after each further failure.
pub(super) const DOWN_US_MIN: u64 = US_PER_S / 2;
/// For no longer than this.
const DOWN_US_MAX: u64 = 30 * US_PER_S;
/// Failures in a row from which an origin that can't be reached often recovers: it restarts. Bytes for responses under way wait for it so long, since
/// these can't become errors any more. More failures: they are asked for, and fail, as everything else.
pub(super) const PATIENT_FAULTS: u32 = 2;

#[derive(Clone, Copy, Default)]
struct Origin {
    faults: u32,
    down_until: Instant,
    /// The last of them was that no connection came about.
    is_unreachable: bool,
}

/// The origins of a gateway, at least one.
pub(super) struct Origins(Vec<Origin>);

impl Origins {
    /// So many that work.
    pub fn new(count: u16) -> Origins {
        Origins(alloc::vec![Origin::default(); usize::from(count.max(1))])
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether an origin is left alone after failures.
    pub fn is_down(&self, origin: u16, now: Instant) -> bool {
        let origin = self.0.get(usize::from(origin));
        origin.is_some_and(|origin| origin.down_until > now)
    }

    pub fn all_are_down(&self, now: Instant) -> bool {
        self.0.iter().all(|origin| origin.down_until > now)
    }

    /// The origin to ask: the first that is not left alone, or else the one whose time is over soonest.
    pub fn choose(&self, now: Instant) -> u16 {
        let mut all = self.0.iter();
        let up = all.position(|origin| origin.down_until <= now);
        let soonest = || {
            let all = self.0.iter().enumerate();
            all.min_by_key(|(_, origin)| origin.down_until)
                .map(|(nth, _)| nth)
        };
        up.or_else(soonest).unwrap_or(0) as u16
    }

    /// When an origin is asked again that could not be reached lately; `None`: one can be, or none is expected to recover soon.
    pub fn recovers_at(&self, now: Instant) -> Option<Instant> {
        if !self.all_are_down(now) {
            return None;
        }
        let restarts = |one: &&Origin| one.is_unreachable && one.faults <= PATIENT_FAULTS;
        let lately = self.0.iter().filter(restarts);
        lately.map(|origin| origin.down_until).min()
    }

    /// It answered.
    pub fn works(&mut self, origin: u16) {
        self.0[usize::from(origin)] = Origin::default();
    }

    /// An origin failed. One that said nothing is left alone for long at once: each try takes long.
    pub fn blame(&mut self, origin: u16, fault: Fault, now: Instant) {
        let origin = &mut self.0[usize::from(origin)];
        origin.is_unreachable = fault == Fault::Unreachable;
        if origin.down_until > now {
            return; // several links fail together
        }
        origin.faults = (origin.faults + 1).min(16);
        let down_us = match fault {
            Fault::Silent => DOWN_US_MAX,
            _ => (DOWN_US_MIN << (origin.faults - 1)).min(DOWN_US_MAX),
        };
        origin.down_until = now.plus_us(down_us);
    }
}
