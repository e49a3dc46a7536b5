//! What comes from the target: payload goes where it stays, and the session tells what came of tasks.

use std::io::IoSliceMut;
use std::sync::atomic::Ordering::Relaxed;

use ackpace_core::units::Instant;
use ackpace_wire::iscsi::session::Told;
use rustix::io::Errno;

use super::Lun;
use crate::unit::Seen;

/// Bytes that are heard in one turn. More: the next turn goes on, and workers are heard in between.
const TURN_BYTES_MAX: usize = 1 << 20;

impl Lun {
    /// Receives what has come, as far as one turn does.
    pub(super) fn receive(&mut self, now: Instant) {
        let mut left_bytes = TURN_BYTES_MAX;
        while left_bytes > 0 {
            let Some(link) = self.link.as_ref().filter(|link| link.is_open()) else {
                return;
            };
            let wants = self.session.wants();
            let task = wants.place.and_then(|place| {
                let asked = self.asked.get_mut(&place.task)?;
                Some((place.offset_bytes, asked))
            });
            let received = match task {
                Some((offset_bytes, asked)) => {
                    let mut into =
                        (asked.lease).iovecs(offset_bytes.into(), wants.len_bytes as u64);
                    let received = link.receive(&mut into);
                    let mut shown_bytes = received.unwrap_or(0);
                    for slice in &into {
                        let len = slice.len().min(shown_bytes);
                        if len > 0 {
                            self.session.receive(&slice[..len], now.us);
                        }
                        shown_bytes -= len;
                    }
                    received
                }
                None => {
                    let len = wants.len_bytes.min(self.copied.len());
                    let into = &mut [IoSliceMut::new(&mut self.copied[..len])];
                    let received = link.receive(into);
                    if let Ok(len @ 1..) = received {
                        self.session.receive(&self.copied[..len], now.us);
                    }
                    received
                }
            };
            match received {
                Ok(0) => return self.lost("the target closed the connection", now),
                Ok(len) => left_bytes = left_bytes.saturating_sub(len),
                Err(Errno::AGAIN) => {
                    if let Some(link) = &mut self.link {
                        link.awaits(wants.len_bytes);
                    }
                    return;
                }
                Err(error) => return self.lost(&error.to_string(), now),
            }
            while let Some(told) = self.session.told() {
                self.hear_session(told, now);
            }
            // It may have found the target at fault: what is left of this connection is not for it.
            while let Some(order) = self.session.poll(now.us) {
                self.obey(order, now);
            }
        }
        self.is_eager = true;
    }

    pub(super) fn hear_session(&mut self, told: Told, now: Instant) {
        match told {
            Told::Ready(unit) => {
                let seen = Seen {
                    serial: unit.serial.unwrap_or_default(),
                    len_bytes: (unit.capacity.blocks)
                        .saturating_mul(unit.capacity.block_bytes.into()),
                    block_bytes: unit.capacity.block_bytes,
                };
                if !std::mem::replace(&mut self.is_ready, true) {
                    tracing::info!("{}: there is a session with {}", self.unit.url, unit.name);
                }
                self.unit.found(seen);
            }
            Told::Data { .. } | Told::LoggedOut => {}
            Told::Done { task, end } => self.task_ended(task, end, now),
            Told::Trouble(why) => {
                if std::mem::take(&mut self.is_ready) {
                    self.unit.tally.lost.fetch_add(1, Relaxed);
                }
                tracing::warn!("{}: {why}; it is tried again", self.unit.url);
            }
        }
    }
}
