//! What the worlds with a disk have in common: a read in the device, and the `Chosen` of wants that no scheduler chose.

use ackpace_core::conn::{ObjectId, Span};
use ackpace_core::prefetch::LengthBound;
use ackpace_core::why::{Chosen, Reason};

/// A read in the device.
#[derive(Clone, Copy)]
pub(super) struct ReadInFlight {
    pub object: ObjectId,
    pub span: Span,
    /// Slots that it fills; 0: it goes into the page cache.
    pub slots: u32,
}

/// Stands for the choice of a read that no scheduler made.
pub(super) const CHOSEN: Chosen = Chosen {
    reason: Reason::First,
    bound: LengthBound::First,
    len_bytes: 0,
    margin_us: 0,
    target_us: 0,
    rate_bytes_per_s: 0,
    took_us: 0,
};
