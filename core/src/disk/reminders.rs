//! Reminders: answers that wake nobody are found before their streams run dry.
//!
//! A read that ends early wakes no worker, which finds it when it wakes for another reason. With few clients there may be no other
//! reason: without reminders one client of 250 KB/s got half of that from an idle disk.

use super::reader::ReaderId;
use super::{Disk, Out};
use crate::limits::WAKE_US;
use crate::units::Instant;

impl Disk {
    /// The reader has an answer that woke nobody, and its stream runs dry at this time. If its worker has sent no new want
    /// [`WAKE_US`] before, it is woken then. An earlier reminder is replaced.
    pub(super) fn remind(&mut self, id: ReaderId, underrun_at: Instant) {
        self.forget_reminder(id);
        let at = Instant {
            us: underrun_at.us.saturating_sub(WAKE_US),
        };
        if let Some(reader) = self.readers.get_mut(&id) {
            reader.remind_at = Some(at);
            self.reminders.insert((at, id));
        }
    }

    /// Its worker is awake, or the stream is gone.
    pub(super) fn forget_reminder(&mut self, id: ReaderId) {
        let reader = self.readers.get_mut(&id);
        if let Some(at) = reader.and_then(|reader| reader.remind_at.take()) {
            self.reminders.remove(&(at, id));
        }
    }

    /// Wakes the workers whose time has come.
    pub(super) fn nudge(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.reminders.first() {
            if at > now {
                return;
            }
            self.reminders.pop_first();
            if let Some(reader) = self.readers.get_mut(&id) {
                reader.remind_at = None;
                self.outs.push_back(Out::Nudge(reader.want.stream));
            }
        }
    }

    /// When the next worker is to be woken.
    pub(super) fn reminds_at(&self) -> Option<Instant> {
        self.reminders.first().map(|(at, _)| *at)
    }
}
