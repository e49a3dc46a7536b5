//! Sends bytes of an object from the slab: by sendfile(2), or by a copy where they are few, where pages are small, or while
//! too much of the slab is in flight.

use std::io::IoSlice;
use std::sync::Arc;

use ackpace_core::conn::Span;
use ackpace_core::why::Why;

use super::{Sent, send_error};
use crate::gateway::Object;
use crate::store::slab::{Pinned, Slab};
use crate::transport::Transport;
use crate::worker::pins::Pins;

/// Bodies that are copied: that costs less than sendfile(2), and pins nothing.
pub(crate) const COPIED_BYTES_MAX: u64 = 8 << 10;

/// Sends bytes that are believed to be in the slab. Where a row ends, the next order goes on.
pub(crate) fn send_slab(
    transport: &Transport,
    object: &Arc<Object>,
    span: Span,
    pins: &mut Pins,
) -> Sent {
    if object.is_changed() {
        return Sent::Broken(Why::FileChanged);
    }
    let slab = object.slab();
    let mut taken_bytes = 0;
    while taken_bytes < span.len_bytes {
        let rest = span.behind(taken_bytes);
        let Some(piece) = slab.find(object.id, rest) else {
            break;
        };
        let offered_bytes = piece.len_bytes();
        match send_piece(transport, slab, piece, pins) {
            Ok(taken) if taken < offered_bytes => return Sent::taken(taken_bytes + taken, true),
            Ok(taken) => taken_bytes += taken,
            Err(error) if taken_bytes == 0 => return send_error(error),
            Err(_) => return Sent::taken(taken_bytes, true),
        }
    }
    match taken_bytes {
        0 => Sent::Missing,
        _ => Sent::taken(taken_bytes, false),
    }
}

/// Sends bytes that are held, from this one of them on.
pub(crate) fn send_held(
    transport: &Transport,
    (slab, held): (&Slab, &[Pinned]),
    from_bytes: u64,
    pins: &mut Pins,
) -> Sent {
    let (mut skip_bytes, mut taken_bytes) = (from_bytes, 0);
    for piece in held {
        let skipped_bytes = skip_bytes.min(piece.len_bytes());
        skip_bytes -= skipped_bytes;
        let offered_bytes = piece.len_bytes() - skipped_bytes;
        if offered_bytes == 0 {
            continue;
        }
        let part = piece.part(skipped_bytes, offered_bytes);
        match send_piece(transport, slab, part, pins) {
            Ok(taken) if taken < offered_bytes => return Sent::taken(taken_bytes + taken, true),
            Ok(taken) => taken_bytes += taken,
            Err(error) if taken_bytes == 0 => return send_error(error),
            Err(_) => return Sent::taken(taken_bytes, true),
        }
    }
    Sent::taken(taken_bytes, false)
}

/// Sends a piece, or a part of it.
fn send_piece(
    transport: &Transport,
    slab: &Slab,
    piece: Pinned,
    pins: &mut Pins,
) -> rustix::io::Result<u64> {
    let offered_bytes = piece.len_bytes();
    if slab.is_copied() || offered_bytes <= COPIED_BYTES_MAX || slab.is_crowded() {
        return transport.send_slices(&[IoSlice::new(piece.bytes())], false);
    }
    let file = Span {
        offset_bytes: piece.offset_bytes(),
        len_bytes: offered_bytes,
    };
    let taken = transport.send_file(piece.fd(), file)?;
    pins.add(piece, taken, transport);
    Ok(taken)
}
