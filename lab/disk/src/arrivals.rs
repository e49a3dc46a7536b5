//! Corrects the arrival times of requests for errors of the emulation.
//!
//! Answers leave earlier than the model finishes, by the average cost of the path to the host. Some still leave late,
//! since a thread woke late. The device did not cause that delay, so it is subtracted from the arrival time of the host's
//! next request. The host's own think time stays.

use std::collections::VecDeque;

/// Answers that are remembered: the most requests that a host has in flight.
const SENT_MAX: usize = 1024;
/// A request that follows an answer within this time counts as its consequence.
const CONSEQUENCE_NS: u64 = 500_000;
/// An answer that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When it left, in model time.
    pub left_ns: u64,
    /// How much later than its due time it left.
    pub late_ns: u64,
    /// When the model finished the request: the time at which the answer should have reached the host.
    pub finished_ns: u64,
}

/// Remembers the answers that no request has followed yet.
#[derive(Debug, Default)]
pub struct Arrivals {
    sent: VecDeque<Sent>,
    last_ns: u64,
    last_late_ns: u64,
}

impl Arrivals {
    /// Records an answer that leaves now.
    pub fn sent(&mut self, sent: Sent) {
        self.last_late_ns = sent.late_ns;
        self.sent.push_back(sent);
        if self.sent.len() > SENT_MAX {
            self.sent.pop_front();
        }
    }

    /// How late the last answer left.
    pub fn last_late_ns(&self) -> u64 {
        self.last_late_ns
    }

    /// The corrected arrival time of a request that comes at `now_ns`: its time of arrival if the answer before
    /// it had reached the host exactly when the model finished. Never earlier than that finish, nor than the
    /// previous request.
    pub fn arrival_ns(&mut self, now_ns: u64) -> u64 {
        let stale = |sent: &Sent| sent.left_ns + CONSEQUENCE_NS < now_ns;
        while self.sent.front().is_some_and(stale) {
            self.sent.pop_front();
        }
        let arrived_ns = match self.sent.pop_front() {
            Some(sent) => now_ns.saturating_sub(sent.late_ns).max(sent.finished_ns),
            None => now_ns,
        };
        self.last_ns = arrived_ns.max(self.last_ns);
        self.last_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer for 1 ms, 50 us earlier, sent `late_ns` late.
    fn answered(arrivals: &mut Arrivals, at_ns: u64, late_ns: u64) {
        arrivals.sent(Sent {
            left_ns: at_ns - 50_000 + late_ns,
            late_ns,
            finished_ns: at_ns,
        });
    }

    #[test]
    fn what_nobody_waited_for_comes_when_it_comes() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.arrival_ns(700), 700);
        answered(&mut arrivals, 1_000_000, 0);
        assert_eq!(arrivals.arrival_ns(1_600_000), 1_600_000, "long after");
    }

    #[test]
    fn an_answer_that_left_late_is_not_the_devices_fault() {
        let mut arrivals = Arrivals::default();
        answered(&mut arrivals, 1_000_000, 80_000);
        assert_eq!(arrivals.last_late_ns(), 80_000);
        assert_eq!(arrivals.arrival_ns(1_080_000), 1_000_000);
        answered(&mut arrivals, 2_000_000, 80_000);
        assert_eq!(arrivals.arrival_ns(2_095_000), 2_015_000, "thought 15 us");
    }
}
