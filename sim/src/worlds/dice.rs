//! Random draws by a seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

/// A sequence of random numbers that its seed determines.
pub(super) struct Dice(Pcg64Mcg);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        // The odd factor spreads seeds that follow one another.
        let seed = u128::from(seed) + 1;
        Dice(Pcg64Mcg::new(
            seed.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835),
        ))
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.any() % bound
    }

    /// A number in `low..=high`, both above 0: each doubling is equally likely.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let doublings = u64::from((high / low).ilog2()) + 1;
        let from = low << self.below(doublings);
        (from + self.below(from)).min(high)
    }

    pub fn once_in(&mut self, rarity: u64) -> bool {
        self.below(rarity) == 0
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
