//! The counters of one worker: only its thread writes them, any thread may read them at any time.
//!
//! Each number is an atomic that one thread writes by a plain load and store. That costs what a plain number would,
//! needs no lock, no copy and no wake-up of the worker, and can be read even while the worker hangs in a system call.
//! Two numbers may be from different turns; each is right in itself. Only the counters of the worker machine are
//! copied, at the end of a turn in which they changed.

use ackpace_core::congestion::Signal;
use ackpace_core::why::{TopUp, Wait, Why};
use ackpace_core::worker::{Census, Counts, Cut, PHASES};

use crate::count::Count;
use crate::turns::Turns;

/// How bytes get into a socket: the index in [`Tally::sent_bytes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendPath {
    /// From the page cache, by sendfile(2) or by a copy that does not wait.
    Sendfile,
    /// From slots, into which they were read past the page cache.
    Direct,
    /// From the response cache, heads included.
    ResponseCache,
    /// Made for this response: heads, listings, errors, boundaries.
    Made,
}

impl SendPath {
    /// Every send path, each at the index of its number.
    pub const ALL: [SendPath; 4] = [
        SendPath::Sendfile,
        SendPath::Direct,
        SendPath::ResponseCache,
        SendPath::Made,
    ];

    pub fn name(self) -> &'static str {
        match self {
            SendPath::Sendfile => "sendfile",
            SendPath::Direct => "direct",
            SendPath::ResponseCache => "response_cache",
            SendPath::Made => "made",
        }
    }
}

/// The counters of one worker. They have cache lines of their own, so that no other thread slows their writer.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Tally {
    /// Its thread (gettid(2)); 0 before it runs.
    pub thread: Count,
    /// Returns of epoll_wait(2) calls that were allowed to sleep.
    pub wakeups: Count,
    pub turns: Turns,
    /// Turns that ended at a bound before their work did, by [`Cut`].
    pub turns_cut: [Count; Cut::ALL.len()],
    pub accepted: Count,
    /// Connections that it gave to other workers while they were open.
    pub moved: Count,
    /// Failures of accept(2) for want of descriptors or memory.
    pub accept_errors: Count,
    pub connections: Count,
    /// Responses by the first digit of their status; 0 is not used.
    pub answers: [Count; 6],
    pub sent_bytes: [Count; SendPath::ALL.len()],
    /// Sends of which the socket took nothing (EAGAIN).
    pub sends_refused: Count,
    /// Sends of which the socket took a part.
    pub sends_cut: Count,
    /// Requests answered from the response cache.
    pub response_cache_hits: Count,
    /// Requests that could be cached, and were not in the response cache.
    pub response_cache_misses: Count,
    pub response_cache_bytes: Count,
    pub response_cache_files: Count,
    /// T in microseconds; 0 without margins.
    pub target_us: Count,
    /// The counters of the worker machine.
    pub decided: Decided,
}

/// The counters of the worker machine ([`Counts`]), as of the last turn in which they changed, and the states of its
/// connections at the last census ([`Census`]).
#[derive(Debug, Default)]
pub struct Decided {
    changes: Count,
    /// Sockets that were filled, by [`TopUp`]; a response's first filling is not counted.
    pub top_ups: [Count; TopUp::ALL.len()],
    /// Rounds in which the margins of all connections were checked.
    pub rounds: Count,
    /// Sends from the page cache whose bytes were missing.
    pub missed: Count,
    pub mended: Count,
    /// Responses whose first window was paced.
    pub paced: Count,
    pub signals: [Count; Signal::ALL.len()],
    /// Waits that ended, by [`Wait`]; none for a turn.
    pub waits: [Count; Wait::ALL.len()],
    pub waited_us: [Count; Wait::ALL.len()],
    /// Connections that were closed, by [`Why`].
    pub closed: [Count; Why::ALL.len()],
    /// Connections by [`PHASES`].
    pub phases: [Count; PHASES.len()],
    /// Responses under way, by what their next bytes wait for ([`Wait`]).
    pub waiting: [Count; Wait::ALL.len()],
    /// Their bytes that the kernel has not taken yet, likewise.
    pub waiting_bytes: [Count; Wait::ALL.len()],
    /// Sum of the rates at which bytes arrived in the last seconds.
    pub rates_bytes_per_s: Count,
    /// B_net: the sum of the estimated rates, where known.
    pub believed_bytes_per_s: Count,
}

impl Tally {
    /// Counts a response by its status code.
    pub fn answered(&self, status: u16) {
        if let Some(class) = self.answers.get(usize::from(status / 100)) {
            class.add(1);
        }
    }
}

impl Decided {
    pub fn stand(&self, census: &Census) {
        let Census {
            phases,
            waiting,
            waiting_bytes,
            rates_bytes_per_s,
            believed_bytes_per_s,
        } = census;
        for (counts, values) in [
            (&self.phases[..], &phases[..]),
            (&self.waiting, waiting),
            (&self.waiting_bytes, waiting_bytes),
        ] {
            let both = counts.iter().zip(values);
            both.for_each(|(count, value)| count.set(*value));
        }
        self.rates_bytes_per_s.set(*rates_bytes_per_s);
        self.believed_bytes_per_s.set(*believed_bytes_per_s);
    }

    pub fn follow(&self, counts: &Counts) {
        if self.changes.get() == counts.changes {
            return;
        }
        let Counts {
            changes,
            top_ups,
            rounds,
            paced,
            signals,
            waits,
            waited_us,
            missed,
            mended,
            closed,
        } = counts;
        for (counts, values) in [
            (&self.top_ups[..], &top_ups[..]),
            (&self.signals, signals),
            (&self.waits, waits),
            (&self.waited_us, waited_us),
            (&self.closed, closed),
        ] {
            counts
                .iter()
                .zip(values)
                .for_each(|(count, value)| count.set(*value));
        }
        self.missed.set(*missed);
        self.mended.set(*mended);
        self.rounds.set(*rounds);
        self.paced.set(*paced);
        self.changes.set(*changes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_machine_counted_is_taken_over_when_it_changed() {
        let decided = Decided::default();
        let mut counts = Counts::default();
        counts.closed[Why::Idle as usize] = 3;
        decided.follow(&counts);
        assert_eq!(
            decided.closed[Why::Idle as usize].get(),
            0,
            "nothing is said to have changed"
        );
        (counts.changes, counts.rounds, counts.paced) = (1, 7, 4);
        let mut census = Census::default();
        census.phases[3] = 2;
        decided.stand(&census);
        counts.waited_us[Wait::Window as usize] = 5;
        decided.follow(&counts);
        assert_eq!(decided.closed[Why::Idle as usize].get(), 3);
        assert_eq!((decided.rounds.get(), decided.paced.get()), (7, 4));
        assert_eq!(decided.phases[3].get(), 2);
        assert_eq!(decided.waited_us[Wait::Window as usize].get(), 5);
    }

    #[test]
    fn a_status_counts_in_its_class_and_nonsense_in_none() {
        let tally = Tally::default();
        [200, 206, 404, 0, 999]
            .into_iter()
            .for_each(|status| tally.answered(status));
        let classes: Vec<u64> = tally.answers.iter().map(Count::get).collect();
        assert_eq!(classes, [1, 0, 2, 0, 1, 0]);
        assert!(
            SendPath::ALL
                .iter()
                .enumerate()
                .all(|(at, path)| *path as usize == at)
        );
    }
}
