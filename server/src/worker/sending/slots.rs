//! Bytes of a file in the slots into which their disk read them: how they are lent to the kernel, and given back.

use std::collections::VecDeque;
use std::io::IoSlice;

use ackpace_core::conn::Span;
use smallvec::SmallVec;

use crate::disk::SlotBytes;
use crate::limits::SLICES_MAX;

/// The span as it lies in slots, as far as one call takes it.
pub(super) fn slices_of(pieces: &VecDeque<SlotBytes>, span: Span) -> SmallVec<[IoSlice<'_>; 8]> {
    let mut slices = SmallVec::<[IoSlice; 8]>::new();
    let mut at_bytes = span.offset_bytes;
    for piece in pieces {
        let here = piece.span.contains(at_bytes) && piece.from_bytes <= at_bytes;
        if !here || !piece.lease.has(at_bytes - piece.from_bytes) || slices.len() >= SLICES_MAX {
            continue;
        }
        let len_bytes = piece.span.end_bytes().min(span.end_bytes()) - at_bytes;
        let room = SLICES_MAX - slices.len();
        let lent = piece.lease.slices(at_bytes - piece.from_bytes, len_bytes);
        for slice in lent.into_iter().take(room) {
            at_bytes += slice.len() as u64;
            slices.push(slice);
        }
        if at_bytes >= span.end_bytes() {
            break;
        }
    }
    slices
}

/// Gives back the memory of a file's bytes before `until_bytes`. Nothing else frees what was sent. The kernel has copied
/// what it took, so that is where slots end; memory that it only refers to would end where the client has acknowledged it
/// ([`Held`](ackpace_core::conn::Held)).
pub(super) fn release_until(pieces: &mut VecDeque<SlotBytes>, until_bytes: u64) {
    while let Some(piece) = pieces.front_mut() {
        if until_bytes < piece.span.end_bytes() {
            let sent_bytes = until_bytes.saturating_sub(piece.from_bytes);
            piece.lease.release_front(sent_bytes);
            break;
        }
        pieces.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ackpace_core::limits::SLOT_BYTES;

    use super::*;
    use crate::mailbox::ThreadWaker;
    use crate::store::pool::Pool;

    #[test]
    fn memory_comes_back_slot_by_slot_whatever_says_how_far() {
        let waker = Arc::new(ThreadWaker::new().expect("a descriptor"));
        let pool = Arc::new(Pool::new(8, waker).expect("address space"));
        pool.enlist(8);
        let lent = |from_slot: u64, slots: u32| SlotBytes {
            lease: pool.lease(slots).expect("free"),
            from_bytes: from_slot * SLOT_BYTES,
            span: Span {
                offset_bytes: from_slot * SLOT_BYTES,
                len_bytes: u64::from(slots) * SLOT_BYTES,
            },
            version_checked: true,
        };
        let free = pool.free_slots();
        let mut pieces = VecDeque::from([lent(10, 3), lent(13, 5)]);
        // How far the client has acknowledged is far behind what the kernel took, and may stand still or jump.
        for (until_bytes, held) in [
            (0, 8),
            (10 * SLOT_BYTES, 8),
            (11 * SLOT_BYTES - 1, 8),
            (11 * SLOT_BYTES, 7),
            (11 * SLOT_BYTES, 7),
            (13 * SLOT_BYTES, 5),
            (17 * SLOT_BYTES + 1, 1),
            (18 * SLOT_BYTES, 0),
            (u64::MAX, 0),
        ] {
            release_until(&mut pieces, until_bytes);
            assert_eq!(free - pool.free_slots(), held, "until {until_bytes}");
        }
        assert!(pieces.is_empty());
    }
}
