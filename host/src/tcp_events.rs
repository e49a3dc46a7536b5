//! `events`: tells servers at once when TCP cuts the congestion window of one of their connections, or when one is reset
//! ([`ackpace_core::hints`]). It changes nothing, and no server relies on it.
//!
//! A program in the kernel notices ([`source`]), and whoever is connected to a unix socket is told of the sockets of its
//! own user ([`audience`]).

pub mod audience;
pub mod event;
pub mod source;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use self::audience::Audience;
use self::source::Source;
use crate::capabilities::{self, Capability};
use crate::cgroups::ChosenCgroup;
use crate::failure::Failure;
use crate::options::Events;
use crate::place::{Lock, RUN_DIR};
use crate::signals;

/// It looks for signals and for new listeners at least as often as this.
const LOOK: Duration = Duration::from_millis(200);
/// How often it scans the cgroups.
const CGROUPS_EACH: Duration = Duration::from_secs(1);

/// The default path of its unix socket: there servers look for it.
pub fn path() -> PathBuf {
    Path::new(RUN_DIR).join("events.sock")
}

/// Tells servers of events until SIGTERM or SIGINT.
///
/// # Errors
/// An option or the machine does not allow it, or a system call fails.
pub fn run(options: &Events) -> Result<(), Failure> {
    let matching = options.matching().map_err(Failure::operator)?;
    let cgroup = matching.cgroup.as_deref();
    let cgroup = cgroup.map(|path| ChosenCgroup::at(path, "nothing is told of its sockets"));
    let cgroup = cgroup.transpose().map_err(Failure::operator)?;
    let path = options.socket.clone().unwrap_or_else(path);
    let signals = signals::catch()?;
    let mut source = Source::open(&matching)?;
    let _lock = Lock::take(&path.with_extension("lock"), "tells servers of events")?;
    let audience = Audience::gather(&path)
        .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
    // The ring is mapped and the program attached. From here on only the map of cgroups is written, which takes CAP_BPF.
    let kept: &[Capability] = match cgroup {
        Some(_) => &[Capability::Bpf],
        None => &[],
    };
    capabilities::keep_only(kept)?;
    let stopped = signals.hear()?;
    say!(
        "events: tells servers at {}; Ctrl-C ends it",
        path.display()
    );
    let mut session = EventsSession {
        audience,
        cgroup,
        scanned_at: Instant::now(),
    };
    let result = session
        .rescan_cgroups(&mut source)
        .and_then(|()| session.drive(&mut source, &stopped));
    let (told, lost) = (session.audience.told, session.audience.lost);
    let missed = source.missed();
    say!(
        "events: ended; {told} told, {lost} lost by servers that were slow, {missed} in the kernel"
    );
    result
}

struct EventsSession {
    /// The servers that are told.
    audience: Audience,
    /// Only the sockets of this cgroup and those below it count; `None`: all sockets.
    cgroup: Option<ChosenCgroup>,
    /// When cgroups were last scanned.
    scanned_at: Instant,
}

impl EventsSession {
    /// Tells events as they come, until it is stopped.
    fn drive(&mut self, source: &mut Source, stopped: &Receiver<()>) -> Result<(), Failure> {
        let mut heard = Vec::new();
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            source.wait(LOOK, &mut heard)?;
            self.audience.tell(&heard);
            heard.clear();
            self.audience.admit();
            if self.scanned_at.elapsed() >= CGROUPS_EACH {
                self.rescan_cgroups(source)?;
            }
        }
        Ok(())
    }

    /// Scans the chosen cgroup again and selects the sockets below it; says so if it is gone, or more than fits.
    fn rescan_cgroups(&mut self, source: &mut Source) -> Result<(), Failure> {
        self.scanned_at = Instant::now();
        let Some(cgroup) = &mut self.cgroup else {
            return Ok(());
        };
        let (ids, line) = cgroup.scan();
        if let Some(line) = line {
            say!("events: {line}");
        }
        source.select_cgroups(&ids)
    }
}
