//! Sends bytes of an object from the slab: by sendfile(2), or by a copy where they are few, where pages are small, or while
//! too much of the slab is in flight.

use std::io::IoSlice;
use std::sync::Arc;

use ackpace_core::conn::Span;
use ackpace_core::why::Why;

use super::{Sent, send_error};
use crate::gateway::Object;
use crate::transport::Transport;
use crate::worker::pins::Pins;

/// Bodies that are copied: that costs less than sendfile(2), and pins nothing.
const COPIED_BYTES_MAX: u64 = 8 << 10;

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
        let copies = slab.is_copied() || offered_bytes <= COPIED_BYTES_MAX || slab.is_crowded();
        let sent = match copies {
            true => transport.send_slices(&[IoSlice::new(piece.bytes())], false),
            false => {
                let file = Span {
                    offset_bytes: piece.offset_bytes(),
                    len_bytes: offered_bytes,
                };
                transport.send_file(piece.fd(), file)
            }
        };
        match sent {
            Ok(taken) => {
                taken_bytes += taken;
                if !copies {
                    pins.add(piece, taken, transport);
                }
                if taken < offered_bytes {
                    return Sent::taken(taken_bytes, true);
                }
            }
            Err(error) if taken_bytes == 0 => return send_error(error),
            Err(_) => return Sent::taken(taken_bytes, true),
        }
    }
    match taken_bytes {
        0 => Sent::Missing,
        _ => Sent::taken(taken_bytes, false),
    }
}
