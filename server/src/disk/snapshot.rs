//! Snapshots of a device for an operator. They cost nothing while nobody asks.

use std::sync::Arc;
use std::time::Duration;

use ackpace_core::disk::{DeviceChange, DeviceDecision, DeviceState};
use ackpace_core::units::Instant;
use crossbeam_channel::bounded;

use super::{DiskHandle, Shell};
use crate::limits::{DECISIONS_SHOWN_MAX, QUESTIONS_PER_TURN_MAX};
use crate::store::file::File;

/// What the thread of a device answers.
pub enum DeviceAnswer {
    /// It serves.
    Serves(Box<DeviceSnapshot>),
    /// It has no readers yet, for this reason: what was wanted since has failed.
    Waits(String),
}

/// A snapshot of a device, and its last decisions.
pub struct DeviceSnapshot {
    /// Its present state.
    pub state: DeviceState,
    /// Its decisions, oldest first.
    pub decisions: Vec<ToldDecision>,
}

/// A decision of a device's machine.
pub struct ToldDecision {
    /// How long ago.
    pub ago_us: u64,
    /// It was about the device, not about one stream.
    pub of_all: bool,
    /// The file that it was about, if a stream still reads it.
    pub file: Option<Arc<File>>,
    /// A plain sentence.
    pub text: String,
}

impl DiskHandle {
    /// Asks the thread; `None` if it does not answer within `timeout`.
    pub fn snapshot(&self, timeout: Duration) -> Option<DeviceAnswer> {
        let (reply, told) = bounded(1);
        self.questions.try_send(reply).ok()?;
        self.wake();
        told.recv_timeout(timeout).ok()
    }
}

impl Shell {
    pub(super) fn answer(&mut self, now: Instant) {
        for _ in 0..QUESTIONS_PER_TURN_MAX {
            let Ok(reply) = self.questions.try_recv() else {
                return;
            };
            let decisions = self.disk.decisions(DECISIONS_SHOWN_MAX);
            let snapshot = DeviceSnapshot {
                state: self.disk.state(),
                decisions: decisions.map(|decision| self.told(decision, now)).collect(),
            };
            // The receiver may have timed out.
            let _ = reply.try_send(DeviceAnswer::Serves(Box::new(snapshot)));
        }
    }

    fn told(&self, decision: &DeviceDecision, now: Instant) -> ToldDecision {
        let object = match decision.change {
            DeviceChange::ReadPath { object, .. } => Some(object),
            _ => None,
        };
        ToldDecision {
            ago_us: now.since_us(decision.at),
            of_all: object.is_none(),
            file: object.and_then(|object| self.files.get(object)),
            text: decision.change.to_string(),
        }
    }

    /// Logs the decisions that an operator should see, in the words of `ackpace why`.
    pub(super) fn log_notice(&mut self) {
        if let Some(notice) = self.disk.take_notice() {
            let device = self.devices.get(self.index);
            let device = device.map_or_else(|| self.index.to_string(), |device| device.shown());
            tracing::info!("device {device}: {}", notice.change);
        }
    }
}
