//! Who is called to borrow.

use super::Reserve;
use crate::conn::ConnId;
use crate::units::Instant;

/// Whose turn it is to borrow, in one turn of the worker.
#[derive(Clone, Copy, Debug)]
pub struct LoanTurns {
    /// How many sockets may still have their turns, and how many may be looked at for that.
    pub(super) left: u64,
    pub(super) looks_left: u32,
}

impl LoanTurns {
    /// The next socket to be filled with a loan, if there is enough for one. `waits` says whether it still waits
    /// ([`Bound::takes_loan_turn`](crate::sndbuf::bound::Bound::takes_loan_turn)): those that are gone, or wait no longer, are passed over.
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
                reserve.called = (now, reserve.called.1 + 1);
                return Some(conn);
            }
        }
        None
    }
}
