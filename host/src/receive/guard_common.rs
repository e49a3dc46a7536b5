//! How both kinds of guard begin and end: the one by nice values ([`super::guard`]), and the exact one by a scheduler of its own
//! ([`super::exact`]).

use std::sync::mpsc::Receiver;

use serde::Serialize;

use super::watch::describe_receivers;
use crate::capabilities::{self, Capability};
use crate::failure::Failure;
use crate::options::Guard;
use crate::signals::Caught;

/// To be called once all is set up that needs privileges. Drops every capability but `kept`, begins to wait for signals, and tells
/// the operator what is guarded. `runs_as` says as what the guard runs. The receiver gets the signal that ends the guard.
///
/// # Errors
/// As capset(2), prctl(2) and pthread_create(3).
pub fn begin(
    options: &Guard,
    kept: Capability,
    signals: Caught,
    runs_as: &str,
) -> Result<Receiver<()>, Failure> {
    capabilities::keep_only(&[kept])?;
    let stopped = signals.hear()?;
    say!(
        "receive: guards {} as {runs_as}; Ctrl-C ends it",
        describe_receivers(&options.port, options.pid)
    );
    Ok(stopped)
}

/// Tells what a guard has done: with `--json` as an object on standard output, else in `words` on standard error.
pub fn report(options: &Guard, counts: &impl Serialize, words: &str) {
    match options.json {
        true => tell!("{}", serde_json::to_string(counts).unwrap_or_default()),
        false => say!("{words}"),
    }
}
