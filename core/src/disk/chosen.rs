//! Why a read was made: for which stream it was chosen and when, and what set its length.

use core::fmt;

use crate::prefetch::LengthBound;
use crate::units::{Bytes, Time};

/// Why a read was chosen. Its `Display` is a sentence for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Why it was the stream's turn.
    pub reason: Reason,
    /// What set the length.
    pub bound: LengthBound,
    /// The length.
    pub len_bytes: u64,
    /// T_n: the time until the stream would have run dry, and T_D/2 at most where only its client still has bytes.
    pub margin_us: u64,
    /// T_D at that time.
    pub target_us: u64,
    /// B_n; 0: not known yet.
    pub rate_bytes_per_s: u64,
    /// From the order to the answer.
    pub took_us: u64,
}

/// Why it was a stream's turn at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It had received nothing yet: first reads don't wait for the sweep.
    First,
    /// It was the short rest of a response: who is nearly done does not wait for the sweep, either.
    Rest,
    /// It was due, and the sweep came by.
    Due,
    /// The same, and it had run dry meanwhile.
    Late,
    /// Its next bytes were read for another stream.
    Shared,
    /// It had ended, and its want was read all the same.
    Left,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, took) = (Bytes(self.len_bytes), Time(self.took_us));
        write!(f, "read {len} in {took}, ")?;
        let (margin, target) = (Time(self.margin_us), Time(self.target_us));
        match self.reason {
            Reason::First => {
                f.write_str("before all who have something, since it had nothing yet")?
            }
            Reason::Rest => {
                f.write_str("before others, since it was the short rest of a response")?
            }
            Reason::Due if self.rate_bytes_per_s == 0 => {
                f.write_str("since it was due and the sweep came by")?
            }
            Reason::Due => write!(
                f,
                "since it was due and the sweep came by: it had enough for {margin}, less than half of T_D, {target}"
            )?,
            Reason::Late => write!(
                f,
                "since it was due and the sweep came by: it had run dry; T_D is {target}"
            )?,
            Reason::Shared => f.write_str("together with others who get the same file")?,
            Reason::Left => f.write_str("though it had left (cancel = off)")?,
        }
        match self.bound {
            LengthBound::Rate => write!(
                f,
                "; so long that it has enough for {target} at the {}/s that it takes",
                Bytes(self.rate_bytes_per_s)
            ),
            bound => write!(f, "; this long because {}", bound.sentence()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_read_explains_itself() {
        let chosen = Chosen {
            reason: Reason::Due,
            bound: LengthBound::Rate,
            len_bytes: 1_400_000,
            margin_us: 1_200_000,
            target_us: 4_000_000,
            rate_bytes_per_s: 500_000,
            took_us: 31_000,
        };
        assert_eq!(
            chosen.to_string(),
            "read 1.4 MB in 31 ms, since it was due and the sweep came by: it had enough for 1.2 s, less than half of T_D, \
             4.0 s; so long that it has enough for 4.0 s at the 500 KB/s that it takes"
        );
        let unknown = Chosen {
            bound: LengthBound::Unknown,
            margin_us: 0,
            rate_bytes_per_s: 0,
            ..chosen
        };
        assert_eq!(
            unknown.to_string(),
            "read 1.4 MB in 31 ms, since it was due and the sweep came by; this long because its rate is not known yet, and a \
             short read finds it out"
        );
        let first = Chosen {
            reason: Reason::First,
            bound: LengthBound::First,
            len_bytes: 131_072,
            ..chosen
        };
        assert_eq!(
            first.to_string(),
            "read 131 KB in 31 ms, before all who have something, since it had nothing yet; this long because its rate is not \
             known yet, and a short read finds it out"
        );
    }
}
