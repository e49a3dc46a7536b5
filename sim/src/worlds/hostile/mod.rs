//! Both machines under a shell that obeys the bytes of an input. They decide the order of messages, how much a socket
//! takes, which read fails, which page is evicted and which client leaves. An event that a real server meets once in a
//! million requests takes an input of some hundred bytes.
//!
//! There are three worlds. In [`both`] the machines talk through latest-wins mailboxes as in the server, and four laws
//! hold for every input:
//!
//! - *Framing*: the bytes sent are exactly those of the plan, in order. A response that ends early is the last one of
//!   its connection, and only a failure ends it early. So it is for a connection that is given away and comes back
//!   (`away.rs`), and the log hears of each response once.
//! - *Memory*: bytes of a file are sent only from where they are: from slots that were read for this stream and are not
//!   given back, or from pages that are in memory, or were a moment ago.
//! - *Shares*: where send memory is divided (`dividing.rs`), no socket holds more than its share allowed when it was
//!   filled, and none becomes writable in vain (`share.rs`).
//! - *Progress*: for every stalled stream some part is at work (`check.rs`). When the input ends and every part does
//!   its work, all that was asked for is sent, and nothing is kept.
//!
//! In [`worker_alone`] and [`disk_alone`] one machine runs without the other. Messages are as the input says: late,
//! duplicated, or about unknown connections.

mod acts;
mod alone_disk;
mod alone_worker;
mod away;
mod check;
mod client;
mod device;
mod disk_thread;
mod dividing;
mod input;
mod mailbox;
mod memory;
mod messages;
mod response;
mod sending;
mod settings;
mod settle;
mod share;
mod shell;
mod trace;

pub use self::alone_disk::disk_alone;
pub use self::alone_worker::worker_alone;

use self::input::Input;
use self::shell::Run;

/// Runs the worker and the disk machine together, as `data` decides.
///
/// # Panics
/// When a law is broken. With `ACKPACE_TRACE` set, the events that led there are printed.
pub fn both(data: &[u8]) {
    let mut run = Run::new(Input::new(data));
    run.act();
    run.settle();
}

/// Pseudo-random bytes, the same for the same seed: an input for each of the worlds.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise the laws would hold of nothing.
    #[test]
    fn shares_bind_and_are_taken_back_and_connections_move() {
        let met: Vec<_> = (0..60)
            .map(|seed| {
                let input = random_input(seed, 300);
                let mut run = Run::new(Input::new(&input));
                run.act();
                run.settle();
                run.counts
            })
            .collect();
        let often =
            |of: fn(&shell::CaseCounts) -> u64| met.iter().filter(|met| of(met) > 0).count();
        let runs = [
            often(|met| met.by_call),
            often(|met| met.taken_back),
            often(|met| met.moved),
        ];
        assert!(
            runs.iter().all(|runs| *runs >= 3),
            "{runs:?} of {}",
            met.len()
        );
    }
}
