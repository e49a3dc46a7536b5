//! Snapshots of a device for an operator. They cost nothing while nobody asks.

use std::time::Duration;

use ackpace_core::disk::DeviceState;
use ackpace_core::units::Instant;
use ackpace_core::why::Decision;
use crossbeam_channel::bounded;

use super::{DiskHandle, Shell};
use crate::answers::Told;
use crate::limits::{DECISIONS_SHOWN_MAX, QUESTIONS_PER_TURN_MAX};

pub enum DeviceAnswer {
    Serves(Box<DeviceSnapshot>),
    /// It has no readers yet, for this reason: what was wanted since has failed.
    Waits(String),
}

/// A snapshot of a device, and its last decisions.
pub struct DeviceSnapshot {
    pub state: DeviceState,
    pub decisions: Vec<Told>,
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
            let more = self
                .disk
                .decisions()
                .count()
                .saturating_sub(DECISIONS_SHOWN_MAX);
            let decisions = self.disk.decisions().skip(more);
            let snapshot = DeviceSnapshot {
                state: self.disk.state(),
                decisions: decisions.map(|decision| told(decision, now)).collect(),
            };
            // The receiver may have timed out.
            let _ = reply.try_send(DeviceAnswer::Serves(Box::new(snapshot)));
        }
    }

    /// Logs the decisions that an operator should see, in the words of `ackpace why`.
    pub(super) fn log_notice(&mut self) {
        if let Some(notice) = self.disk.take_notice() {
            let device = self.devices.get(self.index);
            let device = device.map_or_else(|| self.index.to_string(), |device| device.shown());
            tracing::info!("device {device}: {notice}");
        }
    }
}

fn told(decision: &Decision, now: Instant) -> Told {
    Told {
        ago_us: now.since_us(decision.at),
        is_about_all: true,
        text: decision.what.to_string(),
    }
}
