//! CRC32C, the checksum of both digests (RFC 7143 section 13.1). On the wire its least significant byte is first.

/// The checksum of these bytes.
pub fn of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// The checksum of bytes and of `more` behind them, where `crc` is that of the bytes.
pub fn append(crc: u32, more: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, more)
}

/// The checksum of two pieces, one behind the other, from that of each. No byte is looked at.
pub fn combine(first: u32, second: u32, second_len_bytes: u32) -> u32 {
    crc32c::crc32c_combine(first, second, second_len_bytes as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_standard_hold() {
        // RFC 7143 appendix A.4, as the bytes stand on the wire.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        let read: [u8; 48] = [
            0x01, 0xc0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0, 0,
            0, 0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0, 0,
        ];
        for (bytes, digest) in [
            (&[0; 32][..], [0xaa, 0x36, 0x91, 0x8a]),
            (&[0xff; 32], [0x43, 0xab, 0xa8, 0x62]),
            (&ascending, [0x4e, 0x79, 0xdd, 0x46]),
            (&descending, [0x5c, 0xdb, 0x3f, 0x11]),
            (&read, [0x56, 0x3a, 0x96, 0xd9]),
        ] {
            assert_eq!(of(bytes).to_le_bytes(), digest);
        }
    }

    proptest! {
        #[test]
        fn pieces_have_the_checksum_of_the_whole(first: Vec<u8>, second: Vec<u8>) {
            let whole = of(&[&first[..], &second[..]].concat());
            prop_assert_eq!(append(of(&first), &second), whole);
            prop_assert_eq!(combine(of(&first), of(&second), second.len() as u32), whole);
        }
    }
}
