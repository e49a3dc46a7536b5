//! Buffers for request heads.

use ackpace_wire::limits::HEAD_BYTES_MAX;

use crate::limits::HEAD_BUFFERS_KEPT_MAX;

/// A buffer for a request head and what follows it.
pub type HeadBuffer = Box<[u8; HEAD_BYTES_MAX]>;

/// Buffers that are lent to connections while bytes of a head are there. Returned ones are reused, the most recent
/// first.
#[derive(Default)]
pub struct HeadPool {
    free: Vec<HeadBuffer>,
}

impl HeadPool {
    /// A buffer.
    pub fn lend(&mut self) -> HeadBuffer {
        self.free
            .pop()
            .unwrap_or_else(|| Box::new([0; HEAD_BYTES_MAX]))
    }

    /// A buffer that is not used any more.
    pub fn take_back(&mut self, buffer: HeadBuffer) {
        if self.free.len() < HEAD_BUFFERS_KEPT_MAX {
            self.free.push(buffer);
        }
    }
}
