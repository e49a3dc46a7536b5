//! The two logs: of requests ([`AccessLog`]) and of diagnostics ([`Diagnostics`]).
//!
//! Both leave the process through a `pump`: a bounded queue and a thread of its own, since a write to a full disk, a
//! stuck pipe or a stopped terminal may block for ever, and a worker may not. Lines that do not fit are lost and counted.

mod access;
mod diagnostics;
mod pump;
mod seldom;

pub use access::{AccessHandle, AccessLog, BRIEF_HELD_BYTES, Record, RequestText, check};
pub use diagnostics::{Diagnostics, FLUSH_AT_END};
pub use pump::{
    Counts, Handle, LOG_BATCH_BYTES, LOG_LINE_PLACE_BYTES, LOG_QUEUE_BYTES_MAX, LOG_QUEUE_LINES_MAX,
};
pub use seldom::{Seldom, Topic};

/// Time between two reports of lost lines, and of what many clients cause at once: often enough to act, too seldom to
/// flood the log.
const LOG_REPORT_INTERVAL: std::time::Duration = std::time::Duration::from_secs(10);
