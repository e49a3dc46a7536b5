//! What ackpace does for other programs of this machine. The only privileged program, and the only one with BPF; the
//! server runs without it.
//!
//! `tune` divides one send memory among the TCP sockets of any program, by the same policy as the server does for its own
//! ([`ackpace_share`]). Read [`tuner`] first: it is pure, and says what a pass over the sockets leads to.
//! [`kernel`] makes these passes, [`tune`] drives both, and [`status`] tells how it stands. Whatever is changed is undone
//! at the end; the record for that lies in the sockets ([`place`]).
//!
//! `receive` tells what a busy machine does to processes that receive ([`receive`]). Of its commands only `receive guard` changes
//! anything: nice values, which it gives back.

/// A line on standard error. A closed stream is no reason to end, least of all with sockets that are changed.
macro_rules! say {
    ($($word:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($word)*);
    }};
}

/// A line on standard output, likewise.
macro_rules! tell {
    ($($word:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($word)*);
    }};
}

pub mod capabilities;
pub mod cgroups;
pub mod cli;
pub mod clock;
pub mod doctor;
pub mod failure;
pub mod journal;
pub mod kernel;
pub mod limits;
pub mod matching;
pub mod options;
pub mod place;
pub mod receive;
pub mod signals;
pub mod snapshot;
pub mod status;
pub mod tally;
pub mod tune;
pub mod tuner;
