//! The bytes of an input, from which a run draws its choices. A choice takes one or two bytes, a 64-bit number eight.

/// The rest of an input. Once it is empty, every choice is the first one.
pub(super) struct Input<'a> {
    bytes: &'a [u8],
}

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.bytes.split_first() else {
            return 0;
        };
        self.bytes = rest;
        *first
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let high = if bound > 256 { self.byte() } else { 0 };
        (u64::from(high) << 8 | u64::from(self.byte())) % bound.max(1)
    }

    /// `true` in one of `rarity` cases if the bytes are random; never at the end of the input.
    pub fn once_in(&mut self, rarity: u8) -> bool {
        self.byte() % rarity == rarity - 1
    }

    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Any 64-bit number, from eight bytes.
    pub fn any(&mut self) -> u64 {
        let bytes = std::array::from_fn(|_| self.byte());
        u64::from_le_bytes(bytes)
    }
}
