//! What a gateway counts, for metrics and `ackpace cache status`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::object::How;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// From memory.
    Hit,
    /// It is known, and bytes that are asked for have to be fetched, or read from the cache folder.
    Partial,
    /// An origin was asked what it has there.
    Missed,
    /// An origin said that what is known is the same.
    Revalidated,
    /// From what is known, though it is stale.
    Stale,
    /// By what an origin said to this client alone, or to all who asked at that time.
    Passed,
    /// No origin answered.
    Failed,
}

impl Answered {
    pub const NAMES: [&'static str; 7] = [
        "hit",
        "partial",
        "missed",
        "revalidated",
        "stale",
        "passed",
        "failed",
    ];
}

impl From<How> for Answered {
    fn from(how: How) -> Answered {
        match how {
            How::Hit => Answered::Hit,
            How::Partial => Answered::Partial,
            How::Missed | How::Changed => Answered::Missed,
            How::Revalidated => Answered::Revalidated,
            How::Stale => Answered::Stale,
        }
    }
}

/// The counters of one origin.
#[derive(Debug, Default)]
pub struct OriginTally {
    pub requests: AtomicU64,
    /// Bytes received, heads included.
    pub fetched_bytes: AtomicU64,
    /// Connections that failed, or whose response was not as it should be.
    pub faults: AtomicU64,
    /// Connections now.
    pub links: AtomicU64,
}

/// The counters of a gateway.
#[derive(Debug, Default)]
pub struct GatewayTally {
    answered: [AtomicU64; Answered::NAMES.len()],
    pub origins: Box<[OriginTally]>,
}

impl GatewayTally {
    pub fn new(origins: usize) -> GatewayTally {
        GatewayTally {
            origins: (0..origins).map(|_| OriginTally::default()).collect(),
            ..GatewayTally::default()
        }
    }

    pub fn count(&self, answered: Answered) {
        self.answered[answered as usize].fetch_add(1, Relaxed);
    }

    /// How many were answered in the way of this index of [`Answered::NAMES`].
    pub fn answered(&self, at: usize) -> u64 {
        self.answered[at].load(Relaxed)
    }
}
