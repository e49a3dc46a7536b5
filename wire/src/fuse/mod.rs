//! FUSE of Linux (linux/fuse.h) as far as one file needs it: what the kernel asks, and the answers.
//!
//! The file is mounted on a regular file, so there is no folder and no name. It is opened without the page cache. Reads and writes
//! come with up to [`IO_BYTES_MAX`] bytes. All numbers are in the machine's own byte order.
//!
//! [`Request::parse`] takes what one read(2) of /dev/fuse brought; a [`Reply`] goes back by one write(2). The caller reads so that
//! [`WRITE_HEAD_BYTES`] stand before a page: then the payload of a WRITE fills whole pages.

mod reply;

pub use self::reply::{Geometry, Reply};

/// Bytes of the longest READ or WRITE: what `max_write` may be where pages have 4 KiB.
pub const IO_BYTES_MAX: u32 = 1 << 20;
/// Bytes in front of the payload of a WRITE: `fuse_in_header` and `fuse_write_in`.
pub const WRITE_HEAD_BYTES: usize = HEAD_BYTES + ARGUMENT_BYTES;
/// Bytes of the longest request. read(2) needs room for so many.
pub const REQUEST_BYTES_MAX: usize = WRITE_HEAD_BYTES + IO_BYTES_MAX as usize;
/// The version of the protocol whose structures are used here; the minor one, which follows, has changed none of them since 7.23.
pub const MAJOR: u32 = 7;
/// The lowest minor version that is accepted (Linux 4.20): older kernels lack `max_pages`.
pub const MINOR_MIN: u32 = 28;

/// `fuse_in_header`.
const HEAD_BYTES: usize = 40;
/// `fuse_read_in` and `fuse_write_in`.
const ARGUMENT_BYTES: usize = 40;

/// The kernel can give requests to a new process that another one has taken (FUSE_HAS_RESEND, Linux 6.9).
const HAS_RESEND: u64 = 1 << 39;

/// One request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number. The answer has all of it, the highest bit included, which says that it was sent again.
    pub unique: u64,
    /// What is asked.
    pub ask: Ask,
}

/// What the kernel asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// FUSE_INIT, the first one.
    Init(Kernel),
    /// FUSE_GETATTR.
    Attributes,
    /// FUSE_OPEN.
    Open,
    /// FUSE_READ.
    Read(Range),
    /// FUSE_WRITE; the payload stands behind [`WRITE_HEAD_BYTES`].
    Write(Range),
    /// FUSE_FSYNC.
    Sync,
    /// FUSE_RELEASE, FUSE_FLUSH and FUSE_DESTROY: there is nothing to do.
    Nothing,
    /// FUSE_FORGET and FUSE_BATCH_FORGET, which have no answer.
    Forget,
    /// Anything else, by its number in `fuse_opcode`: ENOSYS. The kernel does not ask again for most of it.
    Other(u32),
}

/// What a kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// Bits of `flags` and, above them, `flags2`.
    pub flags: u64,
}

impl Kernel {
    /// Whether requests outlive the process that has taken them ([`Reply::resend`]).
    pub fn has_resend(self) -> bool {
        self.flags & HAS_RESEND != 0
    }

    /// Whether its structures are those of this module.
    pub fn is_known(self) -> bool {
        self.major == MAJOR && self.minor >= MINOR_MIN
    }
}

/// Bytes of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first one.
    pub offset_bytes: u64,
    /// How many, at most [`IO_BYTES_MAX`].
    pub len_bytes: u32,
}

impl Range {
    /// Behind the last byte; a range that would end above 2^64 ends there.
    pub fn end_bytes(self) -> u64 {
        self.offset_bytes.saturating_add(self.len_bytes.into())
    }
}

/// Why bytes are no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// They are fewer than a header, or their number is not that in the header.
    Head,
    /// What follows the header does not fit to what is asked. It can be answered by an error.
    Body {
        /// The number of the request.
        unique: u64,
    },
}

impl Request {
    /// The request that one read(2) has brought.
    ///
    /// # Errors
    /// It is none that a kernel sends.
    pub fn parse(bytes: &[u8]) -> Result<Request, Bad> {
        let (head, body) = bytes.split_at_checked(HEAD_BYTES).ok_or(Bad::Head)?;
        let unique = u64_at(head, 8).ok_or(Bad::Head)?;
        if u32_at(head, 0) != u32::try_from(bytes.len()).ok() {
            return Err(Bad::Head);
        }
        let opcode = u32_at(head, 4).ok_or(Bad::Head)?;
        let ask = ask(opcode, body).ok_or(Bad::Body { unique })?;
        Ok(Request { unique, ask })
    }
}

/// By `fuse_opcode`.
fn ask(opcode: u32, body: &[u8]) -> Option<Ask> {
    Some(match opcode {
        2 | 42 => Ask::Forget,
        3 => Ask::Attributes,
        14 => Ask::Open,
        15 => Ask::Read(range(body)?),
        16 => {
            let range = range(body)?;
            let payload = body.get(ARGUMENT_BYTES..)?;
            (payload.len() == range.len_bytes as usize).then_some(Ask::Write(range))?
        }
        18 | 25 | 38 => Ask::Nothing,
        20 => Ask::Sync,
        26 => Ask::Init(Kernel {
            major: u32_at(body, 0)?,
            minor: u32_at(body, 4)?,
            flags: u64::from(u32_at(body, 12)?) | high_flags(body) << 32,
        }),
        other => Ask::Other(other),
    })
}

/// `flags2`, which only kernels send that set FUSE_INIT_EXT; others' bodies end before.
fn high_flags(body: &[u8]) -> u64 {
    u32_at(body, 16).unwrap_or(0).into()
}

/// `offset` and `size` stand at the same place in both structures.
fn range(body: &[u8]) -> Option<Range> {
    let argument = body.get(..ARGUMENT_BYTES)?;
    let range = Range {
        offset_bytes: u64_at(argument, 8)?,
        len_bytes: u32_at(argument, 16)?,
    };
    (range.len_bytes <= IO_BYTES_MAX).then_some(range)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*four))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*eight))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(opcode: u32, unique: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = (40 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(unique.to_ne_bytes());
        bytes.extend([0; 24]);
        bytes.extend(body);
        bytes
    }

    fn io(offset_bytes: u64, len_bytes: u32, payload: &[u8]) -> Vec<u8> {
        let mut body = 1u64.to_ne_bytes().to_vec();
        body.extend(offset_bytes.to_ne_bytes());
        body.extend(len_bytes.to_ne_bytes());
        body.extend([0; 20]);
        body.extend(payload);
        body
    }

    fn parsed(opcode: u32, body: &[u8]) -> Result<Ask, Bad> {
        Request::parse(&request(opcode, 7, body)).map(|request| request.ask)
    }

    #[test]
    fn each_request_is_known_by_its_number() {
        let range = Range {
            offset_bytes: 1 << 40,
            len_bytes: 4096,
        };
        assert_eq!(parsed(3, &[0; 16]), Ok(Ask::Attributes));
        assert_eq!(parsed(14, &[0; 8]), Ok(Ask::Open));
        assert_eq!(parsed(15, &io(1 << 40, 4096, &[])), Ok(Ask::Read(range)));
        let write = io(1 << 40, 4096, &[1; 4096]);
        assert_eq!(parsed(16, &write), Ok(Ask::Write(range)));
        assert_eq!(parsed(20, &[0; 16]), Ok(Ask::Sync));
        for opcode in [18, 25, 38] {
            assert_eq!(parsed(opcode, &[0; 24]), Ok(Ask::Nothing));
        }
        assert_eq!(parsed(2, &[0; 8]), Ok(Ask::Forget));
        assert_eq!(parsed(42, &[0; 8]), Ok(Ask::Forget));
        // FUSE_FALLOCATE, FUSE_INTERRUPT.
        assert_eq!(parsed(43, &[0; 32]), Ok(Ask::Other(43)));
        assert_eq!(parsed(36, &[0; 8]), Ok(Ask::Other(36)));
    }

    #[test]
    fn the_whole_number_is_kept_also_of_what_was_sent_again() {
        let unique = 1 << 63 | 0x1234;
        let request = Request::parse(&request(20, unique, &[0; 16])).expect("a request");
        assert_eq!(request.unique, unique);
        assert_eq!(
            Reply::done(request.unique).bytes()[8..],
            unique.to_ne_bytes()
        );
    }

    #[test]
    fn a_kernel_tells_its_version_and_what_it_has() {
        let mut body = Vec::new();
        for word in [7u32, 44, 0, 1 << 30, 1 << 7] {
            body.extend(word.to_ne_bytes());
        }
        let Ok(Ask::Init(kernel)) = parsed(26, &body) else {
            panic!("it is INIT")
        };
        assert!(kernel.is_known() && kernel.has_resend());
        let Ok(Ask::Init(kernel)) = parsed(26, &body[..16]) else {
            panic!("it is one of an old kernel")
        };
        assert!(kernel.is_known() && !kernel.has_resend());
        body[4..8].copy_from_slice(&27u32.to_ne_bytes());
        assert!(matches!(parsed(26, &body), Ok(Ask::Init(kernel)) if !kernel.is_known()));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let bad = Err(Bad::Body { unique: 7 });
        assert_eq!(Request::parse(&[0; 39]), Err(Bad::Head));
        let mut wrong = request(20, 7, &[0; 16]);
        wrong.push(0);
        assert_eq!(Request::parse(&wrong), Err(Bad::Head));
        assert_eq!(parsed(15, &[0; 39]), bad);
        assert_eq!(parsed(15, &io(0, IO_BYTES_MAX + 1, &[])), bad);
        assert_eq!(parsed(16, &io(0, 4096, &[0; 4095])), bad);
        assert_eq!(parsed(16, &io(0, 4095, &[0; 4096])), bad);
        assert_eq!(parsed(26, &[0; 15]), bad);
        let end = Range {
            offset_bytes: u64::MAX,
            len_bytes: 2,
        };
        assert_eq!(end.end_bytes(), u64::MAX);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), opcode in 0u32..60) {
            let _ = Request::parse(&bytes);
            let _ = Request::parse(&request(opcode, 1, &bytes));
        }
    }
}
