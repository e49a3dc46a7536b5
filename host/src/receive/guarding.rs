//! What guards of both kinds ([`super::guard`], [`super::exact`]) begin and end with.

use std::sync::mpsc::Receiver;

use serde::Serialize;

use super::watch::meant;
use crate::capabilities::{self, Capability};
use crate::failure::Failure;
use crate::options::Guard;
use crate::signals::Caught;

/// A guard of either kind has what it needs: it keeps this capability alone, and says what it does. What comes is the signal
/// that ends it.
///
/// # Errors
/// As capset(2) and pthread_create(3).
pub fn begin(
    options: &Guard,
    kept: Capability,
    signals: Caught,
    lead: &str,
) -> Result<Receiver<()>, Failure> {
    capabilities::keep_only(&[kept])?;
    let stopped = signals.hear()?;
    say!(
        "receive: guards {} as {lead}; Ctrl-C ends it",
        meant(&options.port, options.pid)
    );
    Ok(stopped)
}

/// What a guard of either kind has done, as an object or in words.
pub fn report(options: &Guard, counts: &impl Serialize, words: &str) {
    match options.json {
        true => tell!("{}", serde_json::to_string(counts).unwrap_or_default()),
        false => say!("{words}"),
    }
}
