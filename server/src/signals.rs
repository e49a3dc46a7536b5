//! Signals: two stop the server, two reopen its log files, one is kept for later (docs/operating/restart-and-upgrade.md).

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::signal_name;

use crate::log::{AccessHandle, FLUSH_AT_END, Handle};

pub struct Caught(Signals);

impl Caught {
    /// From now on the signals that end no server do not end this process either. A start takes a while, and a log may be
    /// rotated meanwhile. SIGXFSZ comes with the error of a write to a log that is as long as RLIMIT_FSIZE allows.
    pub fn catch() -> io::Result<Caught> {
        Signals::new([SIGHUP, SIGUSR1, SIGUSR2, SIGXFSZ]).map(Caught)
    }

    /// From now on the signals to stop do not end the process by themselves. Until then they end a start that waits, such as for
    /// the disk of its root.
    pub fn catch_stops(&self) -> io::Result<()> {
        let mut stops = [SIGTERM, SIGINT].into_iter();
        stops.try_for_each(|signal| self.0.add_signal(signal))
    }

    /// Starts a thread that handles them for as long as the process lives. The first of TERM and INT calls `stop`; the
    /// second one ends the process, whatever it waits for.
    pub fn obey(
        mut self,
        log: AccessHandle,
        diagnostics: Handle,
        stop: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let obey = move || {
            let mut stopping = false;
            for signal in self.0.forever() {
                let name = signal_name(signal).unwrap_or("?");
                match signal {
                    SIGTERM | SIGINT if stopping => {
                        tracing::error!(
                            "signal {signal} ({name}), the second: ended at once, connections are cut off"
                        );
                        diagnostics.flush(FLUSH_AT_END);
                        std::process::exit(1);
                    }
                    SIGTERM | SIGINT => {
                        stopping = true;
                        tracing::info!(
                            "signal {signal} ({name}): ending; no new connections, those under way may finish"
                        );
                        stop();
                    }
                    SIGUSR1 => log.reopen(),
                    SIGXFSZ => {} // the log tells the error of the write
                    SIGHUP => {
                        log.reopen();
                        tracing::warn!(
                            "signal {signal} ({name}): log files are opened anew; the configuration is not read again, \
                             which a later version will do: restart for it"
                        );
                    }
                    _ => tracing::debug!("signal {signal} ({name}): has no meaning yet"),
                }
            }
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(obey).map(drop)
    }
}
