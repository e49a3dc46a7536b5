//! Counts for the clients of a class: each thread counts, and the reporter adds them up.

use super::histogram::Histogram;

/// The ways in which a request can fail. Their names appear in the results and are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection was established.
    Connect,
    /// The server reset the connection.
    Reset,
    /// The server closed before the answer was complete.
    ClosedEarly,
    /// No byte for `timeout_s`.
    Timeout,
    /// An open loop found its queue of requests full: the request was never sent.
    Overrun,
    /// A status other than 200, or 206 for a range.
    Status,
    /// Not an HTTP/1 head with a Content-Length, or bytes beyond the answer.
    Head,
    /// A length other than that of the file or the range.
    Length,
    /// A range other than the requested one.
    Range,
    /// A byte differs from the file.
    WrongByte,
}

impl Fault {
    /// All of them, ordered by number.
    pub const ALL: [Self; 10] = [
        Self::Connect,
        Self::Reset,
        Self::ClosedEarly,
        Self::Timeout,
        Self::Overrun,
        Self::Status,
        Self::Head,
        Self::Length,
        Self::Range,
        Self::WrongByte,
    ];

    /// Name used in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Reset => "reset",
            Self::ClosedEarly => "closed-early",
            Self::Timeout => "timeout",
            Self::Overrun => "overrun",
            Self::Status => "status",
            Self::Head => "head",
            Self::Length => "length",
            Self::Range => "range",
            Self::WrongByte => "wrong-byte",
        }
    }

    /// True if the server answered wrongly: its figures are then meaningless.
    pub fn is_wrong_answer(self) -> bool {
        matches!(
            self,
            Self::Status | Self::Head | Self::Length | Self::Range | Self::WrongByte
        )
    }
}

/// Counts of one class. All bytes are of bodies.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Bytes of bodies, each checked.
    pub bytes: u64,
    /// Requests sent.
    pub requests: u64,
    /// Complete answers.
    pub completed: u64,
    /// Clients that left within an answer.
    pub aborted: u64,
    /// Connections established.
    pub connects: u64,
    /// Waits above `stall_s`.
    pub stalls: u64,
    /// Total time of these waits.
    pub stalled_us: u64,
    /// Failures, indexed by `Fault`.
    pub faults: [u64; Fault::ALL.len()],
    /// Times from the intended start to the first byte of the answer.
    pub first_byte: Histogram,
    /// Times from the intended start to the last byte.
    pub completion: Histogram,
}

impl Tally {
    /// Counts a fault.
    pub fn fault(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    /// True if an answer was wrong.
    pub fn failed(&self) -> bool {
        let wrong = |fault: &Fault| fault.is_wrong_answer() && self.faults[*fault as usize] > 0;
        Fault::ALL.iter().any(wrong)
    }

    /// Adds the counts of another tally.
    pub fn merge(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.completed += other.completed;
        self.aborted += other.aborted;
        self.connects += other.connects;
        self.stalls += other.stalls;
        self.stalled_us += other.stalled_us;
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        self.first_byte.merge(&other.first_byte);
        self.completion.merge(&other.completion);
    }
}

/// The bytes of a client while it wanted data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Bytes of bodies.
    pub bytes: u64,
    /// Time in which it had a request and read, or tried to read.
    pub active_us: u64,
    /// Bytes that its rate would have given in that time; 0 without a rate.
    pub demand_bytes: u64,
}

/// Sums for Jain's index (Jain, Chiu, Hawe 1984) over the bytes of active clients in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Fairness {
    clients: u64,
    sum: f64,
    squares: f64,
}

impl Fairness {
    /// Adds a client's bytes.
    pub fn add(&mut self, bytes: u64) {
        let x = bytes as f64;
        self.clients += 1;
        self.sum += x;
        self.squares += x * x;
    }

    /// Adds the sums of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.clients += other.clients;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The index of the bytes; `None` for fewer than two clients or without any byte.
    pub fn index(&self) -> Option<f64> {
        jain(self.clients, self.sum, self.squares)
    }
}

/// Jain's index; `None` for fewer than two, or if all have nothing.
pub(crate) fn jain(n: u64, sum: f64, squares: f64) -> Option<f64> {
    (n >= 2 && squares > 0.0).then(|| sum * sum / (n as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_numbered_as_they_are_listed() {
        for (number, fault) in Fault::ALL.iter().enumerate() {
            assert_eq!(*fault as usize, number);
        }
        let mut tally = Tally::default();
        tally.fault(Fault::Reset);
        assert!(!tally.failed(), "a reset is no wrong answer");
        let mut other = Tally::default();
        other.fault(Fault::WrongByte);
        tally.merge(&other);
        assert!(tally.failed() && tally.faults.iter().sum::<u64>() == 2);
    }

    #[test]
    fn jain_compares_all_that_are_added() {
        let (mut all, mut half) = (Fairness::default(), Fairness::default());
        all.add(100);
        assert_eq!(all.index(), None, "one client is no comparison");
        half.add(300);
        all.merge(&half);
        assert_eq!(all.index(), Some(400.0 * 400.0 / (2.0 * 100_000.0)));
        assert_eq!(Fairness::default().index(), None);
    }
}
