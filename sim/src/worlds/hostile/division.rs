//! Who divides the send memory: nobody, the input itself, or the pool machine with its mailboxes.

use std::collections::VecDeque;

use ackpace_core::Machine;
use ackpace_core::conn::ConnId;
use ackpace_core::units::{Instant, KIB, MIB};
use ackpace_share::Policy;
use ackpace_share::bound::Grant;
use ackpace_share::eatbt::Need;
use ackpace_share::pool::{self, Pool};

use super::client::PLACES;
use super::input::Input;
use super::mailbox::Mailboxes;

/// Connections in an answer to the pool.
pub(super) const READINGS_MAX: usize = 2;
/// Reports that wait for the pool. What does not fit is lost.
pub(super) const REPORTS_MAX: usize = 4;

/// How often each rare case happened that the laws are about.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CaseCounts {
    /// A share had no room, and the kernel was to report the socket writable.
    pub by_call: u64,
    /// A connection was told its share by the pool machine.
    pub by_pool: u64,
    /// A connection that had been given away came back.
    pub moved: u64,
    /// A share was taken back.
    pub taken_back: u64,
}

/// Who divides.
pub(super) enum Division {
    Nobody,
    /// Shares are what the input says.
    Input,
    Pool(Box<Divider>),
}

/// The thread of the pool machine.
pub(super) struct Divider {
    pub(super) pool: Pool,
    pub(super) pool_bytes: u64,
    pub(super) grants: Mailboxes<(ConnId, Option<Grant>)>,
    /// The worker is asked for samples, from this slot on.
    pub(super) sample_from: Option<u32>,
    pub(super) reports: VecDeque<pool::In>,
}

impl Division {
    /// The one of this number, of four.
    pub fn new(number: u8, input: &mut Input<'_>, now: Instant) -> Division {
        match number % 4 {
            0 => Division::Nobody,
            3 => Division::Pool(Box::new(Divider::new(input, now))),
            _ => Division::Input,
        }
    }

    pub fn is_any(&self) -> bool {
        !matches!(self, Division::Nobody)
    }

    pub fn divider(&self) -> Option<&Divider> {
        match self {
            Division::Pool(divider) => Some(divider),
            Division::Nobody | Division::Input => None,
        }
    }

    pub fn deadline(&self) -> Option<Instant> {
        self.divider()?.pool.deadline()
    }

    pub(super) fn divider_mut(&mut self) -> Option<&mut Divider> {
        match self {
            Division::Pool(divider) => Some(divider),
            Division::Nobody | Division::Input => None,
        }
    }
}

impl Divider {
    fn new(input: &mut Input<'_>, now: Instant) -> Divider {
        let policy = input.pick(&[
            Policy::Equal,
            Policy::ByNeed(Need::Law),
            Policy::ByNeed(Need::Paper),
        ]);
        let pool_bytes = input.pick(&[256 * KIB, 64 * KIB, 16 * MIB]);
        let settings = pool::Settings {
            policy,
            pool_bytes,
            workers: 1,
            secret: 1,
        };
        Divider {
            pool: Pool::new(settings, now),
            pool_bytes,
            grants: Mailboxes::new(PLACES),
            sample_from: None,
            reports: VecDeque::new(),
        }
    }

    pub(super) fn report(&mut self, report: pool::In) {
        if self.reports.len() < REPORTS_MAX {
            self.reports.push_back(report);
        }
    }

    /// The pool hears up to so many reports, and what it orders waits for the worker.
    pub(super) fn turn(&mut self, reports: usize, now: Instant) {
        for _ in 0..reports {
            let Some(report) = self.reports.pop_front() else {
                break;
            };
            self.pool.on(report, now);
        }
        while let Some(out) = self.pool.poll(now) {
            match out {
                pool::Out::Sample { from, .. } => self.sample_from = Some(from),
                pool::Out::Share { conn, grant, .. } => {
                    self.grants.put(conn.index, (conn, grant));
                }
            }
        }
    }

    /// Nobody has a share.
    pub fn is_empty(&self) -> bool {
        self.pool.totals().connections == 0
    }
}
