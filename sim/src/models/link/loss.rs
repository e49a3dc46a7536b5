//! Loss on a wire: none, independent, or in bursts.

use super::unit;
use rand_pcg::rand_core::RngCore;

/// Loss of a wire. All probabilities are from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Loss {
    /// Nothing is lost.
    None,
    /// Each packet is lost with the same probability, independently of the others.
    Bernoulli {
        /// Probability of a loss.
        p: f64,
    },
    /// Two states, each with its own loss probability. The state may change before each packet (Gilbert 1960, Elliott
    /// 1963). A state lasts a geometric number of packets: 1/r is the mean length of a bad one.
    GilbertElliott {
        /// Probability that the good state ends before a packet.
        to_bad: f64,
        /// Probability that the bad state ends before a packet (r).
        to_good: f64,
        /// Loss in the good state (1 - k).
        loss_good: f64,
        /// Loss in the bad state (1 - h).
        loss_bad: f64,
    },
}

#[derive(Clone, Debug, Default)]
pub(super) struct LossState {
    is_bad: bool,
}

impl LossState {
    pub(super) fn loses(&mut self, loss: &Loss, rng: &mut impl RngCore) -> bool {
        match *loss {
            Loss::None => false,
            Loss::Bernoulli { p } => unit(rng) < p,
            Loss::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                let leaves = if self.is_bad { to_good } else { to_bad };
                self.is_bad ^= unit(rng) < leaves;
                let p = if self.is_bad { loss_bad } else { loss_good };
                unit(rng) < p
            }
        }
    }
}
