//! Both machines under a shell that does whatever the bytes of an input say: which message is heard when, how much a
//! socket takes, which read fails, which page is dropped, who leaves. What a real server meets once in a million requests
//! is an input of some hundred bytes.
//!
//! Three worlds. In [`both`] the machines talk by latest-wins mailboxes as in the server, and three laws hold for every
//! input:
//!
//! - *Framing*: what is sent is the plan, byte by byte, and nothing else; a response that ends early is the last one of
//!   its connection, and only a failure ends it early.
//! - *Memory*: bytes of a file are sent only from where they are: from slots that were read for this stream and are not
//!   given back, or from pages that are in memory, or were a moment ago.
//! - *Progress*: who stands still is waited for by somebody (`check.rs`), and when the input ends and everybody does his
//!   part, all that was asked for is sent, and nothing is kept.
//!
//! In [`worker_alone`] and [`disk_alone`] there is no other side: messages are as the input likes, late, doubled and of
//! strangers.

mod acts;
mod alone_disk;
mod alone_worker;
mod bench;
mod check;
mod device;
mod input;
mod mailbox;
mod memory;
mod response;
mod settle;
mod shell;
mod story;
mod words;

pub use self::alone_disk::disk_alone;
pub use self::alone_worker::worker_alone;

use self::input::Input;
use self::shell::Run;

/// Worker and disk machine together. See the module.
///
/// # Panics
/// When a law is broken; the orders that led there are printed.
pub fn both(data: &[u8]) {
    let mut run = Run::new(Input::new(data));
    run.act();
    run.settle();
}

/// Bytes that look random, the same for the same seed: an input for each of the worlds.
pub fn random_input(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15); // splitmix64
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) as u8
    };
    (0..len_bytes).map(|_| next()).collect()
}
