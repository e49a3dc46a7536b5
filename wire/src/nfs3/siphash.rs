//! SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): a keyed hash that can't be guessed without its
//! key.

/// The hash of some bytes.
pub(super) fn hash(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let (low, high) = key.split_at(8);
    let [k0, k1] = [low, high].map(word);
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let chunks = bytes.chunks_exact(8);
    let last = word(chunks.remainder()) | (bytes.len() as u64) << 56;
    for m in chunks.map(word).chain([last]) {
        v[3] ^= m;
        rounds(&mut v, 2);
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    rounds(&mut v, 4);
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// At most eight bytes, little endian.
fn word(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn rounds(v: &mut [u64; 4], count: u32) {
    for _ in 0..count {
        v[0] = v[0].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(13) ^ v[0];
        v[0] = v[0].rotate_left(32);
        v[2] = v[2].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(16) ^ v[2];
        v[0] = v[0].wrapping_add(v[3]);
        v[3] = v[3].rotate_left(21) ^ v[0];
        v[2] = v[2].wrapping_add(v[1]);
        v[1] = v[1].rotate_left(17) ^ v[2];
        v[2] = v[2].rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;

    use super::hash;

    #[test]
    fn the_papers_example() {
        // Appendix A.
        let key = std::array::from_fn(|at| at as u8);
        let bytes: [u8; 15] = std::array::from_fn(|at| at as u8);
        assert_eq!(hash(&key, &bytes), 0xa129_ca61_49be_45e5);
    }

    proptest! {
        /// The standard library's is deprecated, and right.
        #[test]
        #[allow(deprecated)]
        fn it_is_that_of_the_standard_library(key: [u8; 16], bytes: Vec<u8>) {
            let halves = u128::from_le_bytes(key);
            let mut theirs =
                std::hash::SipHasher::new_with_keys(halves as u64, (halves >> 64) as u64);
            theirs.write(&bytes);
            prop_assert_eq!(hash(&key, &bytes), theirs.finish());
        }
    }
}
