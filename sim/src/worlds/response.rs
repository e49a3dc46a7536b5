//! What the worlds' clients are answered with: a head, and a file or the rest of one. And the `Chosen` of wants that no
//! scheduler chose.

use ackpace_core::conn::{ObjectId, Part, Plan, Promise, ResidencySource, Span, Version};
use ackpace_core::prefetch::LengthBound;
use ackpace_core::why::{Chosen, Reason};
use smallvec::smallvec;

/// Length of each response's head.
pub(super) const HEAD_BYTES: u64 = 300;

/// A head, and this rest of a file.
pub(super) fn plan(file: u32, rest: Span, residency: ResidencySource) -> Plan {
    const HEAD: &[u8] = &[b'h'; HEAD_BYTES as usize];
    let object = ObjectId {
        device: 0,
        index: file,
        generation: 0,
    };
    let version = Version {
        len_bytes: rest.end_bytes(),
        ..Version::default()
    };
    Plan {
        parts: smallvec![
            Part::Bytes(HEAD.into()),
            Part::Body {
                object,
                version,
                promise: Promise::OneVersion,
                residency,
                span: rest,
            }
        ],
        head_len_bytes: HEAD_BYTES,
        body_len_bytes: Some(rest.len_bytes),
        keep_alive: true,
    }
}

/// A head, and all of the first file, which has this length.
pub(super) fn whole(len_bytes: u64, residency: ResidencySource) -> Plan {
    let rest = Span {
        offset_bytes: 0,
        len_bytes,
    };
    plan(0, rest, residency)
}

/// Stands for the choice of a read that no scheduler made.
pub(super) const CHOSEN: Chosen = Chosen {
    reason: Reason::First,
    bound: LengthBound::First,
    len_bytes: 0,
    margin_us: 0,
    target_us: 0,
    rate_bytes_per_s: 0,
    took_us: 0,
};
