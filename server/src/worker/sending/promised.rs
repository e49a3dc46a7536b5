//! What a response promises of a file, and whether the file still is that. Its head describes one version of the file; bytes of
//! another one must not follow it. So the version is checked whenever bytes are about to be sent.

use ackpace_core::conn::{Promise, Version};
use ackpace_core::units::Instant;

use crate::clock::Clock;
use crate::store::file::{File, VersionCheck};

/// The file of a body, and the version of it that a response promises.
pub(super) struct Promised<'a> {
    pub file: &'a File,
    pub version: &'a Version,
    pub promise: Promise,
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
    pub fn check_version(&self) -> VersionCheck {
        self.file
            .check_version(self.version, self.promise, self.turn.began)
    }
}
