//! `ackpace-host receive`: what a busy machine does to processes that receive by TCP (Wu and Crawford), for every program.
//!
//! A process that loses its core while it owns its socket's lock leaves segments without an answer until it is back, and
//! the sender's timer may expire meanwhile. [`watch`] measures how long segments wait; [`rows`] is what the kernel counts,
//! [`report`] what is made of it, [`page`] how it is told. [`advise`] tells what of the machine's settings bears on that
//! ([`facts`]), and changes nothing. [`guard`] gives such a process an extra turn, which it pays back, by a scheduler of its own.
//!
//! Pure are [`turn`], the paper's rule and a fair form of it; and what reads and shows
//! ([`rows`], [`report`], [`page`]). `tests/receiving/` has the paper's own scheduler and experiments, simulated.

pub mod advise;
pub mod counters;
pub mod facts;
pub mod filter;
pub mod guard;
pub mod options;
pub mod page;
pub mod report;
pub mod rows;
pub mod turn;
pub mod watch;

use ackpace_host_base::failure::Failure;

use self::options::Receive;

/// Runs one of the commands.
///
/// # Errors
/// What the operator has to mend, or what failed.
pub fn run(command: &Receive) -> Result<(), Failure> {
    match command {
        Receive::Watch(options) => watch::run(options),
        Receive::Guard(options) => guard::run(options),
        Receive::Advise { pid, json } => advise::run(*pid, *json),
    }
}
