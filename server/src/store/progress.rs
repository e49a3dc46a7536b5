//! The steps of a read past the page cache after each result of the kernel. Pure: the reading threads and the ring
//! follow the same steps.

use ackpace_core::conn::Span;
use ackpace_core::disk::ReadError;
use ackpace_core::limits::{READ_ALIGN_BYTES, SLOT_BYTES};

/// Retries of a read that was interrupted, or for which the kernel has no memory now. More: the read failed.
const READ_RETRIES_MAX: u32 = 64;

#[derive(Debug)]
pub struct Progress {
    span: Span,
    got_bytes: u64,
    /// The length of one step: the whole read, until something can't be read; then less, to find where that begins.
    piece_bytes: u64,
    retries: u32,
    /// A read was once repeated from an aligned offset before an unaligned end.
    rounded: bool,
}

/// The next piece to read; it begins and ends at multiples of [`READ_ALIGN_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRead {
    /// Its start, from that of the span.
    pub from_bytes: u64,
    /// Its length; not 0.
    pub len_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Read(NextRead),
    /// The read is over. So many bytes from the start of the span are there, fewer only where the file ends. Or it
    /// failed at an offset of the file, and the bytes before that are there.
    Done(Result<u64, ReadError>),
}

impl Progress {
    /// A read of `span`, and its first piece: all of it.
    ///
    /// # Panics
    /// If it is empty, or does not begin and end at multiples of [`READ_ALIGN_BYTES`]: the disk machine rounds its
    /// orders.
    pub fn new(span: Span) -> (Progress, NextRead) {
        let len_bytes = span.len_bytes;
        let aligned = (span.offset_bytes | len_bytes) % READ_ALIGN_BYTES == 0;
        assert!(aligned && len_bytes > 0, "{span:?} can't be read as it is");
        let progress = Progress {
            span,
            got_bytes: 0,
            piece_bytes: len_bytes,
            retries: 0,
            rounded: false,
        };
        let from_bytes = 0;
        (
            progress,
            NextRead {
                from_bytes,
                len_bytes,
            },
        )
    }

    /// Takes the result of the last step: bytes read, or an errno. `file_len_bytes` is called where the file seems to
    /// end.
    pub fn on(&mut self, answer: Result<u64, i32>, file_len_bytes: impl FnOnce() -> u64) -> Next {
        match answer {
            Ok(0) => Next::Done(Ok(self.got_bytes)),
            Ok(read_bytes) => self.advance(read_bytes, file_len_bytes),
            Err(errno) => self.fail(errno),
        }
    }

    fn advance(&mut self, read_bytes: u64, file_len_bytes: impl FnOnce() -> u64) -> Next {
        self.retries = 0;
        self.got_bytes = self.span.len_bytes.min(self.got_bytes + read_bytes);
        let odd_bytes = self.got_bytes % READ_ALIGN_BYTES;
        if odd_bytes != 0 {
            let ends = file_len_bytes() <= self.span.offset_bytes + self.got_bytes;
            if ends || self.rounded {
                return Next::Done(Ok(self.got_bytes));
            }
            // The file grew while it was read. Only whole blocks can be read: the last one once more.
            self.rounded = true;
            self.got_bytes -= odd_bytes;
        } else if self.piece_bytes == READ_ALIGN_BYTES && self.got_bytes % SLOT_BYTES == 0 {
            self.piece_bytes = SLOT_BYTES; // the bad block was repaired, or was passed
        }
        self.next()
    }

    fn next(&self) -> Next {
        let left_bytes = self.span.len_bytes - self.got_bytes;
        match left_bytes.min(self.piece_bytes) {
            0 => Next::Done(Ok(self.got_bytes)),
            len_bytes => Next::Read(NextRead {
                from_bytes: self.got_bytes,
                len_bytes,
            }),
        }
    }

    fn fail(&mut self, errno: i32) -> Next {
        let asked_bytes = self.piece_bytes.min(self.span.len_bytes - self.got_bytes);
        let transient = matches!(errno, libc::EINTR | libc::EAGAIN);
        if transient && self.retries < READ_RETRIES_MAX {
            self.retries += 1;
            return self.next();
        }
        if is_of_the_medium(errno) && asked_bytes > READ_ALIGN_BYTES {
            self.piece_bytes = if asked_bytes > SLOT_BYTES {
                SLOT_BYTES
            } else {
                READ_ALIGN_BYTES
            };
            return self.next();
        }
        Next::Done(Err(ReadError {
            errno,
            offset_bytes: self.span.offset_bytes + self.got_bytes,
        }))
    }
}

/// Errors of single blocks, as the block layer reports them. Others hold for the whole device, where shorter retries
/// would only take long.
fn is_of_the_medium(errno: i32) -> bool {
    matches!(
        errno,
        libc::EIO | libc::ENODATA | libc::EILSEQ | libc::EREMOTEIO
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = READ_ALIGN_BYTES;

    fn span(offset_bytes: u64, len_bytes: u64) -> Span {
        Span {
            offset_bytes,
            len_bytes,
        }
    }

    /// Runs a read against a file with a length and a bad block; a call returns `most_bytes` at most. Returns the
    /// result, and the number of calls.
    fn play(
        span: Span,
        file_bytes: u64,
        bad_block: Option<u64>,
        most_bytes: u64,
    ) -> (Result<u64, ReadError>, u32) {
        let (mut progress, mut piece) = Progress::new(span);
        let mut calls = 0;
        loop {
            let NextRead {
                from_bytes,
                len_bytes,
            } = piece;
            calls += 1;
            assert_eq!((from_bytes | len_bytes) % BLOCK, 0);
            assert!(len_bytes > 0 && from_bytes + len_bytes <= span.len_bytes);
            let at_bytes = span.offset_bytes + from_bytes;
            let bad = bad_block.map(|block| block * BLOCK);
            let hit = bad.is_some_and(|bad| (at_bytes..at_bytes + len_bytes).contains(&bad));
            let left_bytes = file_bytes.saturating_sub(at_bytes);
            let answer = if hit {
                Err(libc::EIO)
            } else {
                Ok(left_bytes.min(len_bytes).min(most_bytes))
            };
            match progress.on(answer, || file_bytes) {
                Next::Done(result) => return (result, calls),
                Next::Read(next) => piece = next,
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: proptest::test_runner::RngSeed::Fixed(1), ..ProptestConfig::default() })]
        #[test]
        fn all_of_the_file_comes_or_the_first_bad_block_is_named(
            offset in 0..64u64, len in 1..300u64, file_bytes in 0..1_500_000u64,
            bad in prop::option::of(0..400u64), most in 1..400u64,
        ) {
            let span = span(offset * BLOCK, len * BLOCK);
            let (result, calls) = play(span, file_bytes, bad, most * BLOCK);
            let bad_bytes = bad.map(|block| block * BLOCK).filter(|at_bytes| span.contains(*at_bytes));
            let there_bytes = file_bytes.saturating_sub(span.offset_bytes).min(span.len_bytes);
            match (result, bad_bytes) {
                (Err(error), Some(bad_bytes)) => prop_assert_eq!(error, ReadError { errno: libc::EIO, offset_bytes: bad_bytes }),
                (Ok(got_bytes), None) => prop_assert_eq!(got_bytes, there_bytes),
                // The file ended before the bad block.
                (Ok(got_bytes), Some(bad_bytes)) => {
                    prop_assert_eq!(got_bytes, there_bytes);
                    prop_assert!(span.offset_bytes + got_bytes <= bad_bytes);
                }
                (Err(error), None) => prop_assert!(false, "{error:?} without a bad block"),
            }
            prop_assert!(u64::from(calls) <= len + 40, "{calls} calls");
        }
    }

    #[test]
    fn a_bad_block_in_a_long_read_costs_few_calls() {
        // One long read, slots up to the bad one, then blocks.
        let (result, calls) = play(span(0, 1 << 20), 1 << 21, Some(37), u64::MAX);
        let error = ReadError {
            errno: libc::EIO,
            offset_bytes: 37 * BLOCK,
        };
        assert_eq!((result, calls), (Err(error), 1 + 10 + 2));
    }

    #[test]
    fn a_file_that_grows_while_it_is_read_is_asked_again_once() {
        let (mut progress, _) = Progress::new(span(BLOCK, 4 * BLOCK));
        let next = progress.on(Ok(BLOCK + 7), || 10 * BLOCK);
        let again = Next::Read(NextRead {
            from_bytes: BLOCK,
            len_bytes: 3 * BLOCK,
        });
        assert_eq!(next, again);
        let next = progress.on(Ok(100), || 10 * BLOCK);
        assert_eq!(next, Next::Done(Ok(BLOCK + 100)), "odd again: let it be");
    }

    #[test]
    fn what_concerns_the_whole_device_fails_at_once_and_interruptions_are_survived() {
        let (mut progress, first) = Progress::new(span(0, 1 << 20));
        for _ in 0..READ_RETRIES_MAX {
            assert_eq!(progress.on(Err(libc::EINTR), || 0), Next::Read(first));
        }
        let failed = |errno| {
            Next::Done(Err(ReadError {
                errno,
                offset_bytes: 0,
            }))
        };
        assert_eq!(
            progress.on(Err(libc::EAGAIN), || 0),
            failed(libc::EAGAIN),
            "not for ever"
        );
        let (mut progress, _) = Progress::new(span(0, 1 << 20));
        assert_eq!(
            progress.on(Err(libc::ETIMEDOUT), || 0),
            failed(libc::ETIMEDOUT)
        );
    }
}
