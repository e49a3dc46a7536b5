//! What is known of windows of mapped files: how often mincore(2) was asked about them, and in which epoch of the page cache
//! they were entered in our page tables.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use crate::limits::{WINDOWS_COUNTED, WINDOWS_PROVEN};

/// What is entered in the page tables at once, at a multiple of itself.
pub const WINDOW_BYTES: u64 = 1 << 20;
/// Bytes of a window are counted in these.
const COUNT_BYTES: u64 = 64 << 10;
/// A window is entered when so many times its bytes were asked for: by then asking has cost what that costs.
const ENTER_AFTER: u64 = 3;
/// When its proof has ended it is entered again after so many times that: most of its pages are there still.
const ENTER_AGAIN_AFTER: u64 = 2;
/// One that was not entered then (its file was closed, or too many are) is tried again after so many times that.
const AGAIN_AFTER: u64 = 8;

/// A proof has these bits of its epoch, below those of its window. They repeat when the kernel has scanned a TiB of pages.
const EPOCH_BITS: u32 = 28;

/// Memory of what is known of windows.
pub const WINDOWS_BYTES: u64 = size_of::<Windows>() as u64;

/// What is known of all windows.
pub static WINDOWS: Windows = Windows::new();

/// A window of a mapped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first address, by which it is proven: no other window has it while the file is mapped.
    pub address: u64,
    /// A hash of its file and place, by which it is counted: its file may be mapped again elsewhere.
    pub place: u64,
    /// Its length: [`WINDOW_BYTES`], or less at the end of a file.
    pub len_bytes: u64,
}

/// What is known of windows.
#[derive(Debug)]
pub struct Windows {
    /// What was asked for of them, in [`COUNT_BYTES`]. Those that meet here are entered sooner or later than they should, and
    /// that is all.
    asked: [AtomicU16; WINDOWS_COUNTED],
    /// Those that are entered, each with its epoch. Of those that meet here one is left.
    proven: [AtomicU64; WINDOWS_PROVEN],
}

impl Windows {
    const fn new() -> Windows {
        Windows {
            asked: [const { AtomicU16::new(0) }; WINDOWS_COUNTED],
            proven: [const { AtomicU64::new(0) }; WINDOWS_PROVEN],
        }
    }

    /// Counts a question about `asked_bytes` of the window; `true`: it is time to enter it. That comes again if it was not
    /// entered then.
    pub fn asked(&self, window: Window, asked_bytes: u64) -> bool {
        let count = self.count(window);
        let (kept, is_due) = window.counted(count.load(Ordering::Relaxed), asked_bytes);
        count.store(kept, Ordering::Relaxed);
        is_due
    }

    /// The window stands in our page tables, and was entered in this epoch of the page cache.
    pub fn prove(&self, window: Window, epoch: u64) {
        self.proof(window)
            .store(window.proven_in(epoch), Ordering::Release);
    }

    /// Whether the window is in memory for certain: it was entered in this epoch. When another one has begun it will be
    /// entered again, which costs less than at first.
    pub fn is_proven(&self, window: Window, epoch: u64) -> bool {
        let proof = self.proof(window).load(Ordering::Acquire);
        let is_proven = proof == window.proven_in(epoch);
        if window.is_proof(proof) && !is_proven {
            self.forget(window);
            let count = window.times(ENTER_AFTER - ENTER_AGAIN_AFTER);
            self.count(window).store(count as u16, Ordering::Relaxed);
        }
        is_proven
    }

    /// Whether the window was entered in this epoch.
    pub fn is_entered_in(&self, window: Window, epoch: u64) -> bool {
        self.proof(window).load(Ordering::Acquire) == window.proven_in(epoch)
    }

    /// Whether the window was entered in any epoch.
    pub fn is_entered(&self, window: Window) -> bool {
        window.is_proof(self.proof(window).load(Ordering::Acquire))
    }

    /// Other bytes will have the window's addresses, or another epoch has begun.
    pub fn forget(&self, window: Window) {
        if self.is_entered(window) {
            self.proof(window).store(0, Ordering::Release);
        }
    }

    fn count(&self, window: Window) -> &AtomicU16 {
        &self.asked[hash(window.place) % WINDOWS_COUNTED]
    }

    fn proof(&self, window: Window) -> &AtomicU64 {
        &self.proven[hash(window.address) % WINDOWS_PROVEN]
    }
}

impl Window {
    /// What the count becomes with a question about `asked_bytes` of it, and whether it is time to enter it.
    fn counted(self, before: u16, asked_bytes: u64) -> (u16, bool) {
        let most = self.times(ENTER_AFTER);
        let before = u64::from(before);
        let after = before + asked_bytes.div_ceil(COUNT_BYTES);
        let kept = match after >= AGAIN_AFTER * most {
            true => 0,
            false => after,
        };
        (kept as u16, before < most && after >= most)
    }

    /// The number of its first page: 35 or 36 bits, and never 0.
    fn tag(self) -> u64 {
        self.address >> 12
    }

    fn is_proof(self, proof: u64) -> bool {
        proof >> EPOCH_BITS == self.tag()
    }

    fn proven_in(self, epoch: u64) -> u64 {
        self.tag() << EPOCH_BITS | epoch & ((1 << EPOCH_BITS) - 1)
    }

    /// What is counted when all of it was asked for so many times.
    fn times(self, times: u64) -> u64 {
        times * self.len_bytes.div_ceil(COUNT_BYTES)
    }
}

/// Fibonacci hashing (Knuth, vol. 3, 6.4).
fn hash(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(nth: u64) -> Window {
        Window {
            address: 0x7f00_0000_0000 + nth * WINDOW_BYTES,
            place: nth,
            len_bytes: WINDOW_BYTES,
        }
    }

    #[test]
    fn a_window_is_entered_when_three_times_its_bytes_were_asked_for_and_tried_again_later() {
        for (window, len_bytes, asked_bytes, expected) in [
            (window(1), WINDOW_BYTES, WINDOW_BYTES, 3),
            (window(2), WINDOW_BYTES, WINDOW_BYTES / 2, 6),
            (window(3), 32 << 10, 32 << 10, 3),
            (window(4), 1, 1, 3),
            (window(5), WINDOW_BYTES, 1, 48),
        ] {
            let window = Window {
                len_bytes,
                ..window
            };
            let windows = Windows::new();
            let asked = |_: &u64| windows.asked(window, asked_bytes);
            let due: Vec<u64> = (1..AGAIN_AFTER * expected).filter(asked).collect();
            assert_eq!(due, [expected], "{asked_bytes} of {len_bytes}");
            let again = (0..=expected).filter(asked).count();
            assert_eq!(again, 1, "{asked_bytes} of {len_bytes}");
        }
    }

    #[test]
    fn a_proof_holds_in_its_epoch_and_is_then_forgotten() {
        let (windows, window) = (Windows::new(), window(6));
        assert!(!windows.is_proven(window, 0), "not entered");
        windows.prove(window, 7);
        assert!(windows.is_proven(window, 7));
        assert!(windows.is_proven(window, 7), "as often as asked");
        assert!(!windows.is_proven(window, 8), "another epoch");
        assert!(!windows.is_proven(window, 7), "it does not come back");
        windows.prove(window, 8);
        windows.forget(window);
        assert!(
            !windows.is_proven(window, 8),
            "other bytes have these addresses"
        );
    }

    #[test]
    fn windows_that_meet_in_the_table_are_never_taken_for_each_other() {
        let (windows, first) = (Windows::new(), window(7));
        let meets = |other: &Window| std::ptr::eq(windows.proof(*other), windows.proof(first));
        let other = (8..).map(window).find(meets).expect("a small table");
        windows.prove(first, 7);
        assert!(!windows.is_proven(other, 7));
        windows.prove(other, 7);
        assert!(windows.is_proven(other, 7));
        assert!(!windows.is_proven(first, 7), "the later one took its place");
        windows.forget(first);
        assert!(windows.is_proven(other, 7), "nothing of its own was there");
    }

    #[test]
    fn a_window_is_soon_entered_again_when_its_proof_ends() {
        let (windows, window) = (Windows::new(), window(9));
        let due = |times| (0..times).any(|_| windows.asked(window, WINDOW_BYTES));
        assert!(due(ENTER_AFTER));
        windows.prove(window, 1);
        assert!(!due(ENTER_AFTER), "it is entered");
        assert!(!windows.is_proven(window, 2));
        assert!(!due(ENTER_AGAIN_AFTER - 1));
        assert!(due(1));
    }
}
