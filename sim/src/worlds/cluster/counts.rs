//! What is counted.

use super::Outcome;

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub answered: u64,
    pub hits: u64,
    pub looks: u64,
    pub peer_bytes: u64,
    /// What clients get.
    pub body_bytes: u64,
    pub stack_bytes: u64,
    /// Requests that were led somewhere.
    pub led: u64,
    pub elsewhere: u64,
    pub moves: u64,
    pub chain: u64,
    pub acks_forwarded: u64,
    pub queued: u64,
}

impl Counts {
    /// After so many seconds.
    pub fn outcome(&self, seconds: f64) -> Outcome {
        let each = |count: u64| count as f64 / self.led.max(1) as f64;
        Outcome {
            requests_per_s: self.answered as f64 / seconds.max(1e-9),
            hit_percent: self.hits as f64 * 100.0 / self.looks.max(1) as f64,
            peer_bytes: each(self.peer_bytes),
            stack_ratio: self.stack_bytes as f64 / self.body_bytes.max(1) as f64,
            elsewhere_percent: each(self.elsewhere) * 100.0,
            moves: each(self.moves),
            chain: each(self.chain),
            acks_forwarded: each(self.acks_forwarded),
            queued_percent: each(self.queued) * 100.0,
            ..Outcome::default()
        }
    }
}
