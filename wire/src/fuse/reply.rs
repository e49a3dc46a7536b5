//! What goes back to the kernel.

use super::{IO_BYTES_MAX, Kernel, MAJOR};

/// `fuse_out_header`.
const HEAD_BYTES: usize = 16;
/// The longest answer without data: `fuse_attr_out`.
const BODY_BYTES_MAX: usize = 104;

// Bits of INIT that are used where the kernel has them.
const ASYNC_READ: u64 = 1;
const BIG_WRITES: u64 = 1 << 5;
const ASYNC_DIO: u64 = 1 << 15;
/// FUSE_MAX_PAGES.
const LONG_REQUESTS: u64 = 1 << 22;
const INIT_EXT: u64 = 1 << 30;
const WANTED: u64 =
    ASYNC_READ | BIG_WRITES | ASYNC_DIO | LONG_REQUESTS | INIT_EXT | super::HAS_RESEND;

/// Past the page cache: the file system above has one.
const FOPEN_DIRECT_IO: u32 = 1;
/// Several writes at a time.
const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// Attributes never change, and nobody else changes them.
const VALID_S: u64 = 1 << 30;
/// The code of FUSE_NOTIFY_RESEND.
const RESEND: i32 = 7;
const ENOSYS: i32 = 38;
const EIO: i32 = 5;

/// Size and rights of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Its length.
    pub len_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Nobody may write.
    pub is_read_only: bool,
}

/// One answer, or what stands in front of the data of a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    bytes: [u8; HEAD_BYTES + BODY_BYTES_MAX],
    len_bytes: usize,
}

impl Reply {
    /// What to write to /dev/fuse, by one call, with the data of a READ behind it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// It is done.
    pub fn done(unique: u64) -> Reply {
        Reply::new(unique, 0)
    }

    /// An errno.
    pub fn error(unique: u64, errno: i32) -> Reply {
        Reply::new(unique, -errno)
    }

    /// EIO.
    pub fn io_error(unique: u64) -> Reply {
        Reply::error(unique, EIO)
    }

    /// ENOSYS.
    pub fn not_here(unique: u64) -> Reply {
        Reply::error(unique, ENOSYS)
    }

    /// To INIT. The kernel may send so many reads and writes before earlier ones are answered.
    pub fn init(unique: u64, kernel: Kernel, background_max: u16) -> Reply {
        let flags = WANTED & kernel.flags;
        let mut reply = Reply::new(unique, 0);
        for word in [MAJOR, kernel.minor, 0, flags as u32] {
            reply.put(&word.to_ne_bytes());
        }
        reply.put(&background_max.to_ne_bytes());
        reply.put(&background_max.to_ne_bytes()); // congestion_threshold
        reply.put(&IO_BYTES_MAX.to_ne_bytes());
        reply.put(&1u32.to_ne_bytes()); // time_gran
        let pages = (IO_BYTES_MAX / 4096) as u16;
        reply.put(&pages.to_ne_bytes());
        reply.put(&0u16.to_ne_bytes()); // map_alignment
        reply.put(&((flags >> 32) as u32).to_ne_bytes());
        reply.put(&[0; 28]);
        reply
    }

    /// To GETATTR.
    pub fn attributes(unique: u64, geometry: Geometry) -> Reply {
        const REGULAR: u32 = 0o100_000;
        let mut reply = Reply::new(unique, 0);
        for word in [VALID_S, 0, 1, geometry.len_bytes, geometry.len_bytes / 512] {
            reply.put(&word.to_ne_bytes());
        }
        reply.put(&[0; 36]); // times
        let mode = REGULAR | if geometry.is_read_only { 0o400 } else { 0o600 };
        for word in [mode, 1, 0, 0, 0, geometry.block_bytes, 0] {
            reply.put(&word.to_ne_bytes());
        }
        reply
    }

    /// To OPEN.
    pub fn opened(unique: u64) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.put(&1u64.to_ne_bytes());
        reply.put(&(FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES).to_ne_bytes());
        reply.put(&[0; 4]);
        reply
    }

    /// To WRITE.
    pub fn written(unique: u64, len_bytes: u32) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.put(&len_bytes.to_ne_bytes());
        reply.put(&[0; 4]);
        reply
    }

    /// To READ. So many bytes follow in the same call.
    pub fn data(unique: u64, len_bytes: u32) -> Reply {
        let mut reply = Reply::new(unique, 0);
        reply.set_len(HEAD_BYTES as u32 + len_bytes);
        reply
    }

    /// To nothing that was asked: the kernel is to hand out again what a process has taken that has died.
    pub fn resend() -> Reply {
        Reply::new(0, RESEND)
    }

    fn new(unique: u64, error: i32) -> Reply {
        let mut reply = Reply {
            bytes: [0; HEAD_BYTES + BODY_BYTES_MAX],
            len_bytes: 8,
        };
        reply.bytes[4..8].copy_from_slice(&error.to_ne_bytes());
        reply.put(&unique.to_ne_bytes());
        reply
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.len_bytes + bytes.len();
        self.bytes[self.len_bytes..end].copy_from_slice(bytes);
        self.len_bytes = end;
        self.set_len(end as u32);
    }

    fn set_len(&mut self, len_bytes: u32) {
        self.bytes[..4].copy_from_slice(&len_bytes.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(reply: &Reply, at: usize) -> u32 {
        super::super::u32_at(reply.bytes(), at).expect("it is that long")
    }

    fn len_bytes(reply: &Reply) -> usize {
        word(reply, 0) as usize
    }

    #[test]
    fn answers_have_the_lengths_of_the_kernels_structures() {
        let geometry = Geometry {
            len_bytes: 1 << 30,
            block_bytes: 512,
            is_read_only: false,
        };
        let kernel = Kernel {
            major: 7,
            minor: 44,
            flags: u64::MAX,
        };
        for (reply, body_bytes) in [
            (Reply::done(1), 0),
            (Reply::io_error(1), 0),
            (Reply::init(1, kernel, 16), 64),
            (Reply::attributes(1, geometry), 104),
            (Reply::opened(1), 16),
            (Reply::written(1, 512), 8),
            (Reply::resend(), 0),
        ] {
            assert_eq!(reply.bytes().len(), 16 + body_bytes, "{reply:?}");
            assert_eq!(len_bytes(&reply), 16 + body_bytes);
        }
        let data = Reply::data(1, 4096);
        assert_eq!((data.bytes().len(), len_bytes(&data)), (16, 16 + 4096));
    }

    #[test]
    fn fields_stand_where_the_kernel_looks_for_them() {
        let kernel = Kernel {
            major: 7,
            minor: 44,
            flags: 1 << 39 | INIT_EXT | 1 << 41,
        };
        let init = Reply::init(9, kernel, 16);
        assert_eq!((word(&init, 16), word(&init, 20)), (7, 44));
        assert_eq!(word(&init, 28), 1 << 30, "nothing that it has not");
        assert_eq!(word(&init, 36), IO_BYTES_MAX);
        assert_eq!(word(&init, 48), 1 << 7, "resend, and no io_uring");
        let geometry = Geometry {
            len_bytes: 1 << 33,
            block_bytes: 4096,
            is_read_only: true,
        };
        let attributes = Reply::attributes(9, geometry);
        assert_eq!(word(&attributes, 44), 2, "the upper half of the size");
        assert_eq!(word(&attributes, 92), 0o100_400);
        assert_eq!(word(&attributes, 112), 4096);
        assert_eq!(word(&Reply::opened(9), 24), 0x41);
        let error = Reply::error(9, 5);
        assert_eq!(word(&error, 4) as i32, -5);
        assert_eq!(word(&Reply::resend(), 4), 7, "a code, no error");
    }
}
