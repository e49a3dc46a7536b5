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
use crate::cgroups;
use crate::failure::Failure;
use crate::options::Events;
use crate::place::{Lock, RUN_DIR};
use crate::signals;

/// How often it looks for signals and for new listeners, at least.
const LOOK: Duration = Duration::from_millis(200);
/// How often it looks which cgroups there are.
const CGROUPS_EACH: Duration = Duration::from_secs(1);

/// Where servers look for it.
pub fn path() -> PathBuf {
    Path::new(RUN_DIR).join("events.sock")
}

/// Tells until SIGTERM or SIGINT.
///
/// # Errors
/// What the operator has to mend, or what failed.
pub fn run(options: &Events) -> Result<(), Failure> {
    let matching = options.matching().map_err(Failure::operator)?;
    let cgroup = matching.cgroup.as_deref().map(cgroups::directory);
    let cgroup = cgroup.transpose().map_err(Failure::operator)?;
    let path = options.socket.clone().unwrap_or_else(path);
    let signals = signals::catch()?;
    let mut source = Source::open(&matching)?;
    let _lock = Lock::take(&path.with_extension("lock"), "tells servers of events")?;
    let audience = Audience::gather(&path)
        .map_err(|error| Failure::runtime(format!("{}: {error}", path.display())))?;
    // The ring is mapped and the program attached: rights are for the map of cgroups alone.
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
        cgroup_is_gone: false,
        cgroups_at: Instant::now(),
    };
    let result = session
        .cgroups(&mut source)
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
    /// The cgroup whose sockets are meant; `None`: those of all.
    cgroup: Option<PathBuf>,
    /// That cgroup was removed.
    cgroup_is_gone: bool,
    /// When cgroups were last looked at.
    cgroups_at: Instant,
}

impl EventsSession {
    fn drive(&mut self, source: &mut Source, stopped: &Receiver<()>) -> Result<(), Failure> {
        let mut heard = Vec::new();
        while stopped.try_recv() == Err(TryRecvError::Empty) {
            source.wait(LOOK, &mut heard)?;
            self.audience.tell(&heard);
            heard.clear();
            self.audience.admit();
            if self.cgroups_at.elapsed() >= CGROUPS_EACH {
                self.cgroups(source)?;
            }
        }
        Ok(())
    }

    /// Cgroups come and go.
    fn cgroups(&mut self, source: &mut Source) -> Result<(), Failure> {
        self.cgroups_at = Instant::now();
        let Some(directory) = &self.cgroup else {
            return Ok(());
        };
        let found = cgroups::below(directory);
        if found.is_err() != self.cgroup_is_gone {
            self.cgroup_is_gone = found.is_err();
            let how = match self.cgroup_is_gone {
                true => "is gone: nothing is told of its sockets",
                false => "is there again",
            };
            say!("events: the cgroup {} {how}", directory.display());
        }
        source.select_cgroups(&found.unwrap_or_default().ids)
    }
}
