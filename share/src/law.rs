//! How much TCP keeps in flight on a path, and how fast it is there, by the published laws.
//!
//! SSBT's E-ATBT sizes a send buffer by what a connection can use. That is its throughput by a law of loss and round
//! trip time, not its present window, which oscillates (SSBT 3.1). Each law here gives the mean [`Window`]; its bytes
//! over a round trip are the throughput.
//!
//! | law | method | holds for |
//! |---|---|---|
//! | square root | [`Conditions::square_root`] | reno, losses that duplicate ACKs repair |
//! | Mathis, Wu and Crawford's eq. 8 | [`Conditions::mathis`] | the same, with any constant |
//! | PFTK, SSBT's eq. 1 | [`Conditions::pftk`] | reno with timeouts and a largest window |
//! | RFC 9438's response function | [`Conditions::cubic`] | cubic |
//!
//! All are defined for any input: a round trip or a segment of 0 counts as 1, and results stay within
//! [`WINDOW_BYTES_MAX`] and [`RATE_BYTES_PER_S_MAX`].

use libm::sqrt;

use ackpace_core::limits::RATE_BYTES_PER_S_MAX;
use ackpace_core::units::US_PER_S;

/// The largest window that TCP can offer (RFC 7323, 2.3). No law promises more, whatever the path.
pub const WINDOW_BYTES_MAX: u64 = 65_535 << 14;

/// RFC 9438, 4.6 and 5: C, in segments per cubic second, and beta, what a loss leaves of the window.
const CUBIC_C: f64 = 0.4;
const CUBIC_BETA: f64 = 0.7;

/// The probability that a segment is lost, or that a loss event begins with it: 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Loss(f64);

impl Loss {
    /// No loss.
    pub const NONE: Loss = Loss(0.0);

    /// A probability. Above 1 counts as 1; below 0, or no number, as 0.
    pub fn new(probability: f64) -> Loss {
        match probability > 0.0 {
            true => Loss(probability.min(1.0)),
            false => Loss::NONE,
        }
    }

    /// The probability, 0 to 1.
    pub fn probability(self) -> f64 {
        self.0
    }
}

/// By what a sender's window grows: b of the laws is the number of segments for each such step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// Each segment counts: the receiver acknowledges every one, or the sender counts acknowledged segments, as Linux
    /// does (RFC 3465). b = 1.
    #[default]
    Each,
    /// Delayed ACKs, and a sender that counts ACKs. b = 2.
    Delayed,
}

impl Acks {
    /// b of SSBT's eq. 1.
    fn segments(self) -> f64 {
        match self {
            Acks::Each => 1.0,
            Acks::Delayed => 2.0,
        }
    }
}

/// A path as the laws see it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// MSS: the payload of a full segment.
    pub mss_bytes: u64,
    /// Round trip time.
    pub rtt_us: u64,
    /// p.
    pub loss: Loss,
    /// b.
    pub acks: Acks,
}

impl Conditions {
    /// The square-root law: sqrt(3 / 2bp) segments in flight in the mean (Padhye et al., SIGCOMM 1998, without timeouts,
    /// for small p). It knows no timeouts, so it is too high from some 2 % of loss on.
    pub fn square_root(&self) -> Window {
        self.mathis(sqrt(1.5 / self.acks.segments()))
    }

    /// Mathis et al. 1997, Wu and Crawford's eq. 8: BW = MSS / RTT * C / sqrt(p), so C / sqrt(p) segments in flight. C
    /// is of order one: 1.22 with an ACK for each segment, .87 with delayed ones, if losses are periodic. Below 0, or
    /// no number, counts as 0.
    pub fn mathis(&self, c: f64) -> Window {
        match c > 0.0 {
            true => self.window(c / sqrt(self.loss.0)),
            false => self.window(0.0),
        }
    }

    /// PFTK: Padhye, Firoiu, Towsley and Kurose, SIGCOMM 1998, approximate model; SSBT's eq. 1, which prints max
    /// for the outer min.
    /// `rto_us` is T_0. `peer_window_bytes` is W_max, the window that the receiver offers. The result is rtt times
    /// lambda, SSBT's B_i.
    pub fn pftk(&self, rto_us: u64, peer_window_bytes: u64) -> Window {
        let (p, b) = (self.loss.0, self.acks.segments());
        let rtt = self.rtt_us.max(1) as f64;
        let timeouts = (3.0 * sqrt(3.0 * b * p / 8.0)).min(1.0) * p * (1.0 + 32.0 * p * p);
        let apart = rtt * sqrt(2.0 * b * p / 3.0) + rto_us as f64 * timeouts; // microseconds a segment
        let most = peer_window_bytes as f64 / self.mss_bytes.max(1) as f64;
        self.window((rtt / apart).min(most))
    }

    /// Cubic's mean window by RFC 9438, 5: (C (3 + beta) / (4 (1 - beta)))^(1/4) * (RTT / p)^(3/4) segments, RTT in
    /// seconds; but never less than reno's, as whose equal it grows on short or lossy paths (4.3).
    pub fn cubic(&self) -> Window {
        let ratio = self.rtt_us.max(1) as f64 / US_PER_S as f64 / self.loss.0;
        let constant = CUBIC_C * (3.0 + CUBIC_BETA) / (4.0 * (1.0 - CUBIC_BETA));
        let segments = sqrt(sqrt(constant * ratio)) * sqrt(ratio); // constant^(1/4) * ratio^(3/4)
        self.window(segments.max(self.square_root().segments))
    }

    fn window(&self, segments: f64) -> Window {
        Window {
            segments,
            mss_bytes: self.mss_bytes.max(1),
            rtt_us: self.rtt_us.max(1),
        }
    }
}

/// What is in flight in the mean, by a law; also the throughput that it amounts to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Without loss this is infinite; what comes out of here is bounded.
    segments: f64,
    mss_bytes: u64,
    rtt_us: u64,
}

impl Window {
    /// The window, at most [`WINDOW_BYTES_MAX`]; 0 where the law gives less than a byte.
    pub fn bytes(self) -> u64 {
        (self.segments * self.mss_bytes as f64).min(WINDOW_BYTES_MAX as f64) as u64
    }

    /// The window over the round trip, 1 to [`RATE_BYTES_PER_S_MAX`].
    pub fn bytes_per_s(self) -> u64 {
        let payload = (self.segments * self.mss_bytes as f64).min(WINDOW_BYTES_MAX as f64);
        let rate = payload * US_PER_S as f64 / self.rtt_us as f64;
        rate.clamp(1.0, RATE_BYTES_PER_S_MAX as f64) as u64
    }
}

#[cfg(test)]
mod tests;
