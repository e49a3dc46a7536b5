//! What a response promises of a file, and whether the file still is that. Its head describes one version of the file; bytes of
//! another one must not follow it. So the version is checked before bytes are sent, and what was found holds for the rest of the
//! turn, if that is short.

use ackpace_core::conn::{Promise, Version};
use ackpace_core::residency::Confirmation;
use ackpace_core::units::Instant;

use crate::clock::Clock;
use crate::store::file::{File, VersionCheck};

/// The file of a body, and the version of it that a response promises.
pub(super) struct Promised<'a> {
    pub file: &'a File,
    pub version: &'a Version,
    pub promise: Promise,
    /// When the file was found to be that version, while its response was made. In the same turn it is not asked about again.
    pub confirmed: Option<Confirmation>,
    pub turn: Turn,
}

/// The turn in which something is sent: one pass of the worker's loop.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub began: Instant,
    pub clock: Clock,
}

impl Promised<'_> {
    /// Whether its bytes may be sent as those of the promised version. The kernel is asked now.
    pub fn check_version_now(&self) -> VersionCheck {
        self.file
            .check_version(self.version, self.promise, self.turn.began)
    }

    /// The same. The kernel is not asked if that was confirmed earlier in this turn.
    pub fn check_version(&self) -> VersionCheck {
        match self.confirmed {
            Some(confirmed) if self.is_valid(confirmed) => VersionCheck::Same,
            _ => self.check_version_now(),
        }
    }

    /// Whether something that was confirmed earlier may still be relied on in this turn.
    pub fn is_valid(&self, confirmed: Confirmation) -> bool {
        confirmed.is_valid(self.turn.began, self.turn.clock.now())
    }
}
