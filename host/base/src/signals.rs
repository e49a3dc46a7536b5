//! Hears of the end: SIGTERM, SIGINT and SIGHUP.

use std::fs;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::failure::Failure;

/// Signals that are caught from now on, and not yet heard.
pub struct Caught(Signals);

/// Catches them; SIGHUP not, if it is ignored, as by nohup(1).
///
/// # Errors
/// As sigaction(2).
pub fn catch() -> Result<Caught, Failure> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut wanted = vec![SIGTERM, SIGINT];
    wanted.extend((!is_ignored(SIGHUP, &status)).then_some(SIGHUP));
    let signals = Signals::new(wanted);
    signals
        .map(Caught)
        .map_err(|error| Failure::runtime(format!("signals: {error}")))
}

/// By /proc/PID/status.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nohup_ignores_stays_ignored() {
        let status =
            "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(is_ignored(SIGHUP, status));
        assert!(!is_ignored(SIGTERM, status) && !is_ignored(SIGHUP, ""));
    }
}
