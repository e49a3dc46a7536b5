//! Hears of the end: SIGTERM, SIGINT and SIGHUP.

use std::sync::mpsc::{self, Receiver};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Signals that are caught from now on, and not yet heard.
pub struct Caught(Signals);

/// Catches them.
///
/// # Errors
/// As sigaction(2).
pub fn catch() -> Result<Caught, Failure> {
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]);
    signals
        .map(Caught)
        .map_err(|error| Failure::runtime(format!("signals: {error}")))
}

impl Caught {
    /// A message when one comes, by a thread of its own.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn hear(mut self) -> Result<Receiver<()>, Failure> {
        let (tell, told) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                for _ in self.0.forever() {
                    let _ = tell.try_send(());
                }
            })
            .map_err(|error| Failure::runtime(format!("a thread for signals: {error}")))?;
        Ok(told)
    }
}
