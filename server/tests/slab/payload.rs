//! Objects whose bytes are a function of their number and the offset.

use std::sync::Arc;

use ackpace::store::slab::Slab;
use ackpace_core::conn::{ObjectId, Span};

pub fn object(index: u32) -> ObjectId {
    ObjectId {
        device: 1,
        index,
        generation: 0,
    }
}

/// Eight bytes of an object.
fn word(index: u32, nth: u64) -> [u8; 8] {
    let mut x = (u64::from(index) << 40 ^ nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 29).to_le_bytes()
}

/// The content of an object from `offset_bytes` on.
pub fn content(index: u32, offset_bytes: u64, into: &mut [u8]) {
    let (mut nth, mut skip) = (offset_bytes / 8, (offset_bytes % 8) as usize);
    let mut into = into.iter_mut();
    while into.len() > 0 {
        let bytes = word(index, nth);
        bytes[skip..]
            .iter()
            .zip(into.by_ref().take(8 - skip))
            .for_each(|(byte, at)| *at = *byte);
        (nth, skip) = (nth + 1, 0);
    }
}

pub fn wrong_bytes(index: u32, offset_bytes: u64, got: &[u8]) -> u64 {
    let mut right = vec![0; got.len()];
    content(index, offset_bytes, &mut right);
    if right == got {
        return 0;
    }
    right
        .iter()
        .zip(got)
        .filter(|(right, got)| right != got)
        .count() as u64
}

/// Receives a span into the slab in two pieces, over poison. Says whether there was room.
pub fn keep(slab: &Arc<Slab>, id: ObjectId, span: Span) -> bool {
    let Some(mut lease) = slab.lease(span.len_bytes) else {
        return false;
    };
    for mut piece in lease.iovecs(0, span.len_bytes) {
        piece.fill(0xee);
    }
    let half_bytes = span.len_bytes / 2;
    for (from_bytes, len_bytes) in [(0, half_bytes), (half_bytes, span.len_bytes - half_bytes)] {
        let mut offset_bytes = span.offset_bytes + from_bytes;
        let here = offset_bytes;
        for mut piece in lease.iovecs(from_bytes, len_bytes) {
            content(id.index, offset_bytes, &mut piece);
            offset_bytes += piece.len() as u64;
        }
        let offset_bytes = here;
        let part = Span {
            offset_bytes,
            len_bytes,
        };
        slab.publish(&mut lease, id, from_bytes, part);
    }
    true
}

/// A reproducible sequence.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % end
    }
}
