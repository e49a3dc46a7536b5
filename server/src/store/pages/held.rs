//! Pages of the page cache that nobody can drop for a moment, since a pipe refers to them.

use std::os::fd::{AsFd, OwnedFd};

use ackpace_core::conn::Span;
use rustix::io::Errno;
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

/// Pages of a file that stay in the page cache while this lives: neither fadvise(2) nor reclaim drops a page that a pipe
/// refers to. Only a change of the file takes them out.
#[derive(Debug)]
pub struct HeldPages {
    _ends: (OwnedFd, OwnedFd),
    /// They are so many, from the start of the span.
    pub len_bytes: u64,
}

impl HeldPages {
    /// The first pages of the span, which begins a page and lies in the file: all of them, or as many as the pipe has room for.
    /// A user who has many pipes gets small ones (pipe(7), pipe-user-pages-soft). Reads what is missing, and waits for it,
    /// without any lock of the address space.
    ///
    /// # Errors
    /// As pipe2(2) and splice(2). EAGAIN: the file became shorter.
    pub fn new(file: &impl AsFd, span: Span) -> Result<HeldPages, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        let len_bytes = usize::try_from(span.len_bytes).map_err(|_| Errno::OVERFLOW)?;
        let _ = fcntl_setpipe_size(&writer, len_bytes); // refused: it stays as it is
        let room_bytes = fcntl_getpipe_size(&writer)? as u64;
        let until_bytes = span.end_bytes().min(span.offset_bytes + room_bytes);
        let mut at_bytes = span.offset_bytes;
        while at_bytes < until_bytes {
            let left_bytes = (until_bytes - at_bytes) as usize;
            let (from, flags) = (Some(&mut at_bytes), SpliceFlags::NONBLOCK);
            if splice(file, from, &writer, None, left_bytes, flags)? == 0 {
                return Err(Errno::AGAIN);
            }
        }
        Ok(HeldPages {
            _ends: (reader, writer),
            len_bytes: until_bytes - span.offset_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Advice, fadvise, fsync};

    use crate::store::pages::map::Map;

    /// Files of temporary folders in memory (tmpfs) are never dropped: a folder of the build is on a disk.
    fn file_of(len_bytes: u64) -> std::fs::File {
        let folder = std::env::current_exe().expect("a test");
        let path = folder.with_file_name(format!("held-{}-{len_bytes}", std::process::id()));
        std::fs::write(&path, vec![7; len_bytes as usize]).expect("room for a MiB");
        let file = std::fs::File::open(&path).expect("our own file");
        std::fs::remove_file(&path).expect("our own file");
        fsync(&file).expect("written");
        file
    }

    #[test]
    fn no_program_drops_pages_that_are_held() {
        for len_bytes in [1 << 20, 70_000, 1] {
            let file = file_of(len_bytes);
            let all = Span {
                offset_bytes: 0,
                len_bytes,
            };
            let map = Map::new(&file, 0, len_bytes).expect("a short file");
            let left_bytes = || {
                fadvise(&file, 0, None, Advice::DontNeed).expect("an open file");
                map.resident_bytes(all)
            };
            let held = HeldPages::new(&file, all).expect("a pipe");
            assert_eq!(left_bytes(), Some(held.len_bytes), "held");
            drop(held);
            match left_bytes() {
                Some(0) => {}
                Some(all) if all == len_bytes => println!("skipped: nothing is dropped here"),
                left => panic!("{left:?} of {len_bytes} bytes"),
            }
        }
    }

    #[test]
    fn what_lies_behind_the_end_of_the_file_is_an_error() {
        let file = file_of(5_000);
        let behind = Span {
            offset_bytes: 0,
            len_bytes: 9_000,
        };
        let held = HeldPages::new(&file, behind);
        assert_eq!(held.err(), Some(Errno::AGAIN));
    }
}
