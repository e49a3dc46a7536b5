//! Any bytes as what the kernel asks of a FUSE file: [`ackpace_wire::fuse`].

use ackpace_wire::fuse::{Ask, IO_BYTES_MAX, Request, WRITE_HEAD_BYTES};

/// Laws: a READ or WRITE is at most so long, and the payload of a WRITE is what stands behind its head.
pub fn fuse(data: &[u8]) {
    let Ok(request) = Request::parse(data) else {
        return;
    };
    match request.ask {
        Ask::Write(range) => assert_eq!(data.len(), WRITE_HEAD_BYTES + range.len_bytes as usize),
        Ask::Read(range) => assert!(range.len_bytes <= IO_BYTES_MAX),
        _ => {}
    }
}
