//! The contract between a pure machine and the shell that drives it.

use crate::units::Instant;

/// A state machine that decides, owned by one thread. All its messages are values.
///
/// The shell calls [`on`](Machine::on) with everything that happened, then [`poll`](Machine::poll) until it gets `None`
/// or has done enough for one turn, executing each order before the next call. It sleeps until something happens or
/// [`deadline`](Machine::deadline) comes. `now` never goes back; if it does, the machine acts as if no time had passed.
pub trait Machine {
    /// What the shell tells.
    type In;
    /// What the shell is told to do.
    type Out;

    /// All evidence enters here: TCP events, completions, failures.
    fn on(&mut self, event: Self::In, now: Instant);

    /// The next order, or `None` when nothing is to be done before the next event or deadline.
    fn poll(&mut self, now: Instant) -> Option<Self::Out>;

    /// When `poll` has something to do even if nothing happens. In the past: at once. `None`: never.
    fn deadline(&self) -> Option<Instant>;
}
