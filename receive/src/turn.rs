//! The receiver's turn (Wu and Crawford, section 5): whether a process that used up its time slice while packets wait
//! for it runs on, and how it pays that back.
//!
//! While a process receives, it owns its socket's lock, and TCP only queues what arrives: no ACK leaves before the
//! process runs again. If its slice ends there, packets wait as long as all others run (T_wait, eqs. 1 to 3), and the
//! sender's timer expires (eq. 12). The simulator drives these rules in a scheduler of Linux 2.6
//! (`receive/tests/receiving/`).
//!
//! | form | asks | pays back |
//! |---|---|---|
//! | [`listing_1`], the paper's | do packets wait? | yields when the call returns; what it used is part of its next slice |
//! | [`Account`], the fair one | do packets wait, or is the lock owned? | each microsecond is charged to its next slices |

/// What a receiver may owe for extra turns, and so the longest turn; the copying of one call takes less than a
/// millisecond. At it: no extra turn until some is paid.
pub const TURN_OWED_US_MAX: u64 = 10_000;
/// It pays with one part in so many of a slice at most: half of it, so that it still runs. At it: it pays longer.
const TURN_PAID_PART_MAX: u64 = 2;

/// What is known of a process whose time slice has just run out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiring {
    /// Packets stand on the backlog queue or the prequeue of a socket that it receives from.
    pub packets_wait: bool,
    /// It owns the lock of such a socket: what arrives from now on will wait.
    pub owns_lock: bool,
    /// The scheduler takes it for interactive, and would let it go on by its own rules.
    pub is_interactive: bool,
    /// Processes have been in the expired array for too long (EXPIRED_STARVING).
    pub expired_starve: bool,
}

/// Where a process goes whose time slice has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// As the scheduler decides without these rules.
    Usual,
    /// Into the expired array, interactive or not.
    Expired,
    /// Back into the active array.
    Active {
        /// `extra_run_flag`: it yields when its receive call returns (Listing 2).
        yields: bool,
    },
}

/// Listing 1, word for word. A starved expired array ends the exception, and a process that is interactive anyway does
/// not yield.
pub fn listing_1(of: Expiring) -> Place {
    match of {
        _ if !of.packets_wait => Place::Usual,
        _ if of.expired_starve => Place::Expired,
        _ => Place::Active {
            yields: !of.is_interactive,
        },
    }
}

/// When the fair form gives an extra turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Packets wait already: Listing 1's condition.
    PacketsWait,
    /// The lock is owned, so that packets which arrive later would wait. It includes the other: a backlog exists only
    /// behind an owned lock, and the prequeue left Linux in 4.14.
    LockOwned,
}

/// What one process owes to the others for its extra turns.
///
/// Ask [`Account::extra_us`] when its slice ends, [`Account::charge`] what it used when the turn ends, and give it
/// [`Account::slice_us`] instead of each full slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    owed_us: u64,
}

impl Account {
    /// What it owes, microseconds.
    pub fn owed_us(&self) -> u64 {
        self.owed_us
    }

    /// How long it may run on, at most until its receive call returns, microseconds; 0: not at all. It never owes more
    /// than [`TURN_OWED_US_MAX`], so a process that does not pay soon gets nothing. One that is interactive needs none.
    pub fn extra_us(&self, of: Expiring, when: When) -> u64 {
        let is_wanted = match when {
            When::PacketsWait => of.packets_wait,
            When::LockOwned => of.packets_wait || of.owns_lock,
        };
        match is_wanted && !of.is_interactive && !of.expired_starve {
            true => TURN_OWED_US_MAX.saturating_sub(self.owed_us),
            false => 0,
        }
    }

    /// An extra turn of `used_us` is over. All of it is owed, even if it took longer than it was allowed.
    pub fn charge(&mut self, used_us: u64) {
        self.owed_us = self.owed_us.saturating_add(used_us);
    }

    /// A new slice: `full_us` less what is paid. It pays whole `grain_us`, the unit in which the scheduler counts
    /// slices, and never more than half of a slice, so that paying starves nobody. A debt is below one grain after
    /// 4 owed / full slices and one more, if a grain is no more than a quarter of a slice.
    pub fn slice_us(&mut self, full_us: u64, grain_us: u64) -> u64 {
        let grain_us = grain_us.max(1);
        let pays_us = self.owed_us.min(full_us / TURN_PAID_PART_MAX);
        let pays_us = pays_us - pays_us % grain_us;
        self.owed_us -= pays_us;
        full_us - pays_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WAITS: Expiring = Expiring {
        packets_wait: true,
        owns_lock: true,
        is_interactive: false,
        expired_starve: false,
    };

    #[test]
    fn listing_1_by_its_four_ways() {
        let idle = Expiring {
            packets_wait: false,
            ..WAITS
        };
        assert_eq!(
            listing_1(idle),
            Place::Usual,
            "an owned lock alone is nothing to it"
        );
        assert_eq!(listing_1(WAITS), Place::Active { yields: true });
        let interactive = Expiring {
            is_interactive: true,
            ..WAITS
        };
        assert_eq!(listing_1(interactive), Place::Active { yields: false });
        for is_interactive in [false, true] {
            let starved = Expiring {
                is_interactive,
                expired_starve: true,
                ..WAITS
            };
            assert_eq!(listing_1(starved), Place::Expired, "interactive or not");
        }
    }

    #[test]
    fn a_turn_is_paid_from_the_next_slices() {
        let mut account = Account::default();
        assert_eq!(account.extra_us(WAITS, When::PacketsWait), TURN_OWED_US_MAX);
        account.charge(2_300);
        assert_eq!(account.slice_us(100_000, 1_000), 98_000, "whole ticks");
        assert_eq!(account.owed_us(), 300);
        account.charge(700);
        assert_eq!(account.slice_us(1_000, 100), 500, "half of a slice at most");
        assert_eq!(account.slice_us(1_000, 100), 500);
        assert_eq!(account.slice_us(1_000, 100), 1_000);
    }

    #[test]
    fn an_owned_lock_is_reason_enough_only_if_it_is_asked_for() {
        let held = Expiring {
            packets_wait: false,
            ..WAITS
        };
        let account = Account::default();
        assert_eq!(account.extra_us(held, When::PacketsWait), 0);
        assert_eq!(account.extra_us(held, When::LockOwned), TURN_OWED_US_MAX);
        assert_eq!(account.extra_us(Expiring::default(), When::LockOwned), 0);
    }

    fn any_expiring() -> impl Strategy<Value = Expiring> {
        any::<(bool, bool, bool, bool)>().prop_map(|of| Expiring {
            packets_wait: of.0,
            owns_lock: of.1,
            is_interactive: of.2,
            expired_starve: of.3,
        })
    }

    proptest! {
        #[test]
        fn a_starved_expired_array_ends_every_exception(of in any_expiring()) {
            let starved = Expiring { expired_starve: true, ..of };
            let goes_on = matches!(listing_1(starved), Place::Active { .. });
            prop_assert!(!goes_on);
            for when in [When::PacketsWait, When::LockOwned] {
                prop_assert_eq!(Account::default().extra_us(starved, when), 0);
            }
        }

        #[test]
        fn nobody_gets_more_than_is_owed_back(
            turns in prop::collection::vec((any_expiring(), 0u64..20_000, 1u64..800_000, 1u64..5_000), 1..200),
        ) {
            let (mut account, mut got_us, mut paid_us) = (Account::default(), 0, 0);
            for (of, wants_us, full_us, grain_us) in turns {
                let used_us = wants_us.min(account.extra_us(of, When::LockOwned));
                account.charge(used_us);
                got_us += used_us;
                prop_assert!(got_us - paid_us <= TURN_OWED_US_MAX, "{got_us} - {paid_us}");
                let slice_us = account.slice_us(full_us, grain_us);
                paid_us += full_us - slice_us;
                prop_assert!(paid_us <= got_us, "pays what it never got");
                prop_assert!(2 * slice_us >= full_us, "paying starves nobody");
                prop_assert_eq!(account.owed_us(), got_us - paid_us);
            }
        }

        #[test]
        fn a_debt_is_paid_within_a_bound(used_us in 0u64..1 << 40, full_us in 4_000u64..800_000) {
            let (mut account, grain_us) = (Account::default(), 1_000);
            account.charge(used_us.min(50 * full_us));
            let slices = 4 * account.owed_us() / full_us + 1; // at least a quarter of a slice, in whole grains
            (0..slices).for_each(|_| _ = account.slice_us(full_us, grain_us));
            prop_assert!(account.owed_us() < grain_us, "{account:?}");
        }
    }
}
