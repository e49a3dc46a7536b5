//! What tests of several modules need: PDUs of a target.

use super::crc;
use super::pdu::{Header, pad_len_bytes};

/// A PDU as it stands on the wire.
pub(super) fn pdu(
    header: Header,
    data: &[u8],
    header_digests: bool,
    data_digests: bool,
) -> Vec<u8> {
    let header = header.with_data_len(data.len() as u32);
    let mut bytes = header.0.to_vec();
    if header_digests {
        bytes.extend(crc::of(&header.0).to_le_bytes());
    }
    if data.is_empty() {
        return bytes;
    }
    let mut segment = data.to_vec();
    segment.resize(data.len() + pad_len_bytes(data.len() as u32), 0);
    bytes.extend(&segment);
    if data_digests {
        bytes.extend(crc::of(&segment).to_le_bytes());
    }
    bytes
}

/// Numbers that look random: splitmix64.
#[derive(Debug)]
pub(super) struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % u64::from(end.max(1))) as u32
    }
}
