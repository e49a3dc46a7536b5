//! Snapshots of a device for an operator. They cost nothing while nobody asks.

use ackpace_core::disk::{DeviceState, Disk};
use ackpace_core::units::Instant;
use ackpace_core::why::Decision;
use crossbeam_channel::{Receiver, Sender};

use super::Shell;
use crate::answers::Told;
use crate::limits::{DECISIONS_SHOWN_MAX, QUESTIONS_PER_TURN_MAX};

/// A request for a snapshot of the device; the answer goes back by this channel.
pub(crate) type Question = Sender<DeviceAnswer>;

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

/// Answers those who ask for a snapshot.
pub(crate) fn answer(questions: &Receiver<Question>, disk: &Disk, now: Instant) {
    for reply in questions.try_iter().take(QUESTIONS_PER_TURN_MAX) {
        let more = disk.decisions().count().saturating_sub(DECISIONS_SHOWN_MAX);
        let decisions = disk.decisions().skip(more);
        let snapshot = DeviceSnapshot {
            state: disk.state(),
            decisions: decisions.map(|decision| told(decision, now)).collect(),
        };
        // The receiver may have timed out.
        let _ = reply.try_send(DeviceAnswer::Serves(Box::new(snapshot)));
    }
}

impl Shell {
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
